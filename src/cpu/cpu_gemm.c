/*
** cpu_gemm.c: blocked matrix product for float32 and float64 (cpu_gemm.h).
**
** The kernels of cpu_gemm_kernel.h are built three times on x86-64 (AVX-512,
** AVX2 with FMA, baseline) and once elsewhere (16-byte vectors: NEON); the
** processor picks at run time. Threads share nothing: C is cut into a grid of
** products of their own, each packing what it needs.
*/
#include "cpu_gemm.h"
#include "cpu_nn.h"

#if defined(__clang__)
#define GK_S8(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define GK_S4 GK_S8
#define GK_S2 GK_S8
#else
typedef int gk_i8 __attribute__((vector_size(32)));
typedef int gk_i4 __attribute__((vector_size(16)));
typedef int64_t gk_l4 __attribute__((vector_size(32)));
typedef int64_t gk_l2 __attribute__((vector_size(16)));
#define GK_S8(a, b, ...) __builtin_shuffle(a, b, (gk_i8){__VA_ARGS__})
#define GK_S2(a, b, ...) __builtin_shuffle(a, b, (gk_l2){__VA_ARGS__})
#endif

#define GK_TYPE(T, name)                                                                            \
  typedef struct name {                                                                             \
    int mr, nr, v, classes, size[5];                                                                \
    void (*kern[2][2][5])(int64_t kc, const T *a, int64_t ars, int64_t acs, const T *b, int64_t ldb, T *c, int64_t ldc, int add); \
    void (*pack)(const T *src, int64_t rs, int64_t cs, int64_t lines, int64_t kc, int width, T *dst); \
    void (*pack_lines)(const T *const *lines, int n, int64_t kc, int width, T *dst);                \
    void (*dots)(int64_t m, int64_t k, const T *a, int64_t ars, const T *x, T *y, int64_t ys);      \
    void (*rows)(int64_t n, int64_t k, const T *x, int64_t xs, const T *b, int64_t brs, T *y);      \
  } name;
GK_TYPE(float, f_isa_type)
GK_TYPE(double, d_isa_type)
#undef GK_TYPE

/* -- Instances -------------------------------------------------------------- */

#define F_S4(a, b, ...) __builtin_shuffle(a, b, (gk_i4){__VA_ARGS__})
#define D_S4(a, b, ...) __builtin_shuffle(a, b, (gk_l4){__VA_ARGS__})

#if defined(__x86_64__)
#define GK_ISA __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
#define GK_T float
#define GK_VB 64
#define GK_MR 14
#define GK_TB 8
#define GK(x) f_##x##_512
#define f_isa_type_512 f_isa_type
#include "cpu_gemm_kernel.h"

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
#include "cpu_gemm_kernel.h"

#define GK_ISA __attribute__((target("avx2,fma")))
#define GK_T float
#define GK_VB 32
#define GK_MR 6
#define GK_TB 8
#define GK(x) f_##x##_256
#define f_isa_type_256 f_isa_type
#include "cpu_gemm_kernel.h"

#define GK_ISA __attribute__((target("avx2,fma")))
#define GK_T double
#define GK_VB 32
#define GK_MR 6
#define GK_TB 4
#define GK(x) d_##x##_256
#define d_isa_type_256 d_isa_type
#include "cpu_gemm_kernel.h"
#endif

#ifndef __clang__
#undef GK_S4
#define GK_S4 F_S4
#endif
#define GK_ISA
#define GK_T float
#define GK_VB 16
#define GK_MR 6
#define GK_TB 4
#define GK(x) f_##x##_128
#define f_isa_type_128 f_isa_type
#include "cpu_gemm_kernel.h"

#define GK_ISA
#define GK_T double
#define GK_VB 16
#define GK_MR 6
#define GK_TB 2
#define GK(x) d_##x##_128
#define d_isa_type_128 d_isa_type
#include "cpu_gemm_kernel.h"

#if defined(__x86_64__)
#define PICK(p) (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") \
                 ? &p##_isa_512 : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &p##_isa_256 : &p##_isa_128)
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
#include "cpu_gemm_drive.h"

#define GD(x) d_##x
#define GD_T double
#define GD_KC 256
#define GD_MC 112
#define GD_NC 1024
#define GD_SMALL 8192
#include "cpu_gemm_drive.h"

/* -- Entry ------------------------------------------------------------------- */

size_t amp__gemm_scratch(const amp_gemm *g, int dtype) { return dtype == AMP_FLOAT64 ? d_scratch(g) : f_scratch(g); }

void amp__gemm(const amp_gemm *g, int dtype, void *scratch) {
  if (dtype == AMP_FLOAT64) d_run(g, scratch);
  else f_run(g, scratch);
}

size_t amp__gemm_packed_size(const amp_gemm *g, int dtype) { return dtype == AMP_FLOAT64 ? d_packed_size(g) : f_packed_size(g); }

void amp__gemm_pack_b(const amp_gemm *g, int dtype, void *dst) {
  if (dtype == AMP_FLOAT64) d_pack_all(g, dst);
  else f_pack_all(g, dst);
}

void amp__gemm_pack_lines(int dtype, const void *const *lines, int n, int64_t kc, int width, void *dst) {
  if (dtype == AMP_FLOAT64) d_pick()->pack_lines((const double *const *)lines, n, kc, width, dst);
  else f_pick()->pack_lines((const float *const *)lines, n, kc, width, dst);
}

typedef struct grid { const amp_gemm *g; int dtype, tm, tn; char *scratch; size_t each; } grid;

static amp_gemm piece(const grid *p, int t) {
  amp_gemm g = *p->g;
  int64_t size = amp__dtype_size[p->dtype];
  int64_t ri = t / p->tn, rj = t % p->tn;
  /* cuts between whole panels */
  int64_t mu = (g.m + 13) / 14, nu = (g.n + 31) / 32;
  int64_t i0 = mu * ri / p->tm * 14, i1 = mu * (ri + 1) / p->tm * 14, j0 = nu * rj / p->tn * 32, j1 = nu * (rj + 1) / p->tn * 32;
  if (i1 > g.m) i1 = g.m;
  if (j1 > g.n) j1 = g.n;
  if (g.pack_a) g.first_a += i0;
  else g.a = (const char *)g.a + i0 * g.ars * size;
  if (g.pack_b) g.first_b += j0;
  else g.b = (const char *)g.b + j0 * g.bcs * size;
  g.c = (char *)g.c + (i0 * g.crs + j0 * g.ccs) * size;
  if (g.bias) g.bias = (const char *)g.bias + (i0 * g.bias_rs + j0 * g.bias_cs) * size;
  g.m = i1 - i0;
  g.n = j1 - j0;
  return g;
}

static void grid_body(void *ctx, int64_t begin, int64_t end, int thread) {
  grid *p = ctx;
  for (int64_t t = begin; t < end; t++) {
    amp_gemm g = piece(p, (int)t);
    if (g.m > 0 && g.n > 0) amp__gemm(&g, p->dtype, p->scratch + (size_t)thread * p->each);
  }
}

int amp__gemm_threads(const amp_gemm *g, int dtype, int threads) {
  char small[48 << 10] __attribute__((aligned(64)));
  amp__nn_scratch s;
  if (threads <= 1) {
    if (!amp__nn_lend(&s, small, sizeof small, amp__gemm_scratch(g, dtype))) return AMP_E_MEMORY;
    amp__gemm(g, dtype, s.p);
    amp__nn_give(&s);
    return 0;
  }
  grid p = {g, dtype, 1, 1, NULL, 0};
  /* the squarest grid wastes the least packing */
  double best = 1e300;
  for (int tm = 1; tm <= threads; tm++) {
    if (threads % tm) continue;
    int tn = threads / tm;
    double cost = (double)((g->m + 13) / 14 + tm - 1) / tm * ((double)((g->n + 31) / 32 + tn - 1) / tn)
                  + 0.05 * ((double)g->m / 14 / tm + (double)g->n / 32 / tn);
    if (cost < best) { best = cost; p.tm = tm; p.tn = tn; }
  }
  for (int t = 0; t < threads; t++) {
    amp_gemm q = piece(&p, t);
    size_t b = amp__gemm_scratch(&q, dtype);
    if (b > p.each) p.each = b;
  }
  p.each = (p.each + 4095) / 4096 * 4096;
  if (!amp__nn_lend(&s, small, sizeof small, p.each * (size_t)threads)) return AMP_E_MEMORY;
  p.scratch = s.p;
  amp__nn_par(threads, threads, grid_body, &p);
  amp__nn_give(&s);
  return 0;
}

/* -- Integers: exact and wrapping, by rows ------------------------------------ */

#define INT_ROWS(T, U)                                                                              \
  {                                                                                                 \
    const T *a = g->a, *b = g->b;                                                                   \
    T *c = g->c;                                                                                    \
    for (int64_t i = 0; i < g->m; i++)                                                              \
      for (int64_t j = 0; j < g->n; j++) {                                                          \
        U s = 0;                                                                                    \
        for (int64_t p = 0; p < g->k; p++) s += (U)a[i * g->ars + p * g->acs] * (U)b[p * g->brs + j * g->bcs]; \
        c[i * g->crs + j * g->ccs] = (T)s;                                                          \
      }                                                                                             \
  }                                                                                                 \
  break;

void amp__gemm_int(const amp_gemm *g, int dtype) {
  switch (dtype) {
  case AMP_INT64: INT_ROWS(int64_t, uint64_t)
  case AMP_INT32: INT_ROWS(int32_t, uint32_t)
  case AMP_INT16: INT_ROWS(int16_t, uint32_t)
  case AMP_INT8: INT_ROWS(int8_t, uint32_t)
  default: INT_ROWS(uint8_t, uint32_t)
  }
}
