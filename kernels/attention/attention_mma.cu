/*
** attention_mma.cu: forward of attention on tensor cores, after FlashAttention-2
** (Dao, 2023), for float16 and bfloat16, heads of up to 128 values in multiples of
** 8; kernels/attention/attention.cu does the rest. Queries, keys and values may lie anywhere
** with 16-byte aligned rows; what does not is copied first.
**
** A block has 128 queries, a warp 32 of them, and meets the keys in tiles, the next
** one on its way while one is worked on. Scores, weights (16 bit, as the second
** product takes them) and the result stay in registers. A row's maximum is moved,
** and its sums with it, only when weights would pass 2^8. Of a head's tiles of
** queries those with most keys come first.
*/
#include "attention/attention.cuh"

namespace {

enum { QUERIES = 128 };

template <int D, bool ANY = false> struct plan {
  /* HELD parts of the queries stay in registers; if ALL do, their tile is the second stage */
  enum {
    KEYS = D > 64 ? 32 : 64,
    ALL = D <= 64,
    HELD = D <= 64   ? D / 16
           : D <= 96 ? 4
           : ANY     ? 0
                     : 2,
    TILE = KEYS * amp_tile<D>::PITCH,
    STAGE = 2 * TILE,
    SHARED = ALL ? 2 * STAGE : 2 * STAGE + QUERIES * amp_tile<D>::PITCH
  };
};

#if AMP_MMA
/* What a warp has of its 32 queries: the sums of weighted values, and of each row (a lane has two of every 16) the
** score that weights are taken about and the sum of weights */
template <int D> struct attend_rows {
  float out[2][D / 8][4], top[2][2], sum[2][2];
};

template <int D> __device__ __forceinline__ void begin_rows(attend_rows<D> &rows)
{
#pragma unroll
  for (int m = 0; m < 2; m++) {
    rows.top[m][0] = rows.top[m][1] = -INFINITY;
    rows.sum[m][0] = rows.sum[m][1] = 0;
#pragma unroll
    for (int d = 0; d < D / 8; d++) rows.out[m][d][0] = rows.out[m][d][1] = rows.out[m][d][2] = rows.out[m][d][3] = 0;
  }
}

/* Reads the parts of a warp's queries that stay in registers; queries: this lane's place */
template <int D, bool ANY>
__device__ __forceinline__ void hold_queries(unsigned (&q)[2][plan<D, ANY>::HELD + 1][4], amp_at queries)
{
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int d = 0; d < plan<D, ANY>::HELD; d++) amp_ldmatrix(q[m][d], queries + m * 16 * amp_tile<D>::PITCH + d * 32);
  }
}

/* Sends the next tile of keys and values on its way. to: this thread's place in the stage */
template <int D, bool ANY>
__device__ __forceinline__ void load_keys(const amp_flash &job, amp_at to, amp_tile_way<D> &keys,
                                          amp_tile_way<D> &values)
{
  typedef plan<D, ANY> P;
  keys.template load<P::KEYS>(to, job.side[AMP_F_K]);
  values.template load<P::KEYS>(to + P::TILE, job.side[AMP_F_V]);
  amp_copy_commit();
}

/* s = q k^T of a tile. queries, keys: this lane's places; of the queries the first HELD parts are in q already, the
** others are read into its last one */
template <int D, bool BF, bool ANY>
__device__ __forceinline__ void make_scores(float (&s)[2][plan<D, ANY>::KEYS / 8][4],
                                            unsigned (&q)[2][plan<D, ANY>::HELD + 1][4], amp_at queries, amp_at keys)
{
  typedef plan<D, ANY> P;
  enum { PITCH = amp_tile<D>::PITCH };
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int j = 0; j < P::KEYS / 8; j++) s[m][j][0] = s[m][j][1] = s[m][j][2] = s[m][j][3] = 0;
  }
#pragma unroll
  for (int d = 0; d < D / 16; d++) {
    const int part = d < P::HELD ? d : P::HELD;
    if (d >= P::HELD) {
      amp_ldmatrix(q[0][part], queries + d * 32);
      amp_ldmatrix(q[1][part], queries + 16 * PITCH + d * 32);
    }
#pragma unroll
    for (int j = 0; j < P::KEYS / 16; j++) {
      unsigned x[4];
      amp_ldmatrix(x, keys + j * 16 * PITCH + d * 32);
#pragma unroll
      for (int m = 0; m < 2; m++) {
        amp_mma<BF>(s[m][2 * j], q[m][part], x[0], x[1]);
        amp_mma<BF>(s[m][2 * j + 1], q[m][part], x[2], x[3]);
      }
    }
  }
}

/* The mask's word on scores of queries from `row` and keys from `column` on */
template <bool BF, int KEYS>
__device__ __forceinline__ void mask_scores(float (&s)[2][KEYS / 8][4], const amp_flash &job, int64_t mask, int row,
                                            int column)
{
  const int lane = threadIdx.x & 31;
  if (job.mask_keys) { /* read once for all rows */
    const bool bits = job.mask_dtype == AMP_BOOL;
    unsigned seen[KEYS / 32];
#pragma unroll
    for (int n = 0; n < KEYS / 32; n++) seen[n] = bits ? amp_flash_key_bits(job, mask, column + n * 32, 32) : ~0u;
#pragma unroll
    for (int n = 0; n < KEYS / 4; n++) {
      const int place = n / 2 * 8 + (lane & 3) * 2 + (n & 1), j = column + place;
      const bool see = seen[n / 8] >> (place & 31) & 1;
      const float word = !bits && j < job.keys ? amp_flash_key_word<BF>(job, mask, j) : 0.f;
#pragma unroll
      for (int m = 0; m < 4; m++) {
        float &v = s[m / 2][n / 2][(m & 1) * 2 + (n & 1)];
        v = see ? v * job.c + word : -INFINITY;
      }
    }
    return;
  }
  amp_flash_by_mask<BF>(job, mask, [&](auto word) {
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
      for (int e = 0; e < KEYS / 2; e++) {
        const int i = row + m * 16 + (e >> 1 & 1) * 8 + (lane >> 2), j = column + e / 4 * 8 + (lane & 3) * 2 + (e & 1);
        if (i < job.length && j < job.keys) s[m][e / 4][e & 3] = word(i, j, s[m][e / 4][e & 3]);
      }
    }
  });
}

/* Scores of keys that are not there, or that a causal query does not see, are -inf */
template <int KEYS>
__device__ __forceinline__ void drop_absent(float (&s)[2][KEYS / 8][4], const amp_flash &job, int row, int column)
{
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int i = row + m * 16 + h * 8 + (lane >> 2),
                room = (job.causal ? min(job.keys, i + 1) : job.keys) - column - (lane & 3) * 2;
#pragma unroll
      for (int e = 0; e < KEYS / 4; e++)
        if (e / 2 * 8 + (e & 1) >= room) s[m][e / 2][2 * h + (e & 1)] = -INFINITY;
    }
  }
}

/* Moves a warp's maxima, and its sums with them, when a weight of the tile would pass 2^8. Those of a row are in 4
** lanes. unit: of scores, in powers of two */
template <int D, int KEYS>
__device__ __forceinline__ void move_maxima(attend_rows<D> &rows, const float (&s)[2][KEYS / 8][4], float unit)
{
  float most[2][2];
  bool moved = false;
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float t = rows.top[m][h];
#pragma unroll
      for (int n = 0; n < KEYS / 8; n++) t = fmaxf(t, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
      t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 1));
      t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 2));
      most[m][h] = t;
      moved = moved || (t - rows.top[m][h]) * unit > 8.f;
    }
  }
  if (__any_sync(0xffffffffu, moved)) {
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float f = most[m][h] == rows.top[m][h] ? 1.f : amp_exp2((rows.top[m][h] - most[m][h]) * unit);
        rows.top[m][h] = most[m][h];
        rows.sum[m][h] *= f;
#pragma unroll
        for (int d = 0; d < D / 8; d++) {
          rows.out[m][d][2 * h] *= f;
          rows.out[m][d][2 * h + 1] *= f;
        }
      }
    }
  }
}

/* p = exp2(s - top), in 16 bits, as the second product takes it; 0 where dropout does not keep it, which its row's sum
** does not see. row, column: of the warp's first score */
template <int D, bool BF, bool DROP, int KEYS>
__device__ __forceinline__ void make_weights(unsigned (&p)[2][KEYS / 16][4], attend_rows<D> &rows,
                                             const float (&s)[2][KEYS / 8][4], float unit, const amp_drop &drop,
                                             const amp_drop_way &way, int row, int column)
{
  float base[2][2], total[2][2];
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      base[m][h] = rows.top[m][h] == -INFINITY ? 0.f : rows.top[m][h] * unit;
      total[m][h] = 0;
    }
  }
#pragma unroll
  for (int j = 0; j < KEYS / 16; j++) {
    uint32_t words[4];
    if constexpr (DROP) amp_drop_words(words, drop, way, row, column + j * 16, threadIdx.x & 31);
#pragma unroll
    for (int e = 0; e < 8; e++) {
      const int m = e >> 2, n = e >> 1 & 1, h = e & 1;
      float x = amp_exp2(s[m][2 * j + n][2 * h] * unit - base[m][h]),
            y = amp_exp2(s[m][2 * j + n][2 * h + 1] * unit - base[m][h]);
      total[m][h] += x + y;
      if constexpr (DROP) {
        x = amp_drop_keeps(drop, words[2 * n], 2 * m + h) ? x : 0.f;
        y = amp_drop_keeps(drop, words[2 * n + 1], 2 * m + h) ? y : 0.f;
      }
      p[m][j][n * 2 + h] = amp_pack<BF>(x, y);
    }
  }
#pragma unroll
  for (int m = 0; m < 2; m++) {
    rows.sum[m][0] += total[m][0];
    rows.sum[m][1] += total[m][1];
  }
}

/* out += p v. values: this lane's place in the tile */
template <int D, bool BF, int KEYS>
__device__ __forceinline__ void add_values(attend_rows<D> &rows, const unsigned (&p)[2][KEYS / 16][4], amp_at values)
{
#pragma unroll
  for (int j = 0; j < KEYS / 16; j++) {
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
      unsigned x[4];
      amp_ldmatrix_turned(x, values + j * 16 * amp_tile<D>::PITCH + d * 32);
#pragma unroll
      for (int m = 0; m < 2; m++) {
        amp_mma<BF>(rows.out[m][2 * d], p[m][j], x[0], x[1]);
        amp_mma<BF>(rows.out[m][2 * d + 1], p[m][j], x[2], x[3]);
      }
    }
  }
}

/* Leaves each row's log of summed exponentials, and in rows.sum what its result is to be multiplied with; kept: the
** factor of weights that dropout kept */
template <int D>
__device__ __forceinline__ void end_rows(attend_rows<D> &rows, const amp_flash &job, unsigned batch, int row,
                                         float unit, float kept)
{
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float l = rows.sum[m][h];
      const int i = row + m * 16 + h * 8 + (lane >> 2);
      l += __shfl_xor_sync(0xffffffffu, l, 1);
      l += __shfl_xor_sync(0xffffffffu, l, 2);
      rows.sum[m][h] = l == 0 ? 0.f : kept / l;
      if ((lane & 3) == 0 && i < job.length)
        job.lse[(int64_t)batch * job.length + i] = l == 0 ? -INFINITY : rows.top[m][h] * unit * 0.693147181f + logf(l);
    }
  }
}
#endif

/* Shared memory: two stages of a tile of keys and one of values, and the queries, which lie in the second stage where
** all of them stay in registers; at last the result, where the queries were */
template <int D, bool BF, bool ANY, bool DROP>
__global__ void __launch_bounds__(AMP_FLASH_THREADS, 2) attend_mma(const __grid_constant__ amp_flash job)
{
#if AMP_MMA
  typedef plan<D, ANY> P;
  enum { PITCH = amp_tile<D>::PITCH, KEYS = P::KEYS };
  AMP_SHARED(unsigned char, memory);
  const amp_at shared = amp_at_of(memory), queries = shared + (P::ALL ? P::STAGE : 2 * P::STAGE);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const unsigned batch = blockIdx.x / (unsigned)job.tiles;
  const int first = (job.tiles - 1 - (int)(blockIdx.x - batch * (unsigned)job.tiles)) * QUERIES,
            row = first + warp * 32; /* the block's first query, and the warp's */
  int64_t at[AMP_F_SIDES];
  amp_flash_starts(job, batch, at);
  const int limit = job.causal ? min(job.keys, first + QUERIES) : job.keys; /* keys that the block meets, */
  const int reach = row >= job.length ? 0 : job.causal ? min(job.keys, row + 32) : job.keys; /* and this warp */
  const float unit = ANY ? 1.f : job.c;

  const amp_at to = shared + amp_tile_way<D>::place();
  amp_tile_way<D> query_way(job.side[AMP_F_Q], at[AMP_F_Q], first, job.length, job.size);
  amp_tile_way<D> key_way(job.side[AMP_F_K], at[AMP_F_K], 0, limit, job.size),
      value_way(job.side[AMP_F_V], at[AMP_F_V], 0, limit, job.size);
  query_way.template load<QUERIES>(queries + amp_tile_way<D>::place(), job.side[AMP_F_Q]);
  amp_copy_commit();
  load_keys<D, ANY>(job, to, key_way, value_way);

  unsigned q[2][P::HELD + 1][4];
  const amp_at own = queries + warp * 32 * PITCH + amp_lane_a(lane, PITCH);
  amp_copy_wait<1>();
  __syncthreads();
  hold_queries<D, ANY>(q, own);
  attend_rows<D> rows;
  begin_rows<D>(rows);
  amp_drop_way way = { 0, 0 };
  if constexpr (DROP) way = amp_drop_begin(job.drop, batch);

  for (int j0 = 0, stage = 0; j0 < limit; j0 += KEYS, stage ^= 1) {
    amp_copy_wait<0>();
    __syncthreads(); /* the tile is there, and the one before has been read by all */
    if (j0 + KEYS < limit) load_keys<D, ANY>(job, to + (stage ? 0 : P::STAGE), key_way, value_way);
    if (j0 >= reach) continue;
    const amp_at tile = shared + (stage ? P::STAGE : 0);
    float s[2][KEYS / 8][4];
    make_scores<D, BF, ANY>(s, q, own, tile + amp_lane_b(lane, PITCH));
    if constexpr (ANY) mask_scores<BF, KEYS>(s, job, at[AMP_F_MASK], row, j0);
    if (j0 + KEYS > job.keys || (job.causal && j0 + KEYS - 1 > row)) drop_absent<KEYS>(s, job, row, j0);
    move_maxima<D, KEYS>(rows, s, unit);
    unsigned p[2][KEYS / 16][4];
    make_weights<D, BF, DROP, KEYS>(p, rows, s, unit, job.drop, way, row, j0);
    add_values<D, BF, KEYS>(rows, p, tile + P::TILE + amp_lane_a(lane, PITCH));
  }

  end_rows<D>(rows, job, batch, row, unit, DROP ? job.drop.scale : 1.f);
  if constexpr (P::ALL) {
    amp_copy_wait<0>();
    __syncthreads(); /* what lies where the result goes has been read */
  }
  amp_flash_starts(job, batch, at); /* anew: in registers they would take room all the while */
  amp_tile_store<D, 2, BF>(memory + (P::ALL ? P::STAGE : 2 * P::STAGE) + warp * 32 * PITCH, rows.out, rows.sum,
                           (uint16_t *)job.side[AMP_F_OUT].p + at[AMP_F_OUT], job.side[AMP_F_OUT].row, row, job.length,
                           job.size);
#endif
}

} // namespace

int amp_flash_launch(const amp_flash *job)
{
  return amp_flash_by(*job, [&](auto d, auto bf, auto any, auto drop) {
    enum { D = decltype(d)::value };
    AMP_FLASH_LAUNCH((attend_mma<D, decltype(bf)::value != 0, decltype(any)::value != 0, decltype(drop)::value != 0>),
                     (int64_t)job->tiles * job->batch, plan<D>::SHARED, *job);
    return 0;
  });
}
