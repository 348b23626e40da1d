--- What specs of autocast share: a region of a dtype, a square weight, whether a region is entered.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local M = {}

function M.region(low, f, ...) return amp.autocast({ dtype = low }, f, ...) end
function M.weight(n, m)
  local w = H.sample { n or 3, m or 3 }
  w.requires_grad = true
  return w
end
function M.on() return amp.is_autocast_enabled() end

return M
