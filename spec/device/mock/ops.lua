--- Every op of the table on the mock GPU against the CPU: forward, backward, and how often the
-- host had to wait. Run by device_spec.lua in a process of its own; prints a line an op.
-- A number as argument: the row to begin with.
-- The host can't touch the device's memory there (spec/c/plugin_mock.c), so what ends is proved.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local ops = require 'spec.ops.op_call'
local mock = require 'spec.device.mock.device'
local walk = require 'spec.ops.op_walk'

-- Ops whose result's size is in the data: the host has to know it.
-- How often matrix_exp squares depends on a norm.
local waits = { nonzero = 1, masked_select = 1, repeat_interleave = 1, bincount = 1, one_hot = 1, unique = 1, unique_consecutive = 1,
  matrix_exp = 1 }
local function floats(row, out)
  local list = {}
  for k = 1, (row.flags.nodiff_out1 or row.flags.aux) and 1 or #out do
    if out[k].requires_grad and H.is_float[out[k].dtype] then list[#list + 1] = out[k] end
  end
  return list
end

-- Results and gradients of one call on one device.
local function run(row, c, device)
  local leaves = {}
  local inp = walk.map(c.inp, function(x)
    local t = walk.tensor(c, x, 'float32', device)
    if x.d == 'float64' then
      t.requires_grad = true
      leaves[#leaves + 1] = t
    end
    return t
  end)
  for i in pairs(c.after or {}) do inp[i] = inp[i]:detach():clone() end
  local attrs = {}
  for k, v in pairs(c.attrs) do attrs[k] = v end
  amp.manual_seed(3)
  local before, counted = mock.reads(), amp.counters().host_waits
  local out = ops.user(row.name, inp, attrs)
  local roots, gs = floats(row, out), {}
  if c.grad ~= false and #roots > 0 then
    for k = 1, #roots do gs[k] = amp.full_like(roots[k]:detach(), 0.5 + k / 4) end
    amp.backward(roots, { grad_tensors = gs })
  end
  local cost = { reads = mock.reads() - before, waits = amp.counters().host_waits - counted }
  local grads = {}
  for k, t in ipairs(leaves) do grads[k] = t.grad end
  return out, grads, cost, #leaves
end

-- Ops that take the way of extreme values on a device, where no look is taken whether there are some.
local another_order = { cosine_similarity = { rtol = 1e-6, atol = 1e-7 }, logsumexp = { rtol = 1e-6, atol = 1e-7 } }

local function compare(what, a, b, tolerance)
  if (a == nil) ~= (b == nil) then error(('%s: there is one on the CPU %s, on the device %s'):format(what, tostring(b ~= nil), tostring(a ~= nil)), 0) end
  if a == nil then return end
  if type(a) ~= 'cdata' then
    if a ~= b then error(('%s: %s against %s'):format(what, tostring(a), tostring(b)), 0) end
    return
  end
  if not a.device:match '^cuda' then error(what .. ': is on ' .. a.device, 0) end
  if a.dtype ~= b.dtype then error(('%s: %s against %s'):format(what, a.dtype, b.dtype), 0) end
  local wrong = H.difference(a:cpu(), H.values(b), H.shape(b), tolerance or H.exact)
  if wrong then error(what .. ': ' .. wrong, 0) end
end

local from = tonumber(arg[1]) or 1
for i = from, #ops.rows do
  local row = ops.rows[i]
  local name = row.name
  if not row.flags.private and walk.cases[name] then
    io.stderr:write('at ', i, ' ', name, '\n') -- where the process ended, if it did
    local wrong
    for _, c in ipairs(walk.cases[name]) do
      local label = walk.label(c)
      if not c.aux then
        local ok, e = pcall(function()
          local fine, want, wantg = pcall(run, row, c, 'cpu')
          if not fine then -- refused alike
            if pcall(run, row, c, 'cuda') then error(('%s: an error on the CPU only: %s'):format(label, tostring(want)), 0) end
            return
          end
          local got, gotg, cost, n = run(row, c, 'cuda')
          for k = 1, #want do compare(('%s: result %d'):format(label, k), got[k], want[k], another_order[name]) end
          for k = 1, n do compare(('%s: gradient %d'):format(label, k), gotg[k], wantg[k], another_order[name]) end
          if cost.reads ~= cost.waits then error(('%s: %d reads, %d waits counted'):format(label, cost.reads, cost.waits), 0) end
          if cost.reads > (waits[name] or 0) then error(('%s: %d reads'):format(label, cost.reads), 0) end
        end)
        if not ok then wrong = wrong or tostring(e) end
      end
    end
    print(wrong and ('wrong amp.%s: %s'):format(name, (wrong:gsub('\n', ' '))) or 'ok amp.' .. name)
    io.flush()
  end
end
print 'end'
