--- data: what people write out of habit works or says what to write: ipairs, #, pairs, calls and numbers on loaders and datasets, a
-- dot for a colon, a size that is a number, a return that was forgotten, options of other libraries.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local data = amp.data

local function tensors(n) return data.TensorDataset(amp.arange(1, n + 1), amp.arange(1, n + 1) * 10) end

describe('a loader', function()
  it('has a length and is enumerated by ipairs', function()
    local loader = data.DataLoader(tensors(5), { batch_size = 2 })
    assert.equal(3, #loader)
    for _ = 1, 2 do
      local seen = {}
      for i, x, y in ipairs(loader) do seen[#seen + 1] = i .. ': ' .. table.concat(x:tolist(), ',') .. ' ' .. table.concat(y:tolist(), ',') end
      assert.same({ '1: 1,2 10,20', '2: 3,4 30,40', '3: 5 50' }, seen)
    end
    local state
    for i in ipairs(loader) do
      if i == 2 then
        state = loader:state_dict()
        break
      end
    end
    local other = data.DataLoader(tensors(5), { batch_size = 2 })
    for i, x in ipairs(other:load_state_dict(state)) do
      assert.equal(3, i) -- the number of the batch in the epoch
      assert.equal(5, x:item())
    end
  end)
  it('takes its dataset and options in one table as well', function()
    local set = tensors(5)
    for _, given in ipairs { { set }, { dataset = set } } do
      given.batch_size, given.drop_last = 2, true
      local loader = data.DataLoader(given)
      assert.equal(2, #loader)
      local x, y = loader:iter()()
      assert.same({ { 1, 2 }, { 10, 20 } }, { x:tolist(), y:tolist() })
    end
    H.fails_here(function() data.DataLoader { set, batchsize = 2 } end, 'batchsize', 'batch_size')
    H.fails_here(function() data.DataLoader { 1, 2 } end, 'a list')
    H.fails_here(function() data.DataLoader { batch_size = 2 } end, 'a dataset expected')
  end)
  it('is not gone through by pairs or number, and says so', function()
    local loader = data.DataLoader(tensors(5))
    H.fails_here(function() for _ in pairs(loader) do end end, 'loader:iter()')
    H.fails_here(function() return loader[1] end, 'loader:iter()', '[1]')
    H.fails_here(function() loader.iter() end, 'loader:iter(...)', 'colon')
    H.fails_here(function() local _ = loader.size() end, 'size', 'colon')
    assert.is_nil(loader.no_such_field)
    loader.note = 'mine'
    assert.equal('mine', loader.note)
    assert.equal(5, loader:size())
    assert.is_true(loader == loader and loader ~= data.DataLoader(tensors(5)))
  end)
  it('is collected with what it holds', function()
    local gone = setmetatable({}, { __mode = 'k' })
    local function make()
      local set = { size = 3, get = function(_, i) return i end }
      gone[set] = true
      local loader = data.DataLoader(set)
      loader:iter()()
      loader()
    end
    make()
    jit.flush() -- a trace may hold what it was compiled for
    for _ = 1, 3 do collectgarbage() end
    assert.is_nil(next(gone))
  end)
end)

it('loaders and datasets are named in errors of what takes something else', function()
  local set = tensors(5)
  local loader, path = data.DataLoader(set, { batch_size = 2 }), H.tmp 'loader.amp'
  H.fails_here(function() amp.save(path, { loader = loader }) end, "at 'loader'", 'use its state_dict()')
  H.fails_here(function() amp.save(path, { set = set }) end, "at 'set'", 'a dataset cannot be saved')
  H.fails_here(function() amp.doctor(loader) end, 'got data.DataLoader (3 batches of 2, 5 examples)')
  H.fails_here(function() amp.sum(set) end, 'got data.TensorDataset')
end)

describe('a dataset of amp', function()
  it('has a length and is enumerated by ipairs', function()
    local set = tensors(3)
    assert.equal(3, #set)
    local seen = {}
    for i, x, y in ipairs(set) do seen[i] = x:item() + y:item() end
    assert.same({ 11, 22, 33 }, seen)
    local text = data.TextDataset({ text = 'abcdefgh' }, { length = 2 })
    assert.equal(3, #text)
    local n = 0
    for _ in ipairs(text) do n = n + 1 end
    assert.equal(3, n)
  end)
  it('is not gone through by pairs, number or call, and says so', function()
    local set = tensors(3)
    H.fails_here(function() for _ in pairs(set) do end end, 'set:get(i)')
    H.fails_here(function() return set[2] end, 'set:get(2)')
    H.fails_here(function() set() end, 'set:get(i)')
    H.fails_here(function() set.get(1) end, 'get', 'colon')
  end)
  it('may be built upon', function()
    local set = tensors(4)
    local twice = setmetatable({ get = function(self, i) return self.tensors[1][i] * 2 end, batch = false }, { __index = set })
    assert.equal(4, twice:size())
    local sum = 0
    for x in data.DataLoader(twice, { batch_size = 2 }):iter() do sum = sum + x:sum():item() end
    assert.equal(20, sum)
  end)
end)

describe('a dataset of one\'s own', function()
  local function first(set, options) return data.DataLoader(set, options):iter() end
  it('may have its size as a number', function()
    local loader = data.DataLoader({ size = 4, get = function(_, i) return i end }, { batch_size = 3, shuffle = true })
    assert.equal(2, #loader)
    local sum = 0
    for x in loader:iter() do sum = sum + x:sum():item() end
    assert.equal(10, sum)
    assert.equal(4, loader:state_dict().examples)
    for _, size in ipairs { -1, 1.5, 0 / 0, 1 / 0 } do
      H.fails_here(function() first { size = size, get = function(_, i) return i end } end, 'size', tostring(size))
      H.fails_here(function() first { size = function() return size end, get = function(_, i) return i end } end, 'size', tostring(size))
    end
    H.fails_here(function() first { size = function() end, get = function(_, i) return i end } end, 'size', 'nil')
    H.fails_here(function() data.DataLoader { size = 'x', get = function() end } end, 'size', 'x')
    H.fails_here(function() data.DataLoader { size = 3, get = 5 } end, 'get', '5')
    H.fails_here(function() data.DataLoader { { 1, 2 }, { 3, 4 } } end, 'a list', 'get = function')
  end)
  it('that gives nothing is an error, not the end of the epoch', function()
    for _, workers in ipairs { 0, 1 } do
      local o = { batch_size = 2, workers = workers }
      local function get(f) return first({ size = 4, get = f }, o) end
      local e = get(function() end)
      H.fails_here(function() e() end, 'get(1)', 'return')
      e = get(function(_, i) if i == 1 then return i end end)
      H.fails_here(function() e() end, 'get(2)', 'return')
      e = get(function(_, i) if i == 1 then return i, i end return i end)
      H.fails_here(function() e() end, 'get(2)', '1 values', '2')
      e = get(function(_, i) return i, nil, i end)
      H.fails_here(function() e() end, 'get(1)', 'value 2', 'nil')
      local b = first({ size = 4, batch = function() end }, o)
      H.fails_here(function() b() end, 'batch 1', 'return')
    end
    local t = first({ size = 4, get = function(_, i) return i end }, { transform = function() end })
    H.fails_here(function() t() end, 'batch 1', 'transform', 'return')
    local x = first({ size = 2, get = function(_, i) return i, nil end }, { batch_size = 2 })()
    assert.same({ 1, 2 }, x:tolist())
    local a, b, c, d = first({ size = 2, get = function(_, i) return i, -i, tostring(i), i == 1 end }, { batch_size = 2 })()
    assert.same({ { 1, 2 }, { -1, -2 }, { '1', '2' }, { true, false } }, { a:tolist(), b:tolist(), c, d:tolist() })
  end)
end)

describe('a loader in amp.scope', function()
  it('keeps what it needs for later batches', function()
    local sets = { tensors(7), { size = 7, get = function(_, i) return amp.full({ 2 }, i) end },
      { size = 7, batch = function(_, i) return i * 1 end } }
    for _, set in ipairs(sets) do
      for _, o in ipairs { {}, { shuffle = true }, { prefetch = 2 }, { prefetch = 2, shuffle = true }, { workers = 2 } } do
        o.batch_size = 2
        local loader, next_batch = data.DataLoader(set, o), nil
        local state
        amp.scope(function() next_batch = loader:iter() end)
        local sum = 0
        for k = 1, 4 do
          sum = sum + amp.scope(function() return next_batch():double():sum():item() end)
          if k == 2 then state = amp.scope(function() return loader:state_dict() end) end
        end
        assert.equal(set == sets[2] and 56 or 28, sum)
        amp.scope(function() loader:load_state_dict(state) end)
        local n = 0
        for _ in loader:iter() do n = n + 1 end
        assert.equal(2, n)
      end
    end
  end)
end)

describe('options of other libraries', function()
  it('are refused with what to write instead', function()
    local set = tensors(3)
    for name, words in pairs { num_workers = 'workers', prefetch_factor = 'prefetch', collate_fn = 'batch', worker_init_fn = 'seed', batchsize = 'batch_size',
      persistent_workers = 'epoch', generator = 'manual_seed', shufle = 'shuffle', time_out = 'timeout' } do
      H.fails_here(function() data.DataLoader(set, { [name] = 1 }) end, name, words)
    end
  end)
end)
