/*
** amp_comp_fft.c: Fourier transforms as users call them, on top of three kernels
** (complex to complex, real to half a spectrum, half a spectrum to real).
**
** A complex tensor is a real one with a last dimension of size 2. The dimensions
** that `dim`, `n` and `s` speak of are those before it, so the same dim is right
** for rfft and for irfft. Series are cut or filled with zeros to n beforehand.
*/
#include <math.h>
#include "amp_bwd.h"

#define LL(x) ((long long)(x))
#define SHAPE_OF(t) amp__shape_str((t)->ndim, (t)->size)
enum { BACKWARD, ORTHO, FORWARD };

static double scale_of(int norm, bool inverse, int64_t n) {
  if (norm == ORTHO) return 1 / sqrt((double)n);
  return (norm == FORWARD) != inverse ? 1 / (double)n : 1;
}

static int want_pairs(const amp_tensor *t, bool may_be_real) {
  if (t->ndim >= 2 && t->size[t->ndim - 1] == 2) return 0;
  return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected a complex tensor: a last dimension of size 2 for real and imaginary parts%s", SHAPE_OF(t),
                       may_be_real ? "; a real one is taken with real = true" : "");
}

/* The dimension's size is to be n */
static amp_tensor *fit(amp_tensor *t, int dim, int64_t n) {
  if (!t || t->size[dim] == n) return t;
  if (t->size[dim] > n) return amp__xnarrow(t, dim, 0, n);
  amp_sl s = amp__sl();
  int behind = t->ndim - 1 - dim;
  amp__sl_i(&s, 2 * (behind + 1));
  for (int i = 0; i < 16; i++) amp__sl_i(&s, i == 2 * behind + 1 ? n - t->size[dim] : 0);
  amp__sl_i(&s, 0);
  amp__sl_f(&s, 0);
  return amp__x(AMP_OP_pad, &s, 1, &t);
}

static amp_tensor *as_pairs(amp_tensor *t) { return t ? fit(amp__xunsqueeze(t, -1), t->ndim, 2) : NULL; }

static amp_tensor *complex_along(amp_tensor *t, int dim, int64_t n, bool inverse, int norm) {
  t = fit(t, dim, n);
  amp_sl s = amp__sl();
  amp__sl_i(&s, dim);
  amp__sl_i(&s, inverse);
  amp__sl_f(&s, scale_of(norm, inverse, n));
  return amp__x(AMP_OP_fft_complex, &s, 1, &t);
}

static amp_tensor *real_along(amp_tensor *t, int dim, int64_t n, int norm) {
  t = fit(t, dim, n);
  amp_sl s = amp__sl();
  amp__sl_i(&s, dim);
  amp__sl_f(&s, scale_of(norm, false, n));
  amp__sl_i(&s, 0);
  return amp__x(AMP_OP_fft_real, &s, 1, &t);
}

static amp_tensor *half_along(amp_tensor *t, int dim, int64_t n, int norm) {
  t = fit(t, dim, n / 2 + 1);
  amp_sl s = amp__sl();
  amp__sl_i(&s, dim);
  amp__sl_i(&s, n);
  amp__sl_f(&s, scale_of(norm, true, n));
  amp__sl_i(&s, 1);
  return amp__x(AMP_OP_fft_half, &s, 1, &t);
}

/* -- Over several dimensions ------------------------------------------------------------- */

enum kind { COMPLEX, INVERSE, REAL, HALF };

typedef struct plan { int count, dim[AMP_MAX_DIM]; int64_t n[AMP_MAX_DIM]; } plan;

static int want_length(int64_t n, int dim) {
  if (n > INT64_C(1) << 38) return amp__fail(AMP_E_MEMORY, "%lld values along dimension %d are more than any memory holds", LL(n), dim + 1);
  if (n >= 1) return 0;
  return amp__fail(AMP_E_ARGUMENT, "%lld values along dimension %d: a transform needs at least 1", LL(n), dim + 1);
}

/* One transform a dimension, lengths n: of the dimension itself if absent. The last one is halved or restored. */
static int transform(amp_call *c, int kind, int norm, bool real, plan *p) {
  amp_tensor *t = c->in[0];
  int rc;
  for (int i = 0; i < p->count; i++) {
    bool last = i == p->count - 1;
    if (p->n[i] == AMP_NONE) p->n[i] = kind == HALF && last ? 2 * (t->size[p->dim[i]] - 1) : t->size[p->dim[i]];
    if ((rc = want_length(p->n[i], p->dim[i])) < 0) return rc;
    if (t->size[p->dim[i]] == 0) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s: dimension %d, along which it is to be transformed, is empty", SHAPE_OF(t), p->dim[i] + 1);
  }
  if (kind <= INVERSE && real) t = as_pairs(t);
  if (kind == REAL) t = real_along(t, p->dim[p->count - 1], p->n[p->count - 1], norm);
  for (int i = 0; i < p->count - (kind >= REAL); i++) t = complex_along(t, p->dim[i], p->n[i], kind == INVERSE || kind == HALF, norm);
  if (kind == HALF) t = half_along(t, p->dim[p->count - 1], p->n[p->count - 1], norm);
  return amp__ret(c, 0, t);
}

static int one(amp_call *c, int kind, bool real) { /* n dim norm */
  amp_tensor *t = c->in[0];
  plan p = { .count = 1 };
  real = real || kind == REAL;
  int rc = real ? 0 : want_pairs(t, kind != HALF);
  if (rc < 0 || (rc = amp__norm_dim(&c->a[1], real ? t->ndim : t->ndim - 1, "dim")) < 0) return rc;
  p.dim[0] = (int)c->a[1].i;
  p.n[0] = c->a[0].i;
  if (c->a[0].i != AMP_NONE && c->a[0].i < 1) return amp__fail(AMP_E_ARGUMENT, "n is %lld, must be at least 1", LL(c->a[0].i));
  return transform(c, kind, (int)c->a[2].i, real, &p);
}

int amp__comp_fft(amp_call *c) { return one(c, COMPLEX, c->a[3].i != 0); }
int amp__comp_ifft(amp_call *c) { return one(c, INVERSE, c->a[3].i != 0); }
int amp__comp_rfft(amp_call *c) { return one(c, REAL, false); }
int amp__comp_irfft(amp_call *c) { return one(c, HALF, false); }

static int several(amp_call *c, int kind, bool real, int two) { /* s (9 slots) dim (9 slots) norm */
  amp_tensor *t = c->in[0];
  amp_slot *lengths = c->a, *dims = c->a + 1 + AMP_MAX_DIM;
  plan p = { 0 };
  uint32_t mask;
  real = real || kind == REAL;
  int rc = real ? 0 : want_pairs(t, kind != HALF), nd = real ? t->ndim : t->ndim - 1;
  if (rc < 0) return rc;
  bool has_s = lengths[0].i != AMP_NONE, has_dim = dims[0].i != AMP_NONE && dims[0].i != 0;
  if (has_dim) {
    if ((rc = amp__norm_dims(dims, nd, &mask)) < 0) return rc;
    p.count = (int)dims[0].i;
  } else p.count = has_s ? (int)lengths[0].i : two ? two : nd;
  if (p.count > nd || p.count < 1)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s: there are %d dimensions to transform along, expected %s%d", SHAPE_OF(t), nd, p.count < 1 ? "at least " : "", p.count < 1 ? 1 : p.count);
  if (two && p.count != two) return amp__fail(AMP_E_ARGUMENT, "%s names %d dimensions, expected %d", has_dim ? "dim" : "s", p.count, two);
  if (has_s && lengths[0].i != p.count) return amp__fail(AMP_E_ARGUMENT, "s has %lld lengths for %d dimensions", LL(lengths[0].i), p.count);
  for (int i = 0; i < p.count; i++) {
    p.dim[i] = has_dim ? (int)dims[1 + i].i : nd - p.count + i;
    p.n[i] = has_s && lengths[1 + i].i != -1 ? lengths[1 + i].i : AMP_NONE; /* -1: as it is */
    if (p.n[i] != AMP_NONE && p.n[i] < 1) return amp__fail(AMP_E_ARGUMENT, "s has length %lld for dimension %d, must be at least 1 (or -1: its size)", LL(p.n[i]), p.dim[i] + 1);
  }
  return transform(c, kind, (int)dims[1 + AMP_MAX_DIM].i, real, &p);
}

static bool real_slot(const amp_call *c) { return c->a[2 * (1 + AMP_MAX_DIM) + 1].i != 0; }
int amp__comp_fft2(amp_call *c) { return several(c, COMPLEX, real_slot(c), 2); }
int amp__comp_ifft2(amp_call *c) { return several(c, INVERSE, real_slot(c), 2); }
int amp__comp_rfft2(amp_call *c) { return several(c, REAL, false, 2); }
int amp__comp_irfft2(amp_call *c) { return several(c, HALF, false, 2); }
int amp__comp_fftn(amp_call *c) { return several(c, COMPLEX, real_slot(c), 0); }
int amp__comp_ifftn(amp_call *c) { return several(c, INVERSE, real_slot(c), 0); }
int amp__comp_rfftn(amp_call *c) { return several(c, REAL, false, 0); }
int amp__comp_irfftn(amp_call *c) { return several(c, HALF, false, 0); }

/* -- Order of frequencies -------------------------------------------------------------------- */

static int shift(amp_call *c, bool back) { /* dim complex */
  amp_tensor *t = c->in[0];
  bool pairs = c->a[1 + AMP_MAX_DIM].i != 0;
  uint32_t mask;
  int64_t by[AMP_MAX_DIM], at[AMP_MAX_DIM];
  int rc, n = 0;
  if (pairs && (rc = want_pairs(t, false)) < 0) return rc;
  if (c->a[0].i == 0) c->a[0].i = AMP_NONE;
  if ((rc = amp__norm_dims(c->a, pairs ? t->ndim - 1 : t->ndim, &mask)) < 0) return rc;
  for (int d = 0; d < t->ndim; d++) {
    if (!(mask >> d & 1)) continue;
    by[n] = back ? (t->size[d] + 1) / 2 : t->size[d] / 2;
    at[n++] = d + 1;
  }
  if (n == 0) return amp__ret(c, 0, X1(clone, t));
  amp_sl s = amp__sl();
  amp__sl_list(&s, n, by);
  amp__sl_list(&s, n, at);
  return amp__ret(c, 0, amp__x(AMP_OP_roll, &s, 1, &t));
}

int amp__comp_fftshift(amp_call *c) { return shift(c, false); }
int amp__comp_ifftshift(amp_call *c) { return shift(c, true); }
