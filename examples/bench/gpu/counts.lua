-- What each workload of cases.lua has to compute and to move, counted: `counts.NAME(o)` gives a list of kernels, each
-- with its FLOPs and its bytes of device memory, of the design in which every value is read and written as rarely as
-- the algorithm allows (16-bit activations and gradients, one pass for check, one for the step). `counts.time` makes
-- milliseconds of them: a kernel takes max(FLOPs / rate, bytes / bandwidth), kernels add up.
--   floor      full rates, no gaps
--   predicted  products reach the share of the rate that theirs do (below), and each kernel costs its start: 1.2 us in
--              a captured step, 2 us eager
-- Caches are not counted: a workload that lives in one (3 x 64) can be faster than its bytes say.
local M = {}

-- Share of the rate of a large square product that the products of a workload reach.
local share = { mlp = 0.72, resnet = 0.60, gpt2 = 0.74, lstm = 0.65, cell = 0.65 }
local START = { captured = 1.2e-3, eager = 2e-3 } -- ms

local List = {}
List.__index = List

local function list() return setmetatable({ n = 0 }, List) end

-- k kernels that do so many FLOPs and bytes each
function List:add(flops, bytes, k)
  k = k or 1
  self[#self + 1] = { flops = flops, bytes = bytes, n = k }
  self.n = self.n + k
end

-- m x k by k x n with elements of w bytes; more bytes that the epilogue moves
function List:product(m, n, k, w, more, count) self:add(2 * m * n * k, w * (m * k + k * n + m * n) + (more or 0), count) end
function List:pass(bytes, count) self:add(0, bytes, count) end

-- Check (float16 only) and optimizer over so many parameters: gradient, master, low copy, moments of `state` floats.
-- bfloat16 keeps the master as bfloat16 and a 16-bit remainder, so that the upper half is the low copy.
local function update(l, precision, parameters, state)
  if precision == 'fp16' then
    l:pass(2 * parameters)
    l:pass(0) -- the scale's own update
  end
  local each = precision == 'fp32' and 12 or precision == 'fp16' and 12 or 10
  l:pass(parameters * (each + 8 * state))
end

local function width(precision) return precision == 'fp32' and 4 or 2 end

function M.mlp(o)
  local l, w, B, W, L = list(), width(o.precision), o.batch, o.width, o.layers
  if w == 2 then l:pass(6 * B * W) end -- the input's cast
  for i = 1, L do l:product(B, W, W, w, i < L and B * W / 8 or 0) end -- with bias, ReLU and a bit an element
  l:pass((w + 4) * B * W) -- loss
  l:pass((2 * w + 4) * B * W)
  for i = L, 1, -1 do
    l:product(W, W, B, w)
    if i > 1 then l:product(B, W, W, w, B * W / 8) end
  end
  update(l, o.precision, L * (W * W + W), o.opt == 'adamw' and 2 or 0)
  return l
end

-- One convolution without bias, its batch norm with ReLU (and a residual), forward and backward.
local function conv(l, w, N, from, to, k, size, stride, residual, first)
  local out = size / stride
  local x, y, kernel = N * from * size * size, N * to * out * out, from * to * k * k
  local flops = 2 * y * from * k * k
  l:add(flops, w * (x + y + kernel)) -- and the statistics of what it writes
  l:pass(w * y * (residual and 3 or 2)) -- normalise, add, ReLU
  l:pass(w * y * 2) -- backward: both sums
  l:pass(w * y * (residual and 4 or 3)) -- its result, and the residual's gradient
  l:add(flops, w * (x + y + kernel)) -- gradient of the weight
  if not first then l:add(flops, w * (x + y + kernel)) end
  return out, kernel + 2 * to
end

function M.resnet(o)
  local l, w, N = list(), width(o.precision), o.batch
  local base, size, parameters = o.width, o.size, 0
  if w == 2 then l:pass(6 * N * 3 * size * size) end
  local function one(...)
    local out, p = conv(l, w, N, ...)
    parameters = parameters + p
    return out
  end
  size = one(3, base, 7, size, 2, false, true)
  local pool = N * base * size * size
  l:pass(w * pool * 1.25 + pool / 4) -- max pooling with the places, and backward
  l:pass(w * pool * 1.25 + pool / 4)
  size = size / 2
  local from, stage = base, 0
  for blocks in o.blocks:gmatch '%d+' do
    local inner = base * 2 ^ stage
    for b = 1, tonumber(blocks) do
      local stride = b == 1 and stage > 0 and 2 or 1
      local there = size
      one(from, inner, 1, size, 1)
      size = one(inner, inner, 3, size, stride)
      if b == 1 then one(from, inner * 4, 1, there, stride) end
      one(inner, inner * 4, 1, size, 1, true)
      from = inner * 4
    end
    stage = stage + 1
  end
  l:pass(w * N * from * size * size, 2) -- mean and its gradient
  for _ = 1, 3 do l:product(N, o.classes, from, w) end
  l:pass(2 * w * N * o.classes, 2) -- cross entropy
  parameters = parameters + from * o.classes + o.classes
  update(l, o.precision, parameters, 1)
  return l
end

function M.gpt2(o)
  local l, w, C, V = list(), width(o.precision), o.width, o.vocabulary
  local N = o.batch * o.tokens
  l:pass(3 * w * N * C) -- both embeddings added
  for _ = 1, o.layers do
    l:pass(2 * w * N * C) -- layer norm; the residual's sum is written by the one that follows
    l:product(N, 3 * C, C, w)
    l:add(2 * N * o.tokens * C, 4 * w * N * C) -- attention, half of it masked
    l:product(N, C, C, w)
    l:pass(4 * w * N * C) -- add and layer norm
    l:product(N, 4 * C, C, w, 4 * w * N * C) -- GELU, and its argument is kept
    l:product(N, C, 4 * C, w)
    l:pass(3 * w * N * C)
    -- backward, in the same order from the end
    l:product(N, 4 * C, C, w, 4 * w * N * C)
    l:product(4 * C, C, N, w)
    l:product(N, C, 4 * C, w)
    l:product(C, 4 * C, N, w)
    l:pass(4 * w * N * C)
    l:product(N, C, C, w)
    l:product(C, C, N, w)
    l:add(5 * N * o.tokens * C, 8 * w * N * C)
    l:product(N, C, 3 * C, w)
    l:product(C, 3 * C, N, w)
    l:pass(4 * w * N * C)
  end
  l:pass(2 * w * N * C)
  l:product(N, V, C, w)
  l:pass(2 * w * N * V) -- the loss reads the logits and leaves their gradient
  l:product(N, C, V, w)
  l:product(V, C, N, w)
  l:pass(3 * w * N * C)
  l:pass(3 * w * N * C) -- the embeddings' gradients
  local parameters = V * C + o.tokens * C + o.layers * (12 * C * C + 13 * C) + 2 * C
  update(l, o.precision, parameters, 2)
  return l
end

-- The loss over all steps and the weights' update, as the recurrent workloads have them.
local function around(l, o, w, parameters)
  local n = o.time * o.batch * o.width
  if w == 2 then l:pass(6 * n) end
  l:pass((w + 4) * n)
  l:pass((2 * w + 4) * n)
  update(l, o.precision, parameters, 0)
end

function M.lstm(o)
  local l, w, H, B, T = list(), width(o.precision), o.width, o.batch, o.time
  local gates = ({ GRU = 3, RNN = 1 })[o.kind] or 4
  local G = gates * H
  for _ = 1, o.layers do
    l:product(T * B, G, H, w)
    l:product(G, H, T * B, w) -- gradients of both weights, of all steps at once
    l:product(G, H, T * B, w)
  end
  for _ = 2, o.layers do l:product(T * B, H, G, w) end
  -- one product and the gates a step; layers follow each other in a wave, T + layers - 1 long
  local wave = T + o.layers - 1
  l:product(B, G, H, w, (gates + 2) * w * B * H, wave)
  l:product(B, H, G, w, 3 * gates * w * B * H, wave)
  around(l, o, w, o.layers * 2 * gates * (H * H + H))
  return l
end

function M.cell(o)
  local l, w, H, B, T = list(), width(o.precision), o.width, o.batch, o.time
  l:product(B, 4 * H, H, w, 0, 2 * T) -- of the input and of the state
  l:pass(8 * w * B * H, T)
  l:pass(14 * w * B * H, T)
  l:product(B, H, 4 * H, w, 0, T - 1)
  l:product(4 * H, H, B, w, w * 4 * H * H, 2 * T) -- weights' gradients add up
  l:pass(2 * w * T * B * H, 2) -- stack
  around(l, o, w, 8 * H * H + 8 * H)
  return l
end

--- Milliseconds of a workload on a card.
-- @tparam string name
-- @tparam table o sizes, precision
-- @tparam table card {copy = bytes/s, low = 16-bit FLOP/s, high = float32 FLOP/s}
-- @treturn number floor
-- @treturn table predicted: {eager, captured}
-- @treturn table {flops, bytes, kernels}
function M.time(name, o, card)
  local l = M[name](o)
  local rate = o.precision == 'fp32' and card.high or card.low
  local floor, likely, flops, bytes = 0, 0, 0, 0
  for _, k in ipairs(l) do
    floor = floor + k.n * math.max(k.flops / rate, k.bytes / card.copy)
    likely = likely + k.n * math.max(k.flops / (rate * share[name]), k.bytes / card.copy)
    flops, bytes = flops + k.n * k.flops, bytes + k.n * k.bytes
  end
  return floor * 1e3, { eager = likely * 1e3 + l.n * START.eager, captured = likely * 1e3 + l.n * START.captured },
    { flops = flops, bytes = bytes, kernels = l.n }
end

return M
