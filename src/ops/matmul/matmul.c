/*
** ops/matmul/matmul.c: rows matmul and linear.
**
** Both become products over strides: transposed operands are read as they lie,
** and a batch whose second operand is one matrix joins the first one's rows,
** so (N x T x K) @ (K x M) is one product. 16-bit operands are widened first,
** results rounded once.
*/
#include "cpu/gemm.h"
#include "cpu/kernel_help.h"

typedef struct batch {
  amp_gemm gemm;
  int dtype;
  amp__walk walk; /* batch dimensions: offsets in a, b, c */
  const char *a, *b;
  char *c, *scratch;
  size_t each;
} batch;

static void batch_body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const batch *k = ctx;
  int64_t size = amp__dtype_size[k->dtype];
  amp__walk_pos p;
  amp__walk_seek(&k->walk, &p, begin);
  amp_gemm gemm = k->gemm;
  for (int64_t i = begin; i < end; i++, amp__walk_next(&k->walk, &p)) {
    gemm.a = k->a + p.off[0] * size;
    gemm.b = k->b + p.off[1] * size;
    gemm.c = k->c + p.off[2] * size;
    if (amp__is_float(k->dtype)) amp__gemm(&gemm, k->dtype, k->scratch + (size_t)thread * k->each);
    else amp__gemm_int(&gemm, k->dtype);
  }
}

/* The gemm's matrices, over a batch of ndim dimensions with strides sa, sb, sc */
static int run(batch *batch, int ndim, const int64_t *size, const int64_t *sa, const int64_t *sb, const int64_t *sc)
{
  char small[48 << 10] __attribute__((aligned(64)));
  amp_gemm *gemm = &batch->gemm;
  AMP_ASSERT(gemm->m >= 0 && gemm->n >= 0 && gemm->k >= 0 && gemm->a && gemm->b && gemm->c);
  batch->a = gemm->a;
  batch->b = gemm->b;
  batch->c = gemm->c;
  const int64_t *strides[3] = { sa, sb, sc };
  amp__walk_init(&batch->walk, ndim, size, 0, 3, strides);
  amp__walk *walk = &batch->walk;
  if (walk->n == 0 || gemm->m == 0 || gemm->n == 0) return 0;
  /* innermost batch dimensions of one B join the rows of A */
  while (walk->ndim > 0) {
    int dim = walk->ndim - 1;
    if (walk->stride[1][dim] != 0 || (gemm->bias && gemm->bias_rs)) break;
    if (gemm->m > 1 && (walk->stride[0][dim] != gemm->ars * gemm->m || walk->stride[2][dim] != gemm->crs * gemm->m))
      break;
    if (gemm->m == 1) {
      gemm->ars = walk->stride[0][dim];
      gemm->crs = walk->stride[2][dim];
    }
    gemm->m *= walk->size[dim];
    walk->n /= walk->size[dim];
    walk->ndim--;
  }
  double flop = 2.0 * (double)gemm->m * (double)gemm->n * (double)gemm->k;
  if (walk->n == 1) {
    if (!amp__is_float(batch->dtype)) {
      batch_body(batch, 0, 1, 0);
      return 0;
    }
    /* about 50 GFLOP/s a core against one elementary operation a nanosecond */
    return amp__gemm_threads(gemm, batch->dtype, flop < 2e6 ? 1 : amp__threads((int64_t)(flop / 32)));
  }
  flop *= (double)walk->n;
  int threads = flop < 2e6 ? 1 : amp__threads_for((int64_t)(flop / 32), walk->n);
  amp__scratch scratch = { 0 };
  if (amp__is_float(batch->dtype)) {
    batch->each = (amp__gemm_scratch(gemm, batch->dtype) + 255) / 256 * 256;
    if (!amp__scratch_lend(&scratch, small, sizeof small, batch->each * (size_t)threads)) return AMP_E_MEMORY;
    batch->scratch = scratch.p;
  }
  amp__parallel_ranges(threads, walk->n, batch_body, batch);
  amp__scratch_return(&scratch);
  return 0;
}

int amp__cpu_matmul(amp_call *call)
{
  amp_tensor *a = call->in[0], *b = call->in[1], *output = call->out[0];
  int type = amp__is_float(output->dtype) ? amp__compute_dtype(output->dtype) : output->dtype, status = AMP_E_MEMORY;
  amp__compute_view a_view = { 0 }, b_view = { 0 }, out_view = { 0 };
  if (!amp__compute_read(&a_view, a, type) || !amp__compute_read(&b_view, b, type)
      || !amp__compute_write(&out_view, output, type))
    goto out;
  batch batch = { .dtype = type };
  amp_gemm *gemm = &batch.gemm;
  int a_ndim = a->ndim, b_ndim = b->ndim, out_ndim = output->ndim;
  bool va1 = a_ndim == 1, vb1 = b_ndim == 1;
  gemm->a = a_view.p;
  gemm->b = b_view.p;
  gemm->c = out_view.p;
  gemm->m = va1 ? 1 : a->size[a_ndim - 2];
  gemm->k = a->size[a_ndim - 1];
  gemm->n = vb1 ? 1 : b->size[b_ndim - 1];
  gemm->ars = va1 ? 0 : a_view.stride[a_ndim - 2];
  gemm->acs = a_view.stride[a_ndim - 1];
  gemm->brs = b_view.stride[vb1 ? 0 : b_ndim - 2];
  gemm->bcs = vb1 ? 0 : b_view.stride[b_ndim - 1];
  int tail = (va1 ? 0 : 1) + (vb1 ? 0 : 1), ndim = out_ndim - tail;
  gemm->crs = va1 ? 0 : out_view.stride[ndim];
  gemm->ccs = vb1 ? 0 : out_view.stride[out_ndim - 1];
  if (va1) gemm->crs = gemm->ccs ? gemm->ccs * gemm->n : 1; /* a single row or column: any stride will do */
  if (vb1) gemm->ccs = 1;
  int64_t sa[AMP_MAX_DIM] = { 0 }, sb[AMP_MAX_DIM] = { 0 }, sc[AMP_MAX_DIM] = { 0 };
  int ba = a_ndim - 2, bb = b_ndim - 2; /* batch dimensions of each, aligned at the end */
  for (int dim = 0; dim < ndim; dim++) {
    int ia = ba - ndim + dim, ib = bb - ndim + dim;
    sa[dim] = ia >= 0 && a->size[ia] != 1 ? a_view.stride[ia] : 0;
    sb[dim] = ib >= 0 && b->size[ib] != 1 ? b_view.stride[ib] : 0;
    sc[dim] = out_view.stride[dim];
  }
  status = run(&batch, ndim, output->size, sa, sb, sc);
out:
  if (status == 0) amp__compute_written(&out_view, output, type);
  amp__compute_drop(&a_view);
  amp__compute_drop(&b_view);
  amp__compute_drop(&out_view);
  return status;
}

int amp__cpu_linear(amp_call *call)
{
  amp_tensor *input = call->in[0], *weight = call->in[1], *bias = call->nin > 2 ? call->in[2] : NULL,
             *output = call->out[0];
  int type = amp__compute_dtype(output->dtype), status = AMP_E_MEMORY;
  amp__compute_view input_view = { 0 }, weight_view = { 0 }, b_view = { 0 }, out_view = { 0 };
  if (!amp__compute_read(&input_view, input, type) || !amp__compute_read(&weight_view, weight, type)
      || (bias && !amp__compute_read(&b_view, bias, type)) || !amp__compute_write(&out_view, output, type))
    goto out;
  batch batch = { .dtype = type };
  amp_gemm *gemm = &batch.gemm;
  bool one = weight->ndim == 1; /* a single output without its dimension */
  int input_ndim = input->ndim, ndim = input_ndim > 1 ? input_ndim - 2 : 0;
  gemm->a = input_view.p;
  gemm->b = weight_view.p;
  gemm->c = out_view.p;
  gemm->m = input_ndim > 1 ? input->size[input_ndim - 2] : 1;
  gemm->k = input->size[input_ndim - 1];
  gemm->n = one ? 1 : weight->size[0];
  gemm->ars = input_ndim > 1 ? input_view.stride[input_ndim - 2] : gemm->k;
  gemm->acs = input_view.stride[input_ndim - 1];
  gemm->brs = weight_view.stride[weight->ndim - 1];
  gemm->bcs = one ? 0 : weight_view.stride[0];
  gemm->crs = input_ndim > 1 ? out_view.stride[input_ndim - 2] : gemm->n;
  gemm->ccs = one ? 1 : out_view.stride[output->ndim - 1];
  if (bias) {
    gemm->bias = b_view.p;
    gemm->bias_cs = bias->ndim ? b_view.stride[0] : 0;
  }
  int64_t zero[AMP_MAX_DIM] = { 0 };
  status = run(&batch, ndim, input->size, input_view.stride, zero, out_view.stride);
out:
  if (status == 0) amp__compute_written(&out_view, output, type);
  amp__compute_drop(&input_view);
  amp__compute_drop(&weight_view);
  amp__compute_drop(&b_view);
  amp__compute_drop(&out_view);
  return status;
}
