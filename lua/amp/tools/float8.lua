--- What layers lose in 8 bits: how many elements are cast, saturate, become 0, and which layers pay.
-- The library counts while a collector is open (amp_float8_count); the counts lie with each layer's weight.
-- @module amp.tools.float8
local ffi = require 'ffi'
local next_key = require('amp.core.keys').next
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local names = require 'amp.tools.names'
local C, S = core.C, core.S

local M = {}

local KINDS = { 'input', 'gradient', 'weight' }

-- Where in x out / (in + out) of a layer is larger, what its three products gain is more than what its casts cost. Between
-- what was measured on an H200 with 16384 rows, products and casts together against bfloat16's products: 0.76 times as fast
-- at 576 (768 to 2304), 1.17 at 1536 (2048 to 6144), 1.46 at 3072 (4096 to 12288).
local PAYS = 1100

local buffer = ffi.new 'double[9]'

-- Each parameter that cast anything in 8 bits: f(parameter, counts)
local function each(known, f)
  call.here()
  for _, p in pairs(known) do
    if p.tensor.ptr_ ~= nil and C.amp_float8_take_counts(S, p.tensor, buffer) == 1 then f(p, buffer) end
  end
end

--- A collector: `finish()` gives rows {name, input, weight, gradient = {elements, saturated, zero}, out, in_, pays}: shares
-- of the elements, where gradient is nil of a layer without a backward. Rows are sorted by name.
-- @tparam function fn whose parameters are meant
-- @tparam table given net, as the user gave it
function M.collector(fn, given)
  local known = names.collect(fn, { net = given.net }, true)
  each(known, function() end)
  C.amp_float8_count(S, 1)
  local self = {}
  function self.finish()
    C.amp_float8_count(S, 0)
    if next_key(known) == nil then known = names.collect(fn, { net = given.net }, true) end
    local rows = {}
    each(known, function(p, counts)
      local r = { name = p.name:gsub('%.weight$', ''), pays = false }
      for k, kind in ipairs(KINDS) do
        local n = counts[3 * k - 3]
        if n > 0 then r[kind] = { elements = n, saturated = counts[3 * k - 2] / n, zero = counts[3 * k - 1] / n } end
      end
      if p.tensor:dim() == 2 then
        local a, b = p.tensor:size(1), p.tensor:size(2)
        r.out, r.in_ = a, b
        r.pays = a * b / (a + b) >= PAYS
      end
      rows[#rows + 1] = r
    end)
    table.sort(rows, function(x, y) return x.name < y.name end)
    return rows
  end
  return self
end

--- The layer whose scale is furthest from its values: of `delayed`, one whose last largest value is more than twice those
-- it looks back at. Nil: there is none.
-- @tparam table known parameters by id, as names.collect gives them
-- @treturn ?table {name, kind = 'input' | 'gradient', largest, scale_of}
function M.worst(known)
  local worst
  local values = ffi.new 'double[64]'
  call.here()
  for _, p in pairs(known) do
    for kind = 0, 1 do
      local n = p.tensor.ptr_ ~= nil and C.amp_float8_history(S, p.tensor, kind, values, 64) or 0
      local before = 0
      for i = 1, n - 1 do before = math.max(before, values[i]) end
      if n > 1 and before > 0 and values[0] > 2 * before and (not worst or values[0] / before > worst.largest / worst.scale_of) then
        worst = { name = p.name:gsub('%.weight$', ''), kind = KINDS[kind + 1], largest = values[0], scale_of = before }
      end
    end
  end
  return worst
end

return M
