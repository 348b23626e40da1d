/*
** onednn_layout_body.h: moves of one stripe of channels; included by onednn_layout.c once
** for each size of an element, with `element` for moves, `result` and STORE for what float32
** sums become, and NAME for the names.
*/

/* d[j * ds + i] = s[i * ss + j] for a tile of rows x cols */
static inline __attribute__((always_inline)) void NAME(turn)(const element *s, int64_t ss, element *d, int64_t ds,
                                                             int rows, int cols)
{
  if (rows == TILE && cols == TILE) {
    element t[TILE][TILE];
    for (int i = 0; i < TILE; i++) memcpy(t[i], s + i * ss, sizeof t[i]);
    for (int j = 0; j < TILE; j++) {
      element line[TILE];
      for (int i = 0; i < TILE; i++) line[i] = t[i][j];
      memcpy(d + j * ds, line, sizeof line);
    }
  } else
    for (int j = 0; j < cols; j++)
      for (int i = 0; i < rows; i++) d[j * ds + i] = s[i * ss + j];
}

/* One stripe of channels of one image: `rows` of them (at most TILE), p pixels. Planes lie ps apart; in the other
** layout pixels lie b apart. */
CLONES static void NAME(stripe)(element *planes, int64_t ps, element *blocked, int64_t b, int rows, int64_t p, int back)
{
  for (int64_t j = 0; j < p; j += TILE) {
    int cols = p - j < TILE ? (int)(p - j) : TILE;
    if (back) NAME(turn)(blocked + j * b, b, planes + j, ps, cols, rows);
    else NAME(turn)(planes + j, ps, blocked + j * b, b, rows, cols);
  }
}

/* float32 sums plus a bias, into planes */
CLONES static void NAME(finish)(result *planes, int64_t ps, int64_t pp, const float *from, int64_t fs, int64_t fp,
                                const float *bias, int rows, int64_t p)
{
  for (int64_t j = 0; j < p; j += TILE) {
    int cols = p - j < TILE ? (int)(p - j) : TILE;
    float t[TILE][TILE];
    if (fp == 1) {
      for (int i = 0; i < rows; i++) memcpy(t[i], from + i * fs + j, sizeof(float) * (size_t)cols);
    } else
      for (int k = 0; k < cols; k++)
        for (int i = 0; i < rows; i++) t[i][k] = from[(j + k) * fp + i * fs];
    for (int i = 0; i < rows; i++)
      for (int k = 0; k < TILE; k++) t[i][k] += bias[i];
    for (int i = 0; i < rows; i++)
      for (int k = 0; k < cols; k++) planes[i * ps + (j + k) * pp] = STORE(t[i][k]);
  }
}

#undef element
#undef result
#undef STORE
#undef NAME
