--- Torch7's own tensors: userdata that hold a handle of an amp tensor, which resize, set and the like replace. One metatable a
-- type, torch.FloatTensor and so on, with the methods of all. Nothing here requires gradients.
--
--   tensor (userdata) --environment--> {h = amp tensor}        storage (userdata) --> {base = amp vector} or {list = numbers}
--
-- A tensor without dimensions is an amp tensor of size 0.
local ffi = require 'ffi'
local amp = require 'amp'
local core = require 'amp.ffi'
local classes = require 'amp.torch7.class'
local raise = require('amp.error').throw
local C = core.C
local getfenv, setfenv, newproxy = debug.getfenv, debug.setfenv, newproxy
local is_amp = amp.is_tensor

ffi.cdef 'int amp_posix_memcmp(const void *a, const void *b, size_t n) __asm__("memcmp");'

local M = {}

M.dtypes = {Byte = 'uint8', Char = 'int8', Short = 'int16', Int = 'int32', Long = 'int64', Float = 'float32', Double = 'float64', Half = 'float16'}
local kind_of = {bool = 'Byte'}
for kind, dtype in pairs(M.dtypes) do kind_of[dtype] = kind end
M.kind_of = kind_of

M.methods = {} -- of tensors
M.storage_methods = {}

-- -- Classes -----------------------------------------------------------------------------------------------

-- name -> {proto =, mt =, dtype =, device =}
local types, storages = {}, {}
M.types, M.storages = types, storages

local function type_name(kind, device, what)
  if device == 'cpu' then return 'torch.' .. kind .. what end
  return 'torch.Cuda' .. (kind == 'Float' and '' or kind) .. what
end

local function build(name, kind, device, what, registry)
  local proto = newproxy(true)
  local mt = getmetatable(proto)
  mt.__typename, mt.__torch7, mt.__version = name, what, 1
  local t = {proto = proto, mt = mt, dtype = M.dtypes[kind], device = device, name = name, kind = kind}
  mt.__type = t
  registry[name] = t
  classes.classes[name] = mt
  return t
end
for kind in pairs(M.dtypes) do
  for _, device in ipairs {'cpu', 'cuda'} do
    build(type_name(kind, device, 'Tensor'), kind, device, 'tensor', types)
    build(type_name(kind, device, 'Storage'), kind, device, 'storage', storages)
  end
end

--- The class that a name in a file stands for. A GPU's has the layout of the CPU's, which is taken where cutorch was not asked for.
M.on_gpu = false -- set by `require 'cutorch'`
function M.class_here(registry, name)
  local t = registry[name]
  if t and t.device ~= 'cpu' and not M.on_gpu then t = registry['torch.' .. t.kind .. name:match '(%u%l+)$'] end
  return t
end

-- Class of a dtype on a device, looked up by numbers.
local by_code = {}
local function class_of(h)
  local p = h.ptr_
  local code = p.dtype * 4 + p.device
  local t = by_code[code]
  if not t then
    local kind = kind_of[h.dtype]
    if not kind then raise('torch7', 'Torch7 has no tensors of %s: convert it first', h.dtype) end
    t = types[type_name(kind, p.device == 0 and 'cpu' or 'cuda', 'Tensor')]
    by_code[code] = t
  end
  return t
end
M.class_of = class_of

-- -- Handles ---------------------------------------------------------------------------------------------------

-- The handles once more, where they are found fast; the environments own them.
local handles = setmetatable({}, {__mode = 'kv'})

--- A tensor around an amp tensor, whose memory it shares.
local function wrap(h)
  if h.ptr_.dtype == 9 then h = h:to 'uint8' end -- masks are bytes
  local u = newproxy(class_of(h).proto)
  setfenv(u, {h = h})
  handles[u] = h
  return u
end
M.wrap = wrap

--- Is v one of these tensors?
local function is_tensor(v)
  if type(v) ~= 'userdata' then return false end
  local mt = getmetatable(v)
  return type(mt) == 'table' and rawget(mt, '__torch7') == 'tensor'
end
M.is_tensor = is_tensor

function M.is_storage(v)
  if type(v) ~= 'userdata' then return false end
  local mt = getmetatable(v)
  return type(mt) == 'table' and rawget(mt, '__torch7') == 'storage'
end

--- The amp tensor of a tensor.
local function amp_of(u) return handles[u] or getfenv(u).h end
M.amp_of = amp_of

--- Let a tensor hold another amp tensor of its type.
function M.hold(u, h)
  getfenv(u).h = h
  handles[u] = h
end

--- The amp tensor of a tensor of either kind, anything else as it is.
function M.unwrap(v)
  if is_tensor(v) then return amp_of(v) end
  return v
end

--- Nested tables of tensors as tables of amp tensors, and back.
local function unwrap_all(v)
  if type(v) == 'userdata' then return is_tensor(v) and amp_of(v) or v end
  if type(v) ~= 'table' or getmetatable(v) ~= nil then return v end
  local out = {}
  for k, x in pairs(v) do out[k] = unwrap_all(x) end
  return out
end
M.unwrap_all = unwrap_all
local function wrap_all(v)
  if is_amp(v) then return wrap(v) end
  if type(v) ~= 'table' then return v end
  local out = {}
  for k, x in pairs(v) do out[k] = wrap_all(x) end
  return out
end
M.wrap_all = wrap_all

--- Let a tensor be another amp tensor, in its own type.
local function rebind(u, h)
  local t = getmetatable(u).__type
  if h.dtype ~= t.dtype then h = h:to(t.dtype) end
  M.hold(u, h)
  return u
end
M.rebind = rebind

function M.dim(h)
  local n = h.ptr_.ndim
  if n == 1 and h.ptr_.size[0] == 0 then return 0 end
  return n
end

-- Sizes as a list; none for a tensor without dimensions.
local function sizes(h)
  local p, s = h.ptr_, {}
  if p.ndim == 1 and p.size[0] == 0 then return s end
  for i = 1, p.ndim do s[i] = tonumber(p.size[i - 1]) end
  return s
end
M.sizes = sizes

local function same_sizes(h, s)
  local p = h.ptr_
  if #s == 0 then return p.numel == 0 end
  if p.ndim ~= #s then return false end
  for i = 1, #s do
    if p.size[i - 1] ~= s[i] then return false end
  end
  return true
end
M.same_sizes = same_sizes

--- Do two amp tensors have the same sizes?
function M.same_shape(a, b)
  local p, q = a.ptr_, b.ptr_
  return p.ndim == q.ndim and ffi.C.amp_posix_memcmp(p.size, q.size, 8 * p.ndim) == 0
end

function M.show(s) return #s == 0 and 'nothing' or table.concat(s, 'x') end

local function contiguous_strides(s)
  local strides, n = {}, 1
  for i = #s, 1, -1 do
    strides[i] = n
    n = n * s[i]
  end
  return strides, n
end
M.contiguous_strides = contiguous_strides

--- Elements that a tensor's storage has.
function M.storage_size(h) return math.floor(tonumber(C.amp_tensor_storage_bytes(h)) / h:element_size()) end

--- Give u other sizes: its memory stays where it is large enough, else it moves with what it held.
function M.resize(u, s)
  local h = amp_of(u)
  if same_sizes(h, s) then return u end
  local strides, n = contiguous_strides(s)
  if #s == 0 or n == 0 then return rebind(u, h:as_strided({0}, {1}, tonumber(h.ptr_.offset))) end
  local offset = tonumber(h.ptr_.offset)
  local capacity = M.storage_size(h)
  if offset + n <= capacity then return rebind(u, h:as_strided(s, strides, offset)) end
  local grown = amp.zeros({n}, {dtype = h.dtype, device = h.device})
  local kept = capacity - offset
  if kept > 0 then grown:narrow(1, 1, kept):copy_(h:as_strided({kept}, {1}, offset)) end
  return rebind(u, grown:view(s))
end

--- Put an amp tensor's values into u, which takes its sizes.
local function assign(u, t)
  local h = amp_of(u)
  local s = sizes(t)
  if t.ptr_.ndim == 0 then s = {1} end
  if not same_sizes(h, s) then
    M.resize(u, s)
    h = amp_of(u)
  end
  if t.ptr_.numel > 0 then h:copy_(t.ptr_.ndim == 0 and t:view(1) or t) end
  return u
end
M.assign = assign

-- -- Storages -----------------------------------------------------------------------------------------------------

--- A LongStorage of numbers.
local long = storages['torch.LongStorage']
function M.long_storage(list)
  local u = newproxy(long.proto)
  setfenv(u, {list = list})
  return u
end

--- A storage around an amp vector.
function M.wrap_storage(base)
  local t = class_of(base)
  local u = newproxy(storages[(t.name:gsub('Tensor$', 'Storage'))].proto)
  setfenv(u, {base = base})
  return u
end

--- The amp vector of a storage.
local function storage_base(s)
  local e = getfenv(s)
  if not e.base then
    e.base = #e.list > 0 and amp.tensor(e.list, {dtype = 'int64', device = 'cpu'}) or amp.empty({0}, {dtype = 'int64', device = 'cpu'})
    e.list = nil
  end
  return e.base
end
M.storage_base = storage_base

--- A storage's elements, a list that may be kept.
function M.storage_list(s)
  local e = getfenv(s)
  if e.list then return {unpack(e.list)} end
  return e.base:tolist()
end

--- Sizes given as numbers, as one LongStorage, or as a table.
function M.size_arguments(first, ...)
  if first == nil then return {} end
  if M.is_storage(first) then return M.storage_list(first) end
  if is_tensor(first) then return amp_of(first):long():tolist() end
  if type(first) == 'table' then
    if first.totable then return first:totable() end
    return {unpack(first)}
  end
  local s = {first, ...}
  for i, v in ipairs(s) do
    if type(v) ~= 'number' then raise('torch7', 'sizes are numbers, got %s as number %d', type(v), i) end
    s[i] = v < 0 and math.ceil(v) or math.floor(v)
  end
  return s
end

--- An address that is the same for all tensors of one storage.
function M.address(h) return tonumber(ffi.cast('intptr_t', ffi.cast('void *', h.ptr_.storage))) end

return M
