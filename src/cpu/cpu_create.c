/*
** cpu_create.c: tensors made out of attributes: empty, full, arange, linspace,
** eye. Values are computed in double (whole steps in int64) and rounded once.
** Results are fresh and dense.
*/
#include <math.h>
#include "cpu_iter.h"

int amp__cpu_empty(amp_call *c) { return 0; }
int amp__cpu_full(amp_call *c) { return amp__fill_value(c->out[0], c->a[9].f); }

/* In chunks through a buffer of one class */
typedef struct { amp_tensor *t; double start, step, end; int64_t n; int64_t istart, istep; bool whole, ends; } series;

static void series_part(int64_t lo, int64_t hi, void *ctx)
{
  const series *s = ctx;
  double buf[AMP_CHUNK];
  int64_t *ibuf = (int64_t *)buf;
  char *p = amp__data(s->t);
  int es = amp__dtype_size[s->t->dtype];
  for (int64_t at = lo; at < hi; at += AMP_CHUNK) {
    int64_t m = hi - at < AMP_CHUNK ? hi - at : AMP_CHUNK;
    if (s->whole) for (int64_t i = 0; i < m; i++) ibuf[i] = s->istart + (at + i) * s->istep;
    else if (s->ends) /* from the nearer end, so that both are exact and the middle is symmetric */
      for (int64_t i = 0; i < m; i++)
        buf[i] = at + i < (s->n + 1) / 2 ? s->start + (double)(at + i) * s->step : s->end - (double)(s->n - 1 - at - i) * s->step;
    else for (int64_t i = 0; i < m; i++) buf[i] = s->start + (double)(at + i) * s->step;
    amp__store(s->t->dtype, p + at * es, 1, s->whole ? AMP_C_I64 : AMP_C_F64, buf, m);
  }
}

static int fill_series(series *s)
{
  s->n = s->t->numel;
  amp__parallel(amp__threads(s->n), s->n, AMP_CHUNK, series_part, s);
  return 0;
}

int amp__cpu_arange(amp_call *c)
{
  series s = { .t = c->out[0], .start = c->a[0].f, .end = c->a[1].f, .step = c->a[2].f };
  if (amp__is_int(s.t->dtype) && s.start == floor(s.start) && s.step == floor(s.step) && fabs(s.start) < 0x1p62 && fabs(s.step) < 0x1p62) {
    s.whole = true;
    s.istart = (int64_t)s.start;
    s.istep = (int64_t)s.step;
  }
  return fill_series(&s);
}

int amp__cpu_linspace(amp_call *c)
{
  series s = { .t = c->out[0], .start = c->a[0].f, .end = c->a[1].f, .ends = true };
  int64_t n = c->a[2].i;
  s.step = n > 1 ? (s.end - s.start) / (double)(n - 1) : 0;
  if (n == 1) s.end = s.start;
  return fill_series(&s);
}

int amp__cpu_eye(amp_call *c)
{
  amp_tensor *o = c->out[0];
  int rc = amp__fill_value(o, 0);
  if (rc < 0) return rc;
  int64_t n = o->size[0] < o->size[1] ? o->size[0] : o->size[1], step = o->stride[0] + o->stride[1];
  char one[8] __attribute__((aligned(8)));
  double v = 1;
  if (n == 0) return 0;
  amp__store(o->dtype, one, 1, AMP_C_F64, &v, 1);
  amp__move(amp__dtype_size[o->dtype], amp__data(o), step, one, 0, n);
  return 0;
}
