/*
** cpu_sort_body.h: sorting and selecting, once for each kind of item. The
** includer defines ITEM, NAME(x), LESS(a, b) (a total order without equals),
** KEY(x) (what radix passes look at) and KEY_BITS; all is undefined at the end.
**
** Few items are merged without branches, from runs that insertion sorted. Many
** go through radix passes of 8 or 11 bits, least digit first, which keep the
** order of equals; a pass whose digit is the same everywhere is left out.
** Selection is quickselect with a branch-free partition.
*/

static void NAME(insert)(ITEM *v, int64_t n)
{
  for (int64_t i = 1; i < n; i++) {
    ITEM x = v[i];
    int64_t j = i;
    for (; j > 0 && LESS(x, v[j - 1]); j--) v[j] = v[j - 1];
    v[j] = x;
  }
}

/* Two runs from both ends at once: two chains that do not wait for each other */
static void NAME(merge)(ITEM *o, const ITEM *a, int64_t na, const ITEM *b, int64_t nb)
{
  const ITEM *ae = a + na - 1, *be = b + nb - 1;
  ITEM *e = o + na + nb - 1;
  if (na == nb) {
    for (int64_t i = 0; i < na; i++) {
      const int right = LESS(*b, *a), left = LESS(*be, *ae);
      *o++ = right ? *b : *a;
      b += right; a += !right;
      *e-- = left ? *ae : *be;
      ae -= left; be -= !left;
    }
    return;
  }
  while (a <= ae && b <= be) {
    const int right = LESS(*b, *a);
    *o++ = right ? *b : *a;
    b += right; a += !right;
  }
  while (a <= ae) *o++ = *a++;
  while (b <= be) *o++ = *b++;
}

void NAME(amp__order)(ITEM *v, ITEM *spare, int64_t n)
{
  enum { RUN = 8 };
  ITEM *from = v, *to = spare;
  for (int64_t i = 0; i < n; i += RUN) NAME(insert)(v + i, n - i < RUN ? n - i : RUN);
  for (int64_t run = RUN; run < n; run *= 2) {
    for (int64_t i = 0; i < n; i += 2 * run) {
      int64_t na = n - i < run ? n - i : run, nb = n - i - na < run ? n - i - na : run;
      NAME(merge)(to + i, from + i, na, from + i + na, nb);
    }
    ITEM *t = from; from = to; to = t;
  }
  if (from != v) memcpy(v, from, sizeof *v * (size_t)n);
}

#define RADIX(FN, BITS) \
static void NAME(FN)(ITEM *v, ITEM *spare, int64_t n) \
{ \
  enum { PASSES = (KEY_BITS + BITS - 1) / BITS, SIZE = 1 << BITS }; \
  uint32_t count[PASSES][SIZE]; \
  memset(count, 0, sizeof count); \
  for (int64_t i = 0; i < n; i++) { \
    const uint64_t k = KEY(v[i]); \
    for (int p = 0; p < PASSES; p++) count[p][k >> p * BITS & (SIZE - 1)]++; \
  } \
  ITEM *from = v, *to = spare; \
  for (int p = 0; p < PASSES; p++) { \
    uint32_t *c = count[p], at = 0; \
    if (c[KEY(v[0]) >> p * BITS & (SIZE - 1)] == n) continue; \
    for (int d = 0; d < SIZE; d++) { const uint32_t m = c[d]; c[d] = at; at += m; } \
    for (int64_t i = 0; i < n; i++) to[c[KEY(from[i]) >> p * BITS & (SIZE - 1)]++] = from[i]; \
    ITEM *t = from; from = to; to = t; \
  } \
  if (from != v) memcpy(v, from, sizeof *v * (size_t)n); \
}
RADIX(radix8, 8)
RADIX(radix11, 11)
#undef RADIX

void NAME(amp__sort)(ITEM *v, ITEM *spare, int64_t n)
{
  if (n <= 300 || n > UINT32_MAX) NAME(amp__order)(v, spare, n);
  else if (n <= 6000) NAME(radix8)(v, spare, n);
  else NAME(radix11)(v, spare, n);
}

void NAME(amp__select)(ITEM *v, ITEM *spare, int64_t n, int64_t k)
{
  ITEM *a = v;
  for (int tries = 0; n > 24; tries++) {
    if (tries == 40) { NAME(amp__order)(a, spare, n); return; }
    /* the middle of nine, at n / 8 steps */
    ITEM p[9];
    for (int i = 0; i < 9; i++) p[i] = a[(n - 1) * i / 8];
    NAME(insert)(p, 9);
    ITEM pivot = p[4];
    int64_t s = 0;
    for (int64_t i = 0; i < n; i++) {
      ITEM x = a[i];
      const int less = LESS(x, pivot);
      a[i] = a[s]; a[s] = x; s += less;
    }
    if (k < s) { n = s; continue; } /* s > 0: the pivot is not the least of nine */
    a += s; k -= s; n -= s;
  }
  NAME(insert)(a, n);
}

#undef ITEM
#undef NAME
#undef LESS
#undef KEY
#undef KEY_BITS
