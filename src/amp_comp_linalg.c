/*
** amp_comp_linalg.c: linear algebra made of other ops: systems with vectors,
** batches that broadcast and sides exchanged; determinants' logarithms, least
** squares, ranks, condition, powers and exponentials of matrices. 16-bit values
** are widened where more than one op follows, so results are rounded once.
*/
#include <float.h>
#include <math.h>
#include "amp_bwd.h"

#define LL(x) ((long long)(x))
#define SHAPE_OF(t) amp__shape_str((t)->ndim, (t)->size)

static amp_tensor *mm(amp_tensor *a, amp_tensor *b) { return X2(matmul, a, b); }
static amp_tensor *turned(amp_tensor *t) { return amp__xtranspose(t, -2, -1); }
static amp_tensor *wide(amp_tensor *t) { return t && amp__is_half(t->dtype) ? amp__xcast(t, AMP_FLOAT32) : t; }

static int want_matrix(const amp_tensor *t, int arg, const char *what) {
  if (t->ndim >= 2) return 0;
  return amp__fail_arg(AMP_E_SHAPE, arg, "%s has shape %s, expected a matrix: at least 2 dimensions", what, SHAPE_OF(t));
}

static int want_square(const amp_tensor *t, int arg, const char *what) {
  int rc = want_matrix(t, arg, what);
  if (rc < 0 || t->size[t->ndim - 1] == t->size[t->ndim - 2]) return rc;
  return amp__fail_arg(AMP_E_SHAPE, arg, "%s has shape %s, expected square matrices: they have %lld rows and %lld columns", what, SHAPE_OF(t),
                       LL(t->size[t->ndim - 2]), LL(t->size[t->ndim - 1]));
}

static int want_equal(const amp_tensor *a, const char *na, const amp_tensor *b, const char *nb) {
  if (a->dtype == b->dtype) return 0;
  return amp__fail(AMP_E_DTYPE, "dtypes %s of %s and %s of %s differ; cast one of them", amp_dtype_name(a->dtype), na, amp_dtype_name(b->dtype), nb);
}

/* Leading dimensions of both broadcast together */
static int one_batch(amp_tensor **a, const char *na, amp_tensor **b, const char *nb) {
  amp_tensor *t[2] = { *a, *b };
  int64_t size[2][AMP_MAX_DIM];
  int n = t[0]->ndim > t[1]->ndim ? t[0]->ndim : t[1]->ndim;
  for (int d = 0; d < n - 2; d++) {
    int i = d - (n - t[0]->ndim), j = d - (n - t[1]->ndim);
    int64_t x = i < 0 ? 1 : t[0]->size[i], y = j < 0 ? 1 : t[1]->size[j];
    if (x != y && x != 1 && y != 1)
      return amp__fail(AMP_E_SHAPE, "leading dimensions of %s (%s) and %s (%s) do not broadcast: %lld and %lld", na, SHAPE_OF(t[0]), nb, SHAPE_OF(t[1]), LL(x), LL(y));
    size[0][d] = size[1][d] = x == 1 ? y : x;
  }
  for (int i = 0; i < 2; i++)
    for (int d = n - 2; d < n; d++) size[i][d] = t[i]->size[d - n + t[i]->ndim];
  *a = amp__xexpand(t[0], n, size[0]);
  *b = amp__xexpand(t[1], n, size[1]);
  return *a && *b ? 0 : amp__err();
}

/* B holds vectors for matrices A: one, or as many as there are matrices */
static bool is_vector(const amp_tensor *a, const amp_tensor *b) {
  return b->ndim == 1 || (b->ndim == a->ndim - 1 && memcmp(a->size, b->size, sizeof *a->size * (size_t)b->ndim) == 0);
}

static amp_tensor *system_of(amp_tensor *a, amp_tensor *b, bool adjoint) {
  amp_tensor *in[2] = { a, b };
  amp_sl s = amp__sl();
  amp__sl_i(&s, adjoint);
  return amp__x(AMP_OP_linear_solve, &s, 2, in);
}

static amp_tensor *trisolve(amp_tensor *a, amp_tensor *b, bool upper, bool transpose, bool unit) {
  amp_tensor *in[2] = { a, b };
  amp_sl s = amp__sl();
  amp__sl_i(&s, upper);
  amp__sl_i(&s, transpose);
  amp__sl_i(&s, unit);
  return amp__x(AMP_OP_trisolve, &s, 2, in);
}

/* A's size stands beside B's rows (left) or columns */
static int want_fit(const amp_tensor *a, const char *na, const amp_tensor *b, const char *nb, bool left) {
  int64_t n = a->size[a->ndim - 1], k = b->size[b->ndim - (left ? 2 : 1)];
  if (n == k) return 0;
  return amp__fail(AMP_E_SHAPE, "%s of shape %s and %s of shape %s do not match: %lld unknowns, but %s has %lld %s", na, SHAPE_OF(a), nb, SHAPE_OF(b), LL(n), nb, LL(k),
                   left ? "rows" : "columns");
}

/* -- Systems --------------------------------------------------------------------------------------- */

int amp__comp_solve(amp_call *c) { /* A B left */
  amp_tensor *a = c->in[0], *b = c->in[1], *x;
  bool left = c->a[0].i != 0;
  int rc = want_square(a, 1, "A");
  if (rc < 0 || (rc = want_equal(a, "A", b, "B")) < 0) return rc;
  if (b->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, 2, "B is a scalar, expected vectors or matrices");
  bool vector = is_vector(a, b);
  if (vector && !left) return amp__fail(AMP_E_ARGUMENT, "left = false takes matrices: B of shape %s holds vectors for A of shape %s", SHAPE_OF(b), SHAPE_OF(a));
  if (vector && !(b = amp__xunsqueeze(b, -1))) return amp__err();
  if ((rc = want_fit(a, "A", b, "B", left)) < 0 || (rc = one_batch(&a, "A", &b, "B")) < 0) return rc;
  x = left ? system_of(a, b, false) : turned(system_of(a, turned(b), true));
  if (x && vector) x = amp__xview(x, x->ndim - 1, x->size);
  return amp__ret(c, 0, x);
}

int amp__comp_solve_triangular(amp_call *c) { /* A B; upper left unitriangular */
  amp_tensor *a = c->in[0], *b = c->in[1];
  bool upper = c->a[0].i, left = c->a[1].i, unit = c->a[2].i;
  int rc = want_square(a, 1, "A");
  if (rc < 0 || (rc = want_matrix(b, 2, "B")) < 0 || (rc = want_equal(a, "A", b, "B")) < 0) return rc;
  if ((rc = want_fit(a, "A", b, "B", left)) < 0 || (rc = one_batch(&a, "A", &b, "B")) < 0) return rc;
  return amp__ret(c, 0, left ? trisolve(a, b, upper, false, unit) : turned(trisolve(a, turned(b), upper, true, unit)));
}

int amp__comp_triangular_solve(amp_call *c) { /* b A; upper transpose unitriangular */
  amp_tensor *b = c->in[0], *a = c->in[1];
  int rc = want_square(a, 2, "A");
  if (rc < 0 || (rc = want_matrix(b, 1, "b")) < 0 || (rc = want_equal(b, "b", a, "A")) < 0) return rc;
  if ((rc = want_fit(a, "A", b, "b", true)) < 0 || (rc = one_batch(&a, "A", &b, "b")) < 0) return rc;
  rc = amp__ret(c, 0, trisolve(a, b, c->a[0].i, c->a[1].i, c->a[2].i));
  return rc < 0 ? rc : amp__ret(c, 1, X1(clone, a));
}

/* L L^T x = b, or U^T U x = b */
static amp_tensor *by_factor(amp_tensor *l, amp_tensor *b, bool upper) {
  return trisolve(l, trisolve(l, b, upper, upper, false), upper, !upper, false);
}

int amp__comp_cholesky_solve(amp_call *c) { /* input L; upper */
  amp_tensor *b = c->in[0], *l = c->in[1];
  int rc = want_square(l, 2, "L");
  if (rc < 0 || (rc = want_matrix(b, 1, "input")) < 0 || (rc = want_equal(b, "input", l, "L")) < 0) return rc;
  if ((rc = want_fit(l, "L", b, "input", true)) < 0 || (rc = one_batch(&l, "L", &b, "input")) < 0) return rc;
  return amp__ret(c, 0, amp__xcast(by_factor(wide(l), wide(b), c->a[0].i), b->dtype));
}

static amp_tensor *identity(amp_tensor *like) { /* of like's shape */
  if (!like) return NULL;
  amp_sl s = amp__sl();
  amp__sl_i(&s, like->size[like->ndim - 1]);
  amp__sl_i(&s, AMP_NONE);
  amp__sl_i(&s, like->dtype);
  amp__sl_i(&s, like->device * 256 + like->device_index);
  return amp__xexpand(amp__x(AMP_OP_eye, &s, 0, NULL), like->ndim, like->size);
}

int amp__comp_cholesky_inverse(amp_call *c) { /* upper */
  amp_tensor *l = wide(c->in[0]);
  int rc = want_square(c->in[0], 1, "input");
  return rc < 0 ? rc : amp__ret(c, 0, amp__xcast(by_factor(l, identity(l), c->a[0].i), c->in[0]->dtype));
}

/* -- By singular values ------------------------------------------------------------------------------ */

int amp__comp_logdet(amp_call *c) {
  amp_tensor *out[AMP_MAX_OUT];
  int rc = amp__xs(AMP_OP_slogdet, NULL, 1, c->in, out);
  return rc < 0 ? rc : amp__ret(c, 0, amp__xfill(XN(lt, out[0], 0), out[1], NAN));
}

int amp__comp_lstsq(amp_call *c) { /* A B; rcond */
  amp_tensor *a = wide(c->in[0]), *b = wide(c->in[1]), *x, *left;
  int dtype = c->in[0]->dtype, rows = -2, rc = want_matrix(c->in[0], 1, "A");
  if (rc < 0 || (rc = want_equal(c->in[0], "A", c->in[1], "B")) < 0) return rc;
  if (!a || !b) return amp__err();
  if (b->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, 2, "B is a scalar, expected vectors or matrices");
  bool vector = is_vector(a, b);
  if (vector && !(b = amp__xunsqueeze(b, -1))) return amp__err();
  int64_t m = a->size[a->ndim - 2], n = a->size[a->ndim - 1];
  if (b->size[b->ndim - 2] != m)
    return amp__fail(AMP_E_SHAPE, "A of shape %s and B of shape %s do not match: %lld equations, but B has %lld rows", SHAPE_OF(c->in[0]), SHAPE_OF(c->in[1]), LL(m),
                     LL(b->size[b->ndim - 2]));
  if ((rc = one_batch(&a, "A", &b, "B")) < 0) return rc;
  amp_sl s = amp__sl();
  amp__sl_copy(&s, c->a, 1);
  if (c->a[0].i == AMP_NONE && amp__is_half(dtype)) s.v[0].f = (double)(m > n ? m : n) * (dtype == AMP_FLOAT16 ? 0x1p-10 : 0x1p-7);
  x = mm(amp__x(AMP_OP_pinverse, &s, 1, &a), b);
  if (!x) return amp__err();
  left = X2(sub, mm(a, x), b);
  left = amp__xsum(X2(mul, left, left), 1, &rows, false);
  if (m <= n && left) {
    int64_t all = left->numel; /* empty, as PyTorch has it */
    left = amp__xnarrow(amp__xview(left, 1, &all), 0, 0, 0);
  }
  if (vector) x = amp__xview(x, x->ndim - 1, x->size);
  rc = amp__ret(c, 0, amp__xcast(x, dtype));
  return rc < 0 ? rc : amp__ret(c, 1, amp__xcast(left, dtype));
}

static amp_tensor *extreme(int op, amp_tensor *s) { /* over the last dimension, kept */
  int64_t last = -1;
  amp_sl a = amp__sl();
  amp__sl_list(&a, 1, &last);
  amp__sl_i(&a, 1);
  return amp__x(op, &a, 1, &s);
}

int amp__comp_matrix_rank(amp_call *c) { /* atol rtol hermitian */
  amp_tensor *x = wide(c->in[0]), *s, *tol;
  int dtype = c->in[0]->dtype, last = -1, rc = c->a[2].i ? want_square(c->in[0], 1, "input") : want_matrix(c->in[0], 1, "input");
  if (rc < 0) return rc;
  if (!x) return amp__err();
  int64_t m = x->size[x->ndim - 2], n = x->size[x->ndim - 1];
  bool absolute = c->a[0].i != AMP_NONE;
  double eps = dtype == AMP_FLOAT64 ? DBL_EPSILON : dtype == AMP_FLOAT32 ? FLT_EPSILON : dtype == AMP_FLOAT16 ? 0x1p-10 : 0x1p-7;
  double atol = absolute ? c->a[0].f : 0, rtol = c->a[1].i != AMP_NONE ? c->a[1].f : absolute && atol > 0 ? 0 : (double)(m > n ? m : n) * eps;
  if (!(atol >= 0 && rtol >= 0)) return amp__fail(AMP_E_VALUE, "atol %g and rtol %g must not be negative", atol, rtol);
  if (m == 0 || n == 0) return amp__ret(c, 0, amp__xfull(0, AMP_INT64, x->device, x->device_index, x->ndim - 2, x->size));
  s = c->a[2].i ? X1(abs, X1(eigvalsh, amp__xdetach(x))) : X1(svdvals, amp__xdetach(x));
  tol = XN(mul, extreme(AMP_OP_amax, s), rtol);
  tol = X2(maximum, tol, amp__xnum(atol));
  return amp__ret(c, 0, amp__xsum(amp__xcast(X2(gt, s, tol), AMP_INT64), 1, &last, false));
}

int amp__comp_cond(amp_call *c) { /* p */
  amp_tensor *x = wide(c->in[0]), *y;
  double p = c->a[0].f;
  int rc = fabs(p) == 2 ? want_matrix(c->in[0], 1, "input") : want_square(c->in[0], 1, "input");
  if (rc < 0) return rc;
  if (fabs(p) != 1 && fabs(p) != 2 && !isinf(p)) return amp__fail(AMP_E_ARGUMENT, "p is %g, must be 1, 2, infinity or the negative of one of them", p);
  if (!x) return amp__err();
  if (c->in[0]->size[x->ndim - 1] == 0 || c->in[0]->size[x->ndim - 2] == 0)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s: an empty matrix has no condition number", SHAPE_OF(c->in[0]));
  if (fabs(p) == 2) {
    amp_tensor *s = X1(svdvals, x), *hi = extreme(AMP_OP_amax, s), *lo = extreme(AMP_OP_amin, s);
    y = p > 0 ? X2(div, hi, lo) : X2(div, lo, hi);
    if (y) y = amp__xview(y, y->ndim - 1, y->size);
  } else {
    amp_tensor *in[2] = { x, X1(inverse, x) }, *norm[2];
    for (int i = 0; i < 2; i++) {
      amp_sl s = amp__sl();
      amp__sl_f(&s, p);
      amp__sl_nolist(&s);
      amp__sl_i(&s, 0);
      amp__sl_i(&s, AMP_NONE);
      norm[i] = in[i] ? amp__x(AMP_OP_matrix_norm, &s, 1, &in[i]) : NULL;
    }
    y = X2(mul, norm[0], norm[1]);
  }
  return amp__ret(c, 0, amp__xcast(y, c->in[0]->dtype));
}

/* -- Powers ---------------------------------------------------------------------------------------------- */

int amp__comp_matrix_power(amp_call *c) { /* n */
  amp_tensor *x = c->in[0], *y = NULL;
  int rc = want_square(x, 1, "input");
  if (rc < 0) return rc;
  if (c->a[0].i == 0) return amp__ret(c, 0, X1(clone, identity(x)));
  x = wide(x);
  uint64_t n = c->a[0].i < 0 ? -(uint64_t)c->a[0].i : (uint64_t)c->a[0].i;
  if (c->a[0].i < 0) x = X1(inverse, x);
  for (;; n >>= 1) {
    if (n & 1) OR_FAIL(y = y ? mm(y, x) : x);
    if (n <= 1) break;
    OR_FAIL(x = mm(x, x));
  }
  if (y == c->in[0]) y = X1(alias, y);
  return amp__ret(c, 0, amp__xcast(y, c->in[0]->dtype));
}

/* Scaling and squaring: exp(A) = p(A / 2^k)^(2^k), p Taylor's polynomial of degree 15, in four parts by powers of A^4 */
int amp__comp_matrix_exp(amp_call *c) {
  amp_tensor *x = wide(c->in[0]), *norm, *there, *y = NULL;
  int rows = -2, rc = want_square(c->in[0], 1, "input"), k = 0;
  if (rc < 0) return rc;
  if (c->in[0]->numel == 0) return amp__ret(c, 0, X1(clone, c->in[0]));
  norm = amp__xsum(X1(abs, amp__xdetach(x)), 1, &rows, false);
  norm = norm ? amp__x(AMP_OP_amax, NULL, 1, &norm) : NULL;
  if (!norm || !(there = amp__pooled(amp__on_cpu(norm)))) return amp__err();
  amp__S->host_waits += norm->device != AMP_CPU;
  double most = amp__element(there, 0);
  if (most > 0.5 && most <= DBL_MAX) { frexp(most, &k); k += 1; }
  x = XN(mul, x, ldexp(1, -k));
  amp_tensor *one = identity(x), *p[4] = { one, x, mm(x, x), NULL }, *x4;
  p[3] = mm(p[2], x);
  x4 = mm(p[2], p[2]);
  double f = 1; /* 1 / 15!, growing */
  for (int i = 1; i <= 15; i++) f /= i;
  for (int j = 3; j >= 0; j--) {
    amp_tensor *part = NULL;
    for (int i = 3; i >= 0; i--) {
      amp_tensor *t = XN(mul, p[i], f);
      part = part ? X2(add, part, t) : t;
      if (!part) return amp__err();
      f *= 4 * j + i;
    }
    OR_FAIL(y = y ? X2(add, mm(y, x4), part) : part);
  }
  for (int i = 0; i < k; i++) y = mm(y, y);
  return amp__ret(c, 0, amp__xcast(y, c->in[0]->dtype));
}
