--- Help on an op, from its row of the library's table: forms, arguments, autocast class,
-- dtypes, derivatives.
-- @module amp.repl.help_op
local bit = require 'bit'
local ffi = require 'ffi'
local core = require 'amp.ffi'
local text_of = require 'amp.repl.text'
local C = core.C
local band = bit.band
local wrap, field = text_of.wrap, text_of.field

local M = {}

local INPLACE, METHOD, FIRST = C.AMP_F_INPLACE, C.AMP_F_METHOD, C.AMP_F_FIRST
local CREATE, ONLY_INPLACE = C.AMP_F_CREATE, C.AMP_F_ONLY_INPLACE

local kinds = { i = 'integer', f = 'number', b = 'true or false', d = 'dimension, from 1', t = 'dtype', v = 'device', I = 'integers', D = 'dimensions',
  F = 'numbers' }

local function kind(a)
  if a.kind == 'T' then return a.list and 'list of tensors' or a.number and 'tensor or number' or 'tensor' end
  if a.kind == 'e' then return "'" .. table.concat(a.word_list, "', '") .. "'" end
  if a.kind == 'N' then return ('integer or %d of them'):format(a.count) end
  return kinds[a.kind] or a.kind
end

local function default(a)
  if a.kind == 'b' then return a.default == '0' and 'false' or 'true' end
  if a.kind == 'e' then return "'" .. tostring(a.word_list[tonumber(a.default) + 1]) .. "'" end
  if a.kind == 't' then return "'" .. ffi.string(C.amp_dtype_name(tonumber(a.default) or 0)) .. "'" end
  return a.default
end

-- "(input, dim, {dtype, out})", without the first argument for a method
local function arguments(r, method)
  local list, options = {}, {}
  for i = method and 2 or 1, #r.args do
    local a = r.args[i]
    if a.kind == 'T' or a.required then
      list[#list + 1] = a.optional and '[' .. a.name .. ']' or a.name
    else
      options[#options + 1] = a.name
    end
  end
  if #options > 0 then list[#list + 1] = '{' .. table.concat(options, ', ') .. '}' end
  return '(' .. table.concat(list, ', ') .. ')'
end

local policies = {
  lower = 'lower: computes in the region\'s 16-bit dtype',
  fp32 = 'fp32: computes in float32',
  fp32_unless_dtype = 'fp32_unless_dtype: computes in float32 unless a dtype is given',
  promote = 'promote: inputs are brought to the widest dtype among them',
  passthrough = 'passthrough: computes in whatever dtype comes',
  special = 'special: has a rule of its own',
  banned = 'banned: refused in a region, because it is not safe in 16 bits',
}

local function dtypes(mask)
  local list = {}
  for i = 0, tonumber(C.AMP_DTYPE_COUNT) - 1 do
    if band(mask, bit.lshift(1, i)) ~= 0 then list[#list + 1] = ffi.string(C.amp_dtype_name(i)) end
  end
  return #list == tonumber(C.AMP_DTYPE_COUNT) and 'all' or table.concat(list, ' ')
end

--- Append the help on an op.
-- @tparam table r row
-- @tparam table out lines
function M.append(r, out)
  local info = C.amp_op_get(r.id)
  local forms = {}
  local flags = r.flags
  local method = r.args[1] and r.args[1].kind == 'T' and not r.args[1].list and band(flags, CREATE) == 0
  if band(flags, ONLY_INPLACE) == 0 then
    forms[1] = ('amp.%s%s'):format(r.name, arguments(r))
    if method and band(flags, METHOD) ~= 0 then forms[#forms + 1] = ('t:%s%s'):format(r.name, arguments(r, true)) end
  end
  if band(flags, INPLACE) ~= 0 and method then forms[#forms + 1] = ('t:%s_%s'):format(r.name, arguments(r, true)) end
  local line = table.concat(forms, '    ')
  out[#out + 1] = #line <= text_of.width() and line or table.concat(forms, '\n')
  out[#out + 1] = '  ' .. wrap(r.doc, 2)
  local width = 0
  for _, a in ipairs(r.args) do width = math.max(width, #a.name) end
  for i, a in ipairs(r.args) do
    local text = kind(a)
    if a.default ~= nil then text = text .. ', ' .. default(a) .. ' if not given'
    elseif a.optional then text = text .. ', may be left out' end
    out[#out + 1] = ('  %-10s %-' .. width .. 's  %s'):format(i == 1 and 'arguments' or '', a.name, wrap(text, 15 + width))
  end
  local policy = ffi.string(C.amp_policy_name(C.amp_policy_get(r.id)))
  field(out, 'autocast', policies[policy] or policy)
  field(out, 'dtypes', dtypes(tonumber(info.dtypes)))
  field(out, 'gradient', (r.kind == 'N' or band(flags, CREATE) ~= 0) and 'none' or band(flags, FIRST) ~= 0 and 'first order' or 'of any order')
end

return M
