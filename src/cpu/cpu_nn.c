/*
** cpu_nn.c: helpers of the neural-net kernels (cpu_nn.h): threads, scratch,
** rows in the computing type, walks over the rows of strided tensors.
*/
#include "cpu_nn.h"
#ifdef _OPENMP
#include <omp.h>
#endif

/* -- Threads ----------------------------------------------------------------- */

int amp__nn_threads(int64_t work, int64_t n) {
  int t = amp__threads(work);
  return t < n ? t : n > 0 ? (int)n : 1;
}

void amp__nn_par(int threads, int64_t n, amp__nn_body body, void *ctx) {
#ifdef _OPENMP
  if (threads > 1) {
#pragma omp parallel num_threads(threads)
    {
      int t = omp_get_thread_num(), nt = omp_get_num_threads();
      int64_t b = n * t / nt, e = n * (t + 1) / nt;
      if (b < e) body(ctx, b, e, t);
    }
    return;
  }
#endif
  (void)threads;
  if (n > 0) body(ctx, 0, n, 0);
}

/* -- Scratch ------------------------------------------------------------------ */

bool amp__nn_lend(amp__nn_scratch *s, void *own, size_t own_bytes, size_t bytes) {
  s->block = NULL;
  s->p = own;
  if (bytes <= own_bytes) return true;
  s->block = amp__block_new(AMP_CPU, 0, bytes);
  if (!s->block) return false;
  s->p = s->block->data;
  return true;
}

void amp__nn_give(amp__nn_scratch *s) {
  if (s->block) amp__block_free(s->block);
  s->block = NULL;
}

/* -- Rows --------------------------------------------------------------------- */

int64_t amp__nn_label(const void *p, int dtype, int64_t i) {
  switch (dtype) {
  case AMP_INT64: return ((const int64_t *)p)[i];
  case AMP_INT32: return ((const int32_t *)p)[i];
  case AMP_INT16: return ((const int16_t *)p)[i];
  case AMP_INT8: return ((const int8_t *)p)[i];
  case AMP_UINT8: case AMP_BOOL: return ((const uint8_t *)p)[i];
  case AMP_FLOAT64: return (int64_t)((const double *)p)[i];
  case AMP_FLOAT32: return (int64_t)((const float *)p)[i];
  case AMP_FLOAT16: return (int64_t)amp__half_to_float(((const uint16_t *)p)[i]);
  default: return (int64_t)amp__bf16_to_float(((const uint16_t *)p)[i]);
  }
}

/* -- Whole tensors in the computing type ------------------------------------------ */

typedef struct conversion { amp__nn_view *v; const amp_tensor *t; int type, inner; bool back; amp__nn_walk w; } conversion;

static void move(const conversion *k, int64_t mem, int64_t own, int64_t stride, int64_t n) {
  char *m = (char *)amp__data(k->t) + mem * amp__dtype_size[k->t->dtype], *o = (char *)k->v->p + own * amp__dtype_size[k->type];
  int cls = k->type == AMP_FLOAT64 ? AMP_C_F64 : AMP_C_F32;
  if (k->back) amp__store(k->t->dtype, m, stride, cls, o, n);
  else amp__load(cls, o, k->t->dtype, m, stride, n);
}

static void dense_body(void *ctx, int64_t begin, int64_t end, int thread) { move(ctx, begin, begin, 1, end - begin); }

static void rows_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const conversion *k = ctx;
  amp__nn_pos p;
  amp__nn_seek(&k->w, &p, begin);
  for (int64_t r = begin; r < end; r++, amp__nn_next(&k->w, &p))
    move(k, p.off[0], p.off[1], k->t->stride[k->inner], k->t->size[k->inner]);
}

static void convert(amp__nn_view *v, const amp_tensor *t, int type, bool back) {
  conversion k = {v, t, type, t->ndim - 1, back, {0}};
  if (t->numel == 0) return;
  if (t->ndim == 0 || ((t->flags & AMP_T_DENSE) && memcmp(t->stride, v->stride, sizeof(int64_t) * t->ndim) == 0)) {
    amp__nn_par(amp__nn_threads(t->numel, t->numel), t->numel, dense_body, &k);
    return;
  }
  const int64_t *strides[2] = {t->stride, v->stride};
  amp__nn_walk_init(&k.w, t->ndim, t->size, 1u << k.inner, 2, strides);
  amp__nn_par(amp__nn_threads(t->numel, k.w.n), k.w.n, rows_body, &k);
}

/* own memory if the dtype or (with c_order) the layout is another */
static bool open_view(amp__nn_view *v, const amp_tensor *t, int type, bool c_order) {
  v->block = NULL;
  memcpy(v->stride, t->stride, sizeof v->stride);
  v->p = amp__data(t);
  if (t->dtype == type && (!c_order || (t->flags & AMP_T_CONTIGUOUS))) return true;
  if (c_order || !(t->flags & AMP_T_DENSE)) amp__contiguous_strides(t->ndim, t->size, v->stride);
  v->block = amp__block_new(AMP_CPU, 0, (size_t)t->numel * amp__dtype_size[type] + 64);
  if (!v->block) return false;
  v->p = v->block->data;
  return true;
}

static bool read_view(amp__nn_view *v, const amp_tensor *t, int type, bool c_order) {
  if (!open_view(v, t, type, c_order)) return false;
  if (v->block) convert(v, t, type, false);
  return true;
}

bool amp__nn_read(amp__nn_view *v, const amp_tensor *t, int type) { return read_view(v, t, type, false); }
bool amp__nn_read_c(amp__nn_view *v, const amp_tensor *t, int type) { return read_view(v, t, type, true); }
bool amp__nn_write(amp__nn_view *v, const amp_tensor *t, int type) { return open_view(v, t, type, false); }
bool amp__nn_write_c(amp__nn_view *v, const amp_tensor *t, int type) { return open_view(v, t, type, true); }

void amp__nn_written(amp__nn_view *v, const amp_tensor *t, int type) {
  if (v->block) convert(v, t, type, true);
  amp__nn_drop(v);
}

void amp__nn_drop(amp__nn_view *v) {
  if (v->block) amp__block_free(v->block);
  v->block = NULL;
}

/* -- Walks ---------------------------------------------------------------------------- */

void amp__nn_walk_init(amp__nn_walk *w, int ndim, const int64_t *size, uint32_t skip, int nt, const int64_t *const *stride) {
  w->ndim = 0;
  w->nt = nt;
  w->n = 1;
  for (int d = 0; d < ndim; d++) {
    if (skip >> d & 1) continue;
    w->n *= size[d];
    if (size[d] == 1) continue;
    int k = w->ndim - 1;
    bool merge = k >= 0;
    for (int t = 0; t < nt && merge; t++) merge = w->stride[t][k] == stride[t][d] * size[d];
    if (!merge) k = w->ndim++;
    w->size[k] = merge ? w->size[k] * size[d] : size[d];
    for (int t = 0; t < nt; t++) w->stride[t][k] = stride[t][d];
  }
}

void amp__nn_seek(const amp__nn_walk *w, amp__nn_pos *p, int64_t row) {
  for (int t = 0; t < 4; t++) p->off[t] = 0;
  if (w->n == 0) return;
  for (int d = w->ndim - 1; d >= 0; d--) {
    p->at[d] = row % w->size[d];
    row /= w->size[d];
    for (int t = 0; t < w->nt; t++) p->off[t] += p->at[d] * w->stride[t][d];
  }
}
