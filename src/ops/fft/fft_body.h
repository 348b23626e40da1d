/*
** ops/fft/fft_body.h: the arithmetic of Fourier transforms over type real, included by
** ops/fft/fft_run.c for float and for double. Real and imaginary parts lie in arrays
** of their own, series beside each other, so the innermost loop of every pass
** runs over contiguous lanes with one twiddle: plain vector code.
**
** A pass of radix r takes r elements that stand n/r apart and leaves them side by
** side (Stockham's order), so no elements are rearranged by themselves:
**
**   y[(r p + k) s + q] = w^(p k) sum_j x[(p + m j) s + q] e^(-2 pi i j k / r)
*/

#define LANES(from) \
  AMP_IVDEP         \
  for (int64_t q = from; q < s; q++)
/* (re + i im) times twiddle k of this p, to place k */
#define PUT(k, re, im)                                                         \
  do {                                                                         \
    const real re_ = (re), im_ = (im);                                         \
    z_re[(k)*s + q] = twiddle ? re_ * w[2 * (k)-2] - im_ * w[2 * (k)-1] : re_; \
    z_im[(k)*s + q] = twiddle ? re_ * w[2 * (k)-1] + im_ * w[2 * (k)-2] : im_; \
  } while (0)

AMP_INLINE void NAME(pass2)(bool twiddle, int64_t apart, int64_t s, const real *restrict x_re,
                            const real *restrict x_im, real *restrict z_re, real *restrict z_im, const real *w)
{
  LANES(0)
  {
    real a_re = x_re[q], a_im = x_im[q], b_re = x_re[apart + q], b_im = x_im[apart + q];
    z_re[q] = a_re + b_re;
    z_im[q] = a_im + b_im;
    PUT(1, a_re - b_re, a_im - b_im);
  }
}

AMP_INLINE void NAME(pass3)(bool twiddle, int64_t apart, int64_t s, const real *restrict x_re,
                            const real *restrict x_im, real *restrict z_re, real *restrict z_im, const real *w)
{
  const real h = (real)0.86602540378443864676;
  LANES(0)
  {
    real a_re = x_re[q], a_im = x_im[q], b_re = x_re[apart + q], b_im = x_im[apart + q], c_re = x_re[2 * apart + q],
         c_im = x_im[2 * apart + q];
    real s_re = b_re + c_re, s_im = b_im + c_im, t_re = a_re - (real)0.5 * s_re, t_im = a_im - (real)0.5 * s_im,
         u_re = h * (b_im - c_im), u_im = h * (c_re - b_re);
    z_re[q] = a_re + s_re;
    z_im[q] = a_im + s_im;
    PUT(1, t_re + u_re, t_im + u_im);
    PUT(2, t_re - u_re, t_im - u_im);
  }
}

AMP_INLINE void NAME(pass4)(bool twiddle, int64_t apart, int64_t s, const real *restrict x_re,
                            const real *restrict x_im, real *restrict z_re, real *restrict z_im, const real *w)
{
  LANES(0)
  {
    real a_re = x_re[q], a_im = x_im[q], b_re = x_re[apart + q], b_im = x_im[apart + q], c_re = x_re[2 * apart + q],
         c_im = x_im[2 * apart + q], e_re = x_re[3 * apart + q], e_im = x_im[3 * apart + q];
    real p_re = a_re + c_re, p_im = a_im + c_im, m_re = a_re - c_re, m_im = a_im - c_im, s_re = b_re + e_re,
         s_im = b_im + e_im, t_re = b_im - e_im, t_im = e_re - b_re; /* t = -i (b - e) */
    z_re[q] = p_re + s_re;
    z_im[q] = p_im + s_im;
    PUT(1, m_re + t_re, m_im + t_im);
    PUT(2, p_re - s_re, p_im - s_im);
    PUT(3, m_re - t_re, m_im - t_im);
  }
}

AMP_INLINE void NAME(pass5)(bool twiddle, int64_t apart, int64_t s, const real *restrict x_re,
                            const real *restrict x_im, real *restrict z_re, real *restrict z_im, const real *w)
{
  const real c1 = (real)0.30901699437494742410, c2 = (real)-0.80901699437494742410, s1 = (real)0.95105651629515357212,
             s2 = (real)0.58778525229247312917;
  LANES(0)
  {
    real a_re = x_re[q], a_im = x_im[q];
    real p_re = x_re[apart + q] + x_re[4 * apart + q], p_im = x_im[apart + q] + x_im[4 * apart + q],
         m_re = x_re[apart + q] - x_re[4 * apart + q], m_im = x_im[apart + q] - x_im[4 * apart + q];
    real s_re = x_re[2 * apart + q] + x_re[3 * apart + q], s_im = x_im[2 * apart + q] + x_im[3 * apart + q],
         t_re = x_re[2 * apart + q] - x_re[3 * apart + q], t_im = x_im[2 * apart + q] - x_im[3 * apart + q];
    real e_re = a_re + c1 * p_re + c2 * s_re, e_im = a_im + c1 * p_im + c2 * s_im, f_re = a_re + c2 * p_re + c1 * s_re,
         f_im = a_im + c2 * p_im + c1 * s_im;
    real g_re = s1 * m_im + s2 * t_im, g_im = -(s1 * m_re + s2 * t_re), h_re = s2 * m_im - s1 * t_im,
         h_im = -(s2 * m_re - s1 * t_re);
    z_re[q] = a_re + p_re + s_re;
    z_im[q] = a_im + p_im + s_im;
    PUT(1, e_re + g_re, e_im + g_im);
    PUT(4, e_re - g_re, e_im - g_im);
    PUT(2, f_re + h_re, f_im + h_im);
    PUT(3, f_re - h_re, f_im - h_im);
  }
}

AMP_INLINE void NAME(pass8)(bool twiddle, int64_t apart, int64_t s, const real *restrict x_re,
                            const real *restrict x_im, real *restrict z_re, real *restrict z_im, const real *w)
{
  const real h = (real)0.70710678118654752440;
  LANES(0)
  {
    real a_re = x_re[q] + x_re[4 * apart + q], a_im = x_im[q] + x_im[4 * apart + q],
         e_re = x_re[q] - x_re[4 * apart + q], e_im = x_im[q] - x_im[4 * apart + q];
    real b_re = x_re[apart + q] + x_re[5 * apart + q], b_im = x_im[apart + q] + x_im[5 * apart + q],
         f_re = x_re[apart + q] - x_re[5 * apart + q], f_im = x_im[apart + q] - x_im[5 * apart + q];
    real c_re = x_re[2 * apart + q] + x_re[6 * apart + q], c_im = x_im[2 * apart + q] + x_im[6 * apart + q],
         g_re = x_re[2 * apart + q] - x_re[6 * apart + q], g_im = x_im[2 * apart + q] - x_im[6 * apart + q];
    real d_re = x_re[3 * apart + q] + x_re[7 * apart + q], d_im = x_im[3 * apart + q] + x_im[7 * apart + q],
         h_re = x_re[3 * apart + q] - x_re[7 * apart + q], h_im = x_im[3 * apart + q] - x_im[7 * apart + q];
    real p_re = a_re + c_re, p_im = a_im + c_im, m_re = a_re - c_re, m_im = a_im - c_im, s_re = b_re + d_re,
         s_im = b_im + d_im, t_re = b_im - d_im, t_im = d_re - b_re;
    z_re[q] = p_re + s_re;
    z_im[q] = p_im + s_im;
    PUT(4, p_re - s_re, p_im - s_im);
    PUT(2, m_re + t_re, m_im + t_im);
    PUT(6, m_re - t_re, m_im - t_im);
    /* odd ones: e, f w, g w^2, h w^3 with w = (1 - i) / sqrt 2 */
    real f2_re = h * (f_re + f_im), f2_im = h * (f_im - f_re), g2_re = g_im, g2_im = -g_re, h2_re = h * (h_im - h_re),
         h2_im = -h * (h_re + h_im);
    p_re = e_re + g2_re;
    p_im = e_im + g2_im;
    m_re = e_re - g2_re;
    m_im = e_im - g2_im;
    s_re = f2_re + h2_re;
    s_im = f2_im + h2_im;
    t_re = f2_im - h2_im;
    t_im = h2_re - f2_re;
    PUT(1, p_re + s_re, p_im + s_im);
    PUT(5, p_re - s_re, p_im - s_im);
    PUT(3, m_re + t_re, m_im + t_im);
    PUT(7, m_re - t_re, m_im - t_im);
  }
}

/* Any radix, by its sums; root: e^(-2 pi i k / r) after the twiddles of the pass */
static void NAME(pass_any)(int r, bool twiddle, int64_t apart, int64_t s, const real *x_re, const real *x_im,
                           real *z_re, real *z_im, const real *w, const real *root)
{
  for (int k = 0; k < r; k++) {
    const real f_re = twiddle && k ? w[2 * k - 2] : 1, f_im = twiddle && k ? w[2 * k - 1] : 0;
    for (int64_t q0 = 0; q0 < s; q0 += 16) {
      real re[16] = { 0 }, im[16] = { 0 };
      int64_t n = s - q0 < 16 ? s - q0 : 16;
      for (int j = 0; j < r; j++) {
        const real c = root[2 * (j * k % r)], v = root[2 * (j * k % r) + 1], *a_re = x_re + j * apart + q0,
                   *a_im = x_im + j * apart + q0;
        for (int64_t q = 0; q < n; q++) {
          re[q] += a_re[q] * c - a_im[q] * v;
          im[q] += a_re[q] * v + a_im[q] * c;
        }
      }
      for (int64_t q = 0; q < n; q++) {
        z_re[k * s + q0 + q] = re[q] * f_re - im[q] * f_im;
        z_im[k * s + q0 + q] = re[q] * f_im + im[q] * f_re;
      }
    }
  }
}

/* One pass: n elements left of a series, s lanes each. Gives the place behind its twiddles. */
AMP_CLONES_OF(real)
static const real *NAME(pass)(int r, int64_t n, int64_t s, const real *x_re, const real *x_im, real *y_re, real *y_im,
                              const real *w)
{
  int64_t m = n / r, apart = m * s;
#define PASS(R)                                                                                          \
  for (int64_t p = 1; p < m; p++) NAME(pass##R)                                                          \
  (true, apart, s, x_re + p * s, x_im + p * s, y_re + R * p * s, y_im + R * p * s, w + p * 2 * (R - 1)); \
  NAME(pass##R)(false, apart, s, x_re, x_im, y_re, y_im, w)
  switch (r) {
  case 2: PASS(2); break;
  case 3: PASS(3); break;
  case 4: PASS(4); break;
  case 5: PASS(5); break;
  case 8: PASS(8); break;
  default:
    for (int64_t p = 0; p < m; p++) NAME(pass_any)
    (r, p > 0, apart, s, x_re + p * s, x_im + p * s, y_re + r * p * s, y_im + r * p * s, w + p * 2 * (r - 1),
     w + m * 2 * (r - 1));
    return w + m * 2 * (r - 1) + 2 * r;
  }
#undef PASS
  return w + m * 2 * (r - 1);
}

static bool NAME(direct)(const amp_fft *plan, int64_t lanes, real *x_re, real *x_im, real *y_re, real *y_im)
{
  const real *w = plan->twiddles;
  int64_t n = plan->n, s = lanes;
  bool in_y = false;
  for (int i = 0; i < plan->factors; i++) {
    w = in_y ? NAME(pass)(plan->factor[i], n, s, y_re, y_im, x_re, x_im, w)
             : NAME(pass)(plan->factor[i], n, s, x_re, x_im, y_re, y_im, w);
    in_y = !in_y;
    n /= plan->factor[i];
    s *= plan->factor[i];
  }
  return in_y;
}

/* -- n = n1 n2: transforms of columns, twiddles, transforms of rows, a few at a time, in cache -------------- */

AMP_CLONES_OF(real)
static void NAME(times)(int64_t n, real *restrict r, real *restrict i, const real *restrict w_re,
                        const real *restrict w_im)
{
  for (int64_t q = 0; q < n; q++) {
    real a = r[q] * w_re[q] - i[q] * w_im[q];
    i[q] = r[q] * w_im[q] + i[q] * w_re[q];
    r[q] = a;
  }
}

/* dst[j][k] = src[k][j], rows of src `ld` apart */
AMP_CLONES_OF(real)
static void NAME(turn)(int64_t rows, int64_t cols, const real *restrict src, int64_t ld, real *restrict dst)
{
  int64_t k0 = 0;
  for (; k0 + 8 <= rows; k0 += 8) {
    int64_t j = 0;
    if (sizeof(real) == sizeof(float))
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

static bool NAME(four)(const amp_fft *plan, real *x_re, real *x_im, real *y_re, real *y_im, real *scratch)
{
  int64_t n1 = plan->first->n, n2 = plan->second->n, most = (n1 > n2 ? n1 : n2) * plan->wide;
  const real *w_re = plan->twiddles, *w_im = w_re + plan->n;
  real *b_re = scratch, *b_im = b_re + most, *c_re = b_im + most, *c_im = c_re + most;
  if (plan->wide >= n2) { /* all columns at once, where they lie */
    bool in_y = NAME(direct)(plan->first, n2, x_re, x_im, y_re, y_im);
    if (in_y) {
      real *t = x_re;
      x_re = y_re;
      y_re = t;
      t = x_im;
      x_im = y_im;
      y_im = t;
    }
    NAME(times)(plan->n, x_re, x_im, w_re, w_im);
    NAME(turn)(n1, n2, x_re, n2, y_re);
    NAME(turn)(n1, n2, x_im, n2, y_im);
    bool back = NAME(direct)(plan->second, n1, y_re, y_im, x_re, x_im);
    return back ? in_y : !in_y; /* back: where x now points, which is y if they were exchanged */
  }
  for (int64_t j = 0; j < n2; j += plan->wide) {
    int64_t s = n2 - j < plan->wide ? n2 - j : plan->wide;
    for (int64_t k = 0; k < n1; k++) {
      memcpy(b_re + k * s, x_re + k * n2 + j, (size_t)s * sizeof(real));
      memcpy(b_im + k * s, x_im + k * n2 + j, (size_t)s * sizeof(real));
    }
    bool second = NAME(direct)(plan->first, s, b_re, b_im, c_re, c_im);
    real *f_re = second ? c_re : b_re, *f_im = second ? c_im : b_im;
    for (int64_t k = 0; k < n1; k++) {
      NAME(times)(s, f_re + k * s, f_im + k * s, w_re + k * n2 + j, w_im + k * n2 + j);
      memcpy(x_re + k * n2 + j, f_re + k * s, (size_t)s * sizeof(real));
      memcpy(x_im + k * n2 + j, f_im + k * s, (size_t)s * sizeof(real));
    }
  }
  for (int64_t k = 0; k < n1; k += plan->wide) {
    int64_t s = n1 - k < plan->wide ? n1 - k : plan->wide;
    NAME(turn)(s, n2, x_re + k * n2, n2, b_re);
    NAME(turn)(s, n2, x_im + k * n2, n2, b_im);
    bool second = NAME(direct)(plan->second, s, b_re, b_im, c_re, c_im);
    const real *f_re = second ? c_re : b_re, *f_im = second ? c_im : b_im;
    for (int64_t j = 0; j < n2; j++) {
      memcpy(y_re + j * n1 + k, f_re + j * s, (size_t)s * sizeof(real));
      memcpy(y_im + j * n1 + k, f_im + j * s, (size_t)s * sizeof(real));
    }
  }
  return true;
}

/* -- Any n, as a convolution with a chirp (Bluestein): j k = (j^2 + k^2 - (k - j)^2) / 2 --------------------- */

static bool NAME(chirp)(const amp_fft *plan, int64_t lanes, real *x_re, real *x_im, real *y_re, real *y_im,
                        real *scratch)
{
  int64_t n = plan->n, m = plan->first->n, size = m * lanes;
  const real *c_re = plan->twiddles, *c_im = c_re + n, *k_re = c_im + n, *k_im = k_re + m;
  real *a_re = scratch, *a_im = a_re + size, *b_re = a_im + size, *b_im = b_re + size, *rest = b_im + size;
  for (int64_t j = 0; j < n; j++)
    for (int64_t l = 0; l < lanes; l++) {
      real a = x_re[j * lanes + l], b = x_im[j * lanes + l];
      a_re[j * lanes + l] = a * c_re[j] - b * c_im[j];
      a_im[j * lanes + l] = a * c_im[j] + b * c_re[j];
    }
  memset(a_re + n * lanes, 0, (size_t)((m - n) * lanes) * sizeof(real));
  memset(a_im + n * lanes, 0, (size_t)((m - n) * lanes) * sizeof(real));
  if (NAME(run)(plan->first, lanes, a_re, a_im, b_re, b_im, rest)) {
    real *t = a_re;
    a_re = b_re;
    b_re = t;
    t = a_im;
    a_im = b_im;
    b_im = t;
  }
  for (int64_t j = 0; j < m; j++)
    for (int64_t l = 0; l < lanes; l++) {
      real a = a_re[j * lanes + l], b = a_im[j * lanes + l];
      a_re[j * lanes + l] = a * k_re[j] - b * k_im[j];
      a_im[j * lanes + l] = a * k_im[j] + b * k_re[j];
    }
  if (NAME(run)(plan->first, lanes, a_im, a_re, b_im, b_re, rest)) {
    a_re = b_re;
    a_im = b_im;
  } /* inverse; the kernel has 1 / m in it */
  for (int64_t j = 0; j < n; j++)
    for (int64_t l = 0; l < lanes; l++) {
      real a = a_re[j * lanes + l], b = a_im[j * lanes + l];
      y_re[j * lanes + l] = a * c_re[j] - b * c_im[j];
      y_im[j * lanes + l] = a * c_im[j] + b * c_re[j];
    }
  return true;
}

bool NAME(run)(const amp_fft *plan, int64_t lanes, real *x_re, real *x_im, real *y_re, real *y_im, real *scratch)
{
  if (plan->kind == AMP_FFT_DIRECT) return NAME(direct)(plan, lanes, x_re, x_im, y_re, y_im);
  AMP_ASSERT(plan->kind != AMP_FFT_FOUR || lanes == 1);
  if (plan->kind == AMP_FFT_FOUR) return NAME(four)(plan, x_re, x_im, y_re, y_im, scratch);
  return NAME(chirp)(plan, lanes, x_re, x_im, y_re, y_im, scratch);
}
#undef LANES
#undef PUT
