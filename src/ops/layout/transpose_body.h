/*
** ops/layout/transpose_body.h: a transposition over one type, included by ops/layout/copy.c. The
** includer defines element and TRANSPOSE (the function's name), which are undefined
** at the end.
*/

/* Rows begin to end of d, by tiles: d[r][c] = s[c][r]; rows of d are dense, columns of s are */
static void TRANSPOSE(const transposition *task, int64_t begin, int64_t end)
{
  for (int64_t r0 = begin; r0 < end; r0 += TILE)
    for (int64_t c0 = 0; c0 < task->cols; c0 += TILE) {
      int64_t r1 = r0 + TILE < end ? r0 + TILE : end, c1 = c0 + TILE < task->cols ? c0 + TILE : task->cols;
      element tile[TILE][TILE + 1];
      for (int64_t c = c0; c < c1; c++) {
        const element *s = (const element *)task->src + c * task->src_stride;
        for (int64_t r = r0; r < r1; r++) tile[r - r0][c - c0] = s[r];
      }
      for (int64_t r = r0; r < r1; r++)
        memcpy((element *)task->dst + r * task->dst_stride + c0, tile[r - r0], sizeof(element) * (size_t)(c1 - c0));
    }
}

#undef element
#undef TRANSPOSE
