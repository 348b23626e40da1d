--- Products, decompositions, choosing and joining of Torch7's tensors, in Torch7's forms (see own/ops.lua).
local amp = require 'amp'
local core = require 'amp.torch7.own.core'
local ops = require 'amp.torch7.own.ops'
local raise = require('amp.error').throw
local define = ops.define
local M, F = core.methods, ops.functions
local is_tensor, amp_of, wrap, assign = core.is_tensor, core.amp_of, core.wrap, core.assign

local function fits(name, ok, a, b)
  if not ok then raise('torch7.' .. name, 'sizes %s and %s do not fit', core.show(core.sizes(a)), core.show(core.sizes(b))) end
end

-- -- Products ---------------------------------------------------------------------------------------------

local function mm(a, b)
  fits('mm', core.dim(a) == 2 and core.dim(b) == 2 and a.ptr_.size[1] == b.ptr_.size[0], a, b)
  return a:matmul(b)
end
local function mv(a, b)
  fits('mv', core.dim(a) == 2 and core.dim(b) == 1 and a.ptr_.size[1] == b.ptr_.size[0], a, b)
  return a:matmul(b)
end
local function bmm(a, b)
  fits('bmm', core.dim(a) == 3 and core.dim(b) == 3, a, b)
  return a:matmul(b)
end
local function ger(a, b)
  fits('ger', core.dim(a) == 1 and core.dim(b) == 1, a, b)
  return amp.outer(a, b)
end
define('mm', {TT = mm})
define('mv', {TT = mv})
define('bmm', {TT = bmm})
define('ger', {TT = ger})

-- beta * M + alpha * product
local function added(name, product)
  local function all(beta, m, alpha, a, b)
    local p = product(a, b)
    if m.ptr_.numel ~= p.ptr_.numel then fits(name, false, m, p) end
    if alpha ~= 1 then p = p * alpha end
    if beta == 0 then return p end
    return (beta == 1 and m or m * beta) + p:reshape(m:size())
  end
  define(name, {
    TTT = function(m, a, b) return all(1, m, 1, a, b) end,
    NTTT = function(beta, m, a, b) return all(beta, m, 1, a, b) end,
    TNTT = function(m, alpha, a, b) return all(1, m, alpha, a, b) end,
    NTNTT = all,
    TNNTT = function(m, beta, alpha, a, b) return all(beta, m, alpha, a, b) end, -- x:addmm(beta, alpha, a, b)
  })
end
added('addmm', mm)
added('addmv', mv)
added('addr', ger)
added('baddbmm', bmm)
added('addbmm', function(a, b) return bmm(a, b):sum(1) end)
define('cross', {
  TT = function(a, b)
    for d, n in ipairs(core.sizes(a)) do
      if n == 3 then return amp.cross(a, b, {dim = d}) end
    end
    raise('torch7.cross', 'a dimension of size 3 expected, got %s', core.show(core.sizes(a)))
  end,
  TTN = function(a, b, d) return amp.cross(a, b, {dim = d}) end,
}, {fresh = true})

-- -- Decompositions -------------------------------------------------------------------------------------------

define('inverse', {T = function(a) return a:inverse() end}, {fresh = true})
define('trace', {T = function(a) return a:trace() end}, {fresh = true})
define('gesv', {TT = function(b, a)
  local rhs = core.dim(b) == 1 and b:unsqueeze(2) or b
  return amp.solve(a, rhs), a:clone()
end}, {fresh = true, results = 2})
define('gels', {TT = function(b, a)
  local rhs = core.dim(b) == 1 and b:unsqueeze(2) or b
  return (amp.lstsq(a, rhs)), a:clone()
end}, {fresh = true, results = 2})
local function svd(a, mode)
  local u, s, v = amp.svd(a, {some = mode ~= 'A'})
  return u, s, v
end
define('svd', {T = svd, TS = svd}, {fresh = true, results = 3})
local function symeig(a, vectors, which)
  local upper = (which or 'U') ~= 'L'
  local values, v = amp.eigh(a, {UPLO = upper and 'U' or 'L'})
  return values, vectors == 'V' and v or amp.zeros_like(a)
end
define('symeig', {T = symeig, TS = symeig, TSS = symeig}, {fresh = true, results = 2})
define('qr', {T = function(a) return amp.qr(a) end}, {fresh = true, results = 2})
local function potrf(a, which) return amp.cholesky(a, {upper = which ~= 'L'}) end
define('potrf', {T = potrf, TS = potrf}, {fresh = true})
define('potrs', {
  TT = function(b, l) return amp.cholesky_solve(b, l, {upper = true}) end,
  TTS = function(b, l, which) return amp.cholesky_solve(b, l, {upper = which ~= 'L'}) end,
}, {fresh = true})
define('potri', {
  T = function(l) return amp.cholesky_inverse(l, {upper = true}) end,
  TS = function(l, which) return amp.cholesky_inverse(l, {upper = which ~= 'L'}) end,
}, {fresh = true})
define('trtrs', {
  TT = function(b, a) return amp.solve_triangular(a, b, {upper = true}), a:clone() end,
  TTS = function(b, a, which) return amp.solve_triangular(a, b, {upper = which ~= 'L'}), a:clone() end,
}, {fresh = true, results = 2})

-- -- Choosing ----------------------------------------------------------------------------------------------------

local function tri(f) return {T = function(a) return f(a) end, TN = function(a, k) return f(a, {diagonal = k}) end} end
define('tril', tri(amp.tril), {fresh = true})
define('triu', tri(amp.triu), {fresh = true})
define('diag', tri(amp.diag), {fresh = true})
define('nonzero', {T = function(a) return amp.nonzero(a) end}, {fresh = true})

-- Indices and masks may be the CPU's where the tensor is a GPU's.
local function beside(i, h) return i.ptr_.device == h.ptr_.device and i or i:to(h.device) end
local function long(i, h) return beside(i.dtype == 'int64' and i or i:long(), h) end
define('gather', {TNT = function(a, d, i) return a:gather(core.dimension('gather', a, d), long(i, a)) end}, {fresh = true})
define('index', {TNT = function(a, d, i) return a:index_select(core.dimension('index', a, d), long(i, a):reshape(-1)) end}, {fresh = true})
define('maskedSelect', {TT = function(a, m)
  if a.ptr_.numel ~= m.ptr_.numel then fits('maskedSelect', false, a, m) end
  return a:masked_select(beside(m, a):ne(0):reshape(a:size()))
end}, {fresh = true})

-- What changes its receiver: f(h, ...) gives what it becomes.
local function changing(name, f)
  local function method(u, ...)
    local args = {...}
    for i = 1, #args do args[i] = core.unwrap(args[i]) end
    amp_of(u):copy_(f(amp_of(u), unpack(args)))
    return u
  end
  M[name], F[name] = method, method
end
changing('scatter', function(h, d, i, src)
  d = core.dimension('scatter', h, d)
  if type(src) ~= 'number' then
    if src.ptr_.ndim ~= i.ptr_.ndim or not core.same_sizes(src, core.sizes(i)) then
      for k = 1, i.ptr_.ndim do src = src:narrow(k, 1, tonumber(i.ptr_.size[k - 1])) end
    end
    src = src:to(h.dtype)
  end
  return h:scatter(d, long(i, h), src)
end)
changing('scatterAdd', function(h, d, i, src) return h:scatter_add(core.dimension('scatterAdd', h, d), long(i, h), src) end)
changing('indexCopy', function(h, d, i, src) return h:index_copy(core.dimension('indexCopy', h, d), long(i, h), src:to(h.dtype)) end)
changing('indexAdd', function(h, d, i, src) return h:index_add(core.dimension('indexAdd', h, d), long(i, h), src:to(h.dtype)) end)
changing('indexFill', function(h, d, i, v) return h:index_fill(core.dimension('indexFill', h, d), long(i, h), v) end)
local function mask(h, m)
  if h.ptr_.numel ~= m.ptr_.numel then fits('mask', false, h, m) end
  return beside(m, h):ne(0):reshape(h:size())
end
changing('maskedFill', function(h, m, v) return h:masked_fill(mask(h, m), v) end)
changing('maskedCopy', function(h, m, src) return amp.masked_scatter(h, mask(h, m), src:to(h.dtype)) end)
local function zero(u)
  local h = amp_of(u)
  if h.ptr_.numel > 0 then h:zero_() end
  return u
end
local function fill(u, v)
  if type(v) ~= 'number' then raise('torch7.fill', 'a number expected, got %s', type(v)) end
  local h = amp_of(u)
  if h.ptr_.numel > 0 then core.fill(h, v) end
  return u
end
M.zero, F.zero, M.fill, F.fill = zero, zero, fill, fill

-- -- Joining ---------------------------------------------------------------------------------------------------------

local function join(list, d)
  local parts = {}
  for _, t in ipairs(list) do
    local h = amp_of(t)
    if h.ptr_.numel > 0 then parts[#parts + 1] = h end
  end
  if #parts == 0 then return amp_of(list[1]) end
  local most = 0
  for _, h in ipairs(parts) do most = math.max(most, core.dim(h)) end
  d = d or most
  if d < 0 then d = most + d + 1 end
  if d > most then
    for i, h in ipairs(parts) do
      while h.ptr_.ndim < d do h = h:unsqueeze(h.ptr_.ndim + 1) end
      parts[i] = h
    end
  end
  if #parts == 1 then return parts[1]:clone() end
  return amp.cat(parts, d)
end
-- cat([result,] a, b, [dim]) or cat([result,] {tensors}, [dim])
local function cat(...)
  local args = {...}
  local result
  if is_tensor(args[1]) and (type(args[2]) == 'table' or is_tensor(args[3])) then result = table.remove(args, 1) end
  local list, d
  if type(args[1]) == 'table' then list, d = args[1], args[2] else list, d = {args[1], args[2]}, args[3] end
  for i, t in ipairs(list) do
    if not is_tensor(t) then raise('torch7.cat', 'tensors expected, got %s as number %d', type(t), i) end
  end
  if #list == 0 then raise('torch7.cat', 'no tensors were given') end
  local out = join(list, d)
  return result and assign(result, out) or wrap(out)
end
F.cat = cat
function M.cat(u, first, second, third)
  if type(first) == 'table' then return cat(u, first, second) end
  if is_tensor(second) then return cat(u, first, second, third) end
  return cat(u, first, second)
end
local function reshape(u, first, ...)
  if is_tensor(first) then return assign(u, amp_of(first):reshape(core.size_arguments(...))) end
  return wrap(amp_of(u):reshape(core.size_arguments(first, ...)):clone())
end
M.reshape, F.reshape = reshape, reshape

-- -- Functions of every element ------------------------------------------------------------------------------------

-- f of the elements of u (and of others), which become what it gives.
local function mapped(u, f, ...)
  local h = amp_of(u)
  if h.ptr_.numel == 0 then return u end
  local flat, others = h:reshape(-1):tolist(), {...}
  for i, o in ipairs(others) do others[i] = amp_of(o):reshape(-1):tolist() end
  local changed = false
  for i = 1, #flat do
    local v = f(flat[i], others[1] and others[1][i], others[2] and others[2][i])
    if v ~= nil then
      flat[i] = tonumber(v)
      changed = true
    end
  end
  if changed then h:copy_(amp.tensor(flat, {dtype = 'float64'}):reshape(h:size())) end
  return u
end
function M.apply(u, f) return mapped(u, f) end
function M.map(u, v, f) return mapped(u, f, v) end
function M.map2(u, v, w, f) return mapped(u, f, v, w) end

return core
