--- ONNX: models that other programs wrote, with their results (spec/fixtures/make_onnx.py, make_onnx_quantized.py); graphs written and read again; what is
-- refused, and that damaged files and failed exports leave nothing.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local wire = require 'amp.io.onnx.wire'
local proto = require 'amp.io.onnx.proto'
local nn, F = amp.nn, amp.nn.functional

local folder = H.root and H.root .. '/spec/fixtures/onnx/' or debug.getinfo(1, 'S').source:match '^@(.*)graph/[^/]*$' .. 'fixtures/onnx/'
local path = H.tmp 'model.onnx'
teardown(function() os.remove(path) end)

local function near(label, got, want, tolerance)
  assert.equal(tostring(want:size()), tostring(got:size()), label)
  assert.equal(want.dtype, got.dtype, label)
  if want:numel() == 0 then return end
  local off = (got:detach():to('float64') - want:detach():to('float64')):abs():max():item()
  assert.is_true(off <= (tolerance or 1e-5), ('%s: off by %g'):format(label, off))
end

local function numbered(arrays, word)
  local list = {}
  while arrays[word .. #list] do list[#list + 1] = arrays[word .. #list] end
  return list
end

-- A model that is written again has the same names.
local function again_names(g)
  g:export_onnx(path)
  local h = amp.io.onnx.load(path)
  assert.same(g:inputs(), h:inputs())
  assert.same(g:outputs(), h:outputs())
end

describe('amp.io.onnx.load', function()
  for _, name in ipairs {'torch_mlp', 'torch_images', 'torch_conv', 'windows', 'recurrent', 'shapes', 'quantized', 'control'} do
    it('gives what the model gives: ' .. name, function()
      local arrays = amp.io.load_npz(folder .. name .. '.npz')
      local g = amp.io.onnx.load(folder .. name .. '.onnx')
      local want = numbered(arrays, 'out')
      local got = {g(unpack(numbered(arrays, 'in')))}
      assert.equal(#want, #got)
      assert.equal(#want, #g:outputs())
      local loss = 0
      for i, t in ipairs(want) do
        near('result ' .. i, got[i], t)
        if got[i]:is_floating_point() then loss = loss + got[i]:pow(2):sum() end
      end
      local trained = 0
      if name:find '^torch' then
        loss:backward()
        for parameter, t in g:named_parameters() do
          local gradient = arrays['grad.' .. parameter]
          if gradient then
            near('gradient of ' .. parameter, t.grad, gradient, 1e-4)
            trained = trained + 1
          end
        end
        assert.is_true(trained >= 4)
      end
    end)
  end

  it('calls parameters, inputs and outputs as the file does, in its order', function()
    local g = amp.io.onnx.load(folder .. 'torch_mlp.onnx')
    local names = {}
    for name, t in g:named_parameters() do
      names[#names + 1] = name
      assert.is_true(t.requires_grad)
    end
    assert.same({'0.weight', '0.bias', '2.weight', '2.bias', '3.weight', '3.bias'}, names)
    assert.same({'x0'}, g:inputs())
    again_names(g)
  end)

  it('follows free sizes', function()
    local g = amp.io.onnx.load(folder .. 'torch_images.onnx')
    local x = numbered(amp.io.load_npz(folder .. 'torch_images.npz'), 'in')[1]
    local one = g(x)
    local three = g(amp.cat({x, x[{{1, 1}}]}, 1))
    near('rows', three[{{1, 2}}], one)
    near('the third', three[{{3, 3}}], one[{{1, 1}}])
    g = amp.io.onnx.load(folder .. 'torch_images.onnx', {shapes = {x0 = {2, 2, 8, 8}}})
    near('fixed', (g(x)), one)
    assert.error_matches(function() g(amp.zeros(3, 2, 8, 8)) end, 'x0')
  end)

  local function written(model)
    local f = assert(io.open(path, 'wb'))
    wire.put(wire.encode(model, proto.model), function(text) f:write(text) end)
    f:close()
    return path
  end

  local function info(name, ...)
    local dims = {}
    for i, s in ipairs {...} do dims[i] = type(s) == 'string' and {dim_param = s} or {dim_value = s} end
    return {name = name, type = {tensor_type = {elem_type = 1, shape = {dim = dims}}}}
  end

  local function model(nodes, opset, changes)
    local m = {ir_version = 8, opset_import = {{domain = '', version = opset or 17}},
      graph = {name = 'g', node = nodes, input = {info('x', 2, 3)}, output = {info('y', 2, 3)}}}
    for k, v in pairs(changes or {}) do m.graph[k] = v end
    return written(m)
  end

  -- What NonMaxSuppression gives, box by box.
  local function suppressed(boxes, scores, o)
    local rows = {}
    local function area(b) return (b[3] - b[1]) * (b[4] - b[2]) end
    local function overlap(a, b)
      local h, w = math.min(a[3], b[3]) - math.max(a[1], b[1]), math.min(a[4], b[4]) - math.max(a[2], b[2])
      if h <= 0 or w <= 0 then return 0 end
      return h * w / (area(a) + area(b) - h * w)
    end
    for b, classes in ipairs(scores) do
      for c, list in ipairs(classes) do
        local order, kept = {}, {}
        for k, s in ipairs(list) do
          if s > o.least then order[#order + 1] = k end
        end
        table.sort(order, function(i, k) return list[i] > list[k] end)
        for _, k in ipairs(order) do
          local stays = #kept < o.most
          for _, other in ipairs(kept) do stays = stays and overlap(boxes[b][k], boxes[b][other]) <= o.iou end
          if stays then
            kept[#kept + 1] = k
            rows[#rows + 1] = {b - 1, c - 1, k - 1}
          end
        end
      end
    end
    return rows
  end

  -- A model of it whose bounds are constants.
  local function suppressor(o, center)
    local function constant(name, v, kind)
      local list = amp.tensor({v}, {dtype = kind})
      return {name = name, dims = {1}, data_type = kind == 'int64' and 7 or 1, [kind == 'int64' and 'int64_data' or 'float_data'] = list:tolist()}
    end
    return model({{op_type = 'NonMaxSuppression', name = 'nms', input = {'boxes', 'scores', 'most', 'iou', 'least'}, output = {'y'},
      attribute = center and {{name = 'center_point_box', type = 2, i = 1}} or {}}}, 17, {input = {info('boxes', 'b', 'n', 4), info('scores', 'b', 'c', 'n')},
      initializer = {constant('most', o.most, 'int64'), constant('iou', o.iou, 'float32'), constant('least', o.least, 'float32')},
      output = {{name = 'y', type = {tensor_type = {elem_type = 7}}}}})
  end

  it('transforms by Fourier, along any dimension, forth and back, shorter and longer', function()
    -- The transform of x (N x L x C x parts) along dimension 2, element by element.
    local function sums(x, length, count, sign)
      local out = {}
      for a, rows in ipairs(x) do
        out[a] = {}
        for k = 0, count - 1 do
          out[a][k + 1] = {}
          for c = 1, #rows[1] do
            local re, im = 0, 0
            for j = 0, math.min(length, #rows) - 1 do
              local v, angle = rows[j + 1][c], sign * 2 * math.pi * j * k / length
              local b = v[2] or 0
              re, im = re + v[1] * math.cos(angle) - b * math.sin(angle), im + v[1] * math.sin(angle) + b * math.cos(angle)
            end
            out[a][k + 1][c] = sign > 0 and {re / length, im / length} or {re, im}
          end
        end
      end
      return amp.tensor(out)
    end
    local function loaded(shape, attrs, length, opset, axis)
      local list, constants, names = {}, {}, {'x', length and 'length' or ''}
      for name, v in pairs(attrs) do list[#list + 1] = {name = name, type = 2, i = v} end
      if length then constants[1] = {name = 'length', dims = {}, data_type = 7, int64_data = {length}} end
      if axis then constants[#constants + 1], names[3] = {name = 'axis', dims = {}, data_type = 7, int64_data = {axis}}, 'axis' end
      return amp.io.onnx.load(model({{op_type = 'DFT', input = names, output = {'y'}, attribute = list}}, opset or 17,
        {input = {info('x', unpack(shape))}, initializer = constants, output = {{name = 'y', type = {tensor_type = {elem_type = 1}}}}}))
    end
    local real, complex = amp.randn(2, 5, 3, 1), amp.randn(2, 5, 3, 2)
    near('real', loaded({'n', 5, 3, 1}, {})(real), sums(real:tolist(), 5, 5, -1))
    near('complex', loaded({2, 5, 3, 2}, {axis = -3})(complex), sums(complex:tolist(), 5, 5, -1))
    near('one side', loaded({2, 5, 3, 1}, {onesided = 1})(real), sums(real:tolist(), 5, 3, -1))
    near('back', loaded({2, 5, 3, 2}, {inverse = 1})(complex), sums(complex:tolist(), 5, 5, 1))
    near('longer', loaded({2, 5, 3, 2}, {}, 8)(complex), sums(complex:tolist(), 8, 8, -1))
    near('shorter', loaded({2, 5, 3, 1}, {}, 4)(real), sums(real:tolist(), 4, 4, -1))
    local last = complex:transpose(2, 3)
    near('opset 20', loaded({2, 3, 5, 2}, {}, nil, 20)(last), sums(complex:tolist(), 5, 5, -1):transpose(2, 3))
    near('an axis', loaded({2, 5, 3, 2}, {}, nil, 20, 1)(complex), sums(complex:tolist(), 5, 5, -1))
    assert.error_matches(function() loaded({2, 5, 3, 2}, {onesided = 1}) end, 'DFT.*onesided')
    assert.error_matches(function() loaded({2, 5, 3, 2}, {axis = 3}) end, 'DFT')
  end)

  it('takes sizes of several names apart where it can, and as equal where it must', function()
    local y = {{name = 'y', type = {tensor_type = {elem_type = 1}}}}
    local either = {input = {info('x', 'a', 'b'), info('z', 'c', 'd')}, output = y}
    local chained = {input = {info('x', 'a', 'b'), info('z', 'b', 'c')}, output = y}
    local g = amp.io.onnx.load(model({{op_type = 'MatMul', input = {'x', 'z'}, output = {'y'}}}, 17, chained))
    assert.equal('5x7', tostring(g(amp.ones(5, 3), amp.ones(3, 7)):size()))
    g = amp.io.onnx.load(model({{op_type = 'Concat', input = {'x', 'z'}, output = {'y'}, attribute = {{name = 'axis', type = 2, i = 1}}}}, 17, either))
    assert.equal('5x10', tostring(g(amp.ones(5, 3), amp.ones(5, 7)):size()))
    assert.error_matches(function() g(amp.ones(5, 3), amp.ones(4, 7)) end, 'do not match')
  end)

  it('suppresses boxes: corners in any order, centres, any number of images, classes and boxes', function()
    local six = {{0, 0, 1, 1}, {0, 0.1, 1, 1.1}, {0, -0.1, 1, 0.9}, {0, 10, 1, 11}, {0, 10.1, 1, 11.1}, {0, 100, 1, 101}}
    local g = amp.io.onnx.load(suppressor {most = 3, iou = 0.5, least = 0})
    local scores = amp.tensor {{{0.9, 0.75, 0.6, 0.95, 0.5, 0.3}}}
    assert.same({{0, 0, 3}, {0, 0, 0}, {0, 0, 5}}, g(amp.tensor {six}, scores):tolist())
    local turned = {}
    for i, b in ipairs(six) do turned[i] = i % 2 == 0 and {b[3], b[4], b[1], b[2]} or {b[3], b[2], b[1], b[4]} end
    assert.same({{0, 0, 3}, {0, 0, 0}, {0, 0, 5}}, g(amp.tensor {turned}, scores):tolist())
    local centres = {}
    for i, b in ipairs(six) do centres[i] = {(b[2] + b[4]) / 2, (b[1] + b[3]) / 2, b[4] - b[2], b[3] - b[1]} end
    local h = amp.io.onnx.load(suppressor({most = 3, iou = 0.5, least = 0.4}, true))
    assert.same({{0, 0, 3}, {0, 0, 0}}, h(amp.tensor {centres}, scores):tolist())
    amp.manual_seed(4)
    for _, o in ipairs {{most = 4, iou = 0.3, least = 0.2}, {most = 100, iou = 0.6, least = -1}, {most = 0, iou = 0.5, least = 0}} do
      local any = amp.io.onnx.load(suppressor(o))
      for _, size in ipairs {{1, 1, 1}, {2, 3, 9}, {3, 1, 20}, {1, 2, 0}, {0, 2, 3}} do
        local corner = amp.rand(size[1], size[3], 2)
        local boxes, s = amp.cat({corner, corner + amp.rand(size[1], size[3], 2)}, 3), amp.rand(unpack(size))
        local y = any(boxes, s)
        local rows = size[1] * size[3] > 0 and suppressed(boxes:tolist(), s:tolist(), o) or {}
        assert.equal('int64', y.dtype)
        assert.equal(#rows .. 'x3', tostring(y:size()))
        if #rows > 0 then assert.same(rows, y:tolist()) end
      end
    end
    assert.error_matches(function() amp.io.onnx.load(suppressor({most = 1, iou = 0 / 0, least = 0})) end, 'NonMaxSuppression')
  end)

  it('names node, op and attribute of what it can\'t do', function()
    model {{op_type = 'Blink', name = 'first', input = {'x'}, output = {'y'}}}
    assert.error_matches(function() amp.io.onnx.load(path) end, "node 'first' %(Blink%)")
    model {{op_type = 'Relu', name = 'r', input = {'x'}, output = {'y'}, attribute = {{name = 'slope', type = 2, i = 1}}}}
    assert.error_matches(function() amp.io.onnx.load(path) end, "node 'r' %(Relu%).*'slope'")
    model {{op_type = 'Relu', domain = 'com.example', input = {'x'}, output = {'y'}}}
    assert.error_matches(function() amp.io.onnx.load(path) end, 'com.example')
    model({{op_type = 'Relu', input = {'x'}, output = {'y'}}}, 6)
    assert.error_matches(function() amp.io.onnx.load(path) end, 'opset 6')
    model {{op_type = 'Reshape', name = 's', input = {'x', 'x'}, output = {'y'}}}
    assert.error_matches(function() amp.io.onnx.load(path) end, "node 's' %(Reshape%).*operand 2")
    local mode = {{name = 'training_mode', type = 2, i = 1}}
    model {{op_type = 'BatchNormalization', name = 'b', input = {'x', 'x', 'x', 'x', 'x'}, output = {'y'}, attribute = mode}}
    assert.error_matches(function() amp.io.onnx.load(path) end, 'training mode')
    model {{op_type = 'Relu', input = {'z'}, output = {'y'}}}
    assert.error_matches(function() amp.io.onnx.load(path) end, "'z'")
  end)

  it('refuses control flow that depends on values, and bodies that are none', function()
    local function graph(nodes, inputs, outputs)
      local g = {node = nodes, input = {}, output = {}}
      for i, name in ipairs(inputs) do g.input[i] = {name = name} end
      for i, name in ipairs(outputs) do g.output[i] = {name = name} end
      return g
    end
    local function refused(nodes, ...)
      model(nodes)
      for _, text in ipairs {...} do
        local ok, e = pcall(amp.io.onnx.load, path)
        assert.is_false(ok)
        assert.is_truthy(tostring(e):find(text, 1, true), ('%s: %s'):format(text, tostring(e)))
      end
    end
    local function body(name, g) return {name = name, type = 5, g = g} end
    local yes, no = graph({{op_type = 'Neg', input = {'x'}, output = {'a'}}}, {}, {'a'}), graph({{op_type = 'Abs', input = {'x'}, output = {'b'}}}, {}, {'b'})
    local cast = {op_type = 'Cast', input = {'x'}, output = {'c'}, attribute = {{name = 'to', type = 2, i = 9}}}
    refused({cast, {op_type = 'If', name = 'choice', input = {'c'}, output = {'y'}, attribute = {body('then_branch', yes), body('else_branch', no)}}},
      "node 'choice' (If)", 'its condition depends')
    local around = graph({{op_type = 'Neg', input = {'nowhere'}, output = {'a'}}}, {}, {'a'})
    refused({cast, {op_type = 'If', input = {'c'}, output = {'y'}, attribute = {body('then_branch', around), body('else_branch', no)}}}, 'nowhere')
    refused({cast, {op_type = 'If', input = {'c'}, output = {'y'}, attribute = {{name = 'then_branch', type = 2, i = 1}, body('else_branch', no)}}},
      "'then_branch' is no graph")
    local count = {op_type = 'Constant', input = {}, output = {'n'}, attribute = {{name = 'value_int', type = 2, i = 1000000}}}
    local turn = graph({{op_type = 'Identity', input = {'go'}, output = {'on'}}, {op_type = 'Neg', input = {'v'}, output = {'w'}}},
      {'i', 'go', 'v'}, {'on', 'w'})
    refused({count, {op_type = 'Loop', name = 'long', input = {'n', '', 'x'}, output = {'y'}, attribute = {body('body', turn)}}},
      "node 'long' (Loop)", 'turns')
    refused({count, {op_type = 'Loop', input = {'x', '', 'x'}, output = {'y'}, attribute = {body('body', turn)}}}, 'its count depends')
    refused({count, {op_type = 'Loop', input = {'n', ''}, output = {'y'}, attribute = {body('body', turn)}}}, 'other inputs or outputs')
    refused({count, {op_type = 'Scan', input = {'x'}, output = {'y'}, attribute = {body('body', yes), {name = 'num_scan_inputs', type = 2, i = 1}}}},
      'other inputs or outputs')
  end)

  it('refuses shapes of more than 8 dimensions, wherever they come from', function()
    local function ints(name, list)
      return {name = name, dims = {#list}, data_type = 7, int64_data = list}
    end
    local ones, to_float = {}, {{name = 'to', type = 2, i = 1}}
    for i = 1, 300 do ones[i] = 1 end
    local after = {{op_type = 'Cast', input = {'r'}, output = {'f'}, attribute = to_float}, {op_type = 'Add', input = {'x', 'f'}, output = {'y'}}}
    for _, op in ipairs {'Reshape', 'Expand'} do
      for _, n in ipairs {9, 300} do
        model({{op_type = op, input = {'c', 'd'}, output = {'r'}}, unpack(after)}, 17, {initializer = {ints('c', {1}), ints('d', {unpack(ones, 1, n)})}})
        assert.error_matches(function() amp.io.onnx.load(path) end, path:match '[^/]*$')
      end
    end
    local axes = {}
    for i = 1, 9 do axes[i] = i - 1 end
    model({{op_type = 'Unsqueeze', input = {'c', 'd'}, output = {'r'}}, unpack(after)}, 17, {initializer = {ints('c', {1}), ints('d', axes)}})
    assert.error_matches(function() amp.io.onnx.load(path) end, path:match '[^/]*$')
    local memory, ffi = require 'amp.io.memory', require 'ffi'
    assert.error_matches(function() memory.tensor(ffi.new 'uint8_t[8]', 8, {1, 1, 1, 1, 1, 1, 1, 1, 1}, 'int64') end, 'at most 8')
  end)

  it('refuses joined and gathered tensors beyond max_bytes before it makes them', function()
    local many, before = {}, amp.memory('cpu').peak
    for i = 1, 60 do many[i] = 'c' end
    local large = {op_type = 'ConstantOfShape', input = {'n'}, output = {'c'}}
    local sizes, places = {name = 'n', dims = {2}, data_type = 7, int64_data = {1, 1000000}}, {}
    for i = 1, 60 do places[i] = 0 end
    local axis = {{name = 'axis', type = 2, i = 0}}
    for _, n in ipairs {{op_type = 'Concat', input = many, output = {'l'}, attribute = axis}, {op_type = 'Gather', input = {'c', 'i'}, output = {'l'}}} do
      model({large, n, {op_type = 'Relu', input = {'x'}, output = {'y'}}}, 17,
        {initializer = {sizes, {name = 'i', dims = {60}, data_type = 7, int64_data = places}}})
      assert.error_matches(function() amp.io.onnx.load(path, {max_bytes = 2 ^ 24}) end, 'max_bytes')
      assert.is_true(amp.memory('cpu').peak - before < 2e8) -- the result would have 240 MB
    end
  end)

  it('counts the turns of loops in one another, of bodies without nodes too', function()
    local function loop(name, body) return {op_type = 'Loop', name = name, input = {'n'}, output = {}, attribute = {{name = 'body', type = 5, g = body}}} end
    local function body(k, nodes)
      return {node = nodes, input = {{name = 'i' .. k}, {name = 'go' .. k}}, output = {{name = 'go' .. k}}}
    end
    local count = {op_type = 'Constant', input = {}, output = {'n'}, attribute = {{name = 'value_int', type = 2, i = 1000}}}
    model {count, loop('outer', body(1, {loop('inner', body(2, {}))})), {op_type = 'Relu', input = {'x'}, output = {'y'}}}
    assert.error_matches(function() amp.io.onnx.load(path) end, 'too much to be written out')
  end)

  it('knows softmax of before opset 13: over all dimensions from the axis on', function()
    model({{op_type = 'Softmax', input = {'x'}, output = {'y'}, attribute = {{name = 'axis', type = 2, i = 0}}}}, 11)
    local x = amp.randn(2, 3)
    local g = amp.io.onnx.load(path)
    near('softmax', g(x), x:view(-1):softmax(1):view(2, 3))
    assert.same({'x'}, g:inputs())
  end)

  it('reads data that lie beside the file, and nothing outside of its folder', function()
    local name = path:match '[^/]*$' .. '.data'
    local f = assert(io.open(path .. '.data', 'wb'))
    f:write(('\0\0\128\63'):rep(6))
    f:close()
    local function weights(location)
      return {{name = 'w', dims = {2, 3}, data_type = 1, data_location = 1, external_data = {{key = 'location', value = location}}}}
    end
    model({{op_type = 'Add', input = {'x', 'w'}, output = {'y'}}}, 17, {initializer = weights(name)})
    near('sum', amp.io.onnx.load(path)(amp.zeros(2, 3)), amp.ones(2, 3))
    model({{op_type = 'Add', input = {'x', 'w'}, output = {'y'}}}, 17, {initializer = weights('../' .. name)})
    assert.error_matches(function() amp.io.onnx.load(path) end, 'out of the model')
    os.remove(path .. '.data')
  end)

  it('refuses damaged files by name', function()
    local f = assert(io.open(folder .. 'torch_mlp.onnx', 'rb'))
    local text = f:read '*a'
    f:close()
    for _, damaged in ipairs {text:sub(1, -20), text:sub(1, 40), '', 'x', ('\255'):rep(40), '\58' .. ('\255'):rep(9) .. '\1', ('\58\2'):rep(400)} do
      f = assert(io.open(path, 'wb'))
      f:write(damaged)
      f:close()
      local ok, e = pcall(amp.io.onnx.load, path)
      assert.is_false(ok)
      assert.is_truthy(tostring(e):find(path, 1, true))
    end
  end)
end)

describe('g:export_onnx', function()
  local function again(g, ...)
    g:export_onnx(path)
    local h = amp.io.onnx.load(path)
    local want, got = {g(...)}, {h(...)}
    for i, t in ipairs(want) do near('result ' .. i, got[i], t) end
    return h
  end

  it('writes models that give what the graph gives, indices from 1', function()
    local net = nn.Sequential(nn.Conv2d(1, 4, 3, {padding = 1}), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.3),
      nn.Linear(36, 5))
    net(amp.randn(8, 1, 6, 6))
    net:eval()
    local h = again(amp.trace(net, amp.randn(2, 1, 6, 6)), amp.randn(2, 1, 6, 6))
    assert.equal(6, #h:parameters())
    assert.equal(2, #h:buffers())
    local function f(x, i) return x:argmax(2), x:index_select(2, i), x:topk(2), x[{{}, 2}], x:sort(2, true) end
    again(amp.trace(f, amp.randn(3, 4), amp.tensor({1, -1}):to('int64')), amp.randn(3, 4), amp.tensor({2, -4}):to('int64'))
    local lstm = nn.LSTM(3, 4, {num_layers = 2, bidirectional = true, batch_first = true})
    again(amp.trace(function(x) return (lstm(x)) end, amp.randn(2, 5, 3)), amp.randn(2, 5, 3))
    local encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, {dim_feedforward = 16, batch_first = true, activation = 'gelu'}), 2):eval()
    for _, opset in ipairs {14, 17} do
      local g = amp.graph.trace(encoder, {amp.randn(2, 5, 8)}, {dynamic = {1, 2}})
      g:export_onnx(path, {opset = opset})
      local x = amp.randn(3, 7, 8)
      near('opset ' .. opset, amp.io.onnx.load(path)(x), g(x))
    end
  end)

  it('computes sizes that are free', function()
    local function f(x)
      local n, t, c = x:size(1), x:size(2), x:size(3)
      return x:view(n * t, c), x:reshape(n, t, 2, c / 2):permute(1, 3, 2, 4), x * t, F.interpolate(x:unsqueeze(1), {scale_factor = 2}), amp.ones(t, t):tril()
    end
    local g = amp.graph.trace(f, {amp.randn(2, 3, 4)}, {dynamic = {1, 2}})
    local h = again(g, amp.randn(2, 3, 4))
    for _, shape in ipairs {{1, 5}, {4, 2}} do
      local x = amp.randn(shape[1], shape[2], 4)
      local want, got = {g(x)}, {h(x)}
      for i, t in ipairs(want) do near(('result %d of %d x %d'):format(i, shape[1], shape[2]), got[i], t) end
    end
  end)

  it('makes ops in place new values, and refuses those whose change another name sees', function()
    again(amp.trace(function(x)
      local y = x * 2
      y:add_(1)
      y:relu_()
      return y, y:sum(1)
    end, amp.randn(3, 4)), amp.randn(3, 4))
    local g = amp.trace(function(x)
      local y = x * 2
      local z = y:view(-1)
      z:add_(1)
      return y
    end, amp.randn(3, 4))
    assert.error_matches(function() g:export_onnx(path) end, "node 'add' %(add%).*memory")
    g = amp.trace(function(x) x:add_(1) return x * 2 end, amp.randn(3))
    assert.error_matches(function() g:export_onnx(path) end, "writes to input 'x'")
  end)

  it('leaves nothing where it fails, and the file that was there', function()
    os.remove(path)
    local g = amp.trace(function(x) return x:cholesky() end, amp.eye(3))
    assert.error_matches(function() g:export_onnx(path) end, "node 'cholesky' %(cholesky%)")
    assert.is_nil(io.open(path))
    local fine = amp.trace(function(x) return x + 1 end, amp.zeros(2))
    fine:export_onnx(path)
    assert.error_matches(function() g:export_onnx(path) end, 'cholesky')
    near('still there', amp.io.onnx.load(path)(amp.zeros(2)), amp.ones(2))
    assert.error_matches(function() fine:export_onnx(path, {opset = 13}) end, '14 to 17')
    assert.error_matches(function() fine:export_onnx(path, {opsets = 17}) end, 'opset')
    for _, layer in ipairs {nn.Dropout(0.5), nn.BatchNorm1d(3)} do
      local training = amp.trace(layer, amp.randn(4, 3))
      assert.error_matches(function() training:export_onnx(path) end, 'eval')
    end
  end)
end)

-- Read as they lie, the bits of some NaNs are taken for a text, a table or a pointer where LuaJIT interprets.
it('a NaN of a file is a NaN, whatever its bits', function()
  local ffi = require 'ffi'
  local file = require 'amp.io.file'
  local function read()
    for high = 0, 255 do
      for _, sign in ipairs {0x7f, 0xff} do
        local bytes = string.char(0x0d, 1, 0, high, sign)
        local is_nan = high > 0x80 or high == 0x80
        local v = wire.decode(bytes, #bytes, {[1] = {'f', 'float'}}).f
        assert(type(v) == 'number' and (v ~= v) == is_nan, ('%02x %02x'):format(sign, high))
        local single = file.single(ffi.cast('const uint8_t *', bytes) + 1)
        assert(type(single) == 'number' and (single ~= single) == is_nan)
      end
    end
  end
  jit.off(read, true)
  read()
end)
