--- What people type who come from PyTorch, Torch7, NumPy or from plain Lua, and what it is called here.
-- Only consulted when a name is not there, so a cure costs nothing to those who need none.
-- @module amp.core.habits
local util = require 'amp.util'

local M = {}

local typed = { Float = 'float32', Double = 'float64', Half = 'float16', BFloat16 = 'bfloat16', Long = 'int64', Int = 'int32', Short = 'int16',
  Char = 'int8', Byte = 'uint8', Bool = 'bool', Cuda = 'float32' }

--- Names that one looks for in `amp`.
M.amp = {
  from_numpy = 'amp.tensor(table) copies a table, amp.io.load_npy reads a .npy file',
  numpy = 'x:tolist() gives Lua tables',
  array = 'amp.tensor(table)', asarray = 'amp.tensor(table)', as_tensor = 'amp.tensor(table)',
  Variable = 'every tensor can require grad: amp.tensor(data, {requires_grad = true})', inference_mode = 'amp.no_grad(function() ... end)',
  len = '#x is the size of the first dimension', size = 'x:size()', shape = 'x.shape', item = 'x:item()', manualSeed = 'amp.manual_seed(n)',
  seed = 'amp.manual_seed(n)', random = 'amp.manual_seed(n) seeds, amp.rand and amp.randn draw',
  range = 'amp.arange(start, stop) excludes its end, as PyTorch has it',
  autograd = 'amp.grad(), amp.no_grad() and amp.Function{forward = ..., backward = ...} stand in amp itself',
  Parameter = 'nn.Parameter(t)', Module = "nn.Module:extend 'Net'",
  jit = 'amp.compile(fn) runs it as a graph, amp.trace(fn, x) gives the graph', fx = 'amp.trace(fn, x) gives a graph',
  onnx = "amp.trace(net, x):export_onnx 'net.onnx' writes, amp.io.onnx.load reads", export = "amp.trace(net, x):save 'net.safetensors'",
  hybridize = 'net:hybridize()', optimize_for = 'g:optimize()', SymbolBlock = "amp.load_graph 'net.safetensors'",
  device = "devices are strings: 'cpu', 'cuda', 'cuda:1'",
  amp = 'amp.autocast and amp.GradScaler stand in amp itself', Generator = 'amp.manual_seed(n), amp.get_rng_state() and amp.set_rng_state(state)',
  set_default_tensor_type = 'amp.set_default_dtype(name)', DataLoader = 'amp.data.DataLoader', utils = 'amp.data.DataLoader, nn.utils',
  functional = 'amp.nn.functional', Adam = 'amp.optim.Adam', SGD = 'amp.optim.SGD',
  Linear = 'amp.nn.Linear', Sequential = 'amp.nn.Sequential', cuda_is_available = 'amp.cuda.is_available()', synchronize = 'amp.cuda.synchronize()',
  is_available = 'amp.cuda.is_available()', Timer = 'amp.clock() gives seconds',
}
for kind, dtype in pairs(typed) do
  local cuda = kind == 'Cuda' and ", device = 'cuda'" or ''
  M.amp[kind .. 'Tensor'] = ("amp.empty(2, 3, {dtype = '%s'%s}) or amp.tensor(table, {dtype = '%s'%s})"):format(dtype, cuda, dtype, cuda)
end

--- Methods and properties that one looks for in a tensor.
M.tensor = {
  numpy = 't:tolist() gives Lua tables, amp.io.save_npy(path, t) writes a file', totable = 't:tolist()', len = '#t, or t:size(1)', length = '#t, or t:size(1)',
  astype = "t:to 'float16', t:long()", is_cpu = "t.device == 'cpu'", get_device = 't.device', nelem = 't:numel()', resize_ = 't:view(...) or amp.empty(...)',
  resize = 't:view(...) or amp.empty(...)', storage = 't:data_ptr()', tostring = 'tostring(t)',
  values = 'values and indices are two results: local values, indices = t:max(1); t:tolist() gives Lua tables',
  indices = 'values and indices are two results: local values, indices = t:max(1)', toTable = 't:tolist()',
 cmul = 't * u, or t:mul_(u) in place', cdiv = 't / u, or t:div_(u) in place', csub = 't - u', cadd = 't + u',
  grad_fn = 't.is_leaf says whether it was made by an op', retain_grad = 't:register_hook(function(g) ... end)', names = 'dimensions are numbers',
  expandAs = 't:expand_as(u)', viewAs = 't:view_as(u)', typeAs = 't:type_as(u)', isSize = 't.shape', ptr = 't:data_ptr()', backwards = 't:backward()',
  zeroGrad = 'opt:zero_grad()', zero_grad = 't.grad = nil, or opt:zero_grad()', H = 't.mT',
}
M.tensor['repeat'] = "t:tile(2, 3); `repeat` is a word of Lua's, so it is t['repeat'](t, 2, 3)"

--- dtypes as others write them.
M.dtypes = { fp16 = 'float16', f16 = 'float16', bf16 = 'bfloat16', fp32 = 'float32', f32 = 'float32', fp64 = 'float64', f64 = 'float64', i64 = 'int64',
  i32 = 'int32', u8 = 'uint8', boolean = 'bool', integer = 'int64', number = 'float32', single = 'float32',
  ['torch.FloatTensor'] = 'float32', ['torch.DoubleTensor'] = 'float64', ['torch.LongTensor'] = 'int64', ['torch.ByteTensor'] = 'uint8',
  fp8 = 'float8_e4m3', float8 = 'float8_e4m3', f8 = 'float8_e4m3', float8_e4m3fn = 'float8_e4m3', e4m3 = 'float8_e4m3',
  e5m2 = 'float8_e5m2', tf32 = 'float32', ['torch.float32'] = 'float32', ['torch.float16'] = 'float16', ['torch.bfloat16'] = 'bfloat16',
  ['torch.long'] = 'int64', ['torch.int64'] = 'int64' }

--- devices as others write them.
M.devices = { gpu = 'cuda', GPU = 'cuda', CUDA = 'cuda', nvidia = 'cuda', ['gpu:0'] = 'cuda:1', ['gpu:1'] = 'cuda:1', ['cuda:0'] = 'cuda:1', CPU = 'cpu',
  mps = 'cpu', xpu = 'cuda' }

--- Methods that one looks for in a graph.
M.graph = {
  forward = 'g(x), or g:run(x)', call = 'g(x), or g:run(x)', state_dict = 'g:named_parameters(), g:named_buffers(); g:save(path) writes them',
  load_state_dict = 'its tensors are those of the module: net:load_state_dict(state)', train = 'the mode is the one that was traced: g.training',
  eval = 'the mode is the one that was traced: amp.trace(net:eval(), x)', cuda = "g:to 'cuda'", cpu = "g:to 'cpu'",
  half = 'amp.convert_model(g, {...})', float = 'amp.convert_model(g, {...})', print_tabular = 'print(g), print(amp.summary(g))',
  code = 'print(g)', graph = 'print(g), g:nodes()', show = 'print(g), amp.plot.graph(g)', plot = "amp.plot.graph(g):save 'net.png'",
  draw = "amp.plot.graph(g):save 'net.png'", summary = 'amp.summary(g)', export = "g:save(path), g:export_onnx(path)",
  load = 'amp.load_graph(path)', children = 'g:nodes()', modules = 'g:nodes()', zero_grad = 'opt:clear_grad(), net:zero_grad()',
  list_arguments = 'g:inputs()', list_outputs = 'g:outputs()', bind = 'g(x): it is bound to its parameters', hybridize = 'it is a graph: g(x)',
  compile = 'it is a graph: g:optimize()', convert = 'amp.convert_model(g, {...})', device = "g:to(device) moves it",
}

--- Names that one looks for in amp.graph.
M.graph_space = {
  compile = 'amp.compile(fn)', save = 'g:save(path)', optimize = 'g:optimize()', export = 'g:save(path), g:export_onnx(path)',
  Graph = 'amp.trace(net, x) makes one', run = 'g:run(x), or g(x)', plot = 'amp.plot.graph(g)', capture = 'amp.capture(fn)',
  jit = 'amp.compile(fn)', script = 'amp.trace(net, x): there is no other form of a script', nodes = 'g:nodes()',
  onnx = 'g:export_onnx(path), amp.io.onnx.load(path)',
}

--- Names that one looks for in amp.nn.
M.nn = {
  relu = 'nn.ReLU() is a layer, amp.relu(x) a function', MSECriterion = 'nn.MSELoss()', BCECriterion = 'nn.BCELoss()',
  AbsCriterion = 'nn.L1Loss()', SpatialConvolution = 'nn.Conv2d(in, out, kernel_size)', SpatialMaxPooling = 'nn.MaxPool2d(kernel_size)',
  SpatialBatchNormalization = 'nn.BatchNorm2d(n)', BatchNormalization = 'nn.BatchNorm1d(n)', View = 'nn.Flatten()', Reshape = 'nn.Flatten()',
  LookupTable = 'nn.Embedding(n, width)', Dense = 'nn.Linear(in, out)', BatchNorm = 'nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d',
  Conv = 'nn.Conv1d, nn.Conv2d, nn.Conv3d', CrossEntropy = 'nn.CrossEntropyLoss()', SoftMax = 'nn.Softmax()', LogSoftMax = 'nn.LogSoftmax()',
  DataParallel = 'one process drives one GPU', ParameterList = 'fields of a module that require grad are registered: self.w1 = nn.Parameter(t)',
  ParameterDict = 'fields of a module that require grad are registered: self.w1 = nn.Parameter(t)', Transpose = 'x:transpose(1, 2)',
}

--- Names that one looks for in the rooms of amp: in amp.cuda, amp.data and so on.
M.rooms = {
  ['amp.cuda'] = {
    amp = 'amp.autocast and amp.GradScaler stand in amp itself', manual_seed = 'amp.manual_seed(n) seeds every device',
    manual_seed_all = 'amp.manual_seed(n) seeds every device', get_device_name = 'amp.cuda.get_device_properties(device).name',
    get_device_capability = 'amp.cuda.get_device_properties(device)', memory_allocated = 'amp.cuda.memory_stats().live',
    memory_reserved = 'amp.cuda.memory_stats().cached', reset_peak_memory_stats = 'amp.cuda.reset_max_memory_allocated()',
    max_memory_reserved = 'amp.cuda.max_memory_allocated()', current_device = "devices are named: 'cuda', 'cuda:2'",
    set_device = "amp.set_default_device 'cuda:2'", device = "devices are named: 'cuda', 'cuda:2'",
    mem_get_info = 'amp.cuda.memory_stats()', memory_summary = 'amp.cuda.memory_stats()', graph = 'amp.capture(fn)', CUDAGraph = 'amp.capture(fn)',
    getDeviceCount = 'amp.cuda.device_count()',
  },
  ['amp.data'] = {
    Dataset = 'a dataset is any table with size and get: {size = function() return n end, get = function(_, i) return x, y end}',
    IterableDataset = 'a dataset is any table with size and get: {size = function() return n end, get = function(_, i) return x, y end}',
    default_collate = 'amp.data.collate', MNIST = 'amp.data.mnist(folder)', RandomSampler = '{shuffle = true} of amp.data.DataLoader',
    SequentialSampler = 'amp.data.DataLoader without shuffle', BatchSampler = '{batch_size = n} of amp.data.DataLoader',
    utils = 'amp.data.DataLoader, amp.data.TensorDataset, amp.data.random_split stand in amp.data itself',
  },
  ['amp.distributed'] = {
    init_process_group = 'amp.distributed.init()', destroy_process_group = 'amp.distributed.finalize()', get_rank = 'amp.distributed.rank()',
    get_world_size = 'amp.distributed.world_size()', all_gather_into_tensor = 'amp.distributed.all_gather(t)',
    DistributedDataParallel = 'amp.parallel.DistributedDataParallel(net)', broadcast_object_list = 'amp.distributed.broadcast_object(value)',
  },
}

--- Globals that one expects.
M.globals = {
  torch = "local amp = require 'amp'", np = "local amp = require 'amp'", numpy = "local amp = require 'amp'", nn = "local nn = require('amp').nn",
  F = "local F = require('amp').nn.functional", optim = "local optim = require('amp').optim", amp = "local amp = require 'amp'",
  len = '#x is the size of the first dimension', range = 'for i = 1, n do ... end', int = 'math.floor(x)', float = 'tonumber(x)', str = 'tostring(x)',
  list = 'a Lua table: {...}', dict = 'a Lua table: {key = value}', enumerate = 'for i, v in ipairs(list) do ... end', None = 'nil', True = 'true',
  False = 'false',
  abs = 'math.abs(x)', max = 'math.max(a, b)', min = 'math.min(a, b)', sum = 'x:sum()', zip = 'for i = 1, #a do ... a[i], b[i] end',
  self = 'a method is defined with a colon: function Net:forward(x)',
  null = 'nil', cuda = "require('amp').cuda", device = "devices are strings: 'cpu', 'cuda'", isinstance = 'net:is(nn.Linear), amp.is_tensor(x)',
  exit = 'os.exit()',
  open = 'io.open(path)', sqrt = 'math.sqrt(x)', exp = 'math.exp(x)', log = 'math.log(x)', random = 'math.random()', time = 'amp.clock()',
  cutorch = "require('amp').cuda",
  xlua = "require('amp').progress", paths = 'io.open(path)', input = "io.read '*l'", append = 'list[#list + 1] = x', sleep = 'os.execute "sleep 1"',
}

--- "; here that is ..." of a name, or what is near among the known ones, or nothing.
-- @tparam ?table cures one of the tables above
-- @tparam string name
-- @tparam table known names that are there
-- @treturn string
function M.hint(cures, name, known)
  local cure = cures and cures[name]
  if cure then return '; here: ' .. cure end
  return util.hint(name, known)
end

return M
