--- Tensors of values that are there already: numbers, tables, tensors, memory.
-- @module amp.tensor.from_values
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local ops = require 'amp.ops'
local shapes = require 'amp.tensor.creation_arguments'
local types = require 'amp.types'
local util = require 'amp.util'
local C, ref_t = core.C, core.ref_t
local istype = ffi.istype
local options, finish, size_check = shapes.options, shapes.finish, shapes.size_check

local M = {}

local function place(path)
  local s = {}
  for i = 1, #path do s[i] = '[' .. path[i] .. ']' end
  return table.concat(s)
end

-- Sizes along the first elements.
local function measure(op, data)
  local shape, v = {}, data
  while type(v) == 'table' do
    err.list(op, v, #shape > 0 and 'element ' .. ('[1]'):rep(#shape) or nil)
    if #shape == 8 then err.throw_code('shape', op, 'the table is nested more than 8 deep, or holds itself; a tensor has at most 8 dimensions') end
    shape[#shape + 1] = #v
    if #v == 0 then break end
    v = v[1]
  end
  return shape
end

-- Elements as numbers; how many; how many of them are booleans; with wide_dtype (int64) the 64-bit integers by place, whose
-- last digits no Lua number may hold.
local function fill(op, data, shape, wide_dtype)
  local n = 1
  for i = 1, #shape do n = n * shape[i] end
  local buffer = ffi.new('double[?]', math.max(n, 1))
  local at, path, depth = 0, {}, #shape
  local booleans, wide = 0, nil
  local function walk(v, d)
    if d > depth then
      local t = type(v)
      if t == 'number' then buffer[at] = v
      elseif t == 'boolean' then
        buffer[at] = v and 1 or 0
        booleans = booleans + 1
      elseif t == 'cdata' and (istype('int64_t', v) or istype('uint64_t', v)) then
        if istype('uint64_t', v) and v > 9223372036854775807ULL and wide_dtype then
          err.throw_code('value', op, 'value %s at %s does not fit int64', tostring(v), place(path))
        end
        buffer[at] = tonumber(v)
        if wide_dtype then
          wide = wide or {}
          wide[at] = ffi.cast('int64_t', v)
        end
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
    err.list(op, v, #path > 0 and 'element ' .. place(path) or nil)
    if #v ~= shape[d] then
      err.throw_code('shape', op, 'the table is ragged: %s has %d elements, but the first at that depth has %d',
        #path == 0 and 'it' or 'element ' .. place(path), #v, shape[d])
    end
    for i = 1, shape[d] do
      path[d] = i
      walk(v[i], d + 1)
    end
    path[d] = nil
  end
  walk(data, 1)
  return buffer, n, booleans, wide
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

-- An int64 tensor of which some values are 64-bit integers.
local function whole(op, buffer, n, shape, wide)
  local list = ffi.new('int64_t[?]', n)
  for i = 0, n - 1 do
    local v = buffer[i]
    if not wide[i] and not (v > -2 ^ 63 and v < 2 ^ 63) then err.throw_code('value', op, 'value %s does not fit int64', tostring(v)) end
    list[i] = wide[i] or v
  end
  return call.make(op, C.amp_from_bytes, list, 8 * n, #shape, sizes_of(shape), types.dtype_code.int64)
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
  local wide_dtype = o.dtype and types.dtype_name[types.dtype_code[o.dtype]] == 'int64'
  if type(data) ~= 'table' then data = { data }
    local buffer, n, booleans, wide = fill('tensor', data, { 1 }, wide_dtype)
    if wide then return place_on_device(whole('tensor', buffer, n, {}, wide), o) end
    local t = call.make('tensor', C.amp_from_double, buffer, 0, size_buffer, dtype_of(o, booleans == 1 and 9 or nil))
    return place_on_device(t, o)
  end
  local shape = measure('tensor', data)
  local buffer, n, booleans, wide = fill('tensor', data, shape, wide_dtype)
  if wide then return place_on_device(whole('tensor', buffer, n, shape, wide), o) end
  local fallback = n > 0 and booleans == n and 9 or nil
  local t = call.make('tensor', C.amp_from_double, buffer, #shape, sizes_of(shape), dtype_of(o, fallback))
  return place_on_device(t, o)
end

local element_types = { float = 'float32', double = 'float64', int64_t = 'int64', int = 'int32', short = 'int16', bool = 'bool' }

-- The dtype that a pointer or an array is of, where its elements are of one (bytes and unsigned ones may be anything), and the bytes of an array.
local function element_of(pointer)
  local name = tostring(ffi.typeof(pointer))
  local element = name:match '^ctype<const (.-) [%*%[%(]' or name:match '^ctype<(.-) [%*%[%(]'
  local array = name:find '%]' and not name:find('*', 1, true) and not name:find('(', 1, true)
  return element_types[element], array and ffi.sizeof(pointer) or nil
end

--- A tensor over foreign memory; nothing is copied. A cdata array is kept alive by it; what a
-- pointer points at must outlive it.
-- @tparam cdata pointer
-- @tparam table shape
-- @tparam ?string dtype default: that of the elements, or the default dtype
function M.from_ptr(pointer, shape, dtype, excess)
  require('amp.options').none('from_ptr', excess)
  if type(pointer) ~= 'cdata' or istype(ref_t, pointer) then
    err.throw('from_ptr', 'argument 1 must be a cdata pointer or array, got %s', util.show(pointer))
  end
  if type(shape) == 'number' then shape = { shape } end
  if type(shape) ~= 'table' then err.throw('from_ptr', 'argument 2 must be a list of sizes, got %s', util.show(shape)) end
  size_check('from_ptr', shape)
  local held, count = element_of(pointer)
  local code = dtype and types.dtype(dtype, 'from_ptr') or held and types.dtype_code[held] or types.default_dtype()
  local bytes = tonumber(C.amp_dtype_size(code))
  for i = 1, #shape do bytes = bytes * shape[i] end
  if count and bytes > count then
    err.throw_code('shape', 'from_ptr', 'shape %s of %s takes %.0f bytes, the array has %d', util.shape(shape), types.dtype_name[code], bytes, count)
  end
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
function M.from_string(bytes, shape, dtype, excess)
  require('amp.options').none('from_string', excess)
  if type(bytes) ~= 'string' then err.throw('from_string', 'argument 1 must be a string, got %s', util.show(bytes)) end
  if type(shape) ~= 'table' then err.throw('from_string', 'argument 2 must be a list of sizes, got %s', util.show(shape)) end
  size_check('from_string', shape)
  return call.make('from_string', C.amp_from_bytes, bytes, #bytes, #shape, sizes_of(shape), types.dtype(dtype, 'from_string'))
end

-- The shape that from_text took last, and its sizes: the same table with the same sizes is not looked through again. Up to four
-- sizes are compared without a loop, which would keep LuaJIT from compiling a handler that calls this.
local last = { shape = nil }
local last_sizes = ffi.new 'int64_t[8]'

local function checked_sizes(shape)
  local n, a, b, c, d = #shape, shape[1], shape[2], shape[3], shape[4]
  if last.shape == shape and last.n == n and last.a == a and last.b == b and last.c == c and last.d == d then return last_sizes end
  size_check('from_text', shape)
  if n > 4 then return sizes_of(shape) end
  ffi.copy(last_sizes, sizes_of(shape), 64)
  last.shape, last.n, last.a, last.b, last.c, last.d = shape, n, a, b, c, d
  return last_sizes
end

--- A tensor of the numbers in a text: a JSON list, nested in any way, or numbers with commas or blanks between them. Nothing
-- of it becomes a Lua value, so this is the quick way from a request's body to a model.
-- @tparam string text
-- @tparam table shape exactly as many numbers are expected as it takes
-- @tparam ?string dtype default: the default dtype
-- @treturn Tensor on the CPU
-- @raise what is no number (NaN and infinity are none), with its byte, code 'value'; another count of numbers, code 'shape'
-- @usage local x = amp.from_text('[0.5, 1, 2e-3]', {1, 3})    -- quicker still with a shape that is made once
function M.from_text(text, shape, dtype, excess)
  require('amp.options').none('from_text', excess)
  if type(text) ~= 'string' then err.throw('from_text', 'argument 1 must be a string, got %s', util.show(text)) end
  if type(shape) == 'number' then shape = { shape } end
  if type(shape) ~= 'table' then err.throw('from_text', 'argument 2 must be a list of sizes, got %s', util.show(shape)) end
  local sizes = checked_sizes(shape)
  local code = dtype and types.dtype(dtype, 'from_text') or types.default_dtype()
  return call.make('from_text', C.amp_from_text, text, #text, #shape, sizes, code)
end

return M
