/*
** multibox.cu: row multibox_targets: what each anchor is trained towards; the passes and ties are
** those of src/ops/vision/multibox.c.
**
** One launch, a block an image. The block finds the best anchor of each label by a reduction over all
** anchors; labels then take their anchors in turn, and only labels whose anchor is taken look again.
** The hardest anchors are found by halving: 32 counts over their keys, then, among equal keys, as many
** over their numbers. Anchors and keys are read from L2; the time is in A x L overlaps.
*/
#include "common/kernel.cuh"
#include "../src/ops/vision/boxes.h"

namespace {

enum { THREADS = 1024, WARPS = THREADS / 32 };

typedef struct targets {
  const float *anchors, *labels, *preds;
  float *box, *mask, *cls;
  int *match;               /* N x A: the label, -1 none */
  unsigned *key;            /* N x A: how hard as background; 0 no candidate */
  unsigned long long *best; /* N x L: overlap's bits, then ~anchor; 0: none left */
  int64_t count, nlabel, width, classes, least;
  float overlap, ignore, thresh, variance[4];
  double ratio;
} targets;

__device__ __forceinline__ unsigned long long larger(unsigned long long a, unsigned long long b)
{
  return a > b ? a : b;
}

/* A warp's best anchor of a label, among those that are free, from `first` on, `step` apart */
__device__ unsigned long long find_best(const targets &job, const int *match, const float *label, int first, int step)
{
  unsigned long long most = 0;
  for (int64_t j = first; j < job.count; j += step) {
    if (match[j] >= 0) continue;
    float iou = amp__box_iou(job.anchors + j * 4, label + 1);
    if (iou > 1e-6f) most = larger(most, (unsigned long long)__float_as_uint(iou) << 32 | (unsigned)~(unsigned)j);
  }
  for (int d = 16; d > 0; d >>= 1) most = larger(most, __shfl_xor_sync(0xffffffffu, most, d));
  return most;
}

__device__ void take_best(const targets &job, int *match, unsigned long long *best, const float *labels, int n)
{
  __shared__ int chosen;
  const int warp = threadIdx.x / 32;
  unsigned taken = 0;
  for (int k = threadIdx.x; k < n; k += THREADS) best[k] = 0;
  __syncthreads();
  for (int k = 0; k < n; k++) { /* at first all threads look for a label */
    const unsigned long long found = find_best(job, match, labels + k * job.width, threadIdx.x, THREADS);
    if (threadIdx.x % 32 == 0 && found) atomicMax(best + k, found);
  }
  for (int turn = 0; turn <= n; turn++) {
    for (int k = warp; k < n && turn > 0; k += WARPS) { /* then a warp for each label whose anchor is gone */
      if (best[k] == 0 || (unsigned)best[k] != taken) continue;
      unsigned long long found = find_best(job, match, labels + k * job.width, threadIdx.x % 32, 32);
      if (threadIdx.x % 32 == 0) best[k] = found;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      chosen = -1;
      for (int k = 0; k < n; k++)
        if (best[k] && (chosen < 0 || best[k] > best[chosen])) chosen = k;
    }
    __syncthreads();
    if (chosen < 0) return;
    taken = (unsigned)best[chosen];
    __syncthreads();
    if (threadIdx.x == 0) {
      match[~taken] = chosen;
      best[chosen] = 0;
    }
    __syncthreads();
  }
}

__device__ __forceinline__ unsigned hardness(const float *preds, int64_t classes, int64_t step)
{
  float most = preds[0], sum = 0;
  for (int64_t c = 1; c < classes; c++)
    if (preds[c * step] > most) most = preds[c * step];
  for (int64_t c = 0; c < classes; c++) sum += expf(preds[c * step] - most);
  return ~(__float_as_uint(expf(preds[0] - most) / sum) & 0x7fffffffu);
}

/* A block's sum of n; all threads get it */
__device__ int total(int n)
{
  __shared__ int part[WARPS];
  for (int d = 16; d > 0; d >>= 1) n += __shfl_xor_sync(0xffffffffu, n, d);
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = n;
  __syncthreads();
  n = 0;
  for (int w = 0; w < WARPS; w++) n += part[w];
  return n;
}

/* Anchors left over; how many anchors have a label now */
__device__ int take_overlapping(const targets &job, int *match, unsigned *key, const float *labels, int n,
                                const float *preds)
{
  int positive = 0;
  for (int64_t j = threadIdx.x; j < job.count; j += THREADS) {
    key[j] = 0;
    if (match[j] >= 0) {
      positive++;
      continue;
    }
    float most = -1;
    int at = -1;
    for (int k = 0; k < n; k++) {
      float iou = amp__box_iou(job.anchors + j * 4, labels + k * job.width + 1);
      if (iou > most) {
        most = iou;
        at = k;
      }
    }
    if (job.overlap > 0 && most > job.overlap) {
      match[j] = at;
      positive++;
    } else if (job.ratio > 0 && most < job.thresh) key[j] = hardness(preds + j, job.classes, job.count);
  }
  return total(positive);
}

/* Keys of at least `least` (equal: just those, of anchors before `before`) */
__device__ int keys_from(const targets &job, const unsigned *key, unsigned least, bool equal, int64_t before)
{
  int n = 0;
  for (int64_t j = threadIdx.x; j < job.count; j += THREADS)
    n += equal ? key[j] == least && j < before : key[j] >= least;
  return total(n);
}

__device__ void keep_hardest(const targets &job, unsigned *key, int64_t wanted)
{
  unsigned least = 0;
  for (int bit = 31; bit >= 0; bit--) {
    unsigned next = least | 1u << bit;
    if (keys_from(job, key, next, false, 0) >= wanted) least = next;
  }
  if (wanted < 1) least = 0xffffffffu;
  int64_t ties = wanted - (least == 0xffffffffu ? 0 : keys_from(job, key, least + 1, false, 0)), low = 0;
  for (int64_t step = (int64_t)1 << 31; step > 0; step >>= 1) /* the most anchors that have no more ties */
    if (low + step <= job.count && keys_from(job, key, least, true, low + step) <= ties) low += step;
  for (int64_t j = threadIdx.x; j < job.count; j += THREADS)
    if (key[j] < least || (key[j] == least && j >= low)) key[j] = 0;
}

__device__ void write_anchor(const targets &job, int64_t image, int64_t j, int match, unsigned key, const float *labels)
{
  const int64_t at = image * job.count + j;
  float *box = job.box + at * 4, *mask = job.mask + at * 4;
  for (int i = 0; i < 4; i++) {
    box[i] = 0;
    mask[i] = match >= 0;
  }
  job.cls[at] = match < 0 && (!(job.ratio > 0) || key > 0) ? 0 : job.ignore;
  if (match < 0) return;
  const float *a = job.anchors + j * 4, *label = labels + match * job.width, *g = label + 1;
  job.cls[at] = label[0];
  for (int i = 0; i < 2; i++) {
    float size = a[i + 2] - a[i];
    box[i] = ((g[i] + g[i + 2]) * 0.5f - (a[i] + a[i + 2]) * 0.5f) / size / job.variance[i];
    box[i + 2] = logf((g[i + 2] - g[i]) / size) / job.variance[i + 2];
  }
}

__global__ void __launch_bounds__(THREADS) make_targets(const targets job, amp_trouble *trouble)
{
  __shared__ int there;
  const int64_t image = blockIdx.x;
  const float *labels = job.labels + image * job.nlabel * job.width;
  const float *preds = job.preds + image * job.classes * job.count;
  int *match = job.match + image * job.count;
  unsigned *key = job.key + image * job.count;
  if (threadIdx.x == 0) {
    int n = 0;
    for (; n < job.nlabel; n++) {
      float c = labels[n * job.width];
      if (c < 0) break;
      if (!(c >= 1 && c < (float)job.classes && c == floorf(c)))
        amp_note(trouble, AMP_TROUBLE_LABEL, AMP_OP_multibox_targets, c == c ? (int64_t)c : 0, job.classes - 1,
                 image * job.nlabel + n + 1);
    }
    there = n;
  }
  for (int64_t j = threadIdx.x; j < job.count; j += THREADS) match[j] = -1;
  __syncthreads();
  const int n = there;
  if (n > 0) {
    take_best(job, match, job.best + image * job.nlabel, labels, n);
    __syncthreads();
    int positive = take_overlapping(job, match, key, labels, n, preds);
    if (job.ratio > 0) {
      double wanted = (double)positive * job.ratio;
      if (wanted < (double)job.least) wanted = (double)job.least;
      const int64_t left = job.count - positive;
      keep_hardest(job, key, wanted < (double)left ? (int64_t)wanted : left);
    }
  }
  for (int64_t j = threadIdx.x; j < job.count; j += THREADS) { /* its own anchors: no barrier */
    write_anchor(job, image, j, match[j], n > 0 ? key[j] : 0, labels);
    if (n == 0) job.cls[image * job.count + j] = job.ignore;
  }
}

} // namespace

extern "C" int amp__cuda_multibox_targets(amp_call *c)
{
  const args_multibox_targets *args = AMP_ARGS(c, multibox_targets);
  amp_tensor *in[3], *out[3], *scratch = NULL;
  int64_t images = c->in[1]->size[0], count = c->in[0]->size[0], labels = c->in[1]->size[1];
  int rc = 0;
  for (int i = 0; i < 3; i++) {
    const bool unread
        = i == 2 && !(args->negative_mining_ratio > 0); /* predictions say what is hard, and nothing else */
    in[i] = unread ? amp__cuda_scratch(16) : amp__cuda_dense(c->in[i], AMP_FLOAT32);
    out[i] = amp__cuda_make(AMP_FLOAT32, 2, c->out[i]->size);
    if (in[i] == NULL || out[i] == NULL) rc = AMP_E_MEMORY;
  }
  if (rc == 0 && images * count > 0) {
    scratch = amp__cuda_scratch((size_t)images * (size_t)(count + labels) * 8);
    if (scratch == NULL) rc = AMP_E_MEMORY;
    else {
      targets job;
      memset((void *)&job, 0, sizeof job);
      job.anchors = AMP_DATA(const float, in[0]);
      job.labels = AMP_DATA(const float, in[1]);
      job.preds = AMP_DATA(const float, in[2]);
      job.box = AMP_DATA(float, out[0]);
      job.mask = AMP_DATA(float, out[1]);
      job.cls = AMP_DATA(float, out[2]);
      job.best = AMP_DATA(unsigned long long, scratch);
      job.match = (int *)(job.best + images * labels);
      job.key = (unsigned *)(job.match + images * count);
      job.count = count;
      job.nlabel = labels;
      job.width = in[1]->size[2];
      job.classes = c->in[2]->size[1];
      job.least = args->minimum_negative_samples;
      job.overlap = (float)args->overlap_threshold;
      job.ignore = (float)args->ignore_label;
      job.thresh = (float)args->negative_mining_thresh;
      job.ratio = args->negative_mining_ratio;
      job.variance[0] = (float)args->vx;
      job.variance[1] = (float)args->vy;
      job.variance[2] = (float)args->vw;
      job.variance[3] = (float)args->vh;
      AMP_LAUNCH(make_targets, (unsigned)images, THREADS, 0, job, amp_trouble_cell());
    }
  }
  for (int i = 0; i < 3; i++) {
    if (rc == 0) rc = amp__cuda_copy_to(c->out[i], out[i]);
    amp__free(in[i]);
    amp__free(out[i]);
  }
  amp__free(scratch);
  return rc;
}
