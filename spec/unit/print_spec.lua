--- tostring of tensors: aligned, truncated, dtype and device in the last line.
local amp = require 'amp'
local H = require 'spec.lib.helper'

local function lines(t)
  local list = {}
  for line in (tostring(t) .. '\n'):gmatch '(.-)\n' do list[#list + 1] = line end
  return list
end

describe('printing', function()
  it('ends with shape, dtype and device', function()
    for _, d in ipairs { 'float32', 'float16', 'int64', 'bool' } do
      local l = lines(amp.zeros(2, 3, { dtype = d }))
      local last = l[#l]
      assert.is_true(last:find('2x3', 1, true) ~= nil, last)
      assert.is_true(last:find(d, 1, true) ~= nil, last)
      assert.is_true(last:find('cpu', 1, true) ~= nil, last)
    end
  end)
  it('aligns columns', function()
    local l = lines(amp.tensor { { 1, -200 }, { 3.5, 4 } })
    assert.equal(#l[1], #l[2])
    assert.is_true(l[1]:match '%-200' ~= nil)
  end)
  it('prints integers without points, and scalars, and empty tensors', function()
    assert.is_nil(tostring(amp.tensor({ 1, 2 }, { dtype = 'int64' })):match '%.%d')
    assert.is_true(tostring(amp.tensor(3.25)):find('3.25', 1, true) ~= nil)
    assert.is_true(tostring(amp.zeros(0, 3)):find('0x3', 1, true) ~= nil)
  end)
  it('shows NaN and infinities', function()
    local s = tostring(amp.tensor { 0 / 0, 1 / 0, -1 / 0, 1 }):lower()
    assert.is_true(s:find('nan', 1, true) ~= nil)
    assert.is_true(s:find('-inf', 1, true) ~= nil)
  end)
  it('is short for large tensors, and stays within 80 columns', function()
    local l = lines(amp.rand(1000, 1000))
    assert.is_true(#l < 60, #l .. ' lines')
    for _, line in ipairs(l) do assert.is_true(#line <= 90, line) end
    assert.is_true(tostring(amp.rand(1000, 1000)):find('...', 1, true) ~= nil)
    local wide = lines(amp.rand(3, 60))
    for _, line in ipairs(wide) do assert.is_true(#line <= 90, line) end
  end)
  it('prints more than two dimensions slice by slice', function()
    local s = tostring(amp.arange(0, 8):view(2, 2, 2))
    for v = 0, 7 do assert.is_true(s:find(tostring(v), 1, true) ~= nil) end
  end)
  it('sizes print as 2x3', function()
    assert.equal('2x3', tostring(amp.zeros(2, 3):size()))
    assert.equal('size 2x3', 'size ' .. amp.zeros(2, 3):size())
  end)
  it('leaves the tensor as it is and records nothing', function()
    local t = amp.ones(2, { requires_grad = true })
    local before = H.version(t)
    tostring(t * 2)
    assert.equal(before, H.version(t))
  end)
  it('shows the right elements at both ends of every dimension', function()
    local t = amp.arange(0, 20 * 30 * 40, { dtype = 'float64' }):view(20, 30, 40)
    local s = tostring(t)
    assert.is_true(s:find('(1,.,.) =', 1, true) ~= nil and s:find('(20,.,.) =', 1, true) ~= nil)
    assert.is_nil(s:find('(4,.,.) =', 1, true))
    for _, i in ipairs { 1, 3, 18, 20 } do
      for _, j in ipairs { 1, 3, 28, 30 } do
        for _, k in ipairs { 1, 3, 38, 40 } do
          local v = (i - 1) * 1200 + (j - 1) * 40 + k - 1
          assert.is_true(s:find('%f[%d]' .. v .. '%f[%D]') ~= nil, tostring(v))
        end
      end
    end
    for _, v in ipairs { 120, 3 * 1200, 36 } do assert.is_nil(s:find('%f[%d]' .. v .. '%f[%D]'), tostring(v)) end
    -- and of a view that is not contiguous
    local turned = tostring(amp.arange(0, 10000, { dtype = 'float64' }):view(100, 100):t())
    assert.equal('     0   100   200   ...  9700  9800  9900', turned:match '[^\n]+')
  end)
  it('of many dimensions is short', function()
    for _, n in ipairs { { 10, 10, 10, 10, 10, 10 }, { 6, 6, 6, 6, 6, 6, 6, 6 }, { 2, 7, 7, 7, 7, 7, 7 }, { 3, 3, 3, 3, 3, 3, 3, 7 } } do
      local l = lines(amp.zeros(n))
      assert.is_true(#l < 700, table.concat(n, 'x') .. ': ' .. #l .. ' lines')
    end
  end)
  it('shows every digit of large integers', function()
    local big = amp.full({ 2 }, 2, { dtype = 'int64' }):pow(60) + 1
    assert.is_true(tostring(big):find('1152921504606846977', 1, true) ~= nil, tostring(big))
    assert.is_true(tostring(amp.tensor({ -5, 12 }, { dtype = 'int64' })):find('-5  12', 1, true) ~= nil)
  end)
  it('takes 5 ms or less for a million elements', function()
    for _, n in ipairs { { 1000, 1000 }, { 1000000 }, { 1, 1000000 }, { 100, 100, 100 }, { 10, 10, 10, 10, 10, 10 } } do
      local t, best = amp.zeros(n), math.huge
      for _ = 1, 5 do
        local start = amp.clock()
        tostring(t)
        best = math.min(best, amp.clock() - start)
      end
      assert.is_true(best <= (os.getenv 'AMP_SPEC_SANITIZED' and 0.1 or 0.005), table.concat(n, 'x') .. ': ' .. best * 1e3 .. ' ms')
    end
  end)
  it('copies only what is shown from another device, in one wait', function()
    local out, status = H.child([[
      local mock = require 'spec.device.mock.device'
      local t = amp.arange(0, 1e6, { dtype = 'float64' }):view(1000, 1000)
      local there, text = t:to 'cuda', tostring(t)
      collectgarbage()
      local live, reads, waits = amp.memory('cpu').live, mock.reads(), amp.counters().host_waits
      amp.reset_peak_memory 'cpu'
      local s = tostring(there)
      print(mock.reads() - reads, amp.counters().host_waits - waits, amp.memory('cpu').peak - live)
      print(s:gsub('cuda:1', 'cpu') == text)
      reads = mock.reads()
      tostring(there:long())
      print(mock.reads() - reads)
    ]], nil, 'AMP_MOCK=' .. H.quote(H.absolute(H.build) .. '/mock'))
    assert.equal(0, status, out)
    local reads, waits, bytes, rest = out:match '^(%d+)%s+(%d+)%s+(%-?%d+)%s(.*)$'
    assert.equal('1', reads)
    assert.equal('1', waits)
    assert.is_true(tonumber(bytes) <= 4096, bytes .. ' bytes')
    assert.equal('true\n1\n', rest)
  end)
end)
