/*
** cpu_rnn.c: rows rnn_layer and rnn_layer_backward: operands, weights packed
** once, scratch and threads. The loops are in cpu_rnn_rows.h, the products in
** cpu_rnn_product.c.
**
** The input's projection of the whole sequence is one product, shared out by
** rows; then the steps run, shared out by batch elements. Gradients of weights
** are not made here: the derivative multiplies what rnn_layer_backward leaves.
*/
#include "cpu_rnn.h"
#include "cpu_iter.h"

/* tensors in C order that stand for arguments and results */
enum { HELD = 12 };
typedef struct hold {
  amp_tensor *t[HELD], *result[HELD]; /* result: the tensor that t is written to at the end, or NULL */
  int n;
  amp__nn_scratch first, weights, scratch;
} hold;

/* -- Operands -------------------------------------------------------------------- */

static const void *given(hold *k, amp_tensor *t, int dtype, bool *ok) {
  amp_tensor *d = t ? amp__dense(t, dtype) : NULL;
  if (d == NULL) { *ok = *ok && t == NULL; return NULL; }
  k->result[k->n] = NULL;
  k->t[k->n++] = d;
  return amp__data(d);
}

static void *result(hold *k, amp_tensor *t, int dtype, bool *ok) {
  bool own = t->dtype == dtype && (t->flags & AMP_T_CONTIGUOUS);
  amp_tensor *d = own ? t : amp__tensor_make(dtype, AMP_CPU, 0, t->ndim, t->size);
  if (d == NULL) { *ok = false; return NULL; }
  if (own) amp__retain(t);
  k->result[k->n] = own ? NULL : t;
  k->t[k->n++] = d;
  return amp__data(d);
}

static int finish(hold *k, int rc) {
  for (int i = 0; i < k->n; i++) {
    if (rc == 0 && k->result[i]) rc = amp__copy_to(k->result[i], k->t[i]);
    amp__free(k->t[i]);
  }
  amp__nn_give(&k->first);
  amp__nn_give(&k->weights);
  amp__nn_give(&k->scratch);
  return rc;
}

static bool lend(amp__nn_scratch *s, size_t bytes) { return amp__nn_lend(s, NULL, 0, bytes); }

/* -- Sizes ----------------------------------------------------------------------------- */

static void types(rnn *r, const amp_tensor *w_hh, const amp_slot *a) {
  r->mode = (int)a[0].i;
  r->reverse = a[1].i != 0;
  r->dtype = w_hh->dtype;
  r->type = amp__nn_type(w_hh->dtype);
  r->op = w_hh->dtype == AMP_BFLOAT16 && amp__rnn_bf16() ? AMP_BFLOAT16 : r->type;
  r->round = r->op != r->dtype;
  r->g = w_hh->size[0];
  r->h = r->g / (r->mode == RNN_LSTM ? 4 : r->mode == RNN_GRU ? 3 : 1);
  r->r = w_hh->size[1];
  r->rs = r->h * (r->mode == RNN_LSTM ? 5 : r->mode == RNN_GRU ? 4 : 1);
  r->wide = r->h > r->r ? r->h : r->r;
}

/* Steps and their rows: of `data` (steps x batch x ..., or rows x ... with batch sizes) */
static int steps(rnn *r, hold *k, const amp_tensor *data, const amp_tensor *sizes, int64_t n) {
  r->n = n;
  if (sizes == NULL) {
    r->t = data->size[0];
    r->rows = r->t * n;
    return 0;
  }
  r->t = sizes->size[0];
  r->rows = data->size[0];
  if (!lend(&k->first, sizeof(int64_t) * (size_t)(r->t + 1))) return AMP_E_MEMORY;
  r->first = k->first.p;
  r->first[0] = 0;
  for (int64_t t = 0, last = n; t < r->t; t++) {
    int64_t m = (int64_t)amp__element(sizes, t * sizes->stride[0]);
    if (m < 1 || m > last || (t == 0 && m != n))
      return amp__fail(AMP_E_VALUE, "batch_sizes must begin with the batch size %lld, stay above 0 and never grow; number %lld is %lld", (long long)n,
          (long long)(t + 1), (long long)m);
    last = m;
    r->first[t + 1] = r->first[t] + m;
  }
  if (r->first[r->t] == r->rows) return 0;
  return amp__fail(AMP_E_VALUE, "batch_sizes add up to %lld, input has %lld rows", (long long)r->first[r->t], (long long)r->rows);
}

/* w as B of products: for `turned` the results are w's columns, else its rows */
static void *pack(rnn_weight *w, const rnn *r, const void *src, int64_t rows, int64_t cols, bool turned, void *dst) {
  w->n = turned ? cols : rows;
  w->k = turned ? rows : cols;
  w->op = r->op;
  w->type = r->type;
  w->packed = NULL;
  if (dst) amp__rnn_pack(w, src, turned ? cols : 1, turned ? 1 : cols, dst);
  return (char *)dst + (amp__rnn_packed(w) + 63) / 64 * 64;
}

/* Threads for all steps, and scratch for them: batch elements are shared out, at least 4 a thread (a product of
** fewer rows reads the weights as often). */
static int threads_for(rnn *r, hold *k, double flop, int *threads) {
  int64_t most = (r->n + 3) / 4, products = 0;
  *threads = flop < 2e6 ? 1 : amp__nn_threads((int64_t)(flop / 32), most);
  int64_t part = (r->n + *threads - 1) / *threads;
  for (int64_t m = 1; m <= part; m++) { /* a smaller product may pack where a larger one reads in place, or the other way */
    int64_t s = (int64_t)amp__rnn_gemm(&r->hh, m);
    if (s > products) products = s;
  }
  r->gemm = ((size_t)products + 63) / 64 * 64;
  r->each = (r->gemm + amp__rnn_room(r, part) * amp__dtype_size[r->type] + 4095) / 4096 * 4096;
  if (!lend(&k->scratch, r->each * (size_t)*threads)) return AMP_E_MEMORY;
  r->scratch = k->scratch.p;
  return 0;
}

/* -- Forward ------------------------------------------------------------------------------ */

enum { BLOCK = 336 }; /* rows of the projection that a thread takes at once */

typedef struct projection { const rnn *r; char *scratch; size_t each; } projection;

static void project_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const projection *p = ctx;
  const rnn *r = p->r;
  for (int64_t b = begin; b < end; b++) {
    int64_t row = b * BLOCK, m = r->rows - row < BLOCK ? r->rows - row : BLOCK;
    amp__rnn_product(&r->ih, m, rnn_at(r->x, row * r->in, r->op), r->in, rnn_at(r->reserve, row * r->rs, r->type), r->rs, false, r->bias,
                     p->scratch + (size_t)thread * p->each);
  }
}

static int project(const rnn *r) {
  char small[16 << 10] __attribute__((aligned(64)));
  int64_t blocks = (r->rows + BLOCK - 1) / BLOCK, last = r->rows % BLOCK;
  double flop = 2.0 * (double)r->rows * (double)r->g * (double)r->in;
  int threads = flop < 2e6 ? 1 : amp__nn_threads((int64_t)(flop / 32), blocks);
  size_t a = amp__rnn_gemm(&r->ih, r->rows < BLOCK ? r->rows : BLOCK), b = amp__rnn_gemm(&r->ih, last);
  projection p = {r, NULL, ((a > b ? a : b) + 255) / 256 * 256};
  amp__nn_scratch s;
  if (!amp__nn_lend(&s, small, sizeof small, p.each * (size_t)threads)) return AMP_E_MEMORY;
  p.scratch = s.p;
  amp__nn_par(threads, blocks, project_body, &p);
  amp__nn_give(&s);
  return 0;
}

#define BIASES(T)                                                                                   \
  {                                                                                                 \
    const T *a = b_ih, *b = b_hh;                                                                   \
    T *s = sum, *q = sum + (size_t)r->g * sizeof(T);                                                \
    int64_t own = r->mode == RNN_GRU ? 2 * r->h : r->g; /* a GRU's last gate keeps the state's bias apart */ \
    for (int64_t j = 0; j < r->g; j++) s[j] = (a ? a[j] : 0) + (b && j < own ? b[j] : 0);           \
    if (r->mode == RNN_GRU) for (int64_t j = 0; j < r->h; j++) q[j] = b ? b[own + j] : 0;           \
    r->bias = s;                                                                                    \
    r->bias_hn = q;                                                                                 \
  }

static void biases(rnn *r, const void *b_ih, const void *b_hh, void *sum) {
  if (r->type == AMP_FLOAT64) BIASES(double)
  else BIASES(float)
}

static void forward_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const rnn *r = ctx;
  void *scratch = r->scratch + (size_t)thread * r->each;
  if (r->type == AMP_FLOAT64) amp__rnn_forward_f64(r, begin, end, scratch);
  else amp__rnn_forward_f32(r, begin, end, scratch);
}

int amp__cpu_rnn_layer(amp_call *c) {
  amp_tensor *in[8], *y = c->out[0];
  rnn r = {0};
  hold k = {.n = 0};
  bool ok = true;
  int rc, threads;
  for (int i = 0; i < 8; i++) in[i] = amp__nn_arg(c, i);
  types(&r, in[4], c->a);
  if ((rc = steps(&r, &k, in[0], in[7], in[1]->size[0])) < 0) goto out;
  r.in = in[0]->size[in[0]->ndim - 1];
  rc = AMP_E_MEMORY;
  r.x = given(&k, in[0], r.op, &ok);
  r.h0 = given(&k, in[1], r.op, &ok);
  r.c0 = given(&k, in[2], r.type, &ok);
  const void *w_ih = given(&k, in[3], r.op, &ok), *w_hh = given(&k, in[4], r.op, &ok);
  const void *b_ih = given(&k, in[5], r.type, &ok), *b_hh = given(&k, in[6], r.type, &ok);
  r.y = result(&k, y, r.op, &ok);
  r.hn = result(&k, c->out[1], r.op, &ok);
  r.cn = result(&k, c->out[2], r.type, &ok);
  r.reserve = result(&k, c->out[3], r.type, &ok);
  if (!ok) goto out;
  if (r.mode == RNN_LSTM) memcpy(rnn_at(r.reserve, r.rows * r.rs, r.type), r.c0, amp__dtype_size[r.type] * (size_t)(r.n * r.h));
  void *end = pack(&r.hh, &r, w_hh, r.g, r.r, false, NULL);
  size_t hh = (size_t)(uintptr_t)end, ih = (size_t)(uintptr_t)pack(&r.ih, &r, w_ih, r.g, r.in, false, NULL);
  if (!lend(&k.weights, hh + ih + (size_t)(r.g + r.h) * 8)) goto out;
  end = pack(&r.hh, &r, w_hh, r.g, r.r, false, k.weights.p);
  end = pack(&r.ih, &r, w_ih, r.g, r.in, false, end);
  biases(&r, b_ih, b_hh, end);
  double flop = 2.0 * (double)r.rows * (double)r.g * (double)r.r;
  if ((rc = threads_for(&r, &k, flop, &threads)) < 0 || (rc = project(&r)) < 0) goto out;
  amp__nn_par(threads, r.n, forward_body, &r);
out:
  return finish(&k, rc);
}

/* -- Backward ----------------------------------------------------------------------------- */

static void backward_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const rnn *r = ctx;
  void *scratch = r->scratch + (size_t)thread * r->each;
  if (r->type == AMP_FLOAT64) amp__rnn_backward_f64(r, begin, end, scratch);
  else amp__rnn_backward_f32(r, begin, end, scratch);
}

/* grad? grad_h? grad_c? reserve w_hh result hx batch_sizes? -> of gates, of hx, of cx (LSTM) or of the state's gates
** (GRU), and each step's state before it (none for a single step) */
int amp__cpu_rnn_layer_backward(amp_call *c) {
  amp_tensor *in[8];
  rnn r = {0};
  hold k = {.n = 0};
  bool ok = true;
  int rc, threads;
  for (int i = 0; i < 8; i++) in[i] = amp__nn_arg(c, i);
  types(&r, in[4], c->a);
  if ((rc = steps(&r, &k, in[5], in[7], in[6]->size[0])) < 0) goto out;
  rc = AMP_E_MEMORY;
  r.gy = given(&k, in[0], r.type, &ok);
  r.ghn = given(&k, in[1], r.type, &ok);
  r.gcn = given(&k, in[2], r.type, &ok);
  r.reserve = (void *)(uintptr_t)given(&k, in[3], r.type, &ok);
  const void *w_hh = given(&k, in[4], r.op, &ok);
  r.y = (void *)(uintptr_t)given(&k, in[5], r.op, &ok);
  r.h0 = given(&k, in[6], r.op, &ok);
  r.dg = result(&k, c->out[0], r.op, &ok);
  r.dh0 = result(&k, c->out[1], r.type, &ok);
  if (r.mode == RNN_GRU) r.dgh = result(&k, c->out[2], r.op, &ok);
  else r.dc0 = result(&k, c->out[2], r.type, &ok);
  if (c->out[3]->numel > 0) r.hprev = result(&k, c->out[3], r.op, &ok);
  if (!ok) goto out;
  if (!lend(&k.weights, (size_t)(uintptr_t)pack(&r.hh, &r, w_hh, r.g, r.r, true, NULL))) goto out;
  pack(&r.hh, &r, w_hh, r.g, r.r, true, k.weights.p);
  double flop = 2.0 * (double)r.rows * (double)r.g * (double)r.r;
  if ((rc = threads_for(&r, &k, flop, &threads)) < 0) goto out;
  amp__nn_par(threads, r.n, backward_body, &r);
out:
  return finish(&k, rc);
}
