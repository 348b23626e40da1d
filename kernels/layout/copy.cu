/*
** copy.cu: copy, clone, cast, fill, flip, cat, triangles and strided windows.
**
** Everything is a copy between two strided places (amp__cuda_copy_to and spread),
** done by the elementwise engine in a type that holds the values exactly and
** rounds once. Places alike go as bytes. A matrix against its transpose goes
** through tiles of shared memory, so that both sides are read along their rows.
**
** An element is read once and written once (8 bytes in float32); a tile of a transposition lies in shared memory, all
** else in registers. Memory's speed bounds all of them.
*/
#include "layout/cat.cuh"
#include "elementwise/elementwise.cuh"
#include "elementwise/cast_rows.cuh"
#include "order/sort.cuh"

namespace {

using namespace cast_text;

static bool bytes_alike(const amp_tensor *a, const amp_tensor *b)
{
  if (a->dtype != b->dtype || a->numel != b->numel) return false;
  if (amp__cuda_plain(a) && amp__cuda_plain(b)) return true;
  return (a->flags & b->flags & AMP_T_DENSE) && amp__same_size(a, b)
         && memcmp(a->stride, b->stride, sizeof(int64_t) * a->ndim) == 0;
}

/* -- Transposition ------------------------------------------------------------------- */

enum { TILE = 32 };
template <class T> struct bits_of {
  typedef T type;
  __device__ static T load(const T *p, int, int64_t i) { return p[i]; }
  __device__ static void store(T *p, int, int64_t i, T v) { p[i] = v; }
};
/* floats of up to 32 bits, one dtype to another */
struct float_of {
  typedef char type;
  __device__ static float load(const char *p, int dtype, int64_t i) { return amp_load<float>(p, dtype, i); }
  __device__ static void store(char *p, int dtype, int64_t i, float v) { amp_store<float>(p, dtype, i, v); }
};
template <class T, class A>
__global__ void transpose_tiles(typename A::type *dst, int ddt, int64_t dst_row, int64_t dst_batch,
                                const typename A::type *src, int sdt, int64_t src_col, int64_t src_batch, int64_t rows,
                                int64_t cols)
{
  __shared__ T tile[TILE][TILE + 1];
  const int64_t r0 = (int64_t)blockIdx.y * TILE, c0 = (int64_t)blockIdx.x * TILE, to = blockIdx.z * dst_batch,
                from = blockIdx.z * src_batch;
  for (int k = threadIdx.y; k < TILE; k += blockDim.y) { /* src's columns are its memory's rows */
    int64_t r = r0 + threadIdx.x, c = c0 + k;
    if (r < rows && c < cols) tile[k][threadIdx.x] = A::load(src, sdt, from + c * src_col + r);
  }
  __syncthreads();
  for (int k = threadIdx.y; k < TILE; k += blockDim.y) {
    int64_t r = r0 + k, c = c0 + threadIdx.x;
    if (r < rows && c < cols) A::store(dst, ddt, to + r * dst_row + c, tile[threadIdx.x][k]);
  }
}

/* dst's innermost dimension against src's, dimensions that lie alike taken together: true if done */
static bool transposed(const amp_tensor *dst, const amp_tensor *src)
{
  const bool floats = dst->dtype != src->dtype;
  if (!amp__same_size(dst, src)
      || (floats
          && (amp_ew_class_of_dtype(dst->dtype) != AMP_EW_F32 || amp_ew_class_of_dtype(src->dtype) != AMP_EW_F32)))
    return false;
  int64_t size[AMP_MAX_DIM], ds[AMP_MAX_DIM], ss[AMP_MAX_DIM];
  int nd = 0, col = -1, row = -1, batch = -1;
  for (int d = 0; d < dst->ndim; d++) {
    const int64_t n = dst->size[d];
    if (n == 1) continue;
    if (nd > 0 && ds[nd - 1] == dst->stride[d] * n && ss[nd - 1] == src->stride[d] * n) size[nd - 1] *= n;
    else size[nd++] = n;
    ds[nd - 1] = dst->stride[d];
    ss[nd - 1] = src->stride[d];
  }
  for (int d = 0; d < nd; d++) {
    if (ds[d] == 1 && ss[d] > 1) col = d;
    else if (ss[d] == 1 && ds[d] > 1) row = d;
    else if (batch < 0) batch = d;
    else return false;
  }
  if (col < 0 || row < 0 || size[col] < 8 || size[row] < 8) return false;
  int64_t rows = size[row], cols = size[col], n = batch < 0 ? 1 : size[batch];
  if ((rows + TILE - 1) / TILE > 65535 || n > 65535) return false;
  dim3 grid((unsigned)((cols + TILE - 1) / TILE), (unsigned)((rows + TILE - 1) / TILE), (unsigned)n), block(TILE, 8);
  int64_t db = batch < 0 ? 0 : ds[batch], sb = batch < 0 ? 0 : ss[batch];
  static_assert(AMP_DTYPE_COUNT == 12, "elements have 1, 2, 4 or 8 bytes");
#define TRANSPOSE(T, A)                                                                                        \
  AMP_LAUNCH((transpose_tiles<T, A>), grid, block, 0, (A::type *)amp__data(dst), (int)dst->dtype, ds[row], db, \
             (const A::type *)amp__data(src), (int)src->dtype, ss[col], sb, rows, cols)
  if (floats) TRANSPOSE(float, float_of);
  else switch (amp__dtype_size[dst->dtype]) {
    case 8: TRANSPOSE(uint64_t, bits_of<uint64_t>); break;
    case 4: TRANSPOSE(uint32_t, bits_of<uint32_t>); break;
    case 2: TRANSPOSE(uint16_t, bits_of<uint16_t>); break;
    default: TRANSPOSE(uint8_t, bits_of<uint8_t>);
    }
  return true;
}

/* -- Copies ------------------------------------------------------------------------------ */

static int copy_as(amp_tensor *dst, amp_tensor *src, int op)
{
  int from = amp_ew_class_of_dtype(src->dtype), to = amp_ew_class_of_dtype(dst->dtype);
  if (from != AMP_EW_I64 && amp__is_int(dst->dtype)) {
    static const double low[] = { -0x1p63, -0x1p31, -32768, -128, 0 }, high[] = { 0x1p63, 0x1p31, 32768, 128, 256 };
    int k = dst->dtype - AMP_INT64;
    if (from == AMP_EW_F64) {
      checked<double> f = { amp_trouble_cell(), op, low[k], high[k] };
      return amp_ew_run<double, double, 1>(dst, &src, f);
    }
    checked<float> f = { amp_trouble_cell(), op, low[k], high[k] };
    return amp_ew_run<float, float, 1>(dst, &src, f);
  }
  if (from == AMP_EW_I64 && to == AMP_EW_I64) return amp_ew_run<int64_t, int64_t, 1>(dst, &src, same<int64_t>());
  if (from == AMP_EW_F64 || (from == AMP_EW_I64 && dst->dtype != AMP_FLOAT32))
    return amp_ew_run<double, double, 1>(dst, &src, same<double>());
  return amp_ew_run<float, float, 1>(dst, &src, same<float>());
}

static int copy_for(amp_tensor *dst, const amp_tensor *src, int op)
{
  if (amp_unlikely(amp__chain_record != NULL)) return copy_as(dst, (amp_tensor *)src, op);
  if (dst->numel == 0) return 0;
  if (bytes_alike(dst, src)) {
    if (amp__data(dst) == amp__data(src)) return 0;
    return amp__cuda_check(cudaMemcpyAsync(amp__data(dst), amp__data(src),
                                           (size_t)dst->numel * amp__dtype_size[dst->dtype], cudaMemcpyDeviceToDevice,
                                           amp__cuda_stream()),
                           "a copy");
  }
  if (transposed(dst, src)) return 0;
  return copy_as(dst, (amp_tensor *)src, op);
}

/* An 8-bit float's pattern of a value, which does not saturate */
struct pattern_of {
  enum { flat = 1 };
  int dtype;
  __device__ __forceinline__ double of(const double *v) const
  {
    return (double)amp_float_to_f8<false>(amp_odd(v[0]), dtype);
  }
};

static int cast_unsaturated(amp_tensor *dst, amp_tensor *src)
{
  const uint8_t dtype = dst->dtype;
  if (!amp__is_float8(dtype) || src->dtype == dtype) return copy_for(dst, src, AMP_OP_cast_unsaturated);
  if (amp_unlikely(amp__chain_record != NULL)) return amp__chain_record->unfit = true, 0;
  if (dst->numel == 0) return 0;
  pattern_of f = { dtype };
  dst->dtype = AMP_UINT8; /* its patterns are written as they are */
  int rc = amp_ew_run<double, double, 1>(dst, &src, f);
  dst->dtype = dtype;
  return rc;
}

/* A view of t's memory that need not be a tensor's: its strides may be negative */
static amp_tensor place(const amp_tensor *t, amp_storage *s, int64_t offset, int ndim, const int64_t *size,
                        const int64_t *stride)
{
  amp_tensor v = *t;
  memset((void *)s, 0, sizeof *s);
  s->data = t->storage->data;
  s->device = t->storage->device;
  v.storage = s;
  v.offset = offset;
  v.ndim = (uint8_t)ndim;
  v.numel = 1;
  v.flags = 0;
  for (int d = 0; d < ndim; d++) {
    v.size[d] = size[d];
    v.stride[d] = stride[d];
    v.numel *= size[d];
  }
  return v;
}

/* -- Filling ---------------------------------------------------------------------------------- */

template <class T> struct value {
  enum { flat = 1 };
  T v;
  __device__ __forceinline__ T of(const T *) const { return v; }
};

template <class T> __global__ void sum_at(T *o, const amp_arg in, int64_t offset, const amp_arg view)
{
  AMP_FOR(i, in.numel)
  {
    T v = amp_load<T>(in.p, in.dtype, amp_offset(in, i));
    atomicAdd(o + offset + amp_offset(view, i), v);
  }
}

/* The same in deterministic mode: places are sorted, and a thread adds up what meets at one */
__global__ void list_places(amp_pair *v, int64_t n, int64_t offset, const amp_arg view)
{
  AMP_FOR(i, n)
  {
    amp_pair p = { (uint64_t)(offset + amp_offset(view, i)), (uint64_t)i };
    v[i] = p;
  }
}
template <class T> __global__ void sum_sorted(T *o, const amp_arg in, const amp_pair *v)
{
  AMP_FOR(k, in.numel)
  {
    uint64_t key = v[k].key;
    if (k > 0 && v[k - 1].key == key) continue;
    T sum = 0;
    for (int64_t j = k; j < in.numel && v[j].key == key; j++)
      sum += amp_load<T>(in.p, in.dtype, amp_offset(in, (int64_t)v[j].at));
    o[key] = sum;
  }
}

/* zero where column - row is beyond k on one side */
__global__ void zero_side(char *p, int es, int64_t matrices, int nd, const amp_arg a, int64_t k, int lower)
{
  int64_t rows = a.size[nd - 2], cols = a.size[nd - 1];
  AMP_FOR(i, matrices * rows * cols)
  {
    int64_t c = i % cols, r = i / cols % rows;
    if (lower ? c - r <= k : c - r >= k) continue;
    char *q = p + amp_offset(a, i) * es;
    if (es == 8) *(uint64_t *)q = 0;
    else if (es == 4) *(uint32_t *)q = 0;
    else if (es == 2) *(uint16_t *)q = 0;
    else *q = 0;
  }
}

} // namespace

extern "C" {

int amp__cuda_copy_to(amp_tensor *dst, const amp_tensor *src) { return copy_for(dst, src, AMP_OP_copy); }
int amp__cuda_clone(amp_call *c) { return copy_for(c->out[0], c->in[0], AMP_OP_clone); }
int amp__cuda_cast(amp_call *c)
{
  if (amp__chain_record == NULL && amp__cuda_start_casts(c->in[0], c->out[0])) return 0;
  return copy_for(c->out[0], c->in[0], AMP_OP_cast);
}

int amp__cuda_fill_value(amp_tensor *tensor, double number)
{
  if (amp_unlikely(amp__chain_record != NULL)) return amp__chain_record->unfit = true, 0;
  if (tensor->numel == 0) return 0;
  if (amp__is_int(tensor->dtype) && !amp__fits(number, tensor->dtype)) {
    if (number != number) return amp__fail(AMP_E_VALUE, "NaN can't be cast to %s", amp_dtype_name(tensor->dtype));
    return amp__fail(AMP_E_VALUE, "the value %.9g can't be cast to %s: it is out of range", number,
                     amp_dtype_name(tensor->dtype));
  }
  if (number == 0 && !signbit(number) && (tensor->flags & AMP_T_DENSE))
    return amp__cuda_check(cudaMemsetAsync(amp__data(tensor), 0, (size_t)tensor->numel * amp__dtype_size[tensor->dtype],
                                           amp__cuda_stream()),
                           "filling");
  if (amp_ew_class_of_dtype(tensor->dtype) == AMP_EW_I64) {
    value<int64_t> f = { tensor->dtype == AMP_BOOL ? number != 0 : (int64_t)number };
    return amp_ew_run<int64_t, int64_t, 0>(tensor, NULL, f);
  }
  value<double> f = { number };
  return amp_ew_run<double, double, 0>(tensor, NULL, f);
}
int amp__cuda_cast_unsaturated(amp_call *c) { return cast_unsaturated(c->out[0], c->in[0]); }
int amp__cuda_fill(amp_call *c) { return amp__cuda_fill_value(c->out[0], AMP_ARGS(c, fill)->value); }

/* -- Rearranging --------------------------------------------------------------------------- */

int amp__cuda_flip(amp_call *c)
{
  const args_flip *args = AMP_ARGS(c, flip);
  const amp_tensor *t = c->in[0];
  int64_t stride[AMP_MAX_DIM], offset = t->offset;
  amp_storage s;
  if (t->numel == 0) return 0;
  for (int d = 0; d < t->ndim; d++) stride[d] = t->stride[d];
  for (int i = 0; i < args->dims.n; i++) {
    int d = (int)args->dims.at[i];
    offset += (t->size[d] - 1) * t->stride[d];
    stride[d] = -t->stride[d];
  }
  amp_tensor v = place(t, &s, offset, t->ndim, t->size, stride);
  return copy_as(c->out[0], &v, AMP_OP_flip);
}

int amp__cuda_cat(amp_call *c)
{
  amp_tensor *out = c->out[0];
  int dim = (int)AMP_ARGS(c, cat)->dim;
  int64_t at = out->offset;
  if (amp_cat_many(out, dim, c->in, c->nin) == 0) return 0;
  for (int i = 0; i < c->nin; i++) {
    amp_tensor *operand = c->in[i];
    amp_storage s;
    if (operand->ndim != out->ndim || operand->numel == 0) continue;
    amp_tensor part = place(out, &s, at, operand->ndim, operand->size, out->stride);
    if (amp__cuda_plain(&part)) part.flags |= AMP_T_DENSE;
    int rc = copy_for(&part, operand, AMP_OP_cat);
    if (rc < 0) return rc;
    at += operand->size[dim] * out->stride[dim];
  }
  return 0;
}

static int triangle(amp_call *c, int64_t diagonal, int lower)
{
  amp_tensor *o = c->out[0];
  int rc = o == c->in[0] ? 0 : copy_for(o, c->in[0], c->id);
  if (rc < 0 || o->numel == 0) return rc;
  amp_arg a = amp_arg_of(o);
  int64_t rows = o->size[o->ndim - 2], cols = o->size[o->ndim - 1];
  AMP_LAUNCH(zero_side, amp_grid(o->numel, 256), 256, 0, a.p, (int)amp__dtype_size[o->dtype], o->numel / (rows * cols),
             (int)o->ndim, a, diagonal, lower);
  return 0;
}
int amp__cuda_tril(amp_call *c) { return triangle(c, AMP_ARGS(c, tril)->diagonal, 1); }
int amp__cuda_triu(amp_call *c) { return triangle(c, AMP_ARGS(c, triu)->diagonal, 0); }

int amp__cuda_diag_embed(amp_call *c)
{
  const args_diag_embed *args = AMP_ARGS(c, diag_embed);
  amp_tensor *t = c->in[0], *o = c->out[0];
  int64_t offset = args->offset, d1 = args->dim1, d2 = args->dim2, stride[AMP_MAX_DIM];
  amp_storage s;
  int rc = amp__cuda_fill_value(o, 0), k = 0;
  if (rc < 0 || t->numel == 0) return rc;
  for (int d = 0; d < o->ndim; d++)
    if (d != d1 && d != d2) stride[k++] = o->stride[d];
  stride[k] = o->stride[d1] + o->stride[d2];
  amp_tensor v = place(o, &s, o->offset + (offset > 0 ? offset * o->stride[d2] : -offset * o->stride[d1]), t->ndim,
                       t->size, stride);
  return copy_as(&v, t, c->id);
}

/* -- Strided windows ---------------------------------------------------------------------------- */

int amp__cuda_as_strided_scatter(amp_call *c)
{
  const args_as_strided_scatter *args = AMP_ARGS(c, as_strided_scatter);
  amp_tensor *o = c->out[0], *src = c->in[1];
  int64_t stride[AMP_MAX_DIM];
  amp_storage s;
  int rc = copy_for(o, c->in[0], c->id);
  if (rc < 0 || src->numel == 0) return rc;
  for (int d = 0; d < src->ndim; d++) stride[d] = args->stride.at[d];
  amp_tensor v = place(o, &s, o->offset + args->offset, src->ndim, src->size, stride);
  return copy_as(&v, src, c->id);
}

int amp__cuda_as_strided_sum(amp_call *c)
{
  const args_as_strided_sum *args = AMP_ARGS(c, as_strided_sum);
  amp_tensor *out = c->out[0], *source = c->in[0];
  int wide = out->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  amp_tensor *acc = out->dtype == wide ? out : amp__cuda_make(wide, out->ndim, out->size);
  if (acc == NULL) return AMP_E_MEMORY;
  int rc = amp__cuda_fill_value(acc, 0);
  if (rc == 0 && source->numel > 0) {
    amp_arg in = amp_arg_of(source), view = in;
    for (int d = 0; d < source->ndim; d++) view.stride[d] = args->stride.at[d];
    amp_tensor *room = amp__cuda_deterministic ? amp__cuda_scratch((size_t)source->numel * 2 * sizeof(amp_pair)) : NULL;
    if (amp__cuda_deterministic && room == NULL) rc = AMP_E_MEMORY;
    else if (room) {
      amp_pair *places = AMP_DATA(amp_pair, room);
      AMP_LAUNCH(list_places, amp_grid(source->numel, 256), 256, 0, places, source->numel, args->offset, view);
      places = (amp_pair *)amp_sort_items(true, places, places + source->numel, 1, source->numel);
      if (wide == AMP_FLOAT64)
        AMP_LAUNCH((sum_sorted<double>), amp_grid(source->numel, 256), 256, 0, (double *)amp__data(acc), in,
                   (const amp_pair *)places);
      else
        AMP_LAUNCH((sum_sorted<float>), amp_grid(source->numel, 256), 256, 0, (float *)amp__data(acc), in,
                   (const amp_pair *)places);
      amp__free(room);
    } else if (wide == AMP_FLOAT64)
      AMP_LAUNCH((sum_at<double>), amp_grid(source->numel, 256), 256, 0, (double *)amp__data(acc), in, args->offset,
                 view);
    else
      AMP_LAUNCH((sum_at<float>), amp_grid(source->numel, 256), 256, 0, (float *)amp__data(acc), in, args->offset,
                 view);
  }
  if (acc != out) {
    if (rc == 0) rc = amp__cuda_copy_to(out, acc);
    amp__free(acc);
  }
  return rc;
}

/* -- Bytes of the host as an argument ------------------------------------------------------------- */

typedef struct parcel {
  unsigned char b[AMP_CUDA_UPLOAD];
} parcel;
typedef struct packet {
  unsigned char b[64];
} packet;
}

template <class P> __global__ void unpack(unsigned char *dst, const P p, int n)
{
  for (int i = threadIdx.x; i < n; i += blockDim.x) dst[i] = p.b[i];
}

extern "C" int amp__cuda_upload(void *dst, const void *src, size_t n)
{
  if (n <= sizeof(packet)) {
    packet p;
    memcpy(p.b, src, n);
    AMP_LAUNCH((unpack<packet>), 1, 64, 0, (unsigned char *)dst, p, (int)n);
  } else {
    parcel p;
    memcpy(p.b, src, n);
    AMP_LAUNCH((unpack<parcel>), 1, 256, 0, (unsigned char *)dst, p, (int)n);
  }
  return amp__cuda_check(cudaPeekAtLastError(), "a copy to the GPU");
}
