--- g:save and amp.load_graph: what a file holds comes back exactly, in a fresh process, on another device; damaged, newer and hostile
--- files are errors that say what is wrong.
local ffi = require 'ffi'
local amp = require 'amp'
local json = require 'amp.io.json'
local le = require('amp.io.file').le
local C = require('amp.ffi').C
local nn = amp.nn

local path = os.tmpname() .. '.safetensors'

local function slurp(p)
  local f = assert(io.open(p, 'rb'))
  local s = f:read '*a'
  f:close()
  return s
end

local function spill(s, p)
  local f = assert(io.open(p or path, 'wb'))
  f:write(s)
  f:close()
end

local function same(a, b)
  assert.equal(a.dtype, b.dtype)
  assert.equal(tostring(a:size()), tostring(b:size()))
  assert.is_true(amp.equal(a, b), 'the values differ')
end

local function again(g)
  g:save(path)
  return amp.load_graph(path)
end

-- The file's graph, changed by fn, written with a check sum of its own.
local function edited(fn)
  local tensors, metadata = amp.io.safetensors.load(path)
  local graph = json.decode(metadata['amp.graph'])
  fn(graph, tensors)
  local text = json.encode(graph)
  amp.io.safetensors.save(path, tensors, {['amp.graph'] = text, ['amp.graph.crc32'] = ('%08x'):format(C.amp_crc32(0, text, #text))})
end

local function refused(pattern)
  local ok, e = pcall(amp.load_graph, path)
  assert.is_false(ok, 'it was loaded')
  assert.is_truthy(tostring(e):find(path, 1, true), tostring(e))
  assert.is_truthy(tostring(e):find(pattern), tostring(e))
end

-- A file names the device and dtype of what is made, where the function left them to the defaults.
local function shown(g) return (tostring(g):gsub(', device = %w+', ''):gsub('(rand%(.-), dtype = float32%)', '%1)')) end

local function mlp()
  amp.manual_seed(3)
  return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
end

describe('a saved graph', function()
  teardown(function() os.remove(path) end)

  it('gives what the module gives, with its names, flags and mode', function()
    local net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2))
    net[1].bias.requires_grad = false
    local x = amp.randn(2, 1, 4, 4)
    for _, mode in ipairs {true, false} do
      net:train(mode)
      local g = amp.trace(net, x)
      local h = again(g)
      assert.equal(mode, h.training)
      assert.equal(shown(g), shown(h))
      assert.same(g:inputs(), h:inputs())
      assert.same(g:outputs(), h:outputs())
      local flags = {}
      for name, p in h:named_parameters() do flags[name] = p.requires_grad end
      for name, p in net:named_parameters() do assert.equal(p.requires_grad, flags[name] == nil and p.requires_grad or flags[name], name) end
      for name, b in h:named_buffers() do same(b, net:state_dict()[name]) end
      same(h(x), net(x))
      for name, b in h:named_buffers() do same(b, net:state_dict()[name]) end -- statistics move as in the module
    end
  end)

  it('is differentiable as the module is', function()
    local net, x = mlp(), amp.randn(3, 4)
    local h = again(amp.trace(net, x))
    net(x):pow(2):sum():backward()
    h(x):pow(2):sum():backward()
    local of = {}
    for name, p in h:named_parameters() do of[name] = p.grad end
    for name, p in net:named_parameters() do same(of[name], p.grad) end
  end)

  it('keeps numbers, words, lists, NaN, infinities and int64 exactly', function()
    local function fn(x)
      local a = x:clamp(-math.huge, 0.1):masked_fill(x:gt(0.5), 0 / 0):mul(1 / 3)
      local b = amp.full({2}, 2 ^ 53, {dtype = 'int64'})
      return a, b, amp.arange(1, 2, 0.1 + 0.2, {dtype = 'float64'}), x:sum({1, 2}, true), x * -0.0, amp.nn.functional.pad(x, {1, 0}, 'constant', -math.huge)
    end
    local x = amp.randn(3, 3)
    local g = amp.trace(fn, x)
    local h = again(g)
    assert.equal(shown(g), shown(h))
    local want, got = {fn(x)}, {h(x)}
    for i, w in ipairs(want) do
      assert.equal(w.dtype, got[i].dtype)
      for k, v in ipairs(w:reshape(-1):tolist()) do
        local mine = got[i]:reshape(-1):tolist()[k]
        assert.is_true(v ~= v and mine ~= mine or v == mine and 1 / v == 1 / mine, ('result %d, element %d'):format(i, k))
      end
    end
  end)

  it('keeps an attribute beyond what a double holds', function()
    local S, core = require('amp.ffi').S, require 'amp.ffi'
    local g = amp.trace(function(x) return amp.randint(0, 10, {2}) + x end, amp.ones(2))
    local node
    for k = 0, C.amp_graph_node_count(g.handle) - 1 do
      local n = C.amp_graph_node_at(g.handle, k)
      if ffi.string(C.amp_op_get(n.op).name) == 'randint' then node = n end
    end
    local slots = ffi.cast('amp_slot *', node.attrs)
    slots[1].i = 9007199254740993LL
    g:save(path)
    local h = amp.load_graph(path)
    for k = 0, C.amp_graph_node_count(h.handle) - 1 do
      local n = C.amp_graph_node_at(h.handle, k)
      if ffi.string(C.amp_op_get(n.op).name) == 'randint' then assert.is_true(n.attrs[1].i == 9007199254740993LL) end
    end
    assert.is_truthy(S and core)
  end)

  it('keeps which parameters a conversion stores low', function()
    local g = amp.trace(mlp(), amp.ones(1, 4))
    assert.is_nil(again(g).lowered)
    g.lowered = {['1.weight'] = true}
    assert.same({['1.weight'] = true}, again(g).lowered)
  end)

  it('takes and gives nested tables, texts and nil', function()
    local function fn(x, state, mode) return {y = x + state.h[1], list = {state.h[2], 'text', true}, n = mode}, x * 2 end
    local x, state = amp.randn(2, 2), {h = {amp.ones(2, 2), amp.zeros(1)}, [3] = 'k'}
    local h = again(amp.trace(fn, x, state, 4))
    local a, b = h(x, state, 4)
    same(a.y, x + 1)
    same(a.list[1], state.h[2])
    assert.same({'text', true}, {a.list[2], a.list[3]})
    assert.equal(4, a.n)
    same(b, x * 2)
    assert.has_error(function() h(x, state, 5) end)
    assert.has_error(function() h(x, {h = state.h}, 4) end)
  end)

  it('keeps modes and regions of nodes, in-place ops and random ops', function()
    local w = amp.randn(3, 3):requires_grad_()
    local function fn(x)
      local a = amp.autocast({dtype = 'bfloat16'}, function() return x:matmul(w) end)
      local b = amp.no_grad(function() return w * 2 end)
      local c = x:clone():mul_(2):add_(b)
      return a:float() + c + amp.rand(3, 3) + x:detach()
    end
    local x = amp.randn(3, 3)
    local g = amp.trace(fn, x)
    local h = again(g)
    assert.equal(shown(g), shown(h))
    amp.manual_seed(5)
    local want = fn(x)
    amp.manual_seed(5)
    local got = h(x)
    same(got, want)
    got:sum():backward()
    want:sum():backward()
    same(h:parameters()[1].grad, w.grad)
  end)

  it('stores a tied tensor once, and it stays tied', function()
    local a, b = nn.Linear(4, 4), nn.Linear(4, 4)
    b.weight = a.weight
    local net = nn.Sequential(a, b)
    local h = again(amp.trace(net, amp.ones(1, 4)))
    local weights = 0
    for name in pairs((amp.io.safetensors.load(path))) do weights = weights + (name:find 'weight' and 1 or 0) end
    assert.equal(1, weights)
    assert.equal(3, #h:parameters())
    local tensors = amp.io.safetensors.load(path)
    same(tensors['1.weight'], a.weight:detach())
  end)

  it('refuses tensors in one memory of which one changes, as a file holds them apart', function()
    local w = amp.randn(3, 3)
    local view = w:t()
    local function fn(x) return x * w + view end
    same(again(amp.trace(fn, amp.ones(3, 3)))(amp.ones(3, 3)), w + view) -- nothing changes them
    w:requires_grad_()
    local ok, e = pcall(again, amp.trace(fn, amp.ones(3, 3)))
    assert.is_false(ok)
    assert.is_truthy(tostring(e):find('same memory', 1, true), tostring(e))
    local buffer = amp.zeros(4)
    local half = buffer:narrow(1, 1, 2)
    assert.has_error(function() again(amp.trace(function(x) buffer:add_(x) return half * 2 end, amp.ones(4))) end)
    local other = buffer:narrow(1, 3, 2)
    local h = again(amp.trace(function(x) half:add_(x) return other + half end, amp.ones(2)))
    h(amp.ones(2))
    assert.same({2, 2}, h(amp.ones(2)):tolist())
  end)

  it('keeps the layout of what it holds', function()
    local net = nn.Conv2d(3, 4, 3):to {memory_format = 'channels_last'}
    local h = again(amp.trace(net, amp.ones(1, 3, 5, 5)))
    for name, p in h:named_parameters() do
      if name == 'weight' then assert.same({unpack(net.weight:stride())}, {unpack(p:stride())}) end
    end
    same(h:parameters()[1]:detach(), net.weight:detach())
  end)

  it('follows free sizes', function()
    if not pcall(require, 'amp.graph.dynamic') then return pending 'free sizes are not there' end
    local g = amp.graph.trace(function(x) return x:view(x:size(1) * 2, 2):sum(2), x * x:size(1) end, {amp.ones(3, 4)}, {dynamic = {1}})
    local h = again(g)
    local x = amp.randn(5, 4)
    local a, b = h(x)
    local c, d = g(x)
    same(a, c)
    same(b, d)
  end)

  it('is whole or not there', function()
    local folder = path .. '.folder'
    os.execute(('mkdir -p "%s"'):format(folder))
    local ok, e = pcall(function() amp.trace(mlp(), amp.ones(1, 4)):save(folder) end)
    assert.is_false(ok)
    assert.is_truthy(tostring(e):find('a folder', 1, true), tostring(e))
    os.execute(('rmdir "%s"'):format(folder))
    assert.has_error(function() amp.trace(mlp(), amp.ones(1, 4)):save() end)
    assert.has_error(function() amp.trace(mlp(), amp.ones(1, 4)):save(path, {remove = true}) end)
    assert.has_error(function() amp.load_graph(path, {device = 'cpu'}) end)
    assert.has_error(function() amp.load_graph(path, {map_location = 'cuda:100'}) end)
    assert.has_error(function() amp.load_graph(7) end)
  end)

  it('loads in a fresh process that knows none of its classes', function()
    local Net = nn.Module:extend 'FileSpecNet'
    function Net:init() self.fc = nn.Linear(4, 3) end
    function Net:forward(x) return self.fc(x):tanh() end
    local net, x = Net(), amp.ones(2, 4)
    amp.trace(net, x):save(path)
    local script = os.tmpname()
    spill(([[local amp = require 'amp'
      local g = amp.load_graph(%q)
      io.write(('%%.9g'):format(g(amp.ones(2, 4)):sum():item()))]]):format(path), script)
    local pipe = io.popen(('LUA_PATH=%q LUA_CPATH=%q luajit %s'):format(package.path, package.cpath, script))
    local text = pipe:read '*a'
    pipe:close()
    os.remove(script)
    assert.equal(('%.9g'):format(net(x):sum():item()), text)
  end)

  it('sees changed parameters, and g:to keeps whose they are', function()
    local net, x = mlp(), amp.randn(3, 4)
    local g = amp.trace(net, x)
    assert.equal(g, g:to 'cpu')
    same(g(x), net(x))
    assert.equal(net[1].weight, g:parameters()[1])
    assert.has_error(function() g:to 'cuda:100' end)
    assert.has_error(function() g:to() end)
  end)
end)

-- AMP_PLUGIN_DIR=build/emulated has such a device
describe('a graph on another device', function()
  teardown(function() os.remove(path) end)
  local there = amp.cuda.is_available()

  local function trained()
    local net = mlp()
    local bias = amp.ones(2)
    return net, function(x) return net(x) + bias * amp.zeros(2):add(1) + amp.arange(1, 3) end
  end

  it('is one that was saved on the CPU, or the other way round', function()
    if not there then return pending 'no GPU here' end
    local net, fn = trained()
    local x = amp.randn(3, 4)
    local want = net:eval() and fn(x)
    amp.trace(fn, x):save(path)
    local h = amp.load_graph(path, {map_location = 'cuda'})
    for _, p in ipairs(h:parameters()) do assert.equal('cuda:1', p.device) end
    local y = h(x:cuda())
    assert.equal('cuda:1', y.device)
    assert.is_true(amp.allclose(y:cpu(), want, {rtol = 1e-4, atol = 1e-5}))
    assert.has_error(function() h(x) end)
    h:save(path)
    local back = amp.load_graph(path)
    for _, p in ipairs(back:parameters()) do
      assert.equal('cpu', p.device)
      assert.is_true(p.requires_grad)
    end
    assert.is_true(amp.allclose(back(x), want))
  end)

  it('moves with its parameters, which stay the module\'s, and their gradients', function()
    if not there then return pending 'no GPU here' end
    local net, fn = trained()
    local x = amp.randn(3, 4)
    local g = amp.trace(fn, x)
    g(x):sum():backward()
    local weight, grad = net[1].weight, net[1].weight.grad:clone()
    local want = fn(x):detach()
    assert.equal(g, g:to 'cuda')
    assert.equal('cuda:1', net[1].weight.device)
    assert.equal(weight, net[1].weight)
    assert.is_true(amp.equal(weight.grad:cpu(), grad))
    assert.is_true(weight.is_leaf and weight.requires_grad)
    local y = g(x:cuda())
    assert.is_true(amp.allclose(y:detach():cpu(), want, {rtol = 1e-4, atol = 1e-5}))
    y:sum():backward()
    assert.is_true(amp.allclose(weight.grad:cpu(), grad * 2, {rtol = 1e-4, atol = 1e-5}))
    g:to 'cpu'
    assert.equal('cpu', weight.device)
    assert.is_true(amp.allclose(g(x):detach(), want))
  end)

  it('keeps what a GPU\'s graph has on the CPU', function()
    if not there then return pending 'no GPU here' end
    local w = amp.ones(2):cuda():requires_grad_()
    local g = amp.trace(function(x) return (x * w):cpu() + amp.ones(2) end, amp.ones(2):cuda())
    g:save(path)
    local h = amp.load_graph(path, {map_location = 'cuda'}):to 'cuda'
    assert.equal('cpu', g(amp.ones(2):cuda()).device)
    assert.equal('cpu', h(amp.ones(2):cuda()).device)
    assert.same({2, 2}, h(amp.ones(2):cuda()):tolist())
  end)
end)

describe('a damaged graph', function()
  before_each(function() amp.trace(function(x, y) return (x:sum(1) + y):view(2, 2), x:add(3) end, amp.randn(3, 4), amp.randn(4)):save(path) end)
  teardown(function() os.remove(path) end)

  local cases = {
    {'of a newer version', 'newer amp', function(g) g.version = 2 end},
    {'without a version', 'no version', function(g) g.version = nil end},
    {'with an op that is unknown', "op 'sumo'", function(g) g.nodes[1].op = 'sumo' end},
    {'with a slot that the op has not', "no attribute 'axis'", function(g) g.nodes[1].attrs.axis = 1 end},
    {'with an attribute out of range', "'dims'", function(g) g.nodes[1].attrs.dims = json.decode '[1,1,1,1,1,1,1,1,1]' end},
    {'with an attribute of another kind', "'keepdim'", function(g) g.nodes[1].attrs.keepdim = 'yes' end},
    {'without an attribute that must be there', "'shape' is missing", function(g) g.nodes[3].attrs = nil end},
    {'with a cycle', 'no value', function(g) g.nodes[1].inputs[1] = g.nodes[2].outputs[1].name end},
    {'that reads itself', 'no value', function(g) g.nodes[1].inputs[1] = g.nodes[1].outputs[1].name end},
    {'with a name twice', 'are called', function(g) g.values[2].name = g.values[1].name end},
    {"with a node's name twice", 'are called', function(g) g.nodes[2].name = g.nodes[1].name end},
    {'with a result named as an input', 'are called', function(g) g.nodes[1].outputs[1].name = g.values[1].name end},
    {'with an operand too many', 'takes up to 1', function(g) g.nodes[1].inputs[2] = g.values[1].name end},
    {'without an operand', 'operand 1 is missing', function(g) g.nodes[1].inputs[1] = json.null end},
    {'with no operands', 'operand', function(g) g.nodes[2].inputs = setmetatable({}, json.array) end},
    {'with a number where a tensor must be', 'number', function(g) g.nodes[1].inputs[1] = g.values[3].name end},
    {'with a size that is negative', 'impossible shape', function(g) g.values[1].shape[1] = -1 end},
    {'with sizes beyond memory', 'impossible shape', function(g) g.values[1].shape = json.decode '[9007199254740993,9007199254740993]' end},
    {'with nine dimensions', 'up to 8 sizes', function(g) g.values[1].shape = json.decode '[1,1,1,1,1,1,1,1,1]' end},
    {'with an output that is not there', 'no value', function(g) g.outputs[1] = 'gone' end},
    {'without outputs', 'no list of outputs', function(g) g.outputs = nil end},
    {'with fewer results than its nesting says', 'arguments or results', function(g) g.outputs[2] = nil end},
    {'with a nesting that names a tensor twice', 'twice', function(g) g.arguments.list[2].tensor = 1 end},
    {'with an unknown field', "unknown field 'hidden'", function(g) g.nodes[1].hidden = 1 end},
    {'with an in-place node without operand', 'in place', function(g) g.nodes[1].inplace = true end},
    {'with a region of no dtype', 'no dtype', function(g) g.nodes[1].regions = {cpu = {enabled = true, dtype = 'half', cache = true, verbose = false}} end},
    {'that asked for a region that is none', 'is none', function(g) g.region = 'cpu float32, cuda off' end},
    {'that asked for a region in no words', 'is none', function(g) g.region = 1 end},
    {'that is in training mode by a number', 'neither true nor false', function(g) g.training = 1 end},
    {'with a device that is none', 'no device', function(g) g.values[1].device = 'tpu' end},
    {'with a free dimension that is not there', 'free dimension', function(g) g.values[1].free = json.decode '[3]' end},
    {'with a size of a node that is not there', 'not there', function(g)
      g.sizes[1] = {node = 'gone', attr = 'shape', at = 1, numerator = 1, denominator = 1, more = 0, powers = setmetatable({}, json.array)}
    end},
    {'with a size of a place that is not there', 'follow a size', function(g)
      g.sizes[1] = {node = g.nodes[3].name, attr = 'shape', at = 3, numerator = 1, denominator = 1, more = 0, powers = setmetatable({}, json.array)}
    end},
    {'with huge counts', 'impossible value', function(g) g.nodes[3].attrs.shape = json.decode '[99999999999999999999]' end},
  }
  for _, case in ipairs(cases) do
    it(case[1] .. ' is refused', function()
      edited(case[3])
      refused(case[2])
    end)
  end

  it('whose tensor is missing, or of another shape, is refused', function()
    amp.trace(mlp(), amp.ones(1, 4)):save(path)
    local good = slurp(path)
    edited(function(_, t) t['1.weight'] = nil end)
    refused "tensor of '1.weight' .* is missing"
    spill(good)
    edited(function(_, t) t['1.weight'] = amp.ones(4, 8) end)
    refused "'1.weight' is float32 of 8x4"
    spill(good)
    edited(function(_, t) t['1.weight'] = amp.ones(8, 4):double() end)
    refused 'float64'
  end)

  it('that was cut off is refused, wherever', function()
    local good = slurp(path)
    for n = 0, #good - 1, math.max(1, math.floor(#good / 97)) do
      spill(good:sub(1, n))
      refused '.'
    end
    spill(good .. '\0')
    refused 'belong to no tensor'
  end)

  it('with one changed byte in its text is refused by its check sum', function()
    local good = slurp(path)
    local first, last = good:find('"amp.graph":".-[^\\]"')
    local step = math.max(1, math.floor((last - first) / 400))
    for at = first + 14, last - 1, step do
      local c = good:sub(at, at)
      local other = c == '1' and '2' or c == 'a' and 'b' or c:find '%d' and '1' or c:find '%l' and 'a' or nil
      if other and other ~= c then
        spill(good:sub(1, at - 1) .. other .. good:sub(at + 1))
        refused '.'
      end
    end
  end)

  it('that is no graph is refused', function()
    amp.io.safetensors.save(path, {w = amp.ones(2)})
    refused 'no graph'
    for _, text in ipairs {'', '[]', '{}', '"x"', '{"version":1}', '{"version":1,"version":1}', ('['):rep(100000),
      ('{"a":'):rep(70) .. '1' .. ('}'):rep(70), '{"version":1e0}',
      '{"version":1,"values":[[]],"nodes":[],"outputs":[]}', '{"version":1,"values":[],"nodes":[],"outputs":[],"sizes":{}}'} do
      amp.io.safetensors.save(path, {w = amp.ones(2)}, {['amp.graph'] = text})
      refused '.'
    end
    spill(le(2 ^ 40, 8) .. '{')
    refused 'header'
    spill(le(2, 8) .. '{}')
    refused 'no graph'
    os.remove(path)
    refused 'No such file'
    assert.has_error(function() amp.load_graph('/') end)
    assert.has_error(function() amp.load_graph('a\0b') end)
  end)

  it('leaves nothing behind', function()
    amp.trace(mlp(), amp.ones(1, 4)):save(path)
    edited(function(g) g.outputs[1] = 'gone' end)
    local function live()
      jit.flush() -- traces hold what they were compiled for
      collectgarbage()
      collectgarbage()
      return tonumber(C.amp_memory(0, 0).live)
    end
    local before = live()
    for _ = 1, 50 do pcall(amp.load_graph, path) end
    assert.equal(before, live())
  end)
end)
