/*
** ops/vision/roi.c: rows roi_align, roi_align_backward, roi_pool_places: regions of feature maps.
** A region names its image by a number from 1. The largest values of roi_pool are found as places,
** so that its result and all its derivatives are an index of the input.
*/
#include <math.h>
#include "cpu/kernel_help.h"
#include "cpu/strided.h"

#define AMP_ROI_INLINE static inline
typedef struct regions {
  const void *in, *rois;
  void *out;
  const int64_t *image; /* of each region, from 0 */
  int64_t count, channels, height, width, out_h, out_w;
  double scale;
  int ratio, type, what;
  bool aligned;
} regions;

#define real float
#define FLOOR floorf
#define CEIL ceilf
#define ROI(name) roi_f32_##name
static inline float roi_f32_round(float x) { return roundf(x); }
#include "ops/vision/roi_grid.h"
#include "ops/vision/roi_body.h"
#undef real
#undef FLOOR
#undef CEIL
#undef ROI
#define real double
#define FLOOR floor
#define CEIL ceil
#define ROI(name) roi_f64_##name
static inline double roi_f64_round(double x) { return round(x); }
#include "ops/vision/roi_grid.h"
#include "ops/vision/roi_body.h"

enum work { FORWARD, BACKWARD, PLACES };

static void body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const regions *job = ctx;
  bool wide = job->type == AMP_FLOAT64;
  (void)thread;
  switch ((enum work)job->what) {
  case FORWARD:
    if (wide) roi_f64_forward(job, begin, end);
    else roi_f32_forward(job, begin, end);
    break;
  case BACKWARD:
    if (wide) roi_f64_backward(job, begin, end);
    else roi_f32_backward(job, begin, end);
    break;
  case PLACES:
    if (wide) roi_f64_places(job, begin, end);
    else roi_f32_places(job, begin, end);
    break;
  }
}

/* The images of the regions, from 0 */
static int images_of(const regions *job, int64_t images, int64_t *to)
{
  for (int64_t i = 0; i < job->count; i++) {
    double at = job->type == AMP_FLOAT64 ? ((const double *)job->rois)[i * 5] : ((const float *)job->rois)[i * 5];
    if (!(at >= 1 && at <= (double)images && at == floor(at)))
      return amp__fail(AMP_E_INDEX, "region %lld is of image %g, there are images 1 to %lld", (long long)i + 1, at,
                       (long long)images);
    to[i] = (int64_t)at - 1;
  }
  return 0;
}

/* maps: the feature maps' shape; out is filled in `type` and copied */
static int run(amp_call *call, regions *job, const int64_t *maps, int type)
{
  amp_tensor *in = amp__dense(call->in[0], job->type), *rois = amp__dense(call->in[1], job->type),
             *result = call->out[0];
  amp_tensor *out = amp__tensor_make(type, AMP_CPU, 0, 4, result->size);
  amp__scratch scratch = { 0 };
  int status = in && rois && out ? 0 : amp__S->err.code;
  if (status == 0 && job->what == BACKWARD) status = amp__fill_value(out, 0);
  /* without images there is nothing to add to, and no region that is right */
  if (status == 0 && result->numel > 0 && (in->numel > 0 || job->what != BACKWARD)) {
    job->in = amp__data(in);
    job->rois = amp__data(rois);
    job->out = amp__data(out);
    job->count = rois->size[0];
    job->channels = maps[1];
    job->height = maps[2];
    job->width = maps[3];
    if (!amp__scratch_lend(&scratch, NULL, 0, sizeof(int64_t) * (size_t)(job->count + 1))) status = AMP_E_MEMORY;
    else {
      int64_t items = job->what == BACKWARD ? job->channels : job->count;
      job->image = scratch.p;
      if ((status = images_of(job, maps[0], scratch.p)) == 0)
        amp__parallel_ranges(amp__threads_for(job->count * job->channels * job->out_h * job->out_w * 32, items), items,
                             body, job);
      amp__scratch_return(&scratch);
    }
  }
  if (status == 0) status = amp__copy_to(result, out);
  amp__free(in);
  amp__free(rois);
  amp__free(out);
  return status;
}

int amp__cpu_roi_align(amp_call *call)
{
  const args_roi_align *args = AMP_ARGS(call, roi_align);
  regions job = { .type = amp__compute_dtype(call->in[0]->dtype),
                  .what = FORWARD,
                  .scale = args->spatial_scale,
                  .ratio = (int)(args->sampling_ratio > 4096 ? 4096 : args->sampling_ratio),
                  .aligned = args->aligned != 0,
                  .out_h = args->height,
                  .out_w = args->width };
  return run(call, &job, call->in[0]->size, job.type);
}

int amp__cpu_roi_align_backward(amp_call *call)
{
  const args_roi_align_backward *args = AMP_ARGS(call, roi_align_backward);
  regions job = { .type = amp__compute_dtype(call->in[0]->dtype),
                  .what = BACKWARD,
                  .scale = args->spatial_scale,
                  .ratio = (int)(args->sampling_ratio > 4096 ? 4096 : args->sampling_ratio),
                  .aligned = args->aligned != 0,
                  .out_h = args->height,
                  .out_w = args->width };
  return run(call, &job, call->out[0]->size, job.type);
}

int amp__cpu_roi_pool_places(amp_call *call)
{
  const args_roi_pool_places *args = AMP_ARGS(call, roi_pool_places);
  regions job = { .type = amp__compute_dtype(call->in[0]->dtype),
                  .what = PLACES,
                  .scale = args->spatial_scale,
                  .out_h = args->height,
                  .out_w = args->width };
  return run(call, &job, call->in[0]->size, AMP_INT64);
}
