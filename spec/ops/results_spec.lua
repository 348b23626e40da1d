-- What the table says of an op's results (`-> values indices?`) is what calls of its fixtures give: no more, and in some
-- call all of them, those for backward alone as well.
local H = require 'spec.lib.helper'
local ops = require 'spec.ops.op_call'
local samples = require 'spec.ops.op_samples'

local function made(x)
  if type(x) ~= 'table' then return x end
  if x.d then return H.make(x.v, x.s, x.d) end
  local list = {}
  for i, y in ipairs(x.list) do list[i] = made(y) end
  return { list = list }
end

it('the table counts the results of an op', function()
  local most, rows = {}, 0
  local function count(c, more)
    local ok, out = pcall(function()
      local inputs, attrs = {}, {}
      for i, x in ipairs(c.inp) do inputs[i] = made(x) end
      for _, from in ipairs { c.attrs or {}, more or {} } do
        for k, v in pairs(from) do attrs[k] = v end
      end
      return ops.raw(c.op, inputs, attrs)
    end)
    for i = 1, ok and 4 or 0 do
      if out[i] ~= nil then most[c.op] = math.max(most[c.op] or 0, i) end
    end
  end
  samples.each_case(function(c)
    count(c)
    if c.op == 'attention' then count(c, { dropout_p = 0.5 }) end -- where its random numbers began
  end)
  for name, n in pairs(most) do
    rows = rows + 1
    local results, all = ops.by_name[name].schema:match ' %-> (.*)$', 0
    for _ in (results or 'out'):gmatch '%S+' do all = all + 1 end
    assert(n == math.min(all, 3), ('%s gives %d results, the table says %d'):format(name, n, all)) -- a call has three places
  end
  assert(rows > 380, rows)
end)
