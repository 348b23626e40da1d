/*
** amp_optim.c: fused optimizer steps: SGD, Adam, AdamW, RMSprop, Adagrad, LAMB.
**
** A step collects the parameters that have a gradient, brings gradients and
** state into each parameter's physical layout, and hands the device one list of
** chunks (master, shadow, gradient with its pending factor, state, step count)
** a group. The found-inf cells of the gradients' checks go along: if any is set
** the device changes nothing, and nobody waits to know. A gradient changed since
** its check is checked again here; one without a check just steps. A guard is a
** check that the next step looks at besides: of a loss whose overflow may lie in
** another optimizer's gradients. A check that is due (amp_check.c) is the device's,
** in the same launch, where that can be; else it is settled before.
**
** Who owns what: the optimizer counts its parameters and owns their state and
** step cells; memory may lie in an arena (amp_arena.c). Afterwards a stepped
** parameter's storage has a new version and its 16-bit shadow, written in the
** same pass, is right for it; shadows of its parameters outlive regions. Formulas
** are the device's, hyper-parameters Lua's.
*/
#include <stdlib.h>
#include "amp_compose.h"
#include "amp_optim.h"

/* -- Life ---------------------------------------------------------------------- */

amp_optim *amp_optim_new(amp_state *S, int kind)
{
  AMP_ENTER(S);
  if (kind < 0 || kind >= AMP_OPTIM_COUNT) { amp__fail(AMP_E_ARGUMENT, "there is no optimizer kind %d", kind); return NULL; }
  amp_optim *o = calloc(1, sizeof *o);
  if (!o) { amp__nomem(sizeof *o); return NULL; }
  o->kind = kind;
  return o;
}

static void drop_guards(amp_optim *o)
{
  for (int i = 0; i < o->nguard; i++) amp_check_free(o->guard[i]);
  free(o->guard);
  o->guard = NULL;
  o->nguard = 0;
}

void amp_optim_free(amp_optim *o)
{
  if (!o) return;
  drop_guards(o);
  for (int g = 0; g < o->ngroup; g++) {
    for (int i = 0; i < o->group[g].n; i++) {
      amp__param *p = &o->group[g].p[i];
      if (p->t->ag) p->t->ag->shadow_owned = 0;
      for (int w = 0; w < AMP_OPTIM_STATES; w++) amp__free(p->state[w]);
      amp__free(p->steps);
      amp__free(p->t);
    }
    free(o->group[g].p);
  }
  free(o->group);
  free(o);
}

static int by_storage(const void *a, const void *b)
{
  const amp_storage *x = (*(amp__param *const *)a)->t->storage, *y = (*(amp__param *const *)b)->t->storage;
  return x < y ? -1 : x > y;
}

/* Mark parameters that lie in one storage with another: they step one after the other. */
static int mark_shared(amp_optim *o)
{
  int n = 0, k = 0;
  for (int g = 0; g < o->ngroup; g++) n += o->group[g].n;
  amp__param **all = malloc(sizeof *all * (size_t)(n ? n : 1));
  if (!all) return amp__nomem(sizeof *all * (size_t)n);
  for (int g = 0; g < o->ngroup; g++)
    for (int i = 0; i < o->group[g].n; i++) all[k++] = &o->group[g].p[i];
  qsort(all, (size_t)n, sizeof *all, by_storage);
  for (int i = 1; i < n; i++)
    if (all[i]->t->storage == all[i - 1]->t->storage) all[i]->shared = all[i - 1]->shared = 1;
  free(all);
  return 0;
}

int amp_optim_add_group(amp_state *S, amp_optim *o, amp_tensor *const *param, int n)
{
  AMP_ENTER(S);
  if (n < 0) return amp__fail(AMP_E_ARGUMENT, "a group of %d parameters", n);
  for (int i = 0; i < n; i++) {
    const amp_tensor *t = param[i];
    if (!t) return amp__fail_arg(AMP_E_ARGUMENT, i + 1, "parameter %d was freed", i + 1);
    if (!amp__is_float(t->dtype)) return amp__fail_arg(AMP_E_DTYPE, i + 1, "parameter %d is %s; only float tensors can be optimized", i + 1, amp__tensor_str(t));
    if (t->flags & AMP_T_HISTORY) return amp__fail_arg(AMP_E_AUTOGRAD, i + 1, "parameter %d (%s) was made by an op; only leaves can be optimized", i + 1, amp__tensor_str(t));
    for (int g = 0; g < o->ngroup; g++)
      for (int j = 0; j < o->group[g].n; j++)
        if (o->group[g].p[j].t == t) return amp__fail_arg(AMP_E_ARGUMENT, i + 1, "parameter %d (%s) is in the optimizer already", i + 1, amp__tensor_str(t));
    if (!amp__ag(param[i])) return S->err.code;
  }
  amp__group *groups = realloc(o->group, sizeof *groups * (size_t)(o->ngroup + 1));
  if (!groups) return amp__nomem(sizeof *groups * (size_t)(o->ngroup + 1));
  o->group = groups;
  amp__param *p = calloc((size_t)(n ? n : 1), sizeof *p);
  if (!p) return amp__nomem(sizeof *p * (size_t)n);
  for (int i = 0; i < n; i++) {
    p[i].t = param[i];
    amp__retain(param[i]);
    p[i].t->ag->shadow_owned = 1; /* from now on it outlives regions: the step writes it */
  }
  groups[o->ngroup++] = (amp__group){n, p};
  int rc = mark_shared(o);
  return rc ? rc : o->ngroup - 1;
}

int amp_optim_set_param(amp_state *S, amp_optim *o, int group, int param, const amp_ref *v)
{
  AMP_ENTER(S);
  amp_tensor *t = v->t;
  if (group < 0 || group >= o->ngroup || param < 0 || param >= o->group[group].n)
    return amp__fail(AMP_E_INDEX, "the optimizer has no parameter %d in group %d", param + 1, group + 1);
  amp__param *p = &o->group[group].p[param];
  if (!t || !amp__is_float(t->dtype) || (t->flags & AMP_T_HISTORY) || !amp__same_size(t, p->t))
    return amp__fail(AMP_E_ARGUMENT, "a parameter %s can't be replaced by %s", amp__tensor_str(p->t), t ? amp__tensor_str(t) : "a tensor that was freed");
  if (t == p->t) return 0;
  if (!amp__ag(t)) return S->err.code;
  if (p->t->ag) p->t->ag->shadow_owned = 0;
  amp__retain(t);
  amp__free(p->t);
  p->t = t;
  p->placed = 0;
  t->ag->shadow_owned = 1;
  return mark_shared(o);
}

int amp_optim_guard(amp_state *S, amp_optim *o, amp_check *k)
{
  AMP_ENTER(S);
  for (int i = 0; i < o->nguard; i++)
    if (o->guard[i] == k) return 0;
  amp_check **more = realloc(o->guard, sizeof *more * (size_t)(o->nguard + 1));
  if (!more) return amp__nomem(sizeof *more * (size_t)(o->nguard + 1));
  o->guard = more;
  amp__check_retain(k);
  o->guard[o->nguard++] = k;
  return 0;
}

/* -- Layout --------------------------------------------------------------------- */

void amp__optim_meta(const amp_tensor *t, int dtype, amp_meta *m)
{
  amp__meta_of(t, m);
  m->dtype = (uint8_t)dtype;
  m->strides = (t->flags & AMP_T_DENSE) != 0 && !(t->flags & AMP_T_CONTIGUOUS);
  if (!m->strides) amp__contiguous_strides(m->ndim, m->size, m->stride);
}

static bool lies_as(const amp_tensor *a, const amp_meta *m)
{
  for (int i = 0; i < m->ndim; i++)
    if (m->size[i] > 1 && a->stride[i] != m->stride[i]) return false;
  return true;
}

/* Run an op of one result, or in place on in[0] (then in[0] itself, counted). */
static amp_tensor *run(int op, unsigned flags, amp_tensor **in, int n, const amp_sl *a)
{
  amp_tensor *out[AMP_MAX_OUT] = {0};
  if (amp__dispatch(op, flags, in, n, out, a ? a->v : NULL)) return NULL;
  if (!(flags & AMP_INPLACE)) return out[0];
  amp__retain(in[0]);
  return in[0];
}

int amp__optim_zero(amp_tensor *t)
{
  if (t->device == AMP_CPU && (t->flags & AMP_T_DENSE)) {
    memset(amp__data(t), 0, (size_t)t->numel * amp__dtype_size[t->dtype]);
    return 0;
  }
  amp_sl a = amp__sl();
  amp__sl_f(&a, 0);
  amp_tensor *r = run(AMP_OP_fill, AMP_INPLACE, &t, 1, &a);
  amp__free(r);
  return r ? 0 : amp__S->err.code;
}

amp_tensor *amp__optim_as(amp_tensor *v, const amp_meta *m)
{
  bool here = v->device == m->device && v->device_index == m->device_index;
  if (here && v->dtype == m->dtype && lies_as(v, m)) { amp__retain(v); return v; }
  amp_tensor *there = NULL, *r = amp__tensor_new(m);
  if (!r) return NULL;
  if (here) { there = v; amp__retain(v); }
  else {
    amp_sl a = amp__sl();
    amp__sl_i(&a, m->device * 256 + m->device_index);
    if (!(there = run(AMP_OP_to_device, 0, &v, 1, &a))) { amp__free(r); return NULL; }
  }
  amp_tensor *in[2] = {r, there}, *done = run(AMP_OP_copy, AMP_INPLACE, in, 2, NULL);
  amp__free(there);
  amp__free(r);
  return done;
}

static bool has_grad(const amp__param *p) { return p->t->ag && p->t->ag->grad.value; }

/* Step cells and the states of `need`, where and as the parameter lies. */
static int prepare_state(amp__param *p, unsigned need)
{
  const amp_tensor *t = p->t;
  amp_meta m;
  int rc = 0;
  amp__optim_meta(t, amp__optim_dtype(t), &m);
  for (int w = 0; w < AMP_OPTIM_STATES && !rc; w++) {
    if (p->state[w]) {
      if (!amp__same_size(p->state[w], t))
        return amp__fail(AMP_E_SHAPE, "a parameter is of shape %s, the optimizer's state for it of shape %s",
                         amp__shape_str(t->ndim, t->size), amp__shape_str(p->state[w]->ndim, p->state[w]->size));
      rc = amp__optim_replace(&p->state[w], amp__optim_as(p->state[w], &m));
    } else if (need >> w & 1) {
      rc = amp__optim_replace(&p->state[w], amp__tensor_new(&m));
      if (!rc && (rc = amp__optim_zero(p->state[w]))) { amp__free(p->state[w]); p->state[w] = NULL; }
    }
  }
  if (rc) return rc;
  amp_meta c = {.dtype = AMP_FLOAT64, .ndim = 1, .device = t->device, .device_index = t->device_index, .size = {2}, .stride = {1}};
  if (p->steps) return amp__optim_replace(&p->steps, amp__optim_as(p->steps, &c));
  rc = amp__optim_replace(&p->steps, amp__tensor_new(&c));
  if (!rc && (rc = amp__optim_zero(p->steps))) { amp__free(p->steps); p->steps = NULL; }
  return rc;
}

/* -- Step -------------------------------------------------------------------------- */

typedef struct work { /* of one parameter in this step */
  amp__param *p;
  int group;
  amp_tensor *grad, *temp;  /* as the kernel reads them; temp: stands for a parameter with gaps. Counted */
  amp_tensor *shadow;       /* the one the kernel writes, borrowed; NULL: none */
} work;

typedef struct place { uint8_t device, index; const float **found; amp_tensor **copy; int ncopy; } place;

static unsigned states_of(int kind, const amp_hyper *h)
{
  switch (kind) {
  case AMP_SGD: return h->momentum != 0;
  case AMP_RMSPROP: return 1 | (h->momentum != 0) << 1 | (h->centered != 0) << 2;
  case AMP_ADAGRAD: return 1;
  case AMP_LAMB: return 3;
  default: return h->amsgrad ? 7 : 3;
  }
}

static int check_hyper(int kind, const amp_hyper *h)
{
  if (!(h->lr >= 0)) return amp__fail(AMP_E_VALUE, "lr must be 0 or more, got %g", h->lr);
  if (!(h->weight_decay >= 0)) return amp__fail(AMP_E_VALUE, "weight_decay must be 0 or more, got %g", h->weight_decay);
  if (kind == AMP_SGD) {
    if (!(h->momentum >= 0)) return amp__fail(AMP_E_VALUE, "momentum must be 0 or more, got %g", h->momentum);
    if (h->nesterov && (h->momentum <= 0 || h->dampening != 0)) return amp__fail(AMP_E_VALUE, "nesterov needs a momentum and no dampening, got momentum %g, dampening %g", h->momentum, h->dampening);
    return 0;
  }
  if (!(h->eps >= 0)) return amp__fail(AMP_E_VALUE, "eps must be 0 or more, got %g", h->eps);
  if (kind == AMP_RMSPROP) {
    if (!(h->momentum >= 0)) return amp__fail(AMP_E_VALUE, "momentum must be 0 or more, got %g", h->momentum);
    return h->alpha >= 0 ? 0 : amp__fail(AMP_E_VALUE, "alpha must be 0 or more, got %g", h->alpha);
  }
  if (kind == AMP_ADAGRAD) {
    if (!(h->lr_decay >= 0)) return amp__fail(AMP_E_VALUE, "lr_decay must be 0 or more, got %g", h->lr_decay);
    return h->initial >= 0 ? 0 : amp__fail(AMP_E_VALUE, "initial_accumulator_value must be 0 or more, got %g", h->initial);
  }
  if (!(h->beta1 >= 0 && h->beta1 < 1)) return amp__fail(AMP_E_VALUE, "beta1 must be in [0, 1), got %g", h->beta1);
  if (!(h->beta2 >= 0 && h->beta2 < 1)) return amp__fail(AMP_E_VALUE, "beta2 must be in [0, 1), got %g", h->beta2);
  return 0;
}

/* Gradient, state and shadow of one parameter, ready for a chunk. */
static int prepare(work *k, unsigned need)
{
  amp_tensor *t = k->p->t;
  amp_grad *g = &t->ag->grad;
  if (!amp__same_size(g->value, t) || g->value->device != t->device || g->value->device_index != t->device_index)
    return amp__fail(AMP_E_STATE, "a parameter is %s, its gradient %s: clear gradients when parameters move", amp__tensor_str(t), amp__tensor_str(g->value));
  int rc = prepare_state(k->p, need);
  if (rc) return rc;
  amp_meta m;
  amp__optim_meta(t, g->value->dtype, &m);
  if (!(k->grad = amp__optim_as(g->value, &m))) return amp__S->err.code;
  if (!(t->flags & AMP_T_DENSE)) {
    m.dtype = t->dtype;
    if (!(k->temp = amp__optim_as(t, &m))) return amp__S->err.code;
  }
  amp_tensor *s = t->ag->shadow;
  if (s && t->dtype == AMP_FLOAT32 && amp__is_half(s->dtype) && !k->temp && !k->p->shared && t->ag->shadow_version == amp__version(t) &&
      !(t->storage->flags & (AMP_S_EXPOSED | AMP_S_FOREIGN)) && (s->flags & AMP_T_DENSE) && amp__same_size(s, t) && lies_as(s, &m))
    k->shadow = s;
  return 0;
}

static void fill_chunk(amp_optim_chunk *c, const work *k, unsigned need)
{
  const amp__param *p = k->p;
  const amp_grad *g = &p->t->ag->grad;
  amp_tensor *t = k->temp ? k->temp : p->t;
  memset(c, 0, sizeof *c);
  c->master = amp__data(t);
  c->master_dtype = t->dtype;
  c->grad = amp__data(k->grad);
  c->grad_dtype = k->grad->dtype;
  c->factor = g->factor ? AMP_DATA(float, g->factor) : NULL;
  if (k->shadow) { c->shadow = amp__data(k->shadow); c->shadow_dtype = k->shadow->dtype; }
  float **s[AMP_OPTIM_STATES] = {&c->s0, &c->s1, &c->s2};
  for (int w = 0; w < AMP_OPTIM_STATES; w++)
    if (need >> w & 1) *s[w] = amp__data(p->state[w]);
  c->steps = AMP_DATA(double, p->steps);
  c->n = t->numel;
  if (amp_unlikely(amp__capturing)) {
    amp_tensor *all[] = { p->t, k->shadow, k->grad, p->steps, p->state[0], p->state[1], p->state[2], g->factor };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) amp__capture_note(all[i]);
  }
  if (amp_unlikely(amp__streamed)) {
    const amp_tensor *all[] = { t, k->shadow, k->grad, p->steps, p->state[0], p->state[1], p->state[2], g->factor };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) amp__touch(all[i]);
  }
}

/* The found-inf cells, as pointers that device may read. */
static place *place_of(place *pl, int *n, const amp_tensor *t, amp_tensor **found, int nfound)
{
  for (int i = 0; i < *n; i++)
    if (pl[i].device == t->device && pl[i].index == t->device_index) return &pl[i];
  if (*n == AMP_MAX_PLACES) { amp__fail(AMP_E_UNSUPPORTED, "parameters on more than %d devices", AMP_MAX_PLACES); return NULL; }
  place *q = &pl[(*n)++];
  *q = (place){t->device, t->device_index, malloc(sizeof *q->found * (size_t)(nfound + 1)), malloc(sizeof *q->copy * (size_t)(nfound + 1)), 0};
  if (!q->found || !q->copy) { amp__nomem(sizeof *q->found * (size_t)nfound); return NULL; }
  for (int i = 0; i < nfound; i++) {
    amp_tensor *f = found[i];
    if (amp_unlikely(amp__capturing)) amp__capture_note(f);
    amp__touch(f);
    if (f->device != t->device || f->device_index != t->device_index) {
      if (!(f = amp__cell_copy(f, t->device, t->device_index))) return NULL;
      q->copy[q->ncopy++] = f;
    }
    q->found[i] = AMP_DATA(float, f);
  }
  return q;
}

/* Copy a stepped stand-in back; new versions; the shadow is the new master's. */
static int finish(work *k)
{
  amp_tensor *t = k->p->t;
  int rc = 0;
  if (k->temp) {
    amp_tensor *in[2] = {t, k->temp};
    rc = amp__dispatch(AMP_OP_copy, AMP_INPLACE, in, 2, NULL, NULL);
  } else amp__bump(t);
  t->ag->shadow_owned = 1; /* another optimizer of t may have gone */
  if (k->shadow) {
    amp__bump(k->shadow);
    t->ag->shadow_version = amp__version(t);
    t->ag->shadow_stamp = amp__version(k->shadow);
  }
  return rc;
}

typedef struct cells { amp_tensor **t; int n, cap; } cells; /* borrowed */

static int add_cell(cells *c, amp_tensor *f)
{
  for (int i = c->n - 1; i >= 0; i--)
    if (c->t[i] == f) return 0;
  if (c->n == c->cap) {
    int cap = c->cap ? 2 * c->cap : 8;
    amp_tensor **more = realloc(c->t, sizeof *more * (size_t)cap);
    if (!more) return amp__nomem(sizeof *more * (size_t)cap);
    c->t = more;
    c->cap = cap;
  }
  c->t[c->n++] = f;
  return 0;
}

/* Distinct found-inf cells of the guards and of the gradients' checks. */
static int collect_found(amp_optim *o, cells *c, amp_check **fresh)
{
  int rc = 0;
  for (int i = 0; i < o->nguard && !rc; i++)
    for (int j = 0; j < o->guard[i]->nplace && !rc; j++) rc = add_cell(c, o->guard[i]->place[j].found);
  for (int g = 0; g < o->ngroup && !rc; g++)
    for (int i = 0; i < o->group[g].n && !rc; i++) {
      amp__param *p = &o->group[g].p[i];
      if (!has_grad(p)) continue;
      if (amp_unlikely(amp__grad_origin(&p->t->ag->grad) & AMP_O_SCALED) && !p->t->ag->grad.given)
        return amp__fail(AMP_E_STATE, "the gradient of parameter %d of group %d (%s) is that of a scaled loss and was not unscaled", i + 1, g + 1, amp__tensor_str(p->t));
      if ((rc = amp__check_again(p->t, fresh))) continue;
      amp_tensor *f = amp__check_cell(&p->t->ag->grad);
      if (f) rc = add_cell(c, f);
    }
  return rc;
}

/* The check that this step's gradients leave to it, counted; all others are settled. *due NULL: none. */
static int find_due(amp_optim *o, amp_check **due)
{
  int rc = 0;
  for (int g = 0; g < o->ngroup && !rc; g++)
    for (int i = 0; i < o->group[g].n && !rc; i++) {
      amp_check *c = has_grad(&o->group[g].p[i]) ? o->group[g].p[i].t->ag->grad.check : NULL;
      if (!c || !c->due || c == *due) continue;
      if (*due) rc = amp__check_settle(c);
      else amp__check_retain(*due = c);
    }
  for (int i = 0; i < o->nguard && !rc; i++)
    if (o->guard[i] != *due) rc = amp__check_settle(o->guard[i]);
  return rc;
}

/* Does one launch step what is due, and nothing else? Else it is settled. */
static int settle_unless_one(amp_check *due, const work *k, int n)
{
  bool one = n > 0;
  for (int i = 0; i < n && one; i++)
    one = amp__check_late(due, i, n, k[i].grad) && k[i].group == k[0].group && !k[i].p->shared;
  return one ? 0 : amp__check_settle(due);
}

/* Step a group's n works, device by device; shared storages one at a time. */
static int step_group(amp_optim *o, int group, const amp_hyper *h, work *k, int n, place *pl, int *npl, amp_tensor **found, int nfound, amp_optim_chunk *chunk, amp_check *due)
{
  const amp_hyper *there = NULL;
  if (amp_unlikely(amp__capturing) && !(there = amp__capture_hyper(o, group, o->ngroup))) {
    if (amp__capture_here()) return amp__S->err.code;
  }
  unsigned need = states_of(o->kind, h);
  for (int i = 0; i < n; i++) {
    place *q = place_of(pl, npl, k[i].p->t, found, nfound);
    if (!q) return amp__S->err.code;
  }
  for (int d = 0; d < *npl; d++) {
    int m = 0, rc = 0;
    for (int i = 0; i < n && !rc; i++) {
      const amp_tensor *t = k[i].p->t;
      if (t->device != pl[d].device || t->device_index != pl[d].index) continue;
      if (t->numel == 0 && t->device != AMP_CPU) continue;
      fill_chunk(&chunk[m++], &k[i], need);
      if (k[i].p->shared) rc = amp__devices[pl[d].device].optim_step(o->kind, h, there, &chunk[--m], 1, pl[d].found, nfound);
    }
    if (!rc && m && due && due->due) {
      rc = amp__devices[pl[d].device].optim_step_look(o->kind, h, there, chunk, m, pl[d].found, nfound, AMP_DATA(float, due->place[due->late_place].found));
      if (rc == 1) amp__check_looked(due);
      if (rc < 0) return rc;
      if (rc == 1) { rc = 0; continue; }
      rc = amp__check_settle(due);
    }
    if (!rc && m) rc = amp__devices[pl[d].device].optim_step(o->kind, h, there, chunk, m, pl[d].found, nfound);
    if (rc) return rc;
  }
  return 0;
}

static int step(amp_optim *o, const amp_hyper *hyper, int ngroup)
{
  o->told = false;
  if (ngroup != o->ngroup) return amp__fail(AMP_E_ARGUMENT, "%d groups of hyper-parameters for an optimizer of %d groups", ngroup, o->ngroup);
  amp__plain plain = amp__plain_begin();
  cells found = {0};
  amp_check *fresh = NULL, *due = NULL;
  work *k = NULL;
  amp_optim_chunk *chunk = NULL;
  amp__param **joining = NULL;
  place pl[AMP_MAX_PLACES];
  int rc, n = 0, npl = 0, mark = amp__pool_mark();
  if ((rc = find_due(o, &due))) goto out;
  for (int g = 0; g < ngroup; g++)
    if ((rc = check_hyper(o->kind, &hyper[g]))) goto out;
  if ((rc = collect_found(o, &found, &fresh))) goto out;
  for (int i = 0; i < found.n; i++) /* known at once here: leave before anything is prepared */
    if (found.t[i]->device == AMP_CPU && *AMP_DATA(float, found.t[i]) != 0) goto out;
  for (int g = 0; g < ngroup; g++)
    for (int i = 0; i < o->group[g].n; i++) n += has_grad(&o->group[g].p[i]);
  if (!n) goto out;
  k = calloc((size_t)n, sizeof *k);
  chunk = malloc(sizeof *chunk * (size_t)n);
  joining = malloc(sizeof *joining * (size_t)n);
  if (!k || !chunk || !joining) { rc = amp__nomem(sizeof *chunk * (size_t)n); goto out; }
  for (int g = 0, at = 0; g < ngroup; g++) {
    unsigned need = states_of(o->kind, &hyper[g]);
    int first = at, nj = 0;
    for (int i = 0; i < o->group[g].n; i++) {
      amp__param *p = &o->group[g].p[i];
      if (!has_grad(p)) continue;
      k[at].group = g;
      k[at++].p = p;
      if (!p->placed) joining[nj++] = p;
    }
    if (nj && (rc = amp__arena_join(joining, nj, need))) goto out;
    for (int i = first; i < at; i++)
      if ((rc = prepare(&k[i], need))) goto out;
  }
  if (due && (rc = settle_unless_one(due, k, n))) goto out;
  for (int g = 0, at = 0; g < ngroup; g++) {
    int first = at;
    while (at < n && k[at].group == g) at++;
    if ((rc = step_group(o, g, &hyper[g], k + first, at - first, pl, &npl, found.t, found.n, chunk, due))) goto out;
  }
  for (int i = 0; i < n; i++) {
    int r = finish(&k[i]);
    if (!rc) rc = r;
  }
out:
  if (due) {
    int r = amp__check_settle(due);
    if (!rc) rc = r;
    amp_check_free(due);
  }
  if (!rc) drop_guards(o); /* a step that failed may be tried again */
  for (int i = 0; k && i < n; i++) { amp__free(k[i].grad); amp__free(k[i].temp); }
  for (int i = 0; i < npl; i++) {
    for (int j = 0; j < pl[i].ncopy; j++) amp__free(pl[i].copy[j]);
    free(pl[i].found);
    free(pl[i].copy);
  }
  free(k); free(chunk); free(joining); free(found.t);
  amp_check_free(fresh);
  amp__pool_release(mark);
  amp__plain_end(plain);
  return rc;
}

int amp_optim_step(amp_state *S, amp_optim *o, const amp_hyper *hyper, int ngroup)
{
  amp_frame f;
  AMP_ENTER(S);
  bool watched = amp_unlikely(amp__observing()) && amp__observe_begin(&f, AMP_SPAN_STEP, 0, 0);
  int rc = step(o, hyper, ngroup);
  if (watched) {
    amp__observe_end(&f, rc);
    amp__observe_step(o);
  }
  return rc;
}

int amp_optim_clear_grad(amp_state *S, amp_optim *o, int to_zero)
{
  AMP_ENTER(S);
  amp__plain plain = amp__plain_begin();
  int rc = 0;
  for (int g = 0; g < o->ngroup && !rc; g++)
    for (int i = 0; i < o->group[g].n && !rc; i++) {
      amp__param *p = &o->group[g].p[i];
      if (!has_grad(p)) continue;
      amp_grad *r = &p->t->ag->grad;
      if (to_zero && !(r->value->flags & AMP_T_HISTORY) && !(rc = amp__grad_materialize(p->t))) {
        amp_sl a = amp__sl();
        amp__sl_f(&a, 0);
        amp_tensor *done = run(AMP_OP_fill, AMP_INPLACE, &r->value, 1, &a);
        if (!done) rc = S->err.code;
        amp__free(done);
        amp_check_free(r->check);
        r->check = NULL;
        r->origin = 0;
      } else if (!to_zero) amp__grad_clear(p->t);
    }
  amp__plain_end(plain);
  return rc;
}
