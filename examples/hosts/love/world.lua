--- The rules: a swarm flies to the right; walls with a gap come along; who hits a wall or the edge begins anew at the left.
-- Plain Lua: it runs without LOVE, too. Places are 0 to 1 upwards and in widths of the window to the right; time is in seconds.
local World = {}
World.__index = World

World.BIRDS, World.SIGHTS, World.ACTIONS = 64, 5, 3 -- actions: 1 sinks, 2 glides, 3 climbs
local SPEED, APART, WIDE, GAP = 0.45, 0.75, 0.06, 0.26 -- of walls: widths a second, distance, thickness, height of the gap
local AT, PUSH, DRAG = 0.2, 6, 2.5 -- where the swarm is seen; how hard a bird can steer, and what slows it down

local random = math.random

local function wall(x) return {x = x, gap = 0.2 + 0.6 * random()} end

function World.new()
  local self = setmetatable({walls = {}, birds = {}, hits = 0, passes = 0}, World)
  for i = 1, 3 do self.walls[i] = wall(0.3 + i * APART) end
  for i = 1, World.BIRDS do self.birds[i] = {y = random(), v = 0, action = 2, reward = 0, trail = 0} end
  return self
end

-- The wall that the swarm has to pass next
function World:next()
  for i = 1, #self.walls do
    if self.walls[i].x + WIDE > AT then return self.walls[i] end
  end
end

--- Lets dt seconds go by. Each bird's reward adds up until it is read: 1 for a wall passed, -1 for a hit, which ends its flight.
function World:step(dt)
  local ahead = self:next()
  for _, w in ipairs(self.walls) do w.x = w.x - SPEED * dt end
  local inside, passed = ahead.x < AT, ahead.x + WIDE <= AT
  for _, b in ipairs(self.birds) do
    b.v = b.v + ((b.action - 2) * PUSH - DRAG * b.v) * dt
    b.y = b.y + b.v * dt
    b.trail = math.max(0, b.trail - dt)
    if b.y < 0 or b.y > 1 or inside and math.abs(b.y - ahead.gap) > GAP / 2 then
      self.hits = self.hits + 1
      b.reward, b.over, b.trail = b.reward - 1, true, 0.4
      b.y, b.v = 0.1 + 0.8 * random(), 0
      if inside then b.y = ahead.gap + (random() - 0.5) * GAP * 0.8 end
    elseif passed then
      self.passes = self.passes + 1
      b.reward = b.reward + 1
    end
  end
  if self.walls[1].x + WIDE < 0 then
    table.remove(self.walls, 1)
    self.walls[3] = wall(self.walls[2].x + APART)
  end
end

--- What each bird sees: height, speed, how far the next wall is, how far off its gap and the gap behind it are.
-- Written to an array of BIRDS * SIGHTS floats.
function World:look(out)
  local ahead = self:next()
  local behind
  for i, w in ipairs(self.walls) do
    if w == ahead then behind = self.walls[i + 1] end
  end
  for i, b in ipairs(self.birds) do
    local at = (i - 1) * World.SIGHTS
    out[at], out[at + 1], out[at + 2] = 2 * b.y - 1, b.v, 2 * (ahead.x + WIDE - AT)
    out[at + 3], out[at + 4] = 4 * (ahead.gap - b.y), 2 * (behind.gap - b.y)
  end
end

World.AT, World.WIDE, World.GAP = AT, WIDE, GAP
return World
