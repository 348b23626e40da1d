--- Gradients: backward, amp.grad, grad mode, hooks.
-- Arguments are checked here; amp.engine runs the library's engine.
-- @module amp.autograd
local ffi = require 'ffi'
local next_key = require('amp.core.keys').next
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local engine = require 'amp.autograd.engine'
local err = require 'amp.error'
local region = require 'amp.core.region'
local util = require 'amp.util'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype = ffi.istype

local M = {}
M.methods = {}

local CREATE_GRAPH, RETAIN_GRAPH = C.AMP_B_CREATE_GRAPH, C.AMP_B_RETAIN_GRAPH
local ACCUMULATE, ALLOW_UNUSED = C.AMP_B_ACCUMULATE, C.AMP_B_ALLOW_UNUSED
local begin, closures = engine.begin, call.closures

-- -- Grad mode ---------------------------------------------------------------------------------

local here = region.here
local recording = ffi.cast('int32_t *', ffi.cast('char *', S) + ffi.offsetof('amp_state', 'grad_mode')) -- quicker than by name
local mode = region.kind(
  function(rec) rec.outer = recording[0] end, function(rec) recording[0] = rec.inner end,
  function(rec) rec.inner = recording[0] end, function(rec) recording[0] = rec.outer end, nil, nil, nil,
  function(rec, group, n)
    rec.outer = recording[0]
    group.n = n
    recording[0] = rec.inner
  end)
mode.reuse = true
M.recording = recording

local function record(inner)
  local rec = mode.spare
  if rec then
    mode.spare, rec.inner = nil, inner
    return rec
  end
  return { inner = inner, outer = 0 }
end

local function need_function(op, fn)
  if type(fn) == 'function' then return end
  local m = getmetatable(fn)
  if type(m) == 'table' and m.__call then return end
  err.throw(op, 'argument 1 must be a function, as in amp.%s(function() ... end), got %s', op, util.show(fn))
end

--- Run fn(...) without recording; gives its results.
function M.no_grad(fn, ...)
  need_function('no_grad', fn)
  return region.run(mode, record(0), fn, ...)
end

--- Run fn(...) recording, also inside no_grad.
function M.enable_grad(fn, ...)
  need_function('enable_grad', fn)
  return region.run(mode, record(1), fn, ...)
end

--- Run fn(...) with recording on or off.
function M.set_grad_enabled(on, fn, ...)
  if type(on) ~= 'boolean' then err.throw('set_grad_enabled', 'argument 1 must be true or false, got %s', util.show(on)) end
  if fn == nil then
    here()
    S.grad_mode = on and 1 or 0
    return
  end
  need_function('set_grad_enabled', fn)
  return region.run(mode, record(on and 1 or 0), fn, ...)
end

local caller = 1 -- what the grad mode was where a graph began to be recorded

--- While a graph is recorded its caller's mode is not in force (it is 2), but a script may ask for it.
function M.callers(now)
  local before = caller
  if now ~= 2 then caller = now end
  return before
end

--- Whether ops are recorded for backward now.
function M.is_grad_enabled()
  here()
  local on = S.grad_mode
  return (on == 2 and caller or on) ~= 0
end

-- -- Begin ------------------------------------------------------------------------------------------

local function tensor_list(op, list, what)
  if istype(ref_t, list) then
    if list.ptr_ ~= nil then return { list } end
    list = { list }
  end
  if type(list) ~= 'table' then err.throw(op, '%s must be a tensor or a list of tensors, got %s', what, util.show(list)) end
  local n = #list
  if n == 0 or next_key(list, n) ~= nil then err.list(op, list, what) end
  for i = 1, n do
    local t = list[i]
    if not istype(ref_t, t) then
      err.list(op, list, what)
      err.throw(op, 'element %d of %s must be a tensor, got %s', i, what, util.show(t))
    end
    if t.ptr_ == nil then err.throw(op, 'element %d of %s was freed', i, what) end
  end
  if n == 0 then err.throw(op, '%s is an empty list', what) end
  return list
end

-- Gradients beside roots; holes (nil or false) mean: none given.
local function gradient_list(op, grads, n)
  if grads == nil then return nil end
  if istype(ref_t, grads) then grads = { grads } end
  if n == 1 and type(grads) == 'table' and istype(ref_t, grads[1]) and next_key(grads) == 1 and next_key(grads, 1) == nil
    and grads[1].ptr_ ~= nil then return grads end -- without a loop, as options
  if type(grads) ~= 'table' then err.throw(op, 'gradients must be a tensor or a list of tensors, got %s', util.show(grads)) end
  for k, g in pairs(grads) do
    if type(k) ~= 'number' or k < 1 or k > n then
      err.throw(op, '%d gradients are expected, but there is one at %s', n, util.show(k))
    end
    if g and not istype(ref_t, g) then err.throw(op, 'gradient %d must be a tensor, got %s', k, util.show(g)) end
    if g and g.ptr_ == nil then err.throw(op, 'gradient %d was freed', k) end
  end
  return grads
end

local none = {}
local function known_options(...)
  local list = { set = {}, ... }
  for _, k in ipairs(list) do list.set[k] = true end
  return list
end
local of_backward = known_options('grad_tensors', 'retain_graph', 'create_graph', 'inputs')
local of_method = known_options('retain_graph', 'create_graph', 'inputs')
local of_grad = known_options('grad_outputs', 'create_graph', 'retain_graph', 'allow_unused')
local beside_gradients = known_options('create_graph', 'retain_graph', 'allow_unused')

-- Whether all keys are known options, of which there are at most four. Without a loop: LuaJIT would compile that by
-- itself, and then no loop around the call.
local function all_known(o, set)
  local k = next_key(o)
  if k == nil then return true elseif not set[k] then return false end
  k = next_key(o, k)
  if k == nil then return true elseif not set[k] then return false end
  k = next_key(o, k)
  if k == nil then return true elseif not set[k] then return false end
  k = next_key(o, k)
  return k == nil or set[k] and next_key(o, k) == nil
end

local function options(op, o, known)
  if o == nil then return none end
  return type(o) == 'table' and all_known(o, known.set) and o or require('amp.options').read(op, o, known)
end

local function flags_of(o)
  local create = o.create_graph and true or false
  local retain = o.retain_graph
  if retain == nil then retain = create end
  return (create and CREATE_GRAPH or 0) + (retain and RETAIN_GRAPH or 0)
end

-- Gradients where options are expected, as other systems have them: the options that say so.
local function of_gradients(o, name)
  if istype(ref_t, o) then return { [name] = { o } } end
  if type(o) == 'table' and getmetatable(o) == nil and istype(ref_t, o[1]) then return { [name] = o } end
  return o
end

--- Backward from several roots, into the leaves.
-- @tparam table|Tensor list roots
-- @tparam ?table o gradients of the roots, or {grad_tensors = list, retain_graph, create_graph, inputs = only these leaves}
function M.backward(list, o)
  list = tensor_list('backward', list, 'argument 1')
  o = of_gradients(o, 'grad_tensors')
  o = options('backward', o, of_backward)
  local grads = gradient_list('backward', o.grad_tensors, #list)
  local inputs = o.inputs ~= nil and tensor_list('backward', o.inputs, "option 'inputs'") or nil
  begin('backward', list, grads, inputs, flags_of(o) + ACCUMULATE)
end

--- t:backward(gradient, {retain_graph, create_graph}); gradient may be left out for one value.
function M.methods.backward(t, gradient, o)
  if not istype(ref_t, t) then err.throw('backward', 'is a method of tensors, called as t:backward(); got %s', util.show(t)) end
  if t.ptr_ == nil then err.throw('backward', 'the tensor was freed') end
  if type(gradient) == 'table' and o == nil then gradient, o = nil, gradient end
  if type(gradient) == 'number' then gradient = require('amp.tensor.create').full_like(t:detach(), gradient) end
  if type(gradient) ~= 'nil' and not istype(ref_t, gradient) then
    err.throw('backward', "argument 2 'gradient' must be a tensor, got %s", util.show(gradient))
  end
  o = options('backward', o, of_method)
  local inputs = o.inputs ~= nil and tensor_list('backward', o.inputs, "option 'inputs'") or nil
  begin('backward', { t }, type(gradient) ~= 'nil' and gradient_list('backward', { gradient }, 1) or nil, inputs, flags_of(o) + ACCUMULATE)
end

-- What `grad` gives: n gradients. No closure, which would keep LuaJIT from compiling its caller.
local function results(e, n)
  local list = {}
  for i = 1, n do
    local g = call.make('grad', C.amp_backward_result, e, i - 1)
    if g.ptr_ ~= nil then list[i] = g end
  end
  return list
end

--- Gradients of outputs in inputs, as a list; leaves keep their `grad`.
-- @tparam table|Tensor outputs
-- @tparam table|Tensor inputs
-- @tparam ?table o {grad_outputs, create_graph, retain_graph, allow_unused}
-- @treturn table one gradient per input (nil where unused and allowed)
function M.grad(outputs, inputs, o, more)
  outputs = tensor_list('grad', outputs, "argument 1 'outputs'")
  inputs = tensor_list('grad', inputs, "argument 2 'inputs'")
  if more ~= nil or istype(ref_t, o) or type(o) == 'table' and istype(ref_t, o[1]) then
    local given = o
    o = { grad_outputs = given }
    for k, v in pairs(options('grad', more, beside_gradients)) do o[k] = v end
  end
  o = options('grad', o, of_grad)
  local grads = gradient_list('grad', o.grad_outputs, #outputs)
  return begin('grad', outputs, grads, inputs, flags_of(o) + (o.allow_unused and ALLOW_UNUSED or 0), results, #inputs)
end

-- -- Hooks ----------------------------------------------------------------------------------------------

local Handle = {}
Handle.__index = Handle

--- The hook is not called any more. Twice is harmless.
function Handle:remove()
  local hooks = closures[self.id]
  if not hooks then return end
  for i = 1, #hooks do
    if hooks[i] == self then
      table.remove(hooks, i)
      return
    end
  end
end

--- fn(grad) is called when the tensor's gradient is complete; what it gives replaces it.
-- The tensor keeps fn, and fn what it mentions: a hook that mentions its own tensor keeps both
-- alive until backward has freed the graph (each slice of an unbind: its own backward), or for ever on a leaf,
-- unless it is removed.
-- @tparam function fn
-- @treturn table handle with :remove()
-- @usage local h = y:register_hook(function(g) return g:clamp(-1, 1) end) -- later: h:remove()
function M.methods.register_hook(t, fn, excess)
  if not istype(ref_t, t) then err.throw('register_hook', 'is a method of tensors, called as t:register_hook(fn); got %s', util.show(t)) end
  need_function('register_hook', fn)
  require('amp.options').none('register_hook', excess)
  local id = tonumber(C.amp_hook(S, t))
  if id < 0 then err.raise 'register_hook' end
  local hooks = closures[id]
  if hooks == nil then
    hooks = {}
    closures[id] = hooks
  end
  local handle = setmetatable({ id = id, fn = fn }, Handle)
  hooks[#hooks + 1] = handle
  return handle
end

M.need_function = need_function
M.mode = mode -- kind of region; its record is {inner = 0 or 1}
M.begin = engine.begin

require('amp.core.class').guard(Handle, 'register_hook', 'handle')

return M
