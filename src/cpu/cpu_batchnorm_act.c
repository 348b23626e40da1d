/*
** cpu_batchnorm_act.c: rows batch_norm_act and batch_norm_act_backward on a CPU,
** made of the kernels of the ops they join: values are theirs to the bit. A GPU
** gains by fusing them (kernels/batchnorm_act.cu).
*/
#include "cpu_iter.h"

static amp_tensor *argument(const amp_call *c, int i) { return i < c->nin ? c->in[i] : NULL; }

int amp__cpu_batch_norm_act(amp_call *c)
{
  amp_tensor *y = c->out[0], *batches = argument(c, 6), *pair[2] = { y, argument(c, 1) };
  amp_tensor *in[5] = { c->in[0], argument(c, 2), argument(c, 3), argument(c, 4), argument(c, 5) };
  int rc = amp__cpu_row(AMP_OP_batch_norm, 5, in, 3, c->out, c->a + 1);
  if (rc == 0 && pair[1]) rc = amp__cpu_row(AMP_OP_add, 2, pair, 1, &y, NULL);
  if (rc == 0 && c->a[0].i) rc = amp__cpu_row(AMP_OP_relu, 1, &y, 1, &y, NULL);
  if (rc == 0 && batches && c->a[1].i) {
    *(int64_t *)amp__data(batches) += 1;
    amp__bump(batches);
  }
  return rc;
}

/* The result once more, in float64, from what backward has: its sign is relu's mask. Counted; NULL: error. */
static amp_tensor *again(const amp_call *c)
{
  amp_tensor *y = NULL, *t[5] = { c->in[1], c->in[5], c->in[6], argument(c, 3), argument(c, 4) }, *d[5] = { NULL };
  bool there = true;
  for (int i = 0; i < 5; i++)
    if (t[i] && (d[i] = amp__dense(t[i], AMP_FLOAT64)) == NULL) there = false;
  if (there && (y = amp__tensor_make(AMP_FLOAT64, AMP_CPU, 0, t[0]->ndim, t[0]->size)) != NULL) {
    int64_t channels = t[0]->size[1], inner = 1;
    for (int i = 2; i < t[0]->ndim; i++) inner *= t[0]->size[i];
    for (int64_t i = 0; i < y->numel; i++) {
      int64_t k = i / inner % channels;
      double v = (AMP_DATA(double, d[0])[i] - AMP_DATA(double, d[1])[k]) * AMP_DATA(double, d[2])[k];
      AMP_DATA(double, y)[i] = v * (d[3] ? AMP_DATA(double, d[3])[k] : 1) + (d[4] ? AMP_DATA(double, d[4])[k] : 0);
    }
  }
  for (int i = 0; i < 5; i++) amp__free(d[i]);
  return y;
}

int amp__cpu_batch_norm_act_backward(amp_call *c)
{
  amp_tensor *x = c->in[1], *g = c->a[1].i ? c->out[3] : NULL, *y = c->in[2], *pair[2] = { c->in[0], NULL };
  amp_meta m;
  if (y) amp__retain(y);
  else if ((y = again(c)) == NULL) return amp__S->err.code;
  pair[1] = y;
  if (g) amp__retain(g);
  else {
    amp__meta_of(x, &m);
    if ((g = amp__tensor_new(&m)) == NULL) { amp__free(y); return amp__S->err.code; }
  }
  amp_tensor *in[5] = { g, x, c->in[3], c->in[5], c->in[6] };
  int rc = amp__cpu_row(AMP_OP_relu_backward, 2, pair, 1, &g, NULL);
  if (rc == 0) rc = amp__cpu_row(AMP_OP_batch_norm_backward, 5, in, 3, c->out, c->a);
  amp__free(g);
  amp__free(y);
  return rc;
}
