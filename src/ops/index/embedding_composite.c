/*
** ops/index/embedding_composite.c: embedding_bag, rows of a table summed by bags. A bag is a
** row of a matrix of indices, or a run of a vector of them that begins at an
** offset; runs are told apart by a vector that says for each index which bag it
** is in. The row padding_idx takes no part, as if its indices were not there.
** Sums are the row embedding_sum's, whose derivative stands here too.
*/
#include <math.h>
#include "autograd/derivative.h"

#define SHAPE_OF(t) amp__shape_str((t)->ndim, (t)->size)

static int check(const amp_call *call, const args_embedding_bag *args)
{
  const amp_tensor *input = call->in[0], *weight = call->in[1], *offsets = call->in[2], *scales = call->in[3];
  if (!amp__is_int(input->dtype))
    return amp__fail_arg(AMP_E_DTYPE, 1, "input has dtype %s, expected an integer dtype: t:long() converts",
                         amp_dtype_name(input->dtype));
  if (!amp__is_float(weight->dtype))
    return amp__fail_arg(AMP_E_DTYPE, 2, "weight has dtype %s, expected a float dtype", amp_dtype_name(weight->dtype));
  if (weight->ndim != 2)
    return amp__fail_arg(AMP_E_SHAPE, 2, "weight has shape %s, expected a matrix (embeddings x size)",
                         SHAPE_OF(weight));
  if (input->ndim == 2 && offsets)
    return amp__fail_arg(AMP_E_ARGUMENT, 3, "offsets (%s) are for a vector of indices; input has shape %s, a bag a row",
                         SHAPE_OF(offsets), SHAPE_OF(input));
  if (input->ndim == 1 && !offsets)
    return amp__fail_arg(AMP_E_ARGUMENT, 3,
                         "input has shape %s; a vector of indices wants offsets, which say where bags start",
                         SHAPE_OF(input));
  if (input->ndim != 1 && input->ndim != 2)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected a vector or a matrix of indices",
                         SHAPE_OF(input));
  if (offsets && !amp__is_int(offsets->dtype))
    return amp__fail_arg(AMP_E_DTYPE, 3, "offsets have dtype %s, expected an integer dtype: t:long() converts",
                         amp_dtype_name(offsets->dtype));
  if (offsets && (offsets->ndim != 1 || (args->include_last_offset && offsets->size[0] == 0)))
    return amp__fail_arg(AMP_E_SHAPE, 3, "offsets have shape %s, expected a vector%s", SHAPE_OF(offsets),
                         args->include_last_offset ? " with at least the end" : "");
  if (!scales) return 0;
  if (args->mode != EMBEDDING_BAG_MODE_SUM)
    return amp__fail_arg(AMP_E_ARGUMENT, 4, "per_sample_weights are for mode 'sum', got '%s'",
                         args->mode == EMBEDDING_BAG_MODE_MEAN ? "mean" : "max");
  if (scales->dtype != weight->dtype)
    return amp__fail_arg(AMP_E_DTYPE, 4, "weight is %s and per_sample_weights %s; cast one of them",
                         amp_dtype_name(weight->dtype), amp_dtype_name(scales->dtype));
  return amp__same_size(input, scales)
             ? 0
             : amp__fail_arg(AMP_E_SHAPE, 4, "per_sample_weights have shape %s, expected input's %s", SHAPE_OF(scales),
                             SHAPE_OF(input));
}

/* Offsets rise from 1 to at most one past the end. Those on another device are trusted: the host does not wait for
** them. */
static int check_offsets(amp_tensor *offsets, int64_t n)
{
  if (offsets->device != AMP_CPU) return 0;
  amp_tensor *on_cpu = amp__on_cpu(offsets);
  int64_t before = 1;
  int status = 0;
  if (!on_cpu) return amp__err();
  for (int64_t i = 0; i < on_cpu->size[0] && status == 0; i++) {
    int64_t v = (int64_t)amp__element(on_cpu, i * on_cpu->stride[0]);
    if (i == 0 && v != 1)
      status = amp__fail_arg(AMP_E_INDEX, 3, "the first offset is %lld; the first bag starts at 1", (long long)v);
    else if (v < before || v > n + 1)
      status = amp__fail_arg(
          AMP_E_INDEX, 3,
          "offset %lld is %lld; offsets don't fall (the one before is %lld), and the last place is %lld",
          (long long)(i + 1), (long long)v, (long long)before, (long long)n);
    before = v;
  }
  amp__free(on_cpu);
  return status;
}

/* For each of n indices the number of its bag, from 1 */
static amp_tensor *bags(amp_tensor *offsets, int64_t n)
{
  int64_t one = offsets->size[0], whole = n + 1;
  amp_tensor *zeros = amp__op_full(0, AMP_INT64, offsets->device, offsets->device_index, 1, &whole),
             *ones = amp__op_full(1, AMP_INT64, offsets->device, offsets->device_index, 1, &one);
  amp_tensor *inputs[3] = { zeros, offsets, ones };
  amp_tensor *starts = amp__op_dim(AMP_OP_index_add, 0, 3, inputs);
  return amp__op_narrow(amp__op_dim(AMP_OP_cumsum, 0, 1, &starts), 0, 0, n);
}

/* Sums by bag of the weight's rows; a column of ones counts. */
static amp_tensor *sums(amp_tensor *index, amp_tensor *weight, amp_tensor *bag, amp_tensor *scale, int64_t count,
                        int64_t pad)
{
  amp_tensor *inputs[4] = { index, weight, bag, scale };
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, count);
  amp__attrs_int(&attrs, pad);
  return amp__op(AMP_OP_embedding_sum, &attrs, 4, inputs);
}

static amp_tensor *means(amp_tensor *index, amp_tensor *weight, amp_tensor *bag, int64_t count, int64_t each,
                         int64_t pad)
{
  amp_tensor *result = sums(index, weight, bag, NULL, count, pad);
  if (!result) return NULL;
  if (!bag && pad == AMP_NONE) return each > 1 ? OP_NUMBER(div, result, (double)each) : result;
  int64_t column[2] = { weight->size[0], 1 };
  amp_tensor *n = sums(index, amp__op_full(1, result->dtype, weight->device, weight->device_index, 2, column), bag,
                       NULL, count, pad);
  return OP2(div, result, OP2(maximum, n, amp__wrapped_number(1)));
}

/* Rows of padding are as small as can be; so is an empty bag, which becomes 0. */
static amp_tensor *maxima(amp_tensor *index, amp_tensor *weight, amp_tensor *bag, int64_t count, int64_t each,
                          int64_t pad)
{
  int64_t n = index->size[0], d = weight->size[1], cube[3] = { count, each, d }, flat[2] = { n, d },
          size[2] = { count, d }, dim = 2;
  int mid = 1;
  amp_tensor *inputs[2] = { index, weight }, *rows = amp__op(AMP_OP_embedding, NULL, 2, inputs), *result;
  if (pad != AMP_NONE)
    rows = amp__op_where(amp__op_unsqueeze(OP_NUMBER(ne, index, (double)pad), 1), rows, amp__wrapped_number(-INFINITY));
  if (!rows) return NULL;
  amp_attrs attrs = amp__attrs();
  if (bag) {
    amp_tensor *three[3] = { amp__op_full(-INFINITY, weight->dtype, weight->device, weight->device_index, 2, size),
                             amp__op_expand(amp__op_unsqueeze(bag, 1), 2, flat), rows };
    amp__attrs_int(&attrs, 1);
    amp__attrs_int(&attrs, REDUCE_AMAX);
    amp__attrs_int(&attrs, 1);
    result = amp__op(AMP_OP_scatter_reduce, &attrs, 3, three);
  } else {
    rows = amp__op_view(rows, 3, cube);
    if (each == 0) return amp__op_sum(rows, 1, &mid, false);
    amp__attrs_list(&attrs, 1, &dim);
    amp__attrs_int(&attrs, 0);
    result = amp__op(AMP_OP_amax, &attrs, 1, &rows);
  }
  return result ? amp__op_fill_where(OP_NUMBER(eq, amp__op_detach(result), -INFINITY), result, 0) : NULL;
}

int amp__comp_embedding_bag(amp_call *call)
{
  amp_tensor *input = call->in[0], *weight = call->in[1], *offsets = call->in[2], *scale = call->in[3], *bag = NULL,
             *result;
  const args_embedding_bag *args = AMP_ARGS(call, embedding_bag);
  int status = check(call, args);
  int64_t pad = args->padding_idx, mode = args->mode, n = input->numel;
  if (status < 0 || (offsets && (status = check_offsets(offsets, n)) < 0)) return status;
  int64_t nbag = offsets ? offsets->size[0] - (args->include_last_offset ? 1 : 0) : input->size[0],
          each = offsets ? 1 : input->size[1];
  if (pad != AMP_NONE && (pad == 0 || pad > weight->size[0] || pad < -weight->size[0]))
    return amp__fail(AMP_E_INDEX, "padding_idx %lld is out of range for %lld rows", (long long)pad,
                     (long long)weight->size[0]);
  if (pad != AMP_NONE && pad < 0) pad = weight->size[0] + pad + 1;
  bool more = offsets && args->include_last_offset
              && offsets->device
                     != AMP_CPU; /* the host does not know the end: what comes after it gets a bag too, dropped below */
  if (offsets && args->include_last_offset && !more) { /* the end: what comes after it is in no bag */
    n = (int64_t)amp__element(offsets, nbag * offsets->stride[0]) - 1;
    OR_FAIL(input = amp__op_narrow(input, 0, 0, n));
    if (scale) OR_FAIL(scale = amp__op_narrow(scale, 0, 0, n));
    OR_FAIL(offsets = amp__op_narrow(offsets, 0, 0, nbag));
  }
  input = amp__op_view(input, 1, &n);
  if (scale) scale = amp__op_view(scale, 1, &n);
  if (!input || (call->in[3] && !scale)) return amp__err();
  if (offsets) OR_FAIL(bag = bags(offsets, n));
  nbag += more;
  result = mode == EMBEDDING_BAG_MODE_SUM    ? sums(input, weight, bag, scale, nbag, pad)
           : mode == EMBEDDING_BAG_MODE_MEAN ? means(input, weight, bag, nbag, each, pad)
                                             : maxima(input, weight, bag, nbag, each, pad);
  if (more && result) result = amp__op_narrow(result, 0, 0, nbag - 1);
  return amp__result(call, 0, amp__op_cast(result, weight->dtype));
}

/* -- embedding_sum --------------------------------------------------------------------- */

/* out[bag] += scale * weight[index]: the gradient of a row is that of its bag */
int amp__bwd_embedding_sum(amp_bwd *bwd)
{
  amp_tensor *grad = GRAD(bwd), *index = INPUT(bwd, 0), *weight = INPUT(bwd, 1), *bag = NULL, *scale = NULL, *each;
  const amp_shape *shape = SHAPE(bwd, 0);
  int64_t n = amp__count(shape->ndim, shape->size), pad = AMP_ARGS(bwd, embedding_sum)->padding_idx;
  int status = 0, last = 1;
  OR_FAIL(index && weight);
  if (amp__has(bwd, 2)) OR_FAIL(bag = INPUT(bwd, 2));
  if (amp__has(bwd, 3)) OR_FAIL(scale = INPUT(bwd, 3));
  OR_FAIL(index = amp__op_view(index, 1, &n));
  if (bag) {
    amp_tensor *inputs[2] = { grad, amp__op_view(bag, 1, &n) };
    each = amp__op_dim(AMP_OP_index_select, 0, 2, inputs);
  } else {
    int64_t count = grad->size[0], cube[3] = { count, count ? n / count : 0, grad->size[1] },
            flat[2] = { n, grad->size[1] };
    each = amp__op_view(amp__op_expand(amp__op_unsqueeze(grad, 1), 3, cube), 2, flat);
  }
  if (pad != AMP_NONE) each = amp__op_mask_not(amp__op_unsqueeze(OP_NUMBER(eq, index, (double)pad), 1), each);
  OR_FAIL(each);
  if (NEEDS(bwd, 1)) {
    amp_tensor *inputs[3]
        = { amp__op_zeros_like_in(bwd, 1, each->dtype), index,
            scale ? OP2(mul, each, amp__op_unsqueeze(amp__op_cast(amp__op_view(scale, 1, &n), each->dtype), 1))
                  : each };
    status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, amp__op_dim(AMP_OP_index_add, 0, 3, inputs)));
  }
  if (status == 0 && NEEDS(bwd, 3)) {
    amp_tensor *inputs[2] = { index, weight },
               *rows = amp__op_cast(amp__op(AMP_OP_embedding, NULL, 2, inputs), each->dtype);
    amp_tensor *sums = amp__op_sum(OP2(mul, rows, each), 1, &last, false);
    status = INPUT_GRAD(
        bwd, 3, amp__op_to_input(bwd, 3, sums ? amp__op_view(sums, SHAPE(bwd, 3)->ndim, SHAPE(bwd, 3)->size) : NULL));
  }
  return status;
}
