/*
** ops/pool/pool_composite.c: pooling as users call it: what their arguments may be and
** which windows they mean, in 1, 2 and 3 spatial dimensions alike. The work is
** done by the rows max_pool, avg_pool and unpool; lp_pool is powers around a
** mean. Attributes of `spatial` values fill the last of three places.
*/
#include <float.h>
#include <math.h>
#include "autograd/derivative.h"

typedef struct window {
  int64_t size[3], kernel[3], stride[3], padding[3], dilation[3];
} window;
static const window point = { { 1, 1, 1 }, { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 }, { 1, 1, 1 } };
static const char *const layout[] = { "", "C x L", "C x H x W", "C x D x H x W" };

#define LL(x) ((long long)(x))

static int want_rank(const amp_tensor *input, int spatial)
{
  if (input->ndim == spatial + 1 || input->ndim == spatial + 2) return 0;
  return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s, expected %s or N x %s",
                       amp__shape_str(input->ndim, input->size), layout[spatial], layout[spatial]);
}

/* One dimension of size count: kernel k, stride s, padding p, dilation d give *size windows. */
static int along(int64_t count, int dim, int64_t k, int64_t s, int64_t p, int64_t d, bool ceil_mode, int64_t *size)
{
  if (k < 1) return amp__fail(AMP_E_ARGUMENT, "kernel_size %lld must be at least 1", LL(k));
  if (s < 1) return amp__fail(AMP_E_ARGUMENT, "stride %lld must be at least 1", LL(s));
  if (d < 1) return amp__fail(AMP_E_ARGUMENT, "dilation %lld must be at least 1", LL(d));
  if (p < 0 || p > k / 2)
    return amp__fail(AMP_E_ARGUMENT, "padding %lld must lie in 0..%lld, half of kernel_size %lld", LL(p), LL(k / 2),
                     LL(k));
  if (k > INT32_MAX || s > INT32_MAX || d > INT32_MAX)
    return amp__fail(AMP_E_ARGUMENT, "kernel_size %lld, stride %lld or dilation %lld is too large", LL(k), LL(s),
                     LL(d));
  int64_t room = count + 2 * p - d * (k - 1) - 1;
  if (room < 0)
    return amp__fail(AMP_E_SHAPE,
                     "kernel of size %lld (dilation %lld) is larger than the padded input of size %lld (dimension %d)",
                     LL(k), LL(d), LL(count + 2 * p), dim + 1);
  *size = (room + (ceil_mode ? s - 1 : 0)) / s + 1;
  if (ceil_mode && (*size - 1) * s >= count + p) --*size; /* no window starts in the right padding */
  return 0;
}

/* Attributes may be NULL: their usual values; of stride also absent. */
static int windows(const amp_call *call, int spatial, const int64_t *kernel, const int64_t *stride,
                   const int64_t *padding, const int64_t *dilation, bool ceil_mode, window *window)
{
  const amp_tensor *input = call->in[0];
  int status = want_rank(input, spatial);
  *window = point;
  for (int i = 0; i < spatial && status == 0; i++) {
    int axis = 3 - spatial + i, dim = input->ndim - spatial + i;
    window->kernel[axis] = kernel[i];
    window->stride[axis] = stride[i] == AMP_NONE ? kernel[i] : stride[i];
    if (padding) window->padding[axis] = padding[i];
    if (dilation) window->dilation[axis] = dilation[i];
    status = along(input->size[dim], dim, window->kernel[axis], window->stride[axis], window->padding[axis],
                   window->dilation[axis], ceil_mode, &window->size[axis]);
  }
  return status;
}

/* output_size windows that share out the input: kernel 0 */
static int shares(const amp_call *call, int spatial, const int64_t *size, window *window)
{
  const amp_tensor *input = call->in[0];
  int status = want_rank(input, spatial);
  *window = point;
  if (status < 0) return status;
  for (int i = 0; i < 3; i++) window->kernel[i] = 0;
  for (int i = 0; i < spatial; i++) {
    int dim = input->ndim - spatial + i;
    if (size[i] < 1 || size[i] > INT32_MAX)
      return amp__fail(AMP_E_ARGUMENT, "output_size %lld must be at least 1 (and below 2^31)", LL(size[i]));
    if (input->size[dim] == 0)
      return amp__fail_arg(AMP_E_SHAPE, 1, "input has shape %s: dimension %d is empty",
                           amp__shape_str(input->ndim, input->size), dim + 1);
    window->size[3 - spatial + i] = size[i];
  }
  return 0;
}

static void put(amp_attrs *attrs, const int64_t *v)
{
  for (int i = 0; i < 3; i++) amp__attrs_int(attrs, v[i]);
}

static amp_attrs slots(int spatial, const window *window)
{
  amp_attrs attrs = amp__attrs();
  amp__attrs_int(&attrs, spatial);
  put(&attrs, window->size);
  put(&attrs, window->kernel);
  put(&attrs, window->stride);
  put(&attrs, window->padding);
  return attrs;
}

/* -- Largest values ---------------------------------------------------------------------- */

static int largest(amp_call *call, int spatial, const window *window, bool indices)
{
  amp_tensor *out[AMP_MAX_OUT];
  amp_attrs attrs = slots(spatial, window);
  put(&attrs, window->dilation);
  int status = amp__op_results(AMP_OP_max_pool, &attrs, 1, call->in, out);
  if (status == 0) status = amp__result(call, 0, out[0]);
  return status == 0 && indices ? amp__result(call, 1, out[1]) : status;
}

#define MAX_POOL(N)                                                                                              \
  int amp__comp_max_pool##N##d(amp_call *c)                                                                      \
  {                                                                                                              \
    const args_max_pool##N##d *args = AMP_ARGS(c, max_pool##N##d);                                               \
    window w;                                                                                                    \
    int rc = windows(c, N, args->kernel_size, args->stride, args->padding, args->dilation, args->ceil_mode, &w); \
    return rc < 0 ? rc : largest(c, N, &w, args->return_indices);                                                \
  }
MAX_POOL(1)
MAX_POOL(2)
MAX_POOL(3)

#define ADAPTIVE_MAX_POOL(N)                                                         \
  int amp__comp_adaptive_max_pool##N##d(amp_call *c)                                 \
  {                                                                                  \
    const args_adaptive_max_pool##N##d *args = AMP_ARGS(c, adaptive_max_pool##N##d); \
    window w;                                                                        \
    int rc = shares(c, N, args->output_size, &w);                                    \
    return rc < 0 ? rc : largest(c, N, &w, args->return_indices);                    \
  }
ADAPTIVE_MAX_POOL(1)
ADAPTIVE_MAX_POOL(2)
ADAPTIVE_MAX_POOL(3)

/* -- Means ---------------------------------------------------------------------------------- */

static amp_tensor *mean(amp_tensor *input, int spatial, const window *window, bool whole, int64_t divisor)
{
  amp_attrs attrs = slots(spatial, window);
  amp__attrs_int(&attrs, whole);
  amp__attrs_int(&attrs, divisor);
  return amp__op(AMP_OP_avg_pool, &attrs, 1, &input);
}

static int mean_of(amp_call *call, int spatial, const window *window, int64_t whole, int64_t divisor)
{
  if (divisor == 0) return amp__fail(AMP_E_ARGUMENT, "divisor_override is 0");
  return amp__result(call, 0, mean(call->in[0], spatial, window, whole, divisor));
}

#define AVG_POOL(N, DIVISOR)                                                                           \
  int amp__comp_avg_pool##N##d(amp_call *c)                                                            \
  {                                                                                                    \
    const args_avg_pool##N##d *args = AMP_ARGS(c, avg_pool##N##d);                                     \
    window w;                                                                                          \
    int rc = windows(c, N, args->kernel_size, args->stride, args->padding, NULL, args->ceil_mode, &w); \
    return rc < 0 ? rc : mean_of(c, N, &w, args->count_include_pad, DIVISOR);                          \
  }
AVG_POOL(1, AMP_NONE)
AVG_POOL(2, args->divisor_override)
AVG_POOL(3, args->divisor_override)

static int adaptive_avg_pool(amp_call *call, int count, const int64_t *size)
{
  window window;
  int status = shares(call, count, size, &window);
  return status < 0 ? status : mean_of(call, count, &window, false, AMP_NONE);
}

int amp__comp_adaptive_avg_pool1d(amp_call *call)
{
  return adaptive_avg_pool(call, 1, AMP_ARGS(call, adaptive_avg_pool1d)->output_size);
}
int amp__comp_adaptive_avg_pool2d(amp_call *call)
{
  return adaptive_avg_pool(call, 2, AMP_ARGS(call, adaptive_avg_pool2d)->output_size);
}
int amp__comp_adaptive_avg_pool3d(amp_call *call)
{
  return adaptive_avg_pool(call, 3, AMP_ARGS(call, adaptive_avg_pool3d)->output_size);
}

/* -- Norms ------------------------------------------------------------------------------------ */

/* The gradient of a root is 0, not infinity or NaN, where a window holds nothing but zeros. */
static amp_tensor *root(amp_tensor *input, double p)
{
  if (!input) return NULL;
  if (p < 0 || !amp__S->grad_mode || !amp__tracked(input)
      || amp__all_within(input, input->dtype == AMP_FLOAT64 ? DBL_MIN : FLT_MIN, INFINITY))
    return p == 2 ? OP1(sqrt, input) : OP_NUMBER(pow, input, 1 / p);
  amp_tensor *zero = OP_NUMBER(eq, input, 0), *output = amp__op_fill_where(zero, input, 1);
  return amp__op_mask_not(zero, p == 2 ? OP1(sqrt, output) : OP_NUMBER(pow, output, 1 / p));
}

/* (k * mean(input^p))^(1/p), k being the kernel's elements. Powers of 16-bit values are float32: they would
** overflow. */
static int lp_pool(amp_call *call, int count, double p, const int64_t *kernel, const int64_t *stride, int64_t ceil_mode)
{
  double k = 1;
  window window;
  amp_tensor *input = call->in[0];
  int dtype = input->dtype, status = windows(call, count, kernel, stride, NULL, NULL, ceil_mode != 0, &window);
  if (status < 0) return status;
  if (!isfinite(p) || p == 0)
    return amp__fail(AMP_E_ARGUMENT, "norm_type %g must be finite and not 0; for infinity use max_pool", p);
  for (int i = 0; i < 3; i++) k *= (double)window.kernel[i];
  input = amp__op_cast(input, dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32);
  input = p == 2 ? OP1(square, input) : p == 1 ? input : OP_NUMBER(pow, input, p);
  if (!input) return amp__err();
  input = OP_NUMBER(mul, mean(input, count, &window, true, AMP_NONE), k);
  return amp__result(call, 0, amp__op_cast(p == 1 ? input : root(input, p), dtype));
}

#define LP_POOL(N)                                                                           \
  int amp__comp_lp_pool##N##d(amp_call *c)                                                   \
  {                                                                                          \
    const args_lp_pool##N##d *args = AMP_ARGS(c, lp_pool##N##d);                             \
    return lp_pool(c, N, args->norm_type, args->kernel_size, args->stride, args->ceil_mode); \
  }
LP_POOL(1)
LP_POOL(2)
LP_POOL(3)

/* -- Back to places ------------------------------------------------------------------------------ */

/* output_size: `listed` values (AMP_NONE: not given), of `count` dimensions or of all */
static int max_unpool(amp_call *call, int count, const int64_t *kernel, const int64_t *stride, const int64_t *padding,
                      int64_t listed, const int64_t *output_size)
{
  const amp_tensor *input = call->in[0];
  int64_t shape[AMP_MAX_DIM];
  int status = want_rank(input, count);
  if (status < 0) return status;
  bool sized = listed != AMP_NONE;
  if (sized && listed != count && listed != input->ndim)
    return amp__fail(AMP_E_ARGUMENT, "output_size has %lld values, expected %d (or %d, the whole shape)", LL(listed),
                     count, input->ndim);
  for (int dim = 0; dim < input->ndim; dim++) shape[dim] = input->size[dim];
  for (int i = 0; i < count; i++) {
    int dim = input->ndim - count + i;
    int64_t k = kernel[i], s = stride[i] == AMP_NONE ? k : stride[i], p = padding[i];
    if (k < 1 || k > INT32_MAX) return amp__fail(AMP_E_ARGUMENT, "kernel_size %lld must be at least 1", LL(k));
    if (s < 1 || s > INT32_MAX) return amp__fail(AMP_E_ARGUMENT, "stride %lld must be at least 1", LL(s));
    if (p < 0 || p > INT32_MAX) return amp__fail(AMP_E_ARGUMENT, "padding %lld must be at least 0", LL(p));
    int64_t usual = (input->size[dim] - 1) * s - 2 * p + k;
    shape[dim] = sized ? output_size[i + (listed - count)] : usual;
    if (sized && (shape[dim] <= usual - s || shape[dim] >= usual + s))
      return amp__fail(AMP_E_ARGUMENT, "output_size %lld of dimension %d must lie between %lld and %lld",
                       LL(shape[dim]), dim + 1, LL(usual - s + 1), LL(usual + s - 1));
    if (shape[dim] < 1)
      return amp__fail(AMP_E_SHAPE, "dimension %d of the result would have %lld elements", dim + 1, LL(shape[dim]));
  }
  amp_attrs attrs = amp__attrs();
  amp__attrs_list(&attrs, input->ndim, shape);
  amp__attrs_int(&attrs, count);
  return amp__result(call, 0, amp__op(AMP_OP_unpool, &attrs, 2, call->in));
}

#define MAX_UNPOOL(N)                                                                            \
  int amp__comp_max_unpool##N##d(amp_call *c)                                                    \
  {                                                                                              \
    const args_max_unpool##N##d *args = AMP_ARGS(c, max_unpool##N##d);                           \
    return max_unpool(c, N, args->kernel_size, args->stride, args->padding, args->output_size.n, \
                      args->output_size.at);                                                     \
  }
MAX_UNPOOL(1)
MAX_UNPOOL(2)
MAX_UNPOOL(3)
