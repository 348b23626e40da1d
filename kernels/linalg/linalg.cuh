/*
** linalg.cuh: what the kernels of linear algebra share: working copies of
** batches of matrices and where a block keeps one.
**
** As on the CPU matrices are worked on column by column, in float (16-bit data
** too) or double: element (i, j) of an m x n matrix stands at i + j * m, so one
** in C order is seen transposed. A block takes one matrix at a time, in shared
** memory if it fits there, else where it lies.
*/
#ifndef AMP_LINALG_CUH
#define AMP_LINALG_CUH
#include "common/rows.cuh"
#include "../src/cuda/cuda_solver.h"

enum {
  AMP_MATRIX_SHARED = 46 << 10
}; /* bytes of shared memory that any card gives a block, less what reductions need */

/* The library takes few large matrices; "cusolver" = 0 never, 2 always where it can */
static inline bool amp_to_solver(int64_t n, int64_t least, int64_t batch)
{
  if (amp__cuda_solver == 0 || n > 32000 || amp__cuda_here()->capture) return false;
  return amp__cuda_solver == 2 ? batch <= 64 : n >= least && batch * least <= 4 * n;
}

/* What the library did with matrix b of a batch that it changes in place: own kernels can begin anew only where the
** first is whole */
static inline int amp_solver_said(int64_t b, int rc)
{
  return rc == 1 && b > 0
             ? amp__fail(AMP_E_MEMORY, "no memory for the library's work on matrix %lld of a batch", (long long)b + 1)
             : rc;
}
static inline int amp_working(int dtype) { return dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32; }
static inline int64_t amp_rows(const amp_tensor *t) { return t->size[t->ndim - 2]; }
static inline int64_t amp_cols(const amp_tensor *t) { return t->size[t->ndim - 1]; }
static inline int64_t amp_batch(const amp_tensor *t, int core)
{
  int64_t n = 1;
  for (int d = 0; d + core < t->ndim; d++) n *= t->size[d];
  return n;
}

/* A view of the transposed matrices, of which only the first rows (of the view) are seen; NULL: error */
static inline amp_tensor *amp_turned(const amp_tensor *t, int64_t cols = -1)
{
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
  int n = t->ndim;
  for (int d = 0; d < n; d++) {
    size[d] = t->size[d];
    stride[d] = t->stride[d];
  }
  size[n - 2] = t->size[n - 1];
  size[n - 1] = cols < 0 ? t->size[n - 2] : cols;
  stride[n - 2] = t->stride[n - 1];
  stride[n - 1] = t->stride[n - 2];
  return amp__tensor_view(t, n, size, stride, t->offset);
}

/* A copy in C order that may be written, of the matrices as they are or transposed; NULL: error */
static inline amp_tensor *amp_fresh(const amp_tensor *t, bool turned)
{
  int64_t size[AMP_MAX_DIM];
  amp_tensor *v = turned ? amp_turned(t) : NULL, *made;
  if (turned && !v) return NULL;
  const amp_tensor *from = turned ? v : t;
  for (int d = 0; d < t->ndim; d++) size[d] = from->size[d];
  made = amp__cuda_make(amp_working(t->dtype), t->ndim, size);
  if (made && amp__cuda_copy_to(made, from) < 0) {
    amp__free(made);
    made = NULL;
  }
  amp__free(v);
  return made;
}

/* t <- made, or its matrices transposed */
static inline int amp_put(amp_tensor *t, const amp_tensor *made, bool turned)
{
  if (!turned) return amp__cuda_copy_to(t, made);
  amp_tensor *v = amp_turned(t);
  int rc = v ? amp__cuda_copy_to(v, made) : AMP_E_MEMORY;
  amp__free(v);
  return rc;
}

/* Where the launches' results say what failed: info[b] > 0, or < 0: a library's argument. Noted as trouble of
** matrix b. (kernels/linalg/linalg.cu) */
int amp_tell_info(int64_t batch, const int32_t *info, int kind, int op);

/* Threads for work on columns of n elements, a warp each */
static inline unsigned amp_block_of(int64_t n)
{
  return n <= 8 ? 32 : n <= 16 ? 64 : n <= 32 ? 128 : n <= 64 ? 256 : n <= 200 ? 512 : 1024;
}

template <class T> __device__ __forceinline__ bool amp_finite(T v) { return v - v == 0; }

/* n elements between places, by a block; the caller synchronises */
template <class T> __device__ __forceinline__ void amp_block_copy(T *dst, const T *src, int64_t n)
{
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) dst[i] = src[i];
}

#endif
