--- Saves the graphs that bench.lua serves, untrained: luajit models.lua folder
package.path = 'lua/?.lua;lua/?/init.lua;' .. package.path
local amp = require 'amp'
local nn = amp.nn
local nets = {
  mlp = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)),
  cnn = nn.Sequential( -- the quickstart's
    nn.Conv2d(1, 16, 3, { padding = 1 }), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, { padding = 1 }), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 7 * 7, 10)),
}
for name, net in pairs(nets) do
  amp.graph.trace(net:eval(), { amp.zeros(2, 1, 28, 28) }, { dynamic = { 1 } }):optimize():save(arg[1] .. '/' .. name .. '.safetensors')
end
