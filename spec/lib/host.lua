--- A host that schedules coroutines as nginx's Lua module does: it replaces coroutine.create, resume, yield and status by
-- functions that ask its scheduler, keeps the originals as coroutine._create and so on, and runs each request in a
-- coroutine of its own. A replaced resume yields the caller, and the scheduler runs what it resumed beside it.
-- To be loaded before amp. host.spawn(fn) makes a request, host.sleep(n) waits n turns, host.run() runs them to their end.
local create, resume, yield, status = coroutine.create, coroutine.resume, coroutine.yield, coroutine.status
-- luacheck: ignore 122 142
coroutine._create, coroutine._resume, coroutine._yield, coroutine._status, coroutine._wrap = create, resume, yield, status, coroutine.wrap
coroutine.isyieldable = nil

local host = {}
local current          -- the request that runs
local ready, errors = {}, {}

local function need()
  if not current then error('API disabled in the current context', 3) end
  return current
end

local function context_of(co) return need().coroutines[co] end

function coroutine.create(f)
  local request = need()
  local co = create(f)
  request.coroutines[co] = { co = co, state = 'suspended' }
  return co
end

function coroutine.resume(co, ...)
  local c = context_of(co)
  if not c then error('no co ctx found', 2) end
  if c.state ~= 'suspended' then return false, 'cannot resume ' .. c.state .. ' coroutine' end
  need().op = { 'resume', c }
  return yield(...)
end

function coroutine.yield(...)
  need().op = { 'yield' }
  return yield(...)
end

function coroutine.status(co)
  local c = context_of(co)
  return c and c.state or 'dead'
end

function coroutine.wrap(f)
  local co = coroutine.create(f)
  local function check(ok, ...)
    if not ok then error((...), 0) end
    return ...
  end
  return function(...) return check(coroutine.resume(co, ...)) end
end

--- Wait n turns of the scheduler.
function host.sleep(n)
  need().op = { 'sleep', n or 1 }
  return yield()
end

--- A request, or a light thread of one.
function host.spawn(f)
  local co = create(f)
  local c = { co = co, state = 'running' }
  local request = { coroutines = { [co] = c }, at = c, wait = 0, values = { n = 0 } }
  ready[#ready + 1] = request
  return request
end

--- The request that runs.
function host.current() return need() end

--- End a request while it waits.
function host.kill(request) request.killed = true end

local function pack(...) return { n = select('#', ...), ... } end

-- Run what a request is at until it waits; true at its end.
local function step(request)
  while true do
    local c = request.at
    request.op = nil
    current = request
    local got = pack(resume(c.co, unpack(request.values, 1, request.values.n)))
    current = nil
    local op = request.op
    if status(c.co) == 'dead' then
      c.state = 'dead'
      if not c.parent then
        if not got[1] then errors[#errors + 1] = tostring(got[2]) end
        return true
      end
      request.at, request.values = c.parent, got
      c.parent.state = 'running'
    elseif op[1] == 'sleep' then
      request.wait, request.values = op[2], { n = 0 }
      return false
    elseif op[1] == 'resume' then
      op[2].parent, op[2].state, c.state = c, 'running', 'normal'
      request.at, request.values = op[2], pack(select(2, unpack(got, 1, got.n)))
    else
      c.state, c.parent.state = 'suspended', 'running'
      request.at, request.values = c.parent, got
    end
  end
end

--- Run all requests; gives the texts of their errors.
function host.run()
  while #ready > 0 do
    local list = ready
    ready = {}
    for _, request in ipairs(list) do
      if request.wait > 0 then
        request.wait = request.wait - 1
        if not request.killed then ready[#ready + 1] = request end
      elseif not request.killed and not step(request) then
        ready[#ready + 1] = request
      end
    end
  end
  local found = errors
  errors = {}
  return found
end

return host
