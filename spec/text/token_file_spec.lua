--- Files of tokens: what is written, batches, their order, and that a run goes on where it stopped.
local amp = require 'amp'
local H = require 'spec.lib.helper'

local function numbers(n, from)
  local out = {}
  for i = 1, n do out[i] = i + (from or 0) end
  return out
end

local fails = H.fails

-- The first id of each row.
local function heads(b)
  local out = {}
  for r, row in ipairs(b.ids:tolist()) do out[r] = row[1] end
  return out
end

describe('amp.text.write_tokens', function()
  it('writes ids from 0, little end first, a document after the other', function()
    local path = H.tmp 'a.bin'
    assert.equal(7, amp.text.write_tokens(path, { { 1, 2, 300 }, { 65536 }, {} }, { eos = 5 }))
    assert.equal('\0\0\1\0\43\1\4\0\255\255\4\0\4\0', H.read(path))
    assert.equal(2, amp.text.write_tokens(path, { { 65537, 1 } }, { dtype = 'uint32' }))
    assert.equal('\0\0\1\0\0\0\0\0', H.read(path))
  end)
  it('takes texts with a tokenizer, and a function of them', function()
    local tok, path = amp.text.Tokenizer.from_file 'spec/fixtures/text/tokenizers/gpt2.json', H.tmp 'a.bin'
    local list, i = { 'Hello it', 'is' }, 0
    local n = amp.text.write_tokens(path, function()
      i = i + 1
      return list[i]
    end, { tokenizer = tok, eos = '<sp>' })
    local want = tok:encode 'Hello it'
    want[#want + 1] = tok:id '<sp>'
    for _, id in ipairs(tok:encode 'is') do want[#want + 1] = id end
    want[#want + 1] = tok:id '<sp>'
    assert.equal(#want, n)
    local set = amp.text.TokenFile(path, { length = n, shuffle = false })
    assert.same({ want }, set:next().ids:tolist())
  end)
  it('refuses what a file cannot hold, and leaves the old one', function()
    local path = H.tmp 'a.bin'
    amp.text.write_tokens(path, { { 1 } })
    fails(function() amp.text.write_tokens(path, { { 1, 65537 } }) end, 'id 2 of document 1 is 65537', "dtype = 'uint32'")
    fails(function() amp.text.write_tokens(path, { { 0 } }) end, 'id 1 of document 1 is 0')
    fails(function() amp.text.write_tokens(path, { 'text' }) end, 'document 1 is a text', 'tokenizer')
    fails(function() amp.text.write_tokens(path, { { 1 } }, { dtype = 'int8' }) end, 'uint16')
    fails(function() amp.text.write_tokens(path, { { 1 } }, { eos = 'x' }) end, 'tokenizer')
    assert.equal('\0\0', H.read(path))
  end)
end)

describe('amp.text.TokenFile', function()
  local one, two = H.tmp 'one.bin', H.tmp 'two.bin'
  amp.text.write_tokens(one, { numbers(50) })
  amp.text.write_tokens(two, { numbers(43, 100) })

  it('gives every row of an epoch once, in another order each time, the same for a seed', function()
    local function epochs(seed)
      local set = amp.text.TokenFile({ one, two }, { length = 5, batch_size = 3, seed = seed })
      assert.equal(6, set:size()) -- 10 + 8 rows
      local out = {}
      for e = 1, 2 do
        out[e] = {}
        for b in set:batches() do
          assert.same({ 3, 5 }, b.ids.shape)
          assert.equal('int64', b.ids.dtype)
          for _, id in ipairs(heads(b)) do out[e][#out[e] + 1] = id end
        end
      end
      return out
    end
    local a = epochs(1)
    local sorted, want = { unpack(a[1]) }, {}
    table.sort(sorted)
    for i = 0, 9 do want[#want + 1] = i * 5 + 1 end
    for i = 0, 7 do want[#want + 1] = i * 5 + 101 end
    assert.same(want, sorted)
    assert.are_not.same(a[1], a[2])
    assert.are_not.same(want, a[1])
    assert.same(a, epochs(1))
    assert.are_not.same(a, epochs(2))
  end)
  it('goes on where a state was taken', function()
    local function new(o)
      o = o or {}
      o.length, o.batch_size = o.length or 5, 2
      return amp.text.TokenFile({ one, two }, o)
    end
    local set = new()
    for _ = 1, 7 do set:next() end
    local state, want = set:state_dict(), {}
    for i = 1, 8 do want[i] = heads(set:next()) end -- into the next epoch
    local again, got = new():load_state_dict(state), {}
    for i = 1, 8 do got[i] = heads(again:next()) end
    assert.same(want, got)
    fails(function() new({ length = 6 }):load_state_dict(state) end, 'length')
    fails(function() new({ seed = 3 }):load_state_dict(state) end, 'seed is 0 in the state and 3 here')
    fails(function() set:load_state_dict { epoch = 0 } end, 'load_state_dict')
  end)
  it('shares an epoch among ranks', function()
    local seen = {}
    for rank = 1, 3 do
      local set = amp.text.TokenFile({ one, two }, { length = 5, batch_size = 2, rank = rank, world_size = 3 })
      assert.equal(3, set:size())
      for b in set:batches() do
        for _, id in ipairs(heads(b)) do seen[#seen + 1] = id end
      end
    end
    table.sort(seen)
    assert.equal(18, #seen)
    for i = 2, 18 do assert.is_true(seen[i] > seen[i - 1]) end
  end)
  it('keeps documents apart', function()
    local path = H.tmp 'docs.bin'
    amp.text.write_tokens(path, { { 7, 8 }, { 9 }, { 10, 11, 12 } }, { eos = 2 })
    local b = amp.text.TokenFile(path, { length = 8, eos = 2, shuffle = false }):next()
    assert.same({ { 7, 8, 2, 9, 2, 10, 11, 12 } }, b.ids:tolist())
    assert.same({ { 1, 1, 1, 2, 2, 3, 3, 3 } }, b.segment_ids:tolist())
    assert.same({ { 1, 2, 3, 1, 2, 1, 2, 3 } }, b.position_ids:tolist())
    assert.same({ { -100, 8, 2, -100, 2, -100, 11, 12 } }, b.labels:tolist())
  end)
  it('of any size has an order that is a permutation', function()
    for _, n in ipairs { 1, 2, 3, 17, 100, 1000 } do
      local path, seen = H.tmp 'n.bin', {}
      amp.text.write_tokens(path, { numbers(n) })
      for b in amp.text.TokenFile(path, { length = 1 }):batches() do seen[b.ids:item()] = true end
      for i = 1, n do assert.is_true(seen[i], ('%d of %d'):format(i, n)) end
    end
  end)
  it('names the file that is not fit', function()
    fails(function() amp.text.TokenFile('/nowhere.bin', { length = 2 }) end, "cannot read '/nowhere.bin'")
    fails(function() amp.text.TokenFile(one, { length = 51 }) end, one, 'fewer than one batch')
    fails(function() amp.text.TokenFile(two, { length = 2, dtype = 'uint32' }) end, two, 'no whole number of ids')
    fails(function() amp.text.TokenFile(one, { length = 5, vocab_size = 20, shuffle = false, batch_size = 9 }):next() end, one,
      'id 21', 'place 21', 'vocab_size 20')
    fails(function() amp.text.TokenFile(one, { lenght = 2 }) end, "'lenght'", "'length'")
    fails(function() amp.text.TokenFile(one, { length = 2, rank = 2 }) end, 'rank 2 is more than world_size 1')
    fails(function() amp.text.TokenFile(one, {}) end, 'length')
    local set = amp.text.TokenFile(one, { length = 2 })
    set:close()
    set:close()
    fails(function() set:next() end, one)
  end)
end)
