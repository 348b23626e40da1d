/*
** observe/observe.c: what ran, for how long, and where the first Inf or NaN came from.
**
** Ops nest: a composite's parts, an autocast's casts, a derivative's products.
** An open span is a frame on the C stack, linked to the one it runs in; closed,
** it goes to a buffer that Lua reads after each call (inner spans come first).
** So backward is seen like the rest, and nothing ever calls back.
**
** The one test an op makes for it when off is the test for an interrupt: both
** are bits of S->interrupt. Looking at values is quiet: its own ops are not seen.
**
** An infinity that was put there is no anomaly: one that a number or an
** attribute brought in, and a negative one that came with an operand (a mask).
*/
#include <math.h>
#include <stdlib.h>
#include "dispatch/op_builder.h"
#include "autograd/tape.h"

enum { MOST = 1 << 18 }; /* spans that wait at most, 40 MB */

struct amp_watch {
  amp_observer observer;
  amp_frame *top;
  int cap;
  bool quiet;
  const void *optimizer; /* whose steps are counted */
};

/* -- On and off -------------------------------------------------------------- */

amp_observer *amp_observe(amp_state *state, int flags)
{
  AMP_ENTER(state);
  struct amp_watch *watch = state->priv->watch;
  if (watch == NULL) {
    if ((watch = calloc(1, sizeof *watch)) == NULL) {
      amp__nomem(sizeof *watch);
      return NULL;
    }
    state->priv->watch = watch;
  }
  if (flags > 0 && !watch->observer.flags) {
    amp_span *span = watch->observer.span;
    watch->observer = (amp_observer){ .span = span };
    watch->top = NULL;
    watch->optimizer = NULL;
  }
  if (flags >= 0) watch->observer.flags = flags;
  if (flags > 0) {
    __atomic_fetch_or(&state->interrupt, AMP_I_OBSERVE, __ATOMIC_RELAXED);
    state->attention |= AMP_A_OBSERVE;
  } else {
    __atomic_fetch_and(&state->interrupt, (uint8_t)~AMP_I_OBSERVE, __ATOMIC_RELAXED);
    state->attention &= ~AMP_A_OBSERVE;
    if (flags < 0) return &watch->observer;
    free(watch->observer.span);
    watch->observer.span = NULL;
    watch->observer.n = watch->cap = 0;
    watch->top = NULL;
  }
  return &watch->observer;
}

int64_t amp_observe_node(amp_state *state)
{
  AMP_ENTER(state);
  return amp__newest_node();
}

void amp__observe_free(amp_state *state)
{
  if (state->priv->watch) free(state->priv->watch->observer.span);
  free(state->priv->watch);
  state->priv->watch = NULL;
}

static void hook_step(const void *optimizer)
{
  struct amp_watch *watch = amp__S->priv->watch;
  if (watch->optimizer == NULL) watch->optimizer = optimizer;
  watch->observer.steps += watch->optimizer == optimizer;
}

/* -- Spans --------------------------------------------------------------------- */

static bool hook_begin(amp_frame *frame, int op, int flags, int64_t node)
{
  struct amp_watch *watch = amp__S->priv->watch;
  if (watch == NULL || watch->quiet) return false;
  amp_frame *outer = watch->top;
  frame->outer = outer;
  frame->op = op;
  frame->depth = outer ? outer->depth + 1 : 0;
  frame->flags = flags | (outer ? outer->flags & AMP_SP_BACKWARD : 0);
  frame->node = node ? node : outer ? outer->node : 0;
  frame->inside = 0;
  frame->bytes = 0;
  frame->operands = 0;
  watch->top = frame;
  frame->began = amp_clock();
  return true;
}

static amp_span *room(struct amp_watch *watch)
{
  if (watch->observer.n == watch->cap) {
    int cap = watch->cap ? watch->cap * 2 : 256;
    amp_span *p = cap <= MOST ? realloc(watch->observer.span, sizeof *p * (size_t)cap) : NULL;
    if (p == NULL) {
      watch->observer.lost++;
      return NULL;
    }
    watch->observer.span = p;
    watch->cap = cap;
  }
  return &watch->observer.span[watch->observer.n++];
}

/* Close a frame; NULL: no room for its span. */
static amp_span *close_frame(struct amp_watch *watch, amp_frame *frame, int status, int64_t own)
{
  double total = amp_clock() - frame->began;
  AMP_ASSERT(watch->top == NULL
             || watch->top == frame); /* spans close in the opposite order; none is open after a new start */
  watch->top = frame->outer;
  frame->bytes += own;
  if (frame->outer) {
    frame->outer->inside += total;
    frame->outer->bytes += frame->bytes;
  }
  if (!(watch->observer.flags & AMP_O_SPANS)) return NULL;
  amp_span *s = room(watch);
  if (s == NULL) return NULL;
  *s = (amp_span){ .op = frame->op,
                   .parent = frame->outer ? frame->outer->op : AMP_SPAN_NONE,
                   .flags = frame->flags | (status < 0 ? AMP_SP_FAILED : 0),
                   .depth = frame->depth,
                   .node = frame->node,
                   .total = total,
                   .self = total - frame->inside,
                   .bytes = frame->bytes,
                   .own = own };
  return s;
}

static void hook_end(amp_frame *frame, int status)
{
  struct amp_watch *watch = amp__S->priv->watch;
  if (watch && watch->top == frame) close_frame(watch, frame, status, 0);
}

/* -- Values ----------------------------------------------------------------------- */

static int kind_of(double v)
{
  return v != v ? AMP_V_NAN : v == INFINITY ? AMP_V_POSITIVE : v == -INFINITY ? AMP_V_NEGATIVE : 0;
}

/* enum amp_value_kind of a float tensor's elements; a look that finds nothing is a quick one */
static int kinds_of(amp_tensor *tensor)
{
  int kinds = 0;
  if (tensor == NULL || !amp__is_float(tensor->dtype) || tensor->numel == 0) return 0;
  if (tensor->device == AMP_CPU && amp__devices[AMP_CPU].check_scale) {
    float found = 0;
    if (amp__devices[AMP_CPU].check_scale(tensor, NULL, &found) == 0 && found == 0) return 0;
  }
  struct amp_watch *watch = amp__S->priv->watch;
  bool quiet = watch->quiet;
  watch->quiet = true;
  amp_tensor *here = amp__on_cpu(tensor);
  watch->quiet = quiet;
  if (here == NULL) return 0; /* no memory to look: nothing is said */
  int64_t index[AMP_MAX_DIM] = { 0 }, at = 0;
  for (int64_t i = 0; i < here->numel; i++) {
    kinds |= kind_of(amp__element(here, at));
    for (int dim = here->ndim - 1; dim >= 0; dim--) {
      at += here->stride[dim];
      if (++index[dim] < here->size[dim]) break;
      at -= index[dim] * here->stride[dim];
      index[dim] = 0;
    }
  }
  amp__free(here);
  return kinds;
}

/* Infinities that the call itself names: numbers, and attributes by their bits. */
static int named(const amp_op_desc *row, amp_tensor *const *inputs, int nin, const amp_slot *attrs)
{
  int kinds = 0;
  for (int i = 0; i < nin; i++)
    if (inputs[i] && (inputs[i]->flags & AMP_T_NUMBER)) kinds |= kind_of(amp__element(inputs[i], 0)) & ~AMP_V_NAN;
  for (int i = 0; attrs && i < row->info.nslot; i++) {
    if (attrs[i].f == INFINITY) kinds |= AMP_V_POSITIVE;
    if (attrs[i].f == -INFINITY) kinds |= AMP_V_NEGATIVE;
  }
  return kinds;
}

static amp_anomaly *found(struct amp_watch *watch, int op, int kinds, const amp_tensor *tensor)
{
  amp_anomaly *anomaly = &watch->observer.anomaly;
  memset(anomaly, 0, sizeof *anomaly);
  anomaly->kinds = kinds;
  anomaly->op = op;
  anomaly->dtype = tensor->dtype;
  anomaly->ndim = tensor->ndim;
  memcpy(anomaly->size, tensor->size, sizeof(int64_t) * tensor->ndim);
  anomaly->step = watch->observer.steps + 1;
  anomaly->scale = watch->observer.scale;
  return anomaly;
}

/* An op that the user called: are its results finite? before: bits of operands that were not, as far as they may be
** gone. */
static void check_results(struct amp_watch *watch, int op, unsigned flags, amp_tensor *const *inputs, int nin,
                          amp_tensor **out, const amp_slot *attrs, int before)
{
  const amp_op_desc *row = &amp__ops[op];
  if (watch->observer.anomaly.kinds || row->info.kind == 'V' || nin == 0) return;
  for (int i = 0; i < AMP_MAX_OUT; i++) {
    amp_tensor *tensor = i == 0 && (flags & AMP_INPLACE) ? inputs[0] : out ? out[i] : NULL;
    if (tensor == NULL || (i > 0 && (row->info.flags & AMP_F_AUX))) break;
    int bad = kinds_of(tensor);
    if (bad) bad &= ~named(row, inputs, nin, attrs ? attrs : row->defaults);
    if (!bad) continue;
    int operands = before & 1;
    int64_t leaf = 0;
    for (int k = 0; k < nin && k < 31; k++) {
      int was = k == 0 && (flags & AMP_INPLACE) ? before >> 1 : kinds_of(inputs[k]);
      if (was == 0) continue;
      operands |= 1 << k;
      bad &= ~(was & AMP_V_NEGATIVE);
      if (!leaf && (inputs[k]->flags & AMP_T_REQUIRES_GRAD)) leaf = inputs[k]->id;
    }
    if (!bad) continue;
    amp_anomaly *anomaly = found(watch, op, bad, tensor);
    anomaly->place = i + 1;
    anomaly->flags = flags & AMP_INPLACE ? AMP_SP_INPLACE : 0;
    anomaly->operands = operands;
    anomaly->noperand = nin;
    anomaly->leaf = leaf;
    return;
  }
}

/* The parameter to which edge i of node leads, through its cast if there is one. */
static int64_t leaf_of(const amp_node *node, int i)
{
  const amp_edge *e = &node->edge[i];
  while (e->leaf == NULL && e->node && e->node->nin == 1 && (e->node->flags & AMP_N_CAST)) e = &e->node->edge[0];
  return e->leaf ? e->leaf->id : 0;
}

/* Is the gradient of argument i finite where the incoming ones are divided by the scale? */
static bool finite_unscaled(struct amp_watch *watch, const amp_bwd *bwd, int i)
{
  amp_state *state = amp__S;
  amp_error err = state->err;
  amp_tensor **gin = calloc((size_t)bwd->nin, sizeof *gin);
  if (gin == NULL) return false;
  int mark = amp__pool_mark();
  amp_bwd c = *bwd;
  c.grad_in = gin;
  c.create_graph = false;
  amp__plain plain = amp__plain_begin();
  watch->quiet = true;
  bool ok = true;
  for (int k = 0; k < c.nout && k < AMP_MAX_OUT; k++)
    if (c.grad[k]) ok &= (c.grad[k] = OP_NUMBER(mul, c.grad[k], 1 / watch->observer.scale)) != NULL;
  ok = ok && amp__ops[bwd->node->op].bwd(&c) == 0 && gin[i];
  amp_tensor *g = !ok                                       ? NULL
                  : gin[i]->dtype == bwd->grad_in[i]->dtype ? gin[i]
                                                            : amp__op_cast(gin[i], bwd->grad_in[i]->dtype);
  ok = g && kinds_of(g) == 0;
  watch->quiet = false;
  amp__plain_end(plain);
  amp__pool_release(mark);
  free(gin);
  state->err = err;
  return ok;
}

/* Are a derivative's results looked at before they are sent on? */
static bool hook_each(void)
{
  struct amp_watch *watch = amp__S->priv->watch;
  return amp__observing() && watch && (watch->observer.flags & AMP_O_FINITE);
}

static void hook_gradients(const amp_bwd *bwd)
{
  struct amp_watch *watch = amp__S->priv->watch;
  if (watch == NULL || watch->quiet || !(watch->observer.flags & AMP_O_FINITE) || watch->observer.anomaly.kinds) return;
  for (int i = 0; i < bwd->nin; i++) {
    int bad = kinds_of(bwd->grad_in[i]);
    if (!bad) continue;
    amp_anomaly *anomaly = found(watch, bwd->node->op, bad, bwd->grad_in[i]);
    anomaly->flags = AMP_SP_BACKWARD;
    anomaly->place = i + 1;
    anomaly->node = bwd->node->seq;
    anomaly->noperand = bwd->nout;
    for (int k = 0; k < bwd->nout && k < AMP_MAX_OUT; k++)
      if (kinds_of(bwd->grad[k])) anomaly->operands |= 1 << k;
    anomaly->leaf = leaf_of(bwd->node, i);
    if (!anomaly->operands && watch->observer.scale > 1 && !(bwd->node->flags & AMP_N_LUA))
      anomaly->overflow = finite_unscaled(watch, bwd, i);
    return;
  }
}

/* -- Ops ------------------------------------------------------------------------------ */

static void note_sizes(amp_span *s, amp_tensor *const *inputs, int nin)
{
  for (int i = 0; i < 3 && i < nin; i++) {
    if (inputs[i] == NULL) continue;
    s->ndim[i] = inputs[i]->ndim < 5 ? inputs[i]->ndim : 5;
    for (int dim = 0; dim < s->ndim[i]; dim++)
      s->size[5 * i + dim] = inputs[i]->size[dim] > INT32_MAX ? INT32_MAX : (int32_t)inputs[i]->size[dim];
  }
}

static int hook_op(int op, unsigned flags, amp_tensor *const *inputs, int nin, amp_tensor **out, const amp_slot *attrs)
{
  struct amp_watch *watch = amp__S->priv->watch;
  const amp_op_desc *row = &amp__ops[op];
  amp_frame frame;
  int kind = (flags & AMP_INPLACE ? AMP_SP_INPLACE : 0)
             | (row->info.kind == 'V'   ? AMP_SP_VIEW
                : row->info.kind == 'C' ? AMP_SP_COMPOSITE
                                        : 0);
  if (!hook_begin(&frame, op, kind, 0)) return amp__dispatch_op(op, flags, inputs, nin, out, attrs);
  /* casts inside another op are autocast's, as is the copy that fills a weight's */
  if (frame.outer && frame.outer->op >= 0 && !(frame.outer->flags & AMP_SP_NODE)
      && (amp__row_is(row, AMP_R_CAST)
          || (amp__row_is(row, AMP_R_TRANSFER) && nin == 2 && inputs[0] && inputs[1]
              && inputs[0]->dtype != inputs[1]->dtype)))
    frame.flags |= AMP_SP_CAST;
  bool look = (watch->observer.flags & AMP_O_FINITE) && frame.depth == 0;
  int was = look && (flags & AMP_INPLACE) && nin > 0 ? kinds_of(inputs[0]) : 0;
  int status = amp__dispatch_op(op, flags, inputs, nin, out, attrs);
  int64_t own = 0;
  if (status == 0 && out && !flags && !(kind & (AMP_SP_VIEW | AMP_SP_COMPOSITE)))
    for (int i = 0; i < AMP_MAX_OUT && out[i]; i++) own += (int64_t)out[i]->storage->bytes;
  amp_tensor *first = flags & AMP_INPLACE ? inputs[0] : status == 0 && out ? out[0] : NULL;
  if ((watch->observer.flags & AMP_O_SYNC) && status == 0 && first && first->device != AMP_CPU
      && amp__devices[first->device].sync)
    amp__devices[first->device].sync(first->device_index);
  amp_span *s = close_frame(watch, &frame, status, own);
  if (s) {
    if (first) s->dtype = first->dtype;
    note_sizes(s, inputs, nin);
  }
  if (look && status == 0) check_results(watch, op, flags, inputs, nin, out, attrs, was << 1 | (was != 0));
  return status;
}

void amp__observe_install(void)
{
  amp__hooks.observe_begin = hook_begin;
  amp__hooks.observe_end = hook_end;
  amp__hooks.observe_op = hook_op;
  amp__hooks.observe_each = hook_each;
  amp__hooks.observe_gradients = hook_gradients;
  amp__hooks.observe_step = hook_step;
}
