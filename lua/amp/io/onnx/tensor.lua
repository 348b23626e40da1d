--- Tensors of ONNX files: a TensorProto as a tensor and, where it is small, as a list of numbers; and the way back.
-- @module amp.io.onnx.tensor
local ffi = require 'ffi'
local file = require 'amp.io.file'
local memory = require 'amp.io.memory'
local proto = require 'amp.io.onnx.proto'
local broken = require('amp.io.onnx.wire').broken

local M = {}

--- Tensors of up to so many elements are known as lists of numbers, too.
M.SMALL = 4096

local ctypes = {float32 = 'float', float64 = 'double', int64 = 'int64_t', int32 = 'int32_t', int16 = 'int16_t', int8 = 'int8_t', uint8 = 'uint8_t',
  bool = 'uint8_t', float16 = 'uint16_t', bfloat16 = 'uint16_t'}

-- The fields in which elements stand that are not raw.
local fields = {float32 = 'float_data', float64 = 'double_data', int64 = 'int64_data'}

local function show(t) return t.name and t.name ~= '' and ("tensor '%s'"):format(memory.show(t.name)) or 'a tensor of a node' end

local function unlisted(t, dtype, count)
  local list = t[fields[dtype] or 'int32_data']
  if #list ~= count then broken('%s of shape (%s) has %d elements', show(t), memory.show(table.concat(t.dims, ', ')), #list) end
  local room = ffi.new(ctypes[dtype] .. '[?]', math.max(count, 1))
  for i = 1, count do
    local v = list[i]
    if not fields[dtype] and (v < -2 ^ 31 or v >= 2 ^ 31) then broken('%s has an element beyond its dtype', show(t)) end
    room[i - 1] = dtype == 'bool' and (v ~= 0 and 1 or 0) or v
  end
  return room
end

local function external(t, folder, count, width)
  local at, n, name = 0, count * width, nil
  for _, entry in ipairs(t.external_data) do
    if entry.key == 'location' then name = entry.value
    elseif entry.key == 'offset' then at = tonumber(entry.value) or -1
    elseif entry.key == 'length' then n = tonumber(entry.value) or -1 end
  end
  if not name or name == '' or name:sub(1, 1) == '/' or name:find('\0', 1, true) or ('/' .. name .. '/'):find('/../', 1, true) then
    broken("%s lies in another file, whose name '%s' leads out of the model's folder", show(t), memory.show(name or ''))
  end
  if at % 1 ~= 0 or at < 0 or n ~= count * width then broken('%s lies in another file, at an impossible place', show(t)) end
  local f, why = file.open(folder .. name)
  if not f then broken("%s lies in the file '%s', which can't be read: %s", show(t), memory.show(name), why) end
  if at + n > f.size then
    f:close()
    broken("%s lies beyond the end of the file '%s'", show(t), memory.show(name))
  end
  local room = ffi.new('uint8_t[?]', math.max(n, 1))
  local ok
  ok, why = f:read(room, n, at)
  f:close()
  if not ok then broken("%s: '%s': %s", show(t), memory.show(name), why) end
  return room
end

local function listed(p, dtype, count)
  local list = {}
  local bytes, at = ffi.cast('const uint8_t *', p), ffi.cast(ctypes[dtype] .. ' *', p)
  for i = 1, count do -- a NaN's bits are looked at before it is a value of Lua's
    if dtype == 'float32' then list[i] = file.single(bytes + 4 * (i - 1))
    elseif dtype == 'float64' then list[i] = file.double(bytes + 8 * (i - 1))
    else list[i] = tonumber(at[i - 1]) end
  end
  return list
end

--- A TensorProto: {dtype, shape, t = tensor, h = its elements as a list where it is small}.
-- @tparam table t the message
-- @param p the bytes of the file
-- @tparam string folder of the file, for data that lie beside it
-- @param take function(bytes) that refuses what is too large
function M.read(t, p, folder, take)
  local dtype = proto.dtypes[t.data_type or 0]
  if not dtype then broken('%s has the dtype %s, which is not known', show(t), tostring(t.data_type)) end
  if not proto.known[dtype] then broken('%s has the dtype %s, which amp has not', show(t), dtype) end
  if t.segment then broken('%s comes in segments, which are not supported', show(t)) end
  local count = memory.count(t.dims)
  if not count then broken('the shape of %s, (%s), is impossible: at most 8 dimensions', show(t), memory.show(table.concat(t.dims, ', '))) end
  local width = memory.width(dtype)
  local bytes = count * width
  local from
  if t.data_location == 1 then
    take(bytes)
    from = external(t, folder, count, width)
  elseif t.raw_data then
    if t.raw_data.n ~= bytes then
      broken('%s of shape (%s) and dtype %s has %d bytes', show(t), memory.show(table.concat(t.dims, ', ')), dtype, t.raw_data.n)
    end
    from = p + t.raw_data.at
  else
    from = unlisted(t, dtype, count)
  end
  take(bytes)
  local out = {dtype = dtype, shape = {unpack(t.dims)}}
  local aligned = ffi.new('uint8_t[?]', math.max(bytes, 1)) -- the file's bytes lie anywhere
  ffi.copy(aligned, from, bytes)
  out.t = memory.tensor(aligned, bytes, out.shape, dtype)
  if count <= M.SMALL then
    if dtype == 'float16' or dtype == 'bfloat16' then
      out.h = out.t:to('float32'):reshape(-1):tolist()
      if count == 0 then out.h = {} end
    else
      out.h = listed(aligned, dtype, count)
      if dtype == 'bool' then
        for i = 1, count do out.h[i] = out.h[i] ~= 0 and 1 or 0 end
      end
    end
  end
  return out
end

--- A tensor as a TensorProto; its bytes are read when the file is written.
function M.message(name, t)
  return {name = name, dims = {unpack(t:size())}, data_type = proto.number[t.dtype],
    raw_data = {n = t:numel() * memory.width(t.dtype), fill = function(put) memory.each(t, put) end}}
end

--- Numbers as a TensorProto.
function M.numbers(name, list, dtype, shape)
  local room = ffi.new(ctypes[dtype] .. '[?]', math.max(#list, 1))
  for i = 1, #list do room[i - 1] = list[i] end
  return {name = name, dims = shape or {#list}, data_type = proto.number[dtype], raw_data = ffi.string(room, #list * ffi.sizeof(ctypes[dtype]))}
end

return M
