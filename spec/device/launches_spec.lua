--- How many kernels a row and its derivative launch, and what its derivative allocates: one launch for the result, one for
-- each gradient. What takes more stands here with its number and the reason; a number that is too large fails as one
-- that is exceeded does. Counted on the emulated GPU, in float32 and float16, contiguous inputs; a memset counts.
local assert = require 'luassert'
local E = require 'spec.device.emulated'

-- Rows that are not walked: their kernels on a card are a library's (products, convolutions, factorisations, transforms),
-- or they are compositions whose launches depend on their numbers of layers.
local elsewhere = {}
for name in ([[
  matmul mm bmm mv dot addmm baddbmm linear linear_act addmv addr addbmm chain_matmul vecdot vdot tensordot inner bilinear
  einsum outer kron trace float8_product inverse cholesky solve solve_triangular triangular_solve cholesky_solve
  cholesky_inverse qr svd svdvals eigh eigvalsh det slogdet logdet pinverse lstsq matrix_rank cond matrix_power matrix_exp
  matrix_norm linear_solve trisolve cofactor fft ifft rfft irfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn
  fft_complex fft_real fft_half scaled_dot_product_attention attention multi_head_attention rnn_tanh_cell rnn_relu_cell
  lstm_cell gru_cell rnn lstm gru rnn_layer conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
  conv_tbc convolution convolution_input convolution_weight cdist pdist cosine_similarity to_device
]]):gmatch '%S+' do elsewhere[name] = true end

-- Launches of result and gradients, where they are more than one and one each: name = { result, gradients }, by reason
local more = require 'spec.device.launches'

-- Cases of every row, run between marks; results as lines `row <name> <tag> <dtype> <gradients>`
local walk = [=[
local H = require 'spec.lib.helper'
local ops = require 'spec.ops.op_call'
local walk = require 'spec.ops.op_walk'
local elsewhere = {}
for name in (os.getenv 'LAUNCHES_ELSEWHERE'):gmatch '%S+' do elsewhere[name] = true end
local only = os.getenv 'LAUNCHES_ONLY'
collectgarbage 'stop' -- peaks are those of what is counted
local function mark(...) io.stderr:write(table.concat({ ... }, ' '), '\n') end

-- an elementwise case whose tensors have one shape, with so many elements that a block of memory's size is theirs
local function enlarged(row, c)
  if not row.flags.elementwise then return c end
  local shape
  for _, x in ipairs(c.inp) do
    if walk.is_tensor(x) then
      local s = table.concat(x.s, 'x')
      if #x.v == 0 or (shape and s ~= shape) then return nil end
      shape = s
    end
  end
  local d = {}
  for k, v in pairs(c) do d[k] = v end
  d.inp = walk.map(c.inp, function(x)
    local v, n = {}, 1024
    for i = 1, n do v[i] = x.v[(i - 1) % #x.v + 1] end
    return { d = x.d, s = { n }, v = v }
  end)
  return shape and d
end

local function count(row, c, dtype)
  local f = walk.as_function(row, c, walk.arguments(c, dtype))
  if not f then return end
  local leaves = {}
  for k, t in ipairs(f.start) do
    leaves[k] = t:detach()
    leaves[k].requires_grad = row.args[f.at[k][1]].name ~= 'target' -- of a loss
  end
  local warm = f.run(f.start)
  local w = {}
  for o, t in ipairs(warm) do w[o] = H.make(H.ramp(H.numel(H.shape(t)), 0.5), H.shape(t), H.dtype(t), t.device) end
  if #warm == 0 then return end
  mark 'forward'
  local out = f.run(leaves)
  mark 'between'
  local some, wanted = false, {}
  for _, t in ipairs(leaves) do if t.requires_grad then wanted[#wanted + 1] = t end end
  for _, t in ipairs(out) do some = some or t.requires_grad end
  if not some then return mark 'nothing' end
  amp.reset_peak_memory 'cuda'
  local before = amp.memory('cuda').live
  mark 'backward'
  local g = amp.grad(out, wanted, { grad_outputs = w, allow_unused = true })
  mark 'after'
  local peak, n, bytes = amp.memory('cuda').peak, 0, 0
  for k = 1, #wanted do
    if g[k] then n, bytes = n + 1, bytes + g[k]:numel() * (dtype == 'float32' and 4 or 2) end
  end
  mark('row', row.name, dtype, n, bytes, peak - before, (c.tag:gsub('%s', '_')))
end

for _, row in ipairs(ops.rows) do
  if not walk.no_derivative(row) and not elsewhere[row.name] and (not only or only:find(' ' .. row.name .. ' ', 1, true)) then
    local left = row.flags.elementwise and 2 or 6 -- cases
    for _, c in ipairs(walk.cases[row.name] or {}) do
      local d = left > 0 and not c.tag:find 'empty' and enlarged(row, c)
      if d then left = left - 1 end
      for _, dtype in ipairs { 'float32', 'float16' } do
        if d and (dtype == 'float32' or (c.half ~= false and row.dtypes[dtype])) then amp.scope(count, row, d, dtype) end
      end
    end
  end
end
mark 'done'
]=]

-- name -> { forward, gradients' launches beyond one each, largest number of launches backward, bytes ratio, names }
local function measured(only)
  local names = {}
  for name in pairs(elsewhere) do names[#names + 1] = name end
  local out = E.child(walk, ("AMP_SPEC_DEVICE=cuda AMP_EMULATOR_TRACE=1 LAUNCHES_ELSEWHERE='%s' %s"):format(table.concat(names, ' '),
    only and ("LAUNCHES_ONLY=' %s '"):format(only) or ''))
  assert.truthy(out:find '\ndone\n', out:sub(-2000))
  local rows, part, list = {}, nil, nil
  for line in out:gmatch '[^\n]+' do
    local name, dtype, n, bytes, peak, tag = line:match '^row (%S+) (%S+) (%d+) (%d+) (%-?%d+) (%S+)$'
    if line == 'forward' then list = { forward = {}, backward = {} } part = list.forward
    elseif line == 'backward' then part = list.backward
    elseif line == 'between' or line == 'after' or line == 'nothing' then part = nil
    elseif name then
      local r = rows[name] or { forward = 0, beyond = 0, excess = 0 }
      rows[name] = r
      local beyond = #list.backward - tonumber(n)
      if #list.forward > r.forward then r.forward, r.forward_of = #list.forward, ('%s %s: %s'):format(tag, dtype, table.concat(list.forward, ', ')) end
      if r.beyond < beyond then r.beyond, r.beyond_of = beyond, ('%s %s: %s'):format(tag, dtype, table.concat(list.backward, ', ')) end
      r.excess = math.max(r.excess, tonumber(peak) - tonumber(bytes))
    elseif part and (line:find '^launch ' or line == 'memset') then part[#part + 1] = line:gsub('^launch ', '')
    end
  end
  return rows
end

describe('launches', function()
  if not E.there then return pending('of every row with a derivative', function() end) end
  local by_name = require('spec.ops.op_call').by_name

  it('of a row and of its derivative are one, and one a gradient, or listed', function()
    local rows, wrong = measured(os.getenv 'LAUNCHES_ONLY'), {}
    local listed = {}
    for reason, list in pairs(more) do
      for name, n in pairs(list) do
        assert.is_nil(listed[name], name .. ' is listed twice')
        assert.is_table(by_name[name], name .. ' is listed under ' .. reason .. ' and is no row')
        listed[name] = n
        if not rows[name] and not os.getenv 'LAUNCHES_ONLY' then wrong[#wrong + 1] = name .. ' is listed and was not counted' end
      end
    end
    for name, r in pairs(rows) do
      local f, b = 1, 0
      if listed[name] then f, b = listed[name][1], listed[name][2] end
      if r.forward > f then wrong[#wrong + 1] = ('%s: %d launches, not %d: %s'):format(name, r.forward, f, r.forward_of) end
      if r.beyond > b then wrong[#wrong + 1] = ('%s: %d launches backward beyond one a gradient, not %d: %s'):format(name, r.beyond, b, r.beyond_of) end
      if listed[name] and (r.forward < f and f > 1 or r.beyond < b) then
        wrong[#wrong + 1] = ('%s: listed with %d and %d launches, takes %d and %d'):format(name, f, b, r.forward, r.beyond)
      end
      if by_name[name].flags.elementwise and not listed[name] and r.excess > 2048 then
        wrong[#wrong + 1] = ('%s: its derivative allocates %d bytes beyond the gradients'):format(name, r.excess)
      end
    end
    table.sort(wrong)
    assert.equal('', table.concat(wrong, '\n'))
  end)
end)
