--- What inputs read: io.read, io.lines and io.stdin ask who sits in front of the notebook (input_request of Jupyter's protocol). Each
-- answer is a line. A front end that takes no questions (allow_stdin) gets none: then there is nothing to read, as before.
local err = require 'amp.error'

local M = {}

-- -- What was answered and not read yet ---------------------------------------------------------------

local rest, ask = '', nil

-- Asks for another line; false: nobody is there to be asked.
local function more()
  local line = ask()
  if line then rest = rest .. line .. '\n' end
  return line ~= nil
end

local function take(n)
  local text = rest:sub(1, n)
  rest = rest:sub(n + 1)
  return text
end

local function line(keep)
  if not rest:find('\n', 1, true) and not more() then return rest ~= '' and take(#rest) or nil end
  local text = take((rest:find('\n', 1, true)))
  return keep and text or text:sub(1, -2)
end

local function number()
  while not rest:find '%S' do
    if not more() then return nil end
  end
  local blank, word = rest:match '^(%s*)([%w.+-]*)'
  local n = tonumber(word)
  if n then take(#blank + #word) end
  return n
end

local function characters(n)
  while rest == '' or #rest < n do
    if not more() then break end
  end
  return rest ~= '' and take(n) or n == 0 and '' or nil
end

local function all()
  if rest == '' then more() end -- nobody says that there is no more: one answer is all
  return take(#rest)
end

local function one(format)
  if type(format) == 'number' then return characters(format) end
  local letter = type(format) == 'string' and format:match '^%*?([lLna])'
  if letter == 'l' then return line(false)
  elseif letter == 'L' then return line(true)
  elseif letter == 'n' then return number()
  elseif letter == 'a' then return all() end
  err.throw(nil, "io.read takes '*l', '*L', '*n', '*a' and numbers, got %s", require('amp.util').show(format))
end

local function read(...)
  local n, got = select('#', ...), {}
  if n == 0 then return line(false) end
  for i = 1, n do
    got[i] = one((select(i, ...)))
    if got[i] == nil then return unpack(got, 1, i) end
  end
  return unpack(got, 1, n)
end

-- -- In place of Lua's own ---------------------------------------------------------------------------------

--- Forgets what was answered: the next input asks anew.
function M.clear() rest = '' end

--- Has Lua's functions read answers.
-- @tparam function fn asks for a line: a text, or nil where nobody can be asked
function M.take(fn)
  ask = fn
  local methods = getmetatable(io.stdin).__index
  local of_file, lines_of, of_io, lines_io = methods.read, methods.lines, io.read, io.lines
  local mine = io.stdin
  local function each(...)
    local formats = { n = select('#', ...), ... }
    return function() return read(unpack(formats, 1, formats.n)) end
  end
  methods.read = function(self, ...) -- luacheck: ignore 122
    if self == mine then return read(...) end
    return of_file(self, ...)
  end
  methods.lines = function(self, ...) -- luacheck: ignore 122
    if self == mine then return each(...) end
    return lines_of(self, ...)
  end
  io.read = function(...) -- luacheck: ignore 122
    if io.input() == mine then return read(...) end
    return of_io(...)
  end
  io.lines = function(name, ...) -- luacheck: ignore 122
    if name == nil and io.input() == mine then return each(...) end
    return lines_io(name, ...)
  end
end

return M
