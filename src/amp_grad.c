/*
** amp_grad.c: the gradient a leaf owns, hooks, functions that live in Lua, and the
** gradient of one at which a backward begins.
**
** A gradient is a record (amp_grad): a value, maybe still in 16 bits as the
** cast of the weight left it, maybe with a factor (1/scale, clipping) pending
** in a float32 cell, and the check it last went through. Whoever looks at it
** gets one stable tensor of the leaf's dtype: it is materialised first, and
** from then on `visible`. Sums are made in the leaf's dtype, in place.
** What a check or a factor means is amp_scale.c's business.
*/
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include "amp_bwd.h"
#include "amp_scale.h"
#include "amp_tape.h"

/* -- Ids of what is gone ------------------------------------------------------ */

/* An id belongs to the state it was made in: its low bits say whose list it comes to. Places in the table are
** used again; an id of a former owner does no harm, as no id is made twice. */
enum { PLACES = 4096 };
static pthread_mutex_t dead_lock = PTHREAD_MUTEX_INITIALIZER;
static struct { int64_t *id; int n, cap, states; } dead[PLACES];
static _Atomic int64_t last_id;

int64_t amp__new_id(void) { return (atomic_fetch_add(&last_id, 1) + 1) * PLACES + amp__S->priv->ids; }

void amp__dead_open(amp_state *S)
{
  int k = 0;
  pthread_mutex_lock(&dead_lock);
  while (k < PLACES - 1 && dead[k].states) k++; /* more states than places share the last one */
  dead[k].states++;
  S->priv->ids = k;
  pthread_mutex_unlock(&dead_lock);
}

void amp__dead_close(amp_state *S)
{
  int k = S->priv->ids;
  pthread_mutex_lock(&dead_lock);
  if (--dead[k].states == 0) {
    free(dead[k].id);
    dead[k].id = NULL;
    dead[k].n = dead[k].cap = 0;
  }
  pthread_mutex_unlock(&dead_lock);
}

/* Never fails its caller: without memory for the list the id stays, and with it a Lua closure. */
void amp__dead_push(int64_t id)
{
  int k = (int)(id % PLACES);
  pthread_mutex_lock(&dead_lock);
  if (dead[k].n == dead[k].cap && dead[k].states) {
    int cap = dead[k].cap ? dead[k].cap * 2 : 64;
    int64_t *p = realloc(dead[k].id, sizeof *p * (size_t)cap);
    if (p) { dead[k].id = p; dead[k].cap = cap; }
  }
  if (dead[k].n < dead[k].cap) dead[k].id[dead[k].n++] = id;
  pthread_mutex_unlock(&dead_lock);
  /* another state's fields are its own thread's: it finds out when it next paces the collector */
  if (amp__S && amp__S->priv->ids == k) amp__S->attention |= AMP_A_DEAD;
}

int64_t amp_dead_next(amp_state *S)
{
  AMP_ENTER(S);
  int k = S->priv->ids;
  pthread_mutex_lock(&dead_lock);
  int64_t id = dead[k].n ? dead[k].id[--dead[k].n] : 0;
  pthread_mutex_unlock(&dead_lock);
  return id;
}

/* -- Reading and writing -------------------------------------------------------- */

static void forget_check(amp_grad *g)
{
  if (g->check) amp_check_free(g->check);
  g->check = NULL;
}

void amp__grad_clear(amp_tensor *leaf)
{
  amp_ag *ag = leaf->ag;
  if (ag == NULL) return;
  if (amp_unlikely(amp__capturing)) amp__capture_gradient(leaf, true);
  amp__free(ag->grad.value);
  amp__free(ag->grad.factor);
  amp__free(ag->grad.scale);
  ag->grad.value = NULL;
  ag->grad.factor = NULL;
  ag->grad.scale = NULL;
  forget_check(&ag->grad);
  ag->grad.visible = ag->grad.given = 0;
  ag->grad.origin = 0;
}

int amp__grad_adopt(amp_tensor *leaf, amp_tensor *v)
{
  amp_ag *ag = v || leaf->ag ? amp__ag(leaf) : NULL;
  if (ag == NULL) return v ? amp__S->err.code : 0;
  if (v) amp__retain(v);
  amp__grad_clear(leaf);
  ag->grad.value = v;
  return 0;
}

/* With grad mode and autocast off; results from the pool. */
typedef struct quiet { int32_t grad_mode, autocast_on; int mark; } quiet;
static quiet quiet_begin(void)
{
  quiet q = { amp__S->grad_mode, amp__S->autocast_on, amp__pool_mark() };
  amp__S->grad_mode = 0;
  amp__S->autocast_on = 0;
  return q;
}
static void quiet_end(quiet q)
{
  amp__pool_release(q.mark);
  amp__S->grad_mode = q.grad_mode;
  amp__S->autocast_on = q.autocast_on;
}

static bool same_layout(const amp_tensor *a, const amp_tensor *b)
{
  if (!amp__same_size(a, b)) return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->size[i] > 1 && a->stride[i] != b->stride[i]) return false;
  return true;
}

/* A tensor like the leaf (layout too, where it is dense), of dtype, not filled. Counted. */
static amp_tensor *like_leaf(const amp_tensor *leaf, int dtype)
{
  amp_meta m;
  amp__meta_of(leaf, &m);
  m.dtype = (uint8_t)dtype;
  m.strides = (leaf->flags & AMP_T_DENSE) != 0 && !(leaf->flags & AMP_T_CONTIGUOUS);
  return amp__tensor_new(&m);
}

/* dst = src, converted; both of one shape. */
static int copy_into(amp_tensor *dst, amp_tensor *src)
{
  amp_tensor *in[2] = { dst, src };
  return amp__dispatch(AMP_OP_copy, AMP_INPLACE, in, 2, NULL, NULL);
}

static int inplace2(int op, amp_tensor *a, amp_tensor *b)
{
  amp_tensor *in[2] = { a, b };
  return amp__dispatch(op, AMP_INPLACE, in, 2, NULL, NULL);
}

int amp__grad_materialize(amp_tensor *leaf)
{
  if (leaf->ag == NULL || leaf->ag->grad.value == NULL) return 0;
  amp_grad *g = &leaf->ag->grad;
  if (g->factor == NULL && g->value->dtype == leaf->dtype) return 0;
  int rc = 0;
  bool valid = amp__check_valid(g);
  int origin = amp__grad_origin(g);
  quiet q = quiet_begin();
  amp_tensor *v = g->value;
  if (v->dtype != leaf->dtype) {
    if ((v = like_leaf(leaf, leaf->dtype)) == NULL) { rc = amp__S->err.code; goto out; }
    if ((rc = copy_into(v, g->value)) < 0) { amp__free(v); goto out; }
  }
  if (g->factor && (rc = inplace2(AMP_OP_mul, v, g->factor)) < 0) { if (v != g->value) amp__free(v); goto out; }
  if (v != g->value) { amp__free(g->value); g->value = v; }
  amp__free(g->factor);
  g->factor = NULL;
  if (valid) g->version = amp__version(v);
  amp__grad_from(g, origin);
out:
  quiet_end(q);
  return rc;
}

/* May v, of which we hold the only count, be the gradient itself? */
static bool may_own(const amp_tensor *leaf, const amp_tensor *v)
{
  return v->refs == 1 && atomic_load_explicit(&v->storage->refs, memory_order_relaxed) == 1 && v->offset == 0
         && (v->flags & AMP_T_DENSE) && !(v->storage->flags & (AMP_S_EXPOSED | AMP_S_FOREIGN)) && same_layout(leaf, v);
}

/* What amp__grad_accumulate does in create_graph, where the gradient has history itself, in the leaf's dtype. */
static int accumulate_recorded(amp_tensor *leaf, amp_tensor *v, int origin, amp_tensor *scale)
{
  amp_grad *g = &leaf->ag->grad;
  int rc = 0, mark = amp__pool_mark();
  amp_tensor *sum = v->dtype == leaf->dtype ? v : amp__xcast(v, leaf->dtype);
  if (g->value == NULL && sum == v && !may_own(leaf, v)) sum = X1(clone, v); /* others hold it: the gradient is the leaf's own */
  if (g->value && sum && (rc = amp__grad_materialize(leaf)) == 0) sum = X2(add, g->value, sum);
  if (rc == 0 && sum == NULL) rc = amp__S->err.code;
  if (rc == 0) {
    amp__retain(sum);
    if (scale) amp__retain(scale);
    amp__grad_clear(leaf);
    g->value = sum;
    g->scale = scale;
    amp__grad_from(g, origin);
  }
  amp__pool_release(mark);
  if (rc == 0) amp__free(v);
  return rc;
}

/* Add v (counted, any float dtype, the leaf's shape) to the leaf's gradient, and take it; what fails leaves v and the gradient's value
** as they are. may_keep: 16 bits may stay. */
int amp__grad_accumulate(amp_tensor *leaf, amp_tensor *v, bool may_keep)
{
  amp_ag *ag = amp__ag(leaf);
  int rc = 0;
  if (ag == NULL) return amp__S->err.code;
  amp_grad *g = &ag->grad;
  if (amp_unlikely(amp__capturing)) amp__capture_gradient(leaf, false);
  if (amp__grad_dropped(leaf, false) || g->given) amp__grad_clear(leaf);
  amp_tensor *scale = NULL;
  if (g->value && (rc = amp__grad_drop_there(leaf)) < 0) return rc;
  if ((amp_unlikely(g->scale != NULL) || amp__S->priv->origin > AMP_O_MIXED) && (rc = amp__grad_meet(leaf, &scale)) < 0) return rc;
  int origin = amp__origin_of_sum(amp__grad_origin(g), amp__S->priv->origin);
  if (amp__S->grad_mode) return accumulate_recorded(leaf, v, origin, scale);
  quiet q = quiet_begin();
  if (g->value == NULL) {
    bool keep16 = may_keep && amp__is_half(v->dtype) && leaf->dtype == AMP_FLOAT32;
    int dtype = keep16 ? v->dtype : leaf->dtype;
    if (v->dtype == dtype && may_own(leaf, v)) {
      g->value = v;
      v = NULL;
    } else {
      amp_tensor *own = like_leaf(leaf, dtype);
      if (own == NULL) rc = amp__S->err.code;
      else if ((rc = copy_into(own, v)) < 0) amp__free(own);
      else g->value = own;
    }
    g->visible = 0;
    forget_check(g);
  } else if ((rc = amp__grad_materialize(leaf)) == 0) {
    if (g->value->flags & AMP_T_HISTORY) { /* a gradient of gradients: don't touch what it is part of */
      amp_tensor *sum = X2(add, g->value, v);
      if (sum == NULL) rc = amp__S->err.code;
      else { amp__retain(sum); amp__free(g->value); g->value = sum; g->given = 0; }
    } else rc = inplace2(AMP_OP_add, g->value, v);
    forget_check(g);
  }
  if (g->value && rc == 0) {
    amp__grad_from(g, origin);
    amp__grad_scale_put(g, scale);
    amp__free(v);
  }
  quiet_end(q);
  return rc;
}

amp_tensor *amp__grad_to_add(amp_bwd *b, int i)
{
  amp_tensor *leaf = b->node->edge[i].leaf;
  amp_grad *g = leaf && leaf->ag ? &leaf->ag->grad : NULL;
  if (!b->accumulates || !g || !g->value || g->given || leaf->ag->hook || amp__S->grad_mode || (g->value->flags & AMP_T_HISTORY)) return NULL;
  if (amp_unlikely(amp__observing()) || g->check || !amp__grad_meets_same(g)) return NULL;
  if (amp_unlikely(amp__capturing)) amp__capture_gradient(leaf, false);
  if (amp__grad_materialize(leaf) < 0) return NULL; /* the usual way will say why */
  amp__grad_from(g, amp__origin_of_sum(amp__grad_origin(g), amp__S->priv->origin));
  g->made++; /* of the version that it has when the caller has added */
  return g->value;
}

void amp__grad_not_added(amp_bwd *b, int i) { b->node->edge[i].leaf->ag->grad.made--; }

int amp_grad_defined(const amp_ref *a)
{
  return a && a->t && a->t->ag && a->t->ag->grad.value != NULL && !amp__grad_dropped(a->t, false);
}

/* A value that a master has as well (amp_master.c) is copied before anybody changes it. */
static int unshare(amp_grad *g)
{
  if (g->given < 2 || (g->value->flags & AMP_T_HISTORY)) return 0;
  if (g->value->refs > 1) {
    int origin = amp__grad_origin(g);
    amp_tensor *own = amp__raw_clone(g->value);
    if (own == NULL) return amp__S->err.code;
    amp__free(g->value);
    g->value = own;
    amp__grad_from(g, origin);
  }
  g->given = 1;
  return 0;
}

int amp_grad_get(amp_state *S, amp_ref *out, const amp_ref *a)
{
  AMP_ENTER(S);
  if (a->t == NULL) return amp__fail(AMP_E_ARGUMENT, "a tensor that was freed has no gradient");
  out->t = NULL;
  if (a->t->ag == NULL || a->t->ag->grad.value == NULL) return 0;
  if (amp__grad_dropped(a->t, true)) return 0; /* it is there still: zero_grad may fill it, on every device alike */
  int rc = unshare(&a->t->ag->grad);
  if (rc < 0 || (rc = amp__grad_materialize(a->t)) < 0) return rc;
  a->t->ag->grad.visible = 1;
  out->t = a->t->ag->grad.value;
  amp__retain(out->t);
  return 0;
}

int amp_grad_set(amp_state *S, const amp_ref *a, const amp_ref *grad)
{
  AMP_ENTER(S);
  amp_tensor *t = a->t, *g = grad ? grad->t : NULL;
  if (t == NULL || (grad && g == NULL)) return amp__fail(AMP_E_ARGUMENT, "a tensor that was freed has no gradient");
  if (g == NULL) { amp__grad_clear(t); return 0; }
  if (!amp__same_size(t, g))
    return amp__fail(AMP_E_SHAPE, "a gradient of shape %s is given to a tensor of shape %s",
                     amp__shape_str(g->ndim, g->size), amp__shape_str(t->ndim, t->size));
  if (g->dtype != t->dtype)
    return amp__fail(AMP_E_DTYPE, "a gradient of dtype %s is given to a tensor of dtype %s; cast it first",
                     amp_dtype_name(g->dtype), amp_dtype_name(t->dtype));
  if (g->device != t->device || g->device_index != t->device_index)
    return amp__fail(AMP_E_DEVICE, "a gradient on %s is given to a tensor on %s", amp_device_name(g->device), amp_device_name(t->device));
  amp_ag *ag = amp__ag(t);
  if (ag == NULL) return S->err.code;
  if (ag->grad.value == g) { ag->grad.origin = 0; return 0; }
  if (g == t) return amp__fail(AMP_E_ARGUMENT, "a tensor can't be its own gradient; use :clone()");
  amp__retain(g);
  amp__grad_clear(t);
  ag->grad.value = g;
  ag->grad.visible = 1;
  return 0;
}

int amp_requires_grad(amp_state *S, const amp_ref *a, int on)
{
  AMP_ENTER(S);
  amp_tensor *t = a->t;
  if (t == NULL) return amp__fail(AMP_E_ARGUMENT, "the tensor was freed");
  amp__refresh(t);
  if (t->flags & AMP_T_HISTORY) {
    if (on) return 0;
    return amp__fail(AMP_E_AUTOGRAD, "only a leaf can stop requiring grad; this tensor was made by %s: use :detach()",
                     t->ag && t->ag->node ? amp__node_name(t->ag->node) : "an op");
  }
  if (on && !amp__is_float(t->dtype))
    return amp__fail(AMP_E_DTYPE, "only float tensors can require grad, this one is %s", amp_dtype_name(t->dtype));
  if (on) {
    if (amp__ag(t) == NULL) return S->err.code;
    t->flags |= AMP_T_REQUIRES_GRAD;
  } else t->flags &= ~(uint32_t)AMP_T_REQUIRES_GRAD;
  return 0;
}

/* -- Hooks and functions of Lua ---------------------------------------------------- */

int64_t amp_hook(amp_state *S, const amp_ref *a)
{
  AMP_ENTER(S);
  amp_tensor *t = a->t;
  if (t == NULL) return amp__fail(AMP_E_ARGUMENT, "the tensor was freed");
  amp__refresh(t);
  if (!amp__tracked(t)) return amp__fail(AMP_E_AUTOGRAD, "a hook needs a tensor that requires grad");
  amp_ag *ag = amp__ag(t);
  if (ag == NULL) return S->err.code;
  amp_edge e;
  int rc = amp__edge_of(t, &e);
  if (rc < 0) return rc;
  if (e.node == NULL) {
    amp__edge_free(&e);
    if (ag->hook == 0) ag->hook = amp__new_id();
    return ag->hook;
  }
  amp_node *n = e.node;
  int i = e.index;
  int64_t id = 0;
  if (n->hooks == NULL) {
    n->hooks = amp__obj_alloc(sizeof *n->hooks * n->nout);
    if (n->hooks) memset(n->hooks, 0, sizeof *n->hooks * n->nout);
  }
  if (n->hooks == NULL) id = amp__nomem(sizeof *n->hooks * n->nout);
  else {
    if (n->hooks[i] == 0) n->hooks[i] = amp__new_id();
    id = n->hooks[i] > 0 ? n->hooks[i] : amp__fail(AMP_E_AUTOGRAD, "the graph of this tensor was freed by an earlier backward; pass retain_graph = true to that one");
  }
  amp__node_free(n);
  return id;
}

int amp_function(amp_state *S, amp_tensor *const *in, int nin, amp_tensor *const *out, int nout, int64_t *id)
{
  AMP_ENTER(S);
  *id = 0;
  bool any = false;
  if (nin < 0 || nin > AMP_MAX_LIST || nout < 1 || nout > 255)
    return amp__fail(AMP_E_ARGUMENT, "a function of %d tensors with %d results; up to %d and 255 are possible", nin, nout, AMP_MAX_LIST);
  for (int i = 0; i < nin; i++) {
    if (in[i] == NULL || !amp__is_float(in[i]->dtype)) continue;
    amp__refresh(in[i]);
    any |= amp__tracked(in[i]);
  }
  if (!S->grad_mode || !any) return 0;
  amp_node *n = amp__node_new(AMP_NODE_LUA, nin, nout, 0, 0, AMP_MAX_DIM);
  if (n == NULL) return S->err.code;
  int rc = 0;
  for (int i = 0; i < nin + nout; i++) {
    const amp_tensor *t = i < nin ? in[i] : out[i - nin];
    amp_shape *s = amp__shape_of(n, i);
    s->dtype = t ? t->dtype : 0xff;
    s->ndim = t ? t->ndim : 0;
    if (t == NULL) continue;
    s->device = t->device;
    s->device_index = t->device_index;
    memcpy(s->size, t->size, sizeof(int64_t) * t->ndim);
    if (i < nin && amp__is_float(t->dtype) && (rc = amp__node_edge(n, i, in[i])) < 0) break;
  }
  for (int i = 0; i < nout && rc == 0; i++) /* what tying takes, before any result is tied */
    if (out[i] && amp__is_float(out[i]->dtype) && amp__ag(out[i]) == NULL) rc = S->err.code;
  for (int i = 0; i < nout && rc == 0; i++)
    if (out[i] && amp__is_float(out[i]->dtype)) rc = amp__tie(out[i], n, i);
  if (rc == 0) {
    n->id = *id = amp__new_id();
    n->flags |= AMP_N_LUA;
  }
  amp__node_free(n);
  return rc;
}

/* -- Where a backward begins -------------------------------------------------------- */

/* A gradient of one for a single value. A device's is kept, as to make one costs a launch: nobody may have changed it, or hold it.
** A captured step only reads what is there, and keeps that from then on. */
amp_tensor *amp__seed(const amp_tensor *t)
{
  struct amp_state_private *p = amp__S->priv;
  amp_tensor *one = p->one;
  bool capture = amp__capture_here(), right = one && one->dtype == t->dtype && one->device == t->device && one->device_index == t->device_index && one->refs == 1
      && (capture || one->storage->refs == 1) && amp__version(one) == p->one_version && p->one_stream == amp__stream_here(t->device, t->device_index);
  if (t->device == AMP_CPU || t->ndim > 0 || (capture && !right)) return amp__xfull(1, t->dtype, t->device, t->device_index, t->ndim, t->size);
  if (!right) {
    if ((one = amp__keep(amp__xfull(1, t->dtype, t->device, t->device_index, 0, NULL))) == NULL) return NULL;
    amp__free(p->one);
    p->one = one;
    p->one_version = amp__version(one);
    p->one_stream = amp__stream_here(t->device, t->device_index);
  }
  amp__retain(one);
  return amp__pooled(one);
}
