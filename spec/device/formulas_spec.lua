--- A row or a word of the op table without its formula on the GPU is an error when kernels are compiled, and so is a
-- word or a dtype that a switch over them does not name. Each case changes a list, a kernel (or the table) in a copy and
-- compiles one kernel as the emulator does, its syntax alone.
local H = require 'spec.lib.helper'

local root = H.absolute(H.root)
local there = select(2, H.sh 'command -v c++') == 0

-- Compiles a kernel; `first`: a folder whose files go before the tree's own, the kernel among them.
local function compile(kernel, first)
  local own = first and io.open(first .. '/' .. kernel)
  if own then own:close() end
  return H.sh(("cd '%s' && c++ -std=gnu++17 -Werror=switch -fsyntax-only -DAMP_EMULATED -Ispec/device/emulator %s -Isrc -I%s/gen -Ikernels -x c++ %s/%s")
    :format(root, first and '-I' .. H.quote(first) or '', H.absolute(H.build), own and first or 'kernels', kernel))
end

-- The file of kernels/ with one change, in a folder of its own
local function changed(file, from, to)
  local folder = H.tmp('formulas')
  local text, n = H.read(root .. '/kernels/' .. file):gsub(from, to)
  assert.equal(1, n, file .. ' has the line once')
  os.execute(("rm -rf '%s'; mkdir -p '%s/%s'"):format(folder, folder, file:match '^(.*)/'))
  H.write(folder .. '/' .. file, text)
  return folder
end

-- The table with another word in a choice, which the attribute's name and its first word tell
local function another_word(choice)
  local folder = H.tmp('table')
  local text, n = H.read(root .. '/src/amp_ops.def'):gsub(choice .. '[%w_,]*', '%0,another')
  assert.is_true(n > 0, choice)
  os.execute(("rm -rf '%s'; mkdir -p '%s'"):format(folder, folder))
  H.write(folder .. '/ops.def', text)
  local out, status = H.sh(("cmake -DIN='%s/ops.def' -DOUT='%s/op_args.h' -P '%s/src/base/op_args.cmake'"):format(folder, folder, root))
  assert.equal(0, status, out)
  return folder
end

-- ...: what the compiler says, all of it
local function refused(kernel, folder, ...)
  local out, status = compile(kernel, folder)
  assert.not_equal(0, status, kernel .. ' compiles')
  for _, why in ipairs { ... } do assert.truthy(out:find(why, 1, true), why .. '\n' .. out:sub(1, 600)) end
end

describe('a formula that a GPU lacks does not compile:', function()
  if not there then return pending('no C++ compiler') end
  it('all formulas are there', function()
    for _, kernel in ipairs { 'elementwise/unary.cu', 'elementwise/binary.cu', 'elementwise/slope.cu', 'loss/pair_loss.cu', 'norm/softmax.cu',
      'pool/pad.cu', 'resample/resample.cu', 'resample/grid_sample.cu', 'reduce/reduce.cu', 'order/sort.cu' } do
      local out, status = compile(kernel)
      assert.equal(0, status, out:sub(1, 600))
    end
  end)
  it('a row of a list', function()
    refused('elementwise/unary.cu', changed('elementwise/unary_formulas.h', 'ROW%(cbrt, SHARED, cbrt%(a%)%)', 'ROW(cbrt, SHARED)'), 'requires 3 arguments')
    refused('elementwise/binary.cu', changed('elementwise/binary_formulas.h', 'TEST%(lt, a < b%)', 'TEST(lt)'), 'requires 2 arguments')
  end)
  it('a row that no list has: its function is missing when the plug-in is linked', function()
    local folder = changed('elementwise/unary_formulas.h', 'ROW%(cbrt,[^\n]*\n', '')
    local flags = ('-DAMP_EMULATED -fvisibility=hidden -fPIC -c -Ispec/device/emulator -I%s -Isrc -I%s/gen -Ikernels'):format(folder, H.absolute(H.build))
    local unary, row, linked = folder .. '/unary.o', folder .. '/table.o', folder .. '/linked.so'
    local out = H.sh(("cd '%s' && c++ -std=gnu++17 %s -x c++ kernels/elementwise/unary.cu -o %s && cc -std=gnu11 %s src/cuda/cuda_device.c -o %s"
      .. ' && c++ -shared -Wl,-z,defs %s %s -o %s'):format(root, flags, unary, flags, row, unary, row, linked))
    assert.truthy(out:find('amp__cuda_cbrt', 1, true), out:sub(1, 600))
    assert.is_nil(out:find('amp__cuda_tanh\'', 1, true))
    assert.truthy(H.read(root .. '/CMakeLists.txt'):find('target_link_options%(amp_cuda_emulated PRIVATE %-Wl,%-z,defs%)'))
  end)
  it('a row whose function is written out', function()
    refused('elementwise/unary.cu', changed('elementwise/unary_formulas.h', 'ROW%(gelu, OWN[^\n]*\n', ''), 'no formula for floats')
    refused('elementwise/unary.cu', changed('elementwise/unary_formulas.h', 'WHOLE%(bitwise_not[^\n]*\n', ''), 'no formula for integers')
    refused('elementwise/binary.cu', changed('elementwise/binary_formulas.h', 'BOTH%(sub, OWN[^\n]*\n', ''), 'no formula for')
  end)
  it('a word of a slope', function()
    refused('elementwise/slope.cu', changed('elementwise/slope_formulas.h', 'SLOPE%(PLAIN, SHRINK[^\n]*\n', ''), 'a function without its formula')
    refused('elementwise/slope.cu', changed('elementwise/slope_formulas.h', 'PAIR%(PLAIN, RATIO[^\n]*\n', ''), 'a term without its formula')
  end)
  it('an operation of a reduction', function()
    refused('reduce/reduce.cu', changed('reduce/fold_formulas.h', 'FOLD%(ANY[^\n]*\n', 'FOLD(ANY, 0)\n'), 'requires 4 arguments')
  end)
  it('a formula of softmax', function()
    refused('norm/softmax.cu', changed('norm/softmax.cu', ', 1 / c%.sum, a %* c%.sum%)', ', 1 / c.sum)'), 'requires 4 arguments')
  end)
  it('a case of a switch', function()
    -- one compilation a kernel: each of the words is missed
    local kernels = {
      ['pool/pad.cu'] = { 'PAD_MODE_REFLECT: return', 'PAD_MODE_CONSTANT: there' },
      ['resample/resample.cu'] = { 'RESAMPLE_MODE_CUBIC: return 2', 'RESAMPLE_MODE_LINEAR: return fabs', 'RESAMPLE_MODE_NEAREST_EXACT: from' },
      ['resample/grid_sample.cu'] = { 'PADDING_MODE_REFLECTION:\n    if', 'PADDING_MODE_BORDER:\n  case PADDING_MODE_REFLECTION',
        'GRID_SAMPLE_MODE_NEAREST: AMP_LAUNCH' },
    }
    for kernel, cases in pairs(kernels) do
      local text = H.read(root .. '/kernels/' .. kernel)
      for i, case in ipairs(cases) do -- a label that nothing goes to takes its place
        local n
        text, n = text:gsub('case ' .. case, ('label_%d'):format(i) .. case:match '^[%u_]+(.*)$')
        assert.equal(1, n, case)
      end
      local folder = H.tmp('switch')
      os.execute(("rm -rf '%s'; mkdir -p '%s/%s'"):format(folder, folder, kernel:match '^(.*)/'))
      H.write(folder .. '/' .. kernel, text)
      local words = {}
      for i, case in ipairs(cases) do words[i] = ("‘%s’ not handled in switch"):format(case:match '^[%u_]+') end
      refused(kernel, folder, unpack(words))
    end
  end)
  it('a dtype of a switch', function()
    refused('reduce/reduce.cu', changed('reduce/reduce.cuh', 'case AMP_INT16:', 'gone:'), '‘AMP_INT16’ not handled in switch')
    refused('order/sort.cu', changed('order/sort.cuh', 'case AMP_INT8:', 'gone:'), '‘AMP_INT8’ not handled in switch')
  end)
  it('a case of a switch over what a launch is told', function()
    refused('matmul/gemm_small.cu', changed('matmul/gemm_small.cu', '      case AMP_EPI_BIAS:\n', ''), 'AMP_EPI_BIAS')
    refused('random/random.cu', changed('random/random.cu', 'enum distribution { UNIFORM', 'enum distribution { ANOTHER, UNIFORM'), 'ANOTHER')
    refused('fft/fft.cu', changed('fft/fft.cu', 'enum transform { COMPLEX', 'enum transform { ANOTHER, COMPLEX'), 'three transforms')
  end)
  it('a word of the op table', function()
    refused('loss/pair_loss.cu', another_word 'kind:el1', 'not in pair_formulas.h')
    refused('matmul/linear_act.cu', another_word 'act:erelu', 'has no formula')
    refused('pool/pad.cu', another_word 'mode:econstant', 'four modes')
    refused('index/scatter.cu', another_word 'reduce:esum', 'no way to combine')
    refused('resample/resample.cu', another_word 'mode:enearest,nearest%-exact', 'four modes')
    refused('resample/grid_sample.cu', another_word 'mode:ebilinear,nearest', 'three of each')
    refused('resample/grid_sample.cu', another_word 'padding_mode:ezeros', 'three of each')
    refused('rnn/rnn_step.cu', another_word 'mode:etanh', 'four modes')
    refused('loss/loss.cu', another_word 'reduction:enone', 'what each reduction does')
    refused('loss/pair_loss.cu', another_word 'reduction:enone', 'left as they are or divided')
  end)
end)
