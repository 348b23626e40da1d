--- An optimizer against steps that a fixture holds, in every way of giving gradients.
local amp = require 'amp'
local assert = require 'luassert'
local H = require 'spec.lib.helper'

local M = {}

--- A leaf with a fixture's values.
function M.leaf(f, dtype)
  local t = H.tensor(f, dtype)
  t.requires_grad = true
  return t
end

--- A parameter of one dimension.
function M.param(values, dtype)
  local t = H.make(values, { #values }, dtype)
  t.requires_grad = true
  return t
end

--- A case's kind and options, for its name.
function M.label(c)
  local parts = {}
  for k, v in pairs(c.opts) do parts[#parts + 1] = k .. '=' .. (type(v) == 'table' and table.concat(v, '/') or tostring(v)) end
  table.sort(parts)
  return c.kind .. ' ' .. table.concat(parts, ' ')
end

-- A step's gradients, given in a way.
local function give(way, ps, grads, dtype, scaler)
  for i, p in ipairs(ps) do
    local g = grads[i]
    if not g then
      p.grad = nil
    elseif way == '16-bit gradients' then -- exact in 16 bits, so the result is the same
      local seed = H.tensor(g, 'bfloat16')
      amp.autocast({ dtype = 'bfloat16' }, function() return p:bfloat16() end):backward(seed)
    elseif scaler then
      scaler:scale((p * H.tensor(g, dtype)):sum()):backward()
    else
      p.grad = H.tensor(g, dtype)
    end
  end
end

-- The optimizer in the middle of its way, written and read again, with parameters of its own.
local function reloaded(c, ps, opt)
  local path, fresh = H.tmp 'optimizer', {}
  amp.save(path, opt:state_dict())
  for i, p in ipairs(ps) do
    fresh[i] = H.make(H.values(p), H.shape(p))
    fresh[i].requires_grad = true
  end
  local again = amp.optim[c.kind](fresh, { lr = 0.777 })
  again:load_state_dict(amp.load(path))
  return fresh, again
end

local function check_state(c, opt, dtype, way)
  local state = opt:state_dict().state
  for i, want in ipairs(c.state) do
    for name, v in pairs(want) do
      if name == 'step' then assert.equal(v, state[i].step, way)
      else
        local tol = dtype == 'float64' and { rtol = 1e-9, atol = 1e-10 } or { rtol = 1e-5, atol = 2e-6 }
        local wrong = H.difference(state[i][name], v.v, v.s, tol)
        if wrong then error(('%s, %s of parameter %d: %s'):format(way, name, i, wrong), 0) end
      end
    end
    for name in pairs(state[i]) do assert.is_true(name == 'step' or want[name] ~= nil, name) end
  end
end

local function follow(c, way, tolerance)
  local dtype = way == 'float64' and 'float64' or 'float32'
  local ps = { M.leaf(c.start[1], dtype), M.leaf(c.start[2], dtype) }
  local opt = amp.optim[c.kind](ps, c.opts)
  local scaler = way == 'scaler' and amp.GradScaler { init_scale = 4, growth_interval = 2 }
  for k, step in ipairs(c.steps) do
    give(way, ps, step.grads, dtype, scaler)
    if scaler then
      scaler:step(opt)
      scaler:update()
    else
      opt:step()
    end
    opt:clear_grad()
    for i, p in ipairs(ps) do
      local wrong = H.difference(p, step.params[i].v, step.params[i].s, tolerance(c, dtype))
      if wrong then error(('%s, step %d, parameter %d: %s'):format(way, k, i, wrong), 0) end
    end
    if way == 'reloaded' and k == 4 then ps, opt = reloaded(c, ps, opt) end
  end
  check_state(c, opt, dtype, way)
end

--- A case of a fixture: parameters after each step and the state at the end.
function M.follows(c, tolerance)
  for _, way in ipairs { 'float32', 'float64', '16-bit gradients', 'scaler', 'reloaded' } do follow(c, way, tolerance) end
end

return M
