/*
** cpu_turn.h: an 8 x 8 block of floats turned over its diagonal, in registers. By the
** vector extensions of GCC and Clang, so for any CPU; a macro, so that the caller's
** instruction set is used.
*/
#ifndef AMP_CPU_TURN_H
#define AMP_CPU_TURN_H
#include "cpu_math.h"

typedef float amp_v8 __attribute__((vector_size(32), aligned(4), may_alias));

#ifdef __clang__
#define AMP_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int amp_v8i __attribute__((vector_size(32)));
#define AMP_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (amp_v8i){ __VA_ARGS__ })
#endif

/* amp_v8 r[8]: rows become columns */
#define AMP_TURN8(r)                                                                                        \
  do {                                                                                                      \
    amp_v8 a_[8];                                                                                           \
    for (int i_ = 0; i_ < 8; i_ += 2) {                                                                     \
      a_[i_] = AMP_SHUFFLE(r[i_], r[i_ + 1], 0, 8, 1, 9, 4, 12, 5, 13);                                     \
      a_[i_ + 1] = AMP_SHUFFLE(r[i_], r[i_ + 1], 2, 10, 3, 11, 6, 14, 7, 15);                               \
    }                                                                                                       \
    for (int i_ = 0; i_ < 8; i_ += 4)                                                                       \
      for (int k_ = 0; k_ < 2; k_++) {                                                                      \
        r[i_ + 2 * k_] = AMP_SHUFFLE(a_[i_ + k_], a_[i_ + 2 + k_], 0, 1, 8, 9, 4, 5, 12, 13);               \
        r[i_ + 2 * k_ + 1] = AMP_SHUFFLE(a_[i_ + k_], a_[i_ + 2 + k_], 2, 3, 10, 11, 6, 7, 14, 15);         \
      }                                                                                                     \
    for (int i_ = 0; i_ < 4; i_++) {                                                                        \
      a_[i_] = AMP_SHUFFLE(r[i_], r[i_ + 4], 0, 1, 2, 3, 8, 9, 10, 11);                                     \
      a_[i_ + 4] = AMP_SHUFFLE(r[i_], r[i_ + 4], 4, 5, 6, 7, 12, 13, 14, 15);                               \
    }                                                                                                       \
    for (int i_ = 0; i_ < 8; i_++) r[i_] = a_[i_];                                                          \
  } while (0)

#endif
