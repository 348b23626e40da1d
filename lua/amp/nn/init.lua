--- amp.nn: networks out of modules. Each class is loaded when it is first named.
local util = require 'amp.util'

local files = {
  Module = 'core.tree', Sequential = 'container.sequential', ModuleList = 'container.modulelist', ModuleDict = 'container.moduledict',
  Identity = 'identity', Flatten = 'flatten', Linear = 'linear', PReLU = 'prelu',
  Bilinear = 'bilinear', Parameter = 'core.parameter', MultiheadAttention = 'attention', functional = 'functional',
  RotaryEmbedding = 'blocks.rotary', SwiGLU = 'blocks.swiglu', init = 'initializers', utils = 'utils',
  parallel = 'parallel',
}

-- files that hold functions
local rooms = {init = true, utils = true, parallel = true}

-- files that hold several classes
local groups = {
  conv = {'Conv1d', 'Conv2d', 'Conv3d', 'ConvTranspose1d', 'ConvTranspose2d', 'ConvTranspose3d'},
  fold = {'Unfold', 'Fold'},
  rnn = {'RNN', 'LSTM', 'GRU'},
  rnn_cell = {'RNNCell', 'LSTMCell', 'GRUCell'},
  embedding = {'Embedding', 'EmbeddingBag'},
  transformer = {'TransformerEncoderLayer', 'TransformerEncoder', 'TransformerDecoderLayer', 'TransformerDecoder', 'Transformer'},
  pool = {'MaxPool1d', 'MaxPool2d', 'MaxPool3d', 'AvgPool1d', 'AvgPool2d', 'AvgPool3d', 'LPPool1d', 'LPPool2d',
    'LPPool3d', 'AdaptiveMaxPool1d', 'AdaptiveMaxPool2d', 'AdaptiveMaxPool3d', 'AdaptiveAvgPool1d',
    'AdaptiveAvgPool2d', 'AdaptiveAvgPool3d', 'MaxUnpool1d', 'MaxUnpool2d', 'MaxUnpool3d'},
  resample = {'Upsample', 'UpsamplingNearest2d', 'UpsamplingBilinear2d', 'PixelShuffle', 'PixelUnshuffle', 'ChannelShuffle'},
  pad = {'ZeroPad1d', 'ZeroPad2d', 'ZeroPad3d', 'ConstantPad1d', 'ConstantPad2d', 'ConstantPad3d', 'ReflectionPad1d',
    'ReflectionPad2d', 'ReflectionPad3d', 'ReplicationPad1d', 'ReplicationPad2d', 'ReplicationPad3d',
    'CircularPad1d', 'CircularPad2d', 'CircularPad3d'},
  norm = {'BatchNorm1d', 'BatchNorm2d', 'BatchNorm3d', 'SyncBatchNorm', 'InstanceNorm', 'InstanceNorm1d', 'InstanceNorm2d', 'InstanceNorm3d'},
  layernorm = {'LayerNorm', 'RMSNorm', 'GroupNorm', 'LocalResponseNorm'},
  distance = {'CosineSimilarity', 'PairwiseDistance'},
  dropout = {'Dropout', 'Dropout1d', 'Dropout2d', 'Dropout3d', 'AlphaDropout', 'FeatureAlphaDropout'},
  activation = {'ReLU', 'Tanh', 'Sigmoid', 'SiLU', 'GELU', 'Softplus', 'Softmax', 'LogSoftmax', 'Mish', 'SELU', 'Hardswish', 'Hardsigmoid',
    'ReLU6', 'Softsign', 'Tanhshrink', 'LogSigmoid', 'LeakyReLU', 'ELU', 'CELU', 'Hardtanh', 'Hardshrink', 'Softshrink', 'Threshold',
    'Softmin', 'GLU', 'RReLU'},
  loss = {'CrossEntropyLoss', 'NLLLoss', 'MSELoss', 'L1Loss', 'SmoothL1Loss', 'HuberLoss', 'BCELoss', 'BCEWithLogitsLoss', 'KLDivLoss', 'CTCLoss',
    'PoissonNLLLoss', 'GaussianNLLLoss', 'CosineEmbeddingLoss', 'HingeEmbeddingLoss', 'MarginRankingLoss', 'MultiLabelMarginLoss',
    'MultiLabelSoftMarginLoss', 'SoftMarginLoss', 'MultiMarginLoss', 'TripletMarginLoss', 'TripletMarginWithDistanceLoss',
    'CrossEntropyCriterion', 'ClassNLLCriterion'},
}
local group_of = {}
for file, list in pairs(groups) do
  for _, name in ipairs(list) do group_of[name] = file end
end

-- What all classes stand on: one copy a Lua state, even where package.loaded is
-- cleared between two loads (a test runner's insulation).
local base = {}
for _, name in ipairs {'amp.nn.module', 'amp.nn.core.tree', 'amp.nn.core.where', 'amp.nn.initializers', 'amp.nn.container.list',
  'amp.nn.container.sequential'} do
  base[name] = require(name)
end

local function load(file)
  for name, module in pairs(base) do package.loaded[name] = module end
  return require('amp.nn.' .. file)
end

local M = {}

require('amp.error').space(M, 'nn')

return setmetatable(M, {__index = function(_, name)
  local value
  if files[name] then
    value = load(files[name])
    if rooms[name] then require('amp.error').room(value, 'nn.' .. name) end
  elseif group_of[name] then
    value = load(group_of[name])[name]
  elseif type(name) == 'string' and name:sub(1, 1) ~= '_' then
    local known, habits = util.keys(files), require 'amp.core.habits'
    for k in pairs(group_of) do known[#known + 1] = k end
    require('amp.error').throw_code('name', 'nn', "no class '%s'%s", name, habits.hint(habits.nn, name, known))
  end
  M[name] = value
  return value
end})
