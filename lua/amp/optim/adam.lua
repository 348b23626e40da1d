--- Adam; weight decay is added to the gradient (AdamW decouples it).
-- amp.optim.Adam(params, {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0,
-- amsgrad = false, maximize = false, name}); beta1, beta2 and Torch7's learningRate,
-- weightDecay, epsilon work too.
-- @usage local opt = amp.optim.Adam(net:parameters(), {lr = 1e-3})
local C = require('amp.ffi').C

return require('amp.optim.optimizer').class {
  name = 'Adam',
  kind = tonumber(C.AMP_ADAM),
  defaults = { lr = 1e-3, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0, amsgrad = false, maximize = false },
  aliases = { learningRate = 'lr', learning_rate = 'lr', weightDecay = 'weight_decay', epsilon = 'eps' },
}
