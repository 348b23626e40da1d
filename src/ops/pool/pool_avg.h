/*
** ops/pool/pool_avg.h: loops of avg_pool over the computing type `real`, names by NAME(name);
** included by ops/pool/pool_avg.c once a type. A window is a product: its rows are
** added into one (long vectors), then that along the row.
*/

/* Sum of n elements side by side */
AMP_CLONES_OF(real) static real NAME(total)(const real *x, int64_t count)
{
  enum { W = 32 };
  real a[W] = { 0 }, s = 0;
  int64_t i = 0;
  for (; i + W <= count; i += W)
    for (int k = 0; k < W; k++) a[k] += x[i + k];
  for (; i < count; i++) s += x[i];
  for (int k = 0; k < W; k++) s += a[k];
  return s;
}

AMP_CLONES_OF(real) static void NAME(add)(real *restrict y, const real *restrict x, int64_t step, int64_t count)
{
  if (step == 1)
    for (int64_t j = 0; j < count; j++) y[j] += x[j];
  else
    for (int64_t j = 0; j < count; j++) y[j] += x[j * step];
}
AMP_CLONES_OF(real) static void NAME(put)(real *restrict y, const real *restrict x, int64_t step, int64_t count)
{
  if (step == 1)
    for (int64_t j = 0; j < count; j++) y[j] = x[j];
  else
    for (int64_t j = 0; j < count; j++) y[j] = x[j * step];
}
AMP_CLONES_OF(real)
static void NAME(add_quotient)(real *restrict y, const real *restrict x, real divisor, int64_t count)
{
  for (int64_t j = 0; j < count; j++) y[j] += x[j] / divisor;
}

/* out[ox] = sum of row's window / f[ox] */
AMP_CLONES_OF(real)
static void NAME(along)(const amp__pool *pool, const real *restrict row, real *restrict out,
                        const real *restrict divisors)
{
  int64_t out_width = pool->out[2], width = pool->in_size[2], s = pool->stride[2];
  if (pool->shares || pool->kernel[2] > 16) {
    for (int64_t j = 0; j < out_width; j++) {
      real a = 0;
      for (int64_t k = pool->start[2][j], e = k + pool->count[2][j]; k < e; k++) a += row[k];
      out[j] = a / divisors[j];
    }
    return;
  }
  for (int64_t j = 0; j < out_width; j++) out[j] = 0;
  for (int64_t t = -pool->padding[2]; t < pool->kernel[2] - pool->padding[2]; t++) {
    int64_t begin, end;
    amp__pool_inside(out_width, width, s, t, &begin, &end);
    const real *line = row + t;
    if (s == 1)
      for (int64_t j = begin; j < end; j++) out[j] += line[j];
    else if (s == 2)
      for (int64_t j = begin; j < end; j++) out[j] += line[2 * j];
    else
      for (int64_t j = begin; j < end; j++) out[j] += line[j * s];
  }
  for (int64_t j = 0; j < out_width; j++) out[j] /= divisors[j];
}

/* The transpose: row = shares of g spread over the windows */
AMP_CLONES_OF(real) static void NAME(spread)(const amp__pool *pool, const real *restrict share, real *restrict row)
{
  int64_t out_width = pool->out[2], width = pool->in_size[2], s = pool->stride[2];
  for (int64_t j = 0; j < width; j++) row[j] = 0;
  if (pool->shares || pool->kernel[2] > 16) {
    for (int64_t j = 0; j < out_width; j++)
      for (int64_t k = pool->start[2][j], e = k + pool->count[2][j]; k < e; k++) row[k] += share[j];
    return;
  }
  for (int64_t t = -pool->padding[2]; t < pool->kernel[2] - pool->padding[2]; t++) {
    int64_t begin, end;
    amp__pool_inside(out_width, width, s, t, &begin, &end);
    real *line = row + t;
    if (s == 1)
      for (int64_t j = begin; j < end; j++) line[j] += share[j];
    else if (s == 2)
      for (int64_t j = begin; j < end; j++) line[2 * j] += share[j];
    else
      for (int64_t j = begin; j < end; j++) line[j * s] += share[j];
  }
}

static void NAME(factors)(const amp__pool *pool, int64_t out_z, int64_t out_y, real *divisors)
{
  for (int64_t j = 0; j < pool->out[2]; j++)
    divisors[j] = pool->divisor != AMP_NONE ? (real)pool->divisor
                                            : (real)(pool->len[0][out_z] * pool->len[1][out_y] * pool->len[2][j]);
}

/* buf: rows of in_size[2], out[2], out[2] elements */
static void NAME(planes)(const amp__pool *pool, int64_t begin, int64_t end, real *buf)
{
  int64_t width = pool->in_size[2], out_width = pool->out[2], volume = pool->in_size[0] * pool->in_size[1] * width;
  real *out = buf + width, *divisors = out + out_width;
  bool all = pool->out[0] * pool->out[1] * out_width == 1 && pool->count[0][0] == pool->in_size[0]
             && pool->count[1][0] == pool->in_size[1] && pool->count[2][0] == width
             && (width == 1 || pool->in_stride[4] == 1) && (pool->in_size[1] == 1 || pool->in_stride[3] == width)
             && (pool->in_size[0] == 1 || pool->in_stride[2] == pool->in_size[1] * width);
  if (all) NAME(factors)(pool, 0, 0, divisors);
  for (int64_t i = begin; i < end; i++) {
    const real *x = AMP_PLANE(pool, in_view, in_stride, i, const real);
    real *y = AMP_PLANE(pool, out_view, out_stride, i, real);
    if (all) {
      *y = NAME(total)(x, volume) / *divisors;
      continue;
    }
    for (int64_t out_z = 0; out_z < pool->out[0]; out_z++)
      for (int64_t out_y = 0; out_y < pool->out[1]; out_y++) {
        real *to = y + out_z * pool->out_stride[2] + out_y * pool->out_stride[3],
             *res = pool->out_stride[4] == 1 ? to : out;
        const real *row = buf;
        int64_t z0 = pool->start[0][out_z], z1 = z0 + pool->count[0][out_z], y0 = pool->start[1][out_y],
                y1 = y0 + pool->count[1][out_y];
        NAME(factors)(pool, out_z, out_y, divisors);
        if (z1 == z0 || y1 == y0) memset(buf, 0, (size_t)width * sizeof *buf);
        else if (z1 - z0 == 1 && y1 - y0 == 1 && pool->in_stride[4] == 1)
          row = x + z0 * pool->in_stride[2] + y0 * pool->in_stride[3];
        else
          for (int64_t z = z0; z < z1; z++)
            for (int64_t k = y0; k < y1; k++) {
              const real *line = x + z * pool->in_stride[2] + k * pool->in_stride[3];
              if (z == z0 && k == y0) NAME(put)(buf, line, pool->in_stride[4], width);
              else NAME(add)(buf, line, pool->in_stride[4], width);
            }
        NAME(along)(pool, row, res, divisors);
        if (pool->out_stride[4] != 1)
          for (int64_t j = 0; j < out_width; j++) to[j * pool->out_stride[4]] = out[j];
      }
  }
}

static void NAME(back_planes)(const amp__pool *pool, int64_t begin, int64_t end, real *buf)
{
  int64_t width = pool->in_size[2], out_width = pool->out[2];
  real *share = buf + width, *divisors = share + out_width;
  for (int64_t i = begin; i < end; i++) {
    real *x = AMP_PLANE(pool, in_view, in_stride, i, real);
    const real *g = AMP_PLANE(pool, out_view, out_stride, i, const real);
    for (int64_t z = 0; z < pool->in_size[0]; z++)
      for (int64_t y = 0; y < pool->in_size[1]; y++) {
        real *row = x + z * pool->in_stride[2] + y * pool->in_stride[3];
        if (pool->in_stride[4] == 1) memset(row, 0, (size_t)width * sizeof *row);
        else
          for (int64_t j = 0; j < width; j++) row[j * pool->in_stride[4]] = 0;
      }
    for (int64_t out_z = 0; out_z < pool->out[0]; out_z++)
      for (int64_t out_y = 0; out_y < pool->out[1]; out_y++) {
        const real *from = g + out_z * pool->out_stride[2] + out_y * pool->out_stride[3];
        NAME(factors)(pool, out_z, out_y, divisors);
        for (int64_t j = 0; j < out_width; j++) share[j] = from[j * pool->out_stride[4]] / divisors[j];
        NAME(spread)(pool, share, buf);
        for (int64_t z = pool->start[0][out_z]; z < pool->start[0][out_z] + pool->count[0][out_z]; z++)
          for (int64_t y = pool->start[1][out_y]; y < pool->start[1][out_y] + pool->count[1][out_y]; y++) {
            real *row = x + z * pool->in_stride[2] + y * pool->in_stride[3];
            if (pool->in_stride[4] == 1) NAME(add)(row, buf, 1, width);
            else
              for (int64_t j = 0; j < width; j++) row[j * pool->in_stride[4]] += buf[j];
          }
      }
  }
}

/* -- Channels innermost ------------------------------------------------------------------------ */

static inline real NAME(factor)(const amp__pool *pool, const int64_t *out)
{
  return pool->divisor != AMP_NONE ? (real)pool->divisor
                                   : (real)(pool->len[0][out[0]] * pool->len[1][out[1]] * pool->len[2][out[2]]);
}

#define WINDOW(code)                                                                                 \
  for (int64_t z = pool->start[0][o[0]]; z < pool->start[0][o[0]] + pool->count[0][o[0]]; z++)       \
    for (int64_t y = pool->start[1][o[1]]; y < pool->start[1][o[1]] + pool->count[1][o[1]]; y++)     \
      for (int64_t q = pool->start[2][o[2]]; q < pool->start[2][o[2]] + pool->count[2][o[2]]; q++) { \
        real *row = x + z * pool->in_stride[2] + y * pool->in_stride[3] + q * pool->in_stride[4];    \
        code                                                                                         \
      }

static void NAME(pixels)(const amp__pool *pool, int64_t begin, int64_t end)
{
  int64_t plane = pool->out[1] * pool->out[2], volume = pool->out[0] * plane;
  for (int64_t i = begin; i < end; i++) {
    int64_t count = i / volume, o[3] = { i / plane % pool->out[0], i / pool->out[2] % pool->out[1], i % pool->out[2] };
    real *to = (real *)pool->out_view.p + count * pool->out_stride[0] + o[0] * pool->out_stride[2]
               + o[1] * pool->out_stride[3] + o[2] * pool->out_stride[4],
         *x = (real *)pool->in_view.p + count * pool->in_stride[0];
    memset(to, 0, (size_t)pool->channels * sizeof *to);
    WINDOW(NAME(add)(to, row, 1, pool->channels);)
    real divisor = NAME(factor)(pool, o);
    for (int64_t j = 0; j < pool->channels; j++) to[j] /= divisor;
  }
}

/* whole images: their outputs add into the same pixels */
static void NAME(back_pixels)(const amp__pool *pool, int64_t begin, int64_t end)
{
  for (int64_t count = begin; count < end; count++) {
    real *x = (real *)pool->in_view.p + count * pool->in_stride[0];
    for (int64_t z = 0; z < pool->in_size[0]; z++)
      for (int64_t y = 0; y < pool->in_size[1]; y++)
        for (int64_t q = 0; q < pool->in_size[2]; q++)
          memset(x + z * pool->in_stride[2] + y * pool->in_stride[3] + q * pool->in_stride[4], 0,
                 (size_t)pool->channels * sizeof *x);
    for (int64_t out_z = 0; out_z < pool->out[0]; out_z++)
      for (int64_t out_y = 0; out_y < pool->out[1]; out_y++)
        for (int64_t out_x = 0; out_x < pool->out[2]; out_x++) {
          int64_t o[3] = { out_z, out_y, out_x };
          const real *g = (const real *)pool->out_view.p + count * pool->out_stride[0] + out_z * pool->out_stride[2]
                          + out_y * pool->out_stride[3] + out_x * pool->out_stride[4];
          real divisor = NAME(factor)(pool, o);
          WINDOW(NAME(add_quotient)(row, g, divisor, pool->channels);)
        }
  }
}
#undef WINDOW
