/*
** cpu_matmul.c: rows matmul and linear.
**
** Both become products over strides: transposed operands are read as they lie,
** and a batch whose second operand is one matrix joins the first one's rows,
** so (N x T x K) @ (K x M) is one product. 16-bit operands are widened first,
** results rounded once.
*/
#include "cpu_gemm.h"
#include "cpu_nn.h"

typedef struct batch {
  amp_gemm g;
  int dtype;
  amp__nn_walk w;        /* batch dimensions: offsets in a, b, c */
  const char *a, *b;
  char *c, *scratch;
  size_t each;
} batch;

static void batch_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const batch *k = ctx;
  int64_t size = amp__dtype_size[k->dtype];
  amp__nn_pos p;
  amp__nn_seek(&k->w, &p, begin);
  amp_gemm g = k->g;
  for (int64_t i = begin; i < end; i++, amp__nn_next(&k->w, &p)) {
    g.a = k->a + p.off[0] * size;
    g.b = k->b + p.off[1] * size;
    g.c = k->c + p.off[2] * size;
    if (amp__is_float(k->dtype)) amp__gemm(&g, k->dtype, k->scratch + (size_t)thread * k->each);
    else amp__gemm_int(&g, k->dtype);
  }
}

/* g's matrices, over a batch of nd dimensions with strides sa, sb, sc */
static int run(batch *k, int nd, const int64_t *size, const int64_t *sa, const int64_t *sb, const int64_t *sc) {
  char small[48 << 10] __attribute__((aligned(64)));
  amp_gemm *g = &k->g;
  k->a = g->a;
  k->b = g->b;
  k->c = g->c;
  const int64_t *strides[3] = {sa, sb, sc};
  amp__nn_walk_init(&k->w, nd, size, 0, 3, strides);
  amp__nn_walk *w = &k->w;
  if (w->n == 0 || g->m == 0 || g->n == 0) return 0;
  /* innermost batch dimensions of one B join the rows of A */
  while (w->ndim > 0) {
    int d = w->ndim - 1;
    if (w->stride[1][d] != 0 || (g->bias && g->bias_rs)) break;
    if (g->m > 1 && (w->stride[0][d] != g->ars * g->m || w->stride[2][d] != g->crs * g->m)) break;
    if (g->m == 1) { g->ars = w->stride[0][d]; g->crs = w->stride[2][d]; }
    g->m *= w->size[d];
    w->n /= w->size[d];
    w->ndim--;
  }
  double flop = 2.0 * (double)g->m * (double)g->n * (double)g->k;
  if (w->n == 1) {
    if (!amp__is_float(k->dtype)) { batch_body(k, 0, 1, 0); return 0; }
    /* about 50 GFLOP/s a core against one elementary operation a nanosecond */
    return amp__gemm_threads(g, k->dtype, flop < 2e6 ? 1 : amp__threads((int64_t)(flop / 32)));
  }
  flop *= (double)w->n;
  int threads = flop < 2e6 ? 1 : amp__nn_threads((int64_t)(flop / 32), w->n);
  amp__nn_scratch s = {0};
  if (amp__is_float(k->dtype)) {
    k->each = (amp__gemm_scratch(g, k->dtype) + 255) / 256 * 256;
    if (!amp__nn_lend(&s, small, sizeof small, k->each * (size_t)threads)) return AMP_E_MEMORY;
    k->scratch = s.p;
  }
  amp__nn_par(threads, w->n, batch_body, k);
  amp__nn_give(&s);
  return 0;
}

int amp__cpu_matmul(amp_call *c) {
  amp_tensor *a = c->in[0], *b = c->in[1], *o = c->out[0];
  int type = amp__is_float(o->dtype) ? amp__nn_type(o->dtype) : o->dtype, rc = AMP_E_MEMORY;
  amp__nn_view va = {0}, vb = {0}, vo = {0};
  if (!amp__nn_read(&va, a, type) || !amp__nn_read(&vb, b, type) || !amp__nn_write(&vo, o, type)) goto out;
  batch k = {.dtype = type};
  amp_gemm *g = &k.g;
  int na = a->ndim, nb = b->ndim, no = o->ndim;
  bool va1 = na == 1, vb1 = nb == 1;
  g->a = va.p; g->b = vb.p; g->c = vo.p;
  g->m = va1 ? 1 : a->size[na - 2];
  g->k = a->size[na - 1];
  g->n = vb1 ? 1 : b->size[nb - 1];
  g->ars = va1 ? 0 : va.stride[na - 2];
  g->acs = va.stride[na - 1];
  g->brs = vb.stride[vb1 ? 0 : nb - 2];
  g->bcs = vb1 ? 0 : vb.stride[nb - 1];
  int tail = (va1 ? 0 : 1) + (vb1 ? 0 : 1), nd = no - tail;
  g->crs = va1 ? 0 : vo.stride[nd];
  g->ccs = vb1 ? 0 : vo.stride[no - 1];
  if (va1) g->crs = g->ccs ? g->ccs * g->n : 1;   /* a single row or column: any stride will do */
  if (vb1) g->ccs = 1;
  int64_t sa[AMP_MAX_DIM] = {0}, sb[AMP_MAX_DIM] = {0}, sc[AMP_MAX_DIM] = {0};
  int ba = na - 2, bb = nb - 2;                   /* batch dimensions of each, aligned at the end */
  for (int d = 0; d < nd; d++) {
    int ia = ba - nd + d, ib = bb - nd + d;
    sa[d] = ia >= 0 && a->size[ia] != 1 ? va.stride[ia] : 0;
    sb[d] = ib >= 0 && b->size[ib] != 1 ? vb.stride[ib] : 0;
    sc[d] = vo.stride[d];
  }
  rc = run(&k, nd, o->size, sa, sb, sc);
out:
  if (rc == 0) amp__nn_written(&vo, o, type);
  amp__nn_drop(&va);
  amp__nn_drop(&vb);
  amp__nn_drop(&vo);
  return rc;
}

int amp__cpu_linear(amp_call *c) {
  amp_tensor *x = c->in[0], *w = c->in[1], *bias = c->nin > 2 ? c->in[2] : NULL, *o = c->out[0];
  int type = amp__nn_type(o->dtype), rc = AMP_E_MEMORY;
  amp__nn_view vx = {0}, vw = {0}, vb = {0}, vo = {0};
  if (!amp__nn_read(&vx, x, type) || !amp__nn_read(&vw, w, type) || (bias && !amp__nn_read(&vb, bias, type)) ||
      !amp__nn_write(&vo, o, type)) goto out;
  batch k = {.dtype = type};
  amp_gemm *g = &k.g;
  bool one = w->ndim == 1;                        /* a single output without its dimension */
  int nx = x->ndim, nd = nx > 1 ? nx - 2 : 0;
  g->a = vx.p; g->b = vw.p; g->c = vo.p;
  g->m = nx > 1 ? x->size[nx - 2] : 1;
  g->k = x->size[nx - 1];
  g->n = one ? 1 : w->size[0];
  g->ars = nx > 1 ? vx.stride[nx - 2] : g->k;
  g->acs = vx.stride[nx - 1];
  g->brs = vw.stride[w->ndim - 1];
  g->bcs = one ? 0 : vw.stride[0];
  g->crs = nx > 1 ? vo.stride[nx - 2] : g->n;
  g->ccs = one ? 1 : vo.stride[o->ndim - 1];
  if (bias) { g->bias = vb.p; g->bias_cs = bias->ndim ? vb.stride[0] : 0; }
  int64_t zero[AMP_MAX_DIM] = {0};
  rc = run(&k, nd, x->size, vx.stride, zero, vo.stride);
out:
  if (rc == 0) amp__nn_written(&vo, o, type);
  amp__nn_drop(&vx);
  amp__nn_drop(&vw);
  amp__nn_drop(&vb);
  amp__nn_drop(&vo);
  return rc;
}
