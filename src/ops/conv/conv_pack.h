/*
** ops/conv/conv_pack.h: packers that read an image as if its column matrix stood in
** memory; included once for float and once for double by ops/conv/conv_pack.c.
**
**   cols     lines are output pixels (over all images), k is (channel, tap)
**   rows     lines are (channel, tap), k is output pixels
**   planes   lines are channels, k is pixels over all images
*/

/* Where a line of `width` pixels is cut by the ends of output rows. */
typedef struct NAME(run) {
  const real *data;
  int64_t depth, row, column;
  int place, len;
} NAME(run);

static inline int NAME(runs)(const conv_image *image, int64_t line_first, int n, NAME(run) * part)
{
  int count = 0, done = 0;
  int64_t plane = image->out_height * image->out_width, line = line_first / image->out_width,
          x = line_first % image->out_width, y = line % image->out_height, z = line_first / plane % image->out_depth,
          img = line_first / (plane * image->out_depth);
  while (done < n) {
    int64_t len = image->out_width - x;
    if (len > n - done) len = n - done;
    part[count++] = (NAME(run)){ (const real *)image->data + img * image->image_stride,
                                 z * image->step_depth,
                                 y * image->step_height,
                                 x * image->step_width,
                                 done,
                                 (int)len };
    done += (int)len;
    x = 0;
    if (++y < image->out_height) continue;
    y = 0;
    if (++z == image->out_depth) {
      z = 0;
      img++;
    }
  }
  return count;
}

/* `len` values of one channel and tap along a run, zeros outside the image */
static inline __attribute__((always_inline)) void NAME(fetch)(const conv_image *image, const NAME(run) * part,
                                                              int64_t channel, conv_tap tap, real *dst)
{
  int64_t in_z = part->depth + tap.d, in_y = part->row + tap.h, in_x = part->column + tap.w;
  int low = 0, high = part->len;
  if (in_y < 0 || in_y >= image->height || in_z < 0 || in_z >= image->depth) high = 0;
  else {
    if (in_x < 0) {
      int64_t q = (-in_x + image->step_width - 1) / image->step_width;
      low = q < high ? (int)q : high;
    }
    if (in_x + (high - 1) * image->step_width >= image->width) {
      int64_t q = in_x >= image->width ? 0 : (image->width - in_x + image->step_width - 1) / image->step_width;
      high = q < high ? (int)q : high;
    }
    if (high < low) high = low;
  }
  int i = 0;
  if (high > 0) {
    for (; i < low; i++) dst[i] = 0;
    const real *src = part->data + channel * image->channel_stride + in_z * image->depth_stride
                      + in_y * image->row_stride + in_x * image->pixel_stride;
    int64_t step = image->step_width * image->pixel_stride;
    if (step == 1) {
      const real *dense = src;
      int j = i;
      for (; j + 16 <= high; j += 16) __builtin_memcpy(dst + j, dense + j, 16 * sizeof *dst);
      if (j + 8 <= high) {
        __builtin_memcpy(dst + j, dense + j, 8 * sizeof *dst);
        j += 8;
      }
      if (j + 4 <= high) {
        __builtin_memcpy(dst + j, dense + j, 4 * sizeof *dst);
        j += 4;
      }
      for (; j < high; j++) dst[j] = dense[j];
      i = high;
    } else
      for (; i < high; i++) dst[i] = src[i * step];
  }
  for (; i < part->len; i++) dst[i] = 0;
}

AMP_CLONES_OF(real)
void NAME(conv_pack_cols)(const void *ctx, int64_t k_first, int64_t k_count, int64_t line_first, int64_t lines,
                          int width, void *dst)
{
  const conv_image *image = ctx;
  real *panel = dst;
  AMP_ASSERT(width <= 32);
  NAME(run) part[32];
  for (int64_t i = 0; i < lines; i += width, panel += width * k_count) {
    int n = lines - i < width ? (int)(lines - i) : width;
    int parts = NAME(runs)(image, line_first + i, n, part);
    real *out = panel;
    if (image->channels_inside) {
      static const real zero[512];
      const void *line[32];
      int64_t tap = k_first / image->channels, channel = k_first % image->channels;
      for (int64_t k = 0; k < k_count; tap++, channel = 0) {
        for (; k < k_count && channel < image->channels;) {
          int64_t len = image->channels - channel < k_count - k ? image->channels - channel : k_count - k;
          if (len > 512) len = 512;
          for (int q = 0; q < parts; q++) {
            int64_t in_z = part[q].depth + image->tap[tap].d, in_y = part[q].row + image->tap[tap].h;
            const real *row = part[q].data + channel + in_z * image->depth_stride + in_y * image->row_stride;
            bool there = in_y >= 0 && in_y < image->height && in_z >= 0 && in_z < image->depth;
            for (int j = 0; j < part[q].len; j++) {
              int64_t in_x = part[q].column + j * image->step_width + image->tap[tap].w;
              line[part[q].place + j]
                  = there && in_x >= 0 && in_x < image->width ? row + in_x * image->pixel_stride : zero;
            }
          }
          amp__gemm_pack_lines(REAL_DTYPE, line, n, len, width, out);
          k += len;
          channel += len;
          out += len * width;
        }
      }
      continue;
    }
    int64_t channel = k_first / image->taps, tap = k_first % image->taps;
    for (int64_t k = 0; k < k_count; k++, out += width) {
      for (int q = 0; q < parts; q++) NAME(fetch)(image, &part[q], channel, image->tap[tap], out + part[q].place);
      for (int j = n; j < width; j++) out[j] = 0;
      if (++tap == image->taps) {
        tap = 0;
        channel++;
      }
    }
  }
}

AMP_CLONES_OF(real)
void NAME(conv_pack_rows)(const void *ctx, int64_t k_first, int64_t k_count, int64_t line_first, int64_t lines,
                          int width, void *dst)
{
  const conv_image *image = ctx;
  real *panel = dst;
  AMP_ASSERT(width <= 32);
  int64_t plane = image->out_height * image->out_width, volume = plane * image->out_depth;
  for (int64_t i = 0; i < lines; i += width, panel += width * k_count) {
    int n = lines - i < width ? (int)(lines - i) : width;
    if (image->channels_inside && image->channel_stride == 1) {
      real *out = panel;
      int64_t img = k_first / volume, z = k_first % volume / plane, y = k_first % plane / image->out_width,
              x = k_first % image->out_width;
      for (int64_t k = 0; k < k_count; k++, out += width) {
        const real *src = (const real *)image->data + img * image->image_stride;
        int64_t tap = (line_first + i) / image->channels, channel = (line_first + i) % image->channels;
        for (int j = 0; j < n; tap++, channel = 0) {
          int len = image->channels - channel < n - j ? (int)(image->channels - channel) : n - j;
          int64_t in_z = z * image->step_depth + image->tap[tap].d, in_y = y * image->step_height + image->tap[tap].h,
                  in_x = x * image->step_width + image->tap[tap].w;
          if (in_z >= 0 && in_z < image->depth && in_y >= 0 && in_y < image->height && in_x >= 0
              && in_x < image->width) {
            const real *q
                = src + channel + in_z * image->depth_stride + in_y * image->row_stride + in_x * image->pixel_stride;
            for (int l = 0; l < len; l++) out[j + l] = q[l];
          } else
            for (int l = 0; l < len; l++) out[j + l] = 0;
          j += len;
        }
        for (int j = n; j < width; j++) out[j] = 0;
        if (++x < image->out_width) continue;
        x = 0;
        if (++y < image->out_height) continue;
        y = 0;
        if (++z == image->out_depth) {
          z = 0;
          img++;
        }
      }
      continue;
    }
    /* rows of the column matrix, a few pixels at a time, then turned */
    enum { STEP = 64 };
    real rows[32][STEP];
    NAME(run) part[STEP];
    const void *line[32];
    for (int j = 0; j < 32; j++) line[j] = rows[j];
    for (int64_t k = 0; k < k_count; k += STEP) {
      int len = k_count - k < STEP ? (int)(k_count - k) : STEP;
      int parts = NAME(runs)(image, k_first + k, len, part);
      for (int j = 0; j < n; j++) {
        int64_t l = line_first + i + j, channel = image->channels_inside ? l % image->channels : l / image->taps,
                tap = image->channels_inside ? l / image->channels : l % image->taps;
        for (int q = 0; q < parts; q++) NAME(fetch)(image, &part[q], channel, image->tap[tap], rows[j] + part[q].place);
      }
      amp__gemm_pack_lines(REAL_DTYPE, line, n, len, width, panel + k * width);
    }
  }
}

AMP_CLONES_OF(real)
void NAME(conv_pack_planes)(const void *ctx, int64_t k_first, int64_t k_count, int64_t line_first, int64_t lines,
                            int width, void *dst)
{
  const conv_planes *planes = ctx;
  real *panel = dst;
  AMP_ASSERT(width <= 32);
  for (int64_t i = 0; i < lines; i += width, panel += width * k_count) {
    int n = lines - i < width ? (int)(lines - i) : width;
    int64_t img = k_first / planes->pixels, pixel = k_first % planes->pixels;
    for (int64_t k = 0; k < k_count; img++, pixel = 0) {
      int64_t len = planes->pixels - pixel < k_count - k ? planes->pixels - pixel : k_count - k;
      const real *src = (const real *)planes->data + img * planes->image_stride
                        + (line_first + i) * planes->channel_stride + pixel * planes->pixel_stride;
      real *out = panel + k * width;
      if (planes->pixel_stride == 1) {
        const void *line[32];
        for (int j = 0; j < n; j++) line[j] = src + j * planes->channel_stride;
        amp__gemm_pack_lines(REAL_DTYPE, line, n, len, width, out);
      } else
        for (int64_t q = 0; q < len; q++, out += width, src += planes->pixel_stride) {
          for (int j = 0; j < n; j++) out[j] = src[j * planes->channel_stride];
          for (int j = n; j < width; j++) out[j] = 0;
        }
      k += len;
    }
  }
}

#undef NAME
#undef real
#undef REAL_DTYPE
