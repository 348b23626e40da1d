--- Arguments of creation functions: shapes and options.
-- @module amp.tensor.creation_arguments
local err = require 'amp.error'
local next_key = require('amp.core.keys').next
local ops = require 'amp.ops'
local types = require 'amp.types'
local util = require 'amp.util'

local M = {}

local known = { 'dtype', 'device', 'requires_grad', 'memory_format' }

local function check_options(op, o)
  for k in pairs(o) do
    if k ~= 'dtype' and k ~= 'device' and k ~= 'requires_grad' and k ~= 'memory_format' then
      err.throw(op, 'unknown option %s%s (there are %s)', util.show(k), util.hint(k, known), table.concat(known, ', '))
    end
  end
  if o.dtype ~= nil then types.dtype(o.dtype, op) end
  if o.device ~= nil then types.device(o.device, op) end
  if o.requires_grad ~= nil and type(o.requires_grad) ~= 'boolean' then
    err.throw(op, "option 'requires_grad' must be true or false, got %s", util.show(o.requires_grad))
  end
  local format = o.memory_format
  if format ~= nil and format ~= 'channels_last' and format ~= 'contiguous' and format ~= 'preserve' then
    err.throw(op, "option 'memory_format' must be 'contiguous', 'channels_last' or 'preserve', got %s", util.show(format))
  end
  return o
end

local none = {}

-- An options table, or none where v is nil.
local function options(op, v)
  if v == nil then return none end
  if type(v) ~= 'table' or v[1] ~= nil then
    err.throw(op, 'options must be a table like {dtype = ...}, got %s', util.show(v))
  end
  return check_options(op, v)
end

local function finish(t, o)
  if o.memory_format == 'channels_last' then t = ops.get 'contiguous'(t, 'channels_last') end
  if o.requires_grad then t.requires_grad = true end
  return t
end

local function size_check(op, list)
  local flaw = util.flaw(list)
  if flaw then err.throw(op, 'the shape: %s', flaw) end
  for i = 1, #list do
    local v = list[i]
    if type(v) ~= 'number' or v % 1 ~= 0 then
      err.throw(op, 'size %d of the shape must be an integer, got %s', i, util.show(v))
    end
    if v < 0 then err.throw_code('shape', op, 'size %d of the shape is negative: %d', i, v) end
  end
  if #list > 8 then err.throw_code('shape', op, 'a tensor has at most 8 dimensions, got %d', #list) end
  return list
end

-- Shape and options out of f(2, 3, {...}), f({2, 3}, {...}).
local function shaped(op, ...)
  local n = select('#', ...)
  local first = ...
  if type(first) == 'table' and (n == 2 and type((select(2, ...))) == 'table' or first[1] ~= nil or next_key(first) == nil) then
    if n > 2 then err.throw(op, 'takes a shape and options, got %d arguments', n) end
    return size_check(op, first), options(op, (select(2, ...)))
  end
  local list = { ... }
  local o = none
  if n == 1 and list[1] == nil then
    err.throw(op, 'a nil was given as the shape: is it a size that is not there? Sizes are counted from 1: x.shape[1], x:size(1)')
  end
  if n > 1 and list[n] == nil then
    err.throw(op, 'argument %d is nil: is it a size that is not there? Sizes are counted from 1: x.shape[1], x:size(1). '
      .. 'Options that may be nil stand after a list: amp.%s({2, 3}, options)', n, op)
  end
  if n > 0 and type(list[n]) == 'table' then
    o = options(op, list[n])
    list[n] = nil
    n = n - 1
  end
  for i = 1, n do
    if list[i] == nil then err.throw(op, 'size %d of the shape must be an integer, got nil', i) end
  end
  return size_check(op, list), o
end

M.none, M.options, M.finish, M.size_check, M.shaped = none, options, finish, size_check, shaped

return M
