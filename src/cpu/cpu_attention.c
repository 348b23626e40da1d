/*
** cpu_attention.c: rows attention and attention_backward (the private ones
** under scaled_dot_product_attention): sizes of blocks, scratch and threads.
** The loops are in cpu_attention_rows.h. 16-bit data is computed in float32 and
** rounded once.
**
** Memory besides the results is a block of scores and the packed keys and
** values of one batch a thread (backward: queries and gradients of one batch);
** never a matrix of all scores.
*/
#include "cpu_attention.h"
#include "cpu_iter.h"

/* 56 rows (whole register kernels) against 256 keys: read by the products where they lie, without packing */
enum { BLOCK_ROWS = 56, BLOCK_KEYS = 256 };

static int setup(attention *a, amp_tensor *const *in) {
  const amp_tensor *q = in[0], *k = in[1], *v = in[2];
  int nd = q->ndim;
  a->q = q;
  a->k = k;
  a->v = v;
  a->type = amp__nn_type(q->dtype);
  a->length = q->size[nd - 2];
  a->size = q->size[nd - 1];
  a->keys = k->size[nd - 2];
  a->vsize = v->size[nd - 1];
  a->batch = 1;
  for (int d = 0; d < nd - 2; d++) a->batch *= q->size[d];
  a->bq = a->length < BLOCK_ROWS ? a->length : BLOCK_ROWS;
  a->bk = a->keys < BLOCK_KEYS ? a->keys : BLOCK_KEYS;
  if (a->bk == 0) a->bk = 1;
  a->chunks = 1;
  return a->batch > 0 && a->length > 0;
}

static void no_pack(const void *ctx, int64_t k0, int64_t kc, int64_t i0, int64_t ni, int width, void *dst) {
  (void)ctx; (void)k0; (void)kc; (void)i0; (void)ni; (void)width; (void)dst;
}

/* Enough scratch for each product that the loops make, and for the smaller ones at the edges */
static void plan_products(attention *a) {
  int64_t sizes[4] = {a->bq, a->bk, a->size, a->vsize};
  a->gemm_bytes = 0;
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++)
      for (int k = 0; k < 4; k++) {
        if (i == j || j == k || i == k) continue;
        /* packers make it ask for both operands; C by columns, for the turned product too */
        amp_gemm g = {.m = sizes[i], .n = sizes[j], .k = sizes[k], .pack_a = no_pack, .pack_b = no_pack, .ccs = 1, .crs = 2};
        size_t n = amp__gemm_scratch(&g, a->type);
        if (n > a->gemm_bytes) a->gemm_bytes = n;
      }
  a->gemm_bytes = (a->gemm_bytes + 255) / 256 * 256 + 256;
}

static int run(attention *a, size_t elements, double flop, int64_t units, amp__nn_body body) {
  amp__nn_scratch s;
  int threads = flop < 2e6 ? 1 : amp__nn_threads((int64_t)(flop / 32), units);
  a->each = (a->gemm_bytes + elements * amp__dtype_size[a->type] + 4095) / 4096 * 4096;
  if (!amp__nn_lend(&s, NULL, 0, a->each * (size_t)threads)) return AMP_E_MEMORY;
  a->scratch = s.p;
  amp__nn_par(threads, units, body, a);
  amp__nn_give(&s);
  return 0;
}

static double work(const attention *a) {
  double pairs = (double)a->length * (double)a->keys * (a->causal ? 0.5 : 1.0);
  return 2.0 * (double)a->batch * pairs * (double)(a->size + a->vsize);
}

/* -- Forward ---------------------------------------------------------------------- */

static void forward_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const attention *a = ctx;
  char *scratch = a->scratch + (size_t)thread * a->each;
  int64_t blocks = (a->length + a->bq - 1) / a->bq;
  for (int64_t u = begin; u < end; u++) {
    int64_t b = u / a->chunks, c = u % a->chunks, lo = blocks * c / a->chunks * a->bq, hi = blocks * (c + 1) / a->chunks * a->bq;
    if (hi > a->length) hi = a->length;
    if (lo >= hi) continue;
    if (a->type == AMP_FLOAT64) amp__attention_forward_f64(a, b, lo, hi, scratch);
    else amp__attention_forward_f32(a, b, lo, hi, scratch);
  }
}

int amp__cpu_attention(amp_call *c) {
  attention a = {.mask = amp__nn_arg(c, 3), .causal = c->a[0].i != 0, .scale = c->a[1].f, .out = c->out[0], .lse = c->out[1]};
  if (!setup(&a, c->in)) return 0;
  plan_products(&a);
  double flop = work(&a);
  int threads = flop < 2e6 ? 1 : amp__threads((int64_t)(flop / 32));
  int64_t blocks = (a.length + a.bq - 1) / a.bq;
  if (a.batch < threads) { /* rows are shared too; each part packs the keys it needs */
    a.chunks = (threads + a.batch - 1) / a.batch;
    if (a.chunks > blocks) a.chunks = blocks;
  }
  size_t n = a.type == AMP_FLOAT64 ? amp__attention_forward_size_f64(&a) : amp__attention_forward_size_f32(&a);
  return run(&a, n, flop, a.batch * a.chunks, forward_body);
}

/* -- Backward -------------------------------------------------------------------------- */

static void backward_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const attention *a = ctx;
  char *scratch = a->scratch + (size_t)thread * a->each;
  for (int64_t b = begin; b < end; b++) {
    if (a->type == AMP_FLOAT64) amp__attention_backward_f64(a, b, scratch);
    else amp__attention_backward_f32(a, b, scratch);
  }
}

/* grad query key value out lse attn_mask? */
int amp__cpu_attention_backward(amp_call *c) {
  attention a = {.g = c->in[0], .out = c->in[4], .lse = c->in[5], .mask = amp__nn_arg(c, 6), .causal = c->a[0].i != 0, .scale = c->a[1].f,
                 .dq = c->out[0], .dk = c->out[1], .dv = c->out[2]};
  amp_tensor *lse = NULL;
  int rc = 0;
  if (!setup(&a, c->in + 1)) { /* no query: no gradient for keys either */
    if (amp__fill_value(c->out[1], 0) < 0) return AMP_E_INTERNAL;
    return amp__fill_value(c->out[2], 0);
  }
  plan_products(&a);
  if ((lse = amp__dense(c->in[5], a.type)) == NULL) return AMP_E_MEMORY;
  a.lse = lse;
  size_t n = a.type == AMP_FLOAT64 ? amp__attention_backward_size_f64(&a) : amp__attention_backward_size_f32(&a);
  rc = run(&a, n, 2.5 * work(&a), a.batch, backward_body);
  amp__free(lse);
  return rc;
}
