--- Adamax: Adam with the largest gradient so far, slowly forgotten, instead of the second moment (Kingma and Ba, 2015).
-- amp.optim.Adamax(params, {lr = 2e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0, maximize = false, name}).
-- @usage local opt = amp.optim.Adamax(net:parameters(), {lr = 2e-3})
local C = require('amp.ffi').C

return require('amp.optim.optimizer').class {
  name = 'Adamax',
  kind = tonumber(C.AMP_ADAMAX),
  defaults = { lr = 2e-3, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0, maximize = false },
  aliases = { learningRate = 'lr', learning_rate = 'lr', weightDecay = 'weight_decay', epsilon = 'eps' },
}
