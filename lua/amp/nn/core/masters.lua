--- Float32 masters of the 16-bit parameters of a network that amp.initialize cast: what its state dicts, copies and
-- averages read and write. A cast module has a record {masters = parameter's id -> master}, which amp/levels/model.lua
-- makes. A copy's record has versions as well: nothing steps its masters, so one counts only while its parameter is as
-- it was when both were last written together.
local C = require('amp.ffi').C
local Module = require 'amp.nn.module'

local inside, parts = Module.inside, Module.parts

local M = {}

local function version(t) return C.amp_tensor_version(t) end

--- The master of a parameter, nil where it has none that counts.
function M.get(record, t)
  local id = t:id()
  local master = record and record.masters[id]
  if type(master) == 'nil' or (record.versions and record.versions[id] ~= version(t)) then return nil end
  return master
end

--- Change a parameter's values: write(tensor) is called of its master and of itself. Without a gradient mode of its own.
function M.put(record, t, write)
  local id = t:id()
  local master = record and record.masters[id]
  if type(master) == 'nil' then return write(t) end
  write(master)
  t:copy_(master)
  if record.versions then record.versions[id] = version(t) end
end

--- Give a module's copy a record of its own. `seen` has the copies made so far, tensors by id.
function M.copy(old, new, seen)
  local record = rawget(old, '.record')
  if not record then return end
  local own = seen[record]
  if not own then
    own = { masters = {}, versions = {} }
    seen[record] = own
  end
  rawset(new, '.record', own)
  for _, t in next, rawget(old, '.values') do
    local master = type(t) == 'cdata' and M.get(record, t)
    local copy = master and seen[t:id()]
    if copy then own.masters[copy:id()], own.versions[copy:id()] = master:detach():clone(), version(copy) end
  end
end

local function walk(m, seen, out)
  if seen[m] then return out end
  seen[m] = true
  local record = rawget(inside(m), '.record')
  if record then
    for _, t in parts(m, 'parameter') do out[t:id()] = record end
  end
  for _, child in parts(m, 'module') do walk(child, seen, out) end
  return out
end

--- The records of a network's parameters: id -> record; an empty table of a network that no level cast.
function M.of(net) return walk(net, {}, {}) end

return M
