/*
** ops/linalg/linalg_derivative.c: derivatives of linear algebra, in ops that are recorded, so
** that second derivatives need no formulas of their own. G is the gradient of
** the result; 16-bit values are widened first.
**
**   X = A^-1 B           gB = A^-T G, gA = -gB X^T
**   A = L L^T            L^-T P(L^T G) L^-1, P halving the diagonal of the lower triangle; made symmetric
**   A = Q R, m >= n      (gQ + Q C(R gR^T - gQ^T Q)) R^-T, C copying the lower triangle to the upper one
**   A = U S V^T, V L V^T by the rotations between vectors: U^T gU over differences of (squared) values,
**                        of which no two may be equal
**   det                  g times the matrix of cofactors, which a singular matrix has too, and its slopes
**   pseudo-inverse       that of constant rank (Golub and Pereyra), as if what rcond drops were 0
**
** Gradients of symmetric arguments are symmetric whichever triangle is read.
** What is left open, the signs of vectors, a function must not depend on.
*/
#include "autograd/derivative.h"
#include "ops/linalg/linalg_parts.h"

static amp_tensor *mul(amp_tensor *left, amp_tensor *right) { return OP2(mul, left, right); }
static amp_tensor *add(amp_tensor *left, amp_tensor *right) { return OP2(add, left, right); }
static amp_tensor *sub(amp_tensor *left, amp_tensor *right) { return OP2(sub, left, right); }
static amp_tensor *mm(amp_tensor *left, amp_tensor *right) { return OP2(matmul, left, right); }
static amp_tensor *turned(amp_tensor *tensor) { return amp__op_transpose(tensor, -2, -1); }
static amp_tensor *wide(amp_tensor *tensor)
{
  return tensor && amp__is_half(tensor->dtype) ? amp__op_cast(tensor, AMP_FLOAT32) : tensor;
}
static amp_tensor *grad(amp_bwd *bwd, int i) { return bwd->grad[i] ? wide(bwd->grad[i]) : NULL; }
static amp_tensor *plus(amp_tensor *sum, amp_tensor *tensor) { return sum ? add(sum, tensor) : tensor; }
/* a vector for each matrix, over its rows or over its columns */
static amp_tensor *as_column(amp_tensor *vector) { return amp__op_unsqueeze(vector, -1); }
static amp_tensor *as_row(amp_tensor *vector) { return amp__op_unsqueeze(vector, -2); }

static amp_tensor *triangle(int op_id, amp_tensor *tensor, int diagonal)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, diagonal);
  return amp__op(op_id, &attrs, 1, &tensor);
}

static amp_tensor *eye_like(amp_tensor *tensor, int64_t n)
{
  if (!tensor) return NULL;
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, n);
  amp__attrs_int(&attrs, AMP_NONE);
  amp__attrs_int(&attrs, tensor->dtype);
  amp__attrs_int(&attrs, tensor->device * 256 + tensor->device_index);
  return amp__op(AMP_OP_eye, &attrs, 0, NULL);
}

static amp_tensor *halves(amp_tensor *tensor)
{
  return OP_NUMBER(mul, add(tensor, turned(tensor)), 0.5);
} /* the symmetric part */

/* -- Systems ------------------------------------------------------------------------------------ */

int amp__bwd_inverse(amp_bwd *bwd)
{
  amp_tensor *y = turned(wide(OUTPUT(bwd, 0)));
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, OP1(neg, mm(mm(y, grad(bwd, 0)), y))));
}

int amp__bwd_linear_solve(amp_bwd *bwd)
{
  bool adjoint = AMP_ARGS(bwd, linear_solve)->adjoint != 0;
  amp_tensor *w = amp__op_linear_solve(wide(INPUT(bwd, 0)), grad(bwd, 0), !adjoint), *x;
  OR_FAIL(w);
  int status = NEEDS(bwd, 1) ? INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, w)) : 0;
  if (status == 0 && NEEDS(bwd, 0)) {
    OR_FAIL(x = wide(OUTPUT(bwd, 0)));
    status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, OP1(neg, adjoint ? mm(x, turned(w)) : mm(w, turned(x)))));
  }
  return status;
}

int amp__bwd_trisolve(amp_bwd *bwd)
{
  const args_trisolve *args = AMP_ARGS(bwd, trisolve);
  bool upper = args->upper, transpose = args->transpose, unit = args->unitriangular;
  amp_tensor *w = amp__op_trisolve(wide(INPUT(bwd, 0)), grad(bwd, 0), upper, !transpose, unit), *x;
  OR_FAIL(w);
  int status = NEEDS(bwd, 1) ? INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, w)) : 0;
  if (status == 0 && NEEDS(bwd, 0)) {
    OR_FAIL(x = wide(OUTPUT(bwd, 0)));
    amp_tensor *back = OP1(neg, transpose ? mm(x, turned(w)) : mm(w, turned(x)));
    back = upper ? triangle(AMP_OP_triu, back, unit ? 1 : 0) : triangle(AMP_OP_tril, back, unit ? -1 : 0);
    status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, back));
  }
  return status;
}

int amp__bwd_cholesky(amp_bwd *bwd)
{
  amp_tensor *l = wide(OUTPUT(bwd, 0)), *back = grad(bwd, 0);
  if (AMP_ARGS(bwd, cholesky)->upper) {
    l = turned(l);
    back = turned(back);
  }
  amp_tensor *p = mm(turned(l), triangle(AMP_OP_tril, back, 0));
  p = OP_NUMBER(mul, add(triangle(AMP_OP_tril, p, 0), triangle(AMP_OP_tril, p, -1)), 0.5);
  p = amp__op_trisolve(l, p, false, true, false);         /* L^-T P */
  p = amp__op_trisolve(l, turned(p), false, true, false); /* L^-T (L^-T P)^T, the transpose of what is wanted */
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, halves(p)));
}

/* -- Determinants ---------------------------------------------------------------------------------- */

int amp__bwd_det(amp_bwd *bwd)
{
  return INPUT_GRAD(
      bwd, 0, amp__op_to_input(bwd, 0, mul(as_column(as_column(grad(bwd, 0))), OP1(cofactor, wide(INPUT(bwd, 0))))));
}

int amp__bwd_slogdet(amp_bwd *bwd)
{
  if (!bwd->grad[1]) return INPUT_GRAD(bwd, 0, amp__op_zeros_like(bwd, 0)); /* the sign is constant */
  return INPUT_GRAD(
      bwd, 0,
      amp__op_to_input(bwd, 0, mul(as_column(as_column(grad(bwd, 1))), turned(OP1(inverse, wide(INPUT(bwd, 0)))))));
}

/* Products of what stands before each element of the last dimension */
static amp_tensor *before(amp_tensor *values)
{
  if (!values) return NULL;
  int last = values->ndim - 1;
  int64_t size[AMP_MAX_DIM];
  memcpy(size, values->size, sizeof size);
  size[last] = 1;
  amp_tensor *inputs[2]
      = { amp__op_full(1, values->dtype, values->device, values->device_index, values->ndim, size),
          amp__op_narrow(amp__op_dim(AMP_OP_cumprod, last, 1, &values), last, 0, values->size[last] - 1) };
  return inputs[0] && inputs[1] ? amp__op_dim(AMP_OP_cat, last, 2, inputs) : NULL;
}

/* Products of all elements but two, 0 on the diagonal */
static amp_tensor *without_two(amp_tensor *values)
{
  if (!values) return NULL;
  int last = values->ndim - 1;
  amp_tensor *eye = eye_like(values, values->size[last]), *one = eye ? OP_NUMBER(add, OP_NUMBER(mul, eye, 0), 1) : NULL;
  amp_tensor *between = before(add(mul(triangle(AMP_OP_triu, one, 1), as_row(values)), triangle(AMP_OP_tril, one, 0)));
  amp_tensor *after = amp__op_flip(before(amp__op_flip(values, last)), last);
  amp_tensor *p = triangle(AMP_OP_triu, mul(mul(between, as_column(before(values))), as_row(after)), 1);
  return add(p, turned(p));
}

/* Of C(U S V^T) = det(U V) U C(S) V^T; C(S) of a diagonal S moves by the products of all values but two, so the
** matrix may be singular */
static amp_tensor *cofactor_moves(amp_tensor *a, amp_tensor *grad)
{
  amp_tensor *out[AMP_MAX_OUT];
  if (!a || !grad || amp__op_results(AMP_OP_svd, NULL, 1, &a, out) < 0) return NULL;
  int last = a->ndim - 1;
  amp_tensor *p = without_two(out[1]), *h = mm(mm(turned(out[0]), grad), out[2]), *eye = eye_like(a, a->size[last]);
  if (!p || !h || !eye) return NULL;
  amp_tensor *r = sub(mul(eye, mm(p, amp__op_sum(mul(h, eye), 1, &last, true))), mul(p, turned(h)));
  amp_tensor *sign = as_column(as_column(mul(OP1(det, out[0]), OP1(det, out[2]))));
  return mul(sign, mm(mm(out[0], r), turned(out[2])));
}

/* Of C = det A^-T: (<G, C> C - C G^T C) / det, where that is to be differentiated again */
int amp__bwd_cofactor(amp_bwd *bwd)
{
  int both[2] = { -2, -1 }, dims = SHAPE(bwd, 0)->ndim;
  int64_t n = SHAPE(bwd, 0)->size[dims - 1];
  amp_tensor *c = wide(OUTPUT(bwd, 0)), *back = grad(bwd, 0);
  if (n < 2 || !back) return back ? INPUT_GRAD(bwd, 0, amp__op_zeros_like(bwd, 0)) : amp__err();
  if (n == 2) { /* linear, and its own adjoint */
    amp_tensor *eye = eye_like(back, 2);
    return INPUT_GRAD(
        bwd, 0,
        amp__op_to_input(bwd, 0,
                         mul(amp__op_flip(amp__op_flip(back, dims - 1), dims - 2), OP_NUMBER(sub, add(eye, eye), 1))));
  }
  if (!bwd->create_graph)
    return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, cofactor_moves(wide(INPUT(bwd, 0)), back)));
  amp_tensor *d = as_column(as_column(OP1(det, wide(INPUT(bwd, 0)))));
  amp_tensor *moves = sub(mul(amp__op_sum(mul(back, c), 2, both, true), c), mm(mm(c, turned(back)), c));
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, OP2(div, moves, d)));
}

/* -- QR ------------------------------------------------------------------------------------------------ */

int amp__bwd_qr(amp_bwd *bwd)
{
  const amp_shape *shape = SHAPE(bwd, 0);
  int64_t m = shape->size[shape->ndim - 2], n = shape->size[shape->ndim - 1];
  bool complete = AMP_ARGS(bwd, qr)->mode == QR_MODE_COMPLETE;
  if (complete && m > n && bwd->grad[0])
    return amp__fail(AMP_E_UNSUPPORTED,
                     "Q of a complete factorisation of %lld x %lld is not differentiable: "
                     "its last columns are any basis; use mode = 'reduced'",
                     (long long)m, (long long)n);
  amp_tensor *q = wide(OUTPUT(bwd, 0)), *r = wide(OUTPUT(bwd, 1)), *q_grad = grad(bwd, 0), *r_grad = grad(bwd, 1),
             *rest = NULL;
  OR_FAIL(q && r);
  if (complete && m > n) {
    q = amp__op_narrow(q, -1, 0, n);
    r = amp__op_narrow(r, -2, 0, n);
    r_grad = r_grad ? amp__op_narrow(r_grad, -2, 0, n) : NULL;
  }
  if (m < n) { /* A = (X, Y), R = (U, W): X = Q U, W = Q^T Y */
    amp_tensor *y = r_grad ? amp__op_narrow(mm(q, r), -1, m, n - m) : NULL,
               *gw = r_grad ? amp__op_narrow(r_grad, -1, m, n - m) : NULL;
    if (r_grad) {
      OR_FAIL(rest = mm(q, gw));
      OR_FAIL(q_grad = plus(q_grad, mm(y, turned(gw))));
      r_grad = amp__op_narrow(r_grad, -1, 0, m);
    }
    r = amp__op_narrow(r, -1, 0, m);
  }
  if (r_grad) OR_FAIL(r_grad = triangle(AMP_OP_triu, r_grad, 0));
  amp_tensor *k = r_grad ? mm(r, turned(r_grad)) : NULL;
  if (q_grad) k = k ? sub(k, mm(turned(q_grad), q)) : OP1(neg, mm(turned(q_grad), q));
  k = add(triangle(AMP_OP_tril, k, 0), turned(triangle(AMP_OP_tril, k, -1)));
  amp_tensor *z = plus(q_grad, mm(q, k)); /* times R^-T: solve R x = z^T */
  amp_tensor *back = turned(amp__op_trisolve(r, turned(z), true, false, false));
  if (m < n) {
    if (!rest && back) {
      int64_t size[AMP_MAX_DIM];
      memcpy(size, back->size, sizeof size);
      size[back->ndim - 1] = n - m;
      rest = amp__op_full(0, back->dtype, back->device, back->device_index, back->ndim, size);
    }
    amp_tensor *inputs[2] = { back, rest };
    OR_FAIL(back);
    back = amp__op_dim(AMP_OP_cat, back->ndim - 1, 2, inputs);
  }
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, back));
}

/* -- Singular values -------------------------------------------------------------------------------------- */

/* 1 over x[j] - x[i] (times x[j] + x[i] if squares), 1 on the diagonal */
static amp_tensor *gaps(amp_tensor *x, bool squares)
{
  if (!x) return NULL;
  amp_tensor *d = sub(as_row(x), as_column(x));
  if (squares) d = mul(d, add(as_row(x), as_column(x)));
  return OP1(reciprocal, add(d, eye_like(x, x->size[x->ndim - 1])));
}

static amp_tensor *diagonal(amp_tensor *vector)
{
  return vector ? mul(eye_like(vector, vector->size[vector->ndim - 1]), as_row(vector)) : NULL;
}

int amp__bwd_svd(amp_bwd *bwd)
{
  const amp_shape *shape = SHAPE(bwd, 0);
  int64_t m = shape->size[shape->ndim - 2], n = shape->size[shape->ndim - 1], r = m < n ? m : n;
  amp_tensor *u = wide(OUTPUT(bwd, 0)), *s = wide(OUTPUT(bwd, 1)), *v = wide(OUTPUT(bwd, 2)), *u_grad = grad(bwd, 0),
             *s_grad = grad(bwd, 1), *v_grad = grad(bwd, 2);
  amp_tensor *inner = NULL, *part, *input_grad;
  OR_FAIL(u && s && v);
  if (!AMP_ARGS(bwd, svd)->some && m != n) {
    if (u_grad || v_grad)
      return amp__fail(AMP_E_UNSUPPORTED,
                       "U and V with some = false of %lld x %lld are not differentiable: "
                       "their last columns are any basis; use some = true",
                       (long long)m, (long long)n);
    u = amp__op_narrow(u, -1, 0, r);
    v = amp__op_narrow(v, -1, 0, r);
  }
  amp_tensor *gap = u_grad || v_grad ? gaps(s, true) : NULL;
  if (u_grad || v_grad) OR_FAIL(gap);
  if (u_grad) {
    part = mm(turned(u), u_grad);
    OR_FAIL(inner = mul(mul(sub(part, turned(part)), gap), as_row(s)));
  }
  if (v_grad) {
    part = mm(turned(v), v_grad);
    OR_FAIL(inner = plus(inner, mul(as_column(s), mul(sub(part, turned(part)), gap))));
  }
  if (s_grad) OR_FAIL(inner = plus(inner, diagonal(s_grad)));
  input_grad = mm(mm(u, inner), turned(v));
  if (u_grad && m > r) { /* what leaves the space of U */
    part = OP2(div, u_grad, as_row(s));
    input_grad = add(input_grad, mm(sub(part, mm(u, mm(turned(u), part))), turned(v)));
  }
  if (v_grad && n > r) {
    part = OP2(div, v_grad, as_row(s));
    input_grad = add(input_grad, mm(u, turned(sub(part, mm(v, mm(turned(v), part))))));
  }
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, input_grad));
}

int amp__bwd_svdvals(amp_bwd *bwd)
{
  amp_tensor *x = wide(INPUT(bwd, 0)), *out[AMP_MAX_OUT];
  int status = amp__op_results(AMP_OP_svd, NULL, 1, &x, out);
  return status < 0
             ? status
             : INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, mm(mul(out[0], as_row(grad(bwd, 0))), turned(out[2]))));
}

int amp__bwd_pinverse(amp_bwd *bwd)
{
  amp_tensor *a = wide(INPUT(bwd, 0)), *p = wide(OUTPUT(bwd, 0)), *back = grad(bwd, 0);
  OR_FAIL(a && p && back);
  int64_t m = a->size[a->ndim - 2], n = a->size[a->ndim - 1];
  amp_tensor *pt = turned(p), *gt = turned(back);
  amp_tensor *left = mm(mm(sub(eye_like(a, m), mm(a, p)), gt), mm(p, pt));  /* (I - A P) G^T P P^T */
  amp_tensor *right = mm(mm(pt, p), mm(gt, sub(eye_like(a, n), mm(p, a)))); /* P^T P G^T (I - P A) */
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, sub(add(left, right), mm(mm(pt, back), pt))));
}

/* -- Eigenvalues --------------------------------------------------------------------------------------------- */

int amp__bwd_eigh(amp_bwd *bwd)
{
  amp_tensor *w = wide(OUTPUT(bwd, 0)), *v = wide(OUTPUT(bwd, 1)), *w_grad = grad(bwd, 0), *v_grad = grad(bwd, 1),
             *inner = NULL;
  OR_FAIL(w && v);
  if (v_grad) OR_FAIL(inner = mul(mm(turned(v), v_grad), sub(gaps(w, false), eye_like(w, w->size[w->ndim - 1]))));
  if (w_grad) OR_FAIL(inner = plus(inner, diagonal(w_grad)));
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, halves(mm(mm(v, inner), turned(v)))));
}

int amp__bwd_eigvalsh(amp_bwd *bwd)
{
  amp_tensor *x = wide(INPUT(bwd, 0)), *out[AMP_MAX_OUT];
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, AMP_ARGS(bwd, eigvalsh)->UPLO);
  int status = amp__op_results(AMP_OP_eigh, &attrs, 1, &x, out);
  return status < 0
             ? status
             : INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, mm(mul(out[1], as_row(grad(bwd, 0))), turned(out[1]))));
}
