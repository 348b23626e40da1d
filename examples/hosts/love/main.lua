--- A game whose birds learn to fly while it runs: love .          (LOVE 11; amp is found as luajit finds it: LUA_PATH, or this tree)
-- The game asks a small network some fifteen times a second what each bird is to do. A thread with a Lua state of its own learns from
-- what came of it (learner.lua). Between them are mailboxes: what was seen goes one way, weights the other (player.lua).
--   space: faster    r: forget all and learn anew    escape: end
-- FRAMES=900 ends it after so many frames and says how they went; PICTURE=file.png keeps the last one.
-- luacheck: globals love
local tree = love.filesystem.getSource() .. '/../../../lua/'
package.path = love.filesystem.getSource() .. '/?.lua;' .. package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local amp = require 'amp'
local World = require 'world'
local Player = require 'player'

local STEP, DECISION, PERIOD = 1 / 60, 4, 5 -- seconds a step of the rules; steps a decision; seconds a score is of
local most, picture = tonumber(os.getenv 'FRAMES'), os.getenv 'PICTURE'
local world, player, thread
local clock, ticks, frames, fast = 0, 0, 0, false
local scores, was = {}, {passes = 0, hits = 0} -- shares of walls that were passed, and the counts when the last one was taken
local spent, worst = 0, 0 -- seconds of the frames' updates

local function begin()
  world = World.new()
  player = Player.new(world)
  thread = love.thread.newThread 'learner.lua'
  thread:start(package.path)
  scores, was, ticks = {}, {passes = 0, hits = 0}, 0
end

local function finish()
  player.stop:put(true)
  thread:wait()
  for _, box in ipairs {player.seen, player.weights, player.stop} do box:clear() end
end

function love.load()
  math.randomseed(most and 3 or os.time())
  begin()
end

if most then -- nobody looks: an error ends it
  function love.errorhandler(message)
    io.stderr:write(tostring(message), '\n')
    return function() return 1 end
  end
end

function love.threaderror(_, message) error('the thread that learns: ' .. message, 0) end

local function tick()
  world:step(STEP)
  ticks = ticks + 1
  if ticks % DECISION == 0 then player:decide() end
  if ticks % (PERIOD / STEP) == 0 then
    local passes, hits = world.passes - was.passes, world.hits - was.hits
    scores[#scores + 1] = passes / math.max(1, passes + hits)
    was.passes, was.hits = world.passes, world.hits
  end
end

function love.update(dt)
  local began = amp.clock()
  clock = math.min(clock + dt * (fast and 4 or 1), 0.2)
  while clock >= STEP do
    clock = clock - STEP
    tick()
  end
  local took = amp.clock() - began
  spent, worst, frames = spent + took, math.max(worst, took), frames + 1
  if most and frames == most then love.event.quit() end
end

local function draw_walls(w, h)
  for _, wall in ipairs(world.walls) do
    local x, wide = wall.x * w, World.WIDE * w
    local top, bottom = h - (wall.gap + World.GAP / 2) * h, h - (wall.gap - World.GAP / 2) * h
    love.graphics.setColor(0.25, 0.5, 0.45)
    love.graphics.rectangle('fill', x, -10, wide, top + 10, 8)
    love.graphics.rectangle('fill', x, bottom, wide, h - bottom + 10, 8)
  end
end

local function draw_birds(w, h)
  for i, b in ipairs(world.birds) do
    -- only for the eye: a swarm is wide, though the rules see all of it at one place
    local x, y = (World.AT - (i % 8) * 0.012) * w, h - b.y * h
    local warm = b.trail / 0.4
    love.graphics.setColor(0.95, 0.85 - 0.6 * warm, 0.4 - 0.2 * warm, 0.9)
    love.graphics.push()
    love.graphics.translate(x, y)
    love.graphics.rotate(-math.atan(b.v * 0.8))
    love.graphics.polygon('fill', 9, 0, -6, -5, -3, 0, -6, 5)
    love.graphics.pop()
  end
end

-- The scores so far, as bars
local function draw_scores(w, h)
  local first = math.max(1, #scores - 59)
  for i = first, #scores do
    love.graphics.setColor(1, 1, 1, 0.35)
    love.graphics.rectangle('fill', 12 + (i - first) * 8, h - 12 - scores[i] * 60, 6, scores[i] * 60)
  end
  love.graphics.setColor(1, 1, 1)
  local score = scores[#scores]
  love.graphics.print(('%s of the walls passed   %d steps learnt   curiosity %.0f %%   %.2f ms a frame'):format(
    score and ('%.0f %%'):format(100 * score) or '-', player.steps, 100 * player.curious, 1000 * spent / math.max(1, frames)), 12, 10)
  love.graphics.printf(fast and 'space: slower' or 'space: faster', 0, 10, w - 12, 'right')
end

function love.draw()
  local w, h = love.graphics.getDimensions()
  love.graphics.clear(0.09, 0.11, 0.18)
  draw_walls(w, h)
  draw_birds(w, h)
  draw_scores(w, h)
  if picture and most and frames == most - 1 then
    love.graphics.captureScreenshot(function(image)
      local f = assert(io.open(picture, 'wb'))
      f:write(image:encode 'png':getString())
      f:close()
    end)
  end
end

function love.keypressed(key)
  if key == 'escape' then love.event.quit()
  elseif key == 'space' then fast = not fast
  elseif key == 'r' then
    finish()
    begin()
  end
end

function love.quit()
  finish()
  if most then
    print(('%d frames, %.2f ms each on the game\'s thread, %.1f at most; passed %.0f %% of the walls at first, %.0f %% at the end; %d steps'):format(
      frames, 1000 * spent / frames, 1000 * worst, 100 * (scores[1] or 0), 100 * (scores[#scores] or 0), player.steps))
  end
end
