--- Runs in a thread, in a Lua state of its own: learns from what the game has seen, and sends weights back (Q-learning with a
-- memory and a slow copy of the network; Mnih and others, 2015).
-- love.thread.newThread('learner.lua'):start(package.path), or by any other host's threads: returns at the mailbox 'stop'.
package.path = ... or package.path
local amp = require 'amp'
local F = amp.nn.functional
local World = require 'world'

local ROOM, BATCH, SOON, EVERY = 32768, 256, 0.95, 20 -- memory; samples a step; what a reward later is worth; steps between weights

amp.set_num_threads(1)
amp.manual_seed(2)
local net = require 'model'()
local slow = net:clone():eval()
local opt = amp.optim.Adam(net:parameters(), {lr = 1e-3})
local seen, weights, stop = amp.mailbox('seen', {keep = 64}), amp.mailbox 'weights', amp.mailbox 'stop'

local memory = {seen = amp.zeros(ROOM, World.SIGHTS), then_ = amp.zeros(ROOM, World.SIGHTS), reward = amp.zeros(ROOM), over = amp.zeros(ROOM),
  action = amp.ones(ROOM, {dtype = 'int64'})}
local count = 0 -- all that was seen

local function remember(letter)
  local n, at = World.BIRDS, count % ROOM
  for name, t in pairs(memory) do t[{{at + 1, at + n}}] = letter[name] end
  count = count + n
end

local function learn()
  local pick = amp.randint(1, math.min(count, ROOM) + 1, {BATCH}, {dtype = 'int64'})
  local b = {}
  for name, t in pairs(memory) do b[name] = t:index_select(1, pick) end
  local target = amp.no_grad(function()
    local best = net(b.then_):argmax(2, true) -- the network picks, the slow one says what that is worth
    return b.reward + SOON * (1 - b.over) * slow(b.then_):gather(2, best):squeeze(2)
  end)
  local loss = F.smooth_l1_loss(net(b.seen):gather(2, b.action:unsqueeze(2)):squeeze(2), target)
  loss:backward()
  opt:step():clear_grad()
  return loss
end

local steps = 0
while not stop:take() do
  local letter = seen:take(steps == 0 and 0.1 or 0.005)
  while letter do
    remember(letter)
    letter = seen:take()
  end
  -- no more than so many samples a decision that was seen: the same ones over and over teach little
  while count >= 2048 and steps < (count - 2048) / World.BIRDS * 4 do
    local loss = learn()
    steps = steps + 1
    if steps % EVERY == 0 then weights:put({net = net:state_dict(), steps = steps, loss = loss:item()}, {copy = true}) end
    if steps % 100 == 0 then slow:load_state_dict(net:state_dict()) end
    if steps % 10 == 0 then break end -- look whether it is time to stop
  end
end
