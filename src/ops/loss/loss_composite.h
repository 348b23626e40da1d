/*
** ops/loss/loss_composite.h: what composite losses share.
*/
#ifndef AMP_LOSS_COMPOSITE_H
#define AMP_LOSS_COMPOSITE_H
#include "ops/matmul/matmul.h"

/* Checks: input and target have one shape; an attribute, called what, isn't less than low */
int amp__loss_same_size(const amp_call *c);
int amp__loss_number(double value, double low, const char *what);

/* 16-bit inputs as float32, from the first to the n-th; `in` receives them. */
int amp__loss_widened(const amp_call *c, int n, amp_tensor **in);

/* The losses t, reduced and in the dtype of the first argument */
int amp__loss_result(amp_call *c, amp_tensor *t, int64_t reduction);

/* pair_loss of a kind, whose number is p (pair_composite.c) */
amp_tensor *amp__loss_pair(amp_tensor *input, amp_tensor *target, int64_t reduction, int kind, double p);

#endif
