/*
** index.cuh: the engine under reading and writing by index tensors.
**
** A walk goes over the elements of the plain operand y (of the result's shape, or
** the source's). x is the operand that indices choose places in: its offset is a
** sum of strides, and of up to eight indices times the strides of theirs. gather,
** index_select, embedding and x[{i, j}] are all of this form, so is what writes
** and adds. Dimensions are merged, and reads and writes go in words of up to 16
** bytes where all operands lie so.
**
** A wrong index is noted; its element is not written (read: 0).
*/
#ifndef AMP_INDEX_CUH
#define AMP_INDEX_CUH
#include "order/sort.cuh"

typedef struct amp_pick {
  char *x;
  char *y;                                   /* NULL: fill */
  uint64_t fill;                             /* eight bytes of the value written everywhere */
  int32_t nd, nidx, small, id, dtype, alone; /* dtype: y's */
  int64_t n, size[AMP_MAX_DIM], xs[AMP_MAX_DIM], ys[AMP_MAX_DIM];
  struct {
    const char *p;
    int32_t dtype;
    int64_t size, step, stride[AMP_MAX_DIM];
  } idx[AMP_MAX_DIM];
  amp_trouble *trouble;
} amp_pick;

/* Offsets of element i in x and y; false: an index is out of range */
__device__ __forceinline__ bool amp_pick_at(const amp_pick &pick, int64_t i, int64_t *x, int64_t *y)
{
  int64_t at[AMP_MAX_DIM] = { 0 }, xo = 0, yo = 0;
#pragma unroll
  for (int d = AMP_MAX_DIM - 1; d >= 0; d--) {
    if (d >= pick.nd) continue;
    int64_t q = d == 0 ? 0 : pick.small ? (int64_t)((uint32_t)i / (uint32_t)pick.size[d]) : i / pick.size[d];
    at[d] = i - q * pick.size[d];
    i = q;
    xo += at[d] * pick.xs[d];
    yo += at[d] * pick.ys[d];
  }
  *y = yo;
  for (int k = 0; k < pick.nidx; k++) {
    int64_t o = 0;
#pragma unroll
    for (int d = 0; d < AMP_MAX_DIM; d++)
      if (d < pick.nd) o += at[d] * pick.idx[k].stride[d];
    int64_t v = amp_load<int64_t>(pick.idx[k].p, pick.idx[k].dtype, o),
            j = amp_index(v, pick.idx[k].size, pick.trouble, pick.id, o);
    if (j < 0) return false;
    xo += j * pick.idx[k].step;
  }
  *x = xo;
  return true;
}

/* -- Plans --------------------------------------------------------------------- */

/* A walk over y's elements. x's strides at the places of y's dimensions come from the caller (0 where indexed). */
static inline void amp_pick_begin(amp_pick *pick, amp_call *c, amp_tensor *x, int nd, const int64_t *size)
{
  memset((void *)pick, 0, sizeof *pick);
  pick->x = (char *)amp__data(x);
  pick->nd = nd;
  pick->n = 1;
  pick->id = c->id;
  pick->trouble = amp_trouble_cell();
  for (int d = 0; d < nd; d++) {
    pick->size[d] = size[d];
    pick->n *= size[d];
  }
}
static inline void amp_pick_plain(amp_pick *pick, const amp_tensor *y)
{
  pick->y = (char *)amp__data(y);
  pick->dtype = y->dtype;
  for (int d = 0; d < pick->nd; d++) pick->ys[d] = y->stride[d];
}
/* A dense index tensor for a dimension of x of `size` and stride `step`; its strides are set by the caller */
static inline int64_t *amp_pick_index(amp_pick *pick, const amp_tensor *index, int64_t size, int64_t step)
{
  int k = pick->nidx++;
  pick->idx[k].p = (const char *)amp__data(index);
  pick->idx[k].dtype = index->dtype;
  pick->idx[k].size = size;
  pick->idx[k].step = step;
  return pick->idx[k].stride;
}

/* Merge dimensions. es: size of an element; words: elements may be joined. Gives the size of a word. */
static inline int amp_pick_end(amp_pick *pick, int es, bool words)
{
  int m = 0; /* dimensions kept so far */
  for (int d = 0; d < pick->nd; d++) {
    if (pick->size[d] == 1) continue;
    bool joins
        = m > 0 && pick->xs[m - 1] == pick->xs[d] * pick->size[d] && pick->ys[m - 1] == pick->ys[d] * pick->size[d];
    for (int k = 0; k < pick->nidx && joins; k++)
      joins = pick->idx[k].stride[m - 1] == pick->idx[k].stride[d] * pick->size[d];
    int64_t size = pick->size[d];
    int to = joins ? m - 1 : m++;
    pick->size[to] = joins ? pick->size[to] * size : size;
    pick->xs[to] = pick->xs[d];
    pick->ys[to] = pick->ys[d];
    for (int k = 0; k < pick->nidx; k++) pick->idx[k].stride[to] = pick->idx[k].stride[d];
  }
  pick->nd = m;
  int word = es;
  if (words && m > 0 && pick->xs[m - 1] == 1 && (pick->y == NULL || pick->ys[m - 1] == 1)) {
    uint64_t all = (uint64_t)pick->size[m - 1] | (uintptr_t)pick->x / (unsigned)es | (uintptr_t)pick->y / (unsigned)es;
    for (int d = 0; d < m - 1; d++) all |= (uint64_t)pick->xs[d] | (uint64_t)pick->ys[d];
    bool ok = true;
    for (int k = 0; k < pick->nidx; k++) {
      all |= (uint64_t)pick->idx[k].step;
      ok = ok && pick->idx[k].stride[m - 1] == 0;
    }
    while (ok && word < 16 && all % (unsigned)(2 * word / es) == 0) word *= 2;
    int64_t joined = word / es;
    if (joined > 1) {
      pick->n /= joined;
      pick->size[m - 1] /= joined;
      for (int d = 0; d < m - 1; d++) {
        pick->xs[d] /= joined;
        pick->ys[d] /= joined;
      }
      for (int k = 0; k < pick->nidx; k++) pick->idx[k].step /= joined;
    }
  }
  pick->small = pick->n < ((int64_t)1 << 31);
  return word;
}

/* -- In order: for sums of floats in deterministic mode, and what is written twice ---- */

/* Where runs of `inner` elements of the walk go; wrong indices come last */
static __global__ void amp_pick_list(const amp_pick pick, int64_t inner, amp_pair *v)
{
  AMP_FOR(i, pick.n / inner)
  {
    int64_t x, y;
    amp_pair place = { ~(uint64_t)0, (uint64_t)i };
    if (amp_pick_at(pick, i * inner, &x, &y)) place.key = (uint64_t)x;
    v[i] = place;
  }
}

__device__ __forceinline__ int64_t amp_pick_plain_at(const amp_pick &pick, int64_t i)
{
  int64_t y = 0;
  for (int d = pick.nd - 1; d >= 0; d--) {
    int64_t q = d == 0 ? 0 : i / pick.size[d];
    y += (i - q * pick.size[d]) * pick.ys[d];
    i = q;
  }
  return y;
}

/* The places of a walk that amp_pick_end has seen, sorted; equal ones in the order of the walk */
typedef struct amp_places {
  amp_tensor *room;
  const amp_pair *v;
  int64_t n, inner;
} amp_places; /* runs of `inner` elements; room: counted */
static inline int amp_pick_sort(const amp_pick &pick, amp_places *s)
{
  s->inner = pick.nd > 0 && pick.xs[pick.nd - 1] != 0 ? pick.size[pick.nd - 1] : 1;
  for (int k = 0; k < pick.nidx; k++)
    if (pick.nd > 0 && pick.idx[k].stride[pick.nd - 1] != 0) s->inner = 1;
  s->n = pick.n / s->inner;
  if ((s->room = amp__cuda_scratch((size_t)s->n * 2 * sizeof(amp_pair))) == NULL) return AMP_E_MEMORY;
  amp_pair *v = AMP_DATA(amp_pair, s->room);
  AMP_LAUNCH(amp_pick_list, amp_grid(s->n, 256), 256, 0, pick, s->inner, v);
  s->v = (const amp_pair *)amp_sort_items(true, v, v + s->n, 1, s->n);
  return 0;
}

/* x's strides for a walk whose dimension dim is indexed */
static inline void amp_pick_strides(amp_pick *pick, const amp_tensor *x, int dim)
{
  for (int d = 0; d < pick->nd; d++) pick->xs[d] = d == dim ? 0 : x->stride[d];
}

/* index.cu: the walk as reads (y = x) or writes (x = y) of elements of es bytes */
int amp_pick_move(amp_pick *p, int es, bool write);
/* scatter.cu: x, of dtype float32, float64 or int64, combined with y */
enum { AMP_PICK_ADD, AMP_PICK_MUL, AMP_PICK_MAX, AMP_PICK_MIN, AMP_PICK_COUNT, AMP_PICK_WAYS };
int amp_pick_combine(amp_pick *p, int dtype, int op, double alpha);
/* the value that a walk without y writes, or combines with */
static inline void amp_pick_fill(amp_pick *pick, int dtype, double v)
{
  uint64_t bits = 0;
  amp__value_put(&bits, dtype, v);
  switch (amp__dtype_size[dtype]) {
  case 1: bits |= bits << 8;  /* fall through */
  case 2: bits |= bits << 16; /* fall through */
  case 4: bits |= bits << 32;
  }
  pick->fill = bits;
  pick->dtype = dtype;
}

/* Where sums into `out` are made: out itself, or a wider copy that is written back at the end. Begins with in's
** values. */
typedef struct amp_wide {
  amp_tensor *t, *out;
} amp_wide;
static inline int amp_wide_begin(amp_wide *a, amp_tensor *out, const amp_tensor *in)
{
  int dtype = out->dtype, wide = dtype == AMP_FLOAT64 ? AMP_FLOAT64 : amp__is_float(dtype) ? AMP_FLOAT32 : AMP_INT64;
  a->out = a->t = out;
  if (dtype != wide && (a->t = amp__cuda_make(wide, out->ndim, out->size)) == NULL) return AMP_E_MEMORY;
  return a->t == in ? 0 : amp__cuda_copy_to(a->t, in);
}
static inline int amp_wide_end(amp_wide *a, int rc)
{
  if (a->t != a->out && a->t) {
    if (rc == 0) rc = amp__cuda_copy_to(a->out, a->t);
    amp__free(a->t);
  }
  return rc;
}

#endif
