/*
** ops/conv/conv_direct.c: convolutions of planes without packing. Of a padded copy
** of a part of an image (ops/conv/conv_image.h), a tile of pixels times a panel of
** weights is a product whose lines are read where they stand; pixels in the
** padding are computed and dropped. 16-bit data is widened by the copy;
** bfloat16 where the processor multiplies it stays as it is, two channels side
** by side, which are one step of the product. Sums are float32 and rounded
** once. Channels-last data and float64 are not for here.
*/
#include "ops/conv/conv_image.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef struct direct_isa {
  int rows, pixels; /* of the largest kernel */
  void (*kernel[14])(int64_t n, const void *a, const void *b, const int32_t *off, float *c,
                     int64_t ldc); /* by rows - 1 */
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
#include "ops/conv/conv_direct.h"

#define DV_T float
#define DV_B 32
#define DV_M 6
#define DV_ISA __attribute__((target("avx2,fma")))
#define DV_MUL DV_FMA
#define DV(x) f256_##x
#include "ops/conv/conv_direct.h"

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define HAS_BF16 1
#define DV_T uint32_t /* a pair of bfloat16 */
#define DV_B 64
#define DV_M 14
#define DV_ISA __attribute__((target("avx512bf16,avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
#define DV_MUL(s, a, v) ((b512_vec)_mm512_dpbf16_ps((__m512)(s), (__m512bh)_mm512_set1_epi32((int)(a)), (__m512bh)(v)))
#define DV(x) b512_##x
#include "ops/conv/conv_direct.h"
#endif
#endif

#define DV_T float
#define DV_B 16
#define DV_M 6
#define DV_ISA
#define DV_MUL DV_FMA
#define DV(x) f128_##x
#include "ops/conv/conv_direct.h"

static const direct_isa *pick(bool *pairs, int dtype)
{
#if defined(__x86_64__)
  bool wide
      = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
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
  conv_image_plan plan;
  const direct_isa *isa;
  int64_t panels; /* of rows */
  int32_t *off;
  char *weight; /* [group][panel][k][rows of the panel] */
  char *scratch;
  size_t each;
} job;

/* First row of panel i; panels differ by one row at most */
static int64_t panel_at(const job *j, int64_t i) { return j->plan.direct->rows * i / j->panels; }

static void pack_weight(job *j)
{
  const conv_direct *direct = j->plan.direct;
  float *f = (float *)j->weight;
  uint16_t *halves = (uint16_t *)j->weight;
  for (int64_t g = 0; g < direct->groups; g++)
    for (int64_t i = 0; i < j->panels; i++) {
      int64_t r0 = panel_at(j, i), r1 = panel_at(j, i + 1);
      for (int64_t c = 0; c < j->plan.lines; c++)
        for (int64_t t = 0; t < direct->taps; t++)
          for (int64_t r = r0; r < r1; r++) {
            const float *w = direct->weight + g * direct->weight_group + r * direct->weight_row + direct->weight_tap[t];
            if (j->plan.kind == CONV_FLOATS) {
              *f++ = w[c * direct->weight_channel];
              continue;
            }
            *halves++ = amp__float_to_bf16(w[2 * c * direct->weight_channel]);
            *halves++ = 2 * c + 1 < direct->channels ? amp__float_to_bf16(w[(2 * c + 1) * direct->weight_channel]) : 0;
          }
    }
}

/* m lines of sums, `width` floats a row of pixels, into the result */
static void store(const conv_direct *direct, const float *sums, int64_t ld, int64_t width, char *dst, int64_t m,
                  const float *bias, const int64_t *n)
{
  int64_t bytes = amp__dtype_size[direct->dst_dtype];
  for (int64_t r = 0; r < m; r++)
    for (int64_t y = 0; y < n[1]; y++) {
      float *s = (float *)sums + r * ld + y * width;
      if (bias) {
        float b = bias[r];
        for (int64_t x = 0; x < n[2]; x++) s[x] += b;
      }
      char *to = dst + (r * direct->dst_channel + y * direct->dst_axis[1]) * bytes;
      if (direct->dst_dtype == AMP_FLOAT32 && direct->dst_axis[2] == 1) memcpy(to, s, (size_t)n[2] * 4);
      else amp__store(direct->dst_dtype, to, direct->dst_axis[2], AMP_C_F32, s, n[2]);
    }
}

static void body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const job *j = ctx;
  const conv_image_plan *plan = &j->plan;
  const conv_direct *direct = plan->direct;
  char *image = j->scratch + (size_t)thread * j->each;
  float *sums = (float *)(image + plan->image_bytes);
  int64_t width = plan->len[2], tile = j->isa->pixels, bytes = amp__dtype_size[direct->dst_dtype];
  for (int64_t i = begin; i < end; i++) {
    conv_unit unit = conv_unit_of(plan, i);
    conv_fill(plan, &unit, image);
    int64_t pixels = (unit.size[1] - 1) * width + unit.size[2], ld = (pixels + tile - 1) / tile * tile;
    const char *a = j->weight + unit.group * direct->rows * plan->inner * 4;
    char *out = (char *)direct->dst
                + (unit.image * direct->dst_image + unit.group * direct->rows * direct->dst_channel
                   + unit.first[0] * direct->dst_axis[0] + unit.first[1] * direct->dst_axis[1]
                   + unit.first[2] * direct->dst_axis[2])
                      * bytes;
    for (int64_t q = 0; q < j->panels; q++) {
      int64_t r0 = panel_at(j, q), m = panel_at(j, q + 1) - r0;
      AMP_ASSERT(m >= 1 && m <= j->isa->rows);
      for (int64_t z = 0; z < unit.size[0]; z++) {
        const char *b = image + z * plan->len[1] * width * 4;
        for (int64_t x = 0; x < pixels; x += tile)
          j->isa->kernel[m - 1](plan->inner, a, b + x * 4, j->off, sums + x, ld);
        store(direct, sums, ld, width, out + (r0 * direct->dst_channel + z * direct->dst_axis[0]) * bytes, m,
              direct->bias ? direct->bias + unit.group * direct->rows + r0 : NULL, unit.size);
      }
      a += m * plan->inner * 4;
    }
  }
}

int conv_direct_run(const conv_direct *direct, int threads)
{
  job j = { 0 };
  bool pairs = false;
  j.isa = pick(&pairs, direct->src_dtype);
  if (!conv_plan(&j.plan, direct, pairs ? CONV_PAIRS : CONV_FLOATS)) return 1;
  int64_t tile = j.isa->pixels, tiled = (j.plan.pixels + tile - 1) / tile * tile;
  if (tiled > 2 * j.plan.part[1] * j.plan.part[2]) return 1; /* more than half of the work would be dropped */
  j.panels = (direct->rows + j.isa->rows - 1) / j.isa->rows;
  if (threads > j.plan.units) threads = (int)j.plan.units;
  j.each = j.plan.image_bytes + ((size_t)(j.isa->rows * tiled) * 4 + 63) / 64 * 64;
  size_t off = ((size_t)j.plan.inner * 4 + 63) / 64 * 64,
         weight = ((size_t)(direct->groups * direct->rows * j.plan.inner) * 4 + 63) / 64 * 64;
  amp_block *block = amp__block_new(AMP_CPU, 0, off + weight + j.each * (size_t)threads);
  if (!block) return AMP_E_MEMORY;
  j.off = block->data;
  j.weight = (char *)block->data + off;
  j.scratch = j.weight + weight;
  conv_offsets(&j.plan, j.off);
  pack_weight(&j);
  amp__parallel_ranges(threads, j.plan.units, body, &j);
  amp__block_free(block);
  return 0;
}
