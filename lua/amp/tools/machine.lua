--- What a machine offers to amp, as rows of a report. Every question has an answer on every
-- machine: what is not there is a row that says how it is got. Nothing here needs amp's
-- library; what only the library knows is asked if it can be loaded.
-- @module amp.tools.machine
local ffi = require 'ffi'

local M = {}

-- -- Files ----------------------------------------------------------------------------------

local function read(path)
  local f = io.open(path, 'rb')
  if not f then return nil end
  local text = f:read '*a'
  f:close()
  return text
end

local function output(command)
  local p = io.popen(command .. ' 2>/dev/null')
  if not p then return '' end
  local text = p:read '*a'
  p:close()
  return text or ''
end

-- The file from which a library was loaded
local function loaded(name)
  for line in (read '/proc/self/maps' or ''):gmatch '[^\n]+' do
    local path = line:match '%s(/%S*)$'
    if path and path:match('[^/]+$'):sub(1, #name) == name then return path end
  end
end

--- Distribution, as its own file names it.
-- @treturn string id ('debian', 'ubuntu', ...)
-- @treturn string name
function M.distribution()
  local text = read '/etc/os-release' or ''
  local id = ('\n' .. text):match '\nID="?([%w_-]+)' or 'unknown'
  return id, ('\n' .. text):match '\nPRETTY_NAME="?([^"\n]+)' or 'an unknown system'
end

-- -- Rows: {what, state, text, cure}; state: 'ok', 'missing' (works without), 'broken' -------------

local function row(list, what, state, text, cure) list[#list + 1] = { what = what, state = state, text = text, cure = cure } end

local function flags_of(text) return ' ' .. (text:match 'flags%s*:%s*([^\n]+)' or text:match 'Features%s*:%s*([^\n]+)' or '') .. ' ' end

--- Whether the processor has instructions for products of bfloat16. Without them such products convert at the edges: bfloat16
-- then saves memory, and the claim of `amp bench` about its speed has no limit.
-- @tparam ?string text of /proc/cpuinfo
-- @treturn boolean
function M.multiplies_bfloat16(text)
  local flags = flags_of(text or read '/proc/cpuinfo' or '')
  for _, name in ipairs { 'avx512_bf16', 'amx_bf16', 'bf16' } do
    if flags:find(' ' .. name .. ' ', 1, true) then return true end
  end
  return false
end

local function processor(list)
  local text = read '/proc/cpuinfo' or ''
  local model = text:match 'model name%s*:%s*([^\n]+)' or text:match 'Model%s*:%s*([^\n]+)' or ffi.arch
  local cores = select(2, text:gsub('processor%s*:', ''))
  local memory = tonumber((read '/proc/meminfo' or ''):match 'MemTotal:%s*(%d+)')
  local _, system = M.distribution()
  row(list, 'system', 'ok', ('%s, Linux %s'):format(system, (read '/proc/sys/kernel/osrelease' or '?'):match '%S+'))
  row(list, 'processor', 'ok', ('%s, %d core%s%s'):format(model, cores, cores == 1 and '' or 's',
    memory and (', %.1f GiB of memory'):format(memory / 2 ^ 20) or ''))
  local flags = flags_of(text)
  local found = {}
  for name in ([[sse4_2 avx avx2 fma f16c avx_vnni avx512f avx512bw avx512dq avx512vl avx512_vnni avx512_bf16 avx512_fp16 amx_bf16 amx_tile amx_int8
    asimd asimdhp asimddp bf16 sve sve2 i8mm]]):gmatch '%S+' do
    if flags:find(' ' .. name .. ' ', 1, true) then found[#found + 1] = name end
  end
  local wanted = M.multiplies_bfloat16(text)
    and 'bfloat16: large matrix products run faster than in float32 (amp bench bf16_mlp measures it), small networks gain nothing'
    or ('%s: bfloat16 saves memory here, not time'):format(ffi.arch == 'x64' and 'neither avx512_bf16 nor amx_bf16' or 'no bf16')
  row(list, 'instructions', 'ok', (#found > 0 and table.concat(found, ' ') or 'none that matter') .. (wanted and '\n' .. wanted or ''))
end

local function interpreter(list)
  local on = jit.status()
  local gc64 = ffi.abi 'gc64'
  row(list, 'LuaJIT', gc64 and on and 'ok' or 'missing', ('%s, %s, %s, %s'):format(jit.version, jit.arch, gc64 and 'GC64' or 'without GC64',
    on and 'JIT compiler on' or 'JIT compiler off'), not gc64 and 'Lua data is limited to 1-2 GB; a LuaJIT with GC64 has no limit'
    or not on and 'it runs interpreted: small ops are slower' or nil)
end

-- A plug-in of the library
local function plugin(list, core, name, what, without, package)
  local text = ffi.string(core.C.amp_plugin_info(name))
  if text:find 'not in ' then
    row(list, what, 'missing', 'not built in: ' .. without, ('apt install %s, then build amp again'):format(package))
  elseif text:find 'switched off' then
    row(list, what, 'missing', text)
  elseif text:find '^not loaded:' then
    row(list, what, 'missing', text .. '\n' .. without, ('apt install %s; if that brings another version, build amp again'):format(package))
  elseif text:find ' refused: ' then
    row(list, what, 'broken', text, 'build or install amp again')
  else
    local library = name == 'onednn' and loaded 'libdnnl' or name == 'lapack' and (loaded 'libopenblas' or loaded 'liblapack')
    local version, path = text:match '^(.-), (/.*)$'
    row(list, what, 'ok', ('%s%s\n%s'):format(version or text, library and ', ' .. library or '', path or ''))
  end
end

local function library(list)
  local ok, core = pcall(require, 'amp.ffi')
  if not ok then
    local why = tostring(core):gsub('^amp: ', '')
    row(list, 'amp', 'broken', why, 'build or install amp again; AMP_LIBRARY names a library that lies elsewhere')
    return nil
  end
  row(list, 'amp', 'ok', ('%s, ABI %d\nLua files %s\nlibrary   %s'):format(ffi.string(core.C.amp_version()), core.C.amp_abi_version(), core.here, core.path))
  local fits, why = pcall(require, 'amp')
  if not fits then
    row(list, '', 'broken', tostring(why):gsub('^amp: ', ''), 'build or install amp again')
    return nil
  end
  local limit = os.getenv 'AMP_CPU_ISA'
  row(list, 'kernels', 'ok', ('for %s%s'):format(ffi.string(core.C.amp_cpu_isa()), limit and limit ~= '' and ' (AMP_CPU_ISA is set)' or ''))
  local threads = core.C.amp_set_threads(0)
  row(list, 'threads', 'ok', ('%d%s'):format(threads, os.getenv 'OMP_NUM_THREADS' and ' (OMP_NUM_THREADS is set)' or ''))
  plugin(list, core, 'onednn', 'oneDNN', "products and convolutions use amp's own kernels, which are slower", 'libdnnl-dev')
  plugin(list, core, 'lapack', 'LAPACK', "large matrices' factors use amp's own kernels, which are slower", 'libopenblas-dev')
  return core
end

-- -- GPUs ----------------------------------------------------------------------------------------

ffi.cdef [[
int amp_cuda_init(unsigned flags) __asm__("cuInit");
int amp_cuda_driver(int *version) __asm__("cuDriverGetVersion");
int amp_cuda_count(int *n) __asm__("cuDeviceGetCount");
int amp_cuda_name(char *name, int n, int device) __asm__("cuDeviceGetName");
int amp_cuda_memory(size_t *bytes, int device) __asm__("cuDeviceTotalMem_v2");
int amp_cuda_attribute(int *value, int attribute, int device) __asm__("cuDeviceGetAttribute");
int amp_cuda_runtime(int *version) __asm__("cudaRuntimeGetVersion");
size_t amp_cudnn_version(void) __asm__("cudnnGetVersion");
int amp_nccl_version(int *version) __asm__("ncclGetVersion");
int amp_nvrtc_version(int *major, int *minor) __asm__("nvrtcVersion");
]]

local int = ffi.typeof 'int[1]'
local kept = {} -- loaded libraries stay loaded

-- The first of several libraries that can be loaded, by name or in CUDA's usual folders
local function open(names)
  local folders = { '' }
  local home = os.getenv 'CUDA_HOME' or os.getenv 'CUDA_PATH'
  if home then folders[#folders + 1] = home .. '/lib64/' end
  folders[#folders + 1] = '/usr/local/cuda/lib64/'
  for _, folder in ipairs(folders) do
    for _, name in ipairs(names) do
      local ok, lib = pcall(ffi.load, folder .. name)
      if ok then
        kept[#kept + 1] = lib
        return lib, loaded(name:match '^.-%.so') or folder .. name
      end
    end
  end
end

-- A version that a library gives, or nil
local function ask(f)
  local ok, v = pcall(f)
  return ok and v or nil
end

local function driver(list)
  local lib, path = open { 'libcuda.so.1' }
  if not lib then
    row(list, 'CUDA driver', 'missing', 'no libcuda.so.1: no NVIDIA GPU can be used, everything runs on the CPU',
      'Debian: apt install nvidia-driver (contrib and non-free); Ubuntu: ubuntu-drivers install')
    return
  end
  local v = int()
  ask(function() return lib.amp_cuda_driver(v) end)
  local module = (read '/proc/driver/nvidia/version' or ''):match 'Kernel Module[^\n]-%s(%d+%.[%d.]+)'
  local text = ('CUDA %d.%d%s, %s'):format(math.floor(v[0] / 1000), math.floor(v[0] % 1000 / 10), module and ', driver ' .. module or '', path)
  local rc = ask(function() return lib.amp_cuda_init(0) end)
  if rc ~= 0 then
    return row(list, 'CUDA driver', 'missing', ('%s\nit finds no GPU (cuInit gives %s)'):format(text, tostring(rc)),
      'is there a card, is the kernel module loaded (nvidia-smi), may this user open /dev/nvidia*?')
  end
  row(list, 'CUDA driver', 'ok', text)
  local n = int()
  ask(function() return lib.amp_cuda_count(n) end)
  for i = 0, n[0] - 1 do
    local name, bytes, major, minor = ffi.new 'char[128]', ffi.new 'size_t[1]', int(), int()
    ask(function()
      lib.amp_cuda_name(name, 128, i)
      lib.amp_cuda_memory(bytes, i)
      lib.amp_cuda_attribute(major, 75, i)
      lib.amp_cuda_attribute(minor, 76, i)
    end)
    row(list, 'cuda:' .. i + 1, 'ok', ('%s, compute capability %d.%d, %.1f GiB'):format(ffi.string(name), major[0], minor[0], tonumber(bytes[0]) / 2 ^ 30))
  end
end

local function toolkit(list)
  local nvcc = output('command -v nvcc'):match '%S+'
  for _, folder in ipairs { os.getenv 'CUDA_HOME' or '', os.getenv 'CUDA_PATH' or '', '/usr/local/cuda' } do
    if not nvcc and folder ~= '' and read(folder .. '/bin/nvcc') then nvcc = folder .. '/bin/nvcc' end
  end
  local version = nvcc and output("'" .. nvcc .. "' --version"):match 'release ([%d.]+)'
  local lib, path = open { 'libcudart.so.13', 'libcudart.so.12', 'libcudart.so.11.0', 'libcudart.so' }
  local v = int()
  if lib then ask(function() return lib.amp_cuda_runtime(v) end) end
  local runtime = lib and ('runtime %d.%d, %s'):format(math.floor(v[0] / 1000), math.floor(v[0] % 1000 / 10), path)
  if nvcc then
    row(list, 'CUDA toolkit', 'ok', ('%s, %s%s'):format(version or 'version unknown', nvcc, runtime and '\n' .. runtime or ''))
  else
    row(list, 'CUDA toolkit', 'missing', (runtime and runtime .. '\n' or '') .. 'no nvcc: the CUDA part of amp can not be built here',
      'apt install nvidia-cuda-toolkit (Debian: non-free; Ubuntu: multiverse)')
  end
end

local function cudnn(list)
  local lib, path = open { 'libcudnn.so.9', 'libcudnn.so.8', 'libcudnn.so' }
  local v = lib and ask(function() return tonumber(lib.amp_cudnn_version()) end)
  if not v then
    return row(list, 'cuDNN', 'missing', 'not found: convolutions on a GPU need it', 'apt install nvidia-cudnn (Debian: contrib; Ubuntu: multiverse)')
  end
  local major = v >= 90000 and math.floor(v / 10000) or math.floor(v / 1000)
  local minor = v >= 90000 and math.floor(v % 10000 / 100) or math.floor(v % 1000 / 100)
  row(list, 'cuDNN', 'ok', ('%d.%d.%d, %s'):format(major, minor, v % 100, path))
end

local function nvrtc(list)
  local lib, path = open { 'libnvrtc.so.13', 'libnvrtc.so.12', 'libnvrtc.so' }
  local major, minor = int(), int()
  local rc = lib and ask(function() return lib.amp_nvrtc_version(major, minor) end)
  if rc ~= 0 then
    return row(list, 'NVRTC', 'missing', 'not found: elementwise ops of a graph on a GPU run one by one',
      'install NVRTC, a part of the CUDA toolkit, or name its folder in LD_LIBRARY_PATH')
  end
  row(list, 'NVRTC', 'ok', ('%d.%d, %s; compiled kernels are kept in %s/amp'):format(major[0], minor[0], path,
    os.getenv 'XDG_CACHE_HOME' or (os.getenv 'HOME' or '~') .. '/.cache'))
end

local function nccl(list)
  local lib, path = open { 'libnccl.so.2', 'libnccl.so' }
  local v = int()
  local rc = lib and ask(function() return lib.amp_nccl_version(v) end)
  if rc ~= 0 then
    return row(list, 'NCCL', 'missing', "not found: processes with a GPU each can't exchange gradients",
      "apt install libnccl2 libnccl-dev (NVIDIA's CUDA repository)")
  end
  local n = v[0]
  local text = n >= 10000 and ('%d.%d.%d'):format(n / 10000, n % 10000 / 100, n % 100) or ('%d.%d.%d'):format(n / 1000, n % 1000 / 100, n % 100)
  row(list, 'NCCL', 'ok', text .. ', ' .. path)
end

--- What makes amp's CUDA part usable.
-- @tparam string why the library's reason
-- @tparam table list rows so far, of the driver and the toolkit
-- @treturn ?string
function M.cuda_cure(why, list)
  if not why:find 'not in ' then return nil end
  local state = {}
  for _, r in ipairs(list) do state[r.what] = r.state end
  local card = state['CUDA driver'] == 'ok'
  if state['CUDA toolkit'] == 'ok' then
    if card then return 'the toolkit is here: build amp again (sh examples/quickstart.sh, or cmake with its target amp_cuda)' end
    return 'the toolkit is here, but no usable GPU (see CUDA driver): built here, this part could only run on another machine'
  end
  return card and 'install the CUDA toolkit (see above), then build amp again' or 'nothing to be done without a GPU: everything runs on the CPU'
end

local function cuda_plugin(list, core)
  if not core then return end
  local n = core.C.amp_device_available(core.C.AMP_CUDA)
  local why = core.C.amp_device_reason(core.C.AMP_CUDA)
  why = why ~= nil and ffi.string(why) or ''
  if n > 0 then return row(list, "amp's CUDA part", 'ok', why) end
  local broken = why:find ' refused: it was built' ~= nil
  row(list, "amp's CUDA part", broken and 'broken' or 'missing', why, M.cuda_cure(why, list))
end

--- The report.
-- @treturn table list of {what, state, text, cure}
function M.report()
  local list = {}
  local core = library(list)
  interpreter(list)
  processor(list)
  driver(list)
  toolkit(list)
  cudnn(list)
  nvrtc(list)
  nccl(list)
  cuda_plugin(list, core)
  return list
end

return M
