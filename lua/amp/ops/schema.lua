--- The op table as Lua sees it: each row's schema parsed, on first use.
-- Nothing is listed here; the library is asked, so a library and a Lua tree can't disagree.
-- @module amp.ops.schema
local ffi = require 'ffi'
local core = require 'amp.ffi'
local err = require 'amp.error'
local C = core.C

local M = {}

local numeric = { i = true, f = true, d = true, F = true }

-- "dim:d=1" and the like, into a table
local function parse_arg(word, slot)
  local name, type_ = word:match '^([%w_]+):(.*)$'
  if name == nil then
    local base, mark = word:match '^([%w_]+)([?#*]?)$'
    return { name = base, kind = 'T', optional = mark == '?', number = mark == '#', list = mark == '*' }, 0
  end
  local default = type_:match '=(.*)$'
  type_ = type_:gsub('=.*$', '')
  local optional = type_:sub(-1) == '?'
  if optional then type_ = type_:sub(1, -2) end
  local a = { name = name, kind = type_:sub(1, 1), slot = slot, optional = optional, default = default }
  local count = 1
  if a.kind == 'e' then
    a.words, a.word_list = {}, {}
    for w in type_:sub(2):gmatch '[^,]+' do
      a.words[w] = #a.word_list
      a.word_list[#a.word_list + 1] = w
    end
  elseif a.kind == 'I' or a.kind == 'D' or a.kind == 'F' then
    a.most = tonumber(type_:sub(2)) or 8
    count = a.most + 1
  elseif a.kind == 'i' and #type_ > 1 then
    a.kind, count = 'N', tonumber(type_:sub(2))
    a.count = count
  end
  return a, count
end

local rows, by_name = {}, {}

-- Rows whose arguments PyTorch's function takes in another order than the library's: the places, in that order, of the
-- row's own arguments. (Tensors stay in the order of the row among themselves.)
local order = {
  cross_entropy = { 1, 2, 3, 5, 4, 6 },    -- input target weight ignore_index reduction label_smoothing
  nll_loss = { 1, 2, 3, 5, 4 },            -- input target weight ignore_index reduction
  multi_margin_loss = { 1, 2, 4, 5, 3, 6 }, -- input target p margin weight reduction
  bce_with_logits = { 1, 2, 3, 5, 4 },     -- input target weight reduction pos_weight
  embedding_bag = { 1, 2, 3, 5, 4, 7, 6 }, -- input weight offsets mode per_sample_weights include_last_offset padding_idx
  index_put = { 1, 3, 2, 5, 4 },           -- input indices values accumulate, then dims
}

-- Names that PyTorch gives to arguments, which are understood as options: of all rows, or of one.
M.aliases = {
  normalized_shape = 'shape', size = 'shape', fill_value = 'value', storage_offset = 'offset', source = 'src', mat2 = 'other', tensor = 'other',
  dimension = 'dim', train = 'training', axis = 'dim', dims_self = 'dims_input', input2 = 'L', dims = 'dim', split_size = 'size', repeats = 'shape',
}

local function row(id)
  local info = C.amp_op_get(id)
  local r = {
    id = id, name = ffi.string(info.name), schema = ffi.string(info.schema), doc = ffi.string(info.doc),
    flags = tonumber(info.flags), kind = string.char(info.kind), nin = info.nin, nout = info.nout, args = {},
  }
  local slot = 0
  local arguments, results = r.schema:match '^(.-) %-> (.*)$'
  for word in (arguments or r.schema):gmatch '%S+' do
    local a, n = parse_arg(word, slot)
    r.args[#r.args + 1] = a
    slot = slot + n
  end
  if slot ~= info.nslot then
    err.throw(r.name, "the library counts %d slots in the schema '%s', this Lua tree %d: the two differ in version",
      info.nslot, r.schema, slot)
  end
  local places = order[r.name]
  if places then
    local own = r.args
    r.args = {}
    for i = 1, #places do r.args[i] = own[places[i]] end
  end
  for i = 1, #r.args do
    local a, after = r.args[i], r.args[i + 1]
    -- numbers in a row: t:view(2, 3); not where the next argument is a number itself
    a.run = not places and (a.kind == 'I' or a.kind == 'D') and not (after and numeric[after.kind]) and not (after and after.number)
    a.required = not a.optional and a.default == nil
  end
  r.results = {} -- those that a caller sees, by their names
  for word in (results or 'out'):gmatch '[^%s]+' do
    if word:sub(1, 1) ~= '(' then r.results[#r.results + 1] = word:match '^[%w_]+' end
  end
  r.nout = #r.results
  return r
end

for id = 0, C.amp_op_count() - 1 do by_name[ffi.string(C.amp_op_get(id).name)] = id end
M.by_name = by_name

--- The row of a name (without a trailing _), parsed, or nil.
function M.get(name)
  local id = by_name[name]
  if id == nil then return nil end
  local r = rows[id]
  if r == nil then
    r = row(id)
    rows[id] = r
  end
  return r
end

--- The words that an op's argument may be.
-- @tparam string name of the op
-- @tparam string argument
-- @treturn table a list of them, in the order of the op table
-- @treturn table their codes, by word
function M.words(name, argument)
  for _, a in ipairs(M.get(name).args) do
    if a.name == argument then return a.word_list, a.words end
  end
end

return M
