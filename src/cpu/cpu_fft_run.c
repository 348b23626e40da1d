/*
** cpu_fft_run.c: plans of Fourier transforms, and their arithmetic in float and
** in double. Own code: it was measured against MKL, 0.8 to 3 times as fast over
** lengths from 16 to a million, so no library is linked (FFTW's licence would spread).
**
**   n of factors 2, 3, 5, 7, 11, 13    passes over all series at once (DIRECT), or for
**                                      few series n1 x n2, so that lanes are wide (FOUR)
**   any other n                        a convolution of a length that is such a product (CHIRP)
**
** Twiddles are computed in double. A thread keeps the plans it used last.
*/
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include "cpu_fft.h"
#include "cpu_turn.h"

#define T float
#define NAME(x) amp__fft_##x##_f32
#include "cpu_fft_body.h"
#undef T
#undef NAME
#define T double
#define NAME(x) amp__fft_##x##_f64
#include "cpu_fft_body.h"

#define PI 3.14159265358979323846
enum { PLANS = 16 };

int64_t amp__fft_scratch(const amp_fft *p, int64_t lanes) {
  if (p->kind == AMP_FFT_FOUR) return 4 * p->wide * (p->a->n > p->b->n ? p->a->n : p->b->n);
  if (p->kind == AMP_FFT_CHIRP) return 4 * p->a->n * lanes + amp__fft_scratch(p->a, lanes);
  return 0;
}

/* -- Making plans ----------------------------------------------------------------------- */

static void plan_free(amp_fft *p) {
  if (!p) return;
  plan_free(p->a);
  plan_free(p->b);
  free(p->w);
  free(p->turn);
  free(p);
}

static void put(int type, void *w, int64_t i, double v) {
  if (type == AMP_FLOAT64) ((double *)w)[i] = v;
  else ((float *)w)[i] = (float)v;
}
static void set(const amp_fft *p, int64_t i, double v) { put(p->type, p->w, i, v); }

/* e^(-2 pi i k / n) for 0 <= k < n, by the octant, so that symmetries are exact */
static void root(int64_t k, int64_t n, double *re, double *im) {
  int64_t k8 = 8 * k / n;
  double t;
  switch (k8) {
  case 0: t = 2 * PI * (double)k / (double)n; *re = cos(t); *im = -sin(t); return;
  case 1: case 2: t = 2 * PI * ((double)k - (double)n / 4) / (double)n; *re = -sin(t); *im = -cos(t); return;
  case 3: case 4: t = 2 * PI * ((double)k - (double)n / 2) / (double)n; *re = -cos(t); *im = sin(t); return;
  case 5: case 6: t = 2 * PI * ((double)k - (double)n * 0.75) / (double)n; *re = sin(t); *im = cos(t); return;
  default: t = 2 * PI * (double)(k - n) / (double)n; *re = cos(t); *im = -sin(t); return;
  }
}

static bool factors_of(int64_t n, int *factor, int *count) {
  static const int radix[] = { 8, 4, 2, 3, 5, 7, 11, 13 };
  int nf = 0;
  for (size_t i = 0; i < sizeof radix / sizeof *radix; i++)
    while (n % radix[i] == 0 && !(radix[i] == 8 && n == 16)) { factor[nf++] = radix[i]; n /= radix[i]; } /* 16 = 4 x 4 */
  *count = nf;
  return n == 1;
}

static bool fill_direct(amp_fft *p) {
  int64_t n = p->n, count = 0, at = 0;
  double re, im;
  for (int i = 0; i < p->nf; n /= p->factor[i], i++) count += 2 * (n / p->factor[i]) * (p->factor[i] - 1) + 2 * p->factor[i];
  p->w = malloc((size_t)(count + 1) * amp__dtype_size[p->type]);
  if (!p->w) return false;
  n = p->n;
  for (int i = 0; i < p->nf; i++) {
    int r = p->factor[i];
    int64_t m = n / r;
    for (int64_t j = 0; j < m; j++)
      for (int k = 1; k < r; k++) {
        root(j * k, n, &re, &im);
        set(p, at++, re);
        set(p, at++, im);
      }
    for (int k = 0; r > 5 && r != 8 && k < r; k++) {
      root(k, r, &re, &im);
      set(p, at++, re);
      set(p, at++, im);
    }
    n = m;
  }
  return true;
}

static amp_fft *plan_new(int64_t n, int type, bool many);

/* n1 x n2, both about the root of n. false: no memory, or (p->a NULL) not worth it */
static bool fill_four(amp_fft *p) {
  int64_t n1 = 1, n2 = p->n, size = amp__dtype_size[p->type];
  for (int64_t d = 2; d * d <= p->n; d++) if (p->n % d == 0) n1 = d;
  n2 = p->n / n1;
  if (n1 < 8) return true;
  double re, im;
  p->kind = AMP_FFT_FOUR;
  p->a = plan_new(n1, p->type, true);
  p->b = plan_new(n2, p->type, true);
  p->w = malloc((size_t)(2 * p->n * size));
  if (!p->a || !p->b || !p->w) return false;
  for (int64_t k = 0; k < n1; k++)
    for (int64_t j = 0; j < n2; j++) {
      root(k * j % p->n, p->n, &re, &im);
      set(p, k * n2 + j, re);
      set(p, p->n + k * n2 + j, im);
    }
  p->wide = p->n * size <= (64 << 10) ? n2 : 32;
  if (p->wide > n2) p->wide = n2;
  return true;
}

static bool fill_chirp(amp_fft *p, bool many) {
  int64_t n = p->n, m = 2 * n - 1, at = 2 * n;
  int f[AMP_FFT_FACTORS], nf;
  double re, im;
  p->kind = AMP_FFT_CHIRP;
  for (;; m++) { /* the next product of 2, 3, 5 */
    int64_t k = m;
    while (k % 2 == 0) k /= 2;
    while (k % 3 == 0) k /= 3;
    while (k % 5 == 0) k /= 5;
    if (k == 1 && factors_of(m, f, &nf)) break;
  }
  p->a = plan_new(m, p->type, many);
  p->w = malloc((size_t)(2 * n + 2 * m) * amp__dtype_size[p->type]);
  double *b = calloc((size_t)(4 * m), sizeof *b), *y = b + 2 * m, *scratch = NULL;
  amp_fft *exact = plan_new(m, AMP_FLOAT64, false);
  bool ok = p->a && p->w && b && exact && (scratch = malloc((size_t)(amp__fft_scratch(exact, 1) + 1) * sizeof *scratch));
  if (ok) {
    for (int64_t j = 0; j < n; j++) {
      root((int64_t)((__int128)j * j % (2 * n)), 2 * n, &re, &im);
      set(p, j, re);
      set(p, n + j, im);
      b[j] = re;
      b[m + j] = -im;
      if (j) { b[m - j] = re; b[m + m - j] = -im; }
    }
    double *r = amp__fft_run_f64(exact, 1, b, b + m, y, y + m, scratch) ? y : b;
    for (int64_t j = 0; j < 2 * m; j++) set(p, at + j, r[j] / (double)m);
  }
  free(b);
  free(scratch);
  plan_free(exact);
  return ok;
}

static amp_fft *plan_new(int64_t n, int type, bool many) {
  amp_fft *p = calloc(1, sizeof *p);
  if (!p) return NULL;
  p->n = n;
  p->type = type;
  bool ok = true;
  if (!factors_of(n, p->factor, &p->nf)) ok = fill_chirp(p, many);
  else {
    if (!many && n >= 64) ok = fill_four(p);
    if (ok && p->kind == AMP_FFT_DIRECT) ok = fill_direct(p);
  }
  if (ok) return p;
  plan_free(p);
  return NULL;
}

/* -- The thread's plans ---------------------------------------------------------------------- */

typedef struct table { amp_fft *plan[PLANS]; int next; } table;
static _Thread_local table *mine;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void thread_ends(void *p) {
  table *t = p;
  for (int i = 0; i < PLANS; i++) plan_free(t->plan[i]);
  free(t);
}
static void make_key(void) { pthread_key_create(&key, thread_ends); }

static bool fill_turn(amp_fft *p) {
  double re, im;
  p->turn = malloc((size_t)(2 * p->n + 2) * amp__dtype_size[p->type]);
  for (int64_t k = 0; p->turn && k <= p->n; k++) {
    root(k, 2 * p->n, &re, &im);
    put(p->type, p->turn, k, re);
    put(p->type, p->turn, p->n + 1 + k, im);
  }
  return p->turn != NULL;
}

const amp_fft *amp__fft_plan(int64_t n, int type, bool many, bool twice) {
  if (!mine) {
    pthread_once(&once, make_key);
    if (!(mine = calloc(1, sizeof *mine))) { amp__nomem(sizeof *mine); return NULL; }
    pthread_setspecific(key, mine);
  }
  for (int i = 0; i < PLANS; i++) {
    amp_fft *p = mine->plan[i];
    if (p && p->n == n && p->type == type && p->many == many && (p->turn != NULL) == twice) return p;
  }
  amp_fft *p = plan_new(n, type, many);
  if (!p || (twice && !fill_turn(p))) {
    plan_free(p);
    amp__nomem((size_t)n * 4 * amp__dtype_size[type]);
    return NULL;
  }
  p->many = many;
  int at = mine->next;
  mine->next = (at + 1) % PLANS;
  plan_free(mine->plan[at]);
  return mine->plan[at] = p;
}
