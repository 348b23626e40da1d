--- Check derivatives against central differences.
-- @module amp.autograd.gradcheck
local autograd = require 'amp.autograd'
local create = require 'amp.tensor.create'
local core = require 'amp.ffi'
local err = require 'amp.error'
local util = require 'amp.util'
local warn = require 'amp.core.warn'
local ffi = require 'ffi'
local ref_t = core.ref_t

local M = {}

local names = { 'eps', 'atol', 'rtol', 'raise' }

local function prepare(op, fn, inputs, o)
  autograd.need_function(op, fn)
  if ffi.istype(ref_t, inputs) then inputs = { inputs } end
  if type(inputs) ~= 'table' then err.throw(op, 'argument 2 must be a tensor or a list of tensors, got %s', util.show(inputs)) end
  o = o or {}
  if type(o) ~= 'table' then err.throw(op, 'options must be a table, got %s', util.show(o)) end
  for k in pairs(o) do
    if k ~= 'eps' and k ~= 'atol' and k ~= 'rtol' and k ~= 'raise' then
      err.throw(op, 'unknown option %s%s (there are %s)', util.show(k), util.hint(k, names), table.concat(names, ', '))
    end
  end
  local any = false
  for i = 1, #inputs do
    local t = inputs[i]
    if ffi.istype(ref_t, t) and t.requires_grad then
      any = true
      if t.dtype ~= 'float64' then
        warn.once(('amp.%s: input %d is %s; differences are reliable in float64 only'):format(op, i, t.dtype), op .. t.dtype)
      end
    end
  end
  if not any then err.throw(op, 'no input requires grad') end
  return inputs, { eps = o.eps or 1e-6, atol = o.atol or 1e-5, rtol = o.rtol or 1e-3, raise = o.raise ~= false }
end

local function outputs_of(fn, inputs)
  local list = util.pack(fn(unpack(inputs)))
  if list.n == 1 and type(list[1]) == 'table' then list = list[1] end
  local out = {}
  for i = 1, list.n or #list do
    local t = list[i]
    if ffi.istype(ref_t, t) and t:is_floating_point() then out[#out + 1] = t end
  end
  return out
end

local function values(t)
  local list, n = t:detach():reshape(-1):tolist(), t:numel()
  return list, n
end

-- Index of the k-th element in C order, as a list.
local function place(k, shape)
  local at = {}
  k = k - 1
  for d = #shape, 1, -1 do
    at[d] = k % shape[d] + 1
    k = math.floor(k / shape[d])
  end
  return at
end

local function numeric(fn, inputs, which, k, eps)
  local sides = {}
  for s = 1, 2 do
    local moved = {}
    for i = 1, #inputs do moved[i] = inputs[i] end
    local x = inputs[which]:detach():clone()
    local step = s == 1 and eps or -eps
    if x:dim() == 0 then x:fill_(x:item() + step)
    else
      local at = place(k, x.shape)
      x[at] = x[at]:item() + step
    end
    moved[which] = x
    sides[s] = autograd.no_grad(outputs_of, fn, moved)
  end
  return sides[1], sides[2]
end

--- Are fn's gradients those of central differences?
-- @tparam function fn of the inputs, giving a tensor or several
-- @tparam table|Tensor inputs float64; those that require grad are checked
-- @tparam ?table options {eps = 1e-6, atol = 1e-5, rtol = 1e-3, raise = true}
-- @treturn boolean true; false (with raise = false) or an error that names the first place that differs
function M.gradcheck(fn, inputs, options)
  local o
  inputs, o = prepare('gradcheck', fn, inputs, options)
  local function fail(message)
    if o.raise then err.throw_code('value', 'gradcheck', '%s', message) end
    return false, message
  end
  local outs = outputs_of(fn, inputs)
  if #outs == 0 then return fail 'the function gives no float tensor' end
  local checked = {}
  for i = 1, #inputs do
    if ffi.istype(ref_t, inputs[i]) and inputs[i].requires_grad then checked[#checked + 1] = i end
  end
  local targets = {}
  for i = 1, #checked do targets[i] = inputs[checked[i]] end
  -- analytic[output][element of output][input] = list of values
  local analytic = {}
  for j = 1, #outs do
    analytic[j] = {}
    local shape, n = outs[j].shape, outs[j]:numel()
    for e = 1, n do
      local g = {}
      if outs[j].requires_grad then
        local unit = create.zeros(shape, { dtype = outs[j].dtype, device = outs[j].device })
        if #shape == 0 then unit:fill_(1) else unit[place(e, shape)] = 1 end
        g = autograd.grad(outs[j], targets, { grad_outputs = unit, retain_graph = true, allow_unused = true })
      end
      analytic[j][e] = {}
      for i = 1, #targets do
        analytic[j][e][i] = g[i] and values(g[i]) or false
      end
    end
  end
  for i = 1, #targets do
    for k = 1, targets[i]:numel() do
      local plus, minus = numeric(fn, inputs, checked[i], k, o.eps)
      for j = 1, #outs do
        local p, m = values(plus[j]), values(minus[j])
        for e = 1, #p do
          local want = (p[e] - m[e]) / (2 * o.eps)
          local got = analytic[j][e][i] and analytic[j][e][i][k] or 0
          local d = math.abs(got - want)
          if d ~= d or d > o.atol + o.rtol * math.abs(want) then
            return fail(('output %d element %d in input %d element %d: backward gives %.9g, differences give %.9g')
              :format(j, e, checked[i], k, got, want))
          end
        end
      end
    end
  end
  return true
end

--- Are the second derivatives those of central differences?
-- @tparam function fn
-- @tparam table|Tensor inputs
-- @tparam ?table options as of gradcheck
function M.gradgradcheck(fn, inputs, options)
  local o
  inputs, o = prepare('gradgradcheck', fn, inputs, options)
  local outs = outputs_of(fn, inputs)
  local all = {}
  for i = 1, #inputs do all[i] = inputs[i] end
  local seed = 0.37
  for j = 1, #outs do
    if outs[j].requires_grad then
      -- weights that are no symmetric choice, the same every time
      local list = {}
      for e = 1, outs[j]:numel() do
        seed = (seed * 997.13 + 0.71) % 1
        list[e] = seed + 0.25
      end
      local w = create.tensor(list, { dtype = outs[j].dtype, device = outs[j].device }):reshape(outs[j].shape)
      w.requires_grad = true
      all[#all + 1] = w
    end
  end
  local n = #inputs
  local function gradients(...)
    local args = { ... }
    local xs, ws, targets = {}, {}, {}
    for i = 1, n do
      xs[i] = args[i]
      if ffi.istype(ref_t, xs[i]) and inputs[i].requires_grad then
        if not xs[i].requires_grad then xs[i] = xs[i]:detach():requires_grad_() end
        targets[#targets + 1] = xs[i]
      end
    end
    for i = n + 1, #args do ws[#ws + 1] = args[i] end
    local outputs = {}
    for _, t in ipairs(autograd.enable_grad(outputs_of, fn, xs)) do
      if t.requires_grad then outputs[#outputs + 1] = t end
    end
    local g = autograd.enable_grad(autograd.grad, outputs, targets, { grad_outputs = ws, create_graph = true, allow_unused = true })
    local list = {}
    for i = 1, #targets do list[#list + 1] = g[i] or create.zeros_like(targets[i]) end
    return unpack(list)
  end
  return M.gradcheck(gradients, all, { eps = o.eps, atol = o.atol, rtol = o.rtol, raise = o.raise })
end

return M
