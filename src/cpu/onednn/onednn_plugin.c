/*
** onednn_plugin.c: libamp_onednn.so. It takes the CPU's slots of matmul, linear
** and the convolutions, for float32 and bfloat16; whatever it can't do (other
** dtypes, odd layouts, tiny products) goes to the slot's kernel from before.
**
** A primitive is made once for a shape and kept, with its memory objects, in a
** table of the thread, so nothing is shared and a call only sets pointers.
** Operands are described by their own strides; where the primitive wants
** another layout, the data are moved before (or after) it, through scratch
** memory of the thread: by a reorder, or between layouts that onednn_layout.c
** knows by that. What oneDNN would only do by its reference loops is refused.
** float32 products under 2 MFLOP are left to the plain kernel, which has less
** to do around them; threads are as many as the core deems right.
*/
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#include "amp_hash.h"
#include "onednn.h"
#include "../cpu_isa.h"

enum { SLOTS = 256, KEY = 48, MAX_OPERAND = 4 };

enum how { AS_IT_LIES, REORDER, LAYOUT, FINISH }; /* how an operand gets into the primitive's layout (or out of it) */

typedef struct operand {
  dnnl_memory_t user, own;     /* own: as the primitive wants it; the same as user if it takes it as it lies */
  dnnl_primitive_t reorder;
  dnn_layout layout;           /* LAYOUT, FINISH */
  size_t bytes;                /* of own, if it is another */
  bool out, last, bias_half;   /* FINISH: the result has channels last; the bias's dtype */
  int arg, how;
} operand;

typedef struct entry {
  int64_t key[KEY];
  dnnl_primitive_t prim;       /* NULL: oneDNN can't, remembered */
  dnnl_memory_t scratch;
  size_t scratch_bytes;
  int n, threads;
  operand x[MAX_OPERAND];
  struct entry *next;
} entry;

typedef struct cache { entry *slot[SLOTS]; int count; char *mem; size_t bytes; } cache;

static amp_kernel_fn plain[AMP_OP_COUNT];
static int (*core_threads)(int64_t work);
static dnnl_engine_t engine;
static _Thread_local cache *mine;
static _Thread_local dnnl_stream_t stream;
static pthread_key_t key;

/* -- The thread's table ---------------------------------------------------------- */

static void entry_free(entry *e)
{
  for (int i = 0; i < e->n; i++) {
    if (e->x[i].own && e->x[i].own != e->x[i].user) dnnl_memory_destroy(e->x[i].own);
    if (e->x[i].user) dnnl_memory_destroy(e->x[i].user);
    if (e->x[i].reorder) dnnl_primitive_destroy(e->x[i].reorder);
  }
  if (e->scratch) dnnl_memory_destroy(e->scratch);
  if (e->prim) dnnl_primitive_destroy(e->prim);
  free(e);
}

static void clear(cache *c)
{
  for (int i = 0; i < SLOTS; i++)
    for (entry *e = c->slot[i], *next; e; e = next) { next = e->next; entry_free(e); }
  memset(c->slot, 0, sizeof c->slot);
  c->count = 0;
}

static void thread_ends(void *p)
{
  cache *c = p;
  clear(c);
  free(c->mem);
  free(c);
}

static cache *table(void)
{
  if (mine) return mine;
  if (stream == NULL && dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) != dnnl_success) return NULL;
  mine = calloc(1, sizeof *mine);
  if (mine) pthread_setspecific(key, mine);
  return mine;
}

/* A key's first word is its length. */
static size_t hash_of(const int64_t *k)
{
  uint64_t h = 14695981039346656037u;
  for (int i = 0; i < k[0]; i++) h = (h ^ (uint64_t)k[i]) * UINT64_C(0x9e3779b97f4a7c15), h ^= h >> 29;
  return h % SLOTS;
}

static void *memory(cache *c, size_t n)
{
  if (n > c->bytes) {
    void *p;
    if (posix_memalign(&p, 64, n + n / 4) != 0) return NULL;
    free(c->mem);
    c->mem = p;
    c->bytes = n + n / 4;
  }
  return c->mem;
}

/* -- Threads ------------------------------------------------------------------------ */

/* For so many floating-point operations, of which a core does some 32 in the time of a simple one */
static int threads_for(double flop) { return flop < 2e6 ? 1 : core_threads((int64_t)(flop / 32)); }

/* oneDNN takes the OpenMP runtime's number, when making a primitive as when running it. Gives the one before. */
static int use_threads(int n)
{
#ifdef _OPENMP
  int before = omp_get_max_threads();
  if (before != n) omp_set_num_threads(n);
  return before;
#else
  return n;
#endif
}

/* of float32 and bfloat16 tensors, the only ones here */
static void *data_of(const amp_tensor *t) { return (char *)t->storage->data + t->offset * (t->dtype == AMP_FLOAT32 ? 4 : 2); }
static int type_of(const amp_tensor *t) { return t->dtype == AMP_FLOAT32 ? (int)dnnl_f32 : t->dtype == AMP_BFLOAT16 ? (int)dnnl_bf16 : -1; }

/* -- Making an entry --------------------------------------------------------------- */

/* The layout of md, data of `size` in n dimensions: block 1, C or 16; false: another one. `type` is md's. */
static bool layout_of(dnn_layout *l, dnn_md md, int n, const int64_t *size, int type)
{
  int64_t plain[5], last[5], p = 1;
  for (int i = n - 1; i > 1; i--) { plain[i] = p; last[i] = p * size[1]; p *= size[i]; }
  plain[1] = p; last[1] = 1;
  plain[0] = last[0] = p * size[1];
  *l = (dnn_layout){ size[0], size[1], p, 0, type == (int)dnnl_f32 ? 4 : 2 };
  dnn_md some[3] = { dnn_md_strided(n, size, type, plain), dnn_md_strided(n, size, type, last), size[1] % 16 ? NULL : dnn_md_blocked(n, size, type) };
  const int64_t block[3] = { 1, size[1], 16 };
  for (int i = 0; i < 3; i++) {
    if (some[i] && l->block == 0 && dnnl_memory_desc_equal(md, some[i])) l->block = block[i];
    if (some[i]) dnn_md_free(some[i]);
  }
  return l->block > 0;
}

/* data: the tensor if it is an image, else NULL */
static bool add_operand(entry *e, int arg, bool out, dnn_md user, dnn_md want, const amp_tensor *data, int type)
{
  operand *x = &e->x[e->n++];
  dnnl_primitive_desc_t pd;
  x->arg = arg;
  x->out = out;
  if (dnnl_memory_create(&x->user, user, engine, DNNL_MEMORY_NONE) != dnnl_success) return false;
  if (want == NULL || dnnl_memory_desc_equal(user, want)) { x->own = x->user; return true; }
  if (dnnl_memory_create(&x->own, want, engine, DNNL_MEMORY_NONE) != dnnl_success) { x->own = NULL; return false; }
  x->bytes = (dnnl_memory_desc_get_size(want) + 63) / 64 * 64;
  x->how = LAYOUT;
  if (data && (data->flags & AMP_T_CONTIGUOUS) && layout_of(&x->layout, want, data->ndim, data->size, type) && x->layout.block > 1) return true;
  x->how = REORDER;
  if (dnnl_reorder_primitive_desc_create(&pd, out ? want : user, engine, out ? user : want, engine, NULL) != dnnl_success) return false;
  bool ok = dnnl_primitive_create(&x->reorder, pd) == dnnl_success;
  dnnl_primitive_desc_destroy(pd);
  return ok;
}

/* The result as float32 sums, to which a bias is added on the way into the tensor */
static bool add_finish(entry *e, int arg, dnn_md user, dnn_md want, const amp_tensor *data, const amp_tensor *bias)
{
  operand *x = &e->x[e->n++];
  x->arg = arg;
  x->out = true;
  x->how = FINISH;
  x->last = !(data->flags & AMP_T_CONTIGUOUS);
  x->bias_half = bias->dtype != AMP_FLOAT32;
  if (!layout_of(&x->layout, want, data->ndim, data->size, dnnl_f32)) return false;
  x->layout.bytes = data->dtype == AMP_FLOAT32 ? 4 : 2;
  x->bytes = (dnnl_memory_desc_get_size(want) + 63) / 64 * 64;
  return dnnl_memory_create(&x->user, user, engine, DNNL_MEMORY_NONE) == dnnl_success
         && dnnl_memory_create(&x->own, want, engine, DNNL_MEMORY_NONE) == dnnl_success;
}

/* Correct, and a thousand times too slow */
static bool by_reference(dnnl_primitive_desc_t pd)
{
  const char *name = NULL;
  return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success && name && strncmp(name, "ref", 3) == 0;
}

/* Fill e for problem p, whose descriptors say what the primitive may choose; user: how the tensors really lie, which
** are src and dst (of a convolution, else NULL). finish: a bias that the primitive does not take. */
static void build(entry *e, const dnn_problem *p, const dnn_problem *user, const amp_tensor *src, const amp_tensor *dst, const amp_tensor *finish)
{
  int before = use_threads(e->threads);
  static const int args[4][4] = {
    { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST },
    { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST },
    { DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, 0, DNNL_ARG_DIFF_DST },
    { DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, 0, DNNL_ARG_DIFF_DST } };
  static const dnnl_query_t asks[4][3] = {
    { dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md }, { dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md },
    { dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md }, { dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md } };
  dnnl_primitive_attr_t attr = NULL;
  dnnl_primitive_desc_t pd = NULL;
  const int *arg = args[p->kind];
  const dnnl_query_t *ask = asks[p->kind];
  bool ok = dnnl_primitive_attr_create(&attr) == dnnl_success
            && dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success
            && dnn_primitive_desc(&pd, p, engine, attr) == dnnl_success && !by_reference(pd);
  int type = src ? type_of(src) : 0;
  ok = ok && (finish ? add_finish(e, arg[0], user->src, dnn_query(pd, ask[0]), src, finish)
                     : add_operand(e, arg[0], p->kind == DNN_CONV_INPUT, user->src, dnn_query(pd, ask[0]), src, type))
       && add_operand(e, arg[1], p->kind == DNN_CONV_WEIGHT, user->weight, dnn_query(pd, ask[1]), NULL, 0)
       && add_operand(e, arg[3], p->kind == DNN_MATMUL || p->kind == DNN_CONV, user->dst, dnn_query(pd, ask[2]), dst, type)
       && (user->bias == NULL || add_operand(e, arg[2], false, user->bias, NULL, NULL, 0));
  if (ok) {
    dnn_md s = dnn_query(pd, dnnl_query_scratchpad_md);
    e->scratch_bytes = s ? dnnl_memory_desc_get_size(s) : 0;
    ok = (s == NULL || e->scratch_bytes == 0 || dnnl_memory_create(&e->scratch, s, engine, DNNL_MEMORY_NONE) == dnnl_success)
         && dnnl_primitive_create(&e->prim, pd) == dnnl_success;
  }
  if (!ok && e->prim) { dnnl_primitive_destroy(e->prim); e->prim = NULL; }
  if (pd) dnnl_primitive_desc_destroy(pd);
  if (attr) dnnl_primitive_attr_destroy(attr);
  use_threads(before);
}

static void free_problem(dnn_problem *p)
{
  dnn_md_free(p->src);
  dnn_md_free(p->weight);
  dnn_md_free(p->bias);
  dnn_md_free(p->dst);
  dnn_md_free(p->hint_src);
}

/* -- Running ------------------------------------------------------------------------ */

/* data: src, weight, dst, bias in this order (bias may be missing). false: not done, nothing written that counts. */
static bool execute(cache *c, entry *e, void *const *data)
{
  dnnl_exec_arg_t args[MAX_OPERAND + 1];
  size_t need = 64 + e->scratch_bytes, at = (e->scratch_bytes + 63) / 64 * 64;
  void *own[MAX_OPERAND];
  if (e->prim == NULL) return false;
  for (int i = 0; i < e->n; i++) need += e->x[i].bytes;
  char *mem = need > 64 ? memory(c, need) : NULL;
  if (need > 64 && mem == NULL) return false;
  for (int i = 0; i < e->n; i++) {
    operand *x = &e->x[i];
    dnnl_memory_set_data_handle(x->user, data[i]);
    if (x->how != AS_IT_LIES) {
      own[i] = mem + at;
      dnnl_memory_set_data_handle(x->own, own[i]);
      at += x->bytes;
      dnnl_exec_arg_t r[2] = { { DNNL_ARG_FROM, x->user }, { DNNL_ARG_TO, x->own } };
      if (!x->out && x->how == LAYOUT) dnn_layout_move(&x->layout, data[i], own[i], 0, e->threads);
      else if (!x->out && dnnl_primitive_execute(x->reorder, stream, 2, r) != dnnl_success) return false;
    }
    args[i] = (dnnl_exec_arg_t){ x->arg, x->own };
  }
  int n = e->n;
  if (e->scratch) {
    dnnl_memory_set_data_handle(e->scratch, mem);
    args[n++] = (dnnl_exec_arg_t){ DNNL_ARG_SCRATCHPAD, e->scratch };
  }
  if (dnnl_primitive_execute(e->prim, stream, n, args) != dnnl_success) return false;
  for (int i = 0; i < e->n; i++) {
    operand *x = &e->x[i];
    dnnl_exec_arg_t r[2] = { { DNNL_ARG_FROM, x->own }, { DNNL_ARG_TO, x->user } };
    if (!x->out || x->how == AS_IT_LIES) continue;
    if (x->how == FINISH) dnn_layout_finish(&x->layout, data[i], x->last, own[i], data[3], x->bias_half, e->threads);
    else if (x->how == LAYOUT) dnn_layout_move(&x->layout, data[i], own[i], 1, e->threads);
    else if (dnnl_primitive_execute(x->reorder, stream, 2, r) != dnnl_success) return false;
  }
  return true;
}

static bool run(cache *c, entry *e, void *const *data)
{
  int before = use_threads(e->threads);
  bool ok = execute(c, e, data);
  use_threads(before);
  return ok;
}

static entry *find(cache *c, const int64_t *k, size_t h)
{
  for (entry *e = c->slot[h]; e; e = e->next)
    if (memcmp(e->key, k, sizeof *k * (size_t)k[0]) == 0) return e;
  return NULL;
}

static entry *add(cache *c, const int64_t *k, size_t h)
{
  if (c->count >= 4096) clear(c); /* shapes that never repeat must not pile up */
  entry *e = calloc(1, sizeof *e);
  if (e == NULL) return NULL;
  memcpy(e->key, k, sizeof *k * (size_t)k[0]);
  e->next = c->slot[h];
  c->slot[h] = e;
  c->count++;
  return e;
}

/* -- Products -------------------------------------------------------------------------- */

typedef struct matrix { void *p; int64_t batch, rows, cols, sb, sr, sc; } matrix;

/* A stride of a dimension of one element is free; oneDNN wants it to look dense. */
static void tidy(matrix *m)
{
  if (m->cols == 1 && m->rows > 1 && m->sr != 1) m->sc = 1;
  if (m->cols == 1 && m->rows == 1) m->sr = m->sc = 1;
  if (m->rows == 1) m->sr = m->cols > 0 ? m->cols * m->sc : 1;
  if (m->batch == 1) m->sb = m->rows * m->sr > m->cols * m->sc ? m->rows * m->sr : m->cols * m->sc;
}

static bool usable(const matrix *m) { return (m->sc == 1 && m->sr >= m->cols) || (m->sr == 1 && m->sc >= m->rows); }

/* a (batch, m x k) times b (batch, k x n) into c, with a bias of n */
static bool product(matrix *a, matrix *b, matrix *o, void *bias, int type, int bias_type)
{
  double flop = 2.0 * (double)o->batch * (double)o->rows * (double)o->cols * (double)a->cols;
  if (flop < (type == (int)dnnl_f32 ? 2e6 : 6e4)) return false;
  tidy(a);
  tidy(b);
  tidy(o);
  if (!usable(a) || !usable(b) || !usable(o)) return false;
  cache *c = table();
  if (c == NULL) return false;
  bool batched = o->batch > 1;
  int threads = threads_for(flop);
  if (type == (int)dnnl_f32 && !batched && !bias && flop > 2e8 && a->sc == 1 && b->sc == 1 && o->sc == 1) {
    /* plain row-major operands of that size: 3 to 8 % faster than the primitive */
    int before = use_threads(threads);
    bool ok = dnnl_sgemm('N', 'N', o->rows, o->cols, a->cols, 1, a->p, a->sr, b->p, b->sr, 0, o->p, o->sr) == dnnl_success;
    use_threads(before);
    return ok;
  }
  int64_t k[KEY] = { 20, DNN_MATMUL, threads, type, bias ? bias_type : -1, o->batch, o->rows, a->cols, o->cols,
                     a->sb, a->sr, a->sc, b->sb, b->sr, b->sc, o->sb, o->sr, o->sc, a->batch, b->batch };
  size_t h = hash_of(k);
  entry *e = find(c, k, h);
  if (e == NULL) {
    if ((e = add(c, k, h)) == NULL) return false;
    e->threads = threads;
    matrix *m[3] = { a, b, o };
    dnn_md md[3];
    for (int i = 0; i < 3; i++) {
      int64_t size[3] = { m[i]->batch, m[i]->rows, m[i]->cols }, stride[3] = { m[i]->sb, m[i]->sr, m[i]->sc };
      md[i] = dnn_md_strided(batched ? 3 : 2, size + !batched, type, stride + !batched);
    }
    int64_t bsize[3] = { 1, 1, o->cols }, bstride[3] = { o->cols, o->cols, 1 };
    dnn_problem p = { .kind = DNN_MATMUL, .src = md[0], .weight = md[1], .dst = md[2] };
    if (bias) p.bias = dnn_md_strided(batched ? 3 : 2, bsize + !batched, bias_type, bstride + !batched);
    if (p.src && p.weight && p.dst && (!bias || p.bias)) build(e, &p, &p, NULL, NULL, NULL);
    free_problem(&p);
  }
  void *data[4] = { a->p, b->p, o->p, bias };
  return run(c, e, data);
}

static int dnn_linear(amp_call *c)
{
  amp_tensor *x = c->in[0], *w = c->in[1], *b = c->nin > 2 ? c->in[2] : NULL, *o = c->out[0];
  int type = type_of(o);
  if (type < 0 || x->dtype != o->dtype || w->dtype != o->dtype || w->ndim != 2 || x->ndim < 1 || o->numel == 0 || x->numel == 0
      || !(x->flags & AMP_T_CONTIGUOUS) || !(o->flags & AMP_T_CONTIGUOUS) || (b && (type_of(b) < 0 || !(b->flags & AMP_T_CONTIGUOUS))))
    return plain[AMP_OP_linear](c);
  int64_t k = x->size[x->ndim - 1], m = x->numel / k, n = w->size[0];
  matrix A = { data_of(x), 1, m, k, 0, k, 1 }, B = { data_of(w), 1, k, n, 0, w->stride[1], w->stride[0] }, C = { data_of(o), 1, m, n, 0, n, 1 };
  return product(&A, &B, &C, b ? data_of(b) : NULL, type, b ? type_of(b) : 0) ? 0 : plain[AMP_OP_linear](c);
}

static int dnn_matmul(amp_call *c)
{
  amp_tensor *a = c->in[0], *b = c->in[1], *o = c->out[0];
  int type = type_of(o), na = a->ndim, nb = b->ndim, no = o->ndim;
  if (type < 0 || a->dtype != o->dtype || b->dtype != o->dtype || na < 2 || nb < 2 || o->numel == 0 || a->numel == 0) return plain[AMP_OP_matmul](c);
  matrix A = { data_of(a), 1, a->size[na - 2], a->size[na - 1], 0, a->stride[na - 2], a->stride[na - 1] };
  matrix B = { data_of(b), 1, b->size[nb - 2], b->size[nb - 1], 0, b->stride[nb - 2], b->stride[nb - 1] };
  matrix C = { data_of(o), 1, o->size[no - 2], o->size[no - 1], 0, o->stride[no - 2], o->stride[no - 1] };
  if (no == 3 && na == 3 && nb == 3) {
    A.batch = a->size[0]; A.sb = a->stride[0];
    B.batch = b->size[0]; B.sb = b->stride[0];
    C.batch = o->size[0]; C.sb = o->stride[0];
  } else if (no > 2 && nb == 2 && (a->flags & AMP_T_CONTIGUOUS) && (o->flags & AMP_T_CONTIGUOUS)) {
    A.rows = C.rows = a->numel / A.cols; /* leading dimensions join the rows */
  } else if (no > 2) return plain[AMP_OP_matmul](c);
  return product(&A, &B, &C, NULL, type, 0) ? 0 : plain[AMP_OP_matmul](c);
}

/* -- Convolutions ------------------------------------------------------------------------- */

static int64_t *key_tensor(int64_t *k, const amp_tensor *t)
{
  for (int i = 0; i < t->ndim; i++) { *k++ = t->size[i]; *k++ = t->stride[i]; }
  return k;
}

/* Kernels of one element over contiguous data: oneDNN's products beat its blocked kernels and their reorders
** (85 to 162 GFLOP/s in bfloat16). */
static bool planes(int kind, int type, const amp_tensor *src, const amp_tensor *w, const amp_tensor *dst, const dnn_problem *q)
{
  for (int i = 0; i < src->ndim - 2; i++)
    if (w->size[2 + i] != 1 || q->stride[i] != 1 || q->pad_begin[i] != 0) return false;
  return (src->flags & AMP_T_CONTIGUOUS) && (dst->flags & AMP_T_CONTIGUOUS) && (kind != DNN_CONV_WEIGHT || type == (int)dnnl_bf16);
}

/* The result is dense; an operand only read need not be, but every element has its own place. */
static bool fit(const amp_tensor *t, bool result)
{
  if (t->flags & AMP_T_DENSE) return true;
  for (int i = 0; i < t->ndim; i++)
    if (t->size[i] > 1 && t->stride[i] < 1) return false;
  return !result;
}

/* Does each element of the kernel meet the image somewhere? Of one that doesn't, oneDNN leaves the gradient unwritten. */
static bool all_met(const amp_tensor *src, const amp_tensor *w, const amp_tensor *dst, const amp_slot *a)
{
  for (int i = 0, at = 5 - src->ndim; i < src->ndim - 2; i++, at++)
    for (int64_t t = 0; t < w->size[2 + i]; t++) {
      int64_t s = a[at].i, first = t * a[6 + at].i - a[3 + at].i, o = first < 0 ? (-first + s - 1) / s : 0;
      if (o >= dst->size[2 + i] || o * s + first >= src->size[2 + i]) return false;
    }
  return true;
}

/* a: stride, padding, dilation, the last `spatial` of three each, groups. src is the image, dst what a convolution
** makes of it: one of them or w the result, and bias the result's. */
static bool convolve(int kind, amp_tensor *src, amp_tensor *w, amp_tensor *bias, amp_tensor *dst, const amp_slot *a)
{
  int type = type_of(dst), n = src->ndim, spatial = n - 2;
  int64_t groups = a[9].i, k[KEY] = { 0 }, *p = k;
  cache *c;
  if (type < 0 || src->dtype != dst->dtype || w->dtype != dst->dtype || (bias && (type_of(bias) < 0 || !(bias->flags & AMP_T_CONTIGUOUS)))
      || !fit(src, kind == DNN_CONV_INPUT) || !fit(w, kind == DNN_CONV_WEIGHT) || !fit(dst, kind == DNN_CONV) || src->numel == 0 || dst->numel == 0 || w->numel == 0 || (c = table()) == NULL) return false;
  bool last = src->stride[1] == 1 && dst->stride[1] == 1 && src->size[1] > 1 && dst->size[1] > 1 && (src->flags & dst->flags & AMP_T_DENSE);
  amp_tensor *finish = kind == DNN_CONV_INPUT ? bias : NULL;
  if (kind == DNN_CONV_WEIGHT && !all_met(src, w, dst, a)) return false;
  if (finish && !last && !(src->flags & AMP_T_CONTIGUOUS)) return false;
  double flop = 2.0 * (double)dst->numel * (double)(w->numel / w->size[0]);
  int threads = threads_for(flop);
  *++p = kind;
  *++p = threads;
  *++p = type * 64 + n * 8 + (bias ? 1 + type_of(bias) : 0);
  p = key_tensor(p + 1, src);
  p = key_tensor(p, w);
  p = key_tensor(p, dst);
  for (int i = 3 - spatial; i < 10; i++) *p++ = a[i].i;
  k[0] = p - k;
  size_t h = hash_of(k);
  entry *e = find(c, k, h);
  if (e == NULL) {
    if ((e = add(c, k, h)) == NULL) return false;
    e->threads = threads;
    int64_t og = w->size[0] / groups, ws[6] = { groups, og, w->size[1] }, wt[6] = { w->stride[0] * og, w->stride[0], w->stride[1] };
    int from = groups > 1 ? 0 : 1, wn = n + 1 - from;
    dnn_problem q = { .kind = kind }, user = { .kind = kind };
    for (int i = 0; i < spatial; i++) {
      int at = 3 - spatial + i;
      ws[3 + i] = w->size[2 + i];
      wt[3 + i] = w->stride[2 + i];
      q.stride[i] = a[at].i;
      q.pad_begin[i] = a[3 + at].i;
      q.dilation[i] = a[6 + at].i - 1;
      /* what the far side is padded with so that the sizes come out */
      q.pad_end[i] = (dst->size[2 + i] - 1) * a[at].i + (w->size[2 + i] - 1) * a[6 + at].i + 1 - src->size[2 + i] - a[3 + at].i;
    }
    int sum = finish ? (int)dnnl_f32 : type;
    user.src = dnn_md_strided(n, src->size, type, src->stride);
    user.dst = dnn_md_strided(n, dst->size, type, dst->stride);
    user.weight = dnn_md_strided(wn, ws + from, type, wt + from);
    q.weight = dnn_md_any(wn, ws + from, type);
    /* channels last, and what is a product of planes: take it as it lies */
    bool lies = last || planes(kind, type, src, w, dst, &q);
    q.src = lies ? dnn_md_strided(n, src->size, sum, src->stride) : dnn_md_any(n, src->size, sum);
    q.dst = lies ? dnn_md_strided(n, dst->size, type, dst->stride) : dnn_md_any(n, dst->size, type);
    if (sum != type) q.hint_src = lies ? dnn_md_strided(n, src->size, type, src->stride) : dnn_md_any(n, src->size, type);
    if (bias && !finish) {
      int64_t one = 1;
      user.bias = dnn_md_strided(1, bias->size, type_of(bias), &one);
      q.bias = dnn_md_strided(1, bias->size, type_of(bias), &one);
    }
    if (user.src && user.dst && user.weight && q.src && q.dst && q.weight && (!bias || finish || (user.bias && q.bias)))
      build(e, &q, &user, src, dst, finish);
    free_problem(&q);
    free_problem(&user);
  }
  void *data[4] = { data_of(src), data_of(w), data_of(dst), bias ? data_of(bias) : NULL };
  return run(c, e, data);
}

/* Contiguous data with few channels a group: the plain kernels, which need no other layout, take half the time for
** gradients, and for float32 with one channel a group forward too. */
static bool few(const amp_tensor *image, const amp_tensor *w) { return w->size[1] <= 4 && (image->flags & AMP_T_CONTIGUOUS); }

static int dnn_convolution(amp_call *c)
{
  const amp_tensor *x = c->in[0];
  if (c->in[1]->size[1] == 1 && x->size[1] > 1 && x->dtype == AMP_FLOAT32 && few(x, c->in[1])) return plain[AMP_OP_convolution](c);
  return convolve(DNN_CONV, c->in[0], c->in[1], c->nin > 2 ? c->in[2] : NULL, c->out[0], c->a) ? 0 : plain[AMP_OP_convolution](c);
}

static int dnn_convolution_input(amp_call *c) /* grad, weight, bias; attributes after the shape */
{
  amp_tensor *bias = c->nin > 2 ? c->in[2] : NULL;
  if (few(c->in[0], c->in[1])) return plain[AMP_OP_convolution_input](c);
  return convolve(DNN_CONV_INPUT, c->out[0], c->in[1], bias, c->in[0], c->a + 1 + AMP_MAX_DIM) ? 0 : plain[AMP_OP_convolution_input](c);
}

static int dnn_convolution_weight(amp_call *c) /* grad, input */
{
  if (few(c->in[1], c->out[0])) return plain[AMP_OP_convolution_weight](c);
  return convolve(DNN_CONV_WEIGHT, c->in[1], c->out[0], NULL, c->in[0], c->a + 1 + AMP_MAX_DIM) ? 0 : plain[AMP_OP_convolution_weight](c);
}

/* -- Entry ---------------------------------------------------------------------------------- */

__attribute__((visibility("default"))) const char *amp_plugin_version(void)
{
  static char text[64];
  const dnnl_version_t *v = dnnl_version();
  snprintf(text, sizeof text, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
  return text;
}

/* AMP_CPU_ISA holds for oneDNN's kernels as for ours, unless its own variable says more. */
static void limit_instructions(void)
{
  int isa = amp__cpu_isa();
  if (getenv("ONEDNN_MAX_CPU_ISA") || getenv("DNNL_MAX_CPU_ISA") || !getenv("AMP_CPU_ISA") || isa == AMP_ISA_AVX512) return;
  dnnl_set_max_cpu_isa(isa == AMP_ISA_AVX2 ? dnnl_cpu_isa_avx2 : dnnl_cpu_isa_sse41);
}

__attribute__((visibility("default"))) const char *amp_plugin_init(uint64_t table_hash, amp_device_ops *devices)
{
  if (table_hash != amp__table_hash()) return "it was built for another version of amp";
  if (dnnl_version()->major != DNNL_VERSION_MAJOR) return "it was built for another version of oneDNN";
  limit_instructions();
  if (engine == NULL && dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) return "oneDNN finds no CPU engine";
  if (pthread_key_create(&key, thread_ends) != 0) return "no thread key is left";
  amp_device_ops *cpu = &devices[AMP_CPU];
  core_threads = devices[AMP_CPU].threads;
  memcpy(plain, cpu->kernel, sizeof plain);
  amp__set_kernel(cpu, AMP_OP_linear, dnn_linear);
  amp__set_kernel(cpu, AMP_OP_matmul, dnn_matmul);
  amp__set_kernel(cpu, AMP_OP_convolution, dnn_convolution);
  amp__set_kernel(cpu, AMP_OP_convolution_input, dnn_convolution_input);
  amp__set_kernel(cpu, AMP_OP_convolution_weight, dnn_convolution_weight);
  return NULL;
}
