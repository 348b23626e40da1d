--- What specs share: fixtures, comparison with one table of tolerances, errors
-- with texts, child processes, own finite differences. Nothing here trusts the
-- part of amp that it helps to test: values are read through C, one by one.
local ffi = require 'ffi'
local amp = require 'amp'
local core = require 'amp.ffi'
local C, S = core.C, core.S

--- device: where the walk over the ops is taken (spec/ops/op_walk.lua), nil for the CPU.
local H = { root = '.', build = 'build', device = os.getenv 'AMP_SPEC_DEVICE' }

H.floats = { 'float64', 'float32', 'float16', 'bfloat16' }
H.integers = { 'int64', 'int32', 'int16', 'int8', 'uint8' }
H.is_float = { float64 = true, float32 = true, float16 = true, bfloat16 = true }

-- Tolerances by dtype: |got - want| <= atol + rtol * |want|, times the case's factor.
H.tolerance = {
  float64 = { rtol = 1e-9, atol = 1e-11 },
  float32 = { rtol = 1e-5, atol = 4e-6 },
  float16 = { rtol = 2e-3, atol = 1e-3 },
  bfloat16 = { rtol = 1.6e-2, atol = 8e-3 },
}
H.exact = { rtol = 0, atol = 0 }

-- -- Fixtures ----------------------------------------------------------------

--- Cases of a fixture file, one table a line.
function H.fixture(name)
  local list = {}
  for line in io.lines(H.root .. '/spec/fixtures/' .. name) do
    list[#list + 1] = assert(loadstring('return ' .. line, '=' .. name))()
  end
  return list
end

--- name -> class of the policy list, and of the cases by hand (spec/ops/op_samples.lua)
function H.policy_list()
  local t, order = {}, {}
  for line in io.lines(H.root .. '/spec/fixtures/autocast_policy.tsv') do
    local op, class = line:match('^([%w_]+)\t([%w_]+)')
    if op and op ~= 'op' then
      t[op] = class
      order[#order + 1] = op
    end
  end
  for _, family in ipairs(require('spec.ops.op_samples').families) do
    for op, entry in pairs(require('spec.ops.samples.' .. family).by_hand or {}) do
      if entry.policy then
        t[op] = entry.policy
        order[#order + 1] = op
      end
    end
  end
  return t, order
end

local sizes = ffi.new('int64_t[8]')
local function numel(shape)
  local n = 1
  for i = 1, #shape do n = n * shape[i] end
  return n
end
H.numel = numel

--- A tensor from a flat list, through C alone.
-- @tparam table values flat, C order
-- @tparam table shape
-- @tparam ?string dtype default float32
-- @tparam ?string device default H.device
function H.make(values, shape, dtype, device)
  local n = numel(shape)
  local data = ffi.new('double[?]', math.max(n, 1))
  for i = 1, n do data[i - 1] = values[i] end
  for i = 1, #shape do sizes[i - 1] = shape[i] end
  local out = core.ref_t()
  local code = C.amp_from_double(S, out, data, #shape, sizes, H.dtype_id(dtype or 'float32'))
  if code ~= 0 then error(ffi.string(S.err.message), 2) end
  device = device or H.device
  return (device and device ~= 'cpu') and out:to(device) or out
end

local ids = {}
function H.dtype_id(name)
  if not next(ids) then
    for i = 0, tonumber(C.AMP_DTYPE_COUNT) - 1 do ids[ffi.string(C.amp_dtype_name(i))] = i end
  end
  return ids[name] or error('no dtype ' .. tostring(name))
end

function H.shape(t)
  local s = {}
  for i = 1, t.ptr_.ndim do s[i] = tonumber(t.ptr_.size[i - 1]) end
  return s
end

--- Values in C order as a flat list, with field n.
function H.values(t)
  local n = tonumber(t.ptr_.numel)
  local data = ffi.new('double[?]', math.max(n, 1))
  if C.amp_read(S, t, data, n) ~= 0 then error(ffi.string(S.err.message), 2) end
  local list = { n = n }
  for i = 1, n do list[i] = data[i - 1] end
  return list
end

function H.version(t) return tonumber(C.amp_tensor_version(t)) end

function H.dtype(t) return ffi.string(C.amp_dtype_name(t.ptr_.dtype)) end

--- A fixture's tensor; floats in `dtype` if given, on H.device unless one is given.
function H.tensor(f, dtype, device)
  return H.make(f.v, f.s, (dtype and f.d == 'float64') and dtype or f.d, device)
end

-- -- Comparison --------------------------------------------------------------

local function same(a, b, tol, factor)
  if a ~= a or b ~= b then return a ~= a and b ~= b end
  if a == b then return true end
  if math.abs(b) == math.huge or math.abs(a) == math.huge then return false end
  return math.abs(a - b) <= (tol.atol + tol.rtol * math.abs(b)) * factor
end

--- nil, or what is wrong: values of tensor t against a flat list.
function H.difference(t, values, shape, tol, factor)
  local s = H.shape(t)
  if table.concat(s, 'x') ~= table.concat(shape, 'x') then
    return ('shape is %s, not %s'):format(table.concat(s, 'x'), table.concat(shape, 'x'))
  end
  local v = H.values(t)
  for i = 1, v.n do
    if not same(v[i], values[i], tol, factor or 1) then
      return ('element %d of %s is %.17g, not %.17g'):format(i, table.concat(s, 'x'), v[i], values[i])
    end
  end
end

--- Assert closeness of a tensor to a fixture, a tensor, or a flat list.
-- @tparam tensor t
-- @param want {s=, v=}, a tensor, or a flat list of t's size
-- @tparam ?table|number tol a table, or a factor on t's dtype's tolerance
-- @tparam ?string what words for the message
function H.close(t, want, tol, what)
  local factor = 1
  if type(tol) == 'number' then tol, factor = nil, tol end
  local dt = H.dtype(t)
  tol = tol or H.tolerance[dt] or H.exact
  local values, shape
  if type(want) == 'cdata' then values, shape = H.values(want), H.shape(want)
  elseif type(want) == 'number' then values, shape = { want }, H.shape(t)
  elseif want.v then values, shape = want.v, want.s
  else values, shape = want, H.shape(t) end
  if numel(shape) ~= #values then error(('want %d values, got %d'):format(numel(shape), #values), 2) end
  local wrong = H.difference(t, values, shape, tol, factor)
  if wrong then error((what and what .. ': ' or '') .. wrong .. ' (' .. dt .. ')', 2) end
end

--- Same dtype, shape and bits.
function H.same(a, b, what)
  what = what and what .. ': ' or ''
  if H.dtype(a) ~= H.dtype(b) then error(('%sdtype %s against %s'):format(what, H.dtype(a), H.dtype(b)), 2) end
  local wrong = H.difference(a, H.values(b), H.shape(b), H.exact)
  if wrong then error(what .. wrong, 2) end
end

-- -- Errors ------------------------------------------------------------------

local elsewhere = H.device ~= nil and H.device ~= 'cpu'

-- What is wrong with values, a device may find later than the call, or not at all. Whether fn's error is
-- of that kind shows on the CPU, which fn's tensors come to when it runs once more.
local function on_the_cpu(fn)
  local device, default = H.device, amp.get_default_device()
  H.device = nil
  amp.set_default_device 'cpu'
  local ok, err = pcall(fn)
  H.device = device
  amp.set_default_device(default)
  return ok, err, not ok and type(err) == 'table' and (err.code == 'value' or err.code == 'index')
end

--- Call fn; it must raise an error whose text has every given piece (plain text).
-- @return the error
function H.fails(fn, ...)
  local ok, err = pcall(fn)
  if ok and elsewhere then ok, err = pcall(amp.cuda.synchronize, H.device) end
  if elsewhere then
    local fine, why, by_value = on_the_cpu(fn)
    if by_value then ok, err = fine, why end
  end
  if ok then error('no error was raised; expected one with "' .. table.concat({ ... }, '", "') .. '"', 2) end
  local text = tostring(err)
  for _, piece in ipairs { ... } do
    if not text:lower():find(piece:lower(), 1, true) then error(('the error lacks "%s": %s'):format(piece, text), 2) end
  end
  return err
end

--- As `fails`, and the error names this file at the line of the call in fn.
function H.fails_here(fn, ...)
  local err = H.fails(fn, ...)
  local info = debug.getinfo(fn, 'S')
  local line = tonumber(tostring(err):match('_spec%.lua:(%d+)'))
  if not line then error('the error names no line of the spec: ' .. tostring(err), 2) end
  if line < info.linedefined or line > info.lastlinedefined then
    error(('the error names line %d, the call is between %d and %d: %s'):format(line, info.linedefined, info.lastlinedefined, tostring(err)), 2)
  end
  return err
end

--- Run fn with amp.warn collected; gives the list of warnings and fn's results.
function H.warnings(fn)
  local list = {}
  local before = rawget(amp, 'warn')
  amp.warn = function(m) list[#list + 1] = tostring(m) end
  local result = { pcall(fn) }
  amp.warn = before
  if not result[1] then error(result[2], 0) end
  return list, unpack(result, 2)
end

-- -- Memory ------------------------------------------------------------------

--- Live bytes after everything unreachable is gone.
function H.live()
  jit.flush() -- traces hold what they were compiled for
  collectgarbage()
  collectgarbage()
  return tonumber(C.amp_memory(C.AMP_CPU, 0).live)
end

-- -- Files and processes -----------------------------------------------------

local scratch
--- A path in a folder of this process's own, removed at exit.
function H.tmp(name)
  if not scratch then
    local f = io.popen 'mktemp -d "${TMPDIR:-/tmp}/amp-spec.XXXXXX"'
    scratch = f:read '*l'
    f:close()
    H.guard = newproxy(true)
    getmetatable(H.guard).__gc = function() os.execute("rm -rf '" .. scratch .. "'") end
  end
  return scratch .. '/' .. name
end

function H.write(path, bytes)
  local f = assert(io.open(path, 'wb'))
  f:write(bytes)
  f:close()
end

function H.read(path)
  local f = assert(io.open(path, 'rb'))
  local s = f:read('*a')
  f:close()
  return s
end

--- A word of a shell command.
function H.quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

local plain = {}
--- The absolute path of a folder, fit for any text: one with a quote in it goes by a link.
local function absolute(p)
  if p:sub(1, 1) ~= '/' then
    local f = io.popen('pwd')
    local cwd = f:read('*l')
    f:close()
    p = p == '.' and cwd or cwd .. '/' .. p
  end
  if not p:find "['\"\\]" then return p end
  if not plain[p] then
    plain.n = (plain.n or 0) + 1
    plain[p] = H.tmp('folder' .. plain.n)
    os.execute(('ln -s %s %s'):format(H.quote(p), H.quote(plain[p])))
  end
  return plain[p]
end
H.absolute = absolute

--- Run Lua text in a luajit of its own; gives its output and exit status.
-- The child has amp, the spec helper H and the given options of luajit.
function H.child(code, options, env)
  local path = H.tmp('child.lua')
  local root, build = absolute(H.root), absolute(H.build)
  H.write(path, ([[
package.path = '%s/lua/?.lua;%s/lua/?/init.lua;%s/?.lua;' .. package.path
package.cpath = '%s/?.so;' .. package.cpath
local amp = require 'amp'
]]):format(root, root, root, build) .. code)
  local f = io.popen(("cd '%s' && %s luajit %s '%s' 2>&1; echo \"status $?\""):format(root, env or '', options or '', path))
  local out = f:read('*a')
  f:close()
  local status = tonumber(out:match('status (%d+)\n$'))
  if not ffi.abi 'gc64' then out = out:gsub('amp: warning: this LuaJIT is built without GC64[^\n]*\n', '') end -- see unit/runtimes_spec.lua
  return (out:gsub('status %d+\n$', '')), status
end

function H.sh(command)
  local f = io.popen(command .. ' 2>&1; echo "status $?"')
  local out = f:read('*a')
  f:close()
  return (out:gsub('status %d+\n$', '')), tonumber(out:match('status (%d+)\n$'))
end

-- -- Finite differences ------------------------------------------------------

--- Derivative of sum(w * fn(inputs)) in input k by central differences, flat list.
-- @tparam function fn of the inputs, giving a list of float64 tensors
-- @tparam table inputs float64 tensors (others are passed along)
-- @tparam number k which one
-- @tparam table w flat weights, one list a result
function H.numeric_grad(fn, inputs, k, w, eps)
  eps = eps or 1e-5
  local x = inputs[k]
  local base, shape = H.values(x), H.shape(x)
  local g = {}
  local function value()
    local total = 0
    local out = fn(inputs)
    for o = 1, #out do
      local v = H.values(out[o])
      for i = 1, v.n do total = total + w[o][i] * v[i] end
    end
    return total
  end
  for i = 1, base.n do
    local keep = base[i]
    base[i] = keep + eps
    inputs[k] = H.make(base, shape, 'float64')
    local up = value()
    base[i] = keep - eps
    inputs[k] = H.make(base, shape, 'float64')
    g[i] = (up - value()) / (2 * eps)
    base[i] = keep
  end
  inputs[k] = x
  return g
end

--- Weights that are all different, for n results of the given sizes.
function H.weights(out)
  local w = {}
  for o = 1, #out do
    w[o] = {}
    for i = 1, tonumber(out[o].ptr_.numel) do w[o][i] = 0.3 + ((i * 7 + o * 3) % 11) / 10 end
  end
  return w
end

--- Deterministic values in (-1, 1), all different, exact in 16 bits where few.
function H.ramp(n, scale)
  local t = {}
  for i = 1, n do t[i] = ((((i * 37) % 101) * 2 - 101) / 128) * (scale or 1) end
  return t
end

--- A tensor of such values.
function H.sample(shape, dtype, scale)
  return H.make(H.ramp(numel(shape), scale), shape, dtype)
end

return H
