/*
** cpu_gather.c: element by element along a dimension: gather, scatter,
** scatter_add, scatter_reduce.
**
** Index and plain operand are walked row by row in chunks, and each index is
** checked as it is used. Where a receiver existed before the call all of them
** are checked before the first write; a fresh result is simply dropped. Sums,
** products and extremes of narrow dtypes run in float32 or int64
** (amp_accumulator).
*/
#include "cpu_index.h"
#include "cpu_math.h"

/* -- Chunks -------------------------------------------------------------------------------- */

/* n indices v of a dimension of `size`; x is the operand they index (sd elements a step, and sx from one element of the
** chunk to the next), y the plain one. True: an index is out of range (those before it were used). */
typedef bool (*chunk_fn)(int64_t n, const int64_t *v, uint64_t size, void *x, int64_t sd, int64_t sx, void *y, int64_t sy);

/* The test is a branch that is never taken but by indices from the end */
#define ALONG(T, X, Y, BODY) \
  for (int64_t j = 0; j < n; j++) { \
    uint64_t i = (uint64_t)v[j] - 1; \
    if (amp_unlikely(i >= size) && (v[j] >= 0 || (i += size + 1) >= size)) return true; \
    T *p = X, *q = Y; \
    BODY; \
  }
#define CHUNK(name, T, BODY) \
static bool name(int64_t n, const int64_t *v, uint64_t size, void *x_, int64_t sd, int64_t sx, void *y_, int64_t sy) \
{ \
  T *x = x_, *y = y_; \
  if (sx == 0 && sd == 1) { \
    if (sy == 1) ALONG(T, x + i, y + j, BODY) \
    else ALONG(T, x + i, y + j * sy, BODY) \
  } else if (sx == 1 && sy == 1) ALONG(T, x + (j + (int64_t)i * sd), y + j, BODY) \
  else ALONG(T, x + (j * sx + (int64_t)i * sd), y + j * sy, BODY) \
  return false; \
}
CHUNK(read_1, uint8_t, *q = *p)
CHUNK(read_2, uint16_t, *q = *p)
CHUNK(read_4, uint32_t, *q = *p)
CHUNK(read_8, uint64_t, *q = *p)
CHUNK(write_1, uint8_t, *p = *q)
CHUNK(write_2, uint16_t, *p = *q)
CHUNK(write_4, uint32_t, *p = *q)
CHUNK(write_8, uint64_t, *p = *q)
CHUNK(add_f, float, *p += *q)
CHUNK(add_d, double, *p += *q)
CHUNK(add_i, uint64_t, *p += *q)
CHUNK(mul_f, float, *p *= *q)
CHUNK(mul_d, double, *p *= *q)
CHUNK(mul_i, uint64_t, *p *= *q)
#define PICK(OP) *p = ((*q OP *p) | (*q != *q)) ? *q : *p
CHUNK(max_f, float, PICK(>))
CHUNK(max_d, double, PICK(>))
CHUNK(max_i, int64_t, PICK(>))
CHUNK(min_f, float, PICK(<))
CHUNK(min_d, double, PICK(<))
CHUNK(min_i, int64_t, PICK(<))

static AMP_CLONES_WIDE bool outside(int64_t n, const int64_t *v, int64_t size)
{
  int64_t bad = 0;
  for (int64_t j = 0; j < n; j++) bad |= (v[j] == 0) | (v[j] > size) | (v[j] < -size);
  return bad != 0;
}

/* -- The walk ------------------------------------------------------------------------------ */

typedef struct walk {
  const amp_tensor *ix, *x, *y;
  int dim, es;
  chunk_fn f;          /* NULL: only check the indices */
  int64_t len, per, bad; /* chunks are units; `per` in a row */
} walk;

static void walk_part(int64_t lo, int64_t hi, void *ctx)
{
  walk *w = ctx;
  const amp_tensor *ix = w->ix, *x = w->x, *y = w->y;
  const int last = ix->ndim - 1, dim = w->dim;
  const int64_t sd = x->ndim ? x->stride[dim] : 0, size = x->ndim ? x->size[dim] : 1;
  const int64_t sx = last < 0 || last == dim ? 0 : x->stride[last], sy = last < 0 ? 0 : y->stride[last], si = last < 0 ? 1 : ix->stride[last];
  const bool direct = ix->dtype == AMP_INT64 && si == 1;
  int64_t at[AMP_MAX_DIM] = { 0 }, xo = 0, yo = 0, io = 0, rest = lo / w->per, chunk = lo % w->per, buf[AMP_CHUNK];
  char *xp = amp__data(x), *yp = amp__data(y);
  const char *ip = amp__data(ix);
  const int is = amp__dtype_size[ix->dtype];
  for (int d = last - 1; d >= 0; d--) {
    at[d] = rest % ix->size[d];
    rest /= ix->size[d];
    if (d != dim) xo += at[d] * x->stride[d];
    yo += at[d] * y->stride[d];
    io += at[d] * ix->stride[d];
  }
  for (int64_t k = lo; k < hi; k++) {
    const int64_t j = chunk * AMP_CHUNK, n = w->len - j < AMP_CHUNK ? w->len - j : AMP_CHUNK;
    const int64_t *v = (const int64_t *)(ip + (io + j * si) * is);
    if (!direct) {
      amp__load(AMP_C_I64, buf, ix->dtype, v, si, n);
      v = buf;
    }
    const bool bad = w->f ? w->f(n, v, (uint64_t)size, xp + (xo + j * sx) * w->es, sd, sx, yp + (yo + j * sy) * w->es, sy) : outside(n, v, size);
    if (amp_unlikely(bad)) { __atomic_store_n(&w->bad, 1, __ATOMIC_RELAXED); return; }
    if (++chunk < w->per) continue;
    chunk = 0;
    for (int d = last - 1; d >= 0; d--) {
      if (d != dim) xo += x->stride[d];
      yo += y->stride[d]; io += ix->stride[d];
      if (++at[d] < ix->size[d]) break;
      if (d != dim) xo -= ix->size[d] * x->stride[d];
      yo -= ix->size[d] * y->stride[d]; io -= ix->size[d] * ix->stride[d];
      at[d] = 0;
    }
  }
}

/* f on all of the index tensor; x and y are of one dtype. threads > 1: only where no element of x is written twice */
static int walk_all(chunk_fn f, amp_tensor *ix, int dim, const amp_tensor *x, const amp_tensor *y, int threads)
{
  amp_tensor *hold;
  walk w = { .ix = ix, .x = x, .y = y, .dim = dim, .es = amp__dtype_size[x->dtype], .f = f };
  if (ix->numel == 0) return 0;
  w.len = ix->ndim ? ix->size[ix->ndim - 1] : 1;
  w.per = (w.len + AMP_CHUNK - 1) / AMP_CHUNK;
  amp__parallel(threads, ix->numel / w.len * w.per, 1, walk_part, &w);
  if (amp_likely(!w.bad)) return 0;
  amp__indices(ix, dim, x->ndim ? x->size[dim] : 1, &hold); /* says which one */
  return amp__S->err.code;
}

int amp__scatter_sum(amp_tensor *ix, int dim, const amp_tensor *x, const amp_tensor *y)
{
  const int cls = amp__dtype_class[x->dtype];
  return walk_all(cls == AMP_C_F32 ? add_f : cls == AMP_C_F64 ? add_d : add_i, ix, dim, x, y, 1);
}

static chunk_fn by_size(int es, bool write)
{
  static const chunk_fn f[2][4] = { { read_1, read_2, read_4, read_8 }, { write_1, write_2, write_4, write_8 } };
  return f[write][es == 1 ? 0 : es == 2 ? 1 : es == 4 ? 2 : 3];
}

/* Results that were there before the call are not touched if an index is wrong */
static int check_first(const amp_call *c, amp_tensor *ix, int dim, const amp_tensor *x)
{
  return c->flags ? walk_all(NULL, ix, dim, x, ix, 1) : 0;
}

int amp__gather(amp_tensor *ix, int dim, const amp_tensor *x, const amp_tensor *out)
{
  return walk_all(by_size(amp__dtype_size[x->dtype], false), ix, dim, x, out, amp__threads(ix->numel * 4));
}

int amp__cpu_gather(amp_call *c)
{
  int dim = (int)c->a[0].i, rc = check_first(c, c->in[1], dim, c->in[0]);
  amp_tensor *out = c->out[0], *t = out;
  if (rc < 0) return rc;
  if (out->dtype != c->in[0]->dtype && (t = amp__tensor_make(c->in[0]->dtype, AMP_CPU, 0, out->ndim, out->size)) == NULL) return amp__S->err.code;
  rc = amp__gather(c->in[1], dim, c->in[0], t);
  if (t != out) {
    if (rc == 0) rc = amp__copy_to(out, t);
    amp__free(t);
  }
  return rc;
}

/* -- Scatter -------------------------------------------------------------------------------- */

/* src in dtype; a number as a tensor of the index's shape that repeats it. NULL: error */
static amp_tensor *plain(amp_tensor *src, const amp_tensor *ix, int dtype)
{
  static const int64_t none[AMP_MAX_DIM];
  if (!(src->flags & AMP_T_NUMBER)) {
    if (src->dtype != dtype) return amp__dense(src, dtype);
    amp__retain(src);
    return src;
  }
  amp_tensor *one = amp__tensor_make(dtype, AMP_CPU, 0, 0, NULL), *t = NULL;
  if (one && amp__copy_to(one, src) == 0) t = amp__tensor_view(one, ix->ndim, ix->size, none, one->offset);
  amp__free(one);
  return t;
}

enum { WRITE, SUM, PROD, MEAN, AMAX, AMIN };
static const chunk_fn combine[][3] = { [SUM] = { add_f, add_d, add_i }, [PROD] = { mul_f, mul_d, mul_i }, [MEAN] = { add_f, add_d, add_i },
                                       [AMAX] = { max_f, max_d, max_i }, [AMIN] = { min_f, min_d, min_i } };

/* v at every index of x */
static int write_number(amp_tensor *ix, int dim, amp_tensor *x, double v)
{
  amp_tensor *number = amp__number(v), *t = number ? plain(number, ix, x->dtype) : NULL;
  int rc = t ? walk_all(by_size(amp__dtype_size[x->dtype], true), ix, dim, x, t, 1) : amp__S->err.code;
  amp__free(t);
  amp__free(number);
  return rc;
}

/* What a reduction without the receiver's own values starts from: an extreme, from any of its values */
static int write_start(amp_tensor *ix, int dim, amp_tensor *x, const amp_tensor *src, int how)
{
  if (how == AMAX || how == AMIN) return walk_all(by_size(amp__dtype_size[x->dtype], true), ix, dim, x, src, 1);
  return write_number(ix, dim, x, how == PROD);
}

/* x / count where count is not 0; integers round down */
static int divide(amp_tensor *x, amp_tensor *ix, int dim, bool include)
{
  amp_tensor *count = amp__tensor_make(AMP_INT64, AMP_CPU, 0, x->ndim, x->size), *one = amp__number(1), *t = NULL, *dense = NULL;
  int rc = count && one ? amp__fill_value(count, include ? 1 : 0) : amp__S->err.code;
  if (rc == 0 && (t = plain(one, ix, AMP_INT64)) == NULL) rc = amp__S->err.code;
  if (rc == 0) rc = walk_all(add_i, ix, dim, count, t, 1);
  if (rc == 0 && (dense = amp__dense(x, x->dtype)) == NULL) rc = amp__S->err.code;
  if (rc == 0) {
    const int64_t *n = AMP_DATA(int64_t, count);
    float *f = amp__data(dense);
    double *d = amp__data(dense);
    int64_t *v = amp__data(dense);
    for (int64_t i = 0; i < x->numel; i++) {
      if (n[i] < 2) continue;
      if (x->dtype == AMP_FLOAT32) f[i] /= (float)n[i];
      else if (x->dtype == AMP_FLOAT64) d[i] /= (double)n[i];
      else v[i] = v[i] / n[i] - (v[i] % n[i] < 0);
    }
    if (dense != x) rc = amp__copy_to(x, dense);
  }
  amp__free(count);
  amp__free(one);
  amp__free(t);
  amp__free(dense);
  return rc;
}

static int scatter(amp_call *c, int how, bool include)
{
  amp_tensor *out = c->out[0], *src = NULL, *ix = c->in[1];
  int dim = (int)c->a[0].i, rc = check_first(c, ix, dim, out);
  if (rc < 0 || (rc = amp__check_cast(c->in[2], out->dtype)) < 0) return rc;
  if (out != c->in[0] && (rc = amp__copy_to(out, c->in[0])) < 0) return rc;
  if (ix->numel == 0) return 0;
  amp_accumulator acc = { .t = out, .out = out };
  if (how != WRITE) {
    acc.t = NULL;
    if ((rc = amp__accumulator(&acc, out)) < 0) goto out;
  }
  if ((src = plain(c->in[2], ix, acc.t->dtype)) == NULL) { rc = amp__S->err.code; goto out; }
  if (!include && (rc = write_start(ix, dim, acc.t, src, how)) < 0) goto out;
  rc = walk_all(how == WRITE ? by_size(amp__dtype_size[out->dtype], true) : combine[how][acc.cls], ix, dim, acc.t, src, 1);
  if (rc == 0 && how == MEAN) rc = divide(acc.t, ix, dim, include);
out:
  rc = amp__accumulated(&acc, rc);
  amp__free(src);
  return rc;
}
/* A mean, or a reduction without the receiver's values, takes memory between its writes: in place it works on a copy. */
static int scatter_safely(amp_call *c, int how, bool include)
{
  amp_tensor *out = c->out[0];
  if (out != c->in[0] || (include && how != MEAN)) return scatter(c, how, include);
  amp_tensor *fresh = amp__tensor_make(out->dtype, AMP_CPU, 0, out->ndim, out->size);
  if (fresh == NULL) return amp__S->err.code;
  amp_call inner = *c;
  inner.out[0] = fresh;
  int rc = scatter(&inner, how, include);
  if (rc == 0) rc = amp__copy_to(out, fresh);
  amp__free(fresh);
  return rc;
}
int amp__cpu_scatter(amp_call *c) { return scatter(c, WRITE, true); }
int amp__cpu_scatter_add(amp_call *c) { return scatter(c, SUM, true); }
int amp__cpu_scatter_reduce(amp_call *c) { return scatter_safely(c, SUM + (int)c->a[1].i, c->a[2].i != 0); }
