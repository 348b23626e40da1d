--- The ways of the GPU's kernels that take whole vectors, against the CPU: elementwise ops and copies whose operands
-- have neighbours along the last dimension, layouts against each other, pools of channels that lie beside each
-- other, batch norm by rows and planes; and what is just not fit for them. Needs a GPU (or the emulator).
local amp = require 'amp'
local H = require 'spec.lib.helper'
local ops = require 'amp.ops'
local F = amp.nn.functional

local here = amp.cuda.is_available()
local dtypes = { 'float32', 'float16', 'bfloat16', 'float64', 'int64', 'int8', 'uint8' }

local function same(got, want, what)
  local wrong = H.difference(got:cpu(), H.values(want), H.shape(want), H.exact, 1)
  if wrong then error(what .. ': ' .. wrong, 0) end
end

local function numbers(shape, dtype)
  local t = amp.randn(shape) * 5
  return (dtype == 'uint8' and t:abs() or t):to(dtype)
end

local strided = {
  ['adds to'] = function(_, q, o) return o:add_(q) end,
  ['is added to'] = function(all, q, o) q:add_(o) return all end,
  ['is copied'] = function(_, q, o) return o:copy_(q) end,
  ['is copied to'] = function(all, q, o) q:copy_(o) return all end,
  ['with a row'] = function(_, q, _, row) return amp.add(q, row) end,
  ['with a column'] = function(_, q, _, _, column) return amp.mul(q, column) end,
  ['with one value'] = function(_, q, _, row) return amp.sub(q, row:narrow(1, 1, 1)) end,
  ['with a number'] = function(_, q) return amp.mul(q, 3) end,
  ['is compared'] = function(_, q, o) return amp.lt(q, o) end,
  ['chooses'] = function(_, q, o, row, column) return amp.where(amp.lt(q, o), row, column) end,
  ['turned round'] = function(_, q, o) return amp.add(q:flip(4), o) end,
}

describe('whole vectors on a GPU', function()
  if not here then
    it('needs one', function() pending(amp.cuda.reason()) end)
    return
  end
  amp.manual_seed(11)

  for _, dtype in ipairs(dtypes) do
    it('elementwise ops of ' .. dtype .. ' by strides', function()
      for _, d in ipairs { 64, 8, 12, 7 } do
        for _, skip in ipairs { 0, 1, 8 } do
          local all, o = numbers({ 2, 5, 3, 4, d + skip }, dtype), numbers({ 2, 4, 5, d }, dtype)
          local row, column = numbers({ d }, dtype), numbers({ 2, 1, 5, 1 }, dtype)
          for name, f in pairs(strided) do
            local function on(device)
              local t = all:clone():to(device)
              return f(t, t:select(3, 2):transpose(2, 3):narrow(4, skip + 1, d), o:clone():to(device), row:to(device), column:to(device))
            end
            same(on 'cuda', on 'cpu', ('%s %s, %d of %d'):format(dtype, name, d, d + skip))
          end
        end
      end
    end)
  end

  it('copies between layouts and dtypes', function()
    for _, from in ipairs { 'float32', 'float16', 'bfloat16', 'int64' } do
      for _, to in ipairs { 'float32', 'float16', 'bfloat16', 'float64' } do
        for _, shape in ipairs { { 4, 16, 3, 3 }, { 3, 40, 7, 7 }, { 2, 8, 2, 4 }, { 1, 33, 5, 9 }, { 5, 3, 8, 8 } } do
          local x = (amp.randn(shape) * 20):round():to(from)
          local want = x:to(to)
          for _, way in ipairs { { 'channels_last', 'contiguous' }, { 'contiguous', 'channels_last' } } do
            local place = amp.zeros(shape[1], shape[2] + 2, shape[3], shape[4]):to(to):contiguous(way[2]):cuda():narrow(2, 2, shape[2])
            same(place:copy_(x:contiguous(way[1]):cuda()), want, from .. ' to ' .. to .. ' ' .. table.concat(shape, 'x'))
          end
        end
      end
    end
  end)

  for _, dtype in ipairs { 'float32', 'float16', 'bfloat16' } do
    it('max pools of pairs of channels in ' .. dtype, function()
      for _, k in ipairs { { 2, 2, 0 }, { 2, 2, 1 }, { 3, 2, 1 }, { 3, 2, 0 }, { { 2, 3 }, 2, { 0, 1 } } } do
        for _, shape in ipairs { { 2, 8, 5, 3 }, { 2, 24, 8, 37 }, { 1, 64, 9, 6 } } do
          for _, ceil in ipairs { false, true } do
            local x = (amp.randn(shape) * 2):round():to(dtype):contiguous 'channels_last'
            x[{ 1, 1, 1, 2 }] = 0 / 0
            x[{ 1, 2 }] = -math.huge
            local there = x:cuda():requires_grad_()
            x:requires_grad_()
            local y, at = F.max_pool2d(x, k[1], k[2], k[3], 1, ceil, true)
            local y2, at2 = F.max_pool2d(there, k[1], k[2], k[3], 1, ceil, true)
            local g = amp.randn(y.shape):to(dtype):contiguous 'channels_last'
            y:backward(g)
            y2:backward(g:cuda())
            same(y2:detach(), y:detach(), 'values')
            same(at2, at, 'places')
            same(there.grad, x.grad, 'gradient')
          end
        end
      end
    end)

    it('batch norm, ReLU and a residual in ' .. dtype, function()
      local act = ops.get 'batch_norm_act'
      for _, shape in ipairs { { 2, 24, 9, 4 }, { 2, 64, 20, 16 }, { 40, 136, 3, 1 }, { 3, 264, 2, 4 } } do
        for _, layout in ipairs { 'channels_last', 'contiguous' } do
          local x = (amp.randn(shape) * 2 + amp.randn(1, shape[2], 1, 1) * 30):to(dtype):contiguous(layout)
          local r, g = amp.randn(shape):to(dtype):contiguous(layout), amp.randn(shape):to(dtype):contiguous(layout)
          local w, b = amp.randn(shape[2]), amp.randn(shape[2])
          local function on(device)
            local t = { x:to(device):clone(), w:to(device):clone(), b:to(device):clone() }
            for _, v in ipairs(t) do v:requires_grad_() end
            local mean, var = amp.zeros(shape[2]):to(device), amp.ones(shape[2]):to(device)
            local y
            if device == 'cuda' then y = act(t[1], nil, mean, var, t[2], t[3], nil, true, true, 0.1, 1e-5)
            else y = F.relu(F.batch_norm(t[1], mean, var, t[2], t[3], true, 0.1, 1e-5)) end
            y:backward(g:to(device))
            local joined = device == 'cuda' and act(x:to(device), r:to(device), nil, nil, t[2]:detach(), t[3]:detach(), nil, true, true, 0.1, 1e-5)
              or F.relu(F.batch_norm(x, nil, nil, w, b, true, 0.1, 1e-5) + r)
            return { y:detach(), joined, t[1].grad, t[2].grad, t[3].grad, mean, var }
          end
          local want, got = on 'cpu', on 'cuda'
          for i, v in ipairs(want) do
            local most = tonumber(v:to('float64'):abs():max():item())
            local off = tonumber((got[i]:cpu():to('float64') - v:to('float64')):abs():max():item())
            local limit = (dtype == 'float32' and 3e-5 or dtype == 'float16' and 2e-3 or 1.6e-2) * most
            assert.is_true(off <= limit, ('%s %s, result %d: off by %g of %g'):format(table.concat(shape, 'x'), layout, i, off, most))
          end
        end
      end
    end)
  end
end)
