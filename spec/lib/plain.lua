--- Runs specs that need no more than describe, it and luassert without busted, for tools under which its process
-- handling does not work (compute-sanitizer): luajit spec/lib/plain.lua [--filter=PATTERN] FILES
-- Ends as spec/run.lua does, with a line `N passed, N failed`; its status is 1 if something failed. With AMP_SPEC_PROGRESS
-- it says how far it is every so many cases, and AMP_SPEC_ORDER=backward begins with the last, for runs whose time is limited.
local here = arg[0]:match('^(.*)/[^/]*$') or '.'
local root = here .. '/../..'
package.path = ('%s/lua/?.lua;%s/lua/?/init.lua;%s/?.lua;%s'):format(root, root, root, package.path)
require 'amp'
local helper = require 'spec.lib.helper'
helper.root, helper.build = root, os.getenv 'AMP_BUILD' or root .. '/build'

local filter, files = '', {}
for _, a in ipairs(arg) do
  local f = a:match '^%-%-filter=(.*)$'
  if f then filter = f else files[#files + 1] = a end
end

io.stdout:setvbuf 'no'
local names, passed, failed = {}, 0, 0
local progress = tonumber(os.getenv 'AMP_SPEC_PROGRESS')
local environment = setmetatable({ assert = require 'luassert' }, { __index = _G })

function environment.describe(name, f)
  names[#names + 1] = name
  f()
  names[#names] = nil
end

local cases = {}

function environment.it(name, f)
  local full = table.concat(names, ' ') .. ' ' .. name
  if full:find(filter) then cases[#cases + 1] = { full, f } end
end

local function run(full, f)
  local ok, e = xpcall(f, function(e) return type(e) == 'table' and tostring(e.message or e) or debug.traceback(tostring(e), 2) end)
  if ok then passed = passed + 1 else failed = failed + 1 end
  if progress and (passed + failed) % progress == 0 then print(('%d passed, %d failed so far'):format(passed, failed)) end
  if ok then return end
  print(('FAILED: %s\n    %s'):format(full, (e:gsub('\n', '\n    '))))
  io.flush()
end

function environment.pending(name) print('skipped: ' .. table.concat(names, ' ') .. ' ' .. name) end

for _, file in ipairs(files) do setfenv(assert(loadfile(file)), environment)() end
local backward = os.getenv 'AMP_SPEC_ORDER' == 'backward'
for i = 1, #cases do run(unpack(cases[backward and #cases + 1 - i or i])) end
print(('%d passed, %d failed'):format(passed, failed))
os.exit(failed == 0 and 0 or 1)
