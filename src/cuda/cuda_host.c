/*
** cuda_host.c: pinned memory of the host. Pinning costs a system call and more,
** so blocks are kept: powers of two up to 1 MiB, whole MiB above.
**
** A block that is given back may be read or written by copies that are queued: it
** is `freed` until those streams have passed a mark, which is set when the next
** block is asked for. Giving back calls no device, so finalizers may. What is
** known of a block lies in ordinary memory: a forked child, whose collector gives
** back what it inherited, need not have the pinned pages, and changes nothing.
*/
#include <stdlib.h>
#include <string.h>
#include "cuda_core.h"

enum { BUCKETS = 256, MIB = 1 << 20 };
typedef struct block {
  struct block *next;
  void *p;
  size_t n;
  uint32_t cards, streams;
  void *mark; /* set into streams of the lowest of `cards`, or NULL: not yet */
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *ready, *given[BUCKETS]; /* given: by address */
static block *freed, **last = &freed; /* in the order of giving back */

static block **bucket(const void *p) { return &given[((uintptr_t)p >> 12 ^ (uintptr_t)p >> 20) % BUCKETS]; }

static size_t round_up(size_t n)
{
  size_t k = 4096;
  if (n > MIB) return (n + MIB - 1) & ~(size_t)(MIB - 1);
  while (k < n) k *= 2;
  return k;
}

/* Those that no copy can reach any more are ready. Under the lock. A stream passes its marks in the order they were
** set, so behind one that it has not passed no event is asked for. */
static void collect(void)
{
  uint32_t behind[AMP_CUDA_MAX] = { 0 };
  block **at = &freed;
  for (block *b; (b = *at);) {
    while (b->cards) {
      int card = __builtin_ctz(b->cards);
      if (b->mark == NULL && (b->mark = amp__cuda_mark(card, b->streams)) == NULL) break;
      if (behind[card] & b->streams) break;
      if (!amp__cuda_reached(card, b->mark)) {
        behind[card] |= b->streams;
        break;
      }
      b->mark = NULL;
      b->cards &= b->cards - 1;
    }
    if (b->cards) {
      at = &b->next;
      continue;
    }
    *at = b->next;
    b->next = ready;
    ready = b;
  }
  last = at;
}

static block *pin(size_t n)
{
  block *b = calloc(1, sizeof *b);
  if (b == NULL || (amp__cuda_here() == NULL && !amp__cuda_enter(0))) goto bad;
  cudaError_t before = cudaPeekAtLastError();
  if (cudaHostAlloc(&b->p, n, cudaHostAllocPortable) != cudaSuccess) {
    amp__cuda_forget(before);
    goto bad;
  }
  b->n = n;
  return b;
bad:
  free(b);
  return NULL;
}

void *amp__cuda_host_alloc(size_t bytes)
{
  size_t n = round_up(bytes);
  block *b = NULL;
  if (amp__cuda_forked()) return NULL;
  pthread_mutex_lock(&lock);
  if (freed) collect();
  for (block **at = &ready; *at; at = &(*at)->next)
    if ((*at)->n >= n && (*at)->n <= n + n / 4) {
      b = *at;
      *at = b->next;
      break;
    }
  pthread_mutex_unlock(&lock);
  if (b == NULL && (b = pin(n)) == NULL) return NULL;
  b->cards = b->streams = 0;
  b->mark = NULL;
  block **list = bucket(b->p);
  pthread_mutex_lock(&lock);
  b->next = *list;
  *list = b;
  pthread_mutex_unlock(&lock);
  return b->p;
}

void amp__cuda_host_free(void *p, size_t bytes, uint32_t cards, uint32_t streams)
{
  (void)bytes;
  if (amp__cuda_forked()) return; /* not its memory, and the lock may be held for ever */
  pthread_mutex_lock(&lock);
  block **at = bucket(p);
  while (*at && (*at)->p != p) at = &(*at)->next;
  block *b = *at;
  if (b) {
    *at = b->next;
    b->cards = cards;
    b->streams = streams;
    if (cards) {
      b->next = NULL;
      *last = b;
      last = &b->next;
    } else {
      b->next = ready;
      ready = b;
    }
  }
  pthread_mutex_unlock(&lock);
}

void amp__cuda_host_trim(void)
{
  if (amp__cuda_forked()) return;
  pthread_mutex_lock(&lock);
  collect();
  block *b = ready;
  ready = NULL;
  pthread_mutex_unlock(&lock);
  while (b) {
    block *next = b->next;
    AMP_UNREAD(cudaFreeHost(b->p));
    free(b);
    b = next;
  }
}
