-- Whole training steps on this machine's GPU, ours and PyTorch's in turn, beside what was counted and what is to be reached:
--   luajit examples/bench/gpu/targets.lua [rows=TEXT,TEXT ...] [--list] [rounds=2] [seconds=0.15] [reps=5] [limit=540]
--     [out=targets.tsv] [python=python3|none] [device=cuda] [--fresh] [--tiny]
-- rows: those whose name has one of the texts (`rnn`: recurrent nets of other kinds and sizes, which are measured only so).
-- Each of `rounds` rounds runs ours eager, PyTorch's eager forms (default and fused optimizer), ours captured, PyTorch's captured
-- (or compiled) form, every time `reps` runs of `seconds`; what counts is the median of the rounds, and PyTorch's best form. Ours
-- are a process each; PyTorch's share one, emptied between (--fresh: a new one each row). The most MiB are counted after the
-- warm-up, of captured steps from the start, since a graph takes its memory when it is captured. After `limit` seconds no further
-- row begins. --tiny: small sizes, to try the command.
local amp = require 'amp'
local here = arg[0]:match '^(.*)/' or '.'
local timing = dofile(here .. '/timing.lua')
local counts = dofile(here .. '/counts.lua')
local peers = dofile(here .. '/peer.lua')
local rows = dofile(here .. '/rows.lua')

local o, strange = timing.options(arg)
local device, began = o.device or 'cuda', amp.clock()
local rounds, limit = o.rounds or 2, o.limit or 540
local theirs_device = o.peer_device or device

local function chosen(r)
  if not o.rows then return not r.aside or nil end
  for text in tostring(o.rows):gmatch '[^,]+' do
    if r.name:find(text, 1, true) then return true end
  end
end

if o.list then
  for _, r in ipairs(rows) do print(r.name) end
  return
end
local some = false
for _, r in ipairs(rows) do some = some or chosen(r) ~= nil end
if strange[1] or not some then
  io.stderr:write(strange[1] and ("'%s' is no option"):format(strange[1]) or ("no row has '%s' in its name"):format(o.rows),
    '; --list names the rows, rows=TEXT chooses\n')
  os.exit(1)
end
if device:find '^cuda' and not amp.cuda.is_available() then
  io.stderr:write('no GPU: ', amp.cuda.reason(), '\n')
  os.exit(1)
end

-- -- Running one case ----------------------------------------------------------------

local clock = ''
for _, name in ipairs { 'seconds', 'reps', 'warm' } do
  if o[name] then clock = clock .. (' %s=%g'):format(name, o[name]) end
end

local function sizes_of(r)
  local s = {}
  for k, v in pairs(o.tiny and r.tiny or r.sizes) do s[#s + 1] = ('%s=%s'):format(k, v) end
  table.sort(s)
  return table.concat(s, ' ')
end

local function ours(words)
  local p = io.popen(('timeout 200 %s %s %s device=%s%s 2>&1'):format(peers.quote(arg[-1] or 'luajit'), peers.quote(here .. '/case.lua'),
    words, device, clock))
  local last
  for line in p:lines() do last = line end
  p:close()
  return peers.parse(last or 'failed\tno answer')
end

local peer, why
local function start()
  if peer then peer:close() end
  peer, why = peers.start(o.python or 'python3', here .. '/case.py')
end
local function theirs(words)
  if not peer then return nil, why end
  if peer.dead then start() end
  if not peer then return nil, why end
  local answer, fault = peer:ask(('%s device=%s%s'):format(words, theirs_device, clock))
  if not answer and theirs_device:find '^cuda' then start() end -- what failed may have spoilt its context
  return answer, fault
end

-- -- The card ------------------------------------------------------------------------

start()
local tiny_probe = o.tiny and ' n=64 copy=16384' or ''
local a, failure = ours('probe' .. tiny_probe)
if not a then
  io.stderr:write('the card could not be measured: ', failure, '\n')
  os.exit(1)
end
local b = theirs('probe' .. tiny_probe) or { 0, 0, 0 }
local card = { copy = math.max(a[1], b[1]), low = math.max(a[2], b[2]), high = math.max(a[3], b[3]) }
local gpu = device:find '^cuda' and amp.cuda.get_device_properties(device)
local about = {
  ('card: %s; amp %s, %s, cuBLAS %s, cuDNN %s'):format(gpu and gpu.name or device, amp.version(),
    gpu and amp.cuda.reason() or 'CPU', gpu and amp.cuda.version_of 'cublas' or '-', gpu and amp.cuda.version_of 'cudnn' or '-'),
  'PyTorch: ' .. (peer and peer.about or 'none (' .. tostring(why) .. ')'),
  ('copies %.2f TB/s (ours %.2f, theirs %.2f); 16-bit products %.0f TFLOP/s (%.0f, %.0f); float32 %.1f TFLOP/s (%.1f, %.1f)'):format(
    card.copy / 1e12, a[1] / 1e12, b[1] / 1e12, card.low / 1e12, a[2] / 1e12, b[2] / 1e12, card.high / 1e12, a[3] / 1e12, b[3] / 1e12),
  ('median of %d rounds of %d runs of %g s each%s'):format(rounds, o.reps or 5, o.seconds or 0.15, o.tiny and '; tiny sizes: no result' or ''),
}
local tsv = assert(io.open(o.out or 'targets.tsv', 'w'))
for _, line in ipairs(about) do
  print(line)
  tsv:write('# ', line, '\n')
end
tsv:write(table.concat({ 'workload', 'mode', 'kernels', 'gflop', 'mb', 'floor_ms', 'predicted_ms', 'ours_ms', 'ours_fastest', 'ours_slowest',
  'theirs_ms', 'theirs_form', 'theirs_all', 'ratio', 'target', 'met', 'ours_mib', 'theirs_mib', 'memory_met', 'failures' }, '\t'), '\n')

-- -- Rows ----------------------------------------------------------------------------

local format = '%-24s %-8s | %9s %9s | %9s %6s %9s %9s %-8s | %6s %6s %-3s | %7s %7s %-3s'
print()
print(format:format('workload', 'mode', 'predicted', 'floor', 'ours', 'x pred', 'default', 'best', 'form', 'ratio', 'target', 'met', 'MiB', 'theirs', 'met'))
print(('-'):rep(143))

local function collect(into, answer, fault)
  if not answer then
    into.failed = fault
    return
  end
  for i, v in ipairs(answer) do
    into[i] = into[i] or {}
    table.insert(into[i], v)
  end
end
local function number(v, digits) return v and ('%.' .. digits .. 'f'):format(v) or '-' end
local function said(v) return v == nil and '-' or v and 'yes' or 'NO' end

local results, met, missed, notes = {}, 0, 0, {}
local function judge(held)
  if held == nil then return end
  if held then met = met + 1 else missed = missed + 1 end
end

local function line(r, mode, got)
  local sizes = setmetatable({ precision = r.precision }, { __index = o.tiny and r.tiny or r.sizes })
  local floor, predicted, work = counts.time(r.case, sizes, card)
  local mine = got.ours[1] and timing.median(got.ours[1])
  local best, form, mib, all = nil, '-', nil, {}
  for _, v in ipairs(r[mode].theirs) do
    local t = got[v]
    if t and t[1] then
      local ms = timing.median(t[1])
      all[#all + 1] = ('%s %.4f'):format(v, ms)
      if not best or ms < best then best, form, mib = ms, v, t[2][1] end
    elseif t and t.failed and peer then
      notes[#notes + 1] = ('%s %s, PyTorch %s: %s'):format(r.name, mode, v, t.failed)
    end
  end
  if got.ours.failed then notes[#notes + 1] = ('%s %s, ours: %s'):format(r.name, mode, got.ours.failed) end
  local ratio = mine and best and best / mine
  local held, memory, own = nil, nil, got.ours[2] and got.ours[2][1]
  if r[mode].target and ratio then held = ratio >= r[mode].target end
  if own and mib and mib > 0 then memory = own <= mib end
  judge(held)
  judge(memory)
  print(format:format(r.name, mode, number(predicted[mode], 4), number(floor, 4), number(mine, 4),
    number(mine and mine / predicted[mode], 2),
    number(got.default and got.default[1] and timing.median(got.default[1]), 4), number(best, 4), form, number(ratio, 2),
    number(r[mode].target, 2), said(held), number(own, 0), number(mib, 0), said(memory)))
  io.stdout:flush()
  tsv:write(table.concat({ r.name, mode, work.kernels, number(work.flops / 1e9, 3), number(work.bytes / 1e6, 3), number(floor, 5),
    number(predicted[mode], 5), number(mine, 5), number(got.ours[3] and math.min(unpack(got.ours[3])), 5),
    number(got.ours[4] and math.max(unpack(got.ours[4])), 5), number(best, 5), form, table.concat(all, ', '), number(ratio, 3),
    number(r[mode].target, 2), said(held), number(own, 1), number(mib, 1), said(memory), got.ours.failed or '' }, '\t'), '\n')
  tsv:flush()
  results[r.name .. ' ' .. mode] = { mine, best }
end

local left = {}
for _, r in ipairs(rows) do
  if chosen(r) then
    if amp.clock() - began > limit then left[#left + 1] = r.name
    else
      if o.fresh and peer then start() end
      local got = { eager = { ours = {} }, captured = { ours = {} } }
      for round = 1, rounds do
        if round > 1 and amp.clock() - began > limit then break end
        for _, mode in ipairs { 'eager', 'captured' } do
          local g, sizes = got[mode], sizes_of(r)
          collect(g.ours, ours(('%s %s %s %s'):format(r.case, r.precision, mode, sizes)))
          for _, form in ipairs(r[mode].theirs) do
            g[form] = g[form] or {}
            if not g[form].failed then collect(g[form], theirs(('%s %s %s %s'):format(r.case, r.precision, form, sizes))) end
          end
        end
      end
      line(r, 'eager', got.eager)
      line(r, 'captured', got.captured)
    end
  end
end

-- -- What else is to hold ----------------------------------------------------------------

local function get(name, mode)
  local r = results[name .. ' ' .. mode]
  if r then return r[1], r[2] end
end
for _, m in ipairs(rows.more) do
  local value, sign, limit_ = m[2](get)
  if value and (not m[1]:find 'H100' or gpu and gpu.name:find 'H100') then
    local held
    if sign == '<=' then held = value <= limit_ else held = value >= limit_ end
    judge(held)
    local text = ('%s: %.3g (%s %g) %s'):format(m[1], value, sign, limit_, said(held))
    print(text)
    tsv:write('# ', text, '\n')
  end
end
for _, n in ipairs(notes) do
  print('failed: ' .. n)
  tsv:write('# failed: ', n, '\n')
end
if #left > 0 then print('no time left for: ' .. table.concat(left, ', ')) end
print(('%d targets met, %d missed; %.0f s'):format(met, missed, amp.clock() - began))
tsv:close()
if peer then peer:close() end
