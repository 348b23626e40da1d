/*
** cpu_pool_avg.h: loops of avg_pool over the computing type T, names by N(name);
** included by cpu_pool_avg.c once a type. A window is a product: its rows are
** added into one (long vectors), then that along the row.
*/

/* Sum of n elements side by side */
AMP_CLONES_OF(T) static T N(total)(const T *x, int64_t n) {
  enum { W = 32 };
  T a[W] = { 0 }, s = 0;
  int64_t i = 0;
  for (; i + W <= n; i += W) for (int k = 0; k < W; k++) a[k] += x[i + k];
  for (; i < n; i++) s += x[i];
  for (int k = 0; k < W; k++) s += a[k];
  return s;
}

AMP_CLONES_OF(T) static void N(add)(T *restrict y, const T *restrict x, int64_t step, int64_t n) {
  if (step == 1) for (int64_t j = 0; j < n; j++) y[j] += x[j];
  else for (int64_t j = 0; j < n; j++) y[j] += x[j * step];
}
AMP_CLONES_OF(T) static void N(put)(T *restrict y, const T *restrict x, int64_t step, int64_t n) {
  if (step == 1) for (int64_t j = 0; j < n; j++) y[j] = x[j];
  else for (int64_t j = 0; j < n; j++) y[j] = x[j * step];
}
AMP_CLONES_OF(T) static void N(add_quotient)(T *restrict y, const T *restrict x, T f, int64_t n) { for (int64_t j = 0; j < n; j++) y[j] += x[j] / f; }

/* out[ox] = sum of row's window / f[ox] */
AMP_CLONES_OF(T) static void N(along)(const amp__pool *p, const T *restrict row, T *restrict out, const T *restrict f) {
  int64_t ow = p->out[2], w = p->in[2], s = p->stride[2];
  if (p->shares || p->kernel[2] > 16) {
    for (int64_t j = 0; j < ow; j++) {
      T a = 0;
      for (int64_t k = p->start[2][j], e = k + p->count[2][j]; k < e; k++) a += row[k];
      out[j] = a / f[j];
    }
    return;
  }
  for (int64_t j = 0; j < ow; j++) out[j] = 0;
  for (int64_t t = -p->padding[2]; t < p->kernel[2] - p->padding[2]; t++) {
    int64_t lo, hi;
    amp__pool_inside(ow, w, s, t, &lo, &hi);
    const T *r = row + t;
    if (s == 1) for (int64_t j = lo; j < hi; j++) out[j] += r[j];
    else if (s == 2) for (int64_t j = lo; j < hi; j++) out[j] += r[2 * j];
    else for (int64_t j = lo; j < hi; j++) out[j] += r[j * s];
  }
  for (int64_t j = 0; j < ow; j++) out[j] /= f[j];
}

/* The transpose: row = shares of g spread over the windows */
AMP_CLONES_OF(T) static void N(spread)(const amp__pool *p, const T *restrict share, T *restrict row) {
  int64_t ow = p->out[2], w = p->in[2], s = p->stride[2];
  for (int64_t j = 0; j < w; j++) row[j] = 0;
  if (p->shares || p->kernel[2] > 16) {
    for (int64_t j = 0; j < ow; j++)
      for (int64_t k = p->start[2][j], e = k + p->count[2][j]; k < e; k++) row[k] += share[j];
    return;
  }
  for (int64_t t = -p->padding[2]; t < p->kernel[2] - p->padding[2]; t++) {
    int64_t lo, hi;
    amp__pool_inside(ow, w, s, t, &lo, &hi);
    T *r = row + t;
    if (s == 1) for (int64_t j = lo; j < hi; j++) r[j] += share[j];
    else if (s == 2) for (int64_t j = lo; j < hi; j++) r[2 * j] += share[j];
    else for (int64_t j = lo; j < hi; j++) r[j * s] += share[j];
  }
}

static void N(factors)(const amp__pool *p, int64_t oz, int64_t oy, T *f) {
  for (int64_t j = 0; j < p->out[2]; j++)
    f[j] = p->divisor != AMP_NONE ? (T)p->divisor : (T)(p->len[0][oz] * p->len[1][oy] * p->len[2][j]);
}

/* buf: rows of in[2], out[2], out[2] elements */
static void N(planes)(const amp__pool *p, int64_t begin, int64_t end, T *buf) {
  int64_t w = p->in[2], ow = p->out[2], volume = p->in[0] * p->in[1] * w;
  T *out = buf + w, *f = out + ow;
  bool all = p->out[0] * p->out[1] * ow == 1 && p->count[0][0] == p->in[0] && p->count[1][0] == p->in[1] && p->count[2][0] == w &&
             (w == 1 || p->xs[4] == 1) && (p->in[1] == 1 || p->xs[3] == w) && (p->in[0] == 1 || p->xs[2] == p->in[1] * w);
  if (all) N(factors)(p, 0, 0, f);
  for (int64_t i = begin; i < end; i++) {
    const T *x = AMP_PLANE(p, x, xs, i, const T);
    T *y = AMP_PLANE(p, y, ys, i, T);
    if (all) { *y = N(total)(x, volume) / *f; continue; }
    for (int64_t oz = 0; oz < p->out[0]; oz++)
      for (int64_t oy = 0; oy < p->out[1]; oy++) {
        T *to = y + oz * p->ys[2] + oy * p->ys[3], *res = p->ys[4] == 1 ? to : out;
        const T *row = buf;
        int64_t z0 = p->start[0][oz], z1 = z0 + p->count[0][oz], y0 = p->start[1][oy], y1 = y0 + p->count[1][oy];
        N(factors)(p, oz, oy, f);
        if (z1 == z0 || y1 == y0) memset(buf, 0, (size_t)w * sizeof *buf);
        else if (z1 - z0 == 1 && y1 - y0 == 1 && p->xs[4] == 1) row = x + z0 * p->xs[2] + y0 * p->xs[3];
        else
          for (int64_t z = z0; z < z1; z++)
            for (int64_t k = y0; k < y1; k++) {
              const T *r = x + z * p->xs[2] + k * p->xs[3];
              if (z == z0 && k == y0) N(put)(buf, r, p->xs[4], w);
              else N(add)(buf, r, p->xs[4], w);
            }
        N(along)(p, row, res, f);
        if (p->ys[4] != 1) for (int64_t j = 0; j < ow; j++) to[j * p->ys[4]] = out[j];
      }
  }
}

static void N(back_planes)(const amp__pool *p, int64_t begin, int64_t end, T *buf) {
  int64_t w = p->in[2], ow = p->out[2];
  T *share = buf + w, *f = share + ow;
  for (int64_t i = begin; i < end; i++) {
    T *x = AMP_PLANE(p, x, xs, i, T);
    const T *g = AMP_PLANE(p, y, ys, i, const T);
    for (int64_t z = 0; z < p->in[0]; z++)
      for (int64_t y = 0; y < p->in[1]; y++) {
        T *r = x + z * p->xs[2] + y * p->xs[3];
        if (p->xs[4] == 1) memset(r, 0, (size_t)w * sizeof *r);
        else for (int64_t j = 0; j < w; j++) r[j * p->xs[4]] = 0;
      }
    for (int64_t oz = 0; oz < p->out[0]; oz++)
      for (int64_t oy = 0; oy < p->out[1]; oy++) {
        const T *from = g + oz * p->ys[2] + oy * p->ys[3];
        N(factors)(p, oz, oy, f);
        for (int64_t j = 0; j < ow; j++) share[j] = from[j * p->ys[4]] / f[j];
        N(spread)(p, share, buf);
        for (int64_t z = p->start[0][oz]; z < p->start[0][oz] + p->count[0][oz]; z++)
          for (int64_t y = p->start[1][oy]; y < p->start[1][oy] + p->count[1][oy]; y++) {
            T *r = x + z * p->xs[2] + y * p->xs[3];
            if (p->xs[4] == 1) N(add)(r, buf, 1, w);
            else for (int64_t j = 0; j < w; j++) r[j * p->xs[4]] += buf[j];
          }
      }
  }
}

/* -- Channels innermost ------------------------------------------------------------------------ */

static inline T N(factor)(const amp__pool *p, const int64_t *o) {
  return p->divisor != AMP_NONE ? (T)p->divisor : (T)(p->len[0][o[0]] * p->len[1][o[1]] * p->len[2][o[2]]);
}

#define WINDOW(code)                                                                                \
  for (int64_t z = p->start[0][o[0]]; z < p->start[0][o[0]] + p->count[0][o[0]]; z++)               \
    for (int64_t y = p->start[1][o[1]]; y < p->start[1][o[1]] + p->count[1][o[1]]; y++)             \
      for (int64_t q = p->start[2][o[2]]; q < p->start[2][o[2]] + p->count[2][o[2]]; q++) {         \
        T *r = x + z * p->xs[2] + y * p->xs[3] + q * p->xs[4];                                      \
        code                                                                                        \
      }

static void N(pixels)(const amp__pool *p, int64_t begin, int64_t end) {
  int64_t plane = p->out[1] * p->out[2], volume = p->out[0] * plane;
  for (int64_t i = begin; i < end; i++) {
    int64_t n = i / volume, o[3] = { i / plane % p->out[0], i / p->out[2] % p->out[1], i % p->out[2] };
    T *to = (T *)p->y.p + n * p->ys[0] + o[0] * p->ys[2] + o[1] * p->ys[3] + o[2] * p->ys[4], *x = (T *)p->x.p + n * p->xs[0];
    memset(to, 0, (size_t)p->c * sizeof *to);
    WINDOW(N(add)(to, r, 1, p->c);)
    T f = N(factor)(p, o);
    for (int64_t j = 0; j < p->c; j++) to[j] /= f;
  }
}

/* whole images: their outputs add into the same pixels */
static void N(back_pixels)(const amp__pool *p, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; n++) {
    T *x = (T *)p->x.p + n * p->xs[0];
    for (int64_t z = 0; z < p->in[0]; z++)
      for (int64_t y = 0; y < p->in[1]; y++)
        for (int64_t q = 0; q < p->in[2]; q++) memset(x + z * p->xs[2] + y * p->xs[3] + q * p->xs[4], 0, (size_t)p->c * sizeof *x);
    for (int64_t oz = 0; oz < p->out[0]; oz++)
      for (int64_t oy = 0; oy < p->out[1]; oy++)
        for (int64_t ox = 0; ox < p->out[2]; ox++) {
          int64_t o[3] = { oz, oy, ox };
          const T *g = (const T *)p->y.p + n * p->ys[0] + oz * p->ys[2] + oy * p->ys[3] + ox * p->ys[4];
          T f = N(factor)(p, o);
          WINDOW(N(add_quotient)(r, g, f, p->c);)
        }
  }
}
#undef WINDOW
