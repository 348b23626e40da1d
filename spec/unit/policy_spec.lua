--- The policy list: one class an op, exactly that of the list, changeable and restorable.
local amp = require 'amp'
local H = require 'spec.lib.helper'
local ops = require 'spec.ops.op_call'

describe('the policy list', function()
  local want, order = H.policy_list()
  it('holds for every registered op it names', function()
    local found = 0
    for _, op in ipairs(order) do
      if ops.by_name[op] then
        found = found + 1
        assert.equal(want[op], amp.policy(op), op)
        assert.equal(want[op], ops.by_name[op].policy, op)
      end
    end
    assert.is_true(found >= 60, found .. ' ops of the list exist')
  end)
  it('answers by each name that it has, for which there is a function', function()
    for line in io.lines(H.root .. '/spec/fixtures/autocast_policy.tsv') do
      local op, class = line:match '^([%w_]+)\t([%w_]+)'
      if op ~= 'op' then
        assert.equal(class, amp.policy(op), op)
        assert.equal('function', type(amp[op]), op)
        assert.equal(amp[op], amp.nn.functional[op], op)
      end
    end
  end)
  it('an op it does not name is passthrough, unless its parts are named', function()
    local class = {}
    for name in ('gaussian_nll_loss pairwise_distance lp_pool1d lp_pool2d lp_pool3d'):gmatch '%S+' do class[name] = 'fp32' end
    for _, row in ipairs(ops.rows) do
      if not want[row.name] and not row.flags.private then
        -- spellings of named ones
        local relatives = { mm = 1, softmin = 1, vector_norm = 1, matrix_norm = 1, lgamma = 1, digamma = 1, polygamma = 1, add_layer_norm = 1 }
        if not relatives[row.name] then assert.equal(class[row.name] or 'passthrough', row.policy, row.name) end
      end
    end
  end)
  it('gives each op one of the known classes', function()
    local known = { lower = 1, fp32 = 1, fp32_unless_dtype = 1, promote = 1, special = 1, banned = 1, passthrough = 1 }
    for _, row in ipairs(ops.rows) do assert.is_not_nil(known[row.policy], row.name) end
  end)
  it('can be changed per op and reset', function()
    local x = amp.ones(4, { dtype = 'bfloat16' })
    local function dtype(f) return amp.autocast({ dtype = 'bfloat16' }, f).dtype end
    local function norm() return amp.layer_norm(x, { 4 }) end
    assert.equal('float32', dtype(norm))
    amp.set_policy('layer_norm', 'passthrough')
    assert.equal('passthrough', amp.policy 'layer_norm')
    assert.equal('bfloat16', dtype(norm))
    amp.set_policy('tanh', 'fp32')
    assert.equal('float32', dtype(function() return x:tanh() end))
    amp.reset_policy()
    assert.equal('fp32', amp.policy 'layer_norm')
    assert.equal('float32', dtype(norm))
    assert.equal('bfloat16', dtype(function() return x:tanh() end))
  end)
  it('names unknown ops and classes', function()
    H.fails_here(function() amp.policy 'matmull' end, 'matmull', 'matmul')
    H.fails_here(function() amp.set_policy('matmul', 'lowr') end, 'lowr', 'lower')
    H.fails_here(function() amp.set_policy('nothing_like_it', 'lower') end, 'nothing_like_it')
  end)
end)
