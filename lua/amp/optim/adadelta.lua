--- Adadelta: gradients over the running root of their squares, times that of the steps made (Zeiler, 2012).
-- amp.optim.Adadelta(params, {lr = 1, rho = 0.9, eps = 1e-6, weight_decay = 0, maximize = false, name}).
-- @usage local opt = amp.optim.Adadelta(net:parameters())
local C = require('amp.ffi').C

return require('amp.optim.optimizer').class {
  name = 'Adadelta',
  kind = tonumber(C.AMP_ADADELTA),
  defaults = { lr = 1, rho = 0.9, eps = 1e-6, weight_decay = 0, maximize = false },
  at_most = { rho = 1 },
  aliases = { learningRate = 'lr', learning_rate = 'lr', weightDecay = 'weight_decay', epsilon = 'eps' },
}
