--- GPT-2 (Radford et al., 2019): token and position embeddings, blocks of attention and MLP with layer norms before,
-- output weights tied to the token embedding. `net(tokens)` gives logits for N x T tokens (from 1);
-- `net(tokens, targets)` the mean cross entropy. A subclass may have another `Block`.
local amp = require 'amp'
local nn, F = amp.nn, amp.nn.functional

local Block = nn.Module:extend 'Block'

function Block:init(size, heads)
  self.heads = heads
  self.ln_1 = nn.LayerNorm(size)
  self.qkv = nn.Linear(size, 3 * size)
  self.proj = nn.Linear(size, size)
  self.ln_2 = nn.LayerNorm(size)
  self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU { approximate = 'tanh' }, nn.Linear(4 * size, size))
end

-- `h`: ln_1(x), if it is there already. `next`: the layer norm that follows; given, the result is its value, then x.
-- A layer norm goes with the residual's sum before it (forward_add): one pass over both. A region's products use its values in
-- the region's dtype, and nothing else uses them: they are made in that.
local function layer(self, x, h, next)
  local n, t, size = x:size(1), x:size(2), x:size(3)
  local qkv = self.qkv(h or self.ln_1(x)):view(n, t, 3, self.heads, size / self.heads):unbind(3)
  for i = 1, 3 do qkv[i] = qkv[i]:transpose(2, 3) end -- n x heads x t x ..., without a copy
  local y = F.scaled_dot_product_attention(qkv[1], qkv[2], qkv[3], { is_causal = true })
  local dtype = amp.is_autocast_enabled(x.device) and amp.get_autocast_dtype(x.device) or nil
  h, x = self.ln_2:forward_add(x, self.proj(y:transpose(2, 3):reshape(n, t, size)), dtype)
  if next then return next:forward_add(x, self.mlp(h), dtype) end
  return x + self.mlp(h)
end

-- What backward does not need, such as scores that its loss can overwrite, is given back at once, not when garbage is collected.
function Block:forward(...) return amp.scope(layer, self, ...) end

local GPT2 = nn.Module:extend 'GPT2'
GPT2.Block = Block

function GPT2:init(options)
  local o = options or {}
  local size, layers, heads = o.size or 768, o.layers or 12, o.heads or 12
  self.wte = nn.Embedding(o.vocabulary or 50257, size)
  self.wpe = nn.Embedding(o.context or 1024, size)
  local blocks = {}
  for i = 1, layers do blocks[i] = self.Block(size, heads) end
  self.h = nn.ModuleList(blocks)
  self.ln_f = nn.LayerNorm(size)
  amp.no_grad(function()
    for name, p in self:named_parameters() do
      if name:find 'bias$' then p:fill_(0)
      elseif not name:find 'ln_' then p:normal_(0, name:find 'proj%.weight$' and 0.02 / (2 * layers) ^ 0.5 or 0.02) end
    end
  end)
end

local function forward(self, tokens, targets)
  local places = amp.arange(1, tokens:size(2) + 1, { dtype = 'int64', device = tokens.device })
  local x, h = self.wte(tokens) + self.wpe(places), nil
  for i, block in self.h:ipairs() do
    local following = self.h[i + 1]
    h, x = block(x, h, following and following.ln_1 or self.ln_f)
  end
  local logits = F.linear(h or self.ln_f(x), self.wte.weight)
  if not targets then return logits end
  return F.cross_entropy(logits:view(-1, logits:size(3)), targets:view(-1))
end

function GPT2:forward(...) return amp.scope(forward, self, ...) end

return GPT2
