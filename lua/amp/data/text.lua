--- TextDataset: windows of a text, with what comes next.
--
--   local set = amp.data.TextDataset('book.txt', {level = 'char', length = 64})
--   for x, y in amp.data.DataLoader(set, {batch_size = 32, shuffle = true}):iter() do ... end  -- int64, 32 x 64 each
--   print(set.vocabulary:decode(x[1]))
local amp = require 'amp'
local file = require 'amp.io.file'
local limit = require 'amp.io.limit'
local memory = require 'amp.io.memory'
local options = require 'amp.options'
local proxy = require 'amp.data.proxy'
local util = require 'amp.util'
local Vocabulary = require 'amp.data.vocabulary'
local raise = require('amp.error').throw

local TextDataset = {in_process = true} -- a batch costs less than handing it from one process to another
TextDataset.__index = TextDataset

--- Make a dataset of windows of a text: example i is `length` tokens, and the same moved on by one, to be foretold.
-- @tparam string|table path of a file, or {text = 'the text itself'}
-- @tparam ?table given level ('char'), length (64), stride (length: windows one behind the other), vocabulary (made of the text
-- with min_count, max_size, specials), max_bytes (the longest text that is read; any length where it isn't given)
-- @treturn table a dataset with `vocabulary` and `tokens` (int64)
local function new(_, source, given)
  local op = 'data.TextDataset'
  local o = options.read(op, given, {'level', 'length', 'stride', 'vocabulary', 'min_count', 'max_size', 'specials', 'max_bytes'},
    {level = 'char', length = 64})
  Vocabulary.check_level(op, o.level)
  limit.check(op, o.max_bytes)
  options.integer(op, 'length', o.length, 1)
  o.stride = options.integer(op, 'stride', o.stride or o.length, 1)
  local text
  if type(source) == 'string' then
    local f, why = file.open(source)
    if f then
      local ok
      ok, why = limit.new(o.max_bytes, f.size):take(f.size)
      if ok then text, why = f:text() end
      f:close()
    end
    if not text then raise(op, "cannot read '%s': %s", source, why) end
  elseif type(source) == 'table' and type(source.text) == 'string' then
    text = source.text
  else
    raise(op, "a path or {text = '...'} expected, got %s", util.show(source))
  end
  local v = o.vocabulary
  if v ~= nil and (type(v) ~= 'table' or type(v.encode) ~= 'function') then raise(op, 'vocabulary must be an amp.data.Vocabulary, got %s', util.show(v)) end
  v = v or Vocabulary(text, {level = o.level, min_count = o.min_count, max_size = o.max_size, specials = o.specials})
  local ok, tokens = pcall(v.encode, v, text)
  if not ok then
    if type(source) == 'string' then memory.rethrow(op, source, tokens) end
    error(tokens, 0)
  end
  local self = setmetatable({vocabulary = v, tokens = tokens, length = o.length, stride = o.stride}, TextDataset)
  if tokens:numel() <= o.length then
    raise(op, '%sa window of %d tokens and the one after need a longer text; it has %d', type(source) == 'string' and ("'%s': "):format(source) or '',
      o.length, tokens:numel())
  end
  return proxy.wrap(self)
end

--- Number of windows.
function TextDataset:size() return math.floor((self.tokens:numel() - 1 - self.length) / self.stride) + 1 end

--- Window i and the one a token later: int64 vectors.
function TextDataset:get(i)
  local at = (i - 1) * self.stride + 1
  return self.tokens:narrow(1, at, self.length), self.tokens:narrow(1, at + 1, self.length)
end

--- Windows by a vector of indices: two of n x length.
function TextDataset:batch(indices)
  local at = ((indices - 1) * self.stride + 1):unsqueeze(2) + amp.arange(0, self.length, {dtype = 'int64', device = 'cpu'})
  local shape, flat = at:size(), at:reshape(-1)
  return self.tokens:index_select(1, flat):reshape(shape), self.tokens:index_select(1, flat + 1):reshape(shape)
end

proxy.dataset(TextDataset, 'data.TextDataset')

function TextDataset:__tostring()
  return ('data.TextDataset (%d windows of %d, %d tokens, vocabulary of %d)'):format(self:size(), self.length, self.tokens:numel(), self.vocabulary:size())
end

require('amp.core.class').guard(TextDataset, 'data.TextDataset', 'set')
TextDataset._draws_nothing = TextDataset.batch -- as it is called: guarded

return setmetatable({class = TextDataset}, {__call = new})
