/*
** detections.cu: rows multibox_detections, ssd_detections: a detector's boxes, the best first, those that stay.
**
** multibox_detections: one launch reads the probabilities, a thread an anchor, and leaves a key and the class of
** each; in a second one a block an image gathers the keys that are there, sorts them in shared memory, decodes boxes
** and, where no more than FEW may stay, suppresses too. A larger choice is compared by a launch over all pairs, whose
** block of an image that ends last walks it. ssd_detections begins with what topk chose: one launch, a block an image.
*/
#include "vision/suppress.cuh"
#include "common/rows.cuh"

namespace {

enum { BLOCK = 256, WORKERS = 1024, FEW = 512 };

typedef struct detecting {
  const float *prob, *loc, *anchors;
  float *rows; /* N x A x 6 */
  unsigned long long *keys, *spare;
  float *scores; /* N x A: of the best class, which is in kind */
  int *kind;
  int *there;                 /* N: how many are compared */
  amp_suppressing suppressed; /* the best `count` of each image */
  unsigned *tickets;
  float *boxes;
  int64_t *groups;
  int count, kinds, most, power;
  float threshold, variance[4];
  bool suppressing, here, clip, together;
} detecting;

/* The best class of an anchor, from 1, and its probability; NaN where one of them is */
__device__ __forceinline__ int best_class(const float *prob, int kinds, int64_t step, float *score)
{
  int kind = 1;
  float most = prob[step];
  for (int c = 2; c < kinds; c++) {
    const float p = prob[c * step];
    if (most == most && !(p <= most)) {
      most = p;
      kind = c;
    }
  }
  *score = most;
  return kind;
}

__global__ void __launch_bounds__(BLOCK) score_anchors(const detecting job)
{
  const int64_t image = blockIdx.y;
  const int j = (int)(blockIdx.x * BLOCK + threadIdx.x);
  if (j >= job.count) return;
  const int64_t at = image * job.count + j;
  float score;
  job.kind[at] = best_class(job.prob + image * job.kinds * job.count + j, job.kinds, job.count, &score);
  job.scores[at] = score;
  const bool is = score >= job.threshold && score > -1;
  job.keys[at] = is ? amp__score_key(job.suppressing ? score : 0, (unsigned)j) : 0;
}

/* A block: the keys that are there, together; how many */
__device__ __forceinline__ int gather_keys(const unsigned long long *from, unsigned long long *to, int count)
{
  __shared__ int all;
  if (threadIdx.x == 0) all = 0;
  __syncthreads();
  for (int base = 0; base < count; base += WORKERS) {
    const int j = base + (int)threadIdx.x, lane = threadIdx.x & 31;
    const unsigned long long key = j < count ? from[j] : 0;
    const unsigned is = __ballot_sync(0xffffffffu, key != 0);
    int first = 0;
    if (lane == 0 && is) first = atomicAdd(&all, __popc(is));
    first = __shfl_sync(0xffffffffu, first, 0);
    if (key) to[first + __popc(is & ((1u << lane) - 1))] = key;
  }
  __syncthreads();
  return all;
}

/* A block: all pairs of the first m boxes of an image, then which stay */
template <class F>
__device__ __forceinline__ void suppress_here(const amp_suppressing &s, int64_t image, int64_t m,
                                              unsigned long long *gone, F take)
{
  for (int64_t row = 0; row < m; row += WORKERS)
    for (int64_t column = row / AMP_BOX_BITS; column * AMP_BOX_BITS < m; column++)
      amp_compare_boxes(s, image, row, column, m);
  __syncthreads();
  amp_walk_boxes(s, image, m, gone, take);
}

__device__ __forceinline__ void write_row(const detecting &job, int64_t image, int i, unsigned long long key)
{
  const int at = (int)~(unsigned)key;
  float *row = job.rows + (image * job.count + i) * 6;
  const int kind = job.kind[image * job.count + at];
  float box[4];
  amp__box_decode(job.loc + (image * job.count + at) * 4, job.anchors + (int64_t)at * 4, job.variance, 1, 1, box);
  const bool taken = job.suppressing && i < job.most;
  row[0] = job.suppressing && i >= job.most ? -1.0f : (float)kind;
  row[1] = job.scores[image * job.count + at];
  for (int k = 0; k < 4; k++) {
    if (job.clip) box[k] = box[k] < 0 ? 0 : box[k] > 1 ? 1 : box[k];
    row[2 + k] = box[k];
    if (taken) job.boxes[(image * job.most + i) * 4 + k] = box[k];
  }
  if (taken) job.groups[image * job.most + i] = job.together ? 0 : kind;
}

__global__ void __launch_bounds__(WORKERS) sort_anchors(const detecting job)
{
  AMP_SHARED(unsigned long long, shared);
  __shared__ unsigned long long gone[FEW / AMP_BOX_BITS];
  const int64_t image = blockIdx.x;
  unsigned long long *keys = job.spare ? job.spare + image * job.power : shared;
  const int n = gather_keys(job.keys + image * job.count, keys, job.count);
  int power = 1;
  while (power < n) power *= 2;
  for (int i = n + (int)threadIdx.x; i < power; i += WORKERS) keys[i] = 0;
  __syncthreads();
  amp_sort_keys(keys, power);
  float *rows = job.rows + image * job.count * 6;
  for (int i = threadIdx.x; i < job.count; i += WORKERS) {
    if (i < n) write_row(job, image, i, keys[i]);
    else
      for (int k = 0; k < 6; k++) rows[i * 6 + k] = -1;
  }
  const int m = n < job.most ? n : job.most;
  if (threadIdx.x == 0) job.there[image] = m;
  if (!job.here) return;
  __syncthreads();
  suppress_here(job.suppressed, image, m, gone, [&](int64_t i, bool stays, int64_t) {
    if (!stays) rows[i * 6] = -1;
  });
}

__global__ void __launch_bounds__(BLOCK) suppress_anchors(const detecting job)
{
  AMP_SHARED(unsigned long long, gone);
  const int64_t image = blockIdx.z, row = (int64_t)blockIdx.y * BLOCK, column = blockIdx.x;
  const int there = job.there[image];
  if ((column + 1) * AMP_BOX_BITS > row && row < there && column * AMP_BOX_BITS < there)
    amp_compare_boxes(job.suppressed, image, row, column, there);
  if (!amp_last_of_image(job.tickets + image, gridDim.x * gridDim.y)) return;
  float *rows = job.rows + image * job.count * 6;
  amp_walk_boxes(job.suppressed, image, there, gone, [&](int64_t i, bool stays, int64_t) {
    if (!stays) rows[i * 6] = -1;
  });
}

typedef struct choosing {
  const float *scores, *loc, *anchors;
  const int64_t *places;
  float *rows; /* N x post x 6 */
  float *boxes;
  int64_t *groups;
  amp_suppressing suppressed;
  int64_t count, anchor_count, classes, post;
  float valid, width, height, variance[4];
} choosing;

__device__ __forceinline__ void put_row(const choosing &job, int64_t image, int64_t i, bool stays, int64_t rank)
{
  if (!stays || rank >= job.post) return;
  float *row = job.rows + (image * job.post + rank) * 6;
  const int64_t at = image * job.count + i;
  row[0] = (float)job.groups[at];
  row[1] = job.scores[at];
  for (int k = 0; k < 4; k++) row[2 + k] = job.boxes[at * 4 + k];
}

__global__ void __launch_bounds__(WORKERS) choose_boxes(const choosing job)
{
  AMP_SHARED(unsigned long long, gone);
  const int64_t image = blockIdx.x;
  for (int64_t k = threadIdx.x; k < job.post * 6; k += WORKERS) job.rows[image * job.post * 6 + k] = -1;
  for (int64_t i = threadIdx.x; i < job.count; i += WORKERS) {
    const int64_t at = image * job.count + i, place = job.places[at] - 1, anchor = place / job.classes;
    const bool is = job.scores[at] >= job.valid && place >= 0 && anchor < job.anchor_count;
    job.groups[at] = is ? place - anchor * job.classes + 1 : -1;
    if (is)
      amp__box_decode(job.loc + (image * job.anchor_count + anchor) * 4, job.anchors + anchor * 4, job.variance,
                      job.width, job.height, job.boxes + at * 4);
    else
      for (int k = 0; k < 4; k++) job.boxes[at * 4 + k] = 0;
  }
  __syncthreads();
  suppress_here(job.suppressed, image, job.count, gone,
                [&](int64_t i, bool stays, int64_t rank) { put_row(job, image, i, stays, rank); });
}

int want_room(int64_t images, int64_t blocks)
{
  if (blocks <= 6000 && images <= 65535) return 0;
  return amp__fail(AMP_E_UNSUPPORTED, "suppression of more than %d boxes an image, or of more than 65535 images",
                   6000 * AMP_BOX_BITS);
}

/* Scratch of both rows, to be freed: boxes, groups and words of N x K boxes */
int make_room(amp_suppressing *s, int64_t images, int64_t count, float **boxes, int64_t **groups, amp_tensor **room)
{
  s->count = count;
  s->blocks = (count + AMP_BOX_BITS - 1) / AMP_BOX_BITS;
  int rc = want_room(images, s->blocks);
  if (rc < 0) return rc;
  *room = amp__cuda_scratch((size_t)images * (size_t)count * (24 + (size_t)s->blocks * 8) + 16);
  if (*room == NULL) return AMP_E_MEMORY;
  s->words = AMP_DATA(unsigned long long, *room);
  *groups = (int64_t *)(s->words + images * count * s->blocks);
  *boxes = (float *)(*groups + images * count);
  s->groups = *groups;
  s->boxes = *boxes;
  return 0;
}

int launch_detections(detecting *job, int64_t images)
{
  const size_t bytes = (size_t)job->power * 8, most = amp__cuda_here()->shared;
  amp_tensor *spare = NULL;
  if (bytes + 8192 > most) {
    if ((spare = amp__cuda_scratch(bytes * (size_t)images)) == NULL) return AMP_E_MEMORY;
    job->spare = AMP_DATA(unsigned long long, spare);
  }
  const size_t shared = spare ? 0 : bytes;
  int rc = amp__cuda_check(cudaFuncSetAttribute(sort_anchors, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                           "shared memory of detections");
  if (rc >= 0) {
    AMP_LAUNCH(score_anchors, dim3((unsigned)((job->count + BLOCK - 1) / BLOCK), (unsigned)images), BLOCK, 0, *job);
    AMP_LAUNCH(sort_anchors, (unsigned)images, WORKERS, shared, *job);
    const unsigned blocks = (unsigned)job->suppressed.blocks;
    if (job->suppressing && !job->here)
      AMP_LAUNCH(suppress_anchors, dim3(blocks, (unsigned)((job->most + BLOCK - 1) / BLOCK), (unsigned)images), BLOCK,
                 (size_t)blocks * 8, *job);
  }
  amp__free(spare);
  return rc < 0 ? rc : 0;
}

int detect(detecting *job, const args_multibox_detections *args, int64_t images)
{
  job->threshold = (float)args->threshold;
  job->clip = args->clip != 0;
  job->together = args->force_suppress != 0;
  job->suppressing = args->nms_threshold > 0 && args->nms_threshold <= 1;
  job->most = args->nms_topk > 0 && args->nms_topk < job->count ? (int)args->nms_topk : job->count;
  job->here = job->suppressing && job->most <= FEW;
  job->power = amp_power_from(job->count);
  job->variance[0] = (float)args->vx;
  job->variance[1] = (float)args->vy;
  job->variance[2] = (float)args->vw;
  job->variance[3] = (float)args->vh;
  job->suppressed.threshold = (float)args->nms_threshold;
  job->suppressed.inclusive = true;
  const int64_t choice = job->suppressing ? job->most : 0;
  amp_tensor *room = NULL;
  int rc = make_room(&job->suppressed, images, choice, &job->boxes, &job->groups, &room);
  if (rc < 0) return rc;
  amp_tensor *keys = amp__cuda_scratch((size_t)images * ((size_t)job->count * 16 + sizeof(int)));
  job->tickets = amp_cells(amp__cuda_here(), (unsigned)images);
  rc = keys && job->tickets ? 0 : AMP_E_MEMORY;
  if (rc == 0) {
    job->keys = AMP_DATA(unsigned long long, keys);
    job->scores = (float *)(job->keys + images * job->count);
    job->kind = (int *)(job->scores + images * job->count);
    job->there = job->kind + images * job->count;
    rc = launch_detections(job, images);
  }
  amp__free(keys);
  amp__free(room);
  return rc;
}

} // namespace

extern "C" int amp__cuda_multibox_detections(amp_call *c)
{
  amp_tensor *out = c->out[0], *in[3], *rows = amp__cuda_make(AMP_FLOAT32, 3, out->size);
  int rc = rows ? 0 : AMP_E_MEMORY;
  for (int i = 0; i < 3; i++)
    if ((in[i] = amp__cuda_dense(c->in[i], AMP_FLOAT32)) == NULL) rc = AMP_E_MEMORY;
  if (rc == 0 && rows->numel > 0) {
    detecting job;
    memset((void *)&job, 0, sizeof job);
    job.prob = AMP_DATA(const float, in[0]);
    job.loc = AMP_DATA(const float, in[1]);
    job.anchors = AMP_DATA(const float, in[2]);
    job.rows = AMP_DATA(float, rows);
    job.count = (int)in[0]->size[2];
    job.kinds = (int)in[0]->size[1];
    rc = detect(&job, AMP_ARGS(c, multibox_detections), rows->size[0]);
    if (rc == 0) rc = amp__cuda_copy_to(out, rows);
  }
  for (int i = 0; i < 3; i++) amp__free(in[i]);
  amp__free(rows);
  return rc;
}

static int choose(amp_tensor *const *in, const args_ssd_detections *args, amp_tensor *rows)
{
  const int64_t images = rows->size[0], count = in[0]->size[1];
  choosing job;
  memset((void *)&job, 0, sizeof job);
  job.scores = AMP_DATA(const float, in[0]);
  job.places = AMP_DATA(const int64_t, in[1]);
  job.loc = AMP_DATA(const float, in[2]);
  job.anchors = AMP_DATA(const float, in[3]);
  job.rows = AMP_DATA(float, rows);
  job.count = count;
  job.anchor_count = in[3]->size[0];
  job.classes = args->classes;
  job.post = args->post_nms;
  job.valid = (float)args->valid;
  job.width = (float)args->width;
  job.height = (float)args->height;
  job.variance[0] = (float)args->vx;
  job.variance[1] = (float)args->vy;
  job.variance[2] = (float)args->vw;
  job.variance[3] = (float)args->vh;
  const bool suppressing = args->nms_threshold > 0 && args->nms_threshold < 1;
  job.suppressed.threshold = suppressing ? (float)args->nms_threshold : 2.0f; /* more than any overlap */
  amp_tensor *room = NULL;
  const int rc = make_room(&job.suppressed, images, count, &job.boxes, &job.groups, &room);
  if (rc < 0) return rc;
  AMP_LAUNCH(choose_boxes, (unsigned)images, WORKERS, (size_t)(job.suppressed.blocks + 1) * 8, job);
  amp__free(room);
  return 0;
}

extern "C" int amp__cuda_ssd_detections(amp_call *c)
{
  static const int dtypes[4] = { AMP_FLOAT32, AMP_INT64, AMP_FLOAT32, AMP_FLOAT32 };
  amp_tensor *out = c->out[0], *in[4], *rows = amp__cuda_make(AMP_FLOAT32, 3, out->size);
  int rc = rows ? 0 : AMP_E_MEMORY;
  for (int i = 0; i < 4; i++)
    if ((in[i] = amp__cuda_dense(c->in[i], dtypes[i])) == NULL) rc = AMP_E_MEMORY;
  if (rc == 0 && rows->numel > 0) rc = choose(in, AMP_ARGS(c, ssd_detections), rows);
  if (rc == 0) rc = amp__cuda_copy_to(out, rows);
  for (int i = 0; i < 4; i++) amp__free(in[i]);
  amp__free(rows);
  return rc;
}
