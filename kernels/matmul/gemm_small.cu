/*
** gemm_small.cu: small products of 16-bit matrices in one launch, on tensor cores:
** layers of a few dozen units, for which a library takes longer to decide than a
** card to compute, and often splits the inner dimension over a second launch.
**
** A block has 32 x 32 of the result and all of the inner dimension (at most 256)
** in shared memory; four warps of 16 x 16. What decides is how long a block waits,
** so everything is asked for at once: a dimension without gaps arrives as it lies,
** 16 bytes at a time in the background, and ldmatrix turns what lies across. Any
** other strides are read element by element. In the same launch: bias, ReLU or GELU
** (its argument goes to aux), or the sums of A's rows. A mask for A (backward of a
** ReLU before the product) arrives beside it; each thread clears what it fetched
** itself, so no block waits for that. Two products that are there at the same time can
** share a launch. What is as layers' matrices mostly are (`quick`) has kernels of few
** instructions, with the same bits. From compute capability 8.0 on.
*/
#include "common/kernel.cuh"
#include "common/math.cuh"
#include "matmul/gemm_quick.cuh"
#include "../src/cuda/cuda_gemm.h"

namespace {

typedef struct job {
  const char *a, *b, *bias, *mask;
  char *c, *aux, *sums;
  int64_t ars, acs, brs, bcs, crs, ccs, mrs, mcs;
  int32_t m, n, k, pitch;                              /* bytes from row to row of a tile in shared memory */
  int32_t ahow, bhow, epilogue, abytes, bbytes, pairs; /* pairs: two of a row of c are stored at once */
} job;

typedef struct job_pair {
  job j[2];
  int32_t first;
} job_pair; /* first: rows of blocks of the first one */

#if AMP_MMA
/* rows from.. (of `rows`, else 0) of a matrix with k columns into shared memory, columns behind k being 0: row by row,
** or column by column where they lie so */
__device__ __forceinline__ void fetch(char *tile, int pitch, const char *matrix, int how, int64_t row_step,
                                      int64_t column_step, int from, int rows, int k)
{
  const int padded = pitch / 2 - 8;
  if (how == ALONG) {
    const int r = threadIdx.x >> 2;
    const char *q = matrix + (from + r) * row_step * 2;
    const amp_at at = amp_at_of(tile) + r * pitch;
    for (int c = (threadIdx.x & 3) * 8; c < padded; c += 32) {
      const bool there = from + r < rows && c < k;
      amp_copy16(at + c * 2, there ? q + c * 2 : matrix, there);
    }
  } else if (how == ACROSS) {
    const int r = (threadIdx.x & 3) * 8;
    const amp_at at = amp_at_of(tile) + r * 2;
    for (int c = threadIdx.x >> 2; c < padded; c += THREADS / 4) {
      const bool there = from + r < rows && c < k;
      amp_copy16(at + c * TURNED, there ? matrix + (from + r + c * column_step) * 2 : matrix, there);
    }
  } else
    for (int e = threadIdx.x; e < TILE * padded; e += THREADS) {
      int r = e / padded, c = e - r * padded;
      *(uint16_t *)(tile + r * pitch + c * 2)
          = from + r < rows && c < k ? *(const uint16_t *)(matrix + ((from + r) * row_step + c * column_step) * 2)
                                     : (uint16_t)0;
    }
}

/* The 16 bytes at `at` of a tile, where the mask's tile says so */
template <bool BF> __device__ __forceinline__ void clear16(char *tile, const char *mask, int at)
{
  *(uint4 *)(tile + at) = let<BF>(*(uint4 *)(tile + at), *(const uint4 *)(mask + at));
}

/* All that this thread fetched, so its own copies need not be waited for by others */
template <bool BF> __device__ __forceinline__ void clear(char *tile, const char *mask, int pitch, int how)
{
  const int padded = pitch / 2 - 8;
  if (how == ALONG)
    for (int c = (threadIdx.x & 3) * 8; c < padded; c += 32)
      clear16<BF>(tile, mask, (threadIdx.x >> 2) * pitch + c * 2);
  else if (how == ACROSS)
    for (int c = threadIdx.x >> 2; c < padded; c += THREADS / 4)
      clear16<BF>(tile, mask, c * TURNED + (threadIdx.x & 3) * 16);
  else
    for (int e = threadIdx.x; e < TILE * padded; e += THREADS) {
      const int r = e / padded, at = r * pitch + (e - r * padded) * 2;
      *(uint16_t *)(tile + at) &= (uint16_t)above<BF>(*(const uint16_t *)(mask + at));
    }
}

template <bool BF> __device__ __forceinline__ void put(const job &task, char *to, int i, int l, float v0, float v1)
{
  const int64_t at = i * task.crs + l * task.ccs;
  if (task.pairs) {
    *(unsigned *)(to + at * 2) = amp_pack<BF>(v0, v1);
    return;
  }
  amp_store<float>(to, BF ? AMP_BFLOAT16 : AMP_FLOAT16, at, v0);
  if (l + 1 < task.n) amp_store<float>(to, BF ? AMP_BFLOAT16 : AMP_FLOAT16, at + task.ccs, v1);
}

/* The bias of the four columns of c that a thread has: two pairs, 8 columns apart; column: the first of them */
__device__ __forceinline__ void read_bias(float (&bias)[2][2], const job &task, int dtype, int column)
{
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const int l = column + (e >> 1) * 8 + (e & 1);
    if (l < task.n) bias[e >> 1][e & 1] = amp_load<float>(task.bias, dtype, l);
  }
}

/* A thread's 8 values to memory, with bias and activation; row, column: of the first of them */
template <bool BF>
__device__ __forceinline__ void put_tile(const job &task, const float (&c)[2][4], const float (&bias)[2][2], int row,
                                         int column)
{
#pragma unroll
  for (int t = 0; t < 2; t++) {
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const int i = row + (e >> 1) * 8, l = column + t * 8;
      if (i >= task.m || l >= task.n) continue;
      float v[2] = { c[t][e], c[t][e + 1] };
      if (task.bias) {
        v[0] += bias[t][0];
        v[1] += bias[t][1];
      }
      switch ((amp_epilogue)task.epilogue) {
      case AMP_EPI_GELU:
        put<BF>(task, task.aux, i, l, v[0], v[1]);
        v[0] = amp_gelu_tanh(v[0]);
        v[1] = amp_gelu_tanh(v[1]);
        break;
      case AMP_EPI_RELU:
        v[0] = v[0] < 0 ? 0.f : v[0];
        v[1] = v[1] < 0 ? 0.f : v[1];
        break;
      case AMP_EPI_NONE:
      case AMP_EPI_BIAS:
      case AMP_EPI_SUMS: break;
      }
      put<BF>(task, task.c, i, l, v[0], v[1]);
    }
  }
}

/* 32 x 32 of c, from row i0 on: a warp 16 x 16 */
template <bool BF> __device__ __forceinline__ void make(const job &task, int first_row)
{
  const int dtype = BF ? AMP_BFLOAT16 : AMP_FLOAT16;
  const int first_column = (int)blockIdx.x * TILE;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, rows = (warp >> 1) * 16, columns = (warp & 1) * 16;
  AMP_SHARED(char, shared);
  char *tile_a = shared, *tile_b = shared + task.abytes;
  fetch(tile_a, task.pitch, task.a, task.ahow, task.ars, task.acs, first_row, task.m, task.k);
  if (task.mask)
    fetch(tile_b + task.bbytes, task.pitch, task.mask, task.ahow, task.mrs, task.mcs, first_row, task.m, task.k);
  fetch(tile_b, task.pitch, task.b, task.bhow, task.bcs, task.brs, first_column, task.n, task.k);
  amp_copy_commit();
  float bias[2][2] = { { 0, 0 }, { 0, 0 } };
  if (task.bias) read_bias(bias, task, dtype, first_column + columns + (lane & 3) * 2);
  const bool aturned = task.ahow == ACROSS, bturned = task.bhow == ACROSS;
  amp_at lane_a = amp_at_of(tile_a)
                  + (aturned ? rows * 2 + amp_lane_b(lane, TURNED) : rows * task.pitch + amp_lane_a(lane, task.pitch));
  amp_at lane_b
      = amp_at_of(tile_b)
        + (bturned ? columns * 2 + amp_lane_a(lane, TURNED) : columns * task.pitch + amp_lane_b(lane, task.pitch));
  float c[2][4] = { { 0, 0, 0, 0 }, { 0, 0, 0, 0 } };
  amp_copy_wait<0>();
  if (task.mask) clear<BF>(tile_a, tile_b + task.bbytes, task.pitch, task.ahow);
  __syncthreads();
#pragma unroll 4
  for (int k = 0; k < task.k; k += 16) {
    unsigned x[4], y[4];
    if (aturned) amp_ldmatrix_turned(x, lane_a);
    else amp_ldmatrix(x, lane_a);
    if (bturned) amp_ldmatrix_turned(y, lane_b);
    else amp_ldmatrix(y, lane_b);
    lane_a += aturned ? 16 * TURNED : 32;
    lane_b += bturned ? 16 * TURNED : 32;
    amp_mma<BF>(c[0], x, y[0], y[1]);
    amp_mma<BF>(c[1], x, y[2], y[3]);
  }
  put_tile<BF>(task, c, bias, first_row + rows + (lane >> 2), first_column + columns + (lane & 3) * 2);
  if (task.epilogue == AMP_EPI_SUMS) {
    const int r = threadIdx.x >> 2, first = aturned ? r : r * task.pitch / 2, step = aturned ? TURNED / 2 : 1;
    float s = 0;
#pragma unroll 4
    for (int k = threadIdx.x & 3; k < task.k; k += 4) s += amp_load<float>(tile_a, dtype, first + k * step);
    put_sum<BF>(s, task.m, first_row, task.sums);
  }
}

#endif

/* -- Kernels ---------------------------------------------------------------------------- */

template <bool BF> __global__ void __launch_bounds__(THREADS) small(const __grid_constant__ job task)
{
#if AMP_MMA
  make<BF>(task, (int)blockIdx.y * TILE);
#endif
}

template <bool BF> __global__ void __launch_bounds__(THREADS) small_pair(const __grid_constant__ job_pair p)
{
#if AMP_MMA
  const bool second = (int)blockIdx.y >= p.first;
  make<BF>(p.j[second], ((int)blockIdx.y - (second ? p.first : 0)) * TILE);
#endif
}

template <bool BF, int A, int B, bool SUMS>
__global__ void __launch_bounds__(THREADS, 4) small_quick(const __grid_constant__ quick_job task)
{
#if AMP_MMA
  quick<BF, A, B, SUMS>(task, (int)blockIdx.y * TILE);
#endif
}

/* A layer's two: gradients of its input and of its weight */
template <bool BF> __global__ void __launch_bounds__(THREADS, 4) small_quick_pair(const __grid_constant__ quick_pair p)
{
#if AMP_MMA
  if ((int)blockIdx.y < p.rows) quick<BF, ALONG, ACROSS, false>(p.first, (int)blockIdx.y * TILE);
  else quick<BF, ACROSS, ACROSS, true>(p.second, ((int)blockIdx.y - p.rows) * TILE);
#endif
}

/* -- What is launched --------------------------------------------------------------------- */

/* rows x k, strides rs and cs */
int how(const char *p, int64_t rows, int64_t k, int64_t rs, int64_t cs)
{
  if ((uintptr_t)p & 15) return ONE;
  if (cs == 1 && rs % 8 == 0 && k % 8 == 0) return ALONG;
  if (rs == 1 && cs % 8 == 0 && rows % 8 == 0) return ACROSS;
  return ONE;
}

/* of a tile in shared memory */
int bytes(const job &task, int how) { return how == ACROSS ? (task.pitch / 2 - 8) * TURNED : task.pitch * TILE; }

} // namespace

bool amp_mma_here(void)
{
  static signed char known[AMP_CUDA_MAX]; /* 1: no, 2: yes */
  amp_cuda_device *device = amp__cuda_here();
  int state = __atomic_load_n(&known[device->index], __ATOMIC_RELAXED);
  if (state) return state == 2;
  state = device->cc >= 80 ? 2 : 1;
#ifndef AMP_EMULATED
  cudaFuncAttributes attributes;
  if (state == 2) {
    if (cudaFuncGetAttributes(&attributes, small<true>) != cudaSuccess) {
      cudaGetLastError();
      return false;
    } /* not to be told now */
    if (attributes.ptxVersion < 80) state = 1;
  }
#endif
  __atomic_store_n(&known[device->index], (signed char)state, __ATOMIC_RELAXED);
  return state == 2;
}

namespace {

typedef struct plan {
  job j;
  unsigned rows, columns;
  size_t shared;
} plan; /* of blocks */

bool plan_of(const amp_product *product, plan &planned)
{
  bool half = product->dtype == AMP_FLOAT16 || product->dtype == AMP_BFLOAT16;
  if (!half || product->nbatch > 0 || product->k == 0 || product->k > MOST_K || product->m > 4096 || product->n > 4096
      || product->m * product->n * product->k > 1 << 21 || !amp_mma_here())
    return false;
  job &task = planned.j;
  memset((void *)&task, 0, sizeof task);
  task.a = product->a;
  task.b = product->b;
  task.bias = product->bias;
  task.c = product->c;
  task.aux = product->aux;
  task.sums = product->sums;
  task.ars = product->ars;
  task.acs = product->acs;
  task.brs = product->brs;
  task.bcs = product->bcs;
  task.crs = product->crs;
  task.ccs = product->ccs;
  task.m = (int32_t)product->m;
  task.n = (int32_t)product->n;
  task.k = (int32_t)product->k;
  task.pitch = ((task.k + 15) / 16 * 16 + 8) * 2;
  task.ahow = how(product->a, product->m, product->k, product->ars, product->acs);
  task.bhow = how(product->b, product->n, product->k, product->bcs, product->brs);
  if (product->mask) { /* its tile as A's */
    task.mask = product->mask;
    task.mrs = product->mrs;
    task.mcs = product->mcs;
    if (how(product->mask, product->m, product->k, product->mrs, product->mcs) != task.ahow) task.ahow = ONE;
  }
  task.epilogue = product->epilogue;
  task.abytes = bytes(task, task.ahow);
  task.bbytes = bytes(task, task.bhow);
  task.pairs = product->ccs == 1 && product->crs % 2 == 0 && product->n % 2 == 0
               && (((uintptr_t)product->c | (uintptr_t)product->aux) & 3) == 0;
  planned.columns = (unsigned)((product->n + TILE - 1) / TILE);
  planned.rows = (unsigned)((product->m + TILE - 1) / TILE);
  planned.shared = (size_t)(task.abytes + task.bbytes + (product->mask ? task.abytes : 0));
  return planned.shared <= MOST_SHARED;
}

/* Bytes from line to line of an operand, if 32 bits hold all its offsets, else 0 */
int line(int how, int64_t rs, int64_t cs)
{
  int64_t n = how == ALONG ? rs : cs;
  return n > 0 && n < 1 << 17 ? (int)n * 2 : 0;
}

bool quick_of(const plan &planned, quick_job &made)
{
  const job &task = planned.j;
  made.a = task.a;
  made.b = task.b;
  made.mask = task.mask;
  made.bias = task.bias;
  made.c = task.c;
  made.sums = task.sums;
  made.m = task.m;
  made.n = task.n;
  made.k = task.k;
  made.relu = task.epilogue == AMP_EPI_RELU;
  made.aline = line(task.ahow, task.ars, task.acs);
  made.bline = line(task.bhow, task.bcs, task.brs);
  made.mline = task.mask ? line(task.ahow, task.mrs, task.mcs) : 0;
  made.cline = line(ALONG, task.crs, 1);
  return task.ahow != ONE && task.bhow != ONE && task.pairs && task.k % 16 == 0 && task.k <= QUICK_K
         && task.epilogue != AMP_EPI_GELU && ((uintptr_t)task.bias & 3) == 0 && made.aline && made.bline && made.cline
         && (!task.mask || made.mline);
}

size_t quick_shared(const quick_job &task) { return (size_t)QUICK_TILE * (task.mask ? 3 : 2); }

template <bool BF> void launch(const plan &planned)
{
  const dim3 grid(planned.columns, planned.rows);
  quick_job task;
  if (quick_of(planned, task)) {
    const int as = planned.j.ahow, bs = planned.j.bhow;
    const bool sums = planned.j.epilogue == AMP_EPI_SUMS;
    if (as == ALONG && bs == ALONG && !sums) {
      AMP_LAUNCH((small_quick<BF, ALONG, ALONG, false>), grid, THREADS, quick_shared(task), task);
      return;
    }
    if (as == ALONG && bs == ACROSS && !sums) {
      AMP_LAUNCH((small_quick<BF, ALONG, ACROSS, false>), grid, THREADS, quick_shared(task), task);
      return;
    }
    if (as == ACROSS && bs == ACROSS && sums) {
      AMP_LAUNCH((small_quick<BF, ACROSS, ACROSS, true>), grid, THREADS, quick_shared(task), task);
      return;
    }
  }
  AMP_LAUNCH(small<BF>, grid, THREADS, planned.shared, planned.j);
}

template <bool BF> void launch_pair(const plan &first, const plan &second)
{
  const dim3 grid(first.columns, first.rows + second.rows);
  quick_pair q;
  if (first.j.ahow == ALONG && first.j.bhow == ACROSS && second.j.ahow == ACROSS && second.j.bhow == ACROSS
      && first.j.epilogue == AMP_EPI_NONE && second.j.epilogue == AMP_EPI_SUMS && quick_of(first, q.first)
      && quick_of(second, q.second)) {
    q.rows = (int32_t)first.rows;
    AMP_LAUNCH(small_quick_pair<BF>, grid, THREADS, quick_shared(q.first), q);
    return;
  }
  job_pair p;
  p.j[0] = first.j;
  p.j[1] = second.j;
  p.first = (int32_t)first.rows;
  AMP_LAUNCH(small_pair<BF>, grid, THREADS, first.shared > second.shared ? first.shared : second.shared, p);
}

} // namespace

extern "C" int amp__cuda_gemm_small(const amp_product *product)
{
  plan l;
  if (!plan_of(product, l)) return 1;
  if (product->dtype == AMP_BFLOAT16) launch<true>(l);
  else launch<false>(l);
  return 0;
}

extern "C" int amp__cuda_gemm_pair(const amp_product *product, const amp_product *q)
{
  plan a, b;
  if (product->dtype != q->dtype || product->n != q->n || !plan_of(product, a) || !plan_of(q, b))
    return 1; /* as many columns: no block is idle */
  if (product->dtype == AMP_BFLOAT16) launch_pair<true>(a, b);
  else launch_pair<false>(a, b);
  return 0;
}
