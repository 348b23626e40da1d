--- What the recipe `delayed` remembers of a network's layers: amp.float8_state, amp.load_float8_state, and the part of a
-- state dict that carries it.
--     local state = amp.float8_state(net) -- {['1.weight'] = {input = {3.5, 3.25}, gradient = {0.01}}}
--     amp.load_float8_state(net, state)
-- A layer is the weight that its products are by. Numbers are the largest |x| of its latest steps, the last first.
-- @module amp.precision.float8_state
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local util = require 'amp.util'
local words = require 'amp.precision.autocast_state'
local C, S = core.C, core.S

local M = {}

local KINDS = { [0] = 'input', [1] = 'gradient' }
local MOST = words.MOST_HISTORY + 64
local LARGEST = 3.4028234663852886e38
local SUFFIX = '.float8_history'

local function read(op, t, kind)
  call.here()
  local values = ffi.new('double[?]', MOST)
  local n = C.amp_float8_history(S, t, kind, values, MOST)
  if n < 0 then err.raise(op) end
  local list = {}
  for i = 1, n do list[i] = values[i - 1] end
  return list
end

local function write(op, t, kind, list)
  local values = ffi.new('double[?]', math.max(#list, 1))
  for i = 1, #list do values[i - 1] = list[i] end
  if C.amp_float8_set_history(S, t, kind, values, #list) < 0 then err.raise(op) end
end

local function check_net(op, net)
  if not require('amp.nn.module').is_module(net) then err.throw(op, 'argument 1 must be a module, got %s', util.show(net)) end
end

--- The histories of a network's layers, as plain data; layers that have none are not in it. Waits for the device.
-- @tparam nn.Module net
-- @treturn table name of the weight -> {input = {numbers}, gradient = {numbers}}, the latest step first
function M.float8_state(net)
  check_net('float8_state', net)
  local state = {}
  for name, t in net:named_parameters() do
    local input, gradient = read('float8_state', t, 0), read('float8_state', t, 1)
    if #input > 0 or #gradient > 0 then state[name] = { input = input, gradient = gradient } end
  end
  return state
end

-- A layer's entry, checked: {[0] = list, [1] = list}
local function entry_of(op, name, entry)
  if type(entry) ~= 'table' then err.throw(op, "layer '%s': {input = {…}, gradient = {…}} expected, got %s", name, util.show(entry)) end
  local lists = {}
  for key in pairs(entry) do
    if key ~= 'input' and key ~= 'gradient' then err.throw(op, "layer '%s' has an unknown part %s (there are input, gradient)", name, util.show(key)) end
  end
  for kind, key in pairs(KINDS) do
    local list = entry[key] or {}
    if type(list) ~= 'table' then err.throw(op, "layer '%s': %s must be a list of numbers, got %s", name, key, util.show(list)) end
    if #list > words.MOST_HISTORY + 8 then err.throw(op, "layer '%s': %s has %d steps, at most %d are kept", name, key, #list, words.MOST_HISTORY + 8) end
    local n = 0
    for _, v in pairs(list) do
      n = n + 1
      if type(v) ~= 'number' or not (v >= 0 and v <= LARGEST) then
        err.throw(op, "layer '%s': %s must hold finite numbers from 0 on, got %s", name, key, util.show(v))
      end
    end
    if n ~= #list then err.throw(op, "layer '%s': %s must be a list of numbers without gaps", name, key) end
    lists[kind] = list
  end
  return lists
end

--- Set the histories of a network's layers. Those that the state does not name begin anew. Nothing is changed when anything
-- is wrong.
-- @tparam nn.Module net
-- @tparam table state what float8_state gave
-- @raise a layer that the network does not have; what is no list of finite numbers
function M.load_float8_state(net, state)
  local op = 'load_float8_state'
  check_net(op, net)
  if type(state) ~= 'table' then err.throw(op, 'argument 2 must be a table as amp.float8_state gives it, got %s', util.show(state)) end
  local mine, names, checked = {}, {}, {}
  for name, t in net:named_parameters() do
    mine[name] = t
    names[#names + 1] = name
  end
  for name, entry in pairs(state) do
    if mine[name] == nil then
      err.throw(op, "the network has no layer '%s'%s: the state is of another one", tostring(name), util.hint(tostring(name), names))
    end
    checked[name] = entry_of(op, name, entry)
  end
  for name, t in pairs(mine) do
    local lists = checked[name]
    for kind in pairs(KINDS) do
      if lists then write(op, t, kind, lists[kind])
      elseif #read(op, t, kind) > 0 then write(op, t, kind, {}) end
    end
  end
end

--- What a layer remembers, to the layer of a copy of its weight. Waits for the device where there is something.
-- @tparam Tensor from
-- @tparam Tensor to
function M.copy(from, to)
  for kind in pairs(KINDS) do
    local list = read('clone', from, kind)
    if #list > 0 then write('clone', to, kind, list) end
  end
end

-- -- In a state dict: NAME.float8_history, float32 of 2 x steps, where -1 stands for none -------------------------------

--- Add to a state dict what its parameters' layers remember.
-- @tparam table state name -> tensor, which is added to
-- @tparam table parameters name -> tensor
function M.add(state, parameters)
  for name, t in pairs(parameters) do
    local lists = { read('state_dict', t, 0), read('state_dict', t, 1) }
    local n = math.max(#lists[1], #lists[2])
    if n > 0 then
      for _, list in ipairs(lists) do
        for i = #list + 1, n do list[i] = -1 end
      end
      state[name .. SUFFIX] = require('amp.tensor.from_values').tensor(lists, { dtype = 'float32', device = 'cpu' })
    end
  end
end

--- What is wrong with such a value, or nil.
function M.wrong(value)
  if not core.is_ref(value) then return 'is no tensor' end
  if value:dim() ~= 2 or value:size(1) ~= 2 or value:size(2) > words.MOST_HISTORY + 8 then return 'is not 2 x steps' end
end

--- Set a layer's history from such a value.
function M.take(t, value)
  local rows = value:double():tolist()
  for kind = 0, 1 do
    local list = {}
    for _, v in ipairs(rows[kind + 1]) do
      if v >= 0 and v <= LARGEST then list[#list + 1] = v end
    end
    write('load_state_dict', t, kind, list)
  end
end

return M
