--- The instructions that CPU kernels are chosen for, and their limit by the environment.
local assert = require 'luassert'
local H = require 'spec.lib.helper'

local program = [[
local name = require('ffi').string(require('amp.ffi').C.amp_cpu_isa())
amp.manual_seed(1)
local x, w = amp.randn(64, 96), amp.randn(96, 80)
local y = x:mm(w):exp():softmax(2):double()
local exact = x:double():mm(w:double()):exp():softmax(2)
print(('%s %.9f'):format(name, (y - exact):abs():max():item()))
]]

local function run(environment)
  local text, status = H.child(program, '', environment)
  return text, status, text:match '^(%a+%d*) ', tonumber((text:match ' ([%d.]+)\n'))
end

local rank = { baseline = 1, avx2 = 2, avx512 = 3 }

describe('AMP_CPU_ISA', function()
  it('is a limit: kernels are those of the processor or of the word, whichever has less', function()
    local _, status, most = run 'env -u AMP_CPU_ISA'
    assert.equal(0, status)
    for word, level in pairs(rank) do
      local text, child, name, wrong = run('AMP_CPU_ISA=' .. word)
      assert.equal(0, child, text)
      assert.equal(math.min(level, rank[most]), rank[name], word .. ' gave ' .. name)
      assert.is_true(wrong < 2e-5, text)
    end
  end)

  it('counts as not set where it is empty', function()
    local _, _, most = run 'env -u AMP_CPU_ISA'
    local _, _, name = run "AMP_CPU_ISA=''"
    assert.equal(most, name)
  end)

  it('is refused where the word is not known', function()
    local text, status = run 'AMP_CPU_ISA=avx1024'
    assert.is_true(status ~= 0)
    assert.is_truthy(text:find("AMP_CPU_ISA is 'avx1024'; baseline, avx2 and avx512 are known", 1, true), text)
  end)

  it('holds for the clones of functions too: some values are rounded in other places with FMA', function()
    local values = [[
      amp.manual_seed(2)
      local weights = amp.arange(1, 100004, { dtype = 'float64' }):sin()
      print(('%.17g'):format(((amp.rand(100003) * 1.1):exp():double() * weights):sum():item()))]]
    local by = {}
    for word in pairs(rank) do by[word] = H.child(values, '', 'OMP_NUM_THREADS=1 AMP_CPU_ISA=' .. word) end
    local _, _, most = run 'env -u AMP_CPU_ISA'
    if rank[most] > 1 then assert.is_true(by.baseline ~= by[most], by.baseline) end
    assert.equal(by[most], H.child(values, '', 'OMP_NUM_THREADS=1 env -u AMP_CPU_ISA'))
  end)
end)
