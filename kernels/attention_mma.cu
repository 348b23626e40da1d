/*
** attention_mma.cu: forward of attention on tensor cores, after FlashAttention-2
** (Dao, 2023), for float16 and bfloat16, heads of up to 128 values in multiples of
** 8; kernels/attention.cu does the rest. Queries, keys and values may lie anywhere
** with 16-byte aligned rows; what does not is copied first.
**
** A block has 128 queries, a warp 32 of them, and meets the keys in tiles, the next
** one on its way while one is worked on. Scores, weights (16 bit, as the second
** product takes them) and the result stay in registers. A row's maximum is moved,
** and its sums with it, only when weights would pass 2^8. Of a head's tiles of
** queries those with most keys come first.
*/
#include "attention.cuh"

namespace {

enum { QUERIES = 128 };

template <int D, bool ANY = false> struct plan {
  /* HELD parts of the queries stay in registers; if ALL do, their tile is the second stage */
  enum { KEYS = D > 64 ? 32 : 64, ALL = D <= 64, HELD = D <= 64 ? D / 16 : D <= 96 ? 4 : ANY ? 0 : 2,
         TILE = KEYS * amp_tile<D>::PITCH, STAGE = 2 * TILE, SHARED = ALL ? 2 * STAGE : 2 * STAGE + QUERIES * amp_tile<D>::PITCH };
};

template <int D, bool BF, bool ANY> __global__ void __launch_bounds__(AMP_FLASH_THREADS, 2) attend_mma(const __grid_constant__ amp_flash k)
{
#if AMP_MMA
  typedef plan<D, ANY> P;
  enum { PITCH = amp_tile<D>::PITCH, KEYS = P::KEYS };
  AMP_SHARED(unsigned char, memory);
  const amp_at shared = amp_at_of(memory), queries = shared + (P::ALL ? P::STAGE : 2 * P::STAGE);
  const int lane = threadIdx.x & 31, r = lane >> 2, w = threadIdx.x >> 5;
  const unsigned b = blockIdx.x / (unsigned)k.tiles;
  const int i0 = (k.tiles - 1 - (int)(blockIdx.x - b * (unsigned)k.tiles)) * QUERIES, w0 = i0 + w * 32;
  int64_t at[AMP_F_SIDES];
  amp_flash_starts(k, b, at);
  const int limit = k.causal ? min(k.keys, i0 + QUERIES) : k.keys;                     /* keys that the block meets, */
  const int reach = w0 >= k.length ? 0 : k.causal ? min(k.keys, w0 + 32) : k.keys;      /* and this warp */
  const float c = ANY ? 1.f : k.c;

  const amp_at to = shared + amp_tile_way<D>::place();
  amp_tile_way<D> qw(k.side[AMP_F_Q], at[AMP_F_Q], i0, k.length, k.size);
  amp_tile_way<D> kw(k.side[AMP_F_K], at[AMP_F_K], 0, limit, k.size), vw(k.side[AMP_F_V], at[AMP_F_V], 0, limit, k.size);
  qw.template load<QUERIES>(queries + amp_tile_way<D>::place(), k.side[AMP_F_Q]);
  amp_copy_commit();
  kw.template load<KEYS>(to, k.side[AMP_F_K]);
  vw.template load<KEYS>(to + P::TILE, k.side[AMP_F_V]);
  amp_copy_commit();

  unsigned q[2][P::HELD + 1][4];
  const amp_at qa = queries + w * 32 * PITCH + amp_lane_a(lane, PITCH);
  amp_copy_wait<1>();
  __syncthreads();
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int d = 0; d < P::HELD; d++) amp_ldmatrix(q[m][d], qa + m * 16 * PITCH + d * 32);
  }
  float o[2][D / 8][4], top[2][2], sum[2][2];
#pragma unroll
  for (int m = 0; m < 2; m++) {
    top[m][0] = top[m][1] = -INFINITY;
    sum[m][0] = sum[m][1] = 0;
#pragma unroll
    for (int d = 0; d < D / 8; d++) o[m][d][0] = o[m][d][1] = o[m][d][2] = o[m][d][3] = 0;
  }

  for (int j0 = 0, stage = 0; j0 < limit; j0 += KEYS, stage ^= 1) {
    amp_copy_wait<0>();
    __syncthreads(); /* the tile is there, and the one before has been read by all */
    if (j0 + KEYS < limit) {
      kw.template load<KEYS>(to + (stage ? 0 : P::STAGE), k.side[AMP_F_K]);
      vw.template load<KEYS>(to + (stage ? 0 : P::STAGE) + P::TILE, k.side[AMP_F_V]);
      amp_copy_commit();
    }
    if (j0 >= reach) continue;
    const amp_at ka = shared + (stage ? P::STAGE : 0) + amp_lane_b(lane, PITCH), va = shared + (stage ? P::STAGE : 0) + P::TILE + amp_lane_a(lane, PITCH);

    /* Scores */
    float s[2][KEYS / 8][4];
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
      for (int j = 0; j < KEYS / 8; j++) s[m][j][0] = s[m][j][1] = s[m][j][2] = s[m][j][3] = 0;
    }
#pragma unroll
    for (int d = 0; d < D / 16; d++) {
      const int at_q = d < P::HELD ? d : P::HELD;
      if (d >= P::HELD) {
        amp_ldmatrix(q[0][at_q], qa + d * 32);
        amp_ldmatrix(q[1][at_q], qa + 16 * PITCH + d * 32);
      }
#pragma unroll
      for (int j = 0; j < KEYS / 16; j++) {
        unsigned x[4];
        amp_ldmatrix(x, ka + j * 16 * PITCH + d * 32);
#pragma unroll
        for (int m = 0; m < 2; m++) {
          amp_mma<BF>(s[m][2 * j], q[m][at_q], x[0], x[1]);
          amp_mma<BF>(s[m][2 * j + 1], q[m][at_q], x[2], x[3]);
        }
      }
    }
    if constexpr (ANY) {
      amp_flash_by_mask<BF>(k, at[AMP_F_MASK], [&](auto word) {
#pragma unroll
        for (int m = 0; m < 2; m++) {
#pragma unroll
          for (int e = 0; e < KEYS / 2; e++) {
            const int i = w0 + m * 16 + (e >> 1 & 1) * 8 + r, j = j0 + e / 4 * 8 + (lane & 3) * 2 + (e & 1);
            if (i < k.length && j < k.keys) s[m][e / 4][e & 3] = word(i, j, s[m][e / 4][e & 3]);
          }
        }
      });
    }
    if (j0 + KEYS > k.keys || (k.causal && j0 + KEYS - 1 > w0)) {
#pragma unroll
      for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const int i = w0 + m * 16 + h * 8 + r, room = (k.causal ? min(k.keys, i + 1) : k.keys) - j0 - (lane & 3) * 2;
#pragma unroll
          for (int e = 0; e < KEYS / 4; e++)
            if (e / 2 * 8 + (e & 1) >= room) s[m][e / 2][2 * h + (e & 1)] = -INFINITY;
        }
      }
    }

    /* Maxima; those of a row are in 4 lanes */
    float most[2][2];
    bool moved = false;
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float t = top[m][h];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) t = fmaxf(t, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
        t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 1));
        t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 2));
        most[m][h] = t;
        moved = moved || (t - top[m][h]) * c > 8.f;
      }
    }
    if (__any_sync(0xffffffffu, moved)) {
#pragma unroll
      for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
          float f = most[m][h] == top[m][h] ? 1.f : amp_exp2((top[m][h] - most[m][h]) * c);
          top[m][h] = most[m][h];
          sum[m][h] *= f;
#pragma unroll
          for (int d = 0; d < D / 8; d++) { o[m][d][2 * h] *= f; o[m][d][2 * h + 1] *= f; }
        }
      }
    }

    /* Weights */
    unsigned p[2][KEYS / 16][4];
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const float base = top[m][h] == -INFINITY ? 0.f : top[m][h] * c;
        float total = 0;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
          float x = amp_exp2(s[m][n][2 * h] * c - base), y = amp_exp2(s[m][n][2 * h + 1] * c - base);
          total += x + y;
          p[m][n / 2][(n & 1) * 2 + h] = amp_pack<BF>(x, y);
        }
        sum[m][h] += total;
      }
    }
#pragma unroll
    for (int j = 0; j < KEYS / 16; j++) {
#pragma unroll
      for (int d = 0; d < D / 16; d++) {
        unsigned x[4];
        amp_ldmatrix_turned(x, va + j * 16 * PITCH + d * 32);
#pragma unroll
        for (int m = 0; m < 2; m++) {
          amp_mma<BF>(o[m][2 * d], p[m][j], x[0], x[1]);
          amp_mma<BF>(o[m][2 * d + 1], p[m][j], x[2], x[3]);
        }
      }
    }
  }

#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float l = sum[m][h];
      const int i = w0 + m * 16 + h * 8 + r;
      l += __shfl_xor_sync(0xffffffffu, l, 1);
      l += __shfl_xor_sync(0xffffffffu, l, 2);
      sum[m][h] = l == 0 ? 0.f : 1 / l;
      if ((lane & 3) == 0 && i < k.length) k.lse[(int64_t)b * k.length + i] = l == 0 ? -INFINITY : top[m][h] * c * 0.693147181f + logf(l);
    }
  }
  if constexpr (P::ALL) { amp_copy_wait<0>(); __syncthreads(); } /* what lies where the result goes has been read */
  amp_flash_starts(k, b, at); /* anew: in registers they would take room all the while */
  amp_tile_store<D, 2, BF>(memory + (P::ALL ? P::STAGE : 2 * P::STAGE) + w * 32 * PITCH, o, sum, (uint16_t *)k.side[AMP_F_OUT].p + at[AMP_F_OUT], k.side[AMP_F_OUT].row, w0,
                           k.length, k.size);
#endif
}

} // namespace

int amp_flash_launch(const amp_flash *k)
{
  return amp_flash_by(*k, [&](auto d, auto bf, auto any) {
    enum { D = decltype(d)::value };
    AMP_FLASH_LAUNCH((attend_mma<D, decltype(bf)::value != 0, decltype(any)::value != 0>), (int64_t)k->tiles * k->batch, plan<D>::SHARED, *k);
    return 0;
  });
}
