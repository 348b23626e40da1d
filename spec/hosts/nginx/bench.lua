--- Two models, each once a request and in batches: what spec/hosts/nginx.sh compares. A body is 784 float32.
-- luacheck: globals ngx
local M = {}
local amp, one, batch

function M.start(folder)
  amp = require 'amp'
  amp.set_num_threads(1)
  amp.set_grad_enabled(false)
  one, batch = {}, {}
  for name, rows in pairs { mlp = 32, cnn = 8 } do
    one[name] = amp.load_graph(folder .. '/' .. name .. '.safetensors')
    batch[name] = amp.serve.batcher(one[name], { max_batch = rows, max_wait_ms = 2, shape = { 1, 28, 28 }, dtype = 'float32' })
  end
end

local function body()
  ngx.req.read_body()
  return ngx.req.get_body_data()
end

local function answer(y) ngx.print(('%.4f %.4f\n'):format(y[1], y[10])) end

local shape, batch_of_one, zeros = { 1, 28, 28 }, { 1, 1, 28, 28 }, {}
for i = 1, 10 do zeros[i] = 0 end

function M.one(name) answer(one[name](amp.from_string(body(), batch_of_one, 'float32')):tolist()[1]) end
function M.batch(name) answer(batch[name](amp.from_string(body(), shape, 'float32')):tolist()) end
function M.floats()
  amp.from_string(body(), shape, 'float32')
  answer(zeros)
end

return M
