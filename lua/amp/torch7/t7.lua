--- .t7 files: what Torch7's torch.save wrote, read without Torch7 and without running any of it.
--
--   local model = amp.torch7.load 'model.t7'       -- binary or ASCII, found out
--
-- Tables, strings, numbers, booleans and tensors come as they were, tensors with their dtypes, strides and shared
-- storages; what stood in several places is one object again. A storage is a vector. An object of another class
-- (a module of nn) is a plain table of its fields, its class's name under `__typename`. A function is not loaded: in its place
-- stands M.FUNCTION. Whatever doesn't fit the format is an error with the offset; nothing is allocated for a size that the file
-- can't hold.
local ffi = require 'ffi'
local amp = require 'amp'
local cursor = require 'amp.torch7.cursor'
local file = require 'amp.io.file'
local file_kind = require 'amp.io.kind'
local limit = require 'amp.io.limit'
local options = require 'amp.options'
local util = require 'amp.util'
local raise = require('amp.error').throw
local mark_mask = require('amp.tensor.index').mark_mask
local fail = cursor.fail

local M = {}

local OP = 'torch7.load'
local NIL, NUMBER, STRING, TABLE, TORCH, BOOLEAN, FUNCTION, LEGACY_FUNCTION, RECURSIVE_FUNCTION = 0, 1, 2, 3, 4, 5, 6, 7, 8
local DEEPEST = 1000

--- Stands where a function stood.
M.FUNCTION = setmetatable({}, {__tostring = function() return 'a function of the .t7 file (not loaded)' end})

-- -- Tensors and storages ---------------------------------------------------------------------------

local dtypes = {Byte = 'uint8', Char = 'int8', Short = 'int16', Int = 'int32', Long = 'int64', Float = 'float32', Double = 'float64', Half = 'float16'}

-- Kind of element, and 'Tensor' or 'Storage', of a class's name; a GPU's have the same layout, floats having no name.
local function element_class(name)
  local kind, what = name:match '^torch%.(%u?%l*)(%u%l+)$'
  if what ~= 'Tensor' and what ~= 'Storage' then
    local gpu
    gpu, what = name:match '^torch%.Cuda(%u?%l*)(%u%l+)$'
    kind = gpu == '' and 'Float' or gpu
  elseif kind == 'Cuda' then
    kind = 'Float'
  end
  if dtypes[kind or ''] and (what == 'Tensor' or what == 'Storage') then return kind, what end
end

local function storage(self, kind)
  local c = self.cursor
  local n = c:long()
  if n < 0 then fail(c, 'a storage of %d elements', n) end
  c:room_for(kind, n)
  local ok, why = self.limit:take(n * cursor.width[kind])
  if not ok then fail(c, '%s', why) end
  if kind == 'Half' and c.ascii then
    local t = amp.empty({n}, {dtype = 'float32', device = 'cpu'})
    if n > 0 then c:elements('Float', n, t:data_ptr()) end
    return t:half()
  end
  local t = amp.empty({n}, {dtype = dtypes[kind], device = 'cpu'})
  if n > 0 then c:elements(kind, n, t:data_ptr()) end
  return t
end

local function tensor(self, kind, depth)
  local c = self.cursor
  local start = c.at
  local nd = c:int()
  if nd < 0 or nd > 8 then
    c.at = start
    fail(c, 'a tensor of %d dimensions; from 0 to 8 are possible', nd)
  end
  local size, stride, numel, last = {}, {}, 1, 0
  for d = 1, nd do size[d] = c:long() end
  for d = 1, nd do stride[d] = c:long() end
  local offset = c:long() - 1
  for d = 1, nd do
    if size[d] < 0 or stride[d] < 0 then
      c.at = start
      fail(c, 'a tensor with size %d and stride %d of dimension %d', size[d], stride[d], d)
    end
    numel = numel * size[d]
    last = last + (size[d] - 1) * stride[d]
  end
  local base = self:object(depth)
  if numel >= 2 ^ 53 then
    c.at = start
    fail(c, 'a tensor of %s elements', util.shape(size))
  end
  if nd == 0 then numel, size, stride = 0, {0}, {1} end
  if base ~= nil and not (amp.is_tensor(base) and base.dtype == dtypes[kind] and base:dim() == 1) then
    c.at = start
    fail(c, 'the storage of a tensor of %s is %s', dtypes[kind], amp.is_tensor(base) and 'one of ' .. base.dtype or util.show(base))
  end
  if numel == 0 then return mark_mask(amp.empty(size, {dtype = dtypes[kind], device = 'cpu'})) end
  local held = base and base:numel() or 0
  if offset < 0 or offset + last >= held then
    c.at = start
    fail(c, 'a tensor of %s that begins at element %d reaches beyond its storage of %d', util.shape(size), offset + 1, held)
  end
  return mark_mask(base:as_strided(size, stride, offset)) -- bytes are masks, as they were
end

-- -- Objects --------------------------------------------------------------------------------------------

local Reader = {}
Reader.__index = Reader

-- Pairs of a table into `out`.
local function pairs_into(self, out, depth, n, what)
  local c = self.cursor
  n = n or c:int()
  if n < 0 or n > (c.size - c.at) / (c.ascii and 2 or 8) then fail(c, '%s of %d entries, more than the file holds', what or 'a table', n) end
  for _ = 1, n do
    local at = c.at
    local k = self:object(depth)
    if k == nil or k ~= k then
      c.at = at
      fail(c, 'a key of a table is %s', k == nil and 'nil' or 'NaN')
    end
    out[k] = self:object(depth)
  end
  return out
end

-- tds.Hash: a table. tds.Vec: a list.
local function tds_hash(self, out, depth) return pairs_into(self, out, depth, self.cursor:count(), 'a tds.Hash') end

local function tds_vec(self, out, depth)
  local c = self.cursor
  local n = c:count()
  if n < 0 or n > (c.size - c.at) / (c.ascii and 2 or 4) then fail(c, 'a tds.Vec of %d elements, more than the file holds', n) end
  for i = 1, n do out[i] = self:object(depth) end
  return out
end

local tds = {['tds.Hash'] = tds_hash, tds_hash = tds_hash, ['tds.Vec'] = tds_vec, tds_vec = tds_vec}

local function torch_object(self, index, depth)
  local c = self.cursor
  local name = c:chars(c:int())
  if name:match '^V %d+$' then name = c:chars(c:int()) end
  if #name > 200 or not name:match '^[%w_.]+$' then fail(c, 'no class has the name %q', name:sub(1, 40)) end
  local kind, what = element_class(name)
  if kind then
    local t = (what == 'Tensor' and tensor or storage)(self, kind, depth)
    self.objects[index] = t
    return t
  end
  if tds[name] then
    local out = {}
    self.objects[index] = out
    return tds[name](self, out, depth)
  end
  local object = {__typename = name}
  self.objects[index] = object
  local at = c.at
  local type_ = c:int()
  if type_ ~= TABLE then
    c.at = at
    fail(c, "an object of class '%s', whose format is its own; only classes of tables, tensors, storages, tds.Hash and tds.Vec can be read", name)
  end
  local fields = c:int()
  if self.objects[fields] ~= nil then
    c.at = at
    fail(c, "the fields of an object of class '%s' are object %d, which is another", name, fields)
  end
  self.objects[fields] = object
  return pairs_into(self, object, depth)
end

--- The object at the cursor.
function Reader:object(depth)
  local c = self.cursor
  local at = c.at
  if depth > DEEPEST then fail(c, 'objects are nested more than %d deep', DEEPEST) end
  local type_ = c:int()
  if type_ == NIL then return nil end
  if type_ == NUMBER then return c:double() end
  if type_ == STRING then return c:chars(c:int()) end
  if type_ == BOOLEAN then return c:int() == 1 end
  if type_ == FUNCTION then
    c:chars(c:int())
    self:object(depth + 1)
    return M.FUNCTION
  end
  if type_ ~= TABLE and type_ ~= TORCH and type_ ~= LEGACY_FUNCTION and type_ ~= RECURSIVE_FUNCTION then
    c.at = at
    fail(c, 'no type of object has the number %d', type_)
  end
  local index = c:int()
  local known = self.objects[index]
  if known ~= nil then return known end
  if type_ == TORCH then return torch_object(self, index, depth + 1) end
  if type_ == TABLE then
    local out = {}
    self.objects[index] = out
    return pairs_into(self, out, depth + 1)
  end
  self.objects[index] = M.FUNCTION
  c:chars(c:int())
  self:object(depth + 1) -- its upvalues
  return M.FUNCTION
end

-- -- Files ------------------------------------------------------------------------------------------------

-- A binary file begins with a small number in four bytes, an ASCII one with its digit.
local function guess(f)
  local p, size = ffi.new 'uint8_t[4]', f.size
  local ok, why = f:read(p, math.min(size, 4), 0)
  if not ok then return nil, why end
  if size >= 1 and p[0] >= 48 and p[0] <= 56 and (size == 1 or p[1] == 10 or p[1] == 13) then return true end
  if size >= 4 and p[0] == 0 and p[1] == 0 and p[2] == 0 and p[3] >= 1 and p[3] <= 8 then
    return nil, 'it is a big-endian file; only little-endian ones can be read'
  end
  if size >= 4 and (p[0] > 8 or p[1] ~= 0 or p[2] ~= 0 or p[3] ~= 0) then
    return nil, 'it is no .t7 file: it does not begin with the type of an object' .. file_kind.hint(f, 't7')
  end
  return false
end

--- Read a .t7 file.
-- @tparam string path
-- @tparam ?table|string given 'ascii' or 'binary' (found out where not given), or {mode =, long_size = 8 (4: written on a machine
-- of 32 bits), map_location = 'cpu', max_bytes = the most that its tensors may take}
-- @return the object: table, tensor, string, number, boolean or nil
-- @raise with the file's name and the offset: missing, cut off, damaged
-- @usage local t = amp.torch7.load 'features.t7'
function M.load(path, given)
  if type(path) ~= 'string' then raise(OP, 'a path expected, got %s', util.show(path)) end
  if type(given) == 'string' then given = {mode = given} end
  local o = options.read(OP, given, {'mode', 'long_size', 'map_location', 'max_bytes'}, {long_size = 8})
  if o.mode ~= nil and o.mode ~= 'ascii' and o.mode ~= 'binary' then raise(OP, "mode must be 'ascii' or 'binary', got %s", util.show(o.mode)) end
  if o.long_size ~= 8 and o.long_size ~= 4 then raise(OP, 'long_size must be 8 or 4, got %s', util.show(o.long_size)) end
  limit.check(OP, o.max_bytes)
  local f, why = file.open(path)
  if not f then raise(OP, "cannot read '%s': %s", path, why) end
  local ascii
  ascii, why = guess(f)
  if ascii == nil then
    f:close()
    raise(OP, "cannot read '%s': %s", path, why)
  end
  if o.mode then ascii = o.mode == 'ascii' end
  local c = cursor.new(f, ascii, o.long_size)
  local reader = setmetatable({cursor = c, objects = {}, limit = limit.new(o.max_bytes, f.size)}, Reader)
  local ok, v = pcall(reader.object, reader, 1)
  f:close()
  if not ok then
    if type(v) == 'table' and v.why then raise(OP, "'%s' is damaged or cut off: at byte %.0f, %s", path, v.at, v.why) end
    raise(OP, "cannot read '%s': at byte %.0f, %s", path, c.at, type(v) == 'table' and v.message or tostring(v))
  end
  if o.map_location then v = M.to_device(v, o.map_location) end
  return v
end

--- Tensors of nested tables on another device, in place; a tensor in several places stays one.
function M.to_device(v, device)
  local seen, moved = {}, {}
  local function go(x)
    if amp.is_tensor(x) then
      local id = x:id()
      moved[id] = moved[id] or x:to(device)
      return moved[id]
    end
    if type(x) == 'table' and x ~= M.FUNCTION and not seen[x] then
      seen[x] = true
      for k, y in pairs(x) do x[k] = go(y) end
    end
    return x
  end
  return go(v)
end

return M
