--- Samples of indexing, sorting, joining and counting: closed forms of what draws
-- or makes, and wrong calls.
local assert = require 'luassert'
local amp = require 'amp'
local H = require 'spec.lib.helper'

local M = { closed = {}, wrong = {}, constant = {} }
local closed, wrong = M.closed, M.wrong

local function long(...) return H.make({ ... }, { select('#', ...) }, 'int64') end

-- -- What is made --------------------------------------------------------------------------

function closed.logspace()
  H.close(amp.logspace(0, 3, 4), { 1, 10, 100, 1000 })
  H.close(amp.logspace(0, 4, 3, 2), { 1, 4, 16 })
  H.close(amp.logspace(1, 1, 1), { 10 })
  assert.equal(0, amp.logspace(0, 1, 0):numel())
  assert.equal('float64', amp.logspace(0, 1, 3, 10, { dtype = 'float64' }).dtype)
  H.fails(function() amp.logspace(0, 1, -1) end, 'logspace', '-1')
  H.fails(function() amp.logspace(0, 400, 3) end, 'logspace', '400')
end

function closed.tril_indices()
  H.close(amp.tril_indices(3, 3), { 1, 2, 2, 3, 3, 3, 1, 1, 2, 1, 2, 3 }, H.exact)
  H.close(amp.tril_indices(2, 3, -1), { 2, 1 }, H.exact)
  assert.equal('2x6', tostring(amp.tril_indices(2, 3, 9):size()))
  assert.equal('2x0', tostring(amp.tril_indices(2, 3, -9):size()))
  H.fails(function() amp.tril_indices(-1, 3) end, 'tril_indices', '-1')
end

function closed.triu_indices()
  H.close(amp.triu_indices(3, 3, 1), { 1, 1, 2, 2, 3, 3 }, H.exact)
  H.close(amp.triu_indices(2, 2, -1), { 1, 1, 2, 2, 1, 2, 1, 2 }, H.exact)
  assert.equal('int64', amp.triu_indices(2, 2).dtype)
  H.fails(function() amp.triu_indices(2, -3) end, 'triu_indices', '-3')
end

-- -- What draws ----------------------------------------------------------------------------

local function moments(t)
  local v, s, q = H.values(t), 0, 0
  for i = 1, v.n do s = s + v[i] end
  s = s / v.n
  for i = 1, v.n do q = q + (v[i] - s) ^ 2 end
  return s, q / v.n, v
end

function closed.exponential()
  for _, dt in ipairs(H.floats) do
    amp.manual_seed(3)
    local mean, var, v = moments(amp.empty(4001, { dtype = dt }):exponential_(2))
    assert.is_true(math.abs(mean - 0.5) < 0.03, dt .. ' mean ' .. mean)
    assert.is_true(math.abs(var - 0.25) < 0.05, dt .. ' variance ' .. var)
    for i = 1, v.n do assert.is_true(v[i] >= 0 and v[i] < math.huge) end
  end
  H.fails(function() amp.empty(2):exponential_(0) end, 'exponential', '0')
end

function closed.bernoulli_sample()
  for _, dt in ipairs(H.floats) do
    amp.manual_seed(3)
    local p = amp.full({ 4000 }, 0.25, { dtype = dt })
    local t = amp.bernoulli(p)
    local mean, _, v = moments(t)
    assert.equal(dt, t.dtype)
    assert.is_true(math.abs(mean - 0.25) < 0.03)
    for i = 1, v.n do assert.is_true(v[i] == 0 or v[i] == 1) end
  end
  H.close(amp.bernoulli(amp.tensor { 0, 1, 1, 0 }), { 0, 1, 1, 0 }, H.exact)
  H.fails(function() amp.bernoulli(amp.tensor { 0.5, 1.5 }) end, 'bernoulli', '1.5', 'element 2')
end

function closed.poisson()
  for _, rate in ipairs { 0.5, 4, 30, 1000 } do
    amp.manual_seed(5)
    local mean, var, v = moments(amp.poisson(amp.full({ 4000 }, rate, { dtype = 'float64' })))
    assert.is_true(math.abs(mean / rate - 1) < 0.06, rate .. ': mean ' .. mean)
    assert.is_true(math.abs(var / rate - 1) < 0.1, rate .. ': variance ' .. var)
    for i = 1, v.n do assert.is_true(v[i] >= 0 and v[i] % 1 == 0) end
  end
  for _, dt in ipairs(H.floats) do assert.equal(dt, amp.poisson(amp.ones(3, { dtype = dt })).dtype) end
  H.close(amp.poisson(amp.zeros(5)), { 0, 0, 0, 0, 0 }, H.exact)
  H.fails(function() amp.poisson(amp.tensor { 1, -2 }) end, 'poisson', '-2', 'element 2')
end

function closed.multinomial()
  for _, dt in ipairs(H.floats) do
    amp.manual_seed(7)
    local w = H.make({ 1, 0, 3, 4 }, { 4 }, dt)
    local v = H.values(amp.multinomial(w, 4000, true))
    local n = { 0, 0, 0, 0 }
    for i = 1, v.n do n[v[i]] = n[v[i]] + 1 end
    assert.equal(0, n[2])
    assert.is_true(math.abs(n[1] / 4000 - 0.125) < 0.03 and math.abs(n[4] / 4000 - 0.5) < 0.03)
  end
  -- without replacement: each at most once, the first drawn by weight
  local rows = amp.tensor { { 1, 1, 0, 2 }, { 5, 1, 1, 1 } }
  local first = 0
  for _ = 1, 400 do
    local t = amp.multinomial(rows, 3)
    assert.equal('2x3', tostring(t:size()))
    local v = H.values(t)
    assert.is_true(v[1] ~= v[2] and v[2] ~= v[3] and v[1] ~= v[3] and v[1] ~= 3 and v[2] ~= 3 and v[3] ~= 3)
    if v[4] == 1 then first = first + 1 end
  end
  assert.is_true(math.abs(first / 400 - 5 / 8) < 0.1, 'drawn first ' .. first)
  H.fails(function() amp.multinomial(amp.tensor { 1, 2 }, 3) end, 'multinomial', '3', '2', 'replacement')
  H.fails(function() amp.multinomial(amp.tensor { 1, -2 }, 1) end, 'multinomial', '-2', 'element 2')
  H.fails(function() amp.multinomial(amp.tensor { 1, 0, 0 }, 2) end, 'multinomial', '1', '2')
  H.fails(function() amp.multinomial(amp.zeros(2, 2, 2), 1) end, 'multinomial', '2x2x2')
  H.fails(function() amp.multinomial(amp.tensor { 1, 2 }, 0) end, 'multinomial', '0')
end

-- -- What is large or wrong ------------------------------------------------------------------

-- Long rows take other ways than short ones: sorted means each value where argsort says, in order.
local function check_sort(x, descending, dim)
  local y, at = amp.sort(x, dim, descending)
  assert.is_true(amp.gather(x, dim, at):equal(y))
  assert.is_true(amp.argsort(x, dim, descending):equal(at))
  local n = y:size(dim)
  local a, b = y:narrow(dim, 1, n - 1), y:narrow(dim, 2, n - 1)
  assert.is_true((descending and a:ge(b) or a:le(b)):all():item())
  local tie = amp.logical_and(a:eq(b), at:narrow(dim, 1, n - 1):gt(at:narrow(dim, 2, n - 1)))
  assert.is_false(tie:any():item(), 'equal values keep their order')
end

function closed.sort()
  amp.manual_seed(11)
  for _, n in ipairs { 2, 17, 250, 301, 1000, 7000, 20000 } do
    for _, dt in ipairs { 'float32', 'float64', 'float16', 'int64', 'int32', 'uint8' } do
      local x = amp.randint(0, 200, { n }):to(dt)
      check_sort(x, n % 2 == 1, 1)
    end
    check_sort(amp.randn(n), false, 1)
    check_sort(amp.randn(n, { dtype = 'float64' }), true, 1)
  end
  check_sort(amp.randn(400, 3), false, 1)
  check_sort(amp.randn(5, 300, 2), true, 2)
  local out = { amp.empty(3), }
  amp.argsort(amp.tensor { 3, 1, 2 }, { out = out[1] })
  H.close(out[1], { 2, 3, 1 }, H.exact)
  H.fails(function() amp.sort(amp.ones(2), 2) end, 'sort', '2')
end

function closed.topk()
  amp.manual_seed(12)
  for _, n in ipairs { 600, 5000, 40000 } do
    for _, k in ipairs { 1, 10, 100, 550 } do
      for _, dt in ipairs { 'float32', 'float64', 'int16' } do
        local x = amp.randint(-900, 900, { n }):to(dt)
        for _, largest in ipairs { true, false } do
          local v, at = amp.topk(x, k, { largest = largest })
          local w, where = amp.sort(x, { descending = largest })
          assert.is_true(v:equal(w:narrow(1, 1, k)))
          assert.is_true(at:equal(where:narrow(1, 1, k)))
        end
      end
    end
  end
end

function closed.median()
  amp.manual_seed(13)
  for _, n in ipairs { 1, 30, 1001, 30000 } do
    local x = amp.randn(n)
    local v = H.values((amp.sort(x)))
    H.close(x:median(), { v[math.floor((n - 1) / 2) + 1] }, H.exact)
    H.close((x:kthvalue(math.ceil(n / 3))), { v[math.ceil(n / 3)] }, H.exact)
  end
end

function closed.isin()
  local x, test = amp.randint(0, 1000, { 700 }), amp.randint(0, 1000, { 300 })
  local seen, v, w = {}, H.values(test), H.values(x)
  for i = 1, v.n do seen[v[i]] = true end
  local got = H.values(amp.isin(x, test))
  for i = 1, w.n do assert.equal(seen[w[i]] and 1 or 0, got[i]) end
end

wrong.topk = { { { { 3 } }, { k = 4 }, { '4', '3' } }, { { { 3 } }, { k = -1 }, { '-1' } } }
wrong.kthvalue = { { { { 3 } }, { k = 4 }, { '4', '3' } }, { { { 3 } }, { k = 0 }, { '0' } } }
wrong.median = { { { { 0, 3 } }, {}, { '0' } }, { { { 0, 3 } }, { dim = 1 }, { '0' } } }
wrong.nanmedian = wrong.median
wrong.mode = { { { { 0, 3 } }, { dim = 1 }, { '0' } } }
wrong.quantile = { { { { 3 }, 1.5 }, {}, { '1.5' } }, { { { 3 }, { fill = -1, 2 } }, {}, { '-1', 'element 1' } }, { { { 0 }, 0.5 }, {}, { '0' } },
  { { { 3 }, { fill = 0.5, 2, 2 } }, {}, { '2x2' } } }
wrong.nanquantile = wrong.quantile
wrong.searchsorted = { { { { 2, 3 }, { 3, 4 } }, {}, { '2x3', '3x4' } }, { { {}, { 3 } }, {}, { 'scalar' } } }
wrong.bucketize = { { { { 2 }, { 2, 3 } }, {}, { '2x3' } } }
wrong.bincount = { { { { dtype = 'int64', fill = 0, 3 }, false }, {}, { '0' } }, { { { dtype = 'int64', 2, 3 }, false }, {}, { '2x3' } },
  { { { dtype = 'int64', 3 }, { 2 } }, {}, { '2', '3' } }, { { { dtype = 'int64', 3 }, false }, { minlength = -1 }, { '-1' } },
  { { { 3 }, false }, {}, { 'float32' } } }
wrong.histc = { { { { 3 } }, { bins = 0 }, { '0' } }, { { { 3 } }, { min = 2, max = 1 }, { '2', '1' } }, { { { fill = 0 / 0, 3 } }, {}, { 'nan' } } }
wrong.one_hot = { { { { dtype = 'int64', fill = 4, 2 } }, { num_classes = 3 }, { '4', '3' } }, { { { dtype = 'int64', fill = 0, 2 } }, {}, { '0' } },
  { { { dtype = 'int64', fill = 1, 2 } }, { num_classes = 0 }, { '0' } }, { { { dtype = 'int64', 0 } }, {}, { 'num_classes' } } }
wrong.nanmean = { { { { 3 } }, { dtype = 'int64' }, { 'int64' } } }
wrong.diff = { { { { 3 } }, { n = -1 }, { '-1' } }, { { {} }, {}, { 'scalar' } },
  { { { 2, 3 }, { 3, 3 }, false }, { n = 1, dim = 2 }, { '2x3', '3x3' } } }
wrong.hstack = { { { { list = {} } }, {}, {} }, { { { list = { { 2, 3 }, { 3, 3 } } } }, {}, { '2x3', '3x3' } } }
wrong.vstack = { { { { list = {} } }, {}, {} }, { { { list = { { 3 }, { 4 } } } }, {}, { '3', '4' } } }
wrong.dstack = { { { { list = {} } }, {}, {} }, { { { list = { { 3 }, { 4 } } } }, {}, { '3', '4' } } }
wrong.roll = { { { { 3 } }, { shifts = { 1, 2 } }, { '2' } }, { { { 3, 3 } }, { shifts = { 1, 2 }, dims = { 1 } }, { '2', '1' } } }
wrong.rot90 = { { { { 3 } }, {}, { '3' } }, { { { 3, 3 } }, { k = 1, dims = { 1 } }, { '1' } },
  { { { 3, 3 } }, { k = 1, dims = { 1, -2 } }, { '1' } } }
wrong.flipud = { { { {} }, {}, { 'scalar' } } }
wrong.fliplr = { { { { 3 } }, {}, { '3' } } }
wrong.movedim = { { { { 3, 3 } }, { source = { 1, 2 }, destination = { 1 } }, { '2', '1' } },
  { { { 3, 3 } }, { source = { 1, 1 }, destination = { 1, 2 } }, { '1' } } }
wrong.repeat_interleave = { { { { 3 }, 1.5 }, {}, { '1.5' } }, { { { 3 }, -1 }, {}, { '-1' } },
  { { { 3 }, { dtype = 'int64', 2 } }, {}, { '2', '3' } },
  { { { 3 }, { dtype = 'int64', fill = -2, 3 } }, {}, { '-2', 'element 1' } }, { { { 3 }, { 3 } }, {}, { 'float32' } } }
wrong.diag = { { { { 2, 2, 2 } }, {}, { '2x2x2' } }, { { {} }, {}, { 'scalar' } } }
wrong.diag_embed = { { { { 3 } }, { dim1 = 1, dim2 = 1 }, { '1' } }, { { {} }, {}, { 'scalar' } } }
wrong.index_copy = { { { { 4, 2 }, { dtype = 'int64', fill = 5, 2 }, { 2, 2 } }, { dim = 1 }, { '5', '4' } },
  { { { 4, 2 }, { dtype = 'int64', 2 }, { 3, 2 } }, { dim = 1 }, { '3x2', '2x2' } },
  { { { 4, 2 }, { 2 }, { 2, 2 } }, { dim = 1 }, { 'float32' } },
  { { { 4, 2 }, { dtype = 'int64', 2 }, { dtype = 'float64', 2, 2 } }, { dim = 1 }, { 'float64', 'float32' } } }
wrong.index_fill = { { { { 4, 2 }, { dtype = 'int64', fill = 5, 2 } }, { dim = 1, value = 1 }, { '5', '4' } },
  { { { dtype = 'float16', 4 }, { dtype = 'int64', 2 } }, { dim = 1, value = 1e9 }, { 'float16', '1000000000' } },
  { { { 4, 2 }, { dtype = 'int64', 2, 2 } }, { dim = 1, value = 1 }, { '2x2' } } }
wrong.take = { { { { 2, 3 }, { dtype = 'int64', fill = 7, 2 } }, {}, { '7', '6' } }, { { { 0 }, { dtype = 'int64', 2 } }, {}, { '0' } },
  { { { 2, 3 }, { 2 } }, {}, { 'float32' } } }
wrong.take_along_dim = { { { { 2, 3 }, { dtype = 'int64', 3, 3 } }, { dim = 2 }, { '2x3', '3x3' } },
  { { { 2, 3 }, { dtype = 'int64', 3 } }, { dim = 2 }, { '2x3', '3' } },
  { { { 2, 3 }, { dtype = 'int64', fill = 4, 2, 1 } }, { dim = 2 }, { '4', '3' } } }
wrong.put = { { { { 2, 3 }, { dtype = 'int64', fill = 7, 2 }, { 2 } }, {}, { '7', '6' } },
  { { { 2, 3 }, { dtype = 'int64', 2 }, { 3 } }, {}, { '3', '2' } } }
wrong.masked_scatter = { { { { 2, 3 }, { dtype = 'bool', fill = 1, 2, 3 }, { 5 } }, {}, { '6', '5' } },
  { { { 2, 3 }, { dtype = 'bool', fill = 1, 2 }, { 6 } }, {}, { '2x3', '2' } },
  { { { 2, 3 }, { 2, 3 }, { 6 } }, {}, { 'bool', 'float32' } } }
wrong.scatter = { { { { 3, 3 }, { dtype = 'int64', fill = 9, 2, 2 }, { 2, 2 } }, { dim = 1 }, { '9', '3' } },
  { { { dtype = 'float16', 3 }, { dtype = 'int64', 2 }, 1e9 }, { dim = 1 }, { 'float16' } } }
wrong.scatter_reduce = { { { { 3, 3 }, { dtype = 'int64', fill = 9, 2, 2 }, { 2, 2 } }, { dim = 1, reduce = 'sum' }, { '9', '3' } },
  { { { 3, 3 }, { dtype = 'int64', 2, 2 }, { 2, 2 } }, { dim = 1, reduce = 'median' }, { 'median', 'mean' } } }

-- labels that two calls of one seed draw alike
function closed.one_hot()
  H.close(amp.one_hot(long(2, 1), 2), { 0, 1, 1, 0 }, H.exact)
end

-- quantiles are taken in what is given, at constant places
M.constant.quantile, M.constant.nanquantile = { q = true }, { q = true }
M.constant.searchsorted = { sorted_sequence = true }

return M
