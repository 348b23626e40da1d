/*
** linear.c: the C API alone, no Lua. Fits y = x . w + b by SGD with momentum in
** float16 autocast with dynamic loss scaling. The first steps overflow (the
** scale starts too high), are skipped, and the scale comes down by itself.
**
**   cc linear.c $(pkg-config --cflags --libs amp) -lm -o linear && ./linear
**
** examples/guide/embedding.md says what PKG_CONFIG_PATH is to be where LuaRocks installed amp.
*/
#include <math.h>
#include <stdio.h>
#include <amp.h>

enum { ROWS = 256, IN = 4, STEPS = 300 };

static amp_state *S;

/* Every call gives 0 or a negative code, and S->err says what was asked and got. */
#define TRY(call) do { if ((call) < 0) { fprintf(stderr, "%s: %s\n", S->err.op, S->err.message); goto out; } } while (0)

/* A region: matmul and linear take their inputs in float16, losses in float32. */
static void autocast(int on)
{
  S->autocast_on = S->autocast[AMP_CPU].enabled = (uint8_t)on;
  S->autocast[AMP_CPU].dtype = AMP_FLOAT16;
  S->autocast[AMP_CPU].cache = 1;
  S->autocast_depth += on ? 1 : -1;
  if (!on) amp_autocast_leave(S);
}

/* One step; *value is the loss, *skipped whether the gradients overflowed. */
static int step(const amp_ref *x, const amp_ref *y, amp_tensor *const *param, amp_scaler *scaler, amp_optim *optim,
                double *value, int *skipped)
{
  const amp_hyper hyper = { .lr = 0.05, .momentum = 0.9 };
  const amp_ref weight = { param[0] }, bias = { param[1] };
  amp_ref out = { NULL }, loss = { NULL }, scale = { NULL };
  amp_check *check = NULL;
  amp_engine *engine = NULL;
  int status = -1;

  autocast(1);
  int forward = amp_opx(S, AMP_OP_linear, &out, NULL, NULL, x, &weight, &bias, NULL, NULL, NULL);
  if (forward == 0) forward = amp_opx(S, AMP_OP_mse_loss, &loss, NULL, NULL, &out, y, NULL, NULL, NULL, NULL);
  autocast(0);
  TRY(forward);

  /* the gradient that backward starts from is the scale */
  TRY(amp_scaler_scale_tensor(S, &scale, scaler, AMP_CPU, 0));
  engine = amp_backward_begin(S, &loss.t, &scale.t, 1, NULL, 0, AMP_B_ACCUMULATE);
  TRY(engine ? 0 : -1);
  TRY(amp_backward_run(S, engine));

  /* unscale: 1/scale stays pending on the gradients, the step multiplies by it or does nothing */
  check = amp_check_new(S, scaler);
  TRY(check ? 0 : -1);
  TRY(amp_check_grads(S, check, param, 2, 1));
  TRY(amp_optim_step(S, optim, &hyper, 1));
  TRY(amp_scaler_update(S, scaler, &check, 1));
  TRY(amp_optim_clear_grad(S, optim, 0));
  TRY(amp_item(S, &loss, value));
  TRY(*skipped = amp_check_found(S, check));
  status = 0;
out:
  if (engine) amp_backward_end(S, engine);
  amp_check_free(check);
  amp_release(&scale);
  amp_release(&loss);
  amp_release(&out);
  return status;
}

int main(void)
{
  static const double truth[IN] = { 1, -2, 0.5, 3 };
  double data[ROWS * IN], target[ROWS], zeros[IN] = { 0 }, got[IN], offset, loss = NAN;
  const int64_t x_size[] = { ROWS, IN }, y_size[] = { ROWS, 1 }, w_size[] = { 1, IN }, b_size[] = { 1 };
  amp_ref x = { NULL }, y = { NULL }, w = { NULL }, b = { NULL };
  amp_scaler *scaler = NULL;
  amp_optim *optim = NULL;
  int status = 1, overflows = 0;

  S = amp_state_new();
  if (S == NULL) { fprintf(stderr, "no memory\n"); return 1; }
  for (int r = 0; r < ROWS; r++) {
    target[r] = 0.25;
    for (int i = 0; i < IN; i++) {
      data[r * IN + i] = sin(1.0 + r * (i + 1)); /* any spread of values does */
      target[r] += truth[i] * data[r * IN + i];
    }
  }
  TRY(amp_from_double(S, &x, data, 2, x_size, AMP_FLOAT32));
  TRY(amp_from_double(S, &y, target, 2, y_size, AMP_FLOAT32));
  TRY(amp_from_double(S, &w, zeros, 2, w_size, AMP_FLOAT32));
  TRY(amp_from_double(S, &b, zeros, 1, b_size, AMP_FLOAT32));
  TRY(amp_requires_grad(S, &w, 1));
  TRY(amp_requires_grad(S, &b, 1));

  amp_tensor *const param[] = { w.t, b.t };
  const amp_scaler_options options = { .init_scale = 1 << 20, .growth_factor = 2, .backoff_factor = 0.5,
                                       .min_scale = NAN, .max_scale = NAN, .growth_interval = 100, .hysteresis = 1 };
  scaler = amp_scaler_new(S, &options);
  TRY(scaler ? 0 : -1);
  optim = amp_optim_new(S, AMP_SGD);
  TRY(optim ? 0 : -1);
  TRY(amp_optim_add_group(S, optim, param, 2));

  for (int i = 0; i < STEPS; i++) {
    int skipped;
    if (step(&x, &y, param, scaler, optim, &loss, &skipped) < 0) goto out;
    overflows += skipped;
  }
  TRY(amp_read(S, &w, got, IN));
  TRY(amp_item(S, &b, &offset));
  printf("loss %.1e, %d steps skipped, w %.2f %.2f %.2f %.2f, b %.2f\n", loss, overflows, got[0], got[1], got[2], got[3], offset);
  status = loss < 1e-3 ? 0 : 1;
out:
  amp_optim_free(optim);
  amp_scaler_free(scaler);
  amp_release(&b);
  amp_release(&w);
  amp_release(&y);
  amp_release(&x);
  amp_state_free(S);
  return status;
}
