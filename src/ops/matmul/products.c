/*
** ops/matmul/products.c: rows cross and addr, products without a sum over more than two.
**
** cross is the vector product along a dimension of size 3. Each component is one
** element-wise pass over the other dimensions:
**
**   out[0] = a[1] b[2] - a[2] b[1]     and so on, indices turning
**
** The two products are rounded alike, so a x a is exactly 0. addr is
** beta * input + alpha * outer(vec1, vec2) in one pass.
*/
#include "cpu/strided.h"
#include "cpu/vector_math.h"

#ifdef __clang__
#define ROUND_BOTH
#define ROUND_BOTH_INSIDE _Pragma("clang fp contract(off)")
#else
#define ROUND_BOTH __attribute__((optimize("fp-contract=off")))
#define ROUND_BOTH_INSIDE
#endif

/* beta and alpha in each computing type: float, double, integer */
typedef struct coefficients {
  float beta_f, alpha_f;
  double beta_d, alpha_d;
  int64_t beta_i, alpha_i;
} coefficients;

#define number float
#define wide float
#define CLONES AMP_CLONES
#define NAME(x) x##_f
#include "ops/matmul/products_body.h"
#define number double
#define wide double
#define CLONES AMP_CLONES_WIDE
#define NAME(x) x##_d
#include "ops/matmul/products_body.h"
#define number int64_t
#define wide uint64_t
#define CLONES AMP_CLONES_WIDE
#define NAME(x) x##_i
#include "ops/matmul/products_body.h"

/* The tensor's component k along dimension dim of the result, as an operand over the others */
static void component(amp_operand *o, const amp_tensor *tensor, int cls, const amp_tensor *result, int dim, int k)
{
  amp__operand(o, tensor, cls, result->ndim, result->size);
  o->p += k * o->stride[dim] * amp__dtype_size[tensor->dtype];
  for (int d = dim; d < result->ndim - 1; d++) o->stride[d] = o->stride[d + 1];
}

int amp__cpu_cross(amp_call *call)
{
  static const amp_loop_fn loops[3] = { cross_f, cross_d, cross_i };
  amp_tensor *a = call->in[0], *b = call->in[1], *out = call->out[0];
  int dim = (int)AMP_ARGS(call, cross)->dim, cls = amp__class_of(out->dtype, call->in, 2), count = 0;
  int64_t size[AMP_MAX_DIM];
  for (int d = 0; d < out->ndim; d++)
    if (d != dim) size[count++] = out->size[d];
  for (int k = 0; k < 3; k++) {
    int i = (k + 1) % 3, j = (k + 2) % 3;
    amp_operand o[5];
    amp_loop l = { loops[cls], NULL, 1, 0, 3 };
    component(&o[0], out, cls, out, dim, k);
    component(&o[1], a, cls, out, dim, i);
    component(&o[2], b, cls, out, dim, j);
    component(&o[3], a, cls, out, dim, j);
    component(&o[4], b, cls, out, dim, i);
    amp__iterate(&l, count, size, 5, o);
  }
  return 0;
}

/* -- addr ------------------------------------------------------------------------ */

int amp__cpu_addr(amp_call *call)
{
  static const amp_loop_fn loops[3] = { addr_f, addr_d, addr_i };
  amp_tensor *out = call->out[0];
  double beta = AMP_ARGS(call, addr)->beta, alpha = AMP_ARGS(call, addr)->alpha;
  int cls = amp__dtype_class[out->dtype];
  coefficients k = { .beta_d = beta, .alpha_d = alpha };
  if (cls == AMP_C_I64) { /* both are whole numbers: the shape rule saw to that */
    k.beta_i = (int64_t)beta;
    k.alpha_i = (int64_t)alpha;
  } else {
    k.beta_f = (float)beta;
    k.alpha_f = (float)alpha;
  }
  amp_loop l = { loops[cls], &k, 1, 4, 3 };
  amp_operand o[4];
  for (int i = 0; i < 4; i++) amp__operand(&o[i], i ? call->in[i - 1] : out, cls, 2, out->size);
  o[2].stride[0] = o[2].stride[1]; /* vec1 runs along the rows */
  o[2].stride[1] = 0;
  amp__iterate(&l, 2, out->size, 4, o);
  return 0;
}
