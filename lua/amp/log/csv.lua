--- CSV of scalars: a row a step, a column a name.
--
--   step,time,accuracy,loss
--   1,1716912345.125,,2.3025851
--
-- Names that come later get columns of their own: the file is then written anew, whole or not at all. Values
-- of one step that come after its row was written make a second row of that step.
local ffi = require 'ffi'
local L = require('amp.ffi').C
local file = require 'amp.io.file'
local files = require 'amp.log.files'

local M = {}
local Table = {}
Table.__index = Table

-- -- Cells -----------------------------------------------------------------------------------

local function cell(text)
  if text:find '[,"\r\n]' then return '"' .. text:gsub('"', '""') .. '"' end
  return text
end

--- A number as text that gives the same number again; of float32 (single), the same float32.
function M.number(v, single)
  if v ~= v then return 'nan' end
  if v == math.huge then return 'inf' elseif v == -math.huge then return '-inf' end
  for digits = single and 7 or 15, single and 9 or 17 do
    local text = ('%%.%dg'):format(digits):format(v)
    if digits == (single and 9 or 17) or tonumber(text) == v or single and tonumber(ffi.cast('float', tonumber(text))) == v then return text end
  end
end

-- Rows of a text: lists of cells; the last is left out if it does not end with its line.
local function parse(text)
  local rows, at, n = {}, 1, #text
  while at <= n do
    local row, done = {}, false
    while true do
      local value
      if text:sub(at, at) == '"' then
        local parts, from = {}, at + 1
        while true do
          local quote = text:find('"', from, true)
          if not quote then return rows, at end
          parts[#parts + 1] = text:sub(from, quote - 1)
          from = quote + 1
          if text:sub(from, from) ~= '"' then break end
          parts[#parts + 1] = '"'
          from = from + 1
        end
        value, at = table.concat(parts), from
      else
        local stop = text:find('[,\r\n]', at) or n + 1
        value, at = text:sub(at, stop - 1), stop
      end
      row[#row + 1] = value
      local c = text:sub(at, at)
      if c == ',' then at = at + 1
      elseif c == '\r' and text:sub(at + 1, at + 1) == '\n' then
        at, done = at + 2, true
        break
      elseif c == '\n' then
        at, done = at + 1, true
        break
      else
        break
      end
    end
    if not done then break end
    rows[#rows + 1] = row
  end
  return rows
end

-- Where the first and the last whole row of a text end: {first, last}, 0 where there is none.
local function ends(text)
  local at, quoted = {0, 0}, false
  for i = 1, #text do
    local c = text:byte(i)
    if c == 34 then quoted = not quoted
    elseif c == 10 and not quoted then at = {at[1] > 0 and at[1] or i, i} end
  end
  return at
end

-- -- Writing --------------------------------------------------------------------------------------

local function header(columns)
  local list = {}
  for i, name in ipairs(columns) do list[i] = cell(name) end
  return table.concat(list, ',') .. '\n'
end

--- Open a table, or go on with one: a row that was cut off is taken away.
-- @return a table, or nil and the reason
function M.open(path)
  local self = setmetatable({path = path, columns = {'step', 'time'}, place = {step = 1, time = 2}, written = 0}, Table)
  local text, why
  if L.amp_file_kind(path, 1, nil) ~= L.AMP_FILE_NONE then
    text, why = file.text(path)
    if not text then return nil, why end
  end
  if text and #text > 0 then
    local size = ends(text)[2]
    local first = parse(text:sub(1, size))[1]
    if size > 0 and not (first and first[1] == 'step' and first[2] == 'time') then
      return nil, "it is there already and no log of amp's: its first line does not begin with step,time"
    end
    if size < #text then
      local ok
      ok, why = files.truncate(path, size)
      if not ok then return nil, why end
    end
    if first then
      self.columns, self.place, self.written = first, {}, #first
      for i, name in ipairs(first) do self.place[name] = i end
    end
  end
  self.out, why = files.append(path)
  if not self.out then return nil, why end
  return self
end

-- Columns were added: the rows so far, with the new header. The old file stays the one that is appended to until the new
-- one is there.
local function rewrite(self)
  local text, why = file.text(self.path)
  if not text then return nil, why end
  local body = text:sub(ends(text)[1] + 1)
  local ok
  ok, why = file.replace(self.path, function(put)
    put(header(self.columns))
    put(body)
  end)
  if not ok then return nil, why end
  self.out:close()
  self.out, why = files.append(self.path)
  return self.out ~= nil, why
end

--- Append a row: all of it, or nothing.
-- @tparam number step
-- @tparam number time
-- @tparam table values name -> text of a number
-- @return true, or nil and the reason
function Table:write(step, time, values)
  local names = {}
  for name in pairs(values) do
    if not self.place[name] then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    self.columns[#self.columns + 1] = name
    self.place[name] = #self.columns
  end
  local ok, why = true
  if not self.out then
    self.out, why = files.append(self.path)
    if not self.out then return nil, why end
  end
  if self.written == 0 then ok, why = self.out:write(header(self.columns))
  elseif self.written < #self.columns then ok, why = rewrite(self) end
  if not ok then return nil, why end
  self.written = #self.columns
  local row = {('%.0f'):format(step), ('%.3f'):format(time)}
  for i = 3, #self.columns do row[i] = '' end
  for name, v in pairs(values) do row[self.place[name]] = v end
  return self.out:write(table.concat(row, ',') .. '\n')
end

function Table:close()
  if self.out then self.out:close() end
end

-- -- Reading ----------------------------------------------------------------------------------------

local special = {nan = 0 / 0, inf = math.huge, ['-inf'] = -math.huge}

local MOST_COLUMNS = 2 ^ 16

--- The columns of a log.
-- @return name -> {steps, values}, lists without the empty cells, the last value of a step counting; or nil and the reason
function M.read(path)
  local text, why = file.text(path)
  if not text then return nil, why end
  local rows = parse(text)
  local head = rows[1]
  if not head or head[1] ~= 'step' or head[2] ~= 'time' then return nil, "no log of amp's: its first line does not begin with step,time" end
  if #head > MOST_COLUMNS then return nil, ('its first line has %d columns'):format(#head) end
  local out, at = {}, {}
  for c = 2, #head do
    if out[head[c]] then return nil, ("the column '%s' is there twice"):format(head[c]:sub(1, 40)) end
    out[head[c]], at[c] = {{}, {}}, {}
  end
  for r = 2, #rows do
    local row = rows[r]
    local step = tonumber(row[1])
    if not step or step - step ~= 0 then return nil, ("line %d has no step but '%s'"):format(r, row[1]:sub(1, 40)) end
    for c = 2, math.min(#head, #row) do
      local s = row[c]
      if s ~= '' then
        local v = special[s] or tonumber(s)
        if not v then return nil, ("line %d, column '%s': no number but '%s'"):format(r, head[c]:sub(1, 40), s:sub(1, 40)) end
        local column = out[head[c]]
        local i = at[c][step]
        if not i then
          i = #column[1] + 1
          at[c][step] = i
        end
        column[1][i], column[2][i] = step, v
      end
    end
  end
  return out
end

require('amp.core.class').guard(Table, 'log.csv', 'csv')

return M
