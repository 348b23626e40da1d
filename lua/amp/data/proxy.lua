--- What a loader or dataset of amp is for its user: a cdata around its table, because LuaJIT asks no table for its length or how
-- ipairs goes through it, and a loop that silently runs zero times trains nothing.
--
--   #loader, #set              size()
--   for i, x, y in ipairs(loader) do     batches with their numbers; of a dataset: examples
--   pairs(loader), set[1]      errors that say what to write
--
-- Fields and methods are the table's. Classes are tables with methods as ever, and their methods see the table as `self`.
local ffi = require 'ffi'
local raise = require('amp.error').throw

ffi.cdef 'typedef struct { int unused; } amp_data_object;'

local M = {}
local tables = setmetatable({}, { __mode = 'k' }) -- object -> its table, which must not lead back to the object
local ctype

--- The table of an object; anything else as it is.
function M.open(v) return ffi.istype(ctype, v) and tables[v] or v end

--- Whether v is an object of this file.
function M.is(v) return ffi.istype(ctype, v) end

-- A method's result is the object where it is the table: calls can be chained.
local function give(object, self, first, ...)
  if rawequal(first, self) then return object, ... end
  return first, ...
end

local methods = {}
local function method(f)
  local m = methods[f]
  if m then return m end
  m = function(object, ...)
    if ffi.istype(ctype, object) then
      local self = tables[object]
      return give(object, self, f(self, ...))
    end
    return f(object, ...) -- which says what is wrong with it (amp.class)
  end
  methods[f] = m
  return m
end

local function class(object) return getmetatable(tables[object]) end

ctype = ffi.metatype('amp_data_object', {
  __index = function(object, name)
    local self = tables[object]
    local v = rawget(self, name)
    if type(v) ~= 'nil' then return v end -- a tensor has an == of its own
    v = class(object)[name]
    if type(v) == 'function' then return method(v) end
    if type(name) == 'number' then class(object)._refuse(name) end
    return v
  end,
  __newindex = function(object, name, v) tables[object][name] = v end,
  __len = function(object) return tables[object]:size() end,
  __ipairs = function(object) return class(object)._enumerate(tables[object]) end,
  __pairs = function(object) class(object)._refuse() end,
  __call = function(object, ...) return class(object).__call(tables[object], ...) end,
  __tostring = function(object) return tostring(tables[object]) end,
})

--- An object for a table that has its class as metatable.
function M.wrap(self)
  local object = ctype()
  tables[object] = self
  return object
end

--- Give a class of datasets what this file needs of it.
-- @tparam table C with size and get
-- @tparam string op its name
function M.dataset(C, op)
  function C._enumerate(self)
    return function(_, i)
      if i < self:size() then return i + 1, self:get(i + 1) end
    end, nil, 0
  end
  function C._refuse(i)
    if i then raise(op, 'a dataset has no element %s by that name; example %s is set:get(%s)', i, i, i) end
    raise(op, 'pairs goes through no dataset; write for i = 1, set:size() do local x = set:get(i) ... end, or for i, x in ipairs(set) do')
  end
  C.__call = C.__call or function() raise(op, 'a dataset is not called; example i is set:get(i)') end
end

return M
