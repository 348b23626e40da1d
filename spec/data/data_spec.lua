--- data: idx and gzip files, good and damaged, MNIST's labels, datasets, the loader's order and how it resumes.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local data = amp.data

local function eq(t, values) H.close(t, values, H.exact) end
local function big(...) -- 32-bit big-endian numbers
  local out = {}
  for i, v in ipairs { ... } do
    out[i] = string.char(math.floor(v / 2 ^ 24) % 256, math.floor(v / 2 ^ 16) % 256, math.floor(v / 256) % 256, v % 256)
  end
  return table.concat(out)
end
local function hex(s) return (s:gsub('%x%x', function(h) return string.char(tonumber(h, 16)) end)) end

-- 3 images of 4 x 4, element i (from 0) being (7 i^2 + 3 floor(i / 5)) mod 256, or 0 where 3 divides i
local values = {}
for i = 0, 47 do values[i + 1] = i % 3 == 0 and 0 or (i * i * 7 + 3 * math.floor(i / 5)) % 256 end
local bytes = {}
for i = 1, 48 do bytes[i] = string.char(values[i]) end
local plain = '\0\0\8\3' .. big(3, 4, 4) .. table.concat(bytes)
-- the same through gzip -9, with a name in the header
local packed = hex('1f8b08080000000002ff61006360e0606660600061163066976128d8c4107598e15028c3d22406ce0f0c2ffe30783433a87533d4'
  .. 'f331440a31ac9bc2d03291e1063fc3720e86ef4d00ce0024df40000000')

local function file(bytes_, name)
  local path = H.tmp(name or 'file.idx')
  H.write(path, bytes_)
  return path
end

describe('idx files', function()
  it('are read in their shape and type, plain and gzip', function()
    for _, b in ipairs { plain, packed } do
      local t = data.idx(file(b))
      assert.equal('uint8', t.dtype)
      assert.same({ 3, 4, 4 }, H.shape(t))
      eq(t, values)
    end
  end)
  it('of every element type, big-endian', function()
    for _, c in ipairs {
      { '\9', 'int8', '\255\5', { -1, 5 } }, { '\11', 'int16', '\255\254\1\2', { -2, 258 } },
      { '\12', 'int32', '\255\255\255\253\0\1\0\0', { -3, 65536 } },
      { '\13', 'float32', '\63\192\0\0\192\32\0\0', { 1.5, -2.5 } },
      { '\14', 'float64', '\63\248\0\0\0\0\0\0\192\4\0\0\0\0\0\0', { 1.5, -2.5 } },
    } do
      local t = data.idx(file('\0\0' .. c[1] .. '\1' .. big(2) .. c[3]))
      assert.equal(c[2], t.dtype)
      eq(t, c[4])
    end
  end)
  it('may be empty', function()
    local t = data.idx(file('\0\0\8\3' .. big(0, 28, 28)))
    assert.same({ 0, 28, 28 }, H.shape(t))
  end)
  it('that are missing, a folder, or no path are errors with the name', function()
    H.fails_here(function() data.idx '/nowhere/at-all.idx' end, '/nowhere/at-all.idx', 'No such file')
    H.fails_here(function() data.idx(H.tmp '.') end, H.tmp '.')
    H.fails_here(function() data.idx(5) end, 'path', 'number')
    H.fails_here(function() data.idx() end, 'path', 'nil')
  end)
  it('with a wrong magic are refused, saying what was found', function()
    for _, magic in ipairs { '\1\0\8\3', '\0\1\8\3', '\0\0\7\3', '\0\0\10\3', '\0\0\8\0', '\0\0\8\9', 'PNG\n' } do
      local found = ('0x%02x%02x%02x%02x'):format(magic:byte(1, 4))
      H.fails_here(function() data.idx(file(magic .. plain:sub(5))) end, 'file.idx', 'magic', found)
    end
  end)
  it('cut off at any length are refused', function()
    for n = 0, #plain - 1 do H.fails_here(function() data.idx(file(plain:sub(1, n))) end, 'file.idx') end
    H.fails_here(function() data.idx(file(plain .. 'x')) end, 'file.idx')
  end)
  it('cut off at any length of their gzip form are refused', function()
    for n = 0, #packed - 1 do H.fails_here(function() data.idx(file(packed:sub(1, n))) end, 'file.idx') end
  end)
  it('with any byte of their gzip form changed give an error or the same data', function()
    local same = 0
    for at = 1, #packed do
      for _, change in ipairs { 1, 16, 128, 255 } do
        local b = bit.bxor(packed:byte(at), change)
        local path = file(packed:sub(1, at - 1) .. string.char(b) .. packed:sub(at + 1))
        local ok, t = pcall(data.idx, path)
        if ok then
          eq(t, values)
          same = same + 1
        else
          assert.is_true(amp.Error ~= nil and type(t) == 'table' and tostring(t):find('file.idx', 1, true) ~= nil, tostring(t))
        end
      end
    end
    assert.is_true(same <= 40, 'changes that went unseen: ' .. same) -- the header's time, system and name
  end)
  it('that promise more than there is allocate nothing', function()
    local before = tonumber(require('amp.ffi').C.amp_memory(0, 0).peak)
    for _, b in ipairs {
      '\0\0\8\1' .. big(4294967295) .. 'x', '\0\0\14\8' .. big(65535, 65535, 65535, 65535, 65535, 65535, 65535, 65535),
      '\0\0\8\2' .. big(65536, 65536) .. 'x', '\0\0\8\4' .. big(0, 4294967295, 4294967295, 4294967295),
    } do
      H.fails_here(function() data.idx(file(b)) end, 'file.idx')
    end
    -- a gzip file is held to what gzip can pack
    H.fails_here(function() data.idx(file(hex '1f8b08000000000002036360e060acffffff3f006ce2f38708000000')) end, 'file.idx', '2147483647')
    assert.is_true(tonumber(require('amp.ffi').C.amp_memory(0, 0).peak) - before < 2 ^ 20)
  end)
  it('compressed ones need zlib, and say so where there is none; plain ones don\'t', function()
    local out, status = H.child(([[
      local ffi = require 'ffi'
      local load = ffi.load
      ffi.load = function(name) if name:find 'z' then error('no ' .. name) end return load(name) end
      io.write(amp.data.idx(%q):numel(), ' ', tostring(select(2, pcall(amp.data.idx, %q))))
    ]]):format(file(plain, 'plain.idx'), file(packed, 'packed.gz')))
    assert.equal(0, status, out)
    assert.is_true(out:find('^48 ') and out:find('zlib1g', 1, true) and out:find('packed.gz', 1, true) and true, out)
  end)
  it('read in a loop hold no files and no memory', function()
    local good, bad = file(packed, 'good.gz'), file(packed:sub(1, 60), 'bad.gz')
    local live = H.live()
    for _ = 1, 1500 do
      data.idx(good):free()
      pcall(data.idx, bad)
    end
    assert.equal(live, H.live())
  end)
end)

describe('mnist', function()
  local function folder(parts)
    local dir = H.tmp('mnist' .. math.random(1e9))
    os.execute("mkdir -p '" .. dir .. "'")
    for name, b in pairs(parts) do H.write(dir .. '/' .. name, b) end
    return dir
  end
  local labels = '\0\0\8\1' .. big(3) .. '\0\5\9'
  local good = {
    ['train-images-idx3-ubyte.gz'] = packed, ['train-labels-idx1-ubyte'] = labels,
    ['t10k-images-idx3-ubyte'] = plain, ['t10k-labels-idx1-ubyte'] = labels,
  }
  local function changed(name, b)
    local parts = {}
    for k, v in pairs(good) do parts[k] = v end
    parts[name] = b
    return folder(parts)
  end

  it('gives images from 0 to 1 and labels from 1 to 10', function()
    local sets = data.mnist(folder(good))
    for _, set in ipairs { sets.train, sets.test } do
      assert.equal(3, set:size())
      local x, y = set:get(2)
      assert.same({ 1, 4, 4 }, H.shape(x))
      assert.equal('float32', x.dtype)
      local want = {}
      for i = 1, 16 do want[i] = values[16 + i] / 255 end
      H.close(x, want)
      assert.equal('int64', y.dtype)
      assert.equal(6, y:item())
      local _, all = set:batch(amp.tensor({ 3, 1 }, { dtype = 'int64' }))
      eq(all, { 10, 1 })
    end
  end)
  it('reads the shipped digits', function()
    local sets = data.mnist(H.root .. '/examples/data')
    local count = {}
    for k = 1, 10 do count[k] = 0 end
    for _, set in ipairs { sets.train, sets.test } do
      local images, labels_ = unpack(set.tensors)
      assert.same({ set:size(), 1, 28, 28 }, H.shape(images))
      assert.is_true(images:max():item() == 1 and images:min():item() == 0)
      for _, k in ipairs(labels_:tolist()) do count[k] = count[k] + 1 end
    end
    for k = 1, 10 do assert.is_true(count[k] > 500, k .. ': ' .. tostring(count[k])) end
  end)
  it('names what is missing or does not fit', function()
    H.fails_here(function() data.mnist '/nowhere' end, 'train-images-idx3-ubyte', '/nowhere')
    H.fails_here(function() data.mnist() end, 'folder', 'nil')
    H.fails_here(function() data.mnist(changed('t10k-labels-idx1-ubyte', nil)) end, 't10k-labels-idx1-ubyte')
    H.fails_here(function() data.mnist(changed('t10k-labels-idx1-ubyte', '\0\0\8\1' .. big(2) .. '\0\5')) end, '3 images', '2 labels')
    H.fails_here(function() data.mnist(changed('t10k-labels-idx1-ubyte', plain)) end, 't10k-labels-idx1-ubyte', '3x4x4', 'labels')
    H.fails_here(function() data.mnist(changed('t10k-images-idx3-ubyte', labels)) end, 't10k-images-idx3-ubyte', 'images')
    H.fails_here(function() data.mnist(changed('train-labels-idx1-ubyte', labels:sub(1, -2))) end, 'train-labels-idx1-ubyte')
  end)
end)

describe('TensorDataset', function()
  it('gives examples and batches of all its tensors', function()
    local set = data.TensorDataset(H.make({ 1, 2, 3, 4, 5, 6 }, { 3, 2 }), H.make({ 7, 8, 9 }, { 3 }, 'int64'))
    assert.equal(3, set:size())
    local x, y = set:get(3)
    eq(x, { 5, 6 })
    assert.equal(9, y:item())
    x, y = set:batch(amp.tensor({ 3, 1, 3 }, { dtype = 'int64' }))
    eq(x, { 5, 6, 1, 2, 5, 6 })
    eq(y, { 9, 7, 9 })
    assert.equal('data.TensorDataset(3x2, 3)', tostring(set))
    H.fails_here(function() set:get(4) end, '4', '3')
    H.fails_here(function() set:batch(amp.tensor({ 4 }, { dtype = 'int64' })) end, '4', '3')
  end)
  it('refuses what has no examples in common', function()
    H.fails_here(function() data.TensorDataset() end, 'tensor')
    H.fails_here(function() data.TensorDataset(amp.ones(3), 5) end, '2', 'number')
    H.fails_here(function() data.TensorDataset(amp.ones(3, 2), amp.ones(4)) end, '3x2', '4')
    H.fails_here(function() data.TensorDataset(amp.tensor(1)) end, 'dimension')
  end)
end)

-- -- Loader ------------------------------------------------------------------

describe('DataLoader', function()
  local function set(n)
    local v = {}
    for i = 1, n do v[i] = i end
    return data.TensorDataset(H.make(v, { n }), H.make(v, { n }, 'int64'))
  end
  local function epoch(iterator) -- the labels of each batch, as text
    local out = {}
    for x, y in iterator do
      assert.is_true(amp.equal(x, y:float()))
      out[#out + 1] = table.concat(y:tolist(), ',')
    end
    return table.concat(out, ' ')
  end
  local function sorted(text)
    local list = {}
    for n in text:gmatch '%d+' do list[#list + 1] = tonumber(n) end
    table.sort(list)
    return table.concat(list, ' ')
  end

  it('gives batches in order; the last may be smaller, or dropped', function()
    assert.equal('1,2,3 4,5,6 7', epoch(data.DataLoader(set(7), { batch_size = 3 }):iter()))
    local dropping = data.DataLoader(set(7), { batch_size = 3, drop_last = true })
    assert.equal('1,2,3 4,5,6', epoch(dropping:iter()))
    assert.equal(2, dropping:size())
    assert.equal(3, data.DataLoader(set(7), { batch_size = 3 }):size())
    assert.equal(2, data.DataLoader(set(6), { batch_size = 3, drop_last = true }):size())
    assert.equal('1 2', epoch(data.DataLoader(set(2)):iter()))
    assert.equal('1,2', epoch(data.DataLoader(set(2), { batch_size = 5 }):iter()))
    assert.equal('', epoch(data.DataLoader(set(2), { batch_size = 5, drop_last = true }):iter()))
    assert.equal('', epoch(data.DataLoader(data.TensorDataset(amp.zeros(0, 3)), { batch_size = 5, shuffle = true }):iter()))
  end)
  it('iterates as a function, and in a plain for', function()
    local loader = data.DataLoader(set(5), { batch_size = 2 })
    assert.equal('1,2 3,4 5', epoch(loader()))
    for _ = 1, 2 do
      local seen = {}
      for _, y in loader do seen[#seen + 1] = table.concat(y:tolist(), ',') end
      assert.equal('1,2 3,4 5', table.concat(seen, ' '))
    end
    for _ = 1, 2 do -- left in the middle: the next loop begins anew
      local n = 0
      for _, y in loader do
        n = n + 1
        if n == 1 then assert.equal(1, y[1]:item()) else break end
      end
    end
  end)
  it('shuffles: every example once, another order each epoch, the same with the same seed', function()
    local loader = data.DataLoader(set(50), { batch_size = 7, shuffle = true })
    amp.manual_seed(4)
    local a, b = epoch(loader:iter()), epoch(loader:iter())
    assert.are_not.equal(a, b)
    assert.equal(sorted(a), sorted(b))
    assert.equal(sorted(epoch(data.DataLoader(set(50)):iter())), sorted(a))
    amp.manual_seed(4)
    assert.equal(a, epoch(loader:iter()))
    amp.manual_seed(4)
    assert.equal(a, epoch(data.DataLoader(set(50), { batch_size = 7, shuffle = true, prefetch = 3 }):iter()))
    amp.manual_seed(5)
    assert.are_not.equal(a, epoch(loader:iter()))
    amp.manual_seed(4)
    local c = epoch(data.DataLoader(set(50), { batch_size = 7, shuffle = true, drop_last = true }):iter())
    assert.equal(a:sub(1, #c), c)
  end)
  it('prefetch gathers that many batches ahead and changes nothing else', function()
    local asked = {}
    local source = { size = function() return 10 end }
    function source.batch(_, indices)
      asked[#asked + 1] = indices:tolist()[1]
      return indices
    end
    local next_batch = data.DataLoader(source, { batch_size = 2, prefetch = 2 }):iter()
    eq(next_batch(), { 1, 2 })
    assert.same({ 1, 3, 5 }, asked)
    eq(next_batch(), { 3, 4 })
    assert.same({ 1, 3, 5, 7 }, asked)
    for _ = 1, 3 do next_batch() end
    assert.is_nil(next_batch())
    assert.same({ 1, 3, 5, 7, 9 }, asked)
    assert.is_nil(next_batch())
  end)
  it('takes any table with size and get, and stacks examples', function()
    local source = { size = function() return 3 end, get = function(_, i) return amp.full({ 2 }, i), i * 10 end }
    local next_batch = data.DataLoader(source, { batch_size = 2 }):iter()
    local x, y = next_batch()
    assert.same({ 2, 2 }, H.shape(x))
    eq(x, { 1, 1, 2, 2 })
    eq(y, { 10, 20 })
    x = next_batch()
    assert.same({ 1, 2 }, H.shape(x))
    local ragged = { size = function() return 2 end, get = function(_, i) return amp.ones(i) end }
    H.fails(function() data.DataLoader(ragged, { batch_size = 2 }):iter()() end, '1', '2')
  end)
  it('transform sees each batch\'s tensors', function()
    local loader = data.DataLoader(set(4), { batch_size = 2, transform = function(x, y) return x * 10, y end })
    eq(loader:iter()(), { 10, 20 })
  end)
  it('an error in the data goes to the caller, and the loader goes on', function()
    local mine, broken = {}, true
    local source = { size = function() return 4 end, batch = function(_, i)
      if broken and i:tolist()[1] == 3 then error(mine) end
      return i
    end }
    local loader = data.DataLoader(source, { batch_size = 2 })
    local next_batch = loader:iter()
    eq(next_batch(), { 1, 2 })
    local ok, e = pcall(next_batch)
    assert.is_false(ok)
    assert.is_true(e == mine)
    broken = false
    eq(next_batch(), { 3, 4 })
    assert.is_nil(next_batch())
    eq(loader:iter()(), { 1, 2 })
  end)
  it('an old iterator says that a new epoch began', function()
    local loader = data.DataLoader(set(4))
    local old = loader:iter()
    old()
    loader:iter()
    H.fails_here(function() old() end, 'epoch')
  end)

  it('resumes in the middle of an epoch with exactly the batches that were left', function()
    for _, prefetch in ipairs { 0, 2 } do
      for stop = 0, 8 do
        local options = { batch_size = 3, shuffle = true, prefetch = prefetch }
        local function run(iterator, log, left)
          for _, y in iterator do
            log[#log + 1] = table.concat(y:tolist(), ',')
            left = left - 1
            if left == 0 then return end
          end
        end
        amp.manual_seed(9)
        local whole, loader = {}, data.DataLoader(set(20), options)
        for _ = 1, 3 do run(loader:iter(), whole, -1) end

        amp.manual_seed(9)
        local first, part = {}, data.DataLoader(set(20), options)
        run(part:iter(), first, -1)
        if stop > 0 then run(part:iter(), first, stop) end -- stop = 7: the last batch was had, the end not seen
        local path = H.tmp 'loader.amp'
        amp.save(path, { loader = part:state_dict(), rng = amp.get_rng_state() })

        amp.manual_seed(1)
        local saved = amp.load(path)
        local again = data.DataLoader(set(20), options)
        amp.set_rng_state(saved.rng)
        assert.is_true(again:load_state_dict(saved.loader) == again)
        while #first < #whole do run(again:iter(), first, -1) end
        assert.same(whole, first)
      end
    end
  end)
  it('a state is of this data set and batch size', function()
    local a = data.DataLoader(set(20), { batch_size = 3, shuffle = true })
    a:iter()()
    local state = a:state_dict()
    H.fails_here(function() data.DataLoader(set(21), { batch_size = 3 }):load_state_dict(state) end, '20', '21', 'examples')
    H.fails_here(function() data.DataLoader(set(20), { batch_size = 4 }):load_state_dict(state) end, '3', '4', 'batch_size')
    H.fails_here(function() a:load_state_dict(nil) end, 'table', 'nil')
    for position, text in pairs { [-1] = '-1', [99] = '99', [1.5] = '1.5' } do
      state.position = position
      H.fails_here(function() a:load_state_dict(state) end, 'position', text)
    end
    state.position = 1
    for _, order in ipairs { amp.ones(3), amp.ones(20), 5, amp.full({ 20 }, 21, { dtype = 'int64' }), amp.zeros(20, { dtype = 'int64' }) } do
      state.order = order
      H.fails_here(function() a:load_state_dict(state) end, 'order')
    end
    -- what failed left the loader as it was
    assert.equal(1, a.position)
  end)
  it('refuses what is no dataset or option', function()
    H.fails_here(function() data.DataLoader() end, 'dataset', 'nil')
    H.fails_here(function() data.DataLoader {} end, 'dataset')
    H.fails_here(function() data.DataLoader(amp.ones(3)) end, 'dataset')
    H.fails_here(function() data.DataLoader(set(3), { batchsize = 3 }) end, 'batchsize', "'batch_size'")
    for _, v in ipairs { 0, -1, 1.5, 'x', 1 / 0, 0 / 0 } do
      H.fails_here(function() data.DataLoader(set(3), { batch_size = v }) end, 'batch_size')
    end
    H.fails_here(function() data.DataLoader(set(3), { prefetch = -1 }) end, 'prefetch', '-1')
    H.fails_here(function() data.DataLoader(set(3), { workers = 'x' }) end, 'workers', 'x')
    H.fails_here(function() data.DataLoader(set(3), { transform = 5 }) end, 'transform', 'number')
    H.fails_here(function() data.DataLoader(set(3), { shuffle = 'yes' }) end, 'shuffle', 'yes')
    H.fails_here(function() data.DataLoader(set(3), { drop_last = 1 }) end, 'drop_last', '1')
    H.fails_here(function() return data.Dataloader end, 'Dataloader', "'DataLoader'")
  end)
end)
