/*
** ops/loss/nll_loss.c: rows nll_loss, cross_entropy_index and their backward rows.
** Classes lie along dimension 2 (the only one of a vector); a row is one label's
** scores. Labels count from 1 and are all checked before anything is computed;
** rows labelled ignore_index count for nothing. Losses are summed in double, in
** the order of rows. Where neighbouring rows are neighbours in memory, as pixels of
** maps are, cross entropy goes through tiles: a few hundred rows at once, class by
** class. Losses of pairs of elements stand in ops/loss/pair_loss.c.
*/
#include "cpu/rows.h"

typedef struct job {
  int type, reduction;
  int64_t ignore, classes;
  double smooth;
  const amp_tensor *input, *target, *output; /* scores, labels, output */
  int64_t x_step, y_step;                    /* strides along classes */
  amp__walk walk;                            /* over rows: offsets in x, target, and out or grad, and y */
  const double *weight;                      /* [classes] or NULL */
  double weight_sum;                         /* of all weights */
  const amp_tensor *top,
      *grad;           /* top is contiguous: each row's largest score, then each row's sum of exponentials about it */
  double scale;        /* of gradients, for mean and sum */
  double *loss, *part; /* [rows]: loss, weight of the label */
  char *buf;           /* [thread][2][classes] */
  int64_t tile;        /* rows in a tile, 0: row by row */
} job;

enum { TILE = 256 }; /* rows whose labels are read at once, at most */

static void set(job *job, const amp_tensor *input, int64_t reduction, int64_t ignore)
{
  job->reduction = (int)reduction;
  job->ignore = ignore;
  job->classes = input->ndim ? input->size[input->ndim > 1 ? 1 : 0] : 1;
}

/* Rows of x (or of its gradient), the labels, and a tensor of the labels' shape (t NULL: none) */
static void walk(job *job, const amp_tensor *input, const amp_tensor *tensor, const amp_tensor *y)
{
  int64_t size[AMP_MAX_DIM], st[4][AMP_MAX_DIM] = { { 0 } };
  int count = 0, class_dim = input->ndim > 1 ? 1 : 0;
  for (int dim = 0; dim < input->ndim; dim++) {
    if (dim == class_dim) continue;
    size[count] = input->size[dim];
    st[0][count] = input->stride[dim];
    st[1][count] = job->target->stride[count];
    st[2][count] = tensor ? tensor->stride[count] : 0;
    st[3][count] = y ? y->stride[dim] : 0;
    count++;
  }
  const int64_t *strides[4] = { st[0], st[1], st[2], st[3] };
  amp__walk_init(&job->walk, count, size, 0, 4, strides);
  job->x_step = input->ndim ? input->stride[class_dim] : 1;
  job->y_step = y && y->ndim ? y->stride[class_dim] : 1;
}

/* Rows from r on that lie along one run, at most `most`; pos: where they start */
static inline int64_t span(const amp__walk *walk, amp__walk_pos *pos, int64_t r, int64_t end, int64_t most)
{
  amp__walk_seek(walk, pos, r);
  int64_t n = walk->ndim ? walk->size[walk->ndim - 1] - pos->at[walk->ndim - 1] : 1;
  if (n > most) n = most;
  return n < end - r ? n : end - r;
}
/* Step of tensor t (in the walk) from row to row of a run */
static inline int64_t along(const amp__walk *walk, int t) { return walk->ndim ? walk->stride[t][walk->ndim - 1] : 0; }

static void read_labels(const job *job, const amp__walk_pos *p, int64_t n, int64_t *y)
{
  amp__load(AMP_C_I64, y, job->target->dtype, amp__address_of(job->target, p->off[1]), along(&job->walk, 1), n);
}

static int check_labels(const job *job)
{
  amp__walk_pos pos;
  int64_t label[TILE], n;
  for (int64_t r = 0; r < job->walk.n; r += n) {
    int64_t bad = 0;
    n = span(&job->walk, &pos, r, job->walk.n, TILE);
    read_labels(job, &pos, n, label);
    for (int64_t i = 0; i < n; i++) bad |= (label[i] < 1) | (label[i] > job->classes);
    for (int64_t i = 0; bad && i < n; i++)
      if ((label[i] < 1 || label[i] > job->classes) && label[i] != job->ignore)
        return amp__fail(AMP_E_INDEX, "label %lld at row %lld, expected 1..%lld", (long long)label[i],
                         (long long)(r + i + 1), (long long)job->classes);
  }
  return 0;
}

static inline int64_t label(const job *job, const amp__walk_pos *p)
{
  int64_t y = amp__label_at(amp__data(job->target), job->target->dtype, p->off[1]);
  return y == job->ignore ? -1 : y - 1;
}

static const double *weights(const amp_tensor *w, double *dst, int64_t count, double *sum)
{
  *sum = (double)count;
  if (!w) return NULL;
  amp__load_f64(dst, amp__data(w), w->dtype, w->ndim ? w->stride[0] : 1, count);
  *sum = 0;
  for (int64_t i = 0; i < count; i++) *sum += dst[i];
  return dst;
}

static double scalar(const amp_tensor *tensor)
{
  double v;
  amp__load_f64(&v, amp__data(tensor), tensor->dtype, 1, 1);
  return v;
}
static void put(const amp_tensor *tensor, int64_t off, double v)
{
  amp__store_f64((char *)amp__data(tensor) + off * amp__dtype_size[tensor->dtype], tensor->dtype, 1, &v, 1);
}
static double get(const amp_tensor *tensor, int64_t off)
{
  double v;
  amp__load_f64(&v, amp__address_of(tensor, off), tensor->dtype, 1, 1);
  return v;
}

/* Losses of rows into out (by rows, or joined) and the labels' total weight */
static void finish(const job *job, const amp_tensor *out, const amp_tensor *total)
{
  double sum = 0, part = 0;
  for (int64_t r = 0; r < job->walk.n; r++) {
    sum += job->loss[r];
    part += job->part[r];
  }
  if (job->reduction != REDUCTION_NONE) put(out, 0, job->reduction == REDUCTION_MEAN ? sum / part : sum);
  else {
    amp__walk_pos pos;
    amp__walk_seek(&job->walk, &pos, 0);
    for (int64_t r = 0; r < job->walk.n; r++, amp__walk_next(&job->walk, &pos)) put(out, pos.off[2], job->loss[r]);
  }
  if (total) put(total, 0, part);
}

/* -- nll_loss ------------------------------------------------------------------------------- */

/* v[i] = input at offset + i * step + (label[i] - 1) * stride, of labels that count */
static void read_at(const amp_tensor *input, int64_t offset, int64_t step, int64_t stride, const int64_t *label,
                    int64_t ignore, int64_t count, double *v)
{
  const void *p = amp__address_of(input, offset);
#define AT(T, expr)                                 \
  for (int64_t i = 0; i < count; i++) {             \
    int64_t o = i * step + (label[i] - 1) * stride; \
    v[i] = label[i] == ignore ? 0 : (double)(expr); \
  }                                                 \
  break
  switch (input->dtype) {
  case AMP_FLOAT32: AT(float, ((const float *)p)[o]);
  case AMP_FLOAT64: AT(double, ((const double *)p)[o]);
  case AMP_FLOAT16: AT(uint16_t, amp__half_to_float(((const uint16_t *)p)[o]));
  default: AT(uint16_t, amp__bf16_to_float(((const uint16_t *)p)[o]));
  }
#undef AT
}

int amp__cpu_nll_loss(amp_call *call)
{
  const args_nll_loss *args = AMP_ARGS(call, nll_loss);
  const amp_tensor *input = call->in[0], *weight = amp__input_or_null(call, 2), *out = call->out[0];
  double own[1024], sum = 0, part = 0, v[TILE];
  int64_t label[TILE], count;
  amp__scratch scratch;
  job job = { .target = call->in[1] };
  set(&job, input, args->reduction, args->ignore_index);
  walk(&job, input, job.reduction == REDUCTION_NONE ? out : NULL, NULL);
  int status = check_labels(&job);
  if (status) return status;
  if (!amp__scratch_lend(&scratch, own, sizeof own, weight ? (size_t)job.classes * sizeof(double) : 0))
    return AMP_E_MEMORY;
  job.weight = weights(weight, scratch.p, job.classes, &job.weight_sum);
  amp__walk_pos pos;
  for (int64_t r = 0; r < job.walk.n; r += count) {
    count = span(&job.walk, &pos, r, job.walk.n, TILE);
    read_labels(&job, &pos, count, label);
    read_at(input, pos.off[0], along(&job.walk, 0), job.x_step, label, job.ignore, count, v);
    for (int64_t i = 0; i < count; i++) {
      double q = label[i] == job.ignore ? 0 : job.weight ? job.weight[label[i] - 1] : 1;
      v[i] = label[i] == job.ignore ? 0 : -v[i] * q;
      sum += v[i];
      part += q;
    }
    if (job.reduction == REDUCTION_NONE)
      amp__store_f64((char *)amp__data(out) + pos.off[2] * amp__dtype_size[out->dtype], out->dtype, along(&job.walk, 2),
                     v, count);
  }
  if (job.reduction != REDUCTION_NONE) put(out, 0, job.reduction == REDUCTION_MEAN ? sum / part : sum);
  put(call->out[1], 0, part);
  amp__scratch_return(&scratch);
  return 0;
}

/* grad target weight? total -> the scores' gradient, zero but at the labels */
int amp__cpu_nll_loss_backward(amp_call *call)
{
  const args_nll_loss_backward *args = AMP_ARGS(call, nll_loss_backward);
  const amp_tensor *grad = call->in[0], *weight = amp__input_or_null(call, 2), *out = call->out[0];
  double own[1024], q[TILE];
  int64_t label[TILE], count;
  amp__scratch scratch;
  job job = { .target = call->in[1] };
  set(&job, out, args->reduction, args->ignore_index);
  walk(&job, out, job.reduction == REDUCTION_NONE ? grad : NULL, NULL);
  int status = check_labels(&job);
  if (status) return status;
  if (!amp__scratch_lend(&scratch, own, sizeof own, weight ? (size_t)job.classes * sizeof(double) : 0))
    return AMP_E_MEMORY;
  job.weight = weights(weight, scratch.p, job.classes, &job.weight_sum);
  double scale = job.reduction == REDUCTION_NONE
                     ? 0
                     : scalar(grad) / (job.reduction == REDUCTION_MEAN ? scalar(call->in[3]) : 1);
  amp__walk_pos pos;
  if (out->flags & AMP_T_DENSE) memset(amp__data(out), 0, (size_t)out->numel * amp__dtype_size[out->dtype]);
  else {
    amp__walk_seek(&job.walk, &pos, 0);
    for (int64_t r = 0; r < job.walk.n; r++, amp__walk_next(&job.walk, &pos))
      for (int64_t i = 0; i < job.classes; i++) put(out, pos.off[0] + i * job.x_step, 0);
  }
  for (int64_t r = 0; r < job.walk.n; r += count) {
    count = span(&job.walk, &pos, r, job.walk.n, TILE);
    read_labels(&job, &pos, count, label);
    if (job.reduction == REDUCTION_NONE)
      amp__load_f64(q, amp__address_of(grad, pos.off[2]), grad->dtype, along(&job.walk, 2), count);
    int64_t step = along(&job.walk, 0);
    for (int64_t i = 0; i < count; i++) {
      if (label[i] == job.ignore) continue;
      double v = -(job.reduction == REDUCTION_NONE ? q[i] : scale) * (job.weight ? job.weight[label[i] - 1] : 1);
      int64_t o = pos.off[0] + i * step + (label[i] - 1) * job.x_step;
      if (out->dtype == AMP_FLOAT32) AMP_DATA(float, out)[o] = (float)v;
      else put(out, o, v);
    }
  }
  amp__scratch_return(&scratch);
  return 0;
}

/* -- cross_entropy: softmax and nll_loss in one pass ----------------------------------------- */

#define BODY "ops/loss/cross_entropy_body.h"
#include "cpu/each_real.h"

/* Tiles: rows along a run that is dense in memory, class by class */
#define BODY "ops/loss/cross_entropy_tile_body.h"
#include "cpu/each_real.h"

/* A tile's scores stay in the first-level cache. y: its gradient, or NULL */
static void choose_tiles(job *job)
{
  int64_t n = (48 << 10) / (job->classes * amp__dtype_size[job->type] + 1) / 16 * 16;
  job->tile = 0;
  if (job->x_step == 1 || along(&job->walk, 0) != 1 || job->walk.size[job->walk.ndim - 1] < 8
      || (job->output && along(&job->walk, 3) != 1))
    return;
  job->tile = n < 16 ? 16 : n > TILE ? TILE : n;
}

static void forward_body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const job *job = ctx;
  if (job->tile) {
    if (job->type == AMP_FLOAT64) forward_tiles_f64(job, begin, end);
    else forward_tiles_f32(job, begin, end);
    return;
  }
  if (job->type == AMP_FLOAT64) forward_f64(job, begin, end, thread);
  else forward_f32(job, begin, end, thread);
}
static void backward_body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const job *job = ctx;
  if (job->tile) {
    if (job->type == AMP_FLOAT64) backward_tiles_f64(job, begin, end);
    else backward_tiles_f32(job, begin, end);
    return;
  }
  if (job->type == AMP_FLOAT64) backward_f64(job, begin, end, thread);
  else backward_f32(job, begin, end, thread);
}

int amp__cpu_cross_entropy_index(amp_call *call)
{
  const args_cross_entropy_index *args = AMP_ARGS(call, cross_entropy_index);
  const amp_tensor *input = call->in[0], *weight = amp__input_or_null(call, 2);
  char own[16 << 10] __attribute__((aligned(64)));
  amp__scratch scratch;
  job job = { .type = amp__compute_dtype(input->dtype),
              .input = input,
              .target = call->in[1],
              .top = call->out[1],
              .smooth = args->label_smoothing };
  set(&job, input, args->reduction, args->ignore_index);
  walk(&job, input, job.reduction == REDUCTION_NONE ? call->out[0] : NULL, NULL);
  int status = check_labels(&job);
  if (status) return status;
  choose_tiles(&job);
  int threads = amp__threads_for(4 * input->numel, job.walk.n);
  size_t head = (size_t)(2 * job.walk.n + job.classes) * sizeof(double);
  if (!amp__scratch_lend(&scratch, own, sizeof own,
                         head + (size_t)threads * 2 * (size_t)job.classes * amp__dtype_size[job.type]))
    return AMP_E_MEMORY;
  job.loss = scratch.p;
  job.part = job.loss + job.walk.n;
  job.weight = weights(weight, job.part + job.walk.n, job.classes, &job.weight_sum);
  job.buf = (char *)scratch.p + head;
  amp__parallel_ranges(threads, job.walk.n, forward_body, &job);
  finish(&job, call->out[0], call->out[2]);
  amp__scratch_return(&scratch);
  return 0;
}

/* grad input target weight? top total */
int amp__cpu_cross_entropy_backward(amp_call *call)
{
  const args_cross_entropy_backward *args = AMP_ARGS(call, cross_entropy_backward);
  const amp_tensor *grad = call->in[0], *input = call->in[1], *weight = call->in[3];
  char own[16 << 10] __attribute__((aligned(64)));
  amp__scratch scratch;
  amp__compute_view top = { 0 };
  job job = { .type = amp__compute_dtype(input->dtype),
              .input = input,
              .target = call->in[2],
              .output = call->out[0],
              .grad = grad,
              .top = call->in[4],
              .smooth = args->label_smoothing };
  if (input->numel == 0) return 0;
  set(&job, input, args->reduction, args->ignore_index);
  walk(&job, input, job.reduction == REDUCTION_NONE ? grad : NULL, call->out[0]);
  int status = check_labels(&job);
  if (status) return status;
  amp_tensor flat = *call->in[4]; /* top in the order of rows */
  amp_storage room;
  if (!(flat.flags & AMP_T_CONTIGUOUS)) {
    if (!amp__compute_read_c(&top, call->in[4], job.type)) return AMP_E_MEMORY;
    room = *flat.storage;
    room.data = top.p;
    flat.storage = &room;
    flat.offset = 0;
    flat.dtype = (uint8_t)job.type;
  }
  job.top = &flat;
  if (job.reduction != REDUCTION_NONE)
    job.scale = scalar(grad) / (job.reduction == REDUCTION_MEAN ? scalar(call->in[5]) : 1);
  choose_tiles(&job);
  int threads = amp__threads_for(4 * input->numel, job.walk.n);
  size_t head = (size_t)job.classes * sizeof(double);
  status = AMP_E_MEMORY;
  if (!amp__scratch_lend(&scratch, own, sizeof own,
                         head + (size_t)threads * 2 * (size_t)job.classes * amp__dtype_size[job.type]))
    goto out;
  job.weight = weights(weight, scratch.p, job.classes, &job.weight_sum);
  job.buf = (char *)scratch.p + head;
  amp__parallel_ranges(threads, job.walk.n, backward_body, &job);
  amp__scratch_return(&scratch);
  status = 0;
out:
  amp__compute_drop(&top);
  return status;
}
