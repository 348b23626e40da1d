--- amp.torch7.torch: constructors and functions of Torch7's `torch`, made of amp's. What is not named here is
-- amp's own (torch.randn, torch.cat, torch.exp, ...): they give new tensors and take no result as first argument.
-- Tensors of the default type are amp's default dtype, float32.
local amp = require 'amp'
local util = require 'amp.util'
local file = require 'amp.io.file'
local mark_mask = require('amp.tensor.index').mark_mask
local raise = require('amp.error').throw

local M = {}

-- -- Types -------------------------------------------------------------------------------------------

local dtypes = {Byte = 'uint8', Char = 'int8', Short = 'int16', Int = 'int32', Long = 'int64', Float = 'float32', Double = 'float64', Half = 'float16'}
local kinds = {}
for kind, dtype in pairs(dtypes) do kinds[dtype] = kind end
kinds.bfloat16, kinds.bool = 'BFloat16', 'Bool'

--- dtype and device of a type's name, 'torch.FloatTensor', 'torch.CudaTensor'; nil if it is none.
function M.of_type(name)
  local kind = type(name) == 'string' and name:match '^torch%.(%u%l+)Tensor$'
  if kind == 'Cuda' then return 'float32', 'cuda' end
  if kind and dtypes[kind] then return dtypes[kind], 'cpu' end
  kind = type(name) == 'string' and name:match '^torch%.Cuda(%u%l+)Tensor$'
  return kind and dtypes[kind], kind and 'cuda'
end

--- torch.LongStorage{2, 3} or torch.LongStorage(n): sizes, a list.
local Storage = {__name = 'torch.LongStorage'}
Storage.__index = {
  size = function(s) return #s end, totable = function(s) return {unpack(s)} end,
  fill = function(s, v)
    for i = 1, #s do s[i] = v end
    return s
  end,
}
function M.LongStorage(list)
  local out = {}
  if type(list) == 'number' then
    for i = 1, list do out[i] = 0 end
  else
    for i, v in ipairs(list or {}) do out[i] = v end
  end
  return setmetatable(out, Storage)
end

--- 'torch.FloatTensor' of a tensor, the class's name of a module, Lua's type of all else.
function M.type(v)
  if amp.is_tensor(v) then
    local gpu = v.device ~= 'cpu'
    return ('torch.%s%sTensor'):format(gpu and 'Cuda' or '', gpu and v.dtype == 'float32' and '' or kinds[v.dtype])
  end
  if type(v) == 'table' then
    local mt = getmetatable(v)
    if type(mt) == 'table' and mt.is_module then return v.__name end
    if mt == Storage then return 'torch.LongStorage' end
    if type(mt) == 'table' and mt.__typename then return mt.__typename end
  end
  return type(v)
end
M.typename = function(v)
  local t = M.type(v)
  return t:find('.', 1, true) and t or nil
end
M.isTensor = amp.is_tensor

local size_mt = getmetatable(amp.zeros(1):size())

-- A tensor of a dtype on a device from what a constructor is given.
local function constructor(dtype, device, mask)
  local function make(...)
    local n, first = select('#', ...), ...
    local o = {dtype = dtype, device = device}
    if n == 0 then return amp.zeros({0}, o) end
    if n > 1 and type(first) ~= 'number' then
      raise('torch7.Tensor', 'nothing follows %s; views with offsets and strides are made by as_strided',
        amp.is_tensor(first) and 'a tensor' or 'a table of sizes or numbers')
    end
    if amp.is_tensor(first) then -- shares its memory, as it did
      if dtype and first.dtype ~= dtype then return first:to(dtype) end
      return first:view(first:size())
    end
    if type(first) == 'table' then
      local mt = getmetatable(first)
      if mt == Storage or mt == size_mt then return amp.zeros({unpack(first)}, o) end
      return amp.tensor(first, o)
    end
    if type(first) ~= 'number' then raise('torch7.Tensor', 'sizes, a table of numbers or a tensor expected, got %s', util.show(first)) end
    return amp.zeros({...}, o) -- Torch7's were not filled at all
  end
  return mask and function(...) return mark_mask(make(...)) end or make
end

M.constructor = constructor

-- torch.FloatTensor: makes tensors, and has their methods (torch.FloatTensor.add).
local function class(dtype, device)
  local make = constructor(dtype, device, dtype == 'uint8')
  return setmetatable({}, {__call = function(_, ...) return make(...) end, __index = function(_, name)
    local t = amp.zeros(1)
    return t[name]
  end})
end
M.Tensor = class()
for kind, dtype in pairs(dtypes) do M[kind .. 'Tensor'] = class(dtype, 'cpu') end
M.CudaTensor = class('float32', 'cuda')

--- torch.setdefaulttensortype('torch.FloatTensor'): floats only.
function M.setdefaulttensortype(name)
  local dtype, device = M.of_type(name)
  if not dtype then raise('torch7.setdefaulttensortype', "no type '%s'", tostring(name)) end
  amp.set_default_dtype(dtype)
  amp.set_default_device(device)
end
function M.getdefaulttensortype() return ('torch.%sTensor'):format(kinds[amp.get_default_dtype()]) end

-- -- Functions -------------------------------------------------------------------------------------------

function M.manualSeed(n) amp.manual_seed(n < 0 and math.ceil(n) or math.floor(n)) end
function M.seed()
  local n = os.time()
  M.manualSeed(n)
  return n
end

-- Single random numbers: torch.random([a,] b), torch.uniform([a,] b), torch.normal([mean,] [std]) and their kind.
local function draw(f) return amp.no_grad(f):item() end
function M.random(a, b)
  if b == nil then a, b = 1, a or 2 ^ 31 end
  return draw(function() return amp.randint(a, b + 1, 1, {dtype = 'int64', device = 'cpu'}) end)
end
function M.uniform(a, b)
  a, b = a or 0, b or 1
  return draw(function() return amp.rand(1, {dtype = 'float64', device = 'cpu'}) end) * (b - a) + a
end
function M.normal(mean, std)
  return draw(function() return amp.randn(1, {dtype = 'float64', device = 'cpu'}) end) * (std or 1) + (mean or 0)
end
function M.bernoulli(p) return M.uniform() < (p or 0.5) and 1 or 0 end
function M.exponential(lambda) return -math.log(1 - M.uniform()) / (lambda or 1) end
function M.cauchy(median, sigma) return (median or 0) + (sigma or 1) * math.tan(math.pi * (M.uniform() - 0.5)) end
function M.logNormal(mean, std) -- of the result, as in Torch7
  local v, m = (std or 2) ^ 2, mean or 1
  local s2 = math.log(1 + v / (m * m))
  return math.exp(M.normal(math.log(m) - s2 / 2, math.sqrt(s2)))
end
function M.geometric(p) return math.floor(math.log(1 - M.uniform()) / math.log(p)) + 1 end

-- Classes, as torch.class declares them.
local classes = require 'amp.torch7.class'
M.class, M.getmetatable, M.factory = classes.declare, classes.getmetatable, classes.factory
function M.isTypeOf(v, name)
  if amp.is_tensor(v) then return M.type(v) == name or name == 'torch.Tensor' end
  if type(v) == 'table' and v.is_module then
    local at = getmetatable(v).class
    while at do
      if at.__name == name or at == name then return true end
      at = at.super
    end
    return false
  end
  return classes.isTypeOf(v, name)
end
M.setnumthreads, M.getnumthreads = amp.set_num_threads, amp.get_num_threads

--- torch.range(first, last, [step]): the last one included.
function M.range(first, last, step)
  step = step or 1
  local n = math.floor((last - first) / step + 1e-9) + 1
  if n < 1 then raise('torch7.range', 'no numbers from %g to %g in steps of %g', first, last, step) end
  return amp.arange(0, n) * step + first
end

-- x + y, x + s * y: the number stands between, as it did. With the result as a first tensor of three: an error.
local function scaled(op, sign)
  return function(x, a, b)
    if b == nil then return x[op](x, a) end
    if type(a) == 'number' and amp.is_tensor(b) then return x:add(b, {alpha = sign * a}) end
    raise('torch7.' .. op, '%s(result, x, y) is written result = %s(x, y)', op, op)
  end
end
M.add, M.csub = scaled('add', 1), scaled('sub', -1)
-- Of two operands; with a result as the first of three, an error.
local function pairwise(name, f)
  M[name] = function(x, y, ...)
    if select('#', ...) > 0 then raise('torch7.' .. name, '%s(result, x, y) is written result = %s(x, y)', name, name) end
    return f(x, y)
  end
end
pairwise('cmul', function(x, y) return x * y end)
pairwise('cdiv', function(x, y) return x / y end)
pairwise('cpow', function(x, y) return x ^ y end)
for _, name in ipairs {'mm', 'mv', 'bmm'} do pairwise(name, function(x, y) return x:matmul(y) end) end
pairwise('ger', function(x, y) return amp.outer(x, y) end)

--- torch.Timer(): time().real in seconds since it was made or reset.
local Timer = {}
Timer.__index = Timer
function Timer:time()
  local t = (self.stopped or amp.clock()) - self.start
  return {real = t, user = os.clock() - self.cpu, sys = 0}
end
function Timer:reset()
  self.start, self.cpu, self.stopped = amp.clock(), os.clock(), nil
  return self
end
function Timer:stop()
  self.stopped = amp.clock()
  return self
end
function Timer:resume()
  if self.stopped then self.start, self.stopped = self.start + amp.clock() - self.stopped, nil end
  return self
end
function M.Timer() return setmetatable({}, Timer):reset() end
function M.tic() return amp.clock() end
function M.toc(since) return amp.clock() - since end

function M.CmdLine(...) return require 'amp.torch7.cmdline'(...) end

--- Files: torch.load reads .t7 and what amp.save wrote; torch.save writes what amp.load reads, modules as .t7.
function M.load(path, ...)
  local f = type(path) == 'string' and file.open(path)
  local head = f and f.size > 0 and f:text(1)
  if f then f:close() end
  if head and (head:byte() <= 8 or head:match '%d') then
    return require 'amp.torch7.saved'.modules(require('amp.torch7.t7').load(path, ...))
  end
  return amp.load(path)
end
function M.save(path, object, mode)
  local saved = require 'amp.torch7.saved'
  if mode == nil and not saved.holds_module(object) then return amp.save(path, object) end
  return require('amp.torch7.own.torch').save(path, saved.plain(object), mode)
end

return setmetatable(M, {__index = function(_, name) return require('amp.core.lookup').find(name) end})
