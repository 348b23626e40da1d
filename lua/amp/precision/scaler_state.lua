--- GradScaler's constants and state: getters, validating setters, state dicts.
-- Called once by amp.scaler with the class and its inner functions.
-- @module amp.precision.scaler_state
local core = require 'amp.ffi'
local next_key = require('amp.core.keys').next
local call = require 'amp.core.call'
local err = require 'amp.error'
local settings = require 'amp.precision.scaler_options'
local util = require 'amp.util'
local waits = require 'amp.core.waits'
local C, S = core.C, core.S

local SOME = 20 -- iterations between two looks for skips in a row

-- After a wait: what the device found is told where there may be something to tell, an error at the next update.
local function peek(self, I)
  if self._o.verbose or self._o.max_skipped then return I.look(self, true) end
  if self._warned or self._since < SOME then return end
  self._since = 0
  local queue = self._pending
  for i = #queue, 1, -1 do
    local skipped = false
    for _, k in ipairs(queue[i]) do skipped = skipped or I.found(k) end
    if not skipped then return end
    if #queue - i + 1 >= SOME then return I.look(self, true) end
  end
  if self._skipped > 0 then I.look(self, true) end
end

return function(Scaler, I)
  local waiting, waited = setmetatable({}, { __mode = 'k' }), 0

  -- The device finds out about an iteration; what it did is looked at after the caller's next wait.
  function I.watch(self)
    waiting[self], waited = true, S.host_waits
    self._since = (self._since or 0) + 1
    waits.pending = true
  end

  function waits.look()
    if S.host_waits == waited then return end
    waits.pending = false
    for self in pairs(waiting) do
      waiting[self] = nil
      peek(self, I)
    end
  end

  for _, name in ipairs(settings.settable) do
    Scaler['get_' .. name] = function(self) return self._o[name] end
    Scaler['set_' .. name] = function(self, v)
      local op = 'GradScaler.set_' .. name
      settings.check(op, name, v)
      local o = {}
      for k, old in pairs(self._o) do o[k] = old end
      o[name] = v
      settings.check_bounds(op, o)
      call.try(op, C.amp_scaler_set, S, self._handle, settings.pack(o))
      self._o = o
      return self
    end
  end

  function Scaler:get_init_scale() return self._o.init_scale end

  --- Whether this scaler does anything.
  function Scaler:is_enabled() return self._o.enabled end

  --- Plain numbers; a run resumed from them repeats the scale's path exactly. Waits for the device.
  function Scaler:state_dict()
    if not self._o.enabled then return {} end
    I.look(self)
    local scale, tracker, left = I.read(self)
    local o = self._o
    return {
      scale = scale, growth_factor = o.growth_factor, backoff_factor = o.backoff_factor, growth_interval = o.growth_interval,
      growth_tracker = tracker, hysteresis = o.hysteresis, hysteresis_left = left, min_scale = o.min_scale, max_scale = o.max_scale,
      max_skipped = o.max_skipped, skipped = self._skipped, skipped_total = self._skipped_total,
    }
  end

  --- Go on from a state dict.
  -- @return self
  function Scaler:load_state_dict(dict)
    local op = 'GradScaler.load_state_dict'
    if type(dict) ~= 'table' then err.throw(op, 'takes a table that state_dict gave, got %s', util.show(dict)) end
    if not self._o.enabled then return self end
    if next_key(dict) == nil then
      err.throw_code('value', op, 'the state is empty, perhaps of a disabled scaler; there is nothing to go on from')
    end
    local names = { 'growth_factor', 'backoff_factor', 'growth_interval', 'min_scale', 'max_scale', 'hysteresis', 'max_skipped' }
    local o = {}
    for k, v in pairs(self._o) do o[k] = v end
    for _, k in ipairs(names) do
      local v = dict[k]
      if v == nil and (k == 'growth_factor' or k == 'backoff_factor' or k == 'growth_interval') then
        err.throw_code('value', op, "the state has no '%s'; it is not a GradScaler's", k)
      end
      if v == nil and k == 'hysteresis' then v = o.hysteresis end
      settings.check(op, k, v)
      o[k] = v
    end
    settings.check_bounds(op, o)
    local tracker = dict.growth_tracker or dict._growth_tracker or 0
    local left = dict.hysteresis_left or o.hysteresis
    settings.check(op, 'init_scale', dict.scale, 'scale')
    for name, v in pairs { growth_tracker = tracker, hysteresis_left = left, skipped = dict.skipped or 0, skipped_total = dict.skipped_total or 0 } do
      if type(v) ~= 'number' or v % 1 ~= 0 or v < 0 or v >= 2 ^ 53 then
        err.throw_code('value', op, '%s must be an integer of at least 0, got %s', name, util.show(v))
      end
    end
    call.try(op, C.amp_scaler_set, S, self._handle, settings.pack(o))
    call.try(op, C.amp_scaler_put, S, self._handle, dict.scale, tracker, left)
    self._o = o
    self._skipped, self._skipped_total = dict.skipped or 0, dict.skipped_total or 0
    self._pending, self._last_checks, self._last_list, self._culprit, self._over = {}, {}, nil, nil, nil
    self._last = setmetatable({}, { __mode = 'k' })
    I.reset(self)
    return self
  end

  --- Steps skipped in a row, and in all, as far as it is known without a wait.
  function Scaler:get_skipped() return self._skipped, self._skipped_total end
end
