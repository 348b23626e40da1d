--- Regions of 8 bits: their options, the modules that stay in the base, and the steps that histories count.
--     amp.autocast({dtype = 'float8', recipe = 'delayed', exclude = {'head'}}, fn)
-- What is cast and how the library decides by the state's words (precision/float8.c); a module that is excluded runs in
-- the words of the base.
-- @module amp.precision.float8_region
local core = require 'amp.ffi'
local next_key = require('amp.core.keys').next
local err = require 'amp.error'
local region = require 'amp.core.region'
local types = require 'amp.types'
local util = require 'amp.util'
local words = require 'amp.precision.autocast_state'
local C, S = core.C, core.S
local word = words.of

local M = {}

--- The options that only these regions have.
M.names = { 'base', 'recipe', 'history', 'exclude' }

-- -- Options -----------------------------------------------------------------------------------

local recipes = { current = 1, delayed = 2, block = 3 }
local RECIPE_NAMES = { 'current', 'delayed', 'block' }

local function recipe_of(op, recipe)
  if recipe == nil then return recipes.current end
  local number = type(recipe) == 'string' and recipes[recipe]
  if not number then
    err.throw(op, "option 'recipe' must be 'current', 'delayed' or 'block', got %s%s", util.show(recipe),
      type(recipe) == 'string' and util.hint(recipe, RECIPE_NAMES) or '')
  end
  return number
end

local function base_of(op, base)
  if base == nil then return types.dtype_code.bfloat16 end
  local code = type(base) == 'string' and types.dtype_code[base]
  if code ~= types.dtype_code.bfloat16 and code ~= types.dtype_code.float16 then
    err.throw_code('dtype', op, "option 'base' must be 'bfloat16' or 'float16', got %s", util.show(base))
  end
  return code
end

local function history_of(op, history)
  if history == nil then return 16 end
  if type(history) ~= 'number' or history % 1 ~= 0 or history < 1 or history > words.MOST_HISTORY then
    err.throw(op, "option 'history' must be an integer from 1 to %d, got %s", words.MOST_HISTORY, util.show(history))
  end
  return history
end

-- A list of names, as a list and as one text; nil: none.
local function exclude_of(op, exclude)
  if exclude == nil then return nil end
  if type(exclude) ~= 'table' or getmetatable(exclude) ~= nil then
    err.throw(op, "option 'exclude' must be a list of modules' names such as {'head', 'layers.1'}, got %s", util.show(exclude))
  end
  local list = {}
  for k, name in pairs(exclude) do
    if type(k) ~= 'number' or k % 1 ~= 0 or k < 1 or k > #exclude then
      err.throw(op, "option 'exclude' must be a list of modules' names, got the key %s in it", util.show(k))
    end
    if type(name) ~= 'string' or name == '' or name:find '^%.' or name:find '%.$' or name:find('..', 1, true) then
      err.throw(op, "option 'exclude' must be a list of modules' names such as {'head', 'layers.1'}, got %s in it", util.show(name))
    end
    list[k] = name
  end
  if #list == 0 then return nil end
  local sorted = { unpack(list) }
  table.sort(sorted)
  return { names = list, key = table.concat(sorted, '\n') }
end

--- What the options of a region of 8 bits ask for: {base, recipe, history, exclude}, all checked.
function M.parse(op, o)
  return { base = base_of(op, o.base), recipe = recipe_of(op, o.recipe), history = history_of(op, o.history),
    exclude = exclude_of(op, o.exclude) }
end

-- -- Modules that stay in the base ----------------------------------------------------------------------

-- Of the innermost region: {names, key, found = {name = true}, outer = the outermost module that runs in it, sets = {module = {part = true}}}
local exclusion

local function parts_of(ex, module)
  local set = ex.sets[module]
  if set then return set end
  set = {}
  local Module = require 'amp.nn.module'
  for name, part in module:named_modules() do
    if Module.is_module(part) then
      for _, wanted in ipairs(ex.names) do
        if name == wanted then
          set[part] = true
          ex.found[wanted] = true
        end
      end
    end
  end
  ex.sets[module] = set
  return set
end

-- While the outermost module runs.
local outermost = region.kind(function(rec) rec.before = rec.ex.outer end, function(rec) rec.ex.outer = rec.module end, nil,
  function(rec) rec.ex.outer = rec.before end)

-- In the base: words of the same regions without their recipes.
local in_base = region.kind(function(rec) rec.o0, rec.o1 = word[0], word[1] end,
  function(rec) word[0], word[1] = rec.i0, rec.i1 end,
  function(rec) rec.i0, rec.i1 = word[0], word[1] end,
  function(rec) word[0], word[1] = rec.o0, rec.o1 end)

-- What calls a module instead, in such a region: run(self, hooks, forward, ...) is the call.
local function call_module(run, self, ...)
  region.here() -- a coroutine that was resumed is in its own region again
  local ex = exclusion
  if ex == nil then return run(self, ...) end
  if ex.outer == nil then
    parts_of(ex, self)
    return region.run(outermost, { ex = ex, module = self, before = false }, call_module, run, self, ...)
  end
  if ex.sets[ex.outer][self] then
    return region.run(in_base, { i0 = words.own(words.base(word[0])), i1 = words.own(words.base(word[1])), o0 = 0, o1 = 0 }, run, self, ...)
  end
  return run(self, ...)
end

local attending = false
local function set_exclusion(ex)
  exclusion = ex
  words.exclude = ex and ex.key
  if ex and not attending then -- from now on, as no module is told that a coroutine is resumed
    attending = true
    require('amp.nn.module').excluding(call_module)
  end
end

-- A name that no module has is a slip of the pen, where a module was called at all.
local function check_found(op, ex)
  if ex == nil or next_key(ex.sets) == nil then return end
  for _, name in ipairs(ex.names) do
    if not ex.found[name] then
      local known = {}
      for module in pairs(ex.sets) do
        for other in module:named_modules() do if other ~= '' then known[#known + 1] = other end end
      end
      err.throw(op, "option 'exclude': no module called in the region has a part named '%s'%s", name, util.hint(name, known))
    end
  end
end

-- -- Regions ------------------------------------------------------------------------------------------------

--- A kind of region around the one of words: it sets what stays in the base, and the step.
-- @tparam table inner the kind of the words alone: {look, enter, keep, leave}
function M.kind(inner)
  return region.kind(function(rec)
    rec.outer_exclusion = exclusion
    inner.look(rec)
  end, function(rec)
    inner.enter(rec)
    if rec.step then rec.outer_step = C.amp_float8_set_step(S, rec.step) end
    set_exclusion(rec.exclusion)
  end, inner.keep, function(rec)
    inner.leave(rec)
    if rec.step then C.amp_float8_set_step(S, rec.outer_step) end
    set_exclusion(rec.outer_exclusion)
  end, inner.over, function(rec)
    if rec.op then check_found(rec.op, rec.exclusion) end
  end)
end

--- A region's own exclusion, of what `parse` gave.
function M.exclusion(asked)
  local exclude = asked.exclude
  return exclude and { names = exclude.names, key = exclude.key, found = {}, sets = setmetatable({}, { __mode = 'k' }), outer = nil } or nil
end

--- The exclusion in force, for a snapshot.
function M.current_exclusion() return exclusion end

return M
