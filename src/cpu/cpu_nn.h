/*
** cpu_nn.h: what the neural-net kernels share: splitting work over threads,
** lent scratch, rows in the computing type, walks over strided rows.
**
** The computing type is double for float64 and float for every other float
** dtype; 16-bit data is widened on reading and rounded once on writing.
** Loops are written once over that type, as macros or included text, and
** instantiated for both (suffixes _f32 and _f64).
*/
#ifndef AMP_CPU_NN_H
#define AMP_CPU_NN_H
#include "amp_core.h"
#include "cpu_convert.h"
#include "cpu_math.h"

/* -- Threads ----------------------------------------------------------------- */

typedef void (*amp__nn_body)(void *ctx, int64_t begin, int64_t end, int thread);
/* body over [0, n) cut into at most `threads` runs; thread < threads. */
void amp__nn_par(int threads, int64_t n, amp__nn_body body, void *ctx);
/* amp__threads(work), at most n */
int amp__nn_threads(int64_t work, int64_t n);

/* -- Scratch ------------------------------------------------------------------ */

typedef struct amp__nn_scratch { void *p; amp_block *block; } amp__nn_scratch;
/* `bytes` of scratch: `own` if they fit, else pooled memory. false: no memory (error set). */
bool amp__nn_lend(amp__nn_scratch *s, void *own, size_t own_bytes, size_t bytes);
void amp__nn_give(amp__nn_scratch *s);

/* -- Rows --------------------------------------------------------------------- */

/* n elements at p with a stride (in elements), of any float dtype */
static inline void amp__nn_load_f32(float *dst, const void *p, int dtype, int64_t stride, int64_t n) { amp__load(AMP_C_F32, dst, dtype, p, stride, n); }
static inline void amp__nn_load_f64(double *dst, const void *p, int dtype, int64_t stride, int64_t n) { amp__load(AMP_C_F64, dst, dtype, p, stride, n); }
static inline void amp__nn_store_f32(void *p, int dtype, int64_t stride, const float *src, int64_t n) { amp__store(dtype, p, stride, AMP_C_F32, src, n); }
static inline void amp__nn_store_f64(void *p, int dtype, int64_t stride, const double *src, int64_t n) { amp__store(dtype, p, stride, AMP_C_F64, src, n); }
/* labels of any integer dtype (or whole floats) */
int64_t amp__nn_label(const void *p, int dtype, int64_t i);

static inline amp_tensor *amp__nn_arg(const amp_call *c, int i) { return i < c->nin ? c->in[i] : NULL; }
static inline int amp__nn_type(int dtype) { return dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32; }
static inline const void *amp__nn_at(const amp_tensor *t, int64_t offset) {
  return (const char *)amp__data(t) + offset * amp__dtype_size[t->dtype];
}

/* A tensor's elements in the computing type `type`, with strides: the tensor's own memory when it has that dtype,
** else a widened copy. */
typedef struct amp__nn_view {
  void *p;
  int64_t stride[AMP_MAX_DIM];
  amp_block *block;
} amp__nn_view;
bool amp__nn_read(amp__nn_view *v, const amp_tensor *t, int type);
bool amp__nn_read_c(amp__nn_view *v, const amp_tensor *t, int type); /* in C order, whatever t's strides are */
/* The same for a result: memory to fill, then written back (once rounded) by amp__nn_written. */
bool amp__nn_write(amp__nn_view *v, const amp_tensor *t, int type);
bool amp__nn_write_c(amp__nn_view *v, const amp_tensor *t, int type);
void amp__nn_written(amp__nn_view *v, const amp_tensor *t, int type);
void amp__nn_drop(amp__nn_view *v);

/* -- Walking the rows along one dimension --------------------------------------- */

/* Every index of the dimensions of `t` but those in `skip`; offsets of up to 4 tensors. Sizes are merged where
** all strides allow it. */
typedef struct amp__nn_walk {
  int ndim, nt;
  int64_t n;                             /* rows */
  int64_t size[AMP_MAX_DIM], stride[4][AMP_MAX_DIM];
} amp__nn_walk;
void amp__nn_walk_init(amp__nn_walk *w, int ndim, const int64_t *size, uint32_t skip, int nt, const int64_t *const *stride);
typedef struct amp__nn_pos { int64_t at[AMP_MAX_DIM], off[4]; } amp__nn_pos;
void amp__nn_seek(const amp__nn_walk *w, amp__nn_pos *p, int64_t row);
static inline void amp__nn_next(const amp__nn_walk *w, amp__nn_pos *p) {
  for (int d = w->ndim - 1; d >= 0; d--) {
    for (int t = 0; t < w->nt; t++) p->off[t] += w->stride[t][d];
    if (++p->at[d] < w->size[d]) return;
    p->at[d] = 0;
    for (int t = 0; t < w->nt; t++) p->off[t] -= w->stride[t][d] * w->size[d];
  }
}

#endif
