--- The next token from logits: penalty, temperature, the best k, the best that make up p, a draw. All on the logits' device, and
-- of shapes that do not change from step to step. What is drawn is one uniform number a row, which comes from the caller.
-- @module amp.text.models.sampling
local amp = require 'amp'

local M = {}

--- Numbers in [0, 1) from a seed, of no other generator: those of a 64-bit counter, mixed (SplitMix64, Steele et al., 2014).
-- @treturn function gives the next one
function M.uniform(seed)
  local state = 0ULL + seed
  return function()
    state = state + 0x9E3779B97F4A7C15ULL
    local z = state
    local bit = require 'bit'
    z = bit.bxor(z, bit.rshift(z, 30)) * 0xBF58476D1CE4E5B9ULL
    z = bit.bxor(z, bit.rshift(z, 27)) * 0x94D049BB133111EBULL
    z = bit.bxor(z, bit.rshift(z, 31))
    return tonumber(bit.rshift(z, 11)) * 2 ^ -53
  end
end

--- Logits of tokens that were seen, made less likely: over the penalty where positive, times it where negative (Keskar et al., 2019).
-- @tparam Tensor logits batch x vocabulary
-- @tparam Tensor seen the same, bool
function M.penalize(logits, seen, penalty)
  return amp.where(seen, amp.where(logits:gt(0), logits / penalty, logits * penalty), logits)
end

-- The rank that a uniform number falls on among probabilities, each row summing up to its last running sum.
local function rank(probabilities, u)
  local sums = probabilities:cumsum(-1)
  local total = sums:narrow(-1, sums:size(-1), 1)
  local r = sums:le(u * total):sum(-1, true) + 1
  return r:clamp(1, sums:size(-1))
end

--- Token ids, batch x 1.
-- @tparam Tensor logits batch x vocabulary
-- @tparam table o {temperature, top_k, top_p}
-- @tparam ?Tensor u batch x 1, uniform in [0, 1); not looked at where temperature is 0
function M.next(logits, o, u)
  if o.temperature == 0 then return logits:argmax(-1, true) end
  logits = logits:float() / o.temperature
  local vocabulary = logits:size(-1)
  local k = o.top_k and math.min(o.top_k, vocabulary)
  if not k and (not o.top_p or o.top_p >= 1) then return rank(logits:softmax(-1), u) end
  local values, ids
  if k then values, ids = logits:topk(k, -1) else values, ids = logits:sort(-1, true) end
  local p = values:softmax(-1)
  if o.top_p and o.top_p < 1 then
    local before = p:cumsum(-1) - p -- what the better ones make up
    local keep = before:lt(o.top_p)
    keep:narrow(-1, 1, 1):fill_(true)
    p = p * keep:to(p.dtype)
  end
  return ids:gather(-1, rank(p, u))
end

return M
