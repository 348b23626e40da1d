--- Passes over a graph: amp.graph.optimize (src/graph/pass.h).
-- @module amp.graph.optimize
local core = require 'amp.ffi'
local call = require 'amp.core.call'
local options = require 'amp.options'
local look = require 'amp.graph.look'
local C, S = core.C, core.S

local M = {}

local passes = {dead = C.AMP_G_DEAD, common = C.AMP_G_COMMON, constants = C.AMP_G_CONSTANTS, fold = C.AMP_G_FOLD, joins = C.AMP_G_JOINS,
  chains = C.AMP_G_CHAINS, layout = C.AMP_G_LAYOUT}
local known = {'dead', 'common', 'constants', 'fold', 'joins', 'chains', 'layout', 'fuse', 'keep_weights'}

local every, every_used = 0, {}
for name, flag in pairs(passes) do every, every_used[#every_used + 1] = every + flag, name end

-- All passes, but those that are given as false.
local function chosen(op, given)
  if given == nil then
    local used = {}
    for i = 1, #every_used do used[every_used[i]] = true end
    return every, used
  end
  local o = options.read(op, given, known, {dead = true, common = true, constants = true, fold = true, joins = true, chains = true, layout = true, fuse = true,
    keep_weights = true})
  local flags, used = 0, {}
  for _, name in ipairs(known) do options.boolean(op, name, o[name]) end
  for name, flag in pairs(passes) do
    if o[name] and (o.fuse or name ~= 'joins' and name ~= 'chains') then
      flags = flags + flag
      used[name] = true
    end
  end
  return o.keep_weights and flags or flags + C.AMP_G_LEAN, used
end

-- What the graph was is remembered, so that it can be told what became of its nodes.
local function run(g, given, more)
  local flags, used = chosen('graph.optimize', given)
  local before = rawget(g, 'before') or look.names(g)
  if g.again then g.again:optimized(given) end
  call.check(C.amp_graph_optimize(S, g.handle, flags + more), 'graph.optimize')
  used.here = more == C.AMP_G_REGION
  used.trains = used.here and S.grad_mode ~= 0
  g.before, g.passes = before, used
  return g
end

--- Change the graph into one that does the same in less: g:optimize{...}. Results agree with those before within rounding, gradients
-- too; it goes on seeing changed parameters.
-- @tparam Graph g
-- @tparam ?table given passes, each true unless it is false here: dead (what changes nothing and is not used goes), common (equal
-- nodes become one), constants (nodes of constants are computed), fold (batch norm in eval mode goes into the product before it),
-- joins (rows that one row does together), chains (elementwise rows pass over memory together), layout
-- (compiled graphs without gradients: convolutions on a CPU with channels last), fuse (joins and chains); keep_weights (true): products
-- on a CPU keep their weights in the form of their kernels, a second copy that goes where memory is short
-- @treturn Graph g
-- @raise an unknown option, or one that is no boolean
-- @usage local g = amp.trace(net:eval(), x):optimize()   -- print(amp.summary(g)) says what was fused
function M.optimize(g, given) return run(g, given, 0) end

--- The same for a graph that only runs in the region in which it was recorded (or out of any, if it was): more can be joined.
function M.optimize_here(g, given) return run(g, given, C.AMP_G_REGION) end

return M
