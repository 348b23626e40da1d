/*
** cpu/philox.h: counter-based random numbers (Philox 4x32, 10 rounds).
**
** A value depends on the state's seed and on its place in the sequence only, so
** results are the same for any number of threads. A block is 64 counters: 256
** words, laid out word by word (word w of counter i at w * 64 + i).
*/
#ifndef AMP_CPU_PHILOX_H
#define AMP_CPU_PHILOX_H
#include "core.h"

enum { AMP_RNG_BLOCK = 256 };
/* Claim `count` blocks of the current state's sequence; the counter of the first */
uint64_t amp__rng_take(int64_t count);
void amp__philox_block(uint32_t *out, uint64_t seed, uint64_t counter);

#endif
