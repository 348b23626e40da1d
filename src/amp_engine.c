/*
** amp_engine.c: backward. A heap gives the nodes in descending order of
** creation; every consumer of a node is newer than it, so when a node comes up
** its gradients are complete and no counting of dependencies is needed.
**
** The machine stops where Lua has to act (a function or hook that lives there,
** a collection where memory is short) and is resumed: begin, run until it says
** so, arg / supply, run, ..., end.
** Gradient buffers belong to the engine, keyed by node, so that several
** backwards may be under way at once. Hookless leaves take their share at
** once; leaves with hooks, and those a backward begins at, at the end, when it is complete.
** A derivative may add what came for its first input so far itself (amp_bwd.sum).
** Here are begin, end and what Lua calls; amp_engine.h names the other files.
** Formulas are amp_bwd_*.c; what a leaf does with a gradient is amp_grad.c.
*/
#include <stdlib.h>
#include "amp_engine.h"

int amp_backward_run(amp_state *S, amp_engine *head)
{
  engine *e = (engine *)head;
  AMP_ENTER(S);
  int32_t grad_mode = S->grad_mode, autocast_on = S->autocast_on;
  const char *op = S->priv->op;
  S->grad_mode = (e->flags & AMP_B_CREATE_GRAPH) != 0;
  S->autocast_on = 0;
  S->priv->op = "backward"; /* errors of ops inside are told as backward's */
  S->err.op[0] = 0;
  amp_frame f;
  bool watched = amp_unlikely(amp__observing()) && amp__observe_begin(&f, AMP_SPAN_BACKWARD, AMP_SP_BACKWARD, 0);
  int rc = amp__engine_run(e);
  if (watched) amp__observe_end(&f, rc);
  if (rc < 0) strcpy(S->err.op, "backward");
  S->priv->op = op;
  S->grad_mode = grad_mode;
  S->autocast_on = autocast_on;
  return rc;
}

/* -- Begin and end -------------------------------------------------------------------------- */

static int add_target(engine *e, int i, amp_tensor *t)
{
  target *g = &e->targets[i];
  g->next = -1;
  if (t == NULL) return amp__fail(AMP_E_ARGUMENT, "input %d was freed", i + 1);
  amp__refresh(t);
  if (!amp__tracked(t)) return amp__fail(AMP_E_AUTOGRAD, "input %d (%s) does not require grad", i + 1, amp__tensor_str(t));
  g->t = t;
  amp__retain(t);
  e->ntarget = i + 1;
  int rc = amp__edge_of(t, &g->e);
  if (rc < 0) return rc;
  if (g->e.leaf == NULL && g->e.node == NULL) return amp__fail(AMP_E_AUTOGRAD, "input %d has no history", i + 1);
  e->inner |= g->e.leaf == NULL;
  entry *x = g->e.leaf ? amp__engine_get(e, g->e.leaf, true) : amp__engine_get(e, g->e.node, false);
  if (x == NULL) return amp__S->err.code;
  g->next = x->target;
  x->target = i;
  return 0;
}

static int add_root(engine *e, int i, amp_tensor *t, amp_tensor *g)
{
  int rc = 0;
  if (t == NULL) return amp__fail(AMP_E_ARGUMENT, "tensor %d was freed", i + 1);
  amp__refresh(t);
  if (!amp__tracked(t))
    return amp__fail(AMP_E_AUTOGRAD, "tensor %d (%s) has no recorded history and does not require grad", i + 1, amp__tensor_str(t));
  amp__S->priv->origin = !g || (e->flags & AMP_B_ONES) ? AMP_O_PLAIN : amp__root_origin(g, e->outer);
  if (g) {
    if (!amp__same_size(t, g))
      return amp__fail(AMP_E_SHAPE, "the gradient has shape %s, the tensor %s", amp__shape_str(g->ndim, g->size), amp__shape_str(t->ndim, t->size));
    if (!amp__is_float(g->dtype)) return amp__fail(AMP_E_DTYPE, "the gradient is %s, a float dtype is expected", amp_dtype_name(g->dtype));
    if (g->dtype != t->dtype) g = amp__xcast(g, t->dtype);
  } else {
    if (t->numel != 1)
      return amp__fail(AMP_E_SHAPE, "backward of a tensor of shape %s needs a gradient; without one only a single value can start it: reduce it (:sum(), "
                       "as MXNet's backward of several losses does, or :mean()), or give a gradient of its shape", amp__shape_str(t->ndim, t->size));
    g = amp__seed(t);
  }
  if (g == NULL) return amp__S->err.code;
  amp_edge to;
  if ((rc = amp__edge_of(t, &to)) < 0) return rc;
  if (e->only && to.node) rc = amp__engine_mark(e, to.node);
  if (rc == 0) {
    amp__retain(g);
    if ((rc = amp__engine_send(e, &to, &g, false, true)) < 0) amp__free(g);
  }
  amp__edge_free(&to);
  return rc;
}

amp_engine *amp_backward_begin(amp_state *S, amp_tensor *const *root, amp_tensor *const *grad, int nroot,
                               amp_tensor *const *input, int ninput, int flags)
{
  AMP_ENTER(S);
  int32_t grad_mode = S->grad_mode, autocast_on = S->autocast_on;
  const char *op = S->priv->op;
  int rc = 0;
  engine *e = calloc(1, sizeof *e);
  if (e == NULL) { amp__nomem(sizeof *e); return NULL; }
  if (flags & AMP_B_CREATE_GRAPH) flags |= AMP_B_RETAIN_GRAPH;
  e->flags = flags;
  e->outer = S->priv->origin;
  amp__scales_enter();
  e->only = input != NULL;
  if (!e->only) e->flags = flags |= AMP_B_ACCUMULATE;
  S->grad_mode = (flags & AMP_B_CREATE_GRAPH) != 0;
  S->autocast_on = 0;
  S->priv->op = "backward";
  int mark = amp__pool_mark();
  if (ninput > 0 && (e->targets = calloc((size_t)ninput, sizeof *e->targets)) == NULL) rc = amp__nomem(sizeof *e->targets * (size_t)ninput);
  for (int i = 0; i < ninput && rc == 0; i++) rc = add_target(e, i, input[i]);
  for (int i = 0; i < nroot && rc == 0; i++) rc = add_root(e, i, root[i], grad ? grad[i] : NULL);
  amp__pool_release(mark);
  S->priv->op = op;
  S->grad_mode = grad_mode;
  S->autocast_on = autocast_on;
  if (rc < 0) {
    strcpy(S->err.op, "backward");
    amp_backward_end(S, &e->head);
    return NULL;
  }
  return &e->head;
}

int amp_backward_arg(amp_state *S, amp_ref *out, amp_engine *head, int i)
{
  engine *e = (engine *)head;
  AMP_ENTER(S);
  if (i < 0 || i >= e->nin) return amp__fail(AMP_E_ARGUMENT, "there are %d gradients, not %d", e->nin, i + 1);
  out->t = e->in[i];
  if (out->t) amp__retain(out->t);
  return 0;
}

int amp_backward_supply(amp_state *S, amp_engine *head, int i, const amp_ref *g)
{
  engine *e = (engine *)head;
  AMP_ENTER(S);
  if (i < 0 || i >= e->nback) return amp__fail(AMP_E_ARGUMENT, "%d gradients are wanted, not %d", e->nback, i + 1);
  if (g && g->t == NULL) return amp__fail(AMP_E_ARGUMENT, "gradient %d was freed", i + 1);
  amp__free(e->back[i]);
  e->back[i] = g ? g->t : NULL;
  if (g) amp__retain(g->t);
  return 0;
}

int amp_backward_result(amp_state *S, amp_ref *out, amp_engine *head, int i)
{
  engine *e = (engine *)head;
  AMP_ENTER(S);
  out->t = NULL;
  if (i < 0 || i >= e->ntarget) return amp__fail(AMP_E_ARGUMENT, "there are %d inputs, not %d", e->ntarget, i + 1);
  amp_tensor *g = e->targets[i].grad;
  if (g == NULL && !(e->flags & AMP_B_ALLOW_UNUSED))
    return amp__fail(AMP_E_AUTOGRAD, "input %d was not used in the outputs; pass allow_unused = true to get nil for it", i + 1);
  if (g) { out->t = g; amp__retain(g); }
  return 0;
}

void amp_backward_end(amp_state *S, amp_engine *head)
{
  engine *e = (engine *)head;
  AMP_ENTER(S);
  amp__engine_stop_done(e);
  if (e->node) amp__engine_drop_node(e);
  if (e->node && (e->node->flags & AMP_N_SPENT)) amp__node_release_saved(e->node); /* it was given up in between */
  for (int i = 0; i < e->cap; i++) {
    entry *x = &e->map[i];
    if (x->key == NULL) continue;
    int nout = x->is_leaf ? 1 : ((amp_node *)x->key)->nout;
    for (int k = 0; x->grad && k < nout; k++) amp__free(x->grad[k]);
    free(x->grad);
  }
  for (int i = 0; i < e->ntarget; i++) amp__free(e->targets[i].grad);
  /* keys last: freeing a node may free what others point to */
  for (int i = 0; i < e->cap; i++) {
    if (e->map[i].key == NULL) continue;
    if (e->map[i].is_leaf) amp__free(e->map[i].key);
    else amp__node_free(e->map[i].key);
  }
  for (int i = 0; e->targets && i < e->ntarget; i++) {
    amp__free(e->targets[i].t);
    amp__edge_free(&e->targets[i].e);
  }
  S->priv->origin = e->outer;
  amp__scales_leave();
  amp__later_free(e->later);
  free(e->targets);
  free(e->map);
  free(e->heap);
  free(e->leaves);
  free(e->items);
  free(e);
  amp__memory_trough();
}
