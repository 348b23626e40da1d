/*
** amp_cast.c: autocast. What class an op has decides which of its float inputs
** are cast before its kernel runs; the casts are recorded like any op.
**
** The cast of a weight (a float32 leaf that requires grad, or a module's
** parameter, frozen or not) is a *shadow*: a low-precision copy the leaf owns,
** right for one version of it. Each use gets an alias of the shadow with a fresh
** edge to the leaf, so history is never lost and never shared between losses; no
** kernel runs until the leaf changes. Views of a leaf use views of its shadow. A
** shadow never keeps its leaf alive: the leaf points to it. It lives until its
** leaf changes or dies, the cache is cleared or an allocation finds no memory;
** those of exposed storage are right for one region only, and those that a
** captured step makes go with its region: a replay makes them anew. A kernel may
** leave its result in 16 bits as well (its *twin*): the first cast takes that.
** Regions themselves are Lua's: it writes the state's autocast fields.
*/
#include <pthread.h>
#include "amp_compose.h"
#include "amp_tape.h"

/* -- Shadows ------------------------------------------------------------------ */

/* A leaf may serve several states in several threads at once, and be freed by any of them: lists and shadows
** change under this lock. While there is one state only, its uses of a shadow need none. */
static pthread_mutex_t shadow_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool holding __attribute__((tls_model("initial-exec")));
static _Atomic int64_t epochs;
_Atomic int amp__states;

static bool several(void) { return atomic_load_explicit(&amp__states, memory_order_relaxed) > 1; }

/* Take the lock, unless this thread has it: then what `took` says is no. */
static bool lock_shadows(void)
{
  if (holding) return false;
  pthread_mutex_lock(&shadow_lock);
  return holding = true;
}

static void unlock_shadows(bool took)
{
  if (!took) return;
  holding = false;
  pthread_mutex_unlock(&shadow_lock);
}

int64_t amp__new_epoch(void) { return atomic_fetch_add_explicit(&epochs, 1, memory_order_relaxed) + 1; }

static void list_add(amp_ag *ag)
{
  bool took = lock_shadows();
  if (ag->list_owner == NULL) {
    struct amp_state_private *p = amp__S->priv;
    ag->prev = NULL;
    ag->next = p->shadows;
    if (p->shadows) p->shadows->prev = ag;
    __atomic_store_n(&p->shadows, ag, __ATOMIC_RELAXED); /* its state looks whether there is one */
    __atomic_store_n(&ag->list_owner, amp__S, __ATOMIC_RELEASE);
  }
  unlock_shadows(took);
}

/* Under the lock. The last thing it touches is list_owner: once that is NULL, ag is its tensor's alone. */
static void unlist(amp_ag *ag)
{
  amp_tensor *shadow = ag->shadow;
  amp_state *owner = ag->list_owner;
  if (ag->prev) ag->prev->next = ag->next;
  else __atomic_store_n(&owner->priv->shadows, ag->next, __ATOMIC_RELAXED);
  if (ag->next) ag->next->prev = ag->prev;
  ag->prev = ag->next = NULL;
  ag->shadow = NULL;
  ag->shadow_is_model = 0;
  __atomic_store_n(&ag->list_owner, NULL, __ATOMIC_RELEASE);
  amp__free(shadow);
}

void amp__shadow_drop(amp_ag *ag)
{
  if (__atomic_load_n(&ag->list_owner, __ATOMIC_ACQUIRE)) {
    bool took = lock_shadows();
    if (ag->list_owner) unlist(ag);
    unlock_shadows(took);
  }
  amp__free(ag->shadow);
  ag->shadow = NULL;
  ag->shadow_is_model = 0;
}

/* Others can write it without giving it a version. */
static bool exposed(const amp_tensor *t) { return (t->storage->flags & (AMP_S_EXPOSED | AMP_S_FOREIGN)) != 0; }

enum { EXPOSED, UNOWNED, ALL };
/* Drop shadows in S's list: those of exposed storage; all that no optimizer keeps; all. */
static void drop_list(amp_state *S, int which)
{
  if (__atomic_load_n(&S->priv->shadows, __ATOMIC_RELAXED) == NULL) return;
  bool took = lock_shadows();
  for (amp_ag *ag = S->priv->shadows, *next; ag; ag = next) {
    next = ag->next;
    if (which == ALL || (!ag->shadow_owned && (which == UNOWNED || exposed(ag->self)))) unlist(ag);
  }
  unlock_shadows(took);
}

int amp__shadows_shed(int device)
{
  amp_state *S = amp__S;
  int n = 0;
  if (S == NULL || __atomic_load_n(&S->priv->shadows, __ATOMIC_RELAXED) == NULL) return 0;
  bool took = lock_shadows();
  for (amp_ag *ag = S->priv->shadows, *next; ag; ag = next) {
    next = ag->next;
    if (ag->shadow_owned || ag->self->device != device) continue;
    unlist(ag);
    n++;
  }
  unlock_shadows(took);
  return n;
}

void amp_autocast_leave(amp_state *S)
{
  AMP_ENTER(S);
  S->priv->region_epoch = amp__new_epoch();
  if (amp_unlikely(S->priv->capture != NULL)) drop_list(S, UNOWNED);
  else if (amp_unlikely(S->priv->passing)) drop_list(S, EXPOSED);
  S->priv->passing = false;
}

void amp__shadows_before_capture(void) { drop_list(amp__S, UNOWNED); }

void amp_clear_autocast_cache(amp_state *S)
{
  AMP_ENTER(S);
  drop_list(S, ALL);
}

static bool shadow_current(const amp_tensor *leaf, int dtype)
{
  const amp_ag *ag = leaf->ag;
  if (ag == NULL || ag->shadow == NULL || ag->shadow->dtype != dtype) return false;
  if (ag->shadow_version != amp__version(leaf)) return false;
  /* an op may have given the alias itself to the user, who wrote to it; what a step or the user writes to a model is meant */
  if (!ag->shadow_is_model && ag->shadow_stamp != amp__version(ag->shadow)) return false;
  return !exposed(leaf) || ag->shadow_epoch == amp__S->priv->region_epoch; /* trusted within one region */
}

/* A tensor for the shadow: the present one where nobody else reads it, or a new one (which is counted). */
static amp_tensor *shadow_memory(amp_tensor *leaf, int dtype)
{
  amp_tensor *s = leaf->ag->shadow;
  bool read = s && (several() || !leaf->ag->shadow_owned) && atomic_load_explicit(&s->storage->refs, memory_order_relaxed) > 1;
  if (s && !read && s->dtype == dtype && amp__same_size(s, leaf)) { amp__retain(s); return s; }
  amp_meta m;
  amp__meta_of(leaf, &m);
  m.dtype = (uint8_t)dtype;
  m.strides = (leaf->flags & AMP_T_DENSE) != 0 && !(leaf->flags & AMP_T_CONTIGUOUS);
  return amp__tensor_new(&m);
}

/* The copy takes effect when it is whole: an allocation on the way may shed shadows, this one's predecessor too. */
static int fill_shadow(amp_tensor *leaf, int dtype)
{
  amp_ag *ag = amp__ag(leaf);
  amp_state *S = amp__S;
  if (ag == NULL) return S->err.code;
  amp_tensor *s = shadow_memory(leaf, dtype), *in[2] = { s, leaf };
  if (s == NULL) return S->err.code;
  int32_t grad_mode = S->grad_mode, autocast_on = S->autocast_on;
  uint32_t version = amp__version(leaf);
  S->grad_mode = 0;
  S->autocast_on = 0;
  int rc = amp__dispatch(AMP_OP_copy, AMP_INPLACE, in, 2, NULL, NULL);
  S->grad_mode = grad_mode;
  S->autocast_on = autocast_on;
  if (rc < 0) { amp__free(s); return rc; }
  if (amp_unlikely(amp__streamed) && s->storage->block) amp__block_moved(s->storage->block); /* nobody sees that a stream filled it */
  if (ag->shadow != s) {
    amp__free(ag->shadow);
    ag->shadow = s;
    ag->shadow_is_model = 0;
  } else amp__free(s);
  list_add(ag);
  ag->shadow_version = version;
  ag->shadow_stamp = amp__version(s);
  ag->shadow_epoch = S->priv->region_epoch;
  if (exposed(leaf)) S->priv->passing = true;
  S->casts++;
  return 0;
}

amp_tensor *amp__shadow(amp_tensor *leaf, int dtype)
{
  if (shadow_current(leaf, dtype)) amp__S->cached_casts++;
  else if (fill_shadow(leaf, dtype) < 0) return NULL;
  if (amp_unlikely(amp__capturing)) amp__capture_shadow(leaf);
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
  if (!(leaf->flags & (AMP_T_REQUIRES_GRAD | AMP_T_WEIGHT)) || (leaf->flags & AMP_T_HISTORY)) return NULL;
  return exposed(leaf) && amp__S->autocast_depth == 0 ? NULL : leaf; /* outside of regions nothing says how long a copy may be trusted */
}

/* v (taken, may be NULL), t in dtype without a kernel's help, tied to t by a cast node; leaf: of whose shadow v is a part, or NULL */
static amp_tensor *tied(amp_tensor *v, amp_tensor *t, amp_tensor *leaf, int dtype)
{
  if (v == NULL || !amp__S->grad_mode || !amp__tracked(t)) return v;
  amp_node *n = amp__node_new(AMP_OP_cast, 1, 1, 1, leaf != NULL, t->ndim);
  if (n == NULL) { amp__free(v); return NULL; }
  n->flags |= AMP_N_CAST;
  if (leaf) {
    n->flags |= AMP_N_SHADOW;
    n->saved[0].t = leaf; /* what the copy was made of: later changes of it are changes of the copy */
    n->saved[0].version = amp__version(leaf);
    amp__retain(leaf);
  }
  n->a[0].i = dtype;
  for (int i = 0; i < 2; i++) {
    amp_shape *p = amp__shape_of(n, i);
    p->dtype = i ? (uint8_t)dtype : AMP_FLOAT32;
    p->ndim = t->ndim;
    p->device = t->device;
    p->device_index = t->device_index;
    memcpy(p->size, t->size, sizeof(int64_t) * t->ndim);
  }
  int rc = amp__node_edge(n, 0, t);
  if (rc == 0) rc = amp__tie(v, n, 0);
  amp__node_free(n);
  if (rc < 0) { amp__free(v); return NULL; }
  amp__S->recorded++;
  return v;
}

static amp_tensor *from_shadow(amp_tensor *t, amp_tensor *leaf, int dtype)
{
  bool took = several() && lock_shadows();
  amp_tensor *s = amp__shadow(leaf, dtype), *v = NULL;
  if (s) v = t == leaf ? amp__tensor_alias(s) : amp__tensor_view(s, t->ndim, t->size, t->stride, s->offset + t->offset - leaf->offset);
  unlock_shadows(took);
  return tied(v, t, leaf, dtype);
}

void amp__want_twin(amp_call *c)
{
  const amp_state *S = amp__S;
  const amp_meta *m = &c->meta[0];
  if (m->device == AMP_CPU || m->dtype != AMP_FLOAT32 || c->flags || !S->grad_mode || !S->autocast_on) return;
  const amp_autocast_state *a = &S->autocast[m->device];
  bool recorded = false;
  for (int i = 0; i < c->nin; i++) recorded |= c->in[i] && amp__tracked(c->in[i]);
  if (!recorded || !a->enabled || !amp__is_half(a->dtype)) return;
  amp__out(c, AMP_TWIN, a->dtype, m->ndim, m->size);
  c->twin = true;
}

/* The copy in 16 bits that t's maker left, if it is still one: it goes to the first who asks. */
static amp_tensor *take_twin(amp_tensor *t, int dtype)
{
  amp_tensor *twin = t->ag ? t->ag->twin : NULL;
  if (twin == NULL || twin->dtype != dtype || amp__version(t) != 0 || (t->storage->flags & (AMP_S_EXPOSED | AMP_S_FOREIGN))) return NULL;
  if (amp_unlikely(amp__capturing) && !amp__capture_made(twin)) return NULL; /* a replay makes it of what t is then */
  t->ag->twin = NULL;
  return twin;
}

amp_tensor *amp__cast(amp_tensor *t, int dtype)
{
  amp_state *S = amp__S;
  if (t->dtype == dtype) { amp__retain(t); return t; }
  amp_tensor *leaf = amp__is_half(dtype) && S->autocast[t->device].cache ? shadowed(t) : NULL;
  if (leaf) return from_shadow(t, leaf, dtype);
  amp_tensor *twin = take_twin(t, dtype);
  if (twin) {
    S->casts++;
    return tied(twin, t, NULL, dtype);
  }
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

/* A tensor that is given twice, as query, key and value often are, is cast once. */
static int cast_all(amp_call *c, int dtype, amp_tensor **owned, int *nowned)
{
  amp_tensor *given[AMP_MAX_IN];
  for (int i = 0; i < c->nin; i++) {
    int same = i < AMP_MAX_IN ? 0 : i;
    if (i < AMP_MAX_IN) given[i] = c->in[i];
    while (same < i && given[same] != c->in[i]) same++;
    if (!eligible(amp__S, c->in[i])) continue;
    if (same < i) {
      if (c->in[same] == c->in[i]) continue; /* has the dtype as it is */
      amp__retain(c->in[i] = owned[(*nowned)++] = c->in[same]);
      continue;
    }
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

/* Float inputs of a GPU, in 16 bits or float32, of which a region may cast each: kernels there can widen by themselves. */
static bool there(const amp_call *c)
{
  bool half = false;
  for (int i = 0; i < c->nin; i++) {
    const amp_tensor *t = c->in[i];
    if (t == NULL || !amp__is_float(t->dtype) || (t->flags & AMP_T_NUMBER)) continue;
    if (t->device == AMP_CPU || !eligible(amp__S, t) || amp__S->autocast[t->device].verbose) return false;
    half |= amp__is_half(t->dtype);
  }
  return half;
}

int amp__autocast(amp_call *c, amp_tensor **owned, int *nowned)
{
  const amp_op_desc *d = c->op;
  int rc;
  switch (amp__policy_of(c->id, c->a)) {
  case AMP_SPECIAL: /* recurrent layers as lower: data, states and weights alike; normalisation sees to itself */
    if (c->id != AMP_OP_rnn && c->id != AMP_OP_lstm && c->id != AMP_OP_gru) return 0;
    /* fall through */
  case AMP_LOWER:
    if ((rc = check_double(c)) < 0) return rc;
    return cast_all(c, -1, owned, nowned);
  case AMP_FP32_UNLESS_DTYPE:
    if (d->dtype_slot >= 0 && c->a[d->dtype_slot].i != AMP_NONE) return 0;
    return cast_all(c, AMP_FLOAT32, owned, nowned);
  case AMP_FP32:
    if ((d->info.flags & AMP_F_WIDENS) && there(c)) { c->flags |= AMP_WIDEN; return 0; }
    return cast_all(c, AMP_FLOAT32, owned, nowned);
  case AMP_PROMOTE:
    return cast_to_widest(c, owned, nowned);
  case AMP_BANNED:
    if (c->in[0] && eligible(amp__S, c->in[0]) && amp__S->autocast[c->in[0]->device].dtype == AMP_FLOAT16 && !amp__S->allow_banned)
      return amp__fail(AMP_E_DTYPE, c->id == AMP_OP_binary_cross_entropy
        ? "it does not run in a float16 region, whatever its arguments' dtypes: probabilities are made in float16 there, and their logarithms overflow; use "
          "binary_cross_entropy_with_logits (bce_with_logits) on the values before the sigmoid, or call it inside amp.autocast({enabled = false}, fn), or allow_banned = true"
        : "its policy is 'banned', so it does not run in a float16 region; give it another class with amp.set_policy, or allow_banned = true");
    return cast_all(c, AMP_FLOAT32, owned, nowned);
  default:
    return 0;
  }
}
