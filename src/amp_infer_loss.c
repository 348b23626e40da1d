/*
** amp_infer_loss.c: shape rules of multilabel_margin_loss and ctc, with their
** backward rows. Labels and lengths are values, which kernels check.
*/
#include "amp_infer.h"

enum { NONE, MEAN, SUM };

static int reduction(const amp_slot *s)
{
  return s->i < NONE || s->i > SUM ? amp__fail(AMP_E_ARGUMENT, "there is no reduction number %lld", LL(s->i)) : 0;
}

static int want_float(const amp_tensor *t, int arg, const char *what)
{
  return amp__is_float(t->dtype) ? 0 : amp__fail_arg(AMP_E_DTYPE, arg, "%s has dtype %s, expected a float dtype", what, amp_dtype_name(t->dtype));
}

/* -- Margins of many labels ------------------------------------------------------------- */

static int margin(const amp_tensor *x, int arg, const amp_tensor *target, const amp_slot *how)
{
  int rc;
  if ((rc = want_float(x, arg, "input")) < 0 || (rc = reduction(how)) < 0 || (rc = amp__want_index(target, arg + 1, "target")) < 0) return rc;
  if ((x->ndim != 1 && x->ndim != 2) || x->size[x->ndim - 1] == 0)
    return amp__fail_arg(AMP_E_SHAPE, arg, "input should be N x C or a vector of C scores, got shape %s", SHAPE_OF(x));
  if (amp__same_size(x, target)) return 0;
  return amp__fail_arg(AMP_E_SHAPE, arg + 1, "target has shape %s, expected that of input, %s: each row's labels, then zeros", SHAPE_OF(target), SHAPE_OF(x));
}

int amp__infer_multilabel_margin(amp_call *c)
{
  const amp_tensor *x = c->in[0];
  int rc = margin(x, 1, c->in[1], &c->a[0]);
  if (rc < 0) return rc;
  amp__out(c, 0, x->dtype, c->a[0].i == NONE ? x->ndim - 1 : 0, x->size);
  return 0;
}

/* grad input target */
int amp__infer_multilabel_margin_backward(amp_call *c)
{
  const amp_tensor *g = c->in[0], *x = c->in[1];
  int rc;
  if ((rc = margin(x, 2, c->in[2], &c->a[0])) < 0 || (rc = want_float(g, 1, "grad")) < 0) return rc;
  if (c->a[0].i == NONE) rc = amp__want_shape(g, "grad", x->ndim - 1, x->size);
  else if (g->numel != 1) rc = amp__fail_arg(AMP_E_SHAPE, 1, "grad has shape %s, expected a scalar", SHAPE_OF(g));
  if (rc < 0) return rc;
  amp__like(c, 0, x, x->dtype);
  return 0;
}

/* -- Sequences ----------------------------------------------------------------------------- */

/* log_probs at argument `at`, the three that go with it after it */
static int sequences(const amp_call *c, int at, int64_t *cells)
{
  const amp_tensor *x = c->in[at], *t = c->in[at + 1];
  static const char *const name[2] = {"input_lengths", "target_lengths"};
  int rc;
  if ((rc = want_float(x, at + 1, "log_probs")) < 0 || (rc = amp__want_index(t, at + 2, "targets")) < 0) return rc;
  if (x->ndim != 3) return amp__fail_arg(AMP_E_SHAPE, at + 1, "log_probs should be T x N x C (or T x C), got shape %s", SHAPE_OF(x));
  if (x->size[2] == 0) return amp__fail_arg(AMP_E_SHAPE, at + 1, "log_probs %s has no classes", SHAPE_OF(x));
  if (t->ndim != 1 && !(t->ndim == 2 && t->size[0] == x->size[1]))
    return amp__fail_arg(AMP_E_SHAPE, at + 2, "targets should be %lld x S, or a vector of all labels, for log_probs %s; got shape %s", LL(x->size[1]), SHAPE_OF(x), SHAPE_OF(t));
  for (int i = 0; i < 2; i++) {
    const amp_tensor *l = c->in[at + 2 + i];
    if ((rc = amp__want_index(l, at + 3 + i, name[i])) < 0) return rc;
    if (l->ndim != 1 || l->size[0] != x->size[1])
      return amp__fail_arg(AMP_E_SHAPE, at + 3 + i, "%s has shape %s, expected %lld, one a sequence (dimension 2 of log_probs %s)", name[i], SHAPE_OF(l), LL(x->size[1]), SHAPE_OF(x));
  }
  if (c->a[0].i < 1 || c->a[0].i > x->size[2])
    return amp__fail(AMP_E_INDEX, "blank %lld is outside 1..%lld, the classes of log_probs %s", LL(c->a[0].i), LL(x->size[2]), SHAPE_OF(x));
  /* 2 S + 1 forward variables a step and sequence */
  if (__builtin_mul_overflow(t->numel, 2, cells) || __builtin_add_overflow(*cells, x->size[1], cells) || __builtin_mul_overflow(*cells, x->size[0], cells))
    return amp__fail(AMP_E_SHAPE, "log_probs %s and targets %s are too large", SHAPE_OF(x), SHAPE_OF(t));
  return 0;
}

int amp__infer_ctc(amp_call *c)
{
  const amp_tensor *x = c->in[0];
  int64_t cells;
  int rc = sequences(c, 0, &cells);
  if (rc < 0) return rc;
  amp__out(c, 0, x->dtype, 1, &x->size[1]);
  amp__out(c, 1, amp__acc_dtype(x->dtype), 1, &cells);
  return 0;
}

/* grad log_probs targets input_lengths target_lengths nll alpha */
int amp__infer_ctc_backward(amp_call *c)
{
  const amp_tensor *x = c->in[1];
  int64_t cells;
  int rc = sequences(c, 1, &cells);
  if (rc < 0 || (rc = want_float(c->in[0], 1, "grad")) < 0 || (rc = amp__want_shape(c->in[0], "grad", 1, &x->size[1])) < 0
      || (rc = amp__want_shape(c->in[5], "nll", 1, &x->size[1])) < 0 || (rc = amp__want_shape(c->in[6], "alpha", 1, &cells)) < 0) return rc;
  amp__out(c, 0, x->dtype, 3, x->size);
  return 0;
}
