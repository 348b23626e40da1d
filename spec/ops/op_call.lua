--- Calls an op by its row: through the library alone, or as a user would.
-- Specs use the first for private rows and to check the second.
local ffi = require 'ffi'
local amp = require 'amp'
local core = require 'amp.ffi'
local H = require 'spec.lib.helper'
local C, S = core.C, core.S

local M = {}

--- Rows by number and by name: {id, name, kind, policy, flags (set), dtypes (set), args, attrs}.
M.rows, M.by_name = {}, {}

local flags = {}
for name in ('inplace method private random first create elementwise list nodiff_out1 only_inplace aux'):gmatch '%S+' do
  flags[name] = C['AMP_F_' .. name:upper()]
end

local function parse(schema)
  local args, attrs = {}, {}
  for word in schema:gsub(' %-> .*$', ''):gmatch('%S+') do
    local name, kind = word:match('^([%w_]+):(.*)$')
    if name then
      local bare, default = kind:match('^(.-)=(.*)$')
      bare = bare or kind
      attrs[#attrs + 1] = { name = name, optional = bare:match('%?$') ~= nil, type = (bare:gsub('%?$', '')), default = default }
    else
      local base, mark = word:match('^([%w_]+)([?#*]?)$')
      args[#args + 1] = { name = base, optional = mark == '?', number = mark == '#', list = mark == '*' }
    end
  end
  return args, attrs
end

for id = 0, C.amp_op_count() - 1 do
  local info = C.amp_op_get(id)
  local row = { id = id, name = ffi.string(info.name), kind = string.char(info.kind), schema = ffi.string(info.schema), doc = ffi.string(info.doc),
    policy = ffi.string(C.amp_policy_name(info.policy)), flags = {}, dtypes = {} }
  for name, v in pairs(flags) do row.flags[name] = bit.band(info.flags, v) ~= 0 end
  for d = 0, tonumber(C.AMP_DTYPE_COUNT) - 1 do
    row.dtypes[ffi.string(C.amp_dtype_name(d))] = bit.band(info.dtypes, bit.lshift(1, d)) ~= 0
  end
  row.args, row.attrs = parse(row.schema)
  M.rows[#M.rows + 1] = row
  M.by_name[row.name] = row
end

-- -- Through the library -------------------------------------------------------

local NONE = ffi.new('int64_t', -0x7fffffffffffffffLL - 1)

local function put_list(slots, at, v, most, field)
  slots[at].i = #v
  for i = 1, most do slots[at + i][field] = v[i] or 0 end
end

local function slots_of(row, attrs)
  local slots = ffi.new('amp_slot[' .. tonumber(C.AMP_MAX_SLOT) .. ']')
  local at = 0
  local known = {}
  for _, a in ipairs(row.attrs) do
    local v = attrs[a.name]
    known[a.name] = true
    local t = a.type
    if t:match('^[IDF]') then
      local most = tonumber(t:sub(2)) or 8
      if v == nil then slots[at].i = NONE
      else put_list(slots, at, type(v) == 'table' and v or { v }, most, t:sub(1, 1) == 'F' and 'f' or 'i') end
      at = at + most + 1
    elseif t:match('^i%d') then
      local n = tonumber(t:sub(2))
      if v == nil then v = tonumber(a.default) end
      for i = 1, n do
        if v == nil then slots[at].i = NONE else slots[at].i = type(v) == 'table' and v[i] or v end
        at = at + 1
      end
    else
      if v == nil and a.default then v = tonumber(a.default) end
      if t:sub(1, 1) == 'e' and type(v) == 'string' then
        local k = 0
        for word in t:sub(2):gmatch('[^,]+') do
          if word == v then v = k end
          k = k + 1
        end
      end
      if v == nil then slots[at].i = NONE
      elseif t == 'f' then slots[at].f = v
      elseif t == 'b' then slots[at].i = (v == true or v == 1) and 1 or 0
      elseif t == 't' then slots[at].i = type(v) == 'string' and H.dtype_id(v) or v
      elseif t == 'v' then slots[at].i = v == 'cpu' and 0 or v
      else slots[at].i = v end
      at = at + 1
    end
  end
  for k in pairs(attrs) do assert(known[k], k) end
  return slots
end

--- A call of an op through amp_opl, ready to be made: a function that gives the status and three handles.
-- @tparam string name
-- @tparam table inp tensors, numbers, false, {list = tensors}
-- @tparam table attrs by name
-- @tparam ?number form AMP_INPLACE
function M.prepare(name, inp, attrs, form)
  local row = M.by_name[name]
  local flat, keep, n = {}, {}, 0
  local function add(x)
    n = n + 1
    if type(x) == 'number' then
      local r = core.ref_t()
      assert(C.amp_number(S, r, x) == 0)
      x = r
    end
    keep[#keep + 1] = x or nil
    flat[n] = x or false
  end
  for i = 1, #row.args do
    local x = inp[i]
    if type(x) == 'table' then
      for _, y in ipairs(x.list) do add(y) end
    else
      add(x)
    end
  end
  local array = ffi.new('amp_tensor *[?]', math.max(n, 1))
  for i = 1, n do if flat[i] then array[i - 1] = flat[i].ptr_ end end
  local slots = slots_of(row, attrs)
  return function()
    local o = { core.ref_t(), core.ref_t(), core.ref_t() }
    local rc = C.amp_opl(S, row.id + (form or 0), o[1], o[2], o[3], ffi.cast('amp_tensor *const *', array), n, slots)
    keep[1] = keep[1]
    return rc, o
  end
end

--- Results of an op as a list, through amp_opl; raises the library's message.
-- The arguments are those of `prepare`.
function M.raw(name, inp, attrs)
  local rc, o = M.prepare(name, inp, attrs)()
  if rc ~= 0 then error('amp.' .. ffi.string(S.err.op) .. ': ' .. ffi.string(S.err.message), 2) end
  for i = 3, 1, -1 do
    if o[i].ptr_ == nil then o[i] = nil else break end
  end
  return o
end

-- -- As a user would -----------------------------------------------------------

--- Results as a list, through amp.NAME(arguments, options).
function M.user(name, inp, attrs)
  local row = M.by_name[name]
  if name == 'index_put' then -- PyTorch's order: the list of indices first
    return { amp[name](inp[1], inp[3].list, inp[2], attrs) }
  end
  local args, n, absent = {}, 0, false
  for i = 1, #row.args do
    local x = inp[i]
    if type(x) == 'table' then x = x.list end
    if x and absent then -- what follows an absent argument goes by its name
      local more = {}
      for k, v in pairs(attrs) do more[k] = v end
      more[row.args[i].name] = x
      attrs = more
    elseif x then
      n = n + 1
      args[n] = x
    else
      absent = true
    end
  end
  if next(attrs) then
    n = n + 1
    args[n] = attrs
  end
  return { amp[name](unpack(args, 1, n)) }
end

function M.call(name, inp, attrs)
  local row = M.by_name[name]
  if row.flags.private then return M.raw(name, inp, attrs) end
  return M.user(name, inp, attrs)
end

-- -- Layouts -------------------------------------------------------------------

--- What `relayout` knows.
M.layouts = { 'transposed', 'sliced', 'shifted', 'channels_last' }

--- The same values in another layout: 'transposed' (dimensions stored backwards), 'sliced' (every second
-- element of a larger storage), 'shifted' (contiguous, but off by an element), 'channels_last' (of
-- four dimensions the second stored last). nil where there is none.
function M.relayout(t, how)
  local shape, values = H.shape(t), H.values(t)
  local n, nd = values.n, #shape
  if nd == 0 or n == 0 or (how == 'transposed' and nd < 2) or (how == 'channels_last' and nd ~= 4) then return nil end
  local order = {} -- dimensions, the one stored last first
  for d = 1, nd do order[d] = how == 'transposed' and d or nd + 1 - d end
  if how == 'channels_last' then order = { 2, 4, 3, 1 } end
  local offset, step = (how == 'sliced' or how == 'shifted') and 1 or 0, how == 'sliced' and 2 or 1
  local size = step * n + (offset > 0 and 3 or 0)
  local stride, s = {}, step
  for _, d in ipairs(order) do
    stride[d] = s
    s = s * shape[d]
  end
  local base = {}
  for i = 1, size do base[i] = -77 end
  if H.dtype(t) == 'bool' or H.dtype(t) == 'uint8' then for i = 1, size do base[i] = 1 end end
  local index = {}
  for d = 1, nd do index[d] = 0 end
  for i = 1, n do
    local at = offset
    for d = 1, nd do at = at + index[d] * stride[d] end
    base[at + 1] = values[i]
    local d = nd
    while d > 0 do
      index[d] = index[d] + 1
      if index[d] < shape[d] then break end
      index[d] = 0
      d = d - 1
    end
  end
  local whole = H.make(base, { size }, H.dtype(t), t.device)
  return M.raw('as_strided', { whole }, { size = shape, stride = stride, offset = offset })[1]
end

return M
