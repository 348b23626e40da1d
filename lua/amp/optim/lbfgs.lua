--- L-BFGS: a quasi-Newton method with a limited history, each step several evaluations of a closure.
-- amp.optim.LBFGS(params, {lr = 1, max_iter = 20, max_eval = max_iter * 5 / 4, tolerance_grad = 1e-7,
-- tolerance_change = 1e-9, history_size = 100, line_search_fn = nil or 'strong_wolfe', name}).
-- One group of parameters. It decides by values, so it waits for the device, and it can't stand under a
-- GradScaler: run it in float32 (a bfloat16 region inside the closure is fine).
-- @usage opt:step(function() opt:zero_grad(); local l = loss(net(x), y); l:backward(); return l end)
-- @module amp.optim.lbfgs
local ffi = require 'ffi'
local core = require 'amp.ffi'
local err = require 'amp.error'
local groups = require 'amp.optim.param_groups'
local origin = require 'amp.optim.origin'
local search = require 'amp.optim.line_search'
local util = require 'amp.util'
local istype, ref_t = ffi.istype, core.ref_t

local class = {
  name = 'LBFGS', op = 'optim.LBFGS',
  defaults = { lr = 1, max_iter = 20, tolerance_grad = 1e-7, tolerance_change = 1e-9, history_size = 100 },
  aliases = { learningRate = 'lr', learning_rate = 'lr' },
}
class.group_mt = groups.metatable(class)
local extra = { params = true, name = true, max_eval = true, line_search_fn = true }

local LBFGS = { needs_closure = true }

-- -- Parameters as one vector --------------------------------------------------------------

local function gather(self)
  local amp, flat = require 'amp', {}
  origin.refuse_scaled_of(class.op .. '.step', self, 'LBFGS stands under no scaler; the closure calls backward of the loss itself')
  for i, p in ipairs(self._params) do
    flat[i] = p.grad ~= nil and p.grad:reshape(-1) or amp.zeros(p:numel(), { dtype = p.dtype, device = p.device })
  end
  return amp.cat(flat, 1)
end

local function move(self, step, d)
  local at = 1
  for _, p in ipairs(self._params) do
    local n = p:numel()
    p:add_(d:narrow(1, at, n):reshape(p.shape), step)
    at = at + n
  end
end

local function largest(t) return t:numel() == 0 and 0 or t:abs():max():item() end

-- -- Step --------------------------------------------------------------------------------------

-- The direction -H * g from the history (two-loop recursion).
local function direction(s, g)
  local n, al = #s.old_dirs, {}
  local q = -g
  for i = n, 1, -1 do
    al[i] = s.old_stps[i]:dot(q):item() * s.ro[i]
    q:add_(s.old_dirs[i], -al[i])
  end
  q:mul_(s.H_diag)
  for i = 1, n do q:add_(s.old_stps[i], al[i] - s.old_dirs[i]:dot(q):item() * s.ro[i]) end
  return q
end

-- Take the last step into the history.
local function remember(s, g, most)
  local y, step = g - s.prev_flat_grad, s.d * s.t
  local ys = y:dot(step):item()
  if ys <= 1e-10 then return end
  if #s.old_dirs >= most then
    table.remove(s.old_dirs, 1)
    table.remove(s.old_stps, 1)
    table.remove(s.ro, 1)
  end
  local n = #s.old_dirs + 1
  s.old_dirs[n], s.old_stps[n], s.ro[n] = y, step, 1 / ys
  s.H_diag = ys / y:dot(y):item()
end

local function minimize(self, evaluate, first)
  local o, s = self.param_groups[1], self.state
  local loss, g = first, gather(self)
  local calls, iterations = 1, 0
  s.func_evals = s.func_evals + 1
  if largest(g) <= o.tolerance_grad then return end
  local max_eval = o.max_eval or math.floor(o.max_iter * 5 / 4)
  while iterations < o.max_iter do
    iterations, s.n_iter = iterations + 1, s.n_iter + 1
    local d
    if s.n_iter == 1 then
      s.old_dirs, s.old_stps, s.ro, s.H_diag = {}, {}, {}, 1
      d = -g
      s.t = math.min(1, 1 / g:abs():sum():item()) * o.lr
    else
      remember(s, g, o.history_size)
      d = direction(s, g)
      s.t = o.lr
    end
    s.d, s.prev_flat_grad = d, g
    local before, slope, used, flat = loss, g:dot(d):item(), 0, false
    s.prev_loss = before
    if slope > -o.tolerance_change then break end
    if o.line_search_fn then
      local start = {}
      for i, p in ipairs(self._params) do start[i] = p:clone() end
      local function restore() for i, p in ipairs(self._params) do p:copy_(start[i]) end end
      local best
      best, used = search.strong_wolfe(function(t)
        move(self, t, d)
        local f = evaluate()
        local grad = gather(self)
        restore()
        return { t = t, f = f, g = grad, slope = grad:dot(d):item() }
      end, s.t, { t = 0, f = loss, g = g, slope = slope }, largest(d))
      loss, g, s.t = best.f, best.g, best.t
      move(self, s.t, d)
      flat = largest(g) <= o.tolerance_grad
    else
      move(self, s.t, d)
      if iterations ~= o.max_iter then
        loss = evaluate()
        g = gather(self)
        flat, used = largest(g) <= o.tolerance_grad, 1
      end
    end
    calls, s.func_evals = calls + used, s.func_evals + used
    if iterations == o.max_iter or calls >= max_eval or flat or largest(d) * math.abs(s.t) <= o.tolerance_change
      or math.abs(loss - before) < o.tolerance_change then
      break
    end
  end
end

--- Up to max_iter iterations.
-- @tparam function closure clears the gradients, computes the loss, calls backward, returns the loss
-- @return what the closure returned first
function LBFGS:step(closure)
  local op = class.op .. '.step'
  if type(closure) ~= 'function' then
    err.throw(op, 'takes a function that clears the gradients, computes the loss, calls backward and returns the loss; got %s', util.show(closure))
  end
  if #self.param_groups ~= 1 then err.throw(op, 'LBFGS has one group of parameters, param_groups has %d', #self.param_groups) end
  groups.check(class, self.param_groups[1], '')
  local amp = require 'amp'
  local function evaluate()
    local l = amp.enable_grad(closure)
    local v = istype(ref_t, l) and l:numel() == 1 and l:item() or l
    if type(v) ~= 'number' then err.throw(op, 'the function must return the loss, a number or a tensor of one element; got %s', util.show(l)) end
    return v, l
  end
  local first, result = evaluate()
  amp.no_grad(function() minimize(self, evaluate, first) end)
  self._calls = self._calls + 1
  return result
end

-- -- Everything else -----------------------------------------------------------------------------

--- Gradients become nil.
-- @return self
function LBFGS:clear_grad()
  for _, p in ipairs(self._params) do p.grad = nil end
  return self
end

--- Gradients become nil, or zeros with {set_to_none = false}.
-- @return self
function LBFGS:zero_grad(given)
  local none = given
  if type(given) ~= 'boolean' then
    none = require('amp.options').read(class.op .. '.zero_grad', given, { 'set_to_none' }, { set_to_none = true }).set_to_none
  end
  if none then return self:clear_grad() end
  for _, p in ipairs(self._params) do if p.grad ~= nil then p.grad:zero_() end end
  return self
end

function LBFGS:has_grads()
  for _, p in ipairs(self._params) do if p.grad ~= nil then return true end end
  return false
end

function LBFGS.add_param_group(_) err.throw(class.op .. '.add_param_group', 'LBFGS has one group of parameters; give all of them at creation') end

function LBFGS:describe() return self.name and ("'%s'"):format(self.name) or ('LBFGS made at %s'):format(self.where or 'an unknown place') end

local kept = { 'func_evals', 'n_iter', 't', 'H_diag', 'prev_loss', 'd', 'prev_flat_grad', 'old_dirs', 'old_stps', 'ro' }

local function copy(v)
  if type(v) ~= 'table' then return v end
  return { unpack(v) }
end

--- {state = {history of the first parameter}, param_groups}; tensors share memory with the optimizer.
function LBFGS:state_dict()
  local g, s = { params = {} }, nil
  for i = 1, #self._params do g.params[i] = i end
  for k, v in pairs(self.param_groups[1]) do
    if k ~= 'params' then g[k] = v end
  end
  if self.state.func_evals > 0 then
    s = {}
    for _, k in ipairs(kept) do s[k] = copy(self.state[k]) end
  end
  return { state = { s }, param_groups = { g } }
end

local tensors = { d = true, prev_flat_grad = true, old_dirs = true, old_stps = true }
local counts = { func_evals = true, n_iter = true }
local lists = { old_dirs = true, old_stps = true, ro = true }

-- What a state keeps, copied; an error that names what is not as it should be.
function LBFGS:_read(op, s)
  local function own(name, v)
    if tensors[name] then
      if not istype(ref_t, v) then err.throw(op, '%s of the state must be a tensor, got %s', name, util.show(v)) end
      if v:numel() ~= self._numel then err.throw(op, '%s has %d elements, the parameters %d', name, v:numel(), self._numel) end
      local p = self._params[1]
      return v:detach():reshape(-1):to(p.device):to(p.dtype):clone()
    end
    if type(v) ~= 'number' or counts[name] and (v % 1 ~= 0 or v < 0) then
      err.throw(op, '%s of the state must be %s, got %s', name, counts[name] and 'an integer from 0' or 'a number', util.show(v))
    end
    return v
  end
  local state = { func_evals = 0, n_iter = 0 }
  local most -- elements of each list
  local begun = s.prev_flat_grad ~= nil or s.d ~= nil or (s.n_iter or 0) ~= 0
  for _, name in ipairs(kept) do
    local v = s[name]
    if v ~= nil and lists[name] then
      if type(v) ~= 'table' then err.throw(op, '%s of the state must be a list, got %s', name, util.show(v)) end
      local n = 0
      for _ in pairs(v) do n = n + 1 end
      if most and n ~= most then err.throw(op, 'old_dirs, old_stps and ro of the state must be equally long; %s has %d elements, not %d', name, n, most) end
      most, state[name] = n, {}
      for i = 1, n do state[name][i] = own(name, v[i]) end
    elseif v ~= nil then state[name] = own(name, v)
    elseif not counts[name] and begun then err.throw(op, '%s of the state is missing', name) end
  end
  return state
end

--- Go on from a state dict.
-- @return self
function LBFGS:load_state_dict(dict)
  local op = class.op .. '.load_state_dict'
  if type(dict) ~= 'table' or type(dict.state) ~= 'table' or type(dict.param_groups) ~= 'table' or type(dict.param_groups[1]) ~= 'table' then
    err.throw(op, "a state dict has 'state' and 'param_groups', got %s", util.show(dict))
  end
  local saved, s = dict.param_groups[1], dict.state[1] == nil and {} or dict.state[1]
  if type(s) ~= 'table' then err.throw(op, 'the state of the parameters must be a table, got %s', util.show(s)) end
  if type(saved.params) ~= 'table' or #saved.params ~= #self._params then
    err.throw(op, 'the state has %d parameters, the optimizer %d', type(saved.params) == 'table' and #saved.params or 0, #self._params)
  end
  local merged = {}
  for k in pairs(class.defaults) do
    merged[k] = saved[k]
    if merged[k] == nil then merged[k] = self.param_groups[1][k] end
  end
  groups.check(class, merged, ' (in the state)')
  local state = self:_read(op, s)
  for k, v in pairs(saved) do
    if k ~= 'params' then self.param_groups[1][k] = v end
  end
  self.state = state
  return self
end

local function integer(name, v)
  if type(v) ~= 'number' or v % 1 ~= 0 or v < 1 then err.throw(class.op, '%s must be an integer of at least 1, got %s', name, util.show(v)) end
end

local mt = {
  __index = LBFGS,
  __tostring = function(self)
    local g = self.param_groups[1]
    return ('LBFGS (%d parameter%s: lr = %g, max_iter = %d, history_size = %d, line_search_fn = %s)')
      :format(#self._params, #self._params == 1 and '' or 's', g.lr, g.max_iter, g.history_size, tostring(g.line_search_fn))
  end,
}

require('amp.core.class').guard(LBFGS, 'optim.LBFGS', 'opt', mt)
require('amp.core.class').name(class, 'optim.LBFGS')

return setmetatable(class, {
  __index = LBFGS,
  __call = function(_, params, given)
    if err.is_space(params) then err.throw(class.op, 'parameters are a list of tensors') end
    given = given or {}
    if type(given) ~= 'table' then err.throw(class.op, 'options are a table, as in {lr = 1}, got %s', util.show(given)) end
    if type(params) == 'table' and type(params.parameters) == 'function' then err.throw(class.op, 'got a module; give its parameters: net:parameters()') end
    local list = istype(ref_t, params) and { params } or params
    if type(list) == 'table' and type(list[1]) == 'table' then
      err.list(class.op, list, 'groups')
      if #list ~= 1 then err.throw(class.op, 'LBFGS has one group of parameters, got %d', #list) end
      local merged = {}
      for k, v in pairs(given) do merged[k] = v end
      for k, v in pairs(list[1]) do if k ~= 'params' then merged[k] = v end end
      list, given = list[1].params, merged
    end
    if type(list) == 'table' then err.list(class.op, list, 'parameters') end
    if type(list) ~= 'table' or #list == 0 then err.throw(class.op, 'parameters are a list of tensors, got %s', util.show(list)) end
    local g = groups.read(class, given, class.defaults, extra)
    groups.check(class, g, '')
    integer('max_iter', g.max_iter)
    integer('history_size', g.history_size)
    if given.max_eval ~= nil then integer('max_eval', given.max_eval) end
    if given.line_search_fn ~= nil and given.line_search_fn ~= 'strong_wolfe' then
      err.throw(class.op, "line_search_fn must be 'strong_wolfe' or nil, got %s", util.show(given.line_search_fn))
    end
    g.max_eval, g.line_search_fn, g.params = given.max_eval, given.line_search_fn, {}
    local self = { class = class, name = given.name, where = err.where(), _params = g.params, _calls = 0, _numel = 0, state = { func_evals = 0, n_iter = 0 } }
    for i = 1, #list do
      local p = list[i]
      if not istype(ref_t, p) then err.throw(class.op, 'parameter %d must be a tensor, got %s', i, util.show(p)) end
      if not p.is_leaf then err.throw(class.op, 'parameter %d was made by an op; only leaves can be optimized: use t:detach()', i) end
      if p.dtype ~= list[1].dtype or p.device ~= list[1].device then
        err.throw(class.op, 'parameters should be of one dtype and device; number 1 is %s on %s, number %d %s on %s',
          list[1].dtype, list[1].device, i, p.dtype, p.device)
      end
      g.params[i], self._numel = p, self._numel + p:numel()
    end
    if not list[1].dtype:match 'float' then err.throw(class.op, 'parameter 1 is %s; only float tensors can be optimized', list[1].dtype) end
    self.param_groups = { setmetatable(g, class.group_mt) }
    return setmetatable(self, mt)
  end,
})
