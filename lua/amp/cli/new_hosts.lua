--- The files that `amp new --serve` and `amp new --love` add to a project.
-- @module amp.cli.new_hosts
local M = {}

M.serve = { { 'serve.lua', [==[
--- Answers over HTTP: amp serve.lua [port], after amp train.lua (Debian: lua-luv)
--   curl -d '[0.3, -0.2]' http://127.0.0.1:8080/      {"class": 2}
--   curl http://127.0.0.1:8080/health
-- Requests that come at about the same time share a forward.
local uv = require 'luv'
local amp = require 'amp'

amp.set_num_threads(1)
local graph = amp.load_graph 'model.safetensors'
local classify = amp.serve.batcher(graph, {max_batch = 32, max_wait_ms = 2, shape = {2}, adapter = 'luv'})

local function respond(client, status, text)
  if client:is_closing() then return end
  local head = 'HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n'
  client:write(head:format(status, #text + 1, text), function() if not client:is_closing() then client:close() end end)
end

local function answer(client, method, path, body)
  if path == '/health' then return respond(client, '200 OK', '{"status": "ok"}') end
  if method ~= 'POST' then return respond(client, '404 Not Found', '{"error": "POST a list of two numbers to /"}') end
  local list = {}
  for word in body:gmatch '[^%s,%[%]]+' do list[#list + 1] = tonumber(word) or 0 / 0 end
  local ok, x = pcall(amp.tensor, #list > 0 and list or nil)
  local fine, ticket
  if ok then fine, ticket = pcall(classify.submit, classify, x) end
  if not fine then return respond(client, '400 Bad Request', '{"error": "a list of two numbers is expected"}') end
  client.ticket = ticket
  local good, scores = pcall(ticket.wait, ticket)
  if not good then return respond(client, '500 Internal Server Error', '{"error": "the model failed"}') end
  respond(client, '200 OK', ('{"class": %d}'):format(scores:argmax():item()))
end

local function serve(socket)
  local client, text = {}, ''
  function client:is_closing() return socket:is_closing() end -- luacheck: ignore 212
  function client:close() socket:close() end -- luacheck: ignore 212
  function client:write(...) socket:write(...) end -- luacheck: ignore 212
  socket:read_start(function(why, chunk)
    if why or not chunk then -- the client is gone: so is its sample
      if client.ticket then client.ticket:cancel() end
      if not socket:is_closing() then socket:close() end
      return
    end
    text = text .. chunk
    local head, body = text:match '^(.-\r\n)\r\n(.*)$'
    if #text > 65536 then return socket:close() end
    if not head or client.asked then return end
    local length = tonumber(head:lower():match '\ncontent%-length: *(%d+)' or 0)
    if #body < length then return end
    client.asked = true
    local method, path = head:match '^(%u+) (%S+)'
    coroutine.wrap(answer)(client, method, path, body)
  end)
end

local server = uv.new_tcp()
server:bind('127.0.0.1', tonumber(arg[1] or 8080))
assert(server:listen(128, function()
  local socket = uv.new_tcp()
  server:accept(socket)
  serve(socket)
end))
print(('http://127.0.0.1:%d'):format(server:getsockname().port))
io.stdout:flush()
uv.run()
]==] } }

M.serve_text = [[
    amp serve.lua            answers over HTTP with what was trained (needs luv; Debian: lua-luv)
]]

M.love = { { 'conf.lua', [==[
-- luacheck: globals love
function love.conf(t)
  t.window.title = 'learns while it runs'
  t.window.width, t.window.height = 480, 480
end
]==] }, { 'main.lua', [==[
--- A game that learns while it runs: love .
-- The network of model.lua learns to tell the spirals' arms apart, a few milliseconds a frame; the colours show what it thinks.
-- luacheck: globals love
local amp = require 'amp'
local F = amp.nn.functional
local Model = require 'model'
local data = require 'data'

local SLICE, CELLS = 0.004, 32 -- seconds of learning a frame; squares a side
local colours = {{0.9, 0.4, 0.3}, {0.3, 0.7, 0.4}, {0.3, 0.5, 0.9}}
local net, opt, x, y, grid, thought, frames, loss

function love.load()
  amp.manual_seed(1)
  amp.set_num_threads(1)
  x, y = data.spirals(200, 3)
  net = Model(2, 64, 3)
  opt = amp.optim.AdamW(net:parameters(), {lr = 3e-3})
  local points = {}
  for i = 0, CELLS * CELLS - 1 do
    points[i + 1] = {(i % CELLS + 0.5) / CELLS * 2 - 1, (math.floor(i / CELLS) + 0.5) / CELLS * 2 - 1}
  end
  grid, frames = amp.tensor(points), 0
end

function love.update()
  local began = amp.clock()
  repeat
    local pick = amp.randint(1, x:size(1) + 1, {64}, {dtype = 'int64'})
    local l = F.cross_entropy(net(x:index_select(1, pick)), y:index_select(1, pick))
    l:backward()
    opt:step():clear_grad()
    loss = l:item()
  until amp.clock() - began > SLICE
  thought = amp.no_grad(function() return net(grid):argmax(2):tolist() end)
  frames = frames + 1
  local most = tonumber(os.getenv 'FRAMES') -- for trying it without a player
  if most and frames >= most then
    print(('loss %.3f'):format(loss))
    love.event.quit()
  end
end

function love.draw()
  local size = love.graphics.getWidth() / CELLS
  for i, class in ipairs(thought or {}) do
    love.graphics.setColor(colours[class])
    love.graphics.rectangle('fill', (i - 1) % CELLS * size, math.floor((i - 1) / CELLS) * size, size, size)
  end
  love.graphics.setColor(1, 1, 1)
  love.graphics.print(('loss %.3f'):format(loss or 0), 8, 8)
end
]==] } }

M.love_text = [[
    love .                   a window in which the network learns while it runs (LOVE 11; amp is found as luajit finds it: LUA_PATH)
]]

return M
