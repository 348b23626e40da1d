/*
** cpu_reduce_arg.c: reductions that answer where, and those along a line:
** max and min with a dimension, argmax, argmin, cumsum, cumprod, equal.
**
** Indices count from 1; the first among equals wins, NaN wins over all. Along
** rows the extreme of a chunk is found by vectors and searched for only when it
** beats the best so far; along columns best and index are kept side by side.
*/
#include "cpu_reduce.h"
#include "cpu_math.h"

/* -- Extremes with an index --------------------------------------------------------- */

typedef struct arg_loops {
  int64_t (*row)(int64_t n, const void *x, void *best);   /* index of a better one, or -1; best is updated */
  void (*cols)(int64_t n, const void *x, int64_t k, void *best, int64_t *index);
} arg_loops;

#define NAN_(v) ((v) != (v))
#define ARG(name, CLONES, T, BETTER) \
static CLONES int64_t name##_row(int64_t n, const void *x_, void *best_) \
{ \
  const T *x = x_; T best = *(T *)best_; int any = 0; \
  for (int64_t i = 0; i < n; i++) any |= BETTER(x[i], best); \
  if (!any) return -1; \
  int64_t at = -1; \
  for (int64_t i = 0; i < n; i++) if (BETTER(x[i], best)) { best = x[i]; at = i; if (NAN_(best)) break; } \
  *(T *)best_ = best; \
  return at; \
} \
static CLONES void name##_cols(int64_t n, const void *x_, int64_t k, void *best_, int64_t *index) \
{ \
  const T *x = x_; T *best = best_; \
  AMP_IVDEP for (int64_t j = 0; j < n; j++) { \
    const T v = x[j]; const int take = BETTER(v, best[j]); \
    best[j] = take ? v : best[j]; index[j] = take ? k : index[j]; \
  } \
} \
static const arg_loops name = { name##_row, name##_cols };
#define MORE(v, b) (((v) > (b)) | (NAN_(v) & !NAN_(b)))
#define LESS(v, b) (((v) < (b)) | (NAN_(v) & !NAN_(b)))
#define MOREI(v, b) ((v) > (b))
#define LESSI(v, b) ((v) < (b))
ARG(more_f, AMP_CLONES, float, MORE)
ARG(less_f, AMP_CLONES, float, LESS)
ARG(more_d, AMP_CLONES_WIDE, double, MORE)
ARG(less_d, AMP_CLONES_WIDE, double, LESS)
ARG(more_i, AMP_CLONES_WIDE, int64_t, MOREI)
ARG(less_i, AMP_CLONES_WIDE, int64_t, LESSI)

typedef struct { const amp_rplan *p; const arg_loops *l; int cls; amp_tensor *values; } searching;

/* One dimension is reduced, so the reduced index is the answer. p->out is the index tensor (int64). */
static void search_block(const searching *s, const amp_rblock *b, char *value_out)
{
  const amp_rplan *p = s->p;
  char buf[AMP_CHUNK * 8] __attribute__((aligned(64))), best[AMP_CHUNK * 8] __attribute__((aligned(64)));
  int64_t index[AMP_CHUNK], n = p->reduced;
  int cs = amp__class_size[s->cls];
  bool direct = p->dtype == amp__class_dtype[s->cls];
  if (p->columns) {
    amp__load(s->cls, best, p->dtype, b->in, p->kin[0], b->n);
    for (int j = 0; j < b->n; j++) index[j] = 1;
    for (int64_t k = 1; k < n; k++) {
      const char *q = b->in + k * p->rin[0] * p->es;
      if (direct && p->kin[0] == 1) s->l->cols(b->n, q, k + 1, best, index);
      else {
        amp__load(s->cls, buf, p->dtype, q, p->kin[0], b->n);
        s->l->cols(b->n, buf, k + 1, best, index);
      }
    }
  } else for (int j = 0; j < b->n; j++) {
    const char *base = b->in + j * p->kin[0] * p->es;
    char *v = best + j * cs;
    amp__load(s->cls, v, p->dtype, base, 1, 1);
    index[j] = 1;
    for (int64_t at = 0; at < n; at += AMP_CHUNK) {
      int64_t m = n - at < AMP_CHUNK ? n - at : AMP_CHUNK, found;
      const char *q = base + at * p->rin[0] * p->es;
      if (direct && p->rin[0] == 1) found = s->l->row(m, q, v);
      else {
        amp__load(s->cls, buf, p->dtype, q, p->rin[0], m);
        found = s->l->row(m, buf, v);
      }
      if (found >= 0) index[j] = at + found + 1;
    }
  }
  amp__move(8, b->out, p->kout[0], index, 1, b->n);
  if (value_out) amp__store(s->values->dtype, value_out, p->kout[0], s->cls, best, b->n);
}

static void search_part(int64_t lo, int64_t hi, void *ctx)
{
  const searching *s = ctx;
  for (int64_t i = lo; i < hi; i++) {
    amp_rblock b;
    amp__rblock(s->p, i, &b);
    /* values and indices are fresh and lie alike */
    search_block(s, &b, s->values ? (char *)amp__data(s->values) + b.kept * amp__dtype_size[s->values->dtype] : NULL);
  }
}

static int search(const amp_tensor *t, amp_tensor *index, amp_tensor *values, uint32_t mask, bool most)
{
  static const arg_loops *const loops[2][3] = { { &less_f, &less_d, &less_i }, { &more_f, &more_d, &more_i } };
  amp_rplan p;
  int cls = amp__dtype_class[t->dtype];
  amp__rplan_mask(&p, t, index, mask);
  if (p.outputs == 0) return 0;
  if (p.reduced == 0) return amp__fail(AMP_E_VALUE, "there is no extreme of 0 elements (shape %s)", amp__shape_str(t->ndim, t->size));
  searching s = { &p, loops[most][cls], cls, values };
  amp__parallel(amp__threads(t->numel * 2), p.blocks, 1, search_part, &s);
  return 0;
}

int amp__max_all(amp_call *c);
int amp__min_all(amp_call *c);

static int extreme(amp_call *c, bool most)
{
  if (c->a[0].i == AMP_NONE) {
    if (c->in[0]->numel == 0 && c->out[0]->numel > 0)
      return amp__fail(AMP_E_VALUE, "there is no extreme of 0 elements (shape %s)", amp__shape_str(c->in[0]->ndim, c->in[0]->size));
    return most ? amp__max_all(c) : amp__min_all(c);
  }
  amp_tensor *values = c->out[0], *index = c->out[1];
  if (memcmp(values->stride, index->stride, sizeof(int64_t) * index->ndim) == 0)
    return search(c->in[0], index, values, 1u << c->a[0].i, most);
  amp_tensor *v = amp__tensor_make(values->dtype, AMP_CPU, 0, values->ndim, values->size);
  int rc = v ? search(c->in[0], index, v, 1u << c->a[0].i, most) : amp__S->err.code;
  if (rc == 0) rc = amp__copy_to(values, v);
  amp__free(v);
  return rc;
}
int amp__cpu_max(amp_call *c) { return extreme(c, true); }
int amp__cpu_min(amp_call *c) { return extreme(c, false); }

static int arg(amp_call *c, bool most)
{
  amp_tensor *t = c->in[0];
  if (c->a[0].i != AMP_NONE) return search(t, c->out[0], NULL, 1u << c->a[0].i, most);
  /* over everything: a vector in C order */
  amp_tensor *flat = amp__dense(t, t->dtype);
  if (flat == NULL) return amp__S->err.code;
  int64_t one = 1;
  amp_tensor *v = amp__tensor_view(flat, 1, &t->numel, &one, flat->offset), *o = v ? amp__tensor_view(c->out[0], 0, NULL, NULL, c->out[0]->offset) : NULL;
  int rc = o ? search(v, o, NULL, 1, most) : amp__S->err.code;
  amp__free(o);
  amp__free(v);
  amp__free(flat);
  return rc;
}
int amp__cpu_argmax(amp_call *c) { return arg(c, true); }
int amp__cpu_argmin(amp_call *c) { return arg(c, false); }

/* -- Running sums ------------------------------------------------------------------------- */

typedef struct { const amp_rplan *p; int64_t out_step; bool product; } running;

static void running_part(int64_t lo, int64_t hi, void *ctx)
{
  const running *r = ctx;
  const amp_rplan *p = r->p;
  double sum[AMP_CHUNK], buf[AMP_CHUNK];
  int64_t *isum = (int64_t *)sum, *ibuf = (int64_t *)buf;
  bool whole = amp__dtype_class[p->odtype] == AMP_C_I64;
  int cls = whole ? AMP_C_I64 : AMP_C_F64;
  for (int64_t i = lo; i < hi; i++) {
    amp_rblock b;
    amp__rblock(p, i, &b);
    if (p->columns) {
      for (int j = 0; j < b.n; j++) {
        if (whole) isum[j] = r->product;
        else sum[j] = r->product;
      }
      for (int64_t k = 0; k < p->reduced; k++) {
        amp__load(cls, buf, p->dtype, b.in + k * p->rin[0] * p->es, p->kin[0], b.n);
        if (r->product) for (int j = 0; j < b.n; j++) {
          if (whole) isum[j] = (int64_t)((uint64_t)isum[j] * (uint64_t)ibuf[j]);
          else sum[j] *= buf[j];
        } else if (whole) for (int j = 0; j < b.n; j++) isum[j] = (int64_t)((uint64_t)isum[j] + (uint64_t)ibuf[j]);
        else for (int j = 0; j < b.n; j++) sum[j] += buf[j];
        amp__store(p->odtype, b.out + k * r->out_step * p->oes, p->kout[0], cls, sum, b.n);
      }
    } else for (int j = 0; j < b.n; j++) {
      const char *in = b.in + j * p->kin[0] * p->es;
      char *out = b.out + j * p->kout[0] * p->oes;
      double s = r->product;
      uint64_t n = r->product;
      for (int64_t at = 0; at < p->reduced; at += AMP_CHUNK) {
        int64_t m = p->reduced - at < AMP_CHUNK ? p->reduced - at : AMP_CHUNK;
        amp__load(cls, buf, p->dtype, in + at * p->rin[0] * p->es, p->rin[0], m);
        if (r->product && whole) for (int64_t k = 0; k < m; k++) ibuf[k] = (int64_t)(n *= (uint64_t)ibuf[k]);
        else if (r->product) for (int64_t k = 0; k < m; k++) buf[k] = s *= buf[k];
        else if (whole) for (int64_t k = 0; k < m; k++) ibuf[k] = (int64_t)(n += (uint64_t)ibuf[k]);
        else for (int64_t k = 0; k < m; k++) buf[k] = s += buf[k];
        amp__store(p->odtype, out + at * r->out_step * p->oes, r->out_step, cls, buf, m);
      }
    }
  }
}

/* Sums and products in double (int64 for integers), rounded as they are stored */
static int run(amp_call *c, bool product)
{
  const amp_tensor *t = c->in[0], *o = c->out[0];
  amp_rplan p;
  int outdim[AMP_MAX_DIM], dim = (int)c->a[0].i, rc = amp__check_cast(t, o->dtype);
  if (rc < 0) return rc;
  for (int d = 0; d < t->ndim; d++) outdim[d] = d == dim ? -1 : d;
  amp__rplan(&p, t, o, outdim);
  if (t->numel == 0) return 0;
  running r = { &p, t->ndim ? o->stride[dim] : 1, product };
  if (t->ndim && p.reduced > 1) p.rin[0] = t->stride[dim];
  amp__parallel(amp__threads(t->numel * 4), p.blocks, 1, running_part, &r);
  return 0;
}
int amp__cpu_cumsum(amp_call *c) { return run(c, false); }
int amp__cpu_cumprod(amp_call *c) { return run(c, true); }

/* -- Equality ---------------------------------------------------------------------------------- */

#define DIFFER(name, T) \
static AMP_CLONES_WIDE void name(int64_t n, void *const *p, unsigned scalar, const void *arg) \
{ \
  const T *x = p[0], *y = p[1]; int differ = 0; \
  for (int64_t i = 0; i < n; i++) differ |= x[i] != y[i]; \
  if (differ) __atomic_store_n((int *)arg, 1, __ATOMIC_RELAXED); \
}
DIFFER(differ_f, float)
DIFFER(differ_d, double)
DIFFER(differ_i, int64_t)

int amp__cpu_equal(amp_call *c)
{
  static const amp_loop_fn loops[3] = { differ_f, differ_d, differ_i };
  int differ = !amp__same_size(c->in[0], c->in[1]);
  if (!differ) {
    int cls = amp__class_of(-1, c->in, 2);
    const uint8_t k[2] = { (uint8_t)cls, (uint8_t)cls };
    amp_loop l = { loops[cls], &differ, 0, 0, 1 };
    amp__elementwise(&l, 2, c->in, k);
  }
  *AMP_DATA(uint8_t, c->out[0]) = !differ;
  return 0;
}
