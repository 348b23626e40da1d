/*
** cpu_gemm_kernel.h: register kernels and packers of the GEMM for one element
** type and one vector width; included once for each by cpu_gemm.c.
**
**   GK_T     float or double        GK_VB   bytes of a vector
**   GK_MR    rows of the largest kernel; a packed panel of A is that wide
**   GK_TB    side of the transposing block: 8, 4 or 2
**   GK_ISA   target attribute       GK(x)   name of x in this instance
**
** A kernel keeps M x NV vectors of C in registers and runs down k; M is 1, 2, 4,
** 8 or GK_MR, NV 1 or 2, so any number of rows is made of exact kernels and
** only the last columns go through a small buffer. A may lie unpacked, which
** saves small products the packing.
*/

typedef GK_T GK(vec) __attribute__((vector_size(GK_VB), aligned(sizeof(GK_T)), may_alias));
typedef GK_T GK(blk) __attribute__((vector_size(GK_TB * sizeof(GK_T)), aligned(sizeof(GK_T)), may_alias));

#define GK_V ((int)(GK_VB / sizeof(GK_T)))
#define GK_NR (2 * GK_V)

/* -- Register kernels ------------------------------------------------------ */

#define GK_BODY(M, NV, ARS, ACS)                                                       \
  GK(vec) s[M][NV];                                                                    \
  _Pragma("GCC unroll 16") for (int i = 0; i < M; i++)                                 \
    _Pragma("GCC unroll 2") for (int j = 0; j < NV; j++) s[i][j] = (GK(vec)){0};       \
  for (int64_t p = 0; p < kc; p++, a += (ACS), b += ldb) {                             \
    GK(vec) v[NV];                                                                     \
    _Pragma("GCC unroll 2") for (int j = 0; j < NV; j++) v[j] = *(const GK(vec) *)(b + j * GK_V); \
    _Pragma("GCC unroll 16") for (int i = 0; i < M; i++) {                             \
      GK_T x = a[i * (ARS)];                                                           \
      _Pragma("GCC unroll 2") for (int j = 0; j < NV; j++) s[i][j] += x * v[j];        \
    }                                                                                  \
  }                                                                                    \
  _Pragma("GCC unroll 16") for (int i = 0; i < M; i++)                                 \
    _Pragma("GCC unroll 2") for (int j = 0; j < NV; j++) {                             \
      GK(vec) *d = (GK(vec) *)(c + i * ldc + j * GK_V);                                \
      if (add) *d += s[i][j]; else *d = s[i][j];                                             \
    }

#define GK_PAIR(M, NV)                                                                              \
  GK_ISA static void GK(packed_##M##_##NV)(int64_t kc, const GK_T *a, int64_t ars, int64_t acs, const GK_T *b, \
                                           int64_t ldb, GK_T *c, int64_t ldc, int add) {            \
    (void)ars; (void)acs;                                                                           \
    GK_BODY(M, NV, 1, GK_MR)                                                                        \
  }                                                                                                 \
  GK_ISA static void GK(plain_##M##_##NV)(int64_t kc, const GK_T *a, int64_t ars, int64_t acs, const GK_T *b, \
                                          int64_t ldb, GK_T *c, int64_t ldc, int add) {             \
    GK_BODY(M, NV, ars, acs)                                                                        \
  }
#define GK_ROWS(M) GK_PAIR(M, 1) GK_PAIR(M, 2)
GK_ROWS(1)
GK_ROWS(2)
GK_ROWS(4)
#if GK_MR == 6
GK_ROWS(6)
#define GK_TABLE(kind, NV) { GK(kind##_1_##NV), GK(kind##_2_##NV), GK(kind##_4_##NV), GK(kind##_6_##NV) }
#define GK_CLASSES 4
#define GK_SIZES { 1, 2, 4, 6 }
#else
GK_ROWS(8)
GK_ROWS(14)
#define GK_TABLE(kind, NV) { GK(kind##_1_##NV), GK(kind##_2_##NV), GK(kind##_4_##NV), GK(kind##_8_##NV), GK(kind##_14_##NV) }
#define GK_CLASSES 5
#define GK_SIZES { 1, 2, 4, 8, 14 }
#endif

/* -- Packers ---------------------------------------------------------------- */

/* GK_TB lines of GK_TB contiguous elements become columns. */
#if GK_TB == 8
#define GK_TRANSPOSE(r)                                                                          \
  { GK(blk) t0 = GK_S8(r[0], r[1], 0, 8, 1, 9, 4, 12, 5, 13), t1 = GK_S8(r[0], r[1], 2, 10, 3, 11, 6, 14, 7, 15); \
    GK(blk) t2 = GK_S8(r[2], r[3], 0, 8, 1, 9, 4, 12, 5, 13), t3 = GK_S8(r[2], r[3], 2, 10, 3, 11, 6, 14, 7, 15); \
    GK(blk) t4 = GK_S8(r[4], r[5], 0, 8, 1, 9, 4, 12, 5, 13), t5 = GK_S8(r[4], r[5], 2, 10, 3, 11, 6, 14, 7, 15); \
    GK(blk) t6 = GK_S8(r[6], r[7], 0, 8, 1, 9, 4, 12, 5, 13), t7 = GK_S8(r[6], r[7], 2, 10, 3, 11, 6, 14, 7, 15); \
    GK(blk) u0 = GK_S8(t0, t2, 0, 1, 8, 9, 4, 5, 12, 13), u1 = GK_S8(t0, t2, 2, 3, 10, 11, 6, 7, 14, 15); \
    GK(blk) u2 = GK_S8(t1, t3, 0, 1, 8, 9, 4, 5, 12, 13), u3 = GK_S8(t1, t3, 2, 3, 10, 11, 6, 7, 14, 15); \
    GK(blk) u4 = GK_S8(t4, t6, 0, 1, 8, 9, 4, 5, 12, 13), u5 = GK_S8(t4, t6, 2, 3, 10, 11, 6, 7, 14, 15); \
    GK(blk) u6 = GK_S8(t5, t7, 0, 1, 8, 9, 4, 5, 12, 13), u7 = GK_S8(t5, t7, 2, 3, 10, 11, 6, 7, 14, 15); \
    r[0] = GK_S8(u0, u4, 0, 1, 2, 3, 8, 9, 10, 11); r[4] = GK_S8(u0, u4, 4, 5, 6, 7, 12, 13, 14, 15); \
    r[1] = GK_S8(u1, u5, 0, 1, 2, 3, 8, 9, 10, 11); r[5] = GK_S8(u1, u5, 4, 5, 6, 7, 12, 13, 14, 15); \
    r[2] = GK_S8(u2, u6, 0, 1, 2, 3, 8, 9, 10, 11); r[6] = GK_S8(u2, u6, 4, 5, 6, 7, 12, 13, 14, 15); \
    r[3] = GK_S8(u3, u7, 0, 1, 2, 3, 8, 9, 10, 11); r[7] = GK_S8(u3, u7, 4, 5, 6, 7, 12, 13, 14, 15); }
#elif GK_TB == 4
#define GK_TRANSPOSE(r)                                                                          \
  { GK(blk) t0 = GK_S4(r[0], r[1], 0, 4, 1, 5), t1 = GK_S4(r[2], r[3], 0, 4, 1, 5);              \
    GK(blk) t2 = GK_S4(r[0], r[1], 2, 6, 3, 7), t3 = GK_S4(r[2], r[3], 2, 6, 3, 7);              \
    r[0] = GK_S4(t0, t1, 0, 1, 4, 5); r[1] = GK_S4(t0, t1, 2, 3, 6, 7);                          \
    r[2] = GK_S4(t2, t3, 0, 1, 4, 5); r[3] = GK_S4(t2, t3, 2, 3, 6, 7); }
#else
#define GK_TRANSPOSE(r) { GK(blk) t0 = GK_S2(r[0], r[1], 0, 2); r[1] = GK_S2(r[0], r[1], 1, 3); r[0] = t0; }
#endif

/* One panel of lines, each contiguous along k. Blocks go from the last to the first, so what one writes past its
** row's end the next one overwrites; the very last rows spill into the slack. */
GK_ISA static void GK(pack_lines)(const GK_T *const *lines, int n, int64_t kc, int width, GK_T *dst) {
  for (int ib = (width - 1) / GK_TB * GK_TB; ib >= 0; ib -= GK_TB) {
    const GK_T *line[GK_TB];
    _Pragma("GCC unroll 8") for (int i = 0; i < GK_TB; i++) line[i] = lines[ib + i < n ? ib + i : n - 1];
    GK_T *d = dst + ib;
    int64_t p = 0;
    for (; p + GK_TB <= kc; p += GK_TB) {
      GK(blk) r[GK_TB];
      _Pragma("GCC unroll 8") for (int i = 0; i < GK_TB; i++) r[i] = *(const GK(blk) *)(line[i] + p);
      GK_TRANSPOSE(r)
      _Pragma("GCC unroll 8") for (int i = 0; i < GK_TB; i++) *(GK(blk) *)(d + (p + i) * width) = r[i];
    }
    int keep = width - ib < GK_TB ? width - ib : GK_TB;
    for (; p < kc; p++)
      for (int i = 0; i < keep; i++) d[p * width + i] = line[i][p];
  }
}

/* One panel whose lines lie side by side: element (line i, k) at src[i * rs + k * cs]. */
GK_ISA static void GK(pack_side)(const GK_T *src, int64_t rs, int64_t cs, int64_t lines, int64_t kc, int width, GK_T *dst) {
  if (rs == 1 && lines >= width) {
    for (int64_t p = 0; p < kc; p++, src += cs, dst += width) {
      int i = 0;
      for (; i + GK_V <= width; i += GK_V) *(GK(vec) *)(dst + i) = *(const GK(vec) *)(src + i);
      for (; i < width; i++) dst[i] = src[i];
    }
    return;
  }
  for (int64_t p = 0; p < kc; p++, src += cs, dst += width) {
    int64_t i = 0, m = lines < width ? lines : width;
    if (rs == 1) for (; i < m; i++) dst[i] = src[i];
    else for (; i < m; i++) dst[i] = src[i * rs];
    for (; i < width; i++) dst[i] = 0;
  }
}

GK_ISA static void GK(pack)(const GK_T *src, int64_t rs, int64_t cs, int64_t lines, int64_t kc, int width, GK_T *dst) {
  for (int64_t i = 0; i < lines; i += width, dst += width * kc) {
    int64_t n = lines - i < width ? lines - i : width;
    if (cs == 1 && rs != 1 && kc >= GK_TB) {
      const GK_T *line[32];
      for (int j = 0; j < (int)n; j++) line[j] = src + (i + j) * rs;
      GK(pack_lines)(line, (int)n, kc, width, dst);
    } else GK(pack_side)(src + i * rs, rs, cs, n, kc, width, dst);
  }
}

/* -- Matrix times vector ---------------------------------------------------- */

/* y[i] = sum over k of a[i * ars + k] x[k], both contiguous along k; four chains hide the latency */
GK_ISA static void GK(dots)(int64_t m, int64_t k, const GK_T *a, int64_t ars, const GK_T *x, GK_T *y, int64_t ys) {
  for (int64_t i = 0; i < m; i++, a += ars) {
    GK(vec) s[4];
    _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) s[j] = (GK(vec)){0};
    int64_t p = 0;
    for (; p + 4 * GK_V <= k; p += 4 * GK_V)
      _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++)
        s[j] += *(const GK(vec) *)(a + p + j * GK_V) * *(const GK(vec) *)(x + p + j * GK_V);
    GK(vec) v = (s[0] + s[1]) + (s[2] + s[3]);
    GK_T r = 0;
    for (int j = 0; j < GK_V; j++) r += v[j];
    for (; p < k; p++) r += a[p] * x[p];
    y[i * ys] = r;
  }
}

/* y[j] = sum over k of x[k * xs] b[k * brs + j], contiguous along j */
GK_ISA static void GK(rows)(int64_t n, int64_t k, const GK_T *x, int64_t xs, const GK_T *b, int64_t brs, GK_T *y) {
  for (int64_t j = 0; j < n; j++) y[j] = 0;
  int64_t p = 0;
  for (; p + 4 <= k; p += 4, b += 4 * brs) {
    GK_T x0 = x[p * xs], x1 = x[(p + 1) * xs], x2 = x[(p + 2) * xs], x3 = x[(p + 3) * xs];
    for (int64_t j = 0; j < n; j++) y[j] += (x0 * b[j] + x1 * b[brs + j]) + (x2 * b[2 * brs + j] + x3 * b[3 * brs + j]);
  }
  for (; p < k; p++, b += brs) {
    GK_T x0 = x[p * xs];
    for (int64_t j = 0; j < n; j++) y[j] += x0 * b[j];
  }
}

static const GK(isa_type) GK(isa) = {
  GK_MR, GK_NR, GK_V, GK_CLASSES, GK_SIZES,
  { { GK_TABLE(packed, 1), GK_TABLE(packed, 2) }, { GK_TABLE(plain, 1), GK_TABLE(plain, 2) } },
  GK(pack), GK(pack_lines), GK(dots), GK(rows)
};

#undef GK_V
#undef GK_NR
#undef GK_BODY
#undef GK_PAIR
#undef GK_ROWS
#undef GK_TABLE
#undef GK_CLASSES
#undef GK_SIZES
#undef GK_TRANSPOSE
#undef GK_T
#undef GK_VB
#undef GK_MR
#undef GK_TB
#undef GK_ISA
#undef GK
