/*
** cpu/strided_pack_body.h: elements moved unchanged between memory and a dense array, over one
** type, included by cpu/strided.c for elements of 1, 2, 4 and 8 bytes. The includer
** defines element and NAME(x), which are undefined at the end.
*/

/* Whole short rows, gathered: of one value each, dense ones, others */
#define ROWS(body)                                     \
  for (int64_t r = 0; r < rows; r++, dense += count) { \
    const element *a = memory + r * step;              \
    body                                               \
  }
static AMP_CLONES_WIDE void NAME(gather)(element *restrict dense, const element *restrict memory, int64_t count,
                                         int64_t inner, int64_t rows, int64_t step)
{
  if (inner == 0 && count == 2) ROWS(const element v = a[0]; dense[0] = v; dense[1] = v;)
  else if (inner == 0 && count == 3) ROWS(const element v = a[0]; dense[0] = v; dense[1] = v; dense[2] = v;)
  else if (inner == 0 && count == 4) ROWS(const element v = a[0]; for (int j = 0; j < 4; j++) dense[j] = v;)
  else if (inner == 0) ROWS(const element v = a[0]; for (int64_t j = 0; j < count; j++) dense[j] = v;)
  else if (inner == 1) ROWS(for (int64_t j = 0; j < count; j++) dense[j] = a[j];)
  else ROWS(for (int64_t j = 0; j < count; j++) dense[j] = a[j * inner];)
}
#undef ROWS

/* count elements from the flattened index on that index names, at p in memory; to_dense: from there, else to there */
static void NAME(pack)(const iter *iter, const int64_t *stride, int64_t *index, char *p, int64_t count, void *dense,
                       bool to_dense)
{
  element *memory = (element *)p;
  element *dst = dense;
  while (count > 0) {
    int64_t k = iter->size[0] - index[0] < count ? iter->size[0] - index[0] : count, rows = 1;
    if (to_dense && index[0] == 0 && count >= 2 * k) {
      rows = count / k < iter->size[1] - index[1] ? count / k : iter->size[1] - index[1];
      NAME(gather)(dst, memory, k, stride[0], rows, stride[1]);
      memory += (rows - 1) * stride[1];
      index[1] += rows - 1;
    } else if (to_dense)
      for (int64_t j = 0; j < k; j++) dst[j] = memory[j * stride[0]];
    else
      for (int64_t j = 0; j < k; j++) memory[j * stride[0]] = dst[j];
    dst += k * rows;
    count -= k * rows;
    memory -= index[0] * stride[0];
    index[0] = 0;
    for (int dim = 1; dim < iter->ndim; dim++) {
      if (++index[dim] < iter->size[dim]) {
        memory += stride[dim];
        break;
      }
      index[dim] = 0;
      memory -= (iter->size[dim] - 1) * stride[dim];
    }
  }
}

#undef element
#undef NAME
