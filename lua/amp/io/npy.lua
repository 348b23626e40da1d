--- npy: one tensor a file, as NumPy reads and writes it. npz (amp.io.npz) is a zip of these.
--
-- A file is a magic word, a version, the length of a header and the header, a Python
-- dictionary of descr (the dtype), fortran_order and shape; the elements follow. All
-- dtypes that both sides know are read, in either byte order and either order of
-- dimensions. The header is taken apart by a small parser: nothing in it is run.
local ffi = require 'ffi'
local core = require 'amp.ffi'
local file = require 'amp.io.file'
local kind = require 'amp.io.kind'
local limit = require 'amp.io.limit'
local memory = require 'amp.io.memory'
local options = require 'amp.options'
local raise = require('amp.error').throw

local M = {}

local dtypes = { f8 = 'float64', f4 = 'float32', f2 = 'float16', i8 = 'int64', i4 = 'int32', i2 = 'int16', i1 = 'int8', u1 = 'uint8', b1 = 'bool' }
local names = {}
for short, dtype in pairs(dtypes) do names[dtype] = short end

-- -- The header ------------------------------------------------------------------------------

-- A reason that only means that amp has no such array: the file itself is whole.
local Foreign = {}
local function foreign(fmt, ...) return setmetatable({text = fmt:format(...)}, Foreign) end

-- A list of fields, [('x', '<f4'), ('y', '<i2', (3,))]: its names, and the place after it.
local function fields(text, at)
  local list, after = text:match('^(%b[])()', at)
  if not list then return nil end
  local found = {}
  for name in list:gmatch "%(%s*'([^']*)'%s*," do found[#found + 1] = name end
  return #found > 0 and found or nil, after
end

-- The value of a key: what it is, and the place after it.
local function value(text, at)
  local word, after = text:match("^['\"]([^'\"]*)['\"]()", at)
  if word then return word, after end
  word, after = text:match('^(%u%l+)()', at)
  if word == 'True' or word == 'False' then return word == 'True', after end
  word, after = text:match('^(%([%d,%sL]*%))()', at)
  if not word then return nil end
  local list, rest = {}, word:sub(2, -2)
  for n in rest:gmatch '%d+' do list[#list + 1] = tonumber(n) end
  return list, after
end

-- {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } into a table, or nil and the reason.
local function parse(text)
  local out, at = {}, text:match '^%s*{()'
  if not at then return nil, "its header does not begin with '{'" end
  while true do
    local stop = text:match('^%s*}%s*()', at)
    if stop then
      if stop <= #text then return nil, 'its header goes on after the closing brace' end
      break
    end
    local key, from = text:match("^%s*['\"]([%w_]+)['\"]%s*:%s*()", at)
    if not key then return nil, string.format("its header has no key at '%s'", memory.show(text:sub(at, at + 20))) end
    if out[key] ~= nil then return nil, string.format("its header gives '%s' twice", memory.show(key)) end
    local v, after = value(text, from)
    if v == nil and key == 'descr' then
      v, after = fields(text, from)
      if v then out.fields = v end
    end
    if v == nil then return nil, string.format("'%s' in its header is '%s', which is not known", memory.show(key), memory.show(text:sub(from, from + 20))) end
    out[key] = v
    at = text:match('^%s*,()', after) or after
    if at == after and not text:match('^%s*}', at) then return nil, string.format("its header can't be read at '%s'", memory.show(text:sub(at, at + 20))) end
  end
  for key in pairs(out) do
    if key ~= 'descr' and key ~= 'fortran_order' and key ~= 'shape' and key ~= 'fields' then
      return nil, string.format("its header has an unknown key '%s'", memory.show(key))
    end
  end
  return out
end

-- What NumPy's letters stand for, of arrays that no tensor of amp can hold.
local kinds = {O = 'Python objects', U = 'text', S = 'bytes of text', a = 'bytes of text', V = 'raw bytes', c = 'complex numbers', M = 'times',
  m = 'spans of time', u = 'unsigned whole numbers', f = 'floats', i = 'whole numbers', b = 'bytes'}

local function header_of(text)
  local h, why = parse(text)
  if not h then return nil, why end
  if h.fields then
    return nil, foreign('it is a structured array (fields %s); save each field as an array of its own', memory.show(table.concat(h.fields, ', ')))
  end
  if type(h.descr) ~= 'string' then return nil, 'its header has no descr' end
  if type(h.fortran_order) ~= 'boolean' then return nil, 'its header has no fortran_order' end
  if type(h.shape) ~= 'table' then return nil, 'its header has no shape' end
  local order, short = h.descr:match '^([<>|=]?)(%a%d+)$'
  h.dtype = short and dtypes[short]
  if not h.dtype then
    if h.descr:match '^|?O8?$' then
      return nil, foreign("it holds Python objects (dtype '%s'), which only running Python could read; save numbers", memory.show(h.descr))
    end
    local what = kinds[h.descr:match '^[<>|=]?(%a)' or '']
    return nil, foreign("its dtype '%s'%s is none of amp's; convert it with astype", memory.show(h.descr), what and ', ' .. what .. ',' or '')
  end
  h.swap = order == (ffi.abi 'le' and '>' or '<')
  h.count = memory.count(h.shape)
  if not h.count then return nil, string.format('its shape (%s) is impossible: at most 8 dimensions', memory.show(table.concat(h.shape, ', '))) end
  return h
end

-- -- Reading ----------------------------------------------------------------------------------

local MAX_HEADER = 2 ^ 24

--- The header of an npy file.
-- @param f a file, or memory.bytes
-- @tparam number at where it begins
-- @tparam number size its bytes
-- @param ?crc uint32_t[1] that goes on over the header's bytes
-- @return a table with dtype, shape, count, base (where the elements begin), bytes; nil and the reason, and true where the file is
-- whole, but of a dtype that amp has not
function M.header(f, at, size, crc)
  local head = ffi.new 'uint8_t[12]'
  if size < 10 then return nil, string.format('it is no npy file: it has %.0f bytes', size) end
  local ok, why = f:read(head, math.min(size, 12), at)
  if not ok then return nil, why end
  if ffi.string(head, 6) ~= '\147NUMPY' then return nil, "it is no npy file: these begin with '\\147NUMPY'" end
  local version = head[6]
  local length, base
  if version == 1 then length, base = file.unle(head + 8, 2), 10
  elseif (version == 2 or version == 3) and size >= 12 then length, base = file.unle(head + 8, 4), 12
  else return nil, string.format('it has version %d of the format; 1, 2 and 3 are known', version) end
  if base + length > size then return nil, string.format('its header is said to be %.0f bytes long, but the file has %.0f: it is cut off', length, size) end
  if length > MAX_HEADER then return nil, string.format('its header of %.0f bytes is too long', length) end
  local text = ffi.new('uint8_t[?]', base + length)
  ok, why = f:read(text, base + length, at)
  if not ok then return nil, why end
  if crc then crc[0] = core.C.amp_crc32(crc[0], text, base + length) end
  local h
  h, why = header_of(ffi.string(text + base, length))
  if not h then
    if getmetatable(why) == Foreign then return nil, why.text, true end
    return nil, why
  end
  h.base, h.bytes = at + base + length, h.count * memory.width(h.dtype)
  local have = size - base - length
  if have ~= h.bytes then
    return nil, string.format('its shape (%s) of %s needs %.0f bytes, it has %.0f%s', table.concat(h.shape, ', '), h.dtype, h.bytes, have,
      have < h.bytes and ': it is cut off' or '')
  end
  return h
end

--- The tensor of a header.
function M.body(f, h, crc)
  local nd = #h.shape
  if not h.fortran_order or nd < 2 then return memory.read(f, h.base, h.shape, h.dtype, h.swap, crc) end
  local backward, dims = {}, {}
  for d = 1, nd do backward[d], dims[d] = h.shape[nd + 1 - d], nd + 1 - d end
  local t, why = memory.read(f, h.base, backward, h.dtype, h.swap, crc)
  if not t then return nil, why end
  return t:permute(dims):contiguous()
end

local function read(f, given)
  local h, why = M.header(f, 0, f.size)
  if not h then return nil, why .. kind.hint(f, 'npy') end
  local ok
  ok, why = limit.new(given, f.size):take(h.bytes)
  if not ok then return nil, why end
  return M.body(f, h)
end

--- Read an npy file.
-- @tparam string path
-- @tparam ?table given max_bytes (the most that the tensor may take; 100 times the file's size and at least 256 MiB where it isn't
-- given)
-- @treturn Tensor on the CPU
-- @usage local x = amp.io.load_npy('x.npy')
function M.load_npy(path, given)
  local op = 'io.load_npy'
  if type(path) ~= 'string' then raise(op, 'a path expected, got %s', require('amp.util').kind(path)) end
  local o = options.read(op, given, {'max_bytes'})
  limit.check(op, o.max_bytes)
  local f, why = file.open(path)
  if not f then raise(op, "cannot read '%s': %s", path, why) end
  local ok, t
  ok, t, why = pcall(read, f, o.max_bytes)
  f:close()
  if not ok then memory.rethrow(op, path, t) end
  if not t then raise(op, "'%s': %s", path, why) end
  return t
end

-- -- Writing -----------------------------------------------------------------------------------

--- What precedes a tensor's elements; the elements begin at a multiple of 64.
-- @treturn ?string nil and the reason where NumPy has no such dtype
function M.head(t)
  local short = names[t.dtype]
  if not short then return nil, string.format('NumPy has no %s; save it as float32, or by amp.io.safetensors', t.dtype) end
  local shape = { unpack(t:size()) }
  local text = string.format("{'descr': '%s%s', 'fortran_order': False, 'shape': (%s%s), }", short:sub(2) == '1' and '|' or '<', short,
    table.concat(shape, ', '), #shape == 1 and ',' or '')
  text = text .. (' '):rep(-(#text + 11) % 64) .. '\n'
  return '\147NUMPY\1\0' .. file.le(#text, 2) .. text
end

--- Write a tensor to a file, which is replaced whole or not at all.
-- @tparam string path
-- @tparam Tensor tensor any dtype but bfloat16, which NumPy has not
-- @usage amp.io.save_npy('x.npy', x)
function M.save_npy(path, tensor)
  local op = 'io.save_npy'
  if type(path) ~= 'string' then raise(op, 'a path expected, got %s', require('amp.util').kind(path)) end
  if not require('amp').is_tensor(tensor) then raise(op, 'a tensor expected, got %s', require('amp.util').kind(tensor)) end
  local head, why = M.head(tensor)
  if not head then raise(op, "cannot write '%s': %s", path, why) end
  local ok
  ok, why = file.replace(path, function(put)
    put(head)
    memory.each(tensor, put)
  end)
  if not ok then raise(op, "cannot write '%s': %s", path, why) end
end

return M
