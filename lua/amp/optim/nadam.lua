--- NAdam: Adam with Nesterov's momentum (Dozat, 2016).
-- amp.optim.NAdam(params, {lr = 2e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, momentum_decay = 4e-3,
-- decoupled_weight_decay = false, maximize = false, name}).
-- @usage local opt = amp.optim.NAdam(net:parameters(), {lr = 1e-3})
local C = require('amp.ffi').C

return require('amp.optim.optimizer').class {
  name = 'NAdam',
  kind = tonumber(C.AMP_NADAM),
  defaults = { lr = 2e-3, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0, momentum_decay = 4e-3, decoupled_weight_decay = false, maximize = false },
  aliases = { learningRate = 'lr', learning_rate = 'lr', weightDecay = 'weight_decay', epsilon = 'eps' },
}
