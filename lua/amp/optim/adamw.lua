--- Adam with decoupled weight decay: parameters shrink by lr * weight_decay before each update.
-- amp.optim.AdamW(params, {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8, weight_decay = 0.01,
-- amsgrad = false, maximize = false, name}); beta1, beta2 and Torch7's learningRate,
-- weightDecay, epsilon work too.
-- @usage local opt = amp.optim.AdamW(net:parameters(), {lr = 3e-4, weight_decay = 0.1})
local C = require('amp.ffi').C

return require('amp.optim.optimizer').class {
  name = 'AdamW',
  kind = tonumber(C.AMP_ADAMW),
  defaults = { lr = 1e-3, betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0.01, amsgrad = false, maximize = false },
  aliases = { learningRate = 'lr', learning_rate = 'lr', weightDecay = 'weight_decay', epsilon = 'eps' },
}
