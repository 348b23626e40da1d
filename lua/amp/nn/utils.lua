--- Helpers for gradients and parameters: clipping, flattening.
-- Under a scaler call scaler:unscale_(opt) first: norms are of unscaled values then.
-- @module amp.nn.utils
local ffi = require 'ffi'
local amp = require 'amp'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local options = require 'amp.options'
local origin = require 'amp.optim.origin'
local util = require 'amp.util'
local C, ref_t = core.C, core.ref_t
local istype = ffi.istype

local M = {}

local buffer_t = ffi.typeof 'amp_tensor *[?]'
local ops = require 'amp.ops'
local mul_, clamp_ = ops.get 'mul_', ops.get 'clamp_'

-- one tensor or a list of them
local function tensors(op, params)
  if istype(ref_t, params) then return { params } end
  if type(params) ~= 'table' then err.throw(op, 'takes a list of tensors, got %s', util.show(params)) end
  if type(params.parameters) == 'function' then err.throw(op, 'got a module; give its parameters: net:parameters()') end
  err.list(op, params)
  for i = 1, #params do
    if not istype(ref_t, params[i]) then err.throw(op, 'element %d must be a tensor, got %s', i, util.show(params[i])) end
    if params[i].ptr_ == nil then err.throw(op, 'tensor %d was freed', i) end
  end
  return params
end

-- Total norm; clips where max_norm is not negative.
local function total(op, list, max_norm, p)
  local n = #list
  local buffer = buffer_t(n)
  for i = 1, n do buffer[i - 1] = list[i].ptr_ end
  return call.make(op, C.amp_clip_grad_norm, buffer, n, max_norm, p)
end

--- Scale gradients so that their total norm is at most max_norm, without waiting for it.
-- The factor stays pending on 16-bit gradients; the step applies it.
-- @param params tensors, as a list
-- @tparam number|table max_norm or every argument by name, {max_norm, norm_type, error_if_nonfinite}
-- @tparam ?number|table norm_type p of the norm (2; math.huge: largest), or {norm_type, error_if_nonfinite}
-- @treturn Tensor total norm before clipping, a float32 scalar
-- @usage scaler:unscale_(opt); nn.utils.clip_grad_norm_(net:parameters(), 1.0); scaler:step(opt)
function M.clip_grad_norm_(params, max_norm, norm_type, more)
  local op = 'nn.utils.clip_grad_norm_'
  if type(max_norm) == 'table' and not istype(ref_t, max_norm) then -- every argument by name
    local all = options.read(op, max_norm, { 'max_norm', 'norm_type', 'error_if_nonfinite' })
    max_norm, norm_type, more = all.max_norm, all.norm_type, { error_if_nonfinite = all.error_if_nonfinite }
  end
  local given = type(norm_type) == 'table' and norm_type or more
  local o = options.read(op, given, { 'norm_type', 'error_if_nonfinite' }, { norm_type = 2, error_if_nonfinite = false })
  if type(norm_type) == 'number' then o.norm_type = norm_type end
  local p = o.norm_type == 'inf' and math.huge or o.norm_type
  if type(max_norm) ~= 'number' or max_norm ~= max_norm or max_norm < 0 then
    err.throw(op, 'max_norm must be a number of at least 0, got %s', util.show(max_norm))
  end
  if type(p) ~= 'number' or p ~= p or p <= 0 then err.throw(op, 'norm_type must be a positive number or math.huge, got %s', util.show(p)) end
  local list = tensors(op, params)
  if o.error_if_nonfinite then
    local v = total(op, list, -1, p):item()
    if v ~= v or v == math.huge then
      err.throw_code('value', op, 'the total norm of the gradients is %s; they are unchanged (error_if_nonfinite)', v ~= v and 'NaN' or 'infinite')
    end
  end
  return total(op, list, max_norm, p)
end

local function positive_norm(op, p)
  if p == nil then return 2 end
  if p == 'inf' then return math.huge end
  if type(p) ~= 'number' or p ~= p or p <= 0 then err.throw(op, 'norm_type must be a positive number or math.huge, got %s', util.show(p)) end
  return p
end

--- Total norm of the gradients of tensors, or of tensors that have none and need none
-- (gradients themselves); nothing is changed.
-- @param params tensors, as a list
-- @tparam ?number norm_type p of the norm (2; math.huge: largest)
-- @treturn Tensor a float32 scalar
function M.get_total_norm(params, norm_type, excess)
  local op = 'nn.utils.get_total_norm'
  options.none(op, excess)
  local list, p = tensors(op, params), positive_norm(op, norm_type)
  local plain = #list > 0
  for i = 1, #list do plain = plain and not list[i].requires_grad and list[i].grad == nil end
  if not plain then return total(op, list, -1, p) end
  local norms = {}
  return amp.no_grad(function()
    for i = 1, #list do norms[i] = list[i]:float():norm(p):reshape(1):to(list[1].device) end
    return amp.cat(norms, 1):norm(p)
  end)
end

--- Scale gradients by max_norm over a total norm that is already known (of get_total_norm), at
-- most by 1, without waiting for it.
-- @param params tensors, as a list
-- @tparam number max_norm
-- @tparam Tensor|number total_norm
function M.clip_grads_with_norm_(params, max_norm, total_norm, excess)
  local op = 'nn.utils.clip_grads_with_norm_'
  options.none(op, excess)
  if type(max_norm) ~= 'number' or max_norm ~= max_norm or max_norm < 0 then
    err.throw(op, 'max_norm must be a number of at least 0, got %s', util.show(max_norm))
  end
  if type(total_norm) == 'number' then total_norm = amp.tensor(total_norm) end
  if not istype(ref_t, total_norm) or total_norm:numel() ~= 1 then
    err.throw(op, 'total_norm must be a number or a scalar tensor, got %s', util.show(total_norm))
  end
  local list = tensors(op, params)
  amp.no_grad(function()
    local factor = (max_norm / (total_norm:detach():float():reshape {} + 1e-6)):clamp(nil, 1)
    local done = {} -- a gradient that several parameters have is multiplied once
    for i = 1, #list do
      local g = list[i].grad
      if g ~= nil and not done[g:id()] then
        done[g:id()] = true
        origin.keep(list[i], g, mul_, factor:to(g.device):to(g.dtype))
      end
    end
  end)
end

--- Limit every element of the gradients to [-clip_value, clip_value].
function M.clip_grad_value_(params, clip_value, excess)
  local op = 'nn.utils.clip_grad_value_'
  options.none(op, excess)
  if type(clip_value) == 'table' then clip_value = options.read(op, clip_value, { 'clip_value' }).clip_value end
  if type(clip_value) ~= 'number' or clip_value ~= clip_value or clip_value < 0 then
    err.throw(op, 'clip_value must be a number of at least 0, got %s', util.show(clip_value))
  end
  local list = tensors(op, params)
  amp.no_grad(function()
    for i = 1, #list do
      local g = list[i].grad
      if g ~= nil then
        local held = C.amp_grad_hold(list[i])
        clamp_(g, -clip_value, clip_value)
        if held ~= 0 then C.amp_grad_keep(list[i], held) end -- an overflow that was found stays one
      end
    end
  end)
end

--- All elements of the tensors, one after the other, as a vector with history.
-- @treturn Tensor vector
function M.parameters_to_vector(params, excess)
  options.none('nn.utils.parameters_to_vector', excess)
  local list, flat = tensors('nn.utils.parameters_to_vector', params), {}
  if #list == 0 then err.throw('nn.utils.parameters_to_vector', 'an empty list') end
  for i = 1, #list do flat[i] = list[i]:reshape(-1) end
  return amp.cat(flat, 1)
end

--- Copy a vector's elements into the tensors.
function M.vector_to_parameters(vector, params, excess)
  local op = 'nn.utils.vector_to_parameters'
  options.none(op, excess)
  if not istype(ref_t, vector) then err.throw(op, 'the first argument must be a tensor, got %s', util.show(vector)) end
  local list, count = tensors(op, params), 0
  for i = 1, #list do count = count + list[i]:numel() end
  if vector:numel() ~= count then err.throw(op, 'the vector has %d elements, the parameters %d', vector:numel(), count) end
  amp.no_grad(function()
    local at = 1
    for i = 1, #list do
      local n = list[i]:numel()
      list[i]:copy_(vector:narrow(1, at, n):reshape(list[i].shape))
      at = at + n
    end
  end)
end

-- Reparametrised weights, in amp.nn.weight_norm
for name in ('weight_norm remove_weight_norm spectral_norm remove_spectral_norm'):gmatch '%S+' do
  --- weight_norm(module, {name, dim}), spectral_norm(module, {name, n_power_iterations, eps, dim}): the weight is computed anew for each
  -- forward pass; remove_weight_norm(module, name) and remove_spectral_norm make it an ordinary parameter again. See amp/nn/weight_norm.lua.
  M[name] = function(...) return require('amp.nn.weight_norm')[name](...) end
end

--- Sequences of different lengths: nn.utils.rnn.
M.rnn = require 'amp.nn.packed'

-- Adapters beside layers, in amp.nn.blocks.lora
for _, name in ipairs { 'lora', 'merge_lora', 'lora_parameters', 'lora_state_dict' } do
  --- lora(net, {rank, alpha, targets, dropout, trainable}) puts narrow matrices beside nn.Linear layers and freezes the rest;
  -- merge_lora(net) takes them into the weights; lora_parameters(net) is what is trained, lora_state_dict(net) the adapters alone.
  -- See amp/nn/blocks/lora.lua.
  M[name] = function(...) return require('amp.nn.blocks.lora')[name](...) end
end

return M
