--- The manual's walk to a new op (examples/guide/extending.md), carried out on a copy of the tree, block by block:
-- ```c FILE appends to a file, `FILE after NAME` puts lines below the one that names NAME.
local H = require 'spec.helper'

local once = os.getenv 'AMP_SPEC_SANITIZED'
local root = H.absolute(H.root)
local copy = H.tmp 'copy'
local page = H.read(H.root .. '/examples/guide/extending.md')

local function apply()
  local n = 0
  for info, body in page:gmatch '\n```%a+ ([^\n]+)\n(.-)\n```' do
    if info ~= 'example' then
      local file, after = info:match '^(%S+) after (%S+)$'
      file = copy .. '/' .. (file or info)
      local text = H.read(file)
      if after then
        local place = ('[^\n]*[%%s(]%s[, =][^\n]*\n'):format(after)
        local first, last = text:find(place)
        assert.is_not_nil(first, after .. ' is not in ' .. info)
        text = text:sub(1, last) .. body .. '\n' .. text:sub(last + 1)
      else
        text = text:gsub('\n*$', '\n\n'):gsub('\n\n$', file:find '%.txt$' and '\n' or '\n\n') .. body .. '\n'
      end
      H.write(file, text)
      n = n + 1
    end
  end
  return n
end

describe('the walk to a new op', function()
  local built
  it('has six steps that build', function()
    if once then return pending 'once is enough' end
    local out, status = H.sh(("mkdir -p '%s' && cd '%s' && tar cf - CMakeLists.txt lua spec src examples $(ls -d kernels 2>/dev/null) | tar xf - -C '%s'")
      :format(copy, root, copy))
    assert.equal(0, status, out)
    assert.equal(6, apply())
    H.write(H.tmp 'quick-cc', '#!/bin/sh\nexec cc "$@" -O0\n') -- the compiler need not optimize here
    out, status = H.sh(([[chmod +x '%s' && cd '%s' && CC='%s' cmake -S . -B build -DAMP_WERROR=ON -DAMP_ONEDNN=OFF -DAMP_LAPACK=OFF -DAMP_CUDA=OFF &&
      cmake --build build --target amp -j 2]]):format(H.tmp 'quick-cc', copy, H.tmp 'quick-cc'))
    assert.equal(0, status, out:sub(-3000))
    built = true
  end)
  it('makes an op that the spec of ops finds and passes', function()
    if not built then return pending 'not built' end
    local out, status = H.sh(("cd '%s' && env -u AMP_LIBRARY -u LUA_PATH AMP_BUILD=build luajit spec/run.lua --filter='squareplus' spec/ops_spec.lua")
      :format(copy))
    assert.equal(0, status, out)
    assert.is_true(tonumber(out:match '(%d+) passed, 0 failed') >= 8, out)
  end)
  it('makes a function and a method, differentiable twice', function()
    if not built then return pending 'not built' end
    H.write(copy .. '/example.lua', (page:match '\n```text example\n(.-)\n```'))
    local out, status = H.sh(("cd '%s' && env -u AMP_LIBRARY -u LUA_PATH lua/bin/amp example.lua"):format(copy))
    assert.equal(0, status, out)
    assert.is_not_nil(out:find '0%.5.*1.*2', out)
  end)
  it('brings the help and the table of the manual along', function()
    if not built then return pending 'not built' end
    local out, status = H.sh(("cd '%s' && env -u AMP_LIBRARY -u LUA_PATH lua/bin/amp examples/guide/ops.lua | grep squareplus"):format(copy))
    assert.equal(0, status, out)
    assert.is_not_nil(out:find('| `squareplus` | f m _ | fp32 | floats |', 1, true), out)
  end)
end)
