--- `amp chat` and `amp embed`: use, mistakes, folders that are not fit.
local H = require 'spec.lib.helper'

local ROOT = H.root .. '/spec/fixtures/text/'

-- Standard output, standard error and status of the command.
local function amp(args, input)
  local out, why = H.tmp 'out', H.tmp 'err'
  local command = ("printf %%s %s | AMP_LIBRARY='%s/amp/libamp.so' luajit '%s/lua/bin/amp' %s >'%s' 2>'%s'; echo $?"):format(
    H.quote(input or ''), H.absolute(H.build), H.root, args, out, why)
  local status = tonumber(H.sh(command):match '%d+')
  return H.read(out), H.read(why), status
end

describe('amp chat and amp embed', function()
  it('show how they are called', function()
    for _, name in ipairs { 'chat', 'embed' } do
      local _, err, status = amp(name)
      assert.equal(2, status)
      assert.is_truthy(err:find('usage: amp ' .. name, 1, true))
    end
  end)
  it('name options that are not known or lack a value', function()
    local _, err, status = amp 'chat somewhere --temprature 1'
    assert.equal(2, status)
    assert.is_truthy(err:find("unknown option '--temprature', did you mean '--temperature'?", 1, true), err)
    _, err, status = amp 'chat somewhere --top-k x'
    assert.equal(2, status)
    assert.is_truthy(err:find("--top-k needs a number, got 'x'", 1, true), err)
    _, err, status = amp 'embed a b --output x.txt'
    assert.equal(2, status)
    assert.is_truthy(err:find('--output PATH.npy', 1, true), err)
  end)
  it('say in a line what a folder lacks', function()
    for args, text in pairs {
      ['chat /nowhere'] = "cannot read '/nowhere/config.json'",
      ['chat ' .. ROOT .. 'gpt2'] = 'there is no tokenizer.json',
      ['chat ' .. ROOT .. 'bert'] = 'amp embed takes it',
      ['embed ' .. ROOT .. 'bert -'] = 'there is no tokenizer.json',
      ['embed ' .. ROOT .. 'bert /nowhere'] = 'cannot read /nowhere',
    } do
      local _, err, status = amp(args)
      assert.equal(1, status, args)
      assert.is_truthy(err:find(text, 1, true), err)
      assert.is_falsy(err:find('stack traceback', 1, true), err)
      assert.equal(1, select(2, err:gsub('\n', '')), err)
    end
  end)

  local TOKENIZERS = ROOT .. 'tokenizers/'
  -- A small network with a tokenizer, as folders are published.
  local function folder(kind, tokenizer, config)
    local lib = require 'amp'
    lib.manual_seed(5)
    local dir = H.tmp('folder_' .. kind)
    local text = H.read(TOKENIZERS .. tokenizer .. '.json')
    config.vocab_size = lib.text.Tokenizer.from_file(TOKENIZERS .. tokenizer .. '.json'):size()
    lib.text.models[kind](config):save_pretrained(dir)
    local f = assert(io.open(dir .. '/tokenizer.json', 'wb'))
    f:write(text)
    f:close()
    return dir
  end

  it('chat goes on with a line, and with what was said before', function()
    local lib = require 'amp'
    local dir = folder('GPT2', 'gpt2', { n_embd = 16, n_layer = 2, n_head = 2, n_positions = 96, initializer_range = 0.5 })
    local model = lib.text.models.from_pretrained(dir)
    local tok, said, history = model:get_tokenizer(), '', {}
    for _, line in ipairs { 'Hello it is', 'a b' } do
      for _, id in ipairs(tok:encode(line)) do history[#history + 1] = id end
      local all = model:generate(history, { max_new_tokens = 7, temperature = 0 }):tolist()
      local new = { unpack(all, #history + 1) }
      for _, id in ipairs(new) do history[#history + 1] = id end
      said = said .. '> ' .. tok:decode(new) .. '\n'
    end
    local out, err, status = amp(("chat '%s' --max-new-tokens 7 --temperature 0"):format(dir), 'Hello it is\na b\n')
    assert.equal(0, status, err)
    assert.equal('', err)
    assert.equal(said .. '> \n', out)
    -- drawn: the same for a seed; more than the context holds is left behind
    local long = ('Hello it is a b c '):rep(20)
    local a, _, first = amp(("chat '%s' --max-new-tokens 5 --seed 3"):format(dir), long)
    local b = amp(("chat '%s' --max-new-tokens 5 --seed 3"):format(dir), long)
    assert.equal(0, first)
    assert.equal(a, b)
    out, err, status = amp(("chat '%s' --max-new-tokens 3 --template 'Q: %%s\\nA:' --temperature 0"):format(dir), 'x')
    assert.equal(0, status, err)
    local ids = tok:encode 'Q: x\nA:'
    local want = model:generate(ids, { max_new_tokens = 3, temperature = 0 }):tolist()
    assert.equal('> ' .. tok:decode { unpack(want, #ids + 1) } .. '\n> \n', out)
  end)
  it('embed gives the vectors of the encoder, a line each', function()
    local lib = require 'amp'
    local dir = folder('BERT', 'bert', { hidden_size = 16, num_hidden_layers = 2, num_attention_heads = 2, intermediate_size = 32,
      max_position_embeddings = 32 })
    local texts = H.tmp 'texts.txt'
    local f = assert(io.open(texts, 'w'))
    f:write 'Hello it is\nfor x in list\nna\195\175ve\n'
    f:close()
    local want = lib.text.models.SentenceEncoder.from_pretrained(dir):encode { 'Hello it is', 'for x in list', 'na\195\175ve' }
    local out, err, status = amp(("embed '%s' '%s'"):format(dir, texts))
    assert.equal(0, status, err)
    local rows = {}
    for line in out:gmatch '[^\n]+' do
      rows[#rows + 1] = {}
      for v in line:gmatch '%S+' do table.insert(rows[#rows], tonumber(v)) end
    end
    assert.is_true(lib.tensor(rows):allclose(want, 1e-5, 1e-6))
    for _, ending in ipairs { 'npy', 'safetensors' } do
      local to = H.tmp('vectors.' .. ending)
      out, err, status = amp(("embed '%s' '%s' --output '%s' --batch-size 2"):format(dir, texts, to))
      assert.equal(0, status, err)
      assert.equal('', out)
      local got = ending == 'npy' and lib.io.load_npy(to) or lib.io.safetensors.load(to).embeddings
      assert.is_true(got:allclose(want, 1e-5, 1e-6))
    end
    out, err, status = amp(("embed '%s' -"):format(dir), 'Hello it is')
    assert.equal(0, status, err)
    assert.is_true(math.abs(tonumber(out:match '%S+') - want[1][1]:item()) < 1e-5)
  end)
end)
