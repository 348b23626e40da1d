/*
** ops/conv/conv_sums.h: the kernel of the gradient in the weight for one vector
** width; included once for each by ops/conv/conv_sums.c.
**
**   SV_T   element type (float, or uint16_t: bfloat16)   SV_B   bytes of a vector
**   SV_M, SV_N   rows of the gradient and lines of the copy that are multiplied at once
**   SV_MUL(s, a, b): s + a * b   SV_ISA target   SV(x) name of x in this instance
*/

typedef float SV(vec) __attribute__((vector_size(SV_B), aligned(4), may_alias));
typedef SV_T SV(line) __attribute__((vector_size(SV_B), aligned(2), may_alias));
#define SV_L ((int)(SV_B / sizeof(SV_T)))

/* sum[i * ss + j] += the sum over n vectors of g[i * gs ..] * x[off[j] ..]. Inlined with a constant number of rows: s
** lies in registers. */
AMP_INLINE SV_ISA void SV(sums)(const int rows, int64_t n, const SV_T *g, int64_t gs, const SV_T *copy,
                                const int32_t *off, float *sum, int64_t ss)
{
  const SV_T *x[SV_N];
  SV(vec) s[SV_M][SV_N];
#pragma GCC unroll 8
  for (int j = 0; j < SV_N; j++) x[j] = copy + off[j];
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
    for (int j = 0; j < SV_N; j++) s[i][j] = (SV(vec)){ 0 };
  for (int64_t p = 0; p < n * SV_L; p += SV_L) {
    SV(line) a[SV_M];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) a[i] = *(const SV(line) *)(g + i * gs + p);
#pragma GCC unroll 8
    for (int j = 0; j < SV_N; j++) {
      SV(line) b = *(const SV(line) *)(x[j] + p);
#pragma GCC unroll 8
      for (int i = 0; i < rows; i++) s[i][j] = SV_MUL(s[i][j], a[i], b);
    }
  }
  float t[SV_M * SV_N][SV_B / 4];
#pragma GCC unroll 8
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
    for (int j = 0; j < SV_N; j++) *(SV(vec) *)t[i * SV_N + j] = s[i][j];
  for (int i = 0; i < rows * SV_N; i++) {
    float *q = t[i];
#pragma GCC unroll 4
    for (int w = SV_B / 8; w > 4; w /= 2)
      for (int k = 0; k < w; k += 4) *(quad *)(q + k) += *(quad *)(q + k + w);
    quad r = *(quad *)q;
    if (SV_B > 16) r += *(quad *)(q + 4);
    sum[i / SV_N * ss + i % SV_N] += (r[0] + r[1]) + (r[2] + r[3]);
  }
}

#define SV_KERNEL(ROWS)                                                                                       \
  SV_ISA static void SV(sums_##ROWS)(int64_t n, const void *g, int64_t gs, const void *x, const int32_t *off, \
                                     float *sum, int64_t ss)                                                  \
  {                                                                                                           \
    SV(sums)(ROWS, n, g, gs, x, off, sum, ss);                                                                \
  }
SV_KERNEL(1)
SV_KERNEL(2)
#if SV_M == 4
SV_KERNEL(4)
#endif

/* clang-format off */
static const sums_isa SV(isa) = {
  SV_M, SV_N, SV_L,
  { SV(sums_1), SV(sums_2),
#if SV_M == 4
    SV(sums_4)
#endif
  }
};
/* clang-format on */

#undef SV_T
#undef SV_B
#undef SV_M
#undef SV_N
#undef SV_L
#undef SV_ISA
#undef SV_MUL
#undef SV_KERNEL
#undef SV
