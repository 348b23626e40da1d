--- What a module can say of its parts, and change in all of them: the methods of
-- nn.Module that walk the tree. A module or tensor that is reached twice counts
-- once (but has both names in a state dict); own tensors come before children.
local amp = require 'amp'
local options = require 'amp.options'
local util = require 'amp.util'
local types = require 'amp.types'
local raise = require('amp.error').throw
local Module = require 'amp.nn.module'
local warn = require 'amp.core.warn'
local where = require 'amp.nn.core.where'
local masters = require 'amp.nn.core.masters'

local is_tensor = amp.is_tensor

-- -- Walking ----------------------------------------------------------------

local parts, raw, inside = Module.parts, Module.raw_key, Module.inside

local function join(prefix, name) return prefix == '' and tostring(name) or prefix .. '.' .. tostring(name) end

local function visit(self, prefix, seen, fn)
  if seen[self] then return end
  seen[self] = true
  fn(self, prefix)
  for name, child in parts(self, 'module') do visit(child, join(prefix, name), seen, fn) end
end

local function collect(self, kind) -- lists of names and tensors, each tensor once
  local names, tensors, seen = {}, {}, {}
  visit(self, '', {}, function(m, prefix)
    for name, t in parts(m, kind) do
      if not seen[t:id()] then
        seen[t:id()] = true
        names[#names + 1], tensors[#tensors + 1] = join(prefix, name), t
      end
    end
  end)
  return names, tensors
end

local function pairs_of(names, values)
  local i = 0
  return function()
    i = i + 1
    if i <= #names then return names[i], values[i] end
  end
end

-- Modules in a plain table are no parts of the network: nothing trains, moves or saves them. Said once for each field.
local function check_tables(self)
  local known, plain = {}, nil
  visit(self, '', known, function(m)
    for name, v in next, raw(m, '.values') do
      if type(v) == 'table' and getmetatable(v) == nil then
        plain = plain or {}
        plain[#plain + 1] = {m, name, v}
      end
    end
  end)
  for _, p in ipairs(plain or {}) do
    for _, v in next, p[3] do
      if Module.is_module(v) and not known[v] then
        local m, name = p[1], tostring(p[2])
        warn.once(("field '%s' of %s is a plain table with modules in it, which are no parts of the network: they are not trained, moved or saved; "
          .. 'use nn.ModuleList{...} or nn.ModuleDict{...}'):format(name, m.__name), 'modules in a table: ' .. m.__name .. '.' .. name)
        break
      end
    end
  end
end

--- All parameters of the module and its children: a list, each once.
function Module:parameters()
  check_tables(self)
  return (select(2, collect(self, 'parameter')))
end

--- Iterate over names ('1.weight') and parameters.
-- @usage for name, p in net:named_parameters() do print(name, p:size()) end
function Module:named_parameters() return pairs_of(collect(self, 'parameter')) end

--- All buffers (running statistics and the like): a list.
function Module:buffers() return (select(2, collect(self, 'buffer'))) end

--- Iterate over names and buffers.
function Module:named_buffers() return pairs_of(collect(self, 'buffer')) end

--- Direct children, in order: a list.
function Module:children()
  local list = {}
  for _, child in parts(self, 'module') do list[#list + 1] = child end
  return list
end

--- Iterate over names and direct children.
function Module:named_children() return parts(self, 'module') end

--- The module itself and all modules in it: a list, each once.
function Module:modules()
  local list = {}
  visit(self, '', {}, function(m) list[#list + 1] = m end)
  return list
end

--- Iterate over names ('' for the module itself) and modules.
function Module:named_modules()
  local names, list = {}, {}
  visit(self, '', {}, function(m, prefix) names[#names + 1], list[#list + 1] = prefix, m end)
  return pairs_of(names, list)
end

--- Call fn(module) on every module, children first.
function Module:apply(fn)
  require('amp.autograd').need_function('nn.Module:apply', fn)
  for _, child in parts(self, 'module') do child:apply(fn) end
  fn(self)
  return self
end

-- -- State ------------------------------------------------------------------

-- name -> tensor itself; shared ones under each name. `of`: name -> what amp.initialize keeps for its
-- module, whose 16-bit parameters may have float32 masters. `order`: the names as the module has them.
local function entries(self, prefix, path, out, of, order)
  if path[self] then return out, of, order end
  path[self] = true
  local at = inside(self)
  local names, kinds, values, passing, record = at['.names'], at['.kinds'], at['.values'], rawget(at, '.passing'), rawget(at, '.record')
  local children = false
  for i = 1, #names do
    local name = names[i]
    local v, kind = values[name], kinds[name]
    if type(v) == 'nil' then -- luacheck: ignore 542
    elseif kind == 'module' then children = true
    elseif kind == 'parameter' or kind == 'buffer' and not (passing and passing[name]) then
      local full = join(prefix, name)
      out[full], of[full], order[#order + 1] = v, record, full
    end
  end
  for i = 1, children and #names or 0 do -- after its own, as PyTorch has them
    local name = names[i]
    if kinds[name] == 'module' and type(values[name]) ~= 'nil' then entries(values[name], join(prefix, name), path, out, of, order) end
  end
  if at ~= self then
    for name, child in self:items() do entries(child, join(prefix, name), path, out, of, order) end
  end
  path[self] = nil
  return out, of, order
end

-- Names that count a list's parts from 0, as PyTorch's do -> names here.
local function counted_from_zero(self, ours, theirs, path, out)
  if path[self] then return out end
  path[self] = true
  for name, child in parts(self, 'module') do
    counted_from_zero(child, join(ours, name), join(theirs, type(name) == 'number' and name - 1 or name), path, out)
  end
  for _, kind in ipairs {'parameter', 'buffer'} do
    for name in parts(self, kind) do out[join(theirs, name)] = join(ours, name) end
  end
  path[self] = nil
  return out
end

-- A state with the names of here; names that mean nothing stay, and are told as what they are.
local function renamed(self, state)
  local known, own, out = counted_from_zero(self, '', '', {}, {}), {}, {}
  for _, name in pairs(known) do own[name] = true end
  for name, value in pairs(state) do
    out[known[name] or (own[name] and name .. ' (counted from 0)') or name] = value
  end
  return out
end

local function storage_of(t) return tostring(t.ptr_.storage) end

-- What is loaded, by name. A value that lies in the module's own memory, under another name, is taken as it is now.
local function loaded(state, mine)
  local own, values = {}, {}
  for _, t in pairs(mine) do own[storage_of(t)] = true end
  for name, value in pairs(state) do
    local t = mine[name]
    if type(t) ~= 'nil' then
      local itself = value.ptr_.storage == t.ptr_.storage and value.ptr_.offset == t.ptr_.offset
      values[name] = own[storage_of(value)] and not itself and value:detach():clone() or value
    end
  end
  return values
end

local function is_half(t) return t.dtype == 'float16' or t.dtype == 'bfloat16' end

--- Parameters and persistent buffers by name. Of a network cast by amp.initialize: in float32,
-- parameters that have masters being these.
-- @treturn table name -> detached tensor that shares the module's memory
function Module:state_dict(excess)
  require('amp.options').none('nn.Module.state_dict', excess)
  local state, of = entries(self, '', {}, {}, {}, {})
  local histories = {}
  if package.loaded['amp.precision.float8_region'] then require('amp.precision.float8_state').add(histories, state) end
  for name, t in pairs(state) do
    local record = of[name]
    local master = masters.get(record, t)
    state[name] = (master or t):detach()
    if record and not master and is_half(t) then state[name] = state[name]:float() end
  end
  for name, t in pairs(histories) do state[name] = t end
  return state
end

local function listed(names)
  table.sort(names)
  local shown = {}
  for i = 1, math.min(#names, 8) do shown[i] = "'" .. names[i] .. "'" end
  if #names > 8 then shown[9] = string.format('and %d more', #names - 8) end
  return table.concat(shown, ', ')
end

--- Take values from a state dict: copied in place and cast, so optimizers stay valid.
-- Nothing is changed when anything is wrong.
-- @tparam table state name -> tensor
-- @tparam ?table given strict (true: names must agree exactly), names ('pytorch': the state counts a list's parts from 0)
-- @treturn table missing_keys and unexpected_keys, lists of names
-- @raise naming every missing and unexpected key and every shape that differs
function Module:load_state_dict(state, given)
  local op = 'nn.Module:load_state_dict'
  if type(state) ~= 'table' then raise(op, 'a table of tensors by name expected, got ' .. util.show(state)) end
  local o = options.read(op, given, {'strict', 'names'}, {strict = true})
  local strict = o.strict
  if o.names ~= nil and o.names ~= 'pytorch' then
    raise(op, "names must be 'pytorch' (a list's parts count from 0) or left out, got %s", util.show(o.names))
  end
  if o.names then state = renamed(self, state) end
  local mine, of, order = entries(self, '', {}, {}, {}, {})
  local missing, unexpected, wrong, histories = {}, {}, {}, nil
  for name in pairs(mine) do
    if type(state[name]) == 'nil' then missing[#missing + 1] = name end
  end
  for name, value in pairs(state) do
    local t = mine[name]
    local layer = type(t) == 'nil' and type(name) == 'string' and name:match '^(.+)%.float8_history$'
    if layer and mine[layer] then
      histories = histories or {}
      histories[mine[layer] ] = value
      local what = require('amp.precision.float8_state').wrong(value)
      if what then wrong[#wrong + 1] = string.format("'%s' %s", name, what) end
    elseif type(t) == 'nil' then
      unexpected[#unexpected + 1] = tostring(name)
    elseif not is_tensor(value) then
      wrong[#wrong + 1] = string.format("'%s' is %s, not a tensor", name, util.show(value))
    elseif tostring(t:size()) ~= tostring(value:size()) then
      wrong[#wrong + 1] = string.format("'%s' has shape %s in the state, %s in the module",
        name, util.shape(value:size()), util.shape(t:size()))
    end
  end
  local problems = {}
  if strict and #missing > 0 then problems[#problems + 1] = 'missing: ' .. listed(missing) end
  if strict and #unexpected > 0 then problems[#problems + 1] = 'unexpected: ' .. listed(unexpected) end
  table.sort(wrong)
  for i = 1, math.min(#wrong, 8) do problems[#problems + 1] = wrong[i] end
  if #problems > 0 then
    raise(op, table.concat(problems, '; ') .. (strict and #wrong == 0 and ' ({strict = false} ignores names)' or ''))
  end
  amp.no_grad(function()
    local values = loaded(state, mine)
    for _, name in ipairs(order) do -- of a tensor that has several names the last one counts
      local t, value = mine[name], values[name]
      if type(value) ~= 'nil' then
        masters.put(of[name], t, function(kept) kept:copy_(value) end)
      end
    end
  end)
  for t, value in pairs(histories or {}) do require('amp.precision.float8_state').take(t, value) end
  table.sort(missing)
  table.sort(unexpected)
  return {missing_keys = missing, unexpected_keys = unexpected}
end

-- -- Changing all of it -----------------------------------------------------

--- Training mode (dropout drops, batch norm uses and tracks batch statistics).
-- @tparam ?boolean on default true
function Module:train(on)
  if on ~= nil then options.boolean('nn.Module:train', 'the mode', on) end
  on = on ~= false
  visit(self, '', {}, function(m) m.training = on end)
  return self
end

--- Evaluation mode.
function Module:eval() return self:train(false) end

Module.evaluate = Module.eval -- Torch7's names; its training() is train(), `training` being the flag

local function convert(self, fn)
  local seen = {}
  amp.no_grad(function()
    visit(self, '', {}, function(m)
      for _, kind in ipairs {'parameter', 'buffer'} do
        for _, t in parts(m, kind) do
          if not seen[t:id()] then
            seen[t:id()] = true
            fn(t)
          end
        end
      end
    end)
  end)
  return self
end

local function is_float(dtype)
  local code = types.dtype_code[dtype]
  return code ~= nil and types.is_float(code)
end

--- Move to a device, or change the dtype of floating-point parameters and buffers, or both.
-- Tensors keep their identity: an optimizer made before stays valid. With memory_format = 'channels_last', weights of
-- four dimensions are laid out so ('contiguous': as they are made).
-- @param ... 'cuda', 'cuda:2', 'cpu', 'float32', 'bfloat16', ..., or {device =, dtype =, memory_format =}
-- @usage net:to('cuda'); net:to('cpu', 'float64'); net:to{memory_format = 'channels_last'}
function Module:to(...)
  local device, dtype, format
  for i = 1, select('#', ...) do
    local what = select(i, ...)
    if is_tensor(what) then device, dtype = what.device, what.dtype
    elseif type(what) == 'table' then
      local o = options.read('nn.Module:to', what, {'device', 'dtype', 'memory_format'})
      format = o.memory_format
      if format ~= nil and format ~= 'channels_last' and format ~= 'contiguous' then
        raise('nn.Module:to', string.format("memory_format must be 'contiguous' or 'channels_last', got %s", util.show(format)))
      end
      if o.device ~= nil or o.dtype ~= nil then self:to(unpack({o.device or o.dtype, o.device and o.dtype or nil})) end
    elseif is_float(what) then dtype = types.dtype_name[types.dtype_code[what]]
    elseif type(what) == 'string' and (what:match('^cpu') or what:match('^cuda')) then device = what
    else
      local hint = type(what) == 'string' and (types.dtype_code[what] and '' or types.dtype_hint(what)) or ''
      if hint == '' and type(what) == 'string' then hint = types.device_hint(what) end
      raise('nn.Module:to', "a device ('cpu', 'cuda', 'cuda:1') or a floating-point dtype expected, got %s%s", util.show(what), hint)
    end
  end
  return convert(self, function(t)
    local new = t:detach()
    if device then new = new:to(device) end
    if dtype and is_float(new.dtype) then new = new:to(dtype) end
    if format and new:dim() == 4 then
      new = new:contiguous(format)
      if new.ptr_.storage == t.ptr_.storage then return end -- data_ptr() would expose it: no shadow, no arena
    elseif new.dtype == t.dtype and new.device == t.device then return end
    local grad = t.grad
    t.grad = nil
    t:set_data(new)
    if grad then t.grad = grad:to(new.device):to(new.dtype) end
  end)
end

--- Floating-point parameters and buffers in float16 (bfloat16, float32, float64).
function Module:half() return self:to('float16') end
function Module:bfloat16() return self:to('bfloat16') end
function Module:float() return self:to('float32') end
function Module:double() return self:to('float64') end
function Module:cpu() return self:to('cpu') end
function Module:cuda(index) return self:to(index and 'cuda:' .. index or 'cuda') end

local function clear(t, fill)
  if not fill then t.grad = nil
  elseif t.grad then t.grad:zero_() end
end

--- Set the gradients of all parameters to nil, or fill them with zeros; those of their float32 masters as well.
-- @tparam ?table given set_to_none (true)
function Module:zero_grad(given)
  local fill = not options.read('nn.Module:zero_grad', given, {'set_to_none'}, {set_to_none = true}).set_to_none
  for _, p in ipairs(self:parameters()) do clear(p, fill) end
  if masters.used then
    for id, record in pairs(masters.of(self)) do
      local master = record.masters[id]
      if type(master) ~= 'nil' then clear(master, fill) end
    end
  end
  return self
end

Module.clear_grad = Module.zero_grad

--- Make all parameters require gradients, or stop it.
-- @tparam ?boolean on default true
function Module:requires_grad_(on)
  on = on ~= false
  for _, p in ipairs(self:parameters()) do p.requires_grad = on end
  return self
end

--- A copy of the module with everything in it: parameters and buffers anew, tied ones tied; mode, flags and hooks too.
-- Gradients are not copied.
-- @treturn nn.Module
-- @usage local target = net:clone()
function Module:clone() return require 'amp.nn.core.copy'(self) end

where.install()
require 'amp.nn.core.describe'
require 'amp.nn.core.hybrid'

return Module
