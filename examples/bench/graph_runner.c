/* Runs a graph from a file argv[2] times for argv[3] rows of 64 zeros, without history; callgrind counts the instructions. */
#include <stdio.h>
#include <stdlib.h>
#include "amp.h"

int main(int argc, char **argv)
{
  amp_state *S = amp_state_new();
  if (S == NULL || argc < 4) return 1;
  amp_graph *g = amp_graph_load(S, argv[1], AMP_CPU);
  long n = atol(argv[2]), rows = atol(argv[3]);
  double *zeros = calloc((size_t)rows * 64, sizeof *zeros);
  int64_t size[2] = { rows, 64 };
  amp_ref x = { NULL };
  if (g == NULL || amp_from_double(S, &x, zeros, 2, size, AMP_FLOAT32) < 0) { puts(S->err.message); return 1; }
  S->grad_mode = 0;
  for (long i = 0; i < n; i++) {
    amp_ref y = { NULL };
    if (amp_graph_run(g, &x, 1, &y, 1) < 0) { puts(S->err.message); return 1; }
    amp_release(&y);
  }
  amp_release(&x);
  amp_graph_free(g);
  amp_state_free(S);
  free(zeros);
  return 0;
}
