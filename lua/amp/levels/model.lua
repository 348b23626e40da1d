--- A network at opt_level O0, O2 or O3: its parameters in another dtype, its forward with casts,
-- its state dicts in float32.
-- Tensors keep their identity. Batch norm takes 16-bit data beside float32 parameters as it is;
-- other modules that stay in float32 get their inputs cast up and their outputs down again.
-- @module amp.levels.model
local ffi = require 'ffi'
local core = require 'amp.ffi'
local side = require 'amp.levels.master_step'
local util = require 'amp.util'
local warn = require 'amp.core.warn'
local words = require 'amp.precision.autocast_state'
local Module = require 'amp.nn.module'
local masters = require 'amp.nn.core.masters'
local BatchNorm = require('amp.nn.norm').BatchNorm1d.super
local ref_t = core.ref_t
local istype = ffi.istype

local M = {}

-- -- Casts of arguments and results ---------------------------------------------------------------

local function is_float(t) return t.ptr_ ~= nil and t.ptr_.dtype <= 3 end

-- t in a dtype; a verbose region prints the cast.
local function cast_one(t, dtype, who, place)
  local before = t.dtype
  if before == dtype then return t end
  if words.verbose(words.of[t.ptr_.device]) then
    warn.log(('amp: %s: %s from %s to %s, %s'):format(who, place, before, dtype, util.shape(t.shape)))
  end
  return t:to(dtype)
end

-- A copy of a value with the float tensors in it cast; an object that has a method `to` (a packed
-- sequence) is asked.
local function cast(v, dtype, who, place, seen)
  if istype(ref_t, v) then return is_float(v) and cast_one(v, dtype, who, place) or v end
  if type(v) ~= 'table' then return v end
  if seen[v] then return seen[v] end
  if getmetatable(v) ~= nil then
    if Module.is_module(v) or type(v.to) ~= 'function' then return v end
    return v:to(dtype)
  end
  local copy = {}
  seen[v] = copy
  for k, x in pairs(v) do copy[k] = cast(x, dtype, who, place, seen) end
  return copy
end

local function cast_all(dtype, who, what, ...)
  local list, seen = util.pack(...), {}
  for i = 1, list.n do list[i] = cast(list[i], dtype, who, what .. ' ' .. i, seen) end
  return unpack(list, 1, list.n)
end

-- Replace a module's forward by one with casts around it; again: by one with other casts.
local function wrap(m, input, output)
  local at = Module.inside(m)
  local values, rec = rawget(at, '.values'), rawget(at, '.casts')
  if not rec then
    rec = { forward = rawget(values, 'forward') }
    rawset(at, '.casts', rec)
  end
  rec.input, rec.output = input, output
  local own, class = rec.forward, getmetatable(m).class
  values.forward = function(self, ...)
    local forward = own or class.forward
    local dtype = rec.output
    if rec.input then
      local who = self.__name
      if dtype then return cast_all(dtype, who, 'result', forward(self, cast_all(rec.input, who, 'argument', ...))) end
      return forward(self, cast_all(rec.input, who, 'argument', ...))
    end
    return cast_all(dtype, self.__name, 'result', forward(self, ...))
  end
end

M.wrap = wrap

-- -- Casting ---------------------------------------------------------------------------------------

-- Whether a module's own tensors stay in float32, and whether it needs casts around it then.
local function stays(m, name, o)
  if o.keep_batchnorm_fp32 and m:is(BatchNorm) then return true, false end
  local keep = o.keep_fp32
  if keep == nil then return false end
  if type(keep) == 'function' then return keep(m, name) and true or false, true end
  for _, k in ipairs(keep) do
    if k == m or k == name or (type(k) == 'table' and not Module.is_module(k) and m:is(k)) then return true, true end
  end
  return false
end

local function own_tensors(m, f)
  local at = Module.inside(m)
  local kinds, values = rawget(at, '.kinds'), rawget(at, '.values')
  for _, name in ipairs(rawget(at, '.names')) do
    local v = values[name]
    if kinds[name] ~= 'module' and istype(ref_t, v) and is_float(v) then f(v, kinds[name]) end
  end
end

--- Cast a network.
-- @tparam nn.Module net
-- @tparam table o cast_model_type (false: parameters stay), cast_model_outputs, keep_batchnorm_fp32, keep_fp32,
--   master_weights (16-bit parameters get masters that keep the float32 values)
-- @tparam table stepped ids of the parameters that an optimizer has; others get no masters
function M.cast(net, o, stepped)
  local dtype = o.cast_model_type
  local output = o.cast_model_outputs
  if output == nil and dtype then output = 'float32' end
  if dtype then
    local low = dtype ~= 'float32'
    local record = { masters = {} } -- shared by the modules: what their state dicts need
    local kept, done = {}, {}
    masters.used = true
    for name, m in net:named_modules() do
      local keep, casts = false, false
      if low then keep, casts = stays(m, name, o) end
      local inside = false -- of a module that is kept whole
      for _, prefix in ipairs(kept) do inside = inside or name:sub(1, #prefix + 1) == prefix .. '.' end
      keep = keep or inside
      if keep and casts and not inside and m ~= net then
        kept[#kept + 1] = name
        wrap(m, 'float32', dtype)
      end
      if low then rawset(Module.inside(m), '.record', record) end
      own_tensors(m, function(t, what)
        local id = t:id()
        if done[id] then return end
        done[id] = true
        local want = keep and 'float32' or dtype
        if t.dtype == want then return end
        local grad = t.grad
        t.grad = nil
        if low and not keep and what == 'parameter' and o.master_weights and stepped[id] then
          record.masters[id] = side.lower(t, dtype)
        else
          t:set_data(t:detach():to(want))
        end
        if grad then t.grad = grad:to(want) end
      end)
    end
  end
  if dtype or output then wrap(net, dtype or nil, output or nil) end
end

return M
