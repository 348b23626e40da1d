--- The form of a tokenizer.json: every field's type, so that what is built from it meets no surprise.
local json = require 'amp.io.json'
local next_key = require('amp.core.keys').next

local M = {}
local MAXDEPTH = 64

local function kind(v) return v == json.null and 'null' or type(v) end
local function fail(at, want, v) error(('%s: %s expected, got %s'):format(at, want, kind(v)), 0) end

-- Takes the nulls of named fields away, so that a null is a field that is not there.
local function drop(t, depth)
  if depth > MAXDEPTH then error('parts nested too deeply', 0) end
  for k, v in pairs(t) do
    if v == json.null and type(k) == 'string' then t[k] = nil elseif type(v) == 'table' and v ~= json.null then drop(v, depth + 1) end
  end
end

local function is_list(v) return type(v) == 'table' and v ~= json.null and (next_key(v) == nil or v[1] ~= nil) end
local function is_id(v) return type(v) == 'number' and v >= 0 and v < 2 ^ 24 and v % 1 == 0 end

local fields = {
  string = { 'prepend', 'content', 'replacement', 'prepend_scheme', 'suffix', 'prefix', 'pad_token', 'word_delimiter_token', 'unk_token',
    'continuing_subword_prefix', 'end_of_word_suffix', 'behavior', 'delimiter', 'precompiled_charsmap' },
  boolean = { 'clean_text', 'handle_chinese_chars', 'strip_accents', 'lowercase', 'strip_left', 'strip_right', 'add_prefix_space',
    'use_regex', 'trim_offsets', 'invert', 'individual_digits', 'split', 'cleanup', 'byte_fallback', 'fuse_unk', 'ignore_merges', 'single_word',
    'lstrip', 'rstrip', 'normalized', 'special' },
}
local kinds = { start = 'number', stop = 'number', unk_id = 'number', max_input_chars_per_word = 'number', dropout = 'number' }
for k, names in pairs(fields) do for _, n in ipairs(names) do kinds[n] = k end end
local lists = { normalizer = 'normalizers', pre_tokenizer = 'pretokenizers', post_processor = 'processors', decoder = 'decoders' }
local behaviors = { Removed = true, Isolated = true, MergedWithPrevious = true, MergedWithNext = true, Contiguous = true }
local schemes = { always = true, first = true, never = true }

local function scalars(s, at)
  for k, v in pairs(s) do
    local want = kinds[k]
    if want and type(v) ~= want then fail(at .. '.' .. k, 'a ' .. want, v) end
    if want == 'number' and (v < 0 or v ~= v or k ~= 'dropout' and v % 1 ~= 0) then fail(at .. '.' .. k, 'a whole number', v) end
  end
  if s.behavior and not behaviors[s.behavior] then error(("%s.behavior: '%s' is not known"):format(at, s.behavior), 0) end
  if s.prepend_scheme and not schemes[s.prepend_scheme] then error(("%s.prepend_scheme: '%s' is not known"):format(at, s.prepend_scheme), 0) end
end

local function pair(v, at)
  if not is_list(v) or type(v[1]) ~= 'string' or not is_id(v[2]) then fail(at, 'a list [token, id]', v) end
end

local function template(s, at)
  if not is_list(s.single) or s.single[1] == nil then fail(at .. '.single', 'a list', s.single) end
  local special = s.special_tokens
  if type(special) ~= 'table' then fail(at .. '.special_tokens', 'an object', special) end
  for i, p in ipairs(s.single) do
    local where = ('%s.single[%d]'):format(at, i)
    if type(p) ~= 'table' or p == json.null then fail(where, 'an object', p) end
    if type(p.Sequence) ~= 'table' then
      local t = type(p.SpecialToken) == 'table' and p.SpecialToken.id
      if type(t) ~= 'string' then fail(where, 'a Sequence or a SpecialToken with an id', t) end
      local known = special[t]
      if type(known) ~= 'table' or not is_list(known.ids) then fail(('%s.special_tokens[%q].ids'):format(at, t), 'a list', known) end
      for _, id in ipairs(known.ids) do
        if not is_id(id) then fail(('%s.special_tokens[%q].ids'):format(at, t), 'whole numbers', id) end
      end
    end
  end
end

local function part(s, at, list, depth)
  if type(s) ~= 'table' or s == json.null then fail(at, 'an object', s) end
  if type(s.type) ~= 'string' then fail(at .. '.type', 'a string', s.type) end
  if depth > 16 then error(at .. ': parts nested too deeply', 0) end
  scalars(s, at)
  if s.type == 'Sequence' then
    if not is_list(s[list]) then fail(at .. '.' .. list, 'a list', s[list]) end
    for i, p in ipairs(s[list]) do part(p, ('%s.%s[%d]'):format(at, list, i), list, depth + 1) end
  elseif s.type == 'Split' or s.type == 'Replace' then
    local p = s.pattern
    if type(p) ~= 'table' or type(p.String or p.Regex) ~= 'string' then fail(at .. '.pattern', 'an object with String or Regex', p) end
    if s.type == 'Replace' and not s.content then fail(at .. '.content', 'a string', nil) end
    if s.type == 'Split' and not s.behavior then fail(at .. '.behavior', 'a string', nil) end
  elseif s.type == 'Metaspace' and s.replacement == '' then fail(at .. '.replacement', 'a character', s.replacement)
  elseif s.type == 'Prepend' and not s.prepend then fail(at .. '.prepend', 'a string', nil)
  elseif s.type == 'Strip' and list == 'decoders' and not s.content then fail(at .. '.content', 'a string', nil)
  elseif s.type == 'TemplateProcessing' then template(s, at)
  elseif s.type == 'BertProcessing' or s.type == 'RobertaProcessing' then
    pair(s.cls, at .. '.cls')
    pair(s.sep, at .. '.sep')
  end
end

local function vocab_of(m)
  if type(m.vocab) ~= 'table' or m.vocab == json.null or next_key(m.vocab) == nil then fail('model.vocab', 'tokens', m.vocab) end
  if m.type == 'Unigram' or m.type == nil and m.vocab[1] ~= nil and not m.merges then
    for i, v in ipairs(m.vocab) do
      if not is_list(v) or type(v[1]) ~= 'string' or type(v[2]) ~= 'number' then fail(('model.vocab[%d]'):format(i), 'a list [token, score]', v) end
    end
    if m.vocab[1] == nil then fail('model.vocab', 'a list', m.vocab) end
    return
  end
  for t, id in pairs(m.vocab) do
    if type(t) ~= 'string' then fail('model.vocab', 'an object', m.vocab) end
    if not is_id(id) then fail(('model.vocab[%q]'):format(t), 'an id from 0', id) end
  end
end

local function model(m)
  if m.type ~= nil and type(m.type) ~= 'string' then fail('model.type', 'a string', m.type) end
  scalars(m, 'model')
  vocab_of(m)
  if m.type == 'BPE' or m.merges ~= nil then
    if not is_list(m.merges) then fail('model.merges', 'a list', m.merges) end
    for i, v in ipairs(m.merges) do
      local a, b = v, nil
      if is_list(v) then a, b = v[1], v[2] elseif type(v) == 'string' then a, b = v:match '^([^ ]+) ([^ ]+)$' end
      if type(a) ~= 'string' or type(b) ~= 'string' then fail(('model.merges[%d]'):format(i), 'two tokens', v) end
    end
  end
end

local directions = { Left = true, Right = true }
local strategies = { LongestFirst = true, OnlyFirst = true, OnlySecond = true }
local LONGEST = 2 ^ 20 -- ids of a row that a file may ask for

local function length(v, at, least)
  if type(v) ~= 'number' or v % 1 ~= 0 or v < least or v > LONGEST then fail(at, ('a whole number from %d to %d'):format(least, LONGEST), v) end
end

local function padding(s)
  if type(s) ~= 'table' then fail('padding', 'an object', s) end
  if s.pad_id ~= nil and not is_id(s.pad_id) then fail('padding.pad_id', 'an id from 0', s.pad_id) end
  if s.direction ~= nil and not directions[s.direction] then fail('padding.direction', 'Left or Right', s.direction) end
  if s.pad_to_multiple_of ~= nil then length(s.pad_to_multiple_of, 'padding.pad_to_multiple_of', 0) end
  local how = s.strategy
  if type(how) == 'table' and how ~= json.null then length(how.Fixed, 'padding.strategy.Fixed', 0)
  elseif how ~= nil and how ~= 'BatchLongest' then fail('padding.strategy', 'BatchLongest or {"Fixed": n}', how) end
end

local function truncation(s)
  if type(s) ~= 'table' then fail('truncation', 'an object', s) end
  length(s.max_length, 'truncation.max_length', 0)
  if s.direction ~= nil and not directions[s.direction] then fail('truncation.direction', 'Left or Right', s.direction) end
  if s.strategy ~= nil and not strategies[s.strategy] then fail('truncation.strategy', 'LongestFirst, OnlyFirst or OnlySecond', s.strategy) end
end

--- Checks a decoded file; nulls of named fields are taken away.
-- @raise a text that names the field
function M.check(s)
  if type(s) ~= 'table' or type(s.model) ~= 'table' or s.model == json.null then error('it has no model: it is no tokenizer.json', 0) end
  drop(s, 1)
  model(s.model)
  for k, list in pairs(lists) do if s[k] ~= nil then part(s[k], k, list, 1) end end
  if s.added_tokens ~= nil and not is_list(s.added_tokens) then fail('added_tokens', 'a list', s.added_tokens) end
  for i, a in ipairs(s.added_tokens or {}) do
    local at = ('added_tokens[%d]'):format(i)
    if type(a) ~= 'table' or a == json.null then fail(at, 'an object', a) end
    scalars(a, at)
    if not is_id(a.id) then fail(at .. '.id', 'an id from 0', a.id) end
    if type(a.content) ~= 'string' then fail(at .. '.content', 'a string', a.content) end
  end
  if s.padding ~= nil then padding(s.padding) end
  if s.truncation ~= nil then truncation(s.truncation) end
end

return M
