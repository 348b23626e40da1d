--- The game's side of learning: asks the network what to do, puts what came of it into one mailbox, takes weights from the other.
local amp = require 'amp'
local ffi = require 'ffi'
local World = require 'world'

local BIRDS, SIGHTS = World.BIRDS, World.SIGHTS
local Player = {}
Player.__index = Player

-- Tensors of their own for each decision: the thread gets these, not copies.
local function empty(...) return amp.empty(..., {dtype = 'float32'}) end
local function floats(t) return ffi.cast('float *', t:data_ptr()) end

function Player.new(world)
  amp.set_num_threads(1) -- of each state's work: the other threads are the game's
  local self = setmetatable({world = world, net = require 'model'():eval(), curious = 1, steps = 0}, Player)
  self.seen = amp.mailbox('seen', {keep = 64}) -- opened before the thread is, so that nothing is lost
  self.weights, self.stop = amp.mailbox 'weights', amp.mailbox 'stop'
  self:think(empty{BIRDS, SIGHTS}:zero_()) -- the first time takes longest: what is needed is loaded
  return self
end

-- The best action of each bird
function Player:think(now)
  return amp.no_grad(function() return self.net(now):argmax(2) end)
end

--- Takes new weights, where there are some. What was learnt is done more and more often, what chance says less.
function Player:renew(seconds)
  local new = self.weights:take(seconds)
  if not new then return end
  self.net:load_state_dict(new.net)
  self.steps, self.loss, self.curious = new.steps, new.loss, math.max(0.02, 1 - new.steps / 1500)
end

--- One decision of the whole swarm, some fifteen a second.
function Player:decide()
  local world = self.world
  self:renew()
  local now = empty{BIRDS, SIGHTS}
  world:look(floats(now))
  if self.last then
    local reward, over = empty{BIRDS}, empty{BIRDS}
    local r, o = floats(reward), floats(over)
    for i, b in ipairs(world.birds) do
      r[i - 1], o[i - 1] = b.reward, b.over and 1 or 0
      b.reward, b.over = 0, false
    end
    self.seen:put{seen = self.last, action = self.actions, reward = reward, over = over, then_ = now}
  end
  local best = self:think(now)
  local a = ffi.cast('int64_t *', best:data_ptr())
  for i, b in ipairs(world.birds) do
    if math.random() < self.curious then a[i - 1] = math.random(World.ACTIONS) end
    b.action = tonumber(a[i - 1])
  end
  self.last, self.actions = now, best
end

return Player
