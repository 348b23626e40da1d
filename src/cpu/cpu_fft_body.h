/*
** cpu_fft_body.h: the arithmetic of Fourier transforms over type T, included by
** cpu_fft_run.c for float and for double. Real and imaginary parts lie in arrays
** of their own, series beside each other, so the innermost loop of every pass
** runs over contiguous lanes with one twiddle: plain vector code.
**
** A pass of radix r takes r elements that stand n/r apart and leaves them side by
** side (Stockham's order), so no elements are rearranged by themselves:
**
**   y[(r p + k) s + q] = w^(p k) sum_j x[(p + m j) s + q] e^(-2 pi i j k / r)
*/

#define LANES(from) AMP_IVDEP for (int64_t q = from; q < s; q++)
/* (re + i im) times twiddle k of this p, to place k */
#define PUT(k, re, im)                                                                    \
  do {                                                                                    \
    const T re_ = (re), im_ = (im);                                                       \
    if (twiddle) { zr[(k) * s + q] = re_ * w[2 * (k) - 2] - im_ * w[2 * (k) - 1]; zi[(k) * s + q] = re_ * w[2 * (k) - 1] + im_ * w[2 * (k) - 2]; } \
    else { zr[(k) * s + q] = re_; zi[(k) * s + q] = im_; }                                \
  } while (0)

AMP_INLINE void NAME(pass2)(bool twiddle, int64_t d, int64_t s, const T *restrict xr, const T *restrict xi, T *restrict zr, T *restrict zi, const T *w) {
  LANES(0) {
    T ar = xr[q], ai = xi[q], br = xr[d + q], bi = xi[d + q];
    zr[q] = ar + br;
    zi[q] = ai + bi;
    PUT(1, ar - br, ai - bi);
  }
}

AMP_INLINE void NAME(pass3)(bool twiddle, int64_t d, int64_t s, const T *restrict xr, const T *restrict xi, T *restrict zr, T *restrict zi, const T *w) {
  const T h = (T)0.86602540378443864676;
  LANES(0) {
    T ar = xr[q], ai = xi[q], br = xr[d + q], bi = xi[d + q], cr = xr[2 * d + q], ci = xi[2 * d + q];
    T sr = br + cr, si = bi + ci, tr = ar - (T)0.5 * sr, ti = ai - (T)0.5 * si, ur = h * (bi - ci), ui = h * (cr - br);
    zr[q] = ar + sr;
    zi[q] = ai + si;
    PUT(1, tr + ur, ti + ui);
    PUT(2, tr - ur, ti - ui);
  }
}

AMP_INLINE void NAME(pass4)(bool twiddle, int64_t d, int64_t s, const T *restrict xr, const T *restrict xi, T *restrict zr, T *restrict zi, const T *w) {
  LANES(0) {
    T ar = xr[q], ai = xi[q], br = xr[d + q], bi = xi[d + q], cr = xr[2 * d + q], ci = xi[2 * d + q], er = xr[3 * d + q], ei = xi[3 * d + q];
    T pr = ar + cr, pi = ai + ci, mr = ar - cr, mi = ai - ci, sr = br + er, si = bi + ei, tr = bi - ei, ti = er - br; /* t = -i (b - e) */
    zr[q] = pr + sr;
    zi[q] = pi + si;
    PUT(1, mr + tr, mi + ti);
    PUT(2, pr - sr, pi - si);
    PUT(3, mr - tr, mi - ti);
  }
}

AMP_INLINE void NAME(pass5)(bool twiddle, int64_t d, int64_t s, const T *restrict xr, const T *restrict xi, T *restrict zr, T *restrict zi, const T *w) {
  const T c1 = (T)0.30901699437494742410, c2 = (T)-0.80901699437494742410, s1 = (T)0.95105651629515357212, s2 = (T)0.58778525229247312917;
  LANES(0) {
    T ar = xr[q], ai = xi[q];
    T pr = xr[d + q] + xr[4 * d + q], pi = xi[d + q] + xi[4 * d + q], mr = xr[d + q] - xr[4 * d + q], mi = xi[d + q] - xi[4 * d + q];
    T sr = xr[2 * d + q] + xr[3 * d + q], si = xi[2 * d + q] + xi[3 * d + q], tr = xr[2 * d + q] - xr[3 * d + q], ti = xi[2 * d + q] - xi[3 * d + q];
    T er = ar + c1 * pr + c2 * sr, ei = ai + c1 * pi + c2 * si, fr = ar + c2 * pr + c1 * sr, fi = ai + c2 * pi + c1 * si;
    T gr = s1 * mi + s2 * ti, gi = -(s1 * mr + s2 * tr), hr = s2 * mi - s1 * ti, hi = -(s2 * mr - s1 * tr);
    zr[q] = ar + pr + sr;
    zi[q] = ai + pi + si;
    PUT(1, er + gr, ei + gi);
    PUT(4, er - gr, ei - gi);
    PUT(2, fr + hr, fi + hi);
    PUT(3, fr - hr, fi - hi);
  }
}

AMP_INLINE void NAME(pass8)(bool twiddle, int64_t d, int64_t s, const T *restrict xr, const T *restrict xi, T *restrict zr, T *restrict zi, const T *w) {
  const T h = (T)0.70710678118654752440;
  LANES(0) {
    T ar = xr[q] + xr[4 * d + q], ai = xi[q] + xi[4 * d + q], er = xr[q] - xr[4 * d + q], ei = xi[q] - xi[4 * d + q];
    T br = xr[d + q] + xr[5 * d + q], bi = xi[d + q] + xi[5 * d + q], fr = xr[d + q] - xr[5 * d + q], fi = xi[d + q] - xi[5 * d + q];
    T cr = xr[2 * d + q] + xr[6 * d + q], ci = xi[2 * d + q] + xi[6 * d + q], gr = xr[2 * d + q] - xr[6 * d + q], gi = xi[2 * d + q] - xi[6 * d + q];
    T dr = xr[3 * d + q] + xr[7 * d + q], di = xi[3 * d + q] + xi[7 * d + q], hr = xr[3 * d + q] - xr[7 * d + q], hi = xi[3 * d + q] - xi[7 * d + q];
    T pr = ar + cr, pi = ai + ci, mr = ar - cr, mi = ai - ci, sr = br + dr, si = bi + di, tr = bi - di, ti = dr - br;
    zr[q] = pr + sr;
    zi[q] = pi + si;
    PUT(4, pr - sr, pi - si);
    PUT(2, mr + tr, mi + ti);
    PUT(6, mr - tr, mi - ti);
    /* odd ones: e, f w, g w^2, h w^3 with w = (1 - i) / sqrt 2 */
    T f2r = h * (fr + fi), f2i = h * (fi - fr), g2r = gi, g2i = -gr, h2r = h * (hi - hr), h2i = -h * (hr + hi);
    pr = er + g2r; pi = ei + g2i; mr = er - g2r; mi = ei - g2i;
    sr = f2r + h2r; si = f2i + h2i; tr = f2i - h2i; ti = h2r - f2r;
    PUT(1, pr + sr, pi + si);
    PUT(5, pr - sr, pi - si);
    PUT(3, mr + tr, mi + ti);
    PUT(7, mr - tr, mi - ti);
  }
}

/* Any radix, by its sums; root: e^(-2 pi i k / r) after the twiddles of the pass */
static void NAME(pass_any)(int r, bool twiddle, int64_t d, int64_t s, const T *xr, const T *xi, T *zr, T *zi, const T *w, const T *root) {
  for (int k = 0; k < r; k++) {
    const T fr = twiddle && k ? w[2 * k - 2] : 1, fi = twiddle && k ? w[2 * k - 1] : 0;
    for (int64_t q0 = 0; q0 < s; q0 += 16) {
      T re[16] = {0}, im[16] = {0};
      int64_t n = s - q0 < 16 ? s - q0 : 16;
      for (int j = 0; j < r; j++) {
        const T c = root[2 * (j * k % r)], v = root[2 * (j * k % r) + 1], *ar = xr + j * d + q0, *ai = xi + j * d + q0;
        for (int64_t q = 0; q < n; q++) { re[q] += ar[q] * c - ai[q] * v; im[q] += ar[q] * v + ai[q] * c; }
      }
      for (int64_t q = 0; q < n; q++) { zr[k * s + q0 + q] = re[q] * fr - im[q] * fi; zi[k * s + q0 + q] = re[q] * fi + im[q] * fr; }
    }
  }
}

/* One pass: n elements left of a series, s lanes each. Gives the place behind its twiddles. */
AMP_CLONES_OF(T) static const T *NAME(pass)(int r, int64_t n, int64_t s, const T *xr, const T *xi, T *yr, T *yi, const T *w) {
  int64_t m = n / r, d = m * s;
#define PASS(R) for (int64_t p = 1; p < m; p++) NAME(pass##R)(true, d, s, xr + p * s, xi + p * s, yr + R * p * s, yi + R * p * s, w + p * 2 * (R - 1)); \
                NAME(pass##R)(false, d, s, xr, xi, yr, yi, w)
  switch (r) {
  case 2: PASS(2); break;
  case 3: PASS(3); break;
  case 4: PASS(4); break;
  case 5: PASS(5); break;
  case 8: PASS(8); break;
  default:
    for (int64_t p = 0; p < m; p++) NAME(pass_any)(r, p > 0, d, s, xr + p * s, xi + p * s, yr + r * p * s, yi + r * p * s, w + p * 2 * (r - 1), w + m * 2 * (r - 1));
    return w + m * 2 * (r - 1) + 2 * r;
  }
#undef PASS
  return w + m * 2 * (r - 1);
}

static bool NAME(direct)(const amp_fft *p, int64_t lanes, T *xr, T *xi, T *yr, T *yi) {
  const T *w = p->w;
  int64_t n = p->n, s = lanes;
  bool in_y = false;
  for (int i = 0; i < p->nf; i++) {
    w = in_y ? NAME(pass)(p->factor[i], n, s, yr, yi, xr, xi, w) : NAME(pass)(p->factor[i], n, s, xr, xi, yr, yi, w);
    in_y = !in_y;
    n /= p->factor[i];
    s *= p->factor[i];
  }
  return in_y;
}

/* -- n = n1 n2: transforms of columns, twiddles, transforms of rows, a few at a time, in cache -------------- */

AMP_CLONES_OF(T) static void NAME(times)(int64_t n, T *restrict r, T *restrict i, const T *restrict wr, const T *restrict wi) {
  for (int64_t q = 0; q < n; q++) {
    T a = r[q] * wr[q] - i[q] * wi[q];
    i[q] = r[q] * wi[q] + i[q] * wr[q];
    r[q] = a;
  }
}

/* dst[j][k] = src[k][j], rows of src `ld` apart */
AMP_CLONES_OF(T) static void NAME(turn)(int64_t rows, int64_t cols, const T *restrict src, int64_t ld, T *restrict dst) {
  int64_t k0 = 0;
  for (; k0 + 8 <= rows; k0 += 8) {
    int64_t j = 0;
    if (sizeof(T) == sizeof(float))
      for (; j + 8 <= cols; j += 8) {
        amp_v8 r[8];
        for (int k = 0; k < 8; k++) r[k] = *(const amp_v8 *)(src + (k0 + k) * ld + j);
        AMP_TURN8(r);
        for (int k = 0; k < 8; k++) *(amp_v8 *)(dst + (j + k) * rows + k0) = r[k];
      }
    for (; j < cols; j++)
      for (int k = 0; k < 8; k++) dst[j * rows + k0 + k] = src[(k0 + k) * ld + j];
  }
  for (; k0 < rows; k0++)
    for (int64_t j = 0; j < cols; j++) dst[j * rows + k0] = src[k0 * ld + j];
}

static bool NAME(four)(const amp_fft *p, T *xr, T *xi, T *yr, T *yi, T *scratch) {
  int64_t n1 = p->a->n, n2 = p->b->n, most = (n1 > n2 ? n1 : n2) * p->wide;
  const T *wr = p->w, *wi = wr + p->n;
  T *br = scratch, *bi = br + most, *cr = bi + most, *ci = cr + most;
  if (p->wide >= n2) { /* all columns at once, where they lie */
    bool in_y = NAME(direct)(p->a, n2, xr, xi, yr, yi);
    if (in_y) { T *t = xr; xr = yr; yr = t; t = xi; xi = yi; yi = t; }
    NAME(times)(p->n, xr, xi, wr, wi);
    NAME(turn)(n1, n2, xr, n2, yr);
    NAME(turn)(n1, n2, xi, n2, yi);
    bool back = NAME(direct)(p->b, n1, yr, yi, xr, xi);
    return back ? in_y : !in_y; /* back: where x now points, which is y if they were exchanged */
  }
  for (int64_t j = 0; j < n2; j += p->wide) {
    int64_t s = n2 - j < p->wide ? n2 - j : p->wide;
    for (int64_t k = 0; k < n1; k++) {
      memcpy(br + k * s, xr + k * n2 + j, (size_t)s * sizeof(T));
      memcpy(bi + k * s, xi + k * n2 + j, (size_t)s * sizeof(T));
    }
    bool second = NAME(direct)(p->a, s, br, bi, cr, ci);
    T *fr = second ? cr : br, *fi = second ? ci : bi;
    for (int64_t k = 0; k < n1; k++) {
      NAME(times)(s, fr + k * s, fi + k * s, wr + k * n2 + j, wi + k * n2 + j);
      memcpy(xr + k * n2 + j, fr + k * s, (size_t)s * sizeof(T));
      memcpy(xi + k * n2 + j, fi + k * s, (size_t)s * sizeof(T));
    }
  }
  for (int64_t k = 0; k < n1; k += p->wide) {
    int64_t s = n1 - k < p->wide ? n1 - k : p->wide;
    NAME(turn)(s, n2, xr + k * n2, n2, br);
    NAME(turn)(s, n2, xi + k * n2, n2, bi);
    bool second = NAME(direct)(p->b, s, br, bi, cr, ci);
    const T *fr = second ? cr : br, *fi = second ? ci : bi;
    for (int64_t j = 0; j < n2; j++) {
      memcpy(yr + j * n1 + k, fr + j * s, (size_t)s * sizeof(T));
      memcpy(yi + j * n1 + k, fi + j * s, (size_t)s * sizeof(T));
    }
  }
  return true;
}

/* -- Any n, as a convolution with a chirp (Bluestein): j k = (j^2 + k^2 - (k - j)^2) / 2 --------------------- */

static bool NAME(chirp)(const amp_fft *p, int64_t lanes, T *xr, T *xi, T *yr, T *yi, T *scratch) {
  int64_t n = p->n, m = p->a->n, size = m * lanes;
  const T *cr = p->w, *ci = cr + n, *kr = ci + n, *ki = kr + m;
  T *ar = scratch, *ai = ar + size, *br = ai + size, *bi = br + size, *rest = bi + size;
  for (int64_t j = 0; j < n; j++)
    for (int64_t l = 0; l < lanes; l++) {
      T a = xr[j * lanes + l], b = xi[j * lanes + l];
      ar[j * lanes + l] = a * cr[j] - b * ci[j];
      ai[j * lanes + l] = a * ci[j] + b * cr[j];
    }
  memset(ar + n * lanes, 0, (size_t)((m - n) * lanes) * sizeof(T));
  memset(ai + n * lanes, 0, (size_t)((m - n) * lanes) * sizeof(T));
  if (NAME(run)(p->a, lanes, ar, ai, br, bi, rest)) { T *t = ar; ar = br; br = t; t = ai; ai = bi; bi = t; }
  for (int64_t j = 0; j < m; j++)
    for (int64_t l = 0; l < lanes; l++) {
      T a = ar[j * lanes + l], b = ai[j * lanes + l];
      ar[j * lanes + l] = a * kr[j] - b * ki[j];
      ai[j * lanes + l] = a * ki[j] + b * kr[j];
    }
  if (NAME(run)(p->a, lanes, ai, ar, bi, br, rest)) { ar = br; ai = bi; } /* inverse; the kernel has 1 / m in it */
  for (int64_t j = 0; j < n; j++)
    for (int64_t l = 0; l < lanes; l++) {
      T a = ar[j * lanes + l], b = ai[j * lanes + l];
      yr[j * lanes + l] = a * cr[j] - b * ci[j];
      yi[j * lanes + l] = a * ci[j] + b * cr[j];
    }
  return true;
}

bool NAME(run)(const amp_fft *p, int64_t lanes, T *xr, T *xi, T *yr, T *yi, T *scratch) {
  if (p->kind == AMP_FFT_DIRECT) return NAME(direct)(p, lanes, xr, xi, yr, yi);
  if (p->kind == AMP_FFT_FOUR) return NAME(four)(p, xr, xi, yr, yi, scratch);
  return NAME(chirp)(p, lanes, xr, xi, yr, yi, scratch);
}
#undef LANES
#undef PUT
