/*
** ops/fft/fft_series_body.h: series of a tensor brought together, transformed and written
** back, over type real, included by ops/fft/fft.c for float and for double. The
** includer defines real and NAME(x), which are undefined at the end.
*/

/* element j of lane l, from pairs at x + off[l] + j * xs */
AMP_CLONES_OF(real)
static void NAME(read)(int64_t n, int64_t lanes, const real *x, const int64_t *off, int64_t step, int64_t pair,
                       real *re, real *im)
{
  if (lanes == 1 && pair == 1 && step == 2) {
    x += off[0];
    for (int64_t j = 0; j < n; j++) {
      re[j] = x[2 * j];
      im[j] = x[2 * j + 1];
    }
  } else if (lanes > 1 && pair == 1 && off[lanes - 1] - off[0] == 2 * (lanes - 1) && off[1] - off[0] == 2) {
    for (int64_t j = 0; j < n; j++, re += lanes, im += lanes) {
      const real *lane = x + off[0] + j * step;
      for (int64_t l = 0; l < lanes; l++) {
        re[l] = lane[2 * l];
        im[l] = lane[2 * l + 1];
      }
    }
  } else {
    int64_t first = 0;
    if (sizeof(real) == sizeof(float) && pair == 1 && step == 2 && lanes % 8 == 0)
      for (; first + 4 <= n; first += 4)
        for (int64_t l = 0; l < lanes; l += 8) {
          amp_v8 r[8];
          for (int k = 0; k < 8; k++) r[k] = *(const amp_v8 *)(x + off[l + k] + 2 * first);
          AMP_TURN8(r);
          for (int k = 0; k < 8; k++) *(amp_v8 *)((k % 2 ? im : re) + (first + k / 2) * lanes + l) = r[k];
        }
    for (int64_t j0 = first; j0 < n; j0 += 16)
      for (int64_t l = 0; l < lanes; l++) {
        const real *lane = x + off[l];
        for (int64_t j = j0; j < n && j < j0 + 16; j++) {
          re[j * lanes + l] = lane[j * step];
          im[j * lanes + l] = lane[j * step + pair];
        }
      }
  }
}

AMP_CLONES_OF(real)
static void NAME(write)(int64_t n, int64_t lanes, real *y, const int64_t *off, int64_t step, int64_t pair,
                        const real *re, const real *im, real factor)
{
  if (lanes == 1 && pair == 1 && step == 2) {
    y += off[0];
    for (int64_t j = 0; j < n; j++) {
      y[2 * j] = factor * re[j];
      y[2 * j + 1] = factor * im[j];
    }
  } else if (lanes > 1 && pair == 1 && off[lanes - 1] - off[0] == 2 * (lanes - 1) && off[1] - off[0] == 2) {
    for (int64_t j = 0; j < n; j++, re += lanes, im += lanes) {
      real *lane = y + off[0] + j * step;
      for (int64_t l = 0; l < lanes; l++) {
        lane[2 * l] = factor * re[l];
        lane[2 * l + 1] = factor * im[l];
      }
    }
  } else {
    int64_t first = 0;
    if (sizeof(real) == sizeof(float) && pair == 1 && step == 2 && lanes % 8 == 0)
      for (; first + 4 <= n; first += 4)
        for (int64_t l = 0; l < lanes; l += 8) {
          amp_v8 r[8];
          for (int k = 0; k < 8; k++)
            r[k] = *(const amp_v8 *)((k % 2 ? im : re) + (first + k / 2) * lanes + l) * (float)factor;
          AMP_TURN8(r);
          for (int k = 0; k < 8; k++) *(amp_v8 *)(y + off[l + k] + 2 * first) = r[k];
        }
    for (int64_t j0 = first; j0 < n; j0 += 16)
      for (int64_t l = 0; l < lanes; l++) {
        real *lane = y + off[l];
        for (int64_t j = j0; j < n && j < j0 + 16; j++) {
          lane[j * step] = factor * re[j * lanes + l];
          lane[j * step + pair] = factor * im[j * lanes + l];
        }
      }
  }
}

/* real values, one a place */
static void NAME(read_real)(int64_t n, int64_t lanes, const real *x, const int64_t *off, int64_t step, real *re,
                            real *im)
{
  for (int64_t j = 0; j < n; j++)
    for (int64_t l = 0; l < lanes; l++) {
      re[j * lanes + l] = x[off[l] + j * step];
      im[j * lanes + l] = 0;
    }
}

static void NAME(write_real)(int64_t n, int64_t lanes, real *y, const int64_t *off, int64_t step, const real *re,
                             real factor)
{
  for (int64_t j = 0; j < n; j++)
    for (int64_t l = 0; l < lanes; l++) y[off[l] + j * step] = factor * re[j * lanes + l];
}

/* x (h + 1 places) from z (h of them) */
AMP_CLONES_OF(real)
static void NAME(apart)(int64_t half, int64_t lanes, const real *restrict z_re, const real *restrict z_im,
                        real *restrict x_re, real *restrict x_im, const real *w_re, const real *w_im)
{
  if (lanes == 1) {
    x_re[0] = z_re[0] + z_im[0];
    x_re[half] = z_re[0] - z_im[0];
    x_im[0] = x_im[half] = 0;
    AMP_IVDEP
    for (int64_t k = 1; k < half; k++) {
      real a_re = z_re[k], a_im = z_im[k], b_re = z_re[half - k], b_im = -z_im[half - k], e_re = a_re + b_re,
           e_im = a_im + b_im, d_re = a_re - b_re, d_im = a_im - b_im;
      x_re[k] = (real)0.5 * (e_re + w_re[k] * d_im + w_im[k] * d_re);
      x_im[k] = (real)0.5 * (e_im + w_im[k] * d_im - w_re[k] * d_re);
    }
    return;
  }
  for (int64_t k = 0; k <= half; k++) {
    const real *p_re = z_re + (k % half) * lanes, *p_im = z_im + (k % half) * lanes,
               *q_re = z_re + (half - k) % half * lanes, *q_im = z_im + (half - k) % half * lanes;
    for (int64_t l = 0; l < lanes; l++) {
      real a_re = p_re[l], a_im = p_im[l], b_re = q_re[l], b_im = -q_im[l], e_re = a_re + b_re, e_im = a_im + b_im,
           d_re = a_re - b_re, d_im = a_im - b_im;
      x_re[k * lanes + l] = (real)0.5 * (e_re + w_re[k] * d_im + w_im[k] * d_re);
      x_im[k * lanes + l] = (real)0.5 * (e_im + w_im[k] * d_im - w_re[k] * d_re);
    }
  }
  for (int64_t l = 0; l < lanes; l++) x_im[l] = x_im[half * lanes + l] = 0;
}

/* the other way: z[k] = (x[k] + conj x[h-k]) + i e^(2 pi i k / n) (x[k] - conj x[h-k]) */
AMP_CLONES_OF(real)
static void NAME(together)(int64_t half, int64_t lanes, const real *restrict x_re, const real *restrict x_im,
                           real *restrict z_re, real *restrict z_im, const real *w_re, const real *w_im)
{
  for (int64_t k = 0; k < half; k++) {
    const real *p_re = x_re + k * lanes, *p_im = x_im + k * lanes, *q_re = x_re + (half - k) * lanes,
               *q_im = x_im + (half - k) * lanes;
    const real c = w_re[k], s = -w_im[k];
    AMP_IVDEP
    for (int64_t l = 0; l < lanes; l++) {
      real a_re = p_re[l], a_im = p_im[l], b_re = q_re[l], b_im = -q_im[l], d_re = a_re - b_re, d_im = a_im - b_im;
      z_re[k * lanes + l] = a_re + b_re - (c * d_im + s * d_re);
      z_im[k * lanes + l] = a_im + b_im + (c * d_re - s * d_im);
    }
  }
}

/* half a spectrum: every frequency but 0 and n / 2 times `factor`; at those two, imaginary parts dropped if `drop` */
static void NAME(weigh)(int64_t n, int64_t lanes, real *re, real *im, real factor, bool drop)
{
  for (int64_t k = 0; k <= n / 2; k++) {
    bool single = k == 0 || 2 * k == n;
    for (int64_t l = k * lanes; l < (k + 1) * lanes; l++) {
      if (single && drop) im[l] = 0;
      if (!single) {
        re[l] *= factor;
        im[l] *= factor;
      }
    }
  }
}

static void NAME(mirror)(int64_t n, int64_t lanes, real *re, real *im)
{ /* the other half of a real series' spectrum */
  for (int64_t k = n / 2 + 1; k < n; k++)
    for (int64_t l = 0; l < lanes; l++) {
      re[k * lanes + l] = re[(n - k) * lanes + l];
      im[k * lanes + l] = -im[(n - k) * lanes + l];
    }
}

static void NAME(series)(const job *task, int64_t lanes, const int64_t *in_offset, const int64_t *out_offset, real *mem)
{
  int64_t n = task->length, half = n / 2, size = (n + 2) * lanes;
  real *x_re = mem, *x_im = x_re + size, *y_re = x_im + size, *y_im = y_re + size, *rest = y_im + size,
       factor = (real)task->scale;
  const real *x = task->source.p, *w_re = task->plan->turn, *w_im = w_re ? w_re + half + 1 : NULL;
  real *y = task->result.p;
  bool swap;
  if (task->real_in) {
    if (task->whole) NAME(read_real)(n, lanes, x, in_offset, task->in_step, x_re, x_im);
    else NAME(read)(half, lanes, x, in_offset, 2 * task->in_step, task->in_step, x_re, x_im);
    if (NAME(amp__fft_run)(task->plan, lanes, x_re, x_im, y_re, y_im, rest)) {
      real *t = x_re;
      x_re = y_re;
      y_re = t;
      t = x_im;
      x_im = y_im;
      y_im = t;
    }
    if (!task->whole) {
      NAME(apart)(half, lanes, x_re, x_im, y_re, y_im, w_re, w_im);
      x_re = y_re;
      x_im = y_im;
    }
    if (task->weighted) NAME(weigh)(n, lanes, x_re, x_im, 2, false);
    NAME(write)(half + 1, lanes, y, out_offset, task->out_step, task->out_pair, x_re, x_im, factor);
  } else if (task->real_out) {
    NAME(read)(half + 1, lanes, x, in_offset, task->in_step, task->in_pair, x_re, x_im);
    NAME(weigh)(n, lanes, x_re, x_im, task->weighted ? 1 : (real)0.5, true);
    if (task->whole) NAME(mirror)(n, lanes, x_re, x_im);
    else {
      NAME(together)(half, lanes, x_re, x_im, y_re, y_im, w_re, w_im);
      real *t = x_re;
      x_re = y_re;
      y_re = t;
      t = x_im;
      x_im = y_im;
      y_im = t;
    }
    if (NAME(amp__fft_run)(task->plan, lanes, x_im, x_re, y_im, y_re, rest)) {
      x_re = y_re;
      x_im = y_im;
    }
    if (task->whole) NAME(write_real)(n, lanes, y, out_offset, task->out_step, x_re, factor);
    else NAME(write)(half, lanes, y, out_offset, 2 * task->out_step, task->out_step, x_re, x_im, factor);
  } else {
    NAME(read)(n, lanes, x, in_offset, task->in_step, task->in_pair, x_re, x_im);
    swap = task->inverse ? NAME(amp__fft_run)(task->plan, lanes, x_im, x_re, y_im, y_re, rest)
                         : NAME(amp__fft_run)(task->plan, lanes, x_re, x_im, y_re, y_im, rest);
    NAME(write)
    (n, lanes, y, out_offset, task->out_step, task->out_pair, swap ? y_re : x_re, swap ? y_im : x_im, factor);
  }
}

#undef real
#undef NAME
