--- Functions of the user's that take part in autocast: custom_fwd and custom_bwd for the two
-- functions of an amp.Function, and wrappers that give any function a class.
-- @module amp.custom
local ffi = require 'ffi'
local core = require 'amp.ffi'
local err = require 'amp.error'
local here = require('amp.region').here
local ops = require 'amp.ops'
local types = require 'amp.types'
local util = require 'amp.util'
local words = require 'amp.words'
local S, ref_t = core.S, core.ref_t
local istype = ffi.istype

local cache

local function make(autocast)
  local M = {}
  local cast = ops.get 'cast'

  -- -- Casting arguments ---------------------------------------------------------------------

  local function eligible(t)
    local p = t.ptr_
    return p ~= nil and p.dtype >= 1 and p.dtype <= 3 and words.enabled(words.of[p.device])
  end

  -- A copy of a nested value with every eligible tensor passed through f.
  local function map(f, v, seen)
    if istype(ref_t, v) then return eligible(v) and f(v) or v end
    if type(v) ~= 'table' or getmetatable(v) ~= nil then return v end
    seen = seen or {}
    if seen[v] then return seen[v] end
    local copy = {}
    seen[v] = copy
    for k, x in pairs(v) do copy[k] = map(f, x, seen) end
    return copy
  end

  local function map_all(f, ...)
    local n = select('#', ...)
    local args = { ... }
    for i = 1, n do args[i] = map(f, args[i]) end
    return unpack(args, 1, n)
  end

  local function to(code)
    local name = types.dtype_name[code]
    return function(t) return t.ptr_.dtype == code and t or cast(t, name) end
  end

  local function to_low(t)
    local code = words.dtype(words.of[t.ptr_.device])
    return t.ptr_.dtype == code and t or cast(t, types.dtype_name[code])
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
  function M.custom_fwd(fn, options)
    if type(fn) == 'table' and getmetatable(fn) == nil then fn, options = options, fn end
    need_function('custom_fwd', fn)
    if options ~= nil and type(options) ~= 'table' then
      err.throw('custom_fwd', 'options are a table, as in {cast_inputs = \'float16\'}, got %s', util.show(options))
    end
    options = options or {}
    for k in pairs(options) do
      if k ~= 'cast_inputs' then
        err.throw('custom_fwd', 'unknown option %s%s (there is cast_inputs)', util.show(k), util.hint(k, { 'cast_inputs' }))
      end
    end
    local code = options.cast_inputs and types.dtype(options.cast_inputs, 'custom_fwd')
    return function(ctx, ...)
      here()
      if not code or S.autocast_on == 0 then
        ctx.autocast_state = autocast.snapshot()
        return fn(ctx, ...)
      end
      local cast_one, casts = to(code), {}
      rawset(ctx, '_casts', casts) -- derivatives of derivatives go on to what was cast
      return autocast.off(function(...)
        ctx.autocast_state = autocast.snapshot()
        return fn(ctx, ...)
      end, map_all(function(t)
        local x = cast_one(t)
        if x ~= t then casts[#casts + 1] = { x, t } end
        return x
      end, ...))
    end
  end

  --- Wrap a Function's backward, whose forward is wrapped by custom_fwd.
  function M.custom_bwd(fn)
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

  --- fn with its float tensors cast to the region's low dtype; outside a region fn itself.
  function M.half_function(fn)
    need_function('half_function', fn)
    return function(...)
      here()
      if S.autocast_on == 0 then return fn(...) end
      return fn(map_all(to_low, ...))
    end
  end

  local float32 = to(types.dtype_code.float32)

  --- fn in float32: half inputs are cast up, and autocast is off inside.
  function M.float_function(fn)
    need_function('float_function', fn)
    return function(...)
      here()
      if S.autocast_on == 0 then return fn(...) end
      return autocast.off(fn, map_all(float32, ...))
    end
  end

  --- fn with its float tensors cast to the widest dtype among them.
  function M.promote_function(fn)
    need_function('promote_function', fn)
    return function(...)
      here()
      if S.autocast_on == 0 then return fn(...) end
      local widest
      map_all(function(t)
        local code = t.ptr_.dtype
        if widest == nil then widest = code
        elseif widest ~= code then widest = 1 end -- float16 with bfloat16, or either with float32
        return t
      end, ...)
      if widest == nil then return fn(...) end
      return fn(map_all(to(widest), ...))
    end
  end

  -- -- Registered functions ---------------------------------------------------------------------------

  local originals = setmetatable({}, { __mode = 'k' }) -- module -> name -> function before

  local function register(op, wrap)
    --- register_half_function(module, 'name'), register_float_function, register_promote_function: in autocast regions the
    -- function's tensors are cast to 16 bits, to float32, or to the widest dtype among them.
    return function(module, name)
      if type(module) ~= 'table' then err.throw(op, 'argument 1 must be a table of functions, got %s', util.show(module)) end
      local mine = originals[module]
      local fn = mine and mine[name] or (type(name) == 'string' and module[name]) or nil
      if fn == nil then
        err.throw(op, 'there is no function %s in that table%s', util.show(name), util.hint(name, util.keys(module)))
      end
      if type(fn) ~= 'function' then err.throw(op, '%s in that table is %s, no function', util.show(name), util.show(fn)) end
      if not mine then
        mine = {}
        originals[module] = mine
      end
      mine[name] = fn
      module[name] = wrap(fn)
    end
  end

  M.register_half_function = register('register_half_function', M.half_function)
  M.register_float_function = register('register_float_function', M.float_function)
  M.register_promote_function = register('register_promote_function', M.promote_function)

  --- Undo every registration.
  function M.unregister_functions()
    for module, names in pairs(originals) do
      for name, fn in pairs(names) do module[name] = fn end
      originals[module] = nil
    end
  end

  return M
end

return function(autocast)
  cache = cache or make(autocast)
  return cache
end
