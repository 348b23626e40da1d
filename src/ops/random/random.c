/*
** ops/random/random.c: random tensors.
**
** Work goes in blocks of 256 words (cpu/philox.h), each turned into 256 float32
** values or 128 that need 64 bits. Uniform values have as many random bits as
** their dtype has precision, so that none rounds up to the excluded end. Normal
** ones are Box-Muller's. Integers are a 64-bit word times the range, shifted:
** no modulo, bias below 2^-32 for ranges of 32 bits.
*/
#include "cpu/philox.h"
#include "cpu/strided.h"
#include "cpu/vector_math.h"

enum { LANES = 64, BLOCK = AMP_RNG_BLOCK };

uint64_t amp__rng_take(int64_t count)
{
  uint64_t at = amp__S->rng_offset;
  amp__S->rng_offset += (uint64_t)count * LANES;
  return at;
}

AMP_CLONES void amp__philox_block(uint32_t *out, uint64_t seed, uint64_t counter)
{
  uint32_t *a = out, *b = out + LANES, *c = out + 2 * LANES, *d = out + 3 * LANES;
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  for (int i = 0; i < LANES; i++) {
    uint64_t x = counter + (uint64_t)i;
    a[i] = (uint32_t)x;
    b[i] = (uint32_t)(x >> 32);
    c[i] = 0;
    d[i] = 0;
  }
  for (int r = 0; r < 10; r++) {
    AMP_IVDEP
    for (int i = 0; i < LANES; i++) {
      uint64_t p = (uint64_t)a[i] * 0xD2511F53u, q = (uint64_t)c[i] * 0xCD9E8D57u;
      uint32_t na = (uint32_t)(q >> 32) ^ b[i] ^ k0, nc = (uint32_t)(p >> 32) ^ d[i] ^ k1;
      a[i] = na;
      b[i] = (uint32_t)q;
      c[i] = nc;
      d[i] = (uint32_t)p;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

/* -- Blocks into values ----------------------------------------------------------------- */

/* [0, 1) with 24, 11 (float16) or 8 (bfloat16) bits */
static AMP_CLONES void uniform_f32(float *out, const uint32_t *words, int bits)
{
  float unit = 1.f / (float)(1 << bits);
  for (int i = 0; i < BLOCK; i++) out[i] = (float)(int32_t)(words[i] >> (32 - bits)) * unit;
}

static void uniform_f64(double *out, const uint32_t *words)
{
  for (int i = 0; i < BLOCK / 2; i++)
    out[i] = (double)((((uint64_t)words[i] << 32) | words[i + BLOCK / 2]) >> 11) * 0x1p-53;
}

static AMP_CLONES void normal_f32(float *out, const uint32_t *words)
{
  AMP_IVDEP
  for (int i = 0; i < BLOCK / 2; i++) {
    float u = ((float)(int32_t)(words[i] >> 1) + 0.5f) * 0x1p-31f; /* (0, 1] */
    float r = sqrtf(-2.f * amp__logf(u));
    float t = (float)(int32_t)(words[i + BLOCK / 2] >> 8) * (6.283185307f * 0x1p-24f);
    out[i] = r * amp__trigf(t, 1);
    out[i + BLOCK / 2] = r * amp__trigf(t, 0);
  }
}

static void normal_f64(double *out, const uint32_t *words)
{
  double u[BLOCK / 2];
  uniform_f64(u, words);
  for (int i = 0; i < BLOCK / 4; i++) {
    double r = sqrt(-2.0 * log(1.0 - u[i])), t = 6.28318530717958647692 * u[i + BLOCK / 4];
    out[i] = r * cos(t);
    out[i + BLOCK / 4] = r * sin(t);
  }
}

/* -- Filling ------------------------------------------------------------------------------ */

enum kind { UNIFORM, NORMAL, INTEGER, BERNOULLI };
typedef struct filler {
  amp_tensor *tensor;
  int kind, per_block; /* per_block: values that a block of random words makes */
  uint64_t seed, counter;
  double base, scale; /* from, to - from | mean, std */
  uint64_t low, range, threshold;
  bool always;
} filler;

/* A block of random words into `count` values of the filler's kind; they are of the class that is given back. */
static int uniform_block(const filler *task, const uint32_t *words, double *buf, int count)
{
  int dtype = task->tensor->dtype;
  float *narrow = (float *)buf;
  bool unit = task->base == 0 && task->scale == 1;
  if (dtype == AMP_FLOAT64) {
    uniform_f64(buf, words);
    for (int i = 0; !unit && i < count; i++) {
      double v = task->base + buf[i] * task->scale;
      buf[i] = v < task->base + task->scale || task->scale == 0 ? v : task->base;
    }
    return AMP_C_F64;
  }
  uniform_f32(narrow, words, dtype == AMP_FLOAT32 ? 24 : dtype == AMP_FLOAT16 ? 11 : 8);
  if (!unit) {
    float base = (float)task->base, scale = (float)task->scale, end = (float)(task->base + task->scale);
    for (int i = 0; i < count; i++) {
      float v = base + narrow[i] * scale;
      narrow[i] = v < end || scale == 0.f ? v : base;
    }
  }
  return AMP_C_F32;
}

static int normal_block(const filler *task, const uint32_t *words, double *buf, int count)
{
  float *narrow = (float *)buf;
  bool unit = task->base == 0 && task->scale == 1;
  if (task->tensor->dtype == AMP_FLOAT64) {
    normal_f64(buf, words);
    for (int i = 0; !unit && i < count; i++) buf[i] = task->base + buf[i] * task->scale;
    return AMP_C_F64;
  }
  normal_f32(narrow, words);
  for (int i = 0; !unit && i < count; i++) narrow[i] = (float)task->base + narrow[i] * (float)task->scale;
  return AMP_C_F32;
}

static int integer_block(const filler *task, const uint32_t *words, int64_t *out, int count)
{
  for (int i = 0; i < count; i++) {
    uint64_t x = ((uint64_t)words[i] << 32) | words[i + BLOCK / 2];
#ifdef __SIZEOF_INT128__
    out[i] = (int64_t)(task->low + (uint64_t)(((unsigned __int128)x * task->range) >> 64));
#else
    uint64_t high = (x >> 32) * (task->range >> 32), middle1 = (x >> 32) * (uint32_t)task->range,
             middle2 = (uint32_t)x * (task->range >> 32);
    uint64_t low = (uint64_t)(uint32_t)x * (uint32_t)task->range;
    out[i] = (int64_t)(task->low + high + (middle1 >> 32) + (middle2 >> 32)
                       + (((uint32_t)middle1 + (uint64_t)(uint32_t)middle2 + (low >> 32)) >> 32));
#endif
  }
  return AMP_C_I64;
}

static int bernoulli_block(const filler *task, const uint32_t *words, uint8_t *out, int count)
{
  for (int i = 0; i < count; i++) out[i] = task->always || words[i] < task->threshold;
  return AMP_C_U8;
}

static void fill_part(int64_t begin, int64_t end, void *ctx)
{
  const filler *task = ctx;
  uint32_t words[BLOCK] __attribute__((aligned(64)));
  double buf[BLOCK] __attribute__((aligned(64)));
  int dtype = task->tensor->dtype, cls = AMP_C_F32;
  char *out = amp__data(task->tensor);
  for (int64_t start = begin; start < end; start += task->per_block) {
    int count = (int)(end - start < task->per_block ? end - start : task->per_block);
    amp__philox_block(words, task->seed, task->counter + (uint64_t)(start / task->per_block) * LANES);
    AMP_ASSUME(task->kind >= UNIFORM && task->kind <= BERNOULLI);
    switch ((enum kind)task->kind) {
    case UNIFORM: cls = uniform_block(task, words, buf, count); break;
    case NORMAL: cls = normal_block(task, words, buf, count); break;
    case INTEGER: cls = integer_block(task, words, (int64_t *)buf, count); break;
    case BERNOULLI: cls = bernoulli_block(task, words, (uint8_t *)buf, count); break;
    }
    amp__store(dtype, out + start * amp__dtype_size[dtype], 1, cls, buf, count);
  }
}

static int fill(amp_tensor *tensor, filler *task)
{
  /* a receiver with gaps or another order is filled by way of a dense one */
  amp_tensor *dense = tensor->flags & AMP_T_CONTIGUOUS
                          ? tensor
                          : amp__tensor_make(tensor->dtype, AMP_CPU, 0, tensor->ndim, tensor->size);
  if (dense == NULL) return amp__S->err.code;
  task->tensor = dense;
  task->per_block
      = task->kind == INTEGER || (tensor->dtype == AMP_FLOAT64 && task->kind != BERNOULLI) ? BLOCK / 2 : BLOCK;
  task->seed = amp__S->seed;
  task->counter = amp__rng_take((tensor->numel + task->per_block - 1) / task->per_block);
  amp__parallel(amp__threads(tensor->numel * 8), tensor->numel, task->per_block, fill_part, task);
  int status = 0;
  if (dense != tensor) {
    status = amp__copy_to(tensor, dense);
    amp__free(dense);
  }
  return status;
}

int amp__cpu_rand(amp_call *call)
{
  filler task = { .kind = UNIFORM, .base = 0, .scale = 1 };
  return fill(call->out[0], &task);
}

int amp__cpu_randn(amp_call *call)
{
  filler task = { .kind = NORMAL, .base = 0, .scale = 1 };
  return fill(call->out[0], &task);
}

int amp__cpu_uniform(amp_call *call)
{
  const args_uniform *args = AMP_ARGS(call, uniform);
  filler task = { .kind = UNIFORM, .base = args->from, .scale = args->to - args->from };
  return fill(call->out[0], &task);
}

int amp__cpu_normal(amp_call *call)
{
  const args_normal *args = AMP_ARGS(call, normal);
  filler task = { .kind = NORMAL, .base = args->mean, .scale = args->std };
  return fill(call->out[0], &task);
}

int amp__cpu_randint(amp_call *call)
{
  const args_randint *args = AMP_ARGS(call, randint);
  filler task = { .kind = INTEGER, .low = (uint64_t)args->low, .range = (uint64_t)args->high - (uint64_t)args->low };
  return fill(call->out[0], &task);
}

int amp__cpu_bernoulli(amp_call *call)
{
  double p = AMP_ARGS(call, bernoulli)->p;
  filler task = { .kind = BERNOULLI, .threshold = (uint64_t)(p * 0x1p32), .always = p == 1 };
  return fill(call->out[0], &task);
}

/* Fisher and Yates; an index below i + 1 from a 64-bit word */
int amp__cpu_randperm(amp_call *call)
{
  amp_tensor *out = call->out[0],
             *tensor = out->dtype == AMP_INT64 ? out : amp__tensor_make(AMP_INT64, AMP_CPU, 0, 1, out->size);
  if (tensor == NULL) return amp__S->err.code;
  int64_t count = out->numel, *v = AMP_DATA(int64_t, tensor);
  uint32_t words[BLOCK] __attribute__((aligned(64)));
  uint64_t counter = amp__rng_take((count + BLOCK / 2 - 1) / (BLOCK / 2));
  for (int64_t i = 0; i < count; i++) v[i] = i + 1;
  for (int64_t k = 0; k + 1 < count; k++) {
    int at = (int)(k % (BLOCK / 2));
    if (at == 0) amp__philox_block(words, amp__S->seed, counter + (uint64_t)(k / (BLOCK / 2)) * LANES);
    int64_t i = count - 1 - k;
    uint64_t m = (uint64_t)i + 1, hi = words[at], lo = words[at + BLOCK / 2];
    /* (hi:lo * m) >> 64 for m below 2^32, else of a word in [0, 1) */
    int64_t j = m >> 32 == 0 ? (int64_t)((hi * m + ((lo * m) >> 32)) >> 32)
                             : (int64_t)((double)((hi << 32 | lo) >> 11) * 0x1p-53 * (double)m);
    int64_t x = v[i];
    v[i] = v[j];
    v[j] = x;
  }
  int status = 0;
  if (tensor != out) {
    status = amp__copy_to(out, tensor);
    amp__free(tensor);
  }
  return status;
}

/* -- Dropout --------------------------------------------------------------------------------- */

typedef struct {
  const amp_tensor *input;
  amp_tensor *out;
  uint8_t *mask;
  uint64_t seed, counter, threshold;
  float scale;
  double dscale;
} dropping;

static AMP_CLONES void drop_f32(float *out, const float *x, const uint32_t *words, uint8_t *mask, int m, uint32_t least,
                                float scale)
{
  AMP_IVDEP
  for (int i = 0; i < m; i++) out[i] = words[i] >= least ? x[i] * scale : 0.f;
  AMP_IVDEP
  for (int i = 0; i < m; i++) mask[i] = words[i] >= least;
}

static void drop_f64(double *out, const double *x, const uint32_t *words, uint8_t *mask, int m, uint32_t least,
                     double scale)
{
  for (int i = 0; i < m; i++) {
    out[i] = words[i] >= least ? x[i] * scale : 0.0;
    mask[i] = words[i] >= least;
  }
}

/* Both tensors dense in one order */
static void drop_part(int64_t begin, int64_t end, void *ctx)
{
  const dropping *task = ctx;
  uint32_t words[BLOCK] __attribute__((aligned(64)));
  float buf[BLOCK], *out;
  uint8_t spare[BLOCK];
  int dtype = task->input->dtype, element_size = amp__dtype_size[dtype];
  for (int64_t start = begin; start < end; start += BLOCK) {
    int m = (int)(end - start < BLOCK ? end - start : BLOCK);
    char *src = (char *)amp__data(task->input) + start * element_size,
         *dst = (char *)amp__data(task->out) + start * element_size;
    uint8_t *mask = task->mask ? task->mask + start : spare;
    amp__philox_block(words, task->seed, task->counter + (uint64_t)(start / BLOCK) * LANES);
    if (dtype == AMP_FLOAT64) {
      drop_f64((double *)dst, (const double *)src, words, mask, m, (uint32_t)task->threshold, task->dscale);
      continue;
    }
    const float *x = (const float *)src;
    out = (float *)dst;
    if (dtype != AMP_FLOAT32) {
      amp__load(AMP_C_F32, buf, dtype, src, 1, m);
      x = out = buf;
    }
    drop_f32(out, x, words, mask, m, (uint32_t)task->threshold, task->scale);
    if (dtype != AMP_FLOAT32) amp__store(dtype, dst, 1, AMP_C_F32, buf, m);
  }
}

int amp__cpu_dropout(amp_call *call)
{
  const args_dropout *args = AMP_ARGS(call, dropout);
  double p = args->p;
  bool training = args->training != 0;
  amp_tensor *input = call->in[0], *output = call->out[0], *mask = call->nout > 1 ? call->out[1] : NULL;
  AMP_ASSERT(p >= 0 && p <= 1 && amp__same_size(input, output));
  int status = 0;
  if (!training || p == 0 || p == 1) {
    bool zero = training && p == 1;
    if (mask && (status = amp__fill_value(mask, zero ? 0 : 1)) < 0) return status;
    if (zero) return amp__fill_value(output, 0);
    return output == input ? 0 : amp__copy_to(output, input);
  }
  /* p * 2^32 may round up to 2^32 just below 1 */
  double least = p * 0x1p32;
  dropping d = { .seed = amp__S->seed,
                 .threshold = least > 4294967295.0 ? 4294967295u : (uint64_t)least,
                 .scale = (float)(1 / (1 - p)),
                 .dscale = 1 / (1 - p) };
  bool same = (input->flags & output->flags & AMP_T_DENSE) && input->dtype == output->dtype
              && memcmp(input->stride, output->stride, sizeof(int64_t) * input->ndim) == 0
              && (!mask
                  || ((mask->flags & AMP_T_DENSE)
                      && memcmp(mask->stride, output->stride, sizeof(int64_t) * output->ndim) == 0));
  amp_tensor *x = input, *y = output, *m = mask;
  if (!same) {
    x = amp__dense(input, output->dtype);
    y = output->flags & AMP_T_CONTIGUOUS ? output
                                         : amp__tensor_make(output->dtype, AMP_CPU, 0, output->ndim, output->size);
    if (mask && !(mask->flags & AMP_T_CONTIGUOUS))
      m = amp__tensor_make(mask->dtype, AMP_CPU, 0, mask->ndim, mask->size);
    if (x == NULL || y == NULL || (mask && m == NULL)) {
      status = amp__S->err.code;
      goto out;
    }
  }
  d.input = x;
  d.out = y;
  d.mask = m ? amp__data(m) : NULL;
  d.counter = amp__rng_take((output->numel + BLOCK - 1) / BLOCK);
  amp__parallel(amp__threads(output->numel * 8), output->numel, BLOCK, drop_part, &d);
  if (y != output) status = amp__copy_to(output, y);
  if (status == 0 && m != mask) status = amp__copy_to(mask, m);
out:
  if (!same) amp__free(x);
  if (y != output) amp__free(y);
  if (m != mask) amp__free(m);
  return status;
}
