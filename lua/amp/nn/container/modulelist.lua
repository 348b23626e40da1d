--- nn.ModuleList: a registered list of modules, without a forward of its own.
-- It is a list to Lua as well: `#list`, `list[i]`, `for i, m in ipairs(list)`, `list[#list + 1] = m`, `table.insert`.
local List = require 'amp.nn.container.list'

local ModuleList = List:extend('nn.ModuleList')

function ModuleList:forward()
  require('amp.error').throw(self.__name, 'a list has no forward: call its modules, for _, m in ipairs(list) do x = m(x) end')
end

return ModuleList
