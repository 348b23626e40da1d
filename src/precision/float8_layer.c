/*
** precision/float8_layer.c: what is kept of the weights that 8-bit regions multiply by: copies, histories, counts.
**
** Layers stand in a table by their weight's id, since a derivative has an alias of it only. A weight that dies takes
*its
** layer with it. All change under one lock; histories lie on the weight's device, so that no step waits, and the steps
** that their places are of are known here.
*/
#include <stdlib.h>
#include "base/locks.h"
#include "dispatch/op_builder.h"
#include "precision/float8.h"

enum { BUCKETS = 256 };
static amp_float8_layer *table[BUCKETS];
static AMP_THREAD bool holding AMP_TLS_NEAR;

bool amp__float8_lock(void)
{
  if (holding) return false;
  amp__lock(AMP_LOCK_FLOAT8);
  return holding = true;
}

void amp__float8_unlock(bool took)
{
  if (!took) return;
  holding = false;
  amp__unlock(AMP_LOCK_FLOAT8);
}

static amp_float8_layer **bucket_of(int64_t id) { return &table[(uint64_t)id % BUCKETS]; }

amp_float8_layer *amp__float8_layer_find(int64_t id)
{
  AMP_ASSERT(holding);
  amp_float8_layer *layer = *bucket_of(id);
  while (layer && layer->id != id) layer = layer->next;
  return layer;
}

amp_float8_layer *amp__float8_layer_of(amp_tensor *leaf)
{
  AMP_ASSERT(holding);
  amp_ag *ag = amp__ag(leaf);
  if (ag == NULL || ag->float8) return ag ? ag->float8 : NULL;
  amp_float8_layer *layer = calloc(1, sizeof *layer);
  if (layer == NULL) {
    amp__nomem(sizeof *layer);
    return NULL;
  }
  layer->id = leaf->id;
  layer->leaf = leaf;
  layer->next = *bucket_of(leaf->id);
  *bucket_of(leaf->id) = layer;
  return ag->float8 = layer;
}

static int drop_copies(amp_float8_layer *layer)
{
  int dropped = 0;
  for (int i = 0; i < 2; i++) {
    amp_tensor *copy = layer->copy[i], *largest = layer->largest[i];
    layer->copy[i] = layer->largest[i] = NULL;
    dropped += copy != NULL;
    amp__free(copy);
    amp__free(largest);
  }
  return dropped;
}

void amp__float8_free(amp_ag *ag)
{
  bool took = amp__float8_lock();
  amp_float8_layer *layer = ag->float8, **at = bucket_of(layer->id);
  ag->float8 = NULL;
  while (*at != layer) at = &(*at)->next;
  *at = layer->next;
  drop_copies(layer);
  for (int k = 0; k < AMP_FLOAT8_HISTORIES; k++) {
    amp__free(layer->history[k]);
    free(layer->step[k]);
  }
  for (int k = 0; k < AMP_FLOAT8_KINDS; k++) amp__free(layer->counts[k]);
  free(layer);
  amp__float8_unlock(took);
}

int amp__float8_drop_copies(int device)
{
  int dropped = 0;
  if (holding) return 0; /* one of them is being made */
  bool took = amp__float8_lock();
  for (int i = 0; i < BUCKETS; i++)
    for (amp_float8_layer *layer = table[i]; layer; layer = layer->next)
      if (device < 0 || layer->leaf->device == device) dropped += drop_copies(layer);
  amp__float8_unlock(took);
  return dropped;
}

/* -- Histories ------------------------------------------------------------------------ */

/* A history of `room` places, which begins as the one that is there, on the weight's device. */
static int make_room(amp_float8_layer *layer, int kind, int room)
{
  amp_tensor *leaf = layer->leaf, *old = layer->history[kind];
  int64_t size = room;
  int64_t *step = calloc((size_t)room, sizeof *step);
  if (step == NULL) return amp__nomem(sizeof *step * (size_t)room);
  amp__plain plain = amp__plain_begin();
  int mark = amp__pool_mark(), status = 0;
  amp_tensor *made = amp__op_full(0, AMP_FLOAT32, leaf->device, leaf->device_index, 1, &size);
  if (made && old) {
    amp_tensor *inputs[2] = { amp__op_narrow(made, 0, 0, old->size[0]), old };
    status = inputs[0] ? amp__dispatch(AMP_OP_copy, AMP_INPLACE, inputs, 2, NULL, NULL) : amp__err();
  }
  amp_tensor *kept = amp__keep(made);
  if (kept == NULL || status < 0) {
    free(step);
    amp__free(kept);
    status = amp__err();
  } else {
    if (old) memcpy(step, layer->step[kind], sizeof *step * (size_t)layer->room[kind]);
    amp__free(old);
    free(layer->step[kind]);
    layer->history[kind] = kept;
    layer->step[kind] = step;
    layer->room[kind] = room;
  }
  amp__pool_release(mark);
  amp__plain_end(plain);
  return status;
}

static bool moved(const amp_float8_layer *layer, int kind)
{
  const amp_tensor *history = layer->history[kind], *leaf = layer->leaf;
  return history && (history->device != leaf->device || history->device_index != leaf->device_index);
}

int amp__float8_place(amp_float8_layer *layer, int kind, int64_t step, int window, bool write, bool *shift)
{
  int wanted = window + AMP_FLOAT8_LATE, status;
  *shift = false;
  if (layer->room[kind] < wanted || moved(layer, kind)) {
    int room = layer->room[kind] < wanted ? wanted : layer->room[kind];
    if ((status = make_room(layer, kind, room)) < 0) return status - 1;
  }
  int64_t *known = layer->step[kind];
  int room = layer->room[kind];
  for (int i = 0; i < room; i++)
    if (known[i] == step) return i + window < room ? i : room - 1 - window;
  if (!write) return -1;
  if (known[0] > step) return room - 1 - window; /* a backward so late that its step's place went */
  *shift = known[0] != 0;
  if (*shift) memmove(known + 1, known, sizeof *known * (size_t)(room - 1));
  known[0] = step;
  return 0;
}

/* -- For Lua ----------------------------------------------------------------------------- */

int64_t amp_float8_step(amp_state *state)
{
  return state->priv->float8_step ? state->priv->float8_step : state->priv->region_epoch;
}
int64_t amp_float8_set_step(amp_state *state, int64_t step)
{
  int64_t before = state->priv->float8_step;
  state->priv->float8_step = step;
  return before;
}
int64_t amp_float8_casts(amp_state *state) { return state->priv->float8_casts; }
void amp_float8_count(amp_state *state, int on) { state->priv->float8_counts = on != 0; }

static bool bad_kind(const amp_ref *t, int kind)
{
  if (t->t == NULL) return amp__fail(AMP_E_ARGUMENT, "the tensor was freed") < 0;
  return (kind < 0 || kind >= AMP_FLOAT8_HISTORIES) && amp__fail(AMP_E_ARGUMENT, "there is no history %d", kind) < 0;
}

int amp_float8_history(amp_state *state, const amp_ref *t, int kind, double *values, int room)
{
  AMP_ENTER(state);
  if (bad_kind(t, kind)) return AMP_E_ARGUMENT;
  bool took = amp__float8_lock();
  amp_float8_layer *layer = t->t->ag ? t->t->ag->float8 : NULL;
  amp_tensor *here = NULL;
  int count = 0;
  if (layer && layer->history[kind]) {
    if ((here = amp__on_cpu(layer->history[kind])) == NULL) count = state->err.code;
    for (int i = 0; here && i < layer->room[kind] && i < room; i++) {
      values[i] = amp__element(here, i);
      if (values[i] != 0 || layer->step[kind][i] != 0)
        count = i + 1; /* of a captured step's replays no step is known */
    }
  }
  amp__free(here);
  amp__float8_unlock(took);
  return count;
}

int amp_float8_set_history(amp_state *state, const amp_ref *t, int kind, const double *values, int n)
{
  AMP_ENTER(state);
  if (bad_kind(t, kind)) return AMP_E_ARGUMENT;
  bool took = amp__float8_lock();
  amp_float8_layer *layer = amp__float8_layer_of(t->t);
  int room = layer && layer->room[kind] > n + AMP_FLOAT8_LATE ? layer->room[kind] : n + AMP_FLOAT8_LATE;
  int status = layer ? make_room(layer, kind, room) : state->err.code;
  if (status == 0) {
    int64_t size = room;
    float *list = calloc((size_t)size, sizeof *list);
    for (int i = 0; list && i < size; i++) list[i] = i < n ? (float)values[i] : 0;
    amp_ref from = { NULL }, to = { layer->history[kind] };
    if (list == NULL) status = amp__nomem(sizeof *list * (size_t)size);
    else status = amp_from_bytes(state, &from, list, (int64_t)sizeof *list * size, 1, &size, AMP_FLOAT32);
    amp_tensor *inputs[2] = { to.t, from.t };
    amp__plain plain = amp__plain_begin();
    if (status == 0) status = amp__dispatch(AMP_OP_copy, AMP_INPLACE, inputs, 2, NULL, NULL);
    amp__plain_end(plain);
    amp__free(from.t);
    free(list);
    for (int i = 0; i < layer->room[kind]; i++) layer->step[kind][i] = i < n ? INT64_MIN + i : 0; /* before all steps */
  }
  amp__float8_unlock(took);
  return status;
}

int amp_float8_take_counts(amp_state *state, const amp_ref *t, double *counts)
{
  AMP_ENTER(state);
  if (bad_kind(t, 0)) return AMP_E_ARGUMENT;
  bool took = amp__float8_lock();
  amp_float8_layer *layer = t->t->ag ? t->t->ag->float8 : NULL;
  int any = 0;
  for (int k = 0; k < AMP_FLOAT8_KINDS; k++) {
    amp_tensor *cells = layer ? layer->counts[k] : NULL, *here = cells ? amp__on_cpu(cells) : NULL;
    if (layer) layer->counts[k] = NULL;
    for (int i = 0; i < 3; i++) counts[3 * k + i] = here ? amp__element(here, i) : 0;
    any |= here != NULL;
    amp__free(here);
    amp__free(cells);
  }
  amp__float8_unlock(took);
  return any;
}
