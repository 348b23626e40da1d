--- The walk over the fixtures of every op, shared by the specs that take it: cases, their tensors
-- and calls, gradients of first and second order, what a region makes of a call.
-- It is taken on the device that AMP_SPEC_DEVICE names (the CPU without it): every input is moved
-- there, results are compared on the CPU. Derivatives on the CPU are held against finite
-- differences; those of another device against the CPU's. With AMP_MOCK in the environment the
-- device is the mock GPU in that folder.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local ops = require 'spec.ops.op_call'
local samples = require 'spec.ops.op_samples'

local M = { device = H.device or 'cpu' }
local elsewhere = M.device ~= 'cpu'
if elsewhere then
  if os.getenv 'AMP_MOCK' then require 'spec.device.mock.device' end
  amp.set_default_device(M.device)
end

-- -- Cases ------------------------------------------------------------------------

--- op -> list of its fixtures.
M.cases = {}
samples.each_case(function(c)
  M.cases[c.op] = M.cases[c.op] or {}
  table.insert(M.cases[c.op], c)
end)

function M.label(c) return c.op .. ' (' .. c.tag .. ')' end

function M.is_tensor(x) return type(x) == 'table' and x.d ~= nil end

--- Every tensor of a fixture's arguments (those of lists too) through f(fixture, place).
-- @return the arguments with f's values, and how many tensors there were
function M.map(inp, f)
  local out, place = {}, 0
  for i, x in ipairs(inp) do
    if M.is_tensor(x) then
      place = place + 1
      out[i] = f(x, place)
    elseif type(x) == 'table' and x.list then
      local l = {}
      for j, y in ipairs(x.list) do
        place = place + 1
        l[j] = f(y, place)
      end
      out[i] = { list = l }
    else
      out[i] = x
    end
  end
  return out, place
end

--- The same over made tensors.
function M.remap(inp, f)
  local out = {}
  for i, x in ipairs(inp) do
    if type(x) == 'cdata' then out[i] = f(x)
    elseif type(x) == 'table' and x.list then
      local l = {}
      for j, y in ipairs(x.list) do l[j] = f(y) end
      out[i] = { list = l }
    else
      out[i] = x
    end
  end
  return out
end

--- The made tensors of a case's arguments in a row.
function M.tensors_of(inp)
  local list = {}
  M.remap(inp, function(t)
    list[#list + 1] = t
    return t
  end)
  return list
end

--- The arguments with others in their places.
function M.with_tensors(inp, list)
  local at = 0
  return M.remap(inp, function()
    at = at + 1
    return list[at]
  end)
end

--- A case as a function of its tensors.
function M.case_function(row, c, inp)
  return function(...) return unpack(ops.call(row.name, M.with_tensors(inp, {...}), c.attrs)) end
end

--- Copies of tensors.
function M.copies(list)
  local made = {}
  for i, t in ipairs(list) do made[i] = t:clone() end
  return made
end

M.seed = 7

--- What f gives for a list of arguments, random numbers being the same each time: a list.
function M.seeded(f, list)
  amp.manual_seed(M.seed)
  return {f(unpack(list))}
end

-- How many sequences have each step of a packed one stays with the host: the integers of these.
M.host_integers = { rnn = true, lstm = true, gru = true }

--- A tensor of case c from its fixture, its floats in dtype, on a device (the walk's by default).
function M.tensor(c, x, dtype, device)
  device = device or M.device
  if M.host_integers[c.op] and x.d == 'int64' then device = 'cpu' end
  return H.tensor(x, dtype, device)
end

--- Arguments of a case; results of another op go where it says so (aux).
function M.arguments(c, dtype, device)
  local function make(x) return M.tensor(c, x, dtype, device) end
  local inp = M.map(c.inp, make)
  if c.aux then
    local from = ops.raw(c.aux.op, M.map(c.aux.inp, make), c.aux.attrs)
    for i, x in ipairs(inp) do
      if type(x) == 'table' and x.aux then inp[i] = from[x.aux] end
    end
  end
  return inp
end

-- -- Results -----------------------------------------------------------------------

--- Raise unless the results are the case's: dtype, shape and values.
-- @tparam ?string dtype of the floats given, when it is not float64
function M.check_results(c, out, dtype, what)
  local factor = c.tol or 1
  for k, want in ipairs(c.out) do
    local t = out[k]
    if t == nil then error(('%s: %s: result %d is missing'):format(M.label(c), what, k), 0) end
    local expected = want.d
    if expected == 'float64' and dtype and not c.attrs.dtype then expected = dtype end
    local got = H.dtype(t)
    if got ~= expected then error(('%s: %s: result %d is %s, not %s'):format(M.label(c), what, k, got, expected), 0) end
    local tol = H.tolerance[expected] and H.tolerance[dtype or expected] or H.exact
    local wrong = H.difference(t, want.v, want.s, tol, factor)
    if wrong then error(('%s: %s: result %d: %s'):format(M.label(c), what, k, wrong), 0) end
    if elsewhere and c.op ~= 'to_device' and t.device:match '^%a+' ~= M.device:match '^%a+' then
      error(('%s: %s: result %d is on %s'):format(M.label(c), what, k, t.device), 0)
    end
  end
end

--- The same for the arguments that a call writes.
function M.check_after(c, inp, dtype, what)
  for i, want in pairs(c.after or {}) do
    local wrong = H.difference(inp[i], want.v, want.s, H.tolerance[dtype], (c.tol or 1))
    if wrong then error(('%s: %s: argument %d afterwards: %s'):format(M.label(c), what, i, wrong), 0) end
  end
end

-- -- Derivatives --------------------------------------------------------------------

function M.no_derivative(row) return row.kind == 'N' or row.flags.create or row.flags.only_inplace end

-- places {argument, number in its list} of the arguments that derivatives are taken in
local function differentiable(row, c, inp)
  local list = {}
  local constant = samples.constant[row.name]
  for i, x in ipairs(inp) do
    if type(x) == 'cdata' and H.is_float[H.dtype(x)] and not (c.after and c.after[i]) and not (constant and constant[row.args[i].name]) then
      list[#list + 1] = { i }
    elseif type(x) == 'table' and x.list then
      for j, y in ipairs(x.list) do
        if H.is_float[H.dtype(y)] then list[#list + 1] = { i, j } end
      end
    end
  end
  return list
end

local function float_results(row, out)
  local list = {}
  for k = 1, ((row.flags.nodiff_out1 or row.flags.aux) and 1 or #out) do
    if H.is_float[H.dtype(out[k])] then list[#list + 1] = out[k] end
  end
  return list
end

--- A case as a function of the arguments that derivatives are taken in.
-- @tparam table inp arguments, as of M.arguments
-- @treturn ?table {at = places, start = tensors, run = function(tensors) -> float results}; nil without any
function M.as_function(row, c, inp)
  if c.grad == false then return nil end
  local at = differentiable(row, c, inp)
  if #at == 0 then return nil end
  local start = {}
  for k, p in ipairs(at) do
    local t = p[2] and inp[p[1]].list[p[2]] or inp[p[1]]
    start[k] = H.make(H.values(t), H.shape(t), H.dtype(t), t.device)
  end
  local function run(values)
    local args = M.remap(inp, function(t) return t end)
    for k, p in ipairs(at) do
      if p[2] then args[p[1]].list[p[2]] = values[k] else args[p[1]] = values[k] end
    end
    for i in pairs(c.after or {}) do args[i] = args[i]:clone() end
    return float_results(row, ops.call(row.name, args, c.attrs))
  end
  return { at = at, start = start, run = run }
end

local function leaves_of(list)
  local leaves = {}
  for k, t in ipairs(list) do
    leaves[k] = t:detach()
    leaves[k].requires_grad = true
  end
  return leaves
end

-- tensors of flat weights like the given ones
local function weights_like(list, w)
  local out = {}
  for o = 1, #list do out[o] = H.make(w[o], H.shape(list[o]), H.dtype(list[o]), list[o].device) end
  return out
end

local function zeros_like(t) return H.make(H.ramp(H.numel(H.shape(t)), 0), H.shape(t), H.dtype(t), t.device) end

--- Gradients of a weighted sum of the results, zeros for what the result does not depend on.
-- @treturn ?table a gradient for each of f.start; nil where no result is a float
-- @treturn table the weights
function M.first(f)
  local leaves = leaves_of(f.start)
  local out = f.run(leaves)
  if #out == 0 then return nil end
  local w = H.weights(out)
  local g = amp.grad(out, leaves, { grad_outputs = weights_like(out, w), allow_unused = true })
  for k = 1, #leaves do g[k] = g[k] or zeros_like(leaves[k]) end
  return g, w
end

--- Gradients of a weighted sum of the gradients, in the values and in the gradients handed in.
-- @treturn ?table a gradient for each variable
-- @treturn table variables: f.start, then a gradient for each result
-- @treturn function(variables) -> gradients, whose derivative they are
-- @treturn table weights of those
function M.second(f)
  local probe = f.run(f.start)
  if #probe == 0 then return nil end
  local n = #f.start
  local variables = {}
  for k = 1, n do variables[k] = f.start[k] end
  for o, t in ipairs(weights_like(probe, H.weights(probe))) do variables[n + o] = t end
  local function gradients(values, keep)
    local given, gw = {}, {}
    for k = 1, n do given[k] = values[k] end
    for o = 1, #probe do gw[o] = values[n + o] end
    local leaves = keep and given or leaves_of(given)
    local g = amp.grad(f.run(leaves), leaves, { grad_outputs = gw, create_graph = true, allow_unused = true })
    local got = {}
    for k = 1, n do got[#got + 1] = g[k] or nil end
    return got
  end
  local leaves = leaves_of(variables)
  local g = gradients(leaves, true)
  local v = H.weights(g)
  local roots, rw = {}, {}
  for k, t in ipairs(weights_like(g, v)) do
    if g[k].requires_grad then roots[#roots + 1], rw[#rw + 1] = g[k], t end
  end
  local gg = #roots > 0 and amp.grad(roots, leaves, { grad_outputs = rw, allow_unused = true }) or {}
  for k = 1, #leaves do gg[k] = gg[k] or zeros_like(leaves[k]) end
  return gg, variables, gradients, v
end

--- The same arguments on the CPU, floats as float64.
function M.wide(inp)
  return M.remap(inp, function(t)
    return H.make(H.values(t), H.shape(t), H.is_float[H.dtype(t)] and 'float64' or H.dtype(t), 'cpu')
  end)
end

local near = { float64 = 1e-10, float32 = 2e-5, float16 = 8e-3, bfloat16 = 6e-2 }

--- Raise unless gradients are near those in float64 on the CPU, relative to the largest of each.
function M.check_near(c, got, want, what)
  for k = 1, #want do
    local v, top = H.values(want[k]), 0.1
    for i = 1, v.n do
      local m = math.abs(v[i])
      if m > top and m < math.huge then top = m end
    end
    local tol = near[H.dtype(got[k])]
    local wrong = H.difference(got[k], v, H.shape(want[k]), { rtol = tol, atol = tol * top }, c.tol or 1)
    if wrong then error(('%s: %s %d: %s'):format(M.label(c), what, k, wrong), 0) end
  end
end

-- -- Regions of autocast ----------------------------------------------------------------

local policy = H.policy_list()
local CAST = { float32 = true, float16 = true, bfloat16 = true } -- what a region touches
local width = { float64 = 4, float32 = 3, float16 = 2, bfloat16 = 2 }

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

-- floats of a fixture as whole numbers
local function whole(x, device)
  local v = {}
  for i = 1, #x.v do v[i] = (x.v[i] == x.v[i] and math.abs(x.v[i]) < 1e9) and math.floor(x.v[i]) or 0 end
  return H.make(v, x.s, 'int64', device)
end

local function region(low, f) return amp.autocast({ dtype = low }, f) end

-- The same call twice: on the CPU to the bit. Elsewhere sums may be taken in another order each time.
local function agree(a, b) return H.difference(a, H.values(b), H.shape(b), elsewhere and H.tolerance[H.dtype(b)] or H.exact, 4) end

--- Raise unless a case in a region does what the same call does outside it on arguments cast by hand
-- as the op's class says.
-- @tparam table plan dtype of the floats by place
-- @tparam string low the region's dtype
function M.check_region(row, c, plan, low)
  -- number / tensor and number ^ tensor are ops of their own, rdiv and rpow
  local class = type(c.inp[1]) == 'number' and policy['r' .. row.name] or row.policy
  if samples.lowering[row.name] then class = 'lower' end
  local function make(x, place)
    return (x.d == 'float64' and plan[place] == 'int64') and whole(x, M.device) or M.tensor(c, x, plan[place])
  end
  local dts, first, ordinary, floats = {}, nil, true, true -- ordinary: a region casts all its floats
  local inp = M.map(c.inp, function(x, place)
    local t = make(x, place)
    local d = H.dtype(t)
    dts[place] = d
    first = first or (H.is_float[d] and d)
    if x.d == 'float64' then ordinary, floats = ordinary and CAST[d], floats and d ~= 'int64' end
    return t
  end)
  local what = ('%s: %s in a %s region'):format(M.label(c), table.concat(dts, ', '), low)
  local to = first and target(class, low, dts, c.attrs)
  local function inside() return region(low, function() return ops.user(row.name, inp, c.attrs) end) end
  if to == 'error' then
    H.fails(inside, row.name, 'float64')
  elseif class == 'banned' and low == 'float16' then
    local ok, e = pcall(inside)
    if CAST[dts[1]] and (ok or floats and not tostring(e):find 'bce_with_logits') then error(what .. ': is not refused', 0) end
  elseif class == 'special' then
    local fine, got = pcall(inside)
    if not fine and ordinary then error(('%s: %s'):format(what, tostring(got)), 0) end
    if fine and ordinary and H.dtype(got[1]) ~= (samples.widening[row.name] and 'float32' or first) then error(('%s: %s'):format(what, H.dtype(got[1])), 0) end
  else
    local hand = M.map(c.inp, function(x, place)
      local t = make(x, place)
      return (to and CAST[dts[place]] and dts[place] ~= to) and ops.raw('cast', { t }, { dtype = to })[1] or t
    end)
    local fine, want = pcall(ops.user, row.name, hand, c.attrs)
    local fine2, got = pcall(inside)
    if fine ~= fine2 then
      error(('%s: by hand %s, in the region %s'):format(what, fine and 'fine' or tostring(want), fine2 and 'fine' or tostring(got)), 0)
    end
    for k = 1, fine and #want or 0 do
      if type(want[k]) ~= 'cdata' then
        if want[k] ~= got[k] then error(('%s: result %d is %s, by hand %s'):format(what, k, tostring(got[k]), tostring(want[k])), 0) end
      else
        if H.dtype(want[k]) ~= H.dtype(got[k]) then
          error(('%s: result %d is %s, by hand %s'):format(what, k, H.dtype(got[k]), H.dtype(want[k])), 0)
        end
        local wrong = agree(got[k], want[k])
        if wrong then error(('%s: result %d: %s'):format(what, k, wrong), 0) end
        if to and ordinary and c.out[k] and c.out[k].d == 'float64' and H.dtype(got[k]) ~= to then
          error(('%s: result is %s, not %s'):format(what, H.dtype(got[k]), to), 0)
        end
      end
    end
  end
end

--- Whether each tensor of a case is a float's, by place, and their number.
function M.floats(c)
  local is = {}
  local _, places = M.map(c.inp, function(x, place) is[place] = x.d == 'float64' end)
  return is, places
end

return M
