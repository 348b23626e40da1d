--- `amp convert IN OUT`: tensors from one kind of file to another: PyTorch's .pt, safetensors, npz.
-- Status 2: mistakes of use; 1: what a file is not fit for, in a line.
-- @module amp.cli.convert
local util = require 'amp.util'

local M = {}

local usage = [[
usage: amp convert IN OUT [options]  the tensors of a file to another kind of file
  kinds, by the name's end: .pt .pth .bin (torch.save), .safetensors (also model.safetensors.index.json, read), .npz
  --key NAME       of a dictionary in IN, as in a checkpoint of {model, optimizer}; dots lead further in
  --tensors-only   leave out what is no tensor, where OUT holds tensors only]]

local function say(...) io.stderr:write('amp convert: ', table.concat { ... }, '\n') end

local function kind_of(path)
  if path:find '%.safetensors$' or path:find '%.safetensors%.index%.json$' then return 'safetensors' end
  if path:find '%.pt$' or path:find '%.pth$' or path:find '%.bin$' then return 'pt' end
  return path:find '%.npz$' and 'npz' or nil
end

-- Places and options, or nil and a status.
local function read(args)
  local places, o, i = {}, {}, 1
  while i <= #args do
    local a = args[i]
    if a == '-h' or a == '--help' then
      print(usage)
      return nil, 0
    elseif a == '--tensors-only' then o.tensors_only = true
    elseif a == '--key' then
      i = i + 1
      o.key = args[i]
      if not o.key then
        say '--key needs a name'
        return nil, 2
      end
    elseif a:sub(1, 2) == '--' then
      say("unknown option '", a, "'", util.hint(a, { '--key', '--tensors-only' }))
      return nil, 2
    else places[#places + 1] = a end
    i = i + 1
  end
  if #places ~= 2 then
    io.stderr:write(usage, '\n')
    return nil, 2
  end
  for n, path in ipairs(places) do
    if not kind_of(path) or n == 2 and path:find '%.json$' then
      say("'", path, "' is to end in .pt, .pth, .bin, .safetensors or .npz")
      return nil, 2
    end
  end
  return places, o
end

local function load(path)
  local amp, kind = require 'amp', kind_of(path)
  if kind == 'safetensors' then return amp.io.safetensors.load(path) end
  return kind == 'npz' and amp.io.load_npz(path) or amp.io.load_pt(path)
end

-- The value under a dotted name; a key may have dots itself.
local function inside(value, name, path)
  if type(value) == 'table' then
    if value[name] ~= nil then return value[name] end
    for at in name:gmatch '()%.' do
      local v = value[name:sub(1, at - 1)]
      if type(v) == 'table' then return inside(v, name:sub(at + 1), path) end
    end
  end
  local known = {}
  for k in pairs(type(value) == 'table' and value or {}) do known[#known + 1] = tostring(k) end
  error(("there is no '%s' in '%s'%s"):format(name, path, util.hint(name, known)), 0)
end

-- Tensors by name. What is none is an error with its name and the cure, or left out.
local function tensors_of(value, o, from, kind)
  local amp = require 'amp'
  if type(value) ~= 'table' then error(("'%s' holds %s; a dictionary of tensors is expected"):format(from, util.show(value)), 0) end
  local out, left = {}, {}
  for k, v in pairs(value) do
    local name = tostring(k)
    if amp.is_tensor(v) then out[name] = v
    elseif o.tensors_only then left[#left + 1] = name
    else
      error(("'%s' of '%s' is %s, and a file of %s holds tensors only: %s"):format(name, from, type(v) == 'table' and 'a table' or util.show(v), kind,
        type(v) == 'table' and ('choose it by --key %s, or leave it out by --tensors-only'):format(name) or 'leave it out by --tensors-only'), 0)
    end
  end
  table.sort(left)
  return out, left
end

-- Names of tensors that share memory, each after the first of its kind.
local function shared(tensors)
  local names, list = {}, {}
  for name in pairs(tensors) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do list[i] = tensors[name] end
  local out = {}
  for _, s in ipairs(require('amp.io.segments').of(list)) do
    for k = 2, #s.members do out[#out + 1] = ("'%s' and '%s'"):format(names[s.members[1]], names[s.members[k]]) end
  end
  return out
end

local function check_dtypes(tensors, kind, to)
  local names = {}
  for name in pairs(tensors) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local t, why = tensors[name], nil
    if kind == 'npz' then why = select(2, require('amp.io.npy').head(t)) elseif kind == 'pt' then why = require('amp.io.pt_write').lacks(t.dtype) end
    if why then error(("cannot write '%s': '%s': %s"):format(to, name, why), 0) end
  end
end

local function convert(from, to, o)
  local amp, kind = require 'amp', kind_of(to)
  local value = load(from)
  if o.key then value = inside(value, o.key, from) end
  if kind == 'pt' then
    local plain = {}
    for k, v in pairs(type(value) == 'table' and value or {}) do plain[k] = v end -- without what names the tensors that were left out
    if type(value) == 'table' then value = plain end
    amp.io.save_pt(to, value)
    return
  end
  local tensors, left = tensors_of(value, o, from, kind)
  if #left > 0 then say('left out: ', table.concat(left, ', ')) end
  check_dtypes(tensors, kind, to)
  local both = shared(tensors)
  if #both > 0 then say('a file of ', kind, ' shares no memory, so each is written for itself: ', table.concat(both, ', ')) end
  if kind == 'npz' then amp.io.save_npz(to, tensors) else amp.io.safetensors.save(to, tensors, { format = 'pt' }) end
end

--- amp convert IN OUT
function M.run(args)
  local places, o = read(args)
  if not places then return o end
  local ok, why = pcall(convert, places[1], places[2], o)
  if ok then return 0 end
  say((tostring(why):gsub('\n.*', '')))
  return 1
end

return M
