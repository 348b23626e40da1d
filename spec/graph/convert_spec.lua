-- amp.convert_model: casts as nodes, by the lists, with MXNet's rules; each option, and what wrong ones say.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn, F = amp.nn, amp.nn.functional

local function ops_of(g)
  local list = {}
  for i, node in ipairs(g:nodes()) do list[i] = node.op end
  return list
end

local function count(g, op, dtype)
  local n = 0
  for _, node in ipairs(g:nodes()) do
    if node.op == op and (not dtype or node.attrs.dtype == dtype) then n = n + 1 end
  end
  return n
end

local function node_of(g, name)
  for _, node in ipairs(g:nodes()) do
    if node.name == name then return node end
  end
  error('no node ' .. name)
end

-- The dtypes of a node's operands, by what makes them.
local function dtypes_in(g, name)
  local of, list = {}, {}
  for n, p in g:named_parameters() do of[n] = p.dtype end
  for _, node in ipairs(g:nodes()) do
    for _, out in ipairs(node.outputs) do of[out.name] = out.dtype end
  end
  for i, input in ipairs(node_of(g, name).inputs) do list[i] = of[input] or 'float32' end
  return list
end

local function parameter(g, name)
  for n, p in g:named_parameters() do
    if n == name then return p end
  end
end

local low = 'bfloat16'

local function convert(fn, inputs, given)
  given = given or {}
  given.target_dtype = given.target_dtype or low
  return amp.convert_model(amp.graph.trace(fn, inputs), given)
end

local function mlp()
  amp.manual_seed(1)
  return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
end

describe('amp.convert_model', function()
  it('casts two dense layers by five casts down and one back', function()
    local net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    local function fn(x) return net(x):reshape(-1, 2, 2) end
    local g = convert(fn, {amp.randn(4, 4)})
    assert.equal(5, count(g, 'amp_cast', low))
    assert.equal(1, count(g, 'amp_cast', 'float32'))
    assert.equal(1 + 2 + 6, #g:nodes())
  end)

  it('casts a value once for a dtype, whatever the number of its uses', function()
    local l = nn.Linear(4, 4)
    local g = convert(function(x) return l(x) + l(x * 2) + l(x), x:exp() end, {amp.randn(2, 4)})
    assert.equal(2 + 1 + 1 + 1, count(g, 'amp_cast')) -- weight, bias, x, 2 x, the sum
  end)

  it('casts anew what was written to', function()
    local w = amp.randn(4, 4)
    local function fn(x)
      local y = x:clone()
      local a = y:matmul(w)
      y:view(-1):mul_(2)
      return a, y:matmul(w)
    end
    local x = amp.randn(4, 4)
    local g = convert(fn, {x})
    assert.equal(2 + 1 + 2, count(g, 'amp_cast')) -- y twice, w, both outputs
    local a, b = g(x)
    local want_a, want_b = amp.autocast({dtype = low}, fn, x)
    H.same(a, want_a:float())
    H.same(b, want_b:float())
  end)

  it('puts no cast between a view that is written and its base', function()
    local l = nn.Linear(4, 4)
    local function fn(x)
      local h = l(x)
      h:reshape(-1):mul_(2)
      h:view(-1):add_(1)
      return h * 1
    end
    local x = amp.randn(2, 4)
    for _, given in ipairs {{fp32_ops = {'reshape', 'view'}}, {excluded_names = {'reshape', 'view'}}} do
      assert.is_true(amp.allclose(convert(fn, {x}, given)(x), fn(x), 2e-2, 2e-2))
    end
  end)

  it('gives lower, fp32, widest and other ops what they want', function()
    local l = nn.Linear(4, 4)
    local function fn(x)
      local h = l(x)
      return amp.cat({h, x}, 1), h:relu(), h:exp(), amp.stack({h, h})
    end
    local g = convert(fn, {amp.randn(2, 4)})
    assert.same({low, 'float32'}, {node_of(g, 'relu').outputs[1].dtype, node_of(g, 'exp').outputs[1].dtype})
    assert.same({'float32', 'float32'}, dtypes_in(g, 'cat'))
    assert.same({low, low}, dtypes_in(g, 'stack'))
    assert.equal(1, count(g, 'amp_multicast'))
    assert.equal('float32', node_of(g, 'cat').outputs[1].dtype)
    for _, y in ipairs {g(amp.randn(2, 4))} do assert.equal('float32', y.dtype) end
  end)

  it('leaves parameters and statistics of batch norm in float32, which its data passes', function()
    local net = nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.ReLU())
    local x = amp.randn(4, 2, 8)
    for _, given in ipairs {{}, {target_dtype_ops = {'BatchNorm', 'Convolution'}}, {fp32_ops = {'BatchNorm'}}} do
      given.example_inputs, given.target_dtype = {x}, low
      local g = amp.convert_model(net, given)
      for _, node in ipairs(g:nodes()) do
        if node.op == 'batch_norm' then
          local of = dtypes_in(g, node.name)
          assert.same({'float32', 'float32', 'float32', 'float32'}, {of[2], of[3], of[4], of[5]})
          assert.equal(given.fp32_ops and 'float32' or low, of[1])
        end
      end
      local before = g:buffers()[1]:clone()
      g(x)
      assert.is_false(amp.equal(before, g:buffers()[1]))
      assert.is_true(amp.equal(net[2].running_mean, amp.zeros(3)))
    end
  end)

  it('adds nothing when it is done twice, and converts anew to another dtype', function()
    local net, x = mlp(), amp.randn(2, 4)
    local once = amp.convert_model(net, {example_inputs = {x}, target_dtype = low})
    local twice = amp.convert_model(once, {target_dtype = low})
    assert.same(ops_of(once), ops_of(twice))
    assert.equal(tostring(once), tostring(twice))
    local other = amp.convert_model(once, {target_dtype = 'float16'})
    assert.equal(0, count(other, 'amp_cast', low))
    assert.equal(count(once, 'amp_cast', low), count(other, 'amp_cast', 'float16'))
  end)

  it('has parameters of its own, tied ones tied', function()
    local net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[2].weight = net[1].weight
    local x = amp.randn(2, 4)
    local g = amp.graph.trace(net, {x})
    local c = amp.convert_model(g, {target_dtype = low})
    assert.equal(3, #c:parameters())
    local before = c(x)
    amp.no_grad(function() net[1].weight:zero_() end)
    H.same(c(x), before)
    c(x):sum():backward()
    assert.is_nil(net[1].weight.grad)
    assert.is_true(parameter(c, '1.weight').requires_grad)
    local halved = amp.convert_model(g, {target_dtype = low, cast_optional_params = true})
    assert.equal(3, #halved:parameters())
    assert.equal(low, parameter(halved, '1.weight').dtype)
  end)

  it('keeps memory that constants and parameters share shared', function()
    local l = nn.Linear(4, 4)
    local half = l.weight:detach():narrow(1, 1, 2)
    local function fn(x) return l(x), x:matmul(half:t()) end
    local x = amp.randn(2, 4)
    local g = convert(fn, {x})
    amp.no_grad(function() g:parameters()[1]:zero_() end)
    local _, y = g(x)
    H.same(y, amp.zeros(2, 2))
  end)

  it('takes a module with example_inputs, a function, and a graph', function()
    local net, x = mlp(), amp.randn(2, 4)
    local g = amp.convert_model(net, {example_inputs = x})
    assert.equal(amp.get_autocast_dtype(), g:nodes()[1].attrs.dtype)
    assert.is_true(amp.graph.is(amp.convert_model(function(y) return y * 2 end, {example_inputs = {x}})))
    assert.is_true(amp.graph.is(amp.graph.convert(g)))
  end)

  it('leaves graphs without ops, and integers, doubles and numbers, as they are', function()
    local x = amp.randn(2)
    H.same(convert(function(y) return y end, {x})(x), x)
    local g = convert(function() return amp.ones(2) end, {})
    H.same(g(), amp.ones(2))
    assert.is_nil((convert(function() end, {})()))
    local i, d = amp.tensor({1, 2}, {dtype = 'int64'}), amp.randn(2, 2):double()
    g = convert(function(a, b) return a * 2, b:matmul(b), 2 ^ b, a:float() / 2 end, {i, d})
    assert.equal(0, count(g, 'amp_cast'))
    local a, b, c, e = g(i, d)
    assert.same({'int64', 'float64', 'float64', 'float32'}, {a.dtype, b.dtype, c.dtype, e.dtype})
  end)

  it('has several outputs, views and nested tables', function()
    local l = nn.Linear(4, 6)
    local function fn(x)
      local a, b = unpack(l(x):chunk(2, 2))
      local values, places = a:topk(2)
      return {a, {b = b:t()}}, values, places
    end
    local x = amp.randn(3, 4)
    local t, values, places = convert(fn, {x})(x)
    local want, want_values, want_places = amp.autocast({dtype = low}, fn, x)
    H.same(t[1], want[1]:float())
    H.same(t[2].b, want[2].b:float())
    H.same(values, want_values:float())
    H.same(places, want_places)
  end)

  it('draws what a region draws, and leaves the generator alone while it converts', function()
    local net, x = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), amp.randn(8, 4)
    local g = amp.graph.trace(net, {x})
    amp.manual_seed(4)
    local c = amp.convert_model(g, {target_dtype = low})
    local y = c(x)
    amp.manual_seed(4)
    H.same(y, amp.autocast({dtype = low}, net, x):float())
  end)

  it('leaves what has a region of its own to that; float32 where it is switched off', function()
    local l = nn.Linear(4, 4)
    local function fn(x)
      local y = amp.autocast({dtype = 'float16'}, function() return l(x) end)
      local z = amp.autocast({enabled = false}, function() return l(y:float()) end)
      return l(z)
    end
    local x = amp.randn(2, 4)
    local g = convert(fn, {x})
    local list = {}
    for i, node in ipairs(g:nodes()) do
      if node.op == 'linear' then list[#list + 1] = g:nodes()[i].outputs[1].dtype end
    end
    assert.same({'float16', 'float32', low}, list)
    H.same(g(x), amp.autocast({dtype = low}, fn, x):float())
  end)

  it('keeps sizes free', function()
    if not pcall(require, 'amp.graph.dynamic') then return end
    local net = mlp()
    local g = amp.convert_model(amp.graph.trace(net, {amp.randn(2, 4)}, {dynamic = {1}}), {target_dtype = low})
    for _, n in ipairs {1, 2, 7} do
      local x = amp.randn(n, 4)
      H.same(g(x), amp.autocast({dtype = low}, net, x):float())
    end
  end)

  it('stays as it is in a region, which casts what is left', function()
    local net, x = mlp(), amp.randn(2, 4)
    local g = amp.convert_model(net, {example_inputs = {x}, target_dtype = low, excluded_names = {'3'}})
    H.same(amp.autocast({dtype = low}, g, x), amp.autocast({dtype = low}, net, x))
    H.same(amp.autocast({enabled = false}, g, x), g(x))
  end)

  it('casts a weight once a version, like a region', function()
    local net, x = mlp(), amp.randn(2, 4)
    local g = amp.convert_model(net, {example_inputs = {x}, target_dtype = low})
    g(x)
    local before = amp.counters()
    g(x)
    local after = amp.counters()
    assert.equal(4, after.cached_casts - before.cached_casts)
    amp.no_grad(function() for _, p in ipairs(g:parameters()) do p:mul_(2) end end)
    amp.no_grad(function() for _, p in ipairs(net:parameters()) do p:mul_(2) end end)
    H.same(g(x), amp.autocast({dtype = low}, net, x):float())
  end)

  it('trains as a region does', function()
    local x, y = amp.randn(8, 4), amp.tensor({1, 2, 3, 1, 2, 3, 1, 2}, {dtype = 'int64'})
    local net = mlp()
    local g = amp.convert_model(net, {example_inputs = {x}, target_dtype = low})
    local a, b = amp.optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9}), amp.optim.SGD(g:parameters(), {lr = 0.1, momentum = 0.9})
    for _ = 1, 4 do
      a:zero_grad() b:zero_grad()
      F.cross_entropy(amp.autocast({dtype = low}, net, x):float(), y):backward()
      F.cross_entropy(g(x), y):backward()
      a:step() b:step()
    end
    for i, p in ipairs(net:parameters()) do
      H.same(g:parameters()[i], p)
      assert.equal('float32', g:parameters()[i].grad.dtype)
    end
  end)
end)

describe('lists of a conversion', function()
  local l = nn.Linear(4, 4)
  local function fn(x) return l(x):sin() + x:exp(), F.gelu(x, {approximate = 'tanh'}), F.gelu(x) end
  local function g(given) return convert(fn, {amp.randn(2, 4)}, given) end

  it('take the place of the default list of their kind', function()
    local c = g {target_dtype_ops = {'sin'}}
    assert.same({low}, dtypes_in(c, 'sin'))
    assert.equal('float32', node_of(c, 'linear').outputs[1].dtype)
    assert.same({low}, dtypes_in(g {fp32_ops = {}, target_dtype_ops = {'exp'}}, 'exp'))
    assert.equal('float32', node_of(g {fp32_ops = {'linear'}}, 'linear').outputs[1].dtype)
    assert.same({'float32'}, dtypes_in(g {fp32_ops = {'sin'}}, 'sin'))
    assert.equal(0, count(g {target_dtype_ops = {}}, 'amp_cast', low))
    assert.equal(low, node_of(g {target_dtype_ops = {'FullyConnected'}}, 'linear').outputs[1].dtype)
    assert.equal('float32', node_of(g {fp32_ops = {'FullyConnected'}}, 'linear').outputs[1].dtype)
    assert.same({low, low}, (function()
      local c2 = convert(function(x) return amp.cat({x, x}, 1) end, {amp.randn(2, 4)}, {target_dtype_ops = {'Concat'}})
      return dtypes_in(c2, 'cat')
    end)())
  end)

  it('of conditions compare attributes by name', function()
    local c = g {target_dtype_ops = {'sin'}, conditional_fp32_ops = {{'gelu', 'approximate', {'tanh'}}}}
    assert.equal(0, count(c, 'amp_cast', low) - 1)
    local function two(x)
      local h = l(x)
      return F.gelu(h, {approximate = 'tanh'}), F.gelu(h), h:softmax(2), h:softmax(1)
    end
    c = convert(two, {amp.randn(2, 4)}, {conditional_fp32_ops = {{'gelu', 'approximate', {'tanh'}}, {'softmax', 'dim', {1}}}})
    assert.same({'float32', low, low, 'float32'},
      {node_of(c, 'gelu').outputs[1].dtype, node_of(c, 'gelu_1').outputs[1].dtype, node_of(c, 'softmax').outputs[1].dtype,
        node_of(c, 'softmax_1').outputs[1].dtype})
    c = convert(function(x) return l(x):softplus(), l(x):relu() end, {amp.randn(2, 4)},
      {fp32_ops = {}, conditional_fp32_ops = {{'Activation', 'act_type', {'softrelu'}}}})
    assert.equal('float32', node_of(c, 'softplus').outputs[1].dtype)
    assert.equal(low, node_of(c, 'relu').outputs[1].dtype)
  end)

  it('of amp.init and amp.set_policy count, too', function()
    amp.set_policy('sin', 'fp32')
    local c = g()
    amp.reset_policy()
    assert.same({'float32'}, dtypes_in(c, 'sin'))
    local handle = amp.init {conditional_fp32_ops = {{'gelu', 'approximate', {'tanh'}}}, enabled = true}
    local ok, made = pcall(convert, function(x) return F.gelu(l(x), {approximate = 'tanh'}) end, {amp.randn(2, 4)})
    handle:deactivate()
    assert.is_true(ok, made)
    assert.equal('float32', node_of(made, 'gelu').outputs[1].dtype)
  end)

  it('let an op that wants equal dtypes follow its data, where no list has it', function()
    local net = nn.Sequential(nn.Conv1d(2, 3, 3), nn.Flatten(), nn.Linear(18, 2))
    local x = amp.randn(2, 2, 8)
    local c = amp.convert_model(net, {example_inputs = {x}, target_dtype = low, target_dtype_ops = {'Convolution'}})
    assert.same({low, low, low}, dtypes_in(c, '3'))
    assert.equal('float32', c(x).dtype)
    c = amp.convert_model(net, {example_inputs = {x}, target_dtype = low, target_dtype_ops = {'Convolution'}, cast_optional_params = true})
    assert.equal(low, parameter(c, '1.weight').dtype)
    assert.equal('float32', c(x).dtype)
  end)

  it('cast nothing of an op that an excluded name covers, and its neighbours', function()
    local net, x = mlp(), amp.randn(2, 4)
    local c = amp.convert_model(net, {example_inputs = {x}, target_dtype = low, excluded_sym_names = {'3'}})
    assert.same({'float32', 'float32', 'float32'}, dtypes_in(c, '3'))
    assert.same({low, low, low}, dtypes_in(c, '1'))
    local outer = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), nn.Linear(4, 4))
    c = amp.convert_model(outer, {example_inputs = {x}, target_dtype = low, excluded_names = {'1'}})
    assert.same({'float32', 'float32', low}, {node_of(c, '1.1').outputs[1].dtype, node_of(c, '1.2').outputs[1].dtype, node_of(c, '2').outputs[1].dtype})
  end)
end)

describe('cast_optional_params', function()
  it('stores a parameter low if every use of it is, by views as well', function()
    local l, m = nn.Linear(4, 4), nn.Linear(4, 4)
    local function fn(x) return m(x:matmul(l.weight:t())) + m.bias:exp() end
    local x = amp.randn(2, 4)
    local g = convert(fn, {x}, {cast_optional_params = true})
    local of = {}
    for _, p in g:named_parameters() do of[#of + 1] = p.dtype .. p:dim() end
    table.sort(of)
    assert.same({low .. '2', low .. '2', 'float321'}, of) -- m.bias goes to exp as well
    H.same(g(x), amp.autocast({dtype = low}, fn, x):float())
    g(x):sum():backward()
    for _, p in g:named_parameters() do assert.equal(p.dtype, p.grad.dtype) end
  end)

  it('keeps what a float32 op shares, what is an output, and what no op uses, in float32', function()
    local shared = nn.Module:extend 'Shared'
    function shared:init()
      self.first = nn.Linear(4, 4)
      self.second = nn.Linear(4, 4)
      self.conv = nn.Conv1d(1, 4, 3)
      self.second.weight, self.conv.bias = self.first.weight, self.second.bias
      self.unused, self.out = nn.Parameter(amp.ones(2)), nn.Parameter(amp.ones(2))
    end
    function shared:forward(x)
      x = self.first(x)
      return amp.cat({self.second(x), self.conv(x:unsqueeze(2)):flatten(2)}, 2), self.out
    end
    local net, x = shared(), amp.randn(4, 4)
    local g = amp.convert_model(net, {example_inputs = {x}, target_dtype = low, target_dtype_ops = {'FullyConnected'}, fp32_ops = {'Convolution'},
      cast_optional_params = true})
    assert.equal(low, parameter(g, 'first.weight').dtype)
    assert.equal(low, parameter(g, 'first.bias').dtype)
    for _, name in ipairs {'second.bias', 'conv.weight', 'unused', 'out'} do assert.equal('float32', parameter(g, name).dtype) end
  end)
end)

describe('the plain graph of a converted one', function()
  local strip = require('amp.graph.convert').strip
  it('has the nodes and dtypes of the original', function()
    local net, x = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Softmax(2)), amp.randn(2, 4)
    local g = amp.graph.trace(net, {x})
    for _, optional in ipairs {false, true} do
      local c = amp.convert_model(g, {target_dtype = low, cast_optional_params = optional})
      local plain = strip(c)
      assert.equal(tostring(g), tostring(plain))
      if optional then
        assert.is_true(amp.allclose(plain(x), g(x), 1e-2, 1e-2))
        assert.equal(low, parameter(c, '1.weight').dtype)
      else H.same(plain(x), g(x)) end
    end
    assert.equal(g, strip(g))
  end)

  it('leaves running statistics alone', function()
    local net, x = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), amp.randn(8, 4)
    local c = amp.convert_model(net, {example_inputs = {x}, target_dtype = low})
    strip(c)
    H.same(c:buffers()[1], amp.zeros(4))
  end)
end)

describe('wrong conversions', function()
  local net, x = mlp(), amp.randn(2, 4)
  local g = amp.graph.trace(net, {x})
  local function fails(given, ...) return H.fails(function() amp.convert_model(g, given) end, 'convert_model', ...) end

  it('name the option, the op, the lists', function()
    fails({target_dtyp = 'float16'}, 'target_dtyp', "did you mean 'target_dtype'")
    fails({target_dtype = 'float32'}, 'target_dtype', 'float32')
    fails({target_dtype = 'int64'}, 'target_dtype', 'int64')
    fails({target_dtype = 'float17'}, 'float17')
    fails({target_dtype = 'float8'}, "'float16' or 'bfloat16', got 'float8'")
    fails({target_dtype = 16}, '16')
    fails({cast_optional_params = 1}, 'cast_optional_params')
    fails({target_dtype_ops = {'linear'}, fp32_ops = {'FullyConnected'}}, 'linear', 'fp32_ops', 'target_dtype_ops')
    fails({target_dtype_ops = {'gelu'}, conditional_fp32_ops = {{'gelu', 'approximate', {'tanh'}}}}, 'gelu', 'target_dtype_ops', 'conditional_fp32_ops')
    fails({fp32_ops = {'Activation'}, conditional_fp32_ops = {{'Activation', 'act_type', {'softrelu'}}}}, 'softplus', 'Activation', 'fp32_ops')
    fails({target_dtype_ops = {'Activation'}, fp32_ops = {'Activation'}}, 'Activation')
    fails({fp32_ops = {'liner'}}, "no op 'liner'", 'linear')
    fails({target_dtype_ops = {1}}, 'target_dtype_ops')
    fails({target_dtype_ops = 'linear'}, 'target_dtype_ops', 'list')
    fails({target_dtype_ops = {a = 'linear'}}, 'target_dtype_ops')
    fails({fp32_ops = {'exp', 'exp'}}, 'exp', 'twice')
    fails({conditional_fp32_ops = {{'gelu', 'aproximate', {'tanh'}}}}, 'aproximate', "did you mean 'approximate'")
    fails({conditional_fp32_ops = {{'gelu', 'approximate', {'sin'}}}}, 'sin', 'none, tanh')
    fails({conditional_fp32_ops = {{'linear', 'no_bias', {'True'}}}}, 'linear', 'no_bias')
    fails({conditional_fp32_ops = {'gelu'}}, 'conditional_fp32_ops[1]', '{op, attribute, {values}}')
    fails({conditional_fp32_ops = {{'gelu', 'approximate', {}}}}, 'conditional_fp32_ops[1]')
    fails({conditional_fp32_ops = 3}, 'conditional_fp32_ops')
    fails({excluded_names = {'33'}}, "no node '33'")
    fails({excluded_names = 3}, 'excluded_names')
    fails({excluded_names = {3}}, 'excluded_names[1]')
    fails({excluded_names = {'1'}, excluded_sym_names = {'1'}}, 'one option')
    fails({fp32_ops = {'amp_cast'}}, 'amp_cast')
    fails({example_inputs = 3}, 'example_inputs')
    fails({example_inputs = {x, x}}, 'takes 1 argument', 'got 2')
    fails({example_inputs = {x = x}}, 'example_inputs', 'x')
    fails(3, 'options')
    fails('float16', 'options')
  end)

  it('name what is converted', function()
    local function bad(v, given, ...) return H.fails(function() amp.convert_model(v, given) end, 'convert_model', ...) end
    bad(nil, nil, 'nil')
    bad(3, {}, '3')
    bad({}, {}, 'table')
    bad(x, {}, 'graph')
    bad(net, nil, 'example_inputs')
    bad(net, {target_dtype = low}, 'example_inputs = {x}')
    H.fails(function() amp.convert_model(g, {}, {target_dtype = low}) end, 'convert_model', 'options')
    H.fails(function() amp.graph.convert(net, {}) end, 'graph.convert')
    H.fails(function() amp.convert_model(net, {example_inputs = {amp.randn(2, 5)}}) end, '5')
  end)

  it('are refused while a graph is recorded', function()
    H.fails(function() amp.graph.trace(function(y) return amp.convert_model(g)(y) end, {x}) end, 'convert_model', 'recorded')
  end)

  it('leave the state as it was', function()
    amp.autocast({dtype = 'float16'}, function()
      assert.is_false(pcall(amp.convert_model, g, {excluded_names = {'nothing'}}))
      amp.convert_model(g)
      assert.is_true(amp.is_autocast_enabled())
      assert.equal('float16', amp.convert_model(g):nodes()[1].attrs.dtype)
    end)
    assert.is_true(amp.is_grad_enabled())
  end)
end)
