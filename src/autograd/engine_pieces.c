/*
** autograd/engine_pieces.c: gradients of pieces of one tensor that already lie where the tensor's gradient wants them.
**
** q, k and v are often narrows of what one product gave, and attention's backward makes their gradients beside each
** other in one storage (ops/attention/attention_shape.c). The first of them that comes is looked at: if it lies in its
** storage as the piece lies in a dense whole, that whole is what is gathered, without a copy, and which pieces came is
** noted. Once all have come it is the gradient. If another gradient comes, or the node's turn, before that, zeros take
** its place with the pieces that came copied into them, as if nothing had been noted.
*/
#include "autograd/engine.h"
#include "dispatch/op_builder.h"

/* Is engine->part a piece of a dense tensor of this shape, along one dimension, and does it lie in its storage as
** such a piece does? from: where that tensor would begin */
static bool lies_in_place(const engine *engine, const amp_shape *shape, int *dim, int64_t *from)
{
  const amp_tensor *g = engine->part;
  int64_t stride[AMP_MAX_DIM], count = 1;
  *dim = -1;
  if (g->ndim != shape->ndim || g->dtype != shape->dtype) return false;
  amp__contiguous_strides(shape->ndim, shape->size, stride);
  for (int d = 0; d < g->ndim; d++) {
    count *= shape->size[d];
    if (g->size[d] != shape->size[d]) {
      if (*dim >= 0) return false;
      *dim = d;
    }
    if (g->size[d] > 1 && (g->stride[d] != stride[d] || engine->part_stride[d] != stride[d])) return false;
  }
  *from = g->offset - engine->part_offset;
  return *dim >= 0 && *from >= 0
         && (uint64_t)(*from + count) * (uint64_t)amp__dtype_size[g->dtype] <= (uint64_t)g->storage->bytes;
}

amp_pieces *amp__engine_pieces(engine *engine, const amp_node *node, int index)
{
  for (int i = 0; i < engine->npieces; i++)
    if (engine->pieces[i].node == node && engine->pieces[i].index == index) return &engine->pieces[i];
  return NULL;
}

static void note(amp_pieces *p, int64_t start, int64_t length)
{
  p->start[p->count] = start;
  p->length[p->count++] = length;
}

/* The pieces that came, in zeros */
static int in_zeros(const amp_pieces *p, amp_tensor **cell)
{
  amp_tensor *whole = *cell;
  int status = 0, mark = amp__pool_mark();
  amp_tensor *fresh
      = amp__keep(amp__op_full(0, whole->dtype, whole->device, whole->device_index, whole->ndim, whole->size));
  if (fresh == NULL) status = amp__S->err.code;
  for (int i = 0; i < p->count && status == 0; i++) {
    amp_tensor *inputs[2] = { amp__op_narrow(fresh, p->dim, p->start[i], p->length[i]),
                              amp__op_narrow(whole, p->dim, p->start[i], p->length[i]) };
    status = inputs[0] && inputs[1] ? amp__dispatch(AMP_OP_copy, AMP_INPLACE, inputs, 2, NULL, NULL) : amp__S->err.code;
  }
  amp__pool_release(mark);
  if (status < 0) {
    amp__free(fresh);
    return status;
  }
  *cell = fresh;
  amp__free(whole);
  return 0;
}

int amp__engine_settle(engine *engine, const amp_node *node)
{
  for (int i = 0; i < engine->npieces; i++) {
    amp_pieces *p = &engine->pieces[i];
    if (p->node != node) continue;
    amp_tensor **cell = &amp__engine_find(engine, node)->grad[p->index];
    int64_t came = 0;
    for (int k = 0; k < p->count; k++) came += p->length[k];
    int status = came < (*cell)->size[p->dim] ? in_zeros(p, cell) : 0;
    if (status < 0) return status;
    *p = engine->pieces[--engine->npieces];
    i--;
  }
  return 0;
}

int amp__engine_piece(engine *engine, amp_node *node, int index, amp_tensor **cell)
{
  const amp_tensor *g = engine->part;
  const amp_shape *shape = amp__shape_of(engine->node, 0);
  amp_pieces *p = amp__engine_pieces(engine, node, index);
  int64_t from, stride[AMP_MAX_DIM];
  int dim;
  if (p == NULL && (*cell || engine->npieces == AMP_PIECES_WHOLES)) return 0;
  bool fits = lies_in_place(engine, shape, &dim, &from);
  if (p == NULL && !fits) return 0;
  amp__contiguous_strides(shape->ndim, shape->size, stride);
  int64_t start = fits ? engine->part_offset / stride[dim] : 0, length = fits ? g->size[dim] : 0;
  if (p) {
    const amp_tensor *whole = *cell;
    fits = fits && dim == p->dim && p->count < AMP_PIECES_MOST && g->storage == whole->storage && from == whole->offset;
    for (int i = 0; i < p->count && fits; i++)
      fits = start >= p->start[i] + p->length[i] || p->start[i] >= start + length;
    if (!fits) return amp__engine_settle(engine, node);
    note(p, start, length);
    return 1;
  }
  int mark = amp__pool_mark();
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, shape->ndim, shape->size);
  amp__attrs_list(&attrs, shape->ndim, stride);
  amp__attrs_int(&attrs, from);
  amp_tensor *whole = amp__keep(amp__op(AMP_OP_as_strided, &attrs, 1, &engine->part));
  amp__pool_release(mark);
  if (whole == NULL) return amp__S->err.code;
  *cell = whole;
  p = &engine->pieces[engine->npieces++];
  *p = (amp_pieces){ .node = node, .index = index, .dim = dim };
  note(p, start, length);
  return 1;
}
