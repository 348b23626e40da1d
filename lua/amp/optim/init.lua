--- Optimizers and learning rate schedulers; each is loaded when first asked for.
-- @module amp.optim
local util = require 'amp.util'
local err = require 'amp.error'

local modules = {
  SGD = 'amp.optim.sgd', Adam = 'amp.optim.adam', AdamW = 'amp.optim.adamw', RMSprop = 'amp.optim.rmsprop',
  Adagrad = 'amp.optim.adagrad', LAMB = 'amp.optim.lamb', LARC = 'amp.optim.larc', LBFGS = 'amp.optim.lbfgs',
  lr_scheduler = 'amp.optim.lr_scheduler', Trainer = 'amp.optim.trainer',
}

return setmetatable({}, {
  __index = function(t, k)
    local name = modules[k]
    if not name then
      err.throw(nil, "amp.optim has no '%s'%s (there are %s)", tostring(k), util.hint(k, util.keys(modules)),
        table.concat(util.keys(modules), ', '))
    end
    local v = require(name)
    rawset(t, k, v)
    return v
  end,
})
