/*
** ops/resample/grid_sample_loops.h: loops of grid_sample over the computing type `real`, names by NAME(name);
** included by ops/resample/grid_sample.c once a type. Taps outside the input have offset 0 and
** zero weights, and zero weights never read (so a NaN elsewhere stays there).
*/

/* Of one dimension: weights and their derivatives in the grid's value. bad: NaN if that is not finite, else 0 */
typedef struct {
  int count;
  int64_t place[4];
  real weight[4], slope[4], bend[4], bad;
} NAME(taps);

/* A place on a line of length size after padding; *slope becomes d place / d v. */
static real NAME(folded)(real v, int64_t size, int padding, bool align, real *slope)
{
  real n = (real)size, lo = align ? 0 : (real)-0.5, span = align ? n - 1 : n;
  if (padding == PADDING_MODE_REFLECTION) {
    if (span <= 0) {
      *slope = 0;
      return 0;
    }
    real u = v - lo;
    if (u < 0) {
      u = -u;
      *slope = -*slope;
    }
    real turns = (real)floor((double)(u / span)), rest = u - turns * span;
    if (fmod((double)turns, 2) != 0) {
      rest = span - rest;
      *slope = -*slope;
    }
    v = rest + lo;
  }
  if (!(v > 0)) {
    *slope = 0;
    return 0;
  }
  if (v >= n - 1) {
    *slope = 0;
    return n - 1;
  }
  return v;
}

static int64_t NAME(inside)(real i, int64_t size, int padding, bool align)
{
  real f = 1;
  if (padding != PADDING_MODE_ZEROS) return (int64_t)NAME(folded)(i, size, padding, align, &f);
  return i >= 0 && i < (real)size ? (int64_t)i : -1;
}

static real NAME(cubic)(real x)
{
  return x <= 1 ? ((real)1.25 * x - (real)2.25) * x * x + 1 : (((real)-0.75 * x + (real)3.75) * x - 6) * x + 3;
}
static real NAME(cubic1)(real x)
{
  return x <= 1 ? ((real)3.75 * x - (real)4.5) * x : ((real)-2.25 * x + (real)7.5) * x - 6;
}
static real NAME(cubic2)(real x) { return x <= 1 ? (real)7.5 * x - (real)4.5 : (real)-4.5 * x + (real)7.5; }

static void NAME(place)(NAME(taps) * tap, real v, int64_t size, int mode, int padding, bool align)
{
  real f = align ? ((real)size - 1) / 2 : (real)size / 2;
  v = align ? (v + 1) / 2 * ((real)size - 1) : ((v + 1) * (real)size - 1) / 2;
  tap->bad = padding == PADDING_MODE_ZEROS || mode == GRID_SAMPLE_MODE_BICUBIC ? v - v : 0;
  if (mode == GRID_SAMPLE_MODE_BICUBIC) {
    if (!(v > -1e9 && v < 1e9)) v = -100; /* far away: nothing, or the border */
    real i = (real)floor((double)v), x = v - i, u[4] = { 1 + x, x, 1 - x, 2 - x };
    tap->count = 4;
    for (int k = 0; k < 4; k++) {
      tap->place[k] = NAME(inside)(i + (real)(k - 1), size, padding, align);
      tap->weight[k] = NAME(cubic)(u[k]);
      tap->slope[k] = (k < 2 ? f : -f) * NAME(cubic1)(u[k]);
      tap->bend[k] = f * f * NAME(cubic2)(u[k]);
    }
  } else {
    if (padding != PADDING_MODE_ZEROS) v = NAME(folded)(v, size, padding, align, &f);
    else if (!(v > -1e9 && v < 1e9)) v = -100;
    tap->count = mode == GRID_SAMPLE_MODE_NEAREST ? 1 : 2;
    real i = mode == GRID_SAMPLE_MODE_NEAREST ? (real)nearbyint((double)v) : (real)floor((double)v), x = v - i;
    if (mode == GRID_SAMPLE_MODE_NEAREST) {
      tap->weight[0] = 1;
      tap->slope[0] = 0;
    } else {
      tap->weight[0] = 1 - x;
      tap->weight[1] = x;
      tap->slope[0] = -f;
      tap->slope[1] = f;
    }
    for (int k = 0; k < tap->count; k++) {
      tap->place[k] = i + (real)k >= 0 && i + (real)k < (real)size ? (int64_t)i + k : -1;
      tap->bend[k] = 0;
    }
  }
  for (int k = 0; k < tap->count; k++)
    if (tap->place[k] < 0) tap->weight[k] = tap->slope[k] = tap->bend[k] = 0;
}

/* Taps of a block of points: tap k of point j at [k][j] */
typedef struct {
  int taps; /* of a point */
  int64_t points;
  int32_t place[TAPS][BLOCK];
  real weight[TAPS][BLOCK], slope[3][TAPS][BLOCK]; /* slope: derivatives of the weight in x, y, z */
  real along[TAPS][BLOCK], bend[3][TAPS][BLOCK];   /* twice: derivatives along ggrid of weight and slope */
} NAME(block);

/* Points begin.. of image n, whose values of the grid start at grad; along: values of ggrid, or NULL */
static void NAME(gather)(const grid *job, NAME(block) * block, const real *grad, const real *along, int64_t points,
                         bool slopes)
{
  int ndim = job->dims;
  block->points = points;
  for (int64_t j = 0; j < points; j++) {
    NAME(taps) line[3];
    int count = 1;
    for (int dim = 0; dim < 3; dim++) {
      if (dim < ndim)
        NAME(place)(&line[dim], grad[j * ndim + dim], job->in_size[2 - dim], job->mode, job->padding, job->align);
      else line[dim] = (NAME(taps)){ 1, { 0 }, { 1 }, { 0 }, { 0 }, 0 };
      count *= line[dim].count;
    }
    block->taps = count;
    real bad = line[0].bad + line[1].bad + line[2].bad;
    int i = 0;
    for (int z = 0; z < line[2].count; z++)
      for (int y = 0; y < line[1].count; y++)
        for (int x = 0; x < line[0].count; x++, i++) {
          bool inside = line[0].place[x] >= 0 && line[1].place[y] >= 0 && line[2].place[z] >= 0;
          real wx = line[0].weight[x], wy = line[1].weight[y], wz = line[2].weight[z];
          block->place[i][j] = inside
                                   ? (int32_t)((line[2].place[z] * job->in_size[1] + line[1].place[y]) * job->in_size[2]
                                               + line[0].place[x])
                                   : 0;
          block->weight[i][j] = inside ? wx * wy * wz : 0;
          if (!slopes) {
            if (i == 0) block->weight[0][j] += bad;
            continue;
          }
          real dx = line[0].slope[x], dy = line[1].slope[y], dz = line[2].slope[z];
          block->slope[0][i][j] = inside ? dx * wy * wz : 0;
          block->slope[1][i][j] = inside ? wx * dy * wz : 0;
          block->slope[2][i][j] = inside ? wx * wy * dz : 0;
          if (i == 0)
            for (int dim = 0; dim < ndim; dim++) block->slope[dim][0][j] += bad;
          if (!along) continue;
          real ex = inside ? along[j * ndim] : 0, ey = inside ? along[j * ndim + 1] : 0,
               ez = inside && ndim > 2 ? along[j * ndim + 2] : 0;
          block->along[i][j] = ex * block->slope[0][i][j] + ey * block->slope[1][i][j] + ez * block->slope[2][i][j];
          block->bend[0][i][j] = ex * line[0].bend[x] * wy * wz + ey * dx * dy * wz + ez * dx * wy * dz;
          block->bend[1][i][j] = ex * dx * dy * wz + ey * wx * line[1].bend[y] * wz + ez * wx * dy * dz;
          block->bend[2][i][j] = ex * dx * wy * dz + ey * wx * dy * dz + ez * wx * wy * line[2].bend[z];
        }
  }
}

/* The same for a plane, bilinear or nearest, a point a lane: no branches */
AMP_INLINE real NAME(fold)(real x, real n, int padding, bool align)
{
  if (padding == PADDING_MODE_REFLECTION) {
    real lo = align ? 0 : (real)-0.5, span = align ? n - 1 : n, u = x - lo;
    u = u < 0 ? -u : u;
    real turns = FLOOR(u / span), rest = u - turns * span, half = turns / 2;
    rest = FLOOR(half) != half ? span - rest : rest;
    x = span > 0 ? rest + lo : 0;
  }
  if (padding != PADDING_MODE_ZEROS) {
    x = x > 0 ? x : 0;
    x = x < n - 1 ? x : n - 1;
  }
  x = ((x > -2) & (x < n + 1)) ? x : -2;
  return x;
}

AMP_INLINE void NAME(points)(const grid *job, NAME(block) *restrict block, const real *restrict g, int64_t points,
                             bool nearest, int padding)
{
  real h = (real)job->in_size[1], w = (real)job->in_size[2];
  int32_t iw = (int32_t)job->in_size[2];
  bool align = job->align;
  block->taps = nearest ? 1 : 4;
  block->points = points;
  for (int64_t j = 0; j < points; j++) {
    real x = g[2 * j], y = g[2 * j + 1], bad = padding == PADDING_MODE_ZEROS ? (x - x) + (y - y) : 0;
    x = align ? (x + 1) / 2 * (w - 1) : ((x + 1) * w - 1) / 2;
    y = align ? (y + 1) / 2 * (h - 1) : ((y + 1) * h - 1) / 2;
    x = NAME(fold)(x, w, padding, align);
    y = NAME(fold)(y, h, padding, align);
    if (nearest) {
      real rx = RINT(x), ry = RINT(y);
      bool inside = (rx >= 0) & (rx < w) & (ry >= 0) & (ry < h);
      block->place[0][j] = inside ? (int32_t)ry * iw + (int32_t)rx : 0;
      block->weight[0][j] = (inside ? 1 : 0) + bad;
      continue;
    }
    int32_t ix = (int32_t)(x + 2) - 2, iy = (int32_t)(y + 2) - 2, at = iy * iw + ix;
    real fx = x - (real)ix, fy = y - (real)iy;
    bool x0 = (ix >= 0) & ((real)ix < w), x1 = (ix >= -1) & ((real)ix < w - 1), y0 = (iy >= 0) & ((real)iy < h),
         y1 = (iy >= -1) & ((real)iy < h - 1);
    block->place[0][j] = (x0 & y0) ? at : 0;
    block->place[1][j] = (x1 & y0) ? at + 1 : 0;
    block->place[2][j] = (x0 & y1) ? at + iw : 0;
    block->place[3][j] = (x1 & y1) ? at + iw + 1 : 0;
    block->weight[0][j] = ((x0 & y0) ? (1 - fx) * (1 - fy) : 0) + bad;
    block->weight[1][j] = (x1 & y0) ? fx * (1 - fy) : 0;
    block->weight[2][j] = (x0 & y1) ? (1 - fx) * fy : 0;
    block->weight[3][j] = (x1 & y1) ? fx * fy : 0;
  }
}
#define POINTS(name, nearest, padding)                                                                               \
  AMP_CLONES_OF(real) static void NAME(name)(const grid *job, NAME(block) * block, const real *grad, int64_t points) \
  {                                                                                                                  \
    NAME(points)(job, block, grad, points, nearest, padding);                                                        \
  }
POINTS(linear_zeros, false, PADDING_MODE_ZEROS)
POINTS(linear_border, false, PADDING_MODE_BORDER)
POINTS(linear_reflection, false, PADDING_MODE_REFLECTION)
POINTS(nearest_zeros, true, PADDING_MODE_ZEROS)
POINTS(nearest_border, true, PADDING_MODE_BORDER)
POINTS(nearest_reflection, true, PADDING_MODE_REFLECTION)
#undef POINTS

AMP_CLONES_OF(real) static void NAME(read1)(const NAME(block) * block, const real *restrict x, real *restrict y)
{
  int64_t count = block->points;
  const int32_t *place = block->place[0];
  const real *weight = block->weight[0];
  for (int64_t j = 0; j < count; j++) {
    real v = x[place[j]] * weight[j];
    y[j] = weight[j] != 0 ? v : 0;
  }
}

AMP_CLONES_OF(real) static void NAME(read)(const NAME(block) * block, const real *restrict x, real *restrict y)
{
  int64_t count = block->points;
  for (int64_t j = 0; j < count; j++) y[j] = 0;
  for (int k = 0; k < block->taps; k++) {
    const int32_t *place = block->place[k];
    const real *weight = block->weight[k];
    for (int64_t j = 0; j < count; j++) {
      real v = x[place[j]] * weight[j];
      y[j] += weight[j] != 0 ? v : 0;
    }
  }
}

AMP_CLONES_OF(real) static void NAME(read4)(const NAME(block) * block, const real *restrict x, real *restrict y)
{
  int64_t count = block->points;
  const int32_t *a0 = block->place[0], *a1 = block->place[1], *a2 = block->place[2], *a3 = block->place[3];
  const real *w0 = block->weight[0], *w1 = block->weight[1], *w2 = block->weight[2], *w3 = block->weight[3];
  for (int64_t j = 0; j < count; j++) {
    real v0 = x[a0[j]] * w0[j], v1 = x[a1[j]] * w1[j], v2 = x[a2[j]] * w2[j], v3 = x[a3[j]] * w3[j];
    y[j] = ((w0[j] != 0 ? v0 : 0) + (w1[j] != 0 ? v1 : 0)) + ((w2[j] != 0 ? v2 : 0) + (w3[j] != 0 ? v3 : 0));
  }
}

static void NAME(forward)(const grid *job, int64_t begin, int64_t end)
{ /* images times blocks of points */
  NAME(block) *block = job->block;
  static void (*const points[2][3])(const grid *, NAME(block) *, const real *, int64_t)
      = { { NAME(linear_zeros), NAME(linear_border), NAME(linear_reflection) },
          { NAME(nearest_zeros), NAME(nearest_border), NAME(nearest_reflection) } };
  bool plane = job->dims == 2 && job->mode != GRID_SAMPLE_MODE_BICUBIC && job->in_size[1] < 1 << 24
               && job->in_size[2] < 1 << 24;
  for (int64_t i = begin; i < end; i++) {
    int64_t image = i / job->nblock, first = i % job->nblock * BLOCK,
            m = job->points - first < BLOCK ? job->points - first : BLOCK;
    const real *grad = (const real *)job->grid.p + (image * job->points + first) * job->dims;
    if (plane) points[job->mode][job->padding](job, block, grad, m);
    else NAME(gather)(job, block, grad, NULL, m, false);
    for (int64_t channel = 0; channel < job->channels; channel++) {
      const real *x = (const real *)job->input.p + (image * job->channels + channel) * job->volume;
      real *y = (real *)job->grad.p + (image * job->channels + channel) * job->points + first;
      if (block->taps == 1) NAME(read1)(block, x, y);
      else if (block->taps == 4) NAME(read4)(block, x, y);
      else NAME(read)(block, x, y);
    }
  }
}

AMP_CLONES_OF(real)
static void NAME(dot)(real *restrict to, const real *grad, const real *weight, const int32_t *place,
                      const real *restrict x, int64_t count)
{
  for (int64_t j = 0; j < count; j++) {
    real v = x[place[j]] * weight[j] * grad[j];
    to[j] += weight[j] != 0 ? v : 0;
  }
}

static void NAME(backward)(const grid *job, int64_t begin, int64_t end)
{ /* whole images: points add into the same places */
  NAME(block) *block = job->block;
  real sum[3][BLOCK];
  int ndim = job->dims;
  for (int64_t i = begin * job->nblock; i < end * job->nblock; i++) {
    int64_t image = i / job->nblock, first = i % job->nblock * BLOCK,
            points = job->points - first < BLOCK ? job->points - first : BLOCK;
    NAME(gather)(job, block, (const real *)job->grid.p + (image * job->points + first) * ndim, NULL, points, true);
    memset(sum, 0, sizeof sum);
    for (int64_t channel = 0; channel < job->channels; channel++) {
      const real *x = (const real *)job->input.p + (image * job->channels + channel) * job->volume,
                 *grad = (const real *)job->grad.p + (image * job->channels + channel) * job->points + first;
      real *gx = (real *)job->out_input.p + (image * job->channels + channel) * job->volume;
      for (int tap = 0; tap < block->taps; tap++)
        for (int64_t j = 0; j < points; j++)
          if (block->weight[tap][j] != 0) gx[block->place[tap][j]] += block->weight[tap][j] * grad[j];
      if (job->mode == GRID_SAMPLE_MODE_NEAREST) continue;
      for (int dim = 0; dim < ndim; dim++)
        for (int tap = 0; tap < block->taps; tap++)
          NAME(dot)(sum[dim], grad, block->slope[dim][tap], block->place[tap], x, points);
    }
    real *gg = (real *)job->out_grid.p + (image * job->points + first) * ndim;
    for (int64_t j = 0; j < points; j++)
      for (int dim = 0; dim < ndim; dim++) gg[j * ndim + dim] = sum[dim][j];
  }
}

/* Gradients of backward: h is the gradient of its first result, along that of its second */
static void NAME(twice)(const grid *job, int64_t begin, int64_t end)
{
  NAME(block) *block = job->block;
  real sum[3][BLOCK], one[BLOCK];
  int ndim = job->dims;
  for (int64_t j = 0; j < BLOCK; j++) one[j] = 1;
  for (int64_t i = begin * job->nblock; i < end * job->nblock; i++) {
    int64_t image = i / job->nblock, first = i % job->nblock * BLOCK,
            points = job->points - first < BLOCK ? job->points - first : BLOCK,
            at = (image * job->points + first) * ndim;
    NAME(gather)(job, block, (const real *)job->grid.p + at, (const real *)job->grad_grid.p + at, points, true);
    memset(sum, 0, sizeof sum);
    for (int64_t channel = 0; channel < job->channels; channel++) {
      int64_t plane = (image * job->channels + channel) * job->volume,
              row = (image * job->channels + channel) * job->points + first;
      const real *x = (const real *)job->input.p + plane, *h = (const real *)job->grad_input.p + plane,
                 *grad = (const real *)job->grad.p + row;
      real *gx = (real *)job->out_input.p + plane, *og = (real *)job->out_grad.p + row;
      for (int64_t j = 0; j < points; j++) og[j] = 0;
      for (int tap = 0; tap < block->taps; tap++) {
        NAME(dot)(og, one, block->weight[tap], block->place[tap], h, points);
        NAME(dot)(og, one, block->along[tap], block->place[tap], x, points);
        for (int64_t j = 0; j < points; j++)
          if (block->along[tap][j] != 0) gx[block->place[tap][j]] += block->along[tap][j] * grad[j];
        for (int dim = 0; dim < ndim; dim++) {
          NAME(dot)(sum[dim], grad, block->slope[dim][tap], block->place[tap], h, points);
          NAME(dot)(sum[dim], grad, block->bend[dim][tap], block->place[tap], x, points);
        }
      }
    }
    real *gg = (real *)job->out_grid.p + at;
    for (int64_t j = 0; j < points; j++)
      for (int dim = 0; dim < ndim; dim++) gg[j * ndim + dim] = sum[dim][j];
  }
}
