--- Trains in a thread while the loop stays free: luajit train.lua [steps]     (Debian: lua-luv)
-- The thread has a Lua state of its own. What it has to say lies in a mailbox: progress, the trained weights, or why it failed; an
-- async handle wakes the loop. (Several words that come at once are one wake: the mailbox has them all.)
local tree = (arg[0]:match '^(.*/)' or '') .. '../../../lua/'
package.path = package.path .. ';' .. tree .. '?.lua;' .. tree .. '?/init.lua'
local uv = require 'luv'
local amp = require 'amp'

local steps = tonumber(arg[1] or 3000)
local told = amp.mailbox('told', {keep = 100}) -- opened before the thread is there: what it says stays when it ends
local stop = amp.mailbox 'stop'

-- Runs in the thread: sees nothing of what stands outside of it.
local function work(wake, path, n)
  package.path = path
  local amp = require 'amp' -- luacheck: ignore 431
  local told, stop = amp.mailbox 'told', amp.mailbox 'stop' -- luacheck: ignore 431
  local function tell(what)
    told:put(what, {copy = true})
    wake:send()
  end
  local ok, why = pcall(function()
    amp.set_num_threads(1)
    amp.manual_seed(1)
    local net = amp.nn.Linear(4, 1)
    local x = amp.randn(64, 4)
    local y = x:matmul(amp.tensor{{1}, {-2}, {3}, {0.5}}) + 0.25
    local opt = amp.optim.SGD(net:parameters(), {lr = 0.1})
    local loss
    for step = 1, n do
      loss = amp.nn.functional.mse_loss(net(x), y)
      loss:backward()
      opt:step():clear_grad()
      if step % 500 == 0 then tell{step = step, loss = loss:item()} end
      if stop:take() then break end
    end
    tell{weights = net:state_dict(), loss = loss:item()}
  end)
  if not ok then tell{failed = tostring(why)} end
end

local ticks, trained, failed = 0, nil, nil
local ticker, interrupt = uv.new_timer(), uv.new_signal()
local wake
wake = uv.new_async(function()
  for letter in function() return (told:take()) end do
    if letter.step then print(('step %d  loss %.6f'):format(letter.step, letter.loss)) end
    trained, failed = letter.weights, letter.failed
  end
  if not (trained or failed) then return end
  for _, handle in ipairs {ticker, interrupt, wake} do handle:close() end
end)
ticker:start(0, 1, function() ticks = ticks + 1 end)
interrupt:start('sigint', function() stop:put(true) end) -- Ctrl-C: the thread hands over what it has
local thread = uv.new_thread(work, wake, package.path, steps)
uv.run()
thread:join()
if failed then
  io.stderr:write('the thread failed: ', failed, '\n')
  os.exit(1)
end
print('weight', trained.weight)
print('bias', trained.bias)
print(ticks > 0 and 'the loop ran meanwhile' or 'the loop stood still')
