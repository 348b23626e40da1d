/*
** cpu_pool_max.h: loops of max_pool over the computing type T, names by N(name);
** included by cpu_pool.c once a type. A row of output goes tap by tap, so that
** inner loops have no bounds; channels innermost, a pixel goes tap by tap.
*/

/* GCC makes vector code of it: best and place never overlap the plane */
#define STEP_MAX(X)                                                                                 \
  for (int64_t j = lo; j < hi; j++) {                                                               \
    T v = r[j * (X)], m = best[j];                                                                  \
    int32_t at = base + (int32_t)j * (int32_t)(sw), old = place[j];                                 \
    bool take = (v > m) | (v != v);                                                                 \
    best[j] = take ? v : m;                                                                         \
    place[j] = take ? at : old;                                                                     \
  }

AMP_CLONES_OF(T) static void N(row)(const amp__pool *p, const T *x, int64_t oz, int64_t oy, T *restrict best, int32_t *restrict place) {
  int64_t h = p->in[1], w = p->in[2], ow = p->out[2], sw = p->stride[2], xw = p->xs[4];
  int64_t y0 = oy * p->stride[1] - p->padding[1];
  if (sizeof(T) == 4 && p->kernel[0] == 1 && p->kernel[1] == 2 && p->kernel[2] == 2 && sw == 2 && xw == 1 && p->dilation[1] == 1 && p->dilation[2] == 1 &&
      p->padding[2] == 0 && y0 >= 0 && y0 + 1 < h && 2 * ow <= w && ow >= 4) {
    N(two)(x + p->start[0][oz] * p->xs[2] + y0 * p->xs[3], x + p->start[0][oz] * p->xs[2] + (y0 + 1) * p->xs[3], ow,
           (int32_t)((p->start[0][oz] * h + y0) * w), (int32_t)w, best, place);
    return;
  }
  int32_t first = (int32_t)((p->start[0][oz] * h + p->start[1][oy]) * w);
  /* taps that lie inside for some output */
  int64_t before = p->padding[2] - (ow - 1) * sw, k0 = before > 0 ? (before + p->dilation[2] - 1) / p->dilation[2] : 0, k1 = (w - 1 + p->padding[2]) / p->dilation[2] + 1;
  if (k1 > p->kernel[2]) k1 = p->kernel[2];
  for (int64_t j = 0; j < ow; j++) {
    best[j] = -INFINITY;
    place[j] = first + (int32_t)p->start[2][j];
  }
  for (int64_t kz = 0, z = p->start[0][oz]; kz < p->count[0][oz]; kz++, z += p->dilation[0])
    for (int64_t ky = 0, y = p->start[1][oy]; ky < p->count[1][oy]; ky++, y += p->dilation[1])
      for (int64_t kx = k0; kx < k1; kx++) {
        int64_t t = kx * p->dilation[2] - p->padding[2], lo, hi;
        amp__pool_inside(ow, w, sw, t, &lo, &hi);
        const T *r = x + z * p->xs[2] + y * p->xs[3] + t * xw;
        int32_t base = (int32_t)((z * h + y) * w + t);
        if (xw == 1 && sw == 1) { STEP_MAX(1) }
        else if (xw == 1 && sw == 2) { STEP_MAX(2) }
        else { int64_t step = sw * xw; STEP_MAX(step) }
      }
}

/* Windows of any sizes, one after the other */
static void N(share)(const amp__pool *p, const T *x, int64_t oz, int64_t oy, T *best, int32_t *place) {
  int64_t h = p->in[1], w = p->in[2], xw = p->xs[4];
  for (int64_t ox = 0; ox < p->out[2]; ox++) {
    int64_t q0 = p->start[2][ox], n = p->count[2][ox], at = (p->start[0][oz] * h + p->start[1][oy]) * w + q0;
    T m = -INFINITY;
    for (int64_t z = p->start[0][oz]; z < p->start[0][oz] + p->count[0][oz]; z++)
      for (int64_t y = p->start[1][oy]; y < p->start[1][oy] + p->count[1][oy]; y++) {
        const T *r = x + z * p->xs[2] + y * p->xs[3] + q0 * xw;
        for (int64_t q = 0; q < n; q++) {
          T v = r[q * xw];
          if (v > m || v != v) { m = v; at = (z * h + y) * w + q0 + q; }
        }
      }
    best[ox] = m;
    place[ox] = (int32_t)at;
  }
}

AMP_CLONES_OF(T) static void N(pixel)(const amp__pool *p, const T *x, const int64_t *o, int64_t n, T *restrict best, int32_t *restrict place) {
  int64_t h = p->in[1], w = p->in[2], lo = 0, hi = n;
  int32_t sw = 0, first = (int32_t)((p->start[0][o[0]] * h + p->start[1][o[1]]) * w + p->start[2][o[2]]);
  for (int64_t j = 0; j < n; j++) { best[j] = -INFINITY; place[j] = first; }
  for (int64_t kz = 0, z = p->start[0][o[0]]; kz < p->count[0][o[0]]; kz++, z += p->dilation[0])
    for (int64_t ky = 0, y = p->start[1][o[1]]; ky < p->count[1][o[1]]; ky++, y += p->dilation[1])
      for (int64_t kx = 0, q = p->start[2][o[2]]; kx < p->count[2][o[2]]; kx++, q += p->dilation[2]) {
        const T *r = x + z * p->xs[2] + y * p->xs[3] + q * p->xs[4];
        int32_t base = (int32_t)((z * h + y) * w + q);
        STEP_MAX(1)
      }
}
#undef STEP_MAX

static void N(planes)(const amp__pool *p, int64_t begin, int64_t end, char *buf) {
  T *best = (T *)buf;
  int32_t *place = (int32_t *)(best + p->out[2]);
  int64_t ow = p->out[2];
  for (int64_t i = begin; i < end; i++)
    for (int64_t oz = 0; oz < p->out[0]; oz++)
      for (int64_t oy = 0; oy < p->out[1]; oy++) {
        T *y = AMP_PLANE(p, y, ys, i, T) + oz * p->ys[2] + oy * p->ys[3], *to = p->ys[4] == 1 ? y : best;
        int64_t *at = p->place + i / p->c * p->is[0] + i % p->c * p->is[1] + oz * p->is[2] + oy * p->is[3];
        const T *x = AMP_PLANE(p, x, xs, i, const T);
        if (p->shares) N(share)(p, x, oz, oy, to, place);
        else N(row)(p, x, oz, oy, to, place);
        if (p->ys[4] != 1) for (int64_t j = 0; j < ow; j++) y[j * p->ys[4]] = best[j];
        if (p->is[4] == 1) for (int64_t j = 0; j < ow; j++) at[j] = (int64_t)place[j] + 1;
        else for (int64_t j = 0; j < ow; j++) at[j * p->is[4]] = (int64_t)place[j] + 1;
      }
}

static void N(pixels)(const amp__pool *p, int64_t begin, int64_t end) {
  int32_t place[LANES];
  int64_t plane = p->out[1] * p->out[2], volume = p->out[0] * plane;
  for (int64_t i = begin; i < end; i++) {
    int64_t n = i / volume, o[3] = { i / plane % p->out[0], i / p->out[2] % p->out[1], i % p->out[2] };
    for (int64_t c = 0; c < p->c; c += LANES) {
      int64_t k = p->c - c < LANES ? p->c - c : LANES;
      T *y = (T *)p->y.p + n * p->ys[0] + o[0] * p->ys[2] + o[1] * p->ys[3] + o[2] * p->ys[4] + c;
      int64_t *at = p->place + n * p->is[0] + o[0] * p->is[2] + o[1] * p->is[3] + o[2] * p->is[4] + c;
      N(pixel)(p, (const T *)p->x.p + n * p->xs[0] + c, o, k, y, place);
      for (int64_t j = 0; j < k; j++) at[j] = (int64_t)place[j] + 1;
    }
  }
}

/* -- Through places: images (channels innermost) or planes from begin to end ------------------ */

static void N(zero)(const amp__pool *p, T *x, int64_t c) {
  for (int64_t z = 0; z < p->in[0]; z++)
    for (int64_t y = 0; y < p->in[1]; y++) {
      T *r = x + z * p->xs[2] + y * p->xs[3];
      if (p->xs[4] == c) memset(r, 0, (size_t)(p->in[2] * c) * sizeof *r);
      else for (int64_t q = 0; q < p->in[2]; q++) memset(r + q * p->xs[4], 0, (size_t)c * sizeof *r);
    }
}

/* what happens between v, a place of the plane, and o, the output's element */
#define EACH(code)                                                                                  \
  for (int64_t i = begin; i < end; i++) {                                                           \
    T *x = AMP_PLANE(p, x, xs, i, T), *y = AMP_PLANE(p, y, ys, i, T);                               \
    const int64_t *at = p->place + i / p->c * p->is[0] + i % p->c * p->is[1];                       \
    if (what != GATHER) N(zero)(p, x, 1);                                                           \
    if (dense) { for (int64_t j = 0; j < p->out[0] * plane; j++) { T *v = x + at[j] - 1, *o = y + j; code } continue; } \
    for (int64_t oz = 0; oz < p->out[0]; oz++)                                                      \
      for (int64_t oy = 0; oy < p->out[1]; oy++)                                                    \
        for (int64_t ox = 0; ox < p->out[2]; ox++) {                                                \
          int64_t q = at[oz * p->is[2] + oy * p->is[3] + ox * p->is[4]] - 1;                        \
          T *v = x + (flat ? q * p->xs[4] : q / area * p->xs[2] + q / p->in[2] % p->in[1] * p->xs[3] + q % p->in[2] * p->xs[4]); \
          T *o = y + oz * p->ys[2] + oy * p->ys[3] + ox * p->ys[4];                                 \
          code                                                                                      \
        }                                                                                           \
  }

static void N(through)(const amp__pool *p, int what, int64_t begin, int64_t end) {
  int64_t area = p->in[1] * p->in[2], plane = p->out[1] * p->out[2];
  bool flat = p->xs[3] == p->in[2] * p->xs[4] && (p->in[0] == 1 || p->xs[2] == area * p->xs[4]);
  bool dense = flat && p->xs[4] == 1 && p->ys[4] == 1 && p->is[4] == 1 && p->ys[3] == p->out[2] && p->is[3] == p->out[2] &&
               (p->out[0] == 1 || (p->ys[2] == plane && p->is[2] == plane));
  if (what == SCATTER) { EACH(*v += *o;) }
  else if (what == GATHER) { EACH(*o = *v;) }
  else { EACH(*v = *o;) }
}
#undef EACH

/* grad added at places, channels innermost: pixel by pixel, flat planes only */
static void N(scatter_pixels)(const amp__pool *p, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; n++) {
    T *x = (T *)p->x.p + n * p->xs[0];
    N(zero)(p, x, p->c);
    for (int64_t oz = 0; oz < p->out[0]; oz++)
      for (int64_t oy = 0; oy < p->out[1]; oy++)
        for (int64_t ox = 0; ox < p->out[2]; ox++) {
          const T *g = (const T *)p->y.p + n * p->ys[0] + oz * p->ys[2] + oy * p->ys[3] + ox * p->ys[4];
          const int64_t *at = p->place + n * p->is[0] + oz * p->is[2] + oy * p->is[3] + ox * p->is[4];
          for (int64_t c = 0; c < p->c; c++) x[(at[c] - 1) * p->xs[4] + c] += g[c];
        }
  }
}
