/*
** cpu_rnn_product.c: A B with a B that is packed once and used at each step.
**
** float32 and float64 go to cpu_gemm.c. bfloat16 has a kernel of its own where
** the processor has AVX512_BF16, which multiplies pairs along k and adds them in
** float32; B is packed in panels of 64 columns:
**
**   packed[panel][k / 2][64][2]     (zeros past the last column and an odd last k)
**
** On other processors the caller widens bfloat16 to float32.
*/
#include "cpu_rnn.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define RNN_BF16 1
#include <immintrin.h>
#endif

enum { PANEL = 64 };

static int64_t panels(int64_t n) { return (n + PANEL - 1) / PANEL; }

static amp_gemm gemm_of(const rnn_weight *w, int64_t m) {
  amp_gemm g = {.m = m, .n = w->n, .k = w->k, .acs = 1, .ars = w->k, .ccs = 1, .crs = w->n,
                .packed_b = w->packed ? w->packed : w, .packed_k = w->k, .packed_n = w->n};
  return g;
}

size_t amp__rnn_packed(const rnn_weight *w) {
  if (w->op == AMP_BFLOAT16) return (size_t)(panels(w->n) * ((w->k + 1) / 2)) * PANEL * 4 + 64;
  amp_gemm g = gemm_of(w, 1);
  return amp__gemm_packed_size(&g, w->type);
}

size_t amp__rnn_gemm(const rnn_weight *w, int64_t m) {
  if (w->op == AMP_BFLOAT16 || m < 1) return 0;
  amp_gemm g = gemm_of(w, m);
  return amp__gemm_scratch(&g, w->type);
}

#ifdef RNN_BF16

#define BF16_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

bool amp__rnn_bf16(void) { return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw"); }

static void pack_bf16(const rnn_weight *w, const uint16_t *src, int64_t ks, int64_t ns, uint16_t *dst) {
  for (int64_t p = 0; p < panels(w->n); p++)
    for (int64_t k = 0; k < w->k; k += 2, dst += PANEL * 2)
      for (int64_t j = 0; j < PANEL; j++) {
        int64_t c = p * PANEL + j;
        const uint16_t *s = src + c * ns + k * ks;
        dst[j * 2] = c < w->n ? *s : 0;
        dst[j * 2 + 1] = c < w->n && k + 1 < w->k ? s[ks] : 0;
      }
}

/* R rows against V vectors of 16 columns of a panel; the last vector has the lanes of `mask` */
#define BF16_KERNEL(R, V)                                                                           \
  BF16_TARGET static void bf16_##R##_##V(int64_t k, const uint16_t *a, int64_t ars, const uint16_t *b, float *c, int64_t crs, bool add, \
                                         const float *bias, __mmask16 mask) {                       \
    __m512 s[R][V];                                                                                 \
    _Pragma("GCC unroll 8") for (int i = 0; i < R; i++)                                             \
      _Pragma("GCC unroll 4") for (int v = 0; v < V; v++) {                                         \
        __mmask16 q = v == V - 1 ? mask : 0xffff;                                                   \
        s[i][v] = add ? _mm512_maskz_loadu_ps(q, c + i * crs + v * 16) : bias ? _mm512_maskz_loadu_ps(q, bias + v * 16) : _mm512_setzero_ps(); \
      }                                                                                             \
    for (int64_t p = 0; p + 1 < k; p += 2, b += PANEL * 2) {                                        \
      __m512i y[V];                                                                                 \
      _Pragma("GCC unroll 4") for (int v = 0; v < V; v++) y[v] = _mm512_loadu_si512(b + v * 32);    \
      _Pragma("GCC unroll 8") for (int i = 0; i < R; i++) {                                         \
        int32_t pair;                                                                               \
        memcpy(&pair, a + i * ars + p, sizeof pair);                                                \
        __m512i x = _mm512_set1_epi32(pair);                                                        \
        _Pragma("GCC unroll 4") for (int v = 0; v < V; v++) s[i][v] = _mm512_dpbf16_ps(s[i][v], (__m512bh)x, (__m512bh)y[v]); \
      }                                                                                             \
    }                                                                                               \
    if (k & 1)                                                                                      \
      _Pragma("GCC unroll 8") for (int i = 0; i < R; i++) {                                         \
        __m512i x = _mm512_set1_epi32(a[i * ars + k - 1]);                                          \
        _Pragma("GCC unroll 4") for (int v = 0; v < V; v++)                                         \
          s[i][v] = _mm512_dpbf16_ps(s[i][v], (__m512bh)x, (__m512bh)_mm512_loadu_si512(b + v * 32)); \
      }                                                                                             \
    _Pragma("GCC unroll 8") for (int i = 0; i < R; i++)                                             \
      _Pragma("GCC unroll 4") for (int v = 0; v < V; v++)                                           \
        _mm512_mask_storeu_ps(c + i * crs + v * 16, v == V - 1 ? mask : 0xffff, s[i][v]);           \
  }
#define BF16_ROWS(V) BF16_KERNEL(6, V) BF16_KERNEL(4, V) BF16_KERNEL(2, V) BF16_KERNEL(1, V)
BF16_ROWS(4) BF16_ROWS(3) BF16_ROWS(2) BF16_ROWS(1)

typedef void (*bf16_fn)(int64_t, const uint16_t *, int64_t, const uint16_t *, float *, int64_t, bool, const float *, __mmask16);
#define BF16_SET(V) {bf16_6_##V, bf16_4_##V, bf16_2_##V, bf16_1_##V}
static const bf16_fn bf16[4][4] = {BF16_SET(1), BF16_SET(2), BF16_SET(3), BF16_SET(4)};

static void product_bf16(const rnn_weight *w, int64_t m, const uint16_t *a, int64_t ars, float *c, int64_t crs, bool add, const float *bias) {
  static const int64_t size[4] = {6, 4, 2, 1};
  const uint16_t *b = w->packed;
  /* blocks of rows that stay in the cache while every panel passes */
  for (int64_t i0 = 0; i0 < m; i0 += 96)
    for (int64_t p = 0; p < panels(w->n); p++) {
      int64_t cols = w->n - p * PANEL < PANEL ? w->n - p * PANEL : PANEL, v = (cols + 15) / 16, end = i0 + 96 < m ? i0 + 96 : m;
      __mmask16 mask = (__mmask16)(0xffff >> (v * 16 - cols));
      const uint16_t *panel = b + p * ((w->k + 1) / 2) * PANEL * 2;
      for (int64_t i = i0, f = 0; i < end; i += size[f]) {
        while (size[f] > end - i) f++;
        bf16[v - 1][f](w->k, a + i * ars, ars, panel, c + i * crs + p * PANEL, crs, add, bias ? bias + p * PANEL : NULL, mask);
      }
    }
}

#else

bool amp__rnn_bf16(void) { return false; }
static void pack_bf16(const rnn_weight *w, const uint16_t *src, int64_t ks, int64_t ns, uint16_t *dst) {}
static void product_bf16(const rnn_weight *w, int64_t m, const uint16_t *a, int64_t ars, float *c, int64_t crs, bool add, const float *bias) {}

#endif

void amp__rnn_pack(rnn_weight *w, const void *src, int64_t ks, int64_t ns, void *dst) {
  w->packed = dst;
  if (w->op == AMP_BFLOAT16) { pack_bf16(w, src, ks, ns, dst); return; }
  amp_gemm g = {.n = w->n, .k = w->k, .b = src, .brs = ks, .bcs = ns};
  amp__gemm_pack_b(&g, w->type, dst);
}

void amp__rnn_product(const rnn_weight *w, int64_t m, const void *a, int64_t ars, void *c, int64_t crs, bool add, const void *bias, void *scratch) {
  if (m <= 0 || w->n == 0) return;
  if (w->op == AMP_BFLOAT16) { product_bf16(w, m, a, ars, c, crs, add, bias); return; }
  amp_gemm g = gemm_of(w, m);
  g.a = a;
  g.ars = ars;
  g.c = c;
  g.crs = crs;
  g.accumulate = add;
  g.bias = bias;
  g.bias_cs = 1;
  amp__gemm(&g, w->type, scratch);
}
