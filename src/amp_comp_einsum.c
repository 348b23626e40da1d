/*
** amp_comp_einsum.c: einsum. A call's text is parsed by its caller (Lua's
** amp.einsum); here each operand's labels come packed into one integer, 6 bits a
** dimension (amp_ops.def says which label is which letter).
**
** Diagonals of repeated labels are taken first, and labels that one operand
** alone has and the output lacks are summed. Then the two operands whose
** product is the cheapest become one, until one is left. A pair's labels are of
** four kinds, and its product is one batched matmul of views:
**
**   batch: in both, needed later    sum: in both, not needed later
**   left, right: in one
**
** A dimension of size 1 broadcasts: where another operand's is larger it goes.
*/
#include "amp_bwd.h"

enum { LABELS = 61, ELLIPSIS = 53, BITS = 6 };

#define SHAPE_OF(t) amp__shape_str((t)->ndim, (t)->size)
#define LL(x) ((long long)(x))

typedef struct operand { amp_tensor *t; int8_t label[AMP_MAX_DIM]; uint64_t set; } operand;
typedef struct einsum {
  int n;
  operand op[AMP_MAX_DIM];
  int64_t size[LABELS];      /* of a label, as broadcast */
  uint64_t out;              /* the output's labels */
} einsum;

#define BIT(l) ((uint64_t)1 << (l))

static const char *letter(int label, char *buf) {
  if (label >= ELLIPSIS) return "...";
  buf[0] = (char)(label <= 26 ? 'a' + label - 1 : 'A' + label - 27);
  buf[1] = 0;
  return buf;
}

/* Labels of a packed subscript; how many, or an error. */
static int unpack(int64_t packed, int8_t *label, int operand) {
  int n = 0;
  if (packed < 0 || packed >> (BITS * AMP_MAX_DIM)) return amp__fail(AMP_E_ARGUMENT, "subscript %d: %lld packs no labels", operand, LL(packed));
  for (; packed; packed >>= BITS) {
    int l = (int)(packed & 63);
    if (l == 0 || l >= LABELS) return amp__fail(AMP_E_ARGUMENT, "subscript %d has label number %d; labels are 1..%d", operand, l, LABELS - 1);
    label[n++] = (int8_t)l;
  }
  return n;
}

static amp_tensor *permuted(amp_tensor *t, const int *dims, int n) {
  int64_t list[AMP_MAX_DIM];
  bool same = true;
  for (int i = 0; i < n; i++) {
    list[i] = dims[i] + 1;
    same = same && dims[i] == i;
  }
  if (!t || same) return t;
  amp_sl s = amp__sl();
  amp__sl_list(&s, n, list);
  return amp__x(AMP_OP_permute, &s, 1, &t);
}

static void drop_label(operand *o, int d) {
  o->set &= ~BIT(o->label[d]);
  for (int i = d; i + 1 < AMP_MAX_DIM; i++) o->label[i] = o->label[i + 1];
}

/* -- Reading the call ------------------------------------------------------------------ */

/* Dimensions a < b with one label become their diagonal, which comes last. */
static int diagonals(operand *o) {
  for (int a = 0; a < o->t->ndim; a++)
    for (int b = a + 1; b < o->t->ndim; b++) {
      int l = o->label[a];
      if (o->label[b] != l) continue;
      amp_sl s = amp__sl();
      amp__sl_i(&s, 0);
      amp__sl_dim(&s, a);
      amp__sl_dim(&s, b);
      if (!(o->t = amp__x(AMP_OP_diagonal, &s, 1, &o->t))) return amp__err();
      drop_label(o, b);
      drop_label(o, a);
      o->label[o->t->ndim - 1] = (int8_t)l;
      o->set |= BIT(l);
      a = -1;
      break;
    }
  return 0;
}

static int size_error(int label, int64_t have, const amp_tensor *t, int place, int64_t want) {
  char buf[2];
  return amp__fail_arg(AMP_E_SHAPE, place, "subscript '%s' has size %lld in operand %d (%s), but size %lld before it; sizes agree or are 1", letter(label,
      buf), LL(have), place,
                       SHAPE_OF(t), LL(want));
}

static int read_operands(amp_call *c, einsum *e) {
  const amp_slot *a = c->a;
  for (int i = 0; i < LABELS; i++) e->size[i] = -1;
  for (int i = 0; i < e->n; i++) {
    operand *o = &e->op[i];
    amp_tensor *t = o->t = c->in[i];
    int n = unpack(a[1 + i].i, o->label, i + 1);
    if (n < 0) return n;
    if (t->dtype != c->in[0]->dtype)
      return amp__fail_arg(AMP_E_DTYPE, i + 1, "operand 1 is %s and operand %d is %s; cast one of them", amp_dtype_name(c->in[0]->dtype), i + 1,
                           amp_dtype_name(t->dtype));
    if (n != t->ndim) return amp__fail_arg(AMP_E_SHAPE, i + 1, "%d subscripts for operand %d of shape %s, which has %d dimensions", n, i + 1, SHAPE_OF(t),
                                           t->ndim);
    o->set = 0;
    for (int d = 0; d < n; d++) {
      int l = o->label[d];
      int64_t *size = &e->size[l];
      if (o->set >> l & 1) { /* within one operand nothing broadcasts */
        for (int k = 0; k < d; k++) if (o->label[k] == l && t->size[k] != t->size[d]) return size_error(l, t->size[d], t, i + 1, t->size[k]);
      }
      o->set |= BIT(l);
      if (*size >= 0 && *size != t->size[d] && *size != 1 && t->size[d] != 1) return size_error(l, t->size[d], t, i + 1, *size);
      if (*size < 0 || *size == 1) *size = t->size[d];
    }
  }
  return 0;
}

static int read_output(amp_call *c, einsum *e, int8_t *label) {
  char buf[2];
  int n = unpack(c->a[1 + AMP_MAX_DIM].i, label, 0);
  e->out = 0;
  for (int d = 0; d < n; d++) {
    int l = label[d];
    if (e->size[l] < 0) return amp__fail(AMP_E_ARGUMENT, "output subscript '%s' is in no operand", letter(l, buf));
    if (e->out >> l & 1) return amp__fail(AMP_E_ARGUMENT, "output subscript '%s' stands twice", letter(l, buf));
    e->out |= BIT(l);
  }
  return n;
}

/* -- Contraction ------------------------------------------------------------------------ */

/* Labels in the output or in an operand other than i and j */
static uint64_t needed(const einsum *e, int i, int j) {
  uint64_t set = e->out;
  for (int k = 0; k < e->n; k++) if (k != i && k != j) set |= e->op[k].set;
  return set;
}

static int sum_labels(operand *o, uint64_t gone) {
  int dims[AMP_MAX_DIM], n = 0;
  for (int d = 0; d < o->t->ndim; d++) if (gone >> o->label[d] & 1) dims[n++] = d;
  if (n == 0) return 0;
  if (!(o->t = amp__xsum(o->t, n, dims, false))) return amp__err();
  while (n > 0) drop_label(o, dims[--n]);
  return 0;
}

/* Dimensions of size 1 whose label is larger elsewhere go. */
static int drop_ones(const einsum *e, operand *o) {
  for (int d = o->t->ndim - 1; d >= 0; d--) {
    if (o->t->size[d] != 1 || e->size[o->label[d]] == 1) continue;
    if (!(o->t = amp__xdim(AMP_OP_squeeze, d, 1, &o->t))) return amp__err();
    drop_label(o, d);
  }
  return 0;
}

static double extent(const einsum *e, uint64_t set) {
  double n = 1;
  for (int l = 1; l < LABELS; l++) if (set >> l & 1) n *= (double)e->size[l];
  return n;
}

/* o's dimensions with labels of `set`, appended in o's order; their number of elements */
static int64_t pick(const operand *o, uint64_t set, int *dims, int *n) {
  int64_t count = 1;
  for (int d = 0; d < o->t->ndim; d++)
    if (set >> o->label[d] & 1) {
      dims[(*n)++] = d;
      count *= o->t->size[d];
    }
  return count;
}

/* The same with labels in the order that `like` has them */
static void pick_as(const operand *o, uint64_t set, const operand *like, int *dims, int *n) {
  for (int k = 0; k < like->t->ndim; k++)
    if (set >> like->label[k] & 1)
      for (int d = 0; d < o->t->ndim; d++) if (o->label[d] == like->label[k]) dims[(*n)++] = d;
}

static int multiply(const einsum *e, int i, int j, operand *r) {
  const operand *a = &e->op[i], *b = &e->op[j];
  uint64_t both = a->set & b->set, later = needed(e, i, j), batch = both & later, sum = both & ~later;
  int da[AMP_MAX_DIM], db[AMP_MAX_DIM], na = 0, nb = 0, n = 0;
  int64_t size[2 * AMP_MAX_DIM], m, inner, cols, batches;
  batches = pick(a, batch, da, &na);
  m = pick(a, a->set & ~both, da, &na);
  int free_a = na;
  inner = pick(a, sum, da, &na);
  pick_as(b, batch, a, db, &nb);
  pick_as(b, sum, a, db, &nb);
  cols = pick(b, b->set & ~both, db, &nb);
  r->set = (a->set | b->set) & ~sum;
  if (__builtin_popcountll(r->set) > AMP_MAX_DIM)
    return amp__fail(AMP_E_SHAPE, "the product of operands of shapes %s and %s would have %d dimensions; at most %d are possible", SHAPE_OF(a->t),
                     SHAPE_OF(b->t),
                     __builtin_popcountll(r->set), AMP_MAX_DIM);
  for (int d = 0; d < free_a; d++) { r->label[n] = a->label[da[d]]; size[n++] = a->t->size[da[d]]; }
  for (int d = 0; d < nb; d++)
    if (!(both >> b->label[db[d]] & 1)) { r->label[n] = b->label[db[d]]; size[n++] = b->t->size[db[d]]; }
  amp_tensor *x = permuted(a->t, da, na), *y = permuted(b->t, db, nb), *p;
  if (sum == 0 && (a->set & ~both) == 0 && (b->set & ~both) == 0) p = X2(mul, x, y);
  else {
    int64_t sx[3] = { batches, m, inner }, sy[3] = { batches, inner, cols };
    bool one = batch == 0; /* matrices: no batch of one */
    p = X2(matmul, amp__xview(x, one ? 2 : 3, sx + one), amp__xview(y, one ? 2 : 3, sy + one));
  }
  r->t = amp__xview(p, n, size);
  return r->t ? 0 : amp__err();
}

/* The pair whose product costs least; of equals the first. */
static void cheapest(const einsum *e, int *bi, int *bj) {
  double best = -1;
  for (int i = 0; i < e->n; i++)
    for (int j = i + 1; j < e->n; j++) {
      double cost = extent(e, e->op[i].set | e->op[j].set);
      if (best >= 0 && cost >= best) continue;
      best = cost;
      *bi = i;
      *bj = j;
    }
}

int amp__comp_einsum(amp_call *c) {
  einsum e = { .n = c->nin };
  int8_t out[AMP_MAX_DIM];
  int nout, rc;
  if (e.n == 0 || e.n > AMP_MAX_DIM) return amp__fail(AMP_E_ARGUMENT, "%d operands are given, 1..%d are possible", e.n, AMP_MAX_DIM);
  if (c->a[0].i != e.n) return amp__fail(AMP_E_ARGUMENT, "%lld subscripts for %d operands", c->a[0].i == AMP_NONE ? 0LL : LL(c->a[0].i), e.n);
  if ((rc = read_operands(c, &e)) < 0 || (nout = rc = read_output(c, &e, out)) < 0) return rc;
  for (int i = 0; i < e.n; i++) if ((rc = diagonals(&e.op[i])) < 0 || (rc = drop_ones(&e, &e.op[i])) < 0) return rc;
  for (int i = 0; i < e.n; i++) if ((rc = sum_labels(&e.op[i], ~needed(&e, i, i))) < 0) return rc;
  while (e.n > 1) {
    operand r = { NULL, { 0 }, 0 };
    int i = 0, j = 1;
    cheapest(&e, &i, &j);
    if ((rc = multiply(&e, i, j, &r)) < 0) return rc;
    e.op[i] = r;
    e.n--;
    for (int k = j; k < e.n; k++) e.op[k] = e.op[k + 1];
    if ((rc = sum_labels(&e.op[i], ~needed(&e, i, i))) < 0) return rc;
  }
  int dims[AMP_MAX_DIM];
  for (int d = 0; d < nout; d++)
    for (int k = 0; k < e.op[0].t->ndim; k++) if (e.op[0].label[k] == out[d]) dims[d] = k;
  amp_tensor *y = permuted(e.op[0].t, dims, nout);
  return amp__ret(c, 0, y == c->in[0] ? X1(alias, y) : y);
}
