/*
** sort.cu: rows of items (sort.cuh) in order.
**
** Tiles of shared memory are sorted by bitonic networks (several short rows a
** tile), then runs are merged two by two: each block finds by a search where its
** piece of the result begins in both runs, and each of its threads where its own
** few items begin (merge paths). All of it is the same for every run.
*/
#include "order/sort.cuh"

namespace {

enum { BLOCK = 256 };
template <class I> struct tile {
  enum { items = 16384 / sizeof(I), each = items / BLOCK };
};

/* `per` segments of at most m items (a power of two) a block; a row has `segments` of them */
template <class I>
__global__ void __launch_bounds__(BLOCK) sort_tiles(I *v, int64_t rows, int64_t n, int m, int per, int64_t segments)
{
  typedef amp_kind_of<I> G;
  AMP_SHARED(I, s);
  const int items = per * m;
  const int64_t all = rows * segments;
  for (int64_t first = (int64_t)blockIdx.x * per; first < all; first += (int64_t)gridDim.x * per) {
    for (int e = threadIdx.x; e < items; e += BLOCK) {
      int64_t seg = first + e / m, row = seg / segments, at = (seg - row * segments) * m + e % m;
      s[e] = seg < all && at < n ? v[row * n + at] : G::last();
    }
    __syncthreads();
    for (int k = 2; k <= m; k *= 2)
      for (int j = k / 2; j > 0; j /= 2) {
        for (int q = threadIdx.x; q < items / 2; q += BLOCK) {
          int e = (q & ~(j - 1)) * 2 | (q & (j - 1)), f = e | j;
          I a = s[e], b = s[f];
          bool down = (e & (m - 1) & k) != 0;
          if (down ? G::less(a, b) : G::less(b, a)) {
            s[e] = b;
            s[f] = a;
          }
        }
        __syncthreads();
      }
    for (int e = threadIdx.x; e < items; e += BLOCK) {
      int64_t seg = first + e / m, row = seg / segments, at = (seg - row * segments) * m + e % m;
      if (seg < all && at < n) v[row * n + at] = s[e];
    }
    __syncthreads();
  }
}

/* How many of the first d items of the merged runs come from a */
template <class I>
__device__ __forceinline__ int64_t merge_path(const I *a, int64_t na, const I *b, int64_t nb, int64_t d)
{
  int64_t lo = d > nb ? d - nb : 0, hi = d < na ? d : na;
  while (lo < hi) {
    int64_t mid = (lo + hi) >> 1;
    if (amp_kind_of<I>::less(b[d - 1 - mid], a[mid])) hi = mid;
    else lo = mid + 1;
  }
  return lo;
}

/* Runs of `width` items into runs of twice that */
template <class I>
__global__ void __launch_bounds__(BLOCK) merge_runs(const I *from, I *to, int64_t rows, int64_t n, int64_t width)
{
  enum { TILE = tile<I>::items, EACH = tile<I>::each };
  AMP_SHARED(I, s);
  __shared__ int64_t path[2];
  const int64_t tiles = (n + TILE - 1) / TILE;
  for (int64_t u = blockIdx.x; u < rows * tiles; u += gridDim.x) {
    int64_t row = u / tiles, at = (u - row * tiles) * TILE, pair = at / (2 * width) * (2 * width);
    const I *a = from + row * n + pair, *b = a + width;
    int64_t na = n - pair < width ? n - pair : width, nb = n - pair - na < width ? n - pair - na : width;
    int64_t d0 = at - pair, d1 = d0 + TILE < na + nb ? d0 + TILE : na + nb;
    if (threadIdx.x < 2) path[threadIdx.x] = merge_path(a, na, b, nb, threadIdx.x ? d1 : d0);
    __syncthreads();
    int64_t a0 = path[0], b0 = d0 - a0;
    int ma = (int)(path[1] - a0), m = (int)(d1 - d0);
    for (int e = threadIdx.x; e < m; e += BLOCK) s[e] = e < ma ? a[a0 + e] : b[b0 + e - ma];
    __syncthreads();
    int d = (int)threadIdx.x * EACH < m ? (int)threadIdx.x * EACH : m;
    int i = (int)merge_path(s, ma, s + ma, m - ma, d), j = ma + d - i;
    I mine[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
      if (d + k >= m) continue;
      bool second = i >= ma || (j < m && amp_kind_of<I>::less(s[j], s[i]));
      mine[k] = second ? s[j++] : s[i++];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < EACH; k++)
      if (d + k < m) s[d + k] = mine[k];
    __syncthreads();
    for (int e = threadIdx.x; e < m; e += BLOCK) to[row * n + at + e] = s[e];
    __syncthreads();
  }
}

template <class I> static void *sort_items(I *v, I *spare, int64_t rows, int64_t n)
{
  enum { TILE = tile<I>::items };
  int m = 2;
  while (m < TILE && m < n) m *= 2;
  int64_t segments = (n + m - 1) / m;
  int per = rows * segments < TILE / m ? (int)(rows * segments) : TILE / m;
  if (n > 1)
    AMP_LAUNCH((sort_tiles<I>), amp_grid(rows * segments, per), BLOCK, TILE * sizeof(I), v, rows, n, m, per, segments);
  for (int64_t width = TILE; width < n; width *= 2) {
    AMP_LAUNCH((merge_runs<I>), amp_grid(rows * ((n + TILE - 1) / TILE), 1), BLOCK, TILE * sizeof(I), v, spare, rows, n,
               width);
    I *t = v;
    v = spare;
    spare = t;
  }
  return v;
}

} // namespace

void *amp_sort_items(bool wide, void *v, void *spare, int64_t rows, int64_t n)
{
  return wide ? sort_items((amp_pair *)v, (amp_pair *)spare, rows, n)
              : sort_items((uint64_t *)v, (uint64_t *)spare, rows, n);
}
