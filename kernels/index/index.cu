/*
** index.cu: reading and writing by index tensors: index_select, gather, index,
** embedding; index_copy, index_fill, index_put, scatter, put. Sums and products
** at indices: scatter.cu. (Of what is written to one place several times, any one
** stays; in deterministic mode the last one, as on the CPU.)
**
** An element is read once and written once, beside an index (8 bytes) that a whole row shares or that is its own;
** nothing lies in shared memory. Memory bounds it: its speed for rows, the number of its accesses for single
** elements.
*/
#include "index/index.cuh"

namespace {

template <class U> __global__ void __launch_bounds__(256) read_at(const amp_pick pick)
{
  AMP_FOR(i, pick.n)
  {
    int64_t x = 0, y;
    U v;
    if (amp_pick_at(pick, i, &x, &y)) v = ((const U *)pick.x)[x];
    else memset((void *)&v, 0, sizeof v);
    ((U *)pick.y)[y] = v;
  }
}

template <class U> __global__ void __launch_bounds__(256) write_at(const amp_pick pick)
{
  uint64_t twice[2] = { pick.fill, pick.fill };
  U fill;
  memcpy((void *)&fill, twice, sizeof fill);
  amp_let_next();
  amp_await();
  AMP_FOR(i, pick.n)
  {
    int64_t x, y;
    if (amp_pick_at(pick, i, &x, &y)) ((U *)pick.x)[x] = pick.y ? ((const U *)pick.y)[y] : fill;
  }
}

/* v: n sorted places; the last of equal ones is written */
template <class U>
__global__ void __launch_bounds__(256) write_sorted(const amp_pick pick, const amp_pair *v, int64_t n, int64_t inner)
{
  AMP_FOR(e, n * inner)
  {
    int64_t k = e / inner, j = e - k * inner;
    uint64_t key = v[k].key;
    if (key == ~(uint64_t)0 || (k + 1 < n && v[k + 1].key == key)) continue;
    ((U *)pick.x)[(int64_t)key + (inner > 1 ? j * pick.xs[pick.nd - 1] : 0)]
        = ((const U *)pick.y)[amp_pick_plain_at(pick, (int64_t)v[k].at * inner + j)];
  }
}

template <class U> static int move_as(const amp_pick &pick, bool write)
{
  amp_places s;
  if (write && pick.y && amp__cuda_deterministic) {
    if (amp_pick_sort(pick, &s) < 0) return AMP_E_MEMORY;
    AMP_LAUNCH((write_sorted<U>), amp_grid(pick.n, 256, 32), 256, 0, pick, s.v, s.n, s.inner);
    amp__free(s.room);
    return 0;
  }
  if (write) AMP_LAUNCH_NEXT(pick.n <= 8192, (write_at<U>), amp_grid(pick.n, 256, 32), 256, 0, pick);
  else AMP_LAUNCH((read_at<U>), amp_grid(pick.n, 256, 32), 256, 0, pick);
  return 0;
}

/* A vector of indices for dimension dim: the walk is over `like` */
static int select(amp_call *c, amp_tensor *x, amp_tensor *like, int dim, amp_tensor *index, double fill, bool write)
{
  amp_pick pick;
  int64_t size[AMP_MAX_DIM];
  amp_tensor *ix = amp__cuda_dense(index, index->dtype);
  if (ix == NULL) return AMP_E_MEMORY;
  for (int d = 0; d < x->ndim; d++) size[d] = d == dim ? ix->numel : x->size[d];
  amp_pick_begin(&pick, c, x, x->ndim, size);
  if (like) amp_pick_plain(&pick, like);
  else amp_pick_fill(&pick, x->dtype, fill);
  amp_pick_strides(&pick, x, dim);
  amp_pick_index(&pick, ix, x->ndim ? x->size[dim] : 1, x->ndim ? x->stride[dim] : 0)[dim] = 1;
  int rc = amp_pick_move(&pick, amp__dtype_size[x->dtype], write);
  amp__free(ix);
  return rc;
}

/* index of x's number of dimensions: gather reads, scatter writes (y NULL: a number) */
static int each(amp_call *c, amp_tensor *x, amp_tensor *y, int dim, amp_tensor *index, double fill, bool write)
{
  amp_pick pick;
  amp_tensor *ix = amp__cuda_dense(index, index->dtype);
  if (ix == NULL) return AMP_E_MEMORY;
  amp_pick_begin(&pick, c, x, ix->ndim, ix->size);
  if (y) amp_pick_plain(&pick, y);
  else amp_pick_fill(&pick, x->dtype, fill);
  amp_pick_strides(&pick, x, dim);
  int64_t *s = amp_pick_index(&pick, ix, x->ndim ? x->size[dim] : 1, x->ndim ? x->stride[dim] : 0);
  for (int d = 0; d < ix->ndim; d++) s[d] = ix->stride[d];
  int rc = amp_pick_move(&pick, amp__dtype_size[x->dtype], write);
  amp__free(ix);
  return rc;
}

/* out, or a tensor of x's dtype for it */
static amp_tensor *receiver(amp_tensor *out, int dtype)
{
  return out->dtype == dtype ? out : amp__cuda_make(dtype, out->ndim, out->size);
}
static int received(amp_tensor *out, amp_tensor *t, int rc)
{
  if (t == out) return rc;
  if (rc == 0) rc = amp__cuda_copy_to(out, t);
  amp__free(t);
  return rc;
}

static int start(amp_call *c) { return c->out[0] == c->in[0] ? 0 : amp__cuda_copy_to(c->out[0], c->in[0]); }

/* -- Several dimensions ---------------------------------------------------------------- */

/* The walk of index (first 1) and index_put (first 2) on x, over the dimensions dims; y: of the result's shape, or
** broadcast to it. own: counted copies */
static int several(amp_pick *pick, amp_call *c, const int64_t *dims, int first, amp_tensor *x, amp_tensor *y,
                   amp_tensor **own)
{
  int n = c->nin - first, nb = 0, nkept = 0, where = 0, nd = 0;
  int64_t b[AMP_MAX_DIM], size[AMP_MAX_DIM], xs[AMP_MAX_DIM];
  int kept[AMP_MAX_DIM];
  for (int i = 0; i < n; i++) {
    amp_tensor *t = c->in[first + i];
    if ((own[i] = amp__cuda_dense(t, t->dtype)) == NULL) return AMP_E_MEMORY;
    if (t->ndim > nb) nb = t->ndim;
  }
  for (int d = 0; d < nb; d++) {
    b[d] = 1;
    for (int i = 0; i < n; i++) {
      int k = d - (nb - own[i]->ndim);
      if (k >= 0 && own[i]->size[k] != 1) b[d] = own[i]->size[k];
    }
  }
  bool adjacent = dims[n - 1] - dims[0] == n - 1;
  for (int d = 0; d < x->ndim; d++) {
    bool indexed = false;
    for (int i = 0; i < n; i++) indexed |= dims[i] == d;
    if (indexed) continue;
    if (adjacent && d < dims[0]) where++;
    kept[nkept++] = d;
  }
  for (int d = 0; d < where; d++) {
    size[nd] = x->size[kept[d]];
    xs[nd++] = x->stride[kept[d]];
  }
  for (int d = 0; d < nb; d++) {
    size[nd] = b[d];
    xs[nd++] = 0;
  }
  for (int d = where; d < nkept; d++) {
    size[nd] = x->size[kept[d]];
    xs[nd++] = x->stride[kept[d]];
  }
  amp_pick_begin(pick, c, x, nd, size);
  for (int d = 0; d < nd; d++) pick->xs[d] = xs[d];
  pick->y = (char *)amp__data(y);
  pick->dtype = y->dtype;
  for (int d = 0; d < nd; d++) {
    int k = d - (nd - y->ndim);
    pick->ys[d] = k < 0 || y->size[k] == 1 ? 0 : y->stride[k];
  }
  for (int i = 0; i < n; i++) {
    int dim = (int)dims[i];
    int64_t *s = amp_pick_index(pick, own[i], x->size[dim], x->stride[dim]);
    for (int d = 0; d < nb; d++) {
      int k = d - (nb - own[i]->ndim);
      s[where + d] = k < 0 || own[i]->size[k] == 1 ? 0 : own[i]->stride[k];
    }
  }
  return 0;
}

} // namespace

int amp_pick_move(amp_pick *pick, int es, bool write)
{
  if (pick->n == 0) return 0;
  switch (amp_pick_end(pick, es, true)) {
  case 1: return move_as<uint8_t>(*pick, write);
  case 2: return move_as<uint16_t>(*pick, write);
  case 4: return move_as<uint32_t>(*pick, write);
  case 8: return move_as<uint64_t>(*pick, write);
  default: return move_as<uint4>(*pick, write);
  }
}

extern "C" {

/* -- Reading ------------------------------------------------------------------------------ */

int amp__cuda_index_select(amp_call *c)
{
  amp_tensor *t = c->in[0], *o = receiver(c->out[0], t->dtype);
  return o ? received(c->out[0], o, select(c, t, o, (int)AMP_ARGS(c, index_select)->dim, c->in[1], 0, false))
           : AMP_E_MEMORY;
}

int amp__cuda_gather(amp_call *c)
{
  amp_tensor *t = c->in[0], *o = receiver(c->out[0], t->dtype);
  return o ? received(c->out[0], o, each(c, t, o, (int)AMP_ARGS(c, gather)->dim, c->in[1], 0, false)) : AMP_E_MEMORY;
}

int amp__cuda_index(amp_call *c)
{
  amp_tensor *t = c->in[0], *o = receiver(c->out[0], t->dtype), *own[AMP_MAX_DIM] = { NULL };
  amp_pick pick;
  if (o == NULL) return AMP_E_MEMORY;
  int rc = several(&pick, c, AMP_ARGS(c, index)->dims.at, 1, t, o, own);
  if (rc == 0) rc = amp_pick_move(&pick, amp__dtype_size[t->dtype], false);
  for (int i = 0; i < AMP_MAX_DIM; i++) amp__free(own[i]);
  return received(c->out[0], o, rc);
}

int amp__cuda_embedding(amp_call *c)
{
  amp_tensor *w = c->in[1], *out = receiver(c->out[0], w->dtype), *ix = amp__cuda_dense(c->in[0], c->in[0]->dtype);
  int rc = out && ix ? 0 : AMP_E_MEMORY;
  if (rc == 0) {
    amp_pick pick;
    amp_pick_begin(&pick, c, w, out->ndim, out->size);
    amp_pick_plain(&pick, out);
    pick.xs[ix->ndim] = w->stride[1];
    int64_t *s = amp_pick_index(&pick, ix, w->size[0], w->stride[0]);
    for (int d = 0; d < ix->ndim; d++) s[d] = ix->stride[d];
    rc = amp_pick_move(&pick, amp__dtype_size[w->dtype], false);
  }
  amp__free(ix);
  return out ? received(c->out[0], out, rc) : rc;
}

/* -- Writing ------------------------------------------------------------------------------- */

int amp__cuda_index_copy(amp_call *c)
{
  amp_tensor *o = c->out[0], *src = c->in[2];
  int rc = start(c);
  if (rc < 0) return rc;
  if (src->dtype == o->dtype) amp__retain(src);
  else if ((src = amp__cuda_dense(src, o->dtype)) == NULL) return AMP_E_MEMORY;
  rc = select(c, o, src, (int)AMP_ARGS(c, index_copy)->dim, c->in[1], 0, true);
  amp__free(src);
  return rc;
}

int amp__cuda_index_fill(amp_call *c)
{
  const args_index_fill *args = AMP_ARGS(c, index_fill);
  int rc = start(c);
  return rc < 0 ? rc : select(c, c->out[0], NULL, (int)args->dim, c->in[1], args->value, true);
}

int amp__cuda_scatter(amp_call *c)
{
  const args_scatter *args = AMP_ARGS(c, scatter);
  amp_tensor *o = c->out[0], *src = c->in[2];
  bool number = src->flags & AMP_T_NUMBER;
  int rc = start(c);
  if (rc < 0) return rc;
  if (number) return each(c, o, NULL, (int)args->dim, c->in[1], amp__value_get(amp__data(src), src->dtype), true);
  if (src->dtype == o->dtype) amp__retain(src);
  else if ((src = amp__cuda_dense(src, o->dtype)) == NULL) return AMP_E_MEMORY;
  rc = each(c, o, src, (int)args->dim, c->in[1], 0, true);
  amp__free(src);
  return rc;
}

int amp__cuda_index_put(amp_call *c)
{
  amp_tensor *out = c->out[0], *v = c->in[1], *own[AMP_MAX_DIM] = { NULL };
  bool sum = AMP_ARGS(c, index_put)->accumulate != 0;
  amp_wide w = { out, out };
  amp_pick pick;
  int rc = sum ? amp_wide_begin(&w, out, c->in[0]) : start(c);
  if (rc == 0 && !sum && v->dtype != out->dtype) {
    if ((v = amp__cuda_dense(v, out->dtype)) == NULL) rc = AMP_E_MEMORY;
  } else amp__retain(v);
  if (rc == 0) rc = several(&pick, c, AMP_ARGS(c, index_put)->dims.at, 2, w.t, v, own);
  if (rc == 0)
    rc = sum ? amp_pick_combine(&pick, w.t->dtype, AMP_PICK_ADD, 1)
             : amp_pick_move(&pick, amp__dtype_size[out->dtype], true);
  if (sum) rc = amp_wide_end(&w, rc);
  for (int i = 0; i < AMP_MAX_DIM; i++) amp__free(own[i]);
  amp__free(v);
  return rc;
}

/* Places in C order: x is a vector for it */
int amp__cuda_put(amp_call *c)
{
  amp_tensor *out = c->out[0], *ix = NULL, *src = NULL, *x = NULL;
  bool sum = AMP_ARGS(c, put)->accumulate != 0;
  amp_wide w = { out, out };
  amp_pick pick;
  int rc = sum ? amp_wide_begin(&w, out, c->in[0]) : start(c);
  if (rc == 0) {
    ix = amp__cuda_dense(c->in[1], c->in[1]->dtype);
    src = amp__cuda_dense(c->in[2], sum ? c->in[2]->dtype : out->dtype);
    x = amp__cuda_dense(w.t, w.t->dtype);
    if (!ix || !src || !x) rc = AMP_E_MEMORY;
  }
  if (rc == 0) {
    amp_pick_begin(&pick, c, x, 1, &ix->numel);
    pick.y = (char *)amp__data(src);
    pick.dtype = src->dtype;
    pick.ys[0] = 1;
    amp_pick_index(&pick, ix, x->numel, 1)[0] = 1;
    rc = sum ? amp_pick_combine(&pick, x->dtype, AMP_PICK_ADD, 1)
             : amp_pick_move(&pick, amp__dtype_size[out->dtype], true);
    if (rc == 0 && x != w.t) rc = amp__cuda_copy_to(w.t, x);
  }
  if (sum) rc = amp_wide_end(&w, rc);
  amp__free(x);
  amp__free(src);
  amp__free(ix);
  return rc;
}
}
