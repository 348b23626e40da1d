--- Linear algebra beyond single ops: own kernels and LAPACK agree, rank-deficient
-- matrices have orthogonal vectors, and names that PyTorch's users look for are there.
local assert = require 'luassert'
local amp = require 'amp'
local H = require 'spec.lib.helper'

local program = [[
amp.manual_seed(3)
local n = 60
local a = amp.randn(2, n, n, { dtype = 'float64' })
local s = a:matmul(a:transpose(2, 3)) + amp.eye(n, { dtype = 'float64' })
local low = a:narrow(3, 1, 4):matmul(a:narrow(2, 1, 4))
local q, r = amp.qr(a:narrow(3, 1, 50))
local u, _, v = amp.svd(low, false)
local function whole(x) return (x:transpose(2, 3):matmul(x) - amp.eye(n, { dtype = 'float64' })):abs():max():item() end
assert(whole(u) < 1e-10 and whole(v) < 1e-10, 'vectors of a matrix of rank 4 are not orthogonal')
local list = { amp.inverse(a), amp.solve(a, s), amp.cholesky(s), amp.cholesky(s, true), amp.det(a / 8), select(2, amp.slogdet(a)), q, r, amp.svdvals(a),
  amp.eigvalsh(s), amp.pinverse(low), amp.matrix_rank(low), amp.solve_triangular(s, a, true), amp.matrix_exp(a / n) }
for i = 1, #list do
  local x = list[i]:double():view(-1)
  local weights = (amp.arange(1, x:numel() + 1, { dtype = 'float64' }) * 0.7):sin()
  print(('%.9e'):format((x * weights):sum():item()))
end
]]

local function numbers(text)
  local list = {}
  for line in text:gmatch '%S+' do list[#list + 1] = tonumber(line) or error(text, 0) end
  return list
end

describe('linear algebra', function()
  it('gives the same by own kernels as by LAPACK', function()
    local function run(lapack)
      local text, status = H.child(program, '', 'AMP_LAPACK=' .. lapack)
      assert.equal(0, status, text)
      return numbers(text)
    end
    local own, other = run '0', run '1'
    assert.equal(14, #own)
    for i = 1, #own do
      assert.is_true(math.abs(own[i] - other[i]) <= 1e-7 * (1 + math.abs(own[i])), ('result %d: %.9g and %.9g'):format(i, own[i], other[i]))
    end
  end)

  it('names its plug-in, or why it is not there', function()
    local ffi = require 'ffi'
    local text = ffi.string(require('amp.ffi').C.amp_plugin_info 'lapack')
    assert.is_true(text:find('LAPACK', 1, true) ~= nil or text:find('libamp_lapack.so', 1, true) ~= nil, text)
  end)

  it('has the other names of inverse and pseudo-inverse', function()
    local a = amp.tensor { { 2, 0 }, { 0, 4 } }
    H.close(amp.inv(a), { 0.5, 0, 0, 0.25 })
    H.close(amp.pinv(a), { 0.5, 0, 0, 0.25 })
    H.close(a:inverse(), { 0.5, 0, 0, 0.25 })
  end)

  it('solves least squares and takes the gradient through it', function()
    local x = amp.tensor({ { 1, 0 }, { 1, 1 }, { 1, 2 } }, { dtype = 'float64' })
    local y = amp.tensor({ { 1 }, { 3 }, { 5 } }, { dtype = 'float64', requires_grad = true })
    local w, rest = amp.lstsq(x, y)
    H.close(w, { 1, 2 })
    H.close(rest, { 0 }, { rtol = 0, atol = 1e-20 })
    H.close(amp.grad({ w:sum() }, { y })[1], { 1 / 3, 1 / 3, 1 / 3 })
  end)
end)

describe('Fourier transforms', function()
  it('multiply spectra to convolve', function()
    local a, b = amp.tensor { 1, 2, 3, 0, 0 }, amp.tensor { 1, 1, 0, 0, 0 }
    local p, q = amp.rfft(a), amp.rfft(b)
    local re = p:select(-1, 1) * q:select(-1, 1) - p:select(-1, 2) * q:select(-1, 2)
    local im = p:select(-1, 1) * q:select(-1, 2) + p:select(-1, 2) * q:select(-1, 1)
    H.close(amp.irfft(amp.stack({ re, im }, -1), { n = 5 }), { 1, 3, 5, 3, 0 })
  end)
end)
