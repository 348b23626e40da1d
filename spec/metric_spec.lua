--- Metrics and the progress bar: running means that don't wait, a line that reads well on a terminal and in a file.
local amp = require 'amp'
local H = require 'spec.helper'

local function near(a, b) assert.is_true(math.abs(a - b) < 1e-6, a .. ' is not ' .. b) end

describe('metric.Loss', function()
  it('is the mean over examples', function()
    local m = amp.metric.Loss()
    m:update(amp.tensor(2), 3):update(amp.tensor(6), 1)
    near(m:value(), 3)
    m:update(amp.tensor { 1, 2, 6 }) -- unreduced: three examples
    near(m:value(), (6 + 6 + 9) / 7)
    m:update(1, 2)
    near(m:value(), 23 / 9)
    local name, value = m:get()
    assert.equal('loss', name)
    near(value, 23 / 9)
    assert.equal('loss 2.5556', tostring(m))
  end)
  it('keeps no graph, adds half-precision losses in float32, and resets', function()
    local w = amp.tensor({ 1 }, { requires_grad = true })
    local m = amp.metric.Loss 'train'
    m:update((w * 2):sum())
    assert.is_nil(w.grad)
    near(m:value(), 2)
    m:reset()
    local v = m:value()
    assert.is_true(v ~= v)
    for _ = 1, 5000 do m:update(amp.tensor(1, { dtype = 'bfloat16' })) end
    near(m:value(), 1)
    assert.equal('train 1.0000', tostring(m))
  end)
  it('does not wait for the device until it is asked', function()
    local m = amp.metric.Loss()
    local waits = amp.counters().host_waits
    for _ = 1, 10 do m:update(amp.tensor(1)) end
    assert.equal(waits, amp.counters().host_waits)
  end)
  it('refuses what is no loss', function()
    H.fails_here(function() amp.metric.Loss():update 'x' end, 'tensor', 'string')
    H.fails_here(function() amp.metric.Loss():update() end, 'tensor', 'nil')
    H.fails_here(function() amp.metric.Loss():update(amp.tensor(1), 'x') end, 'x')
    H.fails_here(function() amp.metric.Loss():update(amp.tensor { 1, 2 }, 3) end, '2', '3')
  end)
end)

describe('metric.Accuracy', function()
  it('is the share of right guesses, of scores or of labels', function()
    local m = amp.metric.Accuracy()
    m:update(H.make({ 0.1, 0.9, 0.8, 0.2, 0.3, 0.7 }, { 3, 2 }), amp.tensor({ 2, 1, 1 }, { dtype = 'int64' }))
    near(m:value(), 2 / 3)
    m:update(amp.tensor({ 5, 5 }, { dtype = 'int64' }), amp.tensor({ 5, 5 }, { dtype = 'uint8' }))
    near(m:value(), 4 / 5)
    assert.same({ 'accuracy', m:value() }, { m:get() })
    local v = m:reset():value()
    assert.is_true(v ~= v)
  end)
  it('of pictures: scores N x C x H x W', function()
    local m = amp.metric.Accuracy 'pixels'
    m:update(H.make({ 1, 0, 0, 1 }, { 1, 2, 1, 2 }), H.make({ 1, 1 }, { 1, 1, 2 }, 'int64'))
    near(m:value(), 0.5)
    assert.equal('pixels 0.5000', tostring(m))
  end)
  it('refuses shapes that do not fit', function()
    local m = amp.metric.Accuracy()
    H.fails_here(function() m:update(amp.ones(3, 2), amp.ones(4)) end, '3x2', '4')
    H.fails_here(function() m:update(amp.ones(3, 2)) end, 'labels', 'nil')
    H.fails_here(function() m:update(5, amp.ones(1)) end, 'number')
    local v = m:value()
    assert.is_true(v ~= v)
  end)
end)

-- -- Progress ----------------------------------------------------------------

describe('progress', function()
  local function bar_of(total, options)
    local now, file = 0, io.tmpfile()
    options.file = file
    options.clock = function() return now end
    local bar = amp.progress(total, options)
    return bar, function(seconds) now = now + seconds end, function()
      file:seek('set', 0)
      return file:read '*a'
    end
  end

  it('in a file is a line now and then, with share, time left and values', function()
    local bar, wait, text = bar_of(100, { label = 'train' })
    for _ = 1, 100 do
      wait(0.5)
      bar:update(1, { loss = amp.tensor(0.25), n = 3 })
    end
    bar:close():close()
    local lines = {}
    for line in text():gmatch '[^\n]+' do lines[#lines + 1] = line end
    assert.equal('train  10% 10/100 left 00:45  loss 0.25  n 3', lines[1])
    assert.equal(10, #lines)
    assert.equal('train 100% 100/100 in 00:50  loss 0.25  n 3', lines[10])
    assert.is_nil(text():find('\r', 1, true))
  end)
  it('on a terminal is drawn over itself and ends with its line', function()
    local bar, wait, text = bar_of(4, { terminal = true, interval = 0 })
    for _ = 1, 4 do
      wait(1)
      bar:update { loss = 1.23456789 }
    end
    bar:close()
    local out = text()
    local drawings = {}
    for line in out:gmatch '\r([^\r\n]*)' do drawings[#drawings + 1] = line end
    assert.equal(5, #drawings)
    assert.is_true(drawings[2]:find('2/4 left 00:02  loss 1.235', 1, true) ~= nil, drawings[2])
    assert.is_true(drawings[2]:find('=====>....', 1, true) ~= nil, drawings[2])
    assert.is_true(drawings[5]:find('4/4 in 00:04', 1, true) ~= nil, drawings[5])
    assert.equal('\n', out:sub(-1))
    for _, line in ipairs(drawings) do assert.is_true(#line <= 79, #line .. ': ' .. line) end
    -- an update after the end does nothing
    bar:update(1)
    assert.equal(out, text())
  end)
  it('a shorter drawing covers a longer one', function()
    local bar, wait, text = bar_of(2, { terminal = true, interval = 0 })
    wait(1)
    bar:update(1, { state = 'a long word indeed' })
    wait(1)
    bar:update(1, { state = 'b' })
    local drawings = {}
    for line in text():gmatch '\r([^\r\n]*)' do drawings[#drawings + 1] = line end
    assert.is_true(#drawings[2] >= #(drawings[1]:gsub(' +$', '')))
  end)
  it('is not drawn more often than the interval', function()
    local bar, wait, text = bar_of(1000, { terminal = true, interval = 0.1 })
    for _ = 1, 1000 do
      wait(0.001)
      bar:update()
    end
    local _, n = text():gsub('\r', '')
    assert.is_true(n >= 8 and n <= 11, n)
  end)
  it('reads a tensor only when it is drawn, and freed ones still', function()
    local bar, wait, text = bar_of(10, {})
    local waits = amp.counters().host_waits
    for _ = 1, 9 do
      local loss = amp.tensor(4)
      bar:update(1, { loss = loss })
      loss:free()
    end
    assert.equal(waits, amp.counters().host_waits)
    wait(5)
    bar:update(1)
    bar:close()
    assert.is_true(text():find('loss 4', 1, true) ~= nil, text())
  end)
  it('takes more steps than promised, none, and strange values', function()
    local bar, wait, text = bar_of(2, { interval = 0 })
    wait(1)
    bar:update(5, { a = 0 / 0, b = math.huge, c = true, d = 'text', e = -3, f = 1e20 })
    bar:close()
    assert.is_true(text():find('100% 5/2', 1, true) ~= nil, text())
    assert.is_nil(text():find('%-%d+:'), text())
    assert.is_nil(text():find('left -', 1, true), text())
    local none, _, empty = bar_of(0, {})
    none:close()
    assert.is_true(empty():find('100% 0/0 in 00:00', 1, true) ~= nil, empty())
    local long, later, hours = bar_of(10, { interval = 0 })
    later(3661)
    long:update(1)
    assert.is_true(hours():find('left 9:09:09', 1, true) ~= nil, hours())
  end)
  it('stays on its line, and counts characters, not bytes', function()
    local bar, wait, text = bar_of(4, { terminal = true, interval = 0, label = 'a\nb\027[2J' .. ('\195\169'):rep(100) })
    wait(1)
    bar:update(1, { ['x\ty'] = 'two\r\nlines' })
    bar:close()
    local out = text()
    local _, ends = out:gsub('\n', '')
    assert.equal(1, ends)
    assert.is_nil(out:find('\027', 1, true))
    for line in out:gmatch '\r([^\r\n]*)' do
      local _, n = line:gsub('[^\128-\191]', '')
      assert.is_true(n <= 79, n .. ': ' .. line)
      assert.is_nil(line:find '\195$')
    end
    H.fails_here(function() amp.progress(1, { label = {} }) end, 'label')
  end)
  it('may have numbers for names', function()
    local bar, wait, text = bar_of(1, { interval = 0 })
    wait(1)
    bar:update(1, { 5, [3] = 'x' })
    bar:close()
    assert.is_true(text():find('1 5  3 x', 1, true) ~= nil, text())
  end)
  it('quiet draws nothing', function()
    local bar, wait, text = bar_of(2, { quiet = true })
    wait(9)
    bar:update(1):update(1):close()
    assert.equal('', text())
  end)
  it('writes to standard error, so that output stays clean', function()
    assert.is_true(amp.progress(1).file == io.stderr)
  end)
  it('refuses what is no number of steps, or no option', function()
    H.fails_here(function() amp.progress() end, 'number', 'nil')
    H.fails_here(function() amp.progress(-1) end, '-1')
    H.fails_here(function() amp.progress(1 / 0) end, 'inf')
    H.fails_here(function() amp.progress(5, { lable = 'x' }) end, 'lable', "'label'")
    H.fails_here(function() amp.progress(5, { quiet = true }):update 'x' end, 'x')
    H.fails_here(function() amp.progress(5, { quiet = true }):update(1, { x = amp.ones(2) }) end, 'x', '2')
    H.fails_here(function() amp.progress(5, { quiet = true }):update(1, 5) end, '5')
  end)
end)
