/*
** dropout.cuh: which of attention's weights dropout keeps. Nothing of it is in memory
** but where the random numbers begin (two integers, `draw`), which the forward
** kernel leaves and the backward kernels read.
**
** A counter of Philox (7 rounds, the fewest that pass all known tests: Salmon et al., 2011) decides on 16 weights, a
** word on 4 of them: each takes the word turned by a byte more. So each is kept with the probability that 32 bits can
** say, and two of one word depend on each other by the bytes that matter once in 256 times. The seed is a part of what
** is counted, not the key, whose multiples are constants of the code so.
**
** Counters go by blocks of 32 queries x 16 keys, 32 each, one a lane of whoever has scores as tensor cores give them
** (common/mma.cuh):
**
**   counter 4 r + q of a block    queries r, r + 8, r + 16, r + 24    keys 2q, 2q + 1, 2q + 8, 2q + 9
**   word e + 2 n                  key 2q + e + 8 n; turned by b bytes it is of query r + 8 b
**
** Kernels whose rows are keys exchange half of what they draw with the lane that has
** the odd (or even) keys beside theirs. Cost: about one multiplication and one
** exclusive or of 32 bits a weight.
*/
#ifndef AMP_ATTENTION_DROPOUT_CUH
#define AMP_ATTENTION_DROPOUT_CUH
#include "common/philox.cuh"

enum { AMP_DROP_QUERIES = 32, AMP_DROP_KEYS = 16, AMP_DROP_EACH = 32 /* counters of a block */ };

typedef struct amp_drop {
  bool on;
  amp_rng rng;       /* where its random numbers begin, */
  uint64_t *leave;   /* which is left here by a forward kernel */
  uint32_t least;    /* words below it drop their weights */
  float scale;       /* of weights that are kept: 1 / (1 - p), or 0 where p is 1 */
  int rows, columns; /* blocks of queries, of keys */
} amp_drop;

static inline amp_drop amp_drop_of(double p, int64_t length, int64_t keys)
{
  amp_drop d;
  memset((void *)&d, 0, sizeof d);
  d.scale = 1;
  if (!(p > 0)) return d;
  const double least = p * 0x1p32;
  d.on = true;
  d.least = least > 4294967295.0 ? 4294967295u : (uint32_t)least;
  d.scale = p < 1 ? (float)(1 / (1 - p)) : 0.f;
  d.rows = (int)((length + AMP_DROP_QUERIES - 1) / AMP_DROP_QUERIES);
  d.columns = (int)((keys + AMP_DROP_KEYS - 1) / AMP_DROP_KEYS);
  return d;
}
/* Of a forward pass, which draws, and of a backward pass, which draws the same again */
static inline amp_drop amp_drop_new(double p, amp_tensor *draw, int64_t batch, int64_t length, int64_t keys)
{
  amp_drop d = amp_drop_of(p, length, keys);
  if (!d.on) return d;
  d.rng = amp__cuda_rng(batch * d.rows * d.columns * AMP_DROP_EACH);
  d.leave = (uint64_t *)amp__data(draw);
  return d;
}
static inline amp_drop amp_drop_again(double p, const amp_tensor *draw, int64_t length, int64_t keys)
{
  amp_drop d = amp_drop_of(p, length, keys);
  if (d.on) d.rng.cell = (const uint64_t *)amp__data(draw);
  return d;
}

/* Where a batch's random numbers begin, in registers */
typedef struct amp_drop_way {
  uint64_t seed, counter;
} amp_drop_way;
__device__ __forceinline__ amp_drop_way amp_drop_begin(const amp_drop &d, uint64_t batch)
{
  amp_drop_way way = { d.rng.seed, d.rng.counter };
  if (!d.on) return way;
  if (d.rng.cell) {
    way.seed = d.rng.cell[0];
    way.counter += d.rng.cell[1];
  }
  if (d.leave && blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
    d.leave[0] = way.seed;
    d.leave[1] = way.counter;
  }
  way.counter += batch * (uint64_t)d.rows * (uint64_t)d.columns * AMP_DROP_EACH;
  return way;
}
/* The words of a counter, of the block that has query i and key j */
__device__ __forceinline__ void amp_drop_words(uint32_t (&w)[4], const amp_drop &d, const amp_drop_way &way, int i,
                                               int j, unsigned counter)
{
  const uint64_t n = way.counter + (uint64_t)(unsigned)(i / AMP_DROP_QUERIES) * ((unsigned)d.columns * AMP_DROP_EACH)
                     + ((unsigned)(j / AMP_DROP_KEYS) * AMP_DROP_EACH + counter);
  const uint4 x = amp_philox_of<7>(0, n, way.seed);
  w[0] = x.x;
  w[1] = x.y;
  w[2] = x.z;
  w[3] = x.w;
}
/* Is the weight kept whose word this is, turned by so many bytes? */
__device__ __forceinline__ bool amp_drop_keeps(const amp_drop &d, uint32_t word, int bytes)
{
  const int bits = bytes * 8;
  return (word << bits | word >> (-bits & 31)) >= d.least;
}
/* The words for a lane whose rows are keys r, r + 8 and whose columns are queries 2q, 2q + 1 and those 8, 16 and 24
** further of the block: w[2 n + s] is of key r + 8 n and, turned by b bytes, of query 2q + s + 8 b. All lanes call. */
__device__ __forceinline__ void amp_drop_turned(uint32_t (&w)[4], const amp_drop &d, const amp_drop_way &way, int i,
                                                int j)
{
  const unsigned lane = threadIdx.x & 31, odd = lane >> 2 & 1, counter = (2 * (lane & 3) + odd) * 4 + (lane >> 3);
  uint32_t own[4];
  amp_drop_words(own, d, way, i, j, counter);
#pragma unroll
  for (int n = 0; n < 2; n++) {
    const uint32_t mine = odd ? own[1 + 2 * n] : own[2 * n], given = odd ? own[2 * n] : own[1 + 2 * n],
                   got = __shfl_xor_sync(0xffffffffu, given, 4);
    w[2 * n] = odd ? got : mine;
    w[2 * n + 1] = odd ? mine : got;
  }
}
/* Is the weight of query i and key j kept? For kernels that have no such lanes */
__device__ __forceinline__ bool amp_drop_keeps_at(const amp_drop &d, const amp_drop_way &way, int i, int j)
{
  uint32_t w[4];
  amp_drop_words(w, d, way, i, j, (unsigned)((i & 7) * 4 + (j >> 1 & 3)));
  const uint32_t even = j & 8 ? w[2] : w[0], odd = j & 8 ? w[3] : w[1];
  return amp_drop_keeps(d, j & 1 ? odd : even, i >> 3 & 3);
}

#endif
