-- Regular expressions and normal forms of tokenizers.
require 'amp'
local regex = require 'amp.text.regex'
local u = require 'amp.text.unicode'

describe('text', function()
  it('splits as the pattern of GPT-2 does', function()
    local find = regex.compile [['s|'t| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+]]
    local t, at, out = u.codes "Hello  it's 42!", 1, {}
    while at <= #t do
      local a, b = find(t, at)
      out[#out + 1], at = u.text(t, a, b - 1), b
    end
    assert.same({ 'Hello', ' ', ' it', "'s", ' 42', '!' }, out)
  end)
  it('composes', function() assert.equal('\195\169 fi', u.text(u.nfkc(u.codes 'e\204\129 \239\172\129'))) end)
  it('normal forms change what has parts that a compatible form changes', function()
    assert.equal('\206\142', u.text(u.nfkc(u.codes '\207\147'))) -- U+03D3, made of U+03D2, which is U+03A5
    assert.equal('\207\147', u.text(u.nfc(u.codes '\207\147')))
    assert.equal('\225\132\128\225\133\161', u.text(u.nfd(u.codes '\234\176\128')))
  end)
end)

describe('patterns', function()
  local function all(pattern, text)
    local find, t, at, out = regex.compile(pattern), u.codes(text), 1, {}
    while at <= #t do
      local a, b = find(t, at)
      if not a then break end
      out[#out + 1], at = u.text(t, a, b - 1), b
    end
    return table.concat(out, '|')
  end
  it('have repeats that are greedy, lazy and possessive, of characters and of groups', function()
    assert.equal('aab|ab|b', all('a*b', 'aababb'))
    assert.equal('a|a|b', all('a+?|b', 'aab'))
    assert.equal('', all('a++a', 'aaa'))
    assert.equal('abab|ab', all('(?:ab){1,2}', 'ababab'))
    assert.equal('xyxyz', all('(?:xy)*z', 'xyxyz'))
    assert.equal('xyz', all('(?:xy)+?z', 'xyz'))
    assert.equal('aaa', all('(?:a*)*', 'aaa'))
    assert.equal('aba', all('(?:a|ab){2}|ab', 'abab'))
    assert.equal('1234|5', all([[\d{1,4}]], '12345'))
  end)
  it('have classes, cases, looks ahead and places', function()
    assert.equal('A|b|\197\191', all('(?i:a|B|s)', 'Ab\197\191'))
    assert.equal('K|k', all('(?i:[j-l])', 'Kxk'))
    assert.equal('a-|]', all('[]a-]+', 'a-x]'))
    assert.equal('ab', all('^ab(?=c)', 'abcab'))
    assert.equal('c', all('c$', 'cc'))
    assert.equal('x', all('x(?!y)', 'xyx'))
  end)
  it('are refused where they are not known or too long', function()
    for _, bad in ipairs { '(', ')', '[a', 'a{', '(?<n>a)', [[\p{Xx}]], [[\q]], '*a', '(?:a{50}){50}b{900}c{9}(?:ab){999}', 'a{3,1}' } do
      assert.is_false((pcall(regex.compile, bad)), bad)
    end
  end)
end)

describe('a damaged file of a tokenizer', function()
  local build = require('amp.text.tokenizer').build
  local function with(more)
    local s = { model = { type = 'BPE', vocab = { a = 0, aa = 1, [' '] = 2 }, merges = { 'a a' }, unk_token = 'a' } }
    for k, v in pairs(more) do s[k] = v end
    return build(s)
  end
  local function slow(tok, text)
    local began = os.clock()
    local ok, e = pcall(tok.encode, tok, text)
    assert.is_true(os.clock() - began < 20)
    assert.is_false(ok)
    assert.is_truthy(tostring(e):find('too many steps', 1, true), tostring(e))
    assert.same({ 2 }, tok:encode 'aa') -- the next text has steps of its own
  end
  it('takes no longer than its text deserves', function()
    slow(with { pre_tokenizer = { type = 'Split', pattern = { Regex = '(?:a*)*b' }, behavior = 'Isolated' } }, ('a'):rep(40))
    slow(with { pre_tokenizer = { type = 'Split', pattern = { Regex = 'a*a*a*b' }, behavior = 'Isolated' } }, ('a'):rep(3000))
    local list = {}
    for i = 1, 40 do list[i] = { type = 'Replace', pattern = { String = 'x' }, content = 'xx' } end
    slow(with { normalizer = { type = 'Sequence', normalizers = list } }, 'xxxx')
  end)
  it('strips nothing again and again without end', function()
    local tok = with { decoder = { type = 'Strip', content = '', start = 2 ^ 52, stop = 2 ^ 52 } }
    assert.equal('aa', tok:decode { 2 })
  end)
end)

describe('pieces that stand for themselves', function()
  local T = require 'amp.text.tokenizer'
  -- The same ids as those of the whole text, which an added token that never comes makes the tokenizer take at once.
  local function check(s, texts)
    local quick = T.build(s)
    s.added_tokens = { { id = 90, content = '@never@', normalized = true } }
    local whole = T.build(s)
    assert.is_truthy(quick.cut)
    for _, text in ipairs(texts) do
      local ids = whole:encode(text)
      for _ = 1, 2 do assert.same(ids, quick:encode(text), text) end
    end
  end
  local vocab, list = {}, {}
  for i, t in ipairs { '[UNK]', 'a', 'b', '##a', '##b', '.', '\228\184\128', 'e', '\204\129', '\127', '\226\150\129', '\226\150\129a',
    '\226\150\129b', 'ab' } do
    vocab[t], list[i] = i - 1, { t, -i }
  end
  local texts = { 'ab a.b', ' a  b ', '  ', 'A\127b', 'a\228\184\128\228\184\128b', 'a\204\129 \204\129b', 'a\tb\n c', 'a\194\160b', 'a\194\160 b',
    '', 'a \226\150\129b',
    'a\t b', 'a\v b', '\255a' }
  it('of words, with BERT', function()
    check({ model = { type = 'WordPiece', vocab = vocab }, pre_tokenizer = { type = 'BertPreTokenizer' },
      normalizer = { type = 'BertNormalizer', clean_text = true, handle_chinese_chars = true, lowercase = true } }, texts)
    check({ model = { type = 'WordPiece', vocab = vocab }, pre_tokenizer = { type = 'BertPreTokenizer' }, normalizer = { type = 'NFC' } }, texts)
  end)
  it('with spaces before them', function()
    local space = { type = 'Metaspace', replacement = '\226\150\129' }
    local joins = { type = 'Replace', pattern = { Regex = ' {2,}' }, content = ' ' }
    for _, pre in ipairs { space, { type = 'Sequence', pretokenizers = { { type = 'WhitespaceSplit' }, space } }, { type = 'WhitespaceSplit' } } do
      for _, normalizer in ipairs { { type = 'NFKC' }, { type = 'Lowercase' }, { type = 'Sequence', normalizers = { { type = 'NFKC' }, joins } } } do
        check({ model = { type = 'Unigram', vocab = list, unk_id = 0 }, pre_tokenizer = pre, normalizer = normalizer }, texts)
      end
    end
  end)
end)
