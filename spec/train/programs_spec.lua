--- Random training programs: every construct in every other, errors, coroutines that yield or are given up, hooks, edits of
-- gradients, in the gears of a scaler, in levels, handles and trainers. Each is played by amp and by a reference
-- interpreter in plain numbers (spec/train/programs): values, dtypes, states, gradients, scales and weights are the same at every
-- point, and nothing is left behind; on a GPU too, where there is one. AMP_PROGRAMS=10000 plays so many, AMP_SEED=n begins at seed n.
local H = require 'spec.lib.helper'
local amp = require 'amp'
local generate = require 'spec.train.programs.generate'
local play = require 'spec.train.programs.play'
local real = require 'spec.train.programs.real'
local reference = require 'spec.train.programs.reference'

local count, first = tonumber(os.getenv 'AMP_PROGRAMS') or 500, tonumber(os.getenv 'AMP_SEED') or 1

local function check(seed)
  local program = generate.program(seed)
  local want = play.play(program, reference)
  local ok, got = pcall(play.play, program, real)
  if not ok then pcall(real.stop) end
  local wrong = not ok and tostring(got) .. '\n' .. tostring(amp.traceback()) or ok and play.difference(got, want)
  if wrong then error(generate.text(program) .. '\n' .. wrong, 0) end
  return got
end

describe('random programs', function()
  it(('seeds %d to %d: what the reference interpreter says, and no state left behind'):format(first, first + count - 1), function()
    local notes, kinds = 0, {}
    for seed = first, first + count - 1 do
      for _, note in ipairs(check(seed)) do
        notes = notes + 1
        kinds[note[1]:match '^%a+'] = true
      end
    end
    assert.is_true(notes > 20 * count, notes)
    for _, kind in ipairs { 'caught', 'state', 'scaled', 'unscaled', 'found', 'block', 'scales', 'edited', 'derivative', 'after', 'kept', 'trained' } do
      assert.is_true(kinds[kind] or count < 100, 'no program has a note ' .. kind)
    end
  end)
  it('the same on a GPU', function()
    if not amp.cuda.is_available() then return pending 'there is no GPU' end
    local low = reference.low
    amp.set_default_device 'cuda'
    reference.low = amp.get_autocast_dtype()
    local ok, e = pcall(function() for seed = first, first + count - 1 do check(seed) end end)
    amp.set_default_device 'cpu'
    reference.low = low
    if not ok then error(e, 0) end
  end)
  it('memory stays flat over them', function()
    for seed = 1, 40 do check(seed) end
    local before, least = H.live(), math.huge -- compiled traces hold a few tensors, others from round to round
    for _ = 1, 5 do
      for seed = 1, 40 do check(seed) end
      least = math.min(least, H.live())
    end
    assert.is_true(least < before + 64 * 1024, ('%d bytes more'):format(least - before))
  end)
  it('a machine that is wrong is told from one that is right', function()
    for _, name in ipairs { 'no_grad', 'off', 'clear_grads', 'double', 'region' } do
      local broken = setmetatable({}, { __index = reference })
      broken[name] = ({
        no_grad = function(env, f) return f(env) end, off = function(env, f) return f(env) end, clear_grads = function() end,
        double = function(g) return g end,
        region = function(env, o, f) return reference.region(env, { enabled = o.enabled, dtype = 'bfloat16' }, f) end,
      })[name]
      local told = false
      for seed = 1, 60 do
        local program = generate.program(seed)
        local ok, notes = pcall(play.play, program, broken)
        told = told or not ok or play.difference(notes, play.play(program, reference)) ~= nil
      end
      assert.is_true(told, name)
    end
  end)
end)
