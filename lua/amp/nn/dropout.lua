--- Dropout as modules: of elements, of whole channels, and of those that keep mean and variance.
-- In evaluation each gives its input.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'

-- place: the op that changes its input, or nil
local function define(class, op, place)
  local D = Module:extend('nn.' .. class)

  --- Make a layer.
  -- @tparam ?number p probability of a zero, default 0.5
  -- @tparam ?boolean inplace change the input (false)
  function D:init(...)
    local o = options.arguments(self.__name, {'p', 'inplace'}, 0, {p = 0.5, inplace = false}, ...)
    self.p = options.number(self.__name, 'p', o.p, 0, 1)
    self.inplace = options.boolean(self.__name, 'inplace', o.inplace)
  end

  function D:forward(x)
    if not self.training or self.p == 0 then return x end
    if not self.inplace then return (op(x, self.p, true)) end
    if place then return (place(x, self.p, true)) end
    return x:copy_(op(x, self.p, true))
  end
  D.transient = D.forward

  function D:extra_repr() return self.p .. (self.inplace and ', inplace' or '') end

  return D
end

return {
  Dropout = define('Dropout', amp.dropout, amp.dropout_),
  Dropout1d = define('Dropout1d', amp.dropout1d),
  Dropout2d = define('Dropout2d', amp.dropout2d),
  Dropout3d = define('Dropout3d', amp.dropout3d),
  AlphaDropout = define('AlphaDropout', amp.alpha_dropout),
  FeatureAlphaDropout = define('FeatureAlphaDropout', amp.feature_alpha_dropout),
}
