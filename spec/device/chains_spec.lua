--- Chains of elementwise rows as one generated kernel, run by the emulator of spec/device/emulator: the text that NVRTC would
-- get is compiled for the host as well. Each case is a process of its own, with a folder of its own for what is compiled.
local assert = require 'luassert'
local emulated = require 'spec.device.emulated'

local head = emulated.head .. [[
local chains = require 'spec.device.chains'
chains.generated(1)
local function of(...) return amp.graph.trace(...):optimize {joins = false} end
local function once(name, f, ...)
  local args = {...}
  return amp.no_grad(function()
    local want, _, _, before = f(unpack(args)), chains.counts()
    local g = of(f, args)
    local got = g(unpack(args))
    local _, _, after = chains.counts()
    if not chains.alike(got, want) then error(name .. ': other bits', 2) end
    if after ~= before + 1 then error(('%s: %d launches'):format(name, after - before), 2) end
    return g, got
  end)
end
local function formula(x, row, column)
  local z = (x * 2 + row - column):relu()
  z = amp.tanh(z * z) * 0.5 + 1
  return amp.where(z:gt(1.2), z, x)
end
]]

local function folder()
  local path = os.tmpname()
  os.remove(path)
  return path
end
local function case(name, code, environment)
  if not emulated.there then return pending(name, function() end) end
  it(name, function()
    local path = folder()
    emulated.child(head .. code, ("XDG_CACHE_HOME='%s' %s"):format(path, environment or ''))
    os.execute(("rm -rf '%s'"):format(path))
  end)
end

describe('generated kernels', function()
  for _, dtype in ipairs {'float32', 'bfloat16', 'int32', 'bool'} do
    case('give the bits of the rows they are made of, ' .. dtype, ([[
      for _, f in ipairs(chains.functions('%s')) do chains.check(f, chains.operands('%s', {37, 29}, 'cuda'), 1) end
    ]]):format(dtype, dtype))
  end

  case('take operands as they lie', [[
    local a, b, c = randn(30, 40), randn(40), randn(30, 1)
    local g = once('broadcast', formula, a, b, c)
    local x, y, z = randn(30, 40), randn(40), randn(30, 1)
    local _, _, before = chains.counts()
    amp.no_grad(function() assert(chains.alike(g(x, y, z), formula(x, y, z))) end)
    once('transposed', formula, randn(40, 30):t(), b, c)
    once('a row of them', formula, randn(64), randn(1), randn(64))
    once('a slice', formula, randn(30, 41):narrow(2, 2, 40), b, c)
    once('odd', formula, randn(100003), randn(1), randn(100003))
    once('one', formula, randn(1), randn(1), randn(1))
    for _, dtype in ipairs {'float16', 'int64', 'uint8', 'bool'} do
      local function casts(p, q) return p:to(dtype):to 'float32' * 2 + q end
      once('casts to ' .. dtype, casts, randn(33, 8):abs(), randn(8))
    end
    local compiled, kept = chains.counts()
    assert(kept == 0 and compiled == 5, compiled .. ' compiled') -- formula once, whatever lies how
  ]])

  case('keep the layout that rows alone give', [[
    local function f(x) return (x * 2 + 1):tanh() - x:sigmoid() end
    local x = randn(2, 3, 5, 7):contiguous 'channels_last'
    local _, got = once('channels last', f, x)
    amp.no_grad(function()
      local want = f(x)
      for d = 0, 3 do assert(got.ptr_.stride[d] == want.ptr_.stride[d]) end
    end)
  ]])

  case('tell of integers what the rows tell', [[
    local function f(x, y) return (x + 1) % y end
    local x, y = amp.tensor({5, 7, -3}, {dtype = 'int32', device = 'cuda'}), amp.tensor({2, 3, 2}, {dtype = 'int32', device = 'cuda'})
    local g = of(f, {x, y})
    amp.no_grad(function()
      assert(g(x, y):equal(f(x, y)))
      y:zero_()
      fails(function() g(x, y):cpu() end, 'mod')
    end)
  ]])

  case('are part of captured steps', [[
    local f = amp.compile(formula)
    local b, c = randn(40), randn(30, 1)
    amp.no_grad(function()
      local step = amp.capture(function(x) return f(x, b, c) end)
      for _ = 1, 6 do
        local a = randn(30, 40)
        assert(chains.alike(step(a), formula(a, b, c)))
      end
    end)
    local _, _, launched = chains.counts()
    assert(launched > 0)
  ]])

  case('leave gradients, regions and what watches to the rows', [[
    local x = randn(30, 40):requires_grad_()
    local function f(a) return (a * 2 + 1):tanh() * a end
    local g = of(f, {x})
    g(x):sum():backward()
    local got = x.grad:clone()
    x.grad = nil
    f(x):sum():backward()
    equal(x.grad, got, 'gradient')
    amp.no_grad(function()
      local y = x:detach()
      amp.autocast({dtype = 'bfloat16'}, function() assert(chains.alike(g(y), f(y))) end)
      amp.profile(function() g(y) end)
    end)
    local _, _, launched = chains.counts()
    assert(launched == 0, launched)
  ]])

  case('can be switched off', [[
    chains.generated(0)
    local x = randn(30, 40)
    amp.no_grad(function() assert(chains.alike(of(formula, {x, x, x})(x, x, x), formula(x, x, x))) end)
    local _, _, launched = chains.counts()
    assert(launched == 0)
  ]])
end)

describe('the folder of compiled kernels', function()
  local program = head .. [[
    local lines = {}
    amp.write_log = function(line) lines[#lines + 1] = line end
    local x = randn(30, 40)
    for _ = 1, 2 do amp.no_grad(function() assert(chains.alike(of(formula, {x, x, x})(x, x, x), formula(x, x, x))) end) end
    local function other(a) return (a * 3):exp() end
    amp.no_grad(function() assert(chains.alike(of(other, {x})(x), other(x))) end)
    print(table.concat({chains.counts()}, ' '))
    for _, line in ipairs(lines) do print(line) end
  ]]
  local function run(environment) return emulated.child(program, environment) end
  local function files(path)
    local list = {}
    local pipe = assert(io.popen(("ls '%s/amp'"):format(path)))
    for line in pipe:lines() do list[#list + 1] = ('%s/amp/%s'):format(path, line) end
    pipe:close()
    return list
  end
  local function write(path, text)
    local f = assert(io.open(path, 'wb'))
    f:write(text)
    f:close()
  end
  local function read(path)
    local f = assert(io.open(path, 'rb'))
    local text = f:read '*a'
    f:close()
    return text
  end
  local compiles = emulated.there and emulated.child(head .. [[print(amp.cuda.version_of 'nvrtc')]]):find 'NVRTC %d' ~= nil
  local function check(name, f)
    if not compiles then return pending(name, function() end) end
    it(name, function()
      local path = folder()
      f(path, ("XDG_CACHE_HOME='%s'"):format(path))
      os.execute(("rm -rf '%s'"):format(path))
    end)
  end

  check('serves the next process; what is damaged is made anew', function(path, where)
    assert.equal('2 0 3', run(where):match '[^\n]+')
    local list = files(path)
    assert.equal(2, #list)
    assert.equal('0 2 3', run(where):match '[^\n]+')
    local good = read(list[1])
    local changed = good:sub(1, 60) .. string.char((good:byte(61) + 1) % 256) .. good:sub(62)
    for _, bad in ipairs {'', good:sub(1, 20), good:sub(1, -2), good .. 'x', changed, read(list[2])} do
      write(list[1], bad)
      assert.equal('1 1 3', run(where):match '[^\n]+')
      assert.equal(good, read(list[1]))
    end
    assert.equal(2, #files(path))
  end)

  check('that can not be written is told once, and all goes on', function()
    local out = run "XDG_CACHE_HOME=/dev/null"
    assert.equal('2 0 3', out:match '[^\n]+')
    local _, told = out:gsub("can't be kept in /dev/null/amp", '')
    assert.equal(1, told, out)
    assert(out:find("nodes '", 1, true) and out:find('XDG_CACHE_HOME', 1, true), out)
    out = run 'XDG_CACHE_HOME= HOME='
    assert.equal('2 0 3', out:match '[^\n]+')
    assert(out:find('neither XDG_CACHE_HOME nor HOME', 1, true), out)
  end)

  check('is under HOME without XDG_CACHE_HOME', function(path)
    assert.equal('2 0 3', run(("XDG_CACHE_HOME= HOME='%s'"):format(path)):match '[^\n]+')
    assert.equal(2, #files(path .. '/.cache'))
  end)

  check('is of no use without NVRTC: rows run one by one, which is told once', function(path, where)
    os.execute(("mkdir -p '%s'"):format(path))
    for _, name in ipairs {'libnvrtc.so.13', 'libnvrtc.so'} do write(path .. '/' .. name, 'no library') end
    local out = run(("%s LD_LIBRARY_PATH='%s'"):format(where, path))
    assert.equal('0 0 0', out:match '[^\n]+')
    local _, told = out:gsub('run one by one, not as one kernel: libnvrtc%.so%.13 is not found', '')
    assert.equal(1, told, out)
    assert(out:find("nodes '", 1, true), out)
  end)
end)
