--- Files of PyTorch's torch.save: zip archives and the older format. amp.io.pickle reads the pickle in them; each storage is read
-- once, straight from the file into its own memory, and tensors that shared one are views of it again.
local ffi = require 'ffi'
local amp = require 'amp'
local file = require 'amp.io.file'
local kind = require 'amp.io.kind'
local limit = require 'amp.io.limit'
local memory = require 'amp.io.memory'
local options = require 'amp.options'
local pickle = require 'amp.io.pickle'
local raise = require('amp.error').throw
local fail = pickle.fail

local M = {}
local OP = 'io.load_pt'

-- -- Tensors --------------------------------------------------------------------------------------

-- The memory of a storage, as a vector of that dtype.
local function held(self, s, dtype)
  local root = s.base or s
  local width = memory.width(root.untyped and 'uint8' or root.dtype)
  local made = self.made[root.key]
  if not made then
    local at, room = self.place(root, width)
    local bytes = root.count * width
    if bytes > room then fail("the storage '%s' of %.0f bytes has %.0f in the file: it is cut off", memory.show(root.key), bytes, room) end
    local ok, why = self.limit:take(bytes)
    if not ok then fail('%s', why) end
    local as = root.untyped and dtype or root.dtype
    local t
    t, why = memory.read(self.f, at, { math.floor(bytes / memory.width(as)) }, as)
    if not t then fail('%s', why) end
    made = t
    self.made[root.key] = made
  end
  if made.dtype ~= dtype then fail("the storage '%s' holds %s, and a tensor of %s lies in it", memory.show(root.key), made.dtype, dtype) end
  return made, s.first or 0
end

local function tensor(self, t)
  local made = self.tensors[t]
  if made then return made end
  local count, last = 1, 0
  for d, n in ipairs(t.size) do
    count = count * n
    last = last + (n - 1) * t.stride[d]
  end
  if count >= 2 ^ 53 then fail 'a tensor with an impossible shape' end
  if count == 0 then
    made = amp.empty(t.size, { dtype = t.dtype, device = 'cpu' })
  else
    local base, first = held(self, t.storage, t.dtype)
    if first + t.offset + last >= base:numel() then
      fail('a tensor that begins at element %.0f reaches beyond its storage of %d', t.offset, base:numel())
    end
    made = base:as_strided(t.size, t.stride, first + t.offset)
  end
  if self.device then made = made:to(self.device) end
  if t.requires_grad and made.dtype:find 'float' then made = made:detach():requires_grad_(true) end
  self.tensors[t] = made
  return made
end

-- Descriptions become tensors, everywhere in a value; no recursion, so no file can nest too deep.
local function finish(self, value)
  local function one(v)
    if v == pickle.NONE then return nil end
    if type(v) ~= 'table' then return v end
    local mt = getmetatable(v)
    if mt == pickle.Tensor then return tensor(self, v) end
    if mt == pickle.Storage then
      local base, first = held(self, v, v.dtype)
      return first == 0 and base:numel() == v.count and base or base:narrow(1, first + 1, v.count)
    end
    if v.make or v.dtype and v.name then fail('it holds the class %s itself', memory.show(v.name)) end
    return v
  end
  local top = one(value)
  if type(top) ~= 'table' then return top end
  local todo, seen = { top }, { [top] = true }
  while #todo > 0 do
    local t = table.remove(todo)
    setmetatable(t, nil)
    for k, v in pairs(t) do
      local new = one(v)
      t[k] = new
      if type(new) == 'table' and not seen[new] then
        seen[new] = true
        todo[#todo + 1] = new
      end
    end
  end
  return top
end

-- Only these names of the dictionary.
local function chosen(value, only)
  if not only then return value end
  if type(value) ~= 'table' or getmetatable(value) then fail 'it holds no dictionary, of which {only = names} could be read' end
  local out = {}
  for _, name in ipairs(only) do
    if value[name] == nil then fail("there is no '%s' in it", memory.show(name)) end
    out[name] = value[name]
  end
  return out
end

-- -- Formats ------------------------------------------------------------------------------------------

local function text_of(f, e) return ffi.string(ffi.cast('const char *', f:text(e.packed, e.at)), e.packed) end

local function read_zip(f, self, only)
  local list, why = require('amp.io.npz').entries(f)
  if not list then fail('%s', why) end
  local by_name, prefix = {}, nil
  for _, e in ipairs(list) do
    by_name[e.name] = e
    local before = e.name:match '^(.-)data%.pkl$'
    if before and (before == '' or before:sub(-1) == '/') then prefix = prefix or before end
  end
  if not prefix then fail('it is no file of torch.save: it has no data.pkl%s', kind.hint(f, 'torch')) end
  if by_name[prefix .. 'constants.pkl'] then fail 'it is a program of TorchScript, which is code; save the state_dict of the module' end
  local function stored(name)
    local e = by_name[prefix .. name]
    if not e then fail("it has no '%s'", memory.show(prefix .. name)) end
    if e.method ~= 0 or e.packed ~= e.size then fail("'%s' is compressed or encrypted; torch.save does not do that", memory.show(name)) end
    return e
  end
  if by_name[prefix .. 'byteorder'] then
    local order = stored 'byteorder'
    if order.packed > 16 or text_of(f, order) ~= 'little' then fail 'it was written on a big-endian machine; such files are not read' end
  end
  local e = stored 'data.pkl'
  local value = pickle.read(f, e.at, e.at + e.packed, {})
  function self.place(s)
    local d = stored('data/' .. s.key)
    return d.at, d.packed
  end
  return finish(self, chosen(value, only))
end

local function read_old(f, self, only)
  local storages = {}
  local magic, at = pickle.read(f, 0, f.size, {})
  if type(magic) ~= 'number' or math.abs(magic / 1.1954793653e23 - 1) > 1e-3 then fail 'it is a pickle, but none of torch.save' end
  local protocol, info, value, keys
  protocol, at = pickle.read(f, at, f.size, {})
  if protocol ~= 1001 then fail('its version is %s; 1001 is known', tostring(protocol)) end
  info, at = pickle.read(f, at, f.size, {})
  if type(info) ~= 'table' or info.little_endian ~= true then fail 'it was written on a big-endian machine; such files are not read' end
  value, at = pickle.read(f, at, f.size, storages)
  keys, at = pickle.read(f, at, f.size, {})
  if type(keys) ~= 'table' then fail 'its list of storages is missing' end
  local places = {}
  for _, key in ipairs(keys) do
    local s = storages[tostring(key)]
    if not s then fail("the storage '%s' belongs to nothing", memory.show(tostring(key))) end
    local p = ffi.new 'uint8_t[8]'
    local ok, why = f:read(p, 8, at)
    if not ok then fail('%s', why) end
    if places[s.key] or file.unle(p, 8) ~= s.count then fail("the storage '%s' is described in two ways", memory.show(s.key)) end
    local bytes = s.count * memory.width(s.dtype)
    if at + 8 + bytes > f.size then fail('it ends at byte %.0f, %.0f bytes early: it was cut off', f.size, at + 8 + bytes - f.size) end
    places[s.key] = at + 8
    at = at + 8 + bytes
  end
  function self.place(s)
    local first = places[s.key] or fail("the storage '%s' is missing", memory.show(s.key))
    return first, f.size - first
  end
  return finish(self, chosen(value, only))
end

local function read(f, self, only)
  local n = math.min(f.size, 4)
  local head = f:text(n, 0) or ''
  if head == 'PK\3\4' then return read_zip(f, self, only) end
  if head:match '^\128[\1-\5]' then return read_old(f, self, only) end
  fail('it is no file of torch.save%s', kind.hint(f, 'torch'))
end

--- Read what torch.save wrote: tensors, numbers, strings, lists (from 1), dictionaries with their keys. None is nil.
-- Nothing in the file is run; an object of any other class is an error that names it.
-- @tparam string path
-- @tparam ?table given only: a list of names, of the outermost dictionary, to read; map_location: a device; max_bytes
-- @return what was saved
-- @usage net:load_state_dict(amp.io.load_pt 'net.pt')
function M.load_pt(path, given)
  if type(path) ~= 'string' then raise(OP, 'a path expected, got %s', require('amp.util').kind(path)) end
  local o = options.read(OP, given, { 'only', 'map_location', 'max_bytes' })
  limit.check(OP, o.max_bytes)
  if o.only ~= nil and type(o.only) ~= 'table' then raise(OP, "'only' is a list of names, got %s", require('amp.util').kind(o.only)) end
  if o.map_location then require('amp.types').device(o.map_location, OP) end
  local f, why = file.open(path)
  if not f then raise(OP, "cannot read '%s': %s", path, why) end
  local self = { f = f, made = {}, tensors = {}, limit = limit.new(o.max_bytes, f.size), device = o.map_location ~= 'cpu' and o.map_location or nil }
  local ok, value = pcall(read, f, self, o.only)
  f:close()
  if ok then return value end
  if getmetatable(value) == pickle.Error then raise(OP, "'%s': %s", path, value.text) end
  memory.rethrow(OP, path, value)
end

return M
