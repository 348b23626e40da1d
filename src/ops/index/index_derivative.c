/*
** ops/index/index_derivative.c: derivatives of indexing, of writing by indices, places or a mask. They
** come in pairs that are each other's derivative: index_select and index_add, gather and
** scatter_add, index and index_put. Index tensors carry no gradient.
*/
#include "autograd/derivative.h"

/* -- One dimension by a vector of indices ----------------------------------------- */

int amp__bwd_index_select(amp_bwd *bwd)
{
  int dim = (int)AMP_ARGS(bwd, index_select)->dim;
  return INPUT_GRAD(bwd, 0,
                    amp__op_to_input(bwd, 0, amp__op_into_zeros(bwd, AMP_OP_index_add, dim, INPUT(bwd, 1), GRAD(bwd))));
}

int amp__bwd_index_add(amp_bwd *bwd)
{
  const args_index_add *args = AMP_ARGS(bwd, index_add);
  int status = 0;
  if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, GRAD(bwd)));
  if (status == 0 && NEEDS(bwd, 2)) {
    amp_tensor *inputs[2] = { GRAD(bwd), INPUT(bwd, 1) },
               *rows = amp__op_dim(AMP_OP_index_select, (int)args->dim, 2, inputs);
    status = INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, args->alpha == 1 ? rows : OP_NUMBER(mul, rows, args->alpha)));
  }
  return status;
}

static amp_tensor *zero_rows(amp_bwd *bwd, int64_t dim, amp_tensor *index)
{
  amp_tensor *inputs[2] = { GRAD(bwd), index };
  return amp__op_dim(AMP_OP_index_fill, (int)dim, 2, inputs); /* value 0 */
}

int amp__bwd_index_fill(amp_bwd *bwd)
{
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, zero_rows(bwd, AMP_ARGS(bwd, index_fill)->dim, INPUT(bwd, 1))));
}

int amp__bwd_index_copy(amp_bwd *bwd)
{
  int64_t dim = AMP_ARGS(bwd, index_copy)->dim;
  int status = 0;
  if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, zero_rows(bwd, dim, INPUT(bwd, 1))));
  if (status == 0 && NEEDS(bwd, 2)) {
    amp_tensor *inputs[2] = { GRAD(bwd), INPUT(bwd, 1) };
    status = INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, amp__op_dim(AMP_OP_index_select, (int)dim, 2, inputs)));
  }
  return status;
}

/* -- Element by element along a dimension ------------------------------------------- */

int amp__bwd_gather(amp_bwd *bwd)
{
  int dim = (int)AMP_ARGS(bwd, gather)->dim;
  return INPUT_GRAD(
      bwd, 0, amp__op_to_input(bwd, 0, amp__op_into_zeros(bwd, AMP_OP_scatter_add, dim, INPUT(bwd, 1), GRAD(bwd))));
}

static amp_tensor *at_index(int dim, amp_tensor *tensor, amp_tensor *index)
{
  amp_tensor *inputs[2] = { tensor, index };
  return amp__op_dim(AMP_OP_gather, dim, 2, inputs);
}

/* t, a gradient of the part of src that the indices reach, as one of src: zeros elsewhere */
static amp_tensor *whole_src(amp_bwd *bwd, amp_tensor *t)
{
  const amp_shape *shape = SHAPE(bwd, 2);
  if (!t || shape->ndim != t->ndim || memcmp(shape->size, t->size, sizeof(int64_t) * t->ndim) == 0)
    return amp__op_to_input(bwd, 2, t);
  int64_t stride[AMP_MAX_DIM];
  amp__contiguous_strides(shape->ndim, shape->size, stride);
  amp_attrs attrs = amp__attrs();
  amp__attrs_shape(&attrs, shape);
  amp__attrs_list(&attrs, t->ndim, t->size);
  amp__attrs_list(&attrs, t->ndim, stride);
  amp__attrs_int(&attrs, 0);
  return amp__op_to_input(bwd, 2, amp__op(AMP_OP_as_strided_sum, &attrs, 1, &t));
}

/* The gradient of src: what lies at the indices. */
static amp_tensor *picked(amp_bwd *bwd, int dim, amp_tensor *index)
{
  return whole_src(bwd, at_index(dim, GRAD(bwd), index));
}

int amp__bwd_scatter(amp_bwd *bwd)
{
  int status = 0, dim = (int)AMP_ARGS(bwd, scatter)->dim;
  amp_tensor *index = INPUT(bwd, 1), *g = GRAD(bwd);
  OR_FAIL(index);
  if (NEEDS(bwd, 0)) {
    amp_tensor *zero = amp__op_full(0, g->dtype, g->device, g->device_index, index->ndim, index->size);
    amp_tensor *inputs[3] = { g, index, zero };
    status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__op_dim(AMP_OP_scatter, dim, 3, inputs)));
  }
  if (status == 0 && NEEDS(bwd, 2)) status = INPUT_GRAD(bwd, 2, picked(bwd, dim, index));
  return status;
}

int amp__bwd_scatter_add(amp_bwd *bwd)
{
  int status = 0, dim = (int)AMP_ARGS(bwd, scatter_add)->dim;
  if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, GRAD(bwd)));
  if (status == 0 && NEEDS(bwd, 2)) status = INPUT_GRAD(bwd, 2, picked(bwd, dim, INPUT(bwd, 1)));
  return status;
}

/* -- scatter_reduce ------------------------------------------------------------------------- */

static amp_tensor *full(amp_tensor *like, double value, int dtype)
{
  return like ? amp__op_full(value, dtype, like->device, like->device_index, like->ndim, like->size) : NULL;
}

static amp_tensor *zero_at(int dim, amp_tensor *tensor, amp_tensor *index)
{
  amp_tensor *inputs[3] = { tensor, index, amp__wrapped_number(0) };
  return amp__op_dim(AMP_OP_scatter, dim, 3, inputs);
}

static amp_tensor *scatter_sum(int dim, amp_tensor *tensor, amp_tensor *index, amp_tensor *src)
{
  amp_tensor *inputs[3] = { tensor, index, src };
  return amp__op_dim(AMP_OP_scatter_add, dim, 3, inputs);
}

static amp_tensor *scatter_product(int dim, amp_tensor *tensor, amp_tensor *index, amp_tensor *src)
{
  amp_tensor *inputs[3] = { tensor, index, src };
  amp_attrs attrs = amp__attrs();
  amp__attrs_dim(&attrs, dim);
  amp__attrs_int(&attrs, REDUCE_PROD);
  amp__attrs_int(&attrs, 1);
  return amp__op(AMP_OP_scatter_reduce, &attrs, 3, inputs);
}

/* Does tensor, on any device, have a zero? Waits. */
static int has_zero(amp_tensor *tensor, bool *yes)
{
  if (!tensor) return amp__err();
  amp_attrs attrs = amp__attrs();
  amp__attrs_no_list(&attrs);
  amp__attrs_int(&attrs, 0);
  amp_tensor *zero = OP_NUMBER(eq, tensor, 0), *any = zero ? amp__op(AMP_OP_any, &attrs, 1, &zero) : NULL,
             *cpu = any ? amp__on_cpu(any) : NULL;
  if (!cpu) return amp__err();
  amp__S->host_waits++;
  *yes = amp__element(cpu, 0) != 0;
  amp__free(cpu);
  return 0;
}

/* For each element of src the product of the others that go to its place. Once only where some are zero. */
static amp_tensor *other_factors(int dim, amp_tensor *index, amp_tensor *src, amp_tensor *ones)
{
  amp_tensor *zero = OP_NUMBER(eq, src, 0), *rest = amp__op_fill_where(zero, src, 1);
  amp_tensor *product = at_index(dim, scatter_product(dim, ones, index, rest), index);
  amp_tensor *zeros
      = at_index(dim, scatter_sum(dim, full(ones, 0, ones->dtype), index, amp__op_cast(zero, ones->dtype)), index);
  return amp__op_where(zero, amp__op_mask(OP_NUMBER(eq, zeros, 1), product),
                       amp__op_mask(OP_NUMBER(eq, zeros, 0), OP2(div, product, rest)));
}

int amp__bwd_scatter_reduce(amp_bwd *bwd)
{
  const args_scatter_reduce *args = AMP_ARGS(bwd, scatter_reduce);
  int status = 0, dim = (int)args->dim, how = (int)args->reduce,
      type = amp__is_half(GRAD(bwd)->dtype) ? AMP_FLOAT32 : GRAD(bwd)->dtype;
  bool include = args->include_self != 0;
  amp_tensor *index = INPUT(bwd, 1), *grad = amp__op_cast(GRAD(bwd), type), *input = NULL, *src = NULL, *self = grad,
             *to_src = grad, *n;
  OR_FAIL(index);
  OR_FAIL(grad);
  if (how != REDUCE_SUM) {
    OR_FAIL(src = INPUT(bwd, 2));
    OR_FAIL(input = INPUT(bwd, 0));
    for (int d = 0; d < index->ndim && src; d++)
      if (src->size[d] != index->size[d]) src = amp__op_narrow(src, d, 0, index->size[d]);
    src = amp__op_cast(src, type);
    input = amp__op_cast(input, type);
  }
  switch (how) {
  case REDUCE_SUM: to_src = at_index(dim, grad, index); break;
  case REDUCE_MEAN:
    n = scatter_sum(dim, full(grad, include ? 1 : 0, type), index, full(index, 1, type));
    self = grad = OP2(div, grad, amp__op_fill_where(OP_NUMBER(eq, n, 0), n, 1));
    to_src = at_index(dim, grad, index);
    break;
  case REDUCE_AMAX:
  case REDUCE_AMIN: { /* shared among equals */
    amp_tensor *y = amp__op_cast(OUTPUT(bwd, 0), type), *is = amp__op_cast(OP2(eq, input, y), type),
               *are = amp__op_cast(OP2(eq, src, at_index(dim, y, index)), type);
    if (!include) is = zero_at(dim, is, index);
    n = scatter_sum(dim, is, index, are);
    grad = OP2(div, grad, amp__op_fill_where(OP_NUMBER(eq, n, 0), n, 1));
    self = include ? OP2(mul, is, grad) : grad;
    to_src = OP2(mul, are, at_index(dim, grad, index));
    break;
  }
  default: {
    amp_tensor *ones = full(grad, 1, type);
    OR_FAIL(ones);
    if (bwd->create_graph && NEEDS(bwd, 2)) {
      bool yes = false;
      if ((status = has_zero(src, &yes)) < 0) return status;
      if (yes)
        return amp__fail(AMP_E_UNSUPPORTED, "a product of src values of which one is 0 has a first derivative only");
    }
    if (include) self = OP2(mul, grad, scatter_product(dim, ones, index, src));
    if (NEEDS(bwd, 2))
      to_src = OP2(mul, at_index(dim, include ? OP2(mul, grad, input) : grad, index),
                   other_factors(dim, index, src, ones));
  }
  }
  if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, include ? self : zero_at(dim, self, index)));
  if (status == 0 && NEEDS(bwd, 2)) status = INPUT_GRAD(bwd, 2, whole_src(bwd, to_src));
  return status;
}

/* -- Several dimensions by index tensors ---------------------------------------------- */

/* op(first, [second,] the node's indices from `from` on); dims (a D attribute) count from 1 again */
static amp_tensor *by_indices(amp_bwd *bwd, int op, amp_tensor *first, amp_tensor *second, int from,
                              const amp_slot *dims, int accumulate, bool in_place)
{
  amp_tensor *inputs[2 + AMP_MAX_DIM];
  int n = 0;
  inputs[n++] = first;
  if (second) inputs[n++] = second;
  for (int i = from; i < bwd->nin && n < 2 + AMP_MAX_DIM; i++) inputs[n++] = INPUT(bwd, i);
  amp_attrs attrs = amp__attrs();
  amp__attrs_copy(&attrs, dims, 1 + AMP_MAX_DIM);
  for (int i = 0; i < dims->i; i++) attrs.v[1 + i].i++;
  if (accumulate >= 0) amp__attrs_int(&attrs, accumulate);
  for (int i = 0; i < n; i++)
    if (!inputs[i]) return NULL;
  if (!in_place) return amp__op(op, &attrs, n, inputs);
  return amp__dispatch(op, AMP_INPLACE, inputs, n, NULL, attrs.v) < 0 ? NULL : first;
}

int amp__bwd_index(amp_bwd *bwd)
{
  amp_tensor *zeros = amp__op_zeros_like_in(bwd, 0, GRAD(bwd)->dtype);
  return INPUT_GRAD(bwd, 0,
                    amp__op_to_input(bwd, 0,
                                     by_indices(bwd, AMP_OP_index_put, zeros, GRAD(bwd), 1,
                                                AMP_SLOT(AMP_ARGS(bwd, index)->dims), 1, !bwd->create_graph)));
}

int amp__bwd_index_put(amp_bwd *bwd)
{
  const args_index_put *args = AMP_ARGS(bwd, index_put);
  const amp_slot *dims = AMP_SLOT(args->dims);
  int status = 0;
  amp_tensor *grad = GRAD(bwd);
  if (NEEDS(bwd, 0)) {
    amp_tensor *kept = grad;
    if (!args->accumulate) {
      OR_FAIL(kept = amp__op_full(0, grad->dtype, grad->device, grad->device_index, 0, NULL));
      kept = by_indices(bwd, AMP_OP_index_put, grad, kept, 2, dims, 0, false);
    }
    status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, kept));
  }
  if (status == 0 && NEEDS(bwd, 1))
    status
        = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, by_indices(bwd, AMP_OP_index, grad, NULL, 2, dims, -1, false)));
  return status;
}

int amp__bwd_embedding(amp_bwd *bwd)
{
  const args_embedding *args = AMP_ARGS(bwd, embedding);
  const amp_shape *w = SHAPE(bwd, 1);
  amp_tensor *index = INPUT(bwd, 0);
  OR_FAIL(index);
  int64_t n = index->numel, rows[2] = { n, w->size[1] };
  amp_tensor *inputs[3] = { NULL, amp__op_view(index, 1, &n), amp__op_view(GRAD(bwd), 2, rows) }, *sum;
  if (AMP_GIVEN(args->padding_idx))
    inputs[2]
        = amp__op_mask_not(amp__op_unsqueeze(OP_NUMBER(eq, inputs[1], (double)(args->padding_idx + 1)), 1), inputs[2]);
  OR_FAIL(inputs[1] && inputs[2]);
  if ((sum = amp__grad_to_add(bwd, 1)) != NULL && sum->dtype != inputs[2]->dtype) {
    amp__grad_not_added(bwd, 1);
    sum = NULL;
  }
  if (sum) inputs[0] = sum; /* a table that is a product's weight, too */
  else OR_FAIL(inputs[0] = amp__op_zeros_like(bwd, 1));
  if (bwd->create_graph) return INPUT_GRAD(bwd, 1, amp__op_dim(AMP_OP_index_add, 0, 3, inputs));
  amp_attrs attrs = amp__attrs();
  amp__attrs_dim(&attrs, 0);
  amp__attrs_float(&attrs, 1);
  int status = amp__dispatch(AMP_OP_index_add, AMP_INPLACE, inputs, 3, NULL, attrs.v);
  if (inputs[0] != sum) return status < 0 ? status : INPUT_GRAD(bwd, 1, inputs[0]);
  if (status < 0) amp__grad_not_added(bwd, 1);
  return status;
}

/* -- Places and masks -------------------------------------------------------------------- */

int amp__bwd_put(amp_bwd *bwd)
{
  int status = 0;
  amp_tensor *grad = GRAD(bwd), *index = INPUT(bwd, 1);
  OR_FAIL(index);
  if (NEEDS(bwd, 0)) {
    amp_tensor *kept = grad;
    if (!AMP_ARGS(bwd, put)->accumulate) {
      amp_tensor *inputs[3]
          = { grad, index, amp__op_full(0, grad->dtype, grad->device, grad->device_index, index->ndim, index->size) };
      kept = amp__op(AMP_OP_put, NULL, 3, inputs);
    }
    status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, kept));
  }
  if (status == 0 && NEEDS(bwd, 2))
    status = INPUT_GRAD(
        bwd, 2,
        amp__op_to_input(bwd, 2, amp__op_view(OP2(take, grad, index), SHAPE(bwd, 2)->ndim, SHAPE(bwd, 2)->size)));
  return status;
}

/* The k-th element of the source went where the mask is true for the k-th time: that gradient is added at k, and 0 at
** some place for every element that the mask left alone. No size depends on the mask, so the host does not wait. */
static amp_tensor *at_source(amp_tensor *grad, amp_tensor *mask, const amp_shape *shape)
{
  int64_t n = amp__count(shape->ndim, shape->size), all = grad->numel;
  amp_tensor *to = amp__op_full(0, grad->dtype, grad->device, grad->device_index, 1, &n);
  if (n == 0 || all == 0 || !to) return amp__op_view(to, shape->ndim, shape->size);
  amp_tensor *ones = amp__op_full(1, AMP_INT64, grad->device, grad->device_index, grad->ndim, grad->size);
  amp_tensor *place = amp__op_view(amp__op_mask(mask, ones), 1, &all);
  place = amp__op_dim(AMP_OP_cumsum, 0, 1, &place);
  amp_attrs attrs = amp__attrs();
  amp__attrs_float(&attrs, 1);
  amp__attrs_float(&attrs, (double)n);
  place = place ? amp__op(AMP_OP_clamp, &attrs, 1, &place) : NULL;
  amp_tensor *inputs[3] = { to, place, amp__op_view(amp__op_mask(mask, grad), 1, &all) };
  return amp__op_view(place && inputs[2] ? amp__op_dim(AMP_OP_scatter_add, 0, 3, inputs) : NULL, shape->ndim,
                      shape->size);
}

int amp__bwd_masked_scatter(amp_bwd *bwd)
{
  int status = 0;
  amp_tensor *grad = GRAD(bwd), *mask = INPUT(bwd, 1);
  if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__op_mask_not(mask, grad)));
  if (status == 0 && NEEDS(bwd, 2)) {
    OR_FAIL(grad);
    OR_FAIL(mask);
    status = INPUT_GRAD(bwd, 2, amp__op_to_input(bwd, 2, at_source(grad, mask, SHAPE(bwd, 2))));
  }
  return status;
}
