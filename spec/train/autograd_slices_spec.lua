--- Autograd: gradients of slices and of views by strides.
local amp = require 'amp'
local H = require 'spec.lib.helper'

local function eq(t, values) H.close(t, values, H.exact) end

describe('gradients of slices', function()
  -- the recorded derivative (create_graph) adds whole tensors; the engine adds in place
  local function gradient(create, dtype)
    amp.manual_seed(3)
    local w = amp.randn(4, 5, 6, { dtype = dtype }):requires_grad_()
    local x, loss = w * 2, amp.zeros(1)
    local function use(t) loss = loss + (t * amp.randn(unpack(t:size()))):sum():float() end
    for i = 1, 4 do use(x[i]) end
    use(x:narrow(2, 2, 3))
    use(x:narrow(2, 1, 4))
    use(x[{ {}, { 1, 5, 2 } }])
    use(x:diagonal(0, 2, 3))
    use(x:transpose(1, 3):select(2, 3))
    use(x)
    use(x:view(-1))
    use(x:unfold(3, 3, 1))
    use(x[2])
    return amp.grad(loss:sum(), { w }, { create_graph = create })[1]
  end
  for _, dtype in ipairs { 'float32', 'float64', 'float16' } do
    it('are those of the recorded derivative, in ' .. dtype, function()
      local g, want = gradient(false, dtype):double(), gradient(true, dtype):double()
      assert.is_true(want:abs():max():item() > 10)
      assert.is_true((g - want):abs():max():item() <= (dtype == 'float16' and 0.02 or 1e-5))
    end)
  end
  it('of n slices touch each element once, not n times', function()
    local n = 64
    local w = amp.ones(n, 1000):requires_grad_()
    local x, loss = w * 1, amp.zeros(1)
    for i = 1, n do loss = loss + (x[i] * i):sum() end
    local most = 0
    local before = H.live()
    x:register_hook(function() most = math.max(most, H.live() - before) end)
    loss:sum():backward()
    assert.equal(7, w.grad[7][3]:item())
    assert.is_true(most > 0 and most < 3 * n * 1000 * 4, tostring(most))
  end)
  it('leave what others hold alone', function()
    local w = amp.ones(2, 2):requires_grad_()
    local x, seen = w * 1, nil
    x:register_hook(function(g) seen = g end)
    local y = x:view(4)
    local loss = (y * amp.tensor { 1, 2, 3, 4 }):sum() + (x[1] * 10):sum()
    loss:backward()
    eq(w.grad:view(-1), { 11, 12, 3, 4 })
    eq(seen:view(-1), { 11, 12, 3, 4 })
  end)
end)

describe('slices of a tensor', function()
  it('keeps hooks of the other slices when one has had its backward', function()
    for n = 2, 3 do
      local x, calls = amp.ones(n, 2):requires_grad_(), 0
      local slices, want = x:unbind(1), {}
      for i = 1, n do
        want[2 * i - 1], want[2 * i] = i + 1, i + 1
        slices[i]:register_hook(function(g) calls = calls + 1 return g * (i + 1) end)
      end
      for i = 1, n do slices[i]:sum():backward() end
      assert.equal(n, calls)
      H.close(x.grad, want, H.exact)
      local e = H.fails(function() slices[1]:sum():backward() end)
      assert.is_not_nil(tostring(e):find('freed by an earlier backward; pass retain_graph', 1, true), tostring(e))
      assert.is_not_nil(tostring(H.fails(function() slices[1]:register_hook(print) end)):find('freed by an earlier', 1, true))
    end
  end)

  it('have a backward each, however many they are', function()
    for n = 1, 4 do
      local x = amp.ones(n, 2):requires_grad_()
      local slices, want = x:unbind(1), {}
      for i = 1, n do
        (slices[i] * i):sum():backward()
        want[2 * i - 1], want[2 * i] = i, i
      end
      eq(x.grad:view(-1), want)
      local y = (x * x):unbind(1)
      y[1]:sum():backward()
      if n > 1 then H.fails(function() y[n]:sum():backward() end, 'mul', 'retain_graph') end
    end
  end)
end)

describe('gradients of attention over the slices of one tensor', function()
  local devices = amp.cuda.is_available() and { 'cpu', 'cuda' } or { 'cpu' }
  local cuts = {
    unbind = function(x) return x:unbind(3) end,
    narrow = function(x)
      local list = {}
      for i = 1, 3 do list[i] = x:narrow(3, i, 1):squeeze(3) end
      return list
    end,
    chunk = function(x)
      local list = {}
      for i, t in ipairs(x:view(2, 5, 48):chunk(3, -1)) do list[i] = t:view(2, 5, 2, 8) end
      return list
    end,
  }
  local function gradient(device, create, use, cut)
    amp.manual_seed(3)
    local w = amp.randn(2, 5, 3, 2, 8, { dtype = device == 'cpu' and 'float64' or 'float32', device = device }):requires_grad_()
    local x = w * 1
    local part = cuts[cut](x)
    local q, k, v = unpack(part)
    local held = {}
    if use then q, k, v = use(q, k, v, held, x) end
    local y = amp.nn.functional.scaled_dot_product_attention(q:transpose(2, 3), k:transpose(2, 3), v:transpose(2, 3), { is_causal = true })
    local loss = (y * y):sum()
    local g = amp.grad(loss, { w }, { create_graph = create })[1]
    return g, held, x
  end
  local ways = {
    ['as they are'] = false,
    ['one of them used twice'] = function(q, k, v) return q * 2 + q, k, v end,
    ['one of them left out'] = function(q, k, v) return q, k:detach(), v end,
    ['one of them changed in place'] = function(q, k, v) k:mul_(2) return q, k, v end,
    ['in another order'] = function(q, k, v) return v, k, q end,
    ['one of them beside others of the whole'] = function(q, k, v, _, x) return q + x:mean(3), k, v end,
    ['with hooks that hold and replace them'] = function(q, k, v, held)
      q:register_hook(function(g) held[1] = g held[2] = g:clone() end)
      v:register_hook(function(g) return g * 3 end)
      return q, k, v
    end,
  }
  for name, use in pairs(ways) do
    it('are those of the recorded derivative, ' .. name, function()
      for _, device in ipairs(devices) do
        for cut in pairs(cuts) do
          local want = gradient(device, true, use, cut)
          local g, held = gradient(device, false, use, cut)
          assert.is_true(want:abs():max():item() > 1)
          assert.is_true((g - want):abs():max():item() <= (device == 'cpu' and 1e-12 or 1e-4), cut)
          if held[1] then assert.is_true(held[1]:equal(held[2])) end
        end
      end
    end)
  end
  it('are made in place', function()
    amp.manual_seed(3)
    local slices = {
      unbind = function(x) return x:view(2, 100, 3, 2, 64):unbind(3) end,
      chunk = function(x)
        local list = {}
        for i, t in ipairs(x:chunk(3, 3)) do list[i] = t:view(2, 100, 2, 64) end
        return list
      end,
      narrow = function(x)
        local list = {}
        for i = 1, 3 do list[i] = x:narrow(3, 128 * i - 127, 128):view(2, 100, 2, 64) end
        return list
      end,
    }
    for name, way in pairs(slices) do
      local w = amp.randn(2, 100, 3 * 2 * 64):requires_grad_()
      local x = w * 1
      local q, k, v = unpack(way(x))
      local loss = amp.nn.functional.scaled_dot_product_attention(q:transpose(2, 3), k:transpose(2, 3), v:transpose(2, 3)):sum()
      local held, most, gq, gx = H.live(), nil, nil, nil
      q:register_hook(function(g) gq = g end)
      x:register_hook(function(g)
        most, gx = H.live() - held, g
      end)
      loss:backward()
      assert.is_true(gx:shares_storage(gq), name)
      assert.is_true(most > 0 and most < 1.4 * w:numel() * 4, name .. ' ' .. tostring(most / (w:numel() * 4)))
    end
  end)
end)

describe('an in-place product on a view of a single value', function()
  for _, shape in ipairs { {}, { 1 }, { 1, 1 } } do
    it('is differentiated, whatever it is a view of, with ' .. #shape .. ' dimensions', function()
      for _, dtype in ipairs { 'float32', 'float64', 'bfloat16' } do
        local w = amp.full(shape, 2, { dtype = dtype, requires_grad = true })
        local f = amp.full(shape, 5, { dtype = dtype, requires_grad = true })
        for _, other in ipairs { 3, amp.full({}, 3, { dtype = dtype }), f } do
          w.grad, f.grad = nil, nil
          local x = w * 2
          x:view(1, 1):mul_(other)
          x:sum():backward()
          eq(w.grad:view(-1), { other == f and 10 or 6 })
          if other == f then eq(f.grad:view(-1), { 4 }) end
        end
      end
    end)
  end
  it('with a loss scale leaves a scaled gradient behind, with another number a plain one', function()
    local function left(other)
      local scaler = amp.GradScaler { init_scale = 1024 }
      local w = amp.full({ 1 }, 2, { requires_grad = true })
      local opt = amp.optim.SGD({ w }, { lr = 1 })
      local x = w * 2
      x:view(1):mul_(other == 'scale' and scaler:get_scale() or other)
      x:sum():backward()
      local ok = pcall(function()
        scaler:unscale_(opt)
        scaler:step(opt)
      end)
      return ok, w:item()
    end
    local ok, w = left 'scale'
    assert.is_true(ok and w == 0, tostring(w))
    assert.is_false((left(3)))
  end)
end)

describe('as_strided', function()
  it('is differentiable where its input is in C order, and says so where it is not', function()
    local a = amp.tensor({ { 1, 2, 3 }, { 4, 5, 6 } }, { requires_grad = true })
    local b = a * 1
    b:as_strided({ 2 }, { 2 }):sum():backward()
    eq(a.grad:view(-1), { 1, 0, 1, 0, 0, 0 })
    H.fails(function() return (a * 1):t():as_strided({ 2 }, { 1 }) end, 'as_strided', 'C order', 'contiguous()')
    amp.no_grad(function() assert.equal(2, a:t():as_strided({ 2 }, { 1 }):numel()) end)
  end)
end)

describe('gradients of pieces beside each other', function()
  local function ones(n) return amp.ones({ n }, { dtype = 'float64' }) end
  local ways = {
    ['all of a tensor'] = function(x) return amp.cat({ x:narrow(1, 1, 2), x:narrow(1, 3, 4) }, 1) end,
    ['the last one missing'] = function(x) return amp.cat({ x:narrow(1, 1, 2), ones(4) }, 1) end,
    ['one between missing'] = function(x) return amp.cat({ x:narrow(1, 1, 2), ones(2), x:narrow(1, 5, 2) }, 1) end,
    ['overlapping'] = function(x) return amp.cat({ x:narrow(1, 1, 4), x:narrow(1, 3, 4) }, 1) end,
    ['in another order'] = function(x) return amp.cat({ x:narrow(1, 3, 4), x:narrow(1, 1, 2) }, 1) end,
    ['one out of place'] = function(x) return amp.cat({ x:narrow(1, 1, 2), x:narrow(1, 3, 2) * 3, x:narrow(1, 5, 2) }, 1) end,
    ['one twice'] = function(x) return amp.cat({ x:narrow(1, 1, 2), x:narrow(1, 1, 2), x:narrow(1, 5, 2) }, 1) end,
    ['with another of the whole'] = function(x) return amp.cat({ x:narrow(1, 1, 3), x:narrow(1, 4, 3) }, 1) + x end,
    ['of a second dimension'] = function(x)
      local a = x:view(2, 3)
      return amp.cat({ a:narrow(2, 1, 1), a:narrow(2, 2, 2) }, 2)
    end,
  }
  for name, way in pairs(ways) do
    it('are those of the recorded derivative: ' .. name, function()
      local v = amp.randn({ 6 }, { dtype = 'float64' }):requires_grad_()
      local got = amp.grad(way(v * 2):square():sum(), { v })[1]
      local want = amp.grad(way(v * 2):square():sum(), { v }, { create_graph = true })[1]
      H.close(got, want:detach())
    end)
  end
  it('leave what they came from as it is', function()
    local w, g = amp.randn(2, 3):requires_grad_(), amp.ones(6)
    for _ = 1, 2 do
      amp.cat(w:view(6):chunk(3, 1), 1):backward(g)
      w.grad:add_(1)
      H.same(g, amp.ones(6))
    end
  end)
end)
