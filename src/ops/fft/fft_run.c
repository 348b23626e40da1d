/*
** ops/fft/fft_run.c: plans of Fourier transforms, and their arithmetic in float and
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
#include "ops/fft/fft_plan.h"
#include "cpu/transpose8.h"

#define real float
#define NAME(x) amp__fft_##x##_f32
#include "ops/fft/fft_body.h"
#undef real
#undef NAME
#define real double
#define NAME(x) amp__fft_##x##_f64
#include "ops/fft/fft_body.h"

#define PI 3.14159265358979323846
enum { PLANS = 16 };

int64_t amp__fft_scratch(const amp_fft *plan, int64_t lanes)
{
  if (plan->kind == AMP_FFT_FOUR)
    return 4 * plan->wide * (plan->first->n > plan->second->n ? plan->first->n : plan->second->n);
  if (plan->kind == AMP_FFT_CHIRP) return 4 * plan->first->n * lanes + amp__fft_scratch(plan->first, lanes);
  return 0;
}

/* -- Making plans ----------------------------------------------------------------------- */

static void plan_free(amp_fft *plan)
{
  if (!plan) return;
  plan_free(plan->first);
  plan_free(plan->second);
  free(plan->twiddles);
  free(plan->turn);
  free(plan);
}

static void put(int type, void *table, int64_t i, double value)
{
  if (type == AMP_FLOAT64) ((double *)table)[i] = value;
  else ((float *)table)[i] = (float)value;
}
static void set(const amp_fft *plan, int64_t i, double value) { put(plan->type, plan->twiddles, i, value); }

/* e^(-2 pi i k / n) for 0 <= k < n, by the octant, so that symmetries are exact */
static void root(int64_t k, int64_t n, double *re, double *im)
{
  int64_t k8 = 8 * k / n;
  double angle;
  switch (k8) {
  case 0:
    angle = 2 * PI * (double)k / (double)n;
    *re = cos(angle);
    *im = -sin(angle);
    return;
  case 1:
  case 2:
    angle = 2 * PI * ((double)k - (double)n / 4) / (double)n;
    *re = -sin(angle);
    *im = -cos(angle);
    return;
  case 3:
  case 4:
    angle = 2 * PI * ((double)k - (double)n / 2) / (double)n;
    *re = -cos(angle);
    *im = sin(angle);
    return;
  case 5:
  case 6:
    angle = 2 * PI * ((double)k - (double)n * 0.75) / (double)n;
    *re = sin(angle);
    *im = cos(angle);
    return;
  default:
    angle = 2 * PI * (double)(k - n) / (double)n;
    *re = cos(angle);
    *im = -sin(angle);
    return;
  }
}

static bool factors_of(int64_t n, int *factor, int *count)
{
  static const int radix[] = { 8, 4, 2, 3, 5, 7, 11, 13 };
  int nf = 0;
  for (size_t i = 0; i < sizeof radix / sizeof *radix; i++)
    while (n % radix[i] == 0 && !(radix[i] == 8 && n == 16)) {
      factor[nf++] = radix[i];
      n /= radix[i];
    } /* 16 = 4 x 4 */
  AMP_ASSERT(nf <= AMP_FFT_FACTORS);
  *count = nf;
  return n == 1;
}

static bool fill_direct(amp_fft *plan)
{
  int64_t n = plan->n, count = 0, place = 0;
  double re, im;
  for (int i = 0; i < plan->factors; n /= plan->factor[i], i++)
    count += 2 * (n / plan->factor[i]) * (plan->factor[i] - 1) + 2 * plan->factor[i];
  plan->twiddles = malloc((size_t)(count + 1) * amp__dtype_size[plan->type]);
  if (!plan->twiddles) return false;
  n = plan->n;
  for (int i = 0; i < plan->factors; i++) {
    int radix = plan->factor[i];
    int64_t m = n / radix;
    for (int64_t j = 0; j < m; j++)
      for (int k = 1; k < radix; k++) {
        root(j * k, n, &re, &im);
        set(plan, place++, re);
        set(plan, place++, im);
      }
    for (int k = 0; radix > 5 && radix != 8 && k < radix; k++) {
      root(k, radix, &re, &im);
      set(plan, place++, re);
      set(plan, place++, im);
    }
    n = m;
  }
  return true;
}

static amp_fft *plan_new(int64_t n, int type, bool many);

/* n1 x n2, both about the root of n. false: no memory, or (plan->first NULL) not worth it */
static bool fill_four(amp_fft *plan)
{
  int64_t n1 = 1, n2 = plan->n, size = amp__dtype_size[plan->type];
  for (int64_t d = 2; d * d <= plan->n; d++)
    if (plan->n % d == 0) n1 = d;
  n2 = plan->n / n1;
  if (n1 < 8) return true;
  double re, im;
  plan->kind = AMP_FFT_FOUR;
  plan->first = plan_new(n1, plan->type, true);
  plan->second = plan_new(n2, plan->type, true);
  plan->twiddles = malloc((size_t)(2 * plan->n * size));
  if (!plan->first || !plan->second || !plan->twiddles) return false;
  for (int64_t k = 0; k < n1; k++)
    for (int64_t j = 0; j < n2; j++) {
      root(k * j % plan->n, plan->n, &re, &im);
      set(plan, k * n2 + j, re);
      set(plan, plan->n + k * n2 + j, im);
    }
  plan->wide = plan->n * size <= (64 << 10) ? n2 : 32;
  if (plan->wide > n2) plan->wide = n2;
  return true;
}

static bool fill_chirp(amp_fft *plan, bool many)
{
  int64_t n = plan->n, m = 2 * n - 1, place = 2 * n;
  int f[AMP_FFT_FACTORS], nf;
  double re, im;
  plan->kind = AMP_FFT_CHIRP;
  for (;; m++) { /* the next product of 2, 3, 5 */
    int64_t k = m;
    while (k % 2 == 0) k /= 2;
    while (k % 3 == 0) k /= 3;
    while (k % 5 == 0) k /= 5;
    if (k == 1 && factors_of(m, f, &nf)) break;
  }
  plan->first = plan_new(m, plan->type, many);
  plan->twiddles = malloc((size_t)(2 * n + 2 * m) * amp__dtype_size[plan->type]);
  double *kernel = calloc((size_t)(4 * m), sizeof *kernel), *spectrum = kernel + 2 * m, *scratch = NULL;
  amp_fft *exact = plan_new(m, AMP_FLOAT64, false);
  bool ok = plan->first && plan->twiddles && kernel && exact
            && (scratch = malloc((size_t)(amp__fft_scratch(exact, 1) + 1) * sizeof *scratch));
  if (ok) {
    for (int64_t j = 0; j < n; j++) {
      root((int64_t)((__int128)j * j % (2 * n)), 2 * n, &re, &im);
      set(plan, j, re);
      set(plan, n + j, im);
      kernel[j] = re;
      kernel[m + j] = -im;
      if (j) {
        kernel[m - j] = re;
        kernel[m + m - j] = -im;
      }
    }
    double *r = amp__fft_run_f64(exact, 1, kernel, kernel + m, spectrum, spectrum + m, scratch) ? spectrum : kernel;
    for (int64_t j = 0; j < 2 * m; j++) set(plan, place + j, r[j] / (double)m);
  }
  free(kernel);
  free(scratch);
  plan_free(exact);
  return ok;
}

static amp_fft *plan_new(int64_t n, int type, bool many)
{
  AMP_ASSERT(n > 0 && (type == AMP_FLOAT32 || type == AMP_FLOAT64));
  amp_fft *plan = calloc(1, sizeof *plan);
  if (!plan) return NULL;
  plan->n = n;
  plan->type = type;
  bool ok = true;
  if (!factors_of(n, plan->factor, &plan->factors)) ok = fill_chirp(plan, many);
  else {
    if (!many && n >= 64) ok = fill_four(plan);
    if (ok && plan->kind == AMP_FFT_DIRECT) ok = fill_direct(plan);
  }
  if (ok) return plan;
  plan_free(plan);
  return NULL;
}

/* -- The thread's plans ---------------------------------------------------------------------- */

typedef struct table {
  amp_fft *plan[PLANS];
  int next;
} table;
static _Thread_local table *mine;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void thread_ends(void *mem)
{
  table *t = mem;
  for (int i = 0; i < PLANS; i++) plan_free(t->plan[i]);
  free(t);
}
static void make_key(void) { pthread_key_create(&key, thread_ends); }

static bool fill_turn(amp_fft *plan)
{
  double re, im;
  plan->turn = malloc((size_t)(2 * plan->n + 2) * amp__dtype_size[plan->type]);
  for (int64_t k = 0; plan->turn && k <= plan->n; k++) {
    root(k, 2 * plan->n, &re, &im);
    put(plan->type, plan->turn, k, re);
    put(plan->type, plan->turn, plan->n + 1 + k, im);
  }
  return plan->turn != NULL;
}

const amp_fft *amp__fft_plan(int64_t n, int type, bool many, bool twice)
{
  if (!mine) {
    pthread_once(&once, make_key);
    if (!(mine = calloc(1, sizeof *mine))) {
      amp__nomem(sizeof *mine);
      return NULL;
    }
    pthread_setspecific(key, mine);
  }
  for (int i = 0; i < PLANS; i++) {
    amp_fft *plan = mine->plan[i];
    if (plan && plan->n == n && plan->type == type && plan->many == many && (plan->turn != NULL) == twice) return plan;
  }
  amp_fft *plan = plan_new(n, type, many);
  if (!plan || (twice && !fill_turn(plan))) {
    plan_free(plan);
    amp__nomem((size_t)n * 4 * amp__dtype_size[type]);
    return NULL;
  }
  plan->many = many;
  int at = mine->next;
  mine->next = (at + 1) % PLANS;
  plan_free(mine->plan[at]);
  return mine->plan[at] = plan;
}
