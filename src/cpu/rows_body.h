/*
** cpu/rows_body.h: the runs of cpu/rows.h over one type, included by cpu/rows.c for float
** and for double. The includer defines real and NAME(x), which are undefined at
** the end.
*/

/* 16 lanes added as a tree: a chain of additions takes as long as a short row */
static inline __attribute__((always_inline)) real NAME(lanes)(real *lane)
{
  for (int j = 0; j < 8; j++) lane[j] += lane[j + 8];
  for (int j = 0; j < 4; j++) lane[j] += lane[j + 4];
  return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

AMP_CLONES_OF(real) real NAME(amp__row_sum)(const real *x, int64_t count)
{
  real lane[256 / sizeof(real)], sum = 0;
  const int64_t lanes = 256 / sizeof(real);
  int64_t i = 0;
  if (count >= lanes) {
    for (int j = 0; j < lanes; j++) lane[j] = x[j];
    for (i = lanes; i + lanes <= count; i += lanes)
      for (int j = 0; j < lanes; j++) lane[j] += x[i + j];

#pragma omp simd reduction(+ : sum)
    for (int j = 0; j < lanes; j++) sum += lane[j];
  }

#pragma omp simd reduction(+ : sum)
  for (int64_t j = i; j < count; j++) sum += x[j];
  return sum;
}

AMP_CLONES_OF(real) real NAME(amp__row_dev)(const real *x, real mean, int64_t count)
{
  real a = 0, b = 0, c = 0, d = 0;
  int64_t quarter = count / 4;
  const real *x1 = x + quarter, *x2 = x1 + quarter, *x3 = x2 + quarter;

#pragma omp simd reduction(+ : a, b, c, d)
  for (int64_t i = 0; i < quarter; i++) {
    real u = x[i] - mean, v = x1[i] - mean, w = x2[i] - mean, z = x3[i] - mean;
    a += u * u;
    b += v * v;
    c += w * w;
    d += z * z;
  }
  for (int64_t i = 4 * quarter; i < count; i++) a += (x[i] - mean) * (x[i] - mean);
  return (a + b) + (c + d);
}

AMP_CLONES_OF(real) void NAME(amp__row_sums)(const real *g, const real *x, real mean, int64_t count, real *sum2)
{
  real lane[128 / sizeof(real)], square[128 / sizeof(real)], sum = 0, product = 0;
  const int64_t lanes = 128 / sizeof(real);
  int64_t i = 0;
  if (count >= lanes) {
    for (int j = 0; j < lanes; j++) {
      lane[j] = g[j];
      square[j] = g[j] * (x[j] - mean);
    }
    for (i = lanes; i + lanes <= count; i += lanes)
      for (int j = 0; j < lanes; j++) {
        lane[j] += g[i + j];
        square[j] += g[i + j] * (x[i + j] - mean);
      }

#pragma omp simd reduction(+ : sum, product)
    for (int j = 0; j < lanes; j++) {
      sum += lane[j];
      product += square[j];
    }
  }

#pragma omp simd reduction(+ : sum, product)
  for (int64_t j = i; j < count; j++) {
    sum += g[j];
    product += g[j] * (x[j] - mean);
  }
  sum2[0] = sum;
  sum2[1] = product;
}

AMP_CLONES_OF(real) void NAME(amp__row_affine)(real *y, const real *x, real a, real b, int64_t count)
{
  AMP_IVDEP
  for (int64_t i = 0; i < count; i++) y[i] = a * x[i] + b;
}

AMP_CLONES_OF(real)
void NAME(amp__row_affine2)(real *y, const real *g, const real *x, real a, real b, real c, int64_t count)
{
  AMP_IVDEP
  for (int64_t i = 0; i < count; i++) y[i] = a * g[i] + (b * x[i] + c);
}

AMP_CLONES_OF(real) void NAME(amp__row_moments)(const real *x, real mean, int64_t count, real *sum2)
{
  real lane[128 / sizeof(real)], square[128 / sizeof(real)], sum = 0, squares = 0;
  const int64_t lanes = 128 / sizeof(real);
  int64_t i = 0;
  if (count >= lanes) {
    for (int j = 0; j < lanes; j++) {
      real dev = x[j] - mean;
      lane[j] = dev;
      square[j] = dev * dev;
    }
    for (i = lanes; i + lanes <= count; i += lanes)
      for (int j = 0; j < lanes; j++) {
        real dev = x[i + j] - mean;
        lane[j] += dev;
        square[j] += dev * dev;
      }

#pragma omp simd reduction(+ : sum, squares)
    for (int j = 0; j < lanes; j++) {
      sum += lane[j];
      squares += square[j];
    }
  }

#pragma omp simd reduction(+ : sum, squares)
  for (int64_t j = i; j < count; j++) {
    real d = x[j] - mean;
    sum += d;
    squares += d * d;
  }
  sum2[0] = sum;
  sum2[1] = squares;
}

AMP_CLONES_OF(real) void NAME(amp__row_centre)(real *y, const real *x, real mean, real a, real b, int64_t count)
{
  AMP_IVDEP
  for (int64_t i = 0; i < count; i++) y[i] = a * (x[i] - mean) + b;
}

AMP_CLONES_OF(real)
void NAME(amp__row_centre2)(real *y, const real *g, const real *x, real mean, real r, real a, real b, real c,
                            int64_t count)
{
  AMP_IVDEP
  for (int64_t i = 0; i < count; i++) y[i] = a * g[i] + (b * ((x[i] - mean) * r) + c);
}

AMP_CLONES_OF(real) void NAME(amp__row_shift)(real *y, const real *x, real a, real b, int64_t count)
{
  AMP_IVDEP
  for (int64_t i = 0; i < count; i++) y[i] = (x[i] - a) - b;
}

AMP_CLONES_OF(real) real NAME(amp__row_max)(const real *x, int64_t count)
{
  real most[16], r = -INFINITY;
  for (int lane = 0; lane < 16; lane++) most[lane] = r;
  int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    for (int lane = 0; lane < 16; lane++) most[lane] = x[i + lane] > most[lane] ? x[i + lane] : most[lane];
  for (; i < count; i++) r = x[i] > r ? x[i] : r;
  for (int lane = 0; lane < 8; lane++) most[lane] = most[lane + 8] > most[lane] ? most[lane + 8] : most[lane];
  for (int lane = 0; lane < 4; lane++) most[lane] = most[lane + 4] > most[lane] ? most[lane + 4] : most[lane];
  for (int lane = 0; lane < 4; lane++) r = most[lane] > r ? most[lane] : r;
  return r;
}

AMP_CLONES_OF(real) real NAME(amp__row_exp)(real *y, const real *x, real mean, int64_t count)
{
  real lane[16];
  int64_t i = 0;
  for (int j = 0; j < 16; j++) lane[j] = 0;
  if (y) {
    for (; i + 16 <= count; i += 16)
      for (int j = 0; j < 16; j++) {
        real e = NAME(exp)(x[i + j] - mean);
        y[i + j] = e;
        lane[j] += e;
      }
    for (int64_t k = i; k < count; k++) {
      real e = NAME(exp)(x[k] - mean);
      y[k] = e;
      lane[k - i] += e;
    }
  } else {
    for (; i + 16 <= count; i += 16)
      for (int j = 0; j < 16; j++) lane[j] += NAME(exp)(x[i + j] - mean);
    for (int64_t k = i; k < count; k++) lane[k - i] += NAME(exp)(x[k] - mean);
  }
  return NAME(lanes)(lane);
}

#undef real
#undef NAME
