--- Files for PyTorch's torch.load: a zip archive of a pickle and the storages. Tensors that share memory share a storage in the file.
local ffi = require 'ffi'
local amp = require 'amp'
local core = require 'amp.ffi'
local file = require 'amp.io.file'
local memory = require 'amp.io.memory'
local segments = require 'amp.io.segments'
local raise = require('amp.error').throw
local kind = require('amp.util').kind
local le, C = file.le, core.C

local M = {}
local OP = 'io.save_pt'
local DEEPEST = 100

local storages = { float64 = 'Double', float32 = 'Float', float16 = 'Half', bfloat16 = 'BFloat16', int64 = 'Long', int32 = 'Int', int16 = 'Short',
  int8 = 'Char', uint8 = 'Byte', bool = 'Bool' }

--- The reason why a file cannot hold a tensor of a dtype; nil: it can.
function M.lacks(dtype)
  return not storages[dtype] and ('files of torch.save hold no %s that load_pt reads; cast it, or use amp.io.safetensors'):format(dtype) or nil
end

-- -- The pickle ------------------------------------------------------------------------------------------

local Writer = {}
Writer.__index = Writer

function Writer:put(s) self[#self + 1] = s end

local double = ffi.new 'double[1]'

function Writer:number(v)
  if v % 1 == 0 and math.abs(v) < 2 ^ 31 then self:put('J' .. le(v % 2 ^ 32, 4))
  elseif v % 1 == 0 and math.abs(v) < 2 ^ 53 then self:put('\138\8' .. le(v < 0 and v + 2 ^ 56 or v, 7) .. (v < 0 and '\255' or '\0'))
  else
    double[0] = v
    self:put('G' .. ffi.string(double, 8):reverse())
  end
end

function Writer:string(s, where)
  if s:find '[\128-\255]' and not require('amp.text.unicode').valid(s) then raise(OP, "%s: a string that is not UTF-8, which PyTorch cannot read", where) end
  self:put('X' .. le(#s, 4) .. s)
end

function Writer:numbers(list)
  self:put '('
  for i = 1, #list do self:number(list[i]) end
  self:put 't'
end

function Writer:tensor(t, where)
  local why = M.lacks(t.dtype)
  if why then raise(OP, '%s: %s', where, why) end
  local place = self.places[t:id()]
  if t.requires_grad then self:put 'ctorch._utils\n_rebuild_parameter\n(' end
  self:put 'ctorch._utils\n_rebuild_tensor_v2\n(('
  self:string('storage', where)
  self:put(('ctorch\n%sStorage\n'):format(storages[t.dtype]))
  self:string(place.key, where)
  self:string('cpu', where)
  self:number(place.count)
  self:put 'tQ'
  self:number(place.offset)
  self:numbers(t:size())
  self:numbers(t:stride())
  self:put '\137ccollections\nOrderedDict\n)RtR'
  if t.requires_grad then self:put '\136ccollections\nOrderedDict\n)RtR' end
end

-- How many there are, where the keys are 1 .. n; nil: they are others.
local function list_length(t)
  local n = 0
  for _ in pairs(t) do n = n + 1 end
  return n > 0 and n == #t and n or nil
end

local function keys_of(t, where)
  local keys = {}
  for k in pairs(t) do
    if type(k) ~= 'string' and type(k) ~= 'number' then raise(OP, '%s has a key of the type %s; strings and numbers are held', where, type(k)) end
    keys[#keys + 1] = k
  end
  table.sort(keys, function(a, b)
    if type(a) ~= type(b) then return type(a) == 'number' end
    return a < b
  end)
  return keys
end

local function below(where, k) return where == 'it' and ("'%s'"):format(memory.show(k)) or ("%s.%s'"):format(where:sub(1, -2), memory.show(k)) end

-- fn(value, where) for all values in a table, containers before what they hold.
local function each(t, where, depth, fn)
  if depth > DEEPEST then raise(OP, '%s: tables nested too deeply, or one that holds itself', where) end
  for _, k in ipairs(keys_of(t, where)) do
    local at = below(where, k)
    fn(t[k], at)
    if type(t[k]) == 'table' then each(t[k], at, depth + 1, fn) end
  end
end

function Writer:value(v, where)
  if amp.is_tensor(v) then return self:tensor(v, where) end
  local kinds = type(v)
  if kinds == 'number' then self:number(v)
  elseif kinds == 'string' then self:string(v, where)
  elseif kinds == 'boolean' then self:put(v and '\136' or '\137')
  elseif kinds == 'table' and getmetatable(v) == nil then
    local n = list_length(v)
    self:put(n and '](' or '}(')
    for _, k in ipairs(keys_of(v, where)) do
      if not n then self:value(k, where) end
      self:value(v[k], below(where, k))
    end
    self:put(n and 'e' or 'u')
  else raise(OP, '%s is a %s; tensors, numbers, strings, booleans and tables are held', where, kind(v)) end
end

-- -- The archive ----------------------------------------------------------------------------------------------

-- A member whose bytes come from fn(put).
local function member(name, size, fn)
  local crc = 0
  fn(function(p, n) crc = C.amp_crc32(crc, p, n or #p) end)
  return { name = name, size = size, crc = crc, write = fn, align = 64 }
end
local function text_member(name, text) return member(name, #text, function(put) put(text) end) end

local function tensors_of(value)
  local list, seen = {}, {}
  local function take(v)
    if amp.is_tensor(v) and not seen[v:id()] then
      seen[v:id()] = true
      list[#list + 1] = v
    end
  end
  take(value)
  if type(value) == 'table' then each(value, 'it', 1, take) end
  return list
end

--- Write a file that torch.load reads, also with weights_only; it is replaced whole or not at all.
-- @tparam string path
-- @param value tensors, numbers, strings, booleans, and tables of them (lists count from 1 here, from 0 there)
-- @raise what such a file cannot hold: names the key
-- @usage amp.io.save_pt('net.pt', net:state_dict())
function M.save_pt(path, value)
  if type(path) ~= 'string' then raise(OP, 'a path expected, got %s', kind(path)) end
  local tensors, places, members = tensors_of(value), {}, {}
  for i, s in ipairs(segments.of(tensors)) do
    local key = ('%d'):format(i - 1)
    local count = s.count or s.last - s.first + 1
    for _, at in ipairs(s.members) do
      local t = tensors[at]
      places[t:id()] = { key = key, count = count, offset = s.count and 0 or segments.extent(t) - s.first }
    end
    if storages[s.dtype] then
      members[i] = member('archive/data/' .. key, count * memory.width(s.dtype), function(put)
        if count > 0 then memory.each(segments.source(s, tensors), put) end
      end)
    end
  end
  local w = setmetatable({ places = places }, Writer)
  w:put '\128\2'
  w:value(value, 'it')
  w:put '.'
  table.insert(members, 1, text_member('archive/data.pkl', table.concat(w)))
  table.insert(members, 2, text_member('archive/byteorder', 'little'))
  members[#members + 1] = text_member('archive/version', '3\n')
  local ok, why = file.replace(path, function(put) require('amp.io.zip').write(put, members) end)
  if not ok then raise(OP, "cannot write '%s': %s", path, why) end
end

return M
