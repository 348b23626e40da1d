/*
** amp_dispatch.c: the one way any op runs.
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
#include "amp_compose.h"

/* -- Errors ---------------------------------------------------------------- */

/* At the outermost op: name it and list what it was given. */
static int fail_outermost(amp_state *S, const amp_op_desc *d, unsigned flags, amp_tensor *const *in, int nin, int rc)
{
  amp_error *e = &S->err;
  size_t n = strlen(e->message);
  snprintf(e->op, sizeof e->op, "%s%s", d->info.name, flags & AMP_INPLACE ? "_" : "");
  int shown = 0;
  for (int i = 0; i < nin && n + 80 < sizeof e->message; i++) {
    if (in[i] == NULL) continue;
    if (shown == 4) { n += (size_t)snprintf(e->message + n, sizeof e->message - n, ", ..."); break; }
    n += (size_t)snprintf(e->message + n, sizeof e->message - n, "%s%s", shown ? ", " : " (got ", amp__tensor_str(in[i]));
    shown++;
  }
  if (shown && n + 2 < sizeof e->message) snprintf(e->message + n, sizeof e->message - n, ")");
  return rc;
}

static const char *dtype_set(uint32_t set)
{
  switch (set) {
  case AMP_DT_FLOAT: return "a float dtype";
  case AMP_DT_FLOAT | AMP_DT_INT: return "a float or integer dtype";
  case AMP_DT_INT: return "an integer dtype";
  case AMP_DT_BOOL: return "bool";
  default: return "another dtype";
  }
}

/* What a recurrent layer has to know on the host: how many sequences have each step. */
static bool stays_here(const amp_call *c, const amp_tensor *t)
{
  bool recurrent = c->id == AMP_OP_rnn || c->id == AMP_OP_lstm || c->id == AMP_OP_gru || c->id == AMP_OP_rnn_layer || c->id == AMP_OP_rnn_layer_backward;
  return recurrent && t->device == AMP_CPU && t->dtype == AMP_INT64;
}

/* Presence, dtype and device of every argument. Gives the or of their flags in *flags. */
static int check_args(const amp_call *c, uint32_t *flags)
{
  const amp_op_desc *d = c->op;
  uint32_t all = 0;
  const amp_tensor *first = NULL;
  for (int i = 0; i < c->nin; i++) {
    amp_tensor *t = c->in[i];
    if (t == NULL) {
      if (i < 8 && (d->required >> i & 1))
        return amp__fail_arg(AMP_E_ARGUMENT, i + 1, "argument %d: a tensor is expected, got none", i + 1);
      continue;
    }
    if (amp_unlikely(!(d->info.dtypes >> t->dtype & 1)))
      return amp__fail_arg(AMP_E_DTYPE, i + 1, "argument %d has dtype %s, expected %s", i + 1, amp_dtype_name(t->dtype), dtype_set(d->info.dtypes));
    if (!(t->flags & AMP_T_NUMBER)) {
      if (first == NULL) first = t;
      else if (amp_unlikely(t->device != first->device || t->device_index != first->device_index)
               && !(t->ndim == 0 && t->device == AMP_CPU && (d->info.flags & AMP_F_ELEMENTWISE)) && c->id != AMP_OP_copy && !stays_here(c, t))
        return amp__fail_arg(AMP_E_DEVICE, i + 1, "operands are on different devices: %s and %s; move one with :to(device)",
                             amp__tensor_str(first), amp__tensor_str(t));
      amp__refresh(t);
    }
    all |= t->flags;
  }
  if (amp_unlikely(c->nin < d->nrequired))
    return amp__fail(AMP_E_ARGUMENT, "%d tensors are expected, got %d", d->nrequired, c->nin);
  *flags = all;
  return 0;
}

/* -- In place and out= ------------------------------------------------------ */

static int kind_rank(int dtype) { return amp__is_float(dtype) ? 2 : dtype == AMP_BOOL ? 0 : 1; }

/* Do two places of t lie on one? By growing stride, each must go beyond all that the ones before reach. */
static bool repeats(const amp_tensor *t)
{
  int8_t order[AMP_MAX_DIM];
  int n = 0;
  int64_t reach = 0;
  if ((t->flags & (AMP_T_CONTIGUOUS | AMP_T_DENSE)) || t->numel == 0) return false;
  for (int i = 0; i < t->ndim; i++) {
    int j = n;
    if (t->size[i] == 1) continue;
    for (; j > 0 && t->stride[order[j - 1]] > t->stride[i]; j--) order[j] = order[j - 1];
    order[j] = (int8_t)i;
    n++;
  }
  for (int i = 0; i < n; i++) {
    if (t->stride[order[i]] <= reach) return true;
    reach += (t->size[order[i]] - 1) * t->stride[order[i]];
  }
  return false;
}

/* May the result (meta[0]) be written into t? */
static int check_receiver(const amp_call *c, const amp_tensor *t)
{
  const amp_meta *m = &c->meta[0];
  if (m->ndim != t->ndim || memcmp(m->size, t->size, sizeof(int64_t) * m->ndim) != 0)
    return amp__fail(AMP_E_SHAPE, "the result has shape %s and can't be written into a tensor of shape %s",
                     amp__shape_str(m->ndim, m->size), amp__shape_str(t->ndim, t->size));
  if (kind_rank(m->dtype) > kind_rank(t->dtype))
    return amp__fail(AMP_E_DTYPE, "the result is %s and can't be written into a tensor of dtype %s; use the form without _ or cast first",
                     amp_dtype_name(m->dtype), amp_dtype_name(t->dtype));
  for (int i = 0; i < t->ndim; i++)
    if (t->stride[i] == 0 && t->size[i] > 1)
      return amp__fail(AMP_E_SHAPE, "an expanded tensor (dimension %d repeats one element) can't be changed in place; use :clone() first", i + 1);
  if (amp_unlikely(repeats(t)))
    return amp__fail(AMP_E_SHAPE, "a tensor of which several elements lie in one place (strides %s) can't be changed in place; use :clone() first",
                     amp__shape_str(t->ndim, t->stride));
  return 0;
}

static bool same_view(const amp_tensor *a, const amp_tensor *b)
{
  return a->offset == b->offset && a->dtype == b->dtype && amp__same_size(a, b)
         && memcmp(a->stride, b->stride, sizeof(int64_t) * a->ndim) == 0;
}

/* Do two tensors of one storage share bytes? Bounds only: may say yes for interleaved views. */
static bool may_overlap(const amp_tensor *a, const amp_tensor *b)
{
  if (a->numel == 0 || b->numel == 0) return false;
  int64_t lo[2], hi[2];
  const amp_tensor *t[2] = { a, b };
  for (int k = 0; k < 2; k++) {
    int64_t es = amp__dtype_size[t[k]->dtype], last = t[k]->offset;
    for (int i = 0; i < t[k]->ndim; i++) last += (t[k]->size[i] - 1) * t[k]->stride[i];
    lo[k] = t[k]->offset * es;
    hi[k] = (last + 1) * es;
  }
  return lo[0] < hi[1] && lo[1] < hi[0];
}

/* -- The path -------------------------------------------------------------- */

/* Of a composite's in-place form: what comes out has the receiver's shape and fits its dtype. */
static int check_result(const amp_call *c)
{
  const amp_tensor *t = c->in[0], *y = c->out[0];
  if (!amp__same_size(t, y))
    return amp__fail(AMP_E_SHAPE, "the result has shape %s, the receiver %s", amp__shape_str(y->ndim, y->size), amp__shape_str(t->ndim, t->size));
  if (amp__promote(t->dtype, y->dtype) != t->dtype)
    return amp__fail(AMP_E_DTYPE, "the result is %s, which the receiver's %s can't hold", amp_dtype_name(y->dtype), amp_dtype_name(t->dtype));
  return 0;
}

static int run_front(amp_state *S, amp_call *c)
{
  if (amp_unlikely(c->op->front == NULL)) return amp__fail(AMP_E_UNSUPPORTED, "no implementation in this build");
  if (c->op->info.kind == 'V') {
    int rc = c->op->front(c);
    if (rc == 0 && S->grad_mode) rc = amp__record_view(c);
    else if (rc == 0 && (c->in[0]->flags & (AMP_T_REQUIRES_GRAD | AMP_T_HISTORY | AMP_T_UNRECORDED)))
      for (int i = 0; i < c->nout; i++) c->out[i]->flags |= AMP_T_UNRECORDED;
    return rc;
  }
  int32_t autocast_on = S->autocast_on;
  S->autocast_on = 0;
  int mark = amp__pool_mark();
  uint32_t lost = S->priv->lost;
  int rc = amp__whole(lost, c->op->front(c));
  amp__pool_release(mark);
  S->autocast_on = autocast_on;
  return rc;
}

/* Where the kernel runs: the first real tensor's device; a creation's attribute says it in the meta. */
static amp_kernel_fn find_kernel(const amp_call *c)
{
  int dev = c->nout > 0 ? c->meta[0].device : AMP_CPU;
  for (int i = 0; i < c->nin; i++)
    if (c->in[i] && !(c->in[i]->flags & AMP_T_NUMBER) && c->in[i]->device != AMP_CPU) { dev = c->in[i]->device; break; }
  return amp__kernel(dev, c->id);
}

/* What recording c takes, before its kernel changes anything: an op that fails for want of memory is run again by whoever
** collects, and must find running statistics, receivers and the random generator as they were. A twin is no result. */
static int reserve(amp_call *c, amp_node **node)
{
  int nout = c->nout;
  if (amp_unlikely(c->twin)) c->nout = AMP_TWIN;
  int rc = amp__record_begin(c, node);
  c->nout = nout;
  return rc;
}

static int run_kernel(amp_state *S, amp_call *c, uint32_t tracked, amp_tensor *given)
{
  int rc;
  amp_rebase rebase = { NULL, NULL };
  amp_node *node = NULL;
  bool recording = S->grad_mode && tracked;
  if ((rc = c->op->infer(c)) < 0) return rc;
  amp_kernel_fn kernel = find_kernel(c);
  if (amp_unlikely(kernel == NULL))
    return amp__fail(AMP_E_UNSUPPORTED, "no kernel for device %s", amp_device_name(c->meta[0].device));
  if (given == NULL) {
    for (int i = 0; i < c->nout; i++) {
      const amp_meta *m = &c->meta[i];
      c->out[i] = i && m->strides == AMP_M_SHARED ? amp__tensor_view(c->out[0], m->ndim, m->size, m->stride, m->room) : amp__tensor_new(m);
      if (c->out[i] == NULL) return S->err.code;
    }
    if (recording && c->op->bwd && (rc = reserve(c, &node)) < 0) return rc;
  } else {
    if ((rc = check_receiver(c, given)) < 0) return rc;
    if ((c->flags & AMP_OUT) && recording)
      return amp__fail(AMP_E_AUTOGRAD, "results written to `out` carry no gradient; run it inside amp.no_grad");
    c->out[0] = given;
    for (int i = 1; i < c->nout; i++)
      if ((c->out[i] = amp__tensor_new(&c->meta[i])) == NULL) return S->err.code;
    if (recording && (rc = amp__rebase_begin(c, &rebase)) < 0) return rc;
  }
  if (amp_unlikely(amp__capturing)) {
    for (int i = 0; i < c->nin; i++) amp__capture_note(c->in[i]);
    for (int i = 0; i < c->nout; i++) amp__capture_note(c->out[i]);
    if (S->priv->journal && (rc = amp__journal_call(c, given)) < 0) goto unrun;
  }
  if (amp_unlikely(amp__streamed)) {
    for (int i = 0; i < c->nin; i++) amp__touch(c->in[i]);
    for (int i = 0; i < c->nout; i++) amp__touch(c->out[i]);
  }
  rc = kernel(c);
unrun:
  if (given) {
    if (amp_likely(rc != AMP_E_MEMORY)) amp__bump(given); /* a kernel that lacks memory has written nothing yet */
    if (recording) amp__rebase_end(c, &rebase, rc == 0);
  } else if (amp_unlikely(c->twin)) {
    amp_tensor *twin = c->out[AMP_TWIN];
    c->out[AMP_TWIN] = NULL;
    c->nout = AMP_TWIN;
    if (node) amp__record_end(c, node, rc == 0);
    if (rc == 0 && c->out[0]->ag) c->out[0]->ag->twin = twin;
    else amp__free(twin);
  } else if (node) amp__record_end(c, node, rc == 0);
  return rc;
}

#ifndef AMP_NO_AUTOCAST
/* How many inputs were replaced by casts, which are ours; kept apart so that the count stays in a register there. */
static __attribute__((noinline, cold)) int cast_inputs(amp_call *c, amp_tensor **owned)
{
  int n = 0, rc = amp__autocast(c, owned, &n);
  if (rc >= 0) return n;
  for (int i = 0; i < n; i++) amp__free(owned[i]);
  return rc;
}
#endif

/* One body, called by a jump: inlined twice, what it calls would not be inlined at all. */
__attribute__((noinline)) int amp__dispatch_op(int op, unsigned flags, amp_tensor *const *in, int nin, amp_tensor **out, const amp_slot *attrs)
{
  amp_state *S = amp__S;
  amp_op_desc *d = &amp__ops[op];
  amp_call c;
  uint32_t seen = 0;
  int rc, nowned = 0;
  uint64_t random = S->rng_offset;
  amp_tensor *given = NULL, *small_owned[AMP_MAX_IN], **owned = small_owned;
  c.op = d; c.id = op; c.flags = flags; c.nin = nin; c.nout = 0; c.unsaved = 0; c.twin = false;
  c.in = c.in_; c.a = c.a_;
  memset(c.out, 0, sizeof c.out);
  bool outermost = S->priv->op == NULL;
  if (outermost) S->priv->op = d->info.name;
  if (amp_unlikely(nin > AMP_MAX_IN)) {
    c.in = malloc(sizeof *c.in * 2 * (size_t)nin);
    if (c.in == NULL) { rc = amp__nomem(sizeof *c.in * 2 * (size_t)nin); c.in = c.in_; goto out; }
    owned = c.in + nin;
  }
  for (int i = 0; i < nin; i++) c.in[i] = in[i];
  for (int i = nin; i < d->info.nin && i < AMP_MAX_IN; i++) c.in_[i] = NULL; /* optional ones at the end */
  memcpy(c.a_, attrs ? attrs : d->defaults, sizeof(amp_slot) * (size_t)d->info.nslot);
  if ((rc = check_args(&c, &seen)) < 0) goto out;
#ifndef AMP_NO_AUTOCAST /* examples/bench/autocast_off.lua counts what this line costs when off */
  if (amp_unlikely(S->autocast_on) && flags == 0 && (nowned = cast_inputs(&c, owned)) < 0) { rc = nowned; nowned = 0; goto out; }
#endif
  if (d->front) {
    if (amp_unlikely(flags) && S->grad_mode && (seen & (AMP_T_REQUIRES_GRAD | AMP_T_HISTORY))) { /* what it saves stays as it is */
      amp_tensor *copy[AMP_MAX_OUT];
      if ((rc = amp__dispatch(AMP_OP_clone, 0, c.in, 1, copy, NULL)) < 0) goto out;
      c.in[0] = owned[nowned++] = copy[0];
    }
    rc = run_front(S, &c);
    if (amp_unlikely(flags) && rc == 0) { /* a composite's in-place form: its result, copied into the receiver */
      amp_tensor *pair[2] = { in[0], c.out[0] };
      given = in[0];
      rc = check_result(&c);
      if (rc == 0) rc = amp__dispatch(AMP_OP_copy, AMP_INPLACE, pair, 2, NULL, NULL);
      amp__free(c.out[0]);
      c.out[0] = NULL;
    }
  } else {
    if (flags) {
      given = flags & AMP_INPLACE ? c.in[0] : out[0];
      if (flags & AMP_OUT) seen |= given->flags & (AMP_T_REQUIRES_GRAD | AMP_T_HISTORY);
      /* an input that lies in the receiver's bytes is read from a copy, but where each element depends on its own place only */
      bool own_place = (d->info.flags & AMP_F_ELEMENTWISE) != 0 || op == AMP_OP_copy || (op == AMP_OP_cross_entropy_backward && given->device == AMP_CUDA);
      for (int i = flags & AMP_INPLACE ? 1 : 0; i < nin; i++) {
        amp_tensor *t = c.in[i], *copy[AMP_MAX_OUT];
        if (t == NULL || t->storage != given->storage || !may_overlap(t, given) || (own_place && (t == given || same_view(t, given)))) continue;
        if ((rc = amp__dispatch(AMP_OP_clone, 0, &t, 1, copy, NULL)) < 0) goto out;
        c.in[i] = owned[nowned++] = copy[0];
      }
    }
    rc = run_kernel(S, &c, seen & (AMP_T_REQUIRES_GRAD | AMP_T_HISTORY), given);
  }
out:
  if (amp_likely(rc == 0)) {
    int first = 0;
    if (given) { first = 1; c.out[0] = NULL; }
    if (out) for (int i = first; i < AMP_MAX_OUT; i++) out[i] = c.out[i];
    else for (int i = first; i < AMP_MAX_OUT; i++) amp__free(c.out[i]);
  } else {
    S->rng_offset = random; /* what failed has drawn nothing */
    S->priv->lost += rc == AMP_E_MEMORY;
    for (int i = 0; i < AMP_MAX_OUT; i++)
      if (c.out[i] && c.out[i] != given) amp__free(c.out[i]);
    if (outermost) fail_outermost(S, d, flags, in, nin, rc);
  }
  for (int i = 0; i < nowned; i++) amp__free(owned[i]);
  if (amp_unlikely(c.in != c.in_)) free(c.in);
  if (outermost) S->priv->op = NULL;
  return rc;
}

/* Interrupted, or observed. */
static __attribute__((noinline)) int dispatch_slow(int op, unsigned flags, amp_tensor *const *in, int nin, amp_tensor **out, const amp_slot *attrs)
{
  amp_state *S = amp__S;
  if (__atomic_fetch_and(&S->interrupt, (uint8_t)~AMP_I_INTERRUPT, __ATOMIC_RELAXED) & AMP_I_INTERRUPT) {
    const char *outer = S->priv->op;
    if (!outer) S->priv->op = amp__ops[op].info.name;
    int rc = amp__fail(AMP_E_INTERRUPTED, "interrupted");
    if (!outer) fail_outermost(S, &amp__ops[op], flags, in, nin, rc);
    S->priv->op = outer;
    return rc;
  }
  return amp__observe_op(op, flags, in, nin, out, attrs);
}

int amp__dispatch(int op, unsigned flags, amp_tensor *const *in, int nin, amp_tensor **out, const amp_slot *attrs)
{
  if (amp_unlikely(amp__S->interrupt)) return dispatch_slow(op, flags, in, nin, out, attrs);
  return amp__dispatch_op(op, flags, in, nin, out, attrs);
}

/* A copy of t's elements, in t's layout where it is dense, without history. */
amp_tensor *amp__raw_clone(amp_tensor *t)
{
  amp_state *S = amp__S;
  int32_t grad_mode = S->grad_mode, autocast_on = S->autocast_on;
  amp_tensor *out[AMP_MAX_OUT] = { NULL };
  S->grad_mode = 0;
  S->autocast_on = 0;
  int rc = amp__dispatch(AMP_OP_clone, 0, &t, 1, out, NULL);
  S->grad_mode = grad_mode;
  S->autocast_on = autocast_on;
  return rc < 0 ? NULL : out[0];
}

/* -- Public calls ----------------------------------------------------------- */

static int released(int place)
{
  return amp__fail_arg(AMP_E_ARGUMENT, place, "argument %d is a tensor that was freed", place);
}

static int bad_op(int op)
{
  return amp__fail(AMP_E_ARGUMENT, "there is no op number %d", op & 0xffff);
}

static int give(amp_ref *const *o, amp_tensor **out, int flags)
{
  int first = flags & (AMP_INPLACE | AMP_OUT) ? 1 : 0;
  for (int i = first; i < AMP_MAX_OUT; i++) {
    if (i < 3 && o[i]) o[i]->t = out[i];
    else amp__free(out[i]);
  }
  return 0;
}

static int call(int op, amp_ref *const *o, amp_tensor *const *in, int n, const amp_slot *attrs)
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
    if ((flags & AMP_INPLACE) && (!(info->flags & AMP_F_INPLACE) || n < 1))
      return amp__fail(AMP_E_ARGUMENT, "%s has no in-place form", info->name);
    if (flags & AMP_OUT) {
      if (o[0] == NULL || o[0]->t == NULL) return amp__fail(AMP_E_ARGUMENT, o[0] ? "out is a tensor that was freed" : "out is not a tensor");
      if (info->kind == 'V' || info->kind == 'C') return amp__fail(AMP_E_ARGUMENT, "%s takes no out", info->name);
      out[0] = o[0]->t;
    }
  }
  int rc = amp__dispatch(id, flags, in, n, out, attrs);
  return rc < 0 ? rc : give(o, out, (int)flags);
}

/* Whether the state's fields are another coroutine's than the one that calls. */
static inline bool moved(const amp_state *S) { return S->running && *S->running != S->owner; }

int amp_op1(amp_state *S, int op, amp_ref *o1, const amp_ref *a)
{
  amp_ref *o[3] = { o1, NULL, NULL };
  AMP_ENTER(S);
  if (amp_unlikely(moved(S))) return AMP_E_MOVED;
  if (amp_unlikely(a == NULL || a->t == NULL)) return released(1);
  return call(op, o, &a->t, 1, NULL);
}

int amp_op2(amp_state *S, int op, amp_ref *o1, const amp_ref *a, const amp_ref *b)
{
  amp_ref *o[3] = { o1, NULL, NULL };
  AMP_ENTER(S);
  if (amp_unlikely(moved(S))) return AMP_E_MOVED;
  if (amp_unlikely(a == NULL || a->t == NULL)) return released(1);
  if (amp_unlikely(b == NULL || b->t == NULL)) return released(2);
  amp_tensor *in[2] = { a->t, b->t };
  return call(op, o, in, 2, NULL);
}

int amp_op2n(amp_state *S, int op, amp_ref *o1, const amp_ref *a, double number, int number_first)
{
  amp_ref *o[3] = { o1, NULL, NULL };
  AMP_ENTER(S);
  if (amp_unlikely(moved(S))) return AMP_E_MOVED;
  if (amp_unlikely(a == NULL || a->t == NULL)) return released(number_first ? 2 : 1);
  amp_tensor *n = amp__number(number), *in[2] = { a->t, n };
  if (n == NULL) return S->err.code;
  if (number_first) { in[0] = n; in[1] = a->t; }
  int rc = call(op, o, in, 2, NULL);
  amp__free(n);
  return rc;
}

int amp_opx(amp_state *S, int op, amp_ref *o1, amp_ref *o2, amp_ref *o3, const amp_ref *a, const amp_ref *b,
            const amp_ref *c, const amp_ref *d, const amp_ref *e, const amp_slot *attrs)
{
  amp_ref *o[3] = { o1, o2, o3 };
  const amp_ref *r[5] = { a, b, c, d, e };
  amp_tensor *in[5];
  int n = 0;
  AMP_ENTER(S);
  if (amp_unlikely(moved(S))) return AMP_E_MOVED;
  for (int i = 0; i < 5; i++) {
    in[i] = NULL;
    if (r[i] == NULL) continue;
    if (amp_unlikely(r[i]->t == NULL)) return released(i + 1);
    in[i] = r[i]->t;
    n = i + 1;
  }
  int id = op & 0xffff;
  if (amp_unlikely(id >= AMP_OP_COUNT)) return bad_op(op);
  if (n < amp__ops[id].info.nin && amp__ops[id].info.nin <= 5 && !(amp__ops[id].info.flags & AMP_F_LIST)) n = amp__ops[id].info.nin;
  return call(op, o, in, n, attrs);
}

int amp_opl(amp_state *S, int op, amp_ref *o1, amp_ref *o2, amp_ref *o3, amp_tensor *const *in, int n, const amp_slot *attrs)
{
  amp_ref *o[3] = { o1, o2, o3 };
  AMP_ENTER(S);
  if (amp_unlikely(moved(S))) return AMP_E_MOVED;
  int id = op & 0xffff; /* of a list nothing may be missing */
  if (amp_unlikely(id >= AMP_OP_COUNT)) return bad_op(op);
  int most = amp__ops[id].info.flags & AMP_F_LIST ? AMP_MAX_LIST : amp__ops[id].info.nin;
  if (n < 0 || n > most) return amp__fail(AMP_E_ARGUMENT, "%s takes up to %d tensors, got %d", amp__ops[id].info.name, most, n);
  if (amp__ops[id].info.flags & AMP_F_LIST)
    for (int i = 0; i < n; i++) if (in[i] == NULL) return released(i + 1);
  return call(op, o, in, n, attrs);
}
