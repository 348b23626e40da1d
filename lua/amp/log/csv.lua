--- CSV of scalars: a row a step, a column a name.
--
--   step,time,accuracy,loss
--   1,1716912345.125,,2.3025851
--
-- Names that come later get columns of their own: the file is then written anew, whole or not at all. Values
-- of one step that come after its row was written make a second row of that step.
local ffi = require 'ffi'
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

local function slurp(path)
  local f = io.open(path, 'rb')
  if not f then return nil end
  local text = f:read '*a'
  f:close()
  return text
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
  local self = setmetatable({path = path, columns = {'step', 'time'}, place = {step = 1, time = 2}}, Table)
  local text = slurp(path)
  if text and #text > 0 then
    local size = ends(text)[2]
    local first = parse(text:sub(1, size))[1]
    if size > 0 and not (first and first[1] == 'step' and first[2] == 'time') then
      return nil, "it is there already and no log of amp's: its first line does not begin with step,time"
    end
    if size < #text then
      local ok, why = files.truncate(path, size)
      if not ok then return nil, why end
    end
    if first then
      self.columns, self.place = first, {}
      for i, name in ipairs(first) do self.place[name] = i end
    end
    self.old = first ~= nil
  end
  local out, why = files.append(path)
  if not out then return nil, why end
  self.out = out
  return self
end

-- Columns were added: the rows so far, with the new header.
local function rewrite(self)
  local text = slurp(self.path) or ''
  local body = text:sub(ends(text)[1] + 1)
  self.out:close()
  local ok, why = file.replace(self.path, function(put)
    put(header(self.columns))
    put(body)
  end)
  if not ok then return nil, why end
  local out
  out, why = files.append(self.path)
  self.out = out
  return out ~= nil, why
end

--- Append a row.
-- @tparam number step
-- @tparam number time
-- @tparam table values name -> text of a number
-- @return true, or nil and the reason
function Table:write(step, time, values)
  local names, grown = {}, false
  for name in pairs(values) do
    if not self.place[name] then names[#names + 1] = name end
  end
  table.sort(names)
  if not self.written and self.old then self.written = {unpack(self.columns)} end
  for _, name in ipairs(names) do
    self.columns[#self.columns + 1] = name
    self.place[name] = #self.columns
    grown = true
  end
  local ok, why = true, nil
  if not self.written then ok, why = self.out:write(header(self.columns))
  elseif grown then ok, why = rewrite(self) end
  if not ok then return nil, why end
  if grown or not self.written then self.written = {unpack(self.columns)} end
  local row = {('%.0f'):format(step), ('%.3f'):format(time)}
  for i = 3, #self.columns do row[i] = '' end
  for name, v in pairs(values) do row[self.place[name]] = v end
  return self.out:write(table.concat(row, ',') .. '\n')
end

function Table:close() self.out:close() end

-- -- Reading ----------------------------------------------------------------------------------------

local special = {nan = 0 / 0, inf = math.huge, ['-inf'] = -math.huge}

--- The columns of a log.
-- @return name -> {steps, values}, lists without the empty cells, the last value of a step counting; or nil and the reason
function M.read(path)
  local f, why = io.open(path, 'rb')
  if not f then return nil, (why:gsub('^.*: ', '')) end
  local text = f:read '*a'
  f:close()
  if not text then return nil, 'not a regular file' end
  local rows = parse(text)
  local head = rows[1]
  if not head or head[1] ~= 'step' or head[2] ~= 'time' then return nil, "no log of amp's: its first line does not begin with step,time" end
  local out, at = {}, {}
  for c = 2, #head do out[head[c]], at[c] = {{}, {}}, {} end
  for r = 2, #rows do
    local step = tonumber(rows[r][1])
    if not step then return nil, ('line %d has no step but %q'):format(r, rows[r][1]) end
    for c = 2, #head do
      local s = rows[r][c]
      if s and s ~= '' then
        local v = special[s] or tonumber(s)
        if not v then return nil, ('line %d, column %q: no number but %q'):format(r, head[c], s) end
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

require('amp.class').guard(Table, 'log.csv', 'csv')

return M
