/*
** cpu/gemm.c: blocked matrix product for float32 and float64 (cpu/gemm.h).
**
** The kernels of cpu/gemm_kernel.h are built three times on x86-64 (AVX-512,
** AVX2 with FMA, baseline) and once elsewhere (16-byte vectors: NEON); the
** processor picks at run time. Threads share nothing: C is cut into a grid of
** products of their own, each packing what it needs.
*/
#include "cpu/gemm.h"
#include "cpu/kernel_help.h"

#if defined(__clang__)
#define GK_S8(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define GK_S4 GK_S8
#define GK_S2 GK_S8
#else
typedef int gk_i8 __attribute__((vector_size(32)));
typedef int gk_i4 __attribute__((vector_size(16)));
typedef int64_t gk_l4 __attribute__((vector_size(32)));
typedef int64_t gk_l2 __attribute__((vector_size(16)));
#define GK_S8(a, b, ...) __builtin_shuffle(a, b, (gk_i8){ __VA_ARGS__ })
#define GK_S2(a, b, ...) __builtin_shuffle(a, b, (gk_l2){ __VA_ARGS__ })
#endif

/* One instruction set's functions for one type; `kern` by: A packed or plain, vectors of columns, class of rows */
#define GK_KERNEL(T, f) \
  void (*f)(int64_t kc, const T *a, int64_t ars, int64_t acs, const T *b, int64_t ldb, T *c, int64_t ldc, int add)
#define GK_PACKERS(T)                                                                               \
  void (*pack)(const T *src, int64_t rs, int64_t cs, int64_t lines, int64_t kc, int width, T *dst); \
  void (*pack_lines)(const T *const *lines, int n, int64_t kc, int width, T *dst);
#define GK_TYPE(T, name)                                                                       \
  typedef struct name {                                                                        \
    int mr, nr, v, classes, size[5];                                                           \
    GK_KERNEL(T, kern[2][2][5]);                                                               \
    GK_PACKERS(T)                                                                              \
    void (*dots)(int64_t m, int64_t k, const T *a, int64_t ars, const T *x, T *y, int64_t ys); \
    void (*rows)(int64_t n, int64_t k, const T *x, int64_t xs, const T *b, int64_t brs, T *y); \
  } name;
GK_TYPE(float, f_isa_type)
GK_TYPE(double, d_isa_type)
#undef GK_TYPE
#undef GK_PACKERS
#undef GK_KERNEL

/* -- Instances -------------------------------------------------------------- */

#define F_S4(a, b, ...) __builtin_shuffle(a, b, (gk_i4){ __VA_ARGS__ })
#define D_S4(a, b, ...) __builtin_shuffle(a, b, (gk_l4){ __VA_ARGS__ })

#if defined(__x86_64__)
#define GK_ISA __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
#define GK_T float
#define GK_VB 64
#define GK_MR 14
#define GK_TB 8
#define GK(x) f_##x##_512
#define f_isa_type_512 f_isa_type
#include "cpu/gemm_kernel.h"

#ifndef __clang__
#undef GK_S4
#define GK_S4 D_S4
#endif
#define GK_ISA __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
#define GK_T double
#define GK_VB 64
#define GK_MR 14
#define GK_TB 4
#define GK(x) d_##x##_512
#define d_isa_type_512 d_isa_type
#include "cpu/gemm_kernel.h"

#define GK_ISA __attribute__((target("avx2,fma")))
#define GK_T float
#define GK_VB 32
#define GK_MR 6
#define GK_TB 8
#define GK(x) f_##x##_256
#define f_isa_type_256 f_isa_type
#include "cpu/gemm_kernel.h"

#define GK_ISA __attribute__((target("avx2,fma")))
#define GK_T double
#define GK_VB 32
#define GK_MR 6
#define GK_TB 4
#define GK(x) d_##x##_256
#define d_isa_type_256 d_isa_type
#include "cpu/gemm_kernel.h"
#endif

/* 2 * rows sums and what multiplies them stay in registers: arm64 has 32 of them, SSE2 16 */
#if defined(__aarch64__)
#define BASELINE_ROWS 8
#else
#define BASELINE_ROWS 6
#endif

#ifndef __clang__
#undef GK_S4
#define GK_S4 F_S4
#endif
#define GK_ISA
#define GK_T float
#define GK_VB 16
#define GK_MR BASELINE_ROWS
#define GK_TB 4
#define GK(x) f_##x##_128
#define f_isa_type_128 f_isa_type
#include "cpu/gemm_kernel.h"

#define GK_ISA
#define GK_T double
#define GK_VB 16
#define GK_MR BASELINE_ROWS
#define GK_TB 2
#define GK(x) d_##x##_128
#define d_isa_type_128 d_isa_type
#include "cpu/gemm_kernel.h"

#if defined(__x86_64__)
#define PICK(p)                                                                                                   \
  (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") \
       ? &p##_isa_512                                                                                             \
   : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &p##_isa_256                               \
                                                                     : &p##_isa_128)
#else
#define PICK(p) (&p##_isa_128)
#endif
static const f_isa_type *f_pick(void) { return PICK(f); }
static const d_isa_type *d_pick(void) { return PICK(d); }

#define GD(x) f_##x
#define GD_T float
#define GD_KC 320
#define GD_MC 168
#define GD_NC 2048
#define GD_SMALL 16384
#include "cpu/gemm_drive.h"

#define GD(x) d_##x
#define GD_T double
#define GD_KC 256
#define GD_MC 112
#define GD_NC 1024
#define GD_SMALL 8192
#include "cpu/gemm_drive.h"

/* -- Entry ------------------------------------------------------------------- */

size_t amp__gemm_scratch(const amp_gemm *gemm, int dtype)
{
  return dtype == AMP_FLOAT64 ? d_scratch(gemm) : f_scratch(gemm);
}

void amp__gemm(const amp_gemm *gemm, int dtype, void *scratch)
{
  AMP_ASSERT(dtype == AMP_FLOAT32 || dtype == AMP_FLOAT64);
  AMP_ASSERT(!gemm->packed_b || (gemm->packed_k >= gemm->k && gemm->packed_n >= gemm->n));
  if (dtype == AMP_FLOAT64) d_run(gemm, scratch);
  else f_run(gemm, scratch);
}

size_t amp__gemm_packed_size(const amp_gemm *gemm, int dtype)
{
  return dtype == AMP_FLOAT64 ? d_packed_size(gemm) : f_packed_size(gemm);
}

void amp__gemm_pack_b(const amp_gemm *gemm, int dtype, void *dst)
{
  if (dtype == AMP_FLOAT64) d_pack_all(gemm, dst);
  else f_pack_all(gemm, dst);
}

void amp__gemm_pack_lines(int dtype, const void *const *lines, int n, int64_t kc, int width, void *dst)
{
  if (dtype == AMP_FLOAT64) d_pick()->pack_lines((const double *const *)lines, n, kc, width, dst);
  else f_pick()->pack_lines((const float *const *)lines, n, kc, width, dst);
}

typedef struct grid {
  const amp_gemm *gemm;
  int dtype, row_pieces, col_pieces;
  char *scratch;
  size_t each;
} grid;

static amp_gemm piece(const grid *p, int t)
{
  amp_gemm gemm = *p->gemm;
  int64_t size = amp__dtype_size[p->dtype];
  int64_t ri = t / p->col_pieces, rj = t % p->col_pieces;
  /* cuts between whole panels */
  int64_t mu = (gemm.m + 13) / 14, nu = (gemm.n + 31) / 32;
  int64_t i0 = mu * ri / p->row_pieces * 14, i1 = mu * (ri + 1) / p->row_pieces * 14, j0 = nu * rj / p->col_pieces * 32,
          j1 = nu * (rj + 1) / p->col_pieces * 32;
  if (i1 > gemm.m) i1 = gemm.m;
  if (j1 > gemm.n) j1 = gemm.n;
  if (gemm.pack_a) gemm.first_a += i0;
  else gemm.a = (const char *)gemm.a + i0 * gemm.ars * size;
  if (gemm.pack_b) gemm.first_b += j0;
  else gemm.b = (const char *)gemm.b + j0 * gemm.bcs * size;
  gemm.c = (char *)gemm.c + (i0 * gemm.crs + j0 * gemm.ccs) * size;
  if (gemm.bias) gemm.bias = (const char *)gemm.bias + (i0 * gemm.bias_rs + j0 * gemm.bias_cs) * size;
  gemm.m = i1 - i0;
  gemm.n = j1 - j0;
  return gemm;
}

static void grid_body(void *ctx, int64_t begin, int64_t end, int thread)
{
  grid *grid = ctx;
  for (int64_t t = begin; t < end; t++) {
    amp_gemm gemm = piece(grid, (int)t);
    if (gemm.m > 0 && gemm.n > 0) amp__gemm(&gemm, grid->dtype, grid->scratch + (size_t)thread * grid->each);
  }
}

int amp__gemm_threads(const amp_gemm *gemm, int dtype, int threads)
{
  char small[48 << 10] __attribute__((aligned(64)));
  amp__scratch scratch;
  AMP_ASSERT(threads <= 1 || !gemm->packed_b);
  if (threads <= 1) {
    if (!amp__scratch_lend(&scratch, small, sizeof small, amp__gemm_scratch(gemm, dtype))) return AMP_E_MEMORY;
    amp__gemm(gemm, dtype, scratch.p);
    amp__scratch_return(&scratch);
    return 0;
  }
  grid grid = { gemm, dtype, 1, 1, NULL, 0 };
  /* the squarest grid wastes the least packing */
  double best = 1e300;
  for (int row_pieces = 1; row_pieces <= threads; row_pieces++) {
    if (threads % row_pieces) continue;
    int col_pieces = threads / row_pieces;
    double cost = (double)((gemm->m + 13) / 14 + row_pieces - 1) / row_pieces
                      * ((double)((gemm->n + 31) / 32 + col_pieces - 1) / col_pieces)
                  + 0.05 * ((double)gemm->m / 14 / row_pieces + (double)gemm->n / 32 / col_pieces);
    if (cost < best) {
      best = cost;
      grid.row_pieces = row_pieces;
      grid.col_pieces = col_pieces;
    }
  }
  for (int t = 0; t < threads; t++) {
    amp_gemm q = piece(&grid, t);
    size_t b = amp__gemm_scratch(&q, dtype);
    if (b > grid.each) grid.each = b;
  }
  grid.each = (grid.each + 4095) / 4096 * 4096;
  if (!amp__scratch_lend(&scratch, small, sizeof small, grid.each * (size_t)threads)) return AMP_E_MEMORY;
  grid.scratch = scratch.p;
  amp__parallel_ranges(threads, threads, grid_body, &grid);
  amp__scratch_return(&scratch);
  return 0;
}

/* -- Integers: exact and wrapping, by rows ------------------------------------ */

#define INT_ROWS(T, U)                                                              \
  for (int64_t i = 0; i < g->m; i++)                                                \
    for (int64_t j = 0; j < g->n; j++) {                                            \
      const T *a = (const T *)g->a + i * g->ars, *b = (const T *)g->b + j * g->bcs; \
      U s = 0;                                                                      \
      for (int64_t p = 0; p < g->k; p++) s += (U)a[p * g->acs] * (U)b[p * g->brs];  \
      ((T *)g->c)[i * g->crs + j * g->ccs] = (T)s;                                  \
    }

void amp__gemm_int(const amp_gemm *g, int dtype)
{
  switch (dtype) {
  case AMP_INT64: INT_ROWS(int64_t, uint64_t) break;
  case AMP_INT32: INT_ROWS(int32_t, uint32_t) break;
  case AMP_INT16: INT_ROWS(int16_t, uint32_t) break;
  case AMP_INT8: INT_ROWS(int8_t, uint32_t) break;
  default: INT_ROWS(uint8_t, uint32_t)
  }
}
