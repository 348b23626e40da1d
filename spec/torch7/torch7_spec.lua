--- amp.torch7: .t7 files, good and damaged, read without running any of them; layers, criteria and optimizers under their old
-- names; a script of Torch7's, nearly word for word. The files are written by fixtures/make_t7.py.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local t7 = amp.torch7
local torch, nn, optim = t7.torch, t7.nn, t7.optim

local function fixture(name) return H.root .. '/spec/fixtures/t7/' .. name end
local function bytes_file(bytes)
  local path = H.tmp 'file.t7'
  os.remove(path) -- some file systems wait for the disk where a file is cut and written again
  H.write(path, bytes)
  return path
end

-- -- Files -----------------------------------------------------------------------------------------

describe('.t7 files', function()
  for _, kind in ipairs { 'binary', 'ascii' } do
    it(kind .. ': every kind of value', function()
      local r = t7.load(fixture('all_' .. kind .. '.t7'))
      assert.equal('two\nlines, a \0 and \233', r.string)
      assert.equal('', r.empty)
      assert.same({ -2.5, 7, 1e300, math.huge }, { r.number, r.whole, r.huge, r.infinite })
      assert.is_true(r.yes)
      assert.is_false(r.no)
      assert.same({ 1, 'b', { true } }, r.list)
      assert.same({ 'five', 'negative', 'true' }, { r[5], r[-1.5], r[true] })
      assert.is_true(r.first == r.second and r.first.name == 'shared')
      assert.is_true(r.itself == r)
      assert.is_truthy(tostring(r['function']):find 'not loaded')
    end)
    it(kind .. ': tensors of every dtype, of any strides, and their storages', function()
      local r = t7.load(fixture('all_' .. kind .. '.t7'))
      H.close(r.tensor, { s = { 3, 4 }, v = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 } }, H.exact)
      H.close(r.turned, { s = { 4, 3 }, v = { 0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11 } }, H.exact)
      H.close(r.part, { s = { 2, 2 }, v = { 5, 6, 9, 10 } }, H.exact)
      H.close(r.expanded, { s = { 2, 3 }, v = { 1, 2, 3, 1, 2, 3 } }, H.exact)
      for name, c in pairs {
        bytes = { 'uint8', 0, 10, 32, 255 }, chars = { 'int8', -128, 10, 127 },
        shorts = { 'int16', -32768, 32767 }, ints = { 'int32', -2147483648, 2147483647 },
        halves = { 'float16', 0.5, -2.25 }, cuda = { 'float32', 1.5, 2.5 }, sizes = { 'int64', 2, 3 },
      } do
        assert.equal(c[1], r[name].dtype, name)
        H.close(r[name], { unpack(c, 2) }, H.exact, name)
      end
      assert.equal('float64', r.doubles.dtype)
      H.close(r.doubles, { s = { 1, 2 }, v = { 0.1, -1e-300 } }, H.exact)
      assert.is_truthy(tostring(r.longs):find('-9007199254740993  1152921504606846977', 1, true))
      assert.same({ 0 }, H.shape(r.nothing))
      assert.same({ 0 }, H.shape(r.zero))
      -- one storage, so one memory
      assert.is_true(r.again == r.tensor)
      r.tensor[2][2] = 50
      assert.equal(50, r.part[1][1]:item())
      assert.equal(50, r.storage[6]:item())
    end)
  end
  it('of 32-bit machines, and those from before versions', function()
    H.close(t7.load(fixture 'long4.t7', { long_size = 4 }).t, { 7, -8 }, H.exact)
    H.close(t7.load(fixture 'unversioned.t7'), { 1, 2 }, H.exact)
  end)
  it('cut off at any length are errors with the offset', function()
    for _, name in ipairs { 'all_binary.t7', 'all_ascii.t7', 'net.t7' } do
      local bytes = H.read(fixture(name))
      for n = 0, #bytes - 2, name == 'net.t7' and 31 or 5 do
        local ok, e = pcall(t7.load, bytes_file(bytes:sub(1, n)))
        assert.is_false(ok, name .. ' of ' .. n .. ' bytes was read')
        assert.is_truthy(tostring(e):find 'file.t7' and (tostring(e):find 'at byte %d+' or tostring(e):find 'no %.t7 file'), tostring(e))
      end
    end
  end)
  it('with any byte changed give an error or something', function()
    for _, name in ipairs { 'all_binary.t7', 'all_ascii.t7' } do
      local bytes, failed = H.read(fixture(name)), 0
      for at = 1, #bytes, 3 do
        for _, change in ipairs { 1, at % 2 == 0 and 64 or 255 } do
          local b = string.char(bit.bxor(bytes:byte(at), change))
          local ok, e = pcall(t7.load, bytes_file(bytes:sub(1, at - 1) .. b .. bytes:sub(at + 1)))
          if not ok then
            failed = failed + 1
            assert.is_truthy(tostring(e):find 'file.t7', tostring(e))
          end
        end
      end
      assert.is_true(failed > 200, failed)
    end
  end)
  it('that promise too much are refused before anything is allocated', function()
    local function int(v) return string.char(v % 256, math.floor(v / 256) % 256, math.floor(v / 65536) % 256, math.floor(v / 2 ^ 24) % 256) end
    local function long(v) return int(v % 2 ^ 32) .. int(math.floor(v / 2 ^ 32)) end
    local function str(s) return int(#s) .. s end
    local function object(class, rest) return int(4) .. int(1) .. str 'V 1' .. str(class) .. rest end
    local live = H.live()
    H.fails_here(function() t7.load(bytes_file(object('torch.DoubleStorage', long(2 ^ 40)))) end, 'storage of 1099511627776', 'byte')
    H.fails_here(function() t7.load(bytes_file(int(3) .. int(1) .. int(2 ^ 30))) end, '1073741824 entries')
    H.fails_here(function() t7.load(bytes_file(int(2) .. int(2 ^ 30) .. 'abc')) end, 'string')
    H.fails_here(function() t7.load(bytes_file(object('torch.FloatTensor', int(9)))) end, '9 dimensions')
    local four = int(4) .. int(2) .. str 'V 1' .. str 'torch.FloatStorage' .. long(4) .. ('\0'):rep(16)
    local function tensor(size, stride, offset) return object('torch.FloatTensor', int(1) .. long(size) .. long(stride) .. long(offset) .. four) end
    H.close(t7.load(bytes_file(tensor(4, 1, 1))), { 0, 0, 0, 0 })
    H.fails_here(function() t7.load(bytes_file(tensor(5, 1, 1))) end, 'beyond its storage of 4')
    H.fails_here(function() t7.load(bytes_file(tensor(4, 1, 2))) end, 'beyond its storage of 4')
    H.fails_here(function() t7.load(bytes_file(tensor(4, 1, 0))) end, 'beyond its storage of 4')
    H.fails_here(function() t7.load(bytes_file(object('torch.DoubleTensor', int(1) .. long(4) .. long(1) .. long(1) .. four))) end, 'float32')
    H.fails_here(function() t7.load(bytes_file(object('tds.Hash', int(9)))) end, 'tds.Hash')
    H.fails_here(function() t7.load(bytes_file(int(3) .. int(1) .. int(1) .. int(0) .. int(0))) end, 'key', 'nil')
    H.fails_here(function() t7.load(bytes_file((int(3) .. '%d' .. int(1) .. int(5) .. int(1)):rep(1))) end, 'byte')
    local deep = {}
    for i = 1, 5000 do deep[i] = int(3) .. int(i) .. int(1) .. int(5) .. int(1) end
    H.fails_here(function() t7.load(bytes_file(table.concat(deep) .. int(0))) end, 'nested')
    H.fails_here(function() t7.load(bytes_file('\0\0\0\3\0\0\0\1')) end, 'big-endian')
    H.fails_here(function() t7.load(bytes_file('PK\3\4 not at all')) end, 'no .t7 file')
    H.fails_here(function() t7.load(bytes_file '') end, 'byte 0')
    assert.equal(live, H.live())
  end)
  it('run nothing: code in them is passed over', function()
    local ran
    _G.spec_t7_ran = function() ran = true end
    local code = string.dump(function() _G.spec_t7_ran() end)
    local function int(v) return string.char(v % 256, math.floor(v / 256) % 256, 0, 0) end
    local r = t7.load(bytes_file(int(3) .. int(1) .. int(1) .. int(2) .. int(1) .. 'f' .. int(8) .. int(2) .. int(#code) .. code .. int(3) .. int(3) .. int(0)))
    assert.is_truthy(tostring(r.f):find 'not loaded')
    assert.is_nil(ran)
    _G.spec_t7_ran = nil
  end)
  it('that are not there, and options that do not exist', function()
    H.fails_here(function() t7.load '/nowhere.t7' end, '/nowhere.t7', 'No such file')
    H.fails_here(function() t7.load(5) end, 'path', '5')
    H.fails_here(function() t7.load(fixture 'net.t7', { mode = 'text' }) end, 'mode', 'text')
    H.fails_here(function() t7.load(fixture 'net.t7', { longsize = 4 }) end, 'longsize', 'long_size')
  end)
  it('of networks become networks, with their weights', function()
    local net = t7.convert(t7.load(fixture 'net.t7'))
    local x = {}
    for i = 0, 31 do x[i + 1] = ((i * 37) % 101 - 50) / 128 * 2 end
    -- PyTorch 2.15 with the same weights
    H.close(net(amp.tensor(x, { dtype = 'float64' }):view(2, 1, 4, 4)),
      { s = { 2, 3 }, v = { -1.42394842799208, -1.13091248529208, -0.828967215202255, -1.27751484789989, -1.15540275549919, -0.900564529419455 } }, 10)
    assert.is_false(net.training)
    H.fails_here(function() t7.convert { __typename = 'nn.Mystery' } end, 'nn.Mystery')
    H.fails_here(function() t7.convert(5) end, '5')
  end)
  it('and those of amp.save are read by torch.load', function()
    local path = H.tmp 'own.amp'
    torch.save(path, { a = amp.tensor { 1, 2 } })
    H.close(torch.load(path).a, { 1, 2 })
    assert.equal('nn.Sequential', torch.load(fixture 'net.t7').__typename)
  end)
end)

-- -- Old spellings --------------------------------------------------------------------------------------

describe('torch', function()
  it('makes tensors as it did', function()
    assert.same({ 2, 3 }, H.shape(torch.Tensor(2, 3)))
    H.close(torch.Tensor { { 1, 2 }, { 3, 4 } }, { s = { 2, 2 }, v = { 1, 2, 3, 4 } })
    assert.same({ 2, 3 }, H.shape(torch.DoubleTensor(torch.LongStorage { 2, 3 })))
    assert.same({ 2, 3 }, H.shape(torch.Tensor(amp.ones(2, 3):size())))
    local t = torch.ones(3)
    torch.Tensor(t):fill(5)
    H.close(t, { 5, 5, 5 })
    for kind, dtype in pairs { Byte = 'uint8', Int = 'int32', Long = 'int64', Double = 'float64', Half = 'float16' } do
      assert.equal(dtype, torch[kind .. 'Tensor'](2).dtype)
      assert.equal('torch.' .. kind .. 'Tensor', torch.type(torch[kind .. 'Tensor'](2)))
    end
    H.close(torch.range(1, 2, 0.5), { 1, 1.5, 2 })
    H.close(torch.range(3, 1, -1), { 3, 2, 1 })
    H.close(torch.add(amp.tensor { 1, 2 }, 2, amp.tensor { 3, 4 }), { 7, 10 })
    H.close(torch.cmul(amp.tensor { 1, 2 }, amp.tensor { 3, 4 }), { 3, 8 })
    H.close(torch.exp(amp.zeros(2)), { 1, 1 })
    H.fails_here(function() torch.add(amp.zeros(1), amp.zeros(1), amp.zeros(1)) end, 'result = add(x, y)')
    H.fails_here(function() torch.Tensor 'x' end, "'x'")
  end)
  it('adds methods of the same meaning, those in place too, and cures for the others', function()
    local x = amp.tensor { { 1, 2 }, { 3, 4 } }
    assert.equal(4, x:nElement())
    assert.equal(2, x:nDimension())
    assert.same({ 2, 2 }, H.shape(amp.ones(1, 2):expandAs(x)))
    H.close(x:index(1, amp.tensor { 2 }), { s = { 1, 2 }, v = { 3, 4 } })
    x:zero():fill(3)
    H.close(x, { s = { 2, 2 }, v = { 3, 3, 3, 3 } })
    x:copy(amp.tensor { { 1, 2 }, { 3, 4 } }):apply(function(v) return v * 2 end)
    H.close(x, { s = { 2, 2 }, v = { 2, 4, 6, 8 } })
    assert.is_true(x:uniform(5, 6):min():item() >= 5)
    H.close(x:add(1) - x, amp.ones(2, 2), 1e3) -- a new tensor, as everywhere in amp
    H.fails_here(function() x:cmul(x) end, 'x:mul_(y)')
    H.fails_here(function() x:resizeAs(x) end, 'reshape')
  end)
  it('reads command lines', function()
    local cmd = torch.CmdLine()
    cmd:text 'Train'
    cmd:option('-lr', 0.1, 'learning rate')
    cmd:option('-name', 'x', 'a name')
    cmd:option('-gpu', false, 'use it')
    assert.same({ lr = 0.5, name = 'x', gpu = true }, cmd:parse { '-lr', '0.5', '-gpu' })
    assert.same({ lr = 0.1, name = '-3', gpu = false }, cmd:parse { '-name', '-3', '-gpu', 'false' })
    assert.is_truthy(cmd:help():find '%-lr%s+learning rate %[0.1%]')
    assert.equal('run,lr=0.5', cmd:string('run', cmd:parse { '-lr', '0.5' }, { gpu = true }))
    local positional = torch.CmdLine()
    positional:argument('-model', 'a file')
    assert.same({ model = 'a.t7' }, positional:parse { 'a.t7' })
    H.fails_here(function() cmd:parse { '-rl', '5' } end, "'-rl'", "'-lr'")
    H.fails_here(function() cmd:parse { '-lr', 'x' } end, '-lr', "'x'")
    H.fails_here(function() cmd:parse { '-lr' } end, '-lr', 'value')
    H.fails_here(function() cmd:parse { 'extra' } end, 'extra')
  end)
end)

describe('nn', function()
  it('has its layers under their names, width before height', function()
    local x = amp.randn(2, 3, 8, 9)
    assert.same({ 2, 4, 4, 8 }, H.shape(nn.SpatialConvolution(3, 4, 4, 3, 1, 2, 1, 1)(x)))
    assert.same({ 2, 3, 4, 3 }, H.shape(nn.SpatialMaxPooling(3, 2)(x)))
    assert.same({ 2, 3, 7, 8 }, H.shape(nn.SpatialAveragePooling(2, 2)(x)))
    assert.same({ 2, 3, 4, 5 }, H.shape(nn.SpatialMaxPooling(2, 2):ceil()(x)))
    assert.same({ 2, 5, 17, 19 }, H.shape(nn.SpatialFullConvolution(3, 5, 3, 3, 2, 2)(x)))
    assert.same({ 2, 3, 8, 9 }, H.shape(nn.SpatialBatchNormalization(3)(x)))
    assert.same({ 2, 216 }, H.shape(nn.View(216)(x)))
    assert.same({ 432 }, H.shape(nn.View(-1)(x)))
    assert.same({ 2, 216 }, H.shape(nn.View(-1):setNumInputDims(3)(x)))
    assert.same({ 2, 72, 3 }, H.shape(nn.Reshape(72, 3)(x)))
    assert.same({ 5, 4 }, H.shape(nn.LookupTable(7, 4)(amp.ones(5, { dtype = 'int64' }))))
    assert.same({ 2, 6, 5 }, H.shape(nn.TemporalConvolution(3, 5, 3)(amp.randn(2, 8, 3))))
    assert.is_true(nn.Linear == amp.nn.Linear)
    H.fails_here(function() return nn.Nonsuch end, 'Nonsuch')
  end)
  it('has its tables', function()
    local net = nn.Sequential():add(nn.ConcatTable():add(nn.Identity()):add(nn.MulConstant(2))):add(nn.CAddTable())
    H.close(net(amp.tensor { 1, 2 }), { 3, 6 })
    local pair = { amp.ones(2, 3), amp.ones(2, 1) * 2 }
    assert.same({ 2, 4 }, H.shape(nn.JoinTable(2)(pair)))
    assert.same({ 2, 4 }, H.shape(nn.JoinTable(1, 1)(pair)))
    assert.equal(3, #nn.SplitTable(2)(pair[1]))
    assert.is_true(nn.SelectTable(-1)(pair) == pair[2])
    assert.same({ 2, 6 }, H.shape(nn.Concat(2):add(nn.Identity()):add(nn.Identity())(pair[1])))
    local both = nn.ParallelTable():add(nn.Linear(3, 2)):add(nn.Linear(1, 2))
    assert.equal(4, #both:parameters())
    assert.same({ 2, 2 }, H.shape(both(pair)[2]))
    H.fails_here(function() nn.CAddTable()(amp.ones(2)) end, 'list of tensors')
  end)
  it('has its criteria', function()
    local scores, labels = amp.randn(4, 3), amp.tensor({ 1, 3, 2, 2 }, { dtype = 'int64' })
    local logs = nn.LogSoftMax()(scores)
    H.close(nn.ClassNLLCriterion()(logs, labels), amp.cross_entropy(scores, labels))
    H.close(nn.ClassNLLCriterion()(logs, labels:double()), amp.cross_entropy(scores, labels)) -- as labels were
    H.close(nn.CrossEntropyCriterion()(scores[1], 2), amp.cross_entropy(scores[{ { 1 } }], amp.tensor({ 2 }, { dtype = 'int64' })))
    local sum = nn.CrossEntropyCriterion()
    sum.sizeAverage = false
    H.close(sum(scores, labels), amp.cross_entropy(scores, labels) * 4, 4)
    H.close(nn.MSECriterion()(amp.tensor { 1, 2 }, amp.tensor { 3, 2 }), 2)
    H.close(nn.MSECriterion(false)(amp.tensor { 1, 2 }, amp.tensor { 3, 2 }), 4)
    H.close(nn.AbsCriterion()(amp.tensor { 1, 2 }, amp.tensor { 3, 2 }), 1)
    H.close(nn.MarginCriterion()(amp.tensor { 0.5, -2 }, amp.tensor { 1, -1 }), 0.25)
    H.close(nn.BCECriterion()(amp.tensor { 0.5 }, amp.tensor { 1 }), math.log(2))
    local two = nn.ParallelCriterion():add(nn.MSECriterion()):add(nn.AbsCriterion(), 0.5)
    local a, b = amp.tensor { 1, 2 }, amp.tensor { 3, 2 }
    H.close(two({ a, a }, { b, b }), 2.5)
    local g = two:backward({ a, a }, { b, b })
    H.close(g[1], { -2, 0 })
    H.close(nn.MSECriterion():backward(a, b), { -2, 0 })
    assert.is_nil(a.grad)
  end)
  it('says what to call where a gradient is not known', function()
    H.fails_here(function() nn.Linear(1, 1):backward(amp.ones(1, 1), amp.ones(1, 1)) end, 'getParameters', 'loss:backward()')
  end)
end)

-- -- Training as it was written -----------------------------------------------------------------------------

describe('a script of Torch7', function()
  it('trains, nearly word for word', function()
    torch.manualSeed(1)
    local model = nn.Sequential()
    model:add(nn.Linear(8, 16))
    model:add(nn.Tanh())
    model:add(nn.Linear(16, 4))
    model:add(nn.LogSoftMax())
    local criterion = nn.ClassNLLCriterion()
    local params, gradParams = model:getParameters()
    assert.equal(8 * 16 + 16 + 16 * 4 + 4, params:nElement())
    local input, target = torch.randn(32, 8), torch.range(0, 31):fmod(4):add(1)
    local config = { learningRate = 0.5, momentum = 0.9 }
    local function feval(x)
      if x ~= params then params:copy(x) end
      gradParams:zero()
      local output = model:forward(input)
      local loss = criterion:forward(output, target)
      local df = criterion:backward(output, target)
      model:backward(input, df)
      return loss, gradParams
    end
    model:training()
    local first, last
    for i = 1, 60 do
      local _, fs = optim.sgd(feval, params, config)
      if i == 1 then first = fs[1]:item() end
      last = fs[1]:item()
    end
    assert.is_true(last < first * 0.8, first .. ' to ' .. last)
    assert.equal(60, config.evalCounter)
    model:evaluate()
    assert.is_false(model.training)
    -- the vector is the network
    params:zero()
    H.close(model:forward(input):exp():mean(), 0.25)
    model:zeroGradParameters()
    assert.equal(0, gradParams:abs():sum():item())
    assert.equal('torch.FloatTensor', model:type())
    assert.equal(2, #model:findModules 'nn.Linear')
  end)
  it("steps as amp's optimizers do", function()
    for name, c in pairs {
      sgd = { { learningRate = 0.1, momentum = 0.9, dampening = 0, nesterov = true, weightDecay = 0.01 },
        function(p) return amp.optim.SGD(p, { lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 0.01 }) end },
      adagrad = { { learningRate = 0.1 }, function(p) return amp.optim.Adagrad(p, { lr = 0.1 }) end },
      rmsprop = { {}, function(p) return amp.optim.RMSprop(p, { lr = 0.01, alpha = 0.99, eps = 1e-8 }) end },
      adam = { { learningRate = 0.01, epsilon = 1e-12 }, function(p) return amp.optim.Adam(p, { lr = 0.01, eps = 1e-12 }) end },
    } do
      local start = H.sample({ 5 }, 'float64')
      local x, p = start:clone(), start:clone()
      p.requires_grad = true
      local opt, config = c[2] { p }, c[1]
      for _ = 1, 5 do
        optim[name](function(v) return 0, v:detach() * 3 + 1 end, x, config)
        p.grad = p:detach() * 3 + 1
        opt:step()
      end
      H.close(x, p:detach(), 100, name)
    end
  end)
  it('may step a list of parameters by their own gradients', function()
    local net = amp.nn.Linear(3, 1)
    local x, before = amp.ones(2, 3), net.weight:detach():clone()
    optim.sgd(function()
      net:zero_grad()
      local loss = net(x):sum()
      loss:backward()
      return loss
    end, net:parameters(), { learningRate = 0.1 })
    H.close(net.weight:detach(), before - 0.2, 10)
    H.fails_here(function() optim.sgd(5, amp.ones(1)) end, 'function', '5')
    H.fails_here(function() optim.sgd(function() return 1 end, amp.ones(1)) end, 'gradient', 'nil')
    assert.is_true(optim.SGD == amp.optim.SGD)
  end)
  it('counts confusions and logs', function()
    local m = optim.ConfusionMatrix { 'a', 'b' }
    m:add(1, 1):add(amp.tensor { 0.1, 0.9 }, 1):batchAdd(amp.tensor { { 0, 1 }, { 1, 0 } }, amp.tensor { 2, 2 })
    m:updateValids()
    assert.equal(0.5, m.totalValid)
    assert.is_truthy(tostring(m):find '50.00%%')
    H.fails_here(function() m:add(3, 1) end, 'from 1 to 2')
    local path = H.tmp 'train.log'
    local log = optim.Logger(path)
    log:setNames { 'loss', 'acc' }
    log:add { 0.5, 0.25 }:add { loss = amp.tensor(0.25), acc = 1 }
    assert.equal('loss\tacc\n0.5\t0.25\n0.25\t1\n', H.read(path))
    log:style { '-' }:plot()
    assert.equal('\137PNG', H.read(path .. '.png'):sub(1, 4))
  end)
  it('leaves a call of other booleans the error that it is', function()
    local ok, e = pcall(function() return (true)(5) end)
    assert.is_false(ok)
    assert.is_truthy(e:find 'attempt to call a boolean value')
  end)
end)
