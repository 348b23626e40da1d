--- The kernel of notebooks: Jupyter's protocol 5.3 over libzmq, with the prompt's own parts (amp.repl).
-- Inputs, help, completion and interrupts are as at the prompt; figures and images are shown as pictures.
local core = require 'amp.ffi'
local err = require 'amp.error'
local ffi = require 'ffi'
local input = require 'amp.jupyter.input'
local json = require 'amp.io.json'
local output = require 'amp.jupyter.output'
local wire = require 'amp.jupyter.wire'
local zmq = require 'amp.jupyter.zmq'
local C, S = core.C, core.S

local ABORT_MS = 50 -- how long inputs that were sent behind a failed one are looked for before it is answered

local function list(t) return setmetatable(t, json.array) end

-- -- A kernel -------------------------------------------------------------------------------------

local Kernel = {}
Kernel.__index = Kernel

local function open(o)
  local context = zmq.context()
  local function bound(kind, port)
    local at = o.transport == 'ipc' and ('ipc://%s-%d'):format(o.ip, port) or ('%s://%s:%d'):format(o.transport or 'tcp', o.ip, port)
    return zmq.socket(context, kind, 'bind', at)
  end
  local k = { key = o.key or '', session = wire.id(), count = 0, context = context, behind = {} }
  k.shell, k.control = bound(zmq.ROUTER, o.shell_port), bound(zmq.ROUTER, o.control_port)
  k.stdin, k.iopub = bound(zmq.ROUTER, o.stdin_port), bound(zmq.PUB, o.iopub_port)
  k.heart = bound(zmq.ROUTER, o.hb_port)
  return setmetatable(k, Kernel)
end

function Kernel:publish(kind, content)
  zmq.send(self.iopub, wire.build({ 'kernel.' .. self.session .. '.' .. kind }, kind, content, self.parent, self.key, self.session))
end

function Kernel:reply(socket, m, kind, content)
  content.status = content.status or 'ok'
  zmq.send(socket, wire.build(m.ids, kind, content, m.raw, self.key, self.session))
end

-- -- Results ------------------------------------------------------------------------------------------

-- A picture of a value that has one
local function picture(v)
  local ok, bytes = pcall(function()
    if type(v) ~= 'table' or type(v.png) ~= 'function' then return nil end
    return (v:png())
  end)
  return ok and type(bytes) == 'string' and bytes:sub(1, 4) == '\137PNG' and wire.base64(bytes) or nil
end

-- What was shown last is the input's result, unless something follows it.
function Kernel:release(kind)
  local data = self.held
  self.held = nil
  if not data then return end
  self:publish(kind, { data = data, metadata = {}, execution_count = kind == 'execute_result' and self.count or nil })
end

function Kernel:show(results)
  local show = require 'amp.repl.show'
  output.drain()
  self:release 'display_data'
  local png = results.n == 1 and picture(results[1])
  local ok, text = pcall(show.results, results)
  text = ok and text or png and 'a picture' or nil
  if not ok and not png then return io.stderr:write('(a value that can not be shown: ', tostring(text), ')\n') end
  if text then self.held = { ['text/plain'] = wire.clean(text), ['image/png'] = png or nil } end
end

-- -- Requests -----------------------------------------------------------------------------------------

local requests = {}

-- What was sent behind an input that failed, by somebody who can not know yet that it did: it is not run. What is sent once the
-- answer was read is.
function Kernel:gather()
  local until_ = C.amp_clock() + ABORT_MS / 1000
  repeat
    local left = math.max(0, until_ - C.amp_clock()) * 1000
    if zmq.poll({ self.shell }, left)[1] then self.behind[#self.behind + 1] = zmq.receive(self.shell) end
  until C.amp_clock() >= until_
end

function requests.kernel_info_request(self, m, socket)
  local version = (require('amp').version())
  self:reply(socket, m, 'kernel_info_reply', {
    protocol_version = '5.3', implementation = 'amp', implementation_version = version,
    language_info = { name = 'lua', version = '5.1', mimetype = 'text/x-lua', file_extension = '.lua', pygments_lexer = 'lua', codemirror_mode = 'lua' },
    banner = ('amp %s on %s. ?name explains, ? says more.'):format(version, jit.version), help_links = list {},
  })
end

-- Asks the front end of the input that runs for a line. Nil: it takes no questions.
function Kernel:ask()
  local m, tty = self.asked_by, require('amp.repl.run').tty
  if not m then return nil end
  output.drain()
  while zmq.poll({ self.stdin }, 0)[1] do zmq.receive(self.stdin) end -- answers to what was given up
  zmq.send(self.stdin, wire.build(m.ids, 'input_request', { prompt = '', password = false }, m.raw, self.key, self.session))
  while true do
    if zmq.poll({ self.stdin }, 200)[1] then
      local reply = wire.read(zmq.receive(self.stdin), self.key)
      if reply and reply.header.msg_type == 'input_reply' then return tostring(reply.content.value or '') end
    end
    if tty.interrupts > 0 then error(err.new(nil, 'interrupted', 'interrupted'), 0) end
  end
end

-- What the request's user_expressions give, each for itself: a text, or why there is none. JSON's nothing is an empty table.
local function expressions(given)
  local eval, show, answers = require 'amp.repl.eval', require 'amp.repl.show', {}
  for name, text in pairs(type(given) == 'table' and given or {}) do
    local chunk, why = loadstring('return ' .. tostring(text), '=' .. tostring(name))
    local ok, value
    if chunk then
      ok, value = pcall(function()
        local results = require('amp.util').pack(setfenv(chunk, eval.env)())
        return wire.clean(show.results(results) or 'nil')
      end)
    else ok, value = false, why end
    local message = not ok and wire.clean(tostring(value)) or nil
    answers[tostring(name)] = ok and { status = 'ok', data = { ['text/plain'] = value }, metadata = {} }
      or { status = 'error', ename = 'error', evalue = message, traceback = list { message } }
  end
  return answers
end

function requests.execute_request(self, m, socket)
  local repl, o = self.repl, m.content
  local code = type(o.code) == 'string' and o.code or ''
  local silent = o.silent == true
  if not silent then
    self.count = self.count + 1
    self:publish('execute_input', { code = code, execution_count = self.count })
  end
  local why
  repl.count = self.count - (silent and 0 or 1)
  repl.show = function(results) if not silent then self:show(results) end end
  repl.complain = function(text) why = wire.clean(text) end
  self.silent, self.asked_by = silent, o.allow_stdin == true and m or nil
  input.clear()
  local ok, e = pcall(repl.one, code)
  self.asked_by = nil
  if not ok then why = why or wire.clean(tostring(e)) end
  output.drain()
  self:release 'execute_result'
  local reply = { execution_count = self.count, user_expressions = why and {} or expressions(o.user_expressions), payload = list {} }
  if why then
    local lines = list {}
    for line in (why .. '\n'):gmatch '(.-)\n' do lines[#lines + 1] = line end
    reply.status, reply.ename, reply.evalue, reply.traceback = 'error', why:find '^interrupted' and 'interrupted' or 'error', lines[1], lines
    if not silent then self:publish('error', { ename = reply.ename, evalue = lines[1], traceback = lines }) end
  end
  if why and o.stop_on_error ~= false then self:gather() end
  if repl.leaving then
    reply.payload[1] = { source = 'ask_exit', keepkernel = false }
    self.over = true
  end
  self:reply(socket, m, 'execute_reply', reply)
end

-- Byte before which the cursor stands, which is given in characters
local function before(code, at)
  local i, n = 1, 0
  while n < at and i <= #code do
    i = code:find('[%z\1-\127\192-\255]', i + 1) or #code + 1
    n = n + 1
  end
  return i - 1
end

local function characters(text) return select(2, text:gsub('[%z\1-\127\192-\255]', '')) end

local function cursor(content)
  local code = type(content.code) == 'string' and content.code or ''
  return code, before(code, type(content.cursor_pos) == 'number' and content.cursor_pos or #code)
end

function requests.complete_request(self, m, socket)
  local code, at = cursor(m.content)
  local head = code:sub(1, at)
  local ok, found = pcall(require 'amp.repl.complete', head)
  found = ok and found or { from = at + 1, words = {} }
  self:reply(socket, m, 'complete_reply', {
    matches = list(found.words), cursor_start = characters(head:sub(1, found.from - 1)), cursor_end = characters(head), metadata = {},
  })
end

-- The function whose arguments a text breaks off in, '': none
local function called(head)
  local depth = 0
  for i = #head, 1, -1 do
    local c = head:sub(i, i)
    if c:find '[%)%]}]' then depth = depth + 1
    elseif c:find '[%(%[{]' then
      depth = depth - 1
      local name = head:sub(1, i - 1):match '([%a_][%w_.:]*)%s*$'
      if depth < 0 and c ~= '[' and name then return name end
      depth = math.max(depth, 0)
    end
  end
  return ''
end

function requests.inspect_request(self, m, socket)
  local code, at = cursor(m.content)
  local head = code:sub(1, at)
  local name = (head:match '[%w_.:]*$' .. (code:sub(at + 1):match '^[%w_]*' or '')):gsub('[.:]+$', '')
  if not name:find '%a' then name = called(head) end
  local text
  if name ~= '' then
    local ok, found = pcall(require('amp.repl.help').text, name)
    text = ok and found or nil
    if type(text) == 'table' then text = table.concat(text, '\n') end
  end
  self:reply(socket, m, 'inspect_reply', { found = text ~= nil, data = text and { ['text/plain'] = wire.clean(text) } or {}, metadata = {} })
end

function requests.is_complete_request(self, m, socket)
  local code = type(m.content.code) == 'string' and m.content.code or ''
  local whole = self.repl.whole(code)
  self:reply(socket, m, 'is_complete_reply', whole and { status = 'complete' } or { status = 'incomplete', indent = '  ' })
end

function requests.history_request(self, m, socket) self:reply(socket, m, 'history_reply', { history = list {} }) end
function requests.comm_info_request(self, m, socket) self:reply(socket, m, 'comm_info_reply', { comms = {} }) end
function requests.interrupt_request(self, m, socket) self:reply(socket, m, 'interrupt_reply', {}) end -- what runs gets a signal

function requests.shutdown_request(self, m, socket)
  self:reply(socket, m, 'shutdown_reply', { restart = m.content.restart == true })
  self.over = true
end

-- -- The loop ------------------------------------------------------------------------------------------

function Kernel:take(socket, parts, behind)
  local m, why = wire.read(parts, self.key)
  if not m then return io.stderr:write('amp kernel: ', why, '\n') end
  local kind = m.header.msg_type
  local answer = requests[kind]
  if not answer then return end
  self.parent = m.raw
  self:publish('status', { execution_state = 'busy' })
  if kind == 'execute_request' and behind then
    self:reply(socket, m, 'execute_reply', { status = 'aborted', execution_count = self.count })
  else
    local ok, e = pcall(answer, self, m, socket)
    if not ok then io.stderr:write('amp kernel: ', tostring(e), '\n') end
  end
  output.drain()
  self:publish('status', { execution_state = 'idle' })
end

function Kernel:run()
  local parent = os.getenv 'JPY_PARENT_PID' and require('amp.cli.posix').C
  while not self.over do
    local ready = zmq.poll({ self.control, self.shell, self.stdin }, #self.behind > 0 and 0 or 1000)
    if ready[1] then self:take(self.control, zmq.receive(self.control))
    elseif #self.behind > 0 then self:take(self.shell, table.remove(self.behind, 1), true)
    elseif ready[2] then self:take(self.shell, zmq.receive(self.shell))
    elseif ready[3] then zmq.receive(self.stdin) end
    if parent and parent.amp_run_getppid() == 1 then break end
  end
  self:publish('status', { execution_state = 'idle' })
  for _, name in ipairs { 'shell', 'control', 'stdin', 'iopub' } do zmq.lib.zmq_close(self[name]) end
  zmq.lib.zmq_ctx_term(self.context) -- waits for what is still to be sent, and ends the heartbeat
end

--- Runs a kernel until it is told to end.
-- @tparam string path the connection file
-- @treturn number exit status
return function(path)
  local lib, why = zmq.open()
  if not lib then
    io.stderr:write('amp kernel: libzmq is not here (Debian: apt-get install libzmq5): ', why, '\n')
    return 1
  end
  local f = io.open(path, 'rb')
  local ok, o = pcall(json.decode, f and f:read '*a' or '')
  if f then f:close() end
  if not ok or type(o) ~= 'table' or type(o.shell_port) ~= 'number' then
    io.stderr:write('amp kernel: ', path, ' is no connection file\n')
    return 1
  end
  if o.signature_scheme and o.signature_scheme ~= 'hmac-sha256' then
    io.stderr:write('amp kernel: messages are signed by hmac-sha256, not by ', tostring(o.signature_scheme), '\n')
    return 1
  end
  local kernel = open(o)
  require 'amp.jupyter.heart'(kernel.heart, zmq.name)
  local eval = require 'amp.repl.eval'
  kernel.repl = require 'amp.repl'
  eval.set('amp', require 'amp')
  C.amp_tty_watch(S, C.AMP_TTY_NOTE)
  output.take(function(name, text)
    if kernel.silent or not kernel.parent then return end
    kernel:release 'display_data'
    kernel:publish('stream', { name = name, text = wire.clean(text) })
  end)
  input.take(function() return kernel:ask() end)
  kernel.parent = nil
  kernel:publish('status', { execution_state = 'starting' })
  kernel:run()
  ffi.C.amp_run_exit(0) -- the heartbeat's thread has a Lua state of its own
end
