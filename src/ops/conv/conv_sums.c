/*
** ops/conv/conv_sums.c: the gradient of a convolution in its weight, of planes,
** without packing: of a padded copy of a part of an image (ops/conv/conv_image.h)
** and the gradient laid out in rows of the same width, zeros between them, each
** weight is a sum of products along the pixels. Vectors run along pixels, so
** bfloat16 is multiplied in pairs where the processor can. Since the zeros meet
** pixels that are not theirs, images that are not finite are not for here.
*/
#include <stdatomic.h>
#include "ops/conv/conv_image.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
typedef void (*sums_fn)(int64_t n, const void *g, int64_t gs, const void *x, const int32_t *off, float *sum,
                        int64_t ss);
typedef struct sums_isa {
  int m, n, lanes;
  sums_fn kernel[3];
} sums_isa; /* kernels of 1, 2 and 4 rows */

/* -- Kernels ---------------------------------------------------------------------- */

#define SV_FMA(s, a, b) ((s) + (a) * (b))
#if defined(__x86_64__)
#define SV_T float
#define SV_B 64
#define SV_M 4
#define SV_N 6
#define SV_ISA __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
#define SV_MUL SV_FMA
#define SV(x) f512_##x
#include "ops/conv/conv_sums.h"

#define SV_T float
#define SV_B 32
#define SV_M 2
#define SV_N 5
#define SV_ISA __attribute__((target("avx2,fma")))
#define SV_MUL SV_FMA
#define SV(x) f256_##x
#include "ops/conv/conv_sums.h"

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define HAS_BF16 1
#define SV_T uint16_t
#define SV_B 64
#define SV_M 4
#define SV_N 6
#define SV_ISA __attribute__((target("avx512bf16,avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
#define SV_MUL(s, a, b) ((b512_vec)_mm512_dpbf16_ps((__m512)(s), (__m512bh)(a), (__m512bh)(b)))
#define SV(x) b512_##x
#include "ops/conv/conv_sums.h"
#endif
#endif

#define SV_T float
#define SV_B 16
#define SV_M 2
#define SV_N 5
#define SV_ISA
#define SV_MUL SV_FMA
#define SV(x) f128_##x
#include "ops/conv/conv_sums.h"

static const sums_isa *pick(int dtype, int *kind)
{
  *kind = CONV_FLOATS;
#if defined(__x86_64__)
  bool wide
      = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#ifdef HAS_BF16
  if (dtype == AMP_BFLOAT16 && wide && __builtin_cpu_supports("avx512bf16")) {
    *kind = CONV_HALVES;
    return &b512_isa;
  }
#endif
  if (wide) return &f512_isa;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &f256_isa;
#endif
  (void)dtype;
  return &f128_isa;
}

/* -- The gradient ------------------------------------------------------------------- */

enum { RUN = 4096 }; /* bytes of a line that are multiplied at once: rows stay in the L1 cache */

typedef struct job {
  conv_image_plan plan;
  const sums_isa *isa;
  int32_t *off;
  int64_t ks; /* k rounded up to what a kernel does at once */
  int64_t ld; /* elements of a row of the gradient */
  char *scratch;
  size_t each, sums_bytes; /* of a thread: sums [group][row][ks], a copy, rows */
  atomic_bool *strange;    /* something is not finite */
} job;

AMP_CLONES static bool finite_32(const uint32_t *data, int64_t n)
{
  uint32_t bad = 0;
  for (int64_t i = 0; i < n; i++) bad |= (data[i] & 0x7f800000u) == 0x7f800000u;
  return !bad;
}
AMP_CLONES static bool finite_16(const uint16_t *data, int64_t n)
{
  uint16_t bad = 0;
  for (int64_t i = 0; i < n; i++) bad |= (data[i] & 0x7f80u) == 0x7f80u;
  return !bad;
}

/* Rows of the gradient at plane z of a unit, each pixel where the copy has what its first tap would read */
static void lay_rows(const job *j, const conv_unit *unit, int64_t z, char *rows)
{
  const conv_direct *direct = j->plan.direct;
  int64_t bytes = amp__dtype_size[direct->dst_dtype], elem_bytes = j->plan.bytes, width = j->plan.len[2],
          n = unit->size[2];
  const char *src = (const char *)direct->dst
                    + (unit->image * direct->dst_image + unit->group * direct->rows * direct->dst_channel
                       + (unit->first[0] + z) * direct->dst_axis[0] + unit->first[1] * direct->dst_axis[1]
                       + unit->first[2] * direct->dst_axis[2])
                          * bytes;
  for (int64_t r = 0; r < direct->rows; r++, src += direct->dst_channel * bytes, rows += j->ld * elem_bytes) {
    char *to = rows;
    for (int64_t y = 0; y < unit->size[1]; y++, to += width * elem_bytes) {
      const char *from = src + y * direct->dst_axis[1] * bytes;
      int64_t gap = y + 1 < unit->size[1] ? width - n : (rows + j->ld * elem_bytes - to) / elem_bytes - n;
      if (elem_bytes == 2) amp__move(2, to, 1, from, direct->dst_axis[2], n);
      else if (direct->dst_dtype == AMP_FLOAT32 && direct->dst_axis[2] == 1) memcpy(to, from, (size_t)n * 4);
      else amp__load(AMP_C_F32, to, direct->dst_dtype, from, direct->dst_axis[2], n);
      memset(to + n * elem_bytes, 0, (size_t)(gap * elem_bytes));
    }
  }
}

static void add(const job *j, const char *rows, const char *copy, float *sums)
{
  const conv_direct *direct = j->plan.direct;
  int64_t e = j->plan.bytes, run = RUN / e / j->isa->lanes * j->isa->lanes;
  for (int64_t at = 0; at < j->ld; at += run) {
    int64_t vectors = (j->ld - at < run ? j->ld - at : run) / j->isa->lanes;
    for (int64_t r = 0; r < direct->rows;) {
      int64_t left = direct->rows - r, m = left >= j->isa->m ? j->isa->m : left >= 2 ? 2 : 1;
      sums_fn f = j->isa->kernel[m == 4 ? 2 : m - 1];
      for (int64_t k = 0; k < j->ks; k += j->isa->n)
        f(vectors, rows + (r * j->ld + at) * e, j->ld, copy + at * e, j->off + k, sums + r * j->ks + k, j->ks);
      r += m;
    }
  }
}

static void body(void *ctx, int64_t begin, int64_t end, int thread)
{
  const job *j = ctx;
  const conv_image_plan *plan = &j->plan;
  char *own = j->scratch + (size_t)thread * j->each, *copy = own + j->sums_bytes, *rows = copy + plan->image_bytes;
  int64_t all = plan->lines * plan->phases * plan->plane;
  for (int64_t i = begin; i < end && !atomic_load_explicit(j->strange, memory_order_relaxed); i++) {
    conv_unit unit = conv_unit_of(plan, i);
    conv_fill(plan, &unit, copy);
    if (!(plan->bytes == 2 ? finite_16((const uint16_t *)copy, all) : finite_32((const uint32_t *)copy, all)))
      atomic_store_explicit(j->strange, true, memory_order_relaxed);
    for (int64_t z = 0; z < unit.size[0]; z++) {
      lay_rows(j, &unit, z, rows);
      add(j, rows, copy + z * plan->len[1] * plan->len[2] * plan->bytes,
          (float *)own + unit.group * plan->direct->rows * j->ks);
    }
  }
}

int conv_direct_sums(const conv_direct *direct, float *out, int threads)
{
  job j = { 0 };
  int kind;
  atomic_bool strange = false;
  j.isa = pick(direct->src_dtype, &kind);
  if (direct->src_dtype != direct->dst_dtype || !conv_plan(&j.plan, direct, kind)) return 1;
  j.ld = (j.plan.pixels + j.isa->lanes - 1) / j.isa->lanes * j.isa->lanes;
  if (j.ld > 2 * j.plan.part[1] * j.plan.part[2] || j.ld < 4 * j.isa->lanes)
    return 1; /* half of it zeros; more summing up than sums */
  j.ks = (j.plan.inner + j.isa->n - 1) / j.isa->n * j.isa->n;
  if (threads > j.plan.units) threads = (int)j.plan.units;
  size_t off = ((size_t)j.ks * 4 + 63) / 64 * 64, n = (size_t)(direct->groups * direct->rows * j.ks);
  j.sums_bytes = (n * 4 + 63) / 64 * 64;
  j.each = j.sums_bytes + j.plan.image_bytes + ((size_t)(direct->rows * j.ld * j.plan.bytes) + 127) / 64 * 64;
  amp_block *block = amp__block_new(AMP_CPU, 0, off + j.each * (size_t)threads);
  if (!block) return AMP_E_MEMORY;
  j.off = block->data;
  j.scratch = (char *)block->data + off;
  j.strange = &strange;
  conv_offsets(&j.plan, j.off);
  for (int64_t k = j.plan.inner; k < j.ks; k++) j.off[k] = j.off[j.plan.inner - 1];
  for (int t = 0; t < threads; t++) memset(j.scratch + (size_t)t * j.each, 0, j.sums_bytes);
  amp__parallel_ranges(threads, j.plan.units, body, &j);
  if (!strange)
    for (int64_t r = 0; r < direct->groups * direct->rows; r++)
      for (int64_t k = 0; k < j.plan.inner; k++) {
        float s = 0;
        for (int t = 0; t < threads; t++) s += ((const float *)(j.scratch + (size_t)t * j.each))[r * j.ks + k];
        out[r / direct->rows * direct->weight_group + r % direct->rows * direct->weight_row
            + k / direct->taps * direct->weight_channel + direct->weight_tap[k % direct->taps]]
            = s;
      }
  amp__block_free(block);
  return strange ? 1 : 0;
}
