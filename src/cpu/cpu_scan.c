/*
** cpu_scan.c: what depends on all elements before, along a dimension: cummax,
** cummin, logcumsumexp, the gradient of cumprod. (Running sums and products
** themselves: cpu_reduce_arg.c.)
**
** Lines are loaded in chunks of their compute class and shared among threads.
** The last of equal extremes names the place; a NaN, once met, stays the extreme.
*/
#include <math.h>
#include "cpu_iter.h"

enum { MOST, LEAST, LOGSUM };
typedef struct scan {
  int what, dim, cls;
  const amp_tensor *in, *out;
  int64_t *index;         /* of C order */
  int64_t xs[AMP_MAX_DIM];
} scan;

typedef struct { union { float f; double d; int64_t i; } best; int64_t at; double most, sum; } state;

#define EXTREME(T, B, OP) { \
  const T *v = src; \
  T *y = dst, best = from ? s->B : v[0]; \
  int64_t at = from ? s->at : 1; \
  for (int64_t i = 0; i < n; i++) { \
    const T x = v[i]; \
    if (x OP best || x != x) { best = x; at = from + i + 1; } \
    y[i] = best; \
    place[i] = at; \
  } \
  s->B = best; s->at = at; }

/* log(sum of exp) = most + log(sum), sum being of exp(x - most) */
static void log_sum(int64_t n, double *v, state *s)
{
  for (int64_t i = 0; i < n; i++) {
    const double x = v[i];
    if (x != x || s->most != s->most) s->most = x != x ? x : s->most;
    else if (x > s->most) {
      s->sum = s->most == -INFINITY ? 1 : s->sum * exp(s->most - x) + 1;
      s->most = x;
    } else if (x != -INFINITY && s->most != INFINITY) s->sum += exp(x - s->most);
    v[i] = s->most == -INFINITY || s->most == INFINITY ? s->most : s->most + log(s->sum);
  }
}

static void scan_part(int64_t lo, int64_t hi, void *ctx)
{
  const scan *k = ctx;
  const amp_tensor *t = k->in, *o = k->out;
  const int es = amp__dtype_size[t->dtype], oes = amp__dtype_size[o->dtype];
  const int64_t len = t->ndim ? t->size[k->dim] : 1, step = t->ndim ? t->stride[k->dim] : 1, ostep = t->ndim ? o->stride[k->dim] : 1;
  const int64_t xstep = t->ndim ? k->xs[k->dim] : 1;
  double room[AMP_CHUNK];
  int64_t index[AMP_CHUNK];
  /* where memory is as the loops want it they read and write it, else by way of room and index */
  const bool from_memory = t->dtype == amp__class_dtype[k->cls] && step == 1 && k->what != LOGSUM;
  const bool to_memory = o->dtype == amp__class_dtype[k->cls] && ostep == 1 && k->what != LOGSUM;
  for (int64_t line = lo; line < hi; line++) {
    int64_t rest = line, a = 0, b = 0, x = 0;
    for (int d = t->ndim - 1; d >= 0; d--) {
      if (d == k->dim) continue;
      const int64_t at = rest % t->size[d];
      rest /= t->size[d];
      a += at * t->stride[d]; b += at * o->stride[d]; x += at * k->xs[d];
    }
    state st = { .most = -INFINITY }, *s = &st;
    for (int64_t from = 0; from < len; from += AMP_CHUNK) {
      const int64_t n = len - from < AMP_CHUNK ? len - from : AMP_CHUNK;
      const void *src = (const char *)amp__data(t) + (a + from * step) * es;
      char *out = (char *)amp__data(o) + (b + from * ostep) * oes;
      void *dst = to_memory ? (void *)out : room;
      int64_t *place = k->index && xstep == 1 ? k->index + x + from : index;
      if (!from_memory) {
        amp__load(k->cls, room, t->dtype, src, step, n);
        src = room;
      }
      switch (k->what == LOGSUM ? 6 : k->what * 3 + k->cls) {
      case AMP_C_F32: EXTREME(float, best.f, >=) break;
      case AMP_C_F64: EXTREME(double, best.d, >=) break;
      case AMP_C_I64: EXTREME(int64_t, best.i, >=) break;
      case 3 + AMP_C_F32: EXTREME(float, best.f, <=) break;
      case 3 + AMP_C_F64: EXTREME(double, best.d, <=) break;
      case 3 + AMP_C_I64: EXTREME(int64_t, best.i, <=) break;
      default: log_sum(n, room, s);
      }
      if (!to_memory) amp__store(o->dtype, out, ostep, k->cls, room, n);
      if (k->index && place == index) amp__move(8, k->index + x + from * xstep, xstep, index, 1, n);
    }
  }
}

static int run(amp_call *c, int what)
{
  const amp_tensor *t = c->in[0];
  scan k = { .what = what, .dim = (int)c->a[0].i, .cls = what == LOGSUM ? AMP_C_F64 : amp__dtype_class[t->dtype], .in = t, .out = c->out[0] };
  if (t->numel == 0) return 0;
  if (what != LOGSUM) {
    k.index = AMP_DATA(int64_t, c->out[1]);
    for (int d = 0; d < t->ndim; d++) k.xs[d] = c->out[1]->stride[d];
  }
  int64_t lines = t->ndim ? t->numel / t->size[k.dim] : 1;
  amp__parallel(amp__threads(t->numel * (what == LOGSUM ? 64 : 4)), lines, 1, scan_part, &k);
  return 0;
}
int amp__cpu_cummax(amp_call *c) { return run(c, MOST); }
int amp__cpu_cummin(amp_call *c) { return run(c, LEAST); }
int amp__cpu_logcumsumexp(amp_call *c) { return run(c, LOGSUM); }

/* -- cumprod's gradient ------------------------------------------------------------------ */

typedef struct { const amp_tensor *g, *x, *o; int dim; } product;

/* Forward the product of all before, then backward times s = g + (next x) s, exact whatever is zero */
#define GRADIENT(T) { \
  const T *g = (const T *)amp__data(k->g) + a, *x = (const T *)amp__data(k->x) + b; \
  T *o = (T *)amp__data(k->o) + c, before = 1, sum = 0; \
  for (int64_t i = 0; i < n; i++) { o[i * os] = before; before *= x[i * xs]; } \
  for (int64_t i = n - 1; i >= 0; i--) { sum = g[i * gs] + (i + 1 < n ? x[(i + 1) * xs] * sum : 0); o[i * os] *= sum; } \
}

static void product_part(int64_t lo, int64_t hi, void *ctx)
{
  const product *k = ctx;
  const int dim = k->dim, nd = k->x->ndim;
  const int64_t n = k->x->size[dim], gs = k->g->stride[dim], xs = k->x->stride[dim], os = k->o->stride[dim];
  for (int64_t line = lo; line < hi; line++) {
    int64_t rest = line, a = 0, b = 0, c = 0;
    for (int d = nd - 1; d >= 0; d--) {
      if (d == dim) continue;
      const int64_t at = rest % k->x->size[d];
      rest /= k->x->size[d];
      a += at * k->g->stride[d]; b += at * k->x->stride[d]; c += at * k->o->stride[d];
    }
    if (k->x->dtype == AMP_FLOAT64) GRADIENT(double)
    else GRADIENT(float)
  }
}

int amp__cpu_cumprod_backward(amp_call *c)
{
  amp_tensor *out = c->out[0];
  int dtype = out->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32, rc = 0;
  amp_tensor *g = amp__dense(c->in[0], dtype), *x = amp__dense(c->in[1], dtype);
  amp_tensor *o = out->dtype == dtype ? out : amp__tensor_make(dtype, AMP_CPU, 0, out->ndim, out->size);
  if (g == NULL || x == NULL || o == NULL) rc = amp__S->err.code;
  else if (x->numel > 0 && x->ndim > 0) {
    product k = { g, x, o, (int)c->a[0].i };
    amp__parallel(amp__threads(x->numel * 4), x->numel / x->size[k.dim], 1, product_part, &k);
  } else rc = amp__copy_to(o, g);
  if (rc == 0 && o != out) rc = amp__copy_to(out, o);
  if (o != out) amp__free(o);
  amp__free(g);
  amp__free(x);
  return rc;
}
