-- luacheck: globals love
function love.conf(t)
  t.window.title = 'a swarm that learns to fly'
  t.window.width, t.window.height = 800, 480
  t.modules.audio, t.modules.sound, t.modules.joystick, t.modules.physics = false, false, false, false
end
