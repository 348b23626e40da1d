/*
** ops/elementwise/elementwise_shape.h: shape rules that others end with.
*/
#ifndef AMP_OPS_ELEMENTWISE_SHAPE_H
#define AMP_OPS_ELEMENTWISE_SHAPE_H
#include "dispatch/shape_rules.h"

int amp__infer_unary(amp_call *call);
int amp__infer_unary_float(amp_call *call);
int amp__infer_broadcast(amp_call *call);

#endif
