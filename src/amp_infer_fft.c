/*
** amp_infer_fft.c: shape rules of the kernels of Fourier transforms. Composites
** (amp_comp_fft.c) have checked dimensions and lengths in the caller's words.
*/
#include "amp_infer.h"

static int want_dim(const amp_call *c, int nd)
{
  if (c->a[0].i >= 0 && c->a[0].i < nd) return 0;
  return amp__fail(AMP_E_INDEX, "dim %lld (from 0) is out of range for %d dimension%s", LL(c->a[0].i), nd, nd == 1 ? "" : "s");
}

static int want_pairs(const amp_tensor *t)
{
  if (t->ndim >= 2 && t->size[t->ndim - 1] == 2) return 0;
  return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected complex values: a last dimension of size 2", SHAPE_OF(t));
}

int amp__infer_fft_complex(amp_call *c) /* dim inverse scale */
{
  const amp_tensor *t = c->in[0];
  int rc = want_pairs(t);
  if (rc < 0 || (rc = want_dim(c, t->ndim - 1)) < 0) return rc;
  amp__out(c, 0, t->dtype, t->ndim, t->size);
  return 0;
}

int amp__infer_fft_real(amp_call *c) /* dim scale weighted */
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM + 1];
  int rc = want_dim(c, t->ndim);
  if (rc < 0) return rc;
  if (t->ndim == AMP_MAX_DIM) return amp__fail_arg(AMP_E_SHAPE, 1, "input has %d dimensions; its complex transform would have more than the %d there can be", t->ndim, AMP_MAX_DIM);
  for (int d = 0; d < t->ndim; d++) size[d] = t->size[d];
  size[c->a[0].i] = size[c->a[0].i] / 2 + 1;
  size[t->ndim] = 2;
  amp__out(c, 0, t->dtype, t->ndim + 1, size);
  return 0;
}

int amp__infer_fft_half(amp_call *c) /* dim n scale weighted */
{
  const amp_tensor *t = c->in[0];
  int64_t size[AMP_MAX_DIM], n = c->a[1].i;
  int rc = want_pairs(t);
  if (rc < 0 || (rc = want_dim(c, t->ndim - 1)) < 0) return rc;
  if (n < 1 || n / 2 + 1 != t->size[c->a[0].i])
    return amp__fail(AMP_E_SHAPE, "half a spectrum of %lld frequencies does not belong to n = %lld values", LL(t->size[c->a[0].i]), LL(n));
  for (int d = 0; d < t->ndim; d++) size[d] = t->size[d];
  size[c->a[0].i] = n;
  amp__out(c, 0, t->dtype, t->ndim - 1, size);
  return 0;
}
