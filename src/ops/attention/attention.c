/*
** ops/attention/attention.c: rows attention and attention_backward (the private ones
** under scaled_dot_product_attention): sizes of blocks, scratch and threads.
** The loops are in ops/attention/attention_rows.h. 16-bit data is computed in float32 and
** rounded once.
**
** Memory besides the results is a block of scores and the packed keys and
** values of one batch a thread (backward: queries and gradients of one batch);
** never a matrix of all scores.
*/
#include "ops/attention/attention.h"
#include "cpu/strided.h"

/* 56 rows (whole register kernels) against 256 keys: read by the products where they lie, without packing */
enum { BLOCK_ROWS = 56, BLOCK_KEYS = 256 };
_Static_assert((int)BLOCK_KEYS <= (int)AMP_RNG_BLOCK, "a row of a block lies in two blocks of random words");

static int setup(attention *job, amp_tensor *const *inputs)
{
  const amp_tensor *q = inputs[0], *k = inputs[1], *v = inputs[2];
  int ndim = q->ndim;
  job->query = q;
  job->key = k;
  job->value = v;
  job->type = amp__compute_dtype(q->dtype);
  job->length = q->size[ndim - 2];
  job->size = q->size[ndim - 1];
  job->keys = k->size[ndim - 2];
  job->value_size = v->size[ndim - 1];
  job->batch = 1;
  for (int dim = 0; dim < ndim - 2; dim++) job->batch *= q->size[dim];
  job->block_rows = job->length < BLOCK_ROWS ? job->length : BLOCK_ROWS;
  job->block_keys = job->keys < BLOCK_KEYS ? job->keys : BLOCK_KEYS;
  if (job->block_keys == 0) job->block_keys = 1;
  job->chunks = 1;
  return job->batch > 0 && job->length > 0;
}

/* draw: where the random numbers of dropout with probability p begin */
static void drop(attention *job, double p, const amp_tensor *draw)
{
  const uint64_t *from = AMP_DATA(const uint64_t, draw);
  double least = p * 0x1p32; /* may round up to 2^32 just below 1 */
  job->dropping = true;
  job->seed = from[0];
  job->counter = from[1];
  job->least = least > 4294967295.0 ? 4294967295u : (uint32_t)least;
  job->kept_scale = p < 1 ? 1 / (1 - p) : 0;
}

static void no_pack(const void *ctx, int64_t k0, int64_t kc, int64_t i0, int64_t ni, int width, void *dst)
{
  (void)ctx;
  (void)k0;
  (void)kc;
  (void)i0;
  (void)ni;
  (void)width;
  (void)dst;
}

/* Enough scratch for each product that the loops make, and for the smaller ones at the edges */
static void plan_products(attention *job)
{
  int64_t sizes[4] = { job->block_rows, job->block_keys, job->size, job->value_size };
  job->gemm_bytes = 0;
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++)
      for (int k = 0; k < 4; k++) {
        if (i == j || j == k || i == k) continue;
        /* packers make it ask for both operands; C by columns, for the turned product too */
        amp_gemm gemm
            = { .m = sizes[i], .n = sizes[j], .k = sizes[k], .pack_a = no_pack, .pack_b = no_pack, .ccs = 1, .crs = 2 };
        size_t n = amp__gemm_scratch(&gemm, job->type);
        if (n > job->gemm_bytes) job->gemm_bytes = n;
      }
  job->gemm_bytes = (job->gemm_bytes + 255) / 256 * 256 + 256;
}

static int run(attention *job, size_t elements, double flop, int64_t units, amp__range_fn body)
{
  amp__scratch scratch;
  int threads = flop < 2e6 ? 1 : amp__threads_for((int64_t)(flop / 32), units);
  job->each = (job->gemm_bytes + elements * amp__dtype_size[job->type] + 4095) / 4096 * 4096;
  if (!amp__scratch_lend(&scratch, NULL, 0, job->each * (size_t)threads)) return AMP_E_MEMORY;
  job->scratch = scratch.p;
  amp__parallel_ranges(threads, units, body, job);
  amp__scratch_return(&scratch);
  return 0;
}

static double work(const attention *job)
{
  double pairs = (double)job->length * (double)job->keys * (job->causal ? 0.5 : 1.0);
  return 2.0 * (double)job->batch * pairs * (double)(job->size + job->value_size);
}

/* -- Forward ---------------------------------------------------------------------- */

static void forward_body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const attention *job = ctx;
  char *scratch = job->scratch + (size_t)thread * job->each;
  int64_t blocks = (job->length + job->block_rows - 1) / job->block_rows;
  for (int64_t u = begin; u < end; u++) {
    int64_t batch = u / job->chunks, c = u % job->chunks, lo = blocks * c / job->chunks * job->block_rows,
            hi = blocks * (c + 1) / job->chunks * job->block_rows;
    if (hi > job->length) hi = job->length;
    if (lo >= hi) continue;
    if (job->type == AMP_FLOAT64) amp__attention_forward_f64(job, batch, lo, hi, scratch);
    else amp__attention_forward_f32(job, batch, lo, hi, scratch);
  }
}

int amp__cpu_attention(amp_call *call)
{
  const args_attention *args = AMP_ARGS(call, attention);
  attention job = { .mask = amp__input_or_null(call, 3),
                    .causal = args->is_causal != 0,
                    .scale = args->scale,
                    .kept_scale = 1,
                    .out = call->out[0],
                    .lse = call->out[1] };
  bool any = setup(&job, call->in) != 0;
  if (args->dropout_p > 0) {
    uint64_t *draw = AMP_DATA(uint64_t, call->out[2]);
    draw[0] = amp__S->seed;
    draw[1] = amp__rng_take((job.batch * job.length * job.keys + AMP_RNG_BLOCK - 1) / AMP_RNG_BLOCK);
    drop(&job, args->dropout_p, call->out[2]);
  }
  if (!any) return 0;
  plan_products(&job);
  double flop = work(&job);
  int threads = flop < 2e6 ? 1 : amp__threads((int64_t)(flop / 32));
  int64_t blocks = (job.length + job.block_rows - 1) / job.block_rows;
  if (job.batch < threads) { /* rows are shared too; each part packs the keys it needs */
    job.chunks = (threads + job.batch - 1) / job.batch;
    if (job.chunks > blocks) job.chunks = blocks;
  }
  size_t n = job.type == AMP_FLOAT64 ? amp__attention_forward_size_f64(&job) : amp__attention_forward_size_f32(&job);
  return run(&job, n, flop, job.batch * job.chunks, forward_body);
}

/* -- Backward -------------------------------------------------------------------------- */

static void backward_body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const attention *job = ctx;
  char *scratch = job->scratch + (size_t)thread * job->each;
  for (int64_t batch = begin; batch < end; batch++) {
    if (job->type == AMP_FLOAT64) amp__attention_backward_f64(job, batch, scratch);
    else amp__attention_backward_f32(job, batch, scratch);
  }
}

/* grad query key value out lse attn_mask? draw? */
int amp__cpu_attention_backward(amp_call *call)
{
  const args_attention_backward *args = AMP_ARGS(call, attention_backward);
  attention job = { .grad = call->in[0],
                    .out = call->in[4],
                    .lse = call->in[5],
                    .mask = amp__input_or_null(call, 6),
                    .causal = args->is_causal != 0,
                    .scale = args->scale,
                    .kept_scale = 1,
                    .dquery = call->out[0],
                    .dkey = call->out[1],
                    .dvalue = call->out[2] };
  amp_tensor *lse = NULL;
  int status = 0;
  if (!setup(&job, call->in + 1)) { /* no query: no gradient for keys either */
    if (amp__fill_value(call->out[1], 0) < 0) return AMP_E_INTERNAL;
    return amp__fill_value(call->out[2], 0);
  }
  if (args->dropout_p > 0) drop(&job, args->dropout_p, call->in[7]);
  plan_products(&job);
  if ((lse = amp__dense(call->in[5], job.type)) == NULL) return AMP_E_MEMORY;
  job.lse = lse;
  size_t n = job.type == AMP_FLOAT64 ? amp__attention_backward_size_f64(&job) : amp__attention_backward_size_f32(&job);
  status = run(&job, n, 2.5 * work(&job), job.batch, backward_body);
  amp__free(lse);
  return status;
}

/* -- What dropout kept ----------------------------------------------------------------- */

/* query key draw */
int amp__cpu_attention_kept(amp_call *call)
{
  amp_tensor *const in[3] = { call->in[0], call->in[1], call->in[1] }, *out = call->out[0], *y;
  double p = AMP_ARGS(call, attention_kept)->dropout_p;
  attention job = { .mask = NULL };
  if (!setup(&job, in) || job.keys == 0) return 0;
  if (p == 0 || p == 1) return amp__fill_value(out, p == 0);
  y = out->flags & AMP_T_CONTIGUOUS ? out : amp__tensor_make(AMP_BOOL, AMP_CPU, 0, out->ndim, out->size);
  if (y == NULL) return AMP_E_MEMORY;
  drop(&job, p, call->in[2]);
  uint8_t *to = AMP_DATA(uint8_t, y);
  attention_draw draw;
  draw.block = -1;
  draw.second = false;
  for (int64_t r = 0; r < job.batch * job.length; r++, to += job.keys)
    for (int64_t j = 0; j < job.keys; j += AMP_RNG_BLOCK) {
      int64_t count = job.keys - j < AMP_RNG_BLOCK ? job.keys - j : AMP_RNG_BLOCK;
      const uint32_t *words = attention_words(&job, &draw, r / job.length, r % job.length, j, count);
      for (int64_t c = 0; c < count; c++) to[j + c] = words[c] >= job.least;
    }
  if (y == out) return 0;
  int status = amp__copy_to(out, y);
  amp__free(y);
  return status;
}
