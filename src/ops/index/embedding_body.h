/*
** ops/index/embedding_body.h: sums of rows of a table over the computing type, included by
** ops/index/embedding.c for float and for double. The includer defines real and
** NAME(x), which are undefined at the end.
*/

AMP_CLONES_OF(real) static void NAME(plus)(real *out, const real *row, int64_t n)
{
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) out[i] += row[i];
}
AMP_CLONES_OF(real) static void NAME(plus_times)(real *out, const real *row, real factor, int64_t n)
{
  AMP_IVDEP
  for (int64_t i = 0; i < n; i++) out[i] += factor * row[i];
}
static void NAME(sum)(const job *task, int64_t begin, int64_t end, int thread)
{
  int64_t width = task->table->size[1], row_stride = task->table->stride[0], step = task->table->stride[1];
  bool whole = task->table->dtype == task->type && step == 1;
  real *buf = (real *)task->rows + thread * width, *out = AMP_DATA(real, task->out);
  for (int64_t i = begin; i < end; i++) {
    int64_t at = task->index[i], b = task->bag ? task->bag[i] : i / task->per_bag;
    if (at == task->pad) continue;
    const real *x = amp__address_of(task->table, at * row_stride);
    if (!whole) {
      NAME(amp__load)(buf, x, task->table->dtype, step, width);
      x = buf;
    }
    if (task->scale) NAME(plus_times)(out + b * width, x, ((const real *)task->scale)[i], width);
    else NAME(plus)(out + b * width, x, width);
  }
}

#undef real
#undef NAME
