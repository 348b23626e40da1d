--- The generated pages of the manual are what the running library and its sources say, and nothing public is
-- missing in them; links lead somewhere.
local H = require 'spec.lib.helper'

local guide = H.root .. '/examples/guide/'
local anew = 'write it anew: sh examples/guide/make.sh'

local function generate(script)
  local out, status = H.child(("arg = {[0] = '%s/examples/guide/%s'} dofile(arg[0])"):format(H.absolute(H.root), script))
  assert.equal(0, status, out)
  return out
end

-- The first line in which two texts differ
local function difference(there, now)
  local a, b = {}, {}
  for line in (there .. '\n'):gmatch '(.-)\n' do a[#a + 1] = line end
  for line in (now .. '\n'):gmatch '(.-)\n' do b[#b + 1] = line end
  for i = 1, math.max(#a, #b) do
    if a[i] ~= b[i] then return ('line %d is "%s", should be "%s"'):format(i, tostring(a[i]), tostring(b[i])) end
  end
end

describe('the manual', function()
  it('has the table of ops of this library', function()
    if require('amp').cuda.is_available() then return pending 'the table in the tree is that of a machine without a GPU' end
    local out = generate 'ops.lua'
    local there = H.read(guide .. 'ops.md')
    assert.is_true(out == there, anew)
  end)
  for page, script in pairs { ['c_api.md'] = 'c_api.lua', ['reference.md'] = 'reference.lua', ['amp.meta.lua'] = 'meta.lua' } do
    it('has a current ' .. page, function()
      local now, there = generate(script), H.read(guide .. page)
      if now ~= there then error(anew .. '; ' .. difference(there, now)) end
    end)
  end

  it('describes every function of amp.h', function()
    local page, n = H.read(guide .. 'c_api.md'), 0
    for name in H.read(H.root .. '/src/amp.h'):gmatch 'AMP_API [^;(]-(amp_[%w_]+)%s*%(' do
      n = n + 1
      local text = page:match('\n### ' .. name .. '\n\n```c\n.-```\n\n([^\n]+)')
      assert.is_true(text ~= nil and #text > 10, name .. ' is not described')
    end
    assert.is_true(n > 100)
  end)

  it('names everything public of the Lua library, and so does the stub', function()
    local amp = require 'amp'
    local page, ops, stub = H.read(guide .. 'reference.md'), H.read(guide .. 'ops.md'), H.read(guide .. 'amp.meta.lua')
    local hidden = { Tensor = true, Error = true, names = true, lazy = true, enabled = true, util = true, torch7 = true, nn = true, optim = true,
      data = true, io = true, cuda = true, metric = true, plot = true, graph = true, text = true, vision = true, distributed = true,
      parallel = true, serve = true }
    for _, name in ipairs(amp.names()) do
      if not hidden[name] and type(amp[name]) ~= 'string' then
        local base = name:gsub('_$', '')
        local there = page:find('### amp.' .. name .. '\n', 1, true) or ops:find('| `' .. base .. '` |', 1, true)
        assert.is_true(there ~= nil, 'amp.' .. name .. ' is in no page')
        there = stub:find('amp.' .. name .. '(', 1, true) or stub:find('amp.' .. name .. ' =', 1, true) or stub:find("amp['" .. name .. "']", 1, true)
        assert.is_true(there ~= nil, 'amp.' .. name .. ' is not in the stub')
      end
    end
    for _, name in ipairs { 'nn.Linear', 'nn.MultiheadAttention', 'optim.LBFGS', 'optim.lr_scheduler.OneCycleLR', 'data.DataLoader', 'nn.utils.clip_grad_norm_',
      'cuda.is_available', 'io.safetensors', 'autocast.wrap', 'GradScaler' } do
      assert.is_true(page:find('amp.' .. name, 1, true) ~= nil, name)
      assert.is_true(stub:find('amp.' .. name, 1, true) ~= nil, name)
    end
    assert.is_function(loadstring(stub))
  end)

  it('quotes messages that there are', function()
    local sources = H.sh(("cd '%s' && find src lua -name '*.c' -o -name '*.lua' | xargs cat"):format(H.absolute(H.root)))
    local foreign = { "module 'amp' not found", 'cannot open shared object file', 'GLIBC', 'amp.lua', 'write permissions', 'lua == 5.1', '5.4',
      'header file for Lua', "repository '.'", 'unmatched variable', 'CMakeCache.txt' }
    local n = 0
    for row in H.read(guide .. 'troubleshooting.md'):gmatch '\n| (`[^|]+) |' do
      for message in row:gmatch '`([^`]+)`' do
        local theirs = false
        for _, f in ipairs(foreign) do theirs = theirs or message:find(f, 1, true) ~= nil end
        if not theirs then
          for piece in (message:gsub('%.%.%.', '\1')):gmatch '[^\1]+' do
            piece = piece:match '^%s*(.-)%s*$'
            n = n + 1
            assert.is_true(sources:find(piece, 1, true) ~= nil, 'no message has: ' .. piece)
          end
        end
      end
    end
    assert.is_true(n > 15)
  end)

  it('has links that lead somewhere, and an index that has every page', function()
    local index = H.read(guide .. 'README.md')
    local pages = H.sh(("cd '%s/examples/guide' && ls *.md"):format(H.absolute(H.root)))
    for page in pages:gmatch '[^\n]+' do
      if page ~= 'README.md' then assert.is_true(index:find('](' .. page .. ')', 1, true) ~= nil, page .. ' is not in the index') end
      local text = H.read(guide .. page)
      for target, anchor in text:gmatch '%]%(([^)#:]*)(#?[^):]*)%)' do
        local at = target == '' and guide .. page or guide .. target
        local f = io.open(at)
        assert.is_true(f ~= nil, page .. ' links to ' .. target)
        if f then f:close() end
        if anchor ~= '' and at:find '%.md$' then
          local found = false
          for heading in ('\n' .. H.read(at)):gmatch '\n#+ ([^\n]+)' do
            if '#' .. heading:lower():gsub('[^%w%s_-]', ''):gsub('%s', '-') == anchor then found = true end
          end
          assert.is_true(found, page .. ' links to ' .. target .. anchor)
        end
      end
    end
  end)
end)
