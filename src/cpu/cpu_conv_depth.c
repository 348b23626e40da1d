/*
** cpu_conv_depth.c: convolutions with one input channel a group, forward and
** both gradients, plane by plane (cpu_conv_rows.h). A product of matrices would
** spend its time on packing there. 16-bit data is widened first; sums are
** float32 (float64 for float64).
*/
#include "cpu_conv.h"

/* Columns [lo, hi) of an output row whose tap at t falls inside a row of w, stride s */
static inline void inside(int64_t ow, int64_t w, int64_t s, int64_t t, int64_t *lo, int64_t *hi) {
  *lo = t < 0 ? (-t + s - 1) / s : 0;
  *hi = t >= w ? 0 : (w - t + s - 1) / s;
  if (*hi > ow) *hi = ow;
  if (*lo > *hi) *lo = *hi;
}

#define CR(x) x##_f32
#define CR_T float
#include "cpu_conv_rows.h"

#define CR(x) x##_f64
#define CR_T double
#include "cpu_conv_rows.h"

bool conv_depthwise_fits(const conv *v) { return v->cg == 1 && v->og <= 4 && (v->groups > 1 || v->og == 1); }

typedef struct job { const conv *v; int which; bool bias; } job;

static void body(void *ctx, int64_t begin, int64_t end, int thread) {
  const job *k = ctx;
  for (int64_t i = begin; i < end; i++) {
    if (k->v->type == AMP_FLOAT64) plane_f64(k->v, k->which, k->bias, i);
    else plane_f32(k->v, k->which, k->bias, i);
  }
}

/* Planes are read by rows: elements of one must follow each other. */
static bool open(amp__nn_view *v, const amp_tensor *t, int type, bool result) {
  bool follow = t->size[t->ndim - 1] == 1 || t->stride[t->ndim - 1] == 1;
  if (result) return follow ? amp__nn_write(v, t, type) : amp__nn_write_c(v, t, type);
  return follow ? amp__nn_read(v, t, type) : amp__nn_read_c(v, t, type);
}

int conv_depthwise(conv *v, const amp_tensor *x, const amp_tensor *w, const amp_tensor *b, const amp_tensor *y, int which) {
  int type = v->type, rc = AMP_E_MEMORY;
  if (open(&v->x, x, type, which == 1) && open(&v->wt, w, type, which == 2) && open(&v->y, y, type, which == 0) &&
      (!b || amp__nn_read_c(&v->b, b, type))) {
    job k = {v, which, b != NULL};
    int64_t planes = which == 0 ? v->n * v->oc : which == 1 ? v->n * v->c : v->oc;
    int64_t work = v->n * v->oc * v->out[0] * v->out[1] * v->out[2] * v->k[0] * v->k[1] * v->k[2] / 4;
    conv_widen(v->xs, v->x.stride, x);
    conv_widen(v->ws, v->wt.stride, w);
    conv_widen(v->ys, v->y.stride, y);
    amp__nn_par(amp__nn_threads(work, planes), planes, body, &k);
    amp__nn_written(which == 0 ? &v->y : which == 1 ? &v->x : &v->wt, which == 0 ? y : which == 1 ? x : w, type);
    rc = 0;
  }
  amp__nn_drop(&v->x); amp__nn_drop(&v->wt); amp__nn_drop(&v->y); amp__nn_drop(&v->b);
  return rc;
}
