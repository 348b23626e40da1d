/*
** norm.cu: rows layer_norm, add_layer_norm and rms_norm, backward rows; renorm.
**
** A row of data (the last dimensions) lies in one piece, or the data is copied to C
** order. float32 and 16-bit rows of whole vectors stay in registers (norm.cuh) or,
** backward, are read ahead (norm_ring.cuh); others are read again out of the cache.
** Backward, blocks leave sums of the gradients of weight and bias, which another
** launch adds in a fixed order.
*/
#include "elementwise.cuh"
#include "norm.cuh"
#include "norm_ring.cuh"

namespace {

enum { CHUNKS = 64 };

/* -- Any row ------------------------------------------------------------------------- */

template <class T, bool WARP> __global__ void __launch_bounds__(WARP ? 256 : 1024, 1) forward_any(const job k)
{
  AMP_ROW_LANES(WARP);
  AMP_ROW_LOOP(WARP, r, k.rows) {
    int64_t from = r * k.n, to = from + k.n;
    T mean = 0, dev = 0, low = 0; /* low: what the mean, which is counted from the first element, is rounded by */
    if (!k.rms) {
      const T base = amp_load<T>(k.x, k.xdt, from);
      T step = 0;
      for (int64_t i = from + lane; i < to; i += lanes) step += amp_load<T>(k.x, k.xdt, i) - base;
      step = amp_row_reduce<WARP, amp_sum>(step, (T)0) / (T)k.n;
      mean = base + step;
      low = (base - mean) + step;
    }
    for (int64_t i = from + lane; i < to; i += lanes) { T d = (amp_load<T>(k.x, k.xdt, i) - mean) - low; dev += d * d; }
    double total = (double)amp_row_reduce<WARP, amp_sum>(dev, (T)0);
    if (isinf(total)) { /* squares past float32's range */
      double wide = 0;
      for (int64_t i = from + lane; i < to; i += lanes) { double d = amp_load<double>(k.x, k.xdt, i) - (double)mean; wide += d * d; }
      total = amp_row_reduce<WARP, amp_sum>(wide, 0.0);
    }
    T rstd = (T)(1 / sqrt(total / (double)k.n + k.eps));
    if (lane == 0) {
      if (!k.rms) amp_store<T>(k.mean, k.sdt, r, mean);
      amp_store<T>(k.rstd, k.sdt, r, rstd);
    }
    for (int64_t i = from + lane; i < to; i += lanes) {
      T y = ((amp_load<T>(k.x, k.xdt, i) - mean) - low) * rstd;
      if (k.w) y *= amp_load<T>(k.w, k.wdt, i - from);
      if (k.b) y += amp_load<T>(k.b, k.bdt, i - from);
      amp_store<T>(k.y, k.ydt, i, y);
    }
  }
}

template <class T, bool WARP> __global__ void __launch_bounds__(WARP ? 256 : 1024, 1) backward_any(const job k)
{
  AMP_ROW_LANES(WARP);
  AMP_ROW_LOOP(WARP, r, k.rows) {
    int64_t from = r * k.n, to = from + k.n;
    T mean = k.rms ? (T)0 : amp_load<T>(k.mean, k.sdt, r), rstd = amp_load<T>(k.rstd, k.sdt, r), s0 = 0, s1 = 0;
    for (int64_t i = from + lane; i < to; i += lanes) {
      T g = amp_load<T>(k.g, k.gdt, i);
      if (k.w) g *= amp_load<T>(k.w, k.wdt, i - from);
      s0 += g;
      s1 += g * ((amp_load<T>(k.x, k.xdt, i) - mean) * rstd);
    }
    s0 = k.rms ? (T)0 : amp_row_reduce<WARP, amp_sum>(s0, (T)0) / (T)k.n;
    s1 = amp_row_reduce<WARP, amp_sum>(s1, (T)0) / (T)k.n;
    for (int64_t i = from + lane; i < to; i += lanes) {
      T g = amp_load<T>(k.g, k.gdt, i), x = (amp_load<T>(k.x, k.xdt, i) - mean) * rstd;
      if (k.w) g *= amp_load<T>(k.w, k.wdt, i - from);
      T y = rstd * (g - s0 - x * s1);
      amp_store<T>(k.y, k.ydt, i, k.more ? y + amp_load<T>(k.more, k.ydt, i) : y);
    }
  }
}

/* sums of columns over a chunk of rows; block 32 x 8 */
template <class T> __global__ void __launch_bounds__(256) columns_any(const job k)
{
  __shared__ T part[2][8][33];
  int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x, per = (k.rows + gridDim.y - 1) / gridDim.y, from = blockIdx.y * per, to = from + per < k.rows ? from + per : k.rows;
  T gw = 0, gb = 0;
  for (int64_t r = from + threadIdx.y; c < k.n && r < to; r += 8) {
    T g = amp_load<T>(k.g, k.gdt, r * k.n + c), mean = k.rms ? (T)0 : amp_load<T>(k.mean, k.sdt, r);
    gw += g * ((amp_load<T>(k.x, k.xdt, r * k.n + c) - mean) * amp_load<T>(k.rstd, k.sdt, r));
    gb += g;
  }
  part[0][threadIdx.y][threadIdx.x] = gw;
  part[1][threadIdx.y][threadIdx.x] = gb;
  __syncthreads();
  if (threadIdx.y >= 2 || c >= k.n) return;
  T s = 0;
  for (int y = 0; y < 8; y++) s += part[threadIdx.y][y][threadIdx.x];
  ((T *)k.partial)[((int64_t)blockIdx.y * 2 + threadIdx.y) * k.n + c] = s;
}

/* the sums of all blocks: of weight (which 0), of bias (which 1); block 32 x 32 */
template <class T> __global__ void __launch_bounds__(1024) add_blocks(const T *p, int blocks, int64_t n, char *gw, int wdt, char *gb, int bdt)
{
  __shared__ T part[32][33];
  amp_await();
  int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x;
  int side = blockIdx.y;
  T s = 0;
  if (c < n) {
    for (int b = threadIdx.y; b < blocks; b += 8 * 32) { /* 8 loads at once, also the last ones */
      T v[8];
#pragma unroll
      for (int i = 0; i < 8; i++) v[i] = b + i * 32 < blocks ? p[((int64_t)(b + i * 32) * 2 + side) * n + c] : (T)0;
#pragma unroll
      for (int i = 0; i < 8; i++) s += v[i];
    }
  }
  part[threadIdx.y][threadIdx.x] = s;
  __syncthreads();
  s = amp_reduce_warp<amp_sum>(part[threadIdx.x][threadIdx.y]);
  c = (int64_t)blockIdx.x * 32 + threadIdx.y;
  if (threadIdx.x != 0 || c >= n) return;
  if (side == 0 && gw) amp_store<T>(gw, wdt, c, s);
  if (side == 1 && gb) amp_store<T>(gb, bdt, c, s);
}

/* -- Calls ------------------------------------------------------------------------------ */

typedef struct hold { amp_tensor *t[8]; int n, rc; } hold; /* operands, freed together */
static const char *dense(hold *h, amp_tensor *t, int32_t *dtype, int as = -1)
{
  if (t == NULL) return NULL;
  amp_tensor *d = amp__cuda_dense(t, as < 0 ? (int)t->dtype : as);
  if (d == NULL) { h->rc = AMP_E_MEMORY; return NULL; }
  h->t[h->n++] = d;
  *dtype = d->dtype;
  return (const char *)amp__data(d);
}
static void drop(hold *h) { for (int i = 0; i < h->n; i++) amp__free(h->t[i]); }
static amp_tensor *argument(const amp_call *c, int i) { return i < c->nin ? c->in[i] : NULL; }

static void shape(job *k, const amp_slot *a, const amp_tensor *x)
{
  k->n = 1;
  for (int64_t d = 0; d < a[0].i; d++) k->n *= a[1 + d].i;
  k->rows = k->n ? x->numel / k->n : 0;
}

static bool half(int dtype) { return dtype == AMP_FLOAT16 || dtype == AMP_BFLOAT16; }

/* May a row stay in registers? ydt: the result's dtype */
static bool fast(const job *k, bool f64, int64_t most, int ydt)
{
  return !f64 && k->wide && k->sdt == AMP_FLOAT32 && k->xdt == ydt && k->n % (k->xdt == AMP_FLOAT32 ? 4 : 8) == 0 && k->n <= most;
}

/* Threads that have `each` elements of a row of n */
static unsigned threads_of(int64_t n, int each) { return (unsigned)((n + 32 * each - 1) / (32 * each) * 32); }

template <int XB, int WB, int RB> static void forward_rows(const job &k)
{
  enum { U = XB / 2 }; /* vectors that 8 elements are */
  const unsigned warps = amp_grid(k.rows, 4, 4096), blocks = amp_grid(k.rows, 1, 4096);
  if (k.n <= 256) AMP_LAUNCH((forward_fast<XB, WB, RB, U, true>), warps, 128, 0, k);
  else if (k.n <= 512) AMP_LAUNCH((forward_fast<XB, WB, RB, 2 * U, true>), warps, 128, 0, k);
  else if (k.n <= 768) AMP_LAUNCH((forward_fast<XB, WB, RB, 3 * U, true>), warps, 128, 0, k);
  else if (k.n <= 1024) AMP_LAUNCH((forward_fast<XB, WB, RB, 4 * U, true>), warps, 128, 0, k);
  else if (k.n <= 16 * 512) AMP_LAUNCH((forward_fast<XB, WB, RB, 2 * U, false>), blocks, threads_of(k.n, 16), 0, k);
  else AMP_LAUNCH((forward_fast<XB, WB, RB, 4 * U, false>), blocks, threads_of(k.n, 32), 0, k);
}

/* Elements that a thread has backward, threads of a block, blocks: all on the card at once, with equal numbers of rows */
typedef struct plan { int each; unsigned threads, blocks; bool ring; } plan;
static plan backward_plan(const job *k)
{
  plan p;
  int64_t sms = amp__cuda_here()->sms, items = k->rows, most;
  p.ring = ringed(k, amp__cuda_here());
  if (p.ring) {
    p.each = 0;
    p.threads = RING_WARPS * 32;
    p.blocks = amp_grid(k->rows, RING_WARPS, 1);
    return p;
  }
  if (k->n <= 1024) {
    p.each = (int)((k->n + 255) / 256) * 8;
    p.threads = p.each <= 16 ? +room<16, true>::THREADS : p.each <= 24 ? +room<24, true>::THREADS : +room<32, true>::THREADS;
    items = (k->rows + p.threads / 32 - 1) / (p.threads / 32);
    most = p.each > 8 ? sms : 2 * sms;
  } else {
    p.each = k->n <= 8 * 512 && k->xdt != AMP_FLOAT32 ? 8 : k->n <= 16 * 512 ? 16 : 24;
    p.threads = threads_of(k->n, p.each);
    most = sms * (p.each == 8 ? 1024 : 512) / p.threads;
  }
  int64_t per = (items + most - 1) / most;
  p.blocks = (unsigned)((items + per - 1) / per);
  return p;
}
template <int XB, int GB, int K> static int backward_ringed(const job &k, const plan &p)
{
  enum { E = K * 16 / XB };
  const size_t shared = E * 32 * sizeof(float) + (size_t)RING_WARPS * ring<E>::DEPTH * ring_row<XB, GB>(k);
  int rc = amp__cuda_check(cudaFuncSetAttribute(backward_ring<XB, GB, K>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared), "shared memory of layer_norm");
  if (rc < 0) return rc;
  AMP_LAUNCH((backward_ring<XB, GB, K>), p.blocks, p.threads, shared, k);
  return 0;
}

template <int XB, int GB> static int backward_rows(const job &k, const plan &p)
{
  enum { U = XB / 2 };
  if (p.ring) return k.n <= 512 ? backward_ringed<XB, GB, 2 * U>(k, p) : k.n <= 768 ? backward_ringed<XB, GB, 3 * U>(k, p) : backward_ringed<XB, GB, 4 * U>(k, p);
  const size_t shared = (size_t)p.each * (k.n <= 1024 ? 32 : p.threads) * sizeof(float);
  if (k.n <= 1024)
    switch (p.each) {
    case 8: AMP_LAUNCH((backward_fast<XB, GB, U, true>), p.blocks, p.threads, shared, k); break;
    case 16: AMP_LAUNCH((backward_fast<XB, GB, 2 * U, true>), p.blocks, p.threads, shared, k); break;
    case 24: AMP_LAUNCH((backward_fast<XB, GB, 3 * U, true>), p.blocks, p.threads, shared, k); break;
    default: AMP_LAUNCH((backward_fast<XB, GB, 4 * U, true>), p.blocks, p.threads, shared, k);
    }
  else if (p.each == 8) AMP_LAUNCH((backward_fast<XB, GB, U, false>), p.blocks, p.threads, shared, k);
  else if (p.each == 16) AMP_LAUNCH((backward_fast<XB, GB, 2 * U, false>), p.blocks, p.threads, shared, k);
  else {
    if (shared > 46 << 10) { /* more than 48 KiB with what the kernel has itself */
      int rc = amp__cuda_check(cudaFuncSetAttribute(backward_fast<XB, GB, 3 * U, false>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared), "shared memory of layer_norm");
      if (rc < 0) return rc;
    }
    AMP_LAUNCH((backward_fast<XB, GB, 3 * U, false>), p.blocks, p.threads, shared, k);
  }
  return 0;
}

static bool narrows(const amp_tensor *t) { return half(t->dtype) && amp__cuda_plain(t) && amp_wide(amp__data(t)); }

/* sum = x + r, by the row add */
static int add(amp_tensor *sum, amp_tensor *x, amp_tensor *r)
{
  amp_call c;
  memset((void *)&c, 0, sizeof c);
  c.id = AMP_OP_add;
  c.in = c.in_;
  c.a = c.a_;
  c.a[0].f = 1;
  c.in_[0] = x;
  c.in_[1] = r;
  c.out[0] = sum;
  c.nin = 2;
  c.nout = 1;
  return amp__cuda_add(&c);
}

/* r: added to the input first, the sum being the second result; else NULL */
static int forward(amp_call *c, bool rms, amp_tensor *r, amp_tensor *w, amp_tensor *b, amp_tensor *mean, amp_tensor *rstd, double eps)
{
  amp_tensor *x = c->in[0], *y = c->out[0], *sum = r ? c->out[1] : x, *twin = c->twin ? c->out[AMP_TWIN] : NULL, *out = NULL, *m = NULL, *scale = NULL;
  bool f64 = y->dtype == AMP_FLOAT64 || sum->dtype == AMP_FLOAT64, narrow = false, thin = false;
  job k;
  hold h = { { NULL }, 0, 0 };
  memset((void *)&k, 0, sizeof k);
  shape(&k, c->a, x);
  if (x->numel == 0) return 0;
  auto quick = [&]() {
    k.wide = amp_wide(k.x) && amp_wide(k.r) && amp_wide(k.sum) && amp_wide(k.y) && amp_wide(k.w) && amp_wide(k.b);
    narrow = (!k.w || k.wdt == k.xdt) && (!k.b || k.bdt == k.xdt) && k.xdt != AMP_FLOAT32; /* weights as the input, or float32 */
    thin = k.xdt == AMP_FLOAT32 && half(k.ydt); /* the result of float32 in 16 bits alone */
    return fast(&k, f64, ROW_FORWARD, thin ? k.xdt : k.ydt) && (eps == 0 || eps > 1e-30) && (narrow || ((!k.w || k.wdt == AMP_FLOAT32) && (!k.b || k.bdt == AMP_FLOAT32)));
  };
  auto weight = [&](amp_tensor *t, int32_t *dtype) { return dense(&h, t, dtype, t && (y->dtype == AMP_FLOAT32 || sum->dtype == AMP_FLOAT32) && half(t->dtype) ? (int)AMP_FLOAT32 : -1); };
  k.w = weight(w, &k.wdt);
  k.b = weight(b, &k.bdt);
  out = amp_take(y, y->dtype);
  if (mean) m = amp_take(mean, mean->dtype);
  scale = amp_take(rstd, rstd->dtype);
  if (!out || (mean && !m) || !scale) h.rc = AMP_E_MEMORY;
  if (h.rc == 0) {
    k.y = (char *)amp__data(out); k.ydt = out->dtype;
    if (m) k.mean = (char *)amp__data(m);
    k.rstd = (char *)amp__data(scale); k.sdt = scale->dtype;
    k.rms = rms;
    k.eps = eps;
    if (r) { /* in one pass, or by a kernel of its own */
      amp_tensor *a = x->dtype == sum->dtype ? x : r, *d = a == x ? r : x;
      bool joined = a->dtype == sum->dtype && (d->dtype == a->dtype || half(d->dtype)) && amp__cuda_plain(sum);
      if (joined) {
        k.x = dense(&h, a, &k.xdt);
        k.r = dense(&h, d, &k.rdt);
        k.sum = (char *)amp__data(sum);
        joined = h.rc == 0 && quick();
      }
      if (!joined && h.rc == 0) {
        k.r = k.sum = NULL;
        h.rc = add(sum, x, r);
        r = NULL;
      }
    }
  }
  if (!r && h.rc == 0) k.x = dense(&h, sum, &k.xdt, half(sum->dtype) && y->dtype == AMP_FLOAT32 ? (int)AMP_FLOAT32 : -1);
  if (h.rc == 0) {
    if (quick()) {
      if (thin) {
        k.twin = k.y;
        k.tdt = k.ydt;
        k.y = NULL;
      } else if (twin && k.xdt == AMP_FLOAT32 && out == y && narrows(twin)) {
        k.twin = (char *)amp__data(twin);
        k.tdt = twin->dtype;
      }
      if (k.xdt == AMP_FLOAT32 && !k.r) forward_rows<4, 4, 0>(k);
      else if (k.xdt == AMP_FLOAT32 && k.rdt == AMP_FLOAT32) forward_rows<4, 4, 4>(k);
      else if (k.xdt == AMP_FLOAT32) forward_rows<4, 4, 2>(k);
      else if (narrow && !k.r) forward_rows<2, 2, 0>(k);
      else if (narrow) forward_rows<2, 2, 2>(k);
      else if (!k.r) forward_rows<2, 4, 0>(k);
      else forward_rows<2, 4, 2>(k);
    } else amp_by_float(f64 ? AMP_FLOAT64 : AMP_FLOAT32, [&](auto zero) {
        typedef decltype(zero) T;
        AMP_ROW_LAUNCH(forward_any, T, k.rows, k.n, k);
        return 0;
      });
  }
  drop(&h);
  int rc = amp_give(y, out, h.rc);
  if (mean) rc = amp_give(mean, m, rc);
  rc = amp_give(rstd, scale, rc);
  return rc == 0 && twin && !k.twin ? amp__cuda_copy_to(twin, y) : rc;
}

static int backward(amp_call *c, bool rms, amp_tensor *mean, amp_tensor *rstd, amp_tensor *w, amp_tensor *sum)
{
  amp_tensor *g = c->in[0], *x = c->in[1], *y = c->out[0], *gw = c->out[1], *gb = rms ? NULL : c->out[2], *also = c->out[3], *out, *dw, *db, *s = NULL;
  job k;
  hold h = { { NULL }, 0, 0 };
  int rc = 0;
  memset((void *)&k, 0, sizeof k);
  shape(&k, c->a, x);
  if (k.n == 0) return 0;
  if (k.rows == 0) {
    if (gw && (rc = amp__cuda_fill_value(gw, 0)) < 0) return rc;
    return gb ? amp__cuda_fill_value(gb, 0) : 0;
  }
  k.x = dense(&h, x, &k.xdt);
  k.g = dense(&h, g, &k.gdt);
  k.w = dense(&h, w, &k.wdt);
  k.more = dense(&h, sum, &k.ydt, y->dtype);
  k.mean = (char *)dense(&h, mean, &k.sdt, rstd->dtype);
  k.rstd = (char *)dense(&h, rstd, &k.sdt);
  out = amp_take(y, y->dtype);
  dw = gw ? amp_take(gw, gw->dtype) : NULL;
  db = gb ? amp_take(gb, gb->dtype) : NULL;
  bool f64 = rstd->dtype == AMP_FLOAT64 || x->dtype == AMP_FLOAT64;
  k.rms = rms;
  k.wide = out && amp_wide(k.x) && amp_wide(k.g) && amp_wide(k.more) && amp_wide(amp__data(out));
  k.ydt = y->dtype;
  bool quick = fast(&k, f64, ROW_BACK, k.ydt) && (k.xdt == AMP_FLOAT32 ? k.gdt != AMP_FLOAT64 : k.gdt == k.xdt);
  plan p = { 0, 0, 0, false };
  if (quick) p = backward_plan(&k);
  if (quick && also && k.xdt == AMP_FLOAT32 && out == y && narrows(also)) { k.twin = (char *)amp__data(also); k.tdt = also->dtype; }
  int64_t blocks = quick ? p.blocks : k.rows < CHUNKS * 8 ? (k.rows + 7) / 8 : (int64_t)CHUNKS;
  s = amp__cuda_scratch((size_t)blocks * 2 * (size_t)k.n * (f64 ? 8 : 4));
  if (!out || (gw && !dw) || (gb && !db) || !s) h.rc = AMP_E_MEMORY;
  if (h.rc == 0) {
    k.y = (char *)amp__data(out); k.ydt = out->dtype;
    k.partial = (char *)amp__data(s);
    unsigned grid = (unsigned)blocks;
    if (quick) {
      if (k.xdt != AMP_FLOAT32) h.rc = backward_rows<2, 2>(k, p);
      else if (k.gdt != AMP_FLOAT32) h.rc = backward_rows<4, 2>(k, p);
      else h.rc = backward_rows<4, 4>(k, p);
    }
    amp_by_float(f64 ? AMP_FLOAT64 : AMP_FLOAT32, [&](auto zero) {
      typedef decltype(zero) T;
      unsigned cols = (unsigned)((k.n + 31) / 32);
      if (!quick) {
        AMP_ROW_LAUNCH(backward_any, T, k.rows, k.n, k);
        AMP_LAUNCH((columns_any<T>), dim3(cols, grid), dim3(32, 8), 0, k);
      }
      if (dw || db)
        AMP_LAUNCH_NEXT(quick, (add_blocks<T>), dim3(cols, 2), dim3(32, 32), 0, (const T *)k.partial, (int)blocks, k.n, dw ? (char *)amp__data(dw) : (char *)NULL, dw ? (int)dw->dtype : 0,
                   db ? (char *)amp__data(db) : (char *)NULL, db ? (int)db->dtype : 0);
      return 0;
    });
  }
  drop(&h);
  amp__free(s);
  rc = amp_give(y, out, h.rc);
  if (gw) rc = amp_give(gw, dw, rc);
  if (gb) rc = amp_give(gb, db, rc);
  return rc == 0 && also && !k.twin ? amp__cuda_copy_to(also, y) : rc;
}

/* maxnorm / (norm + 1e-7) where the norm is above maxnorm, else 1 */
struct shrink { enum { flat = 0 }; double most; template <class T> __device__ __forceinline__ T of(const T *a) const { return (double)a[0] > most ? (T)(most / ((double)a[0] + 1e-7)) : (T)1; } };
struct times { enum { flat = 0 }; template <class T> __device__ __forceinline__ T of(const T *a) const { return a[0] * a[1]; } };

} // namespace

extern "C" {

int amp__cuda_layer_norm(amp_call *c) { return forward(c, false, NULL, argument(c, 1), argument(c, 2), c->out[1], c->out[2], c->a[9].f); }
int amp__cuda_add_layer_norm(amp_call *c) /* input residual weight? bias? -> result sum statistics */
{
  amp_tensor *at = c->out[2], *part[2];
  for (int i = 0; i < 2; i++) part[i] = amp__tensor_view(at, at->ndim - 1, at->size + 1, at->stride + 1, at->offset + i * at->stride[0]);
  int rc = part[0] && part[1] ? forward(c, false, c->in[1], argument(c, 2), argument(c, 3), part[0], part[1], c->a[9].f) : AMP_E_MEMORY;
  for (int i = 0; i < 2; i++) amp__free(part[i]);
  return rc;
}
int amp__cuda_rms_norm(amp_call *c)
{
  double last = c->in[0]->dtype == AMP_FLOAT64 ? DBL_EPSILON : FLT_EPSILON;
  return forward(c, true, NULL, argument(c, 1), NULL, NULL, c->out[1], c->a[9].i == AMP_NONE ? last : c->a[9].f);
}
/* grad input mean rstd weight? sum?; shape also */
int amp__cuda_layer_norm_backward(amp_call *c) { return backward(c, false, c->in[2], c->in[3], argument(c, 4), argument(c, 5)); }
/* grad input rstd weight? sum? */
int amp__cuda_rms_norm_backward(amp_call *c) { return backward(c, true, NULL, c->in[2], argument(c, 3), argument(c, 4)); }

int amp__cuda_renorm(amp_call *c) /* p dim maxnorm */
{
  amp_tensor *x = c->in[0], *norm;
  amp_slot a[AMP_MAX_SLOT];
  int n = 0, type = x->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  if (x->numel == 0) return 0;
  memset(a, 0, sizeof a);
  a[0].f = c->a[0].f;
  for (int i = 0; i < x->ndim; i++) if (i != c->a[1].i) a[2 + n++].i = i + 1;
  a[1].i = n;
  a[10].i = 1;
  a[11].i = type;
  if (!(norm = amp__cuda_op(AMP_OP_lp_norm, &x, 1, a))) return AMP_E_MEMORY;
  shrink f = { c->a[2].f };
  times m;
  amp_tensor *in[2] = { x, norm };
  int rc = amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    int code = amp_ew_run<T, T, 1>(norm, &norm, f);
    return code < 0 ? code : amp_ew_run<T, T, 2>(c->out[0], in, m);
  });
  amp__free(norm);
  return rc;
}

}
