/*
** rnn_all_ahead.cuh: all steps of a recurrent layer in one launch, forward (rnn_all.cu says how).
**
** A block has 8 hidden values of some rows, all their gates and the whole sum, which its 8 warps share out. A step:
** each warp reads its part of the states from the L2 cache, multiplies it with the weights in its registers and
** leaves the sums in shared memory; then a thread finishes two hidden values of a row, four threads a row. A step's
** time is the number of instructions from a state to the next: addresses are moved on rather than computed, and
** what can wait comes behind the result.
*/
#ifndef AMP_RNN_ALL_AHEAD_CUH
#define AMP_RNN_ALL_AHEAD_CUH
#include "rnn/rnn_all.cuh"

namespace {

#if AMP_MMA
/* The two hidden values that a thread finishes, and where their next step lies */
struct ahead_place {
  int set, pair;  /* its set of rows; which pair of the set's values it is */
  int64_t row, j; /* its row (< 0: none), and its first hidden value */
  const char *input;
  char *result;
  float *reserve;
};

/* What it has of them from step to step. Apart from ahead_place: a struct with arrays stays in memory until loops are
** unrolled, and the places, which loops are made of, would with it */
template <int D, int G> struct ahead_values {
  float bias[G][2], state_own[2]; /* state_own: of a GRU's last gate the state's bias, which stays apart */
  float before[2];                /* cells (LSTM) or states */
  typename kind<D>::pair x[G];    /* the input's part of the next step, asked for a step ahead */
};

/* The weights of this warp's pieces of the sum */
template <int D, int G>
__device__ __forceinline__ void ahead_weights(typename kind<D>::weights (&held)[kind<D>::PIECES][G],
                                              const amp_rnn &layer, const amp_rnn_share &share, int here)
{
  typedef kind<D> K;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int64_t row = (int64_t)blockIdx.x * COLS + (lane >> 2);
#pragma unroll
  for (int p = 0; p < K::PIECES; p++) {
#pragma unroll
    for (int q = 0; q < G; q++)
      held[p][q]
          = p < here ? K::beside(layer.w
                                 + ((q * layer.h + row) * layer.h + (warp * share.pieces + p) * PIECE + (lane & 3) * 8)
                                       * (int)K::WIDE)
                     : K::none();
  }
}

/* Asks for the input's part of the next step */
template <int D, int G>
__device__ __forceinline__ void ask_input(const ahead_place &own, ahead_values<D, G> &value, int h)
{
#pragma unroll
  for (int q = 0; q < G; q++)
    value.x[q] = *(const typename kind<D>::pair *)(own.input + (int64_t)q * h * (int)kind<D>::WIDE);
}

/* begin: the first step; on: rows from a step to the next. A thread's set and row have nothing to do with those
** that its warp multiplies */
template <int D, int G, int MT, int SETS>
__device__ __forceinline__ void begin_ahead(ahead_place &own, ahead_values<D, G> &value, const amp_rnn &layer,
                                            int64_t from, int64_t begin, int64_t on)
{
  enum { WIDE = kind<D>::WIDE };
  own.j = (int64_t)blockIdx.x * COLS + (threadIdx.x & 3) * 2;
  value.state_own[0] = value.state_own[1] = 0;
#pragma unroll
  for (int e = 0; e < 2; e++) {
#pragma unroll
    for (int q = 0; q < G; q++) {
      const float x = layer.bi ? amp_load<float>(layer.bi, D, q * layer.h + own.j + e) : 0.f,
                  u = layer.bh ? amp_load<float>(layer.bh, D, q * layer.h + own.j + e) : 0.f;
      const bool apart = G == 3 && q == 2;
      value.bias[q][e] = apart ? x : x + u;
      if (apart) value.state_own[e] = u;
    }
  }
  own.set = threadIdx.x / (THREADS / SETS);
  own.pair = threadIdx.x % (THREADS / SETS);
  const int r = own.pair >> 2;
  const int64_t i = (int64_t)blockIdx.y * (SETS * MT * 16) + own.set * (MT * 16) + r;
  own.row = r < MT * 16 && i < layer.n ? i : -1;
  const int64_t start = begin * layer.n + (own.row < 0 ? 0 : own.row);
  own.input = layer.xg + (start * layer.g + own.j) * (int)WIDE;
  own.result = layer.y + (start * layer.h + own.j) * (int)WIDE;
  own.reserve = (float *)layer.reserve + start * layer.rs + own.j;
  ask_input<D, G>(own, value, (int)layer.h);
  const amp_rnn_step initial
      = { 0, 0, begin * layer.n - on, from ? layer.n : 0, 0, 0, 0, 0 }; /* as far as rnn_before asks */
#pragma unroll
  for (int e = 0; e < 2; e++)
    value.before[e] = own.row < 0 ? 0.f : rnn_before<float>(layer, initial, own.row, own.j + e);
}

/* acc = this warp's pieces of the states times its weights */
template <int D, int G, int MT>
__device__ __forceinline__ void multiply_states(float (&acc)[MT][G][4],
                                                const uint4 (&states)[kind<D>::PIECES * MT * 2 * kind<D>::FETCHES],
                                                const typename kind<D>::weights (&held)[kind<D>::PIECES][G], int here)
{
  typedef kind<D> K;
  enum { F = K::FETCHES };
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int q = 0; q < G; q++) {
#pragma unroll
      for (int e = 0; e < 4; e++) acc[m][q][e] = 0;
    }
  }
#pragma unroll
  for (int p = 0; p < K::PIECES; p++) {
    if (p < here) {
#pragma unroll
      for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int q = 0; q < G; q++)
          K::product(acc[m][q], states + (p * MT + m) * 2 * F, states + ((p * MT + m) * 2 + 1) * F, held[p][q]);
      }
    }
  }
}

/* A warp's sums to its part of shared memory: gates x rows x columns */
template <int G, int MT> __device__ __forceinline__ void share_sums(float *part, const float (&acc)[MT][G][4])
{
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int q = 0; q < G; q++) {
      float *p = part + q * (MT * 16 * COLS) + (m * 16 + g) * COLS + 2 * t;
      *(float2 *)p = make_float2(acc[m][q][0], acc[m][q][1]);
      *(float2 *)(p + 8 * COLS) = make_float2(acc[m][q][2], acc[m][q][3]);
    }
  }
}

/* The input's and the state's part of each gate of a thread's two values, from all warps' sums. SIZE: values of a
** gate */
template <int D, int G, int SIZE>
__device__ __forceinline__ void gate_sums(float (&in)[G][2], float (&sum)[G][2], const ahead_place &own,
                                          const ahead_values<D, G> &value, const float *part)
{
  typedef kind<D> K;
#pragma unroll
  for (int q = 0; q < G; q++) {
    in[q][0] = K::first(value.x[q]) + value.bias[q][0];
    in[q][1] = K::second(value.x[q]) + value.bias[q][1];
    sum[q][0] = G == 3 && q == 2 ? value.state_own[0] : 0.f;
    sum[q][1] = G == 3 && q == 2 ? value.state_own[1] : 0.f;
#pragma unroll
    for (int v = 0; v < WARPS; v++) {
      const float2 p = *(const float2 *)(part + (v * G + q) * SIZE + own.pair * 2);
      sum[q][0] += p.x;
      sum[q][1] += p.y;
    }
  }
}

/* What the way back needs, in pairs of columns, to row r of the reserve */
template <int D, int G>
__device__ __forceinline__ void keep_gates(const ahead_place &own, const ahead_values<D, G> &value,
                                           const amp_rnn &layer, int mode, float *row, const rnn_made<float> (&made)[2],
                                           bool first)
{
  enum { WIDE = kind<D>::WIDE };
  const int h = (int)layer.h;
  char *gate = (char *)(row - own.j + (G == 4 ? h : 0)) + own.j * 2;
#pragma unroll
  for (int q = 0; q < (G == 1 ? 1 : 4); q++) {
    if ((int)WIDE == 4 || G == 1) *(float2 *)(row + (int64_t)q * h) = make_float2(made[0].keep[q], made[1].keep[q]);
    else if (q == 2) *(unsigned *)(gate + (int64_t)q * h * 2) = amp_pack<false>(made[0].keep[q], made[1].keep[q]);
    else
      *(unsigned *)(gate + (int64_t)q * h * 2)
          = (unsigned)rnn_narrow(mode, D, q, made[0].keep[q]) | (unsigned)rnn_narrow(mode, D, q, made[1].keep[q]) << 16;
  }
  if (G == 4) {
    *(float2 *)(row + ((int)WIDE == 2 ? 0 : 4 * h)) = make_float2(made[0].c, made[1].c);
    if (first)
      *(float2 *)((float *)layer.reserve + layer.rows * layer.rs + own.row * layer.h + own.j)
          = make_float2(value.before[0], value.before[1]);
  }
}

/* A thread's two hidden values of step n: from the warps' sums to the result, then what can wait */
template <int D, int G, int SIZE>
__device__ __forceinline__ void finish_ahead(ahead_place &own, ahead_values<D, G> &value, const amp_rnn &layer,
                                             int mode, const float *part, int64_t n, int64_t to, int64_t on)
{
  typedef kind<D> K;
  typedef typename K::pair pair;
  enum { WIDE = K::WIDE };
  const int h = (int)layer.h;
  float in[G][2], sum[G][2];
  gate_sums<D, G, SIZE>(in, sum, own, value, part);
  rnn_made<float> made[2];
#pragma unroll
  for (int e = 0; e < 2; e++)
    made[e] = rnn_make<float, K::HOW>(
        mode, value.before[e], [&](int q) { return in[q][e]; }, [&](int q) { return sum[q][e]; });
  const pair both = K::pack(made[0].y, made[1].y);
  write(own.result, both);
  own.result += on * h * (int)WIDE;
  own.input += on * layer.g * (int)WIDE;
  if (n + 1 < to) ask_input<D, G>(own, value, h);
  keep_gates<D, G>(own, value, layer, mode, own.reserve, made, n == 0);
  own.reserve += on * layer.rs;
  if (n == layer.t - 1) {
    *(pair *)(layer.hn + (own.row * layer.h + own.j) * (int)WIDE) = both;
    if (G == 4) *(pair *)(layer.cn + (own.row * layer.h + own.j) * (int)WIDE) = K::pack(made[0].c, made[1].c);
  }
  value.before[0] = G == 4 ? made[0].c : K::first(both);
  value.before[1] = G == 4 ? made[1].c : K::second(both);
}
#endif

/* G gates; steps from .. to - 1. A block's rows are SETS sets of MT * 16, which know nothing of each other: while the
** states of one are on their way another's step is made. */
template <int D, int G, int MT, int SETS>
__global__ void __launch_bounds__(THREADS, 1)
    ahead_all(const amp_rnn layer, const amp_rnn_share share, int64_t from, int64_t to)
{
#if AMP_MMA
  typedef kind<D> K;
  constexpr int SIZE = MT * 16 * COLS, TILES = MT * 2, PIECES = K::PIECES, F = K::FETCHES,
                WIDE = K::WIDE; /* SIZE: values of a gate; TILES: rows of a lane in a product */
  const int mode = mode_of<G>(layer);
  AMP_SHARED(float, memory); /* of each set, of a single one twice: warps x G gates x rows x columns */
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, here = pieces_here(share, (int)layer.h / PIECE);
  const int64_t first = (int64_t)blockIdx.y * (SETS * MT * 16);
  const int64_t begin = layer.reverse ? layer.t - 1 - from : from,
                on = layer.reverse ? -layer.n : layer.n; /* rows from a step to the next */
  typename K::weights held[PIECES][G];
  ahead_weights<D, G>(held, layer, share, here);
  ahead_place own;
  ahead_values<D, G> value;
  begin_ahead<D, G, MT, SETS>(own, value, layer, from, begin, on);
  /* where this lane's values begin among the states; rows that are not there: any other. Of two sets they are kept */
  const auto lead = [&](int set, int e) {
    const int64_t i = first + set * (MT * 16) + (lane >> 2) + e * 8;
    return (unsigned)(((i < layer.n ? i : layer.n - 1) * layer.h + warp * share.pieces * PIECE + (lane & 3) * 8)
                      * WIDE);
  };
  unsigned kept[2][TILES];
#pragma unroll
  for (int e = 0; e < TILES; e++) {
    kept[0][e] = lead(0, e);
    kept[1][e] = lead(1, e);
  }
  const char *states = from == 0 ? layer.h0 : layer.y + (begin * layer.n - on) * layer.h * WIDE;

  for (int64_t n = from; n < to; n++) {
#pragma unroll 1
    for (int set = 0; set < SETS; set++) { /* one piece of code for all, which then stays in the instruction cache */
      uint4 fragments[PIECES * TILES * F];
      const char *at[TILES];
#pragma unroll
      for (int e = 0; e < TILES; e++)
        at[e] = states + (SETS > 2 ? lead(set, e) : SETS == 1 || set == 0 ? kept[0][e] : kept[1][e]);
      gather<SETS == 1>(
          fragments,
          [&](int e) -> const char * {
            return e / (TILES * F) < here ? at[e / F % TILES] + e / (TILES * F) * (PIECE * WIDE) + e % F * 16 : NULL;
          },
          [&](const uint4 &v) { return n > from && absent(v); });
      float acc[MT][G][4];
      multiply_states<D, G, MT>(acc, fragments, held, here);
      /* a part of the memory that was not used last: a warp that still reads the other part is not disturbed */
      float *part = memory + (SETS > 1 ? set : (int)n & 1) * (WARPS * G * SIZE);
      share_sums<G, MT>(part + warp * G * SIZE, acc);
      __syncthreads();
      if (own.row < 0 || set != own.set) continue;
      finish_ahead<D, G, SIZE>(own, value, layer, mode, part, n, to, on);
    }
    states = n == 0 ? layer.y + begin * layer.n * layer.h * WIDE : states + on * layer.h * WIDE;
  }
#endif
}

} // namespace

#endif
