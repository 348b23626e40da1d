--- Metrics over all ranks.
-- @module amp.distributed.metric
local err = require 'amp.error'
local util = require 'amp.util'

local PLACE = '\0tensor' -- of a tensor in a state that is sent: its number, with dtype, shape and kind of device

local function is_tensor(v) return require('amp.core.library').is_tensor(v) end

-- A state without its tensors, which go into the list
local function apart(v, list)
  if is_tensor(v) then
    list[#list + 1] = v:detach()
    return { [PLACE] = #list, v.dtype, { unpack(v.shape) }, v.device:match '^%a+' }
  end
  if type(v) ~= 'table' then return v end
  local out = {}
  for k, x in pairs(v) do out[k] = apart(x, list) end
  return out
end

local function together(v, list)
  if type(v) ~= 'table' then return v end
  if v[PLACE] then return list[v[PLACE]] end
  local out = {}
  for k, x in pairs(v) do out[k] = together(x, list) end
  return out
end

-- Places of all tensors of a state that came, in their order
local function places(v, out)
  if type(v) ~= 'table' then return out end
  if v[PLACE] then out[v[PLACE]] = v else for _, x in pairs(v) do places(x, out) end end
  return out
end

-- Rank r's state, on all ranks
local function share(dist, state, r)
  local list = {}
  local mine = r == dist.rank()
  local plain = dist.broadcast_object(mine and apart(state, list) or nil, { from = r })
  for i, place in ipairs(places(plain, {})) do
    local t = mine and list[i]:contiguous() or require('amp.tensor.create').empty(place[2], { dtype = place[1], device = place[3] })
    list[i] = dist.broadcast(t, { from = r })
  end
  return together(plain, list)
end

local function number(v) return is_tensor(v) and v:item() or v or 0 end

return function(dist, metric)
  if type(metric) ~= 'table' then err.throw('distributed.merge_metric', 'takes a metric, got %s', util.show(metric)) end
  if type(metric.state) == 'function' and type(metric.merge) == 'function' then
    local n = dist.world_size()
    if n == 1 then return metric end
    local mine, states = metric:state(), {}
    for r = 1, n do states[r] = share(dist, mine, r) end
    -- In the order of ranks on each of them: sums are rounded alike, and of equal scores the same stand first.
    local anew = type(metric.reset) == 'function'
    if anew then metric:reset() end
    for r = 1, n do
      if anew or r ~= dist.rank() then metric:merge(states[r]) end
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
