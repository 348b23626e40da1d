--- `amp kernel`: a kernel for notebooks, and `amp kernel install`, which tells Jupyter of it.
local json = require 'amp.io.json'
local posix = require 'amp.cli.posix'
local ffi = require 'ffi'

ffi.cdef 'int amp_kernel_mkdir(const char *path, unsigned mode) __asm__("mkdir");'

local usage = [[
usage: amp kernel install [--prefix DIR]   tell Jupyter of amp: for this user, or in DIR/share/jupyter (a virtual environment)
       amp kernel FILE                     a kernel, as Jupyter starts it, with its connection file
]]

local function refuse(...)
  io.stderr:write('amp kernel: ', string.format(...), '\n', usage)
  return 2
end

local function data_folder(prefix)
  if prefix then return prefix .. '/share/jupyter' end
  local given = os.getenv 'JUPYTER_DATA_DIR'
  if given and given ~= '' then return given end
  local home = os.getenv 'HOME' or '.'
  if jit.os == 'OSX' then return home .. '/Library/Jupyter' end
  local xdg = os.getenv 'XDG_DATA_HOME'
  return (xdg and xdg ~= '' and xdg or home .. '/.local/share') .. '/jupyter'
end

-- Where Lua and the library are found, as far as it was said by the environment
local function environment()
  local env = {}
  for _, name in ipairs { 'LUA_PATH', 'LUA_CPATH', 'AMP_LIBRARY', 'AMP_PLUGIN_DIR', 'AMP_LIBZMQ' } do env[name] = os.getenv(name) end
  return env
end

local function install(prefix)
  local arg = rawget(_G, 'arg')
  local folder = data_folder(prefix) .. '/kernels/amp'
  local at = 0
  repeat
    at = folder:find('/', at + 1, true)
    if at ~= 1 then ffi.C.amp_kernel_mkdir(folder:sub(1, (at or #folder + 1) - 1), 493) end
  until not at
  local luajit = arg[-1] or 'luajit'
  local f, why = io.open(folder .. '/kernel.json', 'wb')
  if not f then
    io.stderr:write('amp kernel: ', why, '\n')
    return 1
  end
  f:write(json.encode {
    argv = { not luajit:find '/' and posix.which(luajit) or luajit, posix.absolute(arg[0]), 'kernel', '{connection_file}' },
    display_name = 'Lua (amp)', language = 'lua', interrupt_mode = 'signal', env = environment(),
  }, '\n')
  f:close()
  print(('Jupyter knows amp now (%s): jupyter console --kernel amp'):format(folder))
  if not require('amp.jupyter.zmq').open() then print 'libzmq is not here yet; on Debian: apt-get install libzmq5' end
  return 0
end

--- @param ... arguments
-- @treturn number exit status
return function(...)
  local first, option, value = ...
  if first == 'install' then
    if option == '--user' and select('#', ...) == 2 then option = nil end
    local prefix = option and (option:match '^%-%-prefix=(.+)$' or option == '--prefix' and value)
    if option and not prefix then return refuse("install takes --prefix DIR, got '%s'", option) end
    return install(prefix)
  end
  if not first or select('#', ...) > 1 or first:sub(1, 1) == '-' then return refuse 'install, or a connection file' end
  return require 'amp.jupyter'(first)
end
