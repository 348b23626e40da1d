/*
** ops/matmul/products_composite.c: composite products beside matmul's own names (those are
** in ops/matmul/matmul_composite.c, einsum in ops/matmul/einsum_composite.c). Each is one matmul of views,
** or an element-wise product. What would be rounded twice is computed in
** float32 where the dtype is a 16-bit one.
*/
#include "ops/matmul/matmul.h"
#include "dispatch/shape_rules.h"

static amp_tensor *wide(amp_tensor *tensor)
{
  return tensor && amp__is_half(tensor->dtype) ? amp__op_cast(tensor, AMP_FLOAT32) : tensor;
}

static amp_tensor *permuted(amp_tensor *tensor, int count, const int *dims)
{
  int64_t list[AMP_MAX_DIM];
  bool same = true;
  for (int i = 0; i < count; i++) {
    list[i] = dims[i] + 1;
    same = same && dims[i] == i;
  }
  if (!tensor || same) return tensor;
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, count, list);
  return amp__op(AMP_OP_permute, &attrs, 1, &tensor);
}

static amp_tensor *matrix(amp_tensor *tensor, int64_t rows, int64_t cols)
{
  int64_t size[2] = { rows, cols };
  return amp__op_view(tensor, 2, size);
}

/* -- Sums of a tensor and a product ---------------------------------------------- */

int amp__comp_addmv(amp_call *call)
{
  const args_addmv *args = AMP_ARGS(call, addmv);
  int status = amp__want_product(call, 1, 2, 1, "a matrix", "a vector");
  if (status == 0) status = amp__want_dtype(call->in[0], call->in[1]);
  if (status == 0) status = amp__want_addend(call, 1, call->in[1]->size);
  return status < 0 ? status
                    : amp__result(
                        call, 0,
                        amp__add_product(call->in[0], args->beta, args->alpha, OP2(matmul, call->in[1], call->in[2])));
}

/* The batch joins the inner dimension: one product for all. */
int amp__comp_addbmm(amp_call *call)
{
  const args_addbmm *args = AMP_ARGS(call, addbmm);
  static const int first[3] = { 1, 0, 2 };
  amp_tensor *a = call->in[1], *b = call->in[2];
  int status = amp__want_product(call, 1, 3, 3, "a batch of matrices", "a batch of matrices");
  if (status == 0) status = amp__want_dtype(call->in[0], a);
  if (status < 0) return status;
  int64_t size[2] = { a->size[1], b->size[2] }, inner = a->size[0] * a->size[2];
  if ((status = amp__want_addend(call, 2, size)) < 0) return status;
  amp_tensor *product = OP2(matmul, matrix(permuted(a, 3, first), size[0], inner), matrix(b, inner, size[1]));
  return amp__result(call, 0, amp__add_product(call->in[0], args->beta, args->alpha, product));
}

/* -- Chains ------------------------------------------------------------------------ */

/* Where to cut the product of matrices i..j: cut[i * count + j] */
static amp_tensor *chain(amp_tensor *const *inputs, const uint16_t *cut, int count, int i, int j)
{
  if (i == j) return inputs[i];
  int k = cut[i * count + j];
  amp_tensor *a = chain(inputs, cut, count, i, k);
  return a ? OP2(matmul, a, chain(inputs, cut, count, k + 1, j)) : NULL;
}

/* Matrix i is size[i] x size[i + 1]. The cheapest way to multiply i..j is the cheapest of all last products. */
static void cheapest(int count, const int64_t *size, double *cost, uint16_t *cut)
{
  for (int i = 0; i < count; i++) cost[i * count + i] = 0;
  for (int len = 2; len <= count; len++)
    for (int i = 0, j = len - 1; j < count; i++, j++) {
      double best = -1;
      for (int k = i; k < j; k++) {
        double v = cost[i * count + k] + cost[(k + 1) * count + j]
                   + (double)size[i] * (double)size[k + 1] * (double)size[j + 1];
        if (best >= 0 && v >= best) continue;
        best = v;
        cut[i * count + j] = (uint16_t)k;
      }
      cost[i * count + j] = best;
    }
}

int amp__comp_chain_matmul(amp_call *call)
{
  enum { MOST = 512 };
  int count = call->nin, status;
  if (count == 0) return amp__fail(AMP_E_ARGUMENT, "an empty list of matrices");
  if (count > MOST)
    return amp__fail(AMP_E_ARGUMENT, "a chain of %d matrices is given; at most %d are possible", count, MOST);
  for (int i = 0; i < count; i++) {
    const amp_tensor *tensor = call->in[i];
    bool end = count > 1 && (i == 0 || i == count - 1);
    if (tensor->ndim != 2 && !(end && tensor->ndim == 1))
      return amp__fail_arg(AMP_E_SHAPE, i + 1, "matrix %d has shape %s, expected 2 dimensions%s", i + 1,
                           SHAPE_OF(tensor), end ? " (or a vector)" : "");
    if (i == 0) continue;
    const amp_tensor *s = call->in[i - 1];
    if ((status = amp__want_dtype(call->in[0], tensor)) < 0) return status;
    if (s->size[s->ndim - 1] != tensor->size[0])
      return amp__fail_arg(AMP_E_SHAPE, i + 1,
                           "matrix %d (%s) and matrix %d (%s) don't fit: %lld columns and %lld rows", i, SHAPE_OF(s),
                           i + 1, SHAPE_OF(tensor), LL(s->size[s->ndim - 1]), LL(tensor->size[0]));
  }
  if (count == 1) return amp__result(call, 0, OP1(alias, call->in[0]));
  if (count == 2) return amp__result(call, 0, OP2(matmul, call->in[0], call->in[1]));
  size_t cells = (size_t)count * (size_t)count;
  amp_block *lent
      = amp__block_new(AMP_CPU, 0, cells * (sizeof(double) + sizeof(uint16_t)) + sizeof(int64_t) * (size_t)(count + 1));
  if (!lent) return AMP_E_MEMORY;
  double *cost = lent->data;
  int64_t *size = (int64_t *)(cost + cells);
  uint16_t *cut = (uint16_t *)(size + count + 1);
  for (int i = 0; i < count; i++)
    size[i] = call->in[i]->ndim == 2 ? call->in[i]->size[0] : i == 0 ? 1 : call->in[i]->size[0];
  size[count] = call->in[count - 1]->ndim == 2 ? call->in[count - 1]->size[1] : 1;
  cheapest(count, size, cost, cut);
  status = amp__result(call, 0, chain(call->in, cut, count, 0, count - 1));
  amp__block_free(lent);
  return status;
}

/* -- Vectors ------------------------------------------------------------------------- */

int amp__comp_vecdot(amp_call *call)
{
  int64_t size[AMP_MAX_DIM];
  int count, status = amp__want_dtype(call->in[0], call->in[1]);
  if (status < 0 || (status = amp__broadcast(call, 2, &count, size)) < 0
      || (status = amp__row_dim(call->attrs, count, "dim")) < 0)
    return status;
  int dim = (int)AMP_ARGS(call, vecdot)->dim;
  amp_tensor *y = amp__op_sum(OP2(mul, wide(call->in[0]), wide(call->in[1])), 1, &dim, false);
  return amp__result(call, 0, amp__op_cast(y, call->in[0]->dtype));
}

int amp__comp_vdot(amp_call *call)
{
  int status = amp__want_product(call, 0, 1, 1, "a vector", "a vector");
  return status < 0 ? status : amp__result(call, 0, OP2(matmul, call->in[0], call->in[1]));
}

static int want_vectors(const amp_call *call, int i)
{
  int status = amp__want_dims(call, i, 1, "a vector");
  if (status == 0) status = amp__want_dims(call, i + 1, 1, "a vector");
  return status;
}

int amp__comp_outer(amp_call *call)
{
  int status = want_vectors(call, 0);
  return status < 0 ? status : amp__result(call, 0, OP2(mul, amp__op_unsqueeze(call->in[0], 1), call->in[1]));
}

int amp__comp_trace(amp_call *call)
{
  int status = amp__want_dims(call, 0, 2, "a matrix");
  return status < 0 ? status : amp__result(call, 0, OP1(sum, OP1(diagonal, call->in[0])));
}

/* -- Tensors ----------------------------------------------------------------------------- */

/* a as rows of K elements, b as K rows, their product in the shape of what is left of both. */
static int contract(amp_call *call, amp_tensor *a, amp_tensor *b, int count, const int *da, const int *db)
{
  int order[AMP_MAX_DIM], na = 0, nb = 0, free_a = a->ndim - count, free_b = b->ndim - count;
  int64_t size[2 * AMP_MAX_DIM], rows = 1, cols = 1, inner = 1;
  uint32_t gone_a = 0, gone_b = 0;
  if (free_a + free_b > AMP_MAX_DIM)
    return amp__fail(AMP_E_SHAPE, "the product of %s and %s over %d dimensions would have %d; at most %d are possible",
                     SHAPE_OF(a), SHAPE_OF(b), count, free_a + free_b, AMP_MAX_DIM);
  for (int i = 0; i < count; i++) {
    gone_a |= 1u << da[i];
    gone_b |= 1u << db[i];
    inner *= a->size[da[i]];
  }
  for (int dim = 0; dim < a->ndim; dim++)
    if (!(gone_a >> dim & 1)) {
      order[na++] = dim;
      rows *= size[na - 1] = a->size[dim];
    }
  for (int i = 0; i < count; i++) order[na + i] = da[i];
  amp_tensor *input = matrix(permuted(a, a->ndim, order), rows, inner);
  for (int i = 0; i < count; i++) order[i] = db[i];
  for (int dim = 0; dim < b->ndim; dim++)
    if (!(gone_b >> dim & 1)) {
      order[count + nb++] = dim;
      cols *= size[na + nb - 1] = b->size[dim];
    }
  amp_tensor *y = matrix(permuted(b, b->ndim, order), inner, cols);
  return amp__result(call, 0, amp__op_view(OP2(matmul, input, y), na + nb, size));
}

int amp__comp_tensordot(amp_call *call)
{
  args_tensordot *args = (args_tensordot *)call->attrs; /* lists of dimensions are written: from 0 */
  amp_tensor *a = call->in[0], *b = call->in[1];
  int da[AMP_MAX_DIM], db[AMP_MAX_DIM], count, status = amp__want_dtype(a, b);
  bool one = AMP_GIVEN(args->dims_input.n), two = AMP_GIVEN(args->dims_other.n);
  uint32_t mask;
  if (status < 0) return status;
  if (one && (status = amp__norm_dims((amp_slot *)(void *)&args->dims_input, a->ndim, &mask)) < 0) return status;
  if (two && (status = amp__norm_dims((amp_slot *)(void *)&args->dims_other, b->ndim, &mask)) < 0) return status;
  if (one != two) return amp__fail(AMP_E_ARGUMENT, "dims_input and dims_other come together");
  if (one) {
    count = (int)args->dims_input.n;
    if (count != args->dims_other.n)
      return amp__fail(AMP_E_ARGUMENT, "%d dimensions of input are listed and %lld of other", count,
                       LL(args->dims_other.n));
    for (int i = 0; i < count; i++) {
      da[i] = (int)args->dims_input.at[i];
      db[i] = (int)args->dims_other.at[i];
    }
  } else {
    if (args->dims < 0 || args->dims > a->ndim || args->dims > b->ndim)
      return amp__fail(AMP_E_ARGUMENT, "dims %lld must lie in 0..%d: input has shape %s, other %s", LL(args->dims),
                       a->ndim < b->ndim ? a->ndim : b->ndim, SHAPE_OF(a), SHAPE_OF(b));
    count = (int)args->dims;
    for (int i = 0; i < count; i++) {
      da[i] = a->ndim - count + i;
      db[i] = i;
    }
  }
  for (int i = 0; i < count; i++) {
    int64_t sa = a->size[da[i]], sb = b->size[db[i]];
    if (sa == sb) continue;
    if (sa != 1 && sb != 1)
      return amp__fail(
          AMP_E_SHAPE,
          "dimension %d of input %s has size %lld, dimension %d of other %s has size %lld; they are summed "
          "over together",
          da[i] + 1, SHAPE_OF(a), LL(sa), db[i] + 1, SHAPE_OF(b), LL(sb));
    if (sa == 1) b = amp__op_sum(b, 1, &db[i], true);
    else a = amp__op_sum(a, 1, &da[i], true);
    if (!a || !b) return amp__err();
  }
  return contract(call, a, b, count, da, db);
}

int amp__comp_inner(amp_call *call)
{
  amp_tensor *a = call->in[0], *b = call->in[1];
  int status = amp__want_dtype(a, b);
  if (status < 0) return status;
  if (a->ndim == 0 || b->ndim == 0) return amp__result(call, 0, OP2(mul, a, b));
  int da = a->ndim - 1, db = b->ndim - 1;
  if (a->size[da] != b->size[db])
    return amp__fail(AMP_E_SHAPE, "input %s and other %s differ in their last dimension (%lld and %lld)", SHAPE_OF(a),
                     SHAPE_OF(b), LL(a->size[da]), LL(b->size[db]));
  return contract(call, a, b, 1, &da, &db);
}

/* Dimension dim of a becomes dim and 1 x, of b 1 x and dim; the pairs of the product join. */
int amp__comp_kron(amp_call *call)
{
  amp_tensor *t[2] = { call->in[0], call->in[1] };
  int count = t[0]->ndim > t[1]->ndim ? t[0]->ndim : t[1]->ndim;
  int64_t size[AMP_MAX_DIM], whole[AMP_MAX_DIM];
  if (2 * count > AMP_MAX_DIM)
    return amp__fail(AMP_E_SHAPE, "kron takes up to %d dimensions, got %s and %s", AMP_MAX_DIM / 2, SHAPE_OF(t[0]),
                     SHAPE_OF(t[1]));
  for (int dim = 0; dim < count; dim++) whole[dim] = 1;
  for (int i = 0; i < 2; i++) {
    for (int dim = 0; dim < count; dim++) {
      int at = dim - (count - t[i]->ndim);
      int64_t s = at < 0 ? 1 : t[i]->size[at];
      size[2 * dim + i] = s;
      size[2 * dim + 1 - i] = 1;
      whole[dim] *= s;
    }
    t[i] = amp__op_view(t[i], 2 * count, size);
  }
  if (!t[0] || !t[1]) return amp__err();
  if (count > 1 && t[0]->numel > 1
      && t[1]->numel > 1) { /* both repeated to whole rows, so that long runs are multiplied */
    int64_t cols[2] = { t[0]->size[2 * count - 2], t[1]->size[2 * count - 1] };
    for (int i = 0; i < 2; i++) {
      for (int dim = 0; dim < 2 * count; dim++)
        size[dim] = dim < 2 * count - 2 ? t[i]->size[dim] : cols[dim - (2 * count - 2)];
      t[i] = amp__op_contiguous(amp__op_expand(t[i], 2 * count, size));
    }
  }
  return amp__result(call, 0, amp__op_view(OP2(mul, t[0], t[1]), count, whole));
}

/* -- Bilinear -------------------------------------------------------------------------------- */

static int want_bilinear(const amp_call *call)
{
  const amp_tensor *input = call->in[0], *y = call->in[1], *weight = call->in[2], *bias = call->in[3];
  int status = amp__want_dims(call, 2, 3, "weight, out x in1 x in2");
  if (status < 0 || (status = amp__want_dtype(input, y)) < 0 || (status = amp__want_dtype(input, weight)) < 0
      || (status = amp__want_dtype(input, bias)) < 0)
    return status;
  for (int i = 0; i < 2; i++) {
    const amp_tensor *tensor = call->in[i];
    if (tensor->ndim == 0 || tensor->size[tensor->ndim - 1] != weight->size[1 + i])
      return amp__fail_arg(AMP_E_SHAPE, i + 1,
                           "input%d has shape %s, expected a last dimension of %lld (dimension %d of weight %s)", i + 1,
                           SHAPE_OF(tensor), LL(weight->size[1 + i]), 2 + i, SHAPE_OF(weight));
  }
  if (input->ndim != y->ndim || memcmp(input->size, y->size, sizeof *input->size * (size_t)(input->ndim - 1)) != 0)
    return amp__fail_arg(AMP_E_SHAPE, 2, "input1 %s and input2 %s differ in more than their last dimension",
                         SHAPE_OF(input), SHAPE_OF(y));
  if (bias && (bias->ndim != 1 || bias->size[0] != weight->size[0]))
    return amp__fail_arg(AMP_E_SHAPE, 4, "bias has shape %s, expected %lld (dimension 1 of weight %s)", SHAPE_OF(bias),
                         LL(weight->size[0]), SHAPE_OF(weight));
  return 0;
}

/* Through the products of all pairs, or through the products with the first input: whichever is smaller. */
int amp__comp_bilinear(amp_call *call)
{
  static const int turn[3] = { 1, 0, 2 };
  int status = want_bilinear(call), dtype = call->in[0]->dtype;
  if (status < 0) return status;
  amp_tensor *input = wide(call->in[0]), *y = wide(call->in[1]), *weight = wide(call->in[2]), *bias = wide(call->in[3]),
             *r;
  if (!input || !y || !weight || (call->in[3] && !bias)) return amp__err();
  int count = input->ndim;
  int64_t out = weight->size[0], in1 = weight->size[1], in2 = weight->size[2],
          rows = amp__count(count - 1, input->size), size[AMP_MAX_DIM];
  input = matrix(input, rows, in1);
  y = matrix(y, rows, in2);
  if (in1 <= out) {
    amp_tensor *inputs[3] = { matrix(OP2(mul, amp__op_unsqueeze(input, 2), amp__op_unsqueeze(y, 1)), rows, in1 * in2),
                              matrix(weight, out, in1 * in2), bias };
    r = amp__op(AMP_OP_linear, NULL, 3, inputs);
  } else {
    int64_t cube[3] = { rows, out, in2 };
    r = amp__op_view(OP2(matmul, input, matrix(permuted(weight, 3, turn), in1, out * in2)), 3, cube);
    r = matrix(OP2(matmul, r, amp__op_unsqueeze(y, 2)), rows, out);
    if (bias) r = OP2(add, r, bias);
  }
  memcpy(size, call->in[0]->size, sizeof size);
  size[count - 1] = out;
  return amp__result(call, 0, amp__op_cast(amp__op_view(r, count, size), dtype));
}
