/*
** cpu_resample.c: rows resample and resample_backward: nearest, linear and cubic
** interpolation in 1, 2 and 3 dimensions, antialiased or not.
**
** A dimension is a table: each output's first input and its weights. Images are
** resampled along one dimension after the other; backward is the same with the
** tables transposed. Where a source lies follows PyTorch: in float32 for nearest,
** else in double (weights are rounded once, when they are used).
** Cubic: Keys' kernel, a = -0.75, or -0.5 antialiased.
*/
#include <math.h>
#include "cpu_iter.h"
#include "cpu_nn.h"

enum { NEAREST, EXACT, LINEAR, CUBIC };
enum { MAX_FLAT = 8 };

typedef struct axis {
  int64_t n, most, least;               /* outputs; taps of one, at most and at least */
  bool same, plain;                     /* output is input; all weights are 1 */
  int64_t *first, *ptr;                 /* first input; weights of o are w[ptr[o]] .. w[ptr[o + 1]] */
  double *w;
  amp__nn_scratch mem;
} axis;

typedef struct job {
  int64_t n, c, in[3];
  bool last;
  amp__nn_view x, y;
  int type;
  char *buf;
  size_t each;
  const void *taps;
} job;

/* -- Tables --------------------------------------------------------------------------- */

static double cubic(double x, double a) {
  x = fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

static bool open_axis(axis *a, int64_t n, int64_t total) {
  a->n = n;
  if (!amp__nn_lend(&a->mem, NULL, 0, (size_t)(2 * n + 1 + total) * 8)) return false;
  a->first = a->mem.p;
  a->ptr = a->first + n;
  a->w = (double *)(a->ptr + n + 1);
  a->ptr[0] = 0;
  return true;
}

static void close_axis(axis *a, int64_t in) {
  a->same = a->n == in;
  a->plain = true;
  a->most = 0;
  a->least = INT64_MAX;
  for (int64_t o = 0; o < a->n; o++) {
    int64_t k = a->ptr[o + 1] - a->ptr[o];
    if (k > a->most) a->most = k;
    if (k < a->least) a->least = k;
    if (k != 1 || a->first[o] != o) a->same = false;
  }
  for (int64_t i = 0; i < a->ptr[a->n]; i++) if (a->w[i] != 1) a->plain = false;
  a->same = a->same && a->plain;
}

/* Weights of inputs from..from + k - 1, those outside the input counted for its ends; zeros at the ends are dropped. */
static void put(axis *a, int64_t o, int64_t in, int64_t from, int k, const double *w) {
  double *to = a->w + a->ptr[o];
  int64_t lo = from < 0 ? 0 : from >= in ? in - 1 : from, n = 0;
  for (int i = 0; i < k; i++) {
    int64_t at = from + i < 0 ? 0 : from + i >= in ? in - 1 : from + i;
    while (n <= at - lo) to[n++] = 0;
    to[at - lo] += w[i];
  }
  while (n > 1 && to[n - 1] == 0) n--;
  int64_t skip = 0;
  while (skip < n - 1 && to[skip] == 0) skip++;
  if (skip) memmove(to, to + skip, (size_t)(n - skip) * sizeof *to);
  a->first[o] = lo + skip;
  a->ptr[o + 1] = a->ptr[o] + n - skip;
}

static double ratio(int64_t in, int64_t out, int mode, bool align, const amp_slot *scale) {
  if (align && mode >= LINEAR) return out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
  return scale->i != AMP_NONE ? 1 / scale->f : (double)in / (double)out;
}

static bool table(axis *a, int64_t in, int64_t out, int mode, bool align, bool smooth, const amp_slot *scale) {
  double r = ratio(in, out, mode, align, scale), w[4];
  if (smooth && mode >= LINEAR) {
    double half = mode == LINEAR ? 1 : 2, support = r >= 1 ? half * r : half, inverse = r >= 1 ? 1 / r : 1;
    int64_t most = support < (double)in ? 2 * (int64_t)ceil(support) + 2 : in;
    if (most > in) most = in;
    if (!open_axis(a, out, out * most)) return false;
    for (int64_t o = 0; o < out; o++) {
      double center = r * ((double)o + 0.5), sum = 0, *to = a->w + a->ptr[o];
      double l = center - support + 0.5, h = center + support + 0.5;
      int64_t lo = l < 0 ? 0 : l >= (double)in ? in - 1 : (int64_t)l, n = (h < (double)in ? (int64_t)h : in) - lo;
      if (n > most) n = most;
      if (n < 1) n = 1;
      for (int64_t j = 0; j < n; j++) {
        double x = ((double)(j + lo) - center + 0.5) * inverse;
        to[j] = mode == CUBIC ? cubic(x, -0.5) : fabs(x) < 1 ? 1 - fabs(x) : 0;
        sum += to[j];
      }
      for (int64_t j = 0; j < n; j++) to[j] = sum != 0 ? to[j] / sum : j == 0;
      a->first[o] = lo;
      a->ptr[o + 1] = a->ptr[o] + n;
    }
  } else {
    if (!open_axis(a, out, out * 4)) return false;
    float rf = (float)r;
    for (int64_t o = 0; o < out; o++) {
      if (mode <= EXACT) {
        float at = mode == EXACT ? ((float)o + 0.5f) * rf : (float)o * rf;
        int64_t i = at < (float)in ? (int64_t)at : in - 1;
        if (mode == NEAREST && (in == out || 2 * in == out)) i = in == out ? o : o / 2;
        w[0] = 1;
        put(a, o, in, i, 1, w);
        continue;
      }
      if (mode == LINEAR && in == out) { w[0] = 1; put(a, o, in, o, 1, w); continue; }
      double at = align ? r * (double)o : r * ((double)o + 0.5) - 0.5;
      if (mode == LINEAR && at < 0) at = 0;
      if (at > (double)in) at = (double)in;
      double t = at - floor(at);
      int64_t i = (int64_t)floor(at);
      if (mode == LINEAR) { w[0] = 1 - t; w[1] = t; put(a, o, in, i, 2, w); }
      else {
        for (int k = 0; k < 4; k++) w[k] = cubic(t - (k - 1), -0.75);
        put(a, o, in, i - 1, 4, w);
      }
    }
  }
  close_axis(a, in);
  return true;
}

/* Rows and columns of the matrix a exchanged: outputs are a's inputs, of which there are n. The outputs that one of them
** has an input of lie side by side, but for a few zeros. */
static bool transpose(axis *a, int64_t n) {
  axis b = { 0 };
  amp__nn_scratch ends;
  if (!amp__nn_lend(&ends, NULL, 0, (size_t)n * 16)) return false;
  int64_t total = 0, *lo = ends.p, *hi = lo + n;
  for (int64_t i = 0; i < n; i++) { lo[i] = 0; hi[i] = -1; }
#define EACH for (int64_t o = 0; o < a->n; o++) for (int64_t k = a->ptr[o], i = a->first[o]; k < a->ptr[o + 1]; k++, i++)
  EACH {
    if (hi[i] < 0) lo[i] = o;
    hi[i] = o;
  }
  for (int64_t i = 0; i < n; i++) total += hi[i] - lo[i] + 1;
  bool ok = open_axis(&b, n, total);
  if (ok) {
    for (int64_t i = 0; i < n; i++) {
      b.first[i] = lo[i];
      b.ptr[i + 1] = b.ptr[i] + hi[i] - lo[i] + 1;
    }
    for (int64_t i = 0; i < total; i++) b.w[i] = 0;
    EACH b.w[b.ptr[i] + o - lo[i]] = a->w[k];
    close_axis(&b, a->n);
    amp__nn_give(&a->mem);
    *a = b;
  }
#undef EACH
  amp__nn_give(&ends);
  return ok;
}

/* -- Loops ------------------------------------------------------------------------------ */

#define T float
#define N(name) resample_f32_##name
#include "cpu_resample.h"
#undef T
#undef N
#define T double
#define N(name) resample_f64_##name
#include "cpu_resample.h"
#undef T
#undef N

static void body(void *ctx, int64_t begin, int64_t end, int thread) {
  const job *k = ctx;
  char *buf = k->buf + (size_t)thread * k->each;
  if (k->type == AMP_FLOAT64) resample_f64_run(k, begin, end, buf);
  else resample_f32_run(k, begin, end, buf);
}

/* Channels innermost without gaps, in both? */
static bool channels_inside(const amp_tensor *t, int spatial) {
  int c = t->ndim - spatial - 1;
  int64_t n = t->size[c];
  if (t->stride[c] != 1) return false;
  for (int d = t->ndim - 1; d >= 0; d--) {
    if (d == c) continue;
    if (t->size[d] != 1 && t->stride[d] != n) return false;
    n *= t->size[d];
  }
  return true;
}

static size_t room(const axis *a, size_t size) {
  return ((size_t)a->ptr[a->n] * size + 63) / 64 * 64 + ((size_t)(a->n * MAX_FLAT) * size + 63) / 64 * 64 + ((size_t)(a->n * MAX_FLAT) * 4 + 63) / 64 * 64;
}

/* a: spatial, size, mode, align_corners, antialias, scales; small sizes of a call forward: large is in, backward: out */
static int run(amp_call *c, const amp_slot *a, bool back) {
  const amp_tensor *x = c->in[0], *y = c->out[0], *from = back ? y : x;
  int spatial = (int)a[0].i, rc = AMP_E_MEMORY;
  axis ax[3];
  job k = { 0 };
  amp__nn_scratch tables = { 0 }, s = { 0 };
  resample_f32_taps tf[3];
  resample_f64_taps td[3];
  memset(ax, 0, sizeof ax);
  k.type = amp__nn_type(y->dtype);
  size_t size = amp__dtype_size[k.type], bytes = 0;
  static const amp_slot none = { .i = AMP_NONE };
  int64_t taps = 1, pixels = 1;
  for (int i = 0; i < 3; i++) {
    int d = from->ndim - 3 + i;
    bool there = i >= 3 - spatial;
    int64_t in = there ? from->size[d] : 1;
    if (!table(&ax[i], in, there ? a[1 + i].i : 1, there ? (int)a[4].i : NEAREST, a[5].i != 0, a[6].i != 0, there ? &a[7 + i] : &none)) goto out;
    if (back && !transpose(&ax[i], in)) goto out;
    k.in[i] = there ? x->size[d] : 1;
    bytes += room(&ax[i], size);
    taps *= ax[i].most > 0 ? ax[i].most : 1;
    pixels *= ax[i].n;
  }
  k.c = x->size[x->ndim - spatial - 1];
  k.n = x->ndim == spatial + 2 ? x->size[0] : 1;
  k.last = k.c >= 8 && taps <= 16 && channels_inside(x, spatial) && channels_inside(y, spatial);
  if (k.last ? !amp__nn_read(&k.x, x, k.type) || !amp__nn_write(&k.y, y, k.type) : !amp__nn_read_c(&k.x, x, k.type) || !amp__nn_write_c(&k.y, y, k.type)) goto out;
  if (!amp__nn_lend(&tables, NULL, 0, bytes)) goto out;
  char *mem = tables.p;
  for (int i = 0; i < 3; i++) {
    if (k.type == AMP_FLOAT64) resample_f64_axis(&td[i], &ax[i], &mem);
    else resample_f32_axis(&tf[i], &ax[i], &mem);
  }
  k.taps = k.type == AMP_FLOAT64 ? (const void *)td : (const void *)tf;
  int64_t n = k.last ? k.n * ax[0].n * ax[1].n : k.n * k.c;
  int threads = amp__nn_threads(k.n * k.c * pixels * 4, n);
  if (!k.last) k.each = ((size_t)((ax[0].same ? 0 : (ax[0].most + 1) * ax[1].n) + ax[1].most + 1) * (size_t)ax[2].n * size + 127) / 64 * 64;
  if (!amp__nn_lend(&s, NULL, 0, k.each * (size_t)threads + 64)) goto out;
  k.buf = s.p;
  amp__nn_par(threads, n, body, &k);
  amp__nn_written(&k.y, y, k.type);
  rc = 0;
out:
  amp__nn_drop(&k.x);
  amp__nn_drop(&k.y);
  amp__nn_give(&s);
  amp__nn_give(&tables);
  for (int i = 0; i < 3; i++) amp__nn_give(&ax[i].mem);
  return rc;
}

int amp__cpu_resample(amp_call *c) { return c->out[0]->numel == 0 ? 0 : run(c, c->a, false); }
int amp__cpu_resample_backward(amp_call *c) { return c->out[0]->numel == 0 ? 0 : run(c, c->a + 9, true); }
