-- ResNet-50 and GPT-2 as a beginner writes their `forward`: without forward_relu, forward_add and scope. All else is
-- that of examples/models, so a seed gives both the same weights.
local amp = require 'amp'
local F = amp.nn.functional
local JoinedResNet, JoinedGPT2 = require 'examples.models.resnet', require 'examples.models.gpt2'

local Bottleneck = JoinedResNet.Block:extend 'Bottleneck'

function Bottleneck:forward(x)
  local y = self.bn1(self.conv1(x)):relu()
  y = self.bn2(self.conv2(y)):relu()
  y = self.bn3(self.conv3(y))
  return (y + (self.downsample and self.downsample(x) or x)):relu()
end

local ResNet = JoinedResNet:extend 'ResNet'
ResNet.Block = Bottleneck

function ResNet:forward(x)
  x = self.pool(self.bn1(self.conv1(x)):relu())
  for i = 1, 4 do x = self['layer' .. i](x) end
  return self.fc(x:mean {3, 4})
end

local Block = JoinedGPT2.Block:extend 'Block'

function Block:forward(x)
  local n, t, size = x:size(1), x:size(2), x:size(3)
  local qkv = self.qkv(self.ln_1(x)):view(n, t, 3, self.heads, size / self.heads):unbind(3)
  for i = 1, 3 do qkv[i] = qkv[i]:transpose(2, 3) end
  local y = F.scaled_dot_product_attention(qkv[1], qkv[2], qkv[3], {is_causal = true})
  x = x + self.proj(y:transpose(2, 3):reshape(n, t, size))
  return x + self.mlp(self.ln_2(x))
end

local GPT2 = JoinedGPT2:extend 'GPT2'
GPT2.Block = Block

function GPT2:forward(tokens, targets)
  local places = amp.arange(1, tokens:size(2) + 1, {dtype = 'int64', device = tokens.device})
  local x = self.wte(tokens) + self.wpe(places)
  for _, block in self.h:ipairs() do x = block(x) end
  local logits = F.linear(self.ln_f(x), self.wte.weight)
  if not targets then return logits end
  return F.cross_entropy(logits:view(-1, logits:size(3)), targets:view(-1))
end

return {ResNet = ResNet, GPT2 = GPT2}
