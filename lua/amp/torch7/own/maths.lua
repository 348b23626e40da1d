--- Element-wise functions, reductions and comparisons of Torch7's tensors, in Torch7's forms (see own/ops.lua).
local amp = require 'amp'
local core = require 'amp.torch7.own.core'
local ops = require 'amp.torch7.own.ops'
local raise = require('amp.error').throw
local define, pair, number = ops.define, ops.pair, ops.number

-- -- One operand --------------------------------------------------------------------------------------

for _, name in ipairs {'abs', 'ceil', 'floor', 'round', 'trunc', 'frac', 'neg', 'sign', 'exp', 'log', 'log1p', 'sqrt', 'rsqrt', 'sin', 'cos', 'tan',
  'asin', 'acos', 'atan', 'sinh', 'cosh', 'tanh', 'sigmoid', 'lgamma', 'digamma', 'expm1', 'erf'} do
  local f, place = amp[name], amp[name .. '_']
  define(name, {T = function(a)
    if not a:is_floating_point() and (name == 'ceil' or name == 'floor' or name == 'round' or name == 'trunc') then return a:clone() end
    return f(a)
  end, N = function(v) return f(amp.tensor({v}, {dtype = 'float64'}))[1]:item() end}, {
    inplace = place and {T = function(h)
      if h:is_floating_point() or name == 'abs' or name == 'neg' or name == 'sign' then place(h) end
    end} or nil,
  })
end
define('cinv', {T = function(a) return a:reciprocal() end})

-- -- With a number or another tensor ---------------------------------------------------------------------

-- Products and sums stay in the tensor's dtype; integers are cut as C cuts them.
local function whole(a, r) return a:is_floating_point() and r or r:trunc():to(a.dtype) end

define('add', {
  TN = function(a, v) return a + number(a, v) end,
  TT = function(a, b) return a + pair('add', a, b) end,
  TNT = function(a, v, b) return a:add(pair('add', a, b), {alpha = number(a, v)}) end,
}, {inplace = {
  TN = function(h, v) h:add_(number(h, v)) end,
  TT = function(h, b) h:add_(pair('add', h, b)) end,
  TNT = function(h, v, b) h:add_(pair('add', h, b), {alpha = number(h, v)}) end,
}})
define('csub', {
  TN = function(a, v) return a - number(a, v) end,
  TT = function(a, b) return a - pair('csub', a, b) end,
  TNT = function(a, v, b) return a:sub(pair('csub', a, b), {alpha = number(a, v)}) end,
})
define('mul', {TN = function(a, v) return a * number(a, v) end}, {inplace = {TN = function(h, v) h:mul_(number(h, v)) end}})
define('div', {TN = function(a, v) return whole(a, a / number(a, v)) end}, {inplace = {TN = function(h, v)
  if h:is_floating_point() then h:div_(v) else h:copy_(whole(h, h / number(h, v))) end
end}})
define('cmul', {TT = function(a, b) return a * pair('cmul', a, b) end}, {inplace = {TT = function(h, b) h:mul_(pair('cmul', h, b)) end}})
define('cdiv', {TT = function(a, b) return whole(a, a / pair('cdiv', a, b)) end}, {inplace = {TT = function(h, b)
  if h:is_floating_point() then h:div_(pair('cdiv', h, b)) else h:copy_(whole(h, h / pair('cdiv', h, b))) end
end}})
local function power(a, b)
  if b == 2 then return a * a end
  return (a:is_floating_point() and a:pow(b) or a:double():pow(b):trunc():to(a.dtype))
end
define('pow', {
  TN = power,
  NT = function(v, a) return amp.full_like(a, v):pow(a) end,
  NN = function(a, b) return a ^ b end,
})
define('cpow', {TT = function(a, b) return a:pow(pair('cpow', a, b)) end})
define('fmod', {TN = function(a, v) return amp.fmod(a, v) end})
define('cfmod', {TT = function(a, b) return amp.fmod(a, pair('cfmod', a, b)) end})
define('remainder', {TN = function(a, v) return a % v end})
define('cremainder', {TT = function(a, b) return a % pair('cremainder', a, b) end})
core.methods.mod, ops.functions.mod = core.methods.fmod, ops.functions.fmod
core.methods.cmod, ops.functions.cmod = core.methods.cfmod, ops.functions.cfmod
for name, op in pairs {bitand = 'bitwise_and', bitor = 'bitwise_or', bitxor = 'bitwise_xor', lshift = 'bitwise_left_shift', rshift = 'bitwise_right_shift'} do
  define(name, {TN = function(a, v) return amp[op](a, v) end})
  define('c' .. name, {TT = function(a, b) return amp[op](a, pair('c' .. name, a, b)) end})
end
define('clamp', {TNN = function(a, low, high) return a:clamp(low, high) end})
define('cmax', {
  TT = function(a, b) return amp.maximum(a, pair('cmax', a, b)) end,
  TN = function(a, v) return amp.maximum(a, number(a, v)) end,
})
define('cmin', {
  TT = function(a, b) return amp.minimum(a, pair('cmin', a, b)) end,
  TN = function(a, v) return amp.minimum(a, number(a, v)) end,
})
define('atan2', {TT = function(a, b) return amp.atan2(a, pair('atan2', a, b)) end})
define('lerp', {TTN = function(a, b, w) return a + (pair('lerp', a, b) - a) * w end})
for name, f in pairs {addcmul = function(a, b) return a * b end, addcdiv = function(a, b) return a / b end} do
  local function plain(a, x, y) return a + f(pair(name, a, x), pair(name, a, y)) end
  local function scaled(a, v, x, y) return a:add(f(pair(name, a, x), pair(name, a, y)), {alpha = v}) end
  define(name, {TTT = plain, TNTT = scaled}, {inplace = {
    TTT = function(h, x, y) h:add_(f(pair(name, h, x), pair(name, h, y))) end,
    TNTT = function(h, v, x, y) h:add_(f(pair(name, h, x), pair(name, h, y)), {alpha = v}) end,
  }})
end

-- -- Comparisons: bytes --------------------------------------------------------------------------------------

for _, name in ipairs {'lt', 'le', 'gt', 'ge', 'eq', 'ne'} do
  define(name, {
    TN = function(a, v) return a[name](a, v):to 'uint8' end,
    TT = function(a, b) return a[name](a, pair(name, a, b)):to 'uint8' end,
  }, {fresh = true, own = {}})
end
function core.methods.all(u) return core.amp_of(u):ne(0):all():item() end
function core.methods.any(u) return core.amp_of(u):ne(0):any():item() end
function core.methods.equal(u, v)
  local a, b = core.amp_of(u), core.amp_of(v)
  return core.same_sizes(a, core.sizes(b)) and (a.ptr_.numel == 0 or a:eq(b:to(a.dtype)):all():item())
end

-- -- Reductions ------------------------------------------------------------------------------------------------

local function dim(name, a, d) return core.dimension(name, a, d) end
local fresh = {fresh = true}

local function reduction(name, all, along)
  define(name, {T = function(a)
    if a.ptr_.numel == 0 and name ~= 'sum' and name ~= 'prod' then raise('torch7.' .. name, 'the tensor is empty') end
    return all(a)
  end, TN = function(a, d)
    local r = along(a, dim(name, a, d))
    return r.dtype == a.dtype and r or r:to(a.dtype)
  end}, fresh)
end
reduction('sum', function(a) return a.ptr_.numel == 0 and 0 or a:sum() end, function(a, d) return a:sum(d, true) end)
reduction('mean', function(a) return a:is_floating_point() and a:mean() or math.floor(a:double():mean():item()) end, function(a, d) return a:mean(d, true) end)
reduction('prod', function(a) return a.ptr_.numel == 0 and 1 or a:reshape(-1):prod() end, function(a, d) return a:prod(d, true) end)
reduction('any_', function(a) return a:any() end, function(a, d) return a:any(d, true) end)
-- torch.std(x, [dim], [flag]): by n - 1, by n with the flag
for _, name in ipairs {'std', 'var'} do
  define(name, {
    T = function(a) return amp[name](a:reshape(-1), {dim = 1, correction = a.ptr_.numel > 1 and 1 or 0}) end,
    TN = function(a, d) return amp[name](a, {dim = dim(name, a, d), correction = 1, keepdim = true}) end,
    TNB = function(a, d, biased) return amp[name](a, {dim = dim(name, a, d), correction = biased and 0 or 1, keepdim = true}) end,
  }, fresh)
end
define('norm', {
  T = function(a) return (a * a):sum():sqrt() end,
  TN = function(a, p) return amp.norm(a:reshape(-1), {p = p, dim = 1}) end,
  TNN = function(a, p, d) return amp.norm(a, {p = p, dim = dim('norm', a, d), keepdim = true}) end,
}, {fresh = true, own = {}})
define('renorm', {TNNN = function(a, p, d, most) return amp.renorm(a, {p = p, dim = dim('renorm', a, d), maxnorm = most}) end})
define('dist', {
  TT = function(a, b) return (a - pair('dist', a, b)):reshape(-1):norm() end,
  TTN = function(a, b, p) return amp.norm((a - pair('dist', a, b)):reshape(-1), {p = p, dim = 1}) end,
}, fresh)
define('dot', {TT = function(a, b) return (a:reshape(-1) * pair('dot', a, b):reshape(-1)):sum() end}, {fresh = true})
core.methods.dot = function(u, v)
  local a, b = core.amp_of(u), core.amp_of(v)
  return (a:reshape(-1) * pair('dot', a, b):reshape(-1)):sum():item()
end
for _, name in ipairs {'max', 'min'} do
  define(name, {
    T = function(a)
      if a.ptr_.numel == 0 then raise('torch7.' .. name, 'the tensor is empty') end
      return a[name](a)
    end,
    TN = function(a, d) return a[name](a, dim(name, a, d), true) end,
  }, {fresh = true, results = 2})
end
for _, name in ipairs {'median', 'mode'} do
  local function along(a, d) return amp[name](a, {dim = dim(name, a, d), keepdim = true}) end
  define(name, {
    T = function(a)
      if name == 'median' then return (amp.median(a:reshape(-1), {dim = 1})) end
      return along(a, core.dim(a))
    end, TN = along,
  }, {fresh = true, results = 2})
end
define('sort', {
  T = function(a) return amp.sort(a, {dim = core.dim(a), stable = true}) end,
  TN = function(a, d) return amp.sort(a, {dim = dim('sort', a, d), stable = true}) end,
  TB = function(a, down) return amp.sort(a, {dim = core.dim(a), descending = down, stable = true}) end,
  TNB = function(a, d, down) return amp.sort(a, {dim = dim('sort', a, d), descending = down, stable = true}) end,
}, {fresh = true, results = 2})
local function topk(a, k, d, down, sorted) return amp.topk(a, {k = k, dim = d or core.dim(a), largest = down == true, sorted = sorted ~= false}) end
define('topk', {
  T = function(a) return topk(a, 1) end, TN = topk, TNN = topk, TNNB = topk, TNNBB = topk,
  TNB = function(a, k, down) return topk(a, k, nil, down) end,
}, {fresh = true, results = 2})
local function kth(a, k, d) return amp.kthvalue(a, {k = k, dim = d or core.dim(a), keepdim = true}) end
define('kthvalue', {TN = kth, TNN = kth}, {fresh = true, results = 2})
for _, name in ipairs {'cumsum', 'cumprod'} do
  local function along(a, d) return amp[name](a, {dim = dim(name, a, d or 1)}):to(a.dtype) end
  define(name, {T = along, TN = along}, fresh)
end

-- -- Operators ---------------------------------------------------------------------------------------------------

local is_tensor, wrap, amp_of = core.is_tensor, core.wrap, core.amp_of
local function add(a, b)
  if type(a) == 'number' then a, b = b, a end
  local h = amp_of(a)
  if type(b) == 'number' then return wrap(h + number(h, b)) end
  return wrap(h + pair('add', h, amp_of(b)))
end
local function sub(a, b)
  if type(a) == 'number' then
    local h = amp_of(b)
    return wrap(number(h, a) - h)
  end
  local h = amp_of(a)
  if type(b) == 'number' then return wrap(h - number(h, b)) end
  return wrap(h - pair('sub', h, amp_of(b)))
end
local function mul(a, b)
  if type(a) == 'number' then a, b = b, a end
  local h = amp_of(a)
  if type(b) == 'number' then return wrap(h * number(h, b)) end
  local k = amp_of(b)
  local m, n = core.dim(h), core.dim(k)
  if m == 1 and n == 1 then return (h * pair('*', h, k)):sum():item() end
  if m == 2 and (n == 1 or n == 2) then return wrap(h:matmul(k)) end
  raise('torch7.*', 'vectors or matrices expected, got %s and %s; element by element is torch.cmul', core.show(core.sizes(h)), core.show(core.sizes(k)))
end
local function div(a, b)
  if not is_tensor(a) then raise('torch7./', 'a tensor divided by a number expected, got a number divided by a tensor; see cinv') end
  local h = amp_of(a)
  if type(b) == 'number' then return wrap(whole(h, h / number(h, b))) end
  return wrap(whole(h, h / pair('/', h, amp_of(b))))
end
for _, t in pairs(core.types) do
  local mt = t.mt
  mt.__add, mt.__sub, mt.__mul, mt.__div = add, sub, mul, div
  mt.__unm = function(a) return wrap(-amp_of(a)) end
  mt.__mod = function(a, b) return wrap(type(b) == 'number' and amp_of(a) % b or amp_of(a) % amp_of(b)) end
  mt.__pow = function(a, b) return wrap(power(amp_of(a), b)) end
end

return ops
