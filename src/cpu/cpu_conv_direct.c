/*
** cpu_conv_direct.c: convolutions of planes without packing. Of a padded copy
** of a part of an image (cpu_conv_image.h), a tile of pixels times a panel of
** weights is a product whose lines are read where they stand; pixels in the
** padding are computed and dropped. 16-bit data is widened by the copy;
** bfloat16 where the processor multiplies it stays as it is, two channels side
** by side, which are one step of the product. Sums are float32 and rounded
** once. Channels-last data and float64 are not for here.
*/
#include "cpu_conv_image.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef struct direct_isa {
  int rows, pixels;                    /* of the largest kernel */
  void (*kernel[14])(int64_t n, const void *a, const void *b, const int32_t *off, float *c, int64_t ldc); /* by rows - 1 */
} direct_isa;

/* -- Kernels ---------------------------------------------------------------------- */

#define DV_FMA(s, a, v) ((s) + (a) * (v))
#if defined(__x86_64__)
#define DV_T float
#define DV_B 64
#define DV_M 14
#define DV_ISA __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
#define DV_MUL DV_FMA
#define DV(x) f512_##x
#include "cpu_conv_direct.h"

#define DV_T float
#define DV_B 32
#define DV_M 6
#define DV_ISA __attribute__((target("avx2,fma")))
#define DV_MUL DV_FMA
#define DV(x) f256_##x
#include "cpu_conv_direct.h"

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define HAS_BF16 1
#define DV_T uint32_t                  /* a pair of bfloat16 */
#define DV_B 64
#define DV_M 14
#define DV_ISA __attribute__((target("avx512bf16,avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
#define DV_MUL(s, a, v) ((b512_vec)_mm512_dpbf16_ps((__m512)(s), (__m512bh)_mm512_set1_epi32((int)(a)), (__m512bh)(v)))
#define DV(x) b512_##x
#include "cpu_conv_direct.h"
#endif
#endif

#define DV_T float
#define DV_B 16
#define DV_M 6
#define DV_ISA
#define DV_MUL DV_FMA
#define DV(x) f128_##x
#include "cpu_conv_direct.h"

static const direct_isa *pick(bool *pairs, int dtype) {
#if defined(__x86_64__)
  bool wide = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#ifdef HAS_BF16
  *pairs = dtype == AMP_BFLOAT16 && wide && __builtin_cpu_supports("avx512bf16");
  if (*pairs) return &b512_isa;
#endif
  if (wide) return &f512_isa;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &f256_isa;
#endif
  (void)dtype;
  return &f128_isa;
}

/* -- A convolution -------------------------------------------------------------------- */

typedef struct job {
  conv_image_plan p;
  const direct_isa *isa;
  int64_t panels;                      /* of rows */
  int32_t *off;
  char *weight;                        /* [group][panel][k][rows of the panel] */
  char *scratch; size_t each;
} job;

/* First row of panel i; panels differ by one row at most */
static int64_t panel_at(const job *j, int64_t i) { return j->p.d->rows * i / j->panels; }

static void pack_weight(job *j) {
  const conv_direct *d = j->p.d;
  float *f = (float *)j->weight;
  uint16_t *h = (uint16_t *)j->weight;
  for (int64_t g = 0; g < d->groups; g++)
    for (int64_t i = 0; i < j->panels; i++) {
      int64_t r0 = panel_at(j, i), r1 = panel_at(j, i + 1);
      for (int64_t c = 0; c < j->p.lines; c++)
        for (int64_t t = 0; t < d->taps; t++)
          for (int64_t r = r0; r < r1; r++) {
            const float *w = d->weight + g * d->wg + r * d->wr + d->woff[t];
            if (j->p.kind == CONV_FLOATS) { *f++ = w[c * d->wc]; continue; }
            *h++ = amp__float_to_bf16(w[2 * c * d->wc]);
            *h++ = 2 * c + 1 < d->channels ? amp__float_to_bf16(w[(2 * c + 1) * d->wc]) : 0;
          }
    }
}

/* m lines of sums, `width` floats a row of pixels, into the result */
static void store(const conv_direct *d, const float *sums, int64_t ld, int64_t width, char *dst, int64_t m, const float *bias, const int64_t *n) {
  int64_t bytes = amp__dtype_size[d->ddtype];
  for (int64_t r = 0; r < m; r++)
    for (int64_t y = 0; y < n[1]; y++) {
      float *s = (float *)sums + r * ld + y * width;
      if (bias) { float b = bias[r]; for (int64_t x = 0; x < n[2]; x++) s[x] += b; }
      char *to = dst + (r * d->dc + y * d->ds[1]) * bytes;
      if (d->ddtype == AMP_FLOAT32 && d->ds[2] == 1) memcpy(to, s, (size_t)n[2] * 4);
      else amp__store(d->ddtype, to, d->ds[2], AMP_C_F32, s, n[2]);
    }
}

static void body(void *ctx, int64_t begin, int64_t end, int thread) {
  const job *j = ctx;
  const conv_image_plan *p = &j->p;
  const conv_direct *d = p->d;
  char *image = j->scratch + (size_t)thread * j->each;
  float *sums = (float *)(image + p->image_bytes);
  int64_t width = p->len[2], tile = j->isa->pixels, bytes = amp__dtype_size[d->ddtype];
  for (int64_t i = begin; i < end; i++) {
    conv_unit u = conv_unit_of(p, i);
    conv_fill(p, &u, image);
    int64_t pixels = (u.size[1] - 1) * width + u.size[2], ld = (pixels + tile - 1) / tile * tile;
    const char *a = j->weight + u.g * d->rows * p->k * 4;
    char *out = (char *)d->dst + (u.n * d->dn + u.g * d->rows * d->dc + u.at[0] * d->ds[0] + u.at[1] * d->ds[1] + u.at[2] * d->ds[2]) * bytes;
    for (int64_t q = 0; q < j->panels; q++) {
      int64_t r0 = panel_at(j, q), m = panel_at(j, q + 1) - r0;
      for (int64_t z = 0; z < u.size[0]; z++) {
        const char *b = image + z * p->len[1] * width * 4;
        for (int64_t x = 0; x < pixels; x += tile) j->isa->kernel[m - 1](p->k, a, b + x * 4, j->off, sums + x, ld);
        store(d, sums, ld, width, out + (r0 * d->dc + z * d->ds[0]) * bytes, m, d->bias ? d->bias + u.g * d->rows + r0 : NULL, u.size);
      }
      a += m * p->k * 4;
    }
  }
}

int conv_direct_run(const conv_direct *d, int threads) {
  job j = {0};
  bool pairs = false;
  j.isa = pick(&pairs, d->sdtype);
  if (!conv_plan(&j.p, d, pairs ? CONV_PAIRS : CONV_FLOATS)) return 1;
  int64_t tile = j.isa->pixels, tiled = (j.p.pixels + tile - 1) / tile * tile;
  if (tiled > 2 * j.p.part[1] * j.p.part[2]) return 1; /* more than half of the work would be dropped */
  j.panels = (d->rows + j.isa->rows - 1) / j.isa->rows;
  if (threads > j.p.units) threads = (int)j.p.units;
  j.each = j.p.image_bytes + ((size_t)(j.isa->rows * tiled) * 4 + 63) / 64 * 64;
  size_t off = ((size_t)j.p.k * 4 + 63) / 64 * 64, weight = ((size_t)(d->groups * d->rows * j.p.k) * 4 + 63) / 64 * 64;
  amp_block *block = amp__block_new(AMP_CPU, 0, off + weight + j.each * (size_t)threads);
  if (!block) return AMP_E_MEMORY;
  j.off = block->data;
  j.weight = (char *)block->data + off;
  j.scratch = j.weight + weight;
  conv_offsets(&j.p, j.off);
  pack_weight(&j);
  amp__nn_par(threads, j.p.units, body, &j);
  amp__block_free(block);
  return 0;
}
