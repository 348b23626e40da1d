--- Random calls of every public op: luajit spec/ops/fuzz.lua [calls] [seed] [pattern of op names]
--
-- A call starts from a case of the fixtures and changes it: sizes (equal sizes together,
-- so that shapes often still fit), values, dtypes, layouts (transposed, sliced, expanded,
-- channels_last), attributes. It must end in a Lua error of amp's or agree with the same
-- call on contiguous float64 copies; every fourth is differentiated in float32 as well and
-- compared likewise. Ends with `N passed, N failed`; a failure prints the call's number and
-- seed, by which `luajit spec/ops/fuzz.lua 1 SEED OP` repeats it. AMP_BUILD as for spec/run.lua.
local here = arg[0]:match('^(.*)/[^/]*$') or '.'
local root = here .. '/../..'
local build = os.getenv('AMP_BUILD') or (root .. '/build')
package.path = ('%s/lua/?.lua;%s/lua/?/init.lua;%s/?.lua;%s'):format(root, root, root, package.path)
package.cpath = ('%s/?.so;%s'):format(build, package.cpath)
package.preload['luassert'] = package.preload['luassert'] or function() return assert end
local amp = require 'amp'
local H = require 'spec.lib.helper'
H.root, H.build = root, build
local ops = require 'spec.ops.op_call'
local samples = require 'spec.ops.op_samples'

local calls, seed, pattern = tonumber(arg[1]) or 20000, tonumber(arg[2]) or 1, arg[3] or '.'
amp.warn = function() end

local random = require 'spec.lib.draw'
local draw, start, chance, pick = random.draw, random.start, random.chance, random.pick

-- -- Cases -------------------------------------------------------------------------

local raw_storage = { as_strided = true } -- reads what lies between a view's elements
local cases, names = {}, {}
samples.each_case(function(c)
  local row = ops.by_name[c.op]
  if not row or row.flags.private or c.aux or c.after or raw_storage[c.op] or not c.op:find(pattern) then return end
  if not cases[c.op] then
    cases[c.op] = {}
    names[#names + 1] = c.op
  end
  table.insert(cases[c.op], c)
end)
table.sort(names)

local floats = { 'float64', 'float32', 'float32', 'float16', 'bfloat16' }
local sizes = { 0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33 }
local integers = { 'int64', 'int32', 'int16', 'int8', 'uint8' }
local special = { 0, -0.0, 0 / 0, 1 / 0, -1 / 0, 1e-7, 300, -1e4 }

local function copy(v)
  if type(v) ~= 'table' then return v end
  local t = {}
  for k, x in pairs(v) do t[k] = copy(x) end
  return t
end

local function tensors_of(inp)
  local list = {}
  for _, x in ipairs(inp) do
    if type(x) == 'table' and x.d then list[#list + 1] = x
    elseif type(x) == 'table' and x.list then
      for _, y in ipairs(x.list) do list[#list + 1] = y end
    end
  end
  return list
end

-- equal sizes become another one, everywhere
local function resize(call)
  local from, to
  local pool = {}
  for _, t in ipairs(tensors_of(call.inp)) do
    for _, n in ipairs(t.s) do pool[#pool + 1] = n end
  end
  if #pool == 0 then return end
  from, to = pick(pool), pick(sizes)
  local once = chance(15) -- rarely one dimension alone: mostly an error
  for _, t in ipairs(tensors_of(call.inp)) do
    local n = 1
    for d, size in ipairs(t.s) do
      if size == from then
        t.s[d] = to
        if once then from = -1 end
      end
      n = n * t.s[d]
    end
    if n > 2048 then return false end
  end
  for _, v in pairs(call.attrs) do
    if type(v) == 'table' then
      for i = 1, #v do if v[i] == from then v[i] = to end end
    end
  end
end

local function change_attributes(call, row)
  local a = pick(row.attrs)
  local v = call.attrs[a.name]
  if a.type == 'b' then call.attrs[a.name] = not v
  elseif a.type:sub(1, 1) == 'e' then
    local words = {}
    for w in a.type:sub(2):gmatch '[^,]+' do words[#words + 1] = w end
    call.attrs[a.name] = pick(words)
  elseif a.type == 'd' then call.attrs[a.name] = pick { 1, 2, 3, -1, -2 }
  elseif type(v) == 'number' and a.type:sub(1, 1) == 'i' then call.attrs[a.name] = v + pick { -2, -1, 1, 2 }
  elseif type(v) == 'number' and a.type == 'f' then call.attrs[a.name] = v * pick { -1, 0, 0.5, 2 }
  elseif type(v) == 'table' and #v > 0 then v[draw(#v)] = pick { 0, 1, 2, 3, -1 }
  elseif a.optional then call.attrs[a.name] = nil end
end

-- -- A tensor in some layout, and its contiguous float64 (or integer) twin -------------

local function fill(t, row)
  local n, v = H.numel(t.s), {}
  local spice = row.flags.elementwise and chance(10)
  for i = 1, n do
    v[i] = #t.v > 0 and t.v[(#t.v == n and not t.shuffled) and i or draw(#t.v)] or 1
    if spice and t.d == 'float64' and chance(10) then v[i] = pick(special) end
    if v[i] ~= v[i] and row.name == 'copysign' then v[i] = 1 end -- the sign of a NaN is nobody's
  end
  if t.d:find 'int' and n > 0 and chance(4) then v[draw(n)] = pick { 0, -1, 99, 127 } end
  return v
end

local function layout(t)
  local nd = t.ptr_.ndim
  local how = draw(8)
  if how == 1 then return ops.relayout(t, 'transposed') or t end
  if how == 2 then return ops.relayout(t, 'sliced') or t end
  if how == 3 and nd > 0 then
    local d = draw(nd)
    local n = H.shape(t)[d]
    if n > 1 then
      local size = H.shape(t)
      return t:narrow(d, 1, 1):expand(size)
    end
  end
  if how == 4 and nd == 4 then return t:contiguous('channels_last') end
  return t
end

local function make(t, dtype, row)
  local v = fill(t, row)
  local ok, low = pcall(H.make, v, t.s, dtype)
  if not ok then return nil end
  low = layout(low)
  local wide = t.d == 'float64' and 'float64' or dtype
  return low, H.make(H.values(low), t.s, wide)
end

-- -- Comparison ----------------------------------------------------------------------------

local rtol = { float64 = 1e-9, float32 = 2e-4, float16 = 8e-3, bfloat16 = 5e-2 }
local tiny = { float16 = 6e-8, bfloat16 = 1e-38, float32 = 1e-44 } -- the smallest steps
local largest = { float16 = 65504, bfloat16 = 3.3e38, float32 = 3.4e38, float64 = math.huge }

local recurrent = { rnn = true, lstm = true, gru = true }

local function compare(got, want, dtype, scale, factor)
  local a, b = H.shape(got), H.shape(want)
  if table.concat(a, 'x') ~= table.concat(b, 'x') then return ('shape %s, oracle %s'):format(table.concat(a, 'x'), table.concat(b, 'x')) end
  local x, y = H.values(got), H.values(want)
  local d = H.dtype(got)
  local tol = (rtol[d] and math.max(rtol[d], rtol[dtype] or 0) or (rtol[dtype] and H.is_float[H.dtype(want)] and rtol[dtype]) or 0) * (factor or 1)
  local top = scale
  for i = 1, y.n do
    local m = math.abs(y[i])
    if m > top and m < math.huge then top = m end
  end
  for i = 1, x.n do
    local p, q = x[i], y[i]
    local nan = p ~= p or q ~= q
    local limit, f = largest[d] or math.huge, factor or 1
    local big = math.abs(q) > limit * 0.98 / f or math.abs(p) == math.huge and math.abs(q) * f > limit * 0.9
    if nan then
      if (p ~= p) ~= (q ~= q) and top < (largest[dtype] or math.huge) / 16 then return ('element %d is %g, oracle %g'):format(i, p, q) end
    elseif not big and p ~= q and math.abs(p - q) > tol * top + (tiny[d] or 0) then -- neither is NaN here
      return ('element %d is %.9g, oracle %.9g (scale %g)'):format(i, p, q, top)
    end
  end
end

-- -- One call ----------------------------------------------------------------------------------

local stats = { results = 0, errors = 0, gradients = 0 }
-- Matrices drawn here are often nearly singular, and then rounding moves these results without bound (or turns their
-- signs): they are called, and may not crash or leak, but are not compared.
local loose = {}
for op in ([[qr svd svdvals eigh eigvalsh inverse solve solve_triangular triangular_solve cholesky cholesky_solve cholesky_inverse
  det logdet slogdet pinverse lstsq matrix_rank cond matrix_power matrix_exp]]):gmatch '%S+' do loose[op] = math.huge end

local function describe_call(name, low, attrs)
  local words = {}
  local function word(x)
    if type(x) == 'cdata' then
      words[#words + 1] = H.dtype(x) .. '[' .. table.concat(H.shape(x), 'x') .. ';' .. table.concat(x:stride(), ',') .. ']'
    else words[#words + 1] = tostring(x) end
  end
  for _, x in ipairs(low) do
    if type(x) == 'table' then for _, y in ipairs(x.list) do word(y) end else word(x) end
  end
  for k, v in pairs(attrs) do words[#words + 1] = k .. '=' .. (type(v) == 'table' and '{' .. table.concat(v, ',') .. '}' or tostring(v)) end
  return name .. '(' .. table.concat(words, ', ') .. ')'
end

local function gradients(name, inp, attrs, row)
  local leaves = {}
  local constant = samples.constant[name] or {}
  local function leaf(x, argument)
    if type(x) == 'cdata' and H.is_float[H.dtype(x)] and not constant[argument] then
      x = x:detach()
      x.requires_grad = true
      leaves[#leaves + 1] = x
    end
    return x
  end
  local args = {}
  for i, x in ipairs(inp) do
    if type(x) == 'table' then
      local l = {}
      for j, y in ipairs(x.list) do l[j] = leaf(y) end
      args[i] = { list = l }
    else
      args[i] = leaf(x, row.args[i].name)
    end
  end
  local out = ops.call(name, args, attrs)[1]
  if not out.requires_grad then return {} end
  return amp.grad({ out:double():sum() }, leaves, { allow_unused = true }), #leaves
end

local function one(number)
  start(number)
  local name = pick(names)
  local row = ops.by_name[name]
  local base = pick(cases[name])
  local call = { inp = copy(base.inp), attrs = copy(base.attrs) }
  for _, t in ipairs(tensors_of(call.inp)) do t.shuffled = chance(50) end
  for _ = 1, draw(3) - 1 do if resize(call) == false then return true end end
  if #row.attrs > 0 and chance(25) then change_attributes(call, row) end
  local dtype = pick(floats)
  if base.half == false and (dtype == 'float16' or dtype == 'bfloat16') then dtype = 'float32' end
  local low, wide = {}, {}
  local scale, coarse = 1e-6, 'float32' -- coarse: of the floats given, whose gradients are rounded on their way
  local function both(t)
    local d = t.d == 'float64' and (chance(4) and pick(floats) or dtype) or (t.d == 'int64' and chance(20) and pick(integers) or t.d)
    local a, b = make(t, d, row)
    if a == nil then return nil end
    if rtol[d] and rtol[d] > rtol[coarse] then coarse = d end
    for _, v in ipairs(H.values(b)) do
      local m = math.abs(v)
      if m > scale and m < math.huge then scale = m end
    end
    return a, b
  end
  for i, x in ipairs(call.inp) do
    if type(x) == 'table' and x.d then
      low[i], wide[i] = both(x)
      if low[i] == nil then return true end
    elseif type(x) == 'table' then
      local l, w = {}, {}
      for j, y in ipairs(x.list) do
        l[j], w[j] = both(y)
        if l[j] == nil then return true end
      end
      low[i], wide[i] = { list = l }, { list = w }
    else
      low[i], wide[i] = x, x
    end
  end
  local ok, out = pcall(ops.call, name, low, call.attrs)
  if not ok then
    stats.errors = stats.errors + 1
    local text = tostring(out)
    if type(out) ~= 'table' or out.code == nil or out.code == 'internal' or #text < 12 then
      return false, describe_call(name, low, call.attrs) .. ': not an error of amp: ' .. text
    end
    return true
  end
  stats.results = stats.results + 1
  local fine, want = pcall(ops.call, name, wide, call.attrs)
  if not fine and loose[name] == math.huge then return true end -- singular before rounding, not after
  if not fine then return false, describe_call(name, low, call.attrs) .. ': the float64 call fails: ' .. tostring(want) end
  if row.flags.random then return true end
  local factor = (base.tol or 1) * (loose[name] or 1)
  if recurrent[name] and rtol[coarse] >= rtol.float16 then -- each step rounds its states to 16 bits, and the next go on from these
    factor = factor * math.max(1, H.shape(low[1])[1] or 1)
  end
  if factor ~= math.huge then
    for k = 1, #want do
      local wrong = compare(out[k], want[k], dtype, scale, factor)
      if wrong then return false, describe_call(name, low, call.attrs) .. ': result ' .. k .. ': ' .. wrong end
    end
  end
  if dtype == 'float32' and number % 4 == 0 and base.grad ~= false and row.kind ~= 'N' and not row.flags.create and factor ~= math.huge then
    local g, w
    ok, g = pcall(gradients, name, low, call.attrs, row)
    fine, w = pcall(gradients, name, wide, call.attrs, row)
    if ok ~= fine then return false, describe_call(name, low, call.attrs) .. ': gradient: ' .. tostring(ok and w or g) end
    if ok then
      stats.gradients = stats.gradients + 1
      for i = 1, #w do
        if w[i] then
          local wrong = g[i] == nil and 'none' or compare(g[i], w[i], coarse, scale, (coarse == 'float32' and 16 or 1) * factor)
          if wrong then return false, describe_call(name, low, call.attrs) .. ': gradient ' .. i .. ': ' .. wrong end
        end
      end
    end
  end
  return true
end

-- -- The run ---------------------------------------------------------------------------------------

print(('%d calls of %d ops, seed %d'):format(calls, #names, seed))
local failed, seen = 0, {}
local before
for i = 1, calls do
  local number = seed * 1000003 + i
  if calls == 1 then number = seed end
  if os.getenv 'AMP_FUZZ_TRACE' then io.stderr:write(number, '\n') end
  local ok, good, why = xpcall(one, debug.traceback, number)
  if not ok then good, why = false, tostring(good) end
  if not good then
    failed = failed + 1
    local op = why:match '^[%w_]+' or '?'
    seen[op] = (seen[op] or 0) + 1
    if seen[op] <= 3 then print(('FAILED: seed %d: %s'):format(number, why)) end
  end
  if i % 5000 == 0 then -- plans and tables are warm after the first round
    local live = H.live()
    before = before or live + 2 ^ 20
    if live > before then
      failed = failed + 1
      print(('FAILED: %d bytes live after %d calls, %d expected'):format(live, i, before))
      before = live + 2 ^ 20
    end
  end
end
for op, n in pairs(seen) do if n > 3 then print(('%s: %d failures in all'):format(op, n)) end end
print(('%d results, %d gradients, %d errors'):format(stats.results, stats.gradients, stats.errors))
print(('%d passed, %d failed'):format(calls - failed, failed))
os.exit(failed == 0 and 0 or 1, true)
