/*
** amp_arena.c: parameters of an optimizer, moved next to one another.
**
** One block per dtype and device holds, for the parameters that join at a step,
**
**   master 1 .. master n | shadow 1 .. n | state 0: 1 .. n | state 1: 1 .. n | ...
**
** each slice on a 64-byte line. Large parameters get a block each, or for a few of
** them: what they leave is free before the next block is asked for. Storages move,
** tensors stay: handles, views and saved aliases read their storage's data anew and
** follow. A storage joins once.
** Parameters that are views, have gaps, share a storage with another parameter,
** or whose address somebody else knows stay where they are; the step reaches
** them through its chunk list as well. The block lives as long as any storage
** in it. What a step does to the slices is amp_optim.c's and the device's.
*/
#include <stdlib.h>
#include "amp_optim.h"

static const size_t MOST = (size_t)64 << 20; /* bytes of a block for several parameters */

static size_t line(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

static bool fits(const amp__param *p)
{
  const amp_tensor *t = p->t;
  const amp_storage *s = t->storage;
  return !p->shared && (t->flags & AMP_T_DENSE) && t->offset == 0 && t->numel > 0 &&
         !(s->flags & (AMP_S_EXPOSED | AMP_S_ARENA | AMP_S_FOREIGN)) &&
         s->bytes == (size_t)t->numel * amp__dtype_size[t->dtype];
}

static bool same_class(const amp_tensor *a, const amp_tensor *b)
{
  return a->dtype == b->dtype && a->device == b->device && a->device_index == b->device_index;
}

/* The shadow that moves along, NULL: none. */
static amp_tensor *shadow_of(const amp_tensor *t)
{
  amp_tensor *s = t->ag ? t->ag->shadow : NULL;
  if (!s || s->offset != 0 || (s->storage->flags & (AMP_S_EXPOSED | AMP_S_ARENA | AMP_S_FOREIGN))) return NULL;
  return s;
}

/* State w of p as a zeroed slice. */
static int state_in(amp__param *p, int w, amp_block *b, size_t at)
{
  amp_meta m;
  amp__optim_meta(p->t, amp__optim_dtype(p->t), &m);
  amp_storage *s = amp__storage_in(b, at, (size_t)p->t->numel * amp__dtype_size[m.dtype]);
  if (!s) return AMP_E_MEMORY;
  amp_tensor *t = amp__tensor_of(s, m.dtype, m.ndim, m.size, m.strides ? m.stride : NULL, 0);
  amp__storage_free(s);
  if (!t) return AMP_E_MEMORY;
  int rc = amp__optim_zero(t);
  if (rc) amp__free(t);
  else p->state[w] = t;
  return rc;
}

/* Bytes that p needs in a block */
static size_t room_of(const amp__param *p, unsigned need)
{
  const amp_tensor *t = p->t, *s = shadow_of(t);
  size_t total = line(t->storage->bytes) + (s ? line(s->storage->bytes) : 0);
  for (int w = 0; w < AMP_OPTIM_STATES; w++)
    if ((need >> w & 1) && !p->state[w]) total += line((size_t)t->numel * amp__dtype_size[amp__optim_dtype(t)]);
  return total;
}

static int join_block(amp__param **p, int n, unsigned need, size_t total)
{
  amp_block *b = amp__block_new(p[0]->t->device, p[0]->t->device_index, total);
  if (!b) return 0;
  size_t at = 0;
  int rc = 0;
  for (int i = 0; i < n && !rc; at += line(p[i++]->t->storage->bytes)) rc = amp__storage_move(p[i]->t->storage, b, at);
  for (int i = 0; i < n && !rc; i++) {
    amp_tensor *s = shadow_of(p[i]->t);
    if (!s) continue;
    rc = amp__storage_move(s->storage, b, at);
    at += line(s->storage->bytes);
  }
  for (int w = 0; w < AMP_OPTIM_STATES; w++)
    for (int i = 0; i < n && !rc; i++) {
      if (!(need >> w & 1) || p[i]->state[w]) continue;
      rc = state_in(p[i], w, b, at);
      at += line((size_t)p[i]->t->numel * amp__dtype_size[amp__optim_dtype(p[i]->t)]);
    }
  amp__block_free(b);
  return rc;
}

static int join_class(amp__param **p, int n, unsigned need)
{
  int rc = 0;
  for (int i = 0, from = 0; i < n && !rc; from = i) {
    size_t total = 0;
    do total += room_of(p[i++], need); while (i < n && total + room_of(p[i], need) <= MOST);
    rc = join_block(p + from, i - from, need, total);
  }
  return rc;
}

int amp__arena_join(amp__param *const *p, int n, unsigned need)
{
  amp__param **cls = malloc(sizeof *cls * (size_t)(n ? n : 1));
  if (!cls) return amp__nomem(sizeof *cls * (size_t)n);
  int rc = 0;
  for (int i = 0; i < n && !rc; i++) {
    if (p[i]->placed) continue;
    int m = 0;
    for (int j = i; j < n; j++)
      if (!p[j]->placed && same_class(p[i]->t, p[j]->t)) {
        p[j]->placed = 1;
        if (fits(p[j])) cls[m++] = p[j];
      }
    if (m) rc = join_class(cls, m, need);
  }
  free(cls);
  return rc;
}
