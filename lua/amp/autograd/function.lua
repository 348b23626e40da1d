--- amp.Function: a differentiable function whose two directions are written in Lua.
--     local square = amp.Function{
--       forward = function(ctx, x) ctx:save_for_backward(x) return x * x end,
--       backward = function(ctx, g) local x = ctx.saved_tensors[1] return 2 * x * g end }
--     local y = square(x)
-- Forward runs without recording; the results are tied to the tensor arguments by a node that
-- lives in the library, under an id by which Lua keeps the rest. Nested tables may be
-- arguments and results; backward gives one gradient per argument, nil for none.
-- @module amp.autograd.function
local ffi = require 'ffi'
local core = require 'amp.ffi'
local autograd = require 'amp.autograd'
local call = require 'amp.core.call'
local err = require 'amp.error'
local nested = require 'amp.core.nested'
local region = require 'amp.core.region'
local util = require 'amp.util'
local types = require 'amp.types'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype = ffi.istype
local closures = call.closures
local ordered, collect, flatten, rebuild, outlines = nested.ordered, nested.collect, nested.flatten, nested.rebuild, nested.outlines

local M = {}

local pointers = ffi.typeof 'amp_tensor *[?]'

-- A handle that no scope gives back.
local function hold(t)
  local o = ref_t()
  C.amp_retain(o, t)
  return o
end

local function detached(t)
  return call.make('Function', C.amp_detach, t)
end

-- -- Context ----------------------------------------------------------------------------------------

local Context = {}

-- The argument that a tensor is a cast of, by amp.custom_fwd.
local function source_of(ctx, t)
  local casts = rawget(ctx, '_casts')
  for i = 1, casts and #casts or 0 do
    if casts[i][1].ptr_ == t.ptr_ then return { handle = hold(casts[i][2]), version = tonumber(C.amp_tensor_version(casts[i][2])) } end
  end
end

--- Keep tensors for backward; nil may stand among them.
function Context:save_for_backward(...)
  local saved = { n = select('#', ...) }
  for i = 1, saved.n do
    local t = (select(i, ...))
    if istype(ref_t, t) then
      if t.ptr_ == nil then err.throw('Function', 'save_for_backward: tensor %d was freed', i) end
      saved[i] = { handle = hold(t), version = tonumber(C.amp_tensor_version(t)), source = source_of(self, t) }
    elseif type(t) ~= 'nil' then
      err.throw('Function', 'save_for_backward takes tensors, got %s in place %d; other values are plain fields of ctx', util.show(t), i)
    end
  end
  rawset(self, '_saved', saved)
end

-- Results so marked carry no gradient.
function Context:mark_non_differentiable(...)
  local list = { ... }
  rawset(self, '_plain', list)
end

local tie

-- What was saved of a result, as it was: tied anew to the arguments where derivatives of derivatives are recorded;
-- what was saved of a cast argument is cast anew there.
local function again_of(s)
  region.here()
  if S.grad_mode == 0 then return s.handle end
  local source = s.source
  if source then
    if tonumber(C.amp_tensor_version(source.handle)) ~= source.version then
      err.throw_code('autograd', 'Function', 'an argument (%s of shape %s) was changed in place after its cast was saved', source.handle.dtype,
        source.handle:size())
    end
    return source.handle:to(s.handle.dtype)
  end
  if not s.result then return s.handle end
  local again = detached(s.handle)
  local out = {}
  out[s.result] = again
  tie(s.record, out)
  return again
end

local context_mt = {
  __index = function(ctx, k)
    if k == 'saved_tensors' then
      local saved = rawget(ctx, '_saved')
      local list = { n = saved and saved.n or 0 }
      for i = 1, list.n do
        local s = saved[i]
        if s then
          local now = tonumber(C.amp_tensor_version(s.handle))
          if now ~= s.version then
            err.throw_code('autograd', 'Function', 'saved tensor %d (%s of shape %s) was changed in place after it was saved: '
              .. 'version %d, expected %d; save a clone or use the form without _', i, s.handle.dtype, s.handle:size(), now, s.version)
          end
          list[i] = again_of(s)
        end
      end
      return list
    end
    local own = rawget(ctx, '_own')
    if own and own[k] then return again_of(own[k]) end
    return Context[k]
  end,
}

-- -- Node ---------------------------------------------------------------------------------------------

-- Tie results (list with holes, record.nout places) to record.inputs. True if recorded.
tie = function(record, out)
  local inputs = record.inputs
  local nin, nout = #inputs, record.nout
  local in_, out_ = pointers(math.max(nin, 1)), pointers(math.max(nout, 1))
  for i = 1, nin do in_[i - 1] = inputs[i].ptr_ end
  for i = 1, nout do if out[i] then out_[i - 1] = out[i].ptr_ end end
  local id = ffi.new 'int64_t[1]'
  call.try('Function', C.amp_function, S, in_, nin, out_, nout, id)
  id = tonumber(id[0])
  if id ~= 0 then closures[id] = record end
  return id ~= 0
end
M.tie = tie

-- What the engine's stop calls: gradients of results in, gradients of inputs (flat) out.
local function run_backward(record, g)
  local args, results = record.args, record.results
  -- gradients in the results' own shape
  local given, at, seen = { n = results.n }, { 0 }, {}
  for i = 1, results.n do given[i] = rebuild(results[i], g, at, seen) end
  local back = util.pack(record.owner.backward(record.ctx, unpack(given, 1, given.n)))
  for i = args.n + 1, back.n do
    if type(back[i]) ~= 'nil' then
      err.throw('Function', 'backward gives %d gradients, but forward took %d arguments', back.n, args.n)
    end
  end
  local flat = {}
  local n = 0
  local function match(arg, v, path)
    if istype(ref_t, arg) then
      n = n + 1
      if type(v) ~= 'nil' then
        if not istype(ref_t, v) then
          err.throw('Function', 'backward must give a tensor or nil as gradient of %s, got %s', path, util.show(v))
        end
        flat[n] = v
      end
    elseif type(arg) == 'table' then
      if v ~= nil and type(v) ~= 'table' then
        err.throw('Function', 'backward must give a table as gradient of %s, as the argument is one, got %s', path,
          istype(ref_t, v) and 'a tensor' or util.show(v))
      end
      local keys = ordered(arg)
      for i = 1, #keys do
        local k = keys[i]
        match(arg[k], v and v[k], path .. '[' .. tostring(k) .. ']')
      end
    elseif type(v) ~= 'nil' then
      err.throw('Function', 'backward gives a gradient of %s, which is no tensor', path)
    end
  end
  for i = 1, args.n do match(args[i], back[i], 'argument ' .. i) end
  return flat
end

local function contains(list, t)
  for i = 1, #list do
    if list[i].ptr_ == t.ptr_ then return i end
  end
end

-- Results as new tensors where they are arguments or have a history of their own.
local function fresh(v, inputs, flat, seen)
  if istype(ref_t, v) then
    local p = v.ptr_
    if p == nil then err.throw('Function', 'forward gives a tensor that was freed') end
    local t = v
    if contains(inputs, v) or contains(flat, v) or p.flags % 4 ~= 0 then t = detached(v) end
    flat[#flat + 1] = t
    return t
  end
  if type(v) ~= 'table' or getmetatable(v) ~= nil or seen[v] then return v end
  seen[v] = true
  local keys = ordered(v)
  for i = 1, #keys do v[keys[i]] = fresh(v[keys[i]], inputs, flat, seen) end
  return v
end

local Function = {}
Function.__index = Function
Function.__tostring = function(f) return 'amp.Function' .. (f.name and ' ' .. f.name or '') end

local function tracked(t)
  return C.amp_tensor_flags(t) % 4 ~= 0 and types.has_gradient(t.ptr_.dtype)
end

Function.__call = function(self, ...)
  call.here()
  if C.amp_graph_recording(S) ~= 0 then
    err.throw_code('unsupported', 'Function', "a graph is recorded, which can't hold what happens here: an amp.Function is called; "
      .. "build it of ops, or call it outside of what is recorded")
  end
  local args = util.pack(...)
  local inputs = flatten(args)
  local any = false
  for i = 1, #inputs do
    if inputs[i].ptr_ == nil then err.throw('Function', 'tensor %d among the arguments was freed', i) end
    any = any or tracked(inputs[i])
  end
  local ctx = setmetatable({ needs_input_grad = {} }, context_mt)
  for i = 1, args.n do
    local inside = {}
    collect(args[i], inside, {})
    local needs = false
    for k = 1, #inside do needs = needs or tracked(inside[k]) end
    ctx.needs_input_grad[i] = needs
  end
  local results = util.pack(region.run(autograd.mode, { inner = 0, outer = 0 }, self.forward, ctx, ...))
  if S.grad_mode == 0 or not any then return unpack(results, 1, results.n) end

  local given = flatten(results)
  local flat, seen = {}, {}
  for i = 1, results.n do results[i] = fresh(results[i], inputs, flat, seen) end
  if #flat == 0 then return unpack(results, 1, results.n) end
  local record = { owner = self, ctx = ctx, backward = run_backward, nout = #flat, args = outlines(args), results = outlines(results) }
  local out = {}
  local plain = rawget(ctx, '_plain') or {}
  for i = 1, #flat do
    if types.has_gradient(flat[i].ptr_.dtype) and not contains(plain, given[i]) then out[i] = flat[i] end
  end
  rawset(ctx, '_plain', nil)
  record.inputs = inputs
  -- results among what was saved, or in fields of ctx: an alias, so that the node doesn't hold itself
  local saved, again = rawget(ctx, '_saved'), false
  local function alias(s)
    local k = contains(flat, s.handle) or contains(given, s.handle)
    if not k or contains(inputs, s.handle) then return end
    s.handle = hold(detached(s.handle))
    s.result, s.record = out[k] and k, record
    again = true
    return s
  end
  for i = 1, saved and saved.n or 0 do if saved[i] then alias(saved[i]) end end
  local own = {}
  for k, v in next, ctx do
    if istype(ref_t, v) and v.ptr_ ~= nil then
      local source = source_of(ctx, v)
      own[k] = source and { handle = hold(v), source = source } or alias { handle = v }
      if call.made and not own[k] then rawset(ctx, k, hold(v)) end -- the scope's end frees v
    end
  end
  for k in next, own do rawset(ctx, k, nil) end
  rawset(ctx, '_own', own)
  rawset(ctx, '_casts', nil)
  tie(record, out)
  if again then
    local held = {}
    for i = 1, #inputs do held[i] = hold(inputs[i]) end
    record.inputs = held
  else
    record.inputs = nil
  end
  return unpack(results, 1, results.n)
end

--- Make a differentiable function.
-- @tparam table def {forward = function(ctx, ...), backward = function(ctx, ...), name = string}
-- @treturn Function to be called like a function
function M.Function(def, excess)
  require('amp.options').none('Function', excess)
  if type(def) ~= 'table' then err.throw('Function', 'expected a table with forward and backward, got %s', util.show(def)) end
  for k in pairs(def) do
    if k ~= 'forward' and k ~= 'backward' and k ~= 'name' then
      if k == 'setup_context' then
        err.throw('Function', 'setup_context is not known here: forward takes ctx first and saves what backward needs')
      end
      err.throw('Function', 'unknown field %s%s (there are forward, backward, name)', util.show(k),
        util.hint(k, { 'forward', 'backward', 'name' }))
    end
  end
  for _, k in ipairs { 'forward', 'backward' } do
    if type(def[k]) ~= 'function' then err.throw('Function', "field '%s' must be a function, got %s", k, util.show(def[k])) end
  end
  return setmetatable({ forward = def.forward, backward = def.backward, name = def.name }, Function)
end

M.detached, M.hold = detached, hold

require('amp.core.class').guard(Context, 'Function', 'ctx', context_mt)

return M
