/*
** ops/linalg/linalg_composite.c: linear algebra made of other ops: systems with vectors,
** batches that broadcast and sides exchanged; determinants' logarithms, least
** squares, ranks, condition, powers and exponentials of matrices. 16-bit values
** are widened where more than one op follows, so results are rounded once.
*/
#include <float.h>
#include <math.h>
#include "autograd/derivative.h"
#include "ops/linalg/linalg_parts.h"

#define LL(x) ((long long)(x))
#define SHAPE_OF(t) amp__shape_str((t)->ndim, (t)->size)

static amp_tensor *mm(amp_tensor *left, amp_tensor *right) { return OP2(matmul, left, right); }
static amp_tensor *turned(amp_tensor *tensor) { return amp__op_transpose(tensor, -2, -1); }
static amp_tensor *wide(amp_tensor *tensor)
{
  return tensor && amp__is_half(tensor->dtype) ? amp__op_cast(tensor, AMP_FLOAT32) : tensor;
}

static int want_equal(const amp_tensor *left, const char *a_name, const amp_tensor *right, const char *b_name)
{
  if (left->dtype == right->dtype) return 0;
  return amp__fail(AMP_E_DTYPE, "dtypes %s of %s and %s of %s differ; cast one of them", amp_dtype_name(left->dtype),
                   a_name, amp_dtype_name(right->dtype), b_name);
}

/* Leading dimensions of both broadcast together */
static int one_batch(amp_tensor **left, const char *a_name, amp_tensor **right, const char *b_name)
{
  amp_tensor *tensors[2] = { *left, *right };
  int64_t size[2][AMP_MAX_DIM];
  int n = tensors[0]->ndim > tensors[1]->ndim ? tensors[0]->ndim : tensors[1]->ndim;
  for (int d = 0; d < n - 2; d++) {
    int i = d - (n - tensors[0]->ndim), j = d - (n - tensors[1]->ndim);
    int64_t x = i < 0 ? 1 : tensors[0]->size[i], y = j < 0 ? 1 : tensors[1]->size[j];
    if (x != y && x != 1 && y != 1)
      return amp__fail(AMP_E_SHAPE, "leading dimensions of %s (%s) and %s (%s) do not broadcast: %lld and %lld", a_name,
                       SHAPE_OF(tensors[0]), b_name, SHAPE_OF(tensors[1]), LL(x), LL(y));
    size[0][d] = size[1][d] = x == 1 ? y : x;
  }
  for (int i = 0; i < 2; i++)
    for (int d = n - 2; d < n; d++) size[i][d] = tensors[i]->size[d - n + tensors[i]->ndim];
  *left = amp__op_expand(tensors[0], n, size[0]);
  *right = amp__op_expand(tensors[1], n, size[1]);
  return *left && *right ? 0 : amp__err();
}

/* B holds vectors for matrices A: one, or as many as there are matrices */
static bool is_vector(const amp_tensor *left, const amp_tensor *right)
{
  return right->ndim == 1
         || (right->ndim == left->ndim - 1
             && memcmp(left->size, right->size, sizeof *left->size * (size_t)right->ndim) == 0);
}

amp_tensor *amp__op_linear_solve(amp_tensor *left, amp_tensor *right, bool adjoint)
{
  amp_tensor *inputs[2] = { left, right };
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, adjoint);
  return amp__op(AMP_OP_linear_solve, &attrs, 2, inputs);
}

amp_tensor *amp__op_trisolve(amp_tensor *left, amp_tensor *right, bool upper, bool transpose, bool unit)
{
  amp_tensor *inputs[2] = { left, right };
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, upper);
  amp__attrs_int(&attrs, transpose);
  amp__attrs_int(&attrs, unit);
  return amp__op(AMP_OP_trisolve, &attrs, 2, inputs);
}

/* A's size stands beside B's rows (left) or columns */
static int want_fit(const amp_tensor *matrix, const char *a_name, const amp_tensor *right, const char *b_name,
                    bool left)
{
  int64_t n = matrix->size[matrix->ndim - 1], k = right->size[right->ndim - (left ? 2 : 1)];
  if (n == k) return 0;
  return amp__fail(AMP_E_SHAPE, "%s of shape %s and %s of shape %s do not match: %lld unknowns, but %s has %lld %s",
                   a_name, SHAPE_OF(matrix), b_name, SHAPE_OF(right), LL(n), b_name, LL(k), left ? "rows" : "columns");
}

/* -- Systems --------------------------------------------------------------------------------------- */

int amp__comp_solve(amp_call *call)
{
  amp_tensor *matrix = call->in[0], *rhs = call->in[1], *input;
  bool left = AMP_ARGS(call, solve)->left != 0;
  int status = amp__want_square(matrix, 1, "A");
  if (status < 0 || (status = want_equal(matrix, "A", rhs, "B")) < 0) return status;
  if (rhs->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, 2, "B is a scalar, expected vectors or matrices");
  bool vector = is_vector(matrix, rhs);
  if (vector && !left)
    return amp__fail(AMP_E_ARGUMENT, "left = false takes matrices: B of shape %s holds vectors for A of shape %s",
                     SHAPE_OF(rhs), SHAPE_OF(matrix));
  if (vector && !(rhs = amp__op_unsqueeze(rhs, -1))) return amp__err();
  if ((status = want_fit(matrix, "A", rhs, "B", left)) < 0 || (status = one_batch(&matrix, "A", &rhs, "B")) < 0)
    return status;
  input = left ? amp__op_linear_solve(matrix, rhs, false) : turned(amp__op_linear_solve(matrix, turned(rhs), true));
  if (input && vector) input = amp__op_view(input, input->ndim - 1, input->size);
  return amp__result(call, 0, input);
}

int amp__comp_solve_triangular(amp_call *call)
{
  const args_solve_triangular *args = AMP_ARGS(call, solve_triangular);
  amp_tensor *matrix = call->in[0], *rhs = call->in[1];
  bool upper = args->upper, left = args->left, unit = args->unitriangular;
  int status = amp__want_square(matrix, 1, "A");
  if (status < 0 || (status = amp__want_matrix(rhs, 2, "B")) < 0 || (status = want_equal(matrix, "A", rhs, "B")) < 0)
    return status;
  if ((status = want_fit(matrix, "A", rhs, "B", left)) < 0 || (status = one_batch(&matrix, "A", &rhs, "B")) < 0)
    return status;
  return amp__result(call, 0,
                     left ? amp__op_trisolve(matrix, rhs, upper, false, unit)
                          : turned(amp__op_trisolve(matrix, turned(rhs), upper, true, unit)));
}

int amp__comp_triangular_solve(amp_call *call)
{
  const args_triangular_solve *args = AMP_ARGS(call, triangular_solve);
  amp_tensor *rhs = call->in[0], *matrix = call->in[1];
  int status = amp__want_square(matrix, 2, "A");
  if (status < 0 || (status = amp__want_matrix(rhs, 1, "b")) < 0 || (status = want_equal(rhs, "b", matrix, "A")) < 0)
    return status;
  if ((status = want_fit(matrix, "A", rhs, "b", true)) < 0 || (status = one_batch(&matrix, "A", &rhs, "b")) < 0)
    return status;
  status = amp__result(call, 0, amp__op_trisolve(matrix, rhs, args->upper, args->transpose, args->unitriangular));
  return status < 0 ? status : amp__result(call, 1, OP1(clone, matrix));
}

/* L L^T x = b, or U^T U x = b */
static amp_tensor *by_factor(amp_tensor *factor, amp_tensor *b, bool upper)
{
  return amp__op_trisolve(factor, amp__op_trisolve(factor, b, upper, upper, false), upper, !upper, false);
}

int amp__comp_cholesky_solve(amp_call *call)
{
  amp_tensor *rhs = call->in[0], *factor = call->in[1];
  int status = amp__want_square(factor, 2, "L");
  if (status < 0 || (status = amp__want_matrix(rhs, 1, "input")) < 0
      || (status = want_equal(rhs, "input", factor, "L")) < 0)
    return status;
  if ((status = want_fit(factor, "L", rhs, "input", true)) < 0 || (status = one_batch(&factor, "L", &rhs, "input")) < 0)
    return status;
  return amp__result(
      call, 0, amp__op_cast(by_factor(wide(factor), wide(rhs), AMP_ARGS(call, cholesky_solve)->upper), rhs->dtype));
}

static amp_tensor *identity(amp_tensor *like)
{ /* of like's shape */
  if (!like) return NULL;
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, like->size[like->ndim - 1]);
  amp__attrs_int(&attrs, AMP_NONE);
  amp__attrs_int(&attrs, like->dtype);
  amp__attrs_int(&attrs, like->device * 256 + like->device_index);
  return amp__op_expand(amp__op(AMP_OP_eye, &attrs, 0, NULL), like->ndim, like->size);
}

int amp__comp_cholesky_inverse(amp_call *call)
{
  amp_tensor *factor = wide(call->in[0]);
  int status = amp__want_square(call->in[0], 1, "input");
  return status < 0
             ? status
             : amp__result(call, 0,
                           amp__op_cast(by_factor(factor, identity(factor), AMP_ARGS(call, cholesky_inverse)->upper),
                                        call->in[0]->dtype));
}

/* -- By singular values ------------------------------------------------------------------------------ */

int amp__comp_logdet(amp_call *call)
{
  amp_tensor *out[AMP_MAX_OUT];
  int status = amp__op_results(AMP_OP_slogdet, NULL, 1, call->in, out);
  return status < 0 ? status : amp__result(call, 0, amp__op_fill_where(OP_NUMBER(lt, out[0], 0), out[1], NAN));
}

int amp__comp_lstsq(amp_call *call)
{
  amp_tensor *matrix = wide(call->in[0]), *rhs = wide(call->in[1]), *input, *left;
  int dtype = call->in[0]->dtype, rows = -2, status = amp__want_matrix(call->in[0], 1, "A");
  if (status < 0 || (status = want_equal(call->in[0], "A", call->in[1], "B")) < 0) return status;
  if (!matrix || !rhs) return amp__err();
  if (rhs->ndim == 0) return amp__fail_arg(AMP_E_SHAPE, 2, "B is a scalar, expected vectors or matrices");
  bool vector = is_vector(matrix, rhs);
  if (vector && !(rhs = amp__op_unsqueeze(rhs, -1))) return amp__err();
  int64_t m = matrix->size[matrix->ndim - 2], n = matrix->size[matrix->ndim - 1];
  if (rhs->size[rhs->ndim - 2] != m)
    return amp__fail(AMP_E_SHAPE, "A of shape %s and B of shape %s do not match: %lld equations, but B has %lld rows",
                     SHAPE_OF(call->in[0]), SHAPE_OF(call->in[1]), LL(m), LL(rhs->size[rhs->ndim - 2]));
  if ((status = one_batch(&matrix, "A", &rhs, "B")) < 0) return status;
  amp_attrs attrs = amp__attrs();
  const double *rcond = &AMP_ARGS(call, lstsq)->rcond;
  if (!AMP_GIVEN(*rcond) && amp__is_half(dtype))
    amp__attrs_float(&attrs, (double)(m > n ? m : n) * (dtype == AMP_FLOAT16 ? 0x1p-10 : 0x1p-7));
  else amp__attrs_copy(&attrs, AMP_SLOT(*rcond), 1);
  input = mm(amp__op(AMP_OP_pinverse, &attrs, 1, &matrix), rhs);
  if (!input) return amp__err();
  left = OP2(sub, mm(matrix, input), rhs);
  left = amp__op_sum(OP2(mul, left, left), 1, &rows, false);
  if (m <= n && left) {
    int64_t all = left->numel; /* empty, as PyTorch has it */
    left = amp__op_narrow(amp__op_view(left, 1, &all), 0, 0, 0);
  }
  if (vector) input = amp__op_view(input, input->ndim - 1, input->size);
  status = amp__result(call, 0, amp__op_cast(input, dtype));
  return status < 0 ? status : amp__result(call, 1, amp__op_cast(left, dtype));
}

static amp_tensor *extreme(int op_id, amp_tensor *values)
{ /* over the last dimension, kept */
  int64_t last = -1;
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, 1, &last);
  amp__attrs_int(&attrs, 1);
  return amp__op(op_id, &attrs, 1, &values);
}

int amp__comp_matrix_rank(amp_call *call)
{
  const args_matrix_rank *args = AMP_ARGS(call, matrix_rank);
  amp_tensor *input = wide(call->in[0]), *values, *tol;
  int dtype = call->in[0]->dtype, last = -1,
      status = args->hermitian ? amp__want_square(call->in[0], 1, "input") : amp__want_matrix(call->in[0], 1, "input");
  if (status < 0) return status;
  if (!input) return amp__err();
  int64_t m = input->size[input->ndim - 2], n = input->size[input->ndim - 1];
  bool absolute = AMP_GIVEN(args->atol);
  double eps = dtype == AMP_FLOAT64   ? DBL_EPSILON
               : dtype == AMP_FLOAT32 ? FLT_EPSILON
               : dtype == AMP_FLOAT16 ? 0x1p-10
                                      : 0x1p-7;
  double atol = absolute ? args->atol : 0, rtol = AMP_GIVEN(args->rtol)  ? args->rtol
                                                  : absolute && atol > 0 ? 0
                                                                         : (double)(m > n ? m : n) * eps;
  if (!(atol >= 0 && rtol >= 0)) return amp__fail(AMP_E_VALUE, "atol %g and rtol %g must not be negative", atol, rtol);
  if (m == 0 || n == 0)
    return amp__result(call, 0,
                       amp__op_full(0, AMP_INT64, input->device, input->device_index, input->ndim - 2, input->size));
  values = args->hermitian ? OP1(abs, OP1(eigvalsh, amp__op_detach(input))) : OP1(svdvals, amp__op_detach(input));
  tol = OP_NUMBER(mul, extreme(AMP_OP_amax, values), rtol);
  tol = OP2(maximum, tol, amp__wrapped_number(atol));
  return amp__result(call, 0, amp__op_sum(amp__op_cast(OP2(gt, values, tol), AMP_INT64), 1, &last, false));
}

int amp__comp_cond(amp_call *call)
{
  amp_tensor *input = wide(call->in[0]), *result;
  double p = AMP_ARGS(call, cond)->p;
  int status = fabs(p) == 2 ? amp__want_matrix(call->in[0], 1, "input") : amp__want_square(call->in[0], 1, "input");
  if (status < 0) return status;
  if (fabs(p) != 1 && fabs(p) != 2 && !isinf(p))
    return amp__fail(AMP_E_ARGUMENT, "p is %g, must be 1, 2, infinity or the negative of one of them", p);
  if (!input) return amp__err();
  if (call->in[0]->size[input->ndim - 1] == 0 || call->in[0]->size[input->ndim - 2] == 0)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s: an empty matrix has no condition number",
                         SHAPE_OF(call->in[0]));
  if (fabs(p) == 2) {
    amp_tensor *attrs = OP1(svdvals, input), *highest = extreme(AMP_OP_amax, attrs),
               *lowest = extreme(AMP_OP_amin, attrs);
    result = p > 0 ? OP2(div, highest, lowest) : OP2(div, lowest, highest);
    if (result) result = amp__op_view(result, result->ndim - 1, result->size);
  } else {
    amp_tensor *inputs[2] = { input, OP1(inverse, input) }, *norm[2];
    for (int i = 0; i < 2; i++) {
      amp_attrs attrs = amp__attrs();
      amp__attrs_float(&attrs, p);
      amp__attrs_no_list(&attrs);
      amp__attrs_int(&attrs, 0);
      amp__attrs_int(&attrs, AMP_NONE);
      norm[i] = inputs[i] ? amp__op(AMP_OP_matrix_norm, &attrs, 1, &inputs[i]) : NULL;
    }
    result = OP2(mul, norm[0], norm[1]);
  }
  return amp__result(call, 0, amp__op_cast(result, call->in[0]->dtype));
}

/* -- Powers ---------------------------------------------------------------------------------------------- */

int amp__comp_matrix_power(amp_call *call)
{
  const args_matrix_power *args = AMP_ARGS(call, matrix_power);
  amp_tensor *square = call->in[0], *result = NULL;
  int status = amp__want_square(square, 1, "input");
  if (status < 0) return status;
  if (args->n == 0) return amp__result(call, 0, OP1(clone, identity(square)));
  square = wide(square);
  uint64_t n = args->n < 0 ? -(uint64_t)args->n : (uint64_t)args->n;
  if (args->n < 0) square = OP1(inverse, square);
  for (;; n >>= 1) {
    if (n & 1) OR_FAIL(result = result ? mm(result, square) : square);
    if (n <= 1) break;
    OR_FAIL(square = mm(square, square));
  }
  if (result == call->in[0]) result = OP1(alias, result);
  return amp__result(call, 0, amp__op_cast(result, call->in[0]->dtype));
}

/* Scaling and squaring: exp(A) = p(A / 2^k)^(2^k), p Taylor's polynomial of degree 15, in four parts by powers of A^4
 */
int amp__comp_matrix_exp(amp_call *call)
{
  amp_tensor *input = wide(call->in[0]), *norm, *norm_on_cpu, *result = NULL;
  int rows = -2, status = amp__want_square(call->in[0], 1, "input"), k = 0;
  if (status < 0) return status;
  if (call->in[0]->numel == 0) return amp__result(call, 0, OP1(clone, call->in[0]));
  norm = amp__op_sum(OP1(abs, amp__op_detach(input)), 1, &rows, false);
  norm = norm ? amp__op(AMP_OP_amax, NULL, 1, &norm) : NULL;
  if (!norm || !(norm_on_cpu = amp__pooled(amp__on_cpu(norm)))) return amp__err();
  amp__S->host_waits += norm->device != AMP_CPU;
  double most = amp__element(norm_on_cpu, 0);
  if (most > 0.5 && most <= DBL_MAX) {
    frexp(most, &k);
    k += 1;
  }
  input = OP_NUMBER(mul, input, ldexp(1, -k));
  amp_tensor *one = identity(input), *p[4] = { one, input, mm(input, input), NULL }, *fourth;
  p[3] = mm(p[2], input);
  fourth = mm(p[2], p[2]);
  double f = 1; /* 1 / 15!, growing */
  for (int i = 1; i <= 15; i++) f /= i;
  for (int j = 3; j >= 0; j--) {
    amp_tensor *part = NULL;
    for (int i = 3; i >= 0; i--) {
      amp_tensor *term = OP_NUMBER(mul, p[i], f);
      part = part ? OP2(add, part, term) : term;
      if (!part) return amp__err();
      f *= 4 * j + i;
    }
    OR_FAIL(result = result ? OP2(add, mm(result, fourth), part) : part);
  }
  for (int i = 0; i < k; i++) result = mm(result, result);
  return amp__result(call, 0, amp__op_cast(result, call->in[0]->dtype));
}
