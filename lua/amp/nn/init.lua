--- amp.nn: networks out of modules. Each class is loaded when it is first named.
local util = require 'amp.util'

local files = {
  Module = 'tree', Sequential = 'sequential', ModuleList = 'modulelist', ModuleDict = 'moduledict',
  Identity = 'identity', Flatten = 'flatten', Linear = 'linear', Conv2d = 'conv', Dropout = 'dropout',
  Embedding = 'embedding', functional = 'functional', init = 'initializers', utils = 'utils',
}

-- files that hold several classes
local groups = {
  pool = {'MaxPool2d', 'AvgPool2d'},
  norm = {'BatchNorm1d', 'BatchNorm2d', 'LayerNorm'},
  activation = {'ReLU', 'Tanh', 'Sigmoid', 'SiLU', 'GELU', 'Softplus', 'Softmax', 'LogSoftmax'},
  loss = {'CrossEntropyLoss', 'NLLLoss', 'MSELoss', 'L1Loss', 'BCELoss', 'BCEWithLogitsLoss',
    'CrossEntropyCriterion', 'ClassNLLCriterion'},
}
local group_of = {}
for file, list in pairs(groups) do
  for _, name in ipairs(list) do group_of[name] = file end
end

-- What all classes stand on: one copy a Lua state, even where package.loaded is
-- cleared between two loads (a test runner's insulation).
local base = {}
for _, name in ipairs {'amp.nn.module', 'amp.nn.tree', 'amp.nn.where', 'amp.nn.initializers', 'amp.nn.sequential'} do
  base[name] = require(name)
end

local function load(file)
  for name, module in pairs(base) do package.loaded[name] = module end
  return require('amp.nn.' .. file)
end

local M = {}

return setmetatable(M, {__index = function(_, name)
  local value
  if files[name] then
    value = load(files[name])
  elseif group_of[name] then
    value = load(group_of[name])[name]
  elseif type(name) == 'string' and name:match('^%u') then
    local known = util.keys(files)
    for k in pairs(group_of) do known[#known + 1] = k end
    require('amp.error').throw('nn', "no class '%s'%s", name, util.hint(name, known))
  end
  M[name] = value
  return value
end})
