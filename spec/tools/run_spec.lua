--- spec/run.sh: lanes, tallies, stages that die, hang or need a build that failed. Its stages are replaced by small ones.
local H = require 'spec.lib.helper'

local root, tree = H.absolute(H.root), H.tmp 'tree'

-- What spec/run.sh says with these stages in place of spec/lib/stages.sh
local function run(stages, arguments, environment)
  H.sh(("rm -rf '%s' && mkdir -p '%s/spec/lib' '%s/spec/ops' && cp '%s/spec/run.sh' '%s/spec/'"):format(tree, tree, tree, root, tree))
  H.write(tree .. '/spec/ops/some_thing_spec.lua', '')
  H.write(tree .. '/spec/lib/stages.sh', 'stage() { case $1 in ' .. stages .. ' *) add 0 100 ;; esac; }\n')
  return H.sh(("cd '%s' && TMPDIR='%s' %s sh spec/run.sh %s"):format(tree, tree, environment or '', arguments))
end
local function last(out) return out:match '([^\n]*)\n$' end

local BUILDS = 'build-*) : >"$work/$1.built"; add 1 0 ;; '

describe('spec/run.sh', function()
  it('runs two stages side by side and adds up what they passed and failed', function()
    -- each waits for the other one
    local wait = [[%s) : >"$work/%s.here"; n=0; while [ ! -f "$work/%s.here" ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
      echo %s-a; echo %s-b; [ $n -lt 100 ] && add 10 0 ;; ]]
    local stages = wait:format('isa', 'isa', 'emulator', 'isa', 'isa') .. wait:format('emulator', 'emulator', 'isa', 'em', 'em')
    local out, status = run(BUILDS .. stages, 'isa emulator')
    assert.equal('21 passed, 0 failed', last(out), out)
    assert.equal(0, status)
    assert.is_not_nil(out:find('isa-a\nisa-b\n', 1, true), out) -- a log is printed whole
    assert.is_not_nil(out:find('em-a\nem-b\n', 1, true), out)
  end)
  it('builds before what needs the build, once', function()
    local out = run([[build-release) sleep 0.5; echo building; : >"$work/$1.built"; add 1 0 ;;
      isa | emulator) [ -f "$work/build-release.built" ] && add 1 0 ;; ]], 'isa emulator')
    assert.equal('3 passed, 0 failed', last(out), out)
    assert.equal(1, select(2, out:gsub('building', '')))
  end)
  it('counts a stage that dies as a failure, with what it had passed', function()
    local out, status = run(BUILDS .. 'isa) add 5 0; kill -9 $$ ;; tsan) add 2 0 ;;', 'isa tsan')
    assert.equal('8 passed, 1 failed', last(out), out)
    assert.equal(1, status)
    assert.is_not_nil(out:find('stage isa did not come to its end', 1, true), out)
  end)
  it('ends a stage that hangs', function()
    local out, status = run(BUILDS .. 'isa) add 5 0; sleep 100 ;; tsan) add 2 0 ;;', 'isa tsan', 'STAGE_LIMIT=1')
    assert.equal('8 passed, 1 failed', last(out), out)
    assert.equal(1, status)
    out = run(BUILDS .. 'isa) add 5 0; sleep 100 ;;', 'isa', 'STAGE_LIMIT=1') -- alone
    assert.equal('6 passed, 1 failed', last(out), out)
  end)
  it('fails where nothing ran, and where a name means nothing', function()
    local out, status = run('tsan) ;;', 'tsan')
    assert.equal('0 passed, 0 failed', last(out), out)
    assert.equal(1, status)
    out, status = run(BUILDS .. 'tsan) add 1 0 ;;', 'tsan nonsense')
    assert.equal('1 passed, 1 failed', last(out), out)
    assert.equal(1, status)
    assert.is_not_nil(out:find('no stage or spec file nonsense', 1, true), out)
  end)
  it('finds a spec by its path, its name, and its name without an end', function()
    for _, name in ipairs { 'spec/ops/some_thing_spec.lua', 'some_thing_spec.lua', 'some_thing', 'spec/some_thing_spec.lua' } do
      local out = run(BUILDS .. 'spec/ops/some_thing_spec.lua) add 7 0 ;;', name)
      assert.equal('8 passed, 0 failed', last(out), name .. out)
    end
    local out = run(BUILDS .. 'specs/ops) add 7 0 ;;', 'specs/ops')
    assert.equal('8 passed, 0 failed', last(out), out)
  end)
  it('lists the ten slowest', function()
    local out = run(BUILDS .. 'tsan) add 1 0; for n in 1 2 3 4 5 6 7 8 9 10 11 12; do printf "%5d spec%d\\n" $n $n >>"$times"; done ;;', 'tsan')
    local list = out:match 'the slowest, in seconds:\n(.-)\n\n'
    assert.equal(10, select(2, list:gsub('spec', '')), out)
    assert.equal('   12 spec12', list:match '^[^\n]*')
  end)
  it('says at the end what was skipped and why, and fails with CI', function()
    local stages = BUILDS .. 'tsan) skip tsan "no library"; add 2 0 ;; isa) add 1 0 ;;'
    local out, status = run(stages, 'tsan isa', 'CI=')
    assert.equal('4 passed, 0 failed', last(out), out)
    assert.equal(0, status)
    assert.is_not_nil(out:find('\nSKIPPED tsan: no library\n\n4 passed, 0 failed\n$'), out)
    out, status = run(stages, 'tsan isa', 'CI=true')
    assert.equal('4 passed, 1 failed', last(out), out)
    assert.equal(1, status)
    out = run(BUILDS .. 'isa) add 1 0 ;;', 'isa', 'CI=')
    assert.is_nil(out:find('SKIPPED', 1, true), out)
  end)
  -- what spec/lib/stages.sh itself does where a stage's tool is missing
  it('skips tsan and emulator aloud where their tools are missing', function()
    run('', 'nonsense')
    H.write(tree .. '/cc', '#!/bin/sh\necho no libtsan >&2\nexit 1\n')
    H.sh(("cp '%s/spec/lib/stages.sh' '%s/spec/lib/' && cd '%s' && mkdir -p bin && mv cc bin && chmod +x bin/cc"):format(root, tree, tree))
    local function stage(name, environment)
      return H.sh(([[cd '%s' && rm -rf w && mkdir -p w/%s/tmp && : >w/build-release.built &&
        PATH="$PWD/bin:$PATH" %s sh spec/run.sh --stage "$PWD/w" %s; for file in w/%s/counts; do [ ! -f $file ] || cat $file; done]])
        :format(tree, name, environment, name, name))
    end
    assert.equal('SKIPPED tsan: ThreadSanitizer does not work here: no libtsan\n', stage('tsan', 'CI='):match '[^\n]*\n$')
    assert.equal('SKIPPED emulator: no C++ compiler: the CUDA plug-in is not emulated\n', stage('emulator', 'CI='):match '[^\n]*\n$')
    for _, name in ipairs { 'tsan', 'emulator' } do assert.equal('0 1\n', stage(name, 'CI=1'):match '[^\n]*\n$') end
  end)
  it('leaves nothing behind', function()
    run(BUILDS .. 'tsan) add 1 0 ;;', 'tsan')
    assert.equal('', (H.sh(("ls '%s' | grep amp-spec"):format(tree))))
  end)
end)
