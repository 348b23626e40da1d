--- Random numbers of Torch7: torch.uniform(a, b) and its kin for one number, x:uniform(a, b) for all of a tensor's.
local amp = require 'amp'
local core = require 'amp.torch7.own.core'
local raise = require('amp.error').throw

return function(torch)
  local M = core.methods

  -- draw(h, ...): values of h's sizes; one number is drawn in float64
  local function define(name, draw)
    M[name] = function(u, ...)
      local h = core.amp_of(u)
      if h.ptr_.numel > 0 then
        local like = h:is_floating_point() and h or amp.empty(h:size(), {dtype = 'float64', device = h.device})
        local v = draw(like, ...)
        h:copy_(h:is_floating_point() and v or v:floor())
      end
      return u
    end
    local one = amp.empty({1}, {dtype = 'float64', device = 'cpu'})
    torch[name] = function(first, ...)
      if core.is_tensor(first) then return M[name](first, ...) end
      local v = draw(one, first, ...):item()
      if name == 'random' or name == 'geometric' or name == 'bernoulli' then v = math.floor(v) end
      return v
    end
  end
  local function uniform(h) return amp.rand(h:size(), {dtype = h.dtype, device = h.device}) end
  local function normal(h) return amp.randn(h:size(), {dtype = h.dtype, device = h.device}) end
  define('uniform', function(h, a, b)
    a, b = a or 0, b or 1
    return uniform(h) * (b - a) + a
  end)
  define('normal', function(h, mean, std) return normal(h) * (std or 1) + (mean or 0) end)
  define('random', function(h, a, b)
    if b == nil then a, b = 1, a or 2 ^ 24 end
    if a > b then raise('torch7.random', 'a range from %g to %g is empty', a, b) end
    return (amp.rand(h:size(), {dtype = 'float64', device = h.device}) * (b - a + 1) + a):floor()
  end)
  define('bernoulli', function(h, p)
    if core.is_tensor(p) then return amp.rand(h:size(), {dtype = 'float64'}):lt(core.amp_of(p):double()):double() end
    return uniform(h):lt(p or 0.5):to(h.dtype)
  end)
  define('exponential', function(h, lambda) return -(1 - uniform(h)):log() / (lambda or 1) end)
  define('cauchy', function(h, median, sigma) return ((uniform(h) - 0.5) * math.pi):tan() * (sigma or 1) + (median or 0) end)
  define('logNormal', function(h, mean, std)
    local m, v = mean or 1, (std or 2) ^ 2
    local s2 = math.log(1 + v / (m * m))
    return (normal(h) * math.sqrt(s2) + math.log(m) - s2 / 2):exp()
  end)
  define('geometric', function(h, p) return ((1 - uniform(h)):log() / math.log(p)):floor() + 1 end)

  local seed = os.time()
  function torch.manualSeed(n)
    seed = n < 0 and math.ceil(n) or math.floor(n)
    amp.manual_seed(seed)
  end
  function torch.seed()
    torch.manualSeed(os.time() * 1000 % 2 ^ 31)
    return seed
  end
  function torch.initialSeed() return seed end
  function torch.getRNGState() return amp.get_rng_state and core.wrap(amp.get_rng_state()) or seed end
  function torch.setRNGState(state)
    if core.is_tensor(state) and amp.set_rng_state then amp.set_rng_state(core.amp_of(state)) else torch.manualSeed(state) end
  end

  -- torch.multinomial([result,] probabilities, n, [replacement])
  local function multinomial(first, second, ...)
    local result
    local p, n, again = first, second, ...
    if core.is_tensor(second) then result, p, n, again = first, second, ... end
    local out = amp.multinomial(core.amp_of(p), {num_samples = n, replacement = again == true})
    if result then return core.assign(result, out) end
    return core.wrap(out)
  end
  torch.multinomial, M.multinomial = multinomial, function(u, first, ...)
    if core.is_tensor(first) then return multinomial(u, first, ...) end
    return multinomial(u, first, ...)
  end
end
