--- What the prompt says of options and of the machine, against what the code takes.
local H = require 'spec.helper'
local amp = require 'amp'
local calls = require 'amp.repl.calls'
local help = require 'amp.repl.help'
local names = require 'amp.repl.names'

-- The options that an error about one which does not exist names; nil: it named none
local function taken(make)
  local ok, e = pcall(make)
  local list = not ok and tostring(e):match "unknown option 'zzz'.-%(known: (.-)%)"
  return list
end

local function shown(class)
  local list = {}
  for k in pairs(calls.options(class)) do list[#list + 1] = k end
  table.sort(list)
  return table.concat(list, ', ')
end

describe('?Name', function()
  it('shows exactly the options that each module takes', function()
    local n = 0
    for k in pairs(names.members(amp.nn)) do
      local class = amp.nn[k]
      local known = k:find '^%u' and (taken(function() return class({ zzz = 1 }) end) or taken(function() return class(1, { zzz = 1 }) end))
      if known then
        n = n + 1
        assert.equal(known, shown(class), k)
      end
    end
    assert.is_true(n >= 90, n .. ' modules were looked at')
  end)
  it('shows the default of each option', function()
    local text = help.text 'LayerNorm'
    assert.is_not_nil(text:find('bias = true, elementwise_affine = true, eps = 1e-05', 1, true), text)
  end)
  it('shows no option that an optimizer refuses', function()
    local w = amp.ones(2):requires_grad_()
    for k in pairs(names.members(amp.optim)) do
      local class = amp.optim[k]
      for name, o in pairs(type(class) == 'table' and type(rawget(class, 'defaults')) == 'table' and calls.options(class) or {}) do
        local ok, e = pcall(class, { w }, { lr = 0.1, [name] = o.default })
        assert.is_true(ok or not tostring(e):find 'unknown option', k .. ': ' .. tostring(e))
      end
    end
  end)
end)

describe('amp doctor', function()
  local cure = require('amp.tools.machine').cuda_cure
  local why = 'its plug-in libamp_cuda.so is not in /x'
  local function rows(driver, toolkit) return { { what = 'CUDA driver', state = driver }, { what = 'CUDA toolkit', state = toolkit } } end
  it('says of the part for the GPU what holds on this machine', function()
    assert.is_not_nil(cure(why, rows('missing', 'ok')):find('no usable GPU', 1, true))
    assert.is_not_nil(cure(why, rows('ok', 'ok')):find('build amp again', 1, true))
    assert.is_not_nil(cure(why, rows('ok', 'missing')):find('install the CUDA toolkit', 1, true))
    assert.is_not_nil(cure(why, rows('missing', 'missing')):find('without a GPU', 1, true))
    assert.is_nil(cure('no driver', rows('missing', 'ok')))
  end)
end)

describe('a cell in a loop', function()
  it('may have its result changed in place; of an input or a state changed in place the error names the cure', function()
    for _, which in ipairs { 'LSTMCell', 'GRUCell', 'RNNCell' } do
      local function run(change)
        local cell, x, state = amp.nn[which](3, 4), amp.ones(3, 2, 3), nil
        local last
        for t = 1, 3 do
          local input = x[t] * 1
          local h, c = cell(input, state)
          change(input, h, last)
          last, state = h, c and { h, c } or h
        end
        last:sum():backward()
      end
      run(function(_, h) h:mul_(0.5) end)
      H.fails(function() run(function(input) input:mul_(0.5) end) end, 'changed in place', 'use a copy (:clone())')
      H.fails(function() run(function(_, _, last) if last then last:mul_(0.5) end end) end, 'changed in place', 'use a copy (:clone())')
    end
  end)
end)

describe('an example', function()
  it('finds the tree it lies in, with no LUA_PATH set', function()
    local out = H.sh('cd ' .. H.quote(H.root) .. ' && env -u LUA_PATH luajit examples/gears.lua 2>&1')
    assert.is_not_nil(out:find('manual +loss'), out)
  end)
end)
