--- The cast cache: one cast for each weight, version and dtype, however many uses and regions; seen at once where the
-- weight changes in any way; no copy outlives its weight. AMP_SPEC_DEVICE names the device.
local ffi = require 'ffi'
local amp = require 'amp'
local core = require 'amp.ffi'
local H = require 'spec.lib.helper'
local nn = amp.nn
local C = core.C
if H.device then amp.set_default_device(H.device) end

local function live()
  jit.flush() -- traces hold what they were compiled for
  collectgarbage()
  collectgarbage()
  return tonumber(C.amp_memory(H.device and C.AMP_CUDA or C.AMP_CPU, 0).live)
end

local on_host = H.device and pending or it -- what writes through a pointer

local function casts(f, ...)
  local before = amp.counters().casts
  f(...)
  return amp.counters().casts - before
end

local function region(f, options) return amp.autocast(options or { dtype = 'bfloat16' }, f) end

-- a linear layer whose weight is all `v`, and what it makes of ones in a region
local function layer(v)
  local net = nn.Linear(4, 3, { bias = false })
  amp.no_grad(function() net.weight:fill_(v) end)
  return net
end
local x = amp.ones(2, 4)
local function use(net, options) return region(function() return net(x) end, options):float() end
local function gives(net, v, what) H.close(use(net):detach(), { 4 * v, 4 * v, 4 * v, 4 * v, 4 * v, 4 * v }, H.exact, what) end

describe('the cast of a weight', function()
  it('is made once for all regions, without an optimizer', function()
    local net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    local function run() return region(function() return net(x) end) end
    assert.equal(5, casts(run))
    assert.equal(1, casts(run)) -- the input
    assert.equal(1, casts(run))
    assert.equal(1, casts(function() amp.no_grad(run) end))
  end)
  it('is made once for a frozen parameter too, in no_grad and out of it', function()
    local net = layer(1)
    net.weight.requires_grad = false
    assert.equal(2, casts(use, net))
    assert.equal(1, casts(use, net))
    assert.equal(1, casts(function() amp.no_grad(function() for _ = 1, 1 do use(net) end end) end))
    local frozen = region(function() return net(x) end)
    assert.is_false(frozen.requires_grad)
  end)
  it('has history in a training use after an evaluating one', function()
    local net = layer(2)
    local a, b
    region(function()
      amp.no_grad(function() a = net(x) end)
      b = net(x)
    end)
    assert.is_false(a.requires_grad)
    b:sum():backward()
    H.close(net.weight.grad, { 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 }, H.exact)
  end)
  it('of a plain tensor without grad is made anew', function()
    local w = amp.ones(4, 4)
    local function run() return region(function() return amp.matmul(w, w) end) end
    assert.equal(1, casts(run))
    assert.equal(1, casts(run))
  end)
  it('counts what it serves', function()
    local net = layer(1)
    use(net)
    local before = amp.counters().cached_casts
    region(function() for _ = 1, 100 do net(x) end end)
    assert.equal(100, amp.counters().cached_casts - before)
  end)
  it('is not kept where cache_enabled is false', function()
    local net = layer(1)
    local off = { dtype = 'bfloat16', cache_enabled = false }
    assert.equal(2, casts(use, net, off))
    assert.equal(2, casts(use, net, off))
  end)
  it('goes when the cache is cleared', function()
    local net = layer(1)
    use(net)
    amp.clear_autocast_cache()
    assert.equal(2, casts(use, net))
  end)
end)

describe('a change of a weight is seen at once:', function()
  local changes = {
    ['in place'] = function(p) p:fill_(3) end,
    ['by a view'] = function(p) p[{ {}, {} }]:fill_(3) end,
    ['by an alias'] = function(p) p:detach():fill_(3) end,
    ['by copy_'] = function(p) p:copy_(amp.full({ 3, 4 }, 3)) end,
    ['by assignment'] = function(p) p[{ {}, {} }] = 3 end,
    ['by its storage'] = function(p) assert(C.amp_set_data(core.S, p, amp.full({ 3, 4 }, 3)) == 0) end,
    ['by the view it was made of'] = function(p) p:view(12):fill_(3) end,
  }
  for name, change in pairs(changes) do
    for _, frozen in ipairs { false, true } do
      it(name .. (frozen and ', frozen' or ''), function()
        local net = layer(1)
        net.weight.requires_grad = not frozen
        gives(net, 1)
        amp.no_grad(function() change(net.weight) end)
        gives(net, 3)
        region(function()
          net(x)
          amp.no_grad(function() net.weight:fill_(5) end)
          H.close(net(x):float():detach(), { 20, 20, 20, 20, 20, 20 }, H.exact)
        end)
      end)
    end
  end
  it('by load_state_dict', function()
    local net, other = layer(1), layer(3)
    gives(net, 1)
    net:load_state_dict(other:state_dict())
    gives(net, 3)
  end)
  on_host('through data_ptr, from the next region on', function()
    for _, frozen in ipairs { false, true } do
      local net = layer(1)
      net.weight.requires_grad = not frozen
      gives(net, 1)
      local p = ffi.cast('float *', net.weight:data_ptr())
      for v = 2, 4 do
        for i = 0, 11 do p[i] = v end
        gives(net, v)
      end
    end
  end)
  on_host('through data_ptr, under the plain switch', function()
    local net = layer(1)
    local p = ffi.cast('float *', net.weight:data_ptr())
    amp.enabled = true
    local ok, e = pcall(function()
      for v = 2, 4 do
        for i = 0, 11 do p[i] = v end
        assert.equal(4 * v, net(x):float():max():item())
      end
    end)
    amp.enabled = false
    assert(ok, e)
  end)
  it('by an optimizer', function()
    local net = layer(1)
    gives(net, 1)
    local opt = amp.optim.SGD(net:parameters(), { lr = 1 })
    use(net):sum():backward()
    opt:step()
    gives(net, -1)
  end)
  it('and of what an op gave away, not', function()
    local net = layer(1)
    net.weight.requires_grad = false
    local given = region(function() return amp.einsum('ij->ji', net.weight) end)
    given:fill_(7)
    gives(net, 1)
  end)
end)

describe('memory of casts', function()
  it('goes with the weight', function()
    collectgarbage()
    collectgarbage()
    local before = live()
    local net = nn.Linear(256, 256)
    net.weight.requires_grad = false
    region(function() return net(amp.ones(1, 256)) end)
    assert.is_true(live() >= before + 256 * 256 * 6)
    net = nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
    assert.is_true(live() < before + 65536, live() - before)
  end)
  it('is given back when an allocation fails', function()
    local net = nn.Linear(256, 256)
    region(function() return net(amp.ones(1, 256)) end)
    collectgarbage()
    local before = live()
    C.amp_fail_allocation(3) -- a tensor, its storage, its block
    local t = amp.empty(1024, 1024)
    C.amp_fail_allocation(-1)
    assert.is_true(live() - t:numel() * 4 <= before - 256 * 256 * 2 + 8192)
    assert.equal(3, casts(function() region(function() return net(amp.ones(1, 256)) end) end))
  end)
  it('is flat in a loop of regions', function()
    local net = nn.Linear(64, 64)
    local function run() amp.no_grad(function() region(function() return net(amp.ones(1, 64)) end) end) end
    for _ = 1, 50 do run() end
    collectgarbage()
    local before = live()
    for _ = 1, 500 do run() end
    collectgarbage()
    assert.is_true(live() <= before + 65536)
  end)
  it('keeps what a graph saved', function()
    local net = layer(1)
    net.weight.requires_grad = false
    local a = amp.ones(2, 4)
    a.requires_grad = true
    local y = region(function() return net(a) end)
    net.weight:fill_(2)
    gives(net, 2)
    y:float():sum():backward() -- the weight as it was
    H.close(a.grad, { 3, 3, 3, 3, 3, 3, 3, 3 }, H.exact)
  end)
end)
