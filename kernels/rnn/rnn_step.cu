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
#include "common/mma.cuh"
#include "rnn/rnn.cuh"
#include "../src/cuda/cuda_gemm.h"

extern "C" {
int amp__cuda_rnn = 1;
}

namespace {

/* -- Operands ------------------------------------------------------------------------------ */

__device__ __forceinline__ uint4 eight(const char *row, int64_t k, bool there) /* values k .. k + 7 */
{
  if (!there) return make_uint4(0, 0, 0, 0);
  return *(const uint4 *)(row + 2 * k);
}

/* Loads that are not waited for: of 16 bits as they lie, 0 where there is nothing */
__device__ __forceinline__ uint16_t raw(const void *p, int64_t i, bool there)
{
  return there ? ((const uint16_t *)p)[i] : (uint16_t)0;
}
__device__ __forceinline__ float wide(const void *p, int64_t i, bool there)
{
  return there ? ((const float *)p)[i] : 0.f;
}

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
__device__ __forceinline__ const char *state_row(const amp_rnn &layer, const amp_rnn_step &step, int64_t i)
{
  return i < step.old ? layer.y + (step.before + i) * layer.h * 2 : layer.h0 + i * layer.r * 2;
}

/* k, with what a kernel is made for as constants */
template <bool BF> __device__ __forceinline__ amp_rnn known(amp_rnn layer, int mode)
{
  layer.dtype = BF ? AMP_BFLOAT16 : AMP_FLOAT16;
  layer.mode = mode;
  return layer;
}

/* -- Forward --------------------------------------------------------------------------- */

enum { ROWS = 32, COLS = 8, WARPS = 8, BACK_ROWS = 16, BACK_COLS = 16, BACK_WARPS = 16 };

/* acc[m][to(q)] += rows (4 pointers: g, g + 8, g + 16, g + 24; NULL: none) times w's rows of gate q. The rows are read,
** and `l`, when the launch before has ended (l NULL: that is not waited for) */
template <bool BF, int G, int N, class TO>
__device__ __forceinline__ void sum_gates(float (&acc)[2][N][4], const char *const (&row)[4], const char *weights,
                                          int64_t hidden, int64_t size, TO to, late *awaited)
{
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, t = lane & 3;
  const int64_t j = (int64_t)blockIdx.x * COLS + (lane >> 2);
  for (int64_t k0 = warp * 32; k0 < size;
       k0 += 2 * WARPS * 32) { /* two pieces, so that all loads are under way at once */
    uint4 rows_read[2][4], weights_read[2][G];
#pragma unroll
    for (int p = 0; p < 2; p++) {
      int64_t k = k0 + p * WARPS * 32 + t * 8;
#pragma unroll
      for (int q = 0; q < G; q++) weights_read[p][q] = eight(weights, ((int64_t)q * hidden + j) * size + k, k < size);
    }
    if (awaited && k0 == warp * 32) awaited->get();
#pragma unroll
    for (int p = 0; p < 2; p++) {
      int64_t k = k0 + p * WARPS * 32 + t * 8;
#pragma unroll
      for (int i = 0; i < 4; i++) rows_read[p][i] = eight(row[i], k, k < size && row[i] != NULL);
    }
#pragma unroll
    for (int p = 0; p < 2; p++) {
#pragma unroll
      for (int q = 0; q < G; q++) {
        amp_mma32<BF>(acc[0][to(q)], rows_read[p][0], rows_read[p][1], weights_read[p][q]);
        amp_mma32<BF>(acc[1][to(q)], rows_read[p][2], rows_read[p][3], weights_read[p][q]);
      }
    }
  }
  if (awaited && warp * 32 >= size) awaited->get();
}

/* What a thread needs for the hidden value it finishes, under way while products are made: the input's part of each
** gate and both biases, of 16 bits as they lie */
template <int G> struct step_inputs {
  uint16_t x[G], bi[G], bh[G];
};

/* Asks for them. i, j: element and hidden value; input: the input's part comes from a product of the launch */
template <int G>
__device__ __forceinline__ void ask_inputs(step_inputs<G> &in, const amp_rnn &layer, const amp_rnn_step &step,
                                           int64_t i, int64_t j, bool mine, bool input)
{
#pragma unroll
  for (int q = 0; q < G; q++) {
    in.x[q] = raw(layer.xg, (step.row + i) * layer.g + q * layer.h + j, mine && !input);
    in.bi[q] = raw(layer.bi, q * layer.h + j, mine && layer.bi != NULL);
    in.bh[q] = raw(layer.bh, q * layer.h + j, mine && layer.bh != NULL);
  }
}

/* A lane's rows (g, g + 8, g + 16, g + 24 of the block's, which begin with `first`): of the input, of the state before;
** NULL: none */
__device__ __forceinline__ void input_rows(const char *(&row)[4], const amp_rnn &layer, const amp_rnn_step &step,
                                           int64_t first)
{
#pragma unroll
  for (int m = 0; m < 4; m++) {
    int64_t i = first + ((threadIdx.x & 31) >> 2) + 8 * m;
    row[m] = i >= step.m ? NULL : layer.x + (step.row + i) * layer.in * 2;
  }
}
__device__ __forceinline__ void state_rows(const char *(&row)[4], const amp_rnn &layer, const amp_rnn_step &step,
                                           int64_t first)
{
#pragma unroll
  for (int m = 0; m < 4; m++) {
    int64_t i = first + ((threadIdx.x & 31) >> 2) + 8 * m;
    row[m] = i >= step.m ? NULL : state_row(layer, step, i);
  }
}

/* A warp's sums to shared memory, a tile a gate */
template <int N> __device__ __forceinline__ void share_sums(float (*part)[ROWS * COLS], const float (&acc)[2][N][4])
{
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int q = 0; q < N; q++) {
      float *p = part[q] + (m * 16 + g) * COLS + 2 * t;
      *(float2 *)p = make_float2(acc[m][q][0], acc[m][q][1]);
      *(float2 *)(p + 8 * COLS) = make_float2(acc[m][q][2], acc[m][q][3]);
    }
  }
}

/* One step of a layer, forward, its product included. G gates; a GRU's last gate keeps the input's part apart, as
** sum 3. A block makes 8 hidden values of 32 rows, all their gates; its warps share out the sum (of the state
** before, with `input` of the input, too), leave what they have in shared memory, and a thread finishes one hidden
** value. */
template <bool BF, int G>
__global__ void __launch_bounds__(WARPS * 32, 2) ahead_whole(const amp_rnn given, const amp_rnn_step step, int input)
{
  const amp_rnn layer = known<BF>(given, G == 4                       ? AMP_RNN_LSTM
                                         : G == 3                     ? AMP_RNN_GRU
                                         : given.mode == AMP_RNN_RELU ? AMP_RNN_RELU
                                                                      : AMP_RNN_TANH);
  constexpr int N = G == 3 ? 4 : G;
  __shared__ float part[WARPS][N][ROWS * COLS];
  const int64_t first = (int64_t)blockIdx.y * ROWS;
  const int64_t i = first + threadIdx.x / COLS,
                j = (int64_t)blockIdx.x * COLS + threadIdx.x % COLS; /* what this thread finishes */
  const bool mine = i < step.m;
  float acc[2][N][4];
  const char *row[4];
  step_inputs<G> own;
  amp_let_next();
  ask_inputs<G>(own, layer, step, i, j, mine, input);
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int q = 0; q < N; q++) {
#pragma unroll
      for (int e = 0; e < 4; e++) acc[m][q][e] = 0;
    }
  }
  if (input) {
    input_rows(row, layer, step, first);
    sum_gates<BF, G, N>(
        acc, row, layer.wx, layer.h, layer.in, [](int q) { return G == 3 && q == 2 ? 3 : q; }, NULL);
  }
  state_rows(row, layer, step, first);
  late awaited = { NULL, NULL, 0, 0 };
  if (mine && G == 3) awaited.narrow = (const uint16_t *)state_row(layer, step, i) + j;
  if (mine && G == 4 && i < step.old)
    awaited.wide = (const float *)layer.reserve + (step.before + i) * layer.rs + rnn_cell(layer) + j;
  else if (mine && G == 4 && layer.c0) awaited.narrow = (const uint16_t *)layer.c0 + i * layer.h + j;
  sum_gates<BF, G, N>(
      acc, row, layer.w, layer.h, layer.r, [](int q) { return q; }, &awaited);
  share_sums<N>(part[threadIdx.x >> 5], acc);
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
    in[q] = amp_of_half<BF>(own.x[q]) + amp_of_half<BF>(own.bi[q]);
    sum[q] += amp_of_half<BF>(own.bh[q]);
  }
  if (G == 3) in[2 % G] += sum[N - 1];
  rnn_ahead<float>(
      layer, step, i, j, G == 4 && i < step.old ? awaited.b : amp_of_half<BF>(awaited.a), [&](int q) { return in[q]; },
      [&](int q) { return sum[q]; });
}

/* -- Backward ----------------------------------------------------------------------------- */

/* The later step's gates' gradient times the weights, whose rows are what is summed: a lane reads two columns of eight
** rows, and pairs of rows become operands. Thread e of the block has element e of the tile (rows from `first`,
** columns from
** `col`) afterwards. */
template <bool BF>
__device__ __forceinline__ float sum_rows(const amp_rnn &layer, const amp_rnn_step &step, int64_t first, int64_t col,
                                          late &awaited)
{
  __shared__ float part[BACK_WARPS][BACK_ROWS * BACK_COLS];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
  const int64_t size = step.done ? layer.g : 0;
  const char *of = layer.mode == AMP_RNN_GRU ? layer.dgh : layer.dg, *weights = layer.w + (col + 2 * g) * 2;
  const char *from = of + (step.after + first + g) * layer.g * 2;
  const char *row[2] = { first + g < step.done ? from : NULL, first + g + 8 < step.done ? from + 16 * layer.g : NULL };
  const bool column = col + 2 * g < layer.r;
  float acc[2][4] = { { 0, 0, 0, 0 }, { 0, 0, 0, 0 } };
  for (int64_t k0 = warp * 32; k0 < size;
       k0 += 4 * BACK_WARPS * 32) { /* four pieces: all loads are under way at once */
    uint4 rows_read[4][2];
    uint32_t weights_read[4][8];
#pragma unroll
    for (int p = 0; p < 4; p++) {
      int64_t at = k0 + p * BACK_WARPS * 32 + t * 8;
#pragma unroll
      for (int i = 0; i < 8; i++)
        weights_read[p][i] = at < size && column ? *(const uint32_t *)(weights + (at + i) * layer.r * 2) : 0u;
    }
    if (k0 == warp * 32) awaited.get();
#pragma unroll
    for (int p = 0; p < 4; p++) {
      int64_t at = k0 + p * BACK_WARPS * 32 + t * 8;
      rows_read[p][0] = eight(row[0], at, at < size && row[0] != NULL);
      rows_read[p][1] = eight(row[1], at, at < size && row[1] != NULL);
    }
#pragma unroll
    for (int p = 0; p < 4; p++) {
      uint32_t even[4], odd[4]; /* columns 2g and 2g + 1 of the tile, rows in pairs */
#pragma unroll
      for (int i = 0; i < 4; i++) {
        even[i] = (weights_read[p][2 * i] & 0xffffu) | weights_read[p][2 * i + 1] << 16;
        odd[i] = weights_read[p][2 * i] >> 16 | (weights_read[p][2 * i + 1] & 0xffff0000u);
      }
      amp_mma32<BF>(acc[0], rows_read[p][0], rows_read[p][1], make_uint4(even[0], even[1], even[2], even[3]));
      amp_mma32<BF>(acc[1], rows_read[p][0], rows_read[p][1], make_uint4(odd[0], odd[1], odd[2], odd[3]));
    }
  }
  if (warp * 32 >= size) awaited.get();
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

template <bool BF>
__global__ void __launch_bounds__(BACK_WARPS * 32, 1) behind_whole(const amp_rnn given, const amp_rnn_step step)
{
  const amp_rnn layer = known<BF>(given, given.mode);
  const int64_t first = (int64_t)blockIdx.y * BACK_ROWS, col = (int64_t)blockIdx.x * BACK_COLS;
  const int64_t i = first + threadIdx.x / BACK_COLS, j = col + threadIdx.x % BACK_COLS;
  const bool mine = threadIdx.x < BACK_ROWS * BACK_COLS && i < step.m && j < layer.h;
  const bool lstm = layer.mode == AMP_RNN_LSTM, gru = layer.mode == AMP_RNN_GRU, later = i < step.done;
  const int64_t e = i * layer.h + j, at = (step.row + i) * layer.rs + j;
  amp_let_next();
  /* what it needs is under way meanwhile */
  float x[4], cell = wide(layer.reserve, at, mine && lstm),
              before = wide(layer.reserve, i < step.old ? (step.before + i) * layer.rs + j : layer.rows * layer.rs + e,
                            mine && lstm);
  uint16_t half[4];
#pragma unroll
  for (int q = 0; q < 4; q++) {
    half[q] = raw(rnn_half(layer, (const float *)layer.reserve + (step.row + i) * layer.rs, q, j), 0,
                  mine && (lstm || gru));
    x[q] = wide(layer.reserve, at, mine && !lstm && !gru && q == 0);
  }
  const uint16_t state = raw(state_row(layer, step, i), j, mine && gru),
                 gy = raw(layer.gy, (step.row + i) * layer.h + j, mine && layer.gy != NULL);
  const uint16_t gh = raw(layer.gh, e, mine && !later && layer.gh != NULL),
                 gc = raw(layer.gc, e, mine && !later && layer.gc != NULL);
  late awaited
      = { NULL, mine && later && (lstm || gru) ? (const float *)(lstm ? layer.dc : layer.carry) + e : NULL, 0, 0 };
  const float prod = sum_rows<BF>(layer, step, first, col, awaited);
  if (!mine) return;
  if (lstm || gru) {
#pragma unroll
    for (int q = 0; q < 4; q++) x[q] = rnn_wide(layer.mode, layer.dtype, q, half[q]);
  }
  rnn_saved<float> saved = { gru ? amp_of_half<BF>(state) : before,
                             { x[0], x[1], x[2], x[3] },
                             cell,
                             amp_of_half<BF>(gy) + amp_of_half<BF>(gh),
                             amp_of_half<BF>(gc) };
  if (lstm) saved.dc += awaited.b;
  else saved.grad += awaited.b;
  rnn_behind<float>(layer, step, i, j, saved, prod);
}

/* the gradient of the initial state */
template <bool BF>
__global__ void __launch_bounds__(BACK_WARPS * 32, 1)
    first_whole(const amp_rnn given, const amp_rnn_step step, char *dh0)
{
  const amp_rnn layer = known<BF>(given, given.mode);
  const int64_t first = (int64_t)blockIdx.y * BACK_ROWS, col = (int64_t)blockIdx.x * BACK_COLS;
  const int64_t i = first + threadIdx.x / BACK_COLS, j = col + threadIdx.x % BACK_COLS;
  const bool mine = threadIdx.x < BACK_ROWS * BACK_COLS && i < step.done && j < layer.r;
  late awaited
      = { NULL, mine && layer.mode == AMP_RNN_GRU ? (const float *)layer.carry + i * layer.h + j : NULL, 0, 0 };
  const float prod = sum_rows<BF>(layer, step, first, col, awaited);
  if (mine) amp_store<float>(dh0, layer.dtype, i * layer.r + j, prod + awaited.b);
}

static bool aligned(const void *p) { return ((uintptr_t)p & 15) == 0; }
static unsigned tiles(int64_t n, int64_t size) { return (unsigned)((n + size - 1) / size); }

} // namespace

/* 16-byte pieces of whole rows on tensor cores */
bool amp_rnn_fits(const amp_rnn *layer, bool backward, bool input)
{
  if (!amp_mma_here() || layer->h % 8 || layer->r % 8 || (input && layer->in % 8)) return false;
  if (!aligned(layer->h0) || !aligned(layer->y) || !aligned(layer->w)
      || (input && (!aligned(layer->x) || !aligned(layer->wx))))
    return false;
  return !backward || (aligned(layer->dg) && (layer->dgh == NULL || aligned(layer->dgh)));
}

/* And a product so small that re-reading it from the L2 cache takes less than a launch more */
bool amp_rnn_takes(const amp_rnn *layer, bool backward, bool input)
{
  const double most = amp__cuda_rnn > 1 ? INFINITY : 34e6; /* bytes read */
  if ((layer->dtype != AMP_FLOAT16 && layer->dtype != AMP_BFLOAT16) || !amp__cuda_rnn
      || !amp_rnn_fits(layer, backward, input) || layer->n > 4096 || layer->g > 65535 * 32)
    return false;
  double size = (double)layer->r + (input ? (double)layer->in : 0), n = (double)layer->n, g = (double)layer->g,
         h = (double)layer->h;
  if (!backward) return 2 * size * (ceil(n / ROWS) * g + h / COLS * n) <= most;
  if ((layer->gy && layer->gydt != layer->dtype) || (layer->gh && layer->ghdt != layer->dtype)
      || (layer->gc && layer->gcdt != layer->dtype))
    return false;
  return 2 * g * (ceil(n / BACK_ROWS) * (double)layer->r + ceil((double)layer->r / BACK_COLS) * n) <= most;
}

int amp_rnn_ahead_whole(const amp_rnn *layer, const amp_rnn_step *step, bool input, bool next)
{
  const dim3 grid((unsigned)(layer->h / COLS), tiles(step->m, ROWS));
  const int gates = (int)(layer->g / layer->h), take = input;
#define AHEAD(BF)                                                                                             \
  if (gates == 4) AMP_LAUNCH_NEXT(next, (ahead_whole<BF, 4>), grid, WARPS * 32, 0, *layer, *step, take);      \
  else if (gates == 3) AMP_LAUNCH_NEXT(next, (ahead_whole<BF, 3>), grid, WARPS * 32, 0, *layer, *step, take); \
  else AMP_LAUNCH_NEXT(next, (ahead_whole<BF, 1>), grid, WARPS * 32, 0, *layer, *step, take)
  if (layer->dtype == AMP_BFLOAT16) {
    AHEAD(true);
  } else {
    AHEAD(false);
  }
  return 0;
}

int amp_rnn_behind_whole(const amp_rnn *layer, const amp_rnn_step *step, bool next)
{
  const dim3 grid(tiles(layer->h, BACK_COLS), tiles(step->m, BACK_ROWS));
  if (layer->dtype == AMP_BFLOAT16)
    AMP_LAUNCH_NEXT(next, (behind_whole<true>), grid, BACK_WARPS * 32, 0, *layer, *step);
  else AMP_LAUNCH_NEXT(next, (behind_whole<false>), grid, BACK_WARPS * 32, 0, *layer, *step);
  return 0;
}

int amp_rnn_first_whole(const amp_rnn *layer, const amp_rnn_step *step, char *dh0, bool next)
{
  const dim3 grid(tiles(layer->r, BACK_COLS), tiles(step->done, BACK_ROWS));
  if (layer->dtype == AMP_BFLOAT16)
    AMP_LAUNCH_NEXT(next, (first_whole<true>), grid, BACK_WARPS * 32, 0, *layer, *step, dh0);
  else AMP_LAUNCH_NEXT(next, (first_whole<false>), grid, BACK_WARPS * 32, 0, *layer, *step, dh0);
  return 0;
}
