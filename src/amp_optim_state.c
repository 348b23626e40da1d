/*
** amp_optim_state.c: an optimizer's state as the user sees it: named tensors and
** step counts of each parameter, read and set. What was allocated but never
** stepped, because every step so far was skipped, is not there for the user.
** amp_optim.c owns the state and steps it.
*/
#include "amp_optim.h"

static const struct { const char *name[AMP_OPTIM_STATES]; int n; } kinds[AMP_OPTIM_COUNT] = {
  [AMP_SGD] = {{"momentum_buffer"}, 1},
  [AMP_ADAM] = {{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, 3},
  [AMP_ADAMW] = {{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, 3},
  [AMP_RMSPROP] = {{"square_avg", "momentum_buffer", "grad_avg"}, 3},
  [AMP_ADAGRAD] = {{"sum"}, 1},
  [AMP_LAMB] = {{"exp_avg", "exp_avg_sq"}, 2},
};

int amp_optim_state_count(int kind) { return kind >= 0 && kind < AMP_OPTIM_COUNT ? kinds[kind].n : 0; }

const char *amp_optim_state_name(int kind, int which)
{
  return which >= 0 && which < amp_optim_state_count(kind) ? kinds[kind].name[which] : NULL;
}

static amp__param *param_of(amp_optim *o, int group, int param)
{
  if (group < 0 || group >= o->ngroup || param < 0 || param >= o->group[group].n) {
    amp__fail(AMP_E_INDEX, "the optimizer has no parameter %d in group %d", param + 1, group + 1);
    return NULL;
  }
  return &o->group[group].p[param];
}

static int read_steps(const amp__param *p, double v[2])
{
  v[0] = v[1] = 0;
  if (!p->steps) return 0;
  if (p->steps->device == AMP_CPU) { memcpy(v, amp__data(p->steps), sizeof(double) * 2); return 0; }
  amp_ref r = {p->steps};
  return amp_read(amp__S, &r, v, 2);
}

static int write_steps(amp__param *p, const double v[2])
{
  int64_t two = 2;
  amp_ref host = {0};
  int rc = amp_from_double(amp__S, &host, v, 1, &two, AMP_FLOAT64);
  if (rc) return rc;
  amp_meta c = {.dtype = AMP_FLOAT64, .ndim = 1, .device = p->t->device, .device_index = p->t->device_index, .size = {2}, .stride = {1}};
  rc = amp__optim_replace(&p->steps, amp__optim_as(host.t, &c));
  amp__free(host.t);
  return rc;
}

int amp_optim_state(amp_state *S, amp_ref *out, amp_optim *o, int group, int param, int which)
{
  AMP_ENTER(S);
  amp__param *p = param_of(o, group, param);
  double steps[2];
  if (!p) return S->err.code;
  if (which < 0 || which >= kinds[o->kind].n) return amp__fail(AMP_E_INDEX, "the optimizer has no state %d", which + 1);
  if (!p->state[which]) return 0;
  int rc = read_steps(p, steps);
  if (rc || steps[o->kind == AMP_SGD] == 0) return rc; /* allocated, but every step so far was skipped */
  return (out->t = amp__tensor_alias(p->state[which])) ? 0 : S->err.code;
}

int amp_optim_state_set(amp_state *S, amp_optim *o, int group, int param, int which, const amp_ref *v)
{
  AMP_ENTER(S);
  amp__param *p = param_of(o, group, param);
  double steps[2];
  int rc;
  if (!p) return S->err.code;
  if (which < 0 || which >= kinds[o->kind].n) return amp__fail(AMP_E_INDEX, "the optimizer has no state %d", which + 1);
  if ((rc = read_steps(p, steps))) return rc;
  if (v && v->t) {
    if (!amp__is_float(v->t->dtype) || !amp__same_size(v->t, p->t))
      return amp__fail(AMP_E_SHAPE, "%s of a parameter of shape %s can't be %s", kinds[o->kind].name[which], amp__shape_str(p->t->ndim, p->t->size), amp__tensor_str(v->t));
    amp__plain plain = amp__plain_begin();
    amp_meta m;
    amp__optim_meta(p->t, amp__optim_dtype(p->t), &m);
    amp_tensor *own = amp__optim_as(v->t, &m);
    if (own == v->t) { amp__free(own); own = amp__raw_clone(v->t); }
    rc = amp__optim_replace(&p->state[which], own);
    amp__plain_end(plain);
    if (rc) return rc;
    if (steps[1] == 0) steps[1] = 1;
  } else {
    amp__free(p->state[which]);
    p->state[which] = NULL;
    steps[1] = 0;
  }
  return o->kind == AMP_SGD ? write_steps(p, steps) : 0;
}

int amp_optim_get_steps(amp_state *S, amp_optim *o, int group, int param, double *steps)
{
  AMP_ENTER(S);
  amp__param *p = param_of(o, group, param);
  double v[2];
  if (!p) return S->err.code;
  int rc = read_steps(p, v);
  *steps = v[0];
  return rc;
}

int amp_optim_set_steps(amp_state *S, amp_optim *o, int group, int param, double steps)
{
  AMP_ENTER(S);
  amp__param *p = param_of(o, group, param);
  double v[2];
  if (!p) return S->err.code;
  if (!(steps >= 0)) return amp__fail(AMP_E_VALUE, "a step count must be 0 or more, got %g", steps);
  int rc = read_steps(p, v);
  if (rc) return rc;
  v[0] = steps;
  return write_steps(p, v);
}
