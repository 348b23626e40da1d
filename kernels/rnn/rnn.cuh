/*
** rnn.cuh: what the files of recurrent layers share: the layer and its steps as
** launches see them, and what a step does with one hidden value once the products
** with the weights are there.
**
** src/ops/rnn/rnn.h says how steps, packed sequences and the reserve lie; the
** reserve is of the computing type, operands are of the tensors' dtype. The reserve
** is most of what training holds, so gates of 16-bit layers are kept in 16 bits: a row
** of an LSTM is the cells in float32, then the gates; of a GRU the gates.
*/
#ifndef AMP_RNN_CUH
#define AMP_RNN_CUH
#include "common/kernel.cuh"
#include "common/math.cuh"

enum {
  AMP_RNN_TANH = RNN_LAYER_MODE_TANH,
  AMP_RNN_RELU = RNN_LAYER_MODE_RELU,
  AMP_RNN_LSTM = RNN_LAYER_MODE_LSTM,
  AMP_RNN_GRU = RNN_LAYER_MODE_GRU
};
static_assert(RNN_LAYER_MODE_COUNT == 4, "rnn_make and rnn_back have formulas for four modes");
static_assert((int)AMP_RNN_TANH < (int)AMP_RNN_LSTM && (int)AMP_RNN_RELU < (int)AMP_RNN_LSTM
                  && (int)AMP_RNN_LSTM < (int)AMP_RNN_GRU,
              "modes from LSTM on have gates");
static_assert(AMP_DTYPE_COUNT == 12, "layers are of float64, float32 or one of two 16-bit floats");

typedef struct amp_rnn {
  int32_t mode, dtype, reverse, gydt, ghdt, gcdt;
  int64_t t, n, rows, in, h, r, g,
      rs; /* steps, batch, rows, input, hidden, recurrent input, gates * hidden, reserve's row */
  const char *x, *h0, *c0, *bi, *bh; /* rows x in, n x r, n x h, g, g */
  const char *wx, *w;                /* g x in, g x r */
  char *y, *hn, *cn, *xg, *hg;       /* rows x h, n x h; projections: rows x g of the input, n x g of the state */
  void *reserve;
  /* backward */
  const char *gy, *gh, *gc;            /* gradients of the results and of the last states, or NULL */
  char *dg, *dgh, *hprev, *prod, *dc0; /* rows x g, the same (GRU), rows x r (NULL: not wanted), n x r, n x h */
  void *carry, *dc;                    /* n x h of the computing type: what passes by the product (GRU); the cells' */
} amp_rnn;

typedef struct amp_rnn_step {
  int64_t row, m, before, old; /* rows row .. row + m - 1; the first `old` follow those from `before` on */
  int64_t done, after;         /* backward: the first `done` have a later step, those from `after` on */
  int32_t last_from, last;     /* elements from last_from on end here; last: the launch leaves c's gradient in dc0 */
} amp_rnn_step;

/* rnn_step.cu: a step in one launch, its product included, where amp_rnn_takes it */
int amp_rnn_ahead_whole(const amp_rnn *k, const amp_rnn_step *s, bool input,
                        bool next); /* input: its product as well, else it is in xg */
int amp_rnn_behind_whole(const amp_rnn *k, const amp_rnn_step *s,
                         bool next); /* of the step whose gates' gradient s->after and done say */
int amp_rnn_first_whole(const amp_rnn *k, const amp_rnn_step *s, char *dh0,
                        bool next); /* the initial state's gradient, of the same */
/* next: the launch before was one of these of the same call */
bool amp_rnn_takes(const amp_rnn *k, bool backward, bool input);
bool amp_rnn_fits(const amp_rnn *k, bool backward, bool input); /* but for the dtype */
/* rnn_all.cu: all steps of a sequence that is not packed in one launch, where amp_rnn_takes_all it. Forward the
** input's projections are in xg; backward the initial states' gradients are made as well, of h in dh0 */
bool amp_rnn_takes_all(const amp_rnn *k, bool backward);
int amp_rnn_ahead_all(const amp_rnn *k);
int amp_rnn_behind_all(const amp_rnn *k, char *dh0);

namespace {

/* -- The reserve: of an LSTM a row is i f g o c, or c and then 16 bits each of i f g o; of a GRU r z n a, in 16
** bits or not -------- */

__host__ __device__ __forceinline__ bool rnn_packs(const amp_rnn &layer)
{
  return layer.mode >= AMP_RNN_LSTM && (layer.dtype == AMP_FLOAT16 || layer.dtype == AMP_BFLOAT16);
}

/* Where c lies in a row; the first row of initial cells is behind the last one of steps */
__device__ __forceinline__ int64_t rnn_cell(const amp_rnn &layer) { return rnn_packs(layer) ? 0 : 4 * layer.h; }

/* A sigmoid in 16 bits that is as exact near 1 as it is near 0: above a half it is what it lacks to 1, with a minus
** (-0 is 1) */
__device__ __forceinline__ uint16_t rnn_pack(float v) { return amp_f2h(v > 0.5f ? -(1 - v) : v); }
__device__ __forceinline__ float rnn_unpack(uint16_t v) { return v >> 15 ? 1 + amp_h2f(v) : amp_h2f(v); }

/* Gate q in 16 bits. Gate 2 is a tanh; a GRU's last one, the state's part of it, has the tensors' dtype, as cuBLAS
** would have left it */
__device__ __forceinline__ uint16_t rnn_narrow(int mode, int dtype, int q, float v)
{
  if (mode == AMP_RNN_GRU && q == 3) return dtype == AMP_BFLOAT16 ? amp_f2bf(v) : amp_f2h(v);
  return q == 2 ? amp_f2h(v) : rnn_pack(v);
}
__device__ __forceinline__ float rnn_wide(int mode, int dtype, int q, uint16_t v)
{
  if (mode == AMP_RNN_GRU && q == 3) return dtype == AMP_BFLOAT16 ? amp_bf2f(v) : amp_h2f(v);
  return q == 2 ? amp_h2f(v) : rnn_unpack(v);
}

/* Gate q of hidden value j in the row at x */
__device__ __forceinline__ uint16_t *rnn_half(const amp_rnn &layer, const void *x, int q, int64_t j)
{
  return (uint16_t *)((float *)x + (layer.mode == AMP_RNN_LSTM ? layer.h : 0)) + q * layer.h + j;
}
template <class T> __device__ __forceinline__ T rnn_gate(const amp_rnn &layer, const T *x, int q, int64_t j)
{
  if (!rnn_packs(layer)) return x[q * layer.h + j];
  return (T)rnn_wide(layer.mode, layer.dtype, q, *rnn_half(layer, x, q, j));
}
template <class T> __device__ __forceinline__ void rnn_keep_gate(const amp_rnn &layer, T *x, int q, int64_t j, T v)
{
  if (!rnn_packs(layer)) x[q * layer.h + j] = v;
  else *rnn_half(layer, x, q, j) = rnn_narrow(layer.mode, layer.dtype, q, (float)v);
}

/* -- A step -------------------------------------------------------------------------------------- */

template <class T>
__device__ __forceinline__ T state_at(const amp_rnn &layer, const amp_rnn_step &step, int64_t i, int64_t j)
{
  return i < step.old ? amp_load<T>(layer.y, layer.dtype, (step.before + i) * layer.h + j)
                      : amp_load<T>(layer.h0, layer.dtype, i * layer.r + j);
}

/* What a step needs of a hidden value besides products, so that it can be on its way while they are made */
template <class T> struct rnn_saved {
  T before, gate[4], cell, grad, dc;
};

/* The state (GRU) or cell (LSTM) before */
template <class T>
__device__ __forceinline__ T rnn_before(const amp_rnn &layer, const amp_rnn_step &step, int64_t i, int64_t j)
{
  if (layer.mode == AMP_RNN_GRU) return state_at<T>(layer, step, i, j);
  if (layer.mode != AMP_RNN_LSTM) return 0;
  if (i < step.old) return ((const T *)layer.reserve)[(step.before + i) * layer.rs + rnn_cell(layer) + j];
  return layer.c0 ? amp_load<T>(layer.c0, layer.dtype, i * layer.h + j)
                  : ((const T *)layer.reserve)[layer.rows * layer.rs + i * layer.h + j];
}

/* What a step makes of a hidden value: the result, the cell (LSTM), and what the way back needs */
template <class T> struct rnn_made {
  T y, c, keep[4];
};

/* Near: to some 4e-7 of their value, in a fraction of the instructions. Quick: to some 1e-6, which 16 bits don't
** show */
enum { RNN_EXACT, RNN_NEAR, RNN_QUICK };
template <int HOW> __device__ __forceinline__ float rnn_exp(float x) { return HOW == RNN_QUICK ? __expf(x) : expf(x); }
template <int HOW, class T> __device__ __forceinline__ T rnn_sigmoid(T x)
{
#ifndef AMP_EMULATED
  if constexpr (HOW != RNN_EXACT) { return __fdividef(1.f, 1.f + rnn_exp<HOW>(-x)); }
#endif
  return amp_sigmoid(x);
}
template <int HOW, class T> __device__ __forceinline__ T rnn_tanh(T x)
{
#ifndef AMP_EMULATED
  if constexpr (HOW != RNN_EXACT) {
    const float y = x * x,
                small = x + x * y * (-0.333333343f + y * (0.133333340f + y * (-0.0539682545f + y * 0.0218694881f)));
    return fabsf(x) < 0.3f ? small : 1.f - 2.f * __fdividef(1.f, 1.f + rnn_exp<HOW>(2.f * x));
  }
#endif
  return tanh(x);
}

/* before: as of rnn_before; a(q): the input's part of gate q, b(q): the state's, biases included */
template <class T, int HOW = RNN_EXACT, class A, class B>
__device__ __forceinline__ rnn_made<T> rnn_make(int mode, T before, A a, B b)
{
  rnn_made<T> made = { 0, 0, { 0, 0, 0, 0 } };
  if (mode == AMP_RNN_LSTM) {
    T in = rnn_sigmoid<HOW>(a(0) + b(0)), f = rnn_sigmoid<HOW>(a(1) + b(1)), u = rnn_tanh<HOW>(a(2) + b(2)),
      o = rnn_sigmoid<HOW>(a(3) + b(3));
    made.c = f * before + in * u;
    made.y = o * rnn_tanh<HOW>(made.c);
    made.keep[0] = in;
    made.keep[1] = f;
    made.keep[2] = u;
    made.keep[3] = o;
  } else if (mode == AMP_RNN_GRU) {
    T r = rnn_sigmoid<HOW>(a(0) + b(0)), z = rnn_sigmoid<HOW>(a(1) + b(1)), own = b(2),
      n = rnn_tanh<HOW>(a(2) + r * own);
    made.y = n + z * (before - n);
    made.keep[0] = r;
    made.keep[1] = z;
    made.keep[2] = n;
    made.keep[3] = own;
  } else {
    T v = a(0) + b(0);
    made.y = made.keep[0] = mode == AMP_RNN_TANH ? rnn_tanh<HOW>(v) : v < 0 ? (T)0 : v;
  }
  return made;
}

/* All of it but the result */
template <class T>
__device__ __forceinline__ void rnn_keep(const amp_rnn &layer, const amp_rnn_step &step, int64_t i, int64_t j, T before,
                                         const rnn_made<T> &made)
{
  const int64_t h = layer.h;
  T *x = (T *)layer.reserve + (step.row + i) * layer.rs;
  if (layer.mode == AMP_RNN_LSTM) {
    if (i >= step.old) ((T *)layer.reserve)[layer.rows * layer.rs + i * h + j] = before; /* for the way back */
    x[rnn_cell(layer) + j] = made.c;
  }
#pragma unroll
  for (int q = 0; q < 4; q++)
    if (q == 0 || layer.mode >= AMP_RNN_LSTM) rnn_keep_gate<T>(layer, x, q, j, made.keep[q]);
  if (i < step.last_from) return; /* not the last step of this element */
  amp_store<T>(layer.hn, layer.dtype, i * h + j, made.y);
  if (layer.mode == AMP_RNN_LSTM) amp_store<T>(layer.cn, layer.dtype, i * h + j, made.c);
}

/* Hidden value j of element i */
template <class T, class A, class B>
__device__ __forceinline__ void rnn_ahead(const amp_rnn &layer, const amp_rnn_step &step, int64_t i, int64_t j,
                                          T before, A a, B b)
{
  const rnn_made<T> m = rnn_make<T>(layer.mode, before, a, b);
  amp_store<T>(layer.y, layer.dtype, (step.row + i) * layer.h + j, m.y);
  rnn_keep<T>(layer, step, i, j, before, m);
}

template <class T>
__device__ __forceinline__ rnn_saved<T> rnn_saved_at(const amp_rnn &layer, const amp_rnn_step &step, int64_t i,
                                                     int64_t j)
{
  const int64_t h = layer.h, row = step.row + i, e = i * h + j;
  const T *x = (const T *)layer.reserve + row * layer.rs;
  rnn_saved<T> saved = { rnn_before<T>(layer, step, i, j), { rnn_gate<T>(layer, x, 0, j), 0, 0, 0 }, 0, 0, 0 };
  if (layer.mode >= AMP_RNN_LSTM) {
#pragma unroll
    for (int q = 1; q < 4; q++) saved.gate[q] = rnn_gate<T>(layer, x, q, j);
  }
  if (i >= step.done) saved.grad = layer.gh ? amp_load<T>(layer.gh, layer.ghdt, e) : (T)0;
  else if (layer.mode == AMP_RNN_GRU) saved.grad = ((const T *)layer.carry)[e];
  if (layer.gy) saved.grad += amp_load<T>(layer.gy, layer.gydt, row * h + j);
  if (layer.mode == AMP_RNN_LSTM) {
    saved.cell = x[rnn_cell(layer) + j];
    if (i < step.done) saved.dc = ((const T *)layer.dc)[e];
    else if (layer.gc) saved.dc = amp_load<T>(layer.gc, layer.gcdt, e);
  }
  return saved;
}

/* Gradients of a hidden value's gates; of a GRU's last gate [2] is the input's part and [3] the state's. state:
** what goes to the step before beside the product: of the cell (LSTM), of the state (GRU) */
template <class T> struct rnn_slope {
  T gate[4], state;
};

/* prod: of the later step's gates' gradient with the weights; 0 where there is no later step */
template <class T, int HOW = RNN_EXACT>
__device__ __forceinline__ rnn_slope<T> rnn_back(int mode, const rnn_saved<T> &saved, T prod)
{
  const T d = saved.grad + prod;
  rnn_slope<T> slope = { { 0, 0, 0, 0 }, 0 };
  if (mode == AMP_RNN_LSTM) {
    T in = saved.gate[0], f = saved.gate[1], u = saved.gate[2], o = saved.gate[3], t = rnn_tanh<HOW>(saved.cell),
      q = saved.dc + d * o * (1 - t * t);
    slope.gate[0] = q * u * in * (1 - in);
    slope.gate[1] = q * saved.before * f * (1 - f);
    slope.gate[2] = q * in * (1 - u * u);
    slope.gate[3] = d * t * o * (1 - o);
    slope.state = q * f;
  } else if (mode == AMP_RNN_GRU) {
    T r = saved.gate[0], z = saved.gate[1], n = saved.gate[2], a = saved.gate[3], dn = d * (1 - z) * (1 - n * n);
    slope.gate[0] = dn * a * r * (1 - r);
    slope.gate[1] = d * (saved.before - n) * z * (1 - z);
    slope.gate[2] = dn;
    slope.gate[3] = dn * r;
    slope.state = d * z;
  } else slope.gate[0] = mode == AMP_RNN_TANH ? d * (1 - saved.gate[0] * saved.gate[0]) : saved.gate[0] > 0 ? d : (T)0;
  return slope;
}

template <class T>
__device__ __forceinline__ void rnn_hand_on(const amp_rnn &layer, const amp_rnn_step &step, int64_t e, T state)
{
  if (layer.mode == AMP_RNN_GRU) ((T *)layer.carry)[e] = state;
  else if (layer.mode == AMP_RNN_LSTM && step.last) amp_store<T>(layer.dc0, layer.dtype, e, state);
  else if (layer.mode == AMP_RNN_LSTM) ((T *)layer.dc)[e] = state;
}

template <class T>
__device__ __forceinline__ void rnn_behind(const amp_rnn &layer, const amp_rnn_step &step, int64_t i, int64_t j,
                                           const rnn_saved<T> &saved, T prod)
{
  const int64_t h = layer.h, at = (step.row + i) * layer.g + j;
  const rnn_slope<T> slope = rnn_back<T>(layer.mode, saved, prod);
#pragma unroll
  for (int q = 0; q < 4; q++)
    if (q * h < layer.g) amp_store<T>(layer.dg, layer.dtype, at + q * h, slope.gate[q]);
  if (layer.mode == AMP_RNN_GRU) {
#pragma unroll
    for (int q = 0; q < 3; q++) amp_store<T>(layer.dgh, layer.dtype, at + q * h, slope.gate[q == 2 ? 3 : q]);
  }
  rnn_hand_on<T>(layer, step, i * h + j, slope.state);
}

} // namespace
#endif
