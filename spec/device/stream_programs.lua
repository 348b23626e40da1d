--- Random programs over four streams of a GPU, beside the same on the CPU: copies from pinned and ordinary memory and
-- back, ops whose operands other streams made, changes in place, tensors freed while they are in use, caches emptied.
-- Events order all values; memory is left to amp. Run by spec/device/cuda_memory_spec.lua and spec/device/gpu/memory_spec.lua.
local amp = require 'amp'
local random = math.random

local sizes = { { 30, 30 }, { 64, 40 }, { 300, 10 }, { 5 } }

local function joined(x, y) return x:dim() == y:dim() and x:size(1) == y:size(1) and (x + y) * 0.5 or x * 2 - 1 end

local function program(streams, seed)
  math.randomseed(seed)
  local pool = {} -- c on the CPU, g its twin, which stream s has made
  local function pick() return pool[random(#pool)] end
  local function check(ok, what) if not ok then error(('program %d: %s'):format(seed, what), 0) end end
  local function compare(a, what) a.s:with(function() check(a.g:cpu():allclose(a.c), what) end) end

  local function copied(s)
    local c = amp.randn(sizes[random(#sizes)])
    if random(2) == 1 then return { c = c, g = s:with(function() return c:cuda() end), s = s } end
    local p = c:pin_memory()
    local item = { c = c, g = s:with(function() return p:cuda { non_blocking = true } end), s = s }
    p:free()
    return item
  end

  local function computed(s)
    local a, b = pick(), pick()
    s:wait_stream(a.s):wait_stream(b.s)
    return { c = joined(a.c, b.c), g = s:with(joined, a.g, b.g), s = s }
  end

  local function changed(s)
    local a = pick()
    for _, o in ipairs(streams) do s:wait_stream(o) end -- they may read it
    a.c:add_(1)
    s:with(function() a.g:add_(1) end)
    for _, o in ipairs(streams) do o:wait_stream(s) end
    a.s = s
  end

  local function brought()
    local a = pick()
    local h = a.s:with(function() return a.g:to { device = 'cpu', non_blocking = true } end)
    if random(2) == 1 then
      a.s:synchronize()
      check(h:allclose(a.c), 'a copy to the CPU')
    end
    h:free()
  end

  for _ = 1, 150 do
    local s, what, item = streams[random(#streams)], random(8), nil
    if what <= 2 or #pool < 3 then item = copied(s)
    elseif what <= 5 then item = computed(s)
    elseif what == 6 then changed(s)
    elseif what == 7 and #pool > 4 then table.remove(pool, random(#pool)).g:free()
    else brought() end
    if item then pool[#pool + 1] = item end
    if #pool > 20 then table.remove(pool, 1).g:free() end
    if random(40) == 1 then amp.cuda.empty_cache() end
    if random(40) == 1 then collectgarbage() end
    if random(10) == 1 then compare(pick(), 'a value') end
  end
  for _, a in ipairs(pool) do compare(a, 'a value at the end') end
end

--- Run n programs; an error says which one went wrong.
return function(n)
  local streams = { amp.cuda.default_stream(), amp.cuda.Stream(), amp.cuda.Stream(), amp.cuda.Stream() }
  for seed = 1, n do program(streams, seed) end
end
