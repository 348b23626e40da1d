--- amp kernel: the signatures' hash, and a kernel in a process of its own that this file speaks to over libzmq (Debian: libzmq5).
local H = require 'spec.lib.helper'
local json = require 'amp.io.json'
local posix = require 'amp.cli.posix'
local sha = require 'amp.jupyter.sha256'
local wire = require 'amp.jupyter.wire'
local zmq = require 'amp.jupyter.zmq'

local function hex(s) return (s:gsub('.', function(c) return ('%02x'):format(c:byte()) end)) end

describe('amp.jupyter.sha256', function()
  it('gives the sums of FIPS 180-4 and RFC 4231', function()
    assert.equal('e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', hex(sha.sha256 ''))
    assert.equal('ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad', hex(sha.sha256 'abc'))
    assert.equal('248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1',
      hex(sha.sha256 'abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq'))
    assert.equal('cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0', hex(sha.sha256(('a'):rep(1000000))))
    assert.equal('5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843', sha.hmac('Jefe', 'what do ya want ', 'for nothing?'))
    assert.equal('60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54',
      sha.hmac(('\170'):rep(131), 'Test Using Larger Than Block-Size Key - Hash Key First'))
  end)
  it('is read by those who write base64', function()
    assert.same({ '', 'Zg==', 'Zm8=', 'Zm9v', 'Zm9vYg==' },
      { wire.base64 '', wire.base64 'f', wire.base64 'fo', wire.base64 'foo', wire.base64 'foob' })
  end)
  it('makes any text fit for JSON', function()
    assert.equal('a?\n\tb', wire.clean 'a\0\n\tb')
    assert.equal('é', wire.clean 'é')
    assert.equal('x?', wire.clean 'x\255')
  end)
end)

local there, why = zmq.open()

describe('amp kernel', function()
  if not there then
    return it('speaks to clients', function() pending('NOT TRIED: libzmq is not here (Debian: libzmq5): ' .. why) end)
  end
  local KEY = 'a key'
  local context, shell, control, stdin, iopub, heart, pid

  local function send(socket, kind, content, key) zmq.send(socket, wire.build({}, kind, content, nil, key or KEY, 'spec')) end

  local function receive(socket, ms)
    if not zmq.poll({ socket }, ms or 60000)[1] then return nil end
    local m, flaw = wire.read(zmq.receive(socket), KEY)
    assert.is_truthy(m, flaw)
    return m
  end

  -- Sends a request; gives the content of the reply and what was published until the kernel is idle
  local function ask(kind, content, socket)
    send(socket or shell, kind, content)
    local reply = assert(receive(socket or shell), 'no reply to ' .. kind)
    local said = {}
    while true do
      local m = assert(receive(iopub), 'no status after ' .. kind)
      if m.header.msg_type == 'status' and m.content.execution_state == 'idle' then break end
      said[#said + 1] = m
    end
    return reply.content, said, reply
  end

  local function published(said, kind, name)
    local text = {}
    for _, m in ipairs(said) do
      if m.header.msg_type == kind and (not name or m.content.name == name) then text[#text + 1] = m end
    end
    return text
  end

  local function run(code, more)
    local content = { code = code, silent = false, stop_on_error = false }
    for k, v in pairs(more or {}) do content[k] = v end
    return ask('execute_request', content)
  end

  it('starts', function()
    local prefix = ('/tmp/amp-kernel-%s'):format(wire.id():sub(1, 8))
    local file = H.tmp 'connection.json'
    H.write(file, json.encode { transport = 'ipc', ip = prefix, key = KEY, signature_scheme = 'hmac-sha256', shell_port = 1, control_port = 2,
      stdin_port = 3, iopub_port = 4, hb_port = 5 })
    pid = posix.start({ posix.which 'sh', '-c', ("AMP_LIBRARY='%s/amp/libamp.so' exec luajit '%s/lua/bin/amp' kernel '%s'"):format(
      H.absolute(H.build), H.absolute(H.root), H.absolute(file)) }, { dies = posix.KILL })
    context = zmq.context()
    local function connected(kind, n, name) return zmq.socket(context, kind, 'connect', ('ipc://%s-%d'):format(prefix, n), name) end
    shell, control, iopub, heart = connected(zmq.DEALER, 1, 'spec'), connected(zmq.DEALER, 2), connected(zmq.SUB, 4), connected(zmq.REQ, 5)
    stdin = connected(zmq.DEALER, 3, 'spec')
    zmq.subscribe(iopub)
    repeat -- until what is published arrives here
      send(shell, 'kernel_info_request', {})
      assert(receive(shell, 20000), 'the kernel does not answer')
    until receive(iopub, 300)
    while receive(iopub, 300) do end
  end)

  it('says what it is', function()
    local reply = ask('kernel_info_request', {})
    assert.same({ 'ok', '5.3', 'amp', 'lua' }, { reply.status, reply.protocol_version, reply.implementation, reply.language_info.name })
  end)

  it('runs inputs: results, streams, pictures, variables', function()
    local reply, said, _ = run "print 'out' io.stderr:write 'err'"
    assert.equal('ok', reply.status)
    assert.equal('out\n', published(said, 'stream', 'stdout')[1].content.text)
    assert.equal('err', published(said, 'stream', 'stderr')[1].content.text)
    assert.equal(0, #published(said, 'execute_result'))
    _, said = run 'local x = amp.ones(2)\nx * 2'
    assert.is_truthy(published(said, 'execute_result')[1].content.data['text/plain']:find '2  2')
    _, said = run 'x[1]:item(), "\195\169"'
    assert.equal("1  '\195\169'", published(said, 'execute_result')[1].content.data['text/plain'])
    _, said = run 'amp.plot.line{1, 2, 3}'
    assert.equal('iVBORw0KGgo', published(said, 'execute_result')[1].content.data['image/png']:sub(1, 11))
    _, said = run 'os.execute "echo from a program"'
    assert.equal('from a program\n', published(said, 'stream', 'stdout')[1].content.text)
    _, said = run '1\nprint "between"\n2'
    assert.same({ 'execute_input', 'display_data', 'stream', 'execute_result' },
      { said[2].header.msg_type, said[3].header.msg_type, said[4].header.msg_type, said[5].header.msg_type })
    reply, said = run('3', { silent = true })
    assert.equal(0, #published(said, 'execute_result'))
    assert.equal('ok', reply.status)
    _, said = run '?relu'
    assert.is_truthy(published(said, 'stream', 'stdout')[1].content.text:find 'amp.relu')
  end)

  it('says why an input failed', function()
    local reply, said = run 'amp.matmul(amp.ones(2, 3), amp.ones(2, 3))'
    assert.equal('error', reply.status)
    assert.is_truthy(reply.evalue:find 'shapes 2x3 and 2x3')
    assert.equal(reply.evalue, published(said, 'error')[1].content.evalue)
    reply = run 'x = = 1'
    assert.equal('error', reply.status)
    assert.is_true(#reply.traceback > 0)
    -- inputs that were sent after it are not run
    send(shell, 'execute_request', { code = 'error "first"', stop_on_error = true })
    send(shell, 'execute_request', { code = 'print "second"' })
    assert.equal('error', receive(shell).content.status)
    assert.equal('aborted', receive(shell).content.status)
    while receive(iopub, 300) do end
    assert.equal('ok', (run '1').status)
    -- those that were sent once its answer was there are
    send(shell, 'execute_request', { code = 'error "first"', stop_on_error = true })
    assert.equal('error', receive(shell).content.status)
    send(shell, 'execute_request', { code = 'print "second"', stop_on_error = true })
    assert.equal('ok', receive(shell).content.status)
    while receive(iopub, 300) do end
  end)

  it('shows what statements return, and tables that hold everything', function()
    local function shown(code)
      local _, said = run(code)
      return published(said, 'execute_result')[1].content.data['text/plain']
    end
    assert.equal('5', shown 'return 5')
    assert.equal('3  4', shown 'x = 3\nreturn x, 4')
    assert.equal('3', shown '_')
    assert.equal(0, #published(select(2, run 'local t = 1'), 'execute_result'))
    assert.is_truthy(shown '_G':find '_VERSION')
    assert.equal('{ctype<struct amp_ref>}', shown '{ require("amp.ffi").ref_t }')
  end)

  it('completes, explains, and knows what is whole', function()
    local reply = ask('complete_request', { code = 'local e = "\195\169" amp.rel', cursor_pos = 21 })
    assert.is_truthy((' ' .. table.concat(reply.matches, ' ') .. ' '):find ' relu ')
    assert.same({ 18, 21 }, { reply.cursor_start, reply.cursor_end })
    reply = ask('inspect_request', { code = 'amp.relu(x)', cursor_pos = 6, detail_level = 0 })
    assert.is_true(reply.found)
    assert.is_truthy(reply.data['text/plain']:find 'relu')
    assert.is_false(ask('inspect_request', { code = 'no_such_name_', cursor_pos = 3 }).found)
    for code, found in pairs { ['amp.relu(amp.ones(3), {1, 2}, '] = 'amp.relu', ['amp.nn.Linear('] = 'in_features', ['amp.nn.Linear {2, '] = 'in_features' } do
      reply = ask('inspect_request', { code = code, cursor_pos = #code })
      assert.is_truthy(reply.found and reply.data['text/plain']:find(found, 1, true), code)
    end
    assert.is_false(ask('inspect_request', { code = '(', cursor_pos = 1 }).found)
    assert.is_false(ask('inspect_request', { code = 'x[', cursor_pos = 2 }).found)
    assert.equal('incomplete', ask('is_complete_request', { code = 'for i = 1, 2 do' }).status)
    assert.equal('complete', ask('is_complete_request', { code = '1 + 1' }).status)
  end)

  -- Sends an input that asks, and answers each question; gives the reply's content and what was asked
  local function answered(code, answers)
    send(shell, 'execute_request', { code = code, silent = false, stop_on_error = false, allow_stdin = true })
    local asked = {}
    for _, answer in ipairs(answers) do
      asked[#asked + 1] = assert(receive(stdin), 'no question')
      send(stdin, 'input_reply', { value = answer })
    end
    local reply = assert(receive(shell), 'no reply').content
    local text = {}
    while true do
      local m = assert(receive(iopub))
      if m.header.msg_type == 'status' and m.content.execution_state == 'idle' then break end
      if m.header.msg_type == 'stream' then text[#text + 1] = m.content.text end
    end
    return reply, table.concat(text), asked
  end

  it('has io.read ask', function()
    local reply, text, asked = answered("io.write 'who? ' print(io.read(), io.read '*n', io.stdin:read '*L')", { 'Ada', ' 7 and more' })
    assert.equal('ok', reply.status)
    assert.equal('who? Ada\t7\t and more\n\n', text)
    assert.same({ 'input_request', 'input_request' }, { asked[1].header.msg_type, asked[2].header.msg_type })
    assert.same({ prompt = '', password = false }, asked[1].content)
    assert.equal('execute_request', json.decode(asked[1].parent).msg_type)
    local more, last
    more, text = answered('for l in io.lines() do if l == "" then break end io.write(#l, " ") end print(io.read(2), io.read(4), io.read "*a")',
      { 'one', 'three', '', 'abc', 'defg' })
    assert.equal('3 5 ab\tc\nde\tfg\n\n', text)
    -- an answer that nobody read is not the next input's
    assert.equal('ok', more.status)
    more, text = answered('io.read(1) print "x"', { 'left' })
    assert.equal('x\n', text)
    assert.equal('ok', more.status)
    last, text = answered('print(io.read())', { 'new' })
    assert.equal('new\n', text)
    assert.equal('ok', last.status)
    local _, said = run 'print(io.read())' -- a front end that takes no questions
    assert.equal('nil\n', published(said, 'stream', 'stdout')[1].content.text)
    assert.equal('error', (answered('io.read "%d"', {})).status)
  end)

  it('stops asking at SIGINT', function()
    send(shell, 'execute_request', { code = 'io.read()', silent = false, stop_on_error = false, allow_stdin = true })
    assert.equal('input_request', assert(receive(stdin)).header.msg_type)
    posix.C.amp_run_kill(pid, posix.INT)
    assert.equal('interrupted', assert(receive(shell)).content.ename)
    send(stdin, 'input_reply', { value = 'late' })
    while receive(iopub, 300) do end
    local _, text = answered('print(io.read())', { 'in time' })
    assert.equal('in time\n', text)
  end)

  it('answers what else a request wants to know', function()
    local reply = run('local n = 3', { user_expressions = { twice = 'n * 2', bad = 'n +', none = 'n.x.y' } })
    local answers = reply.user_expressions
    assert.equal('ok', answers.twice.status)
    assert.equal('6', answers.twice.data['text/plain'])
    assert.same({ 'error', 'error' }, { answers.bad.status, answers.none.status })
    assert.is_truthy(answers.none.evalue:find 'index', answers.none.evalue)
  end)

  it('stops at SIGINT, with its heart beating while it computes', function()
    send(shell, 'execute_request', { code = 'print "begun" while true do end' })
    local m
    repeat m = assert(receive(iopub)) until m.header.msg_type == 'stream'
    zmq.send(heart, { 'ping' })
    assert.is_truthy(zmq.poll({ heart }, 20000)[1])
    assert.same({ 'ping' }, zmq.receive(heart))
    posix.C.amp_run_kill(pid, posix.INT)
    assert.equal('interrupted', receive(shell).content.ename)
    while receive(iopub, 300) do end
    assert.equal('ok', (run '1').status)
    -- a loop that catches errors catches the first one; the second one gets through
    send(shell, 'execute_request', { code = 'print "begun" while true do pcall(function() print "caught" while true do end end) end' })
    for _ = 1, 2 do
      repeat m = assert(receive(iopub)) until m.header.msg_type == 'stream' and m.content.text:find 'caught'
      posix.C.amp_run_kill(pid, posix.INT)
    end
    assert.equal('interrupted', assert(receive(shell)).content.ename)
    while receive(iopub, 300) do end
  end)

  it('takes nothing that is signed wrongly', function()
    send(shell, 'execute_request', { code = 'stolen = 1' }, 'another key')
    zmq.send(shell, { 'nonsense' })
    local _, said = run 'rawget(_G, "stolen") == nil'
    assert.equal('true', published(said, 'execute_result')[1].content.data['text/plain'])
  end)

  it('ends when it is told to', function()
    send(control, 'shutdown_request', { restart = false })
    local m = assert(receive(control))
    assert.equal('shutdown_reply', m.header.msg_type)
    assert.is_false(m.content.restart)
    assert.equal(0, (posix.ended(pid, true)))
  end)
end)
