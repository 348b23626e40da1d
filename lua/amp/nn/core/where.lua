--- Which modules an error passed through: a line for each forward it was raised in.
--
-- Nothing is kept while networks run. When amp raises an error, the frames of
-- module calls are still on the stack, each with its instance; reading them
-- costs only then. The error object stays the same one.
local Module = require 'amp.nn.module'

local M = {}

local function brief(m)
  local text = m:extra_repr()
  return m.__name .. (text ~= '' and ' ' .. text or '')
end

-- Where child stands below parent, as 'layers.2'; lists and dictionaries between them don't run.
local function path(parent, child, depth)
  for name, m in Module.parts(parent, 'module') do
    if rawequal(m, child) then return tostring(name) end
  end
  if depth >= 8 then return nil end
  for name, m in Module.parts(parent, 'module') do
    local below = path(m, child, depth + 1)
    if below then return tostring(name) .. '.' .. below end
  end
end

local function line(parent, child)
  local name = path(parent, child, 1)
  if not name then return string.format('in %s (%s)', parent.__name, brief(child)) end
  if not name:find('^%d+$') then name = "'" .. name .. "'" end
  return string.format('in module %s of %s (%s)', name, parent.__name, brief(child))
end

--- Lines for the modules running on this stack, the innermost first.
-- @treturn table list of strings
function M.lines()
  local list, child = {}, nil
  for level = 2, 1e6 do
    local info = debug.getinfo(level, 'f')
    if not info then break end
    if Module.call_frames[info.func] then
      local _, self = debug.getlocal(level, 1)
      if Module.is_module(self) then
        if child then list[#list + 1] = line(self, child) end
        child = self
      end
    end
  end
  if child and #list == 0 then list[1] = 'in ' .. brief(child) end
  return list
end

--- Have amp's errors carry these lines.
function M.install()
  require('amp.error').context = M.lines
end

return M
