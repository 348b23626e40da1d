--- Stochastic gradient descent, with momentum, Nesterov's form, weight decay.
-- amp.optim.SGD(params, {lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0,
-- nesterov = false, maximize = false, name}); Torch7's learningRate and weightDecay work too.
-- @usage local opt = amp.optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9})
local C = require('amp.ffi').C

return require('amp.optim.optimizer').class {
  name = 'SGD',
  kind = tonumber(C.AMP_SGD),
  defaults = { lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0, nesterov = false, maximize = false },
  aliases = { learningRate = 'lr', learning_rate = 'lr', weightDecay = 'weight_decay' },
}
