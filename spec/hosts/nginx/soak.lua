--- The example's server, and beside what comes over the network its small model without one, in each worker: read from a text into a
-- tensor, run, read as a list. What spec/hosts/nginx.sh watches memory with.
-- luacheck: globals ngx
local M = {}

local TURN, PAUSE = 250, 0.002 -- runs at a time; seconds between them, for requests

function M.start(folder)
  require('app').start(folder)
  local amp = require 'amp'
  local graph, shape = amp.load_graph(folder .. '/bump.safetensors'), { 1, 8 }
  local function turn(premature)
    if premature then return end
    for _ = 1, TURN do
      if #graph(amp.from_text('[0.12, 0.5, 1.25, 0.75, 0.3, 0.21, 0.05, 0.9]', shape)):tolist()[1] ~= 3 then error 'three numbers' end
    end
    ngx.shared.metrics:incr('runs', TURN, 0)
    ngx.timer.at(PAUSE, turn)
  end
  ngx.timer.at(PAUSE, turn)
end

return M
