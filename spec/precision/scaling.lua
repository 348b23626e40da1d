--- What the scaler's specs share: a leaf, an optimizer with rate 1, a backward with a given gradient, all of a gear.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local M = {}

function M.eq(t, values) H.close(t, values, H.exact) end
function M.param(values)
  local t = H.make(values, { #values })
  t.requires_grad = true
  return t
end
function M.sgd(...) return amp.optim.SGD({ ... }, { lr = 1 }) end
--- A backward whose gradient in p is g, scaled.
function M.give(scaler, p, g) scaler:scale((p * g):sum()):backward() end

--- A scaler of these options, a manager of one leaf of these values, the leaf, its optimizer.
function M.gear(options, values)
  local p = M.param(values or { 1 })
  return amp.GradScaler(options), amp.GradManager():attach { p }, p, M.sgd(p)
end

return M
