--- RAdam: Adam whose first steps, while the second moment's variance is large, are the momentum's (Liu et al., 2020).
-- amp.optim.RAdam(params, {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0,
-- decoupled_weight_decay = false, maximize = false, name}).
-- @usage local opt = amp.optim.RAdam(net:parameters(), {lr = 1e-3})
local C = require('amp.ffi').C

return require('amp.optim.optimizer').class {
  name = 'RAdam',
  kind = tonumber(C.AMP_RADAM),
  defaults = { lr = 1e-3, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0, decoupled_weight_decay = false, maximize = false },
  aliases = { learningRate = 'lr', learning_rate = 'lr', weightDecay = 'weight_decay', epsilon = 'eps' },
}
