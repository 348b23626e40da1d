/*
** cuda_core.c: the core's own names inside the plug-in. libamp.so hides its
** symbols, so what kernels call (amp__fail, amp__tensor_make, ...) is defined
** here once more and goes through the table that amp_plugin_init was given. Of
** dtypes the plug-in has a copy of its own (base/dtype.c).
*/
#include <stdarg.h>
#include <stdio.h>
#include "cuda_branches.h"
#include "cuda_core.h"

const amp_core_api *amp__cuda_api;

static int vfail(int code, int arg, const char *fmt, va_list list)
{
  char text[976];
  vsnprintf(text, sizeof text, fmt, list);
  return amp__cuda_api->fail(code, arg, text);
}

int amp__fail(int code, const char *fmt, ...)
{
  va_list list;
  va_start(list, fmt);
  int rc = vfail(code, 0, fmt, list);
  va_end(list);
  return rc;
}

int amp__fail_arg(int code, int arg, const char *fmt, ...)
{
  va_list list;
  va_start(list, fmt);
  int rc = vfail(code, arg, fmt, list);
  va_end(list);
  return rc;
}

const char *amp__shape_str(int ndim, const int64_t *size) { return amp__cuda_api->shape_str(ndim, size); }
const char *amp__tensor_str(const amp_tensor *t) { return amp__cuda_api->tensor_str(t); }
amp_tensor *amp__tensor_make(int dtype, int device, int index, int ndim, const int64_t *size)
{
  return amp__cuda_api->tensor_make(dtype, device, index, ndim, size);
}
amp_tensor *amp__tensor_view(const amp_tensor *t, int ndim, const int64_t *size, const int64_t *stride, int64_t offset)
{
  return amp__cuda_api->tensor_view(t, ndim, size, stride, offset);
}
void amp__free(amp_tensor *t) { amp__cuda_api->free(t); }
int amp__dispatch(int op, unsigned flags, amp_tensor *const *in, int nin, amp_tensor **out, const amp_slot *attrs)
{
  return amp__cuda_api->dispatch(op, flags, in, nin, out, attrs);
}

/* Whether a step is being captured the core knows; here every bump is passed on. */
int amp__capturing = 1;
static void bump(amp_storage *s)
{
  amp_cuda_device *d = amp__cuda_here();
  if (d && d->capture && d->branches) amp__branches_changed(d->branches, s);
  amp__cuda_api->capture_bump(s);
}
amp_hooks amp__hooks = { .capture_bump = bump };

/* -- Tensors for kernels ------------------------------------------------------- */

amp_tensor *amp__cuda_make(int dtype, int ndim, const int64_t *size)
{
  amp_tensor *t = amp__tensor_make(dtype, AMP_CUDA, amp__cuda_here()->index, ndim, size);
  if (t && amp__cuda_here()->capture) amp__cuda_touch(t, true);
  return t;
}

amp_tensor *amp__cuda_scratch(size_t n)
{
  int64_t size = (int64_t)(n ? n : 1);
  return amp__cuda_make(AMP_UINT8, 1, &size);
}

bool amp__cuda_plain(const amp_tensor *t)
{
  int64_t step = 1;
  if (t->numel == 0) return true;
  for (int d = t->ndim - 1; d >= 0; d--) {
    if (t->size[d] != 1 && t->stride[d] != step) return false;
    step *= t->size[d];
  }
  return true;
}

amp_tensor *amp__cuda_dense(amp_tensor *t, int dtype)
{
  if (t->dtype == dtype && amp__cuda_plain(t)) {
    amp__retain(t);
    return t;
  }
  amp_tensor *d = amp__cuda_make(dtype, t->ndim, t->size);
  if (d && amp__cuda_copy_to(d, t) < 0) {
    amp__free(d);
    return NULL;
  }
  return d;
}

amp_tensor *amp__cuda_op(int op, amp_tensor *const *in, int nin, const amp_slot *a)
{
  amp_state *S = amp__cuda_api->state();
  amp_tensor *out[AMP_MAX_OUT] = { NULL };
  amp__plain plain = amp__plain_record(S, 0);
  int rc = amp__dispatch(op, 0, in, nin, out, a);
  amp__plain_end(plain);
  for (int i = 1; i < AMP_MAX_OUT; i++) amp__free(out[i]);
  return rc < 0 ? NULL : out[0];
}

/* -- Random numbers ----------------------------------------------------------------- */

amp_rng amp__cuda_rng(int64_t n)
{
  amp_state *S = amp__cuda_api->state();
  amp_cuda_device *d = amp__cuda_here();
  amp_rng r = { S->seed, S->rng_offset, NULL };
  if (d->capture)
    r = (amp_rng){
      0, S->rng_offset - d->drawn, d->random
    }; /* the generator itself counts: an op that fails and one that is computed again set it back */
  S->rng_offset += (uint64_t)n;
  return r;
}
