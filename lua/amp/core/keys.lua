--- `next` as amp asks it: whether a table has a key, or one behind another.
--
-- LuaJIT for x64 before April 2022 (LuaJIT#829), as in Debian 12, swaps the two results of a compiled `next` by an exchange of 32
-- bits where it found no other registers for them, which cuts a pointer: the process dies. It finds their own registers where
-- no other value is held in one that a call may change; so a call of C, a few instructions, comes after `next`, before what
-- follows puts values there. Only a `next` that finds nothing has two results: loops over `pairs` that end by it are rarer in the same
-- danger, and LuaJIT's own.
local ffi = require 'ffi'

local M = {}

-- every build that calls itself beta3, as it says no date
M.cut = jit.arch == 'x64' and jit.version:find('beta', 1, true) ~= nil

if M.cut then
  pcall(ffi.cdef, 'int abs(int);')
  local abs = ffi.C.abs
  --- The key behind `key`, or the first one; nil where there is none.
  -- @tparam table t
  -- @param[opt] key
  function M.next(t, key)
    local found = next(t, key)
    abs(0)
    return found
  end
else
  function M.next(t, key) return (next(t, key)) end
end

return M
