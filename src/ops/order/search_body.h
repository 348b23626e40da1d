/*
** ops/order/search_body.h: searches in a sorted row over one type, included by
** ops/order/search.c. The includer defines element, SEARCH (the function's name),
** BEFORE(s, x) (does s come before x? false where s is NaN), IS_NAN(x) and NAN_BEFORE
** (how many elements come before NaN); all is undefined at the end.
*/

/* How many of the n elements of s come before x. Eight searches go side by side, so that one waits for memory while
** others halve. Not inlined: side by side in one function they would take a seventh more instructions. */
static __attribute__((noinline)) void SEARCH(const searching *task, int64_t begin, int64_t stop)
{
  const element *s = task->sorted, *v = task->values;
  for (int64_t i = begin, end; i < stop; i = end) {
    end = task->row_step ? (i / task->per_row + 1) * task->per_row : stop; /* what one row of s is for */
    if (end > stop) end = stop;
    if (task->row_step) s = (const element *)task->sorted + i / task->per_row * task->row_step;
    for (int64_t j = i; j < end; j += 8) {
      const int w = end - j < 8 ? (int)(end - j) : 8;
      int64_t at[8] = { 0 }, n = task->length;
      element x[8] = { 0 };
      for (int l = 0; l < w; l++) x[l] = v[j + l];
      for (; n > 1; n -= n / 2)
        for (int l = 0; l < 8; l++) at[l] += BEFORE(s[at[l] + n / 2 - 1], x[l]) ? n / 2 : 0;
      for (int l = 0; l < w; l++) {
        if (IS_NAN(x[l])) at[l] = NAN_BEFORE;
        else if (n == 1) at[l] += BEFORE(s[at[l]], x[l]);
        task->out[j + l] = at[l] + 1;
      }
    }
  }
}

#undef element
#undef SEARCH
#undef BEFORE
#undef IS_NAN
#undef NAN_BEFORE
