/*
** amp_clip.c: the total norm of gradients, and clipping by it, without a wait.
**
** Norms are of unscaled values: |value * pending factor|^p summed in double. The
** coefficient min(1, max_norm / (norm + 1e-6)) is a device cell that multiplies
** each pending factor; only tensors the user holds are multiplied in place, once
** where several parameters have one as their gradient (each counts in the norm). A
** check that was valid stays valid: the coefficient is finite where the norm is.
** On the CPU the sums are plain numbers, elsewhere they are made of ops.
*/
#include <math.h>
#include <stdlib.h>
#include "amp_compose.h"
#include "amp_scale.h"

/* -- Norm and clipping --------------------------------------------------------- */

/* |value * factor|^p summed up (p infinite: the largest) as a 0-d cell of the value's device. Counted. */
static amp_tensor *norm_part(const amp_grad *g, double p)
{
  amp_tensor *v = g->value;
  if (v->device == AMP_CPU) {
    double acc = amp__cpu_norm_part(v, p);
    double f = g->factor ? fabs((double)*AMP_DATA(float, g->factor)) : 1;
    if (!isinf(p)) f = p == 2 ? f * f : p == 1 ? f : pow(f, p);
    return amp__cell(AMP_FLOAT64, AMP_CPU, 0, isinf(p) && acc == 0 ? 0 : acc * f);
  }
  int mark = amp__pool_mark();
  amp_sl a = amp__sl();
  amp__sl_f(&a, p);
  amp__sl_nolist(&a);
  amp__sl_i(&a, 0);
  amp__sl_i(&a, AMP_FLOAT32);
  amp_tensor *t = amp__x(AMP_OP_norm, &a, 1, &v);
  if (t && g->factor) t = X2(mul, t, g->factor);
  t = t ? amp__keep(amp__xcast(t, AMP_FLOAT64)) : NULL;
  if (t && !isinf(p)) { amp_tensor *q = amp__keep(XN(pow, t, p)); amp__free(t); t = q; }
  amp__pool_release(mark);
  return t;
}

/* What clipping a gradient takes, made before any gradient changes: clipping may be tried again. */
typedef struct plan { amp_tensor *c, *factor, *bin; } plan; /* c: borrowed, NULL: no gradient */

static int prepare(plan *q, const amp_grad *g, amp_tensor *c, amp__product *m)
{
  q->c = c;
  if (!amp__grad_at_once(g)) q->factor = amp__factor_times(m, g->factor, c);
  else if (g->value->dtype != AMP_FLOAT64 && g->value->device != AMP_CPU) q->bin = amp__cell(AMP_FLOAT32, g->value->device, g->value->device_index, 0);
  else return 0;
  return q->factor || q->bin ? 0 : amp__S->err.code;
}

/* Multiply one gradient by the coefficient; a check that was right stays so. */
static int clip_one(amp_grad *g, plan *q)
{
  if (q->factor) {
    amp__free(g->factor);
    g->factor = q->factor;
    q->factor = NULL;
    return 0;
  }
  bool valid = amp__check_valid(g);
  int rc, origin = amp__grad_origin(g);
  if (g->value->dtype == AMP_FLOAT64) {
    amp_tensor *in[2] = {g->value, q->c};
    rc = amp__dispatch(AMP_OP_mul, AMP_INPLACE, in, 2, NULL, NULL);
  } else {
    float ignored = 0, *f = q->bin ? AMP_DATA(float, q->bin) : &ignored;
    amp__touch(g->value);
    amp__touch(q->c);
    rc = amp__devices[g->value->device].check_scale(g->value, AMP_DATA(float, q->c), f);
    amp__bump(g->value);
  }
  if (valid && !rc) g->version = amp__version(g->value);
  if (!rc) amp__grad_from(g, origin);
  return rc;
}

/* min(1, max_norm / (norm + 1e-6)) as a float32 and a float64 cell on norm's device. */
static int coefficient(amp_tensor *norm, double max_norm, amp_tensor **c32, amp_tensor **c64)
{
  if (norm->device == AMP_CPU) {
    double c = max_norm / (*AMP_DATA(double, norm) + 1e-6);
    if (c > 1) c = 1;
    *c32 = amp__cell(AMP_FLOAT32, AMP_CPU, 0, c);
    *c64 = amp__cell(AMP_FLOAT64, AMP_CPU, 0, c);
  } else {
    int mark = amp__pool_mark();
    amp_sl a = amp__sl();
    a.v[a.n++].i = AMP_NONE;
    amp__sl_f(&a, 1);
    amp_tensor *c = XN(add, norm, 1e-6);
    if (c) c = NX(div, max_norm, c);
    if (c) c = amp__x(AMP_OP_clamp, &a, 1, &c);
    *c64 = amp__keep(c);
    *c32 = c ? amp__keep(amp__xcast(c, AMP_FLOAT32)) : NULL;
    amp__pool_release(mark);
  }
  return *c32 && *c64 ? 0 : amp__S->err.code;
}

/* total += part, or the larger of both where p is infinite; takes part. */
static int join(amp_tensor **total, amp_tensor *part, bool infinite)
{
  if (!*total) { *total = part; return 0; }
  if (part->device == AMP_CPU && (*total)->device == AMP_CPU) {
    double *a = AMP_DATA(double, *total), b = *AMP_DATA(double, part);
    *a = infinite ? (b > *a || isnan(b) ? b : *a) : *a + b;
    amp__free(part);
    return 0;
  }
  int mark = amp__pool_mark();
  amp_tensor *there = amp__pooled(amp__cell_copy(part, (*total)->device, (*total)->device_index));
  amp_tensor *sum = there ? amp__keep(infinite ? X2(maximum, *total, there) : X2(add, *total, there)) : NULL;
  amp__pool_release(mark);
  amp__free(part);
  if (!sum) return amp__S->err.code;
  amp__free(*total);
  *total = sum;
  return 0;
}

/* The sum for all gradients by the device's own kernel, where they lie on one device without gaps; 0: not so. */
static int parts_at_once(amp_tensor *const *leaf, int n, double p, amp_tensor **total)
{
  amp_tensor **v = malloc((sizeof *v + sizeof(float *)) * (size_t)(n ? n : 1));
  if (!v) return amp__nomem(sizeof *v * (size_t)n);
  const float **f = (const float **)(v + n);
  int m = 0, rc = 0;
  for (int i = 0; i < n; i++) {
    const amp_grad *g = amp__grad_of(leaf[i]);
    if (!g) continue;
    const amp_tensor *t = g->value, *first = m ? v[0] : t;
    if (!amp__devices[t->device].norm_many || !(t->flags & AMP_T_DENSE) || t->device != first->device || t->device_index != first->device_index) goto out;
    f[m] = g->factor ? AMP_DATA(float, g->factor) : NULL;
    v[m++] = g->value;
    if (amp_unlikely(amp__capturing)) { amp__capture_note(g->value); amp__capture_note(g->factor); }
    amp__touch(g->value);
    amp__touch(g->factor);
  }
  if (m == 0) goto out;
  rc = -1;
  if ((*total = amp__cell(AMP_FLOAT64, v[0]->device, v[0]->device_index, 0))) rc = amp__devices[v[0]->device].norm_many(v, f, m, p, AMP_DATA(double, *total));
  rc = rc < 0 ? amp__S->err.code : 1;
out:
  free(v);
  return rc;
}

/* The p-norm of all gradients as a float64 cell; 0 on the CPU if there are none. */
static int total_norm(amp_tensor *const *leaf, int n, double p, amp_tensor **total)
{
  bool infinite = isinf(p);
  int done = parts_at_once(leaf, n, p, total);
  if (done < 0) return done;
  for (int i = 0; i < n && !done; i++) {
    const amp_grad *g = amp__grad_of(leaf[i]);
    if (!g) continue;
    amp_tensor *part = norm_part(g, p);
    if (!part || join(total, part, infinite)) return amp__S->err.code;
  }
  if (!*total) return (*total = amp__cell(AMP_FLOAT64, AMP_CPU, 0, 0)) ? 0 : amp__S->err.code;
  if (infinite) return 0;
  if ((*total)->device == AMP_CPU) {
    double *a = AMP_DATA(double, *total);
    *a = p == 2 ? sqrt(*a) : p == 1 ? *a : pow(*a, 1 / p);
    return 0;
  }
  int mark = amp__pool_mark();
  amp_tensor *root = amp__keep(XN(pow, *total, 1 / p));
  amp__pool_release(mark);
  if (!root) return amp__S->err.code;
  amp__free(*total);
  *total = root;
  return 0;
}

typedef struct place { amp_tensor *c32, *c64; } place; /* the coefficient on a device */

/* Gradients multiplied in place that others may hold as well: one that several parameters have is multiplied once. */
typedef struct shared { int n; struct { const amp_tensor *v; uint32_t before; } *done; } shared;

static bool done_before(const shared *s, amp_grad *g)
{
  for (int i = 0; i < s->n; i++)
    if (amp__same_place(s->done[i].v, g->value)) {
      if (g->check && g->version == s->done[i].before) g->version = amp__version(g->value); /* its check was right, and stays so */
      if (g->made == s->done[i].before) g->made = amp__version(g->value);
      return true;
    }
  return false;
}

static bool others_hold(const amp_grad *g)
{
  const amp_tensor *v = g->value;
  return amp__grad_at_once(g) && (v->refs > 1 || atomic_load_explicit(&v->storage->refs, memory_order_relaxed) > 1);
}

/* The coefficient in pl[0], on v's device */
static amp_tensor *coefficient_there(place *pl, int *npl, const amp_tensor *v)
{
  int j = 0;
  while (j < *npl && !(pl[j].c32->device == v->device && pl[j].c32->device_index == v->device_index)) j++;
  if (j == *npl) {
    if (j == AMP_MAX_PLACES) { amp__fail(AMP_E_UNSUPPORTED, "gradients on more than %d devices", AMP_MAX_PLACES); return NULL; }
    pl[j].c32 = amp__cell_copy(pl[0].c32, v->device, v->device_index);
    pl[j].c64 = pl[j].c32 ? amp__cell_copy(pl[0].c64, v->device, v->device_index) : NULL;
    if (!pl[j].c64) { amp__free(pl[j].c32); return NULL; }
    (*npl)++;
  }
  return v->dtype == AMP_FLOAT64 ? pl[j].c64 : pl[j].c32;
}

/* What multiplying every gradient by the coefficient takes. */
static int prepare_all(plan *q, shared *s, amp_tensor *const *leaf, int n, place *pl, int *npl, amp__product *m)
{
  int rc = amp__grads_part(leaf, n);
  for (int i = 0; i < n && !rc; i++) {
    amp_grad *g = amp__grad_of(leaf[i]);
    if (!g) continue;
    if (others_hold(g) && !s->done && !(s->done = malloc(sizeof *s->done * (size_t)n))) return amp__nomem(sizeof *s->done * (size_t)n);
    amp_tensor *c = coefficient_there(pl, npl, g->value);
    rc = c ? prepare(&q[i], g, c, m) : amp__S->err.code;
  }
  return rc;
}

static int clip_all(plan *q, shared *s, amp_tensor *const *leaf, int n)
{
  int rc = 0;
  for (int i = 0; i < n && !rc; i++) {
    amp_grad *g = amp__grad_of(leaf[i]);
    if (!g) continue;
    if (others_hold(g)) {
      if (done_before(s, g)) continue;
      s->done[s->n].v = g->value;
      s->done[s->n++].before = amp__version(g->value);
    }
    rc = clip_one(g, &q[i]);
  }
  return rc;
}

static int clip(amp_state *S, amp_ref *norm, amp_tensor *const *leaf, int n, double max_norm, double p)
{
  if (!(p > 0)) return amp__fail(AMP_E_VALUE, "the norm's p must be positive, got %g", p);
  if (isnan(max_norm)) return amp__fail(AMP_E_VALUE, "max_norm is not a number");
  amp__plain plain = amp__plain_begin();
  amp_tensor *total = NULL;
  place pl[AMP_MAX_PLACES] = {{0}};
  amp__product m = {0};
  shared s = {0};
  plan *q = NULL;
  bool clips = false;
  int npl = 0, mark = amp__pool_mark(), rc = total_norm(leaf, n, p, &total);
  if (rc) goto out;
  if (max_norm >= 0) {
    if ((rc = coefficient(total, max_norm, &pl[0].c32, &pl[0].c64))) { amp__free(pl[0].c32); amp__free(pl[0].c64); goto out; }
    npl = 1;
    clips = total->device != AMP_CPU || *AMP_DATA(double, pl[0].c64) != 1;
    if (clips && !(q = calloc((size_t)(n ? n : 1), sizeof *q))) { rc = amp__nomem(sizeof *q * (size_t)n); goto out; }
    if (clips && (rc = prepare_all(q, &s, leaf, n, pl, &npl, &m))) goto out;
  }
  if (total->device == AMP_CPU) norm->t = amp__cell(AMP_FLOAT32, AMP_CPU, 0, *AMP_DATA(double, total));
  else norm->t = amp__keep(amp__xcast(total, AMP_FLOAT32));
  if (!norm->t) rc = S->err.code;
  else if (clips && (rc = clip_all(q, &s, leaf, n))) { amp__free(norm->t); norm->t = NULL; }
out:
  for (int i = 0; i < n && q; i++) { amp__free(q[i].factor); amp__free(q[i].bin); }
  free(q);
  free(s.done);
  for (int i = 0; i < npl; i++) { amp__free(pl[i].c32); amp__free(pl[i].c64); }
  amp__free(total);
  amp__product_end(&m);
  amp__pool_release(mark);
  amp__plain_end(plain);
  return rc;
}

int amp_clip_grad_norm(amp_state *S, amp_ref *norm, amp_tensor *const *leaf, int n, double max_norm, double p)
{
  amp_frame f;
  AMP_ENTER(S);
  bool watched = amp_unlikely(amp__observing()) && amp__observe_begin(&f, AMP_SPAN_CLIP, 0, 0);
  int rc = clip(S, norm, leaf, n, max_norm, p);
  if (watched) amp__observe_end(&f, rc);
  return rc;
}
