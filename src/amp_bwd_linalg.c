/*
** amp_bwd_linalg.c: derivatives of linear algebra, in ops that are recorded, so
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
#include "amp_bwd.h"

static amp_tensor *mul(amp_tensor *a, amp_tensor *b) { return X2(mul, a, b); }
static amp_tensor *add(amp_tensor *a, amp_tensor *b) { return X2(add, a, b); }
static amp_tensor *sub(amp_tensor *a, amp_tensor *b) { return X2(sub, a, b); }
static amp_tensor *mm(amp_tensor *a, amp_tensor *b) { return X2(matmul, a, b); }
static amp_tensor *turned(amp_tensor *t) { return amp__xtranspose(t, -2, -1); }
static amp_tensor *wide(amp_tensor *t) { return t && amp__is_half(t->dtype) ? amp__xcast(t, AMP_FLOAT32) : t; }
static amp_tensor *grad(amp_bwd *b, int i) { return b->g[i] ? wide(b->g[i]) : NULL; }
static amp_tensor *plus(amp_tensor *sum, amp_tensor *t) { return sum ? add(sum, t) : t; }
/* a vector for each matrix, over its rows or over its columns */
static amp_tensor *as_column(amp_tensor *v) { return amp__xunsqueeze(v, -1); }
static amp_tensor *as_row(amp_tensor *v) { return amp__xunsqueeze(v, -2); }

static amp_tensor *triangle(int op, amp_tensor *t, int diagonal) {
  amp_sl s = amp__sl();
  amp__sl_i(&s, diagonal);
  return amp__x(op, &s, 1, &t);
}

static amp_tensor *eye_like(amp_tensor *t, int64_t n) {
  if (!t) return NULL;
  amp_sl s = amp__sl();
  amp__sl_i(&s, n);
  amp__sl_i(&s, AMP_NONE);
  amp__sl_i(&s, t->dtype);
  amp__sl_i(&s, t->device * 256 + t->device_index);
  return amp__x(AMP_OP_eye, &s, 0, NULL);
}

static amp_tensor *halves(amp_tensor *t) { return XN(mul, add(t, turned(t)), 0.5); } /* the symmetric part */

/* -- Systems ------------------------------------------------------------------------------------ */

int amp__bwd_inverse(amp_bwd *b) {
  amp_tensor *y = turned(wide(OUT(b, 0)));
  return GIN(b, 0, amp__xto(b, 0, X1(neg, mm(mm(y, grad(b, 0)), y))));
}

static amp_tensor *linear_solve(amp_tensor *a, amp_tensor *b, bool adjoint) {
  amp_tensor *in[2] = { a, b };
  amp_sl s = amp__sl();
  amp__sl_i(&s, adjoint);
  return amp__x(AMP_OP_linear_solve, &s, 2, in);
}

int amp__bwd_linear_solve(amp_bwd *b) { /* adjoint */
  bool adjoint = b->a[0].i != 0;
  amp_tensor *w = linear_solve(wide(IN(b, 0)), grad(b, 0), !adjoint), *x;
  OR_FAIL(w);
  int rc = NEED(b, 1) ? GIN(b, 1, amp__xto(b, 1, w)) : 0;
  if (rc == 0 && NEED(b, 0)) {
    OR_FAIL(x = wide(OUT(b, 0)));
    rc = GIN(b, 0, amp__xto(b, 0, X1(neg, adjoint ? mm(x, turned(w)) : mm(w, turned(x)))));
  }
  return rc;
}

static amp_tensor *trisolve(amp_tensor *a, amp_tensor *b, bool upper, bool transpose, bool unit) {
  amp_tensor *in[2] = { a, b };
  amp_sl s = amp__sl();
  amp__sl_i(&s, upper);
  amp__sl_i(&s, transpose);
  amp__sl_i(&s, unit);
  return amp__x(AMP_OP_trisolve, &s, 2, in);
}

int amp__bwd_trisolve(amp_bwd *b) { /* upper transpose unitriangular */
  bool upper = b->a[0].i, transpose = b->a[1].i, unit = b->a[2].i;
  amp_tensor *w = trisolve(wide(IN(b, 0)), grad(b, 0), upper, !transpose, unit), *x;
  OR_FAIL(w);
  int rc = NEED(b, 1) ? GIN(b, 1, amp__xto(b, 1, w)) : 0;
  if (rc == 0 && NEED(b, 0)) {
    OR_FAIL(x = wide(OUT(b, 0)));
    amp_tensor *g = X1(neg, transpose ? mm(x, turned(w)) : mm(w, turned(x)));
    g = upper ? triangle(AMP_OP_triu, g, unit ? 1 : 0) : triangle(AMP_OP_tril, g, unit ? -1 : 0);
    rc = GIN(b, 0, amp__xto(b, 0, g));
  }
  return rc;
}

int amp__bwd_cholesky(amp_bwd *b) { /* upper */
  amp_tensor *l = wide(OUT(b, 0)), *g = grad(b, 0);
  if (b->a[0].i) { l = turned(l); g = turned(g); }
  amp_tensor *p = mm(turned(l), triangle(AMP_OP_tril, g, 0));
  p = XN(mul, add(triangle(AMP_OP_tril, p, 0), triangle(AMP_OP_tril, p, -1)), 0.5);
  p = trisolve(l, p, false, true, false);                    /* L^-T P */
  p = trisolve(l, turned(p), false, true, false);            /* L^-T (L^-T P)^T, the transpose of what is wanted */
  return GIN(b, 0, amp__xto(b, 0, halves(p)));
}

/* -- Determinants ---------------------------------------------------------------------------------- */

int amp__bwd_det(amp_bwd *b) {
  return GIN(b, 0, amp__xto(b, 0, mul(as_column(as_column(grad(b, 0))), X1(cofactor, wide(IN(b, 0))))));
}

int amp__bwd_slogdet(amp_bwd *b) {
  if (!b->g[1]) return GIN(b, 0, amp__xzeros(b, 0)); /* the sign is constant */
  return GIN(b, 0, amp__xto(b, 0, mul(as_column(as_column(grad(b, 1))), turned(X1(inverse, wide(IN(b, 0)))))));
}

/* Products of what stands before each element of the last dimension */
static amp_tensor *before(amp_tensor *s) {
  if (!s) return NULL;
  int last = s->ndim - 1;
  int64_t size[AMP_MAX_DIM];
  memcpy(size, s->size, sizeof size);
  size[last] = 1;
  amp_tensor *in[2] = { amp__xfull(1, s->dtype, s->device, s->device_index, s->ndim, size), amp__xnarrow(amp__xdim(AMP_OP_cumprod, last, 1, &s), last, 0, s->size[last] - 1) };
  return in[0] && in[1] ? amp__xdim(AMP_OP_cat, last, 2, in) : NULL;
}

/* Products of all elements but two, 0 on the diagonal */
static amp_tensor *without_two(amp_tensor *s) {
  if (!s) return NULL;
  int last = s->ndim - 1;
  amp_tensor *eye = eye_like(s, s->size[last]), *one = eye ? XN(add, XN(mul, eye, 0), 1) : NULL;
  amp_tensor *between = before(add(mul(triangle(AMP_OP_triu, one, 1), as_row(s)), triangle(AMP_OP_tril, one, 0)));
  amp_tensor *after = amp__xflip(before(amp__xflip(s, last)), last);
  amp_tensor *p = triangle(AMP_OP_triu, mul(mul(between, as_column(before(s))), as_row(after)), 1);
  return add(p, turned(p));
}

/* Of C(U S V^T) = det(U V) U C(S) V^T; C(S) of a diagonal S moves by the products of all values but two, so the matrix may be singular */
static amp_tensor *cofactor_moves(amp_tensor *a, amp_tensor *g) {
  amp_tensor *out[AMP_MAX_OUT];
  if (!a || !g || amp__xs(AMP_OP_svd, NULL, 1, &a, out) < 0) return NULL;
  int last = a->ndim - 1;
  amp_tensor *p = without_two(out[1]), *h = mm(mm(turned(out[0]), g), out[2]), *eye = eye_like(a, a->size[last]);
  if (!p || !h || !eye) return NULL;
  amp_tensor *r = sub(mul(eye, mm(p, amp__xsum(mul(h, eye), 1, &last, true))), mul(p, turned(h)));
  amp_tensor *sign = as_column(as_column(mul(X1(det, out[0]), X1(det, out[2]))));
  return mul(sign, mm(mm(out[0], r), turned(out[2])));
}

/* Of C = det A^-T: (<G, C> C - C G^T C) / det, where that is to be differentiated again */
int amp__bwd_cofactor(amp_bwd *b) {
  int both[2] = { -2, -1 }, nd = SHAPE(b, 0)->ndim;
  int64_t n = SHAPE(b, 0)->size[nd - 1];
  amp_tensor *c = wide(OUT(b, 0)), *g = grad(b, 0);
  if (n < 2 || !g) return g ? GIN(b, 0, amp__xzeros(b, 0)) : amp__err();
  if (n == 2) { /* linear, and its own adjoint */
    amp_tensor *eye = eye_like(g, 2);
    return GIN(b, 0, amp__xto(b, 0, mul(amp__xflip(amp__xflip(g, nd - 1), nd - 2), XN(sub, add(eye, eye), 1))));
  }
  if (!b->create_graph) return GIN(b, 0, amp__xto(b, 0, cofactor_moves(wide(IN(b, 0)), g)));
  amp_tensor *d = as_column(as_column(X1(det, wide(IN(b, 0)))));
  amp_tensor *t = sub(mul(amp__xsum(mul(g, c), 2, both, true), c), mm(mm(c, turned(g)), c));
  return GIN(b, 0, amp__xto(b, 0, X2(div, t, d)));
}

/* -- QR ------------------------------------------------------------------------------------------------ */

int amp__bwd_qr(amp_bwd *b) { /* mode */
  const amp_shape *h = SHAPE(b, 0);
  int64_t m = h->size[h->ndim - 2], n = h->size[h->ndim - 1];
  if (b->a[0].i == 1 && m > n && b->g[0])
    return amp__fail(AMP_E_UNSUPPORTED, "Q of a complete factorisation of %lld x %lld is not differentiable: its last columns are any basis; use mode = 'reduced'",
                     (long long)m, (long long)n);
  amp_tensor *q = wide(OUT(b, 0)), *r = wide(OUT(b, 1)), *gq = grad(b, 0), *gr = grad(b, 1), *rest = NULL;
  OR_FAIL(q && r);
  if (b->a[0].i == 1 && m > n) {
    q = amp__xnarrow(q, -1, 0, n);
    r = amp__xnarrow(r, -2, 0, n);
    gr = gr ? amp__xnarrow(gr, -2, 0, n) : NULL;
  }
  if (m < n) { /* A = (X, Y), R = (U, W): X = Q U, W = Q^T Y */
    amp_tensor *y = gr ? amp__xnarrow(mm(q, r), -1, m, n - m) : NULL, *gw = gr ? amp__xnarrow(gr, -1, m, n - m) : NULL;
    if (gr) {
      OR_FAIL(rest = mm(q, gw));
      OR_FAIL(gq = plus(gq, mm(y, turned(gw))));
      gr = amp__xnarrow(gr, -1, 0, m);
    }
    r = amp__xnarrow(r, -1, 0, m);
  }
  if (gr) OR_FAIL(gr = triangle(AMP_OP_triu, gr, 0));
  amp_tensor *k = gr ? mm(r, turned(gr)) : NULL;
  if (gq) k = k ? sub(k, mm(turned(gq), q)) : X1(neg, mm(turned(gq), q));
  k = add(triangle(AMP_OP_tril, k, 0), turned(triangle(AMP_OP_tril, k, -1)));
  amp_tensor *z = plus(gq, mm(q, k));                                 /* times R^-T: solve R x = z^T */
  amp_tensor *g = turned(trisolve(r, turned(z), true, false, false));
  if (m < n) {
    if (!rest && g) {
      int64_t size[AMP_MAX_DIM];
      memcpy(size, g->size, sizeof size);
      size[g->ndim - 1] = n - m;
      rest = amp__xfull(0, g->dtype, g->device, g->device_index, g->ndim, size);
    }
    amp_tensor *in[2] = { g, rest };
    OR_FAIL(g);
    g = amp__xdim(AMP_OP_cat, g->ndim - 1, 2, in);
  }
  return GIN(b, 0, amp__xto(b, 0, g));
}

/* -- Singular values -------------------------------------------------------------------------------------- */

/* 1 over x[j] - x[i] (times x[j] + x[i] if squares), 1 on the diagonal */
static amp_tensor *gaps(amp_tensor *x, bool squares) {
  if (!x) return NULL;
  amp_tensor *d = sub(as_row(x), as_column(x));
  if (squares) d = mul(d, add(as_row(x), as_column(x)));
  return X1(reciprocal, add(d, eye_like(x, x->size[x->ndim - 1])));
}

static amp_tensor *diagonal(amp_tensor *v) { return v ? mul(eye_like(v, v->size[v->ndim - 1]), as_row(v)) : NULL; }

int amp__bwd_svd(amp_bwd *b) { /* some */
  const amp_shape *h = SHAPE(b, 0);
  int64_t m = h->size[h->ndim - 2], n = h->size[h->ndim - 1], r = m < n ? m : n;
  amp_tensor *u = wide(OUT(b, 0)), *s = wide(OUT(b, 1)), *v = wide(OUT(b, 2)), *gu = grad(b, 0), *gs = grad(b, 1), *gv = grad(b, 2);
  amp_tensor *inner = NULL, *t, *g;
  OR_FAIL(u && s && v);
  if (!b->a[0].i && m != n) {
    if (gu || gv)
      return amp__fail(AMP_E_UNSUPPORTED, "U and V with some = false of %lld x %lld are not differentiable: their last columns are any basis; use some = true",
                       (long long)m, (long long)n);
    u = amp__xnarrow(u, -1, 0, r);
    v = amp__xnarrow(v, -1, 0, r);
  }
  amp_tensor *e = gu || gv ? gaps(s, true) : NULL;
  if (gu || gv) OR_FAIL(e);
  if (gu) {
    t = mm(turned(u), gu);
    OR_FAIL(inner = mul(mul(sub(t, turned(t)), e), as_row(s)));
  }
  if (gv) {
    t = mm(turned(v), gv);
    OR_FAIL(inner = plus(inner, mul(as_column(s), mul(sub(t, turned(t)), e))));
  }
  if (gs) OR_FAIL(inner = plus(inner, diagonal(gs)));
  g = mm(mm(u, inner), turned(v));
  if (gu && m > r) { /* what leaves the space of U */
    t = X2(div, gu, as_row(s));
    g = add(g, mm(sub(t, mm(u, mm(turned(u), t))), turned(v)));
  }
  if (gv && n > r) {
    t = X2(div, gv, as_row(s));
    g = add(g, mm(u, turned(sub(t, mm(v, mm(turned(v), t))))));
  }
  return GIN(b, 0, amp__xto(b, 0, g));
}

int amp__bwd_svdvals(amp_bwd *b) {
  amp_tensor *x = wide(IN(b, 0)), *out[AMP_MAX_OUT];
  int rc = amp__xs(AMP_OP_svd, NULL, 1, &x, out);
  return rc < 0 ? rc : GIN(b, 0, amp__xto(b, 0, mm(mul(out[0], as_row(grad(b, 0))), turned(out[2]))));
}

int amp__bwd_pinverse(amp_bwd *b) {
  amp_tensor *a = wide(IN(b, 0)), *p = wide(OUT(b, 0)), *g = grad(b, 0);
  OR_FAIL(a && p && g);
  int64_t m = a->size[a->ndim - 2], n = a->size[a->ndim - 1];
  amp_tensor *pt = turned(p), *gt = turned(g);
  amp_tensor *left = mm(mm(sub(eye_like(a, m), mm(a, p)), gt), mm(p, pt));  /* (I - A P) G^T P P^T */
  amp_tensor *right = mm(mm(pt, p), mm(gt, sub(eye_like(a, n), mm(p, a)))); /* P^T P G^T (I - P A) */
  return GIN(b, 0, amp__xto(b, 0, sub(add(left, right), mm(mm(pt, g), pt))));
}

/* -- Eigenvalues --------------------------------------------------------------------------------------------- */

int amp__bwd_eigh(amp_bwd *b) { /* UPLO */
  amp_tensor *w = wide(OUT(b, 0)), *v = wide(OUT(b, 1)), *gw = grad(b, 0), *gv = grad(b, 1), *inner = NULL;
  OR_FAIL(w && v);
  if (gv) OR_FAIL(inner = mul(mm(turned(v), gv), sub(gaps(w, false), eye_like(w, w->size[w->ndim - 1]))));
  if (gw) OR_FAIL(inner = plus(inner, diagonal(gw)));
  return GIN(b, 0, amp__xto(b, 0, halves(mm(mm(v, inner), turned(v)))));
}

int amp__bwd_eigvalsh(amp_bwd *b) { /* UPLO */
  amp_tensor *x = wide(IN(b, 0)), *out[AMP_MAX_OUT];
  amp_sl s = amp__sl();
  amp__sl_copy(&s, b->a, 1);
  int rc = amp__xs(AMP_OP_eigh, &s, 1, &x, out);
  return rc < 0 ? rc : GIN(b, 0, amp__xto(b, 0, mm(mul(out[1], as_row(grad(b, 0))), turned(out[1]))));
}
