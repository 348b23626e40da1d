/*
** cpu_conv_pack.h: packers that read an image as if its column matrix stood in
** memory; included once for float and once for double by cpu_conv_pack.c.
**
**   cols     lines are output pixels (over all images), k is (channel, tap)
**   rows     lines are (channel, tap), k is output pixels
**   planes   lines are channels, k is pixels over all images
*/

/* Where a line of `width` pixels is cut by the ends of output rows. */
typedef struct CP(run) { const CP_T *x; int64_t z, y, x0; int at, len; } CP(run);

static inline int CP(runs)(const conv_image *m, int64_t i0, int n, CP(run) *r) {
  int count = 0, at = 0;
  int64_t plane = m->oh * m->ow, line = i0 / m->ow, x = i0 % m->ow, y = line % m->oh, z = i0 / plane % m->od, img = i0 / (plane * m->od);
  while (at < n) {
    int64_t len = m->ow - x;
    if (len > n - at) len = n - at;
    r[count++] = (CP(run)){(const CP_T *)m->x + img * m->xn, z * m->sd, y * m->sh, x * m->sw, at, (int)len};
    at += (int)len;
    x = 0;
    if (++y < m->oh) continue;
    y = 0;
    if (++z == m->od) { z = 0; img++; }
  }
  return count;
}

/* `len` values of one channel and tap along a run, zeros outside the image */
static inline __attribute__((always_inline)) void CP(fetch)(const conv_image *m, const CP(run) *r, int64_t c, conv_tap tap, CP_T *d) {
  int64_t id = r->z + tap.d, ih = r->y + tap.h, iw = r->x0 + tap.w;
  int lo = 0, hi = r->len;
  if (ih < 0 || ih >= m->h || id < 0 || id >= m->d) hi = 0;
  else {
    if (iw < 0) { int64_t q = (-iw + m->sw - 1) / m->sw; lo = q < hi ? (int)q : hi; }
    if (iw + (hi - 1) * m->sw >= m->w) { int64_t q = iw >= m->w ? 0 : (m->w - iw + m->sw - 1) / m->sw; hi = q < hi ? (int)q : hi; }
    if (hi < lo) hi = lo;
  }
  int i = 0;
  if (hi > 0) {
    for (; i < lo; i++) d[i] = 0;
    const CP_T *s = r->x + c * m->xc + id * m->xd + ih * m->xh + iw * m->xw;
    int64_t step = m->sw * m->xw;
    if (step == 1) {
      const CP_T *t = s;
      int j = i;
      for (; j + 16 <= hi; j += 16) __builtin_memcpy(d + j, t + j, 16 * sizeof *d);
      if (j + 8 <= hi) { __builtin_memcpy(d + j, t + j, 8 * sizeof *d); j += 8; }
      if (j + 4 <= hi) { __builtin_memcpy(d + j, t + j, 4 * sizeof *d); j += 4; }
      for (; j < hi; j++) d[j] = t[j];
      i = hi;
    } else for (; i < hi; i++) d[i] = s[i * step];
  }
  for (; i < r->len; i++) d[i] = 0;
}

AMP_CLONES_OF(CP_T)
void CP(conv_pack_cols)(const void *ctx, int64_t k0, int64_t kc, int64_t i0, int64_t ni, int width, void *dst) {
  const conv_image *m = ctx;
  CP_T *panel = dst;
  CP(run) r[32];
  for (int64_t i = 0; i < ni; i += width, panel += width * kc) {
    int n = ni - i < width ? (int)(ni - i) : width;
    int nr = CP(runs)(m, i0 + i, n, r);
    CP_T *d = panel;
    if (m->channels_inside) {
      static const CP_T zero[512];
      const void *line[32];
      int64_t t = k0 / m->c, c = k0 % m->c;
      for (int64_t k = 0; k < kc; t++, c = 0) {
        for (; k < kc && c < m->c;) {
          int64_t len = m->c - c < kc - k ? m->c - c : kc - k;
          if (len > 512) len = 512;
          for (int q = 0; q < nr; q++) {
            int64_t id = r[q].z + m->tap[t].d, ih = r[q].y + m->tap[t].h;
            const CP_T *row = r[q].x + c + id * m->xd + ih * m->xh;
            bool there = ih >= 0 && ih < m->h && id >= 0 && id < m->d;
            for (int j = 0; j < r[q].len; j++) {
              int64_t iw = r[q].x0 + j * m->sw + m->tap[t].w;
              line[r[q].at + j] = there && iw >= 0 && iw < m->w ? row + iw * m->xw : zero;
            }
          }
          amp__gemm_pack_lines(CP_TYPE, line, n, len, width, d);
          k += len;
          c += len;
          d += len * width;
        }
      }
      continue;
    }
    int64_t c = k0 / m->ntap, t = k0 % m->ntap;
    for (int64_t k = 0; k < kc; k++, d += width) {
      for (int q = 0; q < nr; q++) CP(fetch)(m, &r[q], c, m->tap[t], d + r[q].at);
      for (int j = n; j < width; j++) d[j] = 0;
      if (++t == m->ntap) { t = 0; c++; }
    }
  }
}

AMP_CLONES_OF(CP_T)
void CP(conv_pack_rows)(const void *ctx, int64_t k0, int64_t kc, int64_t i0, int64_t ni, int width, void *dst) {
  const conv_image *m = ctx;
  CP_T *panel = dst;
  int64_t plane = m->oh * m->ow, volume = plane * m->od;
  for (int64_t i = 0; i < ni; i += width, panel += width * kc) {
    int n = ni - i < width ? (int)(ni - i) : width;
    if (m->channels_inside && m->xc == 1) {
      CP_T *d = panel;
      int64_t img = k0 / volume, z = k0 % volume / plane, y = k0 % plane / m->ow, x = k0 % m->ow;
      for (int64_t k = 0; k < kc; k++, d += width) {
        const CP_T *s = (const CP_T *)m->x + img * m->xn;
        int64_t t = (i0 + i) / m->c, c = (i0 + i) % m->c;
        for (int j = 0; j < n; t++, c = 0) {
          int len = m->c - c < n - j ? (int)(m->c - c) : n - j;
          int64_t id = z * m->sd + m->tap[t].d, ih = y * m->sh + m->tap[t].h, iw = x * m->sw + m->tap[t].w;
          if (id >= 0 && id < m->d && ih >= 0 && ih < m->h && iw >= 0 && iw < m->w) {
            const CP_T *q = s + c + id * m->xd + ih * m->xh + iw * m->xw;
            for (int l = 0; l < len; l++) d[j + l] = q[l];
          } else for (int l = 0; l < len; l++) d[j + l] = 0;
          j += len;
        }
        for (int j = n; j < width; j++) d[j] = 0;
        if (++x < m->ow) continue;
        x = 0;
        if (++y < m->oh) continue;
        y = 0;
        if (++z == m->od) { z = 0; img++; }
      }
      continue;
    }
    /* rows of the column matrix, a few pixels at a time, then turned */
    enum { STEP = 64 };
    CP_T rows[32][STEP];
    CP(run) r[STEP];
    const void *line[32];
    for (int j = 0; j < 32; j++) line[j] = rows[j];
    for (int64_t k = 0; k < kc; k += STEP) {
      int len = kc - k < STEP ? (int)(kc - k) : STEP;
      int nr = CP(runs)(m, k0 + k, len, r);
      for (int j = 0; j < n; j++) {
        int64_t l = i0 + i + j, c = m->channels_inside ? l % m->c : l / m->ntap, t = m->channels_inside ? l / m->c : l % m->ntap;
        for (int q = 0; q < nr; q++) CP(fetch)(m, &r[q], c, m->tap[t], rows[j] + r[q].at);
      }
      amp__gemm_pack_lines(CP_TYPE, line, n, len, width, panel + k * width);
    }
  }
}

AMP_CLONES_OF(CP_T)
void CP(conv_pack_planes)(const void *ctx, int64_t k0, int64_t kc, int64_t i0, int64_t ni, int width, void *dst) {
  const conv_planes *m = ctx;
  CP_T *panel = dst;
  for (int64_t i = 0; i < ni; i += width, panel += width * kc) {
    int n = ni - i < width ? (int)(ni - i) : width;
    int64_t img = k0 / m->pixels, px = k0 % m->pixels;
    for (int64_t k = 0; k < kc; img++, px = 0) {
      int64_t len = m->pixels - px < kc - k ? m->pixels - px : kc - k;
      const CP_T *s = (const CP_T *)m->p + img * m->pn + (i0 + i) * m->pc + px * m->pp;
      CP_T *d = panel + k * width;
      if (m->pp == 1) {
        const void *line[32];
        for (int j = 0; j < n; j++) line[j] = s + j * m->pc;
        amp__gemm_pack_lines(CP_TYPE, line, n, len, width, d);
      } else
        for (int64_t q = 0; q < len; q++, d += width, s += m->pp) {
          for (int j = 0; j < n; j++) d[j] = s[j * m->pc];
          for (int j = n; j < width; j++) d[j] = 0;
        }
      k += len;
    }
  }
}

#undef CP
#undef CP_T
#undef CP_TYPE
