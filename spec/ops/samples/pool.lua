--- Pooling, resampling and padding: wrong calls.
local I64 = 'int64'
local wrong = {}

for n, spatial in ipairs { { 4 }, { 4, 4 }, { 4, 4, 4 } } do
  local function data(...) return { 1, 1, unpack({ ... }, 1, n) } end
  local x, d = data(unpack(spatial)), 'd'
  local max, avg = 'max_pool' .. n .. d, 'avg_pool' .. n .. d
  for _, name in ipairs { max, avg } do
    wrong[name] = {
      { { { 2, 3, 1, 1, 1, 1 } }, { kernel_size = 2 }, { '2x3x1x1x1x1', 'C x' } },
      { { data(2, 2, 2) }, { kernel_size = 5 }, { '5', '2' } },
      { { x }, { kernel_size = 0 }, { 'kernel_size', '0' } },
      { { x }, { kernel_size = 2, stride = 0 }, { 'stride', '0' } },
      { { x }, { kernel_size = 2, padding = 2 }, { 'padding', '2' } },
      { { x }, { kernel_size = 2, padding = -1 }, { 'padding', '-1' } },
      { { x }, { kernel_size = 3e9 }, { '3000000000' } },
      { { x }, { kernel_size = { 2, 2, 2, 2 } }, { 'kernel_size' } },
      { { x }, {}, { 'kernel_size' } },
    }
  end
  table.insert(wrong[max], { { x }, { kernel_size = 2, dilation = 0 }, { 'dilation', '0' } })
  table.insert(wrong[max], { { x }, { kernel_size = 3, dilation = 3 }, { '3', 'dilation 3', '4' } })
  if n > 1 then table.insert(wrong[avg], { { x }, { kernel_size = 2, divisor_override = 0 }, { 'divisor_override', '0' } }) end
  for _, kind in ipairs { 'avg', 'max' } do
    wrong['adaptive_' .. kind .. '_pool' .. n .. d] = {
      { { { 3 } }, { output_size = 2 }, { '3', 'C x' } },
      { { x }, { output_size = 0 }, { 'output_size', '0' } },
      { { x }, { output_size = -2 }, { 'output_size', '-2' } },
      { { data(0, 4, 4) }, { output_size = 2 }, { 'empty' } },
      { { x }, {}, { 'output_size' } },
    }
  end
  wrong['lp_pool' .. n .. d] = {
    { { { 3 } }, { norm_type = 2, kernel_size = 2 }, { '3', 'C x' } },
    { { x }, { norm_type = 0, kernel_size = 2 }, { 'norm_type', '0' } },
    { { x }, { norm_type = math.huge, kernel_size = 2 }, { 'norm_type', 'inf' } },
    { { x }, { norm_type = 2, kernel_size = 6 }, { '6', '4' } },
  }
  local function places(fill, ...) return { dtype = I64, fill = fill, 1, 1, unpack({ ... }, 1, n) } end
  wrong['max_unpool' .. n .. d] = {
    { { x, places(1, 4, 4, 3) }, { kernel_size = 2 }, n == 3 and { 'indices', '4x4x4', '4x4x3' } or {} },
    { { { 3 }, { dtype = I64, fill = 1, 3 } }, { kernel_size = 2 }, { '3', 'C x' } },
    { { x, places(2000, 4, 4, 4) }, { kernel_size = 2 }, { 'index', '2000' } },
    { { x, places(0, 4, 4, 4) }, { kernel_size = 2 }, { 'index', '0' } },
    { { x, x }, { kernel_size = 2 }, { 'indices', 'float32', 'int64' } },
    { { x, places(1, 4, 4, 4) }, { kernel_size = 2, output_size = { 20, 20, 20, 20 } }, { 'output_size' } },
    { { x, places(1, 4, 4, 4) }, { kernel_size = 2, output_size = { unpack({ 10, 10, 10 }, 1, n) } }, { 'output_size', '10' } },
    { { x, places(1, 4, 4, 4) }, { kernel_size = 0 }, { 'kernel_size', '0' } },
    { { x, places(1, 4, 4, 4) }, { kernel_size = 2, stride = -1 }, { 'stride', '-1' } },
    { { x, places(1, 4, 4, 4) }, { kernel_size = 1, stride = 1, padding = 2 }, { 'dimension 3', '0' } },
  }
  if n ~= 3 then table.remove(wrong['max_unpool' .. n .. d], 1) end
end

local image = { 1, 2, 4, 4 }
wrong.interpolate = {
  { { image }, {}, { 'size', 'scale_factor', 'neither' } },
  { { image }, { size = 2, scale_factor = 2 }, { 'size', 'scale_factor', 'both' } },
  { { image }, { size = { 2, 2, 2 } }, { 'size', '3', '2' } },
  { { image }, { scale_factor = { 2, 2, 2 } }, { 'scale_factor', '3', '2' } },
  { { image }, { scale_factor = 0 }, { 'scale_factor', '0' } },
  { { image }, { scale_factor = 0 / 0 }, { 'scale_factor', 'nan' } },
  { { image }, { scale_factor = 1e30 }, { 'size' } },
  { { image }, { scale_factor = 0.1 }, { 'size 0', 'dimension 3' } },
  { { image }, { size = 0 }, { 'size', '0' } },
  { { image }, { size = 2, align_corners = true }, { 'align_corners', 'nearest' } },
  { { image }, { size = 2, mode = 'area', align_corners = false }, { 'align_corners', 'area' } },
  { { image }, { size = 2, mode = 'linear' }, { 'linear', '1x2x4x4' } },
  { { image }, { size = 2, mode = 'trilinear' }, { 'trilinear', '1x2x4x4' } },
  { { { 1, 2, 4 } }, { size = 2, mode = 'bilinear' }, { 'bilinear', '1x2x4' } },
  { { image }, { size = 2, mode = 'nearest', antialias = true }, { 'antialias', 'nearest' } },
  { { image }, { size = 2, mode = 'cubic' }, { 'cubic', 'bicubic' } },
  { { image }, { size = 2, recompute_scale_factor = true }, { 'recompute_scale_factor', 'size' } },
  { { { 2, 3 } }, { size = 2 }, { '2x3' } },
  { { { 1, 2, 0, 4 } }, { size = 2 }, { '1x2x0x4', 'empty' } },
}
wrong.grid_sample = {
  { { image, { 1, 3, 3, 3 } }, {}, { '1x3x3x3', '2' } },
  { { image, { 2, 3, 3, 2 } }, {}, { '2x3x3x2', '1x2x4x4' } },
  { { image, { 1, 3, 2 } }, {}, { '1x3x2' } },
  { { { 2, 4, 4 }, { 1, 3, 3, 2 } }, {}, { '2x4x4' } },
  { { { 1, 1, 2, 2, 2 }, { 1, 1, 1, 1, 3 } }, { mode = 'bicubic' }, { 'bicubic', '1x1x2x2x2' } },
  { { { 1, 2, 0, 4 }, { 1, 3, 3, 2 } }, {}, { '1x2x0x4' } },
  { { image, { dtype = 'float64', 1, 3, 3, 2 } }, {}, { 'float32', 'float64' } },
  { { image, { 1, 3, 3, 2 } }, { padding_mode = 'reflect' }, { 'reflect', 'reflection' } },
}
wrong.affine_grid = {
  { { { 2, 2, 3 } }, { size = { 1, 1, 3, 3 } }, { '2x2x3', '1 x 2 x 3' } },
  { { { 1, 2, 3 } }, { size = { 1, 3, 3 } }, { 'size', '3' } },
  { { { 1, 3, 4 } }, { size = { 1, 1, 0, 3, 3 } }, { 'size', '0' } },
  { { { 1, 2, 3 } }, { size = { 1, 1, 2 ^ 30, 2 ^ 30 } }, { 'large' } },
}
wrong.pixel_shuffle = {
  { { { 1, 3, 2, 2 } }, { upscale_factor = 2 }, { '3', '4' } },
  { { image }, { upscale_factor = 0 }, { 'upscale_factor', '0' } },
  { { { 2, 2 } }, { upscale_factor = 1 }, { '2x2' } },
}
wrong.pixel_unshuffle = {
  { { { 1, 1, 3, 4 } }, { downscale_factor = 2 }, { '1x1x3x4', '2' } },
  { { image }, { downscale_factor = -1 }, { 'downscale_factor', '-1' } },
  { { { 2, 2 } }, { downscale_factor = 1 }, { '2x2' } },
}
wrong.channel_shuffle = {
  { { { 1, 3, 2 } }, { groups = 2 }, { '3', '2' } },
  { { image }, { groups = 0 }, { 'groups', '0' } },
  { { { 2, 2 } }, { groups = 1 }, { '2x2' } },
}
wrong.pad = {
  { { { 2, 3 } }, { pad = { 1 } }, { 'pad', '1' } },
  { { { 3 } }, { pad = { 1, 1, 1, 1 } }, { '4', '3' } },
  { { { 3 } }, { pad = { -2, -2 } }, { '-2', '3' } },
  { { { 3 } }, { pad = { -4, 4 } }, { '-4', '3' } },
  { { { 1, 3 } }, { pad = { 3, 0 }, mode = 'reflect' }, { '3', '2', 'reflect' } },
  { { { 1, 3 } }, { pad = { 4, 0 }, mode = 'circular' }, { '4', '3', 'circular' } },
  { { { 1, 3 } }, { pad = { 1, 1, 1, 1 }, mode = 'replicate' }, { 'replicate', '1x3' } },
  { { { 1, 0 } }, { pad = { 1, 1 }, mode = 'replicate' }, { 'replicate', '1x0' } },
  { { { 1, 3 } }, { pad = { -3, 1 }, mode = 'replicate' }, { '-3', '3' } },
  { { { 1, 3 } }, { pad = { 1, 1 }, mode = 'mirror' }, { 'mirror' } },
  { { { 3 } }, { pad = { 3e9, 0 } }, { '3000000000' } },
  { { { dtype = 'int8', 3 } }, { pad = { 1, 1 }, value = 300 }, { '300', 'int8' } },
  { { { dtype = 'float16', 3 } }, { pad = { 1, 1 }, value = 1e9 }, { '1000000000', 'float16' } },
}

return { wrong = wrong }
