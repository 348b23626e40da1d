-- Tokenizers of tokenizer.json against the ids and texts of the reference package (spec/fixtures/make_tokenizers.py).
local amp = require 'amp'
local json = require 'amp.io.json'
local root = 'spec/fixtures/text/tokenizers/'

local function read(path)
  local f = assert(io.open(path, 'rb'))
  local s = f:read '*a'
  f:close()
  return s
end
local function plus1(ids)
  local out = {}
  for i, v in ipairs(ids) do out[i] = v + 1 end
  return out
end
local function load_text(text)
  local path = os.tmpname()
  local f = assert(io.open(path, 'wb'))
  f:write(text)
  f:close()
  local ok, v = pcall(amp.text.Tokenizer.from_file, path)
  os.remove(path)
  return ok, ok and v or tostring(v), path
end

describe('text.Tokenizer', function()
  for _, name in ipairs { 'gpt2', 'llama3', 'unigram', 'bert', 'llama2', 'suffix', 'prefix' } do
    it('gives the ids and texts of the reference: ' .. name, function()
      local tok = amp.text.Tokenizer.from_file(root .. name .. '.json')
      for _, w in ipairs(json.decode(read(root .. name .. '.ids.json'))) do
        local ids = plus1(w.ids)
        assert.same(ids, tok:encode(w.text))
        assert.equal(w.plain, tok:decode(ids))
        assert.equal(w.all, tok:decode(ids, { skip_special_tokens = false }))
      end
    end)
  end

  it('pads and truncates batches and keeps the special tokens', function()
    local tok = amp.text.Tokenizer.from_file(root .. 'llama3.json')
    local ids, mask = tok:encode_batch({ 'Hello it is', 'a' }, { padding = 'max_length', truncation = true, max_length = 4 })
    assert.equal('int64', tostring(ids.dtype))
    local rows, m = ids:tolist(), mask:tolist()
    assert.same({ 1, 2 }, { rows[1][1], rows[1][4] })
    assert.same({ { 1, 1, 1, 1 }, { 1, 1, 1, 0 } }, m)
    for bad, word in pairs { [{ padding = 'longest' }] = 'padding', [{ truncation = true }] = 'max_length', [{ max_length = 0 }] = 'max_length',
      [{ truncation = 1 }] = 'truncation', [{ pad = true }] = "'pad'", [{ truncation = true, max_length = 1 }] = 'special' } do
      local ok, why = pcall(tok.encode_batch, tok, { 'a' }, bad)
      assert.is_false(ok)
      assert.truthy(tostring(why):find(word, 1, true))
    end
  end)

  it('pads a batch where nothing is said, and refuses rows of several lengths where padding is off', function()
    local tok = amp.text.Tokenizer.from_file(root .. 'llama3.json')
    local long, short = tok:encode 'Hello it is', tok:encode 'a'
    local ids, mask = tok:encode_batch { 'Hello it is', 'a' }
    assert.same({ 2, #long }, { ids:size(1), ids:size(2) })
    assert.equal(#long + #short, mask:sum():item())
    local ok, why = pcall(tok.encode_batch, tok, { 'Hello it is', 'a' }, { padding = false })
    assert.is_false(ok)
    assert.truthy(tostring(why):find('padding = true', 1, true), tostring(why))
  end)

  it('decodes one text at a time, names options near to a wrong one, and knows a call with a dot', function()
    local tok = amp.text.Tokenizer.from_file(root .. 'llama3.json')
    local ids = amp.tensor(tok:encode 'Hello it is', { dtype = 'int64' })
    assert.equal(tok:decode(ids), tok:decode(ids:unsqueeze(1)))
    assert.equal('', tok:decode(amp.zeros({ 1, 0 }, { dtype = 'int64' })))
    local function says(words, f, ...)
      local ok, why = pcall(f, ...)
      assert.is_false(ok)
      assert.truthy(tostring(why):find(words, 1, true), tostring(why))
    end
    says('tok:decode(ids[i])', tok.decode, tok, amp.stack { ids, ids })
    says("did you mean 'padding'?", tok.encode_batch, tok, { 'a' }, { paddin = true })
    says("(known: add_special_tokens)", tok.encode, tok, 'a', { special = true })
    says("did you mean 'vocab_size'?", amp.text.train_bpe, { 'none' }, { vocab_siz = 300 })
    says('with a colon, not a dot', function() return tok.encode 'a' end)
    assert.truthy(tostring(tok):find('^text%.Tokenizer %(%d+ tokens%)'))
  end)

  it('obeys the sections padding and truncation of its file where options say nothing', function()
    local text = read(root .. 'llama3.json'):gsub('"truncation":null', '"truncation":{"direction":"Left","max_length":5,"strategy":"LongestFirst","stride":0}')
      :gsub('"padding":null', '"padding":{"strategy":{"Fixed":7},"direction":"Left","pad_to_multiple_of":4,"pad_id":3,"pad_type_id":0,"pad_token":"x"}')
    local ok, tok = load_text(text)
    assert.is_true(ok, tok)
    local whole = tok:encode 'Hello it is'
    assert.is_true(#whole > 6) -- encode itself cuts nothing
    local ids, mask = tok:encode_batch { 'Hello it is', 'a' }
    local a = tok:encode 'a'
    assert.same({ { 4, 4, 4, whole[1], whole[#whole - 3], whole[#whole - 2], whole[#whole - 1], whole[#whole] }, { 4, 4, 4, 4, 4, unpack(a) } }, ids:tolist())
    assert.same({ { 0, 0, 0, 1, 1, 1, 1, 1 }, { 0, 0, 0, 0, 0, 1, 1, 1 } }, mask:tolist())
    ids = tok:encode_batch({ 'Hello it is' }, { truncation = false, padding = false })
    assert.same({ whole }, ids:tolist())
    ids = tok:encode_batch({ 'Hello it is', 'a' }, { truncation = true, max_length = 3, padding = true })
    assert.same({ { whole[1], whole[2], whole[#whole] }, a }, ids:tolist())
    for bad, word in pairs { ['"strategy":{"Fixed":7}'] = '"strategy":{"Fixed":1e9}', ['"direction":"Left","pad'] = '"direction":"Up","pad',
      ['"max_length":5'] = '"max_length":"5"' } do
      local at, stop = text:find(bad, 1, true)
      local fine, why = load_text(text:sub(1, at - 1) .. word .. text:sub(stop + 1))
      assert.is_false(fine)
      assert.is_truthy(why:find('padding.', 1, true) or why:find('truncation.', 1, true), why)
    end
  end)

  it('encodes long words and long texts', function()
    local tok = amp.text.Tokenizer.from_file(root .. 'gpt2.json')
    local s = ('ab'):rep(50000)
    assert.equal(' ' .. s, tok:decode(tok:encode(s)))
  end)

  it('bounds what alternatives behind one another cost, and optional groups', function()
    local regex, unicode = require 'amp.text.regex', require 'amp.text.unicode'
    for _, pattern in ipairs { ('(?:a|a)'):rep(40) .. 'b', ('(?:aa?){0,1}'):rep(40) .. 'b', ('(?:a|aa)??'):rep(24) .. 'b' } do
      local find = regex.compile(pattern)
      regex.allow(1e5)
      local ok, why = pcall(find, unicode.codes(('a'):rep(60)), 1)
      regex.allow()
      assert.is_false(ok, pattern)
      assert.truthy(why:find('too many steps', 1, true), why)
    end
    local mark = '{"pre_tokenizer":{"type":"Metaspace","replacement":""},"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}'
    local loaded, message = load_text(mark)
    assert.is_false(loaded)
    assert.truthy(message:find('pre_tokenizer.replacement', 1, true), message)
    local find = regex.compile '(?:ab|a)(?:c|bc)?d'
    assert.same({ 2, 6 }, { find(unicode.codes 'xabcd', 1) })
  end)

  it('names the file and the field of a wrong type', function()
    local other = { 'null', 'true', '-1.5', '"x"', '[]', '{}', '[null]', '[[[]]]' }
    -- values of every key with wrong types, each 29th of all such files: an error with the path, never one of Lua itself
    local n = 0
    for _, file in ipairs { 'llama3', 'unigram', 'bert', 'llama2' } do
      local base = read(root .. file .. '.json'):gsub('"vocab":.*$', '"vocab":' .. (file == 'unigram' and '[["<unk>",0]]' or '{"[UNK]":0,"<unk>":1}')
        .. (file:find 'llama' and ',"merges":[]' or '') .. '}}')
      for at, stop in base:gmatch '"[%w_]+":()[^,{}%[%]]+()' do
        for _, v in ipairs(other) do
          n = n + 1
          if n % 29 == 0 then
            local ok, why, path = load_text(base:sub(1, at - 1) .. v .. base:sub(stop))
            if not ok then
              assert.truthy(why:find(path, 1, true), why)
              assert.falsy(why:sub(select(2, why:find(path, 1, true))):find '%.lua:%d', why)
            else pcall(why.encode, why, 'a b') end
          end
        end
      end
    end
    assert.truthy(n > 500)
  end)
end)

describe('text.train_bpe', function()
  it('gives exactly vocab_size tokens, and save writes them', function()
    local path = os.tmpname()
    local f = assert(io.open(path, 'wb'))
    f:write(('low lower lowest new newer newest wide wider\n'):rep(3))
    f:close()
    local tok = amp.text.train_bpe({ path }, { vocab_size = 270 })
    assert.equal(270, tok:size())
    assert.equal('a newer é', tok:decode(tok:encode 'a newer é'))
    tok:save(path)
    assert.same(tok:encode 'widest lower', amp.text.Tokenizer.from_file(path):encode 'widest lower')
    for _, bad in ipairs { 255, 1e6, 300.5, 'x' } do assert.is_false((pcall(amp.text.train_bpe, { path }, { vocab_size = bad }))) end
    os.remove(path)
  end)
end)
