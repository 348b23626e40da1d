--- Files for the formats of amp.io: memory maps, blocks to and from memory, and
-- files that are replaced whole or not at all.
--
-- Functions give nil and a reason on failure; the formats turn that into an
-- error with the file's name. C's stdio and a handful of POSIX calls are reached
-- under names of our own, so nothing clashes with another library's cdef.
local ffi = require 'ffi'

ffi.cdef [[
size_t amp_posix_fread(void *to, size_t size, size_t n, void *file) __asm__("fread");
size_t amp_posix_fwrite(const void *from, size_t size, size_t n, void *file) __asm__("fwrite");
int amp_posix_fileno(void *file) __asm__("fileno");
int amp_posix_fsync(int fd) __asm__("fsync");
int amp_posix_open(const char *path, int flags, ...) __asm__("open");
int amp_posix_close(int fd) __asm__("close");
int amp_posix_getpid(void) __asm__("getpid");
char *amp_posix_strerror(int code) __asm__("strerror");
void *amp_posix_mmap(void *at, size_t n, int protection, int flags, int fd, long offset) __asm__("mmap");
int amp_posix_munmap(void *at, size_t n) __asm__("munmap");
char *amp_posix_realpath(const char *path, char *resolved) __asm__("realpath");
void amp_posix_free(void *p) __asm__("free");
int amp_posix_fchmod(int fd, unsigned mode) __asm__("fchmod");
int amp_posix_statx(int dir, const char *path, int flags, unsigned mask, void *out) __asm__("statx");
]]
local C = ffi.C
local PROT_READ, MAP_PRIVATE, O_RDONLY = 1, 2, 0

local M = {}

local function reason() return ffi.string(C.amp_posix_strerror(ffi.errno())) end

--- Open a file for reading.
-- @tparam string path
-- @return the Lua file and its size in bytes, or nil and the reason
function M.open(path)
  local f, why = io.open(path, 'rb')
  if not f then return nil, (why:gsub('^.*: ', '')) end
  local size = f:seek('end')
  -- a directory opens, and seeks to a size no file has
  if not size or size > 2 ^ 60 or not f:seek('set', 0) then
    f:close()
    return nil, 'not a regular file'
  end
  return f, size
end

--- Read n bytes into memory.
-- @treturn number bytes read: less than n only at the end of the file or on an error
function M.read(f, to, n) return tonumber(C.amp_posix_fread(to, 1, n, f)) end

--- Map a whole file into memory, read-only.
-- @return pointer and size, or nil and the reason; give back by `unmap`
function M.map(path)
  local f, size = M.open(path)
  if not f then return nil, size end
  if size == 0 then
    f:close()
    return ffi.new('uint8_t[1]'), 0
  end
  local p = C.amp_posix_mmap(nil, size, PROT_READ, MAP_PRIVATE, C.amp_posix_fileno(f), 0)
  local why = reason()
  f:close()
  if ffi.cast('intptr_t', p) == -1 then return nil, why end
  return ffi.cast('const uint8_t *', p), size
end

--- Give a map back. Pointers into it are void from then on.
function M.unmap(p, size)
  if size > 0 then C.amp_posix_munmap(ffi.cast('void *', p), size) end
end

local function sync_folder(path)
  local folder = path:match('^(.*)/[^/]*$')
  if folder == '' then folder = '/' end
  local fd = C.amp_posix_open(folder or '.', O_RDONLY)
  if fd >= 0 then -- some file systems refuse to sync a folder: the rename is done all the same
    C.amp_posix_fsync(fd)
    C.amp_posix_close(fd)
  end
end

-- Where a file really is: behind links, where there are some.
local function behind_links(path)
  local p = C.amp_posix_realpath(path, nil)
  if p == nil then return path end
  local real = ffi.string(p)
  C.amp_posix_free(p)
  return real
end

-- Permission bits of a file, nil if there is none or the system can't say.
local function mode(path)
  local out = ffi.new('uint16_t[128]') -- struct statx: the same on every machine, the mode at byte 28
  local ok, code = pcall(function() return C.amp_posix_statx(-100, path, 0, 2, out) end)
  return ok and code == 0 and out[14] % 4096 or nil
end

--- Write a file that appears whole or not at all.
-- fill writes into a temporary file in the same folder; it is synced to the disk
-- and then renamed, so a process killed at any moment leaves the old file. A file
-- that is replaced keeps its permissions, a link goes on pointing to it.
-- @tparam string path
-- @tparam function fill is called with put(data [, bytes]), data a string or a
-- pointer; an error in it removes the temporary file and goes on to the caller
-- @return true, or nil and the reason
function M.replace(path, fill)
  path = behind_links(path)
  -- of its own name in every process and Lua state
  local temporary = string.format('%s.%d-%s.tmp', path, C.amp_posix_getpid(), tostring({}):match('0x0*(%x+)') or '0')
  local f, why = io.open(temporary, 'wb')
  if not f then return nil, (why:gsub('^.*: ', '')) end
  local old = mode(path)
  if old then C.amp_posix_fchmod(C.amp_posix_fileno(f), old) end
  local failed
  local function put(data, n)
    n = n or #data
    if n > 0 and not failed and C.amp_posix_fwrite(data, 1, n, f) ~= n then failed = reason() end
    if failed then error(put, 0) end -- unwinds fill; caught below by identity
  end
  local ok, err = pcall(fill, put)
  if ok then
    if not f:flush() then ok, failed = false, reason() end
    if ok and C.amp_posix_fsync(C.amp_posix_fileno(f)) ~= 0 then ok, failed = false, reason() end
  end
  f:close()
  if ok then
    ok, why = os.rename(temporary, path)
    if not ok then failed = why:gsub('^.*: ', '') end
  end
  if ok then
    sync_folder(path)
    return true
  end
  os.remove(temporary)
  if failed then return nil, failed end
  error(err, 0)
end

--- A number of bytes as n little-endian bytes.
function M.le(value, n)
  local out = {}
  for i = 1, n do
    out[i] = string.char(value % 256)
    value = math.floor(value / 256)
  end
  return table.concat(out)
end

--- The number in n little-endian bytes at p (a byte pointer or a string's).
function M.unle(p, n)
  local value = 0
  for i = n - 1, 0, -1 do value = value * 256 + p[i] end
  return value
end

return M
