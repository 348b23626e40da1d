/*
** cat.cu: dense tensors joined in one launch, as many as fit into its arguments:
** what row cat (copy.cu) takes where nothing has to be cast. Every operand is rows
** of bytes that go to rows of the result; they move in the largest words that all
** of them allow.
**
** A byte is read once and written once and passes through registers alone: memory's speed bounds it.
*/
#include "layout/cat.cuh"

namespace {

enum { MANY = 100 };
typedef struct piece {
  const char *p;
  int64_t at, row;
} piece; /* at: bytes from the result's row on; row: bytes */
typedef struct pieces {
  char *o;
  int64_t rows, pitch;
  piece v[MANY];
} pieces;

template <class U> __global__ void __launch_bounds__(256) join(const pieces job)
{
  const piece own = job.v[blockIdx.y];
  const int64_t width = own.row / (int64_t)sizeof(U), n = width * job.rows;
  const U *p = (const U *)own.p;
  if (job.rows == 1) {
    U *o = (U *)(job.o + own.at);
    AMP_FOR(i, n) o[i] = p[i];
    return;
  }
  AMP_FOR(i, n)
  {
    int64_t r = i / width;
    ((U *)(job.o + r * job.pitch + own.at))[i - r * width] = p[i];
  }
}

template <class U> static void launch(const pieces &job, int n, int64_t most)
{
  int64_t units = most * job.rows / (int64_t)sizeof(U);
  unsigned blocks = amp_grid(units, 256, 16), fair = (unsigned)(amp__cuda_here()->sms * 16 / n + 1);
  AMP_LAUNCH((join<U>), dim3(blocks < fair ? blocks : fair, (unsigned)n), 256, 0, job);
}

} // namespace

int amp_cat_many(const amp_tensor *out, int dim, amp_tensor *const *in, int n)
{
  int64_t rows = 1, one = amp__dtype_size[out->dtype], at = 0;
  if (!amp__cuda_plain(out) || n < 2) return 1;
  for (int d = 0; d < dim; d++) rows *= out->size[d];
  for (int d = dim + 1; d < out->ndim; d++) one *= out->size[d];
  const int64_t pitch = one * out->size[dim];
  uint64_t bits = (uint64_t)(uintptr_t)amp__data(out) | (rows > 1 ? (uint64_t)pitch : 0);
  for (int i = 0; i < n; i++) {
    const amp_tensor *operand = in[i];
    if (operand->ndim != out->ndim || operand->numel == 0) continue;
    if (operand->dtype != out->dtype || !amp__cuda_plain(operand)) return 1;
    bits |= (uint64_t)(uintptr_t)amp__data(operand) | (uint64_t)(one * operand->size[dim]);
  }
  pieces job;
  job.o = (char *)amp__data(out);
  job.rows = rows;
  job.pitch = pitch;
  int64_t most = 0;
  int count = 0;
  for (int i = 0; i < n; i++) {
    const amp_tensor *operand = in[i];
    if (operand->ndim == out->ndim && operand->numel > 0) {
      piece next = { (const char *)amp__data(operand), at, one * operand->size[dim] };
      at += next.row;
      if (next.row > most) most = next.row;
      job.v[count++] = next;
    }
    if (count < MANY && i + 1 < n) continue;
    if (count == 0) continue;
    if (bits % 16 == 0) launch<uint4>(job, count, most);
    else if (bits % 8 == 0) launch<uint2>(job, count, most);
    else if (bits % 4 == 0) launch<uint32_t>(job, count, most);
    else if (bits % 2 == 0) launch<uint16_t>(job, count, most);
    else launch<uint8_t>(job, count, most);
    count = 0;
    most = 0;
  }
  return 0;
}
