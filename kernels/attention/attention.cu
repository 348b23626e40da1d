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
#include "attention/attention.cuh"

namespace {

static_assert(AMP_DROP_KEYS == 16 && AMP_DROP_QUERIES == 32, "a thread's weights share counters by 2 or by 4");
enum { TILE = 32, THREADS = 256, PER = TILE * TILE / THREADS };
enum { DQ, DK, DV };

typedef struct job {
  amp_arg q, k, v, mask, out, g, y; /* y: the gradient that a launch makes */
  void *lse, *delta;                /* [batch][length] of the computing type */
  int64_t batch, length, keys, size, vsize;
  double scale, scale_kept; /* scale_kept: of weights that dropout keeps */
  int32_t causal;
  amp_drop drop;
} job;

/* Where batch b of a starts */
__device__ __forceinline__ int64_t start_of(const amp_arg &a, int64_t b)
{
  int64_t at = 0;
  for (int d = a.ndim - 3; d >= 0; d--) {
    int64_t q = b / a.size[d];
    at += (b - q * a.size[d]) * a.stride[d];
    b = q;
  }
  return at;
}

/* rows i0.. (of n), columns c0.. (of m) of a matrix of a at `at` into a tile; 0 outside */
template <int W, class T>
__device__ __forceinline__ void tile(T (*t)[W + 1], const amp_arg &a, int64_t at, int64_t i0, int64_t n, int64_t c0,
                                     int64_t m, T f)
{
  const int64_t rs = a.stride[a.ndim - 2], cs = a.stride[a.ndim - 1];
  for (int e = threadIdx.x; e < TILE * W; e += THREADS) {
    int r = e / W, c = e % W;
    t[r][c] = i0 + r < n && c0 + c < m ? amp_load<T>(a.p, a.dtype, at + (i0 + r) * rs + (c0 + c) * cs) * f : (T)0;
  }
}

/* s[p] += rows of a . rows of b, over all `size` columns: row threadIdx.x / 8 of a, rows threadIdx.x % 8 + 8 p of b */
template <class T>
__device__ __forceinline__ void dots(T (&s)[PER], T (*x)[TILE + 1], T (*y)[TILE + 1], const amp_arg &a, int64_t aat,
                                     int64_t i0, int64_t n, T f, const amp_arg &b, int64_t bat, int64_t j0, int64_t m,
                                     int64_t size)
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
template <class T> __device__ __forceinline__ T masked(const job &task, int64_t mat, int64_t i, int64_t j, T s)
{
  if (i >= task.length || j >= task.keys || (task.causal && j > i)) return -(T)INFINITY;
  if (task.mask.p == NULL) return s;
  int64_t at = mat + i * task.mask.stride[task.mask.ndim - 2] + j * task.mask.stride[task.mask.ndim - 1];
  if (task.mask.dtype == AMP_BOOL) return ((const uint8_t *)task.mask.p)[at] ? s : -(T)INFINITY;
  return s + amp_load<T>(task.mask.p, task.mask.dtype, at);
}

/* Bit p: dropout keeps weight p of a thread's. row: of the block's queries (QUERIES) or keys, other: the first of the
** others */
template <bool QUERIES>
__device__ __forceinline__ uint32_t kept(const amp_drop &drop, const amp_drop_way &way, int64_t row, int64_t other)
{
  enum { SHARE = QUERIES ? 2 : 4 };
  uint32_t bits = 0;
  if (!drop.on) return ~0u;
#pragma unroll
  for (int p = 0; p < PER; p += SHARE) {
    const int column = (int)other + (int)(threadIdx.x & 7) + 8 * p, i = QUERIES ? (int)row : column,
              j = QUERIES ? column : (int)row;
    uint32_t w[4];
    amp_drop_words(w, drop, way, i, j, (unsigned)((i & 7) * 4 + (j >> 1 & 3)));
#pragma unroll
    for (int n = 0; n < SHARE; n++) {
      const int at = QUERIES ? n : j >> 3 & 1;
      const uint32_t even = at ? w[2] : w[0], odd = at ? w[3] : w[1];
      bits |= (uint32_t)amp_drop_keeps(drop, j & 1 ? odd : even, QUERIES ? i >> 3 & 3 : n) << (p + n);
    }
  }
  return bits;
}

/* -- Forward: grid (tiles of queries of all batches) x (columns / W) ------------------------- */

template <class T, int W> __global__ void __launch_bounds__(THREADS, 2) attend(const job task)
{
  __shared__ T x[TILE][TILE + 1], y[TILE][TILE + 1], weights[TILE][TILE + 1], values[TILE][W + 1];
  const int64_t tiles = (task.length + TILE - 1) / TILE, batch = blockIdx.x / tiles,
                first_row = (blockIdx.x - batch * tiles) * TILE, first_column = (int64_t)blockIdx.y * W;
  const int64_t qat = start_of(task.q, batch), kat = start_of(task.k, batch), vat = start_of(task.v, batch),
                mat = start_of(task.mask, batch);
  const int row = threadIdx.x >> 3, column = threadIdx.x & 7;
  const int64_t limit = task.causal && first_row + TILE < task.keys ? first_row + TILE : task.keys;
  const amp_drop_way way = amp_drop_begin(task.drop, (uint64_t)batch);
  T largest = -(T)INFINITY, total = 0, acc[W / 8];
#pragma unroll
  for (int p = 0; p < W / 8; p++) acc[p] = 0;
  for (int64_t first_key = 0; first_key < limit; first_key += TILE) {
    T s[PER], top = largest;
#pragma unroll
    for (int p = 0; p < PER; p++) s[p] = 0;
    dots(s, x, y, task.q, qat, first_row, task.length, (T)task.scale, task.k, kat, first_key, task.keys, task.size);
#pragma unroll
    for (int p = 0; p < PER; p++) {
      s[p] = masked(task, mat, first_row + row, first_key + column + 8 * p, s[p]);
      top = s[p] > top ? s[p] : top;
    }
    top = of_row<amp_most>(top);
    T base = top == -(T)INFINITY ? (T)0 : top, f = largest == top ? (T)1 : exp(largest - base), sum = 0;
    largest = top;
    const uint32_t keep = kept<true>(task.drop, way, first_row + row, first_key);
#pragma unroll
    for (int p = 0; p < PER; p++) {
      T e = exp(s[p] - base);
      weights[row][column + 8 * p] = keep >> p & 1 ? e : (T)0;
      sum += e;
    }
    total = total * f + of_row<amp_sum>(sum);
#pragma unroll
    for (int p = 0; p < W / 8; p++) acc[p] *= f;
    tile<W>(values, task.v, vat, first_key, task.keys, first_column, task.vsize, (T)1);
    __syncthreads();
    product<W>(acc, weights, values);
    __syncthreads();
  }
  if (first_row + row >= task.length) return;
  const int64_t at = start_of(task.out, batch) + (first_row + row) * task.out.stride[task.out.ndim - 2],
                cs = task.out.stride[task.out.ndim - 1];
  const T inv = total == 0 ? (T)0 : (T)task.scale_kept / total;
#pragma unroll
  for (int p = 0; p < W / 8; p++) {
    int64_t col = first_column + column + 8 * p;
    if (col < task.vsize) amp_store<T>(task.out.p, task.out.dtype, at + col * cs, acc[p] * inv);
  }
  if (column == 0 && blockIdx.y == 0)
    ((T *)task.lse)[batch * task.length + first_row + row] = total == 0 ? -(T)INFINITY : largest + log(total);
}

/* -- Backward ---------------------------------------------------------------------------------- */

/* sum over the columns of g out, a warp a row */
template <class T> __global__ void __launch_bounds__(256) deltas(const job task)
{
  const int lane = threadIdx.x & 31;
  for (int64_t r = (int64_t)blockIdx.x * 8 + (threadIdx.x >> 5); r < task.batch * task.length;
       r += (int64_t)gridDim.x * 8) {
    int64_t batch = r / task.length, i = r - batch * task.length;
    int64_t ga = start_of(task.g, batch) + i * task.g.stride[task.g.ndim - 2],
            oa = start_of(task.out, batch) + i * task.out.stride[task.out.ndim - 2];
    T s = 0;
    for (int64_t c = lane; c < task.vsize; c += 32)
      s += amp_load<T>(task.g.p, task.g.dtype, ga + c * task.g.stride[task.g.ndim - 1])
           * amp_load<T>(task.out.p, task.out.dtype, oa + c * task.out.stride[task.out.ndim - 1]);
    s = amp_reduce_warp<amp_sum>(s);
    if (lane == 0) ((T *)task.delta)[r] = s;
  }
}

template <class T, int W, int WHAT> __global__ void __launch_bounds__(THREADS, 2) attend_back(const job task)
{
  __shared__ T x[TILE][TILE + 1], y[TILE][TILE + 1], w[TILE][TILE + 1], z[TILE][W + 1];
  const bool queries = WHAT == DQ; /* the block's rows */
  const int64_t rows = queries ? task.length : task.keys, others = queries ? task.keys : task.length;
  const int64_t tiles = (rows + TILE - 1) / TILE, batch = blockIdx.x / tiles,
                first_row = (blockIdx.x - batch * tiles) * TILE, first_column = (int64_t)blockIdx.y * W;
  const int64_t qat = start_of(task.q, batch), kat = start_of(task.k, batch), vat = start_of(task.v, batch),
                gat = start_of(task.g, batch), mat = start_of(task.mask, batch);
  const int row = threadIdx.x >> 3, column = threadIdx.x & 7;
  const amp_drop_way way = amp_drop_begin(task.drop, (uint64_t)batch);
  const int64_t from = !queries && task.causal ? first_row / TILE * TILE : 0,
                to = queries && task.causal && first_row + TILE < others ? first_row + TILE : others;
  T acc[W / 8];
#pragma unroll
  for (int p = 0; p < W / 8; p++) acc[p] = 0;
  for (int64_t first_other = from; first_other < to; first_other += TILE) {
    T s[PER], d[PER];
#pragma unroll
    for (int p = 0; p < PER; p++) s[p] = d[p] = 0;
    if (queries) {
      dots(s, x, y, task.q, qat, first_row, task.length, (T)task.scale, task.k, kat, first_other, task.keys, task.size);
      dots(d, x, y, task.g, gat, first_row, task.length, (T)1, task.v, vat, first_other, task.keys, task.vsize);
    } else {
      dots(s, x, y, task.k, kat, first_row, task.keys, (T)task.scale, task.q, qat, first_other, task.length, task.size);
      if (WHAT == DK)
        dots(d, x, y, task.v, vat, first_row, task.keys, (T)1, task.g, gat, first_other, task.length, task.vsize);
    }
    const uint32_t keep = kept<WHAT == DQ>(task.drop, way, first_row + row, first_other);
#pragma unroll
    for (int p = 0; p < PER; p++) {
      int64_t i = queries ? first_row + row : first_other + column + 8 * p,
              j = queries ? first_other + column + 8 * p : first_row + row;
      T e = 0;
      if (i < task.length && j < task.keys && !(task.causal && j > i)) {
        T lse = ((const T *)task.lse)[batch * task.length + i];
        if (lse != -(T)INFINITY) {
          e = exp(masked(task, mat, i, j, s[p]) - lse);
          const bool drops = !(keep >> p & 1);
          if (WHAT != DV)
            e *= (drops ? (T)0 : d[p] * (T)task.scale_kept) - ((const T *)task.delta)[batch * task.length + i];
          else e = drops ? (T)0 : e * (T)task.scale_kept;
        }
      }
      w[row][column + 8 * p] = e;
    }
    if (WHAT == DQ) tile<W>(z, task.k, kat, first_other, task.keys, first_column, task.size, (T)task.scale);
    else if (WHAT == DK) tile<W>(z, task.q, qat, first_other, task.length, first_column, task.size, (T)task.scale);
    else tile<W>(z, task.g, gat, first_other, task.length, first_column, task.vsize, (T)1);
    __syncthreads();
    product<W>(acc, w, z);
    __syncthreads();
  }
  if (first_row + row >= rows) return;
  const int64_t at = start_of(task.y, batch) + (first_row + row) * task.y.stride[task.y.ndim - 2],
                columns = WHAT == DV ? task.vsize : task.size;
#pragma unroll
  for (int p = 0; p < W / 8; p++) {
    int64_t col = first_column + column + 8 * p;
    if (col < columns) amp_store<T>(task.y.p, task.y.dtype, at + col * task.y.stride[task.y.ndim - 1], acc[p]);
  }
}

/* A thread an element */
__global__ void draw_kept(uint8_t *to, int64_t n, int64_t length, int64_t keys, const amp_drop drop)
{
  AMP_FOR(e, n)
  {
    const int64_t row = e / keys, batch = row / length;
    to[e] = amp_drop_keeps_at(drop, amp_drop_begin(drop, (uint64_t)batch), (int)(row - batch * length),
                              (int)(e - row * keys));
  }
}

/* -- Calls ------------------------------------------------------------------------------------------ */

static job begin(amp_tensor *const *in, const amp_tensor *mask, bool causal, double scale, double p)
{
  job task;
  memset((void *)&task, 0, sizeof task);
  const amp_tensor *q = in[0];
  int n = q->ndim;
  task.q = amp_arg_of(q);
  task.k = amp_arg_of(in[1]);
  task.v = amp_arg_of(in[2]);
  task.mask = amp_arg_of(mask);
  task.length = q->size[n - 2];
  task.size = q->size[n - 1];
  task.keys = in[1]->size[n - 2];
  task.vsize = in[2]->size[n - 1];
  task.batch = 1;
  for (int d = 0; d < n - 2; d++) task.batch *= q->size[d];
  task.scale = scale;
  task.causal = causal;
  task.drop.on = p > 0;
  task.scale_kept = p < 1 ? 1 / (1 - p) : 0;
  return task;
}
static int type_of(const amp_tensor *t) { return t->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32; }

static int blocks(const job *task, int64_t rows, int64_t columns, int width, dim3 *grid)
{
  int64_t x = (rows + TILE - 1) / TILE * task->batch, y = columns > 0 ? (columns + width - 1) / width : 1;
  if (x > 0x7fffffff || y > 65535)
    return amp__fail(AMP_E_UNSUPPORTED, "attention of %lld batches of %lld rows of %lld values is too large for a GPU",
                     (long long)task->batch, (long long)rows, (long long)columns);
  *grid = dim3((unsigned)x, (unsigned)y);
  return 0;
}

template <int WHAT> static int gradient(job &task, int type, const amp_tensor *t)
{
  dim3 grid;
  int64_t rows = WHAT == DQ ? task.length : task.keys, columns = WHAT == DV ? task.vsize : task.size;
  int width = type == AMP_FLOAT32 && columns > 64 ? 128 : 64, rc = blocks(&task, rows, columns, width, &grid);
  if (t->numel == 0 || rc < 0) return rc;
  task.y = amp_arg_of(t);
  if (type == AMP_FLOAT64) AMP_LAUNCH((attend_back<double, 64, WHAT>), grid, THREADS, 0, task);
  else if (width == 128) AMP_LAUNCH((attend_back<float, 128, WHAT>), grid, THREADS, 0, task);
  else AMP_LAUNCH((attend_back<float, 64, WHAT>), grid, THREADS, 0, task);
  return 0;
}

} // namespace

extern "C" {

int amp__cuda_attention(amp_call *c)
{
  const args_attention *args = AMP_ARGS(c, attention);
  amp_tensor *out = c->out[0], *lse = c->out[1], *l;
  job task = begin(c->in, c->nin > 3 ? c->in[3] : NULL, args->is_causal != 0, args->scale, args->dropout_p);
  if (task.drop.on) task.drop = amp_drop_new(args->dropout_p, c->out[2], task.batch, task.length, task.keys);
  int type = type_of(c->in[0]), width, rc = amp_flash_forward(c, &task.drop);
  if (rc <= 0) return rc;
  dim3 grid;
  if (task.batch == 0 || task.length == 0) return 0;
  width = type == AMP_FLOAT32 && task.vsize > 64 ? 128 : 64;
  if ((rc = blocks(&task, task.length, task.vsize, width, &grid)) < 0) return rc;
  if (!(l = amp_take(lse, type))) return AMP_E_MEMORY;
  task.out = amp_arg_of(out);
  task.lse = amp__data(l);
  if (type == AMP_FLOAT64) AMP_LAUNCH((attend<double, 64>), grid, THREADS, 0, task);
  else if (width == 128) AMP_LAUNCH((attend<float, 128>), grid, THREADS, 0, task);
  else AMP_LAUNCH((attend<float, 64>), grid, THREADS, 0, task);
  return amp_give(lse, l, 0);
}

/* grad query key value out lse attn_mask? draw? */
int amp__cuda_attention_backward(amp_call *c)
{
  const args_attention_backward *args = AMP_ARGS(c, attention_backward);
  amp_tensor *lse = NULL, *s = NULL;
  job task = begin(c->in + 1, c->nin > 6 ? c->in[6] : NULL, args->is_causal != 0, args->scale, args->dropout_p);
  if (task.drop.on) task.drop = amp_drop_again(args->dropout_p, c->in[7], task.length, task.keys);
  int type = type_of(c->in[1]), rc = amp_flash_backward(c, &task.drop);
  if (rc <= 0) return rc;
  if (task.batch == 0 || task.length == 0) { /* no query: no gradient for keys either */
    if ((rc = amp__cuda_fill_value(c->out[1], 0)) < 0) return rc;
    return amp__cuda_fill_value(c->out[2], 0);
  }
  if (!(lse = amp__cuda_dense(c->in[5], type))
      || !(s = amp__cuda_scratch((size_t)task.batch * (size_t)task.length * amp__dtype_size[type]))) {
    amp__free(lse);
    return AMP_E_MEMORY;
  }
  task.g = amp_arg_of(c->in[0]);
  task.out = amp_arg_of(c->in[4]);
  task.lse = amp__data(lse);
  task.delta = amp__data(s);
  amp_by_float(type, [&](auto zero) {
    AMP_LAUNCH((deltas<decltype(zero)>), amp_grid(task.batch * task.length, 8), 256, 0, task);
    return 0;
  });
  rc = gradient<DQ>(task, type, c->out[0]);
  if (rc == 0) rc = gradient<DK>(task, type, c->out[1]);
  if (rc == 0) rc = gradient<DV>(task, type, c->out[2]);
  amp__free(lse);
  amp__free(s);
  return rc;
}

/* query key draw */
int amp__cuda_attention_kept(amp_call *c)
{
  const double p = AMP_ARGS(c, attention_kept)->dropout_p;
  const amp_tensor *q = c->in[0];
  amp_tensor *out = c->out[0], *y;
  const int64_t length = q->size[q->ndim - 2], keys = c->in[1]->size[q->ndim - 2];
  if (out->numel == 0) return 0;
  if (p == 0 || p == 1) return amp__cuda_fill_value(out, p == 0);
  if (!(y = amp_take(out, AMP_BOOL))) return AMP_E_MEMORY;
  AMP_LAUNCH(draw_kept, amp_grid(y->numel, 256), 256, 0, AMP_DATA(uint8_t, y), y->numel, length, keys,
             amp_drop_again(p, c->in[2], length, keys));
  return amp_give(out, y, 0);
}
}
