--- Protocol buffers on the wire: numbers, fields and their lengths, read strictly and written.
--
-- A reader is a range of bytes. What is damaged (a varint of more than 10 bytes, a length beyond its message, a field of another
-- kind than its schema says, messages too deep in one another) is an error {damaged = text}, which amp.io.onnx turns into one that
-- names the file. A schema is a table by field number: {name, kind, list = true, of = schema}; kinds are 'int', 'float', 'double',
-- 'text', 'bytes', 'message'. Fields without a row are skipped.
-- @module amp.io.onnx.wire
local ffi = require 'ffi'
local file = require 'amp.io.file'

local M = {}

local DEEP = 32 -- messages in one another
M.DEEP = DEEP

local function broken(fmt, ...) error({damaged = fmt:format(...)}, 0) end
M.broken = broken

-- -- Reading ---------------------------------------------------------------------------------------------

local byte_pointer = ffi.typeof 'const uint8_t *'

-- A varint at p + at as a number (int64 where it is negative or large) and the place after it.
local function varint(p, at, stop)
  local value, factor = 0, 1
  for i = 0, 6 do
    if at + i >= stop then broken 'it ends within a number: it was cut off' end
    local b = p[at + i]
    if b < 128 then return value + b * factor, at + i + 1 end
    value = value + (b - 128) * factor
    factor = factor * 128
  end
  local long = ffi.cast('uint64_t', value)
  for i = 7, 9 do
    if at + i >= stop then broken 'it ends within a number: it was cut off' end
    local b = p[at + i]
    if i == 9 and b > 1 then broken 'it has a number of more than 64 bits' end
    long = long + ffi.cast('uint64_t', b % 128) * 2ULL ^ (7 * i)
    if b < 128 then return tonumber(ffi.cast('int64_t', long)), at + i + 1 end
  end
  broken 'it has a number of more than 64 bits'
end

local function length(p, at, stop)
  local n, from = varint(p, at, stop)
  if n < 0 or n > stop - from then broken('it has a piece of %.0f bytes where %.0f are left: it was cut off or is damaged', n, stop - from) end
  return n, from
end

local function single(p, at, stop)
  if at + 4 > stop then broken 'it ends within a number: it was cut off' end
  return file.single(p + at), at + 4
end

local function double(p, at, stop)
  if at + 8 > stop then broken 'it ends within a number: it was cut off' end
  return file.double(p + at), at + 8
end

local scalars = {int = {0, varint}, float = {5, single}, double = {1, double}}

local function skip(p, at, stop, wire)
  local n
  if wire == 0 then return (select(2, varint(p, at, stop)))
  elseif wire == 1 then n = 8
  elseif wire == 5 then n = 4
  elseif wire == 2 then n, at = length(p, at, stop)
  else broken('it has a field of wire type %d', wire) end
  if n > stop - at then broken 'it ends within a field: it was cut off' end
  return at + n
end

local decode

local function value_of(p, at, stop, row, depth)
  local n
  n, at = length(p, at, stop)
  if row[2] == 'text' then return ffi.string(p + at, n), at + n end
  if row[2] == 'bytes' then return {at = at, n = n}, at + n end
  return decode(p, at, at + n, row.of, depth + 1), at + n
end

-- A list of numbers in one piece.
local function packed(p, at, stop, read, list)
  local n, last
  n, at = length(p, at, stop)
  last = at + n
  while at < last do list[#list + 1], at = read(p, at, last) end
  return last
end

local function field(p, at, stop, row, wire, out, depth)
  local name, scalar = row[1], scalars[row[2]]
  local list
  if row.list then
    list = out[name] or {}
    out[name] = list
  end
  local v
  if not scalar then
    if wire ~= 2 then broken("its field '%s' has wire type %d", name, wire) end
    if row.most and list and #list >= row.most then broken("it has more than %d '%s'", row.most, name) end
    v, at = value_of(p, at, stop, row, depth)
  elseif list and wire == 2 then return packed(p, at, stop, scalar[2], list)
  else
    if wire ~= scalar[1] then broken("its field '%s' has wire type %d", name, wire) end
    v, at = scalar[2](p, at, stop)
  end
  if list then list[#list + 1] = v
  else out[name] = v end
  return at
end

--- A message as a table by the schema's names; lists that are not there are empty.
-- @param p pointer to the bytes
-- @tparam number at from which on
-- @tparam number stop where it ends
-- @tparam table schema
-- @tparam ?number depth
function decode(p, at, stop, schema, depth)
  depth = depth or 1
  if depth > DEEP then broken('its messages lie more than %d deep in one another', DEEP) end
  local out = {}
  for _, row in pairs(schema) do
    if row.list then out[row[1]] = {} end
  end
  while at < stop do
    local key
    key, at = varint(p, at, stop)
    local number, wire = math.floor(key / 8), key % 8
    if number < 1 or number >= 2 ^ 29 then broken('it has a field of number %.0f', number) end
    local row = schema[number]
    if row then at = field(p, at, stop, row, wire, out, depth)
    else at = skip(p, at, stop, wire) end
  end
  return out
end

function M.decode(p, n, schema) return decode(ffi.cast(byte_pointer, p), 0, n, schema, 1) end

-- -- Writing ---------------------------------------------------------------------------------------------

local char, floor = string.char, math.floor

local function put_varint(v)
  if v < 0 then
    local long, bytes = ffi.cast('uint64_t', ffi.cast('int64_t', v)), {}
    for i = 1, 9 do
      bytes[i] = char(tonumber(long % 128) + 128)
      long = long / 128
    end
    bytes[10] = char(tonumber(long))
    return table.concat(bytes)
  end
  local bytes = {}
  while v >= 128 do
    bytes[#bytes + 1] = char(v % 128 + 128)
    v = floor(v / 128)
  end
  bytes[#bytes + 1] = char(v)
  return table.concat(bytes)
end
M.varint = put_varint

local float = ffi.new 'union { float value; uint8_t byte[4]; }'

local function put_single(v)
  float.value = v
  return ffi.string(float.byte, 4)
end

local one_double = ffi.new 'double[1]'
local function put_double(v)
  one_double[0] = v
  return ffi.string(one_double, 8)
end

local writers = {int = {0, put_varint}, float = {5, put_single}, double = {1, put_double}}

-- A rope is a list of strings (or {pointer, bytes}) with n, their bytes in all.
local function add(rope, piece, n)
  rope[#rope + 1] = piece
  rope.n = rope.n + (n or #piece)
end

local encode

local function put_piece(rope, number, v, row)
  add(rope, put_varint(number * 8 + 2))
  if row[2] == 'message' then
    local inner = encode(v, row.of)
    add(rope, put_varint(inner.n))
    for i = 1, #inner do rope[#rope + 1] = inner[i] end
    rope.n = rope.n + inner.n
  elseif type(v) == 'table' then -- {fill = function(put), n = bytes}
    add(rope, put_varint(v.n))
    add(rope, v, v.n)
  else
    add(rope, put_varint(#v))
    add(rope, v)
  end
end

local function put_field(rope, number, v, row)
  local scalar = writers[row[2]]
  if not row.list then v = {v} end
  if not scalar then
    for i = 1, #v do put_piece(rope, number, v[i], row) end
  elseif row.list then
    local bytes = {}
    for i = 1, #v do bytes[i] = scalar[2](v[i]) end
    local text = table.concat(bytes)
    add(rope, put_varint(number * 8 + 2) .. put_varint(#text))
    add(rope, text)
  else
    add(rope, put_varint(number * 8 + scalar[1]))
    add(rope, scalar[2](v[1]))
  end
end

--- A message as a rope, fields by rising numbers.
function encode(message, schema)
  local rope, numbers = {n = 0}, {}
  for number in pairs(schema) do numbers[#numbers + 1] = number end
  table.sort(numbers)
  for _, number in ipairs(numbers) do
    local row = schema[number]
    local v = message[row[1]]
    if v ~= nil and not (row.list and #v == 0) then put_field(rope, number, v, row) end
  end
  return rope
end
M.encode = encode

--- Hand a rope's pieces to put(text) or put(pointer, bytes).
function M.put(rope, put)
  for i = 1, #rope do
    local piece = rope[i]
    if type(piece) == 'table' then piece.fill(put)
    else put(piece) end
  end
end

return M
