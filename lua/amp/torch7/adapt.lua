--- Torch7's own tensors (torch7/own) hold an amp tensor. What works on both kinds goes through here.
local amp = require 'amp'

local M = {}

--- The amp tensor of a tensor of either kind; anything else as it is.
function M.amp(v)
  if type(v) == 'userdata' then
    local mt = getmetatable(v)
    if type(mt) == 'table' and rawget(mt, '__torch7') == 'tensor' then return debug.getfenv(v).h end
  end
  return v
end

--- Is v a tensor of either kind?
function M.is_tensor(v) return amp.is_tensor(M.amp(v)) end

--- An amp tensor as the kind of `like`.
function M.like(like, t)
  if type(like) == 'userdata' then return require('amp.torch7.own.core').wrap(t) end
  return t
end

return M
