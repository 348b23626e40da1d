--- Losses as modules: each calls the function of its name with its settings.
-- All take reduction = 'mean' (default), 'sum' or 'none'. Class labels count from 1.
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'
local raise = require('amp.error').throw

-- tensors: options that are tensors, kept as buffers; numbers: further options with their
-- defaults; the function takes them in this order, reduction between
local function define(class, op, tensors, numbers, defaults)
  local Loss = Module:extend('nn.' .. class)
  local known = {'reduction', unpack(tensors)}
  for _, name in ipairs(numbers) do known[#known + 1] = name end
  defaults.reduction = 'mean'
  local first, second = tensors[1], tensors[2]
  local a, b = numbers[1], numbers[2]

  function Loss:init(given)
    local o = options.read(self.__name, given, known, defaults)
    if o.reduction ~= 'mean' and o.reduction ~= 'sum' and o.reduction ~= 'none' then
      raise(self.__name, "reduction must be 'mean', 'sum' or 'none', got '%s'", tostring(o.reduction))
    end
    if o.label_smoothing ~= nil then options.number(self.__name, 'label_smoothing', o.label_smoothing, 0, 1) end
    if o.ignore_index ~= nil then options.integer(self.__name, 'ignore_index', o.ignore_index) end
    for _, name in ipairs(tensors) do
      if o[name] ~= nil then self:register_buffer(name, o[name], {persistent = false}) end
      o[name] = nil
    end
    self.settings = o
  end

  --- @tparam Tensor input
  -- @tparam Tensor target
  -- @treturn Tensor scalar, or the losses unreduced
  function Loss:forward(input, target)
    local s = self.settings
    if second then return op(input, target, self[first], self[second], s.reduction) end
    if not first then return op(input, target, s.reduction) end
    if b then return op(input, target, self[first], s.reduction, s[a], s[b]) end
    if a then return op(input, target, self[first], s.reduction, s[a]) end
    return op(input, target, self[first], s.reduction)
  end

  function Loss:extra_repr() return self.settings.reduction == 'mean' and '' or self.settings.reduction end

  return Loss
end

local M = {
  --- Logits N x C (x ...) and labels 1..C, or probabilities of the logits' shape.
  CrossEntropyLoss = define('CrossEntropyLoss', amp.cross_entropy, {'weight'},
    {'ignore_index', 'label_smoothing'}, {ignore_index = -100, label_smoothing = 0}),
  --- Log-probabilities N x C and labels 1..C.
  NLLLoss = define('NLLLoss', amp.nll_loss, {'weight'}, {'ignore_index'}, {ignore_index = -100}),
  MSELoss = define('MSELoss', amp.mse_loss, {}, {}, {}),
  L1Loss = define('L1Loss', amp.l1_loss, {}, {}, {}),
  --- Probabilities; in a float16 region use BCEWithLogitsLoss.
  BCELoss = define('BCELoss', amp.binary_cross_entropy, {'weight'}, {}, {}),
  BCEWithLogitsLoss = define('BCEWithLogitsLoss', amp.bce_with_logits, {'weight', 'pos_weight'}, {}, {}),
}
M.CrossEntropyCriterion, M.ClassNLLCriterion = M.CrossEntropyLoss, M.NLLLoss -- Torch7's names

return M
