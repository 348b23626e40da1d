--- Autocast: regions, the plain switch, policies, wrappers for functions.
--     amp.autocast(function() ... end)
--     amp.autocast({dtype = 'bfloat16', enabled = use_amp}, fn, arg1, arg2)
--     step = amp.autocast.wrap(function(x, y) ... end, {dtype = 'float16'})
-- What is cast is decided in the library by the op's class; a region only sets the state's
-- fields, through amp.region, so it ends as it began whatever happens inside.
-- @module amp.precision.autocast
local ffi = require 'ffi'
local core = require 'amp.ffi'
local err = require 'amp.error'
local region = require 'amp.core.region'
local types = require 'amp.types'
local util = require 'amp.util'
local warn = require 'amp.core.warn'
local words = require 'amp.precision.autocast_state'
local C, S = core.C, core.S

local M = {}

local word = words.of
local DEFAULT = { [0] = types.dtype_code.bfloat16, [1] = types.dtype_code.float16 }

-- -- Regions -----------------------------------------------------------------------------------

local here = region.here
local leave_all = C.amp_autocast_leave
local on_depth = ffi.cast('int32_t *', ffi.cast('char *', S) + ffi.offsetof('amp_state', 'autocast_on')) -- and autocast_depth: quicker than by name

-- The words inside, of what options ask for and of those outside.
local function derive(rec, asked, w0, w1)
  local i0, i1 = asked[0] or w0, asked[1] or w1
  if asked.verbose == nil then i0, i1 = words.as_verbose(i0, w0), words.as_verbose(i1, w1) end -- verbosity is inherited
  local e0, e1 = asked.on[0], asked.on[1]
  if asked[0] == nil then e0 = words.enabled(w0) end
  if asked[1] == nil then e1 = words.enabled(w1) end
  rec.i1, rec.ion, rec.idepth = i1, (e0 or e1) and 1 or 0, rec.odepth + 1
  rec.i0 = i0
end

local kind = region.kind(function(rec)
  local w0, w1 = word[0], word[1]
  rec.o0, rec.o1, rec.oon, rec.odepth = w0, w1, on_depth[0], on_depth[1]
  if not rec.i0 then derive(rec, rec.i1, w0, w1) end
end, function(rec)
  word[0], word[1], on_depth[0], on_depth[1] = rec.i0, rec.i1, rec.ion, rec.idepth
end, function(rec)
  rec.i0, rec.i1, rec.ion, rec.idepth = word[0], word[1], on_depth[0], on_depth[1]
end, function(rec)
  word[0], word[1], on_depth[0], on_depth[1] = rec.o0, rec.o1, rec.oon, rec.odepth
end, function(rec)
  if rec.odepth == 0 then leave_all(S) end
end, nil, true)

local option_names = { 'dtype', 'enabled', 'device', 'cache_enabled', 'verbose', 'base', 'recipe', 'history', 'exclude' }

local float8_kind -- made at the first region of 8 bits

-- What a region is run by, and its record: i0 is false until the region has looked what is outside, i1 what is asked for
-- until then.
local function record(asked)
  return { i0 = false, i1 = asked, ion = 0, idepth = 0, o0 = 0, o1 = 0, oon = 0, odepth = 0 }
end

local function kind_of_8()
  float8_kind = float8_kind or require('amp.precision.float8_region').kind(kind)
  return float8_kind
end

local function begin(asked, op)
  local eight = asked.float8
  if not eight then return kind, record(asked) end
  local rec = record(asked)
  rec.op, rec.exclusion = op, require('amp.precision.float8_region').exclusion(eight)
  return kind_of_8(), rec
end

local function device_type(op, device)
  if type(device) ~= 'string' then err.throw_code('device', op, "a device must be a string like 'cuda', got %s", util.show(device)) end
  local code = types.device_code[device]
  if code == nil then
    err.throw_code('device', op, "%s is no device: 'cpu', 'cuda' or 'cuda:1' (counted from 1)", util.show(device))
  end
  return math.floor(code / 256)
end

local function need_boolean(op, name, v)
  if v ~= nil and type(v) ~= 'boolean' then err.throw(op, "option '%s' must be true or false, got %s", name, util.show(v)) end
end

-- What options ask for: words by device type, nil where a device is left as it is.
local function parse(op, o)
  local given = o or {}
  o = {}
  for k, v in pairs(given) do
    local name = nil
    for i = 1, #option_names do name = option_names[i] == k and k or name end
    name = name or require('amp.precision.spelling').same(k, option_names)
    if not name then
      err.throw(op, 'unknown option %s%s (there are %s)', util.show(k), util.hint(k, option_names), table.concat(option_names, ', '))
    end
    if o[name] ~= nil then err.throw(op, "option '%s' is given twice, by two names", name) end
    o[name] = v
  end
  need_boolean(op, 'enabled', o.enabled)
  need_boolean(op, 'cache_enabled', o.cache_enabled)
  need_boolean(op, 'verbose', o.verbose)
  local enabled = o.enabled ~= false
  local dtype, eight
  if o.dtype == 'float8' then
    eight = require('amp.precision.float8_region').parse(op, o)
    dtype = eight.base
  elseif o.base ~= nil or o.recipe ~= nil or o.history ~= nil or o.exclude ~= nil then
    local name = o.base ~= nil and 'base' or o.recipe ~= nil and 'recipe' or o.history ~= nil and 'history' or 'exclude'
    err.throw(op, "option '%s' is of regions of 8 bits only: dtype = 'float8', got dtype %s", name, util.show(o.dtype))
  elseif o.dtype ~= nil then
    dtype = types.dtype(o.dtype, op)
    if dtype ~= types.dtype_code.float16 and dtype ~= types.dtype_code.bfloat16 then
      if enabled then
        warn.once(("amp.autocast: dtype '%s' is not supported, only float16, bfloat16 and 'float8' are; the region runs without autocast")
          :format(types.dtype_name[dtype]), 'autocast dtype ' .. types.dtype_name[dtype])
      end
      enabled, dtype = false, nil
    end
  end
  local asked = {}
  local only = o.device ~= nil and device_type(op, o.device) or nil
  if only and enabled and C.amp_device_available(only) == 0 then
    local why = C.amp_device_reason(only)
    warn.once(("amp.autocast: device '%s' is not there%s; the region runs without autocast"):format(o.device,
      why ~= nil and ' (' .. ffi.string(why) .. ')' or ''), 'autocast device ' .. only)
    enabled = false
  end
  for d = 0, 1 do
    if only == nil or only == d then
      asked[d] = words.pack(enabled, dtype or DEFAULT[d], o.cache_enabled ~= false, o.verbose, enabled and eight and eight.recipe, eight and eight.history)
    end
  end
  asked.on = { [0] = enabled and asked[0] ~= nil, [1] = enabled and asked[1] ~= nil }
  asked.verbose = o.verbose
  asked.float8 = enabled and eight or nil
  return asked
end

local by_default = parse('autocast', nil)

local function is_callable(fn)
  if type(fn) == 'function' then return true end
  local m = getmetatable(fn)
  return type(m) == 'table' and m.__call ~= nil
end

local function need_function(op, place, fn)
  if not is_callable(fn) then err.throw(op, 'argument %d must be a function, got %s', place, util.show(fn)) end
end

-- Options with PyTorch's first argument, a device, among them.
local function with_device(op, device, given)
  local o = { device = device }
  for k, v in pairs(given or {}) do
    if k == 'device' or k == 'device_type' then err.throw(op, 'the device is given twice: %s and %s', util.show(device), util.show(v)) end
    o[k] = v
  end
  return o
end

local function is_device(v) return type(v) == 'string' and types.device_code[v] ~= nil end
local function is_options(v) return type(v) == 'table' and not is_callable(v) end

--- Run a function in a region: its ops compute in a 16-bit dtype or in float32, each as its class says.
-- @tparam ?table options before or right behind fn; fn is the first argument without them: dtype ('float16' or 'bfloat16' or
--   'float8'; not given: float16 on a GPU, bfloat16 on the processor). Of 'float8', in which linear layers multiply 8-bit
--   floats and all else is a region of its base: base ('bfloat16', or 'float16'), recipe ('current', 'delayed' or 'block':
--   what a scale is made of), history (16: steps that 'delayed' looks back), exclude (names of modules that stay in the
--   base). For all: enabled (true; false: the region is as if there were no autocast), device (such as
--   'cuda': the only one that the region is for; not given: all), cache_enabled (true: casts of weights are kept till
--   the weight changes), verbose (of the region around this one, else false; true: each cast is printed)
-- @tparam function fn
-- @param ... its arguments
-- @return what fn returns
-- @raise an unknown option; what is no function. A device that is absent or a dtype other than these two is a
-- warning, and the region runs without autocast
-- @usage local loss = amp.autocast({dtype = 'bfloat16'}, function() return loss_of(net(x), y) end)
local function run(self, a, ...)
  local b = ...
  if type(a) == 'function' or is_callable(a) then
    if type(b) == 'table' and require('amp.options').meant(a, b, option_names) then
      local how, rec = begin(parse('autocast', b), 'autocast')
      return region.run(how, rec, a, select(2, ...))
    end
    return region.run(kind, record(by_default), a, ...)
  end
  if is_device(a) then
    if is_options(b) then return run(self, with_device('autocast', a, b), select(2, ...)) end
    local c = select(2, ...)
    if type(c) == 'table' and require('amp.options').meant(b, c, option_names) then return run(self, with_device('autocast', a, c), b, select(3, ...)) end
    return run(self, with_device('autocast', a), ...)
  end
  if type(a) ~= 'table' then
    err.throw('autocast', 'argument 1 must be a function, or options before it, got %s', util.show(a))
  end
  local asked = parse('autocast', a)
  need_function('autocast', 2, b)
  local how, rec = begin(asked, 'autocast')
  return region.run(how, rec, ...)
end

--- A function that runs fn in a region each time it is called.
-- @tparam function fn
-- @tparam ?table options those of amp.autocast, {dtype, base = 'bfloat16', recipe = 'current', history = 16, exclude,
-- enabled = true, device, cache_enabled = true, verbose}; in either order with fn
-- @param more after a device in front, as in ('cuda', fn, options): the last of the three
-- @treturn function
-- @usage local step = amp.autocast.wrap(function(x, y) return loss_of(net(x), y) end, {dtype = 'float16'})
function M.wrap(fn, options, more)
  if is_device(fn) then
    if is_options(options) then options, more = more, options end
    fn, options = options, with_device('autocast.wrap', fn, more)
  end
  if type(fn) == 'table' and not is_callable(fn) then fn, options = options, fn end
  need_function('autocast.wrap', 1, fn)
  if options ~= nil and type(options) ~= 'table' then
    err.throw('autocast.wrap', 'options must be a table, got %s', util.show(options))
  end
  local asked = parse('autocast.wrap', options)
  return function(...)
    local how, rec = begin(asked, 'autocast.wrap')
    return region.run(how, rec, fn, ...)
  end
end

--- The autocast state as a value, for `with`.
function M.snapshot()
  here()
  local state = { i0 = word[0], i1 = word[1], ion = S.autocast_on, idepth = S.autocast_depth }
  if words.is_float8(word[0]) or words.is_float8(word[1]) then
    state.step, state.exclusion = C.amp_float8_step(S), require('amp.precision.float8_region').current_exclusion()
  end
  return state
end

--- Run fn(...) in the state that `snapshot` gave.
function M.with(state, fn, ...)
  local rec = { i0 = state.i0, i1 = state.i1, ion = state.ion, idepth = state.idepth, o0 = 0, o1 = 0, oon = 0, odepth = 0 }
  if not state.step then return region.run(kind, rec, fn, ...) end
  rec.step, rec.exclusion = state.step, state.exclusion
  return region.run(kind_of_8(), rec, fn, ...)
end

--- Set the state outside of regions, for amp.init and amp.initialize.
function M.set_program(op, given)
  local asked = parse(op, given)
  here()
  for d = 0, 1 do word[d] = asked[d] or word[d] end
  S.autocast_on = (words.enabled(word[0]) or words.enabled(word[1])) and 1 or 0
end

--- Back to the state that `snapshot` gave, outside of regions; casts kept since go.
function M.restore(state)
  here()
  word[0], word[1], S.autocast_on = state.i0, state.i1, state.ion
  C.amp_autocast_leave(S)
end

local switched_off = parse('autocast', { enabled = false })

--- Run fn(...) with autocast off: as amp.autocast({enabled = false}, fn, ...).
function M.off(fn, ...)
  return region.run(kind, record(switched_off), fn, ...)
end

-- -- Switch and queries -------------------------------------------------------------------------

local function query_device(op, device)
  here()
  device = device == nil and S.default_device or device_type(op, device)
  words.tell(device)
  return device
end

--- amp.enabled
function M.is_enabled()
  here()
  words.tell()
  return S.autocast_on ~= 0
end

--- amp.enabled = b
function M.set_enabled(on)
  if type(on) ~= 'boolean' then err.throw('enabled', 'must be true or false, got %s', util.show(on)) end
  here()
  for d = 0, 1 do word[d] = words.switched(words.own(word[d]), on) end
  S.autocast_on = on and 1 or 0
  if not on and S.autocast_depth == 0 then C.amp_autocast_leave(S) end
end

--- @tparam ?string device default: the default device
function M.is_autocast_enabled(device)
  local d = query_device('is_autocast_enabled', device)
  return S.autocast_on ~= 0 and words.enabled(word[d])
end

--- dtype that a region on a device computes in: of the region around this, else the default.
-- @tparam ?string device default: the default device
-- @treturn string 'float8' in a region of 8 bits, whatever its base
function M.get_autocast_dtype(device)
  local w = word[query_device('get_autocast_dtype', device)]
  return words.is_float8(w) and 'float8' or types.dtype_name[words.dtype(w)]
end

--- The number of the 16-bit dtype of a region on a device: of one of 8 bits its base.
function M.base_dtype(device) return words.dtype(word[query_device('get_autocast_dtype', device)]) end

--- Forget the casts of weights, which are kept till the weight changes or goes, or memory is short.
function M.clear_autocast_cache() C.amp_clear_autocast_cache(S) end

--- host_waits, casts, cached_casts since this Lua state began, plain numbers; float8_casts: of the casts, those to 8 bits
function M.counters()
  return { host_waits = tonumber(S.host_waits), casts = tonumber(S.casts), cached_casts = tonumber(S.cached_casts),
    float8_casts = tonumber(C.amp_float8_casts(S)) }
end

-- -- Policy ----------------------------------------------------------------------------------------

-- Numbers of the ops that a name means.
local function op_ids(fname, op)
  if type(op) ~= 'string' then err.throw(fname, "argument 1 must be an op's name, got %s", util.show(op)) end
  local ids = {}
  for i, name in ipairs(require 'amp.ops.names'.need(fname, op)) do ids[i] = require('amp.ops.schema').by_name[name] end
  return ids
end

--- Autocast class of an op: 'lower', 'fp32', 'fp32_unless_dtype', 'promote', 'special', 'banned', 'passthrough'.
-- @tparam string op amp's name, or one of PyTorch, Apex, MXNet or MegEngine; one that stands for several ops
--   ('Convolution') gives the class that all of them have
function M.policy(op)
  local policies = require 'amp.precision.policy'
  local ids, names = op_ids('policy', op), {}
  local class = policies.name(ids[1])
  for i, id in ipairs(ids) do
    names[i] = ('%s (%s)'):format(ffi.string(C.amp_op_get(id).name), policies.name(id))
    if policies.name(id) ~= class then class = nil end
  end
  if class == nil then err.throw('policy', "'%s' stands for ops of several classes: %s; ask for one of them", op, table.concat(names, ', ')) end
  return class
end

--- Give an op another class, in the whole process.
-- @tparam string op as in amp.policy; each op that the name stands for gets the class
-- @tparam string class
function M.set_policy(op, class)
  local policies = require 'amp.precision.policy'
  local ids = op_ids('set_policy', op)
  local code = type(class) == 'string' and policies.classes[class]
  if not code then
    local names = util.keys(policies.classes)
    err.throw('set_policy', 'there is no class %s%s (there are %s)', util.show(class), util.hint(class, names), table.concat(names, ', '))
  end
  for _, id in ipairs(ids) do policies.set(id, code, true) end
end

--- The classes as built, of one op or of all.
function M.reset_policy(op)
  local policies = require 'amp.precision.policy'
  if op ~= nil then
    for _, id in ipairs(op_ids('reset_policy', op)) do policies.set(id, -1, true) end
  else
    for id = 0, C.amp_op_count() - 1 do policies.set(id, -1, true) end
  end
end

-- -- Wrappers for functions, in a file of their own ---------------------------------------------------

local whole = M
return setmetatable(M, {
  __call = run,
  __index = function(_, k)
    local v = require 'amp.precision.custom'(whole)[k]
    if v ~= nil then rawset(whole, k, v) end
    return v
  end,
})
