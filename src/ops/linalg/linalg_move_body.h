/*
** ops/linalg/linalg_move_body.h: matrices copied between strides over one type, included by
** ops/linalg/linalg.c for float and for double. The includer defines real and
** NAME(x), which are undefined at the end.
*/

/* dst(i, j) = src(i, j) for rows x cols elements over strides, in tiles */
AMP_CLONES_WIDE static void NAME(move)(int64_t rows, int64_t cols, real *dst, int64_t drs, int64_t dcs, const real *src,
                                       int64_t srs, int64_t scs)
{
  if (drs == 1 && srs == 1) {
    for (int64_t j = 0; j < cols; j++) memcpy(dst + j * dcs, src + j * scs, (size_t)rows * sizeof(real));
  } else if (dcs == 1 && scs == 1) {
    for (int64_t i = 0; i < rows; i++) memcpy(dst + i * drs, src + i * srs, (size_t)cols * sizeof(real));
  } else
    for (int64_t j0 = 0; j0 < cols; j0 += 16)
      for (int64_t i0 = 0; i0 < rows; i0 += 16)
        for (int64_t j = j0; j < cols && j < j0 + 16; j++)
          for (int64_t i = i0; i < rows && i < i0 + 16; i++) dst[i * drs + j * dcs] = src[i * srs + j * scs];
}

#undef real
#undef NAME
