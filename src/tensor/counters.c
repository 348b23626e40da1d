/*
** tensor/counters.c: what amp_memory tells of each device, errors of memory, and what tests switch on: failures on
*demand, a pattern in
** memory that is handed out.
**
** Counters of small things are kept by thread and added to amp_memory's in steps of 64 KiB.
*/
#include <stdio.h>
#include <string.h>
#include "tensor/alloc_inside.h"

amp_memory_stats amp__memory_counts[AMP_DEVICE_COUNT][INDICES]
    = { [0 ... AMP_DEVICE_COUNT - 1]
        = { [0 ... INDICES - 1] = { .pace = PACE_DEFAULT, .pace_large = 4 * PACE_DEFAULT } } };
_Atomic int amp__memory_tests;
_Thread_local tcache *amp__my_cache AMP_TLS_NEAR;

/* -- Counters ---------------------------------------------------------------- */

void amp__count_now(int device, int index, int64_t live, int64_t cached, int64_t allocations)
{
  amp_memory_stats *stats = &amp__memory_counts[device][index];
  int64_t now = __atomic_add_fetch(&stats->live, live, __ATOMIC_RELAXED);
  int64_t peak = __atomic_load_n(&stats->peak, __ATOMIC_RELAXED);
  while (now > peak
         && !__atomic_compare_exchange_n(&stats->peak, &peak, now, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
  add(&stats->cached, cached);
  add(&stats->allocations, allocations);
  if (live >= HUGE_MIN || live <= -HUGE_MIN) add(&stats->large, live); /* sums of smaller ones stay below */
  if (live <= 0) {
    if (live < 0 && amp__my_cache && amp__my_cache->collecting) add(&stats->high, live);
    return;
  }
  if (now > __atomic_load_n(&stats->high, __ATOMIC_RELAXED)) __atomic_store_n(&stats->high, now, __ATOMIC_RELAXED);
  int64_t large = __atomic_load_n(&stats->large, __ATOMIC_RELAXED);
  if ((now - large >= __atomic_load_n(&stats->pace, __ATOMIC_RELAXED)
       || large >= __atomic_load_n(&stats->pace_large, __ATOMIC_RELAXED))
      && amp__S)
    amp__S->attention |= AMP_A_PACE;
}

void amp__flush_counters(tcache *cache)
{
  add(&amp__memory_counts[AMP_CPU][0].high, -cache->collected); /* before the sum below is compared with it */
  cache->collected = 0;
  bool collecting = cache->collecting;
  cache->collecting = false;
  amp__count_now(AMP_CPU, 0, cache->live, cache->cached, cache->allocations);
  cache->collecting = collecting;
  cache->live = cache->cached = cache->allocations = 0;
}

/*
** The CPU's blocks come from the system and not from what was used before. What a backward takes may lie about as
*garbage
** (`swing`), in a later phase of smaller steps, too; but reaching for untouched pages, which cost more than a
*collection, only
** after one. `rest`: the large bytes after the last; a quarter more, so that a program that keeps what it makes is
*asked
** seldom.
*/
void amp__memory_grew(void)
{
  amp_memory_stats *stats = &amp__memory_counts[AMP_CPU][0];
  const int64_t large = __atomic_load_n(&stats->large, __ATOMIC_RELAXED),
                rest = __atomic_load_n(&stats->rest, __ATOMIC_RELAXED),
                least = rest / 4 > GROWTH_LEAST ? rest / 4 : GROWTH_LEAST;
  if (amp__S == NULL || large - rest < least) return;
  if (large < __atomic_load_n(&stats->pace_large, __ATOMIC_RELAXED))
    __atomic_store_n(&stats->pace_large, large, __ATOMIC_RELAXED);
  amp__S->attention |= AMP_A_PACE;
}

void amp__memory_collecting(bool on)
{
  if (amp__my_cache) amp__my_cache->collecting = on;
}

/* A backward has ended: what forward made and backward freed is no garbage, however often it comes and goes. */
void amp__memory_backward_ended(void)
{
  if (amp__my_cache) amp__flush_counters(amp__my_cache);
  for (int dim = 0; dim < AMP_DEVICE_COUNT; dim++)
    for (int i = 0; i < INDICES; i++) {
      amp_memory_stats *stats = &amp__memory_counts[dim][i];
      int64_t top = __atomic_load_n(&stats->high, __ATOMIC_RELAXED);
      if (top == 0) continue;
      int64_t now = __atomic_load_n(&stats->live, __ATOMIC_RELAXED);
      if (top - now > __atomic_load_n(&stats->swing, __ATOMIC_RELAXED))
        __atomic_store_n(&stats->swing, top - now, __ATOMIC_RELAXED);
      __atomic_store_n(&stats->high, now, __ATOMIC_RELAXED);
      if (dim == AMP_CPU || amp__S == NULL) continue;
      /* now the tape holds nothing, and the host is ahead of a GPU that has much to do: a collection costs it
      ** nothing */
      int64_t large = __atomic_load_n(&stats->large, __ATOMIC_RELAXED),
              rest = __atomic_load_n(&stats->rest, __ATOMIC_RELAXED);
      if (rest == 0 || large < rest) __atomic_store_n(&stats->rest, rest = large, __ATOMIC_RELAXED);
      if (large - rest < COLLECT_LEAST || large - rest < __atomic_load_n(&stats->swing, __ATOMIC_RELAXED) / 8) continue;
      if (large < __atomic_load_n(&stats->pace_large, __ATOMIC_RELAXED))
        __atomic_store_n(&stats->pace_large, large, __ATOMIC_RELAXED);
      __atomic_store_n(&stats->rest, -1, __ATOMIC_RELAXED);
      amp__S->attention |= AMP_A_PACE;
    }
}

amp_memory_stats *amp_memory(int device, int index)
{
  if (device < 0 || device >= AMP_DEVICE_COUNT || index < 0 || index >= INDICES) return NULL;
  if (device == AMP_CPU && amp__my_cache) amp__flush_counters(amp__my_cache);
  return &amp__memory_counts[device][index];
}

/* -- Errors ---------------------------------------------------------------------- */

static const char *amount(char *buf, size_t n, double bytes)
{
  static const char *const unit[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
  int u = 0;
  while (bytes >= 1024 && u < 6) {
    bytes /= 1024;
    u++;
  }
  snprintf(buf, n, u == 0 || bytes == (double)(int64_t)bytes ? "%.0f %s" : "%.1f %s", bytes, unit[u]);
  return buf;
}

int amp__nomem(size_t bytes)
{
  char want[32], live[32], cached[32];
  const amp_memory_stats *m = amp_memory(AMP_CPU, 0);
  return amp__fail(AMP_E_MEMORY, "no memory for %s on cpu: %s live, %s cached",
                   amount(want, sizeof want, (double)bytes), amount(live, sizeof live, (double)m->live),
                   amount(cached, sizeof cached, (double)m->cached));
}

/* -- For tests: failures on demand, a pattern in memory that is handed out --------------------- */

static _Atomic int64_t fail_after = -1;
static _Atomic int fill; /* 0: off */

static void tests_changed(void)
{
  bool on = atomic_load_explicit(&fail_after, memory_order_relaxed) > 0
            || atomic_load_explicit(&fill, memory_order_relaxed) != 0;
  atomic_store_explicit(&amp__memory_tests, on, memory_order_relaxed);
}

void amp_fail_allocation(int64_t n)
{
  atomic_store_explicit(&fail_after, n > 0 ? n : -1, memory_order_relaxed);
  tests_changed();
}

bool amp__fails_slow(void)
{
  if (atomic_load_explicit(&fail_after, memory_order_relaxed) <= 0) return false;
  int64_t n = atomic_fetch_sub_explicit(&fail_after, 1, memory_order_relaxed);
  if (n > 1) return false;
  amp_fail_allocation(-1);
  if (n < 1) return false;
  add(&amp__memory_counts[AMP_CPU][0].failures, 1);
  return true;
}

int amp__memory_fill(int byte)
{
  int was = atomic_load_explicit(&fill, memory_order_relaxed);
  if (byte >= 0) {
    atomic_store_explicit(&fill, byte & 255, memory_order_relaxed);
    tests_changed();
  }
  return was;
}

void amp__filled(int device, int index, void *p, size_t bytes)
{
  char pattern[1024];
  int byte = atomic_load_explicit(&fill, memory_order_relaxed);
  if (byte == 0 || p == NULL) return;
  if (device == AMP_CPU) {
    memset(p, byte, bytes);
    return;
  }
  if (amp__devices[device].upload == NULL) return;
  memset(pattern, byte, sizeof pattern);
  for (size_t at = 0, n; at < bytes; at += n) {
    n = bytes - at < sizeof pattern ? bytes - at : sizeof pattern;
    (void)amp__devices[device].upload(index, (char *)p + at, pattern, n);
  }
}
