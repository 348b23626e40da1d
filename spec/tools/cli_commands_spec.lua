--- Commands of amp: doctor, bench, new; what is mistyped, missing, mixed up, interrupted or not read.
local H = require 'spec.lib.helper'

local root, build = H.absolute(H.root), H.absolute(H.build)
local library = ("AMP_LIBRARY='%s/amp/libamp.so' AMP_HISTORY= "):format(build)
local command = ("'%s/lua/bin/amp'"):format(root)

-- Standard output, standard error, status
local function amp(arguments, o)
  o = o or {}
  local err = H.tmp 'stderr'
  local out, status = H.sh(("(cd '%s' && %s %s %s %s 2>'%s' %s)"):format(o.folder or '/', o.env or library, o.before or '', o.command or command,
    arguments, err, o.after or '</dev/null'))
  return out, H.read(err), status
end

local function has(text, ...)
  for _, piece in ipairs { ... } do
    if not text:find(piece, 1, true) then error(('"%s" is not in:\n%s'):format(piece, text), 2) end
  end
end

describe('amp with a word it does not know', function()
  local folder = H.tmp 'words'
  os.execute("mkdir -p '" .. folder .. "'")
  H.write(folder .. '/train.lua', 'print(1)')
  it('names the closest command or script, and ends with status 2', function()
    for word, near in pairs { docter = 'doctor', bnech = 'bench', nwe = 'new', tran = 'train.lua' } do
      local out, err, status = amp(word, { folder = folder })
      assert.equal(2, status, word)
      assert.equal('', out)
      has(err, "'" .. word .. "'", "did you mean '" .. near .. "'")
    end
    local _, err, status = amp('somethingelse', { folder = folder })
    assert.equal(2, status)
    has(err, "'somethingelse'", 'amp --help')
  end)
  it('names the closest script, and ends with status 1', function()
    local _, err, status = amp('trian.lua', { folder = folder })
    assert.equal(1, status)
    has(err, 'trian.lua is not there', "did you mean 'train.lua'")
    _, err = amp("'" .. folder .. "/trin.lua'")
    has(err, "did you mean '" .. folder .. "/train.lua'")
  end)
  it('the same for options', function()
    for option, near in pairs { ['--versoin'] = '--version', ['--hlep'] = '--help', ['-x'] = '', ['--'] = nil } do
      local _, err, status = amp(option)
      assert.equal(2, status, option)
      has(err, option, near ~= '' and 'did you mean \'' .. near or '')
    end
    local _, err, status = amp '-l'
    assert.equal(2, status)
    has(err, '-l needs')
    _, err, status = amp '-l nowhere.to.be.found -e 1'
    assert.equal(1, status)
    has(err, 'nowhere.to.be.found')
  end)
  it('-l loads modules first', function()
    local out, _, status = amp "-l amp.global -l amp.nn -e 'print(rawget(_G, \"amp\") ~= nil)'"
    assert.equal('true\n', out)
    assert.equal(0, status)
  end)
end)

describe('--help after a command', function()
  it('is the help, wherever it stands', function()
    for _, what in ipairs { 'doctor', 'bench', 'new' } do
      for _, option in ipairs { '--help', '-h' } do
        local out, err, status = amp(what .. ' ' .. option)
        assert.equal(0, status, what .. ' ' .. err)
        assert.is_truthy(out:find('usage: amp', 1, true))
      end
    end
  end)
end)

describe('amp doctor', function()
  it('says what is there and what is missing, in columns', function()
    local out, err, status = amp 'doctor'
    assert.equal(0, status, out .. err)
    has(out, 'LuaJIT', 'GC64', 'instructions', 'oneDNN', 'LAPACK', 'CUDA driver', 'CUDA toolkit', 'cuDNN', 'NVRTC', 'NCCL')
    has(out, build .. '/amp/libamp.so', 'amp works here')
    for line in out:gmatch '[^\n]+' do
      assert.is_truthy(line:find '^ok ' or line:find '^%-  ' or line:find '^   ' or line:find '^amp works', line)
    end
  end)
  it('tells how to get what is missing', function()
    local out = amp('doctor', { env = library .. "PATH='/usr/bin:/bin' CUDA_HOME= CUDA_PATH= AMP_ONEDNN=0" })
    has(out, 'switched off by AMP_ONEDNN=0')
    for what, package in pairs { ['CUDA driver'] = 'nvidia-driver', ['CUDA toolkit'] = 'nvidia-cuda-toolkit', cuDNN = 'nvidia-cudnn', NCCL = 'libnccl2' } do
      local state = out:match('\n(%S+)%s+' .. what)
      if state == '-' and not (what == 'CUDA driver' and out:find('finds no GPU', 1, true)) then has(out, package) end
    end
  end)
  it('works without the library, and says with status 1 that it is missing', function()
    local out, _, status = amp('doctor', { env = 'AMP_LIBRARY=/nowhere/libamp.so' })
    assert.equal(1, status)
    has(out, '!! amp', '/nowhere/libamp.so', 'LuaJIT', 'something is wrong here')
  end)
  it('takes no arguments', function()
    local _, err, status = amp 'doctor who'
    assert.equal(2, status)
    has(err, "'who'")
  end)
end)

describe('amp bench', function()
  it('lists its claims, and refuses others', function()
    local out, _, status = amp 'bench --list'
    assert.equal(0, status)
    has(out, 'startup', 'tiny_ops', 'memory')
    local _, err, bad = amp 'bench tiny_opps'
    assert.equal(2, bad)
    has(err, "'tiny_opps'", "did you mean 'tiny_ops'")
  end)
  it('measures, from any folder', function()
    local out, err = amp 'bench startup'
    has(out, '== startup', 'require', 'ms', '<= 10', 'libamp.so')
    assert.equal('', err)
  end)
  it('says so where a script fails', function()
    local copy = H.tmp 'broken'
    H.sh(("mkdir -p '%s/examples/bench' && cp -r '%s/lua' '%s/' && cp '%s/examples/bench/timing.lua' '%s/examples/bench/' && echo 'error \"broken\"' "
      .. ">'%s/examples/bench/memory.lua'"):format(copy, root, copy, root, copy, copy))
    local out, _, status = amp('bench memory digits', { command = ("'%s/lua/bin/amp'"):format(copy) })
    assert.equal(1, status)
    has(out, 'broken', 'it failed', 'not run: its data set is not installed', '1 of 2 did not hold')
  end)
end)

describe('amp new', function()
  it('makes a project that trains, in every precision', function()
    local dir = H.tmp 'a new/project'
    local out, err, status = amp("new '" .. dir .. "'")
    assert.equal(0, status, err)
    has(out, dir, 'amp train.lua')
    for _, how in ipairs { '', '2 float16', '1 float32' } do
      local trained, why, rc = amp('train.lua ' .. how, { folder = dir })
      assert.equal(0, rc, why)
      has(trained, 'accuracy', 'saved checkpoint.amp', 'saved model.safetensors')
      if how == '' then assert.is_true(tonumber(trained:match 'epoch 20 .-accuracy ([%d.]+)') > 0.9, trained) end
    end
    local usage, _, refused = amp('train.lua --help', { folder = dir })
    assert.equal(1, refused)
    has(usage, 'usage: amp train.lua [epochs]')
    has(H.read(dir .. '/README.md'), '# project')
    local lint = os.execute 'command -v luacheck >/dev/null 2>&1' == 0
    if lint then
      local text, rc = H.sh(("luacheck --std luajit --max-line-length 160 -q '%s'"):format(dir))
      assert.equal(0, rc, text)
    end
  end)
  it('never writes over anything', function()
    local dir = H.tmp 'taken'
    H.sh(("mkdir -p '%s' && echo mine >'%s/model.lua'"):format(dir, dir))
    local _, err, status = amp("new '" .. dir .. "'")
    assert.equal(1, status)
    has(err, 'not empty')
    assert.equal('mine\n', H.read(dir .. '/model.lua'))
    _, err, status = amp("new '" .. dir .. "/model.lua'")
    assert.equal(1, status)
    has(err, 'can not be made')
  end)
  it('says what it needs', function()
    for _, arguments in ipairs { '', 'a b', '--force', "''" } do
      local _, err, status = amp('new ' .. arguments)
      assert.equal(2, status, arguments)
      has(err, 'amp: ', 'new')
    end
    local _, err, status = amp 'new /proc/nothing/here'
    assert.equal(1, status)
    has(err, 'can not be made')
  end)
end)

describe('amp and its surroundings', function()
  local script = H.tmp 'loop.lua'
  it('a script that is interrupted ends with a trace, by the signal itself', function()
    -- it sends the signal to itself, once it runs: how long a start takes is no matter
    H.write(script, "local amp, ffi = require 'amp', require 'ffi'\nprint 'begins'\nffi.cdef 'int getpid(void);'\n"
      .. "os.execute(('(sleep 0.3; kill -INT %d) >/dev/null 2>&1 &'):format(ffi.C.getpid()))\n"
      .. 'local x = amp.ones(4)\nlocal function step() x = x:add(1) end\nwhile true do step() end\n')
    local out, err, status = amp(script, { before = 'timeout -k 5 60' })
    has(out, 'begins')
    has(err, 'interrupted', 'loop.lua:', 'stack traceback')
    assert.equal(130, status)
  end)
  it('no prompt without a library, or with one of another age: a sentence and status 1', function()
    local _, err, status = amp('', { env = 'AMP_LIBRARY=/nowhere/libamp.so' })
    assert.equal(1, status)
    has(err, 'amp: AMP_LIBRARY names /nowhere/libamp.so')
    assert.is_nil(err:find 'traceback')
    if os.execute 'command -v cc >/dev/null 2>&1' ~= 0 then return end
    H.write(H.tmp 'old.c', 'int amp_abi_version(void) { return 0; } const char *amp_version(void) { return "0.0.9"; } const char *amp_cdef(void) '
      .. '{ return "int amp_abi_version(void); const char *amp_version(void); enum { AMP_ABI = 0 }; struct amp_state;"; }')
    H.sh(("cc -shared -fPIC -o '%s' '%s'"):format(H.tmp 'old.so', H.tmp 'old.c'))
    for _, arguments in ipairs { '', '-i -e 1' } do
      _, err, status = amp(arguments, { env = ("AMP_LIBRARY='%s'"):format(H.tmp 'old.so') })
      assert.equal(1, status)
      has(err, '0.0.9', 'ABI 0', H.tmp 'old.so', root .. '/lua/amp/')
      assert.is_nil(err:find 'traceback', err)
    end
  end)
  it('no standard input, output or error is no reason to crash', function()
    for _, how in ipairs { '<&-', '</dev/null >&-', '</dev/null >/dev/full' } do
      for _, arguments in ipairs { '', '-e "print(amp.ones(2))"', '--version', 'doctor' } do
        local _, _, status = amp(arguments, { after = how })
        assert.is_true(status < 128, arguments .. ' ' .. how .. ': ' .. status)
      end
    end
  end)
end)

describe('luajit -i -l amp.global', function()
  it('is a plain interpreter with amp set', function()
    local out, status = H.sh(("cd / && printf 'print(amp.ones(3):sum():item())\\n= amp.ones(2):sum():item()\\nerror \"x\"\\nprint(7)\\n' | "
      .. "%s LUA_PATH='%s/lua/?.lua;%s/lua/?/init.lua;;' luajit -i -l amp.global"):format(library, root, root))
    assert.equal(0, status)
    has(out, '3\n', '2\n', 'x\n', '7\n')
  end)
end)
