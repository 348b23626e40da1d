--- A real terminal for specs: a shell in tmux, keys sent to it, what it shows. A folder of
-- its own is HOME and the working directory.
local H = require 'spec.lib.helper'

local M = {}

M.available = os.execute 'command -v tmux >/dev/null 2>&1' == 0
M.reason = 'tmux is not installed here (Debian: apt install tmux)'

local Terminal = {}
Terminal.__index = Terminal
local count = 0

local function quote(s) return H.quote(s) end

function Terminal:tmux(command)
  local out = H.sh(('LD_PRELOAD= tmux -S %s %s'):format(quote(self.socket), command))
  return out
end

--- Start a shell.
-- @tparam ?table o columns, rows, env (text in front of the shell)
function M.start(o)
  o = o or {}
  count = count + 1
  local self = setmetatable({ home = H.tmp('home' .. count), socket = H.tmp('tmux' .. count) }, Terminal)
  os.execute('mkdir -p ' .. quote(self.home))
  local root, build = H.absolute(H.root), H.absolute(H.build)
  local bin, preload = root .. '/lua/bin', os.getenv 'LD_PRELOAD'
  if preload and preload ~= '' then -- a sanitizer's run time, which amp needs and the tools around it don't stand
    bin = H.tmp('bin' .. count)
    os.execute('mkdir -p ' .. quote(bin))
    H.write(bin .. '/amp', ('#!/bin/sh\nLD_PRELOAD=%s exec %s "$@"\n'):format(quote(preload), quote(root .. '/lua/bin/amp')))
    os.execute('chmod +x ' .. quote(bin .. '/amp'))
  end
  local env = ("cd %s && env -u AMP_HISTORY -u XDG_STATE_HOME HOME=%s PS1='$ ' PATH=%s:\"$PATH\" AMP_LIBRARY=%s LC_ALL=C.UTF-8 %s"):format(
    quote(self.home), quote(self.home), quote(bin), quote(build .. '/amp/libamp.so'), o.env or '')
  self:tmux(('-f /dev/null new-session -d -x %d -y %d %s'):format(o.columns or 80, o.rows or 24, quote(env .. ' bash --norc --noprofile')))
  self:wait '^%$'
  return self
end

--- End the shell and what runs in it, and wait until they are gone.
function Terminal:stop()
  local shell = self:tmux('display-message -p "#{pane_pid}"'):match '^%d+'
  local all = shell and (shell .. ' ' .. H.sh('LD_PRELOAD= pgrep -P ' .. shell):gsub('%s+', ' ')) or ''
  self:tmux 'kill-server'
  H.sh(('for p in %s; do n=0; while kill -0 $p && [ $n -lt 40 ]; do sleep 0.05; n=$((n + 1)); done; done'):format(all))
end

--- What is on the screen, without empty lines at its end.
function Terminal:screen() return (self:tmux('capture-pane -p'):gsub('%s+$', '')) end

--- Type text as it is, then keys by tmux's names ('Enter', 'C-c', 'Tab').
function Terminal:type(text, ...)
  text = text:gsub(';$', '\\;') -- which would end tmux's command
  if text ~= '' then self:tmux('send-keys -l ' .. quote(text)) end
  for _, key in ipairs { ... } do self:tmux('send-keys ' .. key) end
end

--- Wait until the screen matches a pattern (or contains a plain text); an error with the screen after some seconds.
function Terminal:wait(pattern, plain, seconds)
  local amp = require 'amp'
  local stop = amp.clock() + (seconds or 20)
  local screen
  repeat
    screen = self:screen()
    if screen:find(pattern, 1, plain) then return screen end
    os.execute 'sleep 0.05'
  until amp.clock() > stop
  error(('"%s" does not come to the screen:\n%s'):format(pattern, screen), 2)
end

--- Wait for text as it is.
function Terminal:expect(text, seconds) return self:wait(text, true, seconds) end

--- Press a key until the screen matches a pattern: two signals of a kind that come before a busy process runs
-- again are one.
function Terminal:press(key, pattern)
  for _ = 1, 50 do
    self:type('', key)
    if pcall(self.wait, self, pattern, false, 0.5) then return end
  end
  self:wait(pattern, false, 1)
end

--- Give amp a line and wait for its answer, of whole lines and the next prompt.
-- @tparam string line
-- @tparam string answer a pattern
-- @treturn string the screen
function Terminal:ask(line, answer)
  self:type(line, 'Enter')
  return self:wait('\n' .. answer .. '\namp>$')
end

--- Leave amp for the shell.
function Terminal:leave()
  self:type('', 'C-d')
  return self:wait '\n%$$'
end

--- Start amp and wait for its prompt.
function Terminal:amp(arguments)
  self:type('clear; amp ' .. (arguments or ''), 'Enter')
  return self:wait '\namp>$'
end

--- Whether the shell's terminal echoes and reads lines, as it did.
function Terminal:sane()
  self:type('clear; stty -a', 'Enter')
  local text = self:wait 'icanon.*%$$'
  return not text:find('-icanon', 1, true) and not text:find('-echo ', 1, true) and not text:find('-isig', 1, true) and not text:find('-opost', 1, true)
end

--- Process number of the amp that runs in the shell.
function Terminal:pid()
  local shell = self:tmux('display-message -p "#{pane_pid}"'):match '%d+'
  local out = H.sh('LD_PRELOAD= pgrep -P ' .. shell)
  return tonumber(out:match '%d+')
end

return M
