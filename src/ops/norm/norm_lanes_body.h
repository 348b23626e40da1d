/*
** ops/norm/norm_lanes_body.h: loops over runs of channels side by side, and how runs are read and written, for one
** type (cpu/each_real.h).
*/

void NAME(amp__lane_stats)(const real *x, int64_t x_row, int64_t rows, int64_t n, const real *about, double *sum,
                           double *square, bool slow);
int NAME(amp__lane_settle)(int pass, double n, int64_t width, real *restrict about, double *restrict sum,
                           double *restrict square);
void NAME(amp__lane_centre)(real *y, int64_t y_row, const real *x, int64_t x_row, int64_t rows, int64_t n,
                            const real *m, const real *a, const real *b);
void NAME(amp__lane_centre2)(real *y, int64_t y_row, const real *g, int64_t g_row, const real *x, int64_t x_row,
                             int64_t rows, int64_t n, const real *m, const real *r, const real *a, const real *b,
                             const real *c);
void NAME(amp__lane_affine)(real *y, int64_t y_row, const real *x, int64_t x_row, int64_t rows, int64_t n,
                            const real *a, const real *b);
void NAME(amp__lane_sums)(const real *g, int64_t g_row, const real *x, int64_t x_row, int64_t rows, int64_t n,
                          const real *mean, real *grad_sum, real *moment);
void NAME(amp__lane_affine2)(real *y, int64_t y_row, const real *g, int64_t g_row, const real *x, int64_t x_row,
                             int64_t rows, int64_t n, const real *a, const real *b, const real *c);
/* `rows` runs of n channels: the memory itself (*x_row its stride) or widened (*x_row = n) */
static inline const real *NAME(norm_lanes)(const char *p, int dtype, int64_t stride, int64_t rows, int64_t n, real *buf,
                                           int64_t *x_row)
{
  int size = amp__dtype_size[dtype];
  *x_row = stride;
  if (size == sizeof(real)) return (const real *)p;
  *x_row = n;
  if (stride == n) NAME(amp__load)(buf, p, dtype, 1, rows * n);
  else
    for (int64_t i = 0; i < rows; i++) NAME(amp__load)(buf + i * n, p + i * stride * size, dtype, 1, n);
  return buf;
}

static inline void NAME(norm_unlane)(char *p, int dtype, int64_t stride, int64_t rows, int64_t n, const real *buf)
{
  int size = amp__dtype_size[dtype];
  if (stride == n) NAME(amp__store)(p, dtype, 1, buf, rows * n);
  else
    for (int64_t i = 0; i < rows; i++) NAME(amp__store)(p + i * stride * size, dtype, 1, buf + i * n, n);
}
