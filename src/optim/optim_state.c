/*
** optim/optim_state.c: an optimizer's state as the user sees it: named tensors and
** step counts of each parameter, read and set. What was allocated but never
** stepped, because every step so far was skipped, is not there for the user. Counts
** lie on the device: a reader of many looks at all of them first, with one wait.
** optim/optim.c owns the state and steps it.
*/
#include <stdlib.h>
#include "dispatch/op_builder.h"
#include "optim/optim.h"

static const struct {
  const char *name[AMP_OPTIM_STATES];
  int count;
} kinds[AMP_OPTIM_COUNT] = {
  [AMP_SGD] = { { "momentum_buffer" }, 1 },
  [AMP_ADAM] = { { "exp_avg", "exp_avg_sq", "max_exp_avg_sq" }, 3 },
  [AMP_ADAMW] = { { "exp_avg", "exp_avg_sq", "max_exp_avg_sq" }, 3 },
  [AMP_RMSPROP] = { { "square_avg", "momentum_buffer", "grad_avg" }, 3 },
  [AMP_ADAGRAD] = { { "sum" }, 1 },
  [AMP_LAMB] = { { "exp_avg", "exp_avg_sq" }, 2 },
  [AMP_NADAM] = { { "exp_avg", "exp_avg_sq" }, 2 },
  [AMP_RADAM] = { { "exp_avg", "exp_avg_sq" }, 2 },
  [AMP_ADADELTA] = { { "square_avg", "acc_delta" }, 2 },
  [AMP_ADAMAX] = { { "exp_avg", "exp_inf" }, 2 },
  [AMP_LION] = { { "exp_avg" }, 1 },
};

int amp_optim_state_count(int kind) { return kind >= 0 && kind < AMP_OPTIM_COUNT ? kinds[kind].count : 0; }

const char *amp_optim_state_name(int kind, int which)
{
  return which >= 0 && which < amp_optim_state_count(kind) ? kinds[kind].name[which] : NULL;
}

static amp__param *param_of(amp_optim *optim, int group, int param)
{
  if (group < 0 || group >= optim->ngroup || param < 0 || param >= optim->group[group].count) {
    amp__fail(AMP_E_INDEX, "the optimizer has no parameter %d in group %d", param + 1, group + 1);
    return NULL;
  }
  return &optim->group[group].params[param];
}

static int read_steps(const amp_optim *optim, const amp__param *param, double steps[2])
{
  steps[0] = steps[1] = 0;
  if (!param->steps) return 0;
  if (optim->steps_known) {
    memcpy(steps, param->known_steps, sizeof param->known_steps);
    return 0;
  }
  if (param->steps->device == AMP_CPU) {
    memcpy(steps, amp__data(param->steps), sizeof(double) * 2);
    return 0;
  }
  amp_ref r = { param->steps };
  return amp_read(amp__S, &r, steps, 2);
}

static int write_steps(amp__param *param, const double v[2])
{
  int64_t two = 2;
  amp_ref host = { 0 };
  int status = amp_from_double(amp__S, &host, v, 1, &two, AMP_FLOAT64);
  if (status) return status;
  amp_meta c = { .dtype = AMP_FLOAT64,
                 .ndim = 1,
                 .device = param->tensor->device,
                 .device_index = param->tensor->device_index,
                 .size = { 2 },
                 .stride = { 1 } };
  status = amp__optim_replace(&param->steps, amp__optim_as(host.t, &c));
  amp__free(host.t);
  if (!status) memcpy(param->known_steps, v, sizeof param->known_steps);
  return status;
}

/* The counts of `count` parameters of one device, by one copy to the host. */
static int look_there(amp_tensor **list, amp__param **from, double *values, int count)
{
  int mark = amp__pool_mark(), status = 0;
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, 1); /* the dimension */
  amp_tensor *all = count == 1 ? list[0] : amp__op(AMP_OP_cat, &attrs, count, list);
  if (all) {
    amp_ref r = { all };
    status = amp_read(amp__S, &r, values, 2 * (int64_t)count);
  } else status = amp__S->err.code;
  for (int i = 0; i < count && !status; i++) memcpy(from[i]->known_steps, values + 2 * i, sizeof from[i]->known_steps);
  amp__pool_release(mark);
  return status;
}

static int look(amp_optim *optim)
{
  int count = 0, status = 0;
  for (int group = 0; group < optim->ngroup; group++) count += optim->group[group].count;
  amp_tensor **list = malloc(sizeof *list * (size_t)(count + 1));
  amp__param **all = malloc(sizeof *all * (size_t)(count + 1)), **from = malloc(sizeof *from * (size_t)(count + 1));
  double *values = malloc(sizeof *values * 2 * (size_t)(count + 1));
  if (!list || !all || !from || !values) {
    status = amp__nomem(sizeof *values * 2 * (size_t)count);
    goto out;
  }
  count = 0;
  for (int group = 0; group < optim->ngroup; group++)
    for (int i = 0; i < optim->group[group].count; i++) {
      amp__param *param = &optim->group[group].params[i];
      if (param->steps && param->steps->device != AMP_CPU) all[count++] = param;
      else if (param->steps) memcpy(param->known_steps, amp__data(param->steps), sizeof param->known_steps);
    }
  while (count && !status) { /* device by device */
    const amp_tensor *first = all[0]->steps;
    int here = 0, rest = 0;
    for (int i = 0; i < count; i++) {
      amp_tensor *tensor = all[i]->steps;
      if (tensor->device == first->device && tensor->device_index == first->device_index) {
        list[here] = tensor;
        from[here++] = all[i];
      } else all[rest++] = all[i];
    }
    status = look_there(list, from, values, here);
    count = rest;
  }
out:
  free(list);
  free(all);
  free(from);
  free(values);
  return status;
}

int amp_optim_look(amp_state *state, amp_optim *optim, int on)
{
  AMP_ENTER(state);
  optim->steps_known = false;
  if (!on) return 0;
  amp__plain plain = amp__plain_begin();
  int status = look(optim);
  amp__plain_end(plain);
  optim->steps_known = status == 0;
  return status;
}

int amp_optim_state(amp_state *state, amp_ref *out, amp_optim *optim, int group, int param, int which)
{
  AMP_ENTER(state);
  amp__param *cell = param_of(optim, group, param);
  double steps[2];
  if (!cell) return state->err.code;
  if (which < 0 || which >= kinds[optim->kind].count)
    return amp__fail(AMP_E_INDEX, "the optimizer has no state %d", which + 1);
  if (!cell->state[which]) return 0;
  int status = read_steps(optim, cell, steps);
  if (status || steps[optim->kind == AMP_SGD] == 0) return status; /* allocated, but every step so far was skipped */
  return (out->t = amp__tensor_alias(cell->state[which])) ? 0 : state->err.code;
}

int amp_optim_state_set(amp_state *state, amp_optim *optim, int group, int param, int which, const amp_ref *value)
{
  AMP_ENTER(state);
  amp__param *cell = param_of(optim, group, param);
  double steps[2];
  int status;
  if (!cell) return state->err.code;
  if (which < 0 || which >= kinds[optim->kind].count)
    return amp__fail(AMP_E_INDEX, "the optimizer has no state %d", which + 1);
  if ((status = read_steps(optim, cell, steps))) return status;
  if (value && value->t) {
    if (!amp__is_float(value->t->dtype) || !amp__same_size(value->t, cell->tensor))
      return amp__fail(AMP_E_SHAPE, "%s of a parameter of shape %s can't be %s", kinds[optim->kind].name[which],
                       amp__shape_str(cell->tensor->ndim, cell->tensor->size), amp__tensor_str(value->t));
    amp__plain plain = amp__plain_begin();
    amp_meta meta;
    amp__optim_meta(cell->tensor, amp__optim_dtype(cell->tensor), &meta);
    amp_tensor *own = amp__optim_as(value->t, &meta);
    if (own == value->t) {
      amp__free(own);
      own = amp__raw_clone(value->t);
    }
    status = amp__optim_replace(&cell->state[which], own);
    amp__plain_end(plain);
    if (status) return status;
    if (steps[1] == 0) steps[1] = 1;
  } else {
    amp__free(cell->state[which]);
    cell->state[which] = NULL;
    steps[1] = 0;
  }
  return optim->kind == AMP_SGD ? write_steps(cell, steps) : 0;
}

int amp_optim_get_steps(amp_state *state, amp_optim *optim, int group, int param, double *steps)
{
  AMP_ENTER(state);
  amp__param *cell = param_of(optim, group, param);
  double v[2];
  if (!cell) return state->err.code;
  int status = read_steps(optim, cell, v);
  *steps = amp__one_nan(v[0]);
  return status;
}

int amp_optim_set_steps(amp_state *state, amp_optim *optim, int group, int param, double steps)
{
  AMP_ENTER(state);
  amp__param *cell = param_of(optim, group, param);
  double v[2];
  if (!cell) return state->err.code;
  if (!(steps >= 0)) return amp__fail(AMP_E_VALUE, "a step count must be 0 or more, got %g", steps);
  int status = read_steps(optim, cell, v);
  if (status) return status;
  v[0] = steps;
  if (optim->kind == AMP_NADAM) v[1] = 0; /* the product of its momenta is made anew */
  return write_steps(cell, v);
}
