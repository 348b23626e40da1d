/*
** autograd/gradient_swap.c: gradients laid aside while a block of another scale runs.
**
** It holds a gradient record a leaf. Swapping exchanges it with the one the leaf
** has, whatever that is (16 bits, a pending factor, a check, a tensor that the
** user holds): nothing is read, converted or copied. Merging gives the records
** back, added to what the leaves have got since; a tensor that the user holds is
** added to in place. It owns its records and counts its leaves. What a sum's
** check is, the block's end sees to: the optimizer's guards (optim/optim.c).
*/
#include <stdlib.h>
#include "dispatch/op_builder.h"
#include "precision/scale.h"
#include "autograd/tape.h"

struct amp_aside {
  int count, swapped;
  amp_tensor **leaf;
  amp_grad *held;
};

amp_aside *amp_aside_new(amp_state *state, amp_tensor *const *leaf, int count)
{
  AMP_ENTER(state);
  if (count < 0) {
    amp__fail(AMP_E_ARGUMENT, "gradients of %d tensors", count);
    return NULL;
  }
  for (int i = 0; i < count; i++)
    if (!leaf[i]) {
      amp__fail_arg(AMP_E_ARGUMENT, i + 1, "tensor %d was freed", i + 1);
      return NULL;
    }
  amp_aside *aside = calloc(1, sizeof *aside);
  if (!aside) {
    amp__nomem(sizeof *aside);
    return NULL;
  }
  aside->leaf = malloc(sizeof *aside->leaf * (size_t)(count ? count : 1));
  aside->held = calloc((size_t)(count ? count : 1), sizeof *aside->held);
  if (!aside->leaf || !aside->held) {
    amp__nomem(sizeof *aside->held * (size_t)count);
    free(aside->leaf);
    free(aside->held);
    free(aside);
    return NULL;
  }
  for (int i = 0; i < count; i++) {
    amp__retain(leaf[i]);
    aside->leaf[i] = leaf[i];
  }
  aside->count = count;
  return aside;
}

static void drop(amp_grad *grad)
{
  amp__free(grad->value);
  amp__free(grad->factor);
  amp__free(grad->scale);
  if (grad->check) amp__hooks.check_free(grad->check);
  *grad = (amp_grad){ 0 };
}

void amp_aside_free(amp_aside *aside)
{
  if (!aside) return;
  for (int i = 0; i < aside->count; i++) {
    drop(&aside->held[i]);
    amp__free(aside->leaf[i]);
  }
  free(aside->leaf);
  free(aside->held);
  free(aside);
}

int amp_aside_swap(amp_state *state, amp_aside *aside)
{
  AMP_ENTER(state);
  for (int i = 0; i < aside->count; i++) /* all that can fail, first */
    if (aside->held[i].value && !amp__ag(aside->leaf[i])) return state->err.code;
  for (int i = 0; i < aside->count; i++) {
    amp_ag *ag = aside->leaf[i]->ag;
    if (!ag) continue;
    amp_grad g = ag->grad;
    ag->grad = aside->held[i];
    aside->held[i] = g;
  }
  aside->swapped = !aside->swapped;
  return 0;
}

int amp_aside_put(amp_state *state, amp_aside *moved, int aside)
{
  return moved->swapped == (aside != 0) ? 0 : amp_aside_swap(state, moved);
}

int amp_aside_count(const amp_aside *k)
{
  int count = 0;
  for (int i = 0; i < k->count; i++) count += k->held[i].value != NULL;
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
    int status = amp__grad_materialize(leaf);
    if (status) return status;
    more = ag->grad.value;
    origin = amp__grad_origin(&ag->grad);
    if ((scale = amp__grad_scale(&ag->grad)) != NULL) amp__retain(scale);
    amp__retain(more);
    amp__grad_clear(leaf);
  }
  ag->grad = *held;
  *held = (amp_grad){ 0 };
  if (!more) return 0;
  amp__scales_enter();
  int before = amp_backward_origin(amp__S, origin | (scale ? amp__scale_bit(scale) : 0)),
      status = amp__grad_accumulate(leaf, more, false);
  amp_backward_origin(amp__S, before);
  amp__scales_leave();
  if (status < 0) { /* as before: this may be tried again */
    *held = ag->grad;
    ag->grad = (amp_grad){ 0 };
    ag->grad.value = more;
    ag->grad.scale = scale;
    amp__grad_from(&ag->grad, origin);
  } else amp__free(scale);
  return status;
}

int amp_aside_merge(amp_state *state, amp_aside *aside)
{
  AMP_ENTER(state);
  amp__plain plain = amp__plain_begin();
  int status = 0;
  for (int i = 0; i < aside->count && !status; i++)
    if (aside->held[i].value) status = merge(aside->leaf[i], &aside->held[i]);
  amp__plain_end(plain);
  return status;
}
