--- Sizes that are free when a graph runs.
--
-- The function is recorded again for inputs of other sizes, each free one with a size of its own. The graphs must be the
-- same but for numbers (a shape, a length, a factor), and each number that differs must be an expression of the sizes
-- (amp.graph.fit), which further recordings confirm: among them sizes 1 and 0, where the function allows them. What is no
-- such expression is refused: nothing of a free size is ever frozen.
-- Where the function does not run with sizes of their own (two inputs share a batch), equal sizes of one dimension are tied,
-- then all equal ones: each run checks that they are equal.
-- @module amp.graph.dynamic
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local err = require 'amp.error'
local fit = require 'amp.graph.fit'
local ops = require 'amp.ops'
local seen = require 'amp.graph.seen'
local signature = require 'amp.graph.signature'
local structure = require 'amp.graph.structure'
local util = require 'amp.util'
local C, S = core.C, core.S

local OP = 'graph.trace'

-- -- Which sizes ------------------------------------------------------------------------------

local function show_dims(t) return ('%d dimension%s (%s)'):format(t:dim(), t:dim() == 1 and '' or 's', tostring(t:size())) end

local function check_dim(d, what)
  if type(d) ~= 'number' or d % 1 ~= 0 or d == 0 then
    err.throw(OP, "option 'dynamic': %s must be a dimension (1, 2, ... or -1, -2, ...), got %s", what, util.show(d))
  end
end

local function place_of(t, d)
  local n = t:dim()
  local k = d < 0 and d + n + 1 or d
  return k >= 1 and k <= n and k or nil
end

-- Tensors that a name means: 'x', 'state' (all in that table), 'state[1]'.
local function named(name, places, names)
  local list, found = {}, false
  for _, n in pairs(names) do found = found or n == name end
  for i, place in ipairs(places) do
    if place == name or found and (place:sub(1, #name) == name and place:sub(#name + 1):match '^[.%[]') then list[#list + 1] = i end
  end
  return list
end

local function dims_of_all(free, flat, d)
  check_dim(d, 'each entry')
  local any = false
  for i, t in ipairs(flat) do
    local k = place_of(t, d)
    if k then
      free[i][k] = true
      any = true
    end
  end
  if not any then err.throw_code('index', OP, "option 'dynamic': no input has dimension %d", d) end
end

local function dims_of_name(free, flat, places, names, name, dims)
  local list = named(name, places, names)
  if #list == 0 then
    err.throw(OP, "option 'dynamic': there is no tensor input '%s'%s (inputs: %s)", name, util.hint(name, places), table.concat(places, ', '))
  end
  if type(dims) == 'number' then dims = {dims} end
  if type(dims) ~= 'table' then err.throw(OP, "option 'dynamic': a list of dimensions is expected for '%s', got %s", name, util.show(dims)) end
  for key, d in pairs(dims) do
    if type(key) ~= 'number' then err.throw(OP, "option 'dynamic': the dimensions of '%s' are a list, got the key %s", name, util.show(key)) end
    check_dim(d, ("dimension %s of '%s'"):format(tostring(key), name))
    for _, i in ipairs(list) do
      local k = place_of(flat[i], d)
      if not k then
        err.throw_code('index', OP, "option 'dynamic': input '%s' has no dimension %d: it has %s", places[i], d, show_dims(flat[i]))
      end
      free[i][k] = true
    end
  end
end

-- Free sizes in the library's order: {input, dim, base = size}.
local function free_sizes(dynamic, flat, places, names)
  if type(dynamic) ~= 'table' then
    err.throw(OP, "option 'dynamic' lists dimensions, {1} of all inputs or {x = {1, 3}} of one, got %s", util.show(dynamic))
  end
  local free = {}
  for i = 1, #flat do free[i] = {} end
  for key, v in pairs(dynamic) do
    if type(key) == 'number' then dims_of_all(free, flat, v)
    elseif type(key) == 'string' then dims_of_name(free, flat, places, names, key, v)
    else err.throw(OP, "option 'dynamic' has the key %s: names of inputs and a list are known", util.show(key)) end
  end
  local list = {}
  for i, t in ipairs(flat) do
    for k = 1, t:dim() do
      if free[i][k] then list[#list + 1] = {input = i, dim = k, base = t:size(k), name = places[i]} end
    end
  end
  return list
end

-- -- Inputs of other sizes ----------------------------------------------------------------------

-- t with another size: its rows over and over, so that what holds indices or labels holds such again.
local function resized(t, d, size)
  local have = t:size(d)
  if have == size then return t end
  if have == 0 then
    local shape = t:size()
    shape[d] = size
    return (t.dtype == 'bool' or t:is_floating_point()) and ops.get 'full'(shape, 0, t.dtype, t.device)
      or ops.get 'full'(shape, 1, t.dtype, t.device)
  end
  local rows = {}
  for i = 1, size do rows[i] = (i - 1) % have + 1 end
  local index = require('amp.tensor.create').tensor(rows, {dtype = 'int64', device = t.device})
  return ops.get 'index_select'(t, d, index)
end

-- Tensors of these sizes, one for each free size.
local function inputs_of(flat, free, sizes)
  local list = {}
  for i, t in ipairs(flat) do list[i] = t:detach() end
  for k, f in ipairs(free) do list[f.input] = resized(list[f.input], f.dim, sizes[k]) end
  for i, t in ipairs(flat) do
    if list[i]:dim() == 4 and not t:is_contiguous() and t:is_contiguous('channels_last') then
      list[i] = list[i]:contiguous('channels_last')
    end
    if t.requires_grad then list[i].requires_grad = true end
  end
  return list
end

-- -- Recording again ------------------------------------------------------------------------------

-- What a probe is made of.
local Probe = {}
Probe.__index = Probe

local plain = {memory = true, interrupted = true}

-- The signature at these sizes of the classes; nil, error: the function fails there.
function Probe:record(sizes)
  local each = {}
  for k = 1, #self.free do each[k] = sizes[self.class[k]] end
  local ok, made = pcall(function()
    local given = inputs_of(self.flat, self.free, each)
    local args = {n = self.plan.n, structure.unflatten(self.plan, given)}
    return require('amp.graph.trace').record(OP, self.fn, args, self.names)
  end)
  if not ok then
    if err.is(made) and plain[made.code] or type(made) == 'string' and made:find 'interrupted' then error(made, 0) end
    return nil, made
  end
  local s = signature.of(made.handle)
  s.made = made
  return s
end

local function at_sizes(self, sizes)
  local list = {}
  for k, f in ipairs(self.free) do list[k] = ("dimension %d of '%s' is %d"):format(f.dim, f.name, sizes[self.class[k]]) end
  return table.concat(list, ', ')
end

-- Plans of results hold numbers and texts, too.
local function same_plan(a, b)
  if type(a) ~= 'table' or type(b) ~= 'table' then return a == b end
  for k, v in pairs(a) do
    if not same_plan(v, b[k]) then return false end
  end
  for k in pairs(b) do
    if a[k] == nil then return false end
  end
  return true
end

local CURE = "; make a number of sizes by +, -, * and /, and let no branch depend on them, or leave that dimension out of 'dynamic'"

-- Names of the free sizes that alone make a difference for this check.
function Probe:culprits(differs)
  local list = {}
  for c = 1, self.classes do
    local sizes = {unpack(self.base)}
    sizes[c] = sizes[c] + 1
    local s = self:record(sizes)
    if s and differs(s) then
      for k, f in ipairs(self.free) do
        if self.class[k] == c then list[#list + 1] = ("dimension %d of input '%s'"):format(f.dim, f.name) end
      end
    end
  end
  if #list == 0 then
    for k, f in ipairs(self.free) do list[k] = ("dimension %d of input '%s'"):format(f.dim, f.name) end
  end
  return table.concat(list, ' and ')
end

-- How the graph at these sizes differs from the first, nil: in numbers at most.
function Probe:difference(s)
  local node, what = signature.difference(self.first, s)
  if what then return {node = node, what = what} end
  if not same_plan(self.results, s.made.outputs) then return {what = 'it gives other values beside its tensors, or tables of another form'} end
end

function Probe:refuse_difference(d, sizes)
  local culprits = self:culprits(function(s) return self:difference(s) ~= nil end)
  self.refused = true
  err.throw_code('unsupported', OP, "%s can't be free: %s%s, where %s%s", culprits, d.node and ("at node '%s' "):format(d.node) or '',
    d.what, at_sizes(self, sizes), CURE)
end

-- -- Sizes to try ------------------------------------------------------------------------------------

-- Sizes of each class: small ones of their own, near the example's, multiples of the example's, and for what takes no larger ones
-- (a context of few tokens) such up to the example's.
local ranges = {
  function(_, draw) return 2 + draw end,
  function(base, draw) return math.max(base, 1) + 1 + draw end,
  function(base, draw) return math.max(base, 1) * (2 + draw) end,
  function(base, draw) return 1 + draw % math.max(base, 4) end,
}

-- Lists of sizes that differ from class to class and from list to list.
local function chooser(base, range)
  local seed, used = 20011, {}
  local wide = 12 + 2 * #base
  return function(offset)
    local sizes, taken = {}, {}
    for c = 1, #base do
      local tries = 0
      local size
      repeat
        seed = (seed * 16807) % 2147483647
        tries = tries + 1
        size = range(base[c], math.floor(seed / 7) % wide + (offset or 0))
      until tries > 200 or not taken[size] and not (used[c .. ' ' .. size] and tries < 100) and size ~= base[c]
      taken[size], used[c .. ' ' .. size] = true, true
      sizes[c] = size
    end
    return sizes
  end
end

-- -- Numbers ------------------------------------------------------------------------------------------

local function changed(samples)
  local list = {}
  local first = samples[1].numbers
  for i = 1, #first do
    for k = 2, #samples do
      if samples[k].numbers[i].value ~= first[i].value then
        list[#list + 1] = i
        break
      end
    end
  end
  return list
end

function Probe:refuse_number(n, samples, i)
  local shown = {}
  for k = 1, math.min(#samples, 4) do
    local numbers = samples[k].numbers
    shown[k] = ('%.10g where %s'):format(numbers[i].value, at_sizes(self, samples[k].sizes))
  end
  local culprits = self:culprits(function(s)
    local numbers = signature.numbers(s)
    return numbers[i] and numbers[i].value ~= samples[1].numbers[i].value
  end)
  self.refused = true
  err.throw_code('unsupported', OP, "node '%s' can't follow %s: its '%s' is no sum of products of sizes (%s)%s",
    n.at or signature.reader(self.first, n.read) or '?', culprits, n.name, table.concat(shown, '; '), CURE)
end

-- Expressions of all numbers that differ: index of the number -> terms.
function Probe:fit(samples)
  local found, points = {}, {}
  for k, s in ipairs(samples) do points[k] = s.sizes end
  for _, i in ipairs(changed(samples)) do
    local values = {}
    for k, s in ipairs(samples) do values[k] = s.numbers[i].value end
    local n = samples[1].numbers[i]
    found[i] = fit.find(self.classes, points, values, n.real) or self:refuse_number(n, samples, i)
  end
  return found
end

-- Is the graph at these sizes what the expressions say?
function Probe:confirm(found, samples, s)
  for i, n in ipairs(s.numbers) do
    local terms = found[i]
    local first = samples[1].numbers[i].value
    local good = terms and fit.fits(terms, {s.sizes}, {n.value}, n.real)
    if not terms then good = n.value == first or n.value ~= n.value and first ~= first end
    if not good then
      table.insert(samples, 2, s)
      self:refuse_number(n, samples, i)
    end
  end
end

-- -- Trying ---------------------------------------------------------------------------------------------

function Probe:sample(sizes)
  local s, e = self:record(sizes)
  if not s then return nil, e end
  local d = self:difference(s)
  if d then self:refuse_difference(d, sizes) end
  s.sizes, s.numbers = sizes, signature.numbers(s)
  return s
end

local function elements(flat)
  local n = 0
  for _, t in ipairs(flat) do n = n + t:numel() end
  return n
end

local LARGE, MANY, ELEMENTS = 4096, 48, 2 ^ 20

-- Sizes at which the function may do something else: those about the numbers that it knows, by themselves and divided by
-- the sizes of its inputs.
function Probe:borders(base)
  local parts, set, list = {[1] = true}, {}, {}
  for _, t in ipairs(self.flat) do
    for d = 1, t:dim() do parts[math.max(t:size(d), 1)] = true end
  end
  for v in pairs(seen.look(self.fn).numbers) do
    for part in pairs(parts) do
      local whole = math.floor(math.abs(v) / part)
      for size = whole - (base > whole and 1 or 0), whole + (base > whole and 0 or 1) do
        if size > 1 and size <= LARGE and not set[size] then
          set[size] = true
          list[#list + 1] = size
        end
      end
    end
  end
  table.sort(list)
  return list
end

-- Elements of the inputs at these sizes.
function Probe:elements_at(sizes)
  local n, changes = 0, {}
  for k, f in ipairs(self.free) do changes[f.input] = (changes[f.input] or 1) * sizes[self.class[k]] / math.max(self.base[self.class[k]], 1) end
  for i, t in ipairs(self.flat) do n = n + t:numel() * (changes[i] or 1) end
  return n
end

-- Sizes whose graphs may fail to be made, but not be others: 1, 0, larger ones, and those about known numbers.
function Probe:edges(choose, narrow)
  local list = {}
  for c = 1, narrow and self.classes or 0 do -- the expressions were found of few sizes: beyond these, where it still runs
    for _, size in ipairs {self.base[c] + 1, self.base[c] + 2, self.base[c] + 3, self.base[c] * 2, self.base[c] * 2 + 1} do
      local sizes = {unpack(self.base)}
      sizes[c] = size
      list[#list + 1] = sizes
    end
  end
  local ones = {}
  for c = 1, self.classes do ones[c] = 1 end
  list[1] = ones
  for c = 1, self.classes do
    local sizes = choose()
    sizes[c] = 0
    list[#list + 1] = sizes
  end
  if elements(self.flat) < 2 ^ 16 then list[#list + 1] = choose(40) end
  for c = 1, self.classes do
    local borders = self:borders(self.base[c])
    for i = 1, math.min(#borders, MANY) do
      local sizes = {unpack(self.base)}
      sizes[c] = borders[i]
      if self:elements_at(sizes) <= ELEMENTS then list[#list + 1] = sizes end
    end
  end
  return list
end

-- Expressions under these ties and in this range of sizes; nil, error: the function fails there.
function Probe:try(range)
  local choose = chooser(self.base, range)
  local samples = {{sizes = self.base, numbers = signature.numbers(self.first)}}
  local most = self.classes == 1 and 5 or 5 + 2 * self.classes
  local k = 0
  while k < most do
    local s, e = self:sample(choose())
    if not s then return nil, e end
    samples[#samples + 1] = s
    k = k + 1
    if k == 2 and #changed(samples) == 0 then break end
  end
  local found = self:fit(samples)
  local s, e = self:sample(choose(5))
  if not s then return nil, e end
  self:confirm(found, samples, s)
  for _, sizes in ipairs(self:edges(choose, range == ranges[#ranges])) do
    local edge = self:sample(sizes)
    if edge then self:confirm(found, samples, edge) end
  end
  return found
end

-- Classes of free sizes that are equal: of one dimension, or of any.
local function tie(free, same)
  local class, roots = {}, {}
  for k, f in ipairs(free) do
    for c, root in ipairs(roots) do
      if same(f, root) then class[k] = c end
    end
    if not class[k] then
      roots[#roots + 1] = f
      class[k] = #roots
    end
  end
  return class, roots
end

local ties = {
  function() return false end,
  function(a, b) return a.dim == b.dim and a.base == b.base end,
  function(a, b) return a.base == b.base end,
}

-- -- Into the graph -----------------------------------------------------------------------------------------

local function add_size(g, node, slot, real, term, first_of)
  local s = ffi.new 'amp_graph_size'
  s.node, s.slot, s.real = node, slot, real and 1 or 0
  s.numerator, s.denominator, s.more = term.numerator, term.denominator, term.more
  for c, p in pairs(term.power) do s.power[first_of[c] - 1] = p end
  call.check(C.amp_graph_add_size(S, g.handle, s), OP)
end

local function install(g, self, found)
  local dims = {}
  for _, f in ipairs(self.free) do dims[f.input] = (dims[f.input] or 0) + 2 ^ (f.dim - 1) end
  for input, mask in pairs(dims) do call.check(C.amp_graph_free_dims(S, g.handle, input - 1, mask), OP) end
  local first_of = {}
  for k = 1, #self.free do
    local c = self.class[k]
    if first_of[c] then add_size(g, -2, k - 1, false, {numerator = 1, denominator = 1, more = 0, power = {[c] = 1}}, first_of)
    else first_of[c] = k end
  end
  for i, n in ipairs(signature.numbers(self.first)) do
    for _, term in ipairs(found[i] or {}) do add_size(g, n.node, n.slot, n.real, term, first_of) end
  end
end

local function message(e) return err.is(e) and e.message or tostring(e) end

--- Make sizes of a traced graph free.
-- @tparam Graph g
-- @tparam function|nn.Module fn what it is of
-- @tparam table args with n
-- @tparam table names of the arguments
-- @tparam table dynamic dimensions of all inputs, or by input
return function(g, fn, args, names, dynamic)
  local plan, flat, places = structure.flatten(OP, args, names)
  local free = free_sizes(dynamic, flat, places, names)
  if #free == 0 then return end
  if #free > 16 then err.throw_code('unsupported', OP, "option 'dynamic': a graph has at most 16 free sizes, these are %d", #free) end
  local first = signature.of(g.handle)
  local failure, refusal, counts
  for _, same in ipairs(ties) do
    local class, roots = tie(free, same)
    if #roots ~= counts then
      counts = #roots
      local base = {}
      for c, root in ipairs(roots) do base[c] = root.base end
      local self = setmetatable({fn = fn, plan = plan, flat = flat, names = names, free = free, class = class, classes = #roots, base = base,
        first = first, results = g.results}, Probe)
      for _, range in ipairs(ranges) do
        local ok, found, e = pcall(self.try, self, range)
        if ok and found then return install(g, self, found) end
        if not ok then
          if not self.refused then error(found, 0) end
          refusal = refusal or found
          break
        end
        failure = failure or e
      end
    end
  end
  if refusal then error(refusal, 0) end
  local list = {}
  for k, f in ipairs(free) do list[k] = ("dimension %d of input '%s'"):format(f.dim, f.name) end
  err.throw_code('unsupported', OP, "%s can't be free: the function fails for other sizes: %s", table.concat(list, ', '), message(failure))
end
