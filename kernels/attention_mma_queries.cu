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
#include "attention.cuh"

namespace {

template <int D> struct plan {
  enum { MT = D > 64 ? 1 : 2, QUERIES = 64 * MT, KEYS = D > 64 ? 32 : 64, PITCH = amp_tile<D>::PITCH, TILE = KEYS * PITCH, CHUNKS = D > 64 ? 2 : 1, STAGE = 2 * TILE,
         SHARED = 2 * QUERIES * PITCH + 2 * STAGE };
};

template <int D, bool BF, bool ANY> __global__ void __launch_bounds__(AMP_FLASH_THREADS, 2) gradient_queries(const __grid_constant__ amp_flash k)
{
#if AMP_MMA
  typedef plan<D> P;
  enum { PITCH = P::PITCH, MT = P::MT };
  AMP_SHARED(unsigned char, memory);
  const amp_at queries = amp_at_of(memory), shared = queries + 2 * P::QUERIES * PITCH;
  const int lane = threadIdx.x & 31, r = lane >> 2, w = threadIdx.x >> 5;
  const unsigned b = blockIdx.x / (unsigned)k.tiles;
  const int i0 = (k.tiles - 1 - (int)(blockIdx.x - b * (unsigned)k.tiles)) * P::QUERIES, w0 = i0 + w * 16 * MT;
  int64_t at[AMP_F_SIDES];
  amp_flash_starts(k, b, at);
  const float c = ANY ? 1.f : k.c;
  const int limit = k.causal ? min(k.keys, i0 + P::QUERIES) : k.keys;                    /* keys that the block meets, */
  const int reach = w0 >= k.length ? 0 : k.causal ? min(k.keys, w0 + 16 * MT) : k.keys;   /* and this warp */

  const int place = amp_tile_way<D>::place();
  const amp_at to = shared + place;
  amp_tile_way<D> qw(k.side[AMP_F_Q], at[AMP_F_Q], i0, k.length, k.size), gw(k.side[AMP_F_G], at[AMP_F_G], i0, k.length, k.size);
  amp_tile_way<D> kw(k.side[AMP_F_K], at[AMP_F_K], 0, limit, k.size), vw(k.side[AMP_F_V], at[AMP_F_V], 0, limit, k.size);
  qw.template load<P::QUERIES>(queries + place, k.side[AMP_F_Q]);
  gw.template load<P::QUERIES>(queries + P::QUERIES * PITCH + place, k.side[AMP_F_G]);
  amp_copy_commit();
  kw.template load<P::KEYS>(to, k.side[AMP_F_K]);
  vw.template load<P::KEYS>(to + P::TILE, k.side[AMP_F_V]);
  amp_copy_commit();

  unsigned q[MT][D / 16][4], g[MT][D / 16][4];
  const amp_at qa = queries + w * 16 * MT * PITCH + amp_lane_a(lane, PITCH);
  float dq[MT][D / 8][4], less[MT][2], delta[MT][2];
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int64_t i = (int64_t)b * k.padded + w0 + m * 16 + h * 8 + r;
      less[m][h] = k.lse2[i];
      delta[m][h] = k.delta[i];
    }
#pragma unroll
    for (int d = 0; d < D / 8; d++) {
#pragma unroll
      for (int e = 0; e < 4; e++) dq[m][d][e] = 0;
    }
  }
  amp_copy_wait<1>();
  __syncthreads();
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int d = 0; d < D / 16; d++) { amp_ldmatrix(q[m][d], qa + m * 16 * PITCH + d * 32); amp_ldmatrix(g[m][d], qa + (P::QUERIES + m * 16) * PITCH + d * 32); }
  }

  for (int j0 = 0, stage = 0; j0 < limit; j0 += P::KEYS, stage ^= 1) {
    amp_copy_wait<0>();
    __syncthreads(); /* the tile is there, and the one before has been read by all */
    if (j0 + P::KEYS < limit) {
      kw.template load<P::KEYS>(to + (stage ? 0 : P::STAGE), k.side[AMP_F_K]);
      vw.template load<P::KEYS>(to + (stage ? 0 : P::STAGE) + P::TILE, k.side[AMP_F_V]);
      amp_copy_commit();
    }
    if (j0 >= reach) continue;
    const amp_at tile = shared + (stage ? P::STAGE : 0), kb = tile + amp_lane_b(lane, PITCH), vb = kb + P::TILE, kt = tile + amp_lane_a(lane, PITCH);
    const bool edge = j0 + P::KEYS > k.keys || (k.causal && j0 + P::KEYS - 1 > w0);
#pragma unroll P::CHUNKS
    for (int j = 0; j < P::KEYS / 16; j++) { /* 16 keys */
      if (P::CHUNKS == 1 && j0 + j * 16 >= reach) break;
      float s[MT][2][4], u[MT][2][4];
#pragma unroll
      for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int e = 0; e < 4; e++) s[m][0][e] = s[m][1][e] = u[m][0][e] = u[m][1][e] = 0;
      }
#pragma unroll
      for (int d = 0; d < D / 16; d++) {
        unsigned x[4], y[4];
        amp_ldmatrix(x, kb + j * 16 * PITCH + d * 32);
        amp_ldmatrix(y, vb + j * 16 * PITCH + d * 32);
#pragma unroll
        for (int m = 0; m < MT; m++) {
          amp_mma<BF>(s[m][0], q[m][d], x[0], x[1]);
          amp_mma<BF>(s[m][1], q[m][d], x[2], x[3]);
          amp_mma<BF>(u[m][0], g[m][d], y[0], y[1]);
          amp_mma<BF>(u[m][1], g[m][d], y[2], y[3]);
        }
      }
      if constexpr (ANY) {
        amp_flash_by_mask<BF>(k, at[AMP_F_MASK], [&](auto word) {
#pragma unroll
          for (int e = 0; e < MT * 8; e++) {
            const int i = w0 + e / 8 * 16 + (e >> 1 & 1) * 8 + r, key = j0 + j * 16 + (e >> 2 & 1) * 8 + (lane & 3) * 2 + (e & 1);
            float &v = s[e / 8][e >> 2 & 1][e & 3];
            if (i < k.length && key < k.keys) v = word(i, key, v);
          }
        });
      }
      /* u becomes ds */
#pragma unroll
      for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int e = 0; e < 8; e++) {
          const int h = e >> 1 & 1;
          u[m][e >> 2][e & 3] = amp_exp2(s[m][e >> 2][e & 3] * c - less[m][h]) * (u[m][e >> 2][e & 3] * k.scale - delta[m][h]);
          if (ANY && less[m][h] == INFINITY) u[m][e >> 2][e & 3] = 0; /* a row without a key */
        }
      }
      if (edge) {
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
          for (int h = 0; h < 2; h++) {
            const int i = w0 + m * 16 + h * 8 + r, room = (k.causal ? min(k.keys, i + 1) : k.keys) - j0 - j * 16 - (lane & 3) * 2;
#pragma unroll
            for (int e = 0; e < 4; e++)
              if ((e >> 1) * 8 + (e & 1) >= room) u[m][e >> 1][h * 2 + (e & 1)] = 0;
          }
        }
      }
      unsigned ds[MT][4];
#pragma unroll
      for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int h = 0; h < 4; h++) ds[m][h] = amp_pack<BF>(u[m][h >> 1][(h & 1) * 2], u[m][h >> 1][(h & 1) * 2 + 1]);
      }
#pragma unroll
      for (int d = 0; d < D / 16; d++) {
        unsigned x[4];
        amp_ldmatrix_turned(x, kt + j * 16 * PITCH + d * 32);
#pragma unroll
        for (int m = 0; m < MT; m++) {
          amp_mma<BF>(dq[m][2 * d], ds[m], x[0], x[1]);
          amp_mma<BF>(dq[m][2 * d + 1], ds[m], x[2], x[3]);
        }
      }
    }
  }

  amp_copy_wait<0>();
  amp_flash_starts(k, b, at);
  float one[MT][2];
#pragma unroll
  for (int m = 0; m < MT; m++) one[m][0] = one[m][1] = 1;
  /* of the queries' tile only this warp's rows */
  amp_tile_store<D, MT, BF>(memory + w * 16 * MT * PITCH, dq, one, (uint16_t *)k.side[AMP_F_DQ].p + at[AMP_F_DQ], k.side[AMP_F_DQ].row, w0, k.length, k.size);
#endif
}

} // namespace

int amp_flash_launch_queries(const amp_flash *k)
{
  return amp_flash_by(*k, [&](auto d, auto bf, auto any) {
    enum { D = decltype(d)::value };
    amp_flash job = *k;
    job.tiles = (k->length + plan<D>::QUERIES - 1) / plan<D>::QUERIES;
    AMP_FLASH_LAUNCH((gradient_queries<D, decltype(bf)::value != 0, decltype(any)::value != 0>), (int64_t)job.tiles * k->batch, plan<D>::SHARED, job);
    return 0;
  });
}
