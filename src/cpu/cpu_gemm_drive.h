/*
** cpu_gemm_drive.h: the loops around the register kernels, for one element
** type; included once for float and once for double by cpu_gemm.c.
**
**   for columns by NC | for k by KC | pack B        KC x NC, shared L3 or L2
**     for rows by MC  | pack A                      MC x KC, L2
**       for panels of B (in L1) | for panels of A | kernel
**
** Small operands are read where they lie. A column-major C is computed as
** C^T = B^T A^T, so kernels always write rows.
*/

typedef struct GD(plan) {
  amp_gemm g;
  bool direct_a, direct_b;
  int64_t kc, mc, nc;
  size_t a_elems, b_elems;
} GD(plan);

static amp_gemm GD(turned)(const amp_gemm *g) {
  amp_gemm t = *g;
  t.m = g->n; t.n = g->m;
  t.a = g->b; t.ars = g->bcs; t.acs = g->brs; t.pack_a = g->pack_b; t.first_a = g->first_b;
  t.b = g->a; t.bcs = g->ars; t.brs = g->acs; t.pack_b = g->pack_a; t.first_b = g->first_a;
  t.crs = g->ccs; t.ccs = g->crs;
  t.bias_rs = g->bias_cs; t.bias_cs = g->bias_rs;
  return t;
}

static void GD(plan_of)(GD(plan) *p, const amp_gemm *g, const GD(isa_type) *I) {
  bool turn = g->packed_b || g->n == 1 ? false : g->m == 1 ? true : g->ccs != 1 && g->crs == 1;
  p->g = turn ? GD(turned)(g) : *g;
  g = &p->g;
  p->direct_a = !g->pack_a && (g->m <= 4 || (g->m * g->k <= GD_SMALL && (g->acs == 1 || g->ars == 1)));
  p->direct_b = !g->pack_b && !g->packed_b && g->bcs == 1 && g->n >= I->v && (g->m <= 4 || g->k * g->n <= GD_SMALL);
  p->kc = g->k < GD_KC ? g->k : GD_KC;
  p->mc = g->m < GD_MC ? g->m : GD_MC;
  p->nc = g->n < GD_NC ? g->n : GD_NC;
  p->a_elems = p->direct_a ? 0 : (size_t)((p->mc + I->mr - 1) / I->mr * I->mr * p->kc + 16);
  p->b_elems = g->packed_b ? 0 : (size_t)((p->direct_b ? I->nr : (p->nc + I->nr - 1) / I->nr * I->nr) * p->kc + 16);
}

static void GD(add_bias)(const amp_gemm *g, int64_t i0, int64_t m, int64_t j0, int64_t n) {
  const GD_T *bias = g->bias;
  for (int64_t i = i0; i < i0 + m; i++) {
    GD_T *c = (GD_T *)g->c + i * g->crs;
    if (g->ccs == 1 && g->bias_cs == 1) for (int64_t j = j0; j < j0 + n; j++) c[j] += bias[i * g->bias_rs + j];
    else for (int64_t j = j0; j < j0 + n; j++) c[j * g->ccs] += bias[i * g->bias_rs + j * g->bias_cs];
  }
}

/* Rows [0, mi) of a panel of A against one panel of B. */
static inline void GD(panel)(const GD(isa_type) *I, const amp_gemm *g, bool plain, int64_t kc, const GD_T *a, const GD_T *b,
                             int64_t ldb, int64_t i0, int64_t mi, int64_t j0, int64_t nj, bool add) {
  int nv = nj > I->v ? 2 : 1;
  bool full = nj == (int64_t)nv * I->v && g->ccs == 1;
  int cls = I->classes - 1;
  for (int64_t r = 0; r < mi;) {
    while (I->size[cls] > mi - r) cls--;
    int rows = I->size[cls];
    GD_T *c = (GD_T *)g->c + (i0 + r) * g->crs + j0 * g->ccs;
    const GD_T *ar = plain ? a + r * g->ars : a + r;
    if (full) I->kern[plain][nv - 1][cls](kc, ar, g->ars, g->acs, b, ldb, c, g->crs, add);
    else {
      GD_T buf[14 * 32];
      I->kern[plain][nv - 1][cls](kc, ar, g->ars, g->acs, b, ldb, buf, I->nr, 0);
      const GD_T *t = buf;
      for (int i = 0; i < rows; i++, c += g->crs, t += I->nr) {
        if (g->ccs != 1) for (int64_t j = 0; j < nj; j++) c[j * g->ccs] = add ? c[j * g->ccs] + t[j] : t[j];
        else if (add) for (int64_t j = 0; j < nj; j++) c[j] += t[j];
        else memcpy(c, t, (size_t)nj * sizeof *c);
      }
    }
    r += rows;
  }
}

static bool GD(vector)(const GD(isa_type) *I, const amp_gemm *g) { /* n == 1 */
  if (g->pack_a || g->pack_b || g->packed_b || g->accumulate || g->n != 1) return false;
  if (g->acs == 1 && g->brs == 1) I->dots(g->m, g->k, g->a, g->ars, g->b, g->c, g->crs);
  else if (g->ars == 1 && g->crs == 1) I->rows(g->m, g->k, g->b, g->brs, g->a, g->acs, g->c);
  else return false;
  if (g->bias) GD(add_bias)(g, 0, g->m, 0, 1);
  return true;
}

static void GD(run)(const amp_gemm *given, void *scratch) {
  const GD(isa_type) *I = GD(pick)();
  GD(plan) p;
  GD(plan_of)(&p, given, I);
  const amp_gemm *g = &p.g;
  if (g->m <= 0 || g->n <= 0) return;
  if (g->k <= 0) {
    if (!g->accumulate)
      for (int64_t i = 0; i < g->m; i++) for (int64_t j = 0; j < g->n; j++) ((GD_T *)g->c)[i * g->crs + j * g->ccs] = 0;
    if (g->bias) GD(add_bias)(g, 0, g->m, 0, g->n);
    return;
  }
  if (GD(vector)(I, g)) return;
  GD_T *bp = scratch, *ap = bp + p.b_elems;
  int64_t padded = (g->packed_n + I->nr - 1) / I->nr * I->nr;
  const GD_T *A = g->a, *B = g->b;
  for (int64_t jc = 0; jc < g->n; jc += p.nc) {
    int64_t nc = g->n - jc < p.nc ? g->n - jc : p.nc;
    for (int64_t pc = 0; pc < g->k; pc += p.kc) {
      int64_t kc = g->k - pc < p.kc ? g->k - pc : p.kc;
      bool add = g->accumulate || pc > 0, last = pc + kc == g->k;
      int64_t whole = nc / I->v * I->v;            /* columns readable in place */
      const GD_T *bq = bp;
      int64_t bks = kc;                            /* k of a panel */
      if (g->packed_b) {
        bks = g->packed_k - pc < GD_KC ? g->packed_k - pc : GD_KC;
        bq = (const GD_T *)g->packed_b + pc * padded + jc * bks;
      }
      if (g->pack_b) g->pack_b(g->b, pc, kc, g->first_b + jc, nc, I->nr, bp);
      else if (!p.direct_b && !g->packed_b) I->pack(B + pc * g->brs + jc * g->bcs, g->bcs, g->brs, nc, kc, I->nr, bp);
      else if (whole < nc && !g->packed_b) I->pack(B + pc * g->brs + (jc + whole), 1, g->brs, nc - whole, kc, I->nr, bp);
      for (int64_t ic = 0; ic < g->m; ic += p.mc) {
        int64_t mc = g->m - ic < p.mc ? g->m - ic : p.mc;
        if (g->pack_a) g->pack_a(g->a, pc, kc, g->first_a + ic, mc, I->mr, ap);
        else if (!p.direct_a) I->pack(A + ic * g->ars + pc * g->acs, g->ars, g->acs, mc, kc, I->mr, ap);
        for (int64_t j = 0; j < nc;) {
          int64_t nj = nc - j < I->nr ? nc - j : I->nr, ldb = I->nr;
          const GD_T *b;
          if (!p.direct_b) b = bq + j * bks;
          else if (j >= whole) b = bp;
          else {
            if (nj < I->nr) nj = nj / I->v * I->v;
            b = B + pc * g->brs + jc + j;
            ldb = g->brs;
          }
          for (int64_t i = 0; i < mc; i += I->mr)
            GD(panel)(I, g, p.direct_a, kc, p.direct_a ? A + (ic + i) * g->ars + pc * g->acs : ap + i * kc, b, ldb,
                      ic + i, mc - i < I->mr ? mc - i : I->mr, jc + j, nj, add);
          if (last && g->bias) GD(add_bias)(g, ic, mc, jc + j, nj);
          j += nj;
        }
      }
    }
  }
}

/* All of B: for each KC of k its panels, side by side. */
static size_t GD(packed_size)(const amp_gemm *g) {
  int nr = GD(pick)()->nr;
  return (size_t)((g->n + nr - 1) / nr * nr * g->k + AMP_GEMM_SLACK) * sizeof(GD_T);
}

static void GD(pack_all)(const amp_gemm *g, GD_T *dst) {
  const GD(isa_type) *I = GD(pick)();
  int64_t padded = (g->n + I->nr - 1) / I->nr * I->nr;
  for (int64_t pc = 0; pc < g->k; pc += GD_KC)
    I->pack((const GD_T *)g->b + pc * g->brs, g->bcs, g->brs, g->n, g->k - pc < GD_KC ? g->k - pc : GD_KC, I->nr, dst + pc * padded);
}

static size_t GD(scratch)(const amp_gemm *g) {
  GD(plan) p;
  GD(plan_of)(&p, g, GD(pick)());
  return (p.a_elems + p.b_elems) * sizeof(GD_T);
}

#undef GD
#undef GD_T
#undef GD_KC
#undef GD_MC
#undef GD_NC
#undef GD_SMALL
