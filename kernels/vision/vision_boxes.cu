/*
** vision_boxes.cu: rows box_overlaps, box_suppress, nms_places: boxes beside each other.
**
** Overlaps: a thread a pair, 4 bytes written for each; the boxes are read from L1. Suppression (suppress.cuh)
** compares all pairs, a thread a box and 64 others, K^2 / 8 bytes an image, the upper half of them used; the
** block of an image that ends last walks its boxes. box_suppress is that one launch. nms_places sorts first: a block
** sorts keys of score and place, in shared memory where they fit.
*/
#include "vision/suppress.cuh"
#include "common/rows.cuh"

namespace {

enum { BLOCK = 256, SORTERS = 1024 };

typedef struct walking {
  amp_suppressing boxes;
  unsigned *tickets;
  uint8_t *stays;           /* box_suppress */
  int64_t *places, *number; /* nms_places */
} walking;

__device__ __forceinline__ void compare(const walking &job, unsigned long long *gone)
{
  const amp_suppressing &b = job.boxes;
  const int64_t image = blockIdx.z, row = (int64_t)blockIdx.y * BLOCK, column = blockIdx.x;
  if ((column + 1) * AMP_BOX_BITS > row) amp_compare_boxes(b, image, row, column, b.count);
  if (!amp_last_of_image(job.tickets + image, gridDim.x * gridDim.y)) return;
  const int64_t stay = amp_walk_boxes(b, image, b.count, gone, [&](int64_t i, bool stays, int64_t rank) {
    if (job.stays) job.stays[image * b.count + i] = stays;
    else if (stays) job.places[rank] = b.order[i] + 1;
  });
  if (job.stays) return;
  for (int64_t i = stay + threadIdx.x; i < b.count; i += BLOCK) job.places[i] = 0;
  if (threadIdx.x == 0) *job.number = stay;
}

__global__ void __launch_bounds__(BLOCK) suppress_boxes(const walking job)
{
  AMP_SHARED(unsigned long long, gone);
  compare(job, gone);
}

typedef struct sorting {
  const float *scores;
  int *order;
  unsigned long long *spare; /* NULL: keys are in shared memory */
  int count, power;
} sorting;

__global__ void __launch_bounds__(SORTERS) sort_scores(const sorting job)
{
  AMP_SHARED(unsigned long long, here);
  unsigned long long *keys = job.spare ? job.spare : here;
  for (int i = threadIdx.x; i < job.power; i += SORTERS)
    keys[i] = i < job.count ? amp__score_key(job.scores[i], (unsigned)i) : 0;
  __syncthreads();
  amp_sort_keys(keys, job.power);
  for (int i = threadIdx.x; i < job.count; i += SORTERS) job.order[i] = (int)~(unsigned)keys[i];
}

template <class T> __global__ void overlaps(const T *one, const T *two, T *out, int64_t count, int64_t n)
{
  AMP_FOR(i, n)
  {
    const T *a = one + i / count * 4, *b = two + i % count * 4;
    T w = (a[2] < b[2] ? a[2] : b[2]) - (a[0] > b[0] ? a[0] : b[0]);
    T h = (a[3] < b[3] ? a[3] : b[3]) - (a[1] > b[1] ? a[1] : b[1]);
    T both = (w < 0 ? 0 : w) * (h < 0 ? 0 : h);
    out[i] = both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both);
  }
}

int launch(walking *job, int64_t images)
{
  amp_suppressing *b = &job->boxes;
  if (b->blocks > 6000 || images > 65535)
    return amp__fail(AMP_E_UNSUPPORTED, "suppression of more than %d boxes an image, or of more than 65535 images",
                     6000 * AMP_BOX_BITS);
  amp_tensor *words = amp__cuda_scratch((size_t)images * (size_t)b->count * (size_t)b->blocks * 8);
  job->tickets = amp_cells(amp__cuda_here(), (unsigned)images);
  int rc = words && job->tickets ? 0 : AMP_E_MEMORY;
  if (rc == 0) {
    b->words = AMP_DATA(unsigned long long, words);
    const dim3 grid((unsigned)b->blocks, (unsigned)((b->count + BLOCK - 1) / BLOCK), (unsigned)images);
    AMP_LAUNCH(suppress_boxes, grid, BLOCK, (size_t)b->blocks * 8, *job);
  }
  amp__free(words);
  return rc;
}

} // namespace

extern "C" int amp__cuda_box_overlaps(amp_call *c)
{
  amp_tensor *out = c->out[0];
  const int dtype = out->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  if (out->numel == 0) return 0;
  amp_tensor *one = amp__cuda_dense(c->in[0], dtype), *two = amp__cuda_dense(c->in[1], dtype);
  amp_tensor *to = amp__cuda_make(dtype, 2, out->size);
  int rc = one && two && to ? 0 : AMP_E_MEMORY;
  if (rc == 0) {
    const unsigned grid = amp_grid(to->numel, BLOCK);
    if (dtype == AMP_FLOAT64)
      AMP_LAUNCH((overlaps<double>), grid, BLOCK, 0, AMP_DATA(const double, one), AMP_DATA(const double, two),
                 AMP_DATA(double, to), to->size[1], to->numel);
    else
      AMP_LAUNCH((overlaps<float>), grid, BLOCK, 0, AMP_DATA(const float, one), AMP_DATA(const float, two),
                 AMP_DATA(float, to), to->size[1], to->numel);
    rc = amp__cuda_copy_to(out, to);
  }
  amp__free(to);
  amp__free(two);
  amp__free(one);
  return rc;
}

extern "C" int amp__cuda_box_suppress(amp_call *c)
{
  const args_box_suppress *args = AMP_ARGS(c, box_suppress);
  amp_tensor *out = c->out[0];
  int64_t images = out->size[0], count = out->size[1];
  if (out->numel == 0) return 0;
  amp_tensor *boxes = amp__cuda_dense(c->in[0], AMP_FLOAT32), *groups = amp__cuda_dense(c->in[1], AMP_INT64);
  amp_tensor *stays = amp__cuda_make(AMP_BOOL, 2, out->size);
  int rc = boxes && groups && stays ? 0 : AMP_E_MEMORY;
  if (rc == 0) {
    walking job;
    memset((void *)&job, 0, sizeof job);
    job.boxes.boxes = AMP_DATA(const float, boxes);
    job.boxes.groups = AMP_DATA(const int64_t, groups);
    job.boxes.count = count;
    job.boxes.blocks = (count + AMP_BOX_BITS - 1) / AMP_BOX_BITS;
    job.boxes.threshold = (float)args->iou_threshold;
    job.boxes.inclusive = args->inclusive != 0;
    job.stays = AMP_DATA(uint8_t, stays);
    rc = launch(&job, images);
    if (rc == 0) rc = amp__cuda_copy_to(out, stays);
  }
  amp__free(stays);
  amp__free(groups);
  amp__free(boxes);
  return rc;
}

/* order: the places of scores, the best first */
static int sort_places(const amp_tensor *scores, int *order)
{
  sorting job = { AMP_DATA(const float, scores), order, NULL, (int)scores->numel, amp_power_from(scores->numel) };
  const size_t bytes = (size_t)job.power * 8;
  amp_tensor *spare = NULL;
  if (bytes > amp__cuda_here()->shared) {
    if ((spare = amp__cuda_scratch(bytes)) == NULL) return AMP_E_MEMORY;
    job.spare = AMP_DATA(unsigned long long, spare);
  }
  const size_t shared = spare ? 0 : bytes;
  int rc = amp__cuda_check(cudaFuncSetAttribute(sort_scores, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
                           "shared memory of nms");
  if (rc >= 0) AMP_LAUNCH(sort_scores, 1, SORTERS, shared, job);
  amp__free(spare);
  return rc < 0 ? rc : 0;
}

extern "C" int amp__cuda_nms_places(amp_call *c)
{
  amp_tensor *out = c->out[0], *given = c->nin > 2 ? c->in[2] : NULL;
  const int64_t count = out->numel;
  if (count == 0) return amp__cuda_fill_value(c->out[1], 0);
  amp_tensor *boxes = amp__cuda_dense(c->in[0], AMP_FLOAT32), *scores = amp__cuda_dense(c->in[1], AMP_FLOAT32);
  amp_tensor *groups = given ? amp__cuda_dense(given, AMP_INT64) : NULL;
  amp_tensor *order = amp__cuda_scratch((size_t)count * sizeof(int));
  int rc = boxes && scores && order && (groups || !given) ? 0 : AMP_E_MEMORY;
  if (rc == 0) rc = sort_places(scores, AMP_DATA(int, order));
  if (rc == 0) {
    walking job;
    memset((void *)&job, 0, sizeof job);
    job.boxes.boxes = AMP_DATA(const float, boxes);
    job.boxes.groups = groups ? AMP_DATA(const int64_t, groups) : NULL;
    job.boxes.order = AMP_DATA(const int, order);
    job.boxes.count = count;
    job.boxes.blocks = (count + AMP_BOX_BITS - 1) / AMP_BOX_BITS;
    job.boxes.threshold = (float)AMP_ARGS(c, nms_places)->iou_threshold;
    job.places = AMP_DATA(int64_t, out);
    job.number = AMP_DATA(int64_t, c->out[1]);
    rc = launch(&job, 1);
  }
  amp__free(order);
  amp__free(groups);
  amp__free(scores);
  amp__free(boxes);
  return rc;
}
