/*
** cuda_matmul.c: rows matmul and linear: their shapes as one product over strides,
** and which kernel takes it: that of few rows, the small one, cublasLt, or the plain one.
**
** As on the CPU a batch whose second operand is one matrix joins the first one's
** rows. Other batches are merged into one dimension where their strides allow.
** Results with gaps go by way of a dense tensor, but for rows that merely lie apart.
*/
#include "cuda_core.h"
#include "cuda_gemm.h"

enum { EIGHT = 8 };       /* 16-bit numbers in 16 bytes */
enum { WORTH = 1 << 29 }; /* multiplications for which two launches more are nothing */
int amp__cuda_small = 1, amp__cuda_split = 1;

/*
** cublasLt has its fast kernels for 16-bit matrices whose extents along memory are
** multiples of 8, whatever lies between the rows (50257 columns, rows 50264 apart:
** a sixth of the speed). Such a product is made of one with the extent cut to a
** multiple of 8 and of the rest: columns and rows of the result by themselves; of the
** sum, in float32, the few terms that are left.
*/
enum { WHOLE, COLUMNS, TERMS, ROWS };

static int part(const amp_product *p)
{
  bool along_a = p->acs == 1, along_b = p->bcs == 1;
  int64_t lead = p->crs | (along_a ? p->ars : p->acs) | (along_b ? p->brs : p->bcs);
  if (amp__dtype_size[p->dtype] != 2 || p->wide || p->nbatch || p->ccs != 1 || p->epilogue > AMP_EPI_RELU
      || lead % EIGHT || !amp__cuda_split)
    return WHOLE;
  if (!(along_a || p->ars == 1) || !(along_b || p->brs == 1)) return WHOLE;
  if (amp__cuda_split == 1 && (double)p->m * (double)p->n * (double)p->k < WORTH) return WHOLE;
  if (p->n % EIGHT && p->n > EIGHT) return COLUMNS;
  if (p->k % EIGHT && p->k > EIGHT && (along_a || !along_b) && p->epilogue == AMP_EPI_NONE && !p->bias) return TERMS;
  return p->m % EIGHT && p->m > EIGHT && !along_a ? ROWS : WHOLE;
}

static int split(const amp_product *p, int how)
{
  amp_product a = *p, b = *p;
  int64_t size = amp__dtype_size[p->dtype], cut;
  if (how == TERMS) {
    int64_t shape[2] = { p->m, p->n };
    amp_tensor *sum = amp__cuda_make(AMP_FLOAT32, 2, shape);
    if (!sum) return AMP_E_MEMORY;
    a.k = cut = p->k & -EIGHT;
    a.wide = true;
    a.c = amp__data(sum);
    a.crs = p->n;
    b.k -= cut;
    b.a += cut * p->acs * size;
    b.b += cut * p->brs * size;
    int rc = amp__cuda_gemm(&a);
    if (rc == 0) rc = amp__cuda_gemm_add(&b, amp__data(sum));
    amp__free(sum);
    return rc;
  }
  if (how == COLUMNS) {
    a.n = cut = p->n & -EIGHT;
    b.n -= cut;
    b.b += cut * p->bcs * size;
    if (b.bias) b.bias += cut * size;
    b.c += cut * size;
  } else {
    a.m = cut = p->m & -EIGHT;
    b.m -= cut;
    b.a += cut * p->ars * size;
    b.c += cut * p->crs * size;
  }
  int rc = p->epilogue ? amp__cuda_gemm_fused(&a) : amp__cuda_gemm(&a);
  return rc ? rc : p->epilogue ? amp__cuda_gemm_fused(&b) : amp__cuda_gemm(&b);
}

int amp__cuda_gemm_fused(const amp_product *p)
{
  amp_product plain = *p;
  if (p->epilogue == AMP_EPI_SUMS) plain.epilogue = AMP_EPI_NONE;
  if (amp__cuda_small && amp__cuda_gemv(p) == 0) return 0;
  int how = part(&plain);
  if (how) return p->epilogue == AMP_EPI_SUMS ? 1 : split(p, how);
  int rc = amp__cuda_small && !p->wide ? amp__cuda_gemm_small(p) : 1;
  return rc == 1 ? amp__cuda_gemm_lt(p) : rc;
}

int amp__cuda_gemm(const amp_product *p)
{
  int rc = amp__is_float(p->dtype) ? amp__cuda_gemm_fused(p) : 1;
  return rc == 1 ? amp__cuda_gemm_plain(p) : rc;
}

static void drop_dim(amp_product *p, int d)
{
  for (; d + 1 < p->nbatch; d++) {
    p->size[d] = p->size[d + 1];
    p->as[d] = p->as[d + 1];
    p->bs[d] = p->bs[d + 1];
    p->cs[d] = p->cs[d + 1];
  }
  p->nbatch--;
}

static void merge(amp_product *p)
{
  for (int d = p->nbatch - 1; d >= 0; d--)
    if (p->size[d] == 1) drop_dim(p, d);
  while (p->nbatch > 0 && p->bs[p->nbatch - 1] == 0) { /* rows of A joined */
    int d = p->nbatch - 1;
    if (p->m > 1 && (p->as[d] != p->ars * p->m || p->cs[d] != p->crs * p->m)) break;
    if (p->m == 1) {
      p->ars = p->as[d];
      p->crs = p->cs[d];
    }
    p->m *= p->size[d];
    p->nbatch--;
  }
  for (int d = p->nbatch - 1; d > 0; d--)
    if (p->as[d - 1] == p->as[d] * p->size[d] && p->bs[d - 1] == p->bs[d] * p->size[d]
        && p->cs[d - 1] == p->cs[d] * p->size[d]) {
      p->size[d - 1] *= p->size[d];
      p->as[d - 1] = p->as[d];
      p->bs[d - 1] = p->bs[d];
      p->cs[d - 1] = p->cs[d];
      drop_dim(p, d);
    }
}

static int run(amp_product *p)
{
  int64_t n = p->m * p->n;
  for (int d = 0; d < p->nbatch; d++) n *= p->size[d];
  if (n == 0) return 0;
  merge(p);
  return amp__cuda_gemm(p);
}

/* Does one row after the other lie in o, gaps between them or not? */
static bool rows_lie(const amp_tensor *o)
{
  int n = o->ndim;
  if (n < 2 || o->stride[n - 1] != 1 || o->stride[n - 2] < o->size[n - 1]) return false;
  for (int d = n - 2; d > 0; d--)
    if (o->stride[d - 1] != o->stride[d] * o->size[d]) return false;
  return true;
}

/* The result, or a dense stand-in for one whose matrix has no unit stride */
static amp_tensor *target(amp_tensor *o) { return amp__cuda_plain(o) ? o : amp__cuda_make(o->dtype, o->ndim, o->size); }
static int finish(amp_tensor *o, amp_tensor *t, int rc)
{
  if (t == o) return rc;
  if (rc == 0) rc = amp__cuda_copy_to(o, t);
  amp__free(t);
  return rc;
}

/* x in the result's dtype: itself (counted) or a dense copy */
static amp_tensor *as(amp_tensor *x, int dtype)
{
  if (x->dtype == dtype) {
    amp__retain(x);
    return x;
  }
  return amp__cuda_dense(x, dtype);
}

int amp__cuda_matmul(amp_call *c)
{
  amp_tensor *o = c->out[0], *t = target(o), *a = as(c->in[0], o->dtype), *b = as(c->in[1], o->dtype);
  int rc = AMP_E_MEMORY;
  if (!t || !a || !b) goto out;
  int na = a->ndim, nb = b->ndim;
  bool va = na == 1, vb = nb == 1;
  int tail = !va + !vb, nd = t->ndim - tail;
  amp_product p = { .dtype = o->dtype, .a = amp__data(a), .b = amp__data(b), .c = amp__data(t), .nbatch = nd };
  p.m = va ? 1 : a->size[na - 2];
  p.k = a->size[na - 1];
  p.n = vb ? 1 : b->size[nb - 1];
  p.ars = va ? p.k : a->stride[na - 2];
  p.acs = a->stride[na - 1];
  p.brs = b->stride[vb ? 0 : nb - 2];
  p.bcs = vb ? 1 : b->stride[nb - 1];
  p.crs = p.n;
  p.ccs = 1;
  for (int d = 0; d < nd; d++) {
    int ia = na - 2 - nd + d, ib = nb - 2 - nd + d;
    p.size[d] = t->size[d];
    p.as[d] = ia >= 0 && a->size[ia] != 1 ? a->stride[ia] : 0;
    p.bs[d] = ib >= 0 && b->size[ib] != 1 ? b->stride[ib] : 0;
    p.cs[d] = t->stride[d];
  }
  rc = run(&p);
out:
  amp__free(a);
  amp__free(b);
  return t ? finish(o, t, rc) : rc;
}

/* linear with an activation after it: act -1: none, else as in row linear_act; z: gelu's argument */
static int linear(amp_call *c, amp_tensor *o, int act, amp_tensor *z)
{
  amp_tensor *t = rows_lie(o) ? o : target(o), *x = as(c->in[0], o->dtype), *w = as(c->in[1], o->dtype);
  amp_tensor *bias = c->nin > 2 && c->in[2] ? amp__cuda_dense(c->in[2], o->dtype) : NULL;
  int rc = AMP_E_MEMORY;
  if (!t || !x || !w || (c->nin > 2 && c->in[2] && !bias)) goto out;
  bool one = w->ndim == 1;
  int nx = x->ndim, nd = nx > 1 ? nx - 2 : 0;
  amp_product p = { .dtype = o->dtype,
                    .a = amp__data(x),
                    .b = amp__data(w),
                    .c = amp__data(t),
                    .nbatch = nd,
                    .bias = bias ? amp__data(bias) : NULL };
  p.m = nx > 1 ? x->size[nx - 2] : 1;
  p.k = x->size[nx - 1];
  p.n = one ? 1 : w->size[0];
  p.ars = nx > 1 ? x->stride[nx - 2] : p.k;
  p.acs = x->stride[nx - 1];
  p.brs = w->stride[w->ndim - 1];
  p.bcs = one ? 1 : w->stride[0];
  p.crs = t->ndim > 1 ? t->stride[t->ndim - 2] : p.n;
  p.ccs = 1;
  for (int d = nd - 1, step = 0; d >= 0; d--, step = 1) {
    p.size[d] = x->size[d];
    p.as[d] = x->stride[d];
    p.cs[d] = step ? p.cs[d + 1] * x->size[d + 1] : p.m * p.crs;
  }
  if (act < 0) {
    rc = run(&p);
    goto out;
  }
  /* in one launch, else the product and then the activation */
  rc = 1;
  if (o->numel > 0 && (act == ACT_RELU || act == ACT_GELU_TANH)) {
    merge(&p);
    p.epilogue = act ? AMP_EPI_GELU : AMP_EPI_RELU;
    p.aux = act ? amp__data(z) : NULL;
    if (p.nbatch == 0) rc = amp__cuda_gemm_fused(&p);
    p.epilogue = AMP_EPI_NONE;
  }
  if (rc == 1) {
    amp_slot a[AMP_MAX_SLOT] = { { .i = 0 } };
    if (act == ACT_GELU_TANH) ((args_gelu *)a)->approximate = APPROXIMATE_TANH;
    amp_call k = { .op = &amp__cuda_api->ops[act ? AMP_OP_gelu : AMP_OP_relu],
                   .id = act ? AMP_OP_gelu : AMP_OP_relu,
                   .in = k.in_store,
                   .attrs = a,
                   .nin = 1,
                   .nout = 1 };
    if (act) p.c = amp__data(z);
    rc = run(&p);
    k.in_store[0] = act ? z : t;
    k.out[0] = t;
    if (rc == 0) rc = act ? amp__cuda_gelu(&k) : amp__cuda_relu(&k);
  }
out:
  amp__free(x);
  amp__free(w);
  amp__free(bias);
  return t ? finish(o, t, rc) : rc;
}

int amp__cuda_linear(amp_call *c) { return linear(c, c->out[0], -1, NULL); }
int amp__cuda_linear_act(amp_call *c) { return linear(c, c->out[0], (int)AMP_ARGS(c, linear_act)->act, c->out[1]); }

/* -- Backward of linear -------------------------------------------------------- */

/* t if its rows lie one after the other, gaps between them or not (counted), else a dense copy */
static amp_tensor *lying(amp_tensor *t)
{
  if (!rows_lie(t)) return amp__cuda_dense(t, t->dtype);
  amp__retain(t);
  return t;
}

/* elements from row to row of such a tensor, and how many rows there are */
static int64_t apart(const amp_tensor *t) { return rows_lie(t) ? t->stride[t->ndim - 2] : t->size[t->ndim - 1]; }
static int64_t rows_of(const amp_tensor *t)
{
  int64_t n = 1;
  for (int d = 0; d + 1 < t->ndim; d++) n *= t->size[d];
  return n;
}

/* In one launch, or 1 */
static int masked(const amp_product *p) { return amp__cuda_small ? amp__cuda_gemm_small(p) : 1; }

/* Otherwise: z = grad where result > 0, else 0; also its sums, unless NULL */
static int let_through(amp_tensor *g, amp_tensor *y, amp_tensor **z, amp_tensor *sums)
{
  int id = sums ? AMP_OP_act_backward : AMP_OP_relu_backward;
  amp_slot a[AMP_MAX_SLOT] = { { .i = 0 } };
  if (sums) ((args_act_backward *)a)->act = ACT_RELU;
  amp_call k
      = { .op = &amp__cuda_api->ops[id], .id = id, .in = k.in_store, .attrs = a, .nin = 2, .nout = sums ? 2 : 1 };
  if (!(*z = amp__cuda_make(g->dtype, g->ndim, g->size))) return AMP_E_MEMORY;
  k.in_store[0] = g;
  k.in_store[1] = y;
  k.out[0] = *z;
  k.out[1] = sums;
  return sums ? amp__cuda_act_backward(&k) : amp__cuda_relu_backward(&k);
}

/* Products for o, dense, from rows that lie (y: the mask's, or NULL): g w */
static amp_product to_input(const amp_tensor *o, const amp_tensor *g, const amp_tensor *w, const amp_tensor *y)
{
  amp_product p
      = { .dtype = o->dtype, .a = amp__data(g), .b = amp__data(w), .c = amp__data(o), .mask = y ? amp__data(y) : NULL };
  p.m = rows_of(o);
  p.n = w->size[1];
  p.k = w->size[0];
  p.ars = apart(g);
  p.mrs = y ? apart(y) : 0;
  p.brs = w->stride[0];
  p.bcs = w->stride[1];
  p.crs = p.n;
  p.acs = p.mcs = p.ccs = 1;
  return p;
}

/* g^T x over all rows, and the sums of g's rows */
static amp_product to_weight(const amp_tensor *o, const amp_tensor *sums, const amp_tensor *g, const amp_tensor *x,
                             const amp_tensor *y)
{
  amp_product p = { .dtype = o->dtype,
                    .epilogue = AMP_EPI_SUMS,
                    .a = amp__data(g),
                    .b = amp__data(x),
                    .c = amp__data(o),
                    .sums = amp__data(sums) };
  p.m = o->size[0];
  p.n = o->size[1];
  p.k = rows_of(g);
  p.acs = apart(g);
  p.brs = apart(x);
  p.crs = p.n;
  p.ars = p.bcs = p.ccs = p.mrs = 1;
  if (y) {
    p.mask = amp__data(y);
    p.mcs = apart(y);
  }
  return p;
}

/* (grad where result > 0) weight */
int amp__cuda_linear_input(amp_call *c)
{
  amp_tensor *o = c->out[0], *w = c->in[1], *g = lying(c->in[0]), *y = lying(c->in[2]), *z = NULL;
  int rc = AMP_E_MEMORY;
  if (!g || !y) goto out;
  amp_product p = to_input(o, g, w, y);
  rc = o->numel > 0 ? masked(&p) : 0;
  if (rc == 1) {
    if ((rc = let_through(g, y, &z, NULL)) < 0) goto out;
    p.a = amp__data(z);
    p.ars = p.k;
    p.mask = NULL;
    rc = run(&p);
  }
out:
  amp__free(g);
  amp__free(y);
  amp__free(z);
  return rc;
}

/* grad^T input over all rows, and the sums of grad's rows; with a result: of grad where that is above 0 */
int amp__cuda_linear_weight(amp_call *c)
{
  amp_tensor *o = c->out[0], *g = lying(c->in[0]), *x = amp__cuda_dense(c->in[1], o->dtype), *dense = NULL, *z = NULL;
  amp_tensor *y = c->nin > 2 ? c->in[2] : NULL;
  int rc = AMP_E_MEMORY;
  if (y) y = lying(y);
  if (!g || !x || (c->nin > 2 && c->in[2] && !y)) goto out;
  amp_product p = to_weight(o, c->out[1], g, x, y);
  rc = o->numel == 0 ? 1 : y ? masked(&p) : amp__cuda_gemm_fused(&p);
  p.epilogue = AMP_EPI_NONE;
  p.mask = NULL;
  if (rc == 1 && y) {
    if ((rc = let_through(g, y, &z, c->out[1])) < 0) goto out;
    p.a = amp__data(z);
    p.acs = p.m;
    rc = run(&p);
  } else if (rc == 1) {
    rc = run(&p);
    if (rc == 0 && !(dense = amp__cuda_dense(g, o->dtype))) rc = AMP_E_MEMORY;
    if (rc == 0) rc = amp__cuda_columns(-1, dense, NULL, NULL, c->out[1]);
  }
out:
  amp__free(dense);
  amp__free(g);
  amp__free(x);
  amp__free(y);
  amp__free(z);
  return rc;
}

/* Both in one launch where they are small, else one after the other */
int amp__cuda_linear_both(amp_call *c)
{
  amp_tensor *g = lying(c->in[0]), *x = lying(c->in[1]), *w = c->in[2], *y = c->nin > 3 ? c->in[3] : NULL;
  bool behind = y != NULL;
  int rc = AMP_E_MEMORY;
  if (behind) y = lying(y);
  if (!g || !x || (behind && !y)) goto out;
  rc = 1;
  if (amp__cuda_small && c->out[0]->numel > 0 && c->out[1]->numel > 0) {
    amp_product p = to_input(c->out[0], g, w, y), q = to_weight(c->out[1], c->out[2], g, x, y);
    rc = amp__cuda_gemm_pair(&p, &q);
  }
  if (rc == 1) {
    int id = behind ? AMP_OP_linear_input : AMP_OP_matmul;
    amp_call k = { .op = &amp__cuda_api->ops[id], .id = id, .in = k.in_store, .nin = behind ? 3 : 2, .nout = 1 };
    k.in_store[0] = g;
    k.in_store[1] = w;
    k.in_store[2] = y;
    k.out[0] = c->out[0];
    rc = behind ? amp__cuda_linear_input(&k) : amp__cuda_matmul(&k);
    k = (amp_call){
      .op = &amp__cuda_api->ops[AMP_OP_linear_weight], .id = AMP_OP_linear_weight, .in = k.in_store, .nin = 3, .nout = 2
    };
    k.in_store[0] = g;
    k.in_store[1] = x;
    k.in_store[2] = y;
    k.out[0] = c->out[1];
    k.out[1] = c->out[2];
    if (rc == 0) rc = amp__cuda_linear_weight(&k);
  }
out:
  amp__free(g);
  amp__free(x);
  amp__free(y);
  return rc;
}
