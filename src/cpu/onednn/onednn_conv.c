/*
** onednn_conv.c: convolution and its two gradients by oneDNN, one function for the three:
** they differ in which of image, weight and result is made of the others.
*/
#include "core.h"
#include "onednn_entry.h"

static int64_t *key_tensor(int64_t *k, const amp_tensor *tensor)
{
  for (int i = 0; i < tensor->ndim; i++) {
    *k++ = tensor->size[i];
    *k++ = tensor->stride[i];
  }
  return k;
}

/* Kernels of one element over contiguous data: oneDNN's products beat its blocked kernels and their reorders
** (85 to 162 GFLOP/s in bfloat16). */
static bool planes(int kind, int type, const amp_tensor *src, const amp_tensor *w, const amp_tensor *dst,
                   const dnn_problem *q)
{
  for (int i = 0; i < src->ndim - 2; i++)
    if (w->size[2 + i] != 1 || q->stride[i] != 1 || q->pad_begin[i] != 0) return false;
  return (src->flags & AMP_T_CONTIGUOUS) && (dst->flags & AMP_T_CONTIGUOUS)
         && (kind != DNN_CONV_WEIGHT || type == (int)dnnl_bf16);
}

/* The result is dense; an operand only read need not be, but every element has its own place. */
static bool fit(const amp_tensor *tensor, bool result)
{
  if (tensor->flags & AMP_T_DENSE) return true;
  for (int i = 0; i < tensor->ndim; i++)
    if (tensor->size[i] > 1 && tensor->stride[i] < 1) return false;
  return !result;
}

/* Does each element of the kernel meet the image somewhere? Of one that doesn't, oneDNN leaves the gradient
** unwritten. */
static bool all_met(const amp_tensor *src, const amp_tensor *w, const amp_tensor *dst, const args_convolution *args)
{
  for (int i = 0, axis = 5 - src->ndim; i < src->ndim - 2; i++, axis++)
    for (int64_t t = 0; t < w->size[2 + i]; t++) {
      int64_t s = args->stride[axis], first = t * args->dilation[axis] - args->padding[axis],
              o = first < 0 ? (-first + s - 1) / s : 0;
      if (o >= dst->size[2 + i] || o * s + first >= src->size[2 + i]) return false;
    }
  return true;
}

typedef struct operands {
  int kind;                                   /* enum dnn_kind */
  amp_tensor *image, *weight, *bias, *result; /* of a convolution forward; bias may be NULL */
  amp_offer *offer;                           /* of a graph's run, or NULL */
  bool follow;                                /* add what it says is added, too */
  const args_convolution *args;               /* of three values the last ones count, one a spatial dimension */
} operands;

/* What the call's primitive depends on */
static void fill_key(const operands *operands, int threads, int64_t *key)
{
  int count = operands->image->ndim, type = dnn_type(operands->result);
  const int64_t *geometry = (const int64_t *)(const void *)operands->args;
  int64_t *p = key + 1;
  *p++ = operands->kind;
  *p++ = threads;
  *p++ = type * 64 + count * 8 + (operands->bias ? 1 + dnn_type(operands->bias) : 0);
  *p++ = operands->follow;
  p = key_tensor(p, operands->image);
  p = key_tensor(p, operands->weight);
  p = key_tensor(p, operands->result);
  for (int i = 5 - count; i < (int)(sizeof *operands->args / sizeof *geometry); i++) *p++ = geometry[i];
  key[0] = p - key;
}

/* finish: bias, where the primitive gives the gradient in the image as float32 sums and the bias is added afterwards */
static void make(dnn_entry *entry, const operands *operands, bool last, const amp_tensor *finish)
{
  const amp_tensor *src = operands->image, *w = operands->weight, *dst = operands->result, *bias = operands->bias;
  const args_convolution *args = operands->args;
  int count = src->ndim, spatial = count - 2, type = dnn_type(dst), sum = finish ? (int)dnnl_f32 : type;
  int64_t groups = args->groups, rows = w->size[0] / groups;
  int64_t size[6] = { groups, rows, w->size[1] }, stride[6] = { w->stride[0] * rows, w->stride[0], w->stride[1] };
  int from = groups > 1 ? 0 : 1, weight_dims = count + 1 - from;
  dnn_problem problem = { .kind = operands->kind }, user = { .kind = operands->kind };
  for (int i = 0; i < spatial; i++) {
    int axis = 3 - spatial + i;
    size[3 + i] = w->size[2 + i];
    stride[3 + i] = w->stride[2 + i];
    problem.stride[i] = args->stride[axis];
    problem.pad_begin[i] = args->padding[axis];
    problem.dilation[i] = args->dilation[axis] - 1;
    /* what the far side is padded with so that the sizes come out */
    problem.pad_end[i] = (dst->size[2 + i] - 1) * args->stride[axis] + (w->size[2 + i] - 1) * args->dilation[axis] + 1
                         - src->size[2 + i] - args->padding[axis];
  }
  user.src = dnn_md_strided(count, src->size, type, src->stride);
  user.dst = dnn_md_strided(count, dst->size, type, dst->stride);
  user.weight = dnn_md_strided(weight_dims, size + from, type, stride + from);
  problem.weight = dnn_md_any(weight_dims, size + from, type);
  /* channels last, and what is a product of planes: take it as it lies */
  bool lies = last || planes(operands->kind, type, src, w, dst, &problem);
  problem.src = lies ? dnn_md_strided(count, src->size, sum, src->stride) : dnn_md_any(count, src->size, sum);
  problem.dst = lies ? dnn_md_strided(count, dst->size, type, dst->stride) : dnn_md_any(count, dst->size, type);
  if (sum != type)
    problem.hint_src = lies ? dnn_md_strided(count, src->size, type, src->stride) : dnn_md_any(count, src->size, type);
  if (bias && !finish) {
    int64_t one = 1;
    user.bias = dnn_md_strided(1, bias->size, dnn_type(bias), &one);
    problem.bias = dnn_md_strided(1, bias->size, dnn_type(bias), &one);
  }
  if (operands->follow) problem.added = dnn_md_strided(count, dst->size, type, dst->stride);
  if (user.src && user.dst && user.weight && problem.src && problem.dst && problem.weight
      && (!bias || finish || (user.bias && problem.bias)))
    dnn_build(entry, &problem, &user, src, dst, finish);
  dnn_problem_free(&problem);
  dnn_problem_free(&user);
}

/* May the primitive add what comes after it? The result lies as the tensor does, and what is added as the result. */
static bool may_follow(const operands *operands, bool lies)
{
  const amp_tensor *dst = operands->result, *added = operands->offer ? operands->offer->added : NULL;
  return added != NULL && lies && added->dtype == dst->dtype && added->ndim == dst->ndim
         && memcmp(added->size, dst->size, sizeof *dst->size * dst->ndim) == 0
         && memcmp(added->stride, dst->stride, sizeof *dst->stride * dst->ndim) == 0;
}

/* One of image, weight and result is made of the others, as the kind says; false: not done. */
static bool convolve_as(const operands *operands)
{
  const amp_tensor *src = operands->image, *w = operands->weight, *dst = operands->result, *bias = operands->bias;
  int type = dnn_type(dst);
  int64_t key[DNN_KEY] = { 0 };
  dnn_cache *cache;
  if (type < 0 || src->dtype != dst->dtype || w->dtype != dst->dtype
      || (bias && (dnn_type(bias) < 0 || !(bias->flags & AMP_T_CONTIGUOUS)))
      || !fit(src, operands->kind == DNN_CONV_INPUT) || !fit(w, operands->kind == DNN_CONV_WEIGHT)
      || !fit(dst, operands->kind == DNN_CONV) || src->numel == 0 || dst->numel == 0 || w->numel == 0
      || (cache = dnn_table()) == NULL)
    return false;
  bool last = src->stride[1] == 1 && dst->stride[1] == 1 && src->size[1] > 1 && dst->size[1] > 1
              && (src->flags & dst->flags & AMP_T_DENSE);
  const amp_tensor *finish = operands->kind == DNN_CONV_INPUT ? bias : NULL;
  if (operands->kind == DNN_CONV_WEIGHT && !all_met(src, w, dst, operands->args)) return false;
  if (finish && !last && !(src->flags & AMP_T_CONTIGUOUS)) return false;
  int threads = dnn_threads_for(2.0 * (double)dst->numel * (double)(w->numel / w->size[0]));
  fill_key(operands, threads, key);
  size_t hash = dnn_hash(key);
  dnn_entry *entry = dnn_find(cache, key, hash);
  if (entry == NULL) {
    if ((entry = dnn_add(cache, key, hash)) == NULL) return false;
    entry->threads = threads;
    make(entry, operands, last, finish);
  }
  const amp_tensor *added = operands->follow ? operands->offer->added : NULL;
  void *data[DNN_OPERANDS]
      = { dnn_data(src), dnn_data(w), dnn_data(dst), bias ? dnn_data(bias) : NULL, added ? dnn_data(added) : NULL };
  return dnn_run(cache, entry, data, operands->offer);
}

/* The same, with what a graph's run says follows, or without */
static bool convolve(operands *operands)
{
  const amp_tensor *src = operands->image, *dst = operands->result;
  bool last = src->stride[1] == 1 && dst->stride[1] == 1;
  operands->follow = may_follow(operands, last);
  if (operands->follow && convolve_as(operands)) {
    operands->offer->done = true;
    return true;
  }
  operands->follow = false;
  return convolve_as(operands);
}

/* Contiguous data with few channels a group: the plain kernels, which need no other layout, take half the time for
** gradients, and for float32 with one channel a group forward too. */
static bool few(const amp_tensor *image, const amp_tensor *w)
{
  return w->size[1] <= 4 && (image->flags & AMP_T_CONTIGUOUS);
}

int dnn_convolution(amp_call *call)
{
  const amp_tensor *input = call->in[0];
  if (call->in[1]->size[1] == 1 && input->size[1] > 1 && input->dtype == AMP_FLOAT32 && few(input, call->in[1]))
    return dnn_plain[AMP_OP_convolution](call);
  operands operands = { .kind = DNN_CONV,
                        .image = call->in[0],
                        .weight = call->in[1],
                        .bias = call->nin > 2 ? call->in[2] : NULL,
                        .result = call->out[0],
                        .offer = dnn_offer(call->in[1]),
                        .args = AMP_ARGS(call, convolution) };
  return convolve(&operands) ? 0 : dnn_plain[AMP_OP_convolution](call);
}

int dnn_convolution_input(amp_call *call) /* grad, weight, bias */
{
  if (few(call->in[0], call->in[1])) return dnn_plain[AMP_OP_convolution_input](call);
  operands operands = { .kind = DNN_CONV_INPUT,
                        .image = call->out[0],
                        .weight = call->in[1],
                        .bias = call->nin > 2 ? call->in[2] : NULL,
                        .result = call->in[0],
                        .args = AMP_ARGS_FROM(AMP_ARGS(call, convolution_input), stride, convolution) };
  return convolve(&operands) ? 0 : dnn_plain[AMP_OP_convolution_input](call);
}

int dnn_convolution_weight(amp_call *call) /* grad, input */
{
  if (few(call->in[1], call->out[0])) return dnn_plain[AMP_OP_convolution_weight](call);
  operands operands = { .kind = DNN_CONV_WEIGHT,
                        .image = call->in[1],
                        .weight = call->out[0],
                        .result = call->in[0],
                        .args = AMP_ARGS_FROM(AMP_ARGS(call, convolution_weight), stride, convolution) };
  return convolve(&operands) ? 0 : dnn_plain[AMP_OP_convolution_weight](call);
}
