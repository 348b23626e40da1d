--- Two models, each once a request and in batches: what spec/hosts/nginx.sh compares. A body is 784 float32, and the handlers do the
-- same but for the batch: both read it without a tensor of Lua's, and print two numbers of the row that they get as a list.
-- luacheck: globals ngx
local M = {}
local one, batch

function M.start(folder)
  local amp = require 'amp'
  amp.set_num_threads(1)
  amp.set_grad_enabled(false)
  one, batch = {}, {}
  for name, rows in pairs { mlp = 32, cnn = 8 } do
    local graph = amp.load_graph(folder .. '/' .. name .. '.safetensors')
    one[name] = amp.serve.numbers(graph, { 1, 1, 28, 28 }, { dtype = 'float32', bytes = true })
    batch[name] = amp.serve.batcher(graph, { max_batch = rows, max_wait_ms = 2, shape = { 1, 28, 28 }, dtype = 'float32', bytes = true })
  end
end

local function body()
  ngx.req.read_body()
  return ngx.req.get_body_data()
end

local function answer(y) ngx.print(('%.4f %.4f\n'):format(y[1], y[10])) end

local zeros = {}
for i = 1, 10 do zeros[i] = 0 end

function M.one(name) answer(one[name](body())) end
function M.batch(name) answer(batch[name]:numbers(body())) end
function M.floats() answer(#body() == 4 * 784 and zeros) end

--- How many samples a forward had, in this worker
function M.stats()
  for name, b in pairs(batch) do
    local s = b:stats()
    ngx.say(('%s %.1f samples a forward'):format(name, s.rows / math.max(s.batches, 1)))
  end
end

return M
