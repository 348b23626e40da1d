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
** itself, so nobody waits for that. Two products that are there at the same time can
** share a launch. What is as layers' matrices mostly are (`quick`) has kernels of few
** instructions, with the same bits. From compute capability 8.0 on.
*/
#include "math.cuh"
#include "gemm_quick.cuh"
#include "../src/cuda/cuda_gemm.h"

namespace {

typedef struct job {
  const char *a, *b, *bias, *mask;
  char *c, *aux, *sums;
  int64_t ars, acs, brs, bcs, crs, ccs, mrs, mcs;
  int32_t m, n, k, pitch;     /* bytes from row to row of a tile in shared memory */
  int32_t ahow, bhow, epilogue, abytes, bbytes, pairs; /* pairs: two of a row of c are stored at once */
} job;

typedef struct job_pair { job j[2]; int32_t first; } job_pair; /* first: rows of blocks of the first one */

#if AMP_MMA
/* rows from.. (of `rows`, else 0) of a matrix with k columns into shared memory, columns behind k being 0: row by row, or
** column by column where they lie so */
__device__ __forceinline__ void fetch(char *tile, int pitch, const char *p, int how, int64_t rs, int64_t cs, int from, int rows, int k)
{
  const int padded = pitch / 2 - 8;
  if (how == ALONG) {
    const int r = threadIdx.x >> 2;
    const char *q = p + (from + r) * rs * 2;
    const amp_at at = amp_at_of(tile) + r * pitch;
    for (int c = (threadIdx.x & 3) * 8; c < padded; c += 32) {
      const bool there = from + r < rows && c < k;
      amp_copy16(at + c * 2, there ? q + c * 2 : p, there);
    }
  } else if (how == ACROSS) {
    const int r = (threadIdx.x & 3) * 8;
    const amp_at at = amp_at_of(tile) + r * 2;
    for (int c = threadIdx.x >> 2; c < padded; c += THREADS / 4) {
      const bool there = from + r < rows && c < k;
      amp_copy16(at + c * TURNED, there ? p + (from + r + c * cs) * 2 : p, there);
    }
  } else
    for (int e = threadIdx.x; e < TILE * padded; e += THREADS) {
      int r = e / padded, c = e - r * padded;
      *(uint16_t *)(tile + r * pitch + c * 2) = from + r < rows && c < k ? *(const uint16_t *)(p + ((from + r) * rs + c * cs) * 2) : (uint16_t)0;
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
    for (int c = (threadIdx.x & 3) * 8; c < padded; c += 32) clear16<BF>(tile, mask, (threadIdx.x >> 2) * pitch + c * 2);
  else if (how == ACROSS)
    for (int c = threadIdx.x >> 2; c < padded; c += THREADS / 4) clear16<BF>(tile, mask, c * TURNED + (threadIdx.x & 3) * 16);
  else
    for (int e = threadIdx.x; e < TILE * padded; e += THREADS) {
      const int r = e / padded, at = r * pitch + (e - r * padded) * 2;
      *(uint16_t *)(tile + at) &= (uint16_t)above<BF>(*(const uint16_t *)(mask + at));
    }
}

template <bool BF> __device__ __forceinline__ void put(const job &j, char *to, int i, int l, float v0, float v1)
{
  const int64_t at = i * j.crs + l * j.ccs;
  if (j.pairs) { *(unsigned *)(to + at * 2) = amp_pack<BF>(v0, v1); return; }
  amp_store<float>(to, BF ? AMP_BFLOAT16 : AMP_FLOAT16, at, v0);
  if (l + 1 < j.n) amp_store<float>(to, BF ? AMP_BFLOAT16 : AMP_FLOAT16, at + j.ccs, v1);
}

/* 32 x 32 of c, from row i0 on */
template <bool BF> __device__ __forceinline__ void make(const job &j, int i0)
{
  const int dtype = BF ? AMP_BFLOAT16 : AMP_FLOAT16;
  const int j0 = (int)blockIdx.x * TILE;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, rows = (warp >> 1) * 16, columns = (warp & 1) * 16;
  AMP_SHARED(char, shared);
  char *as = shared, *bs = shared + j.abytes;
  fetch(as, j.pitch, j.a, j.ahow, j.ars, j.acs, i0, j.m, j.k);
  if (j.mask) fetch(bs + j.bbytes, j.pitch, j.mask, j.ahow, j.mrs, j.mcs, i0, j.m, j.k);
  fetch(bs, j.pitch, j.b, j.bhow, j.bcs, j.brs, j0, j.n, j.k);
  amp_copy_commit();
  float bias[2][2] = { { 0, 0 }, { 0, 0 } };
  if (j.bias) {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int l = j0 + columns + (e >> 1) * 8 + (lane & 3) * 2 + (e & 1);
      if (l < j.n) bias[e >> 1][e & 1] = amp_load<float>(j.bias, dtype, l);
    }
  }
  const bool aturned = j.ahow == ACROSS, bturned = j.bhow == ACROSS;
  amp_at at = amp_at_of(as) + (aturned ? rows * 2 + amp_lane_b(lane, TURNED) : rows * j.pitch + amp_lane_a(lane, j.pitch));
  amp_at bt = amp_at_of(bs) + (bturned ? columns * 2 + amp_lane_a(lane, TURNED) : columns * j.pitch + amp_lane_b(lane, j.pitch));
  float c[2][4] = { { 0, 0, 0, 0 }, { 0, 0, 0, 0 } };
  amp_copy_wait<0>();
  if (j.mask) clear<BF>(as, bs + j.bbytes, j.pitch, j.ahow);
  __syncthreads();
#pragma unroll 4
  for (int k = 0; k < j.k; k += 16) {
    unsigned x[4], y[4];
    if (aturned) amp_ldmatrix_turned(x, at);
    else amp_ldmatrix(x, at);
    if (bturned) amp_ldmatrix_turned(y, bt);
    else amp_ldmatrix(y, bt);
    at += aturned ? 16 * TURNED : 32;
    bt += bturned ? 16 * TURNED : 32;
    amp_mma<BF>(c[0], x, y[0], y[1]);
    amp_mma<BF>(c[1], x, y[2], y[3]);
  }
#pragma unroll
  for (int t = 0; t < 2; t++) {
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const int i = i0 + rows + (lane >> 2) + (e >> 1) * 8, l = j0 + columns + t * 8 + (lane & 3) * 2;
      if (i >= j.m || l >= j.n) continue;
      float v[2] = { c[t][e], c[t][e + 1] };
      if (j.bias) { v[0] += bias[t][0]; v[1] += bias[t][1]; }
      if (j.epilogue == AMP_EPI_GELU) {
        put<BF>(j, j.aux, i, l, v[0], v[1]);
        v[0] = amp_gelu_tanh(v[0]);
        v[1] = amp_gelu_tanh(v[1]);
      } else if (j.epilogue == AMP_EPI_RELU) {
        v[0] = v[0] < 0 ? 0.f : v[0];
        v[1] = v[1] < 0 ? 0.f : v[1];
      }
      put<BF>(j, j.c, i, l, v[0], v[1]);
    }
  }
  if (j.epilogue == AMP_EPI_SUMS) {
    const int r = threadIdx.x >> 2, first = aturned ? r : r * j.pitch / 2, step = aturned ? TURNED / 2 : 1;
    float s = 0;
#pragma unroll 4
    for (int k = threadIdx.x & 3; k < j.k; k += 4) s += amp_load<float>(as, dtype, first + k * step);
    put_sum<BF>(s, j.m, i0, j.sums);
  }
}

#endif

/* -- Kernels ---------------------------------------------------------------------------- */

template <bool BF> __global__ void __launch_bounds__(THREADS) small(const __grid_constant__ job j)
{
#if AMP_MMA
  make<BF>(j, (int)blockIdx.y * TILE);
#endif
}

template <bool BF> __global__ void __launch_bounds__(THREADS) small_pair(const __grid_constant__ job_pair p)
{
#if AMP_MMA
  const bool second = (int)blockIdx.y >= p.first;
  make<BF>(p.j[second], ((int)blockIdx.y - (second ? p.first : 0)) * TILE);
#endif
}

template <bool BF, int A, int B, bool SUMS> __global__ void __launch_bounds__(THREADS, 4) small_quick(const __grid_constant__ quick_job j)
{
#if AMP_MMA
  quick<BF, A, B, SUMS>(j, (int)blockIdx.y * TILE);
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
int bytes(const job &j, int how) { return how == ACROSS ? (j.pitch / 2 - 8) * TURNED : j.pitch * TILE; }

} // namespace

bool amp_mma_here(void)
{
  static signed char known[AMP_CUDA_MAX]; /* 1: no, 2: yes */
  amp_cuda_device *d = amp__cuda_here();
  int is = __atomic_load_n(&known[d->index], __ATOMIC_RELAXED);
  if (is) return is == 2;
  is = d->cc >= 80 ? 2 : 1;
#ifndef AMP_EMULATED
  cudaFuncAttributes a;
  if (is == 2) {
    if (cudaFuncGetAttributes(&a, small<true>) != cudaSuccess) { cudaGetLastError(); return false; } /* not to be told now */
    if (a.ptxVersion < 80) is = 1;
  }
#endif
  __atomic_store_n(&known[d->index], (signed char)is, __ATOMIC_RELAXED);
  return is == 2;
}

namespace {

typedef struct plan { job j; unsigned rows, columns; size_t shared; } plan; /* of blocks */

bool plan_of(const amp_product *p, plan &l)
{
  bool half = p->dtype == AMP_FLOAT16 || p->dtype == AMP_BFLOAT16;
  if (!half || p->nbatch > 0 || p->k == 0 || p->k > MOST_K || p->m > 4096 || p->n > 4096 || p->m * p->n * p->k > 1 << 21 || !amp_mma_here()) return false;
  job &j = l.j;
  memset((void *)&j, 0, sizeof j);
  j.a = p->a; j.b = p->b; j.bias = p->bias; j.c = p->c; j.aux = p->aux; j.sums = p->sums;
  j.ars = p->ars; j.acs = p->acs; j.brs = p->brs; j.bcs = p->bcs; j.crs = p->crs; j.ccs = p->ccs;
  j.m = (int32_t)p->m; j.n = (int32_t)p->n; j.k = (int32_t)p->k;
  j.pitch = ((j.k + 15) / 16 * 16 + 8) * 2;
  j.ahow = how(p->a, p->m, p->k, p->ars, p->acs);
  j.bhow = how(p->b, p->n, p->k, p->bcs, p->brs);
  if (p->mask) { /* its tile as A's */
    j.mask = p->mask; j.mrs = p->mrs; j.mcs = p->mcs;
    if (how(p->mask, p->m, p->k, p->mrs, p->mcs) != j.ahow) j.ahow = ONE;
  }
  j.epilogue = p->epilogue;
  j.abytes = bytes(j, j.ahow);
  j.bbytes = bytes(j, j.bhow);
  j.pairs = p->ccs == 1 && p->crs % 2 == 0 && p->n % 2 == 0 && (((uintptr_t)p->c | (uintptr_t)p->aux) & 3) == 0;
  l.columns = (unsigned)((p->n + TILE - 1) / TILE);
  l.rows = (unsigned)((p->m + TILE - 1) / TILE);
  l.shared = (size_t)(j.abytes + j.bbytes + (p->mask ? j.abytes : 0));
  return l.shared <= MOST_SHARED;
}

/* Bytes from line to line of an operand, if 32 bits hold all its offsets, else 0 */
int line(int how, int64_t rs, int64_t cs)
{
  int64_t n = how == ALONG ? rs : cs;
  return n > 0 && n < 1 << 17 ? (int)n * 2 : 0;
}

bool quick_of(const plan &l, quick_job &q)
{
  const job &j = l.j;
  q.a = j.a; q.b = j.b; q.mask = j.mask; q.bias = j.bias; q.c = j.c; q.sums = j.sums;
  q.m = j.m; q.n = j.n; q.k = j.k;
  q.relu = j.epilogue == AMP_EPI_RELU;
  q.aline = line(j.ahow, j.ars, j.acs);
  q.bline = line(j.bhow, j.bcs, j.brs);
  q.mline = j.mask ? line(j.ahow, j.mrs, j.mcs) : 0;
  q.cline = line(ALONG, j.crs, 1);
  return j.ahow != ONE && j.bhow != ONE && j.pairs && j.k % 16 == 0 && j.k <= QUICK_K && j.epilogue != AMP_EPI_GELU && ((uintptr_t)j.bias & 3) == 0 &&
         q.aline && q.bline && q.cline && (!j.mask || q.mline);
}

size_t quick_shared(const quick_job &q) { return (size_t)QUICK_TILE * (q.mask ? 3 : 2); }

template <bool BF> void launch(const plan &l)
{
  const dim3 grid(l.columns, l.rows);
  quick_job q;
  if (quick_of(l, q)) {
    const int as = l.j.ahow, bs = l.j.bhow;
    const bool sums = l.j.epilogue == AMP_EPI_SUMS;
    if (as == ALONG && bs == ALONG && !sums) { AMP_LAUNCH((small_quick<BF, ALONG, ALONG, false>), grid, THREADS, quick_shared(q), q); return; }
    if (as == ALONG && bs == ACROSS && !sums) { AMP_LAUNCH((small_quick<BF, ALONG, ACROSS, false>), grid, THREADS, quick_shared(q), q); return; }
    if (as == ACROSS && bs == ACROSS && sums) { AMP_LAUNCH((small_quick<BF, ACROSS, ACROSS, true>), grid, THREADS, quick_shared(q), q); return; }
  }
  AMP_LAUNCH(small<BF>, grid, THREADS, l.shared, l.j);
}

template <bool BF> void launch_pair(const plan &a, const plan &b)
{
  const dim3 grid(a.columns, a.rows + b.rows);
  quick_pair q;
  if (a.j.ahow == ALONG && a.j.bhow == ACROSS && b.j.ahow == ACROSS && b.j.bhow == ACROSS && a.j.epilogue == AMP_EPI_NONE && b.j.epilogue == AMP_EPI_SUMS &&
      quick_of(a, q.first) && quick_of(b, q.second)) {
    q.rows = (int32_t)a.rows;
    AMP_LAUNCH(small_quick_pair<BF>, grid, THREADS, quick_shared(q.first), q);
    return;
  }
  job_pair p;
  p.j[0] = a.j;
  p.j[1] = b.j;
  p.first = (int32_t)a.rows;
  AMP_LAUNCH(small_pair<BF>, grid, THREADS, a.shared > b.shared ? a.shared : b.shared, p);
}

} // namespace

extern "C" int amp__cuda_gemm_small(const amp_product *p)
{
  plan l;
  if (!plan_of(p, l)) return 1;
  if (p->dtype == AMP_BFLOAT16) launch<true>(l);
  else launch<false>(l);
  return 0;
}

extern "C" int amp__cuda_gemm_pair(const amp_product *p, const amp_product *q)
{
  plan a, b;
  if (p->dtype != q->dtype || p->n != q->n || !plan_of(p, a) || !plan_of(q, b)) return 1; /* as many columns: no block is idle */
  if (p->dtype == AMP_BFLOAT16) launch_pair<true>(a, b);
  else launch_pair<false>(a, b);
  return 0;
}
