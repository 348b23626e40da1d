/*
** ops/rnn/rnn_product.c: A B with a B that is packed once and used at each step.
**
** float32 and float64 go to cpu/gemm.c. bfloat16 has a kernel of its own where
** the processor has AVX512_BF16, which multiplies pairs along k and adds them in
** float32; B is packed in panels of 64 columns:
**
**   packed[panel][k / 2][64][2]     (zeros past the last column and an odd last k)
**
** On other processors the caller widens bfloat16 to float32.
*/
#include "ops/rnn/rnn.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define RNN_BF16 1
#include <immintrin.h>
#endif

enum { PANEL = 64, MOST_ROWS = 6, MOST_VECTORS = PANEL / 16 };

static int64_t panels(int64_t n) { return (n + PANEL - 1) / PANEL; }

static amp_gemm gemm_of(const rnn_weight *weight, int64_t rows)
{
  amp_gemm gemm = { .m = rows,
                    .n = weight->rows,
                    .k = weight->cols,
                    .acs = 1,
                    .ars = weight->cols,
                    .ccs = 1,
                    .crs = weight->rows,
                    .packed_b = weight->packed ? weight->packed : weight,
                    .packed_k = weight->cols,
                    .packed_n = weight->rows };
  return gemm;
}

size_t amp__rnn_packed(const rnn_weight *weight)
{
  if (weight->op == AMP_BFLOAT16) return (size_t)(panels(weight->rows) * ((weight->cols + 1) / 2)) * PANEL * 4 + 64;
  amp_gemm gemm = gemm_of(weight, 1);
  return amp__gemm_packed_size(&gemm, weight->type);
}

size_t amp__rnn_gemm(const rnn_weight *weight, int64_t rows)
{
  if (weight->op == AMP_BFLOAT16 || rows < 1) return 0;
  amp_gemm gemm = gemm_of(weight, rows);
  return amp__gemm_scratch(&gemm, weight->type);
}

#ifdef RNN_BF16

#define BF16_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

bool amp__rnn_bf16(void) { return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw"); }

static void pack_bf16(const rnn_weight *w, const uint16_t *src, int64_t ks, int64_t ns, uint16_t *dst)
{
  for (int64_t p = 0; p < panels(w->rows); p++)
    for (int64_t k = 0; k < w->cols; k += 2, dst += PANEL * 2)
      for (int64_t j = 0; j < PANEL; j++) {
        int64_t c = p * PANEL + j;
        const uint16_t *s = src + c * ns + k * ks;
        dst[j * 2] = c < w->rows ? *s : 0;
        dst[j * 2 + 1] = c < w->rows && k + 1 < w->cols ? s[ks] : 0;
      }
}

/* Rows against vectors of 16 columns of a panel; the last vector has the lanes of `mask`. Inlined with constant numbers
** of both: s lies in registers. */
AMP_INLINE BF16_TARGET void bf16_kernel(const int rows, const int vectors, int64_t k, const uint16_t *a, int64_t ars,
                                        const uint16_t *b, float *c, int64_t crs, bool add, const float *bias,
                                        __mmask16 mask)
{
  __m512 s[MOST_ROWS][MOST_VECTORS];
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      __mmask16 q = v == vectors - 1 ? mask : 0xffff;
      s[i][v] = add    ? _mm512_maskz_loadu_ps(q, c + i * crs + v * 16)
                : bias ? _mm512_maskz_loadu_ps(q, bias + v * 16)
                       : _mm512_setzero_ps();
    }
  for (int64_t p = 0; p + 1 < k; p += 2, b += PANEL * 2) {
    __m512i y[MOST_VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) y[v] = _mm512_loadu_si512(b + v * 32);
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
      int32_t pair;
      memcpy(&pair, a + i * ars + p, sizeof pair);
      __m512i x = _mm512_set1_epi32(pair);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) s[i][v] = _mm512_dpbf16_ps(s[i][v], (__m512bh)x, (__m512bh)y[v]);
    }
  }
  if (k & 1)
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
      __m512i x = _mm512_set1_epi32(a[i * ars + k - 1]);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++)
        s[i][v] = _mm512_dpbf16_ps(s[i][v], (__m512bh)x, (__m512bh)_mm512_loadu_si512(b + v * 32));
    }
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
      _mm512_mask_storeu_ps(c + i * crs + v * 16, v == vectors - 1 ? mask : 0xffff, s[i][v]);
}

#define BF16_KERNEL(R, V)                                                                                        \
  BF16_TARGET static void bf16_##R##_##V(int64_t k, const uint16_t *a, int64_t ars, const uint16_t *b, float *c, \
                                         int64_t crs, bool add, const float *bias, __mmask16 mask)               \
  {                                                                                                              \
    bf16_kernel(R, V, k, a, ars, b, c, crs, add, bias, mask);                                                    \
  }
/* clang-format off */
#define BF16_ROWS(V) BF16_KERNEL(6, V) BF16_KERNEL(4, V) BF16_KERNEL(2, V) BF16_KERNEL(1, V)
BF16_ROWS(4) BF16_ROWS(3) BF16_ROWS(2) BF16_ROWS(1)
    /* clang-format on */

    typedef void (*bf16_fn)(int64_t, const uint16_t *, int64_t, const uint16_t *, float *, int64_t, bool, const float *,
                            __mmask16);
#define BF16_SET(V)                                \
  {                                                \
    bf16_6_##V, bf16_4_##V, bf16_2_##V, bf16_1_##V \
  }
static const bf16_fn bf16[4][4] = { BF16_SET(1), BF16_SET(2), BF16_SET(3), BF16_SET(4) };

static void product_bf16(const rnn_weight *w, int64_t m, const uint16_t *a, int64_t ars, float *c, int64_t crs,
                         bool add, const float *bias)
{
  static const int64_t size[4] = { 6, 4, 2, 1 };
  const uint16_t *b = w->packed;
  /* blocks of rows that stay in the cache while every panel passes */
  for (int64_t i0 = 0; i0 < m; i0 += 96)
    for (int64_t p = 0; p < panels(w->rows); p++) {
      int64_t cols = w->rows - p * PANEL < PANEL ? w->rows - p * PANEL : PANEL, v = (cols + 15) / 16,
              end = i0 + 96 < m ? i0 + 96 : m;
      __mmask16 mask = (__mmask16)(0xffff >> (v * 16 - cols));
      const uint16_t *panel = b + p * ((w->cols + 1) / 2) * PANEL * 2;
      for (int64_t i = i0, f = 0; i < end; i += size[f]) {
        while (size[f] > end - i) f++;
        bf16[v - 1][f](w->cols, a + i * ars, ars, panel, c + i * crs + p * PANEL, crs, add,
                       bias ? bias + p * PANEL : NULL, mask);
      }
    }
}

#else

bool amp__rnn_bf16(void) { return false; }
static void pack_bf16(const rnn_weight *weight, const uint16_t *src, int64_t ks, int64_t ns, uint16_t *dst) {}
static void product_bf16(const rnn_weight *weight, int64_t rows, const uint16_t *a, int64_t ars, float *c, int64_t crs,
                         bool add, const float *bias)
{
}

#endif

void amp__rnn_pack(rnn_weight *weight, const void *src, int64_t ks, int64_t ns, void *dst)
{
  weight->packed = dst;
  if (weight->op == AMP_BFLOAT16) {
    pack_bf16(weight, src, ks, ns, dst);
    return;
  }
  amp_gemm gemm = { .n = weight->rows, .k = weight->cols, .b = src, .brs = ks, .bcs = ns };
  amp__gemm_pack_b(&gemm, weight->type, dst);
}

void amp__rnn_product(const rnn_weight *weight, int64_t rows, const void *a, int64_t ars, void *c, int64_t crs,
                      bool add, const void *bias, void *scratch)
{
  if (rows <= 0 || weight->rows == 0) return;
  if (weight->op == AMP_BFLOAT16) {
    product_bf16(weight, rows, a, ars, c, crs, add, bias);
    return;
  }
  amp_gemm gemm = gemm_of(weight, rows);
  gemm.a = a;
  gemm.ars = ars;
  gemm.c = c;
  gemm.crs = crs;
  gemm.accumulate = add;
  gemm.bias = bias;
  gemm.bias_cs = 1;
  amp__gemm(&gemm, weight->type, scratch);
}
