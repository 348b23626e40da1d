--- `amp convert`, and the files of torch.save that amp writes.
local amp = require 'amp'
local H = require 'spec.lib.helper'

-- Standard error and status of the command.
local function convert(...)
  local why, words = H.tmp 'err', {}
  for i, a in ipairs { ... } do words[i] = H.quote(a) end
  local command = ("AMP_LIBRARY='%s/amp/libamp.so' luajit '%s/lua/bin/amp' convert %s 2>'%s'; echo $?"):format(H.absolute(H.build), H.root,
    table.concat(words, ' '), why)
  local status = tonumber(H.sh(command):match '%d+')
  return H.read(why), status
end

local function network()
  local w = amp.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
  return { ['layer.weight'] = w, ['layer.turned'] = w:t(), half = amp.tensor({ 0.5, -2 }, { dtype = 'float16' }),
    count = amp.tensor({ 1, -2 }, { dtype = 'int64' }),
    mask = amp.tensor { true, false }, one = amp.tensor(3.5), none = amp.zeros(0, 3) }
end

local function same(a, b)
  for name, t in pairs(a) do
    assert.equal(t.dtype, b[name].dtype, name)
    assert.same(t.shape, b[name].shape, name)
    assert.is_true(t:equal(b[name]), name)
  end
  for name in pairs(b) do assert.is_truthy(a[name], name) end
end

describe('amp.io.save_pt', function()
  it('writes what load_pt reads: shared memory stays shared, values keep their kinds', function()
    local path, v = H.tmp 'a.pt', network()
    v.more = { lr = 0.1, list = { 1, -2, 3 }, name = '\195\169', yes = true, big = 2 ^ 40, less = -2 ^ 40, [0] = 5 }
    v.p = amp.ones(2):requires_grad_(true)
    amp.io.save_pt(path, v)
    local r = amp.io.load_pt(path)
    assert.same(v.more, r.more)
    assert.is_true(r.p.requires_grad)
    v.more, r.more = nil, nil
    same(v, r)
    r['layer.weight']:fill_(9)
    assert.equal(9, r['layer.turned'][1][2]:item())
  end)
  it('names what it cannot hold', function()
    for text, v in pairs { ["'x.y.f' is a function"] = { x = { y = { f = print } } },
      ["'q': files of torch.save hold no float8_e4m3"] = { q = amp.ones(1):to 'float8_e4m3' },
      ["'s': a string that is not UTF-8"] = { s = '\255' } } do
      local ok, e = pcall(amp.io.save_pt, H.tmp 'b.pt', v)
      assert.is_false(ok)
      assert.is_truthy(tostring(e):find(text, 1, true), tostring(e))
    end
    local loop = {}
    loop.me = loop
    assert.error_matches(function() amp.io.save_pt(H.tmp 'b.pt', loop) end, 'holds itself')
    assert.error_matches(function() amp.io.save_pt('/nowhere/x.pt', {}) end, "cannot write '/nowhere/x.pt'")
  end)
end)

describe('amp convert', function()
  it('keeps names, dtypes and values between all kinds', function()
    local first = H.tmp 'first.pt'
    amp.io.save_pt(first, network())
    local before = first
    for i, kind in ipairs { 'safetensors', 'npz', 'pth', 'npz', 'safetensors', 'bin' } do
      local to = H.tmp(i .. '.' .. kind)
      local err, status = convert(before, to)
      assert.equal(0, status, err)
      before = to
    end
    same(network(), amp.io.load_pt(before))
  end)
  it('says which tensors share memory no longer', function()
    local from, to = H.tmp 'a.pt', H.tmp 'a.safetensors'
    amp.io.save_pt(from, network())
    local err, status = convert(from, to)
    assert.equal(0, status)
    assert.is_truthy(err:find("'layer.turned' and 'layer.weight'", 1, true), err)
    same(network(), amp.io.safetensors.load(to))
  end)
  it('refuses by name what the target cannot hold, and leaves no file', function()
    local from, to = H.tmp 'a.pt', H.tmp 'a.npz'
    amp.io.save_pt(from, { model = { w = amp.ones(2) }, b = amp.ones(2):to 'bfloat16', epoch = 3 })
    os.remove(to)
    for _, case in ipairs { { {}, "is 3, and a file of npz holds tensors only", "'epoch'" }, { { '--tensors-only' }, "'b': NumPy has no bfloat16", to },
      { { '--key', 'modle' }, "there is no 'modle'", "did you mean 'model'" } } do
      local err, status = convert(from, to, unpack(case[1]))
      assert.equal(1, status)
      if case[3] ~= "'epoch'" or not err:find("'model'", 1, true) then
        for i = 2, 3 do assert.is_truthy(err:find(case[i], 1, true), err) end
      else assert.is_truthy(err:find('--key model', 1, true), err) end
      assert.equal(1, select(2, err:gsub('\n', '')) - (case[1][1] == '--tensors-only' and 1 or 0), err)
      assert.is_nil(io.open(to))
    end
    local err, status = convert(from, to, '--key', 'model')
    assert.equal(0, status, err)
    assert.equal(2, amp.io.load_npz(to).w:numel())
  end)
  it('refuses mistakes of use', function()
    for text, args in pairs { ['usage: amp convert IN OUT'] = { 'a.pt' }, ["'b.txt' is to end in"] = { 'a.pt', 'b.txt' },
      ["unknown option '--kee', did you mean '--key'"] = { 'a.pt', 'b.npz', '--kee' } } do
      local err, status = convert(unpack(args))
      assert.equal(2, status)
      assert.is_truthy(err:find(text, 1, true), err)
    end
    local err, status = convert('/nowhere.pt', 'b.npz')
    assert.equal(1, status)
    assert.is_truthy(err:find("cannot read '/nowhere.pt'", 1, true), err)
  end)
end)
