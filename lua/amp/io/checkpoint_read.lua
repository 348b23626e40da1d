--- Reading of checkpoints (the format is described in checkpoint.lua).
--
-- Nothing in the file is believed before it is checked: lengths against the file,
-- counts against what is left, tensors against their segments, contents against
-- their check sums. Tables, strings and numbers are all that can come out.
local ffi = require 'ffi'
local core = require 'amp.ffi'
local file = require 'amp.io.file'
local kind = require 'amp.io.kind'
local limit = require 'amp.io.limit'
local memory = require 'amp.io.memory'
local options = require 'amp.options'
local types = require 'amp.types'
local checkpoint = require 'amp.io.checkpoint'
local raise = require('amp.error').throw

local FOOTER, HEADER = 32, 16

local Reader = {}
Reader.__index = Reader

-- Stops reading; the message gets the file's name where it is caught.
local Damage = {}
local function damaged(fmt, ...) error(setmetatable({text = string.format(fmt, ...)}, Damage), 0) end

-- -- Bytes ------------------------------------------------------------------

local function read_bytes(f, at, n, what)
  if n > 2 ^ 31 - 64 then damaged('%s, of %.0f bytes, is too long', what, n) end
  local buffer = ffi.new('uint8_t[?]', math.max(n, 1))
  local ok, why = f:read(buffer, n, at)
  if not ok then damaged('%s could not be read: %s', what, why) end
  return buffer
end

function Reader:need(n)
  if self.size - self.at < n then damaged('its index ends in the middle of an entry') end
end

function Reader:int(n)
  self:need(n)
  local v = file.unle(self.p + self.at, n)
  self.at = self.at + n
  if v >= 2 ^ 53 then damaged('an impossible number in its index') end
  return v
end

function Reader:double()
  self:need(8)
  self.at = self.at + 8
  return file.double(self.p + self.at - 8)
end

function Reader:string()
  local n = self:int(4)
  self:need(n)
  local s = ffi.string(self.p + self.at, n)
  self.at = self.at + n
  return s
end

-- -- Segments and tensors ---------------------------------------------------

function Reader:segments()
  local before = HEADER
  for i = 1, self:int(4) do
    local s = {code = self:int(1), at = self:int(8), bytes = self:int(8), crc = self:int(4)}
    s.dtype = types.dtype_name[s.code]
    if not s.dtype then damaged('segment %d has the unknown dtype number %d', i, s.code) end
    local width = memory.width(s.dtype)
    if s.at < before or s.at % 64 ~= 0 or s.at + s.bytes > self.index_at or s.bytes % width ~= 0 then
      damaged('segment %d lies at bytes %.0f to %.0f, outside the data', i, s.at, s.at + s.bytes)
    end
    s.count = s.bytes / width
    s.gap_from, before = before, s.at + s.bytes
    self.segment[i] = s
  end
  self.data_end = before
end

function Reader:tensors()
  for i = 1, self:int(4) do
    local t = {segment = self:int(4), flag = self:int(1), ndim = self:int(1), offset = self:int(8), size = {}, stride = {}}
    local s = self.segment[t.segment]
    if not s or t.ndim > 8 then damaged('tensor %d is of segment %d with %d dimensions', i, t.segment, t.ndim) end
    if t.flag > 1 or (t.flag == 1 and not types.is_float(s.code)) then
      damaged('tensor %d of %s is marked %d, which it cannot be', i, s.dtype, t.flag)
    end
    local last, empty, plain = t.offset, false, t.offset == 0
    for d = 1, t.ndim do
      t.size[d], t.stride[d] = self:int(8), self:int(8)
      if t.size[d] == 0 then empty = true end
      last = last + (t.size[d] - 1) * t.stride[d]
    end
    t.count = memory.count(t.size)
    if not t.count or (not empty and last >= s.count) then damaged('tensor %d reaches outside its segment', i) end
    local step = 1
    for d = t.ndim, 1, -1 do
      plain = plain and t.stride[d] == step
      step = step * math.max(t.size[d], 1)
    end
    t.whole = plain and t.count == s.count
    self.tensor[i] = t
  end
end

-- The segment's elements as a tensor, read when first needed.
function Reader:base(s, shape)
  if s.base then return s.base end
  local what = string.format('the data of %s', self:place())
  local ok, reason = self.limit:take(s.bytes)
  if not ok then damaged('%s: %s', what, reason) end
  local crc = ffi.new 'uint32_t[1]'
  local why
  s.base, why = memory.read(self.f, s.at, shape or {s.count}, s.dtype, false, crc)
  if not s.base then damaged('%s could not be read: %s', what, why) end
  if crc[0] ~= s.crc then damaged('%s are damaged (CRC %08x, expected %08x)', what, crc[0], s.crc) end
  if self.device then s.base = s.base:to(self.device) end
  return s.base
end

function Reader:get_tensor(i)
  local t = self.tensor[i]
  if not t then damaged('%s refers to tensor %d of %d', self:place(), i, #self.tensor) end
  if t.made then return t.made end
  local s = self.segment[t.segment]
  local made
  if t.count == 0 then
    made = memory.tensor(ffi.new('uint8_t[1]'), 0, t.size, s.dtype)
    if self.device then made = made:to(self.device) end
  elseif t.whole and not s.base then
    made = self:base(s, t.size)
  else
    made = self:base(s):as_strided(t.size, t.stride, t.offset)
  end
  if t.flag == 1 then made.requires_grad = true end
  t.made = made
  return made
end

-- -- The value --------------------------------------------------------------

function Reader:place() return #self.path == 0 and 'the value' or "'" .. memory.show(table.concat(self.path, '.')) .. "'" end

-- What is no table; nil where a table begins.
function Reader:plain(tag)
  if tag == 'd' then return self:double() end
  if tag == 's' then return self:string() end
  if tag == 'T' then return true end
  if tag == 'F' then return false end
  if tag == 'x' then return self:get_tensor(self:int(4)) end
  if tag == 'r' then
    local id = self:int(4)
    return self.tables[id] or damaged('%s refers to table %d of %d', self:place(), id, #self.tables)
  end
  if tag ~= 't' then damaged('an unknown entry 0x%02x at %s', string.byte(tag), self:place()) end
end

function Reader:tag()
  self:need(1)
  self.at = self.at + 1
  return string.char(self.p[self.at - 1])
end

-- A key is never a table, so keys do not nest.
function Reader:key()
  local tag = self:tag()
  local k
  if tag ~= 't' and tag ~= 'x' and tag ~= 'r' then k = self:plain(tag) end
  if k == nil or k ~= k then damaged('a key at %s is no string, number or boolean', self:place()) end
  return k
end

function Reader:value()
  local v = self:plain(self:tag())
  if v ~= nil then return v end
  if #self.path > checkpoint.max_depth then damaged('more than %d levels of tables', checkpoint.max_depth) end
  local n, out = self:int(4), {}
  self.tables[#self.tables + 1] = out
  for _ = 1, n do
    local k = self:key()
    if out[k] ~= nil then damaged("%s has the key '%s' a second time", self:place(), memory.show(k)) end
    self.path[#self.path + 1] = tostring(k)
    out[k] = self:value()
    self.path[#self.path] = nil
  end
  return out
end

-- Bytes between segments must be the zeros that were written.
function Reader:gaps()
  local function zeros(from, to)
    if to <= from then return end
    local p = read_bytes(self.f, from, to - from, 'padding')
    for i = 0, to - from - 1 do
      if p[i] ~= 0 then damaged('byte %d, which belongs to nothing, is not zero', from + i) end
    end
  end
  for i, s in ipairs(self.segment) do
    if s.at - s.gap_from >= 64 then damaged('segment %d lies at byte %.0f, expected %.0f', i, s.at, s.gap_from) end
    zeros(s.gap_from, s.at)
  end
  if self.index_at ~= self.data_end then damaged('its index does not follow its data') end
end

-- -- The file ---------------------------------------------------------------

local function read(f, device, most)
  local magic, size = checkpoint.magic, f.size
  local hint = kind.hint(f, 'checkpoint')
  if hint ~= '' then damaged('it is no checkpoint of amp%s', hint) end
  if size < HEADER + FOOTER then
    damaged('it has %d bytes, too few for a checkpoint: it is none, or was cut off', size)
  end
  local head = ffi.string(read_bytes(f, 0, HEADER, 'the header'), HEADER)
  if head:sub(1, 8) ~= magic then damaged('it is no checkpoint of amp (wrong magic)') end
  local foot = read_bytes(f, size - FOOTER, FOOTER, 'the footer')
  if ffi.string(foot + 24, 8) ~= magic then damaged('its end is missing: it was cut off or written over') end
  if core.C.amp_crc32(0, foot, 20) ~= file.unle(foot + 20, 4) then damaged('its footer is damaged') end
  local version = file.unle(ffi.cast('const uint8_t *', head) + 8, 4)
  if version ~= checkpoint.version then
    damaged('it has version %d of the format, this amp reads version %d', version, checkpoint.version)
  end
  if head:sub(13, 16) ~= '\0\0\0\0' then damaged('its header is damaged') end
  local at, length = file.unle(foot, 8), file.unle(foot + 8, 8)
  if at < HEADER or at + length + FOOTER ~= size then damaged('its index is said to be where the file has none') end
  local p = read_bytes(f, at, length, 'the index')
  if core.C.amp_crc32(0, p, length) ~= file.unle(foot + 16, 4) then damaged('its index is damaged') end

  local r = setmetatable({f = f, p = p, at = 0, size = length, index_at = at, device = device, limit = limit.new(most, size), segment = {}, tensor = {},
    tables = {}, path = {}}, Reader)
  r:segments()
  r:gaps()
  r:tensors()
  -- a segment with several tensors is a vector that all of them view
  local uses = {}
  for _, t in ipairs(r.tensor) do uses[t.segment] = (uses[t.segment] or 0) + 1 end
  for _, t in ipairs(r.tensor) do t.whole = t.whole and uses[t.segment] == 1 end
  local value = r:value()
  if r.at ~= r.size then damaged('%d bytes after the value in its index', r.size - r.at) end
  return value
end

--- Read a checkpoint.
-- @tparam string path
-- @tparam ?table given map_location: the device tensors go to, default 'cpu'; max_bytes: the most that they may take
-- @return what was saved; tensors that shared memory share it again
-- @raise with the file's name: missing, cut off, damaged, of another version
-- @usage local run = amp.load('run.amp'); net:load_state_dict(run.model)
return function(path, given)
  if type(path) ~= 'string' then raise('load', 'a path expected, got %s', require('amp.util').kind(path)) end
  local o = options.read('load', given, {'map_location', 'max_bytes'})
  limit.check('load', o.max_bytes)
  local device = o.map_location
  if device ~= nil then types.device(device, 'load') end
  if device == 'cpu' then device = nil end
  local f, why = file.open(path)
  if not f then raise('load', "cannot read '%s': %s", path, why) end
  local ok, value = pcall(read, f, device, o.max_bytes)
  f:close()
  if ok then return value end
  if getmetatable(value) == Damage then raise('load', "'%s': %s", path, value.text) end
  memory.rethrow('load', path, value)
end
