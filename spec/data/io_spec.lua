--- io: checkpoints and safetensors: what goes in comes out, damage is noticed, writes are whole or not at all, no code runs.
local ffi = require 'ffi'
local amp = require 'amp'
local H = require 'spec.lib.helper'
local bit = require 'bit'
local C = require('amp.ffi').C

local function eq(t, values) H.close(t, values, H.exact) end
local raw = require 'spec.lib.bytes'
local le, with_byte, is_error_of = raw.le, raw.with_byte, raw.is_error_of
local function crc32(s) -- the standard's, bit by bit: not the library's own
  local c = 0xffffffff
  for i = 1, #s do
    c = bit.bxor(c, s:byte(i))
    for _ = 1, 8 do c = bit.bxor(bit.rshift(c, 1), bit.band(0xedb88320, -bit.band(c, 1))) end
  end
  return bit.bnot(c) % 2 ^ 32
end

local path = H.tmp 'file.amp'
local function trip(value)
  amp.save(path, value)
  return amp.load(path)
end

-- A value of many kinds, and whether another is equal to it.
local function sample()
  local shared, base = { 'both' }, H.make({ 1, 2, 3, 4, 5, 6 }, { 2, 3 })
  local leaf = H.make({ 0.5 }, { 1 })
  leaf.requires_grad = true
  local value = { step = 12, name = 'run\0\255', [1] = true, [2.5] = false, [true] = 'yes', nested = { deep = { shared } }, shared = shared,
    base = base, row = base[2], turned = base:t(), leaf = leaf, half = H.make({ 1, -2 }, { 2 }, 'float16'), none = amp.zeros(0, 3) }
  value.self = value
  return value
end
local function check(v)
  assert.equal(12, v.step)
  assert.equal('run\0\255', v.name)
  assert.is_true(v[1] == true and v[2.5] == false and v[true] == 'yes')
  assert.equal('both', v.shared[1])
  assert.is_true(v.nested.deep[1] == v.shared and v.self == v)
  eq(v.base, { 1, 2, 3, 4, 5, 6 })
  eq(v.row, { 4, 5, 6 })
  eq(v.turned, { 1, 4, 2, 5, 3, 6 })
  assert.is_true(v.leaf.requires_grad and not v.base.requires_grad)
  assert.equal('float16', v.half.dtype)
  eq(v.half, { 1, -2 })
  assert.same({ 0, 3 }, H.shape(v.none))
end

-- -- What comes back ---------------------------------------------------------

describe('a checkpoint', function()
  it('gives numbers, strings, booleans and tables back exactly', function()
    for _, v in ipairs { 0, 1, -1.5, 2 ^ 53, 1e-310, math.huge, -math.huge, 'text', '', '\0\r\n\26', true, false } do
      assert.equal(v, trip(v))
    end
    local nan = trip(0 / 0)
    assert.is_true(nan ~= nan)
    assert.equal(-math.huge, 1 / trip(-0.0))
    assert.equal(200000, #trip(('x'):rep(200000)))
    assert.same({}, trip {})
    local v = { 1, 2, { a = { b = { c = 'd' } } }, [-1] = 0, [1e9] = 1, [false] = true }
    assert.same(v, trip(v))
    local out = trip { { {} } }
    assert.is_nil(getmetatable(out))
    check(trip(sample()))
  end)
  it('gives tensors of every dtype back bit for bit', function()
    for _, dtype in ipairs { 'float64', 'float32', 'float16', 'bfloat16', 'int64', 'int32', 'int16', 'int8', 'uint8', 'bool' } do
      local v = dtype == 'bool' and { 1, 0, 1, 1 } or dtype == 'uint8' and { 0, 255, 7, 128 }
        or H.is_float[dtype] and { 1.5, -0.375, math.huge, 0 / 0 } or { 1, -128, 127, 0 }
      local t = H.make(v, { 2, 2 }, dtype)
      H.same(trip(t), t, dtype)
      H.same(trip { t:t() }[1], t:t():contiguous(), dtype)
      local scalar = H.make({ 1 }, {}, dtype)
      H.same(trip(scalar), scalar)
      H.same(trip(H.make({}, { 2, 0, 3 }, dtype)), H.make({}, { 2, 0, 3 }, dtype))
    end
    local big = amp.tensor({ 2 ^ 53 - 1 }, { dtype = 'int64' }) * 1024 + 1
    assert.is_true(amp.equal(trip(big), big))
  end)
  it('of views: expanded, stepped, of eight dimensions', function()
    local base = H.sample { 6, 4 }
    for _, t in ipairs { base:t(), base[{ { 1, 6, 2 }, { 2, 3 } }], amp.ones(1, 3):expand(4, 3), base:view(1, 2, 1, 3, 2, 1, 2, 1) } do
      H.same(trip(t), t:contiguous())
    end
  end)
  it('keeps what shares memory shared', function()
    local base = H.sample { 4, 4 }
    local v = trip { base = base, row = base[2], column = base[{ {}, 3 }], again = base, flat = base:view(16), other = base:clone() }
    assert.is_true(v.base == v.again)
    v.base:fill_(7)
    eq(v.row, { 7, 7, 7, 7 })
    eq(v.column, { 7, 7, 7, 7 })
    H.same(v.flat, amp.full({ 16 }, 7))
    assert.is_false(amp.equal(v.other, v.base))
    -- parts that don't meet don't bring the whole along
    local large = amp.zeros(1000, 100)
    amp.save(path, { large[1], large[500] })
    assert.is_true(#H.read(path) < 4000)
    -- tied weights
    local net = amp.nn.Sequential(amp.nn.Linear(3, 3), amp.nn.Linear(3, 3))
    net[2].weight = net[1].weight
    local state = trip(net:state_dict())
    state['1.weight']:fill_(2)
    H.same(state['2.weight'], amp.full({ 3, 3 }, 2))
  end)
  it('keeps requires_grad of leaves, and drops history', function()
    local w = amp.ones(2, { requires_grad = true })
    local v = trip { w = w, y = w * 2 }
    assert.is_true(v.w.requires_grad and v.w.is_leaf)
    assert.is_false(v.y.requires_grad)
    eq(v.y, { 2, 2 });
    (v.w * 3):sum():backward()
    eq(v.w.grad, { 3, 3 })
    assert.is_nil(w.grad)
  end)
  it('of a run: model, optimizer, scaler, loader, generator go on as if never stopped', function()
    local function run()
      local r = { net = amp.nn.Sequential(amp.nn.Linear(4, 8), amp.nn.ReLU(), amp.nn.Dropout(0.2), amp.nn.Linear(8, 1)) }
      r.opt = amp.optim.AdamW(r.net:parameters(), { lr = 0.05 })
      r.scaler = amp.GradScaler { init_scale = 1024, growth_interval = 3 }
      r.loader = amp.data.DataLoader(amp.data.TensorDataset(H.sample { 20, 4 }, H.sample { 20, 1 }), { batch_size = 3, shuffle = true })
      return r
    end
    local function steps(r, n)
      local losses = {}
      for x, y in r.loader:iter() do
        local loss = amp.autocast({ dtype = 'float16' }, function() return amp.mse_loss(r.net(x):float(), y) end)
        r.scaler:scale(loss):backward()
        r.scaler:step(r.opt)
        r.scaler:update()
        r.opt:clear_grad()
        losses[#losses + 1] = loss:item()
        if #losses == n then break end
      end
      return losses
    end
    local parts = { 'net', 'opt', 'scaler', 'loader' }
    amp.manual_seed(2)
    local a = run()
    steps(a, 3)
    local state = { rng = amp.get_rng_state() }
    for _, k in ipairs(parts) do state[k] = a[k]:state_dict() end
    amp.save(path, state)
    a.loader:load_state_dict(a.loader:state_dict())
    local want = steps(a, 4)
    amp.manual_seed(77)
    local b, saved = run(), amp.load(path)
    for _, k in ipairs(parts) do b[k]:load_state_dict(saved[k]) end
    amp.set_rng_state(saved.rng)
    assert.same(want, steps(b, 4))
    for i, p in ipairs(b.net:parameters()) do H.same(p:detach(), a.net:parameters()[i]:detach()) end
  end)
  it('equal values give equal files', function()
    amp.save(path, sample())
    local a = H.read(path)
    amp.save(path, sample())
    assert.is_true(a == H.read(path))
  end)
  it('leaves no mark on what is saved: a cast cached before is used after', function()
    local w, x = amp.ones(4, 4, { requires_grad = true }), amp.ones(2, 4)
    amp.autocast({ dtype = 'bfloat16' }, function()
      amp.linear(x, w)
      local casts = amp.counters().casts
      amp.save(path, { w = w })
      local made = amp.counters().casts - casts
      amp.linear(x, w)
      assert.equal(0, made)
      assert.equal(1, amp.counters().casts - casts) -- of x
    end)
  end)
  it('saved and loaded in a loop leaks nothing', function()
    local v = sample()
    trip(v)
    local live = H.live()
    for _ = 1, 50 do trip(v) end
    assert.equal(live, H.live())
  end)
end)

describe('saving refuses', function()
  it('what is no data, saying where it stands', function()
    H.fails_here(function() amp.save(path, { a = { b = print } }) end, "'a.b'", 'function')
    H.fails_here(function() amp.save(path, { coroutine.create(print) }) end, "'1'", 'thread')
    H.fails_here(function() amp.save(path, print) end, 'value itself', 'function')
    H.fails_here(function() amp.save(path, nil) end, 'nil')
    H.fails_here(function() amp.save(path) end, 'nil')
    H.fails_here(function() amp.save(path, { x = ffi.new 'int[2]' }) end, "'x'", 'cdata')
    H.fails_here(function() amp.save(path, { x = 5LL }) end, "'x'", 'cdata')
    H.fails_here(function() amp.save(path, { [print] = 1 }) end, 'key', 'function')
    H.fails_here(function() amp.save(path, { model = amp.nn.Linear(1, 1) }) end, "'model'", 'state_dict')
    H.fails_here(function() amp.save(path, { opt = amp.optim.SGD({ amp.ones(1, { requires_grad = true }) }, { lr = 1 }) }) end, "'opt'", 'state_dict')
    H.fails_here(function() amp.save(path, { scaler = amp.GradScaler() }) end, "'scaler'", 'state_dict')
    H.fails_here(function() amp.save(5, {}) end, 'path', 'number')
    local freed = amp.ones(2)
    freed:free()
    H.fails_here(function() amp.save(path, { t = freed }) end, 'freed')
  end)
  it('nesting without end, with an error', function()
    local v = {}
    local top = v
    for _ = 1, 100000 do
      v[1] = {}
      v = v[1]
    end
    H.fails_here(function() amp.save(path, top) end, '200 levels')
  end)
  it('a place that cannot be written; nothing is left behind', function()
    H.fails_here(function() amp.save('/nowhere/at/all.amp', {}) end, '/nowhere/at/all.amp', 'No such file')
    local dir = H.tmp 'folder'
    os.execute("mkdir -p '" .. dir .. "/in'")
    H.fails_here(function() amp.save(dir .. '/in', {}) end, dir .. '/in')
    assert.equal('in\n', (H.sh("ls '" .. dir .. "'")))
    amp.save(dir .. '/a', 1)
    H.fails_here(function() amp.save(dir .. '/a', { print }) end)
    assert.equal('a\nin\n', (H.sh("ls '" .. dir .. "'")))
    assert.equal(1, amp.load(dir .. '/a'))
  end)
end)

describe('loading', function()
  it('puts tensors where map_location says', function()
    amp.save(path, sample())
    check(amp.load(path, { map_location = 'cpu' }))
    H.fails_here(function() amp.load(path, { map_location = 'gpu' }) end, 'gpu')
    H.fails_here(function() amp.load(path, { map_location = 5 }) end, '5')
    H.fails_here(function() amp.load(path, { map = 'cpu' }) end, 'map', 'map_location')
    H.fails_here(function() amp.load(path, 'cpu') end, 'table', 'string')
    if amp.cuda.is_available() then
      local v = amp.load(path, { map_location = 'cuda' })
      assert.equal('cuda', v.base.device:match '^cuda')
      v.base:fill_(1)
      eq(v.row:cpu(), { 1, 1, 1 })
    else
      H.fails_here(function() amp.load(path, { map_location = 'cuda' }) end, 'cuda')
    end
  end)
  it('of what is not there or no checkpoint is an error with the name', function()
    H.fails_here(function() amp.load '/nowhere/at-all.amp' end, '/nowhere/at-all.amp', 'No such file')
    H.fails_here(function() amp.load(H.tmp '.') end, H.tmp '.')
    H.fails_here(function() amp.load() end, 'path')
    for _, text in ipairs { '', 'x', 'return os.exit(1)', ('\0'):rep(500), H.read 'spec/run.lua' } do
      H.write(path, text)
      H.fails_here(function() amp.load(path) end, 'file.amp')
    end
  end)
end)

-- -- Damage ------------------------------------------------------------------

describe('a damaged checkpoint', function()
  local small = { n = 1, s = 'ab', t = H.make({ 1, 2, 3 }, { 3 }), u = H.make({ 5 }, { 1 }, 'int16') }
  amp.save(path, small)
  local good = H.read(path)
  local damaged = H.tmp 'damaged.amp'

  it('with any byte changed is noticed', function()
    for at = 1, #good do
      for _, change in ipairs { 1, 128, 255 } do
        H.write(damaged, with_byte(good, at, change))
        local ok, e = pcall(amp.load, damaged)
        assert.is_false(ok, 'byte ' .. at .. ' changed by ' .. change .. ' went unseen')
        assert.is_true(is_error_of('damaged.amp', e), tostring(e))
      end
    end
  end)
  it('cut off at any length, or longer, is noticed', function()
    for n = 0, #good - 1 do
      H.write(damaged, good:sub(1, n))
      local ok, e = pcall(amp.load, damaged)
      assert.is_false(ok, n .. ' bytes of ' .. #good .. ' loaded')
      assert.is_true(is_error_of('damaged.amp', e), tostring(e))
    end
    for _, more in ipairs { '\0', good } do
      H.write(damaged, good .. more)
      if more == good then -- two files in one: whatever it gives is whole
        local ok, v = pcall(amp.load, damaged)
        assert.is_true(not ok or v.s == 'ab')
      else
        H.fails_here(function() amp.load(damaged) end, 'damaged.amp')
      end
    end
  end)

  -- A file with the given data and index, check sums right.
  local magic = '\137AMP\r\n\26\n'
  local function forge(data, index, version)
    local head = magic .. le(version or 1, 4) .. le(0, 4) .. data
    local footer = le(#head, 8) .. le(#index, 8) .. le(crc32(index), 4)
    H.write(damaged, head .. index .. footer .. le(crc32(footer), 4) .. magic)
  end
  local function forged(...)
    forge(...)
    return pcall(amp.load, damaged)
  end
  local function segment(dtype, at, bytes, data) return le(dtype, 1) .. le(at, 8) .. le(bytes, 8) .. le(crc32(data), 4) end
  local float = H.dtype_id 'float32'
  local four = ('\0\0\128\63'):rep(4)
  local data = ('\0'):rep(48) .. four -- from byte 64
  local function tensor(seg, flag, offset, ...) -- ... sizes and strides in turn
    local out = { le(seg, 4), le(flag, 1), le(select('#', ...) / 2, 1), le(offset, 8) }
    for i = 1, select('#', ...) do out[#out + 1] = le((select(i, ...)), 8) end
    return table.concat(out)
  end
  local function index(tensors, value, segments)
    return (segments or (le(1, 4) .. segment(float, 64, 16, four))) .. le(#tensors, 4) .. table.concat(tensors) .. value
  end

  it('is one that the format\'s words can make: a forged whole one loads', function()
    local ok, t = forged(data, index({ tensor(1, 0, 0, 2, 2, 2, 1) }, 'x' .. le(1, 4)))
    assert.is_true(ok, tostring(t))
    H.same(t, amp.ones(2, 2))
  end)
  it('whose check sums are right is still believed in nothing', function()
    local x = 'x' .. le(1, 4)
    local one = tensor(1, 0, 0, 2, 2, 2, 1)
    for what, text in pairs {
      ['a view past its segment'] = index({ tensor(1, 0, 1, 2, 2, 2, 1) }, x),
      ['a view of huge size'] = index({ tensor(1, 0, 0, 2 ^ 40, 1) }, x),
      ['sizes whose product overflows'] = index({ tensor(1, 0, 0, 2 ^ 40, 0, 2 ^ 40, 0) }, x),
      ['a size over 2^53'] = index({ le(1, 4) .. le(0, 1) .. le(1, 1) .. le(0, 8) .. ('\255'):rep(8) .. le(1, 8) }, x),
      ['nine dimensions'] = index({ tensor(1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1) }, x),
      ['a segment that is not there'] = index({ tensor(2, 0, 0, 1, 1) }, x),
      ['segment 0'] = index({ tensor(0, 0, 0, 1, 1) }, x),
      ['a tensor that is not there'] = index({ one }, 'x' .. le(2, 4)),
      ['tensor 0'] = index({ one }, 'x' .. le(0, 4)),
      ['a segment past the data'] = index({ one }, x, le(1, 4) .. segment(float, 64, 2 ^ 40, four)),
      ['a segment in the header'] = index({ one }, x, le(1, 4) .. segment(float, 0, 16, four)),
      ['a segment out of line'] = index({ one }, x, le(1, 4) .. segment(float, 60, 16, four)),
      ['a segment of half an element'] = index({ tensor(1, 0, 0, 1, 1) }, x, le(1, 4) .. segment(float, 64, 15, four)),
      ['overlapping segments'] = index({ one }, x, le(2, 4) .. segment(float, 64, 16, four) .. segment(float, 64, 16, four)),
      ['an unknown dtype'] = index({ one }, x, le(1, 4) .. segment(99, 64, 16, four)),
      ['more segments than there are bytes'] = le(2 ^ 32 - 1, 4),
      ['more tensors than there are bytes'] = le(0, 4) .. le(2 ^ 32 - 1, 4),
      ['a string longer than the file'] = index({ one }, 's' .. le(2 ^ 32 - 1, 4) .. 'abc'),
      ['a table larger than the file'] = index({ one }, 't' .. le(2 ^ 32 - 1, 4) .. 'sabc'),
      ['a table that is not there'] = index({ one }, 'r' .. le(1, 4)),
      ['an unknown tag'] = index({ one }, 'L' .. le(1, 4)),
      ['no value'] = index({ one }, ''),
      ['two values'] = index({ one }, 'TT'),
      ['a NaN as key'] = index({ one }, 't' .. le(1, 4) .. 'd' .. ('\255'):rep(8) .. 'T'),
      ['a tensor as key'] = index({ one }, 't' .. le(1, 4) .. x .. 'T'),
      ['a table as key'] = index({ one }, 't' .. le(1, 4) .. 't' .. le(0, 4) .. 'T'),
      ['tables without end'] = index({ one }, ('t' .. le(1, 4) .. 'T'):rep(100000) .. 'T'),
      ['a key a second time'] = index({ one }, 't' .. le(2, 4) .. 'TTTF'),
      ['an integer that requires grad'] = index({ tensor(1, 1, 0, 2, 1) }, x, le(1, 4) .. segment(H.dtype_id 'int64', 64, 16, four)),
      ['a flag that means nothing'] = index({ tensor(1, 7, 0, 2, 1) }, x),
    } do
      local before = tonumber(C.amp_memory(0, 0).peak)
      local ok, e = forged(data, text)
      assert.is_false(ok, what .. ' was accepted')
      assert.is_true(is_error_of('damaged.amp', e), what .. ': ' .. tostring(e))
      assert.is_true(tonumber(C.amp_memory(0, 0).peak) - before < 2 ^ 20, what .. ' allocated')
    end
    -- truth values are 0 and 1 whatever the file says
    local _, truth = forged(data, index({ tensor(1, 0, 0, 4, 1) }, x, le(1, 4) .. segment(H.dtype_id 'bool', 64, 16, four)))
    eq(truth, { 0, 0, 1, 1 })
    assert.equal(2, truth:sum():item())
    local ok, e = forged(data, index({ one }, x), 2)
    assert.is_false(ok)
    assert.is_true(tostring(e):find('version 2', 1, true) ~= nil, tostring(e))
    ok = forged('\1' .. data:sub(2), index({ one }, x)) -- padding that is not zero
    assert.is_false(ok)
  end)
  it('with any byte of its index changed under right check sums: an error of amp\'s, or a value', function()
    local whole = index({ tensor(1, 1, 0, 2, 2, 2, 1), tensor(1, 0, 1, 3, 1) },
      't' .. le(3, 4) .. 's' .. le(1, 4) .. 'a' .. 'x' .. le(1, 4) .. 's' .. le(1, 4) .. 'b' .. 'x' .. le(2, 4) .. 'd' .. ('\0'):rep(8) .. 'r' .. le(1, 4))
    assert.is_true((forged(data, whole)))
    for at = 1, #whole do
      for _, change in ipairs { 1, 2, 4, 16, 128, 255 } do
        local ok, v = forged(data, with_byte(whole, at, change))
        if ok then
          if type(v) == 'table' then
            for _, t in pairs(v) do if amp.is_tensor(t) and t:numel() < 100 then H.values(t) end end
          end
        else
          assert.is_true(is_error_of('damaged.amp', v), at .. ': ' .. tostring(v))
        end
      end
    end
  end)
  it('runs no code', function()
    local out, status = H.child(([[
      local path = %q
      amp.save(path, { 'return os.exit(9)', string.dump(function() os.exit(9) end), a = amp.ones(2), ['os.exit(9)'] = 'x' })
      amp.load(path)
      for _, name in ipairs { 'loadstring', 'load', 'loadfile', 'dofile' } do
        _G[name] = function() io.write(name, ' was called') os.exit(8) end
      end
      package.loaders, package.preload = {}, {}
      local v = amp.load(path)
      io.write(v[1], #v[2] > 50 and ' whole')
    ]]):format(H.tmp 'code.amp'))
    assert.equal('return os.exit(9) whole', out)
    assert.equal(0, status)
  end)
end)

-- -- Writing whole or not at all ---------------------------------------------

describe('a write that is interrupted', function()
  local target = H.tmp 'atomic.amp'
  -- a process that overwrites the file and is killed at its k-th write, or behind the last
  local function killed(save, k)
    local _, status = H.child(([[
      local file, path, at = require 'amp.io.file', %q, %d
      local function die() os.execute 'kill -9 $PPID' while true do end end
      local replace = file.replace
      file.replace = function(p, fill)
        return replace(p, function(put)
          local n = 0
          fill(function(...)
            n = n + 1
            if n == at then die() end
            put(...)
          end)
          if at < 0 then die() end
        end)
      end
      local big = amp.ones(300000)
      %s
    ]]):format(target, k, save))
    return status
  end
  for name, c in pairs {
    checkpoint = { save = "amp.save(path, { v = 'new', big = big, other = { amp.zeros(3) } })",
      write = function() amp.save(target, { v = 'old', big = amp.zeros(300000) }) end,
      read = function()
        local v = amp.load(target)
        return v.v, v.big
      end },
    safetensors = { save = "amp.io.safetensors.save(path, { big = big, other = amp.zeros(3) }, { v = 'new' })",
      write = function() amp.io.safetensors.save(target, { big = amp.zeros(300000) }, { v = 'old' }) end,
      read = function()
        local t, m = amp.io.safetensors.load(target)
        return m.v, t.big
      end },
  } do
    it('by SIGKILL leaves the old ' .. name .. ', whatever the moment', function()
      c.write()
      local before = H.read(target)
      for _, k in ipairs { 1, 2, 3, 4, -1 } do
        assert.equal(137, killed(c.save, k), 'write ' .. k)
        assert.is_true(before == H.read(target))
        local v, big = c.read()
        assert.equal('old', v)
        assert.equal(0, big:sum():item())
      end
      assert.equal(0, killed(c.save, 1e9))
      local v, big = c.read()
      assert.equal('new', v)
      assert.equal(300000, big:sum():item())
    end)
  end
  it('by SIGKILL at any time leaves the old or the new', function()
    amp.save(target, { n = 0, t = amp.zeros(200000) })
    local script = H.tmp 'loop.lua'
    H.write(script, ([[
      package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path
      package.cpath = '%s/?.so;' .. package.cpath
      local amp = require 'amp'
      for n = 1, 1e9 do amp.save('%s', { n = n, t = amp.full({ 200000 }, n %% 1000) }) end
    ]]):format(H.absolute(H.root), H.absolute(H.root), H.absolute(H.build), target))
    local last = 0
    for i = 1, 6 do
      H.sh(("luajit '%s' & p=$!; sleep 0.%02d; kill -9 $p; wait $p 2>/dev/null"):format(script, 10 + i * 7))
      local v = amp.load(target)
      H.same(v.t, amp.full({ 200000 }, v.n % 1000))
      last = math.max(last, v.n)
    end
    assert.is_true(last > 0, 'nothing was ever written')
  end)
  it('by a full disk is an error; the old file stays and no other', function()
    local dir = H.tmp 'full'
    os.execute("mkdir -p '" .. dir .. "'")
    amp.save(dir .. '/a.amp', { 'old' })
    amp.io.safetensors.save(dir .. '/a.safetensors', { old = amp.ones(1) })
    local script = H.tmp 'full.lua'
    H.write(script, ([[
      package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path
      package.cpath = '%s/?.so;' .. package.cpath
      local amp = require 'amp'
      local dir = '%s'
      print(pcall(amp.save, dir .. '/a.amp', { amp.ones(1000000) }))
      print(pcall(amp.io.safetensors.save, dir .. '/a.safetensors', { t = amp.ones(1000000) }))
    ]]):format(H.absolute(H.root), H.absolute(H.root), H.absolute(H.build), dir))
    local out = H.sh(("(trap '' XFSZ; ulimit -f 100; luajit '%s')"):format(script))
    local first, second = out:match '^false\t([^\n]*)\nfalse\t([^\n]*)\n'
    assert.is_true(first ~= nil and first:find('a.amp', 1, true) ~= nil and first:find('large', 1, true) ~= nil, out)
    assert.is_true(second:find('a.safetensors', 1, true) ~= nil and second:find('large', 1, true) ~= nil, out)
    assert.equal('a.amp\na.safetensors\n', (H.sh("ls '" .. dir .. "'")))
    assert.same({ 'old' }, amp.load(dir .. '/a.amp'))
    assert.is_not_nil(amp.io.safetensors.load(dir .. '/a.safetensors').old)
  end)
  it('keeps the rights of the file it replaces and follows a link', function()
    local real, link = H.tmp 'real.amp', H.tmp 'link.amp'
    amp.save(real, 1)
    H.sh(("chmod 640 '%s'; ln -sf real.amp '%s'"):format(real, link))
    amp.save(link, 2)
    assert.equal(2, amp.load(real))
    assert.equal('640\n', (H.sh(("stat -c %%a '%s'"):format(real))))
    assert.equal('symbolic link\n', (H.sh(("stat -c %%F '%s'"):format(link))))
  end)
end)
