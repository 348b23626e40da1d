/*
** ops/linalg/linalg.c: rows of linear algebra: batches of matrices of any layout.
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
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/locks.h"
#include "cpu/gemm.h"
#include "ops/linalg/linalg.h"
#include "cpu/kernel_help.h"

enum { MOST = 4 };

typedef struct job job;
/* One matrix: operand[i] is tensor i's, scratch this thread's. 0, a positive number that `why` explains, or a code. */
typedef int (*one_fn)(const job *task, char *const *operand, char *scratch);

struct job {
  const amp_linalg *factor;
  int type, count; /* tensors: inputs, then results */
  const amp_tensor *tensor[MOST];
  int core[MOST]; /* dimensions of each that are not batch */
  amp__compute_view view[MOST];
  amp__walk walk;
  int64_t rows, cols, rhs;
  bool adjoint, upper, transpose, unit, logs, reduced; /* unit: ones on the diagonal; logs, reduced: of the results */
  double number;
  one_fn one;
  size_t bytes_a_thread;
  char *scratch;
  int64_t bad; /* the first matrix that failed, and how */
  int why;
};

static size_t size_of(const job *task) { return amp__dtype_size[task->type]; }
/* Bytes of n elements in scratch */
static size_t room(const job *task, int64_t n) { return ((size_t)n * size_of(task) + 63) / 64 * 64; }

/* -- Moving matrices ------------------------------------------------------------------------ */

#define real float
#define NAME(x) x##_f32
#include "ops/linalg/linalg_move_body.h"

#define real double
#define NAME(x) x##_f64
#include "ops/linalg/linalg_move_body.h"

static void move(const job *task, int64_t rows, int64_t cols, void *dst, int64_t drs, int64_t dcs, const void *src,
                 int64_t srs, int64_t scs)
{
  if (task->type == AMP_FLOAT64) move_f64(rows, cols, dst, drs, dcs, src, srs, scs);
  else move_f32(rows, cols, dst, drs, dcs, src, srs, scs);
}

/* Strides of tensor i's matrix; of a vector it is one column */
static int64_t row_stride(const job *task, int i)
{
  return task->view[i].stride[task->tensor[i]->ndim - task->core[i]];
}
static int64_t column_stride(const job *task, int i)
{
  return task->core[i] == 2 ? task->view[i].stride[task->tensor[i]->ndim - 1] : 0;
}

/* Tensor i's matrix, of rows x cols, column by column; or its transpose so */
static void *load(const job *task, int i, const void *data, int64_t rows, int64_t cols, void *dst)
{
  move(task, rows, cols, dst, 1, rows, data, row_stride(task, i), column_stride(task, i));
  return dst;
}
static void *load_turned(const job *task, int i, const void *data, int64_t rows, int64_t cols, void *dst)
{
  move(task, rows, cols, dst, cols, 1, data, row_stride(task, i), column_stride(task, i));
  return dst;
}
static void store(const job *task, int i, void *data, int64_t rows, int64_t cols, const void *src)
{
  move(task, rows, cols, data, row_stride(task, i), column_stride(task, i), src, 1, rows);
}
static void store_turned(const job *task, int i, void *data, int64_t rows, int64_t cols, const void *src)
{
  move(task, rows, cols, data, row_stride(task, i), column_stride(task, i), src, cols, 1);
}

static double element(const job *task, const void *data, int64_t i)
{
  return task->type == AMP_FLOAT64 ? ((const double *)data)[i] : ((const float *)data)[i];
}
static void set(const job *task, void *data, int64_t i, double value)
{
  if (task->type == AMP_FLOAT64) ((double *)data)[i] = value;
  else ((float *)data)[i] = (float)value;
}

/* Zeros beside the triangle of a matrix (n rows, column by column) that is kept */
static void keep(const job *task, bool upper, int64_t rows, int64_t cols, void *matrix)
{
  for (int64_t j = 0; j < cols; j++) {
    int64_t from = upper ? j + 1 : 0, to = upper ? rows : j < rows ? j : rows;
    if (from < to)
      memset((char *)matrix + (size_t)(from + j * rows) * size_of(task), 0, (size_t)(to - from) * size_of(task));
  }
}

/* -- Running a job --------------------------------------------------------------------------------- */

static void add(job *task, const amp_tensor *tensor, int core)
{
  AMP_ASSERT(task->count < MOST && tensor->ndim >= core);
  task->core[task->count] = core;
  task->tensor[task->count++] = tensor;
}

static void body(void *ctx, int64_t begin, int64_t end, int thread)
{
  job *task = ctx;
  amp__walk_pos pos;
  char *data[MOST], *scratch = task->scratch + (size_t)thread * task->bytes_a_thread;
  amp__walk_seek(&task->walk, &pos, begin);
  for (int64_t i = begin; i < end; i++, amp__walk_next(&task->walk, &pos)) {
    for (int j = 0; j < task->count; j++) data[j] = (char *)task->view[j].p + pos.off[j] * (int64_t)size_of(task);
    int why = task->one(task, data, scratch);
    if (why == 0) continue;
    amp__lock(AMP_LOCK_MATRICES); /* a named critical section would be a symbol that the library exports */
    if (task->bad < 0 || i < task->bad) {
      task->bad = i;
      task->why = why;
    }
    amp__unlock(AMP_LOCK_MATRICES);
    return;
  }
}

/* Results are task's tensors from `inputs` on. work: operations of one matrix; large: those from which LAPACK is
** used. */
static int run(job *task, int inputs, double work, double large)
{
  amp__scratch scratch = { 0 };
  char small[16 << 10] __attribute__((aligned(64)));
  const amp_tensor *first = task->tensor[0];
  int status = AMP_E_MEMORY, batch = first->ndim - task->core[0];
  const int64_t *strides[MOST];
  task->bad = -1;
  task->factor = &amp__linalg_own;
  if (work >= large) {
    amp__plugin("lapack");
    task->factor = amp__devices[AMP_CPU].linalg;
  }
  for (int i = 0; i < task->count; i++) AMP_ASSERT(task->tensor[i]->ndim - task->core[i] == batch);
  for (int i = 0; i < task->count; i++) {
    if (!(i < inputs ? amp__compute_read(&task->view[i], task->tensor[i], task->type)
                     : amp__compute_write(&task->view[i], task->tensor[i], task->type)))
      goto out;
    strides[i] = task->view[i].stride;
  }
  amp__walk_init(&task->walk, batch, first->size, 0, task->count, strides);
  status = 0;
  if (task->walk.n == 0) goto out;
  double all = work * (double)task->walk.n;
  int threads = all < 1e5 ? 1 : amp__threads_for(all > 1e15 ? (int64_t)1e15 : (int64_t)all, task->walk.n);
  task->bytes_a_thread = (task->bytes_a_thread + 63) / 64 * 64;
  if (!amp__scratch_lend(&scratch, small, sizeof small, task->bytes_a_thread * (size_t)threads)) {
    status = AMP_E_MEMORY;
    goto out;
  }
  task->scratch = scratch.p;
  amp__parallel_ranges(threads, task->walk.n, body, task);
  if (task->bad >= 0 && task->why < 0) status = amp__nomem(task->bytes_a_thread);
out:
  for (int i = 0; i < task->count; i++) {
    if (i >= inputs && status == 0 && task->bad < 0) amp__compute_written(&task->view[i], task->tensor[i], task->type);
    amp__compute_drop(&task->view[i]);
  }
  amp__scratch_return(&scratch);
  return status;
}

/* "the matrix", "matrix 3 of 5" */
static const char *which(const job *task, char *text)
{
  if (task->tensor[0]->ndim == task->core[0]) return "the matrix";
  snprintf(text, 64, "matrix %lld of %lld", (long long)task->bad + 1, (long long)task->walk.n);
  return text;
}

static int singular(const job *task)
{
  char text[64];
  return amp__fail(
      AMP_E_VALUE,
      "%s is singular: pivot %d of %lld of its LU factors is 0; amp.pinverse and amp.lstsq take such matrices",
      which(task, text), task->why, (long long)task->rows);
}

static int not_finite(const job *task)
{
  char text[64];
  return amp__fail(AMP_E_VALUE, "%s holds NaN or infinity, or is too close to that for the iteration to end",
                   which(task, text));
}

static int64_t rows_of(const amp_tensor *tensor) { return tensor->size[tensor->ndim - 2]; }
static int64_t cols_of(const amp_tensor *tensor) { return tensor->size[tensor->ndim - 1]; }
static double cube(int64_t n) { return (double)n * (double)n * (double)n; }

/* A job of one matrix, or a batch */
static job matrix_job(amp_call *call)
{
  job task
      = { .type = amp__compute_dtype(call->in[0]->dtype), .rows = rows_of(call->in[0]), .cols = cols_of(call->in[0]) };
  add(&task, call->in[0], 2);
  return task;
}

/* -- Inverse and systems ------------------------------------------------------------------------------- */

static int invert(const job *task, char *const *operand, char *scratch)
{
  int64_t n = task->rows;
  int32_t *piv = (int32_t *)(scratch + room(task, n * n));
  void *matrix = load_turned(task, 0, operand[0], n, n, scratch);
  int status = task->factor->lu(task->type, n, matrix, piv);
  if (status == 0) status = task->factor->lu_inverse(task->type, n, matrix, piv);
  if (status == 0) store_turned(task, 1, operand[1], n, n, matrix);
  return status;
}

int amp__cpu_inverse(amp_call *call)
{
  job task = matrix_job(call);
  AMP_ASSERT(task.rows == task.cols);
  add(&task, call->out[0], 2);
  task.bytes_a_thread = room(&task, task.rows * task.rows) + 4 * (size_t)task.rows;
  task.one = invert;
  int status = run(&task, 1, 2 * cube(task.rows), 2 * cube(64));
  return status < 0 || task.bad < 0 ? status : singular(&task);
}

static int linear(const job *task, char *const *operand, char *scratch)
{
  int64_t n = task->rows, m = task->rhs;
  char *rhs = scratch + room(task, n * n);
  int32_t *piv = (int32_t *)(rhs + room(task, n * m));
  void *matrix = load_turned(task, 0, operand[0], n, n, scratch);
  int status = task->factor->lu(task->type, n, matrix, piv);
  if (status == 0)
    status
        = task->factor->lu_solve(task->type, !task->adjoint, n, m, matrix, piv, load(task, 1, operand[1], n, m, rhs));
  if (status == 0) store(task, 2, operand[2], n, m, rhs);
  return status;
}

int amp__cpu_linear_solve(amp_call *call)
{
  job task = matrix_job(call);
  AMP_ASSERT(task.rows == task.cols);
  add(&task, call->in[1], 2);
  add(&task, call->out[0], 2);
  AMP_ASSERT(rows_of(call->in[1]) == task.rows);
  task.rhs = cols_of(call->in[1]);
  task.adjoint = AMP_ARGS(call, linear_solve)->adjoint != 0;
  task.bytes_a_thread = room(&task, task.rows * task.rows) + room(&task, task.rows * task.rhs) + 4 * (size_t)task.rows;
  task.one = linear;
  int status = run(&task, 2, 0.67 * cube(task.rows) + 2.0 * (double)task.rows * (double)task.rows * (double)task.rhs,
                   0.67 * cube(96));
  return status < 0 || task.bad < 0 ? status : singular(&task);
}

static int triangle(const job *task, char *const *operand, char *scratch)
{
  int64_t n = task->rows, m = task->rhs;
  char *rhs = scratch + room(task, n * n);
  void *matrix = load_turned(task, 0, operand[0], n, n, scratch); /* A^T, whose triangle is the other one */
  for (int64_t i = 0; !task->unit && i < n; i++)
    if (element(task, matrix, i * (n + 1)) == 0) return (int)i + 1;
  int status = task->factor->triangular(task->type, !task->upper, !task->transpose, task->unit, n, m, matrix,
                                        load(task, 1, operand[1], n, m, rhs));
  if (status == 0) store(task, 2, operand[2], n, m, rhs);
  return status;
}

int amp__cpu_trisolve(amp_call *call)
{
  const args_trisolve *args = AMP_ARGS(call, trisolve);
  char text[64];
  job task = matrix_job(call);
  AMP_ASSERT(task.rows == task.cols);
  add(&task, call->in[1], 2);
  add(&task, call->out[0], 2);
  AMP_ASSERT(rows_of(call->in[1]) == task.rows);
  task.rhs = cols_of(call->in[1]);
  task.upper = args->upper != 0;
  task.transpose = args->transpose != 0;
  task.unit = args->unitriangular != 0;
  task.bytes_a_thread = room(&task, task.rows * task.rows) + room(&task, task.rows * task.rhs);
  task.one = triangle;
  int status = run(&task, 2, (double)task.rows * (double)task.rows * (double)task.rhs, cube(96));
  if (status < 0 || task.bad < 0) return status;
  return amp__fail(AMP_E_VALUE, "%s is singular: element %d of its diagonal is 0", which(&task, text), task.why);
}

static int factor(const job *task, char *const *operand, char *scratch)
{
  int64_t n = task->rows;
  bool upper = task->upper;
  void *matrix = upper ? load_turned(task, 0, operand[0], n, n, scratch) : load(task, 0, operand[0], n, n, scratch);
  int status = task->factor->cholesky(task->type, n, matrix);
  if (status) return status;
  keep(task, false, n, n, matrix);
  if (upper) store_turned(task, 1, operand[1], n, n, matrix);
  else store(task, 1, operand[1], n, n, matrix);
  return 0;
}

int amp__cpu_cholesky(amp_call *call)
{
  char text[64];
  job task = matrix_job(call);
  AMP_ASSERT(task.rows == task.cols);
  add(&task, call->out[0], 2);
  task.upper = AMP_ARGS(call, cholesky)->upper != 0;
  task.bytes_a_thread = room(&task, task.rows * task.rows);
  task.one = factor;
  int status = run(&task, 1, cube(task.rows) / 3, cube(128) / 3);
  if (status < 0 || task.bad < 0) return status;
  return amp__fail(AMP_E_VALUE, "%s is not positive-definite: its leading minor of order %d is not positive",
                   which(&task, text), task.why);
}

/* -- Determinants ------------------------------------------------------------------------------------------ */

/* Sign, product and sum of logarithms of the pivots of n */
static void pivots(const job *task, int64_t n, const void *factors, const int32_t *piv, double *sign, double *det,
                   double *log_abs)
{
  *sign = 1;
  *det = 1;
  *log_abs = 0;
  for (int64_t i = 0; i < n; i++) {
    double u = element(task, factors, i * (n + 1));
    if (piv[i] != i) *sign = -*sign;
    if (u < 0) *sign = -*sign;
    if (u == 0) *sign = 0;
    if (u != u) *sign = u;
    *det *= fabs(u);
    *log_abs += log(fabs(u));
  }
  *det *= *sign;
}

static int determinant(const job *task, char *const *operand, char *scratch)
{
  int64_t n = task->rows;
  double sign, det, log_abs;
  int32_t *piv = (int32_t *)(scratch + room(task, n * n));
  void *matrix = load_turned(task, 0, operand[0], n, n, scratch);
  int status = task->factor->lu(task->type, n, matrix, piv);
  if (status < 0) return status;
  pivots(task, n, matrix, piv, &sign, &det, &log_abs);
  if (status > 0) {
    sign = det = 0;
    log_abs = -INFINITY;
  } /* an exact zero pivot, whatever stands after it */
  set(task, operand[1], 0, task->logs ? sign : det);
  if (task->logs) set(task, operand[2], 0, log_abs);
  return 0;
}

static int by_pivots(amp_call *call, bool logs)
{
  job task = matrix_job(call);
  add(&task, call->out[0], 0);
  if (logs) add(&task, call->out[1], 0);
  task.logs = logs;
  task.bytes_a_thread = room(&task, task.rows * task.rows) + 4 * (size_t)task.rows;
  task.one = determinant;
  return run(&task, 1, 0.67 * cube(task.rows), 0.67 * cube(96));
}

int amp__cpu_det(amp_call *call) { return by_pivots(call, false); }
int amp__cpu_slogdet(amp_call *call) { return by_pivots(call, true); }

/* det(A) A^-T, with 0 among the pivots replaced by what rounding could have made of it */
static int cofactors(const job *task, char *const *operand, char *scratch)
{
  int64_t n = task->rows;
  double sign, det, log_abs, most = 0, eps = task->type == AMP_FLOAT64 ? DBL_EPSILON : FLT_EPSILON;
  int32_t *piv = (int32_t *)(scratch + room(task, n * n));
  void *matrix = load_turned(task, 0, operand[0], n, n, scratch);
  int status = amp__linalg_own.lu(task->type, n, matrix, piv); /* goes on after a zero pivot */
  if (status < 0) return status;
  for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(element(task, matrix, i * (n + 1))));
  for (int64_t i = 0; i < n; i++)
    if (element(task, matrix, i * (n + 1)) == 0) set(task, matrix, i * (n + 1), most > 0 ? eps * most : eps);
  pivots(task, n, matrix, piv, &sign, &det, &log_abs);
  if ((status = task->factor->lu_inverse(task->type, n, matrix, piv)) < 0) return status; /* of A^T */
  for (int64_t i = 0; i < n * n; i++) set(task, matrix, i, det * element(task, matrix, i));
  store(task, 1, operand[1], n, n, matrix);
  return 0;
}

int amp__cpu_cofactor(amp_call *call)
{
  job task = matrix_job(call);
  AMP_ASSERT(task.rows == task.cols);
  add(&task, call->out[0], 2);
  task.bytes_a_thread = room(&task, task.rows * task.rows) + 4 * (size_t)task.rows;
  task.one = cofactors;
  return run(&task, 1, 2 * cube(task.rows), 2 * cube(64));
}

/* -- Orthogonal factors ------------------------------------------------------------------------------------------ */

static int orthogonal(const job *task, char *const *operand, char *scratch)
{
  int64_t m = task->rows, n = task->cols, nq = task->rhs;
  char *q = scratch + room(task, m * n);
  int status = task->factor->qr(task->type, m, n, nq, load(task, 0, operand[0], m, n, scratch), q);
  if (status) return status;
  keep(task, true, m, n, scratch);
  move(task, nq, n, operand[2], row_stride(task, 2), column_stride(task, 2), scratch, 1, m);
  store(task, 1, operand[1], m, nq, q);
  return 0;
}

int amp__cpu_qr(amp_call *call)
{
  job task = matrix_job(call);
  add(&task, call->out[0], 2);
  add(&task, call->out[1], 2);
  task.rhs = cols_of(call->out[0]);
  task.bytes_a_thread = room(&task, task.rows * task.cols) + room(&task, task.rows * task.rhs);
  task.one = orthogonal;
  return run(&task, 1,
             4.0 * (double)task.rows * (double)task.cols * (double)(task.rows < task.cols ? task.rows : task.cols),
             4 * cube(40));
}

/* A^T = V S U^T is what stands in memory: its left vectors are V's columns, and its right ones U's rows */
static int singular_vectors(const job *task, char *const *operand, char *scratch)
{
  int64_t m = task->rows, n = task->cols, r = m < n ? m : n, nu = task->reduced ? r : m, nv = task->reduced ? r : n;
  char *v = scratch + room(task, m * n), *ut = v + room(task, n * nv), *s = ut + room(task, nu * m);
  int status = task->factor->svd(task->type, n, m, nv, nu, load_turned(task, 0, operand[0], m, n, scratch), s, v, ut);
  if (status) return status;
  store_turned(task, 1, operand[1], m, nu, ut);
  move(task, r, 1, operand[2], row_stride(task, 2), 0, s, 1, r);
  store(task, 3, operand[3], n, nv, v);
  return 0;
}

static double svd_work(const job *task)
{
  return 10.0 * (double)task->rows * (double)task->cols * (double)(task->rows < task->cols ? task->rows : task->cols);
}

int amp__cpu_svd(amp_call *call)
{
  job task = matrix_job(call);
  int64_t m = task.rows, n = task.cols, r = m < n ? m : n;
  add(&task, call->out[0], 2);
  add(&task, call->out[1], 1);
  add(&task, call->out[2], 2);
  task.reduced = AMP_ARGS(call, svd)->some != 0;
  task.bytes_a_thread = room(&task, m * n) + room(&task, n * (task.reduced ? r : n))
                        + room(&task, m * (task.reduced ? r : m)) + room(&task, r);
  task.one = singular_vectors;
  int status = run(&task, 1, svd_work(&task), 10 * cube(8));
  return status < 0 || task.bad < 0 ? status : not_finite(&task);
}

static int singular_values(const job *task, char *const *operand, char *scratch)
{
  int64_t m = task->rows, n = task->cols, r = m < n ? m : n;
  char *s = scratch + room(task, m * n);
  int status
      = task->factor->svd(task->type, n, m, 0, 0, load_turned(task, 0, operand[0], m, n, scratch), s, NULL, NULL);
  if (status == 0) move(task, r, 1, operand[1], row_stride(task, 1), 0, s, 1, r);
  return status;
}

int amp__cpu_svdvals(amp_call *call)
{
  job task = matrix_job(call);
  add(&task, call->out[0], 1);
  task.bytes_a_thread = room(&task, task.rows * task.cols) + room(&task, task.rows < task.cols ? task.rows : task.cols);
  task.one = singular_values;
  int status = run(&task, 1, svd_work(&task), 10 * cube(8));
  return status < 0 || task.bad < 0 ? status : not_finite(&task);
}

/* P = V diag(1 / s) U^T, of A^T = V S U^T as it stands in memory */
static int pseudo_inverse(const job *task, char *const *operand, char *scratch)
{
  int64_t m = task->rows, n = task->cols, r = m < n ? m : n;
  char *v = scratch + room(task, m * n), *u_turned = v + room(task, n * r), *s = u_turned + room(task, r * m);
  if (r == 0) return 0;
  int status
      = task->factor->svd(task->type, n, m, r, r, load_turned(task, 0, operand[0], m, n, scratch), s, v, u_turned);
  if (status) return status;
  double most = element(task, s, 0) * task->number;
  for (int64_t j = 0; j < r; j++) {
    double f = element(task, s, j) > most ? 1 / element(task, s, j) : 0;
    for (int64_t i = 0; i < n; i++) set(task, v, i + j * n, f * element(task, v, i + j * n));
  }
  amp_gemm gemm = { .m = n,
                    .n = m,
                    .k = r,
                    .a = v,
                    .ars = 1,
                    .acs = n,
                    .b = u_turned,
                    .brs = 1,
                    .bcs = r,
                    .c = operand[1],
                    .crs = row_stride(task, 1),
                    .ccs = column_stride(task, 1) };
  size_t bytes = (amp__gemm_scratch(&gemm, task->type) + 63) / 64 * 64;
  void *own = bytes ? aligned_alloc(64, bytes) : NULL;
  if (bytes && !own) return AMP_E_MEMORY;
  amp__gemm(&gemm, task->type, own);
  free(own);
  return 0;
}

int amp__cpu_pinverse(amp_call *call)
{
  const args_pinverse *args = AMP_ARGS(call, pinverse);
  job task = matrix_job(call);
  int64_t m = task.rows, n = task.cols, r = m < n ? m : n;
  double eps = call->in[0]->dtype == AMP_FLOAT64   ? DBL_EPSILON
               : call->in[0]->dtype == AMP_FLOAT32 ? FLT_EPSILON
               : call->in[0]->dtype == AMP_FLOAT16 ? 0x1p-10
                                                   : 0x1p-7;
  add(&task, call->out[0], 2);
  task.number = AMP_GIVEN(args->rcond) ? args->rcond : (double)(m < n ? n : m) * eps;
  task.bytes_a_thread = room(&task, m * n) + room(&task, n * r) + room(&task, m * r) + room(&task, r);
  task.one = pseudo_inverse;
  int status = run(&task, 1, svd_work(&task), 10 * cube(8));
  return status < 0 || task.bad < 0 ? status : not_finite(&task);
}

/* -- Eigenvalues --------------------------------------------------------------------------------------------------- */

static int eigen(const job *task, char *const *operand, char *scratch)
{
  int64_t n = task->rows;
  char *w = scratch + room(task, n * n);
  void *matrix
      = task->upper ? load_turned(task, 0, operand[0], n, n, scratch) : load(task, 0, operand[0], n, n, scratch);
  int status = task->factor->eigh(task->type, task->count > 2, n, matrix, w);
  if (status) return status;
  move(task, n, 1, operand[1], row_stride(task, 1), 0, w, 1, n);
  if (task->count > 2) store(task, 2, operand[2], n, n, matrix);
  return 0;
}

/* uplo: the triangle that is read */
static int eigenvalues(amp_call *call, int64_t uplo, bool vectors)
{
  job task = matrix_job(call);
  add(&task, call->out[0], 1);
  if (vectors) add(&task, call->out[1], 2);
  task.upper = uplo == UPLO_U;
  task.bytes_a_thread = room(&task, task.rows * task.rows) + room(&task, task.rows);
  task.one = eigen;
  int status = run(&task, 1, 10 * cube(task.rows), 10 * cube(6));
  return status < 0 || task.bad < 0 ? status : not_finite(&task);
}

int amp__cpu_eigh(amp_call *call) { return eigenvalues(call, AMP_ARGS(call, eigh)->UPLO, true); }
int amp__cpu_eigvalsh(amp_call *call) { return eigenvalues(call, AMP_ARGS(call, eigvalsh)->UPLO, false); }
