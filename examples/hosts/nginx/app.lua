--- What the server does. POST /classify: a picture of 28 x 28 grey pixels (PNG, JPEG, PNM) or a JSON list of 784 numbers from 0 to 1
-- (ink is 1); requests of the same moment share a forward. POST /bump: a JSON list of 8 numbers; a network so small that sharing would
-- cost more than it brings. GET /health, GET /metrics.
-- luacheck: globals ngx
local M = {}

local digits, bump -- models: the first behind a batcher, the second from text to numbers
local trouble      -- why there are none
local amp

-- What happened in this worker since it was last added to what all workers have in common: not in every request.
local counts = {}

local function add_counts()
  for name, n in pairs(counts) do ngx.shared.metrics:incr(name, n, 0) end
  counts = {}
end

--- For init_worker: loads the graphs of a folder. A worker without models says so and answers on.
function M.start(folder)
  amp = require 'amp'
  amp.set_num_threads(1)
  amp.set_grad_enabled(false) -- a server learns nothing; so no request needs a region for that
  local ok, why = pcall(function()
    bump = amp.serve.numbers(amp.load_graph(folder .. '/bump.safetensors'), {1, 8})
    digits = amp.serve.batcher(amp.load_graph(folder .. '/model.safetensors'), {max_batch = 32, max_wait_ms = 2, shape = {1, 28, 28}, dtype = 'float32'})
  end)
  if not ok then
    trouble = tostring(why)
    ngx.log(ngx.ERR, 'no model: ', trouble)
  end
  assert(ngx.timer.every(1, add_counts)) -- once more where the worker ends
end

local names = {}


local function answer(status, text)
  local name = names[status] or 'status_' .. status
  names[status] = name
  counts[name] = (counts[name] or 0) + 1
  if status ~= 200 then ngx.status = status end
  ngx.print(text)
end

-- An error's own message: its place in these files is nothing for a client.
local function refuse(status, why)
  why = type(why) == 'table' and why.message or why
  return answer(status, ('{"error": "%s"}\n'):format(tostring(why):gsub('[%c"\\]', ' ')))
end

local function body()
  ngx.req.read_body()
  return ngx.req.get_body_data() or error('a body of at most 64 KB is expected', 0)
end

local function largest(list)
  local best = 1
  for i = 2, #list do if list[i] > list[best] then best = i end end
  return best, list[best]
end

-- The same of three, without a loop: who calls a loop of so few turns is not compiled.
local function largest_of_three(list)
  local a, b, c = list[1], list[2], list[3]
  if b > a and b >= c then return 2, b end
  if c > a then return 3, c end
  return 1, a
end

-- Numbers that a float32 does not hold, or a model can't compute with, end in NaN, which JSON has not.
local function beyond(probability)
  if probability == probability then return false end
  refuse(400, 'the numbers are beyond what the model computes with')
  return true
end

-- -- Digits -----------------------------------------------------------------------------------------

-- A tensor of 1 x 28 x 28 from a picture's bytes
local function picture(bytes)
  local path = os.tmpname()
  local file = assert(io.open(path, 'wb'))
  file:write(bytes)
  file:close()
  local ok, x = pcall(amp.data.read_image, path, {max_bytes = 2 ^ 20})
  os.remove(path)
  if not ok then error('the body is no picture', 0) end
  x = x:float() / 255
  return x:size(1) > 1 and x:narrow(1, 1, 3):mean(1, true) or x
end

-- Both wait; other requests run meanwhile.
local function from_picture(x) return digits(x):tolist() end
local function from_list(text) return digits:numbers(text) end

function M.classify()
  if not digits then return refuse(503, 'no model') end
  local ok, what = pcall(function()
    local bytes = body()
    return bytes:find '^%s*%[' and bytes or picture(bytes)
  end)
  if not ok then return refuse(400, what) end
  local good, p = pcall(type(what) == 'string' and from_list or from_picture, what)
  if not good then
    local code = type(p) == 'table' and p.code
    return refuse((code == 'shape' or code == 'value') and 400 or 500, p)
  end
  local best, probability = largest(p)
  if beyond(probability) then return end
  return answer(200, ('{"digit": %d, "probability": %.4f}\n'):format(best - 1, probability))
end

-- -- Bumps ------------------------------------------------------------------------------------------

local places = {'begin', 'middle', 'end'}

local function probabilities()
  local list = bump(body())
  return list -- called as a last thing, the function would be the one that returns to pcall, which LuaJIT does not compile
end

function M.bump()
  if not bump then return refuse(503, 'no model') end
  local ok, p = pcall(probabilities)
  if not ok then return refuse(400, p) end
  local best, probability = largest_of_three(p)
  if beyond(probability) then return end
  return answer(200, ('{"bump": "%s", "probability": %.4f}\n'):format(places[best], probability))
end

-- -- Of the server ----------------------------------------------------------------------------------

function M.health()
  if not digits then return refuse(503, trouble or 'no model') end
  return answer(200, '{"status": "ok"}\n')
end

--- In the format that Prometheus reads; of all workers, of the others until a second ago, but for the last lines.
function M.metrics()
  local lines = {}
  add_counts()
  for _, name in ipairs(ngx.shared.metrics:get_keys()) do
    lines[#lines + 1] = ('amp_%s %d'):format(name, ngx.shared.metrics:get(name))
  end
  for name, n in pairs(digits and digits:stats() or {}) do lines[#lines + 1] = ('amp_batcher_%s{worker="%d"} %d'):format(name, ngx.worker.id(), n) end
  table.sort(lines)
  ngx.header['Content-Type'] = 'text/plain'
  ngx.say(table.concat(lines, '\n'))
end

return M
