--- amp: mixed-precision deep learning for LuaJIT.
-- Assembles the module. Sets no globals and replaces none. The parts below are loaded when
-- first asked for, so `require 'amp'` stays a matter of milliseconds.
-- @module amp
if type(jit) ~= 'table' then error('amp needs LuaJIT; run luajit yourscript.lua', 0) end

-- Each part is loaded once a Lua state, even where package.loaded is cleared (a test runner's insulation): a second copy
-- would meet the first one's C types, and know nothing of what the first one keeps. So the parts stand in the registry
-- as well, where a searcher finds them; it is asked for names that begin with "amp." only.
local registry = debug.getregistry()
if registry['amp.loaded'] then return registry['amp.loaded'].amp end

local keep = {} -- name -> module: all of amp that is loaded
for name, module in pairs(package.loaded) do -- one that requires this file first is not there yet
  if type(name) == 'string' and name:sub(1, 4) == 'amp.' and type(module) ~= 'userdata' then keep[name] = module end
end

table.insert(package.loaders, 2, function(name)
  if name:sub(1, 4) ~= 'amp.' then return nil end
  if keep[name] ~= nil then return function() return keep[name] end end
  local path = package.searchpath(name, package.path)
  local chunk = path and loadfile(path)
  if not chunk then return nil end -- the next searchers say why
  return function(...)
    keep[name] = chunk(...)
    return keep[name]
  end
end)

local core = require 'amp.ffi'

-- A part of amp. A name that the library lacks means that one of the two is older than the other.
local function part(name)
  local ok, module = pcall(require, name)
  if ok then
    keep[name] = module
    return module
  end
  local symbol = tostring(module):match "missing declaration for symbol '([%w_]+)'" or tostring(module):match "undefined symbol: ([%w_]+)"
  if not symbol then error(module, 0) end
  error(('amp: the library %s has no %s, which the Lua files in %s use: they are of different ages; build again, or reinstall amp')
    :format(core.path, symbol, core.here), 0)
end

local err = part 'amp.error'
local ops = part 'amp.ops'
local tensor = part 'amp.tensor'
local types = part 'amp.types'
local warn = part 'amp.core.warn'

local M = {}
warn.module = M

-- -- Parts that are loaded when first asked for -----------------------------------------------

-- name -> module whose value it is
local modules = {
  nn = 'amp.nn', optim = 'amp.optim', data = 'amp.data', io = 'amp.io', cuda = 'amp.cuda', metric = 'amp.metric', progress = 'amp.progress',
  capture = 'amp.capture', checkpoint = 'amp.autograd.checkpoint', util = 'amp.util', autocast = 'amp.precision.autocast',
  GradScaler = 'amp.precision.scaler', GradManager = 'amp.autograd.manager',
  detect_anomaly = 'amp.tools.anomaly', doctor = 'amp.tools.doctor', profile = 'amp.tools.profile', summary = 'amp.tools.summary', plot = 'amp.plot',
  Logger = 'amp.log', graph = 'amp.graph', torch7 = 'amp.torch7', text = 'amp.text', vision = 'amp.vision',
  distributed = 'amp.distributed', parallel = 'amp.parallel', serve = 'amp.serve', mailbox = 'amp.mailbox',
}

-- name -> module of which it is a field
local fields = {}
local function lazy(module, names)
  for name in names:gmatch '%S+' do fields[name] = module end
end
M.lazy = lazy

lazy('amp.tensor.create', [[tensor zeros ones empty full eye arange linspace logspace rand randn randint randperm zeros_like ones_like
  empty_like full_like rand_like randn_like randint_like from_ptr from_string from_text set_default_dtype get_default_dtype
  set_default_device get_default_device manual_seed get_rng_state set_rng_state]])
lazy('amp.autograd', [[backward grad no_grad enable_grad is_grad_enabled set_grad_enabled]])
lazy('amp.autograd.function', 'Function')
lazy('amp.autograd.gradcheck', 'gradcheck gradgradcheck')
lazy('amp.core.scope', 'scope memory reset_peak_memory')
lazy('amp.precision.autocast', [[is_autocast_enabled get_autocast_dtype policy set_policy reset_policy clear_autocast_cache counters
  custom_fwd custom_bwd half_function float_function promote_function register_half_function register_float_function
  register_promote_function]])
lazy('amp.precision.float8_state', 'float8_state load_float8_state')
lazy('amp.levels.handle', 'init')
lazy('amp.levels', 'initialize deactivate scale_loss master_params state_dict load_state_dict disable_casts')
lazy('amp.precision.mxnet', [[init_trainer unscale split_and_load list_lp16_ops list_fp32_ops list_lp16_fp32_ops list_conditional_fp32_ops
  list_widest_type_cast]])
lazy('amp.io', 'save load')
lazy('amp.graph.short', 'trace load_graph compile')
lazy('amp.graph.convert', 'convert_model')
lazy('amp.graph.module', 'convert_hybrid_block')
lazy('amp.tensor.sampling', 'bernoulli normal broadcast_tensors meshgrid')
lazy('amp.ops.matmul', 'einsum tensordot chain_matmul multi_dot multi_head_attention')
lazy('amp.ops.loss', 'ctc_loss triplet_margin_with_distance_loss')
lazy('amp.ops.rnn', 'lstm lstm_cell')
lazy('amp.vision.ops', 'nms batched_nms roi_align roi_pool sigmoid_focal_loss multibox_target multibox_detection')
lazy('amp.core.library', 'clock version set_num_threads get_num_threads is_tensor use_deterministic is_deterministic')
lazy('amp.embed', 'from_ref')
lazy('amp.error', 'errors last_error')
lazy('amp.strict', 'strict')

-- Functions that are methods as well and no rows of the table.
for name in ([[allclose equal chunk split tensor_split unbind unstack tile]]):gmatch '%S+' do M[name] = tensor.methods[name] end

local aliases = { concat = 'cat', upsample = 'interpolate', ger = 'outer', swapaxes = 'transpose', swapdims = 'transpose', moveaxis = 'movedim',
  inv = 'inverse', pinv = 'pinverse', broadcast_to = 'expand', argwhere = 'nonzero' }

-- -- Names of dtypes ---------------------------------------------------------------------------

for i = 1, #types.dtype_names do M[types.dtype_names[i]] = types.dtype_names[i] end
for _, alias in ipairs { 'double', 'float', 'half', 'long', 'int' } do
  M[alias] = types.dtype_name[types.dtype_code[alias]]
end

M.Tensor = tensor
M.Error = err.Error
M.traceback = err.traceback
M.warn = warn.to_stderr
M.write_log = warn.log_to_stderr

-- -- The module's metatable ---------------------------------------------------------------------

-- Every public name, for help and for hints.
local function names()
  local list, seen = {}, {}
  local function add(name)
    if not seen[name] then
      seen[name] = true
      list[#list + 1] = name
    end
  end
  for k in pairs(M) do add(k) end
  for k in pairs(modules) do add(k) end
  for k in pairs(fields) do add(k) end
  for _, k in ipairs(ops.names()) do add(k) end
  add 'enabled'
  table.sort(list)
  return list
end
M.names = names

local spaces = ' data io cuda metric plot util torch7 graph vision text distributed parallel serve '

local function find(t, k)
  if k == 'enabled' then return part('amp.precision.autocast').is_enabled() end
  local v
  if modules[k] then
    v = part(modules[k])
    if spaces:find(' ' .. k .. ' ', 1, true) then err.room(v, 'amp.' .. k) end
  elseif fields[k] then
    v = part(fields[k])[k]
  else
    v = ops.public(aliases[k] or k)
  end
  if v ~= nil then rawset(t, k, v) end
  return v
end

-- Parts of amp ask with this for a name that may be missing.
part('amp.core.lookup').find = function(k)
  local v = rawget(M, k)
  if v == nil then v = find(M, k) end
  return v
end

setmetatable(M, {
  __index = function(t, k)
    local v = find(t, k)
    if v == nil and type(k) == 'string' and k:sub(1, 1) ~= '_' then
      local habits = part 'amp.core.habits'
      local method = not habits.amp[k] and tensor.methods[k] and ('; it is a method of tensors: x:%s()'):format(k)
      err.throw_code('name', nil, "amp has no '%s'%s", k, method or habits.hint(habits.amp, k, names()))
    end
    return v
  end,
  __newindex = function(t, k, v)
    if k == 'enabled' then return require('amp.precision.autocast').set_enabled(v) end
    rawset(t, k, v)
  end,
})

err.space(M, 'amp')

registry['amp.loaded'] = { amp = M, library = core.C }

local abi = require('ffi').abi
if abi '64bit' and not abi 'gc64' then
  warn.once("this LuaJIT is built without GC64: Lua's own data is limited to 1-2 GB (tensors are not); one with GC64 has no such limit")
end

return M
