/*
** optim/step_body.h: the steps of NAdam, RAdam, Adadelta, Adamax and Lion, for one type (cpu/each_real.h). A step goes
** over n elements of a parameter p, its gradient g and its states; what is the same for all elements is in consts.
** Formulas: PyTorch's; Lion's are Chen et al., 2023, algorithm 2.
*/
#define READ(field) ((real)consts->field)

CLONES static void NAME(nadam)(real *restrict p, const real *restrict g, real *restrict m, real *restrict v, int64_t n,
                               const consts *consts)
{
  const real f = READ(factor), wd = READ(weight_decay), decay = READ(decay), a = READ(beta1_), b = READ(beta2),
             b_ = READ(beta2_), now = READ(correct), step = READ(step), root = READ(root), eps = READ(eps);
  for (int64_t i = 0; i < n; i++) {
    real w = p[i] * decay, x = f * g[i] + wd * p[i];
    real m1 = m[i] + a * (x - m[i]), v1 = b * v[i] + b_ * (x * x);
    m[i] = m1;
    v[i] = v1;
    p[i] = w - (now * x + step * m1) / (SQRT(v1) * root + eps);
  }
}

/* While the variance of the second moment is not tractable (not consts->first), the step is the momentum's. */
CLONES static void NAME(radam)(real *restrict p, const real *restrict g, real *restrict m, real *restrict v, int64_t n,
                               const consts *consts)
{
  const real f = READ(factor), wd = READ(weight_decay), decay = READ(decay), a = READ(beta1_), b = READ(beta2),
             b_ = READ(beta2_), step = READ(step), eps = READ(eps), adapt = consts->first ? 1 : 0, plain = 1 - adapt;
  for (int64_t i = 0; i < n; i++) {
    real w = p[i] * decay, x = f * g[i] + wd * p[i];
    real m1 = m[i] + a * (x - m[i]), v1 = b * v[i] + b_ * (x * x);
    m[i] = m1;
    v[i] = v1;
    p[i] = w - step * m1 / (adapt * (SQRT(v1) + eps) + plain);
  }
}

CLONES static void NAME(adadelta)(real *restrict p, const real *restrict g, real *restrict square, real *restrict moved,
                                  int64_t n, const consts *consts)
{
  const real f = READ(factor), wd = READ(weight_decay), lr = READ(lr), keep = READ(alpha), in = READ(alpha_),
             eps = READ(eps);
  for (int64_t i = 0; i < n; i++) {
    real x = f * g[i] + wd * p[i], s = keep * square[i] + in * (x * x), d = moved[i];
    real delta = SQRT(d + eps) / SQRT(s + eps) * x;
    square[i] = s;
    moved[i] = keep * d + in * (delta * delta);
    p[i] -= lr * delta;
  }
}

CLONES static void NAME(adamax)(real *restrict p, const real *restrict g, real *restrict m, real *restrict top,
                                int64_t n, const consts *consts)
{
  const real f = READ(factor), wd = READ(weight_decay), a = READ(beta1_), b = READ(beta2), step = READ(step),
             eps = READ(eps);
  for (int64_t i = 0; i < n; i++) {
    real x = f * g[i] + wd * p[i], m1 = m[i] + a * (x - m[i]), old = b * top[i], new = ABS_OF(x) + eps;
    real most = old > new ? old : new;
    m[i] = m1;
    top[i] = most;
    p[i] -= step * m1 / most;
  }
}

CLONES static void NAME(lion)(real *restrict p, const real *restrict g, real *restrict m, int64_t n,
                              const consts *consts)
{
  const real f = READ(factor), decay = READ(decay), lr = READ(lr), a = READ(beta1_), b_ = READ(beta2_);
  for (int64_t i = 0; i < n; i++) {
    real x = f * g[i], u = m[i] + a * (x - m[i]);
    real sign = (real)(u > 0) - (real)(u < 0);
    m[i] += b_ * (x - m[i]);
    p[i] = p[i] * decay - lr * (u == u ? sign : u);
  }
}

#undef READ
