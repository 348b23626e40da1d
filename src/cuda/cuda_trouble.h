/*
** cuda_trouble.h: what a kernel finds wrong with values, for the next wait to raise. Generated kernels are made of this
** text too.
*/
#ifndef AMP_CUDA_TROUBLE_H
#define AMP_CUDA_TROUBLE_H
#include <stdint.h>

/* Kinds of trouble, each with a text in cuda_device.c */
enum amp_trouble_kind {
  AMP_TROUBLE_NONE,
  AMP_TROUBLE_INDEX,
  AMP_TROUBLE_LABEL,
  AMP_TROUBLE_ZERO,
  AMP_TROUBLE_NEGATIVE_POWER,
  AMP_TROUBLE_CAST,
  AMP_TROUBLE_SINGULAR,
  AMP_TROUBLE_NOT_POSITIVE,
  AMP_TROUBLE_PROBABILITY,
  AMP_TROUBLE_NEGATIVE,
  AMP_TROUBLE_CONVERGENCE,
  AMP_TROUBLE_LENGTH,
  AMP_TROUBLE_SOURCE,
  AMP_TROUBLE_RANGE,
  AMP_TROUBLE_WEIGHTS,
  AMP_TROUBLE_ARGUMENT
};
typedef struct amp_trouble { /* the first one since it was told */
  int32_t kind, op;
  int64_t value, limit, place; /* what was found, what it had to be below, where (from 0) */
  double number;
} amp_trouble;

#endif
