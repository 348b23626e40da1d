/*
** cpu_reduce.c: sums, products, extremes, truth, variance, log-sum-exp, norms:
** which reducers (cpu_reducers.c) each takes over its input, and what is made of
** their results.
*/
#include <float.h>
#include <math.h>
#include "cpu_reduce.h"

enum finish { STORE, MEAN, CENTRE, VAR, STD, LSE, ROOT, POWER };
/* second: of log-sum-exp the exponentials, else first in double. Of a norm, correction is p. */
typedef struct operation { const amp_rplan *p; const amp_reducer *first, *second; int finish; double correction; } operation;

/* Whether a sum of n powers in float lost what double keeps: it, or some of the powers, left float's range */
static bool out_of_range(double sum, double n) { return !(sum <= FLT_MAX && sum >= n * 1e-30); }

/* Parameters of a reducer's class */
static void narrow(double *to, const double *from, int n, const amp_reducer *r)
{
  for (int j = 0; j < n; j++)
    if (r->cls == AMP_C_F32) ((float *)to)[j] = (float)from[j];
    else to[j] = from[j];
}

/* Sums of squared deviations into acc, by one pass about each first element: no common offset is lost, and equal elements
** give 0. Where that element lies more than four standard deviations off, once more about the mean; where squares left
** float's range, in double. */
static void deviations(const operation *o, const amp_rblock *b, double *acc, int threads)
{
  const amp_rplan *p = o->p;
  const amp_reducer *r = o->first;
  double about[AMP_CHUNK], param[AMP_CHUNK], n = (double)p->reduced;
  if (p->reduced > 0) amp__load(AMP_C_F64, about, p->dtype, b->in, p->kin[0], b->n);
  for (int pass = 0; pass < 2; ) {
    bool lost = false, far = false;
    narrow(param, about, b->n, r);
    amp__fold_block(p, r, b, (char *)param, (char *)acc, threads);
    for (int j = 0; j < b->n; j++) {
      double s = acc[j], q = acc[AMP_CHUNK + j], m2 = q - s * s / n;
      lost = lost || out_of_range(q, n);
      acc[j] = m2 < 0 ? 0 : m2;
      if (s * s > 16 * n * acc[j] && isfinite(s)) { acc[AMP_CHUNK + j] = s / n; far = true; }
      else acc[AMP_CHUNK + j] = 0;
    }
    if (lost && r != o->second) { r = o->second; continue; }
    if (!far) return;
    for (int j = 0; j < b->n; j++) about[j] += acc[AMP_CHUNK + j];
    pass++;
  }
}

/* Powers in float whose sum leaves its range are added once more in double. */
static void powers(const operation *o, const amp_rblock *b, double *acc, int threads)
{
  double power[AMP_CHUNK], param[AMP_CHUNK];
  bool lost = false;
  const char *each = o->finish == POWER ? (const char *)param : NULL;
  if (each) {
    for (int j = 0; j < b->n; j++) power[j] = o->correction;
    narrow(param, power, b->n, o->first);
  }
  amp__fold_block(o->p, o->first, b, each, (char *)acc, threads);
  for (int j = 0; j < b->n; j++) lost = lost || out_of_range(acc[j], (double)o->p->reduced);
  if (!lost || o->first == o->second) return;
  amp__fold_block(o->p, o->second, b, each ? (const char *)power : NULL, (char *)acc, threads);
}

static void log_sums(const operation *o, const amp_rblock *b, double *acc, int threads)
{
  double keep[AMP_CHUNK], param[AMP_CHUNK];
  amp__fold_block(o->p, o->first, b, NULL, (char *)acc, threads);
  for (int j = 0; j < b->n; j++) keep[j] = isinf(acc[j]) ? 0 : acc[j];
  narrow(param, keep, b->n, o->second);
  amp__fold_block(o->p, o->second, b, (char *)param, (char *)acc, threads);
  for (int j = 0; j < b->n; j++) acc[j] = log(acc[j]) + (o->second->cls == AMP_C_F64 ? keep[j] : (double)(float)keep[j]);
}

/* Means to more digits than the elements have: from the first element on */
static void centres(const operation *o, const amp_rblock *b, double *acc, int threads)
{
  const amp_rplan *p = o->p;
  double about[AMP_CHUNK], param[AMP_CHUNK];
  if (p->reduced > 0) amp__load(AMP_C_F64, about, p->dtype, b->in, p->kin[0], b->n);
  narrow(param, about, b->n, o->first);
  amp__fold_block(p, o->first, b, (char *)param, (char *)acc, threads);
  for (int j = 0; j < b->n; j++) acc[j] = about[j] + acc[j] / (double)p->reduced;
}

static void run_block(const operation *o, int64_t i, int threads)
{
  const amp_rplan *p = o->p;
  double acc[2 * AMP_CHUNK], n = (double)p->reduced;
  amp_rblock b;
  amp__rblock(p, i, &b);
  if (o->finish == VAR || o->finish == STD) {
    double left = n - o->correction > 0 ? n - o->correction : 0;
    deviations(o, &b, acc, threads);
    for (int j = 0; j < b.n; j++) acc[j] = o->finish == STD ? sqrt(acc[j] / left) : acc[j] / left;
  } else if (o->finish == CENTRE) centres(o, &b, acc, threads);
  else if (o->finish == LSE) log_sums(o, &b, acc, threads);
  else if (o->finish == ROOT || o->finish == POWER) {
    powers(o, &b, acc, threads);
    for (int j = 0; j < b.n; j++) acc[j] = o->finish == ROOT ? sqrt(acc[j]) : pow(acc[j], 1 / o->correction);
  } else {
    amp__fold_block(p, o->first, &b, NULL, (char *)acc, threads);
    if (o->finish == MEAN) for (int j = 0; j < b.n; j++) acc[j] /= n;
  }
  amp__store(p->odtype, b.out, p->kout[0], o->first->acc_cls, acc, b.n);
}

static void block_part(int64_t lo, int64_t hi, void *ctx)
{
  for (int64_t i = lo; i < hi; i++) run_block(ctx, i, 1);
}

static int run(operation *o, const amp_rplan *p, int cost)
{
  int threads = amp__threads(p->outputs * (p->reduced > 0 ? p->reduced : 1) * cost);
  o->p = p;
  if (p->blocks >= threads) amp__parallel(threads, p->blocks, 1, block_part, o);
  else if (p->blocks > 0 && p->blocks * 4 >= threads && p->reduced < 65536) amp__parallel(threads, p->blocks, 1, block_part, o);
  else for (int64_t i = 0; i < p->blocks; i++) run_block(o, i, threads);
  return 0;
}

/* Class of a sum or product with a result of dtype out */
static int simple(amp_call *c, uint32_t mask, const amp_reducer *f, const amp_reducer *d, const amp_reducer *i, int finish)
{
  amp_rplan p;
  int k = amp__dtype_class[c->out[0]->dtype], rc;
  if (k == AMP_C_F32 && c->in[0]->dtype == AMP_FLOAT64) k = AMP_C_F64;
  if (k == AMP_C_I64 && (rc = amp__check_cast(c->in[0], AMP_INT64)) < 0) return rc;
  operation o = { .first = k == AMP_C_F32 ? f : k == AMP_C_F64 ? d : i, .finish = finish };
  amp__rplan_mask(&p, c->in[0], c->out[0], mask);
  return run(&o, &p, 1);
}

static uint32_t mask_of(const amp_call *c, const amp_slot *one) /* a d? attribute */
{
  return one->i == AMP_NONE ? (1u << c->in[0]->ndim) - 1 : 1u << one->i;
}

int amp__cpu_sum(amp_call *c) { return simple(c, amp__rmask(c->a), &amp__fold_total_f, &amp__fold_sum_d, &amp__fold_sum_i, STORE); }
int amp__cpu_mean(amp_call *c) { return simple(c, amp__rmask(c->a), &amp__fold_total_f, &amp__fold_sum_d, NULL, MEAN); }
int amp__cpu_prod(amp_call *c) { return simple(c, mask_of(c, c->a), &amp__fold_prod_d, &amp__fold_prod_d, &amp__fold_prod_i, STORE); }
int amp__cpu_amax(amp_call *c) { return simple(c, amp__rmask(c->a), &amp__fold_max_f, &amp__fold_max_d, &amp__fold_max_i, STORE); }
int amp__cpu_amin(amp_call *c) { return simple(c, amp__rmask(c->a), &amp__fold_min_f, &amp__fold_min_d, &amp__fold_min_i, STORE); }
/* max and min over everything; along a dimension, with indices: cpu_reduce_arg.c */
int amp__max_all(amp_call *c) { return simple(c, mask_of(c, c->a), &amp__fold_max_f, &amp__fold_max_d, &amp__fold_max_i, STORE); }
int amp__min_all(amp_call *c) { return simple(c, mask_of(c, c->a), &amp__fold_min_f, &amp__fold_min_d, &amp__fold_min_i, STORE); }

int amp__cpu_sum_to(amp_call *c)
{
  const amp_tensor *t = c->in[0], *s = c->out[0];
  int outdim[AMP_MAX_DIM], lead = t->ndim - s->ndim;
  amp_rplan p;
  for (int d = 0; d < t->ndim; d++) outdim[d] = d < lead || (s->size[d - lead] == 1 && t->size[d] != 1) ? -1 : d - lead;
  amp__rplan(&p, t, s, outdim);
  operation o = { .first = t->dtype == AMP_FLOAT64 ? &amp__fold_sum_d : &amp__fold_total_f, .finish = STORE };
  return run(&o, &p, 1);
}

static int truth(amp_call *c, const amp_reducer *r)
{
  amp_rplan p;
  operation o = { .first = r, .finish = STORE };
  amp__rplan_mask(&p, c->in[0], c->out[0], amp__rmask(c->a));
  return run(&o, &p, 1);
}
int amp__cpu_any(amp_call *c) { return truth(c, &amp__fold_any_u); }
int amp__cpu_all(amp_call *c) { return truth(c, &amp__fold_all_u); }

static int spread(amp_call *c, int finish)
{
  amp_rplan p;
  const amp_reducer *first = c->in[0]->dtype == AMP_FLOAT64 ? &amp__fold_moments_d : &amp__fold_moments_f;
  operation o = { .first = first, .second = &amp__fold_moments_d, .finish = finish, .correction = c->a[9].f };
  amp__rplan_mask(&p, c->in[0], c->out[0], amp__rmask(c->a));
  return run(&o, &p, 2);
}
int amp__cpu_var(amp_call *c) { return spread(c, VAR); }
int amp__cpu_std(amp_call *c) { return spread(c, STD); }

int amp__means(const amp_tensor *x, uint32_t mask, amp_tensor *mean)
{
  amp_rplan p;
  operation o = { .first = x->dtype == AMP_FLOAT64 ? &amp__fold_beyond_d : &amp__fold_beyond_f, .finish = CENTRE };
  amp__rplan_mask(&p, x, mean, mask);
  return run(&o, &p, 1);
}

int amp__cpu_lp_norm(amp_call *c) /* p dim keepdim dtype */
{
  static const amp_reducer *const of[6][2] = {
    { &amp__fold_square_f, &amp__fold_square_d }, { &amp__fold_abs_f, &amp__fold_abs_d }, { &amp__fold_most_f, &amp__fold_most_d },
    { &amp__fold_least_f, &amp__fold_least_d }, { &amp__fold_other_f, &amp__fold_other_d }, { &amp__fold_power_f, &amp__fold_power_d } };
  amp_rplan plan;
  double p = c->a[0].f;
  int wide = c->in[0]->dtype == AMP_FLOAT64 || c->out[0]->dtype == AMP_FLOAT64;
  int k = p == 2 ? 0 : p == 1 ? 1 : p == INFINITY ? 2 : p == -INFINITY ? 3 : p == 0 ? 4 : 5;
  operation o = { .first = of[k][wide], .second = of[k][1], .finish = k == 0 ? ROOT : k == 5 ? POWER : STORE, .correction = p };
  amp__rplan_mask(&plan, c->in[0], c->out[0], amp__rmask(c->a + 1));
  return run(&o, &plan, k == 5 ? 8 : 1);
}

int amp__cpu_logsumexp(amp_call *c)
{
  amp_rplan p;
  bool wide = c->in[0]->dtype == AMP_FLOAT64;
  operation o = { .first = wide ? &amp__fold_max_d : &amp__fold_max_f, .second = wide ? &amp__fold_exp_d : &amp__fold_exp_f, .finish = LSE };
  amp__rplan_mask(&p, c->in[0], c->out[0], amp__rmask(c->a));
  return run(&o, &p, 8);
}
