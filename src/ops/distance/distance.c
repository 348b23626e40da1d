/*
** ops/distance/distance.c: rows cdist and pdist, their backward rows, and renorm.
**
** The second operand's rows are packed side by side, LANE of them a panel, so
** that one row meets LANE others in vectors whatever the number of features is:
**
**   panel[feature][LANE]      dist[j] = sum over features of |x[f] - panel[f][j]|^p
**
** The euclidean distance of many rows is a matrix product, |a|^2 + |b|^2 - 2 a b.
** Where that cancels it is taken anew as it stands, so that near rows have exact
** distances and equal ones have 0. Data is in C order in the computing type.
*/
#include <float.h>
#include "cpu/strided.h"
#include "cpu/rows.h"

enum { LANE = 32, MANY = 25 }; /* MANY: rows above which products are faster */
enum norm_kind { ZERO, ONE, TWO, MOST, POWER };

static int kind_of(double p) { return p == 0 ? ZERO : p == 1 ? ONE : p == 2 ? TWO : isinf(p) ? MOST : POWER; }

static inline float powabs_f32(float d, float p)
{
  float a = fabsf(d), y = amp__powf_core(a > 0.f && a <= FLT_MAX ? a : 1.f, p);
  return a > 0.f && a <= FLT_MAX ? y : a; /* 0, infinity and NaN stay: p > 0 */
}
static inline double powabs_f64(double d, double p) { return pow(fabs(d), p); }
static inline float abs_f32(float x) { return fabsf(x); }
static inline double abs_f64(double x) { return fabs(x); }

/* -- One row against a panel ----------------------------------------------------------------- */

#define BODY "ops/distance/distance_row_body.h"
#include "cpu/each_real.h"

/* -- Loops over pairs -------------------------------------------------------------------------- */

typedef struct job {
  int type, kind;
  int64_t rows, other_rows, features;  /* rows, rows of the second operand, features */
  const void *first, *second, *panels; /* z: second operand */
  const void *grad, *dist;
  void *out, *other; /* other: gradient of z */
  double norm;
  const double *first_norms, *second_norms; /* of products: squared norms */
} job;

static int64_t first_pair(int64_t n, int64_t i) { return i * (2 * n - i - 1) / 2; } /* of row i of n with later ones */

#define BODY "ops/distance/distance_body.h"
#include "cpu/each_real.h"

#define PICK(f, ...) (job->type == AMP_FLOAT64 ? f##_f64(__VA_ARGS__) : f##_f32(__VA_ARGS__))
static void cdist_body(void *ctx, int64_t b, int64_t e, int thread)
{
  const job *job = ctx;
  PICK(cdist, job, b, e);
}
static void pdist_body(void *ctx, int64_t b, int64_t e, int thread)
{
  const job *job = ctx;
  PICK(pdist, job, b, e);
}
static void euclid_body(void *ctx, int64_t b, int64_t e, int thread)
{
  const job *job = ctx;
  PICK(euclid, job, b, e);
}
static void first_body(void *ctx, int64_t b, int64_t e, int thread)
{
  const job *job = ctx;
  PICK(cdist_back, job, b, e, false);
}
static void second_body(void *ctx, int64_t b, int64_t e, int thread)
{
  const job *job = ctx;
  PICK(cdist_back, job, b, e, true);
}
static void pdist_back_body(void *ctx, int64_t b, int64_t e, int thread)
{
  const job *job = ctx;
  PICK(pdist_back, job, b, e);
}

static void pack(const job *job, void *dst) { PICK(pack, dst, job->second, job->other_rows, job->features); }

static double square_of(const job *job, const void *x, int64_t row)
{
  double s = 0;
  for (int64_t f = 0; f < job->features; f += 2048) { /* in double: what is subtracted from must be right */
    int64_t n = job->features - f < 2048 ? job->features - f : 2048;
    s += job->type == AMP_FLOAT64 ? amp__row_dev_f64((const double *)x + row * job->features + f, 0, n)
                                  : amp__row_dev_f32((const float *)x + row * job->features + f, 0, n);
  }
  return s;
}

/* -- Operands ------------------------------------------------------------------------------------ */

/* Offsets (in matrices) of the second-last dimensions' operands for each batch element */
static amp__walk batches(const amp_tensor *out, const amp_tensor *input, const amp_tensor *z)
{
  amp__walk w;
  int64_t sx[AMP_MAX_DIM], sz[AMP_MAX_DIM], so[AMP_MAX_DIM], nx = 1, nz = 1, no = 1;
  const int64_t *strides[3] = { sx, sz, so };
  int ndim = out->ndim - 2;
  for (int dim = ndim - 1; dim >= 0; dim--) {
    int i = dim - (out->ndim - input->ndim), j = dim - (out->ndim - z->ndim);
    int64_t a = i < 0 ? 1 : input->size[i], b = j < 0 ? 1 : z->size[j];
    sx[dim] = a == 1 ? 0 : nx;
    sz[dim] = b == 1 ? 0 : nz;
    so[dim] = no;
    nx *= a;
    nz *= b;
    no *= out->size[dim];
  }
  amp__walk_init(&w, ndim, out->size, 0, 3, strides);
  return w;
}

static const void *matrix(const amp_tensor *tensor, int64_t i)
{
  return (const char *)amp__data(tensor)
         + i * tensor->size[tensor->ndim - 2] * tensor->size[tensor->ndim - 1] * amp__dtype_size[tensor->dtype];
}

/* a tensor to fill: out itself, or one in the computing type */
static amp_tensor *target(amp_tensor *out, int type)
{
  if (out->dtype == type && (out->flags & AMP_T_CONTIGUOUS)) {
    amp__retain(out);
    return out;
  }
  return amp__tensor_make(type, AMP_CPU, 0, out->ndim, out->size);
}

static int give(amp_tensor *out, const amp_tensor *tensor) { return tensor == out ? 0 : amp__copy_to(out, tensor); }

/* x z^T of all batches, by the row matmul, which a plug-in may have taken over */
static amp_tensor *products(amp_tensor *input, amp_tensor *z)
{
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  memcpy(size, z->size, sizeof size);
  memcpy(stride, z->stride, sizeof stride);
  int n = z->ndim;
  size[n - 1] = z->size[n - 2];
  size[n - 2] = z->size[n - 1];
  stride[n - 1] = z->stride[n - 2];
  stride[n - 2] = z->stride[n - 1];
  amp_tensor *zt = amp__tensor_view(z, n, size, stride, z->offset), *inputs[2] = { input, zt },
             *out[AMP_MAX_OUT] = { NULL };
  if (!zt) return NULL;
  amp__plain plain = amp__plain_begin();
  int status = amp__dispatch(AMP_OP_matmul, 0, inputs, 2, out, NULL);
  amp__plain_end(plain);
  amp__free(zt);
  return status < 0 ? NULL : out[0];
}

/* -- cdist ------------------------------------------------------------------------------------------ */

int amp__cpu_cdist(amp_call *call)
{ /* p compute_mode */
  const args_cdist *args = AMP_ARGS(call, cdist);
  amp_tensor *out = call->out[0], *input, *z, *result = NULL;
  job job = { .type = amp__compute_dtype(out->dtype), .kind = kind_of(args->p), .norm = args->p };
  char own[8 << 10] __attribute__((aligned(64)));
  amp__scratch scratch = { 0 };
  int status = AMP_E_MEMORY;
  if (out->numel == 0) return 0;
  input = amp__dense(call->in[0], job.type);
  z = amp__dense(call->in[1], job.type);
  if (!input || !z) goto out;
  job.rows = input->size[input->ndim - 2];
  job.other_rows = z->size[z->ndim - 2];
  job.features = input->size[input->ndim - 1];
  if (job.features == 0) {
    status = amp__fill_value(out, 0);
    goto out;
  }
  bool many = job.kind == TWO
              && (args->compute_mode == COMPUTE_MODE_USE_MM_FOR_EUCLID_DIST
                  || (args->compute_mode == COMPUTE_MODE_USE_MM_FOR_EUCLID_DIST_IF_NECESSARY
                      && (job.rows > MANY || job.other_rows > MANY)));
  if (!(result = many ? products(input, z) : target(out, job.type))) goto out;
  amp__walk w = batches(out, input, z);
  amp__walk_pos at;
  int64_t panels = (job.other_rows + LANE - 1) / LANE * LANE * job.features * amp__dtype_size[job.type];
  if (!amp__scratch_lend(&scratch, own, sizeof own,
                         (size_t)(many ? (job.rows + job.other_rows) * (int64_t)sizeof(double) : panels)))
    goto out;
  amp__walk_seek(&w, &at, 0);
  const void *packed = NULL;
  for (int64_t i = 0; i < w.n; i++, amp__walk_next(&w, &at)) {
    job.first = matrix(input, at.off[0]);
    job.second = matrix(z, at.off[1]);
    job.out = (void *)matrix(result, at.off[2]);
    if (many) {
      double *n1 = scratch.p, *n2 = n1 + job.rows;
      for (int64_t j = 0; j < job.rows; j++) n1[j] = square_of(&job, job.first, j);
      for (int64_t j = 0; j < job.other_rows; j++) n2[j] = square_of(&job, job.second, j);
      job.first_norms = n1;
      job.second_norms = n2;
    } else if (packed != job.second) {
      pack(&job, scratch.p);
      packed = job.second;
    }
    job.panels = scratch.p;
    amp__parallel_ranges(
        amp__threads_for(many ? job.rows * job.other_rows : job.rows * job.other_rows * job.features, job.rows),
        job.rows, many ? euclid_body : cdist_body, &job);
  }
  status = give(out, result);
out:
  amp__scratch_return(&scratch);
  amp__free(input);
  amp__free(z);
  amp__free(result);
  return status;
}

int amp__cpu_cdist_backward(amp_call *call)
{ /* grad x1 x2 dist; p */
  const args_cdist_backward *args = AMP_ARGS(call, cdist_backward);
  amp_tensor *tensor[4] = { NULL }, *result = NULL, *yz = NULL;
  job job = { .type = amp__compute_dtype(call->in[1]->dtype), .kind = kind_of(args->p), .norm = args->p };
  int status = AMP_E_MEMORY;
  for (int i = 0; i < 4; i++)
    if (!(tensor[i] = amp__dense(call->in[i], job.type))) goto out;
  if (!(result = target(call->out[0], job.type)) || !(yz = target(call->out[1], job.type))) goto out;
  int n = tensor[1]->ndim;
  job.rows = tensor[1]->size[n - 2];
  job.other_rows = tensor[2]->size[n - 2];
  job.features = tensor[1]->size[n - 1];
  int64_t batch = 1;
  for (int dim = 0; dim < n - 2; dim++) batch *= tensor[1]->size[dim];
  for (int64_t i = 0; i < batch; i++) {
    job.grad = matrix(tensor[0], i);
    job.first = matrix(tensor[1], i);
    job.second = matrix(tensor[2], i);
    job.dist = matrix(tensor[3], i);
    job.out = (void *)matrix(result, i);
    job.other = (void *)matrix(yz, i);
    amp__parallel_ranges(amp__threads_for(job.rows * job.other_rows * job.features, job.rows), job.rows, first_body,
                         &job);
    amp__parallel_ranges(amp__threads_for(job.rows * job.other_rows * job.features, job.other_rows), job.other_rows,
                         second_body, &job);
  }
  status = give(call->out[0], result);
  if (status == 0) status = give(call->out[1], yz);
out:
  for (int i = 0; i < 4; i++) amp__free(tensor[i]);
  amp__free(result);
  amp__free(yz);
  return status;
}

/* -- pdist -------------------------------------------------------------------------------------------- */

int amp__cpu_pdist(amp_call *call)
{
  const args_pdist *args = AMP_ARGS(call, pdist);
  amp_tensor *out = call->out[0], *input, *result = NULL;
  job job = { .type = amp__compute_dtype(out->dtype), .kind = kind_of(args->p), .norm = args->p };
  char own[8 << 10] __attribute__((aligned(64)));
  amp__scratch scratch = { 0 };
  int status = AMP_E_MEMORY;
  if (out->numel == 0) return 0;
  input = amp__dense(call->in[0], job.type);
  if (!input) goto out;
  job.rows = job.other_rows = input->size[0];
  job.features = input->size[1];
  if (job.features == 0) {
    status = amp__fill_value(out, 0);
    goto out;
  }
  job.first = job.second = amp__data(input);
  if (!(result = target(out, job.type))
      || !amp__scratch_lend(
          &scratch, own, sizeof own,
          (size_t)((job.other_rows + LANE - 1) / LANE * LANE * job.features * amp__dtype_size[job.type])))
    goto out;
  job.out = amp__data(result);
  pack(&job, scratch.p);
  job.panels = scratch.p;
  amp__parallel_ranges(amp__threads_for(job.rows * job.other_rows / 2 * job.features, job.rows), job.rows, pdist_body,
                       &job);
  status = give(out, result);
out:
  amp__scratch_return(&scratch);
  amp__free(input);
  amp__free(result);
  return status;
}

int amp__cpu_pdist_backward(amp_call *call)
{ /* grad input dist; p */
  const args_pdist_backward *args = AMP_ARGS(call, pdist_backward);
  amp_tensor *tensor[3] = { NULL }, *result = NULL;
  job job = { .type = amp__compute_dtype(call->in[1]->dtype), .kind = kind_of(args->p), .norm = args->p };
  int status = AMP_E_MEMORY;
  for (int i = 0; i < 3; i++)
    if (!(tensor[i] = amp__dense(call->in[i], job.type))) goto out;
  if (!(result = target(call->out[0], job.type))) goto out;
  job.rows = job.other_rows = tensor[1]->size[0];
  job.features = tensor[1]->size[1];
  job.grad = amp__data(tensor[0]);
  job.first = amp__data(tensor[1]);
  job.dist = amp__data(tensor[2]);
  job.out = amp__data(result);
  amp__parallel_ranges(amp__threads_for(job.rows * job.other_rows * job.features, job.rows), job.rows, pdist_back_body,
                       &job);
  status = give(call->out[0], result);
out:
  for (int i = 0; i < 3; i++) amp__free(tensor[i]);
  amp__free(result);
  return status;
}

/* -- renorm: each slice of a dimension times maxnorm / (its norm + 1e-7) if that is above maxnorm -------- */

int amp__cpu_renorm(amp_call *call)
{ /* p dim maxnorm */
  amp_tensor *input = call->in[0], *out[AMP_MAX_OUT] = { NULL }, *inputs[2] = { input, NULL };
  const amp_op_desc *row = &amp__ops[AMP_OP_lp_norm];
  const args_renorm *args = AMP_ARGS(call, renorm);
  amp_slot slots[AMP_MAX_SLOT];
  args_lp_norm *norm_args = (args_lp_norm *)slots;
  int type = amp__compute_dtype(input->dtype), n = 0;
  if (input->numel == 0) return 0;
  memcpy(slots, row->defaults, sizeof(amp_slot) * (size_t)row->info.nslot);
  norm_args->p = args->p;
  for (int i = 0; i < input->ndim; i++)
    if (i != args->dim) norm_args->dim.at[n++] = i + 1;
  norm_args->dim.n = n;
  norm_args->keepdim = true;
  norm_args->dtype = type;
  amp__plain plain = amp__plain_begin();
  int status = amp__dispatch(AMP_OP_lp_norm, 0, inputs, 1, out, slots);
  if (status == 0) {
    amp_tensor *norm = out[0], *result[AMP_MAX_OUT] = { call->out[0] };
    for (int64_t i = 0; i < norm->numel; i++) {
      double v = type == AMP_FLOAT64 ? AMP_DATA(double, norm)[i] : AMP_DATA(float, norm)[i];
      double f = v > args->maxnorm ? args->maxnorm / (v + 1e-7) : 1;
      if (type == AMP_FLOAT64) AMP_DATA(double, norm)[i] = f;
      else AMP_DATA(float, norm)[i] = (float)f;
    }
    inputs[1] = norm;
    status = amp__dispatch(AMP_OP_mul, AMP_OUT, inputs, 2, result, NULL);
  }
  amp__plain_end(plain);
  amp__free(out[0]);
  return status;
}
