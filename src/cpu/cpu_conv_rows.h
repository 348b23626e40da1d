/*
** cpu_conv_rows.h: convolutions of single planes by rows; included once for
** float and once for double by cpu_conv_depth.c.
**
** A row of the result is gathered in a short buffer from the rows that its
** taps touch, four taps at a time; only where a tap reaches past an end is it
** done alone. The same code runs forward (the tap's place grows with its
** index) and, for a stride of 1, for the gradient in the input (it shrinks).
*/

typedef struct CR(gather) {
  CR_T *dst; const int64_t *dn, *ds;           /* sizes, strides */
  const CR_T *src; const int64_t *sn, *ss; int64_t channels, sc; /* summed over channels that are sc apart */
  const CR_T *w; const int64_t *ws; int64_t wc;
  const int64_t *k, *step; int64_t start[3], by[3]; /* source place of dst i, tap t: i * step + start + t * by */
  CR_T init;
} CR(gather);

enum { CR(LINE) = 512 };
typedef struct CR(taps) { int n; const CR_T *p[4]; CR_T f[4]; int64_t lo[4], hi[4]; } CR(taps);

static inline __attribute__((always_inline)) void CR(flush)(CR_T *restrict acc, CR(taps) *t, int64_t step) {
  int64_t lo = t->lo[0], hi = t->hi[0];
  for (int q = 1; q < t->n; q++) { lo = t->lo[q] > lo ? t->lo[q] : lo; hi = t->hi[q] < hi ? t->hi[q] : hi; }
  if (hi < lo || t->n < 4 || step != 1) hi = lo;
  const CR_T *p0 = t->p[0], *p1 = t->p[1], *p2 = t->p[2], *p3 = t->p[3];
  if (hi > lo) {
    CR_T f0 = t->f[0], f1 = t->f[1], f2 = t->f[2], f3 = t->f[3];
    AMP_IVDEP for (int64_t j = lo; j < hi; j++) acc[j] += (f0 * p0[j] + f1 * p1[j]) + (f2 * p2[j] + f3 * p3[j]);
  }
  for (int q = 0; q < t->n; q++) {
    const CR_T *p = t->p[q], f = t->f[q];
    int64_t a = t->lo[q], b = t->hi[q], m = lo < a ? a : lo < b ? lo : b, e = hi > m ? hi : m;
    if (step == 1) {
      AMP_IVDEP for (int64_t j = a; j < m; j++) acc[j] += f * p[j];
      AMP_IVDEP for (int64_t j = e; j < b; j++) acc[j] += f * p[j];
    } else if (step == 2) for (int64_t j = a; j < b; j++) acc[j] += f * p[j * 2];
    else for (int64_t j = a; j < b; j++) acc[j] += f * p[j * step];
  }
  t->n = 0;
}

AMP_CLONES_OF(CR_T) static void CR(gather_plane)(const CR(gather) *g) {
  CR_T acc[CR(LINE)];
  CR(taps) t = {.n = 0, .p = {acc, acc, acc, acc}};
  int64_t step = g->step[2] * g->ss[2], ds = g->ds[2];
  for (int64_t line = 0; line < g->dn[0] * g->dn[1]; line++)
    for (int64_t j0 = 0; j0 < g->dn[2]; j0 += CR(LINE)) {
      int64_t z = line / g->dn[1], y = line % g->dn[1], n = g->dn[2] - j0 < CR(LINE) ? g->dn[2] - j0 : CR(LINE);
      for (int64_t j = 0; j < n; j++) acc[j] = g->init;
      for (int64_t c = 0; c < g->channels; c++)
        for (int64_t a = 0; a < g->k[0]; a++) {
          int64_t sz = z * g->step[0] + g->start[0] + a * g->by[0];
          if (sz < 0 || sz >= g->sn[0]) continue;
          for (int64_t b = 0; b < g->k[1]; b++) {
            int64_t sy = y * g->step[1] + g->start[1] + b * g->by[1];
            if (sy < 0 || sy >= g->sn[1]) continue;
            const CR_T *row = g->src + c * g->sc + sz * g->ss[0] + sy * g->ss[1];
            const CR_T *w = g->w + c * g->wc + a * g->ws[0] + b * g->ws[1];
            for (int64_t e = 0; e < g->k[2]; e++) {
              int64_t at = j0 * g->step[2] + g->start[2] + e * g->by[2];
              inside(n, g->sn[2], g->step[2], at, &t.lo[t.n], &t.hi[t.n]);
              t.p[t.n] = row + at * g->ss[2];
              t.f[t.n] = w[e * g->ws[2]];
              if (++t.n == 4) CR(flush)(acc, &t, step);
            }
          }
        }
      if (t.n) CR(flush)(acc, &t, step);
      CR_T *d = g->dst + z * g->ds[0] + y * g->ds[1] + j0 * ds;
      if (ds == 1) memcpy(d, acc, (size_t)n * sizeof *d);
      else for (int64_t j = 0; j < n; j++) d[j * ds] = acc[j];
    }
}

/* The gradient in the input for a stride: rows of y are added where their taps came from. */
AMP_CLONES_OF(CR_T) static void CR(scatter_plane)(const conv *v, CR_T *x, const CR_T *y, const CR_T *w, CR_T init) {
  const int64_t *xs = v->xs + 2, *ys = v->ys + 2, *ws = v->ws + 2;
  for (int64_t line = 0; line < v->in[0] * v->in[1]; line++)
    for (int64_t j = 0; j < v->in[2]; j++) x[line / v->in[1] * xs[0] + line % v->in[1] * xs[1] + j * xs[2]] = init;
  for (int64_t o = 0; o < v->og; o++)
    for (int64_t line = 0; line < v->out[0] * v->out[1]; line++) {
      int64_t oz = line / v->out[1], oy = line % v->out[1];
      const CR_T *yr = y + o * v->ys[1] + oz * ys[0] + oy * ys[1];
      for (int64_t a = 0; a < v->k[0]; a++) {
        int64_t z = oz * v->s[0] - v->p[0] + a * v->d[0];
        if (z < 0 || z >= v->in[0]) continue;
        for (int64_t b = 0; b < v->k[1]; b++) {
          int64_t r = oy * v->s[1] - v->p[1] + b * v->d[1];
          if (r < 0 || r >= v->in[1]) continue;
          for (int64_t e = 0; e < v->k[2]; e++) {
            int64_t at = e * v->d[2] - v->p[2], lo, hi, step = v->s[2] * xs[2];
            CR_T f = w[o * v->ws[0] + a * ws[0] + b * ws[1] + e * ws[2]], *xr = x + z * xs[0] + r * xs[1] + at * xs[2];
            inside(v->out[2], v->in[2], v->s[2], at, &lo, &hi);
            AMP_IVDEP for (int64_t j = lo; j < hi; j++) xr[j * step] += f * yr[j * ys[2]];
          }
        }
      }
    }
}

static inline __attribute__((always_inline)) CR_T CR(dot)(const CR_T *a, int64_t as, const CR_T *b, int64_t bs, int64_t n) {
  CR_T s[16] = {0}, r = 0;
  int64_t j = 0;
  if (as == 1 && bs == 1)
    for (; j + 16 <= n; j += 16)
      for (int i = 0; i < 16; i++) s[i] += a[j + i] * b[j + i];
  for (; j < n; j++) r += a[j * as] * b[j * bs];
  for (int w = 8; w > 0; w /= 2)
    for (int i = 0; i < w; i++) s[i] += s[i + w];
  return r + s[0];
}

/* The gradient in one filter, added over an image */
AMP_CLONES_OF(CR_T) static void CR(weight_plane)(const conv *v, const CR_T *x, const CR_T *y, CR_T *w) {
  const int64_t *xs = v->xs + 2, *ys = v->ys + 2, *ws = v->ws + 2;
  for (int64_t a = 0; a < v->k[0]; a++)
    for (int64_t b = 0; b < v->k[1]; b++)
      for (int64_t e = 0; e < v->k[2]; e++) {
        int64_t at = e * v->d[2] - v->p[2], lo, hi;
        CR_T s = 0;
        inside(v->out[2], v->in[2], v->s[2], at, &lo, &hi);
        for (int64_t line = 0; line < v->out[0] * v->out[1]; line++) {
          int64_t oz = line / v->out[1], oy = line % v->out[1];
          int64_t z = oz * v->s[0] - v->p[0] + a * v->d[0], r = oy * v->s[1] - v->p[1] + b * v->d[1];
          if (z < 0 || z >= v->in[0] || r < 0 || r >= v->in[1]) continue;
          const CR_T *xr = x + z * xs[0] + r * xs[1] + (at + lo * v->s[2]) * xs[2], *yr = y + oz * ys[0] + oy * ys[1] + lo * ys[2];
          s += CR(dot)(yr, ys[2], xr, v->s[2] * xs[2], hi - lo);
        }
        w[a * ws[0] + b * ws[1] + e * ws[2]] += s;
      }
}

/* Plane i of the result: of image i / channels for output and input, filter i for the weight */
static void CR(plane)(const conv *v, int which, bool bias, int64_t i) {
  CR_T *x = v->x.p, *y = v->y.p, *w = v->wt.p, *b = v->b.p;
  int64_t per = which == 0 ? v->oc : v->c, n = i / per, c = i % per;
  if (which == 0) {
    CR(gather) g = {.dst = y + n * v->ys[0] + c * v->ys[1], .dn = v->out, .ds = v->ys + 2, .src = x + n * v->xs[0] + c / v->og * v->xs[1],
                    .sn = v->in, .ss = v->xs + 2, .channels = 1, .w = w + c * v->ws[0], .ws = v->ws + 2, .k = v->k, .step = v->s,
                    .init = bias ? b[c] : 0};
    for (int d = 0; d < 3; d++) { g.start[d] = -v->p[d]; g.by[d] = v->d[d]; }
    CR(gather_plane)(&g);
  } else if (which == 1) {
    static const int64_t one[3] = {1, 1, 1};
    CR_T *xc = x + n * v->xs[0] + c * v->xs[1], *yc = y + n * v->ys[0] + c * v->og * v->ys[1], *wc = w + c * v->og * v->ws[0];
    if (v->s[0] * v->s[1] * v->s[2] > 1) { CR(scatter_plane)(v, xc, yc, wc, bias ? b[c] : 0); return; }
    CR(gather) g = {.dst = xc, .dn = v->in, .ds = v->xs + 2, .src = yc, .sn = v->out, .ss = v->ys + 2, .channels = v->og, .sc = v->ys[1],
                    .w = wc, .ws = v->ws + 2, .wc = v->ws[0], .k = v->k, .step = one, .init = bias ? b[c] : 0};
    for (int d = 0; d < 3; d++) { g.start[d] = v->p[d]; g.by[d] = -v->d[d]; }
    CR(gather_plane)(&g);
  } else {
    CR_T *wc = w + i * v->ws[0];
    for (int64_t a = 0; a < v->k[0]; a++)
      for (int64_t q = 0; q < v->k[1] * v->k[2]; q++) wc[a * v->ws[2] + q / v->k[2] * v->ws[3] + q % v->k[2] * v->ws[4]] = 0;
    for (int64_t m = 0; m < v->n; m++) CR(weight_plane)(v, x + m * v->xs[0] + i / v->og * v->xs[1], y + m * v->ys[0] + i * v->ys[1], wc);
  }
}

#undef CR
#undef CR_T
