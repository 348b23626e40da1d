--- The prompt in a real terminal: editing, history, completion, pastes, interrupts, signals.
local H = require 'spec.lib.helper'
local terminal = require 'spec.lib.terminal'

local open = {}
local function start(o)
  local t = terminal.start(o)
  open[#open + 1] = t
  return t
end

-- A case that needs a terminal
local function case(name, fn)
  it(name, function()
    if not terminal.available then return pending(terminal.reason) end
    local ok, why = pcall(fn)
    for i = #open, 1, -1 do
      open[i]:stop()
      open[i] = nil
    end
    if not ok then error(why, 0) end
  end)
end

describe('amp at a terminal', function()
  case('greets, shows results, keeps three of them, and ends with Ctrl-D and a sane terminal', function()
    local t = start()
    local greeting = t:amp()
    assert.is_truthy(greeting:find('amp 0.', 1, true), greeting)
    t:ask('1 + 1', '2')
    t:type('"a" .. "b"', 'Enter')
    t:expect "'ab'"
    t:type('amp.ones(2, 3)', 'Enter')
    t:expect '[amp.Tensor of size 2x3, float32, cpu]'
    t:type('___ .. __ .. _:sum():item()', 'Enter')
    t:expect "'2ab6'"
    t:type('5 * 5;', 'Enter')
    local screen = t:ask('_ * 2', '50')
    assert.is_nil(screen:find('\n25\n', 1, true), screen)
    t:leave()
    assert.is_true(t:sane())
  end)
  case('edits: words, kill and yank, undo, ends of the line', function()
    local t = start()
    t:amp()
    t:type('one two', 'C-w', 'C-w', 'C-y')
    t:type("'", 'C-a')
    t:type("'", 'Enter')
    t:wait "\n'one '\namp>$" -- keys that edit are typed at a prompt
    t:type('12', 'Left', 'BSpace')
    t:type('4', 'End')
    t:type('0', 'Home')
    t:ask('1', '1420')
    t:type('7 + x', 'BSpace', 'C-_')
    t:type('', 'C-u')
    t:ask('8', '8')
    t:type("('äö日本'):len()", 'Left', 'Left', 'Left', 'Left', 'Left', 'Left', 'Left', 'Left', 'Left', 'BSpace', 'Enter') -- on the line, after ö
    t:wait '\n%d+\namp>$'
  end)
  case('takes an input of several lines, and brings it back as one', function()
    local t = start()
    t:amp()
    t:type('function f(x)', 'Enter')
    t:expect '...>'
    t:type('  return x + 1', 'Enter')
    t:type('end', 'Enter')
    t:ask('f(41)', '42')
    t:type('', 'Up', 'Up', 'Up', 'End', 'BSpace')
    t:type('2', 'Enter') -- Up: f(41); the function, its end; the line above
    t:ask('f(41)', '43')
    t:type('amp.ones(2,', 'Enter')
    t:type('', 'C-c') -- gives up what is not complete
    t:type('6 * 7', 'Enter')
    t:wait '%^C\namp> 6 %* 7\n42\namp>$'
  end)
  case('remembers from session to session, searches with Ctrl-R', function()
    local t = start()
    t:amp()
    t:type('alpha = 5', 'Enter')
    t:type('beta = 6', 'Enter')
    t:leave()
    t:amp()
    t:type('', 'Up', 'Up', 'Enter')
    t:ask('alpha', '5')
    t:type('', 'C-r')
    t:type 'beta'
    t:expect '(history: beta) beta = 6'
    t:type('', 'Enter')
    t:ask('beta', '6')
    t:leave()
    local file = H.read(t.home .. '/.local/state/amp/history')
    assert.equal('alpha = 5\nbeta = 6\nalpha = 5\nalpha\nbeta = 6\nbeta\n', file)
    local mode = H.sh(("stat -c %%a '%s/.local/state/amp/history'"):format(t.home))
    assert.equal('600\n', mode)
  end)
  case('completes methods, fields, names, options, files, help', function()
    local t = start()
    H.write(t.home .. '/weights.npy', '')
    os.execute("mkdir '" .. t.home .. "/checkpoints'")
    t:amp()
    t:type('x = amp.ones(2)', 'Enter')
    t:type('x:requires_gr', 'Tab')
    t:expect 'x:requires_grad_'
    t:type('', 'C-u')
    t:type('x:is_conti', 'Tab')
    t:expect 'x:is_contiguous'
    t:type('', 'C-u')
    t:type('amp.nn.MultiheadA', 'Tab')
    t:expect 'amp.nn.MultiheadAttention'
    t:type('', 'C-u')
    t:type('net = amp.nn.Sequential(amp.nn.Linear(2, 2));', 'Enter')
    t:type('net:named_p', 'Tab')
    t:expect 'net:named_parameters'
    t:type('', 'C-u')
    t:type('amp.optim.SGD(net:parameters(), {lr = 1, nest', 'Tab')
    t:expect 'lr = 1, nesterov ='
    t:type('', 'C-u')
    t:type('x:softmax(1, {dt', 'Tab')
    t:expect '{dtype ='
    t:type('', 'C-u')
    t:type('io.open("wei', 'Tab')
    t:expect 'io.open("weights.npy"'
    t:type('', 'C-u')
    t:type('io.open("./che', 'Tab')
    t:expect 'io.open("./checkpoints/'
    t:type('', 'C-u')
    t:type('?log_soft', 'Tab')
    t:expect '?log_softmax'
    t:type('', 'C-u')
    t:type('amp.optim.', 'Tab')
    t:expect 'AdamW'
    t:type('', 'C-u')
    t:type('repe', 'Tab')
    t:expect 'repeat'
  end)
  case('runs a pasted script of 200 lines as one input, with or without brackets', function()
    local lines = { '-- a script', "local amp = require 'amp'", 'local total = 0' }
    for i = 1, 48 do
      for line in ('local function f%d(x)\n\tlocal y = x + %d\n  return y\nend\n'):format(i, i):gmatch '([^\n]+)\n' do lines[#lines + 1] = line end
    end
    for _, line in ipairs { 'for i = 1, 3 do', '  total = total + f48(i)', 'end', "print('total', total, amp.ones(2):sum():item())", '' } do
      lines[#lines + 1] = line
    end
    assert.equal(200, #lines)
    H.write(H.tmp 'paste.lua', table.concat(lines, '\n'))
    for _, how in ipairs { '-p', '' } do
      local t = start { rows = 10 }
      t:amp()
      t:tmux(("load-buffer '%s'"):format(H.tmp 'paste.lua'))
      t:tmux('paste-buffer ' .. how)
      if how == '-p' then t:expect "print('total', total, amp.ones(2):sum():item())" end
      t:type('', 'Enter')
      t:wait 'total%s+150%s+2'
      t:ask('f1(1) + total', '152')
      t:stop()
    end
  end)
  case('Ctrl-C stops loops of Lua and of ops, and the session goes on', function()
    local t = start()
    t:amp()
    for _, code in ipairs {
      'while true do end', 'local x = amp.ones(8, 8) while true do x = x:matmul(x) end', 'while true do pcall(function() while true do end end) end',
      'amp.autocast(function() while true do end end)',
      'amp.no_grad(function() while true do amp.ones(3):add(1) end end)',
      'coroutine.wrap(function() while true do end end)()', 'io.read()', "os.execute('sleep 60')",
    } do
      t:type('clear = 1', 'Enter', 'C-l')
      t:type('print(6 * 7) ' .. code, 'Enter')
      t:wait '\n42$'
      os.execute 'sleep 0.1'
      t:type('', 'C-c')
      os.execute 'sleep 0.2'
      if code:find 'pcall' then t:type('', 'C-c') end
      local screen = t:wait '%^C.*\namp>$'
      if not code:find 'os.execute' then assert.is_truthy(screen:find 'interrupted', code .. '\n' .. screen) end
    end
    t:type('', 'C-l')
    t:type('amp.is_grad_enabled(), amp.is_autocast_enabled(), clear', 'Enter')
    t:expect 'true  false  1'
  end)
  case('says how a loop that nothing can stop is ended: by a third Ctrl-C', function()
    local t = start()
    H.write(t.home .. '/spin.lua', 'print(6 * 7) local n = 0 while true do n = n + 1 end')
    t:amp()
    t:type("dofile 'spin.lua'", 'Enter')
    t:wait '\n42$'
    os.execute 'sleep 0.3'
    t:press('C-c', 'once more ends amp')
    t:press('C-c', '\n%$$')
    assert.is_true(t:sane())
    t:type('clear; amp spin.lua', 'Enter') -- in a script the second one does
    t:wait '42$'
    os.execute 'sleep 0.3'
    t:press('C-c', '\n%$$')
    t:type('', 'C-u')
    t:type('clear; echo done', 'Enter')
    t:wait '^done\n%$$'
  end)
  case('errors have no frames of the prompt, and name lines of the input', function()
    local t = start { columns = 120 }
    t:amp()
    t:ask('error "plain"', 'input 1:1: plain')
    t:type('amp.ones(2, 3):matmul(amp.ones(2, 3))', 'Enter')
    t:wait 'input 2:1: amp.matmul: shapes 2x3 and 2x3 do not match'
    t:type('function deep() error "below" end', 'Enter')
    t:type('function outer() deep() end', 'Enter')
    t:type('outer()', 'Enter')
    local screen = t:wait "in function 'outer'"
    for _, no in ipairs { 'repl/', 'xpcall', 'cli', 'bin/amp' } do assert.is_nil(screen:find(no, 1, true), screen) end
    t:type('x = = 1', 'Enter')
    t:wait "input 6:1: unexpected symbol near '='"
    t:ask('error({})', 'table: 0x%x+')
    t:type('error(setmetatable({}, {__tostring = function() error "x" end}))', 'Enter')
    t:expect 'can not be shown'
  end)
  case('is not confused by output without an end of line, nor by results that fail to print', function()
    local t = start()
    t:amp()
    t:ask('io.write "abc"', 'abc.?')
    t:type('setmetatable({}, {__tostring = function() error "bad tostring" end})', 'Enter')
    t:wait 'can not be shown.*\namp>$'
  end)
  case('follows the size of the window, down to very small ones', function()
    local t = start()
    t:amp()
    t:type 'amp.ones(2, 3):sum():item() + 100'
    for _, size in ipairs { '-x 10 -y 4', '-x 3 -y 2', '-x 2 -y 1', '-x 100 -y 30' } do
      t:tmux('resize-window ' .. size)
      os.execute 'sleep 0.1'
      t:type('0', 'BSpace')
    end
    t:ask('', '106')
  end)
  case('leaves the terminal sane whatever signal ends or stops it', function()
    local t = start()
    local signals = { 'TERM', 'HUP', 'QUIT', 'USR1', 'SEGV', 'ABRT' }
    for i, signal in ipairs(signals) do
      if i > 4 and os.getenv 'AMP_SPEC_SANITIZED' then break end -- the sanitizer takes these itself
      t:amp()
      t:type 'half a li'
      t:wait 'half a li$' -- else the shell reads it
      os.execute(('kill -%s %d'):format(signal, t:pid()))
      t:wait '%$ ?$'
      t:type('', 'C-u', 'Enter')
      assert.is_true(t:sane(), signal)
    end
    t:amp()
    t:type '1 + '
    t:type('', 'C-z')
    t:expect 'Stopped'
    assert.is_true(t:sane())
    t:type('fg', 'Enter')
    t:wait 'amp> 1 %+$'
    t:ask('1', '2')
    t:type '3 + '
    os.execute('kill -STOP ' .. t:pid())
    t:expect 'Stopped'
    t:type('stty sane; fg', 'Enter')
    t:wait 'amp> 3 %+$'
    os.execute('kill -TSTP ' .. t:pid())
    t:wait 'Stopped.*Stopped'
    t:type('fg', 'Enter')
    t:wait 'fg\namp.*\namp> 3 %+$'
    os.execute('kill -INT ' .. t:pid())
    t:expect '3 + ^C'
    t:ask('4', '4')
  end)
  case('reads lines where the terminal can do no more', function()
    local t = start()
    t:type('TERM=dumb amp', 'Enter')
    t:expect 'amp>'
    t:ask('6 * 7', '42')
    t:type('for i = 1, 2 do', 'Enter')
    t:expect '...>'
    t:type('print(i)', 'Enter')
    t:type('end', 'Enter')
    t:wait '1\n2\namp>$'
    t:type('abc', 'C-c')
    t:ask('8', '8')
    t:leave()
  end)
  case('stays after a script with -i, its variables there, locals too', function()
    local t = start()
    H.write(t.home .. '/train.lua', [[
      local amp = require 'amp'
      local net = amp.nn.Linear(2, 1)
      local function double(x) return 2 * x end
      print('args', ...)
      last = 5]])
    t:type('amp -i train.lua one two', 'Enter')
    t:wait 'args%s+one%s+two\namp>$'
    t:ask('double(last)', '10')
    t:type('net', 'Enter')
    t:expect 'nn.Linear(2 -> 1'
    t:type('', 'C-d')
    H.write(t.home .. '/fails.lua', 'local x = 7\nerror "no"\n')
    t:type('clear; amp -i fails.lua', 'Enter')
    t:wait 'fails.lua:2: no.*\namp>$'
    t:ask('x', '7')
  end)
  case('a home that can not be written, and history files of any kind, are no obstacle', function()
    local t = start()
    local state = t.home .. '/.local/state/amp'
    H.sh(("mkdir -p '%s'"):format(state))
    for _, make in ipairs {
      "head -c 300000 /dev/urandom > '%s/history'", "mkdir '%s/history'", "mkfifo '%s/history'", "ln -s /dev/zero '%s/history'", "ln -s nowhere/x '%s/history'",
      "printf 'a\\\\q\\\\\\nfine = 1\\n\\000\\n\\377\\n' > '%s/history'",
      ": > '%s/history'; chmod 000 '%s/history'",
    } do
      H.sh(("rm -rf '%s/history'; "):format(state) .. make:gsub('%%s', state))
      t:amp()
      t:type('', 'Up', 'C-u')
      t:ask('6 * 7', '42')
      t:leave()
    end
    H.sh(("rm -rf '%s/history'"):format(state))
    for _, env in ipairs { 'HOME=/proc/nowhere', 'HOME=', '-u HOME', 'AMP_HISTORY=/proc/nowhere/h', 'AMP_HISTORY=', 'XDG_STATE_HOME=/sys' } do
      t:type('clear; env ' .. env .. ' amp', 'Enter')
      t:wait '\namp>$'
      t:ask('6 * 7', '42')
      t:leave()
    end
  end)
  case('its own commands: time, who, load, locals, shell, quit', function()
    local t = start()
    H.write(t.home .. '/lib.lua', 'local value = 11\n')
    t:amp()
    t:ask(':time amp.ones(2):sum():item()', '2\n%([%d.]+ %a+%)')
    t:type(':time on', 'Enter')
    t:ask('3', '3\n%([%d.]+ %a+%)')
    t:type(':time off', 'Enter')
    t:type(':load lib.lua', 'Enter')
    t:type('local other = amp.ones(2)', 'Enter')
    t:type('', 'C-l')
    t:type(':who', 'Enter')
    local screen = t:wait 'value%s+11'
    assert.is_truthy(screen:find('other', 1, true), screen)
    t:ask('$ echo from the shell', 'from the shell')
    t:type(':quite', 'Enter')
    t:expect "did you mean 'quit'"
    t:type(':locals off', 'Enter')
    t:type('local hidden = 1', 'Enter')
    t:ask('hidden', 'nil')
    t:type(':quit', 'Enter')
    t:wait '\n%$$'
  end)
  case('takes 30 ms of a processor to start', function()
    if os.getenv 'AMP_SPEC_SANITIZED' then return pending 'a sanitized library is slower' end
    local ffi = require 'ffi'
    ffi.cdef 'int repl_spec_usage(int who, long *usage) __asm__("getrusage");'
    local usage = ffi.new 'long[32]' -- seconds and microseconds: user, system
    local function used() -- by children that have ended
      assert.equal(0, ffi.C.repl_spec_usage(-1, usage))
      return tonumber(usage[0] + usage[2]) + tonumber(usage[1] + usage[3]) * 1e-6
    end
    local best = math.huge
    local command = ("cd / && AMP_HISTORY= AMP_LIBRARY='%s/amp/libamp.so' '%s/lua/bin/amp' </dev/null >/dev/null 2>&1")
      :format(H.absolute(H.build), H.absolute(H.root))
    for _ = 1, 40 do -- until one was not disturbed
      if best < 0.030 then break end
      local before = used()
      assert.equal(0, os.execute(command))
      best = math.min(best, used() - before)
    end
    assert.is_true(best < 0.030, ('%.1f ms'):format(best * 1e3))
  end)
end)
