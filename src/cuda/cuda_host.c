/*
** cuda_host.c: pinned memory of the host. Pinning costs a system call and more,
** so blocks are kept: powers of two up to 1 MiB, whole MiB above.
**
** A block that is given back may be read or written by copies that are queued: it
** is `freed` until those streams have passed a mark, which is set when the next
** block is asked for. Giving back calls no device, so finalizers may.
*/
#include <stdlib.h>
#include <string.h>
#include "cuda_core.h"

enum { HEAD = 64, MIB = 1 << 20 };
typedef struct block { /* lies before what it gives */
  struct block *next;
  size_t n;
  uint32_t cards, streams;
  void *mark;            /* set into streams of the lowest of `cards`, or NULL: not yet */
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *ready, *freed;

static size_t round_up(size_t n)
{
  size_t k = 4096;
  if (n > MIB) return (n + MIB - 1) & ~(size_t)(MIB - 1);
  while (k < n) k *= 2;
  return k;
}

/* Those that no copy can reach any more are ready. Under the lock. */
static void collect(void)
{
  for (block **at = &freed; *at; ) {
    block *b = *at;
    while (b->cards) {
      int card = __builtin_ctz(b->cards);
      if (b->mark == NULL && (b->mark = amp__cuda_mark(card, b->streams)) == NULL) break;
      if (!amp__cuda_reached(card, b->mark)) break;
      b->mark = NULL;
      b->cards &= b->cards - 1;
    }
    if (b->cards) { at = &b->next; continue; }
    *at = b->next;
    b->next = ready;
    ready = b;
  }
}

void *amp__cuda_host_alloc(size_t bytes)
{
  size_t n = round_up(bytes + HEAD);
  block *b = NULL;
  pthread_mutex_lock(&lock);
  if (freed) collect();
  for (block **at = &ready; *at; at = &(*at)->next)
    if ((*at)->n >= n && (*at)->n <= n + n / 4) {
      b = *at;
      *at = b->next;
      break;
    }
  pthread_mutex_unlock(&lock);
  if (b == NULL) {
    void *p = NULL;
    if (amp__cuda_here() == NULL && !amp__cuda_enter(0)) return NULL;
    if (cudaHostAlloc(&p, n, cudaHostAllocPortable) != cudaSuccess) {
      cudaGetLastError();
      return NULL;
    }
    b = p;
    b->n = n;
  }
  b->cards = b->streams = 0;
  b->mark = NULL;
  return (char *)b + HEAD;
}

void amp__cuda_host_free(void *p, size_t bytes, uint32_t cards, uint32_t streams)
{
  block *b = (block *)((char *)p - HEAD);
  (void)bytes;
  b->cards = cards;
  b->streams = streams;
  pthread_mutex_lock(&lock);
  block **list = cards ? &freed : &ready;
  b->next = *list;
  *list = b;
  pthread_mutex_unlock(&lock);
}

void amp__cuda_host_trim(void)
{
  pthread_mutex_lock(&lock);
  collect();
  block *b = ready;
  ready = NULL;
  pthread_mutex_unlock(&lock);
  while (b) {
    block *next = b->next;
    cudaFreeHost(b);
    b = next;
  }
}
