--- Errors: where they point, what they carry, and that no bad input does more than raise one.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local ops = require 'spec.ops.op_call'

describe('an error', function()
  it('names the caller\'s line, the function, both values', function()
    H.fails_here(function()
      local a = amp.zeros(3, 4)
      local b = a:matmul(amp.zeros(5, 6))
      return b
    end, 'amp.matmul', '3x4', '5x6')
  end)
  it('is an object: fields, string methods, concatenation', function()
    local _, e = pcall(function()
      local r = amp.zeros(3, 4):matmul(amp.zeros(5, 6))
      return r
    end)
    assert.equal('matmul', e.op)
    assert.equal('shape', e.code)
    assert.is_string(e.message)
    assert.is_true(e.where:match 'error_spec%.lua:%d+' ~= nil)
    assert.is_true(e:match 'matmul' ~= nil)
    assert.is_true(('failed: ' .. e):match '^failed: .*matmul' ~= nil)
    assert.is_true((e .. '!'):match '!$' ~= nil)
    assert.is_true(e.traceback:match 'error_spec' ~= nil)
  end)
  it('raised deep inside a module names the script and the module', function()
    local net = amp.nn.Sequential(amp.nn.Linear(4, 3), amp.nn.ReLU(), amp.nn.Linear(5, 2))
    H.fails_here(function()
      local y = net(amp.zeros(2, 4))
      return y
    end, 'linear', '3', 'Linear')
  end)
  it('passes through regions, scopes and coroutines with its line', function()
    for _, enter in ipairs { amp.autocast, amp.no_grad, amp.scope } do
      H.fails_here(function()
        enter(function()
          local r = amp.zeros(2) + amp.zeros(3)
          return r
        end)
      end, 'add', '2', '3')
    end
    local co = coroutine.create(function()
      local r = amp.zeros(2) + amp.zeros(3)
      return r
    end)
    local ok, e = coroutine.resume(co)
    assert.is_false(ok)
    assert.is_true(tostring(e):match 'error_spec%.lua:%d+' ~= nil)
  end)
  it('leaves an uncaught one readable on standard error, with status 1 and no crash', function()
    local out, status = H.child 'local t = amp.zeros(2, 3)\nlocal u = t:matmul(t)\nprint(u)'
    assert.equal(1, status)
    assert.is_true(out:match 'child%.lua:%d+: amp%.matmul' ~= nil, out)
    assert.is_true(out:find('2x3', 1, true) ~= nil)
  end)
  it('warnings come once per cause and can be caught', function()
    local list = H.warnings(function()
      for _ = 1, 3 do amp.autocast({ dtype = 'int16' }, function() end) end
    end)
    assert.is_true(#list <= 1)
  end)
  it('the module sets no globals and leaves print and require alone', function()
    local out = H.child([[
      local known = {}
      for k in pairs(_G) do known[k] = true end
      local p, r = print, require
      for _, name in ipairs { 'nn', 'optim', 'data', 'io', 'autocast', 'GradScaler', 'GradManager', 'metric' } do local _ = amp[name] end
      local net = amp.nn.Linear(2, 2)
      net(amp.ones(1, 2)):sum():backward()
      tostring(net.weight)
      for k in pairs(_G) do if not known[k] then p('new global ' .. k) end end
      assert(print == p and require == r)
      p 'done']])
    assert.equal('done\n', out)
  end)
end)

describe('bad arguments', function()
  -- what a user might pass by mistake, in every place of every public op
  local function values()
    return { false, 0, -1, 1.5, 1e30, -1e30, 0 / 0, 1 / 0, 2 ^ 53, 'x', '', {}, { 1, 2 }, { -1 }, { 'a' }, { 2 ^ 40, 2 ^ 40 }, function() end,
      amp.zeros(0), amp.zeros(2, 3), amp.zeros(2, 3, { dtype = 'int64' }), amp.ones(2, 2, 2, 2, { dtype = 'bool' }), amp.tensor(0 / 0),
      amp.full({ 3 }, 2 ^ 40, { dtype = 'int64' }), amp.full({ 3 }, -2 ^ 40, { dtype = 'int64' }), 7LL, coroutine.create(function() end) }
  end
  local too_large = { rand = true, randn = true, empty = true, full = true, arange = true, linspace = true, eye = true, randint = true, randperm = true }
  it('are answered by errors that name the op, and nothing stays allocated', function()
    local before = H.live()
    for _, row in ipairs(ops.rows) do
      if not row.flags.private and not row.flags.only_inplace and row.name ~= 'as_strided' then
        local f = amp[row.name]
        local list = values()
        local n = #row.args + #row.attrs
        local base = {}
        for i = 1, #row.args do
          base[i] = row.args[i].list and { amp.ones(2, 3) } or amp.ones(2, 3)
        end
        for place = 1, n + 1 do
          for v = 1, #list do
            if not (too_large[row.name] and type(list[v]) == 'number' and math.abs(list[v]) > 1e6) then
              local args = { unpack(base, 1, #row.args) }
              args[place] = list[v]
              local ok, e = pcall(f, unpack(args, 1, math.max(place, #row.args)))
              if not ok then
                local text = tostring(e)
                if not text:find('amp.' .. row.name, 1, true) and not text:find('amp.', 1, true) then
                  error(('%s, argument %d = %s: the error does not name it: %s'):format(row.name, place, tostring(list[v]), text), 0)
                end
              end
            end
          end
        end
      end
    end
    assert.is_true(H.live() <= before + 65536, 'live memory grew by ' .. (H.live() - before))
  end)
  it('unknown options of every op name the closest', function()
    for _, row in ipairs(ops.rows) do
      local required = false
      for _, a in ipairs(row.attrs) do required = required or not (a.optional or a.default) end
      if not row.flags.private and not row.flags.only_inplace and #row.attrs > 0 and not required then
        local args = {}
        for i = 1, #row.args do args[i] = row.args[i].list and { amp.ones(2, 3) } or amp.ones(2, 3) end
        local first = row.attrs[1].name
        args[#row.args + 1] = { [first .. 'x'] = 1 }
        H.fails(function() amp[row.name](unpack(args, 1, #row.args + 1)) end, row.name, first .. 'x', first)
      end
    end
  end)
  it('in constructors and methods', function()
    for _, f in ipairs {
      function() amp.tensor(print) end, function() amp.tensor() end, function() amp.zeros('x') end, function() amp.zeros(0 / 0) end,
      function() amp.zeros(2, 3):view('x') end, function() amp.zeros(2, 3):to('float31') end, function() amp.zeros(2, 3):to(5) end,
      function() amp.from_ptr(nil, { 2 }, 'float32') end, function() amp.from_ptr({}, { 2 }, 'float32') end,
      function() amp.manual_seed('x') end, function() amp.manual_seed(0 / 0) end, function() amp.nn.Linear(-1, 2) end, function() amp.nn.Linear('a', 2) end,
      function() amp.nn.Conv2d(1, 1) end, function() amp.nn.Dropout(2) end, function() amp.nn.Sequential(5) end,
      function() amp.optim.SGD({}, { lr = 1 }) end, function() amp.optim.SGD({ 5 }, { lr = 1 }) end, function() amp.optim.SGD(amp.ones(1), { lr = -1 }) end,
      function() amp.optim.Adam({ amp.ones(1) }, { betas = { 2, 0 } }) end, function() amp.GradScaler(5) end, function() amp.GradManager():attach(5) end,
      function() amp.backward() end, function() amp.grad() end, function() amp.no_grad() end, function() amp.scope(1) end, function() amp.Function() end,
      function() amp.checkpoint() end, function() amp.save() end, function() amp.load() end, function() amp.data.mnist() end,
      function() amp.data.DataLoader(5) end,
      function() amp.autocast() end, function() amp.set_policy() end, function() amp.memory('x') end, function() amp.set_num_threads(0) end,
      function() amp.zeros(2)[nil] = 1 end, function() local r = amp.zeros(2)[{ {} , {} }] return r end, function() amp.zeros(2):item() end,
    } do
      local ok, e = pcall(f)
      assert.is_false(ok)
      assert.is_true(tostring(e):match 'amp' ~= nil, tostring(e))
    end
  end)
  it('questions about GPUs say what they expect', function()
    H.fails(function() amp.cuda.version_of(5) end, 'cuda.version_of', 'name of a library', '5')
    H.fails(function() amp.cuda.tf32(1) end, 'cuda.tf32', 'true or false')
  end)
  it('use of a method without its receiver says so', function()
    H.fails(function() amp.zeros(2).size() end, 'size')
    H.fails(function() amp.zeros(2).sum(5) end, 'sum')
  end)
end)
