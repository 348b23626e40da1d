/*
** optim/optim.c: fused optimizer steps, of the kinds in enum amp_optim_kind.
**
** A step collects the parameters that have a gradient, brings gradients and
** state into each parameter's physical layout, and hands the device one list of
** chunks (master, shadow, gradient with its pending factor, state, step count)
** a group. The found-inf cells of the gradients' checks go along: if any is set
** the device changes nothing, and no wait is needed to know. A gradient changed since
** its check is checked again here; one without a check just steps. A guard is a
** check that the next step looks at besides: of a loss whose overflow may lie in
** another optimizer's gradients. A pending check (precision/check.c) is the device's,
** in the same launch, where that can be; else it is settled before.
**
** Ownership: the optimizer counts its parameters and owns their state and
** step cells; memory may lie in an arena (optim/arena.c). Afterwards a stepped
** parameter's storage has a new version and its 16-bit shadow, written in the
** same pass, is right for it; shadows of its parameters outlive regions. Formulas
** are the device's, hyper-parameters Lua's.
*/
#include <stdlib.h>
#include "dispatch/op_builder.h"
#include "optim/optim.h"

/* Step cells and the states of `need`, where and as the parameter lies. */
static int prepare_state(amp__param *param, unsigned need)
{
  const amp_tensor *tensor = param->tensor;
  amp_meta meta;
  int status = 0;
  amp__optim_meta(tensor, amp__optim_dtype(tensor), &meta);
  for (int which = 0; which < AMP_OPTIM_STATES && !status; which++) {
    if (param->state[which]) {
      if (!amp__same_size(param->state[which], tensor))
        return amp__fail(AMP_E_SHAPE, "a parameter is of shape %s, the optimizer's state for it of shape %s",
                         amp__shape_str(tensor->ndim, tensor->size),
                         amp__shape_str(param->state[which]->ndim, param->state[which]->size));
      status = amp__optim_replace(&param->state[which], amp__optim_as(param->state[which], &meta));
    } else if (need >> which & 1) {
      status = amp__optim_replace(&param->state[which], amp__tensor_new(&meta));
      if (!status && (status = amp__optim_zero(param->state[which]))) {
        amp__free(param->state[which]);
        param->state[which] = NULL;
      }
    }
  }
  if (status) return status;
  amp_meta c = { .dtype = AMP_FLOAT64,
                 .ndim = 1,
                 .device = tensor->device,
                 .device_index = tensor->device_index,
                 .size = { 2 },
                 .stride = { 1 } };
  if (param->steps) return amp__optim_replace(&param->steps, amp__optim_as(param->steps, &c));
  status = amp__optim_replace(&param->steps, amp__tensor_new(&c));
  if (!status && (status = amp__optim_zero(param->steps))) {
    amp__free(param->steps);
    param->steps = NULL;
  }
  return status;
}

/* -- Step -------------------------------------------------------------------------- */

typedef struct work { /* of one parameter in this step */
  amp__param *param;
  int group;
  amp_tensor *grad, *temp; /* as the kernel reads them; temp: stands for a parameter with gaps. Counted */
  amp_tensor *shadow;      /* the one the kernel writes, borrowed; NULL: none */
} work;

typedef struct place {
  uint8_t device, index;
  const float **found;
  amp_tensor **copy;
  int ncopy;
} place;

static unsigned states_of(int kind, const amp_hyper *hyper)
{
  switch ((enum amp_optim_kind)kind) {
  case AMP_SGD: return hyper->momentum != 0;
  case AMP_RMSPROP: return 1 | (hyper->momentum != 0) << 1 | (hyper->centered != 0) << 2;
  case AMP_ADAGRAD:
  case AMP_LION: return 1;
  case AMP_NADAM:
  case AMP_RADAM:
  case AMP_ADADELTA:
  case AMP_ADAMAX:
  case AMP_LAMB: return 3;
  case AMP_ADAM:
  case AMP_ADAMW: return hyper->amsgrad ? 7 : 3;
  case AMP_OPTIM_COUNT: break;
  }
  return 0;
}

static int check_hyper(int kind, const amp_hyper *hyper)
{
  if (!(hyper->lr >= 0)) return amp__fail(AMP_E_VALUE, "lr must be 0 or more, got %g", hyper->lr);
  if (!(hyper->weight_decay >= 0))
    return amp__fail(AMP_E_VALUE, "weight_decay must be 0 or more, got %g", hyper->weight_decay);
  if (kind == AMP_SGD) {
    if (!(hyper->momentum >= 0)) return amp__fail(AMP_E_VALUE, "momentum must be 0 or more, got %g", hyper->momentum);
    if (hyper->nesterov && (hyper->momentum <= 0 || hyper->dampening != 0))
      return amp__fail(AMP_E_VALUE, "nesterov needs a momentum and no dampening, got momentum %g, dampening %g",
                       hyper->momentum, hyper->dampening);
    return 0;
  }
  if (!(hyper->eps >= 0)) return amp__fail(AMP_E_VALUE, "eps must be 0 or more, got %g", hyper->eps);
  if (kind == AMP_RMSPROP) {
    if (!(hyper->momentum >= 0)) return amp__fail(AMP_E_VALUE, "momentum must be 0 or more, got %g", hyper->momentum);
    return hyper->alpha >= 0 ? 0 : amp__fail(AMP_E_VALUE, "alpha must be 0 or more, got %g", hyper->alpha);
  }
  if (kind == AMP_ADADELTA)
    return hyper->alpha >= 0 && hyper->alpha <= 1
               ? 0
               : amp__fail(AMP_E_VALUE, "rho must be in [0, 1], got %g", hyper->alpha);
  if (kind == AMP_NADAM && !(hyper->lr_decay >= 0))
    return amp__fail(AMP_E_VALUE, "momentum_decay must be 0 or more, got %g", hyper->lr_decay);
  if (kind == AMP_ADAGRAD) {
    if (!(hyper->lr_decay >= 0)) return amp__fail(AMP_E_VALUE, "lr_decay must be 0 or more, got %g", hyper->lr_decay);
    return hyper->initial >= 0
               ? 0
               : amp__fail(AMP_E_VALUE, "initial_accumulator_value must be 0 or more, got %g", hyper->initial);
  }
  if (!(hyper->beta1 >= 0 && hyper->beta1 < 1))
    return amp__fail(AMP_E_VALUE, "beta1 must be in [0, 1), got %g", hyper->beta1);
  if (!(hyper->beta2 >= 0 && hyper->beta2 < 1))
    return amp__fail(AMP_E_VALUE, "beta2 must be in [0, 1), got %g", hyper->beta2);
  return 0;
}

/* Gradient, state and shadow of one parameter, ready for a chunk. */
static int prepare(work *work, unsigned need)
{
  amp_tensor *tensor = work->param->tensor;
  amp_grad *grad = &tensor->ag->grad;
  if (!amp__same_size(grad->value, tensor) || grad->value->device != tensor->device
      || grad->value->device_index != tensor->device_index)
    return amp__fail(AMP_E_STATE, "a parameter is %s, its gradient %s: clear gradients when parameters move",
                     amp__tensor_str(tensor), amp__tensor_str(grad->value));
  int status = prepare_state(work->param, need);
  if (status) return status;
  amp_meta meta;
  amp__optim_meta(tensor, grad->value->dtype, &meta);
  if (!(work->grad = amp__optim_as(grad->value, &meta))) return amp__S->err.code;
  if (!(tensor->flags & AMP_T_DENSE)) {
    meta.dtype = tensor->dtype;
    if (!(work->temp = amp__optim_as(tensor, &meta))) return amp__S->err.code;
  }
  amp_tensor *shadow = tensor->ag->shadow;
  if (shadow && tensor->dtype == AMP_FLOAT32 && amp__is_half(shadow->dtype) && !work->temp && !work->param->shared
      && tensor->ag->shadow_version == amp__version(tensor)
      && !(tensor->storage->flags & (AMP_S_EXPOSED | AMP_S_FOREIGN)) && (shadow->flags & AMP_T_DENSE)
      && amp__same_size(shadow, tensor) && amp__optim_lies_as(shadow, &meta))
    work->shadow = shadow;
  return 0;
}

static void fill_chunk(amp_optim_chunk *chunk, const work *k, unsigned need)
{
  const amp__param *param = k->param;
  const amp_grad *grad = &param->tensor->ag->grad;
  amp_tensor *tensor = k->temp ? k->temp : param->tensor;
  AMP_ASSERT(k->grad->numel == tensor->numel && k->grad->device == tensor->device && (k->grad->flags & AMP_T_DENSE));
  AMP_ASSERT(param->steps && param->steps->numel == 2 && param->steps->dtype == AMP_FLOAT64);
  memset(chunk, 0, sizeof *chunk);
  chunk->master = amp__data(tensor);
  chunk->master_dtype = tensor->dtype;
  chunk->grad = amp__data(k->grad);
  chunk->grad_dtype = k->grad->dtype;
  chunk->factor = grad->factor ? AMP_DATA(float, grad->factor) : NULL;
  if (k->shadow) {
    chunk->shadow = amp__data(k->shadow);
    chunk->shadow_dtype = k->shadow->dtype;
  }
  float **s[AMP_OPTIM_STATES] = { &chunk->s0, &chunk->s1, &chunk->s2 };
  for (int which = 0; which < AMP_OPTIM_STATES; which++)
    if (need >> which & 1) {
      AMP_ASSERT(param->state[which]->numel == tensor->numel && param->state[which]->dtype == amp__optim_dtype(tensor));
      *s[which] = amp__data(param->state[which]);
    }
  chunk->steps = AMP_DATA(double, param->steps);
  chunk->n = tensor->numel;
  if (amp_unlikely(amp__capturing)) {
    amp_tensor *all[] = { param->tensor,   k->shadow,       k->grad,         param->steps,
                          param->state[0], param->state[1], param->state[2], grad->factor };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) amp__capture_note(all[i]);
  }
  if (amp_unlikely(amp__streamed)) {
    const amp_tensor *all[]
        = { tensor, k->shadow, k->grad, param->steps, param->state[0], param->state[1], param->state[2], grad->factor };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) amp__touch(all[i]);
  }
}

/* The found-inf cells, as pointers that device may read. */
static place *place_of(place *pl, int *n, const amp_tensor *tensor, amp_tensor **found, int nfound)
{
  for (int i = 0; i < *n; i++)
    if (pl[i].device == tensor->device && pl[i].index == tensor->device_index) return &pl[i];
  if (*n == AMP_MAX_PLACES) {
    amp__fail(AMP_E_UNSUPPORTED, "parameters on more than %d devices", AMP_MAX_PLACES);
    return NULL;
  }
  place *q = &pl[(*n)++];
  *q = (place){ tensor->device, tensor->device_index, malloc(sizeof *q->found * (size_t)(nfound + 1)),
                malloc(sizeof *q->copy * (size_t)(nfound + 1)), 0 };
  if (!q->found || !q->copy) {
    amp__nomem(sizeof *q->found * (size_t)nfound);
    return NULL;
  }
  for (int i = 0; i < nfound; i++) {
    amp_tensor *f = found[i];
    if (amp_unlikely(amp__capturing)) amp__capture_note(f);
    amp__touch(f);
    if (f->device != tensor->device || f->device_index != tensor->device_index) {
      if (!(f = amp__cell_copy(f, tensor->device, tensor->device_index))) return NULL;
      q->copy[q->ncopy++] = f;
    }
    q->found[i] = AMP_DATA(float, f);
  }
  return q;
}

/* Copy a stepped stand-in back; new versions; the shadow is the new master's. */
static int finish(work *work)
{
  amp_tensor *tensor = work->param->tensor;
  int status = 0;
  if (work->temp) {
    amp_tensor *inputs[2] = { tensor, work->temp };
    status = amp__dispatch(AMP_OP_copy, AMP_INPLACE, inputs, 2, NULL, NULL);
  } else amp__bump(tensor);
  tensor->ag->shadow_owned = 1; /* another optimizer of tensor may have gone */
  if (work->shadow) {
    amp__bump(work->shadow);
    tensor->ag->shadow_version = amp__version(tensor);
    tensor->ag->shadow_stamp = amp__version(work->shadow);
  }
  if (amp_unlikely(tensor->ag->float8 != NULL) && status == 0) amp__hooks.float8_stepped(tensor);
  return status;
}

typedef struct cells {
  amp_tensor **tensor;
  int count, cap;
} cells; /* borrowed */

static int add_cell(cells *cells, amp_tensor *found)
{
  for (int i = cells->count - 1; i >= 0; i--)
    if (cells->tensor[i] == found) return 0;
  if (cells->count == cells->cap) {
    int cap = cells->cap ? 2 * cells->cap : 8;
    amp_tensor **more = realloc(cells->tensor, sizeof *more * (size_t)cap);
    if (!more) return amp__nomem(sizeof *more * (size_t)cap);
    cells->tensor = more;
    cells->cap = cap;
  }
  cells->tensor[cells->count++] = found;
  return 0;
}

/* Distinct found-inf cells of the guards and of the gradients' checks. */
static int collect_found(amp_optim *optim, cells *cells, amp_check **fresh)
{
  int status = 0;
  for (int i = 0; i < optim->nguard && !status; i++)
    for (int j = 0; j < optim->guard[i]->nplace && !status; j++)
      status = add_cell(cells, optim->guard[i]->place[j].found);
  for (int group = 0; group < optim->ngroup && !status; group++)
    for (int i = 0; i < optim->group[group].count && !status; i++) {
      amp__param *param = &optim->group[group].params[i];
      if (!amp__optim_has_grad(param)) continue;
      if (amp_unlikely(amp__grad_origin(&param->tensor->ag->grad) & AMP_O_SCALED)
          && param->tensor->ag->grad.master == AMP_MASTER_NONE)
        return amp__fail(AMP_E_STATE,
                         "the gradient of parameter %d of group %d (%s) is that of a scaled loss and was not unscaled",
                         i + 1, group + 1, amp__tensor_str(param->tensor));
      if ((status = amp__check_again(param->tensor, fresh))) continue;
      amp_tensor *found = amp__check_cell(&param->tensor->ag->grad);
      if (found) status = add_cell(cells, found);
    }
  return status;
}

/* The check that this step's gradients leave to it, counted; all others are settled. *pending NULL: none. */
static int find_pending(amp_optim *optim, amp_check **pending)
{
  int status = 0;
  for (int group = 0; group < optim->ngroup && !status; group++)
    for (int i = 0; i < optim->group[group].count && !status; i++) {
      amp_check *c = amp__optim_has_grad(&optim->group[group].params[i])
                         ? optim->group[group].params[i].tensor->ag->grad.check
                         : NULL;
      if (!c || !c->pending_check || c == *pending) continue;
      if (*pending) status = amp__check_settle(c);
      else amp__check_retain(*pending = c);
    }
  for (int i = 0; i < optim->nguard && !status; i++)
    if (optim->guard[i] != *pending) status = amp__check_settle(optim->guard[i]);
  return status;
}

/* Does one launch step what is pending, and nothing else? Else it is settled. */
static int settle_unless_one(amp_check *pending, const work *k, int count)
{
  bool one = count > 0;
  for (int i = 0; i < count && one; i++)
    one = amp__check_pending(pending, i, count, k[i].grad) && k[i].group == k[0].group && !k[i].param->shared;
  return one ? 0 : amp__check_settle(pending);
}

/* A step in progress. */
typedef struct stepping {
  amp_optim *optim;
  const amp_hyper *hyper; /* of each group */
  cells found;
  amp_check *fresh;   /* of gradients that changed since their check; counted */
  amp_check *pending; /* that this step looks at itself; counted */
  work *works;
  int nwork;
  amp_optim_chunk *chunks;
  amp__param **joining;
  place places[AMP_MAX_PLACES];
  int nplace;
} stepping;

/* nchunk chunks on one device; the pending check's gradients in the same launch, where the device can. */
static int step_chunks(stepping *stepping, const place *at, const amp_hyper *hyper, const amp_hyper *captured,
                       int nchunk)
{
  const amp_device_ops *device = &amp__devices[at->device];
  amp_check *pending = stepping->pending;
  int nfound = stepping->found.count;
  if (pending && pending->pending_check) {
    float *found = AMP_DATA(float, pending->place[pending->pending_place].found);
    int status = device->optim_step_look(stepping->optim->kind, hyper, captured, stepping->chunks, nchunk, at->found,
                                         nfound, found);
    if (status < 0) return status;
    if (status == 1) {
      amp__check_looked(pending);
      return 0;
    }
    if ((status = amp__check_settle(pending))) return status;
  }
  return device->optim_step(stepping->optim->kind, hyper, captured, stepping->chunks, nchunk, at->found, nfound);
}

/* Step a group's count works, device by device; shared storages one at a time. */
static int step_group(stepping *stepping, int group, const work *works, int count)
{
  const amp_hyper *hyper = &stepping->hyper[group], *captured = NULL; /* captured: where a replay finds them */
  if (amp_unlikely(amp__capturing)
      && !(captured = amp__capture_hyper(stepping->optim, group, stepping->optim->ngroup))) {
    if (amp__capture_here()) return amp__S->err.code;
  }
  unsigned need = states_of(stepping->optim->kind, hyper);
  for (int i = 0; i < count; i++)
    if (!place_of(stepping->places, &stepping->nplace, works[i].param->tensor, stepping->found.tensor,
                  stepping->found.count))
      return amp__S->err.code;
  for (int dim = 0; dim < stepping->nplace; dim++) {
    const place *at = &stepping->places[dim];
    int nchunk = 0, status = 0;
    for (int i = 0; i < count && !status; i++) {
      const amp_tensor *tensor = works[i].param->tensor;
      if (tensor->device != at->device || tensor->device_index != at->index) continue;
      if (tensor->numel == 0 && tensor->device != AMP_CPU) continue;
      fill_chunk(&stepping->chunks[nchunk++], &works[i], need);
      if (works[i].param->shared)
        status = amp__devices[at->device].optim_step(stepping->optim->kind, hyper, captured,
                                                     &stepping->chunks[--nchunk], 1, at->found, stepping->found.count);
    }
    if (!status && nchunk) status = step_chunks(stepping, at, hyper, captured, nchunk);
    if (status) return status;
  }
  return 0;
}

/* What can be wrong, and the found-inf cells. *none: there is nothing to step, or an overflow is known. */
static int step_begin(stepping *stepping, bool *none)
{
  amp_optim *optim = stepping->optim;
  int status = find_pending(optim, &stepping->pending);
  for (int group = 0; group < optim->ngroup && !status; group++)
    status = check_hyper(optim->kind, &stepping->hyper[group]);
  if (!status) status = collect_found(optim, &stepping->found, &stepping->fresh);
  *none = true;
  if (status) return status;
  for (int i = 0; i < stepping->found.count; i++) /* known at once here: leave before anything is prepared */
    if (stepping->found.tensor[i]->device == AMP_CPU && *AMP_DATA(float, stepping->found.tensor[i]) != 0) return 0;
  for (int group = 0; group < optim->ngroup; group++)
    for (int i = 0; i < optim->group[group].count; i++)
      stepping->nwork += amp__optim_has_grad(&optim->group[group].params[i]);
  *none = stepping->nwork == 0;
  return 0;
}

/* Works of all parameters that have a gradient, in the order of groups, with all that they need. */
static int step_prepare(stepping *stepping)
{
  amp_optim *optim = stepping->optim;
  size_t count = (size_t)stepping->nwork;
  int status = 0, place_at = 0;
  stepping->works = calloc(count, sizeof *stepping->works);
  stepping->chunks = malloc(sizeof *stepping->chunks * count);
  stepping->joining = malloc(sizeof *stepping->joining * count);
  if (!stepping->works || !stepping->chunks || !stepping->joining) return amp__nomem(sizeof *stepping->chunks * count);
  for (int group = 0; group < optim->ngroup; group++) {
    unsigned need = states_of(optim->kind, &stepping->hyper[group]);
    int first = place_at, njoining = 0;
    for (int i = 0; i < optim->group[group].count; i++) {
      amp__param *param = &optim->group[group].params[i];
      if (!amp__optim_has_grad(param)) continue;
      stepping->works[place_at].group = group;
      stepping->works[place_at++].param = param;
      if (!param->placed) stepping->joining[njoining++] = param;
    }
    if (njoining && (status = amp__arena_join(stepping->joining, njoining, need))) return status;
    for (int i = first; i < place_at; i++) {
      AMP_ASSERT(stepping->works[i].param->placed);
      if ((status = prepare(&stepping->works[i], need))) return status;
    }
  }
  AMP_ASSERT(place_at == stepping->nwork);
  return stepping->pending ? settle_unless_one(stepping->pending, stepping->works, stepping->nwork) : 0;
}

static int step_run(stepping *stepping)
{
  int status = 0;
  for (int group = 0, place_at = 0; group < stepping->optim->ngroup; group++) {
    int first = place_at;
    while (place_at < stepping->nwork && stepping->works[place_at].group == group) place_at++;
    if ((status = step_group(stepping, group, stepping->works + first, place_at - first))) return status;
  }
  for (int i = 0; i < stepping->nwork; i++) {
    int failed = finish(&stepping->works[i]);
    if (!status) status = failed;
  }
  return status;
}

static void step_free(stepping *stepping)
{
  for (int i = 0; stepping->works && i < stepping->nwork; i++) {
    amp__free(stepping->works[i].grad);
    amp__free(stepping->works[i].temp);
  }
  for (int i = 0; i < stepping->nplace; i++) {
    for (int j = 0; j < stepping->places[i].ncopy; j++) amp__free(stepping->places[i].copy[j]);
    free(stepping->places[i].found);
    free(stepping->places[i].copy);
  }
  free(stepping->works);
  free(stepping->chunks);
  free(stepping->joining);
  free(stepping->found.tensor);
  amp_check_free(stepping->fresh);
}

static int step(amp_optim *optim, const amp_hyper *hyper, int ngroup)
{
  optim->steps_known = false;
  if (ngroup != optim->ngroup)
    return amp__fail(AMP_E_ARGUMENT, "%d groups of hyper-parameters for an optimizer of %d groups", ngroup,
                     optim->ngroup);
  amp__plain plain = amp__plain_begin();
  stepping stepping = { .optim = optim, .hyper = hyper };
  int mark = amp__pool_mark();
  bool none;
  int status = step_begin(&stepping, &none);
  if (!status && !none && !(status = step_prepare(&stepping))) status = step_run(&stepping);
  if (stepping.pending) {
    int failed = amp__check_settle(stepping.pending);
    if (!status) status = failed;
    amp_check_free(stepping.pending);
  }
  if (!status) amp__optim_drop_guards(optim); /* a step that failed may be tried again */
  step_free(&stepping);
  amp__pool_release(mark);
  amp__plain_end(plain);
  return status;
}

int amp_optim_step(amp_state *state, amp_optim *optim, const amp_hyper *hyper, int ngroup)
{
  amp_frame frame;
  AMP_ENTER(state);
  if (amp__trace_refuse("an optimizer steps", NULL) < 0) return state->err.code;
  bool watched = amp_unlikely(amp__observing()) && amp__observe_begin(&frame, AMP_SPAN_STEP, 0, 0);
  int status = step(optim, hyper, ngroup);
  if (watched) {
    amp__observe_end(&frame, status);
    amp__observe_step(optim);
  }
  return status;
}
