--- Definitions of Torch7's layers and criteria, by name. See layers/help.lua for what one holds.
local raise = require('amp.error').throw

local M = {layers = {}, losses = {}}

-- The constructor's arguments are init's parameters; one too many is an error.
local function counted(name, spec)
  local info = debug.getinfo(spec.init, 'u')
  spec.name = 'nn.' .. name
  if spec.params then spec.param_names = spec.param_names or {'weight', 'bias', 'diagCov'} end
  if spec.buffers then spec.buffer_names = {'running_mean', 'running_var'} end
  spec.most = not info.isvararg and math.max(info.nparams - 1, 0) or nil
  return spec
end

--- Refuse arguments that a constructor does not know.
function M.check_count(spec, n)
  if n > (spec.most or n) then
    raise(spec.name, 'takes %s, got %d', spec.most <= 0 and 'no arguments' or spec.most == 1 and '1 argument at most' or spec.most .. ' arguments at most', n)
  end
end

for _, file in ipairs {'pointwise', 'shape', 'tables', 'spatial', 'weights', 'local_norms'} do
  require('amp.torch7.layers.' .. file)(function(name, spec) M.layers[name] = counted(name, spec) end)
end
require 'amp.torch7.layers.losses'(function(name, spec) M.losses[name] = counted(name, spec) end)

return M
