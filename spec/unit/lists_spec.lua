-- Lists with a hole, and lists with names in them: an error that says which, never a shorter list without a word.
local amp = require 'amp'
local nn, optim = amp.nn, amp.optim

local function weight() return amp.ones(1):requires_grad_() end
local function refused(what, pattern, f)
  local ok, e = pcall(f)
  assert.is_false(ok, what .. ': no error')
  assert.is_truthy(tostring(e):find(pattern, 1, true), what .. ': ' .. tostring(e))
end

describe('a list with a hole', function()
  -- (a table of constants and one that is filled at run time have different lengths in LuaJIT)
  local three = 3
  it('is no tensor', function()
    refused('constants', 'nothing at 2', function() amp.tensor{1, nil, 3} end)
    refused('variables', 'nothing at 2', function() amp.tensor{1, nil, three} end)
    refused('the first', 'nothing at 1', function() amp.tensor{nil, 2, 3} end)
    refused('inside', 'nothing at 2', function() amp.tensor{{1, nil, 2}, {3, nil, 4}} end)
    refused('many', 'nothing at 50', function()
      local t = {}
      for i = 1, 100 do t[i] = i end
      t[50] = nil
      amp.tensor(t)
    end)
  end)
  it('is no shape', function()
    refused('zeros', 'nothing at 2', function() amp.zeros{2, nil, 3} end)
    refused('zeros', 'nothing at 2', function() amp.zeros{2, nil, three} end)
    refused('view', 'nothing at 2', function() amp.zeros(6):view{2, nil, 3} end)
    refused('permute', 'nothing at 2', function() amp.zeros(2, 3, 4):permute{1, nil, 3} end)
    refused('from_ptr', 'nothing at 2', function() amp.from_ptr(require('ffi').new 'float[6]', {2, nil, 3}) end)
  end)
  it('is no index, range or value', function()
    local t = amp.arange(9):reshape(3, 3)
    refused('index', 'nothing at 2', function() return t[{1, nil, 2}] end)
    refused('index', 'nothing at 1', function() return t[{nil, 2}] end)
    refused('range', 'nothing at 2', function() return t[{{1, nil, 2}}] end)
    refused('value', 'nothing at 2', function() t[1] = {1, nil, 3} end)
    refused('assignment', 'nothing at 2', function() t[{1, nil, 2}] = 1 end)
  end)
  it('is no list of tensors', function()
    local a, b = weight(), weight()
    for _, f in ipairs {
      function(list) amp.cat(list) end, function(list) amp.stack(list) end, function(list) amp.grad((a * b):sum(), list) end,
      function(list) optim.SGD(list, {lr = 1}) end, function(list) nn.utils.clip_grad_norm_(list, 1) end,
      function(list) amp.GradManager():attach(list) end, function(list) amp.GradScaler():unscale(list) end,
      function(list) nn.utils.clip_grad_value_(list, 1) end, function(list) nn.utils.parameters_to_vector(list) end,
      function(list) amp.meshgrid(list) end, function(list) amp.broadcast_tensors(list) end, function(list) optim.LBFGS(list) end,
    } do
      assert.has_error(function() f {a, nil, b} end)
      assert.has_error(function() f {nil, a} end)
    end
  end)
  it('is no list of sizes, devices, ops, schedules or groups', function()
    local opt = optim.SGD({weight()}, {lr = 1})
    local function step() return optim.lr_scheduler.StepLR(opt, {step_size = 1}) end
    refused('ops', 'fp32_ops: the list has nothing at 2', function() amp.init{fp32_ops = {'relu', nil, 'tanh'}}:deactivate() end)
    refused('devices', 'nothing at 2', function() amp.split_and_load(amp.ones(4), {'cpu', nil, 'cpu'}) end)
    refused('normalized shape', 'nothing at 2', function() nn.LayerNorm{2, nil, 3} end)
    refused('schedules', 'nothing at 2', function() optim.lr_scheduler.SequentialLR(opt, {step(), nil, step()}, {1, 2}) end)
    refused('split', 'nothing at 2', function() amp.ones(4):split{2, nil, 2} end)
    refused('tensor_split', 'nothing at 2', function() amp.ones(4):tensor_split{2, nil, 3} end)
    refused('groups', 'nothing at 2', function() optim.SGD({{params = {weight()}}, nil, {params = {weight()}}}, {lr = 1}) end)
    refused('rates beside groups', "'lr'", function() optim.SGD({{params = {weight()}}, lr = 3}, {lr = 1}) end)
    refused('kernel', "'h'", function() nn.Conv2d(1, 1, {3, 3, h = 1}) end)
  end)
  it('is no dataset and no milestones', function()
    refused('dataset', '2', function() amp.data.TensorDataset(amp.ones(2), nil, amp.ones(2)) end)
    refused('milestones', 'nothing at 2', function() optim.lr_scheduler.MultiStepLR(optim.SGD({weight()}, {lr = 1}), {1, nil, 5}) end)
  end)
end)

describe('a list with names in it', function()
  it('is no tensor, and options are no elements', function()
    refused('options', "'dtype'", function() amp.tensor{1, 2, dtype = 'int64'} end)
    refused('inside', "'x'", function() amp.tensor{{1, 2}, {3, 4, x = 1}} end)
    refused('names alone', "'a'", function() amp.tensor{a = 1} end)
    refused('from 0', '0', function() amp.tensor{[0] = 5, 1, 2} end)
    refused('between', '2.5', function() amp.tensor{1, 2, [2.5] = 1} end)
    refused('itself', 'itself', function()
      local t = {}
      t[1] = t
      amp.tensor(t)
    end)
    refused('shape', "'dtype'", function() amp.zeros{2, 3, dtype = 'float64'} end)
  end)
  it('is no index', function()
    local t = amp.arange(9):reshape(3, 3)
    refused('index', "'x'", function() return t[{1, x = 2}] end)
    refused('range', "'step'", function() return t[{{1, 3, step = 2}}] end)
  end)
  it('is no list of tensors', function()
    local a, b = weight(), weight()
    refused('cat', "'x'", function() amp.cat{amp.ones(1), x = amp.ones(2)} end)
    refused('optimizer', "'lr'", function() optim.SGD{a, b, lr = 1} end)
    refused('LBFGS', "'lr'", function() optim.LBFGS{a, b, lr = 1} end)
    for name, f in pairs {
      clip = function(list) nn.utils.clip_grad_norm_(list, 1) end, value = function(list) nn.utils.clip_grad_value_(list, 1) end,
      vector = function(list) nn.utils.parameters_to_vector(list) end, attach = function(list) amp.GradManager():attach(list) end,
      unscale = function(list) amp.GradScaler():unscale(list) end, grad = function(list) amp.grad((a * b):sum(), list) end,
    } do refused(name, "'x'", function() f {x = a, y = b} end) end
  end)
end)

describe('a list as it should be', function()
  it('may lie in a table in any order, and may be empty where that means something', function()
    local t = {}
    for i = 5, 1, -1 do t[i] = i end
    assert.same({1, 2, 3, 4, 5}, amp.tensor(t):tolist())
    assert.same({0}, amp.tensor({}).shape)
    assert.same({2, 3}, amp.zeros(amp.zeros(2, 3).shape).shape)
    assert.same({2, 3}, amp.zeros(amp.zeros(2, 3):size()).shape)
    assert.equal(0, nn.utils.clip_grad_norm_({}, 1):item())
    local list = {}
    list[2], list[1] = weight(), weight()
    assert.equal(2, #optim.SGD(list, {lr = 1}).param_groups[1].params)
    assert.equal(2, #amp.GradManager():attach(list):attached_tensors())
  end)
end)

describe('options given to what has none', function()
  it('are an error that names one', function()
    local a = weight()
    a.grad = amp.ones(1)
    local path = os.tmpname()
    for name, f in pairs {
      capture = function() amp.capture(function() end, {warmup = 1}) end, save = function() amp.save(path, {}, {warmup = true}) end,
      from_ptr = function() amp.from_ptr(require('ffi').new 'float[2]', {2}, 'float32', {warmup = true}) end,
      memory = function() amp.memory('cpu', {warmup = true}) end, deterministic = function() amp.use_deterministic(true, {warmup = true}) end,
      value = function() nn.utils.clip_grad_value_({a}, 1, {warmup = 2}) end, state = function() nn.Linear(1, 1):state_dict{warmup = true} end,
      vector = function() nn.utils.parameters_to_vector({a}, {warmup = true}) end,
    } do refused(name, "takes no options, got 'warmup'", f) end
    os.remove(path)
  end)
  it('and no table is an error too', function()
    local null = require('ffi').new 'void *'
    refused('optimizer', 'options are a table', function() optim.SGD({weight()}, null) end)
    refused('meshgrid', 'options are a table', function() amp.meshgrid({amp.ones(1)}, true) end)
    refused('ModuleDict', 'a table name -> module expected', function() nn.ModuleDict(null) end)
  end)
end)

describe('a tensor that stands where something else is meant', function()
  it('is called a tensor', function()
    local t = amp.ones(2)
    for _, f in ipairs {
      function() amp.save(t) end, function() amp.load(t) end, function() amp.data.DataLoader(t) end, function() amp.metric.Accuracy():update(t) end,
      function() nn.LayerNorm(t) end, function() nn.Linear(1, 1):register_buffer(t) end, function() amp.io.save_npy(t) end,
    } do
      local _, e = pcall(f)
      assert.is_truthy(tostring(e):find('got a tensor', 1, true), tostring(e))
    end
  end)
end)

-- LuaJIT of Debian 12 cuts a pointer where a compiled `next` finds nothing and all registers hold something else.
it('a list is asked for keys beyond its items where a trace holds many values', function()
  local helper = require 'spec.lib.helper'
  local out, status = helper.child("print(assert(loadfile 'spec/fixtures/many_values.lua')(require('amp.core.keys').next)(1000))")
  assert.are.equal(0, status)
  assert.are.equal('1000\n', out)
end)
