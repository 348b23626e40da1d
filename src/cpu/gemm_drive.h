/*
** cpu/gemm_drive.h: the loops around the register kernels, for one element
** type; included once for float and once for double by cpu/gemm.c.
**
**   for columns by NC | for k by KC | pack B        KC x NC, shared L3 or L2
**     for rows by MC  | pack A                      MC x KC, L2
**       for panels of B (in L1) | for panels of A | kernel
**
** Small operands are read where they lie. A column-major C is computed as
** C^T = B^T A^T, so kernels always write rows.
*/

typedef struct GD(plan) {
  amp_gemm gemm;
  bool direct_a, direct_b;
  int64_t kc, mc, nc;
  size_t a_elems, b_elems;
} GD(plan);

static amp_gemm GD(turned)(const amp_gemm *gemm)
{
  amp_gemm t = *gemm;
  t.m = gemm->n;
  t.n = gemm->m;
  t.a = gemm->b;
  t.ars = gemm->bcs;
  t.acs = gemm->brs;
  t.pack_a = gemm->pack_b;
  t.first_a = gemm->first_b;
  t.b = gemm->a;
  t.bcs = gemm->ars;
  t.brs = gemm->acs;
  t.pack_b = gemm->pack_a;
  t.first_b = gemm->first_a;
  t.crs = gemm->ccs;
  t.ccs = gemm->crs;
  t.bias_rs = gemm->bias_cs;
  t.bias_cs = gemm->bias_rs;
  return t;
}

static void GD(plan_of)(GD(plan) * blocks, const amp_gemm *gemm, const GD(isa_type) * isa)
{
  bool turn = gemm->packed_b || gemm->n == 1 ? false : gemm->m == 1 ? true : gemm->ccs != 1 && gemm->crs == 1;
  blocks->gemm = turn ? GD(turned)(gemm) : *gemm;
  gemm = &blocks->gemm;
  blocks->direct_a
      = !gemm->pack_a && (gemm->m <= 4 || (gemm->m * gemm->k <= GD_SMALL && (gemm->acs == 1 || gemm->ars == 1)));
  blocks->direct_b = !gemm->pack_b && !gemm->packed_b && gemm->bcs == 1 && gemm->n >= isa->v
                     && (gemm->m <= 4 || gemm->k * gemm->n <= GD_SMALL);
  blocks->kc = gemm->k < GD_KC ? gemm->k : GD_KC;
  blocks->mc = gemm->m < GD_MC ? gemm->m : GD_MC;
  blocks->nc = gemm->n < GD_NC ? gemm->n : GD_NC;
  blocks->a_elems = blocks->direct_a ? 0 : (size_t)((blocks->mc + isa->mr - 1) / isa->mr * isa->mr * blocks->kc + 16);
  blocks->b_elems
      = gemm->packed_b
            ? 0
            : (size_t)((blocks->direct_b ? isa->nr : (blocks->nc + isa->nr - 1) / isa->nr * isa->nr) * blocks->kc + 16);
}

static void GD(add_bias)(const amp_gemm *gemm, int64_t i0, int64_t m, int64_t j0, int64_t n)
{
  const GD_T *bias = gemm->bias;
  for (int64_t i = i0; i < i0 + m; i++) {
    GD_T *c = (GD_T *)gemm->c + i * gemm->crs;
    if (gemm->ccs == 1 && gemm->bias_cs == 1)
      for (int64_t j = j0; j < j0 + n; j++) c[j] += bias[i * gemm->bias_rs + j];
    else
      for (int64_t j = j0; j < j0 + n; j++) c[j * gemm->ccs] += bias[i * gemm->bias_rs + j * gemm->bias_cs];
  }
}

/* Rows [0, rows_left) of a panel of A against one panel of B. */
static inline void GD(panel)(const GD(isa_type) * isa, const amp_gemm *gemm, bool plain, int64_t kc, const GD_T *a,
                             const GD_T *b, int64_t ldb, int64_t i0, int64_t rows_left, int64_t j0, int64_t cols,
                             bool add)
{
  int nv = cols > isa->v ? 2 : 1;
  bool full = cols == (int64_t)nv * isa->v && gemm->ccs == 1;
  int cls = isa->classes - 1;
  for (int64_t row = 0; row < rows_left;) {
    while (isa->size[cls] > rows_left - row) cls--;
    int rows = isa->size[cls];
    GD_T *c = (GD_T *)gemm->c + (i0 + row) * gemm->crs + j0 * gemm->ccs;
    const GD_T *ar = plain ? a + row * gemm->ars : a + row;
    if (full) isa->kern[plain][nv - 1][cls](kc, ar, gemm->ars, gemm->acs, b, ldb, c, gemm->crs, add);
    else {
      GD_T buf[14 * 32];
      isa->kern[plain][nv - 1][cls](kc, ar, gemm->ars, gemm->acs, b, ldb, buf, isa->nr, 0);
      const GD_T *turned = buf;
      for (int i = 0; i < rows; i++, c += gemm->crs, turned += isa->nr) {
        if (gemm->ccs != 1)
          for (int64_t j = 0; j < cols; j++) c[j * gemm->ccs] = add ? c[j * gemm->ccs] + turned[j] : turned[j];
        else if (add)
          for (int64_t j = 0; j < cols; j++) c[j] += turned[j];
        else memcpy(c, turned, (size_t)cols * sizeof *c);
      }
    }
    row += rows;
  }
}

static bool GD(vector)(const GD(isa_type) * isa, const amp_gemm *gemm)
{ /* n == 1 */
  if (gemm->pack_a || gemm->pack_b || gemm->packed_b || gemm->accumulate || gemm->n != 1) return false;
  if (gemm->acs == 1 && gemm->brs == 1) isa->dots(gemm->m, gemm->k, gemm->a, gemm->ars, gemm->b, gemm->c, gemm->crs);
  else if (gemm->ars == 1 && gemm->crs == 1)
    isa->rows(gemm->m, gemm->k, gemm->b, gemm->brs, gemm->a, gemm->acs, gemm->c);
  else return false;
  if (gemm->bias) GD(add_bias)(gemm, 0, gemm->m, 0, 1);
  return true;
}

static void GD(run)(const amp_gemm *asked, void *scratch)
{
  const GD(isa_type) *isa = GD(pick)();
  GD(plan) blocks;
  GD(plan_of)(&blocks, asked, isa);
  const amp_gemm *gemm = &blocks.gemm;
  if (gemm->m <= 0 || gemm->n <= 0) return;
  if (gemm->k <= 0) {
    if (!gemm->accumulate)
      for (int64_t i = 0; i < gemm->m; i++)
        for (int64_t j = 0; j < gemm->n; j++) ((GD_T *)gemm->c)[i * gemm->crs + j * gemm->ccs] = 0;
    if (gemm->bias) GD(add_bias)(gemm, 0, gemm->m, 0, gemm->n);
    return;
  }
  if (GD(vector)(isa, gemm)) return;
  GD_T *packed_b = scratch, *packed_a = packed_b + blocks.b_elems;
  int64_t padded = (gemm->packed_n + isa->nr - 1) / isa->nr * isa->nr;
  const GD_T *A = gemm->a, *B = gemm->b;
  for (int64_t col = 0; col < gemm->n; col += blocks.nc) {
    int64_t ncols = gemm->n - col < blocks.nc ? gemm->n - col : blocks.nc;
    for (int64_t k0 = 0; k0 < gemm->k; k0 += blocks.kc) {
      int64_t kc = gemm->k - k0 < blocks.kc ? gemm->k - k0 : blocks.kc;
      bool add = gemm->accumulate || k0 > 0, last = k0 + kc == gemm->k;
      int64_t whole = ncols / isa->v * isa->v; /* columns readable in place */
      const GD_T *panels = packed_b;
      int64_t bks = kc; /* k of a panel */
      if (gemm->packed_b) {
        bks = gemm->packed_k - k0 < GD_KC ? gemm->packed_k - k0 : GD_KC;
        panels = (const GD_T *)gemm->packed_b + k0 * padded + col * bks;
      }
      if (gemm->pack_b) gemm->pack_b(gemm->b, k0, kc, gemm->first_b + col, ncols, isa->nr, packed_b);
      else if (!blocks.direct_b && !gemm->packed_b)
        isa->pack(B + k0 * gemm->brs + col * gemm->bcs, gemm->bcs, gemm->brs, ncols, kc, isa->nr, packed_b);
      else if (whole < ncols && !gemm->packed_b)
        isa->pack(B + k0 * gemm->brs + (col + whole), 1, gemm->brs, ncols - whole, kc, isa->nr, packed_b);
      for (int64_t row = 0; row < gemm->m; row += blocks.mc) {
        int64_t nrows = gemm->m - row < blocks.mc ? gemm->m - row : blocks.mc;
        if (gemm->pack_a) gemm->pack_a(gemm->a, k0, kc, gemm->first_a + row, nrows, isa->mr, packed_a);
        else if (!blocks.direct_a)
          isa->pack(A + row * gemm->ars + k0 * gemm->acs, gemm->ars, gemm->acs, nrows, kc, isa->mr, packed_a);
        for (int64_t j = 0; j < ncols;) {
          int64_t cols = ncols - j < isa->nr ? ncols - j : isa->nr, ldb = isa->nr;
          const GD_T *b;
          if (!blocks.direct_b) b = panels + j * bks;
          else if (j >= whole) b = packed_b;
          else {
            if (cols < isa->nr) cols = cols / isa->v * isa->v;
            b = B + k0 * gemm->brs + col + j;
            ldb = gemm->brs;
          }
          for (int64_t i = 0; i < nrows; i += isa->mr) GD(panel)
          (isa, gemm, blocks.direct_a, kc,
           blocks.direct_a ? A + (row + i) * gemm->ars + k0 * gemm->acs : packed_a + i * kc, b, ldb, row + i,
           nrows - i < isa->mr ? nrows - i : isa->mr, col + j, cols, add);
          if (last && gemm->bias) GD(add_bias)(gemm, row, nrows, col + j, cols);
          j += cols;
        }
      }
    }
  }
}

/* All of B: for each KC of k its panels, side by side. */
static size_t GD(packed_size)(const amp_gemm *gemm)
{
  int nr = GD(pick)()->nr;
  return (size_t)((gemm->n + nr - 1) / nr * nr * gemm->k + AMP_GEMM_SLACK) * sizeof(GD_T);
}

static void GD(pack_all)(const amp_gemm *gemm, GD_T *dst)
{
  const GD(isa_type) *isa = GD(pick)();
  int64_t padded = (gemm->n + isa->nr - 1) / isa->nr * isa->nr;
  for (int64_t k0 = 0; k0 < gemm->k; k0 += GD_KC)
    isa->pack((const GD_T *)gemm->b + k0 * gemm->brs, gemm->bcs, gemm->brs, gemm->n,
              gemm->k - k0 < GD_KC ? gemm->k - k0 : GD_KC, isa->nr, dst + k0 * padded);
}

static size_t GD(scratch)(const amp_gemm *gemm)
{
  GD(plan) blocks;
  GD(plan_of)(&blocks, gemm, GD(pick)());
  return (blocks.a_elems + blocks.b_elems) * sizeof(GD_T);
}

#undef GD
#undef GD_T
#undef GD_KC
#undef GD_MC
#undef GD_NC
#undef GD_SMALL
