--- Every row of the op table, found by reflection: forward against PyTorch (or a
-- closed form), 16-bit results, strides, first and second derivatives, dtypes
-- and values under autocast, in-place forms, and what wrong calls are told.
-- A row without samples fails.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local ops = require 'spec.ops.op_call'
local samples = require 'spec.ops.op_samples'
local walk = require 'spec.ops.op_walk'

local policy = H.policy_list()
local sanitized = os.getenv 'AMP_SPEC_SANITIZED'
local elsewhere = walk.device ~= 'cpu'
local label, arguments, check_results, check_after = walk.label, walk.arguments, walk.check_results, walk.check_after

-- -- The walk --------------------------------------------------------------------

for _, row in ipairs(ops.rows) do
  local name = row.name
  local list = walk.cases[name] or {}
  local private = row.flags.private

  describe('amp.' .. name, function()
    it('has samples, a sentence of documentation and one policy class', function()
      assert.is_true(#list > 0 or samples.closed[name] ~= nil,
        'no samples: add cases by hand to spec/ops/samples/FAMILY.lua or to spec/fixtures/make_ops_FAMILY.py')
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
              for _, how in ipairs(ops.layouts) do
                local inp = arguments(c, dt)
                local changed = 0
                local other = walk.remap(inp, function(t)
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

      if not walk.no_derivative(row) then
        local oracle = elsewhere and 'the CPU gives' or 'finite differences give'
        it('has the first derivative that ' .. oracle, function()
          local done, floats = 0, false
          for _, c in ipairs(list) do
            local inp = arguments(c, 'float64')
            local f = walk.as_function(row, c, inp)
            floats = floats or c.out[1].d == 'float64'
            if f then
              local got, w = walk.first(f)
              if got then done = done + 1 end
              if elsewhere and got then
                walk.check_near(c, got, walk.first(walk.as_function(row, c, walk.wide(inp))), 'gradient')
              end
              for k = 1, (got and not elsewhere) and #got or 0 do
                local wrong = H.difference(got[k], H.numeric_grad(f.run, f.start, k, w), H.shape(f.start[k]), { rtol = 2e-5, atol = 2e-6 })
                if wrong then error(('%s: gradient in argument %d: %s'):format(label(c), f.at[k][1], wrong), 0) end
              end
            end
          end
          assert.is_true(done > 0 or not floats or private, 'no case was differentiated')
        end)

        it('has the second derivative that ' .. oracle, function()
          if row.flags.first then return end
          for _, c in ipairs(list) do
            local inp = arguments(c, 'float64')
            local f = walk.as_function(row, c, inp)
            local got, variables, gradients, v
            if f then got, variables, gradients, v = walk.second(f) end
            if got and elsewhere then
              walk.check_near(c, got, walk.second(walk.as_function(row, c, walk.wide(inp))), 'second derivative')
            end
            for k = 1, (got and not elsewhere) and #got or 0 do
              local shape = H.shape(variables[k])
              if H.numel(shape) > 0 and (not sanitized or H.numel(shape) <= 12) then
                local wrong = H.difference(got[k], H.numeric_grad(gradients, variables, k, v), shape, { rtol = 1e-4, atol = 1e-5 })
                if wrong then error(('%s: second derivative in variable %d: %s'):format(label(c), k, wrong), 0) end
              end
            end
          end
        end)

        it('has gradients in float32, float16 and bfloat16 near those in float64', function()
          for _, c in ipairs(list) do
            for _, dt in ipairs { 'float32', 'float16', 'bfloat16' } do
              if dt == 'float32' or (c.half ~= false and row.dtypes[dt] and not samples.kinked[name]) then
                local inp = arguments(c, dt)
                local f = walk.as_function(row, c, inp)
                local got = f and walk.first(f)
                if got then walk.check_near(c, got, walk.first(walk.as_function(row, c, walk.wide(inp))), dt .. ' gradient') end
              end
            end
          end
        end)
      end

      if not private then
        it('gives the dtype of its policy class under autocast, and the same as by hand', function()
          for _, c in ipairs(list) do
            local _, places = walk.floats(c)
            for _, d in ipairs(c.half ~= false and c.aux == nil and { 'float32', 'float16', 'bfloat16' } or {}) do
              local plan = {}
              for p = 1, places do plan[p] = d end
              for _, low in ipairs { 'bfloat16', 'float16' } do walk.check_region(row, c, plan, low) end
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
            if walk.is_tensor(x) and x.d == want.d and table.concat(x.s, 'x') == table.concat(want.s, 'x') then
              for _, how in ipairs { 'contiguous', unpack(ops.layouts) } do
                local inp = arguments(c)
                if how ~= 'contiguous' then inp[1] = ops.relayout(inp[1], how) or inp[1] end
                local before = H.version(inp[1])
                local args, n = {}, #row.args
                for i = 1, n do args[i] = type(inp[i]) == 'table' and inp[i].list or inp[i] or nil end
                if row.name == 'index_put' then args[2], args[3] = args[3], args[2] end -- PyTorch's order: the list first
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
            local all = d == 'bool' and row.flags.elementwise and row.dtypes.int64 -- beside another dtype a bool is 0 or 1
            local inp = walk.map(c.inp, function(x)
              if (all or not changed) and x.d == 'float64' then
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
          return H.make(v, shape, s.dtype, (walk.host_integers[name] and s.dtype == 'int64') and 'cpu' or nil)
        end
        for _, w in ipairs(samples.wrong[name]) do
          H.fails(function()
            local inp = {}
            for i, s in ipairs(w[1]) do inp[i] = make(s) end
            ops.user(name, inp, w[2])
          end, 'amp.' .. name, unpack(w[3]))
        end
      end)
    end
  end)
end

describe('the op table', function()
  it('is covered by this spec and nothing else is', function()
    for op in pairs(walk.cases) do assert.is_table(ops.by_name[op], 'fixtures know an op that is gone: ' .. op) end
    for op in pairs(samples.closed) do assert.is_table(ops.by_name[op], op) end
    for op in pairs(samples.wrong) do assert.is_table(ops.by_name[op], op) end
  end)
end)
