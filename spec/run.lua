--- Runs specs under busted: luajit spec/run.lua [busted options] [files]
-- amp and ffi are loaded before busted insulates files, and busted's own ffi
-- replacements (which remember types by their first argument) stay off, so a
-- module is loaded once and finalizers run. AMP_BUILD names the build folder.
local here = arg[0]:match('^(.*)/[^/]*$') or '.'
local root = here:match('^(.*)/spec$') or (here == 'spec' and '.') or (here .. '/..')
local build = os.getenv('AMP_BUILD') or (root .. '/build')

package.path = ('%s/lua/?.lua;%s/lua/?/init.lua;%s/?.lua;%s'):format(root, root, root, package.path)
package.cpath = ('%s/?.so;%s'):format(build, package.cpath)
package.loaded['busted.luajit'] = function() end
require 'ffi'
require 'amp'
local helper = require 'spec.lib.helper'
helper.root, helper.build = root, build

local files = {}
local options = { '-o', here .. '/lib/handler.lua' }
for _, a in ipairs(arg) do
  if a:match('_spec%.lua$') then files[#files + 1] = a else options[#options + 1] = a end
end
if #files == 0 then files[1] = here end
-- Between files busted takes out of package.loaded what the one before loaded: a part of amp that is loaded when first
-- used would be there twice, each with types of its own. Files of one process share it instead.
if #files > 1 or not files[1]:match '_spec%.lua$' then options[#options + 1] = '--no-auto-insulate' end
for _, f in ipairs(files) do options[#options + 1] = f end
for i = #arg, 1, -1 do arg[i] = nil end
for i, a in ipairs(options) do arg[i] = a end
require 'busted.runner'({ standalone = false })
os.exit(0, true)
