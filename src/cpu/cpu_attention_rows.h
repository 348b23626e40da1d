/*
** cpu_attention_rows.h: attention of one batch in one computing type AT,
** included for float and double by cpu_attention_rows.c (AN(x): names).
**
** forward, for a block of query rows     backward, for a block of keys
**   for blocks of keys                     for blocks of query rows
**     s = q k^T + mask                       p = exp(q k^T + mask - lse)
**     m' = max(m, max s), p = exp(s - m')    dp = g v^T,  ds = p (dp - sum g out)
**     l, acc *= exp(m - m');                 dv += p^T g,  dk += ds^T q
**     l += sum p, acc += p v                 dq += ds k
**   out = acc / l, lse = m + log l
**
** Queries are scaled when they are read, keys and values packed for the
** products once a batch (forward) or once a block (backward). Rows without a key
** give 0. A score of NaN, or of +inf, makes its row NaN.
*/

/* -- Rows ---------------------------------------------------------------------- */

AMP_CLONES_OF(AT) static void AN(scale)(AT *y, const AT *x, AT f, int64_t n) {
  AMP_IVDEP for (int64_t i = 0; i < n; i++) y[i] = x[i] * f;
}

AMP_CLONES_OF(AT) static void AN(add)(AT *y, const AT *x, int64_t n) {
  AMP_IVDEP for (int64_t i = 0; i < n; i++) y[i] += x[i];
}

AMP_CLONES_OF(AT) static void AN(exclude)(AT *y, const uint8_t *keep, int64_t stride, int64_t n) {
  if (stride == 1) {
    AMP_IVDEP for (int64_t i = 0; i < n; i++) y[i] = keep[i] ? y[i] : (AT)-INFINITY;
  } else
    for (int64_t i = 0; i < n; i++) y[i] = keep[i * stride] ? y[i] : (AT)-INFINITY;
}

AMP_CLONES_OF(AT) static AT AN(exp_sum)(AT *x, AT m, int64_t n) {
  AT s = 0;
  _Pragma("omp simd reduction(+ : s)") for (int64_t i = 0; i < n; i++) {
    AT e = AN(exp)(x[i] - m);
    x[i] = e;
    s += e;
  }
  return s;
}

/* p = exp(x - lse), d = p (d - sum) */
AMP_CLONES_OF(AT) static void AN(back_row)(AT *x, AT *d, AT lse, AT sum, int64_t n) {
  AMP_IVDEP for (int64_t i = 0; i < n; i++) {
    AT p = AN(exp)(x[i] - lse);
    x[i] = p;
    d[i] = p * (d[i] - sum);
  }
}

AMP_CLONES_OF(AT) static AT AN(dot)(const AT *a, const AT *b, int64_t n) {
  AT s = 0;
  _Pragma("omp simd reduction(+ : s)") for (int64_t i = 0; i < n; i++) s += a[i] * b[i];
  return s;
}

/* n rows of `size` of a tensor, from row i on, side by side in the computing type */
static void AN(read)(AT *dst, const amp_tensor *t, int64_t at, int64_t i, int64_t n, int64_t size) {
  int64_t rs = t->stride[t->ndim - 2], cs = t->stride[t->ndim - 1];
  for (int64_t r = 0; r < n; r++) AN(load)(dst + r * size, amp__nn_at(t, at + (i + r) * rs), t->dtype, cs, size);
}

static void AN(write)(const amp_tensor *t, int64_t at, int64_t i, const AT *src, int64_t size) {
  int64_t rs = t->stride[t->ndim - 2], cs = t->stride[t->ndim - 1];
  AN(store)((void *)(uintptr_t)amp__nn_at(t, at + i * rs), t->dtype, cs, src, size);
}

/* Scores of row i for keys j .. j + n - 1, with the mask's word on them */
static void AN(mask)(const attention *a, int64_t at, int64_t i, int64_t j, AT *x, int64_t n, AT *buf) {
  const amp_tensor *t = a->mask;
  int64_t cs = t->stride[t->ndim - 1];
  const void *p = amp__nn_at(t, at + i * t->stride[t->ndim - 2] + j * cs);
  if (t->dtype == AMP_BOOL) { AN(exclude)(x, p, cs, n); return; }
  if (t->dtype != a->type || cs != 1) {
    AN(load)(buf, p, t->dtype, cs, n);
    p = buf;
  }
  AN(add)(x, p, n);
}

/* Keys that row i may see of the block of n from key j on */
static inline int64_t AN(seen)(const attention *a, int64_t i, int64_t j, int64_t n) {
  int64_t s = a->causal ? i + 1 - j : n;
  return s < 0 ? 0 : s < n ? s : n;
}

/* B = the n x size block (its transpose, if `turned`) that lies at `rows`, packed */
static void AN(pack)(const AT *rows, int64_t n, int64_t size, bool turned, AT *dst) {
  amp_gemm g = {.n = turned ? n : size, .k = turned ? size : n, .b = rows, .brs = turned ? 1 : size, .bcs = turned ? size : 1};
  amp__gemm_pack_b(&g, AN(type), dst);
}

static size_t AN(packed)(int64_t n, int64_t size, bool turned) {
  amp_gemm g = {.n = turned ? n : size, .k = turned ? size : n};
  return (amp__gemm_packed_size(&g, AN(type)) / sizeof(AT) + 15) / 16 * 16;
}

/* n rows of t from row j on, where they lie if they can be read there, else in buf */
static const AT *AN(plain)(const amp_tensor *t, int64_t at, int64_t j, int64_t n, int64_t size, AT *buf, int64_t *stride) {
  int64_t rs = t->stride[t->ndim - 2];
  if (t->dtype == AN(type) && t->stride[t->ndim - 1] == 1) {
    *stride = rs;
    return amp__nn_at(t, at + j * rs);
  }
  AN(read)(buf, t, at, j, n, size);
  *stride = size;
  return buf;
}

static inline int64_t AN(pitch)(int64_t n) { return n + 16; } /* no power of two: rows would share cache sets */
static inline size_t AN(room)(int64_t n) { return (size_t)(n + 15) / 16 * 16; }

/* -- Forward ------------------------------------------------------------------------ */

size_t amp__attention_forward_size_(const attention *a) {
  int64_t blocks = a->length > FEW ? (a->keys + a->bk - 1) / a->bk : 0, wide = a->size > a->vsize ? a->size : a->vsize;
  return AN(room)(a->bq * a->size) + AN(room)(a->bq * AN(pitch)(a->bk)) + AN(room)(a->bq * a->vsize) + 2 * AN(room)(a->bq) + AN(room)(a->bk)
         + AN(room)(a->vsize) + AN(room)(a->bk * wide) + (size_t)blocks * (AN(packed)(a->bk, a->size, true) + AN(packed)(a->bk, a->vsize, false));
}

/* One row of scores becomes weights against the row's largest so far; gives the factor for what was summed before. */
static AT AN(online)(AT *x, int64_t n, int64_t cols, AT *m, AT *l) {
  AT top = n > 0 ? AN(row_max)(x, n) : (AT)-INFINITY, old = *m, f = 1;
  if (old > top) top = old;
  if (top == (AT)-INFINITY) { /* nothing to see, or NaN, which is no largest */
    for (int64_t c = 0; c < n; c++) x[c] = x[c] != x[c] ? x[c] : 0;
    for (int64_t c = 0; c < n; c++) *l += x[c];
  } else {
    f = AN(exp)(old - top);
    *l = *l * f + AN(exp_sum)(x, top, n);
    *m = top;
  }
  for (int64_t c = n; c < cols; c++) x[c] = 0;
  return f;
}

void amp__attention_forward_(const attention *a, int64_t b, int64_t lo, int64_t hi, void *scratch) {
  int64_t size = a->size, vsize = a->vsize, bk = a->bk, ld = AN(pitch)(bk), wide = size > vsize ? size : vsize;
  int64_t limit = a->causal && hi < a->keys ? hi : a->keys, blocks = (limit + bk - 1) / bk;
  size_t kp = AN(packed)(bk, size, true), vp = AN(packed)(bk, vsize, false);
  char *gemm = scratch;
  AT *q = (AT *)(gemm + a->gemm_bytes), *s = q + AN(room)(a->bq * size), *acc = s + AN(room)(a->bq * ld), *m = acc + AN(room)(a->bq * vsize);
  AT *l = m + AN(room)(a->bq), *buf = l + AN(room)(a->bq), *one = buf + AN(room)(bk), *rows = one + AN(room)(vsize), *keys = rows + AN(room)(bk * wide),
     *values = keys + (size_t)blocks * kp;
  int64_t qat = attention_at(a->q, b), kat = attention_at(a->k, b), vat = attention_at(a->v, b), oat = attention_at(a->out, b);
  int64_t mat = a->mask ? attention_at(a->mask, b) : 0;
  AT *lse = AMP_DATA(AT, a->lse) + b * a->length;
  bool few = hi - lo <= FEW; /* packing would cost more than the products */
  for (int64_t j = 0; j < blocks && !few; j++) {
    int64_t n = a->keys - j * bk < bk ? a->keys - j * bk : bk;
    AN(read)(rows, a->k, kat, j * bk, n, size);
    AN(pack)(rows, n, size, true, keys + (size_t)j * kp);
    AN(read)(rows, a->v, vat, j * bk, n, vsize);
    AN(pack)(rows, n, vsize, false, values + (size_t)j * vp);
  }
  for (int64_t i = lo; i < hi; i += a->bq) {
    int64_t nq = hi - i < a->bq ? hi - i : a->bq, upto = a->causal && i + nq < limit ? i + nq : limit;
    AN(read)(q, a->q, qat, i, nq, size);
    AN(scale)(q, q, (AT)a->scale, nq * size);
    for (int64_t r = 0; r < nq; r++) { m[r] = (AT)-INFINITY; l[r] = 0; }
    if (upto == 0) memset(acc, 0, sizeof(AT) * (size_t)(nq * vsize));
    for (int64_t j = 0; j < upto; j += bk) {
      int64_t whole = a->keys - j < bk ? a->keys - j : bk, n = upto - j < whole ? upto - j : whole;
      amp_gemm g = {.m = nq, .n = n, .k = size, .a = q, .ars = size, .acs = 1, .packed_b = few ? NULL : keys + (size_t)(j / bk) * kp,
                    .packed_k = size, .packed_n = whole, .c = s, .crs = ld, .ccs = 1};
      if (few) {
        g.b = AN(plain)(a->k, kat, j, n, size, rows, &g.bcs);
        g.brs = g.m = 1;
        for (int64_t r = 0; r < nq; r++, g.a = q + r * size, g.c = s + r * ld) amp__gemm(&g, AN(type), gemm);
      } else amp__gemm(&g, AN(type), gemm);
      for (int64_t r = 0; r < nq; r++) {
        AT *x = s + r * ld;
        int64_t seen = AN(seen)(a, i + r, j, n);
        if (a->mask) AN(mask)(a, mat, i + r, j, x, seen, buf);
        AT f = AN(online)(x, seen, n, &m[r], &l[r]);
        if (j > 0 && f != 1) AN(scale)(acc + r * vsize, acc + r * vsize, f, vsize);
      }
      amp_gemm h = {.m = nq, .n = vsize, .k = n, .a = s, .ars = ld, .acs = 1, .packed_b = few ? NULL : values + (size_t)(j / bk) * vp,
                    .packed_k = whole, .packed_n = vsize, .c = acc, .crs = vsize, .ccs = 1, .accumulate = j > 0};
      if (few) {
        h.b = AN(plain)(a->v, vat, j, n, vsize, rows, &h.brs);
        h.bcs = h.m = 1;
        h.accumulate = false;
        for (int64_t r = 0; r < nq; r++) {
          h.a = s + r * ld;
          h.c = j > 0 ? one : acc + r * vsize;
          amp__gemm(&h, AN(type), gemm);
          if (j > 0) AN(add)(acc + r * vsize, one, vsize);
        }
      } else amp__gemm(&h, AN(type), gemm);
    }
    for (int64_t r = 0; r < nq; r++) {
      AT *y = acc + r * vsize;
      AN(scale)(y, y, l[r] == 0 ? 0 : 1 / l[r], vsize);
      AN(write)(a->out, oat, i + r, y, vsize);
      lse[i + r] = l[r] == 0 ? (AT)-INFINITY : m[r] + AN(log)(l[r]);
    }
  }
}

/* -- Backward ----------------------------------------------------------------------------- */

size_t amp__attention_backward_size_(const attention *a) {
  int64_t ld = AN(pitch)(a->bk), wide = a->size > a->vsize ? a->size : a->vsize;
  return 2 * AN(room)(a->length * a->size) + AN(room)(a->length * a->vsize) + AN(room)(a->length) + 2 * AN(room)(a->bq * ld)
         + AN(room)(a->bk * wide) + AN(room)(a->bk * a->size) + AN(room)(a->bk * a->vsize) + AN(room)(a->bk)
         + AN(packed)(a->bk, a->size, true) + AN(packed)(a->bk, a->vsize, true) + AN(packed)(a->bk, a->size, false);
}

void amp__attention_backward_(const attention *a, int64_t b, void *scratch) {
  int64_t length = a->length, size = a->size, vsize = a->vsize, bq = a->bq, bk = a->bk, ld = AN(pitch)(bk), wide = size > vsize ? size : vsize;
  char *gemm = scratch;
  AT *q = (AT *)(gemm + a->gemm_bytes), *dq = q + AN(room)(length * size), *gr = dq + AN(room)(length * size), *sum = gr + AN(room)(length * vsize);
  AT *s = sum + AN(room)(length), *d = s + AN(room)(bq * ld), *rows = d + AN(room)(bq * ld), *dk = rows + AN(room)(bk * wide), *dv = dk + AN(room)(bk * size);
  AT *buf = dv + AN(room)(bk * vsize), *kt = buf + AN(room)(bk), *vt = kt + AN(packed)(bk, size, true), *kk = vt + AN(packed)(bk, vsize, true);
  int64_t kat = attention_at(a->k, b), vat = attention_at(a->v, b), oat = attention_at(a->out, b), mat = a->mask ? attention_at(a->mask, b) : 0;
  int64_t dqat = attention_at(a->dq, b), dkat = attention_at(a->dk, b), dvat = attention_at(a->dv, b);
  const AT *lse = AMP_DATA(AT, a->lse) + b * length;
  AN(read)(q, a->q, attention_at(a->q, b), 0, length, size);
  AN(scale)(q, q, (AT)a->scale, length * size);
  AN(read)(gr, a->g, attention_at(a->g, b), 0, length, vsize);
  for (int64_t i = 0; i < length; i++) {
    for (int64_t c = 0; c < vsize; c += bk) { /* in pieces, through the buffer of a row of the mask */
      int64_t n = vsize - c < bk ? vsize - c : bk;
      AN(load)(buf, amp__nn_at(a->out, oat + i * a->out->stride[a->out->ndim - 2] + c * a->out->stride[a->out->ndim - 1]), a->out->dtype,
               a->out->stride[a->out->ndim - 1], n);
      sum[i] = (c ? sum[i] : 0) + AN(dot)(gr + i * vsize + c, buf, n);
    }
    if (vsize == 0) sum[i] = 0;
  }
  memset(dq, 0, sizeof(AT) * (size_t)(length * size));
  for (int64_t j = 0; j < a->keys; j += bk) {
    int64_t n = a->keys - j < bk ? a->keys - j : bk;
    AN(read)(rows, a->v, vat, j, n, vsize);
    AN(pack)(rows, n, vsize, true, vt);
    AN(read)(rows, a->k, kat, j, n, size);
    AN(pack)(rows, n, size, true, kt);
    AN(pack)(rows, n, size, false, kk);
    memset(dk, 0, sizeof(AT) * (size_t)(n * size));
    memset(dv, 0, sizeof(AT) * (size_t)(n * vsize));
    for (int64_t i = a->causal ? j / bq * bq : 0; i < length; i += bq) {
      int64_t nq = length - i < bq ? length - i : bq, cols = AN(seen)(a, i + nq - 1, j, n);
      if (cols == 0) continue;
      amp_gemm g1 = {.m = nq, .n = cols, .k = size, .a = q + i * size, .ars = size, .acs = 1, .packed_b = kt, .packed_k = size, .packed_n = n,
                     .c = s, .crs = ld, .ccs = 1};
      amp__gemm(&g1, AN(type), gemm);
      amp_gemm g2 = {.m = nq, .n = cols, .k = vsize, .a = gr + i * vsize, .ars = vsize, .acs = 1, .packed_b = vt, .packed_k = vsize, .packed_n = n,
                     .c = d, .crs = ld, .ccs = 1};
      amp__gemm(&g2, AN(type), gemm);
      for (int64_t r = 0; r < nq; r++) {
        AT *x = s + r * ld, *e = d + r * ld, top = lse[i + r];
        int64_t seen = top == (AT)-INFINITY ? 0 : AN(seen)(a, i + r, j, cols);
        if (a->mask) AN(mask)(a, mat, i + r, j, x, seen, buf);
        AN(back_row)(x, e, top, sum[i + r], seen);
        for (int64_t c = seen; c < cols; c++) x[c] = e[c] = 0;
      }
      amp_gemm g3 = {.m = cols, .n = vsize, .k = nq, .a = s, .ars = 1, .acs = ld, .b = gr + i * vsize, .brs = vsize, .bcs = 1,
                     .c = dv, .crs = vsize, .ccs = 1, .accumulate = true};
      amp__gemm(&g3, AN(type), gemm);
      amp_gemm g4 = {.m = cols, .n = size, .k = nq, .a = d, .ars = 1, .acs = ld, .b = q + i * size, .brs = size, .bcs = 1,
                     .c = dk, .crs = size, .ccs = 1, .accumulate = true};
      amp__gemm(&g4, AN(type), gemm);
      amp_gemm g5 = {.m = nq, .n = size, .k = cols, .a = d, .ars = ld, .acs = 1, .packed_b = kk, .packed_k = n, .packed_n = size,
                     .c = dq + i * size, .crs = size, .ccs = 1, .accumulate = true};
      amp__gemm(&g5, AN(type), gemm);
    }
    for (int64_t r = 0; r < n; r++) {
      AN(write)(a->dk, dkat, j + r, dk + r * size, size);
      AN(write)(a->dv, dvat, j + r, dv + r * vsize, vsize);
    }
  }
  AN(scale)(dq, dq, (AT)a->scale, length * size);
  for (int64_t i = 0; i < length; i++) AN(write)(a->dq, dqat, i, dq + i * size, size);
}

#undef AN
#undef AT
#undef amp__attention_forward_
#undef amp__attention_forward_size_
#undef amp__attention_backward_
#undef amp__attention_backward_size_
