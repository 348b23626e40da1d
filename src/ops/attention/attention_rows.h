/*
** ops/attention/attention_rows.h: attention of one batch in one computing type AT,
** included for float and double by ops/attention/attention_rows.c (AN(x): names).
**
** forward, for a block of query rows     backward, for a block of keys
**   for blocks of keys                     for blocks of query rows
**     s = q k^T + mask                       p = exp(q k^T + mask - lse)
**     m' = max(m, max s), p = exp(s - m')    dp = g v^T,  ds = p (dp - sum g out)
**     l, acc *= exp(m - m');                 dv += p^T g,  dk += ds^T q
**     l += sum p, acc += p v                 dq += ds k
**   out = acc / l, lse = m + log l
**
** With dropout p is 0 for dropped weights where it weighs values (acc, dv), which l does not see, and 1 / (1 - p) of
** the others' is in the last factor; dp is 0 there too.
**
** Queries are scaled when they are read, keys and values packed for the
** products once a batch (forward) or once a block (backward). Rows without a key
** give 0. A score of NaN, or of +inf, makes its row NaN.
*/

/* -- Rows ---------------------------------------------------------------------- */

AMP_CLONES_OF(real) static void NAME(scale)(real *y, const real *x, real f, int64_t keys)
{
  AMP_IVDEP
  for (int64_t i = 0; i < keys; i++) y[i] = x[i] * f;
}

AMP_CLONES_OF(real) static void NAME(add)(real *y, const real *x, int64_t keys)
{
  AMP_IVDEP
  for (int64_t i = 0; i < keys; i++) y[i] += x[i];
}

AMP_CLONES_OF(real) static void NAME(exclude)(real *y, const uint8_t *keep, int64_t stride, int64_t keys)
{
  if (stride == 1) {
    AMP_IVDEP
    for (int64_t i = 0; i < keys; i++) y[i] = keep[i] ? y[i] : (real)-INFINITY;
  } else
    for (int64_t i = 0; i < keys; i++) y[i] = keep[i * stride] ? y[i] : (real)-INFINITY;
}

AMP_CLONES_OF(real) static real NAME(exp_sum)(real *x, real m, int64_t count)
{
  real s = 0;
  _Pragma("omp simd reduction(+ : s)") for (int64_t i = 0; i < count; i++)
  {
    real e = NAME(exp)(x[i] - m);
    x[i] = e;
    s += e;
  }
  return s;
}

/* p = exp(x - lse), d = p (d - sum) */
AMP_CLONES_OF(real) static void NAME(back_row)(real *x, real *d, real lse, real sum, int64_t count)
{
  AMP_IVDEP
  for (int64_t i = 0; i < count; i++) {
    real p = NAME(exp)(x[i] - lse);
    x[i] = p;
    d[i] = p * (d[i] - sum);
  }
}

/* Weights whose words are too small become 0 */
AMP_CLONES_OF(real) static void NAME(drop)(real *x, const uint32_t *words, uint32_t least, int64_t count)
{
  AMP_IVDEP
  for (int64_t i = 0; i < count; i++) x[i] = words[i] >= least ? x[i] : 0;
}

/* back_row with dropout: d counts where a weight was kept, scaled, and x is what the values were weighted with */
AMP_CLONES_OF(real)
static void NAME(back_dropped)(real *x, real *d, real lse, real sum, const uint32_t *words, uint32_t least, real scale,
                               int64_t count)
{
  AMP_IVDEP
  for (int64_t i = 0; i < count; i++) {
    real p = NAME(exp)(x[i] - lse), e = d[i] * scale;
    x[i] = words[i] >= least ? p * scale : 0;
    d[i] = p * ((words[i] >= least ? e : 0) - sum);
  }
}

AMP_CLONES_OF(real) static real NAME(dot)(const real *a, const real *b, int64_t keys)
{
  real s = 0;
  _Pragma("omp simd reduction(+ : s)") for (int64_t i = 0; i < keys; i++) s += a[i] * b[i];
  return s;
}

/* As many rows of `size` of a tensor as `keys` says, from row i on, side by side in the computing type */
static void NAME(read)(real *dst, const amp_tensor *tensor, int64_t at, int64_t i, int64_t keys, int64_t size)
{
  int64_t row_stride = tensor->stride[tensor->ndim - 2], col_stride = tensor->stride[tensor->ndim - 1];
  for (int64_t r = 0; r < keys; r++)
    NAME(load)(dst + r * size, amp__address_of(tensor, at + (i + r) * row_stride), tensor->dtype, col_stride, size);
}

static void NAME(write)(const amp_tensor *tensor, int64_t at, int64_t i, const real *src, int64_t size)
{
  int64_t row_stride = tensor->stride[tensor->ndim - 2], col_stride = tensor->stride[tensor->ndim - 1];
  NAME(store)((void *)(uintptr_t)amp__address_of(tensor, at + i * row_stride), tensor->dtype, col_stride, src, size);
}

/* Scores of row i for keys j .. j + count - 1, with the mask's word on them */
static void NAME(mask)(const attention *job, int64_t at, int64_t i, int64_t j, real *x, int64_t count, real *buf)
{
  const amp_tensor *tensor = job->mask;
  int64_t col_stride = tensor->stride[tensor->ndim - 1];
  const void *p = amp__address_of(tensor, at + i * tensor->stride[tensor->ndim - 2] + j * col_stride);
  if (tensor->dtype == AMP_BOOL) {
    NAME(exclude)(x, p, col_stride, count);
    return;
  }
  if (tensor->dtype != job->type || col_stride != 1) {
    NAME(load)(buf, p, tensor->dtype, col_stride, count);
    p = buf;
  }
  NAME(add)(x, p, count);
}

/* Keys that row i may see of the block of keys from key j on */
static inline int64_t NAME(seen)(const attention *job, int64_t i, int64_t j, int64_t keys)
{
  int64_t s = job->causal ? i + 1 - j : keys;
  return s < 0 ? 0 : s < keys ? s : keys;
}

/* B = the keys x size block (its transpose, if `turned`) that lies at `rows`, packed */
static void NAME(pack)(const real *rows, int64_t keys, int64_t size, bool turned, real *dst)
{
  amp_gemm gemm = {
    .n = turned ? keys : size, .k = turned ? size : keys, .b = rows, .brs = turned ? 1 : size, .bcs = turned ? size : 1
  };
  amp__gemm_pack_b(&gemm, NAME(type), dst);
}

static size_t NAME(packed)(int64_t keys, int64_t size, bool turned)
{
  amp_gemm gemm = { .n = turned ? keys : size, .k = turned ? size : keys };
  return (amp__gemm_packed_size(&gemm, NAME(type)) / sizeof(real) + 15) / 16 * 16;
}

/* count rows of tensor from row j on, where they lie if they can be read there, else in buf */
static const real *NAME(plain)(const amp_tensor *tensor, int64_t at, int64_t j, int64_t count, int64_t size, real *buf,
                               int64_t *stride)
{
  int64_t row_stride = tensor->stride[tensor->ndim - 2];
  if (tensor->dtype == NAME(type) && tensor->stride[tensor->ndim - 1] == 1) {
    *stride = row_stride;
    return amp__address_of(tensor, at + j * row_stride);
  }
  NAME(read)(buf, tensor, at, j, count, size);
  *stride = size;
  return buf;
}

static inline int64_t NAME(pitch)(int64_t keys) { return keys + 16; } /* no power of two: rows would share cache sets */
static inline size_t NAME(room)(int64_t keys) { return (size_t)(keys + 15) / 16 * 16; }

/* -- Forward ------------------------------------------------------------------------ */

size_t amp__attention_forward_size_(const attention *job)
{
  int64_t blocks = job->length > FEW ? (job->keys + job->block_keys - 1) / job->block_keys : 0,
          wide = job->size > job->value_size ? job->size : job->value_size;
  return NAME(room)(job->block_rows * job->size) + NAME(room)(job->block_rows * NAME(pitch)(job->block_keys))
         + NAME(room)(job->block_rows * job->value_size) + 2 * NAME(room)(job->block_rows) + NAME(room)(job->block_keys)
         + NAME(room)(job->value_size) + NAME(room)(job->block_keys * wide)
         + (size_t)blocks
               * (NAME(packed)(job->block_keys, job->size, true)
                  + NAME(packed)(job->block_keys, job->value_size, false));
}

/* One row of scores becomes weights against the row's largest so far; gives the factor for what was summed before. */
static real NAME(online)(real *x, int64_t count, int64_t cols, real *m, real *l)
{
  real top = count > 0 ? NAME(row_max)(x, count) : (real)-INFINITY, old = *m, f = 1;
  if (old > top) top = old;
  if (top == (real)-INFINITY) { /* nothing to see, or NaN, which is no largest */
    for (int64_t c = 0; c < count; c++) x[c] = x[c] != x[c] ? x[c] : 0;
    for (int64_t c = 0; c < count; c++) *l += x[c];
  } else {
    f = NAME(exp)(old - top);
    *l = *l * f + NAME(exp_sum)(x, top, count);
    *m = top;
  }
  for (int64_t c = count; c < cols; c++) x[c] = 0;
  return f;
}

/* A thread's scratch in forward, and where the batch lies in each tensor */
typedef struct NAME(forward) {
  const attention *job;
  char *gemm;
  real *queries, *scores, *sums; /* a block of queries, its scores, the weighted values */
  real *top, *total;             /* of each row of scores: the largest, the sum of exponentials */
  real *buf, *one, *rows;        /* a row of the mask, of values; a block of keys or values */
  real *keys, *values;           /* packed blocks */
  size_t key_pack, value_pack;
  int64_t pitch, query_at, key_at, value_at, out_at, mask_at;
  bool few; /* packing would cost more than the products */
} NAME(forward);

static void NAME(forward_scratch)(NAME(forward) * work, const attention *job, int64_t batch, int64_t blocks,
                                  void *scratch)
{
  int64_t wide = job->size > job->value_size ? job->size : job->value_size;
  work->job = job;
  work->pitch = NAME(pitch)(job->block_keys);
  work->key_pack = NAME(packed)(job->block_keys, job->size, true);
  work->value_pack = NAME(packed)(job->block_keys, job->value_size, false);
  work->gemm = scratch;
  work->queries = (real *)(work->gemm + job->gemm_bytes);
  work->scores = work->queries + NAME(room)(job->block_rows * job->size);
  work->sums = work->scores + NAME(room)(job->block_rows * work->pitch);
  work->top = work->sums + NAME(room)(job->block_rows * job->value_size);
  work->total = work->top + NAME(room)(job->block_rows);
  work->buf = work->total + NAME(room)(job->block_rows);
  work->one = work->buf + NAME(room)(job->block_keys);
  work->rows = work->one + NAME(room)(job->value_size);
  work->keys = work->rows + NAME(room)(job->block_keys * wide);
  work->values = work->keys + (size_t)blocks * work->key_pack;
  work->query_at = attention_at(job->query, batch);
  work->key_at = attention_at(job->key, batch);
  work->value_at = attention_at(job->value, batch);
  work->out_at = attention_at(job->out, batch);
  work->mask_at = job->mask ? attention_at(job->mask, batch) : 0;
}

static void NAME(pack_all)(const NAME(forward) * work, int64_t blocks)
{
  const attention *job = work->job;
  for (int64_t block = 0; block < blocks; block++) {
    int64_t j = block * job->block_keys, keys = job->keys - j < job->block_keys ? job->keys - j : job->block_keys;
    NAME(read)(work->rows, job->key, work->key_at, j, keys, job->size);
    NAME(pack)(work->rows, keys, job->size, true, work->keys + (size_t)block * work->key_pack);
    NAME(read)(work->rows, job->value, work->value_at, j, keys, job->value_size);
    NAME(pack)(work->rows, keys, job->value_size, false, work->values + (size_t)block * work->value_pack);
  }
}

/* s = q k^T for a block of queries and `count` keys from key j on, whose block has `whole` */
static void NAME(scores)(const NAME(forward) * work, int64_t queries, int64_t j, int64_t count, int64_t whole)
{
  const attention *job = work->job;
  amp_gemm gemm = { .m = queries,
                    .n = count,
                    .k = job->size,
                    .a = work->queries,
                    .ars = job->size,
                    .acs = 1,
                    .packed_b = work->few ? NULL : work->keys + (size_t)(j / job->block_keys) * work->key_pack,
                    .packed_k = job->size,
                    .packed_n = whole,
                    .c = work->scores,
                    .crs = work->pitch,
                    .ccs = 1 };
  if (!work->few) {
    amp__gemm(&gemm, NAME(type), work->gemm);
    return;
  }
  gemm.b = NAME(plain)(job->key, work->key_at, j, count, job->size, work->rows, &gemm.bcs);
  gemm.brs = gemm.m = 1;
  for (int64_t r = 0; r < queries; r++, gemm.a = work->queries + r * job->size, gemm.c = work->scores + r * work->pitch)
    amp__gemm(&gemm, NAME(type), work->gemm);
}

/* acc += s v */
static void NAME(weigh)(const NAME(forward) * work, int64_t queries, int64_t j, int64_t count, int64_t whole)
{
  const attention *job = work->job;
  int64_t vsize = job->value_size;
  amp_gemm gemm = { .m = queries,
                    .n = vsize,
                    .k = count,
                    .a = work->scores,
                    .ars = work->pitch,
                    .acs = 1,
                    .packed_b = work->few ? NULL : work->values + (size_t)(j / job->block_keys) * work->value_pack,
                    .packed_k = whole,
                    .packed_n = vsize,
                    .c = work->sums,
                    .crs = vsize,
                    .ccs = 1,
                    .accumulate = j > 0 };
  if (!work->few) {
    amp__gemm(&gemm, NAME(type), work->gemm);
    return;
  }
  gemm.b = NAME(plain)(job->value, work->value_at, j, count, vsize, work->rows, &gemm.brs);
  gemm.bcs = gemm.m = 1;
  gemm.accumulate = false;
  for (int64_t r = 0; r < queries; r++) {
    gemm.a = work->scores + r * work->pitch;
    gemm.c = j > 0 ? work->one : work->sums + r * vsize;
    amp__gemm(&gemm, NAME(type), work->gemm);
    if (j > 0) NAME(add)(work->sums + r * vsize, work->one, vsize);
  }
}

void amp__attention_forward_(const attention *job, int64_t batch, int64_t lo, int64_t hi, void *scratch)
{
  int64_t size = job->size, vsize = job->value_size, key_block = job->block_keys,
          limit = job->causal && hi < job->keys ? hi : job->keys;
  int64_t blocks = (limit + key_block - 1) / key_block;
  NAME(forward) work = { .few = hi - lo <= FEW };
  NAME(forward_scratch)(&work, job, batch, blocks, scratch);
  real *lse = AMP_DATA(real, job->lse) + batch * job->length;
  attention_draw draw;
  draw.block = -1;
  draw.second = false;
  if (!work.few) NAME(pack_all)(&work, blocks);
  for (int64_t i = lo; i < hi; i += job->block_rows) {
    int64_t queries = hi - i < job->block_rows ? hi - i : job->block_rows,
            upto = job->causal && i + queries < limit ? i + queries : limit;
    NAME(read)(work.queries, job->query, work.query_at, i, queries, size);
    NAME(scale)(work.queries, work.queries, (real)job->scale, queries * size);
    for (int64_t r = 0; r < queries; r++) {
      work.top[r] = (real)-INFINITY;
      work.total[r] = 0;
    }
    if (upto == 0) memset(work.sums, 0, sizeof(real) * (size_t)(queries * vsize));
    for (int64_t j = 0; j < upto; j += key_block) {
      int64_t whole = job->keys - j < key_block ? job->keys - j : key_block,
              count = upto - j < whole ? upto - j : whole;
      NAME(scores)(&work, queries, j, count, whole);
      for (int64_t r = 0; r < queries; r++) {
        real *x = work.scores + r * work.pitch;
        int64_t seen = NAME(seen)(job, i + r, j, count);
        if (job->mask) NAME(mask)(job, work.mask_at, i + r, j, x, seen, work.buf);
        real factor = NAME(online)(x, seen, count, &work.top[r], &work.total[r]);
        if (job->dropping && seen > 0)
          NAME(drop)(x, attention_words(job, &draw, batch, i + r, j, seen), job->least, seen);
        if (j > 0 && factor != 1) NAME(scale)(work.sums + r * vsize, work.sums + r * vsize, factor, vsize);
      }
      NAME(weigh)(&work, queries, j, count, whole);
    }
    for (int64_t r = 0; r < queries; r++) {
      real *y = work.sums + r * vsize, total = work.total[r];
      NAME(scale)(y, y, total == 0 ? 0 : (real)job->kept_scale / total, vsize);
      NAME(write)(job->out, work.out_at, i + r, y, vsize);
      lse[i + r] = total == 0 ? (real)-INFINITY : work.top[r] + NAME(log)(total);
    }
  }
}

/* -- Backward ----------------------------------------------------------------------------- */

size_t amp__attention_backward_size_(const attention *job)
{
  int64_t ld = NAME(pitch)(job->block_keys), wide = job->size > job->value_size ? job->size : job->value_size;
  return 2 * NAME(room)(job->length * job->size) + NAME(room)(job->length * job->value_size) + NAME(room)(job->length)
         + 2 * NAME(room)(job->block_rows * ld) + NAME(room)(job->block_keys * wide)
         + NAME(room)(job->block_keys * job->size) + NAME(room)(job->block_keys * job->value_size)
         + NAME(room)(job->block_keys) + NAME(packed)(job->block_keys, job->size, true)
         + NAME(packed)(job->block_keys, job->value_size, true) + NAME(packed)(job->block_keys, job->size, false);
}

/* A thread's scratch in backward */
typedef struct NAME(backward) {
  const attention *job;
  char *gemm;
  real *queries, *dqueries, *grad;    /* of the whole batch, as are the sums */
  real *sum;                          /* of grad times out, a row each */
  real *weights, *dweights;           /* a block of scores, then weights, and of their gradients */
  real *rows, *dkeys, *dvalues, *buf; /* a block of keys or values, its gradients, a row of the mask */
  real *keys_turned, *values_turned;  /* packed: k^T, v^T */
  real *keys;                         /* packed: k */
  int64_t pitch, mask_at, batch;
  attention_draw draw;
} NAME(backward);

static void NAME(backward_scratch)(NAME(backward) * work, const attention *job, int64_t batch, void *scratch)
{
  int64_t query_block = job->block_rows, key_block = job->block_keys, size = job->size, vsize = job->value_size,
          wide = size > vsize ? size : vsize;
  work->job = job;
  work->batch = batch;
  work->draw.block = -1;
  work->draw.second = false;
  work->pitch = NAME(pitch)(key_block);
  work->gemm = scratch;
  work->queries = (real *)(work->gemm + job->gemm_bytes);
  work->dqueries = work->queries + NAME(room)(job->length * size);
  work->grad = work->dqueries + NAME(room)(job->length * size);
  work->sum = work->grad + NAME(room)(job->length * vsize);
  work->weights = work->sum + NAME(room)(job->length);
  work->dweights = work->weights + NAME(room)(query_block * work->pitch);
  work->rows = work->dweights + NAME(room)(query_block * work->pitch);
  work->dkeys = work->rows + NAME(room)(key_block * wide);
  work->dvalues = work->dkeys + NAME(room)(key_block * size);
  work->buf = work->dvalues + NAME(room)(key_block * vsize);
  work->keys_turned = work->buf + NAME(room)(key_block);
  work->values_turned = work->keys_turned + NAME(packed)(key_block, size, true);
  work->keys = work->values_turned + NAME(packed)(key_block, vsize, true);
  work->mask_at = job->mask ? attention_at(job->mask, batch) : 0;
}

/* Queries (scaled) and gradients of the batch, and what softmax's derivative subtracts in each row */
static void NAME(read_batch)(const NAME(backward) * work, int64_t batch)
{
  const attention *job = work->job;
  int64_t key_block = job->block_keys, vsize = job->value_size, out_at = attention_at(job->out, batch);
  int64_t row = job->out->stride[job->out->ndim - 2], step = job->out->stride[job->out->ndim - 1];
  NAME(read)(work->queries, job->query, attention_at(job->query, batch), 0, job->length, job->size);
  NAME(scale)(work->queries, work->queries, (real)job->scale, job->length * job->size);
  NAME(read)(work->grad, job->grad, attention_at(job->grad, batch), 0, job->length, vsize);
  for (int64_t i = 0; i < job->length; i++) {
    for (int64_t c = 0; c < vsize; c += key_block) { /* in pieces, through the buffer of a row of the mask */
      int64_t keys = vsize - c < key_block ? vsize - c : key_block;
      NAME(load)(work->buf, amp__address_of(job->out, out_at + i * row + c * step), job->out->dtype, step, keys);
      work->sum[i] = (c ? work->sum[i] : 0) + NAME(dot)(work->grad + i * vsize + c, work->buf, keys);
    }
    if (vsize == 0) work->sum[i] = 0;
  }
}

/* c = a b for a block of rows of a, `inner` long, and the first `cols` columns of a packed b of `packed` columns */
static void NAME(rows_times)(const NAME(backward) * work, int64_t queries, int64_t cols, const real *a, int64_t inner,
                             const real *b, int64_t packed, real *c)
{
  amp_gemm gemm = { .m = queries,
                    .n = cols,
                    .k = inner,
                    .a = a,
                    .ars = inner,
                    .acs = 1,
                    .packed_b = b,
                    .packed_k = inner,
                    .packed_n = packed,
                    .c = c,
                    .crs = work->pitch,
                    .ccs = 1 };
  amp__gemm(&gemm, NAME(type), work->gemm);
}

/* c += a^T b for a block a of weights or their gradients and as many rows of b, `size` long */
static void NAME(add_turned)(const NAME(backward) * work, int64_t queries, int64_t cols, const real *a, const real *b,
                             int64_t size, real *c)
{
  amp_gemm gemm = { .m = cols,
                    .n = size,
                    .k = queries,
                    .a = a,
                    .ars = 1,
                    .acs = work->pitch,
                    .b = b,
                    .brs = size,
                    .bcs = 1,
                    .c = c,
                    .crs = size,
                    .ccs = 1,
                    .accumulate = true };
  amp__gemm(&gemm, NAME(type), work->gemm);
}

/* A block of query rows from row i on against the `count` keys from key j on: their part of dq, dk and dv */
static void NAME(back_block)(NAME(backward) * work, const real *lse, int64_t i, int64_t queries, int64_t j,
                             int64_t count)
{
  const attention *job = work->job;
  int64_t size = job->size, vsize = job->value_size, cols = NAME(seen)(job, i + queries - 1, j, count);
  if (cols == 0) return;
  NAME(rows_times)(work, queries, cols, work->queries + i * size, size, work->keys_turned, count, work->weights);
  NAME(rows_times)(work, queries, cols, work->grad + i * vsize, vsize, work->values_turned, count, work->dweights);
  for (int64_t r = 0; r < queries; r++) {
    real *x = work->weights + r * work->pitch, *e = work->dweights + r * work->pitch, top = lse[i + r];
    int64_t seen = top == (real)-INFINITY ? 0 : NAME(seen)(job, i + r, j, cols);
    if (job->mask) NAME(mask)(job, work->mask_at, i + r, j, x, seen, work->buf);
    if (job->dropping && seen > 0) {
      const uint32_t *words = attention_words(job, &work->draw, work->batch, i + r, j, seen);
      NAME(back_dropped)(x, e, top, work->sum[i + r], words, job->least, (real)job->kept_scale, seen);
    } else NAME(back_row)(x, e, top, work->sum[i + r], seen);
    for (int64_t c = seen; c < cols; c++) x[c] = e[c] = 0;
  }
  NAME(add_turned)(work, queries, cols, work->weights, work->grad + i * vsize, vsize, work->dvalues);
  NAME(add_turned)(work, queries, cols, work->dweights, work->queries + i * size, size, work->dkeys);
  amp_gemm gemm = { .m = queries,
                    .n = size,
                    .k = cols,
                    .a = work->dweights,
                    .ars = work->pitch,
                    .acs = 1,
                    .packed_b = work->keys,
                    .packed_k = count,
                    .packed_n = size,
                    .c = work->dqueries + i * size,
                    .crs = size,
                    .ccs = 1,
                    .accumulate = true };
  amp__gemm(&gemm, NAME(type), work->gemm);
}

void amp__attention_backward_(const attention *job, int64_t batch, void *scratch)
{
  int64_t length = job->length, size = job->size, vsize = job->value_size, query_block = job->block_rows,
          key_block = job->block_keys;
  int64_t key_at = attention_at(job->key, batch), value_at = attention_at(job->value, batch);
  int64_t dq_at = attention_at(job->dquery, batch), dk_at = attention_at(job->dkey, batch),
          dv_at = attention_at(job->dvalue, batch);
  const real *lse = AMP_DATA(real, job->lse) + batch * length;
  NAME(backward) work;
  NAME(backward_scratch)(&work, job, batch, scratch);
  NAME(read_batch)(&work, batch);
  memset(work.dqueries, 0, sizeof(real) * (size_t)(length * size));
  for (int64_t j = 0; j < job->keys; j += key_block) {
    int64_t count = job->keys - j < key_block ? job->keys - j : key_block;
    NAME(read)(work.rows, job->value, value_at, j, count, vsize);
    NAME(pack)(work.rows, count, vsize, true, work.values_turned);
    NAME(read)(work.rows, job->key, key_at, j, count, size);
    NAME(pack)(work.rows, count, size, true, work.keys_turned);
    NAME(pack)(work.rows, count, size, false, work.keys);
    memset(work.dkeys, 0, sizeof(real) * (size_t)(count * size));
    memset(work.dvalues, 0, sizeof(real) * (size_t)(count * vsize));
    for (int64_t i = job->causal ? j / query_block * query_block : 0; i < length; i += query_block)
      NAME(back_block)(&work, lse, i, length - i < query_block ? length - i : query_block, j, count);
    for (int64_t r = 0; r < count; r++) {
      NAME(write)(job->dkey, dk_at, j + r, work.dkeys + r * size, size);
      NAME(write)(job->dvalue, dv_at, j + r, work.dvalues + r * vsize, vsize);
    }
  }
  NAME(scale)(work.dqueries, work.dqueries, (real)job->scale, length * size);
  for (int64_t i = 0; i < length; i++) NAME(write)(job->dquery, dq_at, i, work.dqueries + i * size, size);
}

#undef NAME
#undef real
#undef amp__attention_forward_
#undef amp__attention_forward_size_
#undef amp__attention_backward_
#undef amp__attention_backward_size_
