/*
** dispatch/dispatch.c: the one way any op runs.
**
**   check arguments -> autocast -> shape rule -> outputs -> history's memory
**                   -> kernel -> version bump (in place) -> history
**
** All that can lack memory comes before what changes anything, and what fails
** gives its random numbers back: a failed op can be run again as if it had not
** been tried. A kernel keeps the same order: scratch first, then its writes.
** A composite row runs its parts through here again, with autocast off; a view
** row makes an alias instead of calling a kernel. The public amp_op* functions
** only unpack handles. No dtype is decided here but by the row's rule, and
** nothing below this file knows about autocast or the tape.
*/
#include <stdio.h>
#include <stdlib.h>
#include "dispatch/op_builder.h"

/* -- Errors ---------------------------------------------------------------- */

/* At the outermost op: name it and list what it was given. */
static int fail_outermost(amp_state *state, const amp_op_desc *row, unsigned flags, amp_tensor *const *inputs, int nin,
                          int status)
{
  amp_error *e = &state->err;
  size_t length = strlen(e->message);
  snprintf(e->op, sizeof e->op, "%s%s", row->info.name, flags & AMP_INPLACE ? "_" : "");
  int shown = 0;
  for (int i = 0; i < nin && length + 80 < sizeof e->message; i++) {
    if (inputs[i] == NULL) continue;
    if (shown == 4) {
      length += (size_t)snprintf(e->message + length, sizeof e->message - length, ", ...");
      break;
    }
    length += (size_t)snprintf(e->message + length, sizeof e->message - length, "%s%s", shown ? ", " : " (got ",
                               amp__tensor_str(inputs[i]));
    shown++;
  }
  if (shown && length + 2 < sizeof e->message) snprintf(e->message + length, sizeof e->message - length, ")");
  return status;
}

/* What a recurrent layer has to know on the host: how many sequences have each step. */
static bool stays_here(const amp_call *call, const amp_tensor *tensor)
{
  return amp__row_is(call->op, AMP_R_RECURRENT) && tensor->device == AMP_CPU && tensor->dtype == AMP_INT64;
}

/* Presence, dtype and device of every argument. Gives the or of their flags in *flags. */
static int check_args(const amp_call *call, uint32_t *flags)
{
  const amp_op_desc *row = call->op;
  uint32_t all = 0;
  int status = 0;
  const amp_tensor *first = NULL;
  for (int i = 0; i < call->nin; i++) {
    amp_tensor *tensor = call->in[i];
    if (tensor == NULL) {
      if (i < 8 && (row->required >> i & 1))
        return amp__fail_arg(AMP_E_ARGUMENT, i + 1, "argument %d: a tensor is expected, got none", i + 1);
      continue;
    }
    if (amp_unlikely(!(row->info.dtypes >> tensor->dtype & 1)) && (status = amp__other_dtype(call, i)) < 0)
      return status;
    if (!(tensor->flags & AMP_T_NUMBER)) {
      if (first == NULL) first = tensor;
      else if (amp_unlikely(tensor->device != first->device || tensor->device_index != first->device_index)
               && !(tensor->ndim == 0 && tensor->device == AMP_CPU && (row->info.flags & AMP_F_ELEMENTWISE))
               && !amp__row_is(row, AMP_R_TRANSFER) && !stays_here(call, tensor))
        return amp__fail_arg(AMP_E_DEVICE, i + 1,
                             "operands are on different devices: %s and %s; move one with :to(device)",
                             amp__tensor_str(first), amp__tensor_str(tensor));
      amp__refresh(tensor);
    }
    all |= tensor->flags;
  }
  if (amp_unlikely(call->nin < row->nrequired))
    return amp__fail(AMP_E_ARGUMENT, "%d tensors are expected, got %d", row->nrequired, call->nin);
  *flags = all;
  return 0;
}

/* -- In place and out= ------------------------------------------------------ */

static int kind_rank(int dtype) { return amp__has_gradient(dtype) ? 2 : dtype == AMP_BOOL ? 0 : 1; }

/* Do two places of tensor lie on one? By growing stride, each must go beyond all that the ones before reach. */
static bool repeats(const amp_tensor *tensor)
{
  int8_t order[AMP_MAX_DIM];
  int count = 0;
  int64_t reach = 0;
  if ((tensor->flags & (AMP_T_CONTIGUOUS | AMP_T_DENSE)) || tensor->numel == 0) return false;
  for (int i = 0; i < tensor->ndim; i++) {
    int j = count;
    if (tensor->size[i] == 1) continue;
    for (; j > 0 && tensor->stride[order[j - 1]] > tensor->stride[i]; j--) order[j] = order[j - 1];
    order[j] = (int8_t)i;
    count++;
  }
  for (int i = 0; i < count; i++) {
    if (tensor->stride[order[i]] <= reach) return true;
    reach += (tensor->size[order[i]] - 1) * tensor->stride[order[i]];
  }
  return false;
}

/* May the result (meta[0]) be written into tensor? */
static int check_receiver(const amp_call *call, const amp_tensor *tensor)
{
  const amp_meta *meta = &call->meta[0];
  if (amp_unlikely(meta->device != tensor->device || meta->device_index != tensor->device_index)
      && !amp__row_is(call->op, AMP_R_TRANSFER)) {
    if (meta->device == AMP_CPU)
      return amp__fail(AMP_E_DEVICE, "the result is on the cpu and can't be written into %s; move one with :to(device)",
                       amp__tensor_str(tensor));
    return amp__fail(AMP_E_DEVICE, "the result is on %s:%d and can't be written into %s; move one with :to(device)",
                     amp_device_name(meta->device), meta->device_index + 1, amp__tensor_str(tensor));
  }
  if (meta->ndim != tensor->ndim || memcmp(meta->size, tensor->size, sizeof(int64_t) * meta->ndim) != 0)
    return amp__fail(AMP_E_SHAPE, "the result has shape %s and can't be written into a tensor of shape %s",
                     amp__shape_str(meta->ndim, meta->size), amp__shape_str(tensor->ndim, tensor->size));
  if (kind_rank(meta->dtype) > kind_rank(tensor->dtype))
    return amp__fail(
        AMP_E_DTYPE,
        "the result is %s and can't be written into a tensor of dtype %s; use the form without _ or cast first",
        amp_dtype_name(meta->dtype), amp_dtype_name(tensor->dtype));
  for (int i = 0; i < tensor->ndim; i++)
    if (tensor->stride[i] == 0 && tensor->size[i] > 1)
      return amp__fail(
          AMP_E_SHAPE,
          "an expanded tensor (dimension %d repeats one element) can't be changed in place; use :clone() first", i + 1);
  if (amp_unlikely(repeats(tensor)))
    return amp__fail(AMP_E_SHAPE,
                     "a tensor of which several elements lie in one place (strides %s) can't be changed in place; use "
                     ":clone() first",
                     amp__shape_str(tensor->ndim, tensor->stride));
  return 0;
}

/* -- The path -------------------------------------------------------------- */

/* Of a composite's in-place form: what comes out has the receiver's shape and fits its dtype. */
static int check_result(const amp_call *call, const amp_tensor *tensor)
{
  const amp_tensor *y = call->out[0];
  if (!amp__same_size(tensor, y))
    return amp__fail(AMP_E_SHAPE, "the result has shape %s, the receiver %s", amp__shape_str(y->ndim, y->size),
                     amp__shape_str(tensor->ndim, tensor->size));
  if (amp__promote(tensor->dtype, y->dtype) != tensor->dtype)
    return amp__fail(AMP_E_DTYPE, "the result is %s, which the receiver's %s can't hold", amp_dtype_name(y->dtype),
                     amp_dtype_name(tensor->dtype));
  return 0;
}

static int run_front(amp_state *state, amp_call *call)
{
  if (amp_unlikely(call->op->front == NULL)) return amp__fail(AMP_E_UNSUPPORTED, "no implementation in this build");
  if (call->op->info.kind == 'V') {
    int status = call->op->front(call);
    if (status == 0 && state->grad_mode) status = amp__hooks.record_view(call);
    else if (status == 0 && (call->in[0]->flags & (AMP_T_REQUIRES_GRAD | AMP_T_HISTORY | AMP_T_UNRECORDED)))
      for (int i = 0; i < call->nout; i++) call->out[i]->flags |= AMP_T_UNRECORDED;
    return status;
  }
  amp__plain plain = amp__plain_record(state, state->grad_mode);
  int mark = amp__pool_mark();
  uint32_t lost = state->priv->lost;
  int status = call->op->front(call);
  if (amp_unlikely(state->priv->lost != lost)) status = amp__whole(lost, status);
  amp__pool_release(mark);
  amp__plain_end(plain);
  return status;
}

/* Where the kernel runs: the first real tensor's device; a creation's attribute says it in the meta. */
static amp_kernel_fn find_kernel(const amp_call *call)
{
  int dev = call->nout > 0 ? call->meta[0].device : AMP_CPU;
  for (int i = 0; i < call->nin; i++)
    if (call->in[i] && !(call->in[i]->flags & AMP_T_NUMBER) && call->in[i]->device != AMP_CPU) {
      dev = call->in[i]->device;
      break;
    }
  return amp__kernel(dev, call->id);
}

/* What recording call takes, before its kernel changes anything: an op that fails for want of memory is run again
** after a collection, and must find running statistics, receivers and the random generator as they were. A
** half_copy is no result. */
static int reserve(amp_call *call, amp_node **node)
{
  int nout = call->nout;
  if (amp_unlikely(call->half_copy)) call->nout = AMP_HALF_COPY;
  int status = amp__hooks.record_begin(call, node);
  call->nout = nout;
  return status;
}

static int run_kernel(amp_state *state, amp_call *call, uint32_t tracked, amp_tensor *receiver)
{
  int status;
  amp_rebase rebase = { NULL, NULL };
  amp_node *node = NULL;
  bool recording = state->grad_mode && tracked;
  if ((status = call->op->infer(call)) < 0) return status;
  AMP_ASSERT(call->nout >= 1 && call->nout <= AMP_MAX_OUT);
  amp_kernel_fn kernel = find_kernel(call);
  if (amp_unlikely(kernel == NULL))
    return amp__fail(AMP_E_UNSUPPORTED, "no kernel for device %s", amp_device_name(call->meta[0].device));
  if (receiver == NULL) {
    for (int i = 0; i < call->nout; i++) {
      const amp_meta *meta = &call->meta[i];
      call->out[i] = i && meta->strides == AMP_M_SHARED
                         ? amp__tensor_view(call->out[0], meta->ndim, meta->size, meta->stride, meta->room)
                         : amp__tensor_new(meta);
      if (call->out[i] == NULL) return state->err.code;
    }
    if (recording && call->op->bwd && (status = reserve(call, &node)) < 0) return status;
  } else {
    if ((status = check_receiver(call, receiver)) < 0) return status;
    if ((call->flags & AMP_OUT) && recording)
      return amp__fail(AMP_E_AUTOGRAD, "results written to `out` carry no gradient; run it inside amp.no_grad");
    AMP_ASSERT(receiver->refs > 0);
    call->out[0] = receiver;
    for (int i = 1; i < call->nout; i++)
      if ((call->out[i] = amp__tensor_new(&call->meta[i])) == NULL) return state->err.code;
    if (recording && (status = amp__hooks.rebase_begin(call, &rebase)) < 0) return status;
  }
  if (amp_unlikely(amp__capturing)) {
    for (int i = 0; i < call->nin; i++) amp__capture_note(call->in[i]);
    for (int i = 0; i < call->nout; i++) amp__capture_note(call->out[i]);
    if (state->priv->journal && (status = amp__hooks.journal_call(call, receiver)) < 0) goto unrun;
  }
  if (amp_unlikely(amp__streamed)) {
    for (int i = 0; i < call->nin; i++) amp__touch(call->in[i]);
    for (int i = 0; i < call->nout; i++) amp__touch(call->out[i]);
  }
  status = kernel(call);
unrun:
  if (receiver) {
    if (amp_likely(status != AMP_E_MEMORY))
      amp__bump(receiver); /* a kernel that lacks memory has written nothing yet */
    if (recording) amp__hooks.rebase_end(call, &rebase, status == 0);
  } else if (amp_unlikely(call->half_copy)) {
    amp_tensor *half_copy = call->out[AMP_HALF_COPY];
    call->out[AMP_HALF_COPY] = NULL;
    call->nout = AMP_HALF_COPY;
    if (node) amp__hooks.record_end(call, node, half_copy, status == 0);
    else amp__free(half_copy);
  } else if (node) amp__hooks.record_end(call, node, NULL, status == 0);
  return status;
}

#ifndef AMP_NO_AUTOCAST
/* How many inputs were replaced by casts, which are ours; kept apart so that the count stays in a register there. */
static __attribute__((noinline, cold)) int cast_inputs(amp_call *call, amp_tensor **owned)
{
  int n = 0, status = amp__hooks.autocast(call, owned, &n);
  if (status >= 0) return call->done ? -1 : n; /* -1: nothing is left to do */
  for (int i = 0; i < n; i++) amp__free(owned[i]);
  return status;
}
#endif

/* Bytes made of a mask are a mask. */
static __attribute__((noinline, cold)) void mark_masks(amp_call *call)
{
  for (int i = 0; i < AMP_MAX_OUT; i++)
    if (call->out[i] && call->out[i]->dtype == AMP_UINT8) call->out[i]->flags |= AMP_T_MASK;
}

/* Of an op that changes what it saves, in a composite: the receiver as it was, for the graph. How many copies, in
** owned. */
static __attribute__((noinline, cold)) int copy_receiver(amp_call *call, amp_tensor **owned)
{
  amp_tensor *copy[AMP_MAX_OUT];
  int status = amp__dispatch(AMP_OP_clone, 0, call->in, 1, copy, NULL);
  if (status < 0) return status;
  call->in[0] = owned[0] = copy[0];
  return 1;
}

/* A composite's in-place form: its result, copied into the receiver. */
static __attribute__((noinline, cold)) int copy_result(amp_call *call, amp_tensor *receiver)
{
  amp_tensor *pair[2] = { receiver, call->out[0] };
  int status = check_result(call, receiver);
  if (status == 0) status = amp__dispatch(AMP_OP_copy, AMP_INPLACE, pair, 2, NULL, NULL);
  amp__free(call->out[0]);
  call->out[0] = NULL;
  return status;
}

/* Does each element of the result depend on its own place of the arguments only? */
static bool own_place(const amp_op_desc *row, const amp_tensor *receiver)
{
  return (row->info.flags & AMP_F_ELEMENTWISE) || amp__row_is(row, AMP_R_TRANSFER)
         || (amp__row_is(row, AMP_R_OWN_PLACE_GPU) && receiver->device == AMP_CUDA);
}

/* Arguments that lie in the receiver's bytes are read from copies, but where an element's own place is all it needs.
** How many copies, in owned; on errors none. */
static __attribute__((noinline)) int copy_overlapping(amp_call *call, const amp_tensor *receiver, amp_tensor **owned)
{
  int copies = 0;
  for (int i = call->flags & AMP_INPLACE ? 1 : 0; i < call->nin; i++) {
    amp_tensor *tensor = call->in[i], *copy[AMP_MAX_OUT];
    if (tensor == NULL || tensor->storage != receiver->storage || !amp__may_overlap(tensor, receiver)
        || (own_place(call->op, receiver) && amp__same_place(tensor, receiver)))
      continue;
    int status = amp__dispatch(AMP_OP_clone, 0, &tensor, 1, copy, NULL);
    if (status < 0) {
      while (copies) amp__free(owned[--copies]);
      return status;
    }
    call->in[i] = owned[copies++] = copy[0];
  }
  return copies;
}

/* The call's own copy of what it was given; a list's memory is its own. */
static inline int call_begin(amp_call *call, int op, unsigned flags, amp_tensor *const *inputs, int nin,
                             const amp_slot *attrs)
{
  const amp_op_desc *row = call->op = &amp__ops[op];
  call->id = op;
  call->flags = flags;
  call->nin = nin;
  call->nout = 0;
  call->unsaved = 0;
  call->half_copy = call->done = false;
  call->in = call->in_store;
  call->attrs = call->attr_store;
  memset(call->out, 0, sizeof call->out);
  if (amp_unlikely(nin > AMP_MAX_IN)) { /* behind them is room for the casts of all */
    amp_tensor **list = malloc(sizeof *list * 2 * (size_t)nin);
    if (list == NULL) return amp__nomem(sizeof *list * 2 * (size_t)nin);
    call->in = list;
  }
  for (int i = 0; i < nin; i++) call->in[i] = inputs[i];
  for (int i = nin; i < row->info.nin && i < AMP_MAX_IN; i++) call->in_store[i] = NULL; /* optional ones at the end */
  const amp_slot *from = attrs ? attrs : row->defaults;
  if (row->info.nslot == 1) call->attr_store[0] = from[0]; /* most have none to two: quicker than a call */
  else if (row->info.nslot == 2) {
    call->attr_store[0] = from[0];
    call->attr_store[1] = from[1];
  } else if (row->info.nslot) memcpy(call->attr_store, from, sizeof(amp_slot) * (size_t)row->info.nslot);
  return 0;
}

/* Results to the caller; the receiver is his already. */
static inline void call_give(amp_call *call, amp_tensor **out, const amp_tensor *receiver)
{
  int first = 0;
  if (receiver) {
    first = 1;
    call->out[0] = NULL;
  }
  if (out)
    for (int i = first; i < AMP_MAX_OUT; i++) out[i] = call->out[i];
  else
    for (int i = first; i < AMP_MAX_OUT; i++) amp__free(call->out[i]);
}

/* One body, called by a jump: inlined twice, what it calls would not be inlined at all. */
__attribute__((noinline)) int amp__dispatch_op(int op, unsigned flags, amp_tensor *const *inputs, int nin,
                                               amp_tensor **out, const amp_slot *attrs)
{
  amp_state *state = amp__S;
  amp_op_desc *row = &amp__ops[op];
  amp_call call;
  uint32_t seen = 0;
  int status, nowned = 0;
  uint64_t random = state->rng_offset;
  amp_tensor *receiver = NULL, *small_owned[AMP_MAX_IN], **owned = small_owned;
  AMP_ASSERT(op >= 0 && op < AMP_OP_COUNT && nin >= 0);
  bool outermost = state->priv->op == NULL;
  if (outermost) state->priv->op = row->info.name;
  if ((status = call_begin(&call, op, flags, inputs, nin, attrs)) < 0) goto out;
  if (amp_unlikely(call.in != call.in_store)) owned = call.in + nin;
  if ((status = check_args(&call, &seen)) < 0) goto out;
#ifndef AMP_NO_AUTOCAST /* examples/bench/autocast_off.lua counts what this line costs when off */
  if (amp_unlikely(state->autocast_on) && flags == 0 && (nowned = cast_inputs(&call, owned)) < 0) goto not_owned;
#endif
  if (row->front) {
    if (amp_unlikely(flags) && state->grad_mode && (seen & (AMP_T_REQUIRES_GRAD | AMP_T_HISTORY))
        && (nowned = copy_receiver(&call, owned)) < 0)
      goto not_owned;
    status = run_front(state, &call);
    if (amp_unlikely(flags) && status == 0) {
      receiver = inputs[0];
      status = copy_result(&call, receiver);
    }
  } else {
    if (flags) {
      receiver = flags & AMP_INPLACE ? call.in[0] : out[0];
      if (flags & AMP_OUT) seen |= receiver->flags & (AMP_T_REQUIRES_GRAD | AMP_T_HISTORY);
      if ((nowned = copy_overlapping(&call, receiver, owned)) < 0) goto not_owned;
    }
    status = run_kernel(state, &call, seen & (AMP_T_REQUIRES_GRAD | AMP_T_HISTORY), receiver);
  }
  goto out;
not_owned: /* what the inputs were to be replaced by is missing */
  status = call.done ? 0 : nowned;
  nowned = 0;
out:
  if (amp_likely(status == 0)) {
    if (amp_unlikely(seen & AMP_T_MASK)) mark_masks(&call);
    call_give(&call, out, receiver);
  } else {
    state->rng_offset = random; /* what failed has drawn nothing */
    state->priv->lost += status == AMP_E_MEMORY;
    for (int i = 0; i < AMP_MAX_OUT; i++)
      if (call.out[i] && call.out[i] != receiver) amp__free(call.out[i]);
    if (outermost) fail_outermost(state, row, flags, inputs, nin, status);
  }
  for (int i = 0; i < nowned; i++) amp__free(owned[i]);
  if (amp_unlikely(call.in != call.in_store)) free(call.in);
  if (outermost) state->priv->op = NULL;
  return status;
}

/* Interrupted, recorded or observed. */
static __attribute__((noinline)) int dispatch_slow(int op, unsigned flags, amp_tensor *const *inputs, int nin,
                                                   amp_tensor **out, const amp_slot *attrs)
{
  amp_state *state = amp__S;
  if (__atomic_fetch_and(&state->interrupt, (uint8_t)~AMP_I_INTERRUPT, __ATOMIC_RELAXED) & AMP_I_INTERRUPT) {
    const char *outer = state->priv->op;
    if (!outer) state->priv->op = amp__ops[op].info.name;
    int status = amp__fail(AMP_E_INTERRUPTED, "interrupted");
    if (!outer) fail_outermost(state, &amp__ops[op], flags, inputs, nin, status);
    state->priv->op = outer;
    return status;
  }
  if (amp__tracing()) return amp__hooks.trace_op(op, flags, inputs, nin, out, attrs);
  if (amp__observing()) return amp__hooks.observe_op(op, flags, inputs, nin, out, attrs);
  return amp__dispatch_op(op, flags, inputs, nin, out, attrs);
}

int amp__dispatch(int op, unsigned flags, amp_tensor *const *inputs, int nin, amp_tensor **out, const amp_slot *attrs)
{
  if (amp_unlikely(amp__S->interrupt)) return dispatch_slow(op, flags, inputs, nin, out, attrs);
  return amp__dispatch_op(op, flags, inputs, nin, out, attrs);
}

/* A copy of the elements, in their layout where that is dense, without history. */
amp_tensor *amp__raw_clone(amp_tensor *tensor)
{
  amp_tensor *out[AMP_MAX_OUT] = { NULL };
  amp__plain plain = amp__plain_begin();
  /* no part of what is recorded as a graph */
  int status = (amp__tracing() ? amp__dispatch_op : amp__dispatch)(AMP_OP_clone, 0, &tensor, 1, out, NULL);
  amp__plain_end(plain);
  return status < 0 ? NULL : out[0];
}

/* -- Public calls ----------------------------------------------------------- */

static int released(int place)
{
  return amp__fail_arg(AMP_E_ARGUMENT, place, "argument %d is a tensor that was freed", place);
}

static int bad_op(int op) { return amp__fail(AMP_E_ARGUMENT, "there is no op number %d", op & 0xffff); }

static int give(amp_ref *const *o, amp_tensor **out, int flags)
{
  int first = flags & (AMP_INPLACE | AMP_OUT) ? 1 : 0;
  for (int i = first; i < AMP_MAX_OUT; i++) {
    if (i < 3 && o[i]) o[i]->t = out[i];
    else amp__free(out[i]);
  }
  return 0;
}

static int call(int op, amp_ref *const *o, amp_tensor *const *inputs, int count, const amp_slot *attrs)
{
  amp_tensor *out[AMP_MAX_OUT] = { NULL };
  unsigned flags = (unsigned)op & (AMP_INPLACE | AMP_OUT);
  int id = op & 0xffff;
  if (amp_unlikely(id >= AMP_OP_COUNT)) return bad_op(op);
  if (attrs && amp_unlikely(amp__check_attributes(&amp__ops[id], attrs) < 0)) {
    snprintf(amp__S->err.op, sizeof amp__S->err.op, "%s", amp__ops[id].info.name);
    return amp__S->err.code;
  }
  if (flags) {
    const amp_op_info *info = &amp__ops[id].info;
    if ((flags & AMP_INPLACE) && (!(info->flags & AMP_F_INPLACE) || count < 1))
      return amp__fail(AMP_E_ARGUMENT, "%s has no in-place form", info->name);
    if (flags & AMP_OUT) {
      if (o[0] == NULL || o[0]->t == NULL)
        return amp__fail(AMP_E_ARGUMENT, o[0] ? "out is a tensor that was freed" : "out is not a tensor");
      if (info->kind == 'V' || info->kind == 'C') return amp__fail(AMP_E_ARGUMENT, "%s takes no out", info->name);
      out[0] = o[0]->t;
    }
  }
  int status = amp__dispatch(id, flags, inputs, count, out, attrs);
  return status < 0 ? status : give(o, out, (int)flags);
}

/* amp_moved, with what nearly always decides it in line. */
static inline bool moved(const amp_state *state)
{
  return state->running && *state->running != state->owner && amp_moved(state);
}

int amp_op1(amp_state *state, int op, amp_ref *o1, const amp_ref *ref)
{
  amp_ref *o[3] = { o1, NULL, NULL };
  AMP_ENTER(state);
  if (amp_unlikely(moved(state))) return AMP_E_MOVED;
  if (amp_unlikely(ref == NULL || ref->t == NULL)) return released(1);
  return call(op, o, &ref->t, 1, NULL);
}

int amp_op2(amp_state *state, int op, amp_ref *o1, const amp_ref *ref, const amp_ref *b)
{
  amp_ref *o[3] = { o1, NULL, NULL };
  AMP_ENTER(state);
  if (amp_unlikely(moved(state))) return AMP_E_MOVED;
  if (amp_unlikely(ref == NULL || ref->t == NULL)) return released(1);
  if (amp_unlikely(b == NULL || b->t == NULL)) return released(2);
  amp_tensor *inputs[2] = { ref->t, b->t };
  return call(op, o, inputs, 2, NULL);
}

int amp_op2n(amp_state *state, int op, amp_ref *o1, const amp_ref *ref, double number, int number_first)
{
  amp_ref *o[3] = { o1, NULL, NULL };
  AMP_ENTER(state);
  if (amp_unlikely(moved(state))) return AMP_E_MOVED;
  if (amp_unlikely(ref == NULL || ref->t == NULL)) return released(number_first ? 2 : 1);
  amp_tensor *n = amp__number(number), *inputs[2] = { ref->t, n };
  if (n == NULL) return state->err.code;
  if (number_first) {
    inputs[0] = n;
    inputs[1] = ref->t;
  }
  int status = call(op, o, inputs, 2, NULL);
  amp__free(n);
  return status;
}

int amp_opx(amp_state *state, int op, amp_ref *o1, amp_ref *o2, amp_ref *o3, const amp_ref *ref, const amp_ref *b,
            const amp_ref *c, const amp_ref *d, const amp_ref *e, const amp_slot *attrs)
{
  amp_ref *o[3] = { o1, o2, o3 };
  const amp_ref *r[5] = { ref, b, c, d, e };
  amp_tensor *inputs[5];
  int count = 0;
  AMP_ENTER(state);
  if (amp_unlikely(moved(state))) return AMP_E_MOVED;
  for (int i = 0; i < 5; i++) {
    inputs[i] = NULL;
    if (r[i] == NULL) continue;
    if (amp_unlikely(r[i]->t == NULL)) return released(i + 1);
    inputs[i] = r[i]->t;
    count = i + 1;
  }
  int id = op & 0xffff;
  if (amp_unlikely(id >= AMP_OP_COUNT)) return bad_op(op);
  if (count < amp__ops[id].info.nin && amp__ops[id].info.nin <= 5 && !(amp__ops[id].info.flags & AMP_F_LIST))
    count = amp__ops[id].info.nin;
  return call(op, o, inputs, count, attrs);
}

int amp_opl(amp_state *state, int op, amp_ref *o1, amp_ref *o2, amp_ref *o3, amp_tensor *const *inputs, int count,
            const amp_slot *attrs)
{
  amp_ref *o[3] = { o1, o2, o3 };
  AMP_ENTER(state);
  if (amp_unlikely(moved(state))) return AMP_E_MOVED;
  int id = op & 0xffff; /* of a list nothing may be missing */
  if (amp_unlikely(id >= AMP_OP_COUNT)) return bad_op(op);
  int most = amp__ops[id].info.flags & AMP_F_LIST ? AMP_MAX_LIST : amp__ops[id].info.nin;
  if (count < 0 || count > most)
    return amp__fail(AMP_E_ARGUMENT, "%s takes up to %d tensors, got %d", amp__ops[id].info.name, most, count);
  if (amp__ops[id].info.flags & AMP_F_LIST)
    for (int i = 0; i < count; i++)
      if (inputs[i] == NULL) return released(i + 1);
  return call(op, o, inputs, count, attrs);
}
