/*
** cpu_reduce_plan.c: the geometry of reductions (cpu_reduce.h): which dimensions
** are kept and which reduced, in what order memory is walked, where a run of
** results and an element of the reduced index lie. No arithmetic on elements.
*/
#include "cpu_reduce.h"

static int64_t mag(int64_t s) { return s < 0 ? -s : s; }

uint32_t amp__rmask(const amp_slot *dims)
{
  uint32_t m = 0;
  for (int i = 0; i < dims[0].i; i++) m |= 1u << dims[1 + i].i;
  return m;
}

void amp__rplan(amp_rplan *p, const amp_tensor *in, const amp_tensor *out, const int *outdim)
{
  int k = 0, r = 0;
  p->outputs = p->reduced = 1;
  p->in = amp__data(in); p->out = amp__data(out);
  p->dtype = in->dtype; p->odtype = out->dtype;
  p->es = amp__dtype_size[in->dtype]; p->oes = amp__dtype_size[out->dtype];
  for (int d = in->ndim - 1; d >= 0; d--) {
    int64_t n = in->size[d], s = in->stride[d];
    int at;
    if (outdim[d] >= 0) p->outputs *= n;
    else p->reduced *= n;
    if (n == 1) continue;
    if (outdim[d] >= 0) {
      for (at = k++; at > 0 && s != 0 && mag(p->kin[at - 1]) > mag(s); at--) {
        p->ksize[at] = p->ksize[at - 1]; p->kin[at] = p->kin[at - 1]; p->kout[at] = p->kout[at - 1];
      }
      p->ksize[at] = n; p->kin[at] = s; p->kout[at] = out->stride[outdim[d]];
    } else {
      for (at = r++; at > 0 && s != 0 && mag(p->rin[at - 1]) > mag(s); at--) { p->rsize[at] = p->rsize[at - 1]; p->rin[at] = p->rin[at - 1]; }
      p->rsize[at] = n; p->rin[at] = s;
    }
  }
  if (k == 0) { p->ksize[0] = 1; p->kin[0] = 0; p->kout[0] = 1; k = 1; }
  if (r == 0) { p->rsize[0] = 1; p->rin[0] = 1; r = 1; }
  int m = 0;
  for (int i = 1; i < k; i++) {
    if (p->kin[i] == p->kin[m] * p->ksize[m] && p->kout[i] == p->kout[m] * p->ksize[m]) p->ksize[m] *= p->ksize[i];
    else { m++; p->ksize[m] = p->ksize[i]; p->kin[m] = p->kin[i]; p->kout[m] = p->kout[i]; }
  }
  p->nk = m + 1;
  m = 0;
  for (int i = 1; i < r; i++) {
    if (p->rin[i] == p->rin[m] * p->rsize[m]) p->rsize[m] *= p->rsize[i];
    else { m++; p->rsize[m] = p->rsize[i]; p->rin[m] = p->rin[i]; }
  }
  p->nr = m + 1;
  /* along a very short reduced dimension, many results side by side are better too, though gathered */
  p->columns = p->ksize[0] > 1 && p->kin[0] != 0
               && (mag(p->kin[0]) < mag(p->rin[0]) || p->rin[0] == 0 || p->reduced <= 1 || (p->reduced < 12 && p->ksize[0] >= 64));
  p->per_row = (p->ksize[0] + AMP_CHUNK - 1) / AMP_CHUNK;
  p->blocks = p->outputs == 0 ? 0 : p->outputs / p->ksize[0] * p->per_row;
}

void amp__rplan_mask(amp_rplan *p, const amp_tensor *in, const amp_tensor *out, uint32_t mask)
{
  int outdim[AMP_MAX_DIM], at = 0;
  bool keep = out->ndim == in->ndim;
  for (int d = 0; d < in->ndim; d++) {
    outdim[d] = mask >> d & 1 ? -1 : at;
    if (keep || !(mask >> d & 1)) at++;
  }
  amp__rplan(p, in, out, outdim);
}

void amp__rblock(const amp_rplan *p, int64_t b, amp_rblock *x)
{
  int64_t row = b / p->per_row, first = b % p->per_row * AMP_CHUNK, i = first * p->kin[0], o = first * p->kout[0];
  x->n = (int)(p->ksize[0] - first < AMP_CHUNK ? p->ksize[0] - first : AMP_CHUNK);
  for (int d = 1; d < p->nk; d++) {
    int64_t k = row % p->ksize[d];
    row /= p->ksize[d];
    i += k * p->kin[d];
    o += k * p->kout[d];
  }
  x->in = p->in + i * p->es;
  x->kept = o;
  x->out = p->out + o * p->oes;
}

void amp__rseek(const amp_rplan *p, amp_rpos *x, int64_t at)
{
  x->offset = 0;
  if (at == 0) { /* no divisions at the start of short rows */
    for (int d = 0; d < p->nr; d++) x->index[d] = 0;
    return;
  }
  for (int d = 0; d < p->nr; d++) {
    x->index[d] = d == p->nr - 1 ? at : at % p->rsize[d];
    at /= p->rsize[d];
    x->offset += x->index[d] * p->rin[d];
  }
}

void amp__rnext(const amp_rplan *p, amp_rpos *x, int64_t n)
{
  x->index[0] += n;
  x->offset += n * p->rin[0];
  for (int d = 0; d + 1 < p->nr && x->index[d] == p->rsize[d]; d++) {
    x->offset += p->rin[d + 1] - p->rsize[d] * p->rin[d];
    x->index[d] = 0;
    x->index[d + 1]++;
  }
}
