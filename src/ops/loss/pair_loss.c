/*
** ops/loss/pair_loss.c: rows mse_loss, pair_loss and their backward rows: losses that
** are a function of one element of input and one of target.
**
** Each kind is two formulas, the loss f(x, t) and its slope in x; p is the row's
** parameter (beta, delta, margin, eps). The tensors' elements are walked in the
** order of the input's memory, in units of at most BLOCK of one run: plain dense
** memory is read where it lies, everything else is widened into small buffers.
** Sums are taken of units in the computing type and joined in double, in an
** order that the number of threads does not change.
*/
#include "cpu/rows.h"

enum { MSE = KIND_COUNT, KINDS }; /* mse_loss beside the kinds of pair_loss */
enum { BLOCK = 1024, PARTS = 64 };

/* -- Formulas --------------------------------------------------------------------------- */

AMP_INLINE double softplus_f64(double x) { return (x > 0 ? x : x != x ? x : 0) + log1p(exp(-fabs(x))); }
AMP_INLINE double sigmoid_f64(double x)
{
  double z = exp(-fabs(x));
  return (x < 0 ? z : 1) / (1 + z);
}

AMP_INLINE float softplus_f32(float x) { return amp__softplusf(x); }
AMP_INLINE float sigmoid_f32(float x) { return amp__sigmoidf(x); }
AMP_INLINE float log_1p_f32(float x) { return amp__log1pf(x); }
AMP_INLINE double log_1p_f64(double x) { return log1p(x); }

/* No infinity less an infinity: 1 - t or -t times x, and a term that is at most log 2. Selects, or the loop stays
** scalar. */
AMP_INLINE float bce_f32(float x, float t)
{
  float m = (x > 0.f ? 1.f : 0.f) - t, p = m * x;
  p = m == 0.f ? 0.f : p;
  return p + amp__log1pf(amp__expf(-fabsf(x)));
}
AMP_INLINE double bce_f64(double x, double t)
{
  double m = (x > 0 ? 1 : 0) - t;
  return (m == 0 ? 0 : m * x) + log1p(exp(-fabs(x)));
}

typedef void (*forward_loop_f32)(float *y, const float *x, const float *t, int64_t count, float p);
typedef void (*forward_loop_f64)(double *y, const double *x, const double *t, int64_t count, double p);
/* y = scale * (g of each, or 1 if NULL) * slope */
typedef void (*backward_loop_f32)(float *y, const float *g, const float *x, const float *t, int64_t count, float p,
                                  float scale);
typedef void (*backward_loop_f64)(double *y, const double *g, const double *x, const double *t, int64_t count, double p,
                                  double scale);

#define ABS(d) ((d) < 0 ? -(d) : (d))
#define SIGN(d) ((d) > 0 ? 1 : (d) < 0 ? -1 : (d)) /* 0 and NaN stay */

#define FORMULA mse
#define VALUE d *d
#define SLOPE 2 * d
#include "ops/loss/pair_formula.h"

#define FORMULA l1
#define VALUE ABS(d)
#define SLOPE SIGN(d)
#include "ops/loss/pair_formula.h"

#define FORMULA smooth_l1
#define VALUE (ABS(d) < p ? d / p * (d / 2) : ABS(d) - p / 2)
#define SLOPE (ABS(d) < p ? d / p : SIGN(d))
#include "ops/loss/pair_formula.h"

#define FORMULA huber
#define VALUE (ABS(d) > p ? p * (ABS(d) - p / 2) : d * (d / 2))
#define SLOPE (d > p ? p : d < -p ? -p : d)
#include "ops/loss/pair_formula.h"

#define FORMULA kl
#define LONG_FORMULA 1
#define VALUE (t == 0 ? 0 : t * LOG(t)) - t *x
#define SLOPE -t
#include "ops/loss/pair_formula.h"

#define FORMULA kl_log
#define LONG_FORMULA 1
#define VALUE EXP(t) * (t - x)
#define SLOPE -EXP(t)
#include "ops/loss/pair_formula.h"

#define FORMULA bce
#define LONG_FORMULA 1
#define VALUE NAME(bce)(x, t)
#define SLOPE NAME(sigmoid)(x) - t
#include "ops/loss/pair_formula.h"

#define FORMULA soft_margin
#define LONG_FORMULA 1
#define VALUE NAME(softplus)(-t * x)
#define SLOPE -t *NAME(sigmoid)(-t * x)
#include "ops/loss/pair_formula.h"

#define FORMULA hinge
#define VALUE (t != -1 ? x : 0) + (t != 1 ? (p - x < 0 ? 0 : p - x) : 0)
#define SLOPE (t != -1 ? 1 : 0) - (t != 1 && p - x > 0 ? 1 : 0)
#include "ops/loss/pair_formula.h"

#define FORMULA poisson
#define LONG_FORMULA 1
#define VALUE x - t *LOG(x + p)
#define SLOPE 1 - t / (x + p)
#include "ops/loss/pair_formula.h"

#define FORMULA poisson_log
#define LONG_FORMULA 1
#define VALUE EXP(x) - t *x
#define SLOPE EXP(x) - t
#include "ops/loss/pair_formula.h"

#define LOG_OR(LOG, v) (LOG(v) < -100 ? -100 : LOG(v))
#define VARIANCE (x * (1 - x) < p ? p : x * (1 - x))
#define FORMULA bce_probs
#define LONG_FORMULA 1
#define VALUE -(t * LOG_OR(LOG, x) + (1 - t) * LOG_OR(NAME(log_1p), -x))
#define SLOPE d / VARIANCE
#include "ops/loss/pair_formula.h"

/* clang-format off */
#define PAIRS(PAIR) /* kind, formula, what an element costs */ \
  PAIR(KIND_L1, l1, 1) \
  PAIR(KIND_SMOOTH_L1, smooth_l1, 1) \
  PAIR(KIND_HUBER, huber, 1) \
  PAIR(KIND_KL, kl, 8) \
  PAIR(KIND_KL_LOG, kl_log, 8) \
  PAIR(KIND_BCE, bce, 8) \
  PAIR(KIND_SOFT_MARGIN, soft_margin, 8) \
  PAIR(KIND_HINGE, hinge, 1) \
  PAIR(KIND_POISSON, poisson, 8) \
  PAIR(KIND_POISSON_LOG, poisson_log, 8) \
  PAIR(KIND_BCE_PROBS, bce_probs, 8) \
  PAIR(MSE, mse, 1)
/* clang-format on */

#define ONE_MORE(kind, name, cost) +1
_Static_assert(PAIRS(ONE_MORE) == KINDS, "a kind of the op table has no formula here");

#define ENTRY(kind, name, cost) \
  [kind] = { name##_forward_f32, name##_backward_f32, name##_forward_f64, name##_backward_f64, cost },
static const struct formula {
  forward_loop_f32 forward_f32;
  backward_loop_f32 backward_f32;
  forward_loop_f64 forward_f64;
  backward_loop_f64 backward_f64;
  int cost;
} formulas[KINDS] = { PAIRS(ENTRY) };

/* -- The walk ---------------------------------------------------------------------------- */

typedef struct job {
  const struct formula *formula;
  bool f64;
  const amp_tensor *input, *target, *output,
      *grad; /* y: elements of the result, or NULL (sums only); g: gradient of each, or NULL */
  bool back;
  double param, scale;
  bool unit;      /* x should lie in 0..1 */
  double outside; /* an element that does not, else 0 */
  double sums[PARTS];
  int64_t size, pieces, units, units_per_part; /* length of a run, units in it, in all, in a part */
  int64_t x_step, t_step, y_step, g_step;      /* strides along a run */
  amp__walk walk;                              /* over runs */
} job;

#define BODY "ops/loss/pair_loss_body.h"
#include "cpu/each_real.h"

static void parts(void *ctx, int64_t begin, int64_t end, int thread)
{
  job *job = ctx;
  for (int64_t i = begin; i < end; i++) {
    if (job->f64) units_f64(job, i);
    else units_f32(job, i);
  }
}

/* Dimensions from the largest stride of x to the smallest, so that runs are as long as can be. Gives the sum. */
static double run(job *job)
{
  const amp_tensor *input = job->input,
                   *all[4] = { input, job->target, job->output ? job->output : input, job->grad ? job->grad : input };
  int64_t size[AMP_MAX_DIM], st[4][AMP_MAX_DIM];
  int order[AMP_MAX_DIM];
  if (input->numel == 0) return 0;
  for (int dim = 0; dim < input->ndim; dim++) {
    int at = dim;
    for (; at > 0 && input->stride[order[at - 1]] < input->stride[dim]; at--) order[at] = order[at - 1];
    order[at] = dim;
  }
  for (int dim = 0; dim < input->ndim; dim++) {
    size[dim] = input->size[order[dim]];
    for (int i = 0; i < 4; i++) st[i][dim] = all[i]->stride[order[dim]];
  }
  const int64_t *strides[4] = { st[0], st[1], st[2], st[3] };
  amp__walk *walk = &job->walk;
  amp__walk_init(walk, input->ndim, size, 0, 4, strides);
  job->size = job->x_step = job->t_step = job->y_step = job->g_step = 1;
  if (walk->ndim) { /* the innermost is a run */
    int dim = --walk->ndim;
    job->size = walk->size[dim];
    job->x_step = walk->stride[0][dim];
    job->t_step = walk->stride[1][dim];
    job->y_step = walk->stride[2][dim];
    job->g_step = walk->stride[3][dim];
    walk->n /= job->size;
  }
  job->pieces = (job->size + BLOCK - 1) / BLOCK;
  job->units = walk->n * job->pieces;
  job->units_per_part = (job->units + PARTS - 1) / PARTS;
  int64_t nparts = (job->units + job->units_per_part - 1) / job->units_per_part;
  amp__parallel_ranges(amp__threads_for(input->numel * job->formula->cost, nparts), nparts, parts, job);
  double sum = 0;
  for (int64_t i = 0; i < nparts; i++) sum += job->sums[i];
  return sum;
}

/* -- Rows --------------------------------------------------------------------------------- */

static bool wide(const amp_tensor *a, const amp_tensor *b)
{
  return a->dtype == AMP_FLOAT64 || b->dtype == AMP_FLOAT64;
}

static int forward(amp_call *call, int kind, double p)
{
  const args_mse_loss *args = AMP_ARGS(call, mse_loss);
  int64_t reduction = args->reduction;
  job job = { .formula = &formulas[kind],
              .f64 = wide(call->in[0], call->in[1]),
              .input = call->in[0],
              .target = call->in[1],
              .output = reduction == REDUCTION_NONE ? call->out[0] : NULL,
              .param = p,
              .unit = kind == KIND_BCE_PROBS };
  double sum = run(&job);
  if (job.outside != 0)
    return amp__fail_arg(AMP_E_VALUE, 1, "input holds %g, expected probabilities in 0..1; bce_with_logits takes logits",
                         job.outside);
  if (reduction == REDUCTION_MEAN) sum /= (double)job.input->numel;
  if (reduction != REDUCTION_NONE) amp__store_f64(amp__data(call->out[0]), call->out[0]->dtype, 1, &sum, 1);
  return 0;
}

static int backward(amp_call *call, int kind, double p)
{ /* grad input target */
  const args_mse_loss_backward *args = AMP_ARGS(call, mse_loss_backward);
  int64_t reduction = args->reduction;
  const amp_tensor *grad = call->in[0];
  job job = { .formula = &formulas[kind],
              .f64 = wide(call->in[1], call->in[2]),
              .input = call->in[1],
              .target = call->in[2],
              .output = call->out[0],
              .param = p,
              .back = true,
              .scale = 1 };
  if (reduction == REDUCTION_NONE) job.grad = grad;
  else amp__load_f64(&job.scale, amp__data(grad), grad->dtype, 1, 1);
  if (reduction == REDUCTION_MEAN) job.scale /= (double)job.input->numel;
  run(&job);
  return 0;
}

int amp__cpu_mse_loss(amp_call *call) { return forward(call, MSE, 0); }
int amp__cpu_mse_loss_backward(amp_call *call) { return backward(call, MSE, 0); }
int amp__cpu_pair_loss(amp_call *call)
{
  return forward(call, (int)AMP_ARGS(call, pair_loss)->kind, AMP_ARGS(call, pair_loss)->p);
}
int amp__cpu_pair_loss_backward(amp_call *call)
{
  return backward(call, (int)AMP_ARGS(call, pair_loss_backward)->kind, AMP_ARGS(call, pair_loss_backward)->p);
}
