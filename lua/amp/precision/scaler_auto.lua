--- GradScaler's automatic gear: one call does the backward pass of the scaled loss, unscales
-- the gradients of the manager's tensors and updates the scale.
-- Called once by amp.scaler with the class and its inner functions.
-- @module amp.precision.scaler_auto
local ffi = require 'ffi'
local err = require 'amp.error'
local options = require 'amp.options'
local util = require 'amp.util'
local core = require 'amp.ffi'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype = ffi.istype

-- Backward from gradients that carry the scale.
local function backward(gm, losses, dy, scale)
  local before = C.amp_backward_scale(S, scale)
  local ok, e = pcall(gm.backward, gm, losses, { dy = dy })
  C.amp_backward_origin(S, before)
  if not ok then error(e, 0) end
end

return function(Scaler, I)
  --- The automatic gear: backward of the scaled loss through a manager, unscale, update.
  -- @param gm a GradManager that recorded the loss
  -- @tparam Tensor|table loss
  -- @tparam ?table o {dy, unscale_grad = true, update_scale = unscale_grad}
  -- @return self
  -- @usage gm:record(function() scaler:backward(gm, loss_of(net(x), y)) end); opt:step():clear_grad()
  function Scaler:backward(gm, loss, o)
    local op = 'GradScaler.backward'
    if type(gm) ~= 'table' or type(gm.backward) ~= 'function' or type(gm.attached_tensors) ~= 'function' then
      err.throw(op, 'argument 1 must be a GradManager, got %s', util.show(gm))
    end
    if istype(ref_t, o) or type(o) == 'number' then o = { dy = o } end
    o = options.read(op, o, { 'dy', 'unscale_grad', 'update_scale' })
    if o.update_scale == 'if_unscale_grad' then o.update_scale = nil end -- MegEngine's name of the default
    for _, k in ipairs { 'unscale_grad', 'update_scale' } do
      if o[k] ~= nil and type(o[k]) ~= 'boolean' then err.throw(op, '%s must be true or false, got %s', k, util.show(o[k])) end
    end
    local unscale = o.unscale_grad ~= false
    local update = o.update_scale
    if update == nil then update = unscale end
    if not self._o.enabled then
      gm:backward(loss, { dy = o.dy })
      return self
    end
    local losses = istype(ref_t, loss) and { loss } or loss
    if type(losses) ~= 'table' then err.throw(op, 'argument 2 must be a tensor or a list of tensors, got %s', util.show(loss)) end
    local dys, cells = o.dy, {}
    if istype(ref_t, dys) or type(dys) == 'number' then dys = { dys } end
    local dy, first = {}, nil
    for i = 1, #losses do
      if not istype(ref_t, losses[i]) then err.throw(op, 'loss %d must be a tensor, got %s', i, util.show(losses[i])) end
      local p = losses[i].ptr_
      local code = p.device * 256 + p.device_index
      local cell = cells[code] or I.scale_on(self, code)
      cells[code], first = cell, first or cell
      local given = dys and dys[i]
      if given == nil then dy[i] = cell
      elseif type(given) == 'number' then dy[i] = cell * given
      else dy[i] = I.scaled(self, given, '', cells) end
    end
    if unscale then
      I.beside(self, op, gm:attached_tensors(), function()
        backward(gm, losses, dy, first)
        self:unscale(gm:attached_tensors())
      end)
      self._touched = true
    else
      backward(gm, losses, dy, first)
    end
    if update then self:update() end
    return self
  end
end
