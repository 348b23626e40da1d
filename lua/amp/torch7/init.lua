--- amp.torch7: old spellings for scripts that come from Torch7, and its files.
--
--   local torch, nn, optim = amp.torch7.torch, amp.torch7.nn, amp.torch7.optim
--   local xlua = amp.torch7.xlua
--   local model = amp.torch7.load 'model.t7'              -- tables, tensors; no code is run
--   local net = amp.torch7.convert(model)                 -- a module of nn among them, as a network of amp
--
-- Loading it adds methods to tensors (nElement, expandAs, zero, ...; torch7/tensors.lua) and to modules
-- (getParameters, backward, ...; torch7/nn.lua). What differs stays: x:add(y) gives a new tensor, x * y is element by
-- element, reductions give tensors; see the guide, coming_from_torch7.md.
local amp = require 'amp'
local util = require 'amp.util'
local raise = require('amp.error').throw
require 'amp.torch7.tensors'

local M = {}

local parts = {torch = 'amp.torch7.torch', nn = 'amp.torch7.nn', optim = 'amp.torch7.optim', convert = 'amp.torch7.convert'}

--- Let scripts of Torch7 run as they are: `require 'torch'`, 'nn', 'optim', 'paths', 'xlua', 'image', 'nngraph', 'lfs', 'threads',
-- 'cutorch', 'cunn' give Torch7's own tensors and modules, made on amp; see torch7/own/install.lua.
-- @usage require 'amp.torch7'.install()
function M.install(given) return require('amp.torch7.own.install').install(given) end

--- Read a .t7 file: see torch7/t7.lua.
function M.load(...) return require('amp.torch7.t7').load(...) end

-- xlua.progress(i, n): one bar at a time, closed at its end.
local bar
M.xlua = {
  progress = function(i, n)
    if not bar or bar.total ~= n or i < bar.done then bar = amp.progress(n) end
    bar:update(i - bar.done)
    if i >= n then
      bar:close()
      bar = nil
    end
  end,
}

return setmetatable(M, {__index = function(_, name)
  if parts[name] then
    local v = require(parts[name])
    M[name] = v
    return v
  end
  if type(name) == 'string' then
    local known = util.keys(M)
    for k in pairs(parts) do known[#known + 1] = k end
    raise(nil, "amp.torch7 has no '%s'%s", name, util.hint(name, known))
  end
end})
