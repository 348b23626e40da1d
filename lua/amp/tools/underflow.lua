--- The part of amp.doctor that looks at gradients: how many of a parameter's would be lost in float16.
-- @module amp.tools.underflow
local amp = require 'amp'
local next_key = require('amp.core.keys').next
local core = require 'amp.ffi'
local names = require 'amp.tools.names'
local observer = require 'amp.tools.observer'
local C = core.C

local M = {}

local ZERO, SUBNORMAL = 2 ^ -25, 2 ^ -14 -- up to here float16 rounds to 0; below here it has fewer digits

local function upto(a, most)
  return a:le(most):sum():item()
end

-- Counts of one gradient's values (float32 or float64), multiplied by scale.
local function count(a, exact, scale)
  local zero = upto(a, ZERO / scale) - exact
  return zero, a:lt(SUBNORMAL / scale):sum():item() - exact - zero
end

--- A collector of counts: `look(scale)` is called where gradients are there.
-- @tparam function fn whose parameters are meant
-- @tparam table given net and optimizer, as the user gave them
-- @treturn table {look, rows}
function M.collector(fn, given)
  local known
  local index = {}
  local self = { rows = {} }

  local function parameters()
    known = names.collect(fn, { net = given.net, optimizer = nil }, true)
    local opt = given.optimizer
    for g, group in ipairs(opt and opt.param_groups or {}) do
      for i, p in ipairs(group.params) do
        local id = tonumber(p.ptr_.id)
        known[id] = known[id] or { name = ('parameter %d of group %d'):format(i, g), tensor = p }
      end
    end
  end

  local function look(scale)
    if known == nil or next_key(known) == nil then parameters() end
    for id, p in pairs(known) do
      if p.tensor.ptr_ ~= nil and C.amp_grad_defined(p.tensor) ~= 0 then
        local g = p.tensor.grad
        if g then
          local a = g:detach():abs()
          if a.dtype ~= 'float64' then a = a:float() end
          local exact = a:eq(0):sum():item()
          local r = index[id]
          if r == nil then
            r = { name = p.name, half = p.tensor.dtype == 'float16', n = 0, zeros = 0, zero = 0, subnormal = 0, zero_scaled = 0, subnormal_scaled = 0 }
            index[id], self.rows[#self.rows + 1] = r, r
          end
          local zero, small = count(a, exact, 1)
          local zero_scaled, small_scaled = zero, small
          if scale and scale ~= 1 then zero_scaled, small_scaled = count(a, exact, scale) end
          r.n, r.zeros = r.n + a:numel(), r.zeros + exact
          r.zero, r.subnormal = r.zero + zero, r.subnormal + small
          r.zero_scaled, r.subnormal_scaled = r.zero_scaled + zero_scaled, r.subnormal_scaled + small_scaled
        end
      end
    end
  end

  --- Count what the gradients are at this moment. Nothing is recorded or cast.
  function self.look(scale)
    observer.quietly(amp.no_grad, function() amp.autocast.off(look, scale) end)
  end

  --- Shares instead of counts, the worst first.
  function self.finish()
    for _, r in ipairs(self.rows) do
      for _, k in ipairs { 'zeros', 'zero', 'subnormal', 'zero_scaled', 'subnormal_scaled' } do r[k] = r.n > 0 and r[k] / r.n or 0 end
    end
    table.sort(self.rows, function(x, y)
      local a, b = x.zero + x.subnormal, y.zero + y.subnormal
      if a ~= b then return a > b end
      return x.name < y.name
    end)
    return self.rows
  end

  return self
end

return M
