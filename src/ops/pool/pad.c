/*
** ops/pool/pad.c: rows pad and pad_backward.
**
** Every mode is a map of each dimension's places to places of the input (-1: the
** constant). Rows of output along the innermost dimension are a run that lies
** side by side in the input too, and a few elements around it that the map gives
** one by one. Dimensions without padding are merged where memory allows, so that
** runs are long. Elements are moved as bytes; only pad_backward adds.
*/
#include "cpu/strided.h"
#include "cpu/kernel_help.h"

/* A dimension of the padded side and of the other one; `map`: places in the other */
typedef struct side {
  int64_t size, other_size, before, stride, other_stride, inside_begin, inside_end;
  int64_t *map;
} side;
typedef struct padding {
  int dims, mode, bytes, type;
  side side[AMP_MAX_DIM]; /* outermost first */
  char *padded, *other;   /* padded side, other side */
  int64_t value;          /* bytes of the constant */
  amp__scratch maps;
} padding;

/* Place in the input, of `count` elements, of place i of the padded side, `before` and `after` being what is added.
** What is taken away does not come round in circular mode. */
static int64_t mapped(int mode, int64_t i, int64_t count, int64_t before, int64_t after)
{
  int64_t begin = before < 0 ? -before : 0, end = after < 0 ? count + after : count;
  i -= before;
  if (i >= begin && i < end) return i;
  switch ((enum pad_mode_word)mode) {
  case PAD_MODE_REFLECT: return i < 0 ? -i : i >= count ? 2 * (count - 1) - i : i;
  case PAD_MODE_REPLICATE: return i < 0 ? 0 : i >= count ? count - 1 : i;
  case PAD_MODE_CIRCULAR: return i < begin ? i + end - begin : i - (end - begin);
  case PAD_MODE_CONSTANT:
  case PAD_MODE_COUNT: break;
  }
  return -1;
}

/* Dimensions by falling stride of the padded side, neighbours merged; their maps. pad has `listed` values. */
static int set(padding *job, const amp_tensor *tensor, const int64_t *size, const int64_t *ps, const int64_t *os,
               int64_t listed, const int64_t *pad, int mode)
{
  int order[AMP_MAX_DIM], count = 0, ndim = tensor->ndim;
  int64_t total = 0;
  job->mode = mode;
  for (int i = 0; i < ndim; i++) {
    int j = count++;
    for (; j > 0 && tensor->size[order[j - 1]] != 1 && tensor->size[i] != 1 && ps[order[j - 1]] < ps[i]; j--)
      order[j] = order[j - 1];
    order[j] = i;
  }
  job->dims = 0;
  for (int i = 0; i < ndim; i++) {
    int dim = order[i], back = ndim - 1 - dim;
    int64_t before = back < listed / 2 ? pad[2 * back] : 0;
    side now = { tensor->size[dim], size[dim], before, ps[dim], os[dim], 0, 0, NULL },
         *last = job->dims ? &job->side[job->dims - 1] : NULL;
    if (now.size == 1 && now.other_size == 1 && before == 0) continue;
    /* what stands around last may only be a constant: other modes repeat whole elements of last */
    if (last && before == 0 && now.size == now.other_size && last->stride == now.size * now.stride
        && last->other_stride == now.other_size * now.other_stride
        && (mode == PAD_MODE_CONSTANT || (last->before == 0 && last->size == last->other_size))) {
      *last = (side){ last->size * now.size,
                      last->other_size * now.other_size,
                      last->before * now.size,
                      now.stride,
                      now.other_stride,
                      0,
                      0,
                      NULL };
      continue;
    }
    job->side[job->dims++] = now;
  }
  if (job->dims == 0) job->side[job->dims++] = (side){ 1, 1, 0, 1, 1, 0, 0, NULL };
  for (int i = 0; i < job->dims; i++) total += job->side[i].size;
  if (!amp__scratch_lend(&job->maps, NULL, 0, (size_t)total * sizeof(int64_t) + 8)) return AMP_E_MEMORY;
  int64_t *at = job->maps.p;
  for (int i = 0; i < job->dims; i++) {
    side *one = &job->side[i];
    one->map = at;
    at += one->size;
    for (int64_t j = 0; j < one->size; j++)
      one->map[j] = mapped(mode, j, one->other_size, one->before, one->size - one->other_size - one->before);
    one->inside_begin = one->before > 0 ? one->before : 0;
    one->inside_end = one->before + one->other_size < one->size ? one->before + one->other_size : one->size;
    if (one->inside_begin > one->size) one->inside_begin = one->size;
    if (one->inside_end < one->inside_begin) one->inside_end = one->inside_begin;
  }
  return 0;
}

static int64_t rows(const padding *job)
{
  int64_t count = 1;
  for (int i = 0; i + 1 < job->dims; i++) count *= job->side[i].size;
  return count;
}

/* A row's place along the outer dimensions, its offsets on both sides, and how many dimensions lie outside the input */
typedef struct row {
  int64_t index[AMP_MAX_DIM], padded, other;
  int outside;
} row;

static void seek(const padding *job, row *w, int64_t r)
{
  *w = (row){ { 0 }, 0, 0, 0 };
  for (int i = job->dims - 2; i >= 0; i--) {
    int64_t m = job->side[i].map[w->index[i] = r % job->side[i].size];
    r /= job->side[i].size;
    w->padded += w->index[i] * job->side[i].stride;
    w->other += m * job->side[i].other_stride;
    w->outside += m < 0;
  }
}

static void next(const padding *job, row *row)
{
  for (int i = job->dims - 2; i >= 0; i--) {
    const side *side = &job->side[i];
    int64_t from = side->map[row->index[i]], at = row->index[i] + 1 < side->size ? row->index[i] + 1 : 0,
            to = side->map[at];
    row->padded += (at - row->index[i]) * side->stride;
    row->other += (to - from) * side->other_stride;
    row->outside += (to < 0) - (from < 0);
    row->index[i] = at;
    if (at) return;
  }
}

/* -- Forward -------------------------------------------------------------------------- */

#define FILL(T)                                                    \
  {                                                                \
    T v = (T)job->value;                                           \
    if (step == 1)                                                 \
      for (int64_t j = 0; j < count; j++) ((T *)to)[j] = v;        \
    else                                                           \
      for (int64_t j = 0; j < count; j++) ((T *)to)[j * step] = v; \
  }
static void fill(const padding *job, char *to, int64_t step, int64_t count)
{
  switch (job->bytes) {
  case 1: FILL(uint8_t) break;
  case 2: FILL(uint16_t) break;
  case 4: FILL(uint32_t) break;
  default: FILL(uint64_t) break;
  }
}

/* Elements lo..hi of a row, one by one */
#define EDGE(T)                         \
  for (int64_t j = begin; j < end; j++) \
    ((T *)to)[j * side->stride] = ((const T *)from)[side->map[j] * side->other_stride];
static void edge(const side *side, int bytes, char *to, const char *from, int64_t begin, int64_t end)
{
  switch (bytes) {
  case 1: EDGE(uint8_t) break;
  case 2: EDGE(uint16_t) break;
  case 4: EDGE(uint32_t) break;
  default: EDGE(uint64_t) break;
  }
}

static void part(int64_t begin, int64_t end, void *ctx)
{
  const padding *job = ctx;
  const side *side = &job->side[job->dims - 1];
  int bytes = job->bytes;
  int64_t count = side->inside_end - side->inside_begin;
  row row;
  seek(job, &row, begin);
  for (int64_t r = begin; r < end; r++, next(job, &row)) {
    char *to = job->padded + row.padded * bytes;
    if (row.outside) {
      fill(job, to, side->stride, side->size);
      continue;
    }
    const char *from = job->other + row.other * bytes;
    if (count > 0) {
      char *t = to + side->inside_begin * side->stride * bytes;
      const char *f = from + (side->inside_begin - side->before) * side->other_stride * bytes;
      if (side->stride == 1 && side->other_stride == 1) memcpy(t, f, (size_t)(count * bytes));
      else amp__move(bytes, t, side->stride, f, side->other_stride, count);
    }
    if (job->mode == PAD_MODE_CONSTANT) {
      if (side->inside_begin) fill(job, to, side->stride, side->inside_begin);
      if (side->inside_end < side->size)
        fill(job, to + side->inside_end * side->stride * bytes, side->stride, side->size - side->inside_end);
      continue;
    }
    edge(side, bytes, to, from, 0, side->inside_begin);
    edge(side, bytes, to, from, side->inside_end, side->size);
  }
}

int amp__cpu_pad(amp_call *call)
{
  const args_pad *args = AMP_ARGS(call, pad);
  padding job = { 0 };
  amp_tensor *input = call->in[0], *output = call->out[0];
  if (output->numel == 0) return 0;
  job.bytes = amp__dtype_size[output->dtype];
  job.padded = amp__data(output);
  job.other = amp__data(input);
  amp__value_put(&job.value, output->dtype, args->value);
  int status
      = set(&job, output, input->size, output->stride, input->stride, args->pad.n, args->pad.at, (int)args->mode);
  if (status == 0) amp__parallel(amp__threads(output->numel), rows(&job), 1, part, &job);
  amp__scratch_return(&job.maps);
  return status;
}

/* -- Backward: every element of grad is added where it came from ------------------------ */

#define real float
#define NAME(x) x##_f32
#include "ops/pool/pad_add_body.h"
#define real double
#define NAME(x) x##_f64
#include "ops/pool/pad_add_body.h"

int amp__cpu_pad_backward(amp_call *call)
{
  const args_pad_backward *args = AMP_ARGS(call, pad_backward);
  padding job = { 0 };
  amp_tensor *grad = call->in[0], *input = call->out[0];
  amp__compute_view gv = { 0 }, input_view = { 0 };
  int status = AMP_E_MEMORY, type = amp__compute_dtype(input->dtype);
  if (input->numel == 0 || grad->numel == 0) return input->numel ? amp__fill_value(input, 0) : 0;
  if (!amp__compute_read(&gv, grad, type) || !amp__compute_write_c(&input_view, input, type)) goto out;
  memset(input_view.p, 0, (size_t)input->numel * amp__dtype_size[type]);
  job.padded = gv.p;
  job.other = input_view.p;
  if ((status = set(&job, grad, input->size, gv.stride, input_view.stride, args->pad.n, args->pad.at, (int)args->mode))
      < 0)
    goto out;
  if (type == AMP_FLOAT64) add_rows_f64(&job);
  else add_rows_f32(&job);
  amp__compute_written(&input_view, input, type);
out:
  amp__compute_drop(&gv);
  amp__compute_drop(&input_view);
  amp__scratch_return(&job.maps);
  return status;
}
