--- nn: modules as classes with registered parts, state dicts, containers, conversion, errors. Layers: nn_layers_spec.lua.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn = amp.nn

local function eq(t, values) H.close(t, values, H.exact) end
local function names(iterator)
  local list = {}
  for name in iterator do list[#list + 1] = name == '' and '.' or tostring(name) end
  return table.concat(list, ' ')
end
local function keys(t)
  local list = {}
  for k in pairs(t) do list[#list + 1] = k end
  table.sort(list)
  return table.concat(list, ' ')
end

local Net = nn.Module:extend('Net')
function Net:init(width)
  self.first = nn.Linear(3, width)
  self.norm = nn.BatchNorm1d(width)
  self.scale = amp.ones(1, { requires_grad = true })
  self.note = 'kept, not registered'
  self.last = nn.Linear(width, 2)
end
function Net:forward(x) return self.last(self.norm(self.first(x)):relu()) * self.scale end

-- -- Registration ------------------------------------------------------------

describe('Module', function()
  it('registers modules and tensors that require grad, in the order of assignment', function()
    local net = Net(4)
    assert.equal('scale first.weight first.bias norm.weight norm.bias last.weight last.bias', names(net:named_parameters()))
    assert.equal(7, #net:parameters())
    assert.equal('first norm last', names(net:named_children()))
    assert.equal('. first norm last', names(net:named_modules()))
    assert.equal(3, #net:children())
    assert.equal(4, #net:modules())
    assert.is_true(net:modules()[1] == net)
    assert.equal('norm.running_mean norm.running_var norm.num_batches_tracked', names(net:named_buffers()))
    assert.equal(3, #net:buffers())
    assert.equal('kept, not registered', net.note)
  end)
  it('leaves plain tensors, numbers, functions and tables as fields', function()
    local net = nn.Module:extend('Plain')()
    net.a, net.b, net.c, net.d, net.e = amp.ones(2), 3, print, { nn.Linear(1, 1) }, false
    assert.equal(0, #net:parameters())
    assert.equal(0, #net:children())
    assert.equal('', keys(net:state_dict()))
    assert.is_false(net.e)
    assert.is_nil(net.nothing)
  end)
  it('follows reassignment: a field is what was assigned last', function()
    local net = Net(4)
    net.first = nn.Linear(3, 4, false)
    assert.equal('scale first.weight norm.weight norm.bias last.weight last.bias', names(net:named_parameters()))
    net.first = nil
    assert.equal('norm last', names(net:named_children()))
    assert.is_nil(net.first)
    net.norm = 5
    assert.equal('last', names(net:named_children()))
    net.scale = nil
    assert.equal('last.weight last.bias', names(net:named_parameters()))
    net.last.bias = nil
    assert.equal('last.weight', names(net:named_parameters()))
    assert.same({ 2, 2 }, H.shape(net.last(amp.ones(2, 4))))
  end)
  it('counts what is shared once; a state dict has it under each name', function()
    local net = nn.Module:extend('Tied')()
    net.a = nn.Linear(2, 2)
    net.b = nn.Linear(2, 2)
    net.b.weight = net.a.weight
    net.again = net.a
    assert.equal('a.weight a.bias b.bias', names(net:named_parameters()))
    assert.equal('. a b', names(net:named_modules()))
    assert.equal('a.bias a.weight again.bias again.weight b.bias b.weight', keys(net:state_dict()))
  end)
  it('classes derive from classes; methods, init and super are inherited', function()
    local A = nn.Module:extend('A')
    function A:init(n) self.n = n end
    function A.forward(_, x) return x + 1 end
    function A.hello() return 'A' end
    local B = A:extend('B')
    function B:init(n) B.super.init(self, n * 2) end
    function B:forward(x) return B.super.forward(self, x) * 10 end
    local b = B(4)
    assert.equal(8, b.n)
    assert.equal('A', b:hello())
    assert.equal(50, b(4))
    assert.equal(50, b:forward(4))
    assert.is_true(b:is(B) and b:is(A) and b:is(nn.Module))
    assert.is_false(b:is(nn.Linear))
    assert.is_false(A(1):is(B))
    assert.equal('B()', tostring(b))
    -- instances don't share fields
    local c = B(1)
    c.extra = 1
    assert.is_nil(b.extra)
  end)
  it('forward takes and gives any number of values, nils among them', function()
    local M = nn.Module:extend('M')
    function M.forward(_, ...) return select('#', ...), ... end
    assert.same({ 3, nil, nil, 7 }, { M()(nil, nil, 7) })
    assert.same({ 0 }, { M()() })
    local Empty = nn.Module:extend('Empty')
    function Empty.forward() end
    assert.equal(0, select('#', Empty()()))
  end)
  it('says what is missing or wrong', function()
    H.fails_here(function() nn.Module:extend('Empty')()(1) end, 'Empty', 'forward')
    H.fails_here(function() nn.Module:extend() end, 'name')
    H.fails_here(function() return nn.Linaer end, 'Linaer', "'Linear'")
    local net = Net(2)
    H.fails_here(function() net:register_buffer('x', 5) end, 'x', 'number')
    H.fails_here(function() net:register_buffer(1, amp.ones(1)) end, 'name')
    H.fails_here(function() net:register_buffer('x', amp.ones(1), { persist = true }) end, 'persist', 'persistent')
    H.fails_here(function() net:register_parameter('x', 5) end, 'x', 'number')
    H.fails_here(function() net:register_parameter('x', amp.zeros(1, { dtype = 'int64' })) end, 'int64')
    H.fails_here(function() net:register_parameter('a.b', amp.zeros(1)) end, 'a.b', 'dot')
    H.fails_here(function() net:register_buffer('a.b', amp.zeros(1)) end, 'a.b', 'dot')
    assert.equal('scale first.weight first.bias norm.weight norm.bias last.weight last.bias', names(net:named_parameters()))
  end)
  it('a field of any name is a field', function()
    local net = nn.Module:extend('Odd')()
    net._values, net._names, net._kinds, net._hooks, net._count = 1, 2, 3, 4, 5
    net.layer = nn.Linear(1, 1)
    assert.same({ 1, 2, 3, 4, 5 }, { net._values, net._names, net._kinds, net._hooks, net._count })
    assert.equal('layer.weight layer.bias', names(net:named_parameters()))
    local row = nn.Sequential(nn.ReLU())
    row._count = 7
    eq(row(amp.tensor { -1, 2 }), { 0, 2 })
  end)
  it('register_parameter makes the tensor require grad; a buffer field stays a buffer', function()
    local net = nn.Module:extend('R')()
    net:register_parameter('w', amp.ones(2)):register_buffer('b', amp.zeros(2)):register_buffer('later', nil)
    assert.is_true(net.w.requires_grad)
    net.b = amp.ones(2)
    net.later = amp.ones(1)
    assert.equal('w', names(net:named_parameters()))
    assert.equal('b later', names(net:named_buffers()))
    net:register_buffer('passing', amp.zeros(2), { persistent = false })
    assert.equal('b later passing', names(net:named_buffers()))
    assert.equal('b later w', keys(net:state_dict()))
  end)
  it('apply goes children first and gives the module back', function()
    local order = {}
    local net = Net(2)
    assert.is_true(net:apply(function(m) order[#order + 1] = m.__name end) == net)
    assert.equal('nn.Linear nn.BatchNorm1d nn.Linear Net', table.concat(order, ' '))
  end)
  it('train and eval set the flag everywhere', function()
    local net = Net(2)
    assert.is_true(net.training and net.norm.training)
    assert.is_true(net:eval() == net)
    assert.is_true(net.training == false and net.norm.training == false)
    assert.is_true(net:train() == net)
    assert.is_true(net.training and net.last.training)
    net:train(false)
    assert.is_false(net.norm.training)
  end)
  it('zero_grad and clear_grad set gradients to nil, or fill them', function()
    local net = Net(2)
    net(amp.ones(3, 3)):sum():backward()
    local held = net.last.bias.grad
    assert.is_true(net:zero_grad { set_to_none = false } == net)
    eq(net.last.bias.grad, { 0, 0 })
    net(amp.ones(3, 3)):sum():backward()
    net:zero_grad()
    for _, p in ipairs(net:parameters()) do assert.is_nil(p.grad) end
    assert.equal(2, held:numel())
    net(amp.ones(3, 3)):sum():backward()
    net:clear_grad()
    assert.is_nil(net.scale.grad)
    H.fails_here(function() net:zero_grad { set_to_nil = true } end, 'set_to_nil', 'set_to_none')
  end)
  it('requires_grad_ freezes and thaws', function()
    local net = Net(2)
    net:requires_grad_(false)
    assert.is_false(net(amp.ones(3, 3)).requires_grad)
    assert.equal(7, #net:parameters())
    net:requires_grad_()
    assert.is_true(net(amp.ones(3, 3)).requires_grad)
  end)
  it('hooks see, and may replace, arguments and results', function()
    local net = nn.Linear(1, 1)
    net:load_state_dict { weight = amp.tensor { { 2 } }, bias = amp.tensor { 1 } }
    local seen = {}
    local before = net:register_forward_pre_hook(function(m, x)
      seen[#seen + 1] = m
      return x * 10
    end)
    local after = net:register_forward_hook(function(_, args, y)
      eq(args[1], { 10 })
      return y + 0.5
    end)
    eq(net(amp.tensor { { 1 } }), { 21.5 })
    eq(nn.Sequential(net)(amp.tensor { { 1 } }), { 21.5 })
    assert.is_true(seen[1] == net)
    before:remove()
    after:remove()
    eq(net(amp.tensor { { 1 } }), { 3 })
    assert.equal(2, #seen)
    H.fails_here(function() net:register_forward_hook(5) end, 'function', 'number')
  end)
  it('a hook that throws leaves the module as it was', function()
    local net, mine = nn.ReLU(), {}
    local hook = net:register_forward_hook(function() error(mine) end)
    local ok, e = pcall(net, amp.ones(1))
    assert.is_false(ok)
    assert.is_true(e == mine)
    hook.remove()
    eq(net(amp.ones(1)), { 1 })
  end)
end)

-- -- Printing ----------------------------------------------------------------

describe('printing', function()
  it('shows the tree with names and settings', function()
    local net = nn.Sequential(nn.Conv2d(1, 8, 3, { padding = 1 }), nn.ReLU(), nn.Sequential(nn.Flatten(), nn.Linear(8, 2, false)))
    assert.equal([[
nn.Sequential(
  (1): nn.Conv2d(1 -> 8, 3x3, padding 1x1)  80 parameters
  (2): nn.ReLU()
  (3): nn.Sequential(
    (1): nn.Flatten()
    (2): nn.Linear(8 -> 2, no bias)  16 parameters
  )  16 parameters
)  96 parameters]], tostring(net))
    assert.equal([[
Net(
  (scale): 1  1 parameter
  (first): nn.Linear(3 -> 4)  16 parameters
  (norm): nn.BatchNorm1d(4)  8 parameters
  (last): nn.Linear(4 -> 2)  10 parameters
)  35 parameters]], tostring(Net(4)))
  end)
  it('counts shared parameters once, and says which are frozen', function()
    local one = nn.Linear(2, 2)
    local net = nn.Sequential(one, nn.ReLU(), one, nn.Linear(2, 1))
    net[4]:requires_grad_(false)
    assert.equal([[
nn.Sequential(
  (1): nn.Linear(2 -> 2)  6 parameters
  (2): nn.ReLU()
  (3): nn.Linear(2 -> 2)  6 parameters
  (4): nn.Linear(2 -> 1)  3 parameters, frozen
)  9 parameters, 3 of them frozen]], tostring(net))
  end)
  it('puts equal neighbours on one line, and leaves out the middle of a long list', function()
    local list = nn.ModuleList()
    for _ = 1, 12 do list:add(nn.Sequential(nn.Linear(2, 2), nn.ReLU())) end
    list:add(nn.Linear(2, 1))
    assert.equal([[
nn.ModuleList(
  (1-12): 12 x nn.Sequential(
    (1): nn.Linear(2 -> 2)  6 parameters
    (2): nn.ReLU()
  )  6 parameters each
  (13): nn.Linear(2 -> 1)  3 parameters
)  75 parameters]], tostring(list))
    local long = nn.Sequential()
    for i = 1, 1000 do long:add(nn.Linear(i, 1)) end
    local text = tostring(long)
    local _, n = text:gsub('\n', '\n')
    assert.is_true(n < 50, n .. ' lines')
    assert.is_true(text:find('... 970 more', 1, true) ~= nil, text)
    assert.is_true(text:find('(1000): nn.Linear(1000 -> 1)', 1, true) ~= nil, text)
  end)
  it('of a module that contains itself comes to an end', function()
    local net = Net(4)
    net.again = net
    assert.is_true(tostring(net):find('(again): Net(...)', 1, true) ~= nil, tostring(net))
  end)
  it('shows every kind of layer on one line', function()
    for made, text in pairs {
      ['nn.Conv2d(2, 4, {1, 3}, {stride = 2, dilation = {1, 2}, groups = 2, bias = false})'] =
        'nn.Conv2d(2 -> 4, 1x3, stride 2x2, dilation 1x2, groups 2, no bias)',
      ['nn.MaxPool2d(2)'] = 'nn.MaxPool2d(2x2)',
      ['nn.MaxPool2d(3, {stride = 2, padding = 1})'] = 'nn.MaxPool2d(3x3, stride 2x2, padding 1x1)',
      ['nn.Dropout(0.25)'] = 'nn.Dropout(0.25)',
      ['nn.LayerNorm{2, 3}'] = 'nn.LayerNorm(2x3)',
      ['nn.Embedding(5, 3)'] = 'nn.Embedding(5 x 3)',
      ['nn.Softplus(2)'] = 'nn.Softplus(beta 2)',
      ['nn.Softmax(1)'] = 'nn.Softmax(dim 1)',
      ["nn.GELU('tanh')"] = 'nn.GELU(approximate tanh)',
      ["nn.MSELoss{reduction = 'sum'}"] = 'nn.MSELoss(sum)',
      ['nn.CrossEntropyLoss()'] = 'nn.CrossEntropyLoss()',
      ['nn.ModuleDict{b = nn.ReLU(), a = nn.Tanh()}'] = 'nn.ModuleDict(\n  (a): nn.Tanh()\n  (b): nn.ReLU()\n)',
      ['nn.ModuleList{nn.ReLU()}'] = 'nn.ModuleList(\n  (1): nn.ReLU()\n)',
    } do
      assert.equal(text, tostring(loadstring('local nn = ... return ' .. made)(nn)))
    end
  end)
  it('a module that contains itself ends in an error, not a crash', function()
    local net = Net(2)
    net.me = net
    assert.equal(7, #net:parameters())
    assert.is_string(keys(net:state_dict()))
    assert.is_true(pcall(net.train, net))
    pcall(tostring, net)
    pcall(net.apply, net, function() end)
  end)
end)

-- -- State -------------------------------------------------------------------

describe('state_dict', function()
  it('names parameters and buffers, detached, sharing the module\'s memory', function()
    local net = Net(2)
    local state = net:state_dict()
    assert.equal('first.bias first.weight last.bias last.weight norm.bias norm.num_batches_tracked norm.running_mean '
      .. 'norm.running_var norm.weight scale', keys(state))
    for _, t in pairs(state) do assert.is_false(t.requires_grad) end
    amp.no_grad(function() net.scale:fill_(7) end)
    eq(state.scale, { 7 })
    state.scale:fill_(3)
    eq(net.scale, { 3 })
    assert.is_nil(getmetatable(state))
  end)
  it('loads by copying: identity and gradients\' history stay, dtypes are cast', function()
    local a, b = Net(2), Net(2)
    local p = b.first.weight
    local r = b:load_state_dict(a:state_dict())
    assert.same({ {}, {} }, { r.missing_keys, r.unexpected_keys })
    assert.is_true(b.first.weight == p)
    assert.is_true(p.requires_grad)
    H.same(b.first.weight:detach(), a.first.weight:detach())
    local c = Net(2):double()
    c:load_state_dict(a:state_dict())
    assert.equal('float64', c.first.weight.dtype)
    H.close(c.first.weight:detach():float(), a.first.weight:detach())
    -- from a state of its own
    b:load_state_dict(b:state_dict())
    H.same(b.first.weight:detach(), a.first.weight:detach())
  end)
  it('strict: names every missing and unexpected key and every shape, and changes nothing', function()
    local a, b = Net(2), Net(2)
    local state = a:state_dict()
    state['first.weight'], state['norm.running_mean'], state.extra, state.more = nil, nil, amp.ones(1), amp.ones(1)
    state['last.bias'] = amp.ones(5)
    local before = b.last.weight:clone()
    local e = H.fails_here(function() b:load_state_dict(state) end, 'first.weight', 'norm.running_mean', 'extra', 'more', 'last.bias', '5', '2')
    assert.is_not_nil(tostring(e):find('missing', 1, true))
    assert.is_not_nil(tostring(e):find('unexpected', 1, true))
    H.same(b.last.weight:detach(), before:detach())
  end)
  it('strict = false ignores names and says which, but not shapes', function()
    local a, b = Net(2), Net(2)
    local state = a:state_dict()
    state['first.weight'], state.extra = nil, amp.ones(1)
    local r = b:load_state_dict(state, { strict = false })
    assert.same({ 'first.weight' }, r.missing_keys)
    assert.same({ 'extra' }, r.unexpected_keys)
    H.same(b.last.weight:detach(), a.last.weight:detach())
    state['last.bias'] = amp.ones(2, 2)
    H.fails_here(function() b:load_state_dict(state, { strict = false }) end, 'last.bias', '2x2')
    H.fails_here(function() b:load_state_dict { scale = 5 } end, 'scale', '5', 'tensor')
    H.fails_here(function() b:load_state_dict(5) end, 'table')
    H.fails_here(function() b:load_state_dict(nil) end, 'table')
    H.fails_here(function() b:load_state_dict(state, { stict = false }) end, 'stict', 'strict')
  end)
  it('a long list of wrong keys is cut, not endless', function()
    local state = {}
    for i = 1, 500 do state['key' .. i] = amp.ones(1) end
    local e = H.fails_here(function() nn.Linear(1, 1):load_state_dict(state) end, 'key1', '492 more')
    assert.is_true(#tostring(e) < 1000)
  end)
end)

describe('conversion', function()
  it('half, bfloat16, float, double and to keep every tensor the same tensor', function()
    local net = Net(2)
    local list, buffer = net:parameters(), net.norm.running_mean
    for _, how in ipairs { 'half', 'bfloat16', 'double', 'float' } do
      assert.is_true(net[how](net) == net)
      for i, p in ipairs(net:parameters()) do assert.is_true(p == list[i] and p.requires_grad and p.is_leaf) end
      assert.is_true(net.norm.running_mean == buffer)
    end
    net:to('float64')
    assert.equal('float64', list[1].dtype)
    assert.equal('float64', buffer.dtype)
    assert.equal('int64', net.norm.num_batches_tracked.dtype)
    net:to(amp.ones(1, { dtype = 'bfloat16' }))
    assert.equal('bfloat16', list[1].dtype)
    net:to('cpu', 'float32')
    assert.equal('float32', list[1].dtype)
    assert.is_true(net:cpu() == net)
  end)
  it('takes gradients and values along', function()
    local net = nn.Linear(2, 1)
    net:load_state_dict { weight = amp.tensor { { 0.5, -2 } }, bias = amp.tensor { 1 } }
    net(amp.tensor { { 1, 3 } }):sum():backward()
    net:half()
    assert.equal('float16', net.weight.grad.dtype)
    eq(net.weight.grad, { 1, 3 })
    eq(net.weight, { 0.5, -2 })
    eq(net(amp.tensor({ { 1, 1 } }, { dtype = 'float16' })), { -0.5 })
  end)
  it('an optimizer made before goes on after', function()
    local net = nn.Linear(2, 1)
    local opt = amp.optim.SGD(net:parameters(), { lr = 1, momentum = 0.5 })
    net:load_state_dict { weight = amp.tensor { { 0, 0 } }, bias = amp.tensor { 0 } }
    net(amp.tensor { { 1, 2 } }):sum():backward()
    opt:step():clear_grad()
    net:double()
    net(amp.tensor({ { 1, 2 } }, { dtype = 'float64' })):sum():backward()
    opt:step()
    H.close(net.weight, { -2.5, -5 })
    assert.equal('float64', net.weight.dtype)
  end)
  it('refuses what is no device or float dtype', function()
    local net = Net(2)
    H.fails_here(function() net:to('int64') end, 'int64')
    H.fails_here(function() net:to('gpu') end, 'gpu')
    H.fails_here(function() net:to(nil) end, 'nil')
    H.fails_here(function() net:to(5) end, '5')
    if not amp.cuda.is_available() then
      H.fails_here(function() net:cuda() end, 'cuda')
      H.fails_here(function() net:to('cuda:2') end, 'cuda')
      assert.equal('cpu', net.scale.device)
    end
  end)
end)

-- -- Containers --------------------------------------------------------------

describe('Sequential', function()
  it('takes modules, or a list of them; add, get, size', function()
    local a, b = nn.Linear(2, 3), nn.ReLU()
    local row = nn.Sequential(a, b)
    assert.equal(2, row:size())
    assert.is_true(row[1] == a and row:get(2) == b and row:get(-1) == b)
    assert.is_true(nn.Sequential { a, b }:size() == 2)
    assert.is_true(row:add(nn.Linear(3, 1)) == row)
    assert.same({ 4, 1 }, H.shape(row(amp.ones(4, 2))))
    assert.equal('1.weight 1.bias 3.weight 3.bias', names(row:named_parameters()))
    row[1] = nn.Linear(2, 3, false)
    assert.equal('1.weight 3.weight 3.bias', names(row:named_parameters()))
    assert.equal(0, nn.Sequential():size())
    assert.same({ 1, 2 }, { nn.Sequential()(1, 2) })
  end)
  it('gives what its last gives, and feeds all values on', function()
    local Two = nn.Module:extend('Two')
    function Two.forward(_, a, b) return b, a end
    assert.same({ 1, 2 }, { nn.Sequential(Two(), Two())(1, 2) })
  end)
  it('does not give away what the caller or a user\'s module holds', function()
    local held
    local Keep = nn.Module:extend('Keep')
    function Keep.forward(_, x)
      held = x
      return x
    end
    local x = amp.tensor { { -1, 2 } }
    local row = nn.Sequential(nn.Identity(), nn.ReLU(), Keep(), nn.Flatten(), nn.Dropout(0), nn.Tanh(), nn.Sigmoid())
    local y = row(x)
    eq(x, { -1, 2 })
    eq(held, { 0, 2 })
    assert.same({ 1, 2 }, H.shape(y))
    local z = nn.Sequential(nn.Identity(), nn.Dropout(0))(x)
    eq(z, { -1, 2 })
    eq(x, { -1, 2 })
    -- a layer that gives its input back as it is
    eq(nn.Sequential(nn.Dropout(0), nn.ReLU())(x), { 0, 2 })
    eq(x, { -1, 2 })
    nn.Sequential(Keep(), nn.Dropout(0), nn.Tanh(), nn.Dropout(0), nn.ReLU())(x)
    eq(held, { -1, 2 })
    -- a result that a view of the input backs
    local f = nn.Sequential(nn.Flatten(), nn.ReLU())(x)
    eq(f, { 0, 2 })
    eq(x, { -1, 2 })
  end)
  it('trains as its parts do', function()
    amp.manual_seed(3)
    local row = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    local x = H.sample { 5, 3 }
    row(x):sum():backward()
    local g = row[1].weight.grad:clone()
    row:zero_grad()
    row[3](row[2](row[1](x))):sum():backward()
    H.same(row[1].weight.grad, g)
  end)
  it('names a part that is none', function()
    H.fails_here(function() nn.Sequential(nn.ReLU(), 5) end, '2', 'number')
    H.fails_here(function() nn.Sequential(nn.ReLU) end, '1', 'class nn.ReLU')
    H.fails_here(function() nn.Sequential { nn.ReLU(), 'x' } end, '2', 'string')
    H.fails_here(function() nn.Sequential(nn.ReLU(), nil, nn.Tanh()) end, '2', 'nil')
    H.fails_here(function() nn.Sequential(nn.ReLU()):add() end, '2', 'nil')
    local row = nn.Sequential(nn.ReLU(), nn.Tanh())
    for _, i in ipairs { 0, 3, -3, 1.5, 'x' } do
      H.fails_here(function() row:get(i) end, tostring(i), '2')
    end
    row:add(nn.Sigmoid())
    row[2] = nil
    H.fails_here(function() row(amp.ones(1)) end, '2', 'table.remove')
    row[3] = nil
    assert.equal(1, #row)
    assert.equal(0, row(amp.tensor { -1 }):item())
  end)
end)

describe('ModuleList and ModuleDict', function()
  it('hold registered modules and have no forward', function()
    local list = nn.ModuleList { nn.Linear(1, 1), nn.ReLU() }
    assert.equal(2, list:size())
    assert.equal('1.weight 1.bias', names(list:named_parameters()))
    list:append(nn.Linear(1, 2))
    local n = 0
    for i, m in list:ipairs() do
      n = n + 1
      assert.is_true(list[i] == m)
    end
    assert.equal(3, n)
    H.fails_here(function() list(amp.ones(1)) end, 'ModuleList', 'forward')
    local dict = nn.ModuleDict { b = nn.Linear(1, 1), a = nn.ReLU() }
    dict:add('c', nn.Tanh())
    assert.equal('a b c', names(dict:pairs()))
    assert.equal('b.weight b.bias', names(dict:named_parameters()))
    assert.is_true(dict:get('b') == dict.b)
    H.fails_here(function() dict:get('z') end, 'z')
    H.fails_here(function() dict(amp.ones(1)) end, 'ModuleDict', 'forward')
    H.fails_here(function() dict:add('forward', nn.ReLU()) end, 'forward')
    H.fails_here(function() dict:add('training', nn.ReLU()) end, 'training')
    H.fails_here(function() dict:add('x.y', nn.ReLU()) end, 'x.y', 'dot')
    H.fails_here(function() dict:add('x', 5) end, 'x', 'number')
    H.fails_here(function() nn.ModuleDict { nn.ReLU() } end, 'string', 'number')
  end)
end)

-- -- Errors ------------------------------------------------------------------

describe('an error in a forward pass', function()
  it('names the modules it passed, innermost first, at the caller\'s line', function()
    local net = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.ReLU(), nn.Linear(5, 1)))
    local text = tostring(H.fails_here(function()
      local y = net(amp.ones(2, 4))
      return y
    end, 'in module 2 of nn.Sequential (nn.Linear 5 -> 1)', 'in module 2 of nn.Sequential (nn.Sequential', '2x3', '1x5'))
    assert.is_true(text:find('nn.Linear 5', 1, true) < text:find('(nn.Sequential', 1, true))
  end)
  it('names fields of a class, and places in lists that don\'t run', function()
    local M = nn.Module:extend('Model')
    function M:init()
      self.inner = nn.Linear(2, 2)
      self.blocks = nn.ModuleList { nn.Linear(2, 2), nn.Linear(3, 3) }
    end
    function M:forward(x) return (self.blocks[2](self.inner(x))) end
    H.fails(function() return (M()(amp.ones(1, 2))) end, "in module 'blocks.2' of Model (nn.Linear 3 -> 3)")
    H.fails(function() return (M()(amp.ones(1, 5))) end, "in module 'inner' of Model (nn.Linear 2 -> 2)")
    H.fails(function() return (nn.Linear(2, 2)(amp.ones(1, 5))) end, 'in nn.Linear 2 -> 2')
  end)
  it('is the same object all the way, the user\'s own too', function()
    local inner
    local M = nn.Module:extend('Catch')
    function M.forward(_, x)
      local ok, e = pcall(function() return nn.Linear(2, 2)(x) end)
      assert.is_false(ok)
      inner = e
      error(e, 0)
    end
    local ok, outer = pcall(nn.Sequential(M()), amp.ones(1, 5))
    assert.is_false(ok)
    assert.is_true(rawequal(inner, outer))
    local mine = {}
    local T = nn.Module:extend('Throw')
    function T.forward() error(mine) end
    ok, outer = pcall(nn.Sequential(nn.Sequential(T())), amp.ones(1))
    assert.is_false(ok)
    assert.is_true(rawequal(mine, outer))
    ok, outer = amp.autocast(function() return pcall(nn.Sequential(T()), amp.ones(1)) end)
    assert.is_false(ok)
    assert.is_true(rawequal(mine, outer))
  end)
  it('leaves the network as it was: the next call works', function()
    local net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    for _ = 1, 3 do assert.is_false(pcall(net, amp.ones(1, 5))) end
    assert.same({ 1, 2 }, H.shape(net(amp.ones(1, 2))))
    H.fails(function() net('x') end, 'tensor')
    H.fails(function() net() end, 'tensor')
  end)
end)
