--- Whether new parameters are filled: not where their values are read from a file next, so that memory is touched once.
-- @module amp.nn.core.filling
local util = require 'amp.util'

local M = { off = false }

--- Call fn(...) while amp.nn.init fills nothing. What fn raises is raised.
function M.without(fn, ...)
  local before = M.off
  M.off = true
  local results = util.pack(pcall(fn, ...))
  M.off = before
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2, results.n)
end

return M
