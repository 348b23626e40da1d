/*
** cpu_grid.c: rows grid_sample, grid_sample_backward, grid_sample_double.
**
** One idea: what a point of the grid reads is a list of taps (offset, weight,
** the weight's derivatives), the same for every channel. It is made for a block
** of points at a time, then every channel of the block is read or added to in
** long loops. The second derivative needs no more than derivatives of the
** weights along the gradient's direction.
*/
#include <math.h>
#include "cpu_iter.h"
#include "cpu_nn.h"

enum { BILINEAR, NEAREST, BICUBIC };
enum { ZEROS, BORDER, REFLECTION };
enum { BLOCK = 128, TAPS = 16 };

typedef struct grid {
  int nd, mode, padding, type, what;
  bool align;
  int64_t n, c, in[3], volume, points, nblock; /* sizes D H W of the input; points of the grid an image */
  amp__nn_view x, grid, g, h, along, og, ox, ogrid; /* in C order: input, grid, grad (or the result), and so on */
  void *block;
  char *buf;
  size_t each;
} grid;

#define T float
#define FLOOR floorf
#define RINT rintf
#define N(name) grid_f32_##name
#include "cpu_grid.h"
#undef T
#undef N
#undef FLOOR
#undef RINT
#define FLOOR floor
#define RINT rint
#define T double
#define N(name) grid_f64_##name
#include "cpu_grid.h"
#undef T
#undef N

enum { FORWARD, BACKWARD, TWICE };

static void body(void *ctx, int64_t begin, int64_t end, int thread) {
  grid k = *(const grid *)ctx;
  k.block = k.buf + (size_t)thread * k.each;
  bool wide = k.type == AMP_FLOAT64;
  switch (k.what) {
  case FORWARD: if (wide) grid_f64_forward(&k, begin, end); else grid_f32_forward(&k, begin, end); break;
  case BACKWARD: if (wide) grid_f64_backward(&k, begin, end); else grid_f32_backward(&k, begin, end); break;
  default: if (wide) grid_f64_twice(&k, begin, end); else grid_f32_twice(&k, begin, end); break;
  }
}

static int set(grid *k, const amp_slot *a, const amp_tensor *x, const amp_tensor *t, int what) {
  k->nd = x->ndim - 2;
  k->mode = (int)a[0].i;
  k->padding = (int)a[1].i;
  k->align = a[2].i != 0;
  k->type = amp__nn_type(x->dtype);
  k->what = what;
  k->n = x->size[0];
  k->c = x->size[1];
  for (int i = 0; i < 3; i++) k->in[i] = i >= 3 - k->nd ? x->size[x->ndim - 3 + i] : 1;
  k->volume = k->in[0] * k->in[1] * k->in[2];
  k->points = k->n ? t->numel / k->nd / k->n : 0;
  k->nblock = (k->points + BLOCK - 1) / BLOCK;
  if (k->volume > INT32_MAX) return amp__fail(AMP_E_UNSUPPORTED, "grid_sample of planes of more than %d elements", INT32_MAX);
  return amp__nn_read_c(&k->x, x, k->type) && amp__nn_read_c(&k->grid, t, k->type) ? 0 : AMP_E_MEMORY;
}

static int run(grid *k) {
  amp__nn_scratch s;
  int64_t n = k->what == FORWARD ? k->n * k->nblock : k->n;
  int threads = amp__nn_threads(k->n * k->points * (k->c + 4) * 8, n);
  k->each = ((k->type == AMP_FLOAT64 ? sizeof(grid_f64_block) : sizeof(grid_f32_block)) + 127) / 64 * 64;
  if (!amp__nn_lend(&s, NULL, 0, k->each * (size_t)threads)) return AMP_E_MEMORY;
  k->buf = s.p;
  amp__nn_par(threads, n, body, k);
  amp__nn_give(&s);
  return 0;
}

static bool zeroed(amp__nn_view *v, const amp_tensor *t, int type) {
  if (!amp__nn_write_c(v, t, type)) return false;
  memset(v->p, 0, (size_t)t->numel * amp__dtype_size[type]);
  return true;
}

static int done(grid *k, int rc) {
  amp__nn_view *v[] = { &k->x, &k->grid, &k->g, &k->h, &k->along, &k->og, &k->ox, &k->ogrid };
  for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) amp__nn_drop(v[i]);
  return rc;
}

int amp__cpu_grid_sample(amp_call *c) {
  grid k = { 0 };
  amp_tensor *y = c->out[0];
  if (y->numel == 0) return 0;
  int rc = set(&k, c->a, c->in[0], c->in[1], FORWARD);
  if (rc == 0 && !amp__nn_write_c(&k.g, y, k.type)) rc = AMP_E_MEMORY;
  if (rc == 0) rc = run(&k);
  if (rc == 0) amp__nn_written(&k.g, y, k.type);
  return done(&k, rc);
}

int amp__cpu_grid_sample_backward(amp_call *c) {
  grid k = { 0 };
  amp_tensor *gx = c->out[0], *gg = c->out[1];
  int rc = set(&k, c->a, c->in[1], c->in[2], BACKWARD);
  if (rc == 0 && (!amp__nn_read_c(&k.g, c->in[0], k.type) || !zeroed(&k.ox, gx, k.type) || !zeroed(&k.ogrid, gg, k.type))) rc = AMP_E_MEMORY;
  if (rc == 0 && k.n > 0) rc = run(&k);
  if (rc == 0) {
    amp__nn_written(&k.ox, gx, k.type);
    amp__nn_written(&k.ogrid, gg, k.type);
  }
  return done(&k, rc);
}

int amp__cpu_grid_sample_double(amp_call *c) {
  grid k = { 0 };
  amp_tensor *const *o = c->out;
  int rc = set(&k, c->a, c->in[1], c->in[2], TWICE);
  if (rc == 0 && (!amp__nn_read_c(&k.g, c->in[0], k.type) || !amp__nn_read_c(&k.h, c->in[3], k.type) || !amp__nn_read_c(&k.along, c->in[4], k.type) ||
                  !zeroed(&k.og, o[0], k.type) || !zeroed(&k.ox, o[1], k.type) || !zeroed(&k.ogrid, o[2], k.type))) rc = AMP_E_MEMORY;
  if (rc == 0 && k.n > 0) rc = run(&k);
  if (rc == 0) {
    amp__nn_written(&k.og, o[0], k.type);
    amp__nn_written(&k.ox, o[1], k.type);
    amp__nn_written(&k.ogrid, o[2], k.type);
  }
  return done(&k, rc);
}
