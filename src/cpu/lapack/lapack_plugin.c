/*
** lapack_plugin.c: libamp_lapack.so, the table of factorisations (ops/linalg/factorisations.h)
** by LAPACK: OpenBLAS's, or the system's liblapack. Only the Fortran symbols are
** used, so no header is needed; integers are 32-bit, larger matrices go to the
** own loops. Work space is asked for and allocated at each call.
**
** OpenBLAS brings threads of its own: it is told to use one, because batches are
** shared out by the caller, or as many as the core deems right for a large
** matrix. Where the setting is missing (plain LAPACK), nothing is set.
*/
#include <limits.h>
#include <stdlib.h>
#include <stdio.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#include "library/table_hash.h"

#define TYPED(name, args) \
  void s##name##_ args;   \
  void d##name##_ args;
TYPED(getrf, (const int *m, const int *n, void *a, const int *lda, int *piv, int *info))
TYPED(getrs, (const char *trans, const int *n, const int *k, const void *a, const int *lda, const int *piv, void *b,
              const int *ldb, int *info))
TYPED(getri, (const int *n, void *a, const int *lda, const int *piv, void *work, const int *lwork, int *info))
TYPED(potrf, (const char *uplo, const int *n, void *a, const int *lda, int *info))
TYPED(trtrs, (const char *uplo, const char *trans, const char *diag, const int *n, const int *k, const void *a,
              const int *lda, void *b, const int *ldb, int *info))
TYPED(geqrf, (const int *m, const int *n, void *a, const int *lda, void *tau, void *work, const int *lwork, int *info))
TYPED(orgqr, (const int *m, const int *n, const int *k, void *a, const int *lda, const void *tau, void *work,
              const int *lwork, int *info))
TYPED(gesdd, (const char *job, const int *m, const int *n, void *a, const int *lda, void *s, void *u, const int *ldu,
              void *vt, const int *ldvt, void *work, const int *lwork, int *iwork, int *info))
TYPED(syevd, (const char *job, const char *uplo, const int *n, void *a, const int *lda, void *w, void *work,
              const int *lwork, int *iwork, const int *liwork, int *info))
#define CALL(type, name, ...) ((type) == AMP_FLOAT64 ? d##name##_(__VA_ARGS__) : s##name##_(__VA_ARGS__))

void openblas_set_num_threads(int n) __attribute__((weak));
int openblas_get_num_threads(void) __attribute__((weak));

static const amp_linalg *own;
static int (*core_threads)(int64_t work);

static size_t bytes_of(int type) { return type == AMP_FLOAT64 ? 8 : 4; }
static bool too_large(int64_t m, int64_t count) { return m > INT_MAX || count > INT_MAX; }
/* LAPACK counts a workspace of so many numbers in 32 bits, and what overflows there is written beyond. */
static bool overflows(double numbers) { return numbers > INT_MAX - 64; }
static int at_least_1(int64_t count) { return count > 1 ? (int)count : 1; } /* leading dimensions */

/* A size that LAPACK gives as a float, which may have been rounded down */
static int asked(int type, const void *work)
{
  double n = type == AMP_FLOAT64 ? *(const double *)work : *(const float *)work;
  n *= 1 + 1e-6;
  return n < 1 ? 1 : n > INT_MAX - 64 ? INT_MAX - 64 : (int)n + 1;
}

/* One thread inside a parallel region, else as many as are worth it */
static void threads_for(double flop)
{
  if (!openblas_set_num_threads || !openblas_get_num_threads) return;
  int n = 1;
#ifdef _OPENMP
  if (!omp_in_parallel())
#endif
    n = flop < 2e7 ? 1 : core_threads((int64_t)(flop / 32));
  if (openblas_get_num_threads() != n) openblas_set_num_threads(n);
}

static double cube(int64_t count) { return (double)count * (double)count * (double)count; }

/* -- LU, Cholesky, triangles -------------------------------------------------------- */

static int lu(int type, int64_t count, void *a, int32_t *piv)
{
  int m = (int)count, stride = at_least_1(count), info = 0;
  if (too_large(count, count)) return own->lu(type, count, a, piv);
  threads_for(cube(count));
  CALL(type, getrf, &m, &m, a, &stride, piv, &info);
  for (int i = 0; i < m; i++) piv[i]--;
  return info > 0 ? info : 0;
}

/* LAPACK's pivots count from 1 */
static int32_t *from_1(int64_t count, const int32_t *piv)
{
  int32_t *pivots = malloc((size_t)(count ? count : 1) * sizeof *pivots);
  for (int64_t i = 0; pivots && i < count; i++) pivots[i] = piv[i] + 1;
  return pivots;
}

static int lu_solve(int type, bool transpose, int64_t count, int64_t k, const void *lu, const int32_t *piv, void *b)
{
  int m = (int)count, cols = (int)k, stride = at_least_1(count), info = 0;
  if (too_large(count, k)) return own->lu_solve(type, transpose, count, k, lu, piv, b);
  int32_t *pivots = from_1(count, piv);
  if (!pivots) return AMP_E_MEMORY;
  threads_for((double)count * (double)count * (double)k);
  CALL(type, getrs, transpose ? "T" : "N", &m, &cols, lu, &stride, pivots, b, &stride, &info);
  free(pivots);
  return 0;
}

static int lu_inverse(int type, int64_t count, void *a, const int32_t *piv)
{
  int m = (int)count, stride = at_least_1(count), info = 0, lwork = -1, status = AMP_E_MEMORY;
  double size;
  void *work = NULL;
  if (too_large(count, count)) return own->lu_inverse(type, count, a, piv);
  int32_t *pivots = from_1(count, piv);
  if (!pivots) goto out;
  CALL(type, getri, &m, a, &stride, pivots, &size, &lwork, &info);
  lwork = asked(type, &size);
  if (!(work = malloc((size_t)lwork * bytes_of(type)))) goto out;
  threads_for(2 * cube(count));
  CALL(type, getri, &m, a, &stride, pivots, work, &lwork, &info);
  status = info > 0 ? info : 0;
out:
  free(work);
  free(pivots);
  return info < 0 ? own->lu_inverse(type, count, a, piv) : status; /* refused before a was touched */
}

static int cholesky(int type, int64_t count, void *a)
{
  int m = (int)count, stride = at_least_1(count), info = 0;
  if (too_large(count, count)) return own->cholesky(type, count, a);
  threads_for(cube(count) / 3);
  CALL(type, potrf, "L", &m, a, &stride, &info);
  return info > 0 ? info : 0;
}

static int triangular(int type, bool upper, bool transpose, bool unit, int64_t count, int64_t k, const void *a, void *b)
{
  int m = (int)count, cols = (int)k, stride = at_least_1(count), info = 0;
  if (too_large(count, k)) return own->triangular(type, upper, transpose, unit, count, k, a, b);
  threads_for((double)count * (double)count * (double)k);
  CALL(type, trtrs, upper ? "U" : "L", transpose ? "T" : "N", unit ? "U" : "N", &m, &cols, a, &stride, b, &stride,
       &info);
  return info > 0 ? info : 0;
}

/* -- Orthogonal factors --------------------------------------------------------------- */

static int qr(int type, int64_t m, int64_t count, int64_t nq, void *a, void *q)
{
  int64_t r = m < count ? m : count;
  int rows = (int)m, cols = (int)count, out = (int)nq, k = (int)r, stride = at_least_1(m), info = 0, ask = -1, lwork,
      more;
  double size, size2;
  if (too_large(m, count)) return own->qr(type, m, count, nq, a, q);
  CALL(type, geqrf, &rows, &cols, a, &stride, a, &size, &ask, &info);
  CALL(type, orgqr, &rows, &out, &k, q, &stride, a, &size2, &ask, &info);
  lwork = asked(type, &size);
  if ((more = asked(type, &size2)) > lwork) lwork = more;
  char *work = malloc(((size_t)lwork + (size_t)r) * bytes_of(type));
  if (!work) return AMP_E_MEMORY;
  void *tau = work + (size_t)lwork * bytes_of(type);
  threads_for(4.0 * (double)m * (double)count * (double)r);
  CALL(type, geqrf, &rows, &cols, a, &stride, tau, work, &lwork, &info);
  if (info < 0) {
    free(work);
    return own->qr(type, m, count, nq, a, q);
  }
  memcpy(q, a, (size_t)(m * (r < nq ? r : nq)) * bytes_of(type)); /* the reflections */
  CALL(type, orgqr, &rows, &out, &k, q, &stride, tau, work, &lwork, &info);
  free(work);
  return info < 0 ? AMP_E_INTERNAL : 0;
}

/* divide and conquer gives up (or runs on) where it meets NaN: look first */
static bool all_finite(int type, int64_t count, const void *a)
{
  float f = 0;
  double d = 0;
  if (type == AMP_FLOAT64)
    for (int64_t i = 0; i < count; i++) d += ((const double *)a)[i] * 0;
  else
    for (int64_t i = 0; i < count; i++) f += ((const float *)a)[i] * 0;
  return d == 0 && f == 0;
}

static int svd(int type, int64_t m, int64_t count, int64_t nu, int64_t nv, void *a, void *s, void *u, void *vt)
{
  int64_t r = m < count ? m : count;
  int rows = (int)m, cols = (int)count, stride = at_least_1(m), ldvt = at_least_1(nv), info = 0, lwork = -1;
  const char *job = u == NULL ? "N" : nu == r && nv == r ? "S" : "A";
  double size, none;
  if (too_large(m, count) || r == 0 || overflows(8.0 * (double)r * (double)r + 256.0 * (double)(m + count)))
    return own->svd(type, m, count, nu, nv, a, s, u, vt);
  if (!all_finite(type, m * count, a)) return 1;
  int *iwork = malloc((size_t)(8 * r) * sizeof *iwork);
  if (!iwork) return AMP_E_MEMORY;
  CALL(type, gesdd, job, &rows, &cols, a, &stride, s, u ? u : &none, &stride, vt ? vt : &none, &ldvt, &size, &lwork,
       iwork, &info);
  lwork = asked(type, &size);
  void *work = malloc((size_t)lwork * bytes_of(type));
  if (work) {
    threads_for(10.0 * (double)m * (double)count * (double)r);
    CALL(type, gesdd, job, &rows, &cols, a, &stride, s, u ? u : &none, &stride, vt ? vt : &none, &ldvt, work, &lwork,
         iwork, &info);
  }
  free(iwork);
  free(work);
  if (work && info < 0) return own->svd(type, m, count, nu, nv, a, s, u, vt);
  return work ? info > 0 : AMP_E_MEMORY;
}

static int eigh(int type, bool vectors, int64_t count, void *a, void *w)
{
  int m = (int)count, stride = at_least_1(count), info = 0, lwork = -1, liwork = -1, isize = 1;
  double size;
  if (too_large(count, count) || overflows(2.0 * (double)count * (double)count + 64.0 * (double)count))
    return own->eigh(type, vectors, count, a, w);
  for (int64_t j = 0; j < count; j++) /* what is not read must not hold NaN either, for `all_finite` */
    for (int64_t i = 0; i < j; i++) memset((char *)a + (size_t)(i + j * count) * bytes_of(type), 0, bytes_of(type));
  if (!all_finite(type, count * count, a)) return 1;
  CALL(type, syevd, vectors ? "V" : "N", "L", &m, a, &stride, w, &size, &lwork, &isize, &liwork, &info);
  lwork = asked(type, &size);
  liwork = isize > 0 ? isize : 1;
  void *work = malloc((size_t)lwork * bytes_of(type) + 8);
  int *iwork = malloc((size_t)liwork * sizeof *iwork);
  if (work && iwork) {
    threads_for(10 * cube(count));
    CALL(type, syevd, vectors ? "V" : "N", "L", &m, a, &stride, w, work, &lwork, iwork, &liwork, &info);
  }
  bool ok = work && iwork;
  free(work);
  free(iwork);
  if (ok && info < 0) return own->eigh(type, vectors, count, a, w);
  return ok ? info > 0 : AMP_E_MEMORY;
}

/* -- Entry ------------------------------------------------------------------------------ */

__attribute__((visibility("default"))) const char *amp_plugin_version(void)
{
  return openblas_set_num_threads ? "LAPACK of OpenBLAS" : "LAPACK";
}

__attribute__((visibility("default"))) const char *amp_plugin_init(uint64_t table_hash, amp_device_ops *devices)
{
  static const amp_linalg table = { lu, lu_solve, lu_inverse, cholesky, triangular, qr, svd, eigh };
  if (table_hash != amp__table_hash()) return "it was built for another version of amp";
  own = devices[AMP_CPU].linalg;
  core_threads = devices[AMP_CPU].threads;
  devices[AMP_CPU].linalg = &table;
  return NULL;
}
