/*
** ops/layout/rearrange_composite.c: composites that rearrange or repeat: stacks, roll, rot90,
** movedim, repeat_interleave, diagonals. Dimensions arrive counting from 1
** and are made to count from 0 at the start of each.
*/
#include "autograd/derivative.h"
#include "dispatch/shape_rules.h"

/* -- Stacks ------------------------------------------------------------------------------- */

/* t as vstack (rank 2) or dstack (3) see it: with that many dimensions; hstack: 1 */
static amp_tensor *at_least(amp_tensor *t, int rank)
{
  int64_t size[3] = { 1, 1, 1 };
  if (t->ndim >= rank) return t;
  if (rank == 3 && t->ndim == 2) {
    size[0] = t->size[0];
    size[1] = t->size[1];
  } else if (t->ndim == 1) size[rank == 1 ? 0 : 1] = t->size[0];
  return amp__op_view(t, rank, size);
}

static int joined(amp_call *call, int rank, int dim)
{
  amp_tensor *few[AMP_MAX_IN], **in = few, *out = NULL;
  amp_block *lent = NULL;
  int i;
  if (call->nin == 0) return amp__fail(AMP_E_ARGUMENT, "an empty list of tensors");
  if (call->nin > AMP_MAX_IN) {
    if ((lent = amp__block_new(AMP_CPU, 0, sizeof *in * (size_t)call->nin)) == NULL) return amp__err();
    in = lent->data;
  }
  for (i = 0; i < call->nin; i++)
    if ((in[i] = at_least(call->in[i], rank)) == NULL) break;
  if (i == call->nin) out = amp__op_dim(AMP_OP_cat, dim >= 0 ? dim : in[0]->ndim > 1, call->nin, in);
  if (lent) amp__block_free(lent);
  return amp__result(call, 0, out);
}

int amp__comp_hstack(amp_call *call) { return joined(call, 1, -1); }
int amp__comp_vstack(amp_call *call) { return joined(call, 2, 0); }
int amp__comp_dstack(amp_call *call) { return joined(call, 3, 2); }

/* -- Moving ------------------------------------------------------------------------------- */

static amp_tensor *copy_of(amp_tensor *tensor) { return OP1(clone, tensor); }

static amp_tensor *rolled(amp_tensor *tensor, int64_t shift, int dim)
{
  int64_t n = tensor ? tensor->size[dim] : 0;
  if (n == 0 || shift % n == 0) return tensor;
  shift = (shift % n + n) % n;
  amp_tensor *inputs[2] = { amp__op_narrow(tensor, dim, n - shift, shift), amp__op_narrow(tensor, dim, 0, n - shift) };
  return amp__op_dim(AMP_OP_cat, dim, 2, inputs);
}

int amp__comp_roll(amp_call *call)
{
  args_roll *args = (args_roll *)call->attrs;
  amp_tensor *input = call->in[0];
  int64_t n = args->shifts.n;
  if (!AMP_GIVEN(args->dims.n) || args->dims.n == 0) {
    if (n != 1)
      return amp__fail(AMP_E_ARGUMENT, "%lld shifts are given without dims; without dims one is expected", LL(n));
    amp_tensor *flat = rolled(amp__op_view(input, 1, &input->numel), args->shifts.at[0], 0);
    input = flat ? amp__op_view(flat, input->ndim, input->size) : NULL;
  } else {
    if (n != args->dims.n)
      return amp__fail(AMP_E_ARGUMENT, "%lld shifts are given for %lld dimensions", LL(n), LL(args->dims.n));
    for (int i = 0; i < n; i++) {
      int status = amp__row_dim(AMP_SLOT(args->dims.at[i]), input->ndim, "dimension");
      if (status < 0) return status;
    }
    for (int i = 0; i < n && input; i++) input = rolled(input, args->shifts.at[i], (int)args->dims.at[i]);
  }
  return amp__result(call, 0, input && input->storage == call->in[0]->storage ? copy_of(input) : input);
}

int amp__comp_rot90(amp_call *call)
{
  args_rot90 *args = (args_rot90 *)call->attrs;
  amp_tensor *input = call->in[0];
  int k = (int)((args->k % 4 + 4) % 4), first = 0, second = 1, status;
  if (AMP_GIVEN(args->dims.n) && args->dims.n != 0) {
    for (int i = 0; i < args->dims.n; i++)
      if ((status = amp__norm_dim(AMP_SLOT(args->dims.at[i]), input->ndim, "dimension")) < 0) return status;
    if (args->dims.n != 2) return amp__fail(AMP_E_ARGUMENT, "%lld dims are given; a turn has two", LL(args->dims.n));
    first = (int)args->dims.at[0];
    second = (int)args->dims.at[1];
    if (first == second) return amp__fail(AMP_E_ARGUMENT, "dimension %d is given twice", first + 1);
  } else if (input->ndim < 2)
    return amp__fail(AMP_E_SHAPE, "two dimensions or more are expected, got shape %s", SHAPE_OF(input));
  if (k == 0) input = copy_of(input);
  else if (k == 1) input = amp__op_transpose(amp__op_flip(input, second), first, second);
  else if (k == 2) input = amp__op_flip(amp__op_flip(input, first), second);
  else input = amp__op_transpose(amp__op_flip(input, first), first, second);
  return amp__result(call, 0, input);
}

int amp__comp_flipud(amp_call *call)
{
  if (call->in[0]->ndim < 1) return amp__fail(AMP_E_SHAPE, "a scalar has no dimension to reverse");
  return amp__result(call, 0, amp__op_flip(call->in[0], 0));
}

int amp__comp_fliplr(amp_call *call)
{
  if (call->in[0]->ndim < 2)
    return amp__fail(AMP_E_SHAPE, "two dimensions or more are expected, got shape %s", SHAPE_OF(call->in[0]));
  return amp__result(call, 0, amp__op_flip(call->in[0], 1));
}

int amp__comp_movedim(amp_call *call)
{
  amp_tensor *input = call->in[0];
  args_movedim *args = (args_movedim *)call->attrs;
  amp_slot *from = AMP_SLOT(args->source), *to = AMP_SLOT(args->destination);
  uint32_t taken, filled;
  int64_t order[AMP_MAX_DIM];
  int status;
  if (from->i == AMP_NONE || to->i == AMP_NONE)
    return amp__fail(AMP_E_ARGUMENT, "source and destination must be given");
  if (from->i != to->i)
    return amp__fail(AMP_E_ARGUMENT, "%lld source dimensions are given for %lld destinations", LL(from->i), LL(to->i));
  if ((status = amp__norm_dims(from, input->ndim, &taken)) < 0
      || (status = amp__norm_dims(to, input->ndim, &filled)) < 0)
    return status;
  for (int i = 1; i <= from->i; i++) order[to[i].i] = from[i].i + 1;
  for (int d = 0, next = 0; d < input->ndim; d++) {
    if (filled >> d & 1) continue;
    while (taken >> next & 1) next++;
    order[d] = ++next;
  }
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, input->ndim, order);
  return amp__result(call, 0, amp__op(AMP_OP_permute, &attrs, 1, &input));
}

/* -- Repeating --------------------------------------------------------------------------------- */

/* Indices (from 1) of n elements, each as often as counts (n of them, or one for all) says */
static amp_tensor *repeated_indices(amp_tensor *counts, int64_t n)
{
  amp_tensor *on_cpu = amp__on_cpu(counts), *result = NULL;
  int64_t total = 0;
  if (!on_cpu) return NULL;
  amp__S->host_waits += counts->device != AMP_CPU;
  const int64_t step = on_cpu->ndim && on_cpu->numel > 1 ? on_cpu->stride[0] : 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t m = (int64_t)amp__element(on_cpu, i * step);
    if (m < 0) {
      amp__fail(AMP_E_VALUE, "repeats: element %lld is %lld; a count must not be negative", LL(i + 1), LL(m));
      goto out;
    }
    if (__builtin_add_overflow(total, m, &total)) {
      amp__fail(AMP_E_SHAPE, "repeats make the tensor too large");
      goto out;
    }
  }
  if (amp__check_size(1, &total, AMP_INT64, NULL) < 0
      || (result = amp__tensor_make(AMP_INT64, AMP_CPU, 0, 1, &total)) == NULL)
    goto out;
  int64_t *p = AMP_DATA(int64_t, result);
  for (int64_t i = 0; i < n; i++)
    for (int64_t m = (int64_t)amp__element(on_cpu, i * step); m > 0; m--) *p++ = i + 1;
out:
  amp__free(on_cpu);
  return amp__pooled(result);
}

int amp__comp_repeat_interleave(amp_call *call)
{
  args_repeat_interleave *args = (args_repeat_interleave *)call->attrs;
  amp_tensor *input = call->in[0], *repeats = call->in[1];
  int64_t size[AMP_MAX_DIM];
  int dim = 0, status;
  if (!AMP_GIVEN(args->dim)) input = amp__op_view(input, 1, &input->numel);
  else if ((status = amp__norm_dim(AMP_SLOT(args->dim), input->ndim, "dim")) < 0) return status;
  else dim = (int)args->dim;
  if (!input) return amp__err();
  if (amp__is_number(repeats)) {
    double times = amp__element(repeats, 0);
    if (!(times >= 0) || times != (double)(int64_t)times)
      return amp__fail(AMP_E_VALUE, "repeats is %.14g, expected an integer of 0 or more", times);
    if (input->ndim == AMP_MAX_DIM)
      return amp__fail(AMP_E_SHAPE, "a number of repeats needs one more dimension than %d", AMP_MAX_DIM);
    for (int d = 0; d <= input->ndim; d++)
      size[d] = d <= dim ? input->size[d] : d == dim + 1 ? (int64_t)times : input->size[d - 1];
    if ((status = amp__check_size(input->ndim + 1, size, input->dtype, NULL)) < 0) return status;
    amp_tensor *v = amp__op_contiguous(amp__op_expand(amp__op_unsqueeze(input, dim + 1), input->ndim + 1, size));
    for (int d = 0; d < input->ndim; d++) size[d] = d == dim ? input->size[d] * (int64_t)times : input->size[d];
    v = amp__op_view(v, input->ndim, size);
    return amp__result(call, 0, v && v->storage == call->in[0]->storage ? copy_of(v) : v);
  }
  if ((status = amp__want_index(repeats, 2, "repeats")) < 0) return status;
  int64_t n = input->size[dim];
  if (repeats->ndim > 1 || (repeats->numel != 1 && repeats->numel != n))
    return amp__fail_arg(AMP_E_SHAPE, 2,
                         "repeats has shape %s, expected a vector of %lld counts, one for each element of dimension %d",
                         SHAPE_OF(repeats), LL(n), dim + 1);
  amp_tensor *inputs[2] = { input, repeated_indices(repeats, n) };
  if (inputs[1] && input->device != AMP_CPU) {
    amp_attrs attrs = amp__attrs();
    amp__attrs_int(&attrs, input->device * 256 + input->device_index);
    inputs[1] = amp__op(AMP_OP_to_device, &attrs, 1, &inputs[1]);
  }
  return amp__result(call, 0, amp__op_dim(AMP_OP_index_select, dim, 2, inputs));
}

int amp__comp_diag(amp_call *call)
{
  amp_tensor *input = call->in[0];
  amp_attrs attrs = amp__attrs();
  if (input->ndim < 1 || input->ndim > 2)
    return amp__fail(AMP_E_SHAPE, "a vector or a matrix is expected, got shape %s; use diagonal or diag_embed",
                     SHAPE_OF(input));
  amp__attrs_int(&attrs, AMP_ARGS(call, diag)->diagonal);
  amp__attrs_int(&attrs, 1);
  amp__attrs_int(&attrs, 2);
  if (input->ndim == 1) return amp__result(call, 0, amp__op(AMP_OP_diag_embed, &attrs, 1, &input));
  return amp__result(call, 0, copy_of(amp__op(AMP_OP_diagonal, &attrs, 1, &input)));
}
