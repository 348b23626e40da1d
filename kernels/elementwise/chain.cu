/*
** chain.cu: how the operands of a generated kernel lie: as those of elementwise.cuh's kernels, but more of them, and of
** any dtype. The kernels themselves are made of chain.cuh while the program runs; nothing here runs on a card.
*/
#include "elementwise/elementwise.cuh"

typedef amp_ew_of<AMP_CHAIN_INPUTS + 1> places;
static_assert(sizeof(places) <= AMP_CHAIN_PLACES, "the caller has room for them");

extern "C" bool amp__chain_places(const amp_chain *chain, amp_tensor *result, void *room, size_t *bytes)
{
  places *e = (places *)room;
  bool wide = amp_ew_layout(e, result, chain->input, chain->inputs, true, true);
  *bytes = offsetof(places, op) + sizeof e->op[0] * (size_t)(chain->inputs + 1);
  return wide;
}

extern "C" unsigned amp__chain_grid(int64_t n, int64_t per) { return amp_grid(n, per, 1 << 12); }
