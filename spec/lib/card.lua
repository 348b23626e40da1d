--- What scripts for a real card share. Loading it ends the script where there is no GPU.
local amp = require 'amp'

if not amp.cuda.is_available() then
  print('no GPU: ' .. amp.cuda.reason())
  os.exit(1)
end
amp.set_default_device('cpu')

local M = {}

--- The largest difference over the largest value, in a dtype.
function M.apart(a, b, dtype)
  a, b = a:cpu():to(dtype), b:cpu():to(dtype)
  if a:numel() == 0 then return 0 end
  local d = (a - b):abs():max():item()
  return d == d and d / math.max(b:abs():max():item(), 1e-30) or 1 / 0
end

--- Milliseconds of a call: of as many as take `seconds`, or of `most`.
function M.milliseconds(f, seconds, most)
  f()
  amp.cuda.synchronize()
  local n, t = 1, 0
  while t < seconds and n < most do
    n = n * 4
    local began = amp.clock()
    for _ = 1, n do f() end
    amp.cuda.synchronize()
    t = amp.clock() - began
  end
  return 1e3 * t / n
end

return M
