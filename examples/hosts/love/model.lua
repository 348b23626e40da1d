--- What the birds think with: a value for each action.
local nn = require('amp').nn
local World = require 'world'

return function()
  return nn.Sequential(nn.Linear(World.SIGHTS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, World.ACTIONS))
end
