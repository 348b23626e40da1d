/*
** precision/clip.c: the total norm of gradients, and clipping by it, without a wait.
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
#include "dispatch/op_builder.h"
#include "precision/scale.h"

/* -- Norm and clipping --------------------------------------------------------- */

/* |value * factor|^p summed up (p infinite: the largest) as a 0-d cell of the value's device. Counted. */
static amp_tensor *norm_part(const amp_grad *grad, double p)
{
  amp_tensor *value = grad->value;
  if (value->device == AMP_CPU) {
    double acc = amp__cpu_norm_part(value, p);
    double f = grad->factor ? fabs((double)*AMP_DATA(float, grad->factor)) : 1;
    if (!isinf(p)) f = p == 2 ? f * f : p == 1 ? f : pow(f, p);
    return amp__cell(AMP_FLOAT64, AMP_CPU, 0, isinf(p) && acc == 0 ? 0 : acc * f);
  }
  int mark = amp__pool_mark();
  amp_attrs attrs = amp__attrs();
  amp__attrs_float(&attrs, p);
  amp__attrs_no_list(&attrs);
  amp__attrs_int(&attrs, 0);
  amp__attrs_int(&attrs, AMP_FLOAT32);
  amp_tensor *tensor = amp__op(AMP_OP_norm, &attrs, 1, &value);
  if (tensor && grad->factor) tensor = OP2(mul, tensor, grad->factor);
  tensor = tensor ? amp__keep(amp__op_cast(tensor, AMP_FLOAT64)) : NULL;
  if (tensor && !isinf(p)) {
    amp_tensor *q = amp__keep(OP_NUMBER(pow, tensor, p));
    amp__free(tensor);
    tensor = q;
  }
  amp__pool_release(mark);
  return tensor;
}

/* What clipping a gradient takes, made before any gradient changes: clipping may be tried again. */
typedef struct plan {
  amp_tensor *coefficient, *factor, *bin;
} plan; /* coefficient: borrowed, NULL: no gradient */

static int prepare(plan *q, const amp_grad *grad, amp_tensor *c, amp__factor_product *factors)
{
  q->coefficient = c;
  if (!amp__grad_at_once(grad)) q->factor = amp__factor_times(factors, grad->factor, c);
  else if (grad->value->dtype != AMP_FLOAT64 && grad->value->device != AMP_CPU)
    q->bin = amp__cell(AMP_FLOAT32, grad->value->device, grad->value->device_index, 0);
  else return 0;
  return q->factor || q->bin ? 0 : amp__S->err.code;
}

/* Multiply one gradient by the coefficient; a check that was right stays so. */
static int clip_one(amp_grad *grad, plan *q)
{
  if (q->factor) {
    amp__free(grad->factor);
    grad->factor = q->factor;
    q->factor = NULL;
    return 0;
  }
  bool valid = amp__check_valid(grad);
  int status, origin = amp__grad_origin(grad);
  if (grad->value->dtype == AMP_FLOAT64) {
    amp_tensor *inputs[2] = { grad->value, q->coefficient };
    status = amp__dispatch(AMP_OP_mul, AMP_INPLACE, inputs, 2, NULL, NULL);
  } else {
    float ignored = 0, *f = q->bin ? AMP_DATA(float, q->bin) : &ignored;
    amp__touch(grad->value);
    amp__touch(q->coefficient);
    status = amp__devices[grad->value->device].check_scale(grad->value, AMP_DATA(float, q->coefficient), f);
    amp__bump(grad->value);
  }
  if (valid && !status) grad->version = amp__version(grad->value);
  if (!status) amp__grad_from(grad, origin);
  return status;
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
    amp_attrs attrs = amp__attrs();
    attrs.v[attrs.n++].i = AMP_NONE;
    amp__attrs_float(&attrs, 1);
    amp_tensor *c = OP_NUMBER(add, norm, 1e-6);
    if (c) c = NUMBER_OP(div, max_norm, c);
    if (c) c = amp__op(AMP_OP_clamp, &attrs, 1, &c);
    *c64 = amp__keep(c);
    *c32 = c ? amp__keep(amp__op_cast(c, AMP_FLOAT32)) : NULL;
    amp__pool_release(mark);
  }
  return *c32 && *c64 ? 0 : amp__S->err.code;
}

/* total += part, or the larger of both where p is infinite; takes part. */
static int join(amp_tensor **total, amp_tensor *part, bool infinite)
{
  if (!*total) {
    *total = part;
    return 0;
  }
  if (part->device == AMP_CPU && (*total)->device == AMP_CPU) {
    double *a = AMP_DATA(double, *total), b = *AMP_DATA(double, part);
    *a = infinite ? (b > *a || isnan(b) ? b : *a) : *a + b;
    amp__free(part);
    return 0;
  }
  int mark = amp__pool_mark();
  amp_tensor *moved = amp__pooled(amp__cell_copy(part, (*total)->device, (*total)->device_index));
  amp_tensor *sum = moved ? amp__keep(infinite ? OP2(maximum, *total, moved) : OP2(add, *total, moved)) : NULL;
  amp__pool_release(mark);
  amp__free(part);
  if (!sum) return amp__S->err.code;
  amp__free(*total);
  *total = sum;
  return 0;
}

/* The sum for all gradients by the device's own kernel, where they lie on one device without gaps; 0: not so. */
static int parts_at_once(amp_tensor *const *leaf, int count, double p, amp_tensor **total)
{
  amp_tensor **v = malloc((sizeof *v + sizeof(float *)) * (size_t)(count ? count : 1));
  if (!v) return amp__nomem(sizeof *v * (size_t)count);
  const float **f = (const float **)(v + count);
  int m = 0, status = 0;
  for (int i = 0; i < count; i++) {
    const amp_grad *grad = amp__grad_of(leaf[i]);
    if (!grad) continue;
    const amp_tensor *tensor = grad->value, *first = m ? v[0] : tensor;
    if (!amp__devices[tensor->device].norm_many || !(tensor->flags & AMP_T_DENSE) || tensor->device != first->device
        || tensor->device_index != first->device_index)
      goto out;
    f[m] = grad->factor ? AMP_DATA(float, grad->factor) : NULL;
    v[m++] = grad->value;
    if (amp_unlikely(amp__capturing)) {
      amp__capture_note(grad->value);
      amp__capture_note(grad->factor);
    }
    amp__touch(grad->value);
    amp__touch(grad->factor);
  }
  if (m == 0) goto out;
  status = -1;
  if ((*total = amp__cell(AMP_FLOAT64, v[0]->device, v[0]->device_index, 0)))
    status = amp__devices[v[0]->device].norm_many(v, f, m, p, AMP_DATA(double, *total));
  status = status < 0 ? amp__S->err.code : 1;
out:
  free(v);
  return status;
}

/* The p-norm of all gradients as a float64 cell; 0 on the CPU if there are none. */
static int total_norm(amp_tensor *const *leaf, int count, double p, amp_tensor **total)
{
  bool infinite = isinf(p);
  int done = parts_at_once(leaf, count, p, total);
  if (done < 0) return done;
  for (int i = 0; i < count && !done; i++) {
    const amp_grad *grad = amp__grad_of(leaf[i]);
    if (!grad) continue;
    amp_tensor *part = norm_part(grad, p);
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
  amp_tensor *root = amp__keep(OP_NUMBER(pow, *total, 1 / p));
  amp__pool_release(mark);
  if (!root) return amp__S->err.code;
  amp__free(*total);
  *total = root;
  return 0;
}

typedef struct place {
  amp_tensor *c32, *c64;
} place; /* the coefficient on a device */

/* Gradients multiplied in place that others may hold as well: one that several parameters have is multiplied once. */
typedef struct shared {
  int count;
  struct {
    const amp_tensor *value;
    uint32_t before;
  } * done;
} shared;

static bool done_before(const shared *s, amp_grad *grad)
{
  for (int i = 0; i < s->count; i++)
    if (amp__same_place(s->done[i].value, grad->value)) {
      if (grad->check && grad->version == s->done[i].before)
        grad->version = amp__version(grad->value); /* its check was right, and stays so */
      if (grad->made == s->done[i].before) grad->made = amp__version(grad->value);
      return true;
    }
  return false;
}

static bool others_hold(const amp_grad *grad)
{
  const amp_tensor *v = grad->value;
  return amp__grad_at_once(grad) && (v->refs > 1 || atomic_load_explicit(&v->storage->refs, memory_order_relaxed) > 1);
}

/* The coefficient in pl[0], on v's device */
static amp_tensor *coefficient_there(place *pl, int *npl, const amp_tensor *v)
{
  int j = 0;
  while (j < *npl && !(pl[j].c32->device == v->device && pl[j].c32->device_index == v->device_index)) j++;
  if (j == *npl) {
    if (j == AMP_MAX_PLACES) {
      amp__fail(AMP_E_UNSUPPORTED, "gradients on more than %d devices", AMP_MAX_PLACES);
      return NULL;
    }
    pl[j].c32 = amp__cell_copy(pl[0].c32, v->device, v->device_index);
    pl[j].c64 = pl[j].c32 ? amp__cell_copy(pl[0].c64, v->device, v->device_index) : NULL;
    if (!pl[j].c64) {
      amp__free(pl[j].c32);
      return NULL;
    }
    (*npl)++;
  }
  return v->dtype == AMP_FLOAT64 ? pl[j].c64 : pl[j].c32;
}

/* What multiplying every gradient by the coefficient takes. */
static int prepare_all(plan *q, shared *s, amp_tensor *const *leaf, int count, place *pl, int *npl,
                       amp__factor_product *factors)
{
  int status = amp__grads_part(leaf, count);
  for (int i = 0; i < count && !status; i++) {
    amp_grad *grad = amp__grad_of(leaf[i]);
    if (!grad) continue;
    if (others_hold(grad) && !s->done && !(s->done = malloc(sizeof *s->done * (size_t)count)))
      return amp__nomem(sizeof *s->done * (size_t)count);
    amp_tensor *c = coefficient_there(pl, npl, grad->value);
    status = c ? prepare(&q[i], grad, c, factors) : amp__S->err.code;
  }
  return status;
}

static int clip_all(plan *q, shared *s, amp_tensor *const *leaf, int count)
{
  int status = 0;
  for (int i = 0; i < count && !status; i++) {
    amp_grad *grad = amp__grad_of(leaf[i]);
    if (!grad) continue;
    if (others_hold(grad)) {
      if (done_before(s, grad)) continue;
      s->done[s->count].value = grad->value;
      s->done[s->count++].before = amp__version(grad->value);
    }
    status = clip_one(grad, &q[i]);
  }
  return status;
}

static int clip(amp_state *state, amp_ref *norm, amp_tensor *const *leaf, int count, double max_norm, double p)
{
  if (!(p > 0)) return amp__fail(AMP_E_VALUE, "the norm's p must be positive, got %g", p);
  if (isnan(max_norm)) return amp__fail(AMP_E_VALUE, "max_norm is not a number");
  amp__plain plain = amp__plain_begin();
  amp_tensor *total = NULL;
  place pl[AMP_MAX_PLACES] = { { 0 } };
  amp__factor_product m = { 0 };
  shared s = { 0 };
  plan *q = NULL;
  bool clips = false;
  int npl = 0, mark = amp__pool_mark(), status = total_norm(leaf, count, p, &total);
  if (status) goto out;
  if (max_norm >= 0) {
    if ((status = coefficient(total, max_norm, &pl[0].c32, &pl[0].c64))) {
      amp__free(pl[0].c32);
      amp__free(pl[0].c64);
      goto out;
    }
    npl = 1;
    clips = total->device != AMP_CPU || *AMP_DATA(double, pl[0].c64) != 1;
    if (clips && !(q = calloc((size_t)(count ? count : 1), sizeof *q))) {
      status = amp__nomem(sizeof *q * (size_t)count);
      goto out;
    }
    if (clips && (status = prepare_all(q, &s, leaf, count, pl, &npl, &m))) goto out;
  }
  if (total->device == AMP_CPU) norm->t = amp__cell(AMP_FLOAT32, AMP_CPU, 0, *AMP_DATA(double, total));
  else norm->t = amp__keep(amp__op_cast(total, AMP_FLOAT32));
  if (!norm->t) status = state->err.code;
  else if (clips && (status = clip_all(q, &s, leaf, count))) {
    amp__free(norm->t);
    norm->t = NULL;
  }
out:
  for (int i = 0; i < count && q; i++) {
    amp__free(q[i].factor);
    amp__free(q[i].bin);
  }
  free(q);
  free(s.done);
  for (int i = 0; i < npl; i++) {
    amp__free(pl[i].c32);
    amp__free(pl[i].c64);
  }
  amp__free(total);
  amp__factor_product_end(&m);
  amp__pool_release(mark);
  amp__plain_end(plain);
  return status;
}

int amp_clip_grad_norm(amp_state *state, amp_ref *norm, amp_tensor *const *leaf, int count, double max_norm, double p)
{
  amp_frame frame;
  AMP_ENTER(state);
  if (amp__trace_refuse("gradients are clipped", NULL) < 0) return state->err.code;
  bool watched = amp_unlikely(amp__observing()) && amp__observe_begin(&frame, AMP_SPAN_CLIP, 0, 0);
  int status = clip(state, norm, leaf, count, max_norm, p);
  if (watched) amp__observe_end(&frame, status);
  return status;
}
