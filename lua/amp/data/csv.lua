--- amp.data.csv(path): a table of comma-separated values (RFC 4180) as a data set.
--
--   local set = amp.data.csv('iris.csv', {target = 'species'})
--   set.columns                   -- names of the features
--   set.classes                   -- names of the target's classes, where it is text
--   local x, y = set:get(1)       -- float32 of as many features; an int64 label from 1, or a float32 number
local amp = require 'amp'
local file = require 'amp.io.file'
local options = require 'amp.options'
local util = require 'amp.util'
local raise = require('amp.error').throw

local OP = 'data.csv'

-- -- Reading ------------------------------------------------------------------------------------------

-- A field in quotes that begins at `at`: its text, and where it ends.
local function quoted(path, text, at, line)
  local parts, from = {}, at + 1
  while true do
    local q = text:find('"', from, true)
    if not q then raise(OP, "cannot read '%s': the quote of line %d is not closed", path, line) end
    parts[#parts + 1] = text:sub(from, q - 1)
    if text:sub(q + 1, q + 1) ~= '"' then return table.concat(parts), q + 1 end
    parts[#parts + 1] = '"'
    from = q + 2
  end
end

-- Rows of fields, each with its line's number. Empty lines are passed over.
local function rows_of(path, text, separator)
  local rows, row, at, line, n = {}, {}, 1, 1, #text
  local plain = '[^' .. (separator == '\t' and '\t' or '%' .. separator) .. '\r\n]*'
  row.line = 1
  if text:sub(1, 3) == '\239\187\191' then at = 4 end -- a mark of UTF-8
  while at <= n do
    local value
    if text:sub(at, at) == '"' then
      local stop
      value, stop = quoted(path, text, at, line)
      line, at = line + select(2, value:gsub('\n', '')), stop
    else
      value = text:match(plain, at)
      at = at + #value
      value = value:match '^%s*(.-)%s*$'
    end
    row[#row + 1] = value
    local c = text:sub(at, at)
    if c == separator then
      at = at + 1
      if at > n then row[#row + 1] = '' end
    elseif c == '' or c == '\n' or c == '\r' then
      at = at + (text:sub(at, at + 1) == '\r\n' and 2 or 1)
      if #row > 1 or row[1] ~= '' then rows[#rows + 1] = row end
      line = line + 1
      row = { line = line }
    else raise(OP, "cannot read '%s': line %d has %q behind a quote", path, line, c) end
  end
  if #row > 0 then rows[#rows + 1] = row end
  for _, r in ipairs(rows) do
    if #r ~= #rows[1] then raise(OP, "cannot read '%s': line %d has %d fields, the first %d", path, r.line, #r, #rows[1]) end
  end
  return rows
end

-- -- Columns --------------------------------------------------------------------------------------------

local function number(path, r, name, text, missing)
  local v = not text:find '^%s*[+-]?0[xX]' and tonumber(text)
  local none = text == '' or v and v ~= v -- nan stands for a value that is missing
  if none and missing then return missing end
  if none or not v then
    raise(OP, "'%s', line %d: column '%s' is %s, a number expected%s", path, r.line, name, text == '' and 'empty' or util.show(text),
      none and '; {missing = v} puts v there' or '')
  end
  return v
end

-- Labels from 1 of texts, by their sorted names.
local function labels_of(rows, k)
  local names, index, out = {}, {}, {}
  for _, r in ipairs(rows) do
    if not index[r[k] ] then index[r[k] ], names[#names + 1] = true, r[k] end
  end
  table.sort(names)
  for i, name in ipairs(names) do index[name] = i end
  for i, r in ipairs(rows) do out[i] = index[r[k] ] end
  return amp.tensor(out, { dtype = 'int64', device = 'cpu' }), names
end

local function is_text(rows, k)
  for _, r in ipairs(rows) do
    if r[k] ~= '' and not tonumber(r[k]) then return true end
  end
  return false
end

local function place_of(path, header, name)
  if type(name) == 'number' and header[name] then return name end
  for i, h in ipairs(header) do
    if h == name then return i end
  end
  local hint = type(name) == 'string' and util.hint(name, header) or ''
  raise(OP, "'%s' has no column %s%s; it has %s", path, util.show(name), hint, table.concat(header, ', '))
end

local function read_header(rows, given)
  local first, header = rows[1], {}
  for i = 1, #first do header[i] = given and first[i] or ('%d'):format(i) end
  if given then table.remove(rows, 1) end
  return header
end

--- Read a table.
-- @tparam string path
-- @tparam ?table given target (name or number of the column that is to be guessed: text becomes labels from 1, numbers stay numbers),
-- columns (list of the features' names; all others), header (true: the first line names the columns), separator (','), missing (a number
-- for empty fields; without it they are errors)
-- @treturn TensorDataset with columns, target, classes (of a target of text); its examples are x, or x, y
-- @raise with the file's name and the line: what is no number, lines of another length, quotes left open
return function(path, given)
  if type(path) ~= 'string' then raise(OP, 'a path expected, got %s', util.show(path)) end
  local o = options.read(OP, given, { 'target', 'columns', 'header', 'separator', 'missing' }, { header = true, separator = ',' })
  options.boolean(OP, 'header', o.header)
  if o.missing ~= nil then options.number(OP, 'missing', o.missing) end
  if type(o.separator) ~= 'string' or #o.separator ~= 1 or o.separator:find '[%w"\r\n]' then
    raise(OP, 'separator must be one sign, such as , ; or a tab, got %s', util.show(o.separator))
  end
  local text, why = file.text(path)
  if not text then raise(OP, "cannot read '%s': %s", path, why) end
  local rows = rows_of(path, text, o.separator)
  if #rows <= (o.header and 1 or 0) then raise(OP, "cannot read '%s': it has no rows", path) end
  local header = read_header(rows, o.header)
  local target = o.target ~= nil and place_of(path, header, o.target) or nil
  local places, names = {}, {}
  if o.columns ~= nil and type(o.columns) ~= 'table' then raise(OP, 'columns, a list of names, expected, got %s', util.show(o.columns)) end
  for i = 1, o.columns and #o.columns or #header do
    local k = o.columns and place_of(path, header, o.columns[i]) or i
    if o.columns or k ~= target then places[#places + 1], names[#names + 1] = k, header[k] end
  end
  if #places == 0 then raise(OP, "'%s' has no column beside the target", path) end
  local x = {}
  for i, r in ipairs(rows) do
    local one = {}
    for j, k in ipairs(places) do one[j] = number(path, r, names[j], r[k], o.missing) end
    x[i] = one
  end
  local tensors, classes = { amp.tensor(x, { dtype = 'float32', device = 'cpu' }) }, nil
  if target and is_text(rows, target) then tensors[2], classes = labels_of(rows, target)
  elseif target then
    local y = {}
    for i, r in ipairs(rows) do y[i] = number(path, r, header[target], r[target], o.missing) end
    tensors[2] = amp.tensor(y, { dtype = 'float32', device = 'cpu' })
  end
  local set = amp.data.TensorDataset(unpack(tensors))
  set.columns, set.target, set.classes = names, target and header[target], classes
  return set
end
