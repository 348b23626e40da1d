/*
** onednn_layout.c: data between N x C x pixels and the layouts that oneDNN's
** convolutions ask for, blocks of channels innermost: N x C/b x pixels x b, of
** which channels-last is the case b = C. Tiles of 16 x 16 elements are turned
** at once; oneDNN's own reorders take two to twenty times as long here. On the
** way back a bias a channel may be added to float32 sums, and the sum rounded.
*/
#include <string.h>
#include "onednn.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__) || !defined(__gnu_linux__) || defined(__clang__) || __GNUC__ < 12
#define CLONES
#else
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif

enum { TILE = 16 };

static inline float from_bf16(uint16_t v)
{
  uint32_t u = (uint32_t)v << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

static inline uint16_t to_bf16(float f) /* to nearest even; NaN stays one */
{
  uint32_t u;
  memcpy(&u, &f, 4);
  uint32_t r = (u + 0x7fff + (u >> 16 & 1)) >> 16;
  return (uint16_t)(f != f ? (u >> 16 | 0x40) : r);
}

/* d[j * ds + i] = s[i * ss + j] for a tile of rows x cols */
#define TURN(T, name)                                                                               \
  static inline __attribute__((always_inline)) void name(const T *s, int64_t ss, T *d, int64_t ds, int rows, int cols) \
  {                                                                                                 \
    if (rows == TILE && cols == TILE) {                                                             \
      T t[TILE][TILE];                                                                              \
      for (int i = 0; i < TILE; i++) memcpy(t[i], s + i * ss, sizeof t[i]);                         \
      for (int j = 0; j < TILE; j++) {                                                              \
        T line[TILE];                                                                               \
        for (int i = 0; i < TILE; i++) line[i] = t[i][j];                                           \
        memcpy(d + j * ds, line, sizeof line);                                                      \
      }                                                                                             \
    } else                                                                                          \
      for (int j = 0; j < cols; j++) for (int i = 0; i < rows; i++) d[j * ds + i] = s[i * ss + j];  \
  }
TURN(uint32_t, turn_32)
TURN(uint16_t, turn_16)

/* One stripe of channels of one image: `rows` of them (at most TILE), p pixels. Planes lie ps apart; in the other
** layout pixels lie b apart. */
#define STRIPE(T, name, turn)                                                                       \
  CLONES static void name(T *planes, int64_t ps, T *blocked, int64_t b, int rows, int64_t p, int back) \
  {                                                                                                 \
    for (int64_t j = 0; j < p; j += TILE) {                                                         \
      int cols = p - j < TILE ? (int)(p - j) : TILE;                                                \
      if (back) turn(blocked + j * b, b, planes + j, ps, cols, rows);                               \
      else turn(planes + j, ps, blocked + j * b, b, rows, cols);                                    \
    }                                                                                               \
  }
STRIPE(uint32_t, stripe_32, turn_32)
STRIPE(uint16_t, stripe_16, turn_16)

/* float32 sums plus a bias, into planes of T */
#define FINISH(T, name, STORE)                                                                      \
  CLONES static void name(T *planes, int64_t ps, int64_t pp, const float *from, int64_t fs, int64_t fp, const float *bias, int rows, int64_t p) \
  {                                                                                                 \
    for (int64_t j = 0; j < p; j += TILE) {                                                         \
      int cols = p - j < TILE ? (int)(p - j) : TILE;                                                \
      float t[TILE][TILE];                                                                          \
      if (fp == 1) { for (int i = 0; i < rows; i++) memcpy(t[i], from + i * fs + j, sizeof(float) * (size_t)cols); } \
      else for (int k = 0; k < cols; k++) for (int i = 0; i < rows; i++) t[i][k] = from[(j + k) * fp + i * fs]; \
      for (int i = 0; i < rows; i++) for (int k = 0; k < TILE; k++) t[i][k] += bias[i];             \
      for (int i = 0; i < rows; i++) for (int k = 0; k < cols; k++) planes[i * ps + (j + k) * pp] = STORE(t[i][k]); \
    }                                                                                               \
  }
#define PLAIN(x) (x)
FINISH(float, finish_32, PLAIN)
FINISH(uint16_t, finish_16, to_bf16)

void dnn_layout_move(const dnn_layout *l, void *planes, void *blocked, int back, int threads)
{
  int64_t stripes = (l->c + TILE - 1) / TILE, b = l->block;
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) if (threads > 1)
#endif
  for (int64_t i = 0; i < l->n * stripes; i++) {
    int64_t n = i / stripes, c = i % stripes * TILE, at = (n * l->c + c) * l->p;
    int64_t to = n * l->c * l->p + c / b * b * l->p + c % b;
    int rows = l->c - c < TILE ? (int)(l->c - c) : TILE;
    if (l->bytes == 4) stripe_32((uint32_t *)planes + at, l->p, (uint32_t *)blocked + to, b, rows, l->p, back);
    else stripe_16((uint16_t *)planes + at, l->p, (uint16_t *)blocked + to, b, rows, l->p, back);
  }
  (void)threads;
}

void dnn_layout_finish(const dnn_layout *l, void *out, bool out_last, const float *sums, const void *bias, bool bias_half, int threads)
{
  int64_t stripes = (l->c + TILE - 1) / TILE, b = l->block;
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads) if (threads > 1)
#endif
  for (int64_t i = 0; i < l->n * stripes; i++) {
    int64_t n = i / stripes, c = i % stripes * TILE, image = n * l->c * l->p;
    int64_t from = image + (b == 1 ? c * l->p : c / b * b * l->p + c % b), to = image + (out_last ? c : c * l->p);
    int rows = l->c - c < TILE ? (int)(l->c - c) : TILE;
    float add[TILE] = { 0 };
    for (int k = 0; k < rows; k++) add[k] = bias_half ? from_bf16(((const uint16_t *)bias)[c + k]) : ((const float *)bias)[c + k];
    int64_t fs = b == 1 ? l->p : 1, fp = b, ps = out_last ? 1 : l->p, pp = out_last ? l->c : 1;
    if (l->bytes == 4) finish_32((float *)out + to, ps, pp, sums + from, fs, fp, add, rows, l->p);
    else finish_16((uint16_t *)out + to, ps, pp, sums + from, fs, fp, add, rows, l->p);
  }
  (void)threads;
}
