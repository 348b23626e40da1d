--- Convolutions: wrong calls.
local wrong = {}

for n = 1, 3 do
  local function shape(a, b, ...) return { a, b, unpack({ ... }, 1, n) } end
  local function sized(a, b, v)
    local s = { a, b }
    for i = 1, n do s[2 + i] = v end
    return s
  end
  local x, w = sized(1, 2, 5), sized(4, 2, 3)
  local y = sized(1, 4, 5)
  local name, turned = 'conv' .. n .. 'd', 'conv_transpose' .. n .. 'd'
  -- of both: the data that w fits
  local function options(data)
    return {
      { { data, w, false }, { stride = 0 }, { 'stride', '0' } },
      { { data, w, false }, { padding = -1 }, { 'padding', '-1' } },
      { { data, w, false }, { dilation = 0 }, { 'dilation', '0' } },
      { { data, w, false }, { groups = 0 }, { 'groups', '0' } },
      { { data, w, false }, { stride = { 1, 1, 1, 1 } }, { 'stride' } },
      { { { 5 }, w, false }, {}, { 'input', '5', 'C x' } },
      { { sized(1, data[2], 0), w, false }, {}, { '0' } },
      { { data, { 4, 2 }, false }, {}, { 'weight', '4x2' } },
      { { data, sized(4, 2, 0), false }, {}, { 'empty kernel' } },
      { { data, w, { 4, 1 } }, {}, { 'bias', '4x1' } },
      { { data, { dtype = 'float64', unpack(w) }, false }, {}, { 'float32', 'float64' } },
      { { data, w, false }, { strides = 2 }, { 'strides', 'stride' } },
    }
  end
  wrong[name] = {
    { { sized(1, 3, 5), w, false }, {}, { '3', '2', 'groups 1' } },
    { { x, w, false }, { groups = 3 }, { 'groups 3', '2', '4' } },
    { { x, w, { 5 } }, {}, { 'bias', '5', '4' } },
    { { shape(1, 2, 2, 2, 2), w, false }, {}, { 'kernel of size 3', 'size 2' } },
    { { x, w, false }, { dilation = 4, padding = 1 }, { 'kernel of size 3', 'dilation 4', 'size 7' } },
    { { x, w, false }, { padding = 'some' }, { 'padding', 'some', 'same', 'valid' } },
    { { x, w, false }, { padding = 'same', stride = 2 }, { 'same', 'stride', '2' } },
  }
  wrong[turned] = {
    { { sized(1, 3, 5), w, false }, {}, { '3', '4' } },
    { { y, w, false }, { groups = 3 }, { 'groups 3', '4' } },
    { { y, w, { 3 } }, {}, { 'bias', '3', '2' } },
    { { y, w, false }, { output_padding = 1 }, { 'output_padding 1', '0', 'stride 1' } },
    { { y, w, false }, { output_padding = 2, stride = 2 }, { 'output_padding 2', 'stride 2' } },
    { { y, w, false }, { output_padding = -1, stride = 2 }, { 'output_padding -1' } },
    { { sized(1, 4, 1), w, false }, { padding = 2 }, { '-1', 'padding 2' } },
    { { sized(1, 4, 0), w, false }, {}, { 'empty' } },
  }
  for list, data in pairs { [wrong[name]] = x, [wrong[turned]] = y } do
    for _, case in ipairs(options(data)) do list[#list + 1] = case end
  end
end

wrong.conv_tbc = {
  { { { 5, 2 }, { 3, 2, 4 }, { 4 } }, {}, { '5x2', 'time' } },
  { { { 5, 1, 2 }, { 3, 2 }, { 4 } }, {}, { '3x2', 'kernel' } },
  { { { 5, 1, 3 }, { 3, 2, 4 }, { 4 } }, {}, { '3', '2' } },
  { { { 5, 1, 2 }, { 3, 2, 4 }, { 3 } }, {}, { 'bias', '3', '4' } },
  { { { 5, 1, 2 }, { 6, 2, 4 }, { 4 } }, {}, { '6', '5' } },
  { { { 5, 1, 2 }, { 3, 2, 4 }, { 4 } }, { pad = -1 }, { 'pad', '-1' } },
  { { { 5, 1, 2 }, { dtype = 'float64', 3, 2, 4 }, { 4 } }, {}, { 'float32', 'float64' } },
}
wrong.im2col = {
  { { { 4, 4 } }, { kernel_size = 2 }, { '4x4', 'C x H x W' } },
  { { { 1, 4, 4 } }, { kernel_size = 5 }, { '5', '4' } },
  { { { 1, 4, 4 } }, { kernel_size = 0 }, { 'kernel_size', '0' } },
  { { { 1, 4, 4 } }, { kernel_size = 2, stride = 0 }, { 'stride', '0' } },
  { { { 1, 4, 4 } }, { kernel_size = 2, padding = -1 }, { 'padding', '-1' } },
  { { { 1, 4, 4 } }, { kernel_size = 2, dilation = 0 }, { 'dilation', '0' } },
  { { { 1, 4, 4 } }, {}, { 'kernel_size' } },
}
wrong.col2im = {
  { { { 8 } }, { output_size = 4, kernel_size = 2 }, { '8', 'windows' } },
  { { { 1, 7, 9 } }, { output_size = 4, kernel_size = 2 }, { '7', '2x2' } },
  { { { 1, 8, 8 } }, { output_size = 4, kernel_size = 2 }, { '8', '3x3', '4x4' } },
  { { { 1, 8, 9 } }, { output_size = 0, kernel_size = 2 }, { 'output_size', '0' } },
  { { { 1, 8, 9 } }, { output_size = 4, kernel_size = 5 }, { '5', '4' } },
  { { { 1, 8, 9 } }, { output_size = 4, kernel_size = 2, stride = 0 }, { 'stride', '0' } },
}

return { wrong = wrong }
