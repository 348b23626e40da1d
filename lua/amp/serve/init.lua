--- amp.serve: models behind servers and event loops.
--
--   local classify = amp.serve.batcher(net, {max_batch = 32, max_wait_ms = 2})
--   local scores = classify(x)          -- in a request: waits; others' x ride in the same forward
--   local bump = amp.serve.numbers(graph, {1, 8})
--   local p = bump '[0, 1, 0, 0, 0, 0, 0, 0]'      -- a small network: from text to a list of numbers by one function
--
-- An adapter tells how a request waits: 'nginx' (serve/nginx.lua), 'luv' (serve/luv.lua), or a table of functions, such as
-- the small scheduler of plain coroutines that amp.serve.loop() gives (serve/loop.lua).
local M = {}

local parts = { batcher = 'amp.serve.batcher', loop = 'amp.serve.loop', numbers = 'amp.serve.numbers' }

return setmetatable(M, {
  __index = function(t, k)
    local v = parts[k] and require(parts[k])
    if v then rawset(t, k, v)
    elseif type(k) == 'string' and k:sub(1, 1) ~= '_' then
      local util = require 'amp.util'
      require('amp.error').throw_code('name', nil, "amp.serve has no '%s'%s", k, util.hint(k, util.keys(parts)))
    end
    return v
  end,
})
