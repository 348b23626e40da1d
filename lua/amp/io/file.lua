--- Files for the formats of amp.io: bytes read at a place, and files that are replaced whole or not at all.
--
-- Functions give nil and a reason on failure; the formats turn that into an error with the file's name. Only regular files are read
-- and replaced: a folder, a pipe or a device is refused, whoever asks. Reading never maps a file (src/dispatch/file.c says why). A
-- handful of POSIX calls are reached under names of our own, so nothing clashes with another library's cdef.
local bit = require 'bit'
local ffi = require 'ffi'
local core = require 'amp.ffi'
local S, L = core.S, core.C

ffi.cdef [[
size_t amp_posix_fwrite(const void *from, size_t size, size_t n, void *file) __asm__("fwrite");
void *amp_posix_fdopen(int fd, const char *mode) __asm__("fdopen");
int amp_posix_fflush(void *file) __asm__("fflush");
int amp_posix_fclose(void *file) __asm__("fclose");
int amp_posix_fsync(int fd) __asm__("fsync");
int amp_posix_open(const char *path, int flags, ...) __asm__("open");
int amp_posix_close(int fd) __asm__("close");
int amp_posix_getpid(void) __asm__("getpid");
int amp_posix_flock(int fd, int what) __asm__("flock");
char *amp_posix_strerror(int code) __asm__("strerror");
ssize_t amp_posix_readlink(const char *path, char *to, size_t n) __asm__("readlink");
int amp_posix_fchmod(int fd, unsigned mode) __asm__("fchmod");
]]
local C = ffi.C
local O_RDONLY, O_RDWR, O_CREAT, O_EXCL, O_CLOEXEC = 0, 2, 64, 128, 524288
if ffi.os == 'OSX' then O_CREAT, O_EXCL, O_CLOEXEC = 512, 2048, 16777216 end
local LOCK, LOCK_NOW = 2, 6
local EEXIST = 17

local M = {}

local function reason() return ffi.string(C.amp_posix_strerror(ffi.errno())) end

-- The system would read a path only as far as its first NUL.
local function usable(path)
  if path:find('\0', 1, true) then return nil, 'a path has no byte 0' end
  return true
end
M.usable = usable

-- -- Reading ------------------------------------------------------------------------------

local File = {}
File.__index = File

--- Open a regular file for reading.
-- @tparam string path
-- @return a file with `path`, `size` in bytes and `fd`, or nil and the reason
function M.open(path)
  local fine, why = usable(path)
  if not fine then return nil, why end
  local size = ffi.new 'int64_t[1]'
  local fd = L.amp_file_open(S, path, size)
  if fd < 0 then return nil, ffi.string(S.err.message) end
  local self = setmetatable({ path = path, fd = fd, size = tonumber(size[0]), guard = newproxy(true) }, File)
  getmetatable(self.guard).__gc = function() self:close() end -- of a file that was dropped
  return self
end

--- Read n bytes from byte `at` (0) on into memory.
-- @return true, or nil and the reason
function File:read(to, n, at)
  if L.amp_file_read(S, self.fd, to, n, at or 0) < 0 then return nil, ffi.string(S.err.message) end
  return true
end

--- n bytes (all) from byte `at` (0) on as a string; or nil and the reason.
function File:text(n, at)
  at = at or 0
  n = n or self.size - at
  if n > 2 ^ 31 - 1024 then return nil, ('its %.0f bytes are more than a string of Lua holds'):format(n) end -- LuaJIT's limit
  local buffer = ffi.new('uint8_t[?]', math.max(n, 1))
  local ok, why = self:read(buffer, n, at)
  if not ok then return nil, why end
  return ffi.string(buffer, n)
end

--- Close; twice is harmless.
function File:close()
  if self.fd then C.amp_posix_close(self.fd) end
  self.fd = nil
end

--- A whole file as a string, or nil and the reason.
function M.text(path)
  local f, why = M.open(path)
  if not f then return nil, why end
  local text
  text, why = f:text()
  f:close()
  return text, why
end

-- -- Where to write --------------------------------------------------------------------

local function folder_of(path)
  local folder, name = path:match '^(.*/)([^/]*)$'
  return folder or '', name or path
end

local kinds = { [L.AMP_FILE_FOLDER] = 'a folder', [L.AMP_FILE_PIPE] = 'a pipe', [L.AMP_FILE_SOCKET] = 'a socket', [L.AMP_FILE_DEVICE] = 'a device' }

-- Where a file that is to be written really is, behind links (of which the last may lead to nothing yet), and its permission
-- bits, nil where it is new; or nil and the reason.
local function target(path)
  local mode, link = ffi.new 'uint32_t[1]', ffi.new 'char[4096]'
  for _ = 1, 40 do
    local kind = L.amp_file_kind(path, 0, mode)
    if kind == L.AMP_FILE_NONE then return path end
    if kind < 0 then return nil, nil, ffi.string(C.amp_posix_strerror(-kind)) end
    if kind == L.AMP_FILE_REGULAR then return path, mode[0] end
    if kind ~= L.AMP_FILE_LINK then return nil, nil, ('it is %s, not a regular file'):format(kinds[kind] or 'something else') end
    local n = tonumber(C.amp_posix_readlink(path, link, 4095))
    if n < 0 then return nil, nil, reason() end
    local to = ffi.string(link, n)
    path = to:sub(1, 1) == '/' and to or folder_of(path) .. to
  end
  return nil, nil, 'it is a link that leads to itself'
end

local function sync_folder(path)
  local folder = folder_of(path)
  local fd = C.amp_posix_open(folder == '' and '.' or folder, O_RDONLY)
  if fd >= 0 then -- some file systems refuse to sync a folder: the rename is done all the same
    C.amp_posix_fsync(fd)
    C.amp_posix_close(fd)
  end
end

-- -- Temporary files ---------------------------------------------------------------------

-- FOLDER/NAME.PROCESS-NUMBER.lock.tmp, locked as long as its process writes it; without `lock` where the file system has no
-- locks. A long name is cut, so that the system takes it.
local function stem_of(name)
  if #name <= 200 then return name end
  return ('%s~%08x'):format(name:sub(1, 180), L.amp_crc32(0, name, #name))
end

local made = tonumber(tostring({}):match '0x0*(%x+)' or '0', 16) % 2 ^ 40 -- differs between the Lua states of a process

-- A new temporary file: its descriptor and name, or nil and the reason.
local function temporary(path, private)
  local folder, name = folder_of(path)
  for _ = 1, 100 do
    made = made + 1
    local base = ('%s%s.%d-%x'):format(folder, stem_of(name), C.amp_posix_getpid(), made)
    local at = base .. '.lock.tmp'
    local fd = C.amp_posix_open(at, bit.bor(O_RDWR, O_CREAT, O_EXCL, O_CLOEXEC), ffi.cast('int', private and 384 or 438))
    if fd < 0 then
      if ffi.errno() ~= EEXIST then return nil, reason() end
    elseif C.amp_posix_flock(fd, LOCK) == 0 then
      if L.amp_file_kind(at, 0, nil) == L.AMP_FILE_REGULAR then return fd, at end
      C.amp_posix_close(fd) -- swept between its making and its lock
    else
      local plain = base .. '.tmp'
      local ok, why = os.rename(at, plain)
      if ok then return fd, plain end
      C.amp_posix_close(fd)
      os.remove(at)
      return nil, (why:gsub('^.*: ', ''))
    end
  end
  return nil, 'there is no name for a temporary file'
end

-- Whether a temporary file's process is gone.
local function orphaned(at, process, locked)
  if not locked and (process == C.amp_posix_getpid() or L.amp_file_alive(process) ~= 0) then return false end
  local fd = C.amp_posix_open(at, bit.bor(O_RDWR, O_CLOEXEC))
  if fd < 0 then return false end
  local free = C.amp_posix_flock(fd, LOCK_NOW) == 0
  if free then os.remove(at) end -- while nobody else can lock it
  C.amp_posix_close(fd)
  return free
end

-- Remove the temporary files of a path whose processes were killed.
local function sweep(path)
  local folder, name = folder_of(path)
  local stem = stem_of(name) .. '.'
  local list = require('amp.data.folders').names(folder == '' and '.' or folder, stem)
  for _, entry in ipairs(list or {}) do
    local process, rest = entry:sub(#stem + 1):match '^(%d+)%-%x+(%.?%l*)%.tmp$'
    if process and #process < 10 and (rest == '' or rest == '.lock') and L.amp_file_kind(folder .. entry, 0, nil) == L.AMP_FILE_REGULAR then
      orphaned(folder .. entry, tonumber(process), rest == '.lock')
    end
  end
end

--- Write a file that appears whole or not at all.
-- fill writes into a temporary file in the same folder; it is synced to the disk and then renamed, so a process killed at any moment
-- leaves the old file. What killed processes left of that file is removed. A file that is replaced keeps its permissions; a link goes
-- on leading to it. Anything but a regular file is left as it is.
-- @tparam string path
-- @tparam function fill is called with put(data [, bytes]), data a string or a pointer; an error in it removes the temporary
-- file and goes on to the caller
-- @return true, or nil and the reason
function M.replace(path, fill)
  local fine, why = usable(path)
  if not fine then return nil, why end
  local real, mode
  real, mode, why = target(path)
  if not real then return nil, why end
  if real == '' or real:sub(-1) == '/' then return nil, 'it names no file' end
  sweep(real)
  local fd, at = temporary(real, mode ~= nil)
  if not fd then return nil, at end
  local f = C.amp_posix_fdopen(fd, 'wb')
  if f == nil then
    why = reason()
    C.amp_posix_close(fd)
    os.remove(at)
    return nil, why
  end
  if mode then C.amp_posix_fchmod(fd, mode) end
  local failed
  local function put(data, n)
    n = n or #data
    if n > 0 and not failed and C.amp_posix_fwrite(data, 1, n, f) ~= n then failed = reason() end
    if failed then error(put, 0) end -- unwinds fill; caught below by identity
  end
  local ok, err = pcall(fill, put)
  if ok and (C.amp_posix_fflush(f) ~= 0 or C.amp_posix_fsync(fd) ~= 0) then ok, failed = false, reason() end
  if ok then
    ok, why = os.rename(at, real)
    if not ok then failed = why:gsub('^.*: ', '') end
  end
  C.amp_posix_fclose(f) -- only now: the lock goes with it
  if ok then
    sync_folder(real)
    return true
  end
  os.remove(at)
  if failed then return nil, failed end
  error(err, 0)
end

-- -- Numbers in bytes --------------------------------------------------------------------

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

local double = ffi.new 'union { double value; uint32_t word[2]; }'
local HIGH, LOW = ffi.abi 'le' and 1 or 0, ffi.abi 'le' and 0 or 1

--- The double in the eight bytes at p, in this machine's order, every NaN as Lua's own: the bits of another one would be taken for
-- a table, a function or a pointer. Every float that was not computed here is read by this or in C (amp__one_nan).
function M.double(p)
  ffi.copy(double, p, 8)
  local high = double.word[HIGH] % 2 ^ 31
  if high > 0x7ff00000 or high == 0x7ff00000 and double.word[LOW] ~= 0 then return 0 / 0 end
  return double.value
end

local float = ffi.new 'union { float value; uint32_t bits; }'

--- The same of the float in the four bytes at p.
function M.single(p)
  ffi.copy(float, p, 4)
  if float.bits % 2 ^ 31 > 0x7f800000 then return 0 / 0 end
  return float.value
end

return M
