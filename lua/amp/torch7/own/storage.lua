--- Torch7's storages: vectors under a tensor, and lists of sizes.
local ffi = require 'ffi'
local amp = require 'amp'
local core = require 'amp.torch7.own.core'
local raise = require('amp.error').throw
local getfenv, setfenv = debug.getfenv, debug.setfenv
local is_storage = core.is_storage

local S = core.storage_methods

local function size(s)
  local e = getfenv(s)
  return e.list and #e.list or tonumber(e.base.ptr_.numel)
end
function S.size(s) return size(s) end
function S.totable(s) return core.storage_list(s) end
function S.elementSize(s) return core.storage_base(s):element_size() end
function S.fill(s, v)
  local e = getfenv(s)
  if e.list then
    for i = 1, #e.list do e.list[i] = v end
  elseif e.base:numel() > 0 then
    core.fill(e.base, v)
  end
  return s
end
function S.resize(s, n)
  local e = getfenv(s)
  if e.list then
    for i = #e.list + 1, n do e.list[i] = 0 end
    for i = #e.list, n + 1, -1 do e.list[i] = nil end
  elseif n ~= size(s) then
    local grown = amp.zeros({n}, {dtype = e.base.dtype, device = e.base.device})
    local kept = math.min(n, size(s))
    if kept > 0 then grown:narrow(1, 1, kept):copy_(e.base:narrow(1, 1, kept)) end
    e.base = grown
  end
  return s
end
function S.copy(s, other)
  if size(s) ~= #core.storage_list(other) then raise('torch7.Storage', 'a storage of %d elements into one of %d', #core.storage_list(other), size(s)) end
  local e = getfenv(s)
  if e.list then e.list = core.storage_list(other)
  elseif size(s) > 0 then e.base:copy_(core.storage_base(other)) end
  return s
end
--- The bytes as a string, or a string's bytes; of Char and Byte storages.
function S.string(s, text)
  local kind = getmetatable(s).__type.kind
  if kind ~= 'Char' and kind ~= 'Byte' then raise('torch7.Storage', 'a storage of characters or bytes expected, got %s', getmetatable(s).__typename) end
  if text == nil then
    local base = core.storage_base(s)
    return base:numel() > 0 and ffi.string(base:data_ptr(), base:numel()) or ''
  end
  S.resize(s, #text)
  if #text > 0 then ffi.copy(core.storage_base(s):data_ptr(), text, #text) end
  return s
end
function S.data(s) return core.storage_base(s):data_ptr() end
function S.type(s, name)
  local t = getmetatable(s).__type
  if name == nil then return t.name end
  local to = core.storages[name]
  if not to then raise('torch7.Storage', "there is no type '%s'", tostring(name)) end
  return core.wrap_storage(core.storage_base(s):to(to.dtype))
end
for kind in pairs(core.dtypes) do
  S[kind:lower()] = function(s) return S.type(s, 'torch.' .. kind .. 'Storage') end
end

local function construct(t, first, ...)
  local long = t.name == 'torch.LongStorage'
  if type(first) == 'table' then
    if long then return core.long_storage {unpack(first)} end
    return core.wrap_storage(#first > 0 and amp.tensor(first, {dtype = 'float64'}):to(t.dtype) or amp.empty({0}, {dtype = t.dtype}))
  end
  if is_storage(first) then
    local start, n = ...
    local base = core.storage_base(first)
    if start then base = base:narrow(1, start, n or base:numel() - start + 1) end
    return core.wrap_storage(base:to(t.dtype))
  end
  local n = first or 0
  if type(n) ~= 'number' then raise('torch7.Storage', 'a size or a table expected, got %s', type(n)) end
  if long then
    local list = {}
    for i = 1, n do list[i] = 0 end
    return core.long_storage(list)
  end
  return core.wrap_storage(amp.zeros({n}, {dtype = t.dtype, device = t.device}))
end

for _, t in pairs(core.storages) do
  local mt, class = t.mt, t
  local methods = setmetatable({new = function(...) return construct(class, ...) end}, {__index = S})
  mt.new = methods.new
  mt.__index = function(s, k)
    if type(k) == 'string' then return methods[k] end
    local e = getfenv(s)
    local n = size(s)
    if type(k) ~= 'number' or k < 1 or k > n then raise('torch7.Storage', 'index %s of a storage of %d elements', tostring(k), n) end
    if e.list then return e.list[k] end
    return e.base[k]:item()
  end
  mt.__newindex = function(s, k, v)
    local e = getfenv(s)
    local n = size(s)
    if type(k) ~= 'number' or k < 1 or k > n then raise('torch7.Storage', 'index %s of a storage of %d elements', tostring(k), n) end
    if e.list then e.list[k] = v else core.fill(e.base:narrow(1, k, 1), v) end
  end
  mt.__len = size
  mt.__eq = function(a, b)
    if not is_storage(a) or not is_storage(b) then return false end
    local x, y = getfenv(a), getfenv(b)
    if x.base and y.base then return core.address(x.base) == core.address(y.base) end
    return rawequal(a, b)
  end
  mt.__tostring = function(s)
    local lines, list = {}, core.storage_list(s)
    for i = 1, math.min(#list, 1000) do lines[i] = (' %s'):format(list[i] % 1 == 0 and ('%d'):format(list[i]) or ('%.4f'):format(list[i])) end
    lines[#lines + 1] = ('[%s of size %d]\n'):format(class.name, #list)
    return table.concat(lines, '\n')
  end
  mt.__factory = function() return construct(class) end
  mt.__new = methods.new
  setmetatable(mt, {__index = methods, __call = function(_, ...) return construct(class, ...) end})
end
core.construct_storage, core.storage_length, core.setfenv = construct, size, setfenv

return core
