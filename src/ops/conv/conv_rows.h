/*
** ops/conv/conv_rows.h: convolutions of single planes by rows; included once for
** float and once for double by ops/conv/conv_depth.c.
**
** A row of the result is gathered in a short buffer from the rows that its
** taps touch, four taps at a time; only where a tap reaches past an end is it
** done alone. The same code runs forward (the tap's place grows with its
** index) and, for a stride of 1, for the gradient in the input (it shrinks).
*/

typedef struct NAME(gather) {
  real *dst;
  const int64_t *dst_size, *dst_stride; /* sizes, strides */
  const real *src;
  const int64_t *src_size, *src_stride;
  int64_t channels, src_channel; /* summed over channels that are sc apart */
  const real *weight;
  const int64_t *weight_stride;
  int64_t weight_channel;
  const int64_t *kernel, *step;
  int64_t start[3], tap_step[3]; /* source place of dst i, tap t: i * step + start + t * by */
  real init;
} NAME(gather);

enum { NAME(LINE) = 512 };
typedef struct NAME(taps) {
  int count;
  const real *src[4];
  real factor[4];
  int64_t low[4], high[4];
} NAME(taps);

static inline __attribute__((always_inline)) void NAME(flush)(real *restrict acc, NAME(taps) * pending, int64_t step)
{
  int64_t low = pending->low[0], high = pending->high[0];
  for (int q = 1; q < pending->count; q++) {
    low = pending->low[q] > low ? pending->low[q] : low;
    high = pending->high[q] < high ? pending->high[q] : high;
  }
  if (high < low || pending->count < 4 || step != 1) high = low;
  const real *p0 = pending->src[0], *p1 = pending->src[1], *p2 = pending->src[2], *p3 = pending->src[3];
  if (high > low) {
    real f0 = pending->factor[0], f1 = pending->factor[1], f2 = pending->factor[2], f3 = pending->factor[3];
    AMP_IVDEP
    for (int64_t j = low; j < high; j++) acc[j] += (f0 * p0[j] + f1 * p1[j]) + (f2 * p2[j] + f3 * p3[j]);
  }
  for (int q = 0; q < pending->count; q++) {
    const real *p = pending->src[q], f = pending->factor[q];
    int64_t a = pending->low[q], b = pending->high[q], m = low < a ? a : low < b ? low : b, e = high > m ? high : m;
    if (step == 1) {
      AMP_IVDEP
      for (int64_t j = a; j < m; j++) acc[j] += f * p[j];
      AMP_IVDEP
      for (int64_t j = e; j < b; j++) acc[j] += f * p[j];
    } else if (step == 2)
      for (int64_t j = a; j < b; j++) acc[j] += f * p[j * 2];
    else
      for (int64_t j = a; j < b; j++) acc[j] += f * p[j * step];
  }
  pending->count = 0;
}

AMP_CLONES_OF(real) static void NAME(gather_plane)(const NAME(gather) * task)
{
  real acc[NAME(LINE)];
  NAME(taps) pending = { .count = 0, .src = { acc, acc, acc, acc } };
  int64_t step = task->step[2] * task->src_stride[2], dst_step = task->dst_stride[2];
  for (int64_t line = 0; line < task->dst_size[0] * task->dst_size[1]; line++)
    for (int64_t first = 0; first < task->dst_size[2]; first += NAME(LINE)) {
      int64_t z = line / task->dst_size[1], y = line % task->dst_size[1],
              n = task->dst_size[2] - first < NAME(LINE) ? task->dst_size[2] - first : NAME(LINE);
      for (int64_t j = 0; j < n; j++) acc[j] = task->init;
      for (int64_t c = 0; c < task->channels; c++)
        for (int64_t a = 0; a < task->kernel[0]; a++) {
          int64_t sz = z * task->step[0] + task->start[0] + a * task->tap_step[0];
          if (sz < 0 || sz >= task->src_size[0]) continue;
          for (int64_t b = 0; b < task->kernel[1]; b++) {
            int64_t sy = y * task->step[1] + task->start[1] + b * task->tap_step[1];
            if (sy < 0 || sy >= task->src_size[1]) continue;
            const real *row = task->src + c * task->src_channel + sz * task->src_stride[0] + sy * task->src_stride[1];
            const real *weight
                = task->weight + c * task->weight_channel + a * task->weight_stride[0] + b * task->weight_stride[1];
            for (int64_t e = 0; e < task->kernel[2]; e++) {
              int64_t at = first * task->step[2] + task->start[2] + e * task->tap_step[2];
              inside(n, task->src_size[2], task->step[2], at, &pending.low[pending.count],
                     &pending.high[pending.count]);
              pending.src[pending.count] = row + at * task->src_stride[2];
              pending.factor[pending.count] = weight[e * task->weight_stride[2]];
              if (++pending.count == 4) NAME(flush)(acc, &pending, step);
            }
          }
        }
      if (pending.count) NAME(flush)(acc, &pending, step);
      real *dst = task->dst + z * task->dst_stride[0] + y * task->dst_stride[1] + first * dst_step;
      if (dst_step == 1) memcpy(dst, acc, (size_t)n * sizeof *dst);
      else
        for (int64_t j = 0; j < n; j++) dst[j * dst_step] = acc[j];
    }
}

/* The gradient in the input for a stride: rows of y are added where their taps came from. */
AMP_CLONES_OF(real)
static void NAME(scatter_plane)(const conv_problem *conv, real *input, const real *output, const real *weight,
                                real init)
{
  const int64_t *in_stride = conv->in_stride + 2, *out_stride = conv->out_stride + 2,
                *weight_stride = conv->weight_stride + 2;
  for (int64_t line = 0; line < conv->in_size[0] * conv->in_size[1]; line++)
    for (int64_t j = 0; j < conv->in_size[2]; j++)
      input[line / conv->in_size[1] * in_stride[0] + line % conv->in_size[1] * in_stride[1] + j * in_stride[2]] = init;
  for (int64_t filter = 0; filter < conv->group_filters; filter++)
    for (int64_t line = 0; line < conv->out_size[0] * conv->out_size[1]; line++) {
      int64_t out_z = line / conv->out_size[1], out_y = line % conv->out_size[1];
      const real *out_row = output + filter * conv->out_stride[1] + out_z * out_stride[0] + out_y * out_stride[1];
      for (int64_t a = 0; a < conv->kernel[0]; a++) {
        int64_t z = out_z * conv->stride[0] - conv->padding[0] + a * conv->dilation[0];
        if (z < 0 || z >= conv->in_size[0]) continue;
        for (int64_t b = 0; b < conv->kernel[1]; b++) {
          int64_t r = out_y * conv->stride[1] - conv->padding[1] + b * conv->dilation[1];
          if (r < 0 || r >= conv->in_size[1]) continue;
          for (int64_t e = 0; e < conv->kernel[2]; e++) {
            int64_t at = e * conv->dilation[2] - conv->padding[2], low, high, step = conv->stride[2] * in_stride[2];
            real f = weight[filter * conv->weight_stride[0] + a * weight_stride[0] + b * weight_stride[1]
                            + e * weight_stride[2]],
                 *in_row = input + z * in_stride[0] + r * in_stride[1] + at * in_stride[2];
            inside(conv->out_size[2], conv->in_size[2], conv->stride[2], at, &low, &high);
            AMP_IVDEP
            for (int64_t j = low; j < high; j++) in_row[j * step] += f * out_row[j * out_stride[2]];
          }
        }
      }
    }
}

static inline __attribute__((always_inline)) real NAME(dot)(const real *left, int64_t left_step, const real *right,
                                                            int64_t right_step, int64_t n)
{
  real sums[16] = { 0 }, rest = 0;
  int64_t j = 0;
  if (left_step == 1 && right_step == 1)
    for (; j + 16 <= n; j += 16)
      for (int i = 0; i < 16; i++) sums[i] += left[j + i] * right[j + i];
  for (; j < n; j++) rest += left[j * left_step] * right[j * right_step];
  for (int w = 8; w > 0; w /= 2)
    for (int i = 0; i < w; i++) sums[i] += sums[i + w];
  return rest + sums[0];
}

/* The gradient in one filter, added over an image */
AMP_CLONES_OF(real)
static void NAME(weight_plane)(const conv_problem *conv, const real *input, const real *output, real *weight)
{
  const int64_t *in_stride = conv->in_stride + 2, *out_stride = conv->out_stride + 2,
                *weight_stride = conv->weight_stride + 2;
  for (int64_t a = 0; a < conv->kernel[0]; a++)
    for (int64_t b = 0; b < conv->kernel[1]; b++)
      for (int64_t e = 0; e < conv->kernel[2]; e++) {
        int64_t at = e * conv->dilation[2] - conv->padding[2], low, high;
        real sum = 0;
        inside(conv->out_size[2], conv->in_size[2], conv->stride[2], at, &low, &high);
        for (int64_t line = 0; line < conv->out_size[0] * conv->out_size[1]; line++) {
          int64_t out_z = line / conv->out_size[1], out_y = line % conv->out_size[1];
          int64_t z = out_z * conv->stride[0] - conv->padding[0] + a * conv->dilation[0],
                  r = out_y * conv->stride[1] - conv->padding[1] + b * conv->dilation[1];
          if (z < 0 || z >= conv->in_size[0] || r < 0 || r >= conv->in_size[1]) continue;
          const real *in_row
              = input + z * in_stride[0] + r * in_stride[1] + (at + low * conv->stride[2]) * in_stride[2],
              *out_row = output + out_z * out_stride[0] + out_y * out_stride[1] + low * out_stride[2];
          sum += NAME(dot)(out_row, out_stride[2], in_row, conv->stride[2] * in_stride[2], high - low);
        }
        weight[a * weight_stride[0] + b * weight_stride[1] + e * weight_stride[2]] += sum;
      }
}

/* One channel of one image of the output */
static void NAME(output_plane)(const conv_problem *conv, bool bias, int64_t image, int64_t channel)
{
  const int64_t *taps = conv->kernel;
  struct NAME(gather) task
      = { .dst = (real *)conv->output.p + image * conv->out_stride[0] + channel * conv->out_stride[1],
          .dst_size = conv->out_size,
          .dst_stride = conv->out_stride + 2,
          .src = (const real *)conv->input.p + image * conv->in_stride[0]
                 + channel / conv->group_filters * conv->in_stride[1],
          .src_size = conv->in_size,
          .src_stride = conv->in_stride + 2,
          .channels = 1,
          .weight = (const real *)conv->weight.p + channel * conv->weight_stride[0],
          .weight_stride = conv->weight_stride + 2,
          .kernel = taps,
          .step = conv->stride,
          .init = bias ? ((const real *)conv->bias.p)[channel] : 0 };
  for (int d = 0; d < 3; d++) {
    task.start[d] = -conv->padding[d];
    task.tap_step[d] = conv->dilation[d];
  }
  NAME(gather_plane)(&task);
}

/* One channel of one image of the input's gradient */
static void NAME(input_plane)(const conv_problem *conv, bool bias, int64_t image, int64_t channel)
{
  static const int64_t one[3] = { 1, 1, 1 };
  int64_t filter = channel * conv->group_filters;
  real *dst = (real *)conv->input.p + image * conv->in_stride[0] + channel * conv->in_stride[1];
  const real *src = (const real *)conv->output.p + image * conv->out_stride[0] + filter * conv->out_stride[1];
  const real *weight = (const real *)conv->weight.p + filter * conv->weight_stride[0];
  real init = bias ? ((const real *)conv->bias.p)[channel] : 0;
  if (conv->stride[0] * conv->stride[1] * conv->stride[2] > 1) {
    NAME(scatter_plane)(conv, dst, src, weight, init);
    return;
  }
  struct NAME(gather) task = { .dst = dst,
                               .dst_size = conv->in_size,
                               .dst_stride = conv->in_stride + 2,
                               .src = src,
                               .src_size = conv->out_size,
                               .src_stride = conv->out_stride + 2,
                               .channels = conv->group_filters,
                               .src_channel = conv->out_stride[1],
                               .weight = weight,
                               .weight_stride = conv->weight_stride + 2,
                               .weight_channel = conv->weight_stride[0],
                               .kernel = conv->kernel,
                               .step = one,
                               .init = init };
  for (int d = 0; d < 3; d++) {
    task.start[d] = conv->padding[d];
    task.tap_step[d] = -conv->dilation[d];
  }
  NAME(gather_plane)(&task);
}

/* Filter i of the weight's gradient */
static void NAME(filter)(const conv_problem *conv, int64_t i)
{
  const int64_t *kernel = conv->kernel, *weight_stride = conv->weight_stride;
  const real *input = conv->input.p, *output = conv->output.p;
  real *weight = (real *)conv->weight.p + i * weight_stride[0];
  for (int64_t a = 0; a < kernel[0]; a++)
    for (int64_t q = 0; q < kernel[1] * kernel[2]; q++)
      weight[a * weight_stride[2] + q / kernel[2] * weight_stride[3] + q % kernel[2] * weight_stride[4]] = 0;
  for (int64_t m = 0; m < conv->images; m++) NAME(weight_plane)
  (conv, input + m * conv->in_stride[0] + i / conv->group_filters * conv->in_stride[1],
   output + m * conv->out_stride[0] + i * conv->out_stride[1], weight);
}

/* Plane i of the result: of image i / channels for output and input, filter i for the weight */
static void NAME(plane)(const conv_problem *conv, enum conv_made made, bool bias, int64_t i)
{
  switch (made) {
  case CONV_MADE_OUTPUT: NAME(output_plane)(conv, bias, i / conv->filters, i % conv->filters); break;
  case CONV_MADE_INPUT: NAME(input_plane)(conv, bias, i / conv->channels, i % conv->channels); break;
  case CONV_MADE_WEIGHT: NAME(filter)(conv, i); break;
  }
}

#undef NAME
#undef real
