/*
** batch_norm_call.cu: batch norm with a residual and ReLU by whole vectors, two
** launches each way: sums (batch_norm_rows.cu, batch_norm_planes.cu), whose last
** blocks make statistics and coefficients, then forward a x + b [+ residual], ReLU;
** backward a g + b x + d.
**
** Backward with ReLU, but without a residual, asks a x + b again what ReLU let
** through instead of reading the result; with one it masks g while it sums, and
** the masked g is the residual's gradient.
** Halves are rounded where the separate ops round: values are theirs to the bit.
*/
#include "norm/batch_norm_job.cuh"

namespace {

/* Without a batch's statistics: the running ones */
__global__ void __launch_bounds__(256) running(const job task)
{
  AMP_FOR(c, task.channels)
  {
    float m = (float)amp_load<double>(task.running_mean, task.running_mean_dtype, c * task.running_mean_stride),
          r = (float)(1
                      / sqrt(amp_load<double>(task.running_var, task.running_var_dtype, c * task.running_var_stride)
                             + task.eps));
    double a = (double)r * (task.w ? (double)task.w[c] : 1.0);
    task.mean[c] = m;
    task.rstd[c] = r;
    task.coef[c] = (float)a;
    task.coef[task.channels + c] = (float)((task.b ? (double)task.b[c] : 0.0) - taken(task, (double)m) * a);
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
  amp_tensor *flat = amp__cuda_make(x->dtype, 1, &x->numel),
             *v = flat ? amp__tensor_view(flat, x->ndim, x->size, x->stride, 0) : NULL;
  amp__free(flat);
  if (v && amp__cuda_copy_to(v, t) < 0) {
    amp__free(v);
    v = NULL;
  }
  if (v == NULL) *ok = false;
  return v;
}

/* Does x go by whole vectors? 1: not, 0: yes, *last tells how. All of `others` are alike. */
static int fits(const amp_tensor *x, bool *last, amp_tensor *const *others, int n)
{
  if (x->ndim < 2 || x->numel == 0 || x->size[1] > AMP_CELLS || x->dtype == AMP_FLOAT64 || !amp_wide(amp__data(x)))
    return 1;
  int64_t v = x->dtype == AMP_FLOAT32 ? 4 : 8, c = x->size[1], s = x->numel / (x->size[0] * c);
  if (lies(x, true) && c % v == 0) *last = true;
  else if (lies(x, false) && s % v == 0) *last = false;
  else return 1;
  for (int i = 0; i < n; i++)
    if (others[i] && (others[i]->dtype != x->dtype || !lies(others[i], *last) || !amp_wide(amp__data(others[i]))))
      return 1;
  return 0;
}

/* Cut the work, and scratch memory for it (NULL: error) */
static amp_tensor *cut(job *task, const amp_tensor *x, bool last, bool back)
{
  const int64_t v = x->dtype == AMP_FLOAT32 ? 4 : 8;
  size_t c = (size_t)x->size[1];
  task->channels = x->size[1];
  task->count = (double)(x->numel / task->channels);
  task->inverse = 1 / task->count;
  task->plane_vectors = last ? 0 : x->numel / (x->size[0] * task->channels * v);
  task->units = last ? x->numel / task->channels : x->size[0] * task->plane_vectors;
  size_t width = (size_t)(last ? amp_bn_cut_rows(task, x->dtype, back) : amp_bn_cut_planes(task));
  size_t coef = (4 * c * sizeof(float) + 15) & ~(size_t)15,
         sums = (size_t)task->strips * width * (size_t)task->parts * sizeof(float2), var = c * sizeof(double);
  amp_tensor *s = amp__cuda_scratch(coef + sums + var + (size_t)task->strips * sizeof(int));
  if (s == NULL || !(task->cells = amp_cells(amp__cuda_here(), (unsigned)task->strips))) {
    amp__free(s);
    return NULL;
  }
  char *p = (char *)amp__data(s);
  task->coef = (float *)p;
  task->partial = (float2 *)(p + coef);
  task->var = (double *)(p + coef + sums);
  task->bad = (int *)(p + coef + sums + var);
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
  job task;
  int rc = AMP_E_MEMORY, dtype = c->x->dtype, after = c->residual ? JOINED : c->relu ? RELU : PLAIN;
  if (fits(c->x, &last, others, 1)) return 1;
  memset((void *)&task, 0, sizeof task);
  task.centred = dtype == AMP_FLOAT32;
  if (!(m = amp_take(c->mean, AMP_FLOAT32)) || !(r = amp_take(c->rstd, AMP_FLOAT32))) goto out;
  if ((c->w && !(w = amp__cuda_dense(c->w, AMP_FLOAT32))) || (c->b && !(b = amp__cuda_dense(c->b, AMP_FLOAT32))))
    goto out;
  z = as(c->residual, c->x, last, &ok);
  if (!ok || !(s = cut(&task, c->x, last, false))) goto out;
  task.x = amp__data(c->x);
  task.y = amp__data(c->y);
  task.joined = z ? amp__data(z) : NULL;
  task.mean = AMP_DATA(float, m);
  task.rstd = AMP_DATA(float, r);
  task.w = w ? AMP_DATA(float, w) : NULL;
  task.b = b ? AMP_DATA(float, b) : NULL;
  vector(c->rm, &task.running_mean, &task.running_mean_dtype, &task.running_mean_stride);
  vector(c->rv, &task.running_var, &task.running_var_dtype, &task.running_var_stride);
  task.batches = c->batches && c->training ? AMP_DATA(int64_t, c->batches) : NULL;
  task.relu = c->relu;
  task.update = c->training;
  task.eps = c->eps;
  task.momentum = c->momentum;
  if (c->training) {
    amp__cuda_touch(c->rm, true);
    amp__cuda_touch(c->rv, true);
    amp__cuda_touch(c->batches, true);
  }
  launch = last ? amp_bn_rows : amp_bn_planes;
  if (live) launch(&task, AMP_BN_STATS, dtype, after);
  else AMP_LAUNCH(running, amp_grid(task.channels, 256), 256, 0, task);
  launch(&task, AMP_BN_APPLY, dtype, after);
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
  job task;
  int rc = AMP_E_MEMORY, dtype = c->x->dtype, after = c->dr ? JOINED : c->relu ? RELU : PLAIN;
  if (fits(c->x, &last, others, 2)) return 1;
  memset((void *)&task, 0, sizeof task);
  task.centred = dtype == AMP_FLOAT32;
  if (!(m = amp__cuda_dense(c->mean, AMP_FLOAT32)) || !(r = amp__cuda_dense(c->rstd, AMP_FLOAT32))) goto out;
  if ((c->w && !(w = amp__cuda_dense(c->w, AMP_FLOAT32))) || (c->b && !(b = amp__cuda_dense(c->b, AMP_FLOAT32))))
    goto out;
  g = as(c->g, c->x, last, &ok);
  if (after == JOINED) y = as(c->y, c->x, last, &ok);
  if (!ok || !(s = cut(&task, c->x, last, true))) goto out;
  task.x = amp__data(c->x);
  task.g = amp__data(g);
  task.joined = y ? amp__data(y) : NULL;
  task.y = amp__data(c->dx);
  task.masked_g = c->dr ? amp__data(c->dr) : NULL;
  task.mean = AMP_DATA(float, m);
  task.rstd = AMP_DATA(float, r);
  task.w = w ? AMP_DATA(float, w) : NULL;
  task.b = b ? AMP_DATA(float, b) : NULL;
  vector(c->dw, &task.grad_w, &task.grad_w_dtype, &task.grad_w_stride);
  vector(c->db, &task.grad_b, &task.grad_b_dtype, &task.grad_b_stride);
  task.live = c->training;
  launch = last ? amp_bn_rows : amp_bn_planes;
  launch(&task, AMP_BN_SUMS, dtype, after);
  if (after == JOINED) {
    task.g = task.masked_g;
    after = PLAIN;
  }
  launch(&task, AMP_BN_BACK, dtype, after);
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
