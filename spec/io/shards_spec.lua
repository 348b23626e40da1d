-- safetensors in several files with an index.
local amp = require 'amp'
local H = require 'spec.lib.helper'

describe('sharded safetensors', function()
  local function write(path, text)
    local f = assert(io.open(path, 'wb'))
    f:write(text)
    f:close()
  end
  it('are read as one, and a missing shard is named', function()
    local path = H.tmp 'model.safetensors.index.json'
    local dir = path:match '^(.*/)'
    amp.io.safetensors.save(dir .. 'a.safetensors', { x = amp.ones(2) })
    amp.io.safetensors.save(dir .. 'b.safetensors', { y = amp.zeros(3) })
    write(path, '{"metadata":{"total_size":20},"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}')
    local t = amp.io.safetensors.load(path)
    assert.equal(2, t.x:numel())
    assert.equal(3, t.y:numel())
    local f = amp.io.safetensors.open(path)
    assert.same({ 'x', 'y' }, f:names())
    assert.equal(3, f:get('y'):numel())
    f:close()
    write(path, '{"weight_map":{"x":"gone.safetensors"}}')
    assert.error_matches(function() amp.io.safetensors.load(path) end, 'gone%.safetensors')
  end)
end)
