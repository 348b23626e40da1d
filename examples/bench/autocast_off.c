/* Runs one op argv[1] times through the public API, autocast off; callgrind counts the instructions. */
#include <stdio.h>
#include <stdlib.h>
#include "amp.h"

int main(int argc, char **argv)
{
  long n = argc > 1 ? atol(argv[1]) : 1000;
  amp_state *S = amp_state_new();
  double v[16] = { 0 };
  int64_t size[2] = { 4, 4 };
  amp_ref a = { NULL }, b = { NULL };
  if (S == NULL || amp_from_double(S, &a, v, 2, size, AMP_FLOAT32) < 0 || amp_from_double(S, &b, v, 2, size, AMP_FLOAT32) < 0) return 1;
  int add = amp_op_find("add");
  for (long i = 0; i < n; i++)
    if (amp_op2(S, add | AMP_INPLACE, NULL, &a, &b) < 0) { puts(S->err.message); return 1; }
  for (long i = 0; i < n; i++) {
    amp_ref c = { NULL };
    if (amp_op2(S, add, &c, &a, &b) < 0) { puts(S->err.message); return 1; }
    amp_release(&c);
  }
  amp_release(&a);
  amp_release(&b);
  amp_state_free(S);
  return 0;
}
