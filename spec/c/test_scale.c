/*
** test_scale.c: loss scaling and optimizer steps, through the public C API and
** leaves whose gradients are set by hand.
*/
#include "check.h"
#include <math.h>
#include "core.h"

#undef OK
#undef CHECK_EQ
#undef CHECK_NEAR
#define OK(call) CHECK((call) == 0)
#define CHECK_EQ(got, want) CHECK((long long)(got) == (long long)(want))
#define CHECK_NEAR(got, want, tolerance) CHECK(fabs((got) - (want)) <= (tolerance))

static amp_state *S;

static amp_ref vec(int dtype, int n, const double *v)
{
  amp_ref r = { 0 };
  int64_t size = n;
  OK(amp_from_double(S, &r, v, 1, &size, dtype));
  return r;
}
static amp_ref leaf(int n, const double *v)
{
  amp_ref r = vec(AMP_FLOAT32, n, v);
  OK(amp_requires_grad(S, &r, 1));
  return r;
}
/* A gradient as backward leaves it: not seen by the user, maybe 16 bits. */
static void raw_grad(const amp_ref *p, int dtype, int n, const double *v)
{
  amp_ref g = vec(dtype, n, v);
  OK(amp_grad_set(S, p, NULL));
  AMP_ENTER(S);
  S->grad_mode = 0; /* as backward without create_graph does */
  OK(amp__grad_accumulate(p->t, g.t, true));
  S->grad_mode = 1;
}
static double grad_at(const amp_ref *p, int i)
{
  amp_ref g = { 0 };
  double v[64];
  OK(amp_grad_get(S, &g, p));
  CHECK(g.t != NULL);
  OK(amp_read(S, &g, v, g.t->numel));
  amp_release(&g);
  return v[i];
}
static double at(const amp_ref *p, int i)
{
  double v[64];
  OK(amp_read(S, p, v, p->t->numel));
  return v[i];
}

static amp_scaler_options options(void)
{
  amp_scaler_options o = { 65536, 2, 0.5, NAN, NAN, 2000, 1 };
  return o;
}
static amp_scaler *scaler(amp_scaler_options o)
{
  amp_scaler *s = amp_scaler_new(S, &o);
  CHECK(s != NULL);
  return s;
}
static double scale_of(amp_scaler *s, int64_t *tracker, int64_t *left)
{
  double v = 0;
  OK(amp_scaler_get(S, s, &v, tracker, left));
  return v;
}
/* One iteration whose gradient is clean or not; the scale after it. */
static double iterate(amp_scaler *s, const amp_ref *p, bool overflow)
{
  double g = overflow ? INFINITY : 1;
  raw_grad(p, AMP_FLOAT16, 1, &g);
  amp_check *k = amp_check_new(S, s);
  OK(amp_check_grads(S, k, &p->t, 1, 1));
  CHECK_EQ(amp_check_found(S, k), overflow);
  OK(amp_scaler_update(S, s, &k, 1));
  amp_check_free(k);
  return scale_of(s, NULL, NULL);
}

static void trajectory(void)
{
  double one = 1;
  amp_ref p = leaf(1, &one);
  amp_scaler_options o = options();
  o.init_scale = 4;
  o.backoff_factor = 0.25;
  o.growth_interval = 2;
  amp_scaler *s = scaler(o);
  int64_t tracker = -1, left = -1;
  OK(amp_scaler_put(S, s, 4, 1, -1));
  CHECK_NEAR(iterate(s, &p, false), 8, 0);
  scale_of(s, &tracker, &left);
  CHECK_EQ(tracker, 0);
  CHECK_NEAR(iterate(s, &p, true), 2, 0);
  scale_of(s, &tracker, NULL);
  CHECK_EQ(tracker, 0);
  amp_scaler_free(s);

  o.init_scale = 128;
  o.backoff_factor = 0.5;
  o.growth_interval = 1;
  s = scaler(o);
  iterate(s, &p, false);
  iterate(s, &p, true);
  iterate(s, &p, false);
  CHECK_NEAR(iterate(s, &p, false), 128 * 8 * 0.5, 0);
  amp_scaler_free(s);

  o.growth_interval = 0; /* static: checks, never changes */
  s = scaler(o);
  CHECK_NEAR(iterate(s, &p, true), 128, 0);
  CHECK_NEAR(iterate(s, &p, false), 128, 0);
  amp_scaler_free(s);
  amp_release(&p);
}

static void bounds(void)
{
  double one = 1;
  amp_ref p = leaf(1, &one);
  amp_scaler_options o = options();
  o.init_scale = 3;
  o.growth_interval = 1;
  o.max_scale = 10;
  o.min_scale = 2;
  amp_scaler *s = scaler(o);
  CHECK_NEAR(iterate(s, &p, false), 6, 0);
  CHECK_NEAR(iterate(s, &p, false), 10, 0); /* 12 is too much: becomes max_scale */
  CHECK_NEAR(iterate(s, &p, true), 5, 0);
  CHECK_NEAR(iterate(s, &p, true), 2.5, 0);
  CHECK_NEAR(iterate(s, &p, true), 2, 0);
  CHECK_NEAR(iterate(s, &p, true), 2, 0);
  amp_scaler_free(s);

  o = options();
  o.init_scale = ldexp(1, 127);
  o.growth_interval = 1;
  s = scaler(o);
  CHECK_NEAR(iterate(s, &p, false), ldexp(1, 127), 0); /* 2^128 is no float32 */
  amp_scaler_free(s);

  o = options();
  o.init_scale = 64;
  o.hysteresis = 2;
  o.growth_interval = 2;
  s = scaler(o);
  CHECK_NEAR(iterate(s, &p, true), 64, 0);
  CHECK_NEAR(iterate(s, &p, true), 32, 0);
  CHECK_NEAR(iterate(s, &p, true), 16, 0);
  iterate(s, &p, false);
  CHECK_NEAR(iterate(s, &p, false), 32, 0); /* growth restores the hysteresis */
  CHECK_NEAR(iterate(s, &p, true), 32, 0);
  CHECK_NEAR(iterate(s, &p, true), 16, 0);
  amp_scaler_free(s);

  o.growth_factor = 0.5;
  CHECK(amp_scaler_new(S, &o) == NULL);
  o = options();
  o.min_scale = 5;
  o.max_scale = 4;
  CHECK(amp_scaler_new(S, &o) == NULL);
  amp_release(&p);
}

static void unscaling(void)
{
  double v[3] = { 1, 2, 3 }, big[3] = { 8, 16, NAN };
  amp_ref p = leaf(3, v), q = leaf(3, v);
  amp_scaler_options o = options();
  o.init_scale = 4;
  amp_scaler *s = scaler(o);
  amp_check *k = amp_check_new(S, s);
  double g[3] = { 8, 16, -4 };
  raw_grad(&p, AMP_FLOAT16, 3, g); /* stays 16 bits, factor pending */
  OK(amp_check_grads(S, k, &p.t, 1, 1));
  CHECK(p.t->ag->grad.value->dtype == AMP_FLOAT16 && p.t->ag->grad.factor != NULL);
  OK(amp_check_grads(S, k, &p.t, 1, 1)); /* again: not looked at */
  CHECK_NEAR(grad_at(&p, 0), 2, 0);
  CHECK_NEAR(grad_at(&p, 2), -1, 0);
  CHECK(amp__check_valid(&p.t->ag->grad)); /* reading changes nothing */
  /* the user holds the tensor: multiplied in place, the same tensor */
  amp_ref h = vec(AMP_FLOAT32, 3, g);
  OK(amp_grad_set(S, &q, &h));
  OK(amp_check_grads(S, k, &q.t, 1, 1));
  CHECK_NEAR(at(&h, 1), 4, 0);
  CHECK_EQ(amp_check_found(S, k), 0);
  /* changed since: void; a recheck does not unscale again */
  amp_slot f = { .f = INFINITY };
  OK(amp_opx(S, AMP_OP_fill | AMP_INPLACE, NULL, NULL, NULL, &h, NULL, NULL, NULL, NULL, &f));
  CHECK(!amp__check_valid(&q.t->ag->grad));
  OK(amp_check_grads(S, k, &q.t, 1, 0));
  CHECK_EQ(amp_check_found(S, k), 1);
  amp_check_free(k);

  /* a snapshot outlives updates */
  k = amp_check_new(S, s);
  raw_grad(&p, AMP_FLOAT32, 3, g);
  OK(amp_check_grads(S, k, &p.t, 1, 1));
  OK(amp_scaler_put(S, s, 1024, 0, -1));
  CHECK_NEAR(grad_at(&p, 0), 2, 0);
  amp_check_free(k);

  /* both infinities and NaN, wherever they stand, in each dtype */
  for (int dt = AMP_FLOAT32; dt <= AMP_BFLOAT16; dt++) {
    k = amp_check_new(S, s);
    raw_grad(&p, dt, 3, big);
    OK(amp_check_grads(S, k, &p.t, 1, 1));
    CHECK_EQ(amp_check_found(S, k), 1);
    amp_check_free(k);
  }
  amp_scaler_free(s);
  amp_release(&h);
  amp_release(&p);
  amp_release(&q);
}

static void half_parameters(void)
{
  double one = 1;
  amp_ref p = vec(AMP_FLOAT16, 1, &one), g = vec(AMP_FLOAT16, 1, &one);
  OK(amp_requires_grad(S, &p, 1));
  OK(amp_grad_set(S, &p, &g));
  amp_scaler *s = scaler(options());
  amp_check *k = amp_check_new(S, s);
  CHECK(amp_check_grads(S, k, &p.t, 1, 1) == AMP_E_DTYPE);
  CHECK(strstr(S->err.message, "keep parameters in float32") != NULL);
  OK(amp_check_grads(S, k, &p.t, 1, 3)); /* meant: O3 */
  amp_check_free(k);
  amp_scaler_free(s);
  amp_release(&p);
  amp_release(&g);
}

static amp_hyper hyper(void)
{
  amp_hyper h = { .lr = 0.5, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 };
  return h;
}

static void skipping(void)
{
  double v[2] = { 1, 2 }, g[2] = { 2, 4 }, bad[2] = { 2, INFINITY };
  amp_ref p = leaf(2, v), q = leaf(2, v), st = { 0 };
  amp_tensor *params[2] = { p.t, q.t };
  amp_optim *o = amp_optim_new(S, AMP_ADAM);
  CHECK_EQ(amp_optim_add_group(S, o, params, 2), 0);
  amp_scaler_options so = options();
  so.init_scale = 2;
  amp_scaler *s = scaler(so);
  amp_hyper h = hyper();
  double steps = -1;
  /* overflow in one: nothing of either changes */
  amp_check *k = amp_check_new(S, s);
  raw_grad(&p, AMP_FLOAT16, 2, g);
  raw_grad(&q, AMP_FLOAT16, 2, bad);
  OK(amp_check_grads(S, k, params, 2, 1));
  OK(amp_optim_step(S, o, &h, 1));
  CHECK_NEAR(at(&p, 0), 1, 0);
  OK(amp_optim_state(S, &st, o, 0, 0, 0));
  CHECK(st.t == NULL);
  OK(amp_optim_get_steps(S, o, 0, 0, &steps));
  CHECK_NEAR(steps, 0, 0);
  amp_check_free(k);
  /* clean: the first step of Adam moves by lr */
  k = amp_check_new(S, s);
  raw_grad(&p, AMP_FLOAT16, 2, g);
  raw_grad(&q, AMP_BFLOAT16, 2, g);
  OK(amp_check_grads(S, k, params, 2, 1));
  OK(amp_optim_step(S, o, &h, 1));
  CHECK_NEAR(at(&p, 0), 0.5, 1e-6);
  CHECK_NEAR(at(&q, 1), 1.5, 1e-6);
  OK(amp_optim_state(S, &st, o, 0, 0, 0));
  CHECK_NEAR(at(&st, 0), 0.1, 1e-7);
  amp_release(&st);
  OK(amp_optim_get_steps(S, o, 0, 1, &steps));
  CHECK_NEAR(steps, 1, 0);
  amp_check_free(k);
  /* no gradient: untouched, its own step count */
  OK(amp_grad_set(S, &q, NULL));
  OK(amp_optim_step(S, o, &h, 1));
  CHECK_NEAR(at(&q, 1), 1.5, 1e-6);
  OK(amp_optim_get_steps(S, o, 0, 0, &steps));
  CHECK_NEAR(steps, 2, 0);
  /* changed after its check: checked again, by the step itself */
  k = amp_check_new(S, s);
  raw_grad(&p, AMP_FLOAT32, 2, g);
  OK(amp_check_grads(S, k, params, 1, 1));
  amp_ref held = { 0 };
  OK(amp_grad_get(S, &held, &p));
  amp_slot f = { .f = NAN };
  OK(amp_opx(S, AMP_OP_fill | AMP_INPLACE, NULL, NULL, NULL, &held, NULL, NULL, NULL, NULL, &f));
  double before = at(&p, 0);
  OK(amp_optim_step(S, o, &h, 1));
  CHECK_NEAR(at(&p, 0), before, 0);
  amp_release(&held);
  amp_check_free(k);
  amp_optim_free(o);
  amp_scaler_free(s);
  amp_release(&p);
  amp_release(&q);
}

static void sgd(void)
{
  double v[2] = { 1, 2 }, g[2] = { 2, 4 };
  amp_ref p = leaf(2, v), st = { 0 };
  amp_optim *o = amp_optim_new(S, AMP_SGD);
  CHECK_EQ(amp_optim_add_group(S, o, &p.t, 1), 0);
  CHECK(amp_optim_add_group(S, o, &p.t, 1) < 0);
  amp_hyper h = { .lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1 };
  double w = 1, b = 0;
  for (int i = 0; i < 3; i++) {
    raw_grad(&p, AMP_FLOAT32, 2, g);
    OK(amp_optim_step(S, o, &h, 1));
    double d = 2 + 0.1 * w;
    b = i == 0 ? d : 0.9 * b + 0.5 * d;
    w -= 0.1 * b;
    CHECK_NEAR(at(&p, 0), w, 1e-6);
  }
  OK(amp_optim_state(S, &st, o, 0, 0, 0));
  CHECK_NEAR(at(&st, 0), b, 1e-6);
  OK(amp_optim_clear_grad(S, o, 1));
  CHECK_NEAR(grad_at(&p, 0), 0, 0);
  OK(amp_optim_clear_grad(S, o, 0));
  CHECK(!amp_grad_defined(&p));
  amp_release(&st);
  amp_optim_free(o);
  amp_release(&p);
}

static void clipping(void)
{
  double v[2] = { 0, 0 }, g[2] = { 3 * 8, 4 * 8 };
  amp_ref p = leaf(2, v), norm = { 0 };
  amp_scaler_options so = options();
  so.init_scale = 8;
  amp_scaler *s = scaler(so);
  amp_check *k = amp_check_new(S, s);
  raw_grad(&p, AMP_FLOAT16, 2, g);
  OK(amp_check_grads(S, k, &p.t, 1, 1));
  OK(amp_clip_grad_norm(S, &norm, &p.t, 1, 1, 2));
  CHECK_NEAR(at(&norm, 0), 5, 1e-6);
  CHECK(amp__check_valid(&p.t->ag->grad));
  CHECK_NEAR(grad_at(&p, 0), 0.6, 1e-6);
  amp_release(&norm);
  OK(amp_clip_grad_norm(S, &norm, &p.t, 1, -1, INFINITY));
  CHECK_NEAR(at(&norm, 0), 0.8, 1e-6);
  amp_release(&norm);
  amp_check_free(k);
  amp_scaler_free(s);
  amp_release(&p);
}

/* Parameters with gaps, transposed, sharing a storage; gradients in another layout. */
static void layouts(void)
{
  double v[12] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 }, g[6] = { 1, 2, 3, 4, 5, 6 };
  amp_ref base = { 0 }, grad = { 0 };
  int64_t size[2] = { 3, 4 }, part[2] = { 3, 2 }, gsize[2] = { 3, 2 };
  OK(amp_from_double(S, &base, v, 2, size, AMP_FLOAT32));
  OK(amp_from_double(S, &grad, g, 2, gsize, AMP_FLOAT32));
  AMP_ENTER(S);
  int64_t stride[2] = { 4, 1 };
  amp_ref left = { amp__tensor_view(base.t, 2, part, stride, 0) },
          right = { amp__tensor_view(base.t, 2, part, stride, 2) };
  OK(amp_requires_grad(S, &left, 1));
  OK(amp_requires_grad(S, &right, 1));
  OK(amp_grad_set(S, &left, &grad));
  OK(amp_grad_set(S, &right, &grad));
  amp_tensor *params[2] = { left.t, right.t };
  amp_optim *o = amp_optim_new(S, AMP_SGD);
  CHECK_EQ(amp_optim_add_group(S, o, params, 2), 0);
  amp_hyper h = { .lr = 1, .momentum = 0.5 };
  for (int i = 0; i < 2; i++) OK(amp_optim_step(S, o, &h, 1));
  for (int r = 0; r < 3; r++)
    for (int c = 0; c < 4; c++) CHECK_NEAR(at(&base, r * 4 + c), v[r * 4 + c] - 2.5 * g[r * 2 + c % 2], 1e-6);
  amp_optim_free(o);
  amp_release(&left);
  amp_release(&right);
  amp_release(&base);
  amp_release(&grad);
}

/* Every allocation of an iteration fails once: an error, nothing lost, the next try goes through. */
static void starving(void)
{
  double v[40], g[40];
  for (int i = 0; i < 40; i++) {
    v[i] = 1;
    g[i] = 2;
  }
  for (int n = 1; n < 60; n++) {
    amp_ref p = leaf(40, v), norm = { 0 };
    amp_hyper h = hyper();
    amp_optim *o = NULL;
    amp_scaler *s = NULL;
    amp_check *k = NULL;
    amp_scaler_options so = options();
    so.init_scale = 2;
    raw_grad(&p, AMP_FLOAT16, 40, g);
    amp_fail_allocation(n);
    for (int try = 0; try < 2; try++) {
      int rc = 0;
      if (!o && !(o = amp_optim_new(S, AMP_ADAM))) rc = S->err.code;
      if (!rc && !s && !(s = amp_scaler_new(S, &so))) rc = S->err.code;
      if (!rc && !k && !(k = amp_check_new(S, s))) rc = S->err.code;
      if (!rc && !amp_same_storage(&p, &p)) rc = -1;
      if (!rc && try == 0) rc = amp_optim_add_group(S, o, &p.t, 1);
      if (!rc) rc = amp_check_grads(S, k, &p.t, 1, 1);
      if (!rc) rc = amp_clip_grad_norm(S, &norm, &p.t, 1, 1e9, 2);
      if (!rc) rc = amp_optim_step(S, o, &h, 1);
      if (!rc) rc = amp_scaler_update(S, s, &k, 1);
      if (!rc) break;
      CHECK_EQ(rc, AMP_E_MEMORY);
      if (try == 0 && amp_optim_add_group(S, o, &p.t, 1) < 0) CHECK(S->err.code == AMP_E_ARGUMENT); /* in it already */
      amp_release(&norm);
    }
    amp_fail_allocation(-1);
    double w = at(&p, 0);
    CHECK(fabs(w - 0.5) < 1e-5);
    amp_release(&norm);
    amp_check_free(k);
    amp_scaler_free(s);
    amp_optim_free(o);
    amp_release(&p);
  }
}

int main(void)
{
  S = amp_state_new();
  CHECK(S != NULL);
  trajectory();
  bounds();
  unscaling();
  half_parameters();
  skipping();
  sgd();
  clipping();
  layouts();
  starving();
  amp_state_free(S);
  return DONE();
}
