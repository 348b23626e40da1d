--- safetensors and JSON: what goes in comes out, damage is noticed, headers of others are read.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local C = require('amp.ffi').C

local function eq(t, values) H.close(t, values, H.exact) end
local raw = require 'spec.lib.bytes'
local le, unle, with_byte, is_error_of = raw.le, raw.unle, raw.with_byte, raw.is_error_of

-- -- What comes back ---------------------------------------------------------

-- -- safetensors -------------------------------------------------------------

describe('safetensors', function()
  local st = amp.io.safetensors
  local name = H.tmp 'x.safetensors'
  local function put(header, data) H.write(name, le(#header, 8) .. header .. data) end

  it('writes the public format: length, JSON header, data without gaps', function()
    st.save(name, { b = H.make({ 1, 2, 3 }, { 3 }, 'int16'), a = H.make({ 1.5, -2 }, { 2, 1 }), s = amp.tensor(3), e = amp.zeros(0, 2) },
      { format = 'pt', ['a "quoted"'] = 'line\nbreak' })
    local bytes = H.read(name)
    local length = unle(bytes:sub(1, 8))
    assert.equal(0, length % 8) -- and wider elements come first: every tensor is aligned
    local header = amp.io.json.decode(bytes:sub(9, 8 + length))
    local data = bytes:sub(9 + length)
    assert.same({ format = 'pt', ['a "quoted"'] = 'line\nbreak' }, header.__metadata__)
    local function of(e) return data:sub(e.data_offsets[1] + 1, e.data_offsets[2]) end
    assert.equal('I16', header.b.dtype)
    assert.equal('\1\0\2\0\3\0', of(header.b))
    assert.equal('F32', header.a.dtype)
    assert.equal(2, #header.a.shape)
    assert.equal('\0\0\192\63\0\0\0\192', of(header.a))
    assert.equal(0, #header.s.shape)
    assert.equal('\0\0\64\64', of(header.s))
    assert.equal('', of(header.e))
    assert.equal(6 + 8 + 4, #data)
  end)
  it('reads what others write', function()
    put('{ "w":{"data_offsets":[8,16],"dtype":"F16","shape":[2,2]}, "\\u00fc.x" : {"dtype":"I64","shape":[1],"data_offsets":[0,8]},'
      .. '"__metadata__":{"by":"hand"}}   ', '\7\0\0\0\0\0\0\0\0\60\0\192\0\0\0\124')
    local t, metadata = st.load(name)
    assert.same({ by = 'hand' }, metadata)
    eq(t['\195\188.x'], { 7 })
    assert.equal('float16', t.w.dtype)
    eq(t.w, { 1, -2, 0, math.huge })
    local f = st.open(name)
    assert.same({ '\195\188.x', 'w' }, f:names())
    eq(f:get 'w', { 1, -2, 0, math.huge })
    H.fails_here(function() f:get 'v' end, 'v', 'x.safetensors')
    f:close()
    f:close()
    H.fails_here(function() f:get 'w' end, 'closed')
    put('{}', '')
    assert.same({}, (st.load(name)))
  end)
  it('brings every dtype, scalar, empty and view back', function()
    local all = {}
    for _, dtype in ipairs { 'float64', 'float32', 'float16', 'bfloat16', 'int64', 'int32', 'int16', 'int8', 'uint8', 'bool' } do
      local v = (dtype == 'bool' or dtype == 'uint8') and { 1, 0, 1, 1, 0, 0 } or { 1, -2, 3, -4, 5, -6 }
      all[dtype] = H.make(v, { 2, 3 }, dtype)
      all[dtype .. '0'] = H.make({ 1 }, {}, dtype)
      all[dtype .. 'e'] = H.make({}, { 0, 4 }, dtype)
      all[dtype .. 't'] = all[dtype]:t()
    end
    all['a name with spaces, "quotes" and \n'] = amp.ones(1, { requires_grad = true })
    st.save(name, all)
    local back = st.load(name)
    local n = 0
    for k, t in pairs(back) do
      n = n + 1
      H.same(t, all[k]:contiguous():detach(), k)
    end
    assert.equal(41, n)
    -- what is handed out is its own: writing to it leaves the file alone
    back.float32:fill_(9)
    H.same(st.load(name).float32, all.float32)
  end)
  it('of a network loads into another', function()
    local a, b = amp.nn.Sequential(amp.nn.Linear(3, 2), amp.nn.BatchNorm1d(2)), amp.nn.Sequential(amp.nn.Linear(3, 2), amp.nn.BatchNorm1d(2))
    st.save(name, a:state_dict())
    b:load_state_dict(st.load(name))
    H.same(b[1].weight:detach(), a[1].weight:detach())
  end)
  it('with any byte changed: an error with the name, or as many bytes of tensors', function()
    st.save(name, { a = H.make({ 1, 2 }, { 2 }), b = H.make({ 1, 0 }, { 2, 1 }, 'bool') }, { k = 'v' })
    local good = H.read(name)
    for at = 1, #good do
      for _, change in ipairs { 1, 2, 128, 255 } do
        H.write(name, with_byte(good, at, change))
        local ok, t = pcall(st.load, name)
        if ok then
          local total = 0
          for k, x in pairs(t) do
            assert.is_string(k)
            total = total + x:numel() * tonumber(C.amp_dtype_size(x.ptr_.dtype))
            H.values(x)
          end
          for _, k in ipairs { 'a', 'b' } do -- of another dtype: an error when it is asked for
            local known, why = pcall(function() return t[k] end)
            if not known then
              assert.is_true(is_error_of('x.safetensors', why), tostring(why))
              total = total + (k == 'a' and 8 or 2)
            end
          end
          assert.equal(10, total)
        else
          assert.is_true(is_error_of('x.safetensors', t), tostring(t))
        end
      end
    end
    for n = 0, #good - 1 do
      H.write(name, good:sub(1, n))
      H.fails_here(function() st.load(name) end, 'x.safetensors')
    end
    H.write(name, good .. 'x')
    H.fails_here(function() st.load(name) end, 'x.safetensors')
  end)
  it('refuses headers that lie, without allocating', function()
    local function one(fields) return '{"t":{' .. fields .. '}}' end
    local sound = '"dtype":"F32","shape":[1],"data_offsets":[0,4]'
    put(one(sound), 'abcd')
    assert.is_not_nil(st.load(name).t)
    local before = tonumber(C.amp_memory(0, 0).peak)
    for _, header in ipairs {
      '', '{', '[]', '5', 'null', '{}x', one(sound) .. '{}', '{"t":5}', '{"t":null}', '{"t":[]}', '{"t":{}}',
      one '"dtype":"F32","shape":[1]', one '"dtype":"F32","data_offsets":[0,4]', one '"shape":[1],"data_offsets":[0,4]',
      one(sound .. ',"more":1'), one(sound .. ',"shape":[1]'), '{"t":{' .. sound .. '},"t":{' .. sound .. '}}',
      one '"dtype":"f32","shape":[1],"data_offsets":[0,4]', one '"dtype":5,"shape":[1],"data_offsets":[0,4]',
      one '"dtype":1e999,"shape":[1],"data_offsets":[0,4]', one '"dtype":[],"shape":[1],"data_offsets":[0,4]',
      one '"dtype":null,"shape":[1],"data_offsets":[0,4]',
      one '"dtype":"F32","shape":[2],"data_offsets":[0,4]', one '"dtype":"F32","shape":[-1],"data_offsets":[0,4]',
      one '"dtype":"F32","shape":[1.5],"data_offsets":[0,4]', one '"dtype":"F32","shape":["1"],"data_offsets":[0,4]',
      one '"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]', one '"dtype":"F32","shape":5,"data_offsets":[0,4]',
      one '"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]', one '"dtype":"F32","shape":[1e300,1e300],"data_offsets":[0,4]',
      one '"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]', one '"dtype":"F32","shape":[1],"data_offsets":[0,8]',
      one '"dtype":"F32","shape":[0,1099511627776,1099511627776,1099511627776],"data_offsets":[0,0]',
      one '"dtype":"F32","shape":[1],"data_offsets":[4,0]', one '"dtype":"F32","shape":[1],"data_offsets":[-4,0]',
      one '"dtype":"F32","shape":[1],"data_offsets":[0]', one '"dtype":"F32","shape":[1],"data_offsets":[0,4,8]',
      one '"dtype":"F32","shape":[1],"data_offsets":[0.5,4.5]', one '"dtype":"F32","shape":[1],"data_offsets":["0","4"]',
      one '"dtype":"F32","shape":[1],"data_offsets":{}', one '"dtype":"I8","shape":[3],"data_offsets":[0,3]',
      one '"dtype":"I8","shape":[3],"data_offsets":[1,4]', '{"t":{' .. sound .. '},"u":{' .. sound .. '}}', '{"__metadata__":5}',
      '{"__metadata__":{"a":5},"t":{' .. sound .. '}}', '{"__metadata__":[],"t":{' .. sound .. '}}',
      ('['):rep(100000), '{"a":' .. ('['):rep(100000), ('{"a":'):rep(50000), '{"\\ud800":{' .. sound .. '}}', '{"t\0":5}',
    } do
      put(header, 'abcd')
      local ok, e = pcall(st.load, name)
      assert.is_false(ok, 'accepted: ' .. header:sub(1, 80))
      assert.is_true(is_error_of('x.safetensors', e), header:sub(1, 80) .. ': ' .. tostring(e))
      assert.is_true(#tostring(e) < 600, tostring(e))
    end
    for _, length in ipairs { 2 ^ 20, 2 ^ 31, 2 ^ 32, 2 ^ 48, 2 ^ 63, 2 ^ 64 - 2048 } do
      H.write(name, le(length, 8) .. one(sound) .. 'abcd')
      H.fails_here(function() st.load(name) end, 'x.safetensors', 'header')
    end
    assert.is_true(tonumber(C.amp_memory(0, 0).peak) - before < 2 ^ 20)
  end)
  it('refuses what cannot be named or written', function()
    H.fails_here(function() st.save(name, { 5 }) end, 'name', 'number')
    H.fails_here(function() st.save(name, { a = 5 }) end, 'a', 'number')
    H.fails_here(function() st.save(name, 5) end, 'table', 'number')
    H.fails_here(function() st.save(name, amp.ones(1)) end, 'table')
    H.fails_here(function() st.save(name, { __metadata__ = amp.ones(1) }) end, '__metadata__')
    H.fails_here(function() st.save(name, {}, { a = 5 }) end, 'metadata', 'number')
    H.fails_here(function() st.save(name, {}, 'x') end, 'metadata', 'string')
    H.fails_here(function() st.save('/nowhere/x', {}) end, '/nowhere/x', 'No such file')
    H.fails_here(function() st.save(nil, {}) end, 'path', 'nil')
    H.fails_here(function() st.save(name, { ['bad \255 name'] = amp.ones(1) }) end, 'UTF-8')
    H.fails_here(function() st.load '/nowhere/x' end, '/nowhere/x', 'No such file')
    H.fails_here(function() st.load(5) end, 'path', 'number')
    H.fails_here(function() st.load(H.tmp '.') end, H.tmp '.')
  end)
  it('opened and dropped in a loop keeps no maps and no memory', function()
    st.save(name, { a = amp.ones(1000) })
    local live = H.live()
    for _ = 1, 70000 / 10 do st.open(name) end
    collectgarbage()
    collectgarbage()
    local maps = H.read('/proc/self/maps')
    local _, n = maps:gsub('x%.safetensors', '')
    assert.is_true(n < 10, n .. ' maps are left')
    assert.equal(live, H.live())
  end)
end)

-- -- JSON --------------------------------------------------------------------

describe('json', function()
  it('numbers whose exponents have many digits are 0 or infinite, never nothing', function()
    local decode = amp.io.json.decode
    assert.same({ a = math.huge, b = 0 }, decode '{"a": 1e999999999, "b": 1e-999999999}')
    assert.equal(-math.huge, decode '-1E+99999999999')
    assert.equal(0, decode '0e999999999')
    assert.equal(10, decode '1e0000000001')
  end)
  local json = amp.io.json
  it('reads what the standard allows', function()
    local v = json.decode ' {"a" : [1, -2.5e1, true,false , null], "b":"\\u00e9\\n\\\\\\ud83d\\ude00/\\/", "c":{}, "d":[] } '
    assert.equal(1, v.a[1])
    assert.equal(-25, v.a[2])
    assert.is_true(v.a[3] == true and v.a[4] == false and v.a[5] == json.null)
    assert.equal('\195\169\n\\\240\159\152\128//', v.b)
    assert.equal('{"a":[1,-25,true,false,null],"b":"\195\169\\u000a\\\\\240\159\152\128//","c":{},"d":[]}', json.encode(v))
    assert.equal(0, json.decode '0')
  end)
  it('refuses the rest, naming the place', function()
    for _, text in ipairs { '', ' ', '{', '[1,]', '{"a":1,}', '{a:1}', "{'a':1}", '01', '+1', '.5', '1.', '1e', '-', 'tru', 'NaN', 'Infinity', '"a',
      '"\\x"', '"\\u12"', '"\\ud800"', '"\\udc00"', '"\t"', '1 2', '[1 2]', '{"a" 1}', '{"a":1 "b":2}', '{"a":1,"a":2}', '/**/1', '0x10', '[', ']' } do
      local v, why = json.decode(text)
      assert.is_nil(v, text)
      assert.is_true(why:find 'byte %d+' ~= nil, why)
    end
  end)
  it('is not brought down by depth or size', function()
    for _, open in ipairs { '[', '{"a":' } do
      local v, why = json.decode(open:rep(200000))
      assert.is_nil(v)
      assert.is_true(why:find('levels', 1, true) ~= nil, why)
    end
    assert.equal(1e5, #json.decode('[' .. ('1,'):rep(1e5 - 1) .. '1]'))
    assert.is_false(pcall(json.encode, { [print] = 1 }))
    assert.is_false(pcall(json.encode, print))
    assert.is_false(pcall(json.encode, 0 / 0))
    local round = {}
    round.me = round
    assert.is_false(pcall(json.encode, round))
  end)
end)
