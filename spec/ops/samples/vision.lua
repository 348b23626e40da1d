--- Detection: small worked cases. spec/vision has torchvision's numbers, and wrong calls of amp.vision.ops.
local function t(dtype, shape, values) return { d = dtype, s = shape, v = values } end
local F, I = 'float32', 'int64'
local boxes = t(F, { 1, 3, 4 }, { 0, 0, 2, 2, 0, 0, 2, 1.5, 3, 3, 4, 4 })
local anchors = t(F, { 2, 4 }, { 0, 0, 0.5, 0.5, 0.5, 0.5, 1, 1 })
local maps, rois = t('float64', { 1, 1, 2, 2 }, { 1, 2, 3, 4 }), t('float64', { 1, 5 }, { 1, 0, 0, 1, 1 })
local cell = { height = 1, width = 1, spatial_scale = 1, sampling_ratio = 1, aligned = false }
return {
  constant = { roi_align = { rois = true }, roi_align_backward = { rois = true } },
  by_hand = {
    box_suppress = {
      { inp = { boxes, t(I, { 1, 3 }, { 1, 1, 1 }) }, attrs = { iou_threshold = 0.5 }, out = { t('bool', { 1, 3 }, { 1, 0, 1 }) } },
      { inp = { boxes, t(I, { 1, 3 }, { 1, 2, -1 }) }, attrs = { iou_threshold = 0.5 }, out = { t('bool', { 1, 3 }, { 1, 1, 0 }) } },
      { inp = { boxes, t(I, { 1, 3 }, { 1, 1, 1 }) }, attrs = { iou_threshold = 0.75, inclusive = true },
        out = { t('bool', { 1, 3 }, { 1, 0, 1 }) } },
    },
    box_overlaps = {
      { inp = { t('float64', { 1, 4 }, { 0, 0, 2, 2 }), t('float64', { 2, 4 }, { 1, 1, 3, 3, 5, 5, 6, 6 }) }, attrs = {},
        out = { t('float64', { 1, 2 }, { 1 / 7, 0 }) } },
    },
    nms_places = {
      { inp = { t(F, { 3, 4 }, { 0, 0, 2, 2, 0, 0, 2, 1.5, 3, 3, 4, 4 }), t(F, { 3 }, { 0.5, 0.9, 0.1 }) }, attrs = { iou_threshold = 0.5 },
        out = { t(I, { 3 }, { 2, 3, 0 }), t(I, { 1 }, { 2 }) } },
      { inp = { t(F, { 3, 4 }, { 0, 0, 2, 2, 0, 0, 2, 1.5, 3, 3, 4, 4 }), t(F, { 3 }, { 0.5, 0.9, 0.1 }), t(I, { 3 }, { 1, -1, 1 }) },
        attrs = { iou_threshold = 0.5 }, out = { t(I, { 3 }, { 2, 1, 3 }), t(I, { 1 }, { 3 }) } },
    },
    multibox_detections = {
      { inp = { t(F, { 1, 2, 2 }, { 0.25, 0.5, 0.75, 0.5 }), t(F, { 1, 2, 4 }, { 0, 0, 0, 0, 0, 0, 0, 0 }), anchors }, attrs = {},
        out = { t(F, { 1, 2, 6 }, { 1, 0.75, 0, 0, 0.5, 0.5, 1, 0.5, 0.5, 0.5, 1, 1 }) } },
    },
    ssd_detections = {
      { inp = { t(F, { 1, 2 }, { 0.75, 0.5 }), t(I, { 1, 2 }, { 1, 4 }), t(F, { 1, 2, 4 }, { 0, 0, 0, 0, 0, 0, 0, 0 }), anchors },
        attrs = { classes = 2, height = 10, width = 20, post_nms = 3 },
        out = { t(F, { 1, 3, 6 }, { 1, 0.75, 0, 0, 10, 5, 2, 0.5, 10, 5, 20, 10, -1, -1, -1, -1, -1, -1 }) } },
    },
    multibox_targets = {
      { inp = { t(F, { 2, 4 }, { 0, 0, 0.5, 0.5, 0.5, 0.5, 1, 1 }), t(F, { 1, 1, 5 }, { 1, 0, 0, 0.5, 0.5 }), t(F, { 1, 2, 2 }, { 0, 0, 0, 0 }) },
        attrs = {}, out = { t(F, { 1, 8 }, { 0, 0, 0, 0, 0, 0, 0, 0 }), t(F, { 1, 8 }, { 1, 1, 1, 1, 0, 0, 0, 0 }), t(F, { 1, 2 }, { 1, 0 }) } },
    },
    roi_align = {
      { inp = { maps, rois }, attrs = cell, out = { t('float64', { 1, 1, 1, 1 }, { 2.5 }) } },
    },
    roi_align_backward = {
      { inp = { t('float64', { 1, 1, 1, 1 }, { 4 }), rois },
        attrs = { shape = { 1, 1, 2, 2 }, height = 1, width = 1, spatial_scale = 1, sampling_ratio = 1, aligned = false },
        out = { t('float64', { 1, 1, 2, 2 }, { 1, 1, 1, 1 }) } },
    },
    roi_pool_places = {
      { inp = { maps, rois }, attrs = { height = 1, width = 1, spatial_scale = 1 }, out = { t(I, { 1, 1, 1, 1 }, { 4 }) } },
    },
  },
}
