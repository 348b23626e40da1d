--- Finds and loads the library, declares it to the FFI, makes this Lua state's `S`.
-- The library is that which the program is linked with, else it is loaded by absolute path:
-- environment AMP_LIBRARY, else `amp.libamp` on package.cpath, else beside the Lua tree. This
-- module's table, which package.loaded reaches, keeps it loaded. It does not know tensors.
-- @module amp.ffi
local ffi = require 'ffi'

local M = {}

local here = debug.getinfo(1, 'S').source:match('^@(.*)ffi%.lua$') or './'
M.here = here -- the amp directory of the Lua tree, with its slash

local function exists(path)
  local f = io.open(path, 'rb')
  if f then f:close() end
  return f ~= nil
end

local function absolute(path)
  if path:sub(1, 1) == '/' then return path end
  -- dlopen searches the system path for names without a slash
  return './' .. path:gsub('^%./', '')
end

local function find()
  local asked = os.getenv 'AMP_LIBRARY'
  if asked and asked ~= '' then
    if not exists(asked) then error(('amp: AMP_LIBRARY names %s, which is not there'):format(asked), 0) end
    return absolute(asked)
  end
  local path = package.searchpath('amp.libamp', package.cpath)
  if path then return absolute(path) end
  local tried = { here .. 'libamp.so', here .. '../../build/amp/libamp.so' }
  for i = 1, #tried do
    if exists(tried[i]) then return absolute(tried[i]) end
  end
  error(('amp: libamp.so was not found: looked for amp/libamp.so on package.cpath (%s) and at %s; '
    .. 'build it (cmake) or set AMP_LIBRARY to its path'):format(package.cpath, table.concat(tried, ', ')), 0)
end

-- The path of a library that the program itself is linked with: handles of one copy mean nothing to another, so
-- where there is one, it is the one.
local function linked()
  pcall(ffi.cdef, [[const char *amp_cdef(void);
    typedef struct amp_posix_symbol { const char *file; void *base; const char *name; void *address; } amp_posix_symbol;
    int amp_posix_dladdr(const void *address, amp_posix_symbol *symbol) __asm__("dladdr");]])
  local ok, address = pcall(function() return ffi.cast('void *', ffi.C.amp_cdef) end)
  if not ok then return nil end
  local symbol = ffi.new 'amp_posix_symbol'
  if ffi.C.amp_posix_dladdr(address, symbol) == 0 or symbol.file == nil then return nil end
  local path = ffi.string(symbol.file)
  return path:find 'libamp%.so[^/]*$' and path or nil
end

M.path = linked() or find()

-- The library reads it as it is loaded, when it can't say anything.
local isa = os.getenv 'AMP_CPU_ISA'
if isa and isa ~= '' and not (' baseline avx2 avx512 '):find(' ' .. isa .. ' ', 1, true) then
  error(("amp: the environment's AMP_CPU_ISA is '%s'; baseline, avx2 and avx512 are known"):format(isa), 0)
end

-- libgomp reads its settings when it is loaded. By default its threads spin for milliseconds at
-- barriers, which on a shared machine starves the thread they wait for (measured beside two busy
-- processes: a training step takes 2.7 times as long); a short spin costs nothing on an idle one.
-- Setting a variable is only safe while nobody can be reading one: where the process has one thread.
local function alone()
  local f = io.open('/proc/self/stat', 'r')
  local text = f and f:read '*a' or ''
  if f then f:close() end
  return text:match('.*%) ' .. ('%S+ '):rep(17) .. '(%d+)') == '1'
end
if not (os.getenv 'GOMP_SPINCOUNT' or os.getenv 'OMP_WAIT_POLICY') and alone() then
  ffi.cdef 'int amp_posix_setenv(const char *name, const char *value, int replace) __asm__("setenv");'
  ffi.C.amp_posix_setenv('GOMP_SPINCOUNT', '1000', 0)
end

local ok, C = pcall(ffi.load, M.path)
if not ok then error(('amp: %s could not be loaded: %s'):format(M.path, tostring(C)), 0) end
M.C = C

-- A second copy of these modules (package.loaded cleared) must not declare twice.
if not pcall(ffi.typeof, 'struct amp_state') then
  ffi.cdef 'const char *amp_cdef(void);'
  local ours, text = pcall(function() return ffi.string(C.amp_cdef()) end)
  if not ours then error(('amp: %s is not amp\'s library (%s)'):format(M.path, text:match 'undefined symbol.*' or text), 0) end
  local declared, err = pcall(ffi.cdef, text)
  if not declared then error(('amp: the declarations in %s are not understood: %s'):format(M.path, err), 0) end
end

-- Of this Lua tree. The library's must be the same: it carries the op table that the wrappers here are made from.
M.VERSION = '0.2.0'
M.ABI = 1
local version, abi = ffi.string(C.amp_version()), C.amp_abi_version()
if version ~= M.VERSION or abi ~= M.ABI or abi ~= tonumber(C.AMP_ABI) then
  error(('amp: the library %s is version %s (ABI %d), but the Lua files in %s are version %s (ABI %d); '
    .. 'two installations are mixed: reinstall amp, or correct package.path, package.cpath or AMP_LIBRARY')
    :format(M.path, version, abi, here, M.VERSION, M.ABI), 0)
end

--- This Lua state's amp_state: grad mode, autocast, seed, counters, last error. It goes when
-- the Lua state does; tensors may go after it.
M.S = C.amp_state_new()
if M.S == nil then error('amp: no memory for a state', 0) end
ffi.gc(M.S, C.amp_state_free)

C.amp_set_plugin_dir(M.path:match('^(.*/)') or './')

M.ref_t = ffi.typeof 'amp_ref'
function M.is_ref(v) return ffi.istype(M.ref_t, v) end
M.NONE = -2 ^ 63 -- an absent attribute, as a Lua number
M.slots = ffi.typeof('amp_slot[' .. tonumber(C.AMP_MAX_SLOT) .. ']')

return M
