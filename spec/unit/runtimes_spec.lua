--- Other runtimes than the usual one, as far as they can be seen without them: a LuaJIT without GC64 or without its compiler,
-- processors whose `char` is unsigned, C libraries other than glibc, compilers that round products and sums as they like.
-- The runtimes themselves: spec/hosts/runtimes.sh.
local assert = require 'luassert'
local H = require 'spec.lib.helper'

local training = [[
amp.manual_seed(1)
local nn = amp.nn
local net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
local opt = amp.optim.AdamW(net:parameters(), { lr = 1e-2 })
local x, y = amp.randn(16, 6), amp.randint(1, 4, { 16 }, { dtype = 'int64' })
local inside = coroutine.wrap(function()
  return amp.autocast({ dtype = 'bfloat16' }, function()
    coroutine.yield(amp.is_autocast_enabled())
    return amp.is_autocast_enabled()
  end)
end)
assert(inside() and not amp.is_autocast_enabled() and inside() and not amp.is_autocast_enabled())
for _ = 1, 5 do
  amp.autocast({ dtype = 'bfloat16' }, function() return nn.functional.cross_entropy(net(x), y) end):backward()
  opt:step():clear_grad()
end
print(('%.17g'):format(nn.functional.cross_entropy(net(x), y):item()))
]]

local function lines_with(text, word)
  local _, n = text:gsub('[^\n]*' .. word .. '[^\n]*', '')
  return n
end

describe('LuaJIT', function()
  it('without GC64 works, and one warning says so', function()
    local path = H.tmp 'gc32.lua'
    H.write(path, [[
      local ffi = require 'ffi'
      local abi = ffi.abi
      ffi.abi = function(what) return what ~= 'gc64' and abi(what) end
    ]])
    local text, status = H.child(training .. 'amp.data.DataLoader(amp.data.TensorDataset(x, y), { batch_size = 4 })',
      ('-e "dofile [[%s]]"'):format(path))
    assert.equal(0, status, text)
    local warned = require('ffi').abi 'gc64' and 1 or 0 -- where all have it, the helper takes it out
    assert.equal(warned, lines_with(text, 'warning'), text)
    assert.equal(warned, lines_with(text, 'without GC64'), text)
  end)

  it('with GC64 is not warned of', function()
    if not require('ffi').abi 'gc64' then return end
    local text, status = H.child(training)
    assert.equal(0, status, text)
    assert.equal(0, lines_with(text, 'warning'), text)
  end)

  it('gives the same numbers interpreted', function()
    local compiled = H.child(training)
    local interpreted, status = H.child(training, '-joff')
    assert.equal(0, status, interpreted)
    assert.equal(compiled, interpreted)
  end)
end)

-- -- Sources, as other compilers and libraries see them --------------------------------------------------

local function has(tool) return (select(2, H.sh('command -v ' .. tool))) == 0 end

-- Sources that know of processors or C libraries
local function particular()
  return "$(grep -lE '__x86_64__|immintrin|__GLIBC__|AMP_CLONES|_GNU_SOURCE' -r src --include='*.c' | grep -vE '^src/(cuda|distributed/.*/|cpu/onednn)')"
end

local function compiles(compiler, files, more)
  local root, build = H.absolute(H.root), H.absolute(H.build)
  local text, status = H.sh(("(cd %s && for file in %s; do %s -std=gnu11 -fsyntax-only -Isrc -I%s/gen -Wall -Wextra -Werror " ..
    "-Wno-unused-parameter -Wno-unknown-pragmas %s $file || exit 1; done)"):format(H.quote(root), files, compiler, H.quote(build), more or ''))
  assert.equal(0, status, text)
end

describe('the sources', function()
  it('compare no char with what an unsigned one cannot be', function()
    compiles('cc -funsigned-char', "$(grep -lE '\\bchar [a-z_]+ *[=;,)]' -r src --include='*.c' | " ..
      "grep -vE '^src/(cuda|distributed/.*/|cpu/)')", '-Wtype-limits')
  end)

  for compiler, what in pairs { ['aarch64-linux-gnu-gcc'] = 'arm64', ['musl-gcc'] = 'musl', clang = 'Clang' } do
    if has(compiler) then
      it('compile for ' .. what, function() compiles(compiler, particular(), compiler == 'clang' and '-Wno-tautological-compare') end)
    end
  end

  if has 'musl-gcc' then
    it('make no symbols that only glibc resolves', function()
      local text, status = H.sh(("cd %s && printf '#include \"cpu/vector_math.h\"\\nAMP_CLONES void amp_f(void);' | " ..
        'musl-gcc -std=gnu11 -Isrc -E -xc - | tail -1'):format(H.quote(H.absolute(H.root))))
      assert.equal(0, status, text)
      assert.is_nil(text:find 'target_clones', text)
    end)
  end

  it('ask for variables of threads at a known distance by AMP_TLS_NEAR alone, which only glibc gives a library opened late', function()
    local text = H.sh(("cd %s && grep -rl 'tls_model' src"):format(H.quote(H.absolute(H.root))))
    assert.equal('src/base/base.h\n', text)
  end)

  it('say for each file whether a product and a sum are rounded once: in kernels, and nowhere else', function()
    local file = io.open(H.build .. '/compile_commands.json')
    if not file then return end -- a library that was installed
    local text = file:read '*a'
    file:close()
    local seen = { off = 0, once = 0 }
    for command, source in text:gmatch '"command": "([^\n]*)",\n%s*"file": "[^\n]-/(src/[^\n"]*)"' do
      if command:find('amp_core.dir', 1, true) then
        local last = command:match '.*%-ffp%-contract=(%a+)'
        local kernel = source:find '^src/cpu/' or source:find '^src/ops/' and not source:find '_shape%.c$' and not source:find '_derivative%.c$'
          and not source:find '_composite%.c$' and not source:find '/view%.c$'
          or source:find 'step_cpu%.c$' or source:find 'scale_cpu%.c$' or source:find 'combine%.c$'
        local wanted = kernel and (last == 'on' or last == 'fast') or not kernel and last == 'off'
        assert.is_true(wanted, source .. ' has -ffp-contract=' .. tostring(last))
        seen[kernel and 'once' or 'off'] = seen[kernel and 'once' or 'off'] + 1
      end
    end
    assert.is_true(seen.off > 50 and seen.once > 50)
  end)
end)
