/*
** ops/vision/multibox.c: row multibox_targets: what each anchor of each image is trained towards.
**
** Three passes, as MXNet's MultiBoxTarget has them: each labelled box takes the anchor it overlaps
** most, the largest overlap first; anchors left that overlap a box by more than the threshold take
** that box; of the others the hardest, whose probability of background is least, become background
** and the rest is ignored. Ties go to the earlier anchor, then to the earlier box.
*/
#include <math.h>
#include "cpu/kernel_help.h"
#include "cpu/strided.h"
#include "ops/vision/boxes.h"

typedef struct targets {
  const float *anchors, *labels, *preds;
  float *box, *mask, *cls;
  int64_t count, nlabel, width, classes;
  const args_multibox_targets *args;
  char *scratch;
  size_t each;
  int64_t wrong; /* 1 + the place of a label that is no class; 0: none */
} targets;

typedef struct best_match {
  float iou;
  int64_t anchor;
} best_match;

typedef struct work {
  int32_t *match; /* of each anchor: the label, -1 none */
  uint32_t *key;  /* how hard it is as background; 0: no candidate */
  best_match *best;
} work;

static void find_best(const targets *job, const work *w, const float *label, best_match *best)
{
  best->iou = 0;
  best->anchor = -1;
  for (int64_t j = 0; j < job->count; j++) {
    if (w->match[j] >= 0) continue;
    float iou = amp__box_iou(job->anchors + j * 4, label + 1);
    if (iou > best->iou) *best = (best_match){ iou, j };
  }
}

/* Labels that are there; one that is no class is noted */
static int64_t count_labels(targets *job, int64_t image)
{
  const float *label = job->labels + image * job->nlabel * job->width;
  int64_t n = 0;
  for (; n < job->nlabel; n++) {
    float class = label[n * job->width];
    if (class < 0) break;
    if (!(class >= 1 && class < (float)job->classes && class == floorf(class)))
      __atomic_store_n(&job->wrong, image * job->nlabel + n + 1, __ATOMIC_RELAXED);
  }
  return n;
}

/* Each label takes its anchor */
static void take_best(const targets *job, const work *w, const float *labels, int64_t n)
{
  for (int64_t k = 0; k < n; k++) find_best(job, w, labels + k * job->width, w->best + k);
  for (int64_t turn = 0; turn < n; turn++) {
    int64_t first = -1;
    for (int64_t k = 0; k < n; k++) {
      const best_match *b = w->best + k, *f = w->best + (first < 0 ? k : first);
      if (b->anchor < 0 || !(b->iou > 1e-6f)) continue;
      if (first < 0 || b->iou > f->iou || (b->iou == f->iou && b->anchor < f->anchor)) first = k;
    }
    if (first < 0) return;
    int64_t anchor = w->best[first].anchor;
    w->match[anchor] = (int32_t)first;
    w->best[first].anchor = -1;
    for (int64_t k = 0; k < n; k++)
      if (w->best[k].anchor == anchor) find_best(job, w, labels + k * job->width, w->best + k);
  }
}

/* A larger key is a smaller probability of background */
static uint32_t hardness(const float *preds, int64_t classes, int64_t step)
{
  float most = preds[0], sum = 0;
  for (int64_t c = 1; c < classes; c++)
    if (preds[c * step] > most) most = preds[c * step];
  for (int64_t c = 0; c < classes; c++) sum += expf(preds[c * step] - most);
  float p = expf(preds[0] - most) / sum;
  uint32_t bits;
  memcpy(&bits, &p, sizeof bits);
  return ~(bits & 0x7fffffffu);
}

/* Anchors left over: those that overlap a label enough take it, others may be background */
static int64_t take_overlapping(const targets *job, const work *w, const float *labels, int64_t n, const float *preds)
{
  const args_multibox_targets *args = job->args;
  bool mining = args->negative_mining_ratio > 0;
  int64_t positive = 0;
  for (int64_t j = 0; j < job->count; j++) {
    w->key[j] = 0;
    if (w->match[j] >= 0) {
      positive++;
      continue;
    }
    float most = -1;
    int32_t at = -1;
    for (int64_t k = 0; k < n; k++) {
      float iou = amp__box_iou(job->anchors + j * 4, labels + k * job->width + 1);
      if (iou > most) {
        most = iou;
        at = (int32_t)k;
      }
    }
    if (args->overlap_threshold > 0 && most > (float)args->overlap_threshold) {
      w->match[j] = at;
      positive++;
    } else if (mining && most < (float)args->negative_mining_thresh)
      w->key[j] = hardness(preds + j, job->classes, job->count);
  }
  return positive;
}

static int64_t keys_from(const work *w, int64_t count, uint32_t least)
{
  int64_t n = 0;
  for (int64_t j = 0; j < count; j++) n += w->key[j] >= least;
  return n;
}

/* The `wanted` largest keys keep theirs, all others become 0 */
static void keep_hardest(const work *w, int64_t count, int64_t wanted)
{
  uint32_t least = 0;
  for (int bit = 31; bit >= 0; bit--) {
    uint32_t next = least | 1u << bit;
    if (keys_from(w, count, next) >= wanted) least = next;
  }
  if (wanted < 1) least = UINT32_MAX;
  int64_t ties = wanted - (least == UINT32_MAX ? 0 : keys_from(w, count, least + 1));
  for (int64_t j = 0; j < count; j++)
    if (w->key[j] < least || (w->key[j] == least && ties-- <= 0)) w->key[j] = 0;
}

static void write_targets(const targets *job, const work *w, const float *labels, int64_t image)
{
  const args_multibox_targets *args = job->args;
  bool mining = args->negative_mining_ratio > 0;
  const float variance[4] = { (float)args->vx, (float)args->vy, (float)args->vw, (float)args->vh };
  for (int64_t j = 0; j < job->count; j++) {
    int64_t at = image * job->count + j;
    float *box = job->box + at * 4, *mask = job->mask + at * 4;
    bool is = w->match[j] >= 0;
    job->cls[at] = !is && (!mining || w->key[j] > 0) ? 0 : (float)args->ignore_label;
    for (int i = 0; i < 4; i++) {
      box[i] = 0;
      mask[i] = is;
    }
    if (!is) continue;
    const float *a = job->anchors + j * 4, *label = labels + w->match[j] * job->width, *g = label + 1;
    job->cls[at] = label[0];
    for (int i = 0; i < 2; i++) {
      float size = a[i + 2] - a[i];
      box[i] = ((g[i] + g[i + 2]) * 0.5f - (a[i] + a[i + 2]) * 0.5f) / size / variance[i];
      box[i + 2] = logf((g[i + 2] - g[i]) / size) / variance[i + 2];
    }
  }
}

static void nothing(const targets *job, int64_t image)
{
  for (int64_t j = 0; j < job->count; j++) job->cls[image * job->count + j] = (float)job->args->ignore_label;
  memset(job->box + image * job->count * 4, 0, sizeof(float) * 4 * (size_t)job->count);
  memset(job->mask + image * job->count * 4, 0, sizeof(float) * 4 * (size_t)job->count);
}

static void run(void *ctx, int64_t begin, int64_t end, int thread)
{
  targets *job = ctx;
  work w = { .best = (best_match *)(job->scratch + job->each * (size_t)thread) };
  w.match = (int32_t *)(w.best + job->nlabel);
  w.key = (uint32_t *)(w.match + job->count);
  for (int64_t image = begin; image < end; image++) {
    const float *labels = job->labels + image * job->nlabel * job->width;
    int64_t n = count_labels(job, image);
    if (n == 0) {
      nothing(job, image);
      continue;
    }
    for (int64_t j = 0; j < job->count; j++) w.match[j] = -1;
    take_best(job, &w, labels, n);
    int64_t positive = take_overlapping(job, &w, labels, n, job->preds + image * job->classes * job->count);
    if (job->args->negative_mining_ratio > 0) {
      double wanted = (double)positive * job->args->negative_mining_ratio;
      if (wanted < (double)job->args->minimum_negative_samples) wanted = (double)job->args->minimum_negative_samples;
      int64_t left = job->count - positive;
      keep_hardest(&w, job->count, wanted < (double)left ? (int64_t)wanted : left);
    }
    write_targets(job, &w, labels, image);
  }
}

static int settle(const targets *job)
{
  int64_t place = job->wrong - 1, image = place / (job->nlabel ? job->nlabel : 1);
  if (job->wrong == 0) return 0;
  return amp__fail(AMP_E_INDEX, "label %g (image %lld, box %lld) is no class: cls_preds have classes 1 to %lld",
                   job->labels[place * job->width], (long long)image + 1, (long long)(place - image * job->nlabel) + 1,
                   (long long)job->classes - 1);
}

int amp__cpu_multibox_targets(amp_call *call)
{
  amp_tensor *in[3] = { NULL, NULL, NULL }, *out[3] = { NULL, NULL, NULL };
  amp__scratch scratch = { 0 };
  int status = 0;
  const int64_t none[1] = { 0 };
  for (int i = 0; i < 3; i++) {
    /* predictions say what is hard, and nothing else */
    bool unread = i == 2 && !(AMP_ARGS(call, multibox_targets)->negative_mining_ratio > 0);
    in[i] = unread ? amp__tensor_make(AMP_FLOAT32, AMP_CPU, 0, 1, none) : amp__dense(call->in[i], AMP_FLOAT32);
    out[i] = amp__tensor_make(AMP_FLOAT32, AMP_CPU, 0, 2, call->out[i]->size);
    if (in[i] == NULL || out[i] == NULL) status = amp__S->err.code;
  }
  if (status == 0 && out[2]->numel > 0) {
    targets job = { .anchors = AMP_DATA(const float, in[0]),
                    .labels = AMP_DATA(const float, in[1]),
                    .preds = AMP_DATA(const float, in[2]),
                    .box = AMP_DATA(float, out[0]),
                    .mask = AMP_DATA(float, out[1]),
                    .cls = AMP_DATA(float, out[2]),
                    .count = in[0]->size[0],
                    .nlabel = in[1]->size[1],
                    .width = in[1]->size[2],
                    .classes = call->in[2]->size[1],
                    .args = AMP_ARGS(call, multibox_targets) };
    int64_t images = in[1]->size[0];
    int threads = amp__threads_for(images * job.count * (job.nlabel + job.classes) * 8, images);
    job.each = (sizeof(best_match) * (size_t)job.nlabel + 8 * (size_t)job.count + 127) / 64 * 64;
    if (amp__scratch_lend(&scratch, NULL, 0, job.each * (size_t)threads)) {
      job.scratch = scratch.p;
      amp__parallel_ranges(threads, images, run, &job);
      amp__scratch_return(&scratch);
      status = settle(&job);
    } else status = AMP_E_MEMORY;
  }
  for (int i = 0; i < 3; i++) {
    if (status == 0) status = amp__copy_to(call->out[i], out[i]);
    amp__free(in[i]);
    amp__free(out[i]);
  }
  return status;
}
