/*
** ops/conv/im2col_add_body.h: the columns of one channel added into its plane x; included
** by ops/conv/im2col.c once for each `real`, with NAME for the names.
*/

AMP_CLONES static void NAME(add)(const image_columns *columns, real *x, const real *col)
{
  for (int64_t y = 0; y < columns->height; y++)
    for (int64_t j = 0; j < columns->width; j++) x[y * columns->image_stride[2] + j * columns->image_stride[3]] = 0;
  int64_t step = columns->stride_width * columns->image_stride[3], ls = columns->column_stride[2];
  for (int64_t tap = 0; tap < columns->kernel_height * columns->kernel_width; tap++) {
    int64_t low, high, left = tap % columns->kernel_width * columns->dilation_width - columns->padding_width;
    inside(columns, left, &low, &high);
    for (int64_t y = 0; y < columns->out_height; y++) {
      int64_t row = y * columns->stride_height - columns->padding_height
                    + tap / columns->kernel_width * columns->dilation_height;
      if (row < 0 || row >= columns->height) continue;
      real *d = x + row * columns->image_stride[2] + left * columns->image_stride[3];
      const real *s = col + tap * columns->column_stride[1] + y * columns->out_width * ls;
      if (step == 1 && ls == 1) {
        AMP_IVDEP
        for (int64_t j = low; j < high; j++) d[j] += s[j];
      } else
        for (int64_t j = low; j < high; j++) d[j * step] += s[j * ls];
    }
  }
}

#undef real
#undef NAME
