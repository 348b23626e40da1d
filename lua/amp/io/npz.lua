--- npz: tensors by name in one file, as NumPy's savez and savez_compressed write it.
--
-- A file is a zip archive of npy files. Entries are found by the directory at its end;
-- each is checked against its size and checksum. Stored and deflated ones are read
-- (deflated ones through zlib), stored ones are written.
local bit = require 'bit'
local ffi = require 'ffi'
local core = require 'amp.ffi'
local file = require 'amp.io.file'
local memory = require 'amp.io.memory'
local npy = require 'amp.io.npy'
local raise = require('amp.error').throw
local C = core.C

ffi.cdef [[
typedef struct amp_z_stream {
  const uint8_t *next_in; unsigned avail_in; unsigned long total_in;
  uint8_t *next_out; unsigned avail_out; unsigned long total_out;
  const char *msg; void *state, *zalloc, *zfree, *opaque;
  int data_type; unsigned long adler, reserved;
} amp_z_stream;
int amp_inflateInit2(amp_z_stream *s, int bits, const char *version, int size) __asm__("inflateInit2_");
int amp_inflate(amp_z_stream *s, int flush) __asm__("inflate");
int amp_inflateEnd(amp_z_stream *s) __asm__("inflateEnd");
]]

local M = {}

local STORED, DEFLATED = 0, 8
local LOCAL, DIRECTORY, END = 0x04034b50, 0x02014b50, 0x06054b50
local END64, LOCATOR64 = 0x06064b50, 0x07064b50
local NONE = 0xffffffff

-- -- The directory -----------------------------------------------------------------------------

-- Where the directory begins, how many bytes and entries it has; nil and the reason.
local function find_directory(p, size)
  if size < 22 or file.unle(p, 4) ~= LOCAL and file.unle(p, 4) ~= END then return nil, "it is no npz file: these are zip archives, which begin with 'PK'" end
  for at = size - 22, math.max(0, size - 22 - 65535), -1 do
    if p[at] == 0x50 and file.unle(p + at, 4) == END and at + 22 + file.unle(p + at + 20, 2) == size then
      local entries, bytes, first = file.unle(p + at + 10, 2), file.unle(p + at + 12, 4), file.unle(p + at + 16, 4)
      if (entries == 0xffff or bytes == NONE or first == NONE) and at >= 20 and file.unle(p + at - 20, 4) == LOCATOR64 then
        local big = file.unle(p + at - 12, 8)
        if big + 56 > size or file.unle(p + big, 4) ~= END64 then return nil, 'its zip64 directory is not where it should be' end
        entries, bytes, first = file.unle(p + big + 32, 8), file.unle(p + big + 40, 8), file.unle(p + big + 48, 8)
      end
      if first + bytes > at then return nil, 'its directory reaches beyond the file' end
      return first, first + bytes, entries
    end
  end
  return nil, 'its directory is missing: it is cut off'
end

-- Sizes and place of an entry that stand in its zip64 field, in the order of those that were too large.
local function big_fields(p, n, e)
  local at = 0
  while at + 4 <= n do
    local id, length = file.unle(p + at, 2), file.unle(p + at + 2, 2)
    if id == 1 and at + 4 + length <= n then
      local q = at + 4
      for _, key in ipairs { 'size', 'packed', 'offset' } do
        if e[key] == NONE and q + 8 <= at + 4 + length then
          e[key] = file.unle(p + q, 8)
          q = q + 8
        end
      end
    end
    at = at + 4 + length
  end
end

local function read_directory(p, size)
  local at, stop, count = find_directory(p, size)
  if not at then return nil, stop end
  local list, seen = {}, {}
  for i = 1, count do
    if at + 46 > stop or file.unle(p + at, 4) ~= DIRECTORY then return nil, string.format('entry %d of its directory is damaged', i) end
    local name_length, extra, comment = file.unle(p + at + 28, 2), file.unle(p + at + 30, 2), file.unle(p + at + 32, 2)
    if at + 46 + name_length + extra + comment > stop then return nil, string.format('entry %d of its directory is damaged', i) end
    local e = { name = ffi.string(p + at + 46, name_length), flags = file.unle(p + at + 8, 2), method = file.unle(p + at + 10, 2),
      crc = file.unle(p + at + 16, 4), packed = file.unle(p + at + 20, 4), size = file.unle(p + at + 24, 4), offset = file.unle(p + at + 42, 4) }
    big_fields(p + at + 46 + name_length, extra, e)
    if seen[e.name] then return nil, string.format("'%s' is in it twice", e.name) end
    seen[e.name] = true
    list[i] = e
    at = at + 46 + name_length + extra + comment
  end
  return list
end

-- -- Entries -------------------------------------------------------------------------------------

local function inflate(p, packed, size)
  local zlib, why = require('amp.data.gzip').zlib()
  if not zlib then return nil, why end
  if size >= 2 ^ 31 or packed >= 2 ^ 31 then return nil, 'it is larger than 2 GiB, compressed' end
  if size > packed * 1040 + 64 then return nil, 'its sizes cannot be right' end -- no data shrink more than that
  local out = ffi.new('uint8_t[?]', size + 1) -- one more, to notice data after its end
  local s = ffi.new 'amp_z_stream'
  if zlib.amp_inflateInit2(s, -15, '1', ffi.sizeof(s)) ~= 0 then return nil, 'zlib cannot begin' end
  s.next_in, s.avail_in, s.next_out, s.avail_out = p, packed, out, size + 1
  local code = zlib.amp_inflate(s, 4)
  local total = tonumber(s.total_out)
  zlib.amp_inflateEnd(s)
  if code ~= 1 or total ~= size then return nil, 'its compressed data are damaged' end
  return out
end

-- Pointer to the bytes of an entry (and what keeps them alive), or nil and the reason.
local function content(p, size, e)
  if bit.band(e.flags, 1) ~= 0 then return nil, 'it is encrypted' end
  if e.offset + 30 > size or file.unle(p + e.offset, 4) ~= LOCAL then return nil, 'it is not where the directory says' end
  local at = e.offset + 30 + file.unle(p + e.offset + 26, 2) + file.unle(p + e.offset + 28, 2)
  if at + e.packed > size then return nil, 'it is cut off' end
  local data = p + at
  if e.method == DEFLATED then
    local out, why = inflate(data, e.packed, e.size)
    if not out then return nil, why end
    data = out
  elseif e.method ~= STORED then
    return nil, string.format('it is packed by method %d; 0 (stored) and 8 (deflated) are known', e.method)
  elseif e.packed ~= e.size then
    return nil, 'its two sizes differ'
  end
  if C.amp_crc32(0, data, e.size) ~= e.crc then return nil, 'its checksum is wrong: the data are damaged' end
  return data
end

local function read_all(p, size)
  local list, why = read_directory(p, size)
  if not list then return nil, why end
  local tensors = {}
  for _, e in ipairs(list) do
    local name = e.name:match '^(.*)%.npy$'
    if not name then return nil, string.format("'%s' in it is no npy file", e.name) end
    local data, t
    data, why = content(p, size, e)
    if data then t, why = npy.decode(ffi.cast('const uint8_t *', data), e.size) end
    if not t then return nil, string.format("'%s': %s", name, why) end
    tensors[name] = t
  end
  return tensors
end

--- Read an npz file.
-- @tparam string path
-- @treturn table name -> tensor, on the CPU
-- @usage local t = amp.io.load_npz('mnist.npz'); print(t.x_train:size())
function M.load_npz(path)
  local op = 'io.load_npz'
  if type(path) ~= 'string' then raise(op, 'a path expected, got %s', type(path)) end
  local p, size = file.map(path)
  if not p then raise(op, "cannot read '%s': %s", path, size) end
  local ok, tensors, why = pcall(read_all, p, size)
  file.unmap(p, size)
  if not ok then error(tensors, 0) end
  if not tensors then raise(op, "'%s': %s", path, why) end
  return tensors
end

-- -- Writing ---------------------------------------------------------------------------------------

local le = file.le

--- Write tensors to a file, which is replaced whole or not at all.
-- @tparam string path
-- @tparam table tensors name -> tensor, of any dtype but bfloat16
-- @usage amp.io.save_npz('weights.npz', net:state_dict())
function M.save_npz(path, tensors)
  local op = 'io.save_npz'
  if type(path) ~= 'string' then raise(op, 'a path expected, got %s', type(path)) end
  local order = memory.names(op, tensors)
  local entries, at = {}, 0
  for i, name in ipairs(order) do
    local t = tensors[name]
    local head, why = npy.head(t)
    if not head then raise(op, "cannot write '%s': '%s': %s", path, name, why) end
    if #name > 60000 then raise(op, "cannot write '%s': a name of %d bytes is too long", path, #name) end
    local crc = C.amp_crc32(0, head, #head)
    memory.each(t, function(p, n) crc = C.amp_crc32(crc, p, n) end)
    local size = #head + t:numel() * memory.width(t.dtype)
    -- version, flags (names are UTF-8), stored, no time, checksum, sizes, length of the name
    local common = le(20, 2) .. le(0x800, 2) .. le(STORED, 2) .. le(0, 2) .. le(0x21, 2) .. le(crc, 4) .. le(size, 4) .. le(size, 4) .. le(#name + 4, 2)
    entries[i] = { head = head, common = common, at = at }
    at = at + 30 + #name + 4 + size
    if at > NONE or i > 65534 then
      raise(op, "cannot write '%s': more than 4 GiB or 65534 tensors do not fit a plain zip archive; use amp.io.safetensors", path)
    end
  end
  local ok, why = file.replace(path, function(put)
    for i, name in ipairs(order) do
      put(le(LOCAL, 4) .. entries[i].common .. le(0, 2) .. name .. '.npy')
      put(entries[i].head)
      memory.each(tensors[name], put)
    end
    local bytes = 0
    for i, name in ipairs(order) do
      -- no extra field, comment, disk number or attributes
      local entry = le(DIRECTORY, 4) .. le(20, 2) .. entries[i].common .. ('\0'):rep(12) .. le(entries[i].at, 4) .. name .. '.npy'
      put(entry)
      bytes = bytes + #entry
    end
    put(le(END, 4) .. le(0, 2) .. le(0, 2) .. le(#order, 2) .. le(#order, 2) .. le(bytes, 4) .. le(at, 4) .. le(0, 2))
  end)
  if not ok then raise(op, "cannot write '%s': %s", path, why) end
end

return M
