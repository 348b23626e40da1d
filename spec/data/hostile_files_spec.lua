--- Files from anywhere: bits that LuaJIT would take for values of its own, files that change while they are read, that promise more
-- than they hold, that are another format's; and what saving leaves alone.
local ffi = require 'ffi'
local amp = require 'amp'
local jit = require 'jit'
local H = require 'spec.lib.helper'
local file = require 'amp.io.file'
local C = require('amp.ffi').C
local le = file.le
local st = amp.io.safetensors

local hostile = require 'spec.lib.folder' 'hostile'
local at, write, listed = hostile.at, hostile.write, hostile.listed
local function int(v) return le(v % 2 ^ 32, 4) end
local function be32(v) return le(v, 4):reverse() end

-- -- Bits ------------------------------------------------------------------------------------------------

-- NaNs of each sign and class of payload: the upper bits are where LuaJIT keeps a value's type, the lower ones an address.
local doubles = {}
for _, high in ipairs { 0x7ff00000, 0x7ff00001, 0x7ff7ffff, 0x7ff80000, 0x7fffffff, 0xfff00000, 0xfff00001, 0xfff7ffff, 0xfff80000, 0xfff88000, 0xfff90000,
  0xfffa0000, 0xfffaffff, 0xfffb8000, 0xfffc0000, 0xfffd0000, 0xfffd8000, 0xfffe0000, 0xfffe7fff, 0xffff0000, 0xffff7fff, 0xffff8000, 0xffffffff } do
  for _, low in ipairs { 0, 1, 0x10, 0x41414141, 0xffffffff } do
    if low > 0 or high % 2 ^ 20 > 0 then doubles[#doubles + 1] = le(low, 4) .. le(high, 4) end
  end
end
local singles = {}
for _, bits in ipairs { 0x7f800001, 0x7fbfffff, 0x7fc00000, 0x7fffffff, 0xff800001, 0xffbfffff, 0xffc00000, 0xffc00001, 0xffd00000, 0xffe00000, 0xfff00000,
  0xffff8000, 0xffffffff } do singles[#singles + 1] = le(bits, 4) end
local halves, brains = {}, {}
for _, bits in ipairs { 0x7c01, 0x7dff, 0x7e00, 0x7fff, 0xfc01, 0xfdff, 0xfe00, 0xfe01, 0xffff } do halves[#halves + 1] = le(bits, 2) end
for _, bits in ipairs { 0x7f81, 0x7fbf, 0x7fc0, 0x7fff, 0xff81, 0xffbf, 0xffc0, 0xffff } do brains[#brains + 1] = le(bits, 2) end

local dtypes = {
  { name = 'float64', list = doubles, npy = 'f8', st = 'F64', t7 = 'Double', idx = 14, width = 8 },
  { name = 'float32', list = singles, npy = 'f4', st = 'F32', t7 = 'Float', idx = 13, width = 4 },
  { name = 'float16', list = halves, npy = 'f2', st = 'F16', t7 = 'Half', width = 2 },
  { name = 'bfloat16', list = brains, st = 'BF16', width = 2 },
}

local function nan(v)
  assert.equal('number', type(v))
  assert.is_true(v ~= v)
  assert.equal('nan', (tostring(v):gsub('^%-', '')))
end

-- Every way in which a tensor's numbers reach Lua.
local function all_nan(t, n)
  assert.equal(n, t:numel())
  local list = t:tolist()
  for i = 1, n do
    nan(list[i])
    nan(t[i]:item())
    local x = t[i]:tolist()
    nan(x)
  end
  for _, word in ipairs { tostring(t):match '^(.-)%[amp' } do
    for w in word:gmatch '%S+' do assert.equal('nan', w) end
  end
  if t.dtype:find 'float' then
    nan(t:max():item())
    nan(t:sum():item())
    nan(t:double():mean():item())
  end
end

local function both(fn) -- interpreted, and compiled
  jit.off()
  jit.flush()
  local ok, e = pcall(fn)
  jit.on()
  if not ok then error(e, 0) end
  for _ = 1, 3 do fn() end
end

describe('NaNs of any bits in a file', function()
  it('are numbers in a .t7 file, alone and in tensors', function()
    both(function()
      for _, bits in ipairs(doubles) do
        nan(amp.torch7.load(write('n.t7', int(1) .. bits)))
        local t = amp.torch7.load(write('n.t7', int(3) .. int(1) .. int(1) .. int(2) .. int(1) .. 'k' .. int(1) .. bits))
        nan(t.k)
      end
    end)
    for _, d in ipairs(dtypes) do
      if d.t7 then
        local class = ('torch.%sStorage'):format(d.t7)
        local bytes = int(4) .. int(1) .. int(3) .. 'V 1' .. int(#class) .. class .. le(#d.list, 8) .. table.concat(d.list)
        both(function() all_nan(amp.torch7.load(write('n.t7', bytes)), #d.list) end)
      end
    end
  end)
  it('are numbers in npy and npz files, in either byte order', function()
    for _, d in ipairs(dtypes) do
      if d.npy then
        for order, swap in pairs { ['<'] = false, ['>'] = true } do
          local head = ("{'descr': '%s%s', 'fortran_order': False, 'shape': (%d,), }\n"):format(order, d.npy, #d.list)
          local body = {}
          for i, s in ipairs(d.list) do body[i] = swap and s:reverse() or s end
          local path = write('n.npy', '\147NUMPY\1\0' .. le(#head, 2) .. head .. table.concat(body))
          both(function() all_nan(amp.io.load_npy(path), #d.list) end)
          amp.io.save_npz(at 'n.npz', { x = amp.io.load_npy(path) })
          both(function() all_nan(amp.io.load_npz(at 'n.npz').x, #d.list) end)
        end
      end
    end
  end)
  it('are numbers in safetensors and checkpoints', function()
    for _, d in ipairs(dtypes) do
      local header = ('{"x":{"dtype":"%s","shape":[%d],"data_offsets":[0,%d]}}'):format(d.st, #d.list, #d.list * d.width)
      local path = write('n.safetensors', le(#header, 8) .. header .. table.concat(d.list))
      both(function() all_nan(st.load(path).x, #d.list) end)
      amp.save(at 'n.amp', { x = st.load(path).x })
      both(function() all_nan(amp.load(at 'n.amp').x, #d.list) end)
    end
  end)
  it("are numbers where a checkpoint's own number was changed, check sums and all", function()
    amp.save(at 'n.amp', { 1234.5 })
    local good = H.read(at 'n.amp')
    local number = ffi.string(ffi.new('double[1]', 1234.5), 8)
    local place = assert(good:find(number, 1, true))
    local foot = #good - 32
    local function unle(i, n) return file.unle(ffi.cast('const uint8_t *', good) + i, n) end
    local first, n = unle(foot, 8), unle(foot + 8, 8)
    for _, bits in ipairs(doubles) do
      local s = good:sub(1, place - 1) .. bits .. good:sub(place + 8, foot)
      local footer = le(first, 8) .. le(n, 8) .. le(C.amp_crc32(0, s:sub(first + 1), n), 4)
      nan(amp.load(write('n.amp', s .. footer .. le(C.amp_crc32(0, footer, 20), 4) .. good:sub(-8)))[1])
    end
  end)
  it('are numbers in idx files and in memory that is the caller\'s', function()
    for _, d in ipairs(dtypes) do
      if d.idx then
        local body = {}
        for i, s in ipairs(d.list) do body[i] = s:reverse() end
        local path = write('n.idx', '\0\0' .. string.char(d.idx) .. '\1' .. be32(#d.list) .. table.concat(body))
        both(function() all_nan(amp.data.idx(path), #d.list) end)
      end
      local bytes = table.concat(d.list)
      local p = ffi.new('double[?]', #bytes / 8 + 1)
      ffi.copy(p, bytes, #bytes)
      both(function() all_nan(amp.from_ptr(p, { #d.list }, d.name), #d.list) end)
    end
  end)
  it('stay numbers as the words of logs and of JSON', function()
    for _, word in ipairs { 'nan', '-nan', 'NaN', 'nan(0xfffff)' } do
      local path = write('log.csv', 'step,time,x\n1,2,' .. word .. '\n')
      local ok, t = pcall(amp.Logger.read, path)
      if ok then nan(t.x[2][1]) else assert.is_truthy(tostring(t):find('line 2', 1, true)) end
      assert.is_nil((amp.io.json.decode(word)))
    end
  end)
end)

-- -- Files that change --------------------------------------------------------------------------------------

describe('a file that another program shortens', function()
  it('is an error of the read that comes too late, with its name', function()
    st.save(at 'a.safetensors', { a = amp.ones(100000), b = amp.ones(100000) })
    local f = st.open(at 'a.safetensors')
    assert.equal(100000, f:get 'a':numel())
    write('a.safetensors', '')
    H.fails_here(function() f:get 'b' end, 'a.safetensors', 'cut off')
    write('a.safetensors', ('x'):rep(1000))
    H.fails_here(function() f:get 'a' end, 'a.safetensors', 'cut off')
    f:close()
    H.fails_here(function() f:get 'a' end, 'closed')
  end)
  it('leaves a file that was opened before a save as it was', function()
    st.save(at 'b.safetensors', { a = amp.ones(3) })
    local f = st.open(at 'b.safetensors')
    st.save(at 'b.safetensors', { a = amp.zeros(3) })
    H.close(f:get 'a', { 1, 1, 1 })
  end)
end)

describe('a path', function()
  local readers = { load = amp.load, npy = amp.io.load_npy, npz = amp.io.load_npz, safetensors = st.load, open = st.open, t7 = amp.torch7.load,
    idx = amp.data.idx, image = amp.data.read_image, text = function(p) return amp.data.TextDataset(p) end,
    log = function(p) return amp.Logger.read(p) end }
  it('of a pipe, a folder, a device or a socket is refused at once by every reader', function()
    os.execute(("rm -rf '%s'; mkfifo '%s'; mkdir -p '%s'"):format(at 'pipe.csv', at 'pipe.csv', at 'folder.csv'))
    for name, read in pairs(readers) do
      H.fails(function() read(at 'pipe.csv') end, 'pipe')
      H.fails(function() read(at 'folder.csv') end, 'folder')
      if name ~= 'log' then H.fails(function() read '/dev/null' end, 'device') end
    end
  end)
  it('with a byte 0 is refused by every reader and writer, and names no other file', function()
    write('a', 'x')
    for _, read in pairs(readers) do H.fails(function() read(at 'a\0b') end, 'byte 0') end
    os.remove(at 'a')
    local bad = at 'a\0b'
    H.fails(function() amp.save(bad, { 1 }) end, 'byte 0')
    H.fails(function() st.save(bad, {}) end, 'byte 0')
    H.fails(function() amp.io.save_npy(bad, amp.ones(1)) end, 'byte 0')
    H.fails(function() amp.io.save_npz(bad, {}) end, 'byte 0')
    H.fails(function() amp.Logger(bad) end, 'byte 0')
    H.fails(function() amp.data.ImageFolder(bad) end, 'byte 0')
    H.fails(function() amp.data.mnist(bad) end, 'byte 0')
    assert.equal(0, listed '^a$')
  end)
end)

-- -- What unpacks to too much --------------------------------------------------------------------------------

local zlib = require('amp.data.gzip').zlib()
pcall(ffi.cdef, 'int amp_z_compress(uint8_t *to, unsigned long *n, const uint8_t *from, unsigned long size) __asm__("compress");')
local function compress(s)
  local room = #s / 500 + 100000
  local out, n = ffi.new('uint8_t[?]', room), ffi.new('unsigned long[1]', room)
  assert.equal(0, zlib.amp_z_compress(out, n, s, #s))
  return ffi.string(out, tonumber(n[0]))
end
local function crc(s) return C.amp_crc32(0, s, #s) end

-- Entries {name, bytes stored, size, crc, method, at}: `at` of another one's bytes where given.
local function zip(entries)
  local body, directory, where = {}, {}, 0
  for i, e in ipairs(entries) do
    local common = le(20, 2) .. le(0, 2) .. le(e.method or 0, 2) .. le(0, 4) .. le(e.crc or crc(e[2]), 4) .. le(#e[2], 4) .. le(e.size or #e[2], 4)
      .. le(#e[1], 2) .. le(0, 2)
    directory[i] = 'PK\1\2' .. le(20, 2) .. common .. ('\0'):rep(10) .. le(e.at or where, 4) .. e[1]
    if not e.at then
      body[#body + 1] = 'PK\3\4' .. common .. e[1] .. e[2]
      where = where + #body[#body]
    end
  end
  local list = table.concat(directory)
  return table.concat(body) .. list .. 'PK\5\6' .. le(0, 4) .. le(#entries, 2) .. le(#entries, 2) .. le(#list, 4) .. le(where, 4) .. le(0, 2)
end
local function npy(descr, shape, data)
  local head = ("{'descr': %s, 'fortran_order': False, 'shape': %s, }\n"):format(descr, shape)
  return '\147NUMPY\1\0' .. le(#head, 2) .. head .. data
end

describe('a small file that promises much', function()
  local peak
  before_each(function() peak = tonumber(C.amp_memory(0, 0).live) end)
  it('is refused where entries of an archive overlap', function()
    local a = npy("'<f4'", '(250,)', ('\0'):rep(1000))
    local list = { { 'a.npy', a } }
    for i = 2, 300 do list[i] = { ('a%d.npy'):format(i), a, at = 0 } end
    H.fails_here(function() amp.io.load_npz(write('z.npz', zip(list))) end, 'z.npz', 'overlap')
    -- one within another, shifted
    local inner = zip { { 'b.npy', a } }
    H.fails_here(function() amp.io.load_npz(write('z.npz', zip { { 'a.npy', inner }, { 'b.npy', a, at = 35 } })) end, 'z.npz', 'overlap')
    -- another name where it stands
    local s = zip { { 'a.npy', a } }
    H.fails_here(function() amp.io.load_npz(write('z.npz', (s:gsub('a%.npy', 'c.npy', 1)))) end, 'z.npz', 'name')
  end)
  it('is refused above max_bytes, and read where that is raised', function()
    if not zlib then return pending 'no zlib here' end
    local big = npy("'|u1'", '(300000000,)', ('\0'):rep(300000000))
    local path = write('bomb.npz', zip { { 'a.npy', compress(big):sub(3, -5), size = #big, crc = crc(big), method = 8 } })
    big = nil -- luacheck: ignore
    collectgarbage()
    H.fails_here(function() amp.io.load_npz(path) end, 'bomb.npz', '300.0 MB', 'max_bytes = 300000000')
    assert.is_true(tonumber(C.amp_memory(0, 0).live) - peak < 2 ^ 20)
    assert.equal(300000000, amp.io.load_npz(path, { max_bytes = 4e8 }).a:numel())
  end)
  it('is refused where its sizes lie', function()
    if not zlib then return pending 'no zlib here' end
    local a = npy("'<f4'", '(250,)', ('\0'):rep(1000))
    local packed = compress(a):sub(3, -5)
    for _, size in ipairs { #a - 1, #a + 1, 2 ^ 31, 2 ^ 32 - 2 } do
      H.fails_here(function() amp.io.load_npz(write('z.npz', zip { { 'a.npy', packed, size = size, crc = crc(a), method = 8 } })) end, 'z.npz')
    end
    H.fails_here(function() amp.io.load_npz(write('z.npz', zip { { 'a.npy', packed .. 'more', size = #a, crc = crc(a), method = 8 } })) end, 'damaged')
    H.fails_here(function() amp.io.load_npz(write('z.npz', zip { { 'a.npy', packed, size = #a, crc = 1, method = 8 } })) end, 'checksum')
    assert.equal(250, amp.io.load_npz(write('z.npz', zip { { 'a.npy', packed, size = #a, crc = crc(a), method = 8 } })).a:numel())
  end)
  it('is refused by every reader above max_bytes, whatever it holds', function()
    st.save(at 'm.safetensors', { a = amp.ones(100), b = amp.ones(100) })
    amp.save(at 'm.amp', { amp.ones(100), amp.ones(100) })
    amp.io.save_npy(at 'm.npy', amp.ones(200))
    amp.io.save_npz(at 'm.npz', { a = amp.ones(100), b = amp.ones(100) })
    local class = 'torch.FloatStorage'
    write('m.t7', int(4) .. int(1) .. int(3) .. 'V 1' .. int(#class) .. class .. le(200, 8) .. ('\0'):rep(800))
    write('m.idx', '\0\0\13\1' .. be32(200) .. ('\0'):rep(800))
    write('m.pgm', 'P5 40 20 255\n' .. ('\0'):rep(800))
    write('m.txt', ('ab'):rep(400))
    for name, read in pairs { ['m.safetensors'] = st.load, ['m.amp'] = amp.load, ['m.npy'] = amp.io.load_npy, ['m.npz'] = amp.io.load_npz,
      ['m.t7'] = amp.torch7.load, ['m.idx'] = amp.data.idx, ['m.pgm'] = amp.data.read_image,
      ['m.txt'] = amp.data.TextDataset } do
      assert.is_truthy(read(at(name), { max_bytes = 800 }))
      H.fails_here(function() read(at(name), { max_bytes = 799 }) end, name, '800 bytes', 'max_bytes')
      H.fails_here(function() read(at(name), { max_bytes = 0 }) end, 'max_bytes')
      H.fails_here(function() read(at(name), { max_byte = 1 }) end, "'max_bytes'")
    end
    local f = st.open(at 'm.safetensors', { max_bytes = 500 })
    f:get 'a'
    H.fails_here(function() f:get 'b' end, 'max_bytes')
  end)
  it('is refused where a picture is large and its file small', function()
    if not zlib then return pending 'no zlib here' end
    local function chunk(kind, data) return be32(#data) .. kind .. data .. be32(crc(kind .. data)) end
    local rows = ('\0'):rep(2001 * 2000)
    local png = '\137PNG\r\n\26\n' .. chunk('IHDR', be32(2000) .. be32(2000) .. '\8\0\0\0\0') .. chunk('IDAT', compress(rows)) .. chunk('IEND', '')
    write('bomb.png', png)
    H.fails_here(function() amp.data.read_image(at 'bomb.png', { max_bytes = 1e6 }) end, 'bomb.png', '2000 x 2000', '4.0 MB', 'max_bytes')
    assert.equal(2000, amp.data.read_image(at 'bomb.png'):size(2))
    local jpeg = H.read(H.root .. '/spec/fixtures/images/progressive.jpg')
    local first = jpeg:find('\255\218', 1, true)
    local next_ = jpeg:find('\255[\192-\254]', first + 14)
    local scans = jpeg:sub(1, -3) .. jpeg:sub(first, next_ - 1):rep(200)
    H.fails_here(function() amp.data.read_image(write('bomb.jpg', scans .. '\255\217')) end, 'bomb.jpg', 'scans')
  end)
  it('is refused where it nests without end', function()
    local deep = 3000
    for _, open in ipairs { '[', '{"a":' } do
      local v, why = amp.io.json.decode(open:rep(deep))
      assert.is_nil(v)
      assert.is_truthy(why:find 'nesting')
    end
    local parts = {}
    for i = 1, deep do parts[i] = int(3) .. int(i) .. int(1) end -- a table as the key of a table, and so on
    H.fails_here(function() amp.torch7.load(write('deep.t7', table.concat(parts))) end, 'deep.t7', 'nested')
    for i = 1, deep do parts[i] = int(4) .. int(i) .. int(3) .. 'V 1' .. int(7) .. 'tds.Vec' .. le(1, 8) end
    H.fails_here(function() amp.torch7.load(write('deep.t7', table.concat(parts))) end, 'deep.t7', 'nested')
    for i = 1, deep do parts[i] = int(6) .. int(0) end
    H.fails_here(function() amp.torch7.load(write('deep.t7', table.concat(parts))) end, 'deep.t7', 'nested')
    -- keys of a checkpoint that are tables
    local index = le(0, 4) .. le(0, 4) .. ('t' .. le(1, 4)):rep(100000)
    local footer = le(16, 8) .. le(#index, 8) .. le(crc(index), 4)
    local magic = '\137AMP\r\n\26\n'
    write('deep.amp', magic .. le(1, 4) .. le(0, 4) .. index .. footer .. le(crc(footer), 4) .. magic)
    H.fails_here(function() amp.load(at 'deep.amp') end, 'deep.amp', 'key')
  end)
  it('is refused where a log has a million columns for a million rows', function()
    H.fails_here(function() amp.Logger.read(write('log.csv', 'step,time' .. (','):rep(1e6) .. '\n' .. ('1\n'):rep(1000))) end, 'log.csv')
    local names = {}
    for i = 1, 60000 do names[i] = 'c' .. i end
    local began = os.clock()
    local t = amp.Logger.read(write('log.csv', 'step,time,' .. table.concat(names, ',') .. '\n' .. ('1,2\n'):rep(100000)))
    assert.is_true(os.clock() - began < 10)
    assert.equal(0, #t.c1[1])
  end)
end)

-- -- Logs -------------------------------------------------------------------------------------------------------

describe('a log', function()
  it('whose step is no number is refused by its line, also once its reader is compiled', function()
    for _, step in ipairs { 'nan', '-nan', 'inf', '', 'x', '1e999' } do
      write('log.csv', 'step,time,loss\n1,1.5,0.5\n' .. step .. ',2.5,0.25\n')
      for _ = 1, 100 do
        local ok, e = pcall(amp.Logger.read, at 'log.csv')
        assert.is_false(ok)
        assert.is_truthy(tostring(e):find(("line 3 has no step but '%s'"):format(step), 1, true), tostring(e))
        assert.is_truthy(tostring(e):find(at 'log.csv', 1, true))
      end
    end
  end)
  it('with a column twice is refused', function()
    H.fails_here(function() amp.Logger.read(write('log.csv', 'step,time,a,a\n1,2,3,4\n')) end, "'a'", 'twice')
  end)
end)

describe('a name out of a file', function()
  it('stands in an error on one line, and cut', function()
    local long = ('n'):rep(1e6)
    local header = ('{"%s\\u001b[2J":{"dtype":"F32","shape":[9],"data_offsets":[0,4]}}'):format(long)
    local ok, e = pcall(st.load, write('n.safetensors', le(#header, 8) .. header .. 'abcd'))
    assert.is_false(ok)
    assert.is_true(#tostring(e) < 600)
    assert.is_nil(tostring(e):find('[%z\1-\31]'))
    local a = npy("'<f4'", '(250,)', ('\0'):rep(999))
    ok, e = pcall(amp.io.load_npz, write('n.npz', zip { { ('\27[2J\n'):rep(1000) .. '.npy', a } }))
    assert.is_false(ok)
    assert.is_true(#tostring(e) < 600)
    assert.is_nil(tostring(e):find('[%z\1-\31]'))
  end)
end)

-- -- Members that are nothing for amp ----------------------------------------------------------------------------

describe('a file with one foreign member', function()
  local data = npy("'<f4'", '(3,)', ffi.string(amp.arange(1, 4):data_ptr(), 12))
  local others = {
    { 'format.npy', npy("'<U3'", '()', ('c\0\0\0'):rep(3)), 'text' }, { 'z.npy', npy("'<c8'", '(1,)', ('\0'):rep(8)), 'complex' },
    { 'README.txt', 'hi', 'no npy' }, { 'o.npy', npy("'|O'", '(1,)', '\128\4.'), 'Python objects' },
    { 's.npy', npy("[('x', '<f4'), ('y', '<i2', (3,))]", '(1,)', ('\0'):rep(10)), 'fields x, y' }, { 'u.npy', npy("'<u8'", '(1,)', ('\0'):rep(8)), '<u8' },
    { 't.npy', npy("'<M8[ns]'", '(1,)', ('\0'):rep(8)), 'times' },
  }
  it('gives the others; asking for that one is an error that says what it is', function()
    for _, other in ipairs(others) do
      local t = amp.io.load_npz(write('f.npz', zip { other, { 'data.npy', data } }))
      H.close(t.data, { 1, 2, 3 })
      local n = 0
      for name in pairs(t) do
        n = n + 1
        assert.equal('data', name)
      end
      assert.equal(1, n)
      assert.is_nil(t.nothing)
      H.fails_here(function() return t[(other[1]:gsub('%.npy$', ''))] end, 'f.npz', other[3])
      if other[1]:find 'npy' then
        H.fails_here(function() amp.io.load_npy(write('f.npy', other[2])) end, 'f.npy', other[3])
      end
    end
  end)
  it('is read so in safetensors, too', function()
    local header = '{"x":{"dtype":"C64","shape":[1],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}'
    local path = write('f.safetensors', le(#header, 8) .. header .. ('\0'):rep(16))
    local t = st.load(path)
    H.close(t.w, { 0, 0 })
    assert.is_nil(t.nothing)
    H.fails_here(function() return t.x end, 'f.safetensors', 'C64')
    local f = st.open(path)
    assert.same({ 'x', 'w' }, f:names())
    H.close(f:get 'w', { 0, 0 })
    H.fails_here(function() f:get 'x' end, 'f.safetensors', 'C64')
  end)
  it('that is damaged is refused whole', function()
    local bad = data:sub(1, -2)
    H.fails_here(function() amp.io.load_npz(write('f.npz', zip { { 'a.npy', bad }, { 'data.npy', data } })) end, 'f.npz', 'a')
  end)
end)

-- -- Another format's file ------------------------------------------------------------------------------------------

describe("another format's file", function()
  it('is named, and what reads it', function()
    st.save(at 'w.safetensors', { w = amp.ones(2) })
    amp.io.save_npz(at 'w.npz', { w = amp.ones(2) })
    amp.io.save_npy(at 'w.npy', amp.ones(2))
    amp.save(at 'w.amp', { 1 })
    local function pth(name) return 'PK\3\4' .. ('\0'):rep(22) .. le(#name, 2) .. le(0, 2) .. name .. ('\0'):rep(100) end
    local files = {
      { 'w.safetensors', 'safetensors', 'amp.io.safetensors.load' }, { 'w.npz', 'NumPy', 'amp.io.load_npz' }, { 'w.npy', 'NumPy', 'amp.io.load_npy' },
      { 'w.amp', 'checkpoint', 'amp.load' }, { 'w.pth', 'torch.save', 'load_pt', pth 'archive/data.pkl' },
      { 'w.pt', 'torch.save', 'load_pt', '\128\2\138\10l\252\156F\249 j\168P\25.' .. ('x'):rep(40) },
      { 'w.pkl', 'pickle', 'code', '\128\4\149\10\0\0\0\0\0\0\0}' .. ('x'):rep(40) },
      { 'w.t7', 'Torch7', 'amp.torch7.load', int(3) .. int(1) .. int(0) .. ('\0'):rep(50) },
      { 'w.onnx', 'ONNX', 'amp.io.onnx.load', '\8\7\18\7pytorch\26\3' .. ('x'):rep(40) },
      { 'w.gguf', 'GGUF', '', 'GGUF\3\0\0\0' .. ('\0'):rep(50) },
      { 'w.h5', 'HDF5', 'numpy', '\137HDF\r\n\26\n' .. ('\0'):rep(50) },
      { 'w.json', 'JSON', 'json', '{"model_type": "bert", "hidden_size": 768, "layers": 12}' },
      { 'w.png', 'image', 'read_image', H.read(H.root .. '/spec/fixtures/images/rgb.png') },
      { 'w.gz', 'gzip', 'gunzip', '\31\139\8\0' .. ('x'):rep(50) },
      { 'w.txt', 'text', '', 'Once upon a time there was a file of words, and nothing else.\n' }, { 'w.none', 'empty', '', '' },
      { 'w.zip', 'zip', 'unpack', pth 'letters/a.doc' }, { 'w.html', 'web page', 'download', '<!DOCTYPE html><html><head><title>404</title></head></html>' },
      { 'w.lfs', 'Git LFS', 'git lfs pull', 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n' },
    }
    local readers = { amp = amp.load, safetensors = st.load, npy = amp.io.load_npy, npz = amp.io.load_npz }
    for _, f in ipairs(files) do
      if f[4] then write(f[1], f[4]) end
      for own, read in pairs(readers) do
        if f[1] ~= 'w.' .. own then H.fails_here(function() read(at(f[1])) end, f[1], f[2], f[3]) end
      end
    end
    for _, name in ipairs { 'w.safetensors', 'w.npz', 'w.npy', 'w.amp' } do
      H.fails_here(function() amp.torch7.load(at(name)) end, name, 'It is')
      H.fails_here(function() amp.data.read_image(at(name)) end, name, 'It is')
      H.fails_here(function() amp.data.idx(at(name)) end, name, 'It is')
    end
  end)
end)
