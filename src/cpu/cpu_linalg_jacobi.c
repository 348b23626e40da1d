/*
** cpu_linalg_jacobi.c: singular values by rotations of pairs of columns until all
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
#include "cpu_linalg.h"
#include "cpu_math.h"

enum { RANK_SWEEPS = 12, MAX_SWEEPS = 60 };

/* -- Elements ------------------------------------------------------------------------- */

static double get(int type, const void *p, int64_t i) { return type == AMP_FLOAT64 ? ((const double *)p)[i] : ((const float *)p)[i]; }
static void put(int type, void *p, int64_t i, double v) {
  if (type == AMP_FLOAT64) ((double *)p)[i] = v;
  else ((float *)p)[i] = (float)v;
}

AMP_CLONES static double dot(const double *x, const double *y, int64_t n) {
  double s = 0;
  _Pragma("omp simd reduction(+ : s)") for (int64_t i = 0; i < n; i++) s += x[i] * y[i];
  return s;
}

AMP_CLONES static void rotate(double *restrict x, double *restrict y, double c, double s, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    double a = x[i], b = y[i];
    x[i] = c * a - s * b;
    y[i] = s * a + c * b;
  }
}

/* Tangent of the smaller angle that makes (p, q; q, r) diagonal */
static double tangent(double p, double q, double r) {
  double z = (r - p) / (2 * q);
  return (z >= 0 ? 1 : -1) / (fabs(z) + sqrt(1 + z * z)); /* 0 where that is infinite */
}

/* The scale, a power of 2, that brings n elements to about 1; 0: not finite */
static double scale_of(int type, const void *a, int64_t n) {
  double most = 0;
  int e;
  for (int64_t i = 0; i < n; i++) {
    double v = fabs(get(type, a, i));
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
static int orthogonal(int64_t m, int64_t n, double *g, double *v, double *square, bool *loose) {
  bool again = true;
  for (int sweep = 0; again; sweep++) {
    if (sweep == MAX_SWEEPS) return 1;
    again = *loose = false;
    for (int64_t j = 0; j < n; j++) square[j] = dot(g + j * m, g + j * m, m);
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = i + 1; j < n; j++) {
        double *x = g + i * m, *y = g + j * m, q = dot(x, y, m);
        if (!(fabs(q) > 4 * DBL_EPSILON * sqrt(square[i]) * sqrt(square[j])) || fabs(q) < DBL_MIN) continue;
        /* a column that is rounding error of the other one (the rank is less than n) never gets orthogonal */
        double least = square[i] < square[j] ? square[i] : square[j], most = square[i] < square[j] ? square[j] : square[i];
        if (sweep >= RANK_SWEEPS && sqrt(least) <= ROUNDING * sqrt(most)) { *loose = true; continue; }
        double t = tangent(square[i], q, square[j]), c = 1 / sqrt(1 + t * t), s = c * t;
        again = true;
        rotate(x, y, c, s, m);
        if (v) rotate(v + i * n, v + j * n, c, s, n);
        square[i] = dot(x, x, m);
        square[j] = dot(y, y, m);
      }
  }
  return 0;
}

/* Columns from `have` on of u (m x count), orthogonal to those before and to each other */
static int complete(int64_t m, int64_t have, int64_t count, double *u) {
  double *mem = have < count ? malloc((size_t)(m * (have + m)) * sizeof(double)) : NULL;
  if (have == count) return 0;
  if (!mem) return AMP_E_MEMORY;
  memcpy(mem, u, (size_t)(m * have) * sizeof(double));
  int rc = amp__linalg_own.qr(AMP_FLOAT64, m, have, m, mem, mem + m * have);
  if (rc == 0) memcpy(u + m * have, mem + m * have + m * have, (size_t)(m * (count - have)) * sizeof(double));
  free(mem);
  return rc;
}

/* Sizes m >= n: s, left vectors u (m x nu), right ones v (n x n); u, v NULL: none */
static int tall(int64_t m, int64_t n, int64_t nu, double *g, double *s, double *u, double *v, int64_t *order) {
  for (int64_t i = 0; v && i < n * n; i++) v[i] = i % (n + 1) == 0;
  bool loose = false;
  int rc = orthogonal(m, n, g, v, s, &loose);
  if (rc) return rc;
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

int amp__jacobi_svd(int type, int64_t m, int64_t n, int64_t nu, int64_t nv, void *a, void *s, void *u, void *vt) {
  bool wide = m < n; /* then of A^T = V diag(s) U^T */
  int64_t rows = wide ? n : m, r = wide ? m : n, left = wide ? nv : nu;
  double scale = scale_of(type, a, m * n);
  if (scale == 0) return 1;
  size_t count = (size_t)(rows * r + r + (u ? rows * left + r * r : 0));
  char *mem = malloc(count * sizeof(double) + (size_t)r * sizeof(int64_t) + 8);
  if (!mem) return AMP_E_MEMORY;
  int64_t *order = (int64_t *)mem;
  double *g = (double *)(order + r), *val = g + rows * r, *x = u ? val + r : NULL, *y = u ? x + rows * left : NULL;
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) g[wide ? j + i * rows : i + j * rows] = get(type, a, i + j * m) / scale;
  int rc = tall(rows, r, left, g, val, x, y, order);
  for (int64_t j = 0; rc == 0 && j < r; j++) put(type, s, j, val[order[j]] * scale);
  if (rc == 0 && u) {
    if (wide) {
      for (int64_t j = 0; j < nu; j++) for (int64_t i = 0; i < m; i++) put(type, u, i + j * m, y[i + order[j] * r]);
      for (int64_t j = 0; j < nv; j++) for (int64_t i = 0; i < n; i++) put(type, vt, j + i * nv, x[i + j * rows]);
    } else {
      for (int64_t j = 0; j < nu; j++) for (int64_t i = 0; i < m; i++) put(type, u, i + j * m, x[i + j * rows]);
      for (int64_t j = 0; j < nv; j++) for (int64_t i = 0; i < n; i++) put(type, vt, j + i * nv, y[i + order[j] * r]);
    }
  }
  free(mem);
  return rc;
}

/* -- Eigenvalues ---------------------------------------------------------------------------- */

static int diagonal(int64_t n, double *g, double *v) {
  for (int sweep = 0; sweep < MAX_SWEEPS; sweep++) {
    double off = 0, on = 0;
    for (int64_t j = 0; j < n; j++) {
      on += g[j * (n + 1)] * g[j * (n + 1)];
      off += 2 * dot(g + j * n, g + j * n, j);
    }
    if (off <= 1e-36 * (on + off) || off < DBL_MIN) return 0;
    for (int64_t p = 0; p < n; p++)
      for (int64_t q = p + 1; q < n; q++) {
        double e = g[p + q * n];
        if (fabs(e) <= 1e-20 * sqrt(fabs(g[p * (n + 1)])) * sqrt(fabs(g[q * (n + 1)])) || fabs(e) < DBL_MIN) continue;
        double t = tangent(g[p * (n + 1)], e, g[q * (n + 1)]), c = 1 / sqrt(1 + t * t), s = c * t;
        rotate(g + p * n, g + q * n, c, s, n);
        for (int64_t i = 0; i < n; i++) { /* and rows, which mirror the columns */
          double a = g[p + i * n], b = g[q + i * n];
          g[p + i * n] = c * a - s * b;
          g[q + i * n] = s * a + c * b;
        }
        g[p + q * n] = g[q + p * n] = 0;
        if (v) rotate(v + p * n, v + q * n, c, s, n);
      }
  }
  return 1;
}

int amp__jacobi_eigh(int type, bool vectors, int64_t n, void *a, void *w) {
  double scale = 0, *mem = malloc((size_t)(n * n * (vectors ? 2 : 1)) * sizeof(double) + (size_t)n * sizeof(int64_t) + 8);
  if (!mem) return AMP_E_MEMORY;
  double *g = mem, *v = vectors ? g + n * n : NULL;
  int64_t *order = (int64_t *)(g + n * n * (vectors ? 2 : 1));
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = j; i < n; i++) g[i + j * n] = g[j + i * n] = get(type, a, i + j * n);
  int rc = (scale = scale_of(AMP_FLOAT64, g, n * n)) == 0;
  if (rc == 0) {
    for (int64_t i = 0; i < n * n; i++) g[i] /= scale;
    for (int64_t i = 0; v && i < n * n; i++) v[i] = i % (n + 1) == 0;
    rc = diagonal(n, g, v);
  }
  for (int64_t j = 0; rc == 0 && j < n; j++) {
    int64_t i = j;
    for (; i > 0 && g[order[i - 1] * (n + 1)] > g[j * (n + 1)]; i--) order[i] = order[i - 1];
    order[i] = j;
  }
  for (int64_t j = 0; rc == 0 && j < n; j++) {
    put(type, w, j, g[order[j] * (n + 1)] * scale);
    for (int64_t i = 0; v && i < n; i++) put(type, a, i + j * n, v[i + order[j] * n]);
  }
  free(mem);
  return rc;
}
