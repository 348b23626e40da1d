/*
** rnn_step.cu: a step of a recurrent layer in one launch, for 16-bit floats on
** cards with tensor cores (compute capability 8.0 and later). A step's product is
** small and its latency is all: a launch less is half of it.
**
** A block makes a tile of the product for all gates of its hidden values, its warps
** share out the sum and add up through shared memory; then each thread finishes one
** hidden value (rnn.cuh), whose other operands were read meanwhile. Where the summed
** dimension is innermost each lane reads 16 bytes of a row, straight from global
** memory: which of the 32 values of a piece meets which in an instruction does not
** matter to the sum.
**
** Large products are left to cublasLt (amp_rnn_takes). From the second step on a launch
** begins while the one before it runs, and has its weights by when that ends.
*/
#include "mma.cuh"
#include "rnn.cuh"
#include "../src/cuda/cuda_gemm.h"

extern "C" { int amp__cuda_rnn = 1; }

namespace {

/* -- Operands ------------------------------------------------------------------------------ */

__device__ __forceinline__ uint4 eight(const char *row, int64_t k, bool there) /* values k .. k + 7 */
{
  if (!there) return make_uint4(0, 0, 0, 0);
  return *(const uint4 *)(row + 2 * k);
}

/* Loads that are not waited for: of 16 bits as they lie, 0 where there is nothing */
__device__ __forceinline__ uint16_t raw(const void *p, int64_t i, bool there) { return there ? ((const uint16_t *)p)[i] : (uint16_t)0; }
__device__ __forceinline__ float wide(const void *p, int64_t i, bool there) { return there ? ((const float *)p)[i] : 0.f; }

/* What comes from the launch before: waited for, then read. NULL: 0 */
struct late {
  const uint16_t *narrow;
  const float *wide;
  uint16_t a;
  float b;
  __device__ __forceinline__ void get(void)
  {
    amp_await();
    a = narrow ? *narrow : (uint16_t)0;
    b = wide ? *wide : 0.f;
  }
};

/* where the state before lies */
__device__ __forceinline__ const char *state_row(const amp_rnn &k, const amp_rnn_step &s, int64_t i)
{
  return i < s.old ? k.y + (s.before + i) * k.h * 2 : k.h0 + i * k.r * 2;
}

/* k, with what a kernel is made for as constants */
template <bool BF> __device__ __forceinline__ amp_rnn known(amp_rnn k, int mode)
{
  k.dtype = BF ? AMP_BFLOAT16 : AMP_FLOAT16;
  k.mode = mode;
  return k;
}

/* -- Forward --------------------------------------------------------------------------- */

enum { ROWS = 32, COLS = 8, WARPS = 8, BACK_ROWS = 16, BACK_COLS = 16, BACK_WARPS = 16 };

/* acc[m][to(q)] += rows (4 pointers: g, g + 8, g + 16, g + 24; NULL: none) times w's rows of gate q. The rows are read, and `l`, when the launch
** before has ended (l NULL: that is not waited for) */
template <bool BF, int G, int N, class TO>
__device__ __forceinline__ void sum_gates(float (&acc)[2][N][4], const char *const (&row)[4], const char *w, int64_t h, int64_t size, TO to, late *l)
{
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, t = lane & 3;
  const int64_t j = (int64_t)blockIdx.x * COLS + (lane >> 2);
  for (int64_t k0 = warp * 32; k0 < size; k0 += 2 * WARPS * 32) { /* two pieces, so that all loads are under way at once */
    uint4 a[2][4], b[2][G];
#pragma unroll
    for (int p = 0; p < 2; p++) {
      int64_t k = k0 + p * WARPS * 32 + t * 8;
#pragma unroll
      for (int q = 0; q < G; q++) b[p][q] = eight(w, ((int64_t)q * h + j) * size + k, k < size);
    }
    if (l && k0 == warp * 32) l->get();
#pragma unroll
    for (int p = 0; p < 2; p++) {
      int64_t k = k0 + p * WARPS * 32 + t * 8;
#pragma unroll
      for (int i = 0; i < 4; i++) a[p][i] = eight(row[i], k, k < size && row[i] != NULL);
    }
#pragma unroll
    for (int p = 0; p < 2; p++) {
#pragma unroll
      for (int q = 0; q < G; q++) {
        amp_mma32<BF>(acc[0][to(q)], a[p][0], a[p][1], b[p][q]);
        amp_mma32<BF>(acc[1][to(q)], a[p][2], a[p][3], b[p][q]);
      }
    }
  }
  if (l && warp * 32 >= size) l->get();
}

/* G gates; a GRU's last gate keeps the input's part apart, as sum 3 */
template <bool BF, int G> __global__ void __launch_bounds__(WARPS * 32, 2) ahead_whole(const amp_rnn given, const amp_rnn_step s, int input)
{
  const amp_rnn k = known<BF>(given, G == 4 ? AMP_RNN_LSTM : G == 3 ? AMP_RNN_GRU : given.mode == AMP_RNN_RELU ? AMP_RNN_RELU : AMP_RNN_TANH);
  constexpr int N = G == 3 ? 4 : G;
  __shared__ float part[WARPS][N][ROWS * COLS];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
  const int64_t first = (int64_t)blockIdx.y * ROWS;
  const int64_t i = first + threadIdx.x / COLS, j = (int64_t)blockIdx.x * COLS + threadIdx.x % COLS; /* what this thread finishes */
  const bool mine = i < s.m;
  float acc[2][N][4];
  const char *row[4];
  uint16_t x[G], bi[G], bh[G]; /* what it needs is under way meanwhile */
  amp_let_next();
#pragma unroll
  for (int q = 0; q < G; q++) {
    x[q] = raw(k.xg, (s.row + i) * k.g + q * k.h + j, mine && !input);
    bi[q] = raw(k.bi, q * k.h + j, mine && k.bi != NULL);
    bh[q] = raw(k.bh, q * k.h + j, mine && k.bh != NULL);
  }
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int q = 0; q < N; q++) {
#pragma unroll
      for (int e = 0; e < 4; e++) acc[m][q][e] = 0;
    }
  }
  if (input) {
#pragma unroll
    for (int m = 0; m < 4; m++) {
      int64_t i = first + g + 8 * m;
      row[m] = i >= s.m ? NULL : k.x + (s.row + i) * k.in * 2;
    }
    sum_gates<BF, G, N>(acc, row, k.wx, k.h, k.in, [](int q) { return G == 3 && q == 2 ? 3 : q; }, NULL);
  }
#pragma unroll
  for (int m = 0; m < 4; m++) {
    int64_t i = first + g + 8 * m;
    row[m] = i >= s.m ? NULL : state_row(k, s, i);
  }
  late l = { NULL, NULL, 0, 0 };
  if (mine && G == 3) l.narrow = (const uint16_t *)state_row(k, s, i) + j;
  if (mine && G == 4 && i < s.old) l.wide = (const float *)k.reserve + (s.before + i) * k.rs + rnn_cell(k) + j;
  else if (mine && G == 4 && k.c0) l.narrow = (const uint16_t *)k.c0 + i * k.h + j;
  sum_gates<BF, G, N>(acc, row, k.w, k.h, k.r, [](int q) { return q; }, &l);
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int q = 0; q < N; q++) {
      float *p = part[warp][q] + (m * 16 + g) * COLS + 2 * t;
      *(float2 *)p = make_float2(acc[m][q][0], acc[m][q][1]);
      *(float2 *)(p + 8 * COLS) = make_float2(acc[m][q][2], acc[m][q][3]);
    }
  }
  __syncthreads();
  if (!mine) return;
  float sum[N], in[G];
#pragma unroll
  for (int q = 0; q < N; q++) {
    sum[q] = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum[q] += part[w][q][threadIdx.x];
  }
#pragma unroll
  for (int q = 0; q < G; q++) {
    in[q] = amp_of_half<BF>(x[q]) + amp_of_half<BF>(bi[q]);
    sum[q] += amp_of_half<BF>(bh[q]);
  }
  if (G == 3) in[2 % G] += sum[N - 1];
  rnn_ahead<float>(k, s, i, j, G == 4 && i < s.old ? l.b : amp_of_half<BF>(l.a), [&](int q) { return in[q]; }, [&](int q) { return sum[q]; });
}

/* -- Backward ----------------------------------------------------------------------------- */

/* The later step's gates' gradient times the weights, whose rows are what is summed: a lane reads two columns of eight rows, and
** pairs of rows become operands. Thread e of the block has element e of the tile (rows from `first`, columns from `col`) afterwards. */
template <bool BF> __device__ __forceinline__ float sum_rows(const amp_rnn &k, const amp_rnn_step &s, int64_t first, int64_t col, late &l)
{
  __shared__ float part[BACK_WARPS][BACK_ROWS * BACK_COLS];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
  const int64_t size = s.done ? k.g : 0;
  const char *of = k.mode == AMP_RNN_GRU ? k.dgh : k.dg, *w = k.w + (col + 2 * g) * 2;
  const char *from = of + (s.after + first + g) * k.g * 2;
  const char *row[2] = { first + g < s.done ? from : NULL, first + g + 8 < s.done ? from + 16 * k.g : NULL };
  const bool column = col + 2 * g < k.r;
  float acc[2][4] = { { 0, 0, 0, 0 }, { 0, 0, 0, 0 } };
  for (int64_t k0 = warp * 32; k0 < size; k0 += 4 * BACK_WARPS * 32) { /* four pieces: all loads are under way at once */
    uint4 a[4][2];
    uint32_t b[4][8];
#pragma unroll
    for (int p = 0; p < 4; p++) {
      int64_t at = k0 + p * BACK_WARPS * 32 + t * 8;
#pragma unroll
      for (int i = 0; i < 8; i++) b[p][i] = at < size && column ? *(const uint32_t *)(w + (at + i) * k.r * 2) : 0u;
    }
    if (k0 == warp * 32) l.get();
#pragma unroll
    for (int p = 0; p < 4; p++) {
      int64_t at = k0 + p * BACK_WARPS * 32 + t * 8;
      a[p][0] = eight(row[0], at, at < size && row[0] != NULL);
      a[p][1] = eight(row[1], at, at < size && row[1] != NULL);
    }
#pragma unroll
    for (int p = 0; p < 4; p++) {
      uint32_t even[4], odd[4]; /* columns 2g and 2g + 1 of the tile, rows in pairs */
#pragma unroll
      for (int i = 0; i < 4; i++) {
        even[i] = (b[p][2 * i] & 0xffffu) | b[p][2 * i + 1] << 16;
        odd[i] = b[p][2 * i] >> 16 | (b[p][2 * i + 1] & 0xffff0000u);
      }
      amp_mma32<BF>(acc[0], a[p][0], a[p][1], make_uint4(even[0], even[1], even[2], even[3]));
      amp_mma32<BF>(acc[1], a[p][0], a[p][1], make_uint4(odd[0], odd[1], odd[2], odd[3]));
    }
  }
  if (warp * 32 >= size) l.get();
  float *p = part[warp] + g * BACK_COLS + 4 * t;
  *(float4 *)p = make_float4(acc[0][0], acc[1][0], acc[0][1], acc[1][1]);
  *(float4 *)(p + 8 * BACK_COLS) = make_float4(acc[0][2], acc[1][2], acc[0][3], acc[1][3]);
  __syncthreads();
  float sum = 0;
  if (threadIdx.x < BACK_ROWS * BACK_COLS) {
#pragma unroll
    for (int q = 0; q < BACK_WARPS; q++) sum += part[q][threadIdx.x];
  }
  return sum;
}

template <bool BF> __global__ void __launch_bounds__(BACK_WARPS * 32, 1) behind_whole(const amp_rnn given, const amp_rnn_step s)
{
  const amp_rnn k = known<BF>(given, given.mode);
  const int64_t first = (int64_t)blockIdx.y * BACK_ROWS, col = (int64_t)blockIdx.x * BACK_COLS;
  const int64_t i = first + threadIdx.x / BACK_COLS, j = col + threadIdx.x % BACK_COLS;
  const bool mine = threadIdx.x < BACK_ROWS * BACK_COLS && i < s.m && j < k.h;
  const bool lstm = k.mode == AMP_RNN_LSTM, gru = k.mode == AMP_RNN_GRU, later = i < s.done;
  const int64_t e = i * k.h + j, at = (s.row + i) * k.rs + j;
  amp_let_next();
  /* what it needs is under way meanwhile */
  float x[4], cell = wide(k.reserve, at, mine && lstm), before = wide(k.reserve, i < s.old ? (s.before + i) * k.rs + j : k.rows * k.rs + e, mine && lstm);
  uint16_t half[4];
#pragma unroll
  for (int q = 0; q < 4; q++) {
    half[q] = raw(rnn_half(k, (const float *)k.reserve + (s.row + i) * k.rs, q, j), 0, mine && (lstm || gru));
    x[q] = wide(k.reserve, at, mine && !lstm && !gru && q == 0);
  }
  const uint16_t state = raw(state_row(k, s, i), j, mine && gru), gy = raw(k.gy, (s.row + i) * k.h + j, mine && k.gy != NULL);
  const uint16_t gh = raw(k.gh, e, mine && !later && k.gh != NULL), gc = raw(k.gc, e, mine && !later && k.gc != NULL);
  late l = { NULL, mine && later && (lstm || gru) ? (const float *)(lstm ? k.dc : k.carry) + e : NULL, 0, 0 };
  const float prod = sum_rows<BF>(k, s, first, col, l);
  if (!mine) return;
  if (lstm || gru) {
#pragma unroll
    for (int q = 0; q < 4; q++) x[q] = rnn_wide(k.mode, k.dtype, q, half[q]);
  }
  rnn_saved<float> v = { gru ? amp_of_half<BF>(state) : before, { x[0], x[1], x[2], x[3] }, cell, amp_of_half<BF>(gy) + amp_of_half<BF>(gh), amp_of_half<BF>(gc) };
  if (lstm) v.dc += l.b;
  else v.grad += l.b;
  rnn_behind<float>(k, s, i, j, v, prod);
}

/* the gradient of the initial state */
template <bool BF> __global__ void __launch_bounds__(BACK_WARPS * 32, 1) first_whole(const amp_rnn given, const amp_rnn_step s, char *dh0)
{
  const amp_rnn k = known<BF>(given, given.mode);
  const int64_t first = (int64_t)blockIdx.y * BACK_ROWS, col = (int64_t)blockIdx.x * BACK_COLS;
  const int64_t i = first + threadIdx.x / BACK_COLS, j = col + threadIdx.x % BACK_COLS;
  const bool mine = threadIdx.x < BACK_ROWS * BACK_COLS && i < s.done && j < k.r;
  late l = { NULL, mine && k.mode == AMP_RNN_GRU ? (const float *)k.carry + i * k.h + j : NULL, 0, 0 };
  const float prod = sum_rows<BF>(k, s, first, col, l);
  if (mine) amp_store<float>(dh0, k.dtype, i * k.r + j, prod + l.b);
}

static bool aligned(const void *p) { return ((uintptr_t)p & 15) == 0; }
static unsigned tiles(int64_t n, int64_t size) { return (unsigned)((n + size - 1) / size); }

} // namespace

/* 16-byte pieces of whole rows on tensor cores */
bool amp_rnn_fits(const amp_rnn *k, bool backward, bool input)
{
  if (!amp_mma_here() || k->h % 8 || k->r % 8 || (input && k->in % 8)) return false;
  if (!aligned(k->h0) || !aligned(k->y) || !aligned(k->w) || (input && (!aligned(k->x) || !aligned(k->wx)))) return false;
  return !backward || (aligned(k->dg) && (k->dgh == NULL || aligned(k->dgh)));
}

/* And a product so small that re-reading it from the L2 cache takes less than a launch more */
bool amp_rnn_takes(const amp_rnn *k, bool backward, bool input)
{
  const double most = amp__cuda_rnn > 1 ? INFINITY : 34e6; /* bytes read */
  if ((k->dtype != AMP_FLOAT16 && k->dtype != AMP_BFLOAT16) || !amp__cuda_rnn || !amp_rnn_fits(k, backward, input) || k->n > 4096 || k->g > 65535 * 32) return false;
  double size = (double)k->r + (input ? (double)k->in : 0), n = (double)k->n, g = (double)k->g, h = (double)k->h;
  if (!backward) return 2 * size * (ceil(n / ROWS) * g + h / COLS * n) <= most;
  if ((k->gy && k->gydt != k->dtype) || (k->gh && k->ghdt != k->dtype) || (k->gc && k->gcdt != k->dtype)) return false;
  return 2 * g * (ceil(n / BACK_ROWS) * (double)k->r + ceil((double)k->r / BACK_COLS) * n) <= most;
}

int amp_rnn_ahead_whole(const amp_rnn *k, const amp_rnn_step *s, bool input, bool next)
{
  const dim3 grid((unsigned)(k->h / COLS), tiles(s->m, ROWS));
  const int gates = (int)(k->g / k->h), take = input;
#define AHEAD(BF)                                                                                       \
  if (gates == 4) AMP_LAUNCH_NEXT(next, (ahead_whole<BF, 4>), grid, WARPS * 32, 0, *k, *s, take);                  \
  else if (gates == 3) AMP_LAUNCH_NEXT(next, (ahead_whole<BF, 3>), grid, WARPS * 32, 0, *k, *s, take);             \
  else AMP_LAUNCH_NEXT(next, (ahead_whole<BF, 1>), grid, WARPS * 32, 0, *k, *s, take)
  if (k->dtype == AMP_BFLOAT16) { AHEAD(true); }
  else { AHEAD(false); }
  return 0;
}

int amp_rnn_behind_whole(const amp_rnn *k, const amp_rnn_step *s, bool next)
{
  const dim3 grid(tiles(k->h, BACK_COLS), tiles(s->m, BACK_ROWS));
  if (k->dtype == AMP_BFLOAT16) AMP_LAUNCH_NEXT(next, (behind_whole<true>), grid, BACK_WARPS * 32, 0, *k, *s);
  else AMP_LAUNCH_NEXT(next, (behind_whole<false>), grid, BACK_WARPS * 32, 0, *k, *s);
  return 0;
}

int amp_rnn_first_whole(const amp_rnn *k, const amp_rnn_step *s, char *dh0, bool next)
{
  const dim3 grid(tiles(k->r, BACK_COLS), tiles(s->done, BACK_ROWS));
  if (k->dtype == AMP_BFLOAT16) AMP_LAUNCH_NEXT(next, (first_whole<true>), grid, BACK_WARPS * 32, 0, *k, *s, dh0);
  else AMP_LAUNCH_NEXT(next, (first_whole<false>), grid, BACK_WARPS * 32, 0, *k, *s, dh0);
  return 0;
}
