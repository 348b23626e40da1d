/*
** onednn_layout.c: data between N x C x pixels and the layouts that oneDNN's
** convolutions ask for, blocks of channels innermost: N x C/b x pixels x b, of
** which channels-last is the case b = C. Tiles of 16 x 16 elements are turned
** at once; oneDNN's own reorders take two to twenty times as long here. On the
** way back a bias a channel may be added to float32 sums, and the sum rounded.
*/
#include <string.h>
#include "onednn.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__) || !defined(__GLIBC__) \
    || defined(__clang__) || __GNUC__ < 12
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

#define element uint32_t
#define result float
#define STORE(x) (x)
#define NAME(x) x##_32
#include "onednn_layout_body.h"
#define element uint16_t
#define result uint16_t
#define STORE(x) to_bf16(x)
#define NAME(x) x##_16
#include "onednn_layout_body.h"

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

void dnn_layout_finish(const dnn_layout *l, void *out, bool out_last, const float *sums, const void *bias,
                       bool bias_half, int threads)
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
    for (int k = 0; k < rows; k++)
      add[k] = bias_half ? from_bf16(((const uint16_t *)bias)[c + k]) : ((const float *)bias)[c + k];
    int64_t fs = b == 1 ? l->p : 1, fp = b, ps = out_last ? 1 : l->p, pp = out_last ? l->c : 1;
    if (l->bytes == 4) finish_32((float *)out + to, ps, pp, sums + from, fs, fp, add, rows, l->p);
    else finish_16((uint16_t *)out + to, ps, pp, sums + from, fs, fp, add, rows, l->p);
  }
  (void)threads;
}
