--- The mock GPU (spec/c/plugin_mock.c) loaded as 'cuda', and its counts as plain numbers.
local ffi = require 'ffi'
local core = require 'amp.ffi'
local amp = require 'amp'

ffi.cdef [[
int64_t amp_mock_reads(void);
int64_t amp_mock_launches(void);
int64_t amp_mock_pending(void);
void amp_mock_fail(int64_t bytes);
]]
local dir = os.getenv 'AMP_MOCK'
core.C.amp_set_plugin_dir(dir)
assert(amp.cuda.is_available(), 'the mock GPU is not in ' .. tostring(dir))
local lib = ffi.load(dir .. '/libamp_cuda.so')

local M = {}

--- Copies to the host so far.
function M.reads() return tonumber(lib.amp_mock_reads()) end
function M.launches() return tonumber(lib.amp_mock_launches()) end
--- Launches that have not run yet.
function M.pending() return tonumber(lib.amp_mock_pending()) end
--- Allocations of this many bytes or more fail; 0: none.
function M.fail(bytes) lib.amp_mock_fail(bytes) end

--- Run one case and print its line for device_spec.lua.
function M.case(name, f)
  local ok, e = xpcall(f, function(e) return tostring(e) .. '\n' .. debug.traceback() end)
  print(ok and 'ok ' .. name or ('wrong %s: %s'):format(name, (e:gsub('\n', ' | '))))
  io.flush()
end

--- Copies to the host and counted waits of f, and its result.
function M.cost(f)
  local reads, waits = M.reads(), amp.counters().host_waits
  local result = f()
  return M.reads() - reads, amp.counters().host_waits - waits, result
end

return M
