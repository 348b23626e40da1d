--- Files of Torch7: torch.save, torch.load, torch.DiskFile, torch.MemoryFile, and the objects that they hold (.t7).
--
-- An object is its type's number, then what the type has; objects that are met again are their number. A class's own `write` and
-- `read` are called where it has them. Functions are not written and not loaded: in their place is nothing.
local ffi = require 'ffi'
local amp = require 'amp'
local core = require 'amp.torch7.own.core'
local classes = require 'amp.torch7.class'
local cursor = require 'amp.torch7.cursor'
local disk = require 'amp.io.file'
local L = require('amp.ffi').C
local raise = require('amp.error').throw
local is_tensor, is_storage = core.is_tensor, core.is_storage

local NIL, NUMBER, STRING, TABLE, TORCH, BOOLEAN = 0, 1, 2, 3, 4, 5
local DEEPEST = 1000

local ctypes = {Byte = 'uint8_t', Char = 'int8_t', Short = 'int16_t', Int = 'int32_t', Long = 'int64_t', Float = 'float', Double = 'double', Half = 'uint16_t'}
local formats = {Float = '%.9g', Double = '%.17g'}

return function(torch)
  local File = classes.class('torch.File', nil, torch)
  local MemoryFile = classes.class('torch.MemoryFile', 'torch.File', torch)
  local DiskFile = classes.class('torch.DiskFile', 'torch.File', torch)
  local PipeFile = classes.class('torch.PipeFile', 'torch.DiskFile', torch)

  local function open(self, text, writes, path)
    self.out, self.text, self.at, self.writes, self.path, self.is_binary, self.refs = {}, text, 1, writes, path, false, true
    self.seen, self.count, self.known = {}, 0, {}
    self.long_size = 8
  end
  function MemoryFile:__init(first, second)
    local text = ''
    if is_storage(first) then text = first:string():gsub('%z$', '') end
    open(self, text, (is_storage(first) and second or first or 'rw') ~= 'r')
  end
  local function rewrite(path, text)
    local ok, why = disk.replace(path, function(put) put(text) end)
    if not ok then raise('torch7.DiskFile', "cannot write '%s': %s", path, why) end
    return text
  end
  local function readable(path, mode)
    if mode == 'rw' and not path:find('\0', 1, true) and L.amp_file_kind(path, 1, nil) == L.AMP_FILE_NONE then return rewrite(path, '') end
    local text, why = disk.text(path)
    if not text then raise('torch7.DiskFile', "cannot read '%s': %s", path, why) end
    return text
  end
  function DiskFile:__init(path, mode, quiet)
    mode = mode or 'r'
    if type(path) ~= 'string' then raise('torch7.DiskFile', 'a path expected, got %s', type(path)) end
    if mode ~= 'r' and mode ~= 'w' and mode ~= 'rw' then raise('torch7.DiskFile', "the mode is 'r', 'w' or 'rw', got %s", tostring(mode)) end
    open(self, mode == 'w' and rewrite(path, '') or readable(path, mode), mode ~= 'r', path)
    self.is_quiet = quiet
  end
  function PipeFile:__init(command, mode)
    if (mode or 'r') ~= 'r' then raise('torch7.PipeFile', "only mode 'r' is known, got %s", tostring(mode)) end
    local p = assert(io.popen(command, 'r'))
    local text = p:read '*a'
    p:close()
    open(self, text, false)
  end

  -- -- State ---------------------------------------------------------------------------------------

  function File:binary()
    self.is_binary = true
    return self
  end
  function File:ascii()
    self.is_binary = false
    return self
  end
  for _, name in ipairs {'quiet', 'pedantic', 'autoSpacing', 'noAutoSpacing', 'littleEndianEncoding', 'nativeEndianEncoding', 'noBuffer'} do
    File[name] = function(self) return self end
  end
  function File.bigEndianEncoding() raise('torch7.File', 'big-endian files are not known') end
  function File:longSize(n)
    self.long_size = n == 0 and 8 or n
    return self
  end
  function File:referenced(ref)
    self.refs = ref
    return self
  end
  function File:hasError() return self.failed == true end
  function File:clearError() self.failed = nil end
  function File:isOpened() return not self.closed end
  function File.isReadable() return true end
  function File:isWritable() return self.writes end
  -- What was written becomes what is read.
  local function flush(self)
    if #self.out == 0 then return end
    local new = table.concat(self.out)
    self.out = {}
    self.text = self.text:sub(1, self.at - 1) .. new .. self.text:sub(self.at + #new)
    self.at = self.at + #new
    self.changed = true
  end
  function File:seek(at)
    flush(self)
    self.at = at
    return self
  end
  function File:seekEnd()
    flush(self)
    self.at = #self.text + 1
    return self
  end
  function File:position()
    flush(self)
    return self.at
  end
  function File:synchronize()
    flush(self)
    if self.path and self.changed then
      rewrite(self.path, self.text)
      self.changed = nil
    end
    return self
  end
  function File:close()
    self:synchronize()
    self.closed = true
  end
  function MemoryFile:storage()
    flush(self)
    return torch.CharStorage():string(self.text .. '\0')
  end

  -- -- Plain values -----------------------------------------------------------------------------------

  local function put(self, s)
    if not self.writes then raise('torch7.File', 'the file is open for reading only') end
    self.out[#self.out + 1] = s
  end
  local function element_text(kind, v)
    if formats[kind] then return formats[kind]:format(v) end
    return ('%d'):format(v)
  end
  -- n elements at a pointer
  local function put_elements(self, kind, p, n)
    if self.is_binary then
      local width = ffi.sizeof(ctypes[kind])
      if kind == 'Long' and self.long_size == 4 then
        local short = ffi.new('int32_t[?]', n)
        for i = 0, n - 1 do short[i] = p[i] end
        return put(self, ffi.string(short, 4 * n))
      end
      return put(self, ffi.string(p, width * n))
    end
    if kind == 'Char' or kind == 'Byte' then return put(self, ffi.string(p, n)) end
    local list = {}
    for i = 0, n - 1 do
      local v = p[i]
      list[i + 1] = kind == 'Long' and tostring(v):gsub('LL$', '') or element_text(kind, v)
    end
    put(self, table.concat(list, ' '))
    put(self, '\n')
  end
  -- A text as a cursor wants a file
  local Bytes = {}
  Bytes.__index = Bytes
  function Bytes:read(to, n, at)
    if at + n > self.size then return nil, 'the file ends' end
    ffi.copy(to, ffi.cast('const char *', self.bytes) + at, n)
    return true
  end
  function Bytes:text(n, at) return self.bytes:sub(at + 1, at + n) end

  -- run f with a cursor at the place that is read
  local function reading(self, f)
    flush(self)
    local c = cursor.new(setmetatable({bytes = self.text, size = #self.text}, Bytes), not self.is_binary, self.long_size)
    c.at = self.at - 1
    local ok, v = pcall(f, c)
    self.at = c.at + 1
    if ok then return v end
    if type(v) == 'table' and v.why then
      self.failed = true
      if self.is_quiet then return nil end
      raise('torch7.File', "%s: at byte %.0f, %s", self.path and ("'" .. self.path .. "'") or 'a file in memory', v.at, v.why)
    end
    error(v, 0)
  end
  for kind, dtype in pairs(core.dtypes) do
    local one = ffi.new(ctypes[kind] .. '[1]')
    File['write' .. kind] = function(self, v)
      if is_storage(v) then
        local base = core.storage_base(v)
        if base:numel() > 0 then put_elements(self, kind, base:data_ptr(), base:numel()) end
        return v:size()
      end
      one[0] = v
      put_elements(self, kind, one, 1)
    end
    File['read' .. kind] = function(self, n)
      if is_storage(n) then
        local got = File['read' .. kind](self, n:size())
        n:copy(got)
        return n:size()
      end
      return reading(self, function(c)
        local t = amp.empty({n or 1}, {dtype = kind == 'Half' and 'int16' or dtype, device = 'cpu'})
        if (n or 1) > 0 then c:elements(kind, n or 1, t:data_ptr()) end
        if n == nil then return t[1]:item() end
        return core.wrap_storage(t)
      end)
    end
  end
  function File:writeBool(v) self:writeInt(v and 1 or 0) end
  function File:readBool() return self:readInt() == 1 end
  function File:writeString(s)
    put(self, s)
    return #s
  end
  function File:readString(format)
    flush(self)
    local s
    if format == '*l' then
      if self.at > #self.text then return nil end
      s = self.text:match('^[^\n]*', self.at)
      self.at = self.at + #s + 1
      return s
    end
    s = self.text:sub(self.at)
    self.at = #self.text + 1
    return s
  end

  -- -- Objects --------------------------------------------------------------------------------------------

  local function put_text(self, s)
    self:writeInt(#s)
    put(self, s)
    if not self.is_binary then put(self, '\n') end
  end
  local function key_of(v)
    if is_tensor(v) then return 't' .. tonumber(core.amp_of(v).ptr_.id) end
    if is_storage(v) then
      local e = debug.getfenv(v)
      return e.list and v or 's' .. core.address(e.base)
    end
    return v
  end
  local function put_tensor(self, u)
    local h = core.amp_of(u) -- its storage goes to the CPU as a whole, so that others that share it still do
    local s = core.sizes(h)
    self:writeInt(#s)
    local stride = core.contiguous_strides(s)
    local list = ffi.new('int64_t[?]', math.max(#s, 1))
    for i = 1, #s do list[i - 1] = s[i] end
    put_elements(self, 'Long', list, #s)
    for i = 1, #s do list[i - 1] = h.ptr_.stride[i - 1] end
    put_elements(self, 'Long', list, #s)
    self:writeLong(tonumber(h.ptr_.offset) + 1)
    if #s == 0 then return self:writeInt(NIL) end
    self:writeObject(core.wrap(h):storage())
    return stride
  end
  local function put_storage(self, s)
    local base = core.storage_base(s):to 'cpu'
    self:writeLong(base:numel())
    if base:numel() > 0 then put_elements(self, getmetatable(s).__type.kind, base:data_ptr(), base:numel()) end
  end
  local function method_of(v, name)
    local mt = getmetatable(v)
    return type(mt) == 'table' and (mt['__' .. name] or mt[name])
  end
  local writable = {number = true, string = true, boolean = true, table = true}
  local function can_write(v) return v == nil or writable[type(v)] or is_tensor(v) or is_storage(v) or amp.is_tensor(v) end

  function File:writeObject(v)
    if amp.is_tensor(v) then v = core.wrap(v:detach()) end
    local kind = type(v)
    if v == nil then return self:writeInt(NIL) end
    if kind == 'number' then
      self:writeInt(NUMBER)
      return self:writeDouble(v)
    elseif kind == 'boolean' then
      self:writeInt(BOOLEAN)
      return self:writeBool(v)
    elseif kind == 'string' then
      self:writeInt(STRING)
      return put_text(self, v)
    elseif kind == 'function' then
      require('amp.core.warn').warn 'torch.save writes no functions: what is read back lacks them'
      return self:writeInt(NIL)
    elseif kind ~= 'table' and not is_tensor(v) and not is_storage(v) then
      raise('torch7.save', 'a %s cannot be written', kind)
    end
    local name = torch.typename(v)
    self:writeInt(name and TORCH or TABLE)
    local key = key_of(v)
    if self.refs and self.seen[key] then return self:writeInt(self.seen[key]) end
    self.count = self.count + 1
    if self.refs then
      self.seen[key] = self.count
      self.seen[-self.count] = v -- it must not go while its number stands for it
    end
    self:writeInt(self.count)
    if name then
      put_text(self, 'V ' .. tostring(rawget(getmetatable(v), '__version') or 1))
      put_text(self, name)
      if is_tensor(v) then return put_tensor(self, v) end
      if is_storage(v) then return put_storage(self, v) end
      local write = method_of(v, 'write')
      if write then return write(v, self) end
      local fields = {}
      for k, x in pairs(v) do
        if can_write(x) then fields[k] = x end
      end
      return self:writeObject(fields)
    end
    local n = 0
    for _, x in pairs(v) do
      if can_write(x) then n = n + 1 end
    end
    self:writeInt(n)
    for k, x in pairs(v) do
      if can_write(x) then
        self:writeObject(k)
        self:writeObject(x)
      end
    end
  end

  local function get_text(self)
    local n = self:readInt()
    return reading(self, function(c) return c:chars(n) end)
  end
  local function get_tensor(self, t)
    local n = self:readInt()
    if n < 0 or n > 8 then raise('torch7.load', 'a tensor of %d dimensions', n) end
    local size, stride = self:readLong(n):totable(), self:readLong(n):totable()
    local offset = self:readLong()
    local base = self:readObject()
    if base == nil or n == 0 then return core.construct(t) end
    local h = core.storage_base(base)
    if h.dtype ~= t.dtype then raise('torch7.load', 'the storage of a %s holds %s', t.name, h.dtype) end
    return core.wrap(h:as_strided(size, stride, offset - 1))
  end
  local function get_storage(self, t)
    local n = self:readLong()
    return reading(self, function(c)
      c:room_for(t.kind, n)
      local h = amp.empty({n}, {dtype = t.dtype, device = 'cpu'})
      if n > 0 then c:elements(t.kind, n, h:data_ptr()) end
      if t.name == 'torch.LongStorage' then return core.long_storage(n > 0 and h:tolist() or {}) end
      return core.wrap_storage(t.device == 'cpu' and h or h:to(t.device))
    end)
  end

  function File:readObject(depth)
    depth = (depth or 0) + 1
    if depth > DEEPEST then raise('torch7.load', 'objects are nested more than %d deep', DEEPEST) end
    local kind = self:readInt()
    if kind == NIL then return nil end
    if kind == NUMBER then return self:readDouble() end
    if kind == STRING then return get_text(self) end
    if kind == BOOLEAN then return self:readBool() end
    if kind == 6 or kind == 7 or kind == 8 then -- functions are passed over
      if kind ~= 6 then
        local index = self:readInt()
        if self.known[index] then return nil end
        self.known[index] = NIL
      end
      get_text(self)
      self:readObject(depth)
      return nil
    end
    if kind ~= TABLE and kind ~= TORCH then raise('torch7.load', 'no type of object has the number %s', tostring(kind)) end
    local index = self:readInt()
    if self.refs and self.known[index] ~= nil then return self.known[index] end
    if kind == TABLE then
      local out = {}
      self.known[index] = out
      local n = self:readInt()
      for _ = 1, n do
        local k = self:readObject(depth)
        local v = self:readObject(depth)
        if k ~= nil and k == k then out[k] = v end
      end
      return out
    end
    local name, version = get_text(self), 0
    if name:match '^V %d+$' then
      version = tonumber(name:match '%d+')
      name = get_text(self)
    end
    local t = core.class_here(core.types, name)
    if t then
      local u = get_tensor(self, t)
      self.known[index] = u
      return u
    end
    t = core.class_here(core.storages, name)
    if t then
      local s = get_storage(self, t)
      self.known[index] = s
      return s
    end
    if not classes.classes[name] and torch.find_class then torch.find_class(name) end
    local make = classes.factory(name)
    if not make then raise('torch7.load', "there is no class '%s': require what declares it before", name) end
    local object = make(self)
    self.known[index] = object
    local read = method_of(object, 'read')
    if read then
      read(object, self, version)
    else
      for k, v in pairs(self:readObject(depth) or {}) do object[k] = v end
    end
    return object
  end

  -- -- torch.save, torch.load ----------------------------------------------------------------------------------

  function torch.save(path, v, mode, referenced)
    mode = mode or 'binary'
    if mode ~= 'binary' and mode ~= 'ascii' then raise('torch7.save', "the mode is 'binary' or 'ascii', got %s", tostring(mode)) end
    local f = torch.MemoryFile 'w'
    f[mode](f)
    if referenced == false then f:referenced(false) end
    f:writeObject(v)
    flush(f)
    local ok, why = require('amp.io.file').replace(path, function(put_bytes) put_bytes(f.text) end)
    if not ok then raise('torch7.save', "cannot write '%s': %s", tostring(path), why) end
  end
  local function guess(text)
    local a, b = text:byte(1, 2)
    return a and a >= 48 and a <= 56 and (b == nil or b == 10 or b == 13)
  end
  function torch.load(path, mode, long_size)
    if mode == 'b32' or mode == 'b64' then mode, long_size = 'binary', mode == 'b32' and 4 or 8 end
    local f = torch.DiskFile(path, 'r')
    if mode == 'ascii' or mode == nil and guess(f.text) then f:ascii() else f:binary() end
    if long_size then f:longSize(long_size) end
    return f:readObject()
  end
  function torch.serialize(v, mode)
    local f = torch.MemoryFile 'w'
    f[mode or 'binary'](f)
    f:writeObject(v)
    flush(f)
    return f.text
  end
  function torch.deserialize(text, mode)
    local f = torch.MemoryFile 'rw'
    f.text = text
    f[mode or 'binary'](f)
    return f:readObject()
  end
end
