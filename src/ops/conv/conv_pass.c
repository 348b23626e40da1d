/*
** ops/conv/conv_pass.c: one pass of a convolution: a matrix of weights times the columns of
** an image, which the product reads from the image while it packs them (conv_pack.h).
** Pixels are shared out in units, each a product on one thread.
*/
#include "ops/conv/conv.h"

int64_t conv_pixel_stride(const int64_t *size, const int64_t *stride)
{
  int64_t pixel = 0, next = 0;
  bool set = false; /* a stride may be 0: no step at all, as good as none */
  for (int i = 2; i >= 0; i--) {
    if (size[i] == 1) continue;
    if (!set) pixel = stride[i];
    else if (stride[i] != next) return 0;
    next = stride[i] * size[i];
    set = true;
  }
  return set ? pixel : 1;
}

int conv_threads(double flop) { return flop < 2e6 ? 1 : amp__threads((int64_t)(flop / 32)); }

/* -- A pass: units of pixels, each a product on one thread ------------------------ */

typedef struct units {
  const conv_pass *pass;
  int type, size;
  int64_t spans, span, cuts; /* stretches of pixels with one stride; each in cuts */
  char *scratch;
  size_t each;
} units;

/* 1 x 1 without stride: the image is the column matrix. Its pixel stride, else 0. */
static int64_t is_matrix(const conv_image *image)
{
  const int64_t size[3] = { image->depth, image->height, image->width },
                stride[3] = { image->depth_stride, image->row_stride, image->pixel_stride };
  bool one = image->taps == 1 && image->tap[0].d == 0 && image->tap[0].h == 0 && image->tap[0].w == 0;
  if (!one || image->step_depth != 1 || image->step_height != 1 || image->step_width != 1
      || image->out_depth != image->depth || image->out_height != image->height || image->out_width != image->width)
    return 0;
  return conv_pixel_stride(size, stride);
}

static amp_gemm unit_gemm(const units *work, int64_t span, int64_t first, int64_t pixels)
{
  const conv_pass *pass = work->pass;
  const conv_image *image = &pass->image;
  int64_t plane = image->out_depth * image->out_height * image->out_width, pixel_step = is_matrix(image);
  amp_gemm gemm = { .m = pass->rows,
                    .n = pixels,
                    .k = pass->inner,
                    .a = pass->weight,
                    .ars = pass->inner,
                    .acs = 1,
                    .crs = pass->out_row,
                    .ccs = pass->out_pixel };
  gemm.c = pass->out + (span * pass->out_image + first * pass->out_pixel) * work->size;
  if (pixel_step && (work->spans > 1 || image->image_stride == plane * pixel_step || work->span == plane)) {
    gemm.b = (const char *)image->data + (span * image->image_stride + first * pixel_step) * work->size;
    gemm.brs = image->channel_stride;
    gemm.bcs = pixel_step;
  } else {
    gemm.b = image;
    gemm.pack_b = work->type == AMP_FLOAT64 ? conv_pack_cols_f64 : conv_pack_cols_f32;
    gemm.first_b = (work->spans > 1 ? span * plane : 0) + first;
  }
  if (pass->bias) {
    gemm.bias = pass->bias;
    gemm.bias_rs = 1;
  }
  return gemm;
}

static void unit_body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const units *work = ctx;
  int64_t blocks = (work->span + 31) / 32;
  for (int64_t i = begin; i < end; i++) {
    int64_t span = i / work->cuts, cut = i % work->cuts;
    int64_t p0 = blocks * cut / work->cuts * 32, p1 = blocks * (cut + 1) / work->cuts * 32;
    if (p1 > work->span) p1 = work->span;
    if (p0 >= p1) continue;
    amp_gemm gemm = unit_gemm(work, span, p0, p1 - p0);
    amp__gemm(&gemm, work->type, work->scratch + (size_t)thread * work->each);
  }
}

int conv_run_pass(const conv_pass *pass, int64_t images, int type)
{
  char small[32 << 10] __attribute__((aligned(64)));
  int64_t plane = pass->image.out_depth * pass->image.out_height * pass->image.out_width;
  AMP_ASSERT(pass->inner == pass->image.channels * pass->image.taps);
  units work = { .pass = pass, .type = type, .size = amp__dtype_size[type] };
  bool joined = pass->out_image == plane * pass->out_pixel; /* channels-last: all images' pixels in one line */
  work.spans = joined ? 1 : images;
  work.span = joined ? images * plane : plane;
  int threads = conv_threads(2.0 * (double)pass->rows * (double)pass->inner * (double)(images * plane));
  work.cuts = (threads + work.spans - 1) / work.spans;
  if (work.cuts > 1 && work.spans > 1) work.cuts = threads;
  threads = threads < work.spans * work.cuts ? threads : (int)(work.spans * work.cuts);
  amp_gemm gemm = unit_gemm(&work, 0, 0, (work.span + work.cuts - 1) / work.cuts + 32);
  work.each = (amp__gemm_scratch(&gemm, type) + 255) / 256 * 256;
  amp__scratch scratch;
  if (!amp__scratch_lend(&scratch, small, sizeof small, work.each * (size_t)threads)) return AMP_E_MEMORY;
  work.scratch = scratch.p;
  amp__parallel_ranges(threads, work.spans * work.cuts, unit_body, &work);
  amp__scratch_return(&scratch);
  return 0;
}

/* -- Weights as matrices ------------------------------------------------------------ */

void conv_weight_matrix(char *dst, const char *src, int size, int64_t rows, int64_t row_stride, int64_t channels,
                        int64_t channel_stride, int64_t taps, const int64_t *off, bool inside)
{
  int64_t k = channels * taps, channel = 0, tap = 0;
  for (int64_t i = 0; i < k; i++) {
    const char *s = src + (channel * channel_stride + off[tap]) * size;
    char *d = dst + i * size;
    if (size == 4)
      for (int64_t r = 0; r < rows; r++) memcpy(d + r * k * 4, s + r * row_stride * 4, 4);
    else
      for (int64_t r = 0; r < rows; r++) memcpy(d + r * k * 8, s + r * row_stride * 8, 8);
    if (inside) {
      if (++channel == channels) {
        channel = 0;
        tap++;
      }
    } else if (++tap == taps) {
      tap = 0;
      channel++;
    }
  }
}
