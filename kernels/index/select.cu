/*
** select.cu: what counts the true elements before each: nonzero, masked_scatter.
**
** Tiles are counted, one block turns the counts into places, then each tile finds
** the places of its own elements, in C order. How many rows nonzero has, the host
** knew before it made the result (the shape rule counts).
*/
#include "common/kernel.cuh"

namespace {

enum { BLOCK = 256, EACH = 8, TILE = BLOCK * EACH };

/* Places of the block's threads whose counts are n: how many come before, and *all of the block */
__device__ __forceinline__ int before_in_block(int n, int *all)
{
  __shared__ int part[BLOCK / 32];
  const int lane = threadIdx.x & 31, w = threadIdx.x >> 5;
  int mine = n, before = 0, sum = 0;
  for (int d = 1; d < 32; d <<= 1) {
    int up = __shfl_up_sync(0xffffffffu, mine, d);
    if (lane >= d) mine += up;
  }
  __syncthreads(); /* an earlier call's parts have been read */
  if (lane == 31) part[w] = mine;
  __syncthreads();
  for (int k = 0; k < BLOCK / 32; k++) {
    if (k < w) before += part[k];
    sum += part[k];
  }
  *all = sum;
  return before + mine - n;
}

__device__ __forceinline__ int bits_at(const uint8_t *p, int64_t first, int64_t n)
{
  int bits = 0;
#pragma unroll
  for (int k = 0; k < EACH; k++)
    if (first + k < n && p[first + k]) bits |= 1 << k;
  return bits;
}

__global__ void __launch_bounds__(BLOCK) count_tiles(const uint8_t *p, int64_t n, int64_t *count)
{
  for (int64_t tile = blockIdx.x; tile * TILE < n; tile += gridDim.x) {
    int all;
    before_in_block(__popc((unsigned)bits_at(p, tile * TILE + threadIdx.x * EACH, n)), &all);
    if (threadIdx.x == 0) count[tile] = all;
  }
}

/* Counts of tiles become how many come before each; one block. count[n] becomes the sum */
__global__ void __launch_bounds__(BLOCK) place_tiles(int64_t *count, int64_t n)
{
  __shared__ int64_t part[BLOCK];
  int64_t carry = 0;
  for (int64_t base = 0; base < n; base += BLOCK) {
    int64_t i = base + threadIdx.x, mine = i < n ? count[i] : 0, v = mine;
    for (int d = 1; d < BLOCK; d <<= 1) {
      part[threadIdx.x] = v;
      __syncthreads();
      if ((int)threadIdx.x >= d) v += part[threadIdx.x - d];
      __syncthreads();
    }
    part[threadIdx.x] = v;
    __syncthreads();
    int64_t sum = part[BLOCK - 1];
    __syncthreads();
    if (i < n) count[i] = carry + v - mine;
    carry += sum;
  }
  if (threadIdx.x == 0) count[n] = carry;
}

/* Row r of o (at most `rows` of them): the indices, from 1, of the r-th true element */
__global__ void __launch_bounds__(BLOCK) write_indices(const uint8_t *p, const amp_arg shape, const int64_t *before,
                                                       char *out, int otype, int64_t rs, int64_t cs, int64_t rows)
{
  for (int64_t tile = blockIdx.x; tile * TILE < shape.numel; tile += gridDim.x) {
    int64_t first = tile * TILE + threadIdx.x * EACH;
    int all, bits = bits_at(p, first, shape.numel);
    int64_t r = before[tile] + before_in_block(__popc((unsigned)bits), &all);
    for (int k = 0; k < EACH; k++) {
      if (!(bits >> k & 1)) continue;
      int64_t i = first + k;
      if (r < rows)
        for (int d = shape.ndim - 1; d >= 0; d--) {
          int64_t q = i / shape.size[d];
          amp_store<int64_t>(out, otype, r * rs + d * cs, i - q * shape.size[d] + 1);
          i = q;
        }
      r++;
    }
  }
}

/* y[i] = the next element of src where mask is true */
template <class U>
__global__ void __launch_bounds__(BLOCK) take_next(const uint8_t *mask, int64_t n, const int64_t *before, U *y,
                                                   const U *src, int64_t have, amp_trouble *trouble, int id)
{
  for (int64_t tile = blockIdx.x; tile * TILE < n; tile += gridDim.x) {
    int64_t first = tile * TILE + threadIdx.x * EACH;
    int all, bits = bits_at(mask, first, n);
    int64_t r = before[tile] + before_in_block(__popc((unsigned)bits), &all);
    for (int k = 0; k < EACH; k++) {
      if (!(bits >> k & 1)) continue;
      if (r < have) y[first + k] = src[r];
      else amp_note(trouble, AMP_TROUBLE_SOURCE, id, before[(n + TILE - 1) / TILE], have, first + k);
      r++;
    }
  }
}

/* How many true elements come before each tile of t, a dense bool tensor. NULL: error */
static amp_tensor *places(amp_tensor *t)
{
  int64_t tiles = (t->numel + TILE - 1) / TILE, size = tiles + 1;
  amp_tensor *count = amp__cuda_make(AMP_INT64, 1, &size);
  if (count == NULL) return NULL;
  AMP_LAUNCH(count_tiles, amp_grid(tiles, 1), BLOCK, 0, AMP_DATA(const uint8_t, t), t->numel, AMP_DATA(int64_t, count));
  AMP_LAUNCH(place_tiles, 1, BLOCK, 0, AMP_DATA(int64_t, count), tiles);
  return count;
}

} // namespace

extern "C" {

int amp__cuda_nonzero(amp_call *c)
{
  amp_tensor *t = c->in[0], *o = c->out[0], *truth, *before = NULL;
  if (o->numel == 0) return 0;
  if ((truth = amp__cuda_dense(t, AMP_BOOL)) == NULL || (before = places(truth)) == NULL) {
    amp__free(truth);
    return AMP_E_MEMORY;
  }
  AMP_LAUNCH(write_indices, amp_grid(t->numel, TILE), BLOCK, 0, AMP_DATA(const uint8_t, truth), amp_arg_of(truth),
             AMP_DATA(const int64_t, before), (char *)amp__data(o), (int)o->dtype, o->stride[0], o->stride[1],
             o->size[0]);
  amp__free(before);
  amp__free(truth);
  return 0;
}

int amp__cuda_masked_scatter(amp_call *c)
{
  amp_tensor *result = c->out[0], *mask = amp__cuda_make(AMP_BOOL, result->ndim, result->size), *src = NULL, *y = NULL,
             *before = NULL;
  int rc = mask ? amp__cuda_copy_to(mask, c->in[1]) : AMP_E_MEMORY;
  if (rc == 0 && result != c->in[0]) rc = amp__cuda_copy_to(result, c->in[0]);
  if (rc < 0 || result->numel == 0) goto out;
  src = amp__cuda_dense(c->in[2], result->dtype);
  y = amp__cuda_dense(result, result->dtype);
  before = places(mask);
  if (!src || !y || !before) {
    rc = AMP_E_MEMORY;
    goto out;
  }
  static_assert(AMP_DTYPE_COUNT == 12, "elements have 1, 2, 4 or 8 bytes");
#define TAKE(U)                                                                                                       \
  AMP_LAUNCH((take_next<U>), amp_grid(result->numel, TILE), BLOCK, 0, AMP_DATA(const uint8_t, mask), result->numel,   \
             AMP_DATA(const int64_t, before), AMP_DATA(U, y), AMP_DATA(const U, src), src->numel, amp_trouble_cell(), \
             c->id)
  switch (amp__dtype_size[result->dtype]) {
  case 1: TAKE(uint8_t); break;
  case 2: TAKE(uint16_t); break;
  case 4: TAKE(uint32_t); break;
  default: TAKE(uint64_t);
  }
  if (y != result) rc = amp__cuda_copy_to(result, y);
out:
  amp__free(before);
  amp__free(y);
  amp__free(src);
  amp__free(mask);
  return rc;
}
}
