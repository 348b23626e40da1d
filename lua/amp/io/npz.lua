--- npz: tensors by name in one file, as NumPy's savez and savez_compressed write it.
--
-- A file is a zip archive of npy files. Entries are found by the directory at its end;
-- each is checked against its size and checksum. Stored and deflated ones are read
-- (deflated ones through zlib), stored ones are written.
local bit = require 'bit'
local next_key = require('amp.core.keys').next
local ffi = require 'ffi'
local amp = require 'amp'
local core = require 'amp.ffi'
local file = require 'amp.io.file'
local kind = require 'amp.io.kind'
local limit = require 'amp.io.limit'
local memory = require 'amp.io.memory'
local npy = require 'amp.io.npy'
local options = require 'amp.options'
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

-- Bytes of a file as a byte array; nil and the reason.
local function bytes(f, n, at)
  if n > 2 ^ 31 - 64 then return nil, string.format('its directory of %.0f bytes is too long', n) end
  local p = ffi.new('uint8_t[?]', math.max(n, 1))
  local ok, why = f:read(p, n, at)
  if not ok then return nil, why end
  return p
end

-- Where the directory begins and ends, and how many entries it has; nil and the reason.
local function find_directory(f)
  local size = f.size
  local p, why = bytes(f, math.min(size, 4), 0)
  if not p then return nil, why end
  if size < 22 or file.unle(p, 4) ~= LOCAL and file.unle(p, 4) ~= END then return nil, "it is no npz file: these are zip archives, which begin with 'PK'" end
  local from = math.max(0, size - 22 - 65535 - 20)
  p, why = bytes(f, size - from, from)
  if not p then return nil, why end
  for at = size - 22 - from, math.max(0, size - 22 - 65535) - from, -1 do
    if p[at] == 0x50 and file.unle(p + at, 4) == END and from + at + 22 + file.unle(p + at + 20, 2) == size then
      local entries, length, first = file.unle(p + at + 10, 2), file.unle(p + at + 12, 4), file.unle(p + at + 16, 4)
      if (entries == 0xffff or length == NONE or first == NONE) and at >= 20 and file.unle(p + at - 20, 4) == LOCATOR64 then
        local big = file.unle(p + at - 12, 8)
        local q = big + 56 <= size and bytes(f, 56, big)
        if not q or file.unle(q, 4) ~= END64 then return nil, 'its zip64 directory is not where it should be' end
        entries, length, first = file.unle(q + 32, 8), file.unle(q + 40, 8), file.unle(q + 48, 8)
      end
      if first + length > from + at then return nil, 'its directory reaches beyond the file' end
      return first, first + length, entries
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

local function read_directory(f)
  local first, last, count = find_directory(f)
  if not first then return nil, last end
  local p, why = bytes(f, last - first, first)
  if not p then return nil, why end
  local list, seen, at, stop = {}, {}, 0, last - first
  for i = 1, count do
    if at + 46 > stop or file.unle(p + at, 4) ~= DIRECTORY then return nil, string.format('entry %d of its directory is damaged', i) end
    local name_length, extra, comment = file.unle(p + at + 28, 2), file.unle(p + at + 30, 2), file.unle(p + at + 32, 2)
    if at + 46 + name_length + extra + comment > stop then return nil, string.format('entry %d of its directory is damaged', i) end
    local e = { name = ffi.string(p + at + 46, name_length), flags = file.unle(p + at + 8, 2), method = file.unle(p + at + 10, 2),
      crc = file.unle(p + at + 16, 4), packed = file.unle(p + at + 20, 4), size = file.unle(p + at + 24, 4), offset = file.unle(p + at + 42, 4) }
    big_fields(p + at + 46 + name_length, extra, e)
    if seen[e.name] then return nil, string.format("'%s' is in it twice", memory.show(e.name)) end
    seen[e.name] = true
    list[i] = e
    at = at + 46 + name_length + extra + comment
  end
  return list, first
end

-- Find each entry's bytes. They belong to it alone: a directory that names the same bytes again and again promises any size.
local function locate(f, list, stop)
  local head = ffi.new 'uint8_t[30]'
  for _, e in ipairs(list) do
    if e.offset + 30 > stop or not f:read(head, 30, e.offset) or file.unle(head, 4) ~= LOCAL then
      return nil, string.format("'%s' is not where its directory says", memory.show(e.name))
    end
    e.name_length = file.unle(head + 26, 2)
    e.at = e.offset + 30 + e.name_length + file.unle(head + 28, 2)
    if e.at + e.packed > stop then return nil, string.format("'%s' reaches beyond its place: it is cut off", memory.show(e.name)) end
  end
  local order = {}
  for i, e in ipairs(list) do order[i] = e end
  table.sort(order, function(a, b)
    if a.offset ~= b.offset then return a.offset < b.offset end
    return a.name < b.name
  end)
  for i = 2, #order do
    local a, b = order[i - 1], order[i]
    if a.at + a.packed > b.offset then return nil, string.format("'%s' and '%s' overlap", memory.show(a.name), memory.show(b.name)) end
  end
  for _, e in ipairs(list) do
    local name = bytes(f, e.name_length, e.offset + 30)
    if not name or ffi.string(name, e.name_length) ~= e.name then return nil, string.format("'%s' has another name where it stands", memory.show(e.name)) end
  end
  return true
end

-- -- Entries -------------------------------------------------------------------------------------

local PIECE = 2 ^ 18

-- Unpack the first n bytes of a deflated entry to `to`; whole: they must be all of it.
local function inflate(f, e, to, n, whole)
  local zlib, why = require('amp.data.gzip').zlib()
  if not zlib then return nil, why end
  local s, piece = ffi.new 'amp_z_stream', ffi.new('uint8_t[?]', PIECE)
  if zlib.amp_inflateInit2(s, -15, '1', ffi.sizeof(s)) ~= 0 then return nil, 'zlib cannot begin' end
  local taken, made, code, ok = 0, 0, 0, true
  local spare = ffi.new 'uint8_t[1]' -- to notice data after its end
  while code == 0 and (made < n or whole) do
    if s.avail_in == 0 and taken < e.packed then
      local k = math.min(PIECE, e.packed - taken)
      ok, why = f:read(piece, k, e.at + taken)
      if not ok then break end
      s.next_in, s.avail_in, taken = piece, k, taken + k
    end
    local room = math.min(n - made, 2 ^ 30)
    s.next_out, s.avail_out = to + made, room
    if room == 0 then s.next_out, s.avail_out, room = spare, 1, 1 end
    local had = s.avail_in
    code = zlib.amp_inflate(s, 0)
    local got = room - s.avail_out
    made = made + got
    if made > n or code == 0 and got == 0 and s.avail_in == had and taken == e.packed then break end
  end
  zlib.amp_inflateEnd(s)
  if not ok then return nil, why end
  if made ~= n or whole and (code ~= 1 or taken - s.avail_in ~= e.packed) then return nil, 'its compressed data are damaged' end
  return true
end

-- A deflated entry's first bytes as a file: enough for its header; its size is the entry's.
local function beginning(f, e)
  local n = math.min(e.size, 2 ^ 16 + 12)
  local p = ffi.new('uint8_t[?]', math.max(n, 1))
  local ok, why = inflate(f, e, p, n, false)
  if not ok then return nil, why end
  return memory.bytes(p, n, p)
end

-- The tensor of an entry. Or nil, the reason, and true where the archive is whole, but this is nothing for amp.
local function member(f, e, budget)
  if not e.name:match '%.npy$' then return nil, 'it is no npy file', true end
  if bit.band(e.flags, 1) ~= 0 then return nil, 'it is encrypted', true end
  if e.method ~= STORED and e.method ~= DEFLATED then
    return nil, string.format('it is packed by method %d; 0 (stored) and 8 (deflated) are known', e.method), true
  end
  local source, at, why = f, e.at
  if e.method == STORED then
    if e.packed ~= e.size then return nil, 'its two sizes differ' end
  else
    if e.size > e.packed * 1040 + 64 then return nil, 'its sizes cannot be right' end -- no data shrink more than that
    source, why = beginning(f, e)
    if not source then return nil, why end
    at = 0
  end
  local crc = ffi.new 'uint32_t[1]'
  local h, other
  h, why, other = npy.header(source, at, e.size, crc)
  if not h then return nil, why, other end
  local ok
  ok, why = budget:take(h.bytes)
  if not ok then return nil, why end
  local buffer, t
  if e.method == DEFLATED then
    buffer = amp.empty({ e.size }, { dtype = 'uint8', device = 'cpu' })
    local p = ffi.cast('uint8_t *', buffer:data_ptr())
    ok, why = inflate(f, e, p, e.size, true)
    source = memory.bytes(p, e.size, buffer)
  end
  if ok then t, why = npy.body(source, h, crc) end
  if buffer then buffer:free() end
  if not t then return nil, why end
  if crc[0] ~= e.crc then return nil, 'its checksum is wrong: the data are damaged' end
  return t
end

-- A table of what an archive holds. What is no array of amp's is an error when somebody asks for it.
local function named(op, path, foreign)
  return setmetatable({}, { __index = function(_, name)
    local why = foreign[name]
    if why then raise(op, "'%s': '%s' can't be read: %s", path, memory.show(name), why) end
  end })
end

--- The entries of an archive: name, method, at, packed, size of each; nil and the reason. For amp.io.pt.
function M.entries(f)
  local list, stop = read_directory(f)
  if not list then return nil, stop end
  local ok, why = locate(f, list, stop)
  if not ok then return nil, why end
  return list
end

local function read_all(f, path, given)
  local list, stop = read_directory(f)
  if not list then return nil, stop .. kind.hint(f, 'npz') end
  local ok, why = locate(f, list, stop)
  if not ok then return nil, why end
  local budget, foreign = limit.new(given, f.size), {}
  local tensors, plain = named('io.load_npz', path, foreign), 0
  for _, e in ipairs(list) do
    local name = e.name:match '^(.*)%.npy$' or e.name
    local t, reason, other = member(f, e, budget)
    if t then
      rawset(tensors, name, t)
      plain = plain + 1
    elseif other then
      foreign[name] = reason
    else
      return nil, string.format("'%s': %s", memory.show(name), reason)
    end
  end
  local first = next_key(foreign)
  if plain == 0 and first and not list[1].name:find '%.npy$' then
    local hint = kind.hint(f, 'npz')
    if hint ~= '' then return nil, 'it is no npz file: it holds no npy files' .. hint end
  end
  return tensors
end

--- Read an npz file.
-- What in it is no array that amp has (text, complex numbers, Python objects, a file that is no npy) is left out: asking for it by its
-- name is an error that says why.
-- @tparam string path
-- @tparam ?table given max_bytes (the most that the tensors may take; 100 times the file's size and at least 256 MiB where it isn't
-- given)
-- @treturn table name -> tensor, on the CPU
-- @usage local t = amp.io.load_npz('mnist.npz'); print(t.x_train:size())
function M.load_npz(path, given)
  local op = 'io.load_npz'
  if type(path) ~= 'string' then raise(op, 'a path expected, got %s', require('amp.util').kind(path)) end
  local o = options.read(op, given, { 'max_bytes' })
  limit.check(op, o.max_bytes)
  local f, why = file.open(path)
  if not f then raise(op, "cannot read '%s': %s", path, why) end
  local ok, tensors
  ok, tensors, why = pcall(read_all, f, path, o.max_bytes)
  f:close()
  if not ok then memory.rethrow(op, path, tensors) end
  if not tensors then raise(op, "'%s': %s", path, why) end
  return tensors
end

-- -- Writing ---------------------------------------------------------------------------------------

--- Write tensors to a file, which is replaced whole or not at all.
-- @tparam string path
-- @tparam table tensors name -> tensor, of any dtype but bfloat16
-- @usage amp.io.save_npz('weights.npz', net:state_dict())
function M.save_npz(path, tensors)
  local op = 'io.save_npz'
  if type(path) ~= 'string' then raise(op, 'a path expected, got %s', require('amp.util').kind(path)) end
  local members = {}
  for i, name in ipairs(memory.names(op, tensors)) do
    local t = tensors[name]
    local head, why = npy.head(t)
    if not head then raise(op, "cannot write '%s': '%s': %s", path, name, why) end
    if #name > 60000 then raise(op, "cannot write '%s': a name of %d bytes is too long", path, #name) end
    local crc = C.amp_crc32(0, head, #head)
    memory.each(t, function(p, n) crc = C.amp_crc32(crc, p, n) end)
    members[i] = { name = name .. '.npy', crc = crc, size = #head + t:numel() * memory.width(t.dtype), write = function(put)
      put(head)
      memory.each(t, put)
    end }
  end
  local ok, why = file.replace(path, function(put) require('amp.io.zip').write(put, members) end)
  if not ok then raise(op, "cannot write '%s': %s", path, why) end
end

return M
