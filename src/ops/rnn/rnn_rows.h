/*
** ops/rnn/rnn_rows.h: the loops of a recurrent layer in one computing type RT,
** included for float and double by ops/rnn/rnn_rows.c (RN(x): names).
**
** forward: for each step                 backward: for each step, from the last
**   gates += h_prev W_hh^T                 dgates from dh + gy (and dc)
**   one pass over the gates -> h (and c)   dh = dgates W_hh
**
** The gates already hold the input's projection and the biases. A step of a
** reversed packed sequence has more rows than the step it follows: those rows
** start from the initial state.
*/

#define RN_CLIP(a, b) ((a) < (b) ? (a) : (b))

/* -- Gates, a row at a time ------------------------------------------------------ */

AMP_CLONES static void NAME(tanh_row)(real *x, int64_t n)
{
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) x[i] = NAME(tanh)(x[i]);
}

AMP_CLONES static void NAME(relu_row)(real *x, int64_t n)
{
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) x[i] = x[i] < 0 ? 0 : x[i];
}

/* x: i f g o c, the gates not activated yet */
AMP_CLONES static void NAME(lstm_row)(real *x, const real *c, real *y, int64_t hidden)
{
  AMP_IVDEP
  for (int64_t j = 0; j < hidden; j++) {
    real i = NAME(sigmoid)(x[j]), f = NAME(sigmoid)(x[hidden + j]), g = NAME(tanh)(x[2 * hidden + j]),
         o = NAME(sigmoid)(x[3 * hidden + j]);
    real s = f * c[j] + i * g;
    x[j] = i;
    x[hidden + j] = f;
    x[2 * hidden + j] = g;
    x[3 * hidden + j] = o;
    x[4 * hidden + j] = s;
    y[j] = o * NAME(tanh)(s);
  }
}

/* x: r z n of the input, u: of the state */
AMP_CLONES static void NAME(gru_row)(real *x, const real *u, const real *bias, const real *prev, real *y,
                                     int64_t hidden)
{
  AMP_IVDEP
  for (int64_t j = 0; j < hidden; j++) {
    real r = NAME(sigmoid)(x[j] + u[j]), z = NAME(sigmoid)(x[hidden + j] + u[hidden + j]),
         a = u[2 * hidden + j] + bias[j];
    real n = NAME(tanh)(x[2 * hidden + j] + r * a);
    x[j] = r;
    x[hidden + j] = z;
    x[2 * hidden + j] = n;
    x[3 * hidden + j] = a;
    y[j] = n + z * (prev[j] - n);
  }
}

/* d: what comes from the later step; g: the gradient of this step's result */
AMP_CLONES static void NAME(add_row)(real *d, const real *g, int64_t n)
{
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) d[i] += g[i];
}

AMP_CLONES static void NAME(tanh_back)(const real *y, const real *d, real *q, int64_t n)
{
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) q[i] = d[i] * (1 - y[i] * y[i]);
}

AMP_CLONES static void NAME(relu_back)(const real *y, const real *d, real *q, int64_t n)
{
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) q[i] = y[i] > 0 ? d[i] : 0;
}

AMP_CLONES static void NAME(lstm_back)(const real *x, const real *c, const real *d, real *dc, real *q, int64_t hidden)
{
  AMP_IVDEP
  for (int64_t j = 0; j < hidden; j++) {
    real i = x[j], f = x[hidden + j], g = x[2 * hidden + j], o = x[3 * hidden + j], t = NAME(tanh)(x[4 * hidden + j]);
    real s = dc[j] + d[j] * o * (1 - t * t);
    q[j] = s * g * i * (1 - i);
    q[hidden + j] = s * c[j] * f * (1 - f);
    q[2 * hidden + j] = s * i * (1 - g * g);
    q[3 * hidden + j] = d[j] * t * o * (1 - o);
    dc[j] = s * f;
  }
}

/* leaves in d what goes to the state before without the product */
AMP_CLONES static void NAME(gru_back)(const real *x, const real *prev, real *d, real *q, real *u, int64_t hidden)
{
  AMP_IVDEP
  for (int64_t j = 0; j < hidden; j++) {
    real r = x[j], z = x[hidden + j], n = x[2 * hidden + j], a = x[3 * hidden + j];
    real dn = d[j] * (1 - z) * (1 - n * n), dr = dn * a * r * (1 - r), dz = d[j] * (prev[j] - n) * z * (1 - z);
    q[j] = u[j] = dr;
    q[hidden + j] = u[hidden + j] = dz;
    q[2 * hidden + j] = dn;
    u[2 * hidden + j] = dn * r;
    d[j] *= z;
  }
}

/* -- Operands -------------------------------------------------------------------- */

/* Row i of operands of n columns: its place if it is of type RT, else `tmp`, filled if it is to be read. */
static inline real *NAME(row)(const rnn_layer *layer, const void *p, int64_t i, int64_t n, real *tmp, bool read)
{
  if (layer->operand == layer->type) return (real *)(uintptr_t)p + i * n;
  if (read) amp__load(NAME(cls), tmp, layer->operand, rnn_at(p, i * n, layer->operand), 1, n);
  return tmp;
}

/* The row that RN(row) gave for writing is complete. */
static inline void NAME(wrote)(const rnn_layer *layer, void *p, int64_t i, int64_t n, real *x)
{
  if (layer->operand != layer->type) amp__store(layer->operand, rnn_at(p, i * n, layer->operand), 1, NAME(cls), x, n);
  else if (layer->round)
    for (int64_t j = 0; j < n; j += 256) {
      uint16_t low[256];
      int64_t rows = RN_CLIP(n - j, 256);
      amp__store(layer->dtype, low, 1, NAME(cls), x + j, rows);
      amp__load(NAME(cls), x + j, layer->dtype, low, 1, rows);
    }
}

/* Where the state before the step of batch row i lies: the row, or -1 for the initial state. */
static inline int64_t NAME(before)(const rnn_layer *layer, int64_t step_at, int64_t i)
{
  int64_t p = layer->reverse ? step_at + 1 : step_at - 1;
  return i < rnn_size(layer, p) ? rnn_first(layer, p) + i : -1;
}

/* -- Forward ------------------------------------------------------------------------ */

void NAME(amp__rnn_forward)(const rnn_layer *layer, int64_t begin, int64_t end, void *scratch)
{
  int64_t hidden = layer->hidden, rs = layer->reserve_row;
  real *tmp = (real *)((char *)scratch + layer->gemm), *prev = tmp + layer->wide, *u = prev + layer->wide,
       *reserve = layer->reserve;
  for (int64_t s = 0; s < layer->steps; s++) {
    int64_t step_at = layer->reverse ? layer->steps - 1 - s : s, p = layer->reverse ? step_at + 1 : step_at - 1;
    int64_t rows = rnn_clip(rnn_size(layer, step_at), begin, end),
            old = RN_CLIP(rnn_clip(rnn_size(layer, p), begin, end), rows), row = rnn_first(layer, step_at) + begin;
    if (rows == 0) continue;
    bool gru = layer->mode == RNN_LAYER_MODE_GRU;
    real *gates = gru ? u : reserve + row * rs;
    int64_t ld = gru ? layer->gates : rs;
    amp__rnn_product(&layer->state_weight, old,
                     old ? rnn_at(layer->result, (rnn_first(layer, p) + begin) * hidden, layer->operand) : NULL, hidden,
                     gates, ld, !gru, NULL, scratch);
    amp__rnn_product(&layer->state_weight, rows - old,
                     rnn_at(layer->first_h, (begin + old) * layer->state_size, layer->operand), layer->state_size,
                     gates + old * ld, ld, !gru, NULL, scratch);
    for (int64_t i = 0; i < rows; i++) {
      real *x = reserve + (row + i) * rs, *y = NAME(row)(layer, layer->result, row + i, hidden, tmp, false);
      int64_t before = i < old ? rnn_first(layer, p) + begin + i : -1;
      AMP_ASSUME(layer->mode >= 0 && layer->mode < RNN_LAYER_MODE_COUNT);
      switch ((enum rnn_layer_mode_word)layer->mode) {
      case RNN_LAYER_MODE_LSTM:
        NAME(lstm_row)
        (x, before < 0 ? (const real *)layer->first_c + (begin + i) * hidden : reserve + before * rs + 4 * hidden, y,
         hidden);
        break;
      case RNN_LAYER_MODE_GRU:
        NAME(gru_row)
        (x, u + i * layer->gates, layer->bias_hn,
         before < 0 ? NAME(row)(layer, layer->first_h, begin + i, hidden, prev, true)
                    : NAME(row)(layer, layer->result, before, hidden, prev, true),
         y, hidden);
        break;
      case RNN_LAYER_MODE_TANH:
      case RNN_LAYER_MODE_RELU:
        if (layer->mode == RNN_LAYER_MODE_TANH) NAME(tanh_row)(x, hidden);
        else NAME(relu_row)(x, hidden);
        memcpy(y, x, sizeof(real) * (size_t)hidden);
        break;
      case RNN_LAYER_MODE_COUNT: break;
      }
      NAME(wrote)(layer, layer->result, row + i, hidden, y);
      /* the last step of this element? */
      if (layer->reverse ? step_at > 0 : begin + i < rnn_size(layer, step_at + 1)) continue;
      memcpy(rnn_at(layer->last_h, (begin + i) * hidden, layer->operand),
             rnn_at(layer->result, (row + i) * hidden, layer->operand),
             amp__dtype_size[layer->operand] * (size_t)hidden);
      if (layer->mode == RNN_LAYER_MODE_LSTM)
        memcpy((real *)layer->last_c + (begin + i) * hidden, x + 4 * hidden, sizeof(real) * (size_t)hidden);
    }
  }
}

/* -- Backward ----------------------------------------------------------------------- */

static void NAME(start)(real *d, int64_t ld, const void *g, int64_t begin, int64_t n, int64_t hidden)
{
  for (int64_t i = 0; i < n; i++) {
    if (g) memcpy(d + i * ld, (const real *)g + (begin + i) * hidden, sizeof(real) * (size_t)hidden);
    else memset(d + i * ld, 0, sizeof(real) * (size_t)hidden);
  }
}

void NAME(amp__rnn_backward)(const rnn_layer *layer, int64_t begin, int64_t end, void *scratch)
{
  int64_t hidden = layer->hidden, g = layer->gates, rs = layer->reserve_row, wide = layer->wide, chunk = end - begin;
  real *tmp = (real *)((char *)scratch + layer->gemm), *tmp2 = tmp + g, *prev = tmp2 + g, *dh = prev + wide,
       *dc = dh + chunk * wide;
  const real *reserve = layer->reserve, *gy = layer->grad, *c0 = reserve + layer->rows * rs;
  NAME(start)(dh, wide, layer->grad_h, begin, chunk, hidden);
  NAME(start)(dc, hidden, layer->grad_c, begin, layer->mode == RNN_LAYER_MODE_LSTM ? chunk : 0, hidden);
  bool gru = layer->mode == RNN_LAYER_MODE_GRU;
  for (int64_t s = layer->steps - 1; s >= 0; s--) {
    int64_t step_at = layer->reverse ? layer->steps - 1 - s : s, rows = rnn_clip(rnn_size(layer, step_at), begin, end),
            row = rnn_first(layer, step_at) + begin;
    for (int64_t i = 0; i < rows; i++) {
      const real *x = reserve + (row + i) * rs;
      real *d = dh + i * wide, *q = NAME(row)(layer, layer->dgates, row + i, g, tmp, false);
      int64_t before = NAME(before)(layer, step_at, begin + i);
      const void *state = before < 0 ? rnn_at(layer->first_h, (begin + i) * layer->state_size, layer->operand)
                                     : rnn_at(layer->result, before * hidden, layer->operand);
      if (gy) NAME(add_row)(d, gy + (row + i) * hidden, hidden);
      AMP_ASSUME(layer->mode >= 0 && layer->mode < RNN_LAYER_MODE_COUNT);
      switch ((enum rnn_layer_mode_word)layer->mode) {
      case RNN_LAYER_MODE_LSTM:
        NAME(lstm_back)
        (x, before < 0 ? c0 + (begin + i) * hidden : reserve + before * rs + 4 * hidden, d, dc + i * hidden, q, hidden);
        break;
      case RNN_LAYER_MODE_GRU: {
        real *u = NAME(row)(layer, layer->dgates_state, row + i, g, tmp2, false);
        NAME(gru_back)(x, NAME(row)(layer, state, 0, hidden, prev, true), d, q, u, hidden);
        NAME(wrote)(layer, layer->dgates_state, row + i, g, u);
        break;
      }
      case RNN_LAYER_MODE_TANH: NAME(tanh_back)(x, d, q, hidden); break;
      case RNN_LAYER_MODE_RELU: NAME(relu_back)(x, d, q, hidden); break;
      case RNN_LAYER_MODE_COUNT: break;
      }
      NAME(wrote)(layer, layer->dgates, row + i, g, q);
      if (layer->hprev)
        memcpy(rnn_at(layer->hprev, (row + i) * layer->state_size, layer->operand), state,
               amp__dtype_size[layer->operand] * (size_t)layer->state_size);
    }
    if (rows > 0)
      amp__rnn_product(&layer->state_weight, rows,
                       rnn_at(gru ? layer->dgates_state : layer->dgates, row * g, layer->operand), g, dh, wide, gru,
                       NULL, scratch);
  }
  for (int64_t i = 0; i < chunk; i++) {
    memcpy((real *)layer->dfirst_h + (begin + i) * layer->state_size, dh + i * wide,
           sizeof(real) * (size_t)layer->state_size);
    if (layer->mode == RNN_LAYER_MODE_LSTM)
      memcpy((real *)layer->dfirst_c + (begin + i) * hidden, dc + i * hidden, sizeof(real) * (size_t)hidden);
  }
}

#undef NAME
#undef real
#undef RN_CLIP
