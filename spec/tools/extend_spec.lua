--- The manual's walk to a new op (examples/guide/extending.md), carried out on a copy of the tree, block by block:
-- ```sh new is run there, ```c FILE appends to a file, ```c FILE after TEXT puts lines below the first that has TEXT,
-- before TEXT above it; instead of TEXT takes its place wherever it stands.
local H = require 'spec.lib.helper'

local once = os.getenv 'AMP_SPEC_SANITIZED'
local root = H.absolute(H.root)
local copy = H.tmp 'copy'
local page = H.read(H.root .. '/examples/guide/extending.md')
local clean = ("cd '%s' && env -u AMP_LIBRARY -u LUA_PATH "):format(copy)
local before = {} -- file -> its text at first

local function edit(info, body)
  local file, where, mark = info:match '^(%S+) (%l+) (.+)$'
  local path = copy .. '/' .. (file or info)
  local text = H.read(path)
  before[path] = before[path] or text
  if where == 'instead' then
    mark = assert(mark:match '^of (.+)$')
    local n
    text, n = text:gsub((mark:gsub('%p', '%%%0')), (body:gsub('%%', '%%%%')))
    assert.is_true(n > 0, mark .. ' is not in ' .. info)
  elseif where then
    local at = text:find(mark, 1, true)
    assert.is_not_nil(at, mark .. ' is not in ' .. info)
    local cut = where == 'before' and at - 1 or text:find('\n', at, true)
    text = text:sub(1, cut) .. body .. '\n' .. text:sub(cut + 1)
  else
    text = text:match '^(.-)\n*$' .. (info:find '%.c$' and '\n\n' or '\n') .. body .. '\n'
  end
  H.write(path, text)
end

-- Carries out the page; how many blocks were edits
local function apply()
  local n = 0
  for info, body in page:gmatch '\n```%a+ ([^\n]+)\n(.-)\n```' do
    if info == 'new' then
      local out, status = H.sh(clean .. body)
      assert.equal(0, status, out)
    elseif info ~= 'example' then
      edit(info, body)
      n = n + 1
    end
  end
  return n
end

local function run(command)
  local out, status = H.sh(clean .. command)
  assert.equal(0, status, out:sub(-3000))
  return out
end

describe('the walk to a new op', function()
  local built
  local function when_built(name, fn)
    it(name, function()
      if not built then return pending 'not built' end
      fn()
    end)
  end
  it('has nineteen edits and a command that build', function()
    if once then return pending 'once is enough' end
    local what = 'CMakeLists.txt lua spec src examples $(ls -d kernels .clang-format 2>/dev/null)'
    local out, status = H.sh(("mkdir -p '%s' && cd '%s' && tar cf - %s | tar xf - -C '%s'"):format(copy, root, what, copy))
    assert.equal(0, status, out)
    assert.equal(19, apply())
    H.write(H.tmp 'quick-cc', '#!/bin/sh\nexec cc "$@" -O0\n') -- the compiler need not optimize here
    out, status = H.sh(([[chmod +x '%s' && cd '%s' && CC='%s' cmake -S . -B build -DAMP_WERROR=ON -DAMP_ONEDNN=OFF -DAMP_LAPACK=OFF -DAMP_CUDA=OFF \
      -DAMP_TESTS=ON -DAMP_EMULATOR=OFF && cmake --build build --target amp test_kernels -j 2]]):format(H.tmp 'quick-cc', copy, H.tmp 'quick-cc'))
    assert.equal(0, status, out:sub(-3000))
    built = true
  end)
  when_built('makes ops that the spec of ops finds and passes', function()
    for _, name in ipairs { 'squareplus', 'log_cosh', 'pinball_loss' } do
      local out = run(('AMP_BUILD=build luajit spec/run.lua --filter=%s spec/ops/ops_spec.lua'):format(name))
      assert.is_true(tonumber(out:match '(%d+) passed, 0 failed') >= 8, out)
    end
  end)
  when_built('makes functions and methods, differentiable twice', function()
    H.write(copy .. '/example.lua', (page:match '\n```text example\n(.-)\n```'))
    assert.is_not_nil(run('lua/bin/amp example.lua'):find '0%.5.*1.*2')
  end)
  when_built('brings the help and the table of the manual along', function()
    local out = run 'lua/bin/amp examples/guide/ops.lua'
    assert.is_not_nil(out:find('| `squareplus` | f m _ | fp32 | floats |', 1, true), out)
    assert.is_not_nil(out:find('| `log_cosh` | f m _ | fp32 | floats |', 1, true), out)
  end)
  when_built('agrees with the policy list, the C test and the rules of the sources', function()
    run 'AMP_BUILD=build luajit spec/run.lua spec/unit/policy_spec.lua'
    assert.is_not_nil(run 'OMP_NUM_THREADS=1 AMP_ONEDNN=0 build/test_kernels':find 'passed, 0 failed')
  end)
  when_built('makes formulas that compile for GPUs', function()
    if os.execute 'command -v c++ >/dev/null 2>&1' ~= 0 then return pending 'no C++ compiler here' end
    run [[c++ -std=c++17 -fsyntax-only -Wno-unknown-pragmas -DAMP_EMULATED -Ispec/device/emulator -Isrc -Ibuild/gen -Ikernels -x c++ \
      kernels/elementwise/unary.cu]]
    run [[c++ -std=c++17 -fsyntax-only -Wno-unknown-pragmas -DAMP_EMULATED -Ispec/device/emulator -Isrc -Ibuild/gen -Ikernels -x c++ \
      kernels/loss/pair_loss.cu]]
  end)
  when_built('is laid out as clang-format does', function()
    local tool = os.execute 'clang-format --version 2>/dev/null | grep -q "version 14"' == 0
    if not tool then return pending 'clang-format 14 is not here' end
    before[copy .. '/src/ops/elementwise/activation.c'] = '' -- the command's
    for path in pairs(before) do
      if path:find '%.[ch]$' then
        local was = select(2, H.sh(("clang-format --dry-run -Werror --assume-filename='%s' < '%s'"):format(path, root .. path:sub(#copy + 1))))
        if was == 0 then run(("clang-format --dry-run -Werror '%s'"):format(path)) end
      end
    end
  end)
  it('takes five files for an op without settings, and none where something is wrong', function()
    if once then return pending 'once is enough' end
    local text = H.read(copy .. '/src/amp_ops.def')
    local function new(arguments) return H.sh(clean .. 'lua/bin/amp new op ' .. arguments) end
    for _, case in ipairs { { 'log_cosh', 1, 'there is an op log_cosh' }, { 'Bad', 2, 'no name of an op' }, { 'a_b --formula', 2, 'without a value' },
      { 'a_b --sample none', 2, '--sample' }, { 'a_b --policy fp99', 2, 'no class fp99' }, { 'a_b --policy e', 2, 'no class e' },
      { 'a_b --form a', 2, 'unknown option' }, { [[a_b --doc 'a "b".']], 2, '--doc' }, { '--help', 0, 'usage: amp new op NAME' },
      { '', 2, 'usage: amp new op NAME' } } do
      local out, status = new(case[1])
      assert.equal(case[2], status, out)
      assert.is_not_nil(out:find(case[3], 1, true), out)
    end
    assert.equal(text, H.read(copy .. '/src/amp_ops.def'))
    local out, status = new 'another'
    assert.equal(0, status, out)
    local _, files = out:gsub('\n  [^\n]*another', '')
    assert.equal(6, files, out) -- five, and the command that builds it
  end)
end)
