/*
** divide.cuh: division by a number that is known before the launch, as a
** multiplication and a shift (Granlund and Montgomery 1994): for dividends below 2^31.
*/
#ifndef AMP_DIVIDE_CUH
#define AMP_DIVIDE_CUH
#include "common/elements.cuh"

typedef struct amp_divisor {
  uint32_t n, factor, shift;
} amp_divisor;

#ifndef AMP_GENERATED
/* n: 1 to 2^31 */
static inline amp_divisor amp_divisor_of(int64_t n)
{
  amp_divisor d;
  d.n = (uint32_t)n;
  d.shift = 0;
  while (((uint64_t)1 << d.shift) < (uint64_t)n) d.shift++;
  d.factor = (uint32_t)(((((uint64_t)1 << d.shift) - (uint64_t)n) << 32) / (uint64_t)n + 1);
  return d;
}
#endif

__device__ __forceinline__ uint32_t amp_divide(uint32_t i, const amp_divisor &d)
{
  return (__umulhi(i, d.factor) + i) >> d.shift;
}

/* i becomes i / d; the remainder */
__device__ __forceinline__ uint32_t amp_digit(uint32_t &i, const amp_divisor &d)
{
  uint32_t q = amp_divide(i, d), r = i - q * d.n;
  i = q;
  return r;
}

#endif
