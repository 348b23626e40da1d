--- The manual's table of ops is what the running library says.
local H = require 'spec.helper'

describe('the manual', function()
  it('has the table of ops of this library', function()
    if require('amp').cuda.is_available() then return pending 'the table in the tree is that of a machine without a GPU' end
    local out, status = H.child("arg = {[0] = 'ops.lua'} dofile('" .. H.absolute(H.root) .. "/examples/guide/ops.lua')")
    assert.equal(0, status, out)
    local there = H.read(H.root .. '/examples/guide/ops.md')
    assert.is_true(out == there, 'write it anew: lua/bin/amp examples/guide/ops.lua > examples/guide/ops.md')
  end)
end)
