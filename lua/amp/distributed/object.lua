--- Plain data between ranks: checked, then sent as bytes.
-- @module amp.distributed.object
local ffi = require 'ffi'
local err = require 'amp.error'
local util = require 'amp.util'

local M = {}

local plain = { ['nil'] = true, boolean = true, number = true, string = true }

local function walk(op, v, path, open, depth)
  if plain[type(v)] then return end
  local what = path == '' and 'the value' or path
  if type(v) ~= 'table' then
    err.throw(op, '%s is %s; plain data is nil, booleans, numbers, strings and tables of these (tensors go by broadcast)', what, util.show(v))
  end
  if getmetatable(v) ~= nil then err.throw(op, '%s has a metatable, which is not sent', what) end
  if open[v] then err.throw(op, '%s holds itself', what) end
  if depth > 200 then err.throw(op, '%s is nested deeper than 200 tables', what) end
  open[v] = true
  for k, x in pairs(v) do
    if type(k) == 'table' or not plain[type(k)] then err.throw(op, 'a key of %s is %s; keys are strings, numbers and booleans', what, util.show(k)) end
    walk(op, x, (path == '' and 'value' or path) .. '[' .. (type(k) == 'string' and ("'%s'"):format(k) or tostring(k)) .. ']', open, depth + 1)
  end
  open[v] = nil
end

--- Refuse what is no plain data.
function M.check(op, value) walk(op, value, '', {}, 1) end

-- Bytes: a letter a kind, numbers as their eight bytes
local number = ffi.new 'double[1]'
local function bytes_of(n)
  number[0] = n
  return ffi.string(number, 8)
end

local function write(v, out)
  local kind = type(v)
  if kind == 'nil' then out[#out + 1] = 'n'
  elseif kind == 'boolean' then out[#out + 1] = v and 't' or 'f'
  elseif kind == 'number' then out[#out + 1] = 'd' .. bytes_of(v)
  elseif kind == 'string' then out[#out + 1] = 's' .. bytes_of(#v) .. v
  else
    local n = 0
    for _ in pairs(v) do n = n + 1 end
    out[#out + 1] = '{' .. bytes_of(n)
    for k, x in pairs(v) do
      write(k, out)
      write(x, out)
    end
  end
end

local function read_number(text, at)
  ffi.copy(number, text:sub(at, at + 7), 8)
  return number[0], at + 8
end

local function read(text, at)
  local kind = text:sub(at, at)
  at = at + 1
  if kind == 'n' then return nil, at
  elseif kind == 't' or kind == 'f' then return kind == 't', at
  elseif kind == 'd' then return read_number(text, at)
  end
  local n
  n, at = read_number(text, at)
  if kind == 's' then return text:sub(at, at + n - 1), at + n end
  local v = {}
  for _ = 1, n do
    local k, x
    k, at = read(text, at)
    x, at = read(text, at)
    v[k] = x
  end
  return v, at
end

--- Send value from one rank to the others of the group.
function M.broadcast(dist, value, o, mine)
  local create = require 'amp.tensor.create'
  local text = ''
  if mine then
    local out = {}
    write(value, out)
    text = table.concat(out)
  end
  local where = { from = o.from, group = o.group }
  local size = create.tensor({ #text }, { dtype = 'int64', device = 'cpu' })
  dist.broadcast(size, where)
  local n = size:tolist()[1]
  local data = create.empty({ n }, { dtype = 'uint8', device = 'cpu' })
  if mine then ffi.copy(data:data_ptr(), text, n) end
  dist.broadcast(data, where)
  if mine then return value end
  return (read(ffi.string(data:data_ptr(), n), 1))
end

return M
