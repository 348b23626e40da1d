--- Batch norm whose batch is that of all ranks: forward, backward and running statistics.
--
-- Each rank's count, mean and sum of squared differences are gathered and merged (Chan, Golub, LeVeque 1979), which loses
-- no digits where the mean is large. Backward sums dy and dy * xhat over the ranks:
--   dx = w / std * (dy - mean(dy) - xhat * mean(dy * xhat))
-- Gradients of weight and bias are this rank's part, as those of other parameters are. Parts may be of unequal size.
-- @module amp.parallel.sync_batch_norm
local amp = require 'amp'

-- channels as dimension 2 of something of x's rank
local function shape_of(x, n)
  local shape = {}
  for d = 1, x:dim() do shape[d] = d == 2 and n or 1 end
  return shape
end

local function others(x)
  local dims = {}
  for d = 1, x:dim() do if d ~= 2 then dims[#dims + 1] = d end end
  return dims
end

-- Count, mean and variance (biased) over all ranks
local function statistics(x, dims)
  local c, here = x:size(2), x:numel() / math.max(x:size(2), 1)
  local mean, m2
  if here > 0 then
    mean = x:mean(dims)
    m2 = (x - mean:reshape(shape_of(x, c))):square():sum(dims)
  else
    mean, m2 = amp.zeros({ c }, { dtype = x.dtype, device = x.device }), amp.zeros({ c }, { dtype = x.dtype, device = x.device })
  end
  local count = amp.full({ c }, here, { dtype = x.dtype, device = x.device })
  local parts = amp.stack(amp.distributed.all_gather(amp.stack { count, mean, m2 }))
  local counts, means = parts:select(2, 1), parts:select(2, 2)
  local total = counts:sum { 1 }
  local all = (counts * means):sum { 1 } / total
  local spread = (parts:select(2, 3) + counts * (means - all):square()):sum { 1 }
  return total, all, spread / total
end

local function move(self, mean, var, total, momentum)
  if not self.running_mean then return end
  local unbiased = var * total / (total - 1):clamp(1)
  self.running_mean:mul_(1 - momentum):add_(mean:to(self.running_mean.dtype) * momentum)
  self.running_var:mul_(1 - momentum):add_(unbiased:to(self.running_var.dtype) * momentum)
  self.num_batches_tracked:add_(1)
end

local norm = amp.Function {
  name = 'sync_batch_norm',
  forward = function(ctx, x, weight, bias, module, momentum)
    local wide = x.dtype == 'float64' and x or x:float()
    local dims, c = others(x), x:size(2)
    local total, mean, var = statistics(wide, dims)
    move(module, mean, var, total, momentum)
    local shape = shape_of(x, c)
    local rstd = (var + module.eps):rsqrt()
    local y = (wide - mean:reshape(shape)) * rstd:reshape(shape)
    if weight then y = y * weight:to(y.dtype):reshape(shape) end
    if bias then y = y + bias:to(y.dtype):reshape(shape) end
    ctx.mean, ctx.rstd, ctx.total, ctx.affine, ctx.biased = mean, rstd, total, weight ~= nil, bias ~= nil
    if weight then ctx:save_for_backward(x, weight) else ctx:save_for_backward(x) end
    return y:to(x.dtype)
  end,
  backward = function(ctx, grad)
    local x, weight = unpack(ctx.saved_tensors)
    local wide = x.dtype == 'float64' and x or x:float()
    local dims, shape = others(x), shape_of(x, x:size(2))
    local dy = grad:to(wide.dtype)
    local xhat = (wide - ctx.mean:reshape(shape)) * ctx.rstd:reshape(shape)
    local here = amp.stack { dy:sum(dims), (dy * xhat):sum(dims) }
    local all = amp.distributed.all_reduce(here:clone())
    local part = all / ctx.total
    local dx = dy - part:select(1, 1):reshape(shape) - xhat * part:select(1, 2):reshape(shape)
    local scale = weight and ctx.rstd * weight:to(wide.dtype) or ctx.rstd
    dx = (dx * scale:reshape(shape)):to(x.dtype)
    local dw = ctx.affine and here:select(1, 2):to(weight.dtype) or nil
    local db = ctx.biased and here:select(1, 1):to(weight and weight.dtype or wide.dtype) or nil
    return dx, dw, db
  end,
}

return function(module, x, momentum)
  local weight, bias = module.weight, module.bias
  return norm(x, weight, bias, module, momentum)
end
