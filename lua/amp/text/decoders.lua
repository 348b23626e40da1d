--- Decoders of a tokenizer.json: each maker gives a function from a list of pieces to a list of pieces.
local u = require 'amp.text.unicode'
local parts = require 'amp.text.parts'

local M = {}
local CHAR = '[%z\1-\127\194-\244][\128-\191]*'
local unbytes = {}
for b, c in pairs(parts.bytes) do unbytes[c] = string.char(b) end

local function each(f)
  return function(list)
    local out = {}
    for i = 1, #list do out[i] = f(list[i], i, #list) end
    return out
  end
end

-- Every place of a plain text in another.
local function replace(s, find, to)
  if find == '' then return s end
  local out, at = {}, 1
  while true do
    local a, b = s:find(find, at, true)
    if not a then break end
    out[#out + 1], at = s:sub(at, a - 1) .. to, b + 1
  end
  return table.concat(out) .. s:sub(at)
end
M.replace = replace

local tidy = { { ' .', '.' }, { ' ?', '?' }, { ' !', '!' }, { ' ,', ',' }, { " ' ", "'" }, { " n't", "n't" }, { " 'm", "'m" },
  { ' do not', " don't" }, { " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" } }
local function cleanup(s)
  for i = 1, #tidy do s = replace(s, tidy[i][1], tidy[i][2]) end
  return s
end

local function byte_level(list)
  for i, t in ipairs(list) do
    local whole = true
    local s = t:gsub(CHAR, function(c) if not unbytes[c] then whole = false end return unbytes[c] end)
    list[i] = whole and s or t
  end
  return { u.lossy(table.concat(list)) }
end

local function byte_fallback(list)
  local out, run = {}, {}
  local function flush()
    if #run == 0 then return end
    local s = table.concat(run)
    out[#out + 1] = u.valid(s) and s or ('\239\191\189'):rep(#s)
    run = {}
  end
  for _, t in ipairs(list) do
    local hex = #t == 6 and t:match '^<0x(%x%x)>$'
    if hex then run[#run + 1] = string.char(tonumber(hex, 16))
    else
      flush()
      out[#out + 1] = t
    end
  end
  flush()
  return out
end

local function ctc(s)
  local pad, mark, tidies = s.pad_token or '<pad>', s.word_delimiter_token or '|', s.cleanup ~= false
  return function(list)
    local out, last = {}, nil
    for _, t in ipairs(list) do
      if t ~= last then
        local v = replace(t, pad, '')
        if tidies then v = replace(cleanup(v), mark, ' ') end
        if v ~= '' then out[#out + 1] = v end
      end
      last = t
    end
    return out
  end
end

local function stripped(s)
  local c = s.content
  if c == '' then return function(list) return list end end
  return each(function(t)
    for _ = 1, s.start or 0 do if t:sub(1, #c) == c then t = t:sub(#c + 1) else break end end
    for _ = 1, s.stop or 0 do if #t >= #c and t:sub(-#c) == c then t = t:sub(1, -#c - 1) else break end end
    return t
  end)
end

local makers = {
  ByteLevel = function() return byte_level end,
  ByteFallback = function() return byte_fallback end,
  Fuse = function() return function(list) return { table.concat(list) } end end,
  Strip = stripped,
  CTC = ctc,
  Replace = function(s)
    local f = parts.normalizer(s)
    return each(function(t) return u.text(f(u.codes(t))) end)
  end,
  WordPiece = function(s)
    local prefix = s.prefix or '##'
    return each(function(t, i)
      if i > 1 then t = prefix ~= '' and t:sub(1, #prefix) == prefix and t:sub(#prefix + 1) or ' ' .. t end
      return s.cleanup ~= false and cleanup(t) or t
    end)
  end,
  Metaspace = function(s)
    local mark = s.replacement or '\226\150\129'
    local never = s.prepend_scheme == 'never' or not s.prepend_scheme and s.add_prefix_space == false
    return each(function(t, i) return replace(t, mark, i == 1 and not never and '' or ' ') end)
  end,
  BPEDecoder = function(s)
    local suffix = s.suffix or '</w>'
    return each(function(t, i, n) return replace(t, suffix, i == n and '' or ' ') end)
  end,
}

--- The decoder of a file.
function M.decoder(s)
  if s.type == 'Sequence' then
    local fs = {}
    for i, d in ipairs(s.decoders) do fs[i] = M.decoder(d) end
    return function(list)
      for i = 1, #fs do list = fs[i](list) end
      return list
    end
  end
  local make = makers[s.type]
  if not make then error(("the decoder '%s' is not known"):format(tostring(s.type)), 0) end
  return make(s)
end

return M
