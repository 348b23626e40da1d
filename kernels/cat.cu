/*
** cat.cu: dense tensors joined in one launch, as many as fit into its arguments:
** what row cat (copy.cu) takes where nothing has to be cast. Every operand is rows
** of bytes that go to rows of the result; they move in the largest words that all
** of them allow.
*/
#include "cat.cuh"

namespace {

enum { MANY = 100 };
typedef struct piece { const char *p; int64_t at, row; } piece; /* at: bytes from the result's row on; row: bytes */
typedef struct pieces { char *o; int64_t rows, pitch; piece v[MANY]; } pieces;

template <class U> __global__ void __launch_bounds__(256) join(const pieces k)
{
  const piece v = k.v[blockIdx.y];
  const int64_t width = v.row / (int64_t)sizeof(U), n = width * k.rows;
  const U *p = (const U *)v.p;
  if (k.rows == 1) {
    U *o = (U *)(k.o + v.at);
    AMP_FOR(i, n) o[i] = p[i];
    return;
  }
  AMP_FOR(i, n) {
    int64_t r = i / width;
    ((U *)(k.o + r * k.pitch + v.at))[i - r * width] = p[i];
  }
}

template <class U> static void launch(const pieces &k, int n, int64_t most)
{
  int64_t units = most * k.rows / (int64_t)sizeof(U);
  unsigned blocks = amp_grid(units, 256, 16), fair = (unsigned)(amp__cuda_here()->sms * 16 / n + 1);
  AMP_LAUNCH((join<U>), dim3(blocks < fair ? blocks : fair, (unsigned)n), 256, 0, k);
}

} // namespace

int amp_cat_many(const amp_tensor *o, int dim, amp_tensor *const *in, int n)
{
  int64_t rows = 1, one = amp__dtype_size[o->dtype], at = 0;
  if (!amp__cuda_plain(o) || n < 2) return 1;
  for (int d = 0; d < dim; d++) rows *= o->size[d];
  for (int d = dim + 1; d < o->ndim; d++) one *= o->size[d];
  const int64_t pitch = one * o->size[dim];
  uint64_t bits = (uint64_t)(uintptr_t)amp__data(o) | (rows > 1 ? (uint64_t)pitch : 0);
  for (int i = 0; i < n; i++) {
    const amp_tensor *t = in[i];
    if (t->ndim != o->ndim || t->numel == 0) continue;
    if (t->dtype != o->dtype || !amp__cuda_plain(t)) return 1;
    bits |= (uint64_t)(uintptr_t)amp__data(t) | (uint64_t)(one * t->size[dim]);
  }
  pieces k;
  k.o = (char *)amp__data(o);
  k.rows = rows;
  k.pitch = pitch;
  int64_t most = 0;
  int count = 0;
  for (int i = 0; i < n; i++) {
    const amp_tensor *t = in[i];
    if (t->ndim == o->ndim && t->numel > 0) {
      piece v = { (const char *)amp__data(t), at, one * t->size[dim] };
      at += v.row;
      if (v.row > most) most = v.row;
      k.v[count++] = v;
    }
    if (count < MANY && i + 1 < n) continue;
    if (count == 0) continue;
    if (bits % 16 == 0) launch<uint4>(k, count, most);
    else if (bits % 8 == 0) launch<uint2>(k, count, most);
    else if (bits % 4 == 0) launch<uint32_t>(k, count, most);
    else if (bits % 2 == 0) launch<uint16_t>(k, count, most);
    else launch<uint8_t>(k, count, most);
    count = 0;
    most = 0;
  }
  return 0;
}
