--- tostring of tensors: aligned, truncated, dtype and device in the last line.
local amp = require 'amp'
local H = require 'spec.helper'

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
end)
