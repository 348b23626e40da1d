--- dtypes and devices as users write them, and the numbers the library knows.
-- @module amp.types
local core = require 'amp.ffi'
local ffi = require 'ffi'
local err = require 'amp.error'
local util = require 'amp.util'
local C, S = core.C, core.S

local M = {}

-- -- dtypes --------------------------------------------------------------------

M.dtype_code = {} -- name or alias -> number
M.dtype_name = {} -- number -> name
M.dtype_names = {} -- list of names, in the library's order

for i = 0, tonumber(C.AMP_DTYPE_COUNT) - 1 do
  local name = ffi.string(C.amp_dtype_name(i))
  M.dtype_code[name] = i
  M.dtype_name[i] = name
  M.dtype_names[i + 1] = name
end

local aliases = { double = 'float64', float = 'float32', half = 'float16', long = 'int64', int = 'int32',
  short = 'int16', char = 'int8', byte = 'uint8' }
for alias, name in pairs(aliases) do M.dtype_code[alias] = M.dtype_code[name] end

--- ", did you mean 'float16'?" for a word that is no dtype.
function M.dtype_hint(word)
  local meant = require('amp.core.habits').dtypes[word]
  return meant and (", did you mean '%s'?"):format(meant) or util.hint(word, util.keys(M.dtype_code))
end

--- The same for a device.
function M.device_hint(word)
  local meant = type(word) == 'string' and (require('amp.core.habits').devices[word] or word:lower():find '^gpu' and 'cuda')
  return meant and (", did you mean '%s'?"):format(meant) or util.hint(word, { 'cpu', 'cuda' })
end

--- Number of a dtype; an error names the closest dtype.
-- @tparam string dtype
-- @tparam ?string op for the message
-- @treturn number code
function M.dtype(dtype, op)
  local code = M.dtype_code[dtype]
  if code then return code end
  local hint = type(dtype) == 'string' and M.dtype_hint(dtype) or ''
  err.throw_code('dtype', op, '%s is no dtype%s (there are %s)', util.show(dtype), hint,
    table.concat(M.dtype_names, ', '))
end

--- Whether the code is that of a float dtype that ops compute in.
function M.is_float(code) return code <= 3 end

--- Whether the code is that of an 8-bit float, which is for storage.
function M.is_float8(code) return code >= 10 end

--- Whether a tensor of the dtype may have a history: any float.
function M.has_gradient(code) return code <= 3 or code >= 10 end

-- -- devices: type * 256 + index from 0 -------------------------------------------

local names = { [0] = 'cpu', [1] = 'cuda' }

--- 'cpu' or 'cuda:1' of a tensor's two fields.
function M.device_string(device, index)
  if device == 0 then return 'cpu' end
  return names[device] .. ':' .. (index + 1)
end

-- Only strings that parse; filled as they come.
M.device_code = setmetatable({}, {
  __index = function(t, k)
    if type(k) ~= 'string' then return nil end
    local kind, index = k:match '^(%a+):?(%d*)$'
    if kind == nil or (k:sub(-1) == ':') then return nil end
    local code = kind == 'cpu' and 0 or kind == 'cuda' and 256 or nil
    if code == nil then return nil end
    if index ~= '' then
      index = tonumber(index)
      if index < 1 or index > 128 or code == 0 and index ~= 1 then return nil end
      code = code + index - 1
    end
    t[k] = code
    return code
  end,
})

--- Which card 'cuda' is from now on: a rank's own, among several ranks of a machine.
-- @tparam string device 'cuda:2'
function M.gpu_of_rank(device) M.device_code.cuda = M.device_code[device] end

--- Number of a device that is there.
-- @tparam string device 'cpu', 'cuda', 'cuda:1'
-- @tparam ?string op for the message
-- @treturn number code
function M.device(device, op)
  local code = M.device_code[device]
  if code == nil then
    err.throw_code('device', op, "%s is no device: 'cpu', 'cuda' or 'cuda:1' (counted from 1)%s", util.show(device), M.device_hint(device))
  end
  local kind, index = math.floor(code / 256), code % 256
  local count = C.amp_device_available(kind)
  if index >= count then
    if count == 0 then
      local why = C.amp_device_reason(kind)
      err.throw_code('device', op, "device '%s' is not there: %s", device,
        why ~= nil and ffi.string(why) or 'no such device on this machine')
    end
    err.throw_code('device', op, "device '%s' is not there: this machine has %d", device, count)
  end
  return code
end

--- Index (from 0) of a GPU that is there.
-- @tparam ?string|number device default the first; a number counts from 1
-- @tparam ?string op for the message
function M.gpu(device, op)
  if type(device) == 'number' then device = 'cuda:' .. device end
  local code = M.device(device or 'cuda', op)
  if code < 256 then err.throw_code('device', op, "a GPU is expected, got '%s'", device) end
  return code % 256
end

--- Default dtype's and device's numbers.
function M.default_dtype() return S.default_dtype end
function M.default_device() return S.default_device * 256 + S.default_device_index end

return M
