--- LoRA: fine-tuning by a product of two narrow matrices beside each chosen layer (Hu et al., 2022): y = x W^T + b + alpha / rank x A^T B^T.
-- B begins at 0, so the network gives what it gave. nn.utils.lora and nn.utils.merge_lora.
local amp = require 'amp'
local options = require 'amp.options'
local Linear = require 'amp.nn.linear'
local Module = require 'amp.nn.module'
local initializers = require 'amp.nn.initializers'
local util = require 'amp.util'
local raise = require('amp.error').throw

local M = {}

local linear = amp.linear

-- What a layer with adapters does.
local function forward(m, x)
  local y = linear(x, m.weight, m.bias)
  local a, b, at = m.lora_A, m.lora_B, m.lora
  local v = at.dropout > 0 and m.training and amp.dropout(x, at.dropout) or x
  if v.dtype ~= a.dtype and not amp.is_autocast_enabled(v.device) then v = v:to(a.dtype) end
  local d = linear(linear(v, a), b) * at.scale
  return y + (d.dtype == y.dtype and d or d:to(y.dtype))
end

local function matches(name, target)
  if name == target or name:sub(-#target - 1) == '.' .. target then return true end
  local ok, found = pcall(string.match, name, '^' .. target .. '$')
  return ok and found ~= nil
end

-- Parameters that several modules have; layers whose weight is read by the module around them.
local function not_alone(net)
  local users, read = {}, {}
  for _, m in net:named_modules() do
    for _, p in Module.parts(m, 'parameter') do users[p:id()] = (users[p:id()] or 0) + 1 end
    if m:is(amp.nn.MultiheadAttention) then read[m.out_proj] = true end
  end
  return users, read
end

-- The layers of the targets, by name, in the network's order.
local function layers_of(op, net, targets)
  local found, hits, kinds = {}, {}, {}
  local users, read = not_alone(net)
  for name, m in net:named_modules() do
    for _, target in ipairs(targets or { false }) do
      if target and matches(name, target) or not target and m:is(Linear) and users[m.weight:id()] == 1 and not read[m] then
        if m:is(Linear) then
          if users[m.weight:id()] > 1 then raise(op, "the weight of '%s' is another layer's too (tied): it can't have an adapter of its own", name) end
          if read[m] then raise(op, "'%s' belongs to an nn.MultiheadAttention, which reads its weight by itself; an adapter would do nothing", name) end
          hits[target] = true
          if not found[m] then
            found[m] = true
            found[#found + 1] = { name = name, module = m }
          end
        else
          kinds[target] = kinds[target] or { name, m.__name }
        end
      end
    end
  end
  for _, target in ipairs(targets or {}) do
    if not hits[target] then
      local names = {}
      for name, m in net:named_modules() do
        if m:is(Linear) then names[#names + 1] = name:match '[^.]+$' or name end
      end
      local other = kinds[target]
      if other then raise(op, "target '%s' is '%s', of class %s; adapters go beside nn.Linear layers", target, other[1], other[2]) end
      raise(op, "no module's name matches target '%s'%s", target, util.hint(target, names))
    end
  end
  if #found == 0 then raise(op, 'the network has no nn.Linear layer that an adapter could go beside') end
  return found
end

local function check_targets(op, targets)
  if type(targets) == 'string' then targets = { targets } end
  if targets == nil then return nil end
  if type(targets) ~= 'table' or #targets == 0 then raise(op, 'targets are a list of names, got %s', util.show(targets)) end
  for i = 1, #targets do
    if type(targets[i]) ~= 'string' or targets[i] == '' then raise(op, 'target %d must be a name, got %s', i, util.show(targets[i])) end
  end
  return targets
end

local known = { 'rank', 'alpha', 'targets', 'dropout', 'trainable' }

--- Put adapters beside layers, and freeze everything else.
-- @tparam nn.Module net changed in place
-- @tparam ?table given rank (8), alpha (rank: the product is multiplied by alpha / rank), targets (names of nn.Linear layers: whole paths, their
-- ends, or Lua patterns of whole paths; nil: all of them), dropout (0, in front of the adapters), trainable (names of modules that stay
-- trained, as a new head)
-- @treturn nn.Module net
-- @raise a target that no layer's name matches
-- @usage nn.utils.lora(model, {rank = 8, alpha = 16, targets = {'c_attn'}})
-- local opt = optim.AdamW(nn.utils.lora_parameters(model), {lr = 1e-3})
function M.lora(net, given)
  local op = 'nn.utils.lora'
  if not Module.is_module(net) then raise(op, 'a network expected, got %s', util.show(net)) end
  local o = options.read(op, given, known, { rank = 8, dropout = 0 })
  options.integer(op, 'rank', o.rank, 1)
  local alpha = options.number(op, 'alpha', o.alpha or o.rank)
  options.number(op, 'dropout', o.dropout, 0, 1)
  for name, m in net:named_modules() do
    if Module.raw_key(m, '.values').lora then raise(op, "'%s' has adapters already; nn.utils.merge_lora(net) takes them in", name) end
  end
  local layers = layers_of(op, net, check_targets(op, o.targets))
  local trainable = check_targets(op, o.trainable) or {}
  local before, kept = {}, {}
  for _, target in ipairs(trainable) do
    local count = #kept
    for name, m in net:named_modules() do
      if matches(name, target) then kept[#kept + 1] = m end
    end
    if #kept == count then raise(op, "no module's name matches '%s' of trainable", target) end
  end
  for _, p in ipairs(net:parameters()) do before[p:id()] = p.requires_grad end
  net:requires_grad_(false)
  for _, m in ipairs(kept) do m:requires_grad_(true) end
  for _, l in ipairs(layers) do
    local m, w = l.module, l.module.weight
    local like = { device = w.device, dtype = w.dtype:match '16' and 'float32' or w.dtype }
    m:register_parameter('lora_A', amp.empty({ o.rank, m.in_features }, like))
    m:register_parameter('lora_B', amp.zeros({ m.out_features, o.rank }, like))
    initializers.kaiming_uniform_(m.lora_A, { a = math.sqrt(5) })
    m.lora = { scale = alpha / o.rank, dropout = o.dropout, weight = before[w:id()], bias = m.bias and before[m.bias:id()] or false }
    m.forward = forward
  end
  rawset(Module.inside(net), '.unfrozen', before)
  return net
end

--- Take the adapters into the weights, and take them off; what was trained before `lora` is again.
-- @treturn nn.Module net
-- @raise a network without adapters
function M.merge_lora(net)
  local op = 'nn.utils.merge_lora'
  if not Module.is_module(net) then raise(op, 'a network expected, got %s', util.show(net)) end
  local count = 0
  for _, m in ipairs(net:modules()) do
    local at = Module.raw_key(m, '.values').lora
    if type(at) == 'table' and at.scale then
      count = count + 1
      amp.autocast({ enabled = false }, amp.no_grad, function()
        local d = m.lora_B:detach():matmul(m.lora_A:detach()) * at.scale
        local w = m.weight:detach()
        w:copy_(w:to(d.dtype) + d)
      end)
      m.lora_A, m.lora_B, m.lora, m.forward = nil, nil, nil, nil
      m.weight.requires_grad = at.weight
      if m.bias then m.bias.requires_grad = at.bias end
    end
  end
  if count == 0 then raise(op, 'the network has no adapters: nn.utils.lora(net, {rank, alpha, targets}) puts them there') end
  local before = Module.raw_key(net, '.unfrozen') or {}
  for _, p in ipairs(net:parameters()) do
    if before[p:id()] ~= nil then p.requires_grad = before[p:id()] end
  end
  rawset(Module.inside(net), '.unfrozen', nil)
  return net
end

--- The parameters that are trained: adapters, and what `trainable` named.
function M.lora_parameters(net)
  local out = {}
  for _, p in ipairs(net:parameters()) do
    if p.requires_grad then out[#out + 1] = p end
  end
  return out
end

--- The adapters alone, for a small file; net:load_state_dict(state, {strict = false}) takes them.
function M.lora_state_dict(net)
  local out = {}
  for name, t in pairs(net:state_dict()) do
    if name:match '%.?lora_[AB]$' then out[name] = t end
  end
  return out
end

return M
