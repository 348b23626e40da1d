--- Memory that a process shares with the children that it forks: values lie where both see them, and need not be sent.
--
-- A slot is made before the fork; who writes makes it as large as is needed. Tensors over it count as users: it is free again when
-- none of them is left. Systems without memfd_create have no slots.
local ffi = require 'ffi'
local amp = require 'amp'
local call = require 'amp.core.call'
local core = require 'amp.ffi'
require 'amp.io.file'

ffi.cdef [[
int amp_shared_open(const char *name, unsigned flags) __asm__("memfd_create");
int amp_shared_resize(int fd, int64_t size) __asm__("ftruncate");
void *amp_shared_map(void *at, size_t n, int protection, int flags, int fd, int64_t from) __asm__("mmap");
int amp_shared_unmap(void *p, size_t n) __asm__("munmap");
int64_t amp_shared_seek(int fd, int64_t at, int whence) __asm__("lseek");
]]
local C = ffi.C
local CLOEXEC, READ_WRITE, SHARED, END = 1, 3, 1, 2

local Slot = {}
Slot.__index = Slot
local M = {}

local left = {} -- closed slots that tensors still use

local function unmap(self)
  if self.p then C.amp_shared_unmap(self.p, self.size) end
  self.p, self.size = nil, 0
end

--- Give back the memory of closed slots that no tensor uses any more.
function M.sweep()
  for i = #left, 1, -1 do
    if left[i]:free() then unmap(table.remove(left, i)) end
  end
end

local function open() return C.amp_shared_open('amp', CLOEXEC) end

--- A slot, or nil where the system has none to give.
function M.new()
  M.sweep()
  local ok, fd = pcall(open)
  if not ok or fd < 0 then return nil end
  return setmetatable({ fd = fd, size = 0, ids = {} }, Slot)
end

-- Map n bytes at self.p.
local function map(self, n)
  unmap(self)
  local p = C.amp_shared_map(nil, n, READ_WRITE, SHARED, self.fd, 0)
  if ffi.cast('intptr_t', p) == -1 then return false end
  self.p, self.size = ffi.cast('char *', p), n
  return true
end

--- For who writes: have n bytes at self.p. false: the system refuses.
function Slot:grow(n)
  if n <= self.size then return true end
  n = math.ceil(n / 65536) * 65536
  return C.amp_shared_resize(self.fd, n) == 0 and map(self, n)
end

--- For who reads: have all that was written at self.p.
function Slot:look()
  local n = tonumber(C.amp_shared_seek(self.fd, 0, END))
  return n <= self.size or map(self, n)
end

--- A tensor over bytes of the slot, which are mapped.
function Slot:tensor(at, shape, dtype)
  local t = amp.from_ptr(self.p + at, shape, dtype)
  local id = tonumber(core.C.amp_from_ptr_id(core.S, t))
  if id ~= 0 then self.ids[#self.ids + 1] = id end
  return t
end

--- Whether no tensor uses it.
function Slot:free()
  for _, id in ipairs(self.ids) do
    if call.closures[id] ~= nil then return false end
  end
  if #self.ids > 0 then self.ids = {} end
  return true
end

--- Give it back; its memory stays as long as tensors use it.
function Slot:close()
  if self.fd then C.amp_posix_close(self.fd) end
  self.fd = nil
  left[#left + 1] = self
  M.sweep()
end

return M
