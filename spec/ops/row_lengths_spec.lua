--- Reductions of rows of every length up to some rounds of lanes: ends of rows, ties, NaN and infinities, in each dtype,
-- beside plain loops.
local amp = require 'amp'

local LENGTHS = {}
for n = 1, 150 do LENGTHS[n] = n end
for _, n in ipairs { 191, 192, 255, 256, 257, 511, 512, 513, 700, 1025 } do LENGTHS[#LENGTHS + 1] = n end

local seed = 5
local function random(n)
  seed = seed * 16807 % 2147483647
  return seed % n
end

-- Small whole numbers: ties are frequent, sums exact in each dtype.
local function numbers(n, special)
  local list = {}
  for i = 1, n do list[i] = random(7) - 3 end
  if special and random(2) == 0 then list[random(n) + 1] = special end
  return list
end

local function extreme(list, better)
  local best, at = list[1], 1
  for i = 2, #list do
    local v = list[i]
    if better(v, best) or v ~= v and best == best then best, at = v, i end
  end
  return best, at
end
local function more(a, b) return a > b end
local function less(a, b) return a < b end

local function same(a, b) return a == b or a ~= a and b ~= b end

describe('rows of every length', function()
  for _, dtype in ipairs { 'float32', 'float64', 'bfloat16', 'float16', 'int64', 'int32', 'uint8' } do
    it('have the extremes and places of a loop: ' .. dtype, function()
      local float = amp.zeros(1, { dtype = dtype }):is_floating_point()
      for _, n in ipairs(LENGTHS) do
        for _, special in ipairs(float and { false, 0 / 0, math.huge, -math.huge } or { false }) do
          local list = numbers(n, special)
          if dtype == 'uint8' then for i = 1, n do list[i] = list[i] + 3 end end
          local t = amp.tensor({ list }, { dtype = dtype })
          for name, better in pairs { max = more, min = less } do
            local want, at = extreme(list, better)
            local value, place = t[name](t, 2)
            local message = ('%s of %d, %s'):format(name, n, tostring(special))
            assert.is_true(same(want, value:item()), message)
            assert.equal(at, place:item(), message)
            assert.equal(at, t['arg' .. name](t, 2):item(), message)
            assert.is_true(same(want, t['a' .. name](t, 2):item()), message)
            assert.is_true(same(want, t[name](t):item()), message)
          end
        end
      end
    end)
  end
  for _, dtype in ipairs { 'float32', 'float64', 'bfloat16', 'float16', 'int64' } do
    it('have the sums of a loop: ' .. dtype, function()
      local wide = dtype == 'int64' and 'int64' or 'float64'
      for _, n in ipairs(LENGTHS) do
        local list, sum, squares, sizes, nonzero = numbers(n), 0, 0, 0, 0
        for i = 1, n do
          local v = list[i]
          sum, squares, sizes = sum + v, squares + v * v, sizes + math.abs(v)
          nonzero = nonzero + (v ~= 0 and 1 or 0)
        end
        local t = amp.tensor({ list, list }, { dtype = dtype })
        assert.equal(sum, t:to(wide):sum(2)[1]:item())
        assert.equal(sum, t:sum(2, { dtype = wide })[2]:item(), n)
        assert.equal(nonzero, t:count_nonzero(2)[1]:item())
        if dtype ~= 'int64' then
          assert.equal(sizes, t:to 'float64':norm(1, 2)[1]:item())
          local variance = n > 1 and (squares - sum * sum / n) / (n - 1) or 0
          local eps = ({ float64 = 1e-12, float32 = 1e-5, float16 = 2e-3, bfloat16 = 1e-2 })[dtype]
          if n > 1 then assert.near(variance, t:var(2)[2]:item(), eps * (1 + variance)) end
          assert.near(math.sqrt(squares), t:norm(2, 2)[1]:item(), eps * (1 + math.sqrt(squares)))
        end
        local running, want = t:cumsum(2):tolist()[2], 0
        for i = 1, n do
          want = want + list[i]
          assert.equal(want, running[i], n)
        end
        local all = {}
        for i = 1, n do all[i] = list[i] % 2 * 2 - 1 end
        local signs = amp.tensor({ all }, { dtype = dtype })
        local along, by_loop = signs:cumprod(2):tolist()[1], 1
        for i = 1, n do
          by_loop = by_loop * all[i]
          assert.equal(by_loop, along[i], n)
        end
        assert.equal(by_loop, signs:prod(2)[1]:item(), n)
      end
    end)
  end
end)
