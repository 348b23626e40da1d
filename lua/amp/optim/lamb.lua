--- LAMB: AdamW's update of each parameter, scaled by the trust ratio: the parameter's norm over
-- the update's. For large batches. A parameter that is all zeros, and with weight_decay = 0 every
-- one (unless always_adapt is set), takes the plain step. Gradients are not clipped here: call
-- nn.utils.clip_grad_norm_(params, 1) before the step to have the usual recipe.
-- amp.optim.LAMB(params, {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-6, weight_decay = 0.01,
-- bias_correction = true, always_adapt = false, maximize = false, name}).
-- @usage local opt = amp.optim.LAMB(net:parameters(), {lr = 2e-3})
local C = require('amp.ffi').C

return require('amp.optim.optimizer').class {
  name = 'LAMB',
  kind = tonumber(C.AMP_LAMB),
  defaults = { lr = 1e-3, betas = { 0.9, 0.999 }, eps = 1e-6, weight_decay = 0.01, bias_correction = true, always_adapt = false, maximize = false },
  refused = { max_grad_norm = 'gradients are not clipped in the step; call nn.utils.clip_grad_norm_(params, max_norm) before it' },
  aliases = { learningRate = 'lr', learning_rate = 'lr', weightDecay = 'weight_decay', epsilon = 'eps' },
}
