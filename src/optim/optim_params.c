/*
** optim/optim_params.c: the parameters that an optimizer has: groups, guards, memory laid out as a parameter is,
** gradients cleared. Steps are in optim/optim.c.
*/
#include <stdlib.h>
#include "dispatch/op_builder.h"
#include "optim/optim.h"

/* -- Life ---------------------------------------------------------------------- */

amp_optim *amp_optim_new(amp_state *state, int kind)
{
  AMP_ENTER(state);
  if (kind < 0 || kind >= AMP_OPTIM_COUNT) {
    amp__fail(AMP_E_ARGUMENT, "there is no optimizer kind %d", kind);
    return NULL;
  }
  amp_optim *optim = calloc(1, sizeof *optim);
  if (!optim) {
    amp__nomem(sizeof *optim);
    return NULL;
  }
  optim->kind = kind;
  return optim;
}

void amp__optim_drop_guards(amp_optim *optim)
{
  for (int i = 0; i < optim->nguard; i++) amp_check_free(optim->guard[i]);
  free(optim->guard);
  optim->guard = NULL;
  optim->nguard = 0;
}

void amp_optim_free(amp_optim *optim)
{
  if (!optim) return;
  amp__optim_drop_guards(optim);
  for (int group = 0; group < optim->ngroup; group++) {
    for (int i = 0; i < optim->group[group].count; i++) {
      amp__param *param = &optim->group[group].params[i];
      if (param->tensor->ag) param->tensor->ag->shadow_owned = 0;
      for (int which = 0; which < AMP_OPTIM_STATES; which++) amp__free(param->state[which]);
      amp__free(param->steps);
      amp__free(param->tensor);
    }
    free(optim->group[group].params);
  }
  free(optim->group);
  free(optim);
}

static int by_storage(const void *a, const void *b)
{
  const amp_storage *x = (*(amp__param *const *)a)->tensor->storage, *y = (*(amp__param *const *)b)->tensor->storage;
  return x < y ? -1 : x > y;
}

/* Mark parameters that lie in one storage with another: they step one after the other. */
static int mark_shared(amp_optim *optim)
{
  int count = 0, k = 0;
  for (int group = 0; group < optim->ngroup; group++) count += optim->group[group].count;
  amp__param **all = malloc(sizeof *all * (size_t)(count ? count : 1));
  if (!all) return amp__nomem(sizeof *all * (size_t)count);
  for (int group = 0; group < optim->ngroup; group++)
    for (int i = 0; i < optim->group[group].count; i++) all[k++] = &optim->group[group].params[i];
  qsort(all, (size_t)count, sizeof *all, by_storage);
  for (int i = 1; i < count; i++)
    if (all[i]->tensor->storage == all[i - 1]->tensor->storage) all[i]->shared = all[i - 1]->shared = 1;
  free(all);
  return 0;
}

int amp_optim_add_group(amp_state *state, amp_optim *optim, amp_tensor *const *param, int count)
{
  AMP_ENTER(state);
  if (count < 0) return amp__fail(AMP_E_ARGUMENT, "a group of %d parameters", count);
  for (int i = 0; i < count; i++) {
    const amp_tensor *tensor = param[i];
    if (!tensor) return amp__fail_arg(AMP_E_ARGUMENT, i + 1, "parameter %d was freed", i + 1);
    if (!amp__is_float(tensor->dtype))
      return amp__fail_arg(AMP_E_DTYPE, i + 1, "parameter %d is %s; only float tensors can be optimized", i + 1,
                           amp__tensor_str(tensor));
    if (tensor->flags & AMP_T_HISTORY)
      return amp__fail_arg(AMP_E_AUTOGRAD, i + 1, "parameter %d (%s) was made by an op; only leaves can be optimized",
                           i + 1, amp__tensor_str(tensor));
    for (int group = 0; group < optim->ngroup; group++)
      for (int j = 0; j < optim->group[group].count; j++)
        if (optim->group[group].params[j].tensor == tensor)
          return amp__fail_arg(AMP_E_ARGUMENT, i + 1, "parameter %d (%s) is in the optimizer already", i + 1,
                               amp__tensor_str(tensor));
    if (!amp__ag(param[i])) return state->err.code;
  }
  amp__group *groups = realloc(optim->group, sizeof *groups * (size_t)(optim->ngroup + 1));
  if (!groups) return amp__nomem(sizeof *groups * (size_t)(optim->ngroup + 1));
  optim->group = groups;
  amp__param *cell = calloc((size_t)(count ? count : 1), sizeof *cell);
  if (!cell) return amp__nomem(sizeof *cell * (size_t)count);
  for (int i = 0; i < count; i++) {
    cell[i].tensor = param[i];
    amp__retain(param[i]);
    cell[i].tensor->ag->shadow_owned = 1; /* from now on it outlives regions: the step writes it */
  }
  groups[optim->ngroup++] = (amp__group){ count, cell };
  int status = mark_shared(optim);
  return status ? status : optim->ngroup - 1;
}

int amp_optim_set_param(amp_state *state, amp_optim *optim, int group, int param, const amp_ref *value)
{
  AMP_ENTER(state);
  amp_tensor *tensor = value->t;
  if (group < 0 || group >= optim->ngroup || param < 0 || param >= optim->group[group].count)
    return amp__fail(AMP_E_INDEX, "the optimizer has no parameter %d in group %d", param + 1, group + 1);
  amp__param *cell = &optim->group[group].params[param];
  if (!tensor || !amp__is_float(tensor->dtype) || (tensor->flags & AMP_T_HISTORY)
      || !amp__same_size(tensor, cell->tensor))
    return amp__fail(AMP_E_ARGUMENT, "a parameter %s can't be replaced by %s", amp__tensor_str(cell->tensor),
                     tensor ? amp__tensor_str(tensor) : "a tensor that was freed");
  if (tensor == cell->tensor) return 0;
  if (!amp__ag(tensor)) return state->err.code;
  if (cell->tensor->ag) cell->tensor->ag->shadow_owned = 0;
  amp__retain(tensor);
  amp__free(cell->tensor);
  cell->tensor = tensor;
  cell->placed = 0;
  tensor->ag->shadow_owned = 1;
  return mark_shared(optim);
}

int amp_optim_guard(amp_state *state, amp_optim *optim, amp_check *check)
{
  AMP_ENTER(state);
  for (int i = 0; i < optim->nguard; i++)
    if (optim->guard[i] == check) return 0;
  amp_check **more = realloc(optim->guard, sizeof *more * (size_t)(optim->nguard + 1));
  if (!more) return amp__nomem(sizeof *more * (size_t)(optim->nguard + 1));
  optim->guard = more;
  amp__check_retain(check);
  optim->guard[optim->nguard++] = check;
  return 0;
}

/* -- Layout --------------------------------------------------------------------- */

void amp__optim_meta(const amp_tensor *tensor, int dtype, amp_meta *meta)
{
  amp__meta_of(tensor, meta);
  meta->dtype = (uint8_t)dtype;
  meta->strides = (tensor->flags & AMP_T_DENSE) != 0 && !(tensor->flags & AMP_T_CONTIGUOUS);
  if (!meta->strides) amp__contiguous_strides(meta->ndim, meta->size, meta->stride);
}

bool amp__optim_lies_as(const amp_tensor *a, const amp_meta *meta)
{
  for (int i = 0; i < meta->ndim; i++)
    if (meta->size[i] > 1 && a->stride[i] != meta->stride[i]) return false;
  return true;
}

/* Run an op of one result, or in place on in[0] (then in[0] itself, counted). */
static amp_tensor *run(int op, unsigned flags, amp_tensor **inputs, int count, const amp_attrs *a)
{
  amp_tensor *out[AMP_MAX_OUT] = { 0 };
  if (amp__dispatch(op, flags, inputs, count, out, a ? a->v : NULL)) return NULL;
  if (!(flags & AMP_INPLACE)) return out[0];
  amp__retain(inputs[0]);
  return inputs[0];
}

int amp__optim_zero(amp_tensor *tensor)
{
  if (tensor->device == AMP_CPU && (tensor->flags & AMP_T_DENSE)) {
    memset(amp__data(tensor), 0, (size_t)tensor->numel * amp__dtype_size[tensor->dtype]);
    return 0;
  }
  amp_attrs attrs = amp__attrs();
  amp__attrs_float(&attrs, 0);
  amp_tensor *r = run(AMP_OP_fill, AMP_INPLACE, &tensor, 1, &attrs);
  amp__free(r);
  return r ? 0 : amp__S->err.code;
}

amp_tensor *amp__optim_as(amp_tensor *value, const amp_meta *meta)
{
  bool here = value->device == meta->device && value->device_index == meta->device_index;
  if (here && value->dtype == meta->dtype && amp__optim_lies_as(value, meta)) {
    amp__retain(value);
    return value;
  }
  amp_tensor *moved = NULL, *r = amp__tensor_new(meta);
  if (!r) return NULL;
  if (here) {
    moved = value;
    amp__retain(value);
  } else {
    amp_attrs attrs = amp__attrs();
    amp__attrs_int(&attrs, meta->device * 256 + meta->device_index);
    if (!(moved = run(AMP_OP_to_device, 0, &value, 1, &attrs))) {
      amp__free(r);
      return NULL;
    }
  }
  amp_tensor *inputs[2] = { r, moved }, *done = run(AMP_OP_copy, AMP_INPLACE, inputs, 2, NULL);
  amp__free(moved);
  amp__free(r);
  return done;
}

/* -- Gradients ------------------------------------------------------------------ */

int amp_optim_clear_grad(amp_state *state, amp_optim *optim, int to_zero)
{
  AMP_ENTER(state);
  amp__plain plain = amp__plain_begin();
  int status = 0;
  for (int group = 0; group < optim->ngroup && !status; group++)
    for (int i = 0; i < optim->group[group].count && !status; i++) {
      amp__param *param = &optim->group[group].params[i];
      if (!amp__optim_has_grad(param)) continue;
      amp_grad *grad = &param->tensor->ag->grad;
      if (to_zero && !(grad->value->flags & AMP_T_HISTORY) && !(status = amp__grad_materialize(param->tensor))) {
        amp_attrs attrs = amp__attrs();
        amp__attrs_float(&attrs, 0);
        amp_tensor *done = run(AMP_OP_fill, AMP_INPLACE, &grad->value, 1, &attrs);
        if (!done) status = state->err.code;
        amp__free(done);
        amp_check_free(grad->check);
        grad->check = NULL;
        grad->origin = 0;
      } else if (!to_zero) amp__grad_clear(param->tensor);
    }
  amp__plain_end(plain);
  return status;
}
