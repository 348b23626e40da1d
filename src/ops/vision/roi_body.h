/*
** ops/vision/roi_body.h: loops over regions of feature maps, included for float and double with
** the names of roi_grid.h. A region is one item of work; gradients are added plane by plane instead,
** so that threads never meet.
*/

/* Every sample of the cell (row, column) that is inside: the code after them sees the taps x and y */
#define EACH_SAMPLE(p, row, column, ...)                                                                               \
  for (int32_t iy = 0; iy < (p).grid_h; iy++) {                                                                        \
    ROI(tap) y;                                                                                                        \
    if (!ROI(taps)(&y, (p).y + (real)(row) * (p).cell_h + ((real)iy + (real)0.5) * (p).cell_h / (real)(p).grid_h,      \
                   (int32_t)job->height))                                                                              \
      continue;                                                                                                        \
    for (int32_t ix = 0; ix < (p).grid_w; ix++) {                                                                      \
      ROI(tap) x;                                                                                                      \
      if (!ROI(taps)(&x, (p).x + (real)(column) * (p).cell_w + ((real)ix + (real)0.5) * (p).cell_w / (real)(p).grid_w, \
                     (int32_t)job->width))                                                                             \
        continue;                                                                                                      \
      __VA_ARGS__                                                                                                      \
    }                                                                                                                  \
  }

static ROI(place) ROI(of)(const regions *job, int64_t region)
{
  const real *roi = (const real *)job->rois + region * 5;
  return ROI(find)(roi + 1, (real)job->scale, (int)job->out_h, (int)job->out_w, job->ratio, job->aligned);
}

static void ROI(forward)(const regions *job, int64_t begin, int64_t end)
{
  const int64_t plane = job->height * job->width;
  for (int64_t region = begin; region < end; region++) {
    ROI(place) p = ROI(of)(job, region);
    real count = (real)((int64_t)p.grid_h * p.grid_w > 1 ? (int64_t)p.grid_h * p.grid_w : 1),
         bad = (p.x - p.x) + (p.y - p.y) + (p.cell_w - p.cell_w) + (p.cell_h - p.cell_h);
    real *to = (real *)job->out + region * job->channels * job->out_h * job->out_w;
    for (int64_t c = 0; c < job->channels; c++) {
      const real *in = (const real *)job->in + (job->image[region] * job->channels + c) * plane;
      for (int64_t cell = 0; cell < job->out_h * job->out_w; cell++) {
        real sum = bad;
        EACH_SAMPLE(p, cell / job->out_w, cell % job->out_w, {
          const real *a = in + y.low * job->width, *b = in + y.high * job->width;
          sum += y.a * (x.a * a[x.low] + x.b * a[x.high]) + y.b * (x.a * b[x.low] + x.b * b[x.high]);
        })
        *to++ = sum / count;
      }
    }
  }
}

/* Channels [begin, end) of the gradients of all images */
static void ROI(backward)(const regions *job, int64_t begin, int64_t end)
{
  const int64_t plane = job->height * job->width;
  for (int64_t region = 0; region < job->count; region++) {
    ROI(place) p = ROI(of)(job, region);
    real count = (real)((int64_t)p.grid_h * p.grid_w > 1 ? (int64_t)p.grid_h * p.grid_w : 1);
    for (int64_t c = begin; c < end; c++) {
      const real *from = (const real *)job->in + (region * job->channels + c) * job->out_h * job->out_w;
      real *to = (real *)job->out + (job->image[region] * job->channels + c) * plane;
      for (int64_t cell = 0; cell < job->out_h * job->out_w; cell++) {
        real g = *from++ / count;
        EACH_SAMPLE(p, cell / job->out_w, cell % job->out_w, {
          real *a = to + y.low * job->width, *b = to + y.high * job->width;
          a[x.low] += g * y.a * x.a;
          a[x.high] += g * y.a * x.b;
          b[x.low] += g * y.b * x.a;
          b[x.high] += g * y.b * x.b;
        })
      }
    }
  }
}

static void ROI(places)(const regions *job, int64_t begin, int64_t end)
{
  const int64_t plane = job->height * job->width;
  for (int64_t region = begin; region < end; region++) {
    const real *box = (const real *)job->rois + region * 5 + 1, scale = (real)job->scale;
    int64_t *to = (int64_t *)job->out + region * job->channels * job->out_h * job->out_w;
    for (int64_t c = 0; c < job->channels; c++) {
      const int64_t first = (job->image[region] * job->channels + c) * plane;
      const real *in = (const real *)job->in + first;
      for (int64_t cell = 0; cell < job->out_h * job->out_w; cell++) {
        int32_t y0, y1, x0, x1;
        int64_t at = -1;
        ROI(cell)(box[1], box[3], scale, (int)job->out_h, (int)(cell / job->out_w), (int32_t)job->height, &y0, &y1);
        ROI(cell)(box[0], box[2], scale, (int)job->out_w, (int)(cell % job->out_w), (int32_t)job->width, &x0, &x1);
        for (int64_t y = y0; y < y1; y++)
          for (int64_t x = x0; x < x1; x++) {
            int64_t k = y * job->width + x;
            if (at < 0 || in[k] > in[at] || in[k] != in[k]) at = k;
          }
        *to++ = at < 0 ? 0 : first + at + 1;
      }
    }
  }
}
#undef EACH_SAMPLE
