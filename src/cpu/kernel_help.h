/*
** cpu/kernel_help.h: what kernels of the CPU share: splitting work over threads,
** lent scratch, rows in the computing type, walks over strided rows.
**
** The computing type is double for float64 and float for every other float
** dtype; 16-bit data is widened on reading and rounded once on writing.
** Loops are written once over that type, in files NAME_body.h that are included
** for both (suffixes _f32 and _f64).
*/
#ifndef AMP_CPU_KERNEL_HELP_H
#define AMP_CPU_KERNEL_HELP_H
#include "core.h"
#include "cpu/convert.h"
#include "cpu/vector_math.h"

/* -- Threads ----------------------------------------------------------------- */

typedef void (*amp__range_fn)(void *ctx, int64_t begin, int64_t end, int thread);
/* body over [0, count) cut into at most `threads` runs; thread < threads. */
void amp__parallel_ranges(int threads, int64_t count, amp__range_fn body, void *ctx);
/* amp__threads(work), at most count */
int amp__threads_for(int64_t work, int64_t count);

/* -- Scratch ------------------------------------------------------------------ */

typedef struct amp__scratch {
  void *p;
  amp_block *block;
} amp__scratch;
/* `bytes` of scratch: `own` if they fit, else pooled memory. false: no memory (error set). */
bool amp__scratch_lend(amp__scratch *scratch, void *own, size_t own_bytes, size_t bytes);
void amp__scratch_return(amp__scratch *scratch);

/* -- Rows --------------------------------------------------------------------- */

/* count elements at p with a stride (in elements), of any float dtype */
static inline void amp__load_f32(float *dst, const void *p, int dtype, int64_t stride, int64_t count)
{
  amp__load(AMP_C_F32, dst, dtype, p, stride, count);
}
static inline void amp__load_f64(double *dst, const void *p, int dtype, int64_t stride, int64_t count)
{
  amp__load(AMP_C_F64, dst, dtype, p, stride, count);
}
static inline void amp__store_f32(void *p, int dtype, int64_t stride, const float *src, int64_t count)
{
  amp__store(dtype, p, stride, AMP_C_F32, src, count);
}
static inline void amp__store_f64(void *p, int dtype, int64_t stride, const double *src, int64_t count)
{
  amp__store(dtype, p, stride, AMP_C_F64, src, count);
}
/* labels of any integer dtype (or whole floats) */
int64_t amp__label_at(const void *p, int dtype, int64_t i);

static inline amp_tensor *amp__input_or_null(const amp_call *call, int i) { return i < call->nin ? call->in[i] : NULL; }
static inline int amp__compute_dtype(int dtype) { return dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32; }
static inline const void *amp__address_of(const amp_tensor *tensor, int64_t offset)
{
  return (const char *)amp__data(tensor) + offset * amp__dtype_size[tensor->dtype];
}

/* A tensor's elements in the computing type `type`, with strides: the tensor's own memory when it has that dtype,
** else a widened copy. */
typedef struct amp__compute_view {
  void *p;
  int64_t stride[AMP_MAX_DIM];
  amp_block *block;
} amp__compute_view;
bool amp__compute_read(amp__compute_view *view, const amp_tensor *tensor, int type);
bool amp__compute_read_c(amp__compute_view *view, const amp_tensor *tensor,
                         int type); /* in C order, whatever the strides are */
/* The same for a result: memory to fill, then written back (once rounded) by amp__compute_written. */
bool amp__compute_write(amp__compute_view *view, const amp_tensor *tensor, int type);
bool amp__compute_write_c(amp__compute_view *view, const amp_tensor *tensor, int type);
void amp__compute_written(amp__compute_view *view, const amp_tensor *tensor, int type);
void amp__compute_drop(amp__compute_view *view);

/* -- Walking the rows along one dimension --------------------------------------- */

/* Every index of the dimensions of `t` but those in `skip`; offsets of up to 4 tensors. Sizes are merged where
** all strides allow it. */
typedef struct amp__walk {
  int ndim, nt;
  int64_t n; /* rows */
  int64_t size[AMP_MAX_DIM], stride[4][AMP_MAX_DIM];
} amp__walk;
void amp__walk_init(amp__walk *walk, int ndim, const int64_t *size, uint32_t skip, int tensors,
                    const int64_t *const *stride);
typedef struct amp__walk_pos {
  int64_t at[AMP_MAX_DIM], off[4];
} amp__walk_pos;
void amp__walk_seek(const amp__walk *walk, amp__walk_pos *pos, int64_t row);
static inline void amp__walk_next(const amp__walk *walk, amp__walk_pos *pos)
{
  for (int dim = walk->ndim - 1; dim >= 0; dim--) {
    for (int tensor = 0; tensor < walk->nt; tensor++) pos->off[tensor] += walk->stride[tensor][dim];
    if (++pos->at[dim] < walk->size[dim]) return;
    pos->at[dim] = 0;
    for (int tensor = 0; tensor < walk->nt; tensor++) pos->off[tensor] -= walk->stride[tensor][dim] * walk->size[dim];
  }
}

#endif
