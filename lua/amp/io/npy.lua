--- npy: one tensor a file, as NumPy reads and writes it. npz (amp.io.npz) is a zip of these.
--
-- A file is a magic word, a version, the length of a header and the header, a Python
-- dictionary of descr (the dtype), fortran_order and shape; the elements follow. All
-- dtypes that both sides know are read, in either byte order and either order of
-- dimensions. The header is taken apart by a small parser: nothing in it is run.
local ffi = require 'ffi'
local file = require 'amp.io.file'
local memory = require 'amp.io.memory'
local raise = require('amp.error').throw

local M = {}

local dtypes = { f8 = 'float64', f4 = 'float32', f2 = 'float16', i8 = 'int64', i4 = 'int32', i2 = 'int16', i1 = 'int8', u1 = 'uint8', b1 = 'bool' }
local names = {}
for short, dtype in pairs(dtypes) do names[dtype] = short end

-- -- The header ------------------------------------------------------------------------------

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
    local key, value = text:match("^%s*['\"]([%w_]+)['\"]%s*:%s*()", at)
    if not key then return nil, string.format("its header has no key at '%s'", text:sub(at, at + 20)) end
    if out[key] ~= nil then return nil, string.format("its header gives '%s' twice", key) end
    local word, after = text:match("^['\"]([^'\"]*)['\"]()", value)
    if word then
      out[key] = word
    else
      word, after = text:match('^(%u%l+)()', value)
      if word == 'True' or word == 'False' then
        out[key] = word == 'True'
      else
        word, after = text:match('^(%([%d,%sL]*%))()', value)
        if not word then return nil, string.format("'%s' in its header is '%s', which is not known", key, text:sub(value, value + 20)) end
        local list, rest = {}, word:sub(2, -2)
        for n in rest:gmatch '%d+' do list[#list + 1] = tonumber(n) end
        out[key] = list
      end
    end
    at = text:match('^%s*,()', after) or after
    if at == after and not text:match('^%s*}', at) then return nil, string.format("its header can't be read at '%s'", text:sub(at, at + 20)) end
  end
  for key in pairs(out) do
    if key ~= 'descr' and key ~= 'fortran_order' and key ~= 'shape' then return nil, string.format("its header has an unknown key '%s'", key) end
  end
  return out
end

local function header_of(text)
  local h, why = parse(text)
  if not h then return nil, why end
  if type(h.descr) ~= 'string' then return nil, 'its header has no descr (structured dtypes have no tensor)' end
  if type(h.fortran_order) ~= 'boolean' then return nil, 'its header has no fortran_order' end
  if type(h.shape) ~= 'table' then return nil, 'its header has no shape' end
  local order, short = h.descr:match '^([<>|=]?)(%a%d+)$'
  h.dtype = short and dtypes[short]
  if not h.dtype then return nil, string.format("its dtype '%s' is none of amp's; convert it with astype", h.descr) end
  h.swap = order == '>'
  h.count = memory.count(h.shape)
  if not h.count then return nil, string.format('its shape (%s) is impossible: at most 8 dimensions', table.concat(h.shape, ', ')) end
  return h
end

-- -- Reading ----------------------------------------------------------------------------------

local function swapped(p, bytes, width)
  local q = ffi.new('uint8_t[?]', math.max(bytes, 1))
  for i = 0, bytes - width, width do
    for k = 0, width - 1 do q[i + k] = p[i + width - 1 - k] end
  end
  return q
end

--- The tensor of an npy file in memory.
-- @param p pointer to its bytes
-- @tparam number size of them
-- @treturn ?Tensor nil and the reason if it is none
function M.decode(p, size)
  if size < 10 or ffi.string(p, 6) ~= '\147NUMPY' then return nil, "it is no npy file: these begin with '\\147NUMPY'" end
  local version = p[6]
  local length, base
  if version == 1 then length, base = file.unle(p + 8, 2), 10
  elseif (version == 2 or version == 3) and size >= 12 then length, base = file.unle(p + 8, 4), 12
  else return nil, string.format('it has version %d of the format; 1, 2 and 3 are known', version) end
  if base + length > size then return nil, string.format('its header is said to be %.0f bytes long, but the file has %.0f: it is cut off', length, size) end
  local h, why = header_of(ffi.string(p + base, length))
  if not h then return nil, why end
  local width = memory.width(h.dtype)
  local bytes, have = h.count * width, size - base - length
  if have ~= bytes then
    return nil, string.format('its shape (%s) of %s needs %.0f bytes, it has %.0f%s', table.concat(h.shape, ', '), h.dtype, bytes, have,
      have < bytes and ': it is cut off' or '')
  end
  local data = p + base + length
  if h.swap and width > 1 then data = swapped(data, bytes, width) end
  local nd = #h.shape
  if not h.fortran_order or nd < 2 then return memory.tensor(data, bytes, h.shape, h.dtype) end
  local backward, dims = {}, {}
  for d = 1, nd do backward[d], dims[d] = h.shape[nd + 1 - d], nd + 1 - d end
  return memory.tensor(data, bytes, backward, h.dtype):permute(dims):contiguous()
end

--- Read an npy file.
-- @tparam string path
-- @treturn Tensor on the CPU
-- @usage local x = amp.io.load_npy('x.npy')
function M.load_npy(path)
  local op = 'io.load_npy'
  if type(path) ~= 'string' then raise(op, 'a path expected, got %s', type(path)) end
  local p, size = file.map(path)
  if not p then raise(op, "cannot read '%s': %s", path, size) end
  local ok, t, why = pcall(M.decode, p, size)
  file.unmap(p, size)
  if not ok then error(t, 0) end
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
  if type(path) ~= 'string' then raise(op, 'a path expected, got %s', type(path)) end
  if not require('amp').is_tensor(tensor) then raise(op, 'a tensor expected, got %s', type(tensor)) end
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
