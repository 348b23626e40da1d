/*
** batch_norm_act.cu: rows batch_norm_act and batch_norm_act_backward. Data that
** goes by whole vectors is batch_norm_call.cu's; else the rows batch_norm and
** batch_norm_backward do the work and a pass over the elements what follows.
*/
#include "norm/batch_norm.cuh"

namespace {

/* y + residual, ReLU, in place */
template <class T> __global__ void __launch_bounds__(256) follow(const amp_arg y, const amp_arg r, int relu)
{
  AMP_FOR(i, y.numel)
  {
    int64_t at = amp_offset(y, i);
    T v = amp_load<T>(y.p, y.dtype, at);
    if (r.p) {
      v += amp_load<T>(r.p, r.dtype, amp_offset(r, i));
      if (sizeof(T) == 4) v = (T)amp_rounded((float)v, y.dtype);
    }
    amp_store<T>(y.p, y.dtype, at, relu && v < 0 ? (T)0 : v);
  }
}

typedef struct parameters {
  const char *w, *b, *mean, *rstd;
  int32_t w_dtype, b_dtype;
  int64_t w_stride, b_stride;
} parameters;

/* g where ReLU let through: told by the result y, or by x */
template <class T>
__global__ void __launch_bounds__(256)
    mask(const amp_arg out, const amp_arg g, const amp_arg x, const amp_arg y, const parameters p)
{
  AMP_FOR(i, out.numel)
  {
    T v;
    if (y.p) v = amp_load<T>(y.p, y.dtype, amp_offset(y, i));
    else {
      int64_t rest = 1;
      for (int d = 2; d < x.ndim; d++) rest *= x.size[d];
      int64_t c = i / rest % x.size[1];
      double s = (double)((const T *)p.rstd)[c] * (p.w ? amp_load<double>(p.w, p.w_dtype, c * p.w_stride) : 1.0);
      T a = (T)s, b = (T)(p.b ? amp_load<double>(p.b, p.b_dtype, c * p.b_stride) : 0.0);
      v = a * (amp_load<T>(x.p, x.dtype, amp_offset(x, i)) - ((const T *)p.mean)[c]) + b;
      if (sizeof(T) == 4) v = (T)amp_rounded((float)v, x.dtype);
    }
    amp_store<T>(out.p, out.dtype, amp_offset(out, i), v <= 0 ? (T)0 : amp_load<T>(g.p, g.dtype, amp_offset(g, i)));
  }
}

__global__ void count_one(int64_t *n) { *n += 1; }

static amp_tensor *argument(const amp_call *c, int i) { return i < c->nin ? c->in[i] : NULL; }

/* A row's kernel on tensors as they are, with the attributes `args` */
template <class ARGS>
static int kernel(int (*f)(amp_call *), amp_tensor *const *in, int nin, amp_tensor *const *out, const ARGS &args)
{
  amp_call c;
  memset((void *)&c, 0, sizeof c);
  c.in = c.in_store;
  c.attrs = c.attr_store;
  for (int i = 0; i < nin; i++) c.in_store[i] = in[i];
  for (int i = 0; i < 3; i++) c.out[i] = out[i];
  *(ARGS *)c.attr_store = args;
  c.nin = nin;
  c.nout = 3;
  return f(&c);
}

} // namespace

extern "C" {

int amp__cuda_batch_norm_act(amp_call *c)
{
  const args_batch_norm_act *args = AMP_ARGS(c, batch_norm_act);
  amp_bn n;
  memset((void *)&n, 0, sizeof n);
  n.x = c->in[0];
  n.residual = argument(c, 1);
  n.rm = argument(c, 2);
  n.rv = argument(c, 3);
  n.w = argument(c, 4);
  n.b = argument(c, 5);
  n.batches = argument(c, 6);
  n.y = c->out[0];
  n.mean = c->out[1];
  n.rstd = c->out[2];
  n.relu = args->relu != 0;
  n.training = args->training != 0;
  n.momentum = args->momentum;
  n.eps = args->eps;
  int rc = amp_bn_forward(&n);
  if (rc <= 0) return rc;
  amp_tensor *in[5] = { n.x, n.rm, n.rv, n.w, n.b };
  const args_batch_norm plain = { args->training, args->momentum, args->eps };
  if ((rc = kernel(amp__cuda_batch_norm, in, 5, c->out, plain)) < 0) return rc;
  if (n.y->numel > 0 && (n.residual || n.relu))
    rc = amp_by_float(n.y->dtype, [&](auto zero) {
      typedef decltype(zero) T;
      AMP_LAUNCH((follow<T>), amp_grid(n.y->numel, 256), 256, 0, amp_arg_of(n.y), amp_arg_of(n.residual), (int)n.relu);
      return 0;
    });
  if (n.batches && n.training) {
    amp__cuda_touch(n.batches, true);
    AMP_LAUNCH(count_one, 1, 1, 0, AMP_DATA(int64_t, n.batches));
    amp__bump(n.batches);
  }
  return rc;
}

/* grad input result? weight? bias? mean rstd -> input's, weight's, bias's, residual's? */
int amp__cuda_batch_norm_act_backward(amp_call *c)
{
  const args_batch_norm_act_backward *args = AMP_ARGS(c, batch_norm_act_backward);
  amp_bn n;
  memset((void *)&n, 0, sizeof n);
  n.g = c->in[0];
  n.x = c->in[1];
  n.y = c->in[2];
  n.w = c->in[3];
  n.b = c->in[4];
  n.mean = c->in[5];
  n.rstd = c->in[6];
  n.dx = c->out[0];
  n.dw = c->out[1];
  n.db = c->out[2];
  n.dr = args->residual ? c->out[3] : NULL;
  n.relu = true;
  n.training = args->training != 0;
  int rc = amp_bn_backward(&n);
  if (rc <= 0) return rc;
  int type = n.x->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  amp_tensor *gm = n.dr ? amp_own(n.dr) : amp__cuda_make(n.x->dtype, n.x->ndim, n.x->size),
             *m = amp__cuda_dense(n.mean, type), *r = amp__cuda_dense(n.rstd, type);
  amp_tensor *in[5] = { gm, n.x, n.w, n.mean, n.rstd };
  rc = AMP_E_MEMORY;
  if (gm == NULL || m == NULL || r == NULL) goto out;
  rc = 0;
  if (n.x->numel > 0) {
    parameters p;
    memset((void *)&p, 0, sizeof p);
    p.mean = (const char *)amp__data(m);
    p.rstd = (const char *)amp__data(r);
    if (n.w) {
      p.w = (const char *)amp__data(n.w);
      p.w_dtype = n.w->dtype;
      p.w_stride = n.w->stride[0];
    }
    if (n.b) {
      p.b = (const char *)amp__data(n.b);
      p.b_dtype = n.b->dtype;
      p.b_stride = n.b->stride[0];
    }
    rc = amp_by_float(type, [&](auto zero) {
      typedef decltype(zero) T;
      AMP_LAUNCH((mask<T>), amp_grid(gm->numel, 256), 256, 0, amp_arg_of(gm), amp_arg_of(n.g), amp_arg_of(n.x),
                 amp_arg_of(n.y), p);
      return 0;
    });
  }
  if (rc == 0) rc = kernel(amp__cuda_batch_norm_backward, in, 5, c->out, args_batch_norm_backward{ args->training });
out:
  amp__free(gm);
  amp__free(m);
  amp__free(r);
  return rc;
}
}
