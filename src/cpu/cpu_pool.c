/*
** cpu_pool.c: rows max_pool, pool_gather, pool_scatter and unpool, and what they
** share with the means of cpu_pool_avg.c (cpu_pool.h).
**
** One kernel serves 1, 2 and 3 dimensions: everything is N C D H W. Work goes by
** planes and rows of output, or, channels innermost, by pixels. Places count from
** 1 in the flattened plane. NaN wins against everything; a window of -inf
** reports its first place.
*/
#include "cpu_pool.h"
#include "cpu_iter.h"

/* -- Sizes, strides, windows ------------------------------------------------------------- */

/* Sizes or strides as N C D H W; `one` stands for a dimension that is not there */
static void five(const amp_tensor *t, int spatial, const int64_t *v, int64_t one, int64_t *s) {
  for (int i = 0; i < 5; i++) s[i] = one;
  for (int i = 0; i < spatial; i++) s[5 - spatial + i] = v[t->ndim - spatial + i];
  s[1] = v[t->ndim - spatial - 1];
  if (t->ndim == spatial + 2) s[0] = v[0];
}

void amp__pool_attributes(amp__pool *p, const amp_slot *a) {
  p->spatial = (int)a[0].i;
  p->shares = a[4 + 2].i == 0;
  p->divisor = AMP_NONE;
  for (int i = 0; i < 3; i++) {
    p->kernel[i] = a[4 + i].i;
    p->stride[i] = a[7 + i].i;
    p->padding[i] = a[10 + i].i;
    p->dilation[i] = 1;
  }
}

static void window(amp__pool *p, int a) {
  int64_t n = p->in[a], m = p->out[a], k = p->kernel[a], d = p->dilation[a], pad = p->padding[a];
  for (int64_t o = 0; o < m; o++) {
    int64_t s = o * p->stride[a] - pad, end = s + (k - 1) * d + 1;
    if (k == 0) {
      s = (int64_t)((__int128)o * n / m);
      end = (int64_t)(((__int128)(o + 1) * n + m - 1) / m);
    }
    double len = (double)((end < n + pad ? end : n + pad) - s);
    if (s < 0) s += (-s + d - 1) / d * d;
    if (end > n) end = n;
    int64_t count = s < end ? (end - 1 - s) / d + 1 : 0;
    p->start[a][o] = s < n ? s : n - 1;
    p->count[a][o] = count;
    p->len[a][o] = p->whole && k ? len : count > 0 ? (double)count : 1;
  }
}

int amp__pool_open(amp__pool *p, const amp_tensor *x, const amp_tensor *y, const amp_tensor *out, const amp_tensor *place, bool windows) {
  int64_t xn[5], yn[5];
  p->type = amp__nn_type(out->dtype);
  five(x, p->spatial, x->size, 1, xn);
  five(y, p->spatial, y->size, 1, yn);
  p->n = xn[0];
  p->c = xn[1];
  for (int i = 0; i < 3; i++) { p->in[i] = xn[2 + i]; p->out[i] = yn[2 + i]; }
  if ((__int128)p->in[0] * p->in[1] * p->in[2] > INT32_MAX)
    return amp__fail(AMP_E_UNSUPPORTED, "pooling over planes of more than %d elements", INT32_MAX);
  if (!(out == x ? amp__nn_write(&p->x, x, p->type) : amp__nn_read(&p->x, x, p->type)) ||
      !(out == y ? amp__nn_write(&p->y, y, p->type) : amp__nn_read(&p->y, y, p->type))) return AMP_E_MEMORY;
  five(x, p->spatial, p->x.stride, 0, p->xs);
  five(y, p->spatial, p->y.stride, 0, p->ys);
  if (place) {
    p->place = AMP_DATA(int64_t, place);
    five(place, p->spatial, place->stride, 0, p->is);
  }
  p->last = p->c >= 8 && p->xs[1] == 1 && p->ys[1] == 1 && (!place || p->is[1] == 1);
  if (!windows) return 0;
  int64_t n = p->out[0] + p->out[1] + p->out[2];
  if (!amp__nn_lend(&p->scratch, NULL, 0, (size_t)n * 24)) return AMP_E_MEMORY;
  int64_t *at = p->scratch.p;
  for (int i = 0; i < 3; i++) {
    p->start[i] = at;
    p->count[i] = at + p->out[i];
    p->len[i] = (double *)(at + 2 * p->out[i]);
    at += 3 * p->out[i];
    window(p, i);
  }
  return 0;
}

int amp__pool_close(amp__pool *p, const amp_tensor *x, const amp_tensor *out, int rc) {
  if (rc == 0) amp__nn_written(out == x ? &p->x : &p->y, out, p->type);
  amp__nn_drop(&p->x);
  amp__nn_drop(&p->y);
  amp__nn_give(&p->scratch);
  return rc;
}

/* -- Loops ----------------------------------------------------------------------------------- */

enum { LANES = 1024 };
enum { MAX, SCATTER, GATHER, WRITE };

/* Windows of 2 x 2 two apart, all inside, n >= 4: four at a time, the last four overlapping those before. Written
** with vectors: a row is short, and the scalar rest of a loop would mostly wait for mispredicted branches. */
typedef float vf4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t vi4 __attribute__((vector_size(16), aligned(4), may_alias));
#if defined(__clang__)
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7)
#else
#define EVEN(a, b) __builtin_shuffle(a, b, (vi4){0, 2, 4, 6})
#define ODD(a, b) __builtin_shuffle(a, b, (vi4){1, 3, 5, 7})
#endif
#define BETTER(v, k) { vi4 t = (v > m) | (v != v); m = (vf4)(((vi4)v & t) | ((vi4)m & ~t)); at = ((k) & t) | (at & ~t); }
static void max_f32_two(const float *a, const float *b, int64_t n, int32_t base, int32_t w, float *best, int32_t *place) {
  const vi4 step = {0, 2, 4, 6};
  for (int64_t j = 0; j < n; j += 4) {
    int64_t o = j + 4 <= n ? j : n - 4;
    vf4 a0 = *(const vf4 *)(a + 2 * o), a1 = *(const vf4 *)(a + 2 * o + 4), b0 = *(const vf4 *)(b + 2 * o), b1 = *(const vf4 *)(b + 2 * o + 4);
    vf4 m = EVEN(a0, a1), v1 = ODD(a0, a1), v2 = EVEN(b0, b1), v3 = ODD(b0, b1);
    vi4 k = step + (base + 2 * (int32_t)o), at = k;
    BETTER(v1, k + 1)
    BETTER(v2, k + w)
    BETTER(v3, k + w + 1)
    *(vf4 *)(best + o) = m;
    *(vi4 *)(place + o) = at;
  }
}
#define max_f64_two(...) (void)0

#define T float
#define N(name) max_f32_##name
#include "cpu_pool_max.h"
#undef T
#undef N
#define T double
#define N(name) max_f64_##name
#include "cpu_pool_max.h"
#undef T
#undef N

typedef struct job { const amp__pool *p; int what; char *buf; size_t each; } job;

#define RUN(name, ...) (p->type == AMP_FLOAT64 ? max_f64_##name(p, ##__VA_ARGS__) : max_f32_##name(p, ##__VA_ARGS__))
static void body(void *ctx, int64_t begin, int64_t end, int thread) {
  const job *k = ctx;
  const amp__pool *p = k->p;
  if (k->what == MAX) {
    if (p->last) RUN(pixels, begin, end);
    else RUN(planes, begin, end, k->buf + (size_t)thread * k->each);
  } else if (p->last) RUN(scatter_pixels, begin, end);
  else RUN(through, k->what, begin, end);
}

static int run(amp__pool *p, int what) {
  char own[8 << 10] __attribute__((aligned(64)));
  amp__nn_scratch s;
  job k = { p, what, NULL, 0 };
  int64_t pixels = p->out[0] * p->out[1] * p->out[2], work = p->n * p->c * pixels, n = p->n * p->c;
  if (what != MAX)
    p->last = p->last && what == SCATTER && p->xs[3] == p->in[2] * p->xs[4] && (p->in[0] == 1 || p->xs[2] == p->in[1] * p->xs[3]);
  else
    work *= amp__pool_taps(p);
  if (p->last) n = what == MAX ? p->n * pixels : p->n;
  int threads = amp__nn_threads(work / 2, n);
  k.each = ((size_t)p->out[2] * 12 + 127) / 64 * 64;
  if (!amp__nn_lend(&s, own, sizeof own, k.each * (size_t)threads)) return AMP_E_MEMORY;
  k.buf = s.p;
  amp__nn_par(threads, n, body, &k);
  amp__nn_give(&s);
  return 0;
}

/* -- Rows of the op table -------------------------------------------------------------------- */

int amp__cpu_max_pool(amp_call *c) {
  amp__pool p = { 0 };
  if (c->out[0]->numel == 0) return 0;
  amp__pool_attributes(&p, c->a);
  for (int i = 0; i < 3; i++) p.dilation[i] = p.shares ? 1 : c->a[13 + i].i;
  int rc = amp__pool_open(&p, c->in[0], c->out[0], c->out[0], c->out[1], true);
  if (rc == 0) rc = run(&p, MAX);
  return amp__pool_close(&p, c->in[0], c->out[0], rc);
}

AMP_CLONES static bool any_outside(const int64_t *d, int64_t n, int64_t limit) {
  uint64_t bad = 0;
  for (int64_t i = 0; i < n; i++) bad |= (uint64_t)(d[i] - 1) >= (uint64_t)limit;
  return bad != 0;
}

/* Places come from anywhere a user can put a tensor: check them. */
static int check_places(const amp_tensor *t, const amp_tensor *plane, int64_t spatial) {
  amp__nn_walk w;
  const int64_t *st[1] = { t->stride }, *d = AMP_DATA(int64_t, t);
  amp__nn_pos p;
  int64_t limit = 1;
  for (int i = 0; i < spatial; i++) limit *= plane->size[plane->ndim - 1 - i];
  if ((t->flags & AMP_T_DENSE) && !any_outside(d, t->numel, limit)) return 0;
  amp__nn_walk_init(&w, t->ndim, t->size, 0, 1, st);
  amp__nn_seek(&w, &p, 0);
  for (int64_t i = 0; i < w.n; i++, amp__nn_next(&w, &p))
    if (d[p.off[0]] < 1 || d[p.off[0]] > limit)
      return amp__fail_arg(AMP_E_INDEX, 2, "index %lld at place %lld is outside the plane, expected 1..%lld", (long long)d[p.off[0]], (long long)i + 1, (long long)limit);
  return 0;
}

/* x: the large planes */
static int through(const amp_call *c, const amp_tensor *x, const amp_tensor *y, int64_t spatial, int what) {
  amp__pool p = { 0 };
  const amp_tensor *out = c->out[0];
  if (c->in[1]->numel == 0) return out->numel ? amp__fill_value(c->out[0], 0) : 0;
  if (x->numel == 0) return amp__fail_arg(AMP_E_INDEX, 2, "indices of shape %s point into a plane without elements", amp__shape_str(y->ndim, y->size));
  int rc = check_places(c->in[1], x, spatial);
  if (rc < 0) return rc;
  p.spatial = (int)spatial;
  rc = amp__pool_open(&p, x, y, out, c->in[1], false);
  if (rc == 0) rc = run(&p, what);
  return amp__pool_close(&p, x, out, rc);
}

int amp__cpu_pool_gather(amp_call *c) { return through(c, c->in[0], c->out[0], c->a[0].i, GATHER); }
int amp__cpu_pool_scatter(amp_call *c) { return through(c, c->out[0], c->in[0], c->a[9].i, SCATTER); }
int amp__cpu_unpool(amp_call *c) { return through(c, c->out[0], c->in[0], c->a[9].i, WRITE); }
