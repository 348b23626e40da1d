/*
** amp_optim_state.c: an optimizer's state as the user sees it: named tensors and
** step counts of each parameter, read and set. What was allocated but never
** stepped, because every step so far was skipped, is not there for the user. Counts
** lie on the device: whoever reads many looks at all of them first, with one wait.
** amp_optim.c owns the state and steps it.
*/
#include <stdlib.h>
#include "amp_compose.h"
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

static int read_steps(const amp_optim *o, const amp__param *p, double v[2])
{
  v[0] = v[1] = 0;
  if (!p->steps) return 0;
  if (o->told) { memcpy(v, p->told, sizeof p->told); return 0; }
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
  if (!rc) memcpy(p->told, v, sizeof p->told);
  return rc;
}

/* The counts of n parameters of one device, by one copy to the host. */
static int look_there(amp_tensor **list, amp__param **from, double *values, int n)
{
  int mark = amp__pool_mark(), rc = 0;
  amp_sl a = amp__sl();
  amp__sl_i(&a, 1); /* the dimension */
  amp_tensor *all = n == 1 ? list[0] : amp__x(AMP_OP_cat, &a, n, list);
  if (all) {
    amp_ref r = {all};
    rc = amp_read(amp__S, &r, values, 2 * (int64_t)n);
  } else rc = amp__S->err.code;
  for (int i = 0; i < n && !rc; i++) memcpy(from[i]->told, values + 2 * i, sizeof from[i]->told);
  amp__pool_release(mark);
  return rc;
}

static int look(amp_optim *o)
{
  int n = 0, rc = 0;
  for (int g = 0; g < o->ngroup; g++) n += o->group[g].n;
  amp_tensor **list = malloc(sizeof *list * (size_t)(n + 1));
  amp__param **all = malloc(sizeof *all * (size_t)(n + 1)), **from = malloc(sizeof *from * (size_t)(n + 1));
  double *values = malloc(sizeof *values * 2 * (size_t)(n + 1));
  if (!list || !all || !from || !values) { rc = amp__nomem(sizeof *values * 2 * (size_t)n); goto out; }
  n = 0;
  for (int g = 0; g < o->ngroup; g++)
    for (int i = 0; i < o->group[g].n; i++) {
      amp__param *p = &o->group[g].p[i];
      if (p->steps && p->steps->device != AMP_CPU) all[n++] = p;
      else if (p->steps) memcpy(p->told, amp__data(p->steps), sizeof p->told);
    }
  while (n && !rc) { /* device by device */
    const amp_tensor *first = all[0]->steps;
    int here = 0, rest = 0;
    for (int i = 0; i < n; i++) {
      amp_tensor *t = all[i]->steps;
      if (t->device == first->device && t->device_index == first->device_index) { list[here] = t; from[here++] = all[i]; }
      else all[rest++] = all[i];
    }
    rc = look_there(list, from, values, here);
    n = rest;
  }
out:
  free(list); free(all); free(from); free(values);
  return rc;
}

int amp_optim_look(amp_state *S, amp_optim *o, int on)
{
  AMP_ENTER(S);
  o->told = false;
  if (!on) return 0;
  amp__plain plain = amp__plain_begin();
  int rc = look(o);
  amp__plain_end(plain);
  o->told = rc == 0;
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
  int rc = read_steps(o, p, steps);
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
  if ((rc = read_steps(o, p, steps))) return rc;
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
  int rc = read_steps(o, p, v);
  *steps = amp__one_nan(v[0]);
  return rc;
}

int amp_optim_set_steps(amp_state *S, amp_optim *o, int group, int param, double steps)
{
  AMP_ENTER(S);
  amp__param *p = param_of(o, group, param);
  double v[2];
  if (!p) return S->err.code;
  if (!(steps >= 0)) return amp__fail(AMP_E_VALUE, "a step count must be 0 or more, got %g", steps);
  int rc = read_steps(o, p, v);
  if (rc) return rc;
  v[0] = steps;
  return write_steps(p, v);
}
