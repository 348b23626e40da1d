--- What was typed, kept from session to session in a file: one entry a line, with \n for
-- the ends of lines within it. Whatever is wrong with the file (no permission, a folder in
-- its place, bytes of something else) costs the history and nothing more.
-- The file is AMP_HISTORY; else ~/.amp_history if it is there; else amp/history in
-- XDG_STATE_HOME or ~/.local/state; an empty AMP_HISTORY means none.
-- @module amp.repl.history
local ffi = require 'ffi'
local clean = require('amp.repl.edit').clean

ffi.cdef [[
int amp_posix_open(const char *path, int flags, ...) __asm__("open");
int amp_posix_close(int fd) __asm__("close");
intptr_t amp_posix_read(int fd, void *buffer, size_t n) __asm__("read");
intptr_t amp_posix_write(int fd, const void *buffer, size_t n) __asm__("write");
int64_t amp_posix_lseek(int fd, int64_t offset, int whence) __asm__("lseek");
int amp_posix_mkdir(const char *path, unsigned mode) __asm__("mkdir");
int amp_posix_rename(const char *from, const char *to) __asm__("rename");
int amp_posix_getpid(void) __asm__("getpid");
]]
local C = ffi.C

local M = {}

local KEPT, BYTES, LONGEST = 2000, 2 ^ 20, 2 ^ 16 -- entries, bytes read of the end of the file, bytes of an entry

-- as Linux has them, where it has them everywhere alike
local RDONLY, WRONLY, CREAT, EXCL, APPEND, NONBLOCK, CLOEXEC = 0, 1, 64, 128, 1024, 2048, 524288

-- Nothing waits here: a pipe in the file's place is no history.
local function open(path, flags)
  local fd = C.amp_posix_open(path, flags + NONBLOCK + CLOEXEC, ffi.cast('unsigned', 384)) -- 0600
  return fd >= 0 and fd or nil
end

local function write(fd, text)
  local n = tonumber(C.amp_posix_write(fd, text, #text))
  return n == #text
end

-- -- Where -------------------------------------------------------------------------------------------

local function place()
  local asked = os.getenv 'AMP_HISTORY'
  if asked then return asked ~= '' and asked or nil end
  local home = os.getenv 'HOME'
  if home and home ~= '' then
    local old = open(home .. '/.amp_history', RDONLY)
    if old then
      C.amp_posix_close(old)
      return home .. '/.amp_history'
    end
  end
  local state = os.getenv 'XDG_STATE_HOME'
  if not state or state:sub(1, 1) ~= '/' then
    if not home or home == '' then return nil end
    state = home .. '/.local/state'
  end
  return state .. '/amp/history'
end

local function make_folders(path)
  local at = 1
  while true do
    at = path:find('/', at + 1, true)
    if not at then return end
    C.amp_posix_mkdir(path:sub(1, at - 1), 448) -- 0700
  end
end

-- -- Entries -----------------------------------------------------------------------------------------

local function encode(text) return (text:gsub('\\', '\\\\'):gsub('\n', '\\n')) end
local function decode(line)
  return (line:gsub('\\(.)', function(c) return c == 'n' and '\n' or c == '\\' and '\\' or '\\' .. c end))
end

local function read(path)
  local fd = open(path, RDONLY)
  if not fd then return {} end
  local size = tonumber(C.amp_posix_lseek(fd, 0, 2))
  local skipped = size > BYTES
  C.amp_posix_lseek(fd, skipped and size - BYTES or 0, 0)
  local parts, total = {}, 0
  local buffer = ffi.new('char[?]', 65536)
  while total < BYTES do
    local n = tonumber(C.amp_posix_read(fd, buffer, 65536))
    if n <= 0 then break end
    parts[#parts + 1] = ffi.string(buffer, n)
    total = total + n
  end
  C.amp_posix_close(fd)
  local text = table.concat(parts)
  if skipped then text = text:gsub('^[^\n]*\n', '', 1) end
  local list = {}
  for line in text:gmatch '[^\n]+' do
    if #line <= LONGEST and not line:find '[%z\1-\8\11-\31\127]' then
      local entry = clean(decode(line))
      if entry:find '%S' and entry ~= list[#list] then list[#list + 1] = entry end
    end
  end
  while #list > KEPT * 2 do table.remove(list, 1) end
  return list
end

-- Replace the file by the last entries, whole or not at all.
local function rewrite(path, list)
  local own = ('%s.%d'):format(path, C.amp_posix_getpid())
  local fd = open(own, WRONLY + CREAT + EXCL)
  if not fd then return end
  local lines = {}
  for i = 1, #list do lines[i] = encode(list[i]) .. '\n' end
  local ok = write(fd, table.concat(lines))
  C.amp_posix_close(fd)
  if not (ok and C.amp_posix_rename(own, path) == 0) then os.remove(own) end
end

-- -- The list ------------------------------------------------------------------------------------------

local path, fd, entries

--- Read the file.
-- @treturn table entries, the oldest first
function M.load()
  path = place()
  entries = {}
  if path then
    local ok, list = pcall(read, path)
    if ok then entries = list end
    if #entries > KEPT * 1.5 then
      while #entries > KEPT do table.remove(entries, 1) end
      rewrite(path, entries)
    end
  end
  return entries
end

--- Add an entry, to the file as well.
-- @tparam string text
function M.add(text)
  if not entries then M.load() end
  if text == entries[#entries] or not text:find '%S' or text:sub(1, 1) == ' ' then return end
  entries[#entries + 1] = text
  if #entries > KEPT * 2 then table.remove(entries, 1) end
  if not path or #text > LONGEST then return end
  if not fd then
    make_folders(path)
    fd = open(path, WRONLY + CREAT + APPEND)
    if not fd then
      path = nil
      return
    end
  end
  write(fd, encode(text) .. '\n')
end

--- Where it is kept; nil: nowhere.
function M.path() return path end

return M
