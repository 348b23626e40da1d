--- What ops take that their rows do not: `out` of ops that are made of others, and values that are tensors without
-- dimensions. Only calls with such arguments come here.
-- @module amp.ops.written
local core = require 'amp.ffi'
local err = require 'amp.error'
local types = require 'amp.types'
local util = require 'amp.util'
local S = core.S
local is_tensor = core.is_ref

local M = {}

-- -- out ------------------------------------------------------------------------------------------

-- Ops whose result may be their argument itself, or a view of it.
local views = { contiguous = true, reshape = true, flatten = true, t = true, movedim = true, positive = true }

--- Whether a composite op has one result, which may be written into a tensor.
function M.may_out(spec) return spec.kind == 'C' and not spec.inplace and #spec.results == 1 and not views[spec.name] end

local function rank(dtype)
  local code = types.dtype_code[dtype]
  return types.is_float(code) and 2 or dtype == 'bool' and 0 or 1
end

--- Call a composite op with autocast off and write what it gives into a tensor: amp.mm(a, b, {out = c}).
-- @tparam table spec the op's
-- @tparam Tensor out of the result's shape and device; of a dtype that can hold it
-- @tparam table value the arguments, in their places
-- @treturn Tensor out
function M.into(spec, out, value)
  if out.ptr_ == nil then err.throw(spec.form, 'out is a tensor that was freed') end
  local on = S.autocast_on
  S.autocast_on = 0
  local ok, result = pcall(spec.f, unpack(value, 1, #spec.args))
  S.autocast_on = on
  if not ok then error(result, 0) end
  if S.grad_mode ~= 0 and (result.requires_grad or out.requires_grad) then
    err.throw_code('autograd', spec.form, 'results written to `out` carry no gradient; run it inside amp.no_grad')
  elseif result.device ~= out.device then
    err.throw_code('device', spec.form, "the result is on %s and can't be written into a tensor on %s", result.device, out.device)
  elseif tostring(result:size()) ~= tostring(out:size()) then
    err.throw_code('shape', spec.form, "the result has shape %s and can't be written into a tensor of shape %s", result:size(), out:size())
  elseif rank(result.dtype) > rank(out.dtype) then
    err.throw_code('dtype', spec.form, "the result is %s and can't be written into a tensor of dtype %s; use the form without `out` or cast first",
      result.dtype, out.dtype)
  end
  return out:copy_(result)
end

-- -- Values ---------------------------------------------------------------------------------------

local place = { fill = 2, masked_fill = 3, index_fill = 4 }

local filled = {
  fill = function(ops, x, v) return ops.get 'copy_'(x, v) end,
  masked_fill = function(ops, x, v, mask)
    if is_tensor(mask) and mask.dtype == 'bool' then return ops.get 'where'(mask, v, x) end
  end,
  index_fill = function(ops, x, v, dim, index)
    if not is_tensor(index) or type(dim) ~= 'number' or index:dim() ~= 1 then return nil end
    local shape = {}
    for d = 1, x:dim() do shape[d] = x:size(d) end
    shape[dim < 0 and dim + #shape + 1 or dim] = index:numel()
    return ops.get 'index_copy'(x, dim, index, v:expand(shape))
  end,
}

--- x:fill_(v), x:masked_fill(mask, v), x:index_fill(dim, index, v) whose v is a tensor without dimensions, on any device: it is not
-- read, and gradients reach it.
-- @treturn ?Tensor nil where no argument is such a value
function M.filled(ops, spec, value)
  local at = place[spec.name]
  local x, v = value[1], at and value[at]
  if v == nil or not is_tensor(v) or not is_tensor(x) then return nil end
  if v:dim() ~= 0 then
    err.throw(spec.form, "argument %d 'value' must be a number or a tensor without dimensions, got one of shape %s", at, util.shape(v:size()))
  end
  local y = filled[spec.name](ops, x, v:to { dtype = x.dtype, device = x.device }, value[2], value[3])
  if y == nil or spec.name == 'fill' or not spec.inplace then return y end
  return ops.get 'copy_'(x, y)
end

return M
