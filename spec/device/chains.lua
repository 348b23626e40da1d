--- Every elementwise row in chains, for the emulated GPU and a real one: a chain's kernel is generated of the rows'
-- formulas, so it gives the bits that the rows' own kernels give.
local amp = require 'amp'
local core = require 'amp.ffi'
local H = require 'spec.lib.helper'
local ops = require 'spec.ops.op_call'

local M = {}

-- Attributes where the defaults leave a part of a formula out; several: the row stands there several times.
local ATTRIBUTES = {
  add = {{}, {alpha = 3}}, sub = {{alpha = 2}}, gelu = {{}, {approximate = 'tanh'}}, gelu_backward = {{}, {approximate = 'tanh'}},
  polygamma = {{n = 2}}, threshold = {{threshold = 0.1, value = 0.5}}, masked_fill = {{value = 2}}, clamp = {{min = -1, max = 1}, {max = 1}},
  elu_backward = {{above = 1.5, below = 0.75, by = 2}}, logit = {{eps = 0.125}}, nan_to_num = {{posinf = 7}}, softplus = {{beta = 2, threshold = 3}},
  leaky_relu = {{negative_slope = 0.3}}, addcmul = {{value = 2}}, addcdiv = {{value = 2}}, hardtanh = {{min_val = -0.5, max_val = 0.75}},
}
local FLOATS = {addcdiv = true} -- refuse integers, though the table does not say so
local OPERANDS = {
  where = function(t) return {t.mask, t.x, t.y} end, masked_fill = function(t) return {t.x, t.mask} end,
}

-- A row's attributes that have no default: each word of a choice, ones and halves.
local function required(row)
  local list = {{}}
  for _, a in ipairs(row.attrs) do
    if not a.optional and a.default == nil then
      local more = {}
      for _, attrs in ipairs(list) do
        for word in (a.type:match '^e(.+)$' or '-'):gmatch '[^,]+' do
          local with = {[a.name] = word ~= '-' and word or a.type == 'f' and 0.5 or 1}
          for name, value in pairs(attrs) do with[name] = value end
          more[#more + 1] = with
        end
      end
      list = more
    end
  end
  return list
end

--- Elementwise rows that take a dtype, but for private ones without a derivative: those stand in no graph.
-- @tparam string dtype
-- @treturn table list of {name, attrs}
function M.rows(dtype)
  local list = {}
  for _, row in ipairs(ops.rows) do
    local apart = row.flags.private and row.kind == 'N' or row.flags.random or row.flags.list or FLOATS[row.name] and dtype:find 'int'
    if row.flags.elementwise and row.dtypes[dtype] and not apart then
      for _, attrs in ipairs(ATTRIBUTES[row.name] or required(row)) do list[#list + 1] = {name = row.name, attrs = attrs} end
    end
  end
  return list
end

--- Operands of a shape; integers are small, and divisors not 0.
function M.operands(dtype, shape, device)
  local t = {}
  for k, name in ipairs {'x', 'y', 'z'} do
    local v = amp.randn(shape, {device = device})
    if dtype == 'bool' then t[name] = v:gt(0)
    elseif dtype:find 'int' then t[name] = ((v * 4):abs():clamp(0, 9) + (k > 1 and 1 or 0)):floor():to(dtype)
    else t[name] = v:to(dtype) end
  end
  t.mask = amp.randn(shape, {device = device}):gt(0)
  t.select = amp.rand(shape, {device = device})
  return t
end

--- Functions that call all the rows, some each: every element of a result is what one of them gives.
-- @tparam string dtype
-- @treturn table list of {names, run, count}; run takes M.arguments(t, count)
function M.functions(dtype)
  local common = dtype == 'float64' and 'float64' or 'float32'
  local each = dtype == common and 8 or 7 -- three nodes a row, and one more where the operand is cast: a chain has 24
  local rows, list = M.rows(dtype), {}
  for first = 1, #rows, each do
    local some, names = {}, {}
    for i = first, math.min(first + each - 1, #rows) do
      some[#some + 1], names[#names + 1] = rows[i], rows[i].name
    end
    list[#list + 1] = {names = table.concat(names, ' '), count = #some, run = function(x, y, z, mask, ...)
      local t, take = {x = x, y = y, z = z, mask = mask}, {...}
      local result = x:to(common)
      for k, r in ipairs(some) do
        local count = #ops.by_name[r.name].args
        local operands = OPERANDS[r.name] and OPERANDS[r.name](t) or {x, count > 1 and y or nil, count > 2 and z or nil}
        result = amp.where(take[k], ops.raw(r.name, operands, r.attrs)[1]:to(common), result)
      end
      return result
    end}
  end
  return list
end

--- What a function of `count` rows takes: operands, and which elements each row's result is taken for.
function M.arguments(t, count)
  local list = {t.x, t.y, t.z, t.mask}
  for k = 1, count do list[4 + k] = t.select:gt((k - 1) / count) end
  return list
end

--- Are the bits of two float tensors equal, but for which NaN it is?
function M.alike(a, b)
  if H.dtype(a) ~= H.dtype(b) or table.concat(H.shape(a), 'x') ~= table.concat(H.shape(b), 'x') then return false end
  local one = amp.ones_like(a)
  local same = a:eq(b):logical_and(amp.copysign(one, a):eq(amp.copysign(one, b)))
  return same:logical_or(a:isnan():logical_and(b:isnan())):all():item()
end

--- The switch of generated kernels; nil only asks.
function M.generated(on)
  local was = core.C.amp_device_set(core.S, core.C.AMP_CUDA, 'generated', on == nil and -1 or on)
  assert(was >= 0)
  return was
end

--- Kernels that this process has compiled, taken from the folder, launched.
function M.counts()
  local text = amp.cuda.version_of 'nvrtc'
  local compiled, kept, launched = text:match '(%d+) compiled, (%d+) kept, (%d+) launched'
  return tonumber(compiled or 0), tonumber(kept or 0), tonumber(launched or 0)
end

--- One function as a graph against itself called plainly: an error where bits differ, or where it was not one launch.
-- @tparam table f of M.functions
-- @tparam table t of M.operands
-- @tparam ?number launches that it must be
function M.check(f, t, launches)
  amp.no_grad(function()
    local args = M.arguments(t, f.count)
    local want = f.run(unpack(args))
    local g = amp.graph.trace(f.run, args):optimize {joins = false}
    local _, _, before = M.counts()
    local got = g(unpack(args))
    local _, _, after = M.counts()
    if not M.alike(got, want) then
      local differ = got:ne(want):logical_and(got:isnan():logical_and(want:isnan()):logical_not())
      error(('%s: %d of %d elements differ, by at most %g'):format(f.names, differ:sum():item(), got:numel(),
        (got - want):nan_to_num():abs():max():item()), 0)
    end
    if launches and after - before ~= launches then error(('%s: %d launches of generated kernels, not %d'):format(f.names, after - before, launches), 0) end
  end)
end

return M
