--- data: what a dataset draws at random is a function of the seed, the epoch and the place in it: not of workers, prefetch, order or a
-- resume. The program's own sequences, amp's and math.random's, go on as if the dataset had drawn nothing.
local amp = require 'amp'
local draws = require 'amp.data.draws'
local H = require 'spec.lib.helper'
local DataLoader = amp.data.DataLoader
local random = math.random -- as a program keeps it

local N = 13
local function with_get()
  return { size = N, get = function(_, i)
    local list = {}
    for k = 1, i % 3 + 1 do list[k] = random(1000) end -- another number of draws an example
    return amp.rand({ 2 }, { dtype = 'float64' }) + amp.randn({ 1 }, { dtype = 'float64' }), math.random(), amp.randperm(5), list
  end }
end
local function with_batch()
  return { size = function() return N end, batch = function(_, indices)
    return amp.rand({ indices:numel() }, { dtype = 'float64' }), amp.full({ indices:numel() }, math.random(), { dtype = 'float64' }), indices,
      { random(5) }
  end }
end
local function jitter(x, y, z, list) return x + amp.rand({ 1 }, { dtype = 'float64' }), y + math.random(), z, list end

local function flat(v, out)
  if amp.is_tensor(v) then v = v:tolist() end
  if type(v) == 'table' then
    for _, x in ipairs(v) do flat(x, out) end
  else out[#out + 1] = ('%.17g'):format(v) end
  return out
end
local function line(...) return table.concat(flat({ ... }, {}), ' ') end

-- Batches of two epochs, as text; the program draws a few numbers itself meanwhile.
local function run(make, options, seed)
  local o = { batch_size = 3, shuffle = true, transform = jitter }
  for k, v in pairs(options) do o[k] = v end
  amp.manual_seed(seed or 7)
  math.randomseed(5)
  local loader, out, own = DataLoader(make(), o), {}, {}
  for _ = 1, 2 do
    for x, y, z, list in loader:iter() do
      out[#out + 1] = line(x, y, z, list)
      own[#own + 1] = line(amp.rand(2), math.random())
    end
  end
  return out, own
end

describe('random numbers of a dataset', function()
  it('are the same for any number of workers and any prefetch, and so are those of the program', function()
    for _, make in ipairs { with_get, with_batch } do
      local want, own = run(make, {})
      for _, o in ipairs { { workers = 1 }, { workers = 2 }, { workers = 4 }, { prefetch = 3 }, { prefetch = 100 }, { workers = 2, prefetch = 9 } } do
        local got, mine = run(make, o)
        assert.same(want, got)
        assert.same(own, mine)
      end
    end
  end)
  it('leave the program\'s sequences as if none had been drawn', function()
    local function own(get)
      amp.manual_seed(3)
      math.randomseed(9)
      local out = { line(amp.rand(2), math.random()) }
      for _ in DataLoader({ size = 4, get = get }):iter() do out[#out + 1] = line(amp.rand(2), random()) end
      return out, amp.get_rng_state().offset
    end
    local want, offset = own(function(_, i) return i end)
    local got, at = own(function(_, i)
      for _ = 1, i do amp.rand(1000) math.random() end
      amp.manual_seed(i)
      math.randomseed(i)
      return i
    end)
    assert.same(want, got)
    assert.equal(offset, at)
  end)
  it('of one example do not depend on those of another, nor on a seed it sets', function()
    local function second(first)
      amp.manual_seed(3)
      local set = { size = 2, get = function(_, i)
        if i == 1 then first() end
        return amp.rand({ 1 }, { dtype = 'float64' }), math.random()
      end }
      local x, y = DataLoader(set, { batch_size = 2 }):iter()()
      return { x[2]:item(), y[2]:item() }
    end
    local want = second(function() end)
    assert.same(want, second(function() amp.rand(999) math.random() end))
    assert.same(want, second(function() amp.manual_seed(8) math.randomseed(8) end))
  end)
  it('are put back after an error, too', function()
    amp.manual_seed(3)
    math.randomseed(9)
    local a, b = amp.rand(1):item(), math.random()
    amp.manual_seed(3)
    math.randomseed(9)
    local mine = {}
    local loader = DataLoader({ size = 2, get = function() amp.rand(9) math.random() error(mine) end })
    local ok, e = pcall(loader:iter())
    assert.is_true(not ok and e == mine)
    assert.equal(a, amp.rand(1):item())
    assert.equal(b, math.random())
  end)
  it('are kept apart when a dataset yields', function()
    local function epoch(yield)
      amp.manual_seed(3)
      math.randomseed(9)
      local out, own = {}, {}
      local co = coroutine.wrap(function()
        local set = { size = 3, get = function()
          local a, b = amp.rand(1):item(), math.random()
          if yield then coroutine.yield() end
          return a + amp.rand(1):item(), b + math.random()
        end }
        for x, y in DataLoader(set):iter() do out[#out + 1] = line(x, y) end
        return true
      end)
      while not co() do own[#own + 1] = line(amp.rand(1), math.random()) end
      return out, own
    end
    local want = epoch(false)
    local got, own = epoch(true)
    assert.same(want, got)
    amp.manual_seed(3)
    math.randomseed(9)
    for _, v in ipairs(own) do assert.equal(line(amp.rand(1), math.random()), v) end
  end)
  it('resume anywhere, with any workers and prefetch, by loader and generator', function()
    for _, make in ipairs { with_get, with_batch } do
      local whole = run(make, {})
      local a_epoch = #whole / 2
      for stop = 1, a_epoch do
        for _, o in ipairs { {}, { workers = 2 }, { prefetch = 2 } } do
          local options = { batch_size = 3, shuffle = true, transform = jitter, workers = o.workers, prefetch = o.prefetch }
          amp.manual_seed(7)
          local loader, got = DataLoader(make(), options), {}
          for x, y, z, list in loader:iter() do
            got[#got + 1] = line(x, y, z, list)
            amp.rand(2)
            if #got == stop then break end
          end
          local path = H.tmp 'draws.amp'
          amp.save(path, { loader = loader:state_dict(), rng = amp.get_rng_state() })
          amp.manual_seed(99)
          local saved, again = amp.load(path), DataLoader(make(), options)
          again:load_state_dict(saved.loader)
          amp.set_rng_state(saved.rng)
          while #got < #whole do
            for x, y, z, list in again:iter() do
              got[#got + 1] = line(x, y, z, list)
              amp.rand(2)
            end
          end
          assert.same(whole, got)
        end
      end
    end
  end)
  it('differ between epochs, loaders and seeds, neighbours among them', function()
    local seen = {}
    local function new(v, where)
      assert.is_nil(seen[v], ('%s is that of %s'):format(where, tostring(seen[v])))
      seen[v] = where
    end
    for seed = 0, 4 do
      amp.manual_seed(seed)
      local set = { size = 20, get = function() return amp.rand({ 1 }, { dtype = 'float64' }), math.random() end }
      local a, b = DataLoader(set, { batch_size = 4 }), DataLoader(set, { batch_size = 4 })
      for e = 1, 4 do
        for name, l in pairs { a = a, b = b } do
          for x, y in l:iter() do
            local where = ('seed %d epoch %d loader %s'):format(seed, e, name)
            for _, v in ipairs(x:reshape(-1):tolist()) do new('amp' .. v, where) end
            for _, v in ipairs(y:tolist()) do new('lua' .. v, where) end
          end
        end
      end
    end
  end)
  it('are evenly spread, first draws of neighbours and their parts', function()
    local n = 4000
    local sums, product, before = { 0, 0 }, { 0, 0 }, { 0.5, 0.5 }
    local set = { size = n, get = function() return amp.rand(1):item(), math.random() end }
    amp.manual_seed(1)
    for x, y in DataLoader(set, { batch_size = 10 }):iter() do
      local rows = { x:tolist(), y:tolist() }
      for k = 1, 2 do
        for _, v in ipairs(rows[k]) do
          sums[k] = sums[k] + v
          product[k] = product[k] + (v - 0.5) * (before[k] - 0.5)
          before[k] = v
        end
      end
    end
    for k = 1, 2 do
      assert.is_true(math.abs(sums[k] / n - 0.5) < 0.02, k .. ': mean ' .. sums[k] / n)
      assert.is_true(math.abs(product[k] / n * 12) < 0.06, k .. ': correlation ' .. product[k] / n * 12)
    end
  end)
  it('come again with the seed, and in a loader inside a dataset, other ones an example', function()
    local function nested(workers)
      amp.manual_seed(2)
      local set = { size = 6, get = function()
        local s = {}
        for x in DataLoader({ size = 2, get = function() return amp.rand(1) end }, { shuffle = true }):iter() do s[#s + 1] = x end
        return amp.cat(s):reshape(-1)
      end }
      local out = {}
      for x in DataLoader(set, { batch_size = 2, workers = workers }):iter() do out[#out + 1] = x end
      return amp.cat(out):reshape(-1):tolist()
    end
    local list, seen = nested(0), {}
    assert.same(list, nested(0))
    assert.same(list, nested(2))
    for _, v in ipairs(list) do
      assert.is_nil(seen[v])
      seen[v] = true
    end
  end)
  it('do without access to math.random\'s place, too', function()
    local out, status = H.child [[
      debug.getupvalue = function() end
      local function run(workers)
        amp.manual_seed(1)
        math.randomseed(2)
        local out = {}
        for x in amp.data.DataLoader({size = 6, get = function() return math.random() end}, {batch_size = 2, workers = workers}):iter() do
          for _, v in ipairs(x:tolist()) do out[#out + 1] = v end
        end
        return table.concat(out, ' ')
      end
      local a, b = run(0), run(2)
      assert(a == b, a .. ' ' .. b)
      print(math.random() ~= math.random())
    ]]
    assert.equal('true\n', out)
    assert.equal(0, status)
  end)
  it('a state of the generator says how many epochs began, and only then', function()
    amp.manual_seed(1)
    assert.is_nil(amp.get_rng_state().epochs)
    DataLoader({ size = 1, get = function() return 1 end }):iter()
    local state = amp.get_rng_state()
    assert.same({ seed = 1, offset = 0, epochs = 1 }, state)
    local key = draws.begin()
    amp.set_rng_state(state)
    assert.equal(key, draws.begin())
    for _, v in ipairs { -1, 1.5, 'x', false } do
      H.fails_here(function() amp.set_rng_state { seed = 1, offset = 0, epochs = v } end, 'epochs', tostring(v))
    end
    local loader = DataLoader({ size = 1, get = function() return 1 end })
    local saved = loader:state_dict()
    saved.key = 'x'
    H.fails_here(function() loader:load_state_dict(saved) end, 'key', 'x')
  end)
end)

describe('datasets of amp that draw nothing', function()
  it('are known as such, so that no batch begins a place in the random numbers', function()
    for _, class in ipairs { require 'amp.data.dataset'.class, require 'amp.data.text'.class } do
      assert.is_function(class.batch)
      assert.equal(class.batch, class._draws_nothing)
    end
  end)
end)
