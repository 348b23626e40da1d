--- What the server does: POST /classify a picture of 28 x 28 grey pixels (PNG, JPEG, PNM) or a JSON list of 784 numbers from 0 to 1
-- (ink is 1); GET /health; GET /metrics.
-- luacheck: globals ngx
local M = {}

local batcher, trouble -- the model behind its batcher; or why there is none
local amp

--- For init_worker: loads the graph. A worker without a model says so and answers on.
function M.start(path)
  amp = require 'amp'
  amp.set_num_threads(1)
  local ok, why = pcall(function()
    batcher = amp.serve.batcher(amp.load_graph(path), {max_batch = 32, max_wait_ms = 2, shape = {1, 28, 28}, dtype = 'float32'})
  end)
  if not ok then
    trouble = tostring(why)
    ngx.log(ngx.ERR, 'no model: ', trouble)
  end
end

local function count(name, n) ngx.shared.metrics:incr(name, n or 1, 0) end

local function answer(status, text)
  count('status_' .. status)
  ngx.status = status
  ngx.header['Content-Type'] = 'application/json'
  ngx.print(text, '\n')
  return ngx.exit(ngx.OK)
end

local function refuse(status, why) return answer(status, ('{"error": "%s"}'):format(tostring(why):gsub('[%c"\\]', ' '))) end

-- A tensor of 1 x 28 x 28 from a body
local function picture(body)
  if body:find '^%s*%[' then
    local list = {}
    for number in body:gmatch '[^%s,%[%]]+' do
      local v = tonumber(number)
      if not v or math.abs(v) > 1e6 or v ~= v then error('a list of numbers from 0 to 1 is expected', 0) end
      list[#list + 1] = v
      if #list > 784 then break end
    end
    if #list ~= 784 then error('784 numbers are expected', 0) end
    return amp.tensor(list):reshape(1, 28, 28)
  end
  local path = os.tmpname()
  local file = assert(io.open(path, 'wb'))
  file:write(body)
  file:close()
  local ok, x = pcall(amp.data.read_image, path, {max_bytes = 2 ^ 20})
  os.remove(path)
  if not ok then error('the body is no picture', 0) end
  x = x:float() / 255
  return x:size(1) > 1 and x:narrow(1, 1, 3):mean(1, true) or x
end

function M.classify()
  if not batcher then return refuse(503, 'no model') end
  ngx.req.read_body()
  local body = ngx.req.get_body_data()
  if not body then return refuse(400, 'a picture or a list of 784 numbers is expected, of at most 64 KB') end
  local ok, x = pcall(picture, body)
  if not ok then return refuse(400, x) end
  local good, scores = pcall(batcher, x) -- waits here; other requests run
  if not good then return refuse(type(scores) == 'table' and scores.code == 'shape' and 400 or 500, scores) end
  local p = amp.no_grad(function() return scores:softmax(1) end)
  local best = p:argmax():item()
  return answer(200, ('{"digit": %d, "probability": %.4f}'):format(best - 1, p[best]:item()))
end

function M.health()
  if not batcher then return refuse(503, trouble or 'no model') end
  return answer(200, '{"status": "ok"}')
end

--- In the format that Prometheus reads; of all workers, but for the last lines.
function M.metrics()
  local lines = {}
  for _, name in ipairs(ngx.shared.metrics:get_keys()) do
    lines[#lines + 1] = ('amp_%s %d'):format(name, ngx.shared.metrics:get(name))
  end
  for name, n in pairs(batcher and batcher:stats() or {}) do lines[#lines + 1] = ('amp_batcher_%s{worker="%d"} %d'):format(name, ngx.worker.id(), n) end
  table.sort(lines)
  ngx.header['Content-Type'] = 'text/plain'
  ngx.say(table.concat(lines, '\n'))
end

return M
