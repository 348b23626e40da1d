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
#include "rnn/rnn.cuh"
#include "common/rows.cuh"
#include "../src/cuda/cuda_gemm.h"

namespace {

enum { TANH = AMP_RNN_TANH, RELU = AMP_RNN_RELU, LSTM = AMP_RNN_LSTM, GRU = AMP_RNN_GRU };
typedef amp_rnn rnn;
typedef amp_rnn_step step;

/* -- A step, its products done ------------------------------------------------------------ */

template <class T> __global__ void __launch_bounds__(256) ahead(const rnn layer, const step s)
{
  AMP_FOR(e, s.m * layer.h)
  {
    int64_t i = e / layer.h, j = e - i * layer.h;
    rnn_ahead<T>(
        layer, s, i, j, rnn_before<T>(layer, s, i, j),
        [&](int q) {
          T v = amp_load<T>(layer.xg, layer.dtype, (s.row + i) * layer.g + q * layer.h + j);
          return layer.bi ? v + amp_load<T>(layer.bi, layer.dtype, q * layer.h + j) : v;
        },
        [&](int q) {
          T v = amp_load<T>(layer.hg, layer.dtype, i * layer.g + q * layer.h + j);
          return layer.bh ? v + amp_load<T>(layer.bh, layer.dtype, q * layer.h + j) : v;
        });
  }
}

template <class T> __global__ void __launch_bounds__(256) behind(const rnn layer, const step s)
{
  amp_let_next();
  AMP_FOR(e, s.m * layer.h)
  {
    int64_t i = e / layer.h, j = e - i * layer.h;
    rnn_behind<T>(layer, s, i, j, rnn_saved_at<T>(layer, s, i, j),
                  i < s.done ? amp_load<T>(layer.prod, layer.dtype, i * layer.r + j) : (T)0);
  }
  if (layer.hprev) AMP_FOR(e, s.m * layer.r)
    {
      int64_t i = e / layer.r, j = e - i * layer.r;
      amp_store<T>(layer.hprev, layer.dtype, (s.row + i) * layer.r + j, state_at<T>(layer, s, i, j));
    }
}

/* the initial states' gradients, of packed sequences and GRUs */
template <class T> __global__ void __launch_bounds__(256) start(const rnn layer, char *dh0, char *dc0)
{
  AMP_FOR(e, layer.n * layer.r)
  {
    T d = amp_load<T>(layer.prod, layer.dtype, e);
    amp_store<T>(dh0, layer.dtype, e, layer.mode == GRU ? d + ((const T *)layer.carry)[e] : d);
  }
  if (dc0) AMP_FOR(e, layer.n * layer.h) amp_store<T>(dc0, layer.dtype, e, ((const T *)layer.dc)[e]);
}

/* -- Sizes and operands ------------------------------------------------------------------- */

enum { HELD = 20 };
typedef struct hold {
  amp_tensor *t[HELD], *result[HELD];
  int n, rc;
  int64_t *first;
} hold;

static char *kept(hold *held, amp_tensor *tensor, amp_tensor *result)
{
  if (tensor == NULL) {
    held->rc = AMP_E_MEMORY;
    return NULL;
  }
  held->result[held->n] = result;
  held->t[held->n++] = tensor;
  return (char *)amp__data(tensor);
}
static char *given(hold *held, amp_tensor *tensor, int dtype)
{
  return tensor ? kept(held, amp__cuda_dense(tensor, dtype), NULL) : NULL;
}
static char *result(hold *held, amp_tensor *tensor, int dtype) { return kept(held, amp_take(tensor, dtype), tensor); }
static char *room(hold *held, int dtype, int64_t n) { return kept(held, amp__cuda_make(dtype, 1, &n), NULL); }
static int finish(hold *held, int rc)
{
  if (rc == 0) rc = held->rc;
  for (int i = 0; i < held->n; i++) {
    if (held->result[i]) rc = amp_give(held->result[i], held->t[i], rc);
    else amp__free(held->t[i]);
  }
  free(held->first);
  return rc;
}

static amp_tensor *argument(const amp_call *c, int i) { return i < c->nin ? c->in[i] : NULL; }

static void types(rnn *layer, const amp_tensor *w_hh, int64_t mode, int64_t reverse)
{
  memset((void *)layer, 0, sizeof *layer);
  layer->mode = (int32_t)mode;
  layer->reverse = reverse != 0;
  layer->dtype = w_hh->dtype;
  layer->g = w_hh->size[0];
  layer->h = layer->g / (layer->mode == LSTM ? 4 : layer->mode == GRU ? 3 : 1);
  layer->r = w_hh->size[1];
  layer->rs = layer->h
              * (layer->mode == LSTM  ? rnn_packs(*layer) ? 3 : 5
                 : layer->mode == GRU ? rnn_packs(*layer) ? 2 : 4
                                      : 1);
}

/* Steps and their rows, of data (steps x batch x ..., or rows x ... with batch sizes, which the host has) */
static int steps(rnn *layer, hold *held, const amp_tensor *data, const amp_tensor *sizes, int64_t n)
{
  layer->n = n;
  layer->t = sizes ? sizes->size[0] : data->size[0];
  layer->rows = sizes ? data->size[0] : layer->t * n;
  if (!(held->first = (int64_t *)malloc(sizeof(int64_t) * (size_t)(layer->t + 1))))
    return amp__fail(AMP_E_MEMORY, "no memory for the steps of a sequence");
  held->first[0] = 0;
  for (int64_t t = 0, last = n; t < layer->t; t++) {
    int64_t m = sizes ? AMP_DATA(int64_t, sizes)[t * sizes->stride[0]] : n;
    if (sizes && (m < 1 || m > last || (t == 0 && m != n)))
      return amp__fail(
          AMP_E_VALUE,
          "batch_sizes must begin with the batch size %lld, stay above 0 and never grow; number %lld is %lld",
          (long long)n, (long long)(t + 1), (long long)m);
    last = m;
    held->first[t + 1] = held->first[t] + m;
  }
  if (held->first[layer->t] == layer->rows) return 0;
  return amp__fail(AMP_E_VALUE, "batch_sizes add up to %lld, input has %lld rows", (long long)held->first[layer->t],
                   (long long)layer->rows);
}

static step step_at(const rnn *layer, const hold *held, int64_t t)
{
  int64_t p = layer->reverse ? t + 1 : t - 1, m = held->first[t + 1] - held->first[t],
          old = p < 0 || p >= layer->t ? 0 : held->first[p + 1] - held->first[p];
  step made;
  memset((void *)&made, 0, sizeof made);
  made.row = held->first[t];
  made.m = m;
  made.before = old ? held->first[p] : 0;
  made.old = old < m ? old : m;
  /* elements from last_from on end here */
  made.last_from = (int32_t)(layer->reverse     ? (t > 0 ? m : 0)
                             : t + 1 < layer->t ? held->first[t + 2] - held->first[t + 1]
                                                : 0);
  return made;
}

/* c = a w^T, or a w: m rows of `size` values, and w of `out` results of them */
static int product(const rnn *layer, int64_t m, int64_t size, int64_t out, const char *a, const char *w, bool turned,
                   char *c)
{
  amp_product args;
  if (m == 0 || out == 0) return 0;
  memset((void *)&args, 0, sizeof args);
  args.dtype = layer->dtype;
  args.a = a;
  args.b = w;
  args.c = c;
  args.m = m;
  args.n = out;
  args.k = size;
  args.ars = size;
  args.acs = 1;
  args.brs = turned ? out : 1;
  args.bcs = turned ? 1 : size;
  args.crs = out;
  args.ccs = 1;
  if (size == 0)
    return amp__cuda_check(cudaMemsetAsync(c, 0, (size_t)(m * out) * amp__dtype_size[layer->dtype], amp__cuda_stream()),
                           "clearing memory");
  return amp__cuda_gemm(&args);
}

static const char *at(const rnn *layer, const char *p, int64_t i) { return p + i * amp__dtype_size[layer->dtype]; }

/* Every row's state before it, of a sequence that is not packed: results moved by a step */
static int states_before(const rnn *layer, char *to)
{
  int64_t size = amp__dtype_size[layer->dtype], one = layer->n * layer->h * size, rest = (layer->t - 1) * one;
  int rc = amp__cuda_check(cudaMemcpyAsync(layer->reverse ? to + rest : to, layer->h0, (size_t)one,
                                           cudaMemcpyDeviceToDevice, amp__cuda_stream()),
                           "a copy");
  if (rc < 0 || rest == 0) return rc;
  return amp__cuda_check(cudaMemcpyAsync(layer->reverse ? to : to + one, layer->reverse ? layer->y + one : layer->y,
                                         (size_t)rest, cudaMemcpyDeviceToDevice, amp__cuda_stream()),
                         "a copy");
}

/* Backward step by step. whole: a launch makes a step's product, too; direct: the last one leaves the initial states'
** gradients in dh0 */
static int behind_steps(const rnn *layer, hold *held, int type, bool whole, bool direct, char *dh0)
{
  bool chained = false;
  int rc = 0;
  for (int64_t i = layer->t - 1, done = 0, after = 0; i >= 0 && rc == 0; i--) {
    step now = step_at(layer, held, layer->reverse ? layer->t - 1 - i : i);
    now.done = done;
    now.after = after;
    now.last = direct && i == 0;
    if (whole && done) rc = amp_rnn_behind_whole(layer, &now, chained);
    else
      amp_by_float(type, [&](auto zero) {
        AMP_LAUNCH((behind<decltype(zero)>), amp_grid(now.m * layer->h, 256), 256, 0, *layer, now);
        return 0;
      });
    chained = true;
    if (rc == 0 && !whole)
      rc = product(layer, now.m, layer->g, layer->r,
                   at(layer, layer->mode == GRU ? layer->dgh : layer->dg, now.row * layer->g), layer->w, true,
                   now.last ? dh0 : layer->prod);
    if (now.m > done) done = now.m;
    after = now.row;
    if (whole && i == 0 && rc == 0) {
      now.done = done;
      now.after = after;
      rc = amp_rnn_first_whole(layer, &now, dh0, chained);
    }
  }
  return rc;
}

} // namespace

extern "C" {

/* input hx cx? w_ih w_hh b_ih? b_hh? batch_sizes? -> result hn cn reserve */
int amp__cuda_rnn_layer(amp_call *c)
{
  amp_tensor *in[8];
  rnn layer;
  hold held = { { NULL }, { NULL }, 0, 0, NULL };
  int rc, type;
  for (int i = 0; i < 8; i++) in[i] = argument(c, i);
  const args_rnn_layer *args = AMP_ARGS(c, rnn_layer);
  types(&layer, in[4], args->mode, args->reverse);
  type = layer.dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  if ((rc = steps(&layer, &held, in[0], in[7], in[1]->size[0])) < 0) return finish(&held, rc);
  if (layer.rows == 0 || layer.h == 0) return finish(&held, 0);
  layer.in = in[0]->size[in[0]->ndim - 1];
  layer.x = given(&held, in[0], layer.dtype);
  layer.h0 = given(&held, in[1], layer.dtype);
  layer.c0 = given(&held, in[2], layer.dtype);
  layer.wx = given(&held, in[3], layer.dtype);
  layer.w = given(&held, in[4], layer.dtype);
  layer.bi = given(&held, in[5], layer.dtype);
  layer.bh = given(&held, in[6], layer.dtype);
  layer.y = result(&held, c->out[0], layer.dtype);
  layer.hn = result(&held, c->out[1], layer.dtype);
  layer.cn = result(&held, c->out[2], layer.dtype);
  layer.reserve = result(&held, c->out[3], type);
  if (held.rc < 0) return finish(&held, held.rc);
  const bool input = layer.t == 1 && amp_rnn_takes(&layer, false, true),
             all = !in[7] && amp_rnn_takes_all(&layer, false);
  const bool whole = input || amp_rnn_takes(&layer, false, false);
  if (!input) layer.xg = room(&held, layer.dtype, layer.rows * layer.g);
  if (!whole && !all) layer.hg = room(&held, layer.dtype, layer.n * layer.g);
  if (held.rc < 0) return finish(&held, held.rc);
  if (!input) rc = product(&layer, layer.rows, layer.in, layer.g, layer.x, layer.wx, false, layer.xg);
  if (rc == 0 && all) rc = amp_rnn_ahead_all(&layer);
  for (int64_t i = 0; i < layer.t && rc == 0 && !all; i++) {
    step now = step_at(&layer, &held, layer.reverse ? layer.t - 1 - i : i);
    if (whole) {
      rc = amp_rnn_ahead_whole(&layer, &now, input, i > 0);
      continue;
    }
    if ((rc = product(&layer, now.old, layer.h, layer.g, at(&layer, layer.y, now.before * layer.h), layer.w, false,
                      layer.hg))
        < 0)
      break;
    if ((rc = product(&layer, now.m - now.old, layer.r, layer.g, at(&layer, layer.h0, now.old * layer.r), layer.w,
                      false, (char *)at(&layer, layer.hg, now.old * layer.g)))
        < 0)
      break;
    rc = amp_by_float(type, [&](auto zero) {
      AMP_LAUNCH((ahead<decltype(zero)>), amp_grid(now.m * layer.h, 256), 256, 0, layer, now);
      return 0;
    });
  }
  return finish(&held, rc);
}

/* grad? grad_h? grad_c? reserve w_hh result hx batch_sizes? -> of gates, of hx, of cx (LSTM) or of the state's gates
** (GRU), and each step's state before it (none for a single step) */
int amp__cuda_rnn_layer_backward(amp_call *c)
{
  amp_tensor *in[8];
  rnn layer;
  hold held = { { NULL }, { NULL }, 0, 0, NULL };
  int rc, type;
  for (int i = 0; i < 8; i++) in[i] = argument(c, i);
  const args_rnn_layer_backward *args = AMP_ARGS(c, rnn_layer_backward);
  types(&layer, in[4], args->mode, args->reverse);
  type = layer.dtype == AMP_FLOAT64 ? AMP_FLOAT64 : AMP_FLOAT32;
  if ((rc = steps(&layer, &held, in[5], in[7], in[6]->size[0])) < 0) return finish(&held, rc);
  if (layer.rows == 0 || layer.h == 0) return finish(&held, 0);
  const bool packed = in[7] != NULL;
  layer.gydt = in[0] ? in[0]->dtype : 0;
  layer.ghdt = in[1] ? in[1]->dtype : 0;
  layer.gcdt = in[2] ? in[2]->dtype : 0;
  layer.gy = in[0] ? given(&held, in[0], layer.gydt) : NULL;
  layer.gh = in[1] ? given(&held, in[1], layer.ghdt) : NULL;
  layer.gc = in[2] && layer.mode == LSTM ? given(&held, in[2], layer.gcdt) : NULL;
  layer.reserve = given(&held, in[3], type);
  layer.w = given(&held, in[4], layer.dtype);
  layer.y = given(&held, in[5], layer.dtype);
  layer.h0 = given(&held, in[6], layer.dtype);
  layer.dg = result(&held, c->out[0], layer.dtype);
  char *dh0 = result(&held, c->out[1], layer.dtype), *third = result(&held, c->out[2], layer.dtype),
       *before = result(&held, c->out[3], layer.dtype);
  if (layer.mode == GRU) layer.dgh = third;
  if (held.rc < 0) return finish(&held, held.rc);
  /* direct: no launch of its own for the initial states' gradients */
  const bool all = !packed && amp_rnn_takes_all(&layer, true),
             whole = all || (!packed && amp_rnn_takes(&layer, true, false));
  const bool direct = whole || (!packed && layer.mode != GRU);
  if (layer.mode == GRU) layer.carry = room(&held, type, layer.n * layer.h);
  if (layer.mode == LSTM) layer.dc0 = third;
  if (layer.mode == LSTM && (packed || layer.t > 1)) layer.dc = room(&held, type, layer.n * layer.h);
  if (!direct || (!whole && layer.t > 1)) layer.prod = room(&held, layer.dtype, layer.n * layer.r);
  if (held.rc < 0) return finish(&held, held.rc);
  rc = 0;
  if (packed) layer.hprev = before;
  else if (layer.t > 1) rc = states_before(&layer, before);
  if (rc == 0 && all) rc = amp_rnn_behind_all(&layer, dh0);
  else if (rc == 0) rc = behind_steps(&layer, &held, type, whole, direct, dh0);
  if (rc == 0 && !direct)
    rc = amp_by_float(type, [&](auto zero) {
      AMP_LAUNCH((start<decltype(zero)>), amp_grid(layer.n * (layer.r > layer.h ? layer.r : layer.h), 256), 256, 0,
                 layer, dh0, layer.mode == LSTM ? third : (char *)NULL);
      return 0;
    });
  return finish(&held, rc);
}
}
