--- A language model of characters: an embedding, an nn.LSTMCell that is stepped by hand, a linear layer, in float16.
-- The state is cut from its history after each piece of text (truncated back-propagation), gradients are clipped.
-- Try: luajit examples/char_lm.lua --steps 200
local tree = (arg[0]:match '^(.*/)' or '') .. '../lua/' -- where amp is not installed, its tree as it lies here
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local nn, F = amp.nn, amp.nn.functional

local steps = tonumber((table.concat(arg, ' '):match('%-%-steps[ =](%d+)'))) or 200
local text = ([[
the river carries the rain to the sea, and the sea sends the rain to the hill,
and the hill lets it run to the river again, and the water is never still.
the wheel of the mill by the river goes round, and it grinds what the farmer has sown,
and the baker makes bread of the flour he found, and none of them works alone.
]]):rep(4)

local letters, number = {}, {}
for c in text:gmatch('.') do
  if not number[c] then
    letters[#letters + 1] = c
    number[c] = #letters
  end
end
local codes = {}
for c in text:gmatch('.') do codes[#codes + 1] = number[c] end

amp.manual_seed(1)
local batch, length, width = 8, 24, 64
local column = math.floor(#codes / batch)
local rows = amp.tensor(codes, {dtype = 'int64'})[{{1, batch * column}}]:view(batch, column)
local embed, cell, out = nn.Embedding(#letters, 32), nn.LSTMCell(32, width), nn.Linear(width, #letters)
local parameters = nn.ModuleList{embed, cell, out}:parameters()
local opt, scaler = amp.optim.Adam(parameters, {lr = 1e-2}), amp.GradScaler()

local state, at, result = nil, 1, {}
for i = 1, steps do
  local loss = amp.autocast({dtype = 'float16'}, function()
    local sum = 0
    for t = at, at + length - 1 do
      local h, c = cell(embed(rows[{{}, t}]), state)
      state = {h, c}
      sum = sum + F.cross_entropy(out(h), rows[{{}, t + 1}])
    end
    return sum / length
  end)
  scaler:scale(loss):backward()
  scaler:unscale_(opt)
  nn.utils.clip_grad_norm_(parameters, 1)
  scaler:step(opt):update()
  opt:clear_grad()
  at = at + length
  state = at + length < column and {state[1]:detach(), state[2]:detach()} or nil
  if not state then at = 1 end
  result.last = loss:item()
  result.first = result.first or result.last
  if i % 50 == 0 or i == steps then print(('step %4d  loss %.3f a character'):format(i, result.last)) end
end

-- The likeliest continuation of a beginning.
local said = amp.no_grad(function()
  local s, line = nil, 'the r'
  for k = 1, #line + 60 do
    local h, c = cell(embed(amp.tensor({number[line:sub(k, k)]}, {dtype = 'int64'})), s)
    s = {h, c}
    if k >= #line then line = line .. letters[out(h):argmax(2):item()] end
  end
  return line
end)
print(said)
result.said = said
return result
