/*
** cpu_linalg_body.h: LU, Cholesky, triangular solves and QR over type T, included
** by cpu_linalg_own.c for float and for double (NAME adds the suffix).
**
** Factors are recursive: a matrix is cut in half, the left part is factored, the
** right part is brought up to date by a triangular solve and one product, and
** is factored in turn. So nearly all the arithmetic is in products, whatever
** the cache sizes are. A view has a row and a column stride; an upper triangle
** read backwards is a lower one, so one triangular solve serves all.
*/

typedef struct NAME(view) { T *p; int64_t rs, cs; } NAME(view);
#define VIEW NAME(view)

AMP_INLINE VIEW NAME(at)(VIEW a, int64_t i, int64_t j) { a.p += i * a.rs + j * a.cs; return a; }
AMP_INLINE VIEW NAME(turned)(VIEW a) { return (VIEW){ a.p, a.cs, a.rs }; }

/* -- Vectors ------------------------------------------------------------------------------ */

AMP_CLONES_OF(T) static T NAME(dot)(const T *x, const T *y, int64_t n) {
  T s = 0;
  _Pragma("omp simd reduction(+ : s)") for (int64_t i = 0; i < n; i++) s += x[i] * y[i];
  return s;
}

/* y -= f x */
AMP_CLONES_OF(T) static void NAME(less)(T *y, const T *x, T f, int64_t n) {
  AMP_IVDEP for (int64_t i = 0; i < n; i++) y[i] -= f * x[i];
}

/* -- c -= a b, a m x k, b k x n -------------------------------------------------------------- */

static int NAME(minus)(int64_t m, int64_t n, int64_t k, VIEW a, VIEW b, VIEW c) {
  if (m == 0 || n == 0 || k == 0) return 0;
  if (c.rs < 0) { c.p += (m - 1) * c.rs; c.rs = -c.rs; a.p += (m - 1) * a.rs; a.rs = -a.rs; }
  if (b.rs < 0) { b.p += (k - 1) * b.rs; b.rs = -b.rs; a.p += (k - 1) * a.cs; a.cs = -a.cs; }
  if (n == 1 && a.rs == 1 && c.rs == 1) { /* matrix times vector */
    for (int64_t p = 0; p < k; p++) NAME(less)(c.p, a.p + p * a.cs, b.p[p * b.rs], m);
    return 0;
  }
  if (n == 1 && a.cs == 1 && b.rs == 1) {
    for (int64_t i = 0; i < m; i++) c.p[i * c.rs] -= NAME(dot)(a.p + i * a.rs, b.p, k);
    return 0;
  }
  if (m * n * k <= 2048) {
    for (int64_t j = 0; j < n; j++)
      for (int64_t p = 0; p < k; p++) {
        T f = b.p[p * b.rs + j * b.cs];
        for (int64_t i = 0; i < m; i++) c.p[i * c.rs + j * c.cs] -= f * a.p[i * a.rs + p * a.cs];
      }
    return 0;
  }
  amp_gemm g = { .m = m, .n = n, .k = k, .ars = 1, .acs = m, .b = b.p, .brs = b.rs, .bcs = b.cs, .c = c.p, .crs = c.rs, .ccs = c.cs, .accumulate = true };
  size_t own = ((size_t)(m * k) * sizeof(T) + 127) / 64 * 64;
  char *scratch = aligned_alloc(64, own + (amp__gemm_scratch(&g, TYPE) + 63) / 64 * 64);
  if (!scratch) return AMP_E_MEMORY;
  T *neg = (T *)scratch;
  if (a.rs == 1) { for (int64_t p = 0; p < k; p++) for (int64_t i = 0; i < m; i++) neg[i + p * m] = -a.p[i + p * a.cs]; }
  else { for (int64_t i = 0; i < m; i++) for (int64_t p = 0; p < k; p++) neg[i + p * m] = -a.p[i * a.rs + p * a.cs]; }
  g.a = neg;
  amp__gemm(&g, TYPE, scratch + own);
  free(scratch);
  return 0;
}

/* -- Triangular solves: b (n x k) <- L^-1 b ------------------------------------------------------ */

/* n <= BASE, through a buffer in which the columns of b stand side by side */
AMP_CLONES_OF(T) static void NAME(lower_base)(int64_t n, int64_t k, VIEW l, bool unit, VIEW b) {
  T buf[BASE * WIDE] __attribute__((aligned(64)));
  for (int64_t j = 0; j < k; j += WIDE) {
    int64_t w = k - j < WIDE ? k - j : WIDE;
    for (int64_t i = 0; i < n; i++)
      for (int64_t c = 0; c < w; c++) buf[i * WIDE + c] = b.p[i * b.rs + (j + c) * b.cs];
    for (int64_t i = 0; i < n; i++) {
      T *row = buf + i * WIDE;
      for (int64_t p = 0; p < i; p++) {
        const T f = l.p[i * l.rs + p * l.cs], *other = buf + p * WIDE;
        for (int64_t c = 0; c < w; c++) row[c] -= f * other[c];
      }
      if (!unit) {
        const T d = l.p[i * (l.rs + l.cs)];
        for (int64_t c = 0; c < w; c++) row[c] /= d;
      }
    }
    for (int64_t i = 0; i < n; i++)
      for (int64_t c = 0; c < w; c++) b.p[i * b.rs + (j + c) * b.cs] = buf[i * WIDE + c];
  }
}

static int NAME(lower)(int64_t n, int64_t k, VIEW l, bool unit, VIEW b) {
  if (n <= BASE) { NAME(lower_base)(n, k, l, unit, b); return 0; }
  int64_t h = n / 2;
  int rc = NAME(lower)(h, k, l, unit, b);
  if (rc == 0) rc = NAME(minus)(n - h, k, h, NAME(at)(l, h, 0), b, NAME(at)(b, h, 0));
  return rc < 0 ? rc : NAME(lower)(n - h, k, NAME(at)(l, h, h), unit, NAME(at)(b, h, 0));
}

static int NAME(solve)(bool upper, int64_t n, int64_t k, VIEW a, bool unit, VIEW b) {
  if (n == 0 || k == 0) return 0;
  if (upper) { /* from the last row to the first */
    a = NAME(at)(a, n - 1, n - 1);
    b = NAME(at)(b, n - 1, 0);
    a.rs = -a.rs;
    a.cs = -a.cs;
    b.rs = -b.rs;
  }
  return NAME(lower)(n, k, a, unit, b);
}

static int NAME(triangular)(bool upper, bool transpose, bool unit, int64_t n, int64_t k, const void *a, void *b) {
  VIEW t = { (T *)a, 1, n };
  return NAME(solve)(upper != transpose, n, k, transpose ? NAME(turned)(t) : t, unit, (VIEW){ b, 1, n });
}

/* -- LU ------------------------------------------------------------------------------------------ */

static void NAME(exchange)(T *a, int64_t ld, int64_t columns, int64_t from, int64_t to, const int32_t *piv) {
  for (int64_t j = 0; j < columns; j++, a += ld)
    for (int64_t i = from; i < to; i++) {
      T t = a[i];
      a[i] = a[piv[i]];
      a[piv[i]] = t;
    }
}

/* Columns of an m x n panel; piv counts from its first row. Gives the first zero pivot, from 1. */
static int NAME(lu_panel)(int64_t m, int64_t n, T *a, int64_t ld, int32_t *piv) {
  int zero = 0;
  for (int64_t j = 0; j < n; j++) {
    T *col = a + j * ld, most = 0;
    int64_t at = j;
    for (int64_t i = j; i < m; i++) {
      T v = col[i] < 0 ? -col[i] : col[i];
      if (v > most) { most = v; at = i; }
    }
    piv[j] = (int32_t)at;
    if (at != j) for (int64_t c = 0; c < n; c++) { T t = a[j + c * ld]; a[j + c * ld] = a[at + c * ld]; a[at + c * ld] = t; }
    if (col[j] == 0) { if (!zero) zero = (int)j + 1; continue; }
    T inv = 1 / col[j];
    T low = sizeof(T) == 4 ? (T)FLT_MIN : (T)DBL_MIN; /* under it an inverse has lost digits; a denormal pivot has none at all */
    if (isinf(inv) || (inv < low && inv > -low)) for (int64_t i = j + 1; i < m; i++) col[i] /= col[j];
    else for (int64_t i = j + 1; i < m; i++) col[i] *= inv;
    for (int64_t c = j + 1; c < n; c++) NAME(less)(a + j + 1 + c * ld, col + j + 1, a[j + c * ld], m - j - 1);
  }
  return zero;
}

static int NAME(lu_part)(int64_t m, int64_t n, T *a, int64_t ld, int32_t *piv) {
  if (n <= 8) return NAME(lu_panel)(m, n, a, ld, piv);
  int64_t h = n / 2;
  T *right = a + h * ld;
  VIEW l = { a, 1, ld }, u = { right, 1, ld };
  int zero = NAME(lu_part)(m, h, a, ld, piv), rc;
  if (zero < 0) return zero;
  NAME(exchange)(right, ld, n - h, 0, h, piv);
  if ((rc = NAME(lower)(h, n - h, l, true, u)) < 0) return rc;
  if ((rc = NAME(minus)(m - h, n - h, h, NAME(at)(l, h, 0), u, NAME(at)(u, h, 0))) < 0) return rc;
  if ((rc = NAME(lu_part)(m - h, n - h, right + h, ld, piv + h)) < 0) return rc;
  for (int64_t i = h; i < n; i++) piv[i] += (int32_t)h;
  NAME(exchange)(a, ld, h, h, n, piv);
  return zero ? zero : rc ? rc + (int)h : 0;
}

static int NAME(lu_solve)(bool transpose, int64_t n, int64_t k, const void *lu, const int32_t *piv, void *b) {
  VIEW a = { (T *)lu, 1, n }, x = { b, 1, n };
  int rc;
  if (!transpose) {
    NAME(exchange)(b, n, k, 0, n, piv);
    if ((rc = NAME(solve)(false, n, k, a, true, x)) < 0) return rc;
    return NAME(solve)(true, n, k, a, false, x);
  }
  if ((rc = NAME(solve)(false, n, k, NAME(turned)(a), false, x)) < 0) return rc;
  if ((rc = NAME(solve)(true, n, k, NAME(turned)(a), true, x)) < 0) return rc;
  T *c = b;
  for (int64_t j = 0; j < k; j++, c += n)
    for (int64_t i = n - 1; i >= 0; i--) { T t = c[i]; c[i] = c[piv[i]]; c[piv[i]] = t; }
  return 0;
}

static int NAME(lu_inverse)(int64_t n, void *a, const int32_t *piv) {
  size_t bytes = (size_t)(n * n) * sizeof(T);
  T small[256], *lu = bytes <= sizeof small ? small : malloc(bytes), *x = a;
  if (!lu) return AMP_E_MEMORY;
  memcpy(lu, a, bytes);
  memset(a, 0, bytes);
  for (int64_t i = 0; i < n; i++) x[i * (n + 1)] = 1;
  int rc = NAME(lu_solve)(false, n, n, lu, piv, a);
  if (lu != small) free(lu);
  return rc;
}

/* -- Cholesky ---------------------------------------------------------------------------------------- */

static int NAME(cholesky_part)(int64_t n, T *a, int64_t ld) {
  if (n <= 16) {
    for (int64_t j = 0; j < n; j++) {
      T *col = a + j * ld;
      for (int64_t p = 0; p < j; p++) NAME(less)(col + j, a + j + p * ld, a[j + p * ld], n - j);
      if (!(col[j] > 0) || isinf(col[j])) return (int)j + 1;
      T d = (T)sqrt(col[j]);
      col[j] = d;
      for (int64_t i = j + 1; i < n; i++) col[i] /= d;
    }
    return 0;
  }
  int64_t h = n / 2;
  VIEW l = { a, 1, ld }, under = { a + h, 1, ld }, rest = { a + h + h * ld, 1, ld };
  int rc = NAME(cholesky_part)(h, a, ld);
  if (rc) return rc;
  if ((rc = NAME(lower)(h, n - h, l, false, NAME(turned)(under))) < 0) return rc;
  if ((rc = NAME(minus)(n - h, n - h, h, under, NAME(turned)(under), rest)) < 0) return rc;
  rc = NAME(cholesky_part)(n - h, rest.p, ld);
  return rc > 0 ? rc + (int)h : rc;
}

/* -- QR by Householder's reflections: H = I - tau v v^T, v(0) = 1 ---------------------------------------- */

AMP_CLONES_OF(T) static double NAME(squares)(const T *x, T f, int64_t n) {
  double s = 0;
  _Pragma("omp simd reduction(+ : s)") for (int64_t i = 0; i < n; i++) { double v = (double)x[i] * f; s += v * v; }
  return s;
}

static double NAME(length)(const T *x, int64_t n) {
  double s = NAME(squares)(x, 1, n);
  if ((s > 1e-290 && s < 1e300) || s != s || TYPE == AMP_FLOAT32) return sqrt(s);
  T most = 0; /* squares too large or too small for double */
  for (int64_t i = 0; i < n; i++) if (fabs((double)x[i]) > most) most = (T)fabs((double)x[i]);
  if (most == 0 || isinf(most)) return most;
  int e;
  frexp((double)most, &e);
  if (e < -1000) e = -1000;
  return ldexp(sqrt(NAME(squares)(x, (T)ldexp(1, -e), n)), e);
}

static int NAME(qr)(int64_t m, int64_t n, int64_t nq, void *matrix, void *q) {
  int64_t r = m < n ? m : n;
  T *a = matrix, small[64], *tau = r <= 64 ? small : malloc((size_t)r * sizeof(T));
  if (!tau) return AMP_E_MEMORY;
  for (int64_t k = 0; k < r; k++) {
    T *v = a + k + k * m, rest = (T)NAME(length)(v + 1, m - k - 1), alpha = v[0];
    tau[k] = 0;
    if (rest == 0) continue;
    T beta = (T)(alpha > 0 ? -hypot((double)alpha, (double)rest) : hypot((double)alpha, (double)rest));
    tau[k] = (beta - alpha) / beta;
    for (int64_t i = 1; i < m - k; i++) v[i] /= alpha - beta;
    v[0] = 1;
    for (int64_t j = k + 1; j < n; j++) {
      T *c = a + k + j * m;
      NAME(less)(c, v, tau[k] * NAME(dot)(v, c, m - k), m - k);
    }
    v[0] = beta;
  }
  T *out = q;
  memset(out, 0, (size_t)(m * nq) * sizeof(T));
  for (int64_t i = 0; i < nq; i++) out[i + i * m] = 1;
  for (int64_t k = r - 1; k >= 0; k--) {
    if (tau[k] == 0) continue;
    T *v = a + k + k * m, kept = v[0];
    v[0] = 1;
    for (int64_t j = k; j < nq; j++) {
      T *c = out + k + j * m;
      NAME(less)(c, v, tau[k] * NAME(dot)(v, c, m - k), m - k);
    }
    v[0] = kept;
  }
  if (tau != small) free(tau);
  return 0;
}
#undef VIEW
