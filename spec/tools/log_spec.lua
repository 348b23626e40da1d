--- amp.Logger: rows and records that other programs read, tensors that are read late, and what a killed process leaves.
local bit = require 'bit'
local ffi = require 'ffi'
local amp = require 'amp'
local H = require 'spec.lib.helper'

-- -- A reader of event files of the spec's own ---------------------------------------------------

-- CRC-32C bit by bit, masked as records have it
local function checksum(s)
  local c = -1
  for i = 1, #s do
    c = bit.bxor(c, s:byte(i))
    for _ = 1, 8 do c = bit.bxor(bit.rshift(c, 1), bit.band(c, 1) ~= 0 and 0x82f63b78 or 0) end
  end
  return bit.bnot(c)
end
local function masked(s)
  local c = checksum(s)
  return (bit.bor(bit.rshift(c, 15), bit.lshift(c, 17)) + 0xa282ead8) % 2 ^ 32
end
local function le(s, at, n)
  local v = 0
  for i = n, 1, -1 do v = v * 256 + s:byte(at + i - 1) end
  return v
end

-- Fields of a protocol buffer: a list of {number, value}.
local function fields(s)
  local list, at = {}, 1
  local function varint()
    local v, factor = 0, 1
    while true do
      local b = s:byte(at)
      at = at + 1
      v = v + b % 128 * factor
      if b < 128 then return v end
      factor = factor * 128
    end
  end
  while at <= #s do
    local key = varint()
    local kind, value = key % 8
    if kind == 0 then value = varint()
    elseif kind == 1 then value, at = ffi.cast('const double *', s:sub(at, at + 7))[0], at + 8
    elseif kind == 5 then value, at = tonumber(ffi.cast('const float *', s:sub(at, at + 3))[0]), at + 4
    else
      local n = varint()
      value, at = s:sub(at, at + n - 1), at + n
    end
    list[#list + 1] = { math.floor(key / 8), value }
  end
  return list
end
local function one(s, ...) -- the value of a field, by its path
  for _, number in ipairs { ... } do
    local found
    for _, f in ipairs(fields(s)) do if f[1] == number then found = f[2] end end
    s = found
    if s == nil then return nil end
  end
  return s
end

-- Events of the files in a folder, each checked.
local function events(folder)
  local list = {}
  for path in io.popen("ls '" .. folder .. "'/events.out.tfevents.* | sort"):lines() do
    local s, at = H.read(path), 1
    while at <= #s do
      local n = le(s, at, 8)
      assert.equal(masked(s:sub(at, at + 7)), le(s, at + 8, 4))
      local data = s:sub(at + 12, at + 11 + n)
      assert.equal(n, #data)
      assert.equal(masked(data), le(s, at + 12 + n, 4))
      list[#list + 1] = data
      at = at + 16 + n
    end
  end
  return list
end
local function scalars(folder)
  local list = {}
  for _, e in ipairs(events(folder)) do
    local tag, v = one(e, 5, 1, 1), one(e, 5, 1, 2)
    if v then list[#list + 1] = { tag, one(e, 2), v } end
  end
  return list
end

local made = 0
local function folder()
  made = made + 1
  return H.tmp('run' .. made .. '/deep')
end

-- -- Tables ------------------------------------------------------------------------------------

describe('a logger', function()
  it('writes a row a step and a column a name', function()
    local dir = folder()
    local log = amp.Logger(dir, { tensorboard = false })
    log:scalars({ loss = 2.5, lr = 0.1 }, 1):scalars({ loss = 1 / 3, lr = 0.1 }, 2):close()
    local lines = {}
    for line in io.lines(dir .. '/log.csv') do lines[#lines + 1] = line end
    assert.equal('step,time,loss,lr', lines[1])
    assert.is_truthy(lines[2]:match '^1,%d+%.%d%d%d,2%.5,0%.1$')
    assert.is_truthy(lines[3]:match '^2,%d+%.%d%d%d,0%.3333333333333333,0%.1$')
    assert.equal(3, #lines)
  end)
  it('gives names that come later a column, and quotes odd ones', function()
    local dir = folder()
    local log = amp.Logger(dir)
    log:scalar('a', 1, 1)
    log:scalar('b,"c"\nd', 2, 2):flush()
    log:scalar('e', 0 / 0, 3)
    log:scalar('a', -1 / 0, 3):close()
    local run = amp.Logger.read(dir)
    assert.same({ { 1, 3 }, { 1, -math.huge } }, run.a)
    assert.same({ { 2 }, { 2 } }, run['b,"c"\nd'])
    assert.is_true(run.e[2][1] ~= run.e[2][1])
    assert.equal(3, #run.time[1])
    assert.same({ { 'a', 1, 1 }, { 'b,"c"\nd', 2, 2 }, { 'a', 3, -math.huge } }, (function()
      local l = scalars(dir)
      table.remove(l, 3) -- NaN, which equals nothing
      return l
    end)())
  end)
  it('reads tensors late and together, with the values they had', function()
    local dir = folder()
    local log = amp.Logger(dir, { interval = 100 })
    local total = amp.zeros(1)
    local waits = amp.counters().host_waits
    for step = 1, 20 do
      total:add_(0.1)
      log:scalars({ total = total, half = amp.tensor(step / 4, { dtype = 'float16' }) }, step)
    end
    assert.equal(waits, amp.counters().host_waits)
    log:close()
    assert.is_true(amp.counters().host_waits - waits <= 2)
    local run = amp.Logger.read(dir)
    assert.equal(20, #run.total[1])
    assert.is_true(math.abs(run.total[2][7] - 0.7) < 1e-6)
    assert.equal(2.75, run.half[2][11])
    assert.is_truthy(H.read(dir .. '/log.csv'):find(',0.25,0.1\n', 1, true)) -- a float32 in its own digits
  end)
  it('waits for no device while it logs, and once when it writes', function()
    local dir = folder()
    local out, status = H.child(([[
      local mock = require 'spec.device.mock.device'
      local w = amp.ones(2, {device = 'cuda'})
      local log = amp.Logger('%s', {interval = 100})
      local reads = mock.reads()
      for i = 1, 10 do log:scalars({a = w:sum() * i, b = w:half():sum(), c = i}, i) end
      print(mock.reads() - reads)
      log:close()
      print(mock.reads() - reads)
    ]]):format(dir), nil, 'AMP_MOCK=' .. H.quote(H.absolute(H.build) .. '/mock'))
    assert.equal(0, status, out)
    assert.equal('0\n1\n', out)
    assert.equal(20, amp.Logger.read(dir).a[2][10])
  end)
  it('keeps a tensor that is freed, or made in a scope', function()
    local dir = folder()
    local log = amp.Logger(dir, { interval = 100 })
    amp.scope(function() log:scalar('a', amp.ones(1) * 3, 1) end)
    local t = amp.ones(1, { requires_grad = true }) * 4
    log:scalar('a', t, 2)
    t:free()
    log:close()
    assert.same({ { 1, 2 }, { 3, 4 } }, amp.Logger.read(dir).a)
  end)
  it('goes on with a log that is there, also with one whose last row was cut off', function()
    local dir = folder()
    amp.Logger(dir):scalars({ a = 1, b = 2 }, 1):close()
    local whole = H.read(dir .. '/log.csv')
    for _, tail in ipairs { '2,17', '2', '2,17.5,3,' } do
      H.write(dir .. '/log.csv', whole .. tail)
      amp.Logger(dir):scalars({ b = 5, c = 6 }, 2):close()
      local run = amp.Logger.read(dir)
      assert.same({ { 1 }, { 1 } }, run.a)
      assert.same({ { 1, 2 }, { 2, 5 } }, run.b)
      assert.same({ { 2 }, { 6 } }, run.c)
    end
    assert.equal(8, #scalars(dir)) -- each opening has a file of its own
    -- a step that comes twice counts once
    amp.Logger(dir):scalars({ b = 9 }, 2):close()
    assert.same({ { 1, 2 }, { 2, 9 } }, amp.Logger.read(dir).b)
  end)
  it('leaves whole records when the process is killed', function()
    local dir = folder()
    local out = H.child(([[
      local log = amp.Logger('%s', {interval = 0})
      for step = 1, 300 do log:scalars({a = step, b = amp.tensor(step)}, step) end
      io.stdout:write('ready') io.stdout:flush()
      os.execute('kill -9 $PPID')
    ]]):format(dir))
    assert.is_truthy(out:find('ready', 1, true), out)
    local run = amp.Logger.read(dir)
    assert.is_true(#run.a[1] >= 299, #run.a[1])
    assert.is_true(#scalars(dir) >= 598)
  end)
  it('is closed when it is forgotten', function()
    local dir = folder()
    amp.Logger(dir, { interval = 100 }):scalar('a', 7, 1)
    collectgarbage()
    collectgarbage()
    assert.same({ { 1 }, { 7 } }, amp.Logger.read(dir).a)
  end)
end)

-- -- Events ---------------------------------------------------------------------------------------

describe('event files', function()
  it('begin with their version, and hold scalars, steps and times', function()
    local dir = folder()
    amp.Logger(dir, { csv = false }):scalar('loss/train', 0.25, 3):scalar('loss/train', 1e-3, 2 ^ 40):close()
    local list = events(dir)
    assert.equal(3, #list)
    assert.equal('brain.Event:2', one(list[1], 3))
    assert.equal('loss/train', one(list[2], 5, 1, 1))
    assert.equal(0.25, one(list[2], 5, 1, 2))
    assert.equal(3, one(list[2], 2))
    assert.equal(2 ^ 40, one(list[3], 2))
    assert.is_true(math.abs(one(list[2], 1) - os.time()) < 60)
    assert.is_nil(io.open(dir .. '/log.csv'))
  end)
  it('hold histograms: limits, counts and moments', function()
    local dir = folder()
    amp.Logger(dir):histogram('w', amp.tensor { 0, 1, 1, 3, 0 / 0, 1 / 0 }, 1, { bins = 3 }):histogram('none', amp.tensor { 0 / 0 }, 2):close()
    local list = events(dir)
    local h = one(list[2], 5, 1, 5)
    assert.same({ 0, 3, 4, 5, 11 }, { one(h, 1), one(h, 2), one(h, 3), one(h, 4), one(h, 5) })
    local function doubles(s)
      local out, p = {}, ffi.cast('const double *', s)
      for i = 0, #s / 8 - 1 do out[i + 1] = p[i] end
      return out
    end
    assert.same({ 1, 2, 3 }, doubles(one(h, 6)))
    assert.same({ 1, 2, 1 }, doubles(one(h, 7)))
    assert.equal(0, one(list[3], 5, 1, 5, 3))
  end)
  it('hold images as PNG, figures, and texts', function()
    local dir = folder()
    local log = amp.Logger(dir)
    log:image('x', amp.zeros(3, 4, 6), 1):figure('f', amp.plot.line({ 1, 2 }, { width = 100, height = 80 }), 1):text('t', '**bold**', 2):close()
    local list = events(dir)
    local image = one(list[2], 5, 1, 4)
    assert.same({ 4, 6, 3 }, { one(image, 1), one(image, 2), one(image, 3) })
    assert.equal('\137PNG', one(image, 4):sub(1, 4))
    assert.equal(100, one(list[3], 5, 1, 4, 2))
    assert.equal('**bold**', one(list[4], 5, 1, 8, 8))
    assert.equal('text', one(list[4], 5, 1, 9, 1, 1))
  end)
  it('are checked by a checksum that is the published one', function()
    assert.equal(bit.tobit(0xe3069283), require('amp.log.events').crc32c '123456789')
    assert.equal(bit.tobit(0xe3069283), checksum '123456789')
  end)
end)

describe('a logger refuses', function()
  it('what is no folder, name, value or step', function()
    H.fails_here(function() amp.Logger() end, 'folder', 'nil')
    H.fails_here(function() amp.Logger('/proc/nowhere/x') end, '/proc/nowhere/x')
    H.fails_here(function() amp.Logger(folder(), { cvs = true }) end, 'cvs', 'csv')
    local log = amp.Logger(folder())
    H.fails_here(function() log:scalar(5, 1, 1) end, 'name', '5')
    H.fails_here(function() log:scalar('step', 1, 1) end, 'step')
    H.fails_here(function() log:scalar('a', amp.ones(2), 1) end, "'a'", '2')
    H.fails_here(function() log:scalar('a', {}, 1) end, "'a'", 'table')
    H.fails_here(function() log:scalar('a', 1, -1) end, '-1')
    H.fails_here(function() log:scalars(5, 1) end, '5')
    H.fails_here(function() log:image('a', amp.ones(2, 2, 2), 1) end, '2x2x2')
    H.fails_here(function() log:text('a', 5, 1) end, '5')
    log:close():close()
    H.fails_here(function() log:scalar('a', 1, 1) end, 'closed')
  end)
  it("a table that is not amp's, and damaged ones", function()
    local dir = folder()
    amp.Logger(dir):close()
    H.write(dir .. '/log.csv', 'name,age\nx,1\n')
    H.fails_here(function() amp.Logger(dir) end, 'log.csv', 'step,time')
    H.fails_here(function() amp.Logger.read(dir) end, 'log.csv', 'step,time')
    H.write(dir .. '/log.csv', 'step,time,a\n1,2,x\n')
    H.fails_here(function() amp.Logger.read(dir) end, 'line 2', "'x'")
    H.fails_here(function() amp.Logger.read '/nowhere' end, '/nowhere/log.csv')
  end)
end)
