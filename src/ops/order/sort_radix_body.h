/*
** ops/order/sort_radix_body.h: items sorted by passes over BITS bits of their keys, included by
** ops/order/sort_body.h for each width. That file defines RADIX, the function's name,
** and BITS, which are undefined at the end.
*/

static void RADIX(ITEM *item, ITEM *spare, int64_t n)
{
  enum { PASSES = (KEY_BITS + BITS - 1) / BITS, SIZE = 1 << BITS };
  uint32_t count[PASSES][SIZE];
  memset(count, 0, sizeof count);
  for (int64_t i = 0; i < n; i++) {
    const uint64_t k = KEY(item[i]);
    for (int p = 0; p < PASSES; p++) count[p][k >> p * BITS & (SIZE - 1)]++;
  }
  ITEM *from = item, *to = spare;
  for (int p = 0; p < PASSES; p++) {
    uint32_t *c = count[p], at = 0;
    if (c[KEY(item[0]) >> p * BITS & (SIZE - 1)] == n) continue;
    for (int d = 0; d < SIZE; d++) {
      const uint32_t m = c[d];
      c[d] = at;
      at += m;
    }
    for (int64_t i = 0; i < n; i++) to[c[KEY(from[i]) >> p * BITS & (SIZE - 1)]++] = from[i];
    ITEM *t = from;
    from = to;
    to = t;
  }
  if (from != item) memcpy(item, from, sizeof *item * (size_t)n);
}

#undef RADIX
#undef BITS
