/*
** amp_conv.h: what the shape rules, composites and derivatives of convolutions
** share. The rows convolution, convolution_input and convolution_weight have
** one, two or three spatial dimensions, after their data's rank; attributes of
** three values are for the last ones of three.
*/
#ifndef AMP_CONV_H
#define AMP_CONV_H
#include "amp_core.h"

enum { CONV_SLOTS = 10 }; /* stride, padding, dilation, three each, groups */
enum { CONV_STRIDE = 0, CONV_PADDING = 3, CONV_DILATION = 6, CONV_GROUPS = 9 };

/* Attributes as a user may give them. 0 or an error. */
int amp__conv_attributes(const amp_slot *a, int spatial);
/* Shape of the convolution of x and w, two shapes of spatial + 2 dimensions. `single`: x is a sample whose first
** dimension was added, which messages don't count. */
int amp__conv_shape(const int64_t *x, const int64_t *w, int spatial, const amp_slot *a, bool single, int64_t *size);
/* "N x C x H x W" and the like; weights: "out x in/groups x kH x kW", "in x out/groups x kH x kW" */
extern const char *const amp__conv_data[4], *const amp__conv_weight[4], *const amp__conv_turned[4];

#endif
