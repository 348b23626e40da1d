--- A step that runs again and again: `amp.capture`.
--
-- On a GPU two calls run as they are, the third is captured as a graph while fn runs once more, and from then on a call
-- sends what may differ (arguments, hyper-parameters, random numbers) and replays the graph: fn itself is not called.
-- Other shapes or values of arguments, those of small tensors of the CPU too, are other graphs. C keeps the graph
-- (src/capture/capture.c); this file decides what is captured and when, and holds on to what the graph uses.
-- @module amp.capture
local ffi = require 'ffi'
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local capturing = require 'amp.capture.current'
local err = require 'amp.error'
local scope = require 'amp.core.scope'
local modules -- amp.capture.modules, at the first step
local util = require 'amp.util'
local C, S, ref_t = core.C, core.S, core.ref_t
local istype = ffi.istype

local CPU, CUDA = tonumber(C.AMP_CPU), tonumber(C.AMP_CUDA)
local WARM = 2
local pointers = ffi.typeof 'amp_tensor *[?]'

local function callable(f)
  if type(f) == 'function' then return true end
  local mt = getmetatable(f)
  return type(f) == 'table' and type(mt) == 'table' and type(mt.__call) == 'function'
end

local function is_tensor(v) return istype(ref_t, v) end
local function on_gpu(v) return is_tensor(v) and v.ptr_ ~= nil and v.ptr_.device == CUDA end

-- Where a step runs: the first GPU among its arguments, else the default device.
local function place(args)
  for i = 1, args.n do
    if on_gpu(args[i]) then return args[i].ptr_.device_index end
  end
  if S.default_device == CUDA then return S.default_device_index end
  for i = 1, args.n do
    if is_tensor(args[i]) then return nil end
  end
  return C.amp_device_available(CUDA) > 0 and require('amp.types').device_code.cuda % 256 or nil
end

local SMALL = 1024 -- bytes of a tensor of the CPU, which a step may send to the GPU: they become part of the graph

local function values(v)
  v = v:detach():clone()
  return ffi.string(v:data_ptr(), v:numel() * v:element_size())
end

-- What tells one graph from another.
local function key(args)
  local parts = { tostring(S.grad_mode), tostring(S.autocast_on) }
  for i = 1, args.n do
    local v = args[i]
    if is_tensor(v) then
      parts[#parts + 1] = ('%s %s %s %s'):format(util.shape(v.shape), v.dtype, v.device, tostring(v.requires_grad))
      if v.ptr_.device == CPU and v:numel() * v:element_size() <= SMALL then parts[#parts + 1] = values(v) end
    else
      parts[#parts + 1] = type(v) .. ' ' .. tostring(v)
    end
  end
  return table.concat(parts, '|')
end

local function plain(fn, ...)
  local mode = S.grad_mode
  S.grad_mode = 0
  local r = util.pack(pcall(fn, ...))
  S.grad_mode = mode
  if not r[1] then error(r[2], 0) end
  return unpack(r, 2, r.n)
end

-- fn(...), the scalers that it uses entered into a set.
local function watched(scalers, fn, args)
  local outer = capturing.scalers
  capturing.scalers = scalers
  local r = util.pack(xpcall(function() return fn(unpack(args, 1, args.n)) end, err.keep or function(e) return e end))
  capturing.scalers = outer
  if not r[1] then error(r[2], 0) end
  return unpack(r, 2, r.n)
end

-- -- One graph -----------------------------------------------------------------------

local Graph = {}
Graph.__index = Graph

-- The first argument that the step left a gradient on. Replays would leave it on the graph's own, where nobody looks.
local function with_gradient(inputs)
  for i = 1, inputs.n do
    if on_gpu(inputs[i]) and C.amp_grad_defined(inputs[i]) ~= 0 then return i end
  end
end

local function record(fn, args, index, scalers)
  local g = setmetatable({ inputs = { n = args.n }, optimizers = {}, given = pointers(args.n) }, Graph)
  for i = 1, args.n do
    local v = args[i]
    if on_gpu(v) then
      local own = plain(function() return v:detach():clone() end)
      if v.requires_grad then own.requires_grad = true end
      g.inputs[i] = own
    else
      g.inputs[i] = v
    end
  end
  for scaler in pairs(scalers) do call.check(C.amp_scaler_keep(S, scaler._handle), 'capture') end
  collectgarbage() -- the warm steps' tensors; the graph has memory of its own
  collectgarbage()
  local own = pointers(args.n)
  for i = 1, args.n do
    if on_gpu(g.inputs[i]) then own[i - 1] = g.inputs[i].ptr_ end
  end
  local handle = C.amp_capture_begin(S, CUDA, index, own, args.n)
  if handle == nil then err.raise('capture') end
  g.handle = ffi.gc(handle, C.amp_capture_free)
  capturing.current = g.optimizers
  local r = util.pack(xpcall(function() return fn(unpack(g.inputs, 1, g.inputs.n)) end, err.keep or function(e) return e end))
  capturing.current = nil
  local left = r[1] and with_gradient(g.inputs)
  local rc = C.amp_capture_end(S, g.handle, r[1] and not left and 1 or 0)
  if not r[1] then error(r[2], 0) end
  if left then
    err.throw('capture', 'the step leaves a gradient on argument %d, of which the graph has a copy: return it (amp.grad), or use the tensor from outside', left)
  end
  call.check(rc, 'capture')
  g.results = { n = r.n - 1, unpack(r, 2, r.n) }
  return g
end

-- Send an optimizer's hyper-parameters as they are now, with what only the captured step had.
local function hyper_parameters(self, entry)
  local opt = entry.opt
  local h, n = opt:_hyper_parameters('capture')
  for i = 0, n - 1 do
    if entry.rescale ~= 0 then h[i].rescale = entry.rescale end
    if entry.undecayed then h[i].weight_decay = 0 end
  end
  call.check(C.amp_capture_hyper(S, self.handle, opt._handle, h, n), 'capture')
end

function Graph:run(args, index)
  call.check(C.amp_stream_follow(S, CUDA, index, -1, 0), 'capture') -- replays that other streams asked for still read what is sent now
  for i = 1, args.n do
    if on_gpu(self.inputs[i]) then self.given[i - 1] = args[i].ptr_ end
  end
  for i = 1, #self.optimizers do
    local entry = self.optimizers[i]
    if entry.refresh then plain(entry.refresh) else hyper_parameters(self, entry) end
  end
  call.check(C.amp_capture_replay(S, self.handle, self.given, args.n), 'capture')
  local out = { n = self.results.n }
  plain(function()
    for i = 1, out.n do
      local v = self.results[i]
      out[i] = on_gpu(v) and v:detach():clone() or v -- the graph writes its own again at the next step
    end
  end)
  call.check(C.amp_stream_follow(S, CUDA, index, 0, -1), 'capture') -- the next replay, whoever asks for it, writes over what was just copied
  return unpack(out, 1, out.n)
end

-- -- The function ----------------------------------------------------------------------

--- A function that does what fn does: n calls are n steps, whatever the device. Inside, modules made of amp's own layers run
-- as optimized graphs, as compiled functions do (amp.compile). On a CPU each call runs fn, so its arguments, results,
-- errors and side effects are fn's own. On a GPU, after two calls for each new set of shapes, the
-- step is captured and replayed: learning rates, data, loss scale and random numbers are as eager steps have them;
-- prints, counters and schedulers inside fn do not repeat. Results are copies without history.
-- @tparam function|table fn a step, or a table that can be called, such as a module
-- @treturn function step takes fn's arguments, returns fn's results
-- @raise fn can't be called; fn waits for the GPU (item, print, a copy to the CPU); a parameter moved since
-- @usage
-- local step = amp.capture(function(x, y)
--   local loss = F.mse_loss(net(x), y)
--   loss:backward()
--   opt:step():clear_grad()
--   return loss
-- end)
-- for _ = 1, 10 do step(x, y) end
return function(fn, excess)
  require('amp.options').none('capture', excess)
  if not callable(fn) then err.throw('capture', 'a function is expected, got %s', util.show(fn)) end
  local graphs, calls, scalers = {}, {}, setmetatable({}, { __mode = 'k' })
  local function through(...)
    modules = modules or require 'amp.capture.modules'
    return modules.run(fn, ...)
  end
  return function(...)
    local args = util.pack(...)
    local index = not capturing.current and place(args) or nil
    if index == nil then return through(...) end
    local k = key(args)
    local n = (calls[k] or 0) + 1
    calls[k] = n
    if n <= WARM then return watched(scalers, through, args) end
    if not graphs[k] then graphs[k] = scope.lasting(record, through, args, index, scalers) end -- an open scope's end would free what the graph is made of
    return graphs[k]:run(args, index)
  end
end
