/*
** ops/linalg/linalg_jacobi.c: singular values by rotations of pairs of columns until all
** are orthogonal (Hestenes), eigenvalues of symmetric matrices by rotations that
** take one element after the other off the diagonal (Jacobi).
**
**   A V = U diag(s): columns of A turn into s(j) u(j), V gathers the rotations
**
** Everything is in double, so small singular values of float32 are right to the
** last digit. It takes some ten sweeps over all pairs: simple and exact, and
** meant for the small matrices that LAPACK is not asked for.
*/
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include "ops/linalg/linalg.h"
#include "cpu/vector_math.h"

enum { RANK_SWEEPS = 12, MAX_SWEEPS = 60 };

/* -- Elements ------------------------------------------------------------------------- */

static double get(int type, const void *data, int64_t i)
{
  return type == AMP_FLOAT64 ? ((const double *)data)[i] : ((const float *)data)[i];
}
static void put(int type, void *data, int64_t i, double value)
{
  if (type == AMP_FLOAT64) ((double *)data)[i] = value;
  else ((float *)data)[i] = (float)value;
}

AMP_CLONES static double dot(const double *x, const double *y, int64_t n)
{
  double s = 0;
  _Pragma("omp simd reduction(+ : s)") for (int64_t i = 0; i < n; i++) s += x[i] * y[i];
  return s;
}

AMP_CLONES static void rotate(double *restrict x, double *restrict y, double c, double s, int64_t n)
{
  for (int64_t i = 0; i < n; i++) {
    double a = x[i], b = y[i];
    x[i] = c * a - s * b;
    y[i] = s * a + c * b;
  }
}

/* Tangent of the smaller angle that makes (p, q; q, r) diagonal */
static double tangent(double p, double q, double r)
{
  double z = (r - p) / (2 * q);
  return (z >= 0 ? 1 : -1) / (fabs(z) + sqrt(1 + z * z)); /* 0 where that is infinite */
}

/* The scale, a power of 2, that brings n elements to about 1; 0: not finite */
static double scale_of(int type, const void *matrix, int64_t n)
{
  double most = 0;
  int e;
  for (int64_t i = 0; i < n; i++) {
    double v = fabs(get(type, matrix, i));
    if (!(v <= DBL_MAX)) return 0;
    if (v > most) most = v;
  }
  if (most == 0) return 1;
  frexp(most, &e);
  return ldexp(1, e > 1000 ? 1000 : e < -1000 ? -1000 : e);
}

/* -- Singular values --------------------------------------------------------------------- */

#define ROUNDING (16 * DBL_EPSILON)

/* Columns of g (m x n) become orthogonal; v (n x n or NULL) takes the rotations. *loose: those whose length is up to
** ROUNDING of the longest one are not */
static int orthogonal(int64_t m, int64_t n, double *g, double *v, double *square, bool *loose)
{
  bool again = true;
  for (int sweep = 0; again; sweep++) {
    if (sweep == MAX_SWEEPS) return 1;
    again = *loose = false;
    for (int64_t j = 0; j < n; j++) square[j] = dot(g + j * m, g + j * m, m);
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = i + 1; j < n; j++) {
        double *left = g + i * m, *right = g + j * m, q = dot(left, right, m);
        if (!(fabs(q) > 4 * DBL_EPSILON * sqrt(square[i]) * sqrt(square[j])) || fabs(q) < DBL_MIN) continue;
        /* a column that is rounding error of the other one (the rank is less than n) never gets orthogonal */
        double least = square[i] < square[j] ? square[i] : square[j],
               most = square[i] < square[j] ? square[j] : square[i];
        if (sweep >= RANK_SWEEPS && sqrt(least) <= ROUNDING * sqrt(most)) {
          *loose = true;
          continue;
        }
        double t = tangent(square[i], q, square[j]), c = 1 / sqrt(1 + t * t), s = c * t;
        again = true;
        rotate(left, right, c, s, m);
        if (v) rotate(v + i * n, v + j * n, c, s, n);
        square[i] = dot(left, left, m);
        square[j] = dot(right, right, m);
      }
  }
  return 0;
}

/* Columns from `have` on of u (m x count), orthogonal to those before and to each other */
static int complete(int64_t m, int64_t have, int64_t count, double *u)
{
  double *mem = have < count ? malloc((size_t)(m * (have + m)) * sizeof(double)) : NULL;
  AMP_ASSERT(have <= count && count <= m);
  if (have == count) return 0;
  if (!mem) return AMP_E_MEMORY;
  memcpy(mem, u, (size_t)(m * have) * sizeof(double));
  int status = amp__linalg_own.qr(AMP_FLOAT64, m, have, m, mem, mem + m * have);
  if (status == 0) memcpy(u + m * have, mem + m * have + m * have, (size_t)(m * (count - have)) * sizeof(double));
  free(mem);
  return status;
}

/* Sizes m >= n: s, left vectors u (m x nu), right ones v (n x n); u, v NULL: none */
static int tall(int64_t m, int64_t n, int64_t nu, double *g, double *s, double *u, double *v, int64_t *order)
{
  for (int64_t i = 0; v && i < n * n; i++) v[i] = i % (n + 1) == 0;
  bool loose = false;
  AMP_ASSERT(m >= n);
  int status = orthogonal(m, n, g, v, s, &loose);
  if (status) return status;
  for (int64_t j = 0; j < n; j++) {
    s[j] = sqrt(dot(g + j * m, g + j * m, m));
    int64_t i = j; /* order by falling value */
    for (; i > 0 && s[order[i - 1]] < s[j]; i--) order[i] = order[i - 1];
    order[i] = j;
  }
  if (!u) return 0;
  int64_t have = 0;
  double least = n > 0 && loose ? 2 * ROUNDING * s[order[0]] : 0; /* shorter columns have no direction of their own */
  for (; have < n && s[order[have]] > fmax(least, 1e-290); have++)
    for (int64_t i = 0; i < m; i++) u[i + have * m] = g[i + order[have] * m] / s[order[have]];
  return complete(m, have, nu, u);
}

int amp__jacobi_svd(int type, int64_t m, int64_t n, int64_t nu, int64_t nv, void *matrix, void *s, void *u, void *vt)
{
  bool wide = m < n; /* then of A^T = V diag(s) U^T */
  int64_t rows = wide ? n : m, least = wide ? m : n, left = wide ? nv : nu;
  double scale = scale_of(type, matrix, m * n);
  if (scale == 0) return 1;
  size_t count = (size_t)(rows * least + least + (u ? rows * left + least * least : 0));
  char *mem = malloc(count * sizeof(double) + (size_t)least * sizeof(int64_t) + 8);
  if (!mem) return AMP_E_MEMORY;
  int64_t *order = (int64_t *)mem;
  double *columns = (double *)(order + least), *val = columns + rows * least, *left_vectors = u ? val + least : NULL,
         *right_vectors = u ? left_vectors + rows * left : NULL;
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) columns[wide ? j + i * rows : i + j * rows] = get(type, matrix, i + j * m) / scale;
  int status = tall(rows, least, left, columns, val, left_vectors, right_vectors, order);
  for (int64_t j = 0; status == 0 && j < least; j++) put(type, s, j, val[order[j]] * scale);
  if (status == 0 && u) {
    if (wide) {
      for (int64_t j = 0; j < nu; j++)
        for (int64_t i = 0; i < m; i++) put(type, u, i + j * m, right_vectors[i + order[j] * least]);
      for (int64_t j = 0; j < nv; j++)
        for (int64_t i = 0; i < n; i++) put(type, vt, j + i * nv, left_vectors[i + j * rows]);
    } else {
      for (int64_t j = 0; j < nu; j++)
        for (int64_t i = 0; i < m; i++) put(type, u, i + j * m, left_vectors[i + j * rows]);
      for (int64_t j = 0; j < nv; j++)
        for (int64_t i = 0; i < n; i++) put(type, vt, j + i * nv, right_vectors[i + order[j] * least]);
    }
  }
  free(mem);
  return status;
}

/* -- Eigenvalues ---------------------------------------------------------------------------- */

static int diagonal(int64_t n, double *turned, double *rotations)
{
  for (int sweep = 0; sweep < MAX_SWEEPS; sweep++) {
    double off = 0, on = 0;
    for (int64_t j = 0; j < n; j++) {
      on += turned[j * (n + 1)] * turned[j * (n + 1)];
      off += 2 * dot(turned + j * n, turned + j * n, j);
    }
    if (off <= 1e-36 * (on + off) || off < DBL_MIN) return 0;
    for (int64_t p = 0; p < n; p++)
      for (int64_t q = p + 1; q < n; q++) {
        double e = turned[p + q * n];
        if (fabs(e) <= 1e-20 * sqrt(fabs(turned[p * (n + 1)])) * sqrt(fabs(turned[q * (n + 1)])) || fabs(e) < DBL_MIN)
          continue;
        double t = tangent(turned[p * (n + 1)], e, turned[q * (n + 1)]), c = 1 / sqrt(1 + t * t), s = c * t;
        rotate(turned + p * n, turned + q * n, c, s, n);
        for (int64_t i = 0; i < n; i++) { /* and rows, which mirror the columns */
          double a = turned[p + i * n], b = turned[q + i * n];
          turned[p + i * n] = c * a - s * b;
          turned[q + i * n] = s * a + c * b;
        }
        turned[p + q * n] = turned[q + p * n] = 0;
        if (rotations) rotate(rotations + p * n, rotations + q * n, c, s, n);
      }
  }
  return 1;
}

int amp__jacobi_eigh(int type, bool vectors, int64_t n, void *matrix, void *values)
{
  double scale = 0,
         *mem = malloc((size_t)(n * n * (vectors ? 2 : 1)) * sizeof(double) + (size_t)n * sizeof(int64_t) + 8);
  if (!mem) return AMP_E_MEMORY;
  double *turned = mem, *rotations = vectors ? turned + n * n : NULL;
  int64_t *order = (int64_t *)(turned + n * n * (vectors ? 2 : 1));
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = j; i < n; i++) turned[i + j * n] = turned[j + i * n] = get(type, matrix, i + j * n);
  int status = (scale = scale_of(AMP_FLOAT64, turned, n * n)) == 0;
  if (status == 0) {
    for (int64_t i = 0; i < n * n; i++) turned[i] /= scale;
    for (int64_t i = 0; rotations && i < n * n; i++) rotations[i] = i % (n + 1) == 0;
    status = diagonal(n, turned, rotations);
  }
  for (int64_t j = 0; status == 0 && j < n; j++) {
    int64_t i = j;
    for (; i > 0 && turned[order[i - 1] * (n + 1)] > turned[j * (n + 1)]; i--) order[i] = order[i - 1];
    order[i] = j;
  }
  for (int64_t j = 0; status == 0 && j < n; j++) {
    put(type, values, j, turned[order[j] * (n + 1)] * scale);
    for (int64_t i = 0; rotations && i < n; i++) put(type, matrix, i + j * n, rotations[i + order[j] * n]);
  }
  free(mem);
  return status;
}
