/*
** test_view.c: views over a counting tensor (element i of the storage holds i),
** so that reading a view tells which elements it has. Errors are checked by
** their code and the words that matter.
*/
#include <stdarg.h>
#include <string.h>
#include "core.h"
#include "check.h"

static amp_state *S;
static amp_slot last[AMP_MAX_SLOT]; /* attributes as the maker left them */

static amp_tensor *counting(int ndim, int64_t a, int64_t b, int64_t c)
{
  int64_t size[3] = { a, b, c };
  amp_tensor *t = amp__tensor_make(AMP_INT32, AMP_CPU, 0, ndim, size);
  for (int64_t i = 0; i < t->numel; i++) AMP_DATA(int32_t, t)[i] = (int32_t)i;
  return t;
}

/* n slots, given as int64_t */
static amp_tensor *view(int op, amp_tensor *t, int n, ...)
{
  amp_call c = { .op = &amp__ops[op], .id = op, .nin = 1 };
  va_list ap;
  c.in = c.in_store;
  c.in[0] = t;
  c.attrs = last;
  memset(last, 0, sizeof last);
  va_start(ap, n);
  for (int i = 0; i < n; i++) last[i].i = va_arg(ap, int64_t);
  va_end(ap);
  S->err.message[0] = 0;
  int rc = c.op->front(&c);
  CHECK((rc < 0) == (c.out[0] == NULL) && rc == (rc < 0 ? S->err.code : 0));
  if (c.out[0]) CHECK(c.nout == 1 && (c.out[0]->flags & AMP_T_VIEW) && c.out[0]->storage == t->storage);
  return c.out[0];
}

#define L(x) ((int64_t)(x))
#define Z6 L(0), L(0), L(0), L(0), L(0), L(0)
#define Z7 Z6, L(0)
#define V(op, t, ...) view(AMP_OP_##op, t, (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), __VA_ARGS__)

/* The view has this shape and these elements; frees it. */
static void is(int line, amp_tensor *v, const char *shape, const char *elements)
{
  char text[512] = "";
  double out[64];
  amp_ref r = { v };
  if (v == NULL) {
    check_that(0, __FILE__, line, S->err.message);
    return;
  }
  check_that(strcmp(amp__shape_str(v->ndim, v->size), shape) == 0, __FILE__, line, amp__shape_str(v->ndim, v->size));
  OK(amp_read(S, &r, out, v->numel));
  for (int64_t i = 0; i < v->numel; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%g", i ? " " : "", out[i]);
  check_that(strcmp(text, elements) == 0, __FILE__, line, text);
  amp_release(&r);
}

static void fails(int line, amp_tensor *v, int code, const char *words)
{
  check_that(v == NULL && S->err.code == code && strstr(S->err.message, words), __FILE__, line,
             v ? "no error" : S->err.message);
  amp__free(v);
}

#define IS(v, shape, elements) is(__LINE__, v, shape, elements)
#define FAILS(v, code, words) fails(__LINE__, v, code, words)

static void reshaping(amp_tensor *m, amp_tensor *cube)
{
  IS(V(view, m, L(1), L(6)), "6", "0 1 2 3 4 5");
  IS(V(view, m, L(2), L(3), L(-1)), "3x2", "0 1 2 3 4 5");
  CHECK(last[2].i == 2);
  FAILS(V(view, m, L(2), L(-1), L(-1)), AMP_E_SHAPE, "only one size");
  FAILS(V(view, m, L(1), L(5)), AMP_E_SHAPE, "shape 5 does not fit the 6 elements of shape 2x3");
  FAILS(V(view, m, L(2), L(4), L(-1)), AMP_E_SHAPE, "does not fit");
  FAILS(V(view, m, L(2), L(-2), L(-3)), AMP_E_SHAPE, "negative");
  FAILS(V(view, m, L(2), L(1) << 62, L(4)), AMP_E_SHAPE, "does not fit");
  amp_tensor *t = V(transpose, m, L(1), L(2));
  FAILS(V(view, t, L(1), L(6)), AMP_E_SHAPE, "use reshape");
  IS(V(view, t, L(3), L(3), L(1), L(2)), "3x1x2", "0 3 1 4 2 5");
  amp__free(t);
  t = V(narrow, cube, L(2), L(1), L(2)); /* 2x2x4 of 2x3x4: the last two join */
  IS(V(view, t, L(2), L(2), L(8)), "2x8", "0 1 2 3 4 5 6 7 12 13 14 15 16 17 18 19");
  IS(V(view, t, L(3), L(2), L(4), L(2)), "2x4x2", "0 1 2 3 4 5 6 7 12 13 14 15 16 17 18 19");
  FAILS(V(view, t, L(1), L(16)), AMP_E_SHAPE, "use reshape");
  amp__free(t);
  IS(V(alias, m, L(0)), "2x3", "0 1 2 3 4 5");
  IS(V(transpose, m, L(1), L(-1)), "3x2", "0 3 1 4 2 5");
  FAILS(V(transpose, m, L(0), L(1)), AMP_E_INDEX, "dim0 0 is out of range for 2 dimensions");
  FAILS(V(transpose, m, L(1), L(3)), AMP_E_INDEX, "dim1 3");
  IS(V(permute, cube, L(3), L(3), L(1), L(-2)), "4x2x3",
     "0 4 8 12 16 20 1 5 9 13 17 21 2 6 10 14 18 22 3 7 11 15 19 23");
  CHECK(last[1].i == 2 && last[2].i == 0 && last[3].i == 1);
  FAILS(V(permute, m, L(2), L(1), L(1)), AMP_E_ARGUMENT, "dimension 1 is given twice");
  FAILS(V(permute, m, L(1), L(1)), AMP_E_SHAPE, "1 dimensions are given for a tensor of 2");
}

static void growing(amp_tensor *m)
{
  amp_tensor *row = V(select, m, L(1), L(2)), *one;
  IS(V(expand, row, L(2), L(2), L(-1)), "2x3", "3 4 5 3 4 5");
  FAILS(V(expand, row, L(2), L(-1), L(3)), AMP_E_SHAPE, "negative");
  FAILS(V(expand, row, L(1), L(4)), AMP_E_SHAPE, "dimension 1 has size 3, not 1");
  FAILS(V(expand, m, L(1), L(3)), AMP_E_SHAPE, "fewer dimensions");
  FAILS(V(expand, row, L(3), L(1) << 40, L(1) << 40, L(3)), AMP_E_SHAPE, "more bytes");
  IS(V(unsqueeze, row, L(1)), "1x3", "3 4 5");
  IS(V(unsqueeze, row, L(-1)), "3x1", "3 4 5");
  FAILS(V(unsqueeze, row, L(3)), AMP_E_INDEX, "dim 3");
  one = V(unsqueeze, row, L(2));
  IS(V(squeeze, one, AMP_NONE), "3", "3 4 5");
  IS(V(squeeze, one, L(1)), "3x1", "3 4 5");
  IS(V(squeeze, one, L(2)), "3", "3 4 5");
  FAILS(V(squeeze, one, L(3)), AMP_E_INDEX, "out of range");
  IS(V(expand, one, L(2), L(3), L(2)), "3x2", "3 3 4 4 5 5");
  amp__free(one);
  amp__free(row);
  int64_t eight[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
  amp_tensor *deep = amp__tensor_make(AMP_INT32, AMP_CPU, 0, 8, eight);
  FAILS(V(unsqueeze, deep, L(1)), AMP_E_SHAPE, "9 dimensions");
  FAILS(V(unfold, deep, L(1), L(1), L(1)), AMP_E_SHAPE, "9 dimensions");
  amp__free(deep);
}

static void parts(amp_tensor *m, amp_tensor *line)
{
  IS(V(narrow, m, L(2), L(2), L(2)), "2x2", "1 2 4 5");
  CHECK(last[0].i == 1 && last[1].i == 1);
  IS(V(narrow, m, L(2), L(-1), L(1)), "2x1", "2 5");
  IS(V(narrow, m, L(2), L(4), L(0)), "2x0", "");
  FAILS(V(narrow, m, L(2), L(0), L(1)), AMP_E_INDEX, "dimension 2 of size 3");
  FAILS(V(narrow, m, L(2), L(3), L(2)), AMP_E_INDEX, "2 elements from 3");
  FAILS(V(narrow, m, L(2), L(1), INT64_MAX), AMP_E_INDEX, "don't fit");
  IS(V(slice, line, L(1), L(2), L(9), L(3)), "3", "1 4 7");
  CHECK(last[1].i == 1 && last[2].i == 8);
  IS(V(slice, line, L(1), AMP_NONE, AMP_NONE, L(4)), "3", "0 4 8");
  IS(V(slice, line, L(-1), L(-3), L(-1), L(1)), "3", "7 8 9");
  IS(V(slice, line, L(1), L(4), L(3), L(1)), "0", "");
  IS(V(slice, line, L(1), L(11), L(10), L(1)), "0", "");
  IS(V(slice, line, L(1), L(3), L(10), INT64_MAX), "1", "2");
  FAILS(V(slice, line, L(1), L(0), L(3), L(1)), AMP_E_INDEX, "range 0..3 must lie in 1..10");
  FAILS(V(slice, line, L(1), L(3), L(11), L(1)), AMP_E_INDEX, "1..10");
  FAILS(V(slice, line, L(1), L(5), L(3), L(1)), AMP_E_INDEX, "empty");
  FAILS(V(slice, line, L(1), L(1), L(3), L(-1)), AMP_E_ARGUMENT, "flip");
  FAILS(V(slice, line, L(1), L(1), L(3), L(0)), AMP_E_ARGUMENT, "step 0");
  IS(V(select, m, L(2), L(-1)), "2", "2 5");
  CHECK(last[1].i == 2);
  FAILS(V(select, m, L(2), L(0)), AMP_E_INDEX, "count from 1");
  FAILS(V(select, m, L(1), L(3)), AMP_E_INDEX, "index 3 is out of range for dimension 1 of size 2");
  FAILS(V(select, m, L(1), L(-3)), AMP_E_INDEX, "index -3");
  FAILS(V(select, m, L(1), INT64_MIN + 1), AMP_E_INDEX, "out of range");
  amp_tensor *scalar = V(select, line, L(1), L(4));
  IS(V(view, scalar, L(2), L(1), L(1)), "1x1", "3");
  IS(V(unsqueeze, scalar, L(1)), "1", "3");
  FAILS(V(select, scalar, L(1), L(1)), AMP_E_INDEX, "a scalar has no dimensions");
  amp__free(scalar);
}

static void strided(amp_tensor *m, amp_tensor *cube, amp_tensor *line)
{
  IS(V(diagonal, m, L(0), L(1), L(2)), "2", "0 4");
  IS(V(diagonal, m, L(1), L(1), L(2)), "2", "1 5");
  IS(V(diagonal, m, L(-1), L(1), L(2)), "1", "3");
  IS(V(diagonal, m, L(9), L(1), L(2)), "0", "");
  IS(V(diagonal, cube, L(0), L(-2), L(-1)), "2x3", "0 5 10 12 17 22");
  FAILS(V(diagonal, m, L(0), L(2), L(2)), AMP_E_ARGUMENT, "both 2");
  FAILS(V(diagonal, line, L(0), L(1), L(2)), AMP_E_SHAPE, "at least 2 dimensions");
  IS(V(unfold, line, L(1), L(4), L(3)), "3x4", "0 1 2 3 3 4 5 6 6 7 8 9");
  IS(V(unfold, m, L(2), L(2), L(1)), "2x2x2", "0 1 1 2 3 4 4 5");
  FAILS(V(unfold, line, L(1), L(11), L(1)), AMP_E_SHAPE, "windows of 11");
  FAILS(V(unfold, line, L(1), L(2), L(0)), AMP_E_ARGUMENT, "step 0");
  IS(V(as_strided, line, L(2), L(2), L(3), Z6, L(2), L(5), L(1), Z6, L(1)), "2x3", "1 2 3 6 7 8");
  IS(V(as_strided, line, L(1), L(10), Z7, L(1), L(0), Z7, L(9)), "10", "9 9 9 9 9 9 9 9 9 9");
  amp_tensor *part = V(narrow, line, L(1), L(4), L(3));
  IS(V(as_strided, part, L(1), L(2), Z7, L(1), L(1), Z7, AMP_NONE), "2", "3 4");
  IS(V(as_strided, part, L(1), L(2), Z7, L(1), L(1), Z7, L(5)), "2", "5 6");
  CHECK(last[18].i == 2); /* relative to the input from here on */
  amp__free(part);
  FAILS(V(as_strided, line, L(1), L(3), Z7, L(1), L(5), Z7, L(0)), AMP_E_INDEX, "beyond the storage of 10");
  FAILS(V(as_strided, line, L(1), L(2), Z7, L(1), INT64_MAX, Z7, L(1)), AMP_E_INDEX, "beyond");
  FAILS(V(as_strided, line, L(1), L(2), Z7, L(1), L(-1), Z7, L(1)), AMP_E_ARGUMENT, "negative");
  FAILS(V(as_strided, line, L(1), L(2), Z7, L(2), L(1), Z7, L(1)), AMP_E_SHAPE, "as many strides");
}

int main(void)
{
  S = amp_state_new();
  AMP_ENTER(S);
  int64_t before = amp_memory(AMP_CPU, 0)->live;
  amp_tensor *m = counting(2, 2, 3, 0), *cube = counting(3, 2, 3, 4), *line = counting(1, 10, 0, 0);
  reshaping(m, cube);
  growing(m);
  parts(m, line);
  strided(m, cube, line);
  amp__free(m);
  amp__free(cube);
  amp__free(line);
  CHECK(amp_memory(AMP_CPU, 0)->live == before);
  amp_state_free(S);
  return DONE();
}
