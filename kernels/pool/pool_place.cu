/*
** pool_place.cu: rows pool_gather, pool_scatter and unpool: values through places
** (from 1) of each plane, such as max_pool gives.
**
** pool_scatter of a pool whose windows are known is pool_back.cu's. Else it adds: a block has a
** plane (or some neighbouring channels') in shared memory, where adding is cheap, and writes it
** once; planes that don't fit are added to in float32 in global memory. Both add by atomics: where three and more
** values meet at a place, their order and so the last bit is open. Deterministic
** mode has one thread a plane, in order. Places out of range are noted and left out.
*/
#include "pool/pool_back.cuh"

namespace {

enum { THREADS = 512 };

/* Place at element s, from 0; -1 and a note if it is outside of a plane of `volume` elements */
__device__ __forceinline__ int place_of(const planes &t, int64_t at, int64_t volume, amp_trouble *trouble, int op,
                                        int64_t i)
{
  int64_t k = ((const int64_t *)t.p)[at];
  if (k >= 1 && k <= volume) return (int)(k - 1);
  amp_note(trouble, AMP_TROUBLE_INDEX, op, k, volume, i);
  return -1;
}

/* y = x at the places (gather), or x at the places = y (what unpool does; which of two wins is open) */
template <class T, bool GATHER>
__global__ void __launch_bounds__(256)
    through(const planes x, const planes y, const planes t, int volume, amp_trouble *trouble, int op)
{
  AMP_FOR(i, y.numel)
  {
    spot s = planes_spot(y, i);
    int k = place_of(t, planes_at(t, s), volume, trouble, op, i);
    int64_t at = planes_at(y, s), there = planes_channel(x, s.n, s.c);
    if (GATHER)
      planes_store(y.p, y.dtype, at, k < 0 ? (T)0 : planes_load(T(0), x.p, x.dtype, there + planes_place(x, k)));
    else if (k >= 0) planes_store(x.p, x.dtype, there + planes_place(x, k), planes_load(T(0), y.p, y.dtype, at));
  }
}

/* `channels` planes a block, in shared memory as [place][channel] */
template <class T>
__global__ void __launch_bounds__(THREADS) scatter_shared(const planes x, const planes g, const planes t, int volume,
                                                          int channels, int64_t bundles, amp_trouble *trouble)
{
  AMP_SHARED(T, plane);
  int count = g.size[0] * g.size[1] * g.size[2];
  for (int64_t b = blockIdx.x; b < bundles * x.n; b += gridDim.x) {
    int64_t n = b / bundles, c0 = b % bundles * channels;
    int here = (int)(x.c - c0 < channels ? x.c - c0 : channels);
    __syncthreads();
    for (int i = threadIdx.x; i < volume * channels; i += THREADS) plane[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < count * here; i += THREADS) {
      int j = here == 1 ? i : i / here, c = i - j * here;
      int64_t ch = c0 + c;
      int k = place_of(t, planes_channel(t, n, ch) + planes_place(t, j), volume, trouble, AMP_OP_pool_scatter,
                       (n * x.c + ch) * count + j);
      if (k >= 0)
        atomicAdd(&plane[k * channels + c],
                  planes_load(T(0), g.p, g.dtype, planes_channel(g, n, ch) + planes_place(g, j)));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < volume * here; i += THREADS) {
      int j = here == 1 ? i : i / here, c = i - j * here;
      planes_store(x.p, x.dtype, planes_channel(x, n, c0 + c) + planes_place(x, j), plane[j * channels + c]);
    }
  }
}

/* x: zeros of type T */
template <class T>
__global__ void __launch_bounds__(256)
    scatter_global(const planes x, const planes g, const planes t, int volume, amp_trouble *trouble)
{
  AMP_FOR(i, g.numel)
  {
    spot s = planes_spot(g, i);
    int k = place_of(t, planes_at(t, s), volume, trouble, AMP_OP_pool_scatter, i);
    if (k >= 0)
      atomicAdd((T *)x.p + planes_channel(x, s.n, s.c) + planes_place(x, k),
                planes_load(T(0), g.p, g.dtype, planes_at(g, s)));
  }
}
template <class T>
__global__ void __launch_bounds__(256)
    scatter_ordered(const planes x, const planes g, const planes t, int volume, amp_trouble *trouble)
{
  int count = g.size[0] * g.size[1] * g.size[2];
  AMP_FOR(i, x.n * x.c)
  {
    int64_t n = i / x.c, c = i % x.c, to = planes_channel(x, n, c);
    for (int j = 0; j < count; j++) {
      int k = place_of(t, planes_channel(t, n, c) + planes_place(t, j), volume, trouble, AMP_OP_pool_scatter,
                       i * count + j);
      if (k >= 0)
        ((T *)x.p)[to + planes_place(x, k)]
            += planes_load(T(0), g.p, g.dtype, planes_channel(g, n, c) + planes_place(g, j));
    }
  }
}

/* 0, or an error: planes with nothing in them */
static int check(const amp_tensor *t, const planes &x)
{
  if (x.numel == 0)
    return amp__fail_arg(AMP_E_INDEX, 2, "indices of shape %s point into a plane without elements",
                         amp__shape_str(t->ndim, t->size));
  return planes_check(x);
}
static int volume_of(const planes &x) { return x.size[0] * x.size[1] * x.size[2]; }

template <class T> static int scatter(amp_tensor *out, const planes &g, const planes &t, int spatial)
{
  planes x = planes_of(out, spatial);
  int volume = volume_of(x), type = sizeof(T) == 8 ? AMP_FLOAT64 : AMP_FLOAT32;
  amp_trouble *trouble = amp_trouble_cell();
  size_t plane = (size_t)volume * sizeof(T), most = amp__cuda_here()->shared;
  if (plane <= most && !amp__cuda_deterministic && (int64_t)volume_of(g) < (1 << 26)) {
    int channels = 1;
    if (x.last)
      while (channels < 16 && plane * channels * 2 <= most && channels < x.c) channels *= 2;
    size_t shared = plane * channels;
    int64_t bundles = (x.c + channels - 1) / channels, blocks = bundles * x.n;
    if (shared > 48 << 10) {
      int rc = amp__cuda_check(
          cudaFuncSetAttribute(scatter_shared<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
          "shared memory");
      if (rc < 0) return rc;
    }
    AMP_LAUNCH((scatter_shared<T>), (unsigned)(blocks < 1 << 30 ? blocks : 1 << 30), THREADS, shared, x, g, t, volume,
               channels, bundles, trouble);
    return 0;
  }
  amp_tensor *acc = out;
  int rc = 0;
  if (out->dtype != type) acc = amp__cuda_make(type, out->ndim, out->size);
  if (acc == NULL) return AMP_E_MEMORY;
  x = planes_of(acc, spatial);
  if ((rc = amp__cuda_fill_value(acc, 0)) == 0) {
    if (amp__cuda_deterministic)
      AMP_LAUNCH((scatter_ordered<T>), amp_grid(x.n * x.c, 256), 256, 0, x, g, t, volume, trouble);
    else AMP_LAUNCH((scatter_global<T>), amp_grid(g.numel, 256), 256, 0, x, g, t, volume, trouble);
    if (acc != out) rc = amp__cuda_copy_to(out, acc);
  }
  if (acc != out) amp__free(acc);
  return rc;
}

} // namespace

extern "C" {

int amp__cuda_pool_gather(amp_call *c)
{
  int spatial = (int)AMP_ARGS(c, pool_gather)->spatial, rc;
  if (c->in[1]->numel == 0) return 0;
  planes x = planes_of(c->in[0], spatial), y = planes_of(c->out[0], spatial), t = planes_of(c->in[1], spatial);
  if ((rc = check(c->in[1], x)) < 0) return rc;
  if (y.dtype == AMP_FLOAT64)
    AMP_LAUNCH((through<double, true>), amp_grid(y.numel, 256), 256, 0, x, y, t, volume_of(x), amp_trouble_cell(),
               c->id);
  else
    AMP_LAUNCH((through<float, true>), amp_grid(y.numel, 256), 256, 0, x, y, t, volume_of(x), amp_trouble_cell(),
               c->id);
  return 0;
}

int amp__cuda_unpool(amp_call *c)
{
  int spatial = (int)AMP_ARGS(c, unpool)->spatial, rc;
  if (c->in[1]->numel == 0) return c->out[0]->numel ? amp__cuda_fill_value(c->out[0], 0) : 0;
  planes x = planes_of(c->out[0], spatial), y = planes_of(c->in[0], spatial), t = planes_of(c->in[1], spatial);
  if ((rc = check(c->in[1], x)) < 0 || (rc = amp__cuda_fill_value(c->out[0], 0)) < 0) return rc;
  if (y.dtype == AMP_FLOAT64)
    AMP_LAUNCH((through<double, false>), amp_grid(y.numel, 256), 256, 0, x, y, t, volume_of(x), amp_trouble_cell(),
               c->id);
  else
    AMP_LAUNCH((through<float, false>), amp_grid(y.numel, 256), 256, 0, x, y, t, volume_of(x), amp_trouble_cell(),
               c->id);
  return 0;
}

int amp__cuda_pool_scatter(amp_call *c)
{
  const args_pool_scatter *args = AMP_ARGS(c, pool_scatter);
  int spatial = (int)args->spatial, rc;
  if (c->in[1]->numel == 0) return c->out[0]->numel ? amp__cuda_fill_value(c->out[0], 0) : 0;
  planes g = planes_of(c->in[0], spatial), t = planes_of(c->in[1], spatial), x = planes_of(c->out[0], spatial);
  if ((rc = check(c->in[1], x)) < 0) return rc;
  size_t plane = (size_t)volume_of(x) * (g.dtype == AMP_FLOAT64 ? 8 : 4);
  if ((rc = amp_pool_back(x, g, t, args, amp__cuda_deterministic || plane > amp__cuda_here()->shared)) <= 0) return rc;
  return g.dtype == AMP_FLOAT64 ? scatter<double>(c->out[0], g, t, spatial) : scatter<float>(c->out[0], g, t, spatial);
}
}
