/*
** ops/layout/layout_derivative.c: derivatives of copies and views, in the order of
** amp_ops.def. A formula is an expression of recorded ops, so its own
** derivative needs nothing more. Gradients keep the dtype of the result they
** belong to until amp__op_to_input gives them the input's shape and dtype.
**
** The gradient of a view is as_strided_sum: zeros of the input's shape with
** the gradient added where the view lay, its geometry being counted as if the
** input were contiguous; slices that overlap nowhere leave it to the engine to add
** them in place. as_strided and as_strided_sum are each other's derivative.
*/
#include "autograd/derivative.h"

/* -- Copies and dtype ------------------------------------------------------- */

BWD(fill, amp__op_zeros_like(b, 0))

int amp__bwd_copy(amp_bwd *bwd)
{
  int status = 0;
  if (NEEDS(bwd, 0)) status = INPUT_GRAD(bwd, 0, amp__op_zeros_like(bwd, 0));
  if (status == 0 && NEEDS(bwd, 1)) status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, GRAD(bwd)));
  return status;
}

int amp__bwd_cast(amp_bwd *bwd)
{
  if (bwd->any_dtype && amp__is_float(GRAD(bwd)->dtype) && SHAPE(bwd, 0)->ndim == GRAD(bwd)->ndim)
    return INPUT_GRAD(bwd, 0, GRAD(bwd));
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, GRAD(bwd)));
}
int amp__bwd_cast_unsaturated(amp_bwd *bwd) { return amp__bwd_cast(bwd); }
BWD(clone, GRAD(b))
BWD(to_device, GRAD(b))

/* -- Views ------------------------------------------------------------------ */

BWD(alias, GRAD(b))

static amp_tensor *view_back(amp_bwd *bwd) { return amp__op_view(GRAD(bwd), SHAPE(bwd, 0)->ndim, SHAPE(bwd, 0)->size); }
int amp__bwd_view(amp_bwd *bwd) { return INPUT_GRAD(bwd, 0, view_back(bwd)); }
int amp__bwd_squeeze(amp_bwd *bwd) { return INPUT_GRAD(bwd, 0, view_back(bwd)); }
int amp__bwd_unsqueeze(amp_bwd *bwd) { return INPUT_GRAD(bwd, 0, view_back(bwd)); }
BWD(expand, GRAD(b))

int amp__bwd_transpose(amp_bwd *bwd)
{
  return INPUT_GRAD(
      bwd, 0, amp__op_transpose(GRAD(bwd), (int)AMP_ARGS(bwd, transpose)->dim0, (int)AMP_ARGS(bwd, transpose)->dim1));
}

int amp__bwd_permute(amp_bwd *bwd)
{
  amp_tensor *g = GRAD(bwd);
  int64_t back[AMP_MAX_DIM];
  for (int i = 0; i < g->ndim; i++) back[AMP_ARGS(bwd, permute)->dims.at[i]] = i + 1;
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, g->ndim, back);
  return INPUT_GRAD(bwd, 0, amp__op(AMP_OP_permute, &attrs, 1, &g));
}

/* Zeros of the input's shape with the gradient copied to the places of a view that meets itself nowhere */
static amp_tensor *placed(amp_bwd *bwd, const int64_t *stride, int64_t offset)
{
  amp_tensor *grad = GRAD(bwd), *whole = amp__op_zeros_like_in(bwd, 0, grad->dtype), *pair[2] = { NULL, grad };
  if (!whole) return NULL;
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, grad->ndim, grad->size);
  amp__attrs_list(&attrs, grad->ndim, stride);
  amp__attrs_int(&attrs, offset + whole->offset);
  if (!(pair[0] = amp__op(AMP_OP_as_strided, &attrs, 1, &whole))) return NULL;
  return amp__dispatch(AMP_OP_copy, AMP_INPLACE, pair, 2, NULL, NULL) < 0 ? NULL : whole;
}

/* The gradient added to zeros of the input's shape, at the places of a view of the gradient's size. Where the engine
** takes it as a part, only those places are touched: n slices of a tensor cost its size, not n times its size. */
static int strided_back(amp_bwd *bwd, const int64_t *stride, int64_t offset, bool apart)
{
  amp_tensor *grad = GRAD(bwd);
  if (grad->numel == 0) return INPUT_GRAD(bwd, 0, amp__op_zeros_like(bwd, 0));
  if (apart && bwd->takes_part && grad->dtype == SHAPE(bwd, 0)->dtype) {
    bwd->part = grad;
    memcpy(bwd->part_stride, stride, sizeof *stride * (size_t)grad->ndim);
    bwd->part_offset = offset;
    return 0;
  }
  if (apart && !bwd->create_graph) return INPUT_GRAD(bwd, 0, placed(bwd, stride, offset));
  amp_attrs attrs = amp__attrs();
  amp__attrs_shape(&attrs, SHAPE(bwd, 0));
  amp__attrs_list(&attrs, grad->ndim, grad->size);
  amp__attrs_list(&attrs, grad->ndim, stride);
  amp__attrs_int(&attrs, offset);
  return INPUT_GRAD(bwd, 0, amp__op(AMP_OP_as_strided_sum, &attrs, 1, &grad));
}

static int range_back(amp_bwd *bwd, int dim, int64_t start, int64_t step)
{
  int64_t stride[AMP_MAX_DIM];
  const amp_shape *shape = SHAPE(bwd, 0);
  amp__contiguous_strides(shape->ndim, shape->size, stride);
  int64_t offset = start * stride[dim];
  if (GRAD(bwd)->size[dim] > 1) stride[dim] *= step;
  return strided_back(bwd, stride, offset, true);
}

int amp__bwd_narrow(amp_bwd *bwd)
{
  const args_narrow *args = AMP_ARGS(bwd, narrow);
  return range_back(bwd, (int)args->dim, args->start, 1);
}

int amp__bwd_slice(amp_bwd *bwd)
{
  const args_slice *args = AMP_ARGS(bwd, slice);
  return range_back(bwd, (int)args->dim, args->start, args->step);
}

int amp__bwd_select(amp_bwd *bwd)
{
  const args_select *args = AMP_ARGS(bwd, select);
  int64_t stride[AMP_MAX_DIM];
  const amp_shape *shape = SHAPE(bwd, 0);
  int dim = (int)args->dim;
  amp__contiguous_strides(shape->ndim, shape->size, stride);
  int64_t offset = args->index * stride[dim];
  for (int i = dim; i + 1 < shape->ndim; i++) stride[i] = stride[i + 1];
  return strided_back(bwd, stride, offset, true);
}

/* Do the gradients of all slices lie as the slices of one dense tensor do? That tensor */
static amp_tensor *joined(amp_bwd *bwd, int dim)
{
  int64_t stride[AMP_MAX_DIM];
  const amp_shape *shape = SHAPE(bwd, 0);
  const amp_tensor *first = bwd->grad[0];
  amp__contiguous_strides(shape->ndim, shape->size, stride);
  for (int i = 0; i < bwd->nout; i++) {
    const amp_tensor *g = bwd->grad[i];
    if (g == NULL || g->storage != first->storage || g->dtype != shape->dtype
        || g->offset != first->offset + i * stride[dim])
      return NULL;
    for (int d = 0; d < g->ndim; d++)
      if (g->size[d] > 1 && g->stride[d] != stride[d + (d >= dim)]) return NULL;
  }
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, shape->ndim, shape->size);
  amp__attrs_list(&attrs, shape->ndim, stride);
  amp__attrs_int(&attrs, first->offset);
  return amp__op(AMP_OP_as_strided, &attrs, 1, (amp_tensor *const *)&bwd->grad[0]);
}

int amp__bwd_unbind(amp_bwd *bwd)
{
  amp_tensor *g[AMP_MAX_OUT], *one;
  int dim = (int)AMP_ARGS(bwd, unbind)->dim;
  if (!bwd->create_graph && (one = joined(bwd, dim)) != NULL) return INPUT_GRAD(bwd, 0, one);
  for (int i = 0; i < bwd->nout; i++) {
    const amp_shape *o = SHAPE(bwd, bwd->nin + i);
    g[i] = bwd->grad[i] ? bwd->grad[i] : amp__op_full(0, o->dtype, o->device, o->device_index, o->ndim, o->size);
    OR_FAIL(g[i]);
  }
  return INPUT_GRAD(bwd, 0, amp__op_dim(AMP_OP_stack, dim, bwd->nout, g));
}

int amp__bwd_diagonal(amp_bwd *bwd)
{
  const args_diagonal *args = AMP_ARGS(bwd, diagonal);
  int64_t full[AMP_MAX_DIM], stride[AMP_MAX_DIM], k = args->offset;
  const amp_shape *shape = SHAPE(bwd, 0);
  int d1 = (int)args->dim1, d2 = (int)args->dim2, n = 0;
  amp__contiguous_strides(shape->ndim, shape->size, full);
  for (int i = 0; i < shape->ndim; i++)
    if (i != d1 && i != d2) stride[n++] = full[i];
  stride[n] = full[d1] + full[d2];
  return strided_back(bwd, stride, k >= 0 ? k * full[d2] : -k * full[d1], true);
}

int amp__bwd_unfold(amp_bwd *bwd)
{
  const args_unfold *args = AMP_ARGS(bwd, unfold);
  int64_t stride[AMP_MAX_DIM];
  const amp_shape *shape = SHAPE(bwd, 0);
  int dim = (int)args->dim;
  amp__contiguous_strides(shape->ndim, shape->size, stride);
  stride[shape->ndim] = stride[dim];
  if (GRAD(bwd)->size[dim] > 1) stride[dim] *= args->step;
  return strided_back(bwd, stride, 0, false);
}

int amp__bwd_as_strided(amp_bwd *bwd)
{
  const args_as_strided *args = AMP_ARGS(bwd, as_strided);
  return strided_back(bwd, args->stride.at, AMP_GIVEN(args->offset) ? args->offset : 0, false);
}

/* The view of tensor, as if contiguous, of a size and stride (I attributes) from offset on */
static amp_tensor *strided_view(amp_tensor *tensor, const amp_slot *size, const amp_slot *stride, int64_t offset)
{
  tensor = amp__op_contiguous(tensor);
  if (!tensor) return NULL;
  amp_attrs attrs = amp__attrs();
  amp__attrs_copy(&attrs, size, 1 + AMP_MAX_DIM);
  amp__attrs_copy(&attrs, stride, 1 + AMP_MAX_DIM);
  amp__attrs_int(&attrs, offset + tensor->offset);
  return amp__op(AMP_OP_as_strided, &attrs, 1, &tensor);
}

int amp__bwd_as_strided_scatter(amp_bwd *bwd)
{
  const args_as_strided_scatter *args = AMP_ARGS(bwd, as_strided_scatter);
  const amp_slot *size = AMP_SLOT(args->size), *stride = AMP_SLOT(args->stride);
  int status = 0;
  if (NEEDS(bwd, 0)) {
    amp_attrs attrs = amp__attrs();
    amp__attrs_copy(&attrs, size, 1 + AMP_MAX_DIM);
    amp__attrs_copy(&attrs, stride, 1 + AMP_MAX_DIM);
    amp__attrs_int(&attrs, args->offset);
    amp_tensor *inputs[2] = { amp__op_contiguous(GRAD(bwd)), amp__op_zeros_like_in(bwd, 1, GRAD(bwd)->dtype) };
    status = INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, amp__op(AMP_OP_as_strided_scatter, &attrs, 2, inputs)));
  }
  if (status == 0 && NEEDS(bwd, 1))
    status = INPUT_GRAD(bwd, 1, amp__op_to_input(bwd, 1, strided_view(GRAD(bwd), size, stride, args->offset)));
  return status;
}

int amp__bwd_as_strided_sum(amp_bwd *bwd)
{
  const args_as_strided_sum *args = AMP_ARGS(bwd, as_strided_sum);
  amp_tensor *view = strided_view(GRAD(bwd), AMP_SLOT(args->size), AMP_SLOT(args->stride), args->offset);
  return INPUT_GRAD(bwd, 0, amp__op_to_input(bwd, 0, view));
}
