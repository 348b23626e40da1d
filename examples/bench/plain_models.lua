-- ResNet-50 and GPT-2 as a beginner writes them: without forward_relu, forward_add and scope. Parameters are named and
-- drawn as those of examples/models, so that a seed gives both the same weights.
local amp = require 'amp'
local nn, F = amp.nn, amp.nn.functional

local Bottleneck = nn.Module:extend 'Bottleneck'

function Bottleneck:init(from, width, stride)
  local to = width * 4
  self.conv1 = nn.Conv2d(from, width, 1, {bias = false})
  self.bn1 = nn.BatchNorm2d(width)
  self.conv2 = nn.Conv2d(width, width, 3, {stride = stride, padding = 1, bias = false})
  self.bn2 = nn.BatchNorm2d(width)
  self.conv3 = nn.Conv2d(width, to, 1, {bias = false})
  self.bn3 = nn.BatchNorm2d(to)
  if stride ~= 1 or from ~= to then
    self.downsample = nn.Sequential(nn.Conv2d(from, to, 1, {stride = stride, bias = false}), nn.BatchNorm2d(to))
  end
end

function Bottleneck:forward(x)
  local y = self.bn1(self.conv1(x)):relu()
  y = self.bn2(self.conv2(y)):relu()
  y = self.bn3(self.conv3(y))
  return (y + (self.downsample and self.downsample(x) or x)):relu()
end

local ResNet = nn.Module:extend 'ResNet'

function ResNet:init(options)
  local o = options or {}
  local blocks, base = o.blocks or {3, 4, 6, 3}, o.width or 64
  self.conv1 = nn.Conv2d(3, base, 7, {stride = 2, padding = 3, bias = false})
  self.bn1 = nn.BatchNorm2d(base)
  self.pool = nn.MaxPool2d(3, {stride = 2, padding = 1})
  local from = base
  for i, n in ipairs(blocks) do
    local width, list = base * 2 ^ (i - 1), {}
    for k = 1, n do
      list[k] = Bottleneck(from, width, k == 1 and i > 1 and 2 or 1)
      from = width * 4
    end
    self['layer' .. i] = nn.Sequential(list)
  end
  self.fc = nn.Linear(from, o.classes or 1000)
end

function ResNet:forward(x)
  x = self.pool(self.bn1(self.conv1(x)):relu())
  for i = 1, 4 do x = self['layer' .. i](x) end
  return self.fc(x:mean {3, 4})
end

local Block = nn.Module:extend 'Block'

function Block:init(size, heads)
  self.heads = heads
  self.ln_1 = nn.LayerNorm(size)
  self.qkv = nn.Linear(size, 3 * size)
  self.proj = nn.Linear(size, size)
  self.ln_2 = nn.LayerNorm(size)
  self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU {approximate = 'tanh'}, nn.Linear(4 * size, size))
end

function Block:forward(x)
  local n, t, size = x:size(1), x:size(2), x:size(3)
  local qkv = self.qkv(self.ln_1(x)):view(n, t, 3, self.heads, size / self.heads):unbind(3)
  for i = 1, 3 do qkv[i] = qkv[i]:transpose(2, 3) end
  local y = F.scaled_dot_product_attention(qkv[1], qkv[2], qkv[3], {is_causal = true})
  x = x + self.proj(y:transpose(2, 3):reshape(n, t, size))
  return x + self.mlp(self.ln_2(x))
end

local GPT2 = nn.Module:extend 'GPT2'

function GPT2:init(options)
  local o = options or {}
  local size, layers, heads = o.size or 768, o.layers or 12, o.heads or 12
  self.wte = nn.Embedding(o.vocabulary or 50257, size)
  self.wpe = nn.Embedding(o.context or 1024, size)
  local blocks = {}
  for i = 1, layers do blocks[i] = Block(size, heads) end
  self.h = nn.ModuleList(blocks)
  self.ln_f = nn.LayerNorm(size)
  amp.no_grad(function()
    for name, p in self:named_parameters() do
      if name:find 'bias$' then p:fill_(0)
      elseif not name:find 'ln_' then p:normal_(0, name:find 'proj%.weight$' and 0.02 / (2 * layers) ^ 0.5 or 0.02) end
    end
  end)
end

function GPT2:forward(tokens, targets)
  local places = amp.arange(1, tokens:size(2) + 1, {dtype = 'int64', device = tokens.device})
  local x = self.wte(tokens) + self.wpe(places)
  for _, block in self.h:ipairs() do x = block(x) end
  local logits = F.linear(self.ln_f(x), self.wte.weight)
  if not targets then return logits end
  return F.cross_entropy(logits:view(-1, logits:size(3)), targets:view(-1))
end

return {ResNet = ResNet, GPT2 = GPT2}
