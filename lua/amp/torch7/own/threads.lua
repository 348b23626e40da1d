--- `require 'threads'`: pools of workers of scripts that load data beside training, in one Lua state.
--
--   addjob(f, ended, ...) --f runs now--> results wait in a queue --dojob, synchronize--> ended(results...)
--
-- A job runs when it is added, so it sees what its upvalues hold then, as the copy would that goes to another state. A worker has
-- globals of its own, over those of the script: two pools that set the same name don't meet. Errors wait for synchronize.
local classes = require 'amp.torch7.class'
local raise = require('amp.error').throw

-- Globals of one worker.
local function worker()
  local env = setmetatable({}, {__index = _G})
  env._G = env
  return env
end

-- f(...) with a worker's globals, where f has the script's: whether it went well, and the results or the error.
local function within(env, f, ...)
  local shared, outside = debug.getfenv(f) == _G, classes.workers
  if shared then debug.setfenv(f, env) end
  classes.workers = env ~= _G and outside + 1 or 0
  local results = {xpcall(f, debug.traceback, ...)}
  classes.workers = outside
  if shared then debug.setfenv(f, _G) end
  return table.remove(results, 1), results
end

local Pool = {}
Pool.__index = Pool

-- Threads(n, f1, f2, ...): each worker calls the functions with its number; gives the pool and the last function's results by worker.
local function new(n, ...)
  if type(n) ~= 'number' or n < 0 or n % 1 ~= 0 then raise('torch7.threads', 'a number of threads expected, got %s', tostring(n)) end
  local pool = setmetatable({N = n, workers = {}, turn = 0, queue = {}, errors = {}, is_specific = false}, Pool)
  local functions, started = {...}, {}
  for id = 1, math.max(n, 1) do pool.workers[id] = worker() end
  for k, f in ipairs(functions) do
    for id, env in ipairs(pool.workers) do
      local fine, results = within(env, f, id)
      if not fine then raise('torch7.threads', 'thread %d: %s', id, tostring(results[1])) end
      if k == #functions then started[id] = results end
    end
  end
  return pool, started
end

function Pool:hasjob() return #self.queue > 0 end
function Pool:haserror() return #self.errors > 0 end
function Pool:acceptsjob() return #self.queue < math.max(self.N, 1) end
function Pool:isrunning() return not self.ended end

--- Call what waits for the oldest job's results; nothing where none wait.
function Pool:dojob()
  local job = table.remove(self.queue, 1)
  if not job then return end
  local fine, results, where = job.fine, job.results, 'callback'
  if fine and job.ended then
    where = 'endcallback'
    fine, results = within(_G, job.ended, unpack(results, 1, table.maxn(results)))
  end
  if not fine then self.errors[#self.errors + 1] = ('[thread %d %s] %s'):format(job.id, where, tostring(results[1])) end
end
function Pool:synchronize()
  while self:hasjob() do self:dojob() end
  if self:haserror() then
    local text = table.concat(self.errors, '\n')
    self.errors = {}
    raise('torch7.threads', '%s', text)
  end
end
--- addjob([worker,] f [, ended [, arguments of f]])
function Pool:addjob(first, ...)
  if self.ended then raise('torch7.threads', 'the threads were terminated') end
  if self:haserror() then self:synchronize() end
  local id
  local function add(f, ended, ...)
    if type(f) ~= 'function' then raise('torch7.threads', 'a function expected as the job, got %s', type(f)) end
    if ended ~= nil and type(ended) ~= 'function' then raise('torch7.threads', 'a function expected for the results, got %s', type(ended)) end
    while not self:acceptsjob() do self:dojob() end
    local fine, results = within(self.workers[id], f, ...)
    self.queue[#self.queue + 1] = {id = id, fine = fine, results = results, ended = ended}
  end
  if type(first) == 'number' then
    id = first
    if not self.workers[id] then raise('torch7.threads', 'thread %s of %d', tostring(first), #self.workers) end
    return add(...)
  end
  self.turn = self.turn % #self.workers + 1
  id = self.turn
  add(first, ...)
end
function Pool:specific(flag)
  if flag == nil then return self.is_specific end
  self:synchronize()
  self.is_specific = flag
end
function Pool:terminate()
  if self.ended then return end
  self:synchronize()
  self.ended = true
end

return function()
  local serializer = 'threads.serialize'
  local function serialization(name)
    if name == nil then return serializer end
    serializer = name
  end
  Pool.serialization = serialization
  local T = {Threads = setmetatable(Pool, {__call = function(_, ...) return new(...) end}), serialization = serialization,
    safe = function(f) return f end}
  T.Mutex = function() return {lock = function() end, unlock = function() end, id = function() return 1 end, free = function() end} end
  return setmetatable(T, {__call = function(_, ...) return new(...) end})
end
