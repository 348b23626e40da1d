/*
** ops/pool/pool_max.h: loops of max_pool over the computing type `real`, names by NAME(name);
** included by ops/pool/pool.c once a type. A row of output goes tap by tap, so that
** inner loops have no bounds; channels innermost, a pixel goes tap by tap.
*/

/* GCC makes vector code of it: best and place never overlap the plane */
#define STEP_MAX(X)                                                 \
  for (int64_t j = begin; j < end; j++) {                           \
    real v = r[j * (X)], m = best[j];                               \
    int32_t at = base + (int32_t)j * (int32_t)(sw), old = place[j]; \
    bool take = (v > m) | (v != v);                                 \
    best[j] = take ? v : m;                                         \
    place[j] = take ? at : old;                                     \
  }

AMP_CLONES_OF(real)
static void NAME(row)(const amp__pool *pool, const real *x, int64_t out_z, int64_t out_y, real *restrict best,
                      int32_t *restrict place)
{
  int64_t height = pool->in_size[1], width = pool->in_size[2], out_width = pool->out[2], sw = pool->stride[2],
          x_step = pool->in_stride[4];
  int64_t y0 = out_y * pool->stride[1] - pool->padding[1];
  if (sizeof(real) == 4 && pool->kernel[0] == 1 && pool->kernel[1] == 2 && pool->kernel[2] == 2 && sw == 2
      && x_step == 1 && pool->dilation[1] == 1 && pool->dilation[2] == 1 && pool->padding[2] == 0 && y0 >= 0
      && y0 + 1 < height && 2 * out_width <= width && out_width >= 4) {
    NAME(two)
    (x + pool->start[0][out_z] * pool->in_stride[2] + y0 * pool->in_stride[3],
     x + pool->start[0][out_z] * pool->in_stride[2] + (y0 + 1) * pool->in_stride[3], out_width,
     (int32_t)((pool->start[0][out_z] * height + y0) * width), (int32_t)width, best, place);
    return;
  }
  int32_t first = (int32_t)((pool->start[0][out_z] * height + pool->start[1][out_y]) * width);
  /* taps that lie inside for some output */
  int64_t before = pool->padding[2] - (out_width - 1) * sw,
          k0 = before > 0 ? (before + pool->dilation[2] - 1) / pool->dilation[2] : 0,
          k1 = (width - 1 + pool->padding[2]) / pool->dilation[2] + 1;
  if (k1 > pool->kernel[2]) k1 = pool->kernel[2];
  for (int64_t j = 0; j < out_width; j++) {
    best[j] = -INFINITY;
    place[j] = first + (int32_t)pool->start[2][j];
  }
  for (int64_t kz = 0, z = pool->start[0][out_z]; kz < pool->count[0][out_z]; kz++, z += pool->dilation[0])
    for (int64_t ky = 0, y = pool->start[1][out_y]; ky < pool->count[1][out_y]; ky++, y += pool->dilation[1])
      for (int64_t kx = k0; kx < k1; kx++) {
        int64_t t = kx * pool->dilation[2] - pool->padding[2], begin, end;
        amp__pool_inside(out_width, width, sw, t, &begin, &end);
        const real *r = x + z * pool->in_stride[2] + y * pool->in_stride[3] + t * x_step;
        int32_t base = (int32_t)((z * height + y) * width + t);
        if (x_step == 1 && sw == 1) {
          STEP_MAX(1)
        } else if (x_step == 1 && sw == 2) {
          STEP_MAX(2)
        } else {
          int64_t step = sw * x_step;
          STEP_MAX(step)
        }
      }
}

/* Windows of any sizes, one after the other */
static void NAME(share)(const amp__pool *pool, const real *x, int64_t out_z, int64_t out_y, real *best, int32_t *place)
{
  int64_t height = pool->in_size[1], width = pool->in_size[2], x_step = pool->in_stride[4];
  for (int64_t out_x = 0; out_x < pool->out[2]; out_x++) {
    int64_t q0 = pool->start[2][out_x], count = pool->count[2][out_x],
            at = (pool->start[0][out_z] * height + pool->start[1][out_y]) * width + q0;
    real m = -INFINITY;
    for (int64_t z = pool->start[0][out_z]; z < pool->start[0][out_z] + pool->count[0][out_z]; z++)
      for (int64_t y = pool->start[1][out_y]; y < pool->start[1][out_y] + pool->count[1][out_y]; y++) {
        const real *row = x + z * pool->in_stride[2] + y * pool->in_stride[3] + q0 * x_step;
        for (int64_t q = 0; q < count; q++) {
          real v = row[q * x_step];
          if (v > m || v != v) {
            m = v;
            at = (z * height + y) * width + q0 + q;
          }
        }
      }
    best[out_x] = m;
    place[out_x] = (int32_t)at;
  }
}

AMP_CLONES_OF(real)
static void NAME(pixel)(const amp__pool *pool, const real *x, const int64_t *out, int64_t count, real *restrict best,
                        int32_t *restrict place)
{
  int64_t height = pool->in_size[1], width = pool->in_size[2], begin = 0, end = count;
  int32_t sw = 0, first = (int32_t)((pool->start[0][out[0]] * height + pool->start[1][out[1]]) * width
                                    + pool->start[2][out[2]]);
  for (int64_t j = 0; j < count; j++) {
    best[j] = -INFINITY;
    place[j] = first;
  }
  for (int64_t kz = 0, z = pool->start[0][out[0]]; kz < pool->count[0][out[0]]; kz++, z += pool->dilation[0])
    for (int64_t ky = 0, y = pool->start[1][out[1]]; ky < pool->count[1][out[1]]; ky++, y += pool->dilation[1])
      for (int64_t kx = 0, q = pool->start[2][out[2]]; kx < pool->count[2][out[2]]; kx++, q += pool->dilation[2]) {
        const real *r = x + z * pool->in_stride[2] + y * pool->in_stride[3] + q * pool->in_stride[4];
        int32_t base = (int32_t)((z * height + y) * width + q);
        STEP_MAX(1)
      }
}
#undef STEP_MAX

static void NAME(planes)(const amp__pool *pool, int64_t begin, int64_t end, char *buf)
{
  real *best = (real *)buf;
  int32_t *place = (int32_t *)(best + pool->out[2]);
  int64_t out_width = pool->out[2];
  for (int64_t i = begin; i < end; i++)
    for (int64_t out_z = 0; out_z < pool->out[0]; out_z++)
      for (int64_t out_y = 0; out_y < pool->out[1]; out_y++) {
        real *y = AMP_PLANE(pool, out_view, out_stride, i, real) + out_z * pool->out_stride[2]
                  + out_y * pool->out_stride[3],
             *to = pool->out_stride[4] == 1 ? y : best;
        int64_t *at = pool->place + i / pool->channels * pool->place_stride[0]
                      + i % pool->channels * pool->place_stride[1] + out_z * pool->place_stride[2]
                      + out_y * pool->place_stride[3];
        const real *x = AMP_PLANE(pool, in_view, in_stride, i, const real);
        if (pool->shares) NAME(share)(pool, x, out_z, out_y, to, place);
        else NAME(row)(pool, x, out_z, out_y, to, place);
        if (pool->out_stride[4] != 1)
          for (int64_t j = 0; j < out_width; j++) y[j * pool->out_stride[4]] = best[j];
        if (pool->place_stride[4] == 1)
          for (int64_t j = 0; j < out_width; j++) at[j] = (int64_t)place[j] + 1;
        else
          for (int64_t j = 0; j < out_width; j++) at[j * pool->place_stride[4]] = (int64_t)place[j] + 1;
      }
}

static void NAME(pixels)(const amp__pool *pool, int64_t begin, int64_t end)
{
  int32_t place[LANES];
  int64_t plane = pool->out[1] * pool->out[2], volume = pool->out[0] * plane;
  for (int64_t i = begin; i < end; i++) {
    int64_t count = i / volume, o[3] = { i / plane % pool->out[0], i / pool->out[2] % pool->out[1], i % pool->out[2] };
    for (int64_t channel = 0; channel < pool->channels; channel += LANES) {
      int64_t k = pool->channels - channel < LANES ? pool->channels - channel : LANES;
      real *y = (real *)pool->out_view.p + count * pool->out_stride[0] + o[0] * pool->out_stride[2]
                + o[1] * pool->out_stride[3] + o[2] * pool->out_stride[4] + channel;
      int64_t *at = pool->place + count * pool->place_stride[0] + o[0] * pool->place_stride[2]
                    + o[1] * pool->place_stride[3] + o[2] * pool->place_stride[4] + channel;
      NAME(pixel)(pool, (const real *)pool->in_view.p + count * pool->in_stride[0] + channel, o, k, y, place);
      for (int64_t j = 0; j < k; j++) at[j] = (int64_t)place[j] + 1;
    }
  }
}

/* -- Through places: images (channels innermost) or planes from begin to end ------------------ */

static void NAME(zero)(const amp__pool *pool, real *x, int64_t channel)
{
  for (int64_t z = 0; z < pool->in_size[0]; z++)
    for (int64_t y = 0; y < pool->in_size[1]; y++) {
      real *row = x + z * pool->in_stride[2] + y * pool->in_stride[3];
      if (pool->in_stride[4] == channel) memset(row, 0, (size_t)(pool->in_size[2] * channel) * sizeof *row);
      else
        for (int64_t q = 0; q < pool->in_size[2]; q++)
          memset(row + q * pool->in_stride[4], 0, (size_t)channel * sizeof *row);
    }
}

/* What a kernel does between `place` of the plane and the output's `element` */
AMP_INLINE void NAME(move)(int what, real *place, real *element)
{
  if (what == SCATTER) *place += *element;
  else if (what == GATHER) *element = *place;
  else *place = *element;
}

/* Planes whose places count along one stride (`flat`), with outputs and places in C order (`dense`) */
AMP_INLINE void NAME(each)(const amp__pool *pool, int what, bool flat, bool dense, int64_t begin, int64_t end)
{
  int64_t area = pool->in_size[1] * pool->in_size[2], outputs = pool->out[0] * pool->out[1] * pool->out[2];
  for (int64_t i = begin; i < end; i++) {
    real *x = AMP_PLANE(pool, in_view, in_stride, i, real), *y = AMP_PLANE(pool, out_view, out_stride, i, real);
    const int64_t *at
        = pool->place + i / pool->channels * pool->place_stride[0] + i % pool->channels * pool->place_stride[1];
    if (what != GATHER) NAME(zero)(pool, x, 1);
    if (dense) {
      for (int64_t j = 0; j < outputs; j++) NAME(move)(what, x + at[j] - 1, y + j);
      continue;
    }
    for (int64_t out_z = 0; out_z < pool->out[0]; out_z++)
      for (int64_t out_y = 0; out_y < pool->out[1]; out_y++)
        for (int64_t out_x = 0; out_x < pool->out[2]; out_x++) {
          int64_t q
              = at[out_z * pool->place_stride[2] + out_y * pool->place_stride[3] + out_x * pool->place_stride[4]] - 1;
          int64_t from = flat ? q * pool->in_stride[4]
                              : q / area * pool->in_stride[2]
                                    + q / pool->in_size[2] % pool->in_size[1] * pool->in_stride[3]
                                    + q % pool->in_size[2] * pool->in_stride[4];
          NAME(move)
          (what, x + from, y + out_z * pool->out_stride[2] + out_y * pool->out_stride[3] + out_x * pool->out_stride[4]);
        }
  }
}

static void NAME(through)(const amp__pool *pool, int what, int64_t begin, int64_t end)
{
  int64_t area = pool->in_size[1] * pool->in_size[2], plane = pool->out[1] * pool->out[2];
  bool flat = pool->in_stride[3] == pool->in_size[2] * pool->in_stride[4]
              && (pool->in_size[0] == 1 || pool->in_stride[2] == area * pool->in_stride[4]);
  bool dense = flat && pool->in_stride[4] == 1 && pool->out_stride[4] == 1 && pool->place_stride[4] == 1
               && pool->out_stride[3] == pool->out[2] && pool->place_stride[3] == pool->out[2]
               && (pool->out[0] == 1 || (pool->out_stride[2] == plane && pool->place_stride[2] == plane));
  if (what == SCATTER) NAME(each)(pool, SCATTER, flat, dense, begin, end);
  else if (what == GATHER) NAME(each)(pool, GATHER, flat, dense, begin, end);
  else NAME(each)(pool, WRITE, flat, dense, begin, end);
}

/* grad added at places, channels innermost: pixel by pixel, flat planes only */
static void NAME(scatter_pixels)(const amp__pool *pool, int64_t begin, int64_t end)
{
  for (int64_t count = begin; count < end; count++) {
    real *x = (real *)pool->in_view.p + count * pool->in_stride[0];
    NAME(zero)(pool, x, pool->channels);
    for (int64_t out_z = 0; out_z < pool->out[0]; out_z++)
      for (int64_t out_y = 0; out_y < pool->out[1]; out_y++)
        for (int64_t out_x = 0; out_x < pool->out[2]; out_x++) {
          const real *g = (const real *)pool->out_view.p + count * pool->out_stride[0] + out_z * pool->out_stride[2]
                          + out_y * pool->out_stride[3] + out_x * pool->out_stride[4];
          const int64_t *at = pool->place + count * pool->place_stride[0] + out_z * pool->place_stride[2]
                              + out_y * pool->place_stride[3] + out_x * pool->place_stride[4];
          for (int64_t channel = 0; channel < pool->channels; channel++)
            x[(at[channel] - 1) * pool->in_stride[4] + channel] += g[channel];
        }
  }
}
