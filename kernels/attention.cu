/*
** attention.cu: rows attention and attention_backward (the private ones under
** scaled_dot_product_attention), for any dtype, head size, mask and strides; no
** matrix of all scores is ever in memory. What tensor cores can do, they do
** (attention_mma_call.cu and its kernels); this is the way of all the rest.
**
** A block has 32 rows and meets the others 32 at a time: scores of a pair of tiles,
** 8 threads a row, then the product with a tile of at most WIDTH columns, which it
** accumulates in registers; more columns are other blocks'. Forward the rows are
** queries and the softmax is kept up to date; backward one kernel does dq (rows:
** queries), dk and dv (rows: keys), each from scores made anew. Nothing is added by
** atomics. Rows without a key give 0; a score of NaN or +inf makes its row NaN.
*/
#include "attention.cuh"

namespace {

enum { TILE = 32, THREADS = 256, PER = TILE * TILE / THREADS };
enum { DQ, DK, DV };

typedef struct job {
  amp_arg q, k, v, mask, out, g, y;  /* y: the gradient that a launch makes */
  void *lse, *delta;                 /* [batch][length] of the computing type */
  int64_t batch, length, keys, size, vsize;
  double scale;
  int32_t causal;
} job;

/* Where batch b of a starts */
__device__ __forceinline__ int64_t start_of(const amp_arg &a, int64_t b)
{
  int64_t at = 0;
  for (int d = a.ndim - 3; d >= 0; d--) { int64_t q = b / a.size[d]; at += (b - q * a.size[d]) * a.stride[d]; b = q; }
  return at;
}

/* rows i0.. (of n), columns c0.. (of m) of a matrix of a at `at` into a tile; 0 outside */
template <int W, class T> __device__ __forceinline__ void tile(T (*t)[W + 1], const amp_arg &a, int64_t at, int64_t i0, int64_t n, int64_t c0, int64_t m, T f)
{
  const int64_t rs = a.stride[a.ndim - 2], cs = a.stride[a.ndim - 1];
  for (int e = threadIdx.x; e < TILE * W; e += THREADS) {
    int r = e / W, c = e % W;
    t[r][c] = i0 + r < n && c0 + c < m ? amp_load<T>(a.p, a.dtype, at + (i0 + r) * rs + (c0 + c) * cs) * f : (T)0;
  }
}

/* s[p] += rows of a . rows of b, over all `size` columns: row threadIdx.x / 8 of a, rows threadIdx.x % 8 + 8 p of b */
template <class T> __device__ __forceinline__ void dots(T (&s)[PER], T (*x)[TILE + 1], T (*y)[TILE + 1], const amp_arg &a, int64_t aat, int64_t i0, int64_t n, T f,
                                                        const amp_arg &b, int64_t bat, int64_t j0, int64_t m, int64_t size)
{
  const int r = threadIdx.x >> 3, c = threadIdx.x & 7;
  for (int64_t d = 0; d < size; d += TILE) {
    __syncthreads();
    tile<TILE>(x, a, aat, i0, n, d, size, f);
    tile<TILE>(y, b, bat, j0, m, d, size, (T)1);
    __syncthreads();
#pragma unroll 8
    for (int e = 0; e < TILE; e++) {
      T v = x[r][e];
#pragma unroll
      for (int p = 0; p < PER; p++) s[p] += v * y[c + 8 * p][e];
    }
  }
}

/* acc[p] += sum over c of w[row][c] z[c][column threadIdx.x % 8 + 8 p] */
template <int W, class T> __device__ __forceinline__ void product(T (&acc)[W / 8], T (*w)[TILE + 1], T (*z)[W + 1])
{
  const int r = threadIdx.x >> 3, c = threadIdx.x & 7;
#pragma unroll 4
  for (int e = 0; e < TILE; e++) {
    T v = w[r][e];
#pragma unroll
    for (int p = 0; p < W / 8; p++) acc[p] += v * z[e][c + 8 * p];
  }
}

/* over the 8 threads of a row */
template <class F, class T> __device__ __forceinline__ T of_row(T v)
{
#pragma unroll
  for (int d = 4; d > 0; d >>= 1) v = F::of(v, __shfl_xor_sync(0xffffffffu, v, d));
  return v;
}

/* the score of query i and key j with the mask's word on it */
template <class T> __device__ __forceinline__ T masked(const job &k, int64_t mat, int64_t i, int64_t j, T s)
{
  if (i >= k.length || j >= k.keys || (k.causal && j > i)) return -(T)INFINITY;
  if (k.mask.p == NULL) return s;
  int64_t at = mat + i * k.mask.stride[k.mask.ndim - 2] + j * k.mask.stride[k.mask.ndim - 1];
  if (k.mask.dtype == AMP_BOOL) return ((const uint8_t *)k.mask.p)[at] ? s : -(T)INFINITY;
  return s + amp_load<T>(k.mask.p, k.mask.dtype, at);
}

/* -- Forward: grid (tiles of queries of all batches) x (columns / W) ------------------------- */

template <class T, int W> __global__ void __launch_bounds__(THREADS, 2) attend(const job k)
{
  __shared__ T x[TILE][TILE + 1], y[TILE][TILE + 1], w[TILE][TILE + 1], z[TILE][W + 1];
  const int64_t tiles = (k.length + TILE - 1) / TILE, b = blockIdx.x / tiles, i0 = (blockIdx.x - b * tiles) * TILE, c0 = (int64_t)blockIdx.y * W;
  const int64_t qat = start_of(k.q, b), kat = start_of(k.k, b), vat = start_of(k.v, b), mat = start_of(k.mask, b);
  const int r = threadIdx.x >> 3, c = threadIdx.x & 7;
  const int64_t limit = k.causal && i0 + TILE < k.keys ? i0 + TILE : k.keys;
  T m = -(T)INFINITY, l = 0, acc[W / 8];
#pragma unroll
  for (int p = 0; p < W / 8; p++) acc[p] = 0;
  for (int64_t j0 = 0; j0 < limit; j0 += TILE) {
    T s[PER], top = m;
#pragma unroll
    for (int p = 0; p < PER; p++) s[p] = 0;
    dots(s, x, y, k.q, qat, i0, k.length, (T)k.scale, k.k, kat, j0, k.keys, k.size);
#pragma unroll
    for (int p = 0; p < PER; p++) {
      s[p] = masked(k, mat, i0 + r, j0 + c + 8 * p, s[p]);
      top = s[p] > top ? s[p] : top;
    }
    top = of_row<amp_most>(top);
    T base = top == -(T)INFINITY ? (T)0 : top, f = m == top ? (T)1 : exp(m - base), sum = 0;
    m = top;
#pragma unroll
    for (int p = 0; p < PER; p++) { T e = exp(s[p] - base); w[r][c + 8 * p] = e; sum += e; }
    l = l * f + of_row<amp_sum>(sum);
#pragma unroll
    for (int p = 0; p < W / 8; p++) acc[p] *= f;
    tile<W>(z, k.v, vat, j0, k.keys, c0, k.vsize, (T)1);
    __syncthreads();
    product<W>(acc, w, z);
    __syncthreads();
  }
  if (i0 + r >= k.length) return;
  const int64_t at = start_of(k.out, b) + (i0 + r) * k.out.stride[k.out.ndim - 2], cs = k.out.stride[k.out.ndim - 1];
  const T inv = l == 0 ? (T)0 : 1 / l;
#pragma unroll
  for (int p = 0; p < W / 8; p++) {
    int64_t col = c0 + c + 8 * p;
    if (col < k.vsize) amp_store<T>(k.out.p, k.out.dtype, at + col * cs, acc[p] * inv);
  }
  if (c == 0 && blockIdx.y == 0) ((T *)k.lse)[b * k.length + i0 + r] = l == 0 ? -(T)INFINITY : m + log(l);
}

/* -- Backward ---------------------------------------------------------------------------------- */

/* sum over the columns of g out, a warp a row */
template <class T> __global__ void __launch_bounds__(256) deltas(const job k)
{
  const int lane = threadIdx.x & 31;
  for (int64_t r = (int64_t)blockIdx.x * 8 + (threadIdx.x >> 5); r < k.batch * k.length; r += (int64_t)gridDim.x * 8) {
    int64_t b = r / k.length, i = r - b * k.length;
    int64_t ga = start_of(k.g, b) + i * k.g.stride[k.g.ndim - 2], oa = start_of(k.out, b) + i * k.out.stride[k.out.ndim - 2];
    T s = 0;
    for (int64_t c = lane; c < k.vsize; c += 32)
      s += amp_load<T>(k.g.p, k.g.dtype, ga + c * k.g.stride[k.g.ndim - 1]) * amp_load<T>(k.out.p, k.out.dtype, oa + c * k.out.stride[k.out.ndim - 1]);
    s = amp_reduce_warp<amp_sum>(s);
    if (lane == 0) ((T *)k.delta)[r] = s;
  }
}

template <class T, int W, int WHAT> __global__ void __launch_bounds__(THREADS, 2) attend_back(const job k)
{
  __shared__ T x[TILE][TILE + 1], y[TILE][TILE + 1], w[TILE][TILE + 1], z[TILE][W + 1];
  const bool queries = WHAT == DQ; /* the block's rows */
  const int64_t rows = queries ? k.length : k.keys, others = queries ? k.keys : k.length;
  const int64_t tiles = (rows + TILE - 1) / TILE, b = blockIdx.x / tiles, r0 = (blockIdx.x - b * tiles) * TILE, c0 = (int64_t)blockIdx.y * W;
  const int64_t qat = start_of(k.q, b), kat = start_of(k.k, b), vat = start_of(k.v, b), gat = start_of(k.g, b), mat = start_of(k.mask, b);
  const int r = threadIdx.x >> 3, c = threadIdx.x & 7;
  const int64_t from = !queries && k.causal ? r0 / TILE * TILE : 0, to = queries && k.causal && r0 + TILE < others ? r0 + TILE : others;
  T acc[W / 8];
#pragma unroll
  for (int p = 0; p < W / 8; p++) acc[p] = 0;
  for (int64_t o0 = from; o0 < to; o0 += TILE) {
    T s[PER], d[PER];
#pragma unroll
    for (int p = 0; p < PER; p++) s[p] = d[p] = 0;
    if (queries) {
      dots(s, x, y, k.q, qat, r0, k.length, (T)k.scale, k.k, kat, o0, k.keys, k.size);
      dots(d, x, y, k.g, gat, r0, k.length, (T)1, k.v, vat, o0, k.keys, k.vsize);
    } else {
      dots(s, x, y, k.k, kat, r0, k.keys, (T)k.scale, k.q, qat, o0, k.length, k.size);
      if (WHAT == DK) dots(d, x, y, k.v, vat, r0, k.keys, (T)1, k.g, gat, o0, k.length, k.vsize);
    }
#pragma unroll
    for (int p = 0; p < PER; p++) {
      int64_t i = queries ? r0 + r : o0 + c + 8 * p, j = queries ? o0 + c + 8 * p : r0 + r;
      T e = 0;
      if (i < k.length && j < k.keys && !(k.causal && j > i)) {
        T lse = ((const T *)k.lse)[b * k.length + i];
        if (lse != -(T)INFINITY) {
          e = exp(masked(k, mat, i, j, s[p]) - lse);
          if (WHAT != DV) e *= d[p] - ((const T *)k.delta)[b * k.length + i];
        }
      }
      w[r][c + 8 * p] = e;
    }
    if (WHAT == DQ) tile<W>(z, k.k, kat, o0, k.keys, c0, k.size, (T)k.scale);
    else if (WHAT == DK) tile<W>(z, k.q, qat, o0, k.length, c0, k.size, (T)k.scale);
    else tile<W>(z, k.g, gat, o0, k.length, c0, k.vsize, (T)1);
    __syncthreads();
    product<W>(acc, w, z);
    __syncthreads();
  }
  if (r0 + r >= rows) return;
  const int64_t at = start_of(k.y, b) + (r0 + r) * k.y.stride[k.y.ndim - 2], columns = WHAT == DV ? k.vsize : k.size;
#pragma unroll
  for (int p = 0; p < W / 8; p++) {
    int64_t col = c0 + c + 8 * p;
    if (col < columns) amp_store<T>(k.y.p, k.y.dtype, at + col * k.y.stride[k.y.ndim - 1], acc[p]);
  }
}

/* -- Calls ------------------------------------------------------------------------------------------ */

static job begin(amp_tensor *const *in, const amp_tensor *mask, bool causal, double scale)
{
  job k;
  memset((void *)&k, 0, sizeof k);
  const amp_tensor *q = in[0];
  int n = q->ndim;
  k.q = amp_arg_of(q);
  k.k = amp_arg_of(in[1]);
  k.v = amp_arg_of(in[2]);
  k.mask = amp_arg_of(mask);
  k.length = q->size[n - 2];
  k.size = q->size[n - 1];
  k.keys = in[1]->size[n - 2];
  k.vsize = in[2]->size[n - 1];
  k.batch = 1;
  for (int d = 0; d < n - 2; d++) k.batch *= q->size[d];
  k.scale = scale;
  k.causal = causal;
  return k;
}
static int type_of(const amp_tensor *t) { return t->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32; }

static int blocks(const job *k, int64_t rows, int64_t columns, int width, dim3 *grid)
{
  int64_t x = (rows + TILE - 1) / TILE * k->batch, y = columns > 0 ? (columns + width - 1) / width : 1;
  if (x > 0x7fffffff || y > 65535) return amp__fail(AMP_E_UNSUPPORTED, "attention of %lld batches of %lld rows of %lld values is too large for a GPU", (long long)k->batch, (long long)rows, (long long)columns);
  *grid = dim3((unsigned)x, (unsigned)y);
  return 0;
}

template <int WHAT> static int gradient(job &k, int type, const amp_tensor *t)
{
  dim3 grid;
  int64_t rows = WHAT == DQ ? k.length : k.keys, columns = WHAT == DV ? k.vsize : k.size;
  int width = type == AMP_FLOAT32 && columns > 64 ? 128 : 64, rc = blocks(&k, rows, columns, width, &grid);
  if (t->numel == 0 || rc < 0) return rc;
  k.y = amp_arg_of(t);
  if (type == AMP_FLOAT64) AMP_LAUNCH((attend_back<double, 64, WHAT>), grid, THREADS, 0, k);
  else if (width == 128) AMP_LAUNCH((attend_back<float, 128, WHAT>), grid, THREADS, 0, k);
  else AMP_LAUNCH((attend_back<float, 64, WHAT>), grid, THREADS, 0, k);
  return 0;
}

} // namespace

extern "C" {

int amp__cuda_attention(amp_call *c)
{
  amp_tensor *out = c->out[0], *lse = c->out[1], *l;
  int type = type_of(c->in[0]), width, rc = amp_flash_forward(c);
  if (rc <= 0) return rc;
  job k = begin(c->in, c->nin > 3 ? c->in[3] : NULL, c->a[0].i != 0, c->a[1].f);
  dim3 grid;
  if (k.batch == 0 || k.length == 0) return 0;
  width = type == AMP_FLOAT32 && k.vsize > 64 ? 128 : 64;
  if ((rc = blocks(&k, k.length, k.vsize, width, &grid)) < 0) return rc;
  if (!(l = amp_take(lse, type))) return AMP_E_MEMORY;
  k.out = amp_arg_of(out);
  k.lse = amp__data(l);
  if (type == AMP_FLOAT64) AMP_LAUNCH((attend<double, 64>), grid, THREADS, 0, k);
  else if (width == 128) AMP_LAUNCH((attend<float, 128>), grid, THREADS, 0, k);
  else AMP_LAUNCH((attend<float, 64>), grid, THREADS, 0, k);
  return amp_give(lse, l, 0);
}

/* grad query key value out lse attn_mask? */
int amp__cuda_attention_backward(amp_call *c)
{
  amp_tensor *lse = NULL, *s = NULL;
  int type = type_of(c->in[1]), rc = amp_flash_backward(c);
  if (rc <= 0) return rc;
  job k = begin(c->in + 1, c->nin > 6 ? c->in[6] : NULL, c->a[0].i != 0, c->a[1].f);
  if (k.batch == 0 || k.length == 0) { /* no query: no gradient for keys either */
    if ((rc = amp__cuda_fill_value(c->out[1], 0)) < 0) return rc;
    return amp__cuda_fill_value(c->out[2], 0);
  }
  if (!(lse = amp__cuda_dense(c->in[5], type)) || !(s = amp__cuda_scratch((size_t)k.batch * (size_t)k.length * amp__dtype_size[type]))) { amp__free(lse); return AMP_E_MEMORY; }
  k.g = amp_arg_of(c->in[0]);
  k.out = amp_arg_of(c->in[4]);
  k.lse = amp__data(lse);
  k.delta = amp__data(s);
  amp_by_float(type, [&](auto zero) {
    AMP_LAUNCH((deltas<decltype(zero)>), amp_grid(k.batch * k.length, 8), 256, 0, k);
    return 0;
  });
  rc = gradient<DQ>(k, type, c->out[0]);
  if (rc == 0) rc = gradient<DK>(k, type, c->out[1]);
  if (rc == 0) rc = gradient<DV>(k, type, c->out[2]);
  amp__free(lse);
  amp__free(s);
  return rc;
}

}
