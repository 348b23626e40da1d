/*
** cpu_embedding.c: row embedding_sum, rows of a table added up by bags in one
** pass: no copy of the rows is made. Sums are in the computing type. Bags that are
** given in rising order (as offsets make them) are shared among threads.
*/
#include "cpu_index.h"
#include "cpu_nn.h"

typedef struct job {
  const amp_tensor *w, *out;
  const int64_t *index, *bag;   /* from 0; bag NULL: each indices a bag */
  const void *scale;            /* in the computing type; NULL: 1 */
  int64_t n, each, pad;         /* pad: index that takes no part, -1: none */
  int type;
  char *buf;                    /* a row for each thread */
  int parts;
} job;

#define EMBED(T, S)                                                                                 \
  AMP_CLONES_OF(T) static void plus_##S(T *y, const T *x, int64_t n) { AMP_IVDEP for (int64_t i = 0; i < n; i++) y[i] += x[i]; } \
  AMP_CLONES_OF(T) static void plus_times_##S(T *y, const T *x, T a, int64_t n) { AMP_IVDEP for (int64_t i = 0; i < n; i++) y[i] += a * x[i]; } \
  static void sum_##S(const job *k, int64_t lo, int64_t hi, int thread) {                           \
    int64_t d = k->w->size[1], rs = k->w->stride[0], cs = k->w->stride[1];                          \
    bool whole = k->w->dtype == k->type && cs == 1;                                                 \
    T *buf = (T *)k->buf + thread * d, *out = AMP_DATA(T, k->out);                                  \
    for (int64_t i = lo; i < hi; i++) {                                                             \
      int64_t at = k->index[i], b = k->bag ? k->bag[i] : i / k->each;                               \
      if (at == k->pad) continue;                                                                   \
      const T *x = amp__nn_at(k->w, at * rs);                                                       \
      if (!whole) {                                                                                 \
        amp__nn_load_##S(buf, x, k->w->dtype, cs, d);                                               \
        x = buf;                                                                                    \
      }                                                                                             \
      if (k->scale) plus_times_##S(out + b * d, x, ((const T *)k->scale)[i], d);                    \
      else plus_##S(out + b * d, x, d);                                                             \
    }                                                                                               \
  }
EMBED(float, f32)
EMBED(double, f64)

/* Where part p of k->parts begins: between two bags */
static int64_t cut(const job *k, int64_t p) {
  int64_t i = k->n * p / k->parts;
  if (!k->bag) return i / k->each * k->each;
  while (i > 0 && i < k->n && k->bag[i] == k->bag[i - 1]) i++;
  return i;
}

static void body(void *ctx, int64_t begin, int64_t end, int thread) {
  const job *k = ctx;
  int64_t lo = cut(k, begin), hi = end == k->parts ? k->n : cut(k, end);
  if (k->type == AMP_FLOAT64) sum_f64(k, lo, hi, thread);
  else sum_f32(k, lo, hi, thread);
}

/* input weight bag? scale?, count, padding_idx */
int amp__cpu_embedding_sum(amp_call *c) {
  amp_tensor *index = NULL, *bag = NULL, *scale = NULL, *out = c->out[0];
  amp__nn_scratch s = {0};
  job k = {.w = c->in[1], .out = out, .type = out->dtype, .n = c->in[0]->numel, .pad = c->a[1].i == AMP_NONE ? -1 : c->a[1].i - 1};
  int rc = amp__fill_value(out, 0);
  if (rc < 0 || k.n == 0) return rc;
  k.each = c->in[2] ? 1 : k.n / out->size[0];
  rc = AMP_E_MEMORY;
  if ((k.index = amp__indices(c->in[0], 0, k.w->size[0], &index)) == NULL) { rc = amp__S->err.code; goto out; }
  if (c->in[2] && (k.bag = amp__indices(c->in[2], 0, out->size[0], &bag)) == NULL) { rc = amp__S->err.code; goto out; }
  if (c->in[3]) {
    if ((scale = amp__dense(c->in[3], k.type)) == NULL) goto out;
    k.scale = amp__data(scale);
  }
  bool rising = true;
  for (int64_t i = 1; k.bag && rising && i < k.n; i++) rising = k.bag[i] >= k.bag[i - 1];
  k.parts = rising ? amp__nn_threads(k.n * k.w->size[1], k.n) : 1;
  if (!amp__nn_lend(&s, NULL, 0, (size_t)k.parts * (size_t)(k.w->size[1] + 8) * sizeof(double))) goto out;
  k.buf = s.p;
  amp__nn_par(k.parts, k.parts, body, &k);
  amp__nn_give(&s);
  rc = 0;
out:
  amp__free(index);
  amp__free(bag);
  amp__free(scale);
  return rc;
}
