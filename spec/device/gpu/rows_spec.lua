--- Reductions, scans, sorting, searching and indexing on a GPU against the CPU, at sizes that take each of
-- a kernel's ways: results enough for a thread each or so few that lines are cut into parts, short and
-- long rows, memory along them and across them, every dtype and layout. Needs a GPU (or the emulator).
local amp = require 'amp'
local H = require 'spec.lib.helper'

local here = amp.cuda.is_available()

--- A tensor of a shape: random, with ties, and in float dtypes a few NaN and infinities if they are asked for.
local function make(shape, dtype, kind)
  if kind == 'small' then return amp.randint(-3, 4, shape, { dtype = 'int64' }):to(dtype) end
  if dtype == 'bool' then return amp.rand(shape):gt(0.7) end
  if dtype == 'uint8' then return amp.randint(0, 100, shape, { dtype = 'int64' }):to(dtype) end
  if not H.is_float[dtype] then return amp.randint(-100, 101, shape, { dtype = 'int64' }):to(dtype) end
  local t = amp.randn(shape, { dtype = 'float64' })
  if kind == 'odd' and t:numel() > 60 then
    local flat = t:view { -1 }
    flat:narrow(1, 7, 1):fill_(0 / 0)
    flat:narrow(1, 23, 2):fill_(math.huge)
    flat:narrow(1, 41, 1):fill_(-math.huge)
    flat:narrow(1, 50, 3):fill_(-0.0)
  end
  return t:to(dtype)
end

-- The same values in other layouts; each is made of one on either device alike.
local layouts = {
  { 'plain', function(t) return t end },
  { 'turned', function(t) return t.ndim > 1 and t:transpose(1, -1):contiguous():transpose(1, -1) or nil end },
  { 'part', function(t) return amp.cat({ t, t }, t.ndim):narrow(t.ndim, 1, t.shape[t.ndim]) end },
}

local function each(result, f)
  if type(result) == 'table' then for k, v in ipairs(result) do f(v, k) end else f(result, 1) end
end
local function pack(...) return { ... } end

--- f of tensors here and there; tolerances of the dtype (indices and integers: equal).
local function compare(what, f, args, factor)
  local there = {}
  for i, a in ipairs(args) do there[i] = type(a) == 'cdata' and a:to 'cuda' or a end
  local want, got = pack(f(unpack(args))), pack(f(unpack(there)))
  each(got, function(t, k)
    local w = want[k]
    if type(w) ~= 'cdata' then
      if t ~= w then error(('%s: %s against %s'):format(what, tostring(t), tostring(w)), 0) end
      return
    end
    if t.dtype ~= w.dtype then error(('%s: result %d is %s, not %s'):format(what, k, t.dtype, w.dtype), 0) end
    local tol = H.tolerance[w.dtype] or H.exact
    local wrong = H.difference(t:cpu(), H.values(w), H.shape(w), tol, factor or 1)
    if wrong then error(('%s: result %d: %s'):format(what, k, wrong), 0) end
  end)
end

local function shape_text(s) return table.concat(s, 'x') end

--- The walk: shapes, dtypes, layouts, through f(t, dim) for each dimension (whole: once, without one).
local function walk(name, f, o)
  local dtypes = o.dtypes or { 'float32', 'float64', 'float16', 'bfloat16', 'int64', 'int32', 'int16', 'int8', 'uint8', 'bool' }
  it(name, function()
    for n, shape in ipairs(o.shapes) do
      for k, dtype in ipairs(dtypes) do
        for l, layout in ipairs(layouts) do
          -- the large ones: not all of everything
          if H.numel(shape) < 1000 or (n + k + l) % 7 == 0 or l + k == 2 then
            local t = layout[2](make(shape, dtype, o.kind))
            if t then
              local label = ('%s %s %s %s'):format(name, dtype, shape_text(shape), layout[1])
              if o.whole then compare(label, f, { t }, o.factor)
              else for dim = 1, #shape do compare(('%s dim %d'):format(label, dim), f, { t, dim }, o.factor) end end
            end
          end
        end
      end
    end
  end)
end

local floats = H.floats
local shapes = { { 5 }, { 3, 4 }, { 1, 70 }, { 2, 0, 3 }, { 6, 8, 16 }, { 33, 65 }, { 2, 3, 4, 5 }, { 300, 40 }, { 3, 2500 }, { 40000 },
  { 20000, 2 }, { 2, 18000 }, { 9, 64, 32 } }
local filled = {}
for _, s in ipairs(shapes) do if H.numel(s) > 0 then filled[#filled + 1] = s end end

describe('on a GPU', function()
  if not here then
    it('needs one', function() pending(amp.cuda.reason()) end)
    return
  end
  amp.manual_seed(5)

  describe('reductions agree with the CPU:', function()
    walk('sum', function(t, d) return t:sum(d) end, { shapes = shapes, factor = 4 })
    walk('sum of all', function(t) return t:sum() end, { shapes = shapes, whole = true, factor = 4 })
    walk('sum kept', function(t, d) return t:sum(d, true) end, { shapes = shapes, dtypes = { 'float32', 'bfloat16' }, factor = 4 })
    walk('sum in int64', function(t, d) return t:sum(d, false, 'int64') end,
      { shapes = { { 6, 40 } }, dtypes = { 'int8', 'float32' }, kind = 'small' })
    walk('sum of integers in float32', function(t) return amp.sum(t, nil, false, 'float32') end,
      { shapes = { { 6, 40 } }, dtypes = { 'int8', 'int64', 'bool' }, whole = true })
    walk('mean', function(t, d) return t:mean(d) end, { shapes = filled, dtypes = floats })
    walk('mean of all', function(t) return t:mean() end, { shapes = filled, dtypes = floats, whole = true })
    walk('prod', function(t, d) return t:prod(d) end, { shapes = { { 5 }, { 3, 4 }, { 2, 0, 3 }, { 6, 5, 4 }, { 300, 40 }, { 3, 2500 } }, kind = 'small' })
    for _, name in ipairs { 'amax', 'amin', 'argmax', 'argmin', 'max', 'min' } do
      walk(name, function(t, d) return t[name](t, d) end, { shapes = filled, kind = 'odd' })
      walk(name .. ' of all', function(t) return t[name](t) end, { shapes = filled, kind = 'odd', whole = true })
      walk(name .. ' with ties', function(t, d) return t[name](t, d) end, { shapes = filled, dtypes = { 'float32', 'int32' }, kind = 'small' })
    end
    for _, name in ipairs { 'any', 'all', 'count_nonzero' } do
      walk(name, function(t, d) return t[name](t, d) end, { shapes = shapes, kind = name ~= 'all' and 'small' or nil })
    end
    walk('var', function(t, d) return t:var(d) end, { shapes = filled, dtypes = floats, factor = 2 })
    walk('var of all', function(t) return (t * 3 + 7):var() end, { shapes = filled, dtypes = floats, whole = true, factor = 2 })
    walk('logsumexp', function(t, d) return t:logsumexp(d) end, { shapes = shapes, dtypes = floats, kind = 'odd' })
    walk('logsumexp of all', function(t) return (t * 20):logsumexp() end, { shapes = filled, dtypes = floats, whole = true })
    for _, p in ipairs { 0, 1, 2, 2.5, -1, math.huge, -math.huge } do
      walk('norm ' .. p, function(t, d) return t:norm(p, d) end, { shapes = { { 3, 4 }, { 33, 65 }, { 3, 2500 } }, dtypes = floats, factor = 2 })
    end
    it('equal', function()
      for _, s in ipairs(shapes) do
        local a = make(s, 'float32')
        local b = a:clone()
        compare('equal', function(x, y) return amp.equal(x, y) end, { a, b })
        if b:numel() > 0 then b:view { -1 }:narrow(1, b:numel(), 1):fill_(99) end
        compare('equal', function(x, y) return amp.equal(x, y) end, { a, b })
      end
    end)
    it('sums many elements of one sign', function()
      local t = amp.full({ 1000000 }, 0.1, { device = 'cuda' })
      H.close(t:sum():cpu(), { 1e5 * (1 + 1.4901161e-8) }, { rtol = 2e-7, atol = 0 })
      H.close(t:to('float16'):sum(nil, false, 'float32'):cpu(), { 99975.5859375 }, { rtol = 2e-7, atol = 0 })
    end)
  end)

  describe('scans agree with the CPU:', function()
    walk('cumsum', function(t, d) return t:cumsum(d) end, { shapes = shapes, factor = 4 })
    walk('cumprod', function(t, d) return (t * 0.1 + 1):cumprod(d) end,
      { shapes = { { 5 }, { 3, 4 }, { 33, 65 }, { 3, 2500 } }, dtypes = { 'float32', 'float64' }, factor = 8 })
    for _, name in ipairs { 'cummax', 'cummin' } do
      walk(name, function(t, d) return t[name](t, d) end, { shapes = shapes, kind = 'odd' })
      walk(name .. ' with ties', function(t, d) return t[name](t, d) end, { shapes = shapes, dtypes = { 'float32', 'int64' }, kind = 'small' })
    end
    walk('logcumsumexp', function(t, d) return t:logcumsumexp(d) end, { shapes = shapes, dtypes = floats, kind = 'odd' })
  end)

  describe('orders agree with the CPU:', function()
    for _, kind in ipairs { 'odd', 'small' } do
      local dtypes = kind == 'small' and { 'float32', 'int64', 'float16' } or nil
      for _, down in ipairs { false, true } do
        walk(('sort %s %s'):format(kind, down), function(t, d) return t:sort(d, down) end, { shapes = shapes, dtypes = dtypes, kind = kind })
      end
      walk('argsort ' .. kind, function(t, d) return t:argsort(d) end, { shapes = shapes, dtypes = dtypes, kind = kind })
      for _, large in ipairs { true, false } do
        walk(('topk %s %s'):format(kind, large), function(t, d)
          local n = t.shape[d]
          return t:topk(math.min(n, n > 100 and 37 or 3), d, large)
        end, { shapes = shapes, dtypes = dtypes, kind = kind })
      end
      walk('kthvalue ' .. kind, function(t, d) return t:kthvalue(math.ceil(t.shape[d] / 3), d) end, { shapes = filled, dtypes = dtypes, kind = kind })
      for _, name in ipairs { 'median', 'nanmedian', 'mode' } do
        walk(name .. ' ' .. kind, function(t, d) return t[name](t, d) end, { shapes = filled, dtypes = dtypes, kind = kind })
      end
      walk('median of all ' .. kind, function(t) return t:median() end, { shapes = filled, dtypes = dtypes, kind = kind, whole = true })
    end
    it('rows longer than a block selects from', function()
      local t = make({ 20, 5000 }, 'float32', 'odd')
      for _, dtype in ipairs { 'float32', 'int32', 'float64', 'bfloat16' } do
        local x = dtype == 'int32' and make({ 20, 5000 }, dtype) or t:to(dtype)
        compare('median ' .. dtype, function(v) return v:median(2) end, { x })
        compare('nanmedian ' .. dtype, function(v) return v:nanmedian(2) end, { x })
        compare('kthvalue ' .. dtype, function(v) return v:kthvalue(2500, 2) end, { x })
        compare('topk ' .. dtype, function(v) return v:topk(600, 2) end, { x })
      end
      compare('topk of one row', function(v) return v:topk(50, 1) end, { make({ 70000 }, 'float32', 'odd') })
      compare('topk of one row with ties', function(v) return v:topk(50, 1) end, { make({ 70000 }, 'int32', 'small') })
    end)
  end)

  describe('searches agree with the CPU:', function()
    for _, dtype in ipairs { 'float32', 'float64', 'int64', 'bfloat16' } do
      it(dtype, function()
        local seq, v = make({ 300 }, dtype, 'odd'):sort(1), make({ 7, 200 }, dtype, 'odd')
        for _, right in ipairs { true, false } do
          compare('searchsorted', function(s, x) return amp.searchsorted(s, x, right) end, { seq, v })
          compare('bucketize', function(s, x) return amp.bucketize(x, s, right) end, { seq, v })
          compare('searchsorted rows', function(s, x) return amp.searchsorted(s, x, right) end, { make({ 7, 33 }, dtype):sort(2), v })
          compare('searchsorted number', function(s) return amp.searchsorted(s, 1.5, right) end, { seq })
        end
        local few, many = make({ 5 }, dtype, 'small'), make({ 500 }, dtype, 'odd')
        compare('isin few', function(x, y) return amp.isin(x, y) end, { make({ 9, 50 }, dtype, 'small'), few })
        compare('isin many', function(x, y) return amp.isin(x, y, false, true) end, { make({ 9, 50 }, dtype, 'odd'), many })
        if dtype ~= 'int64' then
          compare('histc', function(x) return x:histc(10) end, { make({ 30, 100 }, dtype) })
          compare('histc wide', function(x) return x:histc(5000, -1, 1) end, { make({ 30, 100 }, dtype) })
        end
      end)
    end
    walk('nonzero', function(t) return t:nonzero() end, { shapes = shapes, kind = 'small', whole = true })
    it('one_hot', function() compare('one_hot', function(t) return t:one_hot(9) end, { amp.randint(1, 10, { 40, 3 }, { dtype = 'int64' }) }) end)
  end)

  describe('indexing agrees with the CPU:', function()
    local function indices(n, shape) return amp.randint(1, n + 1, shape, { dtype = 'int64' }) end
    for _, dtype in ipairs { 'float32', 'float64', 'float16', 'bfloat16', 'int64', 'int32', 'int8', 'bool' } do
      for _, layout in ipairs(layouts) do
        it(dtype .. ' ' .. layout[1], function()
          for _, shape in ipairs { { 7 }, { 6, 8 }, { 5, 16, 24 }, { 3, 1, 9 }, { 100, 64 } } do
            local t = layout[2](make(shape, dtype, 'small'))
            for dim = 1, t and #shape or 0 do
              local n, other = shape[dim], { unpack(shape) }
              local ix = indices(n, { 11 }) - (n + 1) * indices(2, { 11 }):eq(1):to 'int64' -- some from the end
              other[dim] = 11
              local src, perm = make(other, dtype, 'small'), amp.randperm(n, { dtype = 'int64' })
              local same, at = make(shape, dtype, 'small'), indices(n, other)
              compare('index_select', function(x, i) return x:index_select(dim, i) end, { t, ix })
              compare('index_add', function(x, i, s) return x:index_add(dim, i, s) end, { t, ix, src })
              compare('index_copy', function(x, i, s) return x:index_copy(dim, i, s) end, { t, perm, same })
              compare('index_fill', function(x, i) return x:index_fill(dim, i, 1) end, { t, ix })
              compare('gather', function(x, i) return x:gather(dim, i) end, { t, at })
              compare('scatter number', function(x, i) return x:scatter(dim, i, 1) end, { t, at })
              compare('scatter_add', function(x, i, s) return x:scatter_add(dim, i, s) end, { t, at, src })
              for _, how in ipairs { 'sum', 'prod', 'mean', 'amax', 'amin' } do
                for _, include in ipairs { true, false } do
                  compare('scatter_reduce ' .. how, function(x, i, s) return x:scatter_reduce(dim, i, s, how, include) end,
                    { t, at, how == 'prod' and src:ne(0):to(dtype) or src }, 2)
                end
              end
            end
            if t then
              local n = H.numel(shape)
              compare('put', function(x, i, s) return x:put(i, s, true) end, { t, indices(n, { 30 }), make({ 30 }, dtype, 'small') })
              compare('take', function(x, i) return x:take(i) end, { t, indices(n, { 4, 5 }) })
              compare('masked_scatter', function(x, m, s) return x:masked_scatter(m, s) end, { t, make(shape, 'bool'), make(shape, dtype) })
              compare('masked_select', function(x, m) return x:masked_select(m) end, { t, make(shape, 'bool') })
              if #shape > 1 then
                local a, b = indices(shape[1], { 6, 1 }), indices(shape[2], { 5 })
                compare('index', function(x, i, j) return x[{ i, j }] end, { t, a, b })
                if #shape > 2 then compare('index apart', function(x, i, j) return x[{ i, {}, j }] end, { t, a, indices(shape[3], { 5 }) }) end
                compare('index_put', function(x, v, i, j) return amp.index_put(x, { i, j }, v, true) end, { t, make({ 1 }, dtype, 'small'), a, b })
              end
            end
          end
        end)
      end
    end
    it('embedding', function()
      for _, dtype in ipairs(floats) do
        for _, d in ipairs { 1, 3, 8, 64, 100 } do
          local w, ix = make({ 50, d }, dtype), indices(50, { 6, 7 })
          compare('embedding', function(i, x) return amp.embedding(i, x) end, { ix, w })
          compare('embedding_bag', function(i, x) return amp.nn.functional.embedding_bag(i, x) end, { ix, w })
        end
      end
    end)
  end)

  describe('in deterministic mode indexing agrees with the CPU bit by bit:', function()
    local was
    before_each(function() was = amp.cuda.deterministic(true) end)
    after_each(function() amp.cuda.deterministic(was) end)
    local function same(what, f, args)
      local there = {}
      for i, a in ipairs(args) do there[i] = type(a) == 'cdata' and a:to 'cuda' or a end
      local got = f(unpack(there))
      H.same(got:cpu(), f(unpack(args)), what)
      H.same(got:cpu(), f(unpack(there)):cpu(), what .. ' again')
    end
    for _, dtype in ipairs(floats) do
      it(dtype, function()
        for _, shape in ipairs { { 40, 16 }, { 7, 30, 5 } } do
          local t = make(shape, dtype)
          for dim = 1, #shape do
            local other = { unpack(shape) }
            other[dim] = 100
            local ix, at = amp.randint(1, shape[dim] + 1, { 100 }, { dtype = 'int64' }), amp.randint(1, shape[dim] + 1, other, { dtype = 'int64' })
            local src = make(other, dtype)
            same('index_add', function(x, i, s) return x:index_add(dim, i, s) end, { t, ix, src })
            same('index_copy', function(x, i, s) return x:index_copy(dim, i, s) end, { t, ix, src })
            same('scatter', function(x, i, s) return x:scatter(dim, i, s) end, { t, at, src })
            same('scatter_add', function(x, i, s) return x:scatter_add(dim, i, s) end, { t, at, src })
            same('scatter_reduce', function(x, i, s) return x:scatter_reduce(dim, i, s, 'prod') end, { t, at, src })
          end
          local i, j = amp.randint(1, shape[1] + 1, { 90 }, { dtype = 'int64' }), amp.randint(1, shape[2] + 1, { 90 }, { dtype = 'int64' })
          same('index_put', function(x, v, a, b) return amp.index_put(x, { a, b }, v, true) end, { t, make({ 1 }, dtype), i, j })
        end
        local ix, at = amp.randint(1, 21, { 100 }, { dtype = 'int64' }), amp.tensor({ 1, 4, 4, 50, 99 }, { dtype = 'int64' })
        same('embedding_bag', function(i, w, o) return amp.nn.functional.embedding_bag(i, w, o) end, { ix, make({ 20, 9 }, dtype), at })
      end)
    end
  end)

  describe('wrong values', function()
    local function told(text, f)
      local ok, e = pcall(function() f() amp.cuda.synchronize() end)
      assert.is_false(ok)
      assert.truthy(tostring(e):find(text, 1, true), tostring(e))
    end
    local t, far = amp.randn { 4, 5 }:to 'cuda', amp.tensor({ 1, 9 }, { dtype = 'int64' }):to 'cuda'
    it('are told with the op at the next wait', function()
      told('index_select on the GPU: index 9', function() t:index_select(1, far) end)
      told('index_add on the GPU: index 9', function() t:index_add(1, far, t:narrow(1, 1, 2)) end)
      told('embedding on the GPU: index 9', function() amp.embedding(far, t) end)
      told('gather on the GPU: index 0', function() t:gather(1, amp.zeros({ 1, 5 }, { dtype = 'int64', device = 'cuda' })) end)
      told('one_hot on the GPU: label 9', function() far:one_hot(8) end)
      told('masked_scatter on the GPU: mask is true at 20 places, source has 4', function()
        t:masked_scatter(amp.ones({ 4, 5 }, { dtype = 'bool', device = 'cuda' }), t:narrow(2, 1, 1))
      end)
      told('multinomial on the GPU', function() amp.multinomial(-t:abs(), 1) end)
      told('histc on the GPU', function() (t / 0):histc(3) end)
    end)
    it('leave everything usable', function() H.close((t:cpu() + 1), (t + 1):cpu(), H.exact) end)
  end)

  describe('draws', function()
    it('randperm has each index once', function()
      for _, n in ipairs { 1, 2, 100, 5000 } do
        local p = amp.randperm(n, { device = 'cuda', dtype = 'int64' })
        H.close(p:sort(1):cpu(), amp.arange(1, n + 1, 1, { dtype = 'int64' }), H.exact)
      end
    end)
    it('multinomial draws by weight', function()
      local w = amp.tensor { 0, 1, 3, 0 }:to 'cuda'
      local p = amp.multinomial(w, 4000, true):cpu()
      local two = p:eq(2):sum():item()
      assert.equal(4000, two + p:eq(3):sum():item())
      assert.is_true(math.abs(two - 1000) < 150, tostring(two))
      H.close(amp.multinomial(w, 2):sort(1):cpu(), { 2, 3 }, H.exact)
    end)
    it('exponential has its mean', function()
      local e = amp.empty({ 20000 }, { device = 'cuda' }):exponential_(2)
      assert.is_true(math.abs(e:mean():item() - 0.5) < 0.02 and e:amin():item() >= 0)
    end)
  end)
end)
