--- Trainers with loss scaling, and the lists of ops by what autocast does with them.
--     amp.init()
--     local trainer = amp.optim.Trainer(net:parameters(), 'sgd', {lr = 0.1})
--     amp.init_trainer(trainer)
--     amp.scale_loss(loss, trainer, function(scaled) scaled:backward() end)
--     trainer:step(batch_size)
-- @module amp.precision.mxnet
local ffi = require 'ffi'
local core = require 'amp.ffi'
local err = require 'amp.error'
local GradScaler = require 'amp.precision.scaler'
local program = require 'amp.levels.program'
local options = require 'amp.options'
local rows = require 'amp.ops.schema'
local types = require 'amp.types'
local util = require 'amp.util'
local C = core.C
local band = require('bit').band

local M = {}

-- -- Trainers ----------------------------------------------------------------------------------

local function check_trainer(op, v)
  if type(v) ~= 'table' or rawget(v, 'is_trainer') ~= true then
    err.throw(op, 'takes an amp.optim.Trainer, got %s', type(v) == 'table' and type(v.describe) == 'function' and v:describe() or util.show(v))
  end
  return v
end

--- Give a trainer a loss scale of its own.
-- @param trainer an amp.optim.Trainer
-- @return the trainer
function M.init_trainer(trainer)
  check_trainer('init_trainer', trainer)
  if trainer._scaler then
    err.throw_code('state', 'init_trainer', '%s has a loss scale already', trainer:describe())
  end
  local now = program.current
  local title = ('amp.scale_loss: %s'):format(trainer:describe())
  local scaler = now and now.new_scaler and now.new_scaler(title) or GradScaler()
  scaler._title = title
  trainer:_attach(scaler)
  return trainer
end

--- Unscale a trainer's gradients now, to clip or look at them; its step does it otherwise.
-- @param trainer
-- @return the trainer
-- @usage amp.unscale(trainer); nn.utils.clip_grad_norm_(net:parameters(), 1); trainer:step(batch_size)
function M.unscale(trainer)
  check_trainer('unscale', trainer)
  trainer:_scaler_of('unscale'):unscale_(trainer.optimizer)
  return trainer
end

-- -- Batches ------------------------------------------------------------------------------------

--- Cut a batch into one piece a device, and copy each there.
-- @tparam Tensor t
-- @tparam table devices list of devices
-- @tparam ?table o {batch_axis = 1 (the dimension that is cut), even_split = true (false: the last piece takes what is left)}
-- @treturn table list of tensors
-- @raise a size that the number of devices does not divide, unless even_split = false
-- @usage for _, x in ipairs(amp.split_and_load(batch, {'cuda:1', 'cuda:2'})) do net(x) end
function M.split_and_load(t, devices, o)
  local op = 'split_and_load'
  if not ffi.istype(core.ref_t, t) then err.throw(op, 'argument 1 must be a tensor, got %s', util.show(t)) end
  if type(devices) == 'string' then devices = { devices } end
  if type(devices) == 'table' then err.list(op, devices, 'argument 2') end
  if type(devices) ~= 'table' or #devices == 0 then err.throw(op, 'argument 2 must be a list of devices, got %s', util.show(devices)) end
  o = options.read(op, o, { 'batch_axis', 'even_split' }, { batch_axis = 1, even_split = true })
  options.boolean(op, 'even_split', o.even_split)
  options.integer(op, 'batch_axis', o.batch_axis)
  local n, axis = #devices, o.batch_axis
  for i = 1, n do types.device(devices[i], op) end
  local size = t:size(axis)
  if o.even_split and size % n ~= 0 then
    err.throw_code('shape', op, 'dimension %d of size %d can\'t be cut into %d equal pieces: choose another batch size, or give {even_split = false}',
      axis, size, n)
  end
  if size < n then err.throw_code('shape', op, 'dimension %d of size %d has no piece for each of %d devices', axis, size, n) end
  local step, out = math.floor(size / n), {}
  for i = 1, n do
    local first = (i - 1) * step + 1
    out[i] = t:narrow(axis, first, i == n and size - first + 1 or step):to(devices[i])
  end
  return out
end

-- -- Lists of ops -------------------------------------------------------------------------------

local PRIVATE = C.AMP_F_PRIVATE

-- special ones: recurrent layers go to the low dtype, normalisation keeps its data's
local low = { rnn = true, lstm = true, gru = true }

local function kind_of(name, class, conditional)
  if conditional[name] then return 'conditional' end
  if class == 'special' then return low[name] and 'lower' or 'passthrough' end
  if class == 'fp32_unless_dtype' or class == 'banned' then return 'fp32' end
  return class
end

local function conditions()
  local now, list, set = program.current, {}, {}
  local lists = now and now.lists or { items = {}, conditions = {} }
  for id, item in pairs(lists.items) do
    if item.condition then set[ffi.string(C.amp_op_get(id).name)] = true end
  end
  for i, entry in ipairs(lists.conditions) do list[i] = { entry[1], entry[2], { unpack(entry[3]) } } end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  return list, set
end

local function list_of(kind)
  local _, conditional = conditions()
  local out, public = {}, require('amp.core.lookup').find
  for name, id in pairs(rows.by_name) do
    if band(tonumber(C.amp_op_get(id).flags), PRIVATE) == 0 or public(name) ~= nil then -- some are public by another way
      local class = ffi.string(C.amp_policy_name(C.amp_policy_get(id)))
      if kind_of(name, class, conditional) == kind then out[#out + 1] = name end
    end
  end
  table.sort(out)
  return out
end

--- Ops whose float inputs go to the low dtype. Each op is in one of the five lists.
function M.list_lp16_ops() return list_of 'lower' end

--- Ops that run in float32.
function M.list_fp32_ops() return list_of 'fp32' end

--- Ops that run in whatever dtype comes.
function M.list_lp16_fp32_ops() return list_of 'passthrough' end

--- Ops that run in float32 for some values of an attribute: {name, attribute, {values}}, as amp.init was given them.
function M.list_conditional_fp32_ops() return (conditions()) end

--- Ops whose inputs go to the widest float among them.
function M.list_widest_type_cast() return list_of 'promote' end

return M
