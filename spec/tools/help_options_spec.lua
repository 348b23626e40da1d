--- What the prompt says of options and of the machine, against what the code takes.
local H = require 'spec.lib.helper'
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
  it('shows every option of amp.autocast, and the defaults as they are', function()
    local ok, e = pcall(amp.autocast, { zzz = 1 }, function() end)
    assert.is_false(ok)
    local list = {}
    for k in tostring(e):match '%(there are (.-)%)':gmatch '[%w_]+' do list[#list + 1] = k end
    table.sort(list)
    assert.equal(table.concat(list, ', '), shown(amp.autocast))
    assert.equal(table.concat(list, ', '), shown(amp.autocast.wrap))
    assert.is_true(calls.options(amp.autocast).enabled.default)
    assert.equal(2000, calls.options(amp.GradScaler).growth_interval.default)
  end)
  it('shows every option of each schedule', function()
    local opt = amp.optim.SGD { amp.ones(1):requires_grad_() }
    local n = 0
    for k in pairs(names.members(amp.optim.lr_scheduler)) do
      local known = k:find '^%u' and taken(function() return amp.optim.lr_scheduler[k](opt, { zzz = 1 }) end)
      if known then
        n = n + 1
        assert.equal(known, shown(amp.optim.lr_scheduler[k]), k)
      end
    end
    assert.is_true(n >= 12, n .. ' schedules were looked at')
  end)
  it('shows every option of LARC and LBFGS', function()
    local opt = amp.optim.SGD { amp.ones(1):requires_grad_() }
    assert.equal(taken(function() amp.optim.LARC(opt, { zzz = 1 }) end), shown(amp.optim.LARC))
    local ok, e = pcall(amp.optim.LBFGS, { amp.ones(1):requires_grad_() }, { zzz = 1 })
    assert.is_false(ok)
    local list = tostring(e):match '%(there are (.-)%)':gsub('params, ', '')
    assert.equal(list, shown(amp.optim.LBFGS))
  end)
  it('shows the options of every optimizer that a trainer makes, and none that all of them refuse', function()
    local w, options = amp.ones(2):requires_grad_(), calls.options(amp.optim.Trainer)
    local of = {}
    for _, name in ipairs { 'SGD', 'Adam', 'AdamW', 'RMSprop', 'Adagrad', 'LAMB' } do
      for k, default in pairs(amp.optim[name].defaults) do
        assert.is_not_nil(options[k], name .. ' ' .. k)
        of[k] = of[k] or { name, default }
      end
    end
    for k, o in pairs(options) do
      local made, e = pcall(amp.optim.Trainer, { w }, of[k] and of[k][1]:lower() or 'sgd', { [k] = of[k] and of[k][2] or o.default })
      assert.is_true(made, k .. ': ' .. tostring(e))
      assert.is_true(of[k] ~= nil or ('name rescale_grad kvstore update_on_kvstore multi_precision'):find(k, 1, true) ~= nil, k)
    end
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

describe('the reference and the stub for editors', function()
  it('show options of what can be called as the prompt does', function()
    local page, stub = H.read(H.root .. '/examples/guide/reference.md'), H.read(H.root .. '/examples/guide/amp.meta.lua')
    for _, piece in ipairs { "`amp.autocast({base = 'bfloat16', cache_enabled = true, device, dtype, enabled = true, ",
      '`amp.optim.LARC(optimizer, {clip = true, eps = 1e-08, trust_coefficient = 0.02})`', 'line_search_fn, lr = 1, max_eval',
      '`amp.optim.lr_scheduler.StepLR(opt, {gamma = 0.1, step_size})`' } do
      assert.is_not_nil(page:find(piece, 1, true), piece)
    end
    for _, piece in ipairs { '---@overload fun(fn: function, ...: any): any\n', '---@overload fun(options: {base?: ',
      'function amp.optim.LARC(optimizer, options) end', 'trust_coefficient?: number}', 'line_search_fn?: any' } do
      assert.is_not_nil(stub:find(piece, 1, true), piece)
    end
    assert.is_nil(stub:find('...?:', 1, true))
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
    local build = H.absolute(H.build) -- the tree finds build/ alone
    local library = build:find '/build$' and '' or 'AMP_LIBRARY=' .. H.quote(build .. '/amp/libamp.so') .. ' '
    local out = H.sh('cd ' .. H.quote(H.root) .. ' && env -u LUA_PATH ' .. library .. 'luajit examples/gears.lua 2>&1')
    assert.is_not_nil(out:find('manual +loss'), out)
  end)
end)
