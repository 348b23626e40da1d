/*
** attention_mma_keys.cu: attention's gradients in keys and values on tensor cores.
**
**   s = k q^T   p = exp2(s - lse)   d = v g^T   ds = p (d scale - delta)
**   dv += p g   dk += ds q          rows: keys, so p and ds are where products take them
**
** A block has a tile of keys, a warp 16 MT rows of it, and meets the queries in
** tiles; dk and dv stay in registers, and nothing is added by atomics. Queries that
** are not there have lse +inf and weigh nothing; rows of keys that are not there are
** computed and not stored.
*/
#include "attention.cuh"

namespace {

template <int D> struct plan {
  enum { MT = D > 64 ? 1 : 2, KEYS = 64 * MT, QUERIES = D > 64 ? 32 : 64, HELD = D <= 64, PITCH = amp_tile<D>::PITCH,
         TILE = QUERIES * PITCH, STAGE = 2 * TILE + 2 * QUERIES * 4, SHARED = 2 * KEYS * PITCH + 2 * STAGE };
};

/* A tile of queries, of gradients and their two numbers each */
template <int D> __device__ __forceinline__ void load(const amp_flash &k, amp_at to, const uint16_t *q, const uint16_t *g, const float *lse2, const float *delta, int i0)
{
#if AMP_MMA
  typedef plan<D> P;
  amp_tile_load<D, P::QUERIES>(to, q, k.side[AMP_F_Q].row, i0, k.length, k.size);
  amp_tile_load<D, P::QUERIES>(to + P::TILE, g, k.side[AMP_F_G].row, i0, k.length, k.size);
  const int e = threadIdx.x * 4, n = e & (P::QUERIES - 1);
  if (e < 2 * P::QUERIES) amp_copy16(to + 2 * P::TILE + e * 4, (e < P::QUERIES ? lse2 : delta) + i0 + n, true);
#endif
}

template <int D, bool BF, bool ANY> __global__ void __launch_bounds__(AMP_FLASH_THREADS, 2) gradient_keys(const __grid_constant__ amp_flash k)
{
#if AMP_MMA
  typedef plan<D> P;
  enum { PITCH = P::PITCH, MT = P::MT };
  AMP_SHARED(unsigned char, memory);
  unsigned char *const stages = memory + 2 * P::KEYS * PITCH;
  const amp_at keys = amp_at_of(memory), values = keys + P::KEYS * PITCH, shared = values + P::KEYS * PITCH;
  const int lane = threadIdx.x & 31, r = lane >> 2, w = threadIdx.x >> 5;
  const unsigned b = blockIdx.x / (unsigned)k.tiles;
  const int j0 = (int)(blockIdx.x - b * (unsigned)k.tiles) * P::KEYS, w0 = j0 + w * 16 * MT;
  int64_t at[AMP_F_SIDES];
  amp_flash_starts(k, b, at);
  const uint16_t *qp = (const uint16_t *)k.side[AMP_F_Q].p + at[AMP_F_Q], *gp = (const uint16_t *)k.side[AMP_F_G].p + at[AMP_F_G];
  const float *lse2 = k.lse2 + (int64_t)b * k.padded, *delta = k.delta + (int64_t)b * k.padded;
  const int from = k.causal ? j0 & ~(P::QUERIES - 1) : 0;

  amp_tile_load<D, P::KEYS>(keys, (const uint16_t *)k.side[AMP_F_K].p + at[AMP_F_K], k.side[AMP_F_K].row, j0, k.keys, k.size);
  amp_tile_load<D, P::KEYS>(values, (const uint16_t *)k.side[AMP_F_V].p + at[AMP_F_V], k.side[AMP_F_V].row, j0, k.keys, k.size);
  amp_copy_commit();
  if (from < k.length) load<D>(k, shared, qp, gp, lse2, delta, from);
  amp_copy_commit();

  unsigned kf[MT][P::HELD ? D / 16 : 1][4], vf[MT][P::HELD ? D / 16 : 1][4];
  const amp_at ka = keys + w * 16 * MT * PITCH + amp_lane_a(lane, PITCH), va = ka + P::KEYS * PITCH;
  amp_copy_wait<1>();
  __syncthreads();
  if constexpr (P::HELD) {
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
      for (int d = 0; d < D / 16; d++) { amp_ldmatrix(kf[m][d], ka + m * 16 * PITCH + d * 32); amp_ldmatrix(vf[m][d], va + m * 16 * PITCH + d * 32); }
    }
  }
  float dk[MT][D / 8][4], dv[MT][D / 8][4];
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int d = 0; d < D / 8; d++) {
#pragma unroll
      for (int e = 0; e < 4; e++) dk[m][d][e] = dv[m][d][e] = 0;
    }
  }

  for (int i0 = from, stage = 0; i0 < k.length; i0 += P::QUERIES, stage ^= 1) {
    amp_copy_wait<0>();
    __syncthreads(); /* the tile is there, and the one before has been read by all */
    if (i0 + P::QUERIES < k.length) {
      load<D>(k, shared + (stage ? 0 : P::STAGE), qp, gp, lse2, delta, i0 + P::QUERIES);
      amp_copy_commit();
    }
    if (w0 >= k.keys || (k.causal && i0 + P::QUERIES <= w0)) continue;
    const amp_at tile = shared + (stage ? P::STAGE : 0), qb = tile + amp_lane_b(lane, PITCH), gb = qb + P::TILE, qt = tile + amp_lane_a(lane, PITCH), gt = qt + P::TILE;
    const float *numbers = (const float *)(stages + (stage ? P::STAGE : 0) + 2 * P::TILE) + (lane & 3) * 2;
    const bool edge = ANY || (k.causal && i0 < w0 + 16 * MT - 1);
#pragma unroll
    for (int i = 0; i < P::QUERIES / 16; i++) { /* 16 queries */
      float s[MT][2][4], u[MT][2][4];
#pragma unroll
      for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int e = 0; e < 4; e++) s[m][0][e] = s[m][1][e] = u[m][0][e] = u[m][1][e] = 0;
      }
#pragma unroll
      for (int d = 0; d < D / 16; d++) {
        unsigned x[4], y[4];
        amp_ldmatrix(x, qb + i * 16 * PITCH + d * 32);
        amp_ldmatrix(y, gb + i * 16 * PITCH + d * 32);
#pragma unroll
        for (int m = 0; m < MT; m++) {
          if constexpr (P::HELD) {
            amp_mma<BF>(s[m][0], kf[m][d], x[0], x[1]);
            amp_mma<BF>(s[m][1], kf[m][d], x[2], x[3]);
            amp_mma<BF>(u[m][0], vf[m][d], y[0], y[1]);
            amp_mma<BF>(u[m][1], vf[m][d], y[2], y[3]);
          } else {
            unsigned a[4];
            amp_ldmatrix(a, ka + m * 16 * PITCH + d * 32);
            amp_mma<BF>(s[m][0], a, x[0], x[1]);
            amp_mma<BF>(s[m][1], a, x[2], x[3]);
            amp_ldmatrix(a, va + m * 16 * PITCH + d * 32);
            amp_mma<BF>(u[m][0], a, y[0], y[1]);
            amp_mma<BF>(u[m][1], a, y[2], y[3]);
          }
        }
      }
      unsigned p[MT][4], ds[MT][4];
#pragma unroll
      for (int n = 0; n < 2; n++) {
        const float2 l = *(const float2 *)(numbers + i * 16 + n * 8), t = *(const float2 *)(numbers + P::QUERIES + i * 16 + n * 8);
#pragma unroll
        for (int m = 0; m < MT; m++) {
          float weight[4], change[4];
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const float less = e & 1 ? l.y : l.x;
            float v = s[m][n][e];
            bool out = false;
            if (edge) {
              const int row = w0 + m * 16 + (e >> 1) * 8 + r, query = i0 + i * 16 + n * 8 + (lane & 3) * 2 + (e & 1);
              out = k.causal && row > query;
              if (ANY && row < k.keys && query < k.length) v = amp_flash_masked(k, at[AMP_F_MASK], query, row, v);
            }
            weight[e] = out ? 0.f : amp_exp2(ANY ? v - less : v * k.c - less);
            change[e] = out ? 0.f : weight[e] * (u[m][n][e] * k.scale - (e & 1 ? t.y : t.x));
          }
          p[m][2 * n] = amp_pack<BF>(weight[0], weight[1]);
          p[m][2 * n + 1] = amp_pack<BF>(weight[2], weight[3]);
          ds[m][2 * n] = amp_pack<BF>(change[0], change[1]);
          ds[m][2 * n + 1] = amp_pack<BF>(change[2], change[3]);
        }
      }
#pragma unroll
      for (int d = 0; d < D / 16; d++) {
        unsigned x[4], y[4];
        amp_ldmatrix_turned(y, gt + i * 16 * PITCH + d * 32);
        amp_ldmatrix_turned(x, qt + i * 16 * PITCH + d * 32);
#pragma unroll
        for (int m = 0; m < MT; m++) {
          amp_mma<BF>(dv[m][2 * d], p[m], y[0], y[1]);
          amp_mma<BF>(dv[m][2 * d + 1], p[m], y[2], y[3]);
          amp_mma<BF>(dk[m][2 * d], ds[m], x[0], x[1]);
          amp_mma<BF>(dk[m][2 * d + 1], ds[m], x[2], x[3]);
        }
      }
    }
  }

  amp_copy_wait<0>();
  float one[MT][2];
#pragma unroll
  for (int m = 0; m < MT; m++) one[m][0] = one[m][1] = 1;
  unsigned char *mine = memory + w * 16 * MT * PITCH; /* of the keys' tile only this warp's rows */
  amp_tile_store<D, MT, BF>(mine, dk, one, (uint16_t *)k.side[AMP_F_DK].p + at[AMP_F_DK], k.side[AMP_F_DK].row, w0, k.keys, k.size);
  amp_tile_store<D, MT, BF>(mine + P::KEYS * PITCH, dv, one, (uint16_t *)k.side[AMP_F_DV].p + at[AMP_F_DV], k.side[AMP_F_DV].row, w0, k.keys, k.size);
#endif
}

} // namespace

int amp_flash_launch_keys(const amp_flash *k)
{
  return amp_flash_by(*k, [&](auto wide, auto bf, auto any) {
    enum { D = decltype(wide)::value ? 128 : 64 };
    amp_flash job = *k;
    job.tiles = (k->keys + plan<D>::KEYS - 1) / plan<D>::KEYS;
    AMP_FLASH_LAUNCH((gradient_keys<D, decltype(bf)::value, decltype(any)::value>), (int64_t)job.tiles * k->batch, plan<D>::SHARED, job);
    return 0;
  });
}
