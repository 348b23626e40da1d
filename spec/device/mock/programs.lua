--- Random training programs (spec/train/programs_spec.lua) on the mock GPU: every program is the reference interpreter's.
-- Run by device_spec.lua in a process of its own; prints a line for every ten programs.
local amp = require 'amp'
local mock = require 'spec.device.mock.device'
local generate = require 'spec.train.programs.generate'
local play = require 'spec.train.programs.play'
local real = require 'spec.train.programs.real'
local reference = require 'spec.train.programs.reference'

amp.set_default_device 'cuda'
reference.low = amp.get_autocast_dtype()
for first = 1, 391, 10 do
  mock.case(('programs %d to %d'):format(first, first + 9), function()
    for seed = first, first + 9 do
      local program = generate.program(seed)
      local ok, notes = pcall(play.play, program, real)
      if not ok then pcall(real.stop) end
      local wrong = ok and play.difference(notes, play.play(program, reference)) or not ok and tostring(notes)
      if wrong then error(generate.text(program) .. '\n' .. wrong, 0) end
    end
  end)
end
print 'end'
