-- Claim: over the common ops of ops.tsv at four sizes, amp's time is at most PyTorch's (geometric mean), and no op takes
-- more than twice PyTorch's. ops.tsv says each op in Lua and in Python; a leading + means forward and backward.
-- Kinds: m square matrices (8 to 2048), c images N x C x H x W, a attention batch x heads x length x width.
-- Results are freed at once, as Python does it; with COLLECTED=1 in the environment they are left to the collector.
-- The inputs: x, y in (0, 1), s in (-2, 2), r a row of ones, b booleans, l labels, i and j indices, w a kernel. Twin: ops.py.
local amp = require 'amp'
local timing = require 'timing'
local here = arg[0]:match '^(.*)/[^/]*$' or '.'
local pattern = arg[1] or '.'
local collected = os.getenv 'COLLECTED'

local kinds = {
  m = { { 8, 8 }, { 64, 64 }, { 512, 512 }, { 2048, 2048 } },
  c = { { 1, 8, 8, 8 }, { 4, 16, 16, 16 }, { 8, 32, 28, 28 }, { 8, 64, 56, 56 } },
  a = { { 1, 1, 8, 16 }, { 2, 4, 64, 32 }, { 4, 8, 256, 64 }, { 4, 8, 512, 64 } },
}

local function inputs(kind, size, train)
  amp.manual_seed(1)
  local n = kind == 'c' and size[2] or size[#size]
  local e = { amp = amp, n = n, x = amp.rand(size) * 0.9 + 0.05, y = amp.rand(size) * 0.9 + 0.05, s = amp.rand(size) * 4 - 2,
    r = amp.ones(n), l = amp.randint(1, n + 1, { size[1] }), i = amp.randint(1, size[1] + 1, { size[1] }) }
  e.b = e.y:gt(0.5)
  if kind == 'm' then e.j = amp.randint(1, n + 1, size) end
  if kind == 'c' then e.w = amp.randn(n, n, 3, 3) * 0.1 end
  if train then
    for _, k in ipairs(kind == 'm' and { 'x', 'y', 'r' } or kind == 'c' and { 'x', 'w', 'r' } or { 'x', 'y', 's' }) do e[k].requires_grad = true end
  end
  return e
end

for line in io.lines(here .. '/ops.tsv') do
  local name, kind, lua = line:match '^([%w_]+)\t(%w)\t([^\t]+)\t'
  if name and name:find(pattern) then
    local train = lua:sub(1, 1) == '+'
    local code = train and ('local o = %s o:sum():backward()'):format(lua:sub(2)) or (collected or lua:find ':%w+_%(') and 'local _ = ' .. lua
      or ('local o, p = %s o:free() if p then p:free() end'):format(lua)
    for k, size in ipairs(kinds[kind]) do
      local run = assert(loadstring(('return function(m) for _ = 1, m do %s end end'):format(code), name))
      local e = inputs(kind, size, train)
      setfenv(run, e)
      run = run()
      local ok, why = pcall(run, 2)
      if not ok then error(('%s: %s'):format(name, tostring(why)), 0) end
      local began = amp.clock()
      run(1)
      local m = math.max(1, math.min(2000, math.floor(0.01 / math.max(amp.clock() - began, 1e-7))))
      timing.report(name .. '_' .. k, timing.best(function() run(m) end, m, 0.08) * 1e6, 'us')
    end
  end
end
