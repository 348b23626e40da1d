/*
** precision/grad_parts.c: gradients that partly lie in one another get memory of their own.
*/
#include <stdlib.h>
#include "precision/scale.h"

static int by_storage(const void *a, const void *b)
{
  const amp_storage *x = (*(amp_grad *const *)a)->value->storage, *y = (*(amp_grad *const *)b)->value->storage;
  return x < y ? -1 : x > y;
}

int amp__grads_part(amp_tensor *const *leaf, int count)
{
  int m = 0, status = 0;
  for (int i = 0; i < count; i++) m += amp__grad_of(leaf[i]) && amp__grad_at_once(amp__grad_of(leaf[i]));
  if (m < 2) return 0;
  amp_grad **g = malloc(sizeof *g * (size_t)m);
  if (!g) return amp__nomem(sizeof *g * (size_t)m);
  m = 0;
  for (int i = 0; i < count; i++)
    if (amp__grad_of(leaf[i]) && amp__grad_at_once(amp__grad_of(leaf[i]))) g[m++] = amp__grad_of(leaf[i]);
  qsort(g, (size_t)m, sizeof *g, by_storage);
  for (int i = 0, first = 0; i < m && !status; i++) {
    amp_tensor *value = g[i]->value;
    if (g[first]->value->storage != value->storage) first = i;
    for (int j = first; j < i; j++) {
      if (amp__same_place(g[j]->value, value) || !amp__may_overlap(g[j]->value, value)) continue;
      bool valid = amp__check_valid(g[i]);
      int origin = amp__grad_origin(g[i]);
      amp_tensor *own = amp__raw_clone(value);
      if (!own) {
        status = amp__S->err.code;
        break;
      }
      g[i]->value = own;
      if (valid) g[i]->version = amp__version(own);
      amp__grad_from(g[i], origin);
      amp__free(value);
      break;
    }
  }
  free(g);
  return status;
}
