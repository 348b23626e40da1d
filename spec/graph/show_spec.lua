--- How graphs are looked at: print(g), g:save_dot, amp.plot.graph, amp.summary, amp.doctor, unknown names.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local nn, F = amp.nn, amp.nn.functional

local function lines_of(g)
  local list = {}
  for line in tostring(g):gmatch '[^\n]+' do list[#list + 1] = line end
  return list
end

local function read(path)
  local text = H.read(path)
  os.remove(path)
  return text
end

local input = amp.randn(2, 4)

describe('print(g)', function()
  it('shows a head with the inputs, and a line a node', function()
    local net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    assert.same({
      'Graph(input: float32 2x4) -> 3',
      '  1: float32 2x8 = linear(input, 1.weight, 1.bias)',
      '  2: float32 2x8 = relu(1)',
      '  3: float32 2x3 = linear(2, 3.weight, 3.bias)',
    }, lines_of(amp.trace(net, input)))
  end)

  it('shows numbers as numbers, attributes that are not the defaults, and in-place ops with their line below', function()
    assert.same({
      'Graph(x: float32 2x4) -> mul, sum',
      '  mul: float32 2x4 = mul(x, 0.1)',
      '  mul: float32 2x4 = add_(mul, -2)',
      '  sum: float32 2 = sum(mul, dim = {2})',
    }, lines_of(amp.trace(function(x)
      local y = x * 0.1
      y:add_(-2)
      return y, y:sum(2)
    end, input)))
  end)

  it('gives free sizes letters, tied ones the same, and says what they were', function()
    local g = amp.graph.trace(function(a, b) return (a + b):view(a:size(1) * 2, 2), a:size(1) * a end, {amp.randn(3, 4), amp.randn(3, 4)}, {dynamic = {1}})
    local list = lines_of(g)
    assert.equal('Graph(a: float32 nx4, b: float32 nx4) -> view, mul  [free sizes, as recorded: n was 3]', list[1])
    assert.is_truthy(list[3]:find('view(add, shape = {2*n, 2})', 1, true), list[3])
    assert.is_truthy(list[4]:find('mul(n, a)', 1, true), list[4])
    local two = amp.graph.trace(function(a, b) return a:sum() + b:sum() end, {amp.randn(3, 4), amp.randn(5)}, {dynamic = {1}})
    assert.equal('Graph(a: float32 nx4, b: float32 m) -> add  [free sizes, as recorded: n was 3, m was 5]', lines_of(two)[1])
  end)

  it('shows modes and regions that are the function\'s own', function()
    local list = lines_of(amp.trace(function(x)
      local y = amp.no_grad(function() return x * 2 end)
      return amp.autocast(function() return y:matmul(x:t()) end, {dtype = 'bfloat16'}), amp.autocast(function() return x:exp() end, {enabled = false})
    end, input))
    assert.is_truthy(list[2]:find('  [no_grad]', 1, true), list[2])
    local text = table.concat(list, '\n')
    assert.is_truthy(text:find('autocast bfloat16 on cpu', 1, true), text)
    assert.is_truthy(text:find('no autocast on cpu', 1, true), text)
  end)

  it('marks what passes did', function()
    local net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 5), nn.ReLU()):eval()
    local text = tostring(amp.trace(net, amp.randn(2, 1, 4, 4)):optimize())
    assert.is_truthy(text:find('[kept between runs]', 1, true), text)
    assert.is_truthy(text:find('[joined: conv2d, batch_norm]', 1, true), text)
    assert.is_truthy(text:find('act = relu)  [joined: linear, relu]', 1, true), text)
    if H.device == 'cuda' then return end
    text = tostring(amp.trace(function(a) return (a * 2):exp():tanh() end, amp.randn(200, 200)):optimize())
    local _, count = text:gsub('%[chain 1%]', '')
    assert.equal(3, count, text)
  end)

  it('leaves out results that backward alone reads, and absent operands at the end', function()
    local g = amp.trace(function(x) return F.layer_norm(x, {4}) end, input)
    assert.equal('  layer_norm: float32 2x4 = layer_norm(x, shape = {4})', lines_of(g)[2])
    g = amp.trace(function(x) return F.layer_norm(x, {4}, nil, amp.ones(4)) end, input)
    assert.is_truthy(tostring(g):find('layer_norm(x, nil, ', 1, true))
  end)

  it('shows special numbers and words', function()
    local text = tostring(amp.trace(function(x) return x:clamp(-math.huge, 0.5), x * (0 / 0), F.gelu(x, 'tanh') end, input))
    assert.is_truthy(text:find('min = -inf, max = 0.5', 1, true), text)
    assert.is_truthy(text:find('mul(x, nan)', 1, true), text)
    assert.is_truthy(text:find('approximate = tanh', 1, true), text)
  end)

  it('is the same of a graph that was saved and loaded', function()
    local path = H.tmp 'shown'
    local g = amp.trace(nn.Sequential(nn.Linear(4, 4), nn.GELU()), input)
    g:save(path)
    assert.equal(tostring(g), tostring(amp.load_graph(path)))
    os.remove(path)
  end)
end)

describe('g:save_dot', function()
  it('writes exactly that path: modules as boxes, casts in a colour, inputs and parameters in shapes of their own', function()
    local net = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2))
    local g = amp.convert_model(net, {example_inputs = {input}, target_dtype = 'bfloat16'})
    local path = H.tmp 'shown.graph'
    assert.equal(g, g:save_dot(path))
    local text = read(path)
    assert.is_truthy(text:find '^digraph')
    local _, open = text:gsub('{\n', '')
    local _, closed = text:gsub('}\n', '')
    assert.equal(open, closed)
    for _, piece in ipairs {'subgraph cluster_1', 'label="1";', 'fillcolor="#f6b26b"', 'shape=invhouse', '1.1.weight', 'dtype = bfloat16', '-> o1'} do
      assert.is_truthy(text:find(piece, 1, true), piece)
    end
    for from, to in text:gmatch '(%w+) %-> (%w+);' do
      assert.is_truthy(text:find('  ' .. from .. ' [label=', 1, true), from)
      assert.is_truthy(text:find('  ' .. to .. ' [label=', 1, true), to)
    end
  end)

  it('escapes what names hold', function()
    local g = amp.graph.trace(function(a) return a + 1 end, {input}, {names = {'a "quoted\\ name\nof lines'}})
    local path = H.tmp 'shown'
    g:save_dot(path)
    assert.is_truthy(read(path):find('label="a \\"quoted\\\\ name\\nof lines\\n', 1, true))
  end)

  it('draws a write after the node that wrote before', function()
    local g = amp.trace(function(a) local b = a * 2; b:add_(1); b:mul_(3); return b end, input)
    local path = H.tmp 'shown'
    g:save_dot(path)
    local text = read(path)
    for _, edge in ipairs {'n1 -> n2', 'n2 -> n3', 'n3 -> o1'} do assert.is_truthy(text:find(edge, 1, true), edge) end
    assert.is_nil(text:find('n1 -> n3', 1, true))
  end)

  it('says what is wrong with a path', function()
    local g = amp.trace(nn.Linear(4, 2), input)
    H.fails(function() g:save_dot() end, "a path is expected, got nil: g:save_dot 'net.dot'")
    H.fails(function() g:save_dot '/nowhere/at/all.dot' end, "graph.save_dot: cannot write '/nowhere/at/all.dot'")
    H.fails(function() g:save_dot('x.dot', {}) end, 'takes no options')
  end)
end)

describe('amp.plot.graph', function()
  -- Pixels of a colour in the raster of a picture.
  local function colours(picture)
    local path = H.tmp 'shown'
    picture:save(path)
    local bytes = read(path)
    assert.equal('\137PNG', bytes:sub(1, 4))
    local function number(at) return ((bytes:byte(at) * 256 + bytes:byte(at + 1)) * 256 + bytes:byte(at + 2)) * 256 + bytes:byte(at + 3) end
    return number(17), number(21), bytes
  end

  it('draws a PNG, in place of Graphviz', function()
    local g = amp.trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), input)
    local w, h, bytes = colours(amp.plot.graph(g))
    assert.is_true(w > 80 and h > 150)
    local again = amp.plot.graph(g, {title = 'a title that is longer than the picture is wide'})
    assert.is_true(colours(again) > w)
    assert.equal(bytes, amp.plot.graph(g):png())
    assert.equal(tostring(g), tostring(again))
  end)

  it('draws frames around the nodes of a module, where no other node comes between', function()
    local picture = H.tmp 'shown.png'
    -- Rows of pixels in which a frame's line runs over at least half of the width.
    local function frames(g)
      amp.plot.graph(g):save(picture)
      local image = amp.data.read_image(picture) -- 3 x h x w
      os.remove(picture)
      local line = (image[1]:eq(170) * 1):mul(image[2]:eq(170) * 1):mul(image[3]:eq(190) * 1)
      return line:sum(2):gt(image:size(3) / 2):sum():item()
    end
    local block = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    assert.equal(2, frames(amp.trace(nn.Sequential(nn.Linear(4, 4), block, nn.ReLU()), input)))
    assert.equal(6, frames(amp.trace(nn.Sequential(nn.Sequential(block, nn.Tanh()), nn.Sequential(nn.ReLU(), nn.Tanh())), input)))
    assert.equal(0, frames(amp.trace(nn.Linear(4, 4), input)))
  end)

  it('places boxes that do not overlap, below what they come from', function()
    local layers = require 'amp.plot.layers'
    local random = 7
    local function draw(n)
      random = (random * 16807) % 2147483647
      return random % n + 1
    end
    for _ = 1, 20 do
      local boxes, edges = {}, {}
      for i = 1, 30 do
        boxes[i] = {width = 20 + draw(60), height = 10 + draw(30)}
        for _ = 1, i > 1 and draw(3) - 1 or 0 do edges[#edges + 1] = {draw(i - 1), i} end
      end
      local width, height = layers.place(boxes, edges, 10, 20)
      for i, a in ipairs(boxes) do
        assert.is_true(a.x - a.width / 2 > -1e-6 and a.x + a.width / 2 < width + 1e-6 and a.y + a.height / 2 < height + 1e-6)
        for j = 1, i - 1 do
          local b = boxes[j]
          local apart = math.abs(a.x - b.x) >= (a.width + b.width) / 2 + 10 - 1e-6 or math.abs(a.y - b.y) >= (a.height + b.height) / 2 + 20 - 1e-6
          assert.is_true(apart)
        end
      end
      for _, e in ipairs(edges) do
        local a, b = boxes[e[1]], boxes[e[2]]
        assert.is_true(a.y + a.height / 2 < b.y - b.height / 2)
        assert.equal(a.x, e.points[1])
        assert.equal(b.y - b.height / 2, e.points[#e.points])
      end
    end
  end)

  it('draws casts orange and graphs without nodes, and says when there are too many', function()
    local g = amp.trace(function(a) return a end, input)
    assert.is_true(colours(amp.plot.graph(g)) > 10)
    local long = amp.trace(function(a) for _ = 1, 400 do a = a + 1 end return a end, input)
    H.fails(function() amp.plot.graph(long):png() end, '400 nodes would make a picture of')
    assert.equal('cast', require('amp.graph.dot').style_of {cast = true})
  end)

  it('says what it takes', function()
    H.fails(function() amp.plot.graph(nn.Linear(2, 2)) end, 'a graph is expected')
    H.fails(function() amp.plot.graph(amp.trace(nn.Linear(4, 2), input), 'net.png') end, "amp.plot.graph(g):save 'net.png'")
    H.fails(function() amp.plot.graph(amp.trace(nn.Linear(4, 2), input), {titel = 'x'}) end, "unknown option 'titel'")
  end)
end)

describe('amp.summary and amp.doctor', function()
  it('count casts and bytes of a graph, and say what was joined', function()
    local net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    local g = amp.trace(net, input)
    local r = amp.summary(g)
    assert.same({3, 0, 0, false}, {#r, r.casts, r.kept, r.optimized})
    assert.equal((2 * 4 + 8 * 4 + 8 + 2 * 8) * 4, r[1].bytes)
    assert.equal(r[1].bytes + r[2].bytes + r[3].bytes, r.bytes)
    assert.same({first = '1', second = '2', as = 'linear_act', why = 'no pass has run here: g:optimize()'}, r.missed[1])
    r = amp.summary(g:optimize())
    assert.same({{name = '2', op = 'linear_act', was = {'linear', 'relu'}}}, r.joined)
    assert.equal(0, #r.missed)
    r = amp.summary(amp.convert_model(net, {example_inputs = {input}, target_dtype = 'bfloat16'}))
    assert.equal(6, r.casts)
    assert.is_true(r.cast_bytes > 0 and r.cast_bytes < r.bytes)
  end)

  it('count no bytes of views and of what stays in a chain', function()
    local r = amp.summary(amp.trace(function(a) return a:t(), a:flatten() end, input))
    assert.equal(0, r.bytes)
    if H.device == 'cuda' then return end
    r = amp.summary(amp.trace(function(a) return (a * 2):exp():tanh() end, amp.randn(200, 200)):optimize())
    assert.equal(2 * 200 * 200 * 4, r.bytes)
    assert.equal(1, r.chains)
  end)

  it('say why a pair was not joined', function()
    local net = nn.Linear(4, 4)
    local function why(fn, given, ...)
      local g = amp.trace(fn, ...)
      if given then g:optimize(given) end
      return amp.summary(g).missed[1].why
    end
    assert.equal("'linear' is an output", why(function(a) local h = net(a); return h, h:relu() end, {}, input))
    assert.equal("'linear' is read by tanh as well", why(function(a) local h = net(a); return h:tanh() + h:relu() end, {}, input))
    assert.equal('they are in different modes or regions', why(function(a)
      local h = amp.no_grad(function() return net(a) end)
      return h:relu()
    end, {}, input))
    assert.equal('this pass was switched off', why(function(a) return net(a):relu() end, {fuse = false}, input))
    assert.equal('no pass has run here: g:optimize()', why(function(a) return net(a):relu() end, nil, input))
    local plain, other = nn.Linear(4, 4, {bias = false}), amp.randn(4, {requires_grad = true})
    local row = amp.randn(1, 4, {requires_grad = true})
    assert.is_truthy(why(function(a) return plain(a) + other end, {}, input):find('amp.compile', 1, true))
    assert.equal('shapes or dtypes are not those of the join', why(function(a) return plain(a) + row end, {}, input))
    amp.set_policy('gelu', 'fp32')
    local set = why(function(a) return F.gelu(net(a)) end, {}, input)
    amp.reset_policy()
    assert.equal('a class was set for one of the ops: amp.set_policy', set)
    for _, sum in ipairs {function(a) return a + plain(a) end, function(a) return a + net(a) end, function(a) return plain(a) + a:exp() end} do
      for _, m in ipairs(amp.summary(amp.trace(sum, input):optimize()).missed) do assert.equal('a chain', m.as) end -- no bias
    end
    if input.device == 'cpu' then
      assert.is_truthy(why(function(a) return F.layer_norm(a + net(a), {4}) end, {}, input):find('on a GPU alone', 1, true))
      local f = amp.compile(function(a) return net(a):relu() end)
      local r = amp.doctor(function() f(input):sum():backward() end, {print = false})
      assert.is_truthy(r.graphs[1].report.missed[1].why:find('steps that train', 1, true))
    end
    local conv = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    assert.is_truthy(why(conv, {}, amp.randn(2, 1, 4, 4)):find('training mode', 1, true))
    assert.is_nil(amp.summary(amp.trace(conv:eval(), amp.randn(2, 1, 4, 4)):optimize()).missed[1])
  end)

  it('tell of the graphs that a step runs as', function()
    local net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    local opt = amp.optim.SGD(net:parameters(), {lr = 0.1})
    local y = amp.tensor({1, 2}, {dtype = 'int64'})
    local loss = amp.compile(function(a) return F.cross_entropy(net(a), y) end)
    local warn = amp.warn
    amp.warn = function() end
    local reads = amp.compile(function(a) return a * a:sum():item() end)
    local r = amp.doctor(function()
      loss(input):backward()
      reads(input)
      opt:step():clear_grad()
    end, {print = false})
    amp.warn = warn
    assert.equal(2, #r.graphs)
    assert.equal('loss', r.graphs[1].name)
    assert.is_true(r.graphs[1].report.optimized)
    assert.is_truthy(r.graphs[2].why:find('its value is read', 1, true))
    assert.is_truthy(tostring(r):find('graph loss: nodes: ', 1, true))
    local found
    for _, f in ipairs(r.findings) do found = found or f.kind == 'graph' and f.text end
    assert.is_truthy(found:find('reads was to run as a graph', 1, true))
    assert.equal(4, #r.underflow)
  end)

  it('take graphs by themselves', function()
    local g = amp.trace(nn.Linear(4, 2), input)
    assert.equal(tostring(amp.summary(g)), tostring(amp.doctor(g, {print = false})))
    H.fails(function() amp.summary(g, {2, 4}) end, 'a graph knows its inputs')
    H.fails(function() amp.doctor(g, {steps = 2}) end, "unknown option 'steps'")
  end)
end)

describe('names that are not there', function()
  it('get the closest one, or what it is called here', function()
    local g = amp.trace(nn.Linear(4, 2), input)
    H.fails(function() amp.policy 'liner' end, "there is no op 'liner', did you mean 'linear'?")
    H.fails(function() amp.policy 'Liner' end, "there is no op 'Liner', did you mean 'Linear'?")
    H.fails(function() return g.optimise end, "a graph has no 'optimise', did you mean 'optimize'?")
    H.fails(function() return g:forward(input) end, "a graph has no 'forward'; here: g(x), or g:run(x)")
    H.fails(function() return amp.graph.trac end, "amp.graph has no 'trac', did you mean 'trace'?")
    H.fails(function() return amp.graph.compile end, "amp.graph has no 'compile'; here: amp.compile(fn)")
    assert.is_nil(g._private)
    assert.is_false(amp.trace(nn.Linear(4, 2):eval(), input).training)
  end)

  it('are completed at the prompt, with help', function()
    local eval, complete, names = require 'amp.repl.eval', require 'amp.repl.complete', require 'amp.repl.names'
    eval.env.shown_graph = amp.trace(nn.Linear(4, 2), input)
    local got = complete 'shown_graph:s'
    assert.same({'save', 'save_dot'}, got.words)
    local all = names.members(eval.env.shown_graph)
    assert.is_true(all.training and all.nodes and not all.handle and not all.plan)
    for name, f in pairs(require('amp.graph.graph').methods) do
      local doc = require('amp.repl.ldoc').of_function(f)
      assert.is_true(doc ~= nil and #doc.text > 0, name)
    end
    eval.env.shown_graph = nil
  end)
end)
