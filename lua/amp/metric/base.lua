--- What metrics share beyond running means: options, reset, and states of ranks that add up.
--
-- A class has `start(self)`, which sets self.held (a plain table of numbers and tensors), `update`, `value` and `add_state(self, state)`.
local amp = require 'amp'
local lasting = require('amp.core.scope').lasting
local options = require 'amp.options'
local util = require 'amp.util'
local raise = require('amp.error').throw

local M = {}

local function copy(v)
  if amp.is_tensor(v) then return v:clone() end
  if type(v) ~= 'table' then return v end
  local out = {}
  for k, x in pairs(v) do out[k] = copy(x) end
  return out
end

--- A class `name` and its constructor.
function M.class(name, known, defaults, check)
  local op = 'metric.' .. name
  local C = { op = op }
  C.__index = C
  local names = { 'name', unpack(known) }

  --- Forget everything.
  function C:reset()
    self.held = self:start()
    return self
  end
  --- What was seen, as plain numbers, tensors and lists.
  function C:state() return copy(self.held) end
  --- Add the state of another metric of this class, such as another rank's.
  function C:merge(state)
    if type(state) ~= 'table' then raise(op .. ':merge', 'a state expected, as state() gives it, got %s', util.kind(state)) end
    for k in pairs(self:start()) do
      if type(state[k]) == 'nil' then raise(op .. ':merge', "the state has no '%s'; it is of another metric", k) end
    end
    lasting(self.add_state, self, copy(state))
    return self
  end
  --- Name and value.
  function C:get() return self.name, self:value() end
  function C:__tostring()
    local v = self:value()
    return type(v) == 'number' and ('%s %.4f'):format(self.name, v) or self.name
  end
  --- Sums and counts add up by themselves.
  function C:add_state(state)
    for k, v in pairs(self.held) do
      local x = state[k]
      if amp.is_tensor(v) and v:dim() > 0 and not (amp.is_tensor(x) and tostring(x:size()) == tostring(v:size())) then
        local got = amp.is_tensor(x) and 'of shape ' .. tostring(x:size()) or util.kind(x)
        raise(op .. ':merge', "'%s' has shape %s, in the state it is %s", k, tostring(v:size()), got)
      end
    end
    for k, v in pairs(self.held) do self.held[k] = M.plus(v, state[k]) end
  end

  return C,
  --- Make a metric: `update` takes a batch, `value` gives what was asked for since the last `reset`, `state` and `merge` add
  -- up what several ranks saw.
  -- @tparam ?string|table given a name for printing, or options by name
  function(given)
    if type(given) == 'string' then given = { name = given } end
    local base = { name = name:lower() }
    for k, v in pairs(defaults) do base[k] = v end
    local o = options.read(op, given, names, base)
    if type(o.name) ~= 'string' then raise(op, 'name must be a string, got %s', util.show(o.name)) end
    if check then check(op, o) end
    return setmetatable(o, C):reset()
  end
end

--- The sum of two numbers or tensors, on the first tensor's device.
function M.plus(a, b)
  if amp.is_tensor(a) and amp.is_tensor(b) and a.device ~= b.device then b = b:to(a.device) end
  return a + b
end

function M.add(self, key, v)
  self.held[key] = lasting(function(old)
    if amp.is_tensor(v) and amp.is_tensor(old) and old.device ~= v.device then old = old:to(v.device) end
    return old + v
  end, self.held[key])
end

function M.number(v) return amp.is_tensor(v) and v:item() or v end

--- Scores and labels of a batch, flat: N x C (classes last or in dimension 2) and N.
function M.batch(op, scores, labels)
  if not (amp.is_tensor(scores) and amp.is_tensor(labels)) then
    raise(op, 'scores and labels expected, two tensors, got %s and %s', util.kind(scores), util.kind(labels))
  end
  return scores:detach(), labels:detach()
end

function M.misfit(op, a, b) raise(op, 'scores of shape %s do not fit labels of shape %s', tostring(a:size()), tostring(b:size())) end

--- Labels of the CPU are checked at once; a GPU's are not waited for.
function M.check_labels(op, labels, classes)
  if labels.device ~= 'cpu' or labels:numel() == 0 then return end
  if labels:is_floating_point() then
    local other = labels:ne(labels:floor()):nonzero()
    if other:size(1) > 0 then raise(op, 'labels are whole numbers from 1, and number %d is %g', other[1][1]:item(), labels[other[1][1]:item()]:item()) end
  end
  local low, high = labels:min():item(), labels:max():item()
  if low < 1 or high > classes then
    local bad = low < 1 and low or high
    raise(op, 'label %g, but labels are from 1 to %d%s', bad, classes, bad == 0 and '; labels count from 1: add 1 to those that count from 0' or '')
  end
end

return M
