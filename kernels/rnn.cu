/*
** rnn.cu: rows rnn_layer and rnn_layer_backward: one recurrent layer in one
** direction. On cards with tensor cores one launch makes the whole sequence where the
** weights fit the card's registers (rnn_all.cu); of 16-bit floats, else, one makes a
** step, product and all (rnn_step.cu); else, and where a product is large, a step is
** a product and a launch for the rest.
**
** Forward the input's projection of the whole sequence is one product; of a single
** step (a cell) it is part of the launch. Backward a step's launch takes the product
** of the later step's gates' gradient, or makes it, and leaves its own gates' gradient.
** A packed sequence goes back in products: where an element ends, they know what for.
*/
#include <cstdlib>
#include "rnn.cuh"
#include "rows.cuh"
#include "../src/cuda/cuda_gemm.h"

namespace {

enum { TANH = AMP_RNN_TANH, RELU = AMP_RNN_RELU, LSTM = AMP_RNN_LSTM, GRU = AMP_RNN_GRU };
typedef amp_rnn rnn;
typedef amp_rnn_step step;

/* -- A step, its products done ------------------------------------------------------------ */

template <class T> __global__ void __launch_bounds__(256) ahead(const rnn k, const step s)
{
  AMP_FOR(e, s.m * k.h) {
    int64_t i = e / k.h, j = e - i * k.h;
    rnn_ahead<T>(k, s, i, j, rnn_before<T>(k, s, i, j), [&](int q) {
      T v = amp_load<T>(k.xg, k.dtype, (s.row + i) * k.g + q * k.h + j);
      return k.bi ? v + amp_load<T>(k.bi, k.dtype, q * k.h + j) : v;
    }, [&](int q) {
      T v = amp_load<T>(k.hg, k.dtype, i * k.g + q * k.h + j);
      return k.bh ? v + amp_load<T>(k.bh, k.dtype, q * k.h + j) : v;
    });
  }
}

template <class T> __global__ void __launch_bounds__(256) behind(const rnn k, const step s)
{
  amp_let_next();
  AMP_FOR(e, s.m * k.h) {
    int64_t i = e / k.h, j = e - i * k.h;
    rnn_behind<T>(k, s, i, j, rnn_saved_at<T>(k, s, i, j), i < s.done ? amp_load<T>(k.prod, k.dtype, i * k.r + j) : (T)0);
  }
  if (k.hprev) AMP_FOR(e, s.m * k.r) {
    int64_t i = e / k.r, j = e - i * k.r;
    amp_store<T>(k.hprev, k.dtype, (s.row + i) * k.r + j, state_at<T>(k, s, i, j));
  }
}

/* the initial states' gradients, of packed sequences and GRUs */
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
  r->rs = r->h * (r->mode == LSTM ? rnn_packs(*r) ? 3 : 5 : r->mode == GRU ? rnn_packs(*r) ? 2 : 4 : 1);
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
  step s;
  memset((void *)&s, 0, sizeof s);
  s.row = k->first[t];
  s.m = m;
  s.before = old ? k->first[p] : 0;
  s.old = old < m ? old : m;
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

/* Every row's state before it, of a sequence that is not packed: results moved by a step */
static int states_before(const rnn *r, char *to)
{
  int64_t size = amp__dtype_size[r->dtype], one = r->n * r->h * size, rest = (r->t - 1) * one;
  int rc = amp__cuda_check(cudaMemcpyAsync(r->reverse ? to + rest : to, r->h0, (size_t)one, cudaMemcpyDeviceToDevice, amp__cuda_stream()), "a copy");
  if (rc < 0 || rest == 0) return rc;
  return amp__cuda_check(cudaMemcpyAsync(r->reverse ? to : to + one, r->reverse ? r->y + one : r->y, (size_t)rest, cudaMemcpyDeviceToDevice, amp__cuda_stream()), "a copy");
}

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
  r.wx = given(&k, in[3], r.dtype);
  r.w = given(&k, in[4], r.dtype);
  r.bi = given(&k, in[5], r.dtype);
  r.bh = given(&k, in[6], r.dtype);
  r.y = result(&k, c->out[0], r.dtype);
  r.hn = result(&k, c->out[1], r.dtype);
  r.cn = result(&k, c->out[2], r.dtype);
  r.reserve = result(&k, c->out[3], type);
  if (k.rc < 0) return finish(&k, k.rc);
  const bool input = r.t == 1 && amp_rnn_takes(&r, false, true), all = !in[7] && amp_rnn_takes_all(&r, false);
  const bool whole = input || amp_rnn_takes(&r, false, false);
  if (!input) r.xg = room(&k, r.dtype, r.rows * r.g);
  if (!whole && !all) r.hg = room(&k, r.dtype, r.n * r.g);
  if (k.rc < 0) return finish(&k, k.rc);
  if (!input) rc = product(&r, r.rows, r.in, r.g, r.x, r.wx, false, r.xg);
  if (rc == 0 && all) rc = amp_rnn_ahead_all(&r);
  for (int64_t i = 0; i < r.t && rc == 0 && !all; i++) {
    step s = step_at(&r, &k, r.reverse ? r.t - 1 - i : i);
    if (whole) { rc = amp_rnn_ahead_whole(&r, &s, input, i > 0); continue; }
    if ((rc = product(&r, s.old, r.h, r.g, at(&r, r.y, s.before * r.h), r.w, false, r.hg)) < 0) break;
    if ((rc = product(&r, s.m - s.old, r.r, r.g, at(&r, r.h0, s.old * r.r), r.w, false, (char *)at(&r, r.hg, s.old * r.g))) < 0) break;
    rc = amp_by_float(type, [&](auto zero) {
      AMP_LAUNCH((ahead<decltype(zero)>), amp_grid(s.m * r.h, 256), 256, 0, r, s);
      return 0;
    });
  }
  return finish(&k, rc);
}

/* grad? grad_h? grad_c? reserve w_hh result hx batch_sizes? -> of gates, of hx, of cx (LSTM) or of the state's gates
** (GRU), and each step's state before it (none for a single step) */
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
  const bool packed = in[7] != NULL;
  r.gydt = in[0] ? in[0]->dtype : 0;
  r.ghdt = in[1] ? in[1]->dtype : 0;
  r.gcdt = in[2] ? in[2]->dtype : 0;
  r.gy = in[0] ? given(&k, in[0], r.gydt) : NULL;
  r.gh = in[1] ? given(&k, in[1], r.ghdt) : NULL;
  r.gc = in[2] && r.mode == LSTM ? given(&k, in[2], r.gcdt) : NULL;
  r.reserve = given(&k, in[3], type);
  r.w = given(&k, in[4], r.dtype);
  r.y = given(&k, in[5], r.dtype);
  r.h0 = given(&k, in[6], r.dtype);
  r.dg = result(&k, c->out[0], r.dtype);
  char *dh0 = result(&k, c->out[1], r.dtype), *third = result(&k, c->out[2], r.dtype), *before = result(&k, c->out[3], r.dtype);
  if (r.mode == GRU) r.dgh = third;
  if (k.rc < 0) return finish(&k, k.rc);
  /* direct: no launch of its own for the initial states' gradients */
  const bool all = !packed && amp_rnn_takes_all(&r, true), whole = all || (!packed && amp_rnn_takes(&r, true, false));
  const bool direct = whole || (!packed && r.mode != GRU);
  if (r.mode == GRU) r.carry = room(&k, type, r.n * r.h);
  if (r.mode == LSTM) r.dc0 = third;
  if (r.mode == LSTM && (packed || r.t > 1)) r.dc = room(&k, type, r.n * r.h);
  if (!direct || (!whole && r.t > 1)) r.prod = room(&k, r.dtype, r.n * r.r);
  if (k.rc < 0) return finish(&k, k.rc);
  rc = 0;
  if (packed) r.hprev = before;
  else if (r.t > 1) rc = states_before(&r, before);
  if (rc == 0 && all) rc = amp_rnn_behind_all(&r, dh0);
  bool chained = false;
  for (int64_t i = r.t - 1, done = 0, after = 0; i >= 0 && rc == 0 && !all; i--) {
    step s = step_at(&r, &k, r.reverse ? r.t - 1 - i : i);
    s.done = done;
    s.after = after;
    s.last = direct && i == 0;
    if (whole && done) rc = amp_rnn_behind_whole(&r, &s, chained);
    else amp_by_float(type, [&](auto zero) {
      AMP_LAUNCH((behind<decltype(zero)>), amp_grid(s.m * r.h, 256), 256, 0, r, s);
      return 0;
    });
    chained = true;
    if (rc == 0 && !whole) rc = product(&r, s.m, r.g, r.r, at(&r, r.mode == GRU ? r.dgh : r.dg, s.row * r.g), r.w, true, s.last ? dh0 : r.prod);
    if (s.m > done) done = s.m;
    after = s.row;
    if (whole && i == 0 && rc == 0) {
      s.done = done;
      s.after = after;
      rc = amp_rnn_first_whole(&r, &s, dh0, chained);
    }
  }
  if (rc == 0 && !direct)
    rc = amp_by_float(type, [&](auto zero) {
      AMP_LAUNCH((start<decltype(zero)>), amp_grid(r.n * (r.r > r.h ? r.r : r.h), 256), 256, 0, r, dh0, r.mode == LSTM ? third : (char *)NULL);
      return 0;
    });
  return finish(&k, rc);
}

}
