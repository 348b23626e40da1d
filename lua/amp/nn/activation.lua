--- Activations as modules: each calls the function of its name.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'
local raise = require('amp.error').throw

local relu, relu_ = amp.relu, amp.relu_

local in_place = {}
for _, name in ipairs {'celu', 'elu', 'hardsigmoid', 'hardswish', 'hardtanh', 'leaky_relu', 'mish', 'relu6', 'selu', 'silu', 'threshold'} do
  in_place[amp[name]] = amp[name .. '_']
end

-- arguments of the constructor, which are options of the function: {name, default, check}
local function define(class, op, ...)
  local A = Module:extend('nn.' .. class)
  local names, defaults, checks = {}, {}, {}
  for i, a in ipairs {...} do
    names[i], defaults[a[1]], checks[i] = a[1], a[2], a[3]
  end
  local first, second = names[1], names[2]
  -- with inplace, the input is changed, as by x:elu_(); ReLU has a way of its own
  local op_ = in_place[op]
  if op_ then
    names[#names + 1], defaults.inplace, checks[#checks + 1] = 'inplace', false, options.boolean
  end

  function A:init(...)
    local s = options.arguments(self.__name, names, 0, defaults, ...)
    for i, name in ipairs(names) do checks[i](self.__name, name, s[name]) end
    self.settings = s
    if op_ and s.inplace then
      self.forward = function(m, x)
        if second then return op_(x, m.settings[first], m.settings[second]) end
        if first then return op_(x, m.settings[first]) end
        return op_(x)
      end
    end
  end

  if not first then
    function A.forward(_, x) return op(x) end
  else
    function A:forward(x)
      local s = self.settings
      if second then return op(x, s[first], s[second]) end
      return op(x, s[first])
    end
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

-- -- A slope drawn for each element ------------------------------------------------

local RReLU = Module:extend('nn.RReLU')

--- @tparam ?number lower 1/8
-- @tparam ?number upper 1/3
function RReLU:init(...)
  local o = options.arguments(self.__name, {'lower', 'upper'}, 0, {lower = 1 / 8, upper = 1 / 3}, ...)
  self.lower, self.upper = options.number(self.__name, 'lower', o.lower), options.number(self.__name, 'upper', o.upper, o.lower)
end

function RReLU:forward(x) return require('amp.nn.functional').rrelu(x, self.lower, self.upper, self.training) end
function RReLU:extra_repr() return ('%.4g to %.4g'):format(self.lower, self.upper) end

local function form(op, name, v)
  if v ~= 'none' and v ~= 'tanh' then raise(op, "%s must be 'none' or 'tanh', got '%s'", name, tostring(v)) end
end

-- relu, in its input's place if asked to: the input is changed, as by x:relu_()
local function rectify(x, inplace)
  if inplace then return relu_(x) end
  return relu(x)
end

return {
  --- nn.ReLU({inplace = false}), or nn.ReLU(true)
  ReLU = define('ReLU', rectify, {'inplace', false, options.boolean}),
  Tanh = define('Tanh', amp.tanh),
  Sigmoid = define('Sigmoid', amp.sigmoid),
  SiLU = define('SiLU', amp.silu),
  --- nn.GELU({approximate = 'none' or 'tanh'})
  GELU = define('GELU', amp.gelu, {'approximate', 'none', form}),
  --- nn.Softplus(beta = 1, threshold = 20)
  Softplus = define('Softplus', amp.softplus, {'beta', 1, options.number}, {'threshold', 20, options.number}),
  --- nn.Softmax(dim): along a dimension, default the last
  Softmax = define('Softmax', amp.softmax, {'dim', -1, options.integer}),
  --- nn.LogSoftmax(dim): along a dimension, default the last
  LogSoftmax = define('LogSoftmax', amp.log_softmax, {'dim', -1, options.integer}),
  RReLU = RReLU,
  Mish = define('Mish', amp.mish),
  SELU = define('SELU', amp.selu),
  Hardswish = define('Hardswish', amp.hardswish),
  Hardsigmoid = define('Hardsigmoid', amp.hardsigmoid),
  ReLU6 = define('ReLU6', amp.relu6),
  Softsign = define('Softsign', amp.softsign),
  Tanhshrink = define('Tanhshrink', amp.tanhshrink),
  LogSigmoid = define('LogSigmoid', amp.log_sigmoid),
  --- nn.LeakyReLU(negative_slope = 0.01, {inplace = false}); most of those here take inplace: the input is changed
  LeakyReLU = define('LeakyReLU', amp.leaky_relu, {'negative_slope', 0.01, options.number}),
  --- nn.ELU(alpha = 1)
  ELU = define('ELU', amp.elu, {'alpha', 1, options.number}),
  --- nn.CELU(alpha = 1)
  CELU = define('CELU', amp.celu, {'alpha', 1, options.number}),
  --- nn.Hardtanh(min_val = -1, max_val = 1)
  Hardtanh = define('Hardtanh', amp.hardtanh, {'min_val', -1, options.number}, {'max_val', 1, options.number}),
  --- nn.Hardshrink(lambd = 0.5), nn.Softshrink(lambd = 0.5)
  Hardshrink = define('Hardshrink', amp.hardshrink, {'lambd', 0.5, options.number}),
  Softshrink = define('Softshrink', amp.softshrink, {'lambd', 0.5, options.number}),
  --- nn.Threshold(threshold, value)
  Threshold = define('Threshold', amp.threshold, {'threshold', nil, options.number}, {'value', nil, options.number}),
  --- nn.Softmin(dim): along a dimension, default the last
  Softmin = define('Softmin', amp.softmin, {'dim', -1, options.integer}),
  --- nn.GLU(dim): halves of a dimension, default the last
  GLU = define('GLU', amp.glu, {'dim', -1, options.integer}),
}
