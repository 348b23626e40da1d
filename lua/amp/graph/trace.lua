--- Record what a module or a function does as a graph.
--
-- The function runs once, as it is; C notes each op it calls (src/graph/trace.c). What the run changed is undone: running
-- statistics, tensors it writes, the random generator. Modules that are called meanwhile give their names to nodes and
-- parameters.
-- @module amp.graph.trace
local ffi = require 'ffi'
local core = require 'amp.ffi'
local autograd = require 'amp.autograd'
local call = require 'amp.core.call'
local err = require 'amp.error'
local options = require 'amp.options'
local readers = require 'amp.graph.readers'
local region = require 'amp.core.region'
local structure = require 'amp.graph.structure'
local util = require 'amp.util'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype = ffi.istype

local M = {}

local pointers = ffi.typeof 'amp_tensor *[?]'

local function addresses(list)
  local p = pointers(math.max(#list, 1))
  for i = 1, #list do p[i - 1] = list[i].ptr_ end
  return p
end

local function callable(f)
  if type(f) == 'function' then return true end
  local mt = getmetatable(f)
  return type(f) == 'table' and type(mt) == 'table' and type(mt.__call) == 'function'
end

local function module_class() return package.loaded['amp.nn.module'] end
local function is_module(v)
  local Module = module_class()
  return Module ~= nil and Module.is_module(v)
end

-- The names of a function's parameters; those of a module's forward, without self.
local function parameter_names(fn, n)
  local names, skip = {}, 0
  if is_module(fn) then fn, skip = require('amp.core.class').unwrapped[fn.forward] or fn.forward, 1 end
  if type(fn) == 'function' then
    for i = 1, n do
      local name = debug.getlocal(fn, i + skip)
      if name and name:match '^[%a_][%w_]*$' then names[i] = name end
    end
  end
  for i = 1, n do names[i] = names[i] or (n == 1 and 'input' or 'input' .. i) end
  return names
end

-- -- Names of modules -----------------------------------------------------------------------

local Namer = {}
Namer.__index = Namer

local function join(prefix, name) return prefix == '' and tostring(name) or prefix .. '.' .. tostring(name) end

-- All parts of a module that was not known so far: their paths, and their tensors' names.
function Namer:meet(root, prefix)
  local parts = module_class().parts
  local function know(kind, m, what, path)
    for name, t in parts(m, what) do
      call.check(C.amp_graph_know(S, self.handle, t, kind, join(path, name)), 'trace')
    end
  end
  for name, m in root:named_modules() do
    local path = name == '' and prefix or join(prefix, name)
    if not self.paths[m] then self.paths[m] = path end
    know(C.AMP_G_PARAMETER, m, 'parameter', path)
    know(C.AMP_G_BUFFER, m, 'buffer', path)
  end
end

local function upvalue_name(fn, module)
  if type(fn) ~= 'function' then return nil end
  for i = 1, 60 do
    local name, v = debug.getupvalue(fn, i)
    if name == nil then return nil end
    if rawequal(v, module) and name ~= '' then return name end
  end
end

-- Does the function know several modules? Then each has its name in front.
local function several(fn)
  local count = 0
  for i = 1, type(fn) == 'function' and 60 or 0 do
    local name, v = debug.getupvalue(fn, i)
    if name == nil then break end
    if is_module(v) then count = count + 1 end
  end
  return count > 1
end

function Namer:enter(module)
  if not self.paths[module] then
    local prefix = ''
    if self.roots > 0 or several(self.fn) then
      prefix = upvalue_name(self.fn, module) or (module.__name:gsub('^.*%.', ''):lower() .. (self.roots + 1))
    end
    self.roots = self.roots + 1
    self:meet(module, prefix)
  end
  local path = self.paths[module]
  self.depth = self.depth + 1
  self.stack[self.depth] = path
  if module.training then self.training = true end
  if not self.met[module] then
    self.met[module] = true
    self.modules[#self.modules + 1] = module
  end
  local iterate, state, first = module_class().parts(module, 'module')
  local leaf = iterate(state, first) == nil
  call.check(C.amp_graph_at(S, self.handle, path, leaf and 1 or 0), 'trace')
end

-- A field of a module is set: the graph would not set it. What is there already may be set again.
function Namer:assigned(module, name, value)
  local before = module[name]
  local tensor = istype(ref_t, value)
  if rawequal(before, value) or tensor and istype(ref_t, before) and before == value then return end
  self.assigning = true
  err.throw_code('unsupported', nil, "field '%s' of %s is set to %s while a graph is recorded; the graph would not set it%s",
    tostring(name), module.__name, tensor and 'a tensor' or util.show(value), tensor and ': return the tensor instead' or '')
end

function Namer:leave()
  self.depth = self.depth - 1
  call.check(C.amp_graph_at(S, self.handle, self.stack[self.depth] or '', 0), 'trace')
end

-- -- Recording ------------------------------------------------------------------------------

-- The function runs recorded, and only while its coroutine runs; an error leaves nothing of it.
local recorded = region.kind(function() end, function(rec)
  C.amp_journal_open(S, rec.journal)
  C.amp_graph_resume(S, rec.graph)
  if rec.within then return end
  local Module = require 'amp.nn.module'
  rec.outer, rec.readers = Module.watched(), readers(rec.asked)
  Module.watch(rec.namer)
  rec.within = true
end, nil, function(rec)
  if rec.within then
    rec.within = false
    require('amp.nn.module').watch(rec.outer)
    rec.readers()
  end
  C.amp_graph_suspend(S, rec.graph)
  C.amp_journal_shut(S, rec.journal)
end)

-- A copy that lies as t does, gaps and repeats among it: what recorded ops gave. It requires grad where t does.
local function copy_as_it_lies(t)
  local copy, size, stride, span = t:clone(), t:size(), t:stride(), 1
  local at, same = copy:stride(), true
  for d = 1, #stride do
    same = same and at[d] == stride[d]
    span = span + (size[d] - 1) * stride[d]
  end
  if same or t:numel() == 0 then return copy end
  local memory = t:detach():as_strided({span}, {1}, t:storage_offset()):clone()
  memory.requires_grad = t.requires_grad
  return memory:clone():as_strided(size, stride, 0)
end

-- An input as the function gets it: a tensor of its own, as it is at each run; the same one may be given twice, or be known
-- to the function in another way.
local function own_input(t)
  local own = t:detach()
  if t.requires_grad then own.requires_grad = true end
  if t.is_leaf then return own end
  return require('amp.autograd').enable_grad(function() return copy_as_it_lies(own) end)
end

local function own_inputs(flat)
  local own = {}
  for i, t in ipairs(flat) do own[i] = own_input(t) end
  return own
end

-- What was asked of tensors: by input, a list of functions that tell whether another input answers the same; of what was there
-- before, a list of {tensor, name, value}.
local function answers(asked, own)
  local inputs, reads, place, first = {}, {}, {}, nil
  for i, t in ipairs(own) do
    local id = t.ptr_ ~= nil and tonumber(t.ptr_.id)
    if id then place[id], first = i, math.min(first or math.huge, id) end
  end
  for _, a in ipairs(asked) do
    local id = a.tensor.ptr_ ~= nil and tonumber(a.tensor.ptr_.id)
    local i = id and place[id]
    if i then
      inputs[i] = inputs[i] or {}
      table.insert(inputs[i], a.fits or function(v) return v[a.name] == a.value end)
    elseif id and a.name and (not first or id < first) then
      reads[#reads + 1] = a
    end
  end
  return inputs, reads
end

-- The function may read its tables, and not change them: a run would not.
local function check_tables(op, plan, given, own, names)
  for i = 1, #own do
    if own[i].ptr_ == nil then
      err.throw_code('unsupported', op, 'the function frees a tensor that is among its arguments (input %d), which the graph would not', i)
    end
  end
  local ok, after, flat = pcall(structure.flatten, op, given, names)
  local same = ok and #flat == #own and structure.equal(plan, after)
  for i = 1, same and #own or 0 do same = same and flat[i].ptr_ == own[i].ptr_ end
  if same then return end
  err.throw_code('unsupported', op, 'the function changes a table that is among its arguments, which the graph would not; return what it puts there')
end

-- What a function leaves set for all that follows is put back; it is no part of a graph.
local function defaults() return {S.default_dtype, S.default_device, S.default_device_index} end
local function put_back(op, d)
  local same = S.default_dtype == d[1] and S.default_device == d[2] and S.default_device_index == d[3]
  S.default_dtype, S.default_device, S.default_device_index = d[1], d[2], d[3]
  if same then return end
  err.throw_code('unsupported', op, 'the function leaves the default dtype or device changed, which a graph can\'t do; set it outside')
end

local result_names = setmetatable({}, {__index = function(_, i) return 'result ' .. i end})

M.set_field = false -- the last record failed as it set a field of a module

--- Record fn for these inputs.
-- @tparam function|nn.Module fn
-- @tparam table args with n
-- @tparam table names of the arguments
-- @param ?root the module of which fn is the forward
-- @treturn table handle, plan of the inputs, plan of the outputs, names of the input tensors, training, modules that ran,
-- regions (the function asked whether it is in one)
function M.record(op, fn, args, names, root)
  local plan, flat, places = structure.flatten(op, args, names)
  local own = own_inputs(flat)
  local given = {n = plan.n, structure.unflatten(plan, own)}
  region.here()
  local before = defaults()
  local seed, offset, caller = S.seed, S.rng_offset, autograd.callers(S.grad_mode)
  local journal = ffi.gc(call.object(op, C.amp_journal_new), C.amp_journal_free)
  local texts = ffi.new('const char *[?]', math.max(#own, 1))
  for i = 1, #own do texts[i - 1] = places[i] end
  local graph = ffi.gc(call.object(op, C.amp_graph_begin, addresses(own), texts, #own), C.amp_graph_free)
  C.amp_graph_suspend(S, graph)
  local asked = {}
  local namer = setmetatable({handle = graph, fn = fn, paths = setmetatable({}, {__mode = 'k'}), stack = {}, depth = 0, roots = 0,
    training = false, met = {}, modules = {}}, Namer)
  local ok, results = pcall(function()
    local module = root or is_module(fn) and fn
    if module then
      namer.roots = 1
      namer:meet(module, '')
      if root then namer:enter(root) end
    end
    return util.pack(region.run(recorded, {journal = journal, graph = graph, namer = namer, asked = asked}, fn, unpack(given, 1, plan.n)))
  end)
  local kept, left = pcall(put_back, op, before)
  if ok and kept then kept, left = pcall(check_tables, op, plan, given, own, names) end
  if ok and not kept then ok, results = false, left end
  local out_plan, outputs
  if ok then
    ok, out_plan, outputs = pcall(structure.flatten, op, results, result_names)
    if not ok then results = out_plan end
  end
  autograd.callers(caller)
  local rc = C.amp_graph_end(S, graph, ok and addresses(outputs) or nil, ok and #outputs or 0, ok and 1 or 0)
  local undone = C.amp_journal_undo(S, journal)
  if S.seed == seed then S.rng_offset = offset end
  local of_inputs, reads = answers(asked, own)
  local regions = asked.regions
  for i = #asked, 1, -1 do asked[i] = nil end -- nothing of the run stays in a slot of the stack
  if not ok then
    M.set_field = namer.assigning -- what a module makes at its first call is there at the second
    error(results, 0)
  end
  if rc < 0 then err.raise(op) end
  call.check(undone, op)
  call.check(C.amp_graph_optimize(S, graph, 0), op)
  return {handle = graph, asked = of_inputs, reads = reads, regions = regions, inputs = plan,
    outputs = out_plan, names = names, places = places, training = namer.training, modules = namer.modules}
end

local function check_names(op, names)
  local seen = {}
  for i, name in ipairs(names) do
    if name == '' then err.throw(op, 'the name of input %d is empty', i) end
    if seen[name] then err.throw(op, "inputs %d and %d are both called '%s'", seen[name], i, name) end
    seen[name] = i
  end
end

--- Trace a module or a function.
-- @tparam function|nn.Module fn
-- @tparam table inputs a list of its arguments: tensors, tables of tensors, plain values
-- @tparam ?table given dynamic, names
-- @treturn Graph
function M.trace(fn, inputs, given)
  local op = 'graph.trace'
  if not callable(fn) then err.throw(op, 'a module or a function is expected, got %s', util.show(fn)) end
  if type(inputs) ~= 'table' or istype(ref_t, inputs) then
    err.throw(op, 'a list of inputs is expected, got %s: amp.graph.trace(fn, {x, ...})', util.show(inputs))
  end
  local o = options.read(op, given, {'dynamic', 'names'}, {})
  local n = 0
  for k in pairs(inputs) do
    if type(k) ~= 'number' or k < 1 or k % 1 ~= 0 then err.throw(op, 'inputs are a list, got the key %s', util.show(k)) end
    n = math.max(n, k)
  end
  local args = {n = n}
  for i = 1, n do args[i] = inputs[i] end
  local names = parameter_names(fn, n)
  if o.names ~= nil then
    if type(o.names) ~= 'table' then err.throw(op, "option 'names' is a list of names, got %s", util.show(o.names)) end
    for i, name in pairs(o.names) do
      if type(i) ~= 'number' or i < 1 or i > n or type(name) ~= 'string' then
        err.throw(op, "option 'names' holds a name for each of %d input%s at most, got %s = %s", n, n == 1 and '' or 's', util.show(i), util.show(name))
      end
      names[i] = name
    end
  end
  check_names(op, names)
  local Graph = require 'amp.graph.graph'
  local record = M.record(op, fn, args, names)
  local g = Graph.new(record)
  if o.dynamic then require('amp.graph.dynamic')(g, fn, args, names, o.dynamic) end
  if record.regions then g.again = require('amp.graph.again').new(fn, names, o.dynamic, record.modules) end
  return g
end

M.parameter_names = parameter_names

return M
