/*
** mma.cuh: products of 16-bit tiles on tensor cores, and what feeds them: tiles
** copied to shared memory in the background (cp.async) and read from there as
** fragments (ldmatrix). From compute capability 8.0 on; AMP_MMA is 0 where the
** code is translated for less, whose kernels stay empty.
**
**   C (16 x 8, float32) += A (16 x 16) B (16 x 8)       lane = 4 r + q
**   A  x[0] (r, 2q..)  x[1] (r + 8, 2q..)  x[2] (r, 2q + 8..)  x[3] (r + 8, 2q + 8..)
**   B  x (2q.., r)  y (2q + 8.., r)
**   C  c[0], c[1] (r, 2q..)  c[2], c[3] (r + 8, 2q..)
**
** (row, column) of an element and `..` the one after it, along B's rows. So two
** C side by side, rounded, are an A. Rows of shared memory are padded by 16 bytes:
** 8 rows of ldmatrix lie in different banks, and every address is a lane's own
** plus a constant. On the emulator a copy arrives when it is waited for.
*/
#ifndef AMP_MMA_CUH
#define AMP_MMA_CUH
#include "common/kernel.cuh"

#if defined(AMP_EMULATED) || !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define AMP_MMA 1
#else
#define AMP_MMA 0
#endif

/* Has the card entered tensor cores for this, and was the code that runs there made for them? Code for older cards,
** which a driver may have translated, has empty kernels. (gemm_small.cu) */
bool amp_mma_here(void);

template <bool BF> __device__ __forceinline__ float amp_of_half(uint16_t h) { return BF ? amp_bf2f(h) : amp_h2f(h); }

#ifdef AMP_EMULATED
typedef char *amp_at; /* an address in shared memory */
static inline amp_at amp_at_of(void *p) { return (char *)p; }

template <bool BF> static inline unsigned amp_pack(float lo, float hi)
{
  return BF ? (unsigned)amp_f2bf(lo) | (unsigned)amp_f2bf(hi) << 16
            : (unsigned)amp_f2h(lo) | (unsigned)amp_f2h(hi) << 16;
}

template <bool BF> static inline void amp_mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
  unsigned mine[6] = { a[0], a[1], a[2], a[3], b0, b1 }, all[32][6];
  int lane = emu_lane(), r = lane >> 2, q = lane & 3;
  emu_exchange(mine, all, sizeof mine);
  for (int e = 0; e < 4; e++) {
    int row = r + (e >> 1) * 8, column = 2 * q + (e & 1);
    for (int k = 0; k < 16; k++) {
      unsigned x = all[(row & 7) * 4 + (k & 7) / 2][(row >> 3) + (k >> 3) * 2],
               y = all[column * 4 + (k & 7) / 2][4 + (k >> 3)];
      c[e] += amp_of_half<BF>((uint16_t)(k & 1 ? x >> 16 : x)) * amp_of_half<BF>((uint16_t)(k & 1 ? y >> 16 : y));
    }
  }
}

static inline void amp_mma_tf32(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
  unsigned mine[6] = { a[0], a[1], a[2], a[3], b0, b1 }, all[32][6];
  int lane = emu_lane(), r = lane >> 2, q = lane & 3;
  emu_exchange(mine, all, sizeof mine);
  for (int e = 0; e < 4; e++) {
    int row = r + (e >> 1) * 8, column = 2 * q + (e & 1);
    for (int k = 0; k < 8; k++)
      c[e] += __uint_as_float(all[(row & 7) * 4 + (k & 3)][(row >> 3) + (k >> 2) * 2] & ~0x1fffu)
              * __uint_as_float(all[column * 4 + (k & 3)][4 + (k >> 2)] & ~0x1fffu);
  }
}

/* lane l's address is row l % 8 of matrix l / 8 */
static inline void amp_ldmatrix(unsigned (&x)[4], amp_at at)
{
  amp_at all[32];
  int lane = emu_lane();
  emu_exchange(&at, all, sizeof at);
  for (int m = 0; m < 4; m++) memcpy(&x[m], all[8 * m + (lane >> 2)] + (lane & 3) * 4, 4);
}
static inline void amp_ldmatrix_turned(unsigned (&x)[4], amp_at at)
{
  amp_at all[32];
  int lane = emu_lane();
  emu_exchange(&at, all, sizeof at);
  for (int m = 0; m < 4; m++) {
    uint16_t lo, hi;
    memcpy(&lo, all[8 * m + (lane & 3) * 2] + (lane >> 2) * 2, 2);
    memcpy(&hi, all[8 * m + (lane & 3) * 2 + 1] + (lane >> 2) * 2, 2);
    x[m] = (unsigned)lo | (unsigned)hi << 16;
  }
}

static inline void amp_copy16(amp_at to, const void *from, bool there) { emu_async_copy(to, there ? from : NULL, 16); }
static inline void amp_copy_commit() { emu_async_commit(); }
template <int LEFT> static inline void amp_copy_wait() { emu_async_wait(LEFT); }
static inline float amp_exp2(float x) { return exp2f(x); }
#else
typedef unsigned amp_at;
#endif

#if !defined(AMP_EMULATED) && AMP_MMA
__device__ __forceinline__ amp_at amp_at_of(void *p) { return (unsigned)__cvta_generic_to_shared(p); }

template <bool BF> __device__ __forceinline__ unsigned amp_pack(float lo, float hi)
{
  unsigned x;
  if constexpr (BF) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(hi), "f"(lo));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(hi), "f"(lo));
  }
  return x;
}

template <bool BF>
__device__ __forceinline__ void amp_mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
  if constexpr (BF) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/* C (16 x 8) += A (16 x 8) B (8 x 8) of float32, of which 10 bits of a mantissa count:  A  a[0] (r, q)  a[1] (r + 8, q)
** a[2] (r, q + 4) a[3] (r + 8, q + 4)   B  (q, r)  (q + 4, r) */
__device__ __forceinline__ void amp_mma_tf32(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four 8 x 8 matrices; lane l's address is row l % 8 of matrix l / 8 */
__device__ __forceinline__ void amp_ldmatrix(unsigned (&x)[4], amp_at at)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(at)
               : "memory");
}
__device__ __forceinline__ void amp_ldmatrix_turned(unsigned (&x)[4], amp_at at)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(at)
               : "memory");
}

/* 16 bytes in the background, or 16 zeros if nothing is there */
__device__ __forceinline__ void amp_copy16(amp_at to, const void *from, bool there)
{
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)),
               "r"(there ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void amp_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* until of this thread's groups only the LEFT latest are on their way */
template <int LEFT> __device__ __forceinline__ void amp_copy_wait()
{
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
__device__ __forceinline__ float amp_exp2(float x)
{
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#endif

/* Two products, of 32 summed values: u, v: 8 of them of rows r and r + 8, w: of column r, from 8 q on. Which value
** meets which in an instruction does not matter to the sum, so each lane reads 16 bytes of a row */
template <bool BF>
__device__ __forceinline__ void amp_mma32(float (&c)[4], const uint4 &u, const uint4 &v, const uint4 &w)
{
#if AMP_MMA
  const unsigned low[4] = { u.x, v.x, u.y, v.y }, high[4] = { u.z, v.z, u.w, v.w };
  amp_mma<BF>(c, low, w.x, w.y);
  amp_mma<BF>(c, high, w.z, w.w);
#endif
}

#if AMP_MMA
/* Where in a tile of rows of `pitch` bytes a lane's address for ldmatrix is: four matrices of 16 rows x 16 columns in
** the order of an A (with _turned: of two B side by side, rows being the inner dimension), and of two B whose
** columns are rows there */
__device__ __forceinline__ int amp_lane_a(int lane, int pitch) { return (lane & 15) * pitch + (lane >> 4) * 16; }
__device__ __forceinline__ int amp_lane_b(int lane, int pitch)
{
  return ((lane & 7) + (lane >> 4) * 8) * pitch + (lane >> 3 & 1) * 16;
}
#endif

#endif
