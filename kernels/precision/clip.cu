/*
** clip.cu: the norm of many gradients in one launch (256 tensors an argument), for
** clipping. Each is cut into tiles that blocks share; |value * factor|^p is summed
** in double, block by block, and the block that ends last adds those sums in order,
** so the result repeats exactly.
**
** An element is read once (4 bytes in float32): memory's speed bounds it; sums stay in registers and meet in shared
** memory.
*/
#include "common/rows.cuh"

namespace {

enum { TILE = 4096, FEW = 16, MANY = 256, N = 8 };
template <int MOST> struct many { /* end: tiles up to and with this tensor */
  const char *p[MOST];
  const float *factor[MOST];
  int64_t n[MOST];
  uint32_t end[MOST];
  uint8_t dtype[MOST];
  int32_t count, more; /* more: out holds what earlier launches found */
  double pw, *out, *partial;
  unsigned *ticket;
};
static_assert(sizeof(many<MANY>) < 8000, "a launch's argument");

/* the larger one; NaN stays */
struct top {
  template <class T> __device__ static T of(T a, T b) { return a != a ? a : b > a || b != b ? b : a; }
};

__device__ __forceinline__ double join(double a, double b, double p) { return isinf(p) ? top::of(a, b) : a + b; }
__device__ __forceinline__ double term(double x, double p)
{
  double a = fabs(x);
  return p == 2 ? x * x : p == 1 || isinf(p) ? a : pow(a, p);
}
__device__ __forceinline__ double reduce(double s, double p)
{
  return isinf(p) ? amp_reduce_block<top>(s, 0.0) : amp_reduce_block<amp_sum>(s, 0.0);
}

template <int MOST> __global__ void __launch_bounds__(256) norm_tiles(const __grid_constant__ many<MOST> m)
{
  double s = 0;
  int k = 0;
  for (uint32_t t = blockIdx.x; t < m.end[m.count - 1]; t += gridDim.x) {
    while (t >= m.end[k]) k++;
    int64_t from = (int64_t)(t - (k ? m.end[k - 1] : 0)) * TILE, to = from + TILE < m.n[k] ? from + TILE : m.n[k];
    double f = m.factor[k] ? (double)*m.factor[k] : 1.0;
    bool wide = ((uintptr_t)m.p[k] & 15) == 0;
    for (int64_t i = from + (int64_t)threadIdx.x * N; i < to; i += 256 * N) {
      if (wide && i + N <= to) {
        double v[N], part = 0;
        amp_load_n<N>(v, m.p[k], m.dtype[k], i);
#pragma unroll
        for (int j = 0; j < N; j++) part = join(part, term(v[j] * f, m.pw), m.pw);
        s = join(s, part, m.pw);
      } else
        for (int64_t j = i; j < to && j < i + N; j++)
          s = join(s, term(amp_load<double>(m.p[k], m.dtype[k], j) * f, m.pw), m.pw);
    }
  }
  s = reduce(s, m.pw);
  if (threadIdx.x == 0) m.partial[blockIdx.x] = s;
  if (!amp_last_block(m.ticket)) return;
  s = 0;
  for (int i = threadIdx.x; i < (int)gridDim.x; i += blockDim.x) s = join(s, m.partial[i], m.pw);
  s = reduce(s, m.pw);
  if (threadIdx.x == 0) *m.out = m.more ? join(*m.out, s, m.pw) : s;
}

} // namespace

template <int MOST> static int norm_some(amp_tensor *const *t, const float *const *factor, int n, double p, double *out)
{
  many<MOST> m;
  int more = 0;
  if (n == 0) return 0;
  amp_cuda_device *d = amp__cuda_enter(t[0]->device_index);
  memset((void *)&m, 0, sizeof m);
  if (d == NULL || !(m.ticket = amp_ticket(d))) return AMP_E_DEVICE;
  m.pw = p;
  m.out = out;
  for (int i = 0; i < n;) {
    uint32_t end = 0;
    m.count = 0;
    for (; i < n && m.count < MOST; i++) {
      if (t[i]->numel == 0) continue;
      m.p[m.count] = (const char *)amp__data(t[i]);
      m.factor[m.count] = factor[i];
      m.n[m.count] = t[i]->numel;
      m.dtype[m.count] = t[i]->dtype;
      end += (uint32_t)((t[i]->numel + TILE - 1) / TILE);
      m.end[m.count++] = end;
    }
    if (m.count == 0) continue;
    unsigned grid = amp_grid(end, 1, 8);
    amp_tensor *s = amp__cuda_scratch(grid * sizeof(double));
    if (s == NULL) return AMP_E_MEMORY;
    m.partial = (double *)amp__data(s);
    m.more = more;
    more = 1;
    AMP_LAUNCH((norm_tiles<MOST>), grid, 256, 0, m);
    amp__free(s);
  }
  if (!more) return amp__cuda_check(cudaMemsetAsync(out, 0, sizeof(double), amp__cuda_stream()), "clearing memory");
  return amp__cuda_check(cudaPeekAtLastError(), "the norm of gradients");
}

/* *out = sum of |t * factor|^p over n tensors without gaps on one device (p infinite: the largest); a factor may be
** NULL */
extern "C" int amp__cuda_norm_many(amp_tensor *const *t, const float *const *factor, int n, double p, double *out)
{
  return n <= FEW ? norm_some<FEW>(t, factor, n, p, out) : norm_some<MANY>(t, factor, n, p, out);
}
