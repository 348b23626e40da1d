--- nn.ModuleList: a registered list of modules, without a forward of its own.
local Module = require 'amp.nn.module'
local Sequential = require 'amp.nn.sequential'

local ModuleList = Sequential:extend('nn.ModuleList')

function ModuleList.forward()
  require('amp.error').throw('nn.ModuleList', 'a list has no forward: call its modules, for _, m in list:ipairs() do ... end')
end

--- Iterate over places and modules.
function ModuleList:ipairs() return ipairs(Module.children(self)) end

return ModuleList
