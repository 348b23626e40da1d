--- What the prompt makes of a text: tokens, locals that stay, results, completion, help; the
-- same through a pipe.
local H = require 'spec.lib.helper'
local amp = require 'amp'
local lexer = require 'amp.repl.lexer'

local root, build = H.absolute(H.root), H.absolute(H.build)

-- Standard output and standard error of amp that reads `input`, and its status
local function pipe(input, arguments)
  H.write(H.tmp 'input', input)
  local out, status = H.sh(("(cd '%s' && AMP_LIBRARY='%s/amp/libamp.so' AMP_HISTORY= '%s/lua/bin/amp' %s <'%s' 2>'%s')"):format(
    H.tmp '', build, root, arguments or '', H.tmp 'input', H.tmp 'errors'))
  return out, H.read(H.tmp 'errors'), status
end

describe('tokens', function()
  local function kinds(text)
    local list = {}
    for i, t in ipairs(lexer.tokens(text)) do list[i] = t.kind:sub(1, 1) .. (t.closed and '' or '!') end
    return table.concat(list, ' ')
  end
  it('are those of Lua', function()
    assert.equal('n o n o n', kinds 'x = 0x1F + 1.5e-3')
    assert.equal('k n o n o o o k', kinds 'function f(a, ...) end')
    assert.equal('s s s s', kinds [=["a\"b" 'c' [[d]] [==[ ]] ]==]]=])
    assert.equal('c c n', kinds '-- one\n--[[ two\n]] x')
    assert.equal('n o n', kinds 'a..b')
    assert.equal('n o n o n', kinds 'größe = x:y')
  end)
  it('need no end', function()
    assert.equal('n o s!', kinds 'x = "abc')
    assert.equal('n o s!', kinds 'x = [[abc')
    assert.equal('c!', kinds '--[==[ abc ]]')
    assert.equal('s!', kinds '"abc\\')
    assert.equal('s! n', kinds '"abc\nd')
    assert.equal('', kinds '  \n ')
  end)
end)

describe('locals of an input', function()
  local function hoisted(text)
    local code, names = lexer.hoist(text)
    return code:gsub('%s+', ' '):match '^%s*(.-)%s*$', table.concat(names, ',')
  end
  it('become variables, the outermost ones alone', function()
    local code, names = hoisted 'local a, b = 1, 2'
    assert.equal('a, b = 1, 2', code)
    assert.equal('a,b', names)
    assert.equal('a = nil b = nil', (hoisted 'local a local b'))
    code, names = hoisted 'local function f() local x = 1 return x end'
    assert.equal('function f() local x = 1 return x end', code)
    assert.equal('f', names)
    for _, same in ipairs { 'do local x = 1 end', 'for i = 1, 2 do local x = i end', 'if x then local y end', 'repeat local z = 1 until z',
      'while x do local y end', 'f(function() local q end)', '-- local x', '"local x"' } do
      assert.equal(same, (hoisted(same)))
    end
  end)
  it('keep lines where they were', function()
    local code = lexer.hoist 'local a\n=\n1\nlocal function f()\nend\nlocal\nb'
    assert.equal(6, select(2, code:gsub('\n', '')))
  end)
end)

describe('amp reading from a pipe', function()
  it('shows what is typed at a terminal, without prompts', function()
    local out, err, status = pipe '1 + 1\nlocal x = amp.ones(2)\nx\n= 5\n"a", nil, true\nfor i = 1, 2 do\nprint(i)\nend\n3;\n_\nio.write "w\\n"\n'
    assert.equal("2\n  1  1\n[amp.Tensor of size 2, float32, cpu]\n5\n'a'  nil  true\n1\n2\n3\nw\n", out)
    assert.equal('', err)
    assert.equal(0, status)
  end)
  it('waits for the rest of an expression', function()
    local out, err, status = pipe '1 +\n1\n"a" ..\n"b"\n2 *\n(3\n+ 4)\n'
    assert.equal("2\n'ab'\n14\n", out)
    assert.equal('', err)
    assert.equal(0, status)
  end)
  it('goes on after an error, and ends with status 1', function()
    local out, err, status = pipe 'error "one"\n2\nx = = 3\n4\nfor i = 1, 2 do'
    assert.equal('2\n4\n', out)
    assert.is_truthy(err:find('input 1:1: one', 1, true), err)
    assert.is_truthy(err:find("unexpected symbol near '='", 1, true), err)
    assert.is_truthy(err:find("'end' expected", 1, true), err)
    err = select(2, pipe 'amp.ones(2).foo -- a comment\namp.ones(2).foo\nx = amp.ones(2)\nx.foo;\nx.foo')
    for _, n in ipairs { 1, 2, 4, 5 } do assert.is_truthy(err:find(('input %d:%s: amp: Tensor has no'):format(n, n == 1 and '[12]' or '1')), err) end
    assert.equal(1, status)
  end)
  it('knows what people type who come from elsewhere, and says what they may have meant', function()
    local out = pipe 'help\n'
    assert.is_truthy(out:find('?name', 1, true), out)
    out = pipe '?help\n'
    assert.is_truthy(out:find('?name', 1, true), out)
    out = pipe 'help("softmax")\nhelp(nn.Linear)\nquit()\nprint "not reached"\n'
    assert.is_truthy(out:find('amp.softmax(input', 1, true) and out:find('in_features', 1, true), out)
    assert.is_nil(out:find('not reached', 1, true))
    out = pipe 'exit = 5\nexit\n'
    assert.equal('5\n', out)
    local _, err = pipe 'nn.Linear(2, 3)\npritn(1)\nqqqq()\nlocal alpha = 1\nalhpa.x = 1\n'
    assert.is_truthy(err:find("global 'nn' (a nil value), did you mean amp.nn?", 1, true), err)
    assert.is_truthy(err:find("global 'pritn' (a nil value), did you mean 'print'?", 1, true), err)
    assert.is_truthy(err:find("global 'qqqq' (a nil value)\n", 1, true), err)
    assert.is_truthy(err:find("did you mean 'alpha'?", 1, true), err)
  end)
  it('says of a field that is not there what may have been meant, or where to look', function()
    local _, err = pipe [[
amp.sotfmax(1)
amp.optm.SGD()
amp.qqqqqq()
amp.cuda.is_avialable()
net = amp.nn.Linear(2, 3)
net:paramters()
mine = setmetatable({alpha = function() end}, {__index = function(_, k) print 'called' end})
mine.alhpa()
function later() return amp.nothing.here end
later()
]]
    for _, piece in ipairs { "amp has no 'sotfmax', did you mean 'softmax'?",
      "amp has no 'optm', did you mean 'optim'?", "amp has no 'qqqqqq'",
      "amp.cuda has no 'is_avialable', did you mean 'is_available'?",
      "'paramters' (a nil value), did you mean 'parameters'?", "'alhpa' (a nil value), did you mean 'alpha'?" } do
      assert.is_truthy(err:find(piece, 1, true), err .. '\nlacks ' .. piece)
    end
  end)
  it('shows a part or a class of amp in a line that names its help', function()
    local out = pipe [[
amp
amp.nn
amp.data
amp.nn.functional
{amp.optim.LARC}
amp.optim.SGD
amp.optim.lr_scheduler.StepLR
amp.autocast
amp.Tensor
]]
    assert.equal('amp (?amp lists what it has)\namp.nn (?nn lists what it has)\namp.data (?data lists what it has)\n'
      .. 'amp.nn.functional (?nn.functional lists what it has)\n{amp.optim.LARC (?optim.LARC explains it)}\n'
      .. 'amp.optim.SGD (?optim.SGD explains it)\namp.optim.lr_scheduler.StepLR (?optim.lr_scheduler.StepLR explains it)\n'
      .. 'amp.autocast (?autocast explains it)\namp.Tensor (?Tensor lists what it has)\n', out)
  end)
  it('lists every variable of the session with :who, those of a script before it and those of before the first command', function()
    local script = H.tmp 'globals.lua'
    H.write(script, 'of_script = 4\nlocal own = 5\n')
    local out = pipe('x = 1\nlocal y = 2\nfunction f() end\n:who\nz = 3\n:who\n')
    assert.is_truthy(out:find('^f +function: input 3:1\nx +1\ny +2\nf +function: input 3:1\nx +1\ny +2\nz +3\n$'), out)
    out = pipe(':who\n')
    assert.equal('nothing yet\n', out)
    out = pipe(':who\n', "-i '" .. script .. "'")
    assert.equal('of_script  4\nown        5\n', out)
  end)
  it('compiles inputs when asked', function()
    local out = pipe ':jit\n:jit on\n:jit\nfor i = 1, 10 do x = i end\nx\n:jit off\n'
    assert.equal('off\non\n10\n', out)
  end)
  it('understands what was copied from a session, and lines that are no chunk together', function()
    local eval = require 'amp.repl.eval'
    local list = eval.compile('amp> x1 = 5\namp> for i = 1, 2 do\n...> x1 = x1 + i\n...> end\namp> x1', '=t')
    assert.equal(3, #list)
    for i = 1, 2 do
      eval.declare(list[i].names)
      list[i].chunk()
    end
    assert.equal(8, list[3].chunk(function(...) return ... end))
    _G.x1 = nil
    assert.is_nil((eval.compile('x = 1\nx = = 2\ny = 3', '=t')))
    local _, _, more = eval.compile('f(1,', '=t')
    assert.is_true(more)
  end)
  it('sets no globals but those that are asked for', function()
    local out = pipe 'local a = 1\nb = 2\nrawget(_G, "a"), rawget(_G, "b"), rawget(_G, "amp"), rawget(_G, "_")\n'
    assert.equal('nil  2  nil  nil\n', out)
  end)
  it('keeps no more than three results', function()
    local out = pipe [[
      mark = setmetatable({}, {__mode = 'k'})
      function make() local t = {} mark[t] = true return t end
      make()
      make()
      make()
      make()
      make()
      collectgarbage() collectgarbage()
      n = 0 for _ in pairs(mark) do n = n + 1 end
      print('kept', n)]]
    assert.is_truthy(out:find 'kept\t3', out)
  end)
  it('shows tables sorted, cut short, and those that contain themselves', function()
    local out = pipe [[
t = {3, b = 1, a = {amp.ones(2)}, [1.5] = "x\n"} t.self = t
t
long = {} for i = 1, 100 do long[i] = i end
long
{}
{{{{{{}}}}}}
]]
    local text = "{\n  3,\n  [1.5] = 'x\\n',\n  a = {[amp.Tensor of size 2, float32, cpu]},\n  b = 1,\n  self = {...} (a table around this one)\n}"
    assert.is_truthy(out:find(text, 1, true), out)
    assert.is_truthy(out:find('{\n  1, 2, 3, 4, 5', 1, true), out)
    assert.is_truthy(out:find('(100 in all)', 1, true), out)
    assert.is_truthy(out:find('\n{}\n', 1, true), out)
  end)
  it('ends quietly when nobody reads', function()
    local command = ("AMP_LIBRARY='%s/amp/libamp.so' AMP_HISTORY= '%s/lua/bin/amp'"):format(build, root)
    for _, what in ipairs { "-e 'for i = 1, 1e5 do print(i) end'", 'doctor', '--help' } do
      local out = H.sh(("%s %s | head -n 1 >/dev/null"):format(command, what))
      assert.equal('', out, what)
    end
    local out = H.sh(("(trap '' PIPE; printf 'for i = 1, 1e4 do print(i) end\\namp.ones(1000)\\n' | %s | head -n 1 >/dev/null)"):format(command))
    assert.equal('', out)
    out = H.sh(('%s <&- >/dev/null'):format(command))
    assert.equal('', out)
  end)
  it('reads line by line: answers come before the end of the input', function()
    local out = H.sh(("cd / && (echo '1 + 1'; sleep 1; date +%%s%%N) | AMP_LIBRARY='%s/amp/libamp.so' AMP_HISTORY= '%s/lua/bin/amp' | "
      .. '(read a; date +%%s%%N; read b; echo $a $b)'):format(build, root))
    local first, a, second = out:match '^(%d+)\n(%d+) ([%d.e+]+)'
    assert.equal('2', a, out)
    assert.is_true(tonumber(second) - tonumber(first) > 5e8, out)
  end)
end)

describe('completion', function()
  local complete = require 'amp.repl.complete'
  local eval = require 'amp.repl.eval'
  local function words(text)
    local found = complete(text)
    local set = {}
    for _, w in ipairs(found and found.words or {}) do set[w] = true end
    return set, found
  end
  before_each(function()
    eval.set('amp', amp)
    eval.set('x', amp.ones(2))
    eval.set('net', amp.nn.Sequential(amp.nn.Linear(2, 3)))
    eval.set('mine', setmetatable({ alpha = 1, beta = { gamma = 2 } }, { __index = function() error 'the user\'s code was called' end }))
  end)
  it('knows methods after : and fields after .', function()
    assert.is_true(words('x:mat').matmul)
    assert.is_true(words('x:add').add_)
    assert.is_nil(words('x:sha').shape)
    assert.is_true(words('x.sha').shape)
    assert.is_true(words('local y = 3 * x:su').sum)
    assert.is_true(words('net:par').parameters)
    assert.is_true(words('net[1].we').weight)
    assert.is_true(words('amp.nn.Conv').Conv2d)
    assert.is_true(words('amp.optim.lr_scheduler.Step').StepLR)
    assert.is_true(words('("a"):u').upper)
    assert.is_true(words('amp.ones(2, (3)):matm').matmul)
    assert.is_true(words('x:relu():matmul(x):su').sum)
    assert.is_true(words('amp.nn.Linear(2, 3):par').parameters)
    assert.is_true(words('io.stdout:wr').write)
    assert.is_true(words('mine.al').alpha)
    assert.is_true(words('mine.beta.').gamma)
  end)
  it('knows options in the table of a call', function()
    assert.is_true(words('amp.optim.SGD(net:parameters(), {').momentum)
    assert.is_true(words('amp.optim.SGD(net:parameters(), {lr = 0.1, mom').momentum)
    assert.is_nil(words('amp.optim.SGD(net:parameters(), {lr = 0.1, ').lr)
    assert.is_true(words('amp.nn.Conv2d(1, 2, 3, {pad').padding)
    assert.is_true(words('amp.data.DataLoader(set, {batch').batch_size)
    assert.is_true(words('x:softmax(1, {dt').dtype)
    assert.is_true(words('amp.nn.HuberLoss{del').delta)
    assert.is_nil(next((words 'amp.optim.SGD(net:parameters(), {lr = zzz')))
  end)
  it('knows options that stand in comments: of amp.autocast, of optimizers by name and around others', function()
    for _, name in ipairs { 'dtype', 'enabled', 'device', 'cache_enabled', 'verbose' } do
      assert.is_true(words('amp.autocast({')[name], name)
      assert.is_true(words('amp.autocast.wrap(f, {')[name], name)
    end
    assert.is_true(words('amp.optim.LARC(opt, {tr').trust_coefficient)
    local set = words('amp.optim.Trainer(p, "sgd", {')
    for _, name in ipairs { 'lr', 'momentum', 'name', 'rescale_grad' } do assert.is_true(set[name], name) end
    for _, name in ipairs { 'more', 'what', 'given', 'params' } do assert.is_nil(set[name], name) end
    set = words('amp.optim.LBFGS(p, {')
    assert.is_true(set.max_eval and set.line_search_fn)
    assert.is_nil(words('amp.data.DataLoader(set, {').dataset)
  end)
  it('knows methods of what a class makes', function()
    assert.is_true(words('?GradManager:rec').record)
    assert.is_true(words('?optim.SGD:st').step)
    eval.set('larc', amp.optim.LARC(amp.optim.SGD({ amp.ones(1):requires_grad_() })))
    assert.is_true(words('larc:st').step)
  end)
  it('knows files in quotes', function()
    os.execute("mkdir -p '" .. H.tmp 'files/sub' .. "'")
    H.write(H.tmp 'files/one.npy', '')
    H.write(H.tmp 'files/one two.npy', '')
    local base = H.tmp 'files/'
    local set, found = words('amp.load("' .. base .. 'one.')
    assert.is_true(set[base .. 'one.npy'])
    assert.equal('"', found.suffix[base .. 'one.npy'])
    assert.is_true(words("dofile '" .. base .. 's')[base .. 'sub/'])
    assert.is_nil(next((words 'amp.load("/nowhere/at all/')))
  end)
  it('knows names, words of Lua, commands and what can be asked', function()
    assert.is_true(words('ne').net)
    assert.is_true(words('whi')['while'])
    assert.is_true(words('?log_sof').log_softmax)
    assert.is_true(words('?nn.Lin').Linear)
    assert.is_true(words('?net:par').parameters)
    assert.is_true(words(':tim').time)
    assert.is_nil(complete '-- a comment x:ma')
  end)
  it('never fails, whatever stands before the cursor', function()
    local pieces = { 'x', ':', '.', '(', '{', '[', ']', '"', "'", '[[', 'amp', 'nn', 'net', '1', ' ', '=', '?', '--', ',', '\n', 'end', 'ö' }
    local seed = 7
    for _ = 1, 3000 do
      local parts = {}
      for i = 1, 6 do
        seed = (seed * 1103515245 + 12345) % 2 ^ 31
        parts[i] = pieces[math.floor(seed / 65536) % #pieces + 1]
      end
      local text = table.concat(parts)
      local ok, why = pcall(complete, text)
      assert.is_true(ok, text .. ': ' .. tostring(why))
    end
  end)
end)

describe('help', function()
  local help = require 'amp.repl.help'
  local names = require 'amp.repl.names'
  local function has(name, ...)
    local text, why = help.text(name)
    for _, piece in ipairs { ... } do
      assert.is_truthy((text or why):find(piece, 1, true), name .. ':\n' .. (text or why) .. '\nlacks ' .. piece)
    end
  end
  it('on an op: forms, doc, arguments, autocast class, dtypes, derivative', function()
    has('softmax', 'amp.softmax(input, dim, {dtype})', 't:softmax(dim, {dtype})', 'dimension, from 1', 'fp32_unless_dtype', 'float16', 'any order')
    has('amp.matmul', 'autocast', 'lower')
    has('add_', 't:add_(other, {alpha})')
    has('t:view', 'The same elements in another shape')
    has('Tensor.sum', 't:sum(')
  end)
  it('on classes, functions, networks and optimizers, from their comments', function()
    has('nn.Linear', 'in_features', 'out_features', 'nn.Linear(784, 10)', 'reset_parameters', 'linear.lua')
    has('Linear', 'in_features')
    has('optim.Adam', 'betas = {0.9, 0.999}', 'zero_grad')
    has('DataLoader', 'batch_size', 'shuffle', 'load_state_dict')
    has('StepLR', 'gamma')
    has('CrossEntropyLoss', 'label_smoothing', '?cross_entropy')
    has('GradScaler', 'loss scaling')
    has('Tensor', 'requires_grad', 'matmul')
    has('nn', 'Linear', 'Conv2d')
    require('amp.repl.eval').set('net', amp.nn.Linear(2, 3))
    has('net', 'nn.Linear')
    has('net:parameters', 'All parameters of the module')
  end)
  it('writes a method as it is called: after a colon, without itself among the arguments', function()
    local set = require('amp.repl.eval').set
    local net = amp.nn.Linear(2, 3)
    set('x', amp.ones(2))
    set('net', net)
    set('opt', amp.optim.SGD(net:parameters()))
    set('gm', amp.GradManager())
    set('sc', amp.GradScaler())
    set('tr', amp.optim.Trainer(net:parameters(), 'sgd'))
    set('list', { amp.ones(2) })
    H.write(H.tmp 'methods.lua', 'Own = {}\nfunction Own:method(a, b) end\nfunction Own.plain(a) end\nfunction of_self(self) end\n')
    dofile(H.tmp 'methods.lua')
    set('Own', rawget(_G, 'Own'))
    set('of_self', rawget(_G, 'of_self'))
    for name, first in pairs {
      ['tr:step'] = 'tr:step(batch_size, o)', ['gm:record'] = 'gm:record(fn, ...)', ['net:parameters'] = 'net:parameters()',
      ['net:forward'] = 'net:forward(x)', ['net.forward'] = 'net:forward(x)', ['opt:step'] = 'opt:step(closure)',
      ['sc:unscale_'] = 'sc:unscale_(opt)', ['Module:parameters'] = 'amp.nn.Module:parameters()', ['Tensor:backward'] = 't:backward(gradient, o)',
      ['t:chunk'] = 't:chunk(n, dim)', ['x:backward'] = 'x:backward(gradient, o)', ['list[1]:chunk'] = 'list[1]:chunk(n, dim)',
      ['Own.method'] = 'Own:method(a, b)', ['Own:plain'] = 'Own.plain(a)', ['of_self'] = 'of_self(self)',
      ['Linear:forward'] = 'amp.nn.Linear:forward(x)', ['amp.autocast.wrap'] = 'amp.autocast.wrap(fn, options, more)',
      ['StepLR:step'] = 'amp.optim.lr_scheduler.StepLR:step(epoch)', ['LBFGS:step'] = 'amp.optim.LBFGS:step(closure)',
    } do
      local text = help.text(name)
      assert.equal(first, text and text:match '^[^\n]*', name)
    end
    rawset(_G, 'Own', nil)
    rawset(_G, 'of_self', nil)
  end)
  it('knows the methods of what a class makes', function()
    has('GradManager', 'attach', 'record', 'backward', 'functions  group', 'is ')
    has('GradManager:record', 'amp.GradManager:record(fn, ...)', 'Record what fn does')
    has('GradScaler:step', 'amp.GradScaler:step(')
    has('Trainer:step', 'amp.optim.Trainer:step(batch_size, o)')
    has('LARC:step', 'amp.optim.LARC:step(closure)')
    has('LARC:zero_grad', 'wrapped optimizer')
    has('SGD:step', 'amp.optim.SGD:step(closure)')
    has('DataLoader:iter', 'amp.data.DataLoader:iter(')
    has('LARC', 'methods    ', 'state_dict')
    has('StepLR', 'methods    ', 'get_last_lr')
    has('autocast', 'functions  ')
    local text = help.text 'autocast'
    assert.is_nil(text:find('methods  ', 1, true), text)
  end)
  it('names arguments and options of classes whose constructors take a table', function()
    has('autocast', 'amp.autocast(options, fn, ...)', "options    base = 'bfloat16', cache_enabled = true, device, dtype, enabled")
    has('autocast.wrap', 'cache_enabled', 'verbose')
    has('optim.LARC', 'amp.optim.LARC(optimizer, options)', 'options    clip = true, eps = 1e-08, trust_coefficient = 0.02')
    has('optim.LBFGS', 'amp.optim.LBFGS(params, options)', 'line_search_fn', 'max_eval')
    has('optim.SGD', 'amp.optim.SGD(params, options)')
    local text = help.text 'optim.Trainer'
    assert.is_truthy(text:find('params  a list of tensors', 1, true), text)
  end)
  it('has no stray colon where a parameter has no type', function()
    for _, name in ipairs(names.all()) do
      local text = help.text(name) or ''
      assert.is_nil(text:find('\n             [%w_.?]+ +: ') or text:find('\n  arguments  [%w_.?]+ +: '), text)
    end
  end)
  it('names what is near an unknown name', function()
    local text, why = help.text 'sotfmax'
    assert.is_nil(text)
    assert.is_truthy(why:find('softmax', 1, true), why)
    assert.is_truthy(select(2, help.text 'nn.Liner'):find('nn.Linear', 1, true))
    assert.is_truthy(select(2, help.text 'qqqqqq'):find('??qqqqqq', 1, true))
    for _, odd in ipairs { '', '%', 'a..b', '((', ('x'):rep(5000), 'end', '[1]', 'é' } do
      local ok, why_not = pcall(help.text, odd)
      assert.is_true(ok, odd:sub(1, 20) .. ': ' .. tostring(why_not))
    end
  end)
  it('is there for every public name', function()
    assert.is_true(#names.all() > 800)
    local out, status = H.child [[ -- in a process where nobody has loaded more than help itself does
      local help, names = require 'amp.repl.help', require 'amp.repl.names'
      for _, name in ipairs(names.all()) do
        local text = help.text(name)
        if not text or text:find('no comment stands', 1, true) then print(name) end
      end]]
    assert.equal('', out)
    assert.equal(0, status)
  end)
  it('finds words in all help', function()
    local lines = {}
    assert.is_true(help.search('learning rate', function(...) lines[#lines + 1] = table.concat { ... } end))
    assert.is_truthy(table.concat(lines, '\n'):find('lr_scheduler', 1, true), table.concat(lines, '\n'))
    assert.is_false(help.search('qqqqqq', function() end))
  end)
end)
