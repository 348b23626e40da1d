/*
** ops/fft/fft_plan.h: plans of Fourier transforms, between the rows (ops/fft/fft.c) and the
** arithmetic (ops/fft/fft_body.h, in float and in double).
*/
#ifndef AMP_OPS_FFT_PLAN_H
#define AMP_OPS_FFT_PLAN_H
#include "core.h"

enum { AMP_FFT_FACTORS = 64 };
enum amp_fft_kind { AMP_FFT_DIRECT, AMP_FFT_FOUR, AMP_FFT_CHIRP };

typedef struct amp_fft amp_fft;
struct amp_fft {
  int64_t n;
  int type, kind;
  int factors, factor[AMP_FFT_FACTORS];
  void *twiddles; /* DIRECT: of each pass. FOUR: of n1 x n2. CHIRP: the chirp (n), then the kernel's spectrum (m) */
  amp_fft *first, *second; /* FOUR: of n1, of n2. CHIRP: first of m */
  int64_t wide;            /* FOUR: columns at a time */
  void *turn;              /* of real series of 2 n values: e^(-pi i k / n), re then im, for k <= n; else NULL */
  bool many;
};

/* Forward transforms of `lanes` series at once: element j of series l stands at j * lanes + l of x_re + i x_im. FOUR
** takes 1. x is lost; the result is in y if true is given, else in x. Inverse: exchange re and im, in and out. */
bool amp__fft_run_f32(const amp_fft *plan, int64_t lanes, float *x_re, float *x_im, float *y_re, float *y_im,
                      float *scratch);
bool amp__fft_run_f64(const amp_fft *plan, int64_t lanes, double *x_re, double *x_im, double *y_re, double *y_im,
                      double *scratch);
int64_t amp__fft_scratch(const amp_fft *plan, int64_t lanes); /* elements of scratch */
/* A plan of this thread's table: for one series after the other or many together, for real ones of 2 n values or not.
** Valid until the thread's next call. NULL: no memory (error set) */
const amp_fft *amp__fft_plan(int64_t n, int type, bool many, bool twice);

#endif
