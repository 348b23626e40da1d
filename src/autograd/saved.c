/*
** autograd/saved.c: tensors that nodes saved, as derivatives get them: checked for later changes, with the
** history that they had; and the names of nodes, for messages.
*/
#include "autograd/tape.h"

/* -- Saved tensors -------------------------------------------------------------- */

/* The leaf whose cast the saved tensor is (or is a view of), if it changed since. */
static const amp_saved *master_changed(const amp_saved *s)
{
  if (!amp__is_half(s->tensor->dtype)) return NULL;
  for (const amp_node *node = s->edge.node; node; node = node->edge[0].node) {
    if (node->flags & AMP_N_SHADOW) {
      const amp_saved *m = &node->saved[0];
      return m->tensor && m->version != amp__version(m->tensor) ? m : NULL;
    }
    if (node->op >= AMP_OP_COUNT || amp__ops[node->op].info.kind != 'V') return NULL;
  }
  return NULL;
}

static amp_tensor *changed(const amp_node *node, const amp_saved *s)
{
  amp__fail(AMP_E_AUTOGRAD,
            "a tensor (%s) that the backward of %s needs was changed in place: it is at version %u, saved at version "
            "%u; use a copy (:clone()) or the form without _",
            amp__tensor_str(s->tensor), amp__node_name(node), (unsigned)amp__version(s->tensor), (unsigned)s->version);
  return NULL;
}

amp_tensor *amp__saved_get(amp_node *node, int i, bool with_history)
{
  amp_saved *saved = i < node->nsaved ? &node->saved[i] : &(amp_saved){ 0 };
  if (node->flags & AMP_N_FREED) {
    amp__fail(AMP_E_AUTOGRAD, "the graph of %s was freed by an earlier backward; pass retain_graph = true to that one",
              amp__node_name(node));
    return NULL;
  }
  if (saved->tensor == NULL) {
    amp__fail(AMP_E_INTERNAL, "%s did not save argument %d", amp__node_name(node), i + 1);
    return NULL;
  }
  if (saved->version != amp__version(saved->tensor)) return changed(node, saved);
  const amp_saved *master = master_changed(saved);
  if (master) return changed(node, master);
  if (!with_history || (saved->tensor->flags & AMP_T_REQUIRES_GRAD)) {
    amp__retain(saved->tensor);
    return saved->tensor;
  }
  bool output = i >= node->nin;
  if (!output && saved->edge.node == NULL && saved->edge.leaf == NULL) {
    amp__retain(saved->tensor);
    return saved->tensor;
  }
  amp_tensor *tensor = amp__tensor_alias(saved->tensor);
  if (tensor == NULL) return NULL;
  tensor->flags |= saved->tensor->flags & AMP_T_NUMBER;
  if (output ? !amp__has_gradient(tensor->dtype)
                   || (i > node->nin && node->op != AMP_NODE_LUA && (amp__ops[node->op].info.flags & AMP_F_NODIFF_OUT1))
             : saved->edge.node == NULL)
    return tensor;
  if (amp__tie(tensor, output ? node : saved->edge.node, output ? i - node->nin : saved->edge.index) < 0) {
    amp__free(tensor);
    return NULL;
  }
  return tensor;
}

const char *amp__node_name(const amp_node *node)
{
  if (node->op == AMP_OP_float8_product) return "linear or matmul in 8 bits";
  return node->op == AMP_NODE_LUA ? "an amp.Function" : amp__ops[node->op].info.name;
}

const char *amp_node_name(const amp_ref *ref)
{
  if (ref == NULL || ref->t == NULL || ref->t->ag == NULL) return NULL;
  amp__refresh(ref->t);
  if (ref->t->ag->node) return amp__node_name(ref->t->ag->node);
  return ref->t->flags & AMP_T_HISTORY ? "as_strided" : NULL; /* a view that will get its node when it is used */
}
