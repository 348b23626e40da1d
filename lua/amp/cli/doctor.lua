--- `amp doctor`: what the machine offers, what is missing and how to get it.
-- Exit status 0 if amp works here, even without what it can do without; 1 if it does not.
-- @module amp.cli.doctor
local marks = { ok = 'ok', missing = '-', broken = '!!' }

return function(...)
  if select('#', ...) > 0 then
    io.stderr:write(("amp: doctor takes no arguments, got '%s'\n"):format(tostring((...))))
    return 2
  end
  local list = require('amp.tools.machine').report()
  local broken, missing = 0, 0
  for _, r in ipairs(list) do
    local first = true
    for line in (r.text .. '\n'):gmatch '(.-)\n' do
      if line ~= '' then io.stdout:write(('%-2s %-16s %s\n'):format(first and marks[r.state] or '', first and r.what or '', line)) end
      first = false
    end
    if r.cure then io.stdout:write(('   %-16s -> %s\n'):format('', r.cure)) end
    broken = broken + (r.state == 'broken' and 1 or 0)
    missing = missing + (r.state == 'missing' and 1 or 0)
  end
  io.stdout:write('\n', broken > 0 and 'something is wrong here: see the lines with !!\n'
    or missing > 0 and 'amp works here; lines with - tell what it does without\n' or 'amp works here, nothing is missing\n')
  return broken > 0 and 1 or 0
end
