/*
** precision/cast.c: autocast. What class an op has decides which of its float inputs
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
** leave its result in 16 bits as well (its *half_copy*): the first cast takes that.
** Regions themselves are Lua's: it writes the state's autocast fields.
*/
#include "dispatch/op_builder.h"
#include "base/locks.h"
#include "autograd/shadow_list.h"
#include "autograd/tape.h"
#include "precision/float8.h"
#include "precision/precision.h"

/* -- Shadows ------------------------------------------------------------------ */

static _Atomic int64_t epochs;

int64_t amp__new_epoch(void) { return atomic_fetch_add_explicit(&epochs, 1, memory_order_relaxed) + 1; }

void amp_autocast_leave(amp_state *state)
{
  AMP_ENTER(state);
  state->priv->region_epoch = amp__new_epoch();
  if (amp_unlikely(state->priv->capture != NULL)) amp__shadows_drop(state, AMP_SHADOWS_UNOWNED);
  else if (amp_unlikely(state->priv->passing)) amp__shadows_drop(state, AMP_SHADOWS_EXPOSED);
  state->priv->passing = false;
}

void amp__shadows_before_capture(void) { amp__shadows_drop(amp__S, AMP_SHADOWS_UNOWNED); }

void amp_clear_autocast_cache(amp_state *state)
{
  AMP_ENTER(state);
  amp__shadows_drop(state, AMP_SHADOWS_ALL);
  amp__float8_drop_copies(-1);
}

static bool shadow_current(const amp_tensor *leaf, int dtype)
{
  const amp_ag *ag = leaf->ag;
  if (ag == NULL || ag->shadow == NULL || ag->shadow->dtype != dtype) return false;
  if (ag->shadow_version != amp__version(leaf)) return false;
  /* an op may have given the alias itself to the user, who wrote to it; what a step or the user writes to a model
  ** is meant */
  if (!ag->shadow_is_model && ag->shadow_stamp != amp__version(ag->shadow)) return false;
  return !amp__exposed(leaf) || ag->shadow_epoch == amp__S->priv->region_epoch; /* trusted within one region */
}

/* A tensor for the shadow: the present one where nothing else reads it, or a new one (which is counted). */
static amp_tensor *shadow_memory(amp_tensor *leaf, int dtype)
{
  amp_tensor *s = leaf->ag->shadow;
  bool read = s && (amp__shadows_shared() || !leaf->ag->shadow_owned)
              && atomic_load_explicit(&s->storage->refs, memory_order_relaxed) > 1;
  if (s && !read && s->dtype == dtype && amp__same_size(s, leaf)) {
    amp__retain(s);
    return s;
  }
  amp_meta meta;
  amp__meta_of(leaf, &meta);
  meta.dtype = (uint8_t)dtype;
  meta.strides = (leaf->flags & AMP_T_DENSE) != 0 && !(leaf->flags & AMP_T_CONTIGUOUS);
  return amp__tensor_new(&meta);
}

/* The copy takes effect when it is whole: an allocation on the way may shed shadows, this one's predecessor too. */
static int fill_shadow(amp_tensor *leaf, int dtype)
{
  amp_ag *ag = amp__ag(leaf);
  amp_state *state = amp__S;
  if (ag == NULL) return state->err.code;
  amp_tensor *s = shadow_memory(leaf, dtype), *inputs[2] = { s, leaf };
  if (s == NULL) return state->err.code;
  uint32_t version = amp__version(leaf);
  amp__plain plain = amp__plain_begin();
  int status = amp__dispatch(AMP_OP_copy, AMP_INPLACE, inputs, 2, NULL, NULL);
  amp__plain_end(plain);
  if (status < 0) {
    amp__free(s);
    return status;
  }
  if (amp_unlikely(amp__streamed) && s->storage->block)
    amp__block_moved(s->storage->block); /* no op tells that a stream filled it */
  if (ag->shadow != s) {
    amp__free(ag->shadow);
    ag->shadow = s;
    ag->shadow_is_model = 0;
  } else amp__free(s);
  amp__shadow_list(ag);
  ag->shadow_version = version;
  ag->shadow_stamp = amp__version(s);
  ag->shadow_epoch = state->priv->region_epoch;
  if (amp__exposed(leaf)) state->priv->passing = true;
  state->casts++;
  return 0;
}

amp_tensor *amp__shadow(amp_tensor *leaf, int dtype)
{
  if (shadow_current(leaf, dtype)) amp__S->cached_casts++;
  else if (fill_shadow(leaf, dtype) < 0) return NULL;
  if (amp_unlikely(amp__capturing)) amp__capture_shadow(leaf);
  return leaf->ag->shadow;
}

/* The leaf whose shadow serves tensor: tensor itself, or the leaf that tensor is a view of. */
static amp_tensor *shadowed(amp_tensor *tensor)
{
  amp_tensor *leaf = tensor;
  if (tensor->dtype != AMP_FLOAT32) return NULL;
  if (tensor->flags & AMP_T_HISTORY) {
    if (!(tensor->flags & AMP_T_VIEW) || tensor->ag == NULL || tensor->ag->base == NULL) return NULL;
    leaf = tensor->ag->base;
    if (!(leaf->flags & AMP_T_DENSE) || !amp__lies_in(tensor, leaf)) return NULL;
  }
  if (!(leaf->flags & (AMP_T_REQUIRES_GRAD | AMP_T_WEIGHT)) || (leaf->flags & AMP_T_HISTORY)) return NULL;
  return amp__exposed(leaf) && amp__S->autocast_depth == 0
             ? NULL
             : leaf; /* outside of regions nothing says how long a copy may be trusted */
}

/* value (taken, may be NULL), tensor in dtype without a kernel's help, tied to tensor by a cast node; leaf: of
** whose shadow value is a part, or NULL */
static amp_tensor *tied(amp_tensor *value, amp_tensor *tensor, amp_tensor *leaf, int dtype)
{
  if (value == NULL || !amp__S->grad_mode || !amp__tracked(tensor)) return value;
  amp_node *node = amp__node_new(AMP_OP_cast, 1, 1, 1, leaf != NULL, tensor->ndim);
  if (node == NULL) {
    amp__free(value);
    return NULL;
  }
  node->flags |= AMP_N_CAST;
  if (leaf) {
    node->flags |= AMP_N_SHADOW;
    node->saved[0].tensor = leaf; /* what the copy was made of: later changes of it are changes of the copy */
    node->saved[0].version = amp__version(leaf);
    amp__retain(leaf);
  }
  node->attrs[0].i = dtype;
  for (int i = 0; i < 2; i++) {
    amp_shape *p = amp__shape_of(node, i);
    p->dtype = i ? (uint8_t)dtype : AMP_FLOAT32;
    p->ndim = tensor->ndim;
    p->device = tensor->device;
    p->device_index = tensor->device_index;
    memcpy(p->size, tensor->size, sizeof(int64_t) * tensor->ndim);
  }
  int status = amp__node_edge(node, 0, tensor);
  if (status == 0) status = amp__tie(value, node, 0);
  amp__node_free(node);
  if (status < 0) {
    amp__free(value);
    return NULL;
  }
  amp__S->recorded++;
  return value;
}

static amp_tensor *from_shadow(amp_tensor *tensor, amp_tensor *leaf, int dtype)
{
  bool took = amp__shadows_shared() && amp__shadows_lock();
  amp_tensor *s = amp__shadow(leaf, dtype), *value = NULL;
  if (s)
    value = tensor == leaf ? amp__tensor_alias(s)
                           : amp__tensor_view(s, tensor->ndim, tensor->size, tensor->stride,
                                              s->offset + tensor->offset - leaf->offset);
  amp__shadows_unlock(took);
  return tied(value, tensor, leaf, dtype);
}

/* The copy in 16 bits that the tensor's maker left, if it is still one: it goes to the first who asks. */
static amp_tensor *take_half_copy(amp_tensor *tensor, int dtype)
{
  amp_tensor *half_copy = tensor->ag ? tensor->ag->half_copy : NULL;
  if (half_copy == NULL || half_copy->dtype != dtype || amp__version(tensor) != 0
      || (tensor->storage->flags & (AMP_S_EXPOSED | AMP_S_FOREIGN)))
    return NULL;
  if (amp_unlikely(amp__capturing) && !amp__capture_made(half_copy))
    return NULL; /* a replay makes it of what tensor is then */
  tensor->ag->half_copy = NULL;
  return half_copy;
}

amp_tensor *amp__cast(amp_tensor *tensor, int dtype)
{
  amp_state *state = amp__S;
  if (tensor->dtype == dtype) {
    amp__retain(tensor);
    return tensor;
  }
  amp_tensor *leaf
      = amp__is_half(dtype) && (state->autocast[tensor->device].cache & AMP_REGION_FLAG) ? shadowed(tensor) : NULL;
  if (leaf) return from_shadow(tensor, leaf, dtype);
  amp_tensor *half_copy = take_half_copy(tensor, dtype);
  if (half_copy) {
    state->casts++;
    return tied(half_copy, tensor, NULL, dtype);
  }
  amp_tensor *out[AMP_MAX_OUT] = { NULL };
  amp_slot a = { .i = dtype };
  amp__plain plain = amp__plain_record(state, state->grad_mode);
  int status = amp__dispatch(AMP_OP_cast, 0, &tensor, 1, out, &a);
  amp__plain_end(plain);
  if (status < 0) return NULL;
  state->casts++;
  return out[0];
}

/* -- Policy ---------------------------------------------------------------------- */

/* Float tensors that a region of their device may cast. */
static bool eligible(const amp_state *state, const amp_tensor *tensor)
{
  return tensor && !(tensor->flags & AMP_T_NUMBER) && state->autocast[tensor->device].enabled
         && (tensor->dtype == AMP_FLOAT32 || amp__is_half(tensor->dtype));
}

static int cast_input(amp_call *call, int i, int dtype, amp_tensor **owned, int *nowned)
{
  amp_tensor *tensor = call->in[i];
  amp_state *state = amp__S;
  if (tensor->dtype == dtype) return 0;
  int64_t cached = state->cached_casts;
  amp_tensor *u = amp__cast(tensor, dtype);
  if (u == NULL) return state->err.code;
  if (state->autocast[tensor->device].verbose & AMP_REGION_FLAG)
    amp__log("amp: %s: argument %d from %s to %s, %s%s", call->op->info.name, i + 1, amp_dtype_name(tensor->dtype),
             amp_dtype_name(dtype), amp__shape_str(tensor->ndim, tensor->size),
             state->cached_casts > cached ? ", cached" : "");
  call->in[i] = owned[(*nowned)++] = u;
  return 0;
}

/* How many operands come before those that are never cast: training writes running statistics where they lie, and a
** normalisation keeps them and its parameters in float32. */
static int data_operands(const amp_call *call)
{
  const amp_op_desc *d = call->op;
  const char *at = d->info.schema, *end;
  if (amp_likely(d->info.policy != AMP_SPECIAL) || (end = strstr(at, " running_mean")) == NULL) return call->nin;
  int n = 1;
  for (; at < end; at++) n += *at == ' ';
  return n;
}

/* A tensor that is given twice, as query, key and value often are, is cast once. */
static int cast_all(amp_call *call, int dtype, amp_tensor **owned, int *nowned)
{
  amp_tensor *original[AMP_MAX_IN];
  int n = data_operands(call);
  for (int i = 0; i < n; i++) {
    int same = i < AMP_MAX_IN ? 0 : i;
    if (i < AMP_MAX_IN) original[i] = call->in[i];
    while (same < i && original[same] != call->in[i]) same++;
    if (!eligible(amp__S, call->in[i])) continue;
    if (same < i) {
      if (call->in[same] == call->in[i]) continue; /* has the dtype as it is */
      amp__retain(call->in[i] = owned[(*nowned)++] = call->in[same]);
      continue;
    }
    int status = cast_input(call, i, dtype < 0 ? amp__S->autocast[call->in[i]->device].dtype : dtype, owned, nowned);
    if (status < 0) return status;
  }
  return 0;
}

static int check_double(const amp_call *call)
{
  const amp_tensor *dbl = NULL, *other = NULL;
  for (int i = 0; i < call->nin; i++) {
    const amp_tensor *tensor = call->in[i];
    if (tensor == NULL || !amp__is_float(tensor->dtype) || (tensor->flags & AMP_T_NUMBER)) continue;
    if (tensor->dtype == AMP_FLOAT64) dbl = tensor;
    else other = tensor;
  }
  if (dbl && other && (amp__S->autocast[dbl->device].enabled))
    return amp__fail(
        AMP_E_DTYPE,
        "autocast leaves float64 alone, and this op wants equal dtypes: got float64 and %s; cast one of them",
        amp_dtype_name(other->dtype));
  return 0;
}

static int cast_to_widest(amp_call *call, amp_tensor **owned, int *nowned)
{
  int widest = -1, status;
  bool any = false;
  for (int i = 0; i < call->nin; i++) {
    const amp_tensor *tensor = call->in[i];
    if (tensor == NULL || !amp__is_float(tensor->dtype) || (tensor->flags & AMP_T_NUMBER)) continue;
    widest = widest < 0 ? tensor->dtype : amp__promote(widest, tensor->dtype);
    any |= eligible(amp__S, tensor);
  }
  if (!any) return 0;
  for (int i = 0, n = data_operands(call); i < n; i++)
    if (eligible(amp__S, call->in[i]) && (status = cast_input(call, i, widest, owned, nowned)) < 0) return status;
  return 0;
}

/* Float inputs of a GPU, in 16 bits or float32, of which a region may cast each: kernels there can widen by
** themselves. */
static bool widens_itself(const amp_call *call)
{
  bool half = false;
  for (int i = 0; i < call->nin; i++) {
    const amp_tensor *tensor = call->in[i];
    if (tensor == NULL || !amp__is_float(tensor->dtype) || (tensor->flags & AMP_T_NUMBER)) continue;
    if (tensor->device == AMP_CPU || !eligible(amp__S, tensor)
        || (amp__S->autocast[tensor->device].verbose & AMP_REGION_FLAG))
      return false;
    half |= amp__is_half(tensor->dtype);
  }
  return half;
}

static int autocast(amp_call *call, amp_tensor **owned, int *nowned)
{
  const amp_op_desc *row = call->op;
  int status;
  if (amp_unlikely(amp__float8_wanted(call))) {
    status = amp__float8_run(call);
    if (status < 0 || call->done) return status;
  }
  switch ((enum amp_policy)amp__policy_of(call->id, call->attrs)) {
  case AMP_SPECIAL: /* recurrent layers as lower: data, states and weights alike; normalisation sees to itself */
    if (!amp__row_is(row, AMP_R_RECURRENT)) return 0;
    /* fall through */
  case AMP_LOWER:
    if ((status = check_double(call)) < 0) return status;
    return cast_all(call, -1, owned, nowned);
  case AMP_FP32_UNLESS_DTYPE:
    if (row->dtype_slot >= 0 && call->attrs[row->dtype_slot].i != AMP_NONE) return 0;
    return cast_all(call, AMP_FLOAT32, owned, nowned);
  case AMP_FP32:
    if ((row->info.flags & AMP_F_WIDENS) && widens_itself(call)) {
      call->flags |= AMP_WIDEN;
      return 0;
    }
    return cast_all(call, AMP_FLOAT32, owned, nowned);
  case AMP_PROMOTE: return cast_to_widest(call, owned, nowned);
  case AMP_BANNED:
    if (call->in[0] && eligible(amp__S, call->in[0]) && amp__S->autocast[call->in[0]->device].dtype == AMP_FLOAT16
        && !amp__S->allow_banned)
      return amp__fail(
          AMP_E_DTYPE,
          amp__row_is(row, AMP_R_LOGITS)
              ? "it does not run in a float16 region, whatever its arguments' dtypes: probabilities are made in "
                "float16 there, and their logarithms overflow; use "
                "binary_cross_entropy_with_logits (bce_with_logits) on the values before the sigmoid, or call "
                "it inside amp.autocast({enabled = false}, fn), or allow_banned = true"
              : "its policy is 'banned', so it does not run in a float16 region; give it another class with "
                "amp.set_policy, or allow_banned = true");
    return cast_all(call, AMP_FLOAT32, owned, nowned);
  case AMP_PASSTHROUGH:
  case AMP_POLICY_COUNT: break;
  }
  return 0;
}

/* A captured step casts anew: no region ends in it, with which a copy that it made would go. */
static amp_tensor *cast_kept(amp_tensor *t, int dtype)
{
  amp_state *S = amp__S;
  uint8_t before = S->autocast[t->device].cache;
  S->autocast[t->device].cache = (uint8_t)((before & ~AMP_REGION_FLAG) | (S->priv->capture == NULL));
  amp_tensor *u = amp__cast(t, dtype);
  S->autocast[t->device].cache = before;
  return u;
}

static int memory_short(int device) { return amp__shadows_shed(device) + amp__float8_drop_copies(device); }

void amp__precision_install(void)
{
  amp__hooks.cast_kept = cast_kept;
  amp__hooks.autocast = autocast;
  amp__hooks.memory_short = memory_short;
  amp__hooks.float8_free = amp__float8_free;
  amp__hooks.float8_stepped = amp__float8_stepped;
}
