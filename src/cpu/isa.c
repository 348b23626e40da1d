/*
** cpu/isa.c: the most of a processor's instructions that kernels may use.
**
**   AMP_CPU_ISA=baseline   what every x86-64 has (SSE2)
**   AMP_CPU_ISA=avx2       x86-64-v3: AVX2, FMA, F16C, BMI
**   AMP_CPU_ISA=avx512     all that the processor has, the default
**
** Kernels are chosen in two ways: GCC's clones of a function (AMP_CLONES), by
** resolvers that the loader runs, and __builtin_cpu_supports. Both call
** __cpu_indicator_init of libgcc and then look at its tables of features. The
** linker lets our objects call (by --wrap, in CMakeLists.txt) the
** function below in its place, which clears the bits of what is not wanted. So
** there is one switch, and no kernel knows of it.
**
** Resolvers run before the library is wholly linked: nothing here calls another
** library. Only the pointer `environ` is read, which is relocated before them.
*/
#include <stddef.h>
#include <stdint.h>
#include "cpu/isa.h"

static int is_word(const char *text, const char *word)
{
  while (*word && *text == *word) text++, word++;
  return *word == 0 && *text == 0;
}

static int named(const char *text)
{
  if (text && is_word(text, "baseline")) return AMP_ISA_BASELINE;
  if (text && is_word(text, "avx2")) return AMP_ISA_AVX2;
  return AMP_ISA_AVX512;
}

#if defined(__x86_64__) && defined(AMP_LIMITED_ISA)

extern char **environ;

/* libgcc's tables (gcc/common/config/i386/i386-cpuinfo.h has the numbers of their bits, which never change) */
extern struct {
  unsigned vendor, type, subtype, features;
} __cpu_model __attribute__((visibility("hidden")));
extern unsigned __cpu_features2[3] __attribute__((visibility("hidden")));

enum {                        /* bits of the first 32 features */
       KEPT_BASELINE = 0x1ff, /* cmov to sse4.2 */
       KEPT_AVX2 = KEPT_BASELINE | 1 << 9 | 1 << 10 | 1 << 14 | 1 << 16 | 1 << 17 | 1 << 18
                   | 1 << 19 /* avx avx2 fma bmi bmi2 aes pclmul */
};
enum { F16C = 49, LZCNT = 58, MOVBE = 60, XSAVE = 79, V1 = 95, V2, V3 };

static unsigned kept(int word, int limit)
{
  static const unsigned char avx2[] = { F16C, LZCNT, MOVBE, XSAVE, V1, V2, V3 }, baseline[] = { V1, V2 };
  const unsigned char *list = limit == AMP_ISA_AVX2 ? avx2 : baseline;
  unsigned bits = 0;
  for (int i = 0; i < (limit == AMP_ISA_AVX2 ? 7 : 2); i++)
    if (list[i] / 32 == word + 1) bits |= 1u << list[i] % 32;
  return bits;
}

static int limit_of_process(void)
{
  static int known = -1; /* resolvers ask a few hundred times, one after the other */
  const char *name = "AMP_CPU_ISA=";
  if (known >= 0) return known;
  if (environ)
    for (char **line = environ; *line; line++) {
      const char *a = *line, *b = name;
      while (*b && *a == *b) a++, b++;
      if (*b == 0) return known = named(a);
    }
  if (environ) known = AMP_ISA_AVX512;
  return AMP_ISA_AVX512;
}

int __real___cpu_indicator_init(void);
int __wrap___cpu_indicator_init(void);

__attribute__((visibility("hidden"))) int __wrap___cpu_indicator_init(void)
{
  int status = __real___cpu_indicator_init(), limit = limit_of_process();
  if (limit == AMP_ISA_AVX512) return status;
  __cpu_model.features &= limit == AMP_ISA_AVX2 ? KEPT_AVX2 : KEPT_BASELINE;
  for (int i = 0; i < 3; i++) __cpu_features2[i] &= kept(i, limit);
  return status;
}

/* Where no function has clones, nothing called it yet. */
__attribute__((constructor)) static void limit_at_start(void) { __wrap___cpu_indicator_init(); }

int amp__cpu_isa(void)
{
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    return AMP_ISA_AVX512;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? AMP_ISA_AVX2 : AMP_ISA_BASELINE;
}

#else

int amp__cpu_isa(void) { return named("baseline"); }

#endif
