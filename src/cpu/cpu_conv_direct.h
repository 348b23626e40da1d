/*
** cpu_conv_direct.h: kernels of the direct convolution for one vector width;
** included once for each by cpu_conv_direct.c.
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

#define DV_KERNEL(M)                                                                                \
  DV_ISA static void DV(kernel_##M)(int64_t n, const void *a_, const void *b_, const int32_t *off, float *c, int64_t ldc) { \
    const DV_T *a = a_, *b = b_;                                                                    \
    DV(vec) s[M][2];                                                                                \
    _Pragma("GCC unroll 16") for (int i = 0; i < M; i++) s[i][0] = s[i][1] = (DV(vec)){0};          \
    for (int64_t p = 0; p < n; p++, a += M) {                                                       \
      const DV_T *q = b + off[p];                                                                   \
      DV(line) v0 = *(const DV(line) *)q, v1 = *(const DV(line) *)(q + DV_N);                       \
      _Pragma("GCC unroll 16") for (int i = 0; i < M; i++) {                                        \
        s[i][0] = DV_MUL(s[i][0], a[i], v0);                                                        \
        s[i][1] = DV_MUL(s[i][1], a[i], v1);                                                        \
      }                                                                                             \
    }                                                                                               \
    _Pragma("GCC unroll 16") for (int i = 0; i < M; i++) {                                          \
      *(DV(vec) *)(c + i * ldc) = s[i][0];                                                          \
      *(DV(vec) *)(c + i * ldc + DV_N) = s[i][1];                                                   \
    }                                                                                               \
  }
DV_KERNEL(1) DV_KERNEL(2) DV_KERNEL(3) DV_KERNEL(4) DV_KERNEL(5) DV_KERNEL(6)
#if DV_M > 6
DV_KERNEL(7) DV_KERNEL(8) DV_KERNEL(9) DV_KERNEL(10) DV_KERNEL(11) DV_KERNEL(12) DV_KERNEL(13) DV_KERNEL(14)
#endif

static const direct_isa DV(isa) = {
  DV_M, 2 * DV_N,
  { DV(kernel_1), DV(kernel_2), DV(kernel_3), DV(kernel_4), DV(kernel_5), DV(kernel_6),
#if DV_M > 6
    DV(kernel_7), DV(kernel_8), DV(kernel_9), DV(kernel_10), DV(kernel_11), DV(kernel_12), DV(kernel_13), DV(kernel_14)
#endif
  }
};

#undef DV_T
#undef DV_B
#undef DV_N
#undef DV_ISA
#undef DV_M
#undef DV_MUL
#undef DV_KERNEL
#undef DV
