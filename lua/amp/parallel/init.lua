--- Training on several ranks: amp.parallel, by Apex's names.
-- @module amp.parallel
local err = require 'amp.error'
local util = require 'amp.util'

local modules = { DistributedDataParallel = 'amp.parallel.data_parallel' }

local M = {}

--- BatchNorm layers of a network become SyncBatchNorm; nn.SyncBatchNorm.convert is the same.
-- @tparam Module net
-- @treturn Module net
function M.convert_syncbn_model(net) return require('amp.nn').SyncBatchNorm.convert(net) end

return setmetatable(M, {
  __index = function(t, k)
    if modules[k] then
      local v = require(modules[k])
      rawset(t, k, v)
      return v
    end
    if type(k) == 'string' and k:sub(1, 1) == '_' then return nil end
    err.throw_code('name', nil, "amp.parallel has no '%s'%s (there are DistributedDataParallel, convert_syncbn_model)", tostring(k),
      util.hint(k, { 'DistributedDataParallel', 'convert_syncbn_model' }))
  end,
})
