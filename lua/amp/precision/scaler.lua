--- GradScaler: dynamic loss scaling in three gears.
--   automatic      scaler:backward(gm, loss); opt:step():clear_grad()
--   manual         gm:backward(loss, {dy = scaler:scale_tensor()}); scaler:unscale(gm:attached_tensors());
--                  scaler:update(); opt:step()
--   per optimizer  scaler:scale(loss):backward(); scaler:unscale_(opt); scaler:step(opt); scaler:update()
-- Scale, growth tracker and what was found live in the library's device cells, and gradients
-- carry their checks, so no step waits. What this file keeps is the protocol: which optimizer
-- was unscaled or stepped since the last update.
-- @module amp.precision.scaler
local ffi = require 'ffi'
local core = require 'amp.ffi'
local autocast = require 'amp.precision.autocast'
local call = require 'amp.core.call'
local capturing = require 'amp.capture.current'
local err = require 'amp.error'
local optimizer = require 'amp.optim.optimizer'
local origin = require 'amp.optim.origin'
local options = require 'amp.options'
local settings = require 'amp.precision.scaler_options'
local types = require 'amp.types'
local util = require 'amp.util'
local warn = require 'amp.core.warn'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype, bor = ffi.istype, require('bit').bor

local buffer_t = ffi.typeof 'amp_tensor *[?]'
local checks_t = ffi.typeof 'amp_check *[?]'
local UNSCALE, ANY_HALF = tonumber(C.AMP_UNSCALE), tonumber(C.AMP_UNSCALE_HALF)
local DROP, RAW, SOON = tonumber(C.AMP_CHECK_DROP), tonumber(C.AMP_CHECK_RAW), tonumber(C.AMP_CHECK_SOON)
local STATE, SCALE = tonumber(C.AMP_E_STATE), tonumber(C.AMP_T_SCALE)
local WARN_AFTER = 20

local M = {}
local Scaler = {}

local function fail(op, message, ...) err.throw_code('state', 'GradScaler' .. (op and '.' .. op or ''), message, ...) end

-- -- Scale -------------------------------------------------------------------------------------

local numbers = ffi.new 'double[1]'
local integers = ffi.new 'int64_t[2]'

local function read(self)
  call.try('GradScaler', C.amp_scaler_get, S, self._handle, numbers, integers, integers + 1)
  return numbers[0], tonumber(integers[0]), tonumber(integers[1])
end

local function read_scale(self)
  call.try('GradScaler', C.amp_scaler_get, S, self._handle, numbers, nil, nil)
  return numbers[0]
end

local I -- what the class's other files give and take
local look -- below: what the device found, told at a permitted wait

--- The scale, a number (1 where disabled). Waits for the device. Also `scaler.scale_factor`.
function Scaler:get_scale()
  if not self._o.enabled then return 1 end
  look(self)
  return read_scale(self)
end

--- Clean updates since the last change. Waits for the device.
function Scaler:get_growth_tracker()
  if not self._o.enabled then return 0 end
  return (select(2, read(self)))
end

local function put(self, op, name, v)
  if istype(ref_t, v) then
    if v.ptr_ == nil then err.throw(op, 'the tensor was freed') end
    if v:numel() ~= 1 then err.throw_code('shape', op, '%s must be one number, got a tensor of shape %s', name, util.shape(v.shape)) end
    v = v:item()
  end
  settings.check(op, 'init_scale', v, name)
  settings.check_within(op, self._o, v, name)
  call.try(op, C.amp_scaler_put, S, self._handle, v, -1, -1)
  return self
end

--- Set the scale; the growth tracker stays.
function Scaler:set_scale(v) return put(self, 'GradScaler.set_scale', 'the scale', v) end

M.on_scale = nil -- a function that is told which scaler's scale is used (amp.tools.observer)

local function scale_on(self, device)
  if capturing.scalers then capturing.scalers[self] = true end
  if M.on_scale then M.on_scale(self) end
  return call.make('GradScaler', C.amp_scaler_scale_tensor, self._handle, math.floor(device / 256), device % 256)
end

--- The scale as a float32 scalar on a device; does not wait. Made for gm:backward's dy.
-- @tparam ?string device default: the default device
-- @treturn Tensor scalar
function Scaler:scale_tensor(device)
  local code = device and types.device(device, 'GradScaler.scale_tensor') or types.default_device()
  if not self._o.enabled then
    return require('amp.tensor.create').ones({}, { dtype = 'float32', device = device })
  end
  local cell = scale_on(self, code)
  if cell.ptr_.refs == 1 then return cell end -- a copy as it is
  local t = cell:clone()
  local p = t.ptr_
  p.flags, p.scale_serial = bor(p.flags, SCALE), cell.ptr_.scale_serial
  return t
end

local function scaled(self, v, place, cells)
  if istype(ref_t, v) then
    if v.ptr_ == nil then err.throw('GradScaler.scale', 'the tensor was freed') end
    local p = v.ptr_
    local code = p.device * 256 + p.device_index
    cells[code] = cells[code] or scale_on(self, code)
    return (p.dtype <= 1 and v or v:float()) * cells[code]
  end
  if type(v) == 'table' then
    local out = {}
    for k, x in pairs(v) do out[k] = scaled(self, x, place .. '.' .. tostring(k), cells) end
    return setmetatable(out, getmetatable(v))
  end
  err.throw('GradScaler.scale', 'takes tensors, in tables or not; got %s%s', util.show(v), place == '' and '' or ' at ' .. place:sub(2))
end

--- A loss (or a nested table of outputs), in float32, times the scale.
-- @param outputs tensor or table
-- @return the same structure
-- @usage scaler:scale(loss):backward()
function Scaler:scale(outputs)
  if not self._o.enabled then return outputs end
  return scaled(self, outputs, '', {})
end

-- -- Checks of an iteration ----------------------------------------------------------------------

local function new_check(self)
  return ffi.gc(call.object('GradScaler', C.amp_check_new, self._handle), C.amp_check_free)
end

-- The optimizer's parameters as the library takes them.
local function params_of(op, opt)
  if optimizer.is(opt) then return opt._all, opt._count end
  local list = {}
  for i, g in ipairs(opt.param_groups) do
    if type(g) ~= 'table' or type(g.params) ~= 'table' then err.throw(op, 'group %d of the optimizer has no list params', i) end
    for k, p in ipairs(g.params) do
      if not istype(ref_t, p) then err.throw(op, 'parameter %d of group %d must be a tensor, got %s', k, i, util.show(p)) end
      list[#list + 1] = p
    end
  end
  local n = #list
  local buffer = buffer_t(n)
  for i = 1, n do buffer[i - 1] = list[i].ptr_ end
  return buffer, n, list
end

local function describe(opt)
  if type(opt.describe) == 'function' then return opt:describe() end
  return type(opt.name) == 'string' and ("'%s'"):format(opt.name) or tostring(opt)
end

local function check_optimizer(op, opt)
  if type(opt) ~= 'table' or type(opt.step) ~= 'function' or type(opt.param_groups) ~= 'table' then
    err.throw(op, 'takes an optimizer (a table with step and param_groups), got %s', util.show(opt))
  end
end

local function state_of(self, opt)
  local s = self._states[opt]
  if s == nil then
    s = { stage = 'ready' }
    self._states[opt] = s
  end
  return s
end

-- The library says that a gradient is not what the step takes: in words that name the optimizer and the cure.
local function refuse(self, op, buffer, n, flags, opt)
  local function whose() return opt and ' of optimizer ' .. describe(opt) or '' end
  if flags % 2 == UNSCALE or flags % (2 * RAW) >= RAW then origin.need_scaled(op, whose, buffer, n, self._cure)
  else origin.need_unscaled(op, whose, buffer, n) end
end

local function run_check(self, op, k, buffer, n, flags, opt)
  if self._allow_half then flags = flags + ANY_HALF end
  local rc = C.amp_check_grads(S, k, buffer, n, flags)
  if rc < 0 then
    if rc == STATE then refuse(self, op, buffer, n, flags, opt) end
    call.try(op, C.amp_check_grads, S, k, buffer, n, flags)
  elseif S.attention ~= 0 then call.attend() end
  self._touched = true
end

local probe = ffi.new 'amp_ref[1]' -- in an array a handle has no finalizer

local function any_grad(buffer, n)
  for i = 0, n - 1 do
    probe[0].ptr_ = buffer[i]
    if C.amp_grad_defined(probe) ~= 0 then return true end
  end
  return false
end

--- Unscale an optimizer's gradients now, to clip or look at them; step does it otherwise.
-- @usage scaler:unscale_(opt); nn.utils.clip_grad_norm_(net:parameters(), 1); scaler:step(opt); scaler:update()
-- @return self
function Scaler:unscale_(opt)
  local op = 'GradScaler.unscale_'
  check_optimizer(op, opt)
  if not self._o.enabled then return self end
  local s = state_of(self, opt)
  if s.stage == 'unscaled' then
    fail('unscale_', 'unscale_() was called already for optimizer %s since the last update(); call it once, '
      .. 'when all gradients of the step are there, and update() after the step', describe(opt))
  elseif s.stage == 'stepped' then
    fail('unscale_', 'unscale_() is called after step() for optimizer %s; call it before step(), and update() after', describe(opt))
  end
  local buffer, n = params_of(op, opt)
  local k = new_check(self)
  run_check(self, op, k, buffer, n, UNSCALE, opt)
  s.check, s.stage, s.held = k, 'unscaled', C.amp_check_holds(k, buffer, n)
  self._last[opt] = k
  return self
end

--- Unscale the gradients of tensors; on overflow they read as nil, and the next step of any
-- optimizer of theirs leaves everything alone.
-- @tparam table list tensors
-- @return self
function Scaler:unscale(list)
  local op = 'GradScaler.unscale'
  if istype(ref_t, list) then list = { list } end
  if type(list) ~= 'table' then err.throw(op, 'takes a list of tensors, got %s', util.show(list)) end
  err.list(op, list)
  if not self._o.enabled then return self end
  local n = #list
  local buffer = buffer_t(n)
  for i = 1, n do
    if not istype(ref_t, list[i]) then err.throw(op, 'element %d must be a tensor, got %s', i, util.show(list[i])) end
    if list[i].ptr_ == nil then err.throw(op, 'tensor %d was freed', i) end
    buffer[i - 1] = list[i].ptr_
  end
  self._list_check = self._list_check or new_check(self)
  run_check(self, op, self._list_check, buffer, n, UNSCALE + DROP)
  return self
end

-- Run f, in which gradients of tensors arrive scaled and are unscaled, beside those that are unscaled
-- already: these stand aside meanwhile and are added then; the sums are checked.
local function beside(self, op, list, f)
  local n, buffer = 0, buffer_t(#list)
  for i = 1, #list do
    if C.amp_grad_check_hold(list[i]) == 1 then
      buffer[n] = list[i].ptr_
      n = n + 1
    end
  end
  if n == 0 then return f() end
  local aside = ffi.gc(call.object(op, C.amp_aside_new, buffer, n), C.amp_aside_free)
  call.try(op, C.amp_aside_swap, S, aside)
  local ok, e = pcall(f)
  if not ok then
    C.amp_aside_swap(S, aside)
    error(e, 0)
  end
  call.try(op, C.amp_aside_merge, S, aside)
  run_check(self, op, self._list_check, buffer, n, DROP)
end

-- -- Step -----------------------------------------------------------------------------------------

local function run_user(opt) autocast.off(opt.step, opt) end

local function found(k)
  local rc = C.amp_check_found(S, k)
  if rc < 0 then err.raise 'GradScaler' end
  return rc == 1
end

-- The same where the caller waits for the answer, be it of many checks.
local function wait_found(list)
  S.host_waits = S.host_waits + 1
  local answer = false
  for i = 1, #list do answer = answer or found(list[i]) end
  return answer
end

-- Whether a check's overflow is known without a wait.
local function known(k) return C.amp_check_devices(k) <= 1 end

-- Which parameter overflowed, for the warning; on a CPU only.
local function culprit(self, opt, buffer, n)
  for i = 0, n - 1 do
    local k = new_check(self)
    probe[0].ptr_ = buffer[i]
    if C.amp_grad_defined(probe) ~= 0 and C.amp_check_grads(S, k, buffer + i, 1, RAW) == 0 and known(k) and found(k) then
      local p = buffer[i]
      local sizes = {}
      for d = 1, p.ndim do sizes[d] = tonumber(p.size[d - 1]) end
      return ('the first gradient with Inf or NaN is that of parameter %d (%s %s) of optimizer %s'):format(i + 1,
        types.dtype_name[p.dtype], util.shape(sizes), describe(opt))
    end
  end
end

-- By itself: a function that makes one of its own is never compiled.
local function refuse_unscaled(op, opt, buffer, n)
  origin.refuse_unscaled(op, function() return describe(opt) end, buffer, n)
end

--- Step an optimizer, unless an overflow is found: then nothing of it changes.
-- @param opt an optimizer of amp.optim, or a table with step and param_groups (then this waits)
-- @tparam ?table o {allow_empty = true}: no gradients at all is no error
-- @return self
function Scaler:step(opt, o)
  local op = 'GradScaler.step'
  check_optimizer(op, opt)
  if type(o) == 'function' then
    fail('step', 'closures are not supported under a scaler; compute loss and gradients first, then call scaler:step(opt)')
  end
  if opt.needs_closure then
    fail('step', 'optimizer %s evaluates a closure many times a step, and closures are not supported under a scaler; '
      .. 'call its step(closure) without one, in float32 or bfloat16', describe(opt))
  end
  o = options.read(op, o, { 'allow_empty' })
  if not self._o.enabled then
    if optimizer.is(opt) then opt:step() else run_user(opt) end
    return self
  end
  local s = state_of(self, opt)
  if s.stage == 'stepped' then
    fail('step', 'step() was called already for optimizer %s since the last update(); call update() once, '
      .. 'after the steps of an iteration', describe(opt))
  end
  local buffer, n = params_of(op, opt)
  if not any_grad(buffer, n) then
    local list = self._list_check or not o.allow_empty and self._last_list -- of this iteration, or of one that is updated already
    local hidden = list and known(list) and found(list)
    if not o.allow_empty and not hidden then
      fail('step', 'no parameter of optimizer %s has a gradient: call backward first, or step(opt, {allow_empty = true}) if that is meant', describe(opt))
    end
    self._touched, s.stage = true, 'stepped'
    if hidden then
      s.check, self._last[opt] = self._list_check, list
    else -- what was found before is this step's no more, but still the iteration's
      s.before, s.check, self._last[opt] = s.check, nil, new_check(self)
    end
    return self
  end
  local supports = opt.step_supports_amp_scaling and not optimizer.is(opt)
  local flags = s.stage == 'unscaled' and 0 or supports and RAW or UNSCALE
  if flags == RAW then refuse_unscaled(op, opt, buffer, n) end
  local k = s.check or new_check(self)
  if s.stage == 'unscaled' and C.amp_check_holds(k, buffer, n) ~= s.held then
    s.before, k = k, new_check(self) -- the user changed gradients since: what is there now steps, or does not
  end
  local soon = optimizer.steps_at_once(opt)
  run_check(self, op, k, buffer, n, soon and flags + SOON or flags, opt)
  s.check, self._last[opt] = k, k
  if self._skipped >= WARN_AFTER - 1 and not self._culprit and known(k) and found(k) then
    self._culprit = culprit(self, opt, buffer, n)
  end
  if soon then
    local ok, e = pcall(opt.step, opt)
    if not ok then
      C.amp_check_grads(S, k, buffer, 0, 0) -- if the step did not come so far, the check did not either
      error(e, 0)
    end
  elseif optimizer.is(opt) then
    opt:step()
  elseif supports then -- it unscales and skips by itself
    local p = buffer[0]
    local t = call.make(op, C.amp_check_tensor, k, p.device, p.device_index)
    opt.found_inf, opt.grad_scale = t, s.stage ~= 'unscaled' and scale_on(self, p.device * 256 + p.device_index):clone() or nil
    run_user(opt)
    opt.found_inf, opt.grad_scale = nil, nil
  elseif not wait_found { k } then
    run_user(opt)
  end
  s.stage = 'stepped'
  return self
end

--- Whether the last look at gradients found an overflow. Waits for the device.
-- @param ?opt that optimizer's last step or unscale_ only; also after update
-- @treturn boolean
function Scaler:found_inf(opt)
  if not self._o.enabled then return false end
  local answer
  if opt ~= nil then
    check_optimizer('GradScaler.found_inf', opt)
    local k = self._last[opt] or self._list_check or self._last_list
    answer = k ~= nil and wait_found { k }
  else
    local list = self:_checks()
    if #list == 0 then list = self._last_checks end
    answer = #list > 0 and wait_found(list)
  end
  look(self)
  return answer
end

-- -- Update ------------------------------------------------------------------------------------------

-- Checks of this iteration.
function Scaler:_checks()
  local list = { self._list_check }
  for _, s in pairs(self._states) do
    if s.check and s.check ~= self._list_check then list[#list + 1] = s.check end
    if s.before then list[#list + 1] = s.before end
  end
  return list
end

-- What f gives; a wait that it takes belongs to one that is counted.
local function uncounted(f, v)
  local waits = S.host_waits
  v = f(v)
  S.host_waits = waits
  return v
end

-- The scale for a verbose line: a number, or where that takes a wait a copy to be read later.
local function noted(self, quick) return quick and uncounted(read_scale, self) or scale_on(self, 256) end
local function number_of(v) return type(v) == 'number' and v or uncounted(v.item, v) end

local function too_many(self, n)
  fail('update', '%d steps in a row were skipped because gradients overflowed (max_skipped = %d, scale %g); '
    .. 'the loss itself may be Inf or NaN: %s', n, self._o.max_skipped, uncounted(read_scale, self),
    self._culprit or 'amp.detect_anomaly(fn) finds the first op and parameter')
end

-- One iteration's outcome, once it is known; `later`: what is to be an error is one of the next update.
local function outcome(self, skipped, later)
  if not skipped then
    self._skipped, self._culprit = 0, nil
    return
  end
  self._skipped = self._skipped + 1
  self._skipped_total = self._skipped_total + 1
  local n, most = self._skipped, self._o.max_skipped
  if n >= WARN_AFTER and not self._warned then
    self._warned = true -- once a scaler
    warn.once(('GradScaler: %d steps in a row were skipped because gradients overflowed (scale %g); %s'):format(n, uncounted(read_scale, self),
      self._culprit or 'amp.detect_anomaly(fn) finds the first op and parameter with Inf or NaN'), self)
  end
  if most and n >= most then
    if not later then too_many(self, n) end
    self._over = n
  end
end

local function tell(self, before, after, skipped)
  local who = self._title or 'amp.GradScaler'
  if skipped then
    warn.log(('%s: gradient overflow, step skipped, scale %g -> %g'):format(who, before, after))
  elseif after ~= before then
    warn.log(('%s: scale %g -> %g'):format(who, before, after))
  end
end

-- Go through iterations whose outcome was not known without a wait.
look = function(self, later)
  local queue = self._pending
  if #queue == 0 then return end
  self._pending = {}
  for i = 1, #queue do
    local skipped = false
    for _, k in ipairs(queue[i]) do skipped = skipped or found(k) end
    if queue[i].before then tell(self, number_of(queue[i].before), number_of(queue[i].after), skipped) end
    outcome(self, skipped, later)
  end
end

-- The device finds out about an iteration. What a wait has shown of those before is this update's error.
local function watch(self)
  I.watch(self)
  local over = self._over
  self._over = nil
  if over and self._o.max_skipped then too_many(self, over) end
end

local function reset(self)
  self._states = setmetatable({}, { __mode = 'k' })
  self._list_check, self._touched = nil, false
end

--- End an iteration: adjust the scale by what its checks found; or set it.
-- @param ?new_scale a number or scalar tensor to go on with
-- @return self
function Scaler:update(new_scale)
  local op = 'GradScaler.update'
  if not self._o.enabled then return self end
  if capturing.scalers then capturing.scalers[self] = true end
  local list = self:_checks()
  if new_scale ~= nil then
    put(self, op, 'new_scale', new_scale)
    C.amp_scaler_next(self._handle)
  else
    if not self._touched then
      fail('update', 'update() with nothing checked since the last one: call step(opt), unscale_(opt) or unscale(tensors) first')
    end
    local looked = {}
    for i = 1, #list do
      if C.amp_check_devices(list[i]) ~= 0 then looked[#looked + 1] = list[i] end
    end
    local n = #looked
    if n > 0 then
      local quick = true
      for i = 1, n do quick = quick and known(looked[i]) end
      if self._o.verbose then looked.before = noted(self, quick) end
      local array = checks_t(n)
      for i = 1, n do array[i - 1] = looked[i] end
      call.try(op, C.amp_scaler_update, S, self._handle, array, n)
      self._last_checks, self._last_list = looked, self._list_check
      reset(self)
      if looked.before then looked.after = noted(self, quick) end
      local queue = self._pending
      queue[#queue + 1] = looked
      if #queue > math.max(64, self._o.max_skipped or 0) then table.remove(queue, 1) end
      if quick then look(self) else watch(self) end
      return self
    end
  end
  if #list > 0 then self._last_checks, self._last_list = list, self._list_check end
  reset(self)
  return self
end

require 'amp.precision.scaler_auto'(Scaler, { scaled = scaled, scale_on = scale_on, beside = beside })
require 'amp.precision.scaler_block'(Scaler, { reset = reset })
I = { look = look, read = read, reset = reset, found = found }
require 'amp.precision.scaler_state'(Scaler, I)

-- -- Fields ------------------------------------------------------------------------------------------------

local fields = { scale_factor = 'get_scale', enabled = 'is_enabled', init_scale = 'get_init_scale', growth_tracker = 'get_growth_tracker' }
for _, name in ipairs(settings.settable) do fields[name] = 'get_' .. name end

local mt = {
  __index = function(self, k)
    local v = Scaler[k]
    if v ~= nil then return v end
    local get = fields[k]
    if get then return (Scaler[get](self)) end -- no tail call: who looks for what waited finds the field's name
    if type(k) == 'string' and k:sub(1, 1) ~= '_' then
      local names = util.keys(fields)
      for name in pairs(Scaler) do names[#names + 1] = name end
      err.throw(nil, "GradScaler has no '%s'%s", k, util.hint(k, names))
    end
  end,
  __newindex = function(self, k, v)
    if k == 'scale_factor' then Scaler.set_scale(self, v)
    elseif fields[k] and Scaler['set_' .. k] then Scaler['set_' .. k](self, v)
    elseif fields[k] then err.throw(nil, "GradScaler's '%s' is fixed at creation", k)
    elseif Scaler[k] and type(v) ~= 'function' then
      err.throw(nil, "'%s' is a method of GradScaler and can't be assigned%s", k, k == 'scale' and '; scaler.scale_factor = n sets the scale' or '')
    else rawset(self, k, v) end
  end,
  __tostring = function(self) -- waits for the device, as printing may, and raises nothing
    local o = self._o
    if not o.enabled then return 'amp.GradScaler (disabled)' end
    local ok, scale, clean = pcall(read, self)
    if not ok then return 'amp.GradScaler (its device is in error)' end
    if o.growth_interval == 0 then return ('amp.GradScaler (scale %.10g, static)'):format(scale) end
    return ('amp.GradScaler (scale %.10g, %d of %d clean updates to growth by %g, backoff by %g)')
      :format(scale, clean, o.growth_interval, o.growth_factor, o.backoff_factor)
  end,
}

--- Make a scaler.
-- @tparam ?table o {init_scale = 65536, growth_factor = 2, backoff_factor = 0.5, growth_interval = 2000
--   (0: static), min_scale, max_scale, hysteresis = 1, max_skipped, enabled = true, verbose = false}; a device before
--   it or in it is checked and has no effect, as a scaler serves every device
-- @usage local scaler = amp.GradScaler{growth_interval = 500}
local function new(o, more)
  o = settings.read(o, more)
  local handle = call.object('GradScaler', C.amp_scaler_new, settings.pack(o))
  local self = {
    _o = o, _handle = ffi.gc(handle, C.amp_scaler_free), _last = setmetatable({}, { __mode = 'k' }), _last_checks = {},
    _pending = {}, _skipped = 0, _skipped_total = 0,
  }
  reset(self)
  return setmetatable(self, mt)
end

--- Whether a value is a GradScaler.
function M.is(v) return getmetatable(v) == mt end

require('amp.core.class').guard(Scaler, 'GradScaler', 'scaler', mt)

return setmetatable(M, { __call = function(_, o, more) return new(o, more) end })
