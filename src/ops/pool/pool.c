/*
** ops/pool/pool.c: rows max_pool, pool_gather, pool_scatter and unpool, and what they
** share with the means of ops/pool/pool_avg.c (ops/pool/pool.h).
**
** One kernel serves 1, 2 and 3 dimensions: everything is N C D H W. Work goes by
** planes and rows of output, or, channels innermost, by pixels. Places count from
** 1 in the flattened plane. NaN wins against everything; a window of -inf
** reports its first place.
*/
#include "ops/pool/pool.h"
#include "cpu/strided.h"

/* -- Sizes, strides, windows ------------------------------------------------------------- */

/* Sizes or strides as N C D H W; `one` stands for a dimension that is not there */
static void five(const amp_tensor *tensor, int spatial, const int64_t *v, int64_t one, int64_t *s)
{
  for (int i = 0; i < 5; i++) s[i] = one;
  for (int i = 0; i < spatial; i++) s[5 - spatial + i] = v[tensor->ndim - spatial + i];
  s[1] = v[tensor->ndim - spatial - 1];
  if (tensor->ndim == spatial + 2) s[0] = v[0];
}

void amp__pool_attributes(amp__pool *pool, const args_pool_windows *args)
{
  pool->spatial = (int)args->spatial;
  pool->shares = args->kernel_size[2] == 0;
  pool->divisor = AMP_NONE;
  for (int i = 0; i < 3; i++) {
    pool->kernel[i] = args->kernel_size[i];
    pool->stride[i] = args->stride[i];
    pool->padding[i] = args->padding[i];
    pool->dilation[i] = 1;
  }
}

static void window(amp__pool *pool, int a)
{
  int64_t n = pool->in_size[a], m = pool->out[a], k = pool->kernel[a], d = pool->dilation[a], pad = pool->padding[a];
  for (int64_t out_place = 0; out_place < m; out_place++) {
    int64_t s = out_place * pool->stride[a] - pad, end = s + (k - 1) * d + 1;
    if (k == 0) {
      s = (int64_t)((__int128)out_place * n / m);
      end = (int64_t)(((__int128)(out_place + 1) * n + m - 1) / m);
    }
    double len = (double)((end < n + pad ? end : n + pad) - s);
    if (s < 0) s += (-s + d - 1) / d * d;
    if (end > n) end = n;
    int64_t count = s < end ? (end - 1 - s) / d + 1 : 0;
    AMP_ASSERT(count == 0 || (s >= 0 && s + (count - 1) * d < n));
    pool->start[a][out_place] = s < n ? s : n - 1;
    pool->count[a][out_place] = count;
    pool->len[a][out_place] = pool->whole && k ? len : count > 0 ? (double)count : 1;
  }
}

int amp__pool_open(amp__pool *pool, const amp_tensor *input, const amp_tensor *output, const amp_tensor *out,
                   const amp_tensor *place, bool windows)
{
  int64_t xn[5], yn[5];
  AMP_ASSERT(pool->spatial >= 1 && pool->spatial <= 3 && (out == input || out == output));
  pool->type = amp__compute_dtype(out->dtype);
  five(input, pool->spatial, input->size, 1, xn);
  five(output, pool->spatial, output->size, 1, yn);
  pool->images = xn[0];
  pool->channels = xn[1];
  for (int i = 0; i < 3; i++) {
    pool->in_size[i] = xn[2 + i];
    pool->out[i] = yn[2 + i];
  }
  if ((__int128)pool->in_size[0] * pool->in_size[1] * pool->in_size[2] > INT32_MAX)
    return amp__fail(AMP_E_UNSUPPORTED, "pooling over planes of more than %d elements", INT32_MAX);
  if (!(out == input ? amp__compute_write(&pool->in_view, input, pool->type)
                     : amp__compute_read(&pool->in_view, input, pool->type))
      || !(out == output ? amp__compute_write(&pool->out_view, output, pool->type)
                         : amp__compute_read(&pool->out_view, output, pool->type)))
    return AMP_E_MEMORY;
  five(input, pool->spatial, pool->in_view.stride, 0, pool->in_stride);
  five(output, pool->spatial, pool->out_view.stride, 0, pool->out_stride);
  if (place) {
    pool->place = AMP_DATA(int64_t, place);
    five(place, pool->spatial, place->stride, 0, pool->place_stride);
  }
  pool->last = pool->channels >= 8 && pool->in_stride[1] == 1 && pool->out_stride[1] == 1
               && (!place || pool->place_stride[1] == 1);
  if (!windows) return 0;
  int64_t count = pool->out[0] + pool->out[1] + pool->out[2];
  if (!amp__scratch_lend(&pool->scratch, NULL, 0, (size_t)count * 24)) return AMP_E_MEMORY;
  int64_t *at = pool->scratch.p;
  for (int i = 0; i < 3; i++) {
    pool->start[i] = at;
    pool->count[i] = at + pool->out[i];
    pool->len[i] = (double *)(at + 2 * pool->out[i]);
    at += 3 * pool->out[i];
    window(pool, i);
  }
  return 0;
}

int amp__pool_close(amp__pool *pool, const amp_tensor *input, const amp_tensor *out, int status)
{
  if (status == 0) amp__compute_written(out == input ? &pool->in_view : &pool->out_view, out, pool->type);
  amp__compute_drop(&pool->in_view);
  amp__compute_drop(&pool->out_view);
  amp__scratch_return(&pool->scratch);
  return status;
}

/* -- Loops ----------------------------------------------------------------------------------- */

enum { LANES = 1024 };
enum work { MAX, SCATTER, GATHER, WRITE }; /* of a kernel: the last three go through places */

/* Windows of 2 x 2 two apart, all inside, n >= 4: four at a time, the last four overlapping those before. Written
** with vectors: a row is short, and the scalar rest of a loop would mostly wait for mispredicted branches. */
typedef float vf4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t vi4 __attribute__((vector_size(16), aligned(4), may_alias));
#if defined(__clang__)
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7)
#else
#define EVEN(a, b) __builtin_shuffle(a, b, (vi4){ 0, 2, 4, 6 })
#define ODD(a, b) __builtin_shuffle(a, b, (vi4){ 1, 3, 5, 7 })
#endif
#define BETTER(v, k)                         \
  {                                          \
    vi4 t = (v > m) | (v != v);              \
    m = (vf4)(((vi4)v & t) | ((vi4)m & ~t)); \
    at = ((k)&t) | (at & ~t);                \
  }
static void max_f32_two(const float *a, const float *b, int64_t count, int32_t base, int32_t w, float *best,
                        int32_t *place)
{
  const vi4 step = { 0, 2, 4, 6 };
  for (int64_t j = 0; j < count; j += 4) {
    int64_t out_place = j + 4 <= count ? j : count - 4;
    vf4 a0 = *(const vf4 *)(a + 2 * out_place), a1 = *(const vf4 *)(a + 2 * out_place + 4),
        b0 = *(const vf4 *)(b + 2 * out_place), b1 = *(const vf4 *)(b + 2 * out_place + 4);
    vf4 m = EVEN(a0, a1), v1 = ODD(a0, a1), v2 = EVEN(b0, b1), v3 = ODD(b0, b1);
    vi4 k = step + (base + 2 * (int32_t)out_place), at = k;
    BETTER(v1, k + 1)
    BETTER(v2, k + w)
    BETTER(v3, k + w + 1)
    *(vf4 *)(best + out_place) = m;
    *(vi4 *)(place + out_place) = at;
  }
}
#define max_f64_two(...) (void)0

#define real float
#define NAME(name) max_f32_##name
#include "ops/pool/pool_max.h"
#undef real
#undef NAME
#define real double
#define NAME(name) max_f64_##name
#include "ops/pool/pool_max.h"
#undef real
#undef NAME

typedef struct job {
  const amp__pool *pool;
  int what;
  char *buf;
  size_t each;
} job;

#define RUN(name, ...) \
  (pool->type == AMP_FLOAT64 ? max_f64_##name(pool, ##__VA_ARGS__) : max_f32_##name(pool, ##__VA_ARGS__))
static void body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const job *job = ctx;
  const amp__pool *pool = job->pool;
  if (job->what == MAX) {
    if (pool->last) RUN(pixels, begin, end);
    else RUN(planes, begin, end, job->buf + (size_t)thread * job->each);
  } else if (pool->last) RUN(scatter_pixels, begin, end);
  else RUN(through, job->what, begin, end);
}

static int run(amp__pool *pool, int what)
{
  char own[8 << 10] __attribute__((aligned(64)));
  amp__scratch scratch;
  job task = { pool, what, NULL, 0 };
  int64_t pixels = pool->out[0] * pool->out[1] * pool->out[2], work = pool->images * pool->channels * pixels,
          count = pool->images * pool->channels;
  if (what != MAX)
    pool->last = pool->last && what == SCATTER && pool->in_stride[3] == pool->in_size[2] * pool->in_stride[4]
                 && (pool->in_size[0] == 1 || pool->in_stride[2] == pool->in_size[1] * pool->in_stride[3]);
  else work *= amp__pool_taps(pool);
  if (pool->last) count = what == MAX ? pool->images * pixels : pool->images;
  int threads = amp__threads_for(work / 2, count);
  task.each = ((size_t)pool->out[2] * 12 + 127) / 64 * 64;
  if (!amp__scratch_lend(&scratch, own, sizeof own, task.each * (size_t)threads)) return AMP_E_MEMORY;
  task.buf = scratch.p;
  amp__parallel_ranges(threads, count, body, &task);
  amp__scratch_return(&scratch);
  return 0;
}

/* -- Rows of the op table -------------------------------------------------------------------- */

int amp__cpu_max_pool(amp_call *call)
{
  const args_max_pool *args = AMP_ARGS(call, max_pool);
  amp__pool pool = { 0 };
  if (call->out[0]->numel == 0) return 0;
  amp__pool_attributes(&pool, POOL_WINDOWS(args));
  for (int i = 0; i < 3; i++) pool.dilation[i] = pool.shares ? 1 : args->dilation[i];
  int status = amp__pool_open(&pool, call->in[0], call->out[0], call->out[0], call->out[1], true);
  if (status == 0) status = run(&pool, MAX);
  return amp__pool_close(&pool, call->in[0], call->out[0], status);
}

AMP_CLONES static bool any_outside(const int64_t *d, int64_t count, int64_t limit)
{
  uint64_t bad = 0;
  for (int64_t i = 0; i < count; i++) bad |= (uint64_t)(d[i] - 1) >= (uint64_t)limit;
  return bad != 0;
}

/* Places come from anywhere a user can put a tensor: check them. */
static int check_places(const amp_tensor *tensor, const amp_tensor *plane, int64_t spatial)
{
  amp__walk w;
  const int64_t *st[1] = { tensor->stride }, *d = AMP_DATA(int64_t, tensor);
  amp__walk_pos p;
  int64_t limit = 1;
  for (int i = 0; i < spatial; i++) limit *= plane->size[plane->ndim - 1 - i];
  if ((tensor->flags & AMP_T_DENSE) && !any_outside(d, tensor->numel, limit)) return 0;
  amp__walk_init(&w, tensor->ndim, tensor->size, 0, 1, st);
  amp__walk_seek(&w, &p, 0);
  for (int64_t i = 0; i < w.n; i++, amp__walk_next(&w, &p))
    if (d[p.off[0]] < 1 || d[p.off[0]] > limit)
      return amp__fail_arg(AMP_E_INDEX, 2, "index %lld at place %lld is outside the plane, expected 1..%lld",
                           (long long)d[p.off[0]], (long long)i + 1, (long long)limit);
  return 0;
}

/* input: the large planes */
static int through(const amp_call *call, const amp_tensor *input, const amp_tensor *output, int64_t spatial, int what)
{
  amp__pool pool = { 0 };
  const amp_tensor *out = call->out[0];
  if (call->in[1]->numel == 0) return out->numel ? amp__fill_value(call->out[0], 0) : 0;
  if (input->numel == 0)
    return amp__fail_arg(AMP_E_INDEX, 2, "indices of shape %s point into a plane without elements",
                         amp__shape_str(output->ndim, output->size));
  int status = check_places(call->in[1], input, spatial);
  if (status < 0) return status;
  pool.spatial = (int)spatial;
  status = amp__pool_open(&pool, input, output, out, call->in[1], false);
  if (status == 0) status = run(&pool, what);
  return amp__pool_close(&pool, input, out, status);
}

int amp__cpu_pool_gather(amp_call *call)
{
  return through(call, call->in[0], call->out[0], AMP_ARGS(call, pool_gather)->spatial, GATHER);
}
int amp__cpu_pool_scatter(amp_call *call)
{
  return through(call, call->out[0], call->in[0], AMP_ARGS(call, pool_scatter)->spatial, SCATTER);
}
int amp__cpu_unpool(amp_call *call)
{
  return through(call, call->out[0], call->in[0], AMP_ARGS(call, unpool)->spatial, WRITE);
}
