-- The main kernels from 4 KB to 512 MB, GB/s of what an op has to move beside the card's copies, and PyTorch's:
--   luajit examples/bench/kernels/ladder.lua [only=TEXT,TEXT] [sizes=4K,64K,1M,16M,128M,512M] [dtype=float16]
--     [out=ladder.tsv] [python=python3|none] [device=cuda] [seconds=0.04] [reps=3] [warm=0.04] [--eager]
-- A size is that of the main tensor (of the parameters in float32 for an optimizer). Calls below 8 MB are captured ten
-- at a time on both sides, so that a kernel's time counts and not its launch (--eager: not). Small sizes live in the
-- card's cache and may pass the speed of its copies.
local amp = require 'amp'
local here = arg[0]:match '^(.*)/' or '.'
local timing = dofile(here .. '/../gpu/timing.lua')
local peers = dofile(here .. '/../gpu/peer.lua')
local cases = dofile(here .. '/cases.lua')

local o = timing.options(arg)
local device, dtype = o.device or 'cuda', o.dtype or 'float16'
local w = dtype == 'float32' and 4 or 2
local clock = { device = device, seconds = o.seconds or 0.04, reps = o.reps or 3, warm = o.warm or 0.04 }
local TEN, SMALL = 10, 8 * 2 ^ 20

if device:find '^cuda' and not amp.cuda.is_available() then
  io.stderr:write('no GPU: ', amp.cuda.reason(), '\n')
  os.exit(1)
end

local function chosen(name)
  if not o.only then return true end
  for text in tostring(o.only):gmatch '[^,]+' do
    if name:find(text, 1, true) then return true end
  end
end

local sizes = {}
for text in tostring(o.sizes or '4K,64K,1M,16M,128M,512M'):gmatch '[^,]+' do
  local n, unit = text:match '^(%d+)([KM]?)$'
  sizes[#sizes + 1] = { text = text, bytes = tonumber(n) * (unit == 'K' and 2 ^ 10 or unit == 'M' and 2 ^ 20 or 1) }
end

local optimizers = { sgd = 4, ['sgd momentum'] = 4, adam = 4, adamw = 4, ['unscale and check'] = 4, ['clip_grad_norm'] = 4 }
local function elements(c, bytes) return bytes / (optimizers[c.name] or w) end

local function ours(c, n, many)
  local ok, ms = pcall(function()
    amp.manual_seed(1)
    local fn = c.make(n, dtype, device)
    if many == 1 then return (timing.time(fn, clock)) end
    fn() -- what an op makes once it makes now
    local run = amp.capture(function() for _ = 1, many do fn() end end)
    return timing.time(run, clock) / many
  end)
  collectgarbage()
  collectgarbage()
  amp.cuda.empty_cache()
  if ok then return ms end
  return nil, (tostring(ms):gsub('\n.*', ''))
end

local peer, why = peers.start(o.python or 'python3', here .. '/ladder.py')
local gpu = device:find '^cuda' and amp.cuda.get_device_properties(device).name or device
print(('card: %s; amp %s; PyTorch %s'):format(gpu, amp.version(), peer and peer.about or 'none (' .. tostring(why) .. ')'))
print(('GB/s of %s, ours / theirs; the last column: their time over ours at the largest size'):format(dtype))
local head = { ('%-28s'):format 'op' }
for _, s in ipairs(sizes) do head[#head + 1] = ('%14s'):format(s.text) end
print(table.concat(head) .. ('%8s'):format 'ratio')
local tsv = assert(io.open(o.out or 'ladder.tsv', 'w'))
tsv:write(('# %s; amp %s; PyTorch %s; %s\n'):format(gpu, amp.version(), peer and peer.about or 'none', dtype),
  'op\tsize\tbytes\tours_us\ttheirs_us\tours_gb_s\ttheirs_gb_s\tratio\n')

local function gbs(v) return v and (v < 9.95 and '%.1f' or '%.0f'):format(v) or '-' end

local notes, logs, count = {}, 0, 0
for _, c in ipairs(cases) do
  if chosen(c.name) then
    local cells, last = { ('%-28s'):format(c.name) }, nil
    for _, s in ipairs(sizes) do
      local n = elements(c, s.bytes)
      local bytes = c.bytes(n, w)
      local many = (o.eager or s.bytes >= SMALL or not device:find '^cuda') and 1 or TEN
      local mine, failure = ours(c, n, many)
      if failure then notes[#notes + 1] = ('%s, %s: %s'):format(c.name, s.text, failure) end
      local their
      if peer then
        local answer, fault = peer:ask(('%s n=%d dtype=%s many=%d device=%s seconds=%g reps=%d warm=%g'):format(c.name:gsub(' ', '_'), n, dtype, many,
          o.peer_device or device, clock.seconds, clock.reps, clock.warm))
        their = answer and answer[1]
        if not answer then notes[#notes + 1] = ('%s, %s, PyTorch: %s'):format(c.name, s.text, fault) end
      end
      local a, b = mine and bytes / mine / 1e6, their and bytes / their / 1e6
      last = mine and their and their / mine
      if last then logs, count = logs + math.log(last), count + 1 end
      cells[#cells + 1] = ('%14s'):format(gbs(a) .. ' / ' .. gbs(b))
      tsv:write(('%s\t%s\t%.0f\t%s\t%s\t%s\t%s\t%s\n'):format(c.name, s.text, bytes, mine and ('%.3f'):format(mine * 1e3) or '-',
        their and ('%.3f'):format(their * 1e3) or '-', a and ('%.1f'):format(a) or '-', b and ('%.1f'):format(b) or '-',
        last and ('%.3f'):format(last) or '-'))
    end
    print(table.concat(cells) .. ('%8s'):format(last and ('%.2f'):format(last) or '-'))
    io.stdout:flush()
    tsv:flush()
  end
end
for _, n in ipairs(notes) do print('failed: ' .. n) end
if count > 0 then print(('geometric mean of their time over ours, %d points: %.2f'):format(count, math.exp(logs / count))) end
tsv:close()
if peer then peer:close() end
