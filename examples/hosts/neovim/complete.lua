--- A small character model that learns the buffer it is opened in, and completes: in Neovim
--   :luafile complete.lua        then :AmpLearn (or :AmpLearn 2000: steps), and in insert mode Ctrl-X Ctrl-U
-- Headless: nvim --headless --clean -c 'luafile complete.lua' -c AmpLearn file
-- It learns a few milliseconds at a time on the editor's loop, so that typing goes on.
local vim = vim -- luacheck: globals vim
local file = debug.getinfo(1, 'S').source:match '^@(.*/)' or './'
package.path = package.path .. ';' .. file .. '../../../lua/?.lua;' .. file .. '../../../lua/?/init.lua'
local amp = require 'amp'
amp.set_num_threads(1)
local nn, F = amp.nn, amp.nn.functional

local CONTEXT, STEPS, SLICE = 8, 400, 5 -- characters that are looked at; steps; milliseconds of learning at a time

local net = nn.Sequential(nn.Embedding(256, 16), nn.Flatten(), nn.Linear(16 * CONTEXT, 128), nn.ReLU(), nn.Linear(128, 256))
local opt = amp.optim.AdamW(net:parameters(), {lr = 3e-3})
local last, learning -- the loss of the last step; whether it is learning now

-- Rows of CONTEXT characters, as classes from 1, and the one behind each
local function examples(text, n)
  local x, y = {}, {}
  text = ('\n'):rep(CONTEXT) .. text
  for i = 1, n do
    local at = math.random(#text - CONTEXT)
    local row = {text:byte(at, at + CONTEXT - 1)}
    for k = 1, CONTEXT do row[k] = row[k] + 1 end
    x[i], y[i] = row, text:byte(at + CONTEXT) + 1
  end
  return amp.tensor(x, {dtype = 'int64'}), amp.tensor(y, {dtype = 'int64'})
end

local function learn(text, left)
  local began = vim.loop.hrtime()
  repeat
    local x, y = examples(text, 64)
    local loss = F.cross_entropy(net(x), y)
    loss:backward()
    opt:step():clear_grad()
    last, left = loss:item(), left - 1
  until left == 0 or vim.loop.hrtime() - began > SLICE * 1e6
  if left > 0 then return vim.defer_fn(function() learn(text, left) end, 1) end -- what was typed comes first
  learning, vim.g.amp_loss = false, last
  print(('amp: learnt, loss %.2f'):format(last))
end

--- What may follow a text: up to the end of the line.
local function continue(text, most)
  text = ('\n'):rep(CONTEXT) .. text
  local out = ''
  amp.no_grad(function()
    for _ = 1, most do
      local row = {(text .. out):byte(-CONTEXT, -1)}
      for k = 1, CONTEXT do row[k] = row[k] + 1 end
      local c = string.char(net(amp.tensor({row}, {dtype = 'int64'})):argmax(2):item() - 1)
      if c == '\n' then return end
      out = out .. c
    end
  end)
  return out
end

vim.api.nvim_create_user_command('AmpLearn', function(o)
  local text, steps = table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\n'), tonumber(o.args) or STEPS
  if text == '' or learning or steps < 1 then return print(learning and 'amp: still learning' or 'amp: there is nothing to learn') end
  learning = true
  learn(text, steps)
end, {nargs = '?'})

--- For 'completefunc'.
function _G.amp_complete(findstart) -- luacheck: ignore 122
  local line, column = vim.api.nvim_get_current_line(), vim.api.nvim_win_get_cursor(0)[2]
  if findstart == 1 then return column end
  local rows = vim.api.nvim_buf_get_lines(0, 0, vim.api.nvim_win_get_cursor(0)[1] - 1, false)
  rows[#rows + 1] = line:sub(1, column)
  local found = continue(table.concat(rows, '\n'), 40)
  return found ~= '' and {found} or {}
end
vim.o.completefunc = 'v:lua.amp_complete'
