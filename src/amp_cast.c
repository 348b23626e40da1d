/*
** amp_cast.c: autocast. What class an op has decides which of its float inputs
** are cast before its kernel runs; the casts are recorded like any op.
**
** The cast of a weight (a float32 leaf that requires grad) is a *shadow*: a
** low-precision copy the leaf owns, right for one version of it. Each use gets
** an alias of the shadow with a fresh edge to the leaf, so history is never
** lost and never shared between losses; no kernel runs until the leaf changes.
** Views of a leaf use views of its shadow. A shadow never keeps its leaf alive:
** the leaf points to it. Shadows no optimizer owns go when the outermost
** region ends; those of exposed storage are right for one region only.
** Regions themselves are Lua's: it writes the state's autocast fields.
*/
#include <pthread.h>
#include "amp_compose.h"
#include "amp_tape.h"

/* -- Shadows ------------------------------------------------------------------ */

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;

static void list_add(amp_ag *ag)
{
  pthread_mutex_lock(&list_lock);
  if (ag->list_owner == NULL) {
    struct amp_state_private *p = amp__S->priv;
    ag->list_owner = amp__S;
    ag->prev = NULL;
    ag->next = p->shadows;
    if (p->shadows) p->shadows->prev = ag;
    p->shadows = ag;
  }
  pthread_mutex_unlock(&list_lock);
}

static void list_remove(amp_ag *ag)
{
  if (ag->list_owner == NULL) return;
  pthread_mutex_lock(&list_lock);
  if (ag->list_owner) {
    if (ag->prev) ag->prev->next = ag->next;
    else ag->list_owner->priv->shadows = ag->next;
    if (ag->next) ag->next->prev = ag->prev;
    ag->prev = ag->next = NULL;
    ag->list_owner = NULL;
  }
  pthread_mutex_unlock(&list_lock);
}

void amp__shadow_drop(amp_ag *ag)
{
  list_remove(ag);
  amp__free(ag->shadow);
  ag->shadow = NULL;
}

/* The state goes away: leaves outlive it, so unlink them all. */
void amp__shadow_forget(amp_state *S)
{
  pthread_mutex_lock(&list_lock);
  for (amp_ag *ag = S->priv->shadows, *next; ag; ag = next) {
    next = ag->next;
    ag->prev = ag->next = NULL;
    ag->list_owner = NULL;
  }
  S->priv->shadows = NULL;
  pthread_mutex_unlock(&list_lock);
}

void amp_autocast_leave(amp_state *S)
{
  AMP_ENTER(S);
  S->priv->region_epoch++;
  for (amp_ag *ag = S->priv->shadows, *next; ag; ag = next) {
    next = ag->next;
    if (!ag->shadow_owned) amp__shadow_drop(ag);
  }
}

void amp_clear_autocast_cache(amp_state *S)
{
  AMP_ENTER(S);
  while (S->priv->shadows) amp__shadow_drop(S->priv->shadows);
}

static bool shadow_current(const amp_tensor *leaf, int dtype)
{
  const amp_ag *ag = leaf->ag;
  if (ag == NULL || ag->shadow == NULL || ag->shadow->dtype != dtype) return false;
  if (ag->shadow_version != amp__version(leaf)) return false;
  /* what others can write without a version is trusted within one region */
  return !(leaf->storage->flags & (AMP_S_EXPOSED | AMP_S_FOREIGN)) || ag->shadow_epoch == amp__S->priv->region_epoch;
}

static int fill_shadow(amp_tensor *leaf, int dtype)
{
  amp_ag *ag = amp__ag(leaf);
  amp_state *S = amp__S;
  if (ag == NULL) return S->err.code;
  if (ag->shadow && (ag->shadow->dtype != dtype || !amp__same_size(ag->shadow, leaf))) {
    amp__free(ag->shadow);
    ag->shadow = NULL;
  }
  if (ag->shadow == NULL) {
    amp_meta m;
    amp__meta_of(leaf, &m);
    m.dtype = (uint8_t)dtype;
    m.strides = (leaf->flags & AMP_T_DENSE) != 0 && !(leaf->flags & AMP_T_CONTIGUOUS);
    if ((ag->shadow = amp__tensor_new(&m)) == NULL) return S->err.code;
    list_add(ag);
  }
  int32_t grad_mode = S->grad_mode, autocast_on = S->autocast_on;
  S->grad_mode = 0;
  S->autocast_on = 0;
  amp_tensor *in[2] = { ag->shadow, leaf };
  int rc = amp__dispatch(AMP_OP_copy, AMP_INPLACE, in, 2, NULL, NULL);
  S->grad_mode = grad_mode;
  S->autocast_on = autocast_on;
  if (rc < 0) return rc;
  ag->shadow_version = amp__version(leaf);
  ag->shadow_epoch = S->priv->region_epoch;
  S->casts++;
  return 0;
}

amp_tensor *amp__shadow(amp_tensor *leaf, int dtype)
{
  if (shadow_current(leaf, dtype)) amp__S->cached_casts++;
  else if (fill_shadow(leaf, dtype) < 0) return NULL;
  return leaf->ag->shadow;
}

/* The leaf whose shadow serves t: t itself, or the leaf that t is a view of. */
static amp_tensor *shadowed(amp_tensor *t)
{
  amp_tensor *leaf = t;
  if (t->dtype != AMP_FLOAT32) return NULL;
  if (t->flags & AMP_T_HISTORY) {
    if (!(t->flags & AMP_T_VIEW) || t->ag == NULL || t->ag->base == NULL) return NULL;
    leaf = t->ag->base;
    if (leaf->dtype != AMP_FLOAT32 || !(leaf->flags & AMP_T_DENSE) || leaf->storage != t->storage) return NULL;
  }
  return (leaf->flags & AMP_T_REQUIRES_GRAD) && !(leaf->flags & AMP_T_HISTORY) ? leaf : NULL;
}

/* An alias of the shadow as t lies in it, tied to t by a cast node. */
static amp_tensor *from_shadow(amp_tensor *t, amp_tensor *leaf, int dtype)
{
  amp_tensor *s = amp__shadow(leaf, dtype);
  if (s == NULL) return NULL;
  amp_tensor *v = t == leaf ? amp__tensor_alias(s) : amp__tensor_view(s, t->ndim, t->size, t->stride, s->offset + t->offset - leaf->offset);
  if (v == NULL || !amp__S->grad_mode) return v;
  amp_node *n = amp__node_new(AMP_OP_cast, 1, 1, 1, 0, t->ndim);
  if (n == NULL) { amp__free(v); return NULL; }
  n->flags |= AMP_N_CAST;
  n->a[0].i = dtype;
  for (int i = 0; i < 2; i++) {
    amp_shape *p = amp__shape_of(n, i);
    p->dtype = i ? (uint8_t)dtype : AMP_FLOAT32;
    p->ndim = t->ndim;
    p->device = t->device;
    p->device_index = t->device_index;
    memcpy(p->size, t->size, sizeof(int64_t) * t->ndim);
  }
  n->edge[0] = amp__edge_of(t);
  int rc = amp__tie(v, n, 0);
  amp__node_free(n);
  if (rc < 0) { amp__free(v); return NULL; }
  amp__S->recorded++;
  return v;
}

amp_tensor *amp__cast(amp_tensor *t, int dtype)
{
  amp_state *S = amp__S;
  if (t->dtype == dtype) { amp__retain(t); return t; }
  amp_tensor *leaf = amp__is_half(dtype) && S->autocast[t->device].cache ? shadowed(t) : NULL;
  if (leaf) return from_shadow(t, leaf, dtype);
  amp_tensor *out[AMP_MAX_OUT] = { NULL };
  amp_slot a = { .i = dtype };
  int32_t autocast_on = S->autocast_on;
  S->autocast_on = 0;
  int rc = amp__dispatch(AMP_OP_cast, 0, &t, 1, out, &a);
  S->autocast_on = autocast_on;
  if (rc < 0) return NULL;
  S->casts++;
  return out[0];
}

/* -- Policy ---------------------------------------------------------------------- */

/* Float tensors that a region of their device may cast. */
static bool eligible(const amp_state *S, const amp_tensor *t)
{
  return t && !(t->flags & AMP_T_NUMBER) && S->autocast[t->device].enabled
         && (t->dtype == AMP_FLOAT32 || amp__is_half(t->dtype));
}

static int cast_input(amp_call *c, int i, int dtype, amp_tensor **owned, int *nowned)
{
  amp_tensor *t = c->in[i];
  amp_state *S = amp__S;
  if (t->dtype == dtype) return 0;
  int64_t cached = S->cached_casts;
  amp_tensor *u = amp__cast(t, dtype);
  if (u == NULL) return S->err.code;
  if (S->autocast[t->device].verbose)
    amp__log("amp: %s: argument %d from %s to %s, %s%s", c->op->info.name, i + 1, amp_dtype_name(t->dtype), amp_dtype_name(dtype),
             amp__shape_str(t->ndim, t->size), S->cached_casts > cached ? ", cached" : "");
  c->in[i] = owned[(*nowned)++] = u;
  return 0;
}

static int cast_all(amp_call *c, int dtype, amp_tensor **owned, int *nowned)
{
  for (int i = 0; i < c->nin; i++) {
    if (!eligible(amp__S, c->in[i])) continue;
    int rc = cast_input(c, i, dtype < 0 ? amp__S->autocast[c->in[i]->device].dtype : dtype, owned, nowned);
    if (rc < 0) return rc;
  }
  return 0;
}

static int check_double(const amp_call *c)
{
  const amp_tensor *dbl = NULL, *other = NULL;
  for (int i = 0; i < c->nin; i++) {
    const amp_tensor *t = c->in[i];
    if (t == NULL || !amp__is_float(t->dtype) || (t->flags & AMP_T_NUMBER)) continue;
    if (t->dtype == AMP_FLOAT64) dbl = t; else other = t;
  }
  if (dbl && other && (amp__S->autocast[dbl->device].enabled))
    return amp__fail(AMP_E_DTYPE, "autocast leaves float64 alone, and this op wants equal dtypes: got float64 and %s; cast one of them", amp_dtype_name(other->dtype));
  return 0;
}

static int cast_to_widest(amp_call *c, amp_tensor **owned, int *nowned)
{
  int widest = -1, rc;
  bool any = false;
  for (int i = 0; i < c->nin; i++) {
    const amp_tensor *t = c->in[i];
    if (t == NULL || !amp__is_float(t->dtype) || (t->flags & AMP_T_NUMBER)) continue;
    widest = widest < 0 ? t->dtype : amp__promote(widest, t->dtype);
    any |= eligible(amp__S, t);
  }
  if (!any) return 0;
  for (int i = 0; i < c->nin; i++)
    if (eligible(amp__S, c->in[i]) && (rc = cast_input(c, i, widest, owned, nowned)) < 0) return rc;
  return 0;
}

int amp__autocast(amp_call *c, amp_tensor **owned, int *nowned)
{
  const amp_op_desc *d = c->op;
  int rc;
  switch (atomic_load_explicit(&d->policy, memory_order_relaxed)) {
  case AMP_LOWER:
    if ((rc = check_double(c)) < 0) return rc;
    return cast_all(c, -1, owned, nowned);
  case AMP_FP32_UNLESS_DTYPE:
    if (d->dtype_slot >= 0 && c->a[d->dtype_slot].i != AMP_NONE) return 0;
    return cast_all(c, AMP_FLOAT32, owned, nowned);
  case AMP_FP32:
    return cast_all(c, AMP_FLOAT32, owned, nowned);
  case AMP_PROMOTE:
    return cast_to_widest(c, owned, nowned);
  case AMP_BANNED:
    if (c->in[0] && eligible(amp__S, c->in[0]) && amp__S->autocast[c->in[0]->device].dtype == AMP_FLOAT16 && !amp__S->allow_banned)
      return amp__fail(AMP_E_DTYPE, "it is unsafe in a float16 region, where its logarithms overflow; use bce_with_logits on the values before the sigmoid, or allow_banned = true");
    return cast_all(c, AMP_FLOAT32, owned, nowned);
  default:
    return 0;
  }
}
