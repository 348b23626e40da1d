/*
** ops/vision/detections.c: rows box_overlaps, nms_places, multibox_detections, ssd_detections: what a
** detector's boxes become. A score and its place make a key; sorted keys are boxes from the best on, of
** which those stay that no better one suppresses (ops/vision/boxes.c). Images run side by side.
*/
#include <stdlib.h>
#include "cpu/kernel_help.h"
#include "cpu/strided.h"
#include "ops/vision/boxes.h"

/* -- Order -------------------------------------------------------------------------- */

static int larger_first(const void *a, const void *b)
{
  unsigned long long x = *(const unsigned long long *)a, y = *(const unsigned long long *)b;
  return x > y ? -1 : x < y;
}

void amp__sort_keys(unsigned long long *keys, int64_t count)
{
  if (count > 1) qsort(keys, (size_t)count, sizeof *keys, larger_first);
}

static int64_t place_of(unsigned long long key) { return (int64_t)(uint32_t)~key; }

/* An image's boxes in order, in scratch */
typedef struct arranged {
  unsigned long long *keys;
  int64_t *groups;
  float *boxes;
  uint8_t *stays;
} arranged;

static size_t arranged_bytes(int64_t count) { return ((size_t)count * 33 + 63) / 64 * 64; }

static arranged arrange(char *scratch, int64_t count)
{
  arranged a = { .keys = (unsigned long long *)scratch };
  a.groups = (int64_t *)(a.keys + count);
  a.boxes = (float *)(a.groups + count);
  a.stays = (uint8_t *)(a.boxes + count * 4);
  return a;
}

/* -- Overlaps ------------------------------------------------------------------------ */

typedef struct overlaps {
  const void *one, *two;
  void *out;
  int64_t count;
} overlaps;

#define OVERLAPS(T, NAME)                                                             \
  static void NAME(void *ctx, int64_t begin, int64_t end, int thread)                 \
  {                                                                                   \
    const overlaps *job = ctx;                                                        \
    (void)thread;                                                                     \
    for (int64_t i = begin; i < end; i++)                                             \
      for (int64_t k = 0; k < job->count; k++) {                                      \
        const T *a = (const T *)job->one + i * 4, *b = (const T *)job->two + k * 4;   \
        T w = (a[2] < b[2] ? a[2] : b[2]) - (a[0] > b[0] ? a[0] : b[0]);              \
        T h = (a[3] < b[3] ? a[3] : b[3]) - (a[1] > b[1] ? a[1] : b[1]);              \
        T both = (w < 0 ? 0 : w) * (h < 0 ? 0 : h);                                   \
        T all = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both; \
        ((T *)job->out)[i * job->count + k] = both / all;                             \
      }                                                                               \
  }
OVERLAPS(float, overlaps_f32)
OVERLAPS(double, overlaps_f64)

int amp__cpu_box_overlaps(amp_call *call)
{
  int dtype = amp__compute_dtype(call->out[0]->dtype), status = 0;
  amp_tensor *one = amp__dense(call->in[0], dtype), *two = amp__dense(call->in[1], dtype);
  amp_tensor *out = amp__tensor_make(dtype, AMP_CPU, 0, 2, call->out[0]->size);
  if (one == NULL || two == NULL || out == NULL) status = amp__S->err.code;
  else {
    overlaps job = { amp__data(one), amp__data(two), amp__data(out), out->size[1] };
    amp__parallel_ranges(amp__threads_for(out->numel * 4, out->size[0]), out->size[0],
                         dtype == AMP_FLOAT64 ? overlaps_f64 : overlaps_f32, &job);
    status = amp__copy_to(call->out[0], out);
  }
  amp__free(one);
  amp__free(two);
  amp__free(out);
  return status;
}

/* -- Suppression ---------------------------------------------------------------------- */

static int64_t suppress_sorted(const args_nms_places *args, const amp_tensor *boxes, const amp_tensor *scores,
                               const amp_tensor *groups, const arranged *a, int64_t *places)
{
  int64_t count = scores->size[0], there = 0;
  for (int64_t i = 0; i < count; i++) a->keys[i] = amp__score_key(AMP_DATA(const float, scores)[i], (unsigned)i);
  amp__sort_keys(a->keys, count);
  for (int64_t i = 0; i < count; i++) {
    int64_t at = place_of(a->keys[i]);
    memcpy(a->boxes + i * 4, AMP_DATA(const float, boxes) + at * 4, 4 * sizeof(float));
    a->groups[i] = groups ? AMP_DATA(const int64_t, groups)[at] & INT64_MAX : 0; /* negative ones are as good */
  }
  amp__suppress_boxes(a->boxes, a->groups, a->stays, count, (float)args->iou_threshold, false);
  for (int64_t i = 0; i < count; i++)
    if (a->stays[i]) places[there++] = place_of(a->keys[i]) + 1;
  for (int64_t i = there; i < count; i++) places[i] = 0;
  return there;
}

int amp__cpu_nms_places(amp_call *call)
{
  const amp_tensor *given = amp__input_or_null(call, 2);
  amp_tensor *boxes = amp__dense(call->in[0], AMP_FLOAT32), *scores = amp__dense(call->in[1], AMP_FLOAT32);
  amp_tensor *groups = given ? amp__dense(call->in[2], AMP_INT64) : NULL;
  amp_tensor *places = amp__tensor_make(AMP_INT64, AMP_CPU, 0, 1, call->out[0]->size);
  amp__scratch scratch = { 0 };
  int64_t count = call->out[0]->numel;
  int status = boxes && scores && places && (groups || !given) ? 0 : amp__S->err.code;
  if (status == 0 && !amp__scratch_lend(&scratch, NULL, 0, arranged_bytes(count))) status = AMP_E_MEMORY;
  if (status == 0) {
    arranged a = arrange(scratch.p, count);
    int64_t there = suppress_sorted(AMP_ARGS(call, nms_places), boxes, scores, groups, &a, AMP_DATA(int64_t, places));
    amp__scratch_return(&scratch);
    *AMP_DATA(int64_t, call->out[1]) = there;
    status = amp__copy_to(call->out[0], places);
  }
  amp__free(boxes);
  amp__free(scores);
  amp__free(groups);
  amp__free(places);
  return status;
}

/* -- Detections of each anchor's best class ------------------------------------------------ */

typedef struct detecting {
  const float *prob, *loc, *anchors;
  float *rows;
  int64_t count, kinds, most;
  const args_multibox_detections *args;
  bool suppressing;
  char *scratch;
} detecting;

/* The best class of an anchor, from 1, and its probability; NaN where one of them is */
static int best_class(const float *prob, int64_t kinds, int64_t step, float *score)
{
  int class = 1;
  *score = prob[step];
  for (int64_t c = 2; c < kinds; c++)
    if (*score == *score && !(prob[c * step] <= *score)) {
      *score = prob[c * step];
      class = (int)c;
    }
  return class;
}

static void detect_image(const detecting *job, const arranged *a, int64_t image)
{
  const args_multibox_detections *args = job->args;
  const float *prob = job->prob + image * job->kinds * job->count, *loc = job->loc + image * job->count * 4;
  const float v[4] = { (float)args->vx, (float)args->vy, (float)args->vw, (float)args->vh };
  float *row = job->rows + image * job->count * 6, score;
  int64_t there = 0;
  for (int64_t j = 0; j < job->count; j++) {
    best_class(prob + j, job->kinds, job->count, &score);
    if (score >= (float)args->threshold && score > -1)
      a->keys[there++] = amp__score_key(job->suppressing ? score : 0, (unsigned)j);
  }
  amp__sort_keys(a->keys, there);
  for (int64_t i = 0; i < job->count; i++, row += 6) {
    if (i >= there) {
      for (int k = 0; k < 6; k++) row[k] = -1;
      continue;
    }
    int64_t at = place_of(a->keys[i]);
    row[0] = (float)best_class(prob + at, job->kinds, job->count, row + 1);
    amp__box_decode(loc + at * 4, job->anchors + at * 4, v, 1, 1, row + 2);
    for (int k = 2; k < 6 && args->clip; k++) row[k] = row[k] < 0 ? 0 : row[k] > 1 ? 1 : row[k];
    memcpy(a->boxes + i * 4, row + 2, 4 * sizeof(float));
    a->groups[i] = args->force_suppress ? 0 : (int64_t)row[0];
  }
  if (!job->suppressing) return;
  int64_t most = there < job->most ? there : job->most;
  amp__suppress_boxes(a->boxes, a->groups, a->stays, most, (float)args->nms_threshold, true);
  row = job->rows + image * job->count * 6;
  for (int64_t i = 0; i < there; i++)
    if (i >= most || !a->stays[i]) row[i * 6] = -1;
}

static void detect_images(void *ctx, int64_t begin, int64_t end, int thread)
{
  const detecting *job = ctx;
  arranged a = arrange(job->scratch + arranged_bytes(job->count) * (size_t)thread, job->count);
  for (int64_t image = begin; image < end; image++) detect_image(job, &a, image);
}

int amp__cpu_multibox_detections(amp_call *call)
{
  const args_multibox_detections *args = AMP_ARGS(call, multibox_detections);
  amp_tensor *in[3], *rows = amp__tensor_make(AMP_FLOAT32, AMP_CPU, 0, 3, call->out[0]->size);
  amp__scratch scratch = { 0 };
  int status = rows ? 0 : amp__S->err.code;
  for (int i = 0; i < 3; i++)
    if ((in[i] = amp__dense(call->in[i], AMP_FLOAT32)) == NULL) status = amp__S->err.code;
  if (status == 0 && rows->numel > 0) {
    detecting job = { .prob = AMP_DATA(const float, in[0]),
                      .loc = AMP_DATA(const float, in[1]),
                      .anchors = AMP_DATA(const float, in[2]),
                      .rows = AMP_DATA(float, rows),
                      .count = in[0]->size[2],
                      .kinds = in[0]->size[1],
                      .args = args,
                      .suppressing = args->nms_threshold > 0 && args->nms_threshold <= 1 };
    job.most = args->nms_topk > 0 && args->nms_topk < job.count ? args->nms_topk : job.count;
    int threads = amp__threads_for(rows->numel * job.kinds, rows->size[0]);
    if (amp__scratch_lend(&scratch, NULL, 0, arranged_bytes(job.count) * (size_t)threads)) {
      job.scratch = scratch.p;
      amp__parallel_ranges(threads, rows->size[0], detect_images, &job);
      amp__scratch_return(&scratch);
    } else status = AMP_E_MEMORY;
  }
  if (status == 0) status = amp__copy_to(call->out[0], rows);
  for (int i = 0; i < 3; i++) amp__free(in[i]);
  amp__free(rows);
  return status;
}

/* -- Detections of the best pairs of anchor and class --------------------------------------- */

static void choose_image(const args_ssd_detections *args, const float *score, const int64_t *place, const float *loc,
                         const amp_tensor *anchors, int64_t count, const arranged *a, float *row)
{
  const float v[4] = { (float)args->vx, (float)args->vy, (float)args->vw, (float)args->vh };
  int64_t written = 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t at = (place[i] - 1) / args->classes;
    bool there = score[i] >= (float)args->valid && place[i] > 0 && at < anchors->size[0];
    a->groups[i] = there ? place[i] - at * args->classes : -1;
    if (there)
      amp__box_decode(loc + at * 4, AMP_DATA(const float, anchors) + at * 4, v, (float)args->width, (float)args->height,
                      a->boxes + i * 4);
  }
  if (args->nms_threshold > 0 && args->nms_threshold < 1)
    amp__suppress_boxes(a->boxes, a->groups, a->stays, count, (float)args->nms_threshold, false);
  else
    for (int64_t i = 0; i < count; i++) a->stays[i] = a->groups[i] >= 0;
  for (int64_t i = 0; i < count && written < args->post_nms; i++) {
    if (!a->stays[i]) continue;
    float *to = row + 6 * written++;
    to[0] = (float)a->groups[i];
    to[1] = score[i];
    memcpy(to + 2, a->boxes + i * 4, 4 * sizeof(float));
  }
  for (int64_t k = written * 6; k < args->post_nms * 6; k++) row[k] = -1;
}

int amp__cpu_ssd_detections(amp_call *call)
{
  static const int dtypes[4] = { AMP_FLOAT32, AMP_INT64, AMP_FLOAT32, AMP_FLOAT32 };
  const args_ssd_detections *args = AMP_ARGS(call, ssd_detections);
  amp_tensor *in[4], *rows = amp__tensor_make(AMP_FLOAT32, AMP_CPU, 0, 3, call->out[0]->size);
  amp__scratch scratch = { 0 };
  int status = rows ? 0 : amp__S->err.code;
  for (int i = 0; i < 4; i++)
    if ((in[i] = amp__dense(call->in[i], dtypes[i])) == NULL) status = amp__S->err.code;
  int64_t count = call->in[0]->size[1], anchors = call->in[3]->size[0];
  if (status == 0 && !amp__scratch_lend(&scratch, NULL, 0, arranged_bytes(count))) status = AMP_E_MEMORY;
  if (status == 0) {
    arranged a = arrange(scratch.p, count);
    for (int64_t n = 0; n < rows->size[0]; n++)
      choose_image(args, AMP_DATA(const float, in[0]) + n * count, AMP_DATA(const int64_t, in[1]) + n * count,
                   AMP_DATA(const float, in[2]) + n * anchors * 4, in[3], count, &a,
                   AMP_DATA(float, rows) + n * rows->size[1] * 6);
    amp__scratch_return(&scratch);
    status = amp__copy_to(call->out[0], rows);
  }
  for (int i = 0; i < 4; i++) amp__free(in[i]);
  amp__free(rows);
  return status;
}
