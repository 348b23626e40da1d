--- Tensors from one Lua state to another, as threads of LÖVE, luv or C have them.
--
--   -- in the game                                        -- in the thread, a Lua state of its own
--   local seen = amp.mailbox('seen', {keep = 64})         local seen = amp.mailbox 'seen'
--   local weights = amp.mailbox 'weights'                 local weights = amp.mailbox 'weights'
--   seen:put {x = x, reward = r}                          local s = seen:take(1) -- waits up to a second
--   local w, version = weights:take()                     weights:put(net:state_dict(), {copy = true})
--   if w then net:load_state_dict(w) end
--
-- A name means the same mailbox in the whole process. Tensors are shared, not copied; what stands around them (tables, numbers,
-- strings, booleans) is. A mailbox keeps the last `keep` letters; where another one comes, the oldest is dropped, so neither side
-- ever waits for the other, and memory does not grow. It goes with the last state that has opened it: open it before the thread is
-- started, and what a thread put last is there after its end.
-- @module amp.mailbox
local ffi = require 'ffi'
local call = require 'amp.core.call'
local core = require 'amp.ffi'
local err = require 'amp.error'
local options = require 'amp.options'
local util = require 'amp.util'
local C, S = core.C, core.S
local raise = err.throw

local OP, MEMORY, DEEPEST = 'mailbox', -6, 50
local Mailbox = { class = 'amp.mailbox' }
Mailbox.__index = Mailbox

-- -- Letters ------------------------------------------------------------------------------------------

-- A note says how the values stand: a tag of one character, then what it needs. N number, S string, A table, + true, - false; T the
-- next tensor.
local double = ffi.new 'double[1]'

local function number(v)
  double[0] = v
  return ffi.string(double, 8)
end

local function step(path, key) return type(key) == 'string' and key:match '^[%a_][%w_]*$' and path .. '.' .. key or path .. '[' .. util.show(key) .. ']' end

-- Writes a value: pieces of the note, tensors, and where each tensor stood.
local function write(letter, v, path, depth)
  local kind, note = type(v), letter.note
  if kind == 'number' then note[#note + 1] = 'N' .. number(v)
  elseif kind == 'boolean' then note[#note + 1] = v and '+' or '-'
  elseif kind == 'string' then note[#note + 1] = 'S' .. number(#v) .. v
  elseif core.is_ref(v) then
    if v.ptr_ == nil then raise(OP, '%s is a tensor that was freed', path) end
    note[#note + 1] = 'T'
    letter.tensors[#letter.tensors + 1] = letter.copy and v:detach():clone() or v
    letter.paths[#letter.paths + 1] = path
  elseif kind == 'table' and getmetatable(v) == nil then
    if depth > DEEPEST then raise(OP, '%s: tables nested more than %d deep (or one that holds itself)', path, DEEPEST) end
    local n = 0
    for _ in pairs(v) do n = n + 1 end
    note[#note + 1] = 'A' .. number(n)
    for k, x in pairs(v) do
      if type(k) ~= 'string' and type(k) ~= 'number' then raise(OP, '%s: a key must be a string or a number, got %s', path, util.show(k)) end
      write(letter, k, path, depth)
      write(letter, x, step(path, k), depth + 1)
    end
  else
    local module = kind == 'table' and type(v.state_dict) == 'function'
    raise(OP, '%s: tensors, numbers, strings, booleans and plain tables of them are handed over, got %s%s', path, util.show(v),
      module and '; of a module or an optimizer hand over its state_dict()' or '')
  end
end

-- Reads a value that begins at byte `at` of the note: the value, and where the next one begins.
local function read(note, at, tensors)
  local tag = note:sub(at, at)
  if tag == '+' or tag == '-' then return tag == '+', at + 1 end
  if tag == 'T' then
    tensors.at = tensors.at + 1
    return tensors[tensors.at], at + 1
  end
  ffi.copy(double, note:sub(at + 1, at + 8), 8)
  local n = double[0]
  at = at + 9
  if tag == 'N' then return n, at end
  if tag == 'S' then return note:sub(at, at + n - 1), at + n end
  local out = {}
  for _ = 1, n do
    local k, v
    k, at = read(note, at, tensors)
    v, at = read(note, at, tensors)
    out[k] = v
  end
  return out, at
end

-- -- Mailboxes ----------------------------------------------------------------------------------------

-- Raises the library's error, with a tensor's place instead of its number.
local function fail(paths)
  local message = ffi.string(S.err.message):gsub('^tensor (%d+)', function(i) return paths and paths[tonumber(i)] end)
  err.throw_code(tonumber(S.err.code), OP, '%s', message)
end

-- The whole value has arrived on a GPU before another thread reads it.
local function settle(tensors)
  for i = 1, #tensors do
    if tensors[i].device ~= 'cpu' then return require('amp.cuda').synchronize() end
  end
end

--- Puts a value. The oldest letter of a full mailbox goes.
-- @param value a tensor, or a plain table (nested too) of tensors, numbers, strings and booleans
-- @tparam ?table options copy = false: true hands over copies of the tensors. Weights that an optimizer goes on stepping, and whatever
-- else is written to later, need it: a tensor that was changed since is refused when it is taken. Tensors on a GPU are waited for.
-- @treturn number version: 1 for the first letter of this mailbox, 2 for the next
-- @raise a tensor that requires grad or has a history, or whose memory this Lua state keeps (from_ptr, files): without copy
-- @usage box:put({weight = net.weight, step = 12}, {copy = true})
function Mailbox:put(value, given)
  local o = options.read(OP, given, { 'copy' }, { copy = false })
  if type(o.copy) ~= 'boolean' then raise(OP, 'copy must be true or false, got %s', util.show(o.copy)) end
  local letter = { note = {}, tensors = {}, paths = {}, copy = o.copy }
  write(letter, value, 'value', 0)
  local n, note = #letter.tensors, table.concat(letter.note)
  settle(letter.tensors)
  local list = ffi.new('amp_tensor *[?]', math.max(n, 1))
  for i = 1, n do list[i - 1] = letter.tensors[i].ptr_ end
  local version = C.amp_mailbox_put(S, self.box, list, n, note, #note)
  if version == MEMORY then
    collectgarbage()
    version = C.amp_mailbox_put(S, self.box, list, n, note, #note)
  end
  if version < 0 then fail(letter.paths) end
  return tonumber(version)
end

--- Takes the oldest letter out.
-- @tparam ?number seconds how long one is waited for; left out: not at all
-- @return the value as it was put; nil where no letter came
-- @treturn ?number its version
-- @raise a tensor was changed in place since it was put
-- @usage local value, version = box:take(0.5)
function Mailbox:take(seconds)
  if seconds ~= nil and (type(seconds) ~= 'number' or seconds ~= seconds or seconds < 0) then
    raise(OP, 'seconds must be a number from 0, got %s', util.show(seconds))
  end
  local letter = C.amp_mailbox_take(S, self.box, seconds or 0)
  if letter == nil then
    if S.err.code < 0 then fail() end
    return nil
  end
  local tensors, status = { at = 0 }, 0
  for i = 1, letter.n do
    local t = core.ref_t()
    status = C.amp_letter_tensor(S, t, letter, i - 1)
    if status < 0 then break end
    if S.attention ~= 0 then call.attend(t) end
    tensors[i] = t
  end
  local note, version = ffi.string(letter.note, letter.size), tonumber(letter.version)
  C.amp_letter_free(letter)
  if status < 0 then
    local paths = {}
    for i = 1, #tensors + 1 do paths[i] = ('tensor %d of letter %d'):format(i, version) end
    fail(paths)
  end
  return read(note, 1, tensors), version
end

--- Drops all letters.
function Mailbox:clear() C.amp_mailbox_clear(self.box) end

local puts, dropped = ffi.new 'int64_t[1]', ffi.new 'int64_t[1]'

--- Counts.
-- @treturn number letters in it
-- @treturn number letters that were put, in all
-- @treturn number those that were dropped before anybody took them
function Mailbox:count()
  local held = C.amp_mailbox_count(self.box, puts, dropped)
  return held, tonumber(puts[0]), tonumber(dropped[0])
end

function Mailbox:__tostring() return ("amp.mailbox('%s'): %d letters of %d put, %d dropped"):format(self.name, self:count()) end

require('amp.core.class').guard(Mailbox, 'mailbox', 'box')

--- Opens the mailbox of a name: the same one in every Lua state of the process.
-- @tparam string name up to 63 bytes
-- @tparam ?table options keep = 1: letters it holds; who opens it first says so, others may leave it out
-- @treturn Mailbox box:put(value, {copy}), box:take(seconds), box:clear(), box:count()
-- @raise it was opened with another keep
-- @usage local weights = amp.mailbox 'weights'
-- weights:put({bias = amp.ones(3), step = 1})
-- local w, version = weights:take()
return function(name, given)
  if type(name) ~= 'string' then raise(OP, 'a name expected, got %s', util.show(name)) end
  if name:find '%z' then raise(OP, 'a name has no zero bytes') end
  local o = options.read(OP, given, { 'keep' }, {})
  if o.keep ~= nil then options.integer(OP, 'keep', o.keep, 1) end
  local box = call.object(OP, C.amp_mailbox_open, name, math.min(o.keep or 0, 2 ^ 30))
  return setmetatable({ name = name, box = ffi.gc(box, C.amp_mailbox_close) }, Mailbox)
end
