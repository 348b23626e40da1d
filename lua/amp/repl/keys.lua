--- Keys from the bytes that a terminal sends: names ('left', 'ctrl-a', 'alt-b', 'enter'),
-- runs of text, whole pastes. What was read and not used stays for the next call.
-- @module amp.repl.keys
local ffi = require 'ffi'
local C = require('amp.ffi').C

local M = {}

local SIZE = 4096
local buffer = ffi.new('char[?]', SIZE)
local pending = ''

local PATIENCE = 0.05 -- seconds that the rest of a key's bytes may take
local PASTE_PATIENCE = 3 -- and of a paste's

-- Read more bytes; 'closed', 'signal', 'late' or nil
local function fill(seconds)
  local n = C.amp_tty_read(buffer, SIZE, seconds)
  if n > 0 then
    pending = pending .. ffi.string(buffer, n)
    return nil
  end
  return n == 0 and 'late' or n == -2 and 'signal' or 'closed'
end

local function take(n)
  local s = pending:sub(1, n)
  pending = pending:sub(n + 1)
  return s
end

--- Whether more keys are waiting: the sender is faster than a typist.
-- @tparam ?string but a character that does not count
function M.more(but)
  if pending == '' then fill(0) end
  return pending ~= '' and not (but and pending == but:rep(#pending))
end

local csi = {
  A = 'up', B = 'down', C = 'right', D = 'left', H = 'home', F = 'end', Z = 'shift-tab',
  ['1~'] = 'home', ['7~'] = 'home', ['4~'] = 'end', ['8~'] = 'end', ['3~'] = 'delete', ['5~'] = 'page-up', ['6~'] = 'page-down',
  ['1;5C'] = 'ctrl-right', ['1;5D'] = 'ctrl-left', ['1;3C'] = 'alt-right', ['1;3D'] = 'alt-left', ['1;5A'] = 'up', ['1;5B'] = 'down',
  ['1;5H'] = 'ctrl-home', ['1;5F'] = 'ctrl-end', ['3;5~'] = 'ctrl-delete', ['3;3~'] = 'ctrl-delete',
  ['13;2u'] = 'alt-enter', ['13;3u'] = 'alt-enter', ['13;5u'] = 'alt-enter', ['27;2;13~'] = 'alt-enter',
}
local control = { [9] = 'tab', [13] = 'enter', [10] = 'enter', [8] = 'backspace', [127] = 'backspace', [31] = 'ctrl-_', [0] = 'ctrl-space' }

local function paste()
  local last
  repeat
    last = pending:find('\27[201~', 1, true)
    if not last then
      local before = #pending
      local what = fill(PASTE_PATIENCE)
      if what == 'closed' or (what == 'late' and #pending == before) then last = #pending + 1 end
    end
  until last
  local text = take(last - 1)
  if pending:sub(1, 6) == '\27[201~' then take(6) end
  return text
end

local function escape()
  if #pending == 1 then fill(PATIENCE) end
  while pending:find '^\27%[[%d;?]*$' or pending == '\27O' do
    if fill(PATIENCE) == 'late' then break end
  end
  local body = pending:match '^\27%[([%d;?]*[%a~^$@])'
  if body then
    take(#body + 2)
    if body == '200~' then return 'paste', paste() end
    return csi[body] or 'unknown'
  end
  body = pending:match '^\27O(%a)'
  if body then
    take(3)
    return csi[body] or 'unknown'
  end
  if #pending == 1 then
    take(1)
    return 'escape'
  end
  local c = pending:byte(2)
  if c == 27 then -- an escape of its own, or alt with an arrow
    take(1)
    return 'escape'
  end
  take(2)
  if c >= 128 then return 'unknown' end
  local name = control[c] or (c < 32 and 'ctrl-' .. string.char(c + 96)) or string.char(c)
  return 'alt-' .. name
end

-- Bytes of the character at the head of what waits; nil: they are no UTF-8
local function utf8_length(c)
  if c < 128 then return 1 end
  if c >= 194 and c < 224 then return 2 end
  if c >= 224 and c < 240 then return 3 end
  if c >= 240 and c < 245 then return 4 end
end

--- The next key.
-- @treturn string its name; 'text' and 'paste' come with a text; 'signal': look at amp_tty; 'closed': nobody types any more
-- @treturn ?string text
function M.next()
  if pending == '' then
    local what = fill(-1)
    if what then return what == 'late' and 'signal' or what end
  end
  local c = pending:byte()
  if c == 27 then return escape() end
  if c < 32 or c == 127 then
    take(1)
    return control[c] or 'ctrl-' .. string.char(c + 96)
  end
  local run = pending:match '^[\32-\126]+'
  if run then return 'text', take(#run) end
  local n = utf8_length(c)
  if not n then
    take(1)
    return 'unknown'
  end
  while #pending < n do
    if fill(PATIENCE) then break end
  end
  local s = pending:sub(1, n)
  if #s < n or not s:find '^.[\128-\191]+$' then
    take(1)
    return 'unknown'
  end
  return 'text', take(n)
end

return M
