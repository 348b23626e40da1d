/*
** cpu/kernel_help.c: helpers of kernels (cpu/kernel_help.h): threads, scratch,
** rows in the computing type, walks over the rows of strided tensors.
*/
#include "base/workers.h"
#include "cpu/kernel_help.h"
#ifdef _OPENMP
#include <omp.h>
#endif

/* -- Threads ----------------------------------------------------------------- */

int amp__threads_for(int64_t work, int64_t count)
{
  int which = amp__threads(work);
  return which < count ? which : count > 0 ? (int)count : 1;
}

void amp__parallel_ranges(int threads, int64_t count, amp__range_fn body, void *ctx)
{
#ifdef _OPENMP
  if (threads > 1) {
#pragma omp parallel num_threads(threads)
    {
      amp__worker_begins();
      int t = omp_get_thread_num(), nt = omp_get_num_threads();
      int64_t begin = count * t / nt, end = count * (t + 1) / nt;
      if (begin < end) body(ctx, begin, end, t);
    }
    return;
  }
#endif
  (void)threads;
  if (count > 0) body(ctx, 0, count, 0);
}

/* -- Scratch ------------------------------------------------------------------ */

bool amp__scratch_lend(amp__scratch *scratch, void *own, size_t own_bytes, size_t bytes)
{
  scratch->block = NULL;
  scratch->p = own;
  if (bytes <= own_bytes) return true;
  scratch->block = amp__block_new(AMP_CPU, 0, bytes);
  if (!scratch->block) return false;
  scratch->p = scratch->block->data;
  return true;
}

void amp__scratch_return(amp__scratch *scratch)
{
  if (scratch->block) amp__block_free(scratch->block);
  scratch->block = NULL;
}

/* -- Rows --------------------------------------------------------------------- */

int64_t amp__label_at(const void *p, int dtype, int64_t i)
{
  switch (dtype) {
  case AMP_INT64: return ((const int64_t *)p)[i];
  case AMP_INT32: return ((const int32_t *)p)[i];
  case AMP_INT16: return ((const int16_t *)p)[i];
  case AMP_INT8: return ((const int8_t *)p)[i];
  case AMP_UINT8:
  case AMP_BOOL: return ((const uint8_t *)p)[i];
  case AMP_FLOAT64: return (int64_t)((const double *)p)[i];
  case AMP_FLOAT32: return (int64_t)((const float *)p)[i];
  case AMP_FLOAT16: return (int64_t)amp__half_to_float(((const uint16_t *)p)[i]);
  default: return (int64_t)amp__bf16_to_float(((const uint16_t *)p)[i]);
  }
}

/* -- Whole tensors in the computing type ------------------------------------------ */

typedef struct conversion {
  amp__compute_view *view;
  const amp_tensor *tensor;
  int type, inner;
  bool back;
  amp__walk walk;
} conversion;

static void move(const conversion *conversion, int64_t mem, int64_t own, int64_t stride, int64_t count)
{
  char *m = (char *)amp__data(conversion->tensor) + mem * amp__dtype_size[conversion->tensor->dtype],
       *o = (char *)conversion->view->p + own * amp__dtype_size[conversion->type];
  int cls = conversion->type == AMP_FLOAT64 ? AMP_C_F64 : AMP_C_F32;
  if (conversion->back) amp__store(conversion->tensor->dtype, m, stride, cls, o, count);
  else amp__load(cls, o, conversion->tensor->dtype, m, stride, count);
}

static void dense_body(void *ctx, int64_t begin, int64_t end, int thread) { move(ctx, begin, begin, 1, end - begin); }

static void rows_body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const conversion *conversion = ctx;
  amp__walk_pos p;
  amp__walk_seek(&conversion->walk, &p, begin);
  for (int64_t r = begin; r < end; r++, amp__walk_next(&conversion->walk, &p))
    move(conversion, p.off[0], p.off[1], conversion->tensor->stride[conversion->inner],
         conversion->tensor->size[conversion->inner]);
}

static void convert(amp__compute_view *view, const amp_tensor *tensor, int type, bool back)
{
  conversion conversion = { view, tensor, type, tensor->ndim - 1, back, { 0 } };
  if (tensor->numel == 0) return;
  if (tensor->ndim == 0
      || ((tensor->flags & AMP_T_DENSE) && memcmp(tensor->stride, view->stride, sizeof(int64_t) * tensor->ndim) == 0)) {
    amp__parallel_ranges(amp__threads_for(tensor->numel, tensor->numel), tensor->numel, dense_body, &conversion);
    return;
  }
  const int64_t *strides[2] = { tensor->stride, view->stride };
  amp__walk_init(&conversion.walk, tensor->ndim, tensor->size, 1u << conversion.inner, 2, strides);
  amp__parallel_ranges(amp__threads_for(tensor->numel, conversion.walk.n), conversion.walk.n, rows_body, &conversion);
}

/* own memory if the dtype or (with c_order) the layout is another */
static bool open_view(amp__compute_view *view, const amp_tensor *tensor, int type, bool c_order)
{
  view->block = NULL;
  memcpy(view->stride, tensor->stride, sizeof view->stride);
  view->p = amp__data(tensor);
  if (tensor->dtype == type && (!c_order || (tensor->flags & AMP_T_CONTIGUOUS))) return true;
  if (c_order || !(tensor->flags & AMP_T_DENSE)) amp__contiguous_strides(tensor->ndim, tensor->size, view->stride);
  view->block = amp__block_new(AMP_CPU, 0, (size_t)tensor->numel * amp__dtype_size[type] + 64);
  if (!view->block) return false;
  view->p = view->block->data;
  return true;
}

static bool read_view(amp__compute_view *view, const amp_tensor *tensor, int type, bool c_order)
{
  if (!open_view(view, tensor, type, c_order)) return false;
  if (view->block) convert(view, tensor, type, false);
  return true;
}

bool amp__compute_read(amp__compute_view *view, const amp_tensor *tensor, int type)
{
  return read_view(view, tensor, type, false);
}
bool amp__compute_read_c(amp__compute_view *view, const amp_tensor *tensor, int type)
{
  return read_view(view, tensor, type, true);
}
bool amp__compute_write(amp__compute_view *view, const amp_tensor *tensor, int type)
{
  return open_view(view, tensor, type, false);
}
bool amp__compute_write_c(amp__compute_view *view, const amp_tensor *tensor, int type)
{
  return open_view(view, tensor, type, true);
}

void amp__compute_written(amp__compute_view *view, const amp_tensor *tensor, int type)
{
  if (view->block) convert(view, tensor, type, true);
  amp__compute_drop(view);
}

void amp__compute_drop(amp__compute_view *view)
{
  if (view->block) amp__block_free(view->block);
  view->block = NULL;
}

/* -- Walks ---------------------------------------------------------------------------- */

void amp__walk_init(amp__walk *walk, int ndim, const int64_t *size, uint32_t skip, int tensors,
                    const int64_t *const *stride)
{
  AMP_ASSERT(tensors <= 4 && ndim <= AMP_MAX_DIM);
  walk->ndim = 0;
  walk->nt = tensors;
  walk->n = 1;
  for (int dim = 0; dim < ndim; dim++) {
    if (skip >> dim & 1) continue;
    walk->n *= size[dim];
    if (size[dim] == 1) continue;
    int k = walk->ndim - 1;
    bool merge = k >= 0;
    for (int which = 0; which < tensors && merge; which++)
      merge = walk->stride[which][k] == stride[which][dim] * size[dim];
    if (!merge) k = walk->ndim++;
    walk->size[k] = merge ? walk->size[k] * size[dim] : size[dim];
    for (int which = 0; which < tensors; which++) walk->stride[which][k] = stride[which][dim];
  }
}

void amp__walk_seek(const amp__walk *walk, amp__walk_pos *pos, int64_t row)
{
  for (int which = 0; which < 4; which++) pos->off[which] = 0;
  if (walk->n == 0) return;
  for (int dim = walk->ndim - 1; dim >= 0; dim--) {
    pos->at[dim] = row % walk->size[dim];
    row /= walk->size[dim];
    for (int which = 0; which < walk->nt; which++) pos->off[which] += pos->at[dim] * walk->stride[which][dim];
  }
}
