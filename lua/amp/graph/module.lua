--- amp.convert_hybrid_block: a module whose calls run a converted graph.
--
-- The new module is a tree of parts with the module's names and tensors of its own. A copy of the module, with the same
-- tensors, stays behind it: for inputs of other shapes, or after train() and eval(), that is traced and converted with the
-- same options.
-- @module amp.graph.module
local core = require 'amp.ffi'
local next_key = require('amp.core.keys').next
local compile = require 'amp.graph.compile'
local conversion = require 'amp.graph.convert'
local err = require 'amp.error'
local guard = require 'amp.graph.guard'
local options = require 'amp.options'
local rewrite = require 'amp.graph.rewrite'
local structure = require 'amp.graph.structure'
local types = require 'amp.types'
local util = require 'amp.util'
local Module = require 'amp.nn.module'
local C, S = core.C, core.S

local MOST = 8 -- sets of shapes that keep a graph, in each mode

local M = {}

local inside, raw, parts = Module.inside, Module.raw_key, Module.parts

-- -- Parts ------------------------------------------------------------------------------------------

local Part = Module:extend 'Part'

function Part:forward()
  err.throw_code('state', self.__name, 'it is a part of a converted module, which runs as a whole: call that')
end

function Part:extra_repr() return raw(self, '.shown') or '' end

local Converted = Part:extend 'Converted'

-- The parts of a module, with its own tensors; of: part -> module.
local function mirror(m, class, of, seen)
  if seen[m] then return seen[m] end
  local part = Module.shell(class)
  seen[m], of[#of + 1] = part, {part = part, module = m}
  local at, old = inside(part), inside(m)
  rawset(at, '.shown', (m.__name:gsub('^nn%.', '')))
  at['.values'].training = m.training
  local passing = rawget(old, '.passing')
  for name, t in parts(m, 'parameter') do
    local trained = t.requires_grad
    part:register_parameter(name, t)
    t.requires_grad = trained
  end
  for name, t in parts(m, 'buffer') do part:register_buffer(name, t, {persistent = not (passing and passing[name])}) end
  for name, child in parts(m, 'module') do
    local inner = mirror(child, Part, of, seen)
    local names, kinds = at['.names'], at['.kinds']
    names[#names + 1], kinds[tostring(name)], at['.values'][tostring(name)] = tostring(name), 'module', inner
  end
  return part
end

-- A parameter that does not require grad stays so.
local function register(m, name, t)
  local at = inside(m)
  rawget(at, '.values')[name] = t
end

-- -- Graphs -----------------------------------------------------------------------------------------

-- Parameters that are stored low: what stands for them while the module is traced is float32. Gives id -> low tensor.
local function widen(state)
  local of, wide = {}, {}
  for _, p in ipairs(state.of) do
    for name, t in parts(p.module, 'parameter') do
      local id = t:id()
      if state.low[id] and rewrite.is_half(t.ptr_.dtype) then
        if not wide[id] then
          wide[id] = t:detach():float()
          wide[id].requires_grad = t.requires_grad
          of[wide[id]:id()] = t
        end
        register(p.module, name, wide[id])
      end
    end
  end
  return of
end

local function narrow(state, of)
  for _, p in ipairs(state.of) do
    for name, t in parts(p.module, 'parameter') do
      if of[t:id()] then register(p.module, name, of[t:id()]) end
    end
  end
end

-- What holds of the modules is noted anew with their own parameters.
local function note_again(entry)
  local noted = entry.guard
  if not noted then return end
  local modules = {}
  for i, m in ipairs(noted.modules) do modules[i] = m.module end
  noted.modules, noted.containers = {}, {}
  guard.note(noted, modules)
end

-- Parameters that are to be stored low from now on: id -> low tensor, in the parts and in the module.
local function store(state, low)
  for _, p in ipairs(state.of) do
    for _, m in ipairs {p.part, p.module} do
      for name, t in parts(m, 'parameter') do
        if low[t:id()] then
          register(m, name, low[t:id()])
          state.low[low[t:id()]:id()] = true
        end
      end
    end
  end
end

-- Tensors that are no part of the module, but of what its functions hold: a copy of each, the same in all graphs.
local function outsiders(state)
  local inner = {}
  for _, p in ipairs(state.of) do
    for _, kind in ipairs {'parameter', 'buffer'} do
      for _, t in parts(p.module, kind) do inner[t:id()] = true end
    end
  end
  return function(t)
    local id = t:id()
    if inner[id] then return nil end
    if not state.others[id] then
      local copy = t:detach():clone()
      copy.requires_grad = t.requires_grad
      state.others[id] = copy
    end
    return state.others[id]
  end
end

local function converter(state)
  return function(g)
    local made, outside = {}, outsiders(state)
    local function tensors(low)
      return function(t)
        local id = t:id()
        if state.wide[id] then return state.wide[id] end
        local other = outside(t)
        if other then return other end
        if low[id] and not made[id] then
          made[id] = t:detach():to(low[id])
          made[id].requires_grad = t.requires_grad
        end
        return low[id] and made[id] or t
      end
    end
    local converted = conversion.apply(state.op, g, state.options, nil, tensors)
    store(state, made)
    state.options.cast_optional_params, state.options.named = false, true
    for name in pairs(converted.lowered) do state.lowered[name] = true end
    converted.lowered = state.lowered
    local runs = rewrite.copy(converted)
    state.plain[runs] = converted
    return runs
  end
end

-- What runs where there is no graph: while one is traced the module itself, else that in a region.
local function runner(state)
  return setmetatable({}, {__call = function(_, ...)
    if C.amp_graph_recording(S) ~= 0 then return state.source:forward(...) end
    if next_key(state.low) or next_key(state.options.lists.replaced) or #state.options.excluded > 0 then
      err.throw_code('unsupported', state.op, 'the module can\'t be traced for these inputs, so there is no converted graph to run')
    end
    return require 'amp.precision.autocast'({dtype = types.dtype_name[state.options.low]}, function(...)
      return state.source:forward(...)
    end, ...)
  end})
end

-- The graphs of the modes that the parts are in.
local function cache_of(state)
  if state.changes == Module.changes() then return state.cache end
  local modes = {}
  for i, p in ipairs(state.of) do
    local training = p.part.training and true or false
    modes[i] = training and '1' or '0'
    if p.module.training ~= training then p.module.training = training end
  end
  local key = table.concat(modes)
  if not state.caches[key] then
    local cache = compile.Cache.new(state.op, state.source)
    local make = cache.make
    cache.fn, cache.module, cache.change = runner(state), state.source, converter(state)
    cache.make = function(self, entry, args)
      state.wide = widen(state)
      local results = util.pack(pcall(make, self, entry, args))
      narrow(state, state.wide)
      state.wide = {}
      note_again(entry)
      if not results[1] then error(results[2], 0) end
      return unpack(results, 2, results.n)
    end
    local add = cache.add
    function cache.add(self, args) -- the set of shapes that ran longest ago makes room
      if #self.entries >= MOST then table.remove(self.entries) end
      return add(self, args)
    end
    state.caches[key] = cache
  end
  state.cache, state.changes = state.caches[key], Module.changes()
  return state.cache
end

function Converted:forward(...)
  local state = raw(self, '.convert')
  local cache = cache_of(state)
  if C.amp_graph_recording(S) == 0 then return cache:run(...) end
  local graph = cache:graph_for {n = select('#', ...), ...}
  if not graph then
    err.throw_code('state', self.__name, 'a graph is recorded, and the converted module has none for these inputs yet: call it once before')
  end
  return state.plain[graph]:run(...)
end

local function has_double(m)
  for _, t in m:named_parameters() do
    if t.dtype == 'float64' then return true end
  end
  return false
end

--- Move it, or change the dtype of its parameters. Casts to 16 bits leave float64 alone, so for that, and back from it, graphs of it
-- are made anew.
function Converted:to(...)
  local state, before = raw(self, '.convert'), has_double(self)
  Part.to(self, ...)
  if has_double(self) == before then return self end
  state.caches, state.changes = {}, nil
  for name, t in self:named_parameters() do
    if state.low[t:id()] and not rewrite.is_half(t.ptr_.dtype) then state.low[t:id()], state.lowered[name] = nil, nil end
  end
  return self
end

function Converted:_graph(op)
  local state = raw(self, '.convert')
  local entry = state.cache.entries[1]
  if not entry or not entry.graph then err.throw_code('state', op, 'the converted module has no graph yet: call it once') end
  return state.plain[entry.graph]
end

--- Its calls run as graphs anyhow; options are checked.
function Converted:hybridize(given)
  if given == nil or type(given) == 'boolean' then return self end
  local op = 'nn.Module:hybridize'
  local o = options.read(op, given, {'static_alloc', 'static_shape'}, {static_alloc = false, static_shape = false})
  options.boolean(op, 'static_alloc', o.static_alloc)
  options.boolean(op, 'static_shape', o.static_shape)
  if o.static_shape and not o.static_alloc then err.throw(op, 'static_shape needs static_alloc = true') end
  return self
end

-- -- Making -----------------------------------------------------------------------------------------

local function attach(self, source, of, o, lowered, op)
  local state = {op = op, source = source, of = of, options = o, caches = {}, low = {}, wide = {}, others = {},
    lowered = lowered, plain = setmetatable({}, {__mode = 'k'})}
  rawset(inside(self), '.convert', state)
  return state
end

-- A copy has graphs of its own.
function Converted:copied(from)
  local old = raw(from, '.convert')
  local source, of, o = old.source:clone(), {}, {}
  for k, v in pairs(old.options) do o[k] = v end
  local mine, theirs = {}, {}
  for name, m in source:named_modules() do theirs[name] = m end
  for name, part in self:named_modules() do mine[name] = part end
  for name, part in pairs(mine) do of[#of + 1] = {part = part, module = theirs[name]} end
  local lowered = {}
  for name in pairs(old.lowered) do lowered[name] = true end
  local state = attach(self, source, of, o, lowered, old.op)
  for _, p in ipairs(of) do
    for _, kind in ipairs {'parameter', 'buffer'} do
      for name, t in parts(p.part, kind) do register(p.module, name, t) end
    end
  end
  for name, p in self:named_parameters() do
    if lowered[name] then state.low[p:id()] = true end
  end
end

-- Inputs of the forms that a graph was traced with.
local function inputs_like(g)
  local flat = {}
  for i = 0, C.amp_graph_inputs(g.handle) - 1 do
    flat[i + 1] = rewrite.stand_in(C.amp_graph_value_at(g.handle, C.amp_graph_input(g.handle, i)))
  end
  local args = {n = g.plan.n}
  if g.plan.n == 1 then args[1] = (structure.unflatten(g.plan, flat))
  else
    local values = {structure.unflatten(g.plan, flat)}
    for i = 1, g.plan.n do args[i] = values[i] end
  end
  return args
end

-- The graph for the inputs that the module ran with.
local function first(state, g)
  local cache, args = cache_of(state), inputs_like(g)
  local entry = cache:add(args)
  if entry.eager then err.throw(state.op, 'the module\'s inputs can\'t be converted') end
  local ok, e = cache:make(entry, args)
  if not ok then
    cache.entries = {}
    err.throw_code('unsupported', state.op, 'the module can\'t be traced: %s', tostring(e))
  end
end

-- A graph that the module ran as: that of the last call that was one.
local function graph_of(op, module)
  local cache = raw(module, '.graphs')
  for _, entry in ipairs(cache and cache.entries or {}) do
    if entry.graph then return entry.graph end
  end
  return module:_graph(op)
end

--- A module in mixed precision (MXNet's convert_hybrid_block). The module must be hybridized and have run once; it is left
-- as it is.
-- @tparam nn.Module module
-- @tparam ?table given target_dtype, target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_names, cast_optional_params,
-- as amp.convert_model
-- @treturn nn.Module with tensors of its own under the module's names
-- @usage local net = amp.nn.Linear(2, 2); net:hybridize(); net(amp.ones(1, 2)); print(amp.convert_hybrid_block(net)(amp.ones(1, 2)))
function M.convert_hybrid_block(module, given, excess)
  local op = 'convert_hybrid_block'
  require('amp.core.region').here()
  options.none(op, excess)
  if not Module.is_module(module) then err.throw(op, 'a module is expected, got %s', util.show(module)) end
  local o = conversion.read_options(op, given)
  local g = graph_of(op, module)
  if module:is(Converted) then
    local copy = module:clone()
    local state = raw(copy, '.convert')
    o.low = o.low or state.options.low
    state.options = o
    first(state, g)
    return copy
  end
  local source, of = module:clone(), {}
  local self = mirror(source, Converted, of, {})
  local state = attach(self, source, of, o, {}, op)
  first(state, g)
  return self
end

M.Converted = Converted

return M
