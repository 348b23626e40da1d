--- Keys and values of tokens that were seen, one pair of tensors a layer, made once and written in place.
-- @module amp.text.models.cache
local amp = require 'amp'

local Cache = {}
Cache.__index = Cache

--- @tparam number layers
-- @tparam number batch
-- @tparam number heads of keys
-- @tparam number length most tokens
-- @tparam number size of a head
-- @tparam string dtype
-- @tparam string device
-- @tparam boolean fixed every step attends over the whole length, under a mask, and writes where the tensor `at` says: its shapes
-- are the same from step to step
function Cache.new(layers, batch, heads, length, size, dtype, device, fixed)
  local self = setmetatable({ length = length, used = 0, fixed = fixed, both = {}, keys = {}, values = {} }, Cache)
  self.all = amp.zeros({ layers, 2, batch, heads, length, size }, { dtype = dtype, device = device })
  for i = 1, layers do
    local both = self.all:select(1, i)
    self.both[i], self.keys[i], self.values[i] = both, both:select(1, 1), both:select(1, 2)
  end
  return self
end

--- Take a layer's new keys and values, which lie in one tensor: 2 x batch x heads x tokens x size.
-- @treturn Tensor all keys to attend over
-- @treturn Tensor all values
function Cache:put_both(layer, new)
  if not self.at then return self:put(layer, new:select(1, 1), new:select(1, 2)) end
  local both = self.both[layer]
  both:index_copy_(4, self.at, new.dtype == both.dtype and new or new:to(both.dtype)) -- in one launch
  return self.keys[layer], self.values[layer]
end

--- Take a layer's new keys and values.
-- @treturn Tensor all keys to attend over
-- @treturn Tensor all values
function Cache:put(layer, k, v)
  local keys, values, n = self.keys[layer], self.values[layer], k:size(3)
  if self.at then
    keys:index_copy_(3, self.at, k:to(keys.dtype))
    values:index_copy_(3, self.at, v:to(values.dtype))
    return keys, values
  end
  keys:narrow(3, self.used + 1, n):copy_(k)
  values:narrow(3, self.used + 1, n):copy_(v)
  if self.used == 0 then return k, v end -- the first tokens see each other
  return keys:narrow(3, 1, self.used + n), values:narrow(3, 1, self.used + n)
end

--- Let all tensors go.
function Cache:free()
  for _, list in ipairs { self.keys, self.values, self.both } do
    for i = 1, #list do list[i]:free() end
  end
  self.all:free()
end

return Cache
