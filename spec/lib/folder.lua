--- A folder of a spec's own, with files in it.
local H = require 'spec.lib.helper'

--- @tparam string name of the folder, under this process's
-- @treturn table with dir, and functions: at(name) gives a path, write(name, bytes) writes a file and gives its path,
-- listed(pattern) counts the names that grep finds
return function(name)
  local dir = H.tmp(name)
  os.execute(("mkdir -p '%s'"):format(dir))
  local M = { dir = dir }
  function M.at(file) return dir .. '/' .. file end
  function M.write(file, bytes)
    H.write(M.at(file), bytes)
    return M.at(file)
  end
  --- What a command prints, without space at the end.
  function M.shell(command) return (H.sh(command):gsub('%s+$', '')) end
  function M.listed(pattern) return tonumber(M.shell(("ls '%s' | grep -c '%s' || true"):format(dir, pattern))) end
  return M
end
