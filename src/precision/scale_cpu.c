/*
** precision/scale_cpu.c: what loss scaling reads and writes on a CPU: the finite check of
** a gradient, its multiplication in place, its p-norm, and the scale's update.
**
** A tensor is walked as rows of equal stride; a dense one, whatever its order,
** is a single row. Dimensions of stride 0 (an expanded gradient) count once.
** Rows are cut into blocks that threads share; norms are summed in double, block
** by block in a fixed order, so the number of threads does not change them.
*/
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include "base/workers.h"
#include "precision/scale.h"
#include "cpu/convert.h"
#include "cpu/vector_math.h"

enum { BLOCK = 1024, SPAN = 65536 }; /* elements: of a buffer; of a thread's turn */

/* -- Rows -------------------------------------------------------------------- */

typedef struct rows {
  int ndim;
  int64_t size[AMP_MAX_DIM], stride[AMP_MAX_DIM];
} rows; /* the last dimension is the row */

static rows rows_of(const amp_tensor *tensor)
{
  rows r = { 0 };
  if (tensor->flags & AMP_T_DENSE) {
    r.size[0] = tensor->numel;
    r.stride[0] = 1;
    r.ndim = 1;
    return r;
  }
  for (int i = 0; i < tensor->ndim; i++)
    if (tensor->size[i] != 1 && (tensor->stride[i] != 0 || tensor->size[i] == 0)) {
      r.size[r.ndim] = tensor->size[i];
      r.stride[r.ndim++] = tensor->stride[i];
    }
  if (!r.ndim) {
    r.size[0] = 1;
    r.stride[0] = 1;
    r.ndim = 1;
  }
  return r;
}

/* Walk the rows' starts: offsets in elements. Start with index all 0; false: done. */
static bool next_row(const rows *r, int64_t *index, int64_t *offset)
{
  for (int dim = r->ndim - 2; dim >= 0; dim--) {
    *offset += r->stride[dim];
    if (++index[dim] < r->size[dim]) return true;
    *offset -= r->stride[dim] * r->size[dim];
    index[dim] = 0;
  }
  return false;
}

static bool no_rows(const rows *r)
{
  for (int dim = 0; dim < r->ndim; dim++)
    if (r->size[dim] == 0) return true;
  return false;
}

/* -- Loops over contiguous elements ---------------------------------------------- */

AMP_CLONES static int bad32(const uint32_t *x, int64_t n)
{
  uint32_t bad = 0;
  for (int64_t i = 0; i < n; i++) bad |= (x[i] & 0x7f800000u) == 0x7f800000u;
  return bad != 0;
}

AMP_CLONES static int bad16(const uint16_t *x, int64_t n, uint16_t exponent)
{
  uint16_t bad = 0;
  for (int64_t i = 0; i < n; i++) bad |= (x[i] & exponent) == exponent;
  return bad != 0;
}

AMP_CLONES static int bad64(const uint64_t *x, int64_t n)
{
  uint64_t bad = 0;
  for (int64_t i = 0; i < n; i++) bad |= (x[i] & 0x7ff0000000000000u) == 0x7ff0000000000000u;
  return bad != 0;
}

AMP_CLONES static void scale32(float *x, int64_t n, float c)
{
  for (int64_t i = 0; i < n; i++) x[i] *= c;
}
AMP_CLONES static void scale64(double *x, int64_t n, double c)
{
  for (int64_t i = 0; i < n; i++) x[i] *= c;
}

static int bad(const void *x, int dtype, int64_t count)
{
  switch (dtype) {
  case AMP_FLOAT64: return bad64(x, count);
  case AMP_FLOAT32: return bad32(x, count);
  case AMP_FLOAT16: return bad16(x, count, 0x7c00);
  default: return bad16(x, count, 0x7f80);
  }
}

static void scale(void *x, int dtype, int64_t count, float c)
{
  if (dtype == AMP_FLOAT64) scale64(x, count, c);
  else if (dtype == AMP_FLOAT32) scale32(x, count, c);
  else {
    float buf[BLOCK];
    for (int64_t i = 0; i < count; i += BLOCK) {
      int64_t m = count - i < BLOCK ? count - i : BLOCK;
      uint16_t *h = (uint16_t *)x + i;
      amp__load(AMP_C_F32, buf, dtype, h, 1, m);
      scale32(buf, m, c);
      amp__store(dtype, h, 1, AMP_C_F32, buf, m);
    }
  }
}

/* -- Check and scale ---------------------------------------------------------------- */

static int check_row(char *p, int64_t stride, int dtype, int64_t count, const float *inv)
{
  const int size = amp__dtype_size[dtype];
  int found = 0;
  if (stride == 1) {
    for (int64_t i = 0; i < count; i += SPAN / 8) { /* the second touch finds the data in the cache */
      int64_t m = count - i < SPAN / 8 ? count - i : SPAN / 8;
      found |= bad(p + i * size, dtype, m);
      if (inv) scale(p + i * size, dtype, m, *inv);
    }
    return found;
  }
  uint64_t buf[BLOCK];
  for (int64_t i = 0; i < count; i += BLOCK) {
    int64_t m = count - i < BLOCK ? count - i : BLOCK;
    char *q = p + i * stride * size;
    amp__move(size, buf, 1, q, stride, m);
    found |= bad(buf, dtype, m);
    if (inv) {
      scale(buf, dtype, m, *inv);
      amp__move(size, q, stride, buf, 1, m);
    }
  }
  return found;
}

int amp__cpu_check_scale(amp_tensor *tensor, const float *inv, float *found)
{
  if (!amp__is_float(tensor->dtype))
    return amp__fail(AMP_E_DTYPE, "a gradient must be a float tensor, got %s", amp_dtype_name(tensor->dtype));
  rows r = rows_of(tensor);
  if (no_rows(&r)) return 0;
  const int size = amp__dtype_size[tensor->dtype];
  char *p = amp__data(tensor);
  int any = 0;
  if (r.ndim == 1 && r.stride[0] == 1) {
    int64_t n = r.size[0], spans = (n + SPAN - 1) / SPAN;
    int threads = amp__threads(n);
    (void)threads; /* without OpenMP */
#pragma omp parallel for num_threads(threads) reduction(| : any) schedule(static) if (threads > 1)
    for (int64_t s = 0; s < spans; s++) {
      amp__worker_begins();
      int64_t from = s * SPAN, m = n - from < SPAN ? n - from : SPAN;
      any |= check_row(p + from * size, 1, tensor->dtype, m, inv);
    }
  } else {
    int64_t index[AMP_MAX_DIM] = { 0 }, offset = 0;
    do any |= check_row(p + offset * size, r.stride[r.ndim - 1], tensor->dtype, r.size[r.ndim - 1], inv);
    while (next_row(&r, index, &offset));
  }
  if (any) *found = 1;
  return 0;
}

/* -- Norm ------------------------------------------------------------------------- */

enum { LANES = 16 };

AMP_CLONES static double sum2(const float *x, int64_t count)
{
  double lane[LANES] = { 0 }, s = 0;
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int j = 0; j < LANES; j++) lane[j] += (double)x[i + j] * x[i + j];
  for (; i < count; i++) s += (double)x[i] * x[i];
  for (int j = 0; j < LANES; j++) s += lane[j];
  return s;
}

static double part(const float *x, int64_t count, double p)
{
  if (p == 2) return sum2(x, count);
  double s = 0;
  if (isinf(p))
    for (int64_t i = 0; i < count; i++) {
      double a = fabs((double)x[i]);
      s = a > s || isnan(a) ? a : s;
      if (isnan(s)) break;
    }
  else if (p == 1)
    for (int64_t i = 0; i < count; i++) s += fabs((double)x[i]);
  else
    for (int64_t i = 0; i < count; i++) s += pow(fabs((double)x[i]), p);
  return s;
}

static double part64(const double *x, int64_t count, double p)
{
  double s = 0;
  if (isinf(p))
    for (int64_t i = 0; i < count; i++) {
      double a = fabs(x[i]);
      s = a > s || isnan(a) ? a : s;
      if (isnan(s)) break;
    }
  else if (p == 2)
    for (int64_t i = 0; i < count; i++) s += x[i] * x[i];
  else
    for (int64_t i = 0; i < count; i++) s += pow(fabs(x[i]), p);
  return s;
}

static double join(double a, double b, double p)
{
  return !isinf(p) ? a + b : isnan(a) ? a : b > a || isnan(b) ? b : a;
}

static double norm_row(const char *p, int64_t stride, int dtype, int64_t count, double pw)
{
  const int size = amp__dtype_size[dtype];
  double s = 0;
  uint64_t raw[BLOCK];
  float buf[BLOCK];
  for (int64_t i = 0; i < count; i += BLOCK) {
    int64_t m = count - i < BLOCK ? count - i : BLOCK;
    const void *q = p + i * stride * size;
    if (stride != 1) {
      amp__move(size, raw, 1, q, stride, m);
      q = raw;
    }
    if (amp__is_half(dtype)) {
      amp__load(AMP_C_F32, buf, dtype, q, 1, m);
      q = buf;
    }
    s = join(s, dtype == AMP_FLOAT64 ? part64(q, m, pw) : part(q, m, pw), pw);
  }
  return s;
}

double amp__cpu_norm_part(const amp_tensor *tensor, double p)
{
  rows r = rows_of(tensor);
  if (no_rows(&r)) return 0;
  const int size = amp__dtype_size[tensor->dtype];
  const char *d = amp__data(tensor);
  double s = 0;
  if (r.ndim == 1 && r.stride[0] == 1) {
    enum { MOST = 256 };
    double one[MOST];
    int64_t n = r.size[0], spans = (n + SPAN - 1) / SPAN;
    for (int64_t base = 0; base < spans; base += MOST) {
      int64_t count = spans - base < MOST ? spans - base : MOST;
      int threads = amp__threads(count * SPAN < n ? count * SPAN : n);
      (void)threads;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
      for (int64_t k = 0; k < count; k++) {
        amp__worker_begins();
        int64_t from = (base + k) * SPAN, m = n - from < SPAN ? n - from : SPAN;
        one[k] = norm_row(d + from * size, 1, tensor->dtype, m, p);
      }
      for (int64_t k = 0; k < count; k++) s = join(s, one[k], p);
    }
    return s;
  }
  int64_t index[AMP_MAX_DIM] = { 0 }, offset = 0;
  do s = join(s, norm_row(d + offset * size, r.stride[r.ndim - 1], tensor->dtype, r.size[r.ndim - 1], p), p);
  while (next_row(&r, index, &offset));
  return s;
}

/* -- Update of the scale -------------------------------------------------------------- */

/* Overflow: back off once the hysteresis is spent. Clean: grow after growth_interval updates in a row. */
int amp__cpu_scale_update(const float *scale, const float *inv, float *scale_to, float *inv_to, double *tracker,
                          double *hyst, const float *const *found, int nfound, amp_tensor *const *look, int nlook,
                          const amp_scaler_options *options)
{
  bool any = false;
  for (int i = 0; i < nfound; i++) any |= *found[i] != 0;
  *scale_to = *scale;
  *inv_to = *inv;
  if (options->growth_interval == 0) return 0;
  double s = *scale;
  if (any) {
    *tracker = 0;
    if (*hyst > (double)options->hysteresis) *hyst = (double)options->hysteresis; /* it was lowered since */
    if (*hyst > 0) *hyst -= 1;
    if (*hyst > 0) return 0;
    s *= options->backoff_factor;
    if (s < options->min_scale)
      s = fmin(*scale, options->min_scale); /* false where there is no bound: NaN. A bound set since never raises it */
    if (1 / s > FLT_MAX) return 0;          /* 1/scale must stay a number */
  } else {
    *tracker += 1;
    if (*tracker < (double)options->growth_interval) return 0;
    *tracker = 0;
    *hyst = (double)options->hysteresis;
    s *= options->growth_factor;
    if (s > options->max_scale) s = options->max_scale;
    if (s > FLT_MAX) return 0;
  }
  *scale_to = (float)s;
  *inv_to = (float)(1 / (double)*scale_to);
  return 0;
}
