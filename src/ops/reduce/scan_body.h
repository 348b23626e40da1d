/*
** ops/reduce/scan_body.h: the extreme so far of a chunk of a line, for one type. `from` elements of the line came
** before the chunk; `carried` and `carried_at` take the extreme and its place from one chunk to the next.
*/

AMP_INLINE void NAME(extreme)(bool most, int64_t count, int64_t from, const real *v, real *y, int64_t *place,
                              real *carried, int64_t *carried_at)
{
  real best = from ? *carried : v[0];
  int64_t at = from ? *carried_at : 1;
  for (int64_t i = 0; i < count; i++) {
    const real x = v[i];
    if ((most ? x >= best : x <= best) || x != x) {
      best = x;
      at = from + i + 1;
    }
    y[i] = best;
    place[i] = at;
  }
  *carried = best;
  *carried_at = at;
}
