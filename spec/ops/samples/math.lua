--- Elementwise functions and activations: cases by hand (spec/ops/op_samples.lua says how one is written), closed forms of
-- the rows that are derivatives, wrong calls.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local Call = require 'spec.ops.op_call'

local function sigmoid(x) return 1 / (1 + math.exp(-x)) end
local function sign(x) return x > 0 and 1 or x < 0 and -1 or 0 end
local function trunc(x) return x < 0 and math.ceil(x) or math.floor(x) end

-- slope's functions by word: p, q, r, points, the slope at x
local functions = {
  line = { 0.5, 2, 0, { -3, 0, 0.25, 4 }, function(x) return 0.5 + 2 * x end },
  over = { 2, 3, 0.5, { -3, 0, 0.25, 4 }, function(x) return 3 / (2 * x + 0.5) end },
  over_square = { 1, 2, 0, { -3, 0, 0.25, 4 }, function(x) return 1 / (1 + 2 * x * x) end },
  over_root = { 1, 0.5, -2, { -3, 0, 0.25, 4 }, function(x) return -2 / math.sqrt(1 + 0.5 * x * x) end },
  times_square = { 1, -2, 0, { -3, 0, 0.25, 4 }, function(x) return 1 - 2 * x * x end },
  abs = { 0, 0, 0, { -3, 0, 0.25, 4 }, sign },
  rsqrt = { 0, 0, 0, { 0.25, 1, 4 }, function(y) return -0.5 * y ^ 3 end },
  reciprocal = { 0, 0, 0, { -3, 0.25, 4 }, function(y) return -y * y end },
  exp = { 1, 0, 0, { -30, -3, 0, 0.25, 4 }, math.exp },
  bell = { 2, -0.5, 0, { -3, 0, 0.25, 4 }, function(x) return 2 * math.exp(-0.5 * x * x) end },
  sin = { 1, 0, 0, { -3, 0, 0.25, 1000 }, math.cos },
  cos = { -1, 0, 0, { -3, 0, 0.25, 1000 }, function(x) return -math.sin(x) end },
  sinh = { 1, 0, 0, { -3, 0, 0.25, 4 }, math.cosh },
  cosh = { 1, 0, 0, { -3, 0, 0.25, 4 }, math.sinh },
  softplus = { 2, 3, 0, { -30, -3, 0, 0.25, 4 }, function(x) return 2 * x > 3 and 1 or sigmoid(2 * x) end },
  mish = { 0, 0, 0, { -math.huge, -300, -30, -3, 0, 0.25, 4, 30, math.huge }, function(x)
    if x < -300 then return 0 elseif x > 40 then return 1 end
    local t = math.tanh(math.log(1 + math.exp(x)))
    return t + x * sigmoid(x) * (1 - t * t)
  end },
  digamma = { 1, 0, 0, { 1 }, function() return -0.57721566490153286 end },
  polygamma = { 1, 1, 0, { 1 }, function() return math.pi ^ 2 / 6 end },
  finite = { 0, 0, 0, { -math.huge, -3, 0, math.huge, 0 / 0 }, function(x) return (x == x and math.abs(x) < math.huge) and 1 or 0 end },
  logit = { 0.125, 0.875, 0, { 0, 0.125, 0.25, 0.5, 0.875, 1 }, function(x) return (x > 0.125 and x < 0.875) and 1 / (x * (1 - x)) or 0 end },
  leaky_relu = { 0.25, 0, 0, { -3, 0, 4 }, function(x) return x > 0 and 1 or 0.25 end },
  clamp = { -1, 2, 4, { -3, -1, 0, 2, 4, 0 / 0 }, function(x) return (x > -1 and x < 2) and 0.25 or 0 end },
  hardswish = { 0, 0, 0, { -4, -3, -1, 0, 3, 4 }, function(x) return x >= 3 and 1 or x <= -3 and 0 or x / 3 + 0.5 end },
  softsign = { 0, 0, 0, { -3, 0, 0.25, 4 }, function(x) return 1 / (1 + math.abs(x)) ^ 2 end },
  shrink = { 0.5, 0, 0, { -3, -0.5, 0, 0.25, 4 }, function(x) return math.abs(x) <= 0.5 and 0 or 1 end },
  threshold = { 0.5, 0, 0, { -3, 0.5, 4 }, function(x) return x <= 0.5 and 0 or 1 end },
  tanhshrink = { 0, 0, 0, { -3, 0, 0.25, 4 }, function(x) return math.tanh(x) ^ 2 end },
  quotient = { 0, 2, 0, { -3, 0, 0.25, 4 }, function(x) return x == 0 and 0 or 2 / x end },
}

-- pair_slope's terms by word: pairs, the slope at a, b
local pairs_of = { { -3, 0.5 }, { 2, 2 }, { 0.25, 4 }, { 4, -1.5 } }
local positive = { { 0.25, 3 }, { 2, 1.5 }, { 1, -2 }, { 4, 0 } }
local terms = {
  div = { pairs_of, function(a, b) return -a / (b * b) end },
  pow_base = { positive, function(a, b) return b == 0 and 0 or b * a ^ (b - 1) end },
  pow_exponent = { { { 0, 0 }, { 0, 1 }, { 0.25, 3 }, { 2, 1.5 }, { 4, 1 } }, function(a, b) return a == 0 and 0 or b * math.log(a) end }, -- b: the power
  lower = { pairs_of, function(a, b) return a > b and 0 or a == b and 0.5 or 1 end },
  upper = { pairs_of, function(a, b) return a < b and 0 or a == b and 0.5 or 1 end },
  fmod = { pairs_of, function(a, b) return -trunc(a / b) end },
  mod = { pairs_of, function(a, b) return -math.floor(a / b) end },
  ratio = { pairs_of, function(a, b) return a / b end },
  atan2 = { { { 0, 0 }, { -3, 0.5 }, { 4, -1.5 } }, function(a, b) return (a == 0 and b == 0) and 0 or b / (a * a + b * b) end },
  logaddexp = { pairs_of, function(a, b) return sigmoid(a - b) end },
  xlogy = { { { 0, 0 }, { 0, -1 }, { 2, 3 }, { 0, 4 } }, function(a, b) return (a == 0 and b <= 0) and 0 or math.log(b) end },
  copysign = { pairs_of, function(a, b) return sign(a) * sign(b) end },
  difference = { pairs_of, function(a, b) return a - b end },
  gamma = { { { 3, 1 } }, function(a) return a * -0.57721566490153286 end },
  rectify_input = { pairs_of, function(a, b) return a > 0 and 1 or b end },
  rectify_weight = { pairs_of, function(a) return a > 0 and 0 or a end },
  gate = { pairs_of, function(a, b) return a * sigmoid(b) * (1 - sigmoid(b)) end },
  exp_difference = { pairs_of, function(a, b) return math.exp(a - b) end },
}

-- every word of a row's choice has its entry, and no entry is of a word that is gone
local function check_words(row, attr, list)
  local known = {}
  for word in Call.by_name[row].attrs[1].type:sub(2):gmatch '[^,]+' do known[word] = true end
  for word in pairs(known) do assert(list[word], row .. ': no closed form of ' .. attr .. ' ' .. word) end
  for word in pairs(list) do assert(known[word], row .. ' has no ' .. attr .. ' ' .. word) end
end

local function of(v, dt) return H.tensor({ d = 'float64', s = { #v }, v = v }, dt) end

-- a row of n elements, so that the kernels for vectors are met, and tails
local function many(v, n)
  local t = {}
  for i = 1, n do t[i] = v[(i - 1) % #v + 1] end
  return t
end

local closed = {}

function closed.slope()
  check_words('slope', 'function', functions)
  for word, c in pairs(functions) do
    for _, dt in ipairs(H.floats) do
      for _, n in ipairs { #c[4], 1037 } do
        local x, want = of(many(c[4], n), dt), {}
        for i, v in ipairs(H.values(x)) do want[i] = 1.5 * c[5](v) end
        for _, g in ipairs { of(many({ 1.5 }, n), dt), of({ 1.5 }, dt), of({ 1.5 }, 'float32') } do
          local got = Call.raw('slope', { g, x }, { ['function'] = word, p = c[1], q = c[2], r = c[3] })[1]
          assert(got.dtype == dt, word)
          local wrong = H.difference(got, want, { n }, H.tolerance[dt], 2)
          if wrong then error(word .. ' ' .. dt .. ': ' .. wrong, 0) end
        end
      end
    end
  end
  -- a mask has no fraction: the gradient's dtype stays
  local mask = amp.tensor({ 0, 1, 1 }, { dtype = 'uint8' })
  local got = Call.raw('slope', { of({ 1, 2, 3 }, 'float16'), mask }, { ['function'] = 'line', p = 0, q = 2, r = 0 })[1]
  assert(got.dtype == 'float16')
  H.close(got, { 0, 4, 6 }, H.exact)
end

function closed.pair_slope()
  check_words('pair_slope', 'term', terms)
  for word, c in pairs(terms) do
    for _, dt in ipairs(H.floats) do
      for _, n in ipairs { #c[1], 1037 } do
        local a, b, want = {}, {}, {}
        for i, v in ipairs(many(c[1], n)) do
          a[i], b[i] = v[1], v[2]
          want[i] = 1.5 * -0.5 * c[2](v[1], v[2])
        end
        for _, g in ipairs { of(many({ 1.5 }, n), dt), of({ 1.5 }, dt) } do
          local got = Call.raw('pair_slope', { g, of(a, dt), of(b, dt) }, { term = word, by = -0.5 })[1]
          assert(got.dtype == dt, word)
          local wrong = H.difference(got, want, { n }, H.tolerance[dt], 2)
          if wrong then error(word .. ' ' .. dt .. ': ' .. wrong, 0) end
        end
      end
    end
  end
end

return {
  closed = closed,
  by_hand = {
    rectify = {
      { inp = { { 2, -2, 3, -0.5 }, { 0.5, 0.5, 0.25, 0.25 } }, out = { { 2, -1, 3, -0.125 } } },
      { inp = { { 1, -4 }, { d = 'float64', s = { 2, 1 }, v = { 0.5, -0.25 } } }, out = { { d = 'float64', s = { 2, 2 }, v = { 1, -2, 1, 1 } } } },
    },
    gate = {
      { inp = { { 2, -2, 3 }, { 0, 1, -2 } }, out = { { 1, -2 * sigmoid(1), 3 * sigmoid(-2) } } },
      { inp = { { 1, -4 }, { d = 'float64', s = { 2, 1 }, v = { 0, 3 } } },
        out = { { d = 'float64', s = { 2, 2 }, v = { 0.5, -2, sigmoid(3), -4 * sigmoid(3) } } } },
    },
    cumsum_back = {
      { inp = { { 1, 2, 4, -8 } }, attrs = { dim = 1 }, out = { { -1, -2, -4, -8 } } },
      { inp = { { d = 'float64', s = { 2, 3 }, v = { 1, 2, 3, 4, 5, 6 } } }, attrs = { dim = 1 },
        out = { { d = 'float64', s = { 2, 3 }, v = { 5, 7, 9, 4, 5, 6 } } } },
      { inp = { { d = 'float64', s = { 2, 3 }, v = { 1, 2, 3, 4, 5, 6 } } }, attrs = { dim = 2 },
        out = { { d = 'float64', s = { 2, 3 }, v = { 6, 5, 3, 15, 11, 6 } } } },
      { inp = { { d = 'float64', s = { 2, 0 }, v = {} } }, attrs = { dim = 2 }, out = { { d = 'float64', s = { 2, 0 }, v = {} } } },
    },
  },
  wrong = {
    polygamma = { { { { 2 } }, { n = -1 }, { 'n is -1' } } },
    celu = { { { { 2 } }, { alpha = 0 }, { 'alpha' } } },
    hardtanh = { { { { 2 } }, { min_val = 2, max_val = 1 }, { 'min_val 2', 'max_val 1' } } },
    hardshrink = { { { { 2 } }, { lambd = -1 }, { 'lambd', '-1' } } },
    softshrink = { { { { 2 } }, { lambd = -1 }, { 'lambd', '-1' } } },
    logit = { { { { 2 } }, { eps = 0.75 }, { 'eps', '0.75' } } },
    glu = { { { { 2, 3 } }, {}, { '3', 'halved' } }, { { {} }, {}, { 'scalar' } } },
    softmin = { { { { 2, 3 } }, { dim = 3 }, { '3' } } },
    prelu = { { { { 2, 3 }, { 2 } }, {}, { '2', '3' } }, { { { 2, 3 }, { 3, 1 } }, {}, { '3x1' } },
      { { { 2, 3 }, { dtype = 'float64', 3 } }, {}, { 'float32', 'float64' } } },
    isclose = { { { { 2 }, { 3 } }, {}, { '2', '3' } }, { { { 2 }, { 2 } }, { rtol = -1 }, { 'rtol', '-1' } } },
    fmod = { { { { dtype = 'int64', fill = 3, 2 }, { dtype = 'int64', fill = 0, 2 } }, {}, { 'zero' } }, { { { 2 }, { 3 } }, {}, { '2', '3' } } },
    floor_divide = { { { { dtype = 'int64', fill = 3, 2 }, { dtype = 'int64', fill = 0, 2 } }, {}, { 'zero' } }, { { { 2 }, { 3 } }, {}, { '2', '3' } } },
    bitwise_and = { { { { 2 }, { 2 } }, {}, { 'float32' } }, { { { dtype = 'int64', 2 }, 0.5 }, {}, { 'float64' } } },
    bitwise_or = { { { { 2 }, { 2 } }, {}, { 'float32' } } },
    bitwise_xor = { { { { 2 }, { 2 } }, {}, { 'float32' } } },
    bitwise_not = { { { { 2 } }, {}, { 'float32' } } },
    bitwise_left_shift = { { { { 2 }, { 2 } }, {}, { 'float32' } } },
    bitwise_right_shift = { { { { 2 }, { 2 } }, {}, { 'float32' } } },
  },
}
