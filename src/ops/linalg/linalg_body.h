/*
** ops/linalg/linalg_body.h: LU, Cholesky, triangular solves and QR over type real, included
** by ops/linalg/linalg_own.c for float and for double (NAME adds the suffix).
**
** Factors are recursive: a matrix is cut in half, the left part is factored, the
** right part is brought up to date by a triangular solve and one product, and
** is factored in turn. So nearly all the arithmetic is in products, whatever
** the cache sizes are. A view has a row and a column stride; an upper triangle
** read backwards is a lower one, so one triangular solve serves all.
*/

typedef struct NAME(view) {
  real *data;
  int64_t row_stride, col_stride;
} NAME(view);
#define VIEW NAME(view)

AMP_INLINE VIEW NAME(at)(VIEW a, int64_t i, int64_t j)
{
  a.data += i * a.row_stride + j * a.col_stride;
  return a;
}
AMP_INLINE VIEW NAME(turned)(VIEW a) { return (VIEW){ a.data, a.col_stride, a.row_stride }; }

/* -- Vectors ------------------------------------------------------------------------------ */

AMP_CLONES_OF(real) static real NAME(dot)(const real *x, const real *y, int64_t n)
{
  real s = 0;
  _Pragma("omp simd reduction(+ : s)") for (int64_t i = 0; i < n; i++) s += x[i] * y[i];
  return s;
}

/* y -= factor * x */
AMP_CLONES_OF(real) static void NAME(less)(real *y, const real *x, real factor, int64_t n)
{
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) y[i] -= factor * x[i];
}

/* -- c -= a b, a m x k, b k x n -------------------------------------------------------------- */

static int NAME(minus)(int64_t m, int64_t n, int64_t k, VIEW a, VIEW b, VIEW c)
{
  if (m == 0 || n == 0 || k == 0) return 0;
  if (c.row_stride < 0) {
    c.data += (m - 1) * c.row_stride;
    c.row_stride = -c.row_stride;
    a.data += (m - 1) * a.row_stride;
    a.row_stride = -a.row_stride;
  }
  if (b.row_stride < 0) {
    b.data += (k - 1) * b.row_stride;
    b.row_stride = -b.row_stride;
    a.data += (k - 1) * a.col_stride;
    a.col_stride = -a.col_stride;
  }
  if (n == 1 && a.row_stride == 1 && c.row_stride == 1) { /* matrix times vector */
    for (int64_t p = 0; p < k; p++) NAME(less)(c.data, a.data + p * a.col_stride, b.data[p * b.row_stride], m);
    return 0;
  }
  if (n == 1 && a.col_stride == 1 && b.row_stride == 1) {
    for (int64_t i = 0; i < m; i++) c.data[i * c.row_stride] -= NAME(dot)(a.data + i * a.row_stride, b.data, k);
    return 0;
  }
  if (m * n * k <= 2048) {
    for (int64_t j = 0; j < n; j++)
      for (int64_t p = 0; p < k; p++) {
        real f = b.data[p * b.row_stride + j * b.col_stride];
        for (int64_t i = 0; i < m; i++)
          c.data[i * c.row_stride + j * c.col_stride] -= f * a.data[i * a.row_stride + p * a.col_stride];
      }
    return 0;
  }
  amp_gemm gemm = { .m = m,
                    .n = n,
                    .k = k,
                    .ars = 1,
                    .acs = m,
                    .b = b.data,
                    .brs = b.row_stride,
                    .bcs = b.col_stride,
                    .c = c.data,
                    .crs = c.row_stride,
                    .ccs = c.col_stride,
                    .accumulate = true };
  size_t own = ((size_t)(m * k) * sizeof(real) + 127) / 64 * 64;
  char *scratch = aligned_alloc(64, own + (amp__gemm_scratch(&gemm, TYPE) + 63) / 64 * 64);
  if (!scratch) return AMP_E_MEMORY;
  real *neg = (real *)scratch;
  if (a.row_stride == 1) {
    for (int64_t p = 0; p < k; p++)
      for (int64_t i = 0; i < m; i++) neg[i + p * m] = -a.data[i + p * a.col_stride];
  } else {
    for (int64_t i = 0; i < m; i++)
      for (int64_t p = 0; p < k; p++) neg[i + p * m] = -a.data[i * a.row_stride + p * a.col_stride];
  }
  gemm.a = neg;
  amp__gemm(&gemm, TYPE, scratch + own);
  free(scratch);
  return 0;
}

/* -- Triangular solves: b (n x k) <- L^-1 b ------------------------------------------------------ */

/* n <= BASE, through a buffer in which the columns of b stand side by side */
AMP_CLONES_OF(real) static void NAME(lower_base)(int64_t n, int64_t k, VIEW l, bool unit, VIEW b)
{
  real buf[BASE * WIDE] __attribute__((aligned(64)));
  AMP_ASSERT(n <= BASE);
  for (int64_t j = 0; j < k; j += WIDE) {
    int64_t width = k - j < WIDE ? k - j : WIDE;
    for (int64_t i = 0; i < n; i++)
      for (int64_t c = 0; c < width; c++) buf[i * WIDE + c] = b.data[i * b.row_stride + (j + c) * b.col_stride];
    for (int64_t i = 0; i < n; i++) {
      real *row = buf + i * WIDE;
      for (int64_t p = 0; p < i; p++) {
        const real f = l.data[i * l.row_stride + p * l.col_stride], *other = buf + p * WIDE;
        for (int64_t c = 0; c < width; c++) row[c] -= f * other[c];
      }
      if (!unit) {
        const real d = l.data[i * (l.row_stride + l.col_stride)];
        for (int64_t c = 0; c < width; c++) row[c] /= d;
      }
    }
    for (int64_t i = 0; i < n; i++)
      for (int64_t c = 0; c < width; c++) b.data[i * b.row_stride + (j + c) * b.col_stride] = buf[i * WIDE + c];
  }
}

static int NAME(lower)(int64_t n, int64_t k, VIEW l, bool unit, VIEW b)
{
  if (n <= BASE) {
    NAME(lower_base)(n, k, l, unit, b);
    return 0;
  }
  int64_t half = n / 2;
  int status = NAME(lower)(half, k, l, unit, b);
  if (status == 0) status = NAME(minus)(n - half, k, half, NAME(at)(l, half, 0), b, NAME(at)(b, half, 0));
  return status < 0 ? status : NAME(lower)(n - half, k, NAME(at)(l, half, half), unit, NAME(at)(b, half, 0));
}

static int NAME(solve)(bool upper, int64_t n, int64_t k, VIEW a, bool unit, VIEW b)
{
  if (n == 0 || k == 0) return 0;
  if (upper) { /* from the last row to the first */
    a = NAME(at)(a, n - 1, n - 1);
    b = NAME(at)(b, n - 1, 0);
    a.row_stride = -a.row_stride;
    a.col_stride = -a.col_stride;
    b.row_stride = -b.row_stride;
  }
  return NAME(lower)(n, k, a, unit, b);
}

static int NAME(triangular)(bool upper, bool transpose, bool unit, int64_t n, int64_t k, const void *matrix, void *rhs)
{
  VIEW t = { (real *)matrix, 1, n };
  return NAME(solve)(upper != transpose, n, k, transpose ? NAME(turned)(t) : t, unit, (VIEW){ rhs, 1, n });
}

/* -- LU ------------------------------------------------------------------------------------------ */

static void NAME(exchange)(real *matrix, int64_t stride, int64_t columns, int64_t from, int64_t to, const int32_t *piv)
{
  for (int64_t j = 0; j < columns; j++, matrix += stride)
    for (int64_t i = from; i < to; i++) {
      real kept = matrix[i];
      matrix[i] = matrix[piv[i]];
      matrix[piv[i]] = kept;
    }
}

/* Columns of an m x n panel; piv counts from its first row. Gives the first zero pivot, from 1. */
static int NAME(lu_panel)(int64_t m, int64_t n, real *matrix, int64_t stride, int32_t *piv)
{
  int zero = 0;
  for (int64_t j = 0; j < n; j++) {
    real *col = matrix + j * stride, most = 0;
    int64_t pivot = j;
    for (int64_t i = j; i < m; i++) {
      real magnitude = col[i] < 0 ? -col[i] : col[i];
      if (magnitude > most) {
        most = magnitude;
        pivot = i;
      }
    }
    piv[j] = (int32_t)pivot;
    if (pivot != j)
      for (int64_t c = 0; c < n; c++) {
        real kept = matrix[j + c * stride];
        matrix[j + c * stride] = matrix[pivot + c * stride];
        matrix[pivot + c * stride] = kept;
      }
    if (col[j] == 0) {
      if (!zero) zero = (int)j + 1;
      continue;
    }
    real inv = 1 / col[j];
    real low = sizeof(real) == 4
                   ? (real)FLT_MIN
                   : (real)DBL_MIN; /* under it an inverse has lost digits; a denormal pivot has none at all */
    if (isinf(inv) || (inv < low && inv > -low))
      for (int64_t i = j + 1; i < m; i++) col[i] /= col[j];
    else
      for (int64_t i = j + 1; i < m; i++) col[i] *= inv;
    for (int64_t c = j + 1; c < n; c++)
      NAME(less)(matrix + j + 1 + c * stride, col + j + 1, matrix[j + c * stride], m - j - 1);
  }
  return zero;
}

static int NAME(lu_part)(int64_t m, int64_t n, real *matrix, int64_t stride, int32_t *piv)
{
  if (n <= 8) return NAME(lu_panel)(m, n, matrix, stride, piv);
  int64_t half = n / 2;
  real *right = matrix + half * stride;
  VIEW l = { matrix, 1, stride }, u = { right, 1, stride };
  int zero = NAME(lu_part)(m, half, matrix, stride, piv), status;
  if (zero < 0) return zero;
  NAME(exchange)(right, stride, n - half, 0, half, piv);
  if ((status = NAME(lower)(half, n - half, l, true, u)) < 0) return status;
  if ((status = NAME(minus)(m - half, n - half, half, NAME(at)(l, half, 0), u, NAME(at)(u, half, 0))) < 0)
    return status;
  if ((status = NAME(lu_part)(m - half, n - half, right + half, stride, piv + half)) < 0) return status;
  for (int64_t i = half; i < n; i++) piv[i] += (int32_t)half;
  NAME(exchange)(matrix, stride, half, half, n, piv);
  return zero ? zero : status ? status + (int)half : 0;
}

static int NAME(lu_solve)(bool transpose, int64_t n, int64_t k, const void *factors, const int32_t *piv, void *rhs)
{
  VIEW a = { (real *)factors, 1, n }, x = { rhs, 1, n };
  int status;
  if (!transpose) {
    NAME(exchange)(rhs, n, k, 0, n, piv);
    if ((status = NAME(solve)(false, n, k, a, true, x)) < 0) return status;
    return NAME(solve)(true, n, k, a, false, x);
  }
  if ((status = NAME(solve)(false, n, k, NAME(turned)(a), false, x)) < 0) return status;
  if ((status = NAME(solve)(true, n, k, NAME(turned)(a), true, x)) < 0) return status;
  real *column = rhs;
  for (int64_t j = 0; j < k; j++, column += n)
    for (int64_t i = n - 1; i >= 0; i--) {
      real kept = column[i];
      column[i] = column[piv[i]];
      column[piv[i]] = kept;
    }
  return 0;
}

static int NAME(lu_inverse)(int64_t n, void *matrix, const int32_t *piv)
{
  size_t bytes = (size_t)(n * n) * sizeof(real);
  real small[256], *lu = bytes <= sizeof small ? small : malloc(bytes), *x = matrix;
  if (!lu) return AMP_E_MEMORY;
  memcpy(lu, matrix, bytes);
  memset(matrix, 0, bytes);
  for (int64_t i = 0; i < n; i++) x[i * (n + 1)] = 1;
  int status = NAME(lu_solve)(false, n, n, lu, piv, matrix);
  if (lu != small) free(lu);
  return status;
}

/* -- Cholesky ---------------------------------------------------------------------------------------- */

static int NAME(cholesky_part)(int64_t n, real *matrix, int64_t stride)
{
  if (n <= 16) {
    for (int64_t j = 0; j < n; j++) {
      real *col = matrix + j * stride;
      for (int64_t p = 0; p < j; p++) NAME(less)(col + j, matrix + j + p * stride, matrix[j + p * stride], n - j);
      if (!(col[j] > 0) || isinf(col[j])) return (int)j + 1;
      real d = (real)sqrt(col[j]);
      col[j] = d;
      for (int64_t i = j + 1; i < n; i++) col[i] /= d;
    }
    return 0;
  }
  int64_t half = n / 2;
  VIEW l = { matrix, 1, stride }, under = { matrix + half, 1, stride },
       rest = { matrix + half + half * stride, 1, stride };
  int status = NAME(cholesky_part)(half, matrix, stride);
  if (status) return status;
  if ((status = NAME(lower)(half, n - half, l, false, NAME(turned)(under))) < 0) return status;
  if ((status = NAME(minus)(n - half, n - half, half, under, NAME(turned)(under), rest)) < 0) return status;
  status = NAME(cholesky_part)(n - half, rest.data, stride);
  return status > 0 ? status + (int)half : status;
}

/* -- QR by Householder's reflections: H = I - tau v v^T, v(0) = 1 ---------------------------------------- */

AMP_CLONES_OF(real) static double NAME(squares)(const real *x, real factor, int64_t n)
{
  double s = 0;
  _Pragma("omp simd reduction(+ : s)") for (int64_t i = 0; i < n; i++)
  {
    double v = (double)x[i] * factor;
    s += v * v;
  }
  return s;
}

static double NAME(length)(const real *x, int64_t n)
{
  double s = NAME(squares)(x, 1, n);
  if ((s > 1e-290 && s < 1e300) || s != s || TYPE == AMP_FLOAT32) return sqrt(s);
  real most = 0; /* squares too large or too small for double */
  for (int64_t i = 0; i < n; i++)
    if (fabs((double)x[i]) > most) most = (real)fabs((double)x[i]);
  if (most == 0 || isinf(most)) return most;
  int exponent;
  frexp((double)most, &exponent);
  if (exponent < -1000) exponent = -1000;
  return ldexp(sqrt(NAME(squares)(x, (real)ldexp(1, -exponent), n)), exponent);
}

static int NAME(qr)(int64_t m, int64_t n, int64_t q_cols, void *matrix, void *q_matrix)
{
  int64_t least = m < n ? m : n;
  real *a = matrix, small[64], *tau = least <= 64 ? small : malloc((size_t)least * sizeof(real));
  if (!tau) return AMP_E_MEMORY;
  AMP_ASSERT(q_cols == least || q_cols == m);
  for (int64_t k = 0; k < least; k++) {
    real *v = a + k + k * m, rest = (real)NAME(length)(v + 1, m - k - 1), alpha = v[0];
    tau[k] = 0;
    if (rest == 0) continue;
    real beta = (real)(alpha > 0 ? -hypot((double)alpha, (double)rest) : hypot((double)alpha, (double)rest));
    tau[k] = (beta - alpha) / beta;
    for (int64_t i = 1; i < m - k; i++) v[i] /= alpha - beta;
    v[0] = 1;
    for (int64_t j = k + 1; j < n; j++) {
      real *column = a + k + j * m;
      NAME(less)(column, v, tau[k] * NAME(dot)(v, column, m - k), m - k);
    }
    v[0] = beta;
  }
  real *out = q_matrix;
  memset(out, 0, (size_t)(m * q_cols) * sizeof(real));
  for (int64_t i = 0; i < q_cols; i++) out[i + i * m] = 1;
  for (int64_t k = least - 1; k >= 0; k--) {
    if (tau[k] == 0) continue;
    real *v = a + k + k * m, kept = v[0];
    v[0] = 1;
    for (int64_t j = k; j < q_cols; j++) {
      real *column = out + k + j * m;
      NAME(less)(column, v, tau[k] * NAME(dot)(v, column, m - k), m - k);
    }
    v[0] = kept;
  }
  if (tau != small) free(tau);
  return 0;
}
#undef VIEW
