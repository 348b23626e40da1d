--- Linear algebra and Fourier transforms: factors whose signs are open are compared by
-- what does not depend on them, gradients by finite differences of functions of a
-- symmetric matrix; wrong calls.
local assert = require 'luassert'
local amp = require 'amp'
local H = require 'spec.lib.helper'

local function matrix(values, shape, dtype) return H.make(values, shape, dtype or 'float64') end

-- values that are neither equal nor in order, about a diagonal
local function values(n, m, diagonal, at)
  local v = {}
  for i = 1, n do
    for j = 1, m do v[#v + 1] = ((i * 7 + j * 13 + (at or 0) * 5) % 11 - 5) / 8 + (i == j and diagonal * i or 0) end
  end
  return v
end

local function batch(shape, diagonal)
  local v = {}
  local count = H.numel(shape) / (shape[#shape - 1] * shape[#shape])
  for b = 1, count do
    for _, x in ipairs(values(shape[#shape - 1], shape[#shape], diagonal, b)) do v[#v + 1] = x end
  end
  return v
end

local function t_(x) return x:transpose(-2, -1) end
local function symmetric(x) return (x + t_(x)) * 0.5 end

local function identity(x, n, tol, what)
  H.close(x, amp.eye(n, { dtype = 'float64' }):expand(x:size()):contiguous(), tol, what)
end

local shapes = { { 3, 3 }, { 4, 2 }, { 2, 4 }, { 2, 3, 2 }, { 1, 1 }, { 5, 1 }, { 20, 14 }, { 14, 20 }, { 40, 40 } }

-- What an exact factorisation of a nearby matrix may miss: rounding of the results to dt, and of n sums in the dtype it was
-- computed in, times the largest singular value. LAPACK's own tests allow 30 n eps; its kernels of several processors gave
-- up to 1.8 n eps here, so 8 n eps is what no processor should reach and every wrong algorithm does.
local unit = { float64 = 2 ^ -53, float32 = 2 ^ -24, float16 = 2 ^ -11, bfloat16 = 2 ^ -8 }
local function bound(dt, n, norm) return { rtol = 0, atol = (4 * unit[dt] + 8 * n * math.min(unit[dt], unit.float32)) * norm } end
local function norm2(a) return math.max(1, amp.svdvals(a:double():cpu()):max():item()) end


local function layouts(x)
  local wide = amp.zeros({ unpack(x.shape) }, { dtype = x.dtype })
  wide = amp.cat({ wide, x, wide }, -1)
  local n = x.shape[#x.shape]
  return { x, t_(t_(x):contiguous()), wide:narrow(-1, n + 1, n) }
end

-- f(x) and its first and second derivatives, x given by a symmetric matrix where it matters
local function differentiable(f, x, what)
  x = x:detach():clone()
  x.requires_grad = true
  local ok, why = pcall(amp.gradcheck, f, { x })
  if not ok or why == false then error(what .. ': ' .. tostring(why), 0) end
  ok, why = pcall(amp.gradgradcheck, f, { x })
  if not ok or why == false then error(what .. ', twice: ' .. tostring(why), 0) end
end

local function in_regions(f, x, results)
  for _, low in ipairs { 'float16', 'bfloat16' } do
    local out = { amp.autocast({ dtype = low }, f, x:to(low)) }
    local hand = { f(x:to(low):float()) }
    for i = 1, results do
      assert.equal('float32', out[i].dtype)
      H.same(out[i], hand[i])
    end
  end
end

local closed = {}

function closed.svd()
  for _, shape in ipairs(shapes) do
    for _, dt in ipairs(H.floats) do
      local a0 = matrix(batch(shape, 1), shape, dt)
      for k, a in ipairs(layouts(a0)) do
        for _, some in ipairs { true, false } do
          local what = ('svd of %s, %s, layout %d, some %s'):format(table.concat(shape, 'x'), dt, k, tostring(some))
          local m, n = shape[#shape - 1], shape[#shape]
          local r = math.min(m, n)
          local u, s, v = amp.svd(a, some)
          assert.equal(dt, u.dtype)
          assert.equal(some and r or m, u:size(-1))
          assert.equal(some and r or n, v:size(-1))
          u, s, v = u:double(), s:double(), v:double()
          local largest = math.max(m, n)
          identity(t_(u):matmul(u), u:size(-1), bound(dt, largest, 1), what .. ': U')
          identity(t_(v):matmul(v), v:size(-1), bound(dt, largest, 1), what .. ': V')
          H.close((u:narrow(-1, 1, r) * s:unsqueeze(-2)):matmul(t_(v:narrow(-1, 1, r))), H.values(a0), bound(dt, largest, norm2(a0)), what)
          local list = H.values(s)
          for i = 1, list.n do
            assert.is_true(list[i] >= 0 and ((i - 1) % r == 0 or list[i] <= list[i - 1] * (1 + 1e-2)), what .. ': order')
          end
        end
      end
    end
  end
  -- zero singular values: vectors are orthogonal still
  for _, v in ipairs { { 0, 0, 0, 0, 0, 0 }, { 1, 2, 2, 4, 3, 6 } } do
    local u, s, w = amp.svd(matrix(v, { 3, 2 }), false)
    identity(t_(u):matmul(u), 3)
    identity(t_(w):matmul(w), 2)
    H.close((u:narrow(-1, 1, 2) * s):matmul(t_(w)), v)
  end
  assert.equal('3x3', tostring((amp.svd(amp.zeros(3, 0), false)):size()))
  assert.equal('3x0', tostring((amp.svd(amp.zeros(3, 0))):size()))
  for _, shape in ipairs { { 3, 3 }, { 4, 2 }, { 2, 4 }, { 2, 3, 2 } } do
    local a = matrix(batch(shape, 1), shape)
    local w = matrix(batch({ shape[#shape - 1], shape[#shape] }, 0.5), { shape[#shape - 1], shape[#shape] })
    differentiable(function(x)
      local u, s, v = amp.svd(x)
      -- signs cancel where U meets V, or itself
      return ((u * s:exp():unsqueeze(-2)):matmul(t_(v)) * w):sum() + (u:matmul(t_(u)) * 0.5):pow(2):sum() + (s * s):sum(), t_(u):matmul(w):pow(2):sum(-1)
    end, a, 'svd of ' .. table.concat(shape, 'x'))
  end
  assert.is_true(amp.gradcheck(function(x) return (select(2, amp.svd(x, false))) end, { (matrix(batch({ 3, 2 }, 1), { 3, 2 }):requires_grad_()) }))
  H.fails(function()
    local x = matrix(batch({ 3, 2 }, 1), { 3, 2 })
    x.requires_grad = true
    return (amp.svd(x, false)):sum():backward()
  end, 'some = false', '3 x 2')
  in_regions(amp.svd, matrix(batch({ 3, 2 }, 1), { 3, 2 }), 3)
  for _, bad in ipairs { 0 / 0, math.huge } do
    H.fails(function() amp.svd(matrix({ 1, 2, bad, 4 }, { 2, 2 })) end, 'svd', 'NaN')
    H.fails(function() amp.svdvals(matrix({ 1, 2, 3, 4, 1, bad, 1, 1 }, { 2, 2, 2 })) end, 'svdvals', 'matrix 2 of 2')
  end
end

function closed.eigh()
  for _, shape in ipairs { { 3, 3 }, { 2, 4, 4 }, { 1, 1 }, { 2, 2 }, { 20, 20 }, { 40, 40 } } do
    for _, dt in ipairs(H.floats) do
      local a0 = symmetric(matrix(batch(shape, 1), shape)):to(dt)
      for k, a in ipairs(layouts(a0)) do
        for _, uplo in ipairs { 'L', 'U' } do
          local what = ('eigh of %s, %s, layout %d, %s'):format(table.concat(shape, 'x'), dt, k, uplo)
          local noise = uplo == 'L' and amp.triu(amp.ones_like(a), 1) or amp.tril(amp.ones_like(a), -1)
          local w, v = amp.eigh(a + noise, uplo)
          assert.equal(dt, v.dtype)
          w, v = w:double(), v:double()
          local n = shape[#shape]
          identity(t_(v):matmul(v), n, bound(dt, n, 1), what .. ': V')
          H.close((v * w:unsqueeze(-2)):matmul(t_(v)), H.values(a0), bound(dt, n, norm2(a0)), what)
          local list = H.values(w)
          for i = 1, list.n do assert.is_true((i - 1) % shape[#shape] == 0 or list[i] >= list[i - 1], what .. ': order') end
        end
      end
    end
  end
  local w, v = amp.eigh(amp.zeros(0, 0))
  assert.equal('0', tostring(w:size()))
  assert.equal('0x0', tostring(v:size()))
  for _, shape in ipairs { { 3, 3 }, { 2, 2, 2 } } do
    local weight = matrix(batch({ shape[#shape], shape[#shape] }, 0.5), { shape[#shape], shape[#shape] })
    for _, uplo in ipairs { 'L', 'U' } do
      differentiable(function(x)
        local values_, vectors = amp.eigh(symmetric(x), uplo)
        return values_, t_(vectors):matmul(weight):pow(2), (vectors * values_:exp():unsqueeze(-2)):matmul(t_(vectors))
      end, matrix(batch(shape, 1), shape), 'eigh')
      differentiable(function(x) return amp.eigvalsh(symmetric(x), uplo) end, matrix(batch(shape, 1), shape), 'eigvalsh')
    end
  end
  local x = matrix(batch({ 3, 3 }, 1), { 3, 3 })
  x.requires_grad = true
  local g = amp.grad({ (amp.eigh(x)):exp():sum() }, { x })[1]
  H.close(g, t_(g):contiguous())
  H.fails(function() amp.eigh(matrix({ 1, 2, 0 / 0, 4 }, { 2, 2 })) end, 'eigh', 'NaN')
end

function closed.eigvalsh()
  H.close(amp.eigvalsh(matrix({ 2, 99, 1, 2 }, { 2, 2 })), { 1, 3 })
  H.close(amp.eigvalsh(matrix({ 2, 1, 99, 2 }, { 2, 2 }), 'U'), { 1, 3 })
end

function closed.cholesky()
  local function positive(x) return symmetric(x):matmul(symmetric(x)) + amp.eye(x:size(-1), { dtype = 'float64' }) end
  for _, shape in ipairs { { 3, 3 }, { 2, 2, 2 }, { 1, 1 } } do
    for _, upper in ipairs { false, true } do
      differentiable(function(x) return amp.cholesky(positive(x), upper) end, matrix(batch(shape, 1), shape), 'cholesky')
    end
  end
  local x = positive(matrix(batch({ 3, 3 }, 1), { 3, 3 })):detach()
  x.requires_grad = true
  local g = amp.grad({ (amp.cholesky(x) * matrix(values(3, 3, 1), { 3, 3 })):sum() }, { x })[1]
  H.close(g, t_(g):contiguous())
  for _, n in ipairs { 17, 50, 200 } do -- in parts, and by LAPACK where there is one
    local a = positive(amp.randn(n, n, { dtype = 'float64' }) / n)
    for _, upper in ipairs { false, true } do
      local l = amp.cholesky(a, upper)
      H.close(upper and t_(l):matmul(l) or l:matmul(t_(l)), H.values(a))
      H.close(upper and amp.tril(l, -1) or amp.triu(l, 1), H.values(amp.zeros(n, n)))
    end
  end
  local function eye(at33)
    local a = amp.eye(40, { dtype = 'float64' })
    a[{ 33, 33 }] = at33
    return a
  end
  H.fails(function() amp.cholesky(eye(-1)) end, 'cholesky', 'leading minor of order 33')
  H.fails(function() amp.cholesky(amp.stack { eye(1), eye(-1) }) end, 'matrix 2 of 2')
  H.fails(function() amp.cholesky(matrix({ 1, 0 / 0, 0 / 0, 1 }, { 2, 2 })) end, 'leading minor of order 2')
end

-- sizes at which factors are made in parts, or by LAPACK
function closed.inverse()
  for _, n in ipairs { 9, 33, 70, 150 } do
    for _, dt in ipairs { 'float64', 'float32' } do
      amp.manual_seed(n)
      local a = amp.randn(2, n, n, { dtype = dt })
      local sv = amp.svdvals(a:double():cpu())
      local norm, cond = sv:max():item(), (sv:max(2) / sv:min(2)):max():item()
      local tol = bound(dt, n, cond) -- a residual of an inverse or a solution grows with the condition
      local eye = amp.eye(n, { dtype = dt }):expand(2, n, n):contiguous()
      H.close(a:matmul(amp.inverse(a)), eye, tol)
      H.close(t_(a):matmul(amp.inverse(t_(a))), eye, tol)
      local b = amp.randn(2, n, 3, { dtype = dt })
      H.close(a:matmul(amp.solve(a, b)), b, tol)
      H.close(amp.solve(a, t_(b), false):matmul(a), t_(b):contiguous(), tol)
      H.close(amp.slogdet(a):double() * select(2, amp.slogdet(a)):double():exp(), amp.det(a:double()), { rtol = dt == 'float64' and 1e-9 or 1e-2, atol = 0 })
      for _, upper in ipairs { true, false } do
        local tri = (upper and amp.triu(a) or amp.tril(a)) * 0.1 + amp.eye(n, { dtype = dt }) * 3
        H.close(tri:matmul(amp.solve_triangular(tri, b, upper)), b, tol)
        H.close((amp.solve_triangular(tri, t_(b), upper, false)):matmul(tri), t_(b):contiguous(), tol)
      end
      local q, r = amp.qr(a)
      H.close(q:matmul(r), a, bound(dt, n, norm))
      H.close(t_(q):matmul(q), eye, bound(dt, n, 1))
      H.close(amp.tril(r, -1), amp.zeros_like(r), H.exact)
      q, r = amp.qr(a:narrow(-1, 1, n - 4), 'complete')
      H.close(q:matmul(r), a:narrow(-1, 1, n - 4):contiguous(), bound(dt, n, norm))
      H.close(t_(q):matmul(q), eye, bound(dt, n, 1))
    end
  end
  assert.is_true(amp.inv == amp.inverse and amp.pinv == amp.pinverse)
end

-- derivatives of a determinant that is 0, and of functions of constant rank
function closed.det()
  local x = matrix({ 1, 2, 2, 4 }, { 2, 2 })
  x.requires_grad = true
  H.close(amp.grad({ amp.det(x) }, { x })[1], { 4, -2, -2, 1 })
  local low = matrix({ 1, 2, 3 }, { 3, 1 })
  differentiable(function(v) return amp.pinverse(v:matmul(t_(v) + 1)) end, low, 'pseudo-inverse of rank 1')
end

-- transforms by their definition; lengths with large primes, groups of series, inverses
function closed.fft()
  local pi = math.pi
  for _, n in ipairs { 1, 2, 9, 13, 16, 17, 23, 26, 32, 37, 46, 60, 64, 97, 100, 128, 194 } do
    local re, im, want = {}, {}, {}
    for j = 1, n do re[j], im[j] = ((j * 37) % 29 - 14) / 16, ((j * 23) % 31 - 15) / 16 end
    for k = 0, n - 1 do
      local a, b = 0, 0
      for j = 0, n - 1 do
        local c, s = math.cos(2 * pi * (j * k % n) / n), -math.sin(2 * pi * (j * k % n) / n)
        a, b = a + re[j + 1] * c - im[j + 1] * s, b + re[j + 1] * s + im[j + 1] * c
      end
      want[2 * k + 1], want[2 * k + 2] = a, b
    end
    local flat = {}
    for j = 1, n do flat[2 * j - 1], flat[2 * j] = re[j], im[j] end
    for _, dt in ipairs { 'float64', 'float32' } do
      local tol = dt == 'float64' and { rtol = 0, atol = 1e-11 } or { rtol = 0, atol = 5e-5 }
      local x = matrix(flat, { n, 2 }, dt)
      H.close(amp.fft(x), want, tol, n .. ' values')
      H.close(amp.ifft(amp.fft(x)), flat, tol, n .. ' values and back')
      for _, count in ipairs { 3, 21 } do -- each alone, or in groups
        local many = x:expand(count, n, 2) * amp.arange(1, count + 1, { dtype = dt }):view(count, 1, 1)
        local wanted = matrix(want, { n, 2 }, dt) * amp.arange(1, count + 1, { dtype = dt }):view(count, 1, 1)
        local wide = { rtol = 0, atol = tol.atol * count }
        H.close(amp.fft(many), wanted, wide, n .. ' values, many')
        H.close(amp.fft(many:transpose(1, 2):contiguous(), { dim = 1 }), wanted:transpose(1, 2):contiguous(), wide, n .. ' values, the other dimension')
        local real = many:select(-1, 1)
        local whole = amp.fft(real, { real = true })
        H.close(amp.rfft(real), whole:narrow(-2, 1, math.floor(n / 2) + 1):contiguous(), wide, n .. ' real values')
        H.close(amp.irfft(amp.rfft(real), { n = n }), real:contiguous(), wide, n .. ' real values and back')
      end
    end
  end
  -- long ones, in columns and rows
  for _, n in ipairs { 4096, 6000, 20000, 65536, 10007 } do
    amp.manual_seed(n)
    local x = amp.randn(n, 2, { dtype = 'float64' })
    local y = amp.fft(x)
    H.close(amp.ifft(y), x, { rtol = 0, atol = 1e-10 })
    H.close((y * y):sum(), { (x * x):sum():item() * n }, { rtol = 1e-11, atol = 0 }, 'energy')
    H.close(y[1], x:sum(1), { rtol = 0, atol = 1e-9 })
    local k = 5 -- one frequency by its definition
    local phase = amp.arange(0, n, { dtype = 'float64' }) * (-2 * math.pi * k / n)
    local c, s = phase:cos(), phase:sin()
    H.close(y[k + 1], { ((x:select(2, 1) * c - x:select(2, 2) * s):sum()):item(), ((x:select(2, 1) * s + x:select(2, 2) * c):sum()):item() }, { rtol = 0, atol = 1e-8 })
    local r = x:select(2, 1)
    H.close(amp.irfft(amp.rfft(r), { n = n }), r:contiguous(), { rtol = 0, atol = 1e-10 })
  end
end

local integers = { dtype = 'int64', fill = 1, 2, 2 }
return {
  closed = closed,
  wrong = {
    inverse = { { { { 2, 3 } }, {}, { '2x3', '2 rows', '3 columns' } }, { { { 3 } }, {}, { '3', 'matrix' } }, { { { 2, 2 } }, {}, { 'singular', 'pivot 2 of 2' } },
      { { { 3, 2, 2 } }, {}, { 'matrix 1 of 3' } }, { { integers }, {}, { 'int64' } } },
    cholesky = { { { { 2, 3 } }, {}, { '2x3' } }, { { { 2, 2 } }, {}, { 'not positive-definite', 'order 2' } }, { { { fill = -1, 2, 2, 2 } }, {}, { 'matrix 1 of 2', 'order 1' } } },
    solve = { { { { 2, 3 }, { 2 } }, {}, { '2x3' } }, { { { 2, 2 }, { 3, 1 } }, {}, { '2x2', '3x1', '2 unknowns' } }, { { { 2, 2 }, { 2, 2 } }, {}, { 'singular' } },
      { { { 2, 2 }, { dtype = 'float64', 2 } }, {}, { 'float32', 'float64' } }, { { { 2, 2 }, {} }, {}, { 'scalar' } }, { { { 2, 2 }, { 2 } }, { left = false }, { 'left' } },
      { { { 2, 3, 3 }, { 4, 3, 1 } }, {}, { '2', '4', 'broadcast' } }, { { { 2, 2 }, { 1, 3 } }, { left = false }, { '3 columns' } } },
    solve_triangular = { { { { 2, 3 }, { 2, 1 } }, { upper = true }, { '2x3' } }, { { { 2, 2 }, { 3, 1 } }, { upper = true }, { '3 rows' } },
      { { { fill = 0, 2, 2 }, { 2, 1 } }, { upper = true }, { 'singular', 'element 1' } }, { { { 2, 2 }, { 2 } }, { upper = true }, { 'B', 'matrix' } } },
    triangular_solve = { { { { 2, 1 }, { 2, 3 } }, {}, { '2x3' } }, { { { 3, 1 }, { 2, 2 } }, {}, { '3 rows' } }, { { { 2 }, { 2, 2 } }, {}, { 'matrix' } } },
    cholesky_solve = { { { { 2, 1 }, { 2, 3 } }, {}, { '2x3' } }, { { { 3, 1 }, { 2, 2 } }, {}, { '3 rows' } }, { { { 2, 1 }, { fill = 0, 2, 2 } }, {}, { 'singular' } } },
    cholesky_inverse = { { { { 2, 3 } }, {}, { '2x3' } } },
    qr = { { { { 3 } }, {}, { 'matrix' } }, { { { 3, 2 } }, { mode = 'thin' }, { 'mode', 'thin' } } },
    svd = { { { { 3 } }, {}, { 'matrix' } } },
    svdvals = { { { {} }, {}, { 'matrix' } } },
    eigh = { { { { 2, 3 } }, {}, { '2x3' } }, { { { 2, 2 } }, { UPLO = 'X' }, { 'UPLO', 'X' } } },
    eigvalsh = { { { { 2, 3 } }, {}, { '2x3' } } },
    det = { { { { 2, 3 } }, {}, { '2x3' } }, { { { 3 } }, {}, { 'matrix' } } },
    slogdet = { { { { 2, 3 } }, {}, { '2x3' } } },
    logdet = { { { { 2, 3 } }, {}, { '2x3' } } },
    pinverse = { { { { 3 } }, {}, { 'matrix' } }, { { { 3, 2 } }, { rcond = -1 }, { 'rcond', '-1' } } },
    lstsq = { { { { 3 }, { 3 } }, {}, { 'matrix' } }, { { { 3, 2 }, { 2, 1 } }, {}, { '3 equations', '2 rows' } }, { { { 3, 2 }, { dtype = 'float64', 3 } }, {}, { 'float32', 'float64' } } },
    matrix_rank = { { { { 3 } }, {}, { 'matrix' } }, { { { 3, 2 } }, { atol = -1 }, { '-1' } }, { { { 3, 2 } }, { hermitian = true }, { '3x2' } } },
    cond = { { { { 3 } }, {}, { 'matrix' } }, { { { 2, 2 } }, { p = 3 }, { '3' } }, { { { 2, 3 } }, { p = 1 }, { '2x3' } }, { { { 0, 0 } }, {}, { '0x0' } } },
    matrix_power = { { { { 2, 3 } }, { n = 2 }, { '2x3' } }, { { { 2, 2 } }, { n = -1 }, { 'singular' } } },
    matrix_exp = { { { { 2, 3 } }, {}, { '2x3' } } },
    fft = { { { { 3 } }, {}, { '3', 'size 2', 'real = true' } }, { { { 3, 2 } }, { n = 0 }, { 'n', '0' } }, { { { 3, 2 } }, { dim = 2 }, { 'dim 2' } }, { { { 0, 2 } }, {}, { '0' } },
      { { {} }, { real = true }, { 'scalar' } } },
    ifft = { { { { 3 } }, {}, { '3', 'size 2' } }, { { { 3, 2 } }, { n = -1 }, { '-1' } } },
    rfft = { { { { 3 } }, { n = 0 }, { 'n', '0' } }, { { { 0 } }, {}, { '0' } }, { { {} }, {}, { 'scalar' } }, { { { dtype = 'int64', 3 } }, {}, { 'int64' } } },
    irfft = { { { { 3 } }, {}, { 'size 2' } }, { { { 1, 2 } }, {}, { '0 values' } }, { { { 3, 2 } }, { n = 0 }, { 'n', '0' } } },
    fft2 = { { { { 3, 2 } }, {}, { '3x2', '1 dimension', '2' } }, { { { 3, 3, 2 } }, { dim = { 1 } }, { '1', '2' } }, { { { 3, 3, 2 } }, { s = { 0, 2 } }, { '0' } } },
    ifft2 = { { { { 3, 3 } }, {}, { '3x3', 'size 2' } } },
    rfft2 = { { { { 3 } }, {}, { '3', '2' } } },
    irfft2 = { { { { 3, 3 } }, {}, { '3x3', 'size 2' } }, { { { 3, 1, 2 } }, {}, { '0 values' } } },
    fftn = { { { { 3, 3 } }, {}, { 'size 2' } }, { { { 3, 3, 2 } }, { s = { 2, 2, 2 } }, { '3', '2' } }, { { { 3, 3, 2 } }, { dim = { 1, 1 } }, { 'twice' } } },
    ifftn = { { { { 3, 3, 2 } }, { s = { 2 }, dim = { 1, 2 } }, { '1', '2' } } },
    rfftn = { { { {} }, {}, { 'scalar' } }, { { { 0, 3 } }, {}, { '0 values', 'dimension 1' } } },
    irfftn = { { { { 3, 3 } }, {}, { 'size 2' } } },
    fftshift = { { { { 3, 3 } }, { complex = true }, { '3x3', 'size 2' } } },
    ifftshift = { { { { 3, 3, 2 } }, { complex = true, dim = { 3 } }, { '3' } } },
  },
}
