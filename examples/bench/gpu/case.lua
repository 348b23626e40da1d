-- One GPU benchmark in a process of its own, so that the peak of memory is its own:
--   luajit case.lua NAME fp32|fp16|bf16 eager|captured [size=N ...] [device=cuda] [seconds=0.15] [reps=5] [warm=0.3]
--   luajit case.lua probe          what the card copies and multiplies
-- --profile: where the time of an eager step goes, instead.
-- NAME: mlp, resnet, gpt2, lstm, cell (cases.lua has their sizes). Prints `ok`, milliseconds a step, MiB and the
-- fastest and slowest run, or `failed` and why, separated by tabs.
local amp = require 'amp'
local here = arg[0]:match '^(.*)/' or '.'
package.path = here .. '/../../../?.lua;' .. package.path
local timing = dofile(here .. '/timing.lua')
local cases = dofile(here .. '/cases.lua')

local o, words = timing.options(arg)
local name, precision, mode = words[1], words[2], words[3] or 'eager'
local device = o.device or 'cuda'
local clock = { device = device, seconds = o.seconds, reps = o.reps, warm = o.warm, whole = mode == 'captured' }
o.seconds, o.reps, o.warm = nil, nil, nil
local profile = o.profile
o.profile = nil

-- Bytes a second of copies (read and written), FLOP/s of 16-bit and of float32 products of square matrices.
local function probe()
  local n = o.n or 8192
  local function rate(work, make)
    local ms = timing.time(make(), clock)
    return work / ms * 1e3
  end
  local count = o.copy or 2 ^ 28
  local copy = rate(count * 8, function()
    local a, b = amp.randn(count, { device = device }), amp.empty(count, { device = device })
    return function() b:copy_(a) end
  end)
  local function product(dtype, size)
    return rate(2 * size ^ 3, function()
      local a, b = amp.randn(size, size, { device = device }):to(dtype), amp.randn(size, size, { device = device }):to(dtype)
      return function() amp.scope(function() amp.mm(a, b) end) end
    end)
  end
  return copy, product('float16', n), product('float32', n / 2)
end

local function run()
  if name == 'probe' then return probe() end
  if not cases[name] or not precision then error('the case is mlp, resnet, gpt2, lstm or cell, then a precision', 0) end
  if device:find '^cuda' and not amp.cuda.is_available() then error(amp.cuda.reason(), 0) end
  amp.manual_seed(1)
  o.precision, o.device, o.captured = precision, device, mode == 'captured'
  local step = cases[name](o)
  if profile then
    for _ = 1, 3 do step() end
    timing.wait(device)
    print((amp.profile(step)))
    os.exit(0)
  end
  local ms, mib, t = timing.time(step, clock)
  return ms, mib, t[1], t[#t]
end

local r = { pcall(run) }
if not r[1] then
  print('failed\t' .. tostring(r[2]):gsub('\n.*', ''):gsub('\t', ' '))
  os.exit(1)
end
for i = 2, #r do r[i] = ('%.6g'):format(r[i]) end
print('ok\t' .. table.concat(r, '\t', 2))
