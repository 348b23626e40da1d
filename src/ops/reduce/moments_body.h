/*
** ops/reduce/moments_body.h: a reducer of two sums at once, of (x - m) and of its square. The second sum has its lanes,
** and its accumulators, AMP_CHUNK places on. The includer defines FOLD and NAME(part), the reducer's name and those of
** its functions, real, CLASS and LANES, and CLONES; all is undefined at the end.
*/

typedef real NAME(vector) __attribute__((vector_size(32), aligned(sizeof(real)), may_alias));
_Static_assert(LANES * sizeof(real) == 4 * 32, "the lanes of a row are four vectors");

static CLONES void NAME(row)(int64_t count, const void *x_, const void *param, void *acc_)
{
  const real *x = x_;
  const real about = *(const real *)param;
  double *acc = acc_;
  real sums[LANES], squares[LANES], a = 0, b = 0;
  int64_t i = 0;
  if (count > 24) {
    NAME(vector) s[4] = { { 0 } }, p[4] = { { 0 } }; /* in registers: BY_VECTORS (ops/reduce/reducers.c) */
    for (; i + LANES <= count; i += LANES) {
      const NAME(vector) *from = (const NAME(vector) *)(x + i);
      const NAME(vector) v0 = from[0] - about, v1 = from[1] - about, v2 = from[2] - about, v3 = from[3] - about;
      s[0] += v0, s[1] += v1, s[2] += v2, s[3] += v3;
      p[0] += v0 * v0, p[1] += v1 * v1, p[2] += v2 * v2, p[3] += v3 * v3;
    }
    memcpy(sums, s, sizeof s);
    memcpy(squares, p, sizeof p);
    const int left = (int)(count - i);
    AMP_IVDEP
    for (int j = 0; j < left; j++) {
      const real v = x[i + j] - about;
      sums[j] += v;
      squares[j] += v * v;
    }
    for (int w = LANES / 2; w >= 1; w /= 2)
      for (int j = 0; j < w; j++) {
        sums[j] += sums[j + w];
        squares[j] += squares[j + w];
      }
    a = sums[0];
    b = squares[0];
  } else
    for (; i < count; i++) {
      const real v = x[i] - about;
      a += v;
      b += v * v;
    }
  acc[0] += (double)a;
  acc[AMP_CHUNK] += (double)b;
}

static CLONES void NAME(cols)(int64_t count, const void *x_, int64_t stride, int rows, const void *param, void *lane)
{
  const real *x = x_, *p = param;
  real *lane_sums = lane, *lane_squares = lane_sums + AMP_CHUNK;
  int r = 0;
  for (; r + 4 <= rows; r += 4, x += 4 * stride) AMP_IVDEP
  for (int64_t j = 0; j < count; j++) {
    const real about = p[j], v0 = x[j] - about, v1 = x[j + stride] - about, v2 = x[j + 2 * stride] - about,
               v3 = x[j + 3 * stride] - about;
    lane_sums[j] += (v0 + v1) + (v2 + v3);
    lane_squares[j] += v0 * v0 + v1 * v1 + v2 * v2 + v3 * v3;
  }
  for (; r < rows; r++, x += stride) AMP_IVDEP
  for (int64_t j = 0; j < count; j++) {
    const real v = x[j] - p[j];
    lane_sums[j] += v;
    lane_squares[j] += v * v;
  }
}

static void NAME(init)(int64_t count, void *lane, void *acc)
{
  if (lane)
    for (int64_t j = 0; j < count; j++) ((real *)lane)[j] = ((real *)lane)[AMP_CHUNK + j] = 0;
  if (acc)
    for (int64_t j = 0; j < count; j++) ((double *)acc)[j] = ((double *)acc)[AMP_CHUNK + j] = 0;
}

static void NAME(fold)(int64_t count, const void *lane, void *acc_)
{
  const real *lane_sums = lane;
  double *acc = acc_;
  for (int64_t j = 0; j < count; j++) {
    acc[j] += (double)lane_sums[j];
    acc[AMP_CHUNK + j] += (double)lane_sums[AMP_CHUNK + j];
  }
}

static void NAME(join)(int64_t count, const void *from_, void *acc_)
{
  const double *from = from_;
  double *acc = acc_;
  for (int64_t j = 0; j < count; j++) {
    acc[j] += from[j];
    acc[AMP_CHUNK + j] += from[AMP_CHUNK + j];
  }
}

const amp_reducer FOLD = { NAME(row), NAME(cols), NAME(init), NAME(fold), NAME(join), CLASS, AMP_C_F64, 2 };

#undef FOLD
#undef NAME
#undef CLONES
#undef real
#undef CLASS
#undef LANES
