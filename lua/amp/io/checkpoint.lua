--- Checkpoints: amp.save(path, table) and amp.load(path).
--
-- A value is a number, a string, a boolean, a tensor or a table of these, nested
-- and shared as one likes. No code is stored and none is run. The file:
--
--   header   magic, version                                       16 bytes
--   data     the elements of each segment, each from a multiple of 64, zeros between
--   index    segments, tensors (views of segments), the value     see below
--   footer   place, length and CRC of the index, CRC of the footer, magic
--
-- A segment is a stretch of memory that saved tensors cover: views that overlap
-- share one, and are views of one storage again when loaded. Everything has a
-- check sum. Writing streams, so it takes little memory whatever is saved.
-- Reading is in checkpoint_read.lua.
local ffi = require 'ffi'
local amp = require 'amp'
local core = require 'amp.ffi'
local file = require 'amp.io.file'
local memory = require 'amp.io.memory'
local segments = require 'amp.io.segments'
local types = require 'amp.types'
local raise = require('amp.error').throw

local M = {}

M.magic = '\137AMP\r\n\26\n' -- survives neither text mode nor a cut at its middle
M.version = 1
M.max_depth = 200
local ALIGN = 64
local le = file.le

local number = ffi.new('double[1]')
local function double(v)
  number[0] = v
  return ffi.string(number, 8)
end

-- -- What there is to save --------------------------------------------------

local function place(path) return #path == 0 and 'the value itself' or "'" .. table.concat(path, '.') .. "'" end

local function refuse(path, what) raise('save', 'at %s: %s', place(path), what) end

-- Note tables, and number tensors in the order they are met.
local function survey(v, path, seen)
  local kind = type(v)
  if kind == 'number' or kind == 'string' or kind == 'boolean' then return end
  if amp.is_tensor(v) then
    local id = v:id()
    if not seen.tensor_at[id] then
      seen.tensors[#seen.tensors + 1] = v:detach()
      seen.flags[#seen.tensors] = v.requires_grad and v.is_leaf and 1 or 0
      seen.tensor_at[id] = #seen.tensors
    end
    return
  end
  if kind ~= 'table' then
    local proxy = package.loaded['amp.data.proxy']
    if proxy and proxy.is(v) then -- a loader or a dataset
      refuse(path, v.state_dict and 'an object cannot be saved, its state can: use its state_dict()'
        or 'a dataset cannot be saved: save the tensors or the names that it is made of')
    end
    refuse(path, kind == 'nil' and 'nil cannot be saved' or 'a ' .. kind .. ' cannot be saved, only numbers, strings, '
      .. 'booleans, tensors and tables of them')
  end
  if seen.tables[v] then return end
  local mt = getmetatable(v)
  if type(mt) == 'table' and type(v.state_dict) == 'function' then
    refuse(path, 'an object cannot be saved, its state can: use its state_dict()')
  end
  if #path >= M.max_depth then refuse({path[1]}, string.format('more than %d levels of tables', M.max_depth)) end
  seen.tables[v] = true
  for k, item in pairs(v) do
    if type(k) ~= 'string' and type(k) ~= 'number' and type(k) ~= 'boolean' then
      refuse(path, 'a table key that is a ' .. type(k))
    end
    path[#path + 1] = tostring(k)
    survey(item, path, seen)
    path[#path] = nil
  end
end

-- -- Writing ----------------------------------------------------------------

local function contiguous_strides(sizes)
  local strides, step = {}, 1
  for d = #sizes, 1, -1 do
    strides[d] = step
    step = step * math.max(sizes[d], 1)
  end
  return strides
end

-- Write a segment; gives its description, and each member's (offset, strides) in it.
local function write_segment(s, tensors, put, layout)
  local source
  local only = #s.members == 1 and tensors[s.members[1]]
  if only then -- alone: in C order, without the gaps it may have
    source = only
    layout[s.members[1]] = {0, contiguous_strides(only:size())}
  else
    source = segments.source(s, tensors)
    for _, i in ipairs(s.members) do
      local first = segments.extent(tensors[i])
      layout[i] = {first - s.first, tensors[i]:stride()}
    end
  end
  local crc, bytes = 0, 0
  memory.each(source, function(p, n)
    crc = core.C.amp_crc32(crc, p, n)
    bytes = bytes + n
    put(p, n)
  end)
  return le(types.dtype_code[s.dtype], 1), le(bytes, 8), le(crc, 4), bytes
end

local tags = {boolean = {[true] = 'T', [false] = 'F'}}

local function sorted_keys(t)
  local keys = {}
  for k in pairs(t) do keys[#keys + 1] = k end
  table.sort(keys, function(a, b)
    local ka, kb = type(a), type(b)
    if ka ~= kb then return ka > kb end -- strings, numbers, booleans
    if ka == 'boolean' then return a and not b end
    return a < b
  end)
  return keys
end

local function write_value(v, put, seen)
  local kind = type(v)
  if kind == 'boolean' then return put(tags.boolean[v]) end
  if kind == 'number' then return put('d' .. double(v)) end
  if kind == 'string' then return put('s' .. le(#v, 4) .. v) end
  if kind ~= 'table' then return put('x' .. le(seen.tensor_at[v:id()], 4)) end
  local id = seen.written[v]
  if id then return put('r' .. le(id, 4)) end
  seen.count = seen.count + 1
  seen.written[v] = seen.count
  local keys = sorted_keys(v)
  put('t' .. le(#keys, 4))
  for _, k in ipairs(keys) do
    write_value(k, put, seen)
    write_value(v[k], put, seen)
  end
end

local function write_tensor(t, flag, segment, layout, put)
  local shape = t:size()
  put(le(segment, 4) .. le(flag, 1) .. le(#shape, 1) .. le(layout[1], 8))
  for d = 1, #shape do put(le(shape[d], 8) .. le(layout[2][d], 8)) end
end

local others = { -- ending of a file -> what writes that format
  npy = 'amp.io.save_npy(path, tensor)', npz = 'amp.io.save_npz(path, tensors)', safetensors = 'amp.io.safetensors.save(path, tensors)',
  onnx = 'amp.trace(net, x):export_onnx(path)',
}

-- A name that says another format leads others to a file that they can't read.
local function check_ending(path)
  local ending = path:lower():match '%.(%w+)$'
  if not others[ending] then return end
  require('amp.core.warn').once(("amp.save writes amp's own checkpoints, which amp.load reads, whatever the file is called ('%s'); a .%s file is written by %s")
    :format(path, ending, others[ending]), 'amp.save .' .. ending)
end

--- Write a checkpoint. The file appears whole or not at all: killed at any moment,
-- an older file of that name stays readable.
-- @tparam string path
-- @param value table, tensor, string, number or boolean
-- @raise on functions, objects and other things that are no data, with their place
-- @usage amp.save('run.amp', {model = net:state_dict(), step = 12, rng = amp.get_rng_state()})
function M.save(path, value, excess)
  require('amp.options').none('save', excess)
  if type(path) ~= 'string' then raise('save', 'amp.save(path, value): a path expected first, got %s', require('amp.util').kind(path)) end
  if ffi.abi('be') then raise('save', 'this machine is big-endian, which the format does not know') end
  check_ending(path)
  local seen = {tables = {}, tensors = {}, flags = {}, tensor_at = {}, written = {}, count = 0}
  survey(value, {}, seen)
  local tensors = seen.tensors
  local list = segments.of(tensors)
  local ok, why = file.replace(path, function(write)
    local at = 0
    local function put(data, n)
      write(data, n)
      at = at + (n or #data)
    end
    put(M.magic .. le(M.version, 4) .. le(0, 4))
    local layout, segment_of, descriptions = {}, {}, {}
    for i, s in ipairs(list) do
      put(('\0'):rep(-at % ALIGN))
      local begin = at
      local dtype, bytes, crc = write_segment(s, tensors, put, layout)
      descriptions[i] = dtype .. le(begin, 8) .. bytes .. crc
      for _, m in ipairs(s.members) do segment_of[m] = i end
    end
    -- the index goes through a buffer, so that the check sum costs few calls
    local begin, crc, parts, size = at, 0, {}, 0
    local function flush()
      local block = table.concat(parts)
      crc = core.C.amp_crc32(crc, block, #block)
      put(block)
      parts, size = {}, 0
    end
    local function index(text)
      parts[#parts + 1] = text
      size = size + #text
      if size > 65536 then flush() end
    end
    index(le(#list, 4))
    for _, d in ipairs(descriptions) do index(d) end
    index(le(#tensors, 4))
    for i, t in ipairs(tensors) do write_tensor(t, seen.flags[i], segment_of[i], layout[i], index) end
    write_value(value, index, seen)
    flush()
    local footer = le(begin, 8) .. le(at - begin, 8) .. le(crc, 4)
    put(footer .. le(core.C.amp_crc32(0, footer, #footer), 4) .. M.magic)
  end)
  if not ok then raise('save', "cannot write '%s': %s", path, why) end
end

--- Read a checkpoint; see checkpoint_read.lua.
function M.load(...) return require('amp.io.checkpoint_read')(...) end

return M
