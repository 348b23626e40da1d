--- Lion: steps of one size, by the sign of momentum and gradient mixed (Chen et al., 2023). Weight decay is decoupled.
-- amp.optim.Lion(params, {lr = 1e-4, betas = {0.9, 0.99}, weight_decay = 0, maximize = false, name}).
-- @usage local opt = amp.optim.Lion(net:parameters(), {lr = 1e-4, weight_decay = 0.1})
local C = require('amp.ffi').C

return require('amp.optim.optimizer').class {
  name = 'Lion',
  kind = tonumber(C.AMP_LION),
  defaults = { lr = 1e-4, betas = { 0.9, 0.99 }, weight_decay = 0, maximize = false },
  aliases = { learningRate = 'lr', learning_rate = 'lr', weightDecay = 'weight_decay' },
}
