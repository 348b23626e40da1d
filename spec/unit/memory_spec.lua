--- Memory: 20,000 steps without collectgarbage beside 20 MB of other Lua data, frees, counts.
local amp = require 'amp'
local H = require 'spec.lib.helper'

-- A training loop of 20,000 steps in a process of its own; prints resident KB after steps 200 and on.
local loop = [[
  local other = {}
  for i = 1, 300000 do other[i] = { i } end -- some 20 MB of ordinary Lua data
  io.write('lua ', math.floor(collectgarbage 'count' / 1024), '\n')
  local function resident()
    local f = io.open '/proc/self/statm'
    local pages = tonumber(f:read('*a'):match '^%%d+ (%%d+)')
    f:close()
    return pages * 4
  end
  local nn, F = amp.nn, amp.nn.functional
  amp.manual_seed(1)
  local net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
  local opt = amp.optim.Adam(net:parameters(), { lr = 1e-3 })
  local scaler = amp.GradScaler { enabled = %s }
  local x, y = amp.randn(32, 64), amp.randint(1, 11, { 32 })
  local base, peak = nil, 0
  for step = 1, 20000 do
    local loss = amp.autocast({ enabled = %s, dtype = '%s' }, function() return F.cross_entropy(net(x), y) end)
    scaler:scale(loss):backward()
    scaler:step(opt)
    scaler:update()
    opt:zero_grad()
    if step == 200 then base = resident() elseif step > 200 and step %% 100 == 0 then peak = math.max(peak, resident()) end
  end
  io.write('base ', base, ' peak ', peak, ' live ', amp.memory().live, ' other ', #other, '\n')
]]

describe('20,000 training steps', function()
  for _, mode in ipairs { 'float32', 'float16' } do
    it('in ' .. mode .. ' leave resident memory flat after the first 200', function()
      local mixed = mode ~= 'float32'
      local out, status = H.child(loop:format(tostring(mixed), tostring(mixed), mixed and mode or 'bfloat16'), nil, 'OMP_NUM_THREADS=1')
      assert.equal(0, status, out)
      local base, peak = out:match 'base (%d+) peak (%d+)'
      base, peak = tonumber(base), tonumber(peak)
      assert.is_true(tonumber(out:match 'lua (%d+)') >= 15, out)
      assert.is_true(peak <= base * 1.1 + 8192, ('resident %d KB after 200 steps, up to %d KB later'):format(base, peak))
    end)
  end
end)

describe('memory', function()
  it('is counted: live, cached and peak bytes', function()
    local before = H.live()
    local t = amp.zeros(1000, 1000)
    assert.is_true(amp.memory().live - before >= 4e6)
    assert.is_true(amp.memory().peak >= amp.memory().live)
    t:free()
    assert.is_true(amp.memory().live - before < 4e6)
    assert.equal('number', type(amp.memory('cpu').cached))
  end)
  it('of a graph is given back by backward, node by node', function()
    local x = amp.zeros(1000, 100, { requires_grad = true })
    collectgarbage()
    local function build() -- handles of the inner tensors die with this function
      local h = x
      for _ = 1, 20 do h = (h * 2):tanh() end
      return h:sum()
    end
    local y = build()
    collectgarbage()
    local held = H.live()
    y:backward()
    assert.is_true(held - H.live() > 19 * 4e5 - 4e5, ('%d bytes held before, %d after'):format(held, H.live()))
  end)
  it('of a dropped graph is given back without backward', function()
    local x = amp.zeros(1000, 100, { requires_grad = true })
    local before = H.live()
    for _ = 1, 5 do local _ = (x * 2):tanh():sum() end
    assert.is_true(H.live() <= before + 4096)
  end)
  it('of a gradient from a 16-bit region stays at 16 bits until somebody looks', function()
    local w = amp.zeros(1000, 1000, { requires_grad = true })
    local x = amp.zeros(1, 1000)
    local before = H.live()
    amp.autocast({ dtype = 'bfloat16' }, function() return x:matmul(w) end):sum():backward()
    amp.clear_autocast_cache() -- the weight's cast
    local kept = H.live() - before
    assert.is_true(kept >= 2e6 and kept < 2.2e6, kept .. ' bytes')
    local g = w.grad
    kept = H.live() - before
    assert.equal('float32', g.dtype)
    assert.is_true(kept >= 4e6 and kept < 4.2e6, kept .. ' bytes')
  end)
  it('of a checkpointed block is that of its ends', function()
    local x = amp.zeros(1000, 100, { requires_grad = true })
    local function block(h)
      for _ = 1, 20 do h = (h * 2):tanh() end
      return h
    end
    local before = H.live()
    local y = amp.checkpoint(block, x)
    local kept = H.live() - before
    assert.is_true(kept < 3 * 4e5, kept .. ' bytes')
    y:sum():backward()
    assert.is_not_nil(x.grad)
  end)
  it('of an iteration is bounded by scope', function()
    local before = H.live()
    local peak = 0
    for _ = 1, 50 do
      amp.scope(function()
        local t = amp.zeros(1000, 100)
        for _ = 1, 10 do t = t + 1 end
        peak = math.max(peak, amp.memory().live)
      end)
    end
    assert.is_true(peak - before <= 12 * 4e5 + 65536)
    assert.is_true(amp.memory().live <= before + 65536)
  end)
  it('a loop of large temporaries is paced, beside 20 MB of Lua data', function()
    local out, status = H.child [[
      local other = {}
      for i = 1, 300000 do other[i] = { i } end
      for _ = 1, 5000 do local _ = amp.zeros(512, 512) + 1 end
      io.write('peak ', amp.memory().peak / 2 ^ 20, ' ', #other, '\n')]]
    assert.equal(0, status, out)
    assert.is_true(tonumber(out:match 'peak ([%d.]+)') < 700, out)
  end)
  it('a circle of hooks, functions and tensors does not leak', function()
    local before = H.live()
    for _ = 1, 20 do
      local x = amp.zeros(1000, { requires_grad = true })
      local f = amp.Function {
        forward = function(ctx, a)
          ctx:save_for_backward(a)
          return a * 2
        end,
        backward = function(ctx, g) return g * 2 + ctx.saved_tensors[1] * 0 end,
      }
      local y = f(x)
      y:register_hook(function(g) return x.requires_grad and g or nil end)
    end
    for _ = 1, 3 do
      H.live();
      (amp.zeros(1, { requires_grad = true }) * 1):backward()
    end
    assert.is_true(H.live() <= before + 8192, 'leaked ' .. (H.live() - before))
  end)
end)
