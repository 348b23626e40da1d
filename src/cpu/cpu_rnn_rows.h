/*
** cpu_rnn_rows.h: the loops of a recurrent layer in one computing type RT,
** included for float and double by cpu_rnn_rows.c (RN(x): names).
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

AMP_CLONES static void RN(tanh_row)(RT *x, int64_t n) {
  AMP_IVDEP for (int64_t i = 0; i < n; i++) x[i] = RN(tanh)(x[i]);
}

AMP_CLONES static void RN(relu_row)(RT *x, int64_t n) {
  AMP_IVDEP for (int64_t i = 0; i < n; i++) x[i] = x[i] < 0 ? 0 : x[i];
}

/* x: i f g o c, the gates not activated yet */
AMP_CLONES static void RN(lstm_row)(RT *x, const RT *c, RT *y, int64_t h) {
  AMP_IVDEP for (int64_t j = 0; j < h; j++) {
    RT i = RN(sigmoid)(x[j]), f = RN(sigmoid)(x[h + j]), g = RN(tanh)(x[2 * h + j]), o = RN(sigmoid)(x[3 * h + j]);
    RT s = f * c[j] + i * g;
    x[j] = i;
    x[h + j] = f;
    x[2 * h + j] = g;
    x[3 * h + j] = o;
    x[4 * h + j] = s;
    y[j] = o * RN(tanh)(s);
  }
}

/* x: r z n of the input, u: of the state */
AMP_CLONES static void RN(gru_row)(RT *x, const RT *u, const RT *bias, const RT *prev, RT *y, int64_t h) {
  AMP_IVDEP for (int64_t j = 0; j < h; j++) {
    RT r = RN(sigmoid)(x[j] + u[j]), z = RN(sigmoid)(x[h + j] + u[h + j]), a = u[2 * h + j] + bias[j];
    RT n = RN(tanh)(x[2 * h + j] + r * a);
    x[j] = r;
    x[h + j] = z;
    x[2 * h + j] = n;
    x[3 * h + j] = a;
    y[j] = n + z * (prev[j] - n);
  }
}

/* d: what comes from the later step; g: the gradient of this step's result */
AMP_CLONES static void RN(add_row)(RT *d, const RT *g, int64_t n) {
  AMP_IVDEP for (int64_t i = 0; i < n; i++) d[i] += g[i];
}

AMP_CLONES static void RN(tanh_back)(const RT *y, const RT *d, RT *q, int64_t n) {
  AMP_IVDEP for (int64_t i = 0; i < n; i++) q[i] = d[i] * (1 - y[i] * y[i]);
}

AMP_CLONES static void RN(relu_back)(const RT *y, const RT *d, RT *q, int64_t n) {
  AMP_IVDEP for (int64_t i = 0; i < n; i++) q[i] = y[i] > 0 ? d[i] : 0;
}

AMP_CLONES static void RN(lstm_back)(const RT *x, const RT *c, const RT *d, RT *dc, RT *q, int64_t h) {
  AMP_IVDEP for (int64_t j = 0; j < h; j++) {
    RT i = x[j], f = x[h + j], g = x[2 * h + j], o = x[3 * h + j], t = RN(tanh)(x[4 * h + j]);
    RT s = dc[j] + d[j] * o * (1 - t * t);
    q[j] = s * g * i * (1 - i);
    q[h + j] = s * c[j] * f * (1 - f);
    q[2 * h + j] = s * i * (1 - g * g);
    q[3 * h + j] = d[j] * t * o * (1 - o);
    dc[j] = s * f;
  }
}

/* leaves in d what goes to the state before without the product */
AMP_CLONES static void RN(gru_back)(const RT *x, const RT *prev, RT *d, RT *q, RT *u, int64_t h) {
  AMP_IVDEP for (int64_t j = 0; j < h; j++) {
    RT r = x[j], z = x[h + j], n = x[2 * h + j], a = x[3 * h + j];
    RT dn = d[j] * (1 - z) * (1 - n * n), dr = dn * a * r * (1 - r), dz = d[j] * (prev[j] - n) * z * (1 - z);
    q[j] = u[j] = dr;
    q[h + j] = u[h + j] = dz;
    q[2 * h + j] = dn;
    u[2 * h + j] = dn * r;
    d[j] *= z;
  }
}

/* -- Operands -------------------------------------------------------------------- */

/* Row i of operands of n columns: its place if it is of type RT, else `tmp`, filled if it is to be read. */
static inline RT *RN(row)(const rnn *r, const void *p, int64_t i, int64_t n, RT *tmp, bool read) {
  if (r->op == r->type) return (RT *)(uintptr_t)p + i * n;
  if (read) amp__load(RN(cls), tmp, r->op, rnn_at(p, i * n, r->op), 1, n);
  return tmp;
}

/* The row that RN(row) gave for writing is complete. */
static inline void RN(wrote)(const rnn *r, void *p, int64_t i, int64_t n, RT *x) {
  if (r->op != r->type) amp__store(r->op, rnn_at(p, i * n, r->op), 1, RN(cls), x, n);
  else if (r->round)
    for (int64_t j = 0; j < n; j += 256) {
      uint16_t low[256];
      int64_t m = RN_CLIP(n - j, 256);
      amp__store(r->dtype, low, 1, RN(cls), x + j, m);
      amp__load(RN(cls), x + j, r->dtype, low, 1, m);
    }
}

/* Where the state before step t of batch row i lies: the row, or -1 for the initial state. */
static inline int64_t RN(before)(const rnn *r, int64_t t, int64_t i) {
  int64_t p = r->reverse ? t + 1 : t - 1;
  return i < rnn_size(r, p) ? rnn_first(r, p) + i : -1;
}

/* -- Forward ------------------------------------------------------------------------ */

void RN(amp__rnn_forward)(const rnn *r, int64_t n0, int64_t n1, void *scratch) {
  int64_t h = r->h, rs = r->rs;
  RT *tmp = (RT *)((char *)scratch + r->gemm), *prev = tmp + r->wide, *u = prev + r->wide, *reserve = r->reserve;
  for (int64_t s = 0; s < r->t; s++) {
    int64_t t = r->reverse ? r->t - 1 - s : s, p = r->reverse ? t + 1 : t - 1;
    int64_t m = rnn_clip(rnn_size(r, t), n0, n1), old = RN_CLIP(rnn_clip(rnn_size(r, p), n0, n1), m), row = rnn_first(r, t) + n0;
    if (m == 0) continue;
    bool gru = r->mode == RNN_GRU;
    RT *gates = gru ? u : reserve + row * rs;
    int64_t ld = gru ? r->g : rs;
    amp__rnn_product(&r->hh, old, old ? rnn_at(r->y, (rnn_first(r, p) + n0) * h, r->op) : NULL, h, gates, ld, !gru, NULL, scratch);
    amp__rnn_product(&r->hh, m - old, rnn_at(r->h0, (n0 + old) * r->r, r->op), r->r, gates + old * ld, ld, !gru, NULL, scratch);
    for (int64_t i = 0; i < m; i++) {
      RT *x = reserve + (row + i) * rs, *y = RN(row)(r, r->y, row + i, h, tmp, false);
      int64_t before = i < old ? rnn_first(r, p) + n0 + i : -1;
      switch (r->mode) {
      case RNN_LSTM: RN(lstm_row)(x, before < 0 ? (const RT *)r->c0 + (n0 + i) * h : reserve + before * rs + 4 * h, y, h); break;
      case RNN_GRU:
        RN(gru_row)(x, u + i * r->g, r->bias_hn, before < 0 ? RN(row)(r, r->h0, n0 + i, h, prev, true) : RN(row)(r, r->y, before, h, prev, true), y, h);
        break;
      default:
        if (r->mode == RNN_TANH) RN(tanh_row)(x, h);
        else RN(relu_row)(x, h);
        memcpy(y, x, sizeof(RT) * (size_t)h);
      }
      RN(wrote)(r, r->y, row + i, h, y);
      /* the last step of this element? */
      if (r->reverse ? t > 0 : n0 + i < rnn_size(r, t + 1)) continue;
      memcpy(rnn_at(r->hn, (n0 + i) * h, r->op), rnn_at(r->y, (row + i) * h, r->op), amp__dtype_size[r->op] * (size_t)h);
      if (r->mode == RNN_LSTM) memcpy((RT *)r->cn + (n0 + i) * h, x + 4 * h, sizeof(RT) * (size_t)h);
    }
  }
}

/* -- Backward ----------------------------------------------------------------------- */

static void RN(start)(RT *d, int64_t ld, const void *g, int64_t n0, int64_t n, int64_t h) {
  for (int64_t i = 0; i < n; i++) {
    if (g) memcpy(d + i * ld, (const RT *)g + (n0 + i) * h, sizeof(RT) * (size_t)h);
    else memset(d + i * ld, 0, sizeof(RT) * (size_t)h);
  }
}

void RN(amp__rnn_backward)(const rnn *r, int64_t n0, int64_t n1, void *scratch) {
  int64_t h = r->h, g = r->g, rs = r->rs, wide = r->wide, chunk = n1 - n0;
  RT *tmp = (RT *)((char *)scratch + r->gemm), *tmp2 = tmp + g, *prev = tmp2 + g, *dh = prev + wide, *dc = dh + chunk * wide;
  const RT *reserve = r->reserve, *gy = r->gy, *c0 = reserve + r->rows * rs;
  RN(start)(dh, wide, r->ghn, n0, chunk, h);
  RN(start)(dc, h, r->gcn, n0, r->mode == RNN_LSTM ? chunk : 0, h);
  bool gru = r->mode == RNN_GRU;
  for (int64_t s = r->t - 1; s >= 0; s--) {
    int64_t t = r->reverse ? r->t - 1 - s : s, m = rnn_clip(rnn_size(r, t), n0, n1), row = rnn_first(r, t) + n0;
    for (int64_t i = 0; i < m; i++) {
      const RT *x = reserve + (row + i) * rs;
      RT *d = dh + i * wide, *q = RN(row)(r, r->dg, row + i, g, tmp, false);
      int64_t before = RN(before)(r, t, n0 + i);
      const void *state = before < 0 ? rnn_at(r->h0, (n0 + i) * r->r, r->op) : rnn_at(r->y, before * h, r->op);
      if (gy) RN(add_row)(d, gy + (row + i) * h, h);
      switch (r->mode) {
      case RNN_LSTM: RN(lstm_back)(x, before < 0 ? c0 + (n0 + i) * h : reserve + before * rs + 4 * h, d, dc + i * h, q, h); break;
      case RNN_GRU: {
        RT *u = RN(row)(r, r->dgh, row + i, g, tmp2, false);
        RN(gru_back)(x, RN(row)(r, state, 0, h, prev, true), d, q, u, h);
        RN(wrote)(r, r->dgh, row + i, g, u);
        break;
      }
      case RNN_TANH: RN(tanh_back)(x, d, q, h); break;
      default: RN(relu_back)(x, d, q, h);
      }
      RN(wrote)(r, r->dg, row + i, g, q);
      if (r->hprev) memcpy(rnn_at(r->hprev, (row + i) * r->r, r->op), state, amp__dtype_size[r->op] * (size_t)r->r);
    }
    if (m > 0) amp__rnn_product(&r->hh, m, rnn_at(gru ? r->dgh : r->dg, row * g, r->op), g, dh, wide, gru, NULL, scratch);
  }
  for (int64_t i = 0; i < chunk; i++) {
    memcpy((RT *)r->dh0 + (n0 + i) * r->r, dh + i * wide, sizeof(RT) * (size_t)r->r);
    if (r->mode == RNN_LSTM) memcpy((RT *)r->dc0 + (n0 + i) * h, dc + i * h, sizeof(RT) * (size_t)h);
  }
}

#undef RN
#undef RT
#undef RN_CLIP
