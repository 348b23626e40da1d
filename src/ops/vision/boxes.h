/*
** ops/vision/boxes.h: the overlap of two boxes (x1, y1, x2, y2), for kernels of the CPU and of GPUs, in the
** order of operations of torchvision's and MXNet's. Boxes without area, swapped or NaN overlap nothing.
*/
#ifndef AMP_VISION_BOXES_H
#define AMP_VISION_BOXES_H

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

#endif
