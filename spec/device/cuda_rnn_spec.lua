--- Recurrent nets on the CUDA plug-in, run by the emulator as spec/device/cuda_spec.lua's cases are.
local assert = require 'luassert'
local H = require 'spec.lib.helper'

local E = require 'spec.device.emulated'
local case, child = E.cases(it, pending), E.child

describe('recurrent nets on a GPU', function()
  case('give what they give on the CPU', function()
    local out = child(("arg = { 'tiny' } dofile '%s/spec/device/gpu/rnn.lua'"):format(H.root))
    assert.is_truthy(out:match '%d+ passed, 0 failed', out)
  end)

  -- launches of a training step of a cell that runs for so many time steps
  local function launches(kind, steps)
    local out = child(([[
local kind, T = '%s', %d
local nn, F = amp.nn, amp.nn.functional
local net = nn[kind](16, 16):to 'cuda'
local x = amp.randn(T, 4, 16, { device = 'cuda' })
local function step()
  local h, c, outs = amp.zeros(4, 16, { device = 'cuda' }), amp.zeros(4, 16, { device = 'cuda' }), {}
  for t = 1, T do
    if kind == 'LSTMCell' then h, c = net(x[t], { h, c }) else h = net(x[t], h) end
    outs[t] = h
  end
  return F.mse_loss(amp.stack(outs), x)
end
local region = amp.autocast.wrap(step, { dtype = 'float16' })
region():backward()
io.stderr:write 'begin\n'
region():backward()
io.stderr:write 'end\n'
]]):format(kind, steps), 'AMP_EMULATOR_TRACE=1')
    local n = 0
    for _ in out:match('begin\n(.*)end\n'):gmatch 'launch ' do n = n + 1 end
    return n
  end

  for _, kind in ipairs { 'LSTMCell', 'GRUCell', 'RNNCell' } do
    case(('%s takes four launches for a time step: cast, forward; backward, the state\'s gradient'):format(kind), function()
      assert.equal(4 * 4, launches(kind, 6) - launches(kind, 2))
    end)
  end

  -- which kernels the steps of a layer took, forward and back: all in one launch (on the emulator one a step, two backward), or one each
  local function taken(way, kind, dtype)
    local out = child(([[
local core, nn = require 'amp.ffi', amp.nn
assert(core.C.amp_device_set(core.S, 1, 'rnn', %d) >= 0)
local net = nn['%s'](16, 64):to('%s'):to 'cuda'
local y = (net(amp.randn(3, 4, 16):to('%s'):to 'cuda'))
y:sum():backward()
]]):format(way, kind, dtype or 'float16', dtype or 'float16'), 'AMP_EMULATOR_TRACE=1')
    local function count(name) return select(2, out:gsub('launch %(' .. name, '')) end
    return { ahead = count 'ahead_all', behind = count 'behind_all', ahead_step = count 'ahead_whole', behind_step = count 'behind_whole' }
  end

  case('a layer takes one launch for all steps where that is asked for, and one a step where that is', function()
    for _, kind in ipairs { 'LSTM', 'GRU', 'RNN' } do
      assert.same({ ahead = 3, behind = 1 + 2 * 3, ahead_step = 0, behind_step = 0 }, taken(3, kind))
      assert.same({ ahead = 0, behind = 0, ahead_step = 3, behind_step = 2 }, taken(2, kind))
    end
  end)
  case('as it is left to choose, gates forward take one launch, narrow layers backward and simple nets one a step', function()
    assert.same({ ahead = 3, behind = 0, ahead_step = 0, behind_step = 2 }, taken(1, 'LSTM'))
    assert.same({ ahead = 0, behind = 0, ahead_step = 3, behind_step = 2 }, taken(1, 'RNN'))
  end)
  case('in float32 all steps take one launch, both ways', function()
    for _, kind in ipairs { 'LSTM', 'GRU', 'RNN' } do
      assert.same({ ahead = 3, behind = 1 + 2 * 3, ahead_step = 0, behind_step = 0 }, taken(1, kind, 'float32'))
      assert.same({ ahead = 0, behind = 0, ahead_step = 0, behind_step = 0 }, taken(0, kind, 'float32'))
    end
  end)
  case('an infinite gradient stays infinite on its way through the steps, as on the CPU', function()
    local out = child([[
local core, nn = require 'amp.ffi', amp.nn
local state = nn.RNN(16, 64, { nonlinearity = 'relu' }):to('float16'):state_dict()
for name, t in pairs(state) do state[name] = t:abs() + 0.01 end
local x, h, g = amp.rand(3, 4, 16):to 'float16', amp.rand(1, 4, 64):to 'float16', amp.zeros(3, 4, 64):to 'float16'
g[3][2][5] = 1 / 0
local function infinite(device)
  local net = nn.RNN(16, 64, { nonlinearity = 'relu' }):to('float16'):to(device)
  net:load_state_dict(state)
  local h0 = h:to(device):clone():requires_grad_(true)
  net(x:to(device), h0):backward(g:to(device))
  return amp.isinf(h0.grad:cpu():to 'float32'):sum():item()
end
print('cpu', infinite 'cpu')
for way = 0, 3 do
  assert(core.C.amp_device_set(core.S, 1, 'rnn', way) >= 0)
  print(way, infinite 'cuda')
end
]])
    assert.truthy(out:find('cpu\t64\n0\t64\n1\t64\n2\t64\n3\t64', 1, true), out)
  end)
  case('float32 layers give what is finite on the CPU where a state or a weight is infinite or nearly so', function()
    local out = child([[
local nn, inf, most = amp.nn, 1 / 0, 3.4028234e38
for _, c in ipairs { { 'LSTM', inf }, { 'LSTM', most }, { 'LSTM', nil, most }, { 'RNN', nil, inf }, { 'GRU', inf } } do
  local kind, state, weight = c[1], c[2], c[3]
  for _, device in ipairs { 'cpu', 'cuda' } do
    amp.manual_seed(1)
    local net, x, h = nn[kind](64, 64), amp.rand(3, 3, 64) - 0.5, amp.rand(1, 3, 64) - 0.5
    if state then h[1][1][1] = state end
    if weight then amp.no_grad(function() net.weight_hh_l0[1][1] = weight end) end
    net:to(device)
    local first = kind == 'LSTM' and { h:to(device), amp.zeros(1, 3, 64, { device = device }) } or h:to(device)
    print(kind, device, amp.isnan((net(x:to(device), first)):detach():cpu()):sum():item())
  end
end
]])
    local n = 0
    for kind, there, here in out:gmatch '(%w+)\tcpu\t(%d+)\n%w+\tcuda\t(%d+)' do
      n = n + 1
      assert.equal(there, here, kind)
    end
    assert.equal(5, n, out)
  end)
  case('gradients of a loss that is masked wholly are zeros, exactly', function()
    local out = child([[
local nn = amp.nn
for _, kind in ipairs { 'LSTM', 'GRU', 'RNN' } do
  local net = nn[kind](64, 64):to 'cuda'
  local h = (amp.rand(1, 3, 64) - 0.5):to('cuda'):requires_grad_(true)
  local y = (net((amp.rand(4, 3, 64) - 0.5):to 'cuda', kind == 'LSTM' and { h, amp.zeros(1, 3, 64, { device = 'cuda' }) } or h));
  (y * 0):sum():backward()
  local other = h.grad:ne(0):sum():item()
  for _, p in ipairs(net:parameters()) do other = other + p.grad:ne(0):sum():item() end
  print('others', other)
end
]])
    assert.equal(3, select(2, out:gsub('others\t0\n', '')), out)
  end)
end)
