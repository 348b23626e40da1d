/*
** ops/conv/conv_geometry.h: what the shape rules, composites and derivatives of convolutions
** share. The rows convolution, convolution_input and convolution_weight have
** one, two or three spatial dimensions, after their data's rank; attributes of
** three values are for the last ones of three.
*/
#ifndef AMP_OPS_CONV_GEOMETRY_H
#define AMP_OPS_CONV_GEOMETRY_H
#include "core.h"

/* Attributes as a user may give them. 0 or an error. */
int amp__conv_attributes(const args_convolution *args, int spatial);
/* Shape of the convolution of input and weight, two shapes of spatial + 2 dimensions. `single`: input is a sample
** whose first dimension was added, which messages don't count. */
int amp__conv_shape(const int64_t *input, const int64_t *weight, int spatial, const args_convolution *args, bool single,
                    int64_t *size);
/* "N x C x H x W" and the like; weights: "out x in/groups x kH x kW", "in x out/groups x kH x kW" */
extern const char *const amp__conv_data[4], *const amp__conv_weight[4], *const amp__conv_turned[4];

#endif
