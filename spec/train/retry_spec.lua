--- A failed allocation leaves everything as it was: whoever collects and calls again gets what an undisturbed call
-- gives. Walked over every row of the op table and its in-place form, with and without recording, with allocation n
-- failing for each n until none is left: results, the generator's next number, arguments, versions, gradients, memory.
local ffi = require 'ffi'
local amp = require 'amp'
local core = require 'amp.ffi'
local H = require 'spec.lib.helper'
local ops = require 'spec.ops.op_call'
local walk = require 'spec.ops.op_walk'
local C, S = core.C, core.S

local MEMORY, INPLACE = C.AMP_E_MEMORY, C.AMP_INPLACE

local function failures() return tonumber(C.amp_memory(C.AMP_CPU, 0).failures) end
local function live() return tonumber(C.amp_memory(C.AMP_CPU, 0).live) + (H.device and tonumber(C.amp_memory(C.AMP_CUDA, 0).live) or 0) end

-- a tensor's values, exactly, and its version
local function text(t)
  if t == nil or t.ptr_ == nil then return 'none' end
  local n, shape = 1, {}
  for d = 1, t.ptr_.ndim do
    shape[d] = tostring(t.ptr_.size[d - 1])
    n = n * tonumber(t.ptr_.size[d - 1])
  end
  local buffer = ffi.new('double[?]', n)
  assert(C.amp_read(S, t, buffer, n) == 0)
  return ('%s %s @%d: %s'):format(H.dtype(t), table.concat(shape, ' '), H.version(t), ffi.string(buffer, 8 * n))
end

local function readable(s)
  return (s:gsub('(@%d+: )([^\n]*)', function(head, bytes)
    local list = {}
    for i = 1, #bytes - 7, 8 do list[#list + 1] = ('%.9g'):format(ffi.cast('const double *', bytes:sub(i, i + 7))[0]) end
    return head .. table.concat(list, ' ')
  end))
end

local function texts(list)
  local out = {}
  for i, t in ipairs(list) do out[i] = text(t) end
  return table.concat(out, '\n')
end

-- What is watched of a call: its tensors, in order, tracked ones made of leaves
local function setup(c, dtype, mode, form, layout)
  local inp = walk.arguments(c, dtype)
  local leaves, all = {}, {}
  local place = 0
  inp = walk.remap(inp, function(t)
    place = place + 1
    if layout then t = ops.relayout(t, layout) or t end
    if mode == 'recorded' and H.is_float[H.dtype(t)] and not (c.after and c.after[place]) then
      local leaf = t:detach()
      leaf.requires_grad = true
      leaves[#leaves + 1] = leaf
      t = leaf * 1
    elseif form == INPLACE then
      t = t:clone()
    end
    all[#all + 1] = t
    return t
  end)
  amp.manual_seed(11)
  return { inp = inp, leaves = leaves, all = all, offset = S.rng_offset, call = ops.prepare(c.op, inp, c.attrs, form) }
end

local function outcome(k, out, form)
  local list = { texts(k.all), tostring(S.rng_offset) }
  for i = 1, 3 do list[#list + 1] = text(out[i]) end
  if #k.leaves > 0 then
    local root = form == INPLACE and k.inp[1] or out[1]
    if root and root.ptr_ ~= nil and root.requires_grad then
      local ok = pcall(function() root:sum():backward() end)
      for _, l in ipairs(k.leaves) do list[#list + 1] = ok and text(l.grad) or 'error' end
    end
  end
  return table.concat(list, '\n')
end

-- allocation n of the call fails, then the call is made again
local function disturbed(c, dtype, mode, form, layout, n, want)
  local k = setup(c, dtype, mode, form, layout)
  local before, count, bytes = texts(k.all), failures(), live()
  C.amp_fail_allocation(n)
  local rc, out = k.call()
  C.amp_fail_allocation(-1)
  local hit = failures() > count
  local what = ('%s %s %s%s%s, allocation %d: '):format(walk.label(c), dtype, mode, form == INPLACE and ', in place' or '', layout and ' ' .. layout or '', n)
  if rc < 0 then
    if rc ~= MEMORY then return false, what .. ffi.string(S.err.message) end
    local leak, now = live() - bytes, texts(k.all)
    if now ~= before then return false, what .. 'arguments are\n' .. readable(now) .. '\nwere\n' .. readable(before) end
    if S.rng_offset ~= k.offset then return false, what .. 'numbers were drawn' end
    if leak > 0 then return false, what .. leak .. ' bytes leak' end
    rc, out = k.call()
    if rc < 0 then return false, what .. 'again: ' .. ffi.string(S.err.message) end
  end
  local got = outcome(k, out, form)
  if got ~= want then return false, what .. 'got\n' .. readable(got) .. '\nright\n' .. readable(want) end
  return hit
end

local function try(row, c, dtype, mode, form, layout, report)
  local ok, k = pcall(setup, c, dtype, mode, form, layout)
  if not ok then return 0 end
  if k.call() < 0 then return 0 end -- plans, modules' libraries
  k = setup(c, dtype, mode, form, layout)
  local _, out = k.call()
  local want = outcome(k, out, form)
  collectgarbage 'stop' -- what is freed meanwhile is no leak
  local n = 0
  repeat
    n = n + 1
    local hit, wrong = disturbed(c, dtype, mode, form, layout, n, want)
    if wrong then report[#report + 1] = wrong end
  until not hit or wrong or n > 500
  collectgarbage 'restart'
  if n > 500 then report[#report + 1] = row.name .. ': no end of allocations' end
  return n
end

describe('an op whose allocation fails', function()
  for _, row in ipairs(ops.rows) do
    local cases = walk.cases[row.name]
    if cases then
      it('changes nothing: ' .. row.name, function()
        local report = {}
        for i, c in ipairs(cases) do
          if i <= (os.getenv 'AMP_SPEC_ALL' and 99 or 2) or c.after then
            for _, dtype in ipairs { 'float32', i == 1 and 'float16' or nil } do
              for _, mode in ipairs { 'plain', 'recorded' } do
                if not row.flags.only_inplace then
                  try(row, c, dtype, mode, 0, nil, report)
                  try(row, c, dtype, mode, 0, 'transposed', report)
                end
                if row.flags.inplace and type(c.inp[1]) == 'table' then
                  try(row, c, dtype, mode, INPLACE, nil, report)
                  try(row, c, dtype, mode, INPLACE, 'transposed', report)
                end
              end
            end
          end
        end
        if #report > 0 then error(report[1] .. '\n' .. #report .. ' in all', 0) end
      end)
    end
  end
end)
