--- Vocabulary: tokens as numbers from 1, and back.
--
--   local v = amp.data.Vocabulary(text, {level = 'word', specials = {'<pad>', '<unk>'}})
--   local numbers = v:encode 'to be or not'      -- int64
--   print(v:decode(numbers))
--
-- Tokens are bytes ('byte'), characters of UTF-8 ('char'), or words ('word': letters and digits together, every other
-- character by itself, white space between them dropped).
local ffi = require 'ffi'
local amp = require 'amp'
local options = require 'amp.options'
local util = require 'amp.util'
local raise = require('amp.error').throw

-- -- Tokens ----------------------------------------------------------------------------------------

local CHAR = '[%z\1-\127\194-\244][\128-\191]*'
local splitters = {
  byte = function(text) return text:gmatch '.' end,
  char = function(text) return text:gmatch '[%z\1-\127\192-\255]?[\128-\191]*' end,
  word = function(text)
    local at = 1
    return function()
      at = text:match('^%s*()', at)
      if at > #text then return nil end
      local word = text:match("^[%w\128-\255_']+", at) or text:match('^' .. CHAR, at) or text:sub(at, at)
      at = at + #word
      return word
    end
  end,
}

local function check_level(op, level)
  if not splitters[level] then raise(op, "level must be 'byte', 'char' or 'word', got %s", util.show(level)) end
end

-- Iterate over the tokens of a text or a list.
local function tokens_of(op, v, level)
  if type(v) == 'string' then
    local each = splitters[level](v)
    return function()
      local t = each()
      while t == '' do t = each() end -- between characters
      return t
    end
  end
  if type(v) ~= 'table' then raise(op, 'a text or a list of tokens expected, got %s', util.show(v)) end
  local i = 0
  return function()
    i = i + 1
    return v[i]
  end
end

-- -- The class ----------------------------------------------------------------------------------------

local Vocabulary = {}
Vocabulary.__index = Vocabulary

--- Make a vocabulary of the tokens of a text: the more frequent ones first, equal ones by name.
-- @tparam string|table text or list of tokens
-- @tparam ?table given level ('char'; 'byte', 'word'), min_count (1), max_size (of all, specials counted), specials (tokens that
-- come first; '<unk>' among them stands for all that are not in it)
local function new(_, text, given)
  local op = 'data.Vocabulary'
  local o = options.read(op, given, {'level', 'min_count', 'max_size', 'specials'}, {level = 'char', min_count = 1, specials = {}})
  check_level(op, o.level)
  options.integer(op, 'min_count', o.min_count, 1)
  if o.max_size ~= nil then options.integer(op, 'max_size', o.max_size, 1) end
  if type(o.specials) ~= 'table' then raise(op, 'specials must be a list of tokens, got %s', util.show(o.specials)) end
  local counts, list = {}, {}
  for t in tokens_of(op, text, o.level) do
    if type(t) ~= 'string' then raise(op, 'tokens are strings, got %s', util.show(t)) end
    if not counts[t] then list[#list + 1] = t end
    counts[t] = (counts[t] or 0) + 1
  end
  table.sort(list, function(a, b)
    if counts[a] ~= counts[b] then return counts[a] > counts[b] end
    return a < b
  end)
  local self = setmetatable({level = o.level, tokens = {}, index = {}}, Vocabulary)
  local function add(t)
    if not self.index[t] then
      self.tokens[#self.tokens + 1] = t
      self.index[t] = #self.tokens
    end
  end
  for _, t in ipairs(o.specials) do add(t) end
  for _, t in ipairs(list) do
    if counts[t] < o.min_count or o.max_size and #self.tokens >= o.max_size then break end
    add(t)
  end
  self.unknown = self.index['<unk>']
  return self
end

--- Number of tokens.
function Vocabulary:size() return #self.tokens end

--- A text, or a list of tokens, as numbers.
-- @treturn Tensor int64, from 1
-- @raise naming a token that is not in it, unless there is '<unk>'
function Vocabulary:encode(text)
  local op = 'data.Vocabulary:encode'
  local index, unknown, n, room = self.index, self.unknown, 0, 1024
  local out = ffi.new('int64_t[?]', room)
  for t in tokens_of(op, text, self.level) do
    local k = index[t] or unknown
    if not k then
      raise(op, "token %d, %s, is not in the vocabulary of %d; with {specials = {'<unk>'}} it would be '<unk>'", n + 1, util.show(t), #self.tokens)
    end
    if n == room then
      local larger = ffi.new('int64_t[?]', room * 2)
      ffi.copy(larger, out, room * 8)
      out, room = larger, room * 2
    end
    out[n] = k
    n = n + 1
  end
  local t = amp.empty({n}, {dtype = 'int64', device = 'cpu'})
  if n > 0 then ffi.copy(t:data_ptr(), out, n * 8) end
  return t
end

--- Numbers as text; words stand with spaces between them.
-- @tparam Tensor|table numbers
function Vocabulary:decode(numbers)
  local op = 'data.Vocabulary:decode'
  local list = amp.is_tensor(numbers) and numbers:reshape(-1):tolist() or numbers
  if type(list) ~= 'table' then raise(op, 'a tensor or a list of numbers expected, got %s', util.show(numbers)) end
  local out = {}
  for i, k in ipairs(list) do
    out[i] = self.tokens[k] or raise(op, 'number %d, %s, is not from 1 to %d', i, tostring(k), #self.tokens)
  end
  return table.concat(out, self.level == 'word' and ' ' or '')
end

function Vocabulary:__tostring() return ("data.Vocabulary (%d tokens, level '%s')"):format(#self.tokens, self.level) end

require('amp.core.class').guard(Vocabulary, 'data.Vocabulary', 'vocabulary')

return setmetatable({class = Vocabulary, check_level = check_level}, {__call = new})
