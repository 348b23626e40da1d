--- What a newcomer types, from PyTorch, Torch7, NumPy or plain Lua, and what amp says: where it happened, what is
-- wrong, what to write. Each row is a line of a user's script. Messages of Lua's own are looked at as `amp script.lua`
-- and the prompt show them.
local amp = require 'amp'
local report = require 'amp.cli.report'
local H = require 'spec.lib.helper'
local nn, F, optim = amp.nn, amp.nn.functional, amp.optim

-- What stands above each line.
local head = [[
local amp, nn, F, optim, net, x, y, loss, opt, scaler, loader, labels, seq, list = ...
]]

local function scene()
  local net = nn.Linear(3, 2)
  local x, y = amp.ones(4, 3), amp.ones(4, 2)
  local loss = F.mse_loss(net(x), y)
  local set = amp.data.TensorDataset(x, y)
  return amp, nn, F, optim, net, x, y, loss, optim.SGD(net:parameters(), { lr = 0.1 }), amp.GradScaler(),
    amp.data.DataLoader(set, { batch_size = 2 }), amp.tensor { 1, 2, 1, 2 }, nn.Sequential(nn.Linear(3, 2), nn.ReLU()), nn.ModuleList { nn.ReLU() }
end

local path = H.tmp 'script.lua'

-- The message as `amp script.lua` shows it, without the trace.
local function message(line)
  H.write(path, head .. line .. '\n')
  local f = assert(loadfile(path))
  local args = { scene() }
  local ok, text = xpcall(function() f(unpack(args)) end, report.text)
  return not ok and text:match '^(.-)\nstack traceback' or not ok and text or nil
end

-- {line, pieces that the message has}
local mistakes = {
  -- a dot where a colon belongs
  { 'local p = net.parameters()', 'net:parameters(', 'colon' },
  { 'net.train()', 'net:train(' },
  { 'net.eval()', 'net:eval(' },
  { 'net.zero_grad()', 'net:zero_grad(' },
  { 'net.to("cpu")', 'net:to(' },
  { 'net.load_state_dict({})', 'net:load_state_dict(' },
  { 'local y = net.forward(x)', 'net:forward(', 'a tensor' },
  { 'local y = seq.forward(x)', 'seq:forward(' },
  { 'seq.add(nn.ReLU())', 'seq:add(' },
  { 'opt.step()', 'opt:step(' },
  { 'opt.zero_grad()', 'opt:zero_grad(' },
  { 'local s = opt.state_dict()', 'opt:state_dict(' },
  { 'local s = optim.lr_scheduler.StepLR(opt, {step_size = 2}) s.step()', 's:step(' },
  { 'local s = optim.lr_scheduler.ReduceLROnPlateau(opt) s.step(1)', 's:step(' },
  { 'scaler.step(opt)', 'scaler:step(' },
  { 'scaler.update()', 'scaler:update(' },
  { 'local l = scaler.scale(loss)', 'scaler:scale(' },
  { 'for a, b in loader.iter() do print(a, b) end', 'loader:iter(' },
  { 'local m = amp.metric.Accuracy() m.update(y, labels)', 'm:update(' },
  { 'local gm = amp.GradManager() gm.attach(x)', 'gm:attach(' },
  { 'local set = amp.data.TensorDataset(x) local n = set.size()', 'set:size(' },
  { 'loss.backward()', 't:backward()' },
  { 'local s = x.sum()', 'x:sum(' },
  { 'local v = x.view(2, 6)', 'x:view(' },
  { 'local v = x.item()', 't:item(' },
  { 'local bar = amp.progress(3, {quiet = true}) bar.update(1)', 'bar:update(' },
  -- a colon where a dot belongs
  { 'local p = nn.Linear:parameters()', 'nn.Linear', 'class' },
  { 'optim.SGD:step()', 'optim.SGD', 'class' },
  { 'local z = amp:zeros(2)', 'amp.zeros(', 'dot' },
  { 'local z = amp:relu(x)', 'amp.relu(' },
  { 'local z = F:relu(x)', 'F.relu(' },
  { 'local m = nn:Linear(2, 3)', 'nn.Linear(' },
  { 'local o = optim:SGD(net:parameters(), {lr = 1})', 'optim.SGD(' },
  { 'amp:manual_seed(1)', 'amp.manual_seed(' },
  { 'amp:no_grad(function() end)', 'amp.no_grad(' },
  { 'local l = F:cross_entropy(y, labels:long())', 'F.cross_entropy(' },
  { 'amp:save("x.amp", {})', 'amp.save(' },
  -- names
  { 'local z = amp.relo(x)', "'relo'", "did you mean 'relu'" },
  { 'local z = F.crossentropy(y, labels)', "'crossentropy'", "did you mean 'cross_entropy'" },
  { 'local m = nn.Linaer(2, 3)', "'Linaer'", "did you mean 'Linear'" },
  { 'local m = nn.relu(x)', 'nn.ReLU()' },
  { 'local o = optim.Adma(net:parameters())', "'Adma'", "did you mean 'Adam'" },
  { 'local z = x:smu()', "'smu'", "did you mean 'sum'" },
  { 'net:paramters()', "'paramters'", "did you mean 'parameters'" },
  { 'local w = net.wieght:sum()', "'wieght'", "did you mean 'weight'" },
  { 'local z = torch.zeros(2)', "'torch'", "require 'amp'" },
  { 'local z = np.zeros(2)', "'np'", "require 'amp'" },
  { 'local z = zeros(2)', "'zeros'", 'amp.zeros' },
  { 'local n = len(x)', "'len'", '#x' },
  { 'for i in range(3) do print(i) end', "'range'", 'for i = 1, n' },
  { 'local n = x:numpy()', "'numpy'", 'tolist' },
  { 'local n = x.len', "'len'", '#t' },
  { 'local z = amp.FloatTensor(2, 3)', "'FloatTensor'", 'float32' },
  { 'local z = amp.from_numpy(x)', "'from_numpy'", 'amp.tensor' },
  { 'local z = amp.Tensor(2, 3)', 'amp.empty(2, 3)', 'amp.tensor{' },
  { 'local z = amp.tensor(2, 3)', 'amp.tensor{2, 3}', 'amp.zeros(2, 3)' },
  -- properties and methods
  { 'local n = x.size[1]', "'size'", 'call' },
  { 'local n = x:shape()', "'shape'", 'property' },
  { 'local d = x:dtype()', "'dtype'", 'property' },
  { 'local n = x.size + 1', "'size'", 'x:size()' },
  -- Lua's own functions and operators
  { 'print(("%.3f"):format(loss))', 't:item()' },
  { 'local m = math.max(loss, 1)', 't:max()', 't:item()' },
  { 'local m = math.sqrt(loss)', 't:sqrt()', 't:item()' },
  { 'local s = table.concat{x, y}', 'tostring(t)' },
  { 'local a, b = unpack(x)', 't:unbind()' },
  { 'if loss > 0 then print(1) end', 't:gt(0)', 't:item() > 0' },
  { 'if x < y then print(1) end', 'a:lt(b)' },
  { 'local z = x(1)', 'not a function', 't[{' },
  { 'for row in x do print(row) end', 'ipairs(t)' },
  { 'for i = 1, x:size() do print(i) end', 'x:size(1)' },
  { 'for i, v in {1, 2} do print(i, v) end', 'ipairs(list)' },
  { 'local g = net.bias.grad:sum()', "'grad'", 'backward' },
  -- indices and shapes
  { 'local z = x[0]', 'index 0', '1..4' },
  { 'local z = x[5]', 'index 5', '1..4' },
  { 'local z = x[{{4, 1, -1}}]', 'flip' },
  { 'local n = x.shape[0]', 'counted from 1' },
  { 'local z = amp.zeros(nil)', 'nil', 'x:size(1)' },
  { 'local z = amp.zeros(2, x.shape[4])', 'argument 2 is nil' },
  { 'local z = x:view(-1, 0)', '-1x0', '4x3' },
  { 'local z = x * amp.ones(3, 5)', '4x3', '3x5', 'matmul' },
  { 'local z = x + amp.ones(5)', '4x3', '5' },
  { 'local z = amp.cat(x, x)', 'amp.cat({a, b}' },
  { 'local z = amp.stack(x, x)', 'amp.stack({a, b}' },
  { 'local z = x:sum(0)', 'dimension 0' },
  -- labels, dtypes, devices
  { 'local l = F.cross_entropy(y, labels)', 'integers', 'labels:long()' },
  { 'local l = F.nll_loss(y, labels)', 'integer', ':long()' },
  { 'local l = nn.CrossEntropyLoss()(y, labels)', 'integers', 'labels:long()' },
  { 'local e = nn.Embedding(5, 2)(labels)', 'integer', ':long()' },
  { 'local l = F.cross_entropy(y, labels:long() - 1)', '0' },
  { 'local z = x:to "gpu"', "'cuda'" },
  { 'local z = x:to "fp16"', "'float16'" },
  { 'local z = amp.zeros(2, {dtype = "bf16"})', "'bfloat16'" },
  { 'local z = amp.zeros(2, {device = "cuda:0"})', "'cuda:1'", 'counted from 1' },
  { 'net:to "gpu"', "'cuda'" },
  { 'net:to "fp16"', "'float16'" },
  { 'net:to "cuda:0"', "'cuda:1'" },
  -- modules
  { 'local l = nn.ReLU(x)', 'nn.ReLU(...)', 'layer(x)' },
  { 'local l = nn.CrossEntropyLoss(y, labels)', 'layer(x)' },
  { 'local m = nn.Sequential(nn.ReLU)', 'nn.ReLU', 'call it' },
  { 'local m = nn.Sequential{a = nn.ReLU()}', "'a'", 'order' },
  { 'net.trianing = false', "'training'", 'net:eval()' },
  { 'net.requires_grad = false', 'net:requires_grad_(false)' },
  { 'list[5] = nn.ReLU()', 'place 5', 'appends' },
  { 'local m = list[0]', 'counted from 1' },
  { 'local y = list(x)', 'ipairs(list)' },
  { 'local m = nn.Linear()', 'in_features' },
  { 'local m = nn.Linear(2, 3, {baias = false})', "'baias'", "did you mean 'bias'" },
  { 'local y = net(amp.ones(4, 5))', '4x5', 'nn.Linear 3 -> 2' },
  -- optimizers and training
  { 'local o = optim.SGD(net, {lr = 0.1})', 'net:parameters()' },
  { 'local o = optim.SGD(net:named_parameters(), {lr = 0.1})', 'net:parameters()' },
  { 'local o = optim.SGD(net:parameters(), 0.1)', '{lr = 0.1}' },
  { 'opt.lr = 0.01', 'param_groups', 'g.lr' },
  { 'print(opt.lr)', 'opt.param_groups[1].lr' },
  { 'scaler.scale = 2', 'scale_factor' },
  { 'amp.no_grad()', 'amp.no_grad(function() ... end)' },
  { 'amp.autocast()', 'function' },
  { 'loss:backward() loss:backward()', 'retain_graph' },
  { 'x:backward()', 'grad' },
  { 'local g = nn.Parameter(3)', 'nn.Parameter(amp.ones' },
  { 'x.foo = 1', "'foo'", 't:id()' },
  -- options that would go unread, arguments that nobody takes
  { 'local o = optim.Adam{net:parameters(), lr = 0.1}', "'lr'", 'options' },
  { 'local o = optim.Adam({net.weight, lr = 0.1})', "'lr'", 'options' },
  { 'local o = optim.SGD({{net:parameters(), lr = 0.5}}, {lr = 0.1})', "'lr'", '{params = ' },
  { 'local o = optim.SGD(net:parameters(), {lr = 0.1}, {momentum = 0.9})', '2 arguments', '{lr = 0.1}' },
  { 'local o = optim.SGD(net:parameters(), {lr = 0.1}, 0.9)', '2 arguments' },
  { 'local l = nn.CrossEntropyLoss()(y, labels:long(), amp.ones(2))', 'nn.CrossEntropyLoss', '2 arguments', 'got 3' },
  { 'local l = nn.MSELoss()(net(x), y, "sum")', 'nn.MSELoss', '2 arguments', 'got 3' },
  { 'local z = net(x, x)', 'nn.Linear', '1 argument', 'got 2' },
  { 'local z = nn.ReLU()(x, true)', 'nn.ReLU', '1 argument' },
  { 'local z = seq(x, x)', 'nn.Linear', '1 argument', 'module 1 of nn.Sequential' },
  { 'local n = x:size(1, 2)', '1 argument' },
  { 'net.weight = amp.ones({2, 3}, {dtype = "int32"})', "'weight'", 'nn.Parameter(', 'net.weight.data', 'int32' },
  { 'net.weight = 3', "'weight'", 'nn.Parameter(' },
  { 'local N = nn.Module:extend "N" function N:__init() end', 'N:init(' },
  { 'local N = nn.Module:extend "N" function N:__init__() end', 'N:init(' },
  { 'local g = amp.trace(net, x, {dynamic = {1}})', "'dynamic'", 'amp.graph.trace(' },
  { 'local g = amp.trace(net, amp.ones(1, 3)) g(x)', 'amp.graph.trace(', '{dynamic = {1}}' },
  -- names in rooms
  { 'amp.cuda.is_avaliable()', "'is_avaliable'", "did you mean 'is_available'" },
  { 'local n = amp.cuda.memory_alocated', "'memory_alocated'", 'amp.cuda' },
  { 'local n = amp.cuda.get_device_name(0)', "'get_device_name'", 'get_device_properties' },
  { 'amp.cuda.manual_seed_all(1)', 'amp.manual_seed' },
  { 'local s = amp.cuda.amp.GradScaler()', 'amp.GradScaler' },
  { 'nn.utils.clip_grad_norm(net:parameters(), 1)', "'clip_grad_norm'", "did you mean 'clip_grad_norm_'" },
  { 'nn.init.xavier_uniform(net.weight)', "'xavier_uniform'", "did you mean 'xavier_uniform_'" },
  { 'amp.distributed.init_process_groop()', "'init_process_groop'", 'amp.distributed' },
  { 'local b = amp.serve.bather(net)', "'bather'", "did you mean 'batcher'" },
  { 'local D = amp.data.Dataset:extend "D"', "'Dataset'", 'size', 'get' },
  { 'local n = amp.numel(x)', "'numel'", 'x:numel()' },
  { 'local v = x:max(1) print(v.values)', "'values'", 'local values, indices = ' },
  { 'local v = x:sort() print(v.indices)', "'indices'", 'local values, indices = ' },
  { 'local f = amp.autograd.Function:extend "F"', 'amp.Function{forward' },
  { 'local f = amp.Function:extend "F"', 'amp.Function{forward' },
  { 'local N = nn.Module.extend "N"', "nn.Module:extend 'Net'" },
  { 'local N = nn.Module:extend()', "nn.Module:extend 'Net'" },
  { 'local N = nn.Module "N"', "nn.Module:extend 'Net'" },
  { 'local l = amp.data.DataLoader({get = print, len = print})', "without 'size'" },
  { 'local z = x * 2 local g = z.grad:sum()', "'grad'", 'leaves' },
  { 'amp.save({}, "x.amp")', 'amp.save(path, value)' },
  { 'local n = (x == y):sum()', 'a:eq(b)' },
  { 'for name, p in pairs(net:named_parameters()) do print(name, p) end', 'for name, p in net:named_parameters() do' },
}

describe('a mistake of a newcomer', function()
  for _, m in ipairs(mistakes) do
    it(m[1], function()
      local text = message(m[1])
      assert.is_truthy(text, 'no error was raised')
      assert.is_truthy(text:find('script.lua:2:', 1, true), 'not at the line: ' .. text)
      for i = 2, #m do assert.is_truthy(text:find(m[i], 1, true), ('lacks "%s": %s'):format(m[i], text)) end
      assert.is_nil(text:find("'eigh'", 1, true), text)
    end)
  end
  it('is one of more than a hundred', function() assert.is_true(#mistakes > 100, #mistakes) end)
end)

describe('a cure', function()
  it('names only what is there', function()
    local habits = require 'amp.core.habits'
    local seen = 0
    local function look(text)
      for written in (' ' .. text):gmatch "[^%w_.'](amp%.[%a_][%w_.]*)" do
        local v = amp
        for name in written:gsub('%.+$', ''):gmatch '%.([%w_]+)' do
          local ok, got = pcall(function() return v[name] end)
          assert.is_true(ok and got ~= nil, ('%s of: %s'):format(written, text))
          v = got
        end
        seen = seen + 1
      end
    end
    local function walk(t)
      for _, v in pairs(t) do
        if type(v) == 'table' then walk(v) elseif type(v) == 'string' then look(v) end
      end
    end
    walk(habits)
    assert.is_true(seen > 80, seen)
  end)
end)

describe('a checkpoint under the name of another format', function()
  it('is written and read, after one warning that says what writes that format', function()
    local warn = require 'amp.core.warn'
    for ending, writer in pairs { npy = 'amp.io.save_npy', npz = 'amp.io.save_npz', safetensors = 'amp.io.safetensors.save', amp = false, pt = false } do
      local said = {}
      local before = rawget(amp, 'warn')
      amp.warn = function(text) said[#said + 1] = text end
      warn.reset()
      local file = H.tmp('net.' .. ending)
      local ok, why = pcall(function()
        amp.save(file, { 1 })
        amp.save(file, { 2 })
      end)
      amp.warn = before
      assert.is_true(ok, why)
      assert.equal(2, amp.load(file)[1])
      assert.equal(writer and 1 or 0, #said, ending)
      if writer then assert.is_truthy(said[1]:find(writer .. '(', 1, true), said[1]) end
    end
  end)
end)

describe('what is right is left alone', function()
  it('loops over tensors, shapes that print, negative places', function()
    local x = amp.arange(6):view(3, 2)
    local sum = 0
    for i, row in ipairs(x) do sum = sum + i * row:sum():item() end
    assert.equal(1 * 1 + 2 * 5 + 3 * 9, sum)
    local n = 0
    for _ in pairs(x) do n = n + 1 end
    assert.equal(3, n)
    assert.equal('3x2', tostring(x.shape))
    assert.equal(2, x.shape[-1])
    assert.equal(6, x.shape:numel())
    assert.is_nil(x.shape[3])
    assert.equal('loss: ', ('loss: ' .. amp.tensor(1)):sub(1, 6))
    assert.is_false(x == nil)
    assert.is_false(x == 1) -- two handles of one tensor are equal, nothing else is
  end)
  it('more arguments than a class of the user names, and what an LSTM gives before a layer', function()
    local Net = nn.Module:extend 'Net'
    function Net:forward(x) return x * 2 end -- luacheck: ignore 212
    assert.equal(2, Net()(amp.ones(1), 3):item())
    assert.same({ 2, 5, 3 }, nn.Sequential(nn.LSTM(4, 6, { batch_first = true }), nn.Linear(6, 3))(amp.ones(2, 5, 4)):size())
    assert.same({ 2, 5, 6 }, nn.Sequential(nn.LSTM(4, 6, { batch_first = true }), nn.Sequential(nn.ReLU()))(amp.ones(2, 5, 4)):size())
    assert.same({ 4, 2 }, nn.Linear(3, 2)(amp.ones(4, 3), nil):size())
  end)
  it('a parameter replaced by a parameter, a frozen one, nothing', function()
    local a, b = nn.Linear(3, 3), nn.Linear(3, 3)
    b.weight.requires_grad = false
    a.weight = b.weight
    assert.is_true(a.weight == b.weight)
    a.weight = nn.Parameter(amp.ones(3, 3))
    assert.equal(2, #a:parameters())
    a.bias = nil
    assert.equal(1, #a:parameters())
    a.bias = 3 -- the name is free now
    assert.equal(3, a.bias)
    local seq = nn.Sequential(nn.ReLU())
    seq.head = nn.ReLU()
    seq.head = nn.Tanh()
    seq.head = nil
    assert.is_nil(seq.head)
  end)
  it('lists of parameters in lists', function()
    local a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    assert.equal(4, #optim.Adam({ a:parameters(), b:parameters() }).param_groups[1].params)
    assert.equal(2, #optim.Adam({ { params = a:parameters() }, { params = { b:parameters() } } }).param_groups)
  end)
  it('methods of parents, of wrappers and of stand-ins', function()
    local Net = nn.Module:extend 'Net'
    function Net:init() self.a = nn.Linear(2, 2) end
    function Net:forward(x) return self.a(x) end
    function Net.make(n) return n + 1 end
    local Deep = Net:extend 'Deep'
    function Deep:forward(x) return Net.forward(self, x) + 1 end
    assert.equal(2, Net.make(1))
    assert.same({ 3, 2 }, Deep()(amp.ones(3, 2)):size())
    local larc = optim.LARC(optim.SGD(Deep():parameters(), { lr = 0.1 }))
    larc:zero_grad()
    assert.is_true(Deep():is(Net))
    local other = setmetatable({ step = function() return 7 end }, { __index = optim.SGD })
    assert.equal(7, other:step())
  end)
  it('a method of one\'s own says it, too', function()
    local Net = nn.Module:extend 'Net'
    function Net.forward(self, x) return x, self end
    function Net:twice(x) return self(x) * 2 end
    local mine = Net()
    H.fails_here(function() local y = mine.twice(amp.ones(2)) return y end, 'mine:twice(', 'colon')
    H.fails_here(function() local y = mine.forward(amp.ones(2)) return y end, 'mine:forward(')
  end)
  it('amp.x raises, rawget and names do not', function()
    assert.is_nil(rawget(amp, 'no_such_name'))
    assert.is_false(pcall(function() return amp.no_such_name end))
    assert.is_nil(amp._nothing)
  end)
end)

describe('every function of amp', function()
  -- Called with a colon it gets amp itself first: none takes it for something else.
  local quiet = { -- take nothing, or a table of anything
    clear_autocast_cache = true, clock = true, counters = true, deactivate = true, get_default_device = true, get_default_dtype = true, get_num_threads = true,
    get_rng_state = true, is_deterministic = true, is_grad_enabled = true, last_error = true, list_conditional_fp32_ops = true, list_fp32_ops = true,
    list_lp16_fp32_ops = true, list_lp16_ops = true, list_widest_type_cast = true, names = true, reset_policy = true, state_dict = true,
    traceback = true, version = true, is_tensor = true, lazy = true, warn = true, write_log = true, doctor = true, detect_anomaly = true, profile = true,
    empty_cache = true, is_autocast_enabled = true, errors = true, summary = true, capture = true, checkpoint = true, memory = true, init = true,
  }
  local skipped = 0
  for _, name in ipairs(amp.names()) do
    local f = require('amp.core.lookup').find(name)
    if type(f) == 'function' and not quiet[name] and name ~= 'repeat' and not name:find '^register_' then
      it('amp:' .. name .. '(...) says that it wants a dot', function()
        local call = assert(loadstring(('local amp, x = ... local r = amp:%s(x, x) return r'):format(name), '=line.lua'))
        local ok, e = pcall(call, amp, amp.ones(2, 2))
        assert.is_false(ok)
        assert.is_truthy(tostring(e):find('line.lua:1:', 1, true), tostring(e))
      end)
    else
      skipped = skipped + 1
    end
  end
  it('is looked at', function() assert.is_true(skipped < 120, skipped) end)
end)
