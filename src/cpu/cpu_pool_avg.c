/*
** cpu_pool_avg.c: rows avg_pool and avg_pool_backward, for windows of one size
** and for such as share out the input. See cpu_pool.h for sizes and windows;
** loops are in cpu_pool_avg.h.
*/
#include "cpu_pool.h"
#include "cpu_iter.h"

#define T float
#define N(name) avg_f32_##name
#include "cpu_pool_avg.h"
#undef T
#undef N
#define T double
#define N(name) avg_f64_##name
#include "cpu_pool_avg.h"
#undef T
#undef N

typedef struct job { const amp__pool *p; bool back; char *buf; size_t each; } job;

#define RUN(name, ...) (p->type == AMP_FLOAT64 ? avg_f64_##name(p, begin, end, ##__VA_ARGS__) : avg_f32_##name(p, begin, end, ##__VA_ARGS__))
static void body(void *ctx, int64_t begin, int64_t end, int thread) {
  const job *k = ctx;
  const amp__pool *p = k->p;
  void *buf = k->buf + (size_t)thread * k->each;
  if (p->last && k->back) RUN(back_pixels);
  else if (p->last) RUN(pixels);
  else if (k->back) RUN(back_planes, buf);
  else RUN(planes, buf);
}

/* x: the large planes; `out` is written */
static int run(amp__pool *p, const amp_slot *a, const amp_tensor *x, const amp_tensor *y, const amp_tensor *out) {
  char own[8 << 10] __attribute__((aligned(64)));
  amp__nn_scratch s;
  bool back = out == x;
  job k = { p, back, NULL, 0 };
  amp__pool_attributes(p, a);
  p->whole = a[13].i != 0;
  p->divisor = a[14].i;
  int rc = amp__pool_open(p, x, y, out, NULL, true);
  if (rc < 0) goto out;
  int64_t pixels = p->out[0] * p->out[1] * p->out[2], n = !p->last ? p->n * p->c : back ? p->n : p->n * pixels, work = p->n * p->c * pixels;
  work *= amp__pool_taps(p);
  int threads = amp__nn_threads(work / 2, n);
  k.each = ((size_t)(p->in[2] + 2 * p->out[2]) * amp__dtype_size[p->type] + 127) / 64 * 64;
  if (!amp__nn_lend(&s, own, sizeof own, k.each * (size_t)threads)) { rc = AMP_E_MEMORY; goto out; }
  k.buf = s.p;
  amp__nn_par(threads, n, body, &k);
  amp__nn_give(&s);
out:
  return amp__pool_close(p, x, out, rc);
}

int amp__cpu_avg_pool(amp_call *c) {
  amp__pool p = { 0 };
  return c->out[0]->numel == 0 ? 0 : run(&p, c->a, c->in[0], c->out[0], c->out[0]);
}

int amp__cpu_avg_pool_backward(amp_call *c) {
  amp__pool p = { 0 };
  if (c->out[0]->numel == 0) return 0;
  if (c->in[0]->numel == 0) return amp__fill_value(c->out[0], 0);
  return run(&p, c->a + 9, c->out[0], c->in[0], c->out[0]);
}
