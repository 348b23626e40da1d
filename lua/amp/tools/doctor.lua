--- amp.doctor: why a training step is slow or loses gradients, and what to change.
-- What is measured comes from amp.tools.observer; here it is turned into findings. The numbers
-- are of the machine it runs on; dimensions, waits and underflow are judged as for a GPU on any.
-- @module amp.tools.doctor
local amp = require 'amp'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local findings = require 'amp.tools.findings'
local observer = require 'amp.tools.observer'
local options = require 'amp.options'
local underflow = require 'amp.tools.underflow'
local util = require 'amp.util'
local warn = require 'amp.core.warn'
local err = require 'amp.error'
local band = require('bit').band
local C, S = core.C, core.S

local OP = 'doctor'
local FLOAT16, BFLOAT16 = 2, 3

-- -- Dimensions -------------------------------------------------------------------------------

-- Sizes of a product that ought to be multiples of 8, by op: a list of {what, size}.
local function size(s, argument, d) -- d from 1, or from the end
  local n = s.ndim[argument - 1]
  if d < 0 then d = n + 1 + d end
  return d >= 1 and d <= n and s.size[5 * (argument - 1) + d - 1] or 1
end

local function rows(s, argument)
  local n = 1
  for d = 1, s.ndim[argument - 1] - 1 do n = n * size(s, argument, d) end
  return n
end

local products = {
  linear = function(s) return { { 'rows', rows(s, 1) }, { 'in', size(s, 2, 2) }, { 'out', size(s, 2, 1) } } end,
  matmul = function(s)
    local vector = s.ndim[1] == 1
    return { { 'rows', s.ndim[0] == 1 and 1 or size(s, 1, -2) }, { 'inner', size(s, 1, -1) }, { 'columns', vector and 1 or size(s, 2, -1) } }
  end,
  convolution = function(s)
    if size(s, 2, 2) == 1 and size(s, 1, 2) > 1 then return {} end -- depthwise: no product
    return { { 'channels in', size(s, 1, 2) }, { 'channels out', size(s, 2, 1) } }
  end,
}
products.convolution_input = function(s) return { { 'channels in', size(s, 1, 2) }, { 'channels out', size(s, 2, 2) } } end

local function dimensions(list, index, s, name, line)
  local f = products[name]
  if f == nil or band(s.flags, observer.BACKWARD) ~= 0 then return end
  local all, odd, shown = f(s), {}, {}
  for i, d in ipairs(all) do
    shown[i] = ('%s %d'):format(d[1], d[2])
    if d[2] % 8 ~= 0 and d[2] ~= 1 then odd[#odd + 1] = d end
  end
  if #odd == 0 then return end
  local op = s.parent >= 0 and observer.name(s.parent) or name
  local key = line .. op .. table.concat(shown, ' ')
  if index[key] then
    index[key].calls = index[key].calls + 1
    return
  end
  local words = {}
  for i, d in ipairs(odd) do words[i] = ('%s %d (next: %d)'):format(d[1], d[2], math.ceil(d[2] / 8) * 8) end
  local r = { op = op, where = line, sizes = table.concat(shown, ', '), odd = table.concat(words, ', '), calls = 1 }
  index[key], list[#list + 1] = r, r
end

-- -- Measuring ------------------------------------------------------------------------------------

-- Seconds that an op takes besides its kernel.
local function overhead()
  local a = amp.zeros(1)
  local best = 1
  local listener = { flags = 0, span = function(s) best = math.min(best, s.self) end }
  observer.run(listener, function() amp.no_grad(function() for _ = 1, 50 do a:add_(1) end end) end)
  return best
end

-- What the graphs that it ran as tell.
local function look_at_graphs(m, fn)
  m.graphs = package.loaded['amp.graph.graph'] and require 'amp.graph.found'(fn) or {}
end

local function measure(fn, o)
  local m = {
    wall = 0, lua = 0, inside = 0, spans = 0, issued = 0, waited = 0, steps = 0, backwards = 0, optimizer = 0, lost = 0,
    dims = {}, waits = {}, cast_bytes = 0, cast_spans = {}, weight_casts = 0, lower = { [FLOAT16] = 0, [BFLOAT16] = 0 }, full = 0,
  }
  local dims, waits = {}, {}
  local grads = underflow.collector(fn, o)
  local eight = require 'amp.tools.float8'.collector(fn, o)
  local looked = false
  local step = 0
  local listener = { flags = 0, fn = fn }

  function listener.span(s, name, line)
    m.spans = m.spans + 1
    if s.depth == 0 then m.inside = m.inside + s.total end
    if s.op == -2 then
      m.backwards, looked = m.backwards + 1, false
    elseif s.op == -3 then
      m.optimizer = m.optimizer + 1
      grads.look(m.scale or observer.scale())
      looked = true
    end
    if band(s.flags, observer.CAST) ~= 0 then
      m.cast_bytes = m.cast_bytes + tonumber(s.own)
      if band(s.flags, observer.INPLACE) ~= 0 then
        local n = C.amp_dtype_size(s.dtype)
        for d = 1, s.ndim[0] do n = n * size(s, 1, d) end
        m.cast_bytes = m.cast_bytes + n
        if step == o.steps then m.weight_casts = m.weight_casts + 1 end
      end
    end
    if products[name] and band(s.flags, observer.BACKWARD) == 0 then
      if s.dtype == FLOAT16 or s.dtype == BFLOAT16 then m.lower[s.dtype] = m.lower[s.dtype] + 1 else m.full = m.full + 1 end
    end
    dimensions(m.dims, dims, s, name, line)
  end

  function listener.wait(line, what, n)
    local key = line .. what
    local r = waits[key]
    if r == nil then
      r = { what = what, where = line, count = 0 }
      waits[key], m.waits[#m.waits + 1] = r, r
    end
    r.count = r.count + n
  end

  m.scale = o.scaler and o.scaler:get_scale() or nil
  local gpu = C.amp_device_available(1) > 0
  local casts, cached, cycles = tonumber(S.casts), tonumber(S.cached_casts), call.cycles
  local ran, why = pcall(observer.run, listener, function()
    local cost = observer.cost
    for i = math.min(o.steps, 2), o.steps do
      step = i
      local began = C.amp_clock()
      fn(i)
      m.issued = C.amp_clock() - began
      if gpu then
        local issued = C.amp_clock()
        amp.cuda.synchronize()
        m.waited = m.waited + C.amp_clock() - issued
      end
      m.wall = m.wall + C.amp_clock() - began
      m.steps = m.steps + 1
    end
    m.wall = m.wall - (observer.cost - cost)
    m.scale = m.scale or observer.scale()
    m.lost = observer.lost()
  end)
  if not ran then
    eight.finish()
    error(why, 0)
  end
  if not looked then grads.look(m.scale) end -- what fn left behind
  m.casts, m.cached_casts = tonumber(S.casts) - casts, tonumber(S.cached_casts) - cached
  m.cycles = call.cycles - cycles
  m.lua = math.max(m.wall - m.inside - m.waited, 0)
  m.underflow = grads.finish()
  m.float8 = eight.finish()
  look_at_graphs(m, fn)
  m.gpu = gpu
  return m
end

-- A graph by itself.
local function of_graph(g, given)
  local o = options.read(OP, given, { 'print' }, { print = true })
  options.boolean(OP, 'print', o.print)
  local report = require 'amp.graph.report'(g)
  if o.print then warn.log(tostring(report)) end
  return report
end

-- -- The tool -------------------------------------------------------------------------------------

--- Run fn a few times and report what to change. The first of several calls is a warm-up. Of a graph it tells what amp.summary does, and
-- runs nothing; graphs that fn uses (amp.compile, hybridize) are looked at as well.
-- @tparam function|Graph fn one training step; gets the number of the call
-- @tparam ?table options steps (3), net, optimizer (to name parameters and find their gradients; else they are looked for
--   in fn's upvalues), scaler (its scale; else the one seen in use), print (true: the text goes to amp.write_log)
-- @treturn table findings (list of {kind, text, advice, where}), dims, waits, underflow ({name, zero, subnormal, zero_scaled,
--   subnormal_scaled}: shares), casts, cached_casts, cast_bytes, host_waits (a step), bound ('host', 'kernels' or 'gpu'),
--   float8 (a list of what layers cast to 8 bits: {name, input, weight, gradient = {elements, saturated, zero}, pays}),
--   kernels, calls, lua (shares of the time), time (seconds a step), graphs ({name, report} or {name, why}); its tostring is the text
-- @usage amp.doctor(function() train_step(x, y) end, {net = net})
return function(fn, given)
  if type(fn) == 'table' and type(given) == 'function' then fn, given = given, fn end
  if require('amp.graph').is(fn) then return of_graph(fn, given) end
  require('amp.autograd').need_function(OP, fn)
  local o = options.read(OP, given, { 'steps', 'net', 'optimizer', 'scaler', 'print' }, { steps = 3, print = true })
  options.integer(OP, 'steps', o.steps, 1)
  if o.optimizer ~= nil and (type(o.optimizer) ~= 'table' or type(o.optimizer.param_groups) ~= 'table') then
    err.throw(OP, "option 'optimizer' must be an optimizer, got %s", util.show(o.optimizer))
  end
  if o.scaler ~= nil and not require('amp.precision.scaler').is(o.scaler) then
    err.throw(OP, "option 'scaler' must be a GradScaler, got %s", util.show(o.scaler))
  end
  local dispatch = overhead()
  if o.steps > 1 then fn(1) end
  local m = measure(fn, o)
  local wall = math.max(m.wall, 1e-12)
  local calls = math.min(m.spans * dispatch, m.inside)
  m.kernels, m.calls = math.max(m.inside - calls, 0) / wall, calls / wall
  local busy = m.gpu and m.waited / wall > 0.2 -- the queue was full when the step was issued
  m.bound = m.gpu and (busy and 'gpu' or 'host') or (m.kernels < 0.6 and 'host' or 'kernels')
  m.half = {}
  for _, r in ipairs(m.underflow) do if r.half then m.half[#m.half + 1] = r.name end end
  local waited = 0
  for _, w in ipairs(m.waits) do
    waited = waited + w.count
    w.per_step = w.count / m.steps
  end
  local report = setmetatable({
    steps = m.steps, time = m.wall / m.steps, dims = m.dims, waits = m.waits, underflow = m.underflow, scale = m.scale,
    casts = m.casts / m.steps, cached_casts = m.cached_casts / m.steps, cast_bytes = m.cast_bytes / m.steps,
    host_waits = waited / m.steps, bound = m.bound, kernels = m.kernels, calls = m.calls, lua = m.lua / wall, lost = m.lost, float8 = m.float8,
    findings = findings.list(m), graphs = m.graphs,
  }, findings.Report)
  if o.print then warn.log(tostring(report)) end
  return report
end
