/*
** norm.cu: rows layer_norm and rms_norm, and their backward rows; renorm.
**
** A row of data (the last dimensions) lies in one piece, or the data is copied to C
** order. float32 and 16-bit rows of whole vectors, up to 1024 elements for a warp
** and 4096 for a block, are read once and stay in registers; other rows are read
** again out of the cache. Backward, such a thread also keeps its columns' sums of
** the gradients of weight and bias over all rows that it takes; blocks' sums are
** added by a second launch, in a fixed order.
*/
#include "elementwise.cuh"
#include "rows.cuh"

namespace {

enum { CHUNKS = 64 };

typedef struct job {
  const char *x, *g, *w, *b;   /* w, b may be NULL */
  char *y, *mean, *rstd;       /* mean NULL: about 0 */
  int32_t xdt, gdt, wdt, bdt, ydt, sdt, wide, rms; /* sdt: of mean and rstd */
  int64_t rows, n;
  double eps;
  char *partial;               /* [blocks][2][n] */
} job;

/* -- Rows in registers ------------------------------------------------------------ */

template <bool WARP, int K> __global__ void __launch_bounds__(256) forward_fast(const job k)
{
  AMP_ROW_LANES(WARP);
  const int vectors = (int)(k.n >> 3);
  const float each = 1.f / (float)k.n;
  AMP_ROW_LOOP(WARP, r, k.rows) {
    float v[K][8], sum = 0, dev = 0;
    int64_t base = r * k.n;
#pragma unroll
    for (int j = 0; j < K; j++)
      if (lane + j * lanes < vectors) {
        amp_load_n<8>(v[j], k.x, k.xdt, base + ((int64_t)(lane + j * lanes) << 3));
        if (!k.rms) {
#pragma unroll
          for (int q = 0; q < 8; q++) sum += v[j][q];
        }
      }
    float mean = k.rms ? 0.f : amp_row_reduce<WARP, amp_sum>(sum, 0.f) * each;
#pragma unroll
    for (int j = 0; j < K; j++)
      if (lane + j * lanes < vectors) {
#pragma unroll
        for (int q = 0; q < 8; q++) { float d = v[j][q] - mean; dev += d * d; }
      }
    float rstd = (float)(1 / sqrt((double)(amp_row_reduce<WARP, amp_sum>(dev, 0.f) * each) + k.eps));
    if (lane == 0) {
      if (!k.rms) amp_store<float>(k.mean, k.sdt, r, mean);
      amp_store<float>(k.rstd, k.sdt, r, rstd);
    }
#pragma unroll
    for (int j = 0; j < K; j++)
      if (lane + j * lanes < vectors) {
        int64_t i = (int64_t)(lane + j * lanes) << 3;
        float w[8], b[8];
        if (k.w) amp_load_n<8>(w, k.w, k.wdt, i);
        if (k.b) amp_load_n<8>(b, k.b, k.bdt, i);
#pragma unroll
        for (int q = 0; q < 8; q++) {
          float y = (v[j][q] - mean) * rstd;
          if (k.w) y *= w[q];
          if (k.b) y += b[q];
          v[j][q] = y;
        }
        amp_store_n<8>(k.y, k.ydt, base + i, v[j]);
      }
  }
}

template <bool WARP, int K> __global__ void __launch_bounds__(256) backward_fast(const job k)
{
  __shared__ float part[WARP ? 8 : 1][WARP ? 257 : 1];
  AMP_ROW_LANES(WARP);
  const int vectors = (int)(k.n >> 3);
  const float each = 1.f / (float)k.n;
  float gw[K][8], gb[K][8];
#pragma unroll
  for (int j = 0; j < K; j++) {
#pragma unroll
    for (int q = 0; q < 8; q++) gw[j][q] = gb[j][q] = 0;
  }
  AMP_ROW_LOOP(WARP, r, k.rows) {
    float x[K][8], g[K][8], s0 = 0, s1 = 0;
    int64_t base = r * k.n;
    float mean = k.rms ? 0.f : amp_load<float>(k.mean, k.sdt, r), rstd = amp_load<float>(k.rstd, k.sdt, r);
#pragma unroll
    for (int j = 0; j < K; j++)
      if (lane + j * lanes < vectors) {
        int64_t i = (int64_t)(lane + j * lanes) << 3;
        float w[8];
        amp_load_n<8>(x[j], k.x, k.xdt, base + i);
        amp_load_n<8>(g[j], k.g, k.gdt, base + i);
        if (k.w) amp_load_n<8>(w, k.w, k.wdt, i);
#pragma unroll
        for (int q = 0; q < 8; q++) {
          x[j][q] = (x[j][q] - mean) * rstd;
          gw[j][q] += g[j][q] * x[j][q];
          gb[j][q] += g[j][q];
          if (k.w) g[j][q] *= w[q];
          s0 += g[j][q];
          s1 += g[j][q] * x[j][q];
        }
      }
    s0 = k.rms ? 0.f : amp_row_reduce<WARP, amp_sum>(s0, 0.f) * each;
    s1 = amp_row_reduce<WARP, amp_sum>(s1, 0.f) * each;
#pragma unroll
    for (int j = 0; j < K; j++)
      if (lane + j * lanes < vectors) {
#pragma unroll
        for (int q = 0; q < 8; q++) g[j][q] = rstd * (g[j][q] - s0 - x[j][q] * s1);
        amp_store_n<8>(k.y, k.ydt, base + ((int64_t)(lane + j * lanes) << 3), g[j]);
      }
  }
  float *out = (float *)k.partial + (int64_t)blockIdx.x * 2 * k.n;
#pragma unroll
  for (int j = 0; j < K; j++) {
#pragma unroll
    for (int side = 0; side < 2; side++) {
      if (!WARP) {
        if (lane + j * lanes < vectors) {
#pragma unroll
          for (int q = 0; q < 8; q++) out[side * k.n + ((int64_t)(lane + j * lanes) << 3) + q] = side ? gb[j][q] : gw[j][q];
        }
        continue;
      }
      __syncthreads();
#pragma unroll
      for (int q = 0; q < 8; q++) part[threadIdx.x >> 5][lane * 8 + q] = side ? gb[j][q] : gw[j][q];
      __syncthreads();
      float s = 0;
#pragma unroll
      for (int w = 0; w < 8; w++) s += part[w][threadIdx.x];
      if (j * 256 + (int)threadIdx.x < k.n) out[side * k.n + j * 256 + threadIdx.x] = s;
    }
  }
}

/* -- Any row ------------------------------------------------------------------------- */

template <class T, bool WARP> __global__ void __launch_bounds__(WARP ? 256 : 1024, 1) forward_any(const job k)
{
  AMP_ROW_LANES(WARP);
  AMP_ROW_LOOP(WARP, r, k.rows) {
    int64_t from = r * k.n, to = from + k.n;
    T mean = 0, dev = 0;
    if (!k.rms) {
      for (int64_t i = from + lane; i < to; i += lanes) mean += amp_load<T>(k.x, k.xdt, i);
      mean = amp_row_reduce<WARP, amp_sum>(mean, (T)0) / (T)k.n;
    }
    for (int64_t i = from + lane; i < to; i += lanes) { T d = amp_load<T>(k.x, k.xdt, i) - mean; dev += d * d; }
    T rstd = (T)(1 / sqrt((double)amp_row_reduce<WARP, amp_sum>(dev, (T)0) / (double)k.n + k.eps));
    if (lane == 0) {
      if (!k.rms) amp_store<T>(k.mean, k.sdt, r, mean);
      amp_store<T>(k.rstd, k.sdt, r, rstd);
    }
    for (int64_t i = from + lane; i < to; i += lanes) {
      T y = (amp_load<T>(k.x, k.xdt, i) - mean) * rstd;
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
      amp_store<T>(k.y, k.ydt, i, rstd * (g - s0 - x * s1));
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

/* the sums of all blocks: of weight (which 0), of bias (which 1); block 32 x 8 */
template <class T> __global__ void __launch_bounds__(256) add_blocks(const T *p, int64_t blocks, int64_t n, char *gw, int wdt, char *gb, int bdt)
{
  __shared__ T part[8][33];
  int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x;
  int side = blockIdx.y;
  T s = 0;
  for (int64_t b = threadIdx.y; c < n && b < blocks; b += 8) s += p[(b * 2 + side) * n + c];
  part[threadIdx.y][threadIdx.x] = s;
  __syncthreads();
  if (threadIdx.y != 0 || c >= n) return;
  for (int y = 1; y < 8; y++) s += part[y][threadIdx.x];
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

static bool fast(const job *k, bool f64, bool back)
{
  return !f64 && k->wide && k->n % 8 == 0 && k->n <= (back ? 4096 : 8192);
}

static int forward(amp_call *c, bool rms, amp_tensor *w, amp_tensor *b, amp_tensor *mean, amp_tensor *rstd, double eps)
{
  amp_tensor *x = c->in[0], *y = c->out[0], *out = NULL, *m = NULL, *r = NULL;
  job k;
  hold h = { { NULL }, 0, 0 };
  memset((void *)&k, 0, sizeof k);
  shape(&k, c->a, x);
  if (x->numel == 0) return 0;
  k.x = dense(&h, x, &k.xdt);
  k.w = dense(&h, w, &k.wdt);
  k.b = dense(&h, b, &k.bdt);
  out = amp_take(y, y->dtype);
  if (mean) m = amp_take(mean, mean->dtype);
  r = amp_take(rstd, rstd->dtype);
  if (!out || (mean && !m) || !r) h.rc = AMP_E_MEMORY;
  if (h.rc == 0) {
    bool f64 = y->dtype == AMP_FLOAT64 || x->dtype == AMP_FLOAT64;
    k.y = (char *)amp__data(out); k.ydt = out->dtype;
    if (m) k.mean = (char *)amp__data(m);
    k.rstd = (char *)amp__data(r); k.sdt = r->dtype;
    k.rms = rms;
    k.eps = eps;
    k.wide = amp_wide(k.x) && amp_wide(k.y) && amp_wide(k.w) && amp_wide(k.b);
    unsigned warps = amp_grid(k.rows, 8, 16), blocks = amp_grid(k.rows, 1, 16);
    if (fast(&k, f64, false)) {
      if (k.n <= 256) AMP_LAUNCH((forward_fast<true, 1>), warps, 256, 0, k);
      else if (k.n <= 1024) AMP_LAUNCH((forward_fast<true, 4>), warps, 256, 0, k);
      else if (k.n <= 2048) AMP_LAUNCH((forward_fast<false, 1>), blocks, 256, 0, k);
      else AMP_LAUNCH((forward_fast<false, 4>), blocks, 256, 0, k);
    } else amp_by_float(f64 ? AMP_FLOAT64 : AMP_FLOAT32, [&](auto zero) {
        typedef decltype(zero) T;
        AMP_ROW_LAUNCH(forward_any, T, k.rows, k.n, k);
        return 0;
      });
  }
  drop(&h);
  int rc = amp_give(y, out, h.rc);
  if (mean) rc = amp_give(mean, m, rc);
  return amp_give(rstd, r, rc);
}

static int backward(amp_call *c, bool rms, amp_tensor *mean, amp_tensor *rstd, amp_tensor *w)
{
  amp_tensor *g = c->in[0], *x = c->in[1], *y = c->out[0], *gw = c->out[1], *gb = rms ? NULL : c->out[2], *out, *dw, *db, *s = NULL;
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
  k.mean = (char *)dense(&h, mean, &k.sdt, rstd->dtype);
  k.rstd = (char *)dense(&h, rstd, &k.sdt);
  out = amp_take(y, y->dtype);
  dw = gw ? amp_take(gw, gw->dtype) : NULL;
  db = gb ? amp_take(gb, gb->dtype) : NULL;
  bool f64 = rstd->dtype == AMP_FLOAT64 || x->dtype == AMP_FLOAT64;
  k.rms = rms;
  k.wide = out && amp_wide(k.x) && amp_wide(k.g) && amp_wide(k.w) && amp_wide(amp__data(out));
  bool quick = fast(&k, f64, true);
  int64_t blocks = quick ? amp_grid(k.rows, k.n <= 1024 ? 8 : 1, 2) : k.rows < CHUNKS * 8 ? (k.rows + 7) / 8 : (int64_t)CHUNKS;
  s = amp__cuda_scratch((size_t)blocks * 2 * (size_t)k.n * (f64 ? 8 : 4));
  if (!out || (gw && !dw) || (gb && !db) || !s) h.rc = AMP_E_MEMORY;
  if (h.rc == 0) {
    k.y = (char *)amp__data(out); k.ydt = out->dtype;
    k.partial = (char *)amp__data(s);
    unsigned grid = (unsigned)blocks;
    if (quick) {
      if (k.n <= 256) AMP_LAUNCH((backward_fast<true, 1>), grid, 256, 0, k);
      else if (k.n <= 512) AMP_LAUNCH((backward_fast<true, 2>), grid, 256, 0, k);
      else if (k.n <= 1024) AMP_LAUNCH((backward_fast<true, 4>), grid, 256, 0, k);
      else if (k.n <= 2048) AMP_LAUNCH((backward_fast<false, 1>), grid, 256, 0, k);
      else AMP_LAUNCH((backward_fast<false, 2>), grid, 256, 0, k);
    }
    amp_by_float(f64 ? AMP_FLOAT64 : AMP_FLOAT32, [&](auto zero) {
      typedef decltype(zero) T;
      unsigned cols = (unsigned)((k.n + 31) / 32);
      if (!quick) {
        AMP_ROW_LAUNCH(backward_any, T, k.rows, k.n, k);
        AMP_LAUNCH((columns_any<T>), dim3(cols, grid), dim3(32, 8), 0, k);
      }
      if (dw || db)
        AMP_LAUNCH((add_blocks<T>), dim3(cols, 2), dim3(32, 8), 0, (const T *)k.partial, blocks, k.n, dw ? (char *)amp__data(dw) : (char *)NULL, dw ? (int)dw->dtype : 0,
                   db ? (char *)amp__data(db) : (char *)NULL, db ? (int)db->dtype : 0);
      return 0;
    });
  }
  drop(&h);
  amp__free(s);
  rc = amp_give(y, out, h.rc);
  if (gw) rc = amp_give(gw, dw, rc);
  if (gb) rc = amp_give(gb, db, rc);
  return rc;
}

/* maxnorm / (norm + 1e-7) where the norm is above maxnorm, else 1 */
struct shrink { enum { flat = 0 }; double most; template <class T> __device__ __forceinline__ T of(const T *a) const { return (double)a[0] > most ? (T)(most / ((double)a[0] + 1e-7)) : (T)1; } };
struct times { enum { flat = 0 }; template <class T> __device__ __forceinline__ T of(const T *a) const { return a[0] * a[1]; } };

} // namespace

extern "C" {

int amp__cuda_layer_norm(amp_call *c) { return forward(c, false, argument(c, 1), argument(c, 2), c->out[1], c->out[2], c->a[9].f); }
int amp__cuda_rms_norm(amp_call *c)
{
  double last = c->in[0]->dtype == AMP_FLOAT64 ? DBL_EPSILON : FLT_EPSILON;
  return forward(c, true, argument(c, 1), NULL, NULL, c->out[1], c->a[9].i == AMP_NONE ? last : c->a[9].f);
}
/* grad input mean rstd weight? */
int amp__cuda_layer_norm_backward(amp_call *c) { return backward(c, false, c->in[2], c->in[3], argument(c, 4)); }
/* grad input rstd weight? */
int amp__cuda_rms_norm_backward(amp_call *c) { return backward(c, true, NULL, c->in[2], argument(c, 3)); }

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
  if (!(norm = amp__cuda_op(AMP_OP_lp_norm, &x, 1, a))) return AMP_E_INTERNAL;
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
