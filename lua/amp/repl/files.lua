--- What is in a folder, for completion and for hints.
-- @module amp.repl.files
local ffi = require 'ffi'

-- Linux's 64-bit layout, which glibc and musl share
ffi.cdef [[
typedef struct amp_dirent { uint64_t ino; int64_t off; unsigned short length; unsigned char type; char name[256]; } amp_dirent;
void *amp_posix_opendir(const char *path) __asm__("opendir");
amp_dirent *amp_posix_readdir(void *dir) __asm__("readdir");
int amp_posix_closedir(void *dir) __asm__("closedir");
]]
local C = ffi.C
local FOLDER, LINK, UNKNOWN, MOST = 4, 10, 0, 20000

local M = {}

--- Whether a path is a folder that can be read.
function M.is_folder(path)
  local dir = C.amp_posix_opendir(path)
  if dir == nil then return false end
  C.amp_posix_closedir(dir)
  return true
end

--- Names in a folder, without . and .., sorted.
-- @tparam string path
-- @tparam ?string prefix of the names to give
-- @treturn table list of names; folders end in /. Empty where the folder can't be read
function M.list(path, prefix)
  local dir = C.amp_posix_opendir(path)
  local names = {}
  if dir == nil then return names end
  prefix = prefix or ''
  while #names < MOST do
    local e = C.amp_posix_readdir(dir)
    if e == nil then break end
    local name = ffi.string(e.name)
    if name ~= '.' and name ~= '..' and name:sub(1, #prefix) == prefix then
      local folder = e.type == FOLDER or ((e.type == LINK or e.type == UNKNOWN) and M.is_folder(path .. '/' .. name))
      names[#names + 1] = folder and name .. '/' or name
    end
  end
  C.amp_posix_closedir(dir)
  table.sort(names)
  return names
end

return M
