--- Plain or gzip files, read block by block through zlib.
--
-- zlib is loaded at the first compressed file and not before; a machine without
-- it still reads plain files. A reader hands out exactly the bytes asked for or
-- says why not: the end of a damaged or cut file is an error, never zeros.
local ffi = require 'ffi'
local file = require 'amp.io.file'

ffi.cdef [[
void *amp_gzdopen(int fd, const char *mode) __asm__("gzdopen");
int amp_gzread(void *file, void *to, unsigned n) __asm__("gzread");
int amp_gzclose(void *file) __asm__("gzclose_r");
const char *amp_gzerror(void *file, int *code) __asm__("gzerror");
]]

local M = {}
local Reader = {}
Reader.__index = Reader

local zlib
local function load_zlib()
  if zlib then return zlib end
  for _, name in ipairs {'libz.so.1', 'z', 'libz.1.dylib'} do
    local ok, library = pcall(ffi.load, name)
    if ok then
      zlib = library
      return zlib
    end
  end
  return nil, 'it is compressed, and zlib (libz.so.1) is not on this machine: install zlib1g (Debian), '
    .. 'zlib (others), or decompress the file with gunzip'
end

--- The library zlib, loaded on first use; nil and the reason where there is none.
function M.zlib() return load_zlib() end

--- Open a file, compressed or not.
-- @tparam string path
-- @return a reader with `size` (of the file on disk) and `compressed`, or nil and the reason
function M.open(path)
  local f, why = file.open(path)
  if not f then return nil, why end
  local self = setmetatable({f = f, at = 0, size = f.size, compressed = false}, Reader)
  local head = f.size >= 2 and f:text(2)
  if head ~= '\31\139' then return self end
  local library
  library, why = load_zlib()
  if not library then
    f:close()
    return nil, why
  end
  local gz = library.amp_gzdopen(f.fd, 'rb')
  if gz == nil then
    f:close()
    return nil, 'zlib cannot open it'
  end
  f.fd = nil -- zlib's now
  self.f, self.gz, self.compressed = nil, ffi.gc(gz, library.amp_gzclose), true
  return self
end

--- Read exactly n bytes.
-- @param to pointer to at least n bytes
-- @return true, or nil and the reason
function Reader:read(to, n)
  to = ffi.cast('uint8_t *', to)
  local done = 0
  while done < n do
    local got
    if self.gz then
      got = zlib.amp_gzread(self.gz, to + done, math.min(n - done, 2 ^ 30))
      local code = ffi.new('int[1]')
      local text = ffi.string(zlib.amp_gzerror(self.gz, code))
      if got < 0 or (got == 0 and code[0] ~= 0) then
        return nil, string.format('the gzip data is damaged or cut off (zlib: %s)', (text:gsub('^.*: ', '')))
      end
    else
      got = math.min(n - done, self.size - self.at)
      local ok, why = self.f:read(to + done, got, self.at)
      if not ok then return nil, why end
      self.at = self.at + got
    end
    if got == 0 then return nil, string.format('it ends %d bytes early', n - done) end
    done = done + got
  end
  return true
end

--- Close, after making sure that nothing follows what was read.
-- @return true, or nil and the reason
function Reader:finish()
  local one = ffi.new('uint8_t[1]')
  local more, why = self:read(one, 1)
  self:close()
  if more then return nil, 'there is data after the end it promises' end
  if why:find('^it ends') then return true end
  return nil, why
end

function Reader:close()
  if self.gz then zlib.amp_gzclose(ffi.gc(self.gz, nil)) end
  if self.f then self.f:close() end
  self.gz, self.f = nil, nil
end

return M
