/*
** amp_comp_conv.c: convolutions as users call them, in 1, 2 and 3 spatial
** dimensions, of batches or single samples. What may be asked for is checked
** here, in the caller's terms; the work is done by the rows convolution and,
** for transposed ones, convolution_input: a transposed convolution is the
** gradient in the input of the convolution that has its weight.
*/
#include "amp_bwd.h"
#include "amp_conv.h"

#define LL(x) ((long long)(x))
#define SHAPE_TEXT(t) amp__shape_str((t)->ndim, (t)->size)

static const char *const sample[4] = { "", "C x L", "C x H x W", "C x D x H x W" };

typedef struct problem { /* a call looked at */
  int n;                 /* spatial dimensions */
  bool single;           /* one sample, without a dimension N */
  int64_t x[5];          /* shape of the input, of a batch */
  amp_slot a[CONV_SLOTS];
} problem;

/* Ranks and dtypes of input, weight and bias */
static int look(const amp_call *c, int n, const char *const *weight, problem *p) {
  const amp_tensor *x = c->in[0], *w = c->in[1], *b = c->in[2];
  static const char *const what[3] = { "input", "weight", "bias" };
  for (int i = 1; i < 3; i++)
    if (c->in[i] && c->in[i]->dtype != x->dtype)
      return amp__fail_arg(AMP_E_DTYPE, i + 1, "dtypes %s (input) and %s (%s) differ; cast one of them or run it under amp.autocast",
                           amp_dtype_name(x->dtype), amp_dtype_name(c->in[i]->dtype), what[i]);
  if (x->ndim != n + 1 && x->ndim != n + 2)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected %s or %s", SHAPE_TEXT(x), amp__conv_data[n], sample[n]);
  if (w->ndim != n + 2) return amp__fail_arg(AMP_E_SHAPE, 2, "weight has shape %s, expected %d dimensions (%s)", SHAPE_TEXT(w), n + 2, weight[n]);
  if (b && b->ndim != 1) return amp__fail_arg(AMP_E_SHAPE, 3, "bias has shape %s, expected one dimension (an element a channel of the result)", SHAPE_TEXT(b));
  p->n = n;
  p->single = x->ndim == n + 1;
  p->x[0] = 1;
  for (int d = 0; d < x->ndim; d++) p->x[d + p->single] = x->size[d];
  return 0;
}

/* n values at a, as the last of three at `to`; the others get `rest` */
static void place(amp_slot *to, const amp_slot *a, int n, int64_t rest) {
  for (int i = 0; i < 3; i++) {
    if (i < 3 - n) to[i].i = rest;
    else to[i] = a[i - (3 - n)];
  }
}

static int want_bias(const amp_tensor *b, int64_t channels, const char *which, const amp_tensor *w) {
  if (!b || b->size[0] == channels) return 0;
  return amp__fail_arg(AMP_E_SHAPE, 3, "bias has %lld elements, expected %lld (%s of weight, which is %s)", LL(b->size[0]), LL(channels), which, SHAPE_TEXT(w));
}

/* A row that takes data, weight and bias; a sample goes and comes without N. */
static int run(amp_call *c, const problem *p, int op, const amp_sl *s, amp_tensor *x) {
  amp_tensor *in[3] = { x, c->in[1], c->in[2] };
  amp_tensor *y = amp__x(op, s, 3, in);
  if (y && p->single) y = amp__xview(y, p->n + 1, y->size + 1);
  return amp__ret(c, 0, y);
}

/* -- Convolutions ------------------------------------------------------------------- */

static int conv(amp_call *c, int n) { /* stride, padding, dilation, groups */
  const amp_tensor *w = c->in[1];
  problem p;
  int64_t size[5];
  int rc = look(c, n, amp__conv_weight, &p);
  if (rc < 0) return rc;
  place(p.a + CONV_STRIDE, c->a, n, 1);
  place(p.a + CONV_PADDING, c->a + n, n, 0);
  place(p.a + CONV_DILATION, c->a + 2 * n, n, 1);
  p.a[CONV_GROUPS] = c->a[3 * n];
  if ((rc = amp__conv_attributes(p.a, n)) < 0 || (rc = amp__conv_shape(p.x, w->size, n, p.a, p.single, size)) < 0 ||
      (rc = want_bias(c->in[2], w->size[0], "dimension 1", w)) < 0) return rc;
  amp_sl s = amp__sl();
  amp__sl_copy(&s, p.a, CONV_SLOTS);
  return run(c, &p, AMP_OP_convolution, &s, p.single ? amp__xunsqueeze(c->in[0], 0) : c->in[0]);
}

int amp__comp_conv1d(amp_call *c) { return conv(c, 1); }
int amp__comp_conv2d(amp_call *c) { return conv(c, 2); }
int amp__comp_conv3d(amp_call *c) { return conv(c, 3); }

/* -- Transposed ones ---------------------------------------------------------------- */

/* `extra` zeros after each spatial dimension of x */
static amp_tensor *longer(amp_tensor *x, int n, const int64_t *extra) {
  amp_sl s = amp__sl();
  amp__sl_i(&s, 2 * n);
  for (int i = 0; i < 16; i++) amp__sl_i(&s, i < 2 * n && i % 2 ? extra[n - 1 - i / 2] : 0);
  amp__sl_i(&s, 0);
  amp__sl_f(&s, 0);
  return amp__x(AMP_OP_pad, &s, 1, &x);
}

static int transposed(amp_call *c, int n) { /* stride, padding, output_padding, groups, dilation */
  const amp_tensor *x = c->in[0], *w = c->in[1];
  const amp_slot *a = c->a;
  int64_t groups = a[3 * n].i, size[5], extra[3] = { 0 };
  bool more = false;
  problem p;
  int rc = look(c, n, amp__conv_turned, &p);
  if (rc < 0) return rc;
  place(p.a + CONV_STRIDE, a, n, 1);
  place(p.a + CONV_PADDING, a + n, n, 0);
  place(p.a + CONV_DILATION, a + 3 * n + 1, n, 1);
  p.a[CONV_GROUPS].i = groups;
  if ((rc = amp__conv_attributes(p.a, n)) < 0) return rc;
  if (p.x[1] != w->size[0])
    return amp__fail(AMP_E_SHAPE, "input %s and weight %s do not match (dimension %d of input is %lld, dimension 1 of weight is %lld)", SHAPE_TEXT(x),
                     SHAPE_TEXT(w), 2 - p.single, LL(p.x[1]), LL(w->size[0]));
  if (w->size[0] % groups) return amp__fail(AMP_E_SHAPE, "groups %lld must divide the channels of input (%lld)", LL(groups), LL(w->size[0]));
  size[0] = p.x[0];
  if (__builtin_mul_overflow(w->size[1], groups, &size[1])) return amp__fail(AMP_E_ARGUMENT, "groups %lld is too large", LL(groups));
  if ((rc = want_bias(c->in[2], size[1], groups > 1 ? "groups times dimension 2" : "dimension 2", w)) < 0) return rc;
  for (int i = 0; i < n; i++) {
    int64_t s = a[i].i, pad = a[n + i].i, o = a[2 * n + i].i, d = a[3 * n + 1 + i].i, k = w->size[2 + i], most = s > d ? s : d, m = p.x[2 + i], reach;
    if (k < 1) return amp__fail(AMP_E_SHAPE, "weight %s has an empty kernel", SHAPE_TEXT(w));
    if (o < 0 || o >= most)
      return amp__fail(AMP_E_ARGUMENT, "output_padding %lld must lie in 0..%lld, less than stride %lld or dilation %lld", LL(o), LL(most - 1), LL(s), LL(d));
    if (m < 1) return amp__fail(AMP_E_SHAPE, "input of shape %s is empty in dimension %d", SHAPE_TEXT(x), 3 + i - p.single);
    if (m > INT32_MAX || __builtin_mul_overflow(d, k - 1, &reach) || reach > INT32_MAX) return amp__fail(AMP_E_SHAPE, "kernel of size %lld (dilation %lld) or input of size %lld (dimension %d) is too large", LL(k), LL(d), LL(m), 3 + i - p.single);
    size[2 + i] = (m - 1) * s - 2 * pad + reach + o + 1;
    if (size[2 + i] < 1)
      return amp__fail(AMP_E_SHAPE, "dimension %d of the result would have %lld elements (input %lld, kernel %lld, stride %lld, padding %lld)", 3 + i - p.single,
                       LL(size[2 + i]), LL(m), LL(k), LL(s), LL(pad));
    extra[i] = o / s; /* as if zeros followed the input: what is left of output_padding is less than the stride */
    more = more || extra[i] > 0;
  }
  amp_tensor *g = p.single ? amp__xunsqueeze(c->in[0], 0) : c->in[0];
  if (more) g = g ? longer(g, n, extra) : NULL;
  amp_sl s = amp__sl();
  amp__sl_list(&s, n + 2, size);
  amp__sl_copy(&s, p.a, CONV_SLOTS);
  return run(c, &p, AMP_OP_convolution_input, &s, g);
}

int amp__comp_conv_transpose1d(amp_call *c) { return transposed(c, 1); }
int amp__comp_conv_transpose2d(amp_call *c) { return transposed(c, 2); }
int amp__comp_conv_transpose3d(amp_call *c) { return transposed(c, 3); }

/* -- Time x batch x channels ----------------------------------------------------------- */

int amp__comp_conv_tbc(amp_call *c) {
  const amp_tensor *x = c->in[0], *w = c->in[1], *b = c->in[2];
  if (x->ndim != 3) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected time x batch x in", SHAPE_TEXT(x));
  if (w->ndim != 3) return amp__fail_arg(AMP_E_SHAPE, 2, "weight has shape %s, expected kernel x in x out", SHAPE_TEXT(w));
  for (int i = 1; i < 3; i++)
    if (c->in[i]->dtype != x->dtype)
      return amp__fail_arg(AMP_E_DTYPE, i + 1, "dtypes %s and %s differ; cast one of them or run it under amp.autocast", amp_dtype_name(x->dtype), amp_dtype_name(c->in[i]->dtype));
  if (x->size[2] != w->size[1])
    return amp__fail(AMP_E_SHAPE, "input %s and weight %s do not match (dimension 3 of input is %lld, dimension 2 of weight is %lld)", SHAPE_TEXT(x), SHAPE_TEXT(w),
                     LL(x->size[2]), LL(w->size[1]));
  if (b->ndim != 1 || b->size[0] != w->size[2])
    return amp__fail_arg(AMP_E_SHAPE, 3, "bias has shape %s, expected %lld (dimension 3 of weight)", SHAPE_TEXT(b), LL(w->size[2]));
  int64_t pad = c->a[0].i, time = x->size[0], k = w->size[0];
  if (pad < 0 || pad > INT32_MAX) return amp__fail(AMP_E_ARGUMENT, "pad %lld must lie in 0..%d", LL(pad), INT32_MAX);
  if (k < 1 || k > time + 2 * pad) return amp__fail(AMP_E_SHAPE, "kernel of size %lld must lie in 1..%lld, the padded input's length", LL(k), LL(time + 2 * pad));
  /* batch x in x time and out x in x kernel, as views */
  amp_tensor *data = amp__xtranspose(amp__xtranspose(c->in[0], 0, 1), 1, 2), *weight = amp__xtranspose(c->in[1], 0, 2);
  if (!data || !weight) return amp__err();
  amp_tensor *in[3] = { data, weight, c->in[2] };
  amp_sl s = amp__sl();
  for (int i = 0; i < CONV_SLOTS; i++) amp__sl_i(&s, i == CONV_PADDING + 2 ? pad : i >= CONV_PADDING && i < CONV_DILATION ? 0 : 1);
  amp_tensor *y = amp__x(AMP_OP_convolution, &s, 3, in);
  return amp__ret(c, 0, amp__xcontiguous(amp__xtranspose(amp__xtranspose(y, 1, 2), 0, 1)));
}
