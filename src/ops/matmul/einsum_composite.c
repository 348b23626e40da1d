/*
** ops/matmul/einsum_composite.c: einsum. A call's text is parsed by its caller (Lua's
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
#include "autograd/derivative.h"

enum { LABELS = 61, ELLIPSIS = 53, BITS = 6 };

#define SHAPE_OF(t) amp__shape_str((t)->ndim, (t)->size)
#define LL(x) ((long long)(x))

typedef struct operand {
  amp_tensor *tensor;
  int8_t label[AMP_MAX_DIM];
  uint64_t set;
} operand;
typedef struct einsum {
  int count;
  operand operands[AMP_MAX_DIM];
  int64_t size[LABELS]; /* of a label, as broadcast */
  uint64_t out;         /* the output's labels */
} einsum;

#define BIT(l) ((uint64_t)1 << (l))

static const char *letter(int label, char *buf)
{
  if (label >= ELLIPSIS) return "...";
  buf[0] = (char)(label <= 26 ? 'a' + label - 1 : 'A' + label - 27);
  buf[1] = 0;
  return buf;
}

/* Labels of a packed subscript; how many, or an error. */
static int unpack(int64_t packed, int8_t *label, int operand)
{
  int count = 0;
  if (packed < 0 || packed >> (BITS * AMP_MAX_DIM))
    return amp__fail(AMP_E_ARGUMENT, "subscript %d: %lld packs no labels", operand, LL(packed));
  for (; packed; packed >>= BITS) {
    int l = (int)(packed & 63);
    if (l == 0 || l >= LABELS)
      return amp__fail(AMP_E_ARGUMENT, "subscript %d has label number %d; labels are 1..%d", operand, l, LABELS - 1);
    AMP_ASSERT(count < AMP_MAX_DIM);
    label[count++] = (int8_t)l;
  }
  return count;
}

static amp_tensor *permuted(amp_tensor *tensor, const int *dims, int count)
{
  int64_t list[AMP_MAX_DIM];
  bool same = true;
  for (int i = 0; i < count; i++) {
    list[i] = dims[i] + 1;
    same = same && dims[i] == i;
  }
  if (!tensor || same) return tensor;
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, count, list);
  return amp__op(AMP_OP_permute, &attrs, 1, &tensor);
}

static void drop_label(operand *result, int dim)
{
  result->set &= ~BIT(result->label[dim]);
  for (int i = dim; i + 1 < AMP_MAX_DIM; i++) result->label[i] = result->label[i + 1];
}

/* -- Reading the call ------------------------------------------------------------------ */

/* Dimensions a < b with one label become their diagonal, which comes last. */
static int diagonals(operand *result)
{
  for (int a = 0; a < result->tensor->ndim; a++)
    for (int b = a + 1; b < result->tensor->ndim; b++) {
      int label = result->label[a];
      if (result->label[b] != label) continue;
      amp_attrs attrs = amp__attrs();
      amp__attrs_int(&attrs, 0);
      amp__attrs_dim(&attrs, a);
      amp__attrs_dim(&attrs, b);
      if (!(result->tensor = amp__op(AMP_OP_diagonal, &attrs, 1, &result->tensor))) return amp__err();
      drop_label(result, b);
      drop_label(result, a);
      result->label[result->tensor->ndim - 1] = (int8_t)label;
      result->set |= BIT(label);
      a = -1;
      break;
    }
  return 0;
}

static int size_error(int label, int64_t have, const amp_tensor *tensor, int place, int64_t want)
{
  char buf[2];
  return amp__fail_arg(AMP_E_SHAPE, place,
                       "subscript '%s' has size %lld in operand %d (%s), but size %lld before it; sizes agree or are 1",
                       letter(label, buf), LL(have), place, SHAPE_OF(tensor), LL(want));
}

static int read_operands(amp_call *call, einsum *whole)
{
  const int64_t *packed = AMP_ARGS(call, einsum)->subscripts.at;
  for (int i = 0; i < LABELS; i++) whole->size[i] = -1;
  for (int i = 0; i < whole->count; i++) {
    operand *result = &whole->operands[i];
    amp_tensor *tensor = result->tensor = call->in[i];
    int count = unpack(packed[i], result->label, i + 1);
    if (count < 0) return count;
    if (tensor->dtype != call->in[0]->dtype)
      return amp__fail_arg(AMP_E_DTYPE, i + 1, "operand 1 is %s and operand %d is %s; cast one of them",
                           amp_dtype_name(call->in[0]->dtype), i + 1, amp_dtype_name(tensor->dtype));
    if (count != tensor->ndim)
      return amp__fail_arg(AMP_E_SHAPE, i + 1, "%d subscripts for operand %d of shape %s, which has %d dimensions",
                           count, i + 1, SHAPE_OF(tensor), tensor->ndim);
    result->set = 0;
    for (int dim = 0; dim < count; dim++) {
      int label = result->label[dim];
      int64_t *size = &whole->size[label];
      if (result->set >> label & 1) { /* within one operand nothing broadcasts */
        for (int k = 0; k < dim; k++)
          if (result->label[k] == label && tensor->size[k] != tensor->size[dim])
            return size_error(label, tensor->size[dim], tensor, i + 1, tensor->size[k]);
      }
      result->set |= BIT(label);
      if (*size >= 0 && *size != tensor->size[dim] && *size != 1 && tensor->size[dim] != 1)
        return size_error(label, tensor->size[dim], tensor, i + 1, *size);
      if (*size < 0 || *size == 1) *size = tensor->size[dim];
    }
  }
  return 0;
}

static int read_output(amp_call *call, einsum *whole, int8_t *label)
{
  char buf[2];
  int count = unpack(AMP_ARGS(call, einsum)->output, label, 0);
  whole->out = 0;
  for (int dim = 0; dim < count; dim++) {
    int l = label[dim];
    if (whole->size[l] < 0) return amp__fail(AMP_E_ARGUMENT, "output subscript '%s' is in no operand", letter(l, buf));
    if (whole->out >> l & 1) return amp__fail(AMP_E_ARGUMENT, "output subscript '%s' stands twice", letter(l, buf));
    whole->out |= BIT(l);
  }
  return count;
}

/* -- Contraction ------------------------------------------------------------------------ */

/* Labels in the output or in an operand other than i and j */
static uint64_t needed(const einsum *einsum, int i, int j)
{
  uint64_t set = einsum->out;
  for (int k = 0; k < einsum->count; k++)
    if (k != i && k != j) set |= einsum->operands[k].set;
  return set;
}

static int sum_labels(operand *result, uint64_t gone)
{
  int dims[AMP_MAX_DIM], count = 0;
  for (int dim = 0; dim < result->tensor->ndim; dim++)
    if (gone >> result->label[dim] & 1) dims[count++] = dim;
  if (count == 0) return 0;
  if (!(result->tensor = amp__op_sum(result->tensor, count, dims, false))) return amp__err();
  while (count > 0) drop_label(result, dims[--count]);
  return 0;
}

/* Dimensions of size 1 whose label is larger elsewhere go. */
static int drop_ones(const einsum *einsum, operand *result)
{
  for (int dim = result->tensor->ndim - 1; dim >= 0; dim--) {
    if (result->tensor->size[dim] != 1 || einsum->size[result->label[dim]] == 1) continue;
    if (!(result->tensor = amp__op_dim(AMP_OP_squeeze, dim, 1, &result->tensor))) return amp__err();
    drop_label(result, dim);
  }
  return 0;
}

static double extent(const einsum *einsum, uint64_t set)
{
  double n = 1;
  for (int label = 1; label < LABELS; label++)
    if (set >> label & 1) n *= (double)einsum->size[label];
  return n;
}

/* o's dimensions with labels of `set`, appended in o's order; their number of elements */
static int64_t pick(const operand *result, uint64_t set, int *dims, int *n)
{
  int64_t count = 1;
  for (int dim = 0; dim < result->tensor->ndim; dim++)
    if (set >> result->label[dim] & 1) {
      dims[(*n)++] = dim;
      count *= result->tensor->size[dim];
    }
  return count;
}

/* The same with labels in the order that `like` has them */
static void pick_as(const operand *result, uint64_t set, const operand *like, int *dims, int *n)
{
  for (int k = 0; k < like->tensor->ndim; k++)
    if (set >> like->label[k] & 1)
      for (int dim = 0; dim < result->tensor->ndim; dim++)
        if (result->label[dim] == like->label[k]) dims[(*n)++] = dim;
}

static int multiply(const einsum *einsum, int i, int j, operand *result)
{
  const operand *left = &einsum->operands[i], *right = &einsum->operands[j];
  uint64_t both = left->set & right->set, later = needed(einsum, i, j), batch = both & later, sum = both & ~later;
  int da[AMP_MAX_DIM], db[AMP_MAX_DIM], na = 0, nb = 0, count = 0;
  int64_t size[2 * AMP_MAX_DIM], m, inner, cols, batches;
  batches = pick(left, batch, da, &na);
  m = pick(left, left->set & ~both, da, &na);
  int free_a = na;
  inner = pick(left, sum, da, &na);
  pick_as(right, batch, left, db, &nb);
  pick_as(right, sum, left, db, &nb);
  cols = pick(right, right->set & ~both, db, &nb);
  result->set = (left->set | right->set) & ~sum;
  if (__builtin_popcountll(result->set) > AMP_MAX_DIM)
    return amp__fail(AMP_E_SHAPE,
                     "the product of operands of shapes %s and %s would have %d dimensions; at most %d are possible",
                     SHAPE_OF(left->tensor), SHAPE_OF(right->tensor), __builtin_popcountll(result->set), AMP_MAX_DIM);
  for (int dim = 0; dim < free_a; dim++) {
    result->label[count] = left->label[da[dim]];
    size[count++] = left->tensor->size[da[dim]];
  }
  for (int dim = 0; dim < nb; dim++)
    if (!(both >> right->label[db[dim]] & 1)) {
      result->label[count] = right->label[db[dim]];
      size[count++] = right->tensor->size[db[dim]];
    }
  amp_tensor *input = permuted(left->tensor, da, na), *y = permuted(right->tensor, db, nb), *p;
  if (sum == 0 && (left->set & ~both) == 0 && (right->set & ~both) == 0) p = OP2(mul, input, y);
  else {
    int64_t sx[3] = { batches, m, inner }, sy[3] = { batches, inner, cols };
    bool one = batch == 0; /* matrices: no batch of one */
    p = OP2(matmul, amp__op_view(input, one ? 2 : 3, sx + one), amp__op_view(y, one ? 2 : 3, sy + one));
  }
  result->tensor = amp__op_view(p, count, size);
  return result->tensor ? 0 : amp__err();
}

/* The pair whose product costs least; of equals the first. */
static void cheapest(const einsum *einsum, int *bi, int *bj)
{
  double best = -1;
  for (int i = 0; i < einsum->count; i++)
    for (int j = i + 1; j < einsum->count; j++) {
      double cost = extent(einsum, einsum->operands[i].set | einsum->operands[j].set);
      if (best >= 0 && cost >= best) continue;
      best = cost;
      *bi = i;
      *bj = j;
    }
}

int amp__comp_einsum(amp_call *call)
{
  einsum whole = { .count = call->nin };
  int8_t out[AMP_MAX_DIM];
  int64_t nsubscript = AMP_ARGS(call, einsum)->subscripts.n;
  int nout, status;
  if (whole.count == 0 || whole.count > AMP_MAX_DIM)
    return amp__fail(AMP_E_ARGUMENT, "%d operands are given, 1..%d are possible", whole.count, AMP_MAX_DIM);
  if (nsubscript != whole.count)
    return amp__fail(AMP_E_ARGUMENT, "%lld subscripts for %d operands", nsubscript == AMP_NONE ? 0LL : LL(nsubscript),
                     whole.count);
  if ((status = read_operands(call, &whole)) < 0 || (nout = status = read_output(call, &whole, out)) < 0) return status;
  for (int i = 0; i < whole.count; i++)
    if ((status = diagonals(&whole.operands[i])) < 0 || (status = drop_ones(&whole, &whole.operands[i])) < 0)
      return status;
  for (int i = 0; i < whole.count; i++)
    if ((status = sum_labels(&whole.operands[i], ~needed(&whole, i, i))) < 0) return status;
  while (whole.count > 1) {
    operand r = { NULL, { 0 }, 0 };
    int i = 0, j = 1;
    cheapest(&whole, &i, &j);
    if ((status = multiply(&whole, i, j, &r)) < 0) return status;
    whole.operands[i] = r;
    whole.count--;
    for (int k = j; k < whole.count; k++) whole.operands[k] = whole.operands[k + 1];
    if ((status = sum_labels(&whole.operands[i], ~needed(&whole, i, i))) < 0) return status;
  }
  int dims[AMP_MAX_DIM];
  for (int dim = 0; dim < nout; dim++)
    for (int k = 0; k < whole.operands[0].tensor->ndim; k++)
      if (whole.operands[0].label[k] == out[dim]) dims[dim] = k;
  amp_tensor *y = permuted(whole.operands[0].tensor, dims, nout);
  return amp__result(call, 0, y == call->in[0] ? OP1(alias, y) : y);
}
