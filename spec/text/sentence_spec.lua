--- SentenceEncoder: pooling, order, batches, modes, what is refused. A tokenizer of letters stands for a file's.
local amp = require 'amp'
local models = require 'amp.text.models'
local H = require 'spec.lib.helper'

local device = H.device or 'cpu'

local letters = {}
function letters.encode_batch(_, list, given)
  local longest, ids, mask = 0, {}, {}
  for _, text in ipairs(list) do longest = math.max(longest, math.min(#text, given.max_length)) end
  for r, text in ipairs(list) do
    ids[r], mask[r] = {}, {}
    for i = 1, longest do
      local b = i <= given.max_length and text:byte(i)
      ids[r][i], mask[r][i] = b and b % 29 + 1 or 1, b and 1 or 0
    end
  end
  return amp.tensor(ids, { dtype = 'int64' }), amp.tensor(mask, { dtype = 'int64' })
end

local function encoder(pooling)
  local e = models.SentenceEncoder()
  e.bert = models.BERT.from_pretrained(H.root .. '/spec/fixtures/text/bert', { device = device })
  e.pooling, e.max_length, e.tokenizer = pooling or { 'mean' }, 20, letters
  return e:eval()
end

local function hidden(e, text)
  return e.bert(letters:encode_batch({ text }, { max_length = 20 }):to(device))[1]
end

describe('SentenceEncoder:encode', function()
  local texts = { 'a short one', 'x', 'a text that is longer than twenty letters', 'middle', 'another' }
  local pools = {
    mean = function(h) return h:mean(1) end,
    cls = function(h) return h[1] end,
    max = function(h) return h:amax(1) end,
    mean_sqrt = function(h) return h:sum(1) / math.sqrt(h:size(1)) end,
    last = function(h) return h[-1] end,
    weighted = function(h)
      local w = amp.arange(1, h:size(1) + 1, { device = h.device }):unsqueeze(2)
      return (h * w):sum(1) / w:sum()
    end,
  }
  for name, pool in pairs(pools) do
    it('pools by ' .. name .. ', in the order given, whatever the batches', function()
      local e = encoder { name }
      for _, size in ipairs { 1, 2, 32 } do
        local v = e:encode(texts, { batch_size = size })
        assert.same({ 5, 8 }, v.shape)
        for i, text in ipairs(texts) do
          local want = pool(hidden(e, text))
          H.close(v[i], H.values(want / want:norm()), { rtol = 1e-4, atol = 1e-5 }, text)
        end
      end
    end)
  end
  it('joins several poolings, takes one text, none, and leaves modes alone', function()
    local e = encoder { 'cls', 'mean' }
    e:train()
    local v = e:encode 'middle'
    assert.same({ 16 }, v.shape)
    assert.is_true(math.abs(v:norm():item() - 1) < 1e-5)
    assert.is_false(v.requires_grad)
    assert.is_true(e.training and e.bert.training)
    assert.same({ 0, 16 }, e:encode({}).shape)
    local ok, err = pcall(e.encode, e, { 'a', 5 })
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find('text 2 is 5', 1, true))
    e.tokenizer = { encode_batch = function() error({ own = true }, 0) end }
    ok, err = pcall(e.encode, e, { 'a' })
    assert.is_true(not ok and err.own and e.training and amp.is_grad_enabled())
  end)
  it('of a folder without a tokenizer is an error that names it', function()
    local ok, e = pcall(models.SentenceEncoder.from_pretrained, H.root .. '/spec/fixtures/text/bert')
    assert.is_false(ok)
    assert.is_truthy(tostring(e):find('there is no tokenizer.json', 1, true))
  end)
end)
