--- The table `torch` on Torch7's own tensors: types, constructors, classes, functions, files.
local amp = require 'amp'
local core = require 'amp.torch7.own.tensor'
require 'amp.torch7.own.storage'
require 'amp.torch7.own.maths'
require 'amp.torch7.own.linear'
require 'amp.torch7.own.print'
local ops = require 'amp.torch7.own.ops'
local classes = require 'amp.torch7.class'
local raise = require('amp.error').throw
local is_tensor, is_storage, wrap, amp_of = core.is_tensor, core.is_storage, core.wrap, core.amp_of

local torch = {}
require 'amp.torch7.own.random'(torch)

-- -- Types ---------------------------------------------------------------------------------------------

for name, t in pairs(core.types) do
  if t.device == 'cpu' then torch[name:match '%.(.*)$'] = t.mt end
end
for name, t in pairs(core.storages) do
  if t.device == 'cpu' then torch[name:match '%.(.*)$'] = t.mt end
end

local default -- the class torch.Tensor stands for
function torch.setdefaulttensortype(name)
  local t = core.types[name]
  if not t then raise('torch7.setdefaulttensortype', "there is no type '%s'", tostring(name)) end
  if t.kind ~= 'Float' and t.kind ~= 'Double' and t.kind ~= 'Half' then raise('torch7.setdefaulttensortype', 'a type of floats expected, got %s', name) end
  default = t
  torch.Tensor = t.mt
  torch.Storage = core.storages[(name:gsub('Tensor$', 'Storage'))].mt
end
torch.setdefaulttensortype 'torch.DoubleTensor'
function torch.getdefaulttensortype() return default.name end

function torch.typename(v)
  local mt = getmetatable(v)
  return type(mt) == 'table' and rawget(mt, '__typename') or nil
end
function torch.type(v) return torch.typename(v) or type(v) end
torch.isTensor, torch.isStorage = is_tensor, is_storage
function torch.isTypeOf(v, name)
  if type(v) ~= 'table' and type(v) ~= 'userdata' then return false end
  if is_tensor(v) and name == 'torch.Tensor' then return true end
  return classes.isTypeOf(v, name)
end
classes.roots = {torch = torch}
torch.class, torch.getmetatable, torch.factory = classes.declare, classes.getmetatable, classes.factory
torch.newmetatable = classes.declare_metatable
torch.setmetatable = function(v, name) return setmetatable(v, classes.getmetatable(name)) end
function torch.getconstructortable(name) return classes.getmetatable(name) end
function torch.pushudata() raise('torch7.pushudata', 'pointers of another library are not taken: use amp.from_ptr') end
function torch.pointer(v)
  if is_tensor(v) then return tonumber(amp_of(v).ptr_.id) end
  if is_storage(v) then return core.address(core.storage_base(v)) end
  return tonumber((tostring(v):match '0x(%x+)') or 0, 16) or tostring(v)
end
torch.setenv, torch.getenv = debug.setfenv, debug.getfenv
torch.version = setmetatable({}, {__tostring = function() return 'amp' end})
function torch.totable(v)
  if is_tensor(v) or is_storage(v) then return v:totable() end
  raise('torch7.totable', 'a tensor or a storage expected, got %s', type(v))
end
--- A Torch7 tensor around an amp tensor, in its memory.
function torch.fromAmp(t)
  if not amp.is_tensor(t) then raise('torch7.fromAmp', 'an amp tensor expected, got %s', type(t)) end
  return wrap(t:detach())
end

-- -- Making tensors ----------------------------------------------------------------------------------------

-- make(sizes, options) gives an amp tensor; torch.f(sizes), torch.f(result, sizes), x:f(sizes)
local function creation(name, make)
  local function into(u, ...)
    local s = core.size_arguments(...)
    if #s == 0 then s = core.sizes(amp_of(u)) end
    core.resize(u, s)
    local h = amp_of(u)
    if h.ptr_.numel > 0 then h:copy_(make(s, {dtype = h.dtype, device = h.device})) end
    return u
  end
  torch[name] = function(first, ...)
    if is_tensor(first) then return into(first, ...) end
    local s = core.size_arguments(first, ...)
    local o = {dtype = default.dtype, device = default.device}
    for _, n in ipairs(s) do
      if n == 0 then return wrap(amp.empty({0}, o)) end
    end
    if #s == 0 then return wrap(amp.empty({0}, o)) end
    return wrap(make(s, o))
  end
  core.methods[name] = into
end
creation('zeros', amp.zeros)
creation('ones', amp.ones)
creation('rand', function(s, o) return amp.rand(s, o) end)
creation('randn', function(s, o) return amp.randn(s, o) end)

-- f(numbers...) gives values in float64; torch.f(...), torch.f(result, ...), x:f(...)
local function sequence(name, f)
  local function into(u, ...)
    return core.assign(u, f(...):to(amp_of(u).dtype))
  end
  torch[name] = function(first, ...)
    if is_tensor(first) then return into(first, ...) end
    return wrap(f(first, ...):to(default.dtype):to(default.device))
  end
  core.methods[name] = into
end
local d = {dtype = 'float64', device = 'cpu'}
sequence('range', function(a, b, step)
  step = step or 1
  local n = math.floor((b - a) / step + 1e-9) + 1
  if n < 1 then raise('torch7.range', 'no numbers from %g to %g in steps of %g', a, b, step) end
  return amp.arange(0, n, d) * step + a
end)
sequence('linspace', function(a, b, n) return amp.linspace(a, b, n or 100, d) end)
sequence('logspace', function(a, b, n) return amp.logspace(a, b, n or 100, d) end)
sequence('eye', function(n, m) return amp.eye(n, m or n, d) end)
sequence('randperm', function(n) return amp.randperm(n, {device = 'cpu'}):double() end)
torch.repeatTensor = function(a, ...) return a:repeatTensor(...) end

local function histc(h, bins, low, high)
  bins = bins or 100
  local v = h:double():reshape(-1)
  if not low or low == 0 and (high or 0) == 0 then low, high = v:min():item(), v:max():item() end
  return amp.histc(v, {bins = bins, min = low, max = high}):to(h.dtype)
end
ops.define('histc', {T = histc, TN = histc, TNNN = histc}, {fresh = true})

-- -- Functions ------------------------------------------------------------------------------------------------

for name, f in pairs(ops.functions) do
  if torch[name] == nil then torch[name] = f end
end
-- all other methods as functions of their tensor
for name, f in pairs(core.methods) do
  if torch[name] == nil and name ~= 'amp' and name ~= 'type' then torch[name] = f end
end
function torch.isSameSizeAs(a, b) return a:isSameSizeAs(b) end
function torch.view(first, ...) return first:view(...) end
-- conv2(x, k, ['F' | 'V']): turned kernels; xcorr2: as they are
local function conv2(op, flip)
  local function f(x, k, mode)
    local h, w = amp_of(x), amp_of(k)
    local full = mode == 'F'
    local nx, nk = core.dim(h), core.dim(w)
    local images = nx == 2 and h:unsqueeze(1):unsqueeze(1) or h:unsqueeze(1)
    local kernels = nk == 2 and w:unsqueeze(1):unsqueeze(1) or nk == 3 and w:unsqueeze(2) or w
    if flip then kernels = kernels:flip(-1, -2) end
    local pad = full and {w:size(nk - 1) - 1, w:size(nk) - 1} or {0, 0}
    if nx == 3 and nk ~= 4 then raise('torch7.' .. op, 'a batch of planes takes kernels of 4 dimensions, got %s', core.show(core.sizes(w))) end
    local y = amp.conv2d(images, kernels, {padding = pad}):squeeze(1)
    return wrap(nx == 2 and nk == 2 and y:squeeze(1) or y)
  end
  torch[op] = f
  core.methods[op] = f
end
conv2('conv2', true)
conv2('xcorr2', false)

for _, name in ipairs {'eig', 'conv3', 'xcorr3', 'bhistc', 'geqrf', 'orgqr', 'ormqr', 'pstrf'} do
  local function missing() raise('torch7.' .. name, 'torch.%s is not offered here', name) end
  torch[name], core.methods[name] = missing, missing
end

torch.setnumthreads, torch.getnumthreads = amp.set_num_threads, amp.get_num_threads
torch.setheaptracking = function() end
local Timer, made = classes.class('torch.Timer', nil, torch), require 'amp.torch7.torch'.Timer
function Timer:__init() self.inner = made() end
for _, name in ipairs {'time', 'reset', 'stop', 'resume'} do
  Timer[name] = function(self)
    local r = self.inner[name](self.inner)
    return name == 'time' and r or self
  end
end
function torch.tic() return amp.clock() end
function torch.toc(since) return amp.clock() - since end
function torch.CmdLine(...) return require 'amp.torch7.cmdline'(...) end
require 'amp.torch7.own.files'(torch)
require 'amp.torch7.own.tester'(torch)

return torch
