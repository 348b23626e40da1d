/*
** cpu_pad.c: rows pad and pad_backward.
**
** Every mode is a map of each dimension's places to places of the input (-1: the
** constant). Rows of output along the innermost dimension are a run that lies
** side by side in the input too, and a few elements around it that the map gives
** one by one. Dimensions without padding are merged where memory allows, so that
** runs are long. Elements are moved as bytes; only pad_backward adds.
*/
#include "cpu_iter.h"
#include "cpu_nn.h"

enum { CONSTANT, REFLECT, REPLICATE, CIRCULAR };

/* A dimension: size n of the padded side, m of the other; strides of both; its places in the other */
typedef struct side { int64_t n, m, before, ps, os, lo, hi; int64_t *map; } side;
typedef struct padding {
  int nd, mode, es, type;
  side d[AMP_MAX_DIM];                  /* outermost first */
  char *p, *o;                          /* padded side, other side */
  int64_t value;                        /* bytes of the constant */
  amp__nn_scratch maps;
} padding;

/* Place in the input, of n elements, of place i of the padded side, `before` and `after` being what is added. What is
** taken away does not come round in circular mode. */
static int64_t mapped(int mode, int64_t i, int64_t n, int64_t before, int64_t after) {
  int64_t lo = before < 0 ? -before : 0, hi = after < 0 ? n + after : n;
  i -= before;
  if (i >= lo && i < hi) return i;
  switch (mode) {
  case REFLECT: return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
  case REPLICATE: return i < 0 ? 0 : i >= n ? n - 1 : i;
  case CIRCULAR: return i < lo ? i + hi - lo : i - (hi - lo);
  default: return -1;
  }
}

/* Dimensions by falling stride of the padded side, neighbours merged; their maps. */
static int set(padding *k, const amp_tensor *t, const int64_t *size, const int64_t *ps, const int64_t *os, const amp_slot *pad, int mode) {
  int order[AMP_MAX_DIM], n = 0, nd = t->ndim;
  int64_t total = 0;
  k->mode = mode;
  for (int i = 0; i < nd; i++) {
    int j = n++;
    for (; j > 0 && t->size[order[j - 1]] != 1 && t->size[i] != 1 && ps[order[j - 1]] < ps[i]; j--) order[j] = order[j - 1];
    order[j] = i;
  }
  k->nd = 0;
  for (int i = 0; i < nd; i++) {
    int d = order[i], back = nd - 1 - d;
    int64_t before = back < pad[0].i / 2 ? pad[1 + 2 * back].i : 0;
    side s = { t->size[d], size[d], before, ps[d], os[d], 0, 0, NULL }, *q = k->nd ? &k->d[k->nd - 1] : NULL;
    if (s.n == 1 && s.m == 1 && before == 0) continue;
    /* what stands around q may only be a constant: other modes repeat whole elements of q */
    if (q && before == 0 && s.n == s.m && q->ps == s.n * s.ps && q->os == s.m * s.os && (mode == CONSTANT || (q->before == 0 && q->n == q->m))) {
      *q = (side){ q->n * s.n, q->m * s.m, q->before * s.n, s.ps, s.os, 0, 0, NULL };
      continue;
    }
    k->d[k->nd++] = s;
  }
  if (k->nd == 0) k->d[k->nd++] = (side){ 1, 1, 0, 1, 1, 0, 0, NULL };
  for (int i = 0; i < k->nd; i++) total += k->d[i].n;
  if (!amp__nn_lend(&k->maps, NULL, 0, (size_t)total * sizeof(int64_t) + 8)) return AMP_E_MEMORY;
  int64_t *at = k->maps.p;
  for (int i = 0; i < k->nd; i++) {
    side *s = &k->d[i];
    s->map = at;
    at += s->n;
    for (int64_t j = 0; j < s->n; j++) s->map[j] = mapped(mode, j, s->m, s->before, s->n - s->m - s->before);
    s->lo = s->before > 0 ? s->before : 0;
    s->hi = s->before + s->m < s->n ? s->before + s->m : s->n;
    if (s->lo > s->n) s->lo = s->n;
    if (s->hi < s->lo) s->hi = s->lo;
  }
  return 0;
}

static int64_t rows(const padding *k) {
  int64_t n = 1;
  for (int i = 0; i + 1 < k->nd; i++) n *= k->d[i].n;
  return n;
}

/* A row's place along the outer dimensions, its offsets on both sides, and how many dimensions lie outside the input */
typedef struct row { int64_t at[AMP_MAX_DIM], p, o; int outside; } row;

static void seek(const padding *k, row *w, int64_t r) {
  *w = (row){ { 0 }, 0, 0, 0 };
  for (int i = k->nd - 2; i >= 0; i--) {
    int64_t m = k->d[i].map[w->at[i] = r % k->d[i].n];
    r /= k->d[i].n;
    w->p += w->at[i] * k->d[i].ps;
    w->o += m * k->d[i].os;
    w->outside += m < 0;
  }
}

static void next(const padding *k, row *w) {
  for (int i = k->nd - 2; i >= 0; i--) {
    const side *s = &k->d[i];
    int64_t from = s->map[w->at[i]], at = w->at[i] + 1 < s->n ? w->at[i] + 1 : 0, to = s->map[at];
    w->p += (at - w->at[i]) * s->ps;
    w->o += (to - from) * s->os;
    w->outside += (to < 0) - (from < 0);
    w->at[i] = at;
    if (at) return;
  }
}

/* -- Forward -------------------------------------------------------------------------- */

#define FILL(T) { T v = (T)k->value; if (step == 1) for (int64_t j = 0; j < n; j++) ((T *)to)[j] = v; else for (int64_t j = 0; j < n; j++) ((T *)to)[j * step] = v; }
static void fill(const padding *k, char *to, int64_t step, int64_t n) {
  switch (k->es) {
  case 1: FILL(uint8_t) break;
  case 2: FILL(uint16_t) break;
  case 4: FILL(uint32_t) break;
  default: FILL(uint64_t) break;
  }
}

/* Elements lo..hi of a row, one by one */
#define EDGE(T) for (int64_t j = lo; j < hi; j++) ((T *)to)[j * s->ps] = ((const T *)from)[s->map[j] * s->os];
static void edge(const side *s, int es, char *to, const char *from, int64_t lo, int64_t hi) {
  switch (es) {
  case 1: EDGE(uint8_t) break;
  case 2: EDGE(uint16_t) break;
  case 4: EDGE(uint32_t) break;
  default: EDGE(uint64_t) break;
  }
}

static void part(int64_t begin, int64_t end, void *ctx) {
  const padding *k = ctx;
  const side *s = &k->d[k->nd - 1];
  int es = k->es;
  int64_t n = s->hi - s->lo;
  row w;
  seek(k, &w, begin);
  for (int64_t r = begin; r < end; r++, next(k, &w)) {
    char *to = k->p + w.p * es;
    if (w.outside) { fill(k, to, s->ps, s->n); continue; }
    const char *from = k->o + w.o * es;
    if (n > 0) {
      char *t = to + s->lo * s->ps * es;
      const char *f = from + (s->lo - s->before) * s->os * es;
      if (s->ps == 1 && s->os == 1) memcpy(t, f, (size_t)(n * es));
      else amp__move(es, t, s->ps, f, s->os, n);
    }
    if (k->mode == CONSTANT) {
      if (s->lo) fill(k, to, s->ps, s->lo);
      if (s->hi < s->n) fill(k, to + s->hi * s->ps * es, s->ps, s->n - s->hi);
      continue;
    }
    edge(s, es, to, from, 0, s->lo);
    edge(s, es, to, from, s->hi, s->n);
  }
}

int amp__cpu_pad(amp_call *c) {
  padding k = { 0 };
  amp_tensor *x = c->in[0], *y = c->out[0];
  if (y->numel == 0) return 0;
  k.es = amp__dtype_size[y->dtype];
  k.p = amp__data(y);
  k.o = amp__data(x);
  amp__value_put(&k.value, y->dtype, c->a[18].f);
  int rc = set(&k, y, x->size, y->stride, x->stride, c->a, (int)c->a[17].i);
  if (rc == 0) amp__parallel(amp__threads(y->numel), rows(&k), 1, part, &k);
  amp__nn_give(&k.maps);
  return rc;
}

/* -- Backward: every element of grad is added where it came from ------------------------ */

#define ADD(T) {                                                                                    \
    T *to = (T *)k.o + w.o;                                                                         \
    const T *g = (const T *)k.p + w.p;                                                              \
    if (s->ps == 1 && s->os == 1) { T *t = to + s->lo - s->before; const T *f = g + s->lo; for (int64_t j = 0; j < s->hi - s->lo; j++) t[j] += f[j]; } \
    else for (int64_t j = s->lo; j < s->hi; j++) to[s->map[j] * s->os] += g[j * s->ps];             \
    if (mode == CONSTANT) continue;                                                                 \
    for (int64_t j = 0; j < s->lo; j++) to[s->map[j] * s->os] += g[j * s->ps];                      \
    for (int64_t j = s->hi; j < s->n; j++) to[s->map[j] * s->os] += g[j * s->ps];                   \
  }

int amp__cpu_pad_backward(amp_call *c) {
  padding k = { 0 };
  amp_tensor *g = c->in[0], *x = c->out[0];
  amp__nn_view gv = { 0 }, xv = { 0 };
  int rc = AMP_E_MEMORY, mode = (int)c->a[26].i, type = amp__nn_type(x->dtype);
  if (x->numel == 0 || g->numel == 0) return x->numel ? amp__fill_value(x, 0) : 0;
  if (!amp__nn_read(&gv, g, type) || !amp__nn_write_c(&xv, x, type)) goto out;
  memset(xv.p, 0, (size_t)x->numel * amp__dtype_size[type]);
  k.p = gv.p;
  k.o = xv.p;
  if ((rc = set(&k, g, x->size, gv.stride, xv.stride, c->a + 9, mode)) < 0) goto out;
  const side *s = &k.d[k.nd - 1];
  row w;
  seek(&k, &w, 0);
  for (int64_t r = 0, n = rows(&k); r < n; r++, next(&k, &w)) {
    if (w.outside) continue;
    if (type == AMP_FLOAT64) ADD(double)
    else ADD(float)
  }
  amp__nn_written(&xv, x, type);
out:
  amp__nn_drop(&gv);
  amp__nn_drop(&xv);
  amp__nn_give(&k.maps);
  return rc;
}
