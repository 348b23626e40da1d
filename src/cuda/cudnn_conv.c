/*
** cudnn_conv.c: rows convolution, convolution_input and convolution_weight: by
** cuDNN where it is there, takes them and they are large enough, else by own
** kernels (kernels/conv/conv.cu, conv_weight.cu).
**
** Operands have one layout, that of the data (planes, or channels beside each
** other); the weight, or its gradient, is copied to it or from it. Lines are
** images of one row. Sums are in float32; float32 stays float32 unless TF32 is
** asked for. A bias, or what is to be added to an input's gradient, is part of the
** graph where that pays, else a pass of its own.
** For convolutions in groups own kernels are timed as well.
*/
#include "cudnn_conv.h"

/* By own kernels, which know biases of channels only */
static int own(amp_call *c, int (*plain)(amp_call *))
{
  amp_tensor *bias = c->nin > 2 ? c->in[2] : NULL;
  if (!bias || bias->ndim < 2) return plain(c);
  c->in[2] = NULL;
  int rc = plain(c);
  c->in[2] = bias;
  return rc ? rc : amp__cuda_conv_bias(c->out[0], bias);
}

#ifndef AMP_DNN
int amp__cuda_convolution(amp_call *c) { return amp__cuda_conv_plain(c); }
int amp__cuda_convolution_input(amp_call *c) { return own(c, amp__cuda_conv_plain_input); }
int amp__cuda_convolution_weight(amp_call *c) { return amp__cuda_conv_plain_weight(c); }
#else

enum { X, W, Y, BIAS };
enum { NO_BIAS, OF_CHANNELS, WHOLE };

typedef struct key { /* whole: compared by its bytes */
  int64_t x[5], w[5], y[5];
  int32_t stride[3], padding[3], dilation[3];
  int32_t kind, dtype, device, spatial, last, align, bias, tf32, deterministic, fixed;
} key;

typedef struct conv {
  key k;
  amp_call *call;
  int (*plain)(amp_call *);
  amp_tensor *t[3], *bias; /* x, w, y in the layout, counted; the bias, borrowed */
  amp_dnn_job job;
  bool fresh; /* the plan was just made */
} conv;

/* -- Layouts ------------------------------------------------------------------------- */

/* Strides of a tensor without gaps: planes, or channels (dimension 2) beside each other */
static void layout(int ndim, const int64_t *size, bool last, int64_t *stride)
{
  int64_t n = last ? size[1] : 1;
  for (int d = ndim - 1; d >= 0; d--) {
    if (last && d == 1) {
      stride[1] = 1;
      continue;
    }
    stride[d] = n;
    n *= size[d];
  }
}

static bool lies(const amp_tensor *t, bool last)
{
  int64_t stride[5];
  layout(t->ndim, t->size, last, stride);
  for (int d = 0; d < t->ndim; d++)
    if (t->size[d] != 1 && t->stride[d] != stride[d]) return false;
  return true;
}

static amp_tensor *made(const amp_tensor *like, bool last)
{
  int64_t size[5], stride[5];
  int n = like->ndim;
  if (!last) return amp__cuda_make(like->dtype, n, like->size);
  size[0] = like->size[0];
  for (int d = 2; d < n; d++) size[d - 1] = like->size[d];
  size[n - 1] = like->size[1];
  amp_tensor *t = amp__cuda_make(like->dtype, n, size), *v = NULL;
  layout(n, like->size, true, stride);
  if (t) v = amp__tensor_view(t, n, like->size, stride, 0);
  amp__free(t);
  return v;
}

/* t in the layout: itself, or a copy (empty if it is a result) */
static amp_tensor *arranged(amp_tensor *t, bool last, bool result)
{
  if (lies(t, last)) {
    amp__retain(t);
    return t;
  }
  amp_tensor *v = made(t, last);
  if (v && !result && amp__cuda_copy_to(v, t) < 0) {
    amp__free(v);
    return NULL;
  }
  return v;
}

/* Channels beside each other? Where both layouts are the same, as `either` says */
static bool wants_last(const amp_tensor *a, const amp_tensor *b, bool either)
{
  bool planes = lies(a, false) && lies(b, false), last = lies(a, true) && lies(b, true);
  if (planes != last) return last;
  if (planes) return either;
  return (lies(a, true) && !lies(a, false)) || (lies(b, true) && !lies(b, false));
}

/* -- Graphs ----------------------------------------------------------------------------- */

/* Sizes as of two spatial dimensions at least */
static void sizes(const amp_tensor *t, int64_t *size)
{
  int lead = t->ndim == 3;
  size[0] = t->size[0];
  size[1] = t->size[1];
  if (lead) size[2] = 1;
  for (int d = 2; d < t->ndim; d++) size[d + lead] = t->size[d];
}

static void *tensor(const conv *v, amp_dnn_graph *g, int which, const int64_t *size, int dtype, bool inner)
{
  int64_t stride[5];
  int n = v->k.spatial + 2;
  layout(n, size, v->k.last, stride);
  return amp__dnn_tensor(g, which + 1 + 16 * inner, dtype, n, size, stride, inner ? 16 : v->k.align, inner);
}

static void build(const conv *v, amp_dnn_graph *g)
{
  const key *k = &v->k;
  int64_t s[3], p[3], d[3], one[5] = { 1, k->y[1], 1, 1, 1 };
  amp__dnn_begin(g);
  for (int i = 0; i < k->spatial; i++) {
    s[i] = k->stride[i];
    p[i] = k->padding[i];
    d[i] = k->dilation[i];
  }
  void *x = tensor(v, g, X, k->x, k->dtype, false), *w = tensor(v, g, W, k->w, k->dtype, false),
       *y = tensor(v, g, Y, k->y, k->dtype, false);
  if (!k->bias) {
    amp__dnn_convolution(g, k->kind, x, w, y, k->spatial, s, p, d);
    return;
  }
  bool data = k->kind == AMP_DNN_DATA;
  void *sum = tensor(v, g, data ? X : Y, data ? k->x : k->y, AMP_FLOAT32, true);
  void *b = tensor(v, g, BIAS, k->bias == WHOLE ? data ? k->x : k->y : one, k->dtype, false);
  amp__dnn_convolution(g, k->kind, data ? sum : x, w, data ? y : sum, k->spatial, s, p, d);
  amp__dnn_pointwise(g, CUDNN_POINTWISE_ADD, sum, b, data ? x : y);
}

static int rival(void *p)
{
  conv *v = p;
  return own(v->call, v->plain) < 0;
}

/* The plan for v's key as it stands, made at need; NULL or not usable: none */
static amp_dnn_plan *plan_for(conv *v)
{
  bool fixed = amp__cuda_here()->capture || amp__cuda_deterministic;
  amp_dnn_graph g;
  v->k.fixed = 0;
  amp_dnn_plan *p = amp__dnn_find(&v->k, sizeof v->k, !fixed); /* one that was timed serves both */
  if (fixed && (!p || p->state == AMP_DNN_NEW)) {
    v->k.fixed = 1;
    p = amp__dnn_find(&v->k, sizeof v->k, true);
  }
  v->fresh = p && p->state == AMP_DNN_NEW;
  if (!v->fresh) return p;
  v->job.fixed = fixed;
  build(v, &g);
  amp__dnn_make(p, &g, &v->job);
  return p;
}

static amp_dnn_plan *with_bias(conv *v, int bias)
{
  v->k.bias = bias;
  v->job.n = bias ? 4 : 3;
  return plan_for(v);
}

/* 0, an error, or 1: nothing was done */
static int run(conv *v)
{
  amp_dnn_plan *p;
  int bias = !v->bias ? NO_BIAS : v->bias->ndim > 1 ? WHOLE : v->k.kind == AMP_DNN_FORWARD ? OF_CHANNELS : NO_BIAS;
  if (bias) {
    p = with_bias(v, bias);
    if (v->fresh && p->state == AMP_DNN_USABLE
        && p->ms >= 0) { /* is it worth it? A pass of its own costs a launch, reads and writes the result */
      amp_dnn_plan *apart = with_bias(v, NO_BIAS);
      const amp_tensor *t = v->t[v->k.kind == AMP_DNN_DATA ? X : Y];
      double pass = 0.003
                    + (bias == WHOLE ? 3.0 : 2.0) * (double)t->numel * amp__dtype_size[v->k.dtype]
                          / (bias == WHOLE ? 3.5e9 : 2.5e9);
      if (apart && apart->state == AMP_DNN_USABLE && apart->ms >= 0 && p->ms > apart->ms + pass)
        p->state = AMP_DNN_NONE;
    }
    if (p && p->state == AMP_DNN_USABLE) {
      v->job.n = 4;
      int rc = amp__dnn_execute(p, &v->job);
      if (rc == 0) return 0;
      if (rc == 1) p->state = AMP_DNN_NONE;
    }
  }
  p = with_bias(v, NO_BIAS);
  if (!p || p->state != AMP_DNN_USABLE) return 1;
  int rc = amp__dnn_execute(p, &v->job);
  if (rc == 1) p->state = AMP_DNN_NONE;
  if (rc) return 1;
  return v->bias ? amp__cuda_conv_bias(v->t[v->k.kind == AMP_DNN_DATA ? X : Y], v->bias) : 0;
}

/* What the three rows have in common */
typedef struct attributes {
  const int64_t *stride, *padding, *dilation;
  int64_t groups;
} attributes;
#define ATTRIBUTES(args) (&(attributes){ (args)->stride, (args)->padding, (args)->dilation, (args)->groups })

/* x, w, y as of the forward direction; kind says which of them is the result */
static int convolve(amp_call *c, int kind, amp_tensor *x, amp_tensor *w, amp_tensor *y, amp_tensor *bias,
                    const attributes *a, int (*plain)(amp_call *))
{
  static const int result[3] = { Y, X, W };
  amp_tensor *given[3] = { x, w, y };
  const amp_cuda_device *d = amp__cuda_here();
  int rc = 1, spatial = x->ndim - 2, lead = spatial == 1, dtype = x->dtype;
  double work = (double)y->numel * (double)w->numel / (double)(w->size[0] > 0 ? w->size[0] : 1);
  if (dtype == AMP_FLOAT64 || (dtype == AMP_BFLOAT16 && d->cc < 80) || x->numel == 0 || w->numel == 0 || y->numel == 0)
    return own(c, plain);
  if (amp__cuda_cudnn == 1 && work < 1e6) return own(c, plain);
  if (!amp__dnn_enter()) return own(c, plain);
  conv v;
  memset(&v, 0, sizeof v);
  v.call = c;
  v.plain = plain;
  v.bias = bias;
  v.k.kind = kind;
  v.k.dtype = dtype;
  v.k.device = d->index;
  v.k.spatial = spatial + lead;
  v.k.tf32 = amp__cuda_tf32 && dtype == AMP_FLOAT32;
  v.k.deterministic = amp__cuda_deterministic;
  v.k.last = wants_last(x, y, dtype != AMP_FLOAT32);
  for (int i = 0; i < v.k.spatial; i++) {
    int at = 3 - spatial + i - lead;
    bool there = at >= 3 - spatial;
    v.k.stride[i] = there ? (int32_t)a->stride[at] : 1;
    v.k.padding[i] = there ? (int32_t)a->padding[at] : 0;
    v.k.dilation[i] = there ? (int32_t)a->dilation[at] : 1;
  }
  sizes(x, v.k.x);
  sizes(w, v.k.w);
  sizes(y, v.k.y);
  uintptr_t bits = 16;
  for (int i = 0; i < 3; i++) {
    if (!(v.t[i] = arranged(given[i], v.k.last, i == result[kind]))) goto out;
    v.job.id[i] = i + 1;
    v.job.pointer[i] = amp__data(v.t[i]);
    bits |= (uintptr_t)v.job.pointer[i];
  }
  if (bias) {
    if (bias->ndim > 1 ? !lies(bias, v.k.last) : bias->stride[0] != 1 && bias->size[0] > 1) goto out;
    v.job.id[3] = BIAS + 1;
    v.job.pointer[3] = amp__data(bias);
    bits |= (uintptr_t)v.job.pointer[3];
  }
  v.k.align = (int32_t)(bits & -bits);
  v.job.exact = dtype == AMP_FLOAT32 && !v.k.tf32;
  if (a->groups > 1) {
    v.job.rival = rival;
    v.job.rival_data = &v;
  }
  rc = run(&v);
  if (rc == 0 && v.t[result[kind]] != given[result[kind]])
    rc = amp__cuda_copy_to(given[result[kind]], v.t[result[kind]]);
out:
  for (int i = 0; i < 3; i++) amp__free(v.t[i]);
  amp__dnn_leave();
  return rc == 1 ? own(c, plain) : rc;
}

int amp__cuda_convolution(amp_call *c)
{
  return convolve(c, AMP_DNN_FORWARD, c->in[0], c->in[1], c->out[0], c->nin > 2 ? c->in[2] : NULL,
                  ATTRIBUTES(AMP_ARGS(c, convolution)), amp__cuda_conv_plain);
}
int amp__cuda_convolution_input(amp_call *c)
{
  return convolve(c, AMP_DNN_DATA, c->out[0], c->in[1], c->in[0], c->nin > 2 ? c->in[2] : NULL,
                  ATTRIBUTES(AMP_ARGS(c, convolution_input)), amp__cuda_conv_plain_input);
}
int amp__cuda_convolution_weight(amp_call *c)
{
  return convolve(c, AMP_DNN_FILTER, c->in[1], c->out[0], c->in[0], NULL, ATTRIBUTES(AMP_ARGS(c, convolution_weight)),
                  amp__cuda_conv_plain_weight);
}
#endif
