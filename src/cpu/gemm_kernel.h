/*
** cpu/gemm_kernel.h: register kernels and packers of the GEMM for one element
** type and one vector width; included once for each by cpu/gemm.c.
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

/* A product of `rows` lines of A and `vectors` vectors of columns of B, both constants where this is compiled in */
GK_ISA AMP_INLINE void GK(tile)(int rows, int vectors, int64_t kc, const GK_T *a, int64_t ars, int64_t acs,
                                const GK_T *b, int64_t ldb, GK_T *c, int64_t ldc, int add)
{
  GK(vec) sum[GK_MR][2];
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
    for (int j = 0; j < vectors; j++) sum[i][j] = (GK(vec)){ 0 };
  for (int64_t depth = 0; depth < kc; depth++, a += acs, b += ldb) {
    GK(vec) column[2];
#pragma GCC unroll 2
    for (int j = 0; j < vectors; j++) column[j] = *(const GK(vec) *)(b + j * GK_V);
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
      GK_T x = a[i * ars];
#pragma GCC unroll 2
      for (int j = 0; j < vectors; j++) sum[i][j] += x * column[j];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
    for (int j = 0; j < vectors; j++) {
      GK(vec) *d = (GK(vec) *)(c + i * ldc + j * GK_V);
      if (add) *d += sum[i][j];
      else *d = sum[i][j];
    }
}

#define GK_ARGUMENTS \
  int64_t kc, const GK_T *a, int64_t ars, int64_t acs, const GK_T *b, int64_t ldb, GK_T *c, int64_t ldc, int add
#define GK_PAIR(M, NV)                                                                                              \
  GK_ISA static void GK(packed_##M##_##NV)(GK_ARGUMENTS) { GK(tile)(M, NV, kc, a, 1, GK_MR, b, ldb, c, ldc, add); } \
  GK_ISA static void GK(plain_##M##_##NV)(GK_ARGUMENTS) { GK(tile)(M, NV, kc, a, ars, acs, b, ldb, c, ldc, add); }
#define GK_ROWS(M) GK_PAIR(M, 1) GK_PAIR(M, 2)
GK_ROWS(1)
GK_ROWS(2)
GK_ROWS(4)
#if GK_MR == 6
GK_ROWS(6)
#define GK_TABLE(kind, NV)                                                     \
  {                                                                            \
    GK(kind##_1_##NV), GK(kind##_2_##NV), GK(kind##_4_##NV), GK(kind##_6_##NV) \
  }
#define GK_CLASSES 4
#define GK_SIZES \
  {              \
    1, 2, 4, 6   \
  }
#elif GK_MR == 8
GK_ROWS(8)
#define GK_TABLE(kind, NV)                                                     \
  {                                                                            \
    GK(kind##_1_##NV), GK(kind##_2_##NV), GK(kind##_4_##NV), GK(kind##_8_##NV) \
  }
#define GK_CLASSES 4
#define GK_SIZES \
  {              \
    1, 2, 4, 8   \
  }
#else
GK_ROWS(8)
GK_ROWS(14)
#define GK_TABLE(kind, NV)                                                                         \
  {                                                                                                \
    GK(kind##_1_##NV), GK(kind##_2_##NV), GK(kind##_4_##NV), GK(kind##_8_##NV), GK(kind##_14_##NV) \
  }
#define GK_CLASSES 5
#define GK_SIZES   \
  {                \
    1, 2, 4, 8, 14 \
  }
#endif

/* -- Packers ---------------------------------------------------------------- */

/* GK_TB lines of GK_TB contiguous elements become columns: neighbours, pairs, then halves are exchanged. */
#if GK_TB == 8
#define GK_NEIGHBOURS(t, r, i)                            \
  t[i] = GK_S8(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13); \
  t[i + 1] = GK_S8(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
#define GK_PAIRS(u, t, i, k)                                              \
  u[i + 2 * k] = GK_S8(t[i + k], t[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13); \
  u[i + 2 * k + 1] = GK_S8(t[i + k], t[i + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
#define GK_HALVES(r, u, i)                                \
  r[i] = GK_S8(u[i], u[i + 4], 0, 1, 2, 3, 8, 9, 10, 11); \
  r[i + 4] = GK_S8(u[i], u[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
/* clang-format off */
#define GK_TRANSPOSE(r) \
  { \
    GK(blk) t[8], u[8]; \
    GK_NEIGHBOURS(t, r, 0) \
    GK_NEIGHBOURS(t, r, 2) \
    GK_NEIGHBOURS(t, r, 4) GK_NEIGHBOURS(t, r, 6) GK_PAIRS(u, t, 0, 0) GK_PAIRS(u, t, 0, 1) GK_PAIRS(u, t, 4, 0) \
        GK_PAIRS(u, t, 4, 1) GK_HALVES(r, u, 0) GK_HALVES(r, u, 1) GK_HALVES(r, u, 2) GK_HALVES(r, u, 3) \
  }
/* clang-format on */
#elif GK_TB == 4
#define GK_NEIGHBOURS(t, r, i)              \
  t[i] = GK_S4(r[i], r[i + 1], 0, 4, 1, 5); \
  t[i + 1] = GK_S4(r[i], r[i + 1], 2, 6, 3, 7);
#define GK_HALVES(r, t, i)                      \
  r[2 * i] = GK_S4(t[i], t[i + 2], 0, 1, 4, 5); \
  r[2 * i + 1] = GK_S4(t[i], t[i + 2], 2, 3, 6, 7);
/* clang-format off */
#define GK_TRANSPOSE(r) \
  { \
    GK(blk) t[4]; \
    GK_NEIGHBOURS(t, r, 0) GK_NEIGHBOURS(t, r, 2) GK_HALVES(r, t, 0) GK_HALVES(r, t, 1) \
  }
/* clang-format on */
#else
/* clang-format off */
#define GK_TRANSPOSE(r) \
  { \
    GK(blk) first = GK_S2(r[0], r[1], 0, 2); \
    r[1] = GK_S2(r[0], r[1], 1, 3); \
    r[0] = first; \
  }
/* clang-format on */
#endif

/* One panel of lines, each contiguous along k. Blocks go from the last to the first, so what one writes past its
** row's end the next one overwrites; the very last rows spill into the slack. */
GK_ISA static void GK(pack_lines)(const GK_T *const *lines, int n, int64_t kc, int width, GK_T *dst)
{
  for (int block = (width - 1) / GK_TB * GK_TB; block >= 0; block -= GK_TB) {
    const GK_T *line[GK_TB];
    _Pragma("GCC unroll 8") for (int i = 0; i < GK_TB; i++) line[i] = lines[block + i < n ? block + i : n - 1];
    GK_T *d = dst + block;
    int64_t depth = 0;
    for (; depth + GK_TB <= kc; depth += GK_TB) {
      GK(blk) r[GK_TB];
      _Pragma("GCC unroll 8") for (int i = 0; i < GK_TB; i++) r[i] = *(const GK(blk) *)(line[i] + depth);
      GK_TRANSPOSE(r)
      _Pragma("GCC unroll 8") for (int i = 0; i < GK_TB; i++) * (GK(blk) *)(d + (depth + i) * width) = r[i];
    }
    int keep = width - block < GK_TB ? width - block : GK_TB;
    for (; depth < kc; depth++)
      for (int i = 0; i < keep; i++) d[depth * width + i] = line[i][depth];
  }
}

/* One panel whose lines lie side by side: element (line i, k) at src[i * rs + k * cs]. */
GK_ISA static void GK(pack_side)(const GK_T *src, int64_t row_stride, int64_t col_stride, int64_t lines, int64_t kc,
                                 int width, GK_T *dst)
{
  if (row_stride == 1 && lines >= width) {
    for (int64_t depth = 0; depth < kc; depth++, src += col_stride, dst += width) {
      int i = 0;
      for (; i + GK_V <= width; i += GK_V) *(GK(vec) *)(dst + i) = *(const GK(vec) *)(src + i);
      for (; i < width; i++) dst[i] = src[i];
    }
    return;
  }
  for (int64_t depth = 0; depth < kc; depth++, src += col_stride, dst += width) {
    int64_t i = 0, m = lines < width ? lines : width;
    if (row_stride == 1)
      for (; i < m; i++) dst[i] = src[i];
    else
      for (; i < m; i++) dst[i] = src[i * row_stride];
    for (; i < width; i++) dst[i] = 0;
  }
}

GK_ISA static void GK(pack)(const GK_T *src, int64_t row_stride, int64_t col_stride, int64_t lines, int64_t kc,
                            int width, GK_T *dst)
{
  for (int64_t i = 0; i < lines; i += width, dst += width * kc) {
    int64_t n = lines - i < width ? lines - i : width;
    if (col_stride == 1 && row_stride != 1 && kc >= GK_TB) {
      const GK_T *line[32];
      for (int j = 0; j < (int)n; j++) line[j] = src + (i + j) * row_stride;
      GK(pack_lines)(line, (int)n, kc, width, dst);
    } else GK(pack_side)(src + i * row_stride, row_stride, col_stride, n, kc, width, dst);
  }
}

/* -- Matrix times vector ---------------------------------------------------- */

/* y[i] = sum over k of a[i * ars + k] x[k], both contiguous along k; four chains hide the latency */
GK_ISA static void GK(dots)(int64_t m, int64_t k, const GK_T *a, int64_t ars, const GK_T *x, GK_T *y, int64_t ys)
{
  for (int64_t i = 0; i < m; i++, a += ars) {
    GK(vec) s[4];
    _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) s[j] = (GK(vec)){ 0 };
    int64_t depth = 0;
    for (; depth + 4 * GK_V <= k; depth += 4 * GK_V)
      _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) s[j]
          += *(const GK(vec) *)(a + depth + j * GK_V) * *(const GK(vec) *)(x + depth + j * GK_V);
    GK(vec) v = (s[0] + s[1]) + (s[2] + s[3]);
    GK_T r = 0;
    for (int j = 0; j < GK_V; j++) r += v[j];
    for (; depth < k; depth++) r += a[depth] * x[depth];
    y[i * ys] = r;
  }
}

/* y[j] = sum over k of x[k * xs] b[k * brs + j], contiguous along j */
GK_ISA static void GK(rows)(int64_t n, int64_t k, const GK_T *x, int64_t xs, const GK_T *b, int64_t brs, GK_T *y)
{
  for (int64_t j = 0; j < n; j++) y[j] = 0;
  int64_t depth = 0;
  for (; depth + 4 <= k; depth += 4, b += 4 * brs) {
    GK_T x0 = x[depth * xs], x1 = x[(depth + 1) * xs], x2 = x[(depth + 2) * xs], x3 = x[(depth + 3) * xs];
    for (int64_t j = 0; j < n; j++) y[j] += (x0 * b[j] + x1 * b[brs + j]) + (x2 * b[2 * brs + j] + x3 * b[3 * brs + j]);
  }
  for (; depth < k; depth++, b += brs) {
    GK_T x0 = x[depth * xs];
    for (int64_t j = 0; j < n; j++) y[j] += x0 * b[j];
  }
}

static const GK(isa_type) GK(isa)
    = { GK_MR,    GK_NR,
        GK_V,     GK_CLASSES,
        GK_SIZES, { { GK_TABLE(packed, 1), GK_TABLE(packed, 2) }, { GK_TABLE(plain, 1), GK_TABLE(plain, 2) } },
        GK(pack), GK(pack_lines),
        GK(dots), GK(rows) };

#undef GK_V
#undef GK_NR
#undef GK_ARGUMENTS
#undef GK_PAIR
#undef GK_ROWS
#undef GK_TABLE
#undef GK_CLASSES
#undef GK_SIZES
#undef GK_TRANSPOSE
#undef GK_NEIGHBOURS
#undef GK_PAIRS
#undef GK_HALVES
#undef GK_T
#undef GK_VB
#undef GK_MR
#undef GK_TB
#undef GK_ISA
#undef GK
