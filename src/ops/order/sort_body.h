/*
** ops/order/sort_body.h: sorting and selecting, once for each kind of item. The
** includer defines ITEM, NAME(x), LESS(a, b) (a total order without equals),
** KEY(x) (what radix passes look at) and KEY_BITS; all is undefined at the end.
**
** Few items are merged without branches, from runs that insertion sorted. Many
** go through radix passes of 8 or 11 bits, least digit first, which keep the
** order of equals; a pass whose digit is the same everywhere is left out.
** Selection is quickselect with a branch-free partition.
*/

static void NAME(insert)(ITEM *item, int64_t n)
{
  for (int64_t i = 1; i < n; i++) {
    ITEM x = item[i];
    int64_t j = i;
    for (; j > 0 && LESS(x, item[j - 1]); j--) item[j] = item[j - 1];
    item[j] = x;
  }
}

/* Two runs from both ends at once: two chains that do not wait for each other */
static void NAME(merge)(ITEM *out, const ITEM *first, int64_t first_count, const ITEM *second, int64_t second_count)
{
  const ITEM *first_end = first + first_count - 1, *second_end = second + second_count - 1;
  ITEM *out_end = out + first_count + second_count - 1;
  if (first_count == second_count) {
    for (int64_t i = 0; i < first_count; i++) {
      const int right = LESS(*second, *first), left = LESS(*second_end, *first_end);
      *out++ = right ? *second : *first;
      second += right;
      first += !right;
      *out_end-- = left ? *first_end : *second_end;
      first_end -= left;
      second_end -= !left;
    }
    return;
  }
  while (first <= first_end && second <= second_end) {
    const int right = LESS(*second, *first);
    *out++ = right ? *second : *first;
    second += right;
    first += !right;
  }
  while (first <= first_end) *out++ = *first++;
  while (second <= second_end) *out++ = *second++;
}

void NAME(amp__order)(ITEM *item, ITEM *spare, int64_t n)
{
  enum { RUN = 8 };
  ITEM *from = item, *to = spare;
  for (int64_t i = 0; i < n; i += RUN) NAME(insert)(item + i, n - i < RUN ? n - i : RUN);
  for (int64_t run = RUN; run < n; run *= 2) {
    for (int64_t i = 0; i < n; i += 2 * run) {
      int64_t first_count = n - i < run ? n - i : run,
              second_count = n - i - first_count < run ? n - i - first_count : run;
      NAME(merge)(to + i, from + i, first_count, from + i + first_count, second_count);
    }
    ITEM *t = from;
    from = to;
    to = t;
  }
  if (from != item) memcpy(item, from, sizeof *item * (size_t)n);
}

#define RADIX NAME(radix8)
#define BITS 8
#include "ops/order/sort_radix_body.h"

#define RADIX NAME(radix11)
#define BITS 11
#include "ops/order/sort_radix_body.h"

void NAME(amp__sort)(ITEM *item, ITEM *spare, int64_t n)
{
  if (n <= 300 || n > UINT32_MAX) NAME(amp__order)(item, spare, n);
  else if (n <= 6000) NAME(radix8)(item, spare, n);
  else NAME(radix11)(item, spare, n);
}

void NAME(amp__select)(ITEM *item, ITEM *spare, int64_t n, int64_t k)
{
  AMP_ASSERT(k >= 0 && k < n);
  ITEM *rest = item;
  for (int tries = 0; n > 24; tries++) {
    if (tries == 40) {
      NAME(amp__order)(rest, spare, n);
      return;
    }
    /* the middle of nine, at n / 8 steps */
    ITEM nine[9];
    for (int i = 0; i < 9; i++) nine[i] = rest[(n - 1) * i / 8];
    NAME(insert)(nine, 9);
    ITEM pivot = nine[4];
    int64_t below = 0;
    for (int64_t i = 0; i < n; i++) {
      ITEM x = rest[i];
      const int less = LESS(x, pivot);
      rest[i] = rest[below];
      rest[below] = x;
      below += less;
    }
    if (k < below) {
      n = below;
      continue;
    } /* s > 0: the pivot is not the least of nine */
    rest += below;
    k -= below;
    n -= below;
  }
  NAME(insert)(rest, n);
}

#undef ITEM
#undef NAME
#undef LESS
#undef KEY
#undef KEY_BITS
