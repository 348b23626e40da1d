/*
** cpu_make.c: tensors of places and series: logspace, tril_indices,
** triu_indices, and diag_embed, which writes through a view of the diagonal.
*/
#include <math.h>
#include "cpu_iter.h"

int amp__cpu_logspace(amp_call *c)
{
  double start = c->a[0].f, end = c->a[1].f, base = c->a[3].f, buf[AMP_CHUNK];
  int64_t n = c->a[2].i;
  amp_tensor *o = c->out[0];
  const double step = n > 1 ? (end - start) / (double)(n - 1) : 0;
  char *p = amp__data(o);
  if (n == 1) end = start;
  for (int64_t at = 0; at < n; at += AMP_CHUNK) {
    const int64_t m = n - at < AMP_CHUNK ? n - at : AMP_CHUNK;
    for (int64_t i = 0; i < m; i++) /* exponents from the nearer end */
      buf[i] = pow(base, at + i < (n + 1) / 2 ? start + (double)(at + i) * step : end - (double)(n - 1 - at - i) * step);
    amp__store(o->dtype, p + at * o->stride[0] * amp__dtype_size[o->dtype], o->stride[0], AMP_C_F64, buf, m);
  }
  return 0;
}

static int triangle_indices(amp_call *c, bool lower)
{
  int64_t rows = c->a[0].i, cols = c->a[1].i, offset = c->a[2].i, n = c->out[0]->size[1], k = 0;
  amp_tensor *o = c->out[0], *t = amp__tensor_make(AMP_INT64, AMP_CPU, 0, 2, o->size);
  if (t == NULL) return amp__S->err.code;
  int64_t *p = AMP_DATA(int64_t, t);
  for (int64_t i = 0; i < rows && k < n; i++) {
    int64_t from = lower || i + offset < 0 ? 0 : i + offset, to = lower ? i + offset + 1 : cols;
    if (to > cols) to = cols;
    for (int64_t j = from; j < to; j++, k++) { p[k] = i + 1; p[n + k] = j + 1; }
  }
  int rc = amp__copy_to(o, t);
  amp__free(t);
  return rc;
}
int amp__cpu_tril_indices(amp_call *c) { return triangle_indices(c, true); }
int amp__cpu_triu_indices(amp_call *c) { return triangle_indices(c, false); }

int amp__cpu_diag_embed(amp_call *c)
{
  amp_tensor *t = c->in[0], *o = c->out[0];
  int64_t offset = c->a[0].i, d1 = c->a[1].i, d2 = c->a[2].i, stride[AMP_MAX_DIM];
  int rc = amp__fill_value(o, 0), k = 0;
  if (rc < 0 || t->numel == 0) return rc;
  for (int d = 0; d < o->ndim; d++)
    if (d != d1 && d != d2) stride[k++] = o->stride[d];
  stride[k] = o->stride[d1] + o->stride[d2];
  amp_tensor *v = amp__tensor_view(o, t->ndim, t->size, stride, o->offset + (offset > 0 ? offset * o->stride[d2] : -offset * o->stride[d1]));
  rc = v ? amp__copy_to(v, t) : amp__S->err.code;
  amp__free(v);
  return rc;
}
