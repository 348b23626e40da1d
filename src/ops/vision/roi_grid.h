/*
** ops/vision/roi_grid.h: where the samples of a region of a feature map lie, for kernels of the CPU and of GPUs;
** included with `real`, FLOOR, CEIL and ROI(name) set. The formulas are torchvision's.
*/
typedef struct {
  real x, y, cell_w, cell_h;
  int32_t grid_w, grid_h; /* samples of a cell along each side */
} ROI(place);

/* Where the region (x1, y1, x2, y2) lies. A cell has at most 4096 samples a side, which no picture fills. */
AMP_ROI_INLINE ROI(place) ROI(find)(const real *box, real scale, int height, int width, int ratio, bool aligned)
{
  const real off = aligned ? (real)0.5 : 0, most = 4096;
  ROI(place) p;
  p.x = box[0] * scale - off;
  p.y = box[1] * scale - off;
  real w = box[2] * scale - off - p.x, h = box[3] * scale - off - p.y;
  if (!aligned) {
    w = w > 1 ? w : w == w ? 1 : w;
    h = h > 1 ? h : h == h ? 1 : h;
  }
  p.cell_w = w / (real)width;
  p.cell_h = h / (real)height;
  real gw = ratio > 0 ? (real)ratio : CEIL(p.cell_w), gh = ratio > 0 ? (real)ratio : CEIL(p.cell_h);
  p.grid_w = (int32_t)(gw > most ? most : gw > 0 ? gw : 0);
  p.grid_h = (int32_t)(gh > most ? most : gh > 0 ? gh : 0);
  return p;
}

typedef struct {
  int32_t low, high; /* pixels beside it */
  real a, b;         /* their weights */
} ROI(tap);

/* A place on a line of `size` pixels; false: outside, where there is nothing */
AMP_ROI_INLINE bool ROI(taps)(ROI(tap) * t, real at, int32_t size)
{
  if (!(at >= -1) || !(at <= (real)size)) return false;
  if (at < 0) at = 0;
  t->low = (int32_t)at;
  if (t->low >= size - 1) {
    t->low = t->high = size - 1;
    at = (real)t->low;
  } else t->high = t->low + 1;
  t->b = at - (real)t->low;
  t->a = 1 - t->b;
  return true;
}

/* The pixels [*begin, *end) of a cell of roi_pool along one side */
AMP_ROI_INLINE void ROI(cell)(real from, real to, real scale, int cells, int cell, int32_t size, int32_t *begin,
                              int32_t *end)
{
  const real most = 1e9;
  real a = ROI(round)(from * scale), b = ROI(round)(to * scale);
  a = a > -most ? a < most ? a : most : -most;
  b = b > -most ? b < most ? b : most : -most;
  real length = b - a + 1;
  if (!(length > 1)) length = 1;
  real each = length / (real)cells, low = FLOOR((real)cell * each) + a, high = CEIL((real)(cell + 1) * each) + a;
  *begin = (int32_t)(low < 0 ? 0 : low > (real)size ? (real)size : low);
  *end = (int32_t)(high < 0 ? 0 : high > (real)size ? (real)size : high);
}
