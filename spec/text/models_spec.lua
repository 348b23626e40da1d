--- Text models from published folders: what they give against transformers, files, what is refused, training.
local amp = require 'amp'
local models = require 'amp.text.models'
local H = require 'spec.lib.helper'

local T = require 'spec.lib.text'

local ROOT, device, fails, load, expected, off = T.root, T.device, H.fails, T.load, T.expected, T.off

-- A folder of its own with some files of a fixture, those of `changed` replaced (false: left out).
local function copy_of(name, changed)
  local dir = H.tmp('text_' .. name)
  os.execute(("rm -rf '%s' && cp -r '%s' '%s' && chmod -R u+w '%s'"):format(dir, ROOT .. name, dir, dir))
  for file, text in pairs(changed or {}) do
    if text then
      local f = assert(io.open(dir .. '/' .. file, 'w'))
      f:write(text)
      f:close()
    else os.remove(dir .. '/' .. file) end
  end
  return dir
end

local function text_of(path)
  local f = assert(io.open(path))
  local s = f:read '*a'
  f:close()
  return s
end

local decoders = { 'gpt2', 'gpt2_sharded', 'llama', 'llama_linear', 'llama_dynamic', 'llama3' }

describe('logits and losses', function()
  for _, name in ipairs(decoders) do
    it('of ' .. name .. " are transformers'", function()
      local m, o = load(name), expected(name)
      local labels = amp.where(o.labels:ge(0), o.labels + 1, -100)
      local logits, loss = m(o.ids + 1, { labels = labels })
      assert.is_true(off(logits, o.logits) < 1e-4)
      assert.is_true(math.abs(loss:item() / o.loss:item() - 1) < 1e-5)
      assert.equal('float32', logits.dtype)
      local row = m((o.ids + 1)[2])
      assert.same({ 10, 29 }, row.shape)
      assert.is_true(off(row, o.logits[2]) < 1e-4)
    end)
  end
  for _, name in ipairs { 'bert', 'bert_masked' } do
    it('hidden states of ' .. name .. " are transformers'", function()
      local m, o = load(name), expected(name)
      local hidden, pooled = m(o.ids + 1, { attention_mask = o.mask, token_type_ids = o.types + 1 })
      assert.is_true(off(hidden[1], o.hidden[1]) < 1e-4)
      assert.is_true(off(hidden[2]:narrow(1, 1, 6), o.hidden[2]:narrow(1, 1, 6)) < 1e-4)
      if o.pooled then assert.is_true(off(pooled, o.pooled) < 1e-4) else assert.is_nil(pooled) end
      assert.is_true(off(m(o.ids + 1), o.plain) < 1e-4)
    end)
  end
  it('in 16 bits are near', function()
    for _, name in ipairs { 'gpt2', 'llama', 'bert' } do
      local o = expected(name)
      for _, dtype in ipairs { 'bfloat16', 'float16' } do
        local m = load(name, { dtype = dtype })
        for _, p in ipairs(m:parameters()) do assert.equal(dtype, p.dtype) end
        local y = m(o.ids + 1)
        assert.equal(dtype, y.dtype)
        assert.is_true(off(y, o.logits or o.plain) < 0.06)
      end
      local m = load(name, { dtype = 'float64' })
      assert.is_true(off(m(o.ids + 1), o.logits or o.plain) < 1e-5)
      assert.equal('float32', amp.get_default_dtype())
    end
  end)
end)

describe('a folder', function()
  it('gives the class that it names, in eval mode, with names counted from 1', function()
    local m = load 'gpt2'
    assert.is_false(m.training)
    assert.is_true(m:is(models.GPT2))
    assert.is_true(load 'llama':is(models.Llama) and load 'bert':is(models.BERT))
    local state = m:state_dict()
    assert.same({ 24, 8 }, state['transformer.h.1.attn.c_attn.weight'].shape)
    assert.is_true(m.lm_head.weight == m.transformer.wte.weight)
    assert.is_truthy(load('llama'):state_dict()['model.layers.2.self_attn.q_proj.weight'])
    assert.is_truthy(load('bert'):state_dict()['encoder.layer.1.attention.self.query.weight'])
    assert.is_true(load 'llama_linear'.lm_head.weight:size(1) == 29)
  end)
  it('may lack the prefix, have a trailing slash, or be asked for by class', function()
    local dir = copy_of 'gpt2'
    local state = amp.io.safetensors.load(dir .. '/model.safetensors')
    local plain = {}
    for k, t in pairs(state) do plain[k:gsub('^transformer%.', '')] = t end
    amp.io.safetensors.save(dir .. '/model.safetensors', plain)
    local o = expected 'gpt2'
    local m = models.GPT2.from_pretrained(dir .. '/', { device = device })
    assert.is_true(off(m(o.ids + 1), o.logits) < 1e-4)
    fails(function() models.Llama.from_pretrained(dir) end, 'is that of a GPT2 model', 'not of Llama')
  end)
  it('of PyTorch files is read as well', function()
    local dir, o = copy_of('gpt2', { ['model.safetensors'] = false }), expected 'gpt2'
    local state = amp.io.safetensors.load(ROOT .. 'gpt2/model.safetensors')
    amp.io.save_pt(dir .. '/pytorch_model.bin', state)
    local m = models.from_pretrained(dir, { device = device })
    assert.is_true(off(m(o.ids + 1), o.logits) < 1e-4)
    local parts, map = { {}, {} }, {}
    for k, t in pairs(state) do
      local which = k:find 'h.1' and 1 or 2
      parts[which][k], map[k] = t, which .. '.bin'
    end
    os.remove(dir .. '/pytorch_model.bin')
    for i = 1, 2 do amp.io.save_pt(('%s/%d.bin'):format(dir, i), parts[i]) end
    local f = assert(io.open(dir .. '/pytorch_model.bin.index.json', 'w'))
    f:write(amp.io.json.encode { weight_map = map })
    f:close()
    assert.is_true(off(models.from_pretrained(dir, { device = device })(o.ids + 1), o.logits) < 1e-4)
    os.remove(dir .. '/1.bin')
    fails(function() models.from_pretrained(dir) end, '1.bin', 'missing shards')
    f = assert(io.open(dir .. '/2.bin', 'r+b'))
    f:seek('set', 3)
    f:write 'damage'
    f:close()
    amp.io.save_pt(dir .. '/1.bin', parts[1])
    fails(function() models.from_pretrained(dir) end, '2.bin')
  end)
  it('is refused by name', function()
    local c = text_of(ROOT .. 'gpt2/config.json')
    fails(function() models.from_pretrained(copy_of('gpt2', { ['config.json'] = c:gsub('GPT2LMHeadModel', 'MambaForCausalLM') })) end,
      "architecture 'MambaForCausalLM'", 'known are', 'GPT2LMHeadModel', 'config.json')
    fails(function() models.from_pretrained(copy_of('gpt2', { ['config.json'] = '{"model_type": "t5"}' })) end, "model_type 't5'")
    fails(function() models.from_pretrained(copy_of('gpt2', { ['config.json'] = '{' })) end, 'config.json', 'not a JSON object')
    fails(function() models.from_pretrained(copy_of('gpt2', { ['config.json'] = false })) end, 'config.json', 'cannot read')
    fails(function() models.from_pretrained(copy_of('gpt2', { ['model.safetensors'] = false })) end, 'no weights in', 'model.safetensors.index.json')
    fails(function() models.from_pretrained(copy_of('gpt2_sharded', { ['model-00002-of-00003.safetensors'] = false })) end,
      'model-00002-of-00003.safetensors', 'missing shards')
    fails(function() models.from_pretrained(copy_of('gpt2', { ['config.json'] = c:gsub('"n_embd": 8', '"n_embd": 16') })) end,
      'is of shape', 'config.json makes it')
    fails(function() models.from_pretrained(copy_of('gpt2', { ['config.json'] = c:gsub('"n_layer": 2', '"n_layer": 3') })) end,
      'lack', 'transformer.h.3.')
    fails(function() models.from_pretrained(copy_of('gpt2', { ['config.json'] = c:gsub('"n_embd": 8', '"n_embd": "x"') })) end, 'n_embd must be a number')
    local l = text_of(ROOT .. 'llama3/config.json')
    fails(function() models.from_pretrained(copy_of('llama3', { ['config.json'] = l:gsub('"rope_type": "llama3"', '"rope_type": "yarn"') })) end,
      "'yarn'", 'llama3')
    fails(function() models.from_pretrained(17) end, 'path of a folder')
    fails(function() models.from_pretrained(ROOT .. 'gpt2', { dytpe = 'float16' }) end, 'dtype')
    fails(function() models.from_pretrained(ROOT .. 'gpt2', { dtype = 'int64' }) end, 'int64')
    assert.equal('float32', amp.get_default_dtype())
    fails(function() return models.GTP2 end, 'GPT2')
  end)
  it('warns once of weights that have no place', function()
    local dir = copy_of 'bert'
    local state = amp.io.safetensors.load(dir .. '/model.safetensors')
    state['encoder.layer.7.output.dense.bias'] = amp.ones(8)
    amp.io.safetensors.save(dir .. '/model.safetensors', state)
    local said, before = {}, amp.warn
    amp.warn = function(text) said[#said + 1] = text end
    models.from_pretrained(dir)
    amp.warn = before
    assert.equal(1, #said)
    assert.is_truthy(said[1]:find('encoder.layer.7.output.dense.bias', 1, true))
  end)
end)

describe('ids', function()
  it('out of range, of floats, too many, none are refused', function()
    local m = load 'gpt2'
    local function ids(list) return amp.tensor(list, { dtype = 'int64' }) end
    fails(function() m(ids { { 1, 0 } }) end, 'id 0 is out of range', '1 to 29', 'add 1')
    fails(function() m(ids { { 1, 30 } }) end, 'id 30 is out of range')
    fails(function() m(ids { -1 }) end, 'id -1 is out of range')
    fails(function() m(amp.ones(1, 3)) end, 'ids are integers, got float32')
    fails(function() m(amp.ones({ 1, 33 }, { dtype = 'int64' })) end, '33 ids are more than the context of 32', 'n_positions')
    fails(function() m(amp.ones({ 1, 0 }, { dtype = 'int64' })) end, 'there are no ids')
    fails(function() m 'text' end, "'text'")
    fails(function() load 'bert'(amp.ones({ 1, 25 }, { dtype = 'int64' })) end, '25 ids are more than the context of 24')
    fails(function() m(ids { { 1, 2 } }, { labels = ids { { 1 } } }) end, 'labels is of shape 1x1')
    fails(function() m(ids { { 1, 2 } }, { attention_mask = 3 }) end, 'attention_mask must be a tensor')
    assert.same({ 2, 29 }, m { 4, 5 }.shape)
  end)
  it('of any integer dtype do', function()
    local m = load 'llama'
    local want = m { 4, 5, 6 }
    for _, dtype in ipairs { 'int32', 'uint8', 'int16' } do H.close(m(amp.tensor({ 4, 5, 6 }, { dtype = dtype, device = device })), H.values(want)) end
  end)
end)

describe('a model of its own', function()
  local config = { vocab_size = 20, n_embd = 8, n_layer = 2, n_head = 2, n_positions = 16 }
  it('takes published names, refuses others', function()
    local m = models.GPT2(config)
    assert.is_true(m.training)
    assert.equal(20, m.config.vocab_size)
    assert.equal(16, models.GPT2 { hidden_size = 16, num_hidden_layers = 1, num_attention_heads = 2 }.config.n_embd)
    fails(function() models.GPT2 { n_emdb = 8 } end, "'n_emdb'", 'n_embd')
    fails(function() models.GPT2 { n_embd = 8, n_head = 3 } end, 'n_embd 8 is not divisible by n_head 3')
    fails(function() models.GPT2 { n_layer = 0 } end, 'n_layer must be an integer')
    fails(function() models.Llama { hidden_size = 8, num_attention_heads = 4, num_key_value_heads = 3, num_hidden_layers = 1 } end, 'num_key_value_heads 3')
    fails(function() models.GPT2 { activation_function = 'gleu', n_layer = 1, n_embd = 8, n_head = 2 } end, "'gleu'", 'gelu')
  end)
  it('learns, and gradient checkpoints change nothing', function()
    for _, make in ipairs {
      function()
        return models.GPT2 { vocab_size = 20, n_embd = 8, n_layer = 2, n_head = 2, n_positions = 16, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0 }
      end,
      function() return models.Llama { vocab_size = 20, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 2, num_attention_heads = 2 } end,
    } do
      amp.manual_seed(1)
      local m = make():to(device)
      local twin = m:clone():gradient_checkpointing_enable()
      local ids = amp.randint(1, 21, { 3, 9 }, { dtype = 'int64' }):to(device)
      local _, loss = m(ids, { labels = ids })
      local _, again = twin(ids, { labels = ids })
      loss:backward()
      again:backward()
      H.close(again, { loss:item() })
      local grads = {}
      for name, p in m:named_parameters() do grads[name] = p.grad end
      for name, p in twin:named_parameters() do H.close(p.grad, H.values(grads[name]), { rtol = 1e-4, atol = 1e-6 }, name) end
      local opt = amp.optim.AdamW(m:parameters(), { lr = 0.02 })
      for _ = 1, 30 do
        local _, l = m(ids, { labels = ids })
        opt:zero_grad()
        l:backward()
        opt:step()
      end
      assert.is_true(select(2, m(ids, { labels = ids })):item() < loss:item() / 2)
    end
  end)
  it('keeps packed texts apart', function()
    local m = load 'gpt2'
    local a, b = { 3, 4, 5, 6 }, { 9, 8, 7 }
    local packed = models.pack({ a, b, { 2, 2 } }, { length = 8 })
    assert.same({ 2, 8 }, packed.ids.shape)
    local on = {}
    for k, t in pairs(packed) do on[k] = t:to(device) end
    local logits = m(on.ids, { segment_ids = on.segment_ids, position_ids = on.position_ids })
    assert.is_true(off(logits[1]:narrow(1, 1, 4), m(a)) < 1e-5)
    assert.is_true(off(logits[1]:narrow(1, 5, 3), m(b)) < 1e-5)
    assert.is_true(off(logits[2]:narrow(1, 1, 2), m { 2, 2 }) < 1e-5)
    local _, loss = m(on.ids, { segment_ids = on.segment_ids, position_ids = on.position_ids, labels = on.labels })
    local total = 0
    for _, t in ipairs { a, b, { 2, 2 } } do
      local ids = amp.tensor({ t }, { dtype = 'int64', device = device })
      total = total + select(2, m(ids, { labels = ids })):item() * (#t - 1)
    end
    assert.is_true(math.abs(loss:item() - total / 6) < 1e-5)
    fails(function() models.pack({ { 1, 2, 3 } }, { length = 2 }) end, 'text 1 has 3 ids, length is 2')
  end)
  it('runs as a graph and in a region', function()
    local m, o = load 'gpt2', expected 'gpt2'
    local y = amp.autocast({ dtype = 'bfloat16' }, function() return (m(o.ids + 1)) end)
    assert.is_true(off(y, o.logits) < 0.06)
  end)
end)
