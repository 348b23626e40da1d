--- Places in a text of several lines, in bytes from 1, never within a character.
-- @module amp.repl.motion
local screens = require 'amp.repl.screen'

local M = {}

--- The character before position `at`.
function M.left_of(text, at)
  if at <= 1 then return 1 end
  at = at - 1
  while at > 1 and text:byte(at) >= 128 and text:byte(at) < 192 do at = at - 1 end
  return at
end

--- The character after the one at `at`.
function M.right_of(text, at)
  if at > #text then return #text + 1 end
  at = at + 1
  while at <= #text and text:byte(at) >= 128 and text:byte(at) < 192 do at = at + 1 end
  return at
end

--- The beginning of the word before `at`.
function M.word_left(text, at)
  local s = text:sub(1, at - 1):find '[%w_\128-\255]+[^%w_\128-\255]*$'
  return s or 1
end

--- The place after the word at or after `at`.
function M.word_right(text, at)
  local _, e = text:find('^[^%w_\128-\255]*[%w_\128-\255]+', at)
  return e and e + 1 or #text + 1
end

--- The beginning of the line.
function M.line_start(text, at)
  local s = text:sub(1, at - 1):match '.*()\n'
  return s and s + 1 or 1
end

--- The end of the line: its line feed, or the place after the text.
function M.line_end(text, at) return text:find('\n', at, true) or #text + 1 end

--- The place in the line above or below, in the same column as far as there is one
function M.vertical(text, at, up)
  local from = M.line_start(text, at)
  local column = screens.width(text:sub(from, at - 1))
  local start
  if up then
    if from == 1 then return nil end
    start = M.line_start(text, from - 1)
  else
    start = M.line_end(text, at) + 1
    if start > #text + 1 then return nil end
  end
  local stop = M.line_end(text, start)
  while start < stop and column > 0 do
    local nextc = M.right_of(text, start)
    column = column - screens.width(text:sub(start, nextc - 1))
    start = nextc
  end
  return start
end

return M
