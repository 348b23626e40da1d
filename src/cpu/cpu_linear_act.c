/*
** cpu_linear_act.c: rows linear_act, act_backward and linear_weight on a CPU, made of
** the kernels of the ops they join: a GPU gains by fusing them, a CPU has the data in
** its cache.
*/
#include "cpu_iter.h"

/* One kernel of the table on tensors as they are; a: its attributes (NULL: none) */
static int kernel(int op, int nin, amp_tensor *const *in, amp_tensor *out, const amp_slot *a)
{
  amp_call c;
  memset(&c, 0, sizeof c);
  c.op = &amp__ops[op];
  c.id = op;
  c.in = c.in_;
  c.a = c.a_;
  memcpy(c.a_, a ? a : c.op->defaults, sizeof(amp_slot) * (size_t)c.op->info.nslot);
  for (int i = 0; i < nin; i++) c.in_[i] = in[i];
  c.nin = nin;
  c.nout = 1;
  c.out[0] = out;
  return amp__devices[AMP_CPU].kernel[op](&c);
}

int amp__cpu_linear_act(amp_call *c)
{
  int act = (int)c->a[0].i;
  amp_tensor *z = act ? c->out[1] : c->out[0];
  amp_tensor *in[3] = { c->in[0], c->in[1], c->nin > 2 ? c->in[2] : NULL };
  amp_slot a[AMP_MAX_SLOT] = { { .i = act == 2 } };
  int rc = kernel(AMP_OP_linear, 3, in, z, NULL);
  return rc < 0 ? rc : kernel(act ? AMP_OP_gelu : AMP_OP_relu, 1, &z, c->out[0], a);
}

/* out = sums of t over all but its last dimension */
static int sums(amp_tensor *t, amp_tensor *out)
{
  amp_slot a[AMP_MAX_SLOT] = { { .i = t->ndim - 1 } };
  for (int d = 0; d + 1 < t->ndim; d++) a[1 + d].i = d;
  a[10].i = AMP_NONE;
  if (t->ndim == 1) return amp__copy_to(out, t);
  return kernel(AMP_OP_sum, 1, &t, out, a);
}

int amp__cpu_act_backward(amp_call *c)
{
  int act = (int)c->a[0].i;
  amp_slot a[AMP_MAX_SLOT] = { { .i = act == 2 } };
  int rc = kernel(act ? AMP_OP_gelu_backward : AMP_OP_relu_backward, 2, c->in, c->out[0], a);
  return rc < 0 ? rc : sums(c->out[0], c->out[1]);
}

/* t as a matrix of rows; counted */
static amp_tensor *rows(amp_tensor *t, bool turned)
{
  amp_tensor *d = amp__dense(t, t->dtype);
  int64_t n = t->size[t->ndim - 1], m = n ? t->numel / n : 0, size[2] = { m, n }, stride[2] = { n, 1 };
  if (n == 0) { m = 1; for (int i = 0; i + 1 < t->ndim; i++) m *= t->size[i]; size[0] = m; }
  if (turned) { size[0] = n; size[1] = m; stride[0] = 1; stride[1] = n; }
  amp_tensor *v = d ? amp__tensor_view(d, 2, size, stride, d->offset) : NULL;
  amp__free(d);
  return v;
}

int amp__cpu_linear_weight(amp_call *c)
{
  amp_tensor *in[2] = { rows(c->in[0], true), rows(c->in[1], false) };
  int rc = in[0] && in[1] ? kernel(AMP_OP_matmul, 2, in, c->out[0], NULL) : amp__S->err.code;
  amp__free(in[0]);
  amp__free(in[1]);
  return rc < 0 ? rc : sums(c->in[0], c->out[1]);
}
