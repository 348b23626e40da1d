/*
** batch_norm.cu: rows batch_norm and batch_norm_backward, for what batch_norm_call.cu
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
#include "norm/batch_norm.cuh"

namespace {

enum { THREADS = 256, SPLITS = 256 };

/* units: vectors of a channel, or rows of channels; split_units: of a split; x_image and its like: strides by image,
** channel and the rest */
typedef struct bn {
  const char *x, *g, *w, *b;
  char *y, *mean, *rstd, *running_mean, *running_var, *grad_w, *grad_b;
  int32_t x_dtype, g_dtype, y_dtype, w_dtype, b_dtype, running_mean_dtype, running_var_dtype, grad_w_dtype;
  int32_t grad_b_dtype, training, inside, small;
  int64_t images, channels, spatial, splits, units, split_units;
  int64_t x_image, x_channel, x_rest, g_image, g_channel, g_rest, y_image, y_channel, y_rest;
  int64_t w_stride, b_stride, running_mean_stride, running_var_stride, grad_w_stride, grad_b_stride;
  double eps, momentum;
  double *partial; /* [channels][splits][3]: count, mean, deviations; or -, sum, sum */
  char *coef;      /* [3][channels] of the computing type */
  unsigned *cells; /* ticket, flag */
} bn;

template <class T> __device__ __forceinline__ void join(T &n, T &mean, T &m2, T n1, T mean1, T m21)
{
  if (n1 == 0) return;
  T total = n + n1, d = mean1 - mean, share = n1 / total;
  m2 += m21 + d * d * (n * share);
  mean += d * share;
  n = total;
}

/* An image, and a unit's place in it */
typedef struct place {
  int64_t image, in;
} place;

/* Of unit u, `per` units an image */
__device__ __forceinline__ place place_of(const bn &task, int64_t u, int64_t per)
{
  const int64_t image = task.small ? (int64_t)((uint32_t)u / (uint32_t)per) : u / per;
  return place{ image, u - image * per };
}

/* V elements of channel c, and backward of their gradient, where a channel's lie in a run */
template <bool BACK, class T, int V>
__device__ __forceinline__ void load_run(const bn &task, const place &at, int64_t c, T (&x)[V], T (&g)[V])
{
  amp_load_n<V>(x, task.x, task.x_dtype, at.image * task.x_image + c * task.x_channel + at.in * V);
  if (BACK) amp_load_n<V>(g, task.g, task.g_dtype, at.image * task.g_image + c * task.g_channel + at.in * V);
}
/* of V channels from c on, where channels lie in a run */
template <bool BACK, class T, int V>
__device__ __forceinline__ void load_row(const bn &task, const place &at, int64_t c, T (&x)[V], T (&g)[V])
{
  amp_load_n<V>(x, task.x, task.x_dtype, at.image * task.x_image + at.in * task.x_rest + c);
  if (BACK) amp_load_n<V>(g, task.g, task.g_dtype, at.image * task.g_image + at.in * task.g_rest + c);
}

__device__ __forceinline__ void leave(const bn &task, int64_t c, double n, double a, double b)
{
  double *p = task.partial + (c * task.splits + blockIdx.y) * 3;
  p[0] = n;
  p[1] = a;
  p[2] = b;
  if (!task.g && !(fabs(a) <= DBL_MAX && fabs(b) <= DBL_MAX)) task.cells[1] = 1;
}

/* -- Runs of one channel: grid channels x splits ------------------------------------------ */

template <class T, int V, bool BACK> __global__ void __launch_bounds__(THREADS) outer_sums(const bn task)
{
  const int64_t c = blockIdx.x, run = task.spatial / V, from = blockIdx.y * task.split_units,
                to = from + task.split_units < task.units ? from + task.split_units : task.units;
  T n = 0, a = 0, b = 0, mean = BACK ? ((const T *)task.mean)[c] : (T)0,
    base = BACK ? (T)0 : amp_load<T>(task.x, task.x_dtype, c * task.x_channel); /* means count from base */
  for (int64_t u = from + threadIdx.x; u < to; u += THREADS) {
    T x[V], g[V];
    load_run<BACK>(task, place_of(task, u, run), c, x, g);
    if (BACK) {
#pragma unroll
      for (int j = 0; j < V; j++) {
        a += g[j];
        b += g[j] * (x[j] - mean);
      }
    } else {
      T m = 0, q = 0;
#pragma unroll
      for (int j = 0; j < V; j++) m += x[j] - base;
      m *= (T)1 / V;
#pragma unroll
      for (int j = 0; j < V; j++) {
        T d = (x[j] - base) - m;
        q += d * d;
      }
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
  if (threadIdx.x == 0) leave(task, c, dn, da, db);
}

template <class T, int V, bool BACK> __global__ void __launch_bounds__(THREADS) outer_apply(const bn task)
{
  const int64_t c = blockIdx.x, run = task.spatial / V, from = blockIdx.y * task.split_units,
                to = from + task.split_units < task.units ? from + task.split_units : task.units;
  const T *coef = (const T *)task.coef;
  const T a = coef[c], b = coef[task.channels + c], d = BACK ? coef[2 * task.channels + c] : (T)0,
          mean = ((const T *)task.mean)[c];
  for (int64_t u = from + threadIdx.x; u < to; u += THREADS) {
    T x[V], g[V];
    const place at = place_of(task, u, run);
    load_run<BACK>(task, at, c, x, g);
    if (BACK) {
#pragma unroll
      for (int j = 0; j < V; j++) x[j] = a * g[j] + (b * (x[j] - mean) + d);
    } else {
#pragma unroll
      for (int j = 0; j < V; j++) x[j] = a * (x[j] - mean) + b;
    }
    amp_store_n<V>(task.y, task.y_dtype, at.image * task.y_image + c * task.y_channel + at.in * V, x);
  }
}

/* -- Runs of channels: block tx x ty, a thread has V channels of every ty-th row ------------- */

template <class T, int V, bool BACK> __global__ void __launch_bounds__(THREADS) inner_sums(const bn task)
{
  __shared__ T sh[2][THREADS * V];
  __shared__ T count[THREADS];
  const int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V, from = blockIdx.y * task.split_units,
                to = from + task.split_units < task.units ? from + task.split_units : task.units;
  T n = 0, a[V], b[V], mean[V]; /* forward, mean: the first element, from which means count */
#pragma unroll
  for (int j = 0; j < V; j++) {
    a[j] = b[j] = 0;
    mean[j] = c >= task.channels ? (T)0
              : BACK             ? ((const T *)task.mean)[c + j]
                                 : amp_load<T>(task.x, task.x_dtype, c + j);
  }
  if (c < task.channels) {
#pragma unroll 4
    for (int64_t r = from + threadIdx.y; r < to; r += blockDim.y) {
      T x[V], g[V];
      load_row<BACK>(task, place_of(task, r, task.spatial), c, x, g);
      if (BACK) {
#pragma unroll
        for (int j = 0; j < V; j++) {
          a[j] += g[j];
          b[j] += g[j] * (x[j] - mean[j]);
        }
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
  const int width = blockDim.x * V, at = threadIdx.y * width + threadIdx.x * V,
            thread = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int j = 0; j < V; j++) {
    sh[0][at + j] = a[j];
    sh[1][at + j] = b[j];
  }
  if (threadIdx.x == 0) count[threadIdx.y] = n;
  __syncthreads();
  for (int j = thread; j < width; j += THREADS) {
    int64_t ch = (int64_t)blockIdx.x * width + j;
    double dn = 0, da = 0, db = 0;
    if (ch >= task.channels) continue;
    for (int y = 0; y < (int)blockDim.y; y++) {
      if (BACK) {
        da += (double)sh[0][y * width + j];
        db += (double)sh[1][y * width + j];
      } else join(dn, da, db, (double)count[y], (double)sh[0][y * width + j], (double)sh[1][y * width + j]);
    }
    if (!BACK) da += amp_load<double>(task.x, task.x_dtype, ch);
    leave(task, ch, dn, da, db);
  }
}

template <class T, int V, bool BACK> __global__ void __launch_bounds__(THREADS) inner_apply(const bn task)
{
  const int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V, from = blockIdx.y * task.split_units,
                to = from + task.split_units < task.units ? from + task.split_units : task.units;
  const T *coef = (const T *)task.coef;
  T a[V], b[V], d[V], mean[V];
  if (c >= task.channels) return;
#pragma unroll
  for (int j = 0; j < V; j++) {
    mean[j] = ((const T *)task.mean)[c + j];
    a[j] = coef[c + j];
    b[j] = coef[task.channels + c + j];
    d[j] = BACK ? coef[2 * task.channels + c + j] : (T)0;
  }
#pragma unroll 4
  for (int64_t r = from + threadIdx.y; r < to; r += blockDim.y) {
    T x[V], g[V];
    const place at = place_of(task, r, task.spatial);
    load_row<BACK>(task, at, c, x, g);
    if (BACK) {
#pragma unroll
      for (int j = 0; j < V; j++) x[j] = a[j] * g[j] + (b[j] * (x[j] - mean[j]) + d[j]);
    } else {
#pragma unroll
      for (int j = 0; j < V; j++) x[j] = a[j] * (x[j] - mean[j]) + b[j];
    }
    amp_store_n<V>(task.y, task.y_dtype, at.image * task.y_image + at.in * task.y_rest + c, x);
  }
}

/* -- A warp a channel ---------------------------------------------------------------------------- */

__device__ __forceinline__ double vector_at(const char *p, int dtype, int64_t i, double absent)
{
  return p ? amp_load<double>(p, dtype, i) : absent;
}
__device__ __forceinline__ void move_to(char *p, int dtype, int64_t i, double v, double momentum)
{
  if (p) amp_store<double>(p, dtype, i, (1 - momentum) * amp_load<double>(p, dtype, i) + momentum * v);
}

/* live: statistics of this batch, else the running ones */
template <class T> __global__ void __launch_bounds__(THREADS) settle(const bn task, int live)
{
  const int lane = threadIdx.x & 31;
  const bool bad = live && task.cells[1] != 0;
  for (int64_t c = (int64_t)blockIdx.x * 8 + (threadIdx.x >> 5); c < task.channels; c += (int64_t)gridDim.x * 8) {
    double mean, var, n = 0, sum = 0, dev = 0;
    if (live) {
      const double *p = task.partial + c * task.splits * 3;
      for (int64_t i = lane; i < task.splits; i += 32) {
        n += p[3 * i];
        sum += p[3 * i] * p[3 * i + 1];
      }
      n = amp_reduce_warp<amp_sum>(n);
      mean = amp_reduce_warp<amp_sum>(sum) / n;
      for (int64_t i = lane; i < task.splits; i += 32) {
        double d = p[3 * i + 1] - mean;
        dev += p[3 * i + 2] + (p[3 * i] > 0 ? p[3 * i] * d * d : 0.0);
      }
      var = amp_reduce_warp<amp_sum>(dev) / n;
    } else {
      mean = amp_load<double>(task.running_mean, task.running_mean_dtype, c * task.running_mean_stride);
      var = amp_load<double>(task.running_var, task.running_var_dtype, c * task.running_var_stride);
    }
    if (lane == 0) {
      T m = (T)mean, r = (T)(1 / sqrt(var + task.eps));
      double a = (double)r * vector_at(task.w, task.w_dtype, c * task.w_stride, 1.0);
      ((T *)task.mean)[c] = m;
      ((T *)task.rstd)[c] = r;
      ((T *)task.coef)[c] = (T)a;
      ((T *)task.coef)[task.channels + c] = (T)vector_at(task.b, task.b_dtype, c * task.b_stride, 0.0);
      if (live && task.training && !bad && n > 1) {
        move_to(task.running_mean, task.running_mean_dtype, c * task.running_mean_stride, (double)m, task.momentum);
        move_to(task.running_var, task.running_var_dtype, c * task.running_var_stride, var * (n / (n - 1)),
                task.momentum);
      }
    }
  }
  if (live && amp_last_block(task.cells) && threadIdx.x == 0) task.cells[1] = 0;
}

template <class T> __global__ void __launch_bounds__(THREADS) settle_back(const bn task)
{
  const int lane = threadIdx.x & 31;
  const double m = (double)task.images * (double)task.spatial;
  for (int64_t c = (int64_t)blockIdx.x * 8 + (threadIdx.x >> 5); c < task.channels; c += (int64_t)gridDim.x * 8) {
    const double *p = task.partial + c * task.splits * 3;
    double sg = 0, sx = 0;
    for (int64_t i = lane; i < task.splits; i += 32) {
      sg += p[3 * i + 1];
      sx += p[3 * i + 2];
    }
    sg = amp_reduce_warp<amp_sum>(sg);
    sx = amp_reduce_warp<amp_sum>(sx);
    if (lane != 0) continue;
    double r = (double)((const T *)task.rstd)[c], w = vector_at(task.w, task.w_dtype, c * task.w_stride, 1.0),
           b = task.training ? -w * r * r * (sx * r) / m : 0;
    ((T *)task.coef)[c] = (T)(w * r);
    ((T *)task.coef)[task.channels + c] = (T)b;
    ((T *)task.coef)[2 * task.channels + c] = (T)(task.training ? -w * r * sg / m : 0);
    if (task.grad_w) amp_store<double>(task.grad_w, task.grad_w_dtype, c * task.grad_w_stride, sx * r);
    if (task.grad_b) amp_store<double>(task.grad_b, task.grad_b_dtype, c * task.grad_b_stride, sg);
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
    if (!set) {
      step = t->stride[d];
      set = true;
    } else if (t->stride[d] != step * run) return false;
    run *= t->size[d];
  }
  *s = step;
  return true;
}

static bool same_way(bn *task, const amp_tensor *x, const amp_tensor *g, const amp_tensor *y)
{
  if (!strides_of(x, &task->x_image, &task->x_channel, &task->x_rest)
      || !strides_of(y, &task->y_image, &task->y_channel, &task->y_rest)
      || (g && !strides_of(g, &task->g_image, &task->g_channel, &task->g_rest)))
    return false;
  bool in = task->channels == 1 || (task->x_channel == 1 && task->y_channel == 1 && (!g || task->g_channel == 1));
  bool out = task->spatial == 1 || (task->x_rest == 1 && task->y_rest == 1 && (!g || task->g_rest == 1));
  task->inside = in && (task->spatial == 1 || !out);
  return in || out;
}

typedef struct layout {
  amp_tensor *x, *g, *y, *made;
} layout;

static bool open_layout(bn *task, amp_tensor *x, amp_tensor *g, amp_tensor *y, layout *l)
{
  task->images = x->size[0];
  task->channels = x->ndim > 1 ? x->size[1] : 1;
  task->spatial = 1;
  for (int d = 2; d < x->ndim; d++) task->spatial *= x->size[d];
  if (same_way(task, x, g, y)) {
    l->x = amp_own(x);
    l->g = amp_own(g);
    l->y = amp_own(y);
  } else {
    l->x = amp__cuda_dense(x, x->dtype);
    l->g = g ? amp__cuda_dense(g, g->dtype) : NULL;
    l->y = amp_take(y, y->dtype);
    if (!l->x || (g && !l->g) || !l->y) return false;
    same_way(task, l->x, l->g, l->y);
  }
  task->x = (const char *)amp__data(l->x);
  task->x_dtype = l->x->dtype;
  task->y = (char *)amp__data(l->y);
  task->y_dtype = l->y->dtype;
  if (g) {
    task->g = (const char *)amp__data(l->g);
    task->g_dtype = l->g->dtype;
  }
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
static int cut(bn *task, dim3 *grid, dim3 *block)
{
  int64_t most = (int64_t)amp__cuda_here()->sms * 8, columns, least;
  int64_t all = task->x_image | task->y_image | (task->g ? task->g_image : 0), wide;
  all |= task->inside ? task->x_rest | task->y_rest | (task->g ? task->g_rest : 0) | task->channels
                      : task->x_channel | task->y_channel | (task->g ? task->g_channel : 0) | task->spatial;
  if (task->inside && task->spatial == 1)
    all = task->x_image | task->y_image | (task->g ? task->g_image : 0)
          | task->channels; /* a single place has no stride */
  wide = (all & 7) == 0 && amp_wide(task->x) && amp_wide(task->y) && amp_wide(task->g) ? 8 : 1;
  if (task->inside) {
    unsigned tx = 1;
    while (tx < 32 && tx * wide < task->channels) tx *= 2;
    *block = dim3(tx, THREADS / tx);
    columns = (task->channels + tx * wide - 1) / (tx * wide);
    task->units = task->images * task->spatial;
    least = (int64_t)block->y * 4;
  } else {
    *block = dim3(THREADS);
    columns = task->channels;
    task->units = task->images * task->spatial / wide;
    least = THREADS * 2;
  }
  task->splits = most / columns;
  if (task->splits > (task->units + least - 1) / least) task->splits = (task->units + least - 1) / least;
  if (task->splits > SPLITS) task->splits = SPLITS;
  if (task->splits < 1) task->splits = 1;
  task->split_units = (task->units + task->splits - 1) / task->splits;
  task->small = task->units < ((int64_t)1 << 31);
  *grid = dim3((unsigned)columns, (unsigned)task->splits);
  return (int)wide;
}

#define BN_LAUNCH(kernel, T, BACK)                                                     \
  do {                                                                                 \
    if (task.inside) {                                                                 \
      if (v == 8) AMP_LAUNCH((inner_##kernel<T, 8, BACK>), grid, block, 0, task);      \
      else AMP_LAUNCH((inner_##kernel<T, 1, BACK>), grid, block, 0, task);             \
    } else if (v == 8) AMP_LAUNCH((outer_##kernel<T, 8, BACK>), grid, block, 0, task); \
    else AMP_LAUNCH((outer_##kernel<T, 1, BACK>), grid, block, 0, task);               \
  } while (0)

static amp_tensor *argument(const amp_call *c, int i) { return i < c->nin ? c->in[i] : NULL; }

/* scratch of sums and coefficients */
static amp_tensor *room(bn *task)
{
  size_t sums = (size_t)task->channels * (size_t)task->splits * 3 * sizeof(double);
  amp_tensor *s = amp__cuda_scratch(sums + (size_t)task->channels * 3 * sizeof(double));
  if (s == NULL || !(task->cells = amp_ticket(amp__cuda_here()))) {
    amp__free(s);
    return NULL;
  }
  task->partial = (double *)amp__data(s);
  task->coef = (char *)amp__data(s) + sums;
  return s;
}

/* The whole row by the kernels of batch_norm_call.cu; 1: not taken */
static int by_vectors(amp_call *c, const args_batch_norm *args)
{
  amp_bn n;
  memset((void *)&n, 0, sizeof n);
  n.x = c->in[0];
  n.rm = argument(c, 1);
  n.rv = argument(c, 2);
  n.w = argument(c, 3);
  n.b = argument(c, 4);
  n.y = c->out[0];
  n.mean = c->out[1];
  n.rstd = c->out[2];
  n.training = args->training != 0;
  n.momentum = args->momentum;
  n.eps = args->eps;
  return amp_bn_forward(&n);
}

} // namespace

extern "C" {

int amp__cuda_batch_norm(amp_call *c)
{
  const args_batch_norm *args = AMP_ARGS(c, batch_norm);
  amp_tensor *x = c->in[0], *rm = argument(c, 1), *rv = argument(c, 2), *y = c->out[0], *om = c->out[1],
             *or_ = c->out[2], *m = NULL, *r = NULL, *s = NULL;
  bn task;
  layout l = { NULL, NULL, NULL, NULL };
  int rc = AMP_E_MEMORY, type = x->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  memset((void *)&task, 0, sizeof task);
  task.training = args->training != 0;
  task.momentum = args->momentum;
  task.eps = args->eps;
  bool live = task.training || !rm || !rv;
  if ((x->ndim > 1 ? x->size[1] : 1) == 0) return 0;
  if ((rc = by_vectors(c, args)) <= 0) return rc;
  rc = AMP_E_MEMORY;
  if (live && x->numel == 0) {
    if ((rc = amp__cuda_fill_value(om, NAN)) < 0) return rc;
    return amp__cuda_fill_value(or_, NAN);
  }
  dim3 grid, block;
  int v = 1;
  if (!open_layout(&task, x, NULL, y, &l) || !(m = amp_take(om, type)) || !(r = amp_take(or_, type))) goto out;
  v = cut(&task, &grid, &block);
  if (!(s = room(&task))) goto out;
  task.mean = (char *)amp__data(m);
  task.rstd = (char *)amp__data(r);
  vector(rm, &task.running_mean, &task.running_mean_dtype, &task.running_mean_stride);
  vector(rv, &task.running_var, &task.running_var_dtype, &task.running_var_stride);
  vector(argument(c, 3), (char **)&task.w, &task.w_dtype, &task.w_stride);
  vector(argument(c, 4), (char **)&task.b, &task.b_dtype, &task.b_stride);
  if (live && task.training) {
    amp__cuda_touch(rm, true);
    amp__cuda_touch(rv, true);
  }
  rc = amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    if (live) BN_LAUNCH(sums, T, false);
    AMP_LAUNCH((settle<T>), amp_grid(task.channels, 8), THREADS, 0, task, (int)live);
    if (x->numel > 0) BN_LAUNCH(apply, T, false);
    return 0;
  });
  if (live && task.training) {
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
  bn task;
  layout l = { NULL, NULL, NULL, NULL };
  int rc = AMP_E_MEMORY, type = x->dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  memset((void *)&task, 0, sizeof task);
  task.training = AMP_ARGS(c, batch_norm_backward)->training != 0;
  if ((x->ndim > 1 ? x->size[1] : 1) == 0) return 0;
  if (x->numel == 0) {
    if (c->out[1] && (rc = amp__cuda_fill_value(c->out[1], 0)) < 0) return rc;
    return c->out[2] ? amp__cuda_fill_value(c->out[2], 0) : 0;
  }
  amp_bn n;
  memset((void *)&n, 0, sizeof n);
  n.g = g;
  n.x = x;
  n.w = c->in[2];
  n.mean = c->in[3];
  n.rstd = c->in[4];
  n.dx = y;
  n.dw = c->out[1];
  n.db = c->out[2];
  n.training = task.training;
  if ((rc = amp_bn_backward(&n)) <= 0) return rc;
  rc = AMP_E_MEMORY;
  dim3 grid, block;
  int v = 1;
  if (!open_layout(&task, x, g, y, &l) || !(m = amp__cuda_dense(c->in[3], type))
      || !(r = amp__cuda_dense(c->in[4], type)))
    goto out;
  v = cut(&task, &grid, &block);
  if (!(s = room(&task))) goto out;
  task.mean = (char *)amp__data(m);
  task.rstd = (char *)amp__data(r);
  vector(c->in[2], (char **)&task.w, &task.w_dtype, &task.w_stride);
  vector(c->out[1], &task.grad_w, &task.grad_w_dtype, &task.grad_w_stride);
  vector(c->out[2], &task.grad_b, &task.grad_b_dtype, &task.grad_b_stride);
  rc = amp_by_float(type, [&](auto zero) {
    typedef decltype(zero) T;
    BN_LAUNCH(sums, T, true);
    AMP_LAUNCH((settle_back<T>), amp_grid(task.channels, 8), THREADS, 0, task);
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
