--- A graph node by node: amp.summary(g), and what amp.doctor reads of graphs.
-- Bytes are those that nodes read and write at the sizes of the recording, each operand once; the cache is not known.
-- @module amp.graph.report
local core = require 'amp.ffi'
local look = require 'amp.graph.look'
local missed = require 'amp.graph.missed'
local show = require 'amp.graph.show'

local Report = {}
Report.__index = Report

local function amount(b)
  local units, u = {'B', 'KiB', 'MiB', 'GiB', 'TiB'}, 1
  while b >= 1024 and u < #units do b, u = b / 1024, u + 1 end
  return string.format(u == 1 and '%d %s' or '%.1f %s', b, units[u])
end
Report.amount = amount

-- The columns' widths, then the lines.
local function laid_out(lines)
  local width, out = {}, {}
  for _, line in ipairs(lines) do
    for c, text in ipairs(line) do width[c] = math.max(width[c] or 0, #text) end
  end
  for i, line in ipairs(lines) do
    local list = {}
    for c, text in ipairs(line) do
      local gap = (' '):rep(width[c] - #text)
      list[c] = c == 4 and gap .. text or text .. gap
    end
    out[i] = table.concat(list, '  '):gsub(' +$', '')
  end
  return out
end

local MOST = 12 -- pairs that the text lists

-- What passes joined, in words.
function Report:fused()
  local chains = ('%d chain%s'):format(self.chains, self.chains == 1 and '' or 's')
  if self.optimized then return ('%d node%s into %d; %s'):format(self.merged, self.merged == 1 and '' or 's', #self.joined, chains) end
  if self.loaded then return chains .. '; what was joined before it was saved is not known' end
  return 'nothing: g:optimize() has not run'
end

function Report:__tostring()
  local lines = {{'node', 'op', 'output', 'bytes', 'note'}}
  for i, r in ipairs(self) do lines[i + 1] = {r.name, r.op, r.shape, r.bytes > 0 and amount(r.bytes) or '-', r.note} end
  lines = laid_out(lines)
  local widest = 0
  for _, line in ipairs(lines) do widest = math.max(widest, #line) end
  table.insert(lines, 2, ('-'):rep(widest))
  lines[#lines + 1] = lines[2]
  local function add(...) lines[#lines + 1] = string.format(...) end
  add('nodes   %d%s, %s moved a run', #self, self.kept > 0 and (' (%d kept between runs)'):format(self.kept) or '', amount(self.bytes))
  add('casts   %d a run%s', self.casts, self.casts > 0 and (', %s moved'):format(amount(self.cast_bytes)) or '')
  add('fused   %s', self:fused())
  if #self.missed > 0 then add 'not fused, and why' end
  for i = 1, math.min(#self.missed, MOST) do
    local m = self.missed[i]
    add('  %s, %s (as %s): %s', m.first, m.second, m.as, m.why)
  end
  if #self.missed > MOST then add('  ... and %d more', #self.missed - MOST) end
  return table.concat(lines, '\n')
end

local function row_of(node)
  local first = node.outputs[1]
  return {name = node.name, op = node.op, shape = first and ('%s %s'):format(first.dtype, first.shape) or '-', bytes = node.bytes, cast = node.cast,
    chain = node.chain, kept = node.kept, joined = node.joined, view = node.view, note = table.concat(show.marks(node), '; ')}
end

--- The report.
-- @tparam Graph g
-- @treturn table rows {name, op, shape, bytes, cast, chain, kept, view, joined, note}, fields bytes, casts, cast_bytes, kept, chains, joined,
-- merged, missed, optimized, loaded (from a file); its tostring is a table to read
return function(g)
  local seen = look.at(g)
  local report = setmetatable({bytes = 0, casts = 0, cast_bytes = 0, kept = 0, chains = 0, merged = 0, joined = {},
    optimized = rawget(g, 'before') ~= nil, loaded = core.C.amp_graph_text(g.handle) ~= nil}, Report)
  for i, node in ipairs(seen.nodes) do
    local r = row_of(node)
    report[i] = r
    if not r.kept then
      report.bytes = report.bytes + r.bytes
      if r.cast then report.casts, report.cast_bytes = report.casts + 1, report.cast_bytes + r.bytes end
    else
      report.kept = report.kept + 1
    end
    if r.chain then report.chains = math.max(report.chains, r.chain) end
    if r.joined and #r.joined > 1 then
      report.joined[#report.joined + 1] = {name = r.name, op = r.op, was = r.joined}
      report.merged = report.merged + #r.joined
    end
  end
  report.missed = missed(g, seen)
  return report
end
