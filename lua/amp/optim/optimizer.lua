--- Base of the optimizers whose step is one fused kernel of the library (all but
-- LBFGS, and LARC, which wraps one).
-- Parameters, state and step counts live in the library; hyper-parameters live in
-- `param_groups`, plain tables that may be edited and are read anew at each step.
-- A step leaves everything alone if a gradient's check found an overflow; parameters without
-- a gradient are untouched. It does not know loss scaling: the gradients carry their checks.
-- @module amp.optim.optimizer
local ffi = require 'ffi'
local core = require 'amp.ffi'
local next_key = require('amp.core.keys').next
local call = require 'amp.core.call'
local capturing = require 'amp.capture.current'
local err = require 'amp.error'
local groups = require 'amp.optim.param_groups'
local origin = require 'amp.optim.origin'
local util = require 'amp.util'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype, band = ffi.istype, require('bit').band

local buffer_t = ffi.typeof 'amp_tensor *[?]'
local hyper_t = ffi.typeof 'amp_hyper[?]'

local M = {}

local HISTORY = C.AMP_T_HISTORY
local STATE = tonumber(C.AMP_E_STATE)

-- -- Parameters ---------------------------------------------------------------------

local function describe(t)
  return ('%s %s'):format(t.dtype, util.shape(t.shape))
end

-- A list that holds options as well, which nobody would read, is an error.
local function check_list(op, list, within)
  local key = getmetatable(list) == nil and next_key(list, #list > 0 and #list or nil)
  if type(key) == 'string' then
    err.throw(op, within and "a list of parameters has the key '%s'; a group with options of its own is {params = net:parameters(), %s = ...}"
      or "the list of parameters has the key '%s'; options stand in a second table: amp.%s(net:parameters(), {%s = ...})",
      key, within and key or op, key)
  end
  err.list(op, list, 'parameters')
end

-- The tensors of lists in lists: {a:parameters(), b:parameters()}
local function flat(op, list, out, within)
  check_list(op, list, within)
  for i = 1, #list do
    local v = list[i]
    if type(v) == 'table' and getmetatable(v) == nil and v.params == nil then flat(op, v, out, true) else out[#out + 1] = v end
  end
  return out
end

local function check_params(self, params)
  local op = self.class.op
  if type(params) == 'function' then
    err.throw(op, 'parameters are a list, got a function: net:named_parameters() goes through names and tensors, net:parameters() gives the list')
  end
  local list = istype(ref_t, params) and { params } or params
  if type(list) == 'table' and type(list[1]) == 'table' then list = flat(op, list, {}) end
  if type(list) ~= 'table' then
    err.throw(op, 'parameters are a list of tensors or of groups {params = {...}, lr = ...}, got %s', util.show(list))
  end
  check_list(op, list)
  if #list == 0 then err.throw(op, 'an empty list of parameters') end
  local seen = {}
  for i = 1, #list do
    local t = list[i]
    if not istype(ref_t, t) then err.throw(op, 'parameter %d must be a tensor, got %s', i, util.show(t)) end
    local p = t.ptr_
    if p == nil then err.throw(op, 'parameter %d was freed', i) end
    if p.dtype > 3 then err.throw(op, 'parameter %d is %s; only float tensors can be optimized', i, describe(t)) end
    if band(p.flags, HISTORY) ~= 0 then
      err.throw(op, 'parameter %d (%s) was made by an op; only leaves can be optimized: use t:detach()', i, describe(t))
    end
    local id = tonumber(p.id)
    if seen[id] then err.throw(op, 'parameter %d (%s) is given twice, also as number %d', i, describe(t), seen[id]) end
    if self._ids[id] then err.throw(op, 'parameter %d (%s) is in the optimizer already, in group %d', i, describe(t), self._ids[id]) end
    seen[id] = i
    if self.class.check_param then self.class.check_param(t, i) end
  end
  return list
end

-- -- Methods -------------------------------------------------------------------------

local Optimizer = { needs_closure = false, step_supports_amp_scaling = false } -- what scalers ask for stands here: a field that is not there is slow
M.Optimizer = Optimizer

--- Add a group of parameters with options of its own.
-- @tparam table group {params = {...}, lr = ..., ...}; what is not given is as at creation
-- @return self
function Optimizer:add_param_group(group)
  local class = self.class
  if type(group) ~= 'table' or group.params == nil then
    err.throw(class.op, "a group is a table with 'params', got %s", util.show(group))
  end
  local list, taken = check_params(self, group.params), nil
  local g = groups.read(class, group, self.defaults, { params = true, name = true })
  groups.check(class, g, '')
  local given = list
  if self._side then list, taken = self._side:stand_ins(list) end
  g.name = group.name
  g.params = {}
  for i = 1, #list do g.params[i] = list[i] end
  local n = #list
  local buffer = buffer_t(n)
  for i = 1, n do buffer[i - 1] = list[i].ptr_ end
  local index = call.try(class.op, C.amp_optim_add_group, S, self._handle, buffer, n)
  index = index + 1
  for i = 1, n do self._ids[tonumber(list[i].ptr_.id)], self._ids[tonumber(given[i].ptr_.id)] = index, index end
  self._sizes[index] = n
  self.param_groups[index] = setmetatable(g, class.group_mt)
  self._hyper = hyper_t(index)
  -- all parameters, for whoever checks gradients
  local all = buffer_t(self._count + n)
  if self._count > 0 then ffi.copy(all, self._all, ffi.sizeof('amp_tensor *') * self._count) end
  for i = 1, n do all[self._count + i - 1] = list[i].ptr_ end
  self._all, self._count = all, self._count + n
  if taken then taken() end
  return self
end

-- Hyper-parameters as the library takes them.
local function hyper(self, op)
  local list, h = self.param_groups, self._hyper
  local n = #self._sizes
  if #list ~= n then
    err.throw(op, 'param_groups has %d groups, the optimizer %d; groups are added with opt:add_param_group{params = ...}', #list, n)
  end
  for i = 1, n do
    local g = list[i]
    if #g.params ~= self._sizes[i] then
      err.throw(op, 'the list of parameters of group %d was changed; parameters are added with opt:add_param_group{params = ...}', i)
    end
    if type(g.lr) ~= 'number' or g.lr ~= g.lr then err.throw(op, 'lr of group %d must be a number, got %s', i, util.show(g.lr)) end
    groups.fill(h[i - 1], g)
    h[i - 1].rescale = self._rescale
    if self.class.before then h[i - 1].momentum, h[i - 1].nesterov, h[i - 1].rescale = 0, 0, 0 end -- they are in the direction
  end
  return h, n
end

Optimizer._hyper_parameters = hyper -- for replays of a captured step

-- By itself: a function that makes one of its own is never compiled.
local function refuse(self, op)
  origin.refuse_scaled(op, function() return self:describe() end, self._all, self._count)
end

-- The step of a class whose direction is made of tensor ops: see amp.optim.composed.
local function composed_step(self, op, h, n)
  refuse(self, op)
  local undo = self.class.before(self)
  local ok, e = pcall(call.check, C.amp_optim_step(S, self._handle, h, n), op)
  undo()
  if not ok then error(e, 0) end
  return 0
end

--- Update every parameter that has a gradient.
-- @tparam ?function closure called first; its results are returned instead of self
-- @return self
-- @usage opt:step():clear_grad()
function Optimizer:step(closure)
  local class = self.class
  local op = class.step_op
  if closure ~= nil then
    if type(closure) ~= 'function' then err.throw(op, 'takes a function that computes the loss, or nothing; got %s', util.show(closure)) end
    local results = util.pack(closure())
    self:step()
    return unpack(results, 1, results.n)
  end
  local h, n = hyper(self, op)
  local side = self._side -- of amp.scale_loss: see amp.levels.side
  if side then side:before_step(self) end
  local rc = class.before and composed_step(self, op, h, n) or C.amp_optim_step(S, self._handle, h, n)
  if rc < 0 then
    if rc == STATE then refuse(self, op) end
    call.try(op, C.amp_optim_step, S, self._handle, h, n)
  elseif S.attention ~= 0 then call.attend() end
  self._calls = self._calls + 1
  if capturing.current then -- and what only this step had: a factor of its caller's, groups whose decay is in the gradients
    capturing.current[#capturing.current + 1] = { opt = self, rescale = not class.before and self._rescale or 0, undecayed = self._undecayed }
  end
  if side then side:after_step() end
  return self
end

--- Gradients of all parameters become nil.
-- @return self
function Optimizer:clear_grad()
  call.try(self.class.clear_op, C.amp_optim_clear_grad, S, self._handle, 0)
  if self._side then self._side:clear_grad(true) end
  return self
end

--- Gradients become nil, or zeros with {set_to_none = false}.
-- @return self
function Optimizer:zero_grad(options)
  local none = true
  if type(options) == 'boolean' then
    none = options
  elseif options ~= nil then
    local o = require('amp.options').read(self.class.op .. '.zero_grad', options, { 'set_to_none' }, { set_to_none = true })
    if type(o.set_to_none) ~= 'boolean' then err.throw(self.class.op .. '.zero_grad', 'set_to_none must be true or false, got %s', util.show(o.set_to_none)) end
    none = o.set_to_none
  end
  call.try(self.class.zero_op, C.amp_optim_clear_grad, S, self._handle, none and 0 or 1)
  if self._side then self._side:clear_grad(none) end
  return self
end

--- Whether any parameter has a gradient.
function Optimizer:has_grads()
  for _, g in ipairs(self.param_groups) do
    for i = 1, #g.params do
      if C.amp_grad_defined(g.params[i]) ~= 0 then return true end
    end
  end
  return false
end

-- -- State ------------------------------------------------------------------------------

local steps = ffi.new 'double[1]'

-- How many states the library keeps for a class, and their names.
local function states_of(class)
  return class.states and 0 or C.amp_optim_state_count(class.kind)
end

-- What a class keeps in Lua, into and from the state s of a parameter.
local function own_state(self, gi, pi, s)
  local own = self._own and self._own[gi] and self._own[gi][pi] or {}
  for name in pairs(self.class.states) do s[name] = own[name] end
end

local function take_own(self, gi, pi, s, count)
  local p, own = self.param_groups[gi].params[pi], nil
  local dtype = p.dtype == 'float64' and 'float64' or 'float32'
  for name in pairs(self.class.states) do
    if s[name] ~= nil then
      own = own or {}
      own[name] = s[name]:detach():to(p.device):to(dtype):clone()
    end
  end
  if own and self.class.counts then own.step = require('amp').full({}, count, { dtype = dtype, device = p.device }) end
  self._own = self._own or {}
  self._own[gi] = self._own[gi] or {}
  self._own[gi][pi] = own
end

--- Everything needed to go on, as plain tables of tensors and numbers.
-- `state[i]` belongs to the i-th parameter over all groups; tensors share memory with the optimizer.
-- @treturn table {state = {...}, param_groups = {...}}
function Optimizer:state_dict()
  local op = self.class.op .. '.state_dict'
  local out = { state = {}, param_groups = {} }
  local kind, at = self.class.kind, 0
  call.try(op, C.amp_optim_look, S, self._handle, 1) -- on a device this is the only wait
  for gi, g in ipairs(self.param_groups) do
    local copy = { params = {} }
    for k, v in pairs(g) do
      local t = type(v)
      if t == 'number' or t == 'boolean' or t == 'string' then copy[k] = v
      elseif t == 'table' and k ~= 'params' then copy[k] = { unpack(v) } end
    end
    for pi = 1, self._sizes[gi] do
      at = at + 1
      copy.params[pi] = at
      call.check(C.amp_optim_get_steps(S, self._handle, gi - 1, pi - 1, steps), op)
      if steps[0] > 0 then
        local s = { step = steps[0] }
        if self.class.states then own_state(self, gi, pi, s) end
        for w = 0, states_of(self.class) - 1 do
          local t = call.make(op, C.amp_optim_state, self._handle, gi - 1, pi - 1, w)
          if t.ptr_ ~= nil then s[ffi.string(C.amp_optim_state_name(kind, w))] = t end
        end
        out.state[at] = s
      end
    end
    out.param_groups[gi] = copy
  end
  C.amp_optim_look(S, self._handle, 0)
  return out
end

-- Errors before anything is changed.
local function check_state(self, op, dict)
  if type(dict) ~= 'table' or type(dict.state) ~= 'table' or type(dict.param_groups) ~= 'table' then
    err.throw(op, "a state dict has 'state' and 'param_groups', got %s", util.show(dict))
  end
  if #dict.param_groups ~= #self.param_groups then
    err.throw(op, 'the state has %d parameter groups, the optimizer %d', #dict.param_groups, #self.param_groups)
  end
  local kind = self.class.kind
  local at = 0
  local names = {}
  for w = 0, states_of(self.class) - 1 do names[ffi.string(C.amp_optim_state_name(kind, w))] = true end
  for name in pairs(self.class.states or {}) do names[name] = true end
  for gi, g in ipairs(self.param_groups) do
    local saved = dict.param_groups[gi]
    if type(saved) ~= 'table' or type(saved.params) ~= 'table' or #saved.params ~= self._sizes[gi] then
      err.throw(op, 'group %d has %d parameters in the state, %d in the optimizer', gi,
        type(saved) == 'table' and type(saved.params) == 'table' and #saved.params or 0, self._sizes[gi])
    end
    local merged = {}
    for k in pairs(self.class.defaults) do
      merged[k] = saved[k]
      if merged[k] == nil then merged[k] = g[k] end
    end
    groups.check(self.class, merged, (' (group %d of the state)'):format(gi))
    for pi = 1, self._sizes[gi] do
      at = at + 1
      local s = dict.state[saved.params[pi]]
      if s ~= nil then
        if type(s) ~= 'table' then err.throw(op, 'the state of parameter %d must be a table, got %s', at, util.show(s)) end
        local p = g.params[pi]
        if s.step ~= nil and (type(s.step) ~= 'number' or s.step < 0) and not istype(ref_t, s.step) then
          err.throw(op, 'the step count of parameter %d must be a number, got %s', at, util.show(s.step))
        end
        local known, other = false, nil
        for name, v in pairs(s) do
          if istype(ref_t, v) and name ~= 'step' then
            if names[name] then known = true else other = name end
          end
        end
        if other and not known then
          err.throw(op, "the state of parameter %d has %s, which %s does not keep: it is that of another optimizer", at, util.show(other), self.class.name)
        end
        for name in pairs(names) do
          local t, shape = s[name], self.class.states and self.class.states[name](p) or p.shape
          if t ~= nil and not istype(ref_t, t) then err.throw(op, '%s of parameter %d must be a tensor, got %s', name, at, util.show(t)) end
          if t ~= nil and util.shape(t.shape) ~= util.shape(shape) then
            err.throw(op, '%s of parameter %d is of shape %s, the parameter of shape %s', name, at, util.shape(t.shape), util.shape(p.shape))
          end
        end
      end
    end
  end
end

--- Go on from a state dict: hyper-parameters, step counts and state tensors (copied).
-- @return self
function Optimizer:load_state_dict(dict)
  local op = self.class.op .. '.load_state_dict'
  check_state(self, op, dict)
  local kind = self.class.kind
  call.try(op, C.amp_optim_look, S, self._handle, 1)
  for gi, g in ipairs(self.param_groups) do
    local saved = dict.param_groups[gi]
    for k, v in pairs(saved) do
      if k ~= 'params' then g[k] = type(v) == 'table' and { unpack(v) } or v end
    end
    for pi = 1, self._sizes[gi] do
      local s = dict.state[saved.params[pi]] or {}
      local count = s.step or 0
      if istype(ref_t, count) then count = count:item() end
      call.try(op, C.amp_optim_set_steps, S, self._handle, gi - 1, pi - 1, count)
      for w = 0, states_of(self.class) - 1 do
        call.try(op, C.amp_optim_state_set, S, self._handle, gi - 1, pi - 1, w, s[ffi.string(C.amp_optim_state_name(kind, w))])
      end
      if self.class.states then take_own(self, gi, pi, s, count)
      elseif count == 0 and s.momentum_buffer ~= nil then call.try(op, C.amp_optim_set_steps, S, self._handle, gi - 1, pi - 1, 1) end
    end
  end
  C.amp_optim_look(S, self._handle, 0)
  return self
end

--- Name for messages: option `name`, else class and the line that made it.
function Optimizer:describe()
  return self.name and ("'%s'"):format(self.name) or ('%s made at %s'):format(self.class.name, self.where or 'an unknown place')
end

local GROUPS, FIRST = 12, 9 -- groups printed whole; else so many, and the last two

--- The optimizer as text: how many tensors and elements, the options of each group; nothing is copied.
function M.tostring(self)
  local lists, n, elements = self.param_groups, #self.param_groups, 0
  local function size(g)
    local m = 0
    for _, t in ipairs(g.params) do m = m + (t.ptr_ ~= nil and t:numel() or 0) end
    return m
  end
  for _, g in ipairs(lists) do elements = elements + size(g) end
  local out = { ('%s%s (%d parameter%s of %.0f elements in %d group%s)'):format(self.class.name, self.name and " '" .. self.name .. "'" or '',
    self._count, self._count == 1 and '' or 's', elements, n, n == 1 and '' or 's') }
  for i, g in ipairs(lists) do
    if n <= GROUPS or i <= FIRST or i > n - 2 then
      local parts = {}
      for _, k in ipairs(groups.names(self.class, {})) do
        local v = rawget(g, k)
        if type(v) == 'table' then
          local list = {}
          for j = 1, #v do list[j] = tostring(v[j]) end
          v = '{' .. table.concat(list, ', ') .. '}'
        end
        if v ~= nil then parts[#parts + 1] = k .. ' = ' .. tostring(v) end
      end
      local name = type(g.name) == 'string' and " '" .. g.name .. "'" or ''
      local count = n > 1 and ('%d parameter%s, '):format(#g.params, #g.params == 1 and '' or 's') or ''
      out[#out + 1] = ('  group %d%s: %s%s'):format(i, name, count, table.concat(parts, ', '))
    elseif i == FIRST + 1 then
      out[#out + 1] = ('  ... %d more groups'):format(n - FIRST - 2)
    end
  end
  return table.concat(out, '\n')
end

--- Whether a value is one of these optimizers.
function M.is(v) return type(v) == 'table' and rawget(v, '_handle') ~= nil and rawget(v, 'class') ~= nil end

local _, family = require('amp.core.class').guard(Optimizer, 'optim.Optimizer', 'opt')

local step = Optimizer.step

--- Whether nothing of the user's runs between a call of an optimizer's step and the library's.
function M.steps_at_once(v) return M.is(v) and v.step == step and not v._side and not v.class.before end

--- Make a class.
-- @tparam table class {name, kind, defaults, aliases}
-- @treturn table callable: class(params, options)
function M.class(class)
  class.op = 'optim.' .. class.name
  class.before = class.before or false -- asked for at each step: a field that is there is quick
  class.group_mt = groups.metatable(class)
  class.__name = class.name
  class.step_op, class.clear_op, class.zero_op = class.op .. '.step', class.op .. '.clear_grad', class.op .. '.zero_grad'
  local mt = { __index = Optimizer, __tostring = M.tostring }
  family.ours[mt] = true
  require('amp.core.class').instance(mt)
  local function new(_, params, options, excess)
    if excess ~= nil then err.throw(class.op, 'takes 2 arguments, parameters and a table of all options, as in {lr = 0.1}; got more') end
    if params == nil then err.throw(class.op, 'parameters are missing: amp.%s(net:parameters(), {lr = 0.1})', class.op) end
    if err.is_space(params) then err.throw(class.op, 'parameters are a list of tensors') end
    if type(options) ~= 'nil' and type(options) ~= 'table' then
      err.throw(class.op, 'options are a table, as in {lr = 0.1}, got %s', util.show(options))
    end
    if type(params) == 'table' and type(params.parameters) == 'function' then
      err.throw(class.op, 'got a module; give its parameters: net:parameters()')
    end
    options = options or {}
    local self = {
      class = class, name = options.name, where = err.where(), param_groups = {}, _calls = 0,
      _ids = {}, _sizes = {}, _count = 0, _side = false, _rescale = 0, _undecayed = false, -- these last are asked for each step: a field that is there is quick
    }
    if self.name ~= nil and type(self.name) ~= 'string' then err.throw(class.op, 'name must be a string, got %s', util.show(self.name)) end
    self.defaults = groups.read(class, options, class.defaults, { name = true })
    groups.check(class, self.defaults, '')
    local handle = call.object(class.op, C.amp_optim_new, class.kind)
    self._handle = ffi.gc(handle, C.amp_optim_free)
    setmetatable(self, mt)
    local grouped = type(params) == 'table' and type(params[1]) == 'table' and params[1].params ~= nil
    if type(params) == 'table' and params.params ~= nil then params, grouped = { params }, true end
    local list = grouped and err.list(class.op, params, 'groups') or { { params = params } }
    for i = 1, #list do self:add_param_group(list[i]) end
    return self
  end
  -- opt.lr = 0.01 would be a field that nobody reads
  local function option(k) return class.defaults[k] ~= nil or class.aliases[k] ~= nil or class.defaults.betas and (k == 'beta1' or k == 'beta2') end
  local function in_groups(k, written)
    err.throw(class.op, "'%s' stands in the optimizer's groups: %s", k, written and ('for _, g in ipairs(opt.param_groups) do g.%s = ... end'):format(k)
      or ('opt.param_groups[1].%s'):format(k))
  end
  -- The methods stand in a table, which is quick; what is not there is looked for by a function.
  local methods = {}
  for k, v in pairs(Optimizer) do methods[k] = v end
  mt.__index = setmetatable(methods, { __index = function(_, k)
    local v = Optimizer[k]
    if v == nil and option(k) then in_groups(k, false) end
    return v
  end })
  mt.__newindex = function(self, k, v)
    if option(k) then in_groups(k, true) end
    rawset(self, k, v)
  end
  require('amp.core.class').name(class, class.op)
  return setmetatable(class, { __index = Optimizer, __call = new })
end

return M
