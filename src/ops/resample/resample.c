/*
** ops/resample/resample.c: rows resample and resample_backward: nearest, linear and cubic
** interpolation in 1, 2 and 3 dimensions, antialiased or not.
**
** A dimension is a table: each output's first input and its weights. Images are
** resampled along one dimension after the other; backward is the same with the
** tables transposed. Where a source lies follows PyTorch: in float32 for nearest,
** else in double (weights are rounded once, when they are used).
** Cubic: Keys' kernel, a = -0.75, or -0.5 antialiased.
*/
#include <math.h>
#include "cpu/strided.h"
#include "cpu/kernel_help.h"

enum { MAX_FLAT = 8 };

typedef struct axis {
  int64_t outputs, most, least; /* taps of an output, at most and at least */
  bool same, plain;             /* output is input; all weights are 1 */
  int64_t *first, *start;       /* first input; weights of o are weight[start[o]] .. weight[start[o + 1] - 1] */
  double *weight;
  amp__scratch mem;
} axis;

typedef struct job {
  int64_t images, channels, in_size[3];
  bool last;
  amp__compute_view input, output;
  int type;
  char *buf;
  size_t each;
  const void *taps;
} job;

/* -- Tables --------------------------------------------------------------------------- */

static double cubic(double x, double a)
{
  x = fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

static bool open_axis(axis *axis, int64_t count, int64_t total)
{
  axis->outputs = count;
  if (!amp__scratch_lend(&axis->mem, NULL, 0, (size_t)(2 * count + 1 + total) * 8)) return false;
  axis->first = axis->mem.p;
  axis->start = axis->first + count;
  axis->weight = (double *)(axis->start + count + 1);
  axis->start[0] = 0;
  return true;
}

static void close_axis(axis *axis, int64_t in_size)
{
  axis->same = axis->outputs == in_size;
  axis->plain = true;
  axis->most = 0;
  axis->least = INT64_MAX;
  for (int64_t o = 0; o < axis->outputs; o++) {
    int64_t k = axis->start[o + 1] - axis->start[o];
    if (k > axis->most) axis->most = k;
    if (k < axis->least) axis->least = k;
    if (k != 1 || axis->first[o] != o) axis->same = false;
  }
  for (int64_t i = 0; i < axis->start[axis->outputs]; i++)
    if (axis->weight[i] != 1) axis->plain = false;
  axis->same = axis->same && axis->plain;
}

/* Weights of inputs from..from + k - 1, those outside the input counted for its ends; zeros at the ends are dropped. */
static void put(axis *axis, int64_t o, int64_t in_size, int64_t from, int k, const double *weight)
{
  double *to = axis->weight + axis->start[o];
  int64_t lo = from < 0 ? 0 : from >= in_size ? in_size - 1 : from, count = 0;
  for (int i = 0; i < k; i++) {
    int64_t at = from + i < 0 ? 0 : from + i >= in_size ? in_size - 1 : from + i;
    while (count <= at - lo) to[count++] = 0;
    to[at - lo] += weight[i];
  }
  while (count > 1 && to[count - 1] == 0) count--;
  int64_t skip = 0;
  while (skip < count - 1 && to[skip] == 0) skip++;
  if (skip) memmove(to, to + skip, (size_t)(count - skip) * sizeof *to);
  axis->first[o] = lo + skip;
  axis->start[o + 1] = axis->start[o] + count - skip;
}

static double ratio(int64_t in_size, int64_t out, int mode, bool align, const double *scale)
{
  if (align && mode >= RESAMPLE_MODE_LINEAR) return out > 1 ? (double)(in_size - 1) / (double)(out - 1) : 0;
  return AMP_GIVEN(*scale) ? 1 / *scale : (double)in_size / (double)out;
}

static bool table(axis *axis, int64_t in_size, int64_t out, int mode, bool align, bool smooth, const double *scale)
{
  double r = ratio(in_size, out, mode, align, scale), weight[4];
  if (smooth && mode >= RESAMPLE_MODE_LINEAR) {
    double half = mode == RESAMPLE_MODE_LINEAR ? 1 : 2, support = r >= 1 ? half * r : half,
           inverse = r >= 1 ? 1 / r : 1;
    int64_t most = support < (double)in_size ? 2 * (int64_t)ceil(support) + 2 : in_size;
    if (most > in_size) most = in_size;
    if (!open_axis(axis, out, out * most)) return false;
    for (int64_t o = 0; o < out; o++) {
      double center = r * ((double)o + 0.5), sum = 0, *to = axis->weight + axis->start[o];
      double l = center - support + 0.5, h = center + support + 0.5;
      int64_t lo = l < 0                  ? 0
                   : l >= (double)in_size ? in_size - 1
                                          : (int64_t)l,
              count = (h < (double)in_size ? (int64_t)h : in_size) - lo;
      if (count > most) count = most;
      if (count < 1) count = 1;
      for (int64_t j = 0; j < count; j++) {
        double x = ((double)(j + lo) - center + 0.5) * inverse;
        to[j] = mode == RESAMPLE_MODE_CUBIC ? cubic(x, -0.5) : fabs(x) < 1 ? 1 - fabs(x) : 0;
        sum += to[j];
      }
      for (int64_t j = 0; j < count; j++) to[j] = sum != 0 ? to[j] / sum : j == 0;
      axis->first[o] = lo;
      axis->start[o + 1] = axis->start[o] + count;
    }
  } else {
    if (!open_axis(axis, out, out * 4)) return false;
    float rf = (float)r;
    for (int64_t o = 0; o < out; o++) {
      if (mode <= RESAMPLE_MODE_NEAREST_EXACT) {
        float at = mode == RESAMPLE_MODE_NEAREST_EXACT ? ((float)o + 0.5f) * rf : (float)o * rf;
        int64_t i = at < (float)in_size ? (int64_t)at : in_size - 1;
        if (mode == RESAMPLE_MODE_NEAREST && (in_size == out || 2 * in_size == out)) i = in_size == out ? o : o / 2;
        weight[0] = 1;
        put(axis, o, in_size, i, 1, weight);
        continue;
      }
      if (mode == RESAMPLE_MODE_LINEAR && in_size == out) {
        weight[0] = 1;
        put(axis, o, in_size, o, 1, weight);
        continue;
      }
      double at = align ? r * (double)o : r * ((double)o + 0.5) - 0.5;
      if (mode == RESAMPLE_MODE_LINEAR && at < 0) at = 0;
      if (at > (double)in_size) at = (double)in_size;
      double t = at - floor(at);
      int64_t i = (int64_t)floor(at);
      if (mode == RESAMPLE_MODE_LINEAR) {
        weight[0] = 1 - t;
        weight[1] = t;
        put(axis, o, in_size, i, 2, weight);
      } else {
        for (int k = 0; k < 4; k++) weight[k] = cubic(t - (k - 1), -0.75);
        put(axis, o, in_size, i - 1, 4, weight);
      }
    }
  }
  close_axis(axis, in_size);
  return true;
}

/* Rows and columns of the matrix a exchanged: outputs are a's inputs, of which there are count. Of one input all
** outputs that read it lie side by side, but for a few zeros. */
static bool transpose(axis *line, int64_t count)
{
  axis back = { 0 };
  amp__scratch ends;
  if (!amp__scratch_lend(&ends, NULL, 0, (size_t)count * 16)) return false;
  int64_t total = 0, *low = ends.p, *high = low + count;
  for (int64_t i = 0; i < count; i++) {
    low[i] = 0;
    high[i] = -1;
  }
#define EACH                                  \
  for (int64_t o = 0; o < line->outputs; o++) \
    for (int64_t k = line->start[o], i = line->first[o]; k < line->start[o + 1]; k++, i++)
  EACH
  {
    if (high[i] < 0) low[i] = o;
    high[i] = o;
  }
  for (int64_t i = 0; i < count; i++) total += high[i] - low[i] + 1;
  bool ok = open_axis(&back, count, total);
  if (ok) {
    for (int64_t i = 0; i < count; i++) {
      back.first[i] = low[i];
      back.start[i + 1] = back.start[i] + high[i] - low[i] + 1;
    }
    for (int64_t i = 0; i < total; i++) back.weight[i] = 0;
    EACH back.weight[back.start[i] + o - low[i]] = line->weight[k];
    close_axis(&back, line->outputs);
    amp__scratch_return(&line->mem);
    *line = back;
  }
#undef EACH
  amp__scratch_return(&ends);
  return ok;
}

/* -- Loops ------------------------------------------------------------------------------ */

#define real float
#define NAME(name) resample_f32_##name
#include "ops/resample/resample_loops.h"
#undef real
#undef NAME
#define real double
#define NAME(name) resample_f64_##name
#include "ops/resample/resample_loops.h"
#undef real
#undef NAME

static void body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const job *job = ctx;
  char *buf = job->buf + (size_t)thread * job->each;
  if (job->type == AMP_FLOAT64) resample_f64_run(job, begin, end, buf);
  else resample_f32_run(job, begin, end, buf);
}

/* Channels innermost without gaps, in both? */
static bool channels_inside(const amp_tensor *tensor, int spatial)
{
  int c = tensor->ndim - spatial - 1;
  int64_t count = tensor->size[c];
  if (tensor->stride[c] != 1) return false;
  for (int dim = tensor->ndim - 1; dim >= 0; dim--) {
    if (dim == c) continue;
    if (tensor->size[dim] != 1 && tensor->stride[dim] != count) return false;
    count *= tensor->size[dim];
  }
  return true;
}

static size_t room(const axis *axis, size_t size)
{
  return ((size_t)axis->start[axis->outputs] * size + 63) / 64 * 64
         + ((size_t)(axis->outputs * MAX_FLAT) * size + 63) / 64 * 64
         + ((size_t)(axis->outputs * MAX_FLAT) * 4 + 63) / 64 * 64;
}

/* The taps of three axes in the computing type: tf or td, their numbers from memory on */
static const void *taps_of(int type, const axis *axes, resample_f32_taps *tf, resample_f64_taps *td, char *memory)
{
  for (int i = 0; i < 3; i++) {
    if (type == AMP_FLOAT64) resample_f64_axis(&td[i], &axes[i], &memory);
    else resample_f32_axis(&tf[i], &axes[i], &memory);
  }
  return type == AMP_FLOAT64 ? (const void *)td : (const void *)tf;
}

/* back: args are of the op whose gradient the call makes, from y's side to x's */
static int run(amp_call *call, const args_resample *args, bool back)
{
  const amp_tensor *input = call->in[0], *output = call->out[0], *from = back ? output : input;
  int spatial = (int)args->spatial, status = AMP_E_MEMORY;
  static const amp_slot none = { .i = AMP_NONE };
  AMP_ASSERT(spatial >= 1 && spatial <= 3 && input->ndim >= spatial + 1 && input->ndim == output->ndim);
  axis axes[3];
  job job = { 0 };
  amp__scratch tables = { 0 }, scratch = { 0 };
  resample_f32_taps tf[3];
  resample_f64_taps td[3];
  memset(axes, 0, sizeof axes);
  job.type = amp__compute_dtype(output->dtype);
  size_t size = amp__dtype_size[job.type], bytes = 0;
  const double *const scale[3] = { &args->scale1, &args->scale2, &args->scale3 };
  int64_t taps = 1, pixels = 1;
  for (int i = 0; i < 3; i++) {
    int dim = from->ndim - 3 + i;
    bool spatial_dim = i >= 3 - spatial;
    int64_t in_size = spatial_dim ? from->size[dim] : 1;
    if (!table(&axes[i], in_size, spatial_dim ? args->size[i] : 1,
               spatial_dim ? (int)args->mode : RESAMPLE_MODE_NEAREST, args->align_corners != 0, args->antialias != 0,
               spatial_dim ? scale[i] : &none.f))
      goto out;
    if (back && !transpose(&axes[i], in_size)) goto out;
    job.in_size[i] = spatial_dim ? input->size[dim] : 1;
    bytes += room(&axes[i], size);
    taps *= axes[i].most > 0 ? axes[i].most : 1;
    pixels *= axes[i].outputs;
  }
  job.channels = input->size[input->ndim - spatial - 1];
  job.images = input->ndim == spatial + 2 ? input->size[0] : 1;
  job.last = job.channels >= 8 && taps <= 16 && channels_inside(input, spatial) && channels_inside(output, spatial);
  if (job.last
          ? !amp__compute_read(&job.input, input, job.type) || !amp__compute_write(&job.output, output, job.type)
          : !amp__compute_read_c(&job.input, input, job.type) || !amp__compute_write_c(&job.output, output, job.type))
    goto out;
  if (!amp__scratch_lend(&tables, NULL, 0, bytes)) goto out;
  job.taps = taps_of(job.type, axes, tf, td, tables.p);
  int64_t count = job.last ? job.images * axes[0].outputs * axes[1].outputs : job.images * job.channels;
  int threads = amp__threads_for(job.images * job.channels * pixels * 4, count);
  if (!job.last)
    job.each = ((size_t)((axes[0].same ? 0 : (axes[0].most + 1) * axes[1].outputs) + axes[1].most + 1)
                    * (size_t)axes[2].outputs * size
                + 127)
               / 64 * 64;
  if (!amp__scratch_lend(&scratch, NULL, 0, job.each * (size_t)threads + 64)) goto out;
  job.buf = scratch.p;
  amp__parallel_ranges(threads, count, body, &job);
  amp__compute_written(&job.output, output, job.type);
  status = 0;
out:
  amp__compute_drop(&job.input);
  amp__compute_drop(&job.output);
  amp__scratch_return(&scratch);
  amp__scratch_return(&tables);
  for (int i = 0; i < 3; i++) amp__scratch_return(&axes[i].mem);
  return status;
}

int amp__cpu_resample(amp_call *call)
{
  return call->out[0]->numel == 0 ? 0 : run(call, AMP_ARGS(call, resample), false);
}
int amp__cpu_resample_backward(amp_call *call)
{
  const args_resample *args = AMP_ARGS_FROM(AMP_ARGS(call, resample_backward), spatial, resample);
  return call->out[0]->numel == 0 ? 0 : run(call, args, true);
}
