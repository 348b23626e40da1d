--- Metrics over all ranks.
-- @module amp.distributed.metric
local err = require 'amp.error'
local util = require 'amp.util'

local function number(v) return require('amp.core.library').is_tensor(v) and v:item() or v or 0 end

return function(dist, metric)
  if type(metric) ~= 'table' then err.throw('distributed.merge_metric', 'takes a metric, got %s', util.show(metric)) end
  if type(metric.state) == 'function' and type(metric.merge) == 'function' then
    local mine = metric:state()
    for r = 1, dist.world_size() do
      local state = dist.broadcast_object(r == dist.rank() and mine or nil, { from = r })
      if r ~= dist.rank() then metric:merge(state) end
    end
    return metric
  end
  if metric.count == nil then err.throw('distributed.merge_metric', 'takes a metric of amp.metric, got %s', util.show(metric)) end
  local sums = require('amp.tensor.create').tensor({ number(metric.total), number(metric.count) }, { dtype = 'float64', device = 'cpu' })
  dist.all_reduce(sums)
  local list = sums:tolist()
  metric.total, metric.count = list[1], list[2]
  return metric
end
