/*
** ops/vision/boxes.c: row box_suppress: which of the boxes of each image, the best first, stay.
** A box goes where a better one of its group that stays overlaps it too much; what it would have
** suppressed itself is then left alone. Images run side by side, the walk within one is serial.
*/
#include "cpu/kernel_help.h"
#include "cpu/strided.h"
#include "ops/vision/boxes.h"

typedef struct suppressing {
  const float *boxes;
  const int64_t *groups;
  uint8_t *stays;
  int64_t count;
  float threshold;
  bool inclusive;
} suppressing;

void amp__suppress_boxes(const float *boxes, const int64_t *groups, uint8_t *stays, int64_t count, float threshold,
                         bool inclusive)
{
  for (int64_t i = 0; i < count; i++) stays[i] = groups[i] >= 0;
  for (int64_t i = 0; i < count; i++) {
    if (!stays[i]) continue;
    for (int64_t k = i + 1; k < count; k++) {
      if (!stays[k] || groups[k] != groups[i]) continue;
      float iou = amp__box_iou(boxes + i * 4, boxes + k * 4);
      if (iou > threshold || (inclusive && iou == threshold)) stays[k] = 0;
    }
  }
}

static void suppress(void *ctx, int64_t begin, int64_t end, int thread)
{
  const suppressing *job = ctx;
  (void)thread;
  for (int64_t image = begin; image < end; image++) {
    int64_t first = image * job->count;
    amp__suppress_boxes(job->boxes + first * 4, job->groups + first, job->stays + first, job->count, job->threshold,
                        job->inclusive);
  }
}

int amp__cpu_box_suppress(amp_call *call)
{
  const args_box_suppress *args = AMP_ARGS(call, box_suppress);
  amp_tensor *boxes = amp__dense(call->in[0], AMP_FLOAT32), *groups = amp__dense(call->in[1], AMP_INT64);
  amp_tensor *stays = amp__tensor_make(AMP_BOOL, AMP_CPU, 0, 2, call->out[0]->size);
  int status = boxes && groups && stays ? 0 : amp__S->err.code;
  if (status == 0 && stays->numel > 0) {
    int64_t images = stays->size[0], count = stays->size[1];
    suppressing job = { AMP_DATA(const float, boxes), AMP_DATA(const int64_t, groups),
                        AMP_DATA(uint8_t, stays),     count,
                        (float)args->iou_threshold,   args->inclusive != 0 };
    amp__parallel_ranges(amp__threads_for(images * count * count, images), images, suppress, &job);
  }
  if (status == 0) status = amp__copy_to(call->out[0], stays);
  amp__free(boxes);
  amp__free(groups);
  amp__free(stays);
  return status;
}
