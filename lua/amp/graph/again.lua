--- A traced function that asks whether autocast is on, as amp.half_function does: in another region it does something else, so
-- there it is traced anew. The graph of each region is kept.
-- @module amp.graph.again
local core = require 'amp.ffi'
local err = require 'amp.error'
local region = require 'amp.core.region'
local structure = require 'amp.graph.structure'
local types = require 'amp.types'
local util = require 'amp.util'
local words = require 'amp.precision.autocast_state'
local C, S = core.C, core.S

local M = {}

local Again = {}
Again.__index = Again

-- What can be read of the state, as a text: 'cpu off, cuda float16'.
local function state()
  local function of(d) return S.autocast_on ~= 0 and words.enabled(words.of[d]) and types.dtype_name[words.dtype(words.of[d])] or 'off' end
  return ('cpu %s, cuda %s'):format(of(0), of(1))
end

--- Remember how a graph was traced.
-- @param ?fn function or module, nil: it is not known any more
-- @tparam ?table names of the arguments
-- @tparam ?table dynamic option of amp.graph.trace
-- @tparam ?table modules that ran
function M.new(fn, names, dynamic, modules)
  local modes = {}
  for i, m in ipairs(modules or {}) do modes[i] = {module = m, training = m.training} end
  return setmetatable({fn = fn, names = names, dynamic = dynamic, modes = modes, state = state(), graphs = {}, passes = {}}, Again)
end

--- Of a graph whose function is not known any more: it can't be traced anew.
-- @tparam string of the region that it was traced in
function M.lost(of) return setmetatable({state = of, graphs = {}, passes = {}}, Again) end

--- Passes over the graph go over the others, too.
function Again:optimized(given)
  self.passes[#self.passes + 1] = given or {}
  self.graphs = {}
end

-- Modules in the modes of the tracing, as fn runs.
local function in_modes(modes, fn)
  local now = {}
  for i, m in ipairs(modes) do
    now[i] = m.module.training
    if now[i] ~= m.training then m.module.training = m.training end
  end
  local results = util.pack(pcall(fn))
  for i, m in ipairs(modes) do
    if m.module.training ~= now[i] then m.module.training = now[i] end
  end
  if not results[1] then error(results[2], 0) end
  return results[2]
end

function Again:trace(g, args)
  local op = 'graph.run'
  if not self.fn then
    err.throw_code('unsupported', op, 'the function of this graph asked for the region it was in (half_function, is_autocast_enabled), so '
      .. 'the graph is that of one region (%s), and this is another (%s); trace or convert it here', self.state, state())
  end
  if C.amp_graph_recording(S) ~= 0 then
    err.throw_code('unsupported', op, 'a graph is recorded, and the function of the one that runs inside asks for its region, which is another '
      .. 'than at its tracing; run it once in this region before')
  end
  structure.collect(op, g.plan, args, g.names) -- of the form that it was traced for
  local made = in_modes(self.modes, function()
    local record = require('amp.graph.trace').record(op, self.fn, args, self.names)
    local other = require('amp.graph.graph').new(record)
    if self.dynamic then require 'amp.graph.dynamic'(other, self.fn, args, self.names, self.dynamic) end
    return other
  end)
  for _, given in ipairs(self.passes) do made:optimize(given) end
  return made
end

--- The graph for the region that this is in: g itself, or another.
-- @tparam Graph g
-- @param ... what it is called with
function Again:of(g, ...)
  region.here()
  words.tell()
  local now = state()
  if now == self.state then return g end
  local made = self.graphs[now]
  if not made then
    made = self:trace(g, util.pack(...))
    self.graphs[now] = made
  end
  return made
end

return M
