--- Adagrad: gradients over the root of the sum of all their squares so far.
-- amp.optim.Adagrad(params, {lr = 1e-2, lr_decay = 0, weight_decay = 0,
-- initial_accumulator_value = 0, eps = 1e-10, maximize = false, name}); Torch7's learningRate,
-- learningRateDecay, weightDecay, epsilon work too.
-- @usage local opt = amp.optim.Adagrad(net:parameters(), {lr = 0.1})
local C = require('amp.ffi').C

return require('amp.optim.optimizer').class {
  name = 'Adagrad',
  kind = tonumber(C.AMP_ADAGRAD),
  defaults = { lr = 1e-2, lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10, maximize = false },
  aliases = { learningRate = 'lr', learning_rate = 'lr', learningRateDecay = 'lr_decay', weightDecay = 'weight_decay', epsilon = 'eps' },
}
