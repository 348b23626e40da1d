/*
** amp_infer_rnn.c: shape rules of one recurrent layer in one direction. What
** users call is checked by the composites in their words; these rules only hold
** for the kernels. Batch sizes are looked at by the kernel.
*/
#include "amp_infer.h"

enum { LSTM = 2, GRU = 3 }; /* of mode */

static int gates_of(int64_t mode) { return mode == LSTM ? 4 : mode == GRU ? 3 : 1; }

/* Values of a row of the reserve for each hidden one. A GPU keeps gates in 16 bits where its tensors are (kernels/rnn.cuh) */
static int kept_of(const amp_tensor *w_hh, int64_t mode) {
  bool packs = w_hh->device != AMP_CPU && amp__is_half(w_hh->dtype);
  if (mode == LSTM) return packs ? 3 : 5;
  return mode == GRU ? packs ? 2 : 4 : 1;
}

static int want(const amp_tensor *t, const char *what, int dtype, int ndim, const int64_t *size) {
  if (t == NULL) return 0;
  if (t->dtype != dtype) return amp__fail(AMP_E_DTYPE, "%s is %s, expected %s", what, amp_dtype_name(t->dtype), amp_dtype_name(dtype));
  return amp__want_shape(t, what, ndim, size);
}

static int check_sizes(const amp_tensor *t) {
  if (t == NULL) return 0;
  if (t->dtype != AMP_INT64 || t->device != AMP_CPU) return amp__fail(AMP_E_DTYPE, "batch_sizes is %s, expected int64 on the CPU", amp__tensor_str(t));
  return t->ndim != 1 || t->size[0] < 1 ? amp__fail(AMP_E_SHAPE, "batch_sizes has shape %s, expected one dimension of at least 1", SHAPE_OF(t)) : 0;
}

/* hidden size, or an error */
static int hidden_of(const amp_tensor *w_hh, int64_t mode, bool single, int64_t *h) {
  if (!amp__is_float(w_hh->dtype)) return amp__fail(AMP_E_DTYPE, "w_hh is %s, expected a float dtype", amp_dtype_name(w_hh->dtype));
  if (w_hh->ndim != 2 || w_hh->size[0] % gates_of(mode)) return amp__fail(AMP_E_SHAPE, "w_hh has shape %s, expected %d hidden x hidden", SHAPE_OF(w_hh),
      gates_of(mode));
  *h = w_hh->size[0] / gates_of(mode);
  if (*h == w_hh->size[1] || (single && mode != GRU)) return 0;
  return amp__fail(AMP_E_SHAPE, "w_hh has shape %s, expected %lldx%lld", SHAPE_OF(w_hh), LL(w_hh->size[0]), LL(*h));
}

int amp__infer_rnn_layer(amp_call *c) {
  const amp_tensor *in[8];
  for (int i = 0; i < 8; i++) in[i] = i < c->nin ? c->in[i] : NULL;
  const amp_tensor *x = in[0], *hx = in[1], *w_hh = in[4], *sizes = in[7];
  int64_t mode = c->a[0].i, h, rows, g = w_hh->ndim ? w_hh->size[0] : 0;
  int rc, nd = sizes ? 2 : 3, d = w_hh->dtype;
  if ((rc = check_sizes(sizes)) < 0) return rc;
  if (x->ndim != nd) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected %d dimensions", SHAPE_OF(x), nd);
  if (!sizes && x->size[0] < 1) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s: a sequence has at least one step", SHAPE_OF(x));
  if ((rc = hidden_of(w_hh, mode, !sizes && x->size[0] == 1, &h)) < 0) return rc;
  if ((mode == LSTM) != (in[2] != NULL)) return amp__fail_arg(AMP_E_ARGUMENT, 3, "cx is the state of an LSTM");
  if (hx->ndim != 2) return amp__fail_arg(AMP_E_SHAPE, 2, "hx has shape %s, expected 2 dimensions", SHAPE_OF(hx));
  int64_t n = sizes ? hx->size[0] : x->size[1], in_size = x->size[nd - 1];
  int64_t state[2] = { n, w_hh->size[1] }, cell[2] = { n, h }, w_ih[2] = { g, in_size };
  if (x->dtype != d) return amp__fail_arg(AMP_E_DTYPE, 1, "input is %s and w_hh is %s; cast one of them or run it under amp.autocast", amp_dtype_name(x->dtype),
      amp_dtype_name(d));
  if ((rc = want(hx, "hx", d, 2, state)) < 0 || (rc = want(in[2], "cx", d, 2, cell)) < 0 || (rc = want(in[3], "w_ih", d, 2, w_ih)) < 0
      || (rc = want(in[5], "b_ih", d, 1, &g)) < 0 || (rc = want(in[6], "b_hh", d, 1, &g)) < 0) return rc;
  int64_t y[3] = { x->size[0], sizes ? h : n, h }, none = 0;
  rows = sizes ? x->size[0] : x->size[0] * n;
  int64_t reserve, last, row = h * kept_of(w_hh, mode);
  if (__builtin_mul_overflow(rows, row, &reserve) || __builtin_mul_overflow(n, mode == LSTM ? h : 0, &last) || __builtin_add_overflow(reserve, last, &reserve))
    return amp__fail(AMP_E_SHAPE, "a sequence of %lld rows and %lld hidden values is too large", LL(rows), LL(h));
  amp__out(c, 0, d, nd, y);
  amp__out(c, 1, d, 2, cell);
  if (mode == LSTM) amp__out(c, 2, d, 2, cell);
  else amp__out(c, 2, d, 1, &none);
  amp__out(c, 3, amp__acc_dtype(d), 1, &reserve);
  return 0;
}

/* grad? grad_h? grad_c? reserve w_hh result hx batch_sizes? */
int amp__infer_rnn_layer_backward(amp_call *c) {
  const amp_tensor *in[8];
  for (int i = 0; i < 8; i++) in[i] = i < c->nin ? c->in[i] : NULL;
  const amp_tensor *w_hh = in[4], *y = in[5], *hx = in[6], *sizes = in[7];
  int64_t mode = c->a[0].i, h, none = 0;
  int rc, nd = sizes ? 2 : 3, d = w_hh->dtype;
  if ((rc = check_sizes(sizes)) < 0) return rc;
  if (y->ndim != nd) return amp__fail(AMP_E_SHAPE, "result has shape %s, expected %d dimensions", SHAPE_OF(y), nd);
  if ((rc = hidden_of(w_hh, mode, !sizes && y->size[0] == 1, &h)) < 0) return rc;
  if (hx->ndim != 2) return amp__fail(AMP_E_SHAPE, "hx has shape %s, expected 2 dimensions", SHAPE_OF(hx));
  int64_t n = hx->size[0], rows = sizes ? y->size[0] : y->size[0] * n, shape[3] = { y->size[0], sizes ? h : n, h };
  int64_t state[2] = { n, w_hh->size[1] }, cell[2] = { n, h }, gates[2] = { rows, w_hh->size[0] };
  int64_t before[2] = { !sizes && y->size[0] == 1 ? 0 : rows, w_hh->size[1] }; /* of a single step that is hx */
  int64_t reserve = rows * h * kept_of(w_hh, mode) + (mode == LSTM ? n * h : 0);
  if ((rc = want(y, "result", d, nd, shape)) < 0 || (rc = want(hx, "hx", d, 2, state)) < 0 || (rc = want(in[3], "reserve", amp__acc_dtype(d), 1,
      &reserve)) < 0) return rc;
  for (int i = 0; i < 3; i++) {
    static const char *const name[3] = { "grad", "grad_h", "grad_c" };
    if (in[i] && !amp__is_float(in[i]->dtype)) return amp__fail(AMP_E_DTYPE, "%s is %s, expected a float dtype", name[i], amp_dtype_name(in[i]->dtype));
    if (in[i] && (i < 2 || mode == LSTM) && (rc = amp__want_shape(in[i], name[i], i ? 2 : nd, i ? cell : shape)) < 0) return rc;
  }
  amp__out(c, 0, d, 2, gates);
  amp__out(c, 1, d, 2, state);
  if (mode == GRU) amp__out(c, 2, d, 2, gates);
  else if (mode == LSTM) amp__out(c, 2, d, 2, cell);
  else amp__out(c, 2, d, 1, &none);
  amp__out(c, 3, d, 2, before);
  for (int i = 0; i < 4; i++) { /* a first gradient may be absent: the others say where */
    c->meta[i].device = w_hh->device;
    c->meta[i].device_index = w_hh->device_index;
  }
  return 0;
}
