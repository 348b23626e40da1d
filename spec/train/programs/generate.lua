--- Random training programs: trees of statements in plain tables, from a seed.
-- A program has weights, one or two optimizers, a way of scaling losses for its whole length, and statements: ops on
-- registers, constructs with bodies (regions, recordings, scopes, coroutines, error handlers), edits and training steps.
-- play.lua runs one; its header says what each statement does. Numbers in statements are taken modulo what is there.
local M = {}

-- A generator of its own, so that a seed means the same program everywhere.
local function source(seed)
  local state = seed * 7919 + 12345
  local function uniform()
    state = (state * 16807) % 2147483647
    return state / 2147483647
  end
  for _ = 1, 5 do uniform() end
  local R = {}
  function R.int(n) return 1 + math.floor(uniform() * n) end
  function R.chance(p) return uniform() < p end
  function R.pick(list) return list[R.int(#list)] end
  return R
end

local LOW = { 'float16', 'bfloat16' }
local OPS = { 'matmul', 'matmul', 'matmul', 'mul', 'mul', 'add', 'sub', 'square', 'sum', 'tanh', 'to', 'half_mul', 'float_mul', 'promote_mul',
  'square_function', 'own_function', 'float32_function', 'checkpoint' }

local function region(R)
  return { dtype = R.pick(LOW), enabled = not R.chance(0.25), cache_enabled = not R.chance(0.15) }
end

local function op(R)
  return { k = 'op', op = R.pick(OPS), a = R.int(97), b = R.int(97), dtype = R.pick { 'float16', 'bfloat16', 'float32' } }
end

local bodied -- name -> function(R, depth, flags): a construct

-- flags.yields: within a coroutine; flags.trains: a training step may stand here
local function statement(R, depth, flags)
  local roll = R.int(100)
  if roll <= 45 or depth <= 0 and roll <= 80 then return op(R) end
  if roll <= 52 then return flags.yields and { k = 'yield' } or { k = 'state' } end
  if roll <= 55 then return { k = 'throw' } end
  if roll <= 58 then return { k = 'enabled', value = R.chance(0.5) } end
  if roll <= 60 then return { k = 'clear_cache' } end
  if roll <= 63 then return { k = 'hook', a = R.int(97), how = R.pick { 'double', 'nothing', 'double', 'throw' } } end
  if roll <= 65 then return { k = 'bump', a = R.int(97) } end
  if roll <= 67 then return { k = 'derivative', a = R.int(97), b = R.int(97) } end
  if roll <= 78 and flags.trains and depth > 0 then return bodied.train(R, depth - 1, flags) end
  return depth > 0 and bodied[R.pick(bodied)](R, depth - 1, flags) or op(R)
end

local function body(R, depth, flags, most)
  local list = {}
  for i = 1, R.int(most or 4) do list[i] = statement(R, depth, flags) end
  return list
end

local function simple(k)
  return function(R, depth, flags) return { k = k, body = body(R, depth, flags) } end
end

-- Constructs drawn at random; region and coroutine more often.
bodied = { 'region', 'region', 'wrap', 'no_grad', 'enable_grad', 'try', 'try', 'scope', 'coroutine', 'coroutine', 'off', 'record',
  wrap = function(R, depth, flags) return { k = 'wrap', o = region(R), body = body(R, depth, flags) } end,
  region = function(R, depth, flags) return { k = 'region', o = region(R), body = body(R, depth, flags, 5) } end,
  no_grad = simple 'no_grad', enable_grad = simple 'enable_grad', try = simple 'try', off = simple 'off',
  scope = function(R, depth, flags) return { k = 'scope', body = body(R, depth, { yields = flags.yields, trains = false }) } end,
  record = function(R, depth, flags) return { k = 'record', body = body(R, depth, { yields = flags.yields, trains = false }) } end,
}

function bodied.coroutine(R, depth, flags)
  local s = { k = 'coroutine', body = body(R, depth, { yields = true, trains = flags.trains }, 5), resumes = {}, between = {} }
  for i = 1, R.int(4) do
    s.resumes[i] = R.chance(0.4) and region(R) or false
    s.between[i] = body(R, 0, { yields = false, trains = false }, 2)
  end
  s.abandoned, s.trains = R.chance(0.2), flags.trains -- with a training step in it, its manager may be recording still
  return s
end

-- A training step: what its losses are computed by, how backward goes, what is done to gradients, who steps.
function bodied.train(R, depth, flags)
  local s = { k = 'train', gear = R.int(4), losses = R.int(2), body = body(R, depth, { yields = flags.yields, trains = false }, 5), loss = R.int(97),
    infinite = R.chance(0.15), inside = R.chance(0.3) and body(R, 0, { yields = flags.yields, trains = false }, 2) or {},
    unscale = R.chance(0.5), early = {}, late = {}, fill = R.chance(0.2) }
  for _, name in ipairs { 'early', 'late' } do
    if R.chance(0.35) then s[name] = { how = R.pick { 'drop', 'double', 'set', 'infinite' }, a = R.int(97) } end
  end
  return s
end

--- The program of a seed.
function M.program(seed)
  local R = source(seed)
  local p = { seed = seed, face = R.pick { 'scaler', 'scaler', 'levels', 'masters', 'handle', 'trainer' }, weights = {}, optimizers = R.int(2), body = {} }
  for i = 1, 1 + R.int(3) do p.weights[i] = R.pick { 0.5, 1, 1.5, -1, -0.5, 0.75, 1.25 } end
  for i = 1, 2 + R.int(4) do p.body[i] = statement(R, 4, { yields = false, trains = true }) end
  p.body[#p.body + 1] = bodied.train(R, 2, { yields = false, trains = true })
  return p
end

-- -- Programs as text ---------------------------------------------------------------------------

local function show(v, indent, out)
  if type(v) ~= 'table' then return tostring(v) end
  local parts, keys = {}, {}
  for k in pairs(v) do keys[#keys + 1] = k end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  for _, k in ipairs(keys) do
    if k ~= 'body' and k ~= 'inside' and k ~= 'between' then
      parts[#parts + 1] = (type(k) == 'number' and '' or k .. '=') .. show(v[k], indent, out)
    end
  end
  return '{' .. table.concat(parts, ' ') .. '}'
end

local function lines(list, indent, out)
  for _, s in ipairs(list) do
    out[#out + 1] = indent .. s.k .. ' ' .. show(s, indent, out)
    for _, name in ipairs { 'body', 'inside' } do
      if s[name] and #s[name] > 0 then
        if name == 'inside' then out[#out + 1] = indent .. ' in backward:' end
        lines(s[name], indent .. '  ', out)
      end
    end
    for i, b in ipairs(s.between or {}) do
      out[#out + 1] = indent .. ' after yield ' .. i .. ':'
      lines(b, indent .. '  ', out)
    end
  end
end

--- A program as lines, for the message of a failure.
function M.text(p)
  local out = { ('program %d, %s, weights %s, %d optimizers'):format(p.seed, p.face, table.concat(p.weights, ' '), p.optimizers) }
  lines(p.body, '  ', out)
  return table.concat(out, '\n')
end

return M
