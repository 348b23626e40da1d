--- RMSprop: gradients over the root of a running mean of their squares, plain or centered
-- (then over their running deviation), with momentum.
-- amp.optim.RMSprop(params, {lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0,
-- centered = false, maximize = false, name}); Torch7's learningRate, weightDecay, epsilon work too.
-- @usage local opt = amp.optim.RMSprop(net:parameters(), {lr = 1e-3, momentum = 0.9})
local C = require('amp.ffi').C

return require('amp.optim.optimizer').class {
  name = 'RMSprop',
  kind = tonumber(C.AMP_RMSPROP),
  defaults = { lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0, centered = false, maximize = false },
  aliases = { learningRate = 'lr', learning_rate = 'lr', weightDecay = 'weight_decay', epsilon = 'eps' },
}
