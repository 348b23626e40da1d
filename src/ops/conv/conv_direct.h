/*
** ops/conv/conv_direct.h: kernels of the direct convolution for one vector width;
** included once for each by ops/conv/conv_direct.c.
**
**   DV_T   element type of A and B   DV_B   bytes of a vector   DV_ISA target
**   DV_M   most rows                 DV(x)  name of x in this instance
**   DV_MUL(s, a, v): s + a * v for one element of A and a vector of B
**
** A kernel keeps M x 2 vectors of the result and runs down k, whose line of B
** begins at b + off[k]. A is packed M wide.
*/

typedef float DV(vec) __attribute__((vector_size(DV_B), aligned(4), may_alias));
typedef DV_T DV(line) __attribute__((vector_size(DV_B), aligned(4), may_alias));
#define DV_N ((int)(DV_B / 4))

/* Inlined with a constant number of rows: `sum` lies in registers. */
AMP_INLINE DV_ISA void DV(kernel)(const int rows, int64_t n, const DV_T *weight, const DV_T *copy, const int32_t *off,
                                  float *out, int64_t ldc)
{
  DV(vec) sum[DV_M][2];
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++) sum[i][0] = sum[i][1] = (DV(vec)){ 0 };
  for (int64_t p = 0; p < n; p++, weight += rows) {
    const DV_T *q = copy + off[p];
    DV(line) v0 = *(const DV(line) *)q, v1 = *(const DV(line) *)(q + DV_N);
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
      sum[i][0] = DV_MUL(sum[i][0], weight[i], v0);
      sum[i][1] = DV_MUL(sum[i][1], weight[i], v1);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++) {
    *(DV(vec) *)(out + i * ldc) = sum[i][0];
    *(DV(vec) *)(out + i * ldc + DV_N) = sum[i][1];
  }
}

#define DV_KERNEL(ROWS)                                                                                       \
  DV_ISA static void DV(kernel_##ROWS)(int64_t n, const void *a, const void *b, const int32_t *off, float *c, \
                                       int64_t ldc)                                                           \
  {                                                                                                           \
    DV(kernel)(ROWS, n, a, b, off, c, ldc);                                                                   \
  }
/* clang-format off */
DV_KERNEL(1) DV_KERNEL(2) DV_KERNEL(3) DV_KERNEL(4) DV_KERNEL(5) DV_KERNEL(6)
#if DV_M > 6
DV_KERNEL(7) DV_KERNEL(8) DV_KERNEL(9) DV_KERNEL(10) DV_KERNEL(11) DV_KERNEL(12) DV_KERNEL(13) DV_KERNEL(14)
#endif

static const direct_isa DV(isa) = {
  DV_M, 2 * DV_N,
  { DV(kernel_1), DV(kernel_2), DV(kernel_3), DV(kernel_4), DV(kernel_5), DV(kernel_6),
#if DV_M > 6
    DV(kernel_7), DV(kernel_8), DV(kernel_9), DV(kernel_10), DV(kernel_11), DV(kernel_12), DV(kernel_13),
    DV(kernel_14)
#endif
  }
};
/* clang-format on */

#undef DV_T
#undef DV_B
#undef DV_N
#undef DV_ISA
#undef DV_M
#undef DV_MUL
#undef DV_KERNEL
#undef DV
