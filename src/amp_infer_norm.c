/*
** amp_infer_norm.c: shape rules of normalisation, dropout, softmax and losses.
** Statistics and sums that only backward reads are float32 (float64 for
** float64) whatever the input is. Classes lie along dimension 2, or along the
** only one; labels are any integer dtype.
*/
#include "amp_infer.h"

/* -- Normalisation ------------------------------------------------------------- */

static int channels(const amp_call *c, int i, const char *what, int64_t n)
{
  const amp_tensor *t = i < c->nin ? c->in[i] : NULL;
  if (t == NULL || (t->ndim == 1 && t->size[0] == n)) return 0;
  return amp__fail_arg(AMP_E_SHAPE, i + 1, "%s has shape %s, expected %lld (dimension 2 of the input)", what, SHAPE_OF(t), LL(n));
}

/* running_mean, running_var, weight and bias stand from place `at` on; a: training, momentum, eps */
static int batch_norm_rule(amp_call *c, int at, const amp_slot *a)
{
  static const char *const name[] = { "running_mean", "running_var", "weight", "bias" };
  const amp_tensor *x = c->in[0];
  bool training = a[0].i != 0;
  int rc;
  if (x->ndim < 2) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected at least 2 dimensions (N x C x ...)", SHAPE_OF(x));
  int64_t n = x->size[1];
  for (int i = 0; i < 4; i++) if ((rc = channels(c, at + i, name[i], n)) < 0) return rc;
  if ((c->in[at] == NULL) != (c->in[at + 1] == NULL)) return amp__fail(AMP_E_ARGUMENT, "running_mean and running_var come together");
  if (!training && c->in[at] == NULL) return amp__fail(AMP_E_ARGUMENT, "without training, running_mean and running_var are needed");
  if (training && n > 0 && x->numel == n)
    return amp__fail_arg(AMP_E_SHAPE, 1, "training needs more than one value per channel, input has shape %s", SHAPE_OF(x));
  if (!(a[2].f >= 0)) return amp__fail(AMP_E_VALUE, "eps %g must not be negative", a[2].f);
  amp__like(c, 0, x, x->dtype);
  amp__out(c, 1, amp__acc_dtype(x->dtype), 1, &n);
  amp__out(c, 2, amp__acc_dtype(x->dtype), 1, &n);
  return 0;
}

int amp__infer_batch_norm(amp_call *c) { return batch_norm_rule(c, 1, c->a); }

/* input residual? running_mean? running_var? weight? bias? batches? relu training momentum eps */
int amp__infer_batch_norm_act(amp_call *c)
{
  const amp_tensor *x = c->in[0], *r = c->nin > 1 ? c->in[1] : NULL, *batches = c->nin > 6 ? c->in[6] : NULL;
  int rc;
  for (int i = 0; i < 6 && i < c->nin; i++)
    if (c->in[i] && !amp__is_float(c->in[i]->dtype))
      return amp__fail_arg(AMP_E_DTYPE, i + 1, "argument %d has dtype %s, expected a float dtype", i + 1, amp_dtype_name(c->in[i]->dtype));
  if ((rc = batch_norm_rule(c, 2, c->a + 1)) < 0) return rc;
  if (r) {
    if ((rc = amp__want_shape(r, "residual", x->ndim, x->size)) < 0) return rc;
    if (r->dtype != x->dtype) return amp__fail_arg(AMP_E_DTYPE, 2, "residual is %s, input %s", amp_dtype_name(r->dtype), amp_dtype_name(x->dtype));
  }
  if (batches && (batches->dtype != AMP_INT64 || batches->numel != 1))
    return amp__fail_arg(AMP_E_DTYPE, 7, "batches is %s, expected one int64", amp__tensor_str(batches));
  /* where kernels can tell from the input what ReLU let through */
  if (x->device != AMP_CPU && r == NULL && c->a[1].i) c->unsaved = 1u << 8;
  return 0;
}

/* grad input result? weight? bias? mean rstd training residual */
int amp__infer_batch_norm_act_backward(amp_call *c)
{
  const amp_tensor *g = c->in[0], *x = c->in[1], *y = c->in[2], *w = c->in[3];
  int rc;
  if (x->ndim < 2) return amp__fail_arg(AMP_E_SHAPE, 2, "input has shape %s, expected at least 2 dimensions", SHAPE_OF(x));
  int64_t n = x->size[1];
  if ((rc = amp__want_shape(g, "grad", x->ndim, x->size)) < 0 || (y && (rc = amp__want_shape(y, "result", x->ndim, x->size)) < 0)) return rc;
  if ((rc = channels(c, 3, "weight", n)) < 0 || (rc = channels(c, 4, "bias", n)) < 0 || (rc = channels(c, 5, "mean", n)) < 0
      || (rc = channels(c, 6, "rstd", n)) < 0) return rc;
  if (y == NULL && (x->device == AMP_CPU || c->a[1].i)) return amp__fail_arg(AMP_E_ARGUMENT, 3, "argument 3: the result is needed");
  int dtype = w ? w->dtype : c->in[5]->dtype;
  amp__like(c, 0, x, x->dtype);
  amp__out(c, 1, dtype, 1, &n);
  amp__out(c, 2, dtype, 1, &n);
  if (c->a[1].i) amp__like(c, 3, x, x->dtype);
  return 0;
}

/* grad input weight? mean rstd */
int amp__infer_batch_norm_backward(amp_call *c)
{
  const amp_tensor *g = c->in[0], *x = c->in[1], *w = c->in[2];
  int rc;
  if (x->ndim < 2) return amp__fail_arg(AMP_E_SHAPE, 2, "input has shape %s, expected at least 2 dimensions", SHAPE_OF(x));
  int64_t n = x->size[1];
  if ((rc = amp__want_shape(g, "grad", x->ndim, x->size)) < 0 || (rc = channels(c, 2, "weight", n)) < 0 || (rc = channels(c, 3, "mean", n)) < 0
      || (rc = channels(c, 4, "rstd", n)) < 0) return rc;
  int dtype = w ? w->dtype : c->in[3]->dtype;
  amp__like(c, 0, x, x->dtype);
  amp__out(c, 1, dtype, 1, &n);
  amp__out(c, 2, dtype, 1, &n);
  return 0;
}

/* The trailing dimensions of x that have the shape of attribute s; *lead: how many come before. */
static int trailing(const amp_tensor *x, amp_slot *s, int *n, int64_t *shape, int *lead)
{
  int rc = amp__shape_attr(s, "shape", n, shape);
  if (rc < 0) return rc;
  *lead = x->ndim - *n;
  if (*n == 0) return amp__fail(AMP_E_SHAPE, "shape is empty; at least one dimension is normalised");
  if (*lead < 0 || memcmp(x->size + *lead, shape, sizeof *shape * (size_t)*n) != 0)
    return amp__fail(AMP_E_SHAPE, "input has shape %s, whose last dimensions are not %s", SHAPE_OF(x), amp__shape_str(*n, shape));
  return 0;
}

/* weight and bias stand from place `at` on; *lead: dimensions that a statistic has */
static int layer_norm_rule(amp_call *c, int at, int *lead)
{
  int64_t shape[AMP_MAX_DIM];
  int n, rc = trailing(c->in[0], c->a, &n, shape, lead);
  if (rc < 0) return rc;
  for (int i = at; i < at + 2 && i < c->nin; i++)
    if (c->in[i] && (rc = amp__want_shape(c->in[i], i == at ? "weight" : "bias", n, shape)) < 0) return rc;
  if (!(c->a[9].f >= 0)) return amp__fail(AMP_E_VALUE, "eps %g must not be negative", c->a[9].f);
  return 0;
}

int amp__infer_layer_norm(amp_call *c)
{
  const amp_tensor *x = c->in[0];
  int lead, rc = layer_norm_rule(c, 1, &lead);
  if (rc < 0) return rc;
  amp__out(c, 0, x->dtype, x->ndim, x->size);
  amp__out(c, 1, amp__acc_dtype(x->dtype), lead, x->size);
  amp__out(c, 2, amp__acc_dtype(x->dtype), lead, x->size);
  amp__want_twin(c);
  return 0;
}

/* input residual weight? bias?; shape eps dtype. Where a region has layer norms in float32, this one gives float32 too, unless told */
int amp__infer_add_layer_norm(amp_call *c)
{
  const amp_state *S = amp__S;
  const amp_tensor *x = c->in[0];
  int lead, rc = layer_norm_rule(c, 2, &lead);
  if (rc < 0 || (rc = amp__want_shape(c->in[1], "residual", x->ndim, x->size)) < 0) return rc;
  int dtype = amp__promote(x->dtype, c->in[1]->dtype), result = dtype;
  bool region = S->autocast_on && !c->flags && S->autocast[x->device].enabled && amp__policy_of(c->id, c->a) == AMP_SPECIAL
                && amp__policy_of(AMP_OP_layer_norm, c->a) == AMP_FP32;
  if (c->a[10].i != AMP_NONE && !amp__is_float((int)c->a[10].i)) return amp__fail(AMP_E_DTYPE, "dtype is %s, a float dtype is expected", amp_dtype_name((int)c->a[10].i));
  int64_t size[AMP_MAX_DIM] = { 2 }; /* means, then 1 / standard deviations */
  for (int i = 0; i < lead; i++) size[1 + i] = x->size[i];
  if (c->a[10].i != AMP_NONE) result = (int)c->a[10].i;
  else if (region && amp__is_half(dtype)) result = AMP_FLOAT32;
  amp__out(c, 0, result, x->ndim, x->size);
  amp__out(c, 1, dtype, x->ndim, x->size);
  amp__out(c, 2, amp__acc_dtype(dtype), lead + 1, size);
  amp__want_twin(c);
  return 0;
}

/* What a backward row is to add to the input's gradient, at place i */
static int addend(const amp_call *c, int i)
{
  const amp_tensor *x = c->in[1], *s = i < c->nin ? c->in[i] : NULL;
  int rc = s ? amp__want_shape(s, "sum", x->ndim, x->size) : 0;
  if (rc == 0 && s && s->dtype != x->dtype) return amp__fail_arg(AMP_E_DTYPE, i + 1, "sum is %s, expected %s, as the input", amp_dtype_name(s->dtype), amp_dtype_name(x->dtype));
  return rc;
}

/* grad input mean rstd weight? sum?; shape also */
int amp__infer_layer_norm_backward(amp_call *c)
{
  const amp_tensor *g = c->in[0], *x = c->in[1], *w = c->nin > 4 ? c->in[4] : NULL;
  int64_t shape[AMP_MAX_DIM];
  int n, lead, rc = trailing(x, c->a, &n, shape, &lead);
  if (rc < 0 || (rc = amp__want_shape(g, "grad", x->ndim, x->size)) < 0 || (rc = amp__want_shape(c->in[2], "mean", lead, x->size)) < 0
      || (rc = amp__want_shape(c->in[3], "rstd", lead, x->size)) < 0 || (rc = addend(c, 5)) < 0) return rc;
  if (w && (rc = amp__want_shape(w, "weight", n, shape)) < 0) return rc;
  if (c->a[9].i != AMP_NONE && !amp__is_float((int)c->a[9].i)) return amp__fail(AMP_E_DTYPE, "a gradient can't be %s, a float dtype is expected", amp_dtype_name((int)c->a[9].i));
  int dtype = w ? w->dtype : c->in[2]->dtype;
  amp__out(c, 0, x->dtype, x->ndim, x->size);
  amp__out(c, 1, dtype, n, shape);
  amp__out(c, 2, dtype, n, shape);
  if (c->a[9].i != AMP_NONE) amp__out(c, 3, (int)c->a[9].i, x->ndim, x->size);
  return 0;
}

/* -- Groups of channels, root mean squares ---------------------------------------- */

static int groups(const amp_tensor *x, int arg, int64_t n)
{
  if (x->ndim < 2) return amp__fail_arg(AMP_E_SHAPE, arg, "input has shape %s, expected at least 2 dimensions (N x C x ...)", SHAPE_OF(x));
  if (n < 1) return amp__fail(AMP_E_ARGUMENT, "num_groups %lld must be positive", LL(n));
  if (x->size[1] % n != 0)
    return amp__fail(AMP_E_SHAPE, "%lld channels (dimension 2 of the input %s) can't be shared among num_groups = %lld", LL(x->size[1]), SHAPE_OF(x), LL(n));
  return 0;
}

int amp__infer_group_norm(amp_call *c) /* input weight? bias? num_groups eps */
{
  const amp_tensor *x = c->in[0];
  int rc = groups(x, 1, c->a[0].i);
  if (rc < 0 || (rc = channels(c, 1, "weight", x->size[1])) < 0 || (rc = channels(c, 2, "bias", x->size[1])) < 0) return rc;
  if (!(c->a[1].f >= 0)) return amp__fail(AMP_E_VALUE, "eps %g must not be negative", c->a[1].f);
  int64_t size[2] = { x->size[0], c->a[0].i };
  amp__like(c, 0, x, x->dtype);
  amp__out(c, 1, amp__acc_dtype(x->dtype), 2, size);
  amp__out(c, 2, amp__acc_dtype(x->dtype), 2, size);
  return 0;
}

/* grad input mean rstd weight? */
int amp__infer_group_norm_backward(amp_call *c)
{
  const amp_tensor *g = c->in[0], *x = c->in[1], *w = c->nin > 4 ? c->in[4] : NULL;
  int rc = groups(x, 2, c->a[0].i);
  if (rc < 0) return rc;
  int64_t size[2] = { x->size[0], c->a[0].i }, n = x->size[1];
  if ((rc = amp__want_shape(g, "grad", x->ndim, x->size)) < 0 || (rc = amp__want_shape(c->in[2], "mean", 2, size)) < 0
      || (rc = amp__want_shape(c->in[3], "rstd", 2, size)) < 0 || (rc = channels(c, 4, "weight", n)) < 0) return rc;
  int dtype = w ? w->dtype : c->in[2]->dtype;
  amp__like(c, 0, x, x->dtype);
  amp__out(c, 1, dtype, 1, &n);
  amp__out(c, 2, dtype, 1, &n);
  return 0;
}

int amp__infer_rms_norm(amp_call *c) /* input weight? shape eps */
{
  const amp_tensor *x = c->in[0];
  int64_t shape[AMP_MAX_DIM];
  int n, lead, rc = trailing(x, c->a, &n, shape, &lead);
  if (rc < 0) return rc;
  if (c->nin > 1 && c->in[1] && (rc = amp__want_shape(c->in[1], "weight", n, shape)) < 0) return rc;
  if (given(&c->a[9]) && !(c->a[9].f >= 0)) return amp__fail(AMP_E_VALUE, "eps %g must not be negative", c->a[9].f);
  amp__out(c, 0, x->dtype, x->ndim, x->size);
  amp__out(c, 1, amp__acc_dtype(x->dtype), lead, x->size);
  return 0;
}

/* grad input rstd weight? sum? */
int amp__infer_rms_norm_backward(amp_call *c)
{
  const amp_tensor *g = c->in[0], *x = c->in[1], *w = c->nin > 3 ? c->in[3] : NULL;
  int64_t shape[AMP_MAX_DIM];
  int n, lead, rc = trailing(x, c->a, &n, shape, &lead);
  if (rc < 0 || (rc = amp__want_shape(g, "grad", x->ndim, x->size)) < 0 || (rc = amp__want_shape(c->in[2], "rstd", lead, x->size)) < 0 || (rc = addend(c, 4)) < 0) return rc;
  if (w && (rc = amp__want_shape(w, "weight", n, shape)) < 0) return rc;
  amp__out(c, 0, x->dtype, x->ndim, x->size);
  amp__out(c, 1, w ? w->dtype : c->in[2]->dtype, n, shape);
  return 0;
}

int amp__infer_dropout(amp_call *c)
{
  double p = c->a[0].f;
  if (!(p >= 0 && p <= 1)) return amp__fail(AMP_E_VALUE, "p %g must lie in 0..1", p);
  amp__like(c, 0, c->in[0], c->in[0]->dtype);
  if (c->a[1].i && p > 0) amp__like(c, 1, c->in[0], AMP_UINT8);
  return 0;
}

/* -- Softmax ----------------------------------------------------------------------- */

int amp__infer_softmax(amp_call *c)
{
  const amp_tensor *x = c->in[0];
  int dtype, rc = amp__row_dim(&c->a[0], x->ndim, "dim");
  if (rc < 0 || (rc = amp__dtype_attr(&c->a[1], x->dtype, &dtype)) < 0) return rc;
  if (!amp__is_float(dtype)) return amp__fail(AMP_E_DTYPE, "the result has a float dtype, %s was asked for", amp_dtype_name(dtype));
  amp__like(c, 0, x, dtype);
  return 0;
}

int amp__infer_softmax_backward(amp_call *c)
{
  const amp_tensor *g = c->in[0], *y = c->in[1];
  int rc = amp__row_dim(&c->a[0], y->ndim, "dim");
  if (rc < 0 || (rc = amp__want_shape(g, "grad", y->ndim, y->size)) < 0) return rc;
  amp__like(c, 0, y, g->dtype);
  return 0;
}

/* -- Losses ---------------------------------------------------------------------------- */

enum { NONE, MEAN, SUM };

static int reduction(const amp_slot *s)
{
  return s->i < NONE || s->i > SUM ? amp__fail(AMP_E_ARGUMENT, "there is no reduction number %lld", LL(s->i)) : 0;
}

static int64_t classes(int ndim, const int64_t *size) { return size[ndim > 1 ? 1 : 0]; }

/* Shape of labels for an input of this shape: without the classes. */
static int label_shape(int ndim, const int64_t *size, int64_t *out)
{
  int n = 0;
  for (int d = 0; d < ndim; d++) if (d != (ndim > 1 ? 1 : 0)) out[n++] = size[d];
  return n;
}

static int labels(const amp_tensor *target, int arg, int ndim, const int64_t *size, int *nrow, int64_t *rows)
{
  int rc = amp__want_index(target, arg, "target");
  if (rc < 0) return rc;
  if (ndim == 0) return amp__fail(AMP_E_SHAPE, "the input is a scalar, expected classes along a dimension");
  *nrow = label_shape(ndim, size, rows);
  if (target->ndim == *nrow && memcmp(target->size, rows, sizeof *rows * (size_t)*nrow) == 0) return 0;
  return amp__fail_arg(AMP_E_SHAPE, arg, "target has shape %s, expected %s: that of the input %s without its classes (dimension %d)", SHAPE_OF(target),
                       amp__shape_str(*nrow, rows), amp__shape_str(ndim, size), ndim > 1 ? 2 : 1);
}

static int class_weight(const amp_call *c, int i, int like, int64_t n)
{
  const amp_tensor *w = i < c->nin ? c->in[i] : NULL;
  if (w == NULL) return 0;
  bool widened = (c->id == AMP_OP_cross_entropy_index || c->id == AMP_OP_cross_entropy_backward) && w->device != AMP_CPU && w->dtype == AMP_FLOAT32;
  if (w->dtype != c->in[like]->dtype && !widened)
    return amp__fail_arg(AMP_E_DTYPE, i + 1, "dtypes %s and %s of input and weight differ; cast one of them or run it under amp.autocast",
                         amp_dtype_name(c->in[like]->dtype), amp_dtype_name(w->dtype));
  if (w->ndim == 1 && w->size[0] == n) return 0;
  return amp__fail_arg(AMP_E_SHAPE, i + 1, "weight has shape %s, expected %lld, one a class", SHAPE_OF(w), LL(n));
}

static int want_float(const amp_tensor *t, int arg, const char *what)
{
  return amp__is_float(t->dtype) ? 0 : amp__fail_arg(AMP_E_DTYPE, arg, "%s has dtype %s, expected a float dtype", what, amp_dtype_name(t->dtype));
}

static int smoothing(double v) { return v >= 0 && v <= 1 ? 0 : amp__fail(AMP_E_VALUE, "label_smoothing %g must lie in 0..1", v); }

int amp__infer_nll_loss(amp_call *c)
{
  const amp_tensor *x = c->in[0];
  int64_t rows[AMP_MAX_DIM];
  int n, rc;
  if ((rc = want_float(x, 1, "input")) < 0 || (rc = reduction(&c->a[0])) < 0 || (rc = labels(c->in[1], 2, x->ndim, x->size, &n, rows)) < 0
      || (rc = class_weight(c, 2, 0, classes(x->ndim, x->size))) < 0) return rc;
  amp__out(c, 0, x->dtype, c->a[0].i == NONE ? n : 0, rows);
  amp__out(c, 1, amp__acc_dtype(x->dtype), 0, NULL);
  return 0;
}

static int want_scalar(const amp_tensor *t, int arg, const char *what)
{
  return t->numel == 1 ? 0 : amp__fail_arg(AMP_E_SHAPE, arg, "%s has shape %s, expected a scalar", what, SHAPE_OF(t));
}

static int loss_grad(const amp_tensor *g, int64_t how, int n, const int64_t *rows)
{
  return how == NONE ? amp__want_shape(g, "grad", n, rows) : want_scalar(g, 1, "grad");
}

/* grad target weight? total; the input's shape in slot 0 */
int amp__infer_nll_loss_backward(amp_call *c)
{
  const amp_tensor *g = c->in[0];
  int64_t shape[AMP_MAX_DIM], rows[AMP_MAX_DIM];
  int ndim, n, rc;
  if ((rc = want_float(g, 1, "grad")) < 0 || (rc = reduction(&c->a[9])) < 0 || (rc = amp__shape_attr(c->a, "shape", &ndim, shape)) < 0
      || (rc = labels(c->in[1], 2, ndim, shape, &n, rows)) < 0 || (rc = loss_grad(g, c->a[9].i, n, rows)) < 0
      || (rc = want_scalar(c->in[3], 4, "total")) < 0) return rc;
  const amp_tensor *w = c->in[2];
  if (w && (w->ndim != 1 || w->size[0] != classes(ndim, shape)))
    return amp__fail_arg(AMP_E_SHAPE, 3, "weight has shape %s, expected %lld, one a class", SHAPE_OF(w), LL(classes(ndim, shape)));
  amp__out(c, 0, g->dtype, ndim, shape);
  return 0;
}

int amp__infer_cross_entropy_index(amp_call *c)
{
  const amp_tensor *x = c->in[0];
  int64_t rows[AMP_MAX_DIM];
  int n, rc;
  if ((rc = want_float(x, 1, "input")) < 0 || (rc = reduction(&c->a[0])) < 0 || (rc = smoothing(c->a[2].f)) < 0
      || (rc = labels(c->in[1], 2, x->ndim, x->size, &n, rows)) < 0 || (rc = class_weight(c, 2, 0, classes(x->ndim, x->size))) < 0) return rc;
  amp__out(c, 0, c->a[3].i && amp__is_half(x->dtype) ? AMP_FLOAT32 : x->dtype, c->a[0].i == NONE ? n : 0, rows);
  memmove(rows + 1, rows, (size_t)n * sizeof *rows);
  rows[0] = 2;
  amp__out(c, 1, amp__acc_dtype(x->dtype), n + 1, rows);
  amp__out(c, 2, amp__acc_dtype(x->dtype), 0, NULL);
  return 0;
}

/* grad input target weight? top total; top: the largest score of each row, and the sum of its exponentials about that */
int amp__infer_cross_entropy_backward(amp_call *c)
{
  const amp_tensor *x = c->in[1];
  int64_t all[AMP_MAX_DIM + 1] = { 2 }, *rows = all + 1;
  int n, rc;
  if ((rc = want_float(x, 2, "input")) < 0 || (rc = want_float(c->in[0], 1, "grad")) < 0 || (rc = reduction(&c->a[0])) < 0 || (rc = smoothing(c->a[2].f)) < 0
      || (rc = labels(c->in[2], 3, x->ndim, x->size, &n, rows)) < 0 || (rc = class_weight(c, 3, 1, classes(x->ndim, x->size))) < 0
      || (rc = amp__want_shape(c->in[4], "top", n + 1, all)) < 0 || (rc = want_scalar(c->in[5], 6, "total")) < 0 || (rc = loss_grad(c->in[0], c->a[0].i, n, rows)) < 0) return rc;
  amp__like(c, 0, x, x->dtype);
  if (x->ndim == 2) amp__aligned_rows(c, 0);
  return 0;
}

static int same_shapes(const amp_tensor *x, const amp_tensor *y)
{
  if (amp__same_size(x, y)) return 0;
  return amp__fail(AMP_E_SHAPE, "input has shape %s and target %s; a loss wants equal shapes (reshape or expand one)", SHAPE_OF(x), SHAPE_OF(y));
}

int amp__infer_loss(amp_call *c)
{
  const amp_tensor *x = c->in[0];
  int rc;
  int dtype = c->flags & AMP_WIDEN ? AMP_FLOAT32 : x->dtype;
  if ((!(c->flags & AMP_WIDEN) && (rc = amp__equal_dtypes(c, 2)) < 0) || (rc = same_shapes(x, c->in[1])) < 0 || (rc = reduction(&c->a[0])) < 0) return rc;
  if (c->a[0].i == NONE) amp__like(c, 0, x, dtype);
  else amp__out(c, 0, dtype, 0, NULL);
  return 0;
}

/* grad input target */
int amp__infer_loss_backward(amp_call *c)
{
  const amp_tensor *x = c->in[1];
  int rc;
  if ((rc = same_shapes(x, c->in[2])) < 0 || (rc = reduction(&c->a[0])) < 0 || (rc = loss_grad(c->in[0], c->a[0].i, x->ndim, x->size)) < 0) return rc;
  amp__like(c, 0, x, x->dtype);
  return 0;
}
