--- model:generate: against transformers, against logits without a cache, several prompts, draws, ends, what is refused and stays.
local amp = require 'amp'
local generate = require('amp.text.models.generate').generate
local sampling = require 'amp.text.models.sampling'
local stream = require 'amp.text.models.stream'
local H = require 'spec.lib.helper'

local T = require 'spec.lib.text'

local ROOT, device, fails = T.root, T.device, H.fails

local loaded = {}
local function load(name)
  loaded[name] = loaded[name] or T.load(name)
  return loaded[name]
end

-- The likeliest tokens, each from logits of the whole text.
local function without_cache(m, ids, n)
  ids = { unpack(ids) }
  for _ = 1, n do ids[#ids + 1] = m(ids)[-1]:argmax():item() end
  return ids
end

local names = { 'gpt2', 'gpt2_sharded', 'llama', 'llama_linear', 'llama3' }
local ways = { { fixed = false }, { fixed = true } }

describe('the likeliest tokens', function()
  for _, name in ipairs(names) do
    it('of ' .. name .. " are transformers', with a growing cache and a fixed one", function()
      local m, o = load(name), amp.io.safetensors.load(ROOT .. name .. '/expected.safetensors')
      local prompt = (o.ids + 1)[1]:narrow(1, 1, 6)
      for _, way in ipairs(ways) do
        assert.same((o.greedy + 1)[1]:tolist(), generate(m, prompt, { max_new_tokens = 12, temperature = 0 }, way):tolist())
        assert.same((o.penalized + 1)[1]:tolist(), generate(m, prompt, { max_new_tokens = 12, temperature = 0, repetition_penalty = 1.5 }, way):tolist())
      end
    end)
    it('of several prompts with ' .. name .. ' are those of each alone', function()
      local m = load(name)
      local prompts = { { 5, 9, 3 }, { 7 }, { 1, 2, 3, 4, 5, 6, 7, 8, 9 }, { 22, 20 } }
      for _, way in ipairs(ways) do
        local all, mask = generate(m, prompts, { max_new_tokens = 8, temperature = 0 }, way)
        assert.same({ 4, 17 }, all.shape)
        for i, p in ipairs(prompts) do
          local want = without_cache(m, p, 8)
          assert.same(want, all[i]:narrow(1, 1, #want):tolist())
          assert.equal(#want, mask[i]:sum():item())
        end
      end
    end)
  end
  it('may be told to use the whole context, and no more', function()
    local m = load 'gpt2'
    assert.equal(32, m:generate({ 1, 2 }, { max_new_tokens = 30, temperature = 0 }):numel())
    assert.equal(32, m:generate(amp.ones({ 20 }, { dtype = 'int64' }), { temperature = 0 }):numel())
    assert.equal(32, m:generate(amp.ones({ 32 }, { dtype = 'int64' })):numel())
    fails(function() m:generate({ 1, 2 }, { max_new_tokens = 31 }) end, 'a prompt of 2 ids and max_new_tokens = 31', 'context of 32', 'at most 30')
    fails(function() m:generate(amp.ones({ 33 }, { dtype = 'int64' })) end, '33 ids are more than the context of 32')
  end)
end)

describe('what goes in and comes out', function()
  it('is a list, a vector, a matrix, or a list of these', function()
    local m, o = load 'gpt2', { max_new_tokens = 3, temperature = 0 }
    local list = { 4, 5, 6 }
    local want = without_cache(m, list, 3)
    local vector = amp.tensor(list, { dtype = 'int64' })
    for _, given in ipairs { list, vector, amp.tensor(list, { dtype = 'int32', device = device }) } do
      local out = m:generate(given, o)
      assert.equal('int64', out.dtype)
      assert.equal(device, out.device:match '^%a+')
      assert.same(want, out:tolist())
    end
    assert.same({ want }, m:generate(vector:unsqueeze(1), o):tolist())
    assert.same({ want, want }, m:generate({ list, vector }, o):tolist())
    assert.same({ want, want }, m:generate(amp.tensor({ list, list }, { dtype = 'int64' }), o):tolist())
    assert.same(list, m:generate(list, { max_new_tokens = 0 }):tolist())
  end)
  it('go through adapters and hooks of layers, with a fixed cache too', function()
    local m = require('amp.text.models').GPT2 { vocab_size = 50, n_embd = 16, n_layer = 2, n_head = 2, n_positions = 64, initializer_range = 0.5 }:to(device)
    local calls = 0
    m.transformer.h[2].mlp.c_fc:register_forward_hook(function() calls = calls + 1 end)
    local function tokens(fixed) return generate(m, { 1, 2, 3 }, { max_new_tokens = 12, temperature = 0 }, { fixed = fixed }):tolist() end
    local plain = tokens(false)
    assert.same(plain, tokens(true))
    assert.is_true(calls >= 13)
    amp.nn.utils.lora(m, { rank = 2, alpha = 4, targets = { 'h.1.mlp.c_fc' } })
    for name, p in m:named_parameters() do
      if name:match 'lora_' then amp.no_grad(function() p:normal_() end) end
    end
    local adapted = tokens(false)
    assert.are_not.same(plain, adapted)
    assert.same(adapted, tokens(true))
  end)
  it('may be longer than a call of Lua takes arguments', function()
    local m = require('amp.text.models').GPT2 { vocab_size = 11, n_embd = 4, n_layer = 1, n_head = 1, n_positions = 9010 }:to(device)
    local prompt = {}
    for i = 1, 9000 do prompt[i] = i % 11 + 1 end
    local all = m:generate(prompt, { max_new_tokens = 2, temperature = 0 })
    assert.same({ 9002 }, all.shape)
    assert.equal(prompt[9000], all[9000]:item())
  end)
  it('wrong input is refused by name', function()
    local m = load 'gpt2'
    fails(function() m:generate {} end, 'there are no ids')
    fails(function() m:generate { { 1 }, {} } end, 'no ids in prompt 2')
    fails(function() m:generate { 1, 0 } end, 'id 2 is 0, out of range', 'add 1')
    fails(function() m:generate { { 1 }, { 1, 30 } } end, 'id 2 of prompt 2 is 30, out of range: ids count from 1 to 29')
    fails(function() m:generate { 1.5 } end, 'id 1 is 1.5')
    fails(function() m:generate(amp.ones(3)) end, 'ids are integers')
    fails(function() m:generate 'hello' end, 'a text needs a tokenizer')
    fails(function() m:generate(3) end, 'ids are a list')
    local function with(o) return function() m:generate({ 1 }, o) end end
    fails(with { max_new_token = 3 }, 'max_new_tokens')
    fails(with { max_new_tokens = -1 }, 'max_new_tokens')
    fails(with { temperature = -1 }, 'temperature')
    fails(with { temperature = 0 / 0 }, 'temperature')
    fails(with { top_k = 1.5 }, 'top_k')
    fails(with { top_p = 1.5 }, 'top_p')
    fails(with { repetition_penalty = 0 }, 'repetition_penalty')
    fails(with { eos = 30 }, 'eos is an id from 1 to 29')
    fails(with { on_token = 3 }, 'on_token is a function')
    fails(with { seed = 'x' }, 'seed')
  end)
  it('mode, grad mode and random numbers stay, after errors too', function()
    local m = load 'llama'
    m:train()
    m.model.norm:eval()
    amp.manual_seed(7)
    local before = amp.get_rng_state()
    for _, way in ipairs(ways) do
      generate(m, { 1, 2 }, { max_new_tokens = 3, seed = 5 }, way)
      local ok, e = pcall(generate, m, { 1, 2 }, { max_new_tokens = 3, temperature = 0, on_token = function() error({ own = true }, 0) end }, way)
      assert.is_false(ok)
      assert.is_true(e.own)
      assert.is_true(m.training)
      assert.is_true(m.model.layers[1].training)
      assert.is_false(m.model.norm.training)
      assert.is_true(amp.is_grad_enabled())
      assert.same(before, amp.get_rng_state())
    end
    m:eval()
  end)
end)

describe('eos and on_token', function()
  it('end rows, stream ids', function()
    local m = load 'llama'
    local prompts = { { 5, 9, 3 }, { 7, 8 } }
    local alone = { without_cache(m, prompts[1], 10), without_cache(m, prompts[2], 10) }
    local eos = alone[1][6]
    for _, way in ipairs(ways) do
      local got = { {}, {} }
      local all, mask = generate(m, prompts, {
        max_new_tokens = 10, temperature = 0, eos = eos, on_token = function(id, row) table.insert(got[row], id) end,
      }, way)
      for r = 1, 2 do
        local want, n = {}, nil
        for i, id in ipairs(alone[r]) do
          want[i] = id
          if i > #prompts[r] and id == eos then
            n = i
            break
          end
        end
        assert.same(want, all[r]:narrow(1, 1, #want):tolist())
        assert.equal(#want, mask[r]:sum():item())
        for i = #want + 1, all:size(2) do assert.equal(eos, all[r][i]:item()) end
        local streamed = { unpack(want, #prompts[r] + 1, n and n - 1 or #want) }
        assert.same(streamed, got[r])
      end
      local two = generate(m, prompts[1], { temperature = 0, max_new_tokens = 9, on_token = function() return false end }, way)
      assert.same({ unpack(alone[1], 1, 4) }, two:tolist())
      local cut = 4
      while alone[1][cut] ~= eos do cut = cut + 1 end
      assert.same({ unpack(alone[1], 1, cut) }, generate(m, prompts[1], { max_new_tokens = 10, temperature = 0, eos = { 29, eos } }, way):tolist())
    end
  end)
  it('gives whole characters, and what is left at the end', function()
    local parts = { 'a', '\195', '\169', ' \226', '\130', '\172', '!' }
    local tok = { decode = function(_, ids)
      local out = {}
      for i, id in ipairs(ids) do out[i] = parts[id] end
      return table.concat(out)
    end }
    local got = {}
    local give = stream.new({ get_tokenizer = function() return tok end }, function(piece) got[#got + 1] = piece end, 1)
    for i = 1, 7 do give(1, i) end
    give(nil)
    assert.same({ 'a', '\195\169', ' ', '\226\130\172', '!' }, got)
    got = {}
    give = stream.new({ get_tokenizer = function() return tok end }, function(piece) got[#got + 1] = piece end, 1)
    give(1, 1)
    give(1, 2)
    give(nil)
    assert.same({ 'a', '\195' }, got)
  end)
end)

describe('a draw', function()
  it('is the seed alone', function()
    local m = load 'gpt2'
    local o = { max_new_tokens = 20, seed = 11 }
    local first = m:generate({ 3, 4 }, o):tolist()
    amp.manual_seed(99)
    assert.same(first, m:generate({ 3, 4 }, o):tolist())
    assert.same(first, generate(m, { 3, 4 }, o, { fixed = true }):tolist())
    o.seed = 12
    local other = m:generate({ 3, 4 }, o):tolist()
    local same = true
    for i = 1, #first do same = same and first[i] == other[i] end
    assert.is_false(same)
    amp.manual_seed(5)
    local a = m:generate({ 3, 4 }, { max_new_tokens = 20 }):tolist()
    amp.manual_seed(5)
    assert.same(a, m:generate({ 3, 4 }, { max_new_tokens = 20 }):tolist())
  end)
  it('follows the probabilities that are left', function()
    local probabilities = { 0.4, 0.05, 0.3, 0.15, 0.1 }
    local logits = {}
    for i, p in ipairs(probabilities) do logits[i] = math.log(p) end
    local n = 2000
    local many = amp.tensor(logits, { device = device }):unsqueeze(1):expand(n, 5):contiguous()
    local u = amp.arange(0, n, { device = device }):add(0.5):div(n):unsqueeze(2)
    local function shares(o)
      o.temperature = o.temperature or 1
      local ids, out = sampling.next(many, o, u):reshape(-1):tolist(), { 0, 0, 0, 0, 0 }
      for _, id in ipairs(ids) do out[id] = out[id] + 1 / n end
      return out
    end
    local function check(o, want)
      local got = shares(o)
      for i = 1, 5 do assert.is_true(math.abs(got[i] - want[i]) < 2e-3, ('%d: %g, not %g'):format(i, got[i], want[i])) end
    end
    check({}, probabilities)
    check({ top_k = 2 }, { 4 / 7, 0, 3 / 7, 0, 0 })
    check({ top_k = 9 }, probabilities)
    check({ top_p = 0.6 }, { 4 / 7, 0, 3 / 7, 0, 0 })
    check({ top_p = 0.71 }, { 0.4 / 0.85, 0, 0.3 / 0.85, 0.15 / 0.85, 0 })
    check({ top_p = 0 }, { 1, 0, 0, 0, 0 })
    check({ top_p = 1 }, probabilities)
    check({ top_k = 3, top_p = 0.5 }, { 4 / 7, 0, 3 / 7, 0, 0 })
    local square, total = {}, 0
    for i, p in ipairs(probabilities) do square[i] = p * p total = total + p * p end
    for i = 1, 5 do square[i] = square[i] / total end
    check({ temperature = 0.5 }, square)
    check({ temperature = 0 }, { 1, 0, 0, 0, 0 })
  end)
  it('makes seen tokens less likely, whatever their sign', function()
    local seen = amp.tensor({ true, true, false }, { dtype = 'bool', device = device }):unsqueeze(1)
    H.close(sampling.penalize(amp.tensor({ { 2, -2, 3 } }, { device = device }), seen, 2), { 1, -4, 3 })
  end)
end)

if H.device then
  it('a step on a GPU is captured: the model is not called again', function()
    local m = load 'llama'
    local calls, finish = 0, m.finish
    m.finish = function(...)
      calls = calls + 1
      return finish(...)
    end
    local waits = amp.counters().host_waits
    m:generate({ 1, 2, 3 }, { max_new_tokens = 20, temperature = 0 })
    m.finish = nil
    assert.is_true(calls < 6, calls)
    assert.is_true(amp.counters().host_waits - waits < 6)
  end)
end
