--- Activations as modules: each calls the function of its name.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'

-- names: arguments of the constructor, which are options of the function
local function define(class, op, names, defaults, required)
  local A = Module:extend('nn.' .. class)

  if not names then
    function A.forward(_, x) return op(x) end
    A.transient = A.forward
    return A
  end

  function A:init(...)
    self.settings = options.arguments(self.__name, names, required or 0, defaults, ...)
  end

  local first, second = names[1], names[2]
  function A:forward(x)
    local s = self.settings
    if second then return op(x, s[first], s[second]) end
    return op(x, s[first])
  end
  A.transient = A.forward

  function A:extra_repr()
    local parts = {}
    for _, name in ipairs(names) do
      local v = self.settings[name]
      if v ~= defaults[name] or name == 'dim' then parts[#parts + 1] = name .. ' ' .. tostring(v) end
    end
    return table.concat(parts, ', ')
  end

  return A
end

return {
  ReLU = define('ReLU', amp.relu),
  Tanh = define('Tanh', amp.tanh),
  Sigmoid = define('Sigmoid', amp.sigmoid),
  SiLU = define('SiLU', amp.silu),
  --- nn.GELU({approximate = 'none' or 'tanh'})
  GELU = define('GELU', amp.gelu, {'approximate'}, {approximate = 'none'}),
  --- nn.Softplus(beta = 1, threshold = 20)
  Softplus = define('Softplus', amp.softplus, {'beta', 'threshold'}, {beta = 1, threshold = 20}),
  --- nn.Softmax(dim): along a dimension, default the last
  Softmax = define('Softmax', amp.softmax, {'dim'}, {dim = -1}),
  --- nn.LogSoftmax(dim): along a dimension, default the last
  LogSoftmax = define('LogSoftmax', amp.log_softmax, {'dim'}, {dim = -1}),
}
