--- npy and npz: what NumPy wrote is read, what is written NumPy reads, damage is named.
local amp = require 'amp'
local H = require 'spec.lib.helper'

local io_ = amp.io
local path = H.tmp 'file.npy'

local function write(bytes, where)
  local f = assert(io.open(where or path, 'wb'))
  f:write(bytes)
  f:close()
end

local function read(where)
  local f = assert(io.open(where or path, 'rb'))
  local s = f:read '*a'
  f:close()
  return s
end

local function npy(dict, data, version)
  local length = version and string.char(#dict % 256, math.floor(#dict / 256), 0, 0) or string.char(#dict % 256, math.floor(#dict / 256))
  return '\147NUMPY' .. string.char(version or 1, 0) .. length .. dict .. data
end

local dtypes = { 'float64', 'float32', 'float16', 'int64', 'int32', 'int16', 'int8', 'uint8', 'bool' }

describe('npy', function()
  it('gives back every dtype and shape', function()
    for _, dt in ipairs(dtypes) do
      for _, shape in ipairs { { 2, 3 }, { 4 }, {}, { 0, 3 }, { 2, 1, 2 } } do
        local n = H.numel(shape)
        local v = {}
        for i = 1, n do v[i] = dt == 'bool' and i % 2 or i end
        local t = H.make(v, shape, dt)
        io_.save_npy(path, t)
        local u = io_.load_npy(path)
        assert.equal(dt, u.dtype)
        assert.equal(tostring(t:size()), tostring(u:size()))
        H.close(u, v, H.exact)
      end
    end
    local t = amp.arange(6):view(2, 3):t()
    io_.save_npy(path, t)
    H.close(io_.load_npy(path), { 0, 3, 1, 4, 2, 5 }, H.exact)
  end)

  it('writes what the format says', function()
    io_.save_npy(path, H.make({ 1, 2, 3 }, { 3 }, 'int16'))
    local s = read()
    assert.equal('\147NUMPY\1\0', s:sub(1, 8))
    assert.equal(0, (#s - 6) % 64)
    assert.equal("{'descr': '<i2', 'fortran_order': False, 'shape': (3,), }", s:match '{.*}')
    assert.equal('\1\0\2\0\3\0', s:sub(-6))
    assert.equal('\n', s:sub(-7, -7))
    io_.save_npy(path, H.make({ 1 }, {}, 'bool'))
    assert.is_truthy(read():find("'|b1', 'fortran_order': False, 'shape': (), }", 1, true))
  end)

  it('reads either order of dimensions and of bytes, and later versions', function()
    write(npy("{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }\n", '\1\0\4\0\2\0\5\0\3\0\6\0'))
    local t = io_.load_npy(path)
    assert.is_true(t:is_contiguous())
    H.close(t, { 1, 2, 3, 4, 5, 6 }, H.exact)
    write(npy("{'shape': (2,), 'descr': '>i2', 'fortran_order': False}", '\0\1\255\254'))
    H.close(io_.load_npy(path), { 1, -2 }, H.exact)
    write(npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }\n", '\7\9', 2))
    H.close(io_.load_npy(path), { 7, 9 }, H.exact)
    write(npy("{'descr': '=f4', 'fortran_order': False, 'shape': (), }\n", '\0\0\128\63', 3))
    H.close(io_.load_npy(path), { 1 }, H.exact)
  end)

  it('names the file and what is wrong with it', function()
    local good = npy("{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }\n", '\1\0\2\0')
    local bad = {
      { '', 'no npy file' }, { 'hello, world', 'no npy file' }, { good:sub(1, -2), 'cut off' }, { good .. 'x', '4 bytes', '5' },
      { good:sub(1, 20), 'cut off' }, { good:gsub('\1', '\9', 1), 'version 9' }, { (good:gsub('<i2', '<c8')), '<c8' }, { (good:gsub('<i2', '|O1')), '|O1' },
      { npy("{'descr': '<i2', 'fortran_order': False, }", ''), 'shape' }, { npy("{'descr': '<i2', 'shape': (2,)}", ''), 'fortran_order' },
      { npy("{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': (2,)}", ''), 'structured' }, { npy('garbage', ''), 'header' },
      { npy("{'descr': '<i2', 'fortran_order': False, 'shape': (2,)} or os.exit()", ''), 'header' },
      { npy("{'descr': '<i2', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", '\1\0'), 'dimensions' },
      { npy("{'descr': '<i2', 'fortran_order': False, 'shape': (99999999999999999999,)}", '\1\0'), 'shape' },
    }
    for _, b in ipairs(bad) do
      write(b[1])
      H.fails(function() io_.load_npy(path) end, 'load_npy', path, unpack(b, 2))
    end
    H.fails(function() io_.load_npy(path .. '.none') end, 'load_npy', path .. '.none')
    H.fails(function() io_.load_npy(7) end, 'load_npy', 'number')
    H.fails(function() io_.save_npy(path, 7) end, 'save_npy', 'number')
    H.fails(function() io_.save_npy(path, amp.ones(2, { dtype = 'bfloat16' })) end, 'save_npy', 'bfloat16', 'float32')
    H.fails(function() io_.save_npy('/no/such/folder/x.npy', amp.ones(2)) end, 'save_npy', '/no/such/folder')
  end)
end)

describe('npz', function()
  local npz = H.tmp 'file.npz'
  -- what numpy.savez_compressed(path, a=numpy.arange(40, dtype='i2') // 10) writes
  local deflated = ([[504b03042d000000080000002100796d1863ffffffffffffffff05001400612e6e707901001000d00000000000000050000000000000009bec17ea1b
    10c9c850c650ad9e925a9c5ca46ea5a06e9369a4aea3a09e965f54529498179f5f94920a12774bcc294e058a17672416a402f91a26063a9a3a0ab50a
    e4032e062c80110b64c20299b14000504b01022d032d000000080000002100796d186350000000d00000000500000000000000000000008001000000
    00612e6e7079504b0506000000000100010033000000870000000000]]):gsub('%s', ''):gsub('%x%x', function(x) return string.char(tonumber(x, 16)) end)

  it('reads deflated entries', function()
    write(deflated, npz)
    local a = io_.load_npz(npz).a
    assert.equal('int16', a.dtype)
    local v = {}
    for i = 1, 40 do v[i] = math.floor((i - 1) / 10) end
    H.close(a, v, H.exact)
    for at = 60, 120, 4 do
      write(deflated:sub(1, at - 1) .. string.char((deflated:byte(at) + 85) % 256) .. deflated:sub(at + 1), npz)
      H.fails(function() io_.load_npz(npz) end, 'load_npz', npz)
    end
  end)

  it('gives back tensors by name', function()
    local t = { ['layer.weight'] = amp.randn(3, 4), bias = H.make({ 1, 2 }, { 2 }, 'int64'), empty = amp.zeros(0, 2), ['ü'] = H.make({ 1, 0 }, { 2 }, 'bool') }
    io_.save_npz(npz, t)
    local u = io_.load_npz(npz)
    local n = 0
    for name in pairs(u) do
      n = n + 1
      assert.is_true(u[name]:equal(t[name]), name)
      assert.equal(t[name].dtype, u[name].dtype)
    end
    assert.equal(4, n)
    io_.save_npz(npz, {})
    assert.is_nil(next(io_.load_npz(npz)))
  end)

  it('notices damage, wherever it is', function()
    io_.save_npz(npz, { a = H.make({ 1, 2, 3 }, { 3 }, 'int16') })
    local s = read(npz)
    for at = 1, #s do
      local changed = s:sub(1, at - 1) .. string.char((s:byte(at) + 85) % 256) .. s:sub(at + 1)
      write(changed, npz)
      local ok, t = pcall(io_.load_npz, npz)
      if ok then -- what the format does not use (times, versions): the data are right
        for _, x in pairs(t) do H.close(x, { 1, 2, 3 }, H.exact) end
      else
        assert.is_truthy(tostring(t):find(npz, 1, true), tostring(t))
      end
    end
    for n = 0, #s - 1, 3 do
      write(s:sub(1, n), npz)
      H.fails(function() io_.load_npz(npz) end, 'load_npz', npz)
    end
    H.fails(function() io_.save_npz(npz, { a = 1 }) end, 'save_npz', "'a'")
    H.fails(function() io_.save_npz(npz, { a = amp.ones(1, { dtype = 'bfloat16' }) }) end, 'save_npz', "'a'", 'bfloat16')
    H.fails(function() io_.load_npz(npz .. '.none') end, 'load_npz', npz .. '.none')
  end)
end)
