--- Torch7's tensors: what a tensor is asked and how it is indexed, reshaped and converted. Arithmetic is in own/maths.lua.
local amp = require 'amp'
local next_key = require('amp.core.keys').next
local core = require 'amp.torch7.own.core'
local raise = require('amp.error').throw

local M = core.methods
local wrap, amp_of, rebind, sizes, is_tensor = core.wrap, core.amp_of, core.rebind, core.sizes, core.is_tensor
local is_storage, size_arguments, show = core.is_storage, core.size_arguments, core.show
local getfenv = debug.getfenv

local function fail(name, ...) raise('torch7.' .. name, ...) end

-- A dimension of h, negative from the end.
local function dimension(name, h, d)
  local n = core.dim(h)
  if type(d) ~= 'number' or d % 1 ~= 0 then fail(name, 'a dimension is a whole number, got %s', tostring(d)) end
  local k = d < 0 and d + n + 1 or d
  if k < 1 or k > n then fail(name, 'dimension %d of a tensor of %d dimensions (%s)', d, n, show(sizes(h))) end
  return k
end
core.dimension = dimension

-- -- Questions -----------------------------------------------------------------------------------------

function M.dim(u) return core.dim(amp_of(u)) end
M.nDimension, M.ndimension = M.dim, M.dim
function M.nElement(u) return tonumber(amp_of(u).ptr_.numel) end
M.numel = M.nElement
function M.size(u, d)
  local h = amp_of(u)
  if d == nil then return core.long_storage(sizes(h)) end
  return tonumber(h.ptr_.size[dimension('size', h, d) - 1])
end
function M.stride(u, d)
  local h = amp_of(u)
  if d ~= nil then return tonumber(h.ptr_.stride[dimension('stride', h, d) - 1]) end
  local s = {}
  for i = 1, core.dim(h) do s[i] = tonumber(h.ptr_.stride[i - 1]) end
  return core.long_storage(s)
end
function M.storageOffset(u) return tonumber(amp_of(u).ptr_.offset) + 1 end
function M.elementSize(u) return amp_of(u):element_size() end
function M.isContiguous(u) return amp_of(u):is_contiguous() end
function M.isSameSizeAs(u, v) return core.same_sizes(amp_of(u), sizes(amp_of(v))) end
function M.isSize(u, s) return core.same_sizes(amp_of(u), size_arguments(s)) end
function M.isTensor() return true end
function M.isSetTo(u, v)
  local a, b = amp_of(u), amp_of(v)
  if core.address(a) ~= core.address(b) or a.ptr_.offset ~= b.ptr_.offset or not core.same_sizes(a, sizes(b)) then return false end
  for i = 0, a.ptr_.ndim - 1 do
    if a.ptr_.stride[i] ~= b.ptr_.stride[i] then return false end
  end
  return true
end
function M.totable(u)
  local h = amp_of(u)
  return core.dim(h) == 0 and {} or h:tolist()
end
function M.data(u) return amp_of(u):data_ptr() end
function M.cdata(u) return amp_of(u).ptr_ end
function M.amp(u) return amp_of(u) end
function M.getDevice(u) return amp_of(u).ptr_.device_index + 1 end
M.retain = function(u) return u end
M.free = function() end

-- -- Types ------------------------------------------------------------------------------------------------

function M.type(u, name)
  local t = getmetatable(u).__type
  if name == nil then return t.name end
  local to = core.types[name]
  if not to then fail('type', "there is no type '%s'", tostring(name)) end
  if to == t then return u end
  return wrap(amp_of(u):to(to.dtype):to(to.device))
end
function M.typeAs(u, v) return u:type(v:type()) end
for kind in pairs(core.dtypes) do
  M[kind:lower()] = function(u) return u:type('torch.' .. kind .. 'Tensor') end
  if kind ~= 'Float' then M['cuda' .. kind] = function(u) return u:type('torch.Cuda' .. kind .. 'Tensor') end end
end
function M.real(u) return u:type(require('amp.torch7.own.torch').getdefaulttensortype()) end
function M.cuda(u) return u:type 'torch.CudaTensor' end

-- -- Memory ------------------------------------------------------------------------------------------------

function M.clone(u)
  local h = amp_of(u)
  return wrap(h:contiguous() ~= h and h:contiguous() or h:clone())
end
function M.contiguous(u)
  local h = amp_of(u)
  return h:is_contiguous() and u or wrap(h:contiguous())
end
function M.resize(u, ...) return core.resize(u, size_arguments(...)) end
function M.resizeAs(u, v) return core.resize(u, sizes(amp_of(v))) end
function M.storage(u)
  local h = amp_of(u)
  if h.ptr_.numel == 0 then return core.wrap_storage(h) end
  return core.wrap_storage(h:as_strided({core.storage_size(h)}, {1}, 0))
end

-- A view of a storage: offset from 1, sizes and strides as storages or as pairs of numbers.
local function storage_view(s, offset, size, stride, ...)
  local base = core.storage_base(s)
  offset = offset or 1
  local list, steps
  if size == nil then
    list = {base:numel() - offset + 1}
  elseif type(size) == 'number' then
    list, steps = {}, {}
    local given = {size, stride or -1, ...}
    for i = 1, #given, 2 do
      list[#list + 1] = given[i]
      steps[#steps + 1] = given[i + 1] or -1
    end
  else
    list = size_arguments(size)
    steps = stride and size_arguments(stride) or nil
  end
  local full, n = core.contiguous_strides(list)
  if steps then
    local at = 1
    for i = #list, 1, -1 do -- a stride below 0 is what makes it contiguous
      if steps[i] == nil or steps[i] < 0 then steps[i] = at end
      at = steps[i] * list[i]
    end
  end
  if n == 0 or #list == 0 then return base:as_strided({0}, {1}, 0) end
  local last = offset
  for i = 1, #list do last = last + (list[i] - 1) * (steps or full)[i] end
  if last > base:numel() or offset < 1 then
    if #list > 0 and not steps or last > base:numel() then -- a storage grows with the tensor that is laid over it
      local grown = amp.zeros({math.max(last, 1)}, {dtype = base.dtype, device = base.device})
      if base:numel() > 0 then grown:narrow(1, 1, base:numel()):copy_(base) end
      base = grown
      getfenv(s).base = grown
    end
  end
  return base:as_strided(list, steps or full, offset - 1)
end

function M.set(u, first, ...)
  if first == nil then
    local t = getmetatable(u).__type
    return rebind(u, amp.empty({0}, {dtype = t.dtype, device = t.device}))
  end
  if is_tensor(first) then
    local h = amp_of(first)
    if getmetatable(first) ~= getmetatable(u) then fail('set', 'a %s expected, got %s', u:type(), first:type()) end
    return rebind(u, h:as_strided(h:size(), h:stride(), tonumber(h.ptr_.offset)))
  end
  if is_storage(first) then return rebind(u, storage_view(first, ...)) end
  fail('set', 'a tensor or a storage expected, got %s', type(first))
end

--- torch.XTensor(...): sizes, a table, a tensor (shared), a storage with offset, sizes and strides.
function core.construct(t, first, ...)
  local o = {dtype = t.dtype, device = t.device}
  if first == nil then return wrap(amp.empty({0}, o)) end
  if is_tensor(first) then
    local h = amp_of(first)
    if h.dtype ~= t.dtype then fail('Tensor', 'a %s expected, got %s; convert it by :type()', t.name, first:type()) end
    if ... ~= nil then fail('Tensor', 'nothing follows a tensor') end
    return wrap(h:as_strided(h:size(), h:stride(), tonumber(h.ptr_.offset)))
  end
  if amp.is_tensor(first) then return wrap(first:detach():to(t.dtype):to(t.device)) end
  if is_storage(first) then
    local list_like = getmetatable(first).__typename == 'torch.LongStorage'
    local second = ...
    if list_like and (t.name ~= 'torch.LongTensor' or is_storage(second)) then -- sizes, and maybe strides
      local s = core.storage_list(first)
      if #s == 0 then return wrap(amp.empty({0}, o)) end
      local h = amp.zeros(s, o)
      if second ~= nil then
        local steps, last = size_arguments(second), 1
        for i = 1, #s do last = last + (s[i] - 1) * steps[i] end
        h = amp.zeros({last}, o):as_strided(s, steps, 0)
      end
      return wrap(h)
    end
    if list_like and second == nil then -- a LongTensor of the storage's elements, in its memory
      return wrap(storage_view(first))
    end
    return wrap(storage_view(first, ...))
  end
  if type(first) == 'table' then
    if next_key(first) == nil then return wrap(amp.empty({0}, o)) end
    local function numbers(v)
      if is_tensor(v) then return v:totable() end
      if type(v) ~= 'table' then return v end
      local out = {}
      for i, x in ipairs(v) do out[i] = numbers(x) end
      return out
    end
    return wrap(amp.tensor(numbers(first), {dtype = 'float64'}):to(t.dtype):to(t.device))
  end
  local s = size_arguments(first, ...)
  local n = 1
  for i, v in ipairs(s) do
    if v < 0 then fail('Tensor', 'size %d of dimension %d', v, i) end
    s[i] = math.floor(v)
    n = n * s[i]
  end
  if n == 0 then return wrap(amp.empty({0}, o)) end
  return wrap(amp.zeros(s, o))
end

-- Copies any tensor of as many elements, of any type.
function M.copy(u, v)
  if amp.is_tensor(v) then v = wrap(v) end
  if is_storage(v) then v = wrap(core.storage_base(v)) end
  if not is_tensor(v) then fail('copy', 'a tensor expected, got %s', type(v)) end
  local a, b = amp_of(u), amp_of(v)
  if a.ptr_.numel ~= b.ptr_.numel then fail('copy', 'a tensor of %s into one of %s', show(sizes(b)), show(sizes(a))) end
  if a.ptr_.numel == 0 then return u end
  if a:size() ~= b:size() then b = b:reshape(a:size()) end
  if b.device ~= a.device then b = b:to(a.device) end
  if not b:is_floating_point() or a:is_floating_point() then a:copy_(b) else a:copy_(b:trunc()) end
  return u
end

-- -- Views ------------------------------------------------------------------------------------------------------

local function view_of(h, s)
  local free, n = nil, 1
  for i, v in ipairs(s) do
    if v == -1 then
      if free then fail('view', 'only one size can be -1') end
      free = i
    else
      n = n * v
    end
  end
  local total = tonumber(h.ptr_.numel)
  if free then
    if n == 0 or total % n ~= 0 then fail('view', 'a tensor of %s cannot be seen as %s', show(sizes(h)), show(s)) end
    s[free] = total / n
  elseif n ~= total then
    fail('view', 'a tensor of %s cannot be seen as %s', show(sizes(h)), show(s))
  end
  if not h:is_contiguous() then
    local ok, v = pcall(h.view, h, s)
    if ok then return v end
    fail('view', 'a contiguous tensor expected (%s): call contiguous() first', show(sizes(h)))
  end
  return h:view(s)
end

-- name(u, ...) gives a view of u; res:name(tensor, ...) lets res be it.
-- A view is another handle even where nothing changed: a module lets go of the handles of its results.
local function other_handle(h, v) return rawequal(h, v) and h:detach() or v end
local function view_method(name, f)
  M[name] = function(u, first, ...)
    if is_tensor(first) and (name ~= 'viewAs' and name ~= 'expandAs' or is_tensor((...))) then
      return rebind(u, other_handle(amp_of(first), f(amp_of(first), ...)))
    end
    return wrap(other_handle(amp_of(u), f(amp_of(u), first, ...)))
  end
end
view_method('view', function(h, ...) return view_of(h, size_arguments(...)) end)
view_method('viewAs', function(h, like) return view_of(h, sizes(amp_of(like))) end)
local function expand(h, s)
  if #s < h.ptr_.ndim then fail('expand', '%d sizes for a tensor of %s', #s, show(sizes(h))) end
  for i = 1, h.ptr_.ndim do
    local have, want = tonumber(h.ptr_.size[i - 1]), s[#s - h.ptr_.ndim + i]
    if have ~= want and have ~= 1 and want ~= -1 then fail('expand', 'a tensor of %s to %s', show(sizes(h)), show(s)) end
    if want == -1 then s[#s - h.ptr_.ndim + i] = have end
  end
  return h:expand(s)
end
view_method('expand', function(h, ...) return expand(h, size_arguments(...)) end)
view_method('expandAs', function(h, like) return expand(h, sizes(amp_of(like))) end)
view_method('narrow', function(h, d, start, n)
  d = dimension('narrow', h, d)
  local size = tonumber(h.ptr_.size[d - 1])
  if type(start) ~= 'number' or type(n) ~= 'number' or start < 1 or n < 1 or start + n - 1 > size then
    fail('narrow', 'elements %s to %s of dimension %d, which has size %d', tostring(start), tostring((tonumber(start) or 0) + (tonumber(n) or 0) - 1), d, size)
  end
  return h:narrow(d, start, n)
end)
view_method('select', function(h, d, i)
  d = dimension('select', h, d)
  local size = tonumber(h.ptr_.size[d - 1])
  if type(i) ~= 'number' or i < 1 or i > size then fail('select', 'index %s of dimension %d, which has size %d', tostring(i), d, size) end
  if h.ptr_.ndim == 1 then return h:narrow(1, i, 1) end
  return h:select(d, i)
end)
view_method('transpose', function(h, a, b) return h:transpose(dimension('transpose', h, a), dimension('transpose', h, b)) end)
view_method('t', function(h)
  if core.dim(h) ~= 2 then fail('t', 'a matrix expected, got %s', show(sizes(h))) end
  return h:transpose(1, 2)
end)
view_method('permute', function(h, ...) return h:permute(size_arguments(...)) end)
view_method('unfold', function(h, d, size, step) return h:unfold(dimension('unfold', h, d), size, step) end)
view_method('squeeze', function(h, d)
  if d then
    d = dimension('squeeze', h, d)
    if h.ptr_.size[d - 1] ~= 1 or h.ptr_.ndim == 1 then return h end
    return h:squeeze(d)
  end
  local s = {}
  for _, n in ipairs(sizes(h)) do
    if n ~= 1 then s[#s + 1] = n end
  end
  if #s == 0 then s[1] = 1 end
  local v = h
  for i = h.ptr_.ndim, 1, -1 do
    if v.ptr_.ndim > 1 and v.ptr_.size[i - 1] == 1 then v = v:squeeze(i) end
  end
  return v
end)
local squeezed = M.squeeze
function M.squeeze(u, first, ...)
  local r = squeezed(u, first, ...)
  if not is_tensor(first) and first == nil and amp_of(r).ptr_.numel == 1 then return amp_of(r):reshape(1):item() end
  return r
end
function M.sub(u, ...)
  local given = {...}
  local h = amp_of(u)
  for d = 1, #given / 2 do
    local a, b, n = given[2 * d - 1], given[2 * d], tonumber(h.ptr_.size[d - 1])
    if a < 0 then a = a + n + 1 end
    if b < 0 then b = b + n + 1 end
    h = amp_of(wrap(h):narrow(d, a, b - a + 1))
  end
  return wrap(h)
end
function M.split(u, first, second, third)
  local list, h, n, d
  if type(first) == 'table' then list, h, n, d = first, amp_of(second), third, nil else list, h, n, d = {}, amp_of(u), first, second end
  d = dimension('split', h, d or 1)
  for i = #list, 1, -1 do list[i] = nil end
  for at = 1, tonumber(h.ptr_.size[d - 1]), n do
    list[#list + 1] = wrap(h:narrow(d, at, math.min(n, tonumber(h.ptr_.size[d - 1]) - at + 1)))
  end
  return list
end
function M.chunk(u, n, d)
  d = dimension('chunk', amp_of(u), d or 1)
  return M.split(u, math.ceil(u:size(d) / n), d)
end
M.repeatTensor = function(u, first, ...)
  local h, s
  if is_tensor(first) then h, s = amp_of(first), size_arguments(...) else h, s = amp_of(u), size_arguments(first, ...) end
  if #s < h.ptr_.ndim then fail('repeatTensor', '%d counts for a tensor of %s', #s, show(sizes(h))) end
  local out = h:tile(unpack(s)):contiguous()
  if is_tensor(first) then return core.assign(u, out) end
  return wrap(rawequal(out, h) and out:clone() or out)
end

-- -- Indexing -----------------------------------------------------------------------------------------------------

local function place(h, d, i)
  local n = tonumber(h.ptr_.size[d - 1])
  if type(i) ~= 'number' then fail('index', 'a number, a range or a mask expected, got %s', type(i)) end
  if i < 0 then i = i + n + 1 end
  i = math.floor(i)
  if i < 1 or i > n then fail('index', 'index %d of dimension %d, which has size %d', i, d, n) end
  return i
end

-- The part of h that a list of numbers and ranges means; true where each dimension was given a number.
local function part(h, list)
  if #list > core.dim(h) then fail('index', '%d indices for a tensor of %s', #list, show(sizes(h))) end
  local at, numbers = 1, 0
  for i = 1, #list do
    local e = list[i]
    if type(e) == 'number' then
      h = h:select(at, place(h, at, e))
      numbers = numbers + 1
    elseif type(e) == 'table' then
      if e[1] ~= nil then
        local n = tonumber(h.ptr_.size[at - 1])
        local a, b = e[1], e[2] or e[1]
        a = place(h, at, a)
        b = place(h, at, b)
        if b < a then fail('index', 'the range %d..%d of dimension %d (size %d)', a, b, at, n) end
        h = h:narrow(at, a, b - a + 1)
      end
      at = at + 1
    else
      fail('index', 'number %d of the indices is %s; a number or a range {a, b} expected', i, type(e))
    end
  end
  return h, numbers == #list and h.ptr_.ndim == 0
end

local function mask_of(u, m)
  local h, k = amp_of(u), amp_of(m)
  if k.ptr_.numel ~= h.ptr_.numel then fail('index', 'a mask of %s for a tensor of %s', show(sizes(k)), show(sizes(h))) end
  if k.ptr_.device ~= h.ptr_.device then k = k:to(h.device) end
  k = k:ne(0)
  return k:size() == h:size() and k or k:reshape(h:size())
end
core.mask_of = mask_of

local function get(u, k)
  local h = amp_of(u)
  if type(k) == 'number' then
    if core.dim(h) == 0 then fail('index', 'a tensor without dimensions has no elements') end
    local v = h:select(1, place(h, 1, k))
    if v.ptr_.ndim == 0 then return v:item() end
    return wrap(v)
  end
  if type(k) == 'table' then
    local v, scalar = part(h, k)
    if scalar then return v:item() end
    return wrap(v)
  end
  if is_storage(k) then
    local v, scalar = part(h, core.storage_list(k))
    if scalar then return v:item() end
    return wrap(v)
  end
  if is_tensor(k) then return wrap(h:masked_select(mask_of(u, k))) end
  fail('index', 'a number, a list or a mask expected, got %s', type(k))
end

local function fill(h, v)
  if not h:is_floating_point() and v % 1 ~= 0 and v == v then v = v < 0 and math.ceil(v) or math.floor(v) end
  h:fill_(v)
end
core.fill = fill

local function set(u, k, value)
  local h = amp_of(u)
  if type(value) == 'cdata' and not amp.is_tensor(value) then value = tonumber(value) end
  if is_tensor(k) then
    local mask = mask_of(u, k)
    if type(value) == 'number' then
      h:masked_fill_(mask, value)
    else
      h:copy_(amp.masked_scatter(h, mask, amp_of(value):to(h.dtype)))
    end
    return
  end
  local v
  if type(k) == 'number' then v = h:select(1, place(h, 1, k))
  elseif type(k) == 'table' then v = part(h, k)
  elseif is_storage(k) then v = part(h, core.storage_list(k))
  else fail('index', 'a number, a list or a mask expected, got %s', type(k)) end
  if type(value) == 'number' then return fill(v, value) end
  local src
  if type(value) == 'table' then src = amp_of(core.construct(getmetatable(u).__type, value))
  elseif is_tensor(value) then src = amp_of(value)
  elseif is_storage(value) then src = core.storage_base(value)
  else fail('index', 'a number or a tensor expected, got %s', type(value)) end
  if src.ptr_.numel ~= v.ptr_.numel then
    fail('index', 'a tensor of %s into a place of %s', show(sizes(src)), v.ptr_.ndim == 0 and 'one number' or show(sizes(v)))
  end
  v:copy_(src:size() == v:size() and src or src:reshape(v:size()))
end

for _, t in pairs(core.types) do
  local mt, class = t.mt, t
  local methods = setmetatable({}, {__index = M})
  mt.__methods = methods
  methods.new = function(...) return core.construct(class, ...) end
  mt.new = methods.new
  mt.__index = function(u, k)
    if type(k) == 'string' then return methods[k] end
    return get(u, k)
  end
  mt.__newindex = function(u, k, v)
    if type(k) == 'string' then fail('index', "'%s' of a tensor cannot be assigned", k) end
    set(u, k, v)
  end
  mt.__len = function(u) return u:size() end
  mt.__factory = function() return core.construct(class) end
  mt.__new = methods.new
  -- methods are found through the class too, and those that a script adds are for all of its type
  setmetatable(mt, {__index = methods, __call = function(_, ...) return core.construct(class, ...) end})
end

return core
