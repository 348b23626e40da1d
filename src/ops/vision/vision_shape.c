/*
** ops/vision/vision_shape.c: shape rules of detection: which boxes stay, what anchors
** are trained towards, regions of feature maps. Boxes are corners (x1, y1, x2, y2).
*/
#include "dispatch/shape_rules.h"

/* boxes N x K x 4, groups N x K */
int amp__infer_box_suppress(amp_call *call)
{
  const args_box_suppress *args = AMP_ARGS(call, box_suppress);
  const amp_tensor *boxes = call->in[0], *groups = call->in[1];
  int status;
  if (boxes->ndim != 3 || boxes->size[2] != 4)
    return amp__fail(AMP_E_SHAPE, "boxes are N x K x 4, got %s", SHAPE_OF(boxes));
  if ((status = amp__want_shape(groups, "groups", 2, boxes->size)) < 0
      || (status = amp__want_index(groups, 2, "groups")) < 0)
    return status;
  if (!(args->iou_threshold == args->iou_threshold)) return amp__fail(AMP_E_VALUE, "iou_threshold is NaN");
  amp__out(call, 0, AMP_BOOL, 2, boxes->size);
  return 0;
}

static int want_boxes(const amp_tensor *boxes, const char *what)
{
  if (boxes->ndim == 2 && boxes->size[1] == 4) return 0;
  return amp__fail(AMP_E_SHAPE, "%s are K x 4, got %s", what, SHAPE_OF(boxes));
}

int amp__infer_box_overlaps(amp_call *call)
{
  int status;
  if ((status = amp__equal_dtypes(call, 2)) < 0 || (status = want_boxes(call->in[0], "boxes1")) < 0
      || (status = want_boxes(call->in[1], "boxes2")) < 0)
    return status;
  int64_t size[2] = { call->in[0]->size[0], call->in[1]->size[0] };
  amp__out(call, 0, call->in[0]->dtype, 2, size);
  return 0;
}

/* boxes K x 4, scores K, groups K */
int amp__infer_nms_places(amp_call *call)
{
  const amp_tensor *groups = call->nin > 2 ? call->in[2] : NULL;
  int64_t one = 1;
  int status;
  if ((status = want_boxes(call->in[0], "boxes")) < 0
      || (status = amp__want_shape(call->in[1], "scores", 1, call->in[0]->size)) < 0
      || (groups && (status = amp__want_shape(groups, "groups", 1, call->in[0]->size)) < 0)
      || (groups && (status = amp__want_index(groups, 2, "groups")) < 0))
    return status;
  if (call->in[0]->size[0] > INT32_MAX) return amp__fail(AMP_E_UNSUPPORTED, "more than %d boxes", INT32_MAX);
  amp__out(call, 0, AMP_INT64, 1, call->in[0]->size);
  amp__out(call, 1, AMP_INT64, 1, &one);
  return 0;
}

static int want_offsets(const amp_tensor *offsets, const amp_tensor *anchors, int64_t images)
{
  int64_t size[3] = { images, anchors->size[0], 4 };
  int status;
  if ((status = want_boxes(anchors, "anchors")) < 0) return status;
  if (anchors->size[0] > INT32_MAX) return amp__fail(AMP_E_UNSUPPORTED, "more than %d anchors", INT32_MAX);
  return amp__want_shape(offsets, "loc_pred", 3, size);
}

/* cls_prob N x (C + 1) x A, loc_pred N x A x 4, anchors A x 4 */
int amp__infer_multibox_detections(amp_call *call)
{
  const amp_tensor *prob = call->in[0];
  int status;
  if (prob->ndim != 3 || prob->size[1] < 2 || prob->size[2] != call->in[2]->size[0])
    return amp__fail(AMP_E_SHAPE, "cls_prob is N x (classes + 1) x A, got %s", SHAPE_OF(prob));
  if ((status = want_offsets(call->in[1], call->in[2], prob->size[0])) < 0) return status;
  int64_t size[3] = { prob->size[0], prob->size[2], 6 };
  amp__out(call, 0, AMP_FLOAT32, 3, size);
  return 0;
}

/* scores and places N x K, loc_pred N x A x 4, anchors A x 4 */
int amp__infer_ssd_detections(amp_call *call)
{
  const args_ssd_detections *args = AMP_ARGS(call, ssd_detections);
  const amp_tensor *scores = call->in[0];
  int status;
  if (scores->ndim != 2) return amp__fail(AMP_E_SHAPE, "scores are N x K, got %s", SHAPE_OF(scores));
  if ((status = amp__want_shape(call->in[1], "places", 2, scores->size)) < 0
      || (status = amp__want_index(call->in[1], 2, "places")) < 0
      || (status = want_offsets(call->in[2], call->in[3], scores->size[0])) < 0)
    return status;
  if (args->classes < 1 || args->post_nms < 1)
    return amp__fail(AMP_E_VALUE, "classes is %lld and post_nms %lld, both must be positive", LL(args->classes),
                     LL(args->post_nms));
  int64_t size[3] = { scores->size[0], args->post_nms, 6 };
  amp__out(call, 0, AMP_FLOAT32, 3, size);
  return 0;
}

/* anchors A x 4, labels N x L x 5 or more, cls_preds N x (C + 1) x A */
int amp__infer_multibox_targets(amp_call *call)
{
  const args_multibox_targets *args = AMP_ARGS(call, multibox_targets);
  const amp_tensor *anchors = call->in[0], *labels = call->in[1], *preds = call->in[2];
  if (anchors->ndim != 2 || anchors->size[1] != 4)
    return amp__fail(AMP_E_SHAPE, "anchors are 1 x A x 4 or A x 4, got %s", SHAPE_OF(anchors));
  if (labels->ndim != 3 || labels->size[2] < 5)
    return amp__fail(AMP_E_SHAPE, "labels are N x L x 5 (class, x1, y1, x2, y2), got %s", SHAPE_OF(labels));
  if (preds->ndim != 3 || preds->size[0] != labels->size[0] || preds->size[2] != anchors->size[0] || preds->size[1] < 1)
    return amp__fail(AMP_E_SHAPE, "cls_preds are N x (classes + 1) x A, here %lld x (classes + 1) x %lld, got %s",
                     LL(labels->size[0]), LL(anchors->size[0]), SHAPE_OF(preds));
  if (!(args->negative_mining_ratio <= 0) && !(args->negative_mining_thresh > 0))
    return amp__fail(AMP_E_VALUE, "negative_mining_thresh is %g, must be positive", args->negative_mining_thresh);
  if (anchors->size[0] > INT32_MAX || labels->size[1] > INT32_MAX)
    return amp__fail(AMP_E_UNSUPPORTED, "more than %d anchors or labels", INT32_MAX);
  int64_t wide[2] = { labels->size[0], anchors->size[0] * 4 }, each[2] = { labels->size[0], anchors->size[0] };
  amp__out(call, 0, AMP_FLOAT32, 2, wide);
  amp__out(call, 1, AMP_FLOAT32, 2, wide);
  amp__out(call, 2, AMP_FLOAT32, 2, each);
  return 0;
}

/* -- Regions ------------------------------------------------------------------------ */

static int want_regions(const amp_tensor *rois, int64_t height, int64_t width, double scale)
{
  if (rois->ndim != 2 || rois->size[1] != 5)
    return amp__fail(AMP_E_SHAPE, "regions are K x 5 (image, x1, y1, x2, y2), got %s", SHAPE_OF(rois));
  if (height < 1 || width < 1 || height > 65535 || width > 65535)
    return amp__fail(AMP_E_VALUE, "output_size is %lld x %lld, must be 1 to 65535", LL(height), LL(width));
  if (!(scale > 0) || !(scale < 1e30))
    return amp__fail(AMP_E_VALUE, "spatial_scale is %g, must be positive and finite", scale);
  return 0;
}

static int want_maps(int ndim, const int64_t *size)
{
  if (ndim != 4) return amp__fail(AMP_E_SHAPE, "input is N x C x H x W, got %s", amp__shape_str(ndim, size));
  if (size[2] < 1 || size[3] < 1 || size[2] > INT32_MAX / 4 || size[3] > INT32_MAX / 4)
    return amp__fail(AMP_E_SHAPE, "input %s has no pixels, or too many", amp__shape_str(ndim, size));
  return 0;
}

int amp__infer_roi_align(amp_call *call)
{
  const args_roi_align *args = AMP_ARGS(call, roi_align);
  const amp_tensor *input = call->in[0], *rois = call->in[1];
  int status;
  if ((status = amp__equal_dtypes(call, 2)) < 0 || (status = want_maps(input->ndim, input->size)) < 0
      || (status = want_regions(rois, args->height, args->width, args->spatial_scale)) < 0)
    return status;
  int64_t size[4] = { rois->size[0], input->size[1], args->height, args->width };
  amp__out(call, 0, input->dtype, 4, size);
  return 0;
}

int amp__infer_roi_align_backward(amp_call *call)
{
  args_roi_align_backward *args = (args_roi_align_backward *)call->attrs;
  const amp_tensor *grad = call->in[0], *rois = call->in[1];
  int64_t size[AMP_MAX_DIM];
  int ndim, status;
  if ((status = amp__equal_dtypes(call, 2)) < 0
      || (status = amp__shape_attr(AMP_SLOT(args->shape), "shape", &ndim, size)) < 0
      || (status = want_maps(ndim, size)) < 0
      || (status = want_regions(rois, args->height, args->width, args->spatial_scale)) < 0)
    return status;
  int64_t want[4] = { rois->size[0], size[1], args->height, args->width };
  if ((status = amp__want_shape(grad, "grad", 4, want)) < 0) return status;
  amp__out(call, 0, grad->dtype, 4, size);
  return 0;
}

int amp__infer_roi_pool_places(amp_call *call)
{
  const args_roi_pool_places *args = AMP_ARGS(call, roi_pool_places);
  const amp_tensor *input = call->in[0], *rois = call->in[1];
  int status;
  if ((status = amp__equal_dtypes(call, 2)) < 0 || (status = want_maps(input->ndim, input->size)) < 0
      || (status = want_regions(rois, args->height, args->width, args->spatial_scale)) < 0)
    return status;
  int64_t size[4] = { rois->size[0], input->size[1], args->height, args->width };
  amp__out(call, 0, AMP_INT64, 4, size);
  return 0;
}
