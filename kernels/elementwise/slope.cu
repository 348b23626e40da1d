/*
** slope.cu: derivatives of elementwise functions in one pass: a gradient times a function's slope at a point (slope),
*or
** at two operands (pair_slope).
**
** A launch is one of elementwise.cuh's two kernels: a thread holds 8 elements of each operand in registers, nothing
*lies
** in shared memory, each element is read once and written once (6 bytes in 16 bits, 8 with two operands beside the
** gradient). Memory's speed bounds all but the powers and the gamma family.
**
** The formulas stand in slope_formulas.h. Kernels are shared by groups of them, in which the formula is chosen at run
** time, once for 8 elements: one a formula would be forty times the code that loads and stores.
*/
#include "elementwise/elementwise.cuh"
#include "common/math.cuh"

namespace {

template <class T> __device__ __forceinline__ T sign_of(T a) { return a > 0 ? (T)1 : a < 0 ? (T)-1 : a; }
template <class T> __device__ __forceinline__ T power(T a, T b)
{
  return b == 2 ? a * a : b == 1 ? a : b == 3 ? a * a * a : pow(a, b);
}

/* -- Formulas ------------------------------------------------------------------------- */

enum group { PLAIN, CURVED, LONG };

template <int WORD, class T> __device__ __forceinline__ T function_slope(T g, T x, T p, T q, T r)
{
#define SLOPE(group, word, formula) \
  if constexpr (WORD == FUNCTION_##word) return formula;
#include "elementwise/slope_formulas.h"
}
template <int WORD, class T> __device__ __forceinline__ T term_slope(T g, T a, T b)
{
#define PAIR(group, word, formula) \
  if constexpr (WORD == TERM_##word) return formula;
#include "elementwise/slope_formulas.h"
}

/* A group's formulas of NIN values: of(a) makes one element, all(x, y) as many as a thread holds. SET: functions or
** terms, which gives the formula of a word as at<WORD>(values). */
template <int GROUP, class SET> struct chosen {
  static constexpr int flat = GROUP == LONG ? 0 : 2;
  int word;
  SET set;
  template <class T> __device__ __forceinline__ T of(const T *a) const
  {
    T y = 0;
    set.template choose<GROUP>(word, [&](auto w) { y = set.template at<decltype(w)::value, T>(a); });
    return y;
  }
  template <class T, int NIN, int N> __device__ __forceinline__ void all(const T (&x)[NIN][N], T (&y)[N]) const
  {
    set.template choose<GROUP>(word, [&](auto w) {
#pragma unroll
      for (int i = 0; i < N; i++) {
        T a[NIN];
#pragma unroll
        for (int k = 0; k < NIN; k++) a[k] = x[k][i];
        y[i] = set.template at<decltype(w)::value, T>(a);
      }
    });
  }
};

/* A word as a type */
template <int WORD> struct constant {
  enum { value = WORD };
};
#define CASE(member, word)                              \
  case word:                                            \
    if constexpr (member == GROUP) f(constant<word>()); \
    break;

struct functions { /* of grad, point */
  enum { operands = 2 };
  double p, q, r;
  template <int WORD, class T> __device__ __forceinline__ T at(const T *a) const
  {
    return function_slope<WORD, T>(a[0], a[1], (T)p, (T)q, (T)r);
  }
  template <int GROUP, class F> __device__ __forceinline__ void choose(int word, F f) const
  {
    switch (word) {
#define SLOPE(group, word, formula) CASE(group, FUNCTION_##word)
#include "elementwise/slope_formulas.h"
    }
  }
};
struct terms { /* of grad, input, other */
  enum { operands = 3 };
  double by;
  template <int WORD, class T> __device__ __forceinline__ T at(const T *a) const
  {
    return (T)by * term_slope<WORD, T>(a[0], a[1], a[2]);
  }
  template <int GROUP, class F> __device__ __forceinline__ void choose(int word, F f) const
  {
    switch (word) {
#define PAIR(group, word, formula) CASE(group, TERM_##word)
#include "elementwise/slope_formulas.h"
    }
  }
};

/* -- Calls ---------------------------------------------------------------------------- */

template <int GROUP, class SET> static int run(amp_call *c, int word, const SET &set)
{
  enum { NIN = SET::operands };
  const chosen<GROUP, SET> f = { word, set };
  return amp_ew_class(c->out[0]->dtype, c->in, NIN) == AMP_EW_F64 ? amp_ew_run<double, double, NIN>(c->out[0], c->in, f)
                                                                  : amp_ew_run<float, float, NIN>(c->out[0], c->in, f);
}
template <class SET> static int run_in(group group, amp_call *c, int word, const SET &set)
{
  return group == PLAIN    ? run<PLAIN>(c, word, set)
         : group == CURVED ? run<CURVED>(c, word, set)
                           : run<LONG>(c, word, set);
}

#define SLOPE(group, word, formula) +1
static_assert(0
#include "elementwise/slope_formulas.h"
                  == FUNCTION_COUNT,
              "a function without its formula");
#define PAIR(group, word, formula) +1
static_assert(0
#include "elementwise/slope_formulas.h"
                  == TERM_COUNT,
              "a term without its formula");

#define GROUP_OF(word, group) \
  case word: return group;
static group function_group(int word)
{
  switch (word) {
#define SLOPE(group, word, formula) GROUP_OF(FUNCTION_##word, group)
#include "elementwise/slope_formulas.h"
  }
  return LONG;
}
static group term_group(int word)
{
  switch (word) {
#define PAIR(group, word, formula) GROUP_OF(TERM_##word, group)
#include "elementwise/slope_formulas.h"
  }
  return LONG;
}

} // namespace

extern "C" {

int amp__cuda_slope(amp_call *c) /* grad point; function p q r */
{
  const args_slope *args = AMP_ARGS(c, slope);
  const functions set = { args->p, args->q, args->r };
  return run_in(function_group((int)args->function), c, (int)args->function, set);
}

int amp__cuda_pair_slope(amp_call *c) /* grad input other; term by */
{
  const args_pair_slope *args = AMP_ARGS(c, pair_slope);
  const terms set = { args->by };
  return run_in(term_group((int)args->term), c, (int)args->term, set);
}
}
