/*
** autograd/deferred_wgrad.c: gradients of weights that a loop uses many times.
**
** A cell that runs for a hundred steps has a hundred times a small product for each
** weight, and a sum of weight size after it. Its derivative leaves the operands here
** instead; at the end of the backward (or when much is held) they are joined by rows
** and one product makes the whole sum:
**
**   sum of a_t^T b_t = [a_1; a_2; ...]^T [b_1; b_2; ...]
**
** Only gradients that are not looked at meanwhile are put off: of leaves without hooks, reached directly or through
** their cast, while the observer does not search for what is not finite. The engine owns the list and flushes it.
*/
#include <stdlib.h>
#include "autograd/derivative.h"
#include "autograd/tape.h"

enum { WANTS = 4, PARTS = 4, MOST = 512 /* operands of a kind */ };
static const size_t HELD = (size_t)64 << 20; /* bytes */

struct amp_deferred_wgrad {
  amp_deferred_wgrad *next;
  int nwant, nparts, count, cap;
  amp_want want[WANTS];
  amp_tensor *leaf[WANTS];  /* counted */
  amp_tensor **part[PARTS]; /* [n] each, counted */
  uint32_t *version[PARTS]; /* of the operands when they came */
  amp_tensor *made[WANTS];  /* sums that are not given yet, counted; no operands are there then */
  size_t bytes;
};

static void empty(amp_deferred_wgrad *deferred)
{
  for (int p = 0; p < deferred->nparts; p++)
    for (int i = 0; i < deferred->count; i++) amp__free(deferred->part[p][i]);
  deferred->count = 0;
  deferred->bytes = 0;
}

void amp__deferred_wgrad_free(amp_deferred_wgrad *deferred)
{
  while (deferred) {
    amp_deferred_wgrad *next = deferred->next;
    empty(deferred);
    for (int p = 0; p < PARTS; p++) {
      free(deferred->part[p]);
      free(deferred->version[p]);
    }
    for (int i = 0; i < deferred->nwant; i++) {
      amp__free(deferred->leaf[i]);
      amp__free(deferred->made[i]);
    }
    free(deferred);
    deferred = next;
  }
}

/* -- Making the sums ------------------------------------------------------------ */

static amp_tensor *joined(amp_deferred_wgrad *deferred, int p)
{
  for (int i = 0; i < deferred->count; i++) {
    if (amp__version(deferred->part[p][i]) == deferred->version[p][i]) continue;
    amp__fail(AMP_E_AUTOGRAD,
              "a tensor needed for the gradient of a weight was changed in place while the backward ran; change a "
              "copy of it");
    return NULL;
  }
  return deferred->count == 1 ? deferred->part[p][0] : amp__op_dim(AMP_OP_cat, 0, deferred->count, deferred->part[p]);
}

/* From operands to sums. A failure leaves the operands. */
static int make(amp_deferred_wgrad *deferred)
{
  amp_tensor *whole[PARTS] = { NULL }, *made[WANTS] = { NULL };
  int status = 0, mark = amp__pool_mark(), zero = 0;
  for (int p = 0; p < deferred->nparts && status == 0; p++)
    if ((whole[p] = joined(deferred, p)) == NULL) status = amp__err();
  for (int i = 0; i < deferred->nwant && status == 0; i++) {
    amp_tensor *a = whole[deferred->want[i].left];
    for (int k = 0; k < i; k++)
      if (deferred->want[k].left == deferred->want[i].left && deferred->want[k].right == deferred->want[i].right)
        made[i] = made[k];
    if (!made[i])
      made[i] = deferred->want[i].right < 0 ? amp__op_sum(a, 1, &zero, false)
                                            : OP2(matmul, amp__op_transpose(a, 0, 1), whole[deferred->want[i].right]);
    if (!made[i]) status = amp__err();
  }
  if (status == 0) {
    for (int i = 0; i < deferred->nwant; i++) AMP_ASSERT(deferred->made[i] == NULL);
    empty(deferred); /* what is held goes before the gradients come */
    for (int i = 0; i < deferred->nwant; i++) deferred->made[i] = amp__keep(made[i]);
  }
  amp__pool_release(mark);
  return status;
}

static int finish(amp_deferred_wgrad *deferred, amp_deferred_wgrad_fn give, void *to)
{
  int status = deferred->count ? make(deferred) : 0;
  for (int i = 0; i < deferred->nwant && status == 0; i++)
    if (deferred->made[i] && (status = give(to, deferred->leaf[i], deferred->made[i])) == 0) deferred->made[i] = NULL;
  return status;
}

static bool half_given(const amp_deferred_wgrad *l)
{
  for (int i = 0; i < l->nwant; i++)
    if (l->made[i]) return true;
  return false;
}

int amp__deferred_wgrad_flush(amp_deferred_wgrad *deferred, bool all, amp_deferred_wgrad_fn give, void *to)
{
  int status = 0;
  for (; deferred && status == 0; deferred = deferred->next)
    if (half_given(deferred) || (deferred->count && (all || deferred->count >= MOST || deferred->bytes > HELD)))
      status = finish(deferred, give, to);
  return status;
}

bool amp__deferred_wgrad_has(const amp_deferred_wgrad *deferred, const amp_tensor *leaf)
{
  for (; deferred; deferred = deferred->next)
    for (int i = 0; i < deferred->nwant; i++)
      if (deferred->leaf[i] == leaf && (deferred->count || deferred->made[i])) return true;
  return false;
}

/* -- Taking operands -------------------------------------------------------------- */

/* The leaf whose gradient input i's is, if it is not seen before it is complete */
static amp_tensor *leaf_of(const amp_bwd *bwd, int i)
{
  const amp_edge *e = &bwd->node->edge[i];
  amp_tensor *leaf = e->leaf;
  if (e->node && (e->node->flags & AMP_N_CAST) && !(e->node->flags & AMP_N_FREED) && !e->node->hooks
      && !e->node->slices) {
    leaf = e->node->edge[0].leaf;
    if (leaf && leaf->dtype != amp__shape_of(e->node, 0)->dtype) leaf = NULL;
  }
  return leaf && !(leaf->ag && leaf->ag->hook) ? leaf : NULL;
}

static bool room(amp_deferred_wgrad *deferred)
{
  if (deferred->count < deferred->cap) return true;
  int cap = deferred->cap ? 2 * deferred->cap : 16;
  for (int p = 0; p < deferred->nparts; p++) {
    amp_tensor **t = realloc(deferred->part[p], sizeof *t * (size_t)cap);
    if (t) deferred->part[p] = t;
    uint32_t *v = realloc(deferred->version[p], sizeof *v * (size_t)cap);
    if (v) deferred->version[p] = v;
    if (!t || !v) {
      amp__nomem(sizeof *t * (size_t)cap);
      return false;
    }
  }
  deferred->cap = cap;
  return true;
}

static bool fits(const amp_deferred_wgrad *l, int nparts, amp_tensor *const *part, int count, const amp_want *want,
                 amp_tensor *const *leaf)
{
  if (l->nwant != count || l->nparts != nparts) return false;
  for (int i = 0; i < count; i++)
    if (l->leaf[i] != leaf[i] || l->want[i].left != want[i].left || l->want[i].right != want[i].right) return false;
  for (int p = 0; p < nparts && l->count; p++)
    if (l->part[p][0]->dtype != part[p]->dtype) return false;
  return true;
}

int amp__defer_wgrad(amp_bwd *bwd, int nparts, amp_tensor *const *part, int n, const amp_want *want)
{
  amp_tensor *leaf[WANTS];
  int count = 0;
  amp_want wanted[WANTS];
  if (bwd->later == NULL || n > WANTS || nparts > PARTS || amp_unlikely(amp__observe_each())) return 0;
  for (int i = 0; i < n; i++) {
    if (!NEEDS(bwd, want[i].input)) continue;
    if ((leaf[count] = leaf_of(bwd, want[i].input)) == NULL) return 0;
    wanted[count++] = want[i];
  }
  if (count == 0) return 1;
  amp_deferred_wgrad *deferred = *bwd->later;
  while (deferred && !fits(deferred, nparts, part, count, wanted, leaf)) deferred = deferred->next;
  if (deferred == NULL) {
    if ((deferred = calloc(1, sizeof *deferred)) == NULL) return amp__nomem(sizeof *deferred);
    deferred->next = *bwd->later;
    *bwd->later = deferred;
    deferred->nparts = nparts;
    for (int i = 0; i < count; i++) {
      deferred->want[i] = wanted[i];
      deferred->leaf[i] = leaf[i];
      amp__retain(leaf[i]);
    }
    deferred->nwant = count;
  }
  if (!room(deferred)) return amp__err();
  for (int p = 0; p < nparts; p++) {
    deferred->part[p][deferred->count] = part[p];
    deferred->version[p][deferred->count] = amp__version(part[p]);
    amp__retain(part[p]);
    deferred->bytes += (size_t)part[p]->numel * amp__dtype_size[part[p]->dtype];
  }
  deferred->count++;
  return 1;
}
