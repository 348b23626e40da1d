/*
** cpu_batchnorm_act.c: rows batch_norm_act and batch_norm_act_backward on a CPU,
** made of the kernels of the ops they join: values are theirs to the bit. A GPU
** gains by fusing them (kernels/batchnorm_act.cu).
*/
#include "cpu_iter.h"

/* One kernel of the table on tensors as they are; a: its attributes */
static int kernel(int op, int nin, amp_tensor *const *in, int nout, amp_tensor *const *out, const amp_slot *a)
{
  amp_call c;
  memset(&c, 0, sizeof c);
  c.op = &amp__ops[op];
  c.id = op;
  c.in = c.in_;
  c.a = c.a_;
  memcpy(c.a_, a ? a : c.op->defaults, sizeof(amp_slot) * (size_t)c.op->info.nslot);
  for (int i = 0; i < nin; i++) c.in_[i] = in[i];
  for (int i = 0; i < nout; i++) c.out[i] = out[i];
  c.nin = nin;
  c.nout = nout;
  return amp__devices[AMP_CPU].kernel[op](&c);
}

static amp_tensor *argument(const amp_call *c, int i) { return i < c->nin ? c->in[i] : NULL; }

int amp__cpu_batch_norm_act(amp_call *c)
{
  amp_tensor *y = c->out[0], *batches = argument(c, 6), *pair[2] = { y, argument(c, 1) };
  amp_tensor *in[5] = { c->in[0], argument(c, 2), argument(c, 3), argument(c, 4), argument(c, 5) };
  int rc = kernel(AMP_OP_batch_norm, 5, in, 3, c->out, c->a + 1);
  if (rc == 0 && pair[1]) rc = kernel(AMP_OP_add, 2, pair, 1, &y, NULL);
  if (rc == 0 && c->a[0].i) rc = kernel(AMP_OP_relu, 1, &y, 1, &y, NULL);
  if (rc == 0 && batches && c->a[1].i) {
    *(int64_t *)amp__data(batches) += 1;
    amp__bump(batches);
  }
  return rc;
}

int amp__cpu_batch_norm_act_backward(amp_call *c)
{
  amp_tensor *x = c->in[1], *g = c->a[1].i ? c->out[3] : NULL, *pair[2] = { c->in[0], c->in[2] };
  amp_meta m;
  if (g) amp__retain(g);
  else {
    amp__meta_of(x, &m);
    if ((g = amp__tensor_new(&m)) == NULL) return amp__S->err.code;
  }
  amp_tensor *in[5] = { g, x, c->in[3], c->in[5], c->in[6] };
  int rc = kernel(AMP_OP_relu_backward, 2, pair, 1, &g, NULL);
  if (rc == 0) rc = kernel(AMP_OP_batch_norm_backward, 5, in, 3, c->out, c->a);
  amp__free(g);
  return rc;
}
