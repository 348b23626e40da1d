--- The adapter of luv (Neovim's vim.loop too): a request is a coroutine, which the loop's timer resumes.
local raise = require('amp.error').throw
local vim = rawget(_G, 'vim')
local uv = package.loaded.luv or vim and (vim.uv or vim.loop) or require 'luv'

local M = {}

function M.signal() return {} end

function M.wait(s)
  if s.done then return end
  s.co = coroutine.running()
  if not s.co then raise('serve.batcher', 'a request waits, so it runs in a coroutine: coroutine.wrap(function() ... end)()') end
  repeat coroutine.yield() until s.done
end

function M.wake(s)
  s.done = true
  if not s.co then return end
  local ok, e = coroutine.resume(s.co)
  if not ok then error(e, 0) end
end

--- Whether a request that began to wait is gone.
function M.left(s) return s.co ~= nil and coroutine.status(s.co) == 'dead' end

--- Runs fn in ms milliseconds, whole ones: not later.
function M.after(ms, fn)
  local timer = uv.new_timer()
  timer:start(math.floor(ms), 0, function()
    timer:close()
    fn()
  end)
end

return M
