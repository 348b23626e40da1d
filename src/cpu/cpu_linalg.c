/*
** cpu_linalg.c: rows of linear algebra: batches of matrices of any layout.
**
** A job has inputs and results, each a batch of matrices (or vectors, or single
** values) of the same leading dimensions. Threads share the batch; a matrix is
** copied into scratch as its factorisation wants it, column by column, and what
** comes out is copied to where the result lies. Where a matrix and its transpose
** do equally well, it is copied as it stands in memory: C order seen column by
** column is the transpose.
**
** 16-bit data is computed in float32. Large matrices go to LAPACK, if its
** plug-in is there; which size is large was measured against OpenBLAS.
*/
#include <pthread.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "cpu_gemm.h"
#include "cpu_linalg.h"
#include "cpu_nn.h"

enum { MOST = 4 };

typedef struct job job;
/* One matrix: p[i] is tensor i's, scratch this thread's. 0, a positive number that `why` explains, or a code. */
typedef int (*one_fn)(const job *k, char *const *p, char *scratch);

struct job {
  const amp_linalg *f;
  int type, n;                    /* tensors: inputs, then results */
  const amp_tensor *t[MOST];
  int core[MOST];                 /* dimensions of each that are not batch */
  amp__nn_view v[MOST];
  amp__nn_walk w;
  int64_t rows, cols, rhs;
  int flag, flag2;
  double number;
  one_fn one;
  size_t each;
  char *scratch;
  int64_t bad;                    /* the first matrix that failed, and how */
  int why;
};

static size_t size_of(const job *k) { return amp__dtype_size[k->type]; }
static size_t room(const job *k, int64_t n) { return ((size_t)n * size_of(k) + 63) / 64 * 64; }

/* -- Moving matrices ------------------------------------------------------------------------ */

/* dst(i, j) = src(i, j) for rows x cols elements over strides, in tiles */
#define MOVE(T, S)                                                                                            \
  AMP_CLONES_WIDE static void move_##S(int64_t rows, int64_t cols, T *dst, int64_t drs, int64_t dcs, const T *src, int64_t srs, int64_t scs) { \
    if (drs == 1 && srs == 1) {                                                                               \
      for (int64_t j = 0; j < cols; j++) memcpy(dst + j * dcs, src + j * scs, (size_t)rows * sizeof(T));      \
    } else if (dcs == 1 && scs == 1) {                                                                        \
      for (int64_t i = 0; i < rows; i++) memcpy(dst + i * drs, src + i * srs, (size_t)cols * sizeof(T));      \
    } else                                                                                                    \
      for (int64_t j0 = 0; j0 < cols; j0 += 16)                                                               \
        for (int64_t i0 = 0; i0 < rows; i0 += 16)                                                             \
          for (int64_t j = j0; j < cols && j < j0 + 16; j++)                                                  \
            for (int64_t i = i0; i < rows && i < i0 + 16; i++) dst[i * drs + j * dcs] = src[i * srs + j * scs]; \
  }
MOVE(float, f32)
MOVE(double, f64)

static void move(const job *k, int64_t rows, int64_t cols, void *dst, int64_t drs, int64_t dcs, const void *src, int64_t srs, int64_t scs) {
  if (k->type == AMP_FLOAT64) move_f64(rows, cols, dst, drs, dcs, src, srs, scs);
  else move_f32(rows, cols, dst, drs, dcs, src, srs, scs);
}

/* Strides of tensor i's matrix; of a vector it is one column */
static int64_t rs(const job *k, int i) { return k->v[i].stride[k->t[i]->ndim - k->core[i]]; }
static int64_t cs(const job *k, int i) { return k->core[i] == 2 ? k->v[i].stride[k->t[i]->ndim - 1] : 0; }

/* Tensor i's matrix, of rows x cols, column by column; or its transpose so */
static void *load(const job *k, int i, const void *p, int64_t rows, int64_t cols, void *dst) {
  move(k, rows, cols, dst, 1, rows, p, rs(k, i), cs(k, i));
  return dst;
}
static void *load_turned(const job *k, int i, const void *p, int64_t rows, int64_t cols, void *dst) {
  move(k, rows, cols, dst, cols, 1, p, rs(k, i), cs(k, i));
  return dst;
}
static void store(const job *k, int i, void *p, int64_t rows, int64_t cols, const void *src) { move(k, rows, cols, p, rs(k, i), cs(k, i), src, 1, rows); }
static void store_turned(const job *k, int i, void *p, int64_t rows, int64_t cols, const void *src) { move(k, rows, cols, p, rs(k, i), cs(k, i), src, cols, 1); }

static double element(const job *k, const void *p, int64_t i) { return k->type == AMP_FLOAT64 ? ((const double *)p)[i] : ((const float *)p)[i]; }
static void set(const job *k, void *p, int64_t i, double v) {
  if (k->type == AMP_FLOAT64) ((double *)p)[i] = v;
  else ((float *)p)[i] = (float)v;
}

/* Zeros beside the triangle of a (n rows, column by column) that is kept */
static void keep(const job *k, bool upper, int64_t rows, int64_t cols, void *a) {
  for (int64_t j = 0; j < cols; j++) {
    int64_t from = upper ? j + 1 : 0, to = upper ? rows : j < rows ? j : rows;
    if (from < to) memset((char *)a + (size_t)(from + j * rows) * size_of(k), 0, (size_t)(to - from) * size_of(k));
  }
}

/* -- Running a job --------------------------------------------------------------------------------- */

static void add(job *k, const amp_tensor *t, int core) {
  k->core[k->n] = core;
  k->t[k->n++] = t;
}

static pthread_mutex_t first_bad = PTHREAD_MUTEX_INITIALIZER;

static void body(void *ctx, int64_t begin, int64_t end, int thread) {
  job *k = ctx;
  amp__nn_pos pos;
  char *p[MOST], *scratch = k->scratch + (size_t)thread * k->each;
  amp__nn_seek(&k->w, &pos, begin);
  for (int64_t i = begin; i < end; i++, amp__nn_next(&k->w, &pos)) {
    for (int j = 0; j < k->n; j++) p[j] = (char *)k->v[j].p + pos.off[j] * (int64_t)size_of(k);
    int why = k->one(k, p, scratch);
    if (why == 0) continue;
    pthread_mutex_lock(&first_bad); /* a named critical section would be a symbol that the library exports */
    if (k->bad < 0 || i < k->bad) { k->bad = i; k->why = why; }
    pthread_mutex_unlock(&first_bad);
    return;
  }
}

/* Results are k's tensors from `inputs` on. work: operations of one matrix; large: those from which LAPACK is used. */
static int run(job *k, int inputs, double work, double large) {
  amp__nn_scratch s = {0};
  char small[16 << 10] __attribute__((aligned(64)));
  const amp_tensor *first = k->t[0];
  int rc = AMP_E_MEMORY, batch = first->ndim - k->core[0];
  const int64_t *strides[MOST];
  k->bad = -1;
  k->f = &amp__linalg_own;
  if (work >= large) {
    amp__plugin("lapack");
    k->f = amp__devices[AMP_CPU].linalg;
  }
  for (int i = 0; i < k->n; i++) {
    if (!(i < inputs ? amp__nn_read(&k->v[i], k->t[i], k->type) : amp__nn_write(&k->v[i], k->t[i], k->type))) goto out;
    strides[i] = k->v[i].stride;
  }
  amp__nn_walk_init(&k->w, batch, first->size, 0, k->n, strides);
  rc = 0;
  if (k->w.n == 0) goto out;
  double all = work * (double)k->w.n;
  int threads = all < 1e5 ? 1 : amp__nn_threads(all > 1e15 ? (int64_t)1e15 : (int64_t)all, k->w.n);
  k->each = (k->each + 63) / 64 * 64;
  if (!amp__nn_lend(&s, small, sizeof small, k->each * (size_t)threads)) { rc = AMP_E_MEMORY; goto out; }
  k->scratch = s.p;
  amp__nn_par(threads, k->w.n, body, k);
  if (k->bad >= 0 && k->why < 0) rc = amp__nomem(k->each);
out:
  for (int i = 0; i < k->n; i++) {
    if (i >= inputs && rc == 0 && k->bad < 0) amp__nn_written(&k->v[i], k->t[i], k->type);
    amp__nn_drop(&k->v[i]);
  }
  amp__nn_give(&s);
  return rc;
}

/* "the matrix", "matrix 3 of 5" */
static const char *which(const job *k, char *text) {
  if (k->t[0]->ndim == k->core[0]) return "the matrix";
  snprintf(text, 64, "matrix %lld of %lld", (long long)k->bad + 1, (long long)k->w.n);
  return text;
}

static int singular(const job *k) {
  char text[64];
  return amp__fail(AMP_E_VALUE, "%s is singular: pivot %d of %lld of its LU factors is 0; amp.pinverse and amp.lstsq take such matrices",
                   which(k, text), k->why, (long long)k->rows);
}

static int not_finite(const job *k) {
  char text[64];
  return amp__fail(AMP_E_VALUE, "%s holds NaN or infinity, or is too close to that for the iteration to end", which(k, text));
}

static int64_t rows_of(const amp_tensor *t) { return t->size[t->ndim - 2]; }
static int64_t cols_of(const amp_tensor *t) { return t->size[t->ndim - 1]; }
static double cube(int64_t n) { return (double)n * (double)n * (double)n; }

/* A job of a square matrix */
static job square(amp_call *c) {
  job k = { .type = amp__nn_type(c->in[0]->dtype), .rows = rows_of(c->in[0]), .cols = cols_of(c->in[0]) };
  add(&k, c->in[0], 2);
  return k;
}

/* -- Inverse and systems ------------------------------------------------------------------------------- */

static int invert(const job *k, char *const *p, char *scratch) {
  int64_t n = k->rows;
  int32_t *piv = (int32_t *)(scratch + room(k, n * n));
  void *a = load_turned(k, 0, p[0], n, n, scratch);
  int rc = k->f->lu(k->type, n, a, piv);
  if (rc == 0) rc = k->f->lu_inverse(k->type, n, a, piv);
  if (rc == 0) store_turned(k, 1, p[1], n, n, a);
  return rc;
}

int amp__cpu_inverse(amp_call *c) {
  job k = square(c);
  add(&k, c->out[0], 2);
  k.each = room(&k, k.rows * k.rows) + 4 * (size_t)k.rows;
  k.one = invert;
  int rc = run(&k, 1, 2 * cube(k.rows), 2 * cube(64));
  return rc < 0 || k.bad < 0 ? rc : singular(&k);
}

static int linear(const job *k, char *const *p, char *scratch) {
  int64_t n = k->rows, m = k->rhs;
  char *b = scratch + room(k, n * n);
  int32_t *piv = (int32_t *)(b + room(k, n * m));
  void *a = load_turned(k, 0, p[0], n, n, scratch);
  int rc = k->f->lu(k->type, n, a, piv);
  if (rc == 0) rc = k->f->lu_solve(k->type, !k->flag, n, m, a, piv, load(k, 1, p[1], n, m, b));
  if (rc == 0) store(k, 2, p[2], n, m, b);
  return rc;
}

int amp__cpu_linear_solve(amp_call *c) {
  job k = square(c);
  add(&k, c->in[1], 2);
  add(&k, c->out[0], 2);
  k.rhs = cols_of(c->in[1]);
  k.flag = c->a[0].i != 0;
  k.each = room(&k, k.rows * k.rows) + room(&k, k.rows * k.rhs) + 4 * (size_t)k.rows;
  k.one = linear;
  int rc = run(&k, 2, 0.67 * cube(k.rows) + 2.0 * (double)k.rows * (double)k.rows * (double)k.rhs, 0.67 * cube(96));
  return rc < 0 || k.bad < 0 ? rc : singular(&k);
}

static int triangle(const job *k, char *const *p, char *scratch) {
  int64_t n = k->rows, m = k->rhs;
  bool upper = k->flag & 1, transpose = k->flag & 2, unit = k->flag & 4;
  char *b = scratch + room(k, n * n);
  void *a = load_turned(k, 0, p[0], n, n, scratch); /* A^T, whose triangle is the other one */
  for (int64_t i = 0; !unit && i < n; i++) if (element(k, a, i * (n + 1)) == 0) return (int)i + 1;
  int rc = k->f->triangular(k->type, !upper, !transpose, unit, n, m, a, load(k, 1, p[1], n, m, b));
  if (rc == 0) store(k, 2, p[2], n, m, b);
  return rc;
}

int amp__cpu_trisolve(amp_call *c) { /* upper transpose unitriangular */
  char text[64];
  job k = square(c);
  add(&k, c->in[1], 2);
  add(&k, c->out[0], 2);
  k.rhs = cols_of(c->in[1]);
  k.flag = (c->a[0].i != 0) | (c->a[1].i != 0) << 1 | (c->a[2].i != 0) << 2;
  k.each = room(&k, k.rows * k.rows) + room(&k, k.rows * k.rhs);
  k.one = triangle;
  int rc = run(&k, 2, (double)k.rows * (double)k.rows * (double)k.rhs, cube(96));
  if (rc < 0 || k.bad < 0) return rc;
  return amp__fail(AMP_E_VALUE, "%s is singular: element %d of its diagonal is 0", which(&k, text), k.why);
}

static int factor(const job *k, char *const *p, char *scratch) {
  int64_t n = k->rows;
  bool upper = k->flag;
  void *a = upper ? load_turned(k, 0, p[0], n, n, scratch) : load(k, 0, p[0], n, n, scratch);
  int rc = k->f->cholesky(k->type, n, a);
  if (rc) return rc;
  keep(k, false, n, n, a);
  if (upper) store_turned(k, 1, p[1], n, n, a);
  else store(k, 1, p[1], n, n, a);
  return 0;
}

int amp__cpu_cholesky(amp_call *c) { /* upper */
  char text[64];
  job k = square(c);
  add(&k, c->out[0], 2);
  k.flag = c->a[0].i != 0;
  k.each = room(&k, k.rows * k.rows);
  k.one = factor;
  int rc = run(&k, 1, cube(k.rows) / 3, cube(128) / 3);
  if (rc < 0 || k.bad < 0) return rc;
  return amp__fail(AMP_E_VALUE, "%s is not positive-definite: its leading minor of order %d is not positive", which(&k, text), k.why);
}

/* -- Determinants ------------------------------------------------------------------------------------------ */

/* Sign, product and sum of logarithms of the pivots of n */
static void pivots(const job *k, int64_t n, const void *lu, const int32_t *piv, double *sign, double *det, double *log_abs) {
  *sign = 1;
  *det = 1;
  *log_abs = 0;
  for (int64_t i = 0; i < n; i++) {
    double u = element(k, lu, i * (n + 1));
    if (piv[i] != i) *sign = -*sign;
    if (u < 0) *sign = -*sign;
    if (u == 0) *sign = 0;
    if (u != u) *sign = u;
    *det *= fabs(u);
    *log_abs += log(fabs(u));
  }
  *det *= *sign;
}

static int determinant(const job *k, char *const *p, char *scratch) {
  int64_t n = k->rows;
  double sign, det, log_abs;
  int32_t *piv = (int32_t *)(scratch + room(k, n * n));
  void *a = load_turned(k, 0, p[0], n, n, scratch);
  int rc = k->f->lu(k->type, n, a, piv);
  if (rc < 0) return rc;
  pivots(k, n, a, piv, &sign, &det, &log_abs);
  if (rc > 0) { sign = det = 0; log_abs = -INFINITY; } /* an exact zero pivot, whatever stands after it */
  set(k, p[1], 0, k->flag ? sign : det);
  if (k->flag) set(k, p[2], 0, log_abs);
  return 0;
}

static int by_pivots(amp_call *c, bool logs) {
  job k = square(c);
  add(&k, c->out[0], 0);
  if (logs) add(&k, c->out[1], 0);
  k.flag = logs;
  k.each = room(&k, k.rows * k.rows) + 4 * (size_t)k.rows;
  k.one = determinant;
  return run(&k, 1, 0.67 * cube(k.rows), 0.67 * cube(96));
}

int amp__cpu_det(amp_call *c) { return by_pivots(c, false); }
int amp__cpu_slogdet(amp_call *c) { return by_pivots(c, true); }

/* det(A) A^-T, with 0 among the pivots replaced by what rounding could have made of it */
static int cofactors(const job *k, char *const *p, char *scratch) {
  int64_t n = k->rows;
  double sign, det, log_abs, most = 0, eps = k->type == AMP_FLOAT64 ? DBL_EPSILON : FLT_EPSILON;
  int32_t *piv = (int32_t *)(scratch + room(k, n * n));
  void *a = load_turned(k, 0, p[0], n, n, scratch);
  int rc = amp__linalg_own.lu(k->type, n, a, piv); /* goes on after a zero pivot */
  if (rc < 0) return rc;
  for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(element(k, a, i * (n + 1))));
  for (int64_t i = 0; i < n; i++) if (element(k, a, i * (n + 1)) == 0) set(k, a, i * (n + 1), most > 0 ? eps * most : eps);
  pivots(k, n, a, piv, &sign, &det, &log_abs);
  if ((rc = k->f->lu_inverse(k->type, n, a, piv)) < 0) return rc; /* of A^T */
  for (int64_t i = 0; i < n * n; i++) set(k, a, i, det * element(k, a, i));
  store(k, 1, p[1], n, n, a);
  return 0;
}

int amp__cpu_cofactor(amp_call *c) {
  job k = square(c);
  add(&k, c->out[0], 2);
  k.each = room(&k, k.rows * k.rows) + 4 * (size_t)k.rows;
  k.one = cofactors;
  return run(&k, 1, 2 * cube(k.rows), 2 * cube(64));
}

/* -- Orthogonal factors ------------------------------------------------------------------------------------------ */

static int orthogonal(const job *k, char *const *p, char *scratch) {
  int64_t m = k->rows, n = k->cols, nq = k->rhs;
  char *q = scratch + room(k, m * n);
  int rc = k->f->qr(k->type, m, n, nq, load(k, 0, p[0], m, n, scratch), q);
  if (rc) return rc;
  keep(k, true, m, n, scratch);
  move(k, nq, n, p[2], rs(k, 2), cs(k, 2), scratch, 1, m);
  store(k, 1, p[1], m, nq, q);
  return 0;
}

int amp__cpu_qr(amp_call *c) {
  job k = square(c);
  add(&k, c->out[0], 2);
  add(&k, c->out[1], 2);
  k.rhs = cols_of(c->out[0]);
  k.each = room(&k, k.rows * k.cols) + room(&k, k.rows * k.rhs);
  k.one = orthogonal;
  return run(&k, 1, 4.0 * (double)k.rows * (double)k.cols * (double)(k.rows < k.cols ? k.rows : k.cols), 4 * cube(40));
}

/* A^T = V S U^T is what stands in memory: its left vectors are V's columns, and its right ones U's rows */
static int singular_vectors(const job *k, char *const *p, char *scratch) {
  int64_t m = k->rows, n = k->cols, r = m < n ? m : n, nu = k->flag ? r : m, nv = k->flag ? r : n;
  char *v = scratch + room(k, m * n), *ut = v + room(k, n * nv), *s = ut + room(k, nu * m);
  int rc = k->f->svd(k->type, n, m, nv, nu, load_turned(k, 0, p[0], m, n, scratch), s, v, ut);
  if (rc) return rc;
  store_turned(k, 1, p[1], m, nu, ut);
  move(k, r, 1, p[2], rs(k, 2), 0, s, 1, r);
  store(k, 3, p[3], n, nv, v);
  return 0;
}

static double svd_work(const job *k) { return 10.0 * (double)k->rows * (double)k->cols * (double)(k->rows < k->cols ? k->rows : k->cols); }

int amp__cpu_svd(amp_call *c) { /* some */
  job k = square(c);
  int64_t m = k.rows, n = k.cols, r = m < n ? m : n;
  add(&k, c->out[0], 2);
  add(&k, c->out[1], 1);
  add(&k, c->out[2], 2);
  k.flag = c->a[0].i != 0;
  k.each = room(&k, m * n) + room(&k, n * (k.flag ? r : n)) + room(&k, m * (k.flag ? r : m)) + room(&k, r);
  k.one = singular_vectors;
  int rc = run(&k, 1, svd_work(&k), 10 * cube(8));
  return rc < 0 || k.bad < 0 ? rc : not_finite(&k);
}

static int singular_values(const job *k, char *const *p, char *scratch) {
  int64_t m = k->rows, n = k->cols, r = m < n ? m : n;
  char *s = scratch + room(k, m * n);
  int rc = k->f->svd(k->type, n, m, 0, 0, load_turned(k, 0, p[0], m, n, scratch), s, NULL, NULL);
  if (rc == 0) move(k, r, 1, p[1], rs(k, 1), 0, s, 1, r);
  return rc;
}

int amp__cpu_svdvals(amp_call *c) {
  job k = square(c);
  add(&k, c->out[0], 1);
  k.each = room(&k, k.rows * k.cols) + room(&k, k.rows < k.cols ? k.rows : k.cols);
  k.one = singular_values;
  int rc = run(&k, 1, svd_work(&k), 10 * cube(8));
  return rc < 0 || k.bad < 0 ? rc : not_finite(&k);
}

/* P = V diag(1 / s) U^T, of A^T = V S U^T as it stands in memory */
static int pseudo_inverse(const job *k, char *const *p, char *scratch) {
  int64_t m = k->rows, n = k->cols, r = m < n ? m : n;
  char *v = scratch + room(k, m * n), *ut = v + room(k, n * r), *s = ut + room(k, r * m);
  if (r == 0) return 0;
  int rc = k->f->svd(k->type, n, m, r, r, load_turned(k, 0, p[0], m, n, scratch), s, v, ut);
  if (rc) return rc;
  double most = element(k, s, 0) * k->number;
  for (int64_t j = 0; j < r; j++) {
    double f = element(k, s, j) > most ? 1 / element(k, s, j) : 0;
    for (int64_t i = 0; i < n; i++) set(k, v, i + j * n, f * element(k, v, i + j * n));
  }
  amp_gemm g = { .m = n, .n = m, .k = r, .a = v, .ars = 1, .acs = n, .b = ut, .brs = 1, .bcs = r, .c = p[1], .crs = rs(k, 1), .ccs = cs(k, 1) };
  size_t bytes = (amp__gemm_scratch(&g, k->type) + 63) / 64 * 64;
  void *own = bytes ? aligned_alloc(64, bytes) : NULL;
  if (bytes && !own) return AMP_E_MEMORY;
  amp__gemm(&g, k->type, own);
  free(own);
  return 0;
}

int amp__cpu_pinverse(amp_call *c) { /* rcond */
  job k = square(c);
  int64_t m = k.rows, n = k.cols, r = m < n ? m : n;
  double eps = c->in[0]->dtype == AMP_FLOAT64 ? DBL_EPSILON : c->in[0]->dtype == AMP_FLOAT32 ? FLT_EPSILON : c->in[0]->dtype == AMP_FLOAT16 ? 0x1p-10 : 0x1p-7;
  add(&k, c->out[0], 2);
  k.number = c->a[0].i == AMP_NONE ? (double)(m < n ? n : m) * eps : c->a[0].f;
  k.each = room(&k, m * n) + room(&k, n * r) + room(&k, m * r) + room(&k, r);
  k.one = pseudo_inverse;
  int rc = run(&k, 1, svd_work(&k), 10 * cube(8));
  return rc < 0 || k.bad < 0 ? rc : not_finite(&k);
}

/* -- Eigenvalues --------------------------------------------------------------------------------------------------- */

static int eigen(const job *k, char *const *p, char *scratch) {
  int64_t n = k->rows;
  char *w = scratch + room(k, n * n);
  void *a = k->flag ? load_turned(k, 0, p[0], n, n, scratch) : load(k, 0, p[0], n, n, scratch);
  int rc = k->f->eigh(k->type, k->n > 2, n, a, w);
  if (rc) return rc;
  move(k, n, 1, p[1], rs(k, 1), 0, w, 1, n);
  if (k->n > 2) store(k, 2, p[2], n, n, a);
  return 0;
}

static int eigenvalues(amp_call *c, bool vectors) { /* UPLO */
  job k = square(c);
  add(&k, c->out[0], 1);
  if (vectors) add(&k, c->out[1], 2);
  k.flag = c->a[0].i != 0;
  k.each = room(&k, k.rows * k.rows) + room(&k, k.rows);
  k.one = eigen;
  int rc = run(&k, 1, 10 * cube(k.rows), 10 * cube(6));
  return rc < 0 || k.bad < 0 ? rc : not_finite(&k);
}

int amp__cpu_eigh(amp_call *c) { return eigenvalues(c, true); }
int amp__cpu_eigvalsh(amp_call *c) { return eigenvalues(c, false); }
