/*
** autograd/engine.c: backward. A heap gives the nodes in descending order of
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
** Here are begin, end and what Lua calls; autograd/engine.h names the other files.
** Formulas are FAMILY_derivative.c in ops; what a leaf does with a gradient is autograd/gradient.c.
*/
#include <stdlib.h>
#include "autograd/engine.h"

int amp_backward_run(amp_state *state, amp_engine *head)
{
  engine *run = (engine *)head;
  AMP_ENTER(state);
  const char *op = state->priv->op;
  amp__plain plain = amp__plain_record(state, (run->flags & AMP_B_CREATE_GRAPH) != 0);
  state->priv->op = "backward"; /* errors of ops inside are told as backward's */
  state->err.op[0] = 0;
  amp_frame frame;
  bool watched = amp_unlikely(amp__observing()) && amp__observe_begin(&frame, AMP_SPAN_BACKWARD, AMP_SP_BACKWARD, 0);
  int status = amp__engine_run(run);
  if (watched) amp__observe_end(&frame, status);
  if (status < 0) strcpy(state->err.op, "backward");
  state->priv->op = op;
  amp__plain_end(plain);
  return status;
}

/* -- Begin and end -------------------------------------------------------------------------- */

static int add_target(engine *engine, int i, amp_tensor *tensor)
{
  target *g = &engine->targets[i];
  g->next = -1;
  if (tensor == NULL) return amp__fail(AMP_E_ARGUMENT, "input %d was freed", i + 1);
  amp__refresh(tensor);
  if (!amp__tracked(tensor))
    return amp__fail(AMP_E_AUTOGRAD, "input %d (%s) does not require grad", i + 1, amp__tensor_str(tensor));
  g->leaf = tensor;
  amp__retain(tensor);
  engine->ntarget = i + 1;
  int status = amp__edge_of(tensor, &g->edge);
  if (status < 0) return status;
  if (g->edge.leaf == NULL && g->edge.node == NULL) return amp__fail(AMP_E_AUTOGRAD, "input %d has no history", i + 1);
  engine->inner |= g->edge.leaf == NULL;
  entry *x = g->edge.leaf ? amp__engine_get(engine, g->edge.leaf, true) : amp__engine_get(engine, g->edge.node, false);
  if (x == NULL) return amp__S->err.code;
  g->next = x->target;
  x->target = i;
  return 0;
}

static int add_root(engine *engine, int i, amp_tensor *tensor, amp_tensor *g)
{
  int status = 0;
  if (tensor == NULL) return amp__fail(AMP_E_ARGUMENT, "tensor %d was freed", i + 1);
  amp__refresh(tensor);
  if (!amp__tracked(tensor))
    return amp__fail(AMP_E_AUTOGRAD, "tensor %d (%s) has no recorded history and does not require grad", i + 1,
                     amp__tensor_str(tensor));
  amp__S->priv->origin = !g || (engine->flags & AMP_B_ONES) ? AMP_O_PLAIN : amp__root_origin(g, engine->outer);
  if (g) {
    if (!amp__same_size(tensor, g))
      return amp__fail(AMP_E_SHAPE, "the gradient has shape %s, the tensor %s", amp__shape_str(g->ndim, g->size),
                       amp__shape_str(tensor->ndim, tensor->size));
    if (!amp__is_float(g->dtype))
      return amp__fail(AMP_E_DTYPE, "the gradient is %s, a float dtype is expected", amp_dtype_name(g->dtype));
    if (g->dtype != amp__gradient_dtype(tensor->dtype)) g = amp__op_cast(g, amp__gradient_dtype(tensor->dtype));
  } else {
    if (tensor->numel != 1)
      return amp__fail(
          AMP_E_SHAPE,
          "backward of a tensor of shape %s needs a gradient; without one only a single value can start it: "
          "reduce it (:sum(), "
          "as MXNet's backward of several losses does, or :mean()), or give a gradient of its shape "
          "(t:backward(gradient), grad_tensors of amp.backward, grad_outputs of amp.grad)",
          amp__shape_str(tensor->ndim, tensor->size));
    g = amp__seed(tensor);
  }
  if (g == NULL) return amp__S->err.code;
  amp_edge to;
  if ((status = amp__edge_of(tensor, &to)) < 0) return status;
  if (engine->only && to.node) status = amp__engine_mark(engine, to.node);
  if (status == 0) {
    amp__retain(g);
    if ((status = amp__engine_send(engine, &to, &g, false, true)) < 0) amp__free(g);
  }
  amp__edge_free(&to);
  return status;
}

amp_engine *amp_backward_begin(amp_state *state, amp_tensor *const *root, amp_tensor *const *grad, int nroot,
                               amp_tensor *const *input, int ninput, int flags)
{
  AMP_ENTER(state);
  const char *op = state->priv->op;
  int status = 0;
  if (amp__trace_refuse("a backward is run", NULL) < 0) return NULL;
  engine *engine = calloc(1, sizeof *engine);
  if (engine == NULL) {
    amp__nomem(sizeof *engine);
    return NULL;
  }
  if (flags & AMP_B_CREATE_GRAPH) flags |= AMP_B_RETAIN_GRAPH;
  engine->flags = flags;
  engine->outer = state->priv->origin;
  amp__scales_enter();
  engine->only = input != NULL;
  if (!engine->only) engine->flags = flags |= AMP_B_ACCUMULATE;
  amp__plain plain = amp__plain_record(state, (flags & AMP_B_CREATE_GRAPH) != 0);
  state->priv->op = "backward";
  int mark = amp__pool_mark();
  if (ninput > 0 && (engine->targets = calloc((size_t)ninput, sizeof *engine->targets)) == NULL)
    status = amp__nomem(sizeof *engine->targets * (size_t)ninput);
  for (int i = 0; i < ninput && status == 0; i++) status = add_target(engine, i, input[i]);
  for (int i = 0; i < nroot && status == 0; i++) status = add_root(engine, i, root[i], grad ? grad[i] : NULL);
  if (status == 0) status = amp__engine_watch(engine);
  amp__pool_release(mark);
  state->priv->op = op;
  amp__plain_end(plain);
  if (status < 0) {
    strcpy(state->err.op, "backward");
    amp_backward_end(state, &engine->head);
    return NULL;
  }
  return &engine->head;
}

int amp_backward_arg(amp_state *state, amp_ref *out, amp_engine *head, int i)
{
  engine *run = (engine *)head;
  AMP_ENTER(state);
  if (i < 0 || i >= run->nin) return amp__fail(AMP_E_ARGUMENT, "there are %d gradients, not %d", run->nin, i + 1);
  out->t = run->inputs[i];
  if (out->t) amp__retain(out->t);
  return 0;
}

int amp_backward_supply(amp_state *state, amp_engine *head, int i, const amp_ref *g)
{
  engine *run = (engine *)head;
  AMP_ENTER(state);
  if (i < 0 || i >= run->nback) return amp__fail(AMP_E_ARGUMENT, "%d gradients are wanted, not %d", run->nback, i + 1);
  if (g && g->t == NULL) return amp__fail(AMP_E_ARGUMENT, "gradient %d was freed", i + 1);
  amp__free(run->back[i]);
  run->back[i] = g ? g->t : NULL;
  if (g) amp__retain(g->t);
  return 0;
}

int amp_backward_result(amp_state *state, amp_ref *out, amp_engine *head, int i)
{
  engine *run = (engine *)head;
  AMP_ENTER(state);
  out->t = NULL;
  if (i < 0 || i >= run->ntarget) return amp__fail(AMP_E_ARGUMENT, "there are %d inputs, not %d", run->ntarget, i + 1);
  amp_tensor *g = run->targets[i].grad;
  if (g == NULL && !(run->flags & AMP_B_ALLOW_UNUSED))
    return amp__fail(AMP_E_AUTOGRAD, "input %d was not used in the outputs; pass allow_unused = true to get nil for it",
                     i + 1);
  if (g) {
    out->t = g;
    amp__retain(g);
  }
  return 0;
}

void amp_backward_end(amp_state *state, amp_engine *head)
{
  engine *run = (engine *)head;
  AMP_ENTER(state);
  amp__engine_stop_done(run);
  if (run->node) amp__engine_drop_node(run);
  if (run->node && (run->node->flags & AMP_N_SPENT))
    amp__node_release_saved(run->node); /* it was given up in between */
  for (int i = 0; i < run->count; i++) {
    entry *x = &run->map[run->taken[i]];
    int nout = x->is_leaf ? 1 : ((amp_node *)x->key)->nout;
    for (int k = 0; x->grad && k < nout; k++) amp__free(x->grad[k]);
    if (x->grad) free(x->grad);
  }
  for (int i = 0; i < run->ntarget; i++) amp__free(run->targets[i].grad);
  amp__engine_unwatch(run);
  /* keys last: freeing a node may free what others point to */
  for (int i = 0; i < run->count; i++) {
    const entry *x = &run->map[run->taken[i]];
    if (x->is_leaf) amp__free(x->key);
    else amp__node_free(x->key);
  }
  for (int i = 0; run->targets && i < run->ntarget; i++) {
    amp__free(run->targets[i].leaf);
    amp__edge_free(&run->targets[i].edge);
  }
  state->priv->origin = run->outer;
  amp__scales_leave();
  amp__deferred_wgrad_free(run->later);
  free(run->targets);
  free(run->map);
  free(run->heap);
  free(run->leaves);
  free(run->items);
  free(run);
  amp__memory_backward_ended();
}
