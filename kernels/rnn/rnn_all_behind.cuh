/*
** rnn_all_behind.cuh: all steps of a recurrent layer in one launch, backward (rnn_all.cu says how).
**
** A block has 64 columns of the product of a step's gates' gradient with the weights, and one of d.parts parts of the
** sum, which its 8 warps share out. A step: each warp reads its part of the gradients from the L2 cache and multiplies
** it with the weights in its registers; the block adds up its warps' sums and leaves them for the blocks of the same
** columns; each of those takes all blocks' sums of its share of a set's values, and a thread finishes two columns of a
** row.
*/
#ifndef AMP_RNN_ALL_BEHIND_CUH
#define AMP_RNN_ALL_BEHIND_CUH
#include "rnn/rnn_all.cuh"

namespace {

#if AMP_MMA
/* The two hidden values that a thread finishes, where their next step lies, and what it has of them as it lies in
** memory, asked for a step ahead; the cell before is the next step's cell */
struct behind_place {
  int set, mark;             /* its set of rows; where its values are among the set's */
  int64_t row, j;            /* its row (< 0: none), and its first hidden value */
  const float *kept;         /* in the reserve */
  const char *grads, *state; /* of the results' gradients (NULL: none), of the states */
  char *gates;
  uint2 before, cell, grad;
};

/* What it has from step to step in arrays. Apart from behind_place: a struct with arrays stays in memory until
** loops are unrolled, and the places, which loops are made of, would with it. carry: what goes from step to step
** beside the product: of cells (LSTM), of states (GRU) */
struct behind_values {
  uint2 gate[4];
  float carry[2];
};

__device__ __forceinline__ uint2 one_word(const void *p) { return make_uint2(*(const unsigned *)p, 0); }

/* Where a row's cells are in the reserve */
template <int D> __device__ __forceinline__ int cells_at(int h) { return (int)kind<D>::WIDE == 2 ? 0 : 4 * h; }

/* The weights of this warp's pieces of the sum, and where a lane's values of a piece are among the gates'. slice:
** hidden values of a part */
template <int D>
__device__ __forceinline__ void behind_weights(typename kind<D>::weights (&held)[kind<D>::BACK_PIECES][BACK_COLS / 8],
                                               int (&place)[kind<D>::BACK_PIECES], const amp_rnn &layer,
                                               const amp_rnn_share &share, int slice, int here)
{
  typedef kind<D> K;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, h = (int)layer.h, per = slice / PIECE;
  const int64_t col = (int64_t)blockIdx.x * BACK_COLS;
#pragma unroll
  for (int p = 0; p < K::BACK_PIECES; p++) {
    const int v = warp * share.pieces + p;
    place[p] = p < here ? v / per * h + (int)blockIdx.y * slice + v % per * PIECE + (lane & 3) * 8 : 0;
#pragma unroll
    for (int q = 0; q < BACK_COLS / 8; q++)
      held[p][q] = p < here
                       ? K::apart(layer.w + (place[p] * layer.h + col + q * 8 + (lane >> 2)) * (int)K::WIDE, layer.h)
                       : K::none();
  }
}

/* Asks for what the next step needs; last: the last one, before which the initial states are */
template <int D, int G>
__device__ __forceinline__ void ask_saved(behind_place &own, behind_values &value, const amp_rnn &layer, int64_t on,
                                          bool last)
{
  enum { WIDE = kind<D>::WIDE };
  const int h = (int)layer.h;
  const char *halves = (const char *)(own.kept - own.j + (G == 4 ? h : 0)) + own.j * 2;
#pragma unroll
  for (int q = 0; q < (G == 1 ? 1 : 4); q++)
    value.gate[q]
        = (int)WIDE == 2 && G > 1 ? one_word(halves + (int64_t)q * h * 2) : *(const uint2 *)(own.kept + (int64_t)q * h);
  if (G == 4)
    own.before
        = *(const uint2 *)(last ? (const float *)layer.reserve + layer.rows * layer.rs + own.row * layer.h + own.j
                                : own.kept + on * layer.rs + cells_at<D>(h));
  if (G == 3) {
    const char *p = last ? layer.h0 + (own.row * layer.h + own.j) * (int)WIDE : own.state;
    own.before = (int)WIDE == 2 ? one_word(p) : *(const uint2 *)p;
  }
  own.grad = !own.grads                  ? make_uint2(0, 0)
             : layer.gydt == AMP_FLOAT32 ? *(const uint2 *)own.grads
                                         : one_word(own.grads);
}

/* begin: the first step; on: rows from a step to the one before it. A thread's set and row have nothing to do with
** those that its warp multiplies */
template <int D, int G, int MT, int SETS>
__device__ __forceinline__ void begin_behind(behind_place &own, behind_values &value, const amp_rnn &layer,
                                             const amp_rnn_share &share, int64_t from, int64_t begin, int64_t on)
{
  constexpr int SIZE = MT * 16 * BACK_COLS, WIDE = kind<D>::WIDE;
  const int v = threadIdx.x % (THREADS / SETS) * 2;
  own.set = threadIdx.x / (THREADS / SETS);
  own.mark = (int)blockIdx.y * (SIZE / share.parts) + v;
  const int64_t i = (int64_t)blockIdx.z * (SETS * MT * 16) + own.set * (MT * 16) + own.mark / BACK_COLS;
  own.j = (int64_t)blockIdx.x * BACK_COLS + own.mark % BACK_COLS;
  own.row = v < SIZE / share.parts && i < layer.n ? i : -1;
#pragma unroll
  for (int q = 0; q < 4; q++) value.gate[q] = make_uint2(0, 0);
  own.before = own.cell = own.grad = make_uint2(0, 0);
  value.carry[0] = value.carry[1] = 0;
  const int64_t start = begin * layer.n + (own.row < 0 ? 0 : own.row);
  own.kept = (const float *)layer.reserve + start * layer.rs + own.j;
  own.grads = layer.gy ? layer.gy + (start * layer.h + own.j) * (layer.gydt == AMP_FLOAT32 ? 4 : 2) : NULL;
  own.state = layer.y + ((start + on) * layer.h + own.j) * WIDE;
  own.gates = (G == 3 ? layer.dgh : layer.dg) + (start * layer.g + own.j) * WIDE;
  if (own.row >= 0 && from < layer.t) {
    ask_saved<D, G>(own, value, layer, on, from == layer.t - 1);
    if (G == 4) own.cell = *(const uint2 *)(own.kept + cells_at<D>((int)layer.h));
  }
#pragma unroll
  for (int e = 0; e < 2; e++) {
    if (own.row < 0) continue;
    if (from)
      value.carry[e] = G == 1 ? 0.f : ((const float *)(G == 4 ? layer.dc : layer.carry))[own.row * layer.h + own.j + e];
    else if (G == 4 && layer.gc) value.carry[e] = amp_load<float>(layer.gc, layer.gcdt, own.row * layer.h + own.j + e);
  }
}

/* Where this lane's row of eight from `first` on begins among the gates' gradients; of rows that are not there: any
** other */
template <int D> __device__ __forceinline__ unsigned row_offset(const amp_rnn &layer, int64_t first)
{
  const int64_t r = first + ((threadIdx.x & 31) >> 2);
  return (unsigned)((r < layer.n ? r : layer.n - 1) * layer.g * (int)kind<D>::WIDE);
}

/* Where this lane's rows of the first two sets begin */
template <int D, int MT>
__device__ __forceinline__ void two_leads(unsigned (&leads)[2][MT * 2], const amp_rnn &layer, int64_t first)
{
#pragma unroll
  for (int e = 0; e < MT * 2; e++) {
    leads[0][e] = row_offset<D>(layer, first + e * 8);
    leads[1][e] = row_offset<D>(layer, first + MT * 16 + e * 8);
  }
}

/* Reads this warp's pieces of a set's gradients of the later step. leads: rows of sets 0 and 1, which are kept; fresh:
** they may not be there yet */
template <int D, int MT, int SETS>
__device__ __forceinline__ void read_gates(uint4 (&fragments)[kind<D>::BACK_PIECES * MT * 2 * kind<D>::FETCHES],
                                           const amp_rnn &layer, const char *later, const unsigned (&leads)[2][MT * 2],
                                           const int (&place)[kind<D>::BACK_PIECES], int64_t first, int set, int here,
                                           bool fresh)
{
  constexpr int TILES = MT * 2, F = kind<D>::FETCHES;
  const char *at[kind<D>::BACK_PIECES * TILES];
#pragma unroll
  for (int e = 0; e < kind<D>::BACK_PIECES * TILES; e++)
    at[e] = later
            + (SETS > 2                ? row_offset<D>(layer, first + set * (MT * 16) + e % TILES * 8)
               : SETS == 1 || set == 0 ? leads[0][e % TILES]
                                       : leads[1][e % TILES])
            + place[e / TILES] * (int)kind<D>::WIDE;
  gather<SETS == 1>(
      fragments, [&](int e) -> const char * { return e / (TILES * F) < here ? at[e / F] + e % F * 16 : NULL; },
      [&](const uint4 &v) { return fresh && absent(v); });
}

/* This warp's pieces of the gradients times its weights, to its part of shared memory */
template <int D, int MT>
__device__ __forceinline__ void multiply_gates(
    float *part, const uint4 (&fragments)[kind<D>::BACK_PIECES * MT * 2 * kind<D>::FETCHES],
    const typename kind<D>::weights (&held)[kind<D>::BACK_PIECES][BACK_COLS / 8], int here)
{
  typedef kind<D> K;
  enum { F = K::FETCHES };
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int m = 0; m < MT; m++) {
    float acc[BACK_COLS / 8][4];
#pragma unroll
    for (int q = 0; q < BACK_COLS / 8; q++) {
#pragma unroll
      for (int e = 0; e < 4; e++) acc[q][e] = 0;
    }
#pragma unroll
    for (int p = 0; p < K::BACK_PIECES; p++) {
      if (p < here) {
#pragma unroll
        for (int q = 0; q < BACK_COLS / 8; q++)
          K::product(acc[q], fragments + (p * MT + m) * 2 * F, fragments + ((p * MT + m) * 2 + 1) * F, held[p][q]);
      }
    }
#pragma unroll
    for (int q = 0; q < BACK_COLS / 8; q++) {
      float *p = part + (m * 16 + g) * PITCH + q * 8 + 2 * t;
      *(float2 *)p = make_float2(acc[q][0], acc[q][1]);
      *(float2 *)(p + 8 * PITCH) = make_float2(acc[q][2], acc[q][3]);
    }
  }
}

/* The sums of all warps, marked with the step's bit, to where the blocks of the same columns read them. ROWS:
** values of a warp in shared memory */
template <int MT, int ROWS> __device__ __forceinline__ void leave_sums(float *to, const float *part_sums, unsigned bit)
{
  const float *p = part_sums + threadIdx.x / (BACK_COLS / 4) * PITCH + threadIdx.x % (BACK_COLS / 4) * 4;
#pragma unroll
  for (int e = 0; e < MT; e++) {
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int q = 0; q < WARPS; q++) {
      const float4 v = *(const float4 *)(p + q * ROWS + e * (THREADS * 4 / BACK_COLS) * PITCH);
      sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    }
    write(to + e * THREADS * 4,
          make_uint4(marked(sum.x, bit), marked(sum.y, bit), marked(sum.z, bit), marked(sum.w, bit)));
  }
}

/* prod = all blocks' sums of a thread's two columns, without their bits: an infinite one with a bit would be a NaN */
__device__ __forceinline__ void add_sums(float (&prod)[2], const uint2 (&p)[8])
{
#pragma unroll
  for (int q = 0; q < 8; q++) {
    prod[0] += __uint_as_float(p[q].x & ~1u);
    prod[1] += __uint_as_float(p[q].y & ~1u);
  }
}

/* Gradients of value e of a thread's two at step n */
template <int D, int G>
__device__ __forceinline__ rnn_slope<float> slope_of(const behind_place &own, const behind_values &value,
                                                     const amp_rnn &layer, int mode, int e, int64_t n, float prod)
{
  typedef kind<D> K;
  typedef typename K::pair pair;
  const auto full = [&](const uint2 &saved) { return __uint_as_float(e ? saved.y : saved.x); };
  const auto half = [&](const uint2 &saved) { return (uint16_t)(e ? saved.x >> 16 : saved.x & 0xffffu); };
  rnn_saved<float> saved = { 0, { 0, 0, 0, 0 }, 0, 0, 0 };
  saved.grad = layer.gydt == AMP_FLOAT32   ? full(own.grad)
               : layer.gydt == AMP_FLOAT16 ? amp_h2f(half(own.grad))
                                           : amp_bf2f(half(own.grad));
  if (n == 0 && layer.gh) saved.grad += amp_load<float>(layer.gh, layer.ghdt, own.row * layer.h + own.j + e);
#pragma unroll
  for (int q = 0; q < (G == 1 ? 1 : 4); q++)
    saved.gate[q] = (int)K::WIDE == 4 || G == 1 ? full(value.gate[q]) : rnn_wide(mode, D, q, half(value.gate[q]));
  if (G == 4) {
    saved.cell = full(own.cell);
    saved.before = full(own.before);
    saved.dc = value.carry[e];
  } else if (G == 3) {
    saved.before = (int)K::WIDE == 4 ? full(own.before)
                   : e               ? K::second(*(const pair *)&own.before)
                                     : K::first(*(const pair *)&own.before);
    saved.grad += value.carry[e];
  }
  return rnn_back<float, K::HOW>(mode, saved, prod);
}

/* The gates' gradients of a thread's two values; of a GRU those of the state's part, which the next step waits for,
** come first */
template <int D, int G>
__device__ __forceinline__ void write_gates(const behind_place &own, const amp_rnn &layer,
                                            const rnn_slope<float> (&slopes)[2])
{
  typedef kind<D> K;
  enum { WIDE = K::WIDE };
  const int h = (int)layer.h;
#pragma unroll
  for (int q = 0; q < G; q++) {
    const int v = G == 3 && q == 2 ? 3 : q; /* its state's part is another */
    write(own.gates + (int64_t)q * h * (int)WIDE, K::pack(slopes[0].gate[v], slopes[1].gate[v]));
  }
  if (G == 3) {
#pragma unroll
    for (int q = 0; q < 3; q++)
      *(typename K::pair *)(layer.dg + (own.gates - layer.dgh) + (int64_t)q * h * (int)WIDE)
          = K::pack(slopes[0].gate[q], slopes[1].gate[q]);
  }
}

/* The gradients of a thread's two initial states, whose product is prod */
template <int D, int G>
__device__ __forceinline__ void finish_initial(const behind_place &own, const behind_values &value,
                                               const amp_rnn &layer, char *dh0, const float (&prod)[2])
{
  typedef kind<D> K;
  *(typename K::pair *)(dh0 + (own.row * layer.h + own.j) * (int)K::WIDE)
      = K::pack(prod[0] + (G == 3 ? value.carry[0] : 0.f), prod[1] + (G == 3 ? value.carry[1] : 0.f));
}

/* A thread's two hidden values of step n, whose product is prod */
template <int D, int G>
__device__ __forceinline__ void finish_behind(behind_place &own, behind_values &value, const amp_rnn &layer, int mode,
                                              const float (&prod)[2], int64_t n, int64_t to, int64_t on)
{
  typedef kind<D> K;
  enum { WIDE = K::WIDE };
  rnn_slope<float> slopes[2];
#pragma unroll
  for (int e = 0; e < 2; e++) slopes[e] = slope_of<D, G>(own, value, layer, mode, e, n, prod[e]);
  write_gates<D, G>(own, layer, slopes);
  value.carry[0] = slopes[0].state;
  value.carry[1] = slopes[1].state;
  own.cell = own.before;
  own.gates += on * layer.g * (int)WIDE;
  own.kept += on * layer.rs;
  own.state += on * layer.h * (int)WIDE;
  if (own.grads) own.grads += on * layer.h * (layer.gydt == AMP_FLOAT32 ? 4 : 2);
  if (n + 1 < layer.t && n + 1 < to) ask_saved<D, G>(own, value, layer, on, n + 2 == layer.t);
  else if (n == layer.t - 1 && G == 4)
    *(typename K::pair *)(layer.dc0 + (own.row * layer.h + own.j) * (int)WIDE)
        = K::pack(slopes[0].state, slopes[1].state);
}
#endif

/* Parts of a step: a launch of the emulator makes one of them, a card's both */
enum { PHASE_SUMS = 1, PHASE_FINISH = 2, PHASE_BOTH = PHASE_SUMS | PHASE_FINISH };

/* Steps from .. to - 1 from the last one on, and one more for the initial state. phase: up to the blocks' sums, from
** there on, or both. Sets of rows as forward. */
template <int D, int G, int MT, int SETS>
__global__ void __launch_bounds__(THREADS, 1)
    behind_all(const amp_rnn layer, const amp_rnn_share share, char *dh0, int64_t from, int64_t to, int phase)
{
#if AMP_MMA
  typedef kind<D> K;
  constexpr int SIZE = MT * 16 * BACK_COLS, ROWS = MT * 16 * PITCH; /* values of a set; of a warp in shared memory */
  const int mode = mode_of<G>(layer);
  AMP_SHARED(float, memory);
  const int64_t first = (int64_t)blockIdx.z * (SETS * MT * 16);
  const int slice = (int)layer.h / share.parts,
            here = pieces_here(share, G * (slice / PIECE)); /* hidden values of a part */
  const int64_t tile = (int64_t)blockIdx.z * gridDim.x + blockIdx.x, tiles = (int64_t)gridDim.x * gridDim.z;
  const int64_t begin = layer.reverse ? from : layer.t - 1 - from,
                on = layer.reverse ? layer.n : -layer.n; /* rows from a step to the one before it */
  const char *gates = G == 3 ? layer.dgh : layer.dg;
  int place[K::BACK_PIECES];
  typename K::weights held[K::BACK_PIECES][BACK_COLS / 8];
  behind_weights<D>(held, place, layer, share, slice, here);
  behind_place own;
  behind_values value;
  begin_behind<D, G, MT, SETS>(own, value, layer, share, from, begin, on);
  const int whole = share.parts * SIZE; /* a set's sums */
  const float *theirs = share.sums + (tile * SETS + own.set) * whole + own.mark;
  float *ours = share.sums + tile * SETS * whole + (int)blockIdx.y * SIZE + threadIdx.x * 4;
  unsigned leads[2][MT * 2];
  two_leads<D, MT>(leads, layer, first);

  for (int64_t n = from; n < to; n++) {
    const char *later = gates + ((layer.reverse ? n - 1 : layer.t - n) * layer.n * layer.g) * (int)K::WIDE;
    const int64_t turn = (n & 1) * tiles * SETS * whole;
    const unsigned bit = bit_of(n);
#pragma unroll 1
    for (int set = 0; set < SETS; set++) {
      if (n && (phase & PHASE_SUMS)) {
        float *part_sums = memory + (SETS > 1 ? set : (int)n & 1) * (WARPS * ROWS);
        uint4 fragments[K::BACK_PIECES * MT * 2 * K::FETCHES];
        read_gates<D, MT, SETS>(fragments, layer, later, leads, place, first, set, here, n > from);
        multiply_gates<D, MT>(part_sums + (threadIdx.x >> 5) * ROWS, fragments, held, here);
        __syncthreads();
        leave_sums<MT, ROWS>(ours + turn + set * whole, part_sums, bit);
      }
      if (!(phase & PHASE_FINISH) || own.row < 0 || set != own.set) continue;
      float prod[2] = { 0, 0 };
      if (n) {
        uint2 p[8];
        gather<true>(
            p, [&](int q) { return q < share.parts ? (const char *)(theirs + turn + q * SIZE) : NULL; },
            [&](const uint2 &v) { return ((v.x ^ bit) | (v.y ^ bit)) & 1; });
        add_sums(prod, p);
      }
      if (n == layer.t) {
        finish_initial<D, G>(own, value, layer, dh0, prod);
        continue;
      }
      finish_behind<D, G>(own, value, layer, mode, prod, n, to, on);
    }
  }
  if (G > 1 && (phase & PHASE_FINISH) && to <= layer.t && own.row >= 0) /* a launch to come goes on from here */
    *(float2 *)((float *)(G == 4 ? layer.dc : layer.carry) + own.row * layer.h + own.j)
        = make_float2(value.carry[0], value.carry[1]);
#endif
}

} // namespace

#endif
