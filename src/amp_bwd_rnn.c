/*
** amp_bwd_rnn.c: derivative of a recurrent layer.
**
** Going back through the steps gives the gradients of the gates' sums; all
** others are products over the whole sequence:
**
**   dx = dg W_ih   dW_ih = dg^T x   dW_hh = du^T h_prev   db = sums of dg, du
**
** (du is dg, but for a GRU, whose last gate scales the state's part.) The steps
** are the fused row rnn_layer_backward; where a graph of the derivative is
** wanted they run once more, forward and back, in recorded ops.
*/
#include <stdlib.h>
#include "amp_bwd.h"
#include "amp_tape.h"

enum { TANH, RELU, LSTM, GRU }; /* of mode */
enum { IN_X, IN_H, IN_C, IN_W, IN_U, IN_BW, IN_BU, IN_SIZES };

typedef struct back {
  amp_tensor *x, *dg, *du, *dh0, *dc0, *prev; /* x: rows x in; prev: rows x state */
} back;

/* -- Steps in recorded ops ---------------------------------------------------------- */

typedef struct step {
  int64_t first, m;                        /* its rows */
  amp_tensor *gate[4], *h, *c, *prev, *cprev, *a; /* activated; states after and before; a: the state's part of a GRU's n */
  amp_tensor *dg, *du;
} step;

static amp_tensor *gate(amp_tensor *t, int64_t i, int64_t h) { return amp__xnarrow(t, 1, i * h, h); }
static amp_tensor *rows_of(amp_tensor *t, int64_t first, int64_t m) { return t && t->size[0] == m ? t : amp__xnarrow(t, 0, first, m); }
static amp_tensor *one_minus(amp_tensor *t) { return XN(add, X1(neg, t), 1); }
static amp_tensor *join(amp_tensor *a, amp_tensor *b) {
  amp_tensor *in[2] = { a, b };
  return amp__xdim(AMP_OP_cat, 0, 2, in);
}
static amp_tensor *joined(int64_t n, amp_tensor *const *in, int dim) { return n == 1 ? in[0] : amp__xdim(AMP_OP_cat, dim, (int)n, in); }

/* m rows of a state: those of the step before, then those that start now */
static amp_tensor *state(amp_tensor *before, amp_tensor *initial, int64_t m) {
  if (!before) return rows_of(initial, 0, m);
  if (before->size[0] >= m) return rows_of(before, 0, m);
  return join(before, amp__xnarrow(initial, 0, before->size[0], m - before->size[0]));
}

static amp_tensor *linear(amp_tensor *x, amp_tensor *w, amp_tensor *b) {
  amp_tensor *in[3] = { x, w, b };
  return amp__x(AMP_OP_linear, NULL, 3, in);
}

static int ahead(step *s, int mode, amp_tensor *gx, amp_tensor *w, amp_tensor *bias, int64_t h) {
  amp_tensor *u = linear(s->prev, w, bias), *x = rows_of(gx, s->first, s->m);
  if (mode == GRU) {
    s->gate[0] = X1(sigmoid, X2(add, gate(x, 0, h), gate(u, 0, h)));
    s->gate[1] = X1(sigmoid, X2(add, gate(x, 1, h), gate(u, 1, h)));
    s->a = gate(u, 2, h);
    s->gate[2] = X1(tanh, X2(add, gate(x, 2, h), X2(mul, s->gate[0], s->a)));
    s->h = X2(add, s->gate[2], X2(mul, s->gate[1], X2(sub, s->prev, s->gate[2])));
  } else if (mode == LSTM) {
    x = X2(add, x, u);
    for (int i = 0; i < 4; i++) s->gate[i] = amp__x1(i == 2 ? AMP_OP_tanh : AMP_OP_sigmoid, gate(x, i, h));
    s->c = X2(add, X2(mul, s->gate[1], s->cprev), X2(mul, s->gate[0], s->gate[2]));
    s->a = X1(tanh, s->c);
    s->h = X2(mul, s->gate[3], s->a);
  } else
    s->h = amp__x1(mode == TANH ? AMP_OP_tanh : AMP_OP_relu, X2(add, x, u));
  return s->h ? 0 : amp__err();
}

static amp_tensor *sigmoid_back(amp_tensor *g, amp_tensor *y) { return X2(sigmoid_backward, g, y); }
static amp_tensor *tanh_back(amp_tensor *g, amp_tensor *y) { return X2(tanh_backward, g, y); }

/* d, *dc: gradients of the step's states; they become those of the states before. */
static amp_tensor *behind(step *s, int mode, amp_tensor *w, amp_tensor *d, amp_tensor **dc) {
  amp_tensor **q = s->gate, *in[4], *carry = NULL;
  if (mode == GRU) {
    amp_tensor *dn = tanh_back(X2(mul, d, one_minus(q[1])), q[2]);
    in[0] = sigmoid_back(X2(mul, dn, s->a), q[0]);
    in[1] = sigmoid_back(X2(mul, d, X2(sub, s->prev, q[2])), q[1]);
    in[2] = dn;
    s->dg = joined(3, in, 1);
    in[2] = X2(mul, dn, q[0]);
    s->du = joined(3, in, 1);
    carry = X2(mul, d, q[1]);
  } else if (mode == LSTM) {
    amp_tensor *t = tanh_back(X2(mul, d, q[3]), s->a);
    if (*dc) t = X2(add, *dc, t);
    in[0] = sigmoid_back(X2(mul, t, q[2]), q[0]);
    in[1] = sigmoid_back(X2(mul, t, s->cprev), q[1]);
    in[2] = tanh_back(X2(mul, t, q[0]), q[2]);
    in[3] = sigmoid_back(X2(mul, d, s->a), q[3]);
    s->dg = s->du = joined(4, in, 1);
    *dc = X2(mul, t, q[1]);
    if (!*dc) return NULL;
  } else
    s->dg = s->du = amp__x2(mode == TANH ? AMP_OP_tanh_backward : AMP_OP_relu_backward, d, s->h);
  d = X2(matmul, s->du, w);
  return carry ? X2(add, d, carry) : d;
}

/* Rows of d (for the first m elements of the batch) in place of those it had; all: what the others keep. */
static amp_tensor *replace(amp_tensor *all, amp_tensor *d) {
  if (!all || !d || all->size[0] == d->size[0]) return d;
  return join(d, amp__xnarrow(all, 0, d->size[0], all->size[0] - d->size[0]));
}

static amp_tensor *zeros(const amp_tensor *like, int64_t n, int64_t h) {
  int64_t size[2] = { n, h };
  return amp__xfull(0, like->dtype, like->device, like->device_index, 2, size);
}

static amp_tensor *in_type(amp_tensor *t, int type) { return amp__xcast(t, type); }

static int recorded(amp_bwd *b, amp_tensor *const *in, back *k) {
  int mode = (int)b->a[0].i, type = amp__is_half(in[IN_U]->dtype) ? AMP_FLOAT32 : in[IN_U]->dtype, rc = AMP_E_MEMORY;
  bool reverse = b->a[1].i != 0;
  amp_tensor *w = in_type(in[IN_W], type), *u = in_type(in[IN_U], type), *h0 = in_type(in[IN_H], type), *c0 = NULL;
  amp_tensor *bw = in[IN_BW] ? in_type(in[IN_BW], type) : NULL, *bu = in[IN_BU] ? in_type(in[IN_BU], type) : NULL;
  const amp_tensor *sizes = in[IN_SIZES];
  OR_FAIL(h0);
  if (in[IN_C]) OR_FAIL(c0 = in_type(in[IN_C], type));
  OR_FAIL(k->x = in_type(k->x, type));
  int64_t rows = k->x->size[0], n = h0->size[0], steps = sizes ? sizes->size[0] : SHAPE(b, IN_X)->size[0];
  int64_t h = u->size[0] / (mode == LSTM ? 4 : mode == GRU ? 3 : 1), flat[2] = { rows, h };
  amp_tensor *gx = linear(k->x, w, bw), *gy = b->g[0], *dh = b->g[1], *dc = mode == LSTM ? b->g[2] : NULL;
  OR_FAIL(gx);
  if (gy) OR_FAIL(gy = in_type(amp__xview(gy, 2, flat), type));
  OR_FAIL(dh = dh ? in_type(dh, type) : zeros(gx, n, h));
  if (dc) OR_FAIL(dc = in_type(dc, type));
  else if (mode == LSTM) OR_FAIL(dc = zeros(gx, n, h));
  step *s = calloc((size_t)steps, sizeof *s);
  amp_tensor **list = malloc(sizeof *list * (size_t)steps);
  if (!s || !list) { amp__nomem(sizeof *s * (size_t)steps); goto out; }
  for (int64_t t = 0, at = 0; t < steps; at += s[t++].m) {
    s[t].first = at;
    s[t].m = sizes ? (int64_t)amp__element(sizes, t * sizes->stride[0]) : n;
  }
  amp_tensor *hs = NULL, *cs = NULL;
  for (int64_t i = 0; i < steps; i++) {
    step *p = s + (reverse ? steps - 1 - i : i);
    p->prev = state(hs, h0, p->m);
    if (mode == LSTM) p->cprev = state(cs, c0, p->m);
    if ((rc = ahead(p, mode, gx, u, bu, h)) < 0) goto out;
    hs = p->h;
    cs = p->c;
  }
  for (int64_t i = steps - 1; i >= 0; i--) {
    step *p = s + (reverse ? steps - 1 - i : i);
    amp_tensor *d = rows_of(dh, 0, p->m), *e = dc ? rows_of(dc, 0, p->m) : NULL;
    if (gy) d = X2(add, d, rows_of(gy, p->first, p->m));
    d = behind(p, mode, u, d, &e);
    if (steps == 1) dh = d; /* its size may be another */
    else dh = replace(dh, d);
    if (dc) dc = replace(dc, e);
    if (!dh || (mode == LSTM && !dc)) { rc = amp__err(); goto out; }
  }
  for (int64_t t = 0; t < steps; t++) list[t] = s[t].dg;
  k->dg = joined(steps, list, 0);
  for (int64_t t = 0; t < steps; t++) list[t] = s[t].du;
  k->du = mode == GRU ? joined(steps, list, 0) : k->dg;
  for (int64_t t = 0; t < steps; t++) list[t] = s[t].prev;
  k->prev = joined(steps, list, 0);
  k->dh0 = dh;
  k->dc0 = dc;
  rc = k->dg && k->du && k->prev ? 0 : amp__err();
out:
  free(s);
  free(list);
  return rc;
}

/* -- The derivative -------------------------------------------------------------------- */

/* The reserve is most of what a layer holds: it goes before the products, which need memory themselves. In the places of the results
** then lies what was made of them: where memory is short still, it goes on from there. */
static int fused(amp_bwd *b, amp_tensor *const *in, back *k) {
  amp_node *n = b->node;
  amp_saved *kept = &n->saved[b->nin];
  amp_tensor *out[AMP_MAX_OUT];
  if (n->flags & AMP_N_SPENT)
    for (int i = 0; i < n->nout; i++) out[i] = kept[i].t;
  else {
    const bool last = b->last && kept[3].t && kept[3].t->device != AMP_CPU;
    amp_tensor *arg[8] = { b->g[0], b->g[1], NULL, last ? kept[3].t : OUT(b, 3), in[IN_U], OUT(b, 0), in[IN_H], in[IN_SIZES] };
    amp_sl s = amp__sl();
    amp__sl_copy(&s, b->a, 2);
    if (b->a[0].i == LSTM) arg[2] = b->g[2];
    int rc = amp__xs(AMP_OP_rnn_layer_backward, &s, 8, arg, out);
    if (rc < 0) return rc;
    for (int i = 0; last && i < n->nout; i++) {
      amp__saved_free(&kept[i]);
      if ((kept[i].t = out[i])) amp__retain(out[i]);
    }
    if (last) n->flags |= AMP_N_SPENT;
  }
  k->dg = out[0];
  k->du = b->a[0].i == GRU ? out[2] : out[0];
  k->dh0 = out[1];
  k->dc0 = out[2];
  k->prev = !in[IN_SIZES] && SHAPE(b, IN_X)->size[0] == 1 ? in[IN_H] : out[3];
  return 0;
}

/* A single step adds up what comes for its result and for its last state, which are the same: where the state has a gradient, first, a
** second one may be the result's. It as that, or NULL */
amp_tensor *amp__rnn_beside(amp_node *n, const amp_tensor *first, const amp_tensor *g) {
  const amp_shape *y = amp__shape_of(n, n->nin);
  int64_t stride[AMP_MAX_DIM];
  if (y->ndim != 3 || y->size[0] != 1 || y->dtype != g->dtype || first->dtype != g->dtype || !(g->flags & AMP_T_CONTIGUOUS)) return NULL;
  amp__contiguous_strides(3, y->size, stride);
  return amp__tensor_view(g, 3, y->size, stride, g->offset);
}

static amp_tensor *turned(amp_tensor *t) { return amp__xtranspose(t, 0, 1); }

int amp__bwd_rnn_layer(amp_bwd *b) {
  amp_tensor *in[8] = { NULL }, *sum = NULL;
  back k;
  int rc, zero = 0;
  memset(&k, 0, sizeof k);
  for (int i = 0; i < 8; i++)
    if (amp__has(b, i)) OR_FAIL(in[i] = IN(b, i));
  const amp_shape *h = SHAPE(b, IN_X);
  int64_t flat[2] = { 1, h->size[h->ndim - 1] };
  for (int d = 0; d < h->ndim - 1; d++) flat[0] *= h->size[d];
  OR_FAIL(k.x = amp__xview(in[IN_X], 2, flat));
  if ((rc = b->create_graph ? recorded(b, in, &k) : fused(b, in, &k)) < 0) return rc;
  amp_tensor *w = amp__xcast(in[IN_W], k.dg->dtype);
  if (NEED(b, IN_X)) rc = GIN(b, IN_X, amp__xto(b, IN_X, amp__xview(X2(matmul, k.dg, w), h->ndim, h->size)));
  if (rc == 0 && NEED(b, IN_H)) rc = GIN(b, IN_H, amp__xto(b, IN_H, k.dh0));
  if (rc == 0 && NEED(b, IN_C)) rc = GIN(b, IN_C, amp__xto(b, IN_C, k.dc0));
  if (rc < 0) return rc;
  if (!b->create_graph && !in[IN_SIZES] && h->size[0] == 1) { /* a step of many: the weights' gradients are made of all at once */
    const amp_want want[] = { { IN_W, 0, 1 }, { IN_U, k.du == k.dg ? 0 : 3, 2 }, { IN_BW, 0, -1 }, { IN_BU, k.du == k.dg ? 0 : 3, -1 } };
    amp_tensor *part[4] = { k.dg, k.x, k.prev, k.du };
    if ((rc = amp__later(b, k.du == k.dg ? 3 : 4, part, 4, want)) != 0) return rc < 0 ? rc : 0;
  }
  if (rc == 0 && NEED(b, IN_W)) rc = GIN(b, IN_W, amp__xto(b, IN_W, X2(matmul, turned(k.dg), k.x)));
  if (rc == 0 && NEED(b, IN_U)) rc = GIN(b, IN_U, amp__xto(b, IN_U, X2(matmul, turned(k.du), k.prev)));
  if (rc == 0 && (NEED(b, IN_BW) || (NEED(b, IN_BU) && k.du == k.dg))) OR_FAIL(sum = amp__xsum(k.dg, 1, &zero, false));
  if (rc == 0 && NEED(b, IN_BW)) rc = GIN(b, IN_BW, amp__xto(b, IN_BW, sum));
  if (rc == 0 && NEED(b, IN_BU)) rc = GIN(b, IN_BU, amp__xto(b, IN_BU, k.du == k.dg ? sum : amp__xsum(k.du, 1, &zero, false)));
  return rc;
}
