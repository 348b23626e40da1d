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
end)
