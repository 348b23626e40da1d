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
  -- The device of new tensors, and where tensors of the CPU go.
  function C.setDevice(i)
    if type(i) ~= 'number' or i % 1 ~= 0 or i < 1 or i > C.getDeviceCount() then
      raise('cutorch.setDevice', 'there is no GPU %s of %d', tostring(i), C.getDeviceCount())
    end
    C.device = i
    if pretend then return end
    for _, registry in ipairs {core.types, core.storages} do
      for _, t in pairs(registry) do
        if t.device ~= 'cpu' then t.device = 'cuda:' .. i end
      end
    end
  end
  function C.getDevice() return C.device end
  function C.withDevice(i, f, ...)
    local before = C.device
    C.setDevice(i)
    local results = {pcall(f, ...)}
    C.setDevice(before)
    if not results[1] then error(results[2], 0) end
    return unpack(results, 2, table.maxn(results))
  end
  function C.synchronize()
    if not pretend then amp.cuda.synchronize() end
  end
  C.synchronizeAll = C.synchronize
  C.manualSeed, C.manualSeedAll, C.seed, C.seedAll = torch.manualSeed, torch.manualSeed, torch.seed, torch.seed
  C.initialSeed = torch.initialSeed
  function C.getDeviceProperties(i)
    if pretend then return {name = 'none', totalGlobalMem = 0} end
    local p = amp.cuda.get_device_properties('cuda:' .. (i or C.device))
    return {name = p.name, totalGlobalMem = p.total_memory, major = p.major, minor = p.minor, multiProcessorCount = p.multi_processor_count}
  end
  --- Bytes that are free, and all.
  function C.getMemoryUsage(i)
    local total = C.getDeviceProperties(i).totalGlobalMem
    local m = amp.memory(pretend and 'cpu' or 'cuda:' .. (i or C.device))
    return math.max(0, total - m.live), total
  end
  function C.setHeapTracking() end
  function C.getState() return {} end
  C.createCudaHostTensor = function(...) return torch.FloatTensor(...) end
  for kind in pairs(core.dtypes) do
    C['createCudaHost' .. kind .. 'Tensor'] = function(...) return torch[kind .. 'Tensor'](...) end
  end
  core.on_gpu = not pretend
  C.hasHalf = true
  for _, registry in ipairs {core.types, core.storages} do
    for name, t in pairs(registry) do
      if t.device ~= 'cpu' then
        if pretend then -- names of the GPU's classes are those of the CPU's
          t = registry['torch.' .. t.kind .. name:match '(%u%l+)$']
          registry[name] = t
        end
        torch[name:match '%.(.*)$'] = t.mt
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
-- @tparam ?table given cuda = true: a GPU has to be there; false: it is not used; 'pretend': without one, cutorch, cunn and cudnn
-- work on the CPU; globals = true: torch, nn, optim, ...
-- are set at once, not when they are asked for
-- @treturn table torch
function M.install(given)
  local o = options.read('torch7.install', given, {'cuda', 'globals'}, {globals = true})
  if o.cuda ~= nil and o.cuda ~= 'pretend' and type(o.cuda) ~= 'boolean' then
    raise('torch7.install', "cuda is true, false or 'pretend', got %s", tostring(o.cuda))
  end
  if o.cuda == true and not has_cuda() then raise('torch7.install', 'no GPU was found; {cuda = \'pretend\'} lets scripts work on the CPU') end
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
  makers.paths, makers.xlua, makers.threads = around.paths, around.xlua, require 'amp.torch7.own.threads'
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
      if o.cuda == false or not has_cuda() and o.cuda ~= 'pretend' then
        if o.cuda == false then raise(nil, "require '%s': amp.torch7.install{cuda = false} left it out", name) end
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
