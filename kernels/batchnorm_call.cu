/*
** batchnorm_call.cu: batch norm with a residual and ReLU by whole vectors, two
** launches each way: sums (batchnorm_rows.cu, batchnorm_planes.cu), whose last
** blocks make statistics and coefficients, then forward a x + b [+ residual], ReLU;
** backward a g + b x + d.
**
** Backward with ReLU, but without a residual, asks a x + b again what ReLU let
** through instead of reading the result; with one it masks g while it sums, and
** the masked g is the residual's gradient.
** Halves are rounded where the separate ops round: values are theirs to the bit.
*/
#include "batchnorm_job.cuh"

namespace {

/* Without a batch's statistics: the running ones */
__global__ void __launch_bounds__(256) running(const job k)
{
  AMP_FOR(c, k.c) {
    float m = (float)amp_load<double>(k.rm, k.rmdt, c * k.srm), r = (float)(1 / sqrt(amp_load<double>(k.rv, k.rvdt, c * k.srv) + k.eps));
    double a = (double)r * (k.w ? (double)k.w[c] : 1.0);
    k.mean[c] = m;
    k.rstd[c] = r;
    k.coef[c] = (float)a;
    k.coef[k.c + c] = (float)((k.b ? (double)k.b[c] : 0.0) - taken(k, (double)m) * a);
  }
}

/* -- Calls ----------------------------------------------------------------------------------------- */

/* Without gaps, channels beside each other or planes */
static bool lies(const amp_tensor *t, bool last)
{
  int64_t n = last ? t->size[1] : 1;
  if (last && t->size[1] != 1 && t->stride[1] != 1) return false;
  for (int d = t->ndim - 1; d >= 0; d--) {
    if (last && d == 1) continue;
    if (t->size[d] != 1 && t->stride[d] != n) return false;
    n *= t->size[d];
  }
  return true;
}

/* t (NULL passes) as x lies and in its dtype, on a boundary of 16 bytes: itself or a copy */
static amp_tensor *as(amp_tensor *t, const amp_tensor *x, bool last, bool *ok)
{
  if (t == NULL || !*ok) return NULL;
  if (t->dtype == x->dtype && lies(t, last) && amp_wide(amp__data(t))) return amp_own(t);
  amp_tensor *flat = amp__cuda_make(x->dtype, 1, &x->numel), *v = flat ? amp__tensor_view(flat, x->ndim, x->size, x->stride, 0) : NULL;
  amp__free(flat);
  if (v && amp__cuda_copy_to(v, t) < 0) { amp__free(v); v = NULL; }
  if (v == NULL) *ok = false;
  return v;
}

/* Does x go by whole vectors? 1: not, 0: yes, *last tells how. All of `others` are alike. */
static int fits(const amp_tensor *x, bool *last, amp_tensor *const *others, int n)
{
  if (x->ndim < 2 || x->numel == 0 || x->size[1] > AMP_CELLS || x->dtype == AMP_FLOAT64 || !amp_wide(amp__data(x))) return 1;
  int64_t v = x->dtype == AMP_FLOAT32 ? 4 : 8, c = x->size[1], s = x->numel / (x->size[0] * c);
  if (lies(x, true) && c % v == 0) *last = true;
  else if (lies(x, false) && s % v == 0) *last = false;
  else return 1;
  for (int i = 0; i < n; i++)
    if (others[i] && (others[i]->dtype != x->dtype || !lies(others[i], *last) || !amp_wide(amp__data(others[i])))) return 1;
  return 0;
}

/* Cut the work, and scratch memory for it (NULL: error) */
static amp_tensor *cut(job *k, const amp_tensor *x, bool last, bool back)
{
  const int64_t v = x->dtype == AMP_FLOAT32 ? 4 : 8;
  size_t c = (size_t)x->size[1];
  k->c = x->size[1];
  k->count = (double)(x->numel / k->c);
  k->inverse = 1 / k->count;
  k->run = last ? 0 : x->numel / (x->size[0] * k->c * v);
  k->units = last ? x->numel / k->c : x->size[0] * k->run;
  size_t width = (size_t)(last ? amp_bn_cut_rows(k, x->dtype, back) : amp_bn_cut_planes(k));
  size_t coef = (4 * c * sizeof(float) + 15) & ~(size_t)15, sums = (size_t)k->strips * width * (size_t)k->parts * sizeof(float2), var = c * sizeof(double);
  amp_tensor *s = amp__cuda_scratch(coef + sums + var + (size_t)k->strips * sizeof(int));
  if (s == NULL || !(k->cells = amp_cells(amp__cuda_here(), (unsigned)k->strips))) { amp__free(s); return NULL; }
  char *p = (char *)amp__data(s);
  k->coef = (float *)p;
  k->partial = (float2 *)(p + coef);
  k->var = (double *)(p + coef + sums);
  k->bad = (int *)(p + coef + sums + var);
  return s;
}

static void vector(const amp_tensor *t, char **p, int32_t *dtype, int64_t *stride)
{
  if (t == NULL) return;
  *p = (char *)amp__data(t);
  *dtype = t->dtype;
  *stride = t->ndim ? t->stride[0] : 1;
}

} // namespace

int amp_bn_forward(const amp_bn *c)
{
  bool last, ok = true, live = c->training || !c->rm || !c->rv;
  amp_tensor *others[1] = { c->y }, *m = NULL, *r = NULL, *w = NULL, *b = NULL, *z = NULL, *s = NULL;
  void (*launch)(const amp_bn_job *, int, int, int);
  job k;
  int rc = AMP_E_MEMORY, dtype = c->x->dtype, after = c->residual ? JOINED : c->relu ? RELU : PLAIN;
  if (fits(c->x, &last, others, 1)) return 1;
  memset((void *)&k, 0, sizeof k);
  k.centred = dtype == AMP_FLOAT32;
  if (!(m = amp_take(c->mean, AMP_FLOAT32)) || !(r = amp_take(c->rstd, AMP_FLOAT32))) goto out;
  if ((c->w && !(w = amp__cuda_dense(c->w, AMP_FLOAT32))) || (c->b && !(b = amp__cuda_dense(c->b, AMP_FLOAT32)))) goto out;
  z = as(c->residual, c->x, last, &ok);
  if (!ok || !(s = cut(&k, c->x, last, false))) goto out;
  k.x = amp__data(c->x);
  k.y = amp__data(c->y);
  k.r = z ? amp__data(z) : NULL;
  k.mean = AMP_DATA(float, m);
  k.rstd = AMP_DATA(float, r);
  k.w = w ? AMP_DATA(float, w) : NULL;
  k.b = b ? AMP_DATA(float, b) : NULL;
  vector(c->rm, &k.rm, &k.rmdt, &k.srm);
  vector(c->rv, &k.rv, &k.rvdt, &k.srv);
  k.batches = c->batches && c->training ? AMP_DATA(int64_t, c->batches) : NULL;
  k.relu = c->relu;
  k.update = c->training;
  k.eps = c->eps;
  k.momentum = c->momentum;
  if (c->training) {
    amp__cuda_touch(c->rm, true);
    amp__cuda_touch(c->rv, true);
    amp__cuda_touch(c->batches, true);
  }
  launch = last ? amp_bn_rows : amp_bn_planes;
  if (live) launch(&k, AMP_BN_STATS, dtype, after);
  else AMP_LAUNCH(running, amp_grid(k.c, 256), 256, 0, k);
  launch(&k, AMP_BN_APPLY, dtype, after);
  if (c->training) {
    if (c->rm) amp__bump(c->rm);
    if (c->rv) amp__bump(c->rv);
    if (c->batches) amp__bump(c->batches);
  }
  rc = 0;
out:
  amp__free(s);
  amp__free(z);
  amp__free(w);
  amp__free(b);
  rc = amp_give(c->mean, m, rc);
  return amp_give(c->rstd, r, rc);
}

int amp_bn_backward(const amp_bn *c)
{
  bool last, ok = true;
  amp_tensor *others[2] = { c->dx, c->dr }, *m = NULL, *r = NULL, *w = NULL, *b = NULL, *g = NULL, *y = NULL, *s = NULL;
  void (*launch)(const amp_bn_job *, int, int, int);
  job k;
  int rc = AMP_E_MEMORY, dtype = c->x->dtype, after = c->dr ? JOINED : c->relu ? RELU : PLAIN;
  if (fits(c->x, &last, others, 2)) return 1;
  memset((void *)&k, 0, sizeof k);
  k.centred = dtype == AMP_FLOAT32;
  if (!(m = amp__cuda_dense(c->mean, AMP_FLOAT32)) || !(r = amp__cuda_dense(c->rstd, AMP_FLOAT32))) goto out;
  if ((c->w && !(w = amp__cuda_dense(c->w, AMP_FLOAT32))) || (c->b && !(b = amp__cuda_dense(c->b, AMP_FLOAT32)))) goto out;
  g = as(c->g, c->x, last, &ok);
  if (after == JOINED) y = as(c->y, c->x, last, &ok);
  if (!ok || !(s = cut(&k, c->x, last, true))) goto out;
  k.x = amp__data(c->x);
  k.g = amp__data(g);
  k.r = y ? amp__data(y) : NULL;
  k.y = amp__data(c->dx);
  k.gm = c->dr ? amp__data(c->dr) : NULL;
  k.mean = AMP_DATA(float, m);
  k.rstd = AMP_DATA(float, r);
  k.w = w ? AMP_DATA(float, w) : NULL;
  k.b = b ? AMP_DATA(float, b) : NULL;
  vector(c->dw, &k.gw, &k.gwdt, &k.sgw);
  vector(c->db, &k.gb, &k.gbdt, &k.sgb);
  k.live = c->training;
  launch = last ? amp_bn_rows : amp_bn_planes;
  launch(&k, AMP_BN_SUMS, dtype, after);
  if (after == JOINED) { k.g = k.gm; after = PLAIN; }
  launch(&k, AMP_BN_BACK, dtype, after);
  rc = 0;
out:
  amp__free(s);
  amp__free(g);
  amp__free(y);
  amp__free(w);
  amp__free(b);
  amp__free(m);
  amp__free(r);
  return rc;
}
