/*
** cpu_linear_act.c: rows linear_act, act_backward, linear_input, linear_weight and
** linear_both on a CPU, made of the kernels of the ops they join: a GPU gains by fusing
** them, a CPU has the data in its cache.
*/
#include "cpu_iter.h"

int amp__cpu_linear_act(amp_call *c)
{
  int act = (int)c->a[0].i;
  amp_tensor *z = act ? c->out[1] : c->out[0];
  amp_tensor *in[3] = { c->in[0], c->in[1], c->nin > 2 ? c->in[2] : NULL };
  amp_slot a[AMP_MAX_SLOT] = { { .i = act == 2 } };
  int rc = amp__cpu_row(AMP_OP_linear, 3, in, 1, &z, NULL);
  return rc < 0 ? rc : amp__cpu_row(act ? AMP_OP_gelu : AMP_OP_relu, 1, &z, 1, &c->out[0], a);
}

/* out = sums of t over all but its last dimension */
static int sums(amp_tensor *t, amp_tensor *out)
{
  amp_slot a[AMP_MAX_SLOT] = { { .i = t->ndim - 1 } };
  for (int d = 0; d + 1 < t->ndim; d++) a[1 + d].i = d;
  a[10].i = AMP_NONE;
  if (t->ndim == 1) return amp__copy_to(out, t);
  return amp__cpu_row(AMP_OP_sum, 1, &t, 1, &out, a);
}

int amp__cpu_act_backward(amp_call *c)
{
  int act = (int)c->a[0].i;
  amp_slot a[AMP_MAX_SLOT] = { { .i = act == 2 } };
  int rc = amp__cpu_row(act ? AMP_OP_gelu_backward : AMP_OP_relu_backward, 2, c->in, 1, &c->out[0], a);
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

/* grad where a ReLU's result is above 0, else 0; counted */
static amp_tensor *behind_relu(amp_tensor *grad, amp_tensor *result)
{
  amp_tensor *in[2] = { grad, result }, *z;
  amp_meta m;
  amp__meta_of(grad, &m);
  if ((z = amp__tensor_new(&m)) && amp__cpu_row(AMP_OP_relu_backward, 2, in, 1, &z, NULL) < 0) { amp__free(z); z = NULL; }
  return z;
}

int amp__cpu_linear_input(amp_call *c)
{
  amp_tensor *in[2] = { behind_relu(c->in[0], c->in[2]), c->in[1] };
  int rc = in[0] ? amp__cpu_row(AMP_OP_matmul, 2, in, 1, &c->out[0], NULL) : amp__S->err.code;
  amp__free(in[0]);
  return rc;
}

/* Gradients of weight and bias into out[0] and out[1] */
static int weight_of(amp_tensor *g, amp_tensor *input, amp_tensor **out)
{
  amp_tensor *in[2] = { rows(g, true), rows(input, false) };
  int rc = in[0] && in[1] ? amp__cpu_row(AMP_OP_matmul, 2, in, 1, &out[0], NULL) : amp__S->err.code;
  amp__free(in[0]);
  amp__free(in[1]);
  return rc < 0 ? rc : sums(g, out[1]);
}

int amp__cpu_linear_weight(amp_call *c)
{
  amp_tensor *result = c->nin > 2 ? c->in[2] : NULL, *g = c->in[0], *z = NULL;
  if (result && (g = z = behind_relu(g, result)) == NULL) return amp__S->err.code;
  int rc = weight_of(g, c->in[1], c->out);
  amp__free(z);
  return rc;
}

int amp__cpu_linear_both(amp_call *c)
{
  amp_tensor *result = c->nin > 3 ? c->in[3] : NULL, *in[2] = { c->in[0], c->in[2] }, *z = NULL;
  if (result && (in[0] = z = behind_relu(in[0], result)) == NULL) return amp__S->err.code;
  int rc = amp__cpu_row(AMP_OP_matmul, 2, in, 1, &c->out[0], NULL);
  if (rc == 0) rc = weight_of(in[0], c->in[1], c->out + 1);
  amp__free(z);
  return rc;
}
