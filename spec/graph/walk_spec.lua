--- Every row of the op table and each of its samples, traced and eager: results, derivatives of both orders, what a region
-- makes of them, in-place forms. A graph runs the same rows, so all bits are equal.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local ops = require 'spec.ops.op_call'
local walk = require 'spec.ops.op_walk'
local tensors_of, with_tensors, copies, case_function, seeded = walk.tensors_of, walk.with_tensors, walk.copies, walk.case_function, walk.seeded

local function compare(label, what, got, want)
  if #got ~= #want then error(('%s: %s: %d results, eager %d'):format(label, what, #got, #want), 0) end
  for k = 1, #want do
    if type(want[k]) ~= 'cdata' then
      if want[k] ~= got[k] then error(('%s: %s: result %d is %s, eager %s'):format(label, what, k, tostring(got[k]), tostring(want[k])), 0) end
    else
      local wrong = H.dtype(got[k]) ~= H.dtype(want[k]) and H.dtype(got[k]) or H.difference(got[k], H.values(want[k]), H.shape(want[k]), H.exact)
      if wrong then error(('%s: %s: result %d: %s'):format(label, what, k, wrong), 0) end
    end
  end
end

-- Forward, and what the call writes; then in a region, traced outside of it and with it inside.
local function check_forward(row, c, dtype)
  local label = ('%s %s'):format(walk.label(c), dtype)
  local inp = walk.arguments(c, dtype)
  local given = tensors_of(inp)
  local f = case_function(row, c, inp)
  local mine, eager = copies(given), copies(given)
  local fine, want = pcall(seeded, f, eager)
  if not fine then return false end
  local g = amp.graph.trace(f, copies(given))
  compare(label, 'graph', seeded(g, mine), want)
  compare(label, 'arguments afterwards', mine, eager)
  local function inside(h) return function(...) return amp.autocast({dtype = 'bfloat16'}, h, ...) end end
  mine, eager = copies(given), copies(given)
  fine, want = pcall(seeded, inside(f), eager)
  local fine2, got = pcall(seeded, inside(g), mine)
  if fine ~= fine2 then error(('%s: in a region eager %s, graph %s'):format(label, tostring(want), tostring(got)), 0) end
  if not fine then return true end
  compare(label, 'in a region', got, want)
  mine = copies(given)
  compare(label, 'with a region inside', seeded(amp.graph.trace(inside(f), copies(given)), mine), want)
  return true
end

local function traced_run(f)
  local leaves = {}
  for k, t in ipairs(f.start) do leaves[k] = t:clone():requires_grad_() end
  local g = amp.graph.trace(function(...) return unpack(f.run {...}) end, leaves)
  return {at = f.at, start = f.start, run = function(values) return {g(unpack(values))} end}
end

local function derivative(take, f)
  amp.manual_seed(walk.seed)
  return (take(f))
end

local function check_derivatives(row, c, dtype)
  local label = ('%s %s'):format(walk.label(c), dtype)
  local f = walk.as_function(row, c, walk.arguments(c, dtype))
  if not f then return end
  local want = derivative(walk.first, f)
  if not want then return end
  local g = traced_run(f)
  compare(label, 'first derivative', derivative(walk.first, g), want)
  if dtype ~= 'float64' or row.flags.first then return end
  want = derivative(walk.second, f)
  if want then compare(label, 'second derivative', derivative(walk.second, g), want) end
end

for _, row in ipairs(ops.rows) do
  local list = walk.cases[row.name] or {}
  if #list > 0 then
    describe('amp.' .. row.name, function()
      it('gives in a graph what it gives eagerly', function()
        local done = 0
        for _, c in ipairs(list) do
          for _, dtype in ipairs {'float64', 'float32', 'float16', 'bfloat16'} do
            if (dtype == 'float64' or dtype == 'float32' or c.half ~= false and row.dtypes[dtype]) and check_forward(row, c, dtype) then
              done = done + 1
            end
          end
        end
        assert.is_true(done > 0)
      end)

      if not walk.no_derivative(row) then
        it('has the same derivatives in a graph', function()
          for _, c in ipairs(list) do
            for _, dtype in ipairs {'float64', 'float32', 'bfloat16'} do
              if dtype ~= 'bfloat16' or c.half ~= false and row.dtypes[dtype] then check_derivatives(row, c, dtype) end
            end
          end
        end)
      end

      if row.flags.inplace and not row.flags.only_inplace and not row.flags.private then
        it('changes its receiver in a graph as it does eagerly', function()
          for _, c in ipairs(list) do
            local inp = walk.arguments(c, 'float32')
            local given = tensors_of(inp)
            local function f(...)
              local args = with_tensors(inp, {...})
              local n = #row.args
              for i = 1, n do args[i] = type(args[i]) == 'table' and args[i].list or args[i] or nil end
              if row.name == 'index_put' then args[2], args[3] = args[3], args[2] end
              if next(c.attrs) then args[n + 1] = c.attrs end
              return amp[row.name .. '_'](unpack(args, 1, n + 1))
            end
            local eager, mine = copies(given), copies(given)
            local fine, want = pcall(seeded, f, eager)
            if fine then
              local g = amp.graph.trace(f, copies(given))
              compare(walk.label(c), 'in place', seeded(g, mine), want)
              compare(walk.label(c), 'arguments afterwards', mine, eager)
            end
          end
        end)
      end
    end)
  end
end
