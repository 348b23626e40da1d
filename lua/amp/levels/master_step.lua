--- What is kept beside an optimizer that takes part in scaled blocks: float32 masters of its
-- 16-bit parameters, whether its gradients still carry a scale, and for a user's own optimizer
-- the checks that hold its next step back (those of amp.optim keep them in the library).
--     model's parameter (16 bits) --give--> master --step--> refresh --> model's parameter
-- amp.optim's optimizers call a side's methods around their steps; a user's own optimizer gets
-- its `step`, `zero_grad`, `clear_grad` and `add_param_group` wrapped to do the same.
-- @module amp.levels.master_step
local ffi = require 'ffi'
local core = require 'amp.ffi'
local autocast = require 'amp.precision.autocast'
local call = require 'amp.core.call'
local create = require 'amp.tensor.create'
local err = require 'amp.error'
local optimizer = require 'amp.optim.optimizer'
local origin = require 'amp.optim.origin'
local scope = require 'amp.core.scope'
local util = require 'amp.util'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype = ffi.istype

local buffer_t = ffi.typeof 'amp_tensor *[?]'

local M = {}
local Side = {}
Side.__index = Side

local sides = setmetatable({}, { __mode = 'k' }) -- optimizer -> side, which does not refer to it

--- Masters by their model parameter's id, as long as anybody holds them.
M.masters = setmetatable({}, { __mode = 'v' })

-- -- Optimizers --------------------------------------------------------------------------------

--- The optimizer whose parameters step: `opt` itself, or the one that it wraps (LARC).
function M.inner(op, opt)
  local inner = opt
  while type(inner) == 'table' and type(rawget(inner, 'optim')) == 'table' do inner = inner.optim end
  if type(inner) ~= 'table' or type(inner.step) ~= 'function' or type(inner.param_groups) ~= 'table' then
    err.throw(op, 'takes an optimizer (a table with step and param_groups), got %s', util.show(opt))
  end
  return inner
end

--- Name of an optimizer for messages.
function M.describe(opt)
  if type(opt.describe) == 'function' then return opt:describe() end
  return type(opt.name) == 'string' and ("'%s'"):format(opt.name) or tostring(opt)
end

--- Parameters that step, in order: a list.
function M.params(opt)
  local list = {}
  for _, g in ipairs(opt.param_groups) do
    for _, p in ipairs(g.params) do list[#list + 1] = p end
  end
  return list
end

-- -- Masters -----------------------------------------------------------------------------------

local function is_half(p) return p.ptr_.dtype == 2 or p.ptr_.dtype == 3 end

local function leaf(data)
  local t = create.empty(0)
  t:set_data(data)
  t.requires_grad = true
  return scope.keep(t)
end

--- Turn a float parameter into the 16-bit one of a new master that keeps its values.
function M.lower(p, dtype)
  local master = leaf(p:detach():float())
  p:set_data(master:detach():to(dtype))
  M.masters[p:id()] = master
  return master
end

local function master_of(p)
  local id = p:id()
  local m = M.masters[id]
  if m == nil then
    m = leaf(p:detach():float())
    M.masters[id] = m
  end
  return m
end

local function buffer_of(list)
  local b = buffer_t(#list)
  for i = 1, #list do b[i - 1] = list[i].ptr_ end
  return b
end

-- The optimizer of amp.optim steps t in the place of parameter i of group g.
local function replace(opt, g, i, at, t)
  if optimizer.is(opt) then
    call.try(opt.class.op, C.amp_optim_set_param, S, opt._handle, g - 1, i - 1, t)
    opt._all[at] = t.ptr_
    opt._ids[tonumber(t.ptr_.id)] = g
  end
  opt.param_groups[g].params[i] = t
end

--- Give every 16-bit parameter of the optimizer a master, which takes its place there.
function Side:use_masters(opt)
  self.wants_masters, self.plain = true, nil
  local at = 0
  for g, group in ipairs(opt.param_groups) do
    for i, p in ipairs(group.params) do
      if is_half(p) then
        local m = master_of(p)
        replace(opt, g, i, at, m)
        self.model[#self.model + 1], self.master[#self.master + 1] = p, m
      end
      at = at + 1
    end
  end
  self:refresh()
end

--- For a new group: its parameters with masters in their places.
-- @treturn table list
-- @treturn function called once the group is in the optimizer
function Side:stand_ins(list)
  if not self.wants_masters then return list, nil end
  local out, models, masters = {}, {}, {}
  for i, p in ipairs(list) do
    out[i] = p
    if is_half(p) then
      out[i] = master_of(p)
      models[#models + 1], masters[#masters + 1] = p, out[i]
    end
  end
  return out, function()
    for i, p in ipairs(models) do
      self.model[#self.model + 1], self.master[#self.master + 1] = p, masters[i]
    end
    self:refresh()
  end
end

--- Models take their masters' values; the masters' gradients go.
function Side:refresh()
  local n = #self.master
  if n == 0 then return end
  if self.count ~= n then self.masters, self.models, self.count = buffer_of(self.master), buffer_of(self.model), n end
  call.try('initialize', C.amp_masters_refresh, S, self.masters, self.models, n)
end

--- Masters without a gradient take their models' one, as it is.
function Side:give()
  if #self.master > 0 then call.try('scale_loss', C.amp_masters_give, S, self.masters, self.models, #self.master) end
end

-- -- Around a step ---------------------------------------------------------------------------------

function Side:before_step(opt)
  if self.inside then
    err.throw_code('state', 'optim.step', 'optimizer %s is stepped inside a block of amp.scale_loss, whose gradients are still scaled; step after it',
      M.describe(opt))
  end
  if self.scaled then
    local any = false
    for _, list in ipairs { M.params(opt), self.model } do
      for i = 1, #list do any = any or C.amp_grad_defined(list[i]) ~= 0 end
    end
    if any then
      err.throw_code('state', 'optim.step', 'the gradients of optimizer %s are still scaled: its last block had delay_unscale = true; '
        .. 'the last amp.scale_loss before a step goes without it', M.describe(opt))
    end
    self.scaled = nil
  end
  self:give()
  origin.refuse_scaled_of('optim.step', opt,
    'give this optimizer to amp.scale_loss as well, whose block reached its parameters, or clear its gradients before its own backward')
end

Side.after_step = Side.refresh

--- Gradients are cleared (or zeroed): the models' as well.
function Side:clear_grad(none)
  self.scaled = nil
  for i = 1, #self.model do
    local p = self.model[i]
    if none then p.grad = nil
    elseif p.grad then p.grad:zero_() end
  end
end

-- -- A user's own optimizer ------------------------------------------------------------------------

-- Whether its next step is held back; waits. The answer is used up.
local function held(self)
  local list = self.held
  if #list == 0 then return false end
  S.host_waits = S.host_waits + 1
  local answer = false
  for i = 1, #list do
    local rc = C.amp_check_found(S, list[i])
    if rc < 0 then err.raise 'scale_loss' end
    answer = answer or rc == 1
  end
  self.held = {}
  return answer
end

local function wrap(opt, self)
  local step = opt.step
  rawset(opt, 'step', function(o, ...)
    self:before_step(o)
    local result
    if not held(self) then result = autocast.off(step, o, ...) end
    self:after_step()
    if result == nil then return o end
    return result
  end)
  for _, name in ipairs { 'zero_grad', 'clear_grad' } do
    local fn = opt[name]
    if type(fn) == 'function' then
      rawset(opt, name, function(o, ...)
        local result = fn(o, ...)
        self:clear_grad(true)
        return result
      end)
    end
  end
  local add = opt.add_param_group
  if type(add) == 'function' then
    rawset(opt, 'add_param_group', function(o, ...)
      local result = add(o, ...)
      if self.wants_masters then self:use_masters(o) end
      return result
    end)
  end
end

--- An optimizer's side, nil if it has none.
function M.find(opt) return sides[opt] end

--- An optimizer's side, made at need.
function M.of(opt)
  local self = sides[opt]
  if self == nil then
    self = setmetatable({ model = {}, master = {}, held = {}, inside = false }, Side)
    sides[opt] = self
    if optimizer.is(opt) then opt._side = self else wrap(opt, self) end
  end
  return self
end

--- The optimizer's next step does nothing if the check found an overflow.
function M.hold(opt, check)
  if optimizer.is(opt) then
    call.try('scale_loss', C.amp_optim_guard, S, opt._handle, check)
  else
    local list = M.of(opt).held
    list[#list + 1] = check
  end
end

M.buffer_of, M.is_tensor = buffer_of, function(v) return istype(ref_t, v) end

return M
