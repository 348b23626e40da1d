--- Options of an example: pairs `--name value` over defaults, false where there is none; a number where the default is one.
-- alone: what a name means that stands without a value.
-- gpt.lua and finetune.lua read theirs by it: local o = dofile 'options.lua'({steps = 100, data = false}, arg)
return function(o, words, alone)
  local at = 1
  while words[at] do
    local name, value = words[at]:match '^%-%-(.+)', words[at + 1]
    local short = alone and alone[name]
    if short and (value == nil or value:find '^%-%-') then
      value = short
      at = at - 1
    end
    if o[name] == nil or value == nil then error('unknown or unfinished option --' .. tostring(name) .. '; the head of this file lists them', 0) end
    o[name] = type(o[name]) == 'number' and assert(tonumber(value), '--' .. name .. ' needs a number') or value
    at = at + 2
  end
  return o
end
