--- Runs every Lua snippet of manual pages: luajit spec/tools/snippets.lua PAGE.md...
-- The ```lua blocks of a page are one script, in order, so later ones may use
-- what earlier ones made; line numbers in errors are the page's. Each page runs
-- in a process and an empty folder of its own (with `examples` linked in). A
-- block passes when everything before and in it ran.
local here = arg[0]:match('^(.*)/[^/]*$') or '.'
local function sh(command)
  local f = io.popen(command)
  local out = f:read('*a')
  f:close()
  return out
end
local function quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end
local function first(command) return (sh(command):gsub('%s+$', '')) end
local links = first 'mktemp -d' -- stands for the folders, whatever characters their names have
local root, build = links .. '/root', links .. '/build'
sh(('ln -s "$(cd %s/../.. && pwd)" %s'):format(quote(here), root))
sh(('ln -s "$(cd %s && cd %s && pwd)" %s'):format(root, quote(os.getenv 'AMP_BUILD' or 'build'), build))
local passed, failed = 0, 0

local function page(path)
  local lines, blocks, inside, number = {}, 0, false, 0
  local file = io.open(path)
  if not file then
    print(path .. ' is not there')
    failed = failed + 1
    return
  end
  for line in file:lines() do
    number = number + 1
    if inside and line:match('^```') then
      inside = false
      lines[number] = ('io.stderr:write("block %d done\\n")'):format(blocks)
    elseif inside then
      lines[number] = line
    else
      if line:match('^```lua%s*$') then
        inside = true
        blocks = blocks + 1
      end
      lines[number] = ''
    end
  end
  file:close()
  if blocks == 0 then return end
  lines[1] = ("package.path = '%s/lua/?.lua;%s/lua/?/init.lua;' .. package.path package.cpath = '%s/?.so;' .. package.cpath"):format(root, root, build)
  local dir = sh('mktemp -d'):gsub('%s+$', '')
  local name = path:match('[^/]+$')
  local script = assert(io.open(dir .. '/' .. name, 'w'))
  script:write(table.concat(lines, '\n'), '\n')
  script:close()
  local out = sh(("cd '%s' && ln -s '%s/examples' examples && luajit '%s' 2>&1; echo \"status $?\""):format(dir, root, name))
  local done = 0
  for _ in out:gmatch('block %d+ done\n') do done = done + 1 end
  passed = passed + done
  failed = failed + blocks - done
  if done < blocks or not out:match('status 0\n$') then
    if done == blocks then failed = failed + 1 end
    print(('%s: block %d of %d failed\n%s'):format(path, done + 1, blocks, out))
  else
    print(('%-40s %d blocks'):format(path, blocks))
  end
  sh("rm -rf '" .. dir .. "'")
end

for _, path in ipairs(arg) do page(path) end
sh('rm -rf ' .. quote(links))
print(('%d passed, %d failed'):format(passed, failed))
os.exit(failed == 0 and 0 or 1, true)
