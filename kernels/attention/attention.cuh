/*
** attention.cuh: what the kernels of attention on tensor cores share (attention_mma.cu,
** attention_mma_keys.cu, attention_mma_queries.cu; attention_mma_call.cu decides): the
** job of a launch, tiles of its tensors in shared memory, the mask's word on a score.
**
** A tile's rows have D columns (32, 64, 96, 128; those beyond the head's size are 0)
** at a pitch of D + 8. Blocks are 4 warps. Scores are in units of log2: score * scale
** / ln 2, so a weight is one exp2. ANY: with a mask, or a scale not above 0 (D is 64
** or 128 then). DROP: with dropout, and what ANY allows.
*/
#ifndef AMP_ATTENTION_CUH
#define AMP_ATTENTION_CUH
#include "common/mma.cuh"
#include "common/rows.cuh"
#include "attention/dropout.cuh"

enum { AMP_FLASH_THREADS = 128, AMP_FLASH_PAD = 128 }; /* lse and delta of a head: a multiple of PAD */
enum { AMP_FLASH_LEAD = AMP_MAX_DIM - 2 };
enum { AMP_F_Q, AMP_F_K, AMP_F_V, AMP_F_OUT, AMP_F_G, AMP_F_DQ, AMP_F_DK, AMP_F_DV, AMP_F_MASK, AMP_F_SIDES };

typedef struct amp_flash_side { /* a tensor; strides in elements, of rows and of the leading dimensions */
  char *p;
  int64_t row, step, lead[AMP_FLASH_LEAD]; /* step: bytes from a row that a thread copies to its next */
} amp_flash_side;

typedef struct amp_flash {
  amp_flash_side side[AMP_F_SIDES];
  unsigned lead[AMP_FLASH_LEAD];
  int nlead, batch, length, keys, size, padded, tiles; /* padded: of a head in lse2 and delta */
  bool causal, bf16, mask_keys;                        /* mask_keys: the mask is the same for all queries */
  int mask_dtype;
  int64_t mask_column;
  float scale, c; /* c = scale / ln 2 */
  float *lse;     /* forward's result, [batch][length] */
  amp_drop drop;
  float *lse2, *delta; /* [batch][padded]: lse / ln 2, +inf where no weight is; (sum of g out) * scale */
} amp_flash;

/* 1: not for these kernels, else a code */
int amp_flash_forward(amp_call *c, const amp_drop *drop);
int amp_flash_backward(amp_call *c, const amp_drop *drop);
int amp_flash_launch(const amp_flash *k);
bool amp_flash_is_few(const amp_flash *k); /* attention_few.cu is for this job */
int amp_flash_launch_few(const amp_flash *k);
int amp_flash_launch_keys(const amp_flash *k);
int amp_flash_launch_queries(const amp_flash *k);

/* The instance for a job: amp_flash_by(k, [&](auto d, auto bf, auto any, auto drop) { kernel<decltype(d)::value, ...>
 * }) */
template <int V> struct amp_constant {
  enum : int { value = V };
};
static inline bool amp_flash_any(const amp_flash &job)
{
  return job.side[AMP_F_MASK].p != NULL || !(job.scale > 0) || job.drop.on;
}
static inline int amp_flash_width(const amp_flash &job)
{
  if (amp_flash_any(job)) return job.size > 64 ? 128 : 64;
  return job.size > 96 ? 128 : job.size > 64 ? 96 : job.size > 32 ? 64 : 32;
}
template <class F> static int amp_flash_by(const amp_flash &job, F f)
{
  const amp_constant<0> no;
  const amp_constant<1> yes;
  auto by = [&](auto d, auto any, auto drop) { return job.bf16 ? f(d, yes, any, drop) : f(d, no, any, drop); };
  const int width = amp_flash_width(job);
  if (job.drop.on) return width > 64 ? by(amp_constant<128>(), yes, yes) : by(amp_constant<64>(), yes, yes);
  if (amp_flash_any(job)) return width > 64 ? by(amp_constant<128>(), yes, no) : by(amp_constant<64>(), yes, no);
  return width > 96   ? by(amp_constant<128>(), no, no)
         : width > 64 ? by(amp_constant<96>(), no, no)
         : width > 32 ? by(amp_constant<64>(), no, no)
                      : by(amp_constant<32>(), no, no);
}
/* Launches with more than 48 KiB of dynamic shared memory must say so first. */
template <class K> static int amp_flash_shared(K kernel, size_t n)
{
  if (n <= 48 << 10) return 0;
  return amp__cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)n),
                         "shared memory of attention");
}
#define AMP_FLASH_LAUNCH(kernel, blocks, shared, k)                               \
  do {                                                                            \
    int failed = amp_flash_shared(kernel, shared);                                \
    if (failed < 0) return failed;                                                \
    AMP_LAUNCH((kernel), dim3((unsigned)(blocks)), AMP_FLASH_THREADS, shared, k); \
  } while (0)

/* LINE: threads that copy a row, 16 bytes each, the last of them none if D / 8 is no power of two; STEP: rows at a
** time */
template <int D> struct amp_tile {
  enum { PITCH = (D + 8) * 2, LINE = D > 64 ? 16 : D / 8, STEP = AMP_FLASH_THREADS / LINE };
};
static inline int amp_flash_step(int d)
{
  return d > 64 ? (int)amp_tile<128>::STEP : d > 32 ? (int)amp_tile<64>::STEP : (int)amp_tile<32>::STEP;
}

#if AMP_MMA
/* Where batch b of every side starts; what a kernel does not use costs nothing */
__device__ __forceinline__ void amp_flash_starts(const amp_flash &job, unsigned b, int64_t (&at)[AMP_F_SIDES])
{
#pragma unroll
  for (int s = 0; s < AMP_F_SIDES; s++) at[s] = 0;
  for (int d = job.nlead - 1; d >= 0; d--) {
    unsigned q = d ? b / job.lead[d] : 0, r = b - q * job.lead[d];
#pragma unroll
    for (int s = 0; s < AMP_F_SIDES; s++) at[s] += (int64_t)r * job.side[s].lead[d];
    b = q;
  }
}

/* The way of a thread's copies through a matrix, tile by tile */
template <int D> struct amp_tile_way {
  const char *p; /* this thread's piece of the next row it copies, */
  int left;      /* and how many rows are left from there; none for columns beyond the head's size */
  __device__ __forceinline__ amp_tile_way(const amp_flash_side &s, int64_t at, int r0, int n, int size)
  {
    typedef amp_tile<D> t;
    const int r = r0 + (int)threadIdx.x / t::LINE, c = (int)threadIdx.x % t::LINE * 8;
    p = s.p + 2 * (at + (int64_t)r * s.row + c);
    left = c < size ? n - r : 0;
  }
  __device__ __forceinline__ static int place()
  {
    return (int)threadIdx.x / amp_tile<D>::LINE * amp_tile<D>::PITCH + (int)threadIdx.x % amp_tile<D>::LINE * 16;
  }
  /* The next ROWS rows on their way into a tile (its address + place()); 0 for those that are not there */
  template <int ROWS> __device__ __forceinline__ void load(amp_at to, const amp_flash_side &s)
  {
    typedef amp_tile<D> t;
#pragma unroll
    for (int i = 0; i < ROWS / t::STEP; i++) {
      if (D / 8 == t::LINE || threadIdx.x % t::LINE < D / 8)
        amp_copy16(to + i * t::STEP * t::PITCH, p, i * t::STEP < left);
      p += s.step;
    }
    left -= ROWS;
  }
};

/* A warp's 16 MT rows of C times `f` as 16-bit rows of a tile (its own), then to memory: rows r0.. of n */
template <int D, int MT, bool BF>
__device__ __forceinline__ void amp_tile_store(unsigned char *tile, const float (&c)[MT][D / 8][4],
                                               const float (&factor)[MT][2], uint16_t *to, int64_t stride, int first,
                                               int n, int size)
{
  typedef amp_tile<D> shape;
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int m = 0; m < MT; m++) {
#pragma unroll
    for (int d = 0; d < D / 8; d++) {
#pragma unroll
      for (int h = 0; h < 2; h++)
        *(unsigned *)(tile + (m * 16 + h * 8 + (lane >> 2)) * shape::PITCH + d * 16 + (lane & 3) * 4)
            = amp_pack<BF>(c[m][d][2 * h] * factor[m][h], c[m][d][2 * h + 1] * factor[m][h]);
    }
  }
  __syncwarp();
  const int r = lane / shape::LINE, column = lane % shape::LINE;
#pragma unroll 4
  for (int i = r; i < MT * 16; i += 32 / shape::LINE)
    if (first + i < n && column * 8 < size)
      *(uint4 *)(to + (int64_t)(first + i) * stride + column * 8)
          = *(const uint4 *)(tile + i * shape::PITCH + column * 16);
}

/* A mask's value in units of log2: what is finite stays so */
__device__ __forceinline__ float amp_mask_word(float m)
{
  const float v = m * 1.44269504f;
  return v == -INFINITY && m > -INFINITY ? -3.402823466e38f : v;
}

/* The word on a key of a mask of floats that is the same for all queries, to be added */
template <bool BF> __device__ __forceinline__ float amp_flash_key_word(const amp_flash &job, int64_t mat, int key)
{
  const char *p = job.side[AMP_F_MASK].p;
  const int64_t at = mat + key * job.mask_column;
  if (job.mask_dtype == AMP_FLOAT32) return amp_mask_word(((const float *)p)[at]);
  return amp_mask_word(amp_of_half<BF>(((const uint16_t *)p)[at]));
}
/* Bools: bit i of a warp's is the word on key + i, of `count` keys; all lanes call */
__device__ __forceinline__ unsigned amp_flash_key_bits(const amp_flash &job, int64_t mat, int key, int count)
{
  const int lane = (int)(threadIdx.x & 31);
  const uint8_t *p = (const uint8_t *)job.side[AMP_F_MASK].p + mat;
  return __ballot_sync(0xffffffffu, lane < count && key + lane < job.keys && p[(key + lane) * job.mask_column] != 0);
}
/* f(word), word(i, j, s) being score s of query i and key j in units of log2 with the mask's word on it; what mask
** it is is asked once */
static_assert(AMP_DTYPE_COUNT == 12, "a mask is of booleans, float32 or the 16-bit float of queries");
template <bool BF, class F> __device__ __forceinline__ void amp_flash_by_mask(const amp_flash &job, int64_t mat, F f)
{
  const float c = job.c;
  const int64_t row = job.side[AMP_F_MASK].row, column = job.mask_column;
  const char *p = job.side[AMP_F_MASK].p;
  if (p == NULL) f([=](int, int, float s) { return s * c; });
  else if (job.mask_dtype == AMP_BOOL) {
    const uint8_t *m = (const uint8_t *)p + mat;
    f([=](int i, int j, float s) { return m[i * row + j * column] ? s * c : -INFINITY; });
  } else if (job.mask_dtype == AMP_FLOAT32) {
    const float *m = (const float *)p + mat;
    f([=](int i, int j, float s) { return s * c + amp_mask_word(m[i * row + j * column]); });
  } else { /* the dtype of queries */
    const uint16_t *m = (const uint16_t *)p + mat;
    f([=](int i, int j, float s) { return s * c + amp_mask_word(amp_of_half<BF>(m[i * row + j * column])); });
  }
}
#endif

#endif
