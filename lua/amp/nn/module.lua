--- nn.Module: layers and networks as classes with registered parts.
--
--   local Net = nn.Module:extend('Net')
--   function Net:init(width) self.first = nn.Linear(784, width) end
--   function Net:forward(x) return self.first(x):relu() end
--   local net = Net(128)
--
-- An instance keeps every field in one table behind it (its own raw keys begin
-- with a dot, as no field's name does), so each assignment is seen: a module or a tensor that requires grad is registered under the field's
-- name, in order. Tensors keep their identity through to(), half() and loading,
-- so optimizers and other holders stay valid. How an error names the modules it
-- passed is in nn/where.lua; walking the tree and state dicts are in nn/tree.lua.
local bit = require 'bit'
local amp = require 'amp'
local options = require 'amp.options'
local raise = require('amp.error').throw

local Module = {__name = 'nn.Module'}

local is_tensor = amp.is_tensor

--- Is v an instance of some nn.Module class?
local function is_module(v)
  local mt = type(v) == 'table' and getmetatable(v)
  return type(mt) == 'table' and mt.is_module == true
end

-- -- Fields -----------------------------------------------------------------

local function forget(self, name)
  local names = rawget(self, '.names')
  for i = #names, 1, -1 do
    if names[i] == name then table.remove(names, i) end
  end
  rawget(self, '.kinds')[name] = nil
end

-- A name of a part, which a state dict joins to others by dots.
local function check_name(op, name)
  if type(name) ~= 'string' then raise(op, 'a name expected, got ' .. type(name)) end
  if name == '' or name:find('.', 1, true) then raise(op, "a name without a dot expected, got '" .. name .. "'") end
end

local WEIGHT = 128 -- AMP_T_WEIGHT: casts of it are kept, frozen or not

local function register(self, name, kind, value)
  local kinds = rawget(self, '.kinds')
  if not kinds[name] then
    local names = rawget(self, '.names')
    names[#names + 1] = name
  end
  kinds[name] = kind
  rawget(self, '.values')[name] = value
  if kind == 'parameter' and value.ptr_ ~= nil then value.ptr_.flags = bit.bor(value.ptr_.flags, WEIGHT) end
end

local function assign(self, name, value)
  local kind = rawget(self, '.kinds')[name]
  if is_module(value) then return register(self, name, 'module', value) end
  if is_tensor(value) then
    if kind == 'buffer' or kind == 'parameter' then return register(self, name, kind, value) end
    if value.requires_grad then return register(self, name, 'parameter', value) end
  end
  if kind then forget(self, name) end
  rawget(self, '.values')[name] = value
end

--- Register a tensor that belongs to the state but is not trained.
-- @tparam string name field name
-- @tparam Tensor tensor or nil
-- @tparam ?table given persistent (true: it is in state_dict)
function Module:register_buffer(name, tensor, given)
  check_name('nn.Module:register_buffer', name)
  if tensor ~= nil and not is_tensor(tensor) then
    raise('nn.Module:register_buffer', string.format("a tensor or nil expected for '%s', got %s", name, type(tensor)))
  end
  local o = options.read('nn.Module:register_buffer', given, {'persistent'}, {persistent = true})
  register(self, name, 'buffer', tensor)
  if not o.persistent then
    if not rawget(self, '.passing') then rawset(self, '.passing', {}) end
    rawget(self, '.passing')[name] = true
  end
  return self
end

--- Register a parameter; it is made to require grad if it does not.
function Module:register_parameter(name, tensor)
  check_name('nn.Module:register_parameter', name)
  if not is_tensor(tensor) then
    raise('nn.Module:register_parameter', string.format("a tensor expected for '%s', got %s", tostring(name), type(tensor)))
  end
  if not tensor.requires_grad then tensor.requires_grad = true end
  register(self, name, 'parameter', tensor)
  return self
end

-- -- Classes ----------------------------------------------------------------

-- Called as net(x). Not a tail call: nn/where.lua finds this frame by its function.
local function pass(...) return ... end

local function run_hooks(self, hooks, ...)
  local args = {n = select('#', ...), ...}
  for _, h in ipairs(hooks) do
    if h.before then
      local out = {h.fn(self, unpack(args, 1, args.n))}
      if #out > 0 then args = {n = #out, unpack(out)} end
    end
  end
  local results = {(function(...) return select('#', ...), ... end)(self:forward(unpack(args, 1, args.n)))}
  for _, h in ipairs(hooks) do
    if not h.before then
      local out = {h.fn(self, args, unpack(results, 2, results[1] + 1))}
      if #out > 0 then results = {#out, unpack(out)} end
    end
  end
  return unpack(results, 2, results[1] + 1)
end

local function call(self, ...)
  local hooks = rawget(self, '.hooks')
  if hooks then return pass(run_hooks(self, hooks, ...)) end
  return pass(self:forward(...))
end

local function add_hook(self, fn, before)
  if type(fn) ~= 'function' then raise('nn.Module', 'a hook is a function, got ' .. type(fn)) end
  local hooks = {unpack(rawget(self, '.hooks') or {})} -- a copy: a running call keeps its list
  local hook = {fn = fn, before = before}
  hooks[#hooks + 1] = hook
  rawset(self, '.hooks', hooks)
  return {remove = function()
    local left = {}
    for _, h in ipairs(rawget(self, '.hooks') or {}) do
      if h ~= hook then left[#left + 1] = h end
    end
    rawset(self, '.hooks', #left > 0 and left or nil)
  end}
end

--- Call fn(module, arguments...) before forward; what it returns replaces the arguments.
-- @treturn table with remove()
function Module:register_forward_pre_hook(fn) return add_hook(self, fn, true) end

--- Call fn(module, {arguments}, results...) after forward; what it returns replaces the results.
-- @treturn table with remove()
function Module:register_forward_hook(fn) return add_hook(self, fn, false) end

local function construct(class, ...)
  local self = setmetatable({['.values'] = {training = true}, ['.kinds'] = {}, ['.names'] = {}}, class.__instance)
  self:init(...)
  return self
end

--- A new class derived from this one.
-- Its `init` gets the constructor's arguments, its `forward` what an instance is
-- called with. A parent's method is reached as Class.super.method(self, ...).
-- @tparam string name how instances print
-- @treturn table the class; calling it makes an instance
function Module.extend(parent, name)
  if type(name) ~= 'string' then raise('nn.Module:extend', 'a class name expected, got ' .. type(name)) end
  local class = {__name = name, super = parent}
  class.__instance = {
    is_module = true,
    class = class,
    __index = function(self, key)
      local v = rawget(self, '.values')[key]
      if v or v == false then return v end
      return class[key]
    end,
    __newindex = assign,
    __call = call,
    __tostring = function(self) return self:describe() end,
  }
  return setmetatable(class, {__index = parent, __call = construct, __tostring = function() return 'class ' .. name end})
end

function Module.init() end

function Module:forward()
  raise(self.__name, 'this class has no forward method: define function ' .. self.__name .. ':forward(x)')
end

--- Text in the parentheses when a module prints; classes override it.
function Module.extra_repr() return '' end

--- Which class an instance is of, or derives from.
-- @usage net:is(nn.Linear)
function Module:is(class)
  local c = getmetatable(self).class
  while c do
    if c == class then return true end
    c = c.super
  end
  return false
end

Module.is_module = is_module
Module.call_frame = call -- for nn/where.lua
Module.check_name = check_name
Module.assign = assign

return Module
