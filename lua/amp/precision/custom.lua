--- Functions of the user's that take part in autocast: custom_fwd and custom_bwd for the two
-- functions of an amp.Function, and wrappers that give any function a class.
-- @module amp.precision.custom
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local options = require 'amp.options'
local here = require('amp.core.region').here
local types = require 'amp.types'
local util = require 'amp.util'
local words = require 'amp.precision.autocast_state'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype = ffi.istype

local cache

local function make(autocast)
  local M = {}

  -- -- Casting arguments ---------------------------------------------------------------------

  local function eligible(t)
    local p = t.ptr_
    return p ~= nil and p.dtype >= 1 and p.dtype <= 3 and words.enabled(words.of[p.device])
  end

  -- t in a dtype, cast as a region casts an op's argument: parameters' copies are kept, casts are counted and printed.
  local function cast(t, code, who, place)
    if t.ptr_.dtype == code then return t end
    return call.make(who, C.amp_autocast_cast, t, code, who, place)
  end

  -- A copy of a nested value with every eligible tensor passed through f(tensor, place), place the argument's number.
  local function map(f, v, place, seen)
    if istype(ref_t, v) then return eligible(v) and f(v, place) or v end
    if type(v) ~= 'table' or getmetatable(v) ~= nil then return v end
    seen = seen or {}
    if seen[v] then return seen[v] end
    local copy = {}
    seen[v] = copy
    for k, x in pairs(v) do copy[k] = map(f, x, place, seen) end
    return copy
  end

  local function map_all(f, ...)
    local n = select('#', ...)
    local args = { ... }
    for i = 1, n do args[i] = map(f, args[i], i) end
    return unpack(args, 1, n)
  end

  local function to(code, who)
    return function(t, place) return cast(t, code, who, place) end
  end

  local function to_low(who)
    return function(t, place) return cast(t, words.dtype(words.of[t.ptr_.device]), who, place) end
  end

  local function need_function(op, fn)
    if type(fn) == 'function' then return end
    local m = getmetatable(fn)
    if type(m) == 'table' and m.__call then return end
    err.throw(op, 'argument 1 must be a function, got %s', util.show(fn))
  end

  -- -- The two functions of an amp.Function ------------------------------------------------------

  --- Wrap a Function's forward. With cast_inputs, inside a region float tensors come cast and
  -- both directions run with autocast off; without, backward runs in the forward's state.
  -- @tparam function fn
  -- @tparam ?table options {cast_inputs = dtype}
  function M.custom_fwd(fn, given)
    if type(fn) == 'table' and getmetatable(fn) == nil then fn, given = given, fn end
    need_function('custom_fwd', fn)
    if given ~= nil and type(given) ~= 'table' then
      err.throw('custom_fwd', 'options are a table, as in {cast_inputs = \'float16\'}, got %s', util.show(given))
    end
    local o = options.read('custom_fwd', given, { 'cast_inputs', 'device' })
    local code = o.cast_inputs and types.dtype(o.cast_inputs, 'custom_fwd')
    if o.device ~= nil then require('amp.precision.scaler_options').check_device('custom_fwd', o.device) end -- PyTorch's device_type: the tensors say theirs
    return function(ctx, ...)
      here()
      if not code or S.autocast_on == 0 then
        ctx.autocast_state = autocast.snapshot()
        return fn(ctx, ...)
      end
      local cast_one, casts = to(code, 'custom_fwd'), {}
      rawset(ctx, '_casts', casts) -- derivatives of derivatives go on to what was cast
      return autocast.off(function(...)
        ctx.autocast_state = autocast.snapshot()
        return fn(ctx, ...)
      end, map_all(function(t, place)
        local x = cast_one(t, place)
        if x ~= t then casts[#casts + 1] = { x, t } end
        return x
      end, ...))
    end
  end

  --- Wrap a Function's backward, whose forward is wrapped by custom_fwd.
  -- @tparam function fn
  -- @tparam ?table given {device}, PyTorch's device_type: checked, without effect
  function M.custom_bwd(fn, given)
    if type(fn) == 'table' and getmetatable(fn) == nil then fn, given = given, fn end
    local o = options.read('custom_bwd', given, { 'device' })
    if o.device ~= nil then require('amp.precision.scaler_options').check_device('custom_bwd', o.device) end
    need_function('custom_bwd', fn)
    return function(ctx, ...)
      local state = ctx.autocast_state
      if state == nil then
        err.throw('custom_bwd', "the forward function of this amp.Function is not wrapped; wrap it with amp.custom_fwd")
      end
      return autocast.with(state, fn, ctx, ...)
    end
  end

  -- -- Classes for functions -----------------------------------------------------------------------

  -- Wrappers of a function for a name, which stands in verbose lines and errors.
  local wrappers = {}

  function wrappers.half_function(fn, who)
    local f = to_low(who)
    return function(...)
      here()
      words.tell()
      if S.autocast_on == 0 then return fn(...) end
      return fn(map_all(f, ...))
    end
  end

  function wrappers.float_function(fn, who)
    local f = to(types.dtype_code.float32, who)
    return function(...)
      here()
      words.tell()
      if S.autocast_on == 0 then return fn(...) end
      return autocast.off(fn, map_all(f, ...))
    end
  end

  function wrappers.promote_function(fn, who)
    return function(...)
      here()
      words.tell()
      if S.autocast_on == 0 then return fn(...) end
      local widest
      map_all(function(t)
        local code = t.ptr_.dtype
        if widest == nil then widest = code
        elseif widest ~= code then widest = 1 end -- float16 with bfloat16, or either with float32
        return t
      end, ...)
      if widest == nil then return fn(...) end
      return fn(map_all(to(widest, who), ...))
    end
  end

  --- fn with its float tensors cast to the region's low dtype; outside a region fn itself.
  -- @tparam function fn
  function M.half_function(fn, excess)
    need_function('half_function', fn)
    require('amp.options').none('half_function', excess)
    return wrappers.half_function(fn, 'half_function')
  end

  --- fn in float32: half inputs are cast up, and autocast is off inside.
  -- @tparam function fn
  function M.float_function(fn, excess)
    need_function('float_function', fn)
    require('amp.options').none('float_function', excess)
    return wrappers.float_function(fn, 'float_function')
  end

  --- fn with its float tensors cast to the widest dtype among them.
  -- @tparam function fn
  function M.promote_function(fn, excess)
    need_function('promote_function', fn)
    require('amp.options').none('promote_function', excess)
    return wrappers.promote_function(fn, 'promote_function')
  end

  -- -- Registered functions ---------------------------------------------------------------------------

  local originals = setmetatable({}, { __mode = 'k' }) -- module -> name -> function before
  local classes = { half_function = 'lower', float_function = 'fp32', promote_function = 'promote' }
  local before = {} -- name of one of amp's ops -> class before its first registration

  -- amp's own tables of functions: what is registered there is the op, wherever it is used.
  local function is_amp(module)
    return module == package.loaded['amp'] or module == package.loaded['amp.nn.functional']
      or module == (package.loaded['amp.tensor'] or {}).methods
  end

  local function register(kind)
    local op = 'register_' .. kind
    --- register_half_function(module, 'name'), register_float_function, register_promote_function: in autocast regions the
    -- function's tensors are cast to 16 bits, to float32, or to the widest dtype among them. An op of amp or amp.nn.functional
    -- gets the class 'lower', 'fp32' or 'promote', so that methods, operators and layers which use it follow; of any other
    -- table the function in that place is replaced.
    return function(module, name, excess)
      require('amp.options').none(op, excess)
      if type(module) ~= 'table' then
        err.throw(op, "argument 1 must be a table of functions (amp stands for methods and layers, too), got %s", util.show(module))
      end
      local tensor = package.loaded['amp.tensor']
      if tensor and module == tensor then module = tensor.methods end -- amp.Tensor
      if is_amp(module) and type(name) == 'string' then
        local found = require('amp.ops.names').find(name)
        if found then
          for _, one in ipairs(found) do
            before[one] = before[one] or autocast.policy(one)
            autocast.set_policy(one, classes[kind])
          end
          return
        end
      end
      local mine = originals[module]
      local fn = mine and mine[name]
      if fn == nil and type(name) == 'string' then
        local ok, v = pcall(function() return module[name] end)
        fn = ok and v or nil
      end
      if fn == nil and is_amp(module) and type(name) == 'string' then require('amp.ops.names').need(op, name) end
      if fn == nil then
        err.throw(op, 'there is no function %s in that table%s', util.show(name), util.hint(name, util.keys(module)))
      end
      if type(fn) ~= 'function' then err.throw(op, '%s in that table is %s, no function', util.show(name), util.show(fn)) end
      if not mine then
        mine = {}
        originals[module] = mine
      end
      mine[name] = fn
      module[name] = wrappers[kind](fn, name)
    end
  end

  M.register_half_function = register 'half_function'
  M.register_float_function = register 'float_function'
  M.register_promote_function = register 'promote_function'

  --- Undo every registration.
  function M.unregister_functions()
    for module, names in pairs(originals) do
      for name, fn in pairs(names) do module[name] = fn end
      originals[module] = nil
    end
    local policies = require 'amp.precision.policy'
    for name, class in pairs(before) do
      policies.set(require('amp.ops.schema').by_name[name], policies.classes[class], false)
      before[name] = nil
    end
  end

  return M
end

return function(autocast)
  cache = cache or make(autocast)
  return cache
end
