/*
** amp_aside.c: gradients laid aside while a block of another scale runs.
**
** It holds a gradient record a leaf. Swapping exchanges it with the one the leaf
** has, whatever that is (16 bits, a pending factor, a check, a tensor that the
** user holds): nothing is read, converted or copied. Merging gives the records
** back, added to what the leaves have got since; a tensor that the user holds is
** added to in place. It owns its records and counts its leaves. What a sum's
** check is, the block's end sees to: the optimizer's guards (amp_optim.c).
*/
#include <stdlib.h>
#include "amp_compose.h"
#include "amp_scale.h"
#include "amp_tape.h"

struct amp_aside { int n, swapped; amp_tensor **leaf; amp_grad *held; };

amp_aside *amp_aside_new(amp_state *S, amp_tensor *const *leaf, int n)
{
  AMP_ENTER(S);
  if (n < 0) { amp__fail(AMP_E_ARGUMENT, "gradients of %d tensors", n); return NULL; }
  for (int i = 0; i < n; i++)
    if (!leaf[i]) { amp__fail_arg(AMP_E_ARGUMENT, i + 1, "tensor %d was freed", i + 1); return NULL; }
  amp_aside *k = calloc(1, sizeof *k);
  if (!k) { amp__nomem(sizeof *k); return NULL; }
  k->leaf = malloc(sizeof *k->leaf * (size_t)(n ? n : 1));
  k->held = calloc((size_t)(n ? n : 1), sizeof *k->held);
  if (!k->leaf || !k->held) {
    amp__nomem(sizeof *k->held * (size_t)n);
    free(k->leaf); free(k->held); free(k);
    return NULL;
  }
  for (int i = 0; i < n; i++) { amp__retain(leaf[i]); k->leaf[i] = leaf[i]; }
  k->n = n;
  return k;
}

static void drop(amp_grad *g)
{
  amp__free(g->value);
  amp__free(g->factor);
  amp__free(g->scale);
  if (g->check) amp_check_free(g->check);
  *g = (amp_grad){0};
}

void amp_aside_free(amp_aside *k)
{
  if (!k) return;
  for (int i = 0; i < k->n; i++) { drop(&k->held[i]); amp__free(k->leaf[i]); }
  free(k->leaf); free(k->held); free(k);
}

int amp_aside_swap(amp_state *S, amp_aside *k)
{
  AMP_ENTER(S);
  for (int i = 0; i < k->n; i++) /* all that can fail, first */
    if (k->held[i].value && !amp__ag(k->leaf[i])) return S->err.code;
  for (int i = 0; i < k->n; i++) {
    amp_ag *ag = k->leaf[i]->ag;
    if (!ag) continue;
    amp_grad g = ag->grad;
    ag->grad = k->held[i];
    k->held[i] = g;
  }
  k->swapped = !k->swapped;
  return 0;
}

int amp_aside_put(amp_state *S, amp_aside *k, int aside)
{
  return k->swapped == (aside != 0) ? 0 : amp_aside_swap(S, k);
}

int amp_aside_count(const amp_aside *k)
{
  int count = 0;
  for (int i = 0; i < k->n; i++) count += k->held[i].value != NULL;
  return count;
}

/* One leaf: held + what it has, in the leaf's dtype. */
static int merge(amp_tensor *leaf, amp_grad *held)
{
  amp_ag *ag = amp__ag(leaf);
  if (!ag) return amp__S->err.code;
  amp_tensor *more = NULL, *scale = NULL;
  int origin = 0;
  if (ag->grad.value) {
    int rc = amp__grad_materialize(leaf);
    if (rc) return rc;
    more = ag->grad.value;
    origin = amp__grad_origin(&ag->grad);
    if ((scale = amp__grad_scale(&ag->grad)) != NULL) amp__retain(scale);
    amp__retain(more);
    amp__grad_clear(leaf);
  }
  ag->grad = *held;
  *held = (amp_grad){0};
  if (!more) return 0;
  amp__scales_enter();
  int before = amp_backward_origin(amp__S, origin | (scale ? amp__scale_bit(scale) : 0)), rc = amp__grad_accumulate(leaf, more, false);
  amp_backward_origin(amp__S, before);
  amp__scales_leave();
  if (rc < 0) { /* as before: this may be tried again */
    *held = ag->grad;
    ag->grad = (amp_grad){0};
    ag->grad.value = more;
    ag->grad.scale = scale;
    amp__grad_from(&ag->grad, origin);
  } else amp__free(scale);
  return rc;
}

int amp_aside_merge(amp_state *S, amp_aside *k)
{
  AMP_ENTER(S);
  amp__plain p = amp__plain_begin();
  int rc = 0;
  for (int i = 0; i < k->n && !rc; i++)
    if (k->held[i].value) rc = merge(k->leaf[i], &k->held[i]);
  amp__plain_end(p);
  return rc;
}
