/*
** test_infer.c: shape rules: dtypes against PyTorch's promotion, shapes and
** layouts of results, attributes made to count from 0, the words of errors; and
** that no rule reads or writes out of bounds, whatever it is given.
*/
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "core.h"
#include "check.h"

static amp_state *S;
static amp_call c;
static amp_tensor *pool[512];
static int npool;

static amp_tensor *keep(amp_tensor *t) { return pool[npool++] = t; }

static void drop(void)
{
  while (npool) amp__free(pool[--npool]);
}

static amp_tensor *tensor(int dtype, const char *shape)
{
  int64_t size[AMP_MAX_DIM];
  int n = 0;
  for (char *p = (char *)shape; *p; p += *p == 'x') size[n++] = strtoll(p, &p, 10);
  amp_tensor *t = amp__tensor_make(dtype, AMP_CPU, 0, n, size);
  memset(t->storage->data, 0, t->storage->bytes);
  return keep(t);
}

#define F(shape) tensor(AMP_FLOAT32, shape)
#define H(shape) tensor(AMP_FLOAT16, shape)
#define LONG(shape) tensor(AMP_INT64, shape)
#define NUM(v) keep(amp__number(v))

static amp_tensor *channels_last(amp_tensor *t)
{
  int64_t size[4], stride[4];
  memcpy(size, t->size, sizeof size);
  stride[1] = 1;
  stride[3] = size[1];
  stride[2] = size[1] * size[3];
  stride[0] = size[1] * size[3] * size[2];
  return keep(amp__tensor_view(t, 4, size, stride, 0));
}

/* Run the rule of op on n tensors with the schema's defaults, changed by pairs (slot, integer) up to -1. */
static int infer(int op, amp_tensor **in, int n, va_list ap)
{
  memset(&c, 0, sizeof c);
  c.op = &amp__ops[op];
  c.id = op;
  c.nin = n;
  c.in = c.in_store;
  c.attrs = c.attr_store;
  for (int i = 0; i < n; i++) c.in[i] = in[i];
  memcpy(c.attr_store, c.op->defaults, sizeof c.attr_store);
  for (int slot; (slot = va_arg(ap, int)) >= 0;) {
    int64_t v = va_arg(ap, int64_t);
    c.attr_store[slot].i = v;
  }
  S->err.message[0] = 0;
  return c.op->infer(&c);
}

static const char *strides_of(const amp_meta *m) { return m->strides ? amp__shape_str(m->ndim, m->stride) : "C"; }

/* Result i is "dtype shape strides". */
static void result(int line, int i, const char *want)
{
  char got[512];
  snprintf(got, sizeof got, "%s %s %s", amp_dtype_name(c.meta[i].dtype), amp__shape_str(c.meta[i].ndim, c.meta[i].size),
           strides_of(&c.meta[i]));
  check_that(i < c.nout && strcmp(got, want) == 0, __FILE__, line, got);
}

static int run(int line, int op, const char *want, amp_tensor **in, int n, ...)
{
  va_list ap;
  va_start(ap, n);
  int rc = infer(op, in, n, ap);
  va_end(ap);
  if (want == NULL) return rc;
  if (want[0] == '!')
    check_that(rc < 0 && S->err.code == rc && strstr(S->err.message, want + 1), __FILE__, line,
               rc < 0 ? S->err.message : "no error");
  else if (rc < 0) check_that(0, __FILE__, line, S->err.message);
  else result(line, 0, want);
  return rc;
}

#define ARR(...) ((amp_tensor *[]){ __VA_ARGS__ })
#define N_IN(...) (int)(sizeof(ARR(__VA_ARGS__)) / sizeof(amp_tensor *))
#define IN(...) ARR(__VA_ARGS__), N_IN(__VA_ARGS__)
#define I(x) ((int64_t)(x))
#define RUN(op, want, ...) run(__LINE__, AMP_OP_##op, want, __VA_ARGS__, -1)
#define OUT(i, want) result(__LINE__, i, want)

static int64_t bits(double v)
{
  amp_slot s;
  s.f = v;
  return s.i;
}

/* -- Promotion: what PyTorch gives --------------------------------------------- */

static const uint8_t pair[10][10]
    = { /* two tensors of one dimension */
        { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }, { 0, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, { 0, 1, 2, 1, 2, 2, 2, 2, 2, 2 },
        { 0, 1, 1, 3, 3, 3, 3, 3, 3, 3 }, { 0, 1, 2, 3, 4, 4, 4, 4, 4, 4 }, { 0, 1, 2, 3, 4, 5, 5, 5, 5, 5 },
        { 0, 1, 2, 3, 4, 5, 6, 6, 6, 6 }, { 0, 1, 2, 3, 4, 5, 6, 7, 6, 7 }, { 0, 1, 2, 3, 4, 5, 6, 6, 8, 8 },
        { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 }
      };
static const uint8_t with_scalar[10][10]
    = { /* with one of none */
        { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }, { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, { 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 },
        { 3, 3, 3, 3, 3, 3, 3, 3, 3, 3 }, { 0, 1, 2, 3, 4, 4, 4, 4, 4, 4 }, { 0, 1, 2, 3, 5, 5, 5, 5, 5, 5 },
        { 0, 1, 2, 3, 6, 6, 6, 6, 6, 6 }, { 0, 1, 2, 3, 7, 7, 7, 7, 7, 7 }, { 0, 1, 2, 3, 8, 8, 8, 8, 8, 8 },
        { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 }
      };
static const uint8_t integral[10] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 4 }, fractional[10] = { 0, 1, 2, 3, 1, 1, 1, 1, 1, 1 };

static int dtype_of(int op, amp_tensor *a, amp_tensor *b)
{
  if (run(__LINE__, op, NULL, IN(a, b), -1) < 0) check_that(0, __FILE__, __LINE__, S->err.message);
  return c.meta[0].dtype;
}

static void promotion(void)
{
  int ok = 1;
  for (int a = 0; a < 10; a++) {
    for (int b = 0; b < 10; b++) {
      ok &= dtype_of(AMP_OP_mul, tensor(a, "2"), tensor(b, "2")) == pair[a][b];
      ok &= dtype_of(AMP_OP_mul, tensor(a, "2"), tensor(b, "")) == with_scalar[a][b];
      ok &= dtype_of(AMP_OP_mul, tensor(b, ""), tensor(a, "2")) == with_scalar[a][b];
      ok &= dtype_of(AMP_OP_eq, tensor(a, "2"), tensor(b, "2")) == AMP_BOOL;
      ok &= dtype_of(AMP_OP_div, tensor(a, "2"), tensor(b, "2"))
            == (pair[a][b] > AMP_BFLOAT16 ? AMP_FLOAT32 : pair[a][b]);
      drop();
    }
    ok &= dtype_of(AMP_OP_mul, tensor(a, "2"), NUM(2)) == integral[a]
          && dtype_of(AMP_OP_mul, NUM(2), tensor(a, "")) == integral[a];
    ok &= dtype_of(AMP_OP_mul, NUM(2.5), tensor(a, "2")) == fractional[a]
          && dtype_of(AMP_OP_mul, tensor(a, ""), NUM(2.5)) == fractional[a];
    drop();
  }
  CHECK(ok);
  RUN(add, "float32 3 C", IN(NUM(1), F("3")));
  RUN(add, "!number 300 does not fit dtype uint8", IN(tensor(AMP_UINT8, "2"), NUM(300)));
  RUN(lt, "!does not fit", IN(tensor(AMP_UINT8, "2"), NUM(-1)));
  RUN(add, "!alpha 0.5 must be integral", IN(LONG("2"), LONG("2")), 0, bits(0.5));
  RUN(add, "float32 2 C", IN(LONG("2"), F("2")), 0, bits(0.5));
  RUN(pow, "!negative power -2", IN(LONG("2"), NUM(-2)));
  RUN(pow, "float32 2 C", IN(LONG("2"), NUM(0.5)));
  S->default_dtype = AMP_BFLOAT16;
  RUN(exp, "bfloat16 2 C", IN(LONG("2")));
  S->default_dtype = AMP_FLOAT32;
  RUN(exp, "float32 2 C", IN(LONG("2")));
  RUN(where, "float16 2 C", IN(tensor(AMP_BOOL, "2"), H("2"), NUM(0)));
  RUN(where, "float32 2 C", IN(tensor(AMP_BOOL, "2"), NUM(1), NUM(0)));
  RUN(where, "!condition has dtype int64", IN(LONG("2"), F("2"), F("2")));
  RUN(clamp, "float32 2 C", IN(LONG("2")), 0, bits(0.5));
  RUN(clamp, "!min or max", IN(LONG("2")));
  RUN(masked_fill, "!value -1000000000 does not fit dtype float16", IN(H("2"), tensor(AMP_BOOL, "2")), 0, bits(-1e9));
  RUN(masked_fill, "float16 3x2 C", IN(H("2"), tensor(AMP_BOOL, "3x1")), 0, bits(-INFINITY));
  RUN(fill, "!value nan does not fit dtype int64", IN(LONG("2")), 0, bits(NAN));
  drop();
}

/* -- Broadcasting and layout ------------------------------------------------------ */

static void layouts(void)
{
  amp_tensor *cl = channels_last(F("2x3x4x5")),
             *t = keep(amp__tensor_view(F("4x3"), 2, (int64_t[]){ 3, 4 }, (int64_t[]){ 1, 3 }, 0));
  RUN(add, "float32 2x3x4 C", IN(F("3x1"), F("2x1x4")));
  RUN(add, "float32 0x4 C", IN(F("0x1"), F("4")));
  RUN(add, "!shapes 3x4 and 5x4 do not match (dimension 1 of the first is 3, dimension 1 of the second is 5)",
      IN(F("3x4"), F("5x4")));
  RUN(add, "!dimension 3 of the first is 4, dimension 1 of the second is 5", IN(F("2x3x4"), F("5")));
  RUN(add, "float32 2x3x4x5 60x1x15x3", IN(cl, cl));
  RUN(add, "float32 2x3x4x5 60x1x15x3", IN(cl, F("3x1x1")));
  RUN(add, "float32 2x3x4x5 60x1x15x3", IN(NUM(2), cl));
  RUN(add, "float32 2x3x4x5 C", IN(cl, F("2x3x4x5")));
  RUN(relu, "float32 2x3x4x5 60x1x15x3", IN(cl));
  RUN(exp, "float32 3x4 1x3", IN(t));
  RUN(cast, "float16 3x4 1x3", IN(t), 0, I(AMP_FLOAT16));
  RUN(cast, "!dtype number 77", IN(t), 0, I(77));
  RUN(clone, "float32 3x4 C", IN(t), 0, I(1));
  RUN(clone, "float32 2x3x4x5 60x1x15x3", IN(F("2x3x4x5")), 0, I(2));
  RUN(clone, "!4 dimensions", IN(t), 0, I(2));
  RUN(copy, "!can't be broadcast to the receiver's 3", IN(F("3"), F("2x3")));
  RUN(copy, "int64 2x3 C", IN(LONG("2x3"), F("3")));
  RUN(triu, "!a matrix", IN(F("3")));
  RUN(cat, "float32 4x3x4x5 60x1x15x3", IN(cl, cl));
  drop();
}

/* -- Reductions and joining --------------------------------------------------------- */

static void reductions(void)
{
  amp_tensor *t = H("2x3x4"), *l = LONG("2x3x4");
  RUN(sum, "float16 scalar C", IN(t));
  CHECK(c.attrs[0].i == 3 && c.attrs[3].i == 2);
  RUN(sum, "int64 2x4 C", IN(l), 0, I(1), 1, I(-2));
  CHECK(c.attrs[1].i == 1);
  RUN(sum, "int64 1x3x1 C", IN(tensor(AMP_BOOL, "2x3x4")), 0, I(2), 1, I(3), 2, I(1), 9, I(1));
  RUN(sum, "float64 scalar C", IN(t), 10, I(AMP_FLOAT64));
  RUN(sum, "!dimension 2 is given twice", IN(t), 0, I(2), 1, I(2), 2, I(-2));
  RUN(sum, "!dimension 4 is out of range for 3 dimensions", IN(t), 0, I(1), 1, I(4));
  RUN(mean, "!a mean has a float dtype", IN(t), 10, I(AMP_INT32));
  RUN(prod, "int64 2x3 C", IN(tensor(AMP_INT8, "2x3x4")), 0, I(3));
  RUN(max, "float16 scalar C", IN(t));
  CHECK(c.nout == 1);
  RUN(max, "float16 2x1x4 C", IN(t), 0, I(2), 1, I(1));
  OUT(1, "int64 2x1x4 C");
  RUN(max, "!dimension 1 has size 0", IN(F("0x3")));
  RUN(amax, "float32 0 C", IN(F("0x3")), 0, I(1), 1, I(2));
  RUN(argmax, "int64 2x3 C", IN(t), 0, I(-1));
  RUN(any, "bool scalar C", IN(l));
  RUN(var, "float16 2x3x1 C", IN(t), 0, I(1), 1, I(3), 10, I(1));
  RUN(logsumexp, "float16 2x3x1 C", IN(t), 0, I(1), 1, I(3), 9, I(1));
  RUN(cumsum, "int64 2x3x4 C", IN(tensor(AMP_UINT8, "2x3x4")), 0, I(2));
  RUN(sum_to, "float16 3x1 C", IN(t), 0, I(2), 1, I(3), 2, I(1));
  RUN(sum_to, "!is not one that broadcasts", IN(t), 0, I(1), 1, I(3));
  RUN(cat, "float32 2x7 C", IN(F("2x3"), H("2x4")), 0, I(2));
  RUN(cat, "float32 2x3 C", IN(F("0"), F("2x3")), 0, I(-2));
  RUN(cat, "!dimension 1 of tensor 1 is 2, of tensor 2 5", IN(F("2x3"), F("5x3")), 0, I(2));
  RUN(cat, "!numbers of dimensions differ", IN(F("2x3"), F("3")));
  RUN(cat, "!use stack", IN(F(""), F("")));
  drop();
}

/* -- Indexing ------------------------------------------------------------------------ */

static void indexing(void)
{
  amp_tensor *t = F("4x5x6"), *v = LONG("7");
  RUN(index_select, "float32 4x7x6 C", IN(t, v), 0, I(2));
  RUN(index_select, "!expected a vector", IN(t, LONG("2x2")), 0, I(2));
  RUN(index_select, "!index has dtype float32", IN(t, F("2")), 0, I(2));
  RUN(index_add, "float32 4x5x6 C", IN(t, v, F("4x7x6")), 0, I(2));
  RUN(index_add, "!src has shape 4x5x6, expected 4x7x6", IN(t, v, t), 0, I(2));
  RUN(gather, "float32 2x9x6 C", IN(t, LONG("2x9x6")), 0, I(2));
  RUN(gather, "!dimension 1 of index is 5, more than 4", IN(t, LONG("5x9x6")), 0, I(2));
  RUN(scatter, "float32 4x5x6 C", IN(t, LONG("2x9x6"), F("2x9x6")), 0, I(2));
  RUN(scatter, "!and src", IN(t, LONG("2x9x6"), F("2x8x6")), 0, I(2));
  RUN(index, "float32 7x5x6 C", IN(t, v), 0, I(1), 1, I(1));
  RUN(index, "float32 4x2x7 C", IN(t, v, LONG("2x1")), 0, I(2), 1, I(2), 2, I(3));
  RUN(index, "float32 7x5 C", IN(t, v, v), 0, I(2), 1, I(1), 2, I(-1));
  RUN(index, "!rising order", IN(t, v, v), 0, I(2), 1, I(2), 2, I(1));
  RUN(index, "!2 index tensors are given for 1", IN(t, v, v), 0, I(1), 1, I(2));
  RUN(index, "!do not match", IN(t, v, LONG("3")), 0, I(2), 1, I(1), 2, I(2));
  RUN(index_put, "float32 4x5x6 C", IN(t, F("6"), v, v), 0, I(2), 1, I(1), 2, I(2));
  RUN(index_put, "!can't be broadcast to the indexed part's 7x6", IN(t, F("5"), v, v), 0, I(2), 1, I(1), 2, I(2));
  RUN(embedding, "float16 2x3x8 C", IN(LONG("2x3"), H("10x8")));
  RUN(embedding, "!expected an integer dtype", IN(F("2x3"), H("10x8")));
  amp_tensor *z = F("2x3");
  AMP_DATA(float, z)[1] = NAN;
  AMP_DATA(float, z)[4] = -0.0f;
  AMP_DATA(float, z)[5] = 2;
  RUN(nonzero, "int64 2x2 C", IN(z));
  RUN(nonzero, "int64 2x2 C", IN(keep(amp__tensor_view(z, 2, (int64_t[]){ 3, 2 }, (int64_t[]){ 1, 3 }, 0))));
  RUN(nonzero, "int64 0x0 C", IN(F("")));
  drop();
}

/* -- Products, convolutions, norms, losses ---------------------------------------------- */

static void products(void)
{
  RUN(matmul, "float32 2x4 C", IN(F("2x3"), F("3x4")));
  RUN(matmul, "float32 scalar C", IN(F("3"), F("3")));
  RUN(matmul, "float32 5x2 C", IN(F("5x2x3"), F("3")));
  RUN(matmul, "float32 5x4 C", IN(F("3"), F("5x3x4")));
  RUN(matmul, "float32 6x5x2x4 C", IN(F("6x1x2x3"), F("5x3x4")));
  RUN(matmul, "!shapes 3x4 and 5x6 do not match (dimension 2 of the first is 4, dimension 1 of the second is 5)",
      IN(F("3x4"), F("5x6")));
  RUN(matmul, "!in the batch (dimension 1 of the first is 2, dimension 1 of the second is 3)",
      IN(F("2x4x4"), F("3x4x4")));
  RUN(matmul, "!float32 and float16 differ", IN(F("2x2"), H("2x2")));
  RUN(matmul, "!use mul", IN(F(""), F("2")));
  RUN(linear, "float16 2x5x4 C", IN(H("2x5x3"), H("4x3"), H("4")));
  RUN(linear, "float16 4 C", IN(H("3"), H("4x3")));
  RUN(linear, "!dimension 2 of input is 4, dimension 2 of weight is 3", IN(F("2x4"), F("4x3"), NULL));
  RUN(linear, "!bias has shape 3, expected 4", IN(F("2x3"), F("4x3"), F("3")));
  drop();
}

static void convolutions(void)
{
  amp_tensor *x = F("2x4x8x6"), *w = F("6x2x3x3");
  RUN(convolution, "float32 2x6x6x4 C", IN(x, w, NULL), 9, I(2));
  RUN(convolution, "float32 2x6x4x2 C", IN(x, w, F("6")), 9, I(2), 1, I(2), 2, I(3), 4, I(1), 5, I(1));
  RUN(convolution, "float32 2x6x6x4 144x1x24x6", IN(channels_last(x), w, NULL), 9, I(2));
  RUN(convolution, "!dimension 2 of input is 4, dimension 2 of weight is 2, groups 1", IN(x, w));
  RUN(convolution, "!groups 3 must divide", IN(x, w), 9, I(3));
  RUN(convolution, "!weight has shape 6x2x3x3, expected 3 dimensions (out x in/groups x kL)", IN(F("4x8x6"), w));
  RUN(convolution, "!expected 3 to 5 dimensions", IN(F("4x8"), w));
  RUN(convolution, "!kernel of size 3 (dilation 4) is larger", IN(x, w), 9, I(2), 7, I(4), 8, I(4));
  RUN(convolution, "!stride 0", IN(x, w), 9, I(2), 1, I(0));
  RUN(convolution_input, "float32 2x4x8x6 C", IN(F("2x6x6x4"), w), 0, I(4), 1, I(2), 2, I(4), 3, I(8), 4, I(6), 18,
      I(2));
  RUN(convolution_input, "!grad has shape 2x6x5x4, expected 2x6x6x4", IN(F("2x6x5x4"), w), 0, I(4), 1, I(2), 2, I(4), 3,
      I(8), 4, I(6), 18, I(2));
  RUN(convolution_input, "!bias has shape 3, expected 4", IN(F("2x6x6x4"), w, F("3")), 0, I(4), 1, I(2), 2, I(4), 3,
      I(8), 4, I(6), 18, I(2));
  RUN(convolution_weight, "float32 6x2x3x3 C", IN(F("2x6x6x4"), x), 0, I(4), 1, I(6), 2, I(2), 3, I(3), 4, I(3), 18,
      I(2));
  RUN(im2col, "float32 2x16x35 C", IN(x), 0, I(2), 1, I(2));
  RUN(col2im, "float32 2x4x8x6 C", IN(F("2x16x35")), 0, I(8), 1, I(6), 2, I(2), 3, I(2));
  RUN(col2im, "!dimension 3 of input is 34, expected 7x5 windows", IN(F("2x16x34")), 0, I(8), 1, I(6), 2, I(2), 3,
      I(2));
  drop();
}

static void pools(void)
{
  amp_tensor *x = F("2x4x8x6");
  RUN(max_pool, "float32 2x4x4x3 C", IN(x), 0, I(2), 1, I(1), 2, I(4), 3, I(3), 4, I(1), 5, I(2), 6, I(2));
  OUT(1, "int64 2x4x4x3 C");
  RUN(max_pool, "float32 2x4x3x2 24x1x8x4", IN(channels_last(x)), 0, I(2), 1, I(1), 2, I(3), 3, I(2), 4, I(1), 5, I(3),
      6, I(3));
  RUN(max_pool, "!expected 4 or 5 dimensions", IN(F("2x3")), 0, I(3));
  RUN(max_pool, "!stride 0 must lie in 1..", IN(x), 0, I(2), 8, I(0));
  RUN(avg_pool, "float32 2x4x1x1 C", IN(x), 0, I(2), 1, I(1), 2, I(1), 3, I(1));
  RUN(pool_scatter, "float32 2x4x8x6 C", IN(F("2x4x4x3"), LONG("2x4x4x3")), 0, I(4), 1, I(2), 2, I(4), 3, I(8), 4, I(6),
      9, I(2));
  RUN(pool_scatter, "!indices has shape 2x4x4x2, expected 2x4x4x3", IN(F("2x4x4x3"), LONG("2x4x4x2")), 0, I(4), 1, I(2),
      2, I(4), 3, I(8), 4, I(6), 9, I(2));
  drop();
}

static void norms(void)
{
  RUN(batch_norm, "float16 2x3x4 C", IN(H("2x3x4"), F("3"), F("3"), F("3"), F("3")));
  OUT(1, "float32 3 C");
  CHECK(c.nout == 3);
  RUN(batch_norm, "!running_mean and running_var are needed", IN(H("2x3x4"), NULL, NULL, NULL, NULL));
  RUN(batch_norm, "!more than one value per channel", IN(H("1x3"), NULL, NULL, NULL, NULL), 0, I(1));
  RUN(batch_norm, "!running_var has shape 4, expected 3", IN(H("2x3"), F("3"), F("4"), NULL, NULL));
  RUN(layer_norm, "float32 2x3x4 C", IN(F("2x3x4"), F("3x4"), NULL), 0, I(2), 1, I(3), 2, I(4));
  OUT(2, "float32 2 C");
  RUN(layer_norm, "!whose last dimensions are not 3", IN(F("2x3x4"), NULL, NULL), 0, I(1), 1, I(3));
  RUN(dropout, "float32 2x3 C", IN(F("2x3")));
  OUT(1, "uint8 2x3 C");
  RUN(dropout, "float32 2x3 C", IN(F("2x3")), 1, I(0));
  CHECK(c.nout == 1);
  RUN(dropout, "!p 1.5", IN(F("2x3")), 0, bits(1.5));
  RUN(softmax, "float64 2x3 C", IN(H("2x3")), 0, I(-1), 1, I(AMP_FLOAT64));
  CHECK(c.attrs[0].i == 1);
  RUN(softmax, "!dim is missing", IN(H("2x3")), 0, AMP_NONE);
  drop();
}

static void losses(void)
{
  RUN(nll_loss, "float32 scalar C", IN(F("5x10"), LONG("5"), F("10")));
  OUT(1, "float32 scalar C");
  RUN(nll_loss, "float32 5x7 C", IN(F("5x10x7"), tensor(AMP_UINT8, "5x7"), NULL), 0, I(0));
  RUN(nll_loss, "!target has shape 6, expected 5", IN(F("5x10"), LONG("6"), NULL));
  RUN(nll_loss, "!target has dtype float32", IN(F("5x10"), F("5"), NULL));
  RUN(nll_loss, "!weight has shape 5, expected 10", IN(F("5x10"), LONG("5"), F("5")));
  RUN(cross_entropy_index, "float16 scalar C", IN(H("10"), LONG(""), NULL));
  OUT(1, "float32 2 C");
  RUN(cross_entropy_index, "!label_smoothing 2", IN(H("5x10"), LONG("5"), NULL), 2, bits(2));
  RUN(mse_loss, "float32 scalar C", IN(F("2x3"), F("2x3")));
  RUN(mse_loss, "!input has shape 2x3 and target 3", IN(F("2x3"), F("3")));
  RUN(mse_loss, "!float32 and float16 differ", IN(F("2x3"), H("2x3")));
  drop();
}

static void creation(void)
{
  RUN(empty, "float32 2x3 C", NULL, 0, 0, I(2), 1, I(2), 2, I(3));
  RUN(empty, "!shape is missing", NULL, 0, 0, AMP_NONE);
  RUN(empty, "!size -1 of dimension 1 is negative", NULL, 0, 0, I(1), 1, I(-1));
  RUN(empty, "!more bytes", NULL, 0, 0, I(2), 1, I(1) << 40, 2, I(1) << 40);
  RUN(empty, "!device cuda is not available", NULL, 0, 0, I(0), 10, I(256));
  RUN(full, "uint8 scalar C", NULL, 0, 0, I(0), 9, bits(255), 10, I(AMP_UINT8));
  RUN(full, "!value 256 does not fit dtype uint8", NULL, 0, 0, I(0), 9, bits(256), 10, I(AMP_UINT8));
  RUN(arange, "float32 4 C", NULL, 0, 0, bits(0), 1, bits(1), 2, bits(0.25));
  RUN(arange, "int64 0 C", NULL, 0, 0, bits(3), 1, bits(3), 2, bits(1), 3, I(AMP_INT64));
  RUN(arange, "!step must not be 0", NULL, 0, 0, bits(0), 1, bits(1), 2, bits(0));
  RUN(arange, "!leads away", NULL, 0, 0, bits(0), 1, bits(1), 2, bits(-1));
  RUN(arange, "!must be finite", NULL, 0, 0, bits(0), 1, bits(INFINITY), 2, bits(1));
  RUN(arange, "!too many", NULL, 0, 0, bits(0), 1, bits(1e300), 2, bits(1));
  RUN(linspace, "float32 5 C", NULL, 0, 0, bits(0), 1, bits(1), 2, I(5));
  RUN(eye, "float32 3x2 C", NULL, 0, 0, I(3), 1, I(2));
  RUN(randint, "int64 2 C", NULL, 0, 0, I(1), 1, I(7), 2, I(1), 3, I(2));
  RUN(randint, "!low 7 must be less than high 7", NULL, 0, 0, I(7), 1, I(7), 2, I(1), 3, I(2));
  RUN(randperm, "int64 5 C", NULL, 0, 0, I(5));
}

/* Rules given nonsense of the right arity: an error or sane results, nothing else. */
static uint64_t seed = 1;
static int pick(int n)
{
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (int)((seed >> 33) % (unsigned)n);
}

static amp_tensor *any(void)
{
  int64_t size[5], stride[5], n = 1;
  int ndim = pick(6), dtype = pick(10);
  if (pick(10) == 0) return NUM(pick(5) - 2.5);
  for (int i = 0; i < ndim; i++) {
    size[i] = pick(4);
    n *= size[i];
    stride[i] = 0;
  }
  amp_tensor *t = keep(amp__tensor_make(dtype, AMP_CPU, 0, ndim, size));
  memset(t->storage->data, 0, t->storage->bytes);
  return pick(4) ? t : keep(amp__tensor_view(t, ndim, size, stride, 0));
}

static void nonsense(void)
{
  static const int64_t odd[]
      = { 0, 1, 2, 3, 4, -1, -2, -3, 100, INT64_MAX, INT64_MIN, INT64_MIN + 1, (int64_t)1 << 40 };
  int good = 0, bad = 0;
  for (int round = 0; round < 200; round++)
    for (int op = 0; op < AMP_OP_COUNT; op++) {
      const amp_op_desc *d = &amp__ops[op];
      if (d->front) continue;
      memset(&c, 0, sizeof c);
      c.op = d;
      c.id = op;
      c.in = c.in_store;
      c.attrs = c.attr_store;
      c.nin = d->info.nin + ((d->info.flags & AMP_F_LIST) ? pick(3) : 0);
      for (int i = 0; i < c.nin; i++) {
        bool listed = (d->info.flags & AMP_F_LIST) && i >= d->info.nin - 1; /* callers see that a list is whole */
        c.in[i] = !listed && !(d->required >> i & 1) && pick(3) == 0 ? NULL : any();
      }
      memcpy(c.attr_store, d->defaults, sizeof c.attr_store);
      for (int i = 0; i < d->info.nslot; i++)
        if (pick(2)) c.attr_store[i].i = odd[pick(round % 2 ? 5 : 13)];
      int rc = d->infer(&c);
      if (rc < 0) bad++;
      else {
        good++;
        for (int i = 0; i < c.nout; i++)
          if (c.meta[i].ndim > AMP_MAX_DIM || c.meta[i].dtype >= AMP_DTYPE_COUNT)
            check_that(0, __FILE__, __LINE__, d->info.name);
      }
      drop();
    }
  CHECK(good > 500 && bad > 500);
}

int main(void)
{
  S = amp_state_new();
  AMP_ENTER(S);
  int64_t before = amp_memory(AMP_CPU, 0)->live;
  promotion();
  layouts();
  reductions();
  indexing();
  products();
  convolutions();
  pools();
  norms();
  losses();
  creation();
  nonsense();
  CHECK(amp_memory(AMP_CPU, 0)->live == before);
  amp_state_free(S);
  return DONE();
}
