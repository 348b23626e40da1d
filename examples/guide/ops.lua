-- Writes the manual's table of all ops, from the running library:
--   lua/bin/amp examples/guide/ops.lua > examples/guide/ops.md
require 'amp'
local ffi = require 'ffi'
local bit = require 'bit'
local C = require('amp.ffi').C

local INPLACE, METHOD, PRIVATE, FIRST, CREATE, ONLY_INPLACE = 1, 2, 4, 16, 32, 512
local names = {}
for i = 0, tonumber(C.AMP_DTYPE_COUNT) - 1 do names[i] = ffi.string(C.amp_dtype_name(i)) end

local function dtypes(mask)
  local floats, ints, rest = 0, 0, {}
  for i = 0, #names do
    if bit.band(mask, bit.lshift(1, i)) ~= 0 then
      if names[i]:find 'float' then floats = floats + 1
      elseif names[i]:find 'int' then ints = ints + 1
      else rest[#rest + 1] = names[i] end
    end
  end
  local list = {}
  if floats > 0 then list[#list + 1] = floats == 4 and 'floats' or floats .. ' floats' end
  if ints > 0 then list[#list + 1] = ints == 5 and 'integers' or ints .. ' integers' end
  if #rest > 0 then list[#list + 1] = table.concat(rest, ', ') end
  return table.concat(list, ', ')
end

local function has(flags, f) return bit.band(flags, f) ~= 0 end

local rows = {}
for id = 0, C.amp_op_count() - 1 do
  local o = C.amp_op_get(id)
  local flags, kind = tonumber(o.flags), string.char(o.kind)
  if not has(flags, PRIVATE) then
    local name = ffi.string(o.name)
    local forms = {}
    if not has(flags, ONLY_INPLACE) then forms[#forms + 1] = 'f' end
    if has(flags, METHOD) and not has(flags, ONLY_INPLACE) then forms[#forms + 1] = 'm' end
    if has(flags, INPLACE) then forms[#forms + 1] = '_' end
    local order = (kind == 'N' or has(flags, CREATE)) and '–' or has(flags, FIRST) and '1' or '1, 2'
    rows[#rows + 1] = ('| `%s` | %s | %s | %s | %s | %s |'):format(name, table.concat(forms, ' '),
      ffi.string(C.amp_policy_name(o.policy)), dtypes(tonumber(o.dtypes)), order, ffi.string(o.doc):gsub('|', '\\|'))
  end
end
table.sort(rows)

print(([[
# Every op

%d ops, as the library describes itself; made by `examples/guide/ops.lua`. Forms: f `amp.op(...)`, m `t:op(...)`, _ in place. The
autocast class says what a region does with an op's inputs (see mixed precision). dtypes: floats are float64, float32, float16
and bfloat16; integers int64, int32, int16, int8 and uint8. Derivatives: the orders that can be taken, – for none.
CPUs and GPUs have all of them.

| op | forms | autocast | dtypes | derivatives | what it does |
| --- | --- | --- | --- | --- | --- |]]):format(#rows))
for i = 1, #rows do print(rows[i]) end
