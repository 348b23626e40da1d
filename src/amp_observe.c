/*
** amp_observe.c: what ran, for how long, and where the first Inf or NaN came from.
**
** Ops nest: a composite's parts, an autocast's casts, a derivative's products.
** An open span is a frame on the C stack, linked to the one it runs in; closed,
** it goes to a buffer that Lua reads after each call (inner spans come first).
** So backward is seen like the rest, and nothing ever calls back.
**
** The one test an op makes for it when off is the test for an interrupt: both
** are bits of S->interrupt. Looking at values is quiet: its own ops are not seen.
**
** An infinity that somebody put there is no anomaly: one that a number or an
** attribute brought in, and a negative one that came with an operand (a mask).
*/
#include <math.h>
#include <stdlib.h>
#include "amp_compose.h"
#include "amp_tape.h"

enum { MOST = 1 << 18 }; /* spans that wait at most, 40 MB */

struct amp_watch {
  amp_observer o;
  amp_frame *top;
  int cap;
  bool quiet;
  const void *optimizer; /* whose steps are counted */
};

/* -- On and off -------------------------------------------------------------- */

amp_observer *amp_observe(amp_state *S, int flags)
{
  AMP_ENTER(S);
  struct amp_watch *w = S->priv->watch;
  if (w == NULL) {
    if ((w = calloc(1, sizeof *w)) == NULL) { amp__nomem(sizeof *w); return NULL; }
    S->priv->watch = w;
  }
  if (flags > 0 && !w->o.flags) {
    amp_span *span = w->o.span;
    w->o = (amp_observer){ .span = span };
    w->top = NULL;
    w->optimizer = NULL;
  }
  if (flags >= 0) w->o.flags = flags;
  if (flags > 0) {
    __atomic_fetch_or(&S->interrupt, AMP_I_OBSERVE, __ATOMIC_RELAXED);
    S->attention |= AMP_A_OBSERVE;
  } else {
    __atomic_fetch_and(&S->interrupt, (uint8_t)~AMP_I_OBSERVE, __ATOMIC_RELAXED);
    S->attention &= ~AMP_A_OBSERVE;
    if (flags < 0) return &w->o;
    free(w->o.span);
    w->o.span = NULL;
    w->o.n = w->cap = 0;
    w->top = NULL;
  }
  return &w->o;
}

int64_t amp_observe_node(amp_state *S)
{
  AMP_ENTER(S);
  return amp__newest_node();
}

void amp__observe_free(amp_state *S)
{
  if (S->priv->watch) free(S->priv->watch->o.span);
  free(S->priv->watch);
  S->priv->watch = NULL;
}

void amp__observe_step(const void *optimizer)
{
  struct amp_watch *w = amp__S->priv->watch;
  if (w->optimizer == NULL) w->optimizer = optimizer;
  w->o.steps += w->optimizer == optimizer;
}

/* -- Spans --------------------------------------------------------------------- */

bool amp__observe_begin(amp_frame *f, int op, int flags, int64_t node)
{
  struct amp_watch *w = amp__S->priv->watch;
  if (w == NULL || w->quiet) return false;
  amp_frame *outer = w->top;
  f->outer = outer;
  f->op = op;
  f->depth = outer ? outer->depth + 1 : 0;
  f->flags = flags | (outer ? outer->flags & AMP_SP_BACKWARD : 0);
  f->node = node ? node : outer ? outer->node : 0;
  f->inside = 0;
  f->bytes = 0;
  f->operands = 0;
  w->top = f;
  f->began = amp_clock();
  return true;
}

static amp_span *room(struct amp_watch *w)
{
  if (w->o.n == w->cap) {
    int cap = w->cap ? w->cap * 2 : 256;
    amp_span *p = cap <= MOST ? realloc(w->o.span, sizeof *p * (size_t)cap) : NULL;
    if (p == NULL) { w->o.lost++; return NULL; }
    w->o.span = p;
    w->cap = cap;
  }
  return &w->o.span[w->o.n++];
}

/* Close a frame; NULL: no room for its span. */
static amp_span *close_frame(struct amp_watch *w, amp_frame *f, int rc, int64_t own)
{
  double total = amp_clock() - f->began;
  w->top = f->outer;
  f->bytes += own;
  if (f->outer) {
    f->outer->inside += total;
    f->outer->bytes += f->bytes;
  }
  if (!(w->o.flags & AMP_O_SPANS)) return NULL;
  amp_span *s = room(w);
  if (s == NULL) return NULL;
  *s = (amp_span){ .op = f->op, .parent = f->outer ? f->outer->op : AMP_SPAN_NONE, .flags = f->flags | (rc < 0 ? AMP_SP_FAILED : 0),
                   .depth = f->depth, .node = f->node, .total = total, .self = total - f->inside, .bytes = f->bytes, .own = own };
  return s;
}

void amp__observe_end(amp_frame *f, int rc)
{
  struct amp_watch *w = amp__S->priv->watch;
  if (w && w->top == f) close_frame(w, f, rc, 0);
}

/* -- Values ----------------------------------------------------------------------- */

static int kind_of(double v)
{
  return v != v ? AMP_V_NAN : v == INFINITY ? AMP_V_POSITIVE : v == -INFINITY ? AMP_V_NEGATIVE : 0;
}

/* enum amp_value_kind of a float tensor's elements; a look that finds nothing is a quick one */
static int kinds_of(amp_tensor *t)
{
  int kinds = 0;
  if (t == NULL || !amp__is_float(t->dtype) || t->numel == 0) return 0;
  if (t->device == AMP_CPU && amp__devices[AMP_CPU].check_scale) {
    float found = 0;
    if (amp__devices[AMP_CPU].check_scale(t, NULL, &found) == 0 && found == 0) return 0;
  }
  struct amp_watch *w = amp__S->priv->watch;
  bool quiet = w->quiet;
  w->quiet = true;
  amp_tensor *here = amp__on_cpu(t);
  w->quiet = quiet;
  if (here == NULL) return 0; /* no memory to look: nothing is said */
  int64_t index[AMP_MAX_DIM] = { 0 }, at = 0;
  for (int64_t i = 0; i < here->numel; i++) {
    kinds |= kind_of(amp__element(here, at));
    for (int d = here->ndim - 1; d >= 0; d--) {
      at += here->stride[d];
      if (++index[d] < here->size[d]) break;
      at -= index[d] * here->stride[d];
      index[d] = 0;
    }
  }
  amp__free(here);
  return kinds;
}

/* Infinities that the call itself names: numbers, and attributes by their bits. */
static int named(const amp_op_desc *d, amp_tensor *const *in, int nin, const amp_slot *a)
{
  int kinds = 0;
  for (int i = 0; i < nin; i++)
    if (in[i] && (in[i]->flags & AMP_T_NUMBER)) kinds |= kind_of(amp__element(in[i], 0)) & ~AMP_V_NAN;
  for (int i = 0; a && i < d->info.nslot; i++) {
    if (a[i].f == INFINITY) kinds |= AMP_V_POSITIVE;
    if (a[i].f == -INFINITY) kinds |= AMP_V_NEGATIVE;
  }
  return kinds;
}

static amp_anomaly *found(struct amp_watch *w, int op, int kinds, const amp_tensor *t)
{
  amp_anomaly *a = &w->o.anomaly;
  memset(a, 0, sizeof *a);
  a->kinds = kinds;
  a->op = op;
  a->dtype = t->dtype;
  a->ndim = t->ndim;
  memcpy(a->size, t->size, sizeof(int64_t) * t->ndim);
  a->step = w->o.steps + 1;
  a->scale = w->o.scale;
  return a;
}

/* An op that the user called: are its results finite? before: bits of operands that were not, as far as they may be gone. */
static void check_results(struct amp_watch *w, int op, unsigned flags, amp_tensor *const *in, int nin, amp_tensor **out, const amp_slot *attrs, int before)
{
  const amp_op_desc *d = &amp__ops[op];
  if (w->o.anomaly.kinds || d->info.kind == 'V' || nin == 0) return;
  for (int i = 0; i < AMP_MAX_OUT; i++) {
    amp_tensor *t = i == 0 && (flags & AMP_INPLACE) ? in[0] : out ? out[i] : NULL;
    if (t == NULL || (i > 0 && (d->info.flags & AMP_F_AUX))) break;
    int bad = kinds_of(t);
    if (bad) bad &= ~named(d, in, nin, attrs ? attrs : d->defaults);
    if (!bad) continue;
    int operands = before & 1;
    int64_t leaf = 0;
    for (int k = 0; k < nin && k < 31; k++) {
      int was = k == 0 && (flags & AMP_INPLACE) ? before >> 1 : kinds_of(in[k]);
      if (was == 0) continue;
      operands |= 1 << k;
      bad &= ~(was & AMP_V_NEGATIVE);
      if (!leaf && (in[k]->flags & AMP_T_REQUIRES_GRAD)) leaf = in[k]->id;
    }
    if (!bad) continue;
    amp_anomaly *a = found(w, op, bad, t);
    a->place = i + 1;
    a->flags = flags & AMP_INPLACE ? AMP_SP_INPLACE : 0;
    a->operands = operands;
    a->noperand = nin;
    a->leaf = leaf;
    return;
  }
}

/* The parameter to which edge i of n leads, through its cast if there is one. */
static int64_t leaf_of(const amp_node *n, int i)
{
  const amp_edge *e = &n->edge[i];
  while (e->leaf == NULL && e->node && e->node->nin == 1 && (e->node->flags & AMP_N_CAST)) e = &e->node->edge[0];
  return e->leaf ? e->leaf->id : 0;
}

/* Is the gradient of argument i finite where the incoming ones are divided by the scale? */
static bool finite_unscaled(struct amp_watch *w, const amp_bwd *b, int i)
{
  amp_state *S = amp__S;
  amp_error err = S->err;
  int32_t grad_mode = S->grad_mode;
  amp_tensor **gin = calloc((size_t)b->nin, sizeof *gin);
  if (gin == NULL) return false;
  int mark = amp__pool_mark();
  amp_bwd c = *b;
  c.gin = gin;
  c.create_graph = false;
  S->grad_mode = 0;
  w->quiet = true;
  bool ok = true;
  for (int k = 0; k < c.nout && k < AMP_MAX_OUT; k++)
    if (c.g[k]) ok &= (c.g[k] = XN(mul, c.g[k], 1 / w->o.scale)) != NULL;
  ok = ok && amp__ops[b->node->op].bwd(&c) == 0 && gin[i];
  amp_tensor *g = !ok ? NULL : gin[i]->dtype == b->gin[i]->dtype ? gin[i] : amp__xcast(gin[i], b->gin[i]->dtype);
  ok = g && kinds_of(g) == 0;
  w->quiet = false;
  S->grad_mode = grad_mode;
  amp__pool_release(mark);
  free(gin);
  S->err = err;
  return ok;
}

/* Are a derivative's results looked at before they are sent on? */
bool amp__observe_each(void)
{
  struct amp_watch *w = amp__S->priv->watch;
  return amp__observing() && w && (w->o.flags & AMP_O_FINITE);
}

void amp__observe_gradients(const amp_bwd *b)
{
  struct amp_watch *w = amp__S->priv->watch;
  if (w == NULL || w->quiet || !(w->o.flags & AMP_O_FINITE) || w->o.anomaly.kinds) return;
  for (int i = 0; i < b->nin; i++) {
    int bad = kinds_of(b->gin[i]);
    if (!bad) continue;
    amp_anomaly *a = found(w, b->node->op, bad, b->gin[i]);
    a->flags = AMP_SP_BACKWARD;
    a->place = i + 1;
    a->node = b->node->seq;
    a->noperand = b->nout;
    for (int k = 0; k < b->nout && k < AMP_MAX_OUT; k++)
      if (kinds_of(b->g[k])) a->operands |= 1 << k;
    a->leaf = leaf_of(b->node, i);
    if (!a->operands && w->o.scale > 1 && !(b->node->flags & AMP_N_LUA)) a->overflow = finite_unscaled(w, b, i);
    return;
  }
}

/* -- Ops ------------------------------------------------------------------------------ */

static void note_sizes(amp_span *s, amp_tensor *const *in, int nin)
{
  for (int i = 0; i < 3 && i < nin; i++) {
    if (in[i] == NULL) continue;
    s->ndim[i] = in[i]->ndim < 5 ? in[i]->ndim : 5;
    for (int d = 0; d < s->ndim[i]; d++) s->size[5 * i + d] = in[i]->size[d] > INT32_MAX ? INT32_MAX : (int32_t)in[i]->size[d];
  }
}

int amp__observe_op(int op, unsigned flags, amp_tensor *const *in, int nin, amp_tensor **out, const amp_slot *attrs)
{
  struct amp_watch *w = amp__S->priv->watch;
  const amp_op_desc *d = &amp__ops[op];
  amp_frame f;
  int kind = (flags & AMP_INPLACE ? AMP_SP_INPLACE : 0) | (d->info.kind == 'V' ? AMP_SP_VIEW : d->info.kind == 'C' ? AMP_SP_COMPOSITE : 0);
  if (!amp__observe_begin(&f, op, kind, 0)) return amp__dispatch_op(op, flags, in, nin, out, attrs);
  /* casts inside another op are autocast's, as is the copy that fills a weight's */
  if (f.outer && f.outer->op >= 0 && !(f.outer->flags & AMP_SP_NODE)
      && (op == AMP_OP_cast || (op == AMP_OP_copy && nin == 2 && in[0] && in[1] && in[0]->dtype != in[1]->dtype)))
    f.flags |= AMP_SP_CAST;
  bool look = (w->o.flags & AMP_O_FINITE) && f.depth == 0;
  int was = look && (flags & AMP_INPLACE) && nin > 0 ? kinds_of(in[0]) : 0;
  int rc = amp__dispatch_op(op, flags, in, nin, out, attrs);
  int64_t own = 0;
  if (rc == 0 && out && !flags && !(kind & (AMP_SP_VIEW | AMP_SP_COMPOSITE)))
    for (int i = 0; i < AMP_MAX_OUT && out[i]; i++) own += (int64_t)out[i]->storage->bytes;
  amp_tensor *first = flags & AMP_INPLACE ? in[0] : rc == 0 && out ? out[0] : NULL;
  if ((w->o.flags & AMP_O_SYNC) && rc == 0 && first && first->device != AMP_CPU && amp__devices[first->device].sync)
    amp__devices[first->device].sync(first->device_index);
  amp_span *s = close_frame(w, &f, rc, own);
  if (s) {
    if (first) s->dtype = first->dtype;
    note_sizes(s, in, nin);
  }
  if (look && rc == 0) check_results(w, op, flags, in, nin, out, attrs, was << 1 | (was != 0));
  return rc;
}
