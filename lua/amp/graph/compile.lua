--- Functions and modules that run as graphs: amp.compile, net:hybridize.
--
-- For each set of shapes, dtypes, devices, modes and regions the first call traces, optimizes and runs the graph; later
-- calls run it. What can't be traced runs as it is, after one warning. A graph is left alone as soon as
-- what it was traced with holds something else: a field of a module, an upvalue, a global, a table (amp.graph.guard).
-- @module amp.graph.compile
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local capturing = require 'amp.capture.current'
local err = require 'amp.error'
local guard = require 'amp.graph.guard'
local options = require 'amp.options'
local structure = require 'amp.graph.structure'
local trace = require 'amp.graph.trace'
local types = require 'amp.types'
local util = require 'amp.util'
local warn = require 'amp.core.warn'
local words = require 'amp.precision.autocast_state'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype = ffi.istype

local MOST = 8 -- sets of shapes that keep a graph
local TRIES = 4 -- graphs of one set of shapes, made anew as fields or upvalues changed
local LONG = 24 -- nodes from which on a launch of all takes less than launching each: an H200 took 0.20 ms against 0.18 for 5
local word = words.of

-- -- Keys -----------------------------------------------------------------------------------

-- What an entry was made for: per argument its form, and the state.
local function form_of(v)
  if not istype(ref_t, v) then return nil end
  local p = v.ptr_
  if p == nil then return nil end
  local size = {}
  for d = 0, p.ndim - 1 do size[d + 1] = tonumber(p.size[d]) end
  return {dtype = p.dtype, ndim = p.ndim, device = p.device, index = p.device_index, size = size}
end

-- What runs in each call has no loop of few turns: LuaJIT compiles none that calls one.
local function more_fit(size, ndim, p)
  for d = 5, ndim do
    if size[d] and p.size[d - 1] ~= size[d] then return false end
  end
  return true
end

local function fits(form, v)
  if not istype(ref_t, v) then return false end
  local p = v.ptr_
  if p == nil or p.dtype ~= form.dtype or p.ndim ~= form.ndim or p.device ~= form.device or p.device_index ~= form.index then
    return false
  end
  local size, ndim = form.size, form.ndim -- false: free
  local a, b, c, d = size[1], size[2], size[3], size[4]
  if a and p.size[0] ~= a or b and p.size[1] ~= b or c and p.size[2] ~= c or d and p.size[3] ~= d then return false end
  if ndim > 4 and not more_fit(size, ndim, p) then return false end
  return not form.heed or form.heed(v)
end

local function same_state(entry)
  return entry.grad == S.grad_mode and entry.word0 == word[0] and entry.word1 == word[1] and entry.on == S.autocast_on and entry.exclude == words.exclude
    and entry.dtype == S.default_dtype and entry.place == types.default_device()
end

local function others_fit(forms, args, n)
  for i = 4, n do
    if not fits(forms[i], args[i]) then return false end
  end
  return true
end

-- Arguments that are no tensors are compared as tables of tensors and values are nested.
local function matches(entry, args)
  if entry.n ~= args.n then return false end
  local forms = entry.forms
  if forms then
    local n = entry.n
    if n >= 1 and not fits(forms[1], args[1]) or n >= 2 and not fits(forms[2], args[2]) or n >= 3 and not fits(forms[3], args[3]) then return false end
    return n <= 3 or others_fit(forms, args, n)
  end
  local ok, flat = pcall(structure.collect, 'compile', entry.plan, args, {})
  if not ok then return false end
  for i = 1, #flat do
    if not fits(entry.flat_forms[i], flat[i]) then return false end
  end
  return true
end

local function new_entry(args)
  local plan, flat = structure.flatten('compile', args, {})
  local entry = {n = args.n, plan = plan, flat_forms = {}, grad = S.grad_mode, word0 = word[0], word1 = word[1], on = S.autocast_on, exclude = words.exclude,
    dtype = S.default_dtype, place = types.default_device(), tries = 0, others = {}}
  for i = 1, #flat do entry.flat_forms[i] = form_of(flat[i]) end
  local simple = #flat == args.n
  for i = 1, args.n do simple = simple and plan.list[i].tensor == i end
  if simple then entry.forms = entry.flat_forms end
  entry.on_gpu = #flat > 0 and flat[1].ptr_.device == C.AMP_CUDA
  return entry
end

-- -- Graphs ---------------------------------------------------------------------------------

local Cache = {}
Cache.__index = Cache

local function place_of(e)
  local object = err.of(e)
  if object then
    return ('%s%s'):format(object.where and object.where ~= '' and object.where .. ': ' or '', object.message or tostring(object))
  end
  return tostring(e)
end

function Cache:give_up(entry, e)
  entry.eager, entry.why = true, place_of(e)
  if self.silent then return end
  warn.once(('%s: it can\'t run as a graph and runs as it is: %s'):format(self.op, entry.why), entry)
end

-- Sizes of the inputs that are to be free, by the dimensions in which sets of shapes differ. False: they can't be.
function Cache:set_free(entry, g, args, names)
  local wanted = {}
  for i, dims in pairs(entry.free) do wanted[g.places[i]] = dims end
  local ok = pcall(function() return require 'amp.graph.dynamic'(g, self.fn, args, names, wanted, self.module) end)
  if not ok then return false end
  for i, dims in pairs(entry.free) do
    for _, d in ipairs(dims) do entry.flat_forms[i].size[d] = false end
  end
  return true
end

-- Where a new entry differs from one that is there in sizes alone: the dimensions by input, else nil.
local function differing(entry, other)
  if entry.n ~= other.n or #entry.flat_forms ~= #other.flat_forms or not other.graph then return nil end
  if entry.grad ~= other.grad or entry.word0 ~= other.word0 or entry.word1 ~= other.word1 or entry.on ~= other.on then return nil end
  if entry.dtype ~= other.dtype or entry.place ~= other.place then return nil end
  local free
  for i, a in ipairs(entry.flat_forms) do
    local b = other.flat_forms[i]
    if a.dtype ~= b.dtype or a.ndim ~= b.ndim or a.device ~= b.device or a.index ~= b.index then return nil end
    for d = 1, a.ndim do
      if a.size[d] ~= b.size[d] then
        free = free or {}
        free[i] = free[i] or {}
        table.insert(free[i], d)
      end
    end
  end
  return free
end

function Cache:widen(entry)
  for i = 1, #self.entries do
    local free = differing(entry, self.entries[i])
    if free then return free end
  end
end

-- The function asked an input for its layout, or whether it requires grad: inputs where the answer is another are of another
-- set.
local function heed(entry, record)
  for i, form in ipairs(entry.flat_forms) do
    local asked = form.asked or {}
    for _, a in ipairs(record.asked[i] or {}) do asked[#asked + 1] = a end
    form.asked = asked
    form.heed = #asked > 0 and function(v)
      for _, a in ipairs(asked) do
        if not a(v) then return false end
      end
      return true
    end
  end
end

-- Trace for an entry; false and the error if that fails.
function Cache:make(entry, args)
  local Graph = require 'amp.graph.graph'
  local names = trace.parameter_names(self.module or self.fn, args.n)
  local noted = guard.begin(self.fn, self.module)
  if noted.over then return false, ("what '%s' holds is too much to be watched for changes; give it as an argument"):format(noted.over) end
  if noted.fresh then return false, noted.fresh .. ", whose value the graph would keep (amp's random ops draw anew in each run)" end
  trace.set_field = false
  local ok, record = pcall(trace.record, self.op, self.fn, args, names, self.module)
  local changed, kind, where = guard.undo(noted)
  if not ok then return false, record, trace.set_field end
  if changed then return false, ("%s: the function changes %s '%s'"):format(where or '?', kind, changed), true end
  local g = Graph.new(record)
  if entry.free and not self:set_free(entry, g, args, names) then return false, 'its sizes can\'t be free' end
  guard.note(noted, record.modules, record.reads)
  heed(entry, record)
  if self.change then g = self.change(g) end
  if self.optimize then self.optimize(g) end
  if entry.graph then table.insert(entry.others, {graph = entry.graph, guard = entry.guard, launch = entry.launch}) end
  entry.graph, entry.guard, entry.launch = g, noted, nil
  if self.silent then entry.launch = false end
  return true
end

-- The one used last is looked at first.
local function find_behind(list, args)
  for i = 2, #list do
    if same_state(list[i]) and matches(list[i], args) then
      local entry = table.remove(list, i)
      table.insert(list, 1, entry)
      return entry
    end
  end
end

function Cache:find(args)
  local list = self.entries
  local first = list[1]
  if first == nil or same_state(first) and matches(first, args) then return first end
  return find_behind(list, args)
end

--- A graph for these arguments, in whatever state it was made.
function Cache:graph_for(args)
  for _, entry in ipairs(self.entries) do
    if entry.graph and matches(entry, args) then return entry.graph end
  end
end

-- No room for another graph.
function Cache:crowded(entry)
  entry.eager = true
  if self.silent then return end
  warn.once(('%s: %d sets of shapes have a graph; other ones run as they are'):format(self.op, MOST), self)
end

-- A set of shapes that is not there yet.
function Cache:add(args)
  local ok, entry = pcall(new_entry, args)
  if not ok then -- arguments of other kinds
    entry = {n = args.n, eager = true, passing = true}
    if self.silent then return entry end
    warn.once(('%s: it can\'t run as a graph and runs as it is: %s'):format(self.op, place_of(entry)), self)
    return entry
  end
  if self.dynamic or #self.entries >= MOST then entry.free = self:widen(entry) end
  if #self.entries >= MOST then
    entry.last = true
    if not entry.free then self:crowded(entry) end
    if entry.eager then return entry end
  end
  table.insert(self.entries, 1, entry)
  return entry
end

-- -- On a GPU -------------------------------------------------------------------------------

-- A graph of ops becomes one of the GPU's where nothing asks for gradients: one launch a call (amp.capture).
local function launched(entry)
  if entry.launch ~= nil then return entry.launch end
  local graph, forms = entry.graph, entry.forms
  local fit = forms ~= nil and #forms > 0 and not entry.free and C.amp_graph_node_count(graph.handle) >= LONG
  for i = 1, fit and #forms or 0 do fit = fit and forms[i].device == C.AMP_CUDA end
  for i = 1, graph.results.n do fit = fit and graph.results.list[i].tensor ~= nil end
  entry.launch = fit and require 'amp.capture'(function(...) return graph:run(...) end)
  return entry.launch
end

-- A step that failed, as where a parameter has moved, is captured anew by the next call.
local function by_launch(entry, args, ok, ...)
  if ok then return ... end
  entry.launch = nil
  local e = ...
  entry.failures = (entry.failures or 0) + 1
  if entry.failures > 2 then entry.launch = false end
  if err.of(e) == nil then error(e, 0) end
  return entry.graph:run(unpack(args, 1, args.n))
end

local function run_graph(entry, args)
  local launch = S.grad_mode == 0 and capturing.current == nil and launched(entry)
  if not launch then return entry.graph:run(unpack(args, 1, args.n)) end
  return by_launch(entry, args, pcall(launch, unpack(args, 1, args.n)))
end

local function eager(self, args) return self.fn(unpack(args, 1, args.n)) end

local function slow(self, args, entry)
  if capturing.current and self.silent then return eager(self, args) end -- recording copies and waits
  entry = entry or self:add(args)
  if entry.eager then return eager(self, args) end
  if entry.tries >= TRIES then
    self:give_up(entry, ('what it reads (%s) changes again and again'):format(
      guard.changed(entry.guard) or 'fields of its modules'))
    return eager(self, args)
  end
  entry.tries = entry.tries + 1
  local made, e, again = self:make(entry, args)
  if not made and entry.free then -- for these sizes alone, then
    entry.free = nil
    if entry.last then
      self:crowded(entry)
      return eager(self, args)
    end
    made, e = self:make(entry, args)
  end
  if made then return run_graph(entry, args) end
  local results = util.pack(eager(self, args)) -- an error of its own comes from here
  if not again or entry.tries > 1 then self:give_up(entry, e) end -- what a call sets may be there at the next
  return unpack(results, 1, results.n)
end

-- Among the graphs of an entry one whose fields and upvalues are those of now, as in train and eval mode by turns.
local function turned(entry)
  for i, other in ipairs(entry.others) do
    if guard.holds(other.guard) then
      table.remove(entry.others, i)
      table.insert(entry.others, {graph = entry.graph, guard = entry.guard, launch = entry.launch})
      entry.graph, entry.guard, entry.launch = other.graph, other.guard, other.launch
      return true
    end
  end
  return false
end

-- LuaJIT does not compile {...}.
local function packed(n, ...)
  if n > 4 then return {n = n, ...} end
  local a, b, c, d = ...
  return {n = n, a, b, c, d}
end

function Cache:run(...)
  if C.amp_graph_recording(S) ~= 0 then return self.fn(...) end
  call.here()
  local args = packed(select('#', ...), ...)
  local entry = self:find(args)
  if entry and entry.graph and (guard.holds(entry.guard) or turned(entry)) then
    if entry.on_gpu and S.grad_mode == 0 then return run_graph(entry, args) end
    return entry.graph:run(...)
  end
  return slow(self, args, entry)
end

--- A cache of graphs of fn.
-- @tparam string op who asks, for messages
-- @param fn function or module
-- @tparam ?table given optimize: false leaves graphs as they are traced
function Cache.new(op, fn, given)
  local self = setmetatable({op = op, fn = fn, entries = {}, dynamic = given and given.dynamic}, Cache)
  local found, passes = pcall(require, 'amp.graph.optimize')
  if found and not (given and given.optimize == false) then
    local chosen = given and given.keep_weights == false and {keep_weights = false} or nil
    self.optimize = function(g) passes.optimize_here(g, chosen) end -- modes and regions are of the key
  end
  return self
end

-- A call of a module without its hooks and its graphs
local function forward_of(module)
  return setmetatable({}, {__call = function(_, ...) return module:forward(...) end})
end

--- A cache of graphs of a module for which nobody asked: nothing is said of what can't be traced.
-- @tparam string op
-- @tparam nn.Module module
function Cache.quiet(op, module)
  local self = Cache.new(op, forward_of(module))
  self.module, self.silent = module, true
  return self
end

local function callable(f)
  if type(f) == 'function' then return true end
  local mt = getmetatable(f)
  return type(f) == 'table' and type(mt) == 'table' and type(mt.__call) == 'function'
end

local compiled = setmetatable({}, {__mode = 'k'}) -- function -> its cache

local function cache_of(f) return compiled[f] end

--- amp.compile(fn | module, {dynamic = false, keep_weights = true}). keep_weights = false: products on a CPU keep no second copy of
-- their weights in their kernels' own form.
return setmetatable({Cache = Cache, cache_of = cache_of}, {__call = function(_, fn, given)
  local op = 'compile'
  if not callable(fn) then err.throw(op, 'a function or module is expected, got %s', util.show(fn)) end
  local o = options.read(op, given, {'dynamic', 'keep_weights'}, {dynamic = false, keep_weights = true})
  options.boolean(op, 'dynamic', o.dynamic)
  options.boolean(op, 'keep_weights', o.keep_weights)
  local cache = Cache.new(op, fn, o)
  local function run(...) return cache:run(...) end
  compiled[run] = cache
  return run
end})
