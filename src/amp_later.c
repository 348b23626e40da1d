/*
** amp_later.c: gradients of weights that a loop uses many times.
**
** A cell that runs for a hundred steps has a hundred times a small product for each
** weight, and a sum of weight size after it. Its derivative leaves the operands here
** instead; at the end of the backward (or when much is held) they are joined by rows
** and one product makes the whole sum:
**
**   sum of a_t^T b_t = [a_1; a_2; ...]^T [b_1; b_2; ...]
**
** Only gradients that nobody looks at meanwhile are put off: of leaves without hooks,
** reached directly or through their cast, while nobody searches for what is not finite. The engine owns the list and flushes it.
*/
#include <stdlib.h>
#include "amp_bwd.h"
#include "amp_tape.h"

enum { WANTS = 4, PARTS = 4, MOST = 512 /* operands of a kind */ };
static const size_t HELD = (size_t)64 << 20; /* bytes */

struct amp_later {
  amp_later *next;
  int nwant, nparts, n, cap;
  amp_want want[WANTS];
  amp_tensor *leaf[WANTS];       /* counted */
  amp_tensor **part[PARTS];      /* [n] each, counted */
  uint32_t *version[PARTS];      /* of the operands when they came */
  amp_tensor *made[WANTS];       /* sums that are not given yet, counted; no operands are there then */
  size_t bytes;
};

static void empty(amp_later *l)
{
  for (int p = 0; p < l->nparts; p++)
    for (int i = 0; i < l->n; i++) amp__free(l->part[p][i]);
  l->n = 0;
  l->bytes = 0;
}

void amp__later_free(amp_later *l)
{
  while (l) {
    amp_later *next = l->next;
    empty(l);
    for (int p = 0; p < PARTS; p++) { free(l->part[p]); free(l->version[p]); }
    for (int i = 0; i < l->nwant; i++) { amp__free(l->leaf[i]); amp__free(l->made[i]); }
    free(l);
    l = next;
  }
}

/* -- Making the sums ------------------------------------------------------------ */

static amp_tensor *joined(amp_later *l, int p)
{
  for (int i = 0; i < l->n; i++) {
    if (amp__version(l->part[p][i]) == l->version[p][i]) continue;
    amp__fail(AMP_E_AUTOGRAD, "a tensor needed for the gradient of a weight was changed in place while the backward ran; change a copy of it");
    return NULL;
  }
  return l->n == 1 ? l->part[p][0] : amp__xdim(AMP_OP_cat, 0, l->n, l->part[p]);
}

/* From operands to sums. A failure leaves the operands. */
static int make(amp_later *l)
{
  amp_tensor *whole[PARTS] = { NULL }, *made[WANTS] = { NULL };
  int rc = 0, mark = amp__pool_mark(), zero = 0;
  for (int p = 0; p < l->nparts && rc == 0; p++)
    if ((whole[p] = joined(l, p)) == NULL) rc = amp__err();
  for (int i = 0; i < l->nwant && rc == 0; i++) {
    amp_tensor *a = whole[l->want[i].left];
    for (int k = 0; k < i; k++) if (l->want[k].left == l->want[i].left && l->want[k].right == l->want[i].right) made[i] = made[k];
    if (!made[i]) made[i] = l->want[i].right < 0 ? amp__xsum(a, 1, &zero, false) : X2(matmul, amp__xtranspose(a, 0, 1), whole[l->want[i].right]);
    if (!made[i]) rc = amp__err();
  }
  if (rc == 0) {
    empty(l); /* what is held goes before the gradients come */
    for (int i = 0; i < l->nwant; i++) l->made[i] = amp__keep(made[i]);
  }
  amp__pool_release(mark);
  return rc;
}

static int finish(amp_later *l, amp_later_fn give, void *to)
{
  int rc = l->n ? make(l) : 0;
  for (int i = 0; i < l->nwant && rc == 0; i++)
    if (l->made[i] && (rc = give(to, l->leaf[i], l->made[i])) == 0) l->made[i] = NULL;
  return rc;
}

static bool half_given(const amp_later *l)
{
  for (int i = 0; i < l->nwant; i++) if (l->made[i]) return true;
  return false;
}

int amp__later_flush(amp_later *l, bool all, amp_later_fn give, void *to)
{
  int rc = 0;
  for (; l && rc == 0; l = l->next)
    if (half_given(l) || (l->n && (all || l->n >= MOST || l->bytes > HELD))) rc = finish(l, give, to);
  return rc;
}

/* -- Taking operands -------------------------------------------------------------- */

/* The leaf whose gradient input i's is, if nobody sees it before it is complete */
static amp_tensor *leaf_of(const amp_bwd *b, int i)
{
  const amp_edge *e = &b->node->edge[i];
  amp_tensor *leaf = e->leaf;
  if (e->node && (e->node->flags & AMP_N_CAST) && !(e->node->flags & AMP_N_FREED) && !e->node->hooks && !e->node->slices) {
    leaf = e->node->edge[0].leaf;
    if (leaf && leaf->dtype != amp__shape_of(e->node, 0)->dtype) leaf = NULL;
  }
  return leaf && !(leaf->ag && leaf->ag->hook) ? leaf : NULL;
}

static bool room(amp_later *l)
{
  if (l->n < l->cap) return true;
  int cap = l->cap ? 2 * l->cap : 16;
  for (int p = 0; p < l->nparts; p++) {
    amp_tensor **t = realloc(l->part[p], sizeof *t * (size_t)cap);
    if (t) l->part[p] = t;
    uint32_t *v = realloc(l->version[p], sizeof *v * (size_t)cap);
    if (v) l->version[p] = v;
    if (!t || !v) { amp__nomem(sizeof *t * (size_t)cap); return false; }
  }
  l->cap = cap;
  return true;
}

static bool fits(const amp_later *l, int nparts, amp_tensor *const *part, int n, const amp_want *want, amp_tensor *const *leaf)
{
  if (l->nwant != n || l->nparts != nparts) return false;
  for (int i = 0; i < n; i++)
    if (l->leaf[i] != leaf[i] || l->want[i].left != want[i].left || l->want[i].right != want[i].right) return false;
  for (int p = 0; p < nparts && l->n; p++)
    if (l->part[p][0]->dtype != part[p]->dtype) return false;
  return true;
}

int amp__later(amp_bwd *b, int nparts, amp_tensor *const *part, int n, const amp_want *want)
{
  amp_tensor *leaf[WANTS];
  int count = 0;
  amp_want wanted[WANTS];
  if (b->later == NULL || n > WANTS || nparts > PARTS || amp_unlikely(amp__observe_each())) return 0;
  for (int i = 0; i < n; i++) {
    if (!NEED(b, want[i].input)) continue;
    if ((leaf[count] = leaf_of(b, want[i].input)) == NULL) return 0;
    wanted[count++] = want[i];
  }
  if (count == 0) return 1;
  amp_later *l = *b->later;
  while (l && !fits(l, nparts, part, count, wanted, leaf)) l = l->next;
  if (l == NULL) {
    if ((l = calloc(1, sizeof *l)) == NULL) return amp__nomem(sizeof *l);
    l->next = *b->later;
    *b->later = l;
    l->nparts = nparts;
    for (int i = 0; i < count; i++) {
      l->want[i] = wanted[i];
      l->leaf[i] = leaf[i];
      amp__retain(leaf[i]);
    }
    l->nwant = count;
  }
  if (!room(l)) return amp__err();
  for (int p = 0; p < nparts; p++) {
    l->part[p][l->n] = part[p];
    l->version[p][l->n] = amp__version(part[p]);
    amp__retain(part[p]);
    l->bytes += (size_t)part[p]->numel * amp__dtype_size[part[p]->dtype];
  }
  l->n++;
  return 1;
}
