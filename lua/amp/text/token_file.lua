--- Files of tokens, and batches that stream from them.
--
-- A file is nothing but ids in 16 or 32 bits, little end first, and they count from 0, as other tools write and read them. Rows are
-- windows of it, read where they lie when they are asked for (by pread; nothing is mapped, nothing else is kept): a file may be larger
-- than memory. The order of an epoch is a permutation that is computed, not stored, from the seed and the epoch: the place in it is two
-- numbers, so a run goes on where it stopped.
-- @module amp.text.token_file
local bit = require 'bit'
local ffi = require 'ffi'
local amp = require 'amp'
local err = require 'amp.error'
local file = require 'amp.io.file'
local options = require 'amp.options'
local util = require 'amp.util'

local band, bxor, rshift, tobit = bit.band, bit.bxor, bit.rshift, bit.tobit

local M = {}

local widths = { uint16 = 2, uint32 = 4 }
local pointers = { uint16 = ffi.typeof 'const uint16_t *', uint32 = ffi.typeof 'const uint32_t *' }

local function check_dtype(op, dtype)
  if not widths[dtype] then err.throw(op, "dtype is 'uint16' or 'uint32', got %s", util.show(dtype)) end
  return dtype
end

-- -- Writing -------------------------------------------------------------------------------------------------

-- Texts or lists of ids, one after the other: of a list, or of a function that gives the next one.
local function source_of(op, source)
  if type(source) == 'function' then return source end
  if type(source) ~= 'table' then err.throw(op, 'a list of texts, or a function that gives the next one, expected, got %s', util.show(source)) end
  local i = 0
  return function()
    i = i + 1
    return source[i]
  end
end

-- The ids of a document, from 1.
local function ids_of(op, doc, n, tok)
  if type(doc) == 'string' then
    if not tok then err.throw(op, 'document %d is a text: give {tokenizer = tok}', n) end
    return tok:encode(doc)
  end
  if amp.is_tensor(doc) then doc = doc:reshape(-1):tolist() end
  if type(doc) ~= 'table' then err.throw(op, 'document %d is %s; a text or a list of ids is expected', n, util.show(doc)) end
  return doc
end

--- Write documents one after the other, each followed by an id that ends it.
-- @tparam string path replaced whole or not at all
-- @tparam table|function source a list of texts or of lists of ids (from 1), or a function that gives the next one, nil at the end
-- @tparam ?table given tokenizer (for texts), eos (the id that ends a document, from 1, or a token of the tokenizer; nil: none),
-- dtype ('uint16', or 'uint32' where the tokenizer has more than 65536 tokens)
-- @treturn number ids written
-- @raise an id that the dtype cannot hold
-- @usage amp.text.write_tokens('train.bin', io.lines 'train.txt', { tokenizer = tok, eos = '<|endoftext|>' })
function M.write_tokens(path, source, given)
  local op = 'text.write_tokens'
  if type(path) ~= 'string' then err.throw(op, 'a path expected, got %s', util.show(path)) end
  local o = options.read(op, given, { 'tokenizer', 'eos', 'dtype' })
  local tok, eos = o.tokenizer, o.eos
  local dtype = check_dtype(op, o.dtype or tok and tok:size() > 65536 and 'uint32' or 'uint16')
  if type(eos) == 'string' then
    if not tok then err.throw(op, "eos is a token: give {tokenizer = tok}, or the token's id") end
    eos = tok:id(eos) or err.throw(op, "the tokenizer has no token '%s'", o.eos)
  elseif eos ~= nil then options.integer(op, 'eos', eos, 1) end
  local next_doc, count, n, width, most = source_of(op, source), 0, 0, widths[dtype], 2 ^ (8 * widths[dtype])
  local ok, why = file.replace(path, function(put)
    while true do
      local doc = next_doc()
      if doc == nil then return end
      n = n + 1
      local ids = ids_of(op, doc, n, tok)
      local size = #ids + (eos and 1 or 0)
      local buffer = ffi.new(width == 2 and 'uint16_t[?]' or 'uint32_t[?]', math.max(size, 1))
      for i = 1, size do
        local id = ids[i] or eos
        if type(id) ~= 'number' or id % 1 ~= 0 or id < 1 or id > most then
          err.throw(op, 'id %d of document %d is %s; %s holds 1 to %d%s', i, n, util.show(id), dtype, most, width == 2 and "; dtype = 'uint32' more" or '')
        end
        buffer[i - 1] = id - 1
      end
      put(ffi.cast('const uint8_t *', buffer), size * width)
      count = count + size
    end
  end)
  if not ok then err.throw(op, "cannot write '%s': %s", path, tostring(why)) end
  return count
end

-- -- The order ---------------------------------------------------------------------------------------------------

local function mix(x, key)
  x = bxor(x, key)
  x = tobit(bxor(x, rshift(x, 15)) * 0x2c1b3)
  x = tobit(bxor(x, rshift(x, 12)) * 0x297a3)
  return bxor(x, rshift(x, 15))
end

-- Place i (from 0) of a permutation of 0 .. n - 1: four rounds on halves of a power of four at least n, again while beyond n.
local function permuted(i, n, seed, epoch)
  local half = 1
  while 4 ^ half < n do half = half + 1 end
  local size = 2 ^ half
  repeat
    local low = i % size
    local high = (i - low) / size
    for round = 1, 4 do
      local key = tobit((seed % 2 ^ 31) * 31 + epoch * 1009 + round * 65537)
      high, low = low, bxor(high, band(mix(low, key), size - 1))
    end
    i = high * size + low
  until i < n
  return i
end

-- -- Reading -------------------------------------------------------------------------------------------------------

local TokenFile = {}
TokenFile.__index = TokenFile
TokenFile.__name = 'text.TokenFile'

local function open_all(op, paths, width, length)
  local files, total = {}, 0
  for i, path in ipairs(paths) do
    if type(path) ~= 'string' then err.throw(op, 'paths are strings, got %s', util.show(path)) end
    local f, why = file.open(path)
    if not f then err.throw(op, "cannot read '%s': %s", path, tostring(why)) end
    if f.size % width ~= 0 then
      err.throw(op, "'%s' has %.0f bytes, which are no whole number of ids of %d: it is cut off, or of the other dtype", path, f.size, width)
    end
    local windows = math.floor(f.size / width / length)
    files[i] = { file = f, path = path, windows = windows, before = total, ids = f.size / width }
    total = total + windows
  end
  return files, total
end

--- Batches of a file of tokens, or of several.
-- @tparam string|table paths one, or a list
-- @tparam table given length (ids of a row), batch_size (1), dtype ('uint16'; 'uint32'), shuffle (true), seed (0), vocab_size (ids beyond are an
-- error), eos (the id, from 1, that ends documents: they do not see each other, and none is trained to go on with the next),
-- rank (1) and world_size (1): each rank gets its share of every epoch
-- @raise files that are not there, of a length that does not fit, or with too few ids for a batch
-- @usage local set = amp.text.TokenFile('train.bin', { length = 1024, batch_size = 8, seed = 1 })
-- for b in set:batches() do
--   local _, loss = model(b.ids, { labels = b.labels })
-- end
function TokenFile.new(paths, given)
  local op = 'text.TokenFile'
  local o = options.read(op, given, { 'length', 'batch_size', 'dtype', 'shuffle', 'seed', 'vocab_size', 'eos', 'rank', 'world_size' },
    { batch_size = 1, dtype = 'uint16', shuffle = true, seed = 0, rank = 1, world_size = 1 })
  for name, least in pairs { length = 1, batch_size = 1, rank = 1, world_size = 1 } do options.integer(op, name, o[name], least) end
  options.integer(op, 'seed', o.seed, 0)
  for _, name in ipairs { 'vocab_size', 'eos' } do
    if o[name] ~= nil then options.integer(op, name, o[name], 1) end
  end
  if type(o.shuffle) ~= 'boolean' then err.throw(op, 'shuffle is true or false, got %s', util.show(o.shuffle)) end
  if o.rank > o.world_size then err.throw(op, 'rank %d is more than world_size %d', o.rank, o.world_size) end
  if type(paths) == 'string' then paths = { paths } end
  if type(paths) ~= 'table' or #paths == 0 then err.throw(op, 'a path, or a list of paths, expected, got %s', util.show(paths)) end
  local self = setmetatable({ o = o, epoch = 1, at = 0 }, TokenFile)
  self.width = widths[check_dtype(op, o.dtype)]
  self.files, self.windows = open_all(op, paths, self.width, o.length)
  self.steps = math.floor(self.windows / (o.batch_size * o.world_size))
  if self.steps == 0 then
    err.throw(op, "'%s' has %d rows of %d ids, fewer than one batch of %d%s", table.concat(paths, "', '"), self.windows, o.length, o.batch_size,
      o.world_size > 1 and (' for each of %d ranks'):format(o.world_size) or '')
  end
  return self
end

--- Batches of an epoch.
function TokenFile:__len() return self.steps end
function TokenFile:size() return self.steps end

-- The ids of window w (from 0), as a pointer.
local function window(self, w, buffer)
  local k = #self.files
  while self.files[k].before > w do k = k - 1 end
  local f = self.files[k]
  local bytes = self.o.length * self.width
  if f.closed then err.throw('text.TokenFile', "'%s' was closed", f.path) end
  local ok, why = f.file:read(buffer, bytes, (w - f.before) * bytes)
  if not ok then err.throw('text.TokenFile', "'%s': %s", f.path, tostring(why)) end
  return ffi.cast(pointers[self.o.dtype], buffer), f, (w - f.before) * self.o.length
end

local function tensor(p, rows, length) return amp.from_ptr(ffi.cast('void *', p), { rows, length }, 'int64'):clone() end

-- Where documents end: segments, positions in them, labels of their first ids.
local function marks(self, ids, labels, rows)
  local length, eos = self.o.length, self.o.eos
  local segments, positions = ffi.new('int64_t[?]', rows * length), ffi.new('int64_t[?]', rows * length)
  for r = 0, rows - 1 do
    local segment, position = 1, 1
    for i = r * length, (r + 1) * length - 1 do
      segments[i], positions[i] = segment, position
      if position == 1 then labels[i] = -100 end
      position = position + 1
      if ids[i] == eos then segment, position = segment + 1, 1 end
    end
  end
  return tensor(segments, rows, length), tensor(positions, rows, length)
end

--- The next batch; epochs follow each other without end.
-- @treturn table ids and labels, batch_size x length, int64; with eos also segment_ids and position_ids; as models take them
function TokenFile:next()
  local o, rows, length = self.o, self.o.batch_size, self.o.length
  if self.at >= self.steps then self.epoch, self.at = self.epoch + 1, 0 end
  local ids, buffer = ffi.new('int64_t[?]', rows * length), ffi.new('uint8_t[?]', length * self.width)
  for r = 0, rows - 1 do
    local place = (self.at * o.world_size + o.rank - 1) * rows + r
    if o.shuffle then place = permuted(place, self.windows, o.seed, self.epoch) end
    local p, f, first = window(self, place, buffer)
    for i = 0, length - 1 do
      local id = p[i] + 1
      if o.vocab_size and id > o.vocab_size then
        err.throw('text.TokenFile', "'%s': id %.0f (from 1) at place %.0f is beyond vocab_size %d%s", f.path, id, first + i + 1, o.vocab_size,
          self.width == 2 and "; is the file of dtype = 'uint32'?" or '')
      end
      ids[r * length + i] = id
    end
  end
  self.at = self.at + 1
  local b = { ids = tensor(ids, rows, length) }
  if not o.eos then
    b.labels = b.ids
    return b
  end
  local labels = ffi.new('int64_t[?]', rows * length)
  ffi.copy(labels, ids, rows * length * 8)
  b.segment_ids, b.position_ids = marks(self, ids, labels, rows)
  b.labels = tensor(labels, rows, length)
  return b
end

--- What is left of this epoch, batch by batch, for `for b in set:batches() do`; called again at its end, the next epoch.
function TokenFile:batches()
  if self.at >= self.steps then self.epoch, self.at = self.epoch + 1, 0 end
  local epoch = self.epoch
  return function()
    if self.epoch ~= epoch or self.at >= self.steps then return nil end
    return self:next()
  end
end

--- Where it is: plain data for a checkpoint.
function TokenFile:state_dict()
  return { epoch = self.epoch, at = self.at, seed = self.o.seed, windows = self.windows, batch_size = self.o.batch_size, length = self.o.length,
    world_size = self.o.world_size }
end

--- Go on where a state_dict was taken: the same batches follow.
-- @raise a state of other files, sizes or seeds
function TokenFile:load_state_dict(state)
  local op = 'text.TokenFile:load_state_dict'
  if type(state) ~= 'table' then err.throw(op, 'a table expected, got %s', util.show(state)) end
  local own = self:state_dict()
  for _, name in ipairs { 'length', 'batch_size', 'seed', 'world_size', 'windows' } do
    if state[name] ~= own[name] then
      err.throw(op, '%s is %s in the state and %s here: the order would be another', name, util.show(state[name]), util.show(own[name]))
    end
  end
  options.integer(op, 'epoch', state.epoch, 1)
  options.integer(op, 'at', state.at, 0)
  self.epoch, self.at = state.epoch, math.min(state.at, self.steps)
  return self
end

--- Close the files; twice is harmless.
function TokenFile:close()
  for _, f in ipairs(self.files) do
    if not f.closed then f.file:close() end
    f.closed = true
  end
end

require('amp.core.class').guard(TokenFile, 'text.TokenFile', 'set')

M.TokenFile = setmetatable(TokenFile, { __call = function(_, ...) return TokenFile.new(...) end })

return M
