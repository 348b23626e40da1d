--- Optimizers and learning rate schedulers; each is loaded when first asked for.
-- @module amp.optim
local util = require 'amp.util'
local err = require 'amp.error'

local modules = {
  SGD = 'amp.optim.sgd', Adam = 'amp.optim.adam', AdamW = 'amp.optim.adamw', RMSprop = 'amp.optim.rmsprop',
  Adagrad = 'amp.optim.adagrad', LAMB = 'amp.optim.lamb', LARC = 'amp.optim.larc', LBFGS = 'amp.optim.lbfgs',
  NAdam = 'amp.optim.nadam', RAdam = 'amp.optim.radam', Adadelta = 'amp.optim.adadelta', Adamax = 'amp.optim.adamax',
  Lion = 'amp.optim.lion', Adafactor = 'amp.optim.adafactor', Muon = 'amp.optim.muon', swa = 'amp.optim.swa',
  lr_scheduler = 'amp.optim.lr_scheduler', Trainer = 'amp.optim.trainer',
  ZeroRedundancyOptimizer = 'amp.optim.zero',
}

local M = {}
err.space(M, 'optim')

return setmetatable(M, {
  __index = function(t, k)
    local name = modules[k]
    if not name and type(k) == 'string' and k:sub(1, 1) == '_' then return nil end
    if not name then
      err.throw_code('name', nil, "amp.optim has no '%s'%s (there are %s)", tostring(k), util.hint(k, util.keys(modules)),
        table.concat(util.keys(modules), ', '))
    end
    local v = require(name)
    rawset(t, k, v)
    return v
  end,
})
