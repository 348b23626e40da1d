--- Reparametrised weights: weight_norm, spectral_norm and their removal (parts of amp.nn.utils).
-- The parameter of that name goes; before each forward the module's field is computed from
-- what stands in its place:
--
--   weight_norm     weight = weight_g * weight_v / |weight_v|
--   spectral_norm   weight = weight_orig / sigma, sigma its largest singular value,
--                   by power iteration on the buffers weight_u and weight_v
--
-- The computed weight is a plain field with history: in no state dict, no parameter list.
-- @module amp.nn.weight_norm
local amp = require 'amp'
local options = require 'amp.options'
local Module = require 'amp.nn.module'
local raise = require('amp.error').throw

local M = {}
local off = { enabled = false }

-- What a module's parameter is under: {kind, hook, compute, owner}, or nil. It is kept in the module, since compute may
-- hold what holds the module; a copy has the entries of its original, which are not its own.
local function entry(module, name)
  local it = (rawget(module, '.norms') or {})[name]
  return it and it.owner == module and it or nil
end

local function set_entry(module, name, it)
  local all = {}
  for k, v in pairs(rawget(module, '.norms') or {}) do all[k] = v end
  all[name] = it
  rawset(module, '.norms', all)
end

local function check(op, module, name)
  if not Module.is_module(module) then raise(op, 'a module expected, got %s', require('amp.util').kind(module)) end
  local it = entry(module, name)
  if it then raise(op, "parameter '%s' is under %s already", name, it.kind) end
  local t = Module.raw_key(module, '.kinds')[name] == 'parameter' and module[name]
  if not t then raise(op, "%s has no parameter '%s'", module.__name, tostring(name)) end
  return t
end

-- a field that is no part of the module's state
local function put(module, name, t) Module.raw_key(module, '.values')[name] = t end

local function install(module, name, kind, compute)
  module[name] = nil
  put(module, name, compute(module))
  local hook = module:register_forward_pre_hook(function(m) put(m, name, compute(m)) end)
  set_entry(module, name, {kind = kind, hook = hook, compute = compute, owner = module})
  return module
end

local function uninstall(op, module, name, kind)
  if not Module.is_module(module) then raise(op, 'a module expected, got %s', require('amp.util').kind(module)) end
  local it = entry(module, name)
  if not it or it.kind ~= kind then raise(op, "%s: parameter '%s' is not under %s", module.__name, tostring(name), kind) end
  local w = amp.no_grad(it.compute, module):detach():clone()
  it.hook.remove()
  set_entry(module, name, nil)
  return w
end

-- Which dimension has sizes of its own: false for none
local function dimension(op, t, dim)
  if dim == false then return false end
  dim = options.integer(op, 'dim', dim)
  if dim < 0 then dim = t:dim() + 1 + dim end
  if dim < 1 or dim > t:dim() then raise(op, 'dim %d is out of range for shape %s', dim, tostring(t:size())) end
  return dim
end

-- -- Weight norm ----------------------------------------------------------------

-- norm over all dimensions but dim, which are kept
local function norm_except(t, dim)
  if not dim then return amp.norm(t) end
  local dims = {}
  for d = 1, t:dim() do if d ~= dim then dims[#dims + 1] = d end end
  if #dims == 0 then return t:abs() end
  return amp.norm(t, 2, dims, true)
end

--- Take a parameter apart into its size and its direction.
-- @tparam nn.Module module
-- @tparam ?string name of the parameter ('weight')
-- @tparam ?number|boolean dim whose slices have sizes of their own (1); false: one size for all
-- @treturn nn.Module the module
-- @usage local layer = nn.utils.weight_norm(nn.Linear(20, 40))
function M.weight_norm(module, ...)
  local op = 'nn.utils.weight_norm'
  local o = options.arguments(op, {'name', 'dim'}, 0, {name = 'weight', dim = 1}, ...)
  local name, w = o.name, check(op, module, o.name)
  local dim = dimension(op, w, o.dim)
  w = w:detach()
  module:register_parameter(name .. '_g', norm_except(w, dim):clone())
  module:register_parameter(name .. '_v', w:clone())
  return install(module, name, 'weight_norm', function(m)
    local v = m[name .. '_v']
    return v * (m[name .. '_g'] / norm_except(v, dim))
  end)
end

--- Put the parameter back together.
-- @treturn nn.Module the module
function M.remove_weight_norm(module, name)
  name = name or 'weight'
  local w = uninstall('nn.utils.remove_weight_norm', module, name, 'weight_norm')
  module[name .. '_g'], module[name .. '_v'] = nil, nil
  module:register_parameter(name, w)
  return module
end

-- -- Spectral norm --------------------------------------------------------------

-- as a matrix whose rows are the slices of dim
local function matrix(w, dim)
  if dim ~= 1 then w = w:transpose(1, dim) end
  return w:reshape(w:size(1), -1)
end

local function unit(t, eps) return amp.normalize(t, 2, 1, eps) end

local function iterate(w, u, v, n, eps)
  for _ = 1, n do
    v:copy_(unit(amp.mv(w:t(), u), eps))
    u:copy_(unit(amp.mv(w, v), eps))
  end
end

--- Divide a parameter by its largest singular value, of which each forward in training
-- improves the estimate.
-- @tparam nn.Module module
-- @tparam ?string name of the parameter ('weight')
-- @tparam ?number n_power_iterations a forward (1)
-- @tparam ?number eps for the norms (1e-12)
-- @tparam ?number dim of the outputs (1)
-- @treturn nn.Module the module
function M.spectral_norm(module, ...)
  local op = 'nn.utils.spectral_norm'
  local o = options.arguments(op, {'name', 'n_power_iterations', 'eps', 'dim'}, 0,
    {name = 'weight', n_power_iterations = 1, eps = 1e-12, dim = 1}, ...)
  local name, w = o.name, check(op, module, o.name)
  local n, eps = options.integer(op, 'n_power_iterations', o.n_power_iterations, 1), options.number(op, 'eps', o.eps, 0)
  local dim = dimension(op, w, o.dim or 1)
  if w:numel() == 0 then raise(op, "parameter '%s' is empty (%s)", name, tostring(w:size())) end
  local rows = matrix(w:detach(), dim)
  local like = {dtype = w.dtype, device = w.device}
  module:register_parameter(name .. '_orig', w)
  module:register_buffer(name .. '_u', unit(amp.randn({rows:size(1)}, like), eps))
  module:register_buffer(name .. '_v', unit(amp.randn({rows:size(2)}, like), eps))
  -- with autocast off: a region's products would round the estimate, and the buffers with it
  local function divided(m)
    local orig, u, v = m[name .. '_orig'], m[name .. '_u'], m[name .. '_v']
    local mat = matrix(orig, dim)
    if m.training and amp.is_grad_enabled() then
      amp.no_grad(iterate, mat:detach(), u, v, n, eps)
      u, v = u:clone(), v:clone() -- what this forward's gradient needs stays as it is
    end
    return orig / amp.dot(u, amp.mv(mat, v))
  end
  return install(module, name, 'spectral_norm', function(m) return amp.autocast(off, divided, m) end)
end

--- Put the parameter back, divided by the present estimate.
-- @treturn nn.Module the module
function M.remove_spectral_norm(module, name)
  name = name or 'weight'
  local w = uninstall('nn.utils.remove_spectral_norm', module, name, 'spectral_norm')
  for _, part in ipairs {'_orig', '_u', '_v'} do module[name .. part] = nil end
  module:register_parameter(name, w)
  return module
end

return M
