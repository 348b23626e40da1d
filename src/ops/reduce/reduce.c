/*
** ops/reduce/reduce.c: sums, products, extremes, truth, variance, log-sum-exp, norms:
** which reducers (ops/reduce/reducers.c) each takes over its input, and what is made of
** their results.
*/
#include <float.h>
#include <math.h>
#include "cpu/vector_math.h"
#include "ops/reduce/reduce.h"

enum finish { STORE, MEAN, CENTRE, VAR, STD, LSE, ROOT, POWER };
/* second: of log-sum-exp the exponentials, else first in double. Of a norm, correction is p. */
typedef struct operation {
  const amp_rplan *plan;
  const amp_reducer *first, *second;
  int finish;
  double correction;
} operation;

/* Whether one of m sums of n powers in float lost what double keeps: it, or some of the powers, left float's range */
static AMP_CLONES_WIDE bool some_out_of_range(int64_t m, const double *sum, double n)
{
  const double least = n * 1e-30, most = FLT_MAX;
  int64_t lost = 0;
  for (int64_t j = 0; j < m; j++) lost |= !(sum[j] <= most) | !(sum[j] >= least);
  return lost;
}

static inline bool out_of_range(int64_t m, const double *sum, double n)
{
  return m == 1 ? !(*sum <= FLT_MAX && *sum >= n * 1e-30) : some_out_of_range(m, sum, n);
}

/* Sums of n differences and, AMP_CHUNK behind, of their squares: the first become sums of squares about the mean,
** the second how far that is from where it was looked for, 0 if that is near. Whether one is far. */
static AMP_CLONES_WIDE bool settle(int64_t m, double *restrict acc, double n)
{
  int64_t far = 0;
  for (int64_t j = 0; j < m; j++) {
    const double s = acc[j], q = acc[AMP_CHUNK + j], d = q - s * s / n, m2 = d < 0 ? 0 : d;
    const int64_t off = (s * s > 16 * n * m2) & (fabs(s) <= DBL_MAX);
    acc[j] = m2;
    acc[AMP_CHUNK + j] = off ? s / n : 0;
    far |= off;
  }
  return far;
}

static AMP_CLONES_WIDE void roots(int64_t m, double *acc)
{
  for (int64_t j = 0; j < m; j++) acc[j] = sqrt(acc[j]);
}

/* Parameters of a reducer's class */
static void narrow(double *to, const double *from, int count, const amp_reducer *reducer)
{
  for (int j = 0; j < count; j++)
    if (reducer->cls == AMP_C_F32) ((float *)to)[j] = (float)from[j];
    else to[j] = from[j];
}

/* Sums of squared deviations into acc, by one pass about each first element: no common offset is lost, and equal
** elements give 0. Where that element lies more than four standard deviations off, once more about the mean; where
** squares left float's range, in double. */
static void deviations(const operation *work, const amp_rblock *block, double *acc, int threads)
{
  const amp_rplan *plan = work->plan;
  const amp_reducer *reducer = work->first;
  double about[AMP_CHUNK], param[AMP_CHUNK], n = (double)plan->reduced;
  if (plan->reduced > 0) amp__load(AMP_C_F64, about, plan->dtype, block->from, plan->kept_in[0], block->count);
  for (int pass = 0; pass < 2;) {
    narrow(param, about, block->count, reducer);
    amp__fold_block(plan, reducer, block, (char *)param, (char *)acc, threads);
    if (reducer != work->second && out_of_range(block->count, acc + AMP_CHUNK, n)) {
      reducer = work->second;
      continue;
    }
    if (!settle(block->count, acc, n)) return;
    for (int j = 0; j < block->count; j++) about[j] += acc[AMP_CHUNK + j];
    pass++;
  }
}

/* Powers in float whose sum leaves its range are added once more in double. */
static void powers(const operation *work, const amp_rblock *block, double *acc, int threads)
{
  double power[AMP_CHUNK], param[AMP_CHUNK];
  const char *each = work->finish == POWER ? (const char *)param : NULL;
  if (each) {
    for (int j = 0; j < block->count; j++) power[j] = work->correction;
    narrow(param, power, block->count, work->first);
  }
  amp__fold_block(work->plan, work->first, block, each, (char *)acc, threads);
  if (work->first == work->second || !out_of_range(block->count, acc, (double)work->plan->reduced)) return;
  amp__fold_block(work->plan, work->second, block, each ? (const char *)power : NULL, (char *)acc, threads);
}

static void log_sums(const operation *operation, const amp_rblock *block, double *acc, int threads)
{
  double keep[AMP_CHUNK], param[AMP_CHUNK];
  amp__fold_block(operation->plan, operation->first, block, NULL, (char *)acc, threads);
  for (int j = 0; j < block->count; j++) keep[j] = isinf(acc[j]) ? 0 : acc[j];
  narrow(param, keep, block->count, operation->second);
  amp__fold_block(operation->plan, operation->second, block, (char *)param, (char *)acc, threads);
  for (int j = 0; j < block->count; j++)
    acc[j] = log(acc[j]) + (operation->second->cls == AMP_C_F64 ? keep[j] : (double)(float)keep[j]);
}

/* Means to more digits than the elements have: from the first element on */
static void centres(const operation *operation, const amp_rblock *block, double *acc, int threads)
{
  const amp_rplan *plan = operation->plan;
  double about[AMP_CHUNK], param[AMP_CHUNK];
  if (plan->reduced > 0) amp__load(AMP_C_F64, about, plan->dtype, block->from, plan->kept_in[0], block->count);
  narrow(param, about, block->count, operation->first);
  amp__fold_block(plan, operation->first, block, (char *)param, (char *)acc, threads);
  for (int j = 0; j < block->count; j++) acc[j] = about[j] + acc[j] / (double)plan->reduced;
}

static void run_block(const operation *work, int64_t i, int threads)
{
  const amp_rplan *plan = work->plan;
  double acc[2 * AMP_CHUNK], n = (double)plan->reduced;
  amp_rblock block;
  amp__rblock(plan, i, &block);
  if (work->finish == VAR || work->finish == STD) {
    double left = n - work->correction > 0 ? n - work->correction : 0;
    deviations(work, &block, acc, threads);
    for (int j = 0; j < block.count; j++) acc[j] = work->finish == STD ? sqrt(acc[j] / left) : acc[j] / left;
  } else if (work->finish == CENTRE) centres(work, &block, acc, threads);
  else if (work->finish == LSE) log_sums(work, &block, acc, threads);
  else if (work->finish == ROOT || work->finish == POWER) {
    powers(work, &block, acc, threads);
    if (work->finish == ROOT && block.count == 1) acc[0] = sqrt(acc[0]);
    else if (work->finish == ROOT) roots(block.count, acc);
    else
      for (int j = 0; j < block.count; j++) acc[j] = pow(acc[j], 1 / work->correction);
  } else {
    amp__fold_block(plan, work->first, &block, NULL, (char *)acc, threads);
    if (work->finish == MEAN)
      for (int j = 0; j < block.count; j++) acc[j] /= n;
  }
  amp__store(plan->out_dtype, block.out, plan->kept_out[0], work->first->acc_cls, acc, block.count);
}

static void block_part(int64_t begin, int64_t end, void *ctx)
{
  for (int64_t i = begin; i < end; i++) run_block(ctx, i, 1);
}

static int run(operation *operation, const amp_rplan *plan, int cost)
{
  int threads = amp__threads(plan->outputs * (plan->reduced > 0 ? plan->reduced : 1) * cost);
  operation->plan = plan;
  if (plan->blocks >= threads) amp__parallel(threads, plan->blocks, 1, block_part, operation);
  else if (plan->blocks > 0 && plan->blocks * 4 >= threads && plan->reduced < 65536)
    amp__parallel(threads, plan->blocks, 1, block_part, operation);
  else
    for (int64_t i = 0; i < plan->blocks; i++) run_block(operation, i, threads);
  return 0;
}

/* Class of a sum or product with a result of dtype out */
static int simple(amp_call *call, uint32_t mask, const amp_reducer *f, const amp_reducer *d, const amp_reducer *i,
                  int finish)
{
  amp_rplan plan;
  int k = amp__dtype_class[call->out[0]->dtype], status;
  if (k == AMP_C_F32 && call->in[0]->dtype == AMP_FLOAT64) k = AMP_C_F64;
  if (k == AMP_C_I64 && (status = amp__check_cast(call->in[0], AMP_INT64)) < 0) return status;
  operation operation = { .first = k == AMP_C_F32 ? f : k == AMP_C_F64 ? d : i, .finish = finish };
  amp__rplan_mask(&plan, call->in[0], call->out[0], mask);
  return run(&operation, &plan, 1);
}

static uint32_t mask_of(const amp_call *call, const amp_slot *one) /* a d? attribute */
{
  return one->i == AMP_NONE ? (1u << call->in[0]->ndim) - 1 : 1u << one->i;
}

int amp__cpu_sum(amp_call *call)
{
  const args_sum *args = AMP_ARGS(call, sum);
  return simple(call, amp__rmask(AMP_SLOT(args->dim)), &amp__fold_total_f, &amp__fold_sum_d, &amp__fold_sum_i, STORE);
}
int amp__cpu_mean(amp_call *call)
{
  return simple(call, amp__rmask(AMP_SLOT(AMP_ARGS(call, mean)->dim)), &amp__fold_total_f, &amp__fold_sum_d, NULL,
                MEAN);
}
int amp__cpu_prod(amp_call *call)
{
  const args_prod *args = AMP_ARGS(call, prod);
  return simple(call, mask_of(call, AMP_SLOT(args->dim)), &amp__fold_prod_d, &amp__fold_prod_d, &amp__fold_prod_i,
                STORE);
}
int amp__cpu_amax(amp_call *call)
{
  const args_amax *args = AMP_ARGS(call, amax);
  return simple(call, amp__rmask(AMP_SLOT(args->dim)), &amp__fold_max_f, &amp__fold_max_d, &amp__fold_max_i, STORE);
}
int amp__cpu_amin(amp_call *call)
{
  const args_amin *args = AMP_ARGS(call, amin);
  return simple(call, amp__rmask(AMP_SLOT(args->dim)), &amp__fold_min_f, &amp__fold_min_d, &amp__fold_min_i, STORE);
}
/* max and min over everything; along a dimension, with indices: ops/reduce/reduce_arg.c */
int amp__max_all(amp_call *call)
{
  const args_max *args = AMP_ARGS(call, max);
  return simple(call, mask_of(call, AMP_SLOT(args->dim)), &amp__fold_max_f, &amp__fold_max_d, &amp__fold_max_i, STORE);
}
int amp__min_all(amp_call *call)
{
  const args_min *args = AMP_ARGS(call, min);
  return simple(call, mask_of(call, AMP_SLOT(args->dim)), &amp__fold_min_f, &amp__fold_min_d, &amp__fold_min_i, STORE);
}

int amp__cpu_sum_to(amp_call *call)
{
  const amp_tensor *tensor = call->in[0], *s = call->out[0];
  int outdim[AMP_MAX_DIM], lead = tensor->ndim - s->ndim;
  amp_rplan plan;
  for (int dim = 0; dim < tensor->ndim; dim++)
    outdim[dim] = dim < lead || (s->size[dim - lead] == 1 && tensor->size[dim] != 1) ? -1 : dim - lead;
  amp__rplan(&plan, tensor, s, outdim);
  operation operation
      = { .first = tensor->dtype == AMP_FLOAT64 ? &amp__fold_sum_d : &amp__fold_total_f, .finish = STORE };
  return run(&operation, &plan, 1);
}

static int truth(amp_call *call, const amp_reducer *reducer)
{
  const args_any *args = AMP_ARGS(call, any);
  amp_rplan plan;
  operation operation = { .first = reducer, .finish = STORE };
  amp__rplan_mask(&plan, call->in[0], call->out[0], amp__rmask(AMP_SLOT(args->dim)));
  return run(&operation, &plan, 1);
}
int amp__cpu_any(amp_call *call) { return truth(call, &amp__fold_any_u); }
int amp__cpu_all(amp_call *call) { return truth(call, &amp__fold_all_u); }

static int spread(amp_call *call, int finish)
{
  const args_var *args = AMP_ARGS(call, var);
  amp_rplan plan;
  const amp_reducer *first = call->in[0]->dtype == AMP_FLOAT64 ? &amp__fold_moments_d : &amp__fold_moments_f;
  operation operation
      = { .first = first, .second = &amp__fold_moments_d, .finish = finish, .correction = args->correction };
  amp__rplan_mask(&plan, call->in[0], call->out[0], amp__rmask(AMP_SLOT(args->dim)));
  return run(&operation, &plan, 2);
}
int amp__cpu_var(amp_call *call) { return spread(call, VAR); }
int amp__cpu_std(amp_call *call) { return spread(call, STD); }

int amp__means(const amp_tensor *input, uint32_t mask, amp_tensor *mean)
{
  amp_rplan plan;
  operation operation
      = { .first = input->dtype == AMP_FLOAT64 ? &amp__fold_beyond_d : &amp__fold_beyond_f, .finish = CENTRE };
  amp__rplan_mask(&plan, input, mean, mask);
  return run(&operation, &plan, 1);
}

int amp__cpu_lp_norm(amp_call *call) /* p dim keepdim dtype */
{
  const args_lp_norm *args = AMP_ARGS(call, lp_norm);
  static const amp_reducer *const of[6][2]
      = { { &amp__fold_square_f, &amp__fold_square_d }, { &amp__fold_abs_f, &amp__fold_abs_d },
          { &amp__fold_most_f, &amp__fold_most_d },     { &amp__fold_least_f, &amp__fold_least_d },
          { &amp__fold_other_f, &amp__fold_other_d },   { &amp__fold_power_f, &amp__fold_power_d } };
  amp_rplan plan;
  double p = args->p;
  int wide = call->in[0]->dtype == AMP_FLOAT64 || call->out[0]->dtype == AMP_FLOAT64;
  int k = p == 2 ? 0 : p == 1 ? 1 : p == INFINITY ? 2 : p == -INFINITY ? 3 : p == 0 ? 4 : 5;
  operation work = { .first = of[k][wide],
                     .second = of[k][1],
                     .finish = k == 0   ? ROOT
                               : k == 5 ? POWER
                                        : STORE,
                     .correction = p };
  amp__rplan_mask(&plan, call->in[0], call->out[0], amp__rmask(AMP_SLOT(args->dim)));
  return run(&work, &plan, k == 5 ? 8 : 1);
}

int amp__cpu_logsumexp(amp_call *call)
{
  const args_logsumexp *args = AMP_ARGS(call, logsumexp);
  amp_rplan plan;
  bool wide = call->in[0]->dtype == AMP_FLOAT64;
  operation operation = { .first = wide ? &amp__fold_max_d : &amp__fold_max_f,
                          .second = wide ? &amp__fold_exp_d : &amp__fold_exp_f,
                          .finish = LSE };
  amp__rplan_mask(&plan, call->in[0], call->out[0], amp__rmask(AMP_SLOT(args->dim)));
  return run(&operation, &plan, 8);
}
