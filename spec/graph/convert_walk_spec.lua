--- Every row of the op table and each of its samples, converted: what a region makes of them, in all bits, with outputs in
-- float32; the way back is the graph that it was; a second conversion adds nothing.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local ops = require 'spec.ops.op_call'
local walk = require 'spec.ops.op_walk'
local conversion = require 'amp.graph.convert'
local tensors_of, copies, case_function, seeded = walk.tensors_of, walk.copies, walk.case_function, walk.seeded

local function wide(t)
  local dtype = H.dtype(t)
  return (dtype == 'float16' or dtype == 'bfloat16') and t:float() or t
end

local function compare(label, got, want)
  if #got ~= #want then error(('%s: %d results, a region gives %d'):format(label, #got, #want), 0) end
  for k = 1, #want do
    if type(want[k]) == 'cdata' then
      local w = wide(want[k])
      local wrong = H.dtype(got[k]) ~= H.dtype(w) and H.dtype(got[k]) or H.difference(got[k], H.values(w), H.shape(w), H.exact)
      if wrong then error(('%s: result %d: %s'):format(label, k, wrong), 0) end
    elseif want[k] ~= got[k] then error(('%s: result %d is %s'):format(label, k, tostring(got[k])), 0) end
  end
end

-- Whether there was anything to compare.
local function check(row, c, dtype, low)
  local label = ('%s %s, low %s'):format(walk.label(c), dtype, low)
  local inp = walk.arguments(c, dtype)
  local given = tensors_of(inp)
  local f = case_function(row, c, inp)
  if not pcall(seeded, f, copies(given)) then return false end
  local fine, want = pcall(seeded, function(...) return amp.autocast({dtype = low}, f, ...) end, copies(given))
  if not fine then return false end
  local g = amp.graph.trace(f, copies(given))
  local converted = amp.convert_model(g, {target_dtype = low})
  compare(label, seeded(converted, copies(given)), want)
  local nodes = #converted:nodes()
  if nodes ~= #amp.convert_model(converted, {target_dtype = low}):nodes() then error(label .. ': a second conversion adds nodes', 0) end
  if tostring(conversion.strip(converted)) ~= tostring(g) then
    error(('%s: stripped it is\n%s\nand was\n%s'):format(label, tostring(conversion.strip(converted)), tostring(g)), 0)
  end
  return true
end

for _, row in ipairs(ops.rows) do
  local list = walk.cases[row.name] or {}
  if #list > 0 and not row.flags.private then
    describe('amp.' .. row.name, function()
      it('converted gives what it gives in a region', function()
        local done = 0
        for _, c in ipairs(list) do
          for _, dtype in ipairs {'float64', 'float32', 'float16', 'bfloat16'} do
            if dtype == 'float64' or dtype == 'float32' or c.half ~= false and row.dtypes[dtype] then
              if check(row, c, dtype, dtype == 'bfloat16' and 'float16' or 'bfloat16') then done = done + 1 end
            end
          end
        end
        assert.is_true(done > 0)
      end)
    end)
  end
end
