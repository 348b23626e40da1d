--- `require 'torch'`, `require 'nn'` and so on, served from here: what amp.torch7.install does.
local amp = require 'amp'
local options = require 'amp.options'
local raise = require('amp.error').throw

local M = {}

local function has_cuda() return amp.cuda.is_available() end

-- cutorch on a GPU; with cuda = 'pretend', one that is not there
local function cutorch(torch, pretend)
  local core = require 'amp.torch7.own.core'
  local C = {device = 1}
  function C.getDeviceCount() return pretend and 1 or amp.cuda.device_count() end
  function C.setDevice(i) C.device = i end
  function C.getDevice() return C.device end
  function C.synchronize()
    if not pretend then amp.cuda.synchronize() end
  end
  C.synchronizeAll = C.synchronize
  C.manualSeed, C.manualSeedAll, C.seed, C.seedAll = torch.manualSeed, torch.manualSeed, torch.seed, torch.seed
  C.initialSeed = torch.initialSeed
  function C.getMemoryUsage()
    local m = amp.memory(pretend and 'cpu' or 'cuda')
    return m.cached or 0, m.live or 0
  end
  function C.getDeviceProperties() return {name = pretend and 'none' or 'GPU', totalGlobalMem = 0} end
  function C.setHeapTracking() end
  function C.getState() return {} end
  function C.withDevice(_, f, ...) return f(...) end
  function C.createCudaHostTensor(...) return torch.FloatTensor(...) end
  C.hasHalf = true
  for name, t in pairs(core.types) do
    if t.device == 'cuda' then torch[name:match '%.(.*)$'] = t.mt end
  end
  if pretend then -- names of the GPU's types are those of the CPU's
    for name, t in pairs(core.types) do
      if t.device == 'cuda' then
        local kind = t.kind
        core.types[name] = core.types['torch.' .. kind .. 'Tensor']
        torch[name:match '%.(.*)$'] = core.types[name].mt
        core.storages[(name:gsub('Tensor$', 'Storage'))] = core.storages['torch.' .. kind .. 'Storage']
      end
    end
  end
  return C
end

-- cudnn's layers are those of nn with the same names
local function cudnn(nn)
  local D = {version = 5000, benchmark = false, fastest = false, verbose = false}
  function D.convert(net) return net end
  return setmetatable(D, {__index = function(_, name) return nn[name] end})
end

-- nn.DataParallelTable of one device: its module
local function add_data_parallel(nn, classes)
  if rawget(nn, 'DataParallelTable') then return end
  local D, Decorator = classes.class('nn.DataParallelTable', 'nn.Decorator', nn)
  function D:__init() Decorator.__init(self) end
  function D:add(module)
    self.modules[1] = module
    return self
  end
  function D:threads() return self end
  function D.syncParameters() end
  function D:backward(input, gradOutput, scale)
    self.gradInput = self.modules[1]:backward(input, gradOutput, scale)
    return self.gradInput
  end
end

--- Serve Torch7's packages by their names, and set the globals that they set.
-- @tparam ?table given cuda = 'pretend': without a GPU, cutorch, cunn and cudnn work on the CPU; globals = true: torch, nn, optim, ...
-- are set at once, not when they are asked for
-- @treturn table torch
function M.install(given)
  local o = options.read('torch7.install', given, {'cuda', 'globals'}, {globals = true})
  if o.cuda ~= nil and o.cuda ~= 'pretend' then raise('torch7.install', "cuda is 'pretend' or nothing, got %s", tostring(o.cuda)) end
  local torch = require 'amp.torch7.own.torch'
  local around = require 'amp.torch7.own.around'
  local classes = require 'amp.torch7.class'
  local made = {}
  local makers = {}
  local function part(name)
    if made[name] == nil then made[name] = makers[name]() end
    return made[name]
  end
  function makers.torch() return torch end
  function makers.nn() return require 'amp.torch7.own.nn' end
  function makers.optim()
    local optim = require 'amp.torch7.optim'
    return setmetatable({}, {__index = function(_, k) return rawget(optim, k) end})
  end
  makers.paths, makers.xlua, makers.threads = around.paths, around.xlua, around.threads
  function makers.sys() return around.sys(part 'paths') end
  function makers.image() return around.image(torch) end
  function makers.lfs() return around.lfs(part 'paths') end
  local graph
  function makers.nngraph()
    local nngraph
    nngraph, graph = require 'amp.torch7.own.graph'(part 'nn', torch)
    rawset(_G, 'graph', graph)
    return nngraph
  end
  function makers.graph()
    part 'nngraph'
    return graph
  end
  local function on_gpu(name, make)
    makers[name] = function()
      if not has_cuda() and o.cuda ~= 'pretend' then
        raise(nil, "require '%s': no GPU was found; amp.torch7.install{cuda = 'pretend'} lets it work on the CPU", name)
      end
      return make()
    end
  end
  on_gpu('cutorch', function() return cutorch(torch, not has_cuda()) end)
  on_gpu('cunn', function()
    part 'cutorch'
    rawset(_G, 'cutorch', made.cutorch)
    add_data_parallel(part 'nn', classes)
    return part 'nn'
  end)
  on_gpu('cudnn', function()
    part 'cunn'
    local D = cudnn(part 'nn')
    classes.roots.cudnn = D
    return D
  end)
  torch.find_class = function(name)
    local short = name:match '^nn%.(.+)$' or name:match '^cudnn%.(.+)$'
    if short then
      local mt = rawget(part 'nn', short)
      if mt and not classes.classes[name] then classes.classes[name] = mt end
    end
  end
  for name in pairs(makers) do
    package.preload[name] = function()
      if name == 'lfs' then -- the system's own, where it is installed
        for _, searcher in ipairs {unpack(package.loaders, 2)} do
          local found = searcher 'lfs'
          if type(found) == 'function' then
            local ok, v = pcall(found, 'lfs')
            if ok then return v end
          end
        end
      end
      local v = part(name)
      rawset(_G, name, v)
      if name ~= 'torch' and rawget(_G, 'torch') == nil then rawset(_G, 'torch', torch) end
      return v
    end
  end
  -- what a prompt of Torch7 has from the start
  if rawget(table, 'unpack') == nil then rawset(table, 'unpack', unpack) end
  if rawget(_G, 'path') == nil then
    local found, path = pcall(require, 'pl.path')
    rawset(_G, 'path', found and path or around.path(part 'paths'))
  end
  if o.globals then
    for _, name in ipairs {'torch', 'paths', 'sys', 'xlua', 'nn', 'optim'} do
      if rawget(_G, name) == nil then rawset(_G, name, part(name)) end
    end
  end
  return torch
end

return M
