--- nn.Kmeans: k centres in `weight`, to each of which the samples that lie nearest draw it. forward gives the nearest centre's number
-- and `loss`, the sum of squared distances; a step of a rate of 1 against gradWeight puts each centre at the mean of its samples.
local amp = require 'amp'
local core = require 'amp.torch7.own.core'
local classes = require 'amp.torch7.class'
local raise = require('amp.error').throw
local amp_of, wrap = core.amp_of, core.wrap

return function(nn, torch)
  local Kmeans, parent = classes.class('nn.Kmeans', 'nn.Module', nn)
  function Kmeans:__init(k, dim, scale)
    parent.__init(self)
    if type(k) ~= 'number' or k < 1 or type(dim) ~= 'number' or dim < 1 then
      raise('nn.Kmeans', 'a number of centres and one of dimensions, above 0, expected, got %s and %s', tostring(k), tostring(dim))
    end
    self.k, self.dim, self.scale, self.loss = k, dim, scale, 0
    self.weight, self.gradWeight = torch.Tensor(k, dim), torch.zeros(k, dim)
    self.clusterSampleCount = torch.zeros(k)
    self:reset()
  end
  function Kmeans:reset(stdv)
    stdv = stdv or 1
    self.weight:uniform(-stdv, stdv)
  end
  local function samples(self, input)
    if input:dim() ~= 2 or input:size(2) ~= self.dim then
      raise('nn.Kmeans', 'rows of %d numbers expected, got %s', self.dim, core.show(input:size():totable()))
    end
    return amp_of(input)
  end
  -- Squared distances of rows to centres, n x k.
  local function distances(x, centres)
    local cross = x:matmul(centres:t())
    return ((x * x):sum(2, true) + (centres * centres):sum(2):unsqueeze(1) - cross * 2):clamp(0)
  end
  function Kmeans:initRandom(input)
    local x = samples(self, input)
    if x:size(1) < self.k then raise('nn.Kmeans', '%d samples for %d centres', x:size(1), self.k) end
    for i = 1, self.k do self.weight[i]:copy(input[torch.random(1, x:size(1))]) end
  end
  --- Centres far apart: each is one of the (1 - p) n samples that lie farthest from those before.
  function Kmeans:initKmeansPlus(input, p)
    self.p = p or self.p or 0.95
    if self.p < 0 or self.p > 1 then raise('nn.Kmeans', 'p must be from 0 to 1, got %g', self.p) end
    local x = samples(self, input)
    local n = x:size(1)
    local far = math.max(1, math.ceil((1 - self.p) * n))
    self.weight[1]:copy(input[torch.random(n)])
    local nearest
    for k = 2, self.k do
      local d = distances(x, amp_of(self.weight):narrow(1, k - 1, 1)):reshape(-1)
      nearest = nearest and amp.minimum(nearest, d) or d
      local _, order = nearest:sort(1, true)
      self.weight[k]:copy(input[order[torch.random(far)]:item()])
    end
  end
  function Kmeans:updateOutput(input)
    local d = distances(samples(self, input), amp_of(self.weight))
    local least, at = d:min(2)
    self.nearest = wrap(at:reshape(-1))
    core.assign(self.output, at:reshape(-1):to(amp_of(self.output).dtype))
    self.loss = least:sum():item()
    return self.output
  end
  function Kmeans:updateGradInput(input)
    self.gradInput:resizeAs(input):zero()
    return self.gradInput
  end
  function Kmeans:accGradParameters(input, _, scale)
    scale = self.scale or scale or 1
    if scale <= 0 then raise('nn.Kmeans', 'the scale must be above 0, got %g', scale) end
    local x, at = samples(self, input), amp_of(self.nearest)
    local w, counts = amp_of(self.weight), amp_of(self.clusterSampleCount)
    counts:zero_():index_add_(1, at, amp.ones({x:size(1)}, {dtype = counts.dtype, device = counts.device}))
    local drawn = amp.zeros_like(w):index_add_(1, at, w:index_select(1, at) - x)
    amp_of(self.gradWeight):add_(drawn / counts:clamp(1):unsqueeze(2), {alpha = scale})
  end
  function Kmeans:clearState()
    self.nearest = nil
    return parent.clearState(self)
  end
end
