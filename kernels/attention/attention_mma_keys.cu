/*
** attention_mma_keys.cu: attention's gradients in keys and values on tensor cores.
**
**   s = k q^T   p = exp2(s - lse)   d = v g^T   ds = p (d scale - delta)
**   dv += p g   dk += ds q          rows: keys, so p and ds are where products take them
**
** A block has a tile of keys, a warp 16 MT rows of it, and meets the queries in
** tiles; dk and dv stay in registers, and nothing is added by atomics. Rows of keys
** that are not there are computed and not stored.
*/
#include <climits>
#include "attention/attention.cuh"

namespace {

template <int D, bool ANY = false> struct plan {
  enum {
    MT = D > 64 ? 1 : 2,
    KEYS = 64 * MT,
    QUERIES = D > 64 ? 32 : 64,
    PITCH = amp_tile<D>::PITCH,
    TILE = QUERIES * PITCH,
    PARTS = D > 64 ? 2 : 1,
    STAGE = 2 * TILE + 2 * QUERIES * 4,
    SHARED = 2 * KEYS * PITCH + 2 * STAGE,
    HELD = ANY && D > 64 ? 4 : D / 16,
    HELD_V = ANY || D > 96 ? 0
             : D > 64      ? 6
                           : D / 32
  }; /* how many of a row's fragments stay in registers */
};

#if AMP_MMA
/* The next tile of queries, of gradients and their two numbers each; `numbers`: this thread's 16 bytes of these, if it
** has any */
template <int D>
__device__ __forceinline__ void load_queries(const amp_flash &job, amp_at stage, amp_tile_way<D> &queries,
                                             amp_tile_way<D> &grads, const float *&numbers)
{
  typedef plan<D> P;
  const int place = amp_tile_way<D>::place();
  queries.template load<P::QUERIES>(stage + place, job.side[AMP_F_Q]);
  grads.template load<P::QUERIES>(stage + P::TILE + place, job.side[AMP_F_G]);
  if (threadIdx.x < P::QUERIES / 2) amp_copy16(stage + 2 * P::TILE + threadIdx.x * 16, numbers, true);
  numbers += P::QUERIES;
}

/* The block's tiles of keys and values, beside each other, on their way */
template <int D>
__device__ __forceinline__ void load_keys(const amp_flash &job, const int64_t (&at)[AMP_F_SIDES], amp_at keys,
                                          int first)
{
  typedef plan<D> P;
  amp_tile_way<D> key_way(job.side[AMP_F_K], at[AMP_F_K], first, job.keys, job.size),
      value_way(job.side[AMP_F_V], at[AMP_F_V], first, job.keys, job.size);
  key_way.template load<P::KEYS>(keys, job.side[AMP_F_K]);
  value_way.template load<P::KEYS>(keys + P::KEYS * P::PITCH, job.side[AMP_F_V]);
  amp_copy_commit();
}

/* What a warp has of its keys: fragments of k and v, as many as stay in registers and one that is read anew, and both
** gradients. keys, values: this lane's places in shared memory */
template <int D, bool ANY> struct key_rows {
  typedef plan<D, ANY> P;
  unsigned k[P::MT][P::HELD + 1][4], v[P::MT][P::HELD_V + 1][4];
  float dk[P::MT][D / 8][4], dv[P::MT][D / 8][4];
  amp_at keys, values;
};

/* Gradients of 0, and the fragments that stay */
template <int D, bool ANY> __device__ __forceinline__ void begin_rows(key_rows<D, ANY> &rows)
{
  typedef plan<D, ANY> P;
#pragma unroll
  for (int m = 0; m < P::MT; m++) {
#pragma unroll
    for (int d = 0; d < P::HELD; d++) {
      amp_ldmatrix(rows.k[m][d], rows.keys + m * 16 * P::PITCH + d * 32);
      if (d < P::HELD_V) amp_ldmatrix(rows.v[m][d], rows.values + m * 16 * P::PITCH + d * 32);
    }
  }
#pragma unroll
  for (int m = 0; m < P::MT; m++) {
#pragma unroll
    for (int d = 0; d < D / 8; d++) {
#pragma unroll
      for (int e = 0; e < 4; e++) rows.dk[m][d][e] = rows.dv[m][d][e] = 0;
    }
  }
}

/* s = k q^T and u = v g^T of N fragments of 8 queries; queries, grads: this lane's places */
template <int D, bool BF, bool ANY, int N>
__device__ __forceinline__ void make_scores(float (&s)[plan<D, ANY>::MT][N][4], float (&u)[plan<D, ANY>::MT][N][4],
                                            key_rows<D, ANY> &rows, amp_at queries, amp_at grads)
{
  typedef plan<D, ANY> P;
#pragma unroll
  for (int m = 0; m < P::MT; m++) {
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
      for (int e = 0; e < 4; e++) s[m][n][e] = u[m][n][e] = 0;
    }
  }
#pragma unroll
  for (int d = 0; d < D / 16; d++) {
    const int at_k = d < P::HELD ? d : P::HELD, at_v = d < P::HELD_V ? d : P::HELD_V;
#pragma unroll
    for (int m = 0; m < P::MT; m++) {
      if (d >= P::HELD) amp_ldmatrix(rows.k[m][at_k], rows.keys + m * 16 * P::PITCH + d * 32);
      if (d >= P::HELD_V) amp_ldmatrix(rows.v[m][at_v], rows.values + m * 16 * P::PITCH + d * 32);
    }
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      unsigned x[4], y[4];
      amp_ldmatrix(x, queries + n * 8 * P::PITCH + d * 32);
      amp_ldmatrix(y, grads + n * 8 * P::PITCH + d * 32);
#pragma unroll
      for (int m = 0; m < P::MT; m++) {
        amp_mma<BF>(s[m][n], rows.k[m][at_k], x[0], x[1]);
        amp_mma<BF>(s[m][n + 1], rows.k[m][at_k], x[2], x[3]);
        amp_mma<BF>(u[m][n], rows.v[m][at_v], y[0], y[1]);
        amp_mma<BF>(u[m][n + 1], rows.v[m][at_v], y[2], y[3]);
      }
    }
  }
}

/* The mask's word on scores of keys from `row` and queries from `column` on */
template <bool BF, int MT, int N>
__device__ __forceinline__ void mask_scores(float (&s)[MT][N][4], const amp_flash &job, int64_t mask, int row,
                                            int column)
{
  const int lane = threadIdx.x & 31;
  if (job.mask_keys) { /* read once for all columns */
    const bool bits = job.mask_dtype == AMP_BOOL;
    const unsigned seen = bits ? amp_flash_key_bits(job, mask, row, 16 * MT) : ~0u;
#pragma unroll
    for (int m = 0; m < 2 * MT; m++) {
      const int place = m / 2 * 16 + (m & 1) * 8 + (lane >> 2), key = row + place;
      const bool see = seen >> place & 1;
      const float word = !bits && key < job.keys ? amp_flash_key_word<BF>(job, mask, key) : 0.f;
#pragma unroll
      for (int n = 0; n < 2 * N; n++) {
        float &v = s[m / 2][n >> 1][(m & 1) * 2 + (n & 1)];
        v = see ? v * job.c + word : -INFINITY;
      }
    }
    return;
  }
  amp_flash_by_mask<BF>(job, mask, [&](auto word) {
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
      for (int e = 0; e < N * 4; e++) {
        const int key = row + m * 16 + (e >> 1 & 1) * 8 + (lane >> 2),
                  query = column + e / 4 * 8 + (lane & 3) * 2 + (e & 1);
        if (key < job.keys && query < job.length) s[m][e / 4][e & 3] = word(query, key, s[m][e / 4][e & 3]);
      }
    }
  });
}

/* u is 0 for weights that dropout did not keep. Gives a bit for each weight: it was kept. row, column: of the first of
** the scores */
template <int MT, int N>
__device__ __forceinline__ unsigned drop_slopes(float (&u)[MT][N][4], const amp_drop &drop, const amp_drop_way &way,
                                                int row, int column)
{
  unsigned kept = 0;
#pragma unroll
  for (int m = 0; m < MT; m++) {
    uint32_t words[4];
    amp_drop_turned(words, drop, way, column, row + m * 16);
    const int from = N == 4 ? 0 : column >> 3 & 3; /* of the block's queries, in eights */
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const bool keeps = amp_drop_keeps(drop, words[e], from + n);
        kept |= (unsigned)keeps << ((m * N + n) * 4 + e);
        if (!keeps) u[m][n][e] = 0;
      }
    }
  }
  return kept;
}

/* s becomes p and u ds; lse, delta: of this lane's first query */
template <int MT, int N, bool ANY>
__device__ __forceinline__ void make_slopes(float (&s)[MT][N][4], float (&u)[MT][N][4], const float *lse,
                                            const float *delta, float unit, float scale)
{
#pragma unroll
  for (int n = 0; n < N; n++) {
    const float2 l = *(const float2 *)(lse + n * 8), t = *(const float2 *)(delta + n * 8);
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        s[m][n][e] = amp_exp2(s[m][n][e] * unit - (e & 1 ? l.y : l.x));
        u[m][n][e] = s[m][n][e] * (u[m][n][e] * scale - (e & 1 ? t.y : t.x));
        if (ANY && (e & 1 ? l.y : l.x) == INFINITY) u[m][n][e] = 0; /* a row without a key */
      }
    }
  }
}

/* p as values are weighted with it */
template <int MT, int N> __device__ __forceinline__ void drop_weights(float (&p)[MT][N][4], unsigned kept)
{
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int e = 0; e < N * 4; e++)
      if (!(kept >> (m * N * 4 + e) & 1)) p[m][e / 4][e & 3] = 0;
  }
}

/* p and ds are 0 for queries that are not there, or that do not see a key (causal) */
template <int MT, int N>
__device__ __forceinline__ void drop_absent(float (&p)[MT][N][4], float (&ds)[MT][N][4], const amp_flash &job, int row,
                                            int column)
{
  const int lane = threadIdx.x & 31, query = column + (lane & 3) * 2, room = job.length - query,
            ahead = job.causal ? row + (lane >> 2) - query : INT_MIN / 2;
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int e = 0; e < N * 4; e++) {
      const int place = e / 4 * 8 + (e & 1);
      if (place >= room || ahead + m * 16 + (e >> 1 & 1) * 8 > place) p[m][e / 4][e & 3] = ds[m][e / 4][e & 3] = 0;
    }
  }
}

/* dv += p g and dk += ds q, 16 queries at a time; queries, grads: this lane's places, for rows that are summed */
template <int D, bool BF, bool ANY, int N>
__device__ __forceinline__ void add_gradients(key_rows<D, ANY> &rows, const float (&p)[plan<D, ANY>::MT][N][4],
                                              const float (&ds)[plan<D, ANY>::MT][N][4], amp_at queries, amp_at grads)
{
  typedef plan<D, ANY> P;
#pragma unroll
  for (int j = 0; j < N / 2; j++) {
    unsigned half_p[P::MT][4], half_ds[P::MT][4];
#pragma unroll
    for (int m = 0; m < P::MT; m++) {
#pragma unroll
      for (int h = 0; h < 4; h++) {
        const int n = 2 * j + (h >> 1), e = (h & 1) * 2;
        half_p[m][h] = amp_pack<BF>(p[m][n][e], p[m][n][e + 1]);
        half_ds[m][h] = amp_pack<BF>(ds[m][n][e], ds[m][n][e + 1]);
      }
    }
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
      unsigned x[4], y[4];
      amp_ldmatrix_turned(y, grads + j * 16 * P::PITCH + d * 32);
      amp_ldmatrix_turned(x, queries + j * 16 * P::PITCH + d * 32);
#pragma unroll
      for (int m = 0; m < P::MT; m++) {
        amp_mma<BF>(rows.dv[m][2 * d], half_p[m], y[0], y[1]);
        amp_mma<BF>(rows.dv[m][2 * d + 1], half_p[m], y[2], y[3]);
        amp_mma<BF>(rows.dk[m][2 * d], half_ds[m], x[0], x[1]);
        amp_mma<BF>(rows.dk[m][2 * d + 1], half_ds[m], x[2], x[3]);
      }
    }
  }
}

/* Adds to both gradients what a tile of queries from i0 on gives, N fragments of 8 at a time. tile: the stage; numbers:
** lse and delta of this lane's first query; row: the warp's first key */
template <int D, bool BF, bool ANY, bool DROP>
__device__ __forceinline__ void meet_tile(key_rows<D, ANY> &rows, const amp_flash &job, const amp_drop_way &way,
                                          int64_t mask, amp_at tile, const float *numbers, int row, int i0)
{
  typedef plan<D, ANY> P;
  enum { PITCH = P::PITCH, MT = P::MT, N = 2 * P::PARTS };
  const int lane = threadIdx.x & 31;
  const amp_at queries = tile + amp_lane_b(lane, PITCH), grads = queries + P::TILE,
               queries_turned = tile + amp_lane_a(lane, PITCH), grads_turned = queries_turned + P::TILE;
#pragma unroll 1
  for (int i = 0; i < P::QUERIES; i += N * 8) {
    if (job.causal && i0 + i + N * 8 <= row) continue;
    float s[MT][N][4], u[MT][N][4];
    make_scores<D, BF, ANY, N>(s, u, rows, queries + i * PITCH, grads + i * PITCH);
    if constexpr (ANY) mask_scores<BF, MT, N>(s, job, mask, row, i0 + i);
    unsigned kept = 0;
    if constexpr (DROP) kept = drop_slopes<MT, N>(u, job.drop, way, row, i0 + i);
    make_slopes<MT, N, ANY>(s, u, numbers + i, numbers + P::QUERIES + i, ANY ? 1.f : job.c,
                            DROP ? job.scale * job.drop.scale : job.scale);
    if constexpr (DROP) drop_weights<MT, N>(s, kept);
    if (i0 + i + N * 8 > job.length || (job.causal && i0 + i < row + 16 * MT - 1))
      drop_absent<MT, N>(s, u, job, row, i0 + i);
    add_gradients<D, BF, ANY, N>(rows, s, u, queries_turned + i * PITCH, grads_turned + i * PITCH);
  }
}
#endif

/* Shared memory: the block's keys and values, two stages of a tile of queries, one of gradients, and lse and delta of
** each query; at last both gradients, where keys and values were */
template <int D, bool BF, bool ANY, bool DROP>
__global__ void __launch_bounds__(AMP_FLASH_THREADS, 2) gradient_keys(const __grid_constant__ amp_flash job)
{
#if AMP_MMA
  typedef plan<D, ANY> P;
  enum { PITCH = P::PITCH, MT = P::MT };
  AMP_SHARED(unsigned char, memory);
  unsigned char *const stages = memory + 2 * P::KEYS * PITCH;
  const amp_at keys = amp_at_of(memory), shared = keys + 2 * P::KEYS * PITCH;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const unsigned batch = blockIdx.x / (unsigned)job.tiles;
  const int first = (int)(blockIdx.x - batch * (unsigned)job.tiles) * P::KEYS,
            row = first + warp * 16 * MT; /* the block's first key, and the warp's */
  int64_t at[AMP_F_SIDES];
  amp_flash_starts(job, batch, at);
  const int from = job.causal ? first & ~(P::QUERIES - 1) : 0;

  load_keys<D>(job, at, keys + amp_tile_way<D>::place(), first);
  amp_tile_way<D> query_way(job.side[AMP_F_Q], at[AMP_F_Q], from, job.length, job.size),
      grad_way(job.side[AMP_F_G], at[AMP_F_G], from, job.length, job.size);
  const float *numbers = (threadIdx.x < P::QUERIES / 4 ? job.lse2 : job.delta) + (int64_t)batch * job.padded + from
                         + (threadIdx.x & (P::QUERIES / 4 - 1)) * 4;
  if (from < job.length) load_queries<D>(job, shared, query_way, grad_way, numbers);
  amp_copy_commit();

  amp_drop_way way = { 0, 0 };
  if constexpr (DROP) way = amp_drop_begin(job.drop, batch);
  key_rows<D, ANY> rows;
  rows.keys = keys + warp * 16 * MT * PITCH + amp_lane_a(lane, PITCH);
  rows.values = rows.keys + P::KEYS * PITCH;
  amp_copy_wait<1>();
  __syncthreads();
  begin_rows<D, ANY>(rows);

  for (int i0 = from, stage = 0; i0 < job.length; i0 += P::QUERIES, stage ^= 1) {
    amp_copy_wait<0>();
    __syncthreads(); /* the tile is there, and the one before has been read by all */
    if (i0 + P::QUERIES < job.length) {
      load_queries<D>(job, shared + (stage ? 0 : P::STAGE), query_way, grad_way, numbers);
      amp_copy_commit();
    }
    if (row >= job.keys || (job.causal && i0 + P::QUERIES <= row)) continue;
    meet_tile<D, BF, ANY, DROP>(rows, job, way, at[AMP_F_MASK], shared + (stage ? P::STAGE : 0),
                                (const float *)(stages + (stage ? P::STAGE : 0) + 2 * P::TILE) + (lane & 3) * 2, row,
                                i0);
  }

  amp_copy_wait<0>();
  amp_flash_starts(job, batch, at); /* anew: in registers they would take room all the while */
  float one[MT][2], kept[MT][2];    /* kept: the factor of weights that dropout kept */
#pragma unroll
  for (int m = 0; m < MT; m++) {
    one[m][0] = one[m][1] = 1;
    kept[m][0] = kept[m][1] = DROP ? job.drop.scale : 1.f;
  }
  unsigned char *mine = memory + warp * 16 * MT * PITCH; /* of the keys' tile only this warp's rows */
  amp_tile_store<D, MT, BF>(mine, rows.dk, one, (uint16_t *)job.side[AMP_F_DK].p + at[AMP_F_DK], job.side[AMP_F_DK].row,
                            row, job.keys, job.size);
  amp_tile_store<D, MT, BF>(mine + P::KEYS * PITCH, rows.dv, kept, (uint16_t *)job.side[AMP_F_DV].p + at[AMP_F_DV],
                            job.side[AMP_F_DV].row, row, job.keys, job.size);
#endif
}

} // namespace

int amp_flash_launch_keys(const amp_flash *given)
{
  return amp_flash_by(*given, [&](auto d, auto bf, auto any, auto drop) {
    enum { D = decltype(d)::value };
    amp_flash job = *given;
    job.tiles = (given->keys + plan<D>::KEYS - 1) / plan<D>::KEYS;
    AMP_FLASH_LAUNCH(
        (gradient_keys<D, decltype(bf)::value != 0, decltype(any)::value != 0, decltype(drop)::value != 0>),
        (int64_t)job.tiles * given->batch, plan<D>::SHARED, job);
    return 0;
  });
}
