--- Draws and lists of tensors that are functions of Lua: bernoulli, normal, meshgrid,
-- broadcast_tensors. What draws in place is a row of the op table (bernoulli_, normal_).
-- @module amp.tensor.sampling
local ffi = require 'ffi'
local next_key = require('amp.core.keys').next
local core = require 'amp.ffi'
local create = require 'amp.tensor.create'
local err = require 'amp.error'
local ops = require 'amp.ops'
local util = require 'amp.util'
local ref_t = core.ref_t
local istype = ffi.istype

local M = {}

--- 1 with the probability that stands at each place, else 0.
-- amp.bernoulli(probabilities); with a number p, that probability everywhere, in input's shape.
-- @tparam Tensor input probabilities, a float dtype
-- @tparam ?number p
-- @treturn Tensor input's shape and dtype
function M.bernoulli(input, p)
  if not istype(ref_t, input) then err.throw('bernoulli', "argument 1 'input' must be a tensor, got %s", util.show(input)) end
  if type(p) == 'table' then
    local extra = next_key(p, next_key(p) == 'p' and 'p' or nil)
    if extra ~= nil and extra ~= 'p' then err.throw('bernoulli', "unknown option %s (there is p)", util.show(extra)) end
    p = p.p
  end
  if p == nil then return ops.get 'bernoulli_sample'(input) end
  return ops.get 'bernoulli_'(create.empty_like(input), p)
end

local function shape_of(op, size)
  if type(size) == 'number' then return { size } end
  if type(size) == 'table' then return size end
  err.throw(op, "argument 3 'size' must be a list of sizes, got %s", util.show(size))
end

--- Normal values whose mean and standard deviation are numbers or tensors.
-- amp.normal(mean, std) with a tensor or two (broadcast); amp.normal(0, 1, {2, 3}, options) with numbers.
-- @tparam Tensor|number mean
-- @tparam ?Tensor|number std default 1, not negative
-- @tparam ?table size with two numbers
-- @tparam ?table options dtype, device, requires_grad
-- @treturn Tensor
function M.normal(mean, std, size, options)
  local m, s = istype(ref_t, mean), istype(ref_t, std)
  if std == nil then std = 1 end
  if not m and type(mean) ~= 'number' then err.throw('normal', "argument 1 'mean' must be a tensor or a number, got %s", util.show(mean)) end
  if not s and type(std) ~= 'number' then err.throw('normal', "argument 2 'std' must be a tensor or a number, got %s", util.show(std)) end
  if s and std:numel() > 0 and not std:ge(0):all():item() or not s and (std < 0 or std ~= std) then
    err.throw('normal', 'std must not be negative, got %s', s and ops.get 'amin'(std):item() or std)
  end
  if not m and not s then
    if size == nil then err.throw('normal', "argument 3 'size' is missing: with two numbers the shape must be given, as amp.normal(0, 1, {2, 3})") end
    local t = create.empty(shape_of('normal', size), options)
    return ops.get 'normal_'(t, mean, std)
  end
  if size ~= nil then err.throw('normal', 'with tensors the shape is theirs; size can not be given') end
  local like = m and mean or std
  if m and s then like = ops.get 'add'(mean, std):detach() end -- raises for shapes that don't broadcast
  local noise = create.randn_like(like)
  return ops.get 'add'(ops.get 'mul'(noise, std), mean)
end

-- -- Lists of tensors -----------------------------------------------------------------------------

-- A list of tensors out of f(a, b, ...) or f({a, b, ...}), and an options table after it.
local function tensors(op, ...)
  local n, first, second = select('#', ...), ...
  local list, options = { ... }, nil
  if type(first) == 'table' then
    list, options = first, second
  elseif n > 0 and type(list[n]) == 'table' then
    options = table.remove(list, n)
  end
  err.list(op, list)
  for i = 1, #list do
    if not istype(ref_t, list[i]) then err.throw(op, 'argument %d must be a tensor, got %s', i, util.show(list[i])) end
  end
  if #list == 0 then err.throw(op, 'at least one tensor is expected') end
  return list, options
end

--- Views of all in the shape they broadcast to.
-- @param ... tensors, or a list of them
-- @treturn table list of tensors
function M.broadcast_tensors(...)
  local list = tensors('broadcast_tensors', ...)
  local shape = {}
  for k = 1, #list do
    local size = list[k].shape
    local lead = #size - #shape
    for _ = 1, lead do table.insert(shape, 1, 1) end
    lead = #shape - #size
    for d = 1, #size do
      local have = shape[lead + d]
      if have == 1 then
        shape[lead + d] = size[d]
      elseif size[d] ~= 1 and size[d] ~= have then
        err.throw_code('shape', 'broadcast_tensors', 'shape %s of tensor %d does not broadcast: dimension %d is %d, before it was %d',
          list[k]:size(), k, d, size[d], have)
      end
    end
  end
  local out = {}
  for k = 1, #list do out[k] = ops.get 'expand'(list[k], shape) end
  return out
end

--- Coordinate tensors of the grid that vectors span.
-- amp.meshgrid(x, y, {indexing = 'ij'}): out[1][i][j] = x[i], out[2][i][j] = y[j]; 'xy' swaps the first two dimensions.
-- @param ... vectors (or scalars), or a list of them
-- @treturn table list of tensors (views)
function M.meshgrid(...)
  local list, options = tensors('meshgrid', ...)
  local indexing = 'ij'
  if type(options) == 'string' then options = { indexing = options } end
  if options ~= nil and type(options) ~= 'table' then err.throw('meshgrid', 'options are a table, as in {indexing = \'ij\'}, got %s', util.show(options)) end
  for k, v in pairs(options or {}) do
    if k ~= 'indexing' then err.throw('meshgrid', 'unknown option %s%s (there is indexing)', util.show(k), util.hint(k, { 'indexing' })) end
    if v ~= 'ij' and v ~= 'xy' then err.throw('meshgrid', "indexing must be 'ij' or 'xy', got %s", util.show(v)) end
    indexing = v
  end
  if #list > 8 then err.throw_code('shape', 'meshgrid', '%d tensors span more than 8 dimensions', #list) end
  local n, shape, out = #list, {}, {}
  for k = 1, n do
    if list[k]:dim() > 1 then err.throw_code('shape', 'meshgrid', 'tensor %d has shape %s, expected a vector', k, list[k]:size()) end
    shape[k] = list[k]:numel()
    if list[k].dtype ~= list[1].dtype then
      err.throw_code('dtype', 'meshgrid', 'tensor 1 is %s and tensor %d is %s; cast one of them', list[1].dtype, k, list[k].dtype)
    end
  end
  for k = 1, n do
    local one = {}
    for d = 1, n do one[d] = d == k and shape[k] or 1 end
    local t = ops.get 'expand'(ops.get 'reshape'(list[k], one), shape)
    if indexing == 'xy' and n >= 2 then t = ops.get 'transpose'(t, 1, 2) end
    out[k] = t
  end
  return out
end

return M
