--- Every row of the op table writes all of its results: each sample, and samples whose sizes became 0, 1 or odd, run twice
-- on memory that is handed out full of one byte, then of another. Results, arguments and gradients are equal in all bytes.
local ffi = require 'ffi'
local amp = require 'amp'
local core = require 'amp.ffi'
local H = require 'spec.lib.helper'
local ops = require 'spec.ops.op_call'
local walk = require 'spec.ops.op_walk'
local C, S = core.C, core.S

local BYTES = { 0x3c, 0xff } -- a common number, and a NaN in every float, which no factor of 0 hides
local SIZES = { 0, 1, 3, 17 }
local SEED, MOST = 7, 4096
-- what is in memory is what they give: as_strided reads between the elements of its argument
local RAW = { empty = true, empty_like = true, new_empty = true, as_strided = true, as_strided_scatter = true }

local function fill(byte) assert(C.amp_device_set(S, C.AMP_CPU, 'fill', byte) >= 0) end
after_each(function() fill(0) end)

local function bytes_of(t)
  t = t:detach():cpu():contiguous()
  local n = t:numel() * t:element_size()
  return ('%s %s '):format(H.dtype(t), table.concat(H.shape(t), 'x')) .. (n == 0 and '' or ffi.string(C.amp_data_ptr(S, t), n))
end

local function add(list, what, values)
  for i, t in pairs(values) do
    list[#list + 1] = { ('%s %s'):format(what, i), type(t) == 'cdata' and bytes_of(t) or tostring(t) }
  end
end

-- What a case gives: bytes by name, or the error's text.
local function outcome(row, c, dtype, derived)
  amp.manual_seed(SEED)
  local list = {}
  local ok, why = pcall(function()
    local inp = walk.arguments(c, dtype)
    add(list, 'result', ops.call(row.name, inp, c.attrs))
    add(list, 'argument', walk.tensors_of(inp))
    local f = derived and walk.as_function(row, c, inp)
    if f then add(list, 'gradient', walk.first(f) or {}) end
  end)
  if not ok then list[#list + 1] = { 'error', tostring(why) } end
  return list, ok
end

local function check(row, c, dtype, derived)
  local lists, ok = {}, nil
  for i, byte in ipairs(BYTES) do
    fill(byte)
    lists[i], ok = outcome(row, c, dtype, derived)
    fill(0)
  end
  local a, b = lists[1], lists[2]
  for i = 1, math.max(#a, #b) do
    local x, y = a[i] or {}, b[i] or {}
    if x[1] ~= y[1] or x[2] ~= y[2] then
      local sizes = {}
      walk.map(c.inp, function(t) sizes[#sizes + 1] = table.concat(t.s, 'x') end)
      error(('%s %s of %s: %s depends on what was in memory'):format(walk.label(c), dtype, table.concat(sizes, ', '), x[1] or y[1]), 0)
    end
  end
  return ok
end

-- A case with one of its sizes changed everywhere, in lists of attributes too; nil where it gets large.
local function resized(c, from, to)
  local function change(t)
    local s, n = {}, 1
    for d, size in ipairs(t.s) do
      s[d] = size == from and to or size
      n = n * s[d]
    end
    if n > MOST then error 'large' end
    local v = {}
    for i = 1, n do v[i] = #t.v > 0 and t.v[(i - 1) % #t.v + 1] or 1 end
    return { d = t.d, s = s, v = v }
  end
  local fine, inp = pcall(walk.map, c.inp, change)
  if not fine then return nil end
  local attrs = {}
  for k, v in pairs(c.attrs) do
    attrs[k] = v
    if type(v) == 'table' then
      attrs[k] = {}
      for i, x in ipairs(v) do attrs[k][i] = x == from and to or x end
    end
  end
  return { op = c.op, tag = ('%s, %d for %d'):format(c.tag, to, from), inp = inp, attrs = attrs, out = c.out, grad = c.grad, after = c.after }
end

local function sizes_in(c)
  local seen, list = {}, {}
  walk.map(c.inp, function(t)
    for _, n in ipairs(t.s) do
      if not seen[n] then
        seen[n] = true
        list[#list + 1] = n
      end
    end
  end)
  return list
end

describe('the walk', function()
  it('sees what a row leaves unwritten, in small results and large ones', function()
    for _, n in ipairs { 3, 16, 17, 4000, 40000 } do
      for _, byte in ipairs(BYTES) do
        fill(byte)
        assert.equal('uint8 ' .. n .. ' ' .. string.char(byte):rep(n), bytes_of(amp.empty(n, { dtype = 'uint8' })))
      end
    end
  end)
end)

for _, row in ipairs(ops.rows) do
  local list = walk.cases[row.name] or {}
  if #list > 0 and not RAW[row.name] then
    it('amp.' .. row.name .. ' writes all of its results', function()
      local done = 0
      local derived = not walk.no_derivative(row)
      for _, c in ipairs(list) do
        for _, dtype in ipairs { 'float64', 'float32', 'bfloat16' } do
          if dtype ~= 'bfloat16' or c.half ~= false and row.dtypes[dtype] then
            if check(row, c, dtype, derived) then done = done + 1 end
          end
        end
        for _, from in ipairs(c.aux and {} or sizes_in(c)) do
          for _, to in ipairs(SIZES) do
            local other = from ~= to and resized(c, from, to)
            if other then check(row, other, 'float32', derived) end
          end
        end
      end
      assert.is_true(done > 0)
    end)
  end
end

describe('a row that nothing composes', function()
  it('fft_real refuses a dimension that is empty, of which the frequency 0 would be unwritten', function()
    H.fails(function() ops.raw('fft_real', { H.make({}, { 2, 0 }, 'float32') }, { dim = 1, scale = 1 }) end, 'fft_real', '2x0', 'dimension 2', 'empty')
  end)
end)
