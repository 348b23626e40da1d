/*
** ops/pool/pad_add_body.h: every row of grad added where it came from; included by
** ops/pool/pad.c once for each `real`, with NAME for the names.
*/

static void NAME(add_rows)(const padding *job)
{
  const side *side = &job->side[job->dims - 1];
  row row;
  seek(job, &row, 0);
  for (int64_t r = 0, count = rows(job); r < count; r++, next(job, &row)) {
    if (row.outside) continue;
    real *to = (real *)job->other + row.other;
    const real *g = (const real *)job->padded + row.padded;
    if (side->stride == 1 && side->other_stride == 1) {
      real *t = to + side->inside_begin - side->before;
      const real *f = g + side->inside_begin;
      for (int64_t j = 0; j < side->inside_end - side->inside_begin; j++) t[j] += f[j];
    } else
      for (int64_t j = side->inside_begin; j < side->inside_end; j++)
        to[side->map[j] * side->other_stride] += g[j * side->stride];
    if (job->mode == PAD_MODE_CONSTANT) continue;
    for (int64_t j = 0; j < side->inside_begin; j++) to[side->map[j] * side->other_stride] += g[j * side->stride];
    for (int64_t j = side->inside_end; j < side->size; j++)
      to[side->map[j] * side->other_stride] += g[j * side->stride];
  }
}

#undef real
#undef NAME
