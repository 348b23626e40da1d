/*
** cpu_random.c: random tensors.
**
** Work goes in blocks of 256 words (cpu_random.h), each turned into 256 float32
** values or 128 that need 64 bits. Uniform values have as many random bits as
** their dtype has precision, so that none rounds up to the excluded end. Normal
** ones are Box-Muller's. Integers are a 64-bit word times the range, shifted:
** no modulo, bias below 2^-32 for ranges of 32 bits.
*/
#include "cpu_random.h"
#include "cpu_iter.h"
#include "cpu_math.h"

enum { LANES = 64, BLOCK = AMP_RNG_BLOCK };

uint64_t amp__rng_take(int64_t n)
{
  uint64_t at = amp__S->rng_offset;
  amp__S->rng_offset += (uint64_t)n * LANES;
  return at;
}

AMP_CLONES void amp__philox_block(uint32_t *out, uint64_t seed, uint64_t counter)
{
  uint32_t *a = out, *b = out + LANES, *c = out + 2 * LANES, *d = out + 3 * LANES;
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  for (int i = 0; i < LANES; i++) {
    uint64_t x = counter + (uint64_t)i;
    a[i] = (uint32_t)x; b[i] = (uint32_t)(x >> 32); c[i] = 0; d[i] = 0;
  }
  for (int r = 0; r < 10; r++) {
    AMP_IVDEP
    for (int i = 0; i < LANES; i++) {
      uint64_t p = (uint64_t)a[i] * 0xD2511F53u, q = (uint64_t)c[i] * 0xCD9E8D57u;
      uint32_t na = (uint32_t)(q >> 32) ^ b[i] ^ k0, nc = (uint32_t)(p >> 32) ^ d[i] ^ k1;
      a[i] = na; b[i] = (uint32_t)q; c[i] = nc; d[i] = (uint32_t)p;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

/* -- Blocks into values ----------------------------------------------------------------- */

/* [0, 1) with 24, 11 (float16) or 8 (bfloat16) bits */
static AMP_CLONES void uniform_f32(float *o, const uint32_t *w, int bits)
{
  float unit = 1.f / (float)(1 << bits);
  for (int i = 0; i < BLOCK; i++) o[i] = (float)(int32_t)(w[i] >> (32 - bits)) * unit;
}

static void uniform_f64(double *o, const uint32_t *w)
{
  for (int i = 0; i < BLOCK / 2; i++) o[i] = (double)((((uint64_t)w[i] << 32) | w[i + BLOCK / 2]) >> 11) * 0x1p-53;
}

static AMP_CLONES void normal_f32(float *o, const uint32_t *w)
{
  AMP_IVDEP
  for (int i = 0; i < BLOCK / 2; i++) {
    float u = ((float)(int32_t)(w[i] >> 1) + 0.5f) * 0x1p-31f;  /* (0, 1] */
    float r = sqrtf(-2.f * amp__logf(u));
    float t = (float)(int32_t)(w[i + BLOCK / 2] >> 8) * (6.283185307f * 0x1p-24f);
    o[i] = r * amp__trigf(t, 1);
    o[i + BLOCK / 2] = r * amp__trigf(t, 0);
  }
}

static void normal_f64(double *o, const uint32_t *w)
{
  double u[BLOCK / 2];
  uniform_f64(u, w);
  for (int i = 0; i < BLOCK / 4; i++) {
    double r = sqrt(-2.0 * log(1.0 - u[i])), t = 6.28318530717958647692 * u[i + BLOCK / 4];
    o[i] = r * cos(t);
    o[i + BLOCK / 4] = r * sin(t);
  }
}

/* -- Filling ------------------------------------------------------------------------------ */

enum kind { UNIFORM, NORMAL, INTEGER, BERNOULLI };
typedef struct filler {
  amp_tensor *t;
  int kind, per;             /* values of a block */
  uint64_t seed, counter;
  double a, b;               /* from, to - from | mean, std */
  uint64_t low, range, threshold;
  bool always;
} filler;

static void fill_part(int64_t lo, int64_t hi, void *ctx)
{
  const filler *f = ctx;
  uint32_t w[BLOCK] __attribute__((aligned(64)));
  double buf[BLOCK] __attribute__((aligned(64)));
  float *fb = (float *)buf;
  int64_t *ib = (int64_t *)buf;
  uint8_t *ub = (uint8_t *)buf;
  int dtype = f->t->dtype, es = amp__dtype_size[dtype], cls = AMP_C_F32;
  char *p = amp__data(f->t);
  for (int64_t at = lo; at < hi; at += f->per) {
    int m = (int)(hi - at < f->per ? hi - at : f->per);
    amp__philox_block(w, f->seed, f->counter + (uint64_t)(at / f->per) * LANES);
    switch (f->kind) {
    case UNIFORM:
      if (dtype == AMP_FLOAT64) {
        uniform_f64(buf, w);
        if (f->a != 0 || f->b != 1) for (int i = 0; i < m; i++) { double v = f->a + buf[i] * f->b; buf[i] = v < f->a + f->b || f->b == 0 ? v : f->a; }
        cls = AMP_C_F64;
      } else {
        uniform_f32(fb, w, dtype == AMP_FLOAT32 ? 24 : dtype == AMP_FLOAT16 ? 11 : 8);
        if (f->a != 0 || f->b != 1) {
          float a = (float)f->a, b = (float)f->b, end = (float)(f->a + f->b);
          for (int i = 0; i < m; i++) { float v = a + fb[i] * b; fb[i] = v < end || b == 0.f ? v : a; }
        }
      }
      break;
    case NORMAL:
      if (dtype == AMP_FLOAT64) {
        normal_f64(buf, w);
        if (f->a != 0 || f->b != 1) for (int i = 0; i < m; i++) buf[i] = f->a + buf[i] * f->b;
        cls = AMP_C_F64;
      } else {
        normal_f32(fb, w);
        if (f->a != 0 || f->b != 1) for (int i = 0; i < m; i++) fb[i] = (float)f->a + fb[i] * (float)f->b;
      }
      break;
    case INTEGER:
      for (int i = 0; i < m; i++) {
        uint64_t x = ((uint64_t)w[i] << 32) | w[i + BLOCK / 2];
#ifdef __SIZEOF_INT128__
        ib[i] = (int64_t)(f->low + (uint64_t)(((unsigned __int128)x * f->range) >> 64));
#else
        uint64_t hi_ = (x >> 32) * (f->range >> 32), mid1 = (x >> 32) * (uint32_t)f->range, mid2 = (uint32_t)x * (f->range >> 32);
        uint64_t low_ = (uint64_t)(uint32_t)x * (uint32_t)f->range;
        ib[i] = (int64_t)(f->low + hi_ + (mid1 >> 32) + (mid2 >> 32) + (((uint32_t)mid1 + (uint64_t)(uint32_t)mid2 + (low_ >> 32)) >> 32));
#endif
      }
      cls = AMP_C_I64;
      break;
    default:
      for (int i = 0; i < m; i++) ub[i] = f->always || w[i] < f->threshold;
      cls = AMP_C_U8;
    }
    amp__store(dtype, p + at * es, 1, cls, buf, m);
  }
}

static int fill(amp_tensor *t, filler *f)
{
  /* a receiver with gaps or another order is filled by way of a dense one */
  amp_tensor *dense = t->flags & AMP_T_CONTIGUOUS ? t : amp__tensor_make(t->dtype, AMP_CPU, 0, t->ndim, t->size);
  if (dense == NULL) return amp__S->err.code;
  f->t = dense;
  f->per = f->kind == INTEGER || (t->dtype == AMP_FLOAT64 && f->kind != BERNOULLI) ? BLOCK / 2 : BLOCK;
  f->seed = amp__S->seed;
  f->counter = amp__rng_take((t->numel + f->per - 1) / f->per);
  amp__parallel(amp__threads(t->numel * 8), t->numel, f->per, fill_part, f);
  int rc = 0;
  if (dense != t) {
    rc = amp__copy_to(t, dense);
    amp__free(dense);
  }
  return rc;
}

int amp__cpu_rand(amp_call *c)
{
  filler f = { .kind = UNIFORM, .a = 0, .b = 1 };
  return fill(c->out[0], &f);
}

int amp__cpu_randn(amp_call *c)
{
  filler f = { .kind = NORMAL, .a = 0, .b = 1 };
  return fill(c->out[0], &f);
}

int amp__cpu_uniform(amp_call *c)
{
  filler f = { .kind = UNIFORM, .a = c->a[0].f, .b = c->a[1].f - c->a[0].f };
  return fill(c->out[0], &f);
}

int amp__cpu_normal(amp_call *c)
{
  filler f = { .kind = NORMAL, .a = c->a[0].f, .b = c->a[1].f };
  return fill(c->out[0], &f);
}

int amp__cpu_randint(amp_call *c)
{
  filler f = { .kind = INTEGER, .low = (uint64_t)c->a[0].i, .range = (uint64_t)c->a[1].i - (uint64_t)c->a[0].i };
  return fill(c->out[0], &f);
}

int amp__cpu_bernoulli(amp_call *c)
{
  double p = c->a[0].f;
  filler f = { .kind = BERNOULLI, .threshold = (uint64_t)(p * 0x1p32), .always = p == 1 };
  return fill(c->out[0], &f);
}

/* Fisher and Yates; an index below i + 1 from a 64-bit word */
int amp__cpu_randperm(amp_call *c)
{
  amp_tensor *o = c->out[0], *t = o->dtype == AMP_INT64 ? o : amp__tensor_make(AMP_INT64, AMP_CPU, 0, 1, o->size);
  if (t == NULL) return amp__S->err.code;
  int64_t n = o->numel, *v = AMP_DATA(int64_t, t);
  uint32_t w[BLOCK] __attribute__((aligned(64)));
  uint64_t counter = amp__rng_take((n + BLOCK / 2 - 1) / (BLOCK / 2));
  for (int64_t i = 0; i < n; i++) v[i] = i + 1;
  for (int64_t k = 0; k + 1 < n; k++) {
    int at = (int)(k % (BLOCK / 2));
    if (at == 0) amp__philox_block(w, amp__S->seed, counter + (uint64_t)(k / (BLOCK / 2)) * LANES);
    int64_t i = n - 1 - k;
    uint64_t m = (uint64_t)i + 1, hi = w[at], lo = w[at + BLOCK / 2];
    /* (hi:lo * m) >> 64 for m below 2^32, else of a word in [0, 1) */
    int64_t j = m >> 32 == 0 ? (int64_t)((hi * m + ((lo * m) >> 32)) >> 32) : (int64_t)((double)((hi << 32 | lo) >> 11) * 0x1p-53 * (double)m);
    int64_t x = v[i]; v[i] = v[j]; v[j] = x;
  }
  int rc = 0;
  if (t != o) { rc = amp__copy_to(o, t); amp__free(t); }
  return rc;
}

/* -- Dropout --------------------------------------------------------------------------------- */

typedef struct { const amp_tensor *in; amp_tensor *out; uint8_t *mask; uint64_t seed, counter, threshold; float scale; double dscale; } dropping;

static AMP_CLONES void drop_f32(float *o, const float *x, const uint32_t *w, uint8_t *mask, int m, uint32_t least, float scale)
{
  AMP_IVDEP for (int i = 0; i < m; i++) o[i] = w[i] >= least ? x[i] * scale : 0.f;
  AMP_IVDEP for (int i = 0; i < m; i++) mask[i] = w[i] >= least;
}

static void drop_f64(double *o, const double *x, const uint32_t *w, uint8_t *mask, int m, uint32_t least, double scale)
{
  for (int i = 0; i < m; i++) { o[i] = w[i] >= least ? x[i] * scale : 0.0; mask[i] = w[i] >= least; }
}

/* Both tensors dense in one order */
static void drop_part(int64_t lo, int64_t hi, void *ctx)
{
  const dropping *d = ctx;
  uint32_t w[BLOCK] __attribute__((aligned(64)));
  float buf[BLOCK], *o;
  uint8_t spare[BLOCK];
  int dtype = d->in->dtype, es = amp__dtype_size[dtype];
  for (int64_t at = lo; at < hi; at += BLOCK) {
    int m = (int)(hi - at < BLOCK ? hi - at : BLOCK);
    char *src = (char *)amp__data(d->in) + at * es, *dst = (char *)amp__data(d->out) + at * es;
    uint8_t *mask = d->mask ? d->mask + at : spare;
    amp__philox_block(w, d->seed, d->counter + (uint64_t)(at / BLOCK) * LANES);
    if (dtype == AMP_FLOAT64) { drop_f64((double *)dst, (const double *)src, w, mask, m, (uint32_t)d->threshold, d->dscale); continue; }
    const float *x = (const float *)src;
    o = (float *)dst;
    if (dtype != AMP_FLOAT32) { amp__load(AMP_C_F32, buf, dtype, src, 1, m); x = o = buf; }
    drop_f32(o, x, w, mask, m, (uint32_t)d->threshold, d->scale);
    if (dtype != AMP_FLOAT32) amp__store(dtype, dst, 1, AMP_C_F32, buf, m);
  }
}

int amp__cpu_dropout(amp_call *c)
{
  double p = c->a[0].f;
  bool training = c->a[1].i != 0;
  amp_tensor *t = c->in[0], *o = c->out[0], *mask = c->nout > 1 ? c->out[1] : NULL;
  int rc = 0;
  if (!training || p == 0 || p == 1) {
    bool zero = training && p == 1;
    if (mask && (rc = amp__fill_value(mask, zero ? 0 : 1)) < 0) return rc;
    if (zero) return amp__fill_value(o, 0);
    return o == t ? 0 : amp__copy_to(o, t);
  }
  /* p * 2^32 may round up to 2^32 just below 1 */
  double least = p * 0x1p32;
  dropping d = { .seed = amp__S->seed, .threshold = least > 4294967295.0 ? 4294967295u : (uint64_t)least,
                 .scale = (float)(1 / (1 - p)), .dscale = 1 / (1 - p) };
  bool same = (t->flags & o->flags & AMP_T_DENSE) && t->dtype == o->dtype && memcmp(t->stride, o->stride, sizeof(int64_t) * t->ndim) == 0
              && (!mask || ((mask->flags & AMP_T_DENSE) && memcmp(mask->stride, o->stride, sizeof(int64_t) * o->ndim) == 0));
  amp_tensor *x = t, *y = o, *m = mask;
  if (!same) {
    x = amp__dense(t, o->dtype);
    y = o->flags & AMP_T_CONTIGUOUS ? o : amp__tensor_make(o->dtype, AMP_CPU, 0, o->ndim, o->size);
    if (mask && !(mask->flags & AMP_T_CONTIGUOUS)) m = amp__tensor_make(mask->dtype, AMP_CPU, 0, mask->ndim, mask->size);
    if (x == NULL || y == NULL || (mask && m == NULL)) { rc = amp__S->err.code; goto out; }
  }
  d.in = x;
  d.out = y;
  d.mask = m ? amp__data(m) : NULL;
  d.counter = amp__rng_take((o->numel + BLOCK - 1) / BLOCK);
  amp__parallel(amp__threads(o->numel * 8), o->numel, BLOCK, drop_part, &d);
  if (y != o) rc = amp__copy_to(o, y);
  if (rc == 0 && m != mask) rc = amp__copy_to(mask, m);
out:
  if (!same) amp__free(x);
  if (y != o) amp__free(y);
  if (m != mask) amp__free(m);
  return rc;
}
