--- g:to(device): a graph on another device (src/graph/move.c).
-- @module amp.graph.device
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local types = require 'amp.types'
local C, S = core.C, core.S

--- Move parameters and buffers, which keep their identity, and constants; inputs are expected there from then on.
return function(g, handle, device)
  local code = types.device(device, 'graph.to')
  call.try('graph.to', C.amp_graph_to, S, handle, code)
  return g
end
