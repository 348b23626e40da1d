--- Files that are appended to: folders made on the way, whole records, nothing left half written.
--
-- Each append is one write of the system's at the file's end, so a process that is killed leaves at worst the last record cut, which
-- who opens the file again takes away. A record that the disk has no room for is taken away at once: the file goes on with the next.
local bit = require 'bit'
local ffi = require 'ffi'
local L = require('amp.ffi').C
local file = require 'amp.io.file'

ffi.cdef [[
int amp_posix_mkdir(const char *path, unsigned mode) __asm__("mkdir");
int amp_posix_truncate(const char *path, int64_t size) __asm__("truncate");
int amp_posix_ftruncate(int fd, int64_t size) __asm__("ftruncate");
int64_t amp_posix_lseek(int fd, int64_t at, int from) __asm__("lseek");
ssize_t amp_posix_write(int fd, const void *from, size_t n) __asm__("write");
int amp_posix_gethostname(char *name, size_t n) __asm__("gethostname");
]]
local C = ffi.C
local EEXIST, EINTR = 17, 4
local O_WRONLY, O_CREAT, O_APPEND, O_CLOEXEC = 1, 64, 1024, 524288
if ffi.os == 'OSX' then O_CREAT, O_APPEND, O_CLOEXEC = 512, 8, 16777216 end

local M = {}

local function reason() return ffi.string(C.amp_posix_strerror(ffi.errno())) end

--- Make a folder, and those it is in.
-- @return true, or nil and the reason
function M.make_folder(path)
  local fine, why = file.usable(path)
  if not fine then return nil, why end
  local at = path:sub(1, 1) == '/' and '/' or ''
  for name in path:gmatch '[^/]+' do
    at = at .. name
    if C.amp_posix_mkdir(at, 511) ~= 0 and ffi.errno() ~= EEXIST then return nil, reason() end
    at = at .. '/'
  end
  return true
end

--- Name of this machine, as it may stand in a file's name.
function M.host()
  local name = ffi.new 'char[256]'
  if C.amp_posix_gethostname(name, 255) ~= 0 then return 'host' end
  return (ffi.string(name):gsub('[^%w.-]', '_'))
end

function M.process() return C.amp_posix_getpid() end

local Appender = {}
Appender.__index = Appender

local SEEK_END = 2

--- Open a file to append to it, made if it is not there.
-- @tparam string path
-- @tparam ?boolean anew what it held goes
-- @return an appender, or nil and the reason
function M.append(path, anew)
  local fine, why = file.usable(path)
  if not fine then return nil, why end
  local kind = L.amp_file_kind(path, 1, nil)
  if kind > L.AMP_FILE_REGULAR then return nil, 'it is not a regular file' end
  local fd = C.amp_posix_open(path, bit.bor(O_WRONLY, O_CREAT, O_APPEND, O_CLOEXEC), ffi.cast('int', 438))
  if fd < 0 then return nil, reason() end
  if anew and C.amp_posix_ftruncate(fd, 0) ~= 0 then
    why = reason()
    C.amp_posix_close(fd)
    return nil, why
  end
  local self = setmetatable({fd = fd, guard = newproxy(true)}, Appender)
  getmetatable(self.guard).__gc = function() self:close() end
  return self
end

-- Take away what a failed write left behind the last whole record; false where that can't be done now.
local function mend(self)
  if not self.whole then return true end
  if C.amp_posix_ftruncate(self.fd, self.whole) ~= 0 then return false end
  self.whole = nil
  return true
end

--- Append bytes: all of them, or none.
-- @return true, or nil and the reason
function Appender:write(bytes)
  if not mend(self) then return nil, reason() end
  local before = C.amp_posix_lseek(self.fd, 0, SEEK_END)
  local at, left = ffi.cast('const char *', bytes), #bytes
  while left > 0 do
    local n = tonumber(C.amp_posix_write(self.fd, at, left))
    if n < 0 then
      if ffi.errno() ~= EINTR then
        local why = reason()
        if before >= 0 and left < #bytes then
          self.whole = before
          mend(self)
        end
        return nil, why
      end
    else
      at, left = at + n, left - n
    end
  end
  return true
end

--- Have the disk keep what was written.
function Appender:sync() C.amp_posix_fsync(self.fd) end

function Appender:close()
  if self.fd and self.whole then mend(self) end
  if self.fd then C.amp_posix_close(self.fd) end
  self.fd = nil
end

--- Cut a file off after n bytes.
-- @return true, or nil and the reason
function M.truncate(path, n)
  if C.amp_posix_truncate(path, n) ~= 0 then return nil, reason() end
  return true
end

return M
