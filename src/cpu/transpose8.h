/*
** cpu/transpose8.h: an 8 x 8 block of floats turned over its diagonal, in registers. By the
** vector extensions of GCC and Clang, so for any CPU; a macro, so that the caller's
** instruction set is used.
*/
#ifndef AMP_CPU_TRANSPOSE8_H
#define AMP_CPU_TRANSPOSE8_H
#include "cpu/vector_math.h"

typedef float amp_v8 __attribute__((vector_size(32), aligned(4), may_alias));

#ifdef __clang__
#define AMP_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int amp_v8i __attribute__((vector_size(32)));
#define AMP_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (amp_v8i){ __VA_ARGS__ })
#endif

/* Three steps: rows i and i + 1 of r to a, neighbours exchanged; rows i + k and i + k + 2 of a to r, pairs exchanged;
** rows i and i + 4 of r to a, halves exchanged. */
#define AMP_TURN8_NEIGHBOURS(a, r, i)                           \
  a[i] = AMP_SHUFFLE(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13); \
  a[i + 1] = AMP_SHUFFLE(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
#define AMP_TURN8_PAIRS(r, a, i, k)                                                         \
  r[(i) + 2 * (k)] = AMP_SHUFFLE(a[(i) + (k)], a[(i) + 2 + (k)], 0, 1, 8, 9, 4, 5, 12, 13); \
  r[(i) + 2 * (k) + 1] = AMP_SHUFFLE(a[(i) + (k)], a[(i) + 2 + (k)], 2, 3, 10, 11, 6, 7, 14, 15);
#define AMP_TURN8_HALVES(a, r, i)                               \
  a[i] = AMP_SHUFFLE(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11); \
  a[i + 4] = AMP_SHUFFLE(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);

/* amp_v8 r[8]: rows become columns */
#define AMP_TURN8(r)                                                                 \
  do {                                                                               \
    amp_v8 turn_[8];                                                                 \
    for (int i_ = 0; i_ < 8; i_ += 2) { AMP_TURN8_NEIGHBOURS(turn_, r, i_) }         \
    for (int i_ = 0; i_ < 4; i_++) { AMP_TURN8_PAIRS(r, turn_, i_ / 2 * 4, i_ % 2) } \
    for (int i_ = 0; i_ < 4; i_++) { AMP_TURN8_HALVES(turn_, r, i_) }                \
    for (int i_ = 0; i_ < 8; i_++) r[i_] = turn_[i_];                                \
  } while (0)

#endif
