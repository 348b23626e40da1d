/*
** batchnorm.cu: rows batch_norm and batch_norm_backward, for what batchnorm_call.cu
** leaves: float64, rows that aren't whole vectors, layouts with gaps.
**
** Data is N x C x the rest, seen in one of two shapes: runs of one channel (NCHW),
** or runs of channels (channels-last, and N x C), else it is copied to C order.
** Three launches each way, none of which waits:
**
**   sums    a block takes a channel (or some channels side by side) and a part of
**           the rest: mean and squared deviations, joined without cancellation;
**           backward the sums of g and of g (x - mean)
**   settle  a warp a channel: statistics, running statistics, coefficients
**   apply   a x + b, backward a g + b x + d, 16 bytes at a time
**
** A batch with a value that is not finite leaves the running statistics alone.
*/
#include "batchnorm.cuh"

namespace {

enum { THREADS = 256, SPLITS = 256 };

typedef struct bn {
  const char *x, *g, *w, *b;
  char *y, *mean, *rstd, *rm, *rv, *gw, *gb;  /* rm, rv: running; gw, gb: gradients of weight and bias */
  int32_t xdt, gdt, ydt, wdt, bdt, rmdt, rvdt, gwdt, gbdt, training, inside, small;
  int64_t n, c, s, splits, units, per;        /* units: vectors of a channel, or rows of channels; per: of a split */
  int64_t xn, xc, xs, gn, gc, gs, yn, yc, ys; /* strides: image, channel, rest */
  int64_t sw, sb, srm, srv, sgw, sgb;
  double eps, momentum;
  double *partial;         /* [c][splits][3]: count, mean, deviations; or -, sum, sum */
  char *coef;              /* [3][c] of the computing type */
  unsigned *cells;         /* ticket, flag */
} bn;

template <class T> __device__ __forceinline__ void join(T &n, T &mean, T &m2, T n1, T mean1, T m21)
{
  if (n1 == 0) return;
  T total = n + n1, d = mean1 - mean, share = n1 / total;
  m2 += m21 + d * d * (n * share);
  mean += d * share;
  n = total;
}

/* unit u to image and place within it, `per` units an image */
__device__ __forceinline__ void split(const bn &k, int64_t u, int64_t per, int64_t *n, int64_t *i)
{
  *n = k.small ? (int64_t)((uint32_t)u / (uint32_t)per) : u / per;
  *i = u - *n * per;
}

__device__ __forceinline__ void leave(const bn &k, int64_t c, double n, double a, double b)
{
  double *p = k.partial + (c * k.splits + blockIdx.y) * 3;
  p[0] = n;
  p[1] = a;
  p[2] = b;
  if (!k.g && !(fabs(a) <= DBL_MAX && fabs(b) <= DBL_MAX)) k.cells[1] = 1;
}

/* -- Runs of one channel: grid channels x splits ------------------------------------------ */

template <class T, int V, bool BACK> __global__ void __launch_bounds__(THREADS) outer_sums(const bn k)
{
  const int64_t c = blockIdx.x, run = k.s / V, from = blockIdx.y * k.per, to = from + k.per < k.units ? from + k.per : k.units;
  T n = 0, a = 0, b = 0, mean = BACK ? ((const T *)k.mean)[c] : (T)0, base = BACK ? (T)0 : amp_load<T>(k.x, k.xdt, c * k.xc); /* means count from base */
  for (int64_t u = from + threadIdx.x; u < to; u += THREADS) {
    int64_t img, i;
    T x[V];
    split(k, u, run, &img, &i);
    amp_load_n<V>(x, k.x, k.xdt, img * k.xn + c * k.xc + i * V);
    if (BACK) {
      T g[V];
      amp_load_n<V>(g, k.g, k.gdt, img * k.gn + c * k.gc + i * V);
#pragma unroll
      for (int j = 0; j < V; j++) { a += g[j]; b += g[j] * (x[j] - mean); }
    } else {
      T m = 0, q = 0;
#pragma unroll
      for (int j = 0; j < V; j++) m += x[j] - base;
      m *= (T)1 / V;
#pragma unroll
      for (int j = 0; j < V; j++) { T d = (x[j] - base) - m; q += d * d; }
      join(n, a, b, (T)V, m, q);
    }
  }
  double dn = n, da = a, db = b;
  if (!BACK) { /* deviations from the block's mean */
    dn = amp_reduce_block<amp_sum>((double)n, 0.0);
    da = amp_reduce_block<amp_sum>((double)n * (double)a, 0.0) / (dn > 0 ? dn : 1);
    db = (double)b + (double)n * ((double)a - da) * ((double)a - da);
    da += (double)base;
  } else da = amp_reduce_block<amp_sum>(da, 0.0);
  db = amp_reduce_block<amp_sum>(db, 0.0);
  if (threadIdx.x == 0) leave(k, c, dn, da, db);
}

template <class T, int V, bool BACK> __global__ void __launch_bounds__(THREADS) outer_apply(const bn k)
{
  const int64_t c = blockIdx.x, run = k.s / V, from = blockIdx.y * k.per, to = from + k.per < k.units ? from + k.per : k.units;
  const T *coef = (const T *)k.coef;
  const T a = coef[c], b = coef[k.c + c], d = BACK ? coef[2 * k.c + c] : (T)0, mean = ((const T *)k.mean)[c];
  for (int64_t u = from + threadIdx.x; u < to; u += THREADS) {
    int64_t img, i;
    T x[V];
    split(k, u, run, &img, &i);
    amp_load_n<V>(x, k.x, k.xdt, img * k.xn + c * k.xc + i * V);
    if (BACK) {
      T g[V];
      amp_load_n<V>(g, k.g, k.gdt, img * k.gn + c * k.gc + i * V);
#pragma unroll
      for (int j = 0; j < V; j++) x[j] = a * g[j] + (b * (x[j] - mean) + d);
    } else {
#pragma unroll
      for (int j = 0; j < V; j++) x[j] = a * (x[j] - mean) + b;
    }
    amp_store_n<V>(k.y, k.ydt, img * k.yn + c * k.yc + i * V, x);
  }
}

/* -- Runs of channels: block tx x ty, a thread has V channels of every ty-th row ------------- */

template <class T, int V, bool BACK> __global__ void __launch_bounds__(THREADS) inner_sums(const bn k)
{
  __shared__ T sh[2][THREADS * V];
  __shared__ T count[THREADS];
  const int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V, from = blockIdx.y * k.per, to = from + k.per < k.units ? from + k.per : k.units;
  T n = 0, a[V], b[V], mean[V]; /* forward, mean: the first element, from which means count */
#pragma unroll
  for (int j = 0; j < V; j++) { a[j] = b[j] = 0; mean[j] = c >= k.c ? (T)0 : BACK ? ((const T *)k.mean)[c + j] : amp_load<T>(k.x, k.xdt, c + j); }
  if (c < k.c) {
#pragma unroll 4
    for (int64_t r = from + threadIdx.y; r < to; r += blockDim.y) {
      int64_t img, i;
      T x[V];
      split(k, r, k.s, &img, &i);
      amp_load_n<V>(x, k.x, k.xdt, img * k.xn + i * k.xs + c);
      if (BACK) {
        T g[V];
        amp_load_n<V>(g, k.g, k.gdt, img * k.gn + i * k.gs + c);
#pragma unroll
        for (int j = 0; j < V; j++) { a[j] += g[j]; b[j] += g[j] * (x[j] - mean[j]); }
      } else {
        n += 1;
        T share = 1 / n;
#pragma unroll
        for (int j = 0; j < V; j++) {
          T v = x[j] - mean[j], d = v - a[j];
          a[j] += d * share;
          b[j] += d * (v - a[j]);
        }
      }
    }
  }
  const int width = blockDim.x * V, at = threadIdx.y * width + threadIdx.x * V, thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int j = 0; j < V; j++) { sh[0][at + j] = a[j]; sh[1][at + j] = b[j]; }
  if (threadIdx.x == 0) count[threadIdx.y] = n;
  __syncthreads();
  for (int j = thread; j < width; j += THREADS) {
    int64_t ch = (int64_t)blockIdx.x * width + j;
    double dn = 0, da = 0, db = 0;
    if (ch >= k.c) continue;
    for (int y = 0; y < (int)blockDim.y; y++) {
      if (BACK) { da += (double)sh[0][y * width + j]; db += (double)sh[1][y * width + j]; }
      else join(dn, da, db, (double)count[y], (double)sh[0][y * width + j], (double)sh[1][y * width + j]);
    }
    if (!BACK) da += amp_load<double>(k.x, k.xdt, ch);
    leave(k, ch, dn, da, db);
  }
}

template <class T, int V, bool BACK> __global__ void __launch_bounds__(THREADS) inner_apply(const bn k)
{
  const int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V, from = blockIdx.y * k.per, to = from + k.per < k.units ? from + k.per : k.units;
  const T *coef = (const T *)k.coef;
  T a[V], b[V], d[V], mean[V];
  if (c >= k.c) return;
#pragma unroll
  for (int j = 0; j < V; j++) { mean[j] = ((const T *)k.mean)[c + j]; a[j] = coef[c + j]; b[j] = coef[k.c + c + j]; d[j] = BACK ? coef[2 * k.c + c + j] : (T)0; }
#pragma unroll 4
  for (int64_t r = from + threadIdx.y; r < to; r += blockDim.y) {
    int64_t img, i;
    T x[V];
    split(k, r, k.s, &img, &i);
    amp_load_n<V>(x, k.x, k.xdt, img * k.xn + i * k.xs + c);
    if (BACK) {
      T g[V];
      amp_load_n<V>(g, k.g, k.gdt, img * k.gn + i * k.gs + c);
#pragma unroll
      for (int j = 0; j < V; j++) x[j] = a[j] * g[j] + (b[j] * (x[j] - mean[j]) + d[j]);
    } else {
#pragma unroll
      for (int j = 0; j < V; j++) x[j] = a[j] * (x[j] - mean[j]) + b[j];
    }
    amp_store_n<V>(k.y, k.ydt, img * k.yn + i * k.ys + c, x);
  }
}

/* -- A warp a channel ---------------------------------------------------------------------------- */

__device__ __forceinline__ double vector_at(const char *p, int dtype, int64_t i, double absent) { return p ? amp_load<double>(p, dtype, i) : absent; }
__device__ __forceinline__ void move_to(char *p, int dtype, int64_t i, double v, double momentum)
{
  if (p) amp_store<double>(p, dtype, i, (1 - momentum) * amp_load<double>(p, dtype, i) + momentum * v);
}

/* live: statistics of this batch, else the running ones */
template <class T> __global__ void __launch_bounds__(THREADS) settle(const bn k, int live)
{
  const int lane = threadIdx.x & 31;
  const bool bad = live && k.cells[1] != 0;
  for (int64_t c = (int64_t)blockIdx.x * 8 + (threadIdx.x >> 5); c < k.c; c += (int64_t)gridDim.x * 8) {
    double mean, var, n = 0, sum = 0, dev = 0;
    if (live) {
      const double *p = k.partial + c * k.splits * 3;
      for (int64_t i = lane; i < k.splits; i += 32) { n += p[3 * i]; sum += p[3 * i] * p[3 * i + 1]; }
      n = amp_reduce_warp<amp_sum>(n);
      mean = amp_reduce_warp<amp_sum>(sum) / n;
      for (int64_t i = lane; i < k.splits; i += 32) { double d = p[3 * i + 1] - mean; dev += p[3 * i + 2] + (p[3 * i] > 0 ? p[3 * i] * d * d : 0.0); }
      var = amp_reduce_warp<amp_sum>(dev) / n;
    } else {
      mean = amp_load<double>(k.rm, k.rmdt, c * k.srm);
      var = amp_load<double>(k.rv, k.rvdt, c * k.srv);
    }
    if (lane == 0) {
      T m = (T)mean, r = (T)(1 / sqrt(var + k.eps));
      double a = (double)r * vector_at(k.w, k.wdt, c * k.sw, 1.0);
      ((T *)k.mean)[c] = m;
      ((T *)k.rstd)[c] = r;
      ((T *)k.coef)[c] = (T)a;
      ((T *)k.coef)[k.c + c] = (T)vector_at(k.b, k.bdt, c * k.sb, 0.0);
      if (live && k.training && !bad && n > 1) {
        move_to(k.rm, k.rmdt, c * k.srm, (double)m, k.momentum);
        move_to(k.rv, k.rvdt, c * k.srv, var * (n / (n - 1)), k.momentum);
      }
    }
  }
  if (live && amp_last_block(k.cells) && threadIdx.x == 0) k.cells[1] = 0;
}

template <class T> __global__ void __launch_bounds__(THREADS) settle_back(const bn k)
{
  const int lane = threadIdx.x & 31;
  const double m = (double)k.n * (double)k.s;
  for (int64_t c = (int64_t)blockIdx.x * 8 + (threadIdx.x >> 5); c < k.c; c += (int64_t)gridDim.x * 8) {
    const double *p = k.partial + c * k.splits * 3;
    double sg = 0, sx = 0;
    for (int64_t i = lane; i < k.splits; i += 32) { sg += p[3 * i + 1]; sx += p[3 * i + 2]; }
    sg = amp_reduce_warp<amp_sum>(sg);
    sx = amp_reduce_warp<amp_sum>(sx);
    if (lane != 0) continue;
    double r = (double)((const T *)k.rstd)[c], w = vector_at(k.w, k.wdt, c * k.sw, 1.0), b = k.training ? -w * r * r * (sx * r) / m : 0;
    ((T *)k.coef)[c] = (T)(w * r);
    ((T *)k.coef)[k.c + c] = (T)b;
    ((T *)k.coef)[2 * k.c + c] = (T)(k.training ? -w * r * sg / m : 0);
    if (k.gw) amp_store<double>(k.gw, k.gwdt, c * k.sgw, sx * r);
    if (k.gb) amp_store<double>(k.gb, k.gbdt, c * k.sgb, sg);
  }
}

/* -- Calls ------------------------------------------------------------------------------------------ */

/* Image, channel and rest strides; false: no single stride walks the rest */
static bool strides_of(const amp_tensor *t, int64_t *n, int64_t *c, int64_t *s)
{
  int64_t run = 1, step = 1;
  bool set = false;
  *n = t->size[0] == 1 ? 0 : t->stride[0];
  *c = t->ndim > 1 ? t->stride[1] : 1;
  for (int d = t->ndim - 1; d >= 2; d--) {
    if (t->size[d] == 1) continue;
    if (!set) { step = t->stride[d]; set = true; }
    else if (t->stride[d] != step * run) return false;
    run *= t->size[d];
  }
  *s = step;
  return true;
}

static bool same_way(bn *k, const amp_tensor *x, const amp_tensor *g, const amp_tensor *y)
{
  if (!strides_of(x, &k->xn, &k->xc, &k->xs) || !strides_of(y, &k->yn, &k->yc, &k->ys) || (g && !strides_of(g, &k->gn, &k->gc, &k->gs))) return false;
  bool in = k->c == 1 || (k->xc == 1 && k->yc == 1 && (!g || k->gc == 1));
  bool out = k->s == 1 || (k->xs == 1 && k->ys == 1 && (!g || k->gs == 1));
  k->inside = in && (k->s == 1 || !out);
  return in || out;
}

typedef struct layout { amp_tensor *x, *g, *y, *made; } layout;

static bool open_layout(bn *k, amp_tensor *x, amp_tensor *g, amp_tensor *y, layout *l)
{
  k->n = x->size[0];
  k->c = x->ndim > 1 ? x->size[1] : 1;
  k->s = 1;
  for (int d = 2; d < x->ndim; d++) k->s *= x->size[d];
  if (same_way(k, x, g, y)) { l->x = amp_own(x); l->g = amp_own(g); l->y = amp_own(y); }
  else {
    l->x = amp__cuda_dense(x, x->dtype);
    l->g = g ? amp__cuda_dense(g, g->dtype) : NULL;
    l->y = amp_take(y, y->dtype);
    if (!l->x || (g && !l->g) || !l->y) return false;
    same_way(k, l->x, l->g, l->y);
  }
  k->x = (const char *)amp__data(l->x); k->xdt = l->x->dtype;
  k->y = (char *)amp__data(l->y); k->ydt = l->y->dtype;
  if (g) { k->g = (const char *)amp__data(l->g); k->gdt = l->g->dtype; }
  return true;
}

static void vector(const amp_tensor *t, char **p, int32_t *dtype, int64_t *stride)
{
  if (t == NULL) return;
  *p = (char *)amp__data(t);
  *dtype = t->dtype;
  *stride = t->ndim ? t->stride[0] : 1;
}

/* How the work is cut; gives the vector's width */
static int cut(bn *k, dim3 *grid, dim3 *block)
{
  int64_t most = (int64_t)amp__cuda_here()->sms * 8, columns, least;
  int64_t all = k->xn | k->yn | (k->g ? k->gn : 0), wide;
  all |= k->inside ? k->xs | k->ys | (k->g ? k->gs : 0) | k->c : k->xc | k->yc | (k->g ? k->gc : 0) | k->s;
  if (k->inside && k->s == 1) all = k->xn | k->yn | (k->g ? k->gn : 0) | k->c; /* a single place has no stride */
  wide = (all & 7) == 0 && amp_wide(k->x) && amp_wide(k->y) && amp_wide(k->g) ? 8 : 1;
  if (k->inside) {
    unsigned tx = 1;
    while (tx < 32 && tx * wide < k->c) tx *= 2;
    *block = dim3(tx, THREADS / tx);
    columns = (k->c + tx * wide - 1) / (tx * wide);
    k->units = k->n * k->s;
    least = (int64_t)block->y * 4;
  } else {
    *block = dim3(THREADS);
    columns = k->c;
    k->units = k->n * k->s / wide;
    least = THREADS * 2;
  }
  k->splits = most / columns;
  if (k->splits > (k->units + least - 1) / least) k->splits = (k->units + least - 1) / least;
  if (k->splits > SPLITS) k->splits = SPLITS;
  if (k->splits < 1) k->splits = 1;
  k->per = (k->units + k->splits - 1) / k->splits;
  k->small = k->units < ((int64_t)1 << 31);
  *grid = dim3((unsigned)columns, (unsigned)k->splits);
  return (int)wide;
}

#define BN_LAUNCH(kernel, T, BACK)                                                    \
  do {                                                                                \
    if (k.inside) {                                                                   \
      if (v == 8) AMP_LAUNCH((inner_##kernel<T, 8, BACK>), grid, block, 0, k);        \
      else AMP_LAUNCH((inner_##kernel<T, 1, BACK>), grid, block, 0, k);               \
    } else if (v == 8) AMP_LAUNCH((outer_##kernel<T, 8, BACK>), grid, block, 0, k);   \
    else AMP_LAUNCH((outer_##kernel<T, 1, BACK>), grid, block, 0, k);                 \
  } while (0)

static amp_tensor *argument(const amp_call *c, int i) { return i < c->nin ? c->in[i] : NULL; }

/* scratch of sums and coefficients */
static amp_tensor *room(bn *k)
{
  size_t sums = (size_t)k->c * (size_t)k->splits * 3 * sizeof(double);
  amp_tensor *s = amp__cuda_scratch(sums + (size_t)k->c * 3 * sizeof(double));
  if (s == NULL || !(k->cells = amp_ticket(amp__cuda_here()))) { amp__free(s); return NULL; }
  k->partial = (double *)amp__data(s);
  k->coef = (char *)amp__data(s) + sums;
  return s;
}

} // namespace

extern "C" {

int amp__cuda_batch_norm(amp_call *c)
{
  amp_tensor *x = c->in[0], *rm = argument(c, 1), *rv = argument(c, 2), *y = c->out[0], *om = c->out[1], *or_ = c->out[2], *m = NULL, *r = NULL, *s = NULL;
  bn k;
  layout l = { NULL, NULL, NULL, NULL };
  int rc = AMP_E_MEMORY, type = x->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  memset((void *)&k, 0, sizeof k);
  k.training = c->a[0].i != 0;
  k.momentum = c->a[1].f;
  k.eps = c->a[2].f;
  bool live = k.training || !rm || !rv;
  if ((x->ndim > 1 ? x->size[1] : 1) == 0) return 0;
  amp_bn n;
  memset((void *)&n, 0, sizeof n);
  n.x = x; n.y = y; n.w = argument(c, 3); n.b = argument(c, 4); n.rm = rm; n.rv = rv; n.mean = om; n.rstd = or_;
  n.training = k.training; n.momentum = k.momentum; n.eps = k.eps;
  if ((rc = amp_bn_forward(&n)) <= 0) return rc;
  rc = AMP_E_MEMORY;
  if (live && x->numel == 0) {
    if ((rc = amp__cuda_fill_value(om, NAN)) < 0) return rc;
    return amp__cuda_fill_value(or_, NAN);
  }
  dim3 grid, block;
  int v = 1;
  if (!open_layout(&k, x, NULL, y, &l) || !(m = amp_take(om, type)) || !(r = amp_take(or_, type))) goto out;
  v = cut(&k, &grid, &block);
  if (!(s = room(&k))) goto out;
  k.mean = (char *)amp__data(m);
  k.rstd = (char *)amp__data(r);
  vector(rm, &k.rm, &k.rmdt, &k.srm);
  vector(rv, &k.rv, &k.rvdt, &k.srv);
  vector(argument(c, 3), (char **)&k.w, &k.wdt, &k.sw);
  vector(argument(c, 4), (char **)&k.b, &k.bdt, &k.sb);
  if (live && k.training) {
    amp__cuda_touch(rm, true);
    amp__cuda_touch(rv, true);
  }
  rc = amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    if (live) BN_LAUNCH(sums, T, false);
    AMP_LAUNCH((settle<T>), amp_grid(k.c, 8), THREADS, 0, k, (int)live);
    if (x->numel > 0) BN_LAUNCH(apply, T, false);
    return 0;
  });
  if (live && k.training) {
    if (rm) amp__bump(rm);
    if (rv) amp__bump(rv);
  }
out:
  amp__free(s);
  amp__free(l.x);
  rc = amp_give(y, l.y, rc);
  rc = amp_give(om, m, rc);
  return amp_give(or_, r, rc);
}

/* grad input weight? mean rstd -> input's, weight's, bias's */
int amp__cuda_batch_norm_backward(amp_call *c)
{
  amp_tensor *g = c->in[0], *x = c->in[1], *y = c->out[0], *m = NULL, *r = NULL, *s = NULL;
  bn k;
  layout l = { NULL, NULL, NULL, NULL };
  int rc = AMP_E_MEMORY, type = x->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  memset((void *)&k, 0, sizeof k);
  k.training = c->a[0].i != 0;
  if ((x->ndim > 1 ? x->size[1] : 1) == 0) return 0;
  if (x->numel == 0) {
    if (c->out[1] && (rc = amp__cuda_fill_value(c->out[1], 0)) < 0) return rc;
    return c->out[2] ? amp__cuda_fill_value(c->out[2], 0) : 0;
  }
  amp_bn n;
  memset((void *)&n, 0, sizeof n);
  n.g = g; n.x = x; n.w = c->in[2]; n.mean = c->in[3]; n.rstd = c->in[4];
  n.dx = y; n.dw = c->out[1]; n.db = c->out[2]; n.training = k.training;
  if ((rc = amp_bn_backward(&n)) <= 0) return rc;
  rc = AMP_E_MEMORY;
  dim3 grid, block;
  int v = 1;
  if (!open_layout(&k, x, g, y, &l) || !(m = amp__cuda_dense(c->in[3], type)) || !(r = amp__cuda_dense(c->in[4], type))) goto out;
  v = cut(&k, &grid, &block);
  if (!(s = room(&k))) goto out;
  k.mean = (char *)amp__data(m);
  k.rstd = (char *)amp__data(r);
  vector(c->in[2], (char **)&k.w, &k.wdt, &k.sw);
  vector(c->out[1], &k.gw, &k.gwdt, &k.sgw);
  vector(c->out[2], &k.gb, &k.gbdt, &k.sgb);
  rc = amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    BN_LAUNCH(sums, T, true);
    AMP_LAUNCH((settle_back<T>), amp_grid(k.c, 8), THREADS, 0, k);
    BN_LAUNCH(apply, T, true);
    return 0;
  });
out:
  amp__free(s);
  amp__free(l.x);
  amp__free(l.g);
  amp__free(m);
  amp__free(r);
  return amp_give(y, l.y, rc);
}

}
