/*
** cpu_im2col.c: rows im2col and col2im: the windows of an image as columns, and
** columns added back into an image. im2col only moves elements, whatever their
** size; col2im adds in float32 (float64 for float64) and rounds once.
*/
#include "cpu_nn.h"

typedef struct columns {
  int64_t n, c, h, w, kh, kw, dh, dw, ph, pw, sh, sw, oh, ow;
  const int64_t *is, *cs;        /* strides: image n, c, h, w; columns n, row, window */
  char *image, *col;
  int bytes;
} columns;

/* image without N: as if of one sample */
static void setup(columns *v, const amp_slot *a, const amp_tensor *image) {
  int n = image->ndim;
  v->n = n == 4 ? image->size[0] : 1;
  v->c = image->size[n - 3]; v->h = image->size[n - 2]; v->w = image->size[n - 1];
  v->kh = a[0].i; v->kw = a[1].i;
  v->dh = a[2].i; v->dw = a[3].i;
  v->ph = a[4].i; v->pw = a[5].i;
  v->sh = a[6].i; v->sw = a[7].i;
  v->oh = (v->h + 2 * v->ph - v->dh * (v->kh - 1) - 1) / v->sh + 1;
  v->ow = (v->w + 2 * v->pw - v->dw * (v->kw - 1) - 1) / v->sw + 1;
}

/* Columns [lo, hi) of a row of windows whose tap at t falls inside the image */
static void inside(const columns *v, int64_t t, int64_t *lo, int64_t *hi) {
  *lo = t < 0 ? (-t + v->sw - 1) / v->sw : 0;
  *hi = t >= v->w ? 0 : (v->w - t + v->sw - 1) / v->sw;
  if (*hi > v->ow) *hi = v->ow;
  if (*lo > *hi) *lo = *hi;
}

/* -- im2col ------------------------------------------------------------------------- */

static void zeros(char *p, int bytes, int64_t stride, int64_t n) {
  if (stride == 1 && n > 0) memset(p, 0, (size_t)n * bytes);
  else for (int64_t i = 0; i < n; i++) memset(p + i * stride * bytes, 0, bytes);
}

static void rows_body(void *ctx, int64_t begin, int64_t end, int thread) { /* a row of columns: channel and tap */
  const columns *v = ctx;
  int64_t taps = v->kh * v->kw, rows = v->c * taps, ls = v->cs[2];
  for (int64_t i = begin; i < end; i++) {
    int64_t n = i / rows, r = i % rows, c = r / taps, a = r % taps / v->kw, b = r % v->kw, lo, hi, tw = b * v->dw - v->pw;
    char *d = v->col + (n * v->cs[0] + r * v->cs[1]) * v->bytes;
    const char *plane = v->image + (n * v->is[0] + c * v->is[1]) * v->bytes;
    inside(v, tw, &lo, &hi);
    for (int64_t y = 0; y < v->oh; y++, d += v->ow * ls * v->bytes) {
      int64_t ih = y * v->sh - v->ph + a * v->dh;
      if (ih < 0 || ih >= v->h) { zeros(d, v->bytes, ls, v->ow); continue; }
      zeros(d, v->bytes, ls, lo);
      if (hi > lo)
        amp__move(v->bytes, d + lo * ls * v->bytes, ls, plane + (ih * v->is[2] + (tw + lo * v->sw) * v->is[3]) * v->bytes, v->sw * v->is[3], hi - lo);
      zeros(d + hi * ls * v->bytes, v->bytes, ls, v->ow - hi);
    }
  }
}

int amp__cpu_im2col(amp_call *call) {
  const amp_tensor *x = call->in[0], *o = call->out[0];
  int64_t is[4] = {0}, cs[3] = {0};
  columns v = {.is = is, .cs = cs, .image = amp__data(x), .col = amp__data(o), .bytes = amp__dtype_size[x->dtype]};
  if (o->numel == 0) return 0;
  setup(&v, call->a, x);
  for (int i = 0; i < x->ndim; i++) is[4 - x->ndim + i] = x->stride[i];
  for (int i = 0; i < o->ndim; i++) cs[3 - o->ndim + i] = o->stride[i];
  int64_t rows = v.n * v.c * v.kh * v.kw;
  amp__nn_par(amp__nn_threads(o->numel, rows), rows, rows_body, &v);
  return 0;
}

/* -- col2im ------------------------------------------------------------------------- */

#define ADD_PLANE(T, name)                                                                          \
  AMP_CLONES static void name(const columns *v, T *x, const T *col) {                               \
    for (int64_t y = 0; y < v->h; y++)                                                              \
      for (int64_t j = 0; j < v->w; j++) x[y * v->is[2] + j * v->is[3]] = 0;                        \
    int64_t step = v->sw * v->is[3], ls = v->cs[2];                                                 \
    for (int64_t r = 0; r < v->kh * v->kw; r++) {                                                   \
      int64_t lo, hi, tw = r % v->kw * v->dw - v->pw;                                               \
      inside(v, tw, &lo, &hi);                                                                      \
      for (int64_t y = 0; y < v->oh; y++) {                                                         \
        int64_t ih = y * v->sh - v->ph + r / v->kw * v->dh;                                         \
        if (ih < 0 || ih >= v->h) continue;                                                         \
        T *d = x + ih * v->is[2] + tw * v->is[3];                                                   \
        const T *s = col + r * v->cs[1] + y * v->ow * ls;                                           \
        if (step == 1 && ls == 1) AMP_IVDEP for (int64_t j = lo; j < hi; j++) d[j] += s[j];         \
        else for (int64_t j = lo; j < hi; j++) d[j * step] += s[j * ls];                            \
      }                                                                                             \
    }                                                                                               \
  }
ADD_PLANE(float, add_f32)
ADD_PLANE(double, add_f64)

static void planes_body(void *ctx, int64_t begin, int64_t end, int thread) {
  const columns *v = ctx;
  for (int64_t i = begin; i < end; i++) {
    char *x = v->image + (i / v->c * v->is[0] + i % v->c * v->is[1]) * v->bytes;
    const char *col = v->col + (i / v->c * v->cs[0] + i % v->c * v->kh * v->kw * v->cs[1]) * v->bytes;
    if (v->bytes == 8) add_f64(v, (double *)x, (const double *)col);
    else add_f32(v, (float *)x, (const float *)col);
  }
}

int amp__cpu_col2im(amp_call *call) {
  const amp_tensor *x = call->in[0], *o = call->out[0];
  int type = amp__nn_type(o->dtype), rc = AMP_E_MEMORY;
  amp__nn_view in = {0}, out = {0};
  int64_t is[4] = {0}, cs[3] = {0};
  if (o->numel == 0) return 0;
  if (!amp__nn_read(&in, x, type) || !amp__nn_write(&out, o, type)) goto out;
  columns v = {.is = is, .cs = cs, .image = out.p, .col = in.p, .bytes = amp__dtype_size[type]};
  setup(&v, call->a + 2, o);
  for (int i = 0; i < o->ndim; i++) is[4 - o->ndim + i] = out.stride[i];
  for (int i = 0; i < x->ndim; i++) cs[3 - x->ndim + i] = in.stride[i];
  amp__nn_par(amp__nn_threads(x->numel, v.n * v.c), v.n * v.c, planes_body, &v);
  amp__nn_written(&out, o, type);
  rc = 0;
out:
  amp__nn_drop(&in); amp__nn_drop(&out);
  return rc;
}
