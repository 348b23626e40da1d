--- What amp.doctor says: findings with what to change, made of its measurements, and the report's text.
-- @module amp.tools.findings
local M = {}

local FLOAT16, BFLOAT16 = 2, 3 -- enum amp_dtype

-- -- Findings ------------------------------------------------------------------------------------------

local function percent(x) return x > 0 and x < 0.001 and '<0.1 %' or ('%.1f %%'):format(100 * x) end

local function bytes(n)
  if n >= 2 ^ 20 then return ('%.1f MiB'):format(n / 2 ^ 20) end
  if n >= 1024 then return ('%.1f KiB'):format(n / 1024) end
  return ('%d bytes'):format(n)
end

--- What measurements mean.
-- @tparam table m as amp.tools.doctor made them
-- @treturn table list of {kind, text, advice, where}
function M.list(m)
  local list = {}
  local function add(kind, text, cure, where) list[#list + 1] = { kind = kind, text = text, advice = cure, where = where } end
  local n = m.steps

  for _, d in ipairs(m.dims) do
    add('dimensions', ('amp.%s at %s (%s): not multiples of 8: %s'):format(d.op, d.where, d.sizes, d.odd),
      'tensor cores work on multiples of 8: pad the batch, the width or the number of classes or channels to the next', d.where)
  end
  for _, w in ipairs(m.waits) do
    add('wait', ('%s at %s makes the host wait for the device (%.3g a step)'):format(w.what, w.where, w.count / n),
      'sum up in a tensor (amp.metric.Loss) and read it every few hundred steps', w.where)
  end
  if m.weight_casts > 0 then
    add('casts', ('%d weights were still cast in the last step'):format(m.weight_casts),
      "step with an optimizer of amp.optim, which writes the low-precision copies itself, and don't change weights by hand or clear the cache")
  end
  if m.lower[FLOAT16] + m.lower[BFLOAT16] == 0 and m.full > 0 then
    add('precision', ('all %d products ran in float32 or float64'):format(m.full),
      'run the forward pass and the loss inside amp.autocast(function() ... end)')
  end
  local worst, worst_scaled = 0, 0
  for _, r in ipairs(m.underflow) do worst, worst_scaled = math.max(worst, r.zero), math.max(worst_scaled, r.zero_scaled) end
  if m.lower[FLOAT16] > 0 and not (m.scale and m.scale > 1) then
    add('scaler', 'float16 without a loss scale: ' .. (worst > 0 and ("up to %s of a parameter's gradient values are 0 in float16"):format(percent(worst))
      or 'no gradient value became 0 in these steps, smaller ones of later steps may'),
      "use amp.GradScaler, or dtype = 'bfloat16', which needs none")
  elseif m.scale and m.scale > 1 and worst_scaled > 0.01 then
    add('scaler', ("up to %s of a parameter's gradient values are 0 in float16 even under the scale %.17g"):format(percent(worst_scaled), m.scale),
      'let the scale grow (growth_interval, max_scale), or use bfloat16')
  end
  if m.scale and m.scale > 1 and m.lower[FLOAT16] == 0 and m.lower[BFLOAT16] > 0 then
    add('scaler', 'bfloat16 under a loss scale', 'bfloat16 has the range of float32: GradScaler{enabled = false} saves its work')
  end
  if m.backwards == 0 then
    add('step', 'there was no backward in the function', 'give a function that does whole training steps')
  elseif m.optimizer == 0 then
    add('optimizer', 'no optimizer of amp.optim took a step',
      'those of amp.optim step all parameters in one pass over memory and skip overflows without a wait')
  end
  for _, r in ipairs(m.half) do
    add('precision', ('%s is kept in float16'):format(r), 'keep parameters in float32 (net:float()): autocast makes their float16 copies')
  end
  for _, r in ipairs(m.float8 or {}) do
    for _, kind in ipairs { 'input', 'weight', 'gradient' } do
      local share = r[kind]
      if share and share.saturated > 0.001 then
        add('float8', ("%s of the %s values of %s are beyond its scale's largest"):format(percent(share.saturated), kind, r.name),
          "its values grow faster than its history follows: recipe = 'current', or a longer history")
      end
      if share and share.zero > 0.5 then
        add('float8', ('%s of the %s values of %s become 0 in 8 bits'):format(percent(share.zero), kind, r.name),
          "a few large values set the scale: recipe = 'block' gives each piece of 128 its own, or exclude the layer")
      end
    end
  end
  local small = {}
  for _, r in ipairs(m.float8 or {}) do if not r.pays then small[#small + 1] = r.name end end
  if #small > 0 then
    add('float8', ('%d of %d layers in 8 bits are too narrow to gain: %s%s'):format(#small, #m.float8, table.concat(small, ', ', 1, math.min(#small, 6)),
      #small > 6 and ', ...' or ''), 'casts cost as much as their products save; exclude = {names} keeps them in the base')
  end
  for _, g in ipairs(m.graphs) do
    if g.why then
      add('graph', ("%s was to run as a graph and runs as it is: %s"):format(g.name, g.why), 'change that line, or leave it out of what is compiled')
    elseif not g.report.optimized and not g.report.loaded then
      add('graph', ('the graph %s runs as it was traced'):format(g.name), 'g:optimize() joins its nodes')
    elseif g.report.casts > 8 and g.report.cast_bytes > 0.2 * g.report.bytes then
      add('graph', ('%d casts move %s of the bytes of graph %s'):format(g.report.casts, percent(g.report.cast_bytes / g.report.bytes), g.name),
        'amp.convert_model{cast_optional_params = true} stores parameters low, so that they are not cast in each run')
    end
  end
  if m.cycles > 0 then
    add('memory', ("Lua's collector ran %.3g times a step to give back tensor memory"):format(m.cycles / n),
      'run each step inside amp.scope(function() ... end)')
  end
  if m.bound == 'host' then
    add('bound', ('%s of the time goes into Lua and calls, not into kernels'):format(percent(1 - m.kernels)),
      'larger batches, nn.Sequential and fused ops (linear, layer_norm, cross_entropy) make fewer and larger calls; amp.capture replays a step')
  elseif m.gpu then
    add('bound', ('the GPU is busy: the host waited for it %s of the time'):format(percent(m.waited / math.max(m.wall, 1e-12))),
      'autocast, channels_last and dimensions that are multiples of 8 help; more work on the host does not hurt')
  end
  return list
end

-- -- Text --------------------------------------------------------------------------------------------

local Report = {}
Report.__index = Report
M.Report = Report

function Report:__tostring()
  local lines = {}
  local function w(fmt, ...) lines[#lines + 1] = fmt:format(...) end
  w('amp.doctor: %d steps measured, %.3g ms a step', self.steps, 1e3 * self.time)
  w('  bound by %s: %s in kernels, %s in calls, %s in Lua', self.bound == 'host' and 'Lua and calls' or self.bound == 'gpu' and 'the GPU' or 'kernels',
    percent(self.kernels), percent(self.calls), percent(self.lua))
  w('  casts: %.3g a step (%s), %.3g a step from the cache', self.casts, bytes(self.cast_bytes), self.cached_casts)
  w('  host waits: %.3g a step', self.host_waits)
  if #self.underflow > 0 then
    w('  gradient values that float16 makes 0 / subnormal%s:', self.scale and (', and under the scale %.17g'):format(self.scale) or '')
    for i = 1, math.min(#self.underflow, 20) do
      local r = self.underflow[i]
      w('    %-28s %s / %s%s', r.name, percent(r.zero), percent(r.subnormal),
        self.scale and (', scaled %s / %s'):format(percent(r.zero_scaled), percent(r.subnormal_scaled)) or '')
    end
    if #self.underflow > 20 then w('    ... and %d more', #self.underflow - 20) end
  end
  if self.float8 and #self.float8 > 0 then
    w '  in 8 bits, saturated / made 0 (inputs, weight, gradients), and whether the layer is wide enough to gain by it:'
    for _, r in ipairs(self.float8) do
      local words = {}
      for i, kind in ipairs { 'input', 'weight', 'gradient' } do
        local share = r[kind]
        words[i] = share and ('%s / %s'):format(percent(share.saturated), percent(share.zero)) or 'none'
      end
      w('    %-28s %s: %s', r.name, table.concat(words, ', '), r.pays and 'pays' or 'does not pay')
    end
  end
  for _, g in ipairs(self.graphs or {}) do
    local r = g.report
    if r then
      w('  graph %s: nodes: %d, moved a run: %s, casts: %d, nodes joined: %d into %d, chains: %d, pairs not joined: %d', g.name, #r, bytes(r.bytes),
        r.casts, r.merged, #r.joined, r.chains, #r.missed)
      for i = 1, math.min(#r.missed, 4) do w('    %s, %s: %s', r.missed[i].first, r.missed[i].second, r.missed[i].why) end
    else
      w('  graph %s: none, it runs as it is', g.name)
    end
  end
  if #self.findings == 0 then w('nothing to change was found') else w('to change:') end
  for i, f in ipairs(self.findings) do
    w('%3d. %s', i, f.text)
    w('     %s', f.advice)
  end
  if self.lost > 0 then w('%d spans were lost', self.lost) end
  return table.concat(lines, '\n')
end

return M
