--- The core over a device that is not the CPU, proved on a mock GPU (spec/c/plugin_mock.c): a plug-in
-- that queues every launch, lets the host touch no device memory, and counts what the host reads.
-- mock/steps.lua trains on it, mock/faces.lua by levels, handles and trainers, mock/programs.lua plays random programs
-- there, and mock/ops.lua takes every op, each in a process of its own.
local H = require 'spec.lib.helper'

-- Lines of a script's process: 'ok NAME', 'wrong NAME: WHY', last 'end'.
local function lines_of(script)
  local dir = H.absolute(H.build) .. '/mock'
  local out = H.child(("arg = {[0] = '%s'} dofile('%s/spec/device/mock/%s')"):format(script, H.absolute(H.root), script), nil,
    'AMP_MOCK=' .. H.quote(dir))
  local list = {}
  for line in out:gmatch '[^\n]+' do list[#list + 1] = line end
  return list, out
end

for script, what in pairs { ['steps.lua'] = 'training on a device', ['ops.lua'] = 'every op on a device',
  ['faces.lua'] = 'levels, handles and trainers on a device', ['programs.lua'] = 'random programs on a device' } do
  describe(what, function()
    local list, out = lines_of(script)
    it('comes to its end', function() assert.equal('end', list[#list], out:sub(-2000)) end)
    for _, line in ipairs(list) do
      local name = line:match '^ok (.*)$'
      local bad, why = line:match '^wrong (.-): (.*)$'
      if name then it(name, function() end)
      elseif bad then it(bad, function() error(why, 0) end) end
    end
    it('did something', function() assert.is_true(#list > 30, out) end)
  end)
end
