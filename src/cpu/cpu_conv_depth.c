/*
** cpu_conv_depth.c: convolutions with one filter a channel, forward and both
** gradients, by rows of a plane. 16-bit data is widened first; sums are
** float32 (float64 for float64).
*/
#include "cpu_conv.h"

typedef struct depth {
  int which;                           /* 0 forward, 1 input's gradient, 2 weight's */
  int64_t n, c, h, w, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw;
  amp__nn_view x, wt, y, b;
  bool bias;
} depth;

/* Columns [lo, hi) of an output row whose tap j falls inside the image */
static inline void inside(int64_t ow, int64_t w, int64_t s, int64_t t, int64_t *lo, int64_t *hi) {
  *lo = t < 0 ? (-t + s - 1) / s : 0;
  *hi = t >= w ? 0 : (w - t + s - 1) / s;
  if (*hi > ow) *hi = ow;
  if (*lo > *hi) *lo = *hi;
}

#define DEPTH(T, name)                                                                              \
  AMP_CLONES static void name(const depth *v, int64_t n, int64_t c) {                               \
    T *x = (T *)v->x.p + n * v->x.stride[0] + c * v->x.stride[1];                                   \
    T *y = (T *)v->y.p + n * v->y.stride[0] + c * v->y.stride[1];                                   \
    T *w = (T *)v->wt.p + c * v->wt.stride[0];                                                      \
    int64_t xs = v->x.stride[3], ys = v->y.stride[3];                                               \
    if (v->which == 0) {                                                                            \
      T b = v->bias ? ((T *)v->b.p)[c] : 0;                                                         \
      for (int64_t i = 0; i < v->oh; i++)                                                           \
        for (int64_t j = 0; j < v->ow; j++) y[i * v->y.stride[2] + j * ys] = b;                     \
    } else if (v->which == 1)                                                                       \
      for (int64_t i = 0; i < v->h; i++)                                                            \
        for (int64_t j = 0; j < v->w; j++) x[i * v->x.stride[2] + j * xs] = 0;                      \
    for (int64_t kh = 0; kh < v->kh; kh++)                                                          \
      for (int64_t kw = 0; kw < v->kw; kw++) {                                                      \
        T *wk = w + kh * v->wt.stride[2] + kw * v->wt.stride[3], f = *wk, s = 0;                    \
        int64_t lo, hi, tw = kw * v->dw - v->pw, step = v->sw * xs;                                 \
        inside(v->ow, v->w, v->sw, tw, &lo, &hi);                                                   \
        for (int64_t i = 0; i < v->oh; i++) {                                                       \
          int64_t ih = i * v->sh + kh * v->dh - v->ph;                                              \
          if (ih < 0 || ih >= v->h) continue;                                                       \
          T *xr = x + ih * v->x.stride[2] + tw * xs, *yr = y + i * v->y.stride[2];                  \
          if (v->which == 0) {                                                                      \
            if (step == 1 && ys == 1) AMP_IVDEP for (int64_t j = lo; j < hi; j++) yr[j] += f * xr[j]; \
            else for (int64_t j = lo; j < hi; j++) yr[j * ys] += f * xr[j * step];                  \
          } else if (v->which == 1) {                                                               \
            if (step == 1 && ys == 1) AMP_IVDEP for (int64_t j = lo; j < hi; j++) xr[j] += f * yr[j]; \
            else for (int64_t j = lo; j < hi; j++) xr[j * step] += f * yr[j * ys];                  \
          } else for (int64_t j = lo; j < hi; j++) s += yr[j * ys] * xr[j * step];                  \
        }                                                                                           \
        if (v->which == 2) *wk += s;                                                                \
      }                                                                                             \
  }
DEPTH(float, plane_f32)
DEPTH(double, plane_f64)

typedef struct job { const depth *v; int type; } job;

static void planes_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const job *k = ctx;
  for (int64_t i = begin; i < end; i++) {
    if (k->type == AMP_FLOAT64) plane_f64(k->v, i / k->v->c, i % k->v->c);
    else plane_f32(k->v, i / k->v->c, i % k->v->c);
  }
}

static void channels_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const job *k = ctx;
  const depth *v = k->v;
  for (int64_t c = begin; c < end; c++) {
    for (int64_t i = 0; i < v->kh * v->kw; i++) {
      int64_t at = c * v->wt.stride[0] + i / v->kw * v->wt.stride[2] + i % v->kw * v->wt.stride[3];
      if (k->type == AMP_FLOAT64) ((double *)v->wt.p)[at] = 0;
      else ((float *)v->wt.p)[at] = 0;
    }
    for (int64_t n = 0; n < v->n; n++) {
      if (k->type == AMP_FLOAT64) plane_f64(v, n, c);
      else plane_f32(v, n, c);
    }
  }
}

int amp__conv_depthwise(amp_call *call, int which) {
  amp_tensor *o = call->out[0];
  amp_tensor *x = which == 0 ? call->in[0] : which == 1 ? o : call->in[1];
  amp_tensor *w = which == 2 ? o : call->in[1];
  amp_tensor *y = which == 0 ? o : call->in[0];
  amp_tensor *b = which == 0 && call->nin > 2 ? call->in[2] : NULL;
  const amp_slot *a = call->a + (which ? 9 : 0);
  int type = amp__nn_type(o->dtype), rc = AMP_E_MEMORY;
  depth v = {which, x->size[0], x->size[1], x->size[2], x->size[3], w->size[2], w->size[3], y->size[2], y->size[3],
             a[0].i, a[1].i, a[2].i, a[3].i, a[4].i, a[5].i, {0}, {0}, {0}, {0}, b != NULL};
  if (!(which == 1 ? amp__nn_write(&v.x, x, type) : amp__nn_read(&v.x, x, type)) ||
      !(which == 2 ? amp__nn_write(&v.wt, w, type) : amp__nn_read(&v.wt, w, type)) ||
      !(which == 0 ? amp__nn_write(&v.y, y, type) : amp__nn_read(&v.y, y, type)) || (b && !amp__nn_read_c(&v.b, b, type))) goto out;
  job k = {&v, type};
  int64_t work = v.n * v.c * v.oh * v.ow * v.kh * v.kw / 4;
  if (which == 2) amp__nn_par(amp__nn_threads(work, v.c), v.c, channels_body, &k);
  else amp__nn_par(amp__nn_threads(work, v.n * v.c), v.n * v.c, planes_body, &k);
  rc = 0;
  amp__nn_written(which == 0 ? &v.y : which == 1 ? &v.x : &v.wt, o, type);
out:
  amp__nn_drop(&v.x); amp__nn_drop(&v.wt); amp__nn_drop(&v.y); amp__nn_drop(&v.b);
  return rc;
}
