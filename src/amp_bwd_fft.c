/*
** amp_bwd_fft.c: derivatives of Fourier transforms. They are linear, so the
** gradient is the transposed transform: of fft the one in the other direction,
** of half a spectrum and real values each the other one, frequencies that stand
** for two counting twice in just one of the two.
*/
#include "amp_bwd.h"

int amp__bwd_fft_complex(amp_bwd *b) { /* dim inverse scale */
  amp_tensor *g = G(b);
  amp_sl s = amp__sl();
  amp__sl_copy(&s, b->a, 3);
  s.v[1].i = !s.v[1].i;
  return GIN(b, 0, amp__xto(b, 0, amp__x(AMP_OP_fft_complex, &s, 1, &g)));
}

int amp__bwd_fft_real(amp_bwd *b) { /* dim scale weighted; of half: dim n scale weighted */
  amp_tensor *g = G(b);
  amp_sl s = amp__sl();
  amp__sl_copy(&s, b->a, 1);
  amp__sl_i(&s, SHAPE(b, 0)->size[b->a[0].i]);
  amp__sl_copy(&s, b->a + 1, 2);
  return GIN(b, 0, amp__xto(b, 0, amp__x(AMP_OP_fft_half, &s, 1, &g)));
}

int amp__bwd_fft_half(amp_bwd *b) {
  amp_tensor *g = G(b);
  amp_sl s = amp__sl();
  amp__sl_copy(&s, b->a, 1);
  amp__sl_copy(&s, b->a + 2, 2);
  return GIN(b, 0, amp__xto(b, 0, amp__x(AMP_OP_fft_real, &s, 1, &g)));
}
