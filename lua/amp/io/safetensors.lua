--- safetensors: tensors by name in one file, as other frameworks read and write them.
--
-- A file is an 8-byte little-endian header length, a JSON header (name -> dtype,
-- shape, data_offsets; __metadata__ of strings) and the data. A file from anywhere
-- may be given: the header must describe every byte of the data exactly once, or
-- the file is refused with its name and what is wrong. Only the tensors asked for are
-- read, each straight from the disk into its own memory, so a file may be larger than that.
local ffi = require 'ffi'
local next_key = require('amp.core.keys').next
local file = require 'amp.io.file'
local json = require 'amp.io.json'
local kind = require 'amp.io.kind'
local limit = require 'amp.io.limit'
local memory = require 'amp.io.memory'
local options = require 'amp.options'
local raise = require('amp.error').throw

local M = {}

local MAX_HEADER = 100e6
local dtypes = {F64 = 'float64', F32 = 'float32', F16 = 'float16', BF16 = 'bfloat16', I64 = 'int64', I32 = 'int32',
  I16 = 'int16', I8 = 'int8', U8 = 'uint8', BOOL = 'bool', F8_E4M3 = 'float8_e4m3', F8_E5M2 = 'float8_e5m2'}
local names = {}
for short, dtype in pairs(dtypes) do names[dtype] = short end

-- -- Reading ----------------------------------------------------------------

-- One entry of the header, checked; nil and the reason if it can't be.
local function entry(key, e, data_size)
  local name = memory.show(key)
  if type(e) ~= 'table' or getmetatable(e.shape) ~= json.array or getmetatable(e.data_offsets) ~= json.array then
    return nil, string.format("'%s' has no dtype, shape and data_offsets", name)
  end
  for field in pairs(e) do
    if field ~= 'dtype' and field ~= 'shape' and field ~= 'data_offsets' then
      return nil, string.format("'%s' has an unknown field '%s'", name, memory.show(field))
    end
  end
  if type(e.dtype) ~= 'string' or not e.dtype:find '^%u[%u%d_]*$' or #e.dtype > 32 then
    return nil, string.format("'%s' has the dtype %s", name, memory.show(type(e.dtype) == 'table' and 'of a list or object' or e.dtype))
  end
  local dtype = dtypes[e.dtype]
  local count = memory.count(e.shape)
  if not count then return nil, string.format("'%s' has an impossible shape", name) end
  local first, last = e.data_offsets[1], e.data_offsets[2]
  if #e.data_offsets ~= 2 or type(first) ~= 'number' or type(last) ~= 'number' or first % 1 ~= 0 or last % 1 ~= 0
    or first < 0 or last < first then
    return nil, string.format("'%s' has impossible data_offsets", name)
  end
  if last > data_size then
    return nil, string.format("'%s' ends at byte %.0f of the data, but there are %.0f: the file is cut off", name, last, data_size)
  end
  if dtype and last - first ~= count * memory.width(dtype) then
    return nil, string.format("'%s' is %s of %s and needs %.0f bytes, but its data_offsets span %.0f", name, e.dtype,
      table.concat(e.shape, 'x'), count * memory.width(dtype), last - first)
  end
  return {name = key, dtype = dtype, short = e.dtype, shape = e.shape, first = first, last = last}
end

local function read_header(f)
  local size, p = f.size, ffi.new 'uint8_t[9]'
  if size < 8 then return nil, string.format('a safetensors file begins with 8 bytes of header length, it has %d', size) end
  local ok, broken = f:read(p, math.min(size, 9), 0)
  if not ok then return nil, broken end
  local length = file.unle(p, 8)
  if length > MAX_HEADER or length + 8 > size then
    return nil, string.format('its header is said to be %.0f bytes long, but the file has %.0f', length, size)
  end
  if length == 0 or p[8] ~= 123 then return nil, "its header does not begin with '{'" end
  local text
  text, broken = f:text(length, 8)
  if not text then return nil, broken end
  local header, why = json.decode(text)
  if not header then return nil, 'its header is not JSON: ' .. why end
  local base, data_size = 8 + length, size - 8 - length
  local metadata = header.__metadata__
  header.__metadata__ = nil
  if metadata ~= nil then
    if type(metadata) ~= 'table' or getmetatable(metadata) then return nil, '__metadata__ is no table of strings' end
    for k, v in pairs(metadata) do
      if type(k) ~= 'string' or type(v) ~= 'string' then return nil, '__metadata__ is no table of strings' end
    end
  end
  local list, by_name = {}, {}
  for name, e in pairs(header) do
    local checked
    checked, why = entry(tostring(name), e, data_size)
    if not checked then return nil, why end
    list[#list + 1] = checked
    by_name[name] = checked
  end
  table.sort(list, function(a, b)
    if a.first ~= b.first then return a.first < b.first end
    if a.last ~= b.last then return a.last < b.last end
    return a.name < b.name
  end)
  local at, before = 0, nil
  for _, e in ipairs(list) do
    if e.first < at then return nil, string.format("the data of '%s' and '%s' overlap", memory.show(before.name), memory.show(e.name)) end
    if e.first > at then return nil, string.format("%.0f bytes before '%s' belong to no tensor", e.first - at, memory.show(e.name)) end
    at, before = e.last, e
  end
  if at < data_size then return nil, string.format('%.0f bytes at the end belong to no tensor', data_size - at) end
  return {list = list, by_name = by_name, base = base, metadata = metadata or {}}
end

local File = {}
File.__index = File

local function open(op, path, given)
  if type(path) ~= 'string' then raise(op, 'a path expected, got %s', require('amp.util').kind(path)) end
  local o = options.read(op, given, {'max_bytes'})
  limit.check(op, o.max_bytes)
  local f, why = file.open(path)
  if not f then raise(op, "cannot read '%s': %s", path, why) end
  local ok, header
  ok, header, why = pcall(read_header, f)
  if not ok or not header then
    local hint = ok and kind.hint(f, 'safetensors')
    f:close()
    if not ok then memory.rethrow(op, path, header) end
    raise(op, "'%s': %s%s", path, why, hint)
  end
  return setmetatable({path = path, file = f, header = header, metadata = header.metadata, limit = limit.new(o.max_bytes, f.size)}, File)
end

--- Open a file without reading its tensors.
-- @tparam string path
-- @tparam ?table given max_bytes, the most that all tensors got may take
-- @return an object with names(), get(name), metadata and close()
function M.open(path, given)
  if type(path) == 'string' and path:find '%.index%.json$' then return require('amp.io.shards').open('io.safetensors.open', path, given, open) end
  return open('io.safetensors.open', path, given)
end

--- Names in the file, in the order of their data.
function File:names()
  local out = {}
  for i, e in ipairs(self.header.list) do out[i] = e.name end
  return out
end

-- Why a tensor can't be got, nil where it can.
local function strange(e)
  if not e.dtype then return string.format("'%s' has a dtype that amp has not: %s", memory.show(e.name), json.encode(e.short)) end
end

--- Read one tensor.
-- @tparam string name
-- @treturn Tensor on the CPU
function File:get(name)
  local op = 'io.safetensors'
  if not self.file then raise(op, "'%s' was closed", self.path) end
  local e = self.header.by_name[name]
  if not e then raise(op, "there is no tensor '%s' in '%s'", tostring(name), self.path) end
  local why = strange(e)
  local t, ok
  if not why then
    ok, why = self.limit:take(e.last - e.first)
    if ok then t, why = memory.read(self.file, self.header.base + e.first, e.shape, e.dtype) end
  end
  if not t then raise(op, "'%s': %s", self.path, why) end
  return t
end

--- Close the file; twice is harmless.
function File:close()
  if self.file then self.file:close() end
  self.file = nil
end

-- All tensors of an open file, and why those of foreign dtypes are not among them. (No closure over the tensors: a compiled
-- trace would keep it, and them.)
local function get_all(f)
  local out, foreign = {}, {}
  for _, e in ipairs(f.header.list) do
    local why = strange(e)
    if why then foreign[e.name] = why else out[e.name] = f:get(e.name) end
  end
  return out, foreign
end

--- Read a whole file.
-- A tensor of a dtype that amp has not is left out: asking for it by its name is an error that says so.
-- @tparam string path
-- @tparam ?table given max_bytes (the most that the tensors may take; 100 times the file's size and at least 256 MiB where it isn't
-- given)
-- @treturn table name -> tensor, on the CPU
-- @treturn table metadata, strings by name
-- @usage local state = amp.io.safetensors.load('net.safetensors')
function M.load(path, given)
  local op = 'io.safetensors'
  if type(path) == 'string' and path:find '%.index%.json$' then return require('amp.io.shards').load(op, path, given, open) end
  local f = open(op, path, given)
  local ok, out, foreign = pcall(get_all, f)
  f:close()
  if not ok then error(out, 0) end
  if next_key(foreign) then
    setmetatable(out, {__index = function(_, name)
      if foreign[name] then raise(op, "'%s': %s", path, foreign[name]) end
    end})
  end
  return out, f.metadata
end

-- -- Writing ----------------------------------------------------------------

--- Write tensors to a file, which is replaced whole or not at all.
-- @tparam string path
-- @tparam table tensors name -> tensor
-- @tparam ?table metadata strings by name
function M.save(path, tensors, metadata)
  local op = 'io.safetensors'
  if type(path) ~= 'string' then raise(op, 'a path expected, got %s', require('amp.util').kind(path)) end
  local order = memory.names(op, tensors)
  local header, at = {}, 0
  -- widest elements first, so that each tensor lies at a multiple of its element's size
  table.sort(order, function(a, b)
    local wa, wb = memory.width(tensors[a].dtype), memory.width(tensors[b].dtype)
    if wa ~= wb then return wa > wb end
    return a < b
  end)
  for _, name in ipairs(order) do
    if name == '__metadata__' then raise(op, "a tensor cannot be called '__metadata__'") end
    local t = tensors[name]
    local bytes = t:numel() * memory.width(t.dtype)
    header[name] = {dtype = names[t.dtype], shape = setmetatable({unpack(t:size())}, json.array), data_offsets = {at, at + bytes}}
    at = at + bytes
  end
  if metadata ~= nil and type(metadata) ~= 'table' then
    raise(op, 'metadata are a table of strings by name, got %s', require('amp.util').kind(metadata))
  end
  for k, v in pairs(metadata or {}) do
    if type(k) ~= 'string' or type(v) ~= 'string' then raise(op, 'metadata are strings by name, got %s', require('amp.util').kind(v)) end
  end
  if metadata and next_key(metadata) then header.__metadata__ = metadata end
  local fine, text = pcall(json.encode, header)
  if not fine then raise(op, "cannot write '%s': %s", path, text) end
  text = text .. (' '):rep(-#text % 8) -- the data begin at a multiple of 8
  local ok, why = file.replace(path, function(put)
    put(file.le(#text, 8))
    put(text)
    for _, name in ipairs(order) do memory.each(tensors[name], put) end
  end)
  if not ok then raise(op, "cannot write '%s': %s", path, why) end
end

require('amp.core.class').guard(File, 'io.safetensors.open', 'file')

return M
