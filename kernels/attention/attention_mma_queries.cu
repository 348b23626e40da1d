/*
** attention_mma_queries.cu: attention's gradient in queries on tensor cores.
**
**   s = q k^T   p = exp2(s - lse)   d = g v^T   ds = p (d scale - delta)   dq += ds k
**
** Like the forward kernel: a block has a tile of queries, a warp 16 MT of them, and
** meets the keys in tiles. Making scores anew here costs two products more than
** adding to dq from the kernel of the keys, but no atomics, no float32 copy of dq
** and no pass that rounds it; and the same bits at every run.
*/
#include "attention/attention.cuh"

namespace {

template <int D> struct plan {
  enum {
    MT = D > 64 ? 1 : 2,
    QUERIES = 64 * MT,
    KEYS = D > 64 ? 32 : 64,
    PITCH = amp_tile<D>::PITCH,
    TILE = KEYS * PITCH,
    CHUNKS = D > 64 ? 2 : 1,
    STAGE = 2 * TILE,
    SHARED = 2 * QUERIES * PITCH + 2 * STAGE
  };
};

#if AMP_MMA
/* Sends the next tile of keys and values on its way. to: this thread's place in the stage */
template <int D>
__device__ __forceinline__ void load_keys(const amp_flash &job, amp_at to, amp_tile_way<D> &keys,
                                          amp_tile_way<D> &values)
{
  typedef plan<D> P;
  keys.template load<P::KEYS>(to, job.side[AMP_F_K]);
  values.template load<P::KEYS>(to + P::TILE, job.side[AMP_F_V]);
  amp_copy_commit();
}

/* What a warp has of its queries: fragments of q and g, dq, and of each row (a lane has two of every 16) lse and
** delta */
template <int D> struct query_rows {
  enum { MT = plan<D>::MT };
  unsigned q[MT][D / 16][4], g[MT][D / 16][4];
  float dq[MT][D / 8][4], lse[MT][2], delta[MT][2];
};

/* dq of 0, and the two numbers of each row from `row` on */
template <int D>
__device__ __forceinline__ void begin_rows(query_rows<D> &rows, const amp_flash &job, unsigned batch, int row)
{
#pragma unroll
  for (int m = 0; m < plan<D>::MT; m++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int64_t i = (int64_t)batch * job.padded + row + m * 16 + h * 8 + ((threadIdx.x & 31) >> 2);
      rows.lse[m][h] = job.lse2[i];
      rows.delta[m][h] = job.delta[i];
    }
#pragma unroll
    for (int d = 0; d < D / 8; d++) {
#pragma unroll
      for (int e = 0; e < 4; e++) rows.dq[m][d][e] = 0;
    }
  }
}

/* s = q k^T and d = g v^T of 16 keys; keys, values: this lane's places */
template <int D, bool BF>
__device__ __forceinline__ void make_scores(float (&s)[plan<D>::MT][2][4], float (&d)[plan<D>::MT][2][4],
                                            const query_rows<D> &rows, amp_at keys, amp_at values)
{
  enum { MT = plan<D>::MT };
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int e = 0; e < 4; e++) s[m][0][e] = s[m][1][e] = d[m][0][e] = d[m][1][e] = 0;
  }
#pragma unroll
  for (int c = 0; c < D / 16; c++) {
    unsigned x[4], y[4];
    amp_ldmatrix(x, keys + c * 32);
    amp_ldmatrix(y, values + c * 32);
#pragma unroll
    for (int m = 0; m < MT; m++) {
      amp_mma<BF>(s[m][0], rows.q[m][c], x[0], x[1]);
      amp_mma<BF>(s[m][1], rows.q[m][c], x[2], x[3]);
      amp_mma<BF>(d[m][0], rows.g[m][c], y[0], y[1]);
      amp_mma<BF>(d[m][1], rows.g[m][c], y[2], y[3]);
    }
  }
}

/* The mask's word on scores of queries from `row` and keys from `column` on */
template <bool BF, int MT>
__device__ __forceinline__ void mask_scores(float (&s)[MT][2][4], const amp_flash &job, int64_t mask, int row,
                                            int column)
{
  const int lane = threadIdx.x & 31;
  if (job.mask_keys) { /* read once for all rows */
    const bool bits = job.mask_dtype == AMP_BOOL;
    const unsigned seen = bits ? amp_flash_key_bits(job, mask, column, 16) : ~0u;
#pragma unroll
    for (int n = 0; n < 4; n++) {
      const int place = (n >> 1) * 8 + (lane & 3) * 2 + (n & 1), key = column + place;
      const bool see = seen >> place & 1;
      const float word = !bits && key < job.keys ? amp_flash_key_word<BF>(job, mask, key) : 0.f;
#pragma unroll
      for (int m = 0; m < 2 * MT; m++) {
        float &v = s[m / 2][n >> 1][(m & 1) * 2 + (n & 1)];
        v = see ? v * job.c + word : -INFINITY;
      }
    }
    return;
  }
  amp_flash_by_mask<BF>(job, mask, [&](auto word) {
#pragma unroll
    for (int e = 0; e < MT * 8; e++) {
      const int i = row + e / 8 * 16 + (e >> 1 & 1) * 8 + (lane >> 2),
                key = column + (e >> 2 & 1) * 8 + (lane & 3) * 2 + (e & 1);
      float &v = s[e / 8][e >> 2 & 1][e & 3];
      if (i < job.length && key < job.keys) v = word(i, key, v);
    }
  });
}

/* d becomes ds = exp2(s - lse) (d scale - delta), where d is 0 for weights that dropout did not keep; row, column: of
** the first of the scores */
template <int D, bool ANY, bool DROP>
__device__ __forceinline__ void make_slopes(float (&d)[plan<D>::MT][2][4], const float (&s)[plan<D>::MT][2][4],
                                            const query_rows<D> &rows, float unit, float scale, const amp_drop &drop,
                                            const amp_drop_way &way, int row, int column)
{
  if constexpr (DROP) {
    uint32_t words[4];
    amp_drop_words(words, drop, way, row, column, threadIdx.x & 31);
    const int half = plan<D>::MT == 2 ? 0 : row >> 3 & 2; /* of the block's queries */
#pragma unroll
    for (int m = 0; m < plan<D>::MT; m++) {
#pragma unroll
      for (int e = 0; e < 8; e++)
        if (!amp_drop_keeps(drop, words[(e & 1) + (e >> 2) * 2], half + 2 * m + (e >> 1 & 1))) d[m][e >> 2][e & 3] = 0;
    }
  }
#pragma unroll
  for (int m = 0; m < plan<D>::MT; m++) {
#pragma unroll
    for (int e = 0; e < 8; e++) {
      const int h = e >> 1 & 1;
      d[m][e >> 2][e & 3]
          = amp_exp2(s[m][e >> 2][e & 3] * unit - rows.lse[m][h]) * (d[m][e >> 2][e & 3] * scale - rows.delta[m][h]);
      if (ANY && rows.lse[m][h] == INFINITY) d[m][e >> 2][e & 3] = 0; /* a row without a key */
    }
  }
}

/* ds of keys that are not there, or that a causal query does not see, is 0 */
template <int MT>
__device__ __forceinline__ void drop_absent(float (&ds)[MT][2][4], const amp_flash &job, int row, int column)
{
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int i = row + m * 16 + h * 8 + (lane >> 2),
                room = (job.causal ? min(job.keys, i + 1) : job.keys) - column - (lane & 3) * 2;
#pragma unroll
      for (int e = 0; e < 4; e++)
        if ((e >> 1) * 8 + (e & 1) >= room) ds[m][e >> 1][h * 2 + (e & 1)] = 0;
    }
  }
}

/* dq += ds k of 16 keys; keys: this lane's place, for rows that are summed */
template <int D, bool BF>
__device__ __forceinline__ void add_gradient(query_rows<D> &rows, const float (&ds)[plan<D>::MT][2][4], amp_at keys)
{
  enum { MT = plan<D>::MT };
  unsigned half[MT][4];
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int h = 0; h < 4; h++) half[m][h] = amp_pack<BF>(ds[m][h >> 1][(h & 1) * 2], ds[m][h >> 1][(h & 1) * 2 + 1]);
  }
#pragma unroll
  for (int c = 0; c < D / 16; c++) {
    unsigned x[4];
    amp_ldmatrix_turned(x, keys + c * 32);
#pragma unroll
    for (int m = 0; m < MT; m++) {
      amp_mma<BF>(rows.dq[m][2 * c], half[m], x[0], x[1]);
      amp_mma<BF>(rows.dq[m][2 * c + 1], half[m], x[2], x[3]);
    }
  }
}

/* Adds to dq what a tile of keys from j0 on gives, 16 keys at a time. tile: the stage; reach: keys that the warp
** meets */
template <int D, bool BF, bool ANY, bool DROP>
__device__ __forceinline__ void meet_tile(query_rows<D> &rows, const amp_flash &job, const amp_drop_way &way,
                                          int64_t mask, amp_at tile, int row, int j0, int reach)
{
  typedef plan<D> P;
  enum { PITCH = P::PITCH };
  const int lane = threadIdx.x & 31;
  const amp_at keys = tile + amp_lane_b(lane, PITCH), values = keys + P::TILE, turned = tile + amp_lane_a(lane, PITCH);
  const bool edge = j0 + P::KEYS > job.keys || (job.causal && j0 + P::KEYS - 1 > row);
#pragma unroll P::CHUNKS
  for (int j = 0; j < P::KEYS / 16; j++) {
    if (P::CHUNKS == 1 && j0 + j * 16 >= reach) break;
    float s[P::MT][2][4], d[P::MT][2][4];
    make_scores<D, BF>(s, d, rows, keys + j * 16 * PITCH, values + j * 16 * PITCH);
    if constexpr (ANY) mask_scores<BF, P::MT>(s, job, mask, row, j0 + j * 16);
    make_slopes<D, ANY, DROP>(d, s, rows, ANY ? 1.f : job.c, DROP ? job.scale * job.drop.scale : job.scale, job.drop,
                              way, row, j0 + j * 16);
    if (edge) drop_absent<P::MT>(d, job, row, j0 + j * 16);
    add_gradient<D, BF>(rows, d, turned + j * 16 * PITCH);
  }
}
#endif

/* Shared memory: the block's rows of q and g, two stages of a tile of keys and one of values; at last dq, where q
** was */
template <int D, bool BF, bool ANY, bool DROP>
__global__ void __launch_bounds__(AMP_FLASH_THREADS, 2) gradient_queries(const __grid_constant__ amp_flash job)
{
#if AMP_MMA
  typedef plan<D> P;
  enum { PITCH = P::PITCH, MT = P::MT };
  AMP_SHARED(unsigned char, memory);
  const amp_at queries = amp_at_of(memory), shared = queries + 2 * P::QUERIES * PITCH;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const unsigned batch = blockIdx.x / (unsigned)job.tiles;
  const int first = (job.tiles - 1 - (int)(blockIdx.x - batch * (unsigned)job.tiles)) * P::QUERIES,
            row = first + warp * 16 * MT; /* the block's first query, and the warp's */
  int64_t at[AMP_F_SIDES];
  amp_flash_starts(job, batch, at);
  const int limit = job.causal ? min(job.keys, first + P::QUERIES) : job.keys; /* keys that the block meets, */
  const int reach = row >= job.length ? 0 : job.causal ? min(job.keys, row + 16 * MT) : job.keys; /* and this warp */

  const int place = amp_tile_way<D>::place();
  const amp_at to = shared + place;
  amp_tile_way<D> query_way(job.side[AMP_F_Q], at[AMP_F_Q], first, job.length, job.size),
      grad_way(job.side[AMP_F_G], at[AMP_F_G], first, job.length, job.size);
  amp_tile_way<D> key_way(job.side[AMP_F_K], at[AMP_F_K], 0, limit, job.size),
      value_way(job.side[AMP_F_V], at[AMP_F_V], 0, limit, job.size);
  query_way.template load<P::QUERIES>(queries + place, job.side[AMP_F_Q]);
  grad_way.template load<P::QUERIES>(queries + P::QUERIES * PITCH + place, job.side[AMP_F_G]);
  amp_copy_commit();
  load_keys<D>(job, to, key_way, value_way);

  amp_drop_way way = { 0, 0 };
  if constexpr (DROP) way = amp_drop_begin(job.drop, batch);
  query_rows<D> rows;
  const amp_at own = queries + warp * 16 * MT * PITCH + amp_lane_a(lane, PITCH);
  begin_rows<D>(rows, job, batch, row);
  amp_copy_wait<1>();
  __syncthreads();
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
      amp_ldmatrix(rows.q[m][d], own + m * 16 * PITCH + d * 32);
      amp_ldmatrix(rows.g[m][d], own + (P::QUERIES + m * 16) * PITCH + d * 32);
    }
  }

  for (int j0 = 0, stage = 0; j0 < limit; j0 += P::KEYS, stage ^= 1) {
    amp_copy_wait<0>();
    __syncthreads(); /* the tile is there, and the one before has been read by all */
    if (j0 + P::KEYS < limit) load_keys<D>(job, to + (stage ? 0 : P::STAGE), key_way, value_way);
    if (j0 >= reach) continue;
    meet_tile<D, BF, ANY, DROP>(rows, job, way, at[AMP_F_MASK], shared + (stage ? P::STAGE : 0), row, j0, reach);
  }

  amp_copy_wait<0>();
  amp_flash_starts(job, batch, at); /* anew: in registers they would take room all the while */
  float one[MT][2];
#pragma unroll
  for (int m = 0; m < MT; m++) one[m][0] = one[m][1] = 1;
  /* of the queries' tile only this warp's rows */
  amp_tile_store<D, MT, BF>(memory + warp * 16 * MT * PITCH, rows.dq, one,
                            (uint16_t *)job.side[AMP_F_DQ].p + at[AMP_F_DQ], job.side[AMP_F_DQ].row, row, job.length,
                            job.size);
#endif
}

} // namespace

int amp_flash_launch_queries(const amp_flash *given)
{
  return amp_flash_by(*given, [&](auto d, auto bf, auto any, auto drop) {
    enum { D = decltype(d)::value };
    amp_flash job = *given;
    job.tiles = (given->length + plan<D>::QUERIES - 1) / plan<D>::QUERIES;
    AMP_FLASH_LAUNCH(
        (gradient_queries<D, decltype(bf)::value != 0, decltype(any)::value != 0, decltype(drop)::value != 0>),
        (int64_t)job.tiles * given->batch, plan<D>::SHARED, job);
    return 0;
  });
}
