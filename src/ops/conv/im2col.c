/*
** ops/conv/im2col.c: rows im2col and col2im: the windows of an image as columns, and
** columns added back into an image. im2col only moves elements, whatever their
** size; col2im adds in float32 (float64 for float64) and rounds once.
*/
#include "cpu/kernel_help.h"

typedef struct image_columns {
  int64_t images, channels, height, width, kernel_height, kernel_width, dilation_height, dilation_width;
  int64_t padding_height, padding_width, stride_height, stride_width, out_height, out_width;
  const int64_t *image_stride, *column_stride; /* of image n, c, h, w; of columns n, row, window */
  char *image, *column;
  int bytes;
} image_columns;

/* image without N: as if of one sample */
static void setup(image_columns *columns, const args_im2col *args, const amp_tensor *image)
{
  int n = image->ndim;
  columns->images = n == 4 ? image->size[0] : 1;
  columns->channels = image->size[n - 3];
  columns->height = image->size[n - 2];
  columns->width = image->size[n - 1];
  columns->kernel_height = args->kernel_size[0];
  columns->kernel_width = args->kernel_size[1];
  columns->dilation_height = args->dilation[0];
  columns->dilation_width = args->dilation[1];
  columns->padding_height = args->padding[0];
  columns->padding_width = args->padding[1];
  columns->stride_height = args->stride[0];
  columns->stride_width = args->stride[1];
  columns->out_height
      = (columns->height + 2 * columns->padding_height - columns->dilation_height * (columns->kernel_height - 1) - 1)
            / columns->stride_height
        + 1;
  columns->out_width
      = (columns->width + 2 * columns->padding_width - columns->dilation_width * (columns->kernel_width - 1) - 1)
            / columns->stride_width
        + 1;
}

/* Columns [low, high) of a row of windows whose tap at t falls inside the image */
static void inside(const image_columns *columns, int64_t t, int64_t *low, int64_t *high)
{
  *low = t < 0 ? (-t + columns->stride_width - 1) / columns->stride_width : 0;
  *high = t >= columns->width ? 0 : (columns->width - t + columns->stride_width - 1) / columns->stride_width;
  if (*high > columns->out_width) *high = columns->out_width;
  if (*low > *high) *low = *high;
}

/* -- im2col ------------------------------------------------------------------------- */

static void zeros(char *data, int bytes, int64_t stride, int64_t n)
{
  if (stride == 1 && n > 0) memset(data, 0, (size_t)n * bytes);
  else
    for (int64_t i = 0; i < n; i++) memset(data + i * stride * bytes, 0, bytes);
}

static void rows_body(void *ctx, int64_t begin, int64_t end, int thread)
{ /* a row of columns: channel and tap */
  const image_columns *columns = ctx;
  int64_t taps = columns->kernel_height * columns->kernel_width, rows = columns->channels * taps,
          ls = columns->column_stride[2];
  for (int64_t i = begin; i < end; i++) {
    int64_t n = i / rows, r = i % rows, c = r / taps, a = r % taps / columns->kernel_width,
            b = r % columns->kernel_width, low, high, tw = b * columns->dilation_width - columns->padding_width;
    char *dst = columns->column + (n * columns->column_stride[0] + r * columns->column_stride[1]) * columns->bytes;
    const char *plane = columns->image + (n * columns->image_stride[0] + c * columns->image_stride[1]) * columns->bytes;
    inside(columns, tw, &low, &high);
    for (int64_t y = 0; y < columns->out_height; y++, dst += columns->out_width * ls * columns->bytes) {
      int64_t ih = y * columns->stride_height - columns->padding_height + a * columns->dilation_height;
      if (ih < 0 || ih >= columns->height) {
        zeros(dst, columns->bytes, ls, columns->out_width);
        continue;
      }
      zeros(dst, columns->bytes, ls, low);
      if (high > low)
        amp__move(columns->bytes, dst + low * ls * columns->bytes, ls,
                  plane
                      + (ih * columns->image_stride[2] + (tw + low * columns->stride_width) * columns->image_stride[3])
                            * columns->bytes,
                  columns->stride_width * columns->image_stride[3], high - low);
      zeros(dst + high * ls * columns->bytes, columns->bytes, ls, columns->out_width - high);
    }
  }
}

int amp__cpu_im2col(amp_call *call)
{
  const amp_tensor *input = call->in[0], *out = call->out[0];
  int64_t is[4] = { 0 }, cs[3] = { 0 };
  image_columns columns = { .image_stride = is,
                            .column_stride = cs,
                            .image = amp__data(input),
                            .column = amp__data(out),
                            .bytes = amp__dtype_size[input->dtype] };
  if (out->numel == 0) return 0;
  setup(&columns, AMP_ARGS(call, im2col), input);
  AMP_ASSERT(out->dtype == input->dtype && out->size[out->ndim - 1] == columns.out_height * columns.out_width);
  for (int i = 0; i < input->ndim; i++) is[4 - input->ndim + i] = input->stride[i];
  for (int i = 0; i < out->ndim; i++) cs[3 - out->ndim + i] = out->stride[i];
  int64_t rows = columns.images * columns.channels * columns.kernel_height * columns.kernel_width;
  amp__parallel_ranges(amp__threads_for(out->numel, rows), rows, rows_body, &columns);
  return 0;
}

/* -- col2im ------------------------------------------------------------------------- */

#define real float
#define NAME(x) x##_f32
#include "ops/conv/im2col_add_body.h"
#define real double
#define NAME(x) x##_f64
#include "ops/conv/im2col_add_body.h"

static void planes_body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const image_columns *columns = ctx;
  for (int64_t i = begin; i < end; i++) {
    char *x = columns->image
              + (i / columns->channels * columns->image_stride[0] + i % columns->channels * columns->image_stride[1])
                    * columns->bytes;
    const char *col
        = columns->column
          + (i / columns->channels * columns->column_stride[0]
             + i % columns->channels * columns->kernel_height * columns->kernel_width * columns->column_stride[1])
                * columns->bytes;
    if (columns->bytes == 8) add_f64(columns, (double *)x, (const double *)col);
    else add_f32(columns, (float *)x, (const float *)col);
  }
}

int amp__cpu_col2im(amp_call *call)
{
  const amp_tensor *input = call->in[0], *o = call->out[0];
  int type = amp__compute_dtype(o->dtype), status = AMP_E_MEMORY;
  amp__compute_view source = { 0 }, out = { 0 };
  int64_t is[4] = { 0 }, cs[3] = { 0 };
  if (o->numel == 0) return 0;
  if (!amp__compute_read(&source, input, type) || !amp__compute_write(&out, o, type)) goto out;
  image_columns columns
      = { .image_stride = is, .column_stride = cs, .image = out.p, .column = source.p, .bytes = amp__dtype_size[type] };
  setup(&columns, AMP_ARGS_FROM(AMP_ARGS(call, col2im), kernel_size, im2col), o);
  AMP_ASSERT(input->size[input->ndim - 1] == columns.out_height * columns.out_width);
  for (int i = 0; i < o->ndim; i++) is[4 - o->ndim + i] = out.stride[i];
  for (int i = 0; i < input->ndim; i++) cs[3 - input->ndim + i] = source.stride[i];
  amp__parallel_ranges(amp__threads_for(input->numel, columns.images * columns.channels),
                       columns.images * columns.channels, planes_body, &columns);
  amp__compute_written(&out, o, type);
  status = 0;
out:
  amp__compute_drop(&source);
  amp__compute_drop(&out);
  return status;
}
