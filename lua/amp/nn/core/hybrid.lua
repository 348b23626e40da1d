--- net:hybridize, net:export, net:save_checkpoint: modules whose calls run as graphs.
-- @module amp.nn.core.hybrid
local options = require 'amp.options'
local raise = require('amp.error').throw
local util = require 'amp.util'
local Module = require 'amp.nn.module'

local inside, raw = Module.inside, Module.raw_key

-- What runs a module's forward, without its hooks and its graph.
local function plain(self)
  return setmetatable({}, {__call = function(_, ...) return self:forward(...) end})
end

--- Calls of the module run as a graph per set of input shapes, gradients included (MXNet's hybridize). The module stays what
-- it is: parameters, modes, loading. hybridize(false) undoes it.
-- @tparam ?boolean|table given false; or static_alloc, static_shape (a graph keeps its memory in any case; static_shape
-- without static_alloc is an error, as in MXNet)
-- @treturn nn.Module itself
-- @usage net:hybridize(); local y = net(x)
function Module:hybridize(given, excess)
  local op = 'nn.Module:hybridize'
  local at = inside(self)
  Module.changed()
  if excess ~= nil then options.none(op, excess) end
  if given == false then
    rawset(at, '.hybrid', nil)
    rawset(at, '.graphs', nil)
    if rawget(at, '.hooks') and #rawget(at, '.hooks') == 0 then rawset(at, '.hooks', nil) end
    return self
  end
  if given == true then given = nil end
  local o = options.read(op, given, {'static_alloc', 'static_shape'}, {static_alloc = false, static_shape = false})
  options.boolean(op, 'static_alloc', o.static_alloc)
  options.boolean(op, 'static_shape', o.static_shape)
  if o.static_shape and not o.static_alloc then raise(op, 'static_shape needs static_alloc = true: shapes that stay are what memory is kept for') end
  local cache = require('amp.graph.compile').Cache.new(op, self)
  cache.fn = plain(self)
  cache.module = self
  rawset(at, '.graphs', cache)
  rawset(at, '.hybrid', function(...) return cache:run(...) end)
  if not rawget(at, '.hooks') then rawset(at, '.hooks', {}) end -- which a call looks for
  return self
end

--- The graph that the module's last call ran as; an error where none did.
function Module:_graph(op)
  local cache = raw(self, '.graphs')
  if not cache then raise(op, 'the module is not hybridized: net:hybridize(), then call it once') end
  local entry = cache.entries[1]
  if not entry or not entry.graph then
    raise(op, entry and 'the module\'s last call did not run as a graph' or 'the module was hybridized but never run: call it once, net(x)')
  end
  return entry.graph
end

--- Write the graph that the module's last call ran as to exactly this path; amp.load_graph and C read it.
-- @tparam string path
-- @treturn nn.Module itself
-- @raise a module that is not hybridized, that was never called since, or whose last call could not run as a graph
-- @usage net:hybridize(); net(x); net:export 'net.safetensors'
function Module:export(path, excess)
  local op = 'nn.Module:export'
  options.none(op, excess)
  if type(path) ~= 'string' then raise(op, 'a path is expected, got %s', util.show(path)) end
  self:_graph(op):save(path)
  return self
end

--- Write that graph to prefix-0003.safetensors (for epoch 3).
-- @tparam string prefix
-- @tparam number epoch a whole number from 0
-- @tparam ?table given remove_amp_cast (true): the plain float32 graph
-- @treturn nn.Module itself
-- @raise as export
-- @usage net:hybridize(); net(x); net:save_checkpoint('net', 3)    -- net-0003.safetensors
function Module:save_checkpoint(prefix, epoch, given)
  local op = 'nn.Module:save_checkpoint'
  if type(prefix) ~= 'string' then raise(op, 'a prefix is expected, got %s', util.show(prefix)) end
  epoch = options.integer(op, 'epoch', epoch, 0)
  local o = options.read(op, given, {'remove_amp_cast'}, {remove_amp_cast = true})
  options.boolean(op, 'remove_amp_cast', o.remove_amp_cast)
  self:_graph(op):save(('%s-%04d.safetensors'):format(prefix, epoch), {remove_amp_cast = o.remove_amp_cast})
  return self
end

return Module
