/*
** ops/vision/vision_derivative.c: derivatives of regions of feature maps. roi_align is linear in its
** input, so it and its transpose are each other's derivative. Boxes get none, as in torchvision.
*/
#include "autograd/derivative.h"

/* The transpose of roi_align with the attributes `args` of so many bytes, in a shape */
int amp__bwd_roi_align(amp_bwd *bwd)
{
  amp_attrs attrs = amp__attrs();
  amp_tensor *in[2] = { GRAD(bwd), INPUT(bwd, 1) };
  if (!NEEDS(bwd, 0)) return 0;
  amp__attrs_shape(&attrs, SHAPE(bwd, 0));
  amp__attrs_append(&attrs, AMP_ARGS(bwd, roi_align), sizeof(args_roi_align));
  return INPUT_GRAD(bwd, 0, amp__op(AMP_OP_roi_align_backward, &attrs, 2, in));
}

int amp__bwd_roi_align_backward(amp_bwd *bwd)
{
  const args_roi_align_backward *args = AMP_ARGS(bwd, roi_align_backward);
  amp_attrs attrs = amp__attrs();
  amp_tensor *in[2] = { GRAD(bwd), INPUT(bwd, 1) };
  if (!NEEDS(bwd, 0)) return 0;
  amp__attrs_append(&attrs, AMP_SLOT(args->height), sizeof(args_roi_align));
  return INPUT_GRAD(bwd, 0, amp__op(AMP_OP_roi_align, &attrs, 2, in));
}
