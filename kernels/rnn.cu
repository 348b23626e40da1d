/*
** rnn.cu: rows rnn_layer and rnn_layer_backward: one recurrent layer in one
** direction, of products and of one launch a step that does everything else.
** cpu_rnn.h says how steps, packed sequences and the reserve lie; the reserve is of
** the computing type, operands and results of products are of the tensors' dtype.
**
** Forward the input's projection of the whole sequence is one product. Backward a
** step's launch takes what the later step left (the product of its gates' gradient,
** and what passes by the product), and leaves the gates' gradient for the next.
*/
#include <cstdlib>
#include "math.cuh"
#include "rows.cuh"
#include "../src/cuda/cuda_gemm.h"

namespace {

enum { TANH, RELU, LSTM, GRU };

typedef struct rnn {
  int32_t mode, dtype, reverse, bdt, bhdt, gydt;
  int64_t t, n, rows, in, h, r, g, rs;   /* steps, batch, rows, input, hidden, recurrent input, gates * hidden, reserve's row */
  const char *x, *h0, *c0, *bi, *bh;     /* rows x in, n x r, n x h, g, g */
  char *y, *hn, *cn, *xg, *hg;           /* rows x h, n x h; projections: rows x g of the input, n x g of the state */
  void *reserve;
  /* backward */
  const char *gy;
  char *dg, *dgh, *hprev, *prod;         /* rows x g, the same (GRU), rows x r, n x r */
  void *carry, *dc;                      /* n x h of the computing type: what passes by the product; the cells' */
} rnn;

typedef struct step { int64_t row, m, before, old, done; int32_t last_from; } step; /* rows row .. row + m - 1; the first `old` follow those from `before` on */

/* -- A step ---------------------------------------------------------------------------- */

template <class T> __device__ __forceinline__ T state_at(const rnn &k, const step &s, int64_t i, int64_t j)
{
  return i < s.old ? amp_load<T>(k.y, k.dtype, (s.before + i) * k.h + j) : amp_load<T>(k.h0, k.dtype, i * k.r + j);
}
template <class T> __device__ __forceinline__ T cell_at(const rnn &k, const step &s, int64_t i, int64_t j)
{
  const T *reserve = (const T *)k.reserve;
  return i < s.old ? reserve[(s.before + i) * k.rs + 4 * k.h + j] : reserve[k.rows * k.rs + i * k.h + j];
}

template <class T> __global__ void __launch_bounds__(256) ahead(const rnn k, const step s)
{
  const int64_t h = k.h;
  AMP_FOR(e, s.m * h) {
    int64_t i = e / h, j = e - i * h, row = s.row + i;
    T *x = (T *)k.reserve + row * k.rs, y, c = 0;
    auto gate = [&](int q) { /* the input's part and its bias, and unless it is a GRU's last gate the state's */
      T v = amp_load<T>(k.xg, k.dtype, row * k.g + q * h + j);
      if (k.bi) v += amp_load<T>(k.bi, k.bdt, q * h + j);
      return v;
    };
    auto own = [&](int q) { T v = amp_load<T>(k.hg, k.dtype, i * k.g + q * h + j); return k.bh ? v + amp_load<T>(k.bh, k.bhdt, q * h + j) : v; };
    if (k.mode == LSTM) {
      T in = amp_sigmoid(gate(0) + own(0)), f = amp_sigmoid(gate(1) + own(1)), u = tanh(gate(2) + own(2)), o = amp_sigmoid(gate(3) + own(3));
      if (i >= s.old) ((T *)k.reserve)[k.rows * k.rs + i * h + j] = amp_load<T>(k.c0, k.dtype, i * h + j);
      c = f * cell_at<T>(k, s, i, j) + in * u;
      x[j] = in;
      x[h + j] = f;
      x[2 * h + j] = u;
      x[3 * h + j] = o;
      x[4 * h + j] = c;
      y = o * tanh(c);
    } else if (k.mode == GRU) {
      T r = amp_sigmoid(gate(0) + own(0)), z = amp_sigmoid(gate(1) + own(1)), a = own(2), n = tanh(gate(2) + r * a);
      x[j] = r;
      x[h + j] = z;
      x[2 * h + j] = n;
      x[3 * h + j] = a;
      y = n + z * (state_at<T>(k, s, i, j) - n);
    } else {
      T v = gate(0) + own(0);
      y = k.mode == TANH ? (T)tanh(v) : v < 0 ? (T)0 : v;
      x[j] = y;
    }
    amp_store<T>(k.y, k.dtype, row * h + j, y);
    if (i < s.last_from) continue; /* not the last step of this element */
    amp_store<T>(k.hn, k.dtype, i * h + j, y);
    if (k.mode == LSTM) amp_store<T>(k.cn, k.dtype, i * h + j, c);
  }
}

template <class T> __global__ void __launch_bounds__(256) behind(const rnn k, const step s)
{
  const int64_t h = k.h;
  AMP_FOR(e, s.m * h) {
    int64_t i = e / h, j = e - i * h, row = s.row + i, at = row * k.g + j;
    const T *x = (const T *)k.reserve + row * k.rs;
    T *carry = (T *)k.carry + i * h + j, d = *carry;
    if (i < s.done) d += amp_load<T>(k.prod, k.dtype, i * k.r + j);
    if (k.gy) d += amp_load<T>(k.gy, k.gydt, row * h + j);
    if (k.mode == LSTM) {
      T in = x[j], f = x[h + j], u = x[2 * h + j], o = x[3 * h + j], t = tanh(x[4 * h + j]), *dc = (T *)k.dc + i * h + j;
      T q = *dc + d * o * (1 - t * t);
      amp_store<T>(k.dg, k.dtype, at, q * u * in * (1 - in));
      amp_store<T>(k.dg, k.dtype, at + h, q * cell_at<T>(k, s, i, j) * f * (1 - f));
      amp_store<T>(k.dg, k.dtype, at + 2 * h, q * in * (1 - u * u));
      amp_store<T>(k.dg, k.dtype, at + 3 * h, d * t * o * (1 - o));
      *dc = q * f;
      *carry = 0;
    } else if (k.mode == GRU) {
      T r = x[j], z = x[h + j], n = x[2 * h + j], a = x[3 * h + j];
      T dn = d * (1 - z) * (1 - n * n), dr = dn * a * r * (1 - r), dz = d * (state_at<T>(k, s, i, j) - n) * z * (1 - z);
      amp_store<T>(k.dg, k.dtype, at, dr);
      amp_store<T>(k.dg, k.dtype, at + h, dz);
      amp_store<T>(k.dg, k.dtype, at + 2 * h, dn);
      amp_store<T>(k.dgh, k.dtype, at, dr);
      amp_store<T>(k.dgh, k.dtype, at + h, dz);
      amp_store<T>(k.dgh, k.dtype, at + 2 * h, dn * r);
      *carry = d * z;
    } else {
      amp_store<T>(k.dg, k.dtype, at, k.mode == TANH ? d * (1 - x[j] * x[j]) : x[j] > 0 ? d : (T)0);
      *carry = 0;
    }
  }
  AMP_FOR(e, s.m * k.r) {
    int64_t i = e / k.r, j = e - i * k.r;
    amp_store<T>(k.hprev, k.dtype, (s.row + i) * k.r + j, state_at<T>(k, s, i, j));
  }
}

/* the initial states' gradients */
template <class T> __global__ void __launch_bounds__(256) start(const rnn k, char *dh0, char *dc0)
{
  AMP_FOR(e, k.n * k.r) {
    T d = amp_load<T>(k.prod, k.dtype, e);
    amp_store<T>(dh0, k.dtype, e, k.mode == GRU ? d + ((const T *)k.carry)[e] : d);
  }
  if (dc0) AMP_FOR(e, k.n * k.h) amp_store<T>(dc0, k.dtype, e, ((const T *)k.dc)[e]);
}

/* -- Sizes and operands ------------------------------------------------------------------- */

enum { HELD = 20 };
typedef struct hold { amp_tensor *t[HELD], *result[HELD]; int n, rc; int64_t *first; } hold;

static char *kept(hold *k, amp_tensor *t, amp_tensor *result)
{
  if (t == NULL) { k->rc = AMP_E_MEMORY; return NULL; }
  k->result[k->n] = result;
  k->t[k->n++] = t;
  return (char *)amp__data(t);
}
static char *given(hold *k, amp_tensor *t, int dtype) { return t ? kept(k, amp__cuda_dense(t, dtype), NULL) : NULL; }
static char *result(hold *k, amp_tensor *t, int dtype) { return kept(k, amp_take(t, dtype), t); }
static char *room(hold *k, int dtype, int64_t n) { return kept(k, amp__cuda_make(dtype, 1, &n), NULL); }
static int finish(hold *k, int rc)
{
  if (rc == 0) rc = k->rc;
  for (int i = 0; i < k->n; i++) {
    if (k->result[i]) rc = amp_give(k->result[i], k->t[i], rc);
    else amp__free(k->t[i]);
  }
  free(k->first);
  return rc;
}

static amp_tensor *argument(const amp_call *c, int i) { return i < c->nin ? c->in[i] : NULL; }

static void types(rnn *r, const amp_tensor *w_hh, const amp_slot *a)
{
  memset((void *)r, 0, sizeof *r);
  r->mode = (int32_t)a[0].i;
  r->reverse = a[1].i != 0;
  r->dtype = w_hh->dtype;
  r->g = w_hh->size[0];
  r->h = r->g / (r->mode == LSTM ? 4 : r->mode == GRU ? 3 : 1);
  r->r = w_hh->size[1];
  r->rs = r->h * (r->mode == LSTM ? 5 : r->mode == GRU ? 4 : 1);
}

/* Steps and their rows, of data (steps x batch x ..., or rows x ... with batch sizes, which the host has) */
static int steps(rnn *r, hold *k, const amp_tensor *data, const amp_tensor *sizes, int64_t n)
{
  r->n = n;
  r->t = sizes ? sizes->size[0] : data->size[0];
  r->rows = sizes ? data->size[0] : r->t * n;
  if (!(k->first = (int64_t *)malloc(sizeof(int64_t) * (size_t)(r->t + 1)))) return amp__fail(AMP_E_MEMORY, "no memory for the steps of a sequence");
  k->first[0] = 0;
  for (int64_t t = 0, last = n; t < r->t; t++) {
    int64_t m = sizes ? AMP_DATA(int64_t, sizes)[t * sizes->stride[0]] : n;
    if (sizes && (m < 1 || m > last || (t == 0 && m != n)))
      return amp__fail(AMP_E_VALUE, "batch_sizes must begin with the batch size %lld, stay above 0 and never grow; number %lld is %lld", (long long)n, (long long)(t + 1), (long long)m);
    last = m;
    k->first[t + 1] = k->first[t] + m;
  }
  if (k->first[r->t] == r->rows) return 0;
  return amp__fail(AMP_E_VALUE, "batch_sizes add up to %lld, input has %lld rows", (long long)k->first[r->t], (long long)r->rows);
}

static step step_at(const rnn *r, const hold *k, int64_t t)
{
  int64_t p = r->reverse ? t + 1 : t - 1, m = k->first[t + 1] - k->first[t], old = p < 0 || p >= r->t ? 0 : k->first[p + 1] - k->first[p];
  step s = { k->first[t], m, old ? k->first[p] : 0, old < m ? old : m, 0, 0 };
  /* elements from last_from on end here */
  s.last_from = (int32_t)(r->reverse ? (t > 0 ? m : 0) : t + 1 < r->t ? k->first[t + 2] - k->first[t + 1] : 0);
  return s;
}

/* c = a w^T, or a w: m rows of `size` values, and w of `out` results of them */
static int product(const rnn *r, int64_t m, int64_t size, int64_t out, const char *a, const char *w, bool turned, char *c)
{
  amp_product p;
  if (m == 0 || out == 0) return 0;
  memset((void *)&p, 0, sizeof p);
  p.dtype = r->dtype;
  p.a = a;
  p.b = w;
  p.c = c;
  p.m = m;
  p.n = out;
  p.k = size;
  p.ars = size;
  p.acs = 1;
  p.brs = turned ? out : 1;
  p.bcs = turned ? 1 : size;
  p.crs = out;
  p.ccs = 1;
  if (size == 0) return amp__cuda_check(cudaMemsetAsync(c, 0, (size_t)(m * out) * amp__dtype_size[r->dtype], amp__cuda_stream()), "clearing memory");
  return amp__cuda_gemm(&p);
}

static const char *at(const rnn *r, const char *p, int64_t i) { return p + i * amp__dtype_size[r->dtype]; }

} // namespace

extern "C" {

/* input hx cx? w_ih w_hh b_ih? b_hh? batch_sizes? -> result hn cn reserve */
int amp__cuda_rnn_layer(amp_call *c)
{
  amp_tensor *in[8];
  rnn r;
  hold k = { { NULL }, { NULL }, 0, 0, NULL };
  int rc, type;
  for (int i = 0; i < 8; i++) in[i] = argument(c, i);
  types(&r, in[4], c->a);
  type = r.dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  if ((rc = steps(&r, &k, in[0], in[7], in[1]->size[0])) < 0) return finish(&k, rc);
  if (r.rows == 0 || r.h == 0) return finish(&k, 0);
  r.in = in[0]->size[in[0]->ndim - 1];
  r.x = given(&k, in[0], r.dtype);
  r.h0 = given(&k, in[1], r.dtype);
  r.c0 = given(&k, in[2], r.dtype);
  const char *w_ih = given(&k, in[3], r.dtype), *w_hh = given(&k, in[4], r.dtype);
  r.bi = given(&k, in[5], r.bdt = r.dtype);
  r.bh = given(&k, in[6], r.bhdt = r.dtype);
  r.y = result(&k, c->out[0], r.dtype);
  r.hn = result(&k, c->out[1], r.dtype);
  r.cn = result(&k, c->out[2], r.dtype);
  r.reserve = result(&k, c->out[3], type);
  r.xg = room(&k, r.dtype, r.rows * r.g);
  r.hg = room(&k, r.dtype, r.n * r.g);
  if (k.rc < 0) return finish(&k, k.rc);
  rc = product(&r, r.rows, r.in, r.g, r.x, w_ih, false, r.xg);
  for (int64_t i = 0; i < r.t && rc == 0; i++) {
    step s = step_at(&r, &k, r.reverse ? r.t - 1 - i : i);
    if ((rc = product(&r, s.old, r.h, r.g, at(&r, r.y, s.before * r.h), w_hh, false, r.hg)) < 0) break;
    if ((rc = product(&r, s.m - s.old, r.r, r.g, at(&r, r.h0, s.old * r.r), w_hh, false, (char *)at(&r, r.hg, s.old * r.g))) < 0) break;
    rc = amp_by_float(type, [&](auto zero) {
      AMP_LAUNCH((ahead<decltype(zero)>), amp_grid(s.m * r.h, 256), 256, 0, r, s);
      return 0;
    });
  }
  return finish(&k, rc);
}

/* grad? grad_h? grad_c? reserve w_hh result hx batch_sizes? -> of gates, of hx, of cx (LSTM) or of the state's gates
** (GRU), and each step's state before it */
int amp__cuda_rnn_layer_backward(amp_call *c)
{
  amp_tensor *in[8];
  rnn r;
  hold k = { { NULL }, { NULL }, 0, 0, NULL };
  int rc, type;
  for (int i = 0; i < 8; i++) in[i] = argument(c, i);
  types(&r, in[4], c->a);
  type = r.dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  if ((rc = steps(&r, &k, in[5], in[7], in[6]->size[0])) < 0) return finish(&k, rc);
  if (r.rows == 0 || r.h == 0) return finish(&k, 0);
  r.gydt = in[0] ? in[0]->dtype : 0;
  r.gy = in[0] ? given(&k, in[0], in[0]->dtype) : NULL;
  r.reserve = given(&k, in[3], type);
  const char *w_hh = given(&k, in[4], r.dtype);
  r.y = given(&k, in[5], r.dtype);
  r.h0 = given(&k, in[6], r.dtype);
  r.dg = result(&k, c->out[0], r.dtype);
  char *dh0 = result(&k, c->out[1], r.dtype), *third = result(&k, c->out[2], r.dtype);
  if (r.mode == GRU) r.dgh = third;
  r.hprev = result(&k, c->out[3], r.dtype);
  r.prod = room(&k, r.dtype, r.n * r.r);
  int64_t size[2] = { r.n, r.h };
  for (int i = 1; i < 3; i++) { /* what the last states' gradients begin with */
    amp_tensor *t = i == 1 || r.mode == LSTM ? amp__cuda_make(type, 2, size) : NULL;
    if (i == 2 && r.mode != LSTM) continue;
    char *p = kept(&k, t, NULL);
    if (i == 1) r.carry = p;
    else r.dc = p;
    if (t && (rc = in[i] ? amp__cuda_copy_to(t, in[i]) : amp__cuda_fill_value(t, 0)) < 0) k.rc = rc;
  }
  if (k.rc < 0) return finish(&k, k.rc);
  rc = 0;
  for (int64_t i = r.t - 1, done = 0; i >= 0 && rc == 0; i--) {
    step s = step_at(&r, &k, r.reverse ? r.t - 1 - i : i);
    s.done = done;
    amp_by_float(type, [&](auto zero) {
      AMP_LAUNCH((behind<decltype(zero)>), amp_grid(s.m * r.h, 256), 256, 0, r, s);
      return 0;
    });
    rc = product(&r, s.m, r.g, r.r, at(&r, r.mode == GRU ? r.dgh : r.dg, s.row * r.g), w_hh, true, r.prod);
    if (s.m > done) done = s.m;
  }
  if (rc == 0)
    rc = amp_by_float(type, [&](auto zero) {
      AMP_LAUNCH((start<decltype(zero)>), amp_grid(r.n * (r.r > r.h ? r.r : r.h), 256), 256, 0, r, dh0, r.mode == LSTM ? third : (char *)NULL);
      return 0;
    });
  return finish(&k, rc);
}

}
