/*
** amp_comp_rnn.c: recurrent cells and layers. A cell is a layer of one step; a
** net is rnn_layer for each layer and direction, joined by concatenation and
** dropout. With proj_size an LSTM's state is a product of its result, so its
** steps are layers of one step each.
**
** Everything a user can get wrong is checked here, in the user's words. Data is
** length x batch x size (or batch first, or without a batch), or with `packed`
** rows x size and the batch sizes last among the weights.
*/
#include <stdio.h>
#include <stdlib.h>
#include "amp_bwd.h"
#include "amp_infer.h"

enum { TANH, RELU, LSTM, GRU }; /* of rnn_layer's mode */

typedef struct net {
  int mode;
  int64_t layers, directions, in, hidden, proj, out; /* out: of a direction */
  int64_t steps, n;
  bool bias, batch_first, packed, single; /* single: no batch dimension was given */
  double dropout;
  amp_tensor *sizes;
  int per, first;                         /* weights of a direction, and the place of the first among the arguments */
} net;

static int gates_of(int mode) { return mode == LSTM ? 4 : mode == GRU ? 3 : 1; }
static amp_tensor *linear(amp_tensor *x, amp_tensor *w) {
  amp_tensor *in[3] = { x, w, NULL };
  return amp__x(AMP_OP_linear, NULL, 3, in);
}

static int same_dtype(const amp_tensor *x, const amp_tensor *t, const char *what) {
  if (t == NULL || t->dtype == x->dtype) return 0;
  return amp__fail(AMP_E_DTYPE, "input is %s and %s is %s; cast one of them or run it under amp.autocast", amp_dtype_name(x->dtype), what,
      amp_dtype_name(t->dtype));
}

/* One direction of a layer: results, last h, last c */
static int layer(int mode, bool reverse, amp_tensor *x, amp_tensor *h, amp_tensor *c, amp_tensor *const *w, bool bias, amp_tensor *sizes, amp_tensor **out) {
  amp_tensor *in[8] = { x, h, c, w[0], w[1], bias ? w[2] : NULL, bias ? w[3] : NULL, sizes };
  amp_sl s = amp__sl();
  amp__sl_i(&s, mode);
  amp__sl_i(&s, reverse);
  if (!x || !h || (mode == LSTM && !c)) return amp__err();
  return amp__xs(AMP_OP_rnn_layer, &s, 8, in, out);
}

/* -- Cells ------------------------------------------------------------------------ */

static int cell(amp_call *c, int mode) {
  int k = mode == LSTM ? 3 : 2, rc; /* place of w_ih */
  amp_tensor *in[7] = { NULL }, *out[AMP_MAX_OUT];
  for (int i = 0; i < c->nin && i < 7; i++) in[i] = c->in[i];
  amp_tensor *x = in[0], *h = in[1], *w_ih = in[k], *w_hh = in[k + 1], *b[2] = { in[k + 2], in[k + 3] };
  int64_t gates = gates_of(mode);
  if (x->ndim != 1 && x->ndim != 2) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected batch x size, or size", SHAPE_OF(x));
  static const char *const name[] = { "hx", "cx", "w_ih", "w_hh", "b_ih", "b_hh" };
  for (int i = 1; i < c->nin; i++)
    if ((rc = same_dtype(x, c->in[i], name[i - 1 + (mode != LSTM && i > 1)])) < 0) return rc;
  if (w_hh->ndim != 2 || w_hh->size[0] != gates * w_hh->size[1])
    return amp__fail_arg(AMP_E_SHAPE, k + 2, "w_hh has shape %s, expected %s%s x hidden", SHAPE_OF(w_hh), gates == 1 ? "" : gates == 3 ? "3 " : "4 ", "hidden");
  int64_t hidden = w_hh->size[1], n = x->ndim == 2 ? x->size[0] : 1, last = x->size[x->ndim - 1];
  if (w_ih->ndim != 2 || w_ih->size[0] != w_hh->size[0])
    return amp__fail_arg(AMP_E_SHAPE, k + 1, "w_ih has shape %s, expected %lld x size of input (w_hh is %s)", SHAPE_OF(w_ih), LL(w_hh->size[0]),
        SHAPE_OF(w_hh));
  if (w_ih->size[1] != last)
    return amp__fail(AMP_E_SHAPE, "input has shape %s and w_ih %s: the last dimension of input is %lld, w_ih takes %lld", SHAPE_OF(x), SHAPE_OF(w_ih), LL(last),
        LL(w_ih->size[1]));
  for (int i = 0; i < 2; i++)
    if (b[i] && (b[i]->ndim != 1 || b[i]->size[0] != w_hh->size[0]))
      return amp__fail(AMP_E_SHAPE, "%s has shape %s, expected %lld (dimension 1 of w_hh)", i ? "b_hh" : "b_ih", SHAPE_OF(b[i]), LL(w_hh->size[0]));
  int64_t state[2] = { n, hidden }, data[3] = { 1, n, last };
  for (int i = 0; i < (mode == LSTM ? 2 : 1); i++) {
    const amp_tensor *t = in[1 + i];
    const int64_t *want = x->ndim == 2 ? state : state + 1;
    if (t->ndim != x->ndim || memcmp(t->size, want, sizeof *want * (size_t)x->ndim) != 0)
      return amp__fail_arg(AMP_E_SHAPE, 2 + i, "%s has shape %s, expected %s for an input of shape %s and %lld hidden values", i ? "cx" : "hx", SHAPE_OF(t),
                           amp__shape_str(x->ndim, want), SHAPE_OF(x), LL(hidden));
  }
  amp_tensor *w[4] = { w_ih, w_hh, b[0], b[1] };
  rc = layer(mode, false, amp__xview(x, 3, data), amp__xview(h, 2, state), mode == LSTM ? amp__xview(in[2], 2, state) : NULL, w, true, NULL, out);
  for (int i = 0; i < (mode == LSTM ? 2 : 1) && rc == 0; i++)
    rc = amp__ret(c, i, x->ndim == 2 ? out[1 + i] : amp__xview(out[1 + i], 1, &hidden));
  return rc;
}

int amp__comp_rnn_tanh_cell(amp_call *c) { return cell(c, TANH); }
int amp__comp_rnn_relu_cell(amp_call *c) { return cell(c, RELU); }
int amp__comp_lstm_cell(amp_call *c) { return cell(c, LSTM); }
int amp__comp_gru_cell(amp_call *c) { return cell(c, GRU); }

/* -- Checks of a net ------------------------------------------------------------------ */

/* "w_ih of layer 2, backward" */
static const char *weight_name(char *buf, size_t bytes, const net *k, int64_t i) {
  static const char *const name[5] = { "w_ih", "w_hh", "b_ih", "b_hh", "w_hr" };
  int64_t w = i % k->per, d = i / k->per, part = !k->bias && w == 2 ? 4 : w;
  snprintf(buf, bytes, "%s of layer %lld%s", name[part], LL(d / k->directions + 1), d % k->directions ? ", backward" : "");
  return buf;
}

static int check_weight(const amp_call *c, const net *k, int64_t i) {
  int64_t part = i % k->per, l = i / k->per / k->directions, rows = gates_of(k->mode) * k->hidden, size[2] = { rows, 0 };
  const amp_tensor *w = c->in[k->first + i];
  char buf[64];
  int rc = same_dtype(c->in[0], w, weight_name(buf, sizeof buf, k, i));
  if (rc < 0) return rc;
  int nd = 2;
  if (part == 0) size[1] = l == 0 ? k->in : k->out * k->directions;
  else if (part == 1) size[1] = k->out;
  else if (k->bias && part < 4) nd = 1;
  else { size[0] = k->proj; size[1] = k->hidden; }
  if (w->ndim == nd && memcmp(w->size, size, sizeof *size * (size_t)nd) == 0) return 0;
  if (i == 0 && w->ndim == 2 && w->size[0] == rows)
    return amp__fail(AMP_E_SHAPE, "input has shape %s and w_ih of layer 1 %s: the last dimension of input is %lld, the layer takes %lld", SHAPE_OF(c->in[0]),
        SHAPE_OF(w), LL(k->in), LL(w->size[1]));
  return amp__fail(AMP_E_SHAPE, "%s has shape %s, expected %s", buf, SHAPE_OF(w), amp__shape_str(nd, size));
}

static int check_state(const amp_call *c, const net *k, int i) {
  const amp_tensor *t = c->in[i], *x = c->in[0];
  const char *what = i == 1 ? "hx" : "cx";
  int64_t size[3] = { k->layers * k->directions, k->n, i == 1 ? k->out : k->hidden };
  if (k->single) size[1] = size[2];
  int nd = k->single ? 2 : 3, rc = same_dtype(x, t, what);
  if (rc < 0) return rc;
  if (k->packed && t->ndim == 3 && t->size[1] < 1) return amp__fail_arg(AMP_E_SHAPE, i + 1, "%s has shape %s, a batch of 0", what, SHAPE_OF(t));
  if (t->ndim == nd && memcmp(t->size, size, sizeof *size * (size_t)nd) == 0) return 0;
  return amp__fail_arg(AMP_E_SHAPE, i + 1, "%s has shape %s, expected %s (layers * directions%s x hidden) for an input of shape %s", what, SHAPE_OF(t),
                       amp__shape_str(nd, size), k->single ? "" : " x batch", SHAPE_OF(x));
}

/* slots: num_layers bias batch_first bidirectional dropout training packed, then mode or proj_size */
static int read_net(const amp_call *c, net *k, int mode) {
  const amp_tensor *x = c->in[0];
  const amp_slot *a = c->a;
  int rc;
  k->mode = mode;
  k->layers = a[0].i;
  k->bias = a[1].i != 0;
  k->batch_first = a[2].i != 0;
  k->directions = a[3].i ? 2 : 1;
  k->dropout = a[5].i ? a[4].f : 0;
  k->packed = a[6].i != 0;
  k->proj = mode == LSTM ? a[7].i : 0;
  k->first = mode == LSTM ? 3 : 2;
  k->per = 2 + (k->bias ? 2 : 0) + (k->proj ? 1 : 0);
  int64_t weights = c->nin - k->first - (k->packed ? 1 : 0);
  if (k->layers < 1 || k->layers > 1000000) return amp__fail(AMP_E_ARGUMENT, "num_layers %lld must lie in 1..1000000", LL(k->layers));
  if (!(a[4].f >= 0 && a[4].f <= 1)) return amp__fail(AMP_E_VALUE, "dropout %g must lie in 0..1", a[4].f);
  if (weights != k->layers * k->directions * k->per)
    return amp__fail(AMP_E_ARGUMENT, "%lld weights are given, expected %lld: %d for each of %lld layers%s", LL(weights < 0 ? 0 : weights),
                     LL(k->layers * k->directions * k->per), k->per, LL(k->layers), k->directions == 2 ? " in both directions" : "");
  if (!amp__is_float(x->dtype)) return amp__fail_arg(AMP_E_DTYPE, 1, "input has dtype %s, expected a float dtype", amp_dtype_name(x->dtype));
  k->single = !k->packed && x->ndim == 2;
  if (k->packed ? x->ndim != 2 : x->ndim != 3 && x->ndim != 2)
    return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected %s", SHAPE_OF(x),
        k->packed ? "rows x size" : k->batch_first ? "batch x length x size, or length x size" : "length x batch x size, or length x size");
  const amp_tensor *u = c->in[k->first + 1];
  if (u->ndim != 2 || u->size[0] % gates_of(mode)) return amp__fail(AMP_E_SHAPE, "w_hh of layer 1 has shape %s, expected %s%s", SHAPE_OF(u),
      gates_of(mode) == 1 ? "" : gates_of(mode) == 3 ? "3 * " : "4 * ", "hidden x hidden");
  k->hidden = u->size[0] / gates_of(mode);
  if (k->proj < 0 || (k->proj && k->proj >= k->hidden)) return amp__fail(AMP_E_ARGUMENT, "proj_size %lld must be less than the hidden size %lld", LL(k->proj),
      LL(k->hidden));
  k->out = k->proj ? k->proj : k->hidden;
  k->in = x->size[x->ndim - 1];
  int time = k->batch_first && !k->single && !k->packed ? 1 : 0;
  if (k->packed) {
    k->sizes = c->in[c->nin - 1];
    if (k->sizes->dtype != AMP_INT64 || k->sizes->ndim != 1 || k->sizes->size[0] < 1 || k->sizes->device != AMP_CPU)
      return amp__fail(AMP_E_ARGUMENT, "batch_sizes is %s, expected int64 and one dimension of at least 1, on the CPU", amp__tensor_str(k->sizes));
    k->steps = k->sizes->size[0];
    k->n = (int64_t)amp__element(k->sizes, 0);
  } else {
    k->steps = x->size[time];
    k->n = k->single ? 1 : x->size[1 - time];
    if (k->steps < 1) return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s: a sequence has at least one step", SHAPE_OF(x));
  }
  for (int64_t i = 0; i < weights; i++)
    if ((rc = check_weight(c, k, i)) < 0) return rc;
  for (int i = 1; i < k->first; i++)
    if ((rc = check_state(c, k, i)) < 0) return rc;
  return 0;
}

/* -- Steps of an LSTM whose state is projected ------------------------------------------- */

static int64_t size_at(const net *k, int64_t t) {
  if (t < 0 || t >= k->steps) return 0;
  return k->sizes ? (int64_t)amp__element(k->sizes, t * k->sizes->stride[0]) : k->n;
}

static amp_tensor *rows_of(amp_tensor *t, int64_t first, int64_t m) { return t && first == 0 && t->size[0] == m ? t : amp__xnarrow(t, 0, first, m); }
static amp_tensor *join(int n, amp_tensor *const *in) { return n == 1 ? in[0] : amp__xdim(AMP_OP_cat, 0, n, in); }

/* m rows of a state: those of the step before, then those that start now */
static amp_tensor *state(amp_tensor *before, amp_tensor *initial, int64_t m) {
  if (!before) return rows_of(initial, 0, m);
  if (before->size[0] >= m) return rows_of(before, 0, m);
  amp_tensor *in[2] = { before, amp__xnarrow(initial, 0, before->size[0], m - before->size[0]) };
  return join(2, in);
}

static int projected(const net *k, bool reverse, amp_tensor *x, amp_tensor *h0, amp_tensor *c0, amp_tensor *const *w, amp_tensor **out) {
  int64_t width = x->size[x->ndim - 1], rows = x->numel / (width > 0 ? width : 1), at = 0;
  amp_tensor *h = NULL, *c = NULL, *last[2] = { NULL, NULL }, *one[AMP_MAX_OUT], *y;
  int rc = AMP_E_MEMORY;
  if (width == 0) return amp__fail(AMP_E_SHAPE, "an input of size 0 takes no proj_size");
  int64_t flat[2] = { rows, width };
  OR_FAIL(x = amp__xview(x, 2, flat));
  amp_tensor **list = malloc(sizeof *list * (size_t)k->steps);
  if (!list) return amp__nomem(sizeof *list * (size_t)k->steps);
  if (reverse) at = rows;
  for (int64_t i = 0; i < k->steps; i++) {
    int64_t t = reverse ? k->steps - 1 - i : i, m = size_at(k, t), data[3] = { 1, m, width };
    int64_t left = reverse ? at : rows - at;
    if (m < 0 || m > k->n || m > left || (i == k->steps - 1 && m != left)) {
      rc = amp__fail(AMP_E_VALUE, "batch_sizes never grow and add up to the %lld rows of input", LL(rows));
      goto out;
    }
    if (reverse) at -= m;
    h = state(h, h0, m);
    c = state(c, c0, m);
    if ((rc = layer(LSTM, false, amp__xview(rows_of(x, at, m), 3, data), h, c, w, k->bias, NULL, one)) < 0) goto out;
    list[t] = h = linear(one[1], w[k->per - 1]);
    c = one[2];
    if (!reverse) at += m;
    /* elements whose last step this is stand before those that ended earlier */
    int64_t more = reverse ? 0 : size_at(k, t + 1);
    if (!reverse && m > more) {
      amp_tensor *a[2] = { rows_of(h, 0, m), last[0] }, *b[2] = { c, last[1] };
      if (more) { a[0] = amp__xnarrow(h, 0, more, m - more); b[0] = amp__xnarrow(c, 0, more, m - more); }
      last[0] = join(last[0] ? 2 : 1, a);
      last[1] = join(last[1] ? 2 : 1, b);
      if (!last[0] || !last[1]) { rc = amp__err(); goto out; }
    }
  }
  rc = 0;
  y = join((int)k->steps, list);
  int64_t whole[3] = { k->steps, k->n, k->out };
  out[0] = k->packed ? y : amp__xview(y, 3, whole);
  out[1] = reverse ? h : last[0];
  out[2] = reverse ? c : last[1];
  if (!out[0] || !out[1] || !out[2]) rc = amp__err();
out:
  free(list);
  return rc;
}

/* -- The net ------------------------------------------------------------------------------- */

/* state i of layers * directions: batch x size */
static amp_tensor *initial(const net *k, amp_tensor *t, int64_t i) {
  int64_t size[2] = { k->n, t->size[t->ndim - 1] };
  if (k->layers * k->directions > 1) t = amp__xnarrow(t, 0, i, 1);
  return amp__xview(t, 2, size);
}

static amp_tensor *stacked(const net *k, amp_tensor *const *list) {
  int64_t n = k->layers * k->directions, size[3] = { n, k->n, list[0]->size[1] };
  if (k->single) size[1] = size[2];
  return amp__xview(join((int)n, list), k->single ? 2 : 3, size);
}

static amp_tensor *drop(amp_tensor *x, double p) {
  amp_sl s = amp__sl();
  amp__sl_f(&s, p);
  amp__sl_i(&s, 1);
  return amp__x(AMP_OP_dropout, &s, 1, &x);
}

static int run(amp_call *c, int mode) {
  net k = { .mode = mode };
  amp_tensor *x = c->in[0], *out[AMP_MAX_OUT], *y[2];
  int rc = read_net(c, &k, mode);
  if (rc < 0) return rc;
  int64_t n = k.layers * k.directions, data[3] = { k.steps, 1, k.in };
  amp_tensor **last = malloc(sizeof *last * (size_t)n * 2);
  if (!last) return amp__nomem(sizeof *last * (size_t)n * 2);
  if (k.single) x = amp__xview(x, 3, data);
  else if (k.batch_first && !k.packed) x = amp__xtranspose(x, 0, 1);
  for (int64_t l = 0; l < k.layers; l++) {
    for (int64_t d = 0; d < k.directions; d++) {
      int64_t i = l * k.directions + d;
      amp_tensor *const *w = c->in + k.first + i * k.per;
      amp_tensor *h = initial(&k, c->in[1], i), *s = mode == LSTM ? initial(&k, c->in[2], i) : NULL;
      if (!x || !h || (mode == LSTM && !s)) { rc = amp__err(); goto out; }
      rc = k.proj ? projected(&k, d == 1, x, h, s, w, out) : layer(mode, d == 1, x, h, s, w, k.bias, k.sizes, out);
      if (rc < 0) goto out;
      y[d] = out[0];
      last[i] = out[1];
      last[n + i] = out[2];
    }
    x = k.directions == 2 ? amp__xdim(AMP_OP_cat, -1, 2, y) : y[0];
    if (k.dropout > 0 && l + 1 < k.layers) x = drop(x, k.dropout);
  }
  if (k.single) {
    int64_t size[2] = { k.steps, k.out * k.directions };
    x = amp__xview(x, 2, size);
  } else if (k.batch_first && !k.packed) x = amp__xtranspose(x, 0, 1);
  if ((rc = amp__ret(c, 0, x)) < 0 || (rc = amp__ret(c, 1, stacked(&k, last))) < 0) goto out;
  if (mode == LSTM) rc = amp__ret(c, 2, stacked(&k, last + n));
out:
  free(last);
  return rc;
}

int amp__comp_rnn(amp_call *c) { return run(c, c->a[7].i ? RELU : TANH); }
int amp__comp_lstm(amp_call *c) { return run(c, LSTM); }
int amp__comp_gru(amp_call *c) { return run(c, GRU); }
