/*
** ops/reduce/product_body.h: the gradient of a line of cumprod, for one type (cpu/each_real.h): forward the product of
** all elements before, then backward times s = g + (next x) s. It is exact whatever is zero.
*/

static void NAME(line_gradient)(const product *job, int64_t count, int64_t g_at, int64_t x_at, int64_t o_at)
{
  const int64_t gs = job->grad->stride[job->dim], xs = job->input->stride[job->dim], os = job->output->stride[job->dim];
  const real *g = (const real *)amp__data(job->grad) + g_at, *x = (const real *)amp__data(job->input) + x_at;
  real *o = (real *)amp__data(job->output) + o_at, before = 1, sum = 0;
  for (int64_t i = 0; i < count; i++) {
    o[i * os] = before;
    before *= x[i * xs];
  }
  for (int64_t i = count - 1; i >= 0; i--) {
    sum = g[i * gs] + (i + 1 < count ? x[(i + 1) * xs] * sum : 0);
    o[i * os] *= sum;
  }
}
