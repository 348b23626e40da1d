--- The benchmarks for GPUs run on a CPU too, small and without PyTorch; what they count gives the known floors.
local H = require 'spec.lib.helper'
local counts = dofile(H.root .. '/examples/bench/gpu/counts.lua')

local function run(script, options)
  local root, build = H.absolute(H.root), H.absolute(H.build)
  return H.sh(("cd '%s' && LUA_PATH='lua/?.lua;lua/?/init.lua;;' AMP_LIBRARY='%s/amp/libamp.so' luajit examples/bench/%s %s"):format(
    root, build, script, options))
end

describe('the counted model', function()
  -- an H100: bytes/s copied, FLOP/s of 16-bit and float32 products
  local card = { copy = 3.0e12, low = 790e12, high = 50e12 }
  it('counts the recipe: 0.137 TFLOP, 1.07 GB, 0.42 ms, and less in bfloat16', function()
    local o = { precision = 'fp16', batch = 512, width = 4096, layers = 3, opt = 'sgd' }
    local floor, predicted, work = counts.time('mlp', o, card)
    assert.is_true(math.abs(floor - 0.42) < 0.01, tostring(floor))
    assert.is_true(math.abs(work.flops - 0.137e12) < 0.001e12 and math.abs(work.bytes - 1.08e9) < 0.02e9)
    assert.is_true(predicted.captured > floor and predicted.eager > predicted.captured)
    o.precision = 'bf16'
    assert.is_true(math.abs(counts.time('mlp', o, card) - 0.35) < 0.01)
    o.opt = 'adamw' -- 16 bytes a parameter more
    local parameters = 3 * (4096 ^ 2 + 4096)
    local _, _, more = counts.time('mlp', o, card)
    o.opt = 'sgd'
    local _, _, less = counts.time('mlp', o, card)
    assert.equal(16 * parameters, more.bytes - less.bytes)
  end)
  it('counts ResNet-50 and GPT-2', function()
    local floor, _, work = counts.time('resnet', { precision = 'fp16', batch = 256, size = 224, width = 64, blocks = '3,4,6,3', classes = 1000 }, card)
    assert.is_true(math.abs(work.flops - 6.22e12) < 0.01e12 and math.abs(floor - 29.0) < 0.5, tostring(floor))
    _, _, work = counts.time('gpt2', { precision = 'bf16', batch = 32, tokens = 1024, width = 768, layers = 12, heads = 12, vocabulary = 50257 }, card)
    assert.is_true(math.abs(work.flops - 26.5e12) < 0.1e12)
  end)
end)

describe('the benchmark commands', function()
  it('targets: a line for each row and form, with what was counted; the same as TSV', function()
    local file = H.tmp 'targets.tsv'
    local out, status = run('gpu/targets.lua', ("--tiny device=cpu python=none rounds=1 seconds=0.001 warm=0.001 reps=2 'rows=3 x 64,GPT' out=%s"):format(file))
    assert.equal(0, status, out)
    for _, name in ipairs { '3 x 64 b32 fp16', 'GPT-2 124M 16x1024 bf16' } do
      for _, mode in ipairs { 'eager', 'captured' } do
        local rest = H.read(file):match('\n' .. name:gsub('%-', '%%-') .. '\t' .. mode .. '\t([^\n]*)')
        assert.is_string(rest, H.read(file) .. out)
        local kernels, _, _, floor, predicted, ours = rest:match '^(%d+)\t([%d.]+)\t([%d.]+)\t([%d.]+)\t([%d.]+)\t([%d.]+)'
        assert.is_true(tonumber(kernels) > 10 and tonumber(predicted) > tonumber(floor) and tonumber(ours) > 0, rest)
      end
    end
    assert.is_nil(out:find('failed', 1, true), out)
    assert.is_truthy(out:find('PyTorch: none (not asked for)', 1, true), out)
    local list = run('gpu/targets.lua', '--list')
    assert.equal(37, select(2, list:gsub('\n', '')), list)
    out, status = run('gpu/case.lua', 'mlp fp16 eager depth=3 device=cpu')
    assert.is_true(status ~= 0 and out:find("no size 'depth'", 1, true) ~= nil, out)
  end)
  it('ladder: GB/s of each op and size', function()
    local file = H.tmp 'ladder.tsv'
    local out, status = run('kernels/ladder.lua',
      'device=cpu python=none sizes=4K,16K only=add,layer_norm,adamw,unscale seconds=0.0005 warm=0.0005 reps=1 out=' .. file)
    assert.equal(0, status, out)
    assert.is_nil(out:find('failed', 1, true), out)
    for _, name in ipairs { 'add', 'layer_norm and backward', 'adamw', 'unscale and check' } do
      for size, bytes in H.read(file):gmatch('\n' .. name .. '\t(%d+)K\t(%d+)\t[%d.]+\t%-\t[%d.]+\t') do
        assert.is_true(tonumber(bytes) >= tonumber(size) * 1024)
        name = nil
      end
      assert.is_nil(name, out)
    end
  end)
  it('attention: milliseconds and TFLOP/s of both ways', function()
    local out, status = run('kernels/attention.lua', 'small device=cpu dtype=float32')
    assert.equal(0, status, out)
    local line = '%s +([%%d.]+) ms +[%%d.]+ +(%%-?[%%d.]+) ms +%%-?[%%d.]+\n'
    for _, shape in ipairs { '\n1 x 100 x 2 x 64 causal', '\n1 x 64 x 1 x 128' } do
      local forward = out:match(line:format(shape))
      assert.is_true(forward ~= nil and tonumber(forward) > 0, out)
    end
  end)
  it('curves: losses of ours, which go down', function()
    local file = H.tmp 'curves.tsv'
    local out, status = run('gpu/curves.lua', ('--tiny device=cpu python=none rows=gpt2 steps=12 dir=%s out=%s'):format(file:match '^(.*)/', file))
    assert.equal(0, status, out)
    local mixed, full = {}, {}
    for a, b in H.read(file):gmatch 'gpt2\t%d+\t([%d.]+)\t([%d.]+)' do
      mixed[#mixed + 1], full[#full + 1] = tonumber(a), tonumber(b)
    end
    assert.equal(12, #mixed)
    assert.is_true(mixed[12] < 0.95 * mixed[1], out)
    for i = 1, 12 do assert.is_true(math.abs(mixed[i] - full[i]) < 0.01 * full[i] and mixed[i] ~= full[i], out) end
  end)
  local sanitized = os.getenv 'AMP_SPEC_SANITIZED' -- which keeps what is freed
  ;(sanitized and pending or it)('steady: memory grows by nothing, the loss stays finite', function()
    local out, status = run('gpu/steady.lua', 'device=cpu steps=4000 width=16 batch=4')
    assert.equal(0, status, out)
    for _, mode in ipairs { 'eager', 'captured' } do
      local last, first = out:match('steady_' .. mode .. '_loss ([%d.e+-]+) %(from ([%d.]+),')
      assert.is_true(tonumber(last) < tonumber(first), out)
      assert.is_true(tonumber(out:match('steady_' .. mode .. '_gpu ([%d.]+) MB <= 8')) <= 8, out)
    end
  end)
end)
