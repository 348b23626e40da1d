/*
** cpu_index_put.c: reading and writing several dimensions by index tensors.
**
** The index tensors are broadcast together and turned into one list of offsets.
** The result's dimensions are the kept ones with the index's in place of the
** first indexed dimension where the indexed ones stand side by side, else in
** front. So a result is [before][index][after], and each (before, index) pair
** is one strided slice.
*/
#include "cpu_index.h"

typedef struct picking {
  int nkept, nb, where;                /* where: kept dimensions before the index part */
  int64_t ksize[AMP_MAX_DIM], kstride[AMP_MAX_DIM]; /* kept dimensions of the indexed tensor */
  int64_t bsize[AMP_MAX_DIM], n;       /* shape of the index part, and its number of elements */
  int64_t *offset;                     /* [n], in elements of the indexed tensor */
  amp_tensor *hold;                    /* the memory of offset */
} picking;

/* t: the indexed tensor; its strides make the offsets */
static int prepare(picking *p, amp_call *c, int first, const amp_tensor *t)
{
  int n = c->nin - first, rc = 0;
  amp_call only = { .nin = n, .in = c->in + first };
  p->hold = NULL;
  if ((rc = amp__broadcast(&only, n, &p->nb, p->bsize)) < 0) return rc;
  p->hold = amp__tensor_make(AMP_INT64, AMP_CPU, 0, p->nb, p->bsize);
  if (p->hold == NULL) return amp__S->err.code;
  p->n = p->hold->numel;
  p->offset = AMP_DATA(int64_t, p->hold);
  memset(p->offset, 0, sizeof(int64_t) * (size_t)p->n);
  for (int i = 0; i < n; i++) {
    int dim = (int)c->a[1 + i].i;
    amp_tensor *own;
    int64_t *v = amp__indices(c->in[first + i], dim, t->size[dim], &own);
    if (v == NULL) return amp__S->err.code;
    amp_operand o;
    amp__operand(&o, own, AMP_C_I64, p->nb, p->bsize);
    int64_t at[AMP_MAX_DIM] = { 0 }, q = 0;
    for (int64_t k = 0; k < p->n; k++) {
      p->offset[k] += v[q] * t->stride[dim];
      for (int d = p->nb - 1; d >= 0; d--) {
        q += o.stride[d];
        if (++at[d] < p->bsize[d]) break;
        q -= p->bsize[d] * o.stride[d];
        at[d] = 0;
      }
    }
    amp__free(own);
  }
  p->nkept = 0;
  p->where = 0;
  bool adjacent = c->a[n].i - c->a[1].i == n - 1;
  for (int d = 0; d < t->ndim; d++) {
    bool indexed = false;
    for (int i = 0; i < n; i++) indexed |= c->a[1 + i].i == d;
    if (indexed) continue;
    if (adjacent && d < c->a[1].i) p->where++;
    p->ksize[p->nkept] = t->size[d];
    p->kstride[p->nkept++] = t->stride[d];
  }
  return 0;
}

/* f(offset into the indexed tensor, offset into a tensor of the result's shape with strides rs) for each element */
#define EACH(BODY) { \
  int64_t size[AMP_MAX_DIM], xs[AMP_MAX_DIM], rs_[AMP_MAX_DIM], at[AMP_MAX_DIM]; \
  int nd = p->nkept - p->where; /* dimensions of a slice */ \
  int64_t slice = 1, before = 1, inner, ix, ir; \
  for (int d = 0; d < nd; d++) { size[d] = p->ksize[p->where + d]; xs[d] = p->kstride[p->where + d]; rs_[d] = rs[p->where + p->nb + d]; slice *= size[d]; } \
  for (int d = 0; d < p->where; d++) before *= p->ksize[d]; \
  inner = nd > 0 ? size[nd - 1] : 1; ix = nd > 0 ? xs[nd - 1] : 0; ir = nd > 0 ? rs_[nd - 1] : 0; \
  if (slice > 0) for (int64_t b = 0; b < before; b++) { \
    int64_t xb = 0, rb = 0, rest = b; \
    for (int d = p->where - 1; d >= 0; d--) { xb += rest % p->ksize[d] * p->kstride[d]; rb += rest % p->ksize[d] * rs[d]; rest /= p->ksize[d]; } \
    int64_t ib[AMP_MAX_DIM] = { 0 }, rk = rb; \
    for (int64_t k = 0; k < p->n; k++) { \
      int64_t xo = xb + p->offset[k], ro = rk; \
      for (int d = 0; d < nd; d++) at[d] = 0; \
      for (int64_t done = 0; done < slice; done += inner) { \
        for (int64_t j = 0; j < inner; j++) { const int64_t xi = xo + j * ix, ri = ro + j * ir; BODY; } \
        for (int d = nd - 2; d >= 0; d--) { \
          xo += xs[d]; ro += rs_[d]; \
          if (++at[d] < size[d]) break; \
          xo -= size[d] * xs[d]; ro -= size[d] * rs_[d]; at[d] = 0; \
        } \
      } \
      for (int d = p->nb - 1; d >= 0; d--) { \
        rk += rs[p->where + d]; \
        if (++ib[d] < p->bsize[d]) break; \
        rk -= p->bsize[d] * rs[p->where + d]; ib[d] = 0; \
      } \
    } \
  } }

static void read_all(const picking *p, const void *x, void *r, const int64_t *rs, int es)
{
  switch (es) {
  case 1: { const uint8_t *s = x; uint8_t *o = r; EACH(o[ri] = s[xi]) } break;
  case 2: { const uint16_t *s = x; uint16_t *o = r; EACH(o[ri] = s[xi]) } break;
  case 4: { const uint32_t *s = x; uint32_t *o = r; EACH(o[ri] = s[xi]) } break;
  default: { const uint64_t *s = x; uint64_t *o = r; EACH(o[ri] = s[xi]) }
  }
}

static void write_all(const picking *p, void *x, const void *r, const int64_t *rs, int es)
{
  switch (es) {
  case 1: { uint8_t *o = x; const uint8_t *s = r; EACH(o[xi] = s[ri]) } break;
  case 2: { uint16_t *o = x; const uint16_t *s = r; EACH(o[xi] = s[ri]) } break;
  case 4: { uint32_t *o = x; const uint32_t *s = r; EACH(o[xi] = s[ri]) } break;
  default: { uint64_t *o = x; const uint64_t *s = r; EACH(o[xi] = s[ri]) }
  }
}

static void add_all(const picking *p, void *x, const void *r, const int64_t *rs, int cls)
{
  switch (cls) {
  case AMP_C_F32: { float *o = x; const float *s = r; EACH(o[xi] += s[ri]) } break;
  case AMP_C_F64: { double *o = x; const double *s = r; EACH(o[xi] += s[ri]) } break;
  default: { uint64_t *o = x; const uint64_t *s = r; EACH(o[xi] += s[ri]) }
  }
}

int amp__cpu_index(amp_call *c)
{
  picking p;
  int rc = prepare(&p, c, 1, c->in[0]);
  if (rc == 0 && c->out[0]->numel > 0)
    read_all(&p, amp__data(c->in[0]), amp__data(c->out[0]), c->out[0]->stride, amp__dtype_size[c->in[0]->dtype]);
  amp__free(p.hold);
  return rc;
}

int amp__cpu_index_put(amp_call *c)
{
  amp_tensor *out = c->out[0], *v = NULL;
  picking p = { .hold = NULL };
  amp_accumulator acc = { .t = out, .out = out };
  amp_operand o;
  int64_t size[AMP_MAX_DIM];
  int rc, nd = 0;
  bool sum = c->a[9].i != 0;
  /* check indices and values before the first write */
  if ((rc = prepare(&p, c, 2, out)) < 0 || (rc = amp__check_cast(c->in[1], out->dtype)) < 0) goto out;
  if (out != c->in[0] && (rc = amp__copy_to(out, c->in[0])) < 0) goto out;
  if (sum) {
    acc.t = NULL;
    if ((rc = amp__accumulator(&acc, out)) < 0) goto out;
    if (acc.t != out) { /* offsets are for other strides now */
      amp__free(p.hold);
      if ((rc = prepare(&p, c, 2, acc.t)) < 0) goto out;
    }
  }
  v = c->in[1];
  if (v->dtype == acc.t->dtype) amp__retain(v);
  else if ((v = amp__dense(v, acc.t->dtype)) == NULL) { rc = amp__S->err.code; goto out; }
  for (int d = 0; d < p.where; d++) size[nd++] = p.ksize[d];
  for (int d = 0; d < p.nb; d++) size[nd++] = p.bsize[d];
  for (int d = p.where; d < p.nkept; d++) size[nd++] = p.ksize[d];
  amp__operand(&o, v, AMP_C_F32, nd, size);
  if (p.n > 0) {
    if (sum) add_all(&p, amp__data(acc.t), o.p, o.stride, acc.cls);
    else write_all(&p, amp__data(out), o.p, o.stride, amp__dtype_size[out->dtype]);
  }
out:
  rc = amp__accumulated(&acc, rc);
  amp__free(v);
  amp__free(p.hold);
  return rc;
}
