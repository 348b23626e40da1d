--- amp.summary: a network layer by layer, what each gives and what it costs.
--
--   print(amp.summary(net, {1, 1, 28, 28}))       -- sizes of an input, or the input itself
--   print(amp.summary(net))                       -- parameters only: nothing is run
--
-- The network runs once, in evaluation mode and without recording. Everything is put back afterwards, also
-- when it fails: modes, hooks, buffers, gradients, the random sequence. Multiply-adds are those of products
-- (matrix products, convolutions, attention, recurrent layers), taken from what the library runs and so also of
-- functions a forward calls; of additions, activations and norms nothing is counted.
local amp = require 'amp'
local next_key = require('amp.core.keys').next
local core = require 'amp.ffi'
local observer = require 'amp.tools.observer'
local options = require 'amp.options'
local Module = require 'amp.nn.module'
local types = require 'amp.types'
local util = require 'amp.util'
local raise = require('amp.error').throw
local C = core.C

local OP = 'summary'

-- -- Multiply-adds of an op, from the sizes of its arguments ------------------------------------

local function size(s, argument, d) -- d from 1, or from the end
  local n = s.ndim[argument - 1]
  if d < 0 then d = n + 1 + d end
  return d >= 1 and d <= n and s.size[5 * (argument - 1) + d - 1] or 1
end

local function numel(s, argument, from)
  local n = 1
  for d = from or 1, s.ndim[argument - 1] do n = n * s.size[5 * (argument - 1) + d - 1] end
  return n
end

local function results(s) return tonumber(s.own) / C.amp_dtype_size(s.dtype) end

local gates = {lstm = 4, gru = 3, rnn = 1}
local products = {
  linear = function(s) return results(s) * size(s, 2, -1) end,
  matmul = function(s) return results(s) * size(s, 1, -1) end,
  convolution = function(s) return results(s) * numel(s, 2, 2) end,
  convolution_input = function(s) return numel(s, 1) * numel(s, 2, 2) end,
  -- scores and their product with the values
  attention = function(s) return numel(s, 1) * size(s, 2, -2) + numel(s, 1) / size(s, 1, -1) * size(s, 2, -2) * size(s, 3, -1) end,
  -- input and state, to every gate
  rnn_layer = function(s)
    local g = gates[s.parent >= 0 and observer.name(s.parent) or ''] or 1
    local width, state = size(s, 1, -1), size(s, 2, -1)
    local hidden = s.ndim[2] > 0 and size(s, 3, -1) or state
    return numel(s, 1) / width * g * hidden * (width + state)
  end,
}

-- -- Running it once ----------------------------------------------------------------------------

-- Tensors of a value, nested tables too.
local function tensors(v, list, seen)
  if amp.is_tensor(v) then list[#list + 1] = v
  elseif type(v) == 'table' and not seen[v] then
    seen[v] = true
    for k = 1, #v do tensors(v[k], list, seen) end
    for _, k in ipairs(util.keys(v)) do tensors(v[k], list, seen) end
  end
  return list
end

local function note_output(row, ...)
  local list = tensors({...}, {}, {})
  row.calls, row.shapes, row.bytes, row.dtype = row.calls + 1, {}, 0, nil
  for i, t in ipairs(list) do
    row.shapes[i] = tostring(t:size())
    row.bytes = row.bytes + t:numel() * t:element_size()
    row.dtype = row.dtype or t.dtype
  end
end

-- Change what running changes, remember how to change it back: a function that does.
local function prepare(net, of)
  local modes, hooks, buffers = {}, {}, {}
  for _, m in ipairs(net:modules()) do
    modes[m], hooks[m] = m.training, Module.raw_key(m, '.hooks') or false
  end
  for _, b in ipairs(net:buffers()) do
    buffers[#buffers + 1] = {b, b:clone(), tonumber(C.amp_tensor_version(b))}
  end
  local rng = amp.get_rng_state()
  local running = {}
  net:eval()
  for m in pairs(modes) do
    m:register_forward_pre_hook(function() running[#running + 1] = m end)
    m:register_forward_hook(function(_, _, ...)
      running[#running] = nil
      note_output(of[m], ...)
    end)
  end
  return running, function()
    for m, mode in pairs(modes) do
      m.training = mode
      rawset(Module.inside(m), '.hooks', hooks[m] or nil)
    end
    for _, b in ipairs(buffers) do
      if tonumber(C.amp_tensor_version(b[1])) ~= b[3] then amp.no_grad(function() b[1]:copy_(b[2]) end) end
    end
    amp.set_rng_state(rng)
  end
end

local function run(net, of, input)
  local running, restore = prepare(net, of)
  local listener = {flags = 0, fn = net.forward}
  function listener.span(s, name)
    local f = products[name]
    local row = f and of[running[#running] or net]
    if row then row.mult_adds = row.mult_adds + f(s) end
  end
  local ok, e = pcall(amp.no_grad, function()
    observer.run(listener, function() net(unpack(input, 1, input.n)) end)
  end)
  restore()
  if not ok then error(e, 0) end
end

-- -- Arguments ------------------------------------------------------------------------------------

local function like(net, dtype)
  local first = net:parameters()[1]
  if type(first) == 'nil' then return dtype end
  return dtype or first.dtype, first.device
end

-- Inputs as they are passed: tensors and other values, or sizes, for which a tensor of ones stands.
local function read_inputs(net, dtype, ...)
  local list = {n = select('#', ...), ...}
  for i = 1, list.n do
    local v = list[i]
    if type(v) == 'table' and type(v[1]) == 'number' then
      for d = 1, #v do options.integer(OP, 'size ' .. d .. ' of input ' .. i, v[d], 0) end
      local d, device = like(net, dtype)
      list[i] = amp.ones(v, {dtype = d, device = device})
    elseif v == nil then
      raise(OP, 'input %d is nil: a tensor, or the sizes of one, expected', i)
    end
  end
  return list
end

-- -- The report ------------------------------------------------------------------------------------

local Report = {}
Report.__index = Report

local function count(n) -- 1234567 -> 1,234,567
  local text = string.format('%.0f', n)
  repeat
    local done
    text, done = text:gsub('^(%-?%d+)(%d%d%d)', '%1,%2')
  until done == 0
  return text
end

local function amount(b)
  local units, u = {'B', 'KiB', 'MiB', 'GiB', 'TiB'}, 1
  while b >= 1024 and u < #units do b, u = b / 1024, u + 1 end
  return string.format(u == 1 and '%d %s' or '%.1f %s', b, units[u])
end

local function shapes_text(list)
  if not list then return '-' end
  if #list == 0 then return 'none' end
  local text = table.concat(list, ', ', 1, math.min(#list, 3))
  return #list > 3 and text .. ', ...' or text
end

--- The report as a table to read.
function Report:__tostring()
  local ran = self.input ~= nil
  local head = ran and {'layer', 'output', 'dtype', 'bytes', 'parameters', 'multiply-adds'} or {'layer', 'dtype', 'parameters'}
  local lines, width = {head}, {}
  for _, r in ipairs(self) do
    if r.depth <= self.depth then
      local name = ('  '):rep(r.depth) .. (r.name == '' and '' or r.name:match('[^.]+$') .. ': ')
        .. r.class .. (r.calls > 1 and ' x ' .. r.calls or '')
      local parameters = r.parameters > 0 and count(r.parameters) or r.shared and 'shared' or '-'
      if ran then
        lines[#lines + 1] = {name, shapes_text(r.shapes), r.dtype or '-', r.shapes and amount(r.bytes) or '-', parameters,
          r.mult_adds > 0 and count(r.mult_adds) or '-'}
      else
        lines[#lines + 1] = {name, r.dtype or '-', parameters}
      end
    end
  end
  for _, line in ipairs(lines) do
    for c, text in ipairs(line) do width[c] = math.max(width[c] or 0, #text) end
  end
  local total = 2 * (#head - 1)
  for c = 1, #head do total = total + width[c] end
  local words = {} -- columns that stand at the left
  for c, name in ipairs(head) do words[c] = name == 'layer' or name == 'output' or name == 'dtype' end
  for i, line in ipairs(lines) do
    for c, text in ipairs(line) do
      local gap = (' '):rep(width[c] - #text)
      line[c] = words[c] and text .. gap or gap .. text
    end
    lines[i] = table.concat(line, '  '):gsub(' +$', '')
  end
  table.insert(lines, 2, ('-'):rep(total))
  lines[#lines + 1] = lines[2]
  local function add(...) lines[#lines + 1] = string.format(...) end
  add('parameters    %s (%s), %s trained', count(self.parameters), amount(self.parameter_bytes), count(self.trained))
  if self.buffers > 0 then add('buffers       %s (%s)', count(self.buffers), amount(self.buffer_bytes)) end
  if ran then
    add('outputs       %s of layers without layers in them, for an input of %s', amount(self.output_bytes), shapes_text(self.input))
    add('multiply-adds %s', count(self.mult_adds))
  end
  return table.concat(lines, '\n')
end

-- A row a module, in the order of the tree; parameters are those of the module itself, each counted once.
local function make_rows(net)
  local rows, of, seen = setmetatable({parameters = 0, parameter_bytes = 0, trained = 0, buffers = 0, buffer_bytes = 0}, Report), {}, {}
  for name, m in net:named_modules() do
    local _, dots = name:gsub('%.', '')
    local row = {name = name, class = m.__name, depth = name == '' and 0 or dots + 1, parameters = 0, mult_adds = 0, calls = 0,
      leaf = #m:children() == 0}
    local kinds, values = Module.raw_key(m, '.kinds'), Module.raw_key(m, '.values')
    for _, field in ipairs(Module.raw_key(m, '.names')) do
      local t, kind = values[field], kinds[field]
      if type(t) ~= 'nil' and (kind == 'parameter' or kind == 'buffer') then
        local n, fresh = t:numel(), not seen[t:id()]
        seen[t:id()] = true
        local bytes = n * t:element_size()
        if kind == 'buffer' then
          if fresh then rows.buffers, rows.buffer_bytes = rows.buffers + n, rows.buffer_bytes + bytes end
        else
          row.dtype = row.dtype or t.dtype
          if fresh then
            row.parameters = row.parameters + n
            rows.parameters, rows.parameter_bytes = rows.parameters + n, rows.parameter_bytes + bytes
            if t.requires_grad then rows.trained = rows.trained + n end
          else
            row.shared = true
          end
        end
      end
    end
    rows[#rows + 1], of[m] = row, row
  end
  return rows, of
end

--- A network layer by layer: output shape, parameters, dtype, bytes, multiply-adds, and totals. A graph node by node: what each
-- gives, bytes moved, casts, what was fused and what not and why.
-- @tparam nn.Module|Graph net
-- @param ... inputs: tensors or whatever its forward takes, or sizes ({1, 3, 32, 32}: ones of the network's
-- dtype and device); none: parameters only
-- @tparam ?table options depth (levels of the tree in the text, all by default), dtype (of inputs given by sizes)
-- @treturn table rows {name, class, depth, shapes, dtype, bytes, parameters, mult_adds, calls}; fields parameters,
-- trained, parameter_bytes, buffers, buffer_bytes, output_bytes, mult_adds, input; of a graph rows {name, op, shape, bytes, cast, chain,
-- kept, view, joined, note}, fields bytes, casts, cast_bytes, kept, chains, joined, merged, missed ({first, second, as, why}),
-- optimized; its tostring is a table to read
-- @raise what the network raises, with the module it happened in
-- @usage print(amp.summary(net, {64, 1, 28, 28}, {depth = 1}))
return function(net, ...)
  if require('amp.graph').is(net) then
    if select('#', ...) > 0 then raise(OP, 'a graph knows its inputs: amp.summary(g) takes nothing else') end
    return require 'amp.graph.report'(net)
  end
  if not Module.is_module(net) then
    local cure = type(net) == 'function' and ': amp.summary(amp.trace(fn, x))'
      or type(net) == 'table' and net.__instance and ' (a class: call it to make an instance)' or ''
    raise(OP, 'an nn.Module or a graph expected, got %s%s', util.show(net), cure)
  end
  local n, given = select('#', ...), nil
  local last = n > 0 and (select(n, ...)) or nil
  if type(last) == 'table' and last[1] == nil and getmetatable(last) == nil and next_key(last) ~= nil then
    given, n = last, n - 1
  end
  local o = options.read(OP, given, {'depth', 'dtype'}, {depth = math.huge})
  if o.depth ~= math.huge then options.integer(OP, 'depth', o.depth, 0) end
  if o.dtype then types.dtype(o.dtype, OP) end
  local input = n > 0 and read_inputs(net, o.dtype, unpack({...}, 1, n))
  local rows, of = make_rows(net)
  rows.depth = o.depth
  if input then
    run(net, of, input)
    rows.input, rows.mult_adds, rows.output_bytes = {}, 0, 0
    for i, t in ipairs(tensors({unpack(input, 1, input.n)}, {}, {})) do rows.input[i] = tostring(t:size()) end
    for _, r in ipairs(rows) do
      rows.mult_adds = rows.mult_adds + r.mult_adds
      if r.leaf then rows.output_bytes = rows.output_bytes + (r.bytes or 0) end
    end
  end
  return rows
end
