--- What the models share: options that count, fillings, a check of what they are called with.
local amp = require 'amp'
local options = require 'amp.options'
local raise = require('amp.error').throw
local util = require 'amp.util'
local nn = amp.nn

local M = {}

--- Options of a model, with `classes` a number or a list of names.
-- @treturn table options; `classes` a number, `names` the list if one was given
function M.options(op, given, known, defaults)
  local o = options.read(op, given, known, defaults)
  if type(o.classes) == 'table' then
    for i = 1, #o.classes do
      if type(o.classes[i]) ~= 'string' then raise(op, 'classes: name %d is %s, a string expected', i, util.show(o.classes[i])) end
    end
    o.names = o.classes
    o.classes = #o.classes
  end
  options.integer(op, 'classes', o.classes, 1)
  return o
end

--- A batch of pictures, N x channels x H x W, or an error.
function M.check(op, x, channels)
  if not amp.is_tensor(x) then raise(op, 'a batch of pictures N x %d x H x W expected, got %s', channels, util.show(x)) end
  if x:dim() ~= 4 or x:size(2) ~= channels then
    raise(op, 'a batch of pictures N x %d x H x W expected, got %s', channels, util.shape(x:size()))
  end
end

--- Fillings as torchvision has them: convolutions by He's with what leaves them, biases zero.
-- @tparam nn.Module net
-- @tparam ?number linear deviation of Linear's weights; nil leaves them
function M.fill(net, linear)
  for _, m in ipairs(net:modules()) do
    if m.__name == 'nn.Conv2d' then
      nn.init.kaiming_normal_(m.weight, { mode = 'fan_out', nonlinearity = 'relu' })
      if m.bias then nn.init.zeros_(m.bias) end
    elseif linear and m.__name == 'nn.Linear' then
      nn.init.normal_(m.weight, 0, linear)
      nn.init.zeros_(m.bias)
    end
  end
end

return M
