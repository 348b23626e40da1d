/*
** ops/norm/norm_runs.c: loops over runs of channels (ops/norm/norm_runs.h): a column of each lane's
** values goes through the vector unit side by side with its neighbours.
*/
#include "ops/norm/norm_runs.h"

/* -- Layout ------------------------------------------------------------------------------- */

bool amp__norm_strides(const amp_tensor *tensor, const int64_t *st, int64_t *n, int64_t *c, int64_t *s)
{
  *n = tensor->size[0] == 1 ? 0 : st[0];
  *c = tensor->ndim > 1 ? st[1] : 1;
  int64_t run = 1, step = 1; /* a stride may be 0 */
  bool set = false;
  for (int dim = tensor->ndim - 1; dim >= 2; dim--) {
    if (tensor->size[dim] == 1) continue;
    if (!set) {
      step = st[dim];
      set = true;
    } else if (st[dim] != step * run) return false;
    run *= tensor->size[dim];
  }
  *s = step;
  return true;
}

/* -- Lanes --------------------------------------------------------------------------------- */

enum { LANE = NORM_LANE, HALF = LANE / 2 }; /* sums and squares of half a lane stay in registers */

#define BODY "ops/norm/norm_runs_body.h"
#include "cpu/each_real.h"
