--- amp.from_text: numbers in a text become a tensor, each rounded as Lua rounds it; what is no list of numbers is an error.
local amp = require 'amp'
local H = require 'spec.lib.helper'

local function refused(code, text, shape, dtype)
  local ok, e = pcall(amp.from_text, text, shape, dtype)
  assert.is_false(ok, text)
  assert.equal(code, e.code, tostring(e))
  return tostring(e)
end

describe('from_text', function()
  it('reads lists of JSON and plain rows', function()
    H.close(amp.from_text('[1, 2.5, -3e2]', { 3 }), { 1, 2.5, -300 }, { 3 })
    H.close(amp.from_text(' [[1,2],\n[3,4]] ', { 2, 2 }), { 1, 2, 3, 4 }, { 2, 2 })
    H.close(amp.from_text('1 2\t3\r\n4,5 , 6', { 2, 3 }), { 1, 2, 3, 4, 5, 6 }, { 2, 3 })
    H.close(amp.from_text('[[1], [2]]', 2), { 1, 2 }, { 2 })
    assert.equal(7, amp.from_text('7', {}):item())
    assert.same({ 0 }, amp.from_text('[]', { 0 }).shape)
    assert.equal('int64', amp.from_text('[1, 2]', { 2 }, 'int64').dtype)
    assert.equal('float32', amp.from_text('1', 1).dtype)
  end)

  it('refuses whole numbers that a double may not hold', function()
    assert.equal(9007199254740991, amp.from_text('9007199254740991', {}, 'int64'):item())
    for _, text in ipairs { '9007199254740993', '-9007199254740993', '1e18' } do
      assert.truthy(refused('value', text, {}, 'int64'):find('2^53', 1, true))
    end
  end)

  it('rounds each number as Lua does', function()
    local texts = { '0', '-0', '0.1', '123456789.123456789', '9007199254740993', '9007199254740992', '1e22', '1e23', '-1.7976931348623157e308',
      '5e-324', '2.2250738585072014e-308', '0.30000000000000004', '1e-400', '179769313486231570000000000000', '3.14159265358979323846264338327950288',
      '00012.50', '1E+2', '0.' .. ('0'):rep(60) .. '17', '8.5e00000000000000000001', ('7'):rep(300) }
    for i = 1, 400 do
      texts[#texts + 1] = ('%.17g'):format((math.random() - 0.5) * 10 ^ math.random(-30, 30))
      texts[#texts + 1] = ('%.' .. i % 20 .. 'e'):format(i / 7)
    end
    for _, text in ipairs(texts) do
      assert.equal(('%a'):format(tonumber(text)), ('%a'):format(amp.from_text(text, {}, 'float64'):item()), text)
    end
  end)

  it('says what is no number and where', function()
    assert.is_truthy(refused('value', '[1, x]', { 2 }):find("a number is expected at byte 5 of the text, got 'x'", 1, true))
    for _, text in ipairs { '[nan, 1]', '[1, inf]', '1-2', '[1,, 2]', '[1, 2', '1, 2]', '[1, 2],', ',1 2', '[,1, 2]', '1 .5', '+1 2', '[1 2]x', '0x10 1',
      '1. 2', '1e 2', '- 1', '[1, 1e999]', ('9'):rep(500) .. ' 1', '[1, "2"]', '[true, 1]', '1\0 2', '1[2]', '[1][2]' } do
      refused('value', text, { 2 })
    end
    refused('value', '300 1', { 2 }, 'uint8')
  end)

  it('wants as many numbers as the shape takes', function()
    assert.is_truthy(refused('shape', '[1, 2]', { 3 }):find('the text has 2 numbers, shape 3 takes 3', 1, true))
    assert.is_truthy(refused('shape', '[1, 2]', { 1 }):find('more than the 1 numbers', 1, true))
    refused('shape', '', { 1 })
    assert.is_false(pcall(amp.from_text, 3, { 1 }))
    assert.is_false(pcall(amp.from_text, '3'))
    assert.is_false(pcall(amp.from_text, '3', { 1 }, 'float7'))
    assert.is_false(pcall(amp.from_text, '3', { 1 }, 'float32', {}))
  end)

  it('sees that a shape was changed', function()
    local shape = { 1, 2 }
    assert.equal('1x2', tostring(amp.from_text('1 2', shape):size()))
    shape[1], shape[2] = 2, 1
    assert.equal('2x1', tostring(amp.from_text('1 2', shape):size()))
    shape[3] = 2
    refused('shape', '1 2', shape)
    shape[1] = -1
    assert.is_false(pcall(amp.from_text, '1 2', shape))
    shape = { 1, 1, 1, 1, 1, 2 }
    assert.equal('1x1x1x1x1x2', tostring(amp.from_text('1 2', shape):size()))
  end)

  it('keeps nothing of what it refused', function()
    local before = H.live()
    for _ = 1, 100 do pcall(amp.from_text, '[1, x]', { 2 }) end
    collectgarbage()
    assert.equal(before, H.live())
  end)
end)
