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
#include "attention.cuh"

namespace {

template <int D, bool ANY = false> struct plan {
  enum { MT = D > 64 ? 1 : 2, KEYS = 64 * MT, QUERIES = D > 64 ? 32 : 64, PITCH = amp_tile<D>::PITCH,
         TILE = QUERIES * PITCH, PARTS = D > 64 ? 2 : 1, STAGE = 2 * TILE + 2 * QUERIES * 4, SHARED = 2 * KEYS * PITCH + 2 * STAGE,
         HELD = ANY && D > 64 ? 4 : D / 16, HELD_V = ANY || D > 96 ? 0 : D > 64 ? 6 : D / 32 }; /* how many of a row's fragments stay in registers */
};

#if AMP_MMA
/* The next tile of queries, of gradients and their two numbers each; `numbers`: this thread's 16 bytes of these, if it has any */
template <int D> __device__ __forceinline__ void load(const amp_flash &k, amp_at stage, amp_tile_way<D> &q, amp_tile_way<D> &g, const float *&numbers)
{
  typedef plan<D> P;
  const int place = amp_tile_way<D>::place();
  q.template load<P::QUERIES>(stage + place, k.side[AMP_F_Q]);
  g.template load<P::QUERIES>(stage + P::TILE + place, k.side[AMP_F_G]);
  if (threadIdx.x < P::QUERIES / 2) amp_copy16(stage + 2 * P::TILE + threadIdx.x * 16, numbers, true);
  numbers += P::QUERIES;
}
#endif

template <int D, bool BF, bool ANY> __global__ void __launch_bounds__(AMP_FLASH_THREADS, 2) gradient_keys(const __grid_constant__ amp_flash k)
{
#if AMP_MMA
  typedef plan<D, ANY> P;
  enum { PITCH = P::PITCH, MT = P::MT, N = 2 * P::PARTS };
  AMP_SHARED(unsigned char, memory);
  unsigned char *const stages = memory + 2 * P::KEYS * PITCH;
  const amp_at keys = amp_at_of(memory), values = keys + P::KEYS * PITCH, shared = values + P::KEYS * PITCH;
  const int lane = threadIdx.x & 31, r = lane >> 2, w = threadIdx.x >> 5;
  const unsigned b = blockIdx.x / (unsigned)k.tiles;
  const int j0 = (int)(blockIdx.x - b * (unsigned)k.tiles) * P::KEYS, w0 = j0 + w * 16 * MT;
  int64_t at[AMP_F_SIDES];
  amp_flash_starts(k, b, at);
  const float c = ANY ? 1.f : k.c;
  const int from = k.causal ? j0 & ~(P::QUERIES - 1) : 0;

  const int place = amp_tile_way<D>::place();
  {
    amp_tile_way<D> kw(k.side[AMP_F_K], at[AMP_F_K], j0, k.keys, k.size), vw(k.side[AMP_F_V], at[AMP_F_V], j0, k.keys, k.size);
    kw.template load<P::KEYS>(keys + place, k.side[AMP_F_K]);
    vw.template load<P::KEYS>(values + place, k.side[AMP_F_V]);
    amp_copy_commit();
  }
  amp_tile_way<D> qw(k.side[AMP_F_Q], at[AMP_F_Q], from, k.length, k.size), gw(k.side[AMP_F_G], at[AMP_F_G], from, k.length, k.size);
  const float *numbers = (threadIdx.x < P::QUERIES / 4 ? k.lse2 : k.delta) + (int64_t)b * k.padded + from + (threadIdx.x & (P::QUERIES / 4 - 1)) * 4;
  if (from < k.length) load<D>(k, shared, qw, gw, numbers);
  amp_copy_commit();

  unsigned kf[MT][P::HELD + 1][4], vf[MT][P::HELD_V + 1][4];
  const amp_at ka = keys + w * 16 * MT * PITCH + amp_lane_a(lane, PITCH), va = ka + P::KEYS * PITCH;
  amp_copy_wait<1>();
  __syncthreads();
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int d = 0; d < P::HELD; d++) {
      amp_ldmatrix(kf[m][d], ka + m * 16 * PITCH + d * 32);
      if (d < P::HELD_V) amp_ldmatrix(vf[m][d], va + m * 16 * PITCH + d * 32);
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
      load<D>(k, shared + (stage ? 0 : P::STAGE), qw, gw, numbers);
      amp_copy_commit();
    }
    if (w0 >= k.keys || (k.causal && i0 + P::QUERIES <= w0)) continue;
    const amp_at tile = shared + (stage ? P::STAGE : 0), qb = tile + amp_lane_b(lane, PITCH), gb = qb + P::TILE, qt = tile + amp_lane_a(lane, PITCH), gt = qt + P::TILE;
    const float *two = (const float *)(stages + (stage ? P::STAGE : 0) + 2 * P::TILE) + (lane & 3) * 2;
#pragma unroll 1
    for (int i = 0; i < P::QUERIES; i += N * 8) { /* N fragments of 8 queries */
      if (k.causal && i0 + i + N * 8 <= w0) continue;
      float s[MT][N][4], u[MT][N][4];
#pragma unroll
      for (int m = 0; m < MT; m++) {
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
        for (int m = 0; m < MT; m++) {
          if (d >= P::HELD) amp_ldmatrix(kf[m][at_k], ka + m * 16 * PITCH + d * 32);
          if (d >= P::HELD_V) amp_ldmatrix(vf[m][at_v], va + m * 16 * PITCH + d * 32);
        }
#pragma unroll
        for (int n = 0; n < N; n += 2) {
          unsigned x[4], y[4];
          amp_ldmatrix(x, qb + (i + n * 8) * PITCH + d * 32);
          amp_ldmatrix(y, gb + (i + n * 8) * PITCH + d * 32);
#pragma unroll
          for (int m = 0; m < MT; m++) {
            amp_mma<BF>(s[m][n], kf[m][at_k], x[0], x[1]);
            amp_mma<BF>(s[m][n + 1], kf[m][at_k], x[2], x[3]);
            amp_mma<BF>(u[m][n], vf[m][at_v], y[0], y[1]);
            amp_mma<BF>(u[m][n + 1], vf[m][at_v], y[2], y[3]);
          }
        }
      }
      if constexpr (ANY) {
        amp_flash_by_mask<BF>(k, at[AMP_F_MASK], [&](auto word) {
#pragma unroll
          for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int e = 0; e < N * 4; e++) {
              const int row = w0 + m * 16 + (e >> 1 & 1) * 8 + r, query = i0 + i + e / 4 * 8 + (lane & 3) * 2 + (e & 1);
              if (row < k.keys && query < k.length) s[m][e / 4][e & 3] = word(query, row, s[m][e / 4][e & 3]);
            }
          }
        });
      }
      /* s becomes p and u ds */
#pragma unroll
      for (int n = 0; n < N; n++) {
        const float2 l = *(const float2 *)(two + i + n * 8), t = *(const float2 *)(two + P::QUERIES + i + n * 8);
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
          for (int e = 0; e < 4; e++) {
            s[m][n][e] = amp_exp2(s[m][n][e] * c - (e & 1 ? l.y : l.x));
            u[m][n][e] = s[m][n][e] * (u[m][n][e] * k.scale - (e & 1 ? t.y : t.x));
            if (ANY && (e & 1 ? l.y : l.x) == INFINITY) u[m][n][e] = 0; /* a row without a key */
          }
        }
      }
      if (i0 + i + N * 8 > k.length || (k.causal && i0 + i < w0 + 16 * MT - 1)) {
        const int query = i0 + i + (lane & 3) * 2, room = k.length - query, ahead = k.causal ? w0 + r - query : INT_MIN / 2;
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
          for (int e = 0; e < N * 4; e++) {
            const int column = e / 4 * 8 + (e & 1);
            if (column >= room || ahead + m * 16 + (e >> 1 & 1) * 8 > column) s[m][e / 4][e & 3] = u[m][e / 4][e & 3] = 0;
          }
        }
      }
#pragma unroll
      for (int j = 0; j < N / 2; j++) { /* 16 queries */
        unsigned p[MT][4], ds[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
          for (int h = 0; h < 4; h++) {
            const int n = 2 * j + (h >> 1), e = (h & 1) * 2;
            p[m][h] = amp_pack<BF>(s[m][n][e], s[m][n][e + 1]);
            ds[m][h] = amp_pack<BF>(u[m][n][e], u[m][n][e + 1]);
          }
        }
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
          unsigned x[4], y[4];
          amp_ldmatrix_turned(y, gt + (i + j * 16) * PITCH + d * 32);
          amp_ldmatrix_turned(x, qt + (i + j * 16) * PITCH + d * 32);
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
  }

  amp_copy_wait<0>();
  amp_flash_starts(k, b, at); /* anew: in registers they would take room all the while */
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
  return amp_flash_by(*k, [&](auto d, auto bf, auto any) {
    enum { D = decltype(d)::value };
    amp_flash job = *k;
    job.tiles = (k->keys + plan<D>::KEYS - 1) / plan<D>::KEYS;
    AMP_FLASH_LAUNCH((gradient_keys<D, decltype(bf)::value != 0, decltype(any)::value != 0>), (int64_t)job.tiles * k->batch, plan<D>::SHARED, job);
    return 0;
  });
}
