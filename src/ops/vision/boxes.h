/*
** ops/vision/boxes.h: what kernels of the CPU and of GPUs compute with boxes (x1, y1, x2, y2): their overlap, in the
** order of operations of torchvision's and MXNet's (boxes without area, swapped or NaN overlap nothing), boxes from
** offsets, and keys by which scores are ordered.
*/
#ifndef AMP_VISION_BOXES_H
#define AMP_VISION_BOXES_H
#include <math.h>

#ifdef __CUDACC__
#define AMP_BOXES_INLINE static __device__ __forceinline__
#else
#define AMP_BOXES_INLINE static inline
#endif

AMP_BOXES_INLINE float amp__box_iou(const float *a, const float *b)
{
  float left = a[0] > b[0] ? a[0] : b[0], top = a[1] > b[1] ? a[1] : b[1];
  float right = a[2] < b[2] ? a[2] : b[2], bottom = a[3] < b[3] ? a[3] : b[3];
  float w = right - left, h = bottom - top;
  if (!(w > 0) || !(h > 0)) return 0;
  float both = w * h, all = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both;
  return all > 0 ? both / all : 0;
}

/* The corners of an anchor moved and stretched by offsets over their variances v; scaled by `wide` and `high` */
AMP_BOXES_INLINE void amp__box_decode(const float *offset, const float *anchor, const float *v, float wide, float high,
                                      float *box)
{
  for (int i = 0; i < 2; i++) {
    float size = anchor[i + 2] - anchor[i], centre = (anchor[i] + anchor[i + 2]) * 0.5f, scale = i ? high : wide;
    float at = offset[i] * v[i] * size + centre, half = expf(offset[i + 2] * v[i + 2]) * size * 0.5f;
    box[i] = (at - half) * scale;
    box[i + 2] = (at + half) * scale;
  }
}

/* A larger key is a better score, and of equal scores the earlier place; NaN is the best, as for sort. Never 0. */
AMP_BOXES_INLINE unsigned long long amp__score_key(float score, unsigned place)
{
  union {
    float f;
    unsigned u;
  } bits;
  bits.f = score + 0.0f; /* of both zeros one */
  unsigned order = score == score ? bits.u & 0x80000000u ? ~bits.u : bits.u | 0x80000000u : 0xffffffffu;
  return (unsigned long long)order << 32 | ~place;
}

#ifndef __CUDACC__
#include <stdbool.h>
#include <stdint.h>
/* Which of count boxes, the best first, stay (ops/vision/boxes.c); those of negative groups do not */
void amp__suppress_boxes(const float *boxes, const int64_t *groups, uint8_t *stays, int64_t count, float threshold,
                         bool inclusive);
/* Keys, the largest first */
void amp__sort_keys(unsigned long long *keys, int64_t count);
#endif

#endif
