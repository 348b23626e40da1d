--- Modules on Torch7's own tensors: copies, other types, and all parameters as one vector.
local amp = require 'amp'
local core = require 'amp.torch7.own.core'
local raise = require('amp.error').throw
local is_tensor, amp_of, wrap = core.is_tensor, core.amp_of, core.wrap

return function(nn, torch)
  local Module = nn.Module

  -- -- Copies and types --------------------------------------------------------------------------------

  -- Copies of storages, so that tensors that shared one share its copy.
  local function copy_tensor(u, bases, convert)
    local h = amp_of(u)
    if h.ptr_.numel == 0 then return wrap(convert(h)) end
    local key = core.address(h)
    local base = bases[key]
    if not base then
      local whole = h:as_strided({core.storage_size(h)}, {1}, 0)
      base = {convert(whole), whole} -- the first must not go while its address stands for it
      bases[key] = base
    end
    return wrap(base[1]:as_strided(h:size(), h:stride(), tonumber(h.ptr_.offset)))
  end
  local function deep_copy(v, seen, bases, left_out)
    if is_tensor(v) then
      seen[v] = seen[v] or copy_tensor(v, bases, function(h) return h:clone() end)
      return seen[v]
    end
    if core.is_storage(v) then
      seen[v] = seen[v] or core.construct_storage(getmetatable(v).__type, v:totable())
      return seen[v]
    end
    if type(v) ~= 'table' then return v end
    if seen[v] then return seen[v] end
    local out = {}
    seen[v] = out
    local module = torch.isTypeOf(v, 'nn.Module')
    for k, x in pairs(v) do
      if module and left_out[k] and is_tensor(x) then out[k] = x.new()
      else out[deep_copy(k, seen, bases, left_out)] = deep_copy(x, seen, bases, left_out) end
    end
    return setmetatable(out, getmetatable(v))
  end
  --- A copy of the module; parameters named are shared with it: net:clone('weight', 'bias').
  function Module:clone(...)
    local left_out = {}
    for _, name in ipairs {...} do left_out[name] = true end
    local copy = deep_copy(self, {}, {}, left_out)
    if select('#', ...) > 0 then copy:share(self, ...) end
    return copy
  end
  function Module:type(name, cache)
    if name == nil then return self._type end
    cache = cache or {}
    for k, v in pairs(self) do self[k] = nn.utils.recursiveType(v, name, cache) end
    self._type = name
    return self
  end
  for name, to in pairs {float = 'torch.FloatTensor', double = 'torch.DoubleTensor', half = 'torch.HalfTensor', cuda = 'torch.CudaTensor',
    cudaHalf = 'torch.CudaHalfTensor', cudaDouble = 'torch.CudaDoubleTensor'} do
    Module[name] = function(self, ...) return self:type(to, ...) end
  end
  nn.copy_tensor = copy_tensor

  -- -- One vector of parameters -----------------------------------------------------------------------------

  -- Where the elements of a storage that tensors use go: all as they are, or those that are used, close together.
  local function place_storage(s)
    local n = s.base:numel()
    local mask = amp.zeros({n}, {dtype = 'uint8', device = s.base.device})
    for _, h in ipairs(s.tensors) do mask:as_strided(h:size(), h:stride(), tonumber(h.ptr_.offset)):fill_(1) end
    local used = mask:sum():item()
    if used == n then return s.base, n, function(offset) return offset end end
    local at = amp.cumsum(mask:long(), {dim = 1})
    return s.base:masked_select(mask:ne(0)), used, function(offset) return at[offset + 1]:item() - 1 end
  end
  --- All tensors of a list as parts of one vector, which is given; what they shared they share in it.
  function Module.flatten(list)
    if not list or #list == 0 then return torch.Tensor() end
    local storages, by_key, kind = {}, {}, torch.type(list[1])
    for i, u in ipairs(list) do
      if torch.type(u) ~= kind then raise('torch7.getParameters', 'parameter %d is a %s, the first is a %s', i, torch.type(u), kind) end
      local h = amp_of(u)
      local key = core.address(h)
      local s = by_key[key]
      if not s then
        s = {tensors = {}, base = h:as_strided({core.storage_size(h)}, {1}, 0)}
        by_key[key] = s
        storages[#storages + 1] = s
      end
      s.tensors[#s.tensors + 1] = h
    end
    local parts, start = {}, 0
    for i, s in ipairs(storages) do
      local n
      parts[i], n, s.place = place_storage(s)
      s.start = start
      start = start + n
    end
    local flat = #parts == 1 and parts[1]:clone() or amp.cat(parts, 1)
    for _, u in ipairs(list) do
      local h = amp_of(u)
      local s = by_key[core.address(h)]
      core.rebind(u, flat:as_strided(h:size(), h:stride(), s.start + s.place(tonumber(h.ptr_.offset))))
    end
    return wrap(flat)
  end
  function Module:getParameters()
    local params, grads = self:parameters()
    local p, g = Module.flatten(params), Module.flatten(grads)
    if p:nElement() ~= g:nElement() then
      raise('torch7.getParameters', '%d parameters and %d gradients: share both', p:nElement(), g:nElement())
    end
    return p, g
  end
  nn.deep_copy = deep_copy
end
