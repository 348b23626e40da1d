--- padding = 'same' and 'valid' of conv1d, conv2d and conv3d.
-- amp.args hands over the sorted arguments: input, weight, bias, stride, padding, dilation, groups.
-- @module amp.ops.conv
local ffi = require 'ffi'
local core = require 'amp.ffi'
local err = require 'amp.error'
local util = require 'amp.util'
local istype, ref_t = ffi.istype, core.ref_t

local M = {}

--- Ops whose padding may be a word.
M.ops = { conv1d = 1, conv2d = 2, conv3d = 3 }

local function value_of(v, i, default)
  if type(v) == 'table' then v = #v == 1 and v[1] or v[i] end
  if v == nil then return default end
  return tonumber(v)
end

--- Replace the word in value[5] by numbers. 'same' keeps the spatial sizes for a stride of 1: of an
-- odd sum of padding, the odd one comes after, by padding the input.
function M.named(ops, spec, value)
  local word, n = value[5], M.ops[spec.name]
  if type(word) ~= 'string' then return end
  if word ~= 'same' and word ~= 'valid' then
    err.throw(spec.form, "argument 5 'padding' must be an integer%s, 'same' or 'valid', got '%s'%s",
      n > 1 and (' or a list of ' .. n) or '', word, util.hint(word, { 'same', 'valid' }))
  end
  value[5] = nil
  local x, w = value[1], value[2]
  if word == 'valid' or not istype(ref_t, x) or not istype(ref_t, w) or w:dim() ~= n + 2 then return end
  local padding, extra, odd = {}, {}, false
  for i = 1, n do
    local stride = value_of(value[4], i, 1)
    if stride ~= 1 then err.throw(spec.form, "padding 'same' is for a stride of 1, got stride %s", util.show(stride)) end
    local total = (value_of(value[6], i, 1) or 1) * (w:size(i + 2) - 1)
    padding[i] = math.max(0, math.floor(total / 2))
    extra[2 * (n - i) + 1], extra[2 * (n - i) + 2] = 0, total % 2
    odd = odd or total % 2 ~= 0
  end
  if odd then value[1] = ops.get 'pad'(x, extra) end
  value[5] = n == 1 and padding[1] or padding
end

return M
