--- nn.Module: layers and networks as classes with registered parts.
--
--   local Net = nn.Module:extend('Net')
--   function Net:init(width) self.first = nn.Linear(784, width) end
--   function Net:forward(x) return self.first(x):relu() end
--   local net = Net(128)
--
-- An instance keeps every field in one table behind it (its own raw keys begin
-- with a dot, as no field's name does), so each assignment is seen: a module or a tensor that requires grad is registered
-- under the field's name, in order. Containers (nn/container/) keep their parts in themselves, where
-- ipairs, pairs and # look, and these raw keys in a metatable of their own: `inside` gives the table that has them.
-- Tensors keep their identity through to(), half() and loading, so optimizers and other holders stay valid. How an error
-- names the modules it passed is in nn/core/where.lua; walking the tree and state dicts are in nn/core/tree.lua.
local bit = require 'bit'
local amp = require 'amp'
local options = require 'amp.options'
local classes = require 'amp.core.class'
local util = require 'amp.util'
local err = require 'amp.error'
local raise = err.throw

-- -- Methods: each is guarded against being called with a dot (amp.class) --------------------------

local unguarded = {init = true, extra_repr = true}

-- What every class does with a method that is defined on it.
local function define(class, key, value)
  if key == '__init' or key == '__init__' then
    raise(class.__name, ("'%s' is never called: the constructor of a class is init, function %s:init(...)"):format(key, class.__name))
  end
  if type(value) == 'function' and type(key) == 'string' and not unguarded[key] then
    value = classes.guarded(value, key, rawget(class, '.family'))
  end
  rawset(class, key, value)
end

local function family(name) return {ours = setmetatable({}, {__mode = 'k'}), label = name, var = 'net'} end

local Module = setmetatable({__name = 'nn.Module', ['.family'] = family 'nn.Module'}, {__newindex = define})
classes.name(Module, 'nn.Module')

local is_tensor = amp.is_tensor

-- The table with an instance's raw keys.
local function inside(self) return rawget(self, '.values') and self or getmetatable(self) end

-- A key of it.
local function raw(self, key) return rawget(inside(self), key) end

--- Is v an instance of some nn.Module class?
local function is_module(v)
  local mt = type(v) == 'table' and getmetatable(v)
  return type(mt) == 'table' and mt.is_module == true
end

-- While a graph is recorded: what is told of each module that is called, and when it is left, and of fields.
local watching
local standing -- in a captured step: what calls a module in another way (amp/capture/modules.lua)
local excluding -- in a region of 8 bits with modules that stay in its base: what decides (amp/precision/float8_region.lua)
local attended -- one of the three

-- -- Fields -----------------------------------------------------------------

local function forget(self, name)
  local names = raw(self, '.names')
  for i = #names, 1, -1 do
    if names[i] == name then table.remove(names, i) end
  end
  raw(self, '.kinds')[name] = nil
end

-- A name of a part, which a state dict joins to others by dots.
local function check_name(op, name)
  if type(name) ~= 'string' then raise(op, 'a name expected, got ' .. util.kind(name)) end
  if name == '' or name:find('.', 1, true) then raise(op, "a name without a dot expected, got '" .. name .. "'") end
end

local WEIGHT = require('amp.ffi').C.AMP_T_WEIGHT -- casts of it are kept, frozen or not

local function register(self, name, kind, value)
  local at = inside(self)
  local kinds = rawget(at, '.kinds')
  if not kinds[name] then
    local names = rawget(at, '.names')
    names[#names + 1] = name
  end
  kinds[name] = kind
  rawget(at, '.values')[name] = value
  if kind == 'parameter' and value.ptr_ ~= nil then value.ptr_.flags = bit.bor(value.ptr_.flags, WEIGHT) end
end

-- A flag that does nothing, set where another was meant.
local function check_flag(self, name)
  if name == 'requires_grad' then
    raise(self.__name, "'requires_grad' is a property of tensors, not of modules: net:requires_grad_(false) freezes all parameters")
  end
  if util.edits(name, 'training') <= 2.5 then
    raise(self.__name, "no field '%s', did you mean 'training'? net:train() and net:eval() set it in the module and all its parts", name)
  end
end

-- A plain value given to a name that holds a parameter. Without a word the layer would no longer be trained.
local function refuse_plain(self, name, value)
  raise(self.__name, ("'%s' is a parameter: a new one is net.%s = nn.Parameter(t), new values are net.%s.data = t; got %s"):format(name, name, name,
    is_tensor(value) and 'a tensor of ' .. value.dtype or util.show(value)))
end

-- A plain tensor in a parameter's place is trained as the one before.
local function take_over(self, name, value)
  local before = rawget(inside(self), '.values')[name]
  if not value:is_floating_point() then refuse_plain(self, name, value) end
  if is_tensor(before) and before.ptr_ ~= nil and before.requires_grad then value:requires_grad_(true) end
end

local changes = 0 -- assignments to fields of modules: what depends on fields looks at them again where it grew

local function assign(self, name, value)
  changes = changes + 1
  if watching then watching:assigned(self, name, value) end
  local at = inside(self)
  local kind = rawget(at, '.kinds')[name]
  if type(value) == 'boolean' and kind == nil and type(name) == 'string' and rawget(at, '.values')[name] == nil then
    check_flag(self, name)
  end
  if is_module(value) then return register(self, name, 'module', value) end
  if is_tensor(value) then
    local made = value.requires_grad and not value.is_leaf -- by an op: a result that is kept, not a weight
    if kind == 'parameter' and made then
      raise(self.__name, ("'%s' is a parameter, and the tensor was made by an op: assign nn.Parameter(t:detach()), "
        .. 'or change the parameter in place in amp.no_grad'):format(name))
    end
    if kind == 'parameter' and not value.requires_grad and value.ptr_ ~= nil and bit.band(value.ptr_.flags, WEIGHT) == 0 then
      take_over(self, name, value)
    end
    if kind == 'buffer' or kind == 'parameter' then return register(self, name, kind, value) end
    if value.requires_grad and not made then return register(self, name, 'parameter', value) end
  end
  if kind == 'parameter' and value ~= nil and value ~= false then refuse_plain(self, name, value) end
  if kind then forget(self, name) end
  rawget(at, '.values')[name] = value
end

-- Iterate over the registered parts of a kind: fields in the order of their assignment, then what a container contains.
local function parts(self, kind)
  local at = inside(self)
  local names, kinds, values = rawget(at, '.names'), rawget(at, '.kinds'), rawget(at, '.values')
  local i, more = 0, kind == 'module' and at ~= self and self:items() or nil
  return function()
    while i < #names do
      i = i + 1
      local name = names[i]
      local v = values[name]
      if kinds[name] == kind and type(v) ~= 'nil' then return name, v end
    end
    if more then return more() end
  end
end

-- A name that stands for a part of another kind is not given away.
local function check_free(self, op, name, kind)
  local is = rawget(inside(self), '.kinds')[name]
  if is and is ~= kind then raise(op, ("'%s' is a %s of the module; set it to nil first"):format(name, is)) end
end

--- Register a tensor that belongs to the state but is not trained.
-- @tparam string name field name
-- @tparam Tensor tensor or nil
-- @tparam ?table given persistent (true: it is in state_dict)
function Module:register_buffer(name, tensor, given)
  check_name('nn.Module:register_buffer', name)
  if tensor ~= nil and not is_tensor(tensor) then
    raise('nn.Module:register_buffer', string.format("a tensor or nil expected for '%s', got %s", name, util.kind(tensor)))
  end
  check_free(self, 'nn.Module:register_buffer', name, 'buffer')
  local o = options.read('nn.Module:register_buffer', given, {'persistent'}, {persistent = true})
  register(self, name, 'buffer', tensor)
  if not o.persistent then
    local at = inside(self)
    if not rawget(at, '.passing') then rawset(at, '.passing', {}) end
    rawget(at, '.passing')[name] = true
  end
  return self
end

--- Register a parameter; it is made to require grad if it does not.
function Module:register_parameter(name, tensor)
  check_name('nn.Module:register_parameter', name)
  if not is_tensor(tensor) then
    raise('nn.Module:register_parameter', string.format("a tensor expected for '%s', got %s", tostring(name), util.kind(tensor)))
  end
  check_free(self, 'nn.Module:register_parameter', name, 'parameter')
  if not tensor.requires_grad then tensor.requires_grad = true end
  register(self, name, 'parameter', tensor)
  return self
end

-- -- Classes ----------------------------------------------------------------

-- Called as net(x). Not a tail call: nn/core/where.lua finds this frame by its function.
local function pass(...) return ... end

local function run_hooks(self, hooks, ...)
  local args = {n = select('#', ...), ...}
  for _, h in ipairs(hooks) do
    if h.before then
      local out = {h.fn(self, unpack(args, 1, args.n))}
      if #out > 0 then args = {n = #out, unpack(out)} end
    end
  end
  local hybrid = not watching and raw(self, '.hybrid')
  local function counted(...) return select('#', ...), ... end
  local results
  if hybrid then results = {counted(hybrid(unpack(args, 1, args.n)))}
  else results = {counted(self:forward(unpack(args, 1, args.n)))} end
  for _, h in ipairs(hooks) do
    if not h.before then
      local out = {h.fn(self, args, unpack(results, 2, results[1] + 1))}
      if #out > 0 then results = {#out, unpack(out)} end
    end
  end
  return unpack(results, 2, results[1] + 1)
end

-- A call that something goes along with: hooks, a graph that stands for the forward (nn/core/hybrid.lua), a watcher.
local function accompanied(self, hooks, forward, ...)
  local watcher = watching
  if not watcher then
    if not hooks then return forward(self, ...) end
    local hybrid = raw(self, '.hybrid')
    if hybrid and #hooks == 0 then return hybrid(...) end
    return run_hooks(self, hooks, ...)
  end
  watcher:enter(self)
  local results
  if hooks then results = util.pack(run_hooks(self, hooks, ...))
  else results = util.pack(forward(self, ...)) end
  watcher:leave(self)
  return unpack(results, 1, results.n)
end

local function attend_here(self, hooks, forward, ...)
  if standing and not watching then return standing(self, hooks, forward, ...) end
  return accompanied(self, hooks, forward, ...)
end

local function attend(self, hooks, forward, ...)
  if excluding then return excluding(attend_here, self, hooks, forward, ...) end
  return attend_here(self, hooks, forward, ...)
end

local unwrapped = classes.unwrapped

-- forward of a layer of amp -> how many arguments it takes at most; false: any number. A class of the user's own keeps Lua's habit, that
-- nobody minds an argument too many.
local most = setmetatable({}, {__mode = 'k'})

local function limit_of(forward)
  local limit = most[forward]
  if limit == nil then
    local info = debug.getinfo(forward, 'Su')
    limit = not info.isvararg and err.own(info.source) and info.nparams - 1 or false
    most[forward] = limit
  end
  return limit
end

-- Called where more than one argument is given to a module.
local function check_count(self, forward, ...)
  local limit = limit_of(forward)
  local n = limit and select('#', ...) or 0
  while n > (limit or 0) and type((select(n, ...))) == 'nil' do n = n - 1 end
  if limit and n > limit then
    raise(self.__name, ('takes %d argument%s, got %d'):format(limit, limit == 1 and '' or 's', n))
  end
end

-- Of two and more arguments; for one a look-up by a function would be slow.
local function check_several(self, forward, ...)
  local limit, _, _, third, fourth = most[forward], ...
  if limit == nil or limit == 1 or third ~= nil and limit == 2 or fourth ~= nil and limit then check_count(self, forward, ...) end
end

local frames = setmetatable({}, {__mode = 'k'}) -- the functions that call a module

-- What runs where an instance of a class is called; of a container, whose raw keys are in its metatable `at`.
local function caller(class, at)
  local f
  if at then
    local values = rawget(at, '.values')
    f = function(self, ...)
      local hooks = rawget(at, '.hooks')
      local forward = values.forward or class.forward
      forward = unwrapped[forward] or forward
      local _, second = ... -- quicker than select
      if second ~= nil then check_several(self, forward, ...) end
      if hooks or attended then return pass(attend(self, hooks, forward, ...)) end
      return pass(forward(self, ...))
    end
  else
    f = function(self, ...)
      local hooks = rawget(self, '.hooks')
      local forward = rawget(self, '.values').forward or class.forward
      forward = unwrapped[forward] or forward
      local _, second = ... -- quicker than select
      if second ~= nil then check_several(self, forward, ...) end
      if hooks or attended then return pass(attend(self, hooks, forward, ...)) end
      return pass(forward(self, ...))
    end
  end
  frames[f] = true
  return f
end

local function add_hook(self, fn, before)
  if type(fn) ~= 'function' then raise('nn.Module', 'a hook is a function, got ' .. util.kind(fn)) end
  local hooks = {unpack(raw(self, '.hooks') or {})} -- a copy: a running call keeps its list
  local hook = {fn = fn, before = before}
  hooks[#hooks + 1] = hook
  rawset(inside(self), '.hooks', hooks)
  changes = changes + 1
  return {remove = function()
    local left = {}
    for _, h in ipairs(raw(self, '.hooks') or {}) do
      if h ~= hook then left[#left + 1] = h end
    end
    rawset(inside(self), '.hooks', #left > 0 and left or nil)
    changes = changes + 1
  end}
end

--- Call fn(module, arguments...) before forward; what it returns replaces the arguments.
-- @treturn table with remove()
function Module:register_forward_pre_hook(fn) return add_hook(self, fn, true) end

--- Call fn(module, {arguments}, results...) after forward; what it returns replaces the results.
-- @treturn table with remove()
function Module:register_forward_hook(fn) return add_hook(self, fn, false) end

-- An instance metatable of a class is known to the class and to those it derives from, whose methods it may be given to.
local function introduce(class, mt)
  classes.instance(mt)
  while class do
    class['.family'].ours[mt] = true
    class = rawget(class, 'super')
  end
end

--- An empty instance of a class, without its init.
-- @treturn nn.Module
-- @treturn table the table with its raw keys
local function shell(class)
  local fields = {['.values'] = {training = true}, ['.kinds'] = {}, ['.names'] = {}}
  if not class.container then return setmetatable(fields, class.__instance), fields end
  local values = fields['.values']
  fields.is_module, fields.class, fields.__call, fields.__tostring = true, class, caller(class, fields), class.__instance.__tostring
  fields.__newindex, fields.__index = class.put, class.get_from(values, class)
  introduce(class, fields)
  return setmetatable({}, fields), fields
end

local function construct(class, ...)
  local self = shell(class)
  self:init(...)
  return self
end

--- A new class derived from this one.
-- Its `init` gets the constructor's arguments, its `forward` what an instance is
-- called with. A parent's method is reached as Class.super.method(self, ...).
-- @tparam string name how instances print
-- @treturn table the class; calling it makes an instance
function Module.extend(parent, name)
  if type(name) ~= 'string' then
    local dot = type(parent) == 'string' and ', which is called with a colon' or ''
    raise('nn.Module:extend', ("a class name expected, as in nn.Module:extend 'Net'%s; got %s"):format(dot, util.kind(name)))
  end
  local class = {__name = name, super = parent, ['.family'] = family(name)}
  class.__instance = {
    is_module = true,
    class = class,
    __index = function(self, key)
      local v = rawget(self, '.values')[key]
      if v or v == false then return v end
      return class[key]
    end,
    __newindex = assign,
    __call = caller(class),
    __tostring = function(self) return self:describe() end,
  }
  setmetatable(class, {__index = parent, __newindex = define, __call = construct, __tostring = function() return 'class ' .. name end})
  introduce(class, class.__instance)
  classes.name(class, name)
  return class
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

-- For the other files here; not methods, so not guarded.
for key, f in pairs {is_module = is_module, call_frames = frames, check_name = check_name, assign = assign, inside = inside, raw_key = raw,
  parts = parts, shell = shell, accompanied = accompanied, watch = function(watcher)
    watching = watcher
    attended = watching or standing or excluding
  end, stand_in = function(way) -- gives the one before
    local outer = standing
    standing = way
    attended = watching or standing or excluding
    return outer
  end, excluding = function(way)
    excluding = way
    attended = watching or standing or excluding
  end, watched = function() return watching end,
  -- whether a module is a layer of amp's whose forward takes one argument
  takes_one = function(m)
    local mt = getmetatable(m)
    local class = type(mt) == 'table' and mt.is_module and mt.class
    local forward = class and (raw(m, '.values').forward or class.forward)
    return forward ~= nil and forward ~= false and limit_of(unwrapped[forward] or forward) == 1
  end,
  changes = function() return changes end, changed = function() changes = changes + 1 end} do
  rawset(Module, key, f)
end

return Module
