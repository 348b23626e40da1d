--- Autocast over the whole op table: every public op has one class, and with each dtype in each
-- place of its arguments it does in a region what the same call does outside it on arguments
-- cast by hand as the class says. Generated from the fixtures; ops_spec.lua has the same with
-- one dtype in all places.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local ops = require 'spec.ops.op_call'
local walk = require 'spec.ops.op_walk'

local policy = H.policy_list()
local CLASSES = { lower = true, fp32 = true, fp32_unless_dtype = true, promote = true, passthrough = true, special = true, banned = true }

-- One case with dtype d in one place and float32 in the others, in a region of each low dtype.
local function check(row, c, places, odd, d)
  local plan = {}
  for p = 1, places do plan[p] = p == odd and d or 'float32' end
  for _, low in ipairs { 'bfloat16', 'float16' } do walk.check_region(row, c, plan, low) end
end

describe('autocast, op by op', function()
  for _, row in ipairs(ops.rows) do
    local cases = walk.cases[row.name]
    if not row.flags.private then
      it(('amp.%s has one class%s'):format(row.name, cases and ' and keeps to it with every dtype in every place' or ''), function()
        assert.is_true(CLASSES[row.policy], row.policy)
        assert.equal(row.policy, amp.policy(row.name))
        if policy[row.name] then assert.equal(policy[row.name], row.policy) end
        for n, c in ipairs(cases or {}) do
          if c.half ~= false and c.aux == nil and not c.after then
            local floats, places = walk.floats(c)
            for odd = 1, places do
              if floats[odd] then
                for _, d in ipairs { 'float16', 'bfloat16', n <= 4 and 'float64' or nil, n <= 4 and 'int64' or nil } do
                  check(row, c, places, odd, d)
                end
              end
            end
          end
        end
      end)
    end
  end
  it('every op of the policy list is registered, or is a spelling of one that is', function()
    local gone = {}
    for name in pairs(policy) do
      if not ops.by_name[name] and not pcall(amp.policy, name) then gone[#gone + 1] = name end
    end
    assert.same({}, gone)
  end)
end)
