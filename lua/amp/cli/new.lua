--- `amp new DIR`: a project that trains: a model, data, a training loop in mixed precision
-- with checkpoints. It writes into a folder that is empty or not there, and never over a file. `amp new op NAME` is new_op.lua.
-- @module amp.cli.new
local files = require 'amp.repl.files'
local ffi = require 'ffi'

ffi.cdef 'int amp_posix_mkdir(const char *path, unsigned mode) __asm__("mkdir");'

local model = [[
--- The network.
local amp = require 'amp'
local nn = amp.nn

local Model = nn.Module:extend('Model')

--- @tparam number inputs
-- @tparam number width
-- @tparam number classes
function Model:init(inputs, width, classes)
  self.body = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
  self.head = nn.Linear(width, classes)
end

--- @tparam Tensor x n x inputs
-- @treturn Tensor logits, n x classes
function Model:forward(x) return self.head(self.body(x)) end

return Model
]]

local data = [[
--- The data: points on spirals, an arm a class. Put your own in its place: anything that
-- gives a tensor of inputs and a tensor of labels (classes count from 1).
local amp = require 'amp'

local M = {}

--- @tparam number n points of each class
-- @tparam number classes
-- @treturn Tensor inputs, (n * classes) x 2
-- @treturn Tensor labels, n * classes
function M.spirals(n, classes)
  local inputs, labels = {}, {}
  for class = 1, classes do
    local radius = amp.linspace(0.05, 1, n)
    local angle = radius * 4 + (class - 1) * 2 * math.pi / classes + amp.randn(n) * 0.15
    inputs[class] = amp.stack({angle:cos() * radius, angle:sin() * radius}, 2)
    labels[class] = amp.full({n}, class, {dtype = 'int64'})
  end
  return amp.cat(inputs, 1), amp.cat(labels, 1)
end

return M
]]

local train = [[
--- Trains the model: amp train.lua [epochs] [dtype]
--   amp train.lua                 20 epochs in bfloat16
--   amp train.lua 40 float16      with loss scaling
--   amp -i train.lua              and then a prompt, with everything still there
local amp = require 'amp'
local F = amp.nn.functional
local Model = require 'model'
local data = require 'data'

amp.strict() -- a misspelt variable is an error

local epochs, dtype = tonumber(arg[1] or 20), arg[2] or 'bfloat16'
if not epochs then
  print 'usage: amp train.lua [epochs] [dtype: float32, bfloat16, float16]'
  os.exit(1)
end
local device = amp.cuda.is_available() and 'cuda' or 'cpu'
amp.manual_seed(1)

local classes = 3
local train_set = amp.data.TensorDataset(data.spirals(500, classes))
local x_test, y_test = data.spirals(100, classes)
x_test, y_test = x_test:to(device), y_test:to(device)
local loader = amp.data.DataLoader(train_set, {batch_size = 50, shuffle = true})

local net = Model(2, 64, classes):to(device)
local opt = amp.optim.AdamW(net:parameters(), {lr = 3e-3})
local scaler = amp.GradScaler({enabled = dtype == 'float16'})

local function evaluate()
  net:eval()
  local accuracy = amp.metric.Accuracy()
  amp.no_grad(function() accuracy:update(net(x_test), y_test) end)
  net:train()
  return accuracy:value()
end

for epoch = 1, epochs do
  local mean = amp.metric.Loss()
  for x, y in loader:iter() do
    x, y = x:to(device), y:to(device)
    local loss = amp.autocast({dtype = dtype, enabled = dtype ~= 'float32', device = device}, function() return F.cross_entropy(net(x), y) end)
    scaler:scale(loss):backward()
    scaler:step(opt):update()
    opt:clear_grad()
    mean:update(loss:detach())
  end
  if epoch % 5 == 0 or epoch == epochs then
    print(('epoch %d  loss %.4f  accuracy %.3f'):format(epoch, mean:value(), evaluate()))
  end
end

amp.save('checkpoint.amp', {net = net:state_dict(), opt = opt:state_dict(), scaler = scaler:state_dict()})
print 'saved checkpoint.amp'

-- The network as a graph: one file that runs without model.lua, and without Lua (amp_graph_load, amp_graph_run of amp.h).
net:eval()
local example = x_test:narrow(1, 1, 2)
local graph = amp.graph.trace(net, {example}, {dynamic = {1}}) -- any number of points
graph:save 'model.safetensors'
assert(amp.allclose(amp.load_graph('model.safetensors', {map_location = device})(x_test), net(x_test)))
print 'saved model.safetensors'
]]

local readme = [[
# %s

    amp train.lua            trains, says how it goes, saves checkpoint.amp
                             and model.safetensors, the network as a graph
    amp -i train.lua         the same, then a prompt

`model.lua` is the network, `data.lua` the data, `train.lua` the loop. At the prompt of `amp`, `?name` explains a name.
]]

local function refuse(status, text)
  io.stderr:write('amp: ', text, '\n')
  return status
end

local function write(path, text)
  local f, why = io.open(path, 'wb')
  if not f then return nil, why end
  local ok, failed = f:write(text)
  local closed = f:close()
  return ok and closed, failed or why
end

-- A project in a folder, which is made. kind: nil, 'serve' or 'love'
local function project(dir, kind)
  dir = dir:gsub('(.)/+$', '%1')
  if dir == '' then return refuse(2, 'new takes the name of a folder: amp new DIR') end
  if files.is_folder(dir) then
    if #files.list(dir) > 0 then return refuse(1, ('the folder %s is not empty; nothing was written'):format(dir)) end
  else
    local at = 0
    repeat
      at = dir:find('/', at + 1, true)
      if at ~= 1 then ffi.C.amp_posix_mkdir(dir:sub(1, (at or #dir + 1) - 1), 511) end -- the umask takes its part
    until not at
    if not files.is_folder(dir) then return refuse(1, ('the folder %s can not be made'):format(dir)) end
  end
  local name = dir:match '([^/]+)$' or dir
  if name == '.' then name = 'A project with amp' end
  local more = kind and require('amp.cli.new_hosts')[kind .. '_text'] or ''
  local all = {
    { 'model.lua', model }, { 'data.lua', data }, { 'train.lua', train },
    { 'README.md', (readme:gsub('%%s', function() return name end):gsub('\n`model', function() return more .. '\n`model' end)) },
    { '.gitignore', '*.amp\n*.safetensors\n' },
  }
  for _, f in ipairs(kind and require('amp.cli.new_hosts')[kind] or {}) do all[#all + 1] = f end
  for _, f in ipairs(all) do
    local ok, why = write(dir .. '/' .. f[1], f[2])
    if not ok then return refuse(1, ('%s/%s can not be written: %s'):format(dir, f[1], tostring(why))) end
  end
  print(('%s is there. Train it:\n  cd %s && amp train.lua'):format(dir, dir:find '[^%w%./_-]' and "'" .. dir:gsub("'", "'\\''") .. "'" or dir))
  return 0
end

--- @param ... the folder, with --serve or --love in front or behind; or `op`, a name and options
-- @treturn number exit status
return function(...)
  local dir, more = ...
  if dir == 'op' and (select('#', ...) > 1 or files.is_folder 'kernels/elementwise') then return require 'amp.cli.new_op'(select(2, ...)) end
  local kind
  if select('#', ...) == 2 and type(more) == 'string' then
    kind = (dir == '--serve' or dir == '--love') and dir:sub(3) or (more == '--serve' or more == '--love') and more:sub(3) or nil
    if kind then dir = dir:sub(1, 1) == '-' and more or dir end
  end
  if select('#', ...) ~= (kind and 2 or 1) then return refuse(2, 'new takes the name of a folder: amp new DIR; or, in the source tree: amp new op NAME') end
  if dir:sub(1, 1) == '-' then return refuse(2, ("unknown option '%s' (amp new [--serve or --love] DIR)"):format(dir)) end
  return project(dir, kind)
end
