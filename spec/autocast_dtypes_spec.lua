--- Autocast over the whole op table: every public op has one class, and with each dtype in each
-- place of its arguments it does in a region what the same call does outside it on arguments
-- cast by hand as the class says. Generated from the fixtures; ops_spec.lua has the same for
-- mixtures of the three dtypes that are cast.
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

local CLASSES = { lower = true, fp32 = true, fp32_unless_dtype = true, promote = true, passthrough = true, special = true, banned = true }
local CAST = { float32 = true, float16 = true, bfloat16 = true } -- what a region touches
local PLACED = { 'float16', 'bfloat16', 'float32', 'float64', 'int64' }
local width = { float64 = 4, float32 = 3, float16 = 2, bfloat16 = 2 }

local function is_tensor(x) return type(x) == 'table' and x.d ~= nil end

-- Every tensor of a case's arguments through f(fixture, place).
local function map(inp, f)
  local out, place = {}, 0
  local function one(x)
    place = place + 1
    return f(x, place)
  end
  for i, x in ipairs(inp) do
    if is_tensor(x) then out[i] = one(x)
    elseif type(x) == 'table' and x.list then
      local l = {}
      for j, y in ipairs(x.list) do l[j] = one(y) end
      out[i] = { list = l }
    else
      out[i] = x
    end
  end
  return out
end

local function make(x, dtype)
  if x.d ~= 'float64' then return H.tensor(x) end
  if dtype ~= 'int64' then return H.tensor(x, dtype) end
  local v = {}
  for i = 1, #x.v do v[i] = (x.v[i] == x.v[i] and math.abs(x.v[i]) < 1e9) and math.floor(x.v[i]) or 0 end
  return H.make(v, x.s, 'int64')
end

-- What the class makes of a float among floats of these dtypes; nil: nothing. 'error': a lower op's double.
local function target(class, low, dts, attrs)
  if class == 'lower' then
    local double, other
    for _, d in ipairs(dts) do
      if d == 'float64' then double = true elseif width[d] then other = true end
    end
    return double and other and 'error' or low
  end
  if class == 'fp32' or class == 'banned' then return 'float32' end
  if class == 'fp32_unless_dtype' then return not attrs.dtype and 'float32' or nil end
  if class ~= 'promote' then return nil end
  local w
  for _, d in ipairs(dts) do
    if width[d] and (w == nil or width[d] > width[w]) then w = d
    elseif width[d] and width[d] == width[w] and d ~= w then w = 'float32' end
  end
  return w
end

local function region(low, f) return amp.autocast({ dtype = low }, f) end

-- One case with dtype d in one place and float32 in the others, in a region of each low dtype.
local function check(row, c, odd, d)
  local class = type(c.inp[1]) == 'number' and policy['r' .. row.name] or row.policy
  if samples.lowering[row.name] then class = 'lower' end
  for _, low in ipairs { 'bfloat16', 'float16' } do
    local what = ('%s (%s): %s at tensor %d, %s region'):format(row.name, c.tag, d, odd, low)
    local dts = {}
    local inp = map(c.inp, function(x, place)
      local t = make(x, place == odd and d or 'float32')
      dts[#dts + 1] = H.dtype(t)
      return t
    end)
    local to = target(class, low, dts, c.attrs)
    if to == 'error' then
      H.fails(function() region(low, function() return ops.user(row.name, inp, c.attrs) end) end, row.name, 'float64')
    elseif class == 'banned' and low == 'float16' then
      local first = H.dtype(inp[1])
      local ok, e = pcall(region, low, function() return ops.user(row.name, inp, c.attrs) end)
      if CAST[first] and (ok or d ~= 'int64' and not tostring(e):find 'bce_with_logits') then error(what .. ': is not refused', 0) end
    elseif class ~= 'special' then
      local i = 0
      local hand = map(c.inp, function(x, place)
        i = i + 1
        local t = make(x, place == odd and d or 'float32')
        return to and CAST[dts[i]] and dts[i] ~= to and ops.raw('cast', { t }, { dtype = to })[1] or t
      end)
      local fine, want = pcall(ops.user, row.name, hand, c.attrs)
      local fine2, got = pcall(region, low, function() return ops.user(row.name, inp, c.attrs) end)
      if fine ~= fine2 then
        error(('%s: by hand %s, in the region %s'):format(what, fine and 'fine' or tostring(want), fine2 and 'fine' or tostring(got)), 0)
      end
      for k = 1, fine and #want or 0 do
        if type(want[k]) == 'cdata' then
          if H.dtype(want[k]) ~= H.dtype(got[k]) then
            error(('%s: result %d is %s, by hand %s'):format(what, k, H.dtype(got[k]), H.dtype(want[k])), 0)
          end
          local wrong = H.difference(got[k], H.values(want[k]), H.shape(want[k]), H.exact)
          if wrong then error(('%s: result %d: %s'):format(what, k, wrong), 0) end
        elseif want[k] ~= got[k] then
          error(('%s: result %d is %s, by hand %s'):format(what, k, tostring(got[k]), tostring(want[k])), 0)
        end
      end
    end
  end
end

describe('autocast, op by op', function()
  for _, row in ipairs(ops.rows) do
    if not row.flags.private then
      it(('amp.%s has one class%s'):format(row.name, cases[row.name] and ' and keeps to it with every dtype in every place' or ''), function()
        assert.is_true(CLASSES[row.policy], row.policy)
        assert.equal(row.policy, amp.policy(row.name))
        if policy[row.name] then assert.equal(policy[row.name], row.policy) end
        for n, c in ipairs(cases[row.name] or {}) do
          if c.half ~= false and c.aux == nil and not c.after and n <= 4 then
            local places, floats = 0, {}
            map(c.inp, function(x, place)
              places = place
              floats[place] = x.d == 'float64'
            end)
            for odd = 1, math.min(places, 5) do
              if floats[odd] then
                for _, d in ipairs(PLACED) do check(row, c, odd, d) end
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
