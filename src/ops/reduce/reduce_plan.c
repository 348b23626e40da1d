/*
** ops/reduce/reduce_plan.c: the geometry of reductions (ops/reduce/reduce.h): which dimensions
** are kept and which reduced, in what order memory is walked, where a run of
** results and an element of the reduced index lie. No arithmetic on elements.
*/
#include "ops/reduce/reduce.h"

static int64_t mag(int64_t s) { return s < 0 ? -s : s; }

uint32_t amp__rmask(const amp_slot *dims)
{
  uint32_t m = 0;
  for (int i = 0; i < dims[0].i; i++) m |= 1u << dims[1 + i].i;
  return m;
}

/* A dimension goes to its place among `count` kept ones: innermost first. */
static void insert_kept(amp_rplan *plan, int count, int64_t size, int64_t in_stride, int64_t out_stride)
{
  int at = count;
  for (; at > 0 && in_stride != 0 && mag(plan->kept_in[at - 1]) > mag(in_stride); at--) {
    plan->kept_size[at] = plan->kept_size[at - 1];
    plan->kept_in[at] = plan->kept_in[at - 1];
    plan->kept_out[at] = plan->kept_out[at - 1];
  }
  plan->kept_size[at] = size;
  plan->kept_in[at] = in_stride;
  plan->kept_out[at] = out_stride;
}

static void insert_reduced(amp_rplan *plan, int count, int64_t size, int64_t in_stride)
{
  int at = count;
  for (; at > 0 && in_stride != 0 && mag(plan->reduced_in[at - 1]) > mag(in_stride); at--) {
    plan->reduced_size[at] = plan->reduced_size[at - 1];
    plan->reduced_in[at] = plan->reduced_in[at - 1];
  }
  plan->reduced_size[at] = size;
  plan->reduced_in[at] = in_stride;
}

/* Dimensions that one stride walks become one. How many are left */
static int merge_kept(amp_rplan *plan, int count)
{
  int last = 0;
  for (int i = 1; i < count; i++) {
    if (plan->kept_in[i] == plan->kept_in[last] * plan->kept_size[last]
        && plan->kept_out[i] == plan->kept_out[last] * plan->kept_size[last])
      plan->kept_size[last] *= plan->kept_size[i];
    else {
      last++;
      plan->kept_size[last] = plan->kept_size[i];
      plan->kept_in[last] = plan->kept_in[i];
      plan->kept_out[last] = plan->kept_out[i];
    }
  }
  return last + 1;
}

static int merge_reduced(amp_rplan *plan, int count)
{
  int last = 0;
  for (int i = 1; i < count; i++) {
    if (plan->reduced_in[i] == plan->reduced_in[last] * plan->reduced_size[last])
      plan->reduced_size[last] *= plan->reduced_size[i];
    else {
      last++;
      plan->reduced_size[last] = plan->reduced_size[i];
      plan->reduced_in[last] = plan->reduced_in[i];
    }
  }
  return last + 1;
}

void amp__rplan(amp_rplan *plan, const amp_tensor *input, const amp_tensor *out, const int *outdim)
{
  int kept = 0, reduced = 0;
  plan->outputs = plan->reduced = 1;
  plan->input = amp__data(input);
  plan->out = amp__data(out);
  plan->dtype = input->dtype;
  plan->out_dtype = out->dtype;
  plan->item_size = amp__dtype_size[input->dtype];
  plan->out_item_size = amp__dtype_size[out->dtype];
  for (int dim = input->ndim - 1; dim >= 0; dim--) {
    int64_t size = input->size[dim];
    if (outdim[dim] >= 0) plan->outputs *= size;
    else plan->reduced *= size;
    if (size == 1) continue;
    if (outdim[dim] >= 0) insert_kept(plan, kept++, size, input->stride[dim], out->stride[outdim[dim]]);
    else insert_reduced(plan, reduced++, size, input->stride[dim]);
  }
  if (kept == 0) {
    plan->kept_size[0] = 1;
    plan->kept_in[0] = 0;
    plan->kept_out[0] = 1;
    kept = 1;
  }
  if (reduced == 0) {
    plan->reduced_size[0] = 1;
    plan->reduced_in[0] = 1;
    reduced = 1;
  }
  plan->kept_dims = merge_kept(plan, kept);
  plan->reduced_dims = merge_reduced(plan, reduced);
  /* along a very short reduced dimension, many results side by side are better too, though gathered */
  plan->columns = plan->kept_size[0] > 1 && plan->kept_in[0] != 0
                  && (mag(plan->kept_in[0]) < mag(plan->reduced_in[0]) || plan->reduced_in[0] == 0 || plan->reduced <= 1
                      || (plan->reduced < 12 && plan->kept_size[0] >= 64));
  plan->per_row = (plan->kept_size[0] + AMP_CHUNK - 1) / AMP_CHUNK;
  plan->blocks = plan->outputs == 0 ? 0 : plan->outputs / plan->kept_size[0] * plan->per_row;
}

void amp__rplan_mask(amp_rplan *plan, const amp_tensor *input, const amp_tensor *out, uint32_t mask)
{
  int outdim[AMP_MAX_DIM], at = 0;
  bool keep = out->ndim == input->ndim;
  for (int dim = 0; dim < input->ndim; dim++) {
    outdim[dim] = mask >> dim & 1 ? -1 : at;
    if (keep || !(mask >> dim & 1)) at++;
  }
  amp__rplan(plan, input, out, outdim);
}

void amp__rblock(const amp_rplan *plan, int64_t b, amp_rblock *x)
{
  int64_t row = b / plan->per_row, first = b % plan->per_row * AMP_CHUNK, i = first * plan->kept_in[0],
          o = first * plan->kept_out[0];
  x->count = (int)(plan->kept_size[0] - first < AMP_CHUNK ? plan->kept_size[0] - first : AMP_CHUNK);
  AMP_ASSERT(x->count > 0 && x->count <= AMP_CHUNK);
  for (int dim = 1; dim < plan->kept_dims; dim++) {
    int64_t k = row % plan->kept_size[dim];
    row /= plan->kept_size[dim];
    i += k * plan->kept_in[dim];
    o += k * plan->kept_out[dim];
  }
  x->from = plan->input + i * plan->item_size;
  x->kept = o;
  x->out = plan->out + o * plan->out_item_size;
}

void amp__rseek(const amp_rplan *plan, amp_rpos *pos, int64_t at)
{
  pos->offset = 0;
  if (at == 0) { /* no divisions at the start of short rows */
    for (int dim = 0; dim < plan->reduced_dims; dim++) pos->index[dim] = 0;
    return;
  }
  for (int dim = 0; dim < plan->reduced_dims; dim++) {
    pos->index[dim] = dim == plan->reduced_dims - 1 ? at : at % plan->reduced_size[dim];
    at /= plan->reduced_size[dim];
    pos->offset += pos->index[dim] * plan->reduced_in[dim];
  }
}

void amp__rnext(const amp_rplan *plan, amp_rpos *pos, int64_t count)
{
  pos->index[0] += count;
  pos->offset += count * plan->reduced_in[0];
  for (int dim = 0; dim + 1 < plan->reduced_dims && pos->index[dim] == plan->reduced_size[dim]; dim++) {
    pos->offset += plan->reduced_in[dim + 1] - plan->reduced_size[dim] * plan->reduced_in[dim];
    pos->index[dim] = 0;
    pos->index[dim + 1]++;
  }
}
