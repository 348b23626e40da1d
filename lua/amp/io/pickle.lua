--- Pickles of torch.save, by a closed list of instructions and classes. Nothing is executed: a class outside the list is an error
-- that names it. Tensors come as descriptions (M.Tensor), which amp.io.pt turns into tensors.
local bit = require 'bit'
local ffi = require 'ffi'
local file = require 'amp.io.file'
local memory = require 'amp.io.memory'

local M = {}

--- Metatables of what a pickle may describe.
M.Tensor, M.Storage, M.Error = {}, {}, {}
local Class, Tuple, Mark = {}, {}, {}
local NONE = setmetatable({}, { __tostring = function() return 'None' end })
M.NONE = NONE

local dtypes = { Double = 'float64', Float = 'float32', Half = 'float16', BFloat16 = 'bfloat16', Long = 'int64', Int = 'int32', Short = 'int16',
  Char = 'int8', Byte = 'uint8', Bool = 'bool' }
local plain = { float64 = true, float32 = true, float16 = true, bfloat16 = true, int64 = true, int32 = true, int16 = true,
  int8 = true, uint8 = true, bool = true }

local function fail(fmt, ...) error(setmetatable({ text = fmt:format(...) }, M.Error), 0) end
M.fail = fail

-- -- Bytes ------------------------------------------------------------------------------------

local Reader = {}
Reader.__index = Reader
local WINDOW = 65536

-- A pointer to the next n bytes, which are passed over.
function Reader:take(n)
  if self.at + n > self.stop then fail('its pickle ends at byte %.0f, %.0f bytes early: it was cut off', self.stop, self.at + n - self.stop) end
  if self.at + n > self.from + self.held then
    local want = math.min(math.max(n, WINDOW), self.stop - self.at)
    if want > self.room then self.buffer, self.room = ffi.new('uint8_t[?]', want), want end
    local ok, why = self.f:read(self.buffer, want, self.at)
    if not ok then fail('%s', why) end
    self.from, self.held = self.at, want
  end
  local p = self.buffer + (self.at - self.from)
  self.at = self.at + n
  return p
end

function Reader:number(n) return file.unle(self:take(n), n) end

function Reader:string(n)
  if n > 2 ^ 30 then fail('a string of %.0f bytes', n) end
  return ffi.string(self:take(n), n)
end

function Reader:line()
  local out = {}
  while true do
    local c = self:take(1)[0]
    if c == 10 then return table.concat(out) end
    out[#out + 1] = string.char(c)
    if #out > 4096 then fail 'a line of its pickle is too long' end
  end
end

-- -- The stack ----------------------------------------------------------------------------------

function Reader:push(v)
  self.top = self.top + 1
  self.stack[self.top] = v
end

function Reader:pop()
  local v = self.stack[self.top]
  if v == nil or v == Mark then fail('its pickle takes a value that is not there, before byte %.0f', self.at) end
  self.stack[self.top] = nil
  self.top = self.top - 1
  return v
end

-- What stands above the last mark.
function Reader:marked()
  local at = self.marks[#self.marks]
  if not at then fail('its pickle has no mark before byte %.0f', self.at) end
  self.marks[#self.marks] = nil
  local out = {}
  for i = at + 1, self.top do
    out[i - at] = self.stack[i]
    self.stack[i] = nil
  end
  self.stack[at], self.top = nil, at - 1
  return out
end

function Reader:tuple(n)
  local out = setmetatable({}, Tuple)
  for i = n, 1, -1 do out[i] = self:pop() end
  self:push(out)
end

local function signed(p, n)
  if n > 8 then fail('a whole number of %d bytes', n) end
  if n == 0 then return 0 end
  local v = file.unle(p, n)
  return p[n - 1] >= 128 and v - 2 ^ (8 * n) or v
end

-- -- Classes --------------------------------------------------------------------------------------

local function kind_of(v)
  local mt = getmetatable(v)
  if mt == Class then return v.name end
  if type(v) ~= 'table' then return type(v) end
  return mt == M.Tensor and 'a tensor' or mt == M.Storage and 'a storage' or mt == Tuple and 'a tuple' or v == NONE and 'None' or 'a table'
end

local function class(module, name)
  local full = module .. '.' .. name
  if #full > 300 then full = memory.show(full) end
  local element = (module == 'torch' or module == 'torch.cuda' or module == 'torch.storage') and name:match '^(%w+)Storage$'
  local c = setmetatable({ name = full }, Class)
  if full == 'collections.OrderedDict' then c.make = 'dict'
  elseif full == 'torch._utils._rebuild_tensor_v2' or full == 'torch._utils._rebuild_tensor' or full == 'torch._utils._rebuild_tensor_v3' then c.make = 'tensor'
  elseif full == 'torch._utils._rebuild_parameter' then c.make = 'parameter'
  elseif full == 'torch.Size' then c.make = 'list'
  elseif full == 'torch.device' then c.make = 'device'
  elseif element and dtypes[element] then c.dtype = dtypes[element]
  elseif element == 'Untyped' then c.dtype = 'uint8'
  elseif element then fail("a tensor of %s; amp has no such dtype", full)
  elseif module == 'torch' and plain[name] then return name
  else fail("it holds an object of the class %s, which is not read: only tensors, numbers, strings, lists and dictionaries are, and nothing is run",
    memory.show(full)) end
  return c
end

local function whole(v, what)
  if type(v) ~= 'number' or v % 1 ~= 0 or v < 0 or v >= 2 ^ 53 then fail('%s of a tensor is %s', what, type(v) == 'number' and tostring(v) or kind_of(v)) end
  return v
end

local function tensor(args, version3)
  local t = setmetatable({ storage = args[1], offset = whole(args[2], 'the offset') }, M.Tensor)
  if getmetatable(t.storage) ~= M.Storage then fail('a tensor without storage: %s in its place', kind_of(t.storage)) end
  for i, key in ipairs { 'size', 'stride' } do
    local list = args[2 + i]
    if type(list) ~= 'table' or #list > 8 then fail('a tensor with an impossible %s', key) end
    t[key] = {}
    for d, n in ipairs(list) do t[key][d] = whole(n, 'the ' .. key) end
  end
  if #t.size ~= #t.stride then fail 'a tensor with as many sizes as strides is expected' end
  t.requires_grad = args[5] == true
  t.dtype = version3 and args[7] or t.storage.dtype
  if not plain[t.dtype] then fail('a tensor of the dtype %s, which amp has not', kind_of(t.dtype)) end
  return t
end

function Reader:reduce()
  local args, f = self:pop(), self:pop()
  if getmetatable(f) ~= Class or not f.make then fail('%s is called in its pickle; nothing is run', kind_of(f)) end
  if getmetatable(args) ~= Tuple then fail('%s is called with %s', f.name, kind_of(args)) end
  if f.make == 'dict' then
    local out = {}
    if type(args[1]) == 'table' then
      for _, pair in ipairs(args[1]) do
        if type(pair) ~= 'table' then fail 'an OrderedDict of other things than pairs' end
        self:set(out, pair[1], pair[2])
      end
    end
    return out
  end
  if f.make == 'tensor' then return tensor(args, f.name:sub(-2) == 'v3') end
  if f.make == 'list' then return type(args[1]) == 'table' and args[1] or setmetatable({}, Tuple) end
  if f.make == 'device' then return args[2] and tostring(args[1]) .. ':' .. tostring(args[2]) or args[1] or NONE end
  local t = args[1]
  if getmetatable(t) ~= M.Tensor then fail('a parameter of %s', kind_of(t)) end
  local out = {}
  for k, v in pairs(t) do out[k] = v end
  out.requires_grad = args[2] == true
  return setmetatable(out, M.Tensor)
end

function Reader:set(t, k, v) -- luacheck: no self
  local kind = type(k)
  if kind ~= 'string' and kind ~= 'number' and kind ~= 'boolean' or k ~= k then
    fail('a key of a dictionary is %s; strings, numbers and truth values can be', kind_of(k))
  end
  t[k] = v
end

local function container(v)
  if type(v) ~= 'table' or getmetatable(v) ~= nil then fail('its pickle fills %s', kind_of(v)) end
  return v
end

-- ('storage', class, key, location, elements [, view])
function Reader:storage(id)
  if getmetatable(id) ~= Tuple or id[1] ~= 'storage' then fail 'it refers to an object outside the file that is no storage' end
  local c, key, count = id[2], id[3], id[5]
  if getmetatable(c) ~= Class or not c.dtype then fail('a storage of %s', kind_of(c)) end
  if type(key) ~= 'string' and type(key) ~= 'number' then fail 'a storage without key' end
  key = tostring(key)
  whole(count, 'the storage')
  local s = self.storages[key]
  if not s then
    s = setmetatable({ key = key, dtype = c.dtype, count = count, untyped = c.name:find 'Untyped' ~= nil }, M.Storage)
    self.storages[key] = s
  elseif s.dtype ~= c.dtype or s.count ~= count then fail("the storage '%s' is described in two ways", memory.show(key)) end
  local view = id[6]
  if view == nil or view == NONE then return s end
  if type(view) ~= 'table' then fail 'a storage with an impossible view' end
  return setmetatable({ base = s, key = key, dtype = s.dtype, first = whole(view[2], 'the view'), count = whole(view[3], 'the view') }, M.Storage)
end

-- -- Instructions -----------------------------------------------------------------------------------

local ops = {}
local function op(c, f) ops[c:byte()] = f end

op('\128', function(r)
  local v = r:number(1)
  if v > 5 then fail('a pickle of protocol %d; 0 to 5 are known', v) end
end)
op('\149', function(r) r:take(8) end)
op('(', function(r)
  r:push(Mark)
  r.marks[#r.marks + 1] = r.top
end)
op('N', function(r) r:push(NONE) end)
op('\136', function(r) r:push(true) end)
op('\137', function(r) r:push(false) end)
op('K', function(r) r:push(r:number(1)) end)
op('M', function(r) r:push(r:number(2)) end)
op('J', function(r) r:push(signed(r:take(4), 4)) end)
local function long(r, n)
  if n > 16 then fail('a whole number of %d bytes', n) end
  local p = r:take(n)
  while n > 8 and (p[n - 1] == 0 and p[n - 2] < 128 or p[n - 1] == 255 and p[n - 2] >= 128) do n = n - 1 end
  if n > 8 then -- sys.maxsize and the magic number of the older format
    r:push(file.unle(p, n))
  else
    r:push(signed(p, n))
  end
end
op('\138', function(r) long(r, r:number(1)) end)
op('\139', function(r) long(r, r:number(4)) end)
op('I', function(r)
  local text = r:line()
  if text == '01' then return r:push(true) elseif text == '00' then return r:push(false) end
  r:push(text:match '^-?%d+$' and tonumber(text) or fail 'a whole number that is none')
end)
op('L', function(r) r:push(tonumber(r:line():match '^(-?%d+)L?$' or '') or fail 'a whole number that is none') end)
op('F', function(r) r:push(tonumber(r:line()) or fail 'a number that is none') end)
op('G', function(r)
  local p, q = r:take(8), ffi.new 'uint8_t[8]'
  for i = 0, 7 do q[i] = p[7 - i] end
  r:push(file.double(q))
end)
for c, n in pairs { U = 1, ['\140'] = 1, X = 4, T = 4, B = 4, C = 1, ['\141'] = 8, ['\142'] = 8 } do op(c, function(r) r:push(r:string(r:number(n))) end) end
op('V', function(r) r:push(r:line()) end)
op('S', function(r) r:push(r:line():match "^['\"](.*)['\"]$" or fail 'a string that is none') end)
op(']', function(r) r:push {} end)
op('}', function(r) r:push {} end)
op(')', function(r) r:push(setmetatable({}, Tuple)) end)
op('\133', function(r) r:tuple(1) end)
op('\134', function(r) r:tuple(2) end)
op('\135', function(r) r:tuple(3) end)
op('t', function(r) r:push(setmetatable(r:marked(), Tuple)) end)
op('l', function(r) r:push(r:marked()) end)
op('a', function(r)
  local v = r:pop()
  local t = container(r.stack[r.top])
  t[#t + 1] = v
end)
op('e', function(r)
  local list = r:marked()
  local t = container(r.stack[r.top])
  local n = #t
  for i, v in ipairs(list) do t[n + i] = v end
end)
op('s', function(r)
  local v, k = r:pop(), r:pop()
  r:set(container(r.stack[r.top]), k, v)
end)
local function items(r, t, list)
  if #list % 2 == 1 then fail 'a dictionary with a key that has no value' end
  for i = 1, #list, 2 do r:set(t, list[i], list[i + 1]) end
end
op('u', function(r)
  local list = r:marked()
  items(r, container(r.stack[r.top]), list)
end)
op('d', function(r)
  local t = {}
  items(r, t, r:marked())
  r:push(t)
end)
op('0', function(r) r:pop() end)
op('1', function(r) r:marked() end)
op('2', function(r)
  local v = r:pop()
  r:push(v)
  r:push(v)
end)
local function put(r, k)
  local v = r.stack[r.top]
  if v == nil or v == Mark then fail 'its pickle notes a value that is not there' end
  r.memo[k], r.noted = v, r.noted + 1
end
local function get(r, k)
  local v = r.memo[k]
  if v == nil then fail('its pickle asks for note %s, which is not there', tostring(k)) end
  r:push(v)
end
op('q', function(r) put(r, r:number(1)) end)
op('r', function(r) put(r, r:number(4)) end)
op('p', function(r) put(r, tonumber(r:line():match '^%d+$') or fail 'a note without number') end)
op('\148', function(r) put(r, r.noted) end)
op('h', function(r) get(r, r:number(1)) end)
op('j', function(r) get(r, r:number(4)) end)
op('g', function(r) get(r, tonumber(r:line():match '^%d+$') or -1) end)
op('c', function(r)
  local module = r:line()
  r:push(class(module, r:line()))
end)
op('\147', function(r)
  local name, module = r:pop(), r:pop()
  if type(name) ~= 'string' or type(module) ~= 'string' then fail 'a class without name' end
  r:push(class(module, name))
end)
op('R', function(r) r:push(r:reduce()) end)
op('\129', function(r) r:push(r:reduce()) end)
op('b', function(r) -- attributes of an OrderedDict (versions of a state_dict) are passed over
  r:pop()
  container(r.stack[r.top])
end)
op('Q', function(r) r:push(r:storage(r:pop())) end)

--- Read one pickle.
-- @param f a file of amp.io.file
-- @tparam number at its first byte
-- @tparam number stop where it ends at the latest
-- @tparam table storages key -> storage, filled
-- @return its value, and the place after it. Raises a table with the metatable M.Error
function M.read(f, at, stop, storages)
  local r = setmetatable({ f = f, at = at, stop = stop, from = at, held = 0, room = 0, stack = {}, top = 0, marks = {}, memo = {}, noted = 0,
    storages = storages }, Reader)
  while true do
    local c = r:take(1)[0]
    if c == 46 then break end
    local run = ops[c]
    if not run then fail('its pickle has the instruction 0x%02x at byte %.0f, which is not in the list of those that are read', bit.band(c, 255), r.at - 1) end
    run(r)
  end
  return r:pop(), r.at
end

return M
