-- Claim: 20,000 training steps without a collectgarbage() by the user, 20 MB of other Lua data alive: resident
-- memory is flat after the first 200 steps.
local amp = require 'amp'
local nn, F = amp.nn, amp.nn.functional

local ballast = {}
for i = 1, 200000 do ballast[i] = {i, tostring(i)} end

local function resident()
  for line in io.lines('/proc/self/status') do
    local kb = line:match('^VmRSS:%s+(%d+)')
    if kb then return tonumber(kb) / 1024 end
  end
end

amp.manual_seed(1)
local net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
local opt = amp.optim.AdamW(net:parameters(), {lr = 1e-3})
local scaler = amp.GradScaler()
local x, y = amp.randn(256, 64), amp.randint(1, 11, {256}, {dtype = 'int64'})
local at200, worst = nil, 0
for i = 1, 20000 do
  local loss = amp.autocast({dtype = 'bfloat16'}, function() return F.cross_entropy(net(x * 1), y) end)
  scaler:scale(loss):backward()
  scaler:step(opt):update()
  opt:clear_grad()
  if i == 200 then at200 = resident()
  elseif i > 200 and i % 200 == 0 then worst = math.max(worst, resident()) end
end
assert(#ballast == 200000)
print(('at_200 %.2f MB'):format(at200))
print(('worst_after %.2f MB'):format(worst))
print(('growth %.2f MB <= 2'):format(math.max(0, worst - at200)))
