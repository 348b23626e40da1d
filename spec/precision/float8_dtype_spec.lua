--- 8-bit floats as a dtype: every value and rounding beside ml_dtypes, what may be done to them and what not.
-- AMP_SPEC_DEVICE names the device.
local ffi = require 'ffi'
local bit = require 'bit'
local amp = require 'amp'
local H = require 'spec.lib.helper'
if H.device then amp.set_default_device(H.device) end

local N = 1000000
local FORMATS = { 'float8_e4m3', 'float8_e5m2' }
local MOST = { float8_e4m3 = 448, float8_e5m2 = 57344 }
local low = 0xFFFFFFFFULL
local nan = 0 / 0

-- The lines of the fixture: sums by 'source dtype saturate', and values by dtype.
local sums, values = {}, {}
for line in io.lines 'spec/fixtures/float8.txt' do
  local source, dtype, saturate, rest = line:match '^(%S+) (%S+) (%S+) (.*)$'
  if source == 'values' then
    values[dtype] = {}
    for word in rest:gmatch '%S+' do table.insert(values[dtype], word == 'nan' and nan or tonumber(word)) end
  else sums[source .. ' ' .. dtype .. ' ' .. saturate] = tonumber(rest) end
end

-- 32 random bits of a number, as in spec/fixtures/make_float8.py.
local function mix(h)
  h = bit.bxor(h, bit.rshift(h, 16))
  h = bit.band(h * 0x85EBCA6BULL, low)
  h = bit.bxor(h, bit.rshift(h, 13))
  h = bit.band(h * 0xC2B2AE35ULL, low)
  return bit.bxor(h, bit.rshift(h, 16))
end

local inputs = {
  float32 = function()
    local p = ffi.new('uint32_t[?]', N)
    for i = 0, N - 1 do p[i] = mix(i + 1ULL) end
    return p, N
  end,
  float64 = function()
    local p = ffi.new('uint64_t[?]', N)
    for i = 0, N - 1 do
      local a, b = mix(i + 1ULL), mix(i + 0x9E3779B9ULL)
      local exponent = 1023ULL + bit.rshift(b, 8) % 40ULL - 22ULL
      local bits = bit.bor(bit.lshift(bit.rshift(a, 31), 63), bit.lshift(exponent, 52), bit.lshift(bit.band(a, 31ULL), 47))
      p[i] = bits + bit.band(b, 3ULL) - 1ULL
    end
    return p, N
  end,
}
local function every()
  local p = ffi.new 'uint16_t[65536]'
  for i = 0, 65535 do p[i] = i end
  return p, 65536
end
inputs.float16, inputs.bfloat16 = every, every

-- The bytes of an 8-bit tensor, and what holds them.
local function bytes(t)
  local here = t:cpu():contiguous()
  return here:data_ptr(), here
end

-- Of a NaN only that it is one is compared.
local function total(t, nans, strict)
  local p, keep = bytes(t)
  local sum = 0
  for i = 0, t:numel() - 1 do
    local b = p[i]
    if nans[i + 1] or not strict and bit.band(b, 127) == 127 then b = 127 end
    sum = sum + (b + 1) * ((i * 7919 + 1) % 1048573)
  end
  return sum, keep
end

local function pattern(dtype)
  local all = ffi.new 'uint8_t[256]'
  for i = 0, 255 do all[i] = i end
  local t = amp.from_ptr(all, { 256 }, dtype)
  return (H.device and t:to(H.device) or t:clone()), all
end

local function throws(fn, text)
  H.fails(fn, text)
end

describe('an 8-bit float', function()
  for _, dtype in ipairs(FORMATS) do
    it(dtype .. ' has the 256 values of ml_dtypes, in each wider float', function()
      local t = pattern(dtype)
      for _, wide in ipairs { 'float64', 'float32', 'float16', 'bfloat16' } do
        local list = t:to(wide):tolist()
        for i = 1, 256 do
          local want, got = values[dtype][i], list[i]
          assert(want ~= want and got ~= got or want == got and (want ~= 0 or 1 / want == 1 / got),
            ('%s in %s: pattern %d is %s, not %s'):format(dtype, wide, i - 1, got, want))
        end
      end
      local list = t:tolist()
      for i = 1, 256 do assert(list[i] == values[dtype][i] or list[i] ~= list[i] and values[dtype][i] ~= values[dtype][i]) end
    end)

    it(dtype .. ' comes back as it was through each wider float', function()
      local t = pattern(dtype)
      for _, wide in ipairs { 'float64', 'float32', 'float16', 'bfloat16' } do
        local p, keep = bytes(t:to(wide):to(dtype, { saturate = false }))
        for i = 0, 255 do
          local is_nan = values[dtype][i + 1] ~= values[dtype][i + 1]
          assert(is_nan or p[i] == i, ('%s through %s: pattern %d became %d'):format(dtype, wide, i, p[i]))
        end
        assert(keep)
      end
    end)

    for source, make in pairs(inputs) do
      for _, saturate in ipairs { true, false } do
        it(('%s: casts from %s round once%s, as ml_dtypes'):format(dtype, source, saturate and ' and saturate' or ''), function()
          local p, n = make()
          local t = amp.from_ptr(p, { n }, source)
          if H.device then t = t:to(H.device) end
          local nans = t:isnan():cpu():tolist()
          local sum = total(t:to(dtype, { saturate = saturate }), nans, saturate or dtype == 'float8_e5m2')
          assert.equal(sums[('%s %s %s'):format(source, dtype, saturate)], sum)
        end)
      end
    end

    it(dtype .. ' keeps the sign of 0, NaN as NaN, and takes infinities as its largest', function()
      local t = amp.tensor({ -0.0, nan, math.huge, -math.huge, 1e30, -1e-30 }, { dtype = dtype }):tolist()
      assert.equal(-math.huge, 1 / t[1])
      assert(t[2] ~= t[2])
      assert.same({ MOST[dtype], -MOST[dtype], MOST[dtype] }, { t[3], t[4], t[5] })
      assert.equal(-math.huge, 1 / t[6])
    end)
  end

  it('turns what is too large into NaN or infinity where it is asked not to saturate', function()
    local t = amp.tensor { 448, 464, 464.1, 57344, 61439, 61440, math.huge, -math.huge }
    local a = t:to('float8_e4m3', { saturate = false }):tolist()
    assert.same({ 448, 448 }, { a[1], a[2] })
    for i = 3, 8 do assert(a[i] ~= a[i]) end
    assert.same({ 448, 448, 448, 57344, 57344, math.huge, math.huge, -math.huge }, t:to { dtype = 'float8_e5m2', saturate = false }:tolist())
    assert.same({ 448, 448, 448, 57344, 57344, 57344, 57344, -57344 }, t:to { dtype = 'float8_e5m2' }:tolist())
  end)

  it('takes integers and booleans', function()
    assert.same({ 0, 1, 16, 16, 20, 448, -448 }, amp.tensor({ 0, 1, 16, 17, 19, 1000, -1000 }, { dtype = 'int64' }):to 'float8_e4m3':tolist())
    assert.same({ 1, 0 }, amp.tensor { true, false }:to 'float8_e5m2':tolist())
    assert.same({ 448, 3 }, amp.tensor({ 448, 3.25 }, { dtype = 'float8_e4m3' }):to 'int32':tolist())
    throws(function() amp.tensor({ nan }, { dtype = 'float8_e4m3' }):long() end, 'NaN')
  end)

  it('is copied, filled, assigned, viewed, joined and indexed', function()
    local t = amp.tensor({ { 1, 2, 3 }, { 4, 5, 6 } }, { dtype = 'float8_e4m3' })
    t[{ 1, 1 }] = 1e9
    t[{ 2, { 2, 3 } }] = amp.tensor { 17, -0.5 }
    assert.same({ { 448, 2, 3 }, { 4, 16, -0.5 } }, t:tolist())
    assert.same({ { 448, 4 }, { 2, 16 }, { 3, -0.5 } }, t:t():contiguous():tolist())
    assert.same({ 448, 3, 16 }, t:view(6)[amp.tensor { true, false, true, false, true, false }]:tolist())
    assert.same({ { 4, 16, -0.5 }, { 448, 2, 3 } }, t:index_select(1, amp.tensor({ 2, 1 }, { dtype = 'int64' })):tolist())
    t[t:gt(100)] = 7
    assert.equal(7, t[{ 1, 1 }]:item())
    assert.equal('float8_e4m3', amp.cat({ t, t }, 1).dtype)
    assert.same({ 4, 3 }, { amp.cat({ t, t }, 1):size(1), amp.stack({ t, t, t }, 1):size(1) })
    local u = amp.zeros(2, 3, { dtype = 'float8_e5m2' }):copy_(t)
    assert.same({ { 7, 2, 3 }, { 4, 16, -0.5 } }, u:tolist())
    assert.equal(57344, u:fill_(1e30)[{ 2, 2 }]:item())
    assert.same({ 3, 3 }, amp.full({ 2 }, 3.1, { dtype = 'float8_e5m2' }):tolist())
    assert.same({ 1, 0 }, { amp.ones(1, { dtype = 'float8_e4m3' }):item(), amp.zeros_like(t)[{ 1, 1 }]:item() })
    assert(amp.equal(t, t:clone()) and t:to(amp.float8_e4m3) == t)
    assert.equal(1, ffi.sizeof(ffi.typeof('uint8_t')))
  end)

  it('is compared', function()
    local t = amp.tensor({ 1, 2.25, nan }, { dtype = 'float8_e4m3' })
    assert.same({ true, true, false }, t:eq(t):tolist())
    assert.same({ false, true, false }, t:gt(amp.tensor { 1, 2, 3 }):tolist())
    assert.same({ true, false, false }, t:lt(1.5):tolist())
    assert.same({ true, true, false }, t:eq(t:to 'float8_e5m2':to 'float8_e4m3'):logical_or(t:ge(2)):tolist())
    assert.same({ false, false, true }, t:isnan():tolist())
  end)

  it('is printed with its dtype', function()
    local text = tostring(amp.tensor({ 1, -448 }, { dtype = 'float8_e4m3' }))
    assert(text:find '%-448' and text:find 'float8_e4m3')
  end)

  it('is not computed in: the error names the dtype and says to cast', function()
    local t = amp.ones(16, 16, { dtype = 'float8_e5m2' })
    local f = amp.ones(16, 16)
    for _, fn in ipairs { function() return t + 1 end, function() return f * t end, function() return -t end, function() return t:sum() end,
      function() return t:matmul(f) end, function() return t:exp() end, function() return f:add_(t) end, function() return t:mul_(2) end,
      function() return t:max() end, function() return amp.nn.functional.linear(f, t) end, function() return t:sort() end,
      function() return amp.autocast(function() return amp.matmul(t, f) end) end } do
      throws(fn, 'float8_e5m2')
      throws(fn, 'cast it first')
    end
    throws(function() amp.zeros(2, { dtype = 'float8_e4m3', requires_grad = true }) end, 'float8_e4m3')
    throws(function() amp.set_default_dtype 'float8_e4m3' end, 'float8_e4m3')
    throws(function() amp.randn(2, { dtype = 'float8_e4m3' }) end, 'float8_e4m3')
    throws(function() return amp.tensor({ 1 }):to 'float8' end, 'float8_e4m3')
  end)

  it('passes gradients straight through', function()
    local x = amp.tensor({ { 0.3, 1000 }, { -7, 0 } }, { requires_grad = true })
    local w = amp.tensor { { 1, 2 }, { 3, 0.3 } }
    local y = x:to 'float8_e4m3':t():to('float8_e5m2', { saturate = false }):t()
    assert(y.requires_grad and y.dtype == 'float8_e5m2')
    local z = (y:float() * w):sum()
    z:backward()
    H.close(x.grad, w, H.exact)
    x.grad = nil
    local e = x:to 'float8_e4m3'
    e:backward(w)
    H.close(x.grad, w, H.exact)
  end)

  it('goes through checkpoints, safetensors and graphs; npz says why not', function()
    local t = amp.tensor({ { 1, -448, nan } }, { dtype = 'float8_e4m3' })
    local u = amp.tensor({ 57344, 0.1 }, { dtype = 'float8_e5m2' })
    local path = H.tmp 'float8'
    amp.save(path, { t = t, u = u })
    local back = amp.load(path)
    assert.same({ 'float8_e4m3', 'float8_e5m2' }, { back.t.dtype, back.u.dtype })
    assert.same({ 1, -448 }, { back.t[{ 1, 1 }]:item(), back.t[{ 1, 2 }]:item() })
    assert(back.t[{ 1, 3 }]:item() ~= back.t[{ 1, 3 }]:item())
    amp.io.safetensors.save(path .. '.safetensors', { t = t, u = u })
    local file = io.open(path .. '.safetensors', 'rb')
    local text = file:read '*a'
    file:close()
    assert(text:find('"F8_E4M3"', 1, true) and text:find('"F8_E5M2"', 1, true))
    back = amp.io.safetensors.load(path .. '.safetensors')
    assert.equal('float8_e5m2', back.u.dtype)
    assert(amp.equal(back.u, u:cpu()))
    throws(function() amp.io.save_npz(path .. '.npz', { t = t }) end, 'float8_e4m3')
    local g = amp.trace(function(x) return x:to 'float8_e4m3':t():float() end, amp.randn(3, 2))
    local x = amp.randn(3, 2)
    assert(amp.equal(g(x), x:to 'float8_e4m3':t():float()))
  end)
end)
