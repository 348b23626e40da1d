--- Tensors of values that are there already: numbers, tables, tensors, memory.
-- @module amp.values
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.call'
local err = require 'amp.error'
local ops = require 'amp.ops'
local shapes = require 'amp.shapes'
local types = require 'amp.types'
local util = require 'amp.util'
local C, ref_t = core.C, core.ref_t
local istype = ffi.istype
local options, finish, size_check = shapes.options, shapes.finish, shapes.size_check

local M = {}

local MISSING = {}

local function place(path)
  local s = {}
  for i = 1, #path do s[i] = '[' .. path[i] .. ']' end
  return table.concat(s)
end

-- Sizes along the first elements, and whether all leaves seen are booleans.
local function measure(data)
  local shape, v = {}, data
  while type(v) == 'table' do
    shape[#shape + 1] = #v
    if #v == 0 then break end
    v = v[1]
  end
  return shape
end

local function fill(op, data, shape)
  local n = 1
  for i = 1, #shape do n = n * shape[i] end
  local buffer = ffi.new('double[?]', math.max(n, 1))
  local at, path, depth = 0, {}, #shape
  local booleans = 0
  local function walk(v, d)
    if d > depth then
      local t = type(v)
      if t == 'number' then buffer[at] = v
      elseif t == 'boolean' then
        buffer[at] = v and 1 or 0
        booleans = booleans + 1
      elseif t == 'cdata' and (istype('int64_t', v) or istype('uint64_t', v)) then buffer[at] = tonumber(v)
      elseif istype(ref_t, v) then
        if v:dim() ~= 0 then
          err.throw(op, 'element %s is a tensor of shape %s; join tensors with amp.stack or amp.cat', place(path), v:size())
        end
        local x = v:item()
        buffer[at] = type(x) == 'boolean' and (x and 1 or 0) or x
      elseif t == 'table' then
        err.throw_code('shape', op, 'the table is ragged: element %s is a table, others at that depth are numbers', place(path))
      else
        err.throw(op, 'element %s must be a number, got %s', place(path), util.show(v))
      end
      at = at + 1
      return
    end
    if type(v) ~= 'table' then
      err.throw_code('shape', op, 'the table is ragged: element %s is %s, others at that depth are tables', place(path), util.show(v))
    end
    if #v ~= shape[d] then
      err.throw_code('shape', op, 'the table is ragged: %s has %d elements, but the first at that depth has %d',
        #path == 0 and 'it' or 'element ' .. place(path), #v, shape[d])
    end
    for i = 1, shape[d] do
      path[d] = i
      local x = v[i]
      walk(x == nil and MISSING or x, d + 1)
    end
    path[d] = nil
  end
  walk(data, 1)
  return buffer, n, booleans
end

local size_buffer = ffi.new 'int64_t[8]'
local function sizes_of(shape)
  for i = 1, #shape do size_buffer[i - 1] = shape[i] end
  return size_buffer
end

local function dtype_of(o, fallback)
  if o.dtype then return types.dtype_code[o.dtype] end
  return fallback or types.default_dtype()
end

local function place_on_device(t, o)
  local device = o.device and types.device_code[o.device] or types.default_device()
  if device ~= 0 then t = ops.get 'to_device'(t, types.device_string(math.floor(device / 256), device % 256)) end
  return finish(t, o)
end

--- A tensor of a number, a nested table of numbers (or booleans), or a copy of a tensor.
-- @tparam number|table|Tensor data
-- @tparam ?table o {dtype, device, requires_grad}
-- @treturn Tensor
-- @raise ragged tables, elements that are no numbers
-- @usage amp.tensor({{1, 2}, {3, 4}}, {dtype = 'int64'})
function M.tensor(data, o)
  if type(data) == 'number' and type(o) == 'number' then
    err.throw('tensor', 'takes one value or one table: amp.tensor{%s, %s}; of a shape are amp.zeros(%s, %s), amp.empty(...)', tostring(data), tostring(o),
      tostring(data), tostring(o))
  end
  o = options('tensor', o)
  if istype(ref_t, data) then
    local t = ops.get 'clone'(data:detach())
    t = t:to { dtype = o.dtype or t.dtype, device = o.device or t.device }
    return finish(t, o)
  end
  if type(data) == 'nil' then err.throw('tensor', 'expected a number, a table or a tensor, got nil') end
  if type(data) ~= 'table' then data = { data }
    local buffer, _, booleans = fill('tensor', data, { 1 })
    local t = call.make('tensor', C.amp_from_double, buffer, 0, size_buffer, dtype_of(o, booleans == 1 and 9 or nil))
    return place_on_device(t, o)
  end
  local shape = measure(data)
  if #shape > 8 then err.throw_code('shape', 'tensor', 'the table is nested %d deep; a tensor has at most 8 dimensions', #shape) end
  local buffer, n, booleans = fill('tensor', data, shape)
  local fallback = n > 0 and booleans == n and 9 or nil
  local t = call.make('tensor', C.amp_from_double, buffer, #shape, sizes_of(shape), dtype_of(o, fallback))
  return place_on_device(t, o)
end

--- A tensor over foreign memory; nothing is copied. A cdata array is kept alive by it; what a
-- pointer points at must outlive it.
-- @tparam cdata pointer
-- @tparam table shape
-- @tparam ?string dtype default 'float32'
function M.from_ptr(pointer, shape, dtype)
  if type(pointer) ~= 'cdata' then err.throw('from_ptr', 'argument 1 must be a cdata pointer or array, got %s', util.show(pointer)) end
  if type(shape) == 'number' then shape = { shape } end
  if type(shape) ~= 'table' then err.throw('from_ptr', 'argument 2 must be a list of sizes, got %s', util.show(shape)) end
  size_check('from_ptr', shape)
  local code = dtype and types.dtype(dtype, 'from_ptr') or types.default_dtype()
  local ok, address = pcall(ffi.cast, 'void *', pointer)
  if not ok then err.throw('from_ptr', 'argument 1 must be a pointer or an array, got %s', tostring(pointer)) end
  local t = call.make('from_ptr', C.amp_from_ptr, address, #shape, sizes_of(shape), code)
  local id = tonumber(C.amp_from_ptr_id(core.S, t))
  if id ~= 0 then call.closures[id] = pointer end -- an array of the FFI lives as long as a tensor uses it
  return t
end

--- A tensor of the bytes of a Lua string (copied), as files hold them.
-- @tparam string bytes
-- @tparam table shape
-- @tparam string dtype
function M.from_string(bytes, shape, dtype)
  if type(bytes) ~= 'string' then err.throw('from_string', 'argument 1 must be a string, got %s', util.show(bytes)) end
  if type(shape) ~= 'table' then err.throw('from_string', 'argument 2 must be a list of sizes, got %s', util.show(shape)) end
  size_check('from_string', shape)
  return call.make('from_string', C.amp_from_bytes, bytes, #bytes, #shape, sizes_of(shape), types.dtype(dtype, 'from_string'))
end

return M
