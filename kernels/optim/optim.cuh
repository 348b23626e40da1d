/*
** optim.cuh: what the kernels of optimizers share: the launch's argument, what is the same for all elements of a
** parameter, and the formulas for one element.
*/
#ifndef AMP_OPTIM_CUH
#define AMP_OPTIM_CUH
#include "common/rows.cuh"
#include "common/raw.cuh"
#include "precision/scale.cuh"
#include "optim/rates.h"

namespace {

enum { SOME = 8, FEW = 40, MANY = CUDART_VERSION >= 12010 ? 400 : 40, N = 8, THREADS = 256 };
enum { SGD, MOMENTUM, ADAM, OTHER, LAMB_NORMS }; /* kernels */

typedef struct chunk {
  void *master, *shadow, *s0, *s1, *s2;
  const void *grad;
  double *steps;
  const float *factor;
  int64_t n;
  uint32_t at; /* where it begins on the line, in units of N */
  uint8_t master_dtype, grad_dtype, shadow_dtype, aligned;
} chunk;

typedef struct header {
  amp_hyper h;
  const amp_hyper *there; /* NULL: h */
  amp_found_list found;
  unsigned *ticket; /* blocks done */
  float
      *mark; /* the step looks at the gradients by itself, and leaves 1 here if one is not finite. NULL: it does not */
  double *norm;          /* LAMB: [blocks + chunks][2] */
  uint32_t share, total; /* of a block, of all: in units of N */
  int32_t n, kind;
} header;
template <int MOST> struct list {
  header head;
  chunk c[MOST];
};
static_assert(sizeof(list<FEW>) <= 4096 && sizeof(list<MANY>) <= 32764, "a launch's argument");

/* -- What is the same for all elements of a parameter ------------------------------ */

template <class T> struct consts {
  T f, lr, wd, momentum, dampening1, keep, beta1_, beta2, beta2_, step, root, eps, decay, alpha, alpha_, correct;
  int nesterov, first;
};

template <class T> __device__ __forceinline__ void prepare(consts<T> &c, int kind, const amp_hyper &h, const chunk &k)
{
  const double steps[2] = { k.steps[0], k.steps[1] }, factor = k.factor ? (double)*k.factor : 1.0;
  double t = steps[0] + 1, lr = h.lr, wd = h.weight_decay, decay = 1;
  c.f = (T)(factor * (h.maximize ? -1 : 1) * (h.rescale != 0 ? h.rescale : 1));
  c.eps = (T)h.eps;
  c.momentum = (T)h.momentum;
  c.alpha = (T)h.alpha;
  c.alpha_ = (T)(1 - h.alpha);
  c.first = 0;
  c.nesterov = h.nesterov;
  if (kind == AMP_SGD) {
    c.first = steps[1] == 0;
    c.keep = c.first ? (T)0 : (T)h.momentum;
    c.dampening1 = c.first ? (T)1 : (T)(1 - h.dampening);
  } else if (kind == AMP_ADAGRAD) {
    lr = h.lr / (1 + (t - 1) * h.lr_decay);
    c.first = steps[0] == 0;
    c.alpha = (T)h.initial;
  } else if (kind != AMP_RMSPROP && kind != AMP_ADADELTA) {
    if (kind == AMP_ADAMW || kind == AMP_LION || h.decoupled) {
      decay = 1 - h.lr * wd;
      wd = 0;
    }
    double one = 1 - pow(h.beta1, t);
    c.beta1_ = (T)(1 - h.beta1);
    c.beta2 = (T)h.beta2;
    c.beta2_ = (T)(1 - h.beta2);
    c.step = (T)(h.lr / one);
    c.root = (T)(1 / sqrt(1 - pow(h.beta2, t)));
    if (kind == AMP_LAMB) {
      c.correct = h.bias_correction ? (T)(1 / one) : (T)1;
      if (!h.bias_correction) c.root = 1;
      c.step = (T)h.lr;
    } else if (kind == AMP_NADAM) {
      const amp__nadam rates = amp__nadam_rates(h.beta1, h.lr_decay, steps);
      c.correct = (T)(h.lr * (1 - rates.mu) / (1 - rates.product));
      c.step = (T)(h.lr * rates.mu_next / (1 - rates.product * rates.mu_next));
    } else if (kind == AMP_RADAM) {
      const double adapt = amp__radam_rate(h.beta2, t);
      c.first = adapt > 0;
      if (c.first) c.step = (T)(h.lr / one * adapt);
    }
  }
  c.lr = (T)lr;
  c.wd = (T)wd;
  c.decay = (T)decay;
}

/* -- One element --------------------------------------------------------------------- */

template <class T> __device__ __forceinline__ T root_of(T v) { return sqrt(v); }

template <class T> __device__ __forceinline__ void adam(T &p, T g, T &m, T &v, T &top, bool ams, const consts<T> &c)
{
  T w = p * c.decay, x = c.f * g;
  if (c.wd != 0) x += c.wd * w;
  m += c.beta1_ * (x - m);
  v = c.beta2 * v + c.beta2_ * (x * x);
  T most = v;
  if (ams) most = top = top > v ? top : v;
  p = w - c.step * m / (root_of(most) * c.root + c.eps);
}

template <class T> __device__ __forceinline__ void momentum(T &p, T g, T &b, const consts<T> &c)
{
  T x = c.f * g;
  if (c.wd != 0) x += c.wd * p;
  b = (c.first ? (T)0 : c.keep * b) + c.dampening1 * x;
  p -= c.lr * (c.nesterov ? x + c.momentum * b : b);
}

/* NAdam, RAdam, Adadelta, Adamax, Lion: as in optim/step_body.h */
template <class T> __device__ __forceinline__ void newer(int kind, T &p, T g, T &s0, T &s1, const consts<T> &c)
{
  const T w = p * c.decay, x = kind == AMP_LION ? c.f * g : c.f * g + c.wd * w;
  if (kind == AMP_ADADELTA) {
    s0 = c.alpha * s0 + c.alpha_ * (x * x);
    const T delta = root_of(s1 + c.eps) / root_of(s0 + c.eps) * x;
    s1 = c.alpha * s1 + c.alpha_ * (delta * delta);
    p -= c.lr * delta;
  } else if (kind == AMP_LION) {
    const T u = s0 + c.beta1_ * (x - s0);
    s0 += c.beta2_ * (x - s0);
    p = w - c.lr * (u == u ? (T)((u > 0) - (u < 0)) : u);
  } else {
    s0 += c.beta1_ * (x - s0);
    if (kind == AMP_ADAMAX) {
      const T old = c.beta2 * s1, now = fabs(x) + c.eps;
      s1 = old > now ? old : now;
      p -= c.step * s0 / s1;
      return;
    }
    s1 = c.beta2 * s1 + c.beta2_ * (x * x);
    if (kind == AMP_NADAM) p = w - (c.correct * x + c.step * s0) / (root_of(s1) * c.root + c.eps);
    else p = w - c.step * s0 / (c.first ? root_of(s1) + c.eps : (T)1);
  }
}

/* the rest; s1 and s2 as the kind uses them, has: which states there are */
template <class T>
__device__ __forceinline__ void other(int kind, int has, T &p, T g, T &s0, T &s1, T &s2, const consts<T> &c)
{
  if (kind == AMP_RMSPROP) {
    T x = c.f * g + c.wd * p, u;
    s0 = c.alpha * s0 + c.alpha_ * (x * x);
    u = s0;
    if (has & 4) {
      s2 += c.alpha_ * (x - s2);
      u -= s2 * s2;
    }
    T d = x / (root_of(u) + c.eps);
    if (has & 2) {
      d += c.momentum * s1;
      s1 = d;
    }
    p -= c.lr * d;
  } else if (kind == AMP_ADAGRAD) {
    T x = c.f * g + c.wd * p;
    s0 = (c.first ? c.alpha : s0) + x * x;
    p -= c.lr * (x / (root_of(s0) + c.eps));
  } else if (kind == AMP_SGD) {
    if (has & 1) momentum(p, g, s0, c);
    else p -= c.lr * (c.wd != 0 ? c.f * g + c.wd * p : c.f * g);
  } else if (kind > AMP_LAMB) newer(kind, p, g, s0, s1, c);
  else if (kind == AMP_LAMB) p -= c.step * (c.correct * s0 / (root_of(s1) * c.root + c.eps) + c.wd * p);
  else adam(p, g, s0, s1, s2, (has & 4) != 0, c);
}

template <class T, int WHAT>
__device__ __forceinline__ void element(int kind, int has, T &p, T g, T &s0, T &s1, T &s2, const consts<T> &c,
                                        double *norm)
{
  if (WHAT == SGD) {
    T x = c.f * g;
    if (c.wd != 0) x += c.wd * p;
    p -= c.lr * x;
  } else if (WHAT == MOMENTUM) momentum(p, g, s0, c);
  else if (WHAT == ADAM) adam(p, g, s0, s1, s2, false, c);
  else if (WHAT == OTHER) other(kind, has, p, g, s0, s1, s2, c);
  else {
    T x = c.f * g;
    s0 += c.beta1_ * (x - s0);
    s1 = c.beta2 * s1 + c.beta2_ * (x * x);
    T u = c.correct * s0 / (root_of(s1) * c.root + c.eps) + c.wd * p;
    norm[0] += (double)p * (double)p;
    norm[1] += (double)u * (double)u;
  }
}

} // namespace

#endif
