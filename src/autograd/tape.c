/*
** autograd/tape.c: what remembers how tensors were made.
**
** A recorded op is an amp_node: edges to the nodes (or leaves) its inputs came
** from, the tensors its derivative needs, the shapes of all its arguments and
** its attributes, in one allocation. A tensor's amp_ag points to the node that
** made it; edges point only backwards, so graphs are acyclic and counted:
**
**   loss --ag--> node(mean) --edge--> node(mul) --edge--> leaf w
**
** Saved inputs are aliases that carry the edge they had, saved outputs are
** aliases without one (the node is known), so nothing points forward. Views
** keep their base; an in-place op on a view gives the base a "slices" node and
** every other view of it a fresh as_strided node when next used. Versions live
** in the storage; a saved tensor remembers its own.
** Walking the tape backwards is autograd/engine.c; leaf gradients autograd/gradient.c.
*/
#include <stdio.h>
#include "dispatch/op_builder.h"
#include "autograd/tape.h"

/* -- Autograd side --------------------------------------------------------- */

amp_ag *amp__ag(amp_tensor *tensor)
{
  if (tensor->ag) return tensor->ag;
  amp_ag *ag = amp__obj_alloc(sizeof *ag);
  if (ag == NULL) {
    amp__nomem(sizeof *ag);
    return NULL;
  }
  memset(ag, 0, sizeof *ag);
  ag->self = tensor;
  return tensor->ag = ag;
}

static void tensor_dies(amp_tensor *tensor)
{
  amp_ag *ag = tensor->ag;
  if (ag == NULL) return;
  AMP_ASSERT(ag->self == tensor);
  tensor->ag = NULL;
  amp__shadow_drop(ag);
  if (amp_unlikely(ag->float8 != NULL)) amp__hooks.float8_free(ag);
  amp__free(ag->half_copy);
  amp__free(ag->kept8);
  amp__free(ag->kept8_largest);
  if (ag->hook) amp__dead_push(ag->hook);
  if (ag->ready) amp__dead_push(ag->ready);
  amp__free(ag->grad.value);
  amp__free(ag->grad.factor);
  amp__free(ag->grad.scale);
  if (ag->grad.check) amp__hooks.check_free(ag->grad.check);
  amp_node *node = ag->node;
  amp_tensor *base = ag->base;
  amp__obj_free(ag, sizeof *ag);
  if (node) amp__node_free(node);
  amp__free(base);
}

/* -- Nodes ------------------------------------------------------------------ */

static _Atomic int64_t last_seq = 1;

int64_t amp__newest_node(void) { return atomic_load_explicit(&last_seq, memory_order_relaxed) - 1; }

amp_node *amp__node_new(int op, int nin, int nout, int nslot, int nsaved, int ndim)
{
  size_t shape = offsetof(amp_shape, size) + sizeof(int64_t) * (size_t)ndim;
  size_t bytes = sizeof(amp_node) + sizeof(amp_edge) * (size_t)nin + sizeof(amp_saved) * (size_t)nsaved
                 + shape * (size_t)(nin + nout) + sizeof(amp_slot) * (size_t)nslot;
  amp_node *node = amp__obj_alloc(bytes);
  if (node == NULL) {
    amp__nomem(bytes);
    return NULL;
  }
  memset(node, 0, sizeof *node + sizeof(amp_edge) * (size_t)nin + sizeof(amp_saved) * (size_t)nsaved);
  atomic_store_explicit(&node->refs, 1, memory_order_relaxed);
  node->op = (int16_t)op;
  node->nin = nin;
  node->nout = (uint8_t)nout;
  node->nslot = (int16_t)nslot;
  node->nsaved = nsaved;
  node->shape_bytes = (int16_t)shape;
  node->bytes = (int32_t)bytes;
  node->seq = atomic_fetch_add_explicit(&last_seq, 1, memory_order_relaxed);
  node->edge = (amp_edge *)(node + 1);
  node->saved = (amp_saved *)(node->edge + nin);
  node->shapes = (char *)(node->saved + nsaved);
  node->attrs = (amp_slot *)(node->shapes + shape * (size_t)(nin + nout));
  return node;
}

void amp__edge_free(amp_edge *edge)
{
  if (edge->node) amp__node_free(edge->node);
  if (edge->leaf) amp__free(edge->leaf);
  edge->node = NULL;
  edge->leaf = NULL;
}

void amp__saved_free(amp_saved *saved)
{
  amp_tensor *tensor = saved->tensor;
  if (tensor == NULL) return;
  saved->tensor = NULL;
  amp__free(tensor);
  amp__edge_free(&saved->edge);
}

static void hooks_free(amp_node *node)
{
  if (node->hooks == NULL) return;
  for (int i = 0; i < node->nout; i++)
    if (node->hooks[i] > 0) amp__dead_push(node->hooks[i]);
  amp__obj_free(node->hooks, sizeof *node->hooks * node->nout);
  node->hooks = NULL;
}

void amp__node_release_saved(amp_node *node)
{
  node->flags |= AMP_N_FREED;
  hooks_free(node); /* they have run, and may hold what holds this node */
  for (int i = 0; i < node->nsaved; i++) amp__saved_free(&node->saved[i]);
  if (node->slices) amp__node_release_saved(node->slices->function);
}

/* A backward that keeps no graph went through outputs `went` of node. Several views of one op may have a backward
** each: they hold nothing, and what lies before them says what was freed. Only hooks go, which may hold what
** holds this node, each with the view it was on. */
void amp__node_spend(amp_node *node, uint32_t went)
{
  if (node->nout < 2 || (node->flags & AMP_N_LUA) || amp__ops[node->op].info.kind != 'V') {
    amp__node_release_saved(node);
    return;
  }
  for (int i = 0; node->hooks && i < node->nout; i++) {
    if (!(went >> i & 1) || node->hooks[i] <= 0) continue;
    amp__dead_push(node->hooks[i]);
    node->hooks[i] = -1;
  }
}

/* Whether a gradient for one of outputs `came` is missing a hook that went with an earlier backward. */
bool amp__node_spent(const amp_node *node, uint32_t came)
{
  for (int i = 0; node->hooks && i < node->nout && i < 32; i++)
    if ((came >> i & 1) && node->hooks[i] < 0) return true;
  return (node->flags & AMP_N_FREED) != 0;
}

/* A graph may be a chain of a million nodes: dead ones wait in a list, so that
** freeing never recurses. `seq` of a dead node is the link. */
static _Thread_local amp_node *dying;
static _Thread_local bool reaping;

void amp__node_free(amp_node *node)
{
  AMP_ASSERT(node->refs > 0);
  if (atomic_fetch_sub_explicit(&node->refs, 1, memory_order_acq_rel) != 1) return;
  node->seq = (int64_t)(intptr_t)dying;
  dying = node;
  if (reaping) return;
  reaping = true;
  while ((node = dying) != NULL) {
    dying = (amp_node *)(intptr_t)node->seq;
    for (int i = 0; i < node->nsaved; i++) amp__saved_free(&node->saved[i]);
    for (int i = 0; i < node->nin; i++) amp__edge_free(&node->edge[i]);
    hooks_free(node);
    if (node->flags & AMP_N_LUA) amp__dead_push(node->id);
    if (node->slices) {
      amp_node *fn = node->slices->function;
      amp__obj_free(node->slices, sizeof *node->slices);
      amp__node_free(fn);
    }
    amp__obj_free(node, (size_t)node->bytes);
  }
  reaping = false;
}

/* -- Edges ------------------------------------------------------------------ */

static void forget_history(amp_tensor *tensor)
{
  amp_node *node = tensor->ag ? tensor->ag->node : NULL;
  tensor->flags &= ~(uint32_t)AMP_T_HISTORY;
  if (node == NULL) return;
  tensor->ag->node = NULL;
  amp__node_free(node);
}

/* A view keeps its base, and the history that it has, when other data replace the base's (amp_set_data): what then
** happens to either is nothing to the other. */
static bool parted(const amp_tensor *tensor)
{
  const amp_tensor *base = tensor->ag->base;
  return tensor->storage != base->storage || tensor->dtype != base->dtype;
}

/* A view whose storage changed since its node was made has a history if its base has. */
static void view_refresh(amp_tensor *tensor)
{
  amp_ag *ag = tensor->ag;
  AMP_ASSERT(ag->self == tensor && (ag->base == NULL || ag->base->refs > 0));
  if (ag->base == NULL || ag->view_version == amp__version(tensor) || parted(tensor)) return;
  if (amp__tracked(ag->base)) tensor->flags |= AMP_T_HISTORY;
  else if (!(tensor->flags & AMP_T_REQUIRES_GRAD)) forget_history(tensor);
}

uint32_t amp_tensor_flags(const amp_ref *ref)
{
  if (ref->t == NULL) return 0;
  amp__refresh(ref->t);
  return ref->t->flags;
}

/* Make a stale view's history anew: as_strided of the base's elements in memory order. */
static int regenerate(amp_tensor *tensor)
{
  amp_ag *ag = tensor->ag;
  amp_state *state = amp__S;
  int mark = amp__pool_mark();
  amp__plain plain = amp__plain_record(state, 1);
  amp_tensor *p = amp__physical(ag->base), *value = NULL;
  if (p) {
    amp_attrs attrs = amp__attrs();
    amp__attrs_list(&attrs, tensor->ndim, tensor->size);
    amp__attrs_list(&attrs, tensor->ndim, tensor->stride);
    amp__attrs_int(&attrs, tensor->offset);
    value = amp__op(AMP_OP_as_strided, &attrs, 1, &p);
  }
  amp__plain_end(plain);
  if (value && value->ag && value->ag->node) {
    amp_node *old = ag->node;
    ag->node = value->ag->node;
    ag->index = 0;
    atomic_fetch_add_explicit(&ag->node->refs, 1, memory_order_relaxed);
    if (old) amp__node_free(old);
    ag->view_version = amp__version(tensor);
  }
  amp__pool_release(mark);
  return value ? 0 : state->err.code;
}

int amp__edge_of(amp_tensor *tensor, amp_edge *edge)
{
  amp_ag *ag = tensor->ag;
  edge->node = NULL;
  edge->leaf = NULL;
  edge->index = 0;
  if (!amp__tracked(tensor)) return 0;
  if (ag && ag->base && ag->view_version != amp__version(tensor) && !parted(tensor)) {
    int status = 0;
    view_refresh(tensor);
    if (amp__tracked(ag->base) && (status = regenerate(tensor)) < 0) return status;
  }
  if (ag && ag->node) {
    edge->node = ag->node;
    edge->index = ag->index;
    atomic_fetch_add_explicit(&edge->node->refs, 1, memory_order_relaxed);
  } else if (tensor->flags & AMP_T_REQUIRES_GRAD) {
    edge->leaf = tensor;
    amp__retain(tensor);
  }
  return 0;
}

/* A stale view gets its node just now, after node: then node is dated anew, as the engine goes by dates. */
int amp__node_edge(amp_node *node, int i, amp_tensor *tensor)
{
  int status = amp__edge_of(tensor, &node->edge[i]);
  if (amp_unlikely(status == 0 && node->edge[i].node && node->edge[i].node->seq > node->seq))
    node->seq = atomic_fetch_add_explicit(&last_seq, 1, memory_order_relaxed);
  AMP_ASSERT(node->edge[i].node == NULL || node->edge[i].node->seq < node->seq);
  AMP_ASSERT(node->edge[i].node == NULL || node->edge[i].leaf == NULL);
  return status;
}

/* -- Recording --------------------------------------------------------------- */

static void set_shape(amp_shape *shape, const amp_tensor *tensor)
{
  if (tensor == NULL) {
    shape->dtype = 0xff;
    shape->ndim = 0;
    return;
  }
  shape->dtype = (uint8_t)amp__gradient_dtype(tensor->dtype);
  shape->ndim = tensor->ndim;
  shape->device = tensor->device;
  shape->device_index = tensor->device_index;
  for (int i = 0; i < tensor->ndim; i++) shape->size[i] = tensor->size[i];
}

/* Remember tensor for backward. A leaf that requires grad can't lose its history: it stands for itself. */
static int save_input(amp_saved *saved, amp_tensor *tensor)
{
  if ((tensor->flags & AMP_T_REQUIRES_GRAD) && !(tensor->flags & AMP_T_HISTORY)) {
    saved->tensor = tensor;
    amp__retain(tensor);
  } else {
    if ((saved->tensor = amp__tensor_alias(tensor)) == NULL) return amp__S->err.code;
    saved->tensor->flags |= tensor->flags & AMP_T_NUMBER;
    int status = amp__edge_of(tensor, &saved->edge);
    if (status < 0) return status;
  }
  saved->version = amp__version(tensor);
  return 0;
}

/* The node of a call, without outputs tied. in0: what to save for the receiver of an in-place op and for
** arguments that lie on it, a copy; NULL: nothing is overwritten. */
static amp_node *make_node(amp_call *call, amp_tensor *in0)
{
  int nout = call->nout;
  int ndim = 0, saves = call->op->save || (call->op->info.flags & AMP_F_LIST) ? call->nin + nout : 0;
  for (int i = 0; i < call->nin; i++)
    if (call->in[i] && call->in[i]->ndim > ndim) ndim = call->in[i]->ndim;
  for (int i = 0; i < nout; i++)
    if (call->out[i]->ndim > ndim) ndim = call->out[i]->ndim;
  amp_node *node = amp__node_new(call->id, call->nin, nout, call->op->info.nslot, saves, ndim);
  if (node == NULL) return NULL;
  memcpy(node->attrs, call->attrs, sizeof(amp_slot) * (size_t)node->nslot);
  if (amp__row_is(call->op, AMP_R_CAST)) node->flags |= AMP_N_CAST;
  if (amp__row_is(call->op, AMP_R_PRODUCT) && ((call->in[0]->flags | call->in[1]->flags) & AMP_T_SCALE))
    node->flags |= AMP_N_SCALED;
  uint32_t save = call->op->save & ~call->unsaved;
  for (int i = 0; i < call->nin; i++) {
    amp_tensor *tensor = call->in[i];
    set_shape(amp__shape_of(node, i), tensor);
    if (tensor == NULL) continue;
    if (amp__has_gradient(tensor->dtype) && amp__node_edge(node, i, tensor) < 0) goto failed;
    bool wanted = i < 8 ? (save >> i & 1) : false;
    if ((call->op->info.flags & AMP_F_LIST) && i >= call->op->info.nin - 1 && !amp__has_gradient(tensor->dtype))
      wanted = true; /* index lists */
    if (wanted) {
      bool overwritten = in0 && amp__same_place(tensor, call->in[0]);
      if (save_input(&node->saved[i], overwritten ? in0 : tensor) < 0
          || (overwritten && amp__edge_of(tensor, &node->saved[i].edge) < 0))
        goto failed;
    }
  }
  for (int i = 0; i < nout; i++) {
    amp_tensor *tensor = call->out[i];
    set_shape(amp__shape_of(node, call->nin + i), tensor);
    if (save >> (8 + i) & 1) {
      amp_saved *saved = &node->saved[call->nin + i];
      if ((saved->tensor = amp__tensor_alias(tensor)) == NULL) goto failed;
      saved->version = amp__version(tensor);
    }
  }
  return node;
failed:
  amp__node_free(node);
  return NULL;
}

int amp__tie(amp_tensor *tensor, amp_node *node, int index)
{
  amp_ag *ag = amp__ag(tensor);
  if (ag == NULL) return amp__S->err.code;
  amp_node *old = ag->node;
  atomic_fetch_add_explicit(&node->refs, 1, memory_order_relaxed);
  ag->node = node;
  ag->index = index;
  tensor->flags |= AMP_T_HISTORY;
  if (old) amp__node_free(old);
  return 0;
}

/* The node that call will have, with all that tying it takes; NULL in *made: there is nothing to record. */
static int record_begin(amp_call *call, amp_node **made)
{
  bool any = false;
  *made = NULL;
  for (int i = 0; i < call->nin && !any; i++)
    any = call->in[i] && amp__has_gradient(call->in[i]->dtype) && amp__tracked(call->in[i]);
  if (!any || !amp__has_gradient(call->out[0]->dtype)) return 0;
  int last = call->op->info.flags & AMP_F_NODIFF_OUT1 ? 1 : call->nout;
  amp_node *node = make_node(call, NULL);
  if (node == NULL) return amp__S->err.code;
  for (int i = 0; i < last; i++)
    if (amp__has_gradient(call->out[i]->dtype) && amp__ag(call->out[i]) == NULL) {
      amp__node_free(node);
      return amp__S->err.code;
    }
  *made = node;
  return 0;
}

/* done: the kernel ran. half_copy: out[0] in 16 bits, which stays with it. Nothing here can fail. */
static void record_end(amp_call *call, amp_node *node, amp_tensor *half_copy, bool done)
{
  if (amp_unlikely(half_copy != NULL)) {
    if (done && call->out[0]->ag) call->out[0]->ag->half_copy = half_copy;
    else amp__free(half_copy);
  }
  if (amp_likely(done)) {
    int ties = 0, last = call->op->info.flags & AMP_F_NODIFF_OUT1 ? 1 : call->nout;
    for (int i = 0; i < last; i++) {
      amp_tensor *tensor = call->out[i];
      if (!amp__has_gradient(tensor->dtype)) continue;
      AMP_ASSERT(tensor->ag && tensor->ag->node == NULL);
      tensor->ag->node = node;
      tensor->ag->index = i;
      tensor->flags |= AMP_T_HISTORY;
      ties++;
    }
    if (node->nsaved) /* a kernel may have filled a result by ops of its own */
      for (int i = call->nin; i < call->nin + call->nout; i++)
        if (node->saved[i].tensor) node->saved[i].version = amp__version(node->saved[i].tensor);
    amp__S->recorded++;
    if (ties > 1) atomic_fetch_add_explicit(&node->refs, ties - 1, memory_order_relaxed);
    if (ties) return; /* the count we had is the first tie's */
  }
  amp__node_free(node);
}

static int record(amp_call *call)
{
  amp_node *node;
  int status = record_begin(call, &node);
  if (status == 0 && node) record_end(call, node, NULL, true);
  return status;
}

/* A view knows its base, so that changes through either reach the other's history. */
static int record_view(amp_call *call)
{
  amp_tensor *tensor = call->in[0], *base = tensor->ag && tensor->ag->base ? tensor->ag->base : tensor;
  if (!amp__has_gradient(tensor->dtype)) return 0;
  for (int i = 0; i < call->nout; i++) {
    amp_tensor *value = call->out[i];
    amp_ag *ag = amp__ag(value);
    if (ag == NULL) return amp__S->err.code;
    AMP_ASSERT(ag->base == NULL && value->storage == tensor->storage);
    amp__retain(base);
    ag->base = base;
    ag->view_version = amp__version(value);
  }
  return amp__tracked(tensor) ? record(call) : 0;
}

/* -- In place ----------------------------------------------------------------- */

int amp__check_inplace(const amp_tensor *tensor)
{
  const amp_tensor *base = tensor->ag ? tensor->ag->base : NULL;
  if ((tensor->flags & AMP_T_REQUIRES_GRAD) && !(tensor->flags & AMP_T_HISTORY))
    return amp__fail(AMP_E_AUTOGRAD,
                     "a leaf that requires grad can't be changed in place while gradients are recorded; do it inside "
                     "amp.no_grad(function() ... end)");
  if (base && !amp__lies_in(tensor, base))
    return amp__fail(
        AMP_E_AUTOGRAD,
        "a view of a tensor whose data was replaced, or that it reaches beyond, can't be changed in place while "
        "gradients are recorded; use :clone() first");
  if (base && (base->flags & AMP_T_REQUIRES_GRAD) && !(base->flags & AMP_T_HISTORY))
    return amp__fail(
        AMP_E_AUTOGRAD,
        "a view of a leaf that requires grad can't be changed in place while gradients are recorded; do it "
        "inside amp.no_grad(function() ... end)");
  if (base == NULL && (tensor->flags & AMP_T_UNRECORDED))
    return amp__fail(
        AMP_E_AUTOGRAD,
        "a view that was made inside amp.no_grad can't be changed in place while gradients are recorded: the "
        "tensor it is a view of would not know; make the view outside, or use :clone()");
  if (base && !(base->flags & AMP_T_DENSE))
    return amp__fail(
        AMP_E_AUTOGRAD,
        "a view of a tensor with gaps in memory can't be changed in place while gradients are recorded; use "
        ":clone() first");
  if (!amp__has_gradient(tensor->dtype))
    return amp__fail(AMP_E_DTYPE, "a tensor of dtype %s can't take a value that requires grad",
                     amp_dtype_name(tensor->dtype));
  return 0;
}

/* A view's op, as its base sees it. */
static amp_node *slices_node(amp_call *call, amp_node *fn, amp_tensor *tensor, amp_tensor *base)
{
  amp_node *stored = amp__node_new(call->id, call->nin, 1, 0, 0, AMP_MAX_DIM);
  if (stored == NULL) return NULL;
  if ((stored->slices = amp__obj_alloc(sizeof *stored->slices)) == NULL) {
    amp__nomem(sizeof *stored->slices);
    amp__node_free(stored);
    return NULL;
  }
  stored->flags |= AMP_N_SLICES;
  stored->slices->function = fn;
  atomic_fetch_add_explicit(&fn->refs, 1, memory_order_relaxed);
  stored->slices->ndim = tensor->ndim;
  memcpy(stored->slices->size, tensor->size, sizeof tensor->size);
  memcpy(stored->slices->stride, tensor->stride, sizeof tensor->stride);
  stored->slices->offset = tensor->offset - base->offset;
  amp__physical_order(base, stored->slices->order);
  set_shape(amp__shape_of(stored, 0), base);
  set_shape(amp__shape_of(stored, call->nin), base);
  if (amp__node_edge(stored, 0, base) < 0) {
    amp__node_free(stored);
    return NULL;
  }
  for (int i = 1; i < call->nin; i++) {
    set_shape(amp__shape_of(stored, i), call->in[i]);
    stored->edge[i] = fn->edge[i];
    if (stored->edge[i].node) atomic_fetch_add_explicit(&stored->edge[i].node->refs, 1, memory_order_relaxed);
    if (stored->edge[i].leaf) amp__retain(stored->edge[i].leaf);
  }
  return stored;
}

/* The history that an in-place op will give its receiver (call->out[0]) and, if that is a view, its base. */
static int rebase_begin(amp_call *call, amp_rebase *r)
{
  amp_tensor *tensor = call->out[0], *base, *copy = NULL;
  int status = amp__check_inplace(tensor);
  if (status < 0) return status;
  if (amp__ag(tensor) == NULL) return amp__S->err.code;
  base = tensor->ag->base;
  if (base && amp__ag(base) == NULL) return amp__S->err.code;
  if (base == NULL && call->op->bwd == NULL) return 0; /* filled without regard to what was there */
  for (int i = 0; i < call->nin && i < 8 && copy == NULL; i++)
    if (call->in[i] && (call->op->save >> i & 1) && amp__same_place(call->in[i], tensor)
        && (copy = amp__raw_clone(tensor)) == NULL)
      return amp__S->err.code;
  r->node = make_node(call, copy);
  amp__free(copy);
  if (r->node && base && (r->outer = slices_node(call, r->node, tensor, base)) == NULL) {
    amp__node_free(r->node);
    r->node = NULL;
  }
  return r->node ? 0 : amp__S->err.code;
}

static void rebase_end(amp_call *call, amp_rebase *r, bool done)
{
  amp_tensor *tensor = call->out[0];
  amp_node *node = r->node;
  if (done && node == NULL) forget_history(tensor);
  else if (done) {
    for (int i = 0; i < node->nsaved;
         i++) /* what lies beside the receiver did not change, and the result is the new one */
      if (node->saved[i].tensor && node->saved[i].tensor->storage == tensor->storage)
        node->saved[i].version = amp__version(tensor);
    if (r->outer) {
      (void)amp__tie(tensor->ag->base, r->outer, 0);
      tensor->flags |= AMP_T_HISTORY; /* its node is made anew from the base at next use */
    } else (void)amp__tie(tensor, node, 0);
    amp__S->recorded++;
  }
  if (r->outer) amp__node_free(r->outer);
  if (node) amp__node_free(node);
}

/* Dimensions of tensor from the outermost in memory to the innermost. */
void amp__physical_order(const amp_tensor *tensor, int8_t *order)
{
  for (int i = 0; i < AMP_MAX_DIM; i++) order[i] = (int8_t)i;
  if (tensor->flags & AMP_T_CONTIGUOUS) return;
  for (int i = 1; i < tensor->ndim && i < AMP_MAX_DIM; i++) {
    int8_t x = order[i];
    int j = i;
    for (; j > 0 && tensor->stride[order[j - 1]] < tensor->stride[x]; j--) order[j] = order[j - 1];
    order[j] = x;
  }
}

/* tensor seen in memory order, recorded; from the pool. A base that has gaps can't be. */
amp_tensor *amp__physical(amp_tensor *tensor)
{
  if (tensor->flags & AMP_T_CONTIGUOUS) return tensor;
  if (!(tensor->flags & AMP_T_DENSE)) {
    amp__fail(AMP_E_AUTOGRAD, "a view of a tensor with gaps in memory was changed in place; use :clone() first");
    return NULL;
  }
  int8_t order[AMP_MAX_DIM];
  int64_t dims[AMP_MAX_DIM];
  amp__physical_order(tensor, order);
  for (int i = 0; i < tensor->ndim; i++) dims[i] = order[i] + 1;
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, tensor->ndim, dims);
  return amp__op(AMP_OP_permute, &attrs, 1, &tensor);
}

static void data_replaced(amp_tensor *tensor) { amp__shadow_drop(tensor->ag); }

void amp__autograd_install(void)
{
  amp__hooks.tensor_dies = tensor_dies;
  amp__hooks.data_replaced = data_replaced;
  amp__hooks.view_refresh = view_refresh;
  amp__hooks.record_view = record_view;
  amp__hooks.record_begin = record_begin;
  amp__hooks.record_end = record_end;
  amp__hooks.rebase_begin = rebase_begin;
  amp__hooks.rebase_end = rebase_end;
}
