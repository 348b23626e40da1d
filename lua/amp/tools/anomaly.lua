--- amp.detect_anomaly: the op, the line, the parameter and the step of the first Inf or NaN.
-- @module amp.tools.anomaly
local C = require('amp.ffi').C
local err = require 'amp.error'
local names = require 'amp.tools.names'
local observer = require 'amp.tools.observer'
local options = require 'amp.options'
local rows = require 'amp.ops.schema'
local types = require 'amp.types'
local util = require 'amp.util'
local warn = require 'amp.core.warn'
local band = require('bit').band

local NAN, POSITIVE = tonumber(C.AMP_V_NAN), tonumber(C.AMP_V_POSITIVE)
local OP = 'detect_anomaly'
local names_of = { 'net', 'overflow' } -- options

local function kinds_of(a)
  local list = {}
  if band(a.kinds, NAN) ~= 0 then list[1] = 'NaN' end
  if a.kinds > NAN then list[#list + 1] = band(a.kinds, POSITIVE) ~= 0 and 'Inf' or '-Inf' end
  return table.concat(list, ' and ')
end

local function shape_of(a)
  local sizes = {}
  for d = 1, a.ndim do sizes[d] = tonumber(a.size[d - 1]) end
  return ('%s of shape %s'):format(types.dtype_name[a.dtype], util.shape(sizes))
end

-- "argument 2 'weight'" of an op
local function argument(op, i)
  local row = rows.get(op)
  local k = 0
  for _, arg in ipairs(row and row.args or {}) do
    if arg.kind == 'T' then
      k = k + 1
      if k == i or arg.list then return ("argument %d '%s'"):format(i, arg.name) end
    end
  end
  return 'argument ' .. i
end

-- What was finite: operands of a forward call, incoming gradients of a derivative.
local function operands(a, what, one)
  if a.operands == 0 then return ('every %s was finite'):format(what) end
  local bad = {}
  for i = 1, math.min(a.noperand, 31) do
    if band(a.operands, 2 ^ (i - 1)) ~= 0 then bad[#bad + 1] = i end
  end
  return ('%s %s had Inf or NaN already, the others were finite'):format(one, table.concat(bad, ', '))
end

--- Text and fields of an anomaly.
local function describe(a, call, place, map)
  local backward = band(a.flags, observer.BACKWARD) ~= 0
  local op = observer.name(a.op, a.flags)
  local step = tonumber(a.step)
  local where = backward and call and call.line or place
  local public = backward and call and call.op or op
  local part = public ~= op and (' (in its part %s)'):format(op) or ''
  local parameter
  if a.leaf ~= 0 then
    local known = map[tonumber(a.leaf)]
    parameter = known and known.name or ('a parameter (%s, id %d)'):format(shape_of(a), tonumber(a.leaf))
  end
  local text
  if not backward then
    text = ('first non-finite value (%s) in the output of amp.%s (%s) called at %s, step %d; %s%s'):format(kinds_of(a), op, shape_of(a),
      where or '?', step, operands(a, 'operand', 'operand'), parameter and (', among them the parameter %s'):format(parameter) or '')
  else
    local module = call and call.module and ' ' .. call.module or ''
    text = ('first non-finite value (%s) in the gradient of %s of amp.%s%s (%s) called at %s%s, step %d%s; %s'):format(kinds_of(a),
      argument(op, a.place), public, part, shape_of(a), where or '?', module, step,
      parameter and (': the gradient of %s'):format(parameter) or '', operands(a, 'gradient that came in', 'gradient'))
  end
  local layer = package.loaded['amp.precision.float8_region'] and require('amp.tools.float8').worst(map)
  if layer then
    text = text .. ("; in 8 bits the scale of layer '%s' is wrong: its %s values reach %.6g, the scale is that of %.6g"):format(layer.name,
      layer.kind, layer.largest, layer.scale_of)
  end
  local scale = a.scale > 0 and a.scale or nil
  if a.overflow ~= 0 then
    text = text .. ('; the gradient overflowed under scale %.17g: divided by it, it is finite. The model is right, the scale is too large: '
      .. 'GradScaler skips such a step and lowers it (a smaller init_scale saves the skips; {overflow = false} goes on looking)'):format(scale)
  end
  return text, {
    pass = backward and 'backward' or 'forward', op = public, part = part ~= '' and op or nil, where = where, step = step,
    parameter = parameter, kind = kinds_of(a), place = a.place, scale = scale, overflow = a.overflow ~= 0,
    dtype = types.dtype_name[a.dtype], float8 = layer or nil,
  }
end

--- Run fn(...) and raise at the first value that is Inf or NaN, in a result or in a gradient.
-- The error names the op, the line of its forward call, the parameter if it is one's gradient,
-- and the step (optimizer steps so far + 1); its field `anomaly` has the same as a table {pass,
-- op, where, parameter, step, kind, overflow, scale}. Infinities that the program asks for (as
-- an attribute or number, or -Inf masks passed on) are none. Each result is looked at, so this is slow.
-- @tparam ?table options before or right behind fn: net (module, or modules by name: names of parameters), overflow (true; false: a float16
--   gradient that overflows under the loss scale alone is only warned of)
-- @tparam function fn
-- @return fn's results
-- @usage amp.detect_anomaly(function() for x, y in loader:iter() do train_step(x, y) end end)
return function(given, fn, ...)
  local o = {}
  local args
  if type(given) == 'table' and not (getmetatable(given) or {}).__call then
    o = options.read(OP, given, names_of, {})
    args = util.pack(...)
  elseif options.meant(given, fn, names_of) then -- PyTorch's place of options
    o, args, fn = options.read(OP, fn, names_of, {}), util.pack(...), given
  else
    args = select('#', ...) > 0 and util.pack(fn, ...) or { n = fn ~= nil and 1 or 0, fn }
    fn = given
  end
  require('amp.autograd').need_function(OP, fn)
  local listener = { flags = observer.FINITE, fn = fn }
  function listener.anomaly(a, call)
    local module = (a.leaf ~= 0 or package.loaded['amp.precision.float8_region']) and names.collect(fn, { net = o.net }, true) or {}
    local text, fields = describe(a, call, (observer.place()), module)
    if o.overflow == false and fields.overflow then
      warn.once('amp.detect_anomaly: ' .. text, 'overflow ' .. tostring(fields.where) .. fields.op)
      return
    end
    local e = err.new(OP, text, 'value')
    e.anomaly = fields
    error(e, 0)
  end
  return observer.run(listener, fn, unpack(args, 1, args.n))
end
