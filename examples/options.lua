--- Options of an example: pairs `--name value` over defaults, false where there is none; a number where the default is one.
-- gpt.lua and finetune.lua read theirs by it: local o = dofile 'options.lua'({steps = 100, data = false}, arg)
return function(o, words)
  for i = 1, #words, 2 do
    local name = words[i]:match '^%-%-(.+)'
    if o[name] == nil or words[i + 1] == nil then error('unknown or unfinished option ' .. words[i] .. '; the head of this file lists them', 0) end
    o[name] = type(o[name]) == 'number' and assert(tonumber(words[i + 1]), words[i] .. ' needs a number') or words[i + 1]
  end
  return o
end
