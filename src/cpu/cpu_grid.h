/*
** cpu_grid.h: loops of grid_sample over the computing type T, names by N(name);
** included by cpu_grid.c once a type. Taps outside the input have offset 0 and
** zero weights, and zero weights never read (so a NaN elsewhere stays there).
*/

/* Of one dimension: weights and their derivatives in the grid's value. bad: NaN if that is not finite, else 0 */
typedef struct { int n; int64_t at[4]; T w[4], d[4], dd[4], bad; } N(taps);

/* A place on a line of length size after padding; *f becomes d place / d v. */
static T N(folded)(T v, int64_t size, int padding, bool align, T *f) {
  T n = (T)size, lo = align ? 0 : (T)-0.5, span = align ? n - 1 : n;
  if (padding == REFLECTION) {
    if (span <= 0) { *f = 0; return 0; }
    T u = v - lo;
    if (u < 0) { u = -u; *f = -*f; }
    T turns = (T)floor((double)(u / span)), rest = u - turns * span;
    if (fmod((double)turns, 2) != 0) { rest = span - rest; *f = -*f; }
    v = rest + lo;
  }
  if (!(v > 0)) { *f = 0; return 0; }
  if (v >= n - 1) { *f = 0; return n - 1; }
  return v;
}

static int64_t N(inside)(T i, int64_t size, int padding, bool align) {
  T f = 1;
  if (padding != ZEROS) return (int64_t)N(folded)(i, size, padding, align, &f);
  return i >= 0 && i < (T)size ? (int64_t)i : -1;
}

static T N(cubic)(T x) { return x <= 1 ? ((T)1.25 * x - (T)2.25) * x * x + 1 : (((T)-0.75 * x + (T)3.75) * x - 6) * x + 3; }
static T N(cubic1)(T x) { return x <= 1 ? ((T)3.75 * x - (T)4.5) * x : ((T)-2.25 * x + (T)7.5) * x - 6; }
static T N(cubic2)(T x) { return x <= 1 ? (T)7.5 * x - (T)4.5 : (T)-4.5 * x + (T)7.5; }

static void N(place)(N(taps) *t, T v, int64_t size, int mode, int padding, bool align) {
  T f = align ? ((T)size - 1) / 2 : (T)size / 2;
  v = align ? (v + 1) / 2 * ((T)size - 1) : ((v + 1) * (T)size - 1) / 2;
  t->bad = padding == ZEROS || mode == BICUBIC ? v - v : 0;
  if (mode == BICUBIC) {
    if (!(v > -1e9 && v < 1e9)) v = -100; /* far away: nothing, or the border */
    T i = (T)floor((double)v), x = v - i, u[4] = { 1 + x, x, 1 - x, 2 - x };
    t->n = 4;
    for (int k = 0; k < 4; k++) {
      t->at[k] = N(inside)(i + (T)(k - 1), size, padding, align);
      t->w[k] = N(cubic)(u[k]);
      t->d[k] = (k < 2 ? f : -f) * N(cubic1)(u[k]);
      t->dd[k] = f * f * N(cubic2)(u[k]);
    }
  } else {
    if (padding != ZEROS) v = N(folded)(v, size, padding, align, &f);
    else if (!(v > -1e9 && v < 1e9)) v = -100;
    t->n = mode == NEAREST ? 1 : 2;
    T i = mode == NEAREST ? (T)nearbyint((double)v) : (T)floor((double)v), x = v - i;
    if (mode == NEAREST) { t->w[0] = 1; t->d[0] = 0; }
    else { t->w[0] = 1 - x; t->w[1] = x; t->d[0] = -f; t->d[1] = f; }
    for (int k = 0; k < t->n; k++) {
      t->at[k] = i + (T)k >= 0 && i + (T)k < (T)size ? (int64_t)i + k : -1;
      t->dd[k] = 0;
    }
  }
  for (int k = 0; k < t->n; k++) if (t->at[k] < 0) t->w[k] = t->d[k] = t->dd[k] = 0;
}

/* Taps of a block of points: tap k of point j at [k][j] */
typedef struct {
  int n;                                /* taps of a point */
  int64_t points;
  int32_t at[TAPS][BLOCK];
  T w[TAPS][BLOCK], d[3][TAPS][BLOCK];  /* d: derivatives of w in x, y, z */
  T v[TAPS][BLOCK], u[3][TAPS][BLOCK];  /* twice: along ggrid, of w and of d */
} N(block);

/* Points begin.. of image n, whose values of the grid start at g; along: values of ggrid, or NULL */
static void N(gather)(const grid *k, N(block) *b, const T *g, const T *along, int64_t points, bool slopes) {
  int nd = k->nd;
  b->points = points;
  for (int64_t j = 0; j < points; j++) {
    N(taps) t[3];
    int count = 1;
    for (int a = 0; a < 3; a++) {
      if (a < nd) N(place)(&t[a], g[j * nd + a], k->in[2 - a], k->mode, k->padding, k->align);
      else t[a] = (N(taps)){ 1, { 0 }, { 1 }, { 0 }, { 0 }, 0 };
      count *= t[a].n;
    }
    b->n = count;
    T bad = t[0].bad + t[1].bad + t[2].bad;
    int i = 0;
    for (int z = 0; z < t[2].n; z++) for (int y = 0; y < t[1].n; y++) for (int x = 0; x < t[0].n; x++, i++) {
      bool there = t[0].at[x] >= 0 && t[1].at[y] >= 0 && t[2].at[z] >= 0;
      T wx = t[0].w[x], wy = t[1].w[y], wz = t[2].w[z];
      b->at[i][j] = there ? (int32_t)((t[2].at[z] * k->in[1] + t[1].at[y]) * k->in[2] + t[0].at[x]) : 0;
      b->w[i][j] = there ? wx * wy * wz : 0;
      if (!slopes) { if (i == 0) b->w[0][j] += bad; continue; }
      T dx = t[0].d[x], dy = t[1].d[y], dz = t[2].d[z];
      b->d[0][i][j] = there ? dx * wy * wz : 0;
      b->d[1][i][j] = there ? wx * dy * wz : 0;
      b->d[2][i][j] = there ? wx * wy * dz : 0;
      if (i == 0) for (int a = 0; a < nd; a++) b->d[a][0][j] += bad;
      if (!along) continue;
      T ex = there ? along[j * nd] : 0, ey = there ? along[j * nd + 1] : 0, ez = there && nd > 2 ? along[j * nd + 2] : 0;
      b->v[i][j] = ex * b->d[0][i][j] + ey * b->d[1][i][j] + ez * b->d[2][i][j];
      b->u[0][i][j] = ex * t[0].dd[x] * wy * wz + ey * dx * dy * wz + ez * dx * wy * dz;
      b->u[1][i][j] = ex * dx * dy * wz + ey * wx * t[1].dd[y] * wz + ez * wx * dy * dz;
      b->u[2][i][j] = ex * dx * wy * dz + ey * wx * dy * dz + ez * wx * wy * t[2].dd[z];
    }
  }
}

/* The same for a plane, bilinear or nearest, a point a lane: no branches */
AMP_INLINE T N(fold)(T x, T n, int padding, bool align) {
  if (padding == REFLECTION) {
    T lo = align ? 0 : (T)-0.5, span = align ? n - 1 : n, u = x - lo;
    u = u < 0 ? -u : u;
    T turns = FLOOR(u / span), rest = u - turns * span, half = turns / 2;
    rest = FLOOR(half) != half ? span - rest : rest;
    x = span > 0 ? rest + lo : 0;
  }
  if (padding != ZEROS) {
    x = x > 0 ? x : 0;
    x = x < n - 1 ? x : n - 1;
  }
  x = ((x > -2) & (x < n + 1)) ? x : -2;
  return x;
}

AMP_INLINE void N(points)(const grid *k, N(block) *restrict b, const T *restrict g, int64_t points, bool nearest, int padding) {
  T h = (T)k->in[1], w = (T)k->in[2];
  int32_t iw = (int32_t)k->in[2];
  bool align = k->align;
  b->n = nearest ? 1 : 4;
  b->points = points;
  for (int64_t j = 0; j < points; j++) {
    T x = g[2 * j], y = g[2 * j + 1], bad = padding == ZEROS ? (x - x) + (y - y) : 0;
    x = align ? (x + 1) / 2 * (w - 1) : ((x + 1) * w - 1) / 2;
    y = align ? (y + 1) / 2 * (h - 1) : ((y + 1) * h - 1) / 2;
    x = N(fold)(x, w, padding, align);
    y = N(fold)(y, h, padding, align);
    if (nearest) {
      T rx = RINT(x), ry = RINT(y);
      bool there = (rx >= 0) & (rx < w) & (ry >= 0) & (ry < h);
      b->at[0][j] = there ? (int32_t)ry * iw + (int32_t)rx : 0;
      b->w[0][j] = (there ? 1 : 0) + bad;
      continue;
    }
    int32_t ix = (int32_t)(x + 2) - 2, iy = (int32_t)(y + 2) - 2, at = iy * iw + ix;
    T fx = x - (T)ix, fy = y - (T)iy;
    bool x0 = (ix >= 0) & ((T)ix < w), x1 = (ix >= -1) & ((T)ix < w - 1), y0 = (iy >= 0) & ((T)iy < h), y1 = (iy >= -1) & ((T)iy < h - 1);
    b->at[0][j] = (x0 & y0) ? at : 0;
    b->at[1][j] = (x1 & y0) ? at + 1 : 0;
    b->at[2][j] = (x0 & y1) ? at + iw : 0;
    b->at[3][j] = (x1 & y1) ? at + iw + 1 : 0;
    b->w[0][j] = ((x0 & y0) ? (1 - fx) * (1 - fy) : 0) + bad;
    b->w[1][j] = (x1 & y0) ? fx * (1 - fy) : 0;
    b->w[2][j] = (x0 & y1) ? (1 - fx) * fy : 0;
    b->w[3][j] = (x1 & y1) ? fx * fy : 0;
  }
}
#define POINTS(name, nearest, padding) \
  AMP_CLONES_OF(T) static void N(name)(const grid *k, N(block) *b, const T *g, int64_t points) { N(points)(k, b, g, points, nearest, padding); }
POINTS(linear_zeros, false, ZEROS)
POINTS(linear_border, false, BORDER)
POINTS(linear_reflection, false, REFLECTION)
POINTS(nearest_zeros, true, ZEROS)
POINTS(nearest_border, true, BORDER)
POINTS(nearest_reflection, true, REFLECTION)
#undef POINTS

AMP_CLONES_OF(T) static void N(read1)(const N(block) *b, const T *restrict x, T *restrict y) {
  int64_t n = b->points;
  const int32_t *at = b->at[0];
  const T *w = b->w[0];
  for (int64_t j = 0; j < n; j++) { T v = x[at[j]] * w[j]; y[j] = w[j] != 0 ? v : 0; }
}

AMP_CLONES_OF(T) static void N(read)(const N(block) *b, const T *restrict x, T *restrict y) {
  int64_t n = b->points;
  for (int64_t j = 0; j < n; j++) y[j] = 0;
  for (int k = 0; k < b->n; k++) {
    const int32_t *at = b->at[k];
    const T *w = b->w[k];
    for (int64_t j = 0; j < n; j++) { T v = x[at[j]] * w[j]; y[j] += w[j] != 0 ? v : 0; }
  }
}

AMP_CLONES_OF(T) static void N(read4)(const N(block) *b, const T *restrict x, T *restrict y) {
  int64_t n = b->points;
  const int32_t *a0 = b->at[0], *a1 = b->at[1], *a2 = b->at[2], *a3 = b->at[3];
  const T *w0 = b->w[0], *w1 = b->w[1], *w2 = b->w[2], *w3 = b->w[3];
  for (int64_t j = 0; j < n; j++) {
    T v0 = x[a0[j]] * w0[j], v1 = x[a1[j]] * w1[j], v2 = x[a2[j]] * w2[j], v3 = x[a3[j]] * w3[j];
    y[j] = ((w0[j] != 0 ? v0 : 0) + (w1[j] != 0 ? v1 : 0)) + ((w2[j] != 0 ? v2 : 0) + (w3[j] != 0 ? v3 : 0));
  }
}

static void N(forward)(const grid *k, int64_t begin, int64_t end) { /* images times blocks of points */
  N(block) *b = k->block;
  static void (*const points[2][3])(const grid *, N(block) *, const T *, int64_t) = {
    { N(linear_zeros), N(linear_border), N(linear_reflection) }, { N(nearest_zeros), N(nearest_border), N(nearest_reflection) } };
  bool plane = k->nd == 2 && k->mode != BICUBIC && k->in[1] < 1 << 24 && k->in[2] < 1 << 24;
  for (int64_t i = begin; i < end; i++) {
    int64_t n = i / k->nblock, p = i % k->nblock * BLOCK, m = k->points - p < BLOCK ? k->points - p : BLOCK;
    const T *g = (const T *)k->grid.p + (n * k->points + p) * k->nd;
    if (plane) points[k->mode][k->padding](k, b, g, m);
    else N(gather)(k, b, g, NULL, m, false);
    for (int64_t c = 0; c < k->c; c++) {
      const T *x = (const T *)k->x.p + (n * k->c + c) * k->volume;
      T *y = (T *)k->g.p + (n * k->c + c) * k->points + p;
      if (b->n == 1) N(read1)(b, x, y);
      else if (b->n == 4) N(read4)(b, x, y);
      else N(read)(b, x, y);
    }
  }
}

AMP_CLONES_OF(T) static void N(dot)(T *restrict to, const T *g, const T *w, const int32_t *at, const T *restrict x, int64_t n) {
  for (int64_t j = 0; j < n; j++) { T v = x[at[j]] * w[j] * g[j]; to[j] += w[j] != 0 ? v : 0; }
}

static void N(backward)(const grid *k, int64_t begin, int64_t end) { /* whole images: points add into the same places */
  N(block) *b = k->block;
  T sum[3][BLOCK];
  int nd = k->nd;
  for (int64_t i = begin * k->nblock; i < end * k->nblock; i++) {
    int64_t n = i / k->nblock, p = i % k->nblock * BLOCK, m = k->points - p < BLOCK ? k->points - p : BLOCK;
    N(gather)(k, b, (const T *)k->grid.p + (n * k->points + p) * nd, NULL, m, true);
    memset(sum, 0, sizeof sum);
    for (int64_t c = 0; c < k->c; c++) {
      const T *x = (const T *)k->x.p + (n * k->c + c) * k->volume, *g = (const T *)k->g.p + (n * k->c + c) * k->points + p;
      T *gx = (T *)k->ox.p + (n * k->c + c) * k->volume;
      for (int t = 0; t < b->n; t++)
        for (int64_t j = 0; j < m; j++) if (b->w[t][j] != 0) gx[b->at[t][j]] += b->w[t][j] * g[j];
      if (k->mode == NEAREST) continue;
      for (int a = 0; a < nd; a++)
        for (int t = 0; t < b->n; t++) N(dot)(sum[a], g, b->d[a][t], b->at[t], x, m);
    }
    T *gg = (T *)k->ogrid.p + (n * k->points + p) * nd;
    for (int64_t j = 0; j < m; j++) for (int a = 0; a < nd; a++) gg[j * nd + a] = sum[a][j];
  }
}

/* Gradients of backward: h is the gradient of its first result, along that of its second */
static void N(twice)(const grid *k, int64_t begin, int64_t end) {
  N(block) *b = k->block;
  T sum[3][BLOCK], one[BLOCK];
  int nd = k->nd;
  for (int64_t j = 0; j < BLOCK; j++) one[j] = 1;
  for (int64_t i = begin * k->nblock; i < end * k->nblock; i++) {
    int64_t n = i / k->nblock, p = i % k->nblock * BLOCK, m = k->points - p < BLOCK ? k->points - p : BLOCK, at = (n * k->points + p) * nd;
    N(gather)(k, b, (const T *)k->grid.p + at, (const T *)k->along.p + at, m, true);
    memset(sum, 0, sizeof sum);
    for (int64_t c = 0; c < k->c; c++) {
      int64_t plane = (n * k->c + c) * k->volume, row = (n * k->c + c) * k->points + p;
      const T *x = (const T *)k->x.p + plane, *h = (const T *)k->h.p + plane, *g = (const T *)k->g.p + row;
      T *gx = (T *)k->ox.p + plane, *og = (T *)k->og.p + row;
      for (int64_t j = 0; j < m; j++) og[j] = 0;
      for (int t = 0; t < b->n; t++) {
        N(dot)(og, one, b->w[t], b->at[t], h, m);
        N(dot)(og, one, b->v[t], b->at[t], x, m);
        for (int64_t j = 0; j < m; j++) if (b->v[t][j] != 0) gx[b->at[t][j]] += b->v[t][j] * g[j];
        for (int a = 0; a < nd; a++) {
          N(dot)(sum[a], g, b->d[a][t], b->at[t], h, m);
          N(dot)(sum[a], g, b->u[a][t], b->at[t], x, m);
        }
      }
    }
    T *gg = (T *)k->ogrid.p + at;
    for (int64_t j = 0; j < m; j++) for (int a = 0; a < nd; a++) gg[j * nd + a] = sum[a][j];
  }
}
