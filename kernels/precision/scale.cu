/*
** scale.cu: what loss scaling reads and writes on a GPU: the finite check of a
** gradient, its multiplication in place, and the update of the scale, a launch of
** one thread. Nothing comes back to the host.
**
** The check reads 16 bytes at a time and tests exponents as they lie; a block that
** found one writes 1 into the found-inf cell. Dimensions of stride 0 (an expanded
** gradient) count once. In a captured step the update of the scale may look at a few
** gradients itself, beside the optimizer's step that checks them (optim.cu).
**
** The check reads an element once (4 bytes in float32), the multiplication writes it besides: memory's speed bounds
** both.
*/
#include "common/rows.cuh"
#include "precision/scale.cuh"

namespace {

/* n elements in a row; aligned: to 16 bytes */
__global__ void __launch_bounds__(256) check(const char *p, int dtype, int size, int64_t n, int aligned, float *found)
{
  enum { TURNS = 4 };
  int64_t per = 16 / size, whole = aligned ? n / per : 0, step = (int64_t)gridDim.x * blockDim.x,
          at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  const uint4 *q = (const uint4 *)p;
  int bad = 0;
  for (int64_t j = at; j < whole; j += TURNS * step) {
    uint4 x[TURNS];
#pragma unroll
    for (int k = 0; k < TURNS; k++) x[k] = j + k * step < whole ? q[j + k * step] : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int k = 0; k < TURNS; k++) bad |= amp_bad_quad(x[k], dtype);
  }
  for (int64_t i = whole * per + at; i < n; i += step) bad |= amp_bad_value(amp_load<double>(p, dtype, i));
  if (__syncthreads_or(bad) && threadIdx.x == 0) *found = 1.f;
}

template <class T>
__global__ void __launch_bounds__(256) scale(char *p, int dtype, int64_t n, int aligned, const float *inv, float *found)
{
  enum { N = 8 };
  T c = (T)*inv;
  int bad = 0;
  AMP_FOR(j, (n + N - 1) / N)
  {
    int64_t i = j * N;
    T v[N];
    if (aligned && i + N <= n) {
      amp_load_n<N>(v, p, dtype, i);
#pragma unroll
      for (int k = 0; k < N; k++) {
        bad |= amp_bad_value(v[k]);
        v[k] *= c;
      }
      amp_store_n<N>(p, dtype, i, v);
    } else
      for (int64_t k = i; k < n && k < i + N; k++) {
        T x = amp_load<T>(p, dtype, k);
        bad |= amp_bad_value(x);
        amp_store<T>(p, dtype, k, x * c);
      }
  }
  if (__syncthreads_or(bad) && threadIdx.x == 0) *found = 1.f;
}

/* strided; inv may be NULL */
template <class T> __global__ void __launch_bounds__(256) check_any(const amp_arg t, const float *inv, float *found)
{
  T c = inv ? (T)*inv : (T)1;
  int bad = 0;
  AMP_FOR(j, t.numel)
  {
    int64_t at = amp_offset(t, j);
    T x = amp_load<T>(t.p, t.dtype, at);
    bad |= amp_bad_value(x);
    if (inv) amp_store<T>(t.p, t.dtype, at, x * c);
  }
  if (__syncthreads_or(bad) && threadIdx.x == 0) *found = 1.f;
}

/* Many tensors without gaps in one launch: each is cut into tiles of 16 KiB, which the blocks share */
enum { TILE = 1024, FEW = 16, MANY = 256 }; /* few: a launch costs the host what its argument is long */
template <int MOST> struct many {
  const char *p[MOST];
  int64_t bytes[MOST];
  uint32_t end[MOST];
  uint8_t dtype[MOST];
  int32_t n;
  float *found;
}; /* end: tiles up to and with this tensor */
static_assert(sizeof(many<MANY>) < 6000, "a launch's argument");

/* What this thread of its block finds, in the block's tiles */
template <int MOST> __device__ __forceinline__ int bad_tiles(const many<MOST> &m, uint32_t first, uint32_t step)
{
  int bad = 0, k = 0;
  for (uint32_t t = first; t < m.end[m.n - 1]; t += step) {
    while (t >= m.end[k]) k++;
    int64_t at = (int64_t)(t - (k ? m.end[k - 1] : 0)) * TILE, whole = m.bytes[k] / 16;
    const uint4 *q = (const uint4 *)m.p[k];
    int dtype = m.dtype[k];
    uint4 x[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      int64_t i = at + j * 256 + threadIdx.x % 256;
      x[j] = i < whole ? q[i] : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) bad |= amp_bad_quad(x[j], dtype);
    if (t + 1 == m.end[k]) { /* what is left of the last 16 bytes */
      int size = dtype == AMP_FLOAT64 ? 8 : dtype == AMP_FLOAT32 ? 4 : 2;
      for (int64_t i = whole * 16 / size + threadIdx.x % 256; i < m.bytes[k] / size; i += 256)
        bad |= amp_bad_value(amp_load<double>(m.p[k], dtype, i));
    }
  }
  return bad;
}

template <int MOST> __global__ void __launch_bounds__(256) check_tiles(const __grid_constant__ many<MOST> m)
{
  int bad = bad_tiles(m, blockIdx.x, gridDim.x);
  if (__syncthreads_or(bad) && threadIdx.x == 0) *m.found = 1.f;
}

__global__ void any_of(const amp_found_list f, float *cell)
{
  for (int i = 0; i < f.n; i++)
    if (*f.cell[i] != 0) *cell = 1.f;
}

/* The scaler's cells in an update */
typedef struct cells {
  const float *scale, *inv;
  float *scale_to, *inv_to;
  double *tracker, *hyst;
} cells;

typedef struct values {
  float scale, inv;
  double tracker, hyst;
} values;
__device__ __forceinline__ values read(const cells &c)
{
  return { *c.scale, *c.inv, *c.tracker, *c.hyst };
} /* at once */

/* As amp__cpu_scale_update, which says why */
__device__ __forceinline__ void advance(const cells &c, values now, bool any, const amp_scaler_options &options)
{
  double s = now.scale;
  *c.scale_to = now.scale;
  *c.inv_to = now.inv;
  if (options.growth_interval == 0) return;
  if (any) {
    *c.tracker = 0;
    if (now.hyst > (double)options.hysteresis) now.hyst = (double)options.hysteresis;
    if (now.hyst > 0) now.hyst -= 1;
    *c.hyst = now.hyst;
    if (now.hyst > 0) return;
    s *= options.backoff_factor;
    if (s < options.min_scale) s = fmin((double)now.scale, options.min_scale);
    if (1 / s > (double)FLT_MAX) return;
  } else {
    *c.tracker = now.tracker + 1;
    if (now.tracker + 1 < (double)options.growth_interval) return;
    *c.tracker = 0;
    *c.hyst = (double)options.hysteresis;
    s *= options.growth_factor;
    if (s > options.max_scale) s = options.max_scale;
    if (s > (double)FLT_MAX) return;
  }
  *c.scale_to = (float)s;
  *c.inv_to = (float)(1 / (double)(float)s);
}

__global__ void update(const cells c, const amp_found_list list, const amp_scaler_options options)
{
  bool any = false;
  const values v = read(c);
  for (int i = 0; i < list.n; i++) any |= *list.cell[i] != 0;
  advance(c, v, any, options);
}

/* The same where gradients lie as they were checked: a look at them takes less than the wait for the step that
** checks them */
__global__ void __launch_bounds__(1024, 1)
    update_looking(const cells c, const amp_found_list list, const amp_scaler_options options,
                   const __grid_constant__ many<AMP_LOOK_MOST> gradients)
{
  int bad = (int)threadIdx.x < list.n ? *list.cell[threadIdx.x] != 0 : 0;
  values v = {};
  if (threadIdx.x == 0) v = read(c);
  bad |= bad_tiles(gradients, threadIdx.x / 256, blockDim.x / 256);
  bad = __syncthreads_or(bad);
  if (threadIdx.x == 0) advance(c, v, bad != 0, options);
}

} // namespace

/* A tensor more; its numbers begin at a multiple of 16 bytes */
template <int MOST> static void add(many<MOST> &m, const amp_tensor *t)
{
  uint32_t end = m.n ? m.end[m.n - 1] : 0;
  m.p[m.n] = (const char *)amp__data(t);
  m.bytes[m.n] = t->numel * amp__dtype_size[t->dtype];
  m.dtype[m.n] = t->dtype;
  m.end[m.n] = end + (uint32_t)((m.bytes[m.n] + TILE * 16 - 1) / (TILE * 16));
  m.n++;
}

template <int MOST> static int check_some(amp_tensor *const *t, int n, float *found)
{
  for (int i = 0; i < n;) {
    many<MOST> m;
    m.n = 0;
    m.found = found;
    for (; i < n && m.n < MOST; i++) {
      if (t[i]->numel == 0) continue;
      if ((uintptr_t)amp__data(t[i]) & 15) {
        int rc = amp__cuda_check_scale(t[i], NULL, found);
        if (rc < 0) return rc;
        continue;
      }
      add(m, t[i]);
    }
    if (m.n) AMP_LAUNCH((check_tiles<MOST>), amp_grid(m.end[m.n - 1], 1, 8), 256, 0, m);
  }
  return amp__cuda_check(cudaPeekAtLastError(), "checking gradients");
}

extern "C" int amp__cuda_check_many(amp_tensor *const *t, int n, float *found)
{
  if (n == 0) return 0;
  if (amp__cuda_enter(t[0]->device_index) == NULL) return AMP_E_DEVICE;
  amp__cuda_part_begin();
  for (int i = 0; i < n; i++) amp__cuda_touch(t[i], false);
  amp__cuda_touch_bytes(found, sizeof *found, true);
  amp__cuda_part_start();
  int rc = n <= FEW ? check_some<FEW>(t, n, found) : check_some<MANY>(t, n, found);
  amp__cuda_part_end();
  return rc;
}

amp_cuda_device *amp_device_of(const void *p)
{
  int index = 0;
  if (amp__cuda_count > 1) {
    struct cudaPointerAttributes a;
    if (amp__cuda_check(cudaPointerGetAttributes(&a, p), "a cell of a GPU")) return NULL;
    index = a.device;
  }
  return amp__cuda_enter(index);
}

unsigned *amp_cells(amp_cuda_device *d, unsigned n)
{
  const size_t bytes = AMP_CELLS * sizeof(unsigned);
  static unsigned *cells[AMP_CUDA_MAX][AMP_STREAMS]; /* streams count side by side */
  unsigned **cell = &cells[d->index][amp__cuda_number(d->index)];
  if (*cell == NULL) {
    void *p = NULL; /* cleared on a stream of its own: d's may be captured */
    cudaStream_t once = NULL;
    if (amp__cuda_check(cudaMalloc(&p, bytes), "cells of a GPU")) return NULL;
    int rc = amp__cuda_check(cudaStreamCreateWithFlags(&once, cudaStreamNonBlocking), "cells of a GPU");
    if (rc == 0) rc = amp__cuda_check(cudaMemsetAsync(p, 0, bytes, once), "cells of a GPU");
    if (rc == 0) rc = amp__cuda_check(cudaStreamSynchronize(once), "cells of a GPU");
    if (once) AMP_UNREAD(cudaStreamDestroy(once));
    if (rc < 0) {
      AMP_UNREAD(cudaFree(p));
      return NULL;
    }
    *cell = (unsigned *)p;
  }
  return *cell + amp__cuda_turn(n, AMP_CELLS);
}

amp_tensor *amp_found_pack(amp_found_list *f, const float *const *found, int n, int *rc)
{
  *rc = 0;
  memset((void *)f, 0, sizeof *f);
  if (n <= AMP_FOUND_MOST) {
    f->n = n;
    for (int i = 0; i < n; i++) f->cell[i] = found[i];
    return NULL;
  }
  amp_tensor *one = amp__cuda_make(AMP_FLOAT32, 0, NULL);
  if (one == NULL || (*rc = amp__cuda_fill_value(one, 0)) < 0) {
    if (one == NULL) *rc = AMP_E_MEMORY;
    return one;
  }
  for (int at = 0; at < n; at += AMP_FOUND_MOST) {
    f->n = n - at < AMP_FOUND_MOST ? n - at : AMP_FOUND_MOST;
    for (int i = 0; i < f->n; i++) f->cell[i] = found[at + i];
    AMP_LAUNCH(any_of, 1, 1, 0, *f, (float *)amp__data(one));
  }
  f->n = 1;
  f->cell[0] = (const float *)amp__data(one);
  return one;
}

extern "C" {

int amp__cuda_check_scale(amp_tensor *tensor, const float *inv, float *found)
{
  if (!amp__is_float(tensor->dtype))
    return amp__fail(AMP_E_DTYPE, "a gradient must be a float tensor, got %s", amp_dtype_name(tensor->dtype));
  if (amp__cuda_enter(tensor->device_index) == NULL) return AMP_E_DEVICE;
  if (tensor->numel == 0) return 0;
  amp__cuda_part_begin();
  amp__cuda_touch(tensor, inv != NULL);
  amp__cuda_touch_bytes(inv, sizeof *inv, false);
  amp__cuda_touch_bytes(found, sizeof *found, true);
  amp__cuda_part_start();
  char *data = (char *)amp__data(tensor);
  int aligned = ((uintptr_t)data & 15) == 0, size = amp__dtype_size[tensor->dtype];
  if (!(tensor->flags & AMP_T_DENSE)) {
    amp_arg view = amp_arg_of(tensor);
    view.numel = 1;
    for (int d = 0; d < view.ndim; d++) {
      if (view.stride[d] == 0) view.size[d] = 1;
      view.numel *= view.size[d];
    }
    if (tensor->dtype == AMP_FLOAT64)
      AMP_LAUNCH((check_any<double>), amp_grid(view.numel, 1024), 256, 0, view, inv, found);
    else AMP_LAUNCH((check_any<float>), amp_grid(view.numel, 1024), 256, 0, view, inv, found);
  } else if (inv == NULL)
    AMP_LAUNCH(check, amp_grid(tensor->numel * size, 256 * 64, 8), 256, 0, data, (int)tensor->dtype, size,
               tensor->numel, aligned, found);
  else if (tensor->dtype == AMP_FLOAT64)
    AMP_LAUNCH((scale<double>), amp_grid(tensor->numel, 256 * 8), 256, 0, data, (int)tensor->dtype, tensor->numel,
               aligned, inv, found);
  else
    AMP_LAUNCH((scale<float>), amp_grid(tensor->numel, 256 * 8), 256, 0, data, (int)tensor->dtype, tensor->numel,
               aligned, inv, found);
  amp__cuda_part_end();
  return amp__cuda_check(cudaPeekAtLastError(), "the check of a gradient");
}

int amp__cuda_scale_update(const float *scale, const float *inv, float *scale_to, float *inv_to, double *tracker,
                           double *hyst, const float *const *found, int nfound, amp_tensor *const *look, int nlook,
                           const amp_scaler_options *options)
{
  amp_found_list list;
  const cells c = { scale, inv, scale_to, inv_to, tracker, hyst };
  int rc;
  if (options->growth_interval == 0 && scale == scale_to) return 0;
  if (amp_device_of(scale) == NULL) return AMP_E_DEVICE;
  amp__cuda_part_begin();
  amp__cuda_touch_bytes(scale, sizeof *scale, false);
  amp__cuda_touch_bytes(inv, sizeof *inv, false);
  amp__cuda_touch_bytes(scale_to, sizeof *scale_to, true);
  amp__cuda_touch_bytes(inv_to, sizeof *inv_to, true);
  amp__cuda_touch_bytes(tracker, sizeof *tracker, true);
  amp__cuda_touch_bytes(hyst, sizeof *hyst, true);
  for (int i = 0; i < nfound; i++) amp__cuda_touch_bytes(found[i], sizeof *found[i], false);
  for (int i = 0; i < nlook; i++) amp__cuda_touch(look[i], false);
  amp__cuda_part_start();
  amp_tensor *held = amp_found_pack(&list, found, nfound, &rc);
  if (rc == 0) {
    many<AMP_LOOK_MOST> gradients;
    gradients.n = 0;
    for (int i = 0; i < nlook && i < AMP_LOOK_MOST; i++) add(gradients, look[i]);
    if (gradients.n) AMP_LAUNCH(update_looking, 1, 1024, 0, c, list, *options, gradients);
    else AMP_LAUNCH(update, 1, 1, 0, c, list, *options);
    rc = amp__cuda_check(cudaPeekAtLastError(), "the scale's update");
  }
  amp__free(held);
  amp__cuda_part_end();
  return rc;
}
}
