/*
** amp_comp_products.c: composite products beside matmul's own names (those are
** in amp_comp_nn.c, einsum in amp_comp_einsum.c). Each is one matmul of views,
** or an element-wise product. What would be rounded twice is computed in
** float32 where the dtype is a 16-bit one.
*/
#include "amp_products.h"
#include "amp_infer.h"


static amp_tensor *wide(amp_tensor *t) { return t && amp__is_half(t->dtype) ? amp__xcast(t, AMP_FLOAT32) : t; }

static amp_tensor *permuted(amp_tensor *t, int n, const int *dims) {
  int64_t list[AMP_MAX_DIM];
  bool same = true;
  for (int i = 0; i < n; i++) {
    list[i] = dims[i] + 1;
    same = same && dims[i] == i;
  }
  if (!t || same) return t;
  amp_sl s = amp__sl();
  amp__sl_list(&s, n, list);
  return amp__x(AMP_OP_permute, &s, 1, &t);
}

static amp_tensor *matrix(amp_tensor *t, int64_t rows, int64_t cols) {
  int64_t size[2] = { rows, cols };
  return amp__xview(t, 2, size);
}

/* -- Sums of a tensor and a product ---------------------------------------------- */

int amp__comp_addmv(amp_call *c) {
  int rc = amp__want_product(c, 1, 2, 1, "a matrix", "a vector");
  if (rc == 0) rc = amp__want_dtype(c->in[0], c->in[1]);
  if (rc == 0) rc = amp__want_addend(c, 1, c->in[1]->size);
  return rc < 0 ? rc : amp__ret(c, 0, amp__add_product(c, X2(matmul, c->in[1], c->in[2])));
}

/* The batch joins the inner dimension: one product for all. */
int amp__comp_addbmm(amp_call *c) {
  static const int first[3] = { 1, 0, 2 };
  amp_tensor *a = c->in[1], *b = c->in[2];
  int rc = amp__want_product(c, 1, 3, 3, "a batch of matrices", "a batch of matrices");
  if (rc == 0) rc = amp__want_dtype(c->in[0], a);
  if (rc < 0) return rc;
  int64_t size[2] = { a->size[1], b->size[2] }, inner = a->size[0] * a->size[2];
  if ((rc = amp__want_addend(c, 2, size)) < 0) return rc;
  return amp__ret(c, 0, amp__add_product(c, X2(matmul, matrix(permuted(a, 3, first), size[0], inner), matrix(b, inner, size[1]))));
}

/* -- Chains ------------------------------------------------------------------------ */

/* Where to cut the product of matrices i..j: cut[i * n + j] */
static amp_tensor *chain(amp_tensor *const *in, const uint16_t *cut, int n, int i, int j) {
  if (i == j) return in[i];
  int k = cut[i * n + j];
  amp_tensor *a = chain(in, cut, n, i, k);
  return a ? X2(matmul, a, chain(in, cut, n, k + 1, j)) : NULL;
}

/* Matrix i is size[i] x size[i + 1]. The cheapest way to multiply i..j is the cheapest of all last products. */
static void cheapest(int n, const int64_t *size, double *cost, uint16_t *cut) {
  for (int i = 0; i < n; i++) cost[i * n + i] = 0;
  for (int len = 2; len <= n; len++)
    for (int i = 0, j = len - 1; j < n; i++, j++) {
      double best = -1;
      for (int k = i; k < j; k++) {
        double v = cost[i * n + k] + cost[(k + 1) * n + j] + (double)size[i] * (double)size[k + 1] * (double)size[j + 1];
        if (best >= 0 && v >= best) continue;
        best = v;
        cut[i * n + j] = (uint16_t)k;
      }
      cost[i * n + j] = best;
    }
}

int amp__comp_chain_matmul(amp_call *c) {
  enum { MOST = 512 };
  int n = c->nin, rc;
  if (n == 0) return amp__fail(AMP_E_ARGUMENT, "an empty list of matrices");
  if (n > MOST) return amp__fail(AMP_E_ARGUMENT, "a chain of %d matrices is given; at most %d are possible", n, MOST);
  for (int i = 0; i < n; i++) {
    const amp_tensor *t = c->in[i];
    bool end = n > 1 && (i == 0 || i == n - 1);
    if (t->ndim != 2 && !(end && t->ndim == 1))
      return amp__fail_arg(AMP_E_SHAPE, i + 1, "matrix %d has shape %s, expected 2 dimensions%s", i + 1, SHAPE_OF(t), end ? " (or a vector)" : "");
    if (i == 0) continue;
    const amp_tensor *s = c->in[i - 1];
    if ((rc = amp__want_dtype(c->in[0], t)) < 0) return rc;
    if (s->size[s->ndim - 1] != t->size[0])
      return amp__fail_arg(AMP_E_SHAPE, i + 1, "matrix %d (%s) and matrix %d (%s) don't fit: %lld columns and %lld rows", i, SHAPE_OF(s), i + 1, SHAPE_OF(t),
                           LL(s->size[s->ndim - 1]), LL(t->size[0]));
  }
  if (n == 1) return amp__ret(c, 0, X1(alias, c->in[0]));
  if (n == 2) return amp__ret(c, 0, X2(matmul, c->in[0], c->in[1]));
  size_t cells = (size_t)n * (size_t)n;
  amp_block *lent = amp__block_new(AMP_CPU, 0, cells * (sizeof(double) + sizeof(uint16_t)) + sizeof(int64_t) * (size_t)(n + 1));
  if (!lent) return AMP_E_MEMORY;
  double *cost = lent->data;
  int64_t *size = (int64_t *)(cost + cells);
  uint16_t *cut = (uint16_t *)(size + n + 1);
  for (int i = 0; i < n; i++) size[i] = c->in[i]->ndim == 2 ? c->in[i]->size[0] : i == 0 ? 1 : c->in[i]->size[0];
  size[n] = c->in[n - 1]->ndim == 2 ? c->in[n - 1]->size[1] : 1;
  cheapest(n, size, cost, cut);
  rc = amp__ret(c, 0, chain(c->in, cut, n, 0, n - 1));
  amp__block_free(lent);
  return rc;
}

/* -- Vectors ------------------------------------------------------------------------- */

int amp__comp_vecdot(amp_call *c) {
  int64_t size[AMP_MAX_DIM];
  int n, rc = amp__want_dtype(c->in[0], c->in[1]);
  if (rc < 0 || (rc = amp__broadcast(c, 2, &n, size)) < 0 || (rc = amp__row_dim(&c->a[0], n, "dim")) < 0) return rc;
  int dim = (int)c->a[0].i;
  amp_tensor *y = amp__xsum(X2(mul, wide(c->in[0]), wide(c->in[1])), 1, &dim, false);
  return amp__ret(c, 0, amp__xcast(y, c->in[0]->dtype));
}

int amp__comp_vdot(amp_call *c) {
  int rc = amp__want_product(c, 0, 1, 1, "a vector", "a vector");
  return rc < 0 ? rc : amp__ret(c, 0, X2(matmul, c->in[0], c->in[1]));
}

static int want_vectors(const amp_call *c, int i) {
  int rc = amp__want_dims(c, i, 1, "a vector");
  if (rc == 0) rc = amp__want_dims(c, i + 1, 1, "a vector");
  return rc;
}

int amp__comp_outer(amp_call *c) {
  int rc = want_vectors(c, 0);
  return rc < 0 ? rc : amp__ret(c, 0, X2(mul, amp__xunsqueeze(c->in[0], 1), c->in[1]));
}

int amp__comp_trace(amp_call *c) {
  int rc = amp__want_dims(c, 0, 2, "a matrix");
  return rc < 0 ? rc : amp__ret(c, 0, X1(sum, X1(diagonal, c->in[0])));
}

/* -- Tensors ----------------------------------------------------------------------------- */

/* a as rows of K elements, b as K rows, their product in the shape of what is left of both. */
static int contract(amp_call *c, amp_tensor *a, amp_tensor *b, int n, const int *da, const int *db) {
  int order[AMP_MAX_DIM], na = 0, nb = 0, free_a = a->ndim - n, free_b = b->ndim - n;
  int64_t size[2 * AMP_MAX_DIM], rows = 1, cols = 1, inner = 1;
  uint32_t gone_a = 0, gone_b = 0;
  if (free_a + free_b > AMP_MAX_DIM)
    return amp__fail(AMP_E_SHAPE, "the product of %s and %s over %d dimensions would have %d; at most %d are possible", SHAPE_OF(a), SHAPE_OF(b), n,
                     free_a + free_b, AMP_MAX_DIM);
  for (int i = 0; i < n; i++) {
    gone_a |= 1u << da[i];
    gone_b |= 1u << db[i];
    inner *= a->size[da[i]];
  }
  for (int d = 0; d < a->ndim; d++) if (!(gone_a >> d & 1)) { order[na++] = d; rows *= size[na - 1] = a->size[d]; }
  for (int i = 0; i < n; i++) order[na + i] = da[i];
  amp_tensor *x = matrix(permuted(a, a->ndim, order), rows, inner);
  for (int i = 0; i < n; i++) order[i] = db[i];
  for (int d = 0; d < b->ndim; d++) if (!(gone_b >> d & 1)) { order[n + nb++] = d; cols *= size[na + nb - 1] = b->size[d]; }
  amp_tensor *y = matrix(permuted(b, b->ndim, order), inner, cols);
  return amp__ret(c, 0, amp__xview(X2(matmul, x, y), na + nb, size));
}

int amp__comp_tensordot(amp_call *c) {
  enum { COUNT, FIRST, SECOND = FIRST + 9 }; /* slots */
  amp_tensor *a = c->in[0], *b = c->in[1];
  int da[AMP_MAX_DIM], db[AMP_MAX_DIM], n, rc = amp__want_dtype(a, b);
  bool one = c->a[FIRST].i != AMP_NONE, two = c->a[SECOND].i != AMP_NONE;
  uint32_t mask;
  if (rc < 0) return rc;
  if (one && (rc = amp__norm_dims(&c->a[FIRST], a->ndim, &mask)) < 0) return rc;
  if (two && (rc = amp__norm_dims(&c->a[SECOND], b->ndim, &mask)) < 0) return rc;
  if (one != two) return amp__fail(AMP_E_ARGUMENT, "dims_input and dims_other come together");
  if (one) {
    n = (int)c->a[FIRST].i;
    if (n != c->a[SECOND].i) return amp__fail(AMP_E_ARGUMENT, "%d dimensions of input are listed and %lld of other", n, LL(c->a[SECOND].i));
    for (int i = 0; i < n; i++) { da[i] = (int)c->a[FIRST + 1 + i].i; db[i] = (int)c->a[SECOND + 1 + i].i; }
  } else {
    if (c->a[COUNT].i < 0 || c->a[COUNT].i > a->ndim || c->a[COUNT].i > b->ndim)
      return amp__fail(AMP_E_ARGUMENT, "dims %lld must lie in 0..%d: input has shape %s, other %s", LL(c->a[COUNT].i), a->ndim < b->ndim ? a->ndim : b->ndim,
                       SHAPE_OF(a), SHAPE_OF(b));
    n = (int)c->a[COUNT].i;
    for (int i = 0; i < n; i++) { da[i] = a->ndim - n + i; db[i] = i; }
  }
  for (int i = 0; i < n; i++) {
    int64_t sa = a->size[da[i]], sb = b->size[db[i]];
    if (sa == sb) continue;
    if (sa != 1 && sb != 1)
      return amp__fail(AMP_E_SHAPE, "dimension %d of input %s has size %lld, dimension %d of other %s has size %lld; they are summed over together", da[i] + 1,
                       SHAPE_OF(a), LL(sa), db[i] + 1, SHAPE_OF(b), LL(sb));
    if (sa == 1) b = amp__xsum(b, 1, &db[i], true);
    else a = amp__xsum(a, 1, &da[i], true);
    if (!a || !b) return amp__err();
  }
  return contract(c, a, b, n, da, db);
}

int amp__comp_inner(amp_call *c) {
  amp_tensor *a = c->in[0], *b = c->in[1];
  int rc = amp__want_dtype(a, b);
  if (rc < 0) return rc;
  if (a->ndim == 0 || b->ndim == 0) return amp__ret(c, 0, X2(mul, a, b));
  int da = a->ndim - 1, db = b->ndim - 1;
  if (a->size[da] != b->size[db])
    return amp__fail(AMP_E_SHAPE, "input %s and other %s differ in their last dimension (%lld and %lld)", SHAPE_OF(a), SHAPE_OF(b), LL(a->size[da]),
                     LL(b->size[db]));
  return contract(c, a, b, 1, &da, &db);
}

/* Dimension d of a becomes d and 1 x, of b 1 x and d; the pairs of the product join. */
int amp__comp_kron(amp_call *c) {
  amp_tensor *t[2] = { c->in[0], c->in[1] };
  int n = t[0]->ndim > t[1]->ndim ? t[0]->ndim : t[1]->ndim;
  int64_t size[AMP_MAX_DIM], whole[AMP_MAX_DIM];
  if (2 * n > AMP_MAX_DIM) return amp__fail(AMP_E_SHAPE, "kron takes up to %d dimensions, got %s and %s", AMP_MAX_DIM / 2, SHAPE_OF(t[0]), SHAPE_OF(t[1]));
  for (int d = 0; d < n; d++) whole[d] = 1;
  for (int i = 0; i < 2; i++) {
    for (int d = 0; d < n; d++) {
      int at = d - (n - t[i]->ndim);
      int64_t s = at < 0 ? 1 : t[i]->size[at];
      size[2 * d + i] = s;
      size[2 * d + 1 - i] = 1;
      whole[d] *= s;
    }
    t[i] = amp__xview(t[i], 2 * n, size);
  }
  if (!t[0] || !t[1]) return amp__err();
  if (n > 1 && t[0]->numel > 1 && t[1]->numel > 1) { /* both repeated to whole rows, so that long runs are multiplied */
    int64_t cols[2] = { t[0]->size[2 * n - 2], t[1]->size[2 * n - 1] };
    for (int i = 0; i < 2; i++) {
      for (int d = 0; d < 2 * n; d++) size[d] = d < 2 * n - 2 ? t[i]->size[d] : cols[d - (2 * n - 2)];
      t[i] = amp__xcontiguous(amp__xexpand(t[i], 2 * n, size));
    }
  }
  return amp__ret(c, 0, amp__xview(X2(mul, t[0], t[1]), n, whole));
}

/* -- Bilinear -------------------------------------------------------------------------------- */

static int want_bilinear(const amp_call *c) {
  const amp_tensor *x = c->in[0], *y = c->in[1], *w = c->in[2], *bias = c->in[3];
  int rc = amp__want_dims(c, 2, 3, "weight, out x in1 x in2");
  if (rc < 0 || (rc = amp__want_dtype(x, y)) < 0 || (rc = amp__want_dtype(x, w)) < 0 || (rc = amp__want_dtype(x, bias)) < 0) return rc;
  for (int i = 0; i < 2; i++) {
    const amp_tensor *t = c->in[i];
    if (t->ndim == 0 || t->size[t->ndim - 1] != w->size[1 + i])
      return amp__fail_arg(AMP_E_SHAPE, i + 1, "input%d has shape %s, expected a last dimension of %lld (dimension %d of weight %s)", i + 1, SHAPE_OF(t),
                           LL(w->size[1 + i]), 2 + i, SHAPE_OF(w));
  }
  if (x->ndim != y->ndim || memcmp(x->size, y->size, sizeof *x->size * (size_t)(x->ndim - 1)) != 0)
    return amp__fail_arg(AMP_E_SHAPE, 2, "input1 %s and input2 %s differ in more than their last dimension", SHAPE_OF(x), SHAPE_OF(y));
  if (bias && (bias->ndim != 1 || bias->size[0] != w->size[0]))
    return amp__fail_arg(AMP_E_SHAPE, 4, "bias has shape %s, expected %lld (dimension 1 of weight %s)", SHAPE_OF(bias), LL(w->size[0]), SHAPE_OF(w));
  return 0;
}

/* Through the products of all pairs, or through the products with the first input: whichever is smaller. */
int amp__comp_bilinear(amp_call *c) {
  static const int turn[3] = { 1, 0, 2 };
  int rc = want_bilinear(c), dtype = c->in[0]->dtype;
  if (rc < 0) return rc;
  amp_tensor *x = wide(c->in[0]), *y = wide(c->in[1]), *w = wide(c->in[2]), *bias = wide(c->in[3]), *r;
  if (!x || !y || !w || (c->in[3] && !bias)) return amp__err();
  int n = x->ndim;
  int64_t out = w->size[0], in1 = w->size[1], in2 = w->size[2], rows = amp__count(n - 1, x->size), size[AMP_MAX_DIM];
  x = matrix(x, rows, in1);
  y = matrix(y, rows, in2);
  if (in1 <= out) {
    amp_tensor *in[3] = { matrix(X2(mul, amp__xunsqueeze(x, 2), amp__xunsqueeze(y, 1)), rows, in1 * in2), matrix(w, out, in1 * in2), bias };
    r = amp__x(AMP_OP_linear, NULL, 3, in);
  } else {
    int64_t cube[3] = { rows, out, in2 };
    r = amp__xview(X2(matmul, x, matrix(permuted(w, 3, turn), in1, out * in2)), 3, cube);
    r = matrix(X2(matmul, r, amp__xunsqueeze(y, 2)), rows, out);
    if (bias) r = X2(add, r, bias);
  }
  memcpy(size, c->in[0]->size, sizeof size);
  size[n - 1] = out;
  return amp__ret(c, 0, amp__xcast(amp__xview(r, n, size), dtype));
}
