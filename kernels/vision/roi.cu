/*
** roi.cu: rows roi_align, roi_align_backward and roi_pool_places: regions of feature maps.
**
** A thread has one cell of one channel of a region and walks its samples; neighbouring threads have
** neighbouring cells, so what they read lies close together. Gradients are added by atomics in
** float32 (float64 for float64): their last bit may differ between runs. In deterministic mode a
** thread has a channel of an image's gradient and adds in order instead.
*/
#include "common/kernel.cuh"

#define AMP_ROI_INLINE static __device__ __forceinline__
#define real float
#define FLOOR floorf
#define CEIL ceilf
#define ROI(name) roi_f32_##name
static __device__ __forceinline__ float roi_f32_round(float x) { return roundf(x); }
#include "../src/ops/vision/roi_grid.h"
#undef real
#undef FLOOR
#undef CEIL
#undef ROI
#define real double
#define FLOOR floor
#define CEIL ceil
#define ROI(name) roi_f64_##name
static __device__ __forceinline__ double roi_f64_round(double x) { return round(x); }
#include "../src/ops/vision/roi_grid.h"
#undef real
#undef ROI

namespace {

template <class T> struct roi_of;
template <> struct roi_of<float> {
  typedef roi_f32_place place;
  typedef roi_f32_tap tap;
  static __device__ __forceinline__ bool taps(tap *t, float at, int size) { return roi_f32_taps(t, at, size); }
  static __device__ __forceinline__ place find(const float *b, float s, int h, int w, int r, bool a)
  {
    return roi_f32_find(b, s, h, w, r, a);
  }
  static __device__ __forceinline__ void cell(float f, float t, float s, int n, int i, int size, int *b, int *e)
  {
    roi_f32_cell(f, t, s, n, i, size, b, e);
  }
};
template <> struct roi_of<double> {
  typedef roi_f64_place place;
  typedef roi_f64_tap tap;
  static __device__ __forceinline__ bool taps(tap *t, double at, int size) { return roi_f64_taps(t, at, size); }
  static __device__ __forceinline__ place find(const double *b, double s, int h, int w, int r, bool a)
  {
    return roi_f64_find(b, s, h, w, r, a);
  }
  static __device__ __forceinline__ void cell(double f, double t, double s, int n, int i, int size, int *b, int *e)
  {
    roi_f64_cell(f, t, s, n, i, size, b, e);
  }
};

typedef struct regions {
  const void *in, *rois;
  void *out;
  int64_t images, count, channels;
  int height, width, out_h, out_w, ratio, op;
  double scale;
  bool aligned;
} regions;

/* The image of a region, from 0; -1 and a note: there is none */
template <class T> __device__ __forceinline__ int64_t image_of(const regions &job, int64_t region, amp_trouble *trouble)
{
  T at = ((const T *)job.rois)[region * 5];
  if (at >= 1 && at <= (T)job.images && at == floor(at)) return (int64_t)at - 1;
  amp_note(trouble, AMP_TROUBLE_INDEX, job.op, at == at ? (int64_t)at : 0, job.images, region);
  return -1;
}

/* Each sample of a cell that is inside: code sees the taps x and y */
#define EACH_SAMPLE(p, row, column, ...)                                                         \
  for (int iy = 0; iy < (p).grid_h; iy++) {                                                      \
    typename roi_of<T>::tap y;                                                                   \
    T at_y = (p).y + (T)(row) * (p).cell_h + ((T)iy + (T)0.5) * (p).cell_h / (T)(p).grid_h;      \
    if (!roi_of<T>::taps(&y, at_y, job.height)) continue;                                        \
    for (int ix = 0; ix < (p).grid_w; ix++) {                                                    \
      typename roi_of<T>::tap x;                                                                 \
      T at_x = (p).x + (T)(column) * (p).cell_w + ((T)ix + (T)0.5) * (p).cell_w / (T)(p).grid_w; \
      if (!roi_of<T>::taps(&x, at_x, job.width)) continue;                                       \
      __VA_ARGS__                                                                                \
    }                                                                                            \
  }

template <class T> __global__ void __launch_bounds__(128) align(const regions job, amp_trouble *trouble)
{
  AMP_FOR(i, job.count * job.channels * job.out_h * job.out_w)
  {
    const int column = (int)(i % job.out_w), row = (int)(i / job.out_w % job.out_h);
    const int64_t c = i / job.out_w / job.out_h % job.channels, region = i / job.out_w / job.out_h / job.channels;
    const int64_t image = image_of<T>(job, region, trouble);
    typename roi_of<T>::place p = roi_of<T>::find((const T *)job.rois + region * 5 + 1, (T)job.scale, job.out_h,
                                                  job.out_w, job.ratio, job.aligned);
    const int64_t samples = (int64_t)p.grid_h * p.grid_w;
    T sum = (p.x - p.x) + (p.y - p.y) + (p.cell_w - p.cell_w) + (p.cell_h - p.cell_h);
    if (image >= 0) {
      const T *in = (const T *)job.in + (image * job.channels + c) * job.height * job.width;
      EACH_SAMPLE(p, row, column, const T *a = in + (int64_t)y.low * job.width, *b = in + (int64_t)y.high * job.width;
                  sum += y.a * (x.a * a[x.low] + x.b * a[x.high]) + y.b * (x.a * b[x.low] + x.b * b[x.high]);)
    }
    ((T *)job.out)[i] = sum / (T)(samples > 1 ? samples : 1);
  }
}

template <class T, bool ATOMIC> __device__ __forceinline__ void add(T *to, T v)
{
  if (ATOMIC) atomicAdd(to, v);
  else *to += v;
}

template <class T, bool ATOMIC>
__device__ __forceinline__ void spread(const regions &job, int64_t region, int64_t c, int row, int column,
                                       amp_trouble *trouble)
{
  const int64_t image = image_of<T>(job, region, trouble);
  if (image < 0) return;
  typename roi_of<T>::place p = roi_of<T>::find((const T *)job.rois + region * 5 + 1, (T)job.scale, job.out_h,
                                                job.out_w, job.ratio, job.aligned);
  const int64_t samples = (int64_t)p.grid_h * p.grid_w;
  const T g = ((const T *)job.in)[((region * job.channels + c) * job.out_h + row) * job.out_w + column]
              / (T)(samples > 1 ? samples : 1);
  T *to = (T *)job.out + (image * job.channels + c) * job.height * job.width;
  EACH_SAMPLE(p, row, column, T *a = to + (int64_t)y.low * job.width, *b = to + (int64_t)y.high * job.width;
              add<T, ATOMIC>(a + x.low, g * y.a * x.a); add<T, ATOMIC>(a + x.high, g * y.a * x.b);
              add<T, ATOMIC>(b + x.low, g * y.b * x.a); add<T, ATOMIC>(b + x.high, g * y.b * x.b);)
}

template <class T> __global__ void __launch_bounds__(128) align_back(const regions job, amp_trouble *trouble)
{
  AMP_FOR(i, job.count * job.channels * job.out_h * job.out_w)
  spread<T, true>(job, i / job.out_w / job.out_h / job.channels, i / job.out_w / job.out_h % job.channels,
                  (int)(i / job.out_w % job.out_h), (int)(i % job.out_w), trouble);
}

template <class T> __global__ void __launch_bounds__(128) align_back_ordered(const regions job, amp_trouble *trouble)
{
  AMP_FOR(c, job.channels)
  for (int64_t region = 0; region < job.count; region++)
    for (int row = 0; row < job.out_h; row++)
      for (int column = 0; column < job.out_w; column++) spread<T, false>(job, region, c, row, column, trouble);
}

template <class T> __global__ void __launch_bounds__(128) largest(const regions job, amp_trouble *trouble)
{
  AMP_FOR(i, job.count * job.channels * job.out_h * job.out_w)
  {
    const int column = (int)(i % job.out_w), row = (int)(i / job.out_w % job.out_h);
    const int64_t c = i / job.out_w / job.out_h % job.channels, region = i / job.out_w / job.out_h / job.channels;
    const int64_t image = image_of<T>(job, region, trouble);
    const int64_t first = (image * job.channels + c) * job.height * job.width;
    const T *box = (const T *)job.rois + region * 5 + 1, *in = (const T *)job.in + first;
    int y0, y1, x0, x1;
    int64_t at = -1;
    roi_of<T>::cell(box[1], box[3], (T)job.scale, job.out_h, row, job.height, &y0, &y1);
    roi_of<T>::cell(box[0], box[2], (T)job.scale, job.out_w, column, job.width, &x0, &x1);
    for (int y = y0; image >= 0 && y < y1; y++)
      for (int x = x0; x < x1; x++) {
        const int64_t k = (int64_t)y * job.width + x;
        if (at < 0 || in[k] > in[at] || in[k] != in[k]) at = k;
      }
    ((int64_t *)job.out)[i] = at < 0 ? 0 : first + at + 1;
  }
}

enum { FORWARD, BACKWARD, PLACES };

template <class T, int WHAT> static void launch(const regions &job)
{
  const int64_t n = job.count * job.channels * job.out_h * job.out_w;
  amp_trouble *trouble = amp_trouble_cell();
  if (WHAT == FORWARD) AMP_LAUNCH((align<T>), amp_grid(n, 128, 32), 128, 0, job, trouble);
  else if (WHAT == PLACES) AMP_LAUNCH((largest<T>), amp_grid(n, 128, 32), 128, 0, job, trouble);
  else if (amp__cuda_deterministic)
    AMP_LAUNCH((align_back_ordered<T>), amp_grid(job.channels, 128, 32), 128, 0, job, trouble);
  else AMP_LAUNCH((align_back<T>), amp_grid(n, 128, 32), 128, 0, job, trouble);
}

/* maps: the shape of the feature maps */
template <int WHAT> static int run(amp_call *c, regions *job, const int64_t *maps)
{
  int type = c->in[0]->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  amp_tensor *in = amp__cuda_dense(c->in[0], type), *rois = amp__cuda_dense(c->in[1], type), *y = c->out[0];
  amp_tensor *out = amp__cuda_make(WHAT == PLACES ? AMP_INT64 : type, 4, y->size);
  int rc = in && rois && out ? 0 : AMP_E_MEMORY;
  if (rc == 0 && WHAT == BACKWARD && out->numel > 0) rc = amp__cuda_fill_value(out, 0);
  if (rc == 0 && y->numel > 0 && (in->numel > 0 || WHAT != BACKWARD)) { /* without images, no region is right */
    job->in = amp__data(in);
    job->rois = amp__data(rois);
    job->out = amp__data(out);
    job->images = maps[0];
    job->count = rois->size[0];
    job->channels = maps[1];
    job->height = (int)maps[2];
    job->width = (int)maps[3];
    if (type == AMP_FLOAT64) launch<double, WHAT>(*job);
    else launch<float, WHAT>(*job);
  }
  if (rc == 0) rc = amp__cuda_copy_to(y, out);
  amp__free(out);
  amp__free(rois);
  amp__free(in);
  return rc;
}

/* args: of any of the rows */
template <class ARGS> static regions regions_of(const ARGS *args, int op)
{
  regions job;
  memset((void *)&job, 0, sizeof job);
  job.out_h = (int)args->height;
  job.out_w = (int)args->width;
  job.scale = args->spatial_scale;
  job.op = op;
  return job;
}

template <class ARGS> static void set_samples(regions *job, const ARGS *args)
{
  job->ratio = (int)(args->sampling_ratio > 4096 ? 4096 : args->sampling_ratio);
  job->aligned = args->aligned != 0;
}

} // namespace

extern "C" {

int amp__cuda_roi_align(amp_call *c)
{
  const args_roi_align *args = AMP_ARGS(c, roi_align);
  regions job = regions_of(args, AMP_OP_roi_align);
  set_samples(&job, args);
  return run<FORWARD>(c, &job, c->in[0]->size);
}

int amp__cuda_roi_align_backward(amp_call *c)
{
  const args_roi_align_backward *args = AMP_ARGS(c, roi_align_backward);
  regions job = regions_of(args, AMP_OP_roi_align_backward);
  set_samples(&job, args);
  return run<BACKWARD>(c, &job, c->out[0]->size);
}

int amp__cuda_roi_pool_places(amp_call *c)
{
  const args_roi_pool_places *args = AMP_ARGS(c, roi_pool_places);
  regions job = regions_of(args, AMP_OP_roi_pool_places);
  return run<PLACES>(c, &job, c->in[0]->size);
}
}
