/*
** cudnn_attention.c: attention's forward and backward by cuDNN, where that is
** faster than own kernels: both are timed when a shape has come a few times.
**
** cuDNN has no operation for all of it in most of its versions: an engine takes a
** graph of products, pointwise operations and reductions in which it finds the
** pattern. Forward:
**
**   s = q k^T scale (causal: -inf where row < column)   m = max s   e = exp(s - m)
**   l = sum e   lse = m + ln l   out = (e / l) v
**
** Backward, d being a buffer of its own, and dq summed in float32 in another:
**
**   d = sum(g out)   p = exp(s - lse)   dv = p^T g   t = (g v^T - d) p scale
**   dk = t^T q   dq = t k
**
** dq is added to by atomics, so neither is used where runs must give the same bits.
*/
#include "cudnn_attention.h"
#include "amp_cudnn.h"

#ifndef AMP_DNN
int amp__cuda_dnn_attention(const amp_attend *a) { return 1; }
#else
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 91002 }; /* earlier versions have errors in these graphs */
static int made;        /* plans: each takes a good part of a second... */
/* ...so the more there are the more often must a shape have come before it has one */
static int patience(void) { return made < 8 ? 1 : made / 4; }
enum { Q, K, V, OUT, LSE, G, DQ, DK, DV, SIDES, DELTA = SIDES, SUM, SCALE, LOWEST, ONE, QUERIES, KEYS, IDS };

typedef struct key { /* whole: compared by its bytes */
  int64_t stride[SIDES][4];
  int64_t batch, heads, length, keys, size;
  int32_t backward, causal, dtype, device, counted; /* counted: cuDNN is told how many queries and keys there are */
} key;

typedef struct maker {
  const key *k;
  amp_dnn_graph *g;
  int64_t inner;
  void *scale, *lowest, *queries, *keys;
} maker;

/* -- Tensors of a graph ------------------------------------------------------------- */

static void *tensor(const maker *m, int id, int dtype, int64_t rows, int64_t columns, const int64_t *stride)
{
  const int64_t size[4] = { m->k->batch, m->k->heads, rows, columns };
  return amp__dnn_tensor(m->g, id + 1, dtype, 4, size, stride, 16, false);
}

static void *side(const maker *m, int id, int64_t rows)
{
  return tensor(m, id, m->k->dtype, rows, m->k->size, m->k->stride[id]);
}

static void *turned(const maker *m, int id, int64_t rows) /* columns first */
{
  const int64_t *s = m->k->stride[id], stride[4] = { s[0], s[1], s[3], s[2] };
  return tensor(m, id, m->k->dtype, m->k->size, rows, stride);
}

/* float32 in C order, of the caller */
static void *dense(const maker *m, int id, int64_t rows, int64_t columns)
{
  const int64_t stride[4] = { m->k->heads * rows * columns, rows * columns, columns, 1 };
  return tensor(m, id, AMP_FLOAT32, rows, columns, stride);
}

static void *between(maker *m, int dtype, int64_t rows, int64_t columns, bool turned)
{
  const int64_t size[4] = { m->k->batch, m->k->heads, rows, columns };
  const int64_t stride[4] = { m->k->heads * rows * columns, rows * columns, turned ? 1 : columns, turned ? rows : 1 };
  return amp__dnn_tensor(m->g, IDS + 1 + m->inner++, dtype, 4, size, stride, 16, true);
}

static void *scores(maker *m, int dtype) { return between(m, dtype, m->k->length, m->k->keys, false); }
static void *row(maker *m) { return between(m, AMP_FLOAT32, m->k->length, 1, false); }

static void *point(maker *m, cudnnPointwiseMode_t mode, void *x, void *b)
{
  void *y = scores(m, AMP_FLOAT32);
  amp__dnn_pointwise(m->g, mode, x, b, y);
  return y;
}

/* -- Graphs ------------------------------------------------------------------------- */

/* q k^T scale */
static void *score(maker *m, void *q, void *kt)
{
  void *s = scores(m, AMP_FLOAT32);
  amp__dnn_matmul(m->g, q, kt, s, m->queries, m->keys, NULL);
  m->scale = amp__dnn_number(m->g, SCALE + 1);
  if (m->k->causal || m->k->counted) m->lowest = amp__dnn_number(m->g, LOWEST + 1);
  return point(m, CUDNN_POINTWISE_MUL, s, m->scale);
}

static void *compared(maker *m, cudnnPointwiseMode_t mode, int compute, void *x, void *b)
{
  void *y = scores(m, AMP_BOOL);
  amp__dnn_pointwise_of(m->g, mode, compute, -1, x, b, NULL, y);
  return y;
}

/* Where a score is: its row (axis 2) or its column (3) */
static void *place(maker *m, int compute, int axis, void *s)
{
  void *y = scores(m, AMP_INT32);
  amp__dnn_pointwise_of(m->g, CUDNN_POINTWISE_GEN_INDEX, compute, axis, s, NULL, NULL, y);
  return y;
}

static void *where(maker *m, void *s, void *condition)
{
  void *y = scores(m, AMP_FLOAT32);
  amp__dnn_pointwise_of(m->g, CUDNN_POINTWISE_BINARY_SELECT, AMP_FLOAT32, -1, s, m->lowest, condition, y);
  return y;
}

static void *masked(maker *m, void *s)
{
  if (!m->k->causal) return s;
  void *i = place(m, AMP_FLOAT32, 2, s), *j = place(m, AMP_FLOAT32, 3, s);
  return where(m, s, compared(m, CUDNN_POINTWISE_CMP_GE, AMP_BOOL, i, j));
}

/* -inf beyond the queries and keys that there are: an engine's tiles go on there */
static void *within(maker *m, void *s)
{
  if (!m->k->counted) return s;
  void *i = place(m, AMP_INT32, 2, s), *j = place(m, AMP_INT32, 3, s);
  i = compared(m, CUDNN_POINTWISE_CMP_LT, AMP_BOOL, i, m->queries);
  j = compared(m, CUDNN_POINTWISE_CMP_LT, AMP_BOOL, j, m->keys);
  return where(m, s, compared(m, CUDNN_POINTWISE_LOGICAL_AND, AMP_BOOL, i, j));
}

static void *count(maker *m, int id)
{
  const int64_t size[4] = { m->k->batch, 1, 1, 1 }, stride[4] = { 1, 1, 1, 1 };
  return amp__dnn_tensor(m->g, id + 1, AMP_INT32, 4, size, stride, 4, false);
}

static void forward(maker *m)
{
  const key *k = m->k;
  void *s = masked(m, score(m, side(m, Q, k->length), turned(m, K, k->keys)));
  void *most = row(m), *sum = row(m), *ln = row(m), *p = scores(m, k->dtype);
  amp__dnn_reduce(m->g, CUDNN_REDUCE_TENSOR_MAX, s, most);
  void *e = point(m, CUDNN_POINTWISE_EXP, point(m, CUDNN_POINTWISE_SUB, s, most), NULL);
  amp__dnn_reduce(m->g, CUDNN_REDUCE_TENSOR_ADD, e, sum);
  amp__dnn_pointwise(m->g, CUDNN_POINTWISE_LOG, sum, NULL, ln);
  amp__dnn_pointwise(m->g, CUDNN_POINTWISE_ADD, most, ln, dense(m, LSE, k->length, 1));
  amp__dnn_pointwise(m->g, CUDNN_POINTWISE_DIV, e, sum, p);
  amp__dnn_matmul(m->g, p, side(m, V, k->keys), side(m, OUT, k->length), NULL, NULL, NULL);
}

/* x of scores, as columns of 16-bit numbers */
static void *transposed(maker *m, void *x)
{
  void *y = between(m, m->k->dtype, m->k->keys, m->k->length, true);
  amp__dnn_reshape(m->g, x, y);
  return y;
}

static void backward(maker *m)
{
  const key *k = m->k;
  void *q = side(m, Q, k->length), *kt = turned(m, K, k->keys), *g = side(m, G, k->length);
  void *each = between(m, AMP_FLOAT32, k->length, k->size, false), *sum = row(m), *d = dense(m, DELTA, k->length, 1);
  amp__dnn_pointwise(m->g, CUDNN_POINTWISE_MUL, g, side(m, OUT, k->length), each);
  amp__dnn_reduce(m->g, CUDNN_REDUCE_TENSOR_ADD, each, sum);
  amp__dnn_pointwise(m->g, CUDNN_POINTWISE_MUL, sum, amp__dnn_number(m->g, ONE + 1), d);
  if (k->counted) {
    m->queries = count(m, QUERIES);
    m->keys = count(m, KEYS);
  }

  void *s = point(m, CUDNN_POINTWISE_SUB, within(m, score(m, q, kt)), dense(m, LSE, k->length, 1));
  void *p = point(m, CUDNN_POINTWISE_EXP, masked(m, s), NULL);
  amp__dnn_matmul(m->g, transposed(m, p), g, side(m, DV, k->keys), m->keys, NULL, m->queries);

  void *t = scores(m, AMP_FLOAT32);
  amp__dnn_matmul(m->g, g, turned(m, V, k->keys), t, m->queries, m->keys, NULL);
  t = point(m, CUDNN_POINTWISE_MUL, point(m, CUDNN_POINTWISE_SUB, t, d), p);
  t = point(m, CUDNN_POINTWISE_MUL, t, m->scale);
  amp__dnn_matmul(m->g, transposed(m, t), q, side(m, DK, k->keys), m->keys, NULL, m->queries);

  const int64_t size[4] = { k->batch, k->heads, k->keys, k->size };
  void *keys = amp__dnn_tensor(m->g, IDS + 1 + m->inner++, k->dtype, 4, size, k->stride[K], 16, true),
       *dq = dense(m, SUM, k->length, k->size);
  amp__dnn_reshape(m->g, kt, keys);
  amp__dnn_matmul(m->g, t, keys, dq, m->queries, NULL, m->keys);
  amp__dnn_pointwise(m->g, CUDNN_POINTWISE_IDENTITY, dq, NULL, side(m, DQ, k->length));
}

/* -- Calls ---------------------------------------------------------------------------- */

/* A tensor's strides as of four dimensions; false: an operand whose elements lie on top of each other */
static bool strides(const amp_tensor *t, int64_t *stride)
{
  int n = t->ndim;
  int64_t next = 1;
  for (int d = 3; d >= 0; d--) {
    int at = d >= 2 ? n - 4 + d : n == 4 ? d : n == 3 && d == 1 ? 0 : -1;
    int64_t size = at >= 0 ? t->size[at] : 1;
    stride[d] = size > 1 ? t->stride[at] : next;
    if (stride[d] <= 0) return false;
    next = size * stride[d];
  }
  return stride[3] == 1;
}

static bool key_of(key *k, const amp_attend *a)
{
  const amp_tensor *t[SIDES] = { a->q, a->k, a->v, a->out, NULL, a->g, a->dq, a->dk, a->dv };
  int n = a->q->ndim;
  memset(k, 0, sizeof *k);
  k->batch = n > 3 ? a->q->size[0] : 1;
  k->heads = n > 2 ? a->q->size[n - 3] : 1;
  k->length = a->q->size[n - 2];
  k->size = a->q->size[n - 1];
  k->keys = a->k->size[n - 2];
  k->backward = a->g != NULL;
  k->causal = a->causal;
  k->dtype = a->q->dtype;
  k->device = amp__cuda_here()->index;
  k->counted = k->backward && k->keys % 128 != 0
               && amp__dnn_version() <= 91500; /* which is wrong else at such a number of keys */
  for (int i = 0; i < SIDES; i++)
    if (t[i] && (i < G || a->g) && !strides(t[i], k->stride[i])) return false;
  return true;
}

static bool wanted(const amp_attend *a)
{
  const amp_tensor *q = a->q;
  int n = q->ndim;
  int64_t keys = a->k->size[n - 2];
  if (amp__cuda_cudnn == 0 || amp__cuda_deterministic || n > 4 || !(a->scale > 0) || !isfinite(a->scale)) return false;
  if (amp__cuda_here()->cc < 80 || q->size[n - 2] < 2 || keys < 2) return false;
  if (amp__cuda_cudnn == 1 && (double)q->numel * (double)keys < 1e8) return false; /* too little to be worth a plan */
  return amp__dnn_version() >= LEAST;
}

/* The numbers of queries and keys, once a batch, as cuDNN wants them, kept for the life of the plan */
static bool counts(amp_dnn_plan *p, const key *k)
{
  size_t n = (size_t)k->batch;
  int32_t *list = malloc(2 * n * sizeof *list);
  for (size_t i = 0; list && i < 2 * n; i++) list[i] = (int32_t)(i < n ? k->length : k->keys);
  if (list && cudaMalloc(&p->own, 2 * n * sizeof *list) == cudaSuccess
      && cudaMemcpy(p->own, list, 2 * n * sizeof *list, cudaMemcpyHostToDevice) != cudaSuccess) {
    cudaFree(p->own);
    p->own = NULL;
  }
  free(list);
  if (!p->own) cudaGetLastError();
  return p->own != NULL;
}

int amp__cuda_dnn_attention(const amp_attend *a)
{
  key k;
  int rc = 1;
  float scale = a->scale, lowest = -INFINITY, one = 1;
  amp_tensor *scratch = NULL;
  if (!wanted(a) || !key_of(&k, a) || !amp__dnn_enter()) return 1;
  bool capture = amp__cuda_here()->capture;
  amp_dnn_plan *p = amp__dnn_find(&k, sizeof k, !capture);
  if (!p || p->state == AMP_DNN_NONE) goto out;
  if (p->state == AMP_DNN_NEW && (capture || (amp__cuda_cudnn == 1 && p->calls++ < patience()))) goto out;
  amp_dnn_job job = { .rival = amp__cuda_cudnn == 1 ? a->own : NULL, .rival_data = a->own_data };
#define SIDE(i, p)                      \
  do {                                  \
    job.id[job.n] = (i) + 1;            \
    job.pointer[job.n++] = (void *)(p); \
  } while (0)
  SIDE(Q, amp__data(a->q));
  SIDE(K, amp__data(a->k));
  SIDE(V, amp__data(a->v));
  SIDE(OUT, amp__data(a->out));
  SIDE(LSE, amp__data(a->lse));
  SIDE(SCALE, &scale);
  if (k.causal || k.counted) SIDE(LOWEST, &lowest);
  if (k.counted) {
    if (!p->own && !counts(p, &k)) goto out;
    SIDE(QUERIES, p->own);
    SIDE(KEYS, (int32_t *)p->own + k.batch);
  }
  if (k.backward) {
    size_t rows = (size_t)k.batch * (size_t)k.heads * (size_t)k.length,
           delta = (rows * sizeof(float) + 255) & ~(size_t)255;
    if (!(scratch = amp__cuda_scratch(delta + rows * (size_t)k.size * sizeof(float))))
      goto out; /* own kernels need less */
    SIDE(G, amp__data(a->g));
    SIDE(DQ, amp__data(a->dq));
    SIDE(DK, amp__data(a->dk));
    SIDE(DV, amp__data(a->dv));
    SIDE(DELTA, amp__data(scratch));
    SIDE(SUM, (char *)amp__data(scratch) + delta);
    SIDE(ONE, &one);
  }
#undef SIDE
  if (p->state == AMP_DNN_NEW) {
    amp_dnn_graph g;
    maker m = { .k = &k, .g = &g };
    amp__dnn_begin(&g);
    if (k.backward) backward(&m);
    else forward(&m);
    made++;
    amp__dnn_make(p, &g, &job);
  }
  if (p->state != AMP_DNN_USABLE) goto out;
  rc = amp__dnn_execute(p, &job);
  if (rc == 1) p->state = AMP_DNN_NONE;
  if (rc == 2) rc = 1; /* no memory for it: own kernels need less */
out:
  amp__free(scratch);
  amp__dnn_leave();
  return rc;
}
#endif
