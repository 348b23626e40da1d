--- The line editor: one text of any number of lines, edited as a whole with the usual keys.
-- It is written in Lua over a raw terminal, and not over the readline library, because
-- readline asks for completions by calling back: LuaJIT can make such a callback, but a
-- callback that is entered from compiled code, or that raises, ends the process, and amp
-- has none anywhere. Readline also takes its input line by line, knows no Lua, and is not
-- on every machine; a prompt that is the same everywhere is the better one.
-- Keys come from amp.repl.keys, drawing is amp.repl.screen's, words to complete come from
-- the caller. Nothing here runs what was typed.
-- @module amp.repl.edit
local core = require 'amp.ffi'
local keys = require 'amp.repl.keys'
local motion = require 'amp.repl.motion'
local screens = require 'amp.repl.screen'
local C = core.C
local left_of, right_of, word_left, word_right = motion.left_of, motion.right_of, motion.word_left, motion.word_right
local line_start, line_end, vertical = motion.line_start, motion.line_end, motion.vertical

local M = {}

local Editor = {}
Editor.__index = Editor

local kill = '' -- what ctrl-k and its like took, for ctrl-y

-- -- Changing it ------------------------------------------------------------------------------------

-- Remember what was there; changes of one kind in a row are undone together.
function Editor:change(kind)
  if kind == nil or kind ~= self.last_kind then
    local u = self.undo
    u[#u + 1] = { self.text, self.cursor }
    if #u > 200 then table.remove(u, 1) end
  end
  self.last_kind = kind
end

function Editor:replace(from, to, with, kind)
  self:change(kind)
  self.text = self.text:sub(1, from - 1) .. with .. self.text:sub(to)
  self.cursor = from + #with
end

function Editor:insert(s, kind) self:replace(self.cursor, self.cursor, s, kind) end

local function cut(self, from, to)
  if from >= to then return end
  kill = self.text:sub(from, to - 1)
  self:replace(from, to, '')
end

-- Bytes that are no text would spoil the drawing.
local function clean(s)
  s = s:gsub('\r\n?', '\n'):gsub('[%z\1-\8\11-\31\127\192\193\245-\255]', '')
  local out = s:gsub('[\128-\255]+', function(run)
    return (run:gsub('[\128-\191]*([\194-\244]?[\128-\191]*)', function(c)
      local lead = c:byte() or 0
      local need = lead >= 240 and 4 or lead >= 224 and 3 or lead >= 194 and 2 or 0
      if need > 0 and #c >= need then return c:sub(1, need) end
      return ''
    end))
  end)
  return out
end
M.clean = clean

-- -- History ------------------------------------------------------------------------------------------

-- Entry k of the history, with what was done to it since this input began; 0 is the new text
function Editor:entry(k) return self.edited[k] or self.history[k] end

function Editor:go_to(k)
  self.edited[self.at] = self.text
  self.at = k
  self.text = self:entry(k)
  self.cursor = #self.text + 1
  self.undo, self.last_kind = {}, nil
end

local function older(self)
  local k = self.at == 0 and #self.history or self.at - 1
  if k >= 1 then self:go_to(k) end
end

local function newer(self)
  if self.at == 0 then return end
  self:go_to(self.at == #self.history and 0 or self.at + 1)
end

-- The nearest entry that begins with what stands before the cursor
local function by_prefix(self, step)
  local prefix, cursor = self.text:sub(1, self.cursor - 1), self.cursor
  local k = self.at == 0 and #self.history + 1 or self.at
  repeat k = k + step until k < 1 or k > #self.history or (self:entry(k):sub(1, #prefix) == prefix and self:entry(k) ~= self.text)
  if k > #self.history then
    if self.at ~= 0 then self:go_to(0) end
  elseif k >= 1 then
    self:go_to(k)
  end
  self.cursor = math.min(cursor, #self.text + 1)
end

-- ctrl-r: what is typed is looked for in older and older entries. Gives the key that ended it.
local function search(self)
  local pattern, at = '', self.at == 0 and #self.history + 1 or self.at
  local text, cursor = self.text, self.cursor
  local found = text
  local function look(from)
    for k = from, 1, -1 do
      local s = self.history[k]:find(pattern, 1, true)
      if s then
        found, at = self.history[k], k
        return s
      end
    end
  end
  local place, failed = cursor, false
  while true do
    local head = ('(%shistory: %s) '):format(failed and 'not in ' or '', pattern)
    self.screen:draw(found, place, head)
    local key, typed = keys.next()
    if key == 'signal' then
      if not self:look_at_signals(found, place, head) then return 'ctrl-c' end
    elseif key == 'text' or key == 'ctrl-r' or key == 'backspace' then
      local from = at
      if key == 'text' then pattern = pattern .. typed
      elseif key == 'backspace' then
        pattern = pattern:sub(1, left_of(pattern, #pattern + 1) - 1)
        from = #self.history
      else from = at - 1 end
      local s = pattern ~= '' and look(math.min(from, #self.history))
      failed = not s and pattern ~= ''
      place = s or place
    elseif key == 'ctrl-g' or key == 'ctrl-c' or key == 'escape' then
      self.text, self.cursor = text, cursor
      return key == 'ctrl-c' and key or nil
    else
      if at >= 1 and at <= #self.history and found ~= text then self:go_to(at) end
      self.cursor = math.min(place, #self.text + 1)
      return key, typed
    end
  end
end

-- -- Completion ----------------------------------------------------------------------------------------

local function common(words)
  local first = words[1]
  local n = #first
  for i = 2, #words do
    local k = 0
    while k < n and first:byte(k + 1) == words[i]:byte(k + 1) do k = k + 1 end
    n = k
  end
  return first:sub(1, n)
end

local function complete(self)
  local before = self.text:sub(1, self.cursor - 1)
  if keys.more '\t' or before:sub(line_start(before, #before + 1)):find '^%s*$' then return self:insert('  ', 'text') end
  local ok, found = pcall(self.completer, before)
  if not ok or not found or #found.words == 0 then return screens.write '\a' end
  local typed = before:sub(found.from)
  local text = common(found.words)
  if #found.words == 1 then text = text .. (found.suffix and found.suffix[found.words[1]] or '') end
  if #text > #typed or (#found.words == 1 and text ~= typed) then
    self:replace(found.from, self.cursor, text)
    if #found.words == 1 then return end
  end
  if #found.words > 1 then
    self.screen:draw(self.text, #self.text + 1)
    self.screen:list(found.shown or found.words)
    self.screen:again(self.text, self.cursor)
  end
end

-- -- Keys ------------------------------------------------------------------------------------------------

local act = {}

function act.text(self, s) self:insert(s, s:find '%s' and 'space' or 'text') end
function act.paste(self, s) self:insert((clean(s):gsub('\n+$', ''))) end -- Enter is the user's to press
act['alt-enter'] = function(self) self:insert '\n' end
act.left = function(self) self.cursor = left_of(self.text, self.cursor) end
act.right = function(self) self.cursor = right_of(self.text, self.cursor) end
act['ctrl-b'], act['ctrl-f'] = act.left, act.right
act['ctrl-left'] = function(self) self.cursor = word_left(self.text, self.cursor) end
act['ctrl-right'] = function(self) self.cursor = word_right(self.text, self.cursor) end
act['alt-b'], act['alt-left'] = act['ctrl-left'], act['ctrl-left']
act['alt-f'], act['alt-right'] = act['ctrl-right'], act['ctrl-right']
act.home = function(self) self.cursor = line_start(self.text, self.cursor) end
act['end'] = function(self) self.cursor = line_end(self.text, self.cursor) end
act['ctrl-a'], act['ctrl-e'] = act.home, act['end']
act['ctrl-home'] = function(self) self.cursor = 1 end
act['ctrl-end'] = function(self) self.cursor = #self.text + 1 end
act.up = function(self)
  local at = vertical(self.text, self.cursor, true)
  if at then self.cursor = at else older(self) end
end
act.down = function(self)
  local at = vertical(self.text, self.cursor, false)
  if at then self.cursor = at else newer(self) end
end
act['ctrl-p'], act['ctrl-n'] = act.up, act.down
act['page-up'] = function(self) by_prefix(self, -1) end
act['page-down'] = function(self) by_prefix(self, 1) end
act['alt-p'], act['alt-n'] = act['page-up'], act['page-down']
act['alt-<'] = function(self) if #self.history > 0 then self:go_to(1) end end
act['alt->'] = function(self) if self.at ~= 0 then self:go_to(0) end end
act.backspace = function(self)
  if self.cursor > 1 then self:replace(left_of(self.text, self.cursor), self.cursor, '', 'backspace') end
end
act.delete = function(self)
  local at = self.cursor
  if at <= #self.text then self:replace(at, right_of(self.text, at), '', 'delete') end
end
act['ctrl-k'] = function(self)
  local e = line_end(self.text, self.cursor)
  cut(self, self.cursor, e == self.cursor and e <= #self.text and e + 1 or e)
end
act['ctrl-u'] = function(self) cut(self, line_start(self.text, self.cursor), self.cursor) end
act['ctrl-w'] = function(self)
  local s = self.text:sub(1, self.cursor - 1):find '%S+%s*$'
  cut(self, s or 1, self.cursor)
end
act['alt-backspace'] = function(self) cut(self, word_left(self.text, self.cursor), self.cursor) end
act['alt-d'] = function(self) cut(self, self.cursor, word_right(self.text, self.cursor)) end
act['ctrl-delete'] = act['alt-d']
act['ctrl-y'] = function(self) if kill ~= '' then self:insert(kill) end end
act['ctrl-t'] = function(self)
  local text, at = self.text, math.min(self.cursor, left_of(self.text, #self.text + 1))
  local a, e = left_of(text, at), right_of(text, at)
  if at > 1 and text:sub(a, a) ~= '\n' and text:sub(at, at) ~= '\n' then
    self:replace(a, e, text:sub(at, e - 1) .. text:sub(a, at - 1))
  end
end
act['ctrl-_'] = function(self)
  local u = table.remove(self.undo)
  if u then self.text, self.cursor, self.last_kind = u[1], u[2], nil end
end
act['ctrl-l'] = function(self)
  screens.write '\27[H\27[2J'
  self.screen:again(self.text, self.cursor)
end
act.tab = complete

-- Keys after which an undo goes no further back
local quiet = { text = true, backspace = true, delete = true }

-- -- Reading -----------------------------------------------------------------------------------------------

-- A signal came; false: it was ctrl-c
function Editor:look_at_signals(text, cursor, head)
  local tty = self.tty
  if tty.interrupts > 0 then
    tty.interrupts = 0
    return false
  end
  if tty.resumed ~= 0 then
    tty.resumed = 0
    self.screen:again(text, cursor)
  end
  if tty.resized ~= 0 then
    tty.resized = 0
    self.screen:resize(text, cursor, head)
  end
  return true
end

local function loop(self)
  while true do
    if self.tty.resized ~= 0 or self.tty.resumed ~= 0 then self:look_at_signals(self.text, self.cursor) end
    -- what comes faster than it can be drawn is drawn once
    if not keys.more() then self.screen:draw(self.text, self.cursor) end
    local key, typed = keys.next()
    if key == 'ctrl-r' then
      key, typed = search(self)
      self.screen.shown = nil
    end
    if key == 'closed' then return nil end
    if key == 'ctrl-d' then
      if self.text == '' then return nil end
      key = 'delete'
    end
    if key == 'signal' and not self:look_at_signals(self.text, self.cursor) then key = 'ctrl-c' end
    if key == 'ctrl-c' then
      self.screen:draw(self.text, #self.text + 1)
      screens.write '^C\r\n'
      return false
    elseif key == 'ctrl-z' then
      self.screen:finish(self.text)
      C.amp_tty_raw(0)
      self.stop()
      C.amp_tty_raw(1)
      self.screen:again(self.text, self.cursor)
    elseif key == 'enter' then
      if self.whole(self.text) then
        self.screen:finish(self.text)
        return self.text
      end
      self:insert '\n'
    elseif act[key] then
      act[key](self, typed)
      if not quiet[key] then self.last_kind = nil end
    end
  end
end

--- Read one input.
-- @tparam table o first, next (prompts), history (list), completer (function of the text before
-- the cursor: {from, words, suffix, shown}), whole (function of the text: is it complete?), stop
-- (function that stops the process), tty (amp_tty)
-- @return the text; false after ctrl-c; nil at the end of input
function M.read(o)
  local self = setmetatable({
    text = '', cursor = 1, undo = {}, edited = { [0] = '' }, at = 0, history = o.history, completer = o.completer, whole = o.whole,
    stop = o.stop, tty = o.tty,
  }, Editor)
  if C.amp_tty_raw(1) ~= 0 then return nil end
  local ok, text = pcall(function()
    screens.fresh_line()
    self.screen = screens.new(o.first, o.next)
    o.tty.interrupts, o.tty.resized, o.tty.resumed = 0, 0, 0
    return loop(self)
  end)
  C.amp_tty_raw(0)
  if not ok then error(text, 0) end
  return text
end

return M
