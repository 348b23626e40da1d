--- GradManager: tensors to differentiate in, recordings, backward into just these.
--     local gm = amp.GradManager():attach(net:parameters())
--     gm:record(function() gm:backward(loss_of(net(x), y)) end)
-- Tensors are held weakly, in attach order; one that does not require grad is tracked while a
-- recording lasts. backward ends its recording. A manager that records inside another's
-- recording leaves gradients with history, so the outer one gives second derivatives; its backward ends that history.
-- @module amp.autograd.manager
local ffi = require 'ffi'
local next_key = require('amp.core.keys').next
local core = require 'amp.ffi'
local autograd = require 'amp.autograd'
local err = require 'amp.error'
local options = require 'amp.options'
local region = require 'amp.core.region'
local util = require 'amp.util'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype, band = ffi.istype, require('bit').band

local M = {}

local CREATE_GRAPH, RETAIN_GRAPH, ACCUMULATE, ONES = C.AMP_B_CREATE_GRAPH, C.AMP_B_RETAIN_GRAPH, C.AMP_B_ACCUMULATE, C.AMP_B_ONES
local TRACKED = C.AMP_T_REQUIRES_GRAD + C.AMP_T_HISTORY

local Manager = {}
Manager.__index = Manager
Manager.__tostring = function(self)
  local n = #self:attached_tensors()
  return ('amp.GradManager (%d tensor%s attached%s)'):format(n, n == 1 and '' or 's', self._recording and ', recording' or '')
end

-- -- Tracking plain tensors while something records them ------------------------------------

-- Both may be done again where an interrupt cut them short.
local tracking = {} -- tensor id -> the manager whose recording needs it, or a set of them; for tensors that did not require grad
local SET = {}      -- key of such sets

local function track(self, id, t)
  local by = tracking[id]
  if by == nil then
    if band(C.amp_tensor_flags(t), TRACKED) ~= 0 then return end
    self._tracked[id] = true
    tracking[id] = self
  else
    self._tracked[id] = true
    if by[SET] then by[self] = true
    elseif by ~= self then tracking[id] = { [SET] = true, [by] = true, [self] = true } end
  end
  if C.amp_requires_grad(S, t, 1) < 0 then err.raise 'GradManager' end
end

local function needed(set)
  for gm in pairs(set) do
    if gm ~= SET then return true end
  end
  return false
end

local function untrack(self, id, t)
  local by = tracking[id]
  if by ~= self and by and by[SET] then
    by[self] = nil
    if not needed(by) then by = self end
  end
  if by == self then
    if t then C.amp_requires_grad(S, t, 0) end
    tracking[id] = nil
  end
  self._tracked[id] = nil
end

-- f(id, tensor) for every attached tensor that is alive, in order; forgets the others.
local function each(self, f)
  local ids, handles, kept = self._ids, self._handles, 0
  for i = 1, self._n do
    local id, t = ids[i], handles[i]
    if t ~= nil and t.ptr_ ~= nil then
      kept = kept + 1
      ids[kept], handles[kept] = id, t
      if f then f(id, t) end
    else
      self._place[id], self._callbacks[id] = nil, nil
    end
  end
  for i = kept + 1, self._n do ids[i], handles[i] = nil, nil end
  self._n = kept
end

-- -- Recordings ---------------------------------------------------------------------------------

local active, levels = {}, 0 -- managers recording now -> true; recordings so far

-- Without `each`: a function for it is made anew each time.
local function enter(self)
  local mine = self._tracked
  if not mine then
    mine = {}
    self._tracked = mine
  end
  active[self] = true
  local ids, handles, gone = self._ids, self._handles, false
  for i = 1, self._n do
    local id, t = ids[i], handles[i]
    if t == nil or t.ptr_ == nil then gone = true
    elseif not mine[id] then track(self, id, t) end
  end
  if gone then each(self) end
end

local function exit(self)
  local mine = self._tracked
  if not mine then return end
  active[self] = nil
  if next_key(mine) ~= nil then
    local ids, handles = self._ids, self._handles
    for i = 1, self._n do
      local id, t = ids[i], handles[i]
      if mine[id] and t ~= nil and t.ptr_ ~= nil then untrack(self, id, t) end
    end
    for id in pairs(mine) do untrack(self, id) end -- of tensors that are gone
  end
  self._tracked = nil
end

-- The recording is over: 'recorded' may still be differentiated, 'used' and 'released' not.
local function finish(self, rec, state)
  if self._recording ~= rec then return end
  exit(self)
  self._recording, self._state = nil, state
end

local recording = autograd.recording
local kind = region.kind(autograd.mode.look, function(rec)
  recording[0] = rec.inner
  local managers = rec.managers
  for i = 1, #managers do
    if managers[i]._recording == rec then enter(managers[i]) end
  end
end, autograd.mode.keep, function(rec)
  recording[0] = rec.outer
  local managers = rec.managers
  for i = 1, #managers do
    if managers[i]._recording == rec then exit(managers[i]) end
  end
end, function(rec, failed)
  local managers = rec.managers
  for i = 1, #managers do finish(managers[i], rec, failed and 'released' or 'recorded') end
end, nil, true)

local function record(managers, fn, ...)
  if fn ~= nil then autograd.need_function('GradManager.record', fn) end
  for i = 1, #managers do
    if managers[i]._recording then
      err.throw_code('state', 'GradManager.record', 'this manager is recording already; end that with backward or release first')
    end
  end
  levels = levels + 1
  local rec = { managers = managers, inner = 1, outer = 0 }
  for i = 1, #managers do
    local gm = managers[i]
    gm._recording, gm._level, gm._inner = rec, levels, nil
    gm._together = managers[2] and managers or nil
  end
  if fn ~= nil then return region.run(kind, rec, fn, ...) end
  region.here()
  for i = 1, #managers do enter(managers[i]) end
end

--- Record what fn does with the attached tensors; gives what fn returns. Without a function
-- recording goes on until backward or release.
-- @tparam ?function fn
-- @param ... its arguments
-- @return fn's results; self without fn
function Manager:record(fn, ...)
  if fn == nil then
    record({ self })
    return self
  end
  return record({ self }, fn, ...)
end

--- End a recording and forget it; harmless without one.
-- @return self
function Manager:release()
  if self._recording then finish(self, self._recording, 'released')
  elseif self._state == 'recorded' then self._state = 'released' end
  return self
end

-- -- Attaching ---------------------------------------------------------------------------------

local function list_of(op, tensors)
  local list = istype(ref_t, tensors) and { tensors } or tensors
  if type(list) ~= 'table' then err.throw(op, 'takes a tensor or a list of tensors, got %s', util.show(list)) end
  if type(list.parameters) == 'function' then err.throw(op, 'got a module; give its parameters: net:parameters()') end
  err.list(op, list)
  for i = 1, #list do
    if not istype(ref_t, list[i]) then err.throw(op, 'element %d must be a tensor, got %s', i, util.show(list[i])) end
    if list[i].ptr_ == nil then err.throw(op, 'tensor %d was freed', i) end
  end
  return list
end

local function callbacks_of(op, given)
  if given == nil then return {} end
  local list = type(given) == 'table' and getmetatable(given) == nil and given or { given }
  for i = 1, #list do autograd.need_function(op, list[i]) end
  return list
end

--- Attach float tensors. Callbacks fn(tensor, grad) -> grad run in turn before a gradient is
-- stored; nil leaves it as it is. During a recording the tensors are recorded from here on.
-- @param tensors a tensor or a list
-- @tparam ?table o {callbacks = fn or list}
-- @return self
-- @usage gm:attach(net:parameters(), {callbacks = function(p, g) return g * 0.5 end})
function Manager:attach(tensors, o)
  local op = 'GradManager.attach'
  local list = list_of(op, tensors)
  if type(o) == 'function' or type(o) == 'table' and getmetatable(o) == nil and type(o[1]) == 'function' then o = { callbacks = o } end
  local fns = callbacks_of(op, options.read(op, o, { 'callbacks' }).callbacks)
  for i = 1, #list do
    if list[i].ptr_.dtype > 3 then
      err.throw_code('dtype', op, 'tensor %d is %s; only float tensors can be attached', i, list[i].dtype)
    end
  end
  for i = 1, #list do
    local t = list[i]
    local id = tonumber(t.ptr_.id)
    if not self._place[id] then
      local n = self._n + 1
      self._n, self._place[id], self._ids[n], self._handles[n] = n, true, id, t
      if self._tracked then track(self, id, t) end
    end
    if #fns > 0 then
      local mine = self._callbacks[id] or {}
      for k = 1, #fns do mine[#mine + 1] = fns[k] end
      self._callbacks[id] = mine
    end
  end
  return self
end

--- Attached tensors that are alive, in attach order.
-- @treturn table list
function Manager:attached_tensors()
  local out = {}
  each(self, function(_, t) out[#out + 1] = t end)
  return out
end

-- -- Backward --------------------------------------------------------------------------------------

local reasons = {
  idle = 'nothing was recorded; compute the loss in gm:record(fn), or between gm:record() and gm:release(), and call backward there',
  used = 'backward was called already and ended the recording; record anew (several losses go into one call: gm:backward{a, b})',
  released = 'the recording was released before backward; call backward first',
}

-- Roots that have history and their gradients: ones where none is given.
local function roots_of(op, y, dy)
  local ys = y == nil and {} or list_of(op, y)
  local dys
  if istype(ref_t, dy) or type(dy) == 'number' then dys = { dy } else dys = dy end
  if dys ~= nil and type(dys) ~= 'table' then err.throw(op, 'dy must be a tensor, a number or a list, got %s', util.show(dy)) end
  if dys and #dys ~= #ys then err.throw(op, '%d gradients dy for %d tensors', #dys, #ys) end
  local create = require 'amp.tensor.create'
  local roots, grads = {}, {}
  for i = 1, #ys do
    local t, g = ys[i], dys and dys[i]
    if g ~= nil and type(g) ~= 'number' and not istype(ref_t, g) then
      err.throw(op, 'dy %d must be a tensor or a number, got %s', i, util.show(g))
    end
    if istype(ref_t, g) and util.shape(g.shape) ~= util.shape(t.shape) then
      if g:numel() ~= 1 then err.throw_code('shape', op, 'dy %d has shape %s, the tensor %s', i, util.shape(g.shape), util.shape(t.shape)) end
      g = g:reshape({}):expand(t.shape)
    end
    if band(C.amp_tensor_flags(t), TRACKED) ~= 0 then
      local n = #roots + 1
      if type(g) == 'number' then g = create.full_like(t:detach(), g)
      elseif g == nil and tonumber(t.ptr_.numel) ~= 1 then g = create.ones_like(t:detach()) end
      roots[n], grads[n] = t, g or false
    end
  end
  return roots, grads
end

local function nothing() end
local hooked = region.kind(nothing, nothing, nil, nothing, function(rec)
  for i = 1, #rec do rec[i]:remove() end
end)

local function hook_and_begin(self, handles, op, roots, grads, inputs, flags)
  for i = 1, #inputs do
    local t = inputs[i]
    local fns = self._callbacks[tonumber(t.ptr_.id)]
    if fns then
      handles[#handles + 1] = t:register_hook(function(g)
        for k = 1, handles.done and 0 or #fns do
          local r = fns[k](t, g)
          if r ~= nil then g = r end
        end
        return g
      end)
    end
  end
  autograd.begin(op, roots, grads, inputs, flags)
end

local function run(self, op, roots, grads, inputs, flags)
  if next_key(self._callbacks) == nil then return autograd.begin(op, roots, grads, inputs, flags) end
  local handles = {}
  region.run(hooked, handles, hook_and_begin, self, handles, op, roots, grads, inputs, flags)
end

-- Backward after record(fn) returned: plain tensors are tracked once more.
local again = region.kind(nothing, function(rec) enter(rec.gm) end, nil, function(rec) exit(rec.gm) end)

-- Gradients that inner managers left lose the history that the outermost backward went through: it holds the tensors,
-- which hold their gradients, so that none of them would ever be freed.
local function forget_history(managers)
  for gm in pairs(managers) do
    each(gm, function(_, t)
      local g = t.grad
      if g ~= nil and band(C.amp_tensor_flags(g), TRACKED) ~= 0 then t.grad = g:detach() end
    end)
  end
end

-- Whether another manager may still go backward from what was recorded, so that the graph has to stay.
local function needed_by_others(self)
  for gm in pairs(active) do
    if gm ~= self then return true end
  end
  local together = self._together
  for i = 1, together and #together or 0 do
    local gm = together[i]
    if gm ~= self and gm._together == together and gm._state == 'recorded' then return true end
  end
  return false
end

--- Add dy * dy/dt to the gradient of every attached tensor t that y depends on; the recording ends. While another
-- manager records, or one of the same group has not gone backward yet, the graph stays for it.
-- @param y a tensor or a list; several values start with ones
-- @tparam ?table o {dy = gradient of the same shape, a number, or a list of them}
-- @return self
function Manager:backward(y, o)
  local op = 'GradManager.backward'
  region.here()
  if istype(ref_t, o) or type(o) == 'number' then o = { dy = o } end
  o = options.read(op, o, { 'dy' })
  local state = self._recording and 'recording' or self._state
  if state ~= 'recording' and state ~= 'recorded' then err.throw_code('autograd', op, 'no recorded history: %s', reasons[state]) end
  local roots, grads = roots_of(op, y, o.dy)
  local outer = false
  for gm in pairs(active) do
    if gm._level < self._level then
      outer = true
      gm._inner = gm._inner or {}
      gm._inner[self] = true
    end
  end
  local flags = ACCUMULATE + (outer and CREATE_GRAPH or needed_by_others(self) and RETAIN_GRAPH or 0)
    + (o.dy == nil and ONES or 0)
  local rec = self._recording
  local function go()
    local inputs = self:attached_tensors()
    if #roots > 0 and #inputs > 0 then run(self, op, roots, grads, inputs, flags) end
  end
  local ok, e
  if rec then
    ok, e = pcall(go)
    finish(self, rec, 'used')
  else
    self._state = 'used'
    ok, e = pcall(region.run, again, { gm = self }, go)
  end
  if not ok then error(e, 0) end
  if not outer and self._inner then forget_history(self._inner) end
  self._inner = nil
  return self
end

-- -- Groups ---------------------------------------------------------------------------------------

local Group = {}
Group.__index = Group
Group.__tostring = function(self) return ('amp.GradManager.group (%d manager%s)'):format(#self, #self == 1 and '' or 's') end

--- Managers that record together and do not see each other's backward.
-- @treturn table with record, release, attached_tensors
-- @usage amp.GradManager.group(gm1, gm2):record(function() gm1:backward(y) gm2:backward(z) end)
function M.group(...)
  local managers, seen = {}, {}
  for i = 1, select('#', ...) do
    local gm = select(i, ...)
    local list = getmetatable(gm) == Group and gm or getmetatable(gm) == Manager and { gm }
    if not list then err.throw('GradManager.group', 'argument %d must be a GradManager, got %s', i, util.show(gm)) end
    for _, m in ipairs(list) do
      if not seen[m] then
        seen[m] = true
        managers[#managers + 1] = m
      end
    end
  end
  if #managers == 0 then err.throw('GradManager.group', 'takes managers') end
  return setmetatable(managers, Group)
end

function Group:record(fn, ...)
  local managers = { unpack(self) }
  if fn == nil then
    record(managers)
    return self
  end
  return record(managers, fn, ...)
end

function Group.backward()
  err.throw('GradManager.group.backward', 'a group records; backward is called of each of its managers: gm1:backward(y) gm2:backward(y)')
end

function Group:release()
  for _, gm in ipairs(self) do gm:release() end
  return self
end

function Group:attached_tensors()
  local out, seen = {}, {}
  for _, gm in ipairs(self) do
    for _, t in ipairs(gm:attached_tensors()) do
      local id = t:id()
      if not seen[id] then
        seen[id] = true
        out[#out + 1] = t
      end
    end
  end
  return out
end

--- Whether a value is a GradManager.
function M.is(v) return getmetatable(v) == Manager end

require('amp.core.class').guard(Manager, 'GradManager', 'gm')
require('amp.core.class').guard(Group, 'GradManager.group', 'gm')

return setmetatable(M, {
  __call = function(_, ...)
    if select('#', ...) > 0 then
      err.throw('GradManager', 'takes no arguments, got %s; attach tensors: amp.GradManager():attach(tensors)', util.show((...)))
    end
    return setmetatable({
      _n = 0, _ids = {}, _place = {}, _handles = setmetatable({}, { __mode = 'v' }), _callbacks = {}, _state = 'idle',
    }, Manager)
  end,
})
