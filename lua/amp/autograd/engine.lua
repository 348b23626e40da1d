--- Driving the library's backward engine: it stops where a function or a hook lives in Lua,
-- which runs here, outside any call of C, and may raise or yield.
-- @module amp.autograd.engine
local ffi = require 'ffi'
local next_key = require('amp.core.keys').next
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local region = require 'amp.core.region'
local util = require 'amp.util'
local words = require 'amp.precision.autocast_state'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype = ffi.istype
local word = words.of

local M = {}

local RETAIN_GRAPH = C.AMP_B_RETAIN_GRAPH
local FUNCTION, MEMORY, READY = C.AMP_R_FUNCTION, C.AMP_R_MEMORY, C.AMP_R_READY
local COLLECT = C.AMP_B_COLLECT -- the engine asks for a collection where memory is short

local closures = call.closures -- id -> function's record or list of hooks

local function argument(e, i)
  local g = call.make('backward', C.amp_backward_arg, e, i)
  if g.ptr_ ~= nil then return g end
end

local function run_hooks(e, hooks)
  local g = argument(e, 0)
  local changed = false
  local list = {} -- a hook may remove itself
  for i = 1, #hooks do list[i] = hooks[i] end
  for i = 1, #list do
    local r = list[i].fn(g)
    if type(r) ~= 'nil' then
      if not istype(ref_t, r) then
        err.throw('register_hook', 'a hook must give a tensor or nil, got %s', util.show(r))
      end
      g, changed = r, true
    end
  end
  call.check(C.amp_backward_supply(S, e, 0, changed and g or nil), 'register_hook')
end

local function serve(e, flags)
  while true do
    local id, n, wanted = tonumber(e.id), e.n, e.wanted
    local record = closures[id]
    if e.request == MEMORY then collectgarbage()
    elseif e.request == READY then
      if record then record.ready() end
    elseif e.request == FUNCTION then
      if record == nil then
        err.throw_code('autograd', 'backward', 'the graph of a Function was freed; pass retain_graph = true to the earlier backward')
      end
      local g = {}
      for i = 1, n do g[i] = argument(e, i - 1) end
      local back = record.backward(record, g, n, flags)
      for i = 1, wanted do
        if back[i] then call.check(C.amp_backward_supply(S, e, i - 1, back[i]), 'Function') end
      end
      if flags % (2 * RETAIN_GRAPH) < RETAIN_GRAPH and flags % 2 == 0 then closures[id] = nil end
    elseif record then
      run_hooks(e, record)
    end
    local rc = C.amp_backward_run(S, e)
    if rc < 0 then
      call.again(rc)
      err.raise 'backward'
    end
    if S.attention ~= 0 then call.attend() end
    if rc == 0 then return end
  end
end

-- Engines in use, each with a token that its coroutine holds: one whose token is collected was
-- left in the middle of a yield for ever, and is ended.
local tokens = setmetatable({}, { __mode = 'v' })
local engines = {}

local function sweep()
  for address, e in pairs(engines) do
    if tokens[address] == nil then
      engines[address] = nil
      C.amp_backward_end(S, e)
    end
  end
end

local function address_of(e) return tonumber(ffi.cast('intptr_t', ffi.cast('void *', e))) end

local function end_engine(e)
  engines[address_of(e)] = nil
  C.amp_backward_end(S, e)
end

-- What is to be done once the backward that runs is over: objects with `begin`, `finish` and `abandon` (it failed). All
-- begin before any finishes, as that may wait for other processes, where they stand in another order.
M.after = {}

local function over(well)
  local list = M.after
  M.after = {}
  if not well then
    for i = 1, #list do list[i]:abandon() end
    return
  end
  for i = 1, #list do list[i]:begin() end
  for i = 1, #list do list[i]:finish() end
end

-- What Lua functions see during backward: recording only for create_graph, no autocast. On an error the engine ends
-- before the error goes on.
local during = region.kind(function(rec)
  rec.grad_mode, rec.autocast_on, rec.outer0, rec.outer1 = S.grad_mode, S.autocast_on, word[0], word[1]
end, function(rec)
  S.grad_mode, S.autocast_on, word[0], word[1] = rec.inner_mode, rec.inner_on, rec.inner0, rec.inner1
end, function(rec)
  rec.inner_mode, rec.inner_on, rec.inner0, rec.inner1 = S.grad_mode, S.autocast_on, word[0], word[1]
end, function(rec)
  S.grad_mode, S.autocast_on, word[0], word[1] = rec.grad_mode, rec.autocast_on, rec.outer0, rec.outer1
end, function(rec, failed)
  if failed then
    end_engine(rec.e)
    if M.after[1] then over(false) end
  end
end)

--- Run an engine from begin to the end; `results(e, n)` reads it before it goes.
local function drive(e, flags, results, n)
  local rc = C.amp_backward_run(S, e)
  if rc < 0 then -- a failed run can't go on: leaves have their shares already
    C.amp_backward_end(S, e)
    call.again(rc) -- what the collector holds back is there for the caller's next try
    err.raise 'backward'
  end
  if rc == 1 then
    if next_key(engines) then sweep() end
    local token, address = {}, address_of(e)
    engines[address], tokens[address] = e, token
    local rec = { inner_mode = flags % 2, inner_on = 0, inner0 = words.switched(word[0], false),
      inner1 = words.switched(word[1], false), e = e }
    region.run(during, rec, serve, e, flags, token)
    engines[address] = nil
  end
  local ok, out = true, nil
  if results then ok, out = pcall(results, e, n) end
  C.amp_backward_end(S, e)
  if S.attention ~= 0 then call.attend() end
  if not ok then error(out, 0) end
  if M.after[1] then over(true) end
  return out
end

-- -- Begin --------------------------------------------------------------------------------------

local pointers = ffi.typeof 'amp_tensor *[?]'

--- Backward from roots; `results(e, n)`, if given, reads the engine before it goes.
-- @tparam string op for messages
-- @tparam table roots list of tensors
-- @tparam ?table grads their gradients, with holes
-- @tparam ?table inputs where gradients are wanted; nil: all leaves
-- @tparam number flags enum amp_backward_flag
-- @tparam ?function results
-- @tparam ?number more what results gets beside the engine
-- @return what results gives
function M.begin(op, roots, grads, inputs, flags, results, more)
  region.here()
  if next_key(engines) then sweep() end
  local n = #roots
  local root, grad, input = pointers(n), nil, nil
  if grads then
    grad = pointers(n)
    for i = 1, n do if grads[i] then grad[i - 1] = grads[i].ptr_ end end
  end
  for i = 1, n do root[i - 1] = roots[i].ptr_ end
  if inputs then
    input = pointers(#inputs)
    for i = 1, #inputs do input[i - 1] = inputs[i].ptr_ end
  end
  local e = C.amp_backward_begin(S, root, grad, n, input, inputs and #inputs or 0, flags + COLLECT)
  if e == nil and call.again(S.err.code) then
    e = C.amp_backward_begin(S, root, grad, n, input, inputs and #inputs or 0, flags + COLLECT)
  end
  if e == nil then err.raise(op) end
  return drive(e, flags, results, more)
end

return M
