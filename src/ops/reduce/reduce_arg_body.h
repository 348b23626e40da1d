/*
** ops/reduce/reduce_arg_body.h: the extreme of elements, and its index. The includer defines LOOPS and NAME(part), the
** names of the loops' table and functions, real and CLONES, BETTER(v, best), EXTREME, the reducer that finds it, and
*WIDE, what
** that accumulates in; all is undefined at the end.
*/

static CLONES int64_t NAME(find)(int64_t count, const void *x_, const void *value)
{
  const real *x = x_, v = *(const real *)value;
  int64_t i = 0;
  for (; i + 64 <= count; i += 64) {
    int any = 0;
    for (int j = 0; j < 64; j++) any |= (x[i + j] == v) | (NAN_(v) & NAN_(x[i + j]));
    if (any) break;
  }
  for (; i < count; i++)
    if (x[i] == v || (NAN_(v) && NAN_(x[i]))) break;
  return i;
}

static int64_t NAME(row)(int64_t count, const void *x, void *best_)
{
  real *best = best_;
  WIDE most = *best;
  EXTREME.row(count, x, NULL, &most);
  const real v = (real)most;
  if (!(BETTER(v, *best))) return -1;
  const int64_t at = NAME(find)(count, x, &v);
  *best = ((const real *)x)[at];
  return at;
}

static CLONES void NAME(cols)(int64_t count, const void *x_, int64_t k, void *best_, int64_t *index)
{
  const real *x = x_;
  real *best = best_;
  AMP_IVDEP
  for (int64_t j = 0; j < count; j++) {
    const real v = x[j];
    const int take = BETTER(v, best[j]);
    best[j] = take ? v : best[j];
    index[j] = take ? k : index[j];
  }
}

static const arg_loops LOOPS = { NAME(row), NAME(cols) };

#undef LOOPS
#undef NAME
#undef CLONES
#undef real
#undef BETTER
#undef EXTREME
#undef WIDE
