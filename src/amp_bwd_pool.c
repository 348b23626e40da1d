/*
** amp_bwd_pool.c: derivatives of pooling, resampling, padding, grid_sample.
** All but the last are linear in their input (max_pool once its places are
** chosen), so each family is closed: a kernel's derivative is its transpose and
** the transpose's is the kernel. grid_sample is not linear in its grid; the
** derivative of its backward row is a kernel without one.
*/
#include "amp_bwd.h"

static amp_tensor *apply(int op, const amp_slot *a, int n, amp_tensor *x) {
  amp_sl s = amp__sl();
  amp__sl_copy(&s, a, n);
  return amp__x(op, &s, 1, &x);
}

/* An op whose first attribute is the result's shape */
static amp_tensor *back(int op, const amp_shape *h, const amp_slot *a, int n, amp_tensor *g) {
  amp_sl s = amp__sl();
  amp__sl_shape(&s, h);
  amp__sl_copy(&s, a, n);
  return amp__x(op, &s, 1, &g);
}

/* -- Places -------------------------------------------------------------------------- */

/* windows: kernel_size, stride and padding of the pool the places come from, three each; NULL: unknown */
static amp_tensor *scatter(const amp_shape *h, amp_tensor *g, amp_tensor *places, int64_t spatial, const amp_slot *windows) {
  amp_tensor *in[2] = { g, places };
  amp_sl s = amp__sl();
  amp__sl_shape(&s, h);
  amp__sl_i(&s, spatial);
  for (int i = 0; i < 9; i++) amp__sl_i(&s, windows ? windows[i].i : i / 3 == 1);
  return amp__x(AMP_OP_pool_scatter, &s, 2, in);
}

static amp_tensor *gather(amp_tensor *x, amp_tensor *places, int64_t spatial) {
  amp_tensor *in[2] = { x, places };
  amp_sl s = amp__sl();
  amp__sl_i(&s, spatial);
  return amp__x(AMP_OP_pool_gather, &s, 2, in);
}

/* spatial, size, kernel_size, stride, padding, dilation, three each */
int amp__bwd_max_pool(amp_bwd *b) {
  bool near = b->a[13].i == 1 && b->a[14].i == 1 && b->a[15].i == 1;
  return GIN(b, 0, scatter(SHAPE(b, 0), G(b), OUT(b, 1), b->a[0].i, near ? b->a + 4 : NULL));
}
int amp__bwd_pool_gather(amp_bwd *b) { return GIN(b, 0, scatter(SHAPE(b, 0), G(b), IN(b, 1), b->a[0].i, NULL)); }
int amp__bwd_pool_scatter(amp_bwd *b) { return GIN(b, 0, gather(G(b), IN(b, 1), b->a[9].i)); }
int amp__bwd_unpool(amp_bwd *b) { return GIN(b, 0, gather(G(b), IN(b, 1), b->a[9].i)); }

/* -- Linear maps ---------------------------------------------------------------------- */

enum { AVG_SLOTS = 15, RESAMPLE_SLOTS = 10, PAD_SLOTS = 18 }; /* pad: 17, mode */

int amp__bwd_avg_pool(amp_bwd *b) { return GIN(b, 0, back(AMP_OP_avg_pool_backward, SHAPE(b, 0), b->a, AVG_SLOTS, G(b))); }
int amp__bwd_avg_pool_backward(amp_bwd *b) { return GIN(b, 0, apply(AMP_OP_avg_pool, b->a + 9, AVG_SLOTS, G(b))); }
int amp__bwd_resample(amp_bwd *b) { return GIN(b, 0, back(AMP_OP_resample_backward, SHAPE(b, 0), b->a, RESAMPLE_SLOTS, G(b))); }
int amp__bwd_resample_backward(amp_bwd *b) { return GIN(b, 0, apply(AMP_OP_resample, b->a + 9, RESAMPLE_SLOTS, G(b))); }

static amp_tensor *padded(const amp_slot *a, int sign, amp_tensor *g) {
  amp_sl s = amp__sl();
  amp__sl_copy(&s, a, PAD_SLOTS);
  for (int i = 1; i <= a[0].i; i++) s.v[i].i *= sign;
  amp__sl_f(&s, 0);
  return amp__x(AMP_OP_pad, &s, 1, &g);
}

int amp__bwd_pad(amp_bwd *b) {
  if (b->a[17].i == 0) return GIN(b, 0, padded(b->a, -1, G(b)));
  return GIN(b, 0, back(AMP_OP_pad_backward, SHAPE(b, 0), b->a, PAD_SLOTS, G(b)));
}

int amp__bwd_pad_backward(amp_bwd *b) { return GIN(b, 0, padded(b->a + 9, 1, G(b))); }

/* -- Grids ------------------------------------------------------------------------------ */

enum { GRID_SLOTS = 3 };

int amp__bwd_grid_sample(amp_bwd *b) {
  amp_tensor *in[3] = { G(b), IN(b, 0), IN(b, 1) }, *out[AMP_MAX_OUT];
  amp_sl s = amp__sl();
  amp__sl_copy(&s, b->a, GRID_SLOTS);
  int rc = amp__xs(AMP_OP_grid_sample_backward, &s, 3, in, out);
  for (int i = 0; i < 2 && rc == 0; i++) if (NEED(b, i)) rc = GIN(b, i, out[i]);
  return rc;
}

int amp__bwd_grid_sample_backward(amp_bwd *b) {
  amp_tensor *in[5] = { IN(b, 0), IN(b, 1), IN(b, 2), b->g[0], b->g[1] }, *out[AMP_MAX_OUT];
  amp_sl s = amp__sl();
  amp__sl_copy(&s, b->a, GRID_SLOTS);
  for (int i = 0; i < 2; i++) if (!in[3 + i]) in[3 + i] = amp__xzeros(b, 1 + i);
  int rc = amp__xs(AMP_OP_grid_sample_double, &s, 5, in, out);
  for (int i = 0; i < 3 && rc == 0; i++) if (NEED(b, i)) rc = GIN(b, i, out[i]);
  return rc;
}
