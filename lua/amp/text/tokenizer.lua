--- Tokenizers of tokenizer.json. Ids count from 1.
local ffi = require 'ffi'
local amp = require 'amp'
local added = require 'amp.text.added'
local algorithms = require 'amp.text.algorithms'
local check = require 'amp.text.check'
local class = require 'amp.core.class'
local decoders = require 'amp.text.decoders'
local file = require 'amp.io.file'
local json = require 'amp.io.json'
local parts = require 'amp.text.parts'
local pieces = require 'amp.text.pieces'
local regex = require 'amp.text.regex'
local raise = require('amp.error').throw
local u = require 'amp.text.unicode'
local util = require 'amp.util'
local kind = util.kind

local Tokenizer = {}
Tokenizer.__index = Tokenizer
local M = { class = Tokenizer }
local band = require('bit').band
local bytes_t = ffi.typeof 'const uint8_t *'
local STEPS = 4e6    -- of patterns and models for a text, and 400 for each of its bytes
local CACHED = 50000 -- pieces whose ids are kept

-- Ids to put before and after a text.
local function post(self, s)
  local before, after = {}, {}
  if s.type == 'TemplateProcessing' then
    local side = before
    for _, p in ipairs(s.single) do
      if p.Sequence then side = after
      else for _, id in ipairs(s.special_tokens[p.SpecialToken.id].ids) do side[#side + 1] = id end end
    end
  elseif s.type == 'BertProcessing' or s.type == 'RobertaProcessing' then before, after = { s.cls[2] }, { s.sep[2] }
  elseif s.type == 'Sequence' then for _, p in ipairs(s.processors) do post(self, p) end
  elseif s.type ~= 'ByteLevel' then error(("the post-processor '%s' is not known"):format(s.type), 0) end
  for i = #before, 1, -1 do table.insert(self.before, 1, before[i]) end
  for i = 1, #after do table.insert(self.after, after[i]) end
end

--- A tokenizer of a decoded file.
function M.build(s)
  check.check(s)
  local self = setmetatable({ tokens = {}, ids = {}, special = {}, shown = {}, before = {}, after = {}, cache = {}, cached = 0 }, Tokenizer)
  self.normalize = s.normalizer and parts.normalizer(s.normalizer)
  self.split = s.pre_tokenizer and parts.pre_tokenizer(s.pre_tokenizer)
  local bytes
  if s.pre_tokenizer then
    self.find, self.behind, self.spaced, bytes = parts.search(s.pre_tokenizer)
    local how
    if not self.find then how, self.mark = parts.local_pieces(s.normalizer, s.pre_tokenizer) end
    self.cut, self.spaces = pieces.cutter(how), how == 'spaced'
    self.ascii = self.mark and pieces.on_ascii(self.normalize)
    self.as_is = self.mark and how ~= 'bert' -- a piece that the normalizer leaves is one word
  end
  local of_bytes, vocab
  self.model, of_bytes, vocab = algorithms.model(s.model)
  self.of_bytes = bytes and of_bytes and of_bytes(parts.bytes) or nil
  for t, id in pairs(vocab) do self.tokens[id], self.ids[t] = t, id end
  for i, v in ipairs(s.model.vocab) do self.tokens[i - 1] = v[1] end -- of Unigram, where a token may stand twice
  for _, a in ipairs(s.added_tokens or {}) do
    self.tokens[a.id], self.ids[a.content] = a.content, a.id
    if a.special then self.special[a.id] = true end
  end
  self.raw, self.later = added.searches(s.added_tokens or {}, self.normalize)
  for _, a in ipairs(s.added_tokens or {}) do self.shown[a.id] = a.find end
  if s.post_processor then post(self, s.post_processor) end
  self.decoder = s.decoder and decoders.decoder(s.decoder)
  self.count = 0
  for _ in pairs(self.tokens) do self.count = self.count + 1 end
  self.padding, self.truncation = s.padding, s.truncation
  self.pad = s.padding and s.padding.pad_id or self.ids['[PAD]'] or self.ids['<pad>'] or 0
  return self
end

--- Read a tokenizer.json. Unknown parts and fields of a wrong type are errors that name them.
function M.from_file(path)
  local op = 'text.Tokenizer.from_file'
  if type(path) ~= 'string' then raise(op, 'a path expected, got %s', kind(path)) end
  local text, why = file.text(path)
  if not text then raise(op, "cannot read '%s': %s", path, why) end
  local s
  s, why = json.decode(text)
  if s == nil then raise(op, "'%s': %s", path, why or 'it is no JSON') end
  local ok, self = pcall(M.build, s)
  if not ok then raise(op, "'%s': %s", path, tostring(self)) end
  self.text = text
  return self
end

-- The ids of words, appended to a list.
local function model_ids(self, list, out)
  local n, model = #out, self.model
  for i = 1, #list do n = model(u.text(list[i]), out, n) end
  return out
end

-- Ids of a piece are kept: a number where there is one.
local function keep(self, piece, ids)
  if #ids == 1 then ids = ids[1] end
  if #piece >= 64 then return ids end
  if self.cached >= CACHED then self.cache, self.cached = {}, 0 end
  self.cache[piece], self.cached = ids, self.cached + 1
  return ids
end

local function append(out, ids)
  local n = #out
  if type(ids) == 'number' then
    out[n + 1] = ids
  else
    for k = 1, #ids do out[n + k] = ids[k] end
  end
end

-- A piece that was not met before.
local function new_piece(self, text)
  local ids = {}
  if self.of_bytes then self.of_bytes(text, ids, 0) else model_ids(self, self.behind(u.codes(text)), ids) end
  return keep(self, text, ids)
end

local codes, places = {}, {} -- of the call of searched that runs

-- A normalised text whose pre-tokenizer begins with a search: its pieces stand for themselves.
local function searched(self, s, out)
  if self.spaced and s:byte() ~= 32 then s = ' ' .. s end
  local t, n, good = u.codes(s, places, codes)
  if not good then
    s = u.text(t, 1, n)
    t, n = u.codes(s, places, codes)
  end
  local find, i = self.find, 1
  while i <= n do
    local a, b = find(t, i)
    if not a then a, b = i, n + 1 elseif a > i then a, b = i, a end
    local text = s:sub(places[a], places[b] - 1)
    append(out, self.cache[text] or new_piece(self, text))
    i = b
  end
end

-- Words of a normalised text.
local function words(self, t, first, out)
  if self.find then return searched(self, u.text(t), out) end
  model_ids(self, self.split and self.split(t, first) or { t }, out)
end

-- Whether code points have white space, or what stands for a space.
local function has_space(t)
  local white = u.mask 'white'
  for i = 1, #t do
    if t[i] == 0x2581 or band(u.class[t[i]], white) ~= 0 then return true end
  end
  return false
end

-- The ids of a piece that was not met before; `simple`: it is one word. nil: it cannot stand for itself.
local function new_part(self, piece, simple)
  local word = self.spaces and piece:byte() == 32 and piece:sub(2) or piece
  if simple and self.ascii then
    local ids = {}
    self.model(self.mark .. (self.ascii == 'lower' and word:lower() or word), ids, 0)
    return keep(self, piece, ids)
  end
  local t = u.codes(piece)
  local is = self.normalize and self.normalize(t) or t
  if self.as_is and is == t then
    local w = word == piece and t or u.codes(word)
    if #w > 0 and not has_space(w) then
      local ids = {}
      self.model(self.mark .. u.text(w), ids, 0)
      return keep(self, piece, ids)
    end
  end
  if self.spaces and is[#is] == 32 then return nil end -- it may become one with the spaces that follow
  return keep(self, piece, #is > 0 and model_ids(self, self.split(is, true), {}) or {})
end

-- A text that may be cut before anything else: what becomes of a piece depends on nothing around it. False: this one may not.
local function apart(self, s, out)
  local p, n, cut, cache, before = ffi.cast(bytes_t, s), #s, self.cut, self.cache, #out
  local from, at, simple = cut(p, n, 0)
  while from do
    local piece = s:sub(from + 1, at)
    local known = cache[piece]
    if not known then
      known = new_part(self, piece, simple)
      if not known then
        for k = #out, before + 1, -1 do out[k] = nil end
        return false
      end
      cache = self.cache
    end
    append(out, known)
    from, at, simple = cut(p, n, at)
  end
  return true
end

-- A text in which no added token is looked for before it is normalised; `first`: the whole text begins with it.
local function section(self, s, first, out)
  local plain = not self.later.class
  if plain and self.cut and apart(self, s, out) then return end
  if self.normalize then
    local t = self.normalize(u.codes(s))
    if plain then
      if #t > 0 then words(self, t, first, out) end
      return
    end
    s = u.text(t)
  elseif plain and self.find then return searched(self, s, out) end
  added.pieces(self.later, s, function(a, b)
    local part = s:sub(a, b)
    if self.find then searched(self, part, out) else words(self, u.codes(part), first and a == 1, out) end
  end, function(token) out[#out + 1] = token.id + 1 end)
end

local function with_tokens(self, text, out)
  added.pieces(self.raw, text, function(from, to) section(self, text:sub(from, to), from == 1, out) end,
    function(token) out[#out + 1] = token.id + 1 end)
end

local function run(self, text, out)
  if self.raw.class and text:find(self.raw.class) then return with_tokens(self, text, out) end
  if text ~= '' then section(self, text, true, out) end
end

local function options(op, o, known)
  if o == nil then return {} end
  if type(o) ~= 'table' then raise(op, 'a table of options expected, got %s', kind(o)) end
  for k, v in pairs(o) do
    local want = known[k]
    if not want then raise(op, "unknown option '%s'%s (known: %s)", tostring(k), util.hint(k, util.keys(known)), table.concat(util.keys(known), ', ')) end
    if not want(v) then raise(op, "the option '%s' cannot be %s", k, type(v) == 'string' and "'" .. v .. "'" or tostring(v)) end
  end
  return o
end
local function flag(v) return type(v) == 'boolean' end
local encoding, decoding = { add_special_tokens = flag }, { skip_special_tokens = flag }
local batching = { add_special_tokens = flag, truncation = flag,
  padding = function(v) return flag(v) or v == 'max_length' end,
  max_length = function(v) return type(v) == 'number' and v >= 1 and v % 1 == 0 and v < 2 ^ 31 end }

local function encode(self, op, text, special)
  if type(text) ~= 'string' then raise(op, 'a string expected, got %s', kind(text)) end
  local out = {}
  if special then for _, id in ipairs(self.before) do out[#out + 1] = id + 1 end end
  regex.allow(STEPS + 400 * #text)
  local ok, why = pcall(run, self, text, out)
  regex.allow()
  if not ok then raise(op, '%s', tostring(why):find 'stack overflow' and 'a pattern of the tokenizer recurses too deeply in this text' or tostring(why)) end
  if special then for _, id in ipairs(self.after) do out[#out + 1] = id + 1 end end
  return out
end

--- A list of ids. add_special_tokens: true by default.
function Tokenizer:encode(text, o)
  local op = 'text.Tokenizer:encode'
  return encode(self, op, text, options(op, o, encoding).add_special_tokens ~= false)
end

--- Text of ids, a list or a tensor (n, or 1 x n). skip_special_tokens: true by default.
function Tokenizer:decode(ids, o)
  local op = 'text.Tokenizer:decode'
  if amp.is_tensor(ids) then
    local last = ids:dim() > 0 and ids:size(-1) or 1
    if ids:numel() ~= last then raise(op, 'the ids of one text expected, got shape %s; decode row by row: tok:decode(ids[i])', tostring(ids:size())) end
    ids = ids:reshape(-1):tolist()
  end
  if type(ids) ~= 'table' then raise(op, 'a list or a tensor of ids expected, got %s', kind(ids)) end
  local list, skip = {}, options(op, o, decoding).skip_special_tokens ~= false
  for _, id in ipairs(ids) do
    id = tonumber(id) or raise(op, 'ids are numbers, got %s', kind(id))
    local t = self.tokens[id - 1] or raise(op, 'there is no id %s; they go from 1 to %d', tostring(id), self.count)
    if not (skip and self.special[id - 1]) then list[#list + 1] = self.shown[id - 1] or t end
  end
  if not self.decoder then return table.concat(list, ' ') end
  return table.concat(self.decoder(list))
end

-- Cuts a row to n ids; those put before and after the text stay. `left`: the text loses its beginning.
local function truncate(r, n, head, tail, left)
  local excess = #r - n
  local from = left and head + 1 or n - tail + 1
  for k = from, n do r[k] = r[k + excess] end
  for k = #r, n + 1, -1 do r[k] = nil end
end

-- What becomes of rows: options, and where they say nothing, the file's own sections.
local function shape_of(self, op, o)
  local cut, pad = self.truncation, self.padding
  local how = { most = nil, pad = o.padding ~= false }
  if o.truncation == true or o.truncation == nil and cut then
    how.most, how.cut_left = o.max_length or not o.truncation and cut.max_length or nil, not o.truncation and cut.direction == 'Left'
  end
  if o.padding == nil and pad then
    how.pad, how.left = true, pad.direction == 'Left'
    how.least = type(pad.strategy) == 'table' and pad.strategy.Fixed or 0
    how.multiple = pad.pad_to_multiple_of
  elseif o.padding == 'max_length' then how.least = o.max_length end
  if (o.padding == 'max_length' or o.truncation) and not o.max_length then raise(op, "truncation and padding = 'max_length' need max_length") end
  return how
end

-- Rows of ids as two int64 tensors.
local function tensors(op, rows, most, how, pad)
  local count = #rows * most
  if count == 0 then return amp.zeros(#rows, most, { dtype = 'int64' }), amp.zeros(#rows, most, { dtype = 'int64' }) end
  local flat, mask = ffi.new('int64_t[?]', count), ffi.new('int64_t[?]', count)
  for i = 0, count - 1 do flat[i] = pad end
  for i, r in ipairs(rows) do
    if #r < most and not how.pad then raise(op, 'text %d has %d ids, the longest %d: {padding = true}, the default, makes rows of one length', i, #r, most) end
    local at = (i - 1) * most + (how.left and most - #r or 0) - 1
    for k = 1, #r do flat[at + k], mask[at + k] = r[k], 1 end
  end
  local function tensor(p) return amp.from_ptr(ffi.cast('void *', p), { #rows, most }, 'int64'):clone() end
  return tensor(flat), tensor(mask)
end

--- ids and mask, int64 tensors of one row a text, padded on the right.
-- @tparam table texts a list of strings
-- @tparam ?table o padding: true (to the longest, the default) or 'max_length'; truncation: to max_length, the special tokens stay;
-- add_special_tokens: true by default. Where padding or truncation is left out, the file's own section of that name holds, as far as
-- the length and the side (false: nothing is done)
-- @treturn Tensor texts x longest, int64
-- @treturn Tensor the same, 1 where an id counts
-- @raise rows of several lengths and padding = false; a max_length that the special tokens do not fit
-- @usage local ids, mask = tok:encode_batch({ 'a text', 'another' }, { padding = true, truncation = true, max_length = 128 })
function Tokenizer:encode_batch(texts, o)
  local op = 'text.Tokenizer:encode_batch'
  o = options(op, o, batching)
  if type(texts) ~= 'table' or #texts == 0 then raise(op, 'a list of strings expected, got %s', type(texts) == 'table' and 'an empty table' or kind(texts)) end
  local how, special = shape_of(self, op, o), o.add_special_tokens ~= false
  local head, tail = special and #self.before or 0, special and #self.after or 0
  if how.most and how.most < head + tail then raise(op, 'max_length %d is less than the %d special tokens', how.most, head + tail) end
  local rows, most = {}, 0
  for i, text in ipairs(texts) do
    local r = encode(self, op, text, special)
    if how.most and #r > how.most then truncate(r, how.most, head, tail, how.cut_left) end
    rows[i], most = r, math.max(most, #r)
  end
  most = math.max(most, how.least or 0)
  if (how.multiple or 0) > 0 then most = math.ceil(most / how.multiple) * how.multiple end
  return tensors(op, rows, most, how, self.pad + 1)
end

--- The token of an id, which counts from 1; nil: there is none.
function Tokenizer:token(id)
  if type(id) ~= 'number' then raise('text.Tokenizer:token', 'an id expected, got %s', kind(id)) end
  return self.tokens[id - 1]
end
--- The id of a token, from 1; nil: there is none.
function Tokenizer:id(token)
  if type(token) ~= 'string' then raise('text.Tokenizer:id', 'a token expected, got %s', kind(token)) end
  return self.ids[token] and self.ids[token] + 1
end
--- How many tokens there are, added ones included.
function Tokenizer:size() return self.count end
--- Writes the tokenizer as a tokenizer.json.
function Tokenizer:save(path)
  local op = 'text.Tokenizer:save'
  if type(path) ~= 'string' then raise(op, 'a path expected, got %s', kind(path)) end
  local f, why = io.open(path, 'wb')
  local ok = f
  if f then ok, why = f:write(self.text) end
  if f and not f:close() then ok, why = nil, 'the disk is full' end
  if not ok then raise(op, "cannot write '%s': %s", path, tostring(why)) end
end

function Tokenizer:__tostring() return ('text.Tokenizer (%d tokens)'):format(self.count) end

class.guard(Tokenizer, 'text.Tokenizer', 'tok')

return M
