--- What a folder holds, sorted by name.
local ffi = require 'ffi'
local file = require 'amp.io.file'

local M = {}

local declared = pcall(ffi.sizeof, 'struct amp_posix_dirent') -- once a process, though this file may be loaded again
if not declared and ffi.os == 'OSX' then
  ffi.cdef [[
struct amp_posix_dirent { uint64_t ino, seekoff; uint16_t reclen, namlen; uint8_t type; char name[1024]; };
void *amp_posix_opendir(const char *path) __asm__("opendir$INODE64");
struct amp_posix_dirent *amp_posix_readdir(void *dir) __asm__("readdir$INODE64");
]]
elseif not declared then -- glibc and musl on 64-bit machines
  ffi.cdef [[
struct amp_posix_dirent { uint64_t ino; int64_t off; uint16_t reclen; uint8_t type; char name[256]; };
void *amp_posix_opendir(const char *path) __asm__("opendir");
struct amp_posix_dirent *amp_posix_readdir(void *dir) __asm__("readdir");
]]
end
ffi.cdef [[
int amp_posix_closedir(void *dir) __asm__("closedir");
char *amp_posix_realpath(const char *path, char *resolved) __asm__("realpath");
void amp_posix_free(void *p) __asm__("free");
int amp_posix_strncmp(const char *a, const char *b, size_t n) __asm__("strncmp");
]]
local C = ffi.C
local FOLDER, LINK, UNKNOWN = 4, 10, 0

local function is_folder(path)
  local dir = C.amp_posix_opendir(path)
  if dir == nil then return false end
  C.amp_posix_closedir(dir)
  return true
end

--- Entries of a folder but . and ..
-- @tparam string path
-- @treturn table list of {name, folder}, folder being true for folders and links to them; or nil and the reason
function M.list(path)
  local fine, why = file.usable(path)
  if not fine then return nil, why end
  local dir = C.amp_posix_opendir(path)
  if dir == nil then return nil, ffi.string(C.amp_posix_strerror(ffi.errno())) end
  local list = {}
  while true do
    local e = C.amp_posix_readdir(dir)
    if e == nil then break end
    local name = ffi.string(e.name)
    if name ~= '.' and name ~= '..' then
      local kind = e.type
      local folder = kind == FOLDER
      if kind == LINK or kind == UNKNOWN then folder = is_folder(path .. '/' .. name) end
      list[#list + 1] = {name = name, folder = folder}
    end
  end
  C.amp_posix_closedir(dir)
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

--- Where a folder really is, behind links: the same for each way that leads to it.
function M.real(path)
  local p = C.amp_posix_realpath(path, nil)
  if p == nil then return path end
  local real = ffi.string(p)
  C.amp_posix_free(p)
  return real
end

--- Names in a folder that begin with `stem`; nil where it can't be read.
function M.names(path, stem)
  local dir = C.amp_posix_opendir(path)
  if dir == nil then return nil end
  local list, n = {}, #stem
  while true do
    local e = C.amp_posix_readdir(dir)
    if e == nil then break end
    if C.amp_posix_strncmp(e.name, stem, n) == 0 then list[#list + 1] = ffi.string(e.name) end
  end
  C.amp_posix_closedir(dir)
  return list
end

return M
