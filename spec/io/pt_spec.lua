-- Files of torch.save: both formats, what they share, and what is refused.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local ROOT = 'spec/fixtures/pt/'

describe('amp.io.load_pt', function()
  for _, name in ipairs { 'zip', 'old' } do
    it('reads the format ' .. name, function()
      local v = amp.io.load_pt(ROOT .. name .. '.pt')
      assert.same({ 3, 4 }, { v.w:size(1), v.w:size(2) })
      assert.equal(11, v.w[3][4]:item())
      assert.equal(9, v.t[2][3]:item())
      assert.equal('bfloat16', v.bf.dtype)
      assert.equal(-2, v.bf[2]:item())
      assert.equal('float16', v.h.dtype)
      assert.equal('int64', v.i.dtype)
      assert.equal('bool', v.b.dtype)
      assert.equal('uint8', v.u.dtype)
      assert.equal(3, v.s:item())
      assert.equal(0, v.e:numel())
      assert.is_true(v.p.requires_grad)
      assert.same({ lr = 0.1, betas = { 0.9, 0.999 }, name = 'adam', [0] = { 1, -2, 3 }, big = 2 ^ 40, yes = true }, v.n)
      v.view:fill_(100)
      assert.equal(100, v.w[2][1]:item())
    end)
    it('cut anywhere is an error with its name: ' .. name, function()
      local f = assert(io.open(ROOT .. name .. '.pt', 'rb'))
      local text = f:read '*a'
      f:close()
      local path = H.tmp 'cut.pt'
      for n = 0, #text - 1, 97 do
        f = assert(io.open(path, 'wb'))
        f:write(text:sub(1, n))
        f:close()
        local ok, e = pcall(amp.io.load_pt, path)
        assert.is_false(ok)
        assert.is_truthy(tostring(e):find('cut.pt', 1, true))
      end
    end)
  end
  it('reads only some names', function()
    local v = amp.io.load_pt(ROOT .. 'zip.pt', { only = { 'w', 'n' } })
    assert.is_nil(v.view)
    assert.equal(12, v.w:numel())
    assert.has_error(function() amp.io.load_pt(ROOT .. 'zip.pt', { only = { 'nothing' } }) end)
  end)
  it('reads a state_dict', function()
    assert.equal(4, amp.io.load_pt(ROOT .. 'state.pt').weight:numel())
  end)
  it('takes no notes under strange numbers', function()
    local zip, file, path = require 'amp.io.zip', require 'amp.io.file', H.tmp 'notes.pt'
    for _, note in ipairs { 'pnan', 'pinf', 'p-1', 'p0.5', 'gnan' } do
      local bytes = '\128\2N' .. note .. '\n.'
      assert(file.replace(path, function(put)
        zip.write(put, { { name = 'a/data.pkl', size = #bytes, crc = 0, write = function(out) out(bytes) end } })
      end))
      H.fails_here(function() amp.io.load_pt(path) end, 'notes.pt', 'note')
    end
  end)
  it('names what it does not read', function()
    assert.error_matches(function() amp.io.load_pt(ROOT .. 'date.pt') end, 'datetime%.date')
    assert.error_matches(function() amp.io.load_pt(ROOT .. 'complex.pt') end, 'ComplexFloatStorage')
    assert.error_matches(function() amp.load(ROOT .. 'zip.pt') end, 'load_pt')
  end)
end)
