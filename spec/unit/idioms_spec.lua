--- Lua's own ways with amp's objects: lists of modules that are lists, scalar tensors as indices, fields that are looked
-- at and set, copies of networks, undefined variables.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn = amp.nn

local function keys(t)
  local list = {}
  for k in pairs(t) do list[#list + 1] = tostring(k) end
  table.sort(list)
  return list
end

describe('ModuleList and Sequential are lists', function()
  for _, class in ipairs { 'ModuleList', 'Sequential' } do
    it(class .. ': ipairs, pairs, # and places, also from the end', function()
      local a, b = nn.Linear(2, 2), nn.ReLU()
      local list = nn[class] { a, b }
      local seen = {}
      for i, m in ipairs(list) do seen[i] = m end
      assert.is_true(seen[1] == a and seen[2] == b and seen[3] == nil)
      assert.same({ '1', '2' }, keys(list))
      assert.equal(2, #list)
      assert.is_true(list[1] == a and list[-1] == b and list[3] == nil)
    end)
    it(class .. ': appended, replaced, inserted and removed modules are registered as they lie', function()
      local list = nn[class]()
      list[#list + 1] = nn.Linear(2, 2, false)
      table.insert(list, nn.Linear(3, 3, false))
      table.insert(list, 1, nn.Linear(4, 4, false))
      assert.same({ '1.weight', '2.weight', '3.weight' }, keys(list:state_dict()))
      assert.same({ 4, 4 }, list:state_dict()['1.weight']:size())
      assert.equal(3, #list:parameters())
      list[2] = nn.ReLU()
      assert.same({ '1.weight', '3.weight' }, keys(list:state_dict()))
      assert.is_true(table.remove(list, 1).weight:size(1) == 4)
      assert.same({ '2.weight' }, keys(list:state_dict()))
      list:insert(1, nn.Tanh())
      assert.equal(3, #list:children())
      assert.is_true(list:pop():is(nn.Linear))
      list[2] = nil
      assert.equal(1, #list)
      list:extend { nn.ReLU(), nn.ReLU() }
      assert.equal(3, list:size())
      list:eval()
      for _, m in ipairs(list) do assert.is_false(m.training) end
    end)
    it(class .. ': refuses what is no module or no place', function()
      local list = nn[class] { nn.ReLU() }
      H.fails_here(function() list[2] = 5 end, 'module 2', 'number')
      H.fails_here(function() list[3] = nn.ReLU() end, 'place 3', 'appends')
      H.fails_here(function() list[0] = nn.ReLU() end, 'place 0')
      list:add(nn.ReLU()):add(nn.ReLU())
      list[2] = nil
      H.fails_here(function() list:state_dict() end, 'place', 'table.remove')
    end)
  end
  it('a loop over the list runs all layers', function()
    local Net = nn.Module:extend 'Net'
    function Net:init() self.blocks = nn.ModuleList { nn.ReLU(), nn.ReLU() } end
    function Net:forward(x)
      for _, block in ipairs(self.blocks) do x = block(x) end
      return x
    end
    assert.equal(0, Net()(amp.tensor { -1 }):item())
  end)
  it('parts may have names', function()
    local net = nn.Sequential { { 'conv', nn.Linear(2, 3) }, { 'act', nn.ReLU() } }
    net:add(nn.Linear(3, 1))
    assert.same({ '3.bias', '3.weight', 'conv.bias', 'conv.weight' }, keys(net:state_dict()))
    assert.is_true(net.conv == net[1])
    assert.same({ '3.bias', '3.weight', 'conv.bias', 'conv.weight' }, keys(net:clone():state_dict()))
    table.remove(net, 2)
    assert.same({ '2.bias', '2.weight', 'conv.bias', 'conv.weight' }, keys(net:state_dict()))
    H.fails_here(function() local s = nn.Sequential { a = nn.ReLU() } return s end, "'a'", 'order')
  end)
  it('a container has hooks, fields and flags like any module', function()
    local net, n = nn.Sequential(nn.ReLU()), 0
    local hook = net:register_forward_hook(function() n = n + 1 end)
    net(amp.ones(1))
    hook.remove()
    net(amp.ones(1))
    assert.equal(1, n)
    net.note = 'mine'
    assert.equal('mine', net.note)
    net.extra = nn.Linear(2, 2)
    assert.equal(2, #net:parameters())
    net:register_buffer('seen', amp.zeros(1))
    assert.same({ 'extra.bias', 'extra.weight', 'seen' }, keys(net:state_dict()))
  end)
end)

describe('modules in a plain table', function()
  it('are no parts of the network, which is said once', function()
    local Net = nn.Module:extend 'PlainTables'
    function Net:init()
      self.layers, self.sizes = {}, { 1, 2 }
      self.layers[1] = nn.Linear(2, 2)
    end
    local said = H.warnings(function()
      assert.equal(0, #Net():parameters())
      Net():parameters()
    end)
    assert.equal(1, #said)
    assert.is_truthy(said[1]:find("'layers'", 1, true) and said[1]:find('nn.ModuleList', 1, true), said[1])
  end)
  it('are left alone where they are registered as well', function()
    local Net = nn.Module:extend 'BothWays'
    function Net:init()
      self.list = nn.ModuleList { nn.Linear(2, 2) }
      self.by_name = { first = self.list[1] }
    end
    assert.equal(0, #H.warnings(function() assert.equal(2, #Net():parameters()) end))
  end)
end)

describe('ModuleDict', function()
  it('has its modules and nothing else for pairs', function()
    local a, b = nn.Linear(2, 2), nn.ReLU()
    local dict = nn.ModuleDict { a = a, b = b }
    assert.same({ 'a', 'b' }, keys(dict))
    dict.c = nn.Linear(3, 3)
    dict.a = nil
    assert.same({ 'c.bias', 'c.weight' }, keys(dict:state_dict()))
    dict.a = a
    local order = {}
    for name in dict:pairs() do order[#order + 1] = name end
    assert.same({ 'b', 'c', 'a' }, order)
    H.fails_here(function() dict.eval = nn.ReLU() end, "'eval'")
  end)
end)

describe('an integer tensor without dimensions as an index', function()
  local i = amp.tensor({ 1, 2, 3 }, { dtype = 'int64' })[2]
  it('gives a view', function()
    local x = amp.zeros(3, 2)
    x[i]:fill_(5)
    H.close(x, { 0, 0, 5, 5, 0, 0 })
    x[{ i, {} }]:add_(1)
    x[{ {}, i }]:add_(1)
    H.close(x, { 0, 1, 6, 7, 0, 1 })
    assert.is_true(x[{ i, i }]:shares_storage(x))
    assert.equal(7, x[{ i, i }]:item())
  end)
  it('is assigned to', function()
    local x = amp.zeros(3, 2)
    x[i] = amp.tensor { 1, 2 }
    x[{ 1, i }] = 7
    H.close(x, { 0, 7, 1, 2, 0, 0 })
  end)
  it('passes gradients, in every integer dtype', function()
    for _, dtype in ipairs { 'int64', 'int32', 'int16', 'int8', 'uint8' } do
      local x = amp.ones({ 3, 2 }, { requires_grad = true })
      x[amp.tensor(2, { dtype = dtype })]:sum():backward()
      H.close(x.grad, { 0, 0, 1, 1, 0, 0 })
    end
  end)
  it('is in range, or an error', function()
    H.fails_here(function() local y = amp.ones(3)[amp.tensor(4, { dtype = 'int64' })] return y end, 'index 4', '1..3')
    H.fails_here(function() local y = amp.ones(3)[amp.tensor(1)] return y end, 'integer', 'float32')
  end)
  it('counts no wait on the CPU less than reading it', function()
    local before = amp.counters().host_waits
    local _ = amp.ones(3)[i]
    assert.is_true(amp.counters().host_waits - before <= 1)
  end)
end)

describe('fields of tensors', function()
  it('T and mT transpose', function()
    local x = amp.arange(6):view(2, 3)
    H.close(x.T, { 0, 3, 1, 4, 2, 5 })
    assert.same({ 4, 3, 2 }, amp.ones(2, 3, 4).T:size())
    assert.same({ 2, 4, 3 }, amp.ones(2, 3, 4).mT:size())
    assert.is_true(x.T:shares_storage(x))
    H.fails_here(function() local y = amp.ones(3).mT return y end, '2 dimensions')
  end)
  it('data is the same memory without history', function()
    local p = amp.ones({ 2 }, { requires_grad = true })
    assert.is_false(p.data.requires_grad)
    p.data:mul_(3)
    H.close(p, { 3, 3 })
    p.data:copy_(amp.tensor { 4, 5 })
    H.close(p, { 4, 5 })
    assert.is_true(p.requires_grad and p.is_leaf)
  end)
  it('data may be set, and the tensor stays itself', function()
    local net = nn.Linear(2, 2, false)
    local opt, p = amp.optim.SGD(net:parameters(), { lr = 1 }), net.weight
    p.data = amp.zeros(2, 2)
    assert.is_true(net.weight == p)
    H.close(p, { 0, 0, 0, 0 })
    net(amp.ones(1, 2)):sum():backward()
    opt:step()
    H.close(p, { -1, -1, -1, -1 })
    H.fails_here(function() p.data = 3 end, 'tensor')
  end)
  it('a change through data is seen by the casts of a region', function()
    local net, x = nn.Linear(2, 1, false), amp.ones(1, 2)
    amp.autocast({ dtype = 'bfloat16' }, function()
      net.weight.data:fill_(1)
      assert.equal(2, net(x):item())
      net.weight.data:fill_(2)
      assert.equal(4, net(x):item())
      net.weight.data = amp.full({ 1, 2 }, 3)
      assert.equal(6, net(x):item())
    end)
  end)
  it('a change through data before backward is an error, not a wrong gradient', function()
    local w = amp.ones({ 2 }, { requires_grad = true })
    local loss = (w * w):sum()
    w.data:fill_(5)
    H.fails_here(function() loss:backward() end, 'in place')
  end)
end)

describe('nn.Parameter', function()
  it('requires grad and is registered', function()
    local Net = nn.Module:extend 'Net'
    function Net:init() self.scale = nn.Parameter(amp.ones(3)) self.fixed = nn.Parameter(amp.ones(1), false) end
    local net = Net()
    assert.equal(1, #net:parameters())
    assert.is_false(net.fixed.requires_grad)
    local t = amp.zeros(2)
    nn.Parameter(t).data:fill_(1)
    H.close(t, { 1, 1 })
    H.fails_here(function() local p = nn.Parameter(amp.ones({ 2 }, { dtype = 'int64' })) return p end, 'float', 'int64')
  end)
end)

describe('net:clone()', function()
  it('keeps hooks, and which buffers are not saved', function()
    local net, calls = nn.Linear(2, 2), 0
    net:register_buffer('seen', amp.zeros(1), { persistent = false })
    net:register_forward_hook(function() calls = calls + 1 end)
    local copy = net:clone()
    copy(amp.zeros(1, 2))
    assert.equal(1, calls)
    assert.is_nil(copy:state_dict().seen)
    assert.is_truthy(copy.seen)
  end)

  it('copies all, keeps ties, mode, flags, buffers and hooks', function()
    local net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
    net[3].weight = net[1].weight
    net[2]:eval()
    net[1].bias.requires_grad = false
    net.config = { sizes = { 1, 2 } }
    local calls = 0
    net:register_forward_hook(function() calls = calls + 1 end)
    net(amp.randn(4, 2)):sum():backward()
    local copy = net:clone()
    assert.is_true(copy[1].weight == copy[3].weight)
    assert.is_false(copy[1].weight == net[1].weight)
    assert.is_nil(copy[1].weight.grad)
    assert.is_false(copy[2].training)
    assert.is_true(copy[1].training)
    assert.is_false(copy[1].bias.requires_grad)
    assert.is_false(copy.config.sizes == net.config.sizes)
    assert.same({ 1, 2 }, copy.config.sizes)
    assert.same(keys(net:state_dict()), keys(copy:state_dict()))
    local x = amp.randn(4, 2)
    H.same(copy(x), net(x))
    assert.equal(3, calls)
    amp.no_grad(function() copy[1].weight:fill_(0) end)
    assert.is_true(net[1].weight:abs():sum():item() > 0)
  end)
  it('of containers', function()
    local dict = nn.ModuleDict { a = nn.Linear(2, 2), b = nn.ReLU() }:clone()
    assert.same({ 'a', 'b' }, keys(dict))
    assert.equal(2, #nn.ModuleList { nn.ReLU(), nn.ReLU() }:clone())
  end)
end)

describe('amp.strict()', function()
  local function run(code)
    local f = assert(loadstring(code, '=strict.lua'))
    amp.strict()
    local ok, e = pcall(f)
    amp.strict(false)
    return ok, tostring(e)
  end
  it('makes reading an undefined variable an error that knows what is near', function()
    local ok, e = run 'local learning_rate = 1\nreturn learning_rat'
    assert.is_false(ok)
    assert.is_truthy(e:find('strict.lua:2:', 1, true) and e:find("'learning_rat'", 1, true) and e:find("'learning_rate'", 1, true), e)
    ok, e = run 'return torch.zeros(2)'
    assert.is_truthy(not ok and e:find("require 'amp'", 1, true), e)
  end)
  it('refuses to make a variable in a function, and lets the outermost level', function()
    local ok, e = run 'local function f() strict_spec_a = 1 end f()'
    assert.is_truthy(not ok and e:find("'strict_spec_a'", 1, true) and e:find('local strict_spec_a', 1, true), e)
    ok, e = run 'strict_spec_b = 1\nlocal function f() strict_spec_b = 2 end f() assert(strict_spec_b == 2) strict_spec_b = nil return strict_spec_b'
    assert.is_true(ok, e)
  end)
  it('leaves rawget, amp and the libraries alone, and can be switched off', function()
    local ok, e = run "assert(rawget(_G, 'nothing_there') == nil) local amp = require 'amp' assert(amp.ones(2):sum():item() == 2) local m = math.huge"
    assert.is_true(ok, e)
    assert.is_nil(rawget(_G, 'nothing_there'))
    assert.is_nil(nothing_there) -- luacheck: ignore
    H.fails_here(function() amp.strict(1) end, 'true or false')
  end)
  it('makes == of a tensor and a number an error', function()
    local ok, e = run "local amp = require 'amp' if amp.ones(1) == 1 then return 1 end"
    assert.is_truthy(not ok and e:find('t:eq(1)', 1, true), e)
    ok, e = run "local amp = require 'amp' local t = amp.ones(1) return t == nil or t == t"
    assert.is_true(ok, e)
  end)
end)

describe('cures at the prompt', function()
  it('are the same as for scripts', function()
    local root = H.absolute(H.root)
    H.write(H.tmp 'in.txt', 't = amp.ones(3)\nmath.max(t)\nt.size[1]\nzeros(2)\ntorch.zeros(3)\n')
    local out = H.sh(("cd / && LUA_CPATH='%s/?.so;;' luajit '%s/lua/bin/amp' < '%s' 2>&1"):format(H.absolute(H.build), root, H.tmp 'in.txt'))
    for _, piece in ipairs { 't:max()', "'size' is a function", 'did you mean amp.zeros?', "require 'amp'" } do
      assert.is_truthy(out:find(piece, 1, true), piece .. ' is not in ' .. out)
    end
  end)
end)
