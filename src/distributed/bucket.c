/*
** distributed/bucket.c: gradients of several leaves in one piece of memory, so that one call sums them over the ranks.
**
**   gradient 1 | gradient 2 | ... | a flag for each leaf
**
** Each gradient begins on a line of 64 bytes and is a tensor with storage of its own in the block, as parameters are in
** the optimizer's arena: a change of one is no change of another, and a step reads them where they are. The piece is
*made
** anew each time, so that who holds a gradient keeps its values.
*/
#include <stdlib.h>
#include "autograd/derivative.h"
#include "autograd/gradient.h"
#include "dispatch/op_builder.h"
#include "precision/scale.h"

struct amp_bucket {
  int n, dtype;
  amp_tensor **leaf; /* counted */
  size_t *at;        /* bytes; [n]: of the flags, [n + 1]: in all */
  amp_block *block;  /* between pack and unpack */
  uint8_t *had;      /* this rank had a gradient */
};

void amp_bucket_free(amp_bucket *b)
{
  if (b == NULL) return;
  for (int i = 0; i < b->n && b->leaf; i++) amp__free(b->leaf[i]);
  if (b->block) amp__block_free(b->block);
  free(b->leaf);
  free(b->at);
  free(b->had);
  free(b);
}

amp_bucket *amp_bucket_new(amp_state *state, amp_tensor *const *leaf, int n, int dtype)
{
  AMP_ENTER(state);
  amp_bucket *b = calloc(1, sizeof *b);
  if (b) {
    b->leaf = calloc((size_t)n + 1, sizeof *b->leaf);
    b->at = calloc((size_t)n + 2, sizeof *b->at);
    b->had = calloc((size_t)n + 1, 1);
  }
  if (!b || !b->leaf || !b->at || !b->had) {
    amp__nomem(sizeof *b);
    amp_bucket_free(b);
    return NULL;
  }
  b->dtype = dtype < 0 ? leaf[0]->dtype : dtype;
  size_t at = 0;
  for (int i = 0; i < n; i++) {
    amp__retain(b->leaf[b->n++] = leaf[i]);
    b->at[i] = at;
    at += ((size_t)leaf[i]->numel * amp__dtype_size[b->dtype] + 63) & ~(size_t)63;
  }
  b->at[n] = at;
  b->at[n + 1] = at + (((size_t)n * amp__dtype_size[b->dtype] + 63) & ~(size_t)63);
  return b;
}

/* bytes of the block as a tensor with storage of its own */
static amp_tensor *tensor_in(const amp_bucket *b, size_t at, size_t bytes, int ndim, const int64_t *size,
                             const int64_t *stride)
{
  amp_storage *storage = amp__storage_in(b->block, at, bytes);
  if (storage == NULL) return NULL;
  amp_tensor *tensor = amp__tensor_of(storage, b->dtype, ndim, size, stride, 0);
  amp__storage_free(storage);
  return tensor;
}

static amp_tensor *place_of(const amp_bucket *b, int i)
{
  const amp_tensor *leaf = b->leaf[i];
  bool dense = (leaf->flags & AMP_T_DENSE) != 0;
  return tensor_in(b, b->at[i], (size_t)leaf->numel * amp__dtype_size[b->dtype], leaf->ndim, leaf->size,
                   dense ? leaf->stride : NULL);
}

static int fill(amp_tensor *tensor, double v)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_float(&attrs, v);
  return amp__dispatch(AMP_OP_fill, AMP_INPLACE, &tensor, 1, NULL, attrs.v);
}

static int copy_into(amp_tensor *to, amp_tensor *from)
{
  amp_tensor *inputs[2] = { to, from };
  return amp__dispatch(AMP_OP_copy, AMP_INPLACE, inputs, 2, NULL, NULL);
}

/* A gradient, with its pending factor, into its place */
static int pack_one(amp_bucket *b, int i)
{
  amp_tensor *leaf = b->leaf[i];
  const amp_grad *grad = amp__grad_of(leaf);
  int status = 0;
  if (leaf->numel == 0) {
    b->had[i] = grad != NULL;
    return 0;
  }
  amp_tensor *to = place_of(b, i);
  if (to == NULL) return amp__S->err.code;
  b->had[i] = grad != NULL;
  if (grad && grad->factor) status = amp__grad_materialize(leaf);
  if (status == 0) status = grad ? copy_into(to, grad->value) : fill(to, 0);
  amp__free(to);
  return status;
}

static int pack_flags(amp_bucket *b)
{
  int64_t n = b->n;
  bool all = true;
  amp_tensor *flags = tensor_in(b, b->at[b->n], (size_t)n * amp__dtype_size[b->dtype], 1, &n, NULL);
  if (flags == NULL) return amp__S->err.code;
  for (int i = 0; i < b->n; i++) all &= b->had[i] != 0;
  int status = fill(flags, all);
  for (int i = 0; i < b->n && !all && status == 0; i++) {
    if (!b->had[i]) continue;
    const int64_t one = 1;
    amp_tensor *cell = amp__tensor_view(flags, 1, &one, &one, i);
    status = cell ? fill(cell, 1) : amp__S->err.code;
    amp__free(cell);
  }
  amp__free(flags);
  return status;
}

int amp_bucket_pack(amp_state *state, amp_ref *flat, amp_bucket *b)
{
  AMP_ENTER(state);
  const amp_tensor *first = b->leaf[0];
  size_t size = amp__dtype_size[b->dtype];
  int64_t n = (int64_t)(b->at[b->n] / size) + b->n;
  amp__plain plain = amp__plain_begin();
  int status = 0, mark = amp__pool_mark();
  if (b->block) amp__block_free(b->block);
  b->block = amp__block_new(first->device, first->device_index, b->at[b->n + 1]);
  if (b->block == NULL) status = amp__nomem(b->at[b->n + 1]);
  for (int i = 0; i < b->n && status == 0; i++) status = pack_one(b, i);
  if (status == 0) status = pack_flags(b);
  if (status == 0 && (flat->t = tensor_in(b, 0, (size_t)n * size, 1, &n, NULL)) == NULL) status = state->err.code;
  amp__pool_release(mark);
  amp__plain_end(plain);
  return status;
}

/* The i-th leaf's gradient is what lies in its place now. */
static int unpack_one(const amp_bucket *b, int i)
{
  amp_tensor *leaf = b->leaf[i];
  amp_ag *ag = amp__ag(leaf);
  if (ag == NULL) return amp__S->err.code;
  amp_grad *grad = &ag->grad;
  if (leaf->numel == 0) return 0;
  amp_tensor *value = place_of(b, i);
  if (value == NULL) return amp__S->err.code;
  if (amp_unlikely(amp__capturing)) amp__capture_gradient(leaf, false);
  int status = 0, origin = grad->value ? amp__grad_origin(grad) : 0;
  if (grad->value && grad->visible) {
    status = copy_into(grad->value, value);
    amp__free(value);
  } else {
    amp__free(grad->value);
    amp__free(grad->factor);
    grad->factor = NULL;
    grad->value = value;
    grad->visible = 0;
  }
  if (grad->check) amp__hooks.check_free(grad->check);
  grad->check = NULL;
  grad->master = AMP_MASTER_NONE;
  amp__grad_from(grad, origin);
  return status;
}

int amp_bucket_unpack(amp_state *state, amp_bucket *b)
{
  AMP_ENTER(state);
  if (b->block == NULL) return amp__fail(AMP_E_STATE, "the bucket holds nothing");
  amp__plain plain = amp__plain_begin();
  int status = 0, mark = amp__pool_mark();
  int64_t n = b->n;
  amp_tensor *flags = NULL, *here = NULL;
  for (int i = 0; i < b->n && status == 0; i++) {
    bool has = b->had[i] != 0;
    if (!has && here == NULL) { /* another rank may have had one; only then flags are looked at */
      flags = tensor_in(b, b->at[b->n], (size_t)n * amp__dtype_size[b->dtype], 1, &n, NULL);
      here = flags ? amp__on_cpu(flags) : NULL;
      if (here == NULL) status = state->err.code;
      if (flags && flags->device != AMP_CPU) state->host_waits++;
    }
    if (!has && status == 0) has = amp__element(here, i) != 0;
    if (has && status == 0) status = unpack_one(b, i);
  }
  amp__free(here);
  amp__free(flags);
  amp__block_free(b->block);
  b->block = NULL;
  amp__pool_release(mark);
  amp__plain_end(plain);
  return status;
}
