--- Every row of the op table, found by reflection: forward against PyTorch (or a
-- closed form), 16-bit results, strides, first and second derivatives, dtypes
-- and values under autocast, in-place forms, and what wrong calls are told.
-- A row without samples fails.
local amp = require 'amp'
local H = require 'spec.helper'
local ops = require 'spec.op_call'
local samples = require 'spec.op_samples'

local cases = {}
local function gather(file)
  for _, c in ipairs(H.fixture(file)) do
    cases[c.op] = cases[c.op] or {}
    table.insert(cases[c.op], c)
  end
end
gather 'ops.txt'
for _, family in ipairs(samples.families) do gather('ops_' .. family .. '.txt') end
local policy = H.policy_list()
local sanitized = os.getenv 'AMP_SPEC_SANITIZED'

-- -- From a case to a call ------------------------------------------------------

local function is_tensor(x) return type(x) == 'table' and x.d ~= nil end

-- visit every tensor of a fixture's arguments (those of lists too): f(fixture, place) -> value
local function map(inp, f)
  local out, place = {}, 0
  for i, x in ipairs(inp) do
    if is_tensor(x) then
      place = place + 1
      out[i] = f(x, place)
    elseif type(x) == 'table' and x.list then
      local l = {}
      for j, y in ipairs(x.list) do
        place = place + 1
        l[j] = f(y, place)
      end
      out[i] = { list = l }
    else
      out[i] = x
    end
  end
  return out, place
end

-- the same over made tensors
local function remap(inp, f)
  local out = {}
  for i, x in ipairs(inp) do
    if type(x) == 'cdata' then out[i] = f(x)
    elseif type(x) == 'table' and x.list then
      local l = {}
      for j, y in ipairs(x.list) do l[j] = f(y) end
      out[i] = { list = l }
    else
      out[i] = x
    end
  end
  return out
end

local function arguments(c, dtype)
  local inp = map(c.inp, function(x) return H.tensor(x, dtype) end)
  if c.aux then
    local from = ops.raw(c.aux.op, map(c.aux.inp, function(x) return H.tensor(x, dtype) end), c.aux.attrs)
    for i, x in ipairs(inp) do
      if type(x) == 'table' and x.aux then inp[i] = from[x.aux] end
    end
  end
  return inp
end

local function label(c) return c.op .. ' (' .. c.tag .. ')' end

local function check_results(c, out, dtype, what)
  local factor = c.tol or 1
  for k, want in ipairs(c.out) do
    local t = out[k]
    if t == nil then error(('%s: %s: result %d is missing'):format(label(c), what, k), 0) end
    local expected = want.d
    if expected == 'float64' and dtype and not c.attrs.dtype then expected = dtype end
    local got = H.dtype(t)
    if got ~= expected then error(('%s: %s: result %d is %s, not %s'):format(label(c), what, k, got, expected), 0) end
    local tol = H.tolerance[expected] and H.tolerance[dtype or expected] or H.exact
    local wrong = H.difference(t, want.v, want.s, tol, factor)
    if wrong then error(('%s: %s: result %d: %s'):format(label(c), what, k, wrong), 0) end
  end
end

local function check_after(c, inp, dtype, what)
  for i, want in pairs(c.after or {}) do
    local wrong = H.difference(inp[i], want.v, want.s, H.tolerance[dtype], (c.tol or 1))
    if wrong then error(('%s: %s: argument %d afterwards: %s'):format(label(c), what, i, wrong), 0) end
  end
end

-- arguments that derivatives are taken in
local function differentiable(row, c, inp)
  local list = {}
  for i, x in ipairs(inp) do
    local name = row.args[i].name
    local constant = samples.constant[row.name]
    if type(x) == 'cdata' and H.is_float[H.dtype(x)] and not (c.after and c.after[i]) and not (constant and constant[name]) then
      list[#list + 1] = { i }
    elseif type(x) == 'table' and x.list then
      for j, y in ipairs(x.list) do
        if H.is_float[H.dtype(y)] then list[#list + 1] = { i, j } end
      end
    end
  end
  return list
end

local function float_results(row, out)
  local list = {}
  for k = 1, ((row.flags.nodiff_out1 or row.flags.aux) and 1 or #out) do
    if H.is_float[H.dtype(out[k])] then list[#list + 1] = out[k] end
  end
  return list
end

local function no_derivative(row) return row.kind == 'N' or row.flags.create or row.flags.only_inplace end

-- -- Autocast -------------------------------------------------------------------

local width = { float64 = 4, float32 = 3, float16 = 2, bfloat16 = 2 }
local function widest(list)
  local w
  for _, d in ipairs(list) do
    if w == nil then w = d
    elseif width[d] > width[w] then w = d
    elseif width[d] == width[w] and d ~= w then w = 'float32' end
  end
  return w
end

-- dtype that the floats of a call are cast to in a region, or nil (left alone)
local function target(class, low, dts, attrs)
  if class == 'lower' then return low end
  if class == 'fp32' then return 'float32' end
  if class == 'fp32_unless_dtype' then return not attrs.dtype and 'float32' or nil end
  if class == 'promote' then return widest(dts) end
  if class == 'banned' then return 'float32' end
end

local function in_region(low, f)
  return amp.autocast({ dtype = low }, f)
end

-- -- The walk --------------------------------------------------------------------

for _, row in ipairs(ops.rows) do
  local name = row.name
  local list = cases[name] or {}
  local private = row.flags.private

  describe('amp.' .. name, function()
    it('has samples, a sentence of documentation and one policy class', function()
      assert.is_true(#list > 0 or samples.closed[name] ~= nil, 'no samples: add cases to fixtures/make_fixtures.py or a closed form to op_samples.lua')
      assert.is_true(#row.doc > 5 and row.doc:match('%.$') ~= nil, 'documentation: ' .. row.doc)
      if policy[name] then assert.equal(policy[name], row.policy) end
      if not private and not row.flags.only_inplace then assert.is_function(amp[name]) end
    end)

    if samples.closed[name] then
      it('does what its closed form says', function() samples.closed[name]() end)
    end

    if #list > 0 then
      it('agrees with PyTorch in float64', function()
        for _, c in ipairs(list) do
          local inp = arguments(c, 'float64')
          local out = ops.call(name, inp, c.attrs)
          check_results(c, out, nil, 'float64')
          check_after(c, inp, 'float64', 'float64')
          if not private then check_results(c, ops.raw(name, arguments(c, 'float64'), c.attrs), nil, 'through C') end
        end
      end)

      it('keeps to its tolerance in float32, float16 and bfloat16', function()
        for _, c in ipairs(list) do
          for _, dt in ipairs { 'float32', 'float16', 'bfloat16' } do
            if dt == 'float32' or (c.half ~= false and row.dtypes[dt]) then
              local inp = arguments(c, dt)
              check_results(c, ops.call(name, inp, c.attrs), dt, dt)
              if dt == 'float32' then check_after(c, inp, dt, dt) end
            end
          end
        end
      end)

      it('takes arguments of any layout', function()
        for _, c in ipairs(list) do
          for _, dt in ipairs { 'float64', 'float32', 'bfloat16' } do
            if dt ~= 'bfloat16' or (c.half ~= false and row.dtypes[dt]) then
              for _, how in ipairs { 'transposed', 'sliced' } do
                local inp = arguments(c, dt)
                local changed = 0
                local other = remap(inp, function(t)
                  local u = ops.relayout(t, how)
                  if u then changed = changed + 1 end
                  return u or t
                end)
                -- a view asks for particular strides; its storage is what as_strided reads
                if changed > 0 and name ~= 'view' and name ~= 'as_strided' and name ~= 'as_strided_scatter' then
                  local ok, out = pcall(ops.call, name, other, c.attrs)
                  if not ok then error(('%s: %s %s: %s'):format(label(c), how, dt, tostring(out)), 0) end
                  check_results(c, out, dt ~= 'float64' and dt or nil, how .. ' ' .. dt)
                  check_after(c, other, dt, how .. ' ' .. dt)
                end
              end
            end
          end
        end
      end)

      if not no_derivative(row) then
        it('has the first derivative that finite differences give', function()
          local done, floats = 0, false
          for _, c in ipairs(list) do
            local inp = arguments(c, 'float64')
            local xs = differentiable(row, c, inp)
            local function run(values)
              local args = remap(inp, function(t) return t end)
              for k, at in ipairs(xs) do
                if at[2] then args[at[1]].list[at[2]] = values[k] else args[at[1]] = values[k] end
              end
              for i in pairs(c.after or {}) do args[i] = args[i]:clone() end
              return float_results(row, ops.call(name, args, c.attrs))
            end
            if c.grad ~= false and #xs > 0 then
              local leaves = {}
              for k, at in ipairs(xs) do
                local t = at[2] and inp[at[1]].list[at[2]] or inp[at[1]]
                leaves[k] = H.make(H.values(t), H.shape(t), 'float64')
                leaves[k].requires_grad = true
              end
              local out = run(leaves)
              floats = floats or #out > 0
              if #out > 0 then
                done = done + 1
                local w, gw = H.weights(out), {}
                for o = 1, #out do gw[o] = H.make(w[o], H.shape(out[o]), 'float64') end
                local g = amp.grad(out, leaves, { grad_outputs = gw, allow_unused = true })
                for k = 1, #leaves do
                  local plain = {}
                  for j = 1, #leaves do plain[j] = leaves[j]:detach() end
                  local want = H.numeric_grad(run, plain, k, w)
                  local shape = H.shape(leaves[k])
                  local got = g[k] or H.make(H.ramp(H.numel(shape), 0), shape, 'float64')
                  local wrong = H.difference(got, want, shape, { rtol = 2e-5, atol = 2e-6 })
                  if wrong then error(('%s: gradient in argument %d: %s'):format(label(c), xs[k][1], wrong), 0) end
                end
              end
            end
          end
          if not private and name ~= 'copy' then assert.is_true(done > 0 or not floats or row.policy == 'banned', 'no case was differentiated') end
        end)

        it('has the second derivative that finite differences give', function()
          if row.flags.first then return end
          for _, c in ipairs(list) do
            local inp = arguments(c, 'float64')
            local xs = differentiable(row, c, inp)
            if c.grad ~= false and #xs > 0 then
              local start = {}
              for k, at in ipairs(xs) do
                local t = at[2] and inp[at[1]].list[at[2]] or inp[at[1]]
                start[k] = H.make(H.values(t), H.shape(t), 'float64')
              end
              local function forward(values)
                local args = remap(inp, function(t) return t end)
                for k, at in ipairs(xs) do
                  if at[2] then args[at[1]].list[at[2]] = values[k] else args[at[1]] = values[k] end
                end
                for i in pairs(c.after or {}) do args[i] = args[i]:clone() end
                return float_results(row, ops.call(name, args, c.attrs))
              end
              local probe = forward(start)
              local nout = #probe
              if nout > 0 then
                -- values and the gradients handed in are variables alike
                local w = H.weights(probe)
                local variables = {}
                for k = 1, #start do variables[k] = start[k] end
                for o = 1, nout do variables[#start + o] = H.make(w[o], H.shape(probe[o]), 'float64') end
                local function gradients(values, keep)
                  local leaves, gw = {}, {}
                  for k = 1, #start do
                    leaves[k] = keep and values[k] or values[k]:detach()
                    leaves[k].requires_grad = true
                  end
                  for o = 1, nout do gw[o] = values[#start + o] end
                  local g = amp.grad(forward(leaves), leaves, { grad_outputs = gw, create_graph = true, allow_unused = true })
                  local got = {}
                  for k = 1, #start do got[#got + 1] = g[k] or nil end
                  return got
                end
                local leaves = {}
                for k = 1, #variables do
                  leaves[k] = H.make(H.values(variables[k]), H.shape(variables[k]), 'float64')
                  leaves[k].requires_grad = true
                end
                local g = gradients(leaves, true)
                local roots, v, rw = {}, H.weights(g), {}
                for k = 1, #g do
                  if g[k].requires_grad then
                    roots[#roots + 1] = g[k]
                    rw[#rw + 1] = H.make(v[k], H.shape(g[k]), 'float64')
                  end
                end
                local gg = #roots > 0 and amp.grad(roots, leaves, { grad_outputs = rw, allow_unused = true }) or {}
                for k = 1, #variables do
                  local shape = H.shape(variables[k])
                  if H.numel(shape) > 0 and (not sanitized or H.numel(shape) <= 12) then
                    local want = H.numeric_grad(function(values) return gradients(values) end, variables, k, v)
                    local got = gg[k] or H.make(H.ramp(H.numel(shape), 0), shape, 'float64')
                    local wrong = H.difference(got, want, shape, { rtol = 1e-4, atol = 1e-5 })
                    if wrong then error(('%s: second derivative in variable %d: %s'):format(label(c), k, wrong), 0) end
                  end
                end
              end
            end
          end
        end)
      end

      if not private then
        it('gives the dtype of its policy class under autocast, and the same bits as by hand', function()
          for _, c in ipairs(list) do
            local _, places = map(c.inp, function() end)
            local is_float = {}
            map(c.inp, function(x, place) is_float[place] = x.d == 'float64' end)
            local plans = {}
            for _, d in ipairs { 'float32', 'float16', 'bfloat16' } do
              local all = {}
              for p = 1, places do all[p] = d end
              plans[#plans + 1] = all
              if d ~= 'float32' and places > 1 then
                for odd = 1, places do
                  if is_float[odd] then
                    local one = {}
                    for p = 1, places do one[p] = p == odd and d or 'float32' end
                    plans[#plans + 1] = one
                  end
                end
              end
            end
            for _, plan in ipairs(c.half ~= false and c.aux == nil and plans or {}) do
              for _, low in ipairs { 'bfloat16', 'float16' } do
                local dts = {}
                local function make()
                  dts = {}
                  return (map(c.inp, function(x, place)
                    if is_float[place] then dts[#dts + 1] = plan[place] end
                    return H.tensor(x, plan[place])
                  end))
                end
                local inp = make()
                local what = ('%s: %s in a %s region'):format(label(c), table.concat(dts, ', '), low)
                -- number / tensor and number ^ tensor are ops of their own, rdiv and rpow
                local class = type(c.inp[1]) == 'number' and policy['r' .. name] or row.policy
                if samples.lowering[name] then class = 'lower' end
                local to = #dts > 0 and target(class, low, dts, c.attrs) or nil
                if row.policy == 'banned' and low == 'float16' then
                  H.fails(function() in_region(low, function() return ops.user(name, inp, c.attrs) end) end, name, 'bce_with_logits')
                elseif class == 'special' then
                  local out = in_region(low, function() return ops.user(name, inp, c.attrs) end)
                  if H.dtype(out[1]) ~= dts[1] then error(('%s: %s'):format(what, H.dtype(out[1])), 0) end
                else
                  local hand = make()
                  if to then
                    hand = remap(hand, function(t)
                      return (H.is_float[H.dtype(t)] and H.dtype(t) ~= to) and ops.raw('cast', { t }, { dtype = to })[1] or t
                    end)
                  end
                  local ok, want = pcall(ops.user, name, hand, c.attrs)
                  local ok2, got = pcall(in_region, low, function() return ops.user(name, inp, c.attrs) end)
                  if ok ~= ok2 then
                    error(('%s: by hand %s, in the region %s'):format(what, ok and 'fine' or tostring(want), ok2 and 'fine' or tostring(got)), 0)
                  end
                  for k = 1, ok and #c.out or 0 do
                    if to and c.out[k].d == 'float64' and H.dtype(got[k]) ~= to then
                      error(('%s: result is %s, not %s'):format(what, H.dtype(got[k]), to), 0)
                    end
                    if H.dtype(want[k]) ~= H.dtype(got[k]) then
                      error(('%s: by hand %s, in the region %s'):format(what, H.dtype(want[k]), H.dtype(got[k])), 0)
                    end
                    local wrong = H.difference(got[k], H.values(want[k]), H.shape(want[k]), H.exact)
                    if wrong then error(what .. ': ' .. wrong, 0) end
                  end
                end
              end
            end
          end
        end)
      end

      if row.flags.inplace and not row.flags.only_inplace then
        it('has an in-place form that gives the same and bumps the version', function()
          local method = name .. '_'
          local done = 0
          for _, c in ipairs(list) do
            local x = c.inp[1]
            local want = c.out[1]
            if is_tensor(x) and x.d == want.d and table.concat(x.s, 'x') == table.concat(want.s, 'x') then
              for _, how in ipairs { 'contiguous', 'transposed', 'sliced' } do
                local inp = arguments(c)
                if how ~= 'contiguous' then inp[1] = ops.relayout(inp[1], how) or inp[1] end
                local before = H.version(inp[1])
                local args, n = {}, #row.args
                for i = 1, n do args[i] = type(inp[i]) == 'table' and inp[i].list or inp[i] or nil end
                if next(c.attrs) then
                  n = n + 1
                  args[n] = c.attrs
                end
                local back = amp[method](unpack(args, 1, n))
                assert.is_true(back == inp[1], 'the receiver is the result')
                assert.is_true(H.version(inp[1]) > before, 'the version goes up')
                local wrong = H.difference(inp[1], want.v, want.s, H.tolerance[want.d] or H.exact, c.tol)
                if wrong then error(('%s: %s in place: %s'):format(label(c), how, wrong), 0) end
                done = done + 1
              end
            end
          end
          assert.is_true(done > 0)
        end)
      end

      it('refuses a dtype outside its mask, naming the op and the dtype', function()
        for d, allowed in pairs(row.dtypes) do
          if not allowed and not private then
            local c = list[1]
            local changed = false
            local inp = map(c.inp, function(x)
              if not changed and x.d == 'float64' then
                changed = true
                local v = {}
                for i = 1, #x.v do v[i] = 1 end
                return H.make(v, x.s, d)
              end
              return H.tensor(x, 'float32')
            end)
            if changed then
              H.fails(function() ops.user(name, inp, c.attrs) end, 'amp.' .. name, d)
            end
          end
        end
      end)

      it('refuses a dimension that is not there, naming it', function()
        if private then return end
        for _, a in ipairs(row.attrs) do
          if a.type == 'd' or a.type == 'D' then
            for _, bad in ipairs { 9, -9, 0 } do
              local attrs = {}
              for k, v in pairs(list[1].attrs) do attrs[k] = v end
              if type(attrs[a.name]) == 'table' then
                attrs[a.name] = { unpack(attrs[a.name]) }
                attrs[a.name][1] = bad
              else
                attrs[a.name] = bad
              end
              H.fails(function() ops.user(name, arguments(list[1], 'float32'), attrs) end, name, tostring(bad))
            end
          end
        end
      end)
    end

    if row.flags.elementwise and not private and #row.args >= 2 and not samples.wrong[name] then
      it('refuses shapes that do not broadcast, naming both', function()
        local inp = {}
        for i = 1, #row.args do inp[i] = H.sample(i == 1 and { 2, 3 } or { 4, 5 }) end
        H.fails(function() ops.user(name, inp, {}) end, 'amp.' .. name, '2x3', '4x5')
      end)
    end

    if samples.wrong[name] then
      it('tells what is wrong with a wrong call', function()
        local function make(s)
          if type(s) ~= 'table' then return s end
          if s.list then
            local l = {}
            for i, x in ipairs(s.list) do l[i] = make(x) end
            return { list = l }
          end
          local shape = {}
          for i = 1, #s do shape[i] = s[i] end
          local v = {}
          for i = 1, H.numel(shape) do v[i] = s.fill or 1 end
          return H.make(v, shape, s.dtype)
        end
        for _, w in ipairs(samples.wrong[name]) do
          local inp = {}
          for i, s in ipairs(w[1]) do inp[i] = make(s) end
          H.fails(function() ops.user(name, inp, w[2]) end, 'amp.' .. name, unpack(w[3]))
        end
      end)
    end
  end)
end

describe('the op table', function()
  it('is covered by this spec and nothing else is', function()
    for op in pairs(cases) do assert.is_table(ops.by_name[op], 'fixtures know an op that is gone: ' .. op) end
    for op in pairs(samples.closed) do assert.is_table(ops.by_name[op], op) end
    for op in pairs(samples.wrong) do assert.is_table(ops.by_name[op], op) end
  end)
end)
